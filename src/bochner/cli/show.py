"""Output of commands: tables, JSON, seconds by phase, and a bar while rows are read."""

import json
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from bochner._core.progress import FitStep, listening
from bochner._core.text import facts_in_words
from bochner.data.blocks import Blocks
from bochner.data.progress import RowCount

LABELS = 11  # Width of the labels where there is no terminal


@dataclass
class Terminal:
    """Where a command tells what it does and what it found, and the seconds of its phases."""

    as_json: bool
    quiet: bool
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def phase(self, name: str, doing: str = "") -> Iterator[None]:
        """Measure what happens within, and say what is being done while no rows are read."""
        began = perf_counter()
        if doing and self._watched:
            status = Console(stderr=True).status(doing)
            with status, listening(lambda step: status.update(f"{doing}: {step.heading}")):
                yield
        else:
            yield
        self.seconds[name] = round(perf_counter() - began, 4)

    @contextmanager
    def reading(self, name: str, blocks: Blocks) -> Iterator[Blocks]:
        """Measure a phase that reads the blocks, with a bar if people want to see one."""
        with self.phase(name):
            if not self._watched:
                yield blocks
                return
            with bar_for(Console(stderr=True)) as bar:
                passes = Passes(bar, blocks)
                with listening(passes.step):
                    yield blocks.watch(passes, passes.worked_by)

    @property
    def _watched(self) -> bool:
        return not self.quiet and sys.stderr.isatty()

    @property
    def asks(self) -> bool:
        """Whether somebody is there to answer."""
        return self._watched and not self.as_json and sys.stdin.isatty()

    def note(self, text: str) -> None:
        """Write a line for people to stderr, where results are not."""
        if not self.as_json and not self.quiet:
            click.echo(text, err=True)

    def say(self, text: str) -> None:
        """Print text for people."""
        if not self.as_json and not self.quiet:
            click.echo(text)

    def table(self, head: Sequence[str], rows: Iterable[Sequence[str]], caption: str) -> None:
        """Print a table for people: the first column words, the others numbers."""
        grid = Table(caption=caption, caption_justify="left")
        for i, name in enumerate(head):
            grid.add_column(name, justify="right" if i else "left", no_wrap=True)
        for row in rows:
            grid.add_row(*(Text(cell) for cell in row))
        if not self.as_json and not self.quiet:
            Console().print(grid)

    def show(self, facts: Mapping[str, Any], words: Mapping[str, Any] | None = None) -> None:
        """Print the facts as JSON, or in words as a table of two columns, or nothing.

        ``words`` are the facts that people are shown; default all.
        """
        lines = facts_in_words(facts if words is None else words)
        if self.as_json:
            unicode = "utf" in (getattr(sys.stdout, "encoding", None) or "").lower()
            click.echo(json.dumps(_plain(facts), ensure_ascii=not unicode))
        elif not self.quiet and not sys.stdout.isatty():
            for label, text in lines:  # unbroken: for grep, and for paths that someone copies
                click.echo(f"{label:<{LABELS}}  {text}")
        elif not self.quiet:
            grid = Table.grid(padding=(0, 2))
            grid.add_column(style="bold", no_wrap=True)
            grid.add_column(overflow="fold")
            for label, text in lines:
                grid.add_row(Text(label), Text(text))
            Console().print(grid)


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


# --- A bar on stderr: rows read and rows per second, or the stage and candidate k of n ------------


@dataclass
class Passes:
    """Shows the rows that are read in each pass, and the steps of the fit between passes."""

    bar: Progress
    blocks: Blocks
    count: RowCount = field(default_factory=RowCount)
    crew: str = ""

    def __post_init__(self) -> None:
        self.task = self.bar.add_task("Reading", total=self.blocks.n_rows, detail="0 rows")

    def worked_by(self, workers: int) -> None:
        """Show the number of workers that read the rows."""
        self.crew = f" by {workers} workers"

    def step(self, step: FitStep) -> None:
        """Show a step of the fit; the bar pulses if the number of steps is not known."""
        self._show(step.heading, step.number, step.total or None, step.detail)

    def __call__(self, rows: int) -> None:
        total = self.count.n_rows = self.blocks.n_rows
        self.count.add(rows)
        done, number = self.count.rows, self.count.number
        reading = "Reading" if number == 1 else f"Reading, pass {number}"
        over = f"{done:,}" + ("" if total is None else f" of {total:,}")
        detail = f"{over} rows {self.count.rate:,.0f} rows/s{self.crew}"
        ended = done == total  # the bar pulses while the fit computes, and is not full
        self._show("Computing" if ended else reading, done, None if ended else total, detail)

    def _show(self, description: str, done: int, total: int | None, detail: str) -> None:
        task = self.bar.tasks[0]
        if task.total != total:
            self.bar.reset(self.task)
            task.total = total
        self.bar.update(self.task, completed=done, description=description, detail=detail)


def bar_for(console: Console) -> Progress:
    """Return the bar: stage, share that is done, details, and the time that is left."""
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[detail]}"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    )
