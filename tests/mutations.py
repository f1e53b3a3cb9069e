"""``python -m tests.mutations [--at FILE:LINE ...]``: plant faults and check that tests fail.

A mutant is the package with one change: a number (n becomes n + 1, a decimal is doubled), a sign
(+ and −, × and ÷, −x and x) or a comparison (turned into its opposite). Without ``--at`` the
mutants in ``tests/mutants.txt`` are run. Tests killed each of them when the list was made, so tests
that are merged or shortened must kill them again. A line of the list names tests that reach the
changed line; they run first, then the test files of that part of the package. No file is changed:
the fault is planted when the module is imported.
"""

import argparse
import ast
import importlib.machinery
import math
import multiprocessing
import os
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from itertools import chain
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
#: Mutants that tests killed when the list was made: file, change, line of the source, tests.
LIST = ROOT / "tests" / "mutants.txt"
PACKAGE = ROOT / "src" / "bochner"
#: Test files of each part of the package; the first matching prefix of a module counts.
FILES = {
    "certificates/bound": "facts/test_bounds",
    "certificates": "facts/test_certificates facts/test_checks",
    "features/fourier": "facts/test_grids facts/test_kernels laws/test_random_feature_laws",
    "features/mercer": "laws/test_eigenfunction_laws laws/test_zonal_map_laws",
    "features/nystrom": "laws/test_nystrom_laws",
    "features/networks": "laws/test_random_feature_laws laws/test_zonal_map_laws",
    "features/sketch": "laws/test_random_feature_laws laws/test_map_laws",
    "features": "facts/test_draw_rules laws/test_algebra_laws laws/test_map_laws",
    "kernels/basis": "laws/test_eigenfunction_laws",
    "kernels/sphere": "facts/test_grids",
    "kernels/windows": "facts/test_windows",
    "kernels": "facts/test_zonal_kernels facts/test_kernels laws/test_kernel_laws "
    "laws/test_gradient_laws laws/test_algebra_laws facts/test_grids",
    "solvers/convex": "facts/test_losses facts/test_newton laws/test_classifier_laws",
    "solvers/ridge/iterative": "facts/test_wide",
    "solvers/ridge": "facts/test_dual facts/test_solvers",
    "solvers": "facts/test_grids facts/test_cg facts/test_solvers laws/test_unsupervised_laws",
    "planner": "laws/test_plan_laws",
}
ALWAYS = "laws/test_frozen_answers laws/test_learner_laws"
SECONDS = 200.0  # Limit of processor time for the tests of a mutant
#: Modules that are imported once, before processes for mutants are forked.
LOADED = ("scipy.stats", "scipy.optimize", "sklearn.linear_model", "sklearn.svm", "mpmath")

OPPOSITE = {ast.Lt: ast.GtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq}
OPPOSITE |= {ast.Add: ast.Sub, ast.Mult: ast.Div}
OPPOSITE |= {b: a for a, b in OPPOSITE.items()}
#: Fields without mutants: types, decorators, and parameters with their defaults.
IGNORED = ("annotation", "returns", "decorator_list", "args")


class Site(NamedTuple):
    """A place in the source that can be changed."""

    path: str  # of the module, relative to the package
    number: int  # of the change, in the module
    line: int
    change: str
    text: str  # of the line

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.change}: {self.text}"


# --- changes, and the changed module ------------------------------------------------------------


def change(node: Any, *, make: bool = False) -> str | None:
    """Return a description of the change of a node, or None if there is none; ``make``: do it."""
    match node:
        case ast.Constant(value=value) if type(value) in (int, float):
            mutant: Any = value + 1 if isinstance(value, int) else 2 * value or 1.0
            description = f"{value!r} becomes {mutant!r}"
        case ast.BinOp(op=op) if type(op) in OPPOSITE and not is_text(node):
            mutant = OPPOSITE[type(op)]()
            description = f"{type(op).__name__} becomes {type(mutant).__name__}"
        case ast.Compare(ops=[op]) if type(op) in OPPOSITE:
            mutant = [OPPOSITE[type(op)]()]
            description = f"{type(op).__name__} becomes {type(mutant[0]).__name__}"
        case ast.UnaryOp(op=ast.USub()) if not isinstance(node.operand, ast.Constant):
            mutant, description = ast.UAdd(), "a minus sign is left out"
        case _:
            return None
    if make:
        field = next(name for name in ("value", "op", "ops") if name in node._fields)
        setattr(node, field, mutant)
    return description


def is_text(node: ast.BinOp) -> bool:
    """Return whether an operand is a text, so that + joins texts."""
    return any(
        isinstance(side, ast.JoinedStr)
        or (isinstance(side, ast.Constant) and isinstance(side.value, str))
        for side in (node.left, node.right)
    )


def is_free_size(node: ast.AST, child: ast.AST) -> bool:
    """Return whether the child is the −1 of a reshape: for NumPy −2 means the same."""
    of_reshape = isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "reshape"
    return of_reshape and ast.unparse(child) == "-1"


def places(node: ast.AST) -> Iterator[ast.AST]:
    """Yield nodes that can be changed, in source order; none in messages, types, decorators."""
    if isinstance(node, ast.Raise | ast.JoinedStr | ast.Assert):
        return
    if change(node) is not None:
        yield node
    for name, value in ast.iter_fields(node):
        if name in IGNORED and not isinstance(node, ast.Call):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not is_free_size(node, child):
                yield from places(child)


def sites(path: Path) -> Iterator[Site]:
    """Yield the places in a module that can be changed."""
    source = path.read_text(encoding="utf-8")
    lines = source.splitlines()
    for number, node in enumerate(places(ast.parse(source))):
        line = getattr(node, "lineno", 1)
        name = path.relative_to(PACKAGE).as_posix()
        yield Site(name, number, line, change(node) or "", lines[line - 1].strip())


def listed() -> list[tuple[Site, list[str]]]:
    """Return the mutants of the list whose lines are still in the source, and their tests."""
    lines = [line.split("\t") for line in LIST.read_text(encoding="utf-8").splitlines()]
    tests = {tuple(key): list(filter(exists, names.split())) for *key, names in lines}
    files = filter(Path.exists, (PACKAGE / path for path in sorted({path for path, *_ in tests})))
    keys = [(s, (s.path, s.change, s.text)) for s in chain.from_iterable(map(sites, files))]
    for path, *parts in sorted(tests.keys() - {key for _, key in keys}):
        say(f"not in the source any more: {path}: {': '.join(parts)}")
    return [(site, tests[key]) for site, key in keys if key in tests]


def exists(test: str) -> bool:
    """Return whether a test of the list exists."""
    file, _, name = test.partition("::")
    path = ROOT / "tests" / file
    return path.exists() and f"def {name}(" in path.read_text(encoding="utf-8")


# --- tests of a changed module -------------------------------------------------------------------


def plant(site: Site) -> None:
    """Change the import of a module, so that it has one fault."""
    path, usual = PACKAGE / site.path, importlib.machinery.SourceFileLoader.get_code
    tree = ast.parse(path.read_text())
    change(list(places(tree))[site.number], make=True)
    code = compile(ast.fix_missing_locations(tree), str(path), "exec")

    def get_code(self: Any, fullname: str) -> CodeType | None:
        return code if Path(self.path) == path else usual(self, fullname)

    importlib.machinery.SourceFileLoader.get_code = get_code  # type: ignore[method-assign]


def pytest_code(tests: list[str], seconds: float, site: Site | None) -> int:
    """Return the exit status of tests in a forked process.

    ``seconds`` limits the processor time, and ten times as many the elapsed time; the status at a
    limit is that of a signal.
    """
    start, child = time.monotonic(), os.fork()
    if child == 0:
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        limit = math.ceil(time.process_time() + seconds)
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
        if site is not None:
            plant(site)
        options = ["-x", "-q", "-n0", "-m", "not slow", "-p", "no:cacheprovider"]
        os._exit(pytest.main([*options, *(str(ROOT / "tests" / test) for test in tests)]))
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() - start > 10 * seconds:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.1)


# --- the command ---------------------------------------------------------------------------------


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def fails(tests: list[str], seconds: float, site: Site | None) -> bool:
    """Return whether a test fails within the limit; ``site`` is the planted fault, if any."""
    status = pytest_code(tests, seconds, site)
    if status == 4:
        raise RuntimeError(f"tests do not exist: {' '.join(tests)}, for {site}")
    return status not in (0, 5, -signal.SIGXCPU, -signal.SIGKILL)


def fate_of(job: tuple[Site, list[str]]) -> tuple[str, float]:
    """Return "killed" if a test fails, else "survived", and the elapsed seconds."""
    site, tests = job
    start = time.monotonic()
    files = next((files for part, files in FILES.items() if site.path.startswith(part)), "")
    reach = [f"{file}.py" for file in f"{files} {ALWAYS}".split()]
    killed = (tests and fails(tests, SECONDS, site)) or fails(reach, SECONDS, site)
    return "killed" if killed else "survived", time.monotonic() - start


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--at", nargs="+", metavar="FILE:LINE", help="all mutants of these lines")
    parser.add_argument("--part", default="", help="only files of the list with this prefix")
    parser.add_argument("--processes", type=int, default=1, help="number of processes")
    options = parser.parse_args()
    jobs = [job for job in listed() if job[0].path.startswith(options.part)]
    if options.at:
        lines = [place.rsplit(":", 1) for place in options.at]
        mutants = (s for file, line in lines for s in sites(PACKAGE / file) if s.line == int(line))
        jobs = [(site, []) for site in mutants]
    os.environ.setdefault("SCIPY_ARRAY_API", "1")  # As tests/conftest.py, before SciPy is loaded
    list(map(import_module, LOADED))
    names = sorted({test for _, tests in jobs for test in tests})
    if names and fails(names, 10 * SECONDS, None):
        say("Tests fail without a planted fault: correct that first.")
        return 2
    fates = Counter[str]()
    with multiprocessing.get_context("fork").Pool(options.processes) as pool:
        for (site, _), (fate, seconds) in zip(jobs, pool.imap(fate_of, jobs), strict=True):
            fates[fate] += 1
            say(f"{fate} in {seconds:.0f} s: {site}")
    say(f"{fates['killed']} of {len(jobs)} mutants killed")
    return int(fates["survived"] > 0)


if __name__ == "__main__":
    sys.exit(main())
