"""Every fit is a value, read off the source: nothing takes an estimator to store something on it."""

import ast
from collections import defaultdict
from pathlib import Path

import pytest

import bochner

SOURCE = Path(bochner.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))
MODELS = [path for path in FILES if path.relative_to(SOURCE).parts[0] == "models"]
ESTIMATOR = {"model", "estimator"}


def named(path):
    return str(path.relative_to(SOURCE))


def tree(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def functions(source):
    return [n for n in ast.walk(source) if isinstance(n, ast.FunctionDef | ast.Lambda)]


def parameters(function):
    given = function.args
    return [*given.posonlyargs, *given.args, *given.kwonlyargs]


# ---- what kind an estimator is, its type says


def of_unknown_type(source):
    """Parameters that are an estimator of any type."""
    return [
        (function.lineno, p.arg)
        for function in functions(source)
        for p in parameters(function)
        if p.arg in ESTIMATOR and p.annotation is not None and ast.unparse(p.annotation) == "Any"
    ]


def guesses(source):
    """Calls that ask an estimator what it has."""
    return [
        ast.unparse(node)
        for node in ast.walk(source)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in {"hasattr", "getattr", "setattr"}
        and node.args
        and ast.unparse(node.args[0]) in ESTIMATOR | {f"type({name})" for name in ESTIMATOR}
    ]


@pytest.mark.parametrize("path", MODELS, ids=named)
def test_no_function_takes_an_estimator_of_any_type(path):
    assert of_unknown_type(tree(path)) == []


@pytest.mark.parametrize("path", MODELS, ids=named)
def test_no_function_asks_an_estimator_what_it_has(path):
    assert guesses(tree(path)) == []


# ---- state is set by the estimator itself, once, last


def stores(source):
    """Attributes that a function stores on one of its parameters."""
    found = []
    for function in functions(source):
        names = {p.arg for p in parameters(function)} - {"self", "cls"}
        found += [
            ast.unparse(node)
            for node in ast.walk(function)
            if isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store | ast.Del)
            and isinstance(node.value, ast.Name)
            and node.value.id in names
        ]
    return found


@pytest.mark.parametrize("path", FILES, ids=named)
def test_no_function_stores_on_a_parameter(path):
    assert stores(tree(path)) == []


def estimators(sources):
    """Classes that are estimators, by their bases' names."""
    classes = [n for s in sources for n in ast.walk(s) if isinstance(n, ast.ClassDef)]
    known = {"KernelEstimator"}
    while True:
        more = {c.name for c in classes if known & {ast.unparse(base) for base in c.bases}}
        if more <= known:
            return [c for c in classes if c.name in known and c.name != "KernelEstimator"]
        known |= more


def stored_on_self(class_):
    """Attributes that methods other than the constructor store, and whether it is last."""
    found = []
    for method in class_.body:
        if isinstance(method, ast.FunctionDef) and method.name != "__init__":
            found += [
                f"{class_.name}.{method.name}: {node.attr}"
                for node in ast.walk(method)
                if isinstance(node, ast.Attribute)
                and isinstance(node.ctx, ast.Store | ast.Del)
                and ast.unparse(node.value) == "self"
                and node.attr != "fit_"
            ]
    return found


def test_an_estimator_assigns_its_fit_and_nothing_else():
    classes = estimators([tree(path) for path in MODELS])
    assert len(classes) > 15
    assert [line for class_ in classes for line in stored_on_self(class_)] == []


# ---- one name, one concept


def repeated_classes(sources):
    where = defaultdict(list)
    for name, source in sources:
        for node in source.body:
            if isinstance(node, ast.ClassDef):
                where[node.name].append(name)
    return {name: files for name, files in where.items() if len(files) > 1}


def test_no_two_classes_share_a_name():
    assert repeated_classes((named(path), tree(path)) for path in FILES) == {}


# ---- planted faults


@pytest.mark.parametrize(
    ("check", "text"),
    [
        (of_unknown_type, "def f(model: Any): ..."),
        (guesses, "def f(model): return hasattr(model, 'X_fit_')"),
        (guesses, "def f(model): return getattr(type(model), 'C', 1)"),
        (stores, "def f(model): model.map_ = 1"),
        (stores, "def f(blocks, *, model):\n    def g():\n        model.map_ = 1"),
    ],
)
def test_a_planted_fault_is_seen(check, text):
    assert check(ast.parse(text))


def test_a_planted_attribute_of_an_estimator_is_seen():
    text = "class A(KernelEstimator): ...\nclass B(Mixin, A):\n  def fit(self):\n    self.map_ = 1"
    assert [line for c in estimators([ast.parse(text)]) for line in stored_on_self(c)]


def test_a_planted_name_of_two_classes_is_seen():
    sources = [("a", ast.parse("class Rows: ...")), ("b", ast.parse("class Rows: ..."))]
    assert repeated_classes(sources) == {"Rows": ["a", "b"]}
