"""Decompositions of large symmetric matrices in steps of a second: Ctrl-C comes between them.

A call of LAPACK ends when it ends, and Python hears of Ctrl-C no sooner: after minutes for 20,000
rows. These give the same numbers, to rounding, in the same time, panel by panel.
"""

from collections.abc import Iterator

import numpy as np
from scipy.linalg import eigvalsh_tridiagonal, solve_triangular
from scipy.linalg.blas import dgemv, dsymv, dsyr2k
from scipy.linalg.lapack import dsytrd

from bochner._core.blas import cholesky, eigvalsh
from bochner._core.shapes import Array, Float

#: Matrices of so many rows are decomposed at once: that takes one to two seconds.
AT_ONCE = 2048

#: So many rows of a larger matrix become tridiagonal in one last step.
LAST = 512

#: Columns that become tridiagonal in one step, columns that are factored, and rows of a slab.
PANEL, COLUMNS, SLAB = 48, 128, 1024


def slabs(n: int) -> Iterator[slice]:
    """Give the rows to be worked on in one step: all, while they are few."""
    return _slices(n, n if n <= AT_ONCE else SLAB)


def _slices(n: int, step: int) -> Iterator[slice]:
    return (slice(start, min(start + step, n)) for start in range(0, n, step))


def symmetric(A: Float[Array, "m m"]) -> Float[Array, "m m"]:
    """Return (A + Aᵀ)/2."""
    half = np.empty_like(A)
    for rows in slabs(len(A)):
        half[rows] = (A[rows] + A[:, rows].T) / 2
    return half


def eigenvalues(A: Float[Array, "m m"]) -> Float[Array, " m"]:
    """Return the eigenvalues of a symmetric matrix, rising."""
    if len(A) <= AT_ONCE:
        return eigvalsh(A, check_finite=False)
    unit = float(max(A.max(), -A.min())) or 1.0  # squares of huge and tiny numbers are no numbers
    diagonal, off = _tridiagonal(A / unit)
    values = eigvalsh_tridiagonal(diagonal, off, check_finite=False, lapack_driver="sterf")
    return unit * values


def _tridiagonal(A: Float[Array, "m m"]) -> tuple[Float[Array, " m"], Float[Array, " k"]]:
    """Return the diagonals of QᵀAQ by Householder reflections, in panels.

    Dongarra, Sorensen and Hammarling (1989): within a panel the matrix stays as it is, and the
    reflections so far are A − V Wᵀ − W Vᵀ; after it the rest is updated at once.
    """
    rest, first, found = np.array(A, order="F"), 0, []
    while (left := len(rest) - first) > LAST:
        if 8 * first > len(rest):  # what is done is carried along for a while, and then dropped
            rest, first = np.array(rest[first:, first:], order="F"), 0
        count = min(PANEL, left - 2)
        diagonal, off, rest = _panel(rest, first, count)
        found.append((diagonal, off))
        first += count
    _, diagonal, off, _, _ = dsytrd(rest[first:, first:], lower=1)
    diagonals, offs = zip(*found, (diagonal, off), strict=True)
    return np.concatenate(diagonals), np.concatenate(offs)


def _panel(
    A: Float[Array, "s s"], first: int, count: int
) -> tuple[Float[Array, " k"], Float[Array, " k"], Float[Array, "s s"]]:
    """Return the diagonals of so many columns, and the matrix after them, its lower half."""
    V, W = (np.zeros((len(A), count), order="F") for _ in range(2))
    diagonal, off = np.empty(count), np.empty(count)
    for k, j in enumerate(range(first, first + count)):
        # One BLAS throughout: alternating, threads wait for one another at full speed.
        column = dgemv(-1.0, W, V[j], 1.0, dgemv(-1.0, V, W[j], 1.0, A[:, j]))[j:]
        diagonal[k] = column[0]
        v = np.zeros(len(A))
        v[j + 1 :], factor, off[k] = _reflection(column[1:])
        w = dsymv(1.0, A, v, lower=1)
        w = dgemv(-1.0, V, dgemv(1.0, W, v, trans=1), 1.0, w)
        w = dgemv(-1.0, W, dgemv(1.0, V, v, trans=1), 1.0, w)
        w[: j + 1] = 0.0
        V[:, k], W[:, k] = v, factor * (w - 0.5 * factor * (w @ v) * v)
    return diagonal, off, dsyr2k(-1.0, V, W, beta=1.0, c=A, lower=1, overwrite_c=1)


def _reflection(x: Float[Array, " s"]) -> tuple[Float[Array, " s"], float, float]:
    """Return v, τ and β with (I − τ v vᵀ) x = β e₁ and v₁ = 1."""
    length = float(np.linalg.norm(x))
    if length == abs(x[0]):  # the others are zero
        return np.eye(1, len(x))[0], 0.0, float(x[0])
    beta = -np.copysign(length, x[0])
    v = x / (x[0] - beta)
    v[0] = 1.0
    return v, float((beta - x[0]) / beta), float(beta)


def lower_factor(A: Float[Array, "m m"]) -> Float[Array, "m m"]:
    """Return lower triangular L with L Lᵀ = A; A is overwritten."""
    if len(A) <= AT_ONCE:
        return cholesky(A, lower=True, overwrite_a=True, check_finite=False)
    L = np.asfortranarray(A)
    for c in _slices(len(L), COLUMNS):
        L[c.start :, c] -= L[c.start :, : c.start] @ L[c, : c.start].T
        L[c, c] = cholesky(L[c, c], lower=True, check_finite=False)
        L[c.stop :, c] = solve_triangular(L[c, c], L[c.stop :, c].T, lower=True).T
        L[: c.start, c] = 0.0
    return L


def solve_lower(L: Float[Array, "m m"], B: Float[Array, "m k"]) -> Float[Array, "m k"]:
    """Return L⁻¹ B."""
    if len(L) <= AT_ONCE:
        return solve_triangular(L, B, lower=True, check_finite=False)
    X = np.empty(B.shape, order="F")
    for c in _slices(B.shape[1], COLUMNS):
        X[:, c] = solve_triangular(L, B[:, c], lower=True, check_finite=False)
    return X
