"""``python tests/processors.py [--report FOLDER]``: numerical tests as on other processors.

Each run has one of OpenBLAS's processors, one instruction set of the compiled loops (or pure
Python), and one or two threads of BLAS; each processor that this machine can execute, each
instruction set and each number of threads has its turn. What a run says it uses is asked of the
libraries themselves, in a process like those of the tests. Fewer than three processors, a test
that fails or one that is skipped: the command fails.
"""

import argparse
import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from itertools import cycle
from pathlib import Path
from typing import NamedTuple

#: Names that OPENBLAS_CORETYPE knows, of kernels that differ.
PROCESSORS = ("Nehalem", "Sandybridge", "Haswell", "Zen", "SkylakeX", "ARMV8", "NEOVERSEN1")

#: Tests whose answers could depend on rounding, one or more for each solver and map.
TESTS = (
    "tests/facts/test_cg.py",
    "tests/facts/test_solvers.py",
    "tests/facts/test_blas.py",
    "tests/laws/test_frozen_answers.py",
    "tests/laws/test_learner_laws.py",
    "tests/laws/test_map_laws.py",
    "tests/laws/test_nystrom_laws.py",
    "tests/laws/test_ridge_laws.py",
    "tests/laws/test_sum_laws.py",
    "tests/laws/test_unsupervised_laws.py",
    "tests/promises/test_sklearn.py",
)
ONLY = (
    "(not test_map_laws or array_library or far_away)"
    " and (not test_nystrom_laws or exact_on_landmarks)"
    " and (not test_sklearn or sample_weight_equivalence)"
    # of copies, tables, names and refusals: the same whatever is rounded
    " and not ([kept- or [tables- or [libraries- or [labels- or [parameters- or [rows- or [later-)"
)

PURE = "pure Python"

REPORT = """
import json
import threadpoolctl
import numpy as np
import scipy.linalg
from bochner._core import native
G = np.eye(64) + 1.0
assert np.allclose(np.linalg.inv(G) @ G, np.eye(64)) and np.allclose(scipy.linalg.inv(G) @ G, np.eye(64))
blas = [i for i in threadpoolctl.threadpool_info() if i["internal_api"] == "openblas"]
print(json.dumps({
    "processors": sorted({i["architecture"].lower() for i in blas}),
    "threads": sorted({i["num_threads"] for i in blas}),
    "loops": native._compiled.get_level() if native.HAVE_NATIVE else "pure Python",
    "levels": native._compiled.levels() if native.HAVE_NATIVE else [],
}))
"""


class Run(NamedTuple):
    """One way to run the tests."""

    processor: str
    loops: str
    threads: int

    def environment(self) -> dict[str, str]:
        """Return the variables that ask for it."""
        pure = self.loops == PURE
        asked = {
            "OPENBLAS_CORETYPE": self.processor,
            "OPENBLAS_NUM_THREADS": str(self.threads),
            "OMP_NUM_THREADS": str(self.threads),
            "BOCHNER_PURE_PYTHON": "1" if pure else "",
            "BOCHNER_INSTRUCTIONS": "" if pure else self.loops,
        }
        return os.environ | asked

    def used(self) -> dict:
        """Return what the libraries say they use; nothing if a process dies of it."""
        command = [sys.executable, "-W", "ignore", "-c", REPORT]
        done = subprocess.run(
            command, env=self.environment(), capture_output=True, text=True, check=False
        )
        return json.loads(done.stdout) if done.returncode == 0 else {}

    def works(self) -> bool:
        """Whether the libraries use what was asked for."""
        used = self.used()
        found = (used.get("processors"), used.get("threads"), used.get("loops"))
        return found == ([self.processor.lower()], [self.threads], self.loops)


def runs() -> list[Run]:
    """Return the runs of this machine, or end with what it lacks."""
    levels = Run("", "", 1).used().get("levels", [])
    if not levels:
        sys.exit("processors: compiled loops are required; install with a C++ compiler.")
    found = [name for name in PROCESSORS if Run(name, levels[0], 1).works()]
    if len(found) < 3:
        sys.exit(f"processors: OpenBLAS with three processors or more is required; found {found}.")
    loops = [*reversed(levels), PURE]
    count = max(len(found), len(loops))
    threads = [2, *(count - 1) * [1]]  # with two, tests wait for one another: once is enough
    planned = list(map(Run, cycle(reversed(found)), cycle(loops), threads))
    if broken := [run for run in planned if not run.works()]:
        sys.exit(f"processors: asked for {broken}; got {[run.used() for run in broken]}.")
    return planned


def failed(run: Run, report: Path) -> bool:
    """Run the tests; say what failed or was skipped."""
    report.unlink(missing_ok=True)
    workers = max(1, (os.cpu_count() or 1) // run.threads)
    command = [sys.executable, "-m", "pytest", "-q", "-n", str(workers), "--dist", "loadgroup"]
    command += [*TESTS, "-k", ONLY, "-m", "not slow", f"--junitxml={report}"]
    code = subprocess.run(command, env=run.environment(), check=False).returncode
    cases = list(ET.parse(report).iter("testcase")) if report.exists() else []
    skipped = [case.get("name") for case in cases if case.find("skipped") is not None]
    for name in skipped:
        say(f"skipped: {name}")
    return bool(code or skipped or not cases)


def say(line: str) -> None:
    """Write a line at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    """Run all, and fail if one did."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--report", type=Path, default=Path("out"), help="folder of reports")
    parser.add_argument("--list", action="store_true", help="only say what would be run")
    asked = parser.parse_args()
    asked.report.mkdir(parents=True, exist_ok=True)
    wrong = []
    for run in runs():
        say(f"\n{run.processor}, {run.loops}, threads: {run.threads}")
        if not asked.list and failed(run, asked.report / f"tests-{run.processor}.xml"):
            wrong.append(run)
    if wrong:
        sys.exit(f"processors: failed: {wrong}")


if __name__ == "__main__":
    main()
