"""Files of data: which a path means, Parquet, URLs, and files written whole or not at all."""

import csv
import errno
import gzip
import os
import stat
import subprocess
import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import fsspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.feather as pf
import pyarrow.parquet as pq
import pytest
import torch
from pyarrow import ipc

from bochner import Blocks, KernelRidge
from bochner.data.files import find_files
from bochner.data.writers import atomic, write_table
from bochner.errors import DataFileError, InvalidInput, InvalidType, MissingDependency

# ==== Which files a path means, what happens when they differ, vanish, change or cannot be read.


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


# ==== Parquet files: damage is noticed, and memory does not grow with the file.


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
assert "pyarrow" not in sys.modules
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


# ==== Feather files, and files of every format behind URLs: what holds of files on disks.


N = 1000
RNG = np.random.default_rng(0)
TABLE = pa.table(
    {"a": RNG.normal(size=N), "s": RNG.choice(["x", "y"], N), "b.c": RNG.normal(size=N).round(3)}
)
WRITE = {
    "csv": pc.write_csv,
    "csv.gz": lambda table, file: file.write(gzip.compress(written(pc.write_csv, table))),
    "parquet": pq.write_table,
    "feather": lambda table, file: pf.write_feather(table, file, chunksize=300),
    "arrow": lambda table, file: pf.write_feather(table, file, compression="zstd"),
}


def written(write, table):
    sink = pa.BufferOutputStream()
    write(table, sink)
    return sink.getvalue().to_pybytes()


@pytest.fixture
def memory():
    system = fsspec.filesystem("memory")
    yield system
    system.rm("/", recursive=True)


def put(system, path, table=TABLE):
    with system.open(path, "wb") as file:
        WRITE[path.partition(".")[2]](table, file)
    return f"memory://{path}"


def rows(blocks):
    return np.concatenate([np.column_stack([b.X, b.y]) for b in blocks])


@pytest.mark.parametrize("size", [7, 300, 5000])
@pytest.mark.parametrize("kind", WRITE)
def test_every_format_gives_the_rows_of_the_table_from_disk_and_url(memory, tmp_path, kind, size):
    url = put(memory, f"/t.{kind}")
    (tmp_path / f"t.{kind}").write_bytes(memory.cat(f"/t.{kind}"))
    expected = rows(Blocks.from_table(TABLE, "b.c", block_rows=size))
    for path in (url, tmp_path / f"t.{kind}"):
        blocks = Blocks.from_files(path, "b.c", block_rows=size)
        assert blocks.feature_names == ("a", "s=x", "s=y")
        for _ in range(2):
            np.testing.assert_array_equal(rows(blocks), expected)
        assert {b.X.shape[0] for b in blocks} <= {size, N % size or size, N}


def test_folders_and_globs_of_urls_are_read_in_the_order_of_names(memory):
    for number, name in enumerate(["d/2.parquet", "d/1.csv", "d/e/0.feather", "d/_tmp/9.csv"]):
        put(memory, f"/{name}", TABLE.slice(10 * number, 10))
    X = rows(Blocks.from_files("memory://d", "b.c"))
    expected = rows(Blocks.from_table(TABLE.slice(0, 30), "b.c"))
    np.testing.assert_array_equal(X, expected.reshape(3, 10, -1)[[1, 0, 2]].reshape(30, -1))
    two = Blocks.from_files(["memory://d/*.csv", "memory://d/*/*.feather"], "b.c")
    assert rows(two).shape[0] == 20
    found = find_files("memory://d")
    assert [file.name for file in found] == ["1.csv", "2.parquet", "0.feather"]
    np.testing.assert_array_equal(rows(Blocks.from_files(found, "b.c")), X)


def test_a_part_of_a_feather_file_reads_its_own_batches(tmp_path, monkeypatch):
    WRITE["feather"](TABLE, tmp_path / "t.feather")
    blocks, read = Blocks.from_files(tmp_path / "t.feather", "b.c", block_rows=300), []
    plain = ipc.open_file

    class Counted:
        def __init__(self, *args, **options):
            self.opened = plain(*args, **options)

        def __getattr__(self, name):
            return getattr(self.opened, name)

        def get_batch(self, number):
            read.append(number)
            return self.opened.get_batch(number)

    monkeypatch.setattr(ipc, "open_file", Counted)
    found = rows(blocks.part(600, N).blocks)
    assert read == list(range(2, -(-N // 300)))
    np.testing.assert_array_equal(found, rows(Blocks.from_table(TABLE, "b.c"))[600:])


def test_only_the_listing_of_a_file_is_read_anew(memory, monkeypatch):
    url, asked = put(memory, "/t.csv"), []
    monkeypatch.setattr(type(memory), "invalidate_cache", lambda _, path=None: asked.append(path))
    list(Blocks.from_files(url, "b.c"))
    assert set(asked) == {"/t.csv"}


def test_a_file_behind_a_url_that_changes_is_noticed(memory):
    blocks = Blocks.from_files(put(memory, "/t.csv"), "b.c")
    put(memory, "/t.csv", TABLE.slice(1))
    with pytest.raises(DataFileError, match=r"'memory://.*' must stay as it is until all passes"):
        list(blocks)
    memory.rm("/t.csv")
    with pytest.raises(DataFileError, match=r"'memory:.*' cannot be read: .*t\.csv"):
        list(blocks)


@pytest.mark.parametrize(
    ("url", "error", "match"),
    [
        ("memory://no.csv", DataFileError, "there is no file or folder 'memory://no.csv'. Check"),
        (
            "memory://q*.csv",
            DataFileError,
            "^Blocks.from_files: the glob 'memory://.*' must match .* got none. Check the URL.$",
        ),
        ("nowhere://x.csv", InvalidInput, "of a kind that fsspec knows, .*; Protocol not known"),
    ],
)
def test_urls_that_mean_nothing_are_refused_in_a_sentence(memory, url, error, match):
    with pytest.raises(error, match=match):
        Blocks.from_files(url)


def test_what_urls_need_is_named(memory, monkeypatch):
    def missing(_):
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr(fsspec.core, "url_to_fs", missing)
    with pytest.raises(MissingDependency, match=r"'s3://b/t.csv' .*: Install s3fs to access S3"):
        Blocks.from_files("s3://b/t.csv")
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(MissingDependency, match=r"'s3://b/t.csv' needs the package fsspec, which"):
        Blocks.from_files("s3://b/t.csv")


def test_bad_cells_behind_urls_are_named_with_column_and_line(memory):
    with memory.open("/t.csv", "wb") as file:
        file.write(b"a,b\n" + b"1,2\n" * 50 + b"1,?\n")
    blocks = Blocks.from_files("memory://t.csv", dtypes={"b": "number"})
    with pytest.raises(InvalidInput, match=r"column 'b' of 'memory://.* got '\?' in line 52"):
        list(blocks)


# ---- storages behind a server


@pytest.fixture(scope="module")
def s3():
    """A server of S3 on this machine, a file system that talks to it, and an empty bucket."""
    server = pytest.importorskip("moto.server").ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    pytest.importorskip("s3fs")
    server.start()
    host, port = server.get_host_and_port()
    keys = dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), "any")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (keys | {"AWS_ENDPOINT_URL": f"http://{host}:{port}"}).items():
            patch.setenv(name, value)
        system = fsspec.filesystem("s3", skip_instance_cache=True)
        fsspec.filesystem("s3").clear_instance_cache()
        system.mkdir("bucket")
        yield system
    fsspec.filesystem("s3").clear_instance_cache()
    server.stop()


@pytest.mark.slow
def test_a_fit_of_tables_on_s3_is_that_of_the_rows(s3):
    for number in range(3):
        put(s3, f"bucket/trips/{number}.parquet", TABLE.slice(300 * number, 300))
    put(s3, "bucket/trips/more.csv", TABLE.slice(900))
    asked = {"kernel": "gaussian", "n_features": 32, "random_state": 0}
    for url, rows_there in (("s3://bucket/trips/*.parquet", 900), ("s3://bucket/trips", N)):
        there = Blocks.from_files(url, target="b.c")
        here = Blocks.from_table(TABLE.slice(0, rows_there), "b.c")
        fits = [KernelRidge(**asked).fit_blocks(blocks) for blocks in (there, here)]
        np.testing.assert_array_equal(fits[0].coef_, fits[1].coef_)


def test_a_table_on_s3_that_changes_is_noticed(s3):
    put(s3, "bucket/t.parquet")
    blocks = Blocks.from_files("s3://bucket/t.parquet", "b.c")
    put(s3, "bucket/t.parquet", TABLE.slice(1))
    with pytest.raises(DataFileError, match=r"'s3://bucket/t.parquet' must stay as it is"):
        list(blocks)


@pytest.mark.parametrize("name", ["none.csv", "none/*.parquet"])
def test_what_is_not_on_s3_is_named(s3, name):
    with pytest.raises(DataFileError, match=rf"^Blocks.from_files: .*'s3://bucket/{name[:4]}.*URL"):
        Blocks.from_files(f"s3://bucket/{name}")


class _Refuses(fsspec.AbstractFileSystem):
    """A storage whose package has errors of its own."""

    protocol = "refuses"

    def info(self, *_, **__):
        raise self.error

    def ls(self, *_, **__):
        raise self.error


class NoKeys(Exception):
    """As botocore's NoCredentialsError, no OSError."""


@pytest.mark.parametrize("url", ["refuses://b/t.csv", "refuses://b/*.csv"])
def test_what_a_storage_says_is_told_in_a_sentence(monkeypatch, url):
    fsspec.register_implementation("refuses", _Refuses, clobber=True)
    monkeypatch.setattr(_Refuses, "error", NoKeys("Unable to locate credentials"), raising=False)
    with pytest.raises(
        DataFileError,
        match=r"^Blocks: 'refuses://.*' cannot be read: unable to locate credentials. Check the U",
    ):
        Blocks.from_files(url)


def test_a_storage_that_is_lost_between_passes_is_told_in_a_sentence(memory, monkeypatch):
    blocks = Blocks.from_files(put(memory, "/t.parquet"), "b.c")

    def lost(*_, **__):
        raise NoKeys("Could not connect to the endpoint.")

    monkeypatch.setattr(type(memory), "info", lost)
    with pytest.raises(DataFileError, match=r"'memory://.*' cannot be read: could not connect to"):
        list(blocks)


@pytest.fixture
def web(tmp_path):
    """A folder, and the URL of a server that gives its files whole."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    handler = partial(Quiet, directory=tmp_path)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield tmp_path, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_tables_on_the_web_are_read(web):
    pytest.importorskip("aiohttp")
    folder, url = web
    with (folder / "t.csv").open("wb") as file:
        pc.write_csv(TABLE, file)
    blocks = Blocks.from_files(f"{url}/t.csv", "b.c")
    np.testing.assert_array_equal(rows(blocks), rows(Blocks.from_table(TABLE, "b.c")))
    pf.write_feather(TABLE, folder / "t.feather")
    with pytest.raises(DataFileError, match=r"must be on a server that gives parts .*take CSV"):
        Blocks.from_files(f"{url}/t.feather")
    with pytest.raises(DataFileError, match=r"there is no file or folder 'http.*/no.csv'"):
        Blocks.from_files(f"{url}/no.csv")


# ---- damaged files


@pytest.mark.parametrize("cut", [0.5, 0.99])
def test_damaged_feather_files_are_refused_in_a_sentence(tmp_path, cut):
    whole = written(lambda t, f: pf.write_feather(t, f, chunksize=300), TABLE)
    (tmp_path / "x.feather").write_bytes(whole[: int(cut * len(whole))])
    with pytest.raises(DataFileError, match=r"x.feather' must be a whole Feather file; it is cut"):
        Blocks.from_files(tmp_path / "x.feather")


def test_offsets_of_damaged_feather_files_are_not_followed(tmp_path):
    table = pa.table({"s": ["red", "green", "blue"] * 100})
    whole = bytearray(
        written(lambda t, f: pf.write_feather(t, f, compression="uncompressed"), table)
    )
    offsets = table["s"].chunk(0).buffers()[1].to_pybytes()[4:400]
    at = bytes(whole).index(offsets)
    whole[at : at + 4] = (1 << 30).to_bytes(4, "little")
    (tmp_path / "x.feather").write_bytes(whole)
    with pytest.raises(DataFileError, match=r"must be a whole Feather file"):
        list(Blocks.from_files(tmp_path / "x.feather"))


# ==== Written files are there as a whole or not at all.


@pytest.fixture
def chunks():
    rng = np.random.default_rng(0)
    return [
        {
            "y": rng.normal(size=n) * 10.0 ** rng.integers(-300, 300, n),
            "f": rng.normal(size=n).astype(np.float32),
            "i": rng.integers(0, 9, n),
            "s": rng.choice(["x", 'with "quotes", commas', "two\nlines"], n),
        }
        for n in (3, 1, 50)
    ]


def as_text(path):
    with path.open(newline="") as file:
        names, *rows = csv.reader(file)
    return dict(zip(names, zip(*rows, strict=True), strict=True))


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".pq"])
def test_what_is_written_is_read_back_to_the_last_bit(tmp_path, chunks, suffix):
    path = tmp_path / f"out{suffix}"
    assert write_table(path, iter(chunks)) == 54
    read = as_text(path) if suffix == ".csv" else pq.read_table(path).to_pydict()
    for name in chunks[0]:
        want = np.concatenate([chunk[name] for chunk in chunks])
        np.testing.assert_array_equal(np.array(read[name]).astype(want.dtype), want)
    blocks = Blocks.from_files(path, "y", columns=["f", "i"])
    np.testing.assert_array_equal(
        np.concatenate([b.y for b in blocks]), np.concatenate([c["y"] for c in chunks])
    )


def test_csv_is_as_python_writes_it(tmp_path):
    write_table(tmp_path / "x.csv", {"a": np.float32([1 / 3, 2]), "b": [0.1, 1e300]})
    assert (tmp_path / "x.csv").read_bytes() == b"a,b\n0.33333334,0.1\n2.0,1e+300\n"


def test_one_chunk_and_other_arrays_are_taken(tmp_path):
    assert write_table(tmp_path / "x.csv", {"a": torch.ones(2)}) == 2
    with (tmp_path / "x.csv").open() as file:
        assert list(csv.reader(file)) == [["a"], ["1.0"], ["1.0"]]


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_chunks_are_written_as_they_come(tmp_path, suffix):
    alive = []

    def chunks():
        for number in range(4):
            alive.append(sorted(tmp_path.iterdir()))
            yield {"a": np.full(10, number)}

    write_table(tmp_path / f"x{suffix}", chunks())
    assert all(len(files) == 1 and files[0].suffix == ".part" for files in alive[1:])
    assert [path.name for path in tmp_path.iterdir()] == [f"x{suffix}"]


def full(*_arguments):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class Stop(BaseException):
    """As KeyboardInterrupt, which pytest would take for the user's."""


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("error", [Stop, ValueError, KeyboardInterrupt])
def test_nothing_is_left_and_nothing_lost_when_writing_is_cut_off(tmp_path, suffix, error):
    path = tmp_path / f"x{suffix}"
    path.write_text("what was there before")

    def chunks():
        yield {"a": np.arange(100_000)}
        raise error

    with pytest.raises(error):
        write_table(path, chunks())
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    assert path.read_text() == "what was there before"


def test_what_killed_writers_left_is_removed_after_a_day(tmp_path):
    path, age = tmp_path / "x[1].csv", 86_400
    mine = [".x[1].csv.0123abcd0123abcd.part", ".x[1].csv.89ab012389ab0123.part"]
    others = [
        ".x1.csv.0123abcd0123abcd.part",
        ".y.csv.0123abcd0123abcd.part",
        ".x[1].csv.part",
        "x[1].csv.part",
    ]
    for name in (*mine, *others):
        (tmp_path / name).write_text("half")
        os.utime(tmp_path / name, (0, 0))
    now = (tmp_path / mine[1]).stat().st_ctime
    os.utime(tmp_path / mine[1], (now - age + 600,) * 2)  # another process may be at it
    write_table(path, {"a": [1]})
    assert {p.name for p in tmp_path.iterdir()} == {path.name, mine[1], *others}


def test_two_writers_do_not_disturb_each_other(tmp_path):
    path = tmp_path / "x.csv"
    with atomic(path) as file:
        write_table(path, {"a": [1]})
        assert len(list(tmp_path.iterdir())) == 2
        file.write(b"all")
    assert path.read_text() == "all"


def test_a_disk_that_fills_at_the_end_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DataFileError, match=r"'.*x.csv' cannot be written: the disk is full. Noth"):
        write_table(tmp_path / "x.csv", {"a": [1]})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")  # noqa: PTH110
@pytest.mark.parametrize("n", [1, 100_000])
def test_a_disk_that_is_full_is_named(tmp_path, n):
    for name in ("x.csv", "x.parquet"):
        (tmp_path / name).symlink_to("/dev/full")
        with pytest.raises(DataFileError, match=r"'/dev/full' cannot be written: the disk is full"):
            write_table(tmp_path / name, {"a": np.arange(n)})
        assert (tmp_path / name).is_symlink()


def test_folders_that_are_missing_or_closed_are_named(tmp_path, monkeypatch):
    with pytest.raises(DataFileError, match=r"'.*no.x.csv' cannot be written: no such file or dir"):
        write_table(tmp_path / "no" / "x.csv", {"a": [1]})
    (tmp_path / "dir.csv").mkdir()
    with pytest.raises(DataFileError, match=r"'.*dir.csv' cannot be written: it is a folder"):
        write_table(tmp_path / "dir.csv", {"a": [1]})
    (tmp_path / "old.csv").write_text("old")
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(DataFileError, match=r"old.csv' cannot be written: permission denied. Che"):
        write_table(tmp_path / "old.csv", {"a": [1]})
    assert (tmp_path / "old.csv").read_text() == "old"


def test_errors_about_other_files_pass_unchanged(tmp_path):
    with pytest.raises(FileNotFoundError), atomic(tmp_path / "x"):
        (tmp_path / "another").read_bytes()
    with pytest.raises(DataFileError, match="about the input"), atomic(tmp_path / "x"):
        raise DataFileError("about the input")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"a": np.eye(2)}, r"columns of one dimension and equal length; got 'a' of shape \(2, 2\)"),
        ({"a": [1, 2], "b": [1]}, r"equal length; got 'a' of shape \(2,\), 'b' of shape \(1,\)"),
        ([{"a": [1]}, {"b": [1]}], r"must keep its columns; got 'b' after 'a'"),
        ({}, r"must have at least one column to write; got none"),
        ([], r"must have at least one chunk of columns to write; got none"),
    ],
)
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_columns_that_make_no_table_are_refused(tmp_path, columns, message, suffix):
    with pytest.raises(InvalidInput, match=message):
        write_table(tmp_path / f"x{suffix}", columns)
    assert list(tmp_path.iterdir()) == []


def test_other_suffixes_are_refused(tmp_path):
    with pytest.raises(InvalidInput, match=r"a file named .parquet, .pq or .csv; got 'x.xlsx'"):
        write_table(tmp_path / "x.xlsx", {"a": [1]})


def test_csv_needs_no_package_and_parquet_names_it(tmp_path, monkeypatch):
    for name in ("pyarrow", "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, name, None)
    assert write_table(tmp_path / "x.csv", {"a": [1]}) == 1
    with pytest.raises(MissingDependency, match=r"Writing Parquet needs the package pyarrow"):
        write_table(tmp_path / "x.parquet", {"a": [1]})


def test_atomic_writes_text_and_keeps_permissions_and_links(tmp_path):
    path = tmp_path / "page.html"
    with atomic(path, "w") as file:
        file.write("é\r\n")
    assert path.read_bytes() == "é\r\n".encode()
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask
    path.chmod(0o640)
    (tmp_path / "link").symlink_to(path)
    with atomic(tmp_path / "link") as file:
        file.write(b"new")
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert (tmp_path / "link").is_symlink()


def test_a_device_is_written_to_and_not_replaced():
    with atomic(os.devnull) as file:
        file.write(b"gone")
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)  # noqa: PTH116
