"""Which files a path means, what happens when they differ, vanish, change or cannot be read."""

import os
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bochner import Blocks
from bochner.data.files import find_files
from bochner.errors import DataFileError, InvalidInput, InvalidType, MissingDependency


def write(path, **columns):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)
    return path


def test_folders_and_globs_are_read_in_the_order_of_names(tmp_path):
    for number in (3, 1, 2):
        write(tmp_path / f"{number}.parquet", a=[float(number)])
    (tmp_path / "2b.csv").write_text("a\n2.5\n")
    for hidden in ("_SUCCESS", ".1.parquet.crc", "notes.md", "_tmp/9.parquet", ".x/8.csv"):
        (tmp_path / hidden).parent.mkdir(exist_ok=True)
        (tmp_path / hidden).touch()
    for paths in (tmp_path, str(tmp_path), tmp_path / "[0-9]*.*", str(tmp_path / "**" / "[0-9]*")):
        names = [path.name for path in find_files(paths)]
        assert [n for n in names if n not in ("9.parquet", "8.csv")] == [
            "1.parquet",
            "2.parquet",
            "2b.csv",
            "3.parquet",
        ]
    X = np.concatenate([block.X for block in Blocks.from_files(tmp_path)])
    np.testing.assert_array_equal(X[:, 0], [1, 2, 2.5, 3])


def test_lists_keep_their_order_and_may_hold_folders(tmp_path):
    first, second = write(tmp_path / "d" / "a.pq", a=[1.0]), write(tmp_path / "b.pq", a=[2.0])
    assert find_files([second, tmp_path / "d", str(tmp_path / "*.pq")]) == [second, first, second]


def test_relative_paths_and_globs_start_at_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "d" / "a.pq", a=[1.0])
    assert find_files("d/*.pq") == find_files("d") == find_files("d/a.pq") == [Path("d/a.pq")]


def test_names_with_brackets_are_names_if_they_exist(tmp_path):
    path = write(tmp_path / "x[1].parquet", a=[1.0])
    assert find_files(path) == [path]


def test_parquet_is_known_by_its_first_bytes(tmp_path):
    path = write(tmp_path / "table.data", a=[1.0])
    assert Blocks.from_files(path).n_rows == 1


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("train.parqet", DataFileError, r"no file or folder '.*' \(did you mean 'train.parquet'\?"),
        ("no/such/x.csv", DataFileError, r"no file or folder '.*x.csv'. The current folder is '"),
        ("q*.parquet", DataFileError, r"the glob '.*' must match at least one file; got none"),
        ("empty", DataFileError, r"the folder '.*' must hold files named \*.parquet, .*; got none"),
        ("dir.csv", DataFileError, r"the folder '.*dir.csv' must hold files"),
        ("book.xlsx", DataFileError, r"must be Parquet .* or text .*; the suffix '.xlsx' is none"),
        ("hive", InvalidInput, r"folders named like columns \('y=1'\) are not read as columns"),
    ],
)
def test_paths_that_mean_nothing_are_refused_in_a_sentence(tmp_path, name, error, message):
    write(tmp_path / "train.parquet", a=[1.0])
    write(tmp_path / "hive" / "y=1" / "x.parquet", a=[1.0])
    (tmp_path / "empty").mkdir()
    (tmp_path / "dir.csv").mkdir()
    (tmp_path / "book.xlsx").write_bytes(b"PK")
    with pytest.raises(error, match=message):
        Blocks.from_files(tmp_path / name)


def test_lists_of_nothing_and_other_things_are_refused():
    with pytest.raises(InvalidInput, match=r"must name at least one file; got an empty list"):
        Blocks.from_files([])
    with pytest.raises(InvalidType, match=r"must be a path, a glob or a list of them; got int"):
        Blocks.from_files(3)


def test_files_with_other_columns_are_named(tmp_path):
    write(tmp_path / "1.parquet", a=[1.0], b=[2.0])
    write(tmp_path / "2.parquet", a=[1.0], c=[2.0])
    with pytest.raises(
        InvalidInput, match=r"same columns; '.*2.parquet' lacks 'b' and adds 'c' compared with '.*1"
    ):
        Blocks.from_files(tmp_path)
    assert Blocks.from_files(tmp_path, columns=["a"]).n_rows == 2
    with pytest.raises(
        InvalidInput, match=r"'.*2.parquet' must have a column 'b'; its columns are"
    ):
        Blocks.from_files(tmp_path, columns=["a", "b"])


def test_files_with_other_kinds_of_values_are_named(tmp_path):
    write(tmp_path / "1.parquet", a=[1.0], b=[2.0])
    write(tmp_path / "2.parquet", a=[1], b=["x"])
    with pytest.raises(
        InvalidInput, match=r"column 'b' holds text in '.*2.parquet' and numbers in '.*1.parquet'"
    ):
        Blocks.from_files(tmp_path)


@pytest.fixture(params=["parquet", "csv"])
def path(request, tmp_path):
    a = np.random.default_rng(0).normal(size=60_000)
    if request.param == "parquet":
        return write(tmp_path / "x.parquet", a=a)
    (tmp_path / "x.csv").write_text("a\n" + "\n".join(map(str, a)) + "\n")
    return tmp_path / "x.csv"


CHANGED = r"'.*' must stay as it is until all passes are done; it changed .* bytes then, \d+ now"


def test_a_file_that_grows_while_it_is_read_is_noticed(path):
    rows = iter(Blocks.from_files(path, block_rows=10))
    next(rows)
    with path.open("ab") as file:
        file.write(b"1.5\n")
    with pytest.raises(DataFileError, match=CHANGED):
        list(rows)


def test_a_file_cut_short_while_it_is_read_is_noticed(path):
    rows = iter(Blocks.from_files(path, block_rows=10))
    next(rows)
    os.truncate(path, 50_000)
    with pytest.raises(DataFileError, match=CHANGED):
        list(rows)


def test_a_file_that_changes_between_passes_is_noticed(path):
    blocks = Blocks.from_files(path)
    list(blocks)
    os.utime(path, ns=(0, 0))
    with pytest.raises(DataFileError, match=CHANGED):
        list(blocks)


def test_a_file_that_vanishes_is_noticed(path):
    blocks = Blocks.from_files(path)
    path.unlink()
    with pytest.raises(DataFileError, match=r"'.*' cannot be read: no such file or directory"):
        list(blocks)


def refuse(*_arguments, **_options):
    raise PermissionError(13, "Permission denied")


def test_a_file_that_may_not_be_read_is_named(path, monkeypatch):
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(
        DataFileError, match=r"'.*x\..*' cannot be read: permission denied. Check the path and its"
    ):
        Blocks.from_files(path)


def test_a_folder_that_may_not_be_read_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(Path, "iterdir", refuse)
    with pytest.raises(DataFileError, match=r"cannot be read: permission denied"):
        Blocks.from_files(tmp_path)
    monkeypatch.setattr(Path, "is_dir", refuse)
    with pytest.raises(DataFileError, match=r"cannot be read: permission denied"):
        Blocks.from_files(tmp_path)


def test_permission_lost_after_opening_is_named(path, monkeypatch):
    blocks = Blocks.from_files(path)
    module = "pyarrow.parquet.ParquetFile" if path.suffix == ".parquet" else "pyarrow.csv.open_csv"
    monkeypatch.setattr(module, refuse)
    with pytest.raises(DataFileError, match=r"cannot be read: permission denied"):
        list(blocks)


def test_a_missing_package_is_named(path, monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "pyarrow"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(
        MissingDependency, match=r"needs the package pyarrow, .*pip install 'bochner\[files\]'"
    ):
        Blocks.from_files(path)
