"""Output of commands: tables, JSON, seconds by phase, and a bar while rows are read."""

import json
import math
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from bochner._core.progress import Bar, listening
from bochner._core.text import facts_in_words
from bochner.data.blocks import Blocks

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
            bar = Bar(blocks)
            with listening(bar.at):
                yield blocks.watch(bar)

    @property
    def _watched(self) -> bool:
        return not self.quiet and sys.stderr.isatty()

    def say(self, text: str, err: bool = False) -> None:
        """Print text for people; ``err``: where results are not."""
        if not self.as_json and not self.quiet:
            click.echo(text, err=err)

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
    """Return the value in types that JSON has; infinities and NaN become None."""
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)
