"""Progress of a fit: each step is logged at INFO on the logger ``bochner`` and shown to listeners.

Listeners belong to the context of the call, so two fits in two threads print their own steps only;
:func:`bochner._core.threads.run_parallel` hands the context on to its threads.
"""

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from html import escape
from shutil import get_terminal_size
from time import monotonic
from typing import Any

LOG = logging.getLogger("bochner")

Listener = Callable[[str], None]
_listeners: ContextVar[tuple[Listener, ...]] = ContextVar("listeners", default=())


def progress(stage: str, detail: object = "", number: int = 0, total: int = 0) -> None:
    """Log a step, and call the listeners of this context with it.

    The step is written as "STAGE NUMBER of TOTAL: DETAIL", where the numbers are optional.
    """
    listeners = _listeners.get()
    if listeners or LOG.isEnabledFor(logging.INFO):  # else the detail is not formatted
        heading = f"{stage} {number} of {total}" if total else stage
        step = f"{heading}: {detail}".removesuffix(": ")
        LOG.info("%s", step)
        for listener in listeners:
            listener(step)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Call the listener with each step within this context."""
    old = _listeners.get()
    token = _listeners.set(old if listener in old else (*old, listener))
    try:
        yield
    finally:
        _listeners.reset(token)


#: Listener that prints each step to standard output, for ``verbose=True``.
print_step = partial(print, flush=True)


@dataclass
class Bar:
    """Progress bar of the rows read in each pass, and of the steps of a fit between passes."""

    blocks: Any = None  # None: only steps are shown
    rows: int = 0  # in this pass
    number: int = 1  # of this pass
    start: float = field(default_factory=monotonic)
    step: str = ""
    last_time: float = 0.0
    has_display: bool = False  # in a notebook

    def __call__(self, rows: int) -> None:
        """Count rows that were read, and redraw the bar at most every 0.2 seconds."""
        if self._is_done:
            self.number, self.rows, self.start = self.number + 1, 0, monotonic()
        self.rows, self.step = self.rows + rows, ""
        self._show(self._is_done)

    def at(self, step: str) -> None:
        """Show a step of the fit, until rows are read again; "" clears the line."""
        self.step = step
        self._show(True)

    @property
    def text(self) -> str:
        """The step, or rows read, rows per second and the time left."""
        if self.step or self.blocks is None:
            return self.step
        n = self.blocks.n_rows
        rate = max(self.rows, 1) / max(monotonic() - self.start, 1e-9)
        total = "" if n is None else f" of {n:,}"
        time = "" if n is None or self._is_done else f", {(n - self.rows) / rate:,.0f} s left"
        return f"pass {self.number}: {self.rows:,}{total} rows, {rate:,.0f} rows/s{time}"

    @property
    def _is_done(self) -> bool:
        n = getattr(self.blocks, "n_rows", None)
        return n is not None and self.rows >= n

    def _repr_html_(self) -> str:
        n = self.blocks.n_rows
        value = f' value="{self.rows}" max="{n}"' if n else ""
        text = escape(self.text)
        return f'<div><progress aria-label="{text}"{value}></progress> {text}</div>'

    def _show(self, force: bool) -> None:
        """Draw the bar below the notebook cell, or on the last line of the terminal."""
        if not force and monotonic() - self.last_time < 0.2:  # seconds
            return
        self.last_time = monotonic()
        # in a kernel of Jupyter, which shows HTML
        shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
        if type(shell).__name__ == "ZMQInteractiveShell":
            from IPython.display import display

            display(self, display_id=f"bochner-{id(self)}", update=self.has_display)
            self.has_display = True
        elif sys.stderr.isatty():
            text = self.text[: get_terminal_size().columns - 1]  # longer text cannot be cleared
            sys.stderr.write(f"\r{text}\033[K" + "\n" * (self._is_done and not self.step))
            sys.stderr.flush()
