"""Rows kept of a pass: a uniform random sample that grows, merges and has bounded size."""

from dataclasses import dataclass

import numpy as np

from bochner._core.arrays import is_sparse, to_numpy
from bochner._core.shapes import Array, Float
from bochner._core.sizes import kept_rows
from bochner.data.blocks import Block
from bochner.data.sources import Piece, join, part, row_priorities
from bochner.errors import InvalidInput


@dataclass(frozen=True, eq=False)
class RowSample:
    """The rows of lowest random priority among all that were seen.

    A row's priority depends on the seed and its number alone, so the sample does not depend on
    block sizes, and the sample of two streams is made of their samples.

    Attributes
    ----------
    X : (m, d)
    y : (m, t) float64
    w : (m,) float64
    priority : (m,) float64
    """

    X: Float[Array, "m d"]
    y: Float[Array, "m t"]
    w: Float[Array, " m"]
    priority: Float[Array, " m"]

    @staticmethod
    def of(block: Block, seed: int) -> "RowSample":
        """Return the sample of one block; rows of zero weight take no part."""
        n = block.X.shape[0]
        w = np.ones(n) if block.w is None else to_numpy(block.w).astype(np.float64)
        y = np.zeros((n, 0)) if block.y is None else to_numpy(block.y).astype(np.float64)
        X = block.X if is_sparse(block.X) else to_numpy(block.X)
        sample = RowSample(X, y.reshape(n, -1), w, row_priorities(seed, block.start, n))
        return sample.take(np.flatnonzero(w > 0)).lowest(kept_rows(X.shape[1]))

    def __len__(self) -> int:
        return len(self.w)

    def merge(self, other: "RowSample") -> "RowSample":
        """Return the sample of the rows of both."""
        X, y, w = join([Piece(self.X, self.y, self.w), Piece(other.X, other.y, other.w)])
        priority = np.concatenate([self.priority, other.priority])
        return RowSample(X, y, w, priority).lowest(kept_rows(X.shape[1]))

    def lowest(self, m: int) -> "RowSample":
        """Return the m rows of lowest priority, still in the order they came."""
        if len(self) <= m:
            return self
        limit = np.partition(self.priority, m - 1)[m - 1]
        below, level = np.flatnonzero(self.priority < limit), np.flatnonzero(self.priority == limit)
        return self.take(np.sort(np.concatenate([below, level[: m - len(below)]])))

    def take(self, rows: Array) -> "RowSample":
        """Return these rows."""
        X, y, w = part(Piece(self.X, self.y, self.w), rows)
        return RowSample(X, y, w, self.priority[rows])


class Keeper:
    """Collects the :class:`RowSample` of blocks as they pass.

    Parameters
    ----------
    seed : int
        Seed of the priorities.
    sample : RowSample, optional
        Sample of the rows before.
    start : int, default 0
        Number of rows before.
    """

    def __init__(self, seed: int, sample: RowSample | None = None, start: int = 0) -> None:
        self._seed = seed
        self._start = start
        self._sample = sample

    @property
    def sample(self) -> RowSample:
        """The sample of all rows that were seen."""
        if self._sample is None:
            raise InvalidInput("RowSample: at least one block of rows is required; got none.")
        return self._sample

    def see(self, block: Block) -> None:
        """Consider the rows of a block."""
        new = RowSample.of(block._replace(start=self._start + block.start), self._seed)
        held = self._sample
        if held is None:
            self._sample = new
            return
        if len(held) >= kept_rows(new.X.shape[1]):
            new = new.take(np.flatnonzero(new.priority < held.priority.max()))
        if len(new):
            self._sample = held.merge(new)
