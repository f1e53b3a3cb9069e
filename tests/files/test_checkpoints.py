"""A killed fit continues from its checkpoint and gives the bits of an undisturbed fit."""

import errno
import logging
import os
import re
import signal
import subprocess
import sys
import time
from functools import partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.sparse import csr_array

import bochner as bo
from bochner.cli.running import run
from bochner.errors import BochnerWarning, DataFileError, InvalidInput, InvalidType
from bochner.kernels import Gaussian

rng = np.random.default_rng(0)
N = 600
X = rng.standard_normal((N, 2))
Y = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(N)
OPTIONS = dict(kernel=Gaussian(1.0), method="orthogonal", n_features=8, random_state=0)


class Killed(BaseException):
    """Raised in place of a signal."""


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    """Make blocks of 16 rows and parts of 64, so that sums have several levels; record often."""
    monkeypatch.setattr("bochner.sums.passes.PART_ROWS", 64)
    monkeypatch.setattr("bochner.models._rows.block_rows", lambda _: 16)
    monkeypatch.setattr("bochner.selection.choices.block_rows", lambda _: 16)
    monkeypatch.setattr("bochner.engines.local.SHARE", np.inf)
    # moments are summed: few rows in float64 would be kept instead
    monkeypatch.setattr("bochner.models.representations.features.cached_rows", lambda _: 0)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "run.ckpt"


@pytest.fixture
def where(folder):
    """Return an engine that records as often as possible."""
    return bo.engines.Local(folder, interval=1e-9)


def ridge(**options):
    return bo.KernelRidge(**OPTIONS | options)


def blocks(X=X, y=Y):
    return bo.Blocks.from_arrays(X, y, block_rows=16)


def dying(rows, at):
    """Return blocks whose reader raises at the block of this number."""
    calls = []

    def die(_):
        calls.append(1)
        if len(calls) == at:
            raise Killed

    return rows.watch(die)


LEARNERS = {
    "ridge": (ridge, lambda m: m.coef_),
    "no penalty": (lambda: ridge(alpha=0.0), lambda m: m.coef_),
    "chosen": (lambda: ridge(kernel="gaussian"), lambda m: m.coef_),
    "pca": (lambda: bo.KernelPCA(2, **OPTIONS), lambda m: m.fit_.eigenvectors),
    "svr": (lambda: bo.SVR(C=1.0, tol=1e-3, **OPTIONS), lambda m: m.solution_.coef),
    "clusters": (lambda: bo.KernelKMeans(3, **OPTIONS), lambda m: m.fit_.clusters.centres),
}
SMALL = blocks()


@pytest.mark.parametrize("name", LEARNERS)
@pytest.mark.parametrize("at", [30, 70])
def test_a_killed_fit_continues_with_the_same_bits(folder, name, at):
    make, bits = LEARNERS[name]
    where = bo.engines.Local(folder, interval=0.01, cache_bytes=0)
    reference = make().fit_blocks(SMALL, where=bo.engines.Local(cache_bytes=0))
    model = make()
    try:
        model.fit_blocks(dying(SMALL, at), where=where)
    except Killed:
        assert not hasattr(model, "fit_")
        assert folder.is_dir()
        model.fit_blocks(SMALL, where=where)
    np.testing.assert_array_equal(bits(model), bits(reference))
    assert not folder.exists()


@pytest.mark.parametrize("at", [5, 30])
def test_a_fit_killed_in_the_pass_over_cells_continues_with_the_same_bits(folder, at):
    """This pass has 38 blocks."""
    names = np.char.add("N", (np.arange(N) % 60).astype(str))
    table = pd.DataFrame({"a": X[:, 0], "name": names, "y": Y + np.arange(N) % 60})
    table.loc[::7, "a"] = np.nan
    rows = bo.Blocks.from_table(table, target="y", block_rows=16)
    where = bo.engines.Local(folder, interval=1e-9, cache_bytes=0)
    reference = ridge().fit_blocks(rows, where=bo.engines.Local(cache_bytes=0))
    model = ridge()
    with pytest.raises(Killed):
        model.fit_blocks(dying(rows, at), where=where)
    model.fit_blocks(rows, where=where)
    assert model.schema_ == reference.schema_
    np.testing.assert_array_equal(model.coef_, reference.coef_)


def test_summed_rows_are_not_read_again(where):
    model = ridge(alpha=0.1)
    with pytest.raises(Killed):
        model.fit_blocks(dying(blocks(), 4), where=where)
    pieces, read = [], []
    rows = blocks()
    original = type(rows.source).part

    def part(source, start, stop):
        pieces.append((start, stop))
        return original(source, start, stop)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(rows.source), "part", part)
        model.fit_blocks(rows.watch(read.append), where=where)
    assert len(pieces) == 1
    assert pieces[0][0] > 0
    assert sum(read) % N == 0


def test_fits_of_streams_continue(where):
    """Earlier rows are read again, as they come in order, but not summed."""

    def rows():
        for start in range(0, N, 50):
            yield X[start : start + 50], Y[start : start + 50]

    stream = lambda: bo.Blocks.from_iterable(rows, block_rows=16)
    reference = ridge().fit_blocks(stream())
    model = ridge()
    with pytest.raises(Killed):
        model.fit_blocks(dying(stream(), 3), where=where)
    model.fit_blocks(stream(), where=where)
    np.testing.assert_array_equal(model.coef_, reference.coef_)


SCRIPT = """
import sys
import numpy as np
import bochner as bo
from bochner.kernels import Gaussian

rng = np.random.default_rng(0)
X = rng.standard_normal((400_000, 2))
y = np.sin(X[:, 0])
if __name__ == "__main__":
    blocks = bo.Blocks.from_arrays(X, y)
    print("started", flush=True)
    model = bo.KernelRidge(Gaussian(1.0), method="orthogonal", n_features=32, random_state=0)
    model.fit_blocks(blocks, where=bo.engines.Local(sys.argv[1], interval=0.02))
    np.save(sys.argv[2], model.coef_)
"""


@pytest.mark.slow
def test_a_killed_process_continues_with_the_same_bits(tmp_path):
    """Killed with SIGKILL twice while it reads, at random moments."""
    script = tmp_path / "fit.py"
    script.write_text(SCRIPT)

    def start(name):
        command = [sys.executable, script, tmp_path / f"{name}.ckpt", tmp_path / f"{name}.npy"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout.readline() == "started\n"
        return process

    with start("whole") as process:
        assert process.wait() == 0
    killed = 0
    for seconds in (0.05, 0.1):
        with start("killed") as process:
            time.sleep(seconds)
            process.send_signal(signal.SIGKILL)
            killed += process.wait() == -signal.SIGKILL
    with start("killed") as process:
        assert process.wait() == 0
    assert killed
    reference, repeat = (np.load(tmp_path / f"{name}.npy") for name in ("whole", "killed"))
    np.testing.assert_array_equal(repeat, reference)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_waits_for_the_end_of_a_block_and_keeps_a_checkpoint(folder, caplog):
    """Within a block the sum would be incomplete; the next fit continues after the block."""
    where = bo.engines.Local(folder, interval=1e9)
    counts, handler = [], signal.getsignal(signal.SIGINT)  # of Python or Spark

    def interrupted(rows):
        counts.append(rows)
        if sum(counts) == 320:
            os.kill(os.getpid(), signal.SIGINT)

    model = ridge()
    with pytest.raises(KeyboardInterrupt):
        model.fit_blocks(blocks().watch(interrupted), where=where)
    assert signal.getsignal(signal.SIGINT) is handler
    with caplog.at_level(logging.INFO, logger="bochner"):
        model.fit_blocks(blocks(), where=where)
    assert re.search(r"Local\(.*\): pass \d from row 320 on", caplog.text)
    assert re.search(r"pass \d, 600 rows, .* s", caplog.text)
    assert "KernelRidge fitted in" in caplog.text
    np.testing.assert_array_equal(model.coef_, ridge().fit_blocks(blocks()).coef_)


@pytest.mark.usefixtures("ctrl_c")
def test_a_second_ctrl_c_stops_at_once(folder):
    def interrupted(rows):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    where = bo.engines.Local(folder, interval=1e9)
    with pytest.raises(KeyboardInterrupt):
        ridge().fit_blocks(bo.Blocks.from_arrays(X, Y).watch(interrupted), where=where)
    assert not list(folder.glob("*.npz"))


# ---- a full disk


def test_a_full_disk_ends_no_fit_and_keeps_earlier_records(where, monkeypatch):
    """The disk is full after five records; the next fit continues from the fifth."""
    files, sync = [], os.fsync

    def full(file):
        files.append(file)
        if len(files) > 5:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(file)

    monkeypatch.setattr(os, "fsync", full)
    reference = ridge(alpha=0.1).fit_blocks(blocks())
    with pytest.warns(BochnerWarning, match=r"the disk is full.*The fit continues, and writes"):
        model = ridge(alpha=0.1).fit_blocks(blocks(), where=where)
    np.testing.assert_array_equal(model.coef_, reference.coef_)
    files.clear()
    with pytest.warns(BochnerWarning, match="the disk is full"), pytest.raises(Killed):
        model.fit_blocks(dying(blocks(), 20), where=where)
    monkeypatch.setattr(os, "fsync", sync)
    read = []
    repeat = ridge(alpha=0.1).fit_blocks(blocks().watch(read.append), where=where)
    np.testing.assert_array_equal(repeat.coef_, reference.coef_)
    assert read[0] == 16 * 4  # rows of four records, after the record of the fit itself


# ---- errors


@pytest.fixture
def interrupted_fit(where):
    """Return an engine with the checkpoint of a killed fit."""
    with pytest.raises(Killed):
        ridge(alpha=0.1).fit_blocks(dying(blocks(), 5), where=where)
    return where


CHANGES = {
    "parameters": (lambda: ridge(alpha=0.2), blocks),
    "rows": (lambda: ridge(alpha=0.1), lambda: blocks(X + 1e-9)),
    "targets": (lambda: ridge(alpha=0.1), lambda: blocks(y=-Y)),
    "fewer rows": (lambda: ridge(alpha=0.1), lambda: blocks(X[:-1], Y[:-1])),
    "learner": (lambda: bo.KernelPCA(2, **OPTIONS), blocks),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_checkpoint_of_another_fit_raises(interrupted_fit, name):
    make, rows = CHANGES[name]
    with pytest.raises(DataFileError, match=r"must be of this fit.*of another fit.*Delete it"):
        make().fit_blocks(rows(), where=interrupted_fit)


SOURCES = {
    "arrays": bo.Blocks.from_arrays,
    "sparse rows": lambda X, y: bo.Blocks.from_arrays(csr_array(X), y),
    "stream": lambda X, y: bo.Blocks.from_iterable(lambda: iter([(X, y)])),
    "frame": lambda X, y: bo.Blocks.from_table(pd.DataFrame({"a": X[:, 0], "y": y}), "y"),
    "texts": lambda X, y: bo.Blocks.from_table(pd.DataFrame({"a": X.sum(1).astype(str)})),
}


@pytest.mark.parametrize("name", SOURCES)
def test_rows_with_one_other_cell_have_another_mark(name):
    X = np.arange(6000.0).reshape(3000, 2)
    altered = X.copy()
    altered[1, 0] = 7.0
    marks = [SOURCES[name](rows, X[:, 0]).source.mark() for rows in (X, X.copy(), altered)]
    assert marks[0] == marks[1] != marks[2]


def test_a_rewritten_file_raises(where, tmp_path):
    path, table = tmp_path / "rows.parquet", pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": Y})
    table.to_parquet(path)
    rows = lambda: bo.Blocks.from_files(path, target="y", block_rows=16)
    with pytest.raises(Killed):
        ridge().fit_blocks(dying(rows(), 5), where=where)
    table.to_parquet(path)
    os.utime(path, ns=(1, 1))
    with pytest.raises(DataFileError, match="data that have changed"):
        ridge().fit_blocks(rows(), where=where)


def damage(folder, _):
    (record,) = folder.glob("*.npz")
    record.write_bytes(record.read_bytes()[:-100])


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (
            lambda _, patch: patch.setattr("bochner.engines.local.__version__", "0.0.1"),
            "by another version of bochner",
        ),
        (
            lambda _, patch: patch.setattr(
                "bochner.engines.local._Digest.hash", lambda *_: "other"
            ),
            r"of other sums \(pass 1 of the fit\)",
        ),
        (damage, r"it is damaged \(pass-.*begin again"),
    ],
    ids=["version", "sum", "damaged"],
)
def test_other_or_damaged_records_raise(interrupted_fit, folder, monkeypatch, change, match):
    change(folder, monkeypatch)
    with pytest.raises(DataFileError, match=match):
        ridge(alpha=0.1).fit_blocks(blocks(), where=interrupted_fit)


def test_folders_of_other_files_raise_and_stay(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    for place, match in (
        ("", "a folder of other files"),
        ("mine.txt", "mine.txt' must be a folder.*file exists"),
        ("mine.txt/run.ckpt", "cannot be made"),
    ):
        with pytest.raises(DataFileError, match=match):
            ridge().fit_blocks(blocks(), where=bo.engines.Local(tmp_path / place))
        assert (tmp_path / "mine.txt").read_text() == "mine"


def test_unfinished_files_of_a_killed_process_are_ignored(folder, where):
    folder.mkdir()
    (folder / ".fit.json.host-1234abcd.part").write_text("{")
    ridge(alpha=0.1).fit_blocks(blocks(), where=where)
    assert not folder.exists()


TENSORS = bo.Blocks.from_arrays(torch.asarray(X), torch.asarray(Y), block_rows=16)
EXHAUSTED = bo.Blocks.from_iterable(partial(next, iter(4 * [[(X, Y)]]), ()))
SEED = "must be the same each time it is made; got random_state"


@pytest.mark.parametrize(
    ("changes", "rows", "match"),
    [
        ({"random_state": None}, SMALL, SEED),
        ({"random_state": np.random.default_rng(0)}, SMALL, SEED),
        ({"random_state": np.random.RandomState(0)}, SMALL, SEED),
        ({}, TENSORS, "a checkpoint holds sums of NumPy arrays"),
        ({}, EXHAUSTED, "must have at least one row; pieces of .* has none"),
    ],
    ids=["none", "generator", "state", "torch", "exhausted"],
)
def test_fits_that_cannot_be_recorded_raise(where, changes, rows, match):
    with pytest.raises((InvalidInput, InvalidType), match=match):
        ridge(**changes).fit_blocks(rows, where=where)


# ---- the command line


def stopped_at_block(number):
    """Return a walk over blocks that Ctrl-C stops at this block, counted over all passes."""
    walk, calls = bo.Blocks.walk, []

    def die(self):
        for block in walk(self):
            calls.append(1)
            if len(calls) == number:
                raise KeyboardInterrupt
            yield block

    return die


@pytest.fixture
def fit(tmp_path, monkeypatch, capsys):
    """Return a function that fits a table by the command line and returns its stderr."""
    pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": Y}).to_parquet(tmp_path / "rows.parquet")
    monkeypatch.chdir(tmp_path)
    line = "fit rows.parquet --target y --kernel gaussian --features 8 --lengthscale 1 --out "

    def fitted(options, code=0, stop=False):
        with monkeypatch.context() as patch:
            if stop:
                patch.setattr(bo.Blocks, "walk", stopped_at_block(20))
                clock = SimpleNamespace(monotonic=count(0, 100).__next__)  # each block takes long
                patch.setattr("bochner.engines.local.time", clock)
            assert run((line + options).split()) == code
        return " ".join(capsys.readouterr().err.split())

    return fitted


def test_the_command_continues_from_its_checkpoint(fit):
    fit("whole --quiet")
    message = fit("again --quiet --checkpoint run.ckpt", 130, stop=True)
    assert "Stopped; the same command resumes the fit in 'run.ckpt'." in message
    assert "Resuming the fit in 'run.ckpt'" in fit("again --checkpoint run.ckpt")
    np.testing.assert_array_equal(bo.load("again").coef_, bo.load("whole").coef_)
    assert not Path("run.ckpt").exists()
