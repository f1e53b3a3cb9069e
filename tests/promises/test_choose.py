"""docs/choose.md says what its command prints, and the command runs."""

import json
import re
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.distance import pdist

import bochner as bo
import bochner.kernels

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "choose.md").read_text()
KEPT = ROOT / "docs" / "measured" / "choose.json"
METHOD, NUMBER = re.compile(r"`([^`]*)`"), re.compile(r"\d*\.?\d+(?:e-?\d+)?")


@pytest.fixture
def choose(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(ROOT), *sys.path])
    return import_module("benchmarks.choose"), import_module("benchmarks.harness").Options


@pytest.fixture(scope="module")
def kept():
    """What the command has printed at full size, by case and method; of the relief, by lengthscale."""
    record = json.loads(KEPT.read_text())
    assert record["quick"] is False
    return {(name_of(row), row["method"]): row for row in record["results"]["choose"]}


def name_of(row):
    return f"relief {row['lengthscale']}" if row["case"] == "relief" else row["case"]


def stated():
    """Each error of the first table, as text: its case, the method by what it prints as, the error.

    The second column has the methods to take, the third an error of each, the fourth the error of
    independent Fourier features, or no features at all, and of others that are named there.
    """
    for line in PAGE.splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) == 5 and cells[4].startswith("`"):
            case = cells[4].strip("`")
            methods, errors = METHOD.findall(cells[1]), NUMBER.findall(cells[2])
            yield from ((case, m, e) for m, e in zip(methods, errors, strict=True))
            beside = cells[3].removeprefix("none").strip("; ")
            named = METHOD.findall(beside) or ["Fourier(IID())"]
            errors = NUMBER.findall(METHOD.sub("", beside))
            yield from ((case, m, e) for m, e in zip(named[: len(errors)], errors, strict=True))


def evaluated(text, package):
    """The value that code of the page makes, with the names of a package."""
    return eval(text, {name: getattr(package, name) for name in package.__all__})


def shown(method):
    """What a method of the page prints as."""
    return str(evaluated(method, bo))


def rounded(value, text):
    """Whether a number, rounded to the digits of the text, is that of the text."""
    digits = len(re.sub(r"e.*|\.", "", text).lstrip("0")) or 1
    return float(f"{value:.{digits - 1}e}") == float(text)


def test_the_command_that_the_page_names_runs_every_case_at_a_small_size(choose):
    module, options = choose
    assert "`python -m benchmarks choose`" in PAGE
    rows = module.run(options(quick=True))
    assert {row["case"] for row in rows} == {c.name for c in module.CASES} | {"relief"}
    assert all(0 < row["error"] < 1.5 for row in rows if row["case"] != "relief")
    assert all(0 < row["R²"] < 1 for row in rows if row["case"] == "relief")


@pytest.mark.slow
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


def test_every_error_of_the_page_is_one_that_was_kept(kept):
    """To the digits that are printed."""
    said = list(stated())
    assert {case for case, *_ in said} == {row["case"] for row in kept.values()} - {"relief"}
    wrong = [s for s in said if not rounded(kept[s[0], shown(s[1])]["error"], s[2])]
    assert not wrong


def test_scores_of_fits_are_those_that_were_kept(kept):
    """R² of fits to the relief: a list of three for each method, as the page has its methods."""
    text = re.search(r"With lengthscales 1, ½ and ¼ R² is (.*?)\n\n", PAGE, re.DOTALL)[1]
    lists = re.findall(r"([\d.]+), ([\d.]+)\s+and ([\d.]+) by\s`(.*?)`", text)
    assert len(lists) == 4
    for *scores, method in lists:
        for scale, score in zip((1.0, 0.5, 0.25), scores, strict=True):
            assert rounded(kept[f"relief {scale}", shown(method)]["R²"], score)


def test_kernels_of_the_page_are_those_of_its_command(choose):
    """A lengthscale that is no choice is the median distance of 500 rows: to the digits printed."""
    module, _ = choose
    cases = {case.name: case for case in module.CASES}
    for name, kernel in described():
        case = cases.pop(name)
        if case.kernel is None:
            rows = case.law(np.random.default_rng(0), 2000)[:500]
            assert rounded(np.median(pdist(rows)), NUMBER.search(kernel)[0])
        else:
            assert evaluated(kernel, bochner.kernels) == case.kernel
    assert not cases


def described():
    """Each case of the second table, and its kernel as text."""
    for line in PAGE.splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) == 4 and cells[3].isdecimal():
            names, kernels = METHOD.findall(cells[0]), METHOD.findall(cells[2])
            yield from zip(
                names, kernels * len(names) if len(kernels) == 1 else kernels, strict=True
            )


def test_rows_and_seeds_of_the_page_are_those_of_its_command(choose):
    module, _ = choose
    text = " ".join(PAGE.split())
    seeds = f"{', '.join(map(str, module.SEEDS[:-1]))} and {module.SEEDS[-1]}"
    assert f"on {module.NEW:,} rows" in text
    assert f"drawn with {module.DRAWN_WITH:,} other rows" in text
    assert f"over seeds {seeds}" in text
    assert f"{module.RELIEF:,} cells of the relief of the Earth with D = {module.RELIEF_D}" in text


@pytest.mark.slow
def test_what_was_kept_is_what_the_command_prints(choose, kept):
    """To a tenth: random numbers of other processors may differ in the last digits.

    Errors below 1e-12 are rounding. Fits to the relief, a minute, are those of the command alone.
    """
    module, options = choose
    for row in (row for case in module.CASES for row in module.of_case(case, options())):
        before = kept[row["case"], row["method"]]
        assert row["error"] == pytest.approx(before["error"], rel=0.1, abs=1e-12)
        assert row["D"] == before["D"]
