"""Blocks whose passage shows on stderr: rows read, rows a second, time left."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

from bochner.data.blocks import Blocks


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
