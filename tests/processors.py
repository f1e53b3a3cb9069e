"""``python tests/processors.py [--report FOLDER]``: run numerical tests as on other processors.

A run uses the kernels of one processor of OpenBLAS, one instruction set of the compiled loops (or
pure Python), and one or two threads of BLAS. All processors that this machine can emulate, all
instruction sets and both numbers of threads are covered. A process like those of the tests asks the
libraries which of them they use. The command fails with fewer than three processors, or if a test
fails or is skipped.
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

#: Values of OPENBLAS_CORETYPE with different kernels.
PROCESSORS = ("Nehalem", "Sandybridge", "Haswell", "Zen", "SkylakeX", "ARMV8", "NEOVERSEN1")

#: Tests whose results could depend on rounding, at least one for each solver and map.
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
    "(not test_map_laws or array_libraries or far_away)"
    " and (not test_nystrom_laws or exact_on_landmarks)"
    " and (not test_sklearn or sample_weight_equivalence)"
    # tests of copies, tables, names and errors do not depend on rounding
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
        """Return environment variables that select this run."""
        pure = self.loops == PURE
        variables = {
            "OPENBLAS_CORETYPE": self.processor,
            "OPENBLAS_NUM_THREADS": str(self.threads),
            "OMP_NUM_THREADS": str(self.threads),
            "BOCHNER_PURE_PYTHON": "1" if pure else "",
            "BOCHNER_INSTRUCTIONS": "" if pure else self.loops,
        }
        return os.environ | variables

    def libraries(self) -> dict:
        """Return the settings that the libraries report; {} if the process crashes."""
        command = [sys.executable, "-W", "ignore", "-c", REPORT]
        process = subprocess.run(
            command, env=self.environment(), capture_output=True, text=True, check=False
        )
        return json.loads(process.stdout) if process.returncode == 0 else {}

    def works(self) -> bool:
        """Return whether the libraries use the settings of the run."""
        report = self.libraries()
        settings = (report.get("processors"), report.get("threads"), report.get("loops"))
        return settings == ([self.processor.lower()], [self.threads], self.loops)


def runs() -> list[Run]:
    """Return the runs that this machine can execute; exit if compiled loops or OpenBLAS are missing."""
    levels = Run("", "", 1).libraries().get("levels", [])
    if not levels:
        sys.exit("processors: compiled loops are required; install with a C++ compiler.")
    names = [name for name in PROCESSORS if Run(name, levels[0], 1).works()]
    if len(names) < 3:
        sys.exit(f"processors: OpenBLAS with at least three processors is required; got {names}.")
    loops = [*reversed(levels), PURE]
    count = max(len(names), len(loops))
    threads = [2, *(count - 1) * [1]]  # with two threads tests are slow: once is enough
    plan = list(map(Run, cycle(reversed(names)), cycle(loops), threads))
    if broken := [run for run in plan if not run.works()]:
        sys.exit(f"processors: settings must be {broken}; got {[r.libraries() for r in broken]}.")
    return plan


def failed(run: Run, report: Path) -> bool:
    """Run the tests; return whether a test failed or was skipped."""
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
    """Print a line without delay."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    """Run the tests with all settings; exit with an error if one fails."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--report", type=Path, default=Path("out"), help="folder of reports")
    parser.add_argument("--list", action="store_true", help="only print the runs")
    options = parser.parse_args()
    options.report.mkdir(parents=True, exist_ok=True)
    wrong = []
    for run in runs():
        say(f"\n{run.processor}, {run.loops}, threads: {run.threads}")
        if not options.list and failed(run, options.report / f"tests-{run.processor}.xml"):
            wrong.append(run)
    if wrong:
        sys.exit(f"processors: failed: {wrong}")


if __name__ == "__main__":
    main()
