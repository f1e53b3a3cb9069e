"""Public names, optional dependencies and published files agree."""

import ast
import importlib
import os
import pkgutil
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import bochner

OPTIONAL = ("click", "dask", "distributed", "jinja2", "matplotlib", "onnx", "onnxruntime", "pandas")
OPTIONAL += ("polars", "pyarrow", "pyspark", "ray", "skops", "torch")
NAMES = (module.name for module in pkgutil.walk_packages(bochner.__path__, "bochner."))
MODULES = {name: importlib.import_module(name) for name in NAMES if name != "bochner._native"}


def tree_of(name):
    """Return the tree of the stub of a module, or else of its source."""
    source = Path(importlib.util.find_spec(name).origin)
    stub = source.with_suffix(".pyi")
    return ast.parse((stub if stub.is_file() else source).read_text(encoding="utf-8"))


def imported_names(source):
    """Return public names that a module imports from the package, also under ``TYPE_CHECKING``."""
    names = {
        alias.asname or alias.name
        for node in ast.walk(source)
        if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] == "bochner"
        if not node.module.startswith("bochner._")
        for alias in node.names
    }
    return {name for name in names if not name.startswith("_")}


# ---- lists of public names


def test_public_names_are_those_of_the_stub_and_of_dir():
    assert set(bochner.__all__) == imported_names(tree_of("bochner"))
    assert dir(bochner) == sorted(bochner.__all__)


def test_public_names_can_be_imported_and_are_documented():
    values = {name: getattr(bochner, name) for name in bochner.__all__}
    names = {name: getattr(value, "__name__", name) for name, value in values.items()}
    assert [name for name in names if names[name].rpartition(".")[2] != name] == []
    assert [name for name, value in values.items() if not value.__doc__] == []


def test_listed_names_exist_and_packages_list_their_imports():
    for name, module in MODULES.items():
        listed = getattr(module, "__all__", [])
        assert len(set(listed)) == len(listed), name
        assert [n for n in listed if not hasattr(module, n)] == [], name
        if hasattr(module, "__path__") and hasattr(module, "__all__"):
            body = tree_of(name).body
            defined = {n.name for n in body if isinstance(n, ast.FunctionDef)}
            imports = ast.Module([n for n in body if not isinstance(n, ast.FunctionDef)], [])
            expected = imported_names(imports) | {n for n in defined if not n.startswith("_")}
            assert set(listed) == expected, name


# ---- imports


def run(code):
    """Run code in a new interpreter and return the words that it prints."""
    source = str(Path(bochner.__file__).parents[1])
    paths = os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])
    options = {"capture_output": True, "text": True, "env": os.environ | {"PYTHONPATH": paths}}
    result = subprocess.run([sys.executable, "-c", code], check=False, **options)
    assert result.returncode == 0, result.stderr
    return result.stdout.split()


LOADED = f"import sys; print(*(name for name in {OPTIONAL} if name in sys.modules))"


def test_importing_the_package_loads_no_optional_package_and_no_numpy():
    assert run(f"import bochner\n{LOADED}\nprint(*{{'numpy', 'scipy'}} & set(sys.modules))") == []


def test_a_learner_loads_half_of_the_package():
    code = "import sys, bochner; bochner.KernelRidge"
    assert len(run(f"{code}\nprint(*(n for n in sys.modules if n[:7] == 'bochner'))")) < 140


# scikit-learn imports pandas and others if they are installed, so they are hidden.
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
    return run(FIT.format(hidden=OPTIONAL, optional=OPTIONAL, fit=fit))


@pytest.mark.main_cases(1)
@pytest.mark.parametrize("fit", FITS.values(), ids=FITS)
def test_fitting_an_array_loads_no_optional_package(fit):
    assert loaded_by(fit) == []


@pytest.mark.slow
def test_a_planted_import_of_an_optional_package_is_detected():
    with pytest.raises(AssertionError, match="pandas is hidden"):
        loaded_by("import pandas")
    assert loaded_by("sys.modules['click'] = sys") == ["click"]


# ---- versions, dependencies, workflows and forms

ROOT = Path(__file__).parents[2]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = SETTINGS["project"]
FORMS = {
    "vendor.github-workflows": sorted((ROOT / ".github" / "workflows").glob("*.yml")),
    "vendor.github-issue-forms": sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")),
    "vendor.citation-file-format": [ROOT / "CITATION.cff"],
}


def check_forms(schema, *files):
    """Return the result of the checker of forms."""
    line = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *map(str, files)]
    return subprocess.run(line, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("schema", FORMS)
def test_forms_have_their_schema(schema):
    assert FORMS[schema]
    result = check_forms(schema, *FORMS[schema])
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_recipe_has_version_and_requirements_of_the_package():
    recipe = (ROOT / "conda" / "recipe.yaml").read_text(encoding="utf-8")
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.search(r'version: "([\d.]+)"', recipe)[1] == PROJECT["version"]
    assert re.search(r"^version: ([\d.]+)$", citation, re.MULTILINE)[1] == PROJECT["version"]
    run = recipe.split("  run:\n")[1].split("\n\n")[0]
    requirements = {line.strip("- ").replace(" ", "") for line in run.splitlines()} - {"python"}
    assert requirements == set(PROJECT["dependencies"])


def on_index(text):
    """Return a text as the package index shows it."""
    hooks = SETTINGS["tool"]["hatch"]["metadata"]["hooks"]
    for step in hooks["fancy-pypi-readme"]["substitutions"]:
        text = re.sub(step["pattern"], step["replacement"], text)
    return text


def test_the_readme_of_the_index_has_no_relative_links_and_no_keys():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "](docs/" in text
    assert not re.search(r"\]\((?!https?://)|<!--|\[@", on_index(text))
    assert "pip install ." in on_index(text)
    line = "See [page](https://example.org/page.html)."
    assert on_index(
        f"<!-- a -->\n{line} And [this](docs/choose.md).\n![picture](docs/a.svg)\n"
    ) == (f"{line} And this.\n")


def test_the_package_declares_its_types():
    assert (Path(bochner.__file__).parent / "py.typed").is_file()
