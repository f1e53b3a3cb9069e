"""Output of commands: tables, JSON, seconds by phase, and a bar while rows are read."""

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from shutil import get_terminal_size
from textwrap import fill
from time import perf_counter
from typing import Any

import click

from bochner._core.progress import Bar, listening
from bochner._core.text import facts_in_words
from bochner.data.blocks import Blocks

LABELS = 11  # Width of the labels


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
            width = get_terminal_size().columns - 1  # a longer line could not be cleared
            line = lambda text: click.echo(f"\r{text[:width]}\033[K", nl=False, err=True)
            line(doing)
            try:
                with listening(lambda step: line(f"{doing}: {step.heading}")):
                    yield
            finally:
                line("")
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

    def show(self, words: Mapping[str, Any] | None = None, /, **facts: Any) -> None:
        """Print the facts as JSON, or for people those in ``words``, default all, as a table."""
        lines = facts_in_words(facts if words is None else words)
        if self.as_json:
            unicode = "utf" in (getattr(sys.stdout, "encoding", None) or "").lower()
            items = lambda value: value.tolist() if hasattr(value, "tolist") else str(value)
            text = json.dumps(facts, default=items)
            plain = json.loads(text, parse_constant=lambda _: None)  # NaN and infinities
            click.echo(json.dumps(plain, ensure_ascii=not unicode))
        elif not self.quiet:
            for label, text in lines:
                line, indent = f"{label:<{LABELS}}  {text}", " " * (LABELS + 2)
                if sys.stdout.isatty():  # elsewhere unbroken: for grep, and paths that are copied
                    how: Any = {"subsequent_indent": indent, "break_on_hyphens": False}
                    width = get_terminal_size().columns
                    line = "\n".join(fill(each, width, **how) for each in line.splitlines())
                click.echo(line)
