"""A random sample of rows as a sum: that of two parts is made of their samples."""

from dataclasses import dataclass

from bochner.data.sample import Keeper, RowSample
from bochner.data.sources import Block


@dataclass(frozen=True, eq=False)
class SampleOf:
    """The summand of a :class:`RowSample`, after ``before``, of rows that count from ``start``."""

    seed: int
    before: RowSample | None = None
    start: int = 0

    def zero(self) -> Keeper:
        """Return a keeper of the rows before."""
        return Keeper(self.seed, self.before, self.start)

    def add(self, total: Keeper, block: Block) -> Keeper:
        """Consider the rows of a block."""
        total.see(block)
        return total

    def merge(self, a: Keeper, b: Keeper) -> Keeper:
        """Return the sample of the rows of both."""
        return Keeper(self.seed, a.sample.merge(b.sample), self.start)
