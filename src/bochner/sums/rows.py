"""A random sample of rows, as a sum."""

from dataclasses import dataclass, replace

import numpy as np

from bochner._core.arrays import to_numpy
from bochner._core.shapes import Array, Float
from bochner.data.blocks import Blocks, count_rows
from bochner.data.sample import RowSample
from bochner.data.sources import Block
from bochner.errors import InvalidInput
from bochner.sums.executor import LOCAL, Executor
from bochner.sums.tree import SumOf


@dataclass(frozen=True, eq=False)
class SampleOf:
    """The summand of a :class:`RowSample`, None for no rows; row numbers count from ``start``."""

    seed: int
    start: int = 0

    def zero(self) -> RowSample | None:
        return None

    def add(self, total: RowSample | None, block: Block) -> RowSample | None:
        return self.merge(total, RowSample.of(block, self.seed, self.start))

    def merge(self, a: RowSample | None, b: RowSample | None) -> RowSample | None:
        if a is None or b is None:
            return b if a is None else a
        return a.merge(b)


def sampled(blocks: Blocks, seed: int, n_classes: int = 0, where: Executor = LOCAL) -> RowSample:
    """Return the sample of all rows, by one pass that makes no features.

    With ``n_classes`` y holds codes of classes, and the sample their indicators.
    """
    sample = nonempty(where.sum(SampleOf(seed), blocks))
    if not (n_classes and sample.y.shape[1]):
        return sample
    return replace(sample, y=indicators(sample.y[:, 0], n_classes))


def total_weight(blocks: Blocks, where: Executor = LOCAL) -> float:
    """Return the sum of weights: rows, without a further pass, where there are none."""
    if next(iter(blocks)).w is None:
        return count_rows(blocks)
    return where.sum(SumOf(_weight_of), blocks) or 1.0


def _weight_of(block: Block) -> float:
    return float(to_numpy(block.w).sum())


def nonempty(rows: RowSample | None) -> RowSample:
    """Return the sample, which must be there."""
    if rows is None:
        raise InvalidInput("A kernel by name needs rows to choose its lengthscale from; got none.")
    return rows


def indicators(codes: Float[Array, " n"], n_classes: int) -> Float[Array, "n K"]:
    """Return +1 for rows of a class and −1 for others; of two classes, only the second's column."""
    if n_classes == 2:
        return np.where(codes == 1, 1.0, -1.0)[:, None]
    return np.where(codes[:, None] == np.arange(n_classes), 1.0, -1.0)
