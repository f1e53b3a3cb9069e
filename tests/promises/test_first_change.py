"""The walk-through of a first change works: its steps are taken on a copy of the source."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
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
    settings = os.environ | {"PYTHONPATH": paths, "BOCHNER_PURE_PYTHON": "1"}
    return subprocess.run(
        words, cwd=copy, capture_output=True, text=True, env=settings, check=False
    )


@pytest.mark.main_cases(1)
@pytest.mark.parametrize("number", [0, 1, 2])
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


def test_what_is_imported_is_the_changed_source(copy):
    code = "import bochner.kernels as k; print(k.__file__); k.Tanimoto()"
    done = run(copy, [sys.executable, "-c", code])
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(copy))


def test_planted_line_that_is_not_there_is_seen():
    with pytest.raises(AssertionError, match="no line 'lost'"):
        changed("a\nb", [" lost", "+c"])
    assert changed("a\nb\na", [" a", "+c", " b", "+d"]) == "a\nc\nb\nd\na"
    assert changed("a\nb\nc", ["-b", "+d", "+e", " c", "+f"]) == "a\nd\ne\nc\nf"
