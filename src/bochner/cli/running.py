"""Run a command, and turn every error into one sentence and an exit code."""

import json
import os
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import current_thread, main_thread
from typing import Any

import click

from bochner.cli.commands import bochner
from bochner.errors import BochnerError, BochnerWarning


def open_streams() -> None:
    """Let stdout and stderr accept any text; a closed stream discards it.

    A file opened while descriptor 2 is closed would become stderr, and libraries write there.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the smallest free number
    sys.stdout, sys.stderr = _escape_unencodable(sys.stdout), _escape_unencodable(sys.stderr)


def _escape_unencodable(stream: Any) -> Any:
    """Return the stream, with escape sequences for characters that its encoding lacks."""
    if stream is None or stream.closed:
        return Path(os.devnull).open("w", encoding="utf-8")
    if getattr(stream, "errors", None) == "strict" and hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="backslashreplace")
    return stream


def notify(sentence: str) -> None:
    """Write a line to stderr; errors of a closed stderr are ignored."""
    with suppress(OSError, ValueError):
        escape = "\r\033[K" if sys.stderr.isatty() else ""  # the progress bar
        click.echo(escape + sentence, err=True)


#: Exit codes other than 0: data or model, command, Ctrl-C, kill (128 + signal, as in shells).
FAILED, MISUSED, STOPPED, KILLED = 1, 2, 130, 143


def run(arguments: list[str]) -> int:
    """Run a command and return its exit code.

    With BOCHNER_DEBUG=1 in the environment errors pass through, with their traceback.
    """
    open_streams()
    try:
        with _unwinding():
            return bochner.main(arguments, prog_name="bochner", standalone_mode=False) or 0
    except click.ClickException as error:
        with suppress(OSError):
            if "--json" in arguments:
                _print_json(error.format_message(), MISUSED)
            else:
                error.show()
        return MISUSED
    except (click.Abort, KeyboardInterrupt, SystemExit) as stopped:
        if getattr(stopped, "code", KILLED) != KILLED:
            return FAILED  # by click, if the reader of a pipe is gone (as in `| head`)
        cause = stopped.__cause__ or stopped  # click makes a Ctrl-C exception the cause
        notify(f"Stopped; {next(iter(getattr(cause, '__notes__', ())), 'nothing was written.')}")
        return KILLED if isinstance(stopped, SystemExit) else STOPPED
    except Exception as error:
        if os.environ.get("BOCHNER_DEBUG") == "1":
            raise
        if "--json" in arguments:
            _print_json(_sentence(error), FAILED, type(error).__name__)
        notify(f"Error: {_sentence(error)}")
        return FAILED


def _print_json(sentence: str, code: int, kind: str = "UsageError") -> None:
    """Print an error as one JSON object."""
    with suppress(OSError, ValueError):
        click.echo(json.dumps({"error": sentence, "kind": kind, "exit_code": code}))


def _sentence(error: Exception) -> str:
    """Return the message of an error; of an unexpected error also its class and how to see more."""
    if isinstance(error, BochnerError):
        return " ".join(str(error).split())
    if isinstance(error, MemoryError):
        return "there is not enough memory. Ask for fewer features with --features."
    return (
        f"{type(error).__name__}: {' '.join(str(error).split())} "
        "(BOCHNER_DEBUG=1 in the environment shows where)"
    )


@contextmanager
def _unwinding() -> Iterator[None]:
    """Write each warning as a line without source code; SIGTERM unwinds the stack, as Ctrl-C."""
    main = current_thread() is main_thread()  # in other threads the caller handles signals
    previous = signal.signal(signal.SIGTERM, lambda *_: sys.exit(KILLED)) if main else None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("default", BochnerWarning)
            warnings.showwarning = lambda message, *_, **__: notify(f"Note: {message}")
            yield
    finally:
        if main:
            signal.signal(signal.SIGTERM, previous)
