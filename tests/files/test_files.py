"""Files of data: paths, formats and URLs; damaged files; complete writes."""

import csv
import gzip
import os
import re
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

from bochner import Blocks, KernelRidge
from bochner.data.files import find_files, sniff
from bochner.data.writers import open_atomic, write_table
from bochner.errors import BochnerError, DataFileError, DataWarning, InvalidInput, MissingDependency

# ---- paths


def write(path, **columns):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)
    return path


def numbers(blocks):
    return np.concatenate([block.X for block in blocks])


def test_folders_and_patterns_are_read_in_order_of_names(tmp_path):
    for number in (3, 1, 2):
        write(tmp_path / f"{number}.parquet", a=[float(number)])
    (tmp_path / "2b.csv").write_text("a\n2.5\n")
    for hidden in ("_SUCCESS", ".1.parquet.crc", "notes.md", "_tmp/9.parquet", ".x/8.csv"):
        (tmp_path / hidden).parent.mkdir(exist_ok=True)
        (tmp_path / hidden).touch()
    for paths in (tmp_path, str(tmp_path), tmp_path / "[0-9]*.*", str(tmp_path / "**" / "[0-9]*")):
        names = [Path(file.path).name for file in find_files(paths)]
        assert [name for name in names if name not in "9.parquet 8.csv"] == [
            "1.parquet",
            "2.parquet",
            "2b.csv",
            "3.parquet",
        ]
    assert numbers(Blocks.from_files(tmp_path))[:, 0].tolist() == [1, 2, 2.5, 3]


@pytest.mark.parametrize("name", ["t.parquet", "t.feather"])
def test_parts_of_a_row_group_have_its_rows(tmp_path, monkeypatch, name):
    path = tmp_path / name
    save = pq.write_table if name == "t.parquet" else pf.write_feather
    save(pa.table({"a": np.arange(20_000.0)}), path)
    monkeypatch.setattr("bochner.data.tables.CELLS_PER_PIECE", 1 << 10)
    blocks = Blocks.from_files(path, block_rows=1000)
    for start in (0, 2500, 17_500, 5000):
        values = np.concatenate([block.X[:, 0] for block in blocks.part(start, start + 2500)])
        np.testing.assert_array_equal(values, np.arange(start, start + 2500.0))


@pytest.mark.parametrize("kind", ["parquet", "feather"])
def test_a_part_reads_no_earlier_group(tmp_path, monkeypatch, kind):
    table, path, read = pa.table({"a": np.arange(20_000.0)}), tmp_path / f"t.{kind}", []
    if kind == "parquet":
        pq.write_table(table, path, row_group_size=1000)
        reader, name, group = pq.ParquetFile, "iter_batches", lambda _, groups, _names: groups[0]
    else:
        pf.write_feather(table, path, chunksize=1000)
        reader, name, group = pa.ipc.RecordBatchFileReader, "get_batch", lambda group: group
    blocks, original = Blocks.from_files(path), getattr(reader, name)
    record = lambda self, *a, **k: read.append(group(*a)) or original(self, *a, **k)
    monkeypatch.setattr(reader, name, record)
    (block,) = blocks.part(17_500, 17_600)
    assert block.X[0, 0] == 17_500
    assert read[0] == 17


def test_lists_keep_their_order_and_existing_names_are_no_patterns(tmp_path, monkeypatch):
    """Lists may have folders, relative paths start at the current folder, [ ] may be in names."""
    first, second = write(tmp_path / "d" / "a.pq", a=[1.0]), write(tmp_path / "b.pq", a=[2.0])
    names = lambda paths: [str(file) for file in find_files(paths)]
    files = names([second, tmp_path / "d", str(tmp_path / "*.pq")])
    assert files == [*map(str, (second, first, second))]
    monkeypatch.chdir(tmp_path)
    assert names("d/*.pq") == names("d") == names("d/a.pq") == [str(Path("d/a.pq"))]
    path = write(tmp_path / "x[1].parquet", a=[1.0])
    assert names(path) == [str(path)]
    assert Blocks.from_files(path.rename("table.data")).n_rows == 1  # Parquet by its first bytes


def test_invalid_paths_raise_with_their_message(tmp_path):
    write(tmp_path / "train.parquet", a=[1.0])
    write(tmp_path / "hive" / "y=1" / "x.parquet", a=[1.0])
    (tmp_path / "empty").mkdir()
    (tmp_path / "dir.csv").mkdir()
    (tmp_path / "book.xlsx").write_bytes(b"PK")
    for name, message in (
        ("train.parqet", r"no file or folder '.*' \(did you mean 'train.parquet'\?"),
        ("no/such/x.csv", r"no file or folder '.*x.csv'. The current folder is '"),
        ("q*.parquet", r"the glob '.*' must match at least one file; got none"),
        ("empty", r"the folder '.*' must hold files named \*.parquet, .*; got none"),
        ("dir.csv", r"the folder '.*dir.csv' must hold files"),
        ("book.xlsx", r"must be Parquet .* or text .*; got the suffix '.xlsx'"),
        ("hive", r"folders named like columns \('y=1'\) are not read as columns"),
        ([], r"must be a path, a glob or a list of these; got \[\]"),
        (3, "must be a path, a glob or a list of these; got 3"),
    ):
        with pytest.raises(BochnerError, match=message):
            Blocks.from_files(tmp_path / name if isinstance(name, str) else name)


def test_files_with_other_columns_or_types_raise_with_their_name(tmp_path):
    write(tmp_path / "1.parquet", a=[1.0], b=[2.0])
    write(tmp_path / "2.parquet", a=[1.0], c=[2.0])
    lacks = r"same columns; '.*2.parquet' lacks 'b' and adds 'c' compared with '.*1"
    with pytest.raises(InvalidInput, match=lacks):
        Blocks.from_files(tmp_path)
    assert Blocks.from_files(tmp_path, columns=["a"]).n_rows == 2
    with pytest.raises(InvalidInput, match=r"'.*2.parquet' must have a column 'b'; its columns"):
        Blocks.from_files(tmp_path, columns=["a", "b"])
    write(tmp_path / "2.parquet", a=[1], b=["x"])
    kinds = r"column 'b' holds text in '.*2.parquet' and numbers in '.*1.parquet'"
    with pytest.raises(InvalidInput, match=kinds):
        Blocks.from_files(tmp_path)


# ---- files that change, are removed or cannot be read


@pytest.fixture(params=["parquet", "csv"])
def path(request, tmp_path):
    a = np.random.default_rng(0).normal(size=60_000)
    if request.param == "parquet":
        return write(tmp_path / "x.parquet", a=a)
    (tmp_path / "x.csv").write_text("a\n" + "\n".join(map(str, a)) + "\n")
    return tmp_path / "x.csv"


def append(path):
    with path.open("ab") as file:
        file.write(b"1.5\n")


CHANGED = r"'.*' must stay as it is until all passes are done; it changed .* bytes then, \d+ now"
CANNOT = r"'.*' cannot be read: "


@pytest.mark.parametrize("started", [True, False])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (append, CHANGED),
        (lambda path: os.truncate(path, 50_000), CHANGED),
        (lambda path: os.utime(path, ns=(0, 0)), CHANGED),
        (Path.unlink, CANNOT + "no such file or directory"),
    ],
    ids=["grown", "cut", "touched", "gone"],
)
def test_a_file_that_changes_during_or_between_passes_raises(path, change, message, started):
    blocks = Blocks.from_files(path, block_rows=10 if started else 60_000)
    rows = iter(blocks)
    next(rows)
    change(path)
    with pytest.raises(DataFileError, match=message):
        list(rows if started else blocks)


def refuse(*_arguments, **_options):
    raise PermissionError(13, "Permission denied")


def test_files_without_permission_raise_with_their_name(path, monkeypatch):
    """Before a file is opened, after, and for a folder."""
    blocks = Blocks.from_files(path)
    module = "pyarrow.parquet.ParquetFile" if path.suffix == ".parquet" else "pyarrow.csv.open_csv"
    denied, folder = CANNOT + "permission denied", path.parent
    for target, read in (
        (module, partial(list, blocks)),
        ("os.stat", partial(Blocks.from_files, path)),
        ("os.stat", partial(Blocks.from_files, folder)),
        ("os.scandir", partial(Blocks.from_files, folder)),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(target, refuse)
            with pytest.raises(DataFileError, match=denied):
                read()
    for name in [name for name in sys.modules if name.partition(".")[0] == "pyarrow"]:
        monkeypatch.setitem(sys.modules, name, None)
    needs = r"needs the package pyarrow, .*pip install 'bochner\[files\]'"
    with pytest.raises(MissingDependency, match=needs):
        Blocks.from_files(path)


# ---- Parquet


def test_rows_are_independent_of_row_groups_and_blocks(tmp_path):
    a = np.random.default_rng(0).normal(size=1000)
    for size in (1, 7, 1000):
        pq.write_table(pa.table({"a": a}), tmp_path / "x.parquet", row_group_size=size)
        blocks = Blocks.from_files(tmp_path / "x.parquet", block_rows=333)
        np.testing.assert_array_equal(numbers(blocks)[:, 0], a)


def test_only_named_columns_are_read(tmp_path):
    dates = pa.array([1, 2], pa.timestamp("s"))
    path = write(tmp_path / "x.parquet", **{"a": [1.0, 2.0], "a.b": [2.0, 3.0], "when": dates})
    with pytest.raises(InvalidInput, match=r"columns must .* got 'when' \(dates or times\)"):
        next(iter(Blocks.from_files(path)))
    assert next(iter(Blocks.from_files(path, "a.b", columns=["a"]))).y.tolist() == [2, 3]
    assert numbers(Blocks.from_files(path, columns=["a.b", "a"])).tolist() == [[2, 1], [3, 2]]
    pd.DataFrame({"a": [1.0, 2.0]}, index=[5, 6]).to_parquet(path)  # the index is no feature
    assert Blocks.from_files(path).feature_names == ("a",)


def test_a_file_without_rows_is_skipped_among_others(tmp_path):
    write(tmp_path / "0.parquet", a=pa.array([], pa.null()))
    write(tmp_path / "1.parquet", a=[1.0, 2.0])
    assert numbers(Blocks.from_files(tmp_path)).shape == (2, 1)
    write(tmp_path / "2.parquet", a=[0.0, 1.0, np.nan])
    with pytest.raises(InvalidInput, match=r"in row 2 of '.*2.parquet' \(counted from 0\)"):
        list(Blocks.from_files(tmp_path))


def test_invalid_values_raise_with_column_and_row(tmp_path):
    for values, message in (
        (pa.array([1.0, None]), "column 'a' must hold finite .* missing value .* in row 1 of '"),
        (pa.array([1, None]), "column 'a' must hold finite .* missing value .* in row 1 of '"),
        (pa.array([True, None]), "column 'a' must hold finite .* missing value .* in row 1 of '"),
        (pa.array([1.0, np.inf]), "column 'a' must hold finite numbers; got inf in row 1 of '"),
        (pa.array(["x", None]), "column 'a' must have no missing values; got one in row 1 of '"),
        (pa.array([None, None]), "must hold numbers, .* got 'a' .all values missing"),
        (pa.array([[1], [2]]), r"column 'a' must .* got lists or records \(list<"),
        (pa.array([b"x", b"y"]), r"column 'a' must .* got neither numbers nor text \(binary\)"),
        (pa.array([], pa.float64()), r"must have at least one row; '.*x.parquet' has none"),
    ):
        path = write(tmp_path / "x.parquet", a=values)
        with pytest.raises(InvalidInput, match=message):
            list(Blocks.from_files(path))


def most_allocated(batches):
    original = pa.total_allocated_bytes()
    return max(pa.total_allocated_bytes() - original for _ in batches)


def test_memory_does_not_grow_with_row_groups(tmp_path):
    rows, limit = {}, {}
    for n in (100_000, 800_000):
        columns = {f"x{i}": np.random.default_rng(i).normal(size=n) for i in range(5)}
        rows[n] = tmp_path / f"{n}.parquet"
        pq.write_table(pa.table(columns), rows[n], row_group_size=n)
        limit[n] = most_allocated(Blocks.from_files(rows[n]))
    assert limit[800_000] < 1.2 * limit[100_000] + 2**20
    # The planted fault: a reader without a buffer limit keeps the whole row group.
    plain = pq.ParquetFile(rows[800_000], pre_buffer=False, buffer_size=0)
    assert most_allocated(plain.iter_batches(1000)) > 1.2 * limit[100_000] + 2**20


IMPORTS = """
import sys
from bochner.data.blocks import Blocks
assert "pyarrow" not in sys.modules
for path in sys.argv[1:]:
    list(Blocks.from_files(path, "b"))
assert not {"pandas", "polars", "torch"} & set(sys.modules)
"""


def test_reading_files_imports_no_other_table_library(tmp_path):
    # Conversions of pyarrow to NumPy would import pandas: 0.3 s and 40 MB.
    parquet, text = tmp_path / "x.parquet", tmp_path / "x.csv"
    write(parquet, a=[1, 2], s=["x", "y"], f=[True, False], b=[1.0, 2.0])
    text.write_text("a,s,f,b\n1,x,true,1.0\n2,y,false,2.0\n")
    subprocess.run([sys.executable, "-c", IMPORTS, parquet, text], check=True)


# ---- all formats, from disks and URLs

N = 1000
RNG = np.random.default_rng(0)
TABLE = pa.table(
    {"a": RNG.normal(size=N), "s": RNG.choice(["x", "y"], N), "b.c": RNG.normal(size=N).round(3)}
)
WRITE = {
    "csv": pc.write_csv,
    "csv.gz": lambda table, file: file.write(gzip.compress(bytes_of(pc.write_csv, table))),
    "parquet": pq.write_table,
    "feather": lambda table, file: pf.write_feather(table, file, chunksize=300),
    "arrow": lambda table, file: pf.write_feather(table, file, compression="zstd"),
}


def bytes_of(write, table):
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
def test_all_formats_give_the_rows_of_the_table_from_disk_and_url(memory, tmp_path, kind, size):
    url = put(memory, f"/t.{kind}")
    (tmp_path / f"t.{kind}").write_bytes(memory.cat(f"/t.{kind}"))
    expected = rows(Blocks.from_table(TABLE, "b.c", block_rows=size))
    for path in (url, tmp_path / f"t.{kind}"):
        blocks = Blocks.from_files(path, "b.c", block_rows=size)
        assert blocks.feature_names == ("a", "s=x", "s=y")
        for _ in range(2):
            np.testing.assert_array_equal(rows(blocks), expected)
        assert {b.X.shape[0] for b in blocks} <= {size, N % size or size, N}


def test_folders_and_patterns_of_urls_are_read_in_order_of_names(memory):
    for number, name in enumerate(["d/2.parquet", "d/1.csv", "d/e/0.feather", "d/_tmp/9.csv"]):
        put(memory, f"/{name}", TABLE.slice(10 * number, 10))
    X = rows(Blocks.from_files("memory://d", "b.c"))
    expected = rows(Blocks.from_table(TABLE.slice(0, 30), "b.c"))
    np.testing.assert_array_equal(X, expected.reshape(3, 10, -1)[[1, 0, 2]].reshape(30, -1))
    blocks = Blocks.from_files(["memory://d/*.csv", "memory://d/*/*.feather"], "b.c")
    assert rows(blocks).shape[0] == 20
    files = find_files("memory://d")
    assert [str(file)[-5:] for file in files] == ["1.csv", "rquet", "ather"]
    np.testing.assert_array_equal(rows(Blocks.from_files(files, "b.c")), X)


def test_a_file_of_a_url_that_changes_or_is_removed_raises(memory, monkeypatch):
    blocks = Blocks.from_files(put(memory, "/t.csv"), "b.c")
    put(memory, "/t.csv", TABLE.slice(1))
    paths = []  # a cache of many users keeps other paths
    monkeypatch.setattr(type(memory), "invalidate_cache", lambda _, path=None: paths.append(path))
    with pytest.raises(DataFileError, match=r"'memory://.*' must stay as it is until all passes"):
        list(blocks)
    memory.rm("/t.csv")
    with pytest.raises(DataFileError, match=r"'memory:.*' cannot be read: .*t\.csv"):
        list(blocks)
    assert {*paths} == {"/t.csv"}
    monkeypatch.setattr(type(memory), "info", Refuses.info)
    with pytest.raises(DataFileError, match=r"'memory://.*' cannot be read: unable to locate"):
        list(blocks)


class NoKeys(Exception):
    """An error that is no OSError, like NoCredentialsError of botocore."""


class Refuses(fsspec.AbstractFileSystem):
    """A file system with its own type of errors."""

    protocol = "refuses"

    def info(self, *_, **__):
        raise NoKeys("Unable to locate credentials")

    ls = info


def test_invalid_urls_raise_with_their_message(memory):
    fsspec.register_implementation("refuses", Refuses, clobber=True)
    for url, match in (
        ("memory://no.csv", "there is no file or folder 'memory://no.csv'. Check"),
        ("memory://q*.csv", "the glob 'memory://.*' must match .* got none. Check the URL.$"),
        ("nowhere://x.csv", "a protocol of fsspec, .*; Protocol not known"),
        ("refuses://b/t.csv", "^Blocks: 'r.*' cannot be read: unable to locate credentials. Check"),
        ("refuses://b/*.csv", "^Blocks: 'r.*' cannot be read: unable to locate credentials. Check"),
    ):
        with pytest.raises(BochnerError, match=match):
            Blocks.from_files(url)


def test_missing_packages_of_urls_are_named(memory, monkeypatch):
    def missing(_):
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr(fsspec.core, "url_to_fs", missing)
    with pytest.raises(MissingDependency, match=r"'s3://b/t.csv' .*: Install s3fs to access S3"):
        Blocks.from_files("s3://b/t.csv")
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(MissingDependency, match=r"'s3://b/t.csv' needs the package fsspec, which"):
        Blocks.from_files("s3://b/t.csv")


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def test_tables_on_the_web_are_read(tmp_path):
    pytest.importorskip("aiohttp")
    pc.write_csv(TABLE, tmp_path / "t.csv")
    pf.write_feather(TABLE, tmp_path / "t.feather")
    handler = partial(Quiet, directory=tmp_path)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:  # it sends complete files only
        Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        blocks = Blocks.from_files(f"{url}/t.csv", "b.c")
        np.testing.assert_array_equal(rows(blocks), rows(Blocks.from_table(TABLE, "b.c")))
        with pytest.raises(DataFileError, match=r"must be on a server that sends parts .*use CSV"):
            Blocks.from_files(f"{url}/t.feather")
        with pytest.raises(DataFileError, match=r"there is no file or folder 'http.*/no.csv'"):
            Blocks.from_files(f"{url}/no.csv")
        server.shutdown()


# ---- damaged and invalid files


def damaged():
    """Yield name, content and error message of damaged files."""
    sink = pa.BufferOutputStream()
    values = np.random.default_rng(0).normal(size=50_000)
    pq.write_table(pa.table({"a": values, "b": values}), sink, write_page_checksum=True)
    data = sink.getvalue().to_pybytes()
    middle = data[:200] + np.random.default_rng(1).bytes(19_800) + data[20_000:]
    text = b"hello,world\n1,2\n" * 10
    for content in (data[: len(data) // 2], data[:6], data[:-1], text, middle):
        yield "x.parquet", content, "'.*x.parquet' must be a complete Parquet file; it is"
    yield "x.parquet", b"", "x.parquet' is empty; it must hold a table"
    data = bytes_of(WRITE["feather"], TABLE)
    for cut in (0.5, 0.99):
        content = data[: int(cut * len(data))]
        yield "x.feather", content, "x.feather' must be a complete Feather file; it is incomplete"
    table = pa.table({"s": ["red", "green", "blue"] * 100})
    data = bytes_of(lambda t, f: pf.write_feather(t, f, compression="uncompressed"), table)
    at = data.index(table["s"].chunk(0).buffers()[1].to_pybytes()[4:400])  # offsets of its texts
    content = data[:at] + (1 << 30).to_bytes(4, "little") + data[at + 4 :]
    yield "x.feather", content, "must be a complete Feather file"
    yield "x.csv.gz", b"a,b\n1,2\n", "cannot be read as a table of text: .*incorrect head"
    packed = gzip.compress(b"a,b\n" + b"1.23,4.1\n" * 300_000)
    yield "x.csv.gz", packed[: len(packed) // 2], "cannot be read as a table of text: .*Truncated"


@pytest.mark.parametrize(("name", "content", "message"), [*damaged()], ids=range(11))
def test_damaged_files_raise_with_their_message(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataFileError, match=message):
        list(Blocks.from_files(tmp_path / name))


LONG = "1,2\n" * 400_000  # more than the 1 MiB that determines types
BAD = [
    ("", r"'.*x.csv' is empty; it must hold a table"),
    ("  \n\n", r"'.*x.csv' is empty"),
    ("a,b\n", r"at least one row; '.*x.csv' has none"),
    (
        "a,b\n1,2\n3\n",
        r"all lines of '.*x.csv' must have as many .*separator ',' .*Row #3: Expected 2 columns, got 1: 3",
    ),
    ("a,b\n1,2\n3,4,5\n", "Row #3: Expected 2 columns, got 3: 3,4,5"),
    ("a,b\n" + LONG + "3,4,5\n", "Row #400002: Expected 2 columns, got 3"),
    (
        "a,b\n" + LONG + "z,4\n",
        r"column 'a' of '.*x.csv' must have .*Row #400002.* to double.*'z'.*dtypes={'a': 'category'}",
    ),
    (
        "b;a\n" + LONG.replace(",", ";") + '3;"4,5"\n',
        r"column 'a' .*Row #400002: .*'4,5'.* write decimals with a point",
    ),
    (
        "a,b\n" + "true,2\n" * 300_000 + "maybe,4\n",
        r"column 'a' .*Row #300002: CSV conversion error to bool: invalid value 'maybe'",
    ),
    ("a,b\n" + LONG + ",4\n", r"'a' must hold finite .* missing value .* in line 400002 of '.*x.c"),
    ("a,b\n1,2\nnan,3\n", r"column 'a' .* missing value .* in line 3 of"),
    ("a,b\n1,2\n3,-inf\n", r"column 'b' .* got -inf in line 3 of"),
    ("a,b\nx,2\n,3\n", r"'a' must have no missing .* in line 3 of"),
    ("a,b\n,2\n,3\n", r"columns must hold numbers, .*; got 'a' \(all values missing\)"),
    (
        "1,2.5,-3,4\n3,4,5,6\n",
        r"first line of '.*x.csv' must hold the names .*; got numbers only \(1, 2.5, -3, ...\)",
    ),
    ("a,a\n1,2\n", r"must have different names; got 'a' more than"),
    (",a\n1,2\n", r"column 0 .* is called ''.*to_csv\(index=False\)"),
    (pd.DataFrame({"a": [1.0]}).to_csv(), "often a row number saved by mistake"),
    ("a,b\n2020-01-01,2\n", r"columns must .* got 'a' \(dates or times\)"),
    ("a,b\n2020-01-01 10:00,2\n", r"columns must .* got 'a' \(dates or times\)"),
    ("a,b\né,1\n".encode("latin1"), r"'.*' must be text in UTF-8"),
    (b"a,b\n" + b"e,1\n" * 300_000 + b"\xe9,1\n", "must be text in UTF-8"),
    ("a,b\n1,2\n".encode("utf16"), r"must be text in UTF-8"),
    (
        'a,b\n1,2\n"' + "x" * 3_000_000,
        r"every row .* must be shorter than 1,048,576 bytes.*a quote that is not closed",
    ),
    (
        "a,b\n" + "".join(f"s{i},1\n" for i in range(1001)),
        r"at most 1000 different texts, .*; got 'a' \(more texts, e.g. 's0', 's1', 's10'\)",
    ),
]


@pytest.fixture
def text(tmp_path):
    """Return a function that writes a text file and returns its blocks."""

    def blocks(content, name="x.csv", **arguments):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return Blocks.from_files(path, **arguments)

    return blocks


OTHER_SCHEMA = [
    ("c,a\n5,1\n", r"column 'c' must hold categories seen .* \('x', 'y'\); got '5', first in"),
    ("c,a\nx,foo\n", "'a' of '.*' must have .*Row #2: .* to double: invalid value 'foo'"),
    ("c,a\nx,1\ny,?\n", r"'a' of '.*' must have .*Row #3: .* invalid value '\?'"),
    ("c,a\nx,\n", "column 'a' must hold finite numbers; got a missing value .* line 2"),
    ("c,A\nx,1\n", r"must have a column 'a' \(did you mean 'A'\?\); its columns are 'c', 'A'"),
]
CATEGORIES = Blocks.from_table(pa.table({"a": [1.0, 2.0], "c": ["x", "y"]})).schema
NUMBERS = Blocks.from_table(pa.table({"a": [1.0], "b": [2.0]})).schema
ARGUMENTS = [
    ({"dtypes": {"a": "float"}}, r"dtypes\['a'\] must be one of 'number', 'cat.*; got 'float'"),
    ({"dtypes": {"c": "number"}}, "must name columns of '.*x.csv'; got 'c', which it does not"),
    ({"dtypes": ["a"]}, "must be a mapping from names of columns to .*; got list"),
    ({"dtypes": {"a": "number"}, "schema": NUMBERS}, "dtypes must not be passed with schema"),
    ({"columns": []}, "must have at least one feature column besides target and weight; got none"),
    ({"columns": "ab"}, "must have a column 'ab'"),
    ({"separator": ";;"}, "separator must be one character; got ';;'"),
    ({"target": "c", "separator": ";"}, r"its columns are 'a,b' \(read with separator ';'"),
    ({"target": "c"}, r"must have a target column 'c'; its columns are 'a', 'b'"),
]
INVALID = [
    *((content, {"schema": CATEGORIES}, words) for content, words in OTHER_SCHEMA),
    *(("a,b\n1,2\n", arguments, words) for arguments, words in ARGUMENTS),
    *((content, {}, words) for content, words in BAD),
]


@pytest.mark.main_cases(22)
@pytest.mark.parametrize(("content", "arguments", "words"), INVALID, ids=range(len(INVALID)))
def test_invalid_text_files_and_arguments_raise_with_one_sentence(text, content, arguments, words):
    with pytest.raises(BochnerError, match=words) as record:
        list(text(content, **arguments))
    assert "\n" not in str(record.value)


# ---- text files


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_the_separator_is_detected(text, separator, end):
    lines = [["a", "b", "c"], ["1", "2.5", "x"], ["-3", "1e3", "y"]]
    blocks = text(end.join(separator.join(line) for line in lines) + end)
    assert blocks.feature_names == ("a", "b", "c=x", "c=y")
    np.testing.assert_array_equal(numbers(blocks), [[1, 2.5, 1, 0], [-3, 1000, 0, 1]])


def test_quotes_and_incomplete_lines_do_not_change_the_separator(text):
    assert sniff('a;b\n"1,5,6,7";2\n"1,5";3\n') == ";"
    assert sniff('name,note\nx,"a;b;c;d"\ny,"e"\n') == ","
    assert sniff("a\n1\n2\n") == ","
    assert sniff("a,b\n1,2\n3\n") == ","
    assert sniff("a;b;c\n1;2;3\n4;5", is_complete=False) == ";"
    assert text("a:b\n1:2\n", separator=":").feature_names == ("a", "b")


def test_integers_may_become_floats_later_and_booleans_are_numbers(text):
    X = numbers(text("a,b\n" + LONG + "3.5,-4e2\n"))
    assert X.shape == (400_001, 2)
    np.testing.assert_array_equal(X[-2:], [[1, 2], [3.5, -400]])
    np.testing.assert_array_equal(numbers(text("a,b\ntrue,1\nFalse,2\n"))[:, 0], [1, 0])


MANY = {"names": ",".join(f"c{i}" for i in range(8_000)), "row": ",".join(["0.123456789"] * 8_000)}


@pytest.mark.parametrize(
    ("content", "names"),
    [
        ('\ufeffa,b\n"x\ny",1\n\n"z,""q""",2\n', ("a=x\ny", 'a=z,"q"', "b")),
        ('a,b\nSE,1\n"NA",2\n', ("a=NA", "a=SE", "b")),
        ("a,b\n" + "1,0\n2,0\nA1,0\nB,0\n" * 10, ("a=1", "a=2", "a=A1", "a=B", "b")),
        ("a\n" + "".join(f"s{i:03}\n" for i in range(1000)), tuple(f"a=s{i:03}" for i in range(1000))),
        ("{names}\n{row}\n{row}\n".format(**MANY), tuple(MANY["names"].split(","))),
    ],
    ids=["quotes", "NA", "codes", "thousand", "wide"],
)  # fmt: skip
def test_text_cells_are_parsed(text, content, names):
    blocks = text(content)
    assert blocks.feature_names == names
    assert numbers(blocks).shape[1] == len(names)


def test_numeric_texts_are_categories_if_the_schema_has_them(text):
    blocks = text("code,b\n07,2\n07,3\n", schema=text("code,b\n1x,2\n07,2\n").schema)
    np.testing.assert_array_equal(numbers(blocks), [[1, 0, 2], [1, 0, 3]])


def test_decimals_targets_and_weights_may_have_commas(text):
    lines = "a;y;z;w\n1,5;0,25;3;1\n-3,25;-7;4,5;0,5\n7;2,5;5;2\n"
    (block,) = text(lines, target="y", weight="w", columns=["a"])
    np.testing.assert_array_equal(block.y, [0.25, -7, 2.5])
    np.testing.assert_array_equal(block.w, [1, 0.5, 2])
    (block,) = text(lines, target=["y", "z"], weight="w")
    np.testing.assert_array_equal(block.y, [[0.25, 3], [-7, 4.5], [2.5, 5]])
    np.testing.assert_array_equal(block.X[:, 0], [1.5, -3.25, 7])


def test_a_target_with_decimal_commas_equals_one_with_points(text):
    x = np.arange(100) / 8
    points = "x;y\n" + "".join(f"{a};{b}\n" for a, b in zip(x, np.sin(x), strict=True))
    commas, models = points.replace(".", ","), []
    for content in (points, commas):
        model = KernelRidge(random_state=0).fit_blocks(text(content, target="y"))
        models.append((model.kernel_, model.predict(text(content, target="y")).tolist()))
    assert models[0] == models[1]
    bad = text(commas.replace("\n0,125;", "\n0,125;z"), target="y")
    assert bad.schema.classes  # one cell is no number, so these are labels
    with pytest.raises(InvalidInput, match="target 'y' must hold numbers; got text"):
        KernelRidge().fit_blocks(bad)


VALUES = [repr(v) for v in np.random.default_rng(3).normal(size=2000).round(2).tolist()]


@pytest.mark.parametrize("at", [0, 17, 1999])
@pytest.mark.parametrize("cell", ["?", "1_000", '"1,000.5"', "[m/s]", "0x1F", "1 2"])
def test_one_invalid_cell_makes_a_column_text_and_is_named(text, cell, at):
    lines = [f"{cell if row == at else value},0\n" for row, value in enumerate(VALUES)]
    content, plain = "a,b\n" + "".join(lines), re.escape(repr(cell.strip('"')))
    match = rf"column 'a' is text, since it has {plain} besides \d+ different numbers\. Correct or"
    with pytest.warns(DataWarning, match=match):
        text(content)
    with pytest.raises(InvalidInput, match=rf"Row #{at + 2}: CSV conversion error"):
        numbers(text(content, dtypes={"a": "number"}))


def test_the_file_of_an_invalid_cell_is_named(tmp_path, memory):
    for name, cell in (("1.csv", "5"), ("2.csv", "none"), ("3.csv", "6")):
        (tmp_path / name).write_text(f"a\n1\n2\n3\n4\n{cell}\n7\n8\n9\n0\n1\n")
    match = r"'a' holds text in '.*2.csv' and numbers in '.*1.csv'\. Make them alike"
    with pytest.raises(InvalidInput, match=match):
        Blocks.from_files(tmp_path)
    blocks = Blocks.from_files(tmp_path, dtypes={"a": "category"})
    assert "a=none" in blocks.feature_names
    assert numbers(blocks).sum() == 30
    with pytest.raises(InvalidInput, match=r"'a' of .*2.csv. must have the type of its first rows"):
        numbers(Blocks.from_files(tmp_path, dtypes={"a": "number"}))
    with memory.open("/t.csv", "wb") as file:
        file.write(b"a,b\n" + b"1,2\n" * 50 + b"1,?\n")
    blocks = Blocks.from_files("memory://t.csv", dtypes={"b": "number"})
    with pytest.raises(InvalidInput, match=r"column 'b' of 'memory://.*Row #52: .*'\?'"):
        list(blocks)


@pytest.mark.parametrize("rows", [1, 7, 4096])
def test_given_types_are_independent_of_the_block_size(text, rows):
    content = "a,b\n1,x\n1,2\n2,3\n"
    codes = text(content, dtypes={"a": "category"}, block_rows=rows)
    assert codes.feature_names == ("a=1", "a=2", "b=2", "b=3", "b=x")
    np.testing.assert_array_equal(numbers(codes)[:, :2], [[1, 0], [1, 0], [0, 1]])
    with pytest.raises(InvalidInput, match=r"column 'b' .*Row #2: .*invalid value 'x'"):
        numbers(text(content, dtypes={"b": "number"}, block_rows=rows))
    labels = text("a,y\n1,0\n2,1\n3,7\n", target="y", dtypes={"y": "category"}, block_rows=rows)
    assert labels.schema.classes == ("0", "1", "7")


# ---- complete writes


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
def test_written_tables_are_read_with_the_same_bits(tmp_path, chunks, suffix):
    path = tmp_path / f"out{suffix}"
    assert write_table(path, iter(chunks)) == 54
    read = as_text(path) if suffix == ".csv" else pq.read_table(path).to_pydict()
    for name in chunks[0]:
        expected = np.concatenate([chunk[name] for chunk in chunks])
        np.testing.assert_array_equal(np.array(read[name]).astype(expected.dtype), expected)
    y = np.concatenate([b.y for b in Blocks.from_files(path, "y", columns=["f", "i"])])
    np.testing.assert_array_equal(y, np.concatenate([c["y"] for c in chunks]))


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_chunks_are_written_one_by_one(tmp_path, suffix):
    contents = []

    def chunks():
        for number in range(4):
            contents.append(sorted(tmp_path.iterdir()))
            yield {"a": np.full(10, number)}

    write_table(tmp_path / f"x{suffix}", chunks())
    assert all(len(files) == 1 and files[0].suffix == ".part" for files in contents[1:])
    assert [path.name for path in tmp_path.iterdir()] == [f"x{suffix}"]


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_interrupted_write_leaves_the_old_file(tmp_path, suffix, error):
    path = tmp_path / f"x{suffix}"
    path.write_text("what was there before")

    def chunks():
        yield {"a": np.arange(100_000)}
        raise error

    with pytest.raises(error):
        write_table(path, chunks())
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    assert path.read_text() == "what was there before"


def test_two_writers_do_not_disturb_each_other(tmp_path):
    path = tmp_path / "x.csv"
    with open_atomic(path) as file:
        write_table(path, {"a": [1]})
        assert len(list(tmp_path.iterdir())) == 2
        file.write(b"all")
    assert path.read_text() == "all"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("n", [1, 100_000])
def test_a_full_disk_raises(tmp_path, n):
    for name in ("x.csv", "x.parquet"):
        (tmp_path / name).symlink_to("/dev/full")
        with pytest.raises(DataFileError, match=r"'/dev/full' cannot be written: the disk is full"):
            write_table(tmp_path / name, {"a": np.arange(n)})
        assert (tmp_path / name).is_symlink()


def test_missing_and_read_only_folders_raise_with_their_name(tmp_path, monkeypatch):
    (tmp_path / "dir.csv").mkdir()
    (tmp_path / "old.csv").write_text("old")
    for name, reason in (("no/x.csv", "no such file or dir"), ("dir.csv", "it is a folder")):
        with pytest.raises(DataFileError, match=f"'.*{name}' cannot be written: {reason}"):
            write_table(tmp_path / name, {"a": [1]})
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(DataFileError, match=r"old.csv' cannot be written: permission denied. Che"):
        write_table(tmp_path / "old.csv", {"a": [1]})
    assert (tmp_path / "old.csv").read_text() == "old"


def test_errors_about_other_files_pass_unchanged(tmp_path):
    with pytest.raises(FileNotFoundError), open_atomic(tmp_path / "x"):
        (tmp_path / "another").read_bytes()
    with pytest.raises(DataFileError, match="about the input"), open_atomic(tmp_path / "x"):
        raise DataFileError("about the input")
    assert list(tmp_path.iterdir()) == []


def test_writing_without_pyarrow_raises(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for name in ("x.csv", "x.parquet"):
        with pytest.raises(MissingDependency, match=f"Writing '.*{name}' needs .* pyarrow"):
            write_table(tmp_path / name, {"a": [1]})


def test_atomic_writes_text_and_keeps_permissions_links_and_devices(tmp_path):
    path = tmp_path / "page.html"
    with open_atomic(path, "w") as file:
        file.write("é\r\n")
    assert path.read_bytes() == "é\r\n".encode()
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask
    path.chmod(0o640)
    (tmp_path / "link").symlink_to(path)
    with open_atomic(tmp_path / "link") as file:
        file.write(b"new")
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert (tmp_path / "link").is_symlink()
    with open_atomic(os.devnull) as file:
        file.write(b"gone")
    assert Path(os.devnull).is_char_device()
