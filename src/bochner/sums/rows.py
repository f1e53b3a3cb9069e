"""Sums that keep rows apart: moments of each fold, and a random sample of rows."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np

from bochner._core.arrays import to_numpy
from bochner._core.random import stream
from bochner._core.shapes import Array, Float
from bochner.data.blocks import Blocks, count_rows
from bochner.data.sample import RowSample
from bochner.data.sources import Block
from bochner.errors import InvalidInput
from bochner.sums.executor import LOCAL, Executor
from bochner.sums.moments import Accumulator, Moments, Precision

#: K. Memory is K D² numbers.
N_FOLDS = 5

#: Moments of each fold; None while it has no rows.
Folds = tuple[Moments | None, ...]


def fold_numbers(seed: int, start: int, count: int) -> Array:
    """Return the folds, 0 to 4, of rows ``start`` to ``start + count − 1``.

    Of each five consecutive rows one goes to each fold, in an order that is random: the same
    whatever the blocks, and folds as equal in size as five can be.
    """
    first = start - start % N_FOLDS
    groups = -(-(start + count - first) // N_FOLDS)
    generator = stream(seed, "folds")
    generator.bit_generator.advance(first)  # type: ignore[attr-defined]
    order = generator.random((groups, N_FOLDS)).argsort(axis=1)
    return order.ravel()[start - first : start - first + count]


@dataclass(frozen=True, eq=False)
class FoldsOf:
    """The summand of moments of each fold; row numbers count from ``start``."""

    features: Callable[[Array], Array]
    precision: Precision
    seed: int
    start: int = 0

    def zero(self) -> list[Accumulator]:
        """Return empty accumulators."""
        return [Accumulator(self.precision) for _ in range(N_FOLDS)]

    def add(self, total: list[Accumulator], block: Block) -> list[Accumulator]:
        """Add each row to its fold."""
        Z = to_numpy(self.features(block.X))
        y = to_numpy(block.y)
        w = None if block.w is None else to_numpy(block.w)
        numbers = fold_numbers(self.seed, self.start + block.start, len(Z))
        for k, fold in enumerate(total):
            own = np.flatnonzero(numbers == k)
            if len(own):
                fold.add(Z[own], y[own], None if w is None else w[own])
        return total

    def merge(self, a: list[Accumulator], b: list[Accumulator]) -> list[Accumulator]:
        """Take each fold of the second into that of the first."""
        return [x.merge(y) for x, y in zip(a, b, strict=True)]

    @staticmethod
    def moments(total: list[Accumulator]) -> Folds:
        """Return the moments of each fold."""
        return tuple(fold.moments() if fold.rows else None for fold in total)


def added(a: Folds, b: Folds) -> Folds:
    """Return the folds of the rows of both."""
    return tuple(_sum(pair) for pair in zip(a, b, strict=True))


def total_of(folds: Folds) -> Moments:
    """Return the moments of all rows."""
    total = _sum(folds)
    return Accumulator().moments() if total is None else total  # which says that there are no rows


def _sum(moments: Iterable[Moments | None]) -> Moments | None:
    total: Moments | None = None
    for one in moments:
        if one is not None:
            total = one if total is None else total + one
    return total


# --- A random sample of rows as a sum: that of two parts is made of their samples ----------------


@dataclass(frozen=True, eq=False)
class SampleOf:
    """The summand of a :class:`RowSample`, None of no rows; row numbers count from ``start``."""

    seed: int
    start: int = 0

    def zero(self) -> RowSample | None:
        """Return no sample."""
        return None

    def add(self, total: RowSample | None, block: Block) -> RowSample:
        """Consider the rows of a block."""
        new = RowSample.of(block, self.seed, self.start)
        return new if total is None else total.merge(new)

    def merge(self, a: RowSample | None, b: RowSample | None) -> RowSample | None:
        """Return the sample of the rows of both."""
        if a is None or b is None:
            return b if a is None else a
        return a.merge(b)


def sampled(blocks: Blocks, seed: int, n_classes: int = 0, where: Executor = LOCAL) -> RowSample:
    """Return the sample of all rows, by one pass that makes no features.

    With ``n_classes`` y holds codes of classes, and the sample their indicators.
    """
    sample = some(where.sum(SampleOf(seed), blocks))
    if not (n_classes and sample.y.shape[1]):
        return sample
    return replace(sample, y=indicators(sample.y[:, 0], n_classes))


def total_weight(blocks: Blocks, where: Executor = LOCAL) -> float:
    """Return the sum of weights: rows, without a further pass, where there are none."""
    if next(iter(blocks)).w is None:
        return count_rows(blocks)
    return where.sum(WeightOf(), blocks) or 1.0


@dataclass(frozen=True)
class WeightOf:
    """The summand of weights."""

    def zero(self) -> float:
        """Return the weight of no rows."""
        return 0.0

    def add(self, total: float, block: Block) -> float:
        """Add those of a block."""
        return total + float(to_numpy(block.w).sum())

    def merge(self, a: float, b: float) -> float:
        """Return that of both."""
        return a + b


def some(rows: RowSample | None) -> RowSample:
    """Return the sample, which must be there."""
    if rows is None:
        raise InvalidInput("A kernel by name needs rows to choose its lengthscale from; got none.")
    return rows


def indicators(codes: Float[Array, " n"], n_classes: int) -> Float[Array, "n K"]:
    """Return −1 and +1 of classes against the rest; one column, of the second, for two classes."""
    if n_classes == 2:
        return np.where(codes == 1, 1.0, -1.0)[:, None]
    return np.where(codes[:, None] == np.arange(n_classes), 1.0, -1.0)
