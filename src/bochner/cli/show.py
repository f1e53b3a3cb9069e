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

LABELS = 11  # Width of the labels


@dataclass
class Terminal:
    """Where a command tells what it does and what it found, and the seconds of its phases."""

    as_json: bool
    quiet: bool
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def phase(self, name: str, doing: str = "", blocks: Any = None) -> Iterator[Any]:
        """Measure what happens within; show people what is being done, or the rows being read."""
        began, watched = perf_counter(), not self.quiet and sys.stderr.isatty()
        if watched and blocks is not None:
            bar = Bar(blocks)
            with listening(bar.at):
                yield blocks.watch(bar)
        elif watched and doing:
            width = get_terminal_size().columns - 1  # a longer line could not be cleared
            line = lambda text: click.echo(f"\r{text[:width]}\033[K", nl=False, err=True)
            line(doing)
            try:
                with listening(lambda step: line(f"{doing}: {step.heading}")):
                    yield blocks
            finally:
                line("")
        else:
            yield blocks
        self.seconds[name] = round(perf_counter() - began, 4)

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
