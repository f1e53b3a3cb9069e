"""What people see: tables, JSON, seconds by phase, and a bar while rows are read."""

import json
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic, perf_counter
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from bochner.data.blocks import Blocks


class Clock:
    """Measures named phases, in the order they come."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Measure what happens within."""
        began = perf_counter()
        yield
        self.seconds[name] = round(perf_counter() - began, 4)

    def __str__(self) -> str:
        """Return ``fit 3.1 s, write 0.2 s``."""
        return ", ".join(f"{name} {seconds:.3g} s" for name, seconds in self.seconds.items())


# --- Blocks whose passage shows on stderr: rows read, rows a second, time left -------------------


@dataclass
class Passes:
    """Moves a bar by the rows that go by; begins it anew with every pass over the rows."""

    bar: Progress
    blocks: Blocks
    number: int = 1
    rows: int = 0
    began: float = field(default_factory=monotonic)

    def __post_init__(self) -> None:
        self.task = self.bar.add_task("Reading", total=self.blocks.n_rows, rows="0", rate="-")

    def __call__(self, rows: int) -> None:
        """Tell the bar that so many more rows went by."""
        total = self.blocks.n_rows
        if total is not None and self.rows >= total:
            self.number, self.rows, self.began = self.number + 1, 0, monotonic()
            self.bar.reset(self.task, total=total)
        self.rows += rows
        self.bar.update(self.task, completed=self.rows, total=total, **self._words(total))

    def _words(self, total: int | None) -> dict[str, Any]:
        again = "" if self.number == 1 else f", pass {self.number}"
        seconds = max(monotonic() - self.began, 1e-9)
        return {
            "description": "Computing" if self.rows == total else f"Reading{again}",
            "rows": f"{self.rows:,}" + ("" if total is None else f" of {total:,}"),
            "rate": f"{self.rows / seconds:,.0f}",
        }


def bar_for(console: Console) -> Progress:
    """Return the bar: what is done, how much of it, how fast, how long still."""
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[rows]} rows"),
        TextColumn("{task.fields[rate]} rows/s"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    )


@contextmanager
def reading(blocks: Blocks, quiet: bool) -> Iterator[Blocks]:
    """Give the blocks, watched by a bar if stderr is a terminal and people want to see."""
    if quiet or not sys.stderr.isatty():
        yield blocks
        return
    with bar_for(Console(stderr=True)) as bar:
        yield blocks.watch(Passes(bar, blocks))


@contextmanager
def working(what: str, quiet: bool) -> Iterator[None]:
    """Say on stderr what is being done while no rows go by."""
    if quiet or not sys.stderr.isatty():
        yield
        return
    with Console(stderr=True).status(what):
        yield


# --- Results as a table for people, or as one JSON object for programs ---------------------------

#: Width of the labels where there is no terminal.
_LABELS = 11


def show(
    facts: Mapping[str, Any], lines: Iterable[tuple[str, str]], as_json: bool, quiet: bool
) -> None:
    """Print the facts as JSON, or the lines as a table of two columns, or nothing."""
    if as_json:
        unicode = "utf" in (getattr(sys.stdout, "encoding", None) or "").lower()
        click.echo(json.dumps(_plain(facts), ensure_ascii=not unicode))
    elif not quiet and not sys.stdout.isatty():
        for label, text in lines:  # unbroken: for grep, and for paths that someone copies
            click.echo(f"{label:<{_LABELS}}  {text}")
    elif not quiet:
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="bold", no_wrap=True)
        grid.add_column(overflow="fold")
        for label, text in lines:
            grid.add_row(Text(label), Text(text))
        Console().print(grid)


def table(head: Sequence[str], rows: Iterable[Sequence[str]], caption: str) -> None:
    """Print a table: the first column words, the others numbers."""
    grid = Table(caption=caption, caption_justify="left")
    for i, name in enumerate(head):
        grid.add_column(name, justify="right" if i else "left", no_wrap=True)
    for row in rows:
        grid.add_row(*(Text(cell) for cell in row))
    Console().print(grid)


def number(value: float | None) -> str:
    """Write a number to four digits, or none."""
    return "none" if value is None or math.isnan(value) else f"{value:.4g}"


def _plain(value: Any) -> Any:
    """Return what JSON has: infinities and not-a-number become null."""
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)
