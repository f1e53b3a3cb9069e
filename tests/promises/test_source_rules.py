"""Rules of the source code, and shapes that signatures state."""

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


def lint(root):
    """Run import-linter with the contracts of pyproject.toml on a package in a folder."""
    code = "from importlinter.cli import lint_imports; sys.exit(lint_imports({!r}))"
    code = code.format(str(ROOT / "pyproject.toml"))
    code = f"import sys; sys.path.insert(0, {str(root)!r}); {code}"
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=root
    )


def test_packages_import_only_lower_ones_and_have_no_cycles():
    result = lint(SOURCE.parent)
    assert result.returncode == 0, result.stdout


# ---- rules: functions from the tree of a module to the names of faults


def parameters(function):
    a = function.args
    return [*a.posonlyargs, *a.args, *a.kwonlyargs]


def nodes(tree, *kinds):
    return (node for node in ast.walk(tree) if isinstance(node, kinds))


def is_dataclass(node):
    return any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list)


@cache
def values():
    """Return the names of the package's dataclasses."""
    return {n.name for t in trees().values() for n in nodes(t, ast.ClassDef) if is_dataclass(n)}


def estimators_of_any_type(tree):
    """Yield parameters that are estimators of type Any."""
    for function in nodes(tree, *FUNCTIONS):
        for p in parameters(function):
            if p.arg in ESTIMATOR and p.annotation and ast.unparse(p.annotation) == "Any":
                yield p.arg


def guesses(tree):
    """Yield calls that test or read attributes of an estimator by name."""
    names = ESTIMATOR | {f"type({name})" for name in ESTIMATOR}
    for call in nodes(tree, ast.Call):
        name, first = ast.unparse(call.func), "".join(map(ast.unparse, call.args[:1]))
        if name in {"hasattr", "getattr", "setattr"} and first in names:
            yield ast.unparse(call)


def stores(tree):
    """Yield attributes that a function sets on a parameter."""
    for function in nodes(tree, *FUNCTIONS):
        names = {p.arg for p in parameters(function)} - {"self", "cls"}
        for node in nodes(function, ast.Attribute):
            if isinstance(node.ctx, ast.Store | ast.Del) and ast.unparse(node.value) in names:
                yield ast.unparse(node)


def values_that_change(tree):
    """Yield dataclasses that are not frozen."""
    for node in nodes(tree, ast.ClassDef):
        options = "".join(map(ast.unparse, node.decorator_list))
        if is_dataclass(node) and "frozen=True" not in options:
            yield node.name


def heirs_of_values(tree):
    """Yield classes with a base that is a dataclass of this or another module."""
    local = {node.name for node in nodes(tree, ast.ClassDef) if is_dataclass(node)}
    for node in nodes(tree, ast.ClassDef):
        if (values() | local) & {ast.unparse(base).rpartition(".")[2] for base in node.bases}:
            yield node.name


def estimators_that_store(tree):
    """Yield attributes besides ``fit_`` that methods of classes with bases set on self."""
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


def test_modules_follow_the_rules_and_planted_faults_are_found():
    faults = []
    for check, where, exclusion, planted in RULES:
        assert [*check(ast.parse(planted))], f"{check.__name__} finds no fault in {planted}"
        files = [f for f in trees() if f.startswith(where) and not f.startswith(exclusion or "/")]
        assert files
        faults += [f"{check.__name__}, {f}: {fault}" for f in files for fault in check(trees()[f])]
    assert faults == []


def test_no_two_classes_share_a_name():
    names = Counter(n.name for t in trees().values() for n in t.body if isinstance(n, ast.ClassDef))
    assert [name for name, count in names.items() if count > 1] == []


# ==== shapes of arrays


@pytest.mark.slow
def test_arrays_have_the_shapes_that_signatures_state():
    """Public calls of all kinds on small data, and a planted fault, in another process."""
    process = subprocess.run(
        [sys.executable, checked_shapes.__file__],
        capture_output=True,
        text=True,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        timeout=600,
        check=False,
    )
    assert process.returncode == 0, process.stderr[-3000:]
    result = json.loads(process.stdout)
    assert "parameters of bochner._core.blas.product" in result["wrong"].pop("planted")
    assert result["wrong"] == {}
    assert result["checked"] > 700
