"""Streams of the process as they are found: closed, full, or of an encoding with few characters."""

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import click


def open_streams() -> None:
    """Make stdout and stderr take any text: a closed one takes it nowhere, none refuses a letter.

    A file opened while descriptor 2 is closed would become stderr, and libraries write there.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the least number that is free
    sys.stdout, sys.stderr = _lenient(sys.stdout), _lenient(sys.stderr)


def _lenient(stream: Any) -> Any:
    """Return the stream, writing letters that its encoding lacks as escapes."""
    if stream is None or stream.closed:
        return Path(os.devnull).open("w", encoding="utf-8")
    if getattr(stream, "errors", None) == "strict" and hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="backslashreplace")
    return stream


def tell(sentence: str) -> None:
    """Write a line to stderr; that nobody can read it is no reason to stop."""
    with suppress(OSError, ValueError):
        click.echo(sentence, err=True)
