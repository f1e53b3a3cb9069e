"""``python -m tests.mutations [--mutants N --seed S]``: planted faults, and whether tests see them.

A mutant is the package with one change: a number (n becomes n + 1, a decimal is doubled), a sign
(+ and −, × and ÷, −x and x) or a comparison (turned into its opposite). Without ``--mutants`` the
fixed list ``tests/mutants.txt`` is tried: each of them was killed when the list was made, so that
tests which are merged or shortened must kill them again. Each mutant runs in its own process on the
tests that reach the changed line, quick tests first. One pass over the tests records which lines
each test reaches (``out/reached``; slow cases take no part); it is repeated for files that changed.
No file is changed: the fault is planted when the module is imported.
"""

import argparse
import ast
import builtins
import hashlib
import importlib.machinery
import math
import multiprocessing
import os
import pickle
import random
import resource
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib import import_module
from itertools import chain
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
#: Mutants that tests killed when the list was made: file, change and line of the source.
LIST = ROOT / "tests" / "mutants.txt"
PACKAGE = ROOT / "src" / "bochner"
PARTS = ("kernels", "features", "solvers", "certificates", "planner")
TESTS = ("facts", "laws")
ELSEWHERE = ("test_engines.py",)  # Runs in processes of engines, where no fault is planted
REACHED = ROOT / "out" / "reached"
PASS = 1200.0  # Seconds of the processor that a file of tests may take in the pass
SECONDS = 90.0  # Seconds of the processor that the tests of a mutant may take
FIRST = 24  # Tests that a mutant is tried on before the others are loaded
#: Loaded once, before the processes that try mutants part.
LOADED = ("scipy.stats", "scipy.optimize", "sklearn.linear_model", "sklearn.svm", "mpmath")

OPPOSITE = {ast.Lt: ast.GtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq}
OPPOSITE |= {other: one for one, other in OPPOSITE.items()}
#: Types, decorators, and parameters with what they are by default.
NOT_LOOKED_AT = ("annotation", "returns", "decorator_list", "args")
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


def is_rest(node: ast.AST, child: ast.AST) -> bool:
    """Whether it is the −1 of a reshape: NumPy takes all numbers below zero alike."""
    match node:
        case ast.Call(func=ast.Attribute(attr="reshape")):
            return ast.unparse(child) == "-1"
    return False


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
            if isinstance(child, ast.AST) and not is_rest(node, child):
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


def listed() -> list[Site]:
    """Return the fixed mutants whose lines still stand as they were listed."""
    wanted = {tuple(line.split("\t")) for line in LIST.read_text(encoding="utf-8").splitlines()}
    return [site for site in sites_of(PARTS) if (site.path, site.change, site.text) in wanted]


# --- which lines tests reach ----------------------------------------------------------------------


def statements(node: ast.AST, inside: bool = False) -> Iterator[tuple[ast.stmt, bool]]:
    """Give all statements, and whether a call runs them: those of modules and classes an import."""
    inside = inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            yield child, inside
        yield from statements(child, inside)


def name_of(path: Path, statement: ast.stmt) -> str:
    """Return what a statement is called in the record of lines that tests reach."""
    return f"{path.relative_to(PACKAGE).as_posix()}:{statement.lineno}"


@cache
def traced(path: Path) -> CodeType | None:
    """Return the code of a module whose functions name each statement before they run it."""
    if PACKAGE not in path.parents:
        return None
    tree = ast.parse(path.read_text(encoding="utf-8"))
    named = {id(statement) for statement, inside in statements(tree) if inside}

    def with_name(statement: ast.stmt) -> list[ast.stmt]:
        docstring = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        if id(statement) not in named or docstring:
            return [statement]
        say = ast.parse(f"__reached__({name_of(path, statement)!r})").body[0]
        for node in ast.walk(say):
            ast.copy_location(node, statement)
        return [say, statement]

    for node in list(ast.walk(tree)):
        for field in ("body", "orelse", "finalbody"):
            block = getattr(node, field, None)
            if isinstance(block, list):
                setattr(node, field, list(chain.from_iterable(map(with_name, block))))
    return compile(tree, str(path), "exec")


class Reached:
    """A plugin of pytest: which statements each test that passes reaches, with what it shares."""

    def __init__(self, file: Path, of: str) -> None:
        self.file, self.of = file, of
        self.seen: set[str] = set()
        self.shared: defaultdict[str, set[str]] = defaultdict(set)
        self.failed: set[str] = set()
        self.tests: dict[str, tuple[float, frozenset[str]]] = {}
        self.function = ""

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Leave slow cases out."""
        items[:] = [item for item in items if not item.get_closest_marker("slow")]

    def pytest_sessionstart(self) -> None:
        """Let the statements say that they are reached."""
        builtins.__reached__ = self.seen.add  # type: ignore[attr-defined]

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Any:
        """Tests that share a fixture reach what it reaches, whichever of them is first."""
        before = set(self.seen)
        self.seen.clear()
        try:
            return (yield)
        finally:
            self.shared[fixturedef.argname] |= self.seen
            self.seen |= before

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: Any) -> Any:
        """Record a test: what an earlier one has left in a cache is found anew."""
        if self.function != item.nodeid.split("[")[0]:
            self.function = item.nodeid.split("[")[0]
            clear_caches()
        self.seen.clear()
        began = time.process_time()
        done = yield
        seconds = time.process_time() - began
        if item.nodeid not in self.failed:
            shared = (self.shared.get(name, set()) for name in item.fixturenames)
            self.tests[item.nodeid] = (seconds, frozenset(self.seen.union(*shared)))
        return done

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Note what fails, or is left out."""
        if not report.passed:
            self.failed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        """Keep the record."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_bytes(pickle.dumps((self.of, self.tests)))


def clear_caches() -> None:
    """Empty the caches of the package's functions."""
    for name, module in list(sys.modules.items()):
        if name.startswith("bochner."):
            for value in list(vars(module).values()):
                if hasattr(value, "cache_info"):
                    value.cache_clear()


def test_files() -> list[Path]:
    files = chain.from_iterable((ROOT / "tests" / part).glob("test_*.py") for part in TESTS)
    return sorted(file for file in files if file.name not in ELSEWHERE)


def record_of(test: Path) -> tuple[str, dict[str, tuple[float, frozenset[str]]]]:
    """Return what a record is of, and the seconds and statements of each test in it."""
    file = REACHED / f"{test.stem}.pickle"
    return pickle.loads(file.read_bytes()) if file.exists() else ("", {})


def look(job: tuple[Path, str]) -> tuple[Path, int]:
    """Record what a file of tests reaches; return the status."""
    test, of = job
    plugin = Reached(REACHED / f"{test.stem}.pickle", of)
    return test, pytest_code([str(test)], PASS, traced, [plugin])


def look_at_all(processes: int) -> None:
    """Record what each file of tests reaches, but where it is known."""
    modules = sorted(PACKAGE.rglob("*.py"))
    sources = b"".join(path.read_bytes() for path in modules)
    digests = {t: hashlib.sha256(sources + t.read_bytes()).hexdigest() for t in test_files()}
    jobs = [(test, of) for test, of in digests.items() if record_of(test)[0] != of]
    if not jobs:
        return
    list(map(traced, modules))  # Once, before the processes part
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        for test, status in pool.imap_unordered(look, jobs):
            say(f"looked at {test.relative_to(ROOT)}" + (f": status {status}" if status else ""))


def readers(site: Site) -> set[str]:
    """Return the statements that run with a change: that of its line, or what reads its constant.

    A field of a class is read by the class's methods, any other constant by its module's functions.
    """
    path = PACKAGE / site.path
    here = list(statements(ast.parse(path.read_text(encoding="utf-8"))))
    lines = [(s, i) for s, i in here if s.lineno <= site.line <= (s.end_lineno or 0)]
    changed, inside = max(lines, key=lambda found: found[0].lineno)
    if inside:
        return {name_of(path, changed)}
    kinds = [s for s, _ in lines if isinstance(s, ast.ClassDef)]
    methods = {name_of(path, s) for kind in kinds[-1:] for s, i in statements(kind) if i}
    return methods or {name_of(path, s) for s, i in here if i}


def tests_of(sample: list[Site]) -> list[list[str]]:
    """Return the tests that reach each change: quick ones that reach little else are first.

    Of a test with many cases the first is the quickest, and the second comes after all others'.
    """
    names = [readers(site) for site in sample]
    found: list[list[tuple[float, str]]] = [[] for _ in sample]
    for file in test_files():
        for test, (seconds, reached) in record_of(file)[1].items():
            cost = (0.01 + seconds) * len(reached)
            for tests, wanted in zip(found, names, strict=True):
                if not wanted.isdisjoint(reached):
                    tests.append((cost, test))
    return [in_turn(sorted(tests)) for tests in found]


def in_turn(tests: list[tuple[float, str]]) -> list[str]:
    """Return tests by their cost, but the n-th case of each after the earlier cases of all."""
    cases, turns = Counter[str](), []
    for _, test in tests:
        function = test.split("[")[0]
        turns.append(cases[function])
        cases[function] += 1
    return [tests[i][1] for i in sorted(range(len(tests)), key=turns.__getitem__)]


# --- tests of a changed module -------------------------------------------------------------------


def plant(code_of: Callable[[Path], CodeType | None]) -> None:
    """Let modules be imported with other code, where there is some."""
    usual = importlib.machinery.SourceFileLoader.get_code

    def get_code(self: Any, fullname: str) -> CodeType | None:
        return code_of(Path(self.path)) or usual(self, fullname)

    importlib.machinery.SourceFileLoader.get_code = get_code  # type: ignore[method-assign]


class Only:
    """A plugin of pytest: some tests, in their order."""

    def __init__(self, tests: list[str]) -> None:
        self.place = {test: i for i, test in enumerate(tests)}

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Leave the others out."""
        chosen = [item for item in items if item.nodeid in self.place]
        items[:] = sorted(chosen, key=lambda item: self.place[item.nodeid])


def pytest_code(
    arguments: list[str],
    seconds: float,
    code_of: Callable[[Path], CodeType | None] | None,
    plugins: list[Any],
) -> int:
    """Run tests in a process of its own, which begins as a copy of this one; give its status.

    Seconds are of the processor; where they are spent the status is that of a signal, as it is
    where ten times as many of the wall are.
    """
    began, child = time.monotonic(), os.fork()
    if child == 0:
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        spent = math.ceil(time.process_time() + seconds)
        resource.setrlimit(resource.RLIMIT_CPU, (spent, spent))
        if code_of is not None:
            plant(code_of)
        os._exit(pytest.main(["-q", "-p", "no:cacheprovider", *arguments], plugins))
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() - began > 10 * seconds:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.1)


# --- the command ---------------------------------------------------------------------------------


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def fails(tests: list[str], site: Site | None, seconds: float) -> bool:
    """Whether one of some tests fails within the limit: the first few, then all others."""
    path = PACKAGE / site.path if site else None
    code = mutated(path, site.number) if site and path else None
    for some in filter(None, (tests[:FIRST], tests[FIRST:])):
        files = sorted({str(ROOT / test.split("::")[0]) for test in some})
        began, planted = seconds_of_children(), lambda p: code if p == path else None
        status = pytest_code(["-x", *files], seconds, planted, [Only(some)])
        if status == 4:
            raise RuntimeError(f"pytest was asked in a wrong way, for {site}")
        if status in (-signal.SIGXCPU, -signal.SIGKILL):
            return False
        if status not in (0, 5):
            return True
        seconds -= seconds_of_children() - began
    return False


def fate_of(job: tuple[Site, list[str]]) -> tuple[str, float]:
    """Return whether tests see a change, and the seconds of the processor that took."""
    site, tests = job
    began = seconds_of_children()
    if not tests:
        return "survived, for no test reaches it", 0.0
    fate = "killed" if fails(tests, site, SECONDS) else "survived"
    return fate, seconds_of_children() - began


def seconds_of_children() -> float:
    """Return the seconds of the processor that processes which ended have taken."""
    times = os.times()
    return times.children_user + times.children_system


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mutants", type=int, help="a random sample of so many, not the list")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--at", nargs="+", metavar="FILE:LINE", help="all mutants of these lines")
    parser.add_argument("--processes", type=int, default=1, help="at the same time")
    asked = parser.parse_args()
    sample = sites_at(asked.at) if asked.at else listed()
    if asked.mutants:
        found = sites_of(PARTS)
        sample = random.Random(asked.seed).sample(found, min(asked.mutants, len(found)))
    os.environ.setdefault("SCIPY_ARRAY_API", "1")  # As tests/conftest.py, before SciPy is loaded
    list(map(import_module, LOADED))
    look_at_all(asked.processes)
    jobs = list(zip(sample, tests_of(sample), strict=True))
    if fails(jobs[0][1], None, SECONDS):
        say("Tests fail without a planted fault: mend that first.")
        return 2
    fates, spent = Counter[str](), 0.0
    with multiprocessing.get_context("fork").Pool(asked.processes) as pool:
        tried = pool.imap(fate_of, jobs)
        for site, (fate, seconds) in zip(sample, tried, strict=True):
            fates[fate.split(",")[0]] += 1
            spent += seconds
            say(f"{fate}: {site}")
    say(f"{fates['killed']} of {len(sample)} mutants killed, {spent:.0f} s of the processor")
    return int(fates["survived"] > 0 and not asked.mutants)


if __name__ == "__main__":
    sys.exit(main())
