"""Tables that an engine holds bring it: fits have the bits of one process, predictions stay there."""

import itertools

import numpy as np
import pandas as pd
import pytest

import bochner as bo
from bochner.cli import main
from bochner.errors import DataFileError, DataWarning, InvalidInput, InvalidType
from bochner.kernels import Gaussian

rng = np.random.default_rng(0)
N = 140_000  # three parts of the sum
CUTS = [0, 1_000, 1_000, 70_001, N]  # an empty partition, and none that ends where a part does
TABLE = pd.DataFrame(
    {
        "a": rng.standard_normal(N),
        "b": rng.standard_normal(N),
        "town": rng.choice(["Bonn", "Köln"], N),
    }
)
TABLE["fare"] = np.sin(TABLE.a) + (TABLE.town == "Bonn") + 0.1 * rng.standard_normal(N)
TABLE["kind"] = np.where(TABLE.fare > 0.5, "high", "low")
ROWS = TABLE.drop(columns=["fare", "kind"])
OPTIONS = dict(kernel=Gaussian(1.0), method="orthogonal", n_features=8, random_state=0)
HERE = bo.engines.Local(memory=0)

pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::FutureWarning"
)


def in_one_process(learner, **names):
    rows = TABLE[[*ROWS.columns, *names.values()]]
    return learner.fit_blocks(bo.Blocks.from_table(rows, **names), where=HERE)


@pytest.fixture
def cluster(dask_client):
    """The cluster, as dask's own."""
    with dask_client.as_current():
        yield dask_client


@pytest.fixture
def ddf():
    dd = pytest.importorskip("dask.dataframe")
    parts = [TABLE.iloc[a:b] for a, b in itertools.pairwise(CUTS)]
    return dd.from_map(lambda i: parts[i], [0, 1, 2, 3], meta=TABLE.iloc[:0])


@pytest.fixture
def dataset(ray_here):
    data = pytest.importorskip("ray.data")
    data.DataContext.get_current().enable_progress_bars = False
    rows = TABLE.drop(columns="kind")
    return data.from_pandas([rows.iloc[a:b] for a, b in itertools.pairwise(CUTS)])


@pytest.fixture
def spark_frame(spark_session):
    return spark_session.createDataFrame(TABLE.drop(columns="kind"))


# ---- dask


@pytest.mark.slow
def test_a_dask_table_is_fitted_on_its_cluster_with_the_bits_of_one_process(cluster, ddf):
    here = in_one_process(bo.KernelRidge(**OPTIONS), target="fare")
    there = bo.KernelRidge(**OPTIONS).fit(ddf.drop(columns=["fare", "kind"]), ddf["fare"])
    np.testing.assert_array_equal(there.coef_, here.coef_)
    assert there.schema_.columns == ("a", "b", "town")


def test_predictions_of_a_dask_table_are_lazy_and_have_its_index(cluster, ddf):
    model = bo.KernelRidge(**OPTIONS).fit(ddf.drop(columns=["fare", "kind"]), ddf["fare"])
    found = model.predict(ddf)
    assert type(found).__name__ == "Series"
    assert found.npartitions == 4
    pd.testing.assert_series_equal(
        found.compute(), pd.Series(model.predict(TABLE), name="prediction"), rtol=1e-9
    )


@pytest.mark.slow
def test_classes_and_their_probabilities_are_found_on_the_cluster(cluster, ddf):
    X, y = ddf[["a", "b"]], ddf["fare"] > 0.5
    there = bo.LogisticRegression(C=1.0, **OPTIONS).fit(X, y)
    rows = TABLE[["a", "b"]].iloc[:500]
    part = ddf[["a", "b"]].partitions[:1]
    assert list(there.classes_) == [0, 1]
    shares = there.predict_proba(part)
    assert list(shares.columns) == ["probability_0", "probability_1"]
    np.testing.assert_allclose(shares.compute()[:500], there.predict_proba(rows), atol=1e-9)


def test_weights_and_several_targets_come_beside_a_dask_table(cluster, ddf):
    both = ddf.assign(other=2 * ddf["fare"], w=ddf["a"] ** 2)
    X = both[["a", "b"]]
    there = bo.KernelRidge(**OPTIONS).fit(X, both[["fare", "other"]], sample_weight=both["w"])
    table = TABLE[["a", "b", "fare"]].assign(other=2 * TABLE.fare, w=TABLE.a**2)
    blocks = bo.Blocks.from_table(table, target=["fare", "other"], weight="w")
    here = bo.KernelRidge(**OPTIONS).fit_blocks(blocks, where=HERE)
    np.testing.assert_array_equal(there.coef_, here.coef_)
    assert list(there.predict(X).columns) == ["prediction_0", "prediction_1"]


def test_dask_arrays_are_fitted_and_predicted_chunk_by_chunk(cluster):
    da = pytest.importorskip("dask.array")
    X, y = TABLE[["a", "b"]].to_numpy(), TABLE.fare.to_numpy()
    dX, dy = da.from_array(X, chunks=(30_000, 1)), da.from_array(y, chunks=50_000)
    there = bo.KernelRidge(**OPTIONS).fit(dX, dy)
    here = bo.KernelRidge(**OPTIONS).fit_blocks(bo.Blocks.from_arrays(X, y), where=HERE)
    np.testing.assert_array_equal(there.coef_, here.coef_)
    found = there.predict(dX)
    assert isinstance(found, da.Array)
    np.testing.assert_allclose(found.compute(), there.predict(X), rtol=1e-9)
    components = bo.KernelPCA(2, **OPTIONS).fit(dX)
    assert components.transform(dX).shape == (N, 2)
    assert components.transform(dX)[:10].compute().shape == (10, 2)


def test_without_a_cluster_a_dask_table_is_read_here_partition_by_partition(ddf):
    there = bo.KernelRidge(**OPTIONS).fit(ddf[["a", "b"]], ddf["fare"])
    here = bo.KernelRidge(**OPTIONS).fit(TABLE[["a", "b"]], TABLE.fare)
    np.testing.assert_array_equal(there.coef_, here.coef_)


# ---- Ray and Spark


@pytest.mark.slow
def test_a_ray_dataset_is_fitted_where_its_blocks_are(dataset):
    here = in_one_process(bo.KernelRidge(**OPTIONS), target="fare")
    there = bo.KernelRidge(**OPTIONS).fit(dataset, "fare")
    np.testing.assert_array_equal(there.coef_, here.coef_)
    found = there.predict(dataset.limit(2_000))
    assert type(found).__module__.startswith("ray.data")
    values = found.to_pandas().prediction
    np.testing.assert_allclose(values, here.predict(TABLE.iloc[:2_000]), rtol=1e-9)


@pytest.mark.slow
def test_a_spark_table_is_fitted_where_its_partitions_are(spark_frame):
    here = in_one_process(bo.KernelRidge(**OPTIONS), target="fare")
    there = bo.KernelRidge(**OPTIONS).fit(spark_frame, "fare")
    np.testing.assert_array_equal(there.coef_, here.coef_)
    found = there.predict(spark_frame.limit(2_000))
    assert found.columns == [*ROWS.columns, "fare", "prediction"]
    values = found.toPandas()
    np.testing.assert_allclose(values.prediction, here.predict(values[ROWS.columns]), rtol=1e-9)


# ---- rows without a target


GAPS = TABLE[["a", "b", "fare"]].iloc[:3_000].copy()
GAPS.loc[GAPS.index % 7 == 0, "fare"] = np.nan
NO_FARE = r"429 rows have no target 'fare', of 3,000 rows; first in row 0 of partition 0 of the"


@pytest.mark.parametrize("engine", ["dask", "dask workers", "ray", "spark"])
def test_rows_without_a_target_are_left_out_with_one_warning(engine, request):
    parts = [GAPS.iloc[a:b] for a, b in itertools.pairwise([0, 1_000, 1_000, 3_000])]
    if engine == "ray":
        request.getfixturevalue("ray_here")
        table = pytest.importorskip("ray.data").from_pandas(parts)
    elif engine == "spark":
        table = request.getfixturevalue("spark_session").createDataFrame(GAPS)
    else:
        request.getfixturevalue("cluster") if engine == "dask workers" else None
        dd = pytest.importorskip("dask.dataframe")
        table = dd.from_map(lambda i: parts[i], [0, 1, 2], meta=GAPS.iloc[:0])
    with pytest.warns(DataWarning, match=NO_FARE) as told:
        there = bo.KernelRidge(**OPTIONS).fit(table, "fare")
    assert len([one for one in told if issubclass(one.category, DataWarning)]) == 1
    known = bo.Blocks.from_table(GAPS.dropna(), target="fare")
    here = bo.KernelRidge(**OPTIONS).fit_blocks(known, where=HERE)
    np.testing.assert_array_equal(there.coef_, here.coef_)


# ---- refusals


def test_partitions_with_other_columns_are_named():
    dd = pytest.importorskip("dask.dataframe")
    parts = [TABLE.iloc[:100], TABLE.iloc[100:200].rename(columns={"b": "c"})]
    odd = dd.from_map(lambda i: parts[i], [0, 1], meta=TABLE.iloc[:0], enforce_metadata=False)
    blocks = bo.Blocks.from_table(odd, target="fare")
    with pytest.raises(
        InvalidInput, match=r"partition 1 of the dask DataFrame must have the col.*no column 'b'"
    ):
        list(blocks)


def test_a_partition_of_another_type_is_named():
    dd = pytest.importorskip("dask.dataframe")
    parts = [TABLE.iloc[:100], TABLE.iloc[100:200].assign(b="many")]
    odd = dd.from_map(lambda i: parts[i], [0, 1], meta=TABLE.iloc[:0], enforce_metadata=False)
    with pytest.raises(
        InvalidInput, match=r"column 'b' .*got 'many'.* row 0 of partition 1 of the dask DataFrame"
    ):
        bo.KernelRidge(**OPTIONS).fit_blocks(bo.Blocks.from_table(odd[["a", "b"]], target="a"))


OTHER_TYPES = {
    "times": (1.0, pd.Timestamp("2020-01-01"), "'b' must hold numbers, .* holds Datetime"),
    "lists": (
        1.0,
        pd.Series([[1]] * 100, TABLE.index[100:200]),
        "'b' must hold numbers",  # dask may have made text of them
    ),
    "too long": (
        1.0,
        pd.array([2**60 + 1] * 100, "int64[pyarrow]"),
        "'b' must hold numbers.* Int64 .In",
    ),
    "numbers": (pd.Timestamp("2020-01-01"), 1.0, "'b' must hold times, .* on it holds Float64"),
}


@pytest.mark.parametrize("kind", OTHER_TYPES)
def test_a_partition_whose_column_is_of_another_kind_is_named(kind):
    dd = pytest.importorskip("dask.dataframe")
    before, after, match = OTHER_TYPES[kind]
    first = TABLE.iloc[:100][["a", "fare"]]
    parts = [first.assign(b=before), TABLE.iloc[100:200][["a", "fare"]].assign(b=after)]
    odd = dd.from_map(lambda i: parts[i], [0, 1], meta=parts[0].iloc[:0], enforce_metadata=False)
    with pytest.raises(InvalidInput, match=rf"column {match}") as caught:
        bo.KernelRidge(**OPTIONS).fit(odd, "fare")
    assert "row 0 of partition 1 of the dask DataFrame" in str(caught.value)


def with_disk(folder):
    """A table whose second partition can be computed while there is a file in a folder."""
    dd = pytest.importorskip("dask.dataframe")
    parts = [TABLE.iloc[i : i + 100][["a", "fare"]] for i in (0, 100, 200)]

    def make(i):
        if i == 1 and not any(folder.iterdir()):
            raise OSError("the disk is gone")
        return parts[i]

    return dd.from_map(make, [0, 1, 2], meta=parts[0].iloc[:0])


def test_a_partition_that_cannot_be_computed_is_named(tmp_path):
    with pytest.raises(
        DataFileError, match=r"^Blocks: partition 1 of the dask DataFrame must be .*disk is gone\)"
    ):
        bo.Blocks.from_table(with_disk(tmp_path), target="fare")


@pytest.mark.parametrize("on_workers", [False, True], ids=["here", "on workers"])
def test_a_partition_that_is_lost_between_passes_is_named(dask_client, tmp_path, on_workers):
    (tmp_path / "disk").touch()
    blocks = bo.Blocks.from_table(with_disk(tmp_path), target="fare")
    (tmp_path / "disk").unlink()
    model = bo.KernelRidge(**OPTIONS)
    where = bo.engines.Dask(dask_client) if on_workers else HERE
    with pytest.raises(DataFileError, match=r"^Blocks: partition 1 of the dask .*disk is gone\)"):
        model.fit_blocks(blocks, where=where)
    assert not hasattr(model, "fit_")


def test_a_chunk_that_cannot_be_computed_is_named(cluster):
    da, delayed = pytest.importorskip("dask.array"), pytest.importorskip("dask").delayed
    bad = delayed(lambda: 1 / 0)()
    X = da.concatenate(
        [da.from_array(ROWS[["a", "b"]].to_numpy()[:100]), da.from_delayed(bad, (100, 2), float)]
    )
    with pytest.raises(DataFileError, match=r"chunk 1 of the dask Array .*ZeroDivisionError"):
        bo.KernelRidge(**OPTIONS).fit(X, X[:, 0])


def broken(batches):
    raise OSError("the disk is gone")


def test_a_ray_dataset_that_cannot_be_computed_is_told(dataset):
    with pytest.raises(DataFileError, match=r"the ray Dataset must be .*OSError: the disk is gone"):
        bo.KernelRidge(**OPTIONS).fit(dataset.map_batches(broken), "fare")


def test_a_spark_table_that_cannot_be_computed_or_has_no_rows_is_told(spark_frame):
    lost = spark_frame.mapInArrow(broken, spark_frame.schema)
    with pytest.raises(
        DataFileError, match=r"the pyspark DataFrame must .*OSError: the disk is go"
    ):
        bo.KernelRidge(**OPTIONS).fit(lost, "fare")
    with pytest.raises(InvalidInput, match=r"at least one row; the pyspark DataFrame has none"):
        bo.KernelRidge(**OPTIONS).fit(spark_frame.filter("a > 100"), "fare")


def test_rows_that_change_between_passes_are_refused(tmp_path):
    dd = pytest.importorskip("dask.dataframe")
    rows = TABLE[["a", "fare"]]

    def fewer(_):
        (tmp_path / f"{len([*tmp_path.iterdir()])}").touch()
        return rows.iloc[: 100 - len([*tmp_path.iterdir()])]

    blocks = bo.Blocks.from_table(dd.from_map(fewer, [0], meta=rows.iloc[:0]), target="fare")
    with pytest.raises(InvalidInput, match=r"partition 0 .* same \d+ rows in every pass; got \d+"):
        list(blocks)


def test_a_dask_table_without_rows_is_refused(ddf):
    with pytest.raises(InvalidInput, match="must have at least one row"):
        bo.KernelRidge(**OPTIONS).fit(ddf[["a", "b"]].partitions[1], ddf["fare"].partitions[1])


def test_a_target_of_other_partitions_is_refused(ddf):
    with pytest.raises(
        InvalidType, match=r"'fare' must be a dask Series with the partitions of X \(4\)"
    ):
        bo.KernelRidge(**OPTIONS).fit(ddf[["a", "b"]], TABLE.fare)


def test_a_target_that_is_left_in_the_table_is_refused(ddf):
    with pytest.raises(InvalidInput, match=r"must not be columns of X too; got 'fare' in both"):
        bo.KernelRidge(**OPTIONS).fit(ddf[["a", "fare"]], ddf["fare"])


def test_several_arrays_at_once_are_refused(ddf):
    model = bo.GaussianProcessRegressor(noise=0.1, amplitude=1.0, **OPTIONS)
    model.fit(TABLE[["a", "b"]].iloc[:500], TABLE.fare.iloc[:500])
    with pytest.raises(InvalidInput, match="one array can be asked for; got several"):
        model.predict(ddf[["a", "b"]], return_std=True)


# ---- the command line


@pytest.fixture
def files(tmp_path):
    TABLE[["a", "b", "fare"]].to_parquet(tmp_path / "rows.parquet", row_group_size=50_000)
    model = bo.KernelRidge(**OPTIONS)
    model.fit_blocks(bo.Blocks.from_files(tmp_path / "rows.parquet", target="fare"))
    bo.save(model, tmp_path / "m.bochner")
    return tmp_path


def command(*arguments):
    with pytest.raises(SystemExit) as ended:
        main([str(a) for a in arguments])
    return ended.value.code


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dask", "ray", "spark"])
def test_the_command_fits_by_workers_of_any_engine(files, request, name):
    where = ["--engine", name, "--quiet"]
    if name == "dask":
        address = request.getfixturevalue("dask_client").scheduler.address
        where += ["--scheduler", address]
    else:
        request.getfixturevalue({"ray": "ray_here", "spark": "spark_session"}[name])
    rows, fit = files / "rows.parquet", ["--target", "fare", "--kernel", "gaussian"]
    fit += ["--lengthscale", "1", "--features", "8"]
    for out, options in (("there", where), ("here", ["--quiet"])):
        assert command("fit", rows, *fit, "--out", files / f"{out}.bochner", *options) == 0
    here, there = (bo.load(files / f"{out}.bochner") for out in ("here", "there"))
    np.testing.assert_array_equal(there.coef_, here.coef_)


def test_the_address_of_a_cluster_takes_an_engine(files, capsys):
    rows = ["fit", files / "rows.parquet", "--target", "fare", "--out", files / "x"]
    assert command(*rows, "--scheduler", "tcp://x") == 2
    assert "--scheduler ADDRESS is of a cluster" in " ".join(capsys.readouterr().err.split())
