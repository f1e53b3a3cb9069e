"""Tables in memory, lazy tables, and arrays in files: their rows, and messages of invalid ones."""

import datetime as dt
import pickle
from decimal import Decimal
from functools import partial

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from internals import with_peak
from layouts import OnlyAStream
from pyarrow import dataset

import bochner as bo
from bochner import Blocks, GaussianProcessRegressor, KernelRidge, Schema
from bochner.data.schema import did_you_mean, quote
from bochner.errors import DataWarning, InvalidInput, InvalidType
from bochner.kernels import Gaussian

DAY = dt.date(2020, 1, 1)


def frame(column, **columns):
    """Return a table with the column "odd", of the library of the column."""
    if isinstance(column, pa.Array):
        return pa.table({"odd": column})
    return (pl if isinstance(column, pl.Series) else pd).DataFrame({"odd": column, **columns})


#: Columns of unsupported types; columns that only a fit encodes; columns with missing values.
NEITHER = [
    ([[1], [2]], r"lists or records \(list<item: int64>\)"),
    (pl.Series([[1], [2]]), r"lists or records \(large_list.* Spread it over several columns"),
    (pl.Series([{"b": 1}] * 2), r"lists or records \(struct"),
    ([1 + 2j, 2], r"neither numbers nor text \(complex128\).* Or drop it\."),
    (["x", 1], r"neither .* \(objects of str, such as 'x' and int, such as 1\)"),
    (pl.Series([object(), 1], dtype=pl.Object), r"neither numbers nor text \(Object\)"),
    (pl.Series([b"x", b"y"]), r"neither numbers nor text \(.*binary.*\)"),
]
BY_FITS = [
    (pd.to_datetime(["2020", "2021"]), r"dates or times\). Learners' fit and fit_blocks encode"),
    (pl.Series([DAY, DAY]), r"dates or times\).* or turn them into numbers first"),
    (pd.period_range("2020", periods=2), "dates or times"),
    (pd.Series([DAY, None]), "dates or times"),
    (pd.Series([dt.time(6), dt.time(7, 30)]), "dates or times"),
    (pd.Series(["06:00", "07:30"]), "dates or times"),
    (pl.Series([None, None]), r"all values missing\).* or drop them"),
]
MISSING = [
    pd.Series([1, None], dtype="Int64"),
    pd.Series([1, None], dtype="float32"),
    pd.Series([True, None], dtype="boolean"),
    pd.Series(["x", None]),
    pd.Series(["x", np.nan], dtype=object),
    pd.Categorical(["x", None]),
    pd.Categorical([1.5, None]),
    pl.Series([1, None]),
    pl.Series([1.0, float("nan")]),
    pl.Series(["x", None]),
    pl.Series(["x", None], dtype=pl.Categorical),
    pl.Series(["x", None], dtype=pl.Enum(["x"])),
    pa.array(["x", None], pa.string_view()),
    pa.array(["x", None]).dictionary_encode(),
    pa.array([1, None], pa.int8()),
]
TWICE = pa.table([[1], [2]], names=["a", "a"])
BATCHES = pa.Table.from_batches([pa.record_batch({"a": [i]}) for i in (1, 2)])
UNREAD = [
    (pd.DataFrame(np.eye(2)), "a name that is text; column 0 .* is called 0"),
    (pd.DataFrame([[1, 2]], columns=["a", "a"]), "different names; got 'a' more"),
    (TWICE, "different names; got 'a' mo"),
    (OnlyAStream(TWICE), "different names; got 'a' more than once. Rename or drop"),
    (pd.DataFrame({"a": []}), "least one row; the pandas DataFrame has none"),
    (pd.DataFrame(index=[1]), "at least one feature column besides .* got none"),
    (pl.LazyFrame({"a": []}), "must have rows, .* got no rows or different"),
    ({"a": [1]}, "must be a data frame .* got the builtins dict"),
    (np.eye(2), "got the numpy ndarray.* for arrays use Blocks.from_arrays"),
    (pd.Series([1.0]), "must have columns; got the pandas Series, which is one"),
    (pl.Series([1.0]), "must have columns; got the polars Series, which is one"),
    (pd.DataFrame({"a": pd.Categorical([1, "1"])}), "'a' must be different texts; got '1' mor"),
    (BATCHES.to_reader(), "got the pyarrow RecordBatchReader, which is used up after one pass"),
    (OnlyAStream(BATCHES.slice(1).to_reader()), "the same each time it is"),
    (OnlyAStream(BATCHES.to_reader()), "the same each time it is opened"),
    (OnlyAStream(pa.table({"a": []})), "must have rows, .* got no rows or different"),
]
TABLE = pd.DataFrame({"delay": [1.0, 2], "day": ["x", "y"], "w": [1.0, 1], "neg": [1.0, -1]})
ROLES = [
    ({"target": "dleay"}, r"a target column 'dleay' \(did you mean 'delay' or 'day'\?\)"),
    ({"target": "Delay"}, r"must have a target column 'Delay' \(did you mean 'delay'"),
    ({"target": "zzz"}, "column 'zzz'; its columns are 'delay', 'day', 'w', 'neg'"),
    ({"target": ["delay", "dxy"]}, r"must have a target column 'dxy' \(did you mean 'day'"),
    ({"target": "delay", "weight": "ww"}, r"a weight column 'ww' \(did you mean 'w'\?\)"),
    ({"columns": ["dax", "w"]}, r"must have a column 'dax' \(did you mean 'day'"),
    ({"target": ["day"]}, "target 'day' must hold numbers; got text .* Code it as numbers"),
    ({"weight": "day"}, "weight 'day' must hold numbers; got text"),
    ({"target": "w", "weight": "w"}, "one role and be named once; got 'w' more than once"),
    ({"target": ["w", "w"]}, "one role and be named once; got 'w' more than once"),
    ({"weight": "neg"}, "zero or above, 1e\\+150 at most; got -1 in row 1 of the pand"),
]
SCHEMA = Schema(["size", "colour"], {"colour": ["blue", "red"]}, target="y", weight="w")
UNLIKE_THE_SCHEMA = [
    ({"size": [1.0]}, "must have a column 'colour'; its columns are 'size'"),
    ({"Size": [1.0]}, r"column 'size' \(did you mean 'Size'\?\), a column 'colour'; its"),
    ({"size": [1.0] * 3, "colour": ["red", "mauve", "teal"]},
     r"'colour' must hold .* \('blue', 'red'\); got 'mauve', 'teal', first in row 1 of the"),
    ({"size": ["1", "1m"], "colour": ["red", "red"]},
     "'size' must hold numbers; got '1m' in row 1 of the pandas DataFrame"),
    ({"size": [1.0], "colour": [5]}, "column 'colour' must hold categories .* got '5'"),
    ({"size": [1.0], "colour": [None]}, "column 'colour' must have no missing values"),
    ({"size": [1.0], "colour": ["red"], "y": ["?"]}, r"'y' must hold numbers; got '\?' in row 0"),
    ({"size": [1.0], "colour": pd.to_datetime(["2020"])}, "'colour' must hold cat.* got '2020"),
]  # fmt: skip
INVALID = [
    *((frame(c), {}, f"'odd' must hold numbers, text .*; got {words}") for c, words in NEITHER),
    *((frame(c), {}, rf"must hold numbers, .*; got 'odd' \({words}") for c, words in BY_FITS),
    *((frame(c), {}, "column 'odd' must .* missing .* in row 1 of the p") for c in MISSING),
    *((table, {}, words) for table, words in UNREAD),
    *((TABLE, roles, words) for roles, words in ROLES),
    *((pd.DataFrame(c), {"schema": SCHEMA}, words) for c, words in UNLIKE_THE_SCHEMA),
]


@pytest.mark.parametrize(("table", "arguments", "words"), INVALID, ids=range(len(INVALID)))
def test_invalid_tables_raise_with_their_message(table, arguments, words):
    with pytest.raises((InvalidInput, InvalidType), match=words):
        list(Blocks.from_table(table, **arguments))


@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame, pa.table])
def test_a_pickled_part_of_a_table_has_only_its_rows(library):
    blocks = Blocks.from_table(library({"a": np.arange(1e5), "b": ["x", "y"] * 50_000}))
    assert len(pickle.dumps(blocks.part(4096, 8192))) < 200_000


def test_tables_are_not_copied_before_they_are_read():
    X, texts = np.arange(4e6).reshape(-1, 40), ["a text of some length"] * 1_000_000
    in_rows = pd.DataFrame(X, columns=[*map(str, range(40))], copy=False)
    for table in (pl.DataFrame({"text": texts}), in_rows):
        original = pa.total_allocated_bytes()
        blocks, peak = with_peak(partial(Blocks.from_table, table))
        assert pa.total_allocated_bytes() - original + peak < 5_000_000
    np.testing.assert_array_equal(np.concatenate([block.X for block in blocks]), X)


def test_all_problems_of_a_table_are_in_one_message():
    table = pd.DataFrame({"a": [[1], [2]], "b": [1j, 2], "c": [1.0, 2.0], "y": [[1], [2]]})
    three = r"column 'a' must .* column 'b' must .* target 'y' must"
    with pytest.raises(InvalidInput, match=three):
        Blocks.from_table(table, "y")
    with pytest.raises(InvalidInput, match=r"target 'b' must hold numbers or text; got neither"):
        Blocks.from_table(table[["b", "c"]], "b")
    table = pd.DataFrame({"a": pd.to_datetime(["2020", "2021"]), "b": [None, None]})
    with pytest.raises(InvalidInput, match=r"got 'a' \(dates or times\), 'b' \(all values missing"):
        list(Blocks.from_table(table))


def test_durations_are_seconds_and_objects_have_the_type_of_their_values():
    flag = pd.Series([True, False], dtype=object)
    table = pd.DataFrame({"duration": pd.to_timedelta([1, 2], unit="s"), "flag": flag})
    table = table.assign(decimal=[Decimal("1.5"), 2], long=np.array([5, 6], np.longdouble))
    table["sparse"] = pd.arrays.SparseArray([0.0, 3.0])
    (block,) = Blocks.from_table(pa.Table.from_pandas(table[["duration"]]))
    np.testing.assert_array_equal(block.X[:, 0], [1, 2])
    (block,) = Blocks.from_table(table)
    np.testing.assert_array_equal(block.X, [[1, 1, 1.5, 5, 0], [2, 0, 2, 6, 3]])


def test_a_requested_target_must_exist():
    table = pd.DataFrame({"size": [1.0], "colour": ["red"]})
    assert next(iter(Blocks.from_table(table, schema=SCHEMA))).y is None
    with pytest.raises(InvalidInput, match=r"must have a target column 'y'; its columns are"):
        Blocks.from_table(table, "y", schema=SCHEMA)


def test_similar_names_are_suggested_and_long_lists_shortened():
    assert did_you_mean("temprature", ["Temperature", "time"]) == " (did you mean 'Temperature'?)"
    assert did_you_mean("x", ["abc"]) == ""
    assert quote(range(8)) == "0, 1, 2, 3, 4, 5, ... (8 in all)"
    assert quote("ab") == "'a', 'b'"


@pytest.mark.parametrize("make", [pd.DataFrame, pa.table], ids=["pandas", "arrow"])
def test_one_invalid_cell_of_a_table_is_named(make):
    cells = [str(v) for v in range(50)]
    cells[7] = "n/a"
    table = make({"a": cells, "b": list(range(50))})
    with pytest.warns(DataWarning, match="it has 'n/a' besides 49 different numbers"):
        assert len(Blocks.from_table(table).feature_names) == 51
    assert len(Blocks.from_table(table, dtypes={"a": "category"}).feature_names) == 51
    blocks = Blocks.from_table(table, dtypes={"a": "number"})
    with pytest.raises(InvalidInput, match="'a' must hold numbers; got 'n/a' in row 7 of the"):
        next(iter(blocks))


@pytest.mark.parametrize("make", [pd.DataFrame, pa.table], ids=["pandas", "arrow"])
def test_numeric_texts_are_numbers_if_requested(make):
    table = make({"a": ["1", "2.5", "-3e2"], "b": [1, 2, 3]})
    (block,) = Blocks.from_table(table, dtypes={"a": "number", "b": "category"})
    np.testing.assert_array_equal(block.X, [[1, 1, 0, 0], [2.5, 0, 1, 0], [-300, 0, 0, 1]])
    declared = pd.DataFrame({"a": pd.Categorical([*map(str, range(50)), "?"])})
    assert len(Blocks.from_table(declared).feature_names) == 51


def test_texts_of_arrow_tables_may_be_in_chunks_slices_and_dictionaries():
    plain = pa.chunked_array([["x", "y"], pa.array([], pa.string()), ["z", "x", "y"]])
    schema = Blocks.from_table(pa.table({"s": plain})).schema
    runs = pc.run_end_encode(plain.combine_chunks())
    codes = pa.RunEndEncodedArray.from_arrays(runs.run_ends, runs.values.dictionary_encode())
    for column in (plain, plain.dictionary_encode(), plain.cast(pa.large_string()), runs, codes):
        for start in (0, 1, 3):
            X = next(iter(Blocks.from_table(pa.table({"s": column}).slice(start), schema=schema))).X
            np.testing.assert_array_equal(X, np.eye(3)[[0, 1, 2, 0, 1][start:]])
    with pytest.raises(InvalidInput, match=r"got 'u', 'w', first in row 1 of"):
        list(Blocks.from_table(pa.table({"s": ["x", "w", "u", "w"]}), schema=schema))


# ---- lazy tables


def test_datasets_are_read_with_their_filter_and_used_columns(tmp_path):
    rng = np.random.default_rng(0)
    columns = {name: rng.standard_normal(1000) for name in ("a", "b", "y")}
    table = pa.table({**columns, "year": pa.array(np.arange(1000) % 3 + 2020)})
    dataset.write_dataset(
        table, tmp_path, format="parquet", partitioning=["year"], partitioning_flavor="hive"
    )
    data = dataset.dataset(tmp_path, partitioning="hive")
    subset = data.filter(dataset.field("year") == 2021)
    blocks = Blocks.from_table(subset, target="y", columns=["a"], block_rows=100)
    values = np.concatenate([block.X[:, 0] for block in blocks])
    np.testing.assert_array_equal(values, columns["a"][1::3])
    assert Blocks.from_table(data, target="y").feature_names == ("a", "b", "year")


def lazy_table(library, frame):
    """Return a lazy table of this library with the rows of a frame."""
    if library == "polars":
        if not hasattr(pl.LazyFrame, "collect_batches"):
            pytest.skip("polars before 1.34 collects lazy frames whole")
        return frame.lazy()
    if library == "duckdb":
        return pytest.importorskip("duckdb").from_arrow(frame.to_arrow())
    return pytest.importorskip("pyarrow.dataset").dataset(frame.to_arrow())


@pytest.mark.parametrize("library", ["polars", "duckdb", "pyarrow"])
def test_fits_and_predictions_of_lazy_tables_equal_those_in_memory(library):
    rng = np.random.default_rng(0)
    columns = {name: rng.standard_normal(5000) for name in "ab"}
    frame = pl.DataFrame(columns | {"y": np.sin(columns["a"]), "w": rng.integers(0, 3, 5000)})
    table, rows = lazy_table(library, frame), frame.select("a", "b")
    fitted = ridge().fit(frame.select("a", "b", "w"), frame["y"])
    lazy = ridge().fit(table, "y")
    np.testing.assert_array_equal(lazy.coef_, fitted.coef_)
    np.testing.assert_array_equal(lazy.predict(table), fitted.predict(frame.drop("y")))
    weighted = ridge().fit(rows, frame["y"], frame["w"].to_numpy())
    np.testing.assert_array_equal(ridge().fit(table, "y", "w").coef_, weighted.coef_)
    process = GaussianProcessRegressor(noise=0.1, amplitude=1.0, **OPTIONS).fit(table, "y")
    expected = process.predict(frame.drop("y"), return_std=True)
    np.testing.assert_array_equal(process.predict(table, return_std=True), expected)
    blocks = Blocks.from_table(table, target="y", columns=["a"], block_rows=300)
    for _ in range(2):
        values = np.concatenate([block.X[:, 0] for block in blocks])
        np.testing.assert_array_equal(values, columns["a"])


def test_targets_of_lazy_tables_are_names_of_columns():
    frame = pl.DataFrame({"a": [1.0, 2.0], "y": [1.0, 2.0]})
    with pytest.raises(InvalidInput, match=r"a table of polars, y .* names of its .*got Series"):
        KernelRidge(Gaussian(1.0)).fit(lazy_table("polars", frame), frame["y"])
    model = KernelRidge(Gaussian(1.0)).fit(lazy_table("polars", frame), "y")
    with pytest.raises(InvalidInput, match="at least one row"):
        model.predict(lazy_table("polars", frame).filter(pl.col("a") > 2))


@pytest.mark.filterwarnings("ignore")  # warnings of ibis
def test_tables_of_ibis_are_read_in_batches_of_the_used_columns():
    ibis = pytest.importorskip("ibis")
    rows = pd.DataFrame({"a": np.arange(1000.0), "other": "x", "y": 2 * np.arange(1000.0)})
    table = ibis.polars.connect().create_table("rows", rows)
    rows_ = table.filter(table.a % 2 == 0)
    blocks = Blocks.from_table(rows_, target="y", columns=["a"], block_rows=128)
    for _ in range(2):
        X = np.concatenate([block.X for block in blocks])
        np.testing.assert_array_equal(X[:, 0], np.arange(0, 1000.0, 2))
    model = KernelRidge("gaussian", n_features=16, random_state=0).fit_blocks(blocks)
    np.testing.assert_array_equal(model.predict(rows_), model.predict(rows[::2]))


# ---- fields of xarray, and arrays in files: HDF5, Zarr

xr = pytest.importorskip("xarray")

rng = np.random.default_rng(0)
X = rng.standard_normal((10, 20, 6, 2))
Y = np.sin(X[..., 0]) + 0.1 * rng.standard_normal(X.shape[:-1])
ROWS, TARGETS = X.reshape(-1, 2), Y.ravel()
OPTIONS = dict(kernel=Gaussian(1.0), method="orthogonal", n_features=8, random_state=0)

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")


def ridge():
    return KernelRidge(**OPTIONS)


PLAIN = ridge().fit(ROWS, TARGETS)
DIMS = ("time", "lat", "lon")
FIELD = xr.Dataset({"wind": (DIMS, X[..., 0]), "pressure": (DIMS, X[..., 1]), "height": (DIMS, Y)})


def test_a_field_is_fitted_as_a_data_frame_and_predictions_are_a_field(tmp_path):
    FIELD.where(FIELD["lat"] > 10).to_netcdf(tmp_path / "sea.nc", engine="scipy")
    table = xr.open_dataset(tmp_path / "sea.nc", engine="scipy").to_dataframe().dropna()
    rows = table[["wind", "pressure"]]
    model = ridge().fit(table, "height")
    plain = ridge().fit(rows.to_numpy(), table.height)
    field = table.assign(mean=model.predict(rows))["mean"].to_xarray()
    expected = plain.predict(X[:, 11:].reshape(-1, 2)).reshape(10, 9, 6)
    np.testing.assert_array_equal(field.transpose(*DIMS), expected)


@pytest.mark.parametrize("field", [FIELD, FIELD.wind[0]])
def test_a_field_raises_with_the_name_of_the_conversion(field):
    for read in (bo.Blocks.from_table, bo.KernelFeatures(**OPTIONS).fit):
        with pytest.raises((InvalidType, TypeError), match=r"to_dataframe\(\)|to_dataarray\(\)"):
            read(field)


def in_hdf5(folder):
    h5py = pytest.importorskip("h5py")
    file = h5py.File(folder / "rows.h5", "w")
    X = file.create_dataset("X", data=ROWS, chunks=(300, 1))
    return X, file.create_dataset("y", data=TARGETS)


def in_zarr(folder):
    zarr = pytest.importorskip("zarr")
    X = zarr.create_array(folder / "X.zarr", shape=ROWS.shape, chunks=(300, 2), dtype="f8")
    X[:] = ROWS
    y = zarr.create_array(folder / "y.zarr", shape=TARGETS.shape, chunks=(70,), dtype="f8")
    y[:] = TARGETS
    return X, y


@pytest.fixture(params=[in_hdf5, in_zarr])
def stored(request, tmp_path):
    """Return rows and targets in files."""
    return request.param(tmp_path)


def test_arrays_in_files_are_read_in_slices_of_whole_chunks(stored, monkeypatch):
    monkeypatch.setattr("bochner.data.sources.CELLS_READ", 2 * 700)  # two chunks of 300 rows
    blocks = bo.Blocks.from_arrays(*stored, block_rows=256)
    np.testing.assert_array_equal(np.concatenate([block.X for block in blocks]), ROWS)
    assert blocks.source.step == 600
    part = pickle.loads(pickle.dumps(blocks.part(256, 1100)))
    np.testing.assert_array_equal(np.concatenate([block.X for block in part]), ROWS[256:1100])
    assert next(iter(part)).start == 256


def test_fits_and_predictions_of_arrays_in_files_equal_those_in_memory(stored):
    rows, targets = stored
    for model in (ridge().fit(*stored), ridge().fit_blocks(bo.Blocks.from_arrays(*stored))):
        np.testing.assert_array_equal(model.coef_, PLAIN.coef_)
        np.testing.assert_array_equal(model.predict(rows), PLAIN.predict(ROWS))
    labels = np.where(TARGETS > 0, "high", "low")
    assert bo.SVC(C=1.0, **OPTIONS).fit(rows, labels).score(rows, labels) > 0.9
    da = pytest.importorskip("dask.array")
    rows, targets = (da.from_array(array, chunks="auto") for array in stored)
    model = ridge().fit(rows, targets)
    np.testing.assert_array_equal(model.coef_, PLAIN.coef_)
    np.testing.assert_allclose(model.predict(rows).compute(), PLAIN.predict(ROWS), rtol=1e-12)


def test_marks_distinguish_stored_rows(tmp_path):
    rows, _ = in_hdf5(tmp_path)
    original = bo.Blocks.from_arrays(rows, TARGETS).source.mark()
    assert bo.Blocks.from_arrays(rows, TARGETS).source.mark() == original
    assert bo.Blocks.from_arrays(rows, -TARGETS).source.mark() != original
    rows[-1] = 0
    assert bo.Blocks.from_arrays(rows, TARGETS).source.mark() != original


def test_invalid_stored_values_raise(tmp_path):
    rows, _ = in_hdf5(tmp_path)
    rows[700, 1] = np.nan
    with pytest.raises(InvalidInput, match=r"column 1 of X must hold finite.*row 700"):
        ridge().fit(rows, TARGETS)
    with pytest.raises(InvalidInput, match=r"y must .*one entry per row of X \(1200\); got .*\(5,"):
        ridge().fit(rows, TARGETS[:5])
    with pytest.raises(InvalidType, match="must hold real numbers"):
        bo.Blocks.from_arrays(rows.file.create_dataset("z", data=1j * ROWS))
    with pytest.raises(InvalidInput, match="at least one row"):
        bo.Blocks.from_arrays(rows.file.create_dataset("none", shape=(0, 2), dtype="f8"))
