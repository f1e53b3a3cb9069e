"""``python -m benchmarks.paper figure1|table2|table3|data [--data DIR] [--json FILE] [--quick]``.

``python -m benchmarks.paper page --json FILE...`` writes the numbers of such files into the page.
"""

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
from benchmarks.paper import page

NAMES = ("figure1", "table2", "table3", "data", "page")
MODULES = {"data": "sources"}


def main(arguments: list[str] | None = None) -> int:
    """Do the experiments that are named, and print each table as soon as it is there."""
    asked = _parser().parse_args(arguments)
    if asked.names == ["page"]:
        return page.write([json.loads(file.read_text()) for file in asked.json or []])
    folder = asked.data or os.environ.get("BOCHNER_DATA")
    options = Options(
        Path(folder) if folder else None,
        asked.quick,
        tables=tuple(asked.tables or ()),
        parts=tuple(asked.protocols or ()),
        rows=asked.rows,
    )
    say(f"{os.cpu_count()} cores, {platform.machine()}, load before {os.getloadavg()[0]:.1f}")
    seeds = options.pick(asked.seeds, 2)
    results = {name: _run(name, options, seeds, asked) for name in asked.names}
    if asked.json:
        _keep(asked.json[0], results)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.paper", description=__doc__, usage="%(prog)s NAME... [options]"
    )
    parser.add_argument("names", nargs="+", choices=NAMES, metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--data", type=Path, help="folder of data sets (default: $BOCHNER_DATA)")
    parser.add_argument("--json", type=Path, nargs="+", help="write all numbers to this file")
    parser.add_argument("--svg", type=Path, help="figure1: draw it into this file")
    parser.add_argument("--seeds", type=int, default=3, help="tables: repeats (default: 3)")
    parser.add_argument("--tables", nargs="+", help="only these columns (default: all)")
    parser.add_argument("--protocols", nargs="+", help="table2: only these (default: all)")
    parser.add_argument("--rows", type=int, help="tables: rows at most, at random (default: all)")
    parser.add_argument("--quick", action="store_true", help="small sizes: only try the scripts")
    return parser


def _run(name: str, options: Options, seeds: int, asked: argparse.Namespace) -> list[Row]:
    module = import_module(f"benchmarks.paper.{MODULES.get(name, name)}")
    say(f"\n## {module.__doc__.splitlines()[0]}")
    start, rows = time.perf_counter(), []
    for part in module.run(options, seeds):
        say("\n" + table({k: v for k, v in row.items() if k != "errors"} for row in part))
        rows += part
        if asked.json:
            _keep(asked.json[0], {name: rows})
    if asked.svg and name == "figure1":
        module.draw(rows, asked.svg)
    say(f"({time.perf_counter() - start:.0f} s)")
    return rows


def _keep(file: Path, results: dict[str, list[Row]]) -> None:
    file.write_text(json.dumps(results, indent=1, default=float) + "\n")


if __name__ == "__main__":
    warnings.filterwarnings("ignore", module="sklearn")
    sys.exit(main())
