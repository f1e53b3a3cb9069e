"""``python -m benchmarks [names...] [--data DIR] [--json FILE] [--quick]``."""

import argparse
import json
import os
import platform
import sys
import time
import warnings
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

from benchmarks.harness import MissingDataSet, Options, Row, say, table

#: In the order of the goals.
NAMES = (
    "features",
    "hadamard",
    "moments",
    "fourier",
    "auto",
    "kernel_error",
    "choose",
    "choice",
    "harmonic",
    "hermite",
    "memory",
    "imports",
    "busy",
    "one_class",
    "precision",
    "exact",
    "few",
    "wide",
    "gpu",
    "sketches",
    "classifiers",
    "bounds",
    "leverage",
    "gaussian_process",
    "kriging",
    "kriging_rivals",
    "unsupervised",
    "tuning",
    "metric",
    "tables",
    "raw",
    "intervals",
    "outside",
    "sgd",
    "double_descent",
    "plan",
    "required_features",
    "truth",
)


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmarks that are named, or all, and print their tables."""
    asked = _parser().parse_args(arguments)
    folder = asked.data or os.environ.get("BOCHNER_DATA")
    options = Options(Path(folder) if folder else None, asked.quick, asked.scratch)
    machine = _machine()
    say(" · ".join(f"{name} {value}" for name, value in machine.items()))
    if asked.quick:
        say("Quick: sizes are cut, so that only the scripts are tried. The ratios mean nothing.")
    results = {name: _run(name, options) for name in asked.names or NAMES}
    if asked.json:
        record = {"machine": machine, "quick": asked.quick, "results": results}
        asked.json.write_text(json.dumps(record, indent=1, default=float) + "\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Time, memory and error, rivals in the same run."
    )
    known = f"any of {', '.join(NAMES)}; all by default"
    parser.add_argument("names", nargs="*", type=_name, metavar="names", help=known)
    parser.add_argument("--data", type=Path, help="folder of data sets (default: $BOCHNER_DATA)")
    parser.add_argument("--json", type=Path, help="write all numbers to this file")
    parser.add_argument("--quick", action="store_true", help="small sizes: only try the scripts")
    parser.add_argument("--scratch", type=Path, help="folder for large temporary files")
    return parser


def _name(name: str) -> str:
    if name not in NAMES:
        raise argparse.ArgumentTypeError(f"no benchmark {name!r}; there are {', '.join(NAMES)}")
    return name


def _run(name: str, options: Options) -> list[Row]:
    module = import_module(f"benchmarks.{name}")
    say(f"\n## {name}: {module.__doc__.splitlines()[0]}\n")
    start = time.perf_counter()
    try:
        rows = module.run(options)
    except MissingDataSet as missing:
        rows = [{"note": f"Left out: {missing}"}]
    say(table(rows))
    say(f"({time.perf_counter() - start:.0f} s)")
    return rows


def _machine() -> dict[str, Any]:
    """Return what the numbers depend on."""
    from bochner._core.native import HAVE_NATIVE  # noqa: PLC0415

    versions = {name: metadata.version(name) for name in ("numpy", "scipy", "scikit-learn")}
    load = round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else "unknown"
    return {
        "python": platform.python_version(),
        **versions,
        "compiled loops": "yes" if HAVE_NATIVE else "no",
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "load before": load,
    }


if __name__ == "__main__":
    warnings.filterwarnings("ignore", module="sklearn")
    sys.exit(main())
