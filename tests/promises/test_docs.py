"""The documentation is complete, its examples run, and its tutorial of a first change works."""

import inspect
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import warnings
from importlib import import_module
from importlib.util import find_spec
from itertools import takewhile
from os.path import normpath
from pathlib import Path

import numpy as np
import pytest

import bochner
import bochner as bo
from bochner import certificates, datasets, engines, errors, export, kernels, landmarks

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
EXAMPLES = sorted((DOCS / "examples").glob("plot_*.py"))
PICTURE = re.compile(r"auto_examples/images/sphx_glr_(\w+)_(\d{3})\.png")

#: Modules that are public names of the package.
MODULES = ("certificates", "engines", "errors", "export", "kernels", "landmarks")

#: Folders that Sphinx generates.
GENERATED = ("_build", "api/generated", "auto_examples")


def pages(folder=DOCS):
    """Return the names of all pages, as they are in toctrees."""
    names = (p.relative_to(folder) for e in ("md", "rst") for p in folder.rglob(f"*.{e}"))
    names = {n.with_suffix("").as_posix() for n in names}
    return {n for n in names if not n.startswith((*GENERATED, "api/templates", "examples"))}


def source(name, folder=DOCS):
    paths = [folder / f"{name}.{ending}" for ending in ("md", "rst")]
    return next(path for path in paths if path.exists()).read_text(encoding="utf-8")


def entries(text):
    """Return the entries of all toctrees of a page, without options."""
    trees = re.findall(r"```\{toctree\}\n(.*?)```", text, re.DOTALL)
    trees += re.findall(r"^\.\. toctree::\n((?:[ ]{3}.*\n|\n)*)", text, re.MULTILINE)
    lines = [line.strip() for tree in trees for line in tree.splitlines()]
    entries_ = [line for line in lines if line and not line.startswith(":")]
    return [re.sub(r".*<(.+)>$", r"\1", line) for line in entries_]


def test_all_pages_are_in_the_table_of_contents():
    visited, new = set(), {"index"}
    while new:
        visited |= new
        targets = {normpath(Path(name).parent / e) for name in new for e in entries(source(name))}
        new = targets & pages() - visited
    assert pages() - visited == set()


# ---- pages of public names


def reference_names():
    """Return the full names in the reference."""
    names = []
    for path in sorted((DOCS / "api").glob("*.rst")):
        text = path.read_text(encoding="utf-8")
        module = re.search(r"^\.\. currentmodule:: ([\w.]+)$", text, re.MULTILINE)
        for part in re.findall(r"^ {3}:toctree: generated\n\n((?: {3}\S+\n)+)", text, re.MULTILINE):
            names += [f"{module[1]}.{name}" for name in part.split()]
    return names


def value(name):
    module, _, last = name.rpartition(".")
    return getattr(import_module(module), last)


def test_pages_of_estimators_list_inherited_methods():
    """As Sphinx: documented methods of the class and of bases before those that it excludes."""
    template = (DOCS / "api/templates/autosummary/class.rst").read_text(encoding="utf-8")
    assert "   :members:\n" in template
    (bases,) = re.findall(r":inherited-members: (.+)", template)
    classes = [v for v in map(value, reference_names()) if isinstance(v, type)]
    learners = [v for v in classes if hasattr(v, "set_params")]
    assert len(learners) >= 14
    for learner in learners:
        kinds = takewhile(lambda kind: kind.__name__ not in bases.split(", "), learner.__mro__)
        documented = {n for kind in kinds for n, member in vars(kind).items() if member.__doc__}
        expected = {"fit", "fit_blocks", "set_params", "predict", "predict_interval", "score"}
        expected |= {"transform", "predict_proba", "decision_function", "partial_fit"}
        assert {name for name in expected if hasattr(learner, name)} <= documented, learner


def test_the_reference_lists_each_public_name_once():
    names = [name for name in bochner.__all__ if name not in MODULES]
    expected = [value(f"bochner.{name}") for name in names]
    parts = (kernels, landmarks, errors, engines, export)
    for part in (*parts, datasets, certificates):
        expected += [getattr(part, name) for name in part.__all__]
    listed_ids = [id(value(name)) for name in reference_names()]
    assert len(listed_ids) == len(set(listed_ids))
    assert [w for w in expected if id(w) not in listed_ids] == []


def test_described_parameters_are_arguments():
    for name in reference_names():
        doc = inspect.getdoc(value(name)) or ""
        part = re.search(r"\nParameters\n-+\n(.*?)(\n\n[A-Z][\w ]+\n---|$)", doc, re.DOTALL)
        heads = re.findall(
            r"^(\*{0,2}\w+(?:, \*{0,2}\w+)*) : ", part[1] if part else "", re.MULTILINE
        )
        described = {parameter.lstrip("*") for head in heads for parameter in head.split(", ")}
        if described:
            assert described <= set(inspect.signature(value(name)).parameters), name


# ---- examples and their pictures


def wanted_pictures():
    pictures = [PICTURE.findall(source(name)) for name in sorted(pages())]
    return {(script, int(number)) for of_page in pictures for script, number in of_page}


@pytest.mark.main_cases(7)
@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.stem)
def test_examples_run_and_draw_the_pictures_of_the_pages(script):
    pytest.importorskip("matplotlib").use("Agg")
    plt = pytest.importorskip("matplotlib.pyplot")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "FigureCanvasAgg is non-interactive")
        try:
            runpy.run_path(str(script), run_name="__main__")
            n_figures = len(plt.get_fignums())
        finally:
            plt.close("all")
    numbers = [number for name, number in wanted_pictures() if name == script.stem]
    assert n_figures >= max(numbers, default=1)


def test_each_example_is_linked_from_a_page():
    text = "\n".join(source(name) for name in sorted(pages()))
    assert [p.stem for p in EXAMPLES if f"auto_examples/{p.stem}>" not in text] == []


# ==== The tutorial of a first change, applied to a copy of the source.

PAGE = (ROOT / "docs" / "first_change.md").read_text(encoding="utf-8")
#: Removes the finder of the editable installation, which precedes all paths.
AS_COPIED = """
import sys

sys.meta_path = [f for f in sys.meta_path if not type(f).__name__.startswith("ScikitBuild")]
"""
STEPS = re.compile(r"^```(py|diff)\n# (\S+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def apply_diff(text, lines):
    """Return a file without lines marked by -, and with those of + below the lines before them."""
    file = text.split("\n")
    at = 0
    for line in lines:
        if line.startswith("+"):
            file.insert(at, line[1:])
            at += 1
            continue
        places = [i for i, content in enumerate(file) if content == line[1:]]
        assert places, f"no line {line[1:]!r}"
        at = next((i for i in places if i == at), places[0]) + 1
        if line.startswith("-"):
            at -= 1
            del file[at]
    return "\n".join(file)


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """Return a copy of source and tests, changed by the steps of the page."""
    folder = tmp_path_factory.mktemp("copy")
    ignored = shutil.ignore_patterns("__pycache__", "_build", "generated", "auto_examples")
    for name in ("src", "tests", "docs"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    for file in (ROOT / "pyproject.toml", *ROOT.glob("*.md")):
        shutil.copy(file, folder)
    (folder / "site").mkdir()
    (folder / "site" / "sitecustomize.py").write_text(AS_COPIED, encoding="utf-8")
    for kind, path, text in STEPS.findall(PAGE):
        file = folder / path
        if kind == "py":
            file.write_text(text, encoding="utf-8")
        else:
            new = apply_diff(file.read_text(encoding="utf-8"), text.splitlines())
            file.write_text(new, encoding="utf-8")
    return folder


def run(copy, words):
    paths = os.pathsep.join(str(copy / name) for name in ("site", "src", "tests"))
    env = os.environ | {"PYTHONPATH": paths, "BOCHNER_PURE_PYTHON": "1"}
    return subprocess.run(words, cwd=copy, capture_output=True, text=True, env=env, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(3))
def test_commands_of_the_page_pass_on_the_changed_source(copy, number):
    commands = re.findall(r"^```sh\n(.*?)\n```$", PAGE, re.DOTALL | re.MULTILINE)
    assert len(commands) == 3
    words = shlex.split(commands[number])
    assert words[:1] == ["python"]
    result = run(copy, [sys.executable, *words[1:], "-q", "-p", "no:cacheprovider"])
    assert result.returncode == 0, result.stdout[-3000:]
    assert int(re.search(r"(\d+) passed", result.stdout)[1]) >= 4


@pytest.mark.parametrize("words", [("check",), ("format", "--check")], ids=" ".join)
def test_the_changed_source_passes_ruff(copy, words):
    pytest.importorskip("ruff")
    result = run(copy, [sys.executable, "-m", "ruff", *words, "--no-cache", "src/bochner", "tests"])
    assert result.returncode == 0, result.stdout


@pytest.mark.slow
def test_the_kernel_of_the_page_is_supported_like_others(tmp_path, monkeypatch):
    """Maps, checks, printing and graphs work for a kernel outside of the package."""
    code = next(text for kind, path, text in STEPS.findall(PAGE) if path == "my_kernels.py")
    assert len(code.splitlines()) <= 25
    (tmp_path / "my_kernels.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    Sech = import_module("my_kernels").Sech
    X = np.random.default_rng(0).standard_normal((300, 2))
    y, kernel = np.sin(X[:, 0]), Sech(1.5)
    assert repr(kernel) == "Sech(lengthscale=1.5)"
    assert bo.check_kernel(kernel, X).ok
    K = kernel(X)
    methods = ["iid", "qmc", "leverage", "grid", "hermite", "nystrom"]
    for method in (*methods, bo.LaplacianEigenfunctions(), bo.Compressed(bo.Nystrom())):
        phi = bo.draw(kernel, method, n_features=256, X=X, random_state=0)
        assert np.linalg.norm(phi(X) @ phi(X).T - K) < 0.15 * np.linalg.norm(K), method
    if find_spec("onnx"):
        waves = bo.KernelRidge(kernel, method="iid", n_features=64, random_state=0).fit(X, y)
        assert bo.export.to_onnx(waves).graph.node
