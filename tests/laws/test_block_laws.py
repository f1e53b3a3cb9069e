"""Blocks: the same rows and numbers from each source, for any block size, in each pass."""

import dataclasses
import json
import pickle

import array_api_strict
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import scipy.sparse
import scipy.stats
import torch
from layouts import OnlyAStream

from bochner import Blocks, Schema
from bochner._core.sizes import block_rows
from bochner.data.sample import row_priorities, sample_rows
from bochner.errors import InvalidInput

N = 203
COLOURS = ["red", "green", "blue"]


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(5)
    return pd.DataFrame(
        {
            "y": rng.normal(size=N),
            "a": rng.normal(size=N),
            "colour": rng.choice(COLOURS, N),
            "count": rng.integers(0, 9, N),
            "flag": rng.random(N) < 0.5,
            "w": rng.random(N),
        }
    )


def expected(frame):
    """Return X, y and w by an obvious loop over columns and categories."""
    columns = [frame["a"], *((frame["colour"] == c) for c in sorted(COLOURS))]
    X = np.column_stack([*columns, frame["count"], frame["flag"]]).astype(np.float64)
    return X, np.array(frame["y"]), np.array(frame["w"])


@pytest.fixture(scope="module")
def named(frame, tmp_path_factory):
    """Return blocks of the same table from each kind of source with column names."""
    folder, table = tmp_path_factory.mktemp("blocks"), pa.Table.from_pandas(frame)
    pq.write_table(table, folder / "one.parquet", row_group_size=37)
    frame.to_csv(folder / "one.csv", index=False)
    frame.to_csv(folder / "semicolons.csv", index=False, sep=";")
    frame.to_csv(folder / "packed.csv.gz", index=False)
    parts = folder / "parts"
    parts.mkdir()
    frame[:50].to_csv(parts / "0.csv", index=False)
    frame[50:51].to_parquet(parts / "1.parquet")
    frame[51:].iloc[:, ::-1].to_parquet(parts / "2.parquet", row_group_size=10)
    (parts / "_SUCCESS").touch()
    tables = {
        "pandas": frame,
        "pandas categories": frame.astype({"colour": "category"}),
        "pandas nullable": frame.convert_dtypes(),
        "pandas of Arrow": frame.convert_dtypes(dtype_backend="pyarrow"),
        "polars": pl.from_pandas(frame),
        "polars categories": pl.from_pandas(frame.astype({"colour": "category"})),
        "polars Enum": pl.from_pandas(frame).cast({"colour": pl.Enum(COLOURS)}),
        "arrow": table,
        "arrow dictionary": pa.Table.from_pandas(frame.astype({"colour": "category"})),
        "arrow in batches": pa.Table.from_batches(table.to_batches(max_chunksize=19)),
        "arrow stream": OnlyAStream(table),
    }
    files = {
        "parquet": folder / "one.parquet",
        "csv": folder / "one.csv",
        "csv with semicolons": folder / "semicolons.csv",
        "packed csv": folder / "packed.csv.gz",
        "folder": str(parts),
        "glob": str(parts / "*.*"),
        "list": [parts / "0.csv", parts / "1.parquet", str(parts / "2.parquet")],
    }
    blocks = {name: Blocks.from_table(t, "y", "w") for name, t in tables.items()}
    return blocks | {name: Blocks.from_files(p, "y", "w") for name, p in files.items()}


@pytest.fixture(scope="module")
def bare(frame):
    """Return blocks of the same numbers from each kind of source without names."""
    X, y, w = expected(frame)
    frozen = X.copy()
    frozen.flags.writeable = False
    pieces = [(X[i : i + 31], y[i : i + 31], w[i : i + 31]) for i in range(0, N, 31)]
    strict = array_api_strict.asarray
    return {
        "numpy": Blocks.from_arrays(X, y, w),
        "read-only": Blocks.from_arrays(frozen, y, w),
        "columns first": Blocks.from_arrays(np.asfortranarray(X), y, w),
        "lists": Blocks.from_arrays(X.tolist(), y.tolist(), w.tolist()),
        "torch": Blocks.from_arrays(*map(torch.asarray, (X, y, w))),
        "strict": Blocks.from_arrays(strict(X), strict(y), strict(w)),
        "sparse matrix": Blocks.from_arrays(scipy.sparse.csr_matrix(X), y, w),
        "sparse array": Blocks.from_arrays(scipy.sparse.coo_array(X), y, w),
        "list of pieces": Blocks.from_iterable(pieces),
        "generator function": Blocks.from_iterable(lambda: iter(pieces)),
        "blocks of blocks": Blocks.from_iterable(Blocks.from_arrays(X, y, w, block_rows=7)),
    }


@pytest.fixture(scope="module")
def all_columns(named, bare):
    return named | bare


def in_numpy(part):
    return part.toarray() if scipy.sparse.issparse(part) else np.asarray(part)


def gathered(blocks):
    """Return all rows of a pass, and the starts and sizes of its blocks."""
    items = list(blocks)
    X, y, w = (
        np.concatenate([in_numpy(part) for part in parts])
        for parts in zip(*(block[:3] for block in items), strict=True)
    )
    return X, y, w, [(block.start, block.X.shape[0]) for block in items]


@pytest.mark.main_cases(47)
@pytest.mark.parametrize("rows", [1, 7, 50, N - 1, N, N + 1])
def test_each_source_gives_the_same_numbers_in_blocks_of_any_size(named, bare, frame, rows):
    for name, blocks in (named | bare).items():
        X, y, w, sizes = gathered(blocks.with_rows(rows))
        for actual, want in zip((X, y, w), expected(frame), strict=True):
            np.testing.assert_array_equal(actual, want, err_msg=name)
            assert actual.dtype == np.float64, name
        assert sizes == [(s, min(rows, N - s)) for s in range(0, N, rows)], name
    assert [block_rows(d) for d in (1, 1024, 4096, 10**6)] == [4096, 4096, 1024, 256]


def test_each_pass_is_equal_even_after_an_interrupted_one(named, bare, frame):
    """So is a pass of a pickle, and the table does not change."""
    original = frame.copy()
    for name, blocks in (named | bare).items():
        first = gathered(blocks.with_rows(5))
        next(iter(blocks.with_rows(5)))
        copies = [blocks]
        if name in ("pandas", "polars", "arrow", "parquet", "csv", "folder"):
            copies.append(pickle.loads(pickle.dumps(blocks)))
        for second in (gathered(other.with_rows(5)) for other in copies):
            assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True)), name
    pd.testing.assert_frame_equal(frame, original)


def test_blocks_of_arrays_and_memory_maps_are_views(tmp_path):
    X, y = np.random.default_rng(0).normal(size=(20, 3)), np.ones(20)
    for block in Blocks.from_arrays(X, y, y, block_rows=6):
        assert all(np.shares_memory(a, b) for a, b in zip(block[:3], (X, y, y), strict=True))
    T = torch.asarray(X)
    assert next(iter(Blocks.from_arrays(T, block_rows=6))).X.data_ptr() == T.data_ptr()
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    items = list(Blocks.from_arrays(mapped, block_rows=16))
    assert all(np.shares_memory(block.X, mapped) for block in items)
    np.testing.assert_array_equal(np.concatenate([block.X for block in items]), X)


@pytest.mark.main_cases(3)
@pytest.mark.parametrize("m", [1, 10, N - 1, N, N + 50])
def test_samples_do_not_depend_on_source_and_block_size(named, bare, frame, m):
    X, y, w = expected(frame)
    index = np.sort(np.argsort(row_priorities(11, 0, N))[:m])
    for name, blocks in (named | bare).items():
        for rows in (3, 64, N):
            sample = blocks.with_rows(rows).sample(m, 11)
            np.testing.assert_array_equal(sample.index, index, err_msg=name)
            for actual, want in zip(sample[:3], (X, y, w), strict=True):
                np.testing.assert_array_equal(in_numpy(actual), want[index], err_msg=name)


def unevenness(draw, n=40, m=10, seeds=2000):
    """Return χ² of the counts of rows, with n − 1 degrees of freedom if samples are uniform."""
    counts = np.zeros(n)
    for seed in range(seeds):
        counts[draw(seed, n, m)] += 1
    p = m / n
    return ((counts - seeds * p) ** 2).sum() / (seeds * p * (1 - p)) * (n - 1) / n


@pytest.mark.statistical
def test_all_rows_are_equally_likely_in_a_sample():
    # Alarm rate 1e-6. The count of a row is binomial with variance seeds p (1 − p); two counts have
    # correlation −1/(n − 1), because each sample has m rows.
    assert unevenness(sample_rows) < scipy.stats.chi2.isf(1e-6, 39)


def test_sample_takes_integers_and_generators_as_seeds():
    blocks = Blocks.from_arrays(np.arange(50.0)[:, None])
    assert np.array_equal(blocks.sample(5, 1).index, blocks.sample(5, np.int64(1)).index)
    generator = np.random.default_rng(0)
    first, second = blocks.sample(5, generator), blocks.sample(5, generator)
    assert not np.array_equal(first.index, second.index)
    assert len(blocks.sample(5).index) == 5
    with pytest.raises(InvalidInput, match=r"Blocks.sample: m must be an integer, 1 or above; got"):
        blocks.sample(0)


def test_watchers_are_called_after_each_block():
    blocks, counts = Blocks.from_arrays(np.zeros((10, 2)), block_rows=4), []
    observed = blocks.watch(counts.append).watch(lambda rows: counts.append(-rows))
    for number, _ in enumerate(observed):
        assert len(counts) == 2 * number
    assert counts == [4, -4, 4, -4, 2, -2]
    list(blocks)
    assert len(counts) == 6


def test_the_number_of_rows_is_known_after_a_pass(named, bare):
    for name in ("pandas", "polars", "arrow", "parquet"):
        assert named[name].n_rows == N
    assert bare["numpy"].n_rows == N
    blocks = Blocks.from_files(named["csv"].source.readers[0].text_file.file, "y")
    assert blocks.n_rows is None
    list(blocks)
    assert blocks.n_rows == blocks.with_rows(3).n_rows == N


def test_blocks_have_names_of_their_columns(named, bare, monkeypatch):
    names = ("a", "colour=blue", "colour=green", "colour=red", "count", "flag")
    for name, blocks in named.items():
        assert set(blocks.feature_names) == set(names), name
        assert (blocks.target_names, blocks.n_columns) == (("y",), 6), name
        with monkeypatch.context() as patch:
            patch.setattr(Blocks, "__iter__", None)  # the schema suffices
            assert blocks.target_shape == ()
    assert named["pandas"].feature_names == names
    for blocks in bare.values():
        assert (blocks.schema, blocks.feature_names, blocks.target_names) == (None, None, None)


def dtype_of(**columns):
    return next(iter(Blocks.from_table(pl.DataFrame(columns)))).X.dtype


def test_narrow_columns_give_float32_and_others_float64():
    ones = [1, 0]
    narrow = {
        str(t): pl.Series(ones).cast(t)
        for t in (pl.Float32, pl.Float16, pl.Int8, pl.Int16, pl.UInt8, pl.UInt16, pl.Boolean)
    }
    assert dtype_of(**narrow) == np.float32
    assert dtype_of(**narrow, text=["x", "y"]) == np.float32
    for t in (pl.Float64, pl.Int32, pl.Int64, pl.UInt32, pl.UInt64, pl.Decimal(10, 2)):
        assert dtype_of(**narrow, wide=pl.Series(ones).cast(t)) == np.float64, t
    assert dtype_of(text=["x", "y"]) == np.float64


def test_targets_keep_their_dtype_and_shape():
    table = pl.DataFrame({"a": [1.0, 2], "b": pl.Series([1, 2], dtype=pl.Float32), "c": [3, 4]})
    first = next(iter(Blocks.from_table(table, "b")))
    assert (first.X.dtype, first.y.dtype, first.y.shape) == (np.float64, np.float32, (2,))
    assert next(iter(Blocks.from_table(table, ["b"]))).y.shape == (2, 1)
    pair = Blocks.from_table(table, ["c", "b"])
    assert pair.target_names == ("c", "b")
    np.testing.assert_array_equal(next(iter(pair)).y, [[3, 1], [4, 2]])
    assert next(iter(Blocks.from_table(table))).y is None


@pytest.mark.parametrize("dtype", ["f2", "i1", "u8", "?", "f4", "f8"])
def test_arrays_keep_float32_and_float64_and_others_become_float64(dtype):
    block = next(iter(Blocks.from_arrays(np.eye(3, dtype=dtype), np.ones(3, dtype))))
    assert block.X.dtype == block.y.dtype == (np.float32 if dtype == "f4" else np.float64)
    np.testing.assert_array_equal(block.X, np.eye(3))
    tensor = torch.asarray(np.eye(3, dtype=dtype if dtype != "u8" else "i8"))
    assert next(iter(Blocks.from_arrays(tensor))).X.dtype == (
        torch.float32 if dtype == "f4" else torch.float64
    )


def test_a_schema_from_json_gives_the_same_columns(named, frame):
    schema = named["pandas"].schema
    repeat = Schema(**json.loads(json.dumps(dataclasses.asdict(schema))))
    assert repeat == schema
    assert hash(repeat) == hash(schema)
    subset = frame[frame["colour"] == "red"].iloc[:, ::-1].assign(extra=pd.Timestamp("2020-01-01"))
    X = gathered(Blocks.from_table(subset, schema=repeat))[0]
    np.testing.assert_array_equal(X, expected(frame)[0][frame["colour"] == "red"])
    codes = Blocks.from_table(pd.DataFrame({"code": pd.Categorical([10, 9, 10])}))
    assert codes.feature_names == ("code=10", "code=9")  # numbers as text
    plain = Blocks.from_table(pd.DataFrame({"code": [9, 10]}), schema=codes.schema)
    np.testing.assert_array_equal(gathered_X(plain), [[0, 1], [1, 0]])


def test_tables_for_prediction_need_no_target_or_weight(named, frame):
    schema = named["pandas"].schema
    block = next(iter(Blocks.from_table(frame.drop(columns=["y", "w"]), schema=schema)))
    assert (block.y, block.w) == (None, None)
    unusable = frame.assign(y="?", w=-1.0)
    block = next(iter(Blocks.from_table(unusable, schema=schema.features_only())))
    np.testing.assert_array_equal(block.X, expected(frame)[0])
    assert (block.y, block.w) == (None, None)
    other = Blocks.from_table(frame.rename(columns={"y": "z"}), "z", schema=schema)
    np.testing.assert_array_equal(next(iter(other)).y, frame["y"])


def gathered_X(blocks):
    return np.concatenate([block.X for block in blocks])


EYE = np.eye(3)


def bad_at(row, value, make=np.asarray):
    X = np.zeros((9, 3))
    X[row, 2] = value
    return make(X)


@pytest.mark.parametrize("make", [np.asarray, torch.asarray, scipy.sparse.csr_array])
@pytest.mark.parametrize("rows", [1, 4, 100])
def test_missing_and_infinite_values_raise_with_column_and_row(make, rows):
    nan = Blocks.from_arrays(bad_at(6, np.nan, make), block_rows=rows)
    with pytest.raises(InvalidInput, match=r"column 2 of X must .* a missing value .* in row 6 "):
        list(nan)
    inf = Blocks.from_arrays(bad_at(6, -np.inf, make), block_rows=rows)
    with pytest.raises(InvalidInput, match=r"column 2 of X must hold finite numbers; got -inf in"):
        list(inf)
    with pytest.raises(InvalidInput, match=r"column 2 of X .* in row 6 "):
        nan.sample(9, 0)


def test_a_source_that_changes_raises():
    rng, pieces = np.random.default_rng(0), [EYE, EYE.astype(int)]
    blocks = Blocks.from_iterable(lambda: list(pieces))
    assert gathered_X(blocks).shape == (6, 3)
    pieces.append(EYE)
    with pytest.raises(InvalidInput, match=r"same rows; pieces of .* gave 6 before and 9 now"):
        list(blocks)
    with pytest.raises(InvalidInput, match=r"same rows in the same order each time.*shuffling off"):
        list(Blocks.from_iterable(lambda: [rng.normal(size=(4, 2))]))
