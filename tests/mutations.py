"""``python tests/mutations.py [--mutants N] [--seed S]``: planted faults, and whether tests see them.

A mutant is the package with one change: a number (n becomes n + 1, a decimal is doubled), a sign
(+ and −, × and ÷, −x and x) or a comparison (turned into its opposite). A sample of all that can
be made of the mathematics is tried, one process each, on the six files of tests that speak most
of the changed module and of those that import it: names that few other files know count most.
A mutant that a test fails on is killed; what no test has failed on within the limit survives. No
file is changed: the fault is planted when the module is imported.
"""

import argparse
import ast
import importlib.machinery
import math
import os
import random
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "bochner"
PARTS = ("kernels", "features", "solvers", "certificates")
TESTS = ("facts", "laws")
FILES = 6  # Of tests that a mutant is tried on
BY_WAY_OF = 0.3  # Weight of names that importers define

OPPOSITE = {
    ast.Lt: ast.GtE,
    ast.LtE: ast.Gt,
    ast.Gt: ast.LtE,
    ast.GtE: ast.Lt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
}
#: Types, decorators, and parameters with what they are by default.
NOT_LOOKED_AT = ("annotation", "returns", "decorator_list", "args")
OTHER_SIGN = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult}


class Site(NamedTuple):
    """Where one thing can be changed."""

    path: str  # Of the module, from the package on
    number: int  # Of the change in the module
    line: int
    change: str


# --- what can be changed, and the changed module ------------------------------------------------


def changes(node: ast.AST) -> str | None:
    """Say what would be changed in a node, if anything."""
    match node:
        case ast.Constant(value=value) if type(value) in (int, float):
            return f"{value!r} becomes {changed_number(value)!r}"
        case ast.BinOp(op=op) if type(op) in OTHER_SIGN and not is_text(node):
            return f"{type(op).__name__} becomes {OTHER_SIGN[type(op)].__name__}"
        case ast.UnaryOp(op=ast.USub()) if not isinstance(node.operand, ast.Constant):
            return "a minus sign is left out"
        case ast.Compare(ops=[op]) if type(op) in OPPOSITE:
            return f"{type(op).__name__} becomes {OPPOSITE[type(op)].__name__}"
    return None


def is_text(node: ast.BinOp) -> bool:
    """Whether text is put together."""
    sides = (node.left, node.right)
    return any(
        isinstance(s, ast.JoinedStr) or (isinstance(s, ast.Constant) and isinstance(s.value, str))
        for s in sides
    )


def changed_number(value: float) -> float:
    return value + 1 if isinstance(value, int) else 2 * value or 1.0


def change(node: Any) -> None:
    """Make the change in place."""
    match node:
        case ast.Constant():
            node.value = changed_number(node.value)
        case ast.BinOp():
            node.op = OTHER_SIGN[type(node.op)]()
        case ast.UnaryOp():
            node.op = ast.UAdd()
        case ast.Compare():
            node.ops = [OPPOSITE[type(node.ops[0])]()]


def places(node: ast.AST) -> Iterator[ast.AST]:
    """Give what can be changed, in the order of the source; not in messages, types, decorators."""
    if isinstance(node, ast.Raise | ast.JoinedStr | ast.Assert):
        return
    if changes(node) is not None:
        yield node
    for name, value in ast.iter_fields(node):
        if name in NOT_LOOKED_AT and not isinstance(node, ast.Call):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from places(child)


def sites(parts: tuple[str, ...]) -> list[Site]:
    """Return all that can be changed in some parts of the package."""
    found = []
    for part in parts:
        for path in sorted((PACKAGE / part).rglob("*.py")):
            name = path.relative_to(PACKAGE).as_posix()
            for number, node in enumerate(places(ast.parse(path.read_text()))):
                line = getattr(node, "lineno", 0)
                found.append(Site(name, number, line, changes(node) or ""))
    return found


def mutated(path: Path, number: int) -> CodeType:
    """Return the code of a module with one change."""
    tree = ast.parse(path.read_text())
    node = list(places(tree))[number]
    change(node)
    return compile(ast.fix_missing_locations(tree), str(path), "exec")


# --- within pytest: -p mutations -----------------------------------------------------------------


def plant(path: Path, number: int) -> None:
    """Let a module be imported with one change."""
    usual = importlib.machinery.SourceFileLoader.get_code

    def get_code(self: Any, fullname: str) -> CodeType | None:
        if Path(self.path) == path:
            return mutated(path, number)
        return usual(self, fullname)

    importlib.machinery.SourceFileLoader.get_code = get_code  # type: ignore[method-assign]


def pytest_configure() -> None:
    """Plant the fault that the environment names."""
    if "BOCHNER_MUTANT" in os.environ:
        name, number = os.environ["BOCHNER_MUTANT"].rsplit(":", 1)
        plant(PACKAGE / name, int(number))


# --- the command ---------------------------------------------------------------------------------


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def pytest(*arguments: str, seconds: float | None = None, **variables: str) -> int | None:
    """Run tests in a process of its own; None where it took too long."""
    paths = os.pathsep.join([str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": paths} | variables
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "mutations"]
    try:
        return subprocess.run(
            [*command, *arguments],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=seconds,
            check=False,
        ).returncode
    except subprocess.TimeoutExpired:
        return None


def defined(path: Path) -> set[str]:
    """Return the names of functions and classes of a module."""
    tree = ast.parse(path.read_text())
    return {n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)}


def importers(path: str) -> list[Path]:
    """Return the modules that import one."""
    name = "bochner." + path.removesuffix(".py").replace("/", ".")
    line = f"from {name} import "
    return [f for f in PACKAGE.rglob("*.py") if line in f.read_text() and f.name != "__init__.py"]


def test_files() -> dict[str, Counter[str]]:
    """Return the words of each file of tests, and how often it has them."""
    files = sorted(f for part in TESTS for f in (ROOT / "tests" / part).glob("test_*.py"))
    words = {f.relative_to(ROOT).as_posix(): re.findall(r"\w+", f.read_text()) for f in files}
    return {name: Counter(found) for name, found in words.items()}


def tests_of(path: str, files: dict[str, Counter[str]]) -> list[str]:
    """Return the files of tests that speak most of a module, the best first."""
    near = importers(path)
    far = chain.from_iterable(importers(f.relative_to(PACKAGE).as_posix()) for f in near)
    names = dict.fromkeys(chain.from_iterable(map(defined, far)), BY_WAY_OF**2)
    names |= dict.fromkeys(chain.from_iterable(map(defined, near)), BY_WAY_OF)
    names |= dict.fromkeys(defined(PACKAGE / path), 1.0)
    known = {name: sum(name in words for words in files.values()) for name in names}
    rare = {name: names[name] * math.log(len(files) / n) for name, n in known.items() if n}

    def spoken(file: str) -> float:
        return sum(math.log1p(files[file][name]) * weight for name, weight in rare.items())

    return sorted(files, key=spoken, reverse=True)[:FILES]


def is_killed(site: Site, files: dict[str, Counter[str]], seconds: float) -> bool:
    """Whether a test fails of the change."""
    mutant = f"{site.path}:{site.number}"
    tests = tests_of(site.path, files)
    return pytest("-x", *tests, seconds=seconds, BOCHNER_MUTANT=mutant) not in (0, None)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mutants", type=int, default=100, help="how many are tried; 0: all")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--parts", nargs="+", default=PARTS, choices=PARTS)
    parser.add_argument("--seconds", type=float, default=600.0, help="limit for a mutant")
    parser.add_argument("--least", type=float, default=0.0, help="least score, in per cent")
    asked = parser.parse_args()
    files, found = test_files(), sites(tuple(asked.parts))
    sample = random.Random(asked.seed).sample(found, min(asked.mutants or len(found), len(found)))
    began, survived = time.monotonic(), list[Site]()
    for site in sample:
        if not is_killed(site, files, asked.seconds):
            survived.append(site)
            say(f"survived: {site.path}:{site.line}: {site.change}")
    score = 100 * (1 - len(survived) / max(1, len(sample)))
    say(
        f"{len(sample) - len(survived)} of {len(sample)} mutants killed ({score:.0f} %), of "
        f"{len(found):,} that can be made; seed {asked.seed}, {time.monotonic() - began:.0f} s"
    )
    return int(score < asked.least)


if __name__ == "__main__":
    sys.exit(main())
