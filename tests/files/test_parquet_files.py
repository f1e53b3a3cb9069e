"""Parquet files: damage is noticed, and memory does not grow with the file."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bochner import Blocks
from bochner.errors import DataFileError, InvalidInput


def write(path, **columns):
    pq.write_table(pa.table(columns), path)
    return path


@pytest.fixture
def good(tmp_path):
    values = np.random.default_rng(0).normal(size=50_000)
    table = pa.table({"a": values, "b": values})
    pq.write_table(table, tmp_path / "good.parquet", write_page_checksum=True)
    return tmp_path / "good.parquet"


def test_row_groups_and_batches_do_not_show(tmp_path):
    a = np.random.default_rng(0).normal(size=1000)
    for size in (1, 7, 1000):
        pq.write_table(pa.table({"a": a}), tmp_path / "x.parquet", row_group_size=size)
        blocks = Blocks.from_files(tmp_path / "x.parquet", block_rows=333)
        np.testing.assert_array_equal(np.concatenate([b.X[:, 0] for b in blocks]), a)


def test_other_columns_are_not_read(tmp_path):
    path = write(tmp_path / "x.parquet", a=[1.0, 2.0], when=pa.array([1, 2], pa.timestamp("s")))
    with pytest.raises(InvalidInput, match=r"'when' must .* got dates or times"):
        next(iter(Blocks.from_files(path)))
    np.testing.assert_array_equal(next(iter(Blocks.from_files(path, columns=["a"]))).X, [[1], [2]])


def test_names_with_dots_are_names(tmp_path):
    path = write(tmp_path / "x.parquet", **{"a": [1.0], "a.b": [2.0], "a.b.c": [3.0]})
    assert next(iter(Blocks.from_files(path, "a.b"))).y.tolist() == [2]
    assert next(iter(Blocks.from_files(path, columns=["a.b.c", "a"]))).X.tolist() == [[3, 1]]


def test_row_names_of_pandas_are_not_features(tmp_path):
    pd.DataFrame({"a": [1.0, 2.0]}, index=[5, 6]).to_parquet(tmp_path / "x.parquet")
    assert Blocks.from_files(tmp_path / "x.parquet").feature_names == ("a",)


def damage(data):
    middle = bytearray(data)
    middle[200:20_000] = np.random.default_rng(1).bytes(19_800)
    return {
        "first half": data[: len(data) // 2],
        "six bytes": data[:6],
        "last byte missing": data[:-1],
        "other text": b"hello,world\n1,2\n" * 10,
        "damaged inside": bytes(middle),
    }


@pytest.mark.parametrize("case", list(damage(bytes(100))))
def test_damaged_files_are_refused_in_a_sentence(tmp_path, good, case):
    path = tmp_path / "bad.parquet"
    path.write_bytes(damage(good.read_bytes())[case])
    with pytest.raises(DataFileError, match=r"'.*bad.parquet' must be a whole Parquet file; it is"):
        list(Blocks.from_files(path))


def test_empty_files_and_tables_are_refused(tmp_path):
    (tmp_path / "zero.parquet").touch()
    with pytest.raises(DataFileError, match=r"zero.parquet' is empty; it must hold a table"):
        Blocks.from_files(tmp_path / "zero.parquet")
    path = write(tmp_path / "x.parquet", a=pa.array([], pa.float64()))
    with pytest.raises(InvalidInput, match=r"must have at least one row; '.*x.parquet' has none"):
        Blocks.from_files(path)


def test_a_file_without_rows_among_others_is_passed_over(tmp_path):
    write(tmp_path / "0.parquet", a=pa.array([], pa.null()))
    write(tmp_path / "1.parquet", a=[1.0, 2.0])
    blocks = Blocks.from_files(tmp_path)
    assert blocks.n_rows == 2
    assert next(iter(blocks)).X.shape == (2, 1)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (pa.array([1.0, None]), r"column 'a' must hold finite .* missing value .* in row 1 of '"),
        (pa.array([1, None]), r"column 'a' must hold finite .* missing value .* in row 1 of '"),
        (pa.array([True, None]), r"column 'a' must hold finite .* missing value .* in row 1 of '"),
        (pa.array([1.0, np.inf]), r"column 'a' must hold finite numbers; got inf in row 1 of '"),
        (pa.array(["x", None]), r"column 'a' must have no missing values; got one in row 1 of '"),
        (pa.array([None, None]), r"column 'a' must .* got nothing \(all values missing\)"),
        (pa.array([[1], [2]]), r"column 'a' must .* got lists or records \(list<"),
        (pa.array([b"x", b"y"]), r"column 'a' must .* got neither numbers nor text \(binary\)"),
    ],
)
def test_bad_values_are_refused_with_column_and_row(tmp_path, values, message):
    path = write(tmp_path / "x.parquet", a=values)
    with pytest.raises(InvalidInput, match=message):
        list(Blocks.from_files(path))


def test_rows_are_counted_in_their_own_file(tmp_path):
    write(tmp_path / "0.parquet", a=np.zeros(100))
    write(tmp_path / "1.parquet", a=[0.0, 1.0, np.nan])
    with pytest.raises(InvalidInput, match=r"in row 2 of '.*1.parquet' \(counted from 0\)"):
        list(Blocks.from_files(tmp_path))


def most_allocated(batches):
    before = pa.total_allocated_bytes()
    return max(pa.total_allocated_bytes() - before for _ in batches)


def test_memory_does_not_grow_with_row_groups(tmp_path):
    rows, most = {}, {}
    for n in (100_000, 800_000):
        columns = {f"x{i}": np.random.default_rng(i).normal(size=n) for i in range(5)}
        rows[n] = tmp_path / f"{n}.parquet"
        pq.write_table(pa.table(columns), rows[n], row_group_size=n)
        most[n] = most_allocated(Blocks.from_files(rows[n]))
    assert most[800_000] < 1.2 * most[100_000] + 2**20
    # The fault: a reader without a buffer bound holds the whole row group.
    plain = pq.ParquetFile(rows[800_000], pre_buffer=False, buffer_size=0)
    assert most_allocated(plain.iter_batches(1000)) > 1.2 * most[100_000] + 2**20


UNWANTED = """
import sys
from bochner.data.blocks import Blocks
assert not {"pyarrow", "narwhals"} & set(sys.modules)
for path in sys.argv[1:]:
    list(Blocks.from_files(path, "b"))
assert not {"pandas", "polars", "torch"} & set(sys.modules)
"""


def test_reading_files_imports_no_other_table_library(tmp_path):
    # pyarrow's own conversions to NumPy import pandas: 0.3 s and 40 MB.
    table = pa.table({"a": [1, 2], "s": ["x", "y"], "f": [True, False], "b": [1.0, 2.0]})
    pq.write_table(table, tmp_path / "x.parquet")
    (tmp_path / "x.csv").write_text("a,s,f,b\n1,x,true,1.0\n2,y,false,2.0\n")
    paths = [str(tmp_path / name) for name in ("x.parquet", "x.csv")]
    subprocess.run([sys.executable, "-c", UNWANTED, *paths], check=True)
