"""``python tests/sanitizers/run.py``: the compiled loops under the sanitizers of the compiler.

The module that `make test-sanitizers` built stops the process at the first access outside an
array and at the first undefined operation. Tests of the loops, then random calls, run in it once
for each instruction set of this processor. It takes GCC on Linux, whose sanitizers a Python
without them can load.
"""

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
BUILT = Path("out/sanitizers/bochner")

#: Tests that go through every loop; their own instruction sets are added to that of the run.
TESTS = (
    "tests/facts/test_native.py",
    "tests/facts/test_hadamard.py",
    "tests/facts/test_cg.py",
    "tests/facts/test_zonal_kernels.py",
    "tests/laws/test_random_feature_laws.py",
)
CALLS = 1500  # of each function, of either dtype


def library(name: str) -> str:
    """Return the path of one of the compiler's libraries."""
    command = [os.environ.get("CXX", "g++"), f"-print-file-name={name}"]
    path = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    if not Path(path).is_absolute():
        sys.exit(f"sanitizers: GCC on Linux is required; its {name} was not found.")
    return path


def module() -> Path:
    """Return the module that was built, which has to have the sanitizers."""
    found = list(BUILT.glob("_native*.so"))
    if not found or b"__asan_report" not in found[0].read_bytes():
        sys.exit("sanitizers: a build with sanitizers is required; run `make test-sanitizers`.")
    return found[0].resolve()


def environment() -> dict[str, str]:
    """Return the variables of all processes.

    What throws exceptions is loaded beside the sanitizer, which would not see them otherwise.
    Python frees little when it ends: leaks are not looked for.
    """
    asked = {
        "BOCHNER_SANITIZED": str(module()),
        "BOCHNER_PURE_PYTHON": "",
        "PYTHONPATH": str(HERE.resolve()),
        "LD_PRELOAD": f"{library('libasan.so')}:{library('libstdc++.so')}",
        "ASAN_OPTIONS": "detect_leaks=0",
        "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
    }
    return os.environ | asked


def levels(variables: dict[str, str]) -> list[str]:
    """Return the instruction sets, or end where processes load another module."""
    program = "from bochner import _native; print(_native.__file__, *_native.levels())"
    command = [sys.executable, "-c", program]
    said = subprocess.run(command, env=variables, check=True, capture_output=True, text=True)
    loaded, *found = said.stdout.split()
    if loaded != variables["BOCHNER_SANITIZED"]:
        sys.exit(f"sanitizers: Python must load the module with sanitizers; got {loaded}.")
    return found


def main() -> None:
    """Run all, and fail if one did."""
    variables, wrong = environment(), []
    tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS]
    calls = [sys.executable, str(HERE / "calls.py"), str(CALLS)]
    for level in levels(variables):
        for run in (calls, tests):
            line = f"{level}: {' '.join(run[1:])}"
            sys.stdout.write(f"\n{line}\n")
            sys.stdout.flush()
            of_level = variables | {"BOCHNER_INSTRUCTIONS": level}
            if subprocess.run(run, env=of_level, check=False).returncode:
                wrong.append(line)
    if wrong:
        sys.exit(f"sanitizers: failed: {wrong}")


if __name__ == "__main__":
    main()
