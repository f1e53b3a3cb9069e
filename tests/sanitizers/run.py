"""``python tests/sanitizers/run.py``: run the compiled loops with the sanitizers of the compiler.

The module built by `make test-sanitizers` stops the process at the first access outside an array
and at the first undefined operation. Random calls, then tests of the loops, run with it, once for
each instruction set of this processor. GCC on Linux is required, whose sanitizers can be loaded
into an ordinary Python.
"""

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
BUILT = Path("out/sanitizers/bochner")

#: Tests that run every loop, with the instruction set of the run and those of their fixtures.
TESTS = (
    "tests/facts/test_native.py",
    "tests/facts/test_hadamard.py",
    "tests/facts/test_cg.py",
    "tests/facts/test_zonal_kernels.py",
    "tests/laws/test_random_feature_laws.py",
)
CALLS = 1500  # per function and dtype


def library(name: str) -> str:
    """Return the path of a library of the compiler."""
    command = [os.environ.get("CXX", "g++"), f"-print-file-name={name}"]
    path = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    if not Path(path).is_absolute():
        sys.exit(f"sanitizers: GCC on Linux is required; its {name} was not found.")
    return path


def module() -> Path:
    """Return the path of the compiled module; exit if it has no sanitizers."""
    files = list(BUILT.glob("_native*.so"))
    if not files or b"__asan_report" not in files[0].read_bytes():
        sys.exit("sanitizers: a build with sanitizers is required; run `make test-sanitizers`.")
    return files[0].resolve()


def environment() -> dict[str, str]:
    """Return the environment variables of all processes.

    The C++ library is loaded with the sanitizer, which would miss its exceptions otherwise. Leaks
    are not detected, because Python frees little memory at its end.
    """
    variables = {
        "BOCHNER_SANITIZED": str(module()),
        "BOCHNER_PURE_PYTHON": "",
        "PYTHONPATH": str(HERE.resolve()),
        "LD_PRELOAD": f"{library('libasan.so')}:{library('libstdc++.so')}",
        "ASAN_OPTIONS": "detect_leaks=0",
        "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
    }
    return os.environ | variables


def levels(variables: dict[str, str]) -> list[str]:
    """Return the instruction sets; exit if processes load another module."""
    program = "from bochner import _native; print(_native.__file__, *_native.levels())"
    command = [sys.executable, "-c", program]
    output = subprocess.run(command, env=variables, check=True, capture_output=True, text=True)
    loaded, *names = output.stdout.split()
    if loaded != variables["BOCHNER_SANITIZED"]:
        sys.exit(f"sanitizers: Python must load the module with sanitizers; got {loaded}.")
    return names


def main() -> None:
    """Run calls and tests at each level; exit with an error if one fails."""
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
