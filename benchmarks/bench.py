"""Runner of the benchmarks: registry, processes, timing in turns, records and the command line."""

import argparse
import datetime as dt
import gc
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from importlib import metadata
from pathlib import Path
from typing import Any

#: One line of a table: "case", "who" and "seed" name the measurement, other keys are metrics.
#: A row with the only key "note" is a sentence below the table.
Row = dict[str, Any]

ROOT = Path(__file__).parents[1]
KEYS = ("bench", "case", "who", "seed")
MADE = ("commit", "machine", "load", "date")


class MissingDataSet(Exception):
    """A data set is missing; the message names it and the folder."""


# --- experiments ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Options:
    """Options of a run.

    Attributes
    ----------
    data : Path or None
        Folder of the .npz data sets.
    quick : bool
        Cut sizes so that an experiment ends in seconds; its numbers mean nothing.
    scratch : Path or None
        Folder for large temporary files; None is the folder of the system.
    rows : int or None
        Rows of a data set at most; None is the default of the experiment.
    splits : int or None
        Random splits, seeds or repetitions; None is the default of the experiment.
    cases, who : tuple of str
        Names, with wildcards, of the selected cases and learners; empty selects all.
    device : str
        Device of torch for ``gpu``.
    done : frozenset
        Pairs (case, who, seed) that are recorded already.
    """

    data: Path | None = None
    quick: bool = False
    scratch: Path | None = None
    rows: int | None = None
    splits: int | None = None
    cases: tuple[str, ...] = ()
    who: tuple[str, ...] = ()
    device: str = "cuda"
    done: frozenset[tuple[str, str, int | None]] = frozenset()

    def pick(self, full: Any, quick: Any) -> Any:
        """Return the size of the full run or of the quick run."""
        return quick if self.quick else full

    def seeds(self, full: int, quick: int = 1) -> range:
        """Return the seeds 0, 1, ..."""
        return range(self.splits or self.pick(full, quick))

    def selects(self, case: str) -> bool:
        """Return whether a case is selected."""
        return not self.cases or any(fnmatch(case, name) for name in self.cases)

    def wants(self, case: str, who: str = "", seed: int | None = None) -> bool:
        """Return whether a measurement is selected and not recorded yet."""
        return self.names(who) and self.selects(case) and (case, who, seed) not in self.done

    def names(self, who: str) -> bool:
        """Return whether a learner is selected."""
        return not self.who or any(fnmatch(who, name) for name in self.who)


@dataclass(frozen=True)
class Experiment:
    """A registered experiment: rows from options, and a summary of its rows if it has one."""

    name: str
    run: Callable[[Options], Iterable[Row]]
    summary: Callable[[Sequence[Row]], list[Row]] | None
    title: str


EXPERIMENTS: dict[str, Experiment] = {}


def bench(
    *names: str, summary: Callable[[Sequence[Row]], list[Row]] | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register an experiment; with several names the function receives the name as well."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        title = str(function.__doc__).splitlines()[0]
        for name in names or (function.__name__,):
            run = function if len(names) < 2 else lambda options, n=name: function(options, n)
            EXPERIMENTS[name] = Experiment(name, run, summary, title)
        return function

    return register


def each(names: Iterable[str], rows_of: Callable[[str], Iterable[Row]]) -> Iterator[Row]:
    """Yield the rows of each data set, and a note for each that is missing."""
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

    @property
    def median(self) -> float:
        """Median seconds."""
        return statistics.median(self.seconds)


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
    gc.freeze()  # modules are most of all objects; collections look at new objects only
    for repeat in range(repeats):
        for name, case in cases.items():
            gc.collect()
            start = time.perf_counter()
            value = case(repeat)
            timings[name].append((time.perf_counter() - start, value))
    gc.unfreeze()
    return {name: Timing(*zip(*found, strict=True)) for name, found in timings.items()}


def used(call: Callable[[], Any]) -> tuple[Any, Row]:
    """Return the value of a call, without its warnings, with wall and processor seconds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start, busy = time.perf_counter(), time.process_time()
        value = call()
        core = time.process_time() - busy
    return value, {"seconds": time.perf_counter() - start, "core seconds": core}


def goal(row: Row, metric: str, least: float | None = None, most: float | None = None) -> Row:
    """Return the row with a required value of one of its metrics, and whether all are met."""
    met = row[metric] >= least if most is None else row[metric] <= most
    sign, limit = ("≥", least) if most is None else ("≤", most)
    required = [*filter(None, [row.get("required")]), f"{metric} {sign} {limit:.4g}"]
    met = met and row.get("met", "yes") == "yes"
    return row | {"required": "; ".join(required), "met": "yes" if met else "NO"}


def against(
    case: str,
    times: Mapping[str, Timing],
    least: Mapping[str, float] | float | None = None,
    **metrics: Mapping[str, Any],
) -> Iterator[Row]:
    """Yield a row for ours and each rival, with the ratio of seconds and the metrics by name.

    "times faster" is the seconds of the rival over ours; ``least`` is its required value.
    """
    ours = times["ours"]
    for who, timing in times.items():
        row: Row = {"case": case, "who": who, "seconds": timing.median}
        row |= {name.replace("_", " "): values.get(who) for name, values in metrics.items()}
        if who != "ours":
            pairs = [r / o for o, r in zip(ours.seconds, timing.seconds, strict=True)]
            row["times faster"] = timing.median / ours.median
            row["range"] = f"{min(pairs):.3g} to {max(pairs):.3g}"
            required = least.get(who) if isinstance(least, Mapping) else least
            row = row if required is None else goal(row, "times faster", least=required)
        yield row


# --- processes -----------------------------------------------------------------------------------

# A process starts with the peak of its parent, so a small process stands between them.
_LAUNCHER = """
import json, resource, subprocess, sys
limit = float(sys.argv[1])
try:
    done = subprocess.run(sys.argv[2:], stdout=subprocess.PIPE, timeout=limit or None)
except subprocess.TimeoutExpired:
    sys.exit(print(json.dumps({"code": "late"})))
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
unit = 1 if sys.platform == "darwin" else 1024
print(json.dumps({"code": done.returncode, "peak": peak * unit, "out": done.stdout.decode()}))
"""


@dataclass(frozen=True)
class Child:
    """Last line printed by a process, as JSON, and the peak of its resident memory in MB."""

    output: Any
    peak_mb: float


def child(code: str, *arguments: object, limit: float = 0.0) -> Child:
    """Run Python code in its own process; its last line must be JSON.

    The process is killed after ``limit`` seconds; 0 is never.
    """
    command = [sys.executable, "-c", _LAUNCHER, str(limit), sys.executable, "-c", code]
    command += map(str, arguments)
    done = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    if done["code"] == "late":
        raise RuntimeError(f"not done after {limit:.4g} seconds")
    if done["code"]:
        raise RuntimeError(f"the process of a benchmark ended with code {done['code']}")
    return Child(json.loads(done["out"].splitlines()[-1]), done["peak"] / 1e6)


# --- records -------------------------------------------------------------------------------------


def circumstances() -> Row:
    """Return commit, machine with versions, load and date of a measurement."""
    described = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(described, cwd=ROOT, capture_output=True, text=True, check=False)
    info = Path("/proc/cpuinfo")
    name = re.search(r"model name\s*: (.*)", info.read_text("utf-8") if info.exists() else "")
    versions = []
    for package in ("numpy", "scikit-learn", "lightgbm", "catboost"):
        try:
            versions.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            continue
    processor = name[1] if name else platform.machine()
    load = round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None
    machine = f"{processor}, {os.cpu_count()} cores; {', '.join(versions)}"
    found = commit.stdout.strip() or "unknown", machine, load
    return dict(zip(MADE, (*found, dt.datetime.now(dt.UTC).date().isoformat()), strict=True))


def recorded(name: str, row: Row, made: Row) -> list[Row]:
    """Return the records of a row: one for each metric, without empty fields."""
    keys = {"bench": name} | {key: row.get(key) for key in KEYS[1:]}
    found = [
        keys | {"metric": metric, "value": value, "unit": _unit(metric)} | made
        for metric, value in row.items()
        if metric not in KEYS and value is not None
    ]
    return [{key: v for key, v in record.items() if v not in (None, "")} for record in found]


def _unit(metric: str) -> str:
    return "s" if metric.endswith("seconds") else "MB" if metric.endswith("MB") else ""


def read(*paths: Path) -> list[Row]:
    """Return the records of files; a file that does not exist has none."""
    files = [path for path in paths if path.exists()]
    return [json.loads(line) for path in files for line in path.read_text("utf-8").splitlines()]


def pivot(records: Iterable[Row], made: bool = False) -> list[Row]:
    """Return a row for each measurement, with its metrics; later records replace earlier ones."""
    rows: dict[tuple[Any, ...], Row] = {}
    defaults = {"case": "", "who": ""}
    for record in records:
        key = tuple(record.get(name, defaults.get(name)) for name in KEYS)
        row = rows.setdefault(key, dict(zip(KEYS, key, strict=True)))
        row[record["metric"]] = record["value"]
        row |= {name: record.get(name) for name in MADE} if made else {}
    return list(rows.values())


def measure(name: str, options: Options, results: Path | None = None) -> list[Row]:
    """Run an experiment here, print its rows, append their records to a file, and return all."""
    experiment, made = EXPERIMENTS[name], circumstances()
    say(f"\n## {name}: {experiment.title}\n")
    before = [row for row in pivot(read(results) if results else []) if row["bench"] == name]
    start, rows = time.perf_counter(), []
    for row in each([name], lambda _: experiment.run(options)):
        rows.append(row)
        if results and set(row) != {"note"}:
            with results.open("a", encoding="utf-8") as file:
                lines = (json.dumps(record, default=float) for record in recorded(name, row, made))
                file.write("\n".join(lines) + "\n")
        if set(row) != {"note"}:
            say(" · ".join(_shown(value) for value in row.values() if value not in {None, ""}))
    shown = rows
    if experiment.summary:
        notes = [row for row in rows if set(row) == {"note"}]
        shown = experiment.summary([*before, *(r for r in rows if r not in notes)]) + notes
    say("\n" + table(shown) + f"\n({time.perf_counter() - start:.0f} s)")
    return shown


# --- tables --------------------------------------------------------------------------------------


def table(rows: Iterable[Row]) -> str:
    """Return rows as a Markdown table, without empty columns; notes are lines below it."""
    rows = list(rows)
    cells = [row for row in rows if set(row) != {"note"}]
    notes = [str(row["note"]) for row in rows if set(row) == {"note"}]
    if not cells:
        return "\n".join(notes)
    names = dict.fromkeys(name for row in cells for name in row)
    columns = [name for name in names if any(row.get(name) not in {None, ""} for row in cells)]
    lines = [columns, *([_shown(row.get(name)) for name in columns] for row in cells)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    padded = [[c.ljust(w) for c, w in zip(line, widths, strict=True)] for line in lines]
    return "\n".join([markdown(padded[0], padded[1:], widths), *notes])


def markdown(
    head: Sequence[str], lines: Iterable[Sequence[str]], widths: Sequence[int] = ()
) -> str:
    """Return a Markdown table of strings."""
    rule = ["-" * width for width in widths] or ["---"] * len(head)
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, rule, *lines])


def say(text: str) -> None:
    """Print at once, so that a long run can be watched."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool | str):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{float(value):.4g}"


# --- command line --------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the named experiments, each in its own process, or all of them."""
    asked = _parser().parse_args(arguments)
    names = asked.names or list(EXPERIMENTS)
    results = asked.results or (None if asked.quick else Path("results.jsonl"))
    if asked.here:
        rows = [] if asked.again or results is None else pivot(read(results))
        done = {(r["case"], r["who"], r["seed"]) for r in rows if r["bench"] == names[0]}
        folder = asked.data or os.environ.get("BOCHNER_DATA")
        given = {name: getattr(asked, name) for name in ("quick", "scratch", "rows", "splits")}
        given |= {"cases": tuple(asked.cases), "who": tuple(asked.who), "device": asked.device}
        options = Options(Path(folder) if folder else None, done=frozenset(done), **given)
        warnings.filterwarnings("ignore", module="sklearn")
        measure(names[0], options, results)
        return 0
    say(" · ".join(f"{name} {value}" for name, value in circumstances().items()))
    if asked.quick:
        say("Quick: sizes are cut, only to show that all experiments run; numbers mean nothing.")
    given = list(sys.argv[1:] if arguments is None else arguments)
    at = given.index(names[0]) if asked.names else 0
    shared = given[:at] + given[at + len(asked.names) :]
    command = [sys.executable, "-m", "benchmarks"]
    codes = [
        subprocess.run([*command, n, "--here", *shared], check=False).returncode for n in names
    ]
    failed = [name for name, code in zip(names, codes, strict=True) if code]
    say(f"\nFailed: {', '.join(failed)}" if failed else "")
    return int(bool(failed))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Time, memory and error, rivals in the same run."
    )
    add = parser.add_argument
    known = f"any of {', '.join(EXPERIMENTS)}; all by default"
    add("names", nargs="*", choices=[*EXPERIMENTS, []], metavar="names", help=known)
    add("--data", type=Path, help="folder of data sets (default: $BOCHNER_DATA)")
    add("--results", type=Path, help="file of records (default: results.jsonl; of --quick: none)")
    add("--again", action="store_true", help="measure again what the file of records has")
    add("--quick", action="store_true", help="small sizes: only show that all runs")
    add("--cases", nargs="+", default=[], help="only these cases; wildcards are allowed")
    add("--who", nargs="+", default=[], help="only these learners; wildcards are allowed")
    add("--rows", type=int, help="rows of a data set at most")
    add("--splits", type=int, help="number of splits, seeds or repetitions")
    add("--scratch", type=Path, help="folder for large temporary files")
    add("--device", default="cuda", help="device of torch for gpu: cuda, cuda:1, cpu")
    add("--here", action="store_true", help=argparse.SUPPRESS)
    return parser
