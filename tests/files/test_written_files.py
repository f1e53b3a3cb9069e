"""Written files are there as a whole or not at all."""

import csv
import errno
import os
import stat
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from bochner import Blocks
from bochner.data.writers import atomic, write_table
from bochner.errors import DataFileError, InvalidInput, MissingDependency


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
