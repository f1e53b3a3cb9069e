"""Feather files, and files of every format behind URLs: what holds of files on disks."""

import gzip
import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.feather as pf
import pyarrow.parquet as pq
import pytest
from pyarrow import ipc

from bochner import Blocks, KernelRidge
from bochner.data.files import find_files
from bochner.errors import DataFileError, InvalidInput, MissingDependency

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
