"""Rules that are read off the source, and shapes that signatures state."""

import ast
import json
import os
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import checked_shapes
import pytest

import bochner

ROOT = Path(__file__).parents[2]
SOURCE = Path(bochner.__file__).parent
ESTIMATOR = {"model", "estimator"}
FUNCTIONS = (ast.FunctionDef, ast.Lambda)


@cache
def trees():
    """Return the tree of each module of the package, by its file."""
    return {
        path.relative_to(SOURCE).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(SOURCE.rglob("*.py"))
    }


# ---- imports


def linted(root):
    """Run import-linter with the contracts of pyproject.toml on a package in a folder."""
    lint = "from importlinter.cli import lint_imports; sys.exit(lint_imports({!r}))"
    lint = lint.format(str(ROOT / "pyproject.toml"))
    code = f"import sys; sys.path.insert(0, {str(root)!r}); {lint}"
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=root
    )


def test_parts_import_those_below_and_one_another_in_no_cycle():
    done = linted(SOURCE.parent)
    assert done.returncode == 0, done.stdout


# ---- one rule, one function: a module's tree to the sentences of what breaks it


def parameters(function):
    given = function.args
    return [*given.posonlyargs, *given.args, *given.kwonlyargs]


def nodes(tree, *kinds):
    return (node for node in ast.walk(tree) if isinstance(node, kinds))


def is_dataclass(node):
    return any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list)


@cache
def values():
    """Return the names of the package's dataclasses."""
    return {n.name for t in trees().values() for n in nodes(t, ast.ClassDef) if is_dataclass(n)}


def estimators_of_any_type(tree):
    """Parameters that are an estimator of type Any."""
    for function in nodes(tree, *FUNCTIONS):
        for p in parameters(function):
            if p.arg in ESTIMATOR and p.annotation and ast.unparse(p.annotation) == "Any":
                yield p.arg


def guesses(tree):
    """Calls that ask an estimator which attributes it has."""
    asked = ESTIMATOR | {f"type({name})" for name in ESTIMATOR}
    for call in nodes(tree, ast.Call):
        name, first = ast.unparse(call.func), "".join(map(ast.unparse, call.args[:1]))
        if name in {"hasattr", "getattr", "setattr"} and first in asked:
            yield ast.unparse(call)


def stores(tree):
    """Attributes that a function stores on one of its parameters."""
    for function in nodes(tree, *FUNCTIONS):
        names = {p.arg for p in parameters(function)} - {"self", "cls"}
        for node in nodes(function, ast.Attribute):
            if isinstance(node.ctx, ast.Store | ast.Del) and ast.unparse(node.value) in names:
                yield ast.unparse(node)


def values_that_change(tree):
    """Dataclasses that are not frozen."""
    for node in nodes(tree, ast.ClassDef):
        options = "".join(map(ast.unparse, node.decorator_list))
        if is_dataclass(node) and "frozen=True" not in options:
            yield node.name


def heirs_of_values(tree):
    """Classes of a module with a base, of any module, that is a dataclass."""
    own = {node.name for node in nodes(tree, ast.ClassDef) if is_dataclass(node)}
    for node in nodes(tree, ast.ClassDef):
        if (values() | own) & {ast.unparse(base).rpartition(".")[2] for base in node.bases}:
            yield node.name


def estimators_that_store(tree):
    """Attributes besides ``fit_`` that a method of a class with bases stores on its object."""
    for kind in nodes(tree, ast.ClassDef):
        if kind.name == "KernelEstimator" or not kind.bases:
            continue
        for method in kind.body:
            if isinstance(method, ast.FunctionDef) and method.name != "__init__":
                for node in nodes(method, ast.Attribute):
                    stored = isinstance(node.ctx, ast.Store | ast.Del)
                    if stored and ast.unparse(node.value) == "self" and node.attr != "fit_":
                        yield f"{kind.name}.{node.attr}"


MODELS = ("models/",)
COUNTS_ROWS = ("_core/", "data/", "cli/")
#: Rule, folders that it holds for ("" for all), folders it does not hold for, a planted fault.
RULES = [
    (estimators_of_any_type, MODELS, (), "def f(model: Any): ..."),
    (guesses, MODELS, (), "def f(model): return getattr(type(model), 'C', 1)"),
    (stores, ("",), (), "def f(blocks, *, model):\n    def g():\n        model.map_ = 1"),
    (values_that_change, ("",), COUNTS_ROWS, "@dataclass\nclass A: ..."),
    (heirs_of_values, ("",), (), "@dataclass(frozen=True)\nclass A: ...\nclass B(m.A): ..."),
    (estimators_that_store, MODELS, (), "class B(KernelEstimator):\n  def fit(self): self.a = 1"),
]


def test_no_module_breaks_a_rule_and_a_planted_fault_is_found():
    faults = []
    for check, where, but, planted in RULES:
        assert [*check(ast.parse(planted))], f"{check.__name__} finds no fault in {planted}"
        files = [f for f in trees() if f.startswith(where) and not f.startswith(but or "/")]
        assert files
        faults += [f"{check.__name__}, {f}: {fault}" for f in files for fault in check(trees()[f])]
    assert faults == []


def test_no_two_classes_share_a_name():
    names = Counter(n.name for t in trees().values() for n in t.body if isinstance(n, ast.ClassDef))
    assert [name for name, count in names.items() if count > 1] == []


# ==== Arrays have the shapes that signatures state.


@pytest.mark.slow
def test_arrays_have_the_shapes_that_signatures_state():
    """Public calls of every kind on small data, and a planted fault, in a process of their own."""
    done = subprocess.run(
        [sys.executable, checked_shapes.__file__],
        capture_output=True,
        text=True,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert "parameters of bochner._core.blas.product" in found["wrong"].pop("planted")
    assert found["wrong"] == {}
    assert found["checked"] > 700
