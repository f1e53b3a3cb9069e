"""bochner plan: what it prints, in words and in JSON, and what it refuses."""

import json

import numpy as np
import pandas as pd
import pytest

from bochner.cli.running import run


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("plan"), np.random.default_rng(0)
    a = rng.normal(size=200)
    rows = pd.DataFrame({"a": a, "c": rng.choice(["red", "green"], 200), "y": np.sin(2 * a)})
    rows.to_parquet(folder / "rows.parquet")
    return folder / "rows.parquet"


def told(capsys, table, *options):
    code = run(
        [
            "plan",
            str(table),
            "--kernel",
            "gaussian",
            "--lengthscale",
            "1",
            "--widths",
            "8,16",
            *options,
        ]
    )
    return code, capsys.readouterr()


def test_plan_prints_a_table_and_the_reason(table, capsys):
    code, out = told(capsys, table, "--target", "y")
    assert code == 0, out.err
    lines = out.out.splitlines()
    assert lines[0].startswith("Gaussian(lengthscale=1.0), 200 rows of 3 columns; any time and")
    assert [line for line in lines if line.startswith(">")]
    assert [line for line in lines if line.startswith(">")][-1].startswith("> The exact kernel, by")


def test_plan_gives_all_numbers_as_json(table, capsys):
    code, out = told(
        capsys, table, "--target", "y", "--seconds", "100", "--memory", "1e9", "--json"
    )
    facts = json.loads(out.out)
    assert code == 0
    assert (facts["rows"], facts["columns"]) == (200, 3)
    assert facts["choice"] in facts["fits"]
    assert facts["choice"]["seconds"] < 100


@pytest.mark.parametrize(
    ("options", "code", "sentence"),
    [
        ((), 2, "Missing option '--target'"),
        (("--target", "z"), 1, "z"),
        (("--target", "c"), 1, "target 'c' must hold numbers; got text ('green', 'red')"),
        (("--target", "y", "--seconds", "-3"), 2, "-3"),
        (("--target", "y", "--seconds", "1e-9"), 1, "no fit is predicted to take at most"),
        (("--target", "y", "--memory", "10"), 1, "no fit is predicted to take at most"),
        (("--target", "y", "--widths", "8,x"), 2, "whole numbers separated by commas"),
        (("--target", "y", "--kernel", "best"), 2, "best"),
    ],
)
def test_plan_says_what_is_wrong(table, capsys, options, code, sentence):
    found, out = told(capsys, table, *options)
    assert found == code
    assert sentence in out.err
    assert "Traceback" not in out.err
