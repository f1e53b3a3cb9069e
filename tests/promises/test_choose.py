"""docs/choose.md says what its command prints, and the command runs."""

import re
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "choose.md").read_text()
#: Cases that take about a second at full size: their numbers on the page are made again.
QUICK = ("normal-3", "halving-9", "cubic", "histograms")


@pytest.fixture
def choose(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(ROOT), *sys.path])
    return import_module("benchmarks.choose"), import_module("benchmarks.harness").Options


def stated():
    """Errors of each case in the first table: of the methods to take, and of Fourier(IID())."""
    rows = [line.split("|")[1:-1] for line in PAGE.splitlines() if line.startswith("| ")]
    table = [[cell.strip() for cell in row] for row in rows if len(row) == 5]
    number = r"\d[\d.]*(?:e-?\d+)?"
    return [
        (row[4].strip("`"), [float(x) for x in re.findall(number, row[2])], row[1], row[3])
        for row in table
        if row[4].startswith("`")
    ]


def test_the_command_that_the_page_names_runs_every_case_at_a_small_size(choose):
    module, options = choose
    assert "`python -m benchmarks choose`" in PAGE
    rows = module.run(options(quick=True))
    assert {row["case"] for row in rows} == {c.name for c in module.CASES} | {"relief"}
    assert all(0 < row["error"] < 1.5 for row in rows if row["case"] != "relief")
    assert all(0 < row["R²"] < 1 for row in rows if row["case"] == "relief")


def test_errors_of_fast_transforms_are_those_that_their_command_prints(choose, monkeypatch):
    """Of fewer rows, to a tenth; no other command is named on the page."""
    _, options = choose
    assert re.findall(r"`python -m benchmarks ([^`]+)`", PAGE) == ["choose", "hadamard"]
    module = import_module("benchmarks.hadamard")
    monkeypatch.setattr(module, "_transforms", lambda _: [])
    found = module.run(options(quick=True))[0]
    assert found["case"] == "features 64 x 1024 to 8192"
    printed = found["error"], float(found["rival"].split()[-1])
    stated = re.search(r"d = 1024, D = 8192.*?errors (\.\d+) and (\.\d+)", PAGE, re.DOTALL)
    assert [float(error) for error in stated.groups()] == pytest.approx(printed, rel=0.1)


def test_the_page_states_rows_kernel_and_width_of_every_case(choose):
    module, _ = choose
    lines = [line for line in PAGE.splitlines() if line.startswith("| `")]
    assert {case for case, *_ in stated()} == {case.name for case in module.CASES}
    for case in module.CASES:
        line = next(line for line in lines if f"`{case.name}`" in line and line.count("|") == 5)
        assert line.split("|")[-2].strip() == str(case.n_features)
        if case.kernel is not None:
            assert type(case.kernel).__name__ in line


@pytest.mark.parametrize("name", QUICK)
def test_numbers_of_the_page_are_those_that_its_command_prints(choose, name):
    """To the two digits that are printed, and what rounding adds: a tenth."""
    module, options = choose
    case = next(case for case in module.CASES if case.name == name)
    found = {row["method"]: row["error"] for row in module.of_case(case, options())}
    checked = 0
    for which, errors, take, beside in stated():
        if which != name:
            continue
        methods = re.findall(r"`([^`]*)`", take)
        for method, error in zip(methods, errors, strict=True):
            match = [e for m, e in found.items() if m.startswith(method.split("(")[0])]
            assert any(np.isclose(error, e, rtol=0.1) for e in match)
            checked += 1
        if re.fullmatch(r"[\d.]+", beside):
            assert np.isclose(float(beside), found["Fourier(placement=IID())"], rtol=0.1)
    assert checked
