"""Folds by row number: the same whatever the blocks, and as equal in size as five can be."""

from collections.abc import Iterable, Iterator
from typing import Any

from bochner._core.arrays import to_numpy
from bochner._core.random import stream
from bochner._core.shapes import Array
from bochner.data.blocks import Blocks
from bochner.data.sample import Keeper
from bochner.features import FeatureMap
from bochner.models import _engine
from bochner.sums.moments import Accumulator, Moments, Precision

#: K. Memory is K D² numbers.
N_FOLDS = 5

#: Moments of each fold; None while it has no rows.
Folds = tuple[Moments | None, ...]


def fold_numbers(seed: int, start: int, count: int) -> Array:
    """Return the folds, 0 to 4, of rows ``start`` to ``start + count − 1``.

    Of each five consecutive rows one goes to each fold, in an order that is random.
    """
    first = start - start % N_FOLDS
    groups = -(-(start + count - first) // N_FOLDS)
    generator = stream(seed, "folds")
    generator.bit_generator.advance(first)  # type: ignore[attr-defined]
    order = generator.random((groups, N_FOLDS)).argsort(axis=1)
    return order.ravel()[start - first : start - first + count]


def sweep_folds(
    phi: FeatureMap,
    blocks: Blocks,
    dtype: str,
    precision: Precision,
    seed: int,
    keeper: Keeper | None = None,
    start: int = 0,
) -> Folds:
    """Return the moments of each fold in one pass; row numbers count from ``start``."""
    sums = [Accumulator(precision) for _ in range(N_FOLDS)]
    for Z, y, w, folds in _features(phi, blocks, dtype, seed, keeper, start):
        for k, one in enumerate(sums):
            own = folds == k
            if own.any():
                one.add(Z[own], y[own], None if w is None else w[own])
    return tuple(one.moments() if one.rows else None for one in sums)


def _features(
    phi: FeatureMap, blocks: Blocks, dtype: str, seed: int, keeper: Keeper | None, start: int
) -> Iterator[tuple[Array, Array, Array | None, Array]]:
    for block in blocks.with_rows(_engine.block_rows(phi.n_features)):
        if keeper is not None:
            keeper.see(block)
        folds = fold_numbers(seed, start + block.start, block.X.shape[0])
        y, w = to_numpy(block.y), None if block.w is None else to_numpy(block.w)
        yield to_numpy(_engine.as_features(phi, block.X, dtype)), y, w, folds


def added(a: Folds, b: Folds) -> Folds:
    """Return the folds of the rows of both."""
    return tuple(_sum(pair) for pair in zip(a, b, strict=True))


def total_of(folds: Folds) -> Moments:
    """Return the moments of all rows."""
    total: Any = _sum(folds)
    return Accumulator().moments() if total is None else total  # which says that there are no rows


def _sum(moments: Iterable[Moments | None]) -> Moments | None:
    total: Moments | None = None
    for one in moments:
        if one is not None:
            total = one if total is None else total + one
    return total
