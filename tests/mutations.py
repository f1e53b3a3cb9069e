"""``python tests/mutations.py [--mutants N] [--seed S]``: planted faults, and whether tests see them.

A mutant is the package with one change: a number (n becomes n + 1, a decimal is doubled), a sign
(+ and −, × and ÷, −x and x) or a comparison (turned into its opposite). A sample of all that can
be made of the mathematics is tried, one process each, on the six files of tests that speak most
of the changed module and of those that import it: names that few other files know count most.
A mutant that a test fails on is killed; what no test has failed on within the limit survives, and
counts against the tests unless ``EQUIVALENT`` says why no answer changes. The score of the sample
is printed with the interval that holds the score of all mutants with 95 % (Clopper and Pearson).
No file is changed: the fault is planted when the module is imported.
"""

import argparse
import ast
import importlib.machinery
import inspect
import math
import os
import random
import re
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from importlib import import_module
from itertools import chain
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "bochner"
PARTS = ("kernels", "features", "solvers", "certificates", "planner")
TESTS = ("facts", "laws")
FILES = 6  # Of tests that a mutant is tried on
CASES = 3  # Of a test, before the next test has its turn
NEAREST = 3.0  # Weight of names around the change; of others of its module 1
BY_WAY_OF = 0.3  # Weight of names that importers define
#: Loaded once, before the processes that try mutants part.
LOADED = ("scipy.stats", "scipy.optimize", "sklearn.linear_model", "sklearn.svm", "mpmath")

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
#: Mutants whose answers are the same, or as good: file, line of the source, change; and why.
EQUIVALENT: dict[tuple[str, str, str], str] = {
    (
        "kernels/spectral.py",
        "return signs * np.array(self.means)[q] + np.array(self.deviations)[q] * Z",
        "Add becomes Sub",
    ): "Z and −Z have the same law",
    (
        "certificates/bounds/zonal.py",
        "series, n = radial.power_series, np.arange(DEGREES + 1)[:, None]",
        "1 becomes 2",
    ): "one more degree after 401 of a series whose terms are looked at to 1e-15 of the trace",
    (
        "features/mercer/harmonic.py",
        "return Nodes(np.array([method.radius]), np.ones(1)), REACH * method.radius",
        "Mult becomes Div",
    ): "rows beyond the reach of an interpolant have exact values: they cost more, nothing else",
    (
        "kernels/stationary_families.py",
        "log_z = np.linspace(-40.0 / (1 - b), 8.0 - log_a.min(), 1200)",
        "8.0 becomes 16.0",
    ): "from 8 on the density underflows; only the step of a fine grid changes",
    (
        "solvers/convex/kernel.py",
        "return replace(self, K=K, y=self.y[some], w=EVERY * self.w[some]), some",
        "Mult becomes Div",
    ): "a fit to every fourth row says where Newton's steps begin, not where they end",
    (
        "kernels/radial.py",
        "u += (81 * p**2 - 462 * p**4 + 385 * p**6) / (1152 * mu**2)",
        "81 becomes 82",
    ): "of orders above 700, whose Bessel functions underflow: a relative 2e-9 of next to nothing",
    (
        "features/mercer/radial.py",
        "h = monomials(radial, degree, order + 1, np.ones(1))[self.degrees, self.indices, 0]",
        "1 becomes 2",
    ): "one order more is made, and not picked",
}
OTHER_SIGN = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult}


class Site(NamedTuple):
    """Where one thing can be changed."""

    path: str  # Of the module, from the package on
    number: int  # Of the change in the module
    line: int
    change: str
    text: str  # Of the line

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.change}: {self.text}"


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


def sites(path: Path) -> Iterator[Site]:
    """Give all that can be changed in a module."""
    source = path.read_text(encoding="utf-8")
    lines = source.splitlines()
    for number, node in enumerate(places(ast.parse(source))):
        line = getattr(node, "lineno", 1)
        name = path.relative_to(PACKAGE).as_posix()
        yield Site(name, number, line, changes(node) or "", lines[line - 1].strip())


def sites_of(parts: Iterable[str]) -> list[Site]:
    """Return all that can be changed in some parts of the package."""
    files = chain.from_iterable(sorted((PACKAGE / part).rglob("*.py")) for part in parts)
    return list(chain.from_iterable(map(sites, files)))


def sites_at(places: Iterable[str]) -> list[Site]:
    """Return all that can be changed in lines named as FILE:LINE."""
    named = [place.rsplit(":", 1) for place in places]
    return [
        site for file, line in named for site in sites(PACKAGE / file) if site.line == int(line)
    ]


def mutated(path: Path, number: int) -> CodeType:
    """Return the code of a module with one change."""
    tree = ast.parse(path.read_text())
    node = list(places(tree))[number]
    change(node)
    return compile(ast.fix_missing_locations(tree), str(path), "exec")


# --- tests of a changed module -------------------------------------------------------------------


def plant(path: Path, number: int) -> None:
    """Let a module be imported with one change."""
    usual = importlib.machinery.SourceFileLoader.get_code

    def get_code(self: Any, fullname: str) -> CodeType | None:
        if Path(self.path) == path:
            return mutated(path, number)
        return usual(self, fullname)

    importlib.machinery.SourceFileLoader.get_code = get_code  # type: ignore[method-assign]


class BestFirst:
    """A plugin of pytest: tests that speak most of the change come first, a few cases of each."""

    def __init__(self, weights: dict[str, float]) -> None:
        self.weights = weights

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Order the tests that were collected."""
        spoken: dict[str, float] = {}
        cases = Counter[str]()
        keys = []
        for item in items:
            test = item.nodeid.split("[")[0]
            if test not in spoken:
                words = set(re.findall(r"\w+", inspect.getsource(item.function)))
                spoken[test] = sum(w for name, w in self.weights.items() if name in words)
            keys.append((cases[test] // CASES, -spoken[test]))
            cases[test] += 1
        order = sorted(range(len(items)), key=keys.__getitem__)
        items[:] = [items[i] for i in order]


def pytest_code(arguments: list[str], seconds: float, site: Site | None, plugins: list[Any]) -> int:
    """Run tests in a process of its own, which begins as a copy of this one; give its status.

    Seconds are of the processor; where they are spent the status is that of a signal, as it is
    where twenty times as many of the wall are.
    """
    began, child = time.monotonic(), os.fork()
    if child == 0:
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        spent = math.ceil(time.process_time() + seconds)
        resource.setrlimit(resource.RLIMIT_CPU, (spent, spent))
        if site is not None:
            plant(PACKAGE / site.path, site.number)
        os._exit(pytest.main(["-q", "-x", "-p", "no:cacheprovider", *arguments], plugins))
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() - began > 20 * seconds:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.1)


# --- the command ---------------------------------------------------------------------------------


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def defined(path: Path) -> set[str]:
    """Return the names of functions and classes of a module."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)}


def around(site: Site) -> set[str]:
    """Return the names of what a change lies in, and of what reads its constants and private names."""
    tree = ast.parse((PACKAGE / site.path).read_text(encoding="utf-8"))
    scopes = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.ClassDef)]
    said = {n.name: said_in(n) for n in scopes if isinstance(n, ast.FunctionDef)}
    names = {n.name for n in scopes if n.lineno <= site.line <= (n.end_lineno or 0)}
    hidden = {name for name in names if name.startswith("_")} | assigned_at(tree, site.line)
    while hidden:
        callers = {name for name, words in said.items() if words & hidden} - names
        names |= callers
        hidden = {name for name in callers if name.startswith("_")}
    return names


def assigned_at(tree: ast.Module, line: int) -> set[str]:
    """Return the names that a statement of a module gives values to, if one is at a line."""
    statements = [n for n in tree.body if isinstance(n, ast.Assign | ast.AnnAssign)]
    here = [n for n in statements if n.lineno <= line <= (n.end_lineno or 0)]
    nodes = chain.from_iterable(map(ast.walk, here))
    return {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def said_in(scope: ast.AST) -> set[str]:
    """Return the names that code reads, and those behind its dots."""
    nodes = list(ast.walk(scope))
    names = {n.id for n in nodes if isinstance(n, ast.Name)}
    return names | {n.attr for n in nodes if isinstance(n, ast.Attribute)}


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


def weights_of(site: Site, files: dict[str, Counter[str]]) -> dict[str, float]:
    """Return how much each name that tests speak of says about a change: rare ones the most."""
    near = importers(site.path)
    far = chain.from_iterable(importers(f.relative_to(PACKAGE).as_posix()) for f in near)
    names = dict.fromkeys(chain.from_iterable(map(defined, far)), BY_WAY_OF**2)
    names |= dict.fromkeys(chain.from_iterable(map(defined, near)), BY_WAY_OF)
    names |= dict.fromkeys(defined(PACKAGE / site.path), 1.0)
    names |= dict.fromkeys(around(site), NEAREST)
    known = {name: sum(name in words for words in files.values()) for name in names}
    return {name: names[name] * math.log(len(files) / n) for name, n in known.items() if n}


def tests_of(weights: dict[str, float], files: dict[str, Counter[str]]) -> list[str]:
    """Return the files of tests that speak most of a change, the best first."""

    def spoken(file: str) -> float:
        return sum(math.log1p(files[file][name]) * weight for name, weight in weights.items())

    return sorted(files, key=spoken, reverse=True)[:FILES]


def fate_of(site: Site, files: dict[str, Counter[str]], seconds: float) -> str:
    """Return "killed" where a test fails of the change, else "survived" or "equivalent"."""
    if (site.path, site.text, site.change) in EQUIVALENT:
        return "equivalent"
    weights = weights_of(site, files)
    code = pytest_code(tests_of(weights, files), seconds, site, [BestFirst(weights)])
    if code in (4, 5):
        raise RuntimeError(f"pytest ran no test: status {code} for {site}")
    stopped = code in (-signal.SIGXCPU, -signal.SIGKILL)
    return "survived" if code == 0 or stopped else "killed"


def seconds_of_children() -> float:
    """Return the seconds of the processor that processes which ended have taken."""
    times = os.times()
    return times.children_user + times.children_system


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mutants", type=int, default=100, help="how many are tried; 0: all")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--after", type=int, default=0, help="how many of these were tried before")
    parser.add_argument("--at", nargs="+", metavar="FILE:LINE", help="all mutants of these lines")
    parser.add_argument("--parts", nargs="+", default=PARTS, choices=PARTS)
    parser.add_argument(
        "--seconds", type=float, default=90.0, help="of the processor, limit for a mutant"
    )
    parser.add_argument("--least", type=float, default=0.0, help="least score, in per cent")
    asked = parser.parse_args()
    files, found = test_files(), sites_at(asked.at) if asked.at else sites_of(asked.parts)
    many = len(found) if asked.at else min(asked.mutants or len(found), len(found))
    sample = random.Random(asked.seed).sample(found, many)[asked.after :]
    os.environ.setdefault("SCIPY_ARRAY_API", "1")  # As tests/conftest.py, before SciPy is loaded
    stats, *_ = map(import_module, LOADED)
    if pytest_code(tests_of(weights_of(sample[0], files), files), asked.seconds, None, []) > 0:
        say("Tests fail without a planted fault: mend that first.")
        return 2
    began, fates = seconds_of_children(), Counter[str]()
    for site in sample:
        fate = fate_of(site, files, asked.seconds)
        fates[fate] += 1
        say(f"{fate}: {site}")
    killed, counted = fates["killed"], fates["killed"] + fates["survived"]
    least, most = stats.binomtest(killed, max(1, counted)).proportion_ci(0.95, "exact")
    score = 100 * killed / max(1, counted)
    say(
        f"{killed} of {counted} mutants killed: {score:.0f} % (95 %: {100 * least:.0f} to "
        f"{100 * most:.0f} %), beside {fates['equivalent']} that change no answer; a sample of "
        f"{len(sample)} of the {len(found):,} that can be made, seed {asked.seed}, "
        f"{seconds_of_children() - began:.0f} s of the processor"
    )
    return int(score < asked.least)


if __name__ == "__main__":
    sys.exit(main())
