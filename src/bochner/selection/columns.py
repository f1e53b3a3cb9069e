"""Means and deviations of columns, of dense and sparse rows alike; lengthscales as written."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from bochner._core.arrays import is_sparse
from bochner._core.shapes import Array, Float

#: Significant digits of a lengthscale that was found: far above rounding, and as many as it merits.
DIGITS = 4

#: Cells that are looked at together.
CELLS = 1 << 20


def significant(x: float) -> float:
    """Return a number at as many digits as a lengthscale merits, the same on every processor."""
    return float(f"{x:.{DIGITS}g}")


def rounded(scale: float | tuple[float, ...]) -> float | tuple[float, ...]:
    """Return one lengthscale or many at so many digits."""
    return tuple(map(significant, scale)) if isinstance(scale, tuple) else significant(scale)


def column_means(X: Array, w: Float[Array, " n"]) -> Float[Array, " d"]:
    """Return weighted means; sparse rows stay sparse."""
    return np.asarray(X.T @ w).reshape(-1) / w.sum()


def column_spread(X: Array, w: Float[Array, " n"]) -> tuple[Float[Array, " d"], Float[Array, " d"]]:
    """Return the largest magnitude of each column, and its weighted deviation as a share of that.

    σ² = Σ w (x − μ)²/W in two passes. Cells that a sparse matrix does not hold are zeros, and add
    μ² times their weight: nothing is made dense, nothing cancels. O(nnz).
    """
    if is_sparse(X):
        return _sparse_spread(X, w)
    parts = [_dense_spread(X[:, columns], w) for columns in _slices(*X.shape)]
    sizes, shares = zip(*parts, strict=True)
    return np.concatenate(sizes), np.concatenate(shares)


def _slices(n: int, d: int) -> Iterator[slice]:
    step = max(1, CELLS // max(n, 1))
    return (slice(start, start + step) for start in range(0, d, step))


def _dense_spread(X: Array, w: Array) -> tuple[Array, Array]:
    size = np.maximum(np.abs(X).max(axis=0), 1e-300).astype(np.float64)
    scaled = X / size
    return size, np.sqrt(w @ (scaled - w @ scaled / w.sum()) ** 2 / w.sum())


def _sparse_spread(X: Any, w: Float[Array, " n"]) -> tuple[Array, Array]:
    X = X.tocsr()
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    size = np.maximum(abs(X).max(axis=0).toarray().reshape(-1), 1e-300).astype(np.float64)
    column, weight = X.indices, np.repeat(w, np.diff(X.indptr))
    scaled = X.data / size[column]
    mean = _sums(column, weight * scaled, size) / w.sum()
    square = _sums(column, weight * (scaled - mean[column]) ** 2, size)
    held = np.bincount(column, minlength=X.shape[1])
    absent = np.where(held < len(w), w.sum() - _sums(column, weight, size), 0.0)
    return size, np.sqrt((square + absent * mean**2) / w.sum())


def _sums(column: Array, values: Array, like: Array) -> Float[Array, " d"]:
    return np.bincount(column, weights=values, minlength=len(like))
