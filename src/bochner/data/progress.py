"""A bar that counts rows while blocks are read: in a notebook, or on a terminal."""

import sys
from dataclasses import dataclass, field
from html import escape
from time import monotonic
from typing import Any

#: Seconds between two pictures of the bar.
OFTEN = 0.2


@dataclass
class Bar:
    """Counts rows, pass by pass, and shows how many there are: a callback of ``Blocks.watch``.

    ``n_rows`` is None where the number of rows is not known before they are read.
    """

    n_rows: int | None = None
    rows: int = 0
    number: int = 1
    workers: int = 0
    began: float = field(default_factory=monotonic)
    shown: float = 0.0
    handle: Any = None

    def __call__(self, rows: int) -> None:
        """Count these rows; the first ones after all rows begin the next pass."""
        if self.n_rows is not None and self.rows >= self.n_rows:
            self.number, self.rows, self.began = self.number + 1, 0, monotonic()
        self.rows += rows
        if monotonic() - self.shown >= OFTEN or self.rows == self.n_rows:
            self.shown = monotonic()
            self.show()

    def crew(self, workers: int) -> None:
        """Hear how many workers read the rows."""
        self.workers = workers

    @property
    def text(self) -> str:
        """What is done, and how fast."""
        rate = self.rows / max(monotonic() - self.began, 1e-9)
        of = "" if self.n_rows is None else f" of {self.n_rows:,}"
        crew = f" by {self.workers} workers" if self.workers else ""
        return f"pass {self.number}: {self.rows:,}{of} rows, {rate:,.0f} rows/s{crew}"

    def _repr_html_(self) -> str:
        """Return the bar as HTML."""
        known = f' value="{self.rows}" max="{self.n_rows}"' if self.n_rows else ""
        text = escape(self.text)
        return f'<div><progress aria-label="{text}"{known}></progress> {text}</div>'

    def show(self) -> None:
        """Draw the bar in the notebook, in its place; else on the terminal's last line."""
        if not in_notebook():
            if sys.stderr.isatty():
                end = "\n" if self.rows == self.n_rows else ""
                sys.stderr.write(f"\r{self.text}\033[K{end}")
                sys.stderr.flush()
            return
        from IPython.display import display  # noqa: PLC0415

        if self.handle is None:
            self.handle = display(self, display_id=True)
        else:
            self.handle.update(self)


def in_notebook() -> bool:
    """Whether a kernel of Jupyter runs this code, which shows HTML."""
    if "IPython" not in sys.modules:
        return False
    from IPython import get_ipython  # noqa: PLC0415

    return type(get_ipython()).__name__ == "ZMQInteractiveShell"
