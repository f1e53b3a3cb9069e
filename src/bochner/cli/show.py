"""Results as a table for people, or as one JSON object for programs."""

import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

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
