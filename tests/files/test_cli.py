"""The command line: files, output, errors and exit codes."""

import io
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import cache
from itertools import count
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy.stats import norm

import bochner as bo
from bochner._core.progress import Bar
from bochner.cli import main
from bochner.cli.arguments import CRITERIA, KERNELS, LEARNERS, METHODS
from bochner.cli.commands import bochner
from bochner.cli.running import run
from bochner.data.writers import write_table
from bochner.errors import MissingDependency
from bochner.features.rules import NAMED as NAMED_METHODS
from bochner.kernels import Gaussian, Linear, Matern
from bochner.models._base import FitSummary
from bochner.report.render import number
from bochner.selection.spec import NAMED
from bochner.solvers.ridge.solution import PENALTY_CRITERIA

N = 300
QUICK = "--features 16 --lengthscale 1 --method orthogonal"
FIT = f"fit in/train.parquet --target y --out m {QUICK}"
CHECK = "check in/m.bochner in/one.csv"
PREDICT = "predict in/m.bochner in/one.csv --out p.csv"


def columns(n=N, seed=0):
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(2, n))
    c = rng.choice(["red", "green"], n)
    y = np.sin(a) + 0.5 * b * (c == "red") + 0.05 * rng.normal(size=n)
    return {"a": a, "b": b, "c": c, "y": y}


def run_line(line):
    """Run a command line; return its exit code, stdout and stderr."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = run(shlex.split(line))
    return code, out.getvalue(), err.getvalue()


def cli(line, code=0):
    """Run a command line; return stdout and stderr, each on one line."""
    exit_code, *streams = run_line(line)
    assert exit_code == code, streams[1]
    return tuple(re.sub(r"\s+", " ", text) for text in streams)


def facts(line):
    """Return the JSON output of a command line."""
    return json.loads(cli(line + " --json")[0])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with tables and model files."""
    folder = tmp_path_factory.mktemp("cli")
    pd.DataFrame(columns()).to_parquet(folder / "train.parquet")
    for name, seed in (("one", 1), ("two", 2)):
        part = columns(50, seed)
        write_table(folder / f"{name}.csv", {k: part[k] for k in "cba"})
    columns_ = columns(80, 3)
    write_table(folder / "test.csv", columns_ | {"z": -columns_["y"], "w": np.arange(80) % 4 / 2.0})
    (folder / "missing.csv").write_text("a,c\n1,red\n2,green\n")
    bo.save(Gaussian(), folder / "kernel")
    bo.save(bo.KernelRidge(), folder / "unfitted")
    cli(FIT.replace("in/", f"{folder}/").replace("--out m", f"--out {folder}/m.bochner"))
    rows = pd.DataFrame(columns(90, 4))[["a", "c"]].assign(y=lambda t: np.sin(t.a))
    rows["label"] = np.where(rows.a > 0.3, "high", np.where(rows.a < -0.3, "low", "mid"))
    rows.to_parquet(folder / "rows.parquet")
    return folder


@pytest.fixture(autouse=True)
def in_folder(folder, tmp_path, monkeypatch):
    """Work in a folder that only has a link to the tables."""
    monkeypatch.chdir(tmp_path)
    Path("in").symlink_to(folder)


def output_files():
    return sorted(p.name for p in Path().iterdir() if p.name != "in")


# --- fit -----------------------------------------------------------------------------------------


def test_fit_writes_the_same_model_as_python():
    choices = "--kernel matern32 --lengthscale 0.5 --lengthscale 1,2,3 --features 20"
    cli(f"fit in/train.parquet --target y --out m {choices} --method nystrom --alpha gcv --seed 5")
    kernel = Matern(1.5, (0.5, 1.0, 2.0, 3.0))
    options = {"method": bo.Nystrom(), "n_features": 20, "alpha": "gcv", "random_state": 5}
    blocks = bo.Blocks.from_files("in/train.parquet", target="y")
    model = bo.KernelRidge(kernel, **options).fit_blocks(blocks)
    pairs = zip(bo.load("m").predict_blocks(blocks), model.predict_blocks(blocks), strict=True)
    assert all(fitted.tobytes() == reference.tobytes() for fitted, reference in pairs)


def test_fit_prints_a_summary():
    line = "fit in/train.parquet --target y --out m --features 16 --kernel gaussian"
    out, err = cli(line)
    assert "rows 300 columns 4 (of 3 in the table) names a, b, c=green, c=red targets y" in out
    for words in (
        r"kernel Gaussian\(lengthscale=.* method \w+\(.*relative error",
        r"alpha [\d.e-]+, chosen by leave-one-out error error",
        r"error leave-one-out RMSE 0\.\d+, R² 0\.\d+",
        r"seconds open [\d.e-]+, fit [\d.e-]+, certify .*, write .*",
        r"certificate With \d+ features, 300 rows and alpha",
        r" out m ",
    ):
        assert re.search(words, out)
    assert err == ""
    assert cli(line + " --quiet") == ("", "")


def test_fit_prints_one_json_object():
    result, model = facts(FIT), bo.load("m")
    summary = [result[key] for key in ("rows", "alpha", "kernel", "kernel_chosen", "out")]
    assert summary == [N, model.alpha_, "Gaussian(lengthscale=1.0)", False, "m"]
    assert result["targets"] == ["y"]
    assert result["certificate"]["epsilon"] == model.certificate_.epsilon
    assert result["certificate_words"] == str(model.certificate_)
    assert list(result["seconds"]) == ["open", "fit", "certify", "write"]
    index = np.argmin(np.abs(model.solution_.path.alphas - model.alpha_))
    assert result["rmse"] ** 2 == pytest.approx(model.solution_.path.loo[index])
    # 80 rows: the root mean square of residuals has a relative deviation of about 1/√160.
    other = facts("check m in/test.csv")["errors"]["y"]
    assert other["rmse"] == pytest.approx(result["rmse"], rel=5 / 160**0.5)
    assert other["r_squared"] == pytest.approx(result["r_squared"], abs=0.1)


def test_alpha_is_a_criterion_or_a_number():
    for alpha, words in (
        ("loo", "chosen by leave-one-out error"),
        ("gcv", "chosen by generalised cross-validation"),
        ("evidence", "chosen by marginal likelihood"),
        ("0.25", "0.25, as given"),
    ):
        assert words in cli(f"{FIT} --alpha {alpha}")[0]


def test_names_in_the_help_are_those_of_the_estimators():
    assert tuple(NAMED) == KERNELS
    assert tuple(NAMED_METHODS) == METHODS
    assert CRITERIA == PENALTY_CRITERIA
    assert all(hasattr(bo, name) for name in LEARNERS.values())


def test_weights_columns_separator_and_several_targets():
    rows = "".join(f"{i % 7};{i * i % 11};{i % 3};{i};{1 + i % 2}\n" for i in range(60))
    Path("t.csv").write_text("a;b;y;z;w\n" + rows)
    options = "--target y --target z --weight w --columns b,a --separator ';'"
    assert facts(f"fit t.csv --out m {options} {QUICK}")["targets"] == ["y", "z"]
    model = bo.load("m")
    assert model.schema_.columns == ("b", "a")
    assert model.moments_.weight == sum(1 + i % 2 for i in range(60))


def test_types_of_columns_can_be_given():
    lines = "".join(f"{i % 3},{'?' if i == 5 else i},{i % 7}\n" for i in range(60))
    Path("t.csv").write_text(f"a,b,y\n{lines}")
    line = "fit t.csv --target y --out m --features 8"
    assert "Note: Blocks: column 'b' is text, since it has '?' besides 59" in cli(line)[1]
    _, err = cli(line + " --types b=number", 1)
    assert "Row #7: CSV conversion error to double: invalid value '?'" in err
    result = facts(line + " --types b=category --types a=category")
    assert result["columns"] == 4  # three indicators of a, and target means of b
    assert "pairs like a=number,b=category; got 'b=float'" in cli(line + " --types b=float", 2)[1]


def test_defaults_are_those_of_the_library(monkeypatch):
    monkeypatch.setattr("bochner.report.model_page.picture", lambda title, draw: title)
    out, _ = cli("fit in/rows.parquet --target y --columns a,c --out m")
    assert "full kernel matrix of 90 rows" in out
    assert re.search(r"error leave-one-out RMSE [\d.e-]+, R² [\d.]+", out)
    assert "certificate none: the fit has no features." in out
    blocks = bo.Blocks.from_files("in/rows.parquet", target="y", columns=["a", "c"])
    assert bo.load("m").kernel_ == bo.KernelRidge(random_state=0).fit_blocks(blocks).kernel_
    for line in ("check m in/rows.parquet", "report m in/rows.parquet --out r.html"):
        assert "none: the fit has no features" in cli(line)[0]


def test_warnings_are_notes_of_one_line():
    options = "--precision float32 --alpha 1e-9 --features 128 --quiet"
    code, out, err = run_line(f"{FIT} {options}")
    assert (code, out, err.count("\n")) == (0, "", 1)
    assert err.startswith("Note: float32 products of the features do not resolve alpha")
    Path("blue.csv").write_text("a,b,c\n1,2,red\n2,3,blue\n")
    _, err = cli("check in/m.bochner blue.csv")
    assert re.search(r"Note: Column 'c' has categories that the fit has not seen.*'blue'", err)


def test_the_outcome_of_the_solver_is_printed():
    write_table(Path("t.parquet"), columns() | {"y": np.full(N, 2.0)})
    out, _ = cli(FIT.replace("in/train", "t"))
    assert "outcome The target is constant: the model predicts that constant everywhere." in out


def test_a_model_without_a_certificate_is_written():
    out, _ = cli(FIT + " --alpha 0")
    assert "alpha 0, as given" in out
    assert "certificate none: certify: alpha must be a positive finite number; got 0.0." in out
    result = facts(FIT + " --alpha 0")
    assert result["certificate"] is result["rmse"] is None
    assert bo.load("m").alpha_ == 0


# --- predict and check ---------------------------------------------------------------------------


def test_predictions_equal_those_of_the_model_in_order():
    """Files are given by name, or by a pattern in alphabetical order."""
    rows = [columns(50, 1), columns(50, 2)]
    table = pa.table({name: np.concatenate([r[name] for r in rows]) for name in "abc"})
    expected = bo.load("in/m.bochner").predict(table)
    for files, out in (("in/one.csv in/two.csv", "p.parquet"), ("in/[ot][nw][eo].csv", "p.csv")):
        text, _ = cli(f"predict in/m.bochner {files} --out {out}")
        assert "rows 100 columns prediction out" in text
        assert np.array_equal(next(iter(bo.Blocks.from_files(out))).X[:, 0], expected)


def test_several_targets_have_names_and_old_predictions_are_replaced():
    cli("fit in/test.csv --out m --target y --target z " + QUICK)
    Path("p.csv").write_text("old")
    result = facts("predict m in/test.csv --out p.csv")
    assert (result["columns"], result["rows"]) == (["prediction_y", "prediction_z"], 80)
    table = pd.read_csv("p.csv")
    assert list(table) == result["columns"]
    np.testing.assert_allclose(table.prediction_y, -table.prediction_z, atol=1e-9)
    assert output_files() == ["m", "p.csv"]


def test_models_fitted_on_arrays_read_the_columns_in_order():
    X = np.random.default_rng(0).normal(size=(60, 2))
    model = bo.KernelRidge(Linear(), method=bo.Nystrom(), n_features=2, random_state=0)
    bo.save(model.fit(X, X[:, [0, 1, 0]]), "m")
    write_table(Path("t.csv"), {"u": X[:, 0], "v": X[:, 1]})
    cli("predict m t.csv --out p.csv")
    table = pd.read_csv("p.csv")
    assert list(table) == ["prediction_0", "prediction_1", "prediction_2"]
    assert np.array_equal(table, model.predict(X))


def test_standard_output_has_only_the_predictions(capsys):
    cli("predict in/m.bochner in/test.csv --out p.csv")
    assert run(["predict", "in/m.bochner", "in/test.csv", "--out", "-"]) == 0
    assert capsys.readouterr().out == Path("p.csv").read_text(encoding="utf-8")


def test_check_measures_the_error_if_there_is_a_target():
    result, table = facts("check in/m.bochner in/test.csv"), columns(80, 3)
    predicted = bo.load("in/m.bochner").predict(pa.table({k: table[k] for k in "abc"}))
    squared = np.mean((table["y"] - predicted) ** 2)
    assert result["errors"]["y"]["rmse"] == pytest.approx(squared**0.5, rel=1e-12)
    assert result["errors"]["y"]["r_squared"] == pytest.approx(1 - squared / np.var(table["y"]))
    assert result["rows"] == result["certificate"]["n_rows"] == 80
    out, _ = cli("check in/m.bochner in/test.csv")
    assert re.search(r"rows 80 errors RMSE 0\.\d+, R² 0\.\d+ certificate With 16 features", out)
    result = facts(CHECK)  # no target
    assert (result["errors"], result["rows"]) == ({}, 50)
    assert 0 < result["certificate"]["epsilon"] < np.inf
    assert result["certificate_words"].startswith("With 16 features, 50 rows")
    assert cli(CHECK + " --quiet") == ("", "")


def test_check_weights_errors_as_the_fit_did():
    cli(f"fit in/test.csv --target y --weight w --out m {QUICK}")
    table = pd.read_csv("in/test.csv")
    residual = table.y - bo.load("m").predict(table[["a", "b", "c", "z"]])
    expected = table.w @ residual**2 / table.w.sum()
    assert facts("check m in/test.csv")["errors"]["y"]["rmse"] ** 2 == pytest.approx(expected)


# --- compare, demo, help -------------------------------------------------------------------------


def test_compare_prints_the_same_table_as_python():
    options = "--kernel matern32 --lengthscale 1.5 --features 16 --columns a,b --seed 3"
    out, _ = cli(f"compare in/train.parquet {options} --plot c.svg")
    X = np.column_stack([columns()["a"], columns()["b"]])
    comparison = bo.compare(Matern(1.5, 1.5), X, n_features=16, random_state=3)
    places = [out.index(str(row.method)) for row in comparison.rows]
    assert places[0] < places[1]
    assert f"errors on {comparison.n_sample} rows" in out
    assert "<svg" in Path("c.svg").read_text()
    summary = facts(f"compare in/train.parquet {options}")
    assert summary["best"] == repr(comparison.best)
    errors = [row.error for row in comparison.rows if not row.refusal]
    assert [m["error"] for m in summary["methods"] if not m["refusal"]] == pytest.approx(errors)


def test_compare_chooses_the_lengthscale_by_the_target():
    line = "compare in/train.parquet --features 16"
    with_target, baseline = facts(line + " --target y"), facts(line + " --columns a,b,c")
    assert with_target["kernel"].startswith("Gaussian(lengthscale=")
    assert baseline["kernel"] != with_target["kernel"]


def test_help_lists_all_commands_and_options():
    out, _ = cli("--help")
    for command in bochner.commands.values():
        assert command.name in out
        text, _ = cli(f"{command.name} --help")
        for option in command.params:
            assert option.opts[0] in text or option.name.upper() in text
    assert cli("--version")[0] == f"bochner {bo.__version__} "


# --- errors --------------------------------------------------------------------------------------

COORDS = "fit in/test.csv --target y --out m --coords"
ROWS = "fit in/rows.parquet --out m"
PLAN = "plan in/train.parquet --kernel gaussian --lengthscale 1 --widths 8,16"
#: Exit code, command line, and a part of its message.
WRONG = [
    (2, "fit in/train.parquet --target y --out no/m", "cannot be written: there is no folder"),
    (2, "fit in/train.parquet --target y --out in", "'in' cannot be written: it is a folder."),
    (2, FIT + " --features 0", "0 is not in the range x>=1"),
    (2, FIT + " --seed -1", "-1 is not in the range x>=0"),
    (2, FIT + " --kernel gausian", "'linear'; did you mean 'gaussian'?"),
    (2, FIT + " --set aplha=1", "no argument 'aplha'; did you mean 'alpha'?"),
    (2, FIT + " --out -", "'-' cannot be written: only tables go to standard output. Name a file."),
    (2, FIT + " --alpha low", "must be loo, gcv, evidence or a number"),
    (2, FIT + " --alpha -1", "or a number of 0 or above; got '-1'"),
    (2, FIT + " --alpha nan", "or a number of 0 or above; got 'nan'"),
    (2, FIT + " --lengthscale 0", "like 0.5 or 0.3,1,2; got '0'"),
    (2, FIT + " --lengthscale 1,,2", "must be positive numbers like 0.5"),
    (2, FIT + " --kernel linear", "the linear kernel has none; leave it out"),
    (2, FIT + " --kernel auto", "--kernel auto chooses it; leave it out"),
    (2, FIT + " --nonsense", "No such option"),
    (2, FIT + " --out in/train.parquet", "is one of the files to read. Choose another name"),
    (2, PREDICT + " --out p.xlsx", "must end in .parquet, .pq, .csv"),
    (2, PREDICT + " --out in/one.csv", "is one of the files to read"),
    (2, "predict in/m.bochner --out p.csv", "Missing argument 'FILES...'"),
    (2, "predict in/m.bochner in/one.csv", "Missing option '--out'"),
    (2, "chekc", "No such command 'chekc'"),
    (2, FIT + " --engine ray --checkpoint run.ckpt", "--checkpoint requires --engine local"),
    (2, FIT + " --scheduler tcp://x", "requires --engine dask, ray or spark; got --engine local"),
    (1, FIT.replace("train", "trian"), "'in/trian.parquet' (did you mean 'train"),
    (1, "fit in/train.parquet --target yy --out m", "yy"),
    (1, "fit in/train.parquet --target c --out m", "c"),
    (1, "fit in/train.parquet --target y --out m --lengthscale 1,2", "lengthscale"),
    (1, FIT + " --features 3", "even number"),
    (1, "check in/train.parquet in/one.csv", "as bochner.save writes it; it is something else"),
    (1, "check in/m.bochnr in/one.csv", "no such file (did you mean 'm.bochner'?)"),
    (1, "check in/kernel in/one.csv", "fitted learner, as bochner fit writes; it holds a Gau"),
    (1, "predict in/unfitted in/one.csv --out p.csv", "it holds one that is not fitted."),
    (1, "check in/m.bochner in/missing.csv", "'b'"),
    (2, ROWS + " --model svc", "svc learns from a target. Name its column with --target."),
    (2, ROWS + " --model svc --target label --alpha 1", "SVC has no argument 'alpha'"),
    (2, ROWS + " --model svc --target label --set D=1", "SVC has no argument 'D'"),
    (1, ROWS + " --model ridge --target label", "or use a classifier"),
    (2, ROWS + " --model forest --target y", "'forest' is not one of"),
    (2, COORDS + " a,b --columns a", "--coords and --columns both name"),
    (2, COORDS + " a,b,z,w", "--coords names one to three columns; got 4"),
    (2, "report in/m.bochner in/one.csv --out page.txt", "its name must end in .html, .htm"),
    (1, "report in/train.parquet in/one.csv --out page.html", "must be a model file"),
    (2, "map in/m.bochner --out f.nc", "must hold a process of one or two coordinates"),
    (2, PLAN, "Missing option '--target'"),
    (1, PLAN + " --target z", "z"),
    (1, PLAN + " --target c", "target 'c' must hold numbers; got text ('"),
    (2, PLAN + " --target y --seconds -3", "-3"),
    (1, PLAN + " --target y --seconds 1e-9", "no fit is predicted to take at most"),
    (1, PLAN + " --target y --memory 10", "no fit is predicted to take at most"),
    (2, PLAN + " --target y --widths 8,x", "whole numbers separated by commas"),
    (2, PLAN + " --target y --kernel best", "best"),
]


@pytest.mark.parametrize(("code", "line", "sentence"), WRONG)
def test_errors_are_one_sentence_and_nothing_is_written(code, line, sentence):
    exit_code, out, err = run_line(line)
    assert (exit_code, out) == (code, "")
    assert sentence in re.sub(r"\s+", " ", err)
    assert code == 2 or (err.startswith("Error: ") and err.count("\n") == 1)
    assert output_files() == []


def test_errors_are_json_with_the_option_json():
    for line, code, kind, sentence in (
        ("show nowhere", 1, "ModelFileError", "there is no such file"),
        ("show", 2, "UsageError", "Missing argument 'MODEL'"),
        ("fit nowhere.csv --target y --out m", 1, "", "nowhere.csv"),
    ):
        error = json.loads(cli(f"{line} --json", code)[0])
        assert error["exit_code"] == code
        assert kind in error["kind"]
        assert sentence in error["error"]


def test_a_read_only_output_raises_before_the_fit(monkeypatch):
    access, line = os.access, "fit nowhere.csv --target y --out in/m.bochner"
    file = Path("in/m.bochner")
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != file and access(path, mode))
    assert "cannot be written: the file there is read-only. Choose another name" in cli(line, 2)[1]
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert "may not be written to. Choose another" in cli(line, 2)[1]


def test_debug_raises_the_error(monkeypatch):
    monkeypatch.setenv("BOCHNER_DEBUG", "1")
    with pytest.raises(bo.errors.DataFileError, match="there is no file or folder"):
        cli("fit nowhere.csv --target y --out m")


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (KeyboardInterrupt(), 130, "Stopped; nothing was written."),
        (MemoryError(), 1, "Error: there is not enough memory. Ask for fewer features"),
        (RuntimeError("two\nlines"), 1, "Error: RuntimeError: two lines (BOCHNER_DEBUG=1 in"),
        (MissingDependency("Parquet needs pyarrow"), 1, "Error: Parquet needs pyarrow"),
    ],
)
def test_any_error_of_a_fit_is_one_sentence(monkeypatch, error, code, sentence):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(bo.KernelRidge, "fit_blocks", fail)
    out, err = cli(FIT, code)
    assert err.strip().startswith(sentence)
    assert (out, output_files()) == ("", [])


def test_tables_fit_the_width_of_the_terminal(capsys, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    assert run(CHECK.split()) == 0
    lines = re.sub(r"\x1b\[\d*m", "", capsys.readouterr().out).splitlines()
    assert max(map(len, lines)) <= 60
    assert len(lines) > 6


# --- progress ------------------------------------------------------------------------------------


def test_a_progress_bar_shows_rows_rate_and_steps(capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    Path("t.csv").write_text("a,b\n" + "1,2\n" * 900)
    blocks = bo.Blocks.from_files("t.csv", block_rows=300)
    bar = Bar(blocks)
    observed = blocks.watch(bar)
    for _ in range(2):
        list(observed)
        bar.at("Choosing the kernel: candidate 3 of 7: one lengthscale")
    lines = capsys.readouterr().err.replace("\033[K", "").split("\r")
    assert re.match(r"pass 1: 300 rows, [\d,]+ rows/s$", lines[1])
    assert "Choosing the kernel: candidate 3 of 7: one lengthscale" in lines
    assert re.search(r"pass 2: 900 of 900 rows, [\d,]+ rows/s\n$", lines[-2])
    bar.step, bar.start, bar.rows = "", bar.start - 10, 450
    assert "pass 2: 450 of 900 rows, 4" in bar.text
    assert re.search(r"\b1\d s left", bar.text)


def test_progress_is_for_terminals_only(monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert run(PREDICT.split()) == 0
    assert "rows/s" in capsys.readouterr().err
    assert run([*PREDICT.split(), "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")


def test_a_command_runs_in_any_thread():
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(run, ["--version"]).result() == 0


# --- separate processes --------------------------------------------------------------------------

MAIN = "from bochner.cli import main; main()"
PATHS = str(Path(bo.__file__).parents[1]), os.environ.get("PYTHONPATH", "")
HERE = os.environ | {"PYTHONPATH": os.pathsep.join(PATHS)}
needs_shell = pytest.mark.skipif(shutil.which("bash") is None, reason="needs a shell")


@contextmanager
def process(code, line=""):
    """Yield a Python process of ``code`` with these arguments; kill it at the end."""
    command, pipe = [sys.executable, "-c", code, *line.split()], subprocess.PIPE
    with subprocess.Popen(command, env=HERE, stdout=pipe, stderr=pipe, text=True) as running:
        try:
            yield running
        finally:
            running.kill()


def test_help_imports_no_large_package():
    slow = {"numpy", "scipy", "sklearn", "pyarrow", "pandas", "matplotlib", "torch"}
    code = (
        "import sys\nfrom bochner.cli import main\n"
        "try: main(['fit', '--help'])\nexcept SystemExit: pass\n"
        f"print('IMPORTED', {slow} & {{*sys.modules}})"
    )
    with process(code) as running:
        out, _ = running.communicate(timeout=120)
    assert out.endswith("IMPORTED set()\n")
    assert "--lengthscale" in out


def test_without_click_the_command_line_states_how_to_install_it(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "click", None)
    with pytest.raises(SystemExit, match="2"):
        main(["--help"])
    err = capsys.readouterr().err
    assert "the command line needs click, not installed here" in err
    assert 'pip install "bochner[cli]"' in err


PAUSE = "import os, time\ndef pause(*_):\n    print('here', flush=True)\n    time.sleep(60)\n"
IN_SUM = f"{PAUSE}from bochner.sums.moments import Accumulator\nAccumulator.add = pause\n"
IN_WRITE = f"{PAUSE}os.fsync = pause\n"


@pytest.mark.main_cases(1)
@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize(
    ("pause", "number", "code"),
    [(IN_SUM, signal.SIGINT, 130), (IN_WRITE, signal.SIGINT, 130), (IN_WRITE, signal.SIGTERM, 143)],
)
def test_a_stopped_fit_leaves_no_incomplete_file(pause, number, code):
    Path("m").write_bytes(b"as before")
    with process(pause + MAIN, FIT) as running:
        assert running.stdout.readline() == "here\n"
        running.send_signal(number)
        _, err = running.communicate(timeout=50)
    assert err.strip() == "Stopped; nothing was written."
    assert running.returncode == code
    assert Path("m").read_bytes() == b"as before"
    assert output_files() == ["m"]


def in_shell(ending, **environment):
    """Return the result of a fit in a shell; ``ending`` redirects streams."""
    line = f"'{sys.executable}' -c '{MAIN}' {FIT}"
    command = ["bash", "-c", f"{line} {ending}"]
    return subprocess.run(command, env=HERE | environment, capture_output=True, check=False)


@pytest.mark.slow
@needs_shell
@pytest.mark.parametrize("ending", ["2>&-", "<&- >&- 2>&-", "--json >&-", "2>&1 | true"])
def test_a_fit_with_closed_streams_is_written(ending):
    """Also with streams whose reader has ended."""
    result = in_shell(ending)
    assert (result.returncode, result.stderr) == (0, b"")
    assert (b"rows         300\n" in result.stdout) == (ending == "2>&-")
    assert bo.load("m").n_features_in_ == 3
    assert output_files() == ["m"]


@pytest.mark.slow
@needs_shell
@pytest.mark.parametrize(
    ("environment", "epsilon"),
    [
        ({"PYTHONIOENCODING": "cp1252"}, b"\\u03b5"),
        ({"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, "ε".encode()),
    ],
)
def test_encodings_without_greek_letters_raise_no_error(environment, epsilon):
    result = in_shell("", **environment)  # click takes ASCII for UTF-8
    assert (result.returncode, result.stderr) == (0, b"")
    assert epsilon in result.stdout
    result = in_shell("--json", **environment)
    assert "ε" in json.loads(result.stdout.decode("ascii"))["certificate_words"]


@pytest.mark.slow
def test_a_closed_reader_prints_no_error():
    with process(MAIN, CHECK) as running:
        running.stdout.close()
        err = running.stderr.read()
        running.wait(timeout=120)
    assert (running.returncode, err) == (1, "")


# --- all learners: fits, predictions and errors --------------------------------------------------

LABELS = ("ridge-classifier", "svc", "logistic", "sgd-classifier")
NOTHING = ("one-class", "kmeans", "pca")
SETTINGS = {"kmeans": "--set n_clusters=3", "pca": "--set n_components=2"}
SETTINGS |= {"svc": "--set C=2 --set loss=hinge", "logistic": "--set C=2"}
SETTINGS["svr"] = "--set C=2 --set epsilon=0.1"
SETTINGS |= dict.fromkeys(("sgd-classifier", "sgd-regressor"), "--set strategy=approximate_cached")


def target_of(name):
    return "" if name in NOTHING else f"--target {'label' if name in LABELS else 'y'}"


@pytest.fixture(scope="module")
def learner(folder):
    """Return a function that fits a learner and returns its JSON output, model and file."""
    numbers = count()

    @cache
    def fitted(name, options=""):
        out = folder / f"learner-{next(numbers)}"
        common = f"--columns a,c --features 8 --lengthscale 1 --method orthogonal {options}"
        line = f"fit {folder}/rows.parquet --model {name} {target_of(name)} --out {out} {common}"
        return facts(f"{line} {SETTINGS.get(name, '')}"), bo.load(out), out

    return fitted


@pytest.fixture(scope="module")
def rows(folder):
    return pd.read_parquet(folder / "rows.parquet")


def predict(model, options="", code=0):
    """Return output and table of the predictions of the rows."""
    out, err = cli(f"predict {model} in/rows.parquet --out p.csv {options}", code)
    return (out or err), pd.read_csv("p.csv") if Path("p.csv").exists() else None


@pytest.mark.parametrize("name", LEARNERS)
def test_all_learners_predict_like_their_model_and_state_held_out_errors(name, learner, rows):
    result, model, file = learner(name)
    assert type(model).__name__ == LEARNERS[name]
    assert (result["rows"], result["columns"], result["n_features"]) == (90, 3, 8)
    assert result["certificate"]["epsilon"] > 0
    _, table = predict(file)
    X = rows[["a", "c"]]
    if name == "pca":
        assert table.to_numpy() == pytest.approx(model.transform(X), abs=1e-12)
        assert list(table) == ["component_1", "component_2"]
    else:
        assert table.iloc[:, 0].tolist() == pytest.approx(model.predict(X).tolist())
    held_out = result["held_out"]
    if name in ("ridge", "kmeans", "pca"):
        assert held_out is None
        assert name != "ridge" or result["rmse"] > 0
        return
    assert held_out["n_train"] + held_out["n_test"] == held_out["n_rows"] == 90
    keys = {"accuracy", "majority", "auc"} if name in LABELS else {"rmse", "r_squared"}
    (errors,) = held_out["errors"].values()
    assert keys <= set(errors) or name == "one-class"
    assert ("log_loss" in errors) == (name in {*LABELS} - {"sgd-classifier"})


@pytest.mark.main_cases(2)
@pytest.mark.parametrize("options", ["", "--no-held-out"])
@pytest.mark.parametrize("name", LEARNERS)
def test_the_model_equals_a_fit_in_python(name, options, rows):
    """Same data, options and seed give the same bits, with or without held-out errors."""
    target = target_of(name).split()[1:]
    table = rows[["a", "c", *target]]
    table.to_csv("rows.csv", index=False)
    parameters = {"kmeans": {"n_clusters": 3}, "pca": {"n_components": 2}}.get(name, {})
    model = getattr(bo, LEARNERS[name])(random_state=0, **parameters).fit(table, *target)
    settings = SETTINGS[name] if parameters else ""
    result = facts(f"fit rows.csv --model {name} {target_of(name)} --out m {settings} {options}")
    assert "held_out" not in result["seconds"] or not options
    loaded, X = bo.load("m"), rows[["a", "c"]]
    method = "transform" if name == "pca" else "predict"
    method = "decision_function" if hasattr(model, "decision_function") else method
    np.testing.assert_array_equal(getattr(loaded, method)(X), getattr(model, method)(X))
    assert type(loaded.fit_) is type(model.fit_)
    assert name == "gp" or getattr(loaded.fit_, "errors", None) is None  # a process computes them


@pytest.mark.parametrize("name", LABELS)
def test_labels_are_predicted_as_text_and_counted(name, learner, rows):
    result, model, file = learner(name)
    assert result["classes"] == ["high", "low", "mid"]
    errors, X = facts(f"check {file} in/rows.parquet")["errors"]["label"], rows[["a", "c"]]
    assert errors["accuracy"] == pytest.approx(np.mean(model.predict(X) == rows.label))
    assert errors["accuracy"] > 0.5
    out, _ = cli(f"check {file} in/rows.parquet")
    assert f"AUC {number(errors['auc'])}".rstrip("0") in out
    assert ("log loss" in out) == hasattr(model, "predict_proba")


@pytest.mark.main_cases(2)
@pytest.mark.parametrize("name", ["svc", "svr", "kmeans", "pca", "gp"])
def test_raw_tables_have_the_certificate_of_check(name, rows):
    """Columns with missing values and many categories are encoded by the fit."""
    table = rows.copy()
    table.loc[::7, "a"], table["c"] = np.nan, [f"place {i % 40}" for i in range(90)]
    table.to_csv("rows.csv", index=False)
    line = f"fit rows.csv --model {name} {target_of(name)} --out m --no-held-out --columns a,c"
    certificate = facts(line + " --features 8 --method uniform")["certificate"]
    assert certificate["epsilon"] > 0
    assert facts("check m rows.csv")["certificate"] == certificate


def test_check_ignores_class_weights_of_the_fit(learner, rows):
    _, model, file = learner("svc", "--set 'class_weight={\"mid\": 50}'")
    correct = model.predict(rows[["a", "c"]]) == rows.label
    accuracy = facts(f"check {file} in/rows.parquet")["errors"]["label"]["accuracy"]
    assert accuracy == pytest.approx(np.mean(correct))
    weights = np.where(rows.label == "mid", 50, 1)
    assert np.average(correct, weights=weights) > np.mean(correct) + 0.01


def test_each_row_is_predicted_once(learner, monkeypatch):
    _, _, file = learner("svc")
    predictions, rows = FitSummary.predictions, []
    record = lambda fit, X: rows.append(X.n_rows) or predictions(fit, X)
    monkeypatch.setattr(FitSummary, "predictions", record)
    predict(file)
    assert rows.count(90) == 1
    facts(f"check {file} in/rows.parquet")
    assert rows.count(90) == 2


def test_probabilities_have_their_own_columns(learner, rows):
    _, model, file = learner("logistic")
    _, table = predict(file)
    names = ["probability_high", "probability_low", "probability_mid"]
    assert list(table) == ["prediction", *names]
    assert table[names].to_numpy() == pytest.approx(model.predict_proba(rows[["a", "c"]]))
    assert "LogisticRegression has no prediction i" in predict(file, "--interval 0.9", 2)[0]


def test_a_process_writes_intervals_and_both_deviations(learner, rows):
    result, model, file = learner("gp")
    assert result["intervals"] == model.calibration_.guarantee
    output, table = predict(file)
    assert "intervals Cross-validation" in output
    deviations = ["deviation_of_observation", "deviation_of_mean"]
    assert list(table) == ["prediction", "low_90", "high_90", *deviations]
    X = rows[["a", "c"]]
    std = (model.predict(X, return_std=True, include_noise=noise)[1] for noise in (True, False))
    expected = [*model.predict_interval(X, 0.9), *std]
    assert table.to_numpy().T == pytest.approx(np.array(expected))
    output, table = predict(file, "--coverage 0.975 --json")
    assert list(table)[1:3] == ["low_97.5", "high_97.5"]
    assert table["high_97.5"].tolist() == pytest.approx(model.predict_interval(X, 0.975)[2])
    assert json.loads(output)["intervals"] == model.calibration_.guarantee
    # 90 rows cannot calibrate this coverage: the interval is normal, and the output states it
    output, table = predict(file, "--coverage 0.995 --json")
    assert json.loads(output)["intervals"].startswith("Gaussian, true if the model is")
    expected = norm.ppf(0.0025, *model.predict(X, return_std=True, include_noise=True))
    assert table["low_99.5"].tolist() == pytest.approx(expected)


@pytest.mark.parametrize("name", ["ridge", "svr"])
def test_a_regressor_writes_intervals_if_requested(name, learner, rows):
    """Those of svr use the held-out errors of its fit."""
    _, model, file = learner(name)
    output, table = predict(file, "--json")
    assert list(table) == ["prediction"]
    assert "intervals" not in json.loads(output)
    output, table = predict(file, "--interval 0.8 --json")
    assert json.loads(output)["intervals"] == model.calibration_.guarantee
    assert list(table) == ["prediction", "low_80", "high_80"]
    expected = np.array(model.predict_interval(rows[["a", "c"]], 0.8))
    assert table.to_numpy().T == pytest.approx(expected)
    assert "cannot calibrate a coverage of 0.9999" in predict(file, "--interval 0.9999", 1)[0]


def test_settings_reach_the_learner(learner):
    _, model, _ = learner("svc")
    assert (model.C, model.loss) == (2, "hinge")
    _, model, file = learner("regressor", "--set loss=quantile --alpha 0.1")
    assert (model.loss, model.alpha) == ("quantile", 0.1)
    assert list(predict(file)[1]) == [f"prediction_{q}" for q in (0.1, 0.5, 0.9)]


# --- coordinates and maps ------------------------------------------------------------------------

xarray = pytest.importorskip("xarray")
STATIONS = "fit in/stations.csv --target t --coords lon,lat"


@pytest.fixture(scope="module")
def stations(folder):
    """Return a process fitted to a table of stations."""
    rng = np.random.default_rng(0)
    lon, lat = rng.uniform(5, 15, 90), rng.uniform(47, 55, 90)
    t = 15 - (lat - 47) + np.sin(lon) + 0.1 * rng.standard_normal(90)
    write_table(folder / "stations.csv", {"t": t, "lon": lon, "name": np.arange(90), "lat": lat})
    cli(f"{STATIONS} --out {folder}/process".replace("in/", f"{folder}/"))
    return bo.load(folder / "process")


@pytest.mark.slow
def test_coordinates_choose_a_process(stations):
    assert isinstance(stations, bo.GaussianProcessRegressor)
    assert (stations.method, stations.kernel) == (None, "matern32")
    assert list(stations.feature_names_in_) == ["lon", "lat"]
    cli(f"{STATIONS} --model ridge --kernel gaussian --method grid")
    model = bo.load("m.bochner")
    assert isinstance(model, bo.KernelRidge)
    assert (model.method, model.kernel) == ("grid", "gaussian")


def test_the_field_has_mean_and_deviation_at_the_places(stations, monkeypatch):
    result = facts("map in/process --out field.nc --places 9")
    with xarray.open_dataset("field.nc", engine="scipy") as field:
        lon, lat = field["lon"].values, field["lat"].values
        mean, std = stations.predict_grid(lon=lon, lat=lat, return_std=True)
        np.testing.assert_allclose(field["t"], mean)
        np.testing.assert_allclose(field["t_deviation"], std)
        assert field["t"].dims == ("lon", "lat")
    assert result["places"] == 81
    assert result["mean"] == [float(mean.min()), float(mean.max())]
    assert Path("field.png").read_bytes().startswith(b"\x89PNG")
    assert "places" in cli("map in/process --out field.nc --picture here.svg --places 5")[0]
    assert "<svg" in Path("here.svg").read_text()
    monkeypatch.setitem(sys.modules, "xarray", None)
    message = cli("map in/process --out f.nc", 1)[1]
    assert "bochner map needs the package xarray, which is not installed" in message


def test_a_process_of_three_columns_has_no_map():
    X = np.random.default_rng(0).standard_normal((40, 3))
    bo.save(bo.GaussianProcessRegressor(n_features=8, random_state=0).fit(X, X[:, 0]), "three")
    message = cli("map three --out f.nc", 1)[1]
    assert "a map has one or two columns and one target; got 3 columns" in message


# --- plan and show -------------------------------------------------------------------------------


def test_plan_prints_a_table_and_the_reason():
    code, out, _ = run_line(PLAN + " --target y")
    assert code == 0
    expected = "kernel: Gaussian(lengthscale=1.0)\nrows: 300 of 4 columns\nbudget: at most "
    assert out.startswith(expected)
    assert "\nchoice: The exact kernel, by" in out
    result = facts(PLAN + " --target y --seconds 100 --memory 1e9")
    assert (result["rows"], result["columns"]) == (300, 4)
    assert result["choice"] in result["fits"]
    assert result["choice"]["seconds"] < 100


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    a, dates = rng.normal(size=120), pd.date_range("2020-01-01", periods=120, freq="D")
    city, y = rng.choice(["x", "y"], 120), a**2 + 0.1 * rng.normal(size=120)
    return pd.DataFrame({"a": a, "same": a, "when": dates, "city": city, "y": y})


def test_show_prints_the_fit_and_the_encoding_of_columns(table):
    table.to_csv("t.csv", index=False)
    cli("fit t.csv --target y --out m --set effort=low --set alpha=0.01")
    summary, model = facts("show m"), bo.load("m")
    assert summary["model"] == "KernelRidge"
    assert (summary["rows"], summary["alpha"], summary["targets"]) == (120, model.alpha_, ["y"])
    assert summary["kernel"] == repr(model.kernel_)
    assert summary["parameters"] == {"alpha": "0.01", "effort": "'low'", "random_state": "0"}
    assert summary["bytes"] == Path("m").stat().st_size
    _, out, _ = run_line("show m")
    assert "column       a: number\n" in out
    assert "column       same: left out (the same as another column)\n" in out
    assert "column       city: becomes city=x, city=y\n" in out
    assert "when: becomes when (days)" in out


def test_show_prints_the_compared_kernels(table):
    model = bo.KernelRidge(random_state=0).fit(table[["a", "city"]], table["y"])
    bo.save(model, "m")
    assert str(model.search_) in run_line("show m")[1]
    candidates = facts("show m")["search"]
    assert [c["rank"] for c in candidates] == list(range(1, len(model.search_.candidates) + 1))
    assert sum(c["chosen"] for c in candidates) == 1


def test_show_lists_at_most_forty_columns_and_prints_other_objects():
    X = np.random.default_rng(0).normal(size=(60, 45))
    X = pd.DataFrame(X, columns=[f"c{i}" for i in range(45)])
    blocks = bo.Blocks.from_table(X.assign(y=X["c0"]), target="y")
    bo.save(bo.KernelRidge("linear", random_state=0).fit_blocks(blocks), "m")
    assert "column       c39: number\ncolumn       and 5 more\n" in run_line("show m")[1]
    bo.save(bo.draw(Gaussian(), bo.Fourier(), n_features=8, n_inputs=2), "map")
    assert "Fourier" in facts("show map")["model"]
