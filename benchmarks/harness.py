"""What the benchmarks share: data sets, interleaved timing, processes of their own, tables."""

import gc
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

__all__ = [
    "Child",
    "MissingDataSet",
    "Options",
    "Row",
    "Timing",
    "child",
    "command_seconds",
    "compared",
    "each",
    "interleaved",
    "judged",
    "say",
    "stored",
    "table",
]

Row = dict[str, Any]


class MissingDataSet(Exception):
    """A data set is not in the folder of data; the message says which and where it was sought."""


@dataclass(frozen=True)
class Options:
    """How to run.

    Attributes
    ----------
    data : Path or None
        Folder of the .npz data sets.
    quick : bool
        Whether sizes are cut so that all runs in seconds; its ratios mean nothing.
    scratch : Path or None
        Where large temporary files go; None is the system's place.
    tables : tuple of str
        The tables that are wanted; none is all.
    parts : tuple of str
        The parts of a benchmark that are wanted; none is all.
    rows : int or None
        Rows of a table at most, drawn at random; None is all.
    """

    data: Path | None = None
    quick: bool = False
    scratch: Path | None = None
    tables: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    rows: int | None = None

    def pick(self, full: Any, quick: Any) -> Any:
        """Return the number of the full run or of the quick one."""
        return quick if self.quick else full


# --- data ----------------------------------------------------------------------------------------


def stored(name: str, folder: Path | None) -> dict[str, np.ndarray]:
    """Return the arrays of a data set of the folder of data."""
    if folder is None:
        raise MissingDataSet(
            f"{name}.npz: name the folder that holds it with --data or the variable BOCHNER_DATA."
        )
    path = folder / f"{name}.npz"
    if not path.is_file():
        raise MissingDataSet(f"{name}.npz: it is not in {folder}.")
    with np.load(path, allow_pickle=False) as arrays:
        return dict(arrays)


def each(names: Iterable[str], rows_of: Callable[[str], Iterable[Row]]) -> list[Row]:
    """Return the rows of each data set, and a note for each that is missing."""
    rows: list[Row] = []
    for name in names:
        try:
            rows += rows_of(name)
        except MissingDataSet as missing:
            rows.append({"note": f"Left out: {missing}"})
    return rows


# --- time ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Timing:
    """Seconds of each repeat, and what each returned."""

    seconds: tuple[float, ...]
    values: tuple[Any, ...]

    @property
    def median(self) -> float:
        """Median seconds."""
        return statistics.median(self.seconds)


def interleaved(
    cases: Mapping[str, Callable[[int], Any]], repeats: int, warm_up: bool = True
) -> dict[str, Timing]:
    """Time the cases in turns, A B A B, so that a busy minute falls on all of them alike.

    Each case is called with the number of the repeat, to seed with; a warm-up is not counted.
    """
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    values: dict[str, list[Any]] = {name: [] for name in cases}
    if warm_up:
        for case in cases.values():
            case(0)
    with _old_set_aside():
        for repeat in range(repeats):
            for name, case in cases.items():
                gc.collect()
                start = time.perf_counter()
                value = case(repeat)
                seconds[name].append(time.perf_counter() - start)
                values[name].append(value)
    return {name: Timing(tuple(seconds[name]), tuple(values[name])) for name in cases}


@contextmanager
def _old_set_aside() -> Iterator[None]:
    """Let collections of garbage look at new objects only: modules are most of all there is."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def compared(ours: Timing, rival: Timing) -> Row:
    """Return both medians, their ratio, and the range of the ratio over the pairs of a run."""
    pairs = [r / o for o, r in zip(ours.seconds, rival.seconds, strict=True)]
    return {
        "seconds": ours.median,
        "rival s": rival.median,
        "times faster": rival.median / ours.median,
        "range": f"{min(pairs):.3g} to {max(pairs):.3g}",
    }


def judged(value: float, asked: float, least: bool = True) -> Row:
    """Return what was asked of a value, and whether it was met."""
    met = value >= asked if least else value <= asked
    sign = "at least" if least else "at most"
    return {"asked": f"{sign} {asked:.4g}", "met": "yes" if met else "NO"}


# --- processes -----------------------------------------------------------------------------------

# A process starts with the peak of the one that started it, so a small one stands between: else a
# benchmark that ran before would be counted.
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
    """What a process of its own printed, as JSON, and its peak of resident memory in MB."""

    output: Any
    peak_mb: float


def child(code: str, *arguments: str, limit: float = 0.0) -> Child:
    """Run Python code in a process of its own; its last line must be JSON.

    It is killed after `limit` seconds; 0 is never.
    """
    command = [sys.executable, "-c", _LAUNCHER, str(limit), sys.executable, "-c", code, *arguments]
    done = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    if done["code"] == "late":
        raise RuntimeError(f"not done after {limit:.4g} seconds")
    if done["code"]:
        raise RuntimeError(f"a benchmark's process ended with code {done['code']}")
    return Child(json.loads(done["out"].splitlines()[-1]), done["peak"] / 1e6)


def command_seconds(command: Sequence[str]) -> Callable[[int], None]:
    """Return a case for :func:`interleaved` that runs a command from start to end."""

    def run(_: int) -> None:
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)

    return run


# --- tables --------------------------------------------------------------------------------------


def table(rows: Iterable[Row]) -> str:
    """Return rows as a Markdown table; rows that are only a note become lines below it."""
    rows = list(rows)
    cells = [row for row in rows if set(row) != {"note"}]
    notes = [str(row["note"]) for row in rows if set(row) == {"note"}]
    if not cells:
        return "\n".join(notes)
    columns = list(dict.fromkeys(name for row in cells for name in row))
    lines = [columns, *([_shown(row.get(name)) for name in columns] for row in cells)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    head, *body = [_line(line, widths) for line in lines]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([head, rule, *body, *notes])


def say(text: str) -> None:
    """Print at once, so that a long run can be watched."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
    return "| " + " | ".join(padded) + " |"


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool | str):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{float(value):.4g}"
