"""A bar that counts rows while blocks are read: in a notebook, or on a terminal."""

import sys
from dataclasses import dataclass, field
from html import escape
from time import monotonic
from typing import Any

from bochner._core.progress import FitStep


@dataclass
class Bar:
    """Shows how many rows of blocks were read, pass by pass, and the steps of a fit between."""

    blocks: Any
    rows: int = 0  # in this pass
    number: int = 1  # of this pass
    began: float = field(default_factory=monotonic)
    step: FitStep | None = None
    last_time: float = 0.0
    handle: Any = None

    def __call__(self, rows: int) -> None:
        """Count these rows, and show them now and then."""
        if self._done:
            self.number, self.rows, self.began = self.number + 1, 0, monotonic()
        self.rows, self.step = self.rows + rows, None
        self._show(self._done)

    def at(self, step: FitStep) -> None:
        """Show a step of the fit, until rows are read again."""
        self.step = step
        self._show(True)

    @property
    def text(self) -> str:
        """The step, or rows read, rows per second and the time left."""
        if self.step is not None:
            return str(self.step)
        n = self.blocks.n_rows
        rate = max(self.rows, 1) / max(monotonic() - self.began, 1e-9)
        of = "" if n is None else f" of {n:,}"
        left = "" if n is None or self._done else f", {(n - self.rows) / rate:,.0f} s left"
        return f"pass {self.number}: {self.rows:,}{of} rows, {rate:,.0f} rows/s{left}"

    @property
    def _done(self) -> bool:
        return self.blocks.n_rows is not None and self.rows >= self.blocks.n_rows

    def _repr_html_(self) -> str:
        n = self.blocks.n_rows
        known = f' value="{self.rows}" max="{n}"' if n else ""
        text = escape(self.text)
        return f'<div><progress aria-label="{text}"{known}></progress> {text}</div>'

    def _show(self, now: bool) -> None:
        """Draw the bar in the notebook, in its place; else on the terminal's last line."""
        if not now and monotonic() - self.last_time < 0.2:  # seconds
            return
        self.last_time = monotonic()
        if not in_notebook():
            if sys.stderr.isatty():
                sys.stderr.write(f"\r{self.text}\033[K" + "\n" * (self._done and not self.step))
                sys.stderr.flush()
            return
        from IPython.display import display

        if self.handle is None:
            self.handle = display(self, display_id=True)
        else:
            self.handle.update(self)


def in_notebook() -> bool:
    """Whether a kernel of Jupyter runs this code, which shows HTML."""
    if "IPython" not in sys.modules:
        return False
    from IPython import get_ipython

    return type(get_ipython()).__name__ == "ZMQInteractiveShell"
