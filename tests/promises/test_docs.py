"""The documentation is whole, its examples run, and its walk-through of a first change works."""

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

#: Modules that are handed out whole.
MODULES = ("certificates", "engines", "errors", "export", "kernels", "landmarks")

#: What Sphinx makes while it builds.
MADE = ("_build", "api/generated", "auto_examples")


def pages(folder=DOCS):
    """The names of all pages, as a toctree has them."""
    names = (p.relative_to(folder) for e in ("md", "rst") for p in folder.rglob(f"*.{e}"))
    kept = [n for n in names if not n.as_posix().startswith((*MADE, "api/templates", "examples"))]
    return {n.with_suffix("").as_posix() for n in kept}


def source(name, folder=DOCS):
    found = [folder / f"{name}.{ending}" for ending in ("md", "rst")]
    return next(path for path in found if path.exists()).read_text(encoding="utf-8")


def entries(text):
    """The lines of all toctrees of a page, without their options."""
    trees = re.findall(r"```\{toctree\}\n(.*?)```", text, re.DOTALL)
    trees += re.findall(r"^\.\. toctree::\n((?:[ ]{3}.*\n|\n)*)", text, re.MULTILINE)
    lines = [line.strip() for tree in trees for line in tree.splitlines()]
    kept = [line for line in lines if line and not line.startswith(":")]
    return [re.sub(r".*<(.+)>$", r"\1", line) for line in kept]


def test_every_page_is_in_the_table_of_contents():
    found, new = set(), {"index"}
    while new:
        found |= new
        listed = {normpath(Path(name).parent / e) for name in new for e in entries(source(name))}
        new = listed & pages() - found
    assert pages() - found == set()


# ---- every name has its page


def listed():
    """The names of the reference, in full."""
    found = []
    for path in sorted((DOCS / "api").glob("*.rst")):
        text = path.read_text(encoding="utf-8")
        module = re.search(r"^\.\. currentmodule:: ([\w.]+)$", text, re.MULTILINE)
        for part in re.findall(r"^ {3}:toctree: generated\n\n((?: {3}\S+\n)+)", text, re.MULTILINE):
            found += [f"{module[1]}.{name}" for name in part.split()]
    return found


def value(name):
    module, _, last = name.rpartition(".")
    return getattr(import_module(module), last)


def test_pages_of_estimators_list_inherited_methods():
    """As Sphinx does: methods with a docstring of the class and of its bases up to those named."""
    template = (DOCS / "api/templates/autosummary/class.rst").read_text(encoding="utf-8")
    assert "   :members:\n" in template
    (bases,) = re.findall(r":inherited-members: (.+)", template)
    learners = [v for v in map(value, listed()) if isinstance(v, type) and hasattr(v, "set_params")]
    assert len(learners) >= 14
    for learner in learners:
        kinds = takewhile(lambda kind: kind.__name__ not in bases.split(", "), learner.__mro__)
        shown = {n for kind in kinds for n, member in vars(kind).items() if member.__doc__}
        wanted = {"fit", "fit_blocks", "set_params", "predict", "predict_interval", "score"}
        wanted |= {"transform", "predict_proba", "decision_function", "partial_fit"}
        assert {name for name in wanted if hasattr(learner, name)} <= shown, learner


def test_the_reference_lists_every_public_name_and_each_once():
    names = [name for name in bochner.__all__ if name not in MODULES]
    wanted = [value(f"bochner.{name}") for name in names]
    parts = (kernels, landmarks, errors, engines, export)
    for part in (*parts, datasets, certificates):
        wanted += [getattr(part, name) for name in part.__all__]
    shown = [id(value(name)) for name in listed()]
    assert len(shown) == len(set(shown))
    assert [w for w in wanted if id(w) not in shown] == []


def test_described_parameters_are_arguments():
    for name in listed():
        doc = inspect.getdoc(value(name)) or ""
        part = re.search(r"\nParameters\n-+\n(.*?)(\n\n[A-Z][\w ]+\n---|$)", doc, re.DOTALL)
        heads = re.findall(
            r"^(\*{0,2}\w+(?:, \*{0,2}\w+)*) : ", part[1] if part else "", re.MULTILINE
        )
        described = {parameter.lstrip("*") for head in heads for parameter in head.split(", ")}
        if described:
            assert described <= set(inspect.signature(value(name)).parameters), name


# ---- every example runs, and every picture that a page shows is made by one


def wanted_pictures():
    found = [PICTURE.findall(source(name)) for name in sorted(pages())]
    return {(script, int(number)) for each in found for script, number in each}


@pytest.mark.main_cases(7)
@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs_and_makes_the_pictures_of_the_pages(script):
    pytest.importorskip("matplotlib").use("Agg")
    plt = pytest.importorskip("matplotlib.pyplot")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "FigureCanvasAgg is non-interactive")
        try:
            runpy.run_path(str(script), run_name="__main__")
            made = len(plt.get_fignums())
        finally:
            plt.close("all")
    asked = [number for name, number in wanted_pictures() if name == script.stem]
    assert made >= max(asked, default=1)


def test_every_example_is_shown_on_a_page():
    text = "\n".join(source(name) for name in sorted(pages()))
    assert [p.stem for p in EXAMPLES if f"auto_examples/{p.stem}>" not in text] == []


# ==== The walk-through of a first change works: its steps are taken on a copy of the source.

PAGE = (ROOT / "docs" / "first_change.md").read_text(encoding="utf-8")
#: An editable installation finds its own source before any path.
AS_COPIED = """
import sys

sys.meta_path = [f for f in sys.meta_path if not type(f).__name__.startswith("ScikitBuild")]
"""
STEPS = re.compile(r"^```(py|diff)\n# (\S+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def changed(text, lines):
    """A file without the lines that begin with -, and with those of + below the lines before."""
    known = text.split("\n")
    at = 0
    for line in lines:
        if line.startswith("+"):
            known.insert(at, line[1:])
            at += 1
            continue
        places = [i for i, there in enumerate(known) if there == line[1:]]
        assert places, f"no line {line[1:]!r}"
        at = next((i for i in places if i == at), places[0]) + 1
        if line.startswith("-"):
            at -= 1
            del known[at]
    return "\n".join(known)


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A copy of the source and the tests, with the steps of the page taken."""
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
            new = changed(file.read_text(encoding="utf-8"), text.splitlines())
            file.write_text(new, encoding="utf-8")
    return folder


def run(copy, words):
    paths = os.pathsep.join(str(copy / name) for name in ("site", "src", "tests"))
    env = os.environ | {"PYTHONPATH": paths, "BOCHNER_PURE_PYTHON": "1"}
    return subprocess.run(words, cwd=copy, capture_output=True, text=True, env=env, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(3))
def test_the_commands_of_the_page_pass_on_the_changed_source(copy, number):
    commands = re.findall(r"^```sh\n(.*?)\n```$", PAGE, re.DOTALL | re.MULTILINE)
    assert len(commands) == 3
    words = shlex.split(commands[number])
    assert words[:1] == ["python"]
    done = run(copy, [sys.executable, *words[1:], "-q", "-p", "no:cacheprovider"])
    assert done.returncode == 0, done.stdout[-3000:]
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) >= 4


@pytest.mark.parametrize("words", [("check",), ("format", "--check")], ids=" ".join)
def test_the_changed_source_is_in_the_style_of_the_house(copy, words):
    pytest.importorskip("ruff")
    done = run(copy, [sys.executable, "-m", "ruff", *words, "--no-cache", "src/bochner", "tests"])
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
def test_the_kernel_of_the_page_is_served_like_one_of_the_library(tmp_path, monkeypatch):
    """Drawn, tuned, planned, printed, saved and loaded, from a module outside of the package."""
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
