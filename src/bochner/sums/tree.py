"""The merge tree of sums, fixed by block numbers and independent of the workers.

Floating-point sums depend on their order. So that any number of workers gives the bits of one, the
order is a function of the blocks alone: consecutive blocks make a **part**, one block added after
the other to the sum of no rows; sixteen parts, one merged after the other, make a node; sixteen
nodes make a node, and so on. A table of one part is summed block after block, without merging.
Summation in blocks: Higham (2002, section 4.2). Fixed orders for the sake of equal bits: Demmel and
Nguyen (2015).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from bochner._core.arrays import added

PART_ROWS = 1 << 16  # Rows of a part: merging takes as long as adding a few hundred rows
BRANCHES = 16  # Sums that one node of the tree merges

S = TypeVar("S")


class Summand(Protocol[S]):
    """A sum over rows that a pass computes, block by block and part by part."""

    def zero(self) -> S:
        """Return the sum of no rows."""
        ...

    def add(self, total: S, block: Any) -> S:
        """Return the sum with the rows of a block, made on the device of the block."""
        ...

    def merge(self, a: S, b: S) -> S:
        """Return the sum of the rows of both; ``a`` comes first and may be modified."""
        ...


@dataclass(frozen=True, eq=False)
class SumOf:
    """The sum of ``part(block)``: numbers and arrays, lists to be joined, or a tuple of these."""

    part: Callable[[Any], Any]  # The sum may change its arrays

    def zero(self) -> None:
        return None

    def add(self, total: Any, block: Any) -> Any:
        return added(total, self.part(block))

    def merge(self, a: Any, b: Any) -> Any:
        return added(a, b)


def narrowed(summand: Any, rows: slice) -> Any:
    """Return the summand for these rows only, if it holds numbers per row, and has ``within``."""
    return summand.within(rows) if hasattr(summand, "within") else summand


def blocks_per_part(block_rows: int) -> int:
    """Return the number of blocks of ``block_rows`` rows in a part."""
    return max(1, PART_ROWS // block_rows)


class MergeTree(Generic[S]):
    """Sums of parts in order of arrival, merged as early as the order allows.

    ``merge`` returns the sum of two; it may modify the first.
    """

    def __init__(self, merge: Callable[[S, S], S]) -> None:
        self._merge = merge
        self.levels: list[tuple[S, int] | None] = []  # sum and number of parts of each level

    def take(self, done: S) -> None:
        """Take in the sum of the next part, and of all nodes that it completes."""
        for level, begun in enumerate(self.levels):
            total, count = done, 1
            if begun is not None:
                total, count = self._merge(begun[0], done), begun[1] + 1
            if count < BRANCHES:
                self.levels[level] = total, count
                return
            self.levels[level], done = None, total
        self.levels.append((done, 1))

    def root(self, last: S | None = None) -> S | None:
        """Return the sum of all parts, and of a last one; nothing more can be taken in after it."""
        for begun in self.levels:
            if begun is not None:
                last = begun[0] if last is None else self._merge(begun[0], last)
        return last


class RunningSum(Generic[S]):
    """The sum of blocks as they come, merged in the order of the tree.

    ``block_rows`` are the rows of every block but the last. Memory: a sum for each level of the
    tree that was reached, one up to 65,536 rows, two up to a million, three up to 16 million.
    """

    def __init__(self, summand: Summand[S], block_rows: int) -> None:
        self._summand = summand
        self._most = blocks_per_part(block_rows)
        self._tree: MergeTree[S] = MergeTree(summand.merge)
        self._part: S | None = None
        self.blocks = 0

    def add(self, block: Any) -> None:
        """Add the next block."""
        part = self._summand.zero() if self._part is None else self._part
        self._part = self._summand.add(part, block)
        self.blocks += 1
        if self.blocks % self._most == 0:
            self._tree.take(self._part)
            self._part = None

    def total(self) -> S:
        """Return the sum of all blocks; nothing more can be added after it."""
        total = self._tree.root(self._part)
        return self._summand.zero() if total is None else total

    def state(self) -> list[Any]:
        """Return the state: number of blocks, unfinished part, and the sums of each level."""
        return [self.blocks, self._part, self._tree.levels]

    def restore(self, state: list[Any]) -> None:
        """Continue from the state of another."""
        self.blocks, self._part, self._tree.levels = state


def summed(summand: Summand[S], blocks: Iterable[Any], block_rows: int) -> S:
    """Return the sum of blocks, merged in the order of the tree."""
    running = RunningSum(summand, block_rows)
    for block in blocks:
        running.add(block)
    return running.total()
