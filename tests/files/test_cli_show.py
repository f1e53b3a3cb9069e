"""What is inside a model file, errors as JSON, and completion in shells."""

import json

import numpy as np
import pandas as pd
import pytest

import bochner as bo
from bochner.cli.running import run


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    a = rng.normal(size=120)
    return pd.DataFrame(
        {
            "a": a,
            "same": a,
            "when": pd.date_range("2020-01-01", periods=120, freq="D"),
            "city": rng.choice(["x", "y"], 120),
            "y": a**2 + 0.1 * rng.normal(size=120),
        }
    )


@pytest.fixture(scope="module")
def model(tmp_path_factory, table):
    """A model file of columns of all kinds, one left out."""
    path = tmp_path_factory.mktemp("show") / "m.bochner"
    table.to_csv(path.with_suffix(".csv"), index=False)
    line = ["fit", str(path.with_suffix(".csv")), "--target", "y", "--out", str(path), "--quiet"]
    assert run([*line, "--set", "effort=low", "--set", "alpha=0.01"]) == 0
    return path


def test_show_says_what_the_fit_was(model, capsys):
    assert run(["show", str(model), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    found = bo.load(model)
    assert facts["model"] == "KernelRidge"
    assert (facts["rows"], facts["alpha"]) == (120, found.alpha_)
    assert facts["kernel"] == repr(found.kernel_)
    assert facts["targets"] == ["y"]
    assert facts["parameters"] == {"alpha": "0.01", "effort": "'low'", "random_state": "0"}
    assert facts["bytes"] == model.stat().st_size


def test_show_prints_the_candidates_that_were_compared(tmp_path, table, capsys):
    rows = table[["a", "city"]]
    found = bo.KernelRidge(random_state=0).fit(rows, table["y"])
    bo.save(found, tmp_path / "m.bochner")
    assert run(["show", str(tmp_path / "m.bochner")]) == 0
    assert str(found.search_) in capsys.readouterr().out
    assert run(["show", str(tmp_path / "m.bochner"), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["search"]
    assert [c["rank"] for c in shown] == list(range(1, len(found.search_.compared) + 1))
    assert sum(c["chosen"] for c in shown) == 1


def test_show_says_what_columns_become(model, capsys):
    assert run(["show", str(model)]) == 0
    told = capsys.readouterr().out
    assert "column       a: number\n" in told
    assert "column       same: left out (the same as another column)\n" in told
    assert "column       city: becomes city=x, city=y\n" in told
    assert "when: becomes when (days)" in told


def test_show_of_many_columns_ends(tmp_path, capsys):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(60, 45)), columns=[f"c{i}" for i in range(45)])
    blocks = bo.Blocks.from_table(X.assign(y=X["c0"]), target="y")
    bo.save(bo.KernelRidge("linear", random_state=0).fit_blocks(blocks), tmp_path / "m")
    assert run(["show", str(tmp_path / "m")]) == 0
    told = capsys.readouterr().out
    assert "column       c39: number\ncolumn       and 5 more\n" in told


def test_show_of_no_learner_says_what_it_is(tmp_path, capsys):
    bo.save(
        bo.draw(bo.kernels.Gaussian(), bo.Fourier(), n_features=8, n_inputs=2), tmp_path / "map"
    )
    assert run(["show", str(tmp_path / "map"), "--json"]) == 0
    assert "Fourier" in json.loads(capsys.readouterr().out)["model"]


@pytest.mark.parametrize(
    ("line", "code", "kind", "sentence"),
    [
        (("show", "nowhere"), 1, "ModelFileError", "there is no such file"),
        (("show",), 2, "UsageError", "Missing argument 'MODEL'"),
        (("fit", "nowhere.csv", "--target", "y", "--out", "m"), 1, "", "nowhere.csv"),
    ],
)
def test_errors_are_json_where_it_is_asked_for(line, code, kind, sentence, tmp_path, capsys):
    assert run([*line, "--json"]) == code
    told = json.loads(capsys.readouterr().out)
    assert told["exit_code"] == code
    assert kind in told["kind"]
    assert sentence in told["error"]


def test_a_command_is_completed(monkeypatch, capsys):
    monkeypatch.setenv("_BOCHNER_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "bochner sh")
    monkeypatch.setenv("COMP_CWORD", "1")
    with pytest.raises(SystemExit, match="0"):
        run([])
    assert "plain,show" in capsys.readouterr().out
