"""Where sums over rows are made: every pass is a sum, and an executor makes it."""

from collections.abc import Callable
from dataclasses import dataclass
from operator import methodcaller
from typing import Any, Protocol, TypeVar

from bochner.data.blocks import Blocks
from bochner.data.sources import Block

S = TypeVar("S")


class Summand(Protocol[S]):
    """What a pass over rows makes: it adds, block after block and part after part."""

    def zero(self) -> S:
        """Return the sum of no rows."""
        ...

    def add(self, total: S, block: Block) -> S:
        """Return the sum with the rows of a block, made on the device of the block."""
        ...

    def merge(self, a: S, b: S) -> S:
        """Return the sum of the rows of both; those of ``a`` come first."""
        ...


class Executor(Protocol):
    """Where a sum is made."""

    def sum(self, summand: Summand[S], blocks: Blocks) -> S:
        """Return the sum of all blocks."""
        ...

    def sum_unless(
        self, stop: Callable[[S], bool], summand: Summand[S], blocks: Blocks, rows: int
    ) -> S | None:
        """Return the sum, or None if ``stop`` says so of the sum of about the first ``rows``."""
        ...


@dataclass(frozen=True)
class Local:
    """All blocks in their order, in this process.

    Ctrl-C and errors of the reader leave nothing behind: a sum is handed out whole or not at all.
    """

    def sum(self, summand: Summand[S], blocks: Blocks) -> S:
        """Return the sum of all blocks."""
        total = summand.zero()
        for block in blocks:
            total = summand.add(total, block)
        return total

    def sum_unless(
        self, stop: Callable[[S], bool], summand: Summand[S], blocks: Blocks, rows: int
    ) -> S | None:
        """Return the sum, or None if ``stop`` says so of the sum of about the first ``rows``."""
        total, asked = summand.zero(), False
        for block in blocks:
            total = summand.add(total, block)
            if not asked and block.start + block.X.shape[0] >= rows:
                asked = True
                if stop(total):
                    return None
        return total


LOCAL = Local()


@dataclass(frozen=True)
class Together:
    """Several summands in one pass; their sums are a list."""

    summands: tuple[Any, ...]

    def zero(self) -> list[Any]:
        """Return the sums of no rows."""
        return list(map(methodcaller("zero"), self.summands))

    def add(self, total: list[Any], block: Block) -> list[Any]:
        """Return the sums with the rows of a block."""
        for k, summand in enumerate(self.summands):
            total[k] = summand.add(total[k], block)
        return total

    def merge(self, a: list[Any], b: list[Any]) -> list[Any]:
        """Return the sums of the rows of both."""
        return [s.merge(x, y) for s, x, y in zip(self.summands, a, b, strict=True)]
