"""Rows chosen at random in one pass, the same rows for any block size."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from bochner._ground.pieces import Piece, join, part
from bochner._ground.random import stream

__all__ = ["Sample", "chosen_rows", "row_priorities", "sample_stream"]

_CHUNK = 1 << 20


class Sample(NamedTuple):
    """Rows chosen at random: X (m, d), y, w as in a block, and their row numbers, ascending."""

    X: Any
    y: Any
    w: Any
    index: np.ndarray  # type: ignore[assignment]


def row_priorities(seed: int, start: int, count: int) -> np.ndarray:
    """Return the random priorities, uniform on [0, 1), of rows ``start`` to ``start + count - 1``.

    The priority of row i depends on the seed and i alone (the generator is moved forward to
    number ``start`` without drawing those before), so the m rows of lowest priority are a
    uniformly random subset that no block size, order of reading or number of workers changes.
    """
    generator = stream(seed, "sample")
    generator.bit_generator.advance(start)  # type: ignore[attr-defined]
    return generator.random(count)


def chosen_rows(seed: int, n: int, m: int) -> np.ndarray:
    """Return the ``m`` rows of lowest priority among ``n``, ascending; all of them if m >= n."""
    index, priority = np.empty(0, np.intp), np.empty(0)
    for start in range(0, n, _CHUNK):
        count = min(_CHUNK, n - start)
        index = np.concatenate([index, np.arange(start, start + count)])
        priority = np.concatenate([priority, row_priorities(seed, start, count)])
        keep = _lowest(priority, index, m)
        index, priority = index[keep], priority[keep]
    return np.sort(index)


def sample_stream(blocks: Iterable[Any], m: int, seed: int) -> Sample:
    """Return the ``m`` rows of lowest priority of blocks (X, y, w, start), read once.

    At most 2m rows and one block are held.
    """
    kept, index, priority = [], np.empty(0, np.intp), np.empty(0)
    limit = np.inf
    for X, y, w, start in blocks:
        own = row_priorities(seed, start, X.shape[0])
        rows = np.flatnonzero(own <= limit)
        kept.append(part(Piece(X, y, w), rows))
        index, priority = np.append(index, start + rows), np.append(priority, own[rows])
        if len(index) > 2 * m:
            keep = _lowest(priority, index, m)
            kept, index, priority = [part(join(kept), keep)], index[keep], priority[keep]
            limit = priority.max()
    keep = _lowest(priority, index, m)
    keep = keep[np.argsort(index[keep])]
    return Sample(*part(join(kept), keep), index[keep])


def _lowest(priority: np.ndarray, index: np.ndarray, m: int) -> np.ndarray:
    """Positions of the m lowest priorities; of equal ones the earlier row comes first."""
    return np.lexsort((index, priority))[:m]
