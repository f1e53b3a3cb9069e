"""Distances between rows, in pieces of bounded memory, by array functions alone.

These functions serve torch, CuPy and sparse matrices. NumPy arrays use the compiled loops of
``bochner._core.native`` for kernels that have one.

Squared distances by |x|² + |y|² − 2⟨x, y⟩ lose half the digits for near pairs: exp(−|x − y|) of
equal rows then has an error of 1.4e-3 in float32, and of 8.5e-2 if the data have mean 100.
Therefore the caller centres the data (`centred`), and near pairs are computed again from their
differences. Equal rows then have distance zero exactly, and the relative error of every squared
distance is of the order eps / CLOSENESS.
"""

import operator
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from bochner._core.arrays import array_namespace, dense, device, is_sparse, squared_norms
from bochner._core.shapes import Array, Others, Pairs, Rows

BLOCK_BYTES, CACHED_BYTES = 8 * 2**20, 2**20
"""Bytes of a block of a kernel matrix; the smaller, for NumPy, keeps temporaries in the cache."""

CLOSENESS = 2.0**-8
"""Pairs with |x − y|² below CLOSENESS (|x|² + |y|²) are computed from their differences."""

Block = Callable[[Array, Array], Array]


def map_blocks(block: Block, X: Rows, Y: Others, dtype: Any = None) -> Array:
    """Return the (n, m) matrix whose rows a:b are ``block(X[a:b], Y)``, blocks of bounded size."""
    n, m = X.shape[0], Y.shape[0]
    step = max(1, (CACHED_BYTES if isinstance(X, np.ndarray) else BLOCK_BYTES) // (8 * max(m, 1)))
    with np.errstate(over="ignore", invalid="ignore"):
        if n <= step:
            return block(X, Y)
        K = array_namespace(X, Y).empty((n, m), dtype=dtype or X.dtype, device=device(X))
        for start in range(0, n, step):
            K[start : start + step, :] = block(X[start : start + step, :], Y)
    return K


def overflow(X: Rows, Y: Others) -> bool:
    """Whether squared distances of two NumPy arrays may overflow their dtype."""
    largest = max(np.abs(X).max(initial=0.0), np.abs(Y).max(initial=0.0))
    return float(largest) > float(np.sqrt(np.finfo(X.dtype).max / (64.0 * X.shape[1])))


def centred(X: Rows, Y: Others) -> tuple[Array, Array]:
    """Return X and Y minus the mean row of Y; sparse matrices are returned unchanged."""
    if is_sparse(X) or is_sparse(Y) or Y.shape[0] == 0:
        return X, Y
    xp = array_namespace(X, Y)
    mean = xp.sum(Y, axis=0, dtype=xp.float64) / Y.shape[0]
    mean = xp.astype(xp.where(xp.isfinite(mean), mean, xp.zeros_like(mean)), Y.dtype)
    shifted = Y - mean
    return (shifted if Y is X else X - mean), shifted


def inner(X: Rows, Y: Others) -> Pairs:
    """Return the inner products ⟨x, y⟩, dense, of dense or sparse rows."""
    return dense(X @ Y.T)


def squared_distances(X: Rows, Y: Others) -> Pairs:
    """Return |x − y|² of all pairs of rows; exactly zero for equal rows."""
    xp = array_namespace(X, Y)
    # With few columns, differences of coordinates take less time than a matrix product and a second
    # computation of near pairs. The limit is higher in float32, as differences are more accurate.
    small = X.shape[1] <= (2 if X.dtype == xp.float64 else 8) and not (is_sparse(X) or is_sparse(Y))
    # The array standard lets a library omit nonzero(), which near pairs need.
    if small or not xp.__array_namespace_info__().capabilities()["data-dependent shapes"]:
        return coordinatewise(X, Y, lambda difference: difference * difference)
    X, Y = (np.ascontiguousarray(A) if isinstance(A, np.ndarray) else A for A in (X, Y))
    distances, size = inner(X, Y), squared_norms(X)[:, None] + squared_norms(Y)[None, :]
    distances *= -2.0  # in place: a third less time
    distances += size
    size *= CLOSENESS
    # ~(a > b) also selects NaN, which is infinity minus infinity.
    rows, columns = xp.nonzero(~(distances > size))
    # Near pairs in batches of BLOCK_BYTES; a sparse row counts with the mean number of nonzeros.
    widths = (1 + A.nnz // max(1, A.shape[0]) if is_sparse(A) else A.shape[1] for A in (X, Y))
    step, is_mixed = max(1, BLOCK_BYTES // (8 * max(widths))), is_sparse(X) != is_sparse(Y)
    for start in range(0, rows.shape[0], step):
        i, j = rows[start : start + step], columns[start : start + step]
        U, V = X[i, :], Y[j, :]
        distances[i, j] = squared_norms(dense(U) - dense(V) if is_mixed else U - V)
    return distances


def coordinatewise(X: Rows, Y: Others, term: Callable[[Array], Array]) -> Pairs:
    """Return Σ_j term(x_j − y_j) of all pairs of rows, shape (n, m)."""
    return combine_over_columns(lambda x, y: term(x - y), operator.iadd, X, Y)


def combine_over_columns(
    term: Callable[[Array, Array], Array], join: Callable[[Array, Array], Array], X: Array, Y: Array
) -> Pairs:
    """Return ``term(x_j, y_j)`` of all pairs of rows, combined over the columns j by ``join``."""
    return reduce(join, (term(X[:, j][:, None], Y[:, j][None, :]) for j in range(X.shape[1])))
