"""Public names and what is published agree: listed by hand, nothing optional loaded."""

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
    """The stub of a module that has one, else its source."""
    source = Path(importlib.util.find_spec(name).origin)
    stub = source.with_suffix(".pyi")
    return ast.parse((stub if stub.is_file() else source).read_text(encoding="utf-8"))


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


def test_the_public_names_are_those_of_the_stub_and_shown_alone():
    assert set(bochner.__all__) == names_brought_in(tree_of("bochner"))
    assert dir(bochner) == sorted(bochner.__all__)


def test_public_names_can_be_imported_and_are_documented():
    values = {name: getattr(bochner, name) for name in bochner.__all__}
    own = {name: getattr(value, "__name__", name) for name, value in values.items()}
    assert [name for name in own if own[name].rpartition(".")[2] != name] == []
    assert [name for name, value in values.items() if not value.__doc__] == []


def test_every_name_that_a_module_lists_is_there_and_a_part_lists_what_it_brings_in():
    for name, module in MODULES.items():
        listed = getattr(module, "__all__", [])
        assert len(set(listed)) == len(listed), name
        assert [n for n in listed if not hasattr(module, n)] == [], name
        if hasattr(module, "__path__") and hasattr(module, "__all__"):
            body = tree_of(name).body
            defined = {n.name for n in body if isinstance(n, ast.FunctionDef)}
            outside = ast.Module([n for n in body if not isinstance(n, ast.FunctionDef)], [])
            brought = names_brought_in(outside) | {n for n in defined if not n.startswith("_")}
            assert set(listed) == brought, name


# ---- what is loaded


def run(code):
    """Run code in a fresh interpreter and return the lines it prints."""
    source = str(Path(bochner.__file__).parents[1])
    paths = os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])
    options = {"capture_output": True, "text": True, "env": os.environ | {"PYTHONPATH": paths}}
    done = subprocess.run([sys.executable, "-c", code], check=False, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


LOADED = f"import sys; print(*(name for name in {OPTIONAL} if name in sys.modules))"


def test_importing_the_package_loads_nothing_optional_nor_numpy():
    assert run(f"import bochner\n{LOADED}\nprint(*{{'numpy', 'scipy'}} & set(sys.modules))") == []


def test_a_learner_is_loaded_with_half_of_the_package():
    code = "import sys, bochner; bochner.KernelRidge"
    assert len(run(f"{code}\nprint(*(n for n in sys.modules if n[:7] == 'bochner'))")) < 140


# scikit-learn loads what it finds of pandas and the like on its own. So they are hidden from it,
# and it must do without.
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
def test_fitting_an_array_loads_nothing_optional(fit):
    assert loaded_by(fit) == []


@pytest.mark.slow
def test_planted_use_of_an_optional_package_is_seen():
    with pytest.raises(AssertionError, match="pandas is hidden"):
        loaded_by("import pandas")
    assert loaded_by("sys.modules['click'] = sys") == ["click"]


# ---- what is published agrees with itself: versions, dependencies, workflows and forms

ROOT = Path(__file__).parents[2]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = SETTINGS["project"]
FORMS = {
    "vendor.github-workflows": sorted((ROOT / ".github" / "workflows").glob("*.yml")),
    "vendor.github-issue-forms": sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")),
    "vendor.citation-file-format": [ROOT / "CITATION.cff"],
}


def checked(schema, *files):
    """Run the checker of forms."""
    line = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *map(str, files)]
    return subprocess.run(line, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("schema", FORMS)
def test_forms_are_what_their_readers_ask_for(schema):
    assert FORMS[schema]
    found = checked(schema, *FORMS[schema])
    assert found.returncode == 0, found.stdout + found.stderr


def test_the_recipe_has_the_version_and_the_requirements_of_the_package():
    recipe = (ROOT / "conda" / "recipe.yaml").read_text(encoding="utf-8")
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.search(r'version: "([\d.]+)"', recipe)[1] == PROJECT["version"]
    assert re.search(r"^version: ([\d.]+)$", citation, re.MULTILINE)[1] == PROJECT["version"]
    run = recipe.split("  run:\n")[1].split("\n\n")[0]
    asked = {line.strip("- ").replace(" ", "") for line in run.splitlines()} - {"python"}
    assert asked == set(PROJECT["dependencies"])


def shown(text):
    """A text as the index shows it."""
    hooks = SETTINGS["tool"]["hatch"]["metadata"]["hooks"]
    for step in hooks["fancy-pypi-readme"]["substitutions"]:
        text = re.sub(step["pattern"], step["replacement"], text)
    return text


def test_the_readme_of_the_index_has_no_links_into_the_project_and_no_keys():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "](docs/" in text
    assert not re.search(r"\]\((?!https?://)|<!--|\[@", shown(text))
    assert "pip install ." in shown(text)
    kept = "See [page](https://example.org/page.html)."
    assert shown(f"<!-- a -->\n{kept} And [this](docs/choose.md).\n![picture](docs/a.svg)\n") == (
        f"{kept} And this.\n"
    )


def test_the_package_says_that_it_has_types():
    assert (Path(bochner.__file__).parent / "py.typed").is_file()
