"""Pages of the documentation: code, commands, links, lists, citations and printed numbers."""

import re
import shlex
import unicodedata
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import bochner
import bochner as bo
import bochner.kernels
from bochner import errors, kernels
from bochner.cli import main
from bochner.datasets import load_concrete
from bochner.solvers.ridge.solution import Outcome

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "bochner"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PAGES += sorted((ROOT / "docs" / "guide").glob("*.md"))
PAGES += sorted((ROOT / "docs" / "tutorials").glob("*.md"))
ALL_PAGES = [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
TEXT = "\n".join(path.read_text(encoding="utf-8") for path in ALL_PAGES)


def blocks(text, language):
    """Return the fenced blocks of one language, each with the number of its first line."""
    fences = re.finditer(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [(text.count("\n", 0, m.start(1)) + 1, m.group(1)) for m in fences]


def run_page(text, name):
    """Run all Python blocks of a page in order, in one namespace; return it."""
    space = {"__name__": "page"}
    for line, code in blocks(text, "python"):
        exec(compile("\n" * (line - 1) + code, name, "exec"), space)  # noqa: S102
    return space


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return a folder with small tables that the pages use."""
    pa, csv, pq = (pytest.importorskip(f"pyarrow{name}") for name in ("", ".csv", ".parquet"))
    rng = np.random.default_rng(0)
    distance, hour = rng.uniform(100, 3000, 160), rng.integers(0, 24, 160)
    delay = 10 * np.sin(hour / 4) + distance / 200 + rng.normal(0, 2, 160)
    airline = rng.choice(["A", "B"], 160)
    flights = pa.table({"distance": distance, "hour": hour, "airline": airline, "delay": delay})
    (tmp_path / "flights").mkdir()
    for i in range(2):
        pq.write_table(flights[80 * i : 80 * i + 80], tmp_path / "flights" / f"{i}.parquet")
    table = flights.rename_columns(["distance", "hour", "airline", "y"])
    pq.write_table(table, tmp_path / "train.parquet")
    pq.write_table(table[:100], tmp_path / "data.parquet")
    csv.write_csv(table.drop_columns(["y"])[:50], tmp_path / "new.csv")
    monkeypatch.chdir(tmp_path)
    return tmp_path


# ---- code

WITH_PYTHON = [p.relative_to(ROOT).as_posix() for p in PAGES if "```python" in p.read_text()]


@pytest.mark.main_cases(6)
@pytest.mark.parametrize(
    ("name", "step"),
    [*((name, 6) for name in WITH_PYTHON[:6]), *((name, 1) for name in WITH_PYTHON)],
)
@pytest.mark.usefixtures("folder")
def test_python_blocks_of_a_page_run(name, step, monkeypatch):
    """The first pages also, and first, with each sixth row of the concrete data."""
    data = load_concrete()
    part = replace(data, X=data.X[::step], y=data.y[::step])
    monkeypatch.setattr("bochner.datasets.load_concrete", lambda: part)
    run_page((ROOT / name).read_text(encoding="utf-8"), name)


def commands(text):
    """Return the arguments of bochner in shell blocks; the demo has its own tests."""
    lines = "\n".join(code for _, code in blocks(text, "sh")).splitlines()
    calls = [shlex.split(line, comments=True) for line in lines]
    return [words[1:] for words in calls if words[:1] == ["bochner"] and words[1] != "demo"]


@pytest.mark.main_cases(1)
@pytest.mark.parametrize(
    "name", ["README", *(f"docs/{n}" for n in ("index", "guide/cli", "guide/report", "guide/plan"))]
)
def test_commands_of_a_page_run(name, folder, capfd):
    calls = commands((ROOT / f"{name}.md").read_text(encoding="utf-8"))
    assert calls
    for words in calls:
        with pytest.raises(SystemExit) as stopped:
            main(words)
        assert stopped.value.code == 0, capfd.readouterr().err
    assert name != "README" or (folder / "predictions.parquet").exists()


# ---- complete lists


def test_all_public_names_are_on_a_page():
    pattern = r"`[^`\n]*\b{0}\b[^`\n]*`|\b(bo|bochner)\.{0}\b"
    names = (*bochner.__all__, *kernels.__all__)
    assert [name for name in names if not re.search(pattern.format(name), TEXT)] == []


def test_all_errors_warnings_and_outcomes_have_a_remedy():
    page = (ROOT / "docs" / "failures.md").read_text(encoding="utf-8")
    names = (*errors.__all__, *Outcome.__members__)
    assert [name for name in names if f"`{name}`" not in page] == []


def test_experiments_named_on_pages_exist():
    import_module("benchmarks.__main__")
    present = set(import_module("benchmarks.bench").EXPERIMENTS)
    readme = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    assert present <= set(re.findall(r"`(\w+)`", readme))
    files = {p.name for p in (ROOT / "benchmarks").glob("*.py")} - {"__init__.py", "__main__.py"}
    assert files == set(re.findall(r"`(\w+\.py)`", readme))
    sources = [*ALL_PAGES, *SOURCE.rglob("*.py"), ROOT / "benchmarks" / "README.md"]
    text = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    named = re.findall(r"python -m benchmarks((?: [a-z_]+)+)", text)
    assert {name for names in named for name in names.split()} <= present
    assert set(re.findall(r"benchmarks\.(\w+)", text)) <= {"pages"}


# ---- the search of the site ranks words of headings first

SEARCHES = {
    "grid": ("kriging", "time series"),
    "kernels": ("rbf",),
    "tables": ("missing values", "one-hot"),
    "engines": ("gpu",),
    "export": ("onnx",),
    "tuning": ("ard", "gridsearchcv"),
    "gaussian_process": ("sparse gp",),
    "fourier": ("random fourier features",),
    "classification": ("calibration", "imbalance"),
    "why": ("shap",),
}


def test_search_words_are_in_headings_of_their_page():
    for page, searches in SEARCHES.items():
        text = (ROOT / "docs" / "guide" / f"{page}.md").read_text(encoding="utf-8")
        headings = " ".join(re.findall("^#+ .*", text, re.MULTILINE)).lower()
        assert [words for words in searches if words not in headings] == [], page


# ---- links


def targets(path):
    """Return the files of the project that links of a page lead to."""
    links = re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8"))
    return {t.partition("#")[0] for t in links if "://" not in t} - {""}


def test_linked_files_and_named_pages_exist():
    links = ((path, t) for path in ALL_PAGES for t in sorted(targets(path)))
    assert [(path.name, t) for path, t in links if not (path.parent / t).exists()] == []
    texts = (path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py"))
    named = {name for text in texts for name in re.findall(r"docs/[\w.]+\w", text)}
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


# ---- the bibliography


def plain(text):
    """Return text without braces, backslashes and accents of TeX."""
    letters = unicodedata.normalize("NFKD", re.sub(r"\\[^a-zA-Z]|\\[a-zA-Z] ?|[{}\\]", "", text))
    return "".join(c for c in letters if not unicodedata.combining(c))


def bibliography():
    """Return {key: (surnames of the authors, year)}."""
    text = (ROOT / "docs" / "references.bib").read_text(encoding="utf-8")
    entries = {}
    for key, body in re.findall(r"^@\w+\{(\w+),\n(.*?)^\}$", text, re.DOTALL | re.MULTILINE):
        fields = dict(re.findall(r"^  (\w+) = \{(.*)\},$", body, re.MULTILINE))
        authors = {plain(a.partition(",")[0]) for a in fields["author"].split(" and ")}
        entries[key] = (authors, fields["year"])
    assert len(entries) == text.count("\n@")
    return entries


def cited_keys(text):
    return set(re.findall(r"\[@(\w+)", text))


NAMED = re.compile(r"\b([^\W\d_][\w'’-]+)(?: et al\.)?(?: | \()((?:19|20)\d\d)(?=[,;)])")


def cited_in(source):
    """Return (surname, year) of works cited in words, as ``Rahimi and Recht (2007)``."""
    return {(plain(name), year) for name, year in NAMED.findall(source) if name[0].isupper()}


def test_cited_works_are_in_the_bibliography():
    assert cited_keys(TEXT) - set(bibliography()) == set()
    present = {(name, year) for names, year in bibliography().values() for name in names}
    for path in SOURCE.rglob("*.py"):
        assert cited_in(path.read_text(encoding="utf-8")) - present == set(), path


def test_all_entries_of_the_bibliography_are_cited():
    words = {pair for p in SOURCE.rglob("*.py") for pair in cited_in(p.read_text(encoding="utf-8"))}
    keys = cited_keys(TEXT)
    uncited = {
        key
        for key, (names, year) in bibliography().items()
        if key not in keys and not words & {(name, year) for name in names}
    }
    assert uncited == set()


# ==== docs/choose.md has the numbers of its command, and the command runs.

PAGE = (ROOT / "docs" / "choose.md").read_text()
METHOD, NUMBER = re.compile(r"`([^`]*)`"), re.compile(r"\d*\.?\d+(?:e-?\d+)?")


@pytest.fixture
def records():
    """Return recorded results of the command, by case and method."""
    rows = import_module("benchmarks.pages").records()["choose"]
    return {(row["case"], row["who"]): row for row in rows}


def stated():
    """Yield case, method and error (as text) of the first table.

    The second column has the recommended methods, the third their errors, the fourth the error of
    independent Fourier features (or none) and of other methods that it names.
    """
    for line in PAGE.splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) == 5 and cells[4].startswith("`"):
            case = cells[4].strip("`")
            methods, errors = METHOD.findall(cells[1]), NUMBER.findall(cells[2])
            yield from ((case, m, e) for m, e in zip(methods, errors, strict=True))
            last = cells[3].removeprefix("none").strip("; ")
            names = METHOD.findall(last) or ["Fourier(IID())"]
            errors = NUMBER.findall(METHOD.sub("", last))
            yield from ((case, m, e) for m, e in zip(names[: len(errors)], errors, strict=True))


def evaluated(text, package):
    """Return the value of an expression on the page, with the public names of a package."""
    return eval(text, {name: getattr(package, name) for name in package.__all__})


def text_of(method):
    """Return the printed form of a method on the page."""
    return str(evaluated(method, bo))


def rounded(value, text):
    """Return whether a number equals the text, rounded to its digits."""
    digits = len(re.sub(r"e.*|\.", "", text).lstrip("0")) or 1
    return float(f"{value:.{digits - 1}e}") == float(text)


def test_the_command_of_the_page_runs_all_cases_at_a_small_size():
    module, options = import_module("benchmarks.maps"), import_module("benchmarks.bench").Options
    assert "`python -m benchmarks choose`" in PAGE
    rows = list(module.choose(options(quick=True)))
    reliefs = {f"relief {scale}" for scale in (1.0, 0.5, 0.25)}
    assert {row["case"] for row in rows} == {c.name for c in module.CASES} | reliefs
    assert all(0 < row["error"] < 1.5 for row in rows if row["case"] not in reliefs)
    assert all(0 < row["R²"] < 1 for row in rows if row["case"] in reliefs)


def test_errors_of_the_page_are_those_of_the_records(records):
    """Up to the printed digits."""
    errors = list(stated())
    assert {c for c, *_ in errors} == {case for case, _ in records if not case.startswith("relief")}
    assert not [e for e in errors if not rounded(records[e[0], text_of(e[1])]["error"], e[2])]
