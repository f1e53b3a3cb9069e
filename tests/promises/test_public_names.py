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


# ---- names for those who build on the package: handed out by each part, and loaded when used

TABLES = {
    name: sys.modules[name].FOR_DEVELOPERS
    for name in MODULES
    if hasattr(importlib.import_module(name), "FOR_DEVELOPERS")
}


@pytest.mark.parametrize("name", TABLES)
def test_a_part_hands_out_what_its_modules_define(name):
    """A module of the same name would hide it."""
    part = importlib.import_module(name)
    for module, names in TABLES[name].items():
        for each in names.split():
            value = getattr(importlib.import_module(f"{name}.{module}"), each)
            assert getattr(part, each) is value
            assert each not in getattr(part, "__all__", ())
            assert f"{name}.{each}" not in MODULES


@pytest.mark.parametrize("name", TABLES)
def test_a_part_hands_out_each_name_once_and_refuses_others(name):
    names = " ".join(TABLES[name].values()).split()
    assert len(set(names)) == len(names)
    with pytest.raises(AttributeError, match=f"module '{name}' has no attribute 'Nothing'"):
        importlib.import_module(name).Nothing  # noqa: B018


@pytest.mark.parametrize("name", ["sums", "data", "solvers", "selection"])
def test_a_part_that_only_hands_out_loads_nothing_by_itself(name):
    code = f"import sys, bochner.{name} as part; print('numpy' in sys.modules, *dir(part))"
    assert run(code) == ["False", *sorted(" ".join(TABLES[f"bochner.{name}"].values()).split())]


# ---- tests go through public names

TESTS = Path(__file__).parents[1]

#: Test files that import the inside, at most. Each says why, in a comment that begins "# inside:".
INSIDE = 19


def inside(source):
    """What a test imports beyond public names: private ones, modules of a part, and from these."""
    modules = {*MODULES, "bochner._native"}
    parts = {name for name in modules if name.count(".") == 1 and not name.startswith("bochner._")}
    for node in ast.walk(source):
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name in modules - parts)
        elif isinstance(node, ast.ImportFrom) and node.module.split(".")[0] == "bochner":
            for name in (alias.name for alias in node.names):
                full = f"{node.module}.{name}"
                public = node.module in {"bochner", *parts} and full not in modules - parts
                if not public or name.startswith("_"):
                    yield full


def test_few_tests_import_the_inside_and_each_says_why():
    files = {path: path.read_text(encoding="utf-8") for path in TESTS.rglob("*.py")}
    found = {path for path, text in files.items() if [*inside(ast.parse(text))]}
    assert len(found) <= INSIDE, sorted(path.name for path in found)
    assert [path.name for path in found if "# inside: " not in files[path]] == []


@pytest.mark.parametrize(
    "text",
    [
        "from bochner.sums.moments import Moments",
        "from bochner.sums import moments",
        "from bochner._core import native",
        "from bochner import _native",
        "import bochner.solvers.cg",
        "def f():\n    from bochner.models import _base",
    ],
)
def test_planted_import_of_the_inside_is_seen(text):
    assert len([*inside(ast.parse(text))]) == 1


def test_public_names_are_no_inside():
    text = (
        "import bochner as bo\nfrom bochner import errors, kernels\nfrom bochner.sums import LOCAL"
    )
    assert [*inside(ast.parse(text))] == []


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


@pytest.mark.parametrize("fit", FITS.values(), ids=FITS)
def test_fitting_an_array_loads_nothing_optional(fit):
    assert loaded_by(fit) == []


def test_planted_use_of_an_optional_package_is_seen():
    with pytest.raises(AssertionError, match="pandas is hidden"):
        loaded_by("import pandas")
    assert loaded_by("sys.modules['click'] = sys") == ["click"]
