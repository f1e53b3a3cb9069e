"""Runner of the benchmarks: registry, processes, timing in turns, records and the command line."""

import argparse
import datetime as dt
import gc
import json
import os
import platform
import re
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from fnmatch import fnmatch
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import Any

#: One line of a table: "case", "who" and "seed" name the measurement, other keys are metrics.
#: A row with the only key "note" is a sentence below the table.
Row = dict[str, Any]

ROOT = Path(__file__).parents[1]
KEYS = ("bench", "case", "who", "seed")
CIRCUMSTANCES = ("commit", "machine", "load", "date")


class MissingDataSet(Exception):
    """A data set is missing; the message names it and the folder."""


# --- experiments ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Options:
    """Options of a run; ``--help`` describes them.

    ``done`` has the recorded triples (case, who, seed); ``rows`` and ``splits`` are None for the
    default of the experiment.
    """

    data: Path | None = None
    quick: bool = False
    rows: int | None = None
    splits: int | None = None
    cases: Sequence[str] = ()
    who: Sequence[str] = ()
    done: frozenset[tuple[str, str, int | None]] = frozenset()

    def pick(self, full: Any, quick: Any) -> Any:
        """Return the size of the full run or of the quick run."""
        return quick if self.quick else full

    def seeds(self, full: int, quick: int = 1) -> range:
        """Return the seeds 0, 1, ..."""
        return range(self.splits or self.pick(full, quick))

    def selects(self, case: str) -> bool:
        """Return whether a case is selected."""
        return any(fnmatch(case, name) for name in self.cases or "*")

    def names(self, label: str) -> bool:
        """Return whether a learner is selected."""
        return any(fnmatch(label, name) for name in self.who or "*")

    def wants(self, case: str, label: str = "", seed: int | None = None) -> bool:
        """Return whether a measurement is selected and not recorded yet."""
        return self.names(label) and self.selects(case) and (case, label, seed) not in self.done


Run, Summary = Callable[[Options], Iterable[Row]], Callable[[Sequence[Row]], list[Row]]

#: Functions from options to rows, and of rows to a summary if there is one.
EXPERIMENTS: dict[str, tuple[Run, Summary | None]] = {}


def bench(summary: Summary | None = None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register an experiment under the name of its function."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        EXPERIMENTS[function.__name__] = function, summary
        return function

    return register


def collect(names: Iterable[str], rows_of: Callable[[str], Iterable[Row]]) -> Iterator[Row]:
    """Yield the rows of all data sets, and a note for each missing one."""
    for name in names:
        try:
            yield from rows_of(name)
        except MissingDataSet as missing:
            yield {"note": f"Left out: {missing}"}


# --- time ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Timing:
    """Seconds and value of each repetition."""

    seconds: tuple[float, ...]
    values: tuple[Any, ...]


def turns(
    cases: Mapping[str, Callable[[int], Any]], repeats: int, warm_up: bool = True
) -> dict[str, Timing]:
    """Time the cases in turns, A B A B, so that a disturbance affects all of them.

    Each case receives the number of the repetition, as a seed; a warm-up is not counted.
    """
    timings: dict[str, list[tuple[float, Any]]] = {name: [] for name in cases}
    if warm_up:
        for case in cases.values():
            case(0)
    gc.collect()
    gc.freeze()  # most objects belong to modules; collections then skip them
    for repeat in range(repeats):
        for name, case in cases.items():
            gc.collect()
            start = time.perf_counter()
            value = case(repeat)
            timings[name].append((time.perf_counter() - start, value))
    gc.unfreeze()
    return {name: Timing(*zip(*pairs, strict=True)) for name, pairs in timings.items()}


def clock(call: Callable[[], Any]) -> tuple[Any, Row]:
    """Return the value of a call, without its warnings, with wall and processor seconds."""
    with warnings.catch_warnings(action="ignore"):
        start, cpu_start = time.perf_counter(), time.process_time()
        value = call()
        core = time.process_time() - cpu_start
    return value, {"seconds": time.perf_counter() - start, "core seconds": core}


def goal(row: Row, metric: str, minimum: float | None = None, maximum: float | None = None) -> Row:
    """Return the row with a required value of one of its metrics, and whether all are met."""
    passes = row[metric] >= minimum if maximum is None else row[metric] <= maximum
    sign, limit = ("≥", minimum) if maximum is None else ("≤", maximum)
    required = [*filter(None, [row.get("required")]), f"{metric} {sign} {limit:.4g}"]
    passes = passes and row.get("met", "yes") == "yes"
    return row | {"required": "; ".join(required), "met": "yes" if passes else "NO"}


def compare(
    case: str,
    times: Mapping[str, Timing],
    minimum: Mapping[str, float] | float | None = None,
    **metrics: Mapping[str, Any],
) -> Iterator[Row]:
    """Yield a row for each library, with the ratio of seconds and the metrics by name.

    "times faster": seconds of a library over the seconds of "bochner"; ``minimum`` is required.
    """
    base, middle = times["bochner"], {key: median(record.seconds) for key, record in times.items()}
    for key, record in times.items():
        row: Row = {"case": case, "who": key, "seconds": middle[key]}
        row |= {name.replace("_", " "): values.get(key) for name, values in metrics.items()}
        if key != "bochner":
            pairs = [r / o for o, r in zip(base.seconds, record.seconds, strict=True)]
            row["times faster"] = middle[key] / middle["bochner"]
            row["range"] = f"{min(pairs):.3g} to {max(pairs):.3g}"
            required = minimum.get(key) if isinstance(minimum, Mapping) else minimum
            row = row if required is None else goal(row, "times faster", minimum=required)
        yield row


# --- processes -----------------------------------------------------------------------------------

#: Code before and after the code of a process; it prints the peak memory at the end (Linux only).
_HEAD = """
import json, os, re, sys
import numpy as np
from benchmarks.bench import clock
"""
_PEAK = """
with open("/proc/self/status") as file:
    print(1024 * int(re.search(r"VmHWM:\\s+(\\d+)", file.read())[1]))
"""


def child(code: str, *arguments: object, limit: float | None = None) -> Row:
    """Run code in its own process; return its last line, a JSON row, with "peak MB" of memory.

    After ``limit`` seconds it is stopped, and an error raised.
    """
    command = [sys.executable, "-c", _HEAD + code + _PEAK, *map(str, arguments)]
    try:
        result = subprocess.run(
            command, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=limit, check=False
        )
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"the process took more than {limit:.4g} seconds") from None
    if result.returncode:
        raise RuntimeError(f"the process of a benchmark ended with code {result.returncode}")
    *_, output, peak = result.stdout.splitlines()
    return {"peak MB": int(peak) / 1e6} | json.loads(output)


# --- records -------------------------------------------------------------------------------------


def circumstances() -> Row:
    """Return commit, machine with versions, load and date of a measurement."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    info = Path("/proc/cpuinfo")
    name = re.search(r"model name\s*: (.*)", info.read_text("utf-8") if info.exists() else "")
    installed = {d.name: d.version for d in metadata.distributions()}
    packages = ("numpy", "scikit-learn", "lightgbm", "catboost")
    versions = ", ".join(f"{name} {installed[name]}" for name in packages if name in installed)
    machine = f"{name[1] if name else platform.machine()}, {os.cpu_count()} cores; {versions}"
    load = round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None
    date = dt.datetime.now(dt.UTC).date().isoformat()
    values = commit.stdout.strip() or "unknown", machine, load, date
    return dict(zip(CIRCUMSTANCES, values, strict=True))


def record_of(name: str, row: Row, context: Row) -> Row:
    """Return the record of a row and its circumstances, without empty fields."""
    return {key: v for key, v in ({"bench": name} | row | context).items() if v not in (None, "")}


def read(*paths: Path) -> list[Row]:
    """Return the last record of each measurement in files; a missing file has none."""
    lines = (line for p in paths if p.exists() for line in p.read_text("utf-8").splitlines())
    rows = ({"case": "", "who": "", "seed": None} | json.loads(line) for line in lines)
    return list({tuple(row[key] for key in KEYS): row for row in rows}.values())


def measure(name: str, options: Options, results: Path | None = None) -> list[Row]:
    """Run an experiment in this process, append its rows to a file, print and return its table."""
    (run, summary), context = EXPERIMENTS[name], circumstances()
    say(f"\n## {name}: {str(run.__doc__).splitlines()[0]}\n")
    original = [row for row in (read(results) if results else []) if row["bench"] == name]
    start, rows, notes = time.perf_counter(), [], []
    for row in collect([name], lambda _: run(options)):
        if set(row) == {"note"}:
            notes.append(row)
            continue
        rows.append(row)
        if results:
            with results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record_of(name, row, context), default=float) + "\n")
        say(" · ".join(_as_cell(value) for value in row.values() if value not in {None, ""}))
    lines = (summary(original + rows) if summary and original + rows else rows) + notes
    say("\n" + table(lines) + f"\n({time.perf_counter() - start:.0f} s)")
    return lines


# --- tables --------------------------------------------------------------------------------------


def table(rows: Iterable[Row]) -> str:
    """Return rows as a Markdown table, without empty columns; notes are lines below it."""
    rows = list(rows)
    cells = [row for row in rows if set(row) != {"note"}]
    notes = [str(row["note"]) for row in rows if set(row) == {"note"}]
    if not cells:
        return "\n".join(notes)
    full = (name for row in cells for name, value in row.items() if value not in {None, ""})
    columns = list(dict.fromkeys(full))
    lines = [[_as_cell(row.get(name)) for name in columns] for row in cells]
    return "\n".join([markdown(columns, lines), *notes])


def markdown(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table of strings."""
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *lines])


def say(text: str) -> None:
    """Print at once, so that a long run can be watched."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _as_cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool | str):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{float(value):.4g}"


# --- command line --------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the named experiments, each in its own process, or all of them."""
    parsed = _parser().parse_args(arguments)
    names = parsed.names or list(EXPERIMENTS)
    results = parsed.results or (None if parsed.quick else Path("results.jsonl"))
    if parsed.here:
        (name,) = names
        rows = read(results) if results else []
        result = frozenset((r["case"], r["who"], r["seed"]) for r in rows if r["bench"] == name)
        values = {f.name: getattr(parsed, f.name) for f in fields(Options) if f.name != "done"}
        warnings.filterwarnings("ignore", module="sklearn")
        measure(name, Options(**values, done=result), results)
        return 0
    say(" · ".join(f"{name} {value}" for name, value in circumstances().items()))
    if parsed.quick:
        say("Quick: small sizes, to check that all experiments run; the numbers mean nothing.")
    words = list(sys.argv[1:] if arguments is None else arguments)
    i = words.index(names[0]) if parsed.names else 0
    command = [sys.executable, "-m", "benchmarks", *words[:i], *words[i + len(parsed.names) :]]
    run = lambda name: subprocess.run([*command, "--here", name], check=False).returncode
    failed = [name for name in names if run(name)]
    say(f"\nFailed: {', '.join(failed)}" if failed else "")
    return int(bool(failed))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Time, memory and error, with other libraries in the same run.",
    )
    folder = os.environ.get("BOCHNER_DATA")
    add = parser.add_argument
    present = f"any of {', '.join(EXPERIMENTS)}; all by default"
    add("names", nargs="*", choices=[*EXPERIMENTS, []], metavar="names", help=present)
    folders = "folder of data sets (default: $BOCHNER_DATA)"
    add("--data", type=Path, default=Path(folder) if folder else None, help=folders)
    add("--results", type=Path, help="file of records (default: results.jsonl; of --quick: none)")
    small = "small sizes, 3 minutes of one core: a check that all experiments run"
    add("--quick", action="store_true", help=small)
    add("--cases", nargs="+", default=[], help="only these cases; wildcards are allowed")
    add("--who", nargs="+", default=[], help="only these learners; wildcards are allowed")
    add("--rows", type=int, help="largest number of rows of a data set")
    add("--splits", type=int, help="number of splits, seeds or repetitions")
    add("--here", action="store_true", help=argparse.SUPPRESS)
    return parser
