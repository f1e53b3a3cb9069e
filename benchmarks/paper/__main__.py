"""``python -m benchmarks.paper figure1|table2|table3 [--data DIR] [--json FILE] [--quick]``."""

import argparse
import json
import os
import platform
import sys
import time
import warnings
from importlib import import_module
from pathlib import Path

from benchmarks.harness import Options, Row, say, table

NAMES = ("figure1", "table2", "table3")


def main(arguments: list[str] | None = None) -> int:
    """Do the experiments that are named, and print each table as soon as it is there."""
    asked = _parser().parse_args(arguments)
    folder = asked.data or os.environ.get("BOCHNER_DATA")
    options = Options(Path(folder) if folder else None, asked.quick)
    say(f"{os.cpu_count()} cores, {platform.machine()}, load before {os.getloadavg()[0]:.1f}")
    seeds = options.pick(asked.seeds, 1)
    results = {name: _run(name, options, seeds, asked.svg) for name in asked.names}
    if asked.json:
        asked.json.write_text(json.dumps(results, indent=1, default=float) + "\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.paper", description=__doc__, usage="%(prog)s NAME... [options]"
    )
    parser.add_argument("names", nargs="+", choices=NAMES, metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--data", type=Path, help="folder of data sets (default: $BOCHNER_DATA)")
    parser.add_argument("--json", type=Path, help="write all numbers to this file")
    parser.add_argument("--svg", type=Path, help="figure1: draw it into this file")
    parser.add_argument("--seeds", type=int, default=3, help="tables: repeats (default: 3)")
    parser.add_argument("--quick", action="store_true", help="small sizes: only try the scripts")
    return parser


def _run(name: str, options: Options, seeds: int, svg: Path | None) -> list[Row]:
    module = import_module(f"benchmarks.paper.{name}")
    say(f"\n## {module.__doc__.splitlines()[0]}")
    start, rows = time.perf_counter(), []
    for part in module.run(options, seeds):
        say("\n" + table(part))
        rows += part
    if svg and name == "figure1":
        module.draw(rows, svg)
    say(f"({time.perf_counter() - start:.0f} s)")
    return rows


if __name__ == "__main__":
    warnings.filterwarnings("ignore", module="sklearn")
    sys.exit(main())
