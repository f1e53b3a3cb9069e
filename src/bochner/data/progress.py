"""A bar that counts rows while blocks are read: in a notebook, or on a terminal."""

import sys
from dataclasses import dataclass, field
from html import escape
from time import monotonic
from typing import Any

#: Seconds between two pictures of the bar.
OFTEN = 0.2


@dataclass
class RowCount:
    """Counts rows, pass by pass.

    ``n_rows`` is None where the number of rows is not known before they are read.
    """

    n_rows: int | None = None
    rows: int = 0
    number: int = 1
    began: float = field(default_factory=monotonic)

    def add(self, rows: int) -> bool:
        """Count these rows; whether they are the first ones of another pass over all rows."""
        again = self.n_rows is not None and self.rows >= self.n_rows
        if again:
            self.number, self.rows, self.began = self.number + 1, 0, monotonic()
        self.rows += rows
        return again

    @property
    def rate(self) -> float:
        """Rows a second in this pass."""
        return self.rows / max(monotonic() - self.began, 1e-9)


@dataclass
class Bar:
    """Shows how many rows were read: a callback of ``Blocks.watch``."""

    count: RowCount = field(default_factory=RowCount)
    workers: int = 0
    shown: float = 0.0
    handle: Any = None

    def __call__(self, rows: int) -> None:
        self.count.add(rows)
        if monotonic() - self.shown >= OFTEN or self._done:
            self.shown = monotonic()
            self.show()

    def crew(self, workers: int) -> None:
        """Hear how many workers read the rows."""
        self.workers = workers

    @property
    def text(self) -> str:
        """Rows read and rows per second."""
        count = self.count
        of = "" if count.n_rows is None else f" of {count.n_rows:,}"
        crew = f" by {self.workers} workers" if self.workers else ""
        return f"pass {count.number}: {count.rows:,}{of} rows, {count.rate:,.0f} rows/s{crew}"

    @property
    def _done(self) -> bool:
        return self.count.rows == self.count.n_rows

    def _repr_html_(self) -> str:
        """Return the bar as HTML."""
        rows, of = self.count.rows, self.count.n_rows
        known = f' value="{rows}" max="{of}"' if of else ""
        text = escape(self.text)
        return f'<div><progress aria-label="{text}"{known}></progress> {text}</div>'

    def show(self) -> None:
        """Draw the bar in the notebook, in its place; else on the terminal's last line."""
        if not in_notebook():
            if sys.stderr.isatty():
                end = "\n" if self._done else ""
                sys.stderr.write(f"\r{self.text}\033[K{end}")
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
