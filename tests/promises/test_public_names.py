"""Public names: listed by hand, all there, none missing, and nothing optional loaded for them."""

import ast
import importlib
import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import bochner

OPTIONAL = (
    "click",
    "dask",
    "distributed",
    "pyspark",
    "ray",
    "jinja2",
    "matplotlib",
    "narwhals",
    "onnx",
    "onnxruntime",
    "pandas",
    "polars",
    "pyarrow",
    "rich",
    "skops",
    "torch",
)
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(bochner.__path__, "bochner.")
    if module.name != "bochner._native"
)
PACKAGES = [
    name
    for name in MODULES
    if hasattr(importlib.import_module(name), "__path__") and hasattr(sys.modules[name], "__all__")
]


def tree_of(name):
    return ast.parse(Path(importlib.util.find_spec(name).origin).read_text(encoding="utf-8"))


def names_brought_in(source):
    """Names that a module takes from the package, under ``TYPE_CHECKING`` too; private ones not."""
    found = {
        alias.asname or alias.name
        for node in ast.walk(source)
        if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] == "bochner"
        if not node.module.startswith("bochner._")
        for alias in node.names
    }
    return {name for name in found if not name.startswith("_")}


# ---- what is listed


def test_the_public_names_are_those_the_package_brings_in():
    modules = {"engines", "errors", "export", "kernels", "landmarks"}  # handed out whole
    assert set(bochner.__all__) == names_brought_in(tree_of("bochner")) | modules


@pytest.mark.parametrize("name", bochner.__all__)
def test_public_name_can_be_imported(name):
    value = getattr(bochner, name)
    assert getattr(value, "__name__", name).rpartition(".")[2] == name
    assert value.__doc__


def test_the_package_shows_its_public_names_and_no_others():
    assert dir(bochner) == sorted(bochner.__all__)


def test_an_unknown_name_is_refused():
    with pytest.raises(AttributeError, match="module 'bochner' has no attribute 'Gausian'"):
        bochner.Gausian  # noqa: B018


@pytest.mark.parametrize("name", MODULES)
def test_every_name_that_a_module_lists_is_there(name):
    module = importlib.import_module(name)
    listed = getattr(module, "__all__", [])
    assert len(set(listed)) == len(listed)
    assert [n for n in listed if not hasattr(module, n)] == []


@pytest.mark.parametrize("name", PACKAGES)
def test_a_part_lists_what_it_brings_in(name):
    listed = set(importlib.import_module(name).__all__)
    body = tree_of(name).body
    defined = {n.name for n in body if isinstance(n, ast.FunctionDef)}
    outside = ast.Module([n for n in body if not isinstance(n, ast.FunctionDef)], [])
    assert listed == names_brought_in(outside) | {n for n in defined if not n.startswith("_")}


def test_planted_unlisted_name_is_seen():
    text = "if TYPE_CHECKING:\n    from bochner.a import A, _b\nfrom numpy import sin"
    text += "\nfrom bochner._core.b import c"
    assert names_brought_in(ast.parse(text)) == {"A"}


# ---- what is loaded


def run(code):
    """Run code in a fresh interpreter and return the lines it prints."""
    source = str(Path(bochner.__file__).parents[1])
    paths = os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": paths},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


LOADED = f"import sys; print(*(name for name in {OPTIONAL} if name in sys.modules))"


def test_importing_the_package_loads_nothing_optional_nor_numpy():
    assert run(f"import bochner\n{LOADED}\nprint(*{{'numpy', 'scipy'}} & set(sys.modules))") == []


# scikit-learn loads what it finds of pandas and the like on its own. So they are hidden from it,
# and it must do without; narwhals, which newer versions require, may be there because of it only.
FIT = """
import sys
class Hidden:
    def find_spec(name, path=None, target=None):
        if name in {hidden}:
            raise ImportError(name + " is hidden")
sys.meta_path.insert(0, Hidden)
import sklearn.base, sklearn.linear_model, sklearn.utils.validation
theirs = set(sys.modules)
import numpy as np, bochner
X = np.random.default_rng(0).standard_normal((200, 2))
{fit}
print(*(name for name in {optional} if sys.modules.get(name) and name not in theirs))
"""
FITS = {
    "ridge": "bochner.KernelRidge(n_features=16).fit(X, X[:, 0]).predict(X)",
    "certificate": "str(bochner.KernelRidge(n_features=16).fit(X, X[:, 0]).certificate_)",
    "transformer": "bochner.KernelFeatures(n_features=16).fit_transform(X)",
    "blocks": (
        "bochner.KernelRidge(n_features=16).fit_blocks(bochner.Blocks.from_arrays(X, X[:, 0]))"
    ),
    "exact kernel": "bochner.kernels.Matern(0.7)(X)",
}


def loaded_by(fit):
    hidden = tuple(name for name in OPTIONAL if name != "narwhals")
    return run(FIT.format(hidden=hidden, optional=OPTIONAL, fit=fit))


@pytest.mark.main_cases(1)
@pytest.mark.parametrize("fit", FITS.values(), ids=FITS)
def test_fitting_an_array_loads_nothing_optional(fit):
    assert loaded_by(fit) == []


def test_planted_use_of_an_optional_package_is_seen():
    with pytest.raises(AssertionError, match="pandas is hidden"):
        loaded_by("import pandas")
    assert loaded_by("sys.modules['click'] = sys") == ["click"]
