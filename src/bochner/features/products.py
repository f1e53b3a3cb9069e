"""Products of one-dimensional functions: the best D of them, and their values without waste.

A feature is Π_j f_{j,k_j}(x_j). Eigenvalues of a product of kernels multiply, so that the D best
products are those of the largest sums of logarithms. Their values are found by halves: all
products that occur over the first columns, all over the others, and one multiplication for each
pair of them that is asked for.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bochner._core.arrays import (
    array_namespace,
    is_numpy,
    is_sparse,
    moved,
    taken,
)
from bochner._core.shapes import Array, Float
from bochner.features.map import FeatureMap

#: Numbers that are worked on at a time: they stay in a core's own cache.
CACHED = 1 << 18

#: A row of scratch is longer by this, or its columns would all fall on the same lines of cache.
PADDING = 16


def best_products(
    logs: Sequence[Float[Array, " m_j"]], width: int
) -> tuple[Array, Float[Array, " D"]]:
    """Return the multi-indices k of the largest Σ_j logs[j][k_j], and the sums, from the largest.

    Parameters
    ----------
    logs : one (m_j,) array a column
        Logarithms of eigenvalues, none above the one before it.
    width : int
        D; fewer are returned where there are fewer.

    Notes
    -----
    One column after another: the best ``width`` products of some columns contain all that the best
    of more columns extend. The first D' of D are the D' best, ties included. O(d D log² D).
    """
    chosen, sums = np.zeros((1, len(logs)), dtype=np.int32), np.zeros(1)
    for j, column in enumerate(logs):
        if len(sums) == width and (len(column) == 1 or column[1] - column[0] < sums[-1] - sums[0]):
            sums = sums + column[0]  # nothing above the first function of this column is among them
            continue
        i, k = _candidates(len(sums), min(len(column), width), width)
        total = sums[i] + column[k]
        best = np.argsort(-total, kind="stable")[:width]
        chosen, sums = chosen[i[best]], total[best]
        chosen[:, j] = k[best]
    return chosen, sums


def _candidates(n: int, m: int, width: int) -> tuple[Array, Array]:
    """Return pairs of ranks (i, k); (i + 1)(k + 1) pairs are no worse, so more are of no use."""
    counts = np.minimum(n, width // np.arange(1, m + 1))
    k = np.repeat(np.arange(m), counts)
    i = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return i, k


@dataclass(frozen=True, eq=False)
class Pairs:
    """Products of a row of ``left`` and one of ``right``: rows ``i`` of one, ``j`` of the other.

    A side is again of pairs, or an array of row numbers of the table of 1-D functions.
    """

    left: "Pairs | Array"
    right: "Pairs | Array"
    i: Array
    j: Array


def factored(rows: Array) -> "Pairs | Array":
    """Return how to multiply rows[:, 0], rows[:, 1], … of a table, by halves."""
    if rows.shape[1] == 1:
        return rows[:, 0]
    half = (rows.shape[1] + 1) // 2
    left, i = _shared(rows[:, :half])
    right, j = _shared(rows[:, half:])
    return Pairs(left, right, i, j)


def _shared(rows: Array) -> tuple["Pairs | Array", Array]:
    """Return the different ones among the products, factored, and which of them each is."""
    different, which = np.unique(rows, axis=0, return_inverse=True)
    return factored(different), which.reshape(-1)


def multiplied(how: "Pairs | Array", table: Float[Array, "m n"]) -> Float[Array, "D n"]:
    """Return the products of rows of the table."""
    if not isinstance(how, Pairs):
        return taken(table, how, axis=0)
    left, right = multiplied(how.left, table), multiplied(how.right, table)
    return taken(left, how.i, axis=0) * taken(right, how.j, axis=0)


def products_of_rows(
    how: "Pairs | Array", width: int, table: Callable[[Array], Array], X: Float[Array, "n d"]
) -> Float[Array, "n D"]:
    """Return the products for each row of X, in the precision of X.

    Parameters
    ----------
    how : Pairs or array
        Of :func:`factored`.
    width : int
        D.
    table : function
        Values of all 1-D functions, (m, n) in float64, at rows of X.
    X : (n, d)
        NumPy arrays and sparse matrices go block by block through a transposed scratch: products
        of long rows, then one copy, are three times faster than products of columns.
    """
    if not (is_numpy(X) or is_sparse(X)):
        xp = array_namespace(X)
        Z = multiplied(how, xp.astype(table(X), X.dtype))
        return xp.permute_dims(Z, (1, 0))
    Z = np.empty((X.shape[0], width), dtype=X.dtype)
    step = max(1, min(max(64, CACHED // width), 512, len(Z)))
    room = np.empty((3, width * (step + PADDING)), dtype=X.dtype)
    for start in range(0, len(Z), 4 * step):
        values = table(X[start : start + 4 * step]).astype(X.dtype, copy=False)
        for first in range(0, values.shape[1], step):
            here = values[:, first : first + step]
            rows = Z[start + first : start + first + here.shape[1]]
            rows[...] = _in_room(room, how, here, width).T
    return Z


def _in_room(
    room: Float[Array, "3 s"], how: "Pairs | Array", table: Float[Array, "m n"], width: int
) -> Float[Array, "D n"]:
    """Return the products in the last third of ``room``: fresh memory would cost more than they."""
    n = table.shape[1]
    out = room[2].reshape(width, -1)[:, :n]
    if not isinstance(how, Pairs):
        out[...] = table[how]
        return out
    left, right = (part[: width * n].reshape(width, n) for part in room[:2])
    np.take(multiplied(how.left, table), how.i, axis=0, out=left, mode="clip")
    np.take(multiplied(how.right, table), how.j, axis=0, out=right, mode="clip")
    return np.multiply(left, right, out=out)


def in_double(X: Array) -> tuple[Any, Array]:
    """Return the functions of X's library, and X in float64."""
    xp = array_namespace(X)
    return xp, xp.astype(X, xp.float64, copy=False)


def as_column(values: Float[Array, " J"], like: Array) -> Float[Array, "J 1"]:
    """Return numbers as a column in the library, precision and place of ``like``."""
    return moved(np.ascontiguousarray(values)[:, None], like=like)


def left_over(phi: FeatureMap, X: Float[Array, "n d"]) -> Float[Array, " n"]:
    """Return e(x) = k(x, x) − |φ(x)|² of a map below its kernel, in float64, never below zero."""
    X = X if is_sparse(X) else in_double(X)[1]
    Z = phi(X)
    xp = array_namespace(Z)
    e = phi.kernel.diag(X) - xp.sum(Z * Z, axis=1)
    return xp.maximum(e, xp.zeros_like(e))
