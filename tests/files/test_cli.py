"""The command line: what it writes, what it says, how it ends."""

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from rich.console import Console

import bochner as bo
from bochner.cli import main
from bochner.cli.arguments import CRITERIA, KERNELS, METHODS
from bochner.cli.commands import bochner
from bochner.cli.running import run
from bochner.cli.show import Passes, bar_for
from bochner.data.writers import write_table
from bochner.errors import MissingDependency
from bochner.features.rules import NAMED as NAMED_METHODS
from bochner.kernels import Gaussian, Linear, Matern
from bochner.report import Curve, DemoResult, MethodResult
from bochner.selection.spec import NAMED
from bochner.solvers.ridge.path import PENALTY_CRITERIA

N = 300
QUICK = ("--features", "16", "--lengthscale", "1", "--method", "orthogonal")


def columns(n=N, seed=0):
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(2, n))
    c = rng.choice(["red", "green"], n)
    y = np.sin(a) + 0.5 * b * (c == "red") + 0.05 * rng.normal(size=n)
    return {"a": a, "b": b, "c": c, "y": y}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with tables, and a model fitted to one of them."""
    folder = tmp_path_factory.mktemp("cli")
    table = pa.table(columns())
    pyarrow.parquet.write_table(table, folder / "train.parquet")
    for name, seed in (("one", 1), ("two", 2)):
        part = columns(50, seed)
        write_table(folder / f"{name}.csv", {k: part[k] for k in "cba"})
    others = columns(80, 3)
    extra = {"z": -others["y"], "w": np.arange(80) % 4 / 2.0}
    write_table(folder / "test.csv", others | extra)
    assert run(["fit", f"{folder}/train.parquet", *to("y", folder / "m.bochner"), "--quiet"]) == 0
    return folder


def to(target, out, *options):
    return ("--target", target, "--out", str(out), *(options or QUICK))


def told(capsys):
    """Return stdout and stderr as lines without wrapping, as one line each."""
    out, err = capsys.readouterr()
    return re.sub(r"\s+", " ", out), re.sub(r"\s+", " ", err)


def said(capsys, code, *arguments):
    """Run, and return what came on stdout and stderr."""
    assert run([str(a) for a in arguments]) == code
    return told(capsys)


# --- fit -----------------------------------------------------------------------------------------


def test_fit_writes_the_model_that_python_would_fit(folder, tmp_path):
    out = tmp_path / "model.bochner"
    choices = ("--kernel", "matern32", "--lengthscale", "0.5", "--lengthscale", "1,2,3")
    rest = ("--features", "20", "--method", "nystrom", "--alpha", "gcv", "--seed", "5")
    assert run(["fit", f"{folder}/train.parquet", *to("y", out, *choices, *rest, "--quiet")]) == 0
    model = bo.KernelRidge(
        Matern(1.5, (0.5, 1.0, 2.0, 3.0)),
        method=bo.Nystrom(),
        n_features=20,
        alpha="gcv",
        random_state=5,
    )
    blocks = bo.Blocks.from_files(folder / "train.parquet", target="y")
    model.fit_blocks(blocks)
    loaded = bo.load(out)
    for ours, theirs in zip(
        loaded.predict_blocks(blocks), model.predict_blocks(blocks), strict=True
    ):
        assert ours.tobytes() == theirs.tobytes()


def test_fit_says_what_it_did(folder, tmp_path, capsys):
    out, err = said(
        capsys,
        0,
        "fit",
        folder / "train.parquet",
        *to("y", tmp_path / "m", "--features", "16", "--kernel", "gaussian"),
    )
    assert "rows 300 columns 4 (of 3 in the table) target y kernel Gaussian(lengthscale=" in out
    assert "chosen from the data" in out
    assert re.search(r"method \w+\(.*relative error", out)
    assert re.search(r"alpha [\d.e-]+, chosen by leave-one-out error outcome", out)
    assert re.search(r"error leave-one-out RMSE 0\.\d+, R² 0\.\d+", out)
    assert re.search(r"seconds open [\d.e-]+ s, fit [\d.e-]+ s, certify .* s, write .* s", out)
    assert re.search(r"certificate With \d+ features, 300 rows and alpha", out)
    assert out.rstrip().endswith("/m")
    assert err == ""


def test_fit_tells_programs_in_one_json_object(folder, tmp_path, capsys):
    out = tmp_path / "m.bochner"
    text, err = said(capsys, 0, "fit", folder / "train.parquet", *to("y", out), "--json")
    facts, model = json.loads(text), bo.load(out)
    assert facts["rows"] == N
    assert facts["alpha"] == model.alpha_
    assert facts["kernel"] == "Gaussian(lengthscale=1.0)"
    assert not facts["kernel_chosen"]
    assert facts["targets"] == ["y"]
    assert facts["certificate"]["epsilon"] == model.certificate_.epsilon
    assert facts["certificate_words"] == str(model.certificate_)
    assert facts["out"] == str(out)
    assert list(facts["seconds"]) == ["open", "fit", "certify", "write"]
    index = np.argmin(np.abs(model.solution_.path.alphas - model.alpha_))
    assert facts["rmse"] ** 2 == pytest.approx(model.solution_.path.loo[index])
    assert err == ""


def test_the_error_that_fit_tells_is_near_that_on_other_rows(folder, capsys, tmp_path):
    fit, _ = said(capsys, 0, "fit", folder / "train.parquet", *to("y", tmp_path / "m"), "--json")
    other, _ = said(capsys, 0, "check", tmp_path / "m", folder / "test.csv", "--json")
    told, found = json.loads(fit), json.loads(other)["errors"]["y"]
    # 80 rows: the root mean square of residuals has a relative deviation of about 1/√160.
    assert found["rmse"] == pytest.approx(told["rmse"], rel=5 / 160**0.5)
    assert found["r_squared"] == pytest.approx(told["r_squared"], abs=0.1)


@pytest.mark.parametrize(
    ("alpha", "words"),
    [
        ("loo", "chosen by leave-one-out error"),
        ("gcv", "chosen by generalised cross-validation"),
        ("evidence", "chosen by marginal likelihood"),
        ("0.25", "0.25, as given"),
        ("0", "0, as given"),
    ],
)
def test_alpha_is_a_criterion_or_a_number(folder, tmp_path, capsys, alpha, words):
    out, _ = said(
        capsys, 0, "fit", folder / "train.parquet", *to("y", tmp_path / "m"), "--alpha", alpha
    )
    assert words in out


@pytest.mark.parametrize("name", KERNELS)
def test_every_kernel_name_fits(folder, tmp_path, name):
    method = "nystrom" if name in ("laplace", "cauchy", "auto") else "orthogonal"
    out = tmp_path / "m"
    options = ("--kernel", name, "--features", "12", "--method", method, "--quiet")
    assert run(["fit", f"{folder}/train.parquet", *to("y", out, *options)]) == 0
    if name != "auto":  # any of the others
        assert type(bo.load(out).kernel_) is type(NAMED[name](1.0))


@pytest.mark.parametrize("name", METHODS)
def test_every_method_name_fits(folder, tmp_path, name):
    out = tmp_path / "m"
    options = ("--features", "12", "--lengthscale", "1", "--method", name, "--quiet")
    options += ("--columns", "a,b") * (name == "grid")
    assert run(["fit", f"{folder}/train.parquet", *to("y", out, *options)]) == 0
    assert bo.load(out).method == name


def test_the_names_in_help_are_those_of_the_estimators():
    assert tuple(NAMED) == KERNELS
    assert tuple(NAMED_METHODS) == METHODS
    assert CRITERIA == PENALTY_CRITERIA


def test_a_repeated_run_writes_the_same_file(folder, tmp_path):
    for name in ("a", "b"):
        assert run(["fit", f"{folder}/train.parquet", *to("y", tmp_path / name), "--quiet"]) == 0
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert run(["fit", f"{folder}/train.parquet", *to("y", tmp_path / "c"), "--seed", "1"]) == 0
    assert (tmp_path / "c").read_bytes() != (tmp_path / "a").read_bytes()


def test_weights_columns_separator_and_several_targets(tmp_path, capsys):
    rows = "".join(f"{i % 7};{i * i % 11};{i % 3};{i};{1 + i % 2}\n" for i in range(60))
    (tmp_path / "t.csv").write_text("a;b;y;z;w\n" + rows)
    out = tmp_path / "m"
    options = ("--target", "z", "--weight", "w", "--columns", "b,a", "--separator", ";", *QUICK)
    text, _ = said(capsys, 0, "fit", tmp_path / "t.csv", *to("y", out, *options), "--json")
    model = bo.load(out)
    assert json.loads(text)["targets"] == ["y", "z"]
    assert model.schema_.columns == ("b", "a")
    assert model.moments_.weight == sum(1 + i % 2 for i in range(60))


def test_types_of_columns_are_taken_from_the_command(tmp_path, capsys):
    lines = "".join(f"{i % 3},{'?' if i == 5 else i},{i % 7}\n" for i in range(60))
    (tmp_path / "t.csv").write_text(f"a,b,y\n{lines}")
    command = (
        "fit",
        tmp_path / "t.csv",
        "--target",
        "y",
        "--out",
        tmp_path / "m",
        "--features",
        "8",
    )
    _, said_so = said(capsys, 0, *command)
    assert "Note: Blocks: column 'b' is text, since it holds '?' beside 59" in said_so
    _, said_so = said(capsys, 1, *command, "--types", "b=number")
    assert "must hold numbers to its end; got '?' in line 7" in said_so
    out, _ = said(capsys, 0, *command, "--types", "b=category", "--types", "a=category", "--json")
    assert json.loads(out)["columns"] == 4  # of a three of 0 and 1, of b means of the target
    _, said_so = said(capsys, 2, *command, "--types", "b=float")
    assert "must be as a=number,b=category; got 'b=float'" in said_so


# --- predict -------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_predictions_are_those_of_the_model_in_the_order_of_the_rows(
    folder, tmp_path, suffix, capsys
):
    out = tmp_path / f"p{suffix}"
    text, _ = said(
        capsys,
        0,
        "predict",
        folder / "m.bochner",
        folder / "one.csv",
        folder / "two.csv",
        "--out",
        out,
    )
    assert "rows 100 columns prediction seconds" in text
    written = next(iter(bo.Blocks.from_files(out))).X[:, 0]
    rows = [columns(50, 1), columns(50, 2)]
    table = pa.table({name: np.concatenate([r[name] for r in rows]) for name in "abc"})
    assert np.array_equal(written, bo.load(folder / "m.bochner").predict(table))


def test_globs_and_folders_are_read_in_the_order_of_names(folder, tmp_path):
    for name, what in (("a.csv", f"{folder}/[ot][nw][eo].csv"), ("b.csv", f"{folder}/one.csv")):
        assert (
            run(["predict", f"{folder}/m.bochner", what, "--out", f"{tmp_path}/{name}", "--quiet"])
            == 0
        )
    both, one = ((tmp_path / n).read_text().splitlines() for n in ("a.csv", "b.csv"))
    assert len(both) == 101
    assert [float(x) for x in both[1:51]] == pytest.approx([float(x) for x in one[1:]], rel=1e-9)


def test_several_targets_are_named(folder, tmp_path, capsys):
    out = tmp_path / "p.csv"
    options = ("--target", "z", *QUICK)
    said(capsys, 0, "fit", folder / "test.csv", *to("y", tmp_path / "m", *options))
    text, _ = said(
        capsys, 0, "predict", tmp_path / "m", folder / "test.csv", "--out", out, "--json"
    )
    facts = json.loads(text)
    assert facts["columns"] == ["prediction_y", "prediction_z"]
    assert facts["rows"] == 80
    values = np.loadtxt(out, delimiter=",", skiprows=1)
    assert out.read_text().startswith("prediction_y,prediction_z\n")
    np.testing.assert_allclose(values[:, 0], -values[:, 1], atol=1e-9)


def test_models_fitted_on_arrays_read_the_columns_in_order(tmp_path, capsys):
    X = np.random.default_rng(0).normal(size=(60, 2))
    model = bo.KernelRidge(Linear(), method=bo.Nystrom(), n_features=2, random_state=0)
    bo.save(model.fit(X, np.column_stack([X[:, 0], X[:, 1], X[:, 0]])), tmp_path / "m")
    write_table(tmp_path / "t.csv", {"u": X[:, 0], "v": X[:, 1]})
    said(capsys, 0, "predict", tmp_path / "m", tmp_path / "t.csv", "--out", tmp_path / "p.csv")
    text = (tmp_path / "p.csv").read_text()
    assert text.startswith("prediction_0,prediction_1,prediction_2\n")
    assert np.array_equal(
        np.loadtxt(tmp_path / "p.csv", delimiter=",", skiprows=1), model.predict(X)
    )


def test_predictions_are_written_over_old_ones(folder, tmp_path):
    out = tmp_path / "p.csv"
    out.write_text("old")
    assert (
        run(["predict", f"{folder}/m.bochner", f"{folder}/one.csv", "--out", str(out), "--quiet"])
        == 0
    )
    assert out.read_text().startswith("prediction\n")
    assert [p.name for p in tmp_path.iterdir()] == ["p.csv"]


# --- check ---------------------------------------------------------------------------------------


def test_check_measures_the_error_where_the_target_is_there(folder, capsys):
    out, _ = said(capsys, 0, "check", folder / "m.bochner", folder / "test.csv", "--json")
    facts = json.loads(out)
    table = columns(80, 3)
    predicted = bo.load(folder / "m.bochner").predict(pa.table({k: table[k] for k in "abc"}))
    squared = np.mean((table["y"] - predicted) ** 2)
    assert facts["errors"]["y"]["rmse"] == pytest.approx(squared**0.5, rel=1e-12)
    assert facts["errors"]["y"]["r_squared"] == pytest.approx(1 - squared / np.var(table["y"]))
    assert facts["rows"] == facts["certificate"]["n_rows"] == 80
    out, _ = said(capsys, 0, "check", folder / "m.bochner", folder / "test.csv")
    assert re.search(r"rows 80 error, y RMSE 0\.\d+, R² 0\.\d+ certificate With 16 features", out)


def test_check_weighs_the_error_where_the_model_was_weighed(folder, tmp_path, capsys):
    said(capsys, 0, "fit", folder / "test.csv", *to("y", tmp_path / "m"), "--weight", "w")
    out, _ = said(capsys, 0, "check", tmp_path / "m", folder / "test.csv", "--json")
    table = columns(80, 3)
    w = np.arange(80) % 4 / 2.0
    named = {"a": table["a"], "b": table["b"], "c": table["c"], "z": -table["y"]}
    residual = table["y"] - bo.load(tmp_path / "m").predict(pa.table(named))
    assert json.loads(out)["errors"]["y"]["rmse"] ** 2 == pytest.approx(w @ residual**2 / w.sum())


def test_check_gives_the_certificate_alone_without_a_target(folder, capsys):
    out, _ = said(capsys, 0, "check", folder / "m.bochner", folder / "*e.csv", "--json")
    facts = json.loads(out)
    assert facts["errors"] == {}
    assert facts["rows"] == 50
    assert 0 < facts["certificate"]["epsilon"] < np.inf
    assert facts["certificate_words"].startswith("With 16 features, 50 rows")


# --- compare -------------------------------------------------------------------------------------


def test_compare_prints_the_table_that_python_would(folder, tmp_path, capsys):
    options = (
        "--kernel",
        "matern32",
        "--lengthscale",
        "1.5",
        "--features",
        "16",
        "--columns",
        "a,b",
    )
    picture = tmp_path / "c.svg"
    command = ("compare", folder / "train.parquet", *options, "--seed", "3")
    out, _ = said(capsys, 0, *command, "--plot", picture)
    table = columns()
    X = np.column_stack([table["a"], table["b"]])
    found = bo.compare(Matern(1.5, 1.5), X, n_features=16, random_state=3)
    for row in found.rows:
        assert str(row.method) in out
    assert out.index(str(found.rows[0].method)) < out.index(str(found.rows[1].method))
    assert f"errors on {found.n_sample} rows" in out
    assert "<svg" in picture.read_text()
    out, _ = said(capsys, 0, *command, "--json")
    facts = json.loads(out)
    assert facts["best"] == repr(found.best)
    assert [m["error"] for m in facts["methods"] if not m["refused"]] == pytest.approx(
        [row.error for row in found.rows if not row.refused]
    )


def test_compare_chooses_the_lengthscale_by_the_target(folder, capsys):
    command = ("compare", folder / "train.parquet", "--features", "16", "--json")
    with_target = json.loads(said(capsys, 0, *command, "--target", "y")[0])
    without = json.loads(said(capsys, 0, *command, "--columns", "a,b,c")[0])
    assert with_target["kernel"].startswith("Gaussian(lengthscale=")
    assert without["kernel"] != with_target["kernel"]


# --- demo ----------------------------------------------------------------------------------------


def test_demo_shows_what_the_report_found(monkeypatch, capsys, tmp_path):
    def found(out, *, quick, seed, show):
        assert (quick, seed) == (True, 4)
        if show is not None:
            show("Fitting")
        best = MethodResult(
            "Nyström", "Nystrom()", 64, 512.25, 0.95, 1.5, 500.0, 0.1, 0.25, (0.2, 0.3)
        )
        rival = MethodResult("Rival", "f()", 64, 900.0, 0.8, 2.5, float("nan"), 0.1)
        grid = np.zeros((2, 2))
        return DemoResult(
            methods=(best, rival),
            curves=(Curve("Nyström", (64,), (512.25,)),),
            best=best,
            truth=grid,
            prediction=grid,
            held_out=grid > 0,
            kernel="Gaussian(0.1)",
            alpha=0.1,
            certificate="in words",
            n_train=90,
            n_test=10,
            seed=seed,
            path=Path(out) / "earth.html",
        )

    monkeypatch.setattr("bochner.cli.compare.write_page", found)
    out, err = said(capsys, 0, "demo", "--out", tmp_path, "--quick", "--seed", "4")
    assert "Nyström │ 64 │ 512.2 │ 0.9500 │ 1.50 │ 0.25" in out
    assert "Rival │ 64 │ 900 │ 0.8000 │ 2.50 │ none" in out
    assert "best Nyström, 64 features: RMSE 512.2 m, R² 0.95" in out
    assert "ε: distance from the exact kernel at alpha = 0.1" in out
    assert "certificate in words" in out
    assert out.endswith("earth.html ")
    assert err == "Fitting "
    out, err = said(capsys, 0, "demo", "--out", tmp_path, "--quick", "--seed", "4", "--json")
    facts = json.loads(out)
    assert facts["methods"][0]["epsilon_interval"] == [0.2, 0.3]
    assert facts["methods"][1]["loo"] is None
    assert said(capsys, 0, "demo", "--out", tmp_path, "--quick", "--seed", "4", "--quiet") == (
        "",
        "",
    )


# --- what a person can act on --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--target", "y", "--out", "{}/no/m"), "cannot be written: there is no folder '{}/no'"),
        (("--target", "y", "--out", "{}"), "'{}' cannot be written: it is a folder."),
        ((*to("y", "{}/m"), "--features", "0"), "0 is not in the range x>=1"),
        ((*to("y", "{}/m"), "--features", "many"), "'many' is not a valid integer"),
        ((*to("y", "{}/m"), "--seed", "-1"), "-1 is not in the range x>=0"),
        ((*to("y", "{}/m"), "--kernel", "gausian"), "'linear'; did you mean 'gaussian'?"),
        ((*to("y", "{}/m"), "--set", "aplha=1"), "got 'aplha=1'; did you mean 'alpha'?"),
        (to("y", "-"), "'-' cannot be written: only tables go to standard output. Name a file."),
        ((*to("y", "{}/m"), "--method", "best"), "'best' is not one of 'auto'"),
        ((*to("y", "{}/m"), "--alpha", "low"), "must be loo, gcv, evidence or a number"),
        ((*to("y", "{}/m"), "--alpha", "-1"), "or a number of 0 or above; got '-1'"),
        ((*to("y", "{}/m"), "--alpha", "nan"), "or a number of 0 or above; got 'nan'"),
        ((*to("y", "{}/m"), "--lengthscale", "0"), "as 0.5 or 0.3,1,2; got '0'"),
        ((*to("y", "{}/m"), "--lengthscale", "1,,2"), "must be positive numbers, as 0.5"),
        ((*to("y", "{}/m"), "--kernel", "linear"), "the linear kernel has none; leave it out"),
        ((*to("y", "{}/m"), "--kernel", "auto"), "--kernel auto chooses it; leave it out"),
        ((*to("y", "{}/m"), "--nonsense"), "No such option"),
        (to("y", "{}/train.parquet"), "is one of the files to read. Choose another name"),
    ],
)  # fmt: skip
def test_a_command_not_understood_ends_with_2(folder, capsys, options, sentence):
    options = [option.replace("{}", str(folder)) for option in options]
    out, err = said(capsys, 2, "fit", folder / "train.parquet", *options)
    assert sentence.replace("{}", str(folder)) in err
    assert out == ""
    assert not (folder / "m").exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("predict", "m.bochner", "one.csv", "--out", "p.xlsx"), "must end in .parquet, .pq, .csv"),
        (("predict", "m.bochner", "one.csv", "--out", "one.csv"), "is one of the files to read"),
        (("predict", "m.bochner", "--out", "p.csv"), "Missing argument 'FILES...'"),
        (("predict", "m.bochner", "one.csv"), "Missing option '--out'"),
        (("check", "m.bochner"), "Missing argument 'FILES...'"),
        (("chekc",), "No such command 'chekc'"),
    ],
)  # fmt: skip
def test_other_commands_not_understood_end_with_2(folder, capsys, monkeypatch, arguments, sentence):
    monkeypatch.chdir(folder)
    out, err = said(capsys, 2, *arguments)
    assert sentence in err
    assert out == ""


def test_a_place_that_may_not_be_written_is_refused_before_the_work(folder, capsys, monkeypatch):
    access, shut = os.access, folder / "m.bochner"
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != shut and access(path, mode))
    _, err = said(capsys, 2, "fit", folder / "nowhere.csv", *to("y", shut))
    assert "cannot be written: the file there is read-only. Choose another name" in err
    monkeypatch.setattr(os, "access", lambda *_: False)
    _, err = said(capsys, 2, "fit", folder / "nowhere.csv", *to("y", shut))
    assert "may not be written to. Choose another" in err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("fit", "trian.parquet", *to("y", "x")), "'trian.parquet' (did you mean 'train"),
        (("fit", "train.parquet", *to("yy", "x")), "yy"),
        (("fit", "train.parquet", *to("c", "x")), "c"),
        (("fit", "train.parquet", *to("y", "x", "--lengthscale", "1,2")), "lengthscale"),
        (("fit", "train.parquet", *to("y", "x", *QUICK), "--features", "3"), "even number"),
        (("check", "train.parquet", "one.csv"), "as bochner.save writes it; it is a Parquet table"),
        (("check", "m.bochnr", "one.csv"), "no such file (did you mean 'm.bochner'?)"),
        (("check", "kernel", "one.csv"), "fitted learner, as bochner fit writes; it holds a Gau"),
        (("predict", "unfitted", "one.csv", "--out", "p.csv"), "it holds one that is not fitted."),
        (("check", "m.bochner", "missing.csv"), "'b'"),
    ],
)  # fmt: skip
def test_bad_data_or_models_end_with_1_and_one_sentence(
    folder, capsys, monkeypatch, arguments, sentence
):
    monkeypatch.chdir(folder)
    bo.save(Gaussian(), "kernel")
    bo.save(bo.KernelRidge(), "unfitted")
    Path("missing.csv").write_text("a,c\n1,red\n2,green\n")
    assert run([str(a) for a in arguments]) == 1
    out, err = capsys.readouterr()
    assert err.startswith("Error: ")
    assert err.count("\n") == 1
    assert sentence in err
    assert out == ""
    assert not {"x", "p.csv"} & {p.name for p in Path().iterdir()}


def test_debug_shows_where(folder, monkeypatch):
    monkeypatch.setenv("BOCHNER_DEBUG", "1")
    with pytest.raises(bo.errors.DataFileError, match="there is no file or folder"):
        run(["fit", "nowhere.csv", *to("y", folder / "x")])


def test_a_category_that_the_fit_has_not_seen_is_a_note(folder, tmp_path, capsys):
    (tmp_path / "blue.csv").write_text("a,b,c\n1,2,red\n2,3,blue\n")
    _, err = said(capsys, 0, "check", folder / "m.bochner", tmp_path / "blue.csv")
    assert re.search(r"Note: .*column 'c' has categories that the fit has not seen.*'blue'", err)


def test_defaults_are_those_of_the_library(folder, tmp_path, capsys):
    rows, there = folder / "train.parquet", tmp_path / "m"
    out, _ = said(capsys, 0, "fit", rows, "--target", "y", "--out", there)
    assert "The exact kernel of 300 rows" in out
    assert re.search(r"error leave-one-out RMSE 0\.\d+, R² 0\.\d+", out)
    assert "certificate none: the fit has the kernel itself, and nothing to certify." in out
    blocks = bo.Blocks.from_files(folder / "train.parquet", target="y")
    model = bo.KernelRidge(random_state=0).fit_blocks(blocks)
    assert bo.load(there).kernel_ == model.kernel_
    for command in ("check", "report"):
        written = ["--out", tmp_path / "r.html"] if command == "report" else []
        out, _ = said(capsys, 0, command, there, rows, *written)
        assert "nothing to certify" in out


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (KeyboardInterrupt(), 130, "Stopped; nothing was written."),
        (MemoryError(), 1, "Error: there is not enough memory. Ask for fewer features"),
        (RuntimeError("two\nlines"), 1, "Error: RuntimeError: two lines (BOCHNER_DEBUG=1 in"),
        (MissingDependency("Parquet needs pyarrow"), 1, "Error: Parquet needs pyarrow"),
    ],
)  # fmt: skip
def test_whatever_happens_in_a_fit_is_one_sentence(
    folder, tmp_path, capsys, monkeypatch, error, code, sentence
):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(bo.KernelRidge, "fit_blocks", fail)
    out, err = said(capsys, code, "fit", folder / "train.parquet", *to("y", tmp_path / "m"))
    assert err.strip().startswith(sentence)
    assert out == ""
    assert list(tmp_path.iterdir()) == []


def test_warnings_are_notes_of_one_line(folder, tmp_path, capsys):
    options = (*QUICK, "--precision", "float32", "--alpha", "1e-9", "--features", "128", "--quiet")
    assert run(["fit", f"{folder}/train.parquet", *to("y", tmp_path / "m", *options)]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("Note: alpha is below what float32 products of the features resolve")
    assert err.count("\n") == 1


def test_what_the_solver_advises_is_told(tmp_path, capsys):
    table = columns() | {"y": np.full(N, 2.0)}
    write_table(tmp_path / "t.parquet", table)
    out, _ = said(capsys, 0, "fit", tmp_path / "t.parquet", *to("y", tmp_path / "m"))
    assert "outcome The target is constant: the model predicts that constant everywhere." in out


def test_a_model_without_a_certificate_is_still_written(folder, tmp_path, capsys):
    arguments = ("fit", folder / "train.parquet", *to("y", tmp_path / "m"), "--alpha", "0")
    out, _ = said(capsys, 0, *arguments)
    assert "certificate none: certify: alpha must be a positive finite number; got 0.0." in out
    facts = json.loads(said(capsys, 0, *arguments, "--json")[0])
    assert facts["certificate"] is None
    assert facts["rmse"] is None
    assert bo.load(tmp_path / "m").alpha_ == 0


def test_a_terminal_gets_a_table_as_wide_as_it_is(folder, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    assert run(["check", str(folder / "m.bochner"), str(folder / "one.csv")]) == 0
    lines = re.sub(r"\x1b\[\d*m", "", capsys.readouterr().out).splitlines()
    assert max(map(len, lines)) <= 60
    assert len(lines) > 6


def test_quiet_says_nothing(folder, tmp_path, capsys):
    assert said(
        capsys, 0, "fit", folder / "train.parquet", *to("y", tmp_path / "m"), "--quiet"
    ) == ("", "")
    assert said(capsys, 0, "check", tmp_path / "m", folder / "train.parquet", "--quiet") == ("", "")


def test_help_names_every_command_and_option(capsys):
    out, _ = said(capsys, 0, "--help")
    for command in bochner.commands.values():
        assert command.name in out
        text, _ = said(capsys, 0, command.name, "--help")
        for option in command.params:
            assert option.opts[0] in text or option.name.upper() in text
    assert said(capsys, 0, "--version")[0] == f"bochner {bo.__version__} "


# --- progress ------------------------------------------------------------------------------------


def watch(blocks, passes):
    """Return what a terminal would be sent while the blocks are read."""
    stream = io.StringIO()
    with bar_for(Console(file=stream, force_terminal=True, width=120)) as bar:
        watched = blocks.watch(Passes(bar, blocks))
        for _ in range(passes):
            for _ in watched:
                bar.refresh()
    return re.sub(r"\x1b\[[\d;?]*\w", "", stream.getvalue())


def test_progress_shows_rows_rate_and_time_left():
    blocks = bo.Blocks.from_arrays(np.zeros((1000, 2)), block_rows=250)
    text = watch(blocks, 2)
    assert re.search(r"Reading .* 250 of 1,000 rows [\d,]+ rows/s", text)
    assert re.search(r"1,000 rows [\d,]+ rows/s 0:00:0\d", text)
    assert re.search(r"Computing .* 1,000 of 1,000 rows", text)
    assert re.search(r"Reading, pass 2 .* 500 of 1,000 rows", text)


def test_progress_counts_on_where_the_number_of_rows_is_not_known(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n" + "1,2\n" * 900)
    text = watch(bo.Blocks.from_files(tmp_path / "t.csv", block_rows=300), 2)
    assert re.search(r"Reading .* 600 rows [\d,]+ rows/s", text)
    assert " of " not in text[: text.index("600 rows")]
    assert re.search(r"Reading, pass 2 .* 300 of 900 rows", text)


def test_progress_says_how_many_workers_read():
    stream = io.StringIO()
    blocks = bo.Blocks.from_arrays(np.zeros((1000, 2)), block_rows=250)
    with bar_for(Console(file=stream, force_terminal=True, width=120)) as bar:
        passes = Passes(bar, blocks)
        blocks.watch(passes, passes.worked_by).worked_by(2)
        passes(500)
        bar.refresh()
    text = re.sub(r"\x1b\[[\d;?]*\w", "", stream.getvalue())
    assert re.search(r"500 of 1,000 rows [\d,]+ rows/s by 2 workers", text)


def test_progress_shows_the_stage_and_the_candidate_between_passes():
    stream = io.StringIO()
    blocks = bo.Blocks.from_arrays(np.zeros((1000, 2)), block_rows=250)
    with bar_for(Console(file=stream, force_terminal=True, width=120)) as bar:
        passes = Passes(bar, blocks)
        passes(1000)
        assert bar.tasks[0].total is None  # not at 100 % while the fit computes
        heading = "Choosing the kernel: candidate 3 of 7"
        passes.step(SimpleNamespace(heading=heading, detail="one lengthscale", number=3, total=7))
        assert (bar.tasks[0].completed, bar.tasks[0].total) == (3, 7)
        bar.refresh()
        passes(250)
        assert (bar.tasks[0].completed, bar.tasks[0].total) == (250, 1000)
    text = re.sub(r"\x1b\[[\d;?]*\w", "", stream.getvalue())
    assert re.search(r"Choosing the kernel: candidate 3 of 7 .* one lengthscale", text)


def test_progress_is_for_terminals_only(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    arguments = ("predict", folder / "m.bochner", folder / "one.csv", "--out", tmp_path / "p.csv")
    assert "rows/s" in said(capsys, 0, *arguments)[1]
    assert said(capsys, 0, *arguments, "--quiet") == ("", "")


# --- as a process --------------------------------------------------------------------------------


@contextmanager
def process(code, *arguments):
    """Run Python on ``code`` with these arguments; stop it if the test did not."""
    package = str(Path(bo.__file__).parents[1])
    with subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": package},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        try:
            yield running
        finally:
            running.kill()


MAIN = "from bochner.cli import main; main()"


def test_the_command_runs_as_a_process(folder):
    arguments = ("check", folder / "m.bochner", folder / "one.csv", "--json")
    with process(MAIN, *arguments) as running:
        out, err = running.communicate(timeout=120)
    assert running.returncode == 0, err
    assert json.loads(out)["rows"] == 50
    assert err == ""


def test_help_imports_nothing_heavy():
    heavy = [
        "numpy",
        "scipy",
        "sklearn",
        "pyarrow",
        "pandas",
        "rich.console",
        "matplotlib",
        "torch",
    ]
    code = (
        "import sys\nfrom bochner.cli import main\n"
        "try: main(['fit', '--help'])\nexcept SystemExit: pass\n"
        f"print('IMPORTED', [name for name in {heavy} if name in sys.modules])"
    )
    with process(code) as running:
        out, _ = running.communicate(timeout=120)
    assert out.endswith("IMPORTED []\n")
    assert "--lengthscale" in out


@pytest.mark.parametrize("missing", [["click"], ["rich"], ["click", "rich"]])
def test_without_its_packages_the_command_line_says_how_to_install_them(
    missing, monkeypatch, capsys
):
    for name in missing:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(SystemExit, match="2"):
        main(["--help"])
    err = capsys.readouterr().err
    assert f"the command line needs {' and '.join(missing)}, not installed here" in err
    assert 'pip install "bochner[cli]"' in err


def test_main_ends_with_the_code(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out.startswith("bochner ")


PAUSE_IN_SWEEP = """
import time
from bochner.sums.moments import Accumulator
def add(self, *_):
    print("here", flush=True)
    time.sleep(60)
Accumulator.add = add
"""
PAUSE_IN_WRITE = """
import os, time
def fsync(_):
    print("here", flush=True)
    time.sleep(60)
os.fsync = fsync
"""


@pytest.mark.main_cases(1)
@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize(
    ("pause", "number", "code"),
    [
        (PAUSE_IN_SWEEP, signal.SIGINT, 130),
        (PAUSE_IN_WRITE, signal.SIGINT, 130),
        (PAUSE_IN_WRITE, signal.SIGTERM, 143),
    ],
)
def test_stopping_a_fit_leaves_nothing_half_written(folder, tmp_path, pause, number, code):
    out = tmp_path / "m.bochner"
    out.write_bytes(b"as before")
    with process(pause + MAIN, "fit", folder / "train.parquet", *to("y", out)) as running:
        assert running.stdout.readline() == "here\n"
        running.send_signal(number)
        _, err = running.communicate(timeout=50)
    assert err.strip() == "Stopped; nothing was written."
    assert running.returncode == code
    assert out.read_bytes() == b"as before"
    assert [p.name for p in tmp_path.iterdir()] == ["m.bochner"]


def in_shell(folder, out, ending, **environment):
    """Fit in a shell with streams as ``ending`` leaves them."""
    package = str(Path(bo.__file__).parents[1])
    command = (
        f"'{sys.executable}' -c '{MAIN}' fit \"$0\" --target y --out \"$1\" --features 16 {ending}"
    )
    return subprocess.run(
        ["bash", "-c", command, str(folder / "train.parquet"), str(out)],
        env=os.environ | {"PYTHONPATH": package} | environment,
        capture_output=True,
        timeout=120,
        check=False,
    )


@pytest.mark.main_cases(1)
@pytest.mark.skipif(shutil.which("bash") is None, reason="needs a shell")
@pytest.mark.parametrize("ending", ["2>&-", "<&- >&- 2>&-", "--json >&-"])
def test_a_closed_stream_loses_no_fit(folder, tmp_path, ending):
    done = in_shell(folder, tmp_path / "m", ending)
    assert (done.returncode, done.stderr) == (0, b"")
    assert bo.load(tmp_path / "m").n_features_in_ == 3
    assert [p.name for p in tmp_path.iterdir()] == ["m"]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="needs a shell")
@pytest.mark.parametrize(
    ("environment", "epsilon"),
    [
        ({"PYTHONIOENCODING": "cp1252"}, b"\\u03b5"),
        ({"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, "ε".encode()),
    ],
)
def test_an_encoding_without_greek_letters_is_no_error(folder, tmp_path, environment, epsilon):
    done = in_shell(folder, tmp_path / "m", "", **environment)  # click takes ASCII for UTF-8
    assert (done.returncode, done.stderr) == (0, b"")
    assert epsilon in done.stdout
    done = in_shell(folder, tmp_path / "m", "--json", **environment)
    assert "ε" in json.loads(done.stdout.decode("ascii"))["certificate_words"]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="needs a shell")
def test_a_command_whose_reader_of_all_streams_is_gone_writes_its_model(folder, tmp_path):
    done = in_shell(folder, tmp_path / "m", "2>&1 | true")
    assert done.stderr == b""
    assert bo.load(tmp_path / "m").n_features_in_ == 3


def test_a_reader_that_goes_away_is_no_error(folder):
    with process(MAIN, "check", folder / "m.bochner", folder / "one.csv") as running:
        running.stdout.close()
        err = running.stderr.read()
        running.wait(timeout=120)
    assert err == ""
    assert running.returncode == 1


def test_predictions_go_to_standard_output_as_text_alone(folder, tmp_path, capsys):
    model, table = folder / "m.bochner", tmp_path / "p.csv"
    said(capsys, 0, "predict", model, folder / "test.csv", "--out", table)
    assert run(["predict", f"{model}", f"{folder}/test.csv", "--out", "-"]) == 0
    assert capsys.readouterr().out == table.read_text(encoding="utf-8")
