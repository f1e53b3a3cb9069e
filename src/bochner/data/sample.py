"""Rows chosen at random in one pass: the same rows for any block size, order and workers."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from bochner._core.arrays import numpy_rows
from bochner._core.random import stream
from bochner._core.shapes import Array, Float
from bochner._core.sizes import cached_rows
from bochner.data.sources import Block, Piece, join, part, piece_of


class Sample(NamedTuple):
    """Rows chosen at random: X (m, d), y, w as in a block, and their row numbers, ascending."""

    X: Any
    y: Any
    w: Any
    index: np.ndarray  # type: ignore[assignment]


def row_priorities(seed: int, start: int, count: int) -> np.ndarray:
    """Return random priorities in [0, 1) of ``count`` rows from ``start`` on; low ones are kept."""
    generator = stream(seed, "sample")
    generator.bit_generator.advance(start)  # type: ignore[attr-defined]
    return generator.random(count)


def sample_rows(seed: int, n: int, m: int) -> np.ndarray:
    """Return the ``m`` rows of lowest priority among ``n``, ascending; all of them if m >= n."""
    starts = range(0, n, 1 << 20)
    numbers = ((np.arange(start, min(start + (1 << 20), n)), None, None, start) for start in starts)
    return sample_stream(numbers, m, seed).index


def sample_stream(blocks: Iterable[Any], m: int, seed: int) -> Sample:
    """Return the ``m`` rows of lowest priority of blocks. Memory: 2m rows and one block."""
    pieces, index, priority, limit = [], np.empty(0, np.intp), np.empty(0), np.inf
    for X, y, w, start in blocks:
        priorities = row_priorities(seed, start, X.shape[0])
        rows = np.flatnonzero(priorities <= limit)
        pieces.append(part(Piece(X, y, w), rows))
        index, priority = np.append(index, start + rows), np.append(priority, priorities[rows])
        if len(index) > 2 * m:
            keep = _lowest(priority, m)
            pieces, index, priority = [part(join(pieces), keep)], index[keep], priority[keep]
            limit = priority.max()
    keep = _lowest(priority, m)
    return Sample(*part(join(pieces), keep), index[keep])


# --- The random sample of the rows of a pass: bounded in size, and samples can be merged ---------


@dataclass(frozen=True, eq=False)
class RowSample:
    """The rows of lowest random priority among all rows that were read."""

    X: Float[Array, "m d"]
    y: Float[Array, "m t"]
    w: Float[Array, " m"]
    priority: Float[Array, " m"]  # random number of each row

    def __repr__(self) -> str:
        return f"RowSample(rows={len(self)}, columns={self.X.shape[1]}, targets={self.y.shape[1]})"

    @staticmethod
    def of(block: Block, seed: int, start: int = 0) -> "RowSample":
        """Return the sample of a block's rows of weight above 0; ``start`` rows precede it."""
        X, y, w = piece_of(block)
        priority = row_priorities(seed, start + block.start, len(w))
        rows = RowSample(X, y, w, priority).take(np.flatnonzero(w > 0))
        return rows.lowest(cached_rows(X.shape[1]))

    def __len__(self) -> int:
        return len(self.w)

    def __add__(self, other: "RowSample") -> "RowSample":
        """Return the sample of the rows of both."""
        limit = cached_rows(self.X.shape[1])
        if len(self) >= limit:
            other = other.take(np.flatnonzero(other.priority < self.priority.max()))
            if not len(other):
                return self
        priority = np.concatenate([self.priority, other.priority])
        return RowSample(*join([self, other]), priority).lowest(limit)

    @property
    def order(self) -> Array:
        """Numbers of the rows in random order: by increasing priority, shape (m,)."""
        return np.argsort(self.priority, kind="stable")

    def lowest(self, m: int) -> "RowSample":
        """Return the m rows of lowest priority, in their original order."""
        return self if len(self) <= m else self.take(_lowest(self.priority, m))

    def take(self, rows: Array) -> "RowSample":
        """Return the rows with these numbers."""
        return RowSample(self.X[rows], self.y[rows], self.w[rows], self.priority[rows])


def gather(blocks: Any, seed: int, start: int = 0) -> RowSample:
    """Return all rows of positive weight, X in float64 or CSR; ``start`` rows precede them."""
    source = blocks.source
    if source.is_checked and not (blocks.changes or blocks.callbacks):  # arrays in memory
        X, y, w = piece_of(next(source.pieces(source.n_rows)))
        if not np.any(w > 0):
            blocks.check_pass(len(w), weighty=False)  # refuses them
    else:
        X, y, w = join([piece_of(block) for block in blocks])
    i = np.flatnonzero(w > 0)  # indexing copies, as the caller may change the arrays
    return RowSample(numpy_rows(X[i]), y[i], w[i], row_priorities(seed, start, len(w))[i])


def _lowest(priority: Float[Array, " n"], m: int) -> Array:
    """Return the row numbers of the m lowest priorities, ascending."""
    if len(priority) <= m:
        return np.arange(len(priority))
    return np.sort(np.argpartition(priority, m - 1)[:m])
