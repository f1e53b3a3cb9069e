"""Products with the Gram matrix of features, which is never formed: one pass over the rows each.

With rows z_i of Z, weights w_i and means z̄ and ȳ, a pass makes G V, G = Σ w (z − z̄)(z − z̄)ᵀ, for
several vectors V at once: features are made block by block, used twice, and forgotten. D numbers a
vector are all that travels.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from bochner._core.arrays import array_namespace, is_sparse, moved, to_numpy
from bochner._core.random import stream
from bochner._core.shapes import Array, Float
from bochner.data.sources import Block
from bochner.sums.moments import Precision
from bochner.sums.passes import SumOf

ONE_BY_ONE = 12  # Up to this many vectors are multiplied one by one, for which BLAS is faster


def row_signs(seed: int, start: int, count: int, n_signs: int) -> Float[Array, "b s"]:
    """Return random signs of rows ``start`` to ``start + count − 1``, for any blocks.

    Each is a bit of one random number a row, so there are 64 at most.
    """
    generator = stream(seed, "row signs").bit_generator
    generator.advance(start)  # type: ignore[attr-defined]
    bits = generator.random_raw(count)[:, None] >> np.arange(n_signs, dtype=np.uint64)
    return 2.0 * (bits & np.uint64(1)).astype(np.float64) - 1.0


def weights_of(block: Block) -> Float[Array, " b"]:
    """Return the weights of a block's rows, one of each where it has none."""
    if block.w is None:
        return np.ones(block.X.shape[0])
    return to_numpy(block.w).astype(np.float64)


def _pieces(
    features: Callable[[Array], Array], X: Array, n_features: int
) -> Iterator[tuple[slice, Array]]:
    """Yield the features of a few rows at a time, with their slice."""
    size = max(16, (1 << 20) // n_features)  # they stay in the processor's cache
    for start in range(0, X.shape[0], size):
        rows = slice(start, min(start + size, X.shape[0]))
        Z = features(X[rows, :])
        yield rows, Z.toarray() if is_sparse(Z) else Z


def first_sums(
    features: Callable[[Array], Array],
    n_features: int,
    origin: Float[Array, " t"],
    seed: int,
    n_signs: int,
    block: Block,
) -> tuple[int, Any, Float[Array, " t"], Float[Array, " c"]]:
    """Return the rows of positive weight of a block, Σ r zᵀ, Σ w (y − y₀)² and Σ r.

    r = [w, w (y − y₀), √w ε], with the origin y₀ near the targets' means and random signs ε.
    """
    w = weights_of(block)
    y = to_numpy(block.y).astype(np.float64).reshape(len(w), -1) - origin
    signs = row_signs(seed, block.start, len(w), n_signs)
    right = np.column_stack([w, w[:, None] * y, np.sqrt(w)[:, None] * signs])
    pieces = _pieces(features, block.X, n_features)
    sums = sum(_transposed(Z, right[rows]) for rows, Z in pieces)
    return int(np.count_nonzero(w > 0)), sums, w @ y**2, right.sum(axis=0)


def gram_products(
    pass_of: Callable[[SumOf], Any],
    features: Callable[[Array], Array],
    V: Float[Array, "D c"],
    mean: Float[Array, " D"],
    precision: Precision,
) -> Float[Array, "D c"]:
    """Return G V of all rows, by a pass.

    ``mean`` is z̄, zero where there is no intercept. Products of a few rows have this precision;
    their sum is float64.
    """
    scale = np.abs(V).max(axis=0, initial=0.0)
    scale = np.where(scale > 0, scale, 1.0)  # float32 holds numbers near one
    scaled = np.asfortranarray(V / scale, dtype=precision)
    through_mean = mean @ (V / scale)
    sums, through = pass_of(SumOf(partial(_products, features, scaled, through_mean)))
    return (sums.T - np.outer(mean, through)) * scale


def _products(
    features: Callable[[Array], Array], V: Array, through_mean: Array, block: Block
) -> tuple[Any, Any]:
    """Return Σ u zᵀ and Σ u of a block, u = w (z − z̄)ᵀV, in the precision of V."""
    w = weights_of(block)[:, None]
    sums: Any = 0.0
    through: Any = 0.0
    for rows, made in _pieces(features, block.X, len(V)):
        xp = array_namespace(made)
        Z = xp.astype(made, getattr(xp, V.dtype.name), copy=False)
        if isinstance(Z, np.ndarray) and V.shape[1] <= ONE_BY_ONE:
            u = np.stack([Z @ v for v in V.T], axis=1)
        else:
            u = to_numpy(xp.matmul(Z, moved(np.ascontiguousarray(V), like=Z)))
        u = w[rows] * (u.astype(np.float64) - through_mean)
        sums, through = sums + _transposed(Z, u), through + u.sum(axis=0)
    return sums, through


def _transposed(Z: Array, right: Float[np.ndarray, "b c"]) -> Float[np.ndarray, "c D"]:
    """Return rightᵀ Z, multiplied in the precision of Z where Z is, in NumPy's float64."""
    xp = array_namespace(Z)
    scale = np.abs(right).max(axis=0, initial=0.0)
    scale[scale == 0] = 1.0
    u = xp.astype(moved(np.ascontiguousarray((right / scale).T), like=Z), Z.dtype, copy=False)
    if isinstance(Z, np.ndarray) and len(u) <= ONE_BY_ONE:
        return np.stack([v @ Z for v in u]).astype(np.float64) * scale[:, None]
    return to_numpy(xp.matmul(u, Z)).astype(np.float64) * scale[:, None]
