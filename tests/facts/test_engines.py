"""Engines and devices give the same bits as one process; tables stored on clusters."""

import itertools
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from functools import cache
from importlib import import_module
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse
import torch
from gallery import raw_table
from pyarrow.csv import write_csv
from sklearn.base import clone

import bochner as bo
from bochner.cli.running import run
from bochner.errors import BochnerError, DataFileError, DataWarning, EngineError, InvalidInput
from bochner.kernels import Gaussian
from bochner.sums.passes import sample_summand

rng = np.random.default_rng(0)
N = 140_000  # three parts
X = rng.standard_normal((N, 2))
Y = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(N)
LABELS = (Y > 0).astype(float)
W = rng.integers(0, 3, N).astype(float)
OPTIONS = dict(kernel=Gaussian(1.0), method="orthogonal", n_features=8, random_state=0)
HERE = bo.engines.Local(cache_bytes=0)

pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning",
    "ignore::DeprecationWarning",
    "ignore::FutureWarning",
    "ignore:Sending large graph",
)


def blocks(y=Y, w=None):
    return bo.Blocks.from_arrays(X, y, w)


def ridge(where, rows=None, **changes):
    """Return a fit to these rows, or to all rows, by the engine ``where``."""
    model = bo.KernelRidge(**OPTIONS | changes)
    return model.fit_blocks(blocks() if rows is None else rows, where=where)


@cache
def coef_here():
    return ridge(HERE).coef_


@pytest.fixture
def dask(dask_client):
    return bo.engines.Dask(dask_client)


@pytest.fixture(params=["dask", "ray", "spark"])
def engine(request):
    """Return each engine, with its workers started."""
    if request.param == "dask":
        return request.getfixturevalue("dask")
    started = request.getfixturevalue({"ray": "ray_here", "spark": "spark_session"}[request.param])
    return bo.engines.Ray() if request.param == "ray" else bo.engines.Spark(started)


coef = lambda m: m.solution_.coef
#: Learners, their targets, and functions that return their coefficients.
LEARNERS = {
    "ridge": (bo.KernelRidge(), Y, lambda m: m.coef_),
    "classifier": (bo.KernelRidgeClassifier(), LABELS, lambda m: m.coef_),
    "pca": (bo.KernelPCA(2), Y, lambda m: m.fit_.eigenvectors),
    "cca": (bo.KernelCCA(1), Y, lambda m: m.fit_.directions.a),
    "clusters": (bo.KernelKMeans(3, max_iter=2, tol=1.0), Y, lambda m: m.fit_.clusters.centres),
    "svc": (bo.SVC(C=1.0), LABELS, coef),
    "logistic": (bo.LogisticRegression(C=1.0), LABELS, coef),
    "svr": (bo.SVR(C=1.0, epsilon=0.1, loss="squared_epsilon_insensitive"), Y, coef),
    "huber": (bo.KernelRegressor(loss="huber", alpha=1.0), Y, coef),
    "one class": (bo.OneClassSVM(nu=0.1, tol=1e-2), None, coef),
    "process": (
        bo.GaussianProcessRegressor(noise=0.1, amplitude=1.0), Y, lambda m: m.predict(X[:50]),
    ),
}  # fmt: skip


@pytest.mark.main_cases(2)
@pytest.mark.parametrize("name", LEARNERS)
def test_an_engine_gives_the_same_bits_as_one_process(dask, name):
    model, y, bits = LEARNERS[name]
    rows = blocks(y, W if name in ("ridge", "svc") else None)
    local, remote = (
        clone(model).set_params(**OPTIONS).fit_blocks(rows, where=where) for where in (HERE, dask)
    )
    np.testing.assert_array_equal(bits(remote), bits(local))


def test_workers_read_parquet_files_and_this_process_reads_text(dask, tmp_path):
    table = pa.table({"a": X[:, 0], "b": X[:, 1], "y": Y})
    for i, (start, stop) in enumerate(((0, 90_001), (90_001, N))):
        rows = table.slice(start, stop - start)
        pq.write_table(rows, tmp_path / f"{i}.parquet", row_group_size=33_333)
    (tmp_path / "text").mkdir()
    write_csv(table.slice(0, 70_000), tmp_path / "text" / "rows.csv")
    for files in (tmp_path / "*.parquet", tmp_path / "text"):
        rows = bo.Blocks.from_files(files, target="y")
        np.testing.assert_array_equal(ridge(dask, rows).coef_, ridge(HERE, rows).coef_)


@pytest.mark.main_cases(1)
@pytest.mark.filterwarnings("ignore::bochner.errors.DataWarning")
def test_an_engine_fits_a_raw_table_with_a_kernel_by_name(engine):
    rows = bo.Blocks.from_table(raw_table(70_000), target="y")
    local, remote = (ridge(where, rows, kernel="gaussian") for where in (HERE, engine))
    assert (remote.schema_, remote.kernel_) == (local.schema_, local.kernel_)
    np.testing.assert_array_equal(remote.coef_, local.coef_)


def test_a_killed_worker_does_not_change_the_bits(dask):
    pids = dask.client.run(os.getpid)
    killer = threading.Timer(0.05, os.kill, (next(iter(pids.values())), signal.SIGKILL))
    killer.start()
    remote = ridge(dask, n_features=64)
    killer.join()
    np.testing.assert_array_equal(remote.coef_, ridge(HERE, n_features=64).coef_)
    dask.client.wait_for_workers(2, timeout=60)


# ---- transfers and interrupts


def _messages(dask_worker):
    """Return (key, bytes) of the transfers from a worker to others."""
    log = dask_worker.transfer_outgoing_log
    return [(key, size) for entry in log for key, size in entry["keys"].items()]


@pytest.mark.slow
def test_workers_exchange_a_map_and_sums_but_no_rows(dask_client, tmp_path, monkeypatch):
    """Workers read the files: one map comes in, and one sum of 8 D² bytes per part goes out."""
    pickle = pytest.importorskip("cloudpickle")
    wide, file = 128, tmp_path / "rows.parquet"
    pq.write_table(pa.table({"a": X[:, 0], "b": X[:, 1], "y": Y}), file)
    submit, sizes, original = dask_client.submit, [], dask_client.run(_messages)

    def record(function, *args, key, **options):
        values = [a for a in args if type(a).__name__ != "Future"]
        sizes.append((key.split("-")[1], len(pickle.dumps((function, values)))))
        return submit(function, *args, key=key, **options)

    monkeypatch.setattr(dask_client, "submit", record)
    remote = bo.engines.Dask(dask_client)
    ridge(remote, bo.Blocks.from_files(file, target="y"), n_features=wide, alpha=0.1)
    maps, rows, merges = ([n for k, n in sizes if k == kind] for kind in ("share", "rows", "merge"))
    sum_size, map_size = 8 * wide**2, 8 * wide  # wide / 2 frequencies in two columns
    assert sum(size > map_size for size in maps) >= 1
    assert max(rows) < 20_000  # places of rows, independent of D
    assert 2 <= len(rows) - len(merges) <= len(rows) / 2  # passes, each of at least two parts
    assert max(merges) < 20_000
    result = dask_client.run(_messages)
    items = [pair for worker in result for pair in result[worker][len(original.get(worker, ())) :]]
    sums = [size for key, size in items if "-share-" not in key]
    assert len(sums) <= len(rows) + len(merges)  # each sum is sent once
    assert max(sums) < 1.1 * sum_size + 10_000
    assert len([key for key, _ in items if "-share-" in key]) <= 2 * len(maps)


INTERRUPTED = """
import sys
import numpy as np
import bochner as bo
from bochner.kernels import Gaussian

X = np.random.default_rng(0).standard_normal((1_000_000, 2))
calls = []

def say(rows):
    if not calls:
        calls.append(rows)
        print("reading", flush=True)

blocks = bo.Blocks.from_arrays(X, X[:, 0]).watch(say)
model = bo.KernelRidge(Gaussian(1.0), method="orthogonal", n_features=256, random_state=0)
model.fit_blocks(blocks, where=bo.engines.Dask(sys.argv[1]))
"""


@pytest.mark.slow
def test_ctrl_c_ends_a_fit_and_cancels_the_tasks_of_its_workers(dask_client):
    command = [sys.executable, "-c", INTERRUPTED, dask_client.scheduler.address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        while process.stdout.readline() != b"reading\n":
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert b"KeyboardInterrupt" in process.communicate(timeout=60)[1]
    tasks = lambda dask_scheduler: [k for k in dask_scheduler.tasks if k.startswith("bochner-rows")]
    for _ in range(50):
        if not dask_client.run_on_scheduler(tasks):
            return
        time.sleep(0.1)
    raise AssertionError("tasks of the interrupted fit are still queued")


# ---- errors


@pytest.mark.main_cases(1)
def test_invalid_values_raise_with_their_row(engine):
    table = X.copy()
    table[100_000, 1] = np.nan
    with pytest.raises(InvalidInput, match=r"column 1 of X must hold finite.*row 100000") as record:
        ridge(engine, bo.Blocks.from_arrays(table, Y))
    assert "Rows 65,536 to 131,071" in str(record.value)


def test_an_error_on_a_worker_states_its_rows(dask):
    with pytest.raises(InvalidInput, match="at least one row must have a weight above zero"):
        ridge(dask, blocks(Y, 0 * W))

    def fail(_):  # local, so that workers need not import this file
        raise OSError("the disk is gone")

    rows = blocks().recode(fail)
    message = r"rows \d+,?\d* to .* of arrays.*OSError: the disk is gone"
    with dask.passes("", rows) as executor, pytest.raises(EngineError, match=message):
        executor.sum(sample_summand(0), rows)


# A lambda is pickled by value: workers cannot import this module
broken = lambda _: (item for item in ()).throw(OSError("the disk is gone"))


class Unavailable:
    """A function of y from a package that no worker has."""

    def __call__(self, y):
        return y

    def __reduce__(self):
        return import_module, ("package_of_this_process",)


@pytest.mark.main_cases(1)
def test_a_package_that_workers_lack_is_named(engine, monkeypatch):
    monkeypatch.setattr("bochner.engines.clusters.TRIES", 1)
    lacks = r"able to add up rows .* (No module named 'package_of|.*deseriali).*Install on"
    with pytest.raises(EngineError, match=lacks):
        ridge(engine, blocks().recode(Unavailable()))


@pytest.mark.main_cases(1)
def test_rows_whose_workers_always_die_are_named(engine, monkeypatch):
    """Workers die like this on a machine without enough memory."""
    local, first = os.getpid(), Y[1 << 16]

    def exit_worker(y):
        if os.getpid() != local and y[0] == first:
            os._exit(1)
        return y

    monkeypatch.setattr("bochner.engines.clusters.RETRIES", 0)
    monkeypatch.setattr("bochner.engines.clusters.TRIES", 1)
    if isinstance(engine, bo.engines.Dask):
        no_retries = lambda dask_scheduler: setattr(dask_scheduler, "allowed_failures", 0)
        engine.client.run_on_scheduler(no_retries)
    with pytest.raises(EngineError, match=r"rows [\d,]+ to [\d,]+.* memory"):
        ridge(engine, blocks().recode(exit_worker))
    if isinstance(engine, bo.engines.Dask):
        engine.client.wait_for_workers(2, timeout=60)
    np.testing.assert_array_equal(ridge(engine).coef_, coef_here())


@pytest.mark.filterwarnings("ignore")  # warnings of dask about ports and connections
def test_the_loss_of_the_scheduler_during_a_fit_raises():
    distributed = pytest.importorskip("distributed")
    options = dict(processes=False, dashboard_address=None, silence_logs=logging.CRITICAL)
    with (
        distributed.LocalCluster(1, **options) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        observed = blocks().watch(lambda rows: cluster.close())
        with pytest.raises(EngineError, match=r"Dask: workers must .* while the cluster is there"):
            ridge(bo.engines.Dask(client), observed)
        with pytest.raises(EngineError, match=r"Dask: .*(while the cluster is there|must answer)"):
            ridge(bo.engines.Dask(client, timeout=1))


def test_fits_that_need_all_rows_in_order_raise_on_a_cluster(dask):
    for model, message in (
        (bo.KernelSGDRegressor(Gaussian(1.0)), "takes steps in sequence"),
        (bo.KernelRidge(Gaussian(1.0), method="exact"), "compares each row with all"),
    ):
        with pytest.raises(InvalidInput, match=rf"{message}.*one process must read all"):
            model.fit_blocks(blocks(), where=dask)


@pytest.mark.parametrize(
    ("name", "address", "sentence"),
    [
        ("Dask", "tcp://127.0.0.1:1", "the scheduler at tcp://127.0.0.1:1 must answer"),
        ("Ray", "127.0.0.1:1", "Ray: the cluster at 127.0.0.1:1.* must answer within 2 seconds"),
        ("Spark", "spark://127.0.0.1:1", "the cluster at spark://127.* must answer within 2 sec"),
    ],
)
def test_a_cluster_that_does_not_answer_raises_in_time(monkeypatch, name, address, sentence):
    package = pytest.importorskip({"Dask": "distributed", "Ray": "ray", "Spark": "pyspark"}[name])
    if name == "Ray":
        monkeypatch.setattr(package, "is_initialized", lambda: False)
    start = time.monotonic()
    with pytest.raises(EngineError, match=sentence):
        ridge(getattr(bo.engines, name)(address, timeout=2 if name != "Dask" else 1))
    assert time.monotonic() - start < 20


def test_an_engine_that_is_not_installed_names_its_extra(monkeypatch):
    for make, package, extra in (
        (lambda: bo.engines.Dask("tcp://127.0.0.1:1"), "distributed", "dask"),
        (bo.engines.Ray, "ray", "ray"),
        (lambda: bo.engines.Spark(None), "pyspark", "spark"),
    ):
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(BochnerError, match=rf"needs the package {package}.*bochner\[{extra}\]"):
            ridge(make())
    with pytest.raises(AttributeError, match="has no attribute 'Spork'"):
        bo.engines.Spork  # noqa: B018


@pytest.mark.slow
def test_spark_uses_the_active_session_or_starts_one_at_an_address(spark_session):
    for where in (bo.engines.Spark(), bo.engines.Spark("local[2]")):
        np.testing.assert_array_equal(ridge(where).coef_, coef_here())


STOPPED = SimpleNamespace(sparkContext=SimpleNamespace(_jsc=None, defaultParallelism="stopped"))


@pytest.mark.parametrize("named", [None, "another"])
def test_spark_workers_on_this_machine_use_the_python_of_this_process(monkeypatch, named):
    sql, interpreters = pytest.importorskip("pyspark.sql"), []
    monkeypatch.setenv("PYSPARK_PYTHON", named or "")
    if named is None:
        monkeypatch.delenv("PYSPARK_PYTHON")
    record = lambda builder: interpreters.append(os.environ["PYSPARK_PYTHON"]) or STOPPED
    monkeypatch.setattr(sql.SparkSession.Builder, "getOrCreate", record)
    with pytest.raises(EngineError, match="the session must be there"):
        ridge(bo.engines.Spark("local[2]"))
    assert interpreters == [named or sys.executable]


def test_an_invalid_session_of_spark_raises(monkeypatch):
    sql = pytest.importorskip("pyspark.sql")
    with pytest.raises(EngineError, match=r"Spark: the session must be there .* it was stopped"):
        ridge(bo.engines.Spark(STOPPED))
    message = r"session must be a pyspark.sql.SparkSession or .*t int"
    with pytest.raises(bo.errors.InvalidType, match=message):
        bo.engines.Spark(2)
    monkeypatch.setattr(sql.SparkSession.Builder, "getOrCreate", broken)
    with pytest.raises(EngineError, match=r"session at local\[2\] must begin.*Java 17"):
        ridge(bo.engines.Spark("local[2]"))


# ---- tables stored on a cluster: fits have the bits of one process, predictions stay there

CUTS = [0, 1_000, 1_000, 70_001, N]  # one partition is empty; none ends at the end of a part
TABLE = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "town": rng.choice(["Bonn", "Köln"], N)})
TABLE["fare"] = Y + (TABLE.town == "Bonn")
ROWS = TABLE.drop(columns="fare")


def partitions(parts, meta=None, enforce=True):
    """Return a dask DataFrame with these partitions."""
    dd = pytest.importorskip("dask.dataframe")
    meta = parts[0].iloc[:0] if meta is None else meta
    places = [*range(len(parts))]
    return dd.from_map(lambda i: parts[i], places, meta=meta, enforce_metadata=enforce)


def table_here(**changes):
    return ridge(HERE, bo.Blocks.from_table(TABLE, target="fare"), **changes)


def fit(*args, **options):
    return bo.KernelRidge(**OPTIONS).fit(*args, **options)


@pytest.fixture
def cluster(dask_client):
    """Return the client, as the default client of dask."""
    with dask_client.as_current():
        yield dask_client


@pytest.fixture
def ddf():
    return partitions([TABLE.iloc[a:b] for a, b in itertools.pairwise(CUTS)])


@pytest.fixture
def dataset(ray_here):
    data = pytest.importorskip("ray.data")
    data.DataContext.get_current().enable_progress_bars = False
    return data.from_pandas([TABLE.iloc[a:b] for a, b in itertools.pairwise(CUTS)])


@pytest.fixture
def spark_frame(spark_session):
    return spark_session.createDataFrame(TABLE)


@pytest.mark.slow
def test_a_dask_table_fitted_on_its_cluster_gives_the_bits_of_one_process(cluster, ddf):
    remote = fit(ddf.drop(columns="fare"), ddf["fare"])
    np.testing.assert_array_equal(remote.coef_, table_here().coef_)
    assert remote.schema_.columns == ("a", "b", "town")


def test_predictions_of_a_dask_table_are_lazy_and_have_its_index(cluster, ddf):
    model = fit(ddf.drop(columns="fare"), ddf["fare"])
    predictions = model.predict(ddf)
    assert (type(predictions).__name__, predictions.npartitions) == ("Series", 4)
    expected = pd.Series(model.predict(TABLE), name="prediction")
    pd.testing.assert_series_equal(predictions.compute(), expected, rtol=1e-9)


@pytest.mark.slow
def test_classes_and_probabilities_are_computed_on_the_cluster(cluster, ddf):
    X, y = ddf[["a", "b"]], ddf["fare"] > 0.5
    remote = bo.LogisticRegression(C=1.0, **OPTIONS).fit(X, y)
    assert list(remote.classes_) == [0, 1]
    shares = remote.predict_proba(X.partitions[:1])
    assert list(shares.columns) == ["probability_0", "probability_1"]
    expected = remote.predict_proba(TABLE[["a", "b"]].iloc[:500])
    np.testing.assert_allclose(shares.compute()[:500], expected, atol=1e-9)


def test_weights_and_several_targets_may_be_dask_tables(cluster, ddf):
    wide = ddf.assign(other=2 * ddf["fare"], w=ddf["a"] ** 2)
    remote = fit(wide[["a", "b"]], wide[["fare", "other"]], sample_weight=wide["w"])
    table = TABLE[["a", "b", "fare"]].assign(other=2 * TABLE.fare, w=TABLE.a**2)
    rows = bo.Blocks.from_table(table, target=["fare", "other"], weight="w")
    np.testing.assert_array_equal(remote.coef_, ridge(HERE, rows).coef_)
    assert list(remote.predict(wide[["a", "b"]]).columns) == ["prediction_0", "prediction_1"]


def test_dask_arrays_are_fitted_and_predicted_chunk_by_chunk(cluster):
    da = pytest.importorskip("dask.array")
    dX, dy = da.from_array(X, chunks=(30_000, 1)), da.from_array(Y, chunks=50_000)
    remote = fit(dX, dy)
    np.testing.assert_array_equal(remote.coef_, coef_here())
    predictions = remote.predict(dX)
    assert isinstance(predictions, da.Array)
    np.testing.assert_allclose(predictions.compute(), remote.predict(X), rtol=1e-9)
    components = bo.KernelPCA(2, **OPTIONS).fit(dX).transform(dX)
    assert components.shape == (N, 2)
    assert components[:10].compute().shape == (10, 2)
    bad = pytest.importorskip("dask").delayed(lambda: 1 / 0)()
    dX = da.concatenate([da.from_array(X[:100]), da.from_delayed(bad, (100, 2), float)])
    with pytest.raises(DataFileError, match=r"chunk 1 of the dask Array .*ZeroDivisionError"):
        fit(dX, dX[:, 0])


def test_without_a_cluster_this_process_reads_a_dask_table_by_partitions(ddf):
    remote, local = fit(ddf[["a", "b"]], ddf["fare"]), fit(TABLE[["a", "b"]], TABLE.fare)
    np.testing.assert_array_equal(remote.coef_, local.coef_)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dataset", "spark_frame"])
def test_a_table_of_ray_or_spark_is_fitted_on_its_cluster(name, request):
    table, local = request.getfixturevalue(name), table_here()
    remote = fit(table, "fare")
    np.testing.assert_array_equal(remote.coef_, local.coef_)
    predictions = remote.predict(table.limit(2_000))
    assert type(predictions).__module__.startswith(("ray.data", "pyspark.sql"))
    values = predictions.to_pandas() if name == "dataset" else predictions.toPandas()
    if name == "spark_frame":
        assert predictions.columns == [*ROWS.columns, "fare", "prediction"]
    rows = TABLE.iloc[:2_000] if name == "dataset" else values[ROWS.columns]
    np.testing.assert_allclose(values.prediction, local.predict(rows), rtol=1e-9)


# ---- rows without a target

GAPS = TABLE[["a", "b", "fare"]].iloc[:3_000].copy()
GAPS.loc[GAPS.index % 7 == 0, "fare"] = np.nan
NO_FARE = (
    r"rows without a target 'fare' are left out: 429 of 3,000; first in row 0 of partition 0 of the"
)


@pytest.mark.parametrize("engine", ["dask", "dask workers", "ray", "spark"])
def test_rows_without_a_target_are_dropped_with_one_warning(engine, request):
    parts = [GAPS.iloc[a:b] for a, b in itertools.pairwise([0, 1_000, 1_000, 3_000])]
    if engine == "ray":
        request.getfixturevalue("ray_here")
        table = pytest.importorskip("ray.data").from_pandas(parts)
    elif engine == "spark":
        table = request.getfixturevalue("spark_session").createDataFrame(GAPS)
    else:
        request.getfixturevalue("cluster") if engine == "dask workers" else None
        table = partitions(parts)
    with pytest.warns(DataWarning, match=NO_FARE) as record:
        remote = fit(table, "fare")
    assert len([warning for warning in record if issubclass(warning.category, DataWarning)]) == 1
    complete = bo.Blocks.from_table(GAPS.dropna(), target="fare")
    np.testing.assert_array_equal(remote.coef_, ridge(HERE, complete).coef_)


# ---- errors of tables

FIRST, SECOND = TABLE[["a", "b", "fare"]].iloc[:100], TABLE[["a", "b", "fare"]].iloc[100:200]
TIMES, LISTS = pd.Timestamp("2020-01-01"), pd.Series([[1]] * 100, SECOND.index)
ODD = [
    (FIRST, SECOND.rename(columns={"b": "c"}), r".*must have the col.*no column 'b'"),
    (FIRST, SECOND.assign(b="many"), "column 'b' .*got 'many'.* row 0 of"),
    (FIRST, SECOND.assign(b=TIMES), "column 'b' must hold numbers, .* holds timestamp"),
    (FIRST, SECOND.assign(b=LISTS), "column 'b' must hold numbers"),  # dask may make them text
    (FIRST.assign(b=TIMES), SECOND, "column 'b' must hold times, .* on it holds double"),
]


@pytest.mark.parametrize(("first", "second", "match"), ODD, ids=range(5))
def test_a_partition_with_other_columns_or_types_is_named(first, second, match):
    with pytest.raises(InvalidInput, match=match) as record:
        fit(partitions([first, second], enforce=False), "fare")
    assert "partition 1 of the dask DataFrame" in str(record.value)


def with_disk(folder):
    """Return a table whose second partition can be computed only if the folder has a file."""
    dd = pytest.importorskip("dask.dataframe")

    def make(i):
        if i == 1 and not any(folder.iterdir()):
            raise OSError("the disk is gone")
        return TABLE.iloc[100 * i : 100 * i + 100][["a", "fare"]]

    return dd.from_map(make, [0, 1, 2], meta=TABLE[["a", "fare"]].iloc[:0])


GONE = r"^Blocks: partition 1 of the dask DataFrame must be .*disk is gone\)"


@pytest.mark.parametrize("on_workers", [False, True], ids=["here", "on workers"])
def test_a_partition_that_cannot_be_computed_is_named(dask, tmp_path, on_workers):
    with pytest.raises(DataFileError, match=GONE):
        bo.Blocks.from_table(with_disk(tmp_path), target="fare")
    (tmp_path / "disk").touch()
    rows = bo.Blocks.from_table(with_disk(tmp_path), target="fare")
    (tmp_path / "disk").unlink()
    with pytest.raises(DataFileError, match=GONE):
        ridge(dask if on_workers else HERE, rows)


@pytest.mark.slow
def test_a_table_of_ray_or_spark_that_cannot_be_computed_or_is_empty_raises(dataset, spark_frame):
    broken_frame = spark_frame.mapInArrow(broken, spark_frame.schema)
    for kind, table in (("ray Dataset", dataset.map_batches(broken)), ("pyspark D", broken_frame)):
        with pytest.raises(DataFileError, match=rf"the {kind}.* must .*OSError: the disk is gone"):
            fit(table, "fare")
    with pytest.raises(InvalidInput, match=r"at least one row; the pyspark DataFrame has none"):
        fit(spark_frame.filter("a > 100"), "fare")


def test_rows_that_change_between_passes_raise(tmp_path):
    dd = pytest.importorskip("dask.dataframe")
    rows = TABLE[["a", "fare"]]

    def subset(_):
        (tmp_path / f"{len([*tmp_path.iterdir()])}").touch()
        return rows.iloc[: 100 - len([*tmp_path.iterdir()])]

    changing = bo.Blocks.from_table(dd.from_map(subset, [0], meta=rows.iloc[:0]), target="fare")
    with pytest.raises(InvalidInput, match=r"partition 0 .* same \d+ rows in every pass; got \d+"):
        list(changing)


def test_a_target_that_does_not_match_the_table_raises(ddf):
    for take, match in (
        (lambda d: (d[["a", "b"]].partitions[1], d["fare"].partitions[1]), "at least one row"),
        (lambda d: (d[["a", "b"]], TABLE.fare), r"a dask Series with the partitions of X \(4\)"),
        (lambda d: (d[["a", "fare"]], d["fare"]), "must not be columns of X too; got 'fare' in"),
    ):
        with pytest.raises(BochnerError, match=match):
            fit(*take(ddf))


def test_predictions_of_several_arrays_raise(ddf):
    model = bo.GaussianProcessRegressor(noise=0.1, amplitude=1.0, **OPTIONS)
    model.fit(TABLE[["a", "b"]].iloc[:500], TABLE.fare.iloc[:500])
    with pytest.raises(InvalidInput, match="return one array; got several"):
        model.predict(ddf[["a", "b"]], return_std=True)


@pytest.mark.slow
def test_the_command_line_fits_with_each_engine(engine, tmp_path):
    TABLE[["a", "b", "fare"]].to_parquet(tmp_path / "rows.parquet", row_group_size=50_000)
    name = type(engine).__name__.lower()
    where = f" --engine {name}"
    if name == "dask":
        where += f" --scheduler {engine.client.scheduler.address}"
    line = f"fit {tmp_path}/rows.parquet --target fare --kernel gaussian --lengthscale 1"
    for out, options in (("there", where), ("here", "")):
        assert run(f"{line} --features 8 --quiet --out {tmp_path}/{out}{options}".split()) == 0
    local, remote = (bo.load(tmp_path / out) for out in ("here", "there"))
    np.testing.assert_array_equal(remote.coef_, local.coef_)


# ---- features on devices of torch: the bits of torch's arrays, with any number of devices

X32 = X.astype(np.float32)
ROWS32 = bo.Blocks.from_arrays(X32, Y, W)
DEVICES = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]


def on_device(device, rows=ROWS32, **changes):
    """Return a fit on a device."""
    changes = {"kernel": Gaussian(2.0), "n_features": 16} | changes
    return ridge(bo.engines.Local(device=device), rows, **changes)


@pytest.mark.parametrize("device", DEVICES)
def test_rows_copied_to_a_device_give_the_bits_of_rows_stored_there(device, monkeypatch):
    monkeypatch.setattr("bochner.engines.device.ROWS", 4096)  # the block size of rows stored there
    model = bo.KernelRidge(**OPTIONS | {"kernel": Gaussian(2.0), "n_features": 16})
    expected = model.fit(*(torch.from_numpy(a).to(device) for a in (X32, Y, W))).coef_
    copied = on_device(device)
    np.testing.assert_array_equal(copied.coef_, expected)
    assert type(copied.predict(X32[:5])) is np.ndarray
    # Errors of float32 products, divided by the smallest eigenvalue plus the penalty.
    local = model.fit(X32, Y, W).predict(X32[:500])
    np.testing.assert_allclose(copied.predict(X32[:500]), local, atol=1e-3)
    for several in ((device,) * 2, [device] * 3):
        np.testing.assert_array_equal(on_device(several).coef_, expected)


@pytest.mark.parametrize(
    ("model", "y", "values"),
    [
        (bo.KernelRidgeClassifier(), LABELS, lambda m: m.coef_),
        (bo.GaussianProcessRegressor(), Y, lambda m: m.predict(X32[:50])),
        (bo.LogisticRegression(), LABELS, lambda m: m.coef_),
        (bo.KernelPCA(2), Y, lambda m: np.abs(m.transform(X32[:50]))),
    ],
    ids=["classifier", "process", "logistic", "pca"],
)
def test_learners_on_a_device_agree_with_numpy(model, y, values):
    model = model.set_params(**OPTIONS | {"kernel": Gaussian(2.0)})
    rows = bo.Blocks.from_arrays(X32[:9000], y[:9000])
    remote = values(clone(model).fit_blocks(rows, where=bo.engines.Local(device="cpu")))
    np.testing.assert_allclose(remote, values(model.fit_blocks(rows)), rtol=2e-2, atol=2e-3)


def test_large_decompositions_run_on_the_device_and_small_ones_on_the_cpu(monkeypatch):
    sizes, plain = [], torch.linalg.eigh
    monkeypatch.setattr(torch.linalg, "eigh", lambda A: sizes.append(len(A)) or plain(A))
    rows = bo.Blocks.from_arrays(X[:3000], Y[:3000])
    wide = {"kernel": Gaussian(2.0), "n_features": 1024, "alpha": 1.0}
    remote = on_device("cpu", rows, **wide).predict(X[:50])
    assert sizes == [1024]
    np.testing.assert_allclose(remote, on_device(None, rows, **wide).predict(X[:50]), atol=1e-3)
    on_device("cpu", rows)
    assert sizes == [1024]


def test_rows_are_counted_and_passes_are_logged(caplog):
    counts = []
    with caplog.at_level(logging.INFO, logger="bochner.engines"):
        on_device(("cpu", "cpu"), ROWS32.watch(counts.append), alpha=1.0)
    assert sum(counts) % N == 0
    assert "device=('cpu', 'cpu')" in caplog.text


def test_sparse_rows_stay_in_memory():
    rows = scipy.sparse.random_array((6000, 20), density=0.2, rng=1, format="csr")
    blocks = bo.Blocks.from_arrays(rows, rows.sum(axis=1))
    model, expected = on_device("cpu", blocks, alpha=1.0), on_device(None, blocks, alpha=1.0)
    # Blocks have other sizes: the rounding errors of sums are divided by the penalty.
    np.testing.assert_allclose(model.coef_, expected.coef_, rtol=1e-6, atol=1e-9)


def test_a_device_without_float64_raises(monkeypatch):
    """For example Apple's devices."""
    make_empty = torch.empty

    def empty(*size, dtype=torch.float32, **options):
        if dtype == torch.float64:
            raise TypeError("Cannot convert a MPS Tensor to float64 dtype")
        return make_empty(*size, dtype=dtype, **options)

    monkeypatch.setattr(torch, "empty", empty)
    with pytest.raises(InvalidInput, match=r"with float64; got cpu \(Cannot convert a MPS"):
        on_device("cpu")


def test_a_missing_torch_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(BochnerError, match=r"device= needs the package torch.*pip install torch"):
        on_device("cpu")
