"""What is published agrees with itself: versions, dependencies, workflows and forms."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import bochner

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


def test_a_broken_workflow_is_seen(tmp_path):
    broken = tmp_path / "test.yml"
    text = FORMS["vendor.github-workflows"][0].read_text(encoding="utf-8")
    broken.write_text(text.replace("runs-on:", "runs-upon:"), encoding="utf-8")
    assert checked("vendor.github-workflows", broken).returncode == 1


def test_one_version_everywhere():
    recipe = (ROOT / "conda" / "recipe.yaml").read_text(encoding="utf-8")
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.search(r'version: "([\d.]+)"', recipe)[1] == PROJECT["version"]
    assert re.search(r"^version: ([\d.]+)$", citation, re.MULTILINE)[1] == PROJECT["version"]


def test_the_recipe_asks_for_what_the_package_asks_for():
    recipe = (ROOT / "conda" / "recipe.yaml").read_text(encoding="utf-8")
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


def wanted(extra):
    """The names of what an extra installs, those of other extras of the project too."""
    names = set()
    for line in PROJECT["optional-dependencies"][extra]:
        name, others = re.match(r"([\w-]+)(?:\[([\w,]+)\])?", line).groups()
        names |= {name}
        if name == "bochner":
            names |= {found for other in others.split(",") for found in wanted(other)}
    return names | {re.match(r"[\w-]+", line)[0] for line in PROJECT["dependencies"]}


def imported(*folders):
    """Packages that tests cannot be collected without."""
    files = [file for folder in folders for file in folder]
    trees = [ast.parse(file.read_text(encoding="utf-8")) for file in files]
    nodes = [node for tree in trees for node in tree.body]
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in nodes if isinstance(node, ast.ImportFrom)]
    found = {name.partition(".")[0] for name in names}
    return found - set(sys.stdlib_module_names) - {"tests", *(file.stem for file in files)}


#: Helpers of tests that no law imports.
NOT_OF_LAWS = {"checked_shapes", "mutations", "processors"}


def test_jobs_that_run_the_laws_install_what_these_import():
    tests = ROOT / "tests"
    helpers = [file for file in tests.glob("*.py") if file.stem not in NOT_OF_LAWS]
    packages = imported((tests / "laws").glob("*.py"), helpers)
    names = {"sklearn": "scikit-learn"}
    assert {names.get(p, p.replace("_", "-")) for p in packages} <= wanted("laws")
    for file in FORMS["vendor.github-workflows"]:
        text = file.read_text(encoding="utf-8")
        assert text.count("pytest tests/laws") == text.count('".[laws]"')


def test_the_oldest_python_is_tried():
    oldest = PROJECT["requires-python"].removeprefix(">=")
    assert f"Programming Language :: Python :: {oldest}" in PROJECT["classifiers"]
    for file in FORMS["vendor.github-workflows"]:
        text = file.read_text(encoding="utf-8")
        if "matrix.python" in text:
            assert f'python: ["{oldest}"' in text


@pytest.mark.slow
def test_an_installed_package_can_be_tried():
    found = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "installed.py")],
        capture_output=True,
        text=True,
        check=False,
    )
    compiled = "The compiled loops are not in this package." in found.stderr
    assert compiled or found.returncode == 0, found.stdout + found.stderr
