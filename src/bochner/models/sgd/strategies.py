"""The six strategies of stochastic gradient descent, and the operations and bytes of each.

A strategy takes features of the kernel itself, kernel values, or features that approximate it; each
computed when a step needs them, or once and kept. The choice by counted operations is the same on
every machine.
"""

from dataclasses import dataclass

import numpy as np

from bochner._core.checks import bytes_in_words
from bochner._core.text import TableResult

STRATEGIES = (
    "exact_on_the_fly",
    "exact_cached",
    "kernel_on_the_fly",
    "gram_cached",
    "approximate_on_the_fly",
    "approximate_cached",
)
EXACT, DUAL, CACHED = STRATEGIES[:2], STRATEGIES[2:4], STRATEGIES[1::2]


@dataclass(frozen=True)
class StrategyCost:
    """Counted cost of a strategy, beside the rows of X, which all six need."""

    name: str
    width: int = 0  # Numbers that a step reads for each row: D, or n
    operations: float = np.nan
    bytes: float = np.nan
    refused: str = ""  # Why it cannot be run; empty where it can


@dataclass(frozen=True)
class StrategyPlan(TableResult):
    """The six strategies for one kernel and table of data; prints as a table."""

    task: str  # Sizes of the rows and of the descent, in words
    memory: int  # Bytes that a strategy may take: half of the free memory
    rows: tuple[StrategyCost, ...]

    @property
    def best(self) -> str:
        """The strategy of least work that fits in memory; if none fits, of least memory.

        A strategy on the exact kernel is preferred if it takes at most half as much work again, or
        at most 10⁹ operations more, about a quarter of a second.
        """
        served = [row for row in self.rows if not row.refused]
        fit = [row for row in served if row.bytes <= self.memory]
        if not fit:
            return min(served, key=lambda row: row.bytes).name
        least = min(row.operations for row in fit)
        close = [r for r in fit if r.operations <= max(1.5 * least, least + 1e9)]
        return min(close, key=lambda row: (row.name not in (*EXACT, *DUAL), row.operations)).name

    def _table(self) -> tuple[str, list[tuple[str, ...]], str]:
        """Return the title, the lines and why some strategies cannot be run."""
        lines: list[tuple[str, ...]] = [("strategy", "width", "operations", "memory")]
        for row in self.rows:
            mark = " *" * (row.name == self.best)
            cells = f"{row.width:,}", f"{row.operations:.3g}", bytes_in_words(row.bytes)
            lines.append((row.name + mark, *(("-",) * 3 if row.refused else cells)))
        most = bytes_in_words(self.memory)
        refused = (f"{row.name}: {row.refused}" for row in self.rows if row.refused)
        title = f"{self.task}; memory beside the rows, at most {most}"
        return title, lines, "\n".join(refused)


def block_rows(width: int, batch_size: int) -> int:
    """Return the number of rows in memory at a time: whole batches, of about 2 MB."""
    batches = (1 << 18) // max(1, width * batch_size)
    return batch_size * max(1, min(batches, 4096 // batch_size))
