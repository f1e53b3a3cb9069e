"""The pencil (K̂ + λI, K + λI) on some rows: its extreme eigenvalues, densely or by Lanczos."""

from typing import NamedTuple, Self

import numpy as np
from scipy.linalg import eigh_tridiagonal, solve_triangular
from scipy.linalg.blas import dgemv, dsymv

from bochner._ground.lapack import eigh
from bochner._ground.shapes import Array, Float
from bochner.solvers.stepwise import eigenvalues, lower_factor, solve_lower, symmetric

__all__ = ["EPS", "Pencil", "Side", "excess_count", "sides"]

EPS = float(np.finfo(np.float64).eps)

#: Up to so many rows LAPACK's dense eigensolver is faster than Lanczos.
_DENSE = 512

#: Lanczos steps at most; 40 to 150 are usual.
_STEPS = 300


class Pencil(NamedTuple):
    """K and E = K̂ − K of m rows, λ, and the size below which a whitened error is rounding."""

    K: Float[Array, "m m"]
    E: Float[Array, "m m"]
    penalty: float
    noise: float

    def part(self, start: int, stop: int) -> Self:
        """Return the pencil of some of the rows, its penalty scaled to their number."""
        rows = slice(start, stop)
        scaled = self.penalty * (stop - start) / len(self.K)
        return self._replace(K=self.K[rows, rows], E=self.E[rows, rows], penalty=scaled)


class Side(NamedTuple):
    """One side of the distance, on the scale of the interval.

    ``score`` is log ε₊ or log ε₋/(1 − ε₋): scales on which spread is even and no value is
    impossible. ``slope`` is −d score / d log λ with the eigenvector held.
    """

    score: float
    slope: float


def sides(pencil: Pencil) -> tuple[Side, Side]:
    """Return the sides below and above; a side within the noise has the noise's score.

    Up to 512 rows densely; else Cholesky and Lanczos in O(m³/3 + 600 m²), to 1e-5 of the larger.
    """
    L, ends, vectors = (_dense if len(pencil.K) <= _DENSE else _krylov)(pencil)
    down, up = (_slope(L, v, pencil.penalty) for v in vectors.T)
    below, above = min(-float(ends[0]), 1 - EPS), float(ends[1])
    nothing = Side(float(np.log(pencil.noise)), 0.0)
    return (
        Side(float(np.log(below / (1 - below))), down / (1 - below))
        if below > pencil.noise
        else nothing,
        Side(float(np.log(above)), up) if above > pencil.noise else nothing,
    )


def excess_count(pencil: Pencil, level: float) -> int:
    """Return how many whitened eigenvalues of −E exceed ``level``.

    So many directions of the sample must be added to a map with K̂ ⪯ K before ε is ``level``.
    """
    _, A = _whitened(pencil)
    return int(np.sum(eigenvalues(A) < -level))


def _factor(pencil: Pencil) -> Float[Array, "m m"]:
    """L with L Lᵀ = K + λI."""
    shifted = pencil.K.T.copy(order="F")
    shifted.T.flat[:: len(shifted) + 1] += pencil.penalty
    return lower_factor(shifted)


def _whitened(pencil: Pencil) -> tuple[Float[Array, "m m"], Float[Array, "m m"]]:
    """L and L⁻¹ E L⁻ᵀ."""
    L = _factor(pencil)
    half = solve_lower(L, pencil.E)
    return L, symmetric(solve_lower(L, half.T))


def _dense(pencil: Pencil) -> tuple[Array, Array, Array]:
    """L, the two extreme eigenvalues of L⁻¹ E L⁻ᵀ and their vectors."""
    L, A = _whitened(pencil)
    values, vectors = eigh(A, check_finite=False)
    return L, values[[0, -1]], vectors[:, [0, -1]]


def _krylov(pencil: Pencil) -> tuple[Array, Array, Array]:
    """As ``_dense`` by Lanczos with full reorthogonalisation, from a fixed start.

    Stops when both residuals, which bound the errors, are below 1e-5 of the larger end. SciPy's
    ``eigsh`` asks for accuracy relative to each end: out of reach where one end is zero (Nyström).
    """
    L, m = _factor(pencil), len(pencil.K)
    Q = np.zeros((_STEPS + 1, m))
    start = np.cos(np.arange(m) ** 2.0)  # without pattern: the same rows give the same bits
    Q[0] = start / np.linalg.norm(start)
    diagonal, off = np.zeros(_STEPS), np.zeros(_STEPS)
    for k in range(_STEPS):
        w = _product(L, pencil.E, Q[k])
        diagonal[k] = Q[k] @ w
        w = _orthogonal(w, Q[: k + 1])
        off[k] = np.linalg.norm(w)
        last = k == _STEPS - 1 or off[k] <= 1e-14 * np.abs(diagonal[: k + 1]).max()
        if last or k % 8 == 7:
            values, vectors = eigh_tridiagonal(diagonal[: k + 1], off[:k])
            residual = off[k] * np.abs(vectors[-1, [0, -1]]).max()
            if last or residual <= 1e-5 * np.abs(values).max():
                break
        Q[k + 1] = w / off[k]
    return L, values[[0, -1]], Q[: k + 1].T @ vectors[:, [0, -1]]


def _product(
    L: Float[Array, "m m"], E: Float[Array, "m m"], v: Float[Array, " m"]
) -> Float[Array, " m"]:
    u = solve_triangular(L, v, lower=True, trans="T", check_finite=False)
    # SciPy's BLAS throughout: alternating with NumPy's, threads wait for one another at full speed.
    return solve_triangular(L, dsymv(1.0, E.T, u), lower=True, check_finite=False)


def _orthogonal(w: Float[Array, " m"], Q: Float[Array, "k m"]) -> Float[Array, " m"]:
    for _ in range(2):  # twice is enough (Kahan and Parlett)
        w = dgemv(-1.0, Q.T, dgemv(1.0, Q.T, w, trans=1), 1.0, w)
    return w


def _slope(L: Float[Array, "m m"], u: Float[Array, " m"], penalty: float) -> float:
    """λ vᵀv / vᵀ(K + λI)v of v = L⁻ᵀu, |u| = 1."""
    v = solve_triangular(L, u, lower=True, trans="T", check_finite=False)
    return float(penalty * (v @ v))
