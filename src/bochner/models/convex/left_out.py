"""Rows as a regression by a convex loss predicts them without each, from the fit to all.

Removing a row changes the fit by a Newton step, whose gradient is known at the minimum: with
H the Hessian there, g_i = zᵢᵀ H⁻¹ zᵢ, s_i and c_i slope and curvature of its loss,

    f₋ᵢ(xᵢ) ≈ fᵢ + g_i s_i / (1 − g_i c_i)

(approximate leave-one-out: Rad and Maleki 2020), exact for squares. Where slopes jump, s are
multipliers and the rows at a jump stay there, as in the span of support vectors (Vapnik and
Chapelle 2000). Kernel, features and penalty stay: they were chosen with the row.
"""

from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, pinvh, solve_triangular

from bochner._core.arrays import is_sparse, to_numpy
from bochner._core.random import stream
from bochner._core.shapes import Array, Float
from bochner.data.blocks import Blocks
from bochner.data.sources import Piece, join, part
from bochner.models._rows import no_landmarks
from bochner.models.convex.units import ScaledRows
from bochner.models.error_law import LeftOutRows
from bochner.selection.chosen import Chosen
from bochner.solvers.convex.box import AT_BOUND
from bochner.solvers.convex.problem import TINY, Problem, State, hessian_factor
from bochner.solvers.convex.smoothing import at_rows

#: Rows that are left out, at most.
MOST = 2048

#: Of 1 − g c, below which rounding hides what is left.
HIDDEN = 1e-9


def left_out(problem: Problem, at: State, rows: ScaledRows, chosen: Chosen) -> LeftOutRows | None:
    """Return some rows with f without each, and y − f; None if features are not kept.

    It takes a Newton step, and O(D²) for each of the rows.
    """
    if not problem.rows.cached or problem.loss.joint:
        return None
    numbers = _some(problem.w[:, 0], chosen.seed)
    X = _taken(rows.blocks, numbers)
    slopes, curvatures, hessians = at_rows(problem, at)
    Z = np.column_stack([chosen.double(X), np.full(len(numbers), float(problem.fit_intercept))])
    f, errors = at.fitted[numbers], np.empty((len(numbers), len(hessians)))
    alphas = np.broadcast_to(problem.alpha, len(hessians))
    for k, (H, alpha) in enumerate(zip(hessians, alphas, strict=True)):
        g = _leverages(H, float(alpha), Z, problem.fit_intercept)
        moved = without(g, slopes[numbers, k], curvatures[numbers, k])
        errors[:, k] = problem.y[numbers, k] - f[:, k] - moved
    return _rows(X, problem.y[numbers], errors, problem.w[numbers, 0], rows, chosen)


def without(
    g: Float[Array, " m"], s: Float[Array, " m"], c: Float[Array, " m"]
) -> Float[Array, " m"]:
    """Return what is added to f of each row without it; infinite where rounding hides it."""
    rest = 1 - g * c
    return np.where(rest > HIDDEN, g * s / np.maximum(rest, HIDDEN), np.inf)


def _leverages(
    H: Float[Array, "p p"], alpha: float, Z: Float[Array, "m p"], free: bool
) -> Float[Array, " m"]:
    """Return z (H + alpha I)⁻¹ z of each row.

    Where no row has curvature nothing says where the intercept would go, and it stays.
    """
    diagonal = np.diag(H) + alpha
    diagonal[-1] = max(H[-1, -1], TINY)
    half = solve_triangular(hessian_factor(H, diagonal, free), Z.T, trans=1, check_finite=False)
    half = half if H[-1, -1] > 0 else half[:-1]
    return np.einsum("ij,ij->j", half, half)


def _some(w: Float[Array, " n"], seed: int) -> Array:
    """Return the numbers of rows of positive weight, of many some at random, in their order."""
    there = np.flatnonzero(w > 0)
    if len(there) <= MOST:
        return there
    return np.sort(stream(seed, "left out").permutation(there)[:MOST])


def _taken(blocks: Blocks, numbers: Array) -> Any:
    """Return these rows, which are in order."""
    pieces, start = [], 0
    for block in blocks:
        n = block.X.shape[0]
        here = numbers[(numbers >= start) & (numbers < start + n)] - start
        X = block.X if is_sparse(block.X) else to_numpy(block.X)
        pieces.append(part(Piece(X), here))
        start += n
    return join(pieces).X


def _rows(
    X: Any, y: Array, errors: Array, w: Array, rows: ScaledRows, chosen: Chosen
) -> LeftOutRows:
    """Return rows in units of one, but those that features are centred at."""
    errors = np.where(np.isfinite(errors), errors, np.inf)
    predicted = np.where(np.isfinite(errors), y - errors, y)
    scaled = predicted * rows.units, errors * rows.units, w
    found = LeftOutRows(X, *scaled, "leave one out")
    return found.take(no_landmarks(chosen.map, X))


# --- with the kernel itself ----------------------------------------------------------------------


def left_out_of_matrix(
    K: Float[Array, "n n"],
    y: Float[Array, " n"],
    coef: Float[Array, " n"],
    intercept: float,
    bound: Float[Array, " n"],
    ridge: Float[Array, " n"],
) -> Float[Array, " n"]:
    """Return y − f without each row, for f = Ka + b whose coefficients lie within ±bound.

    ``ridge`` is added to the diagonal of K: 1/2Cw of squared losses, whose bounds are infinite, and
    else zero. Without a row the rows of free coefficients meet the same edges, and rows at their
    bounds and at zero stay.
    """
    e = y - K @ coef - intercept
    small = AT_BOUND * np.where(np.isfinite(bound), bound, np.abs(coef).max())
    support = np.abs(coef) > small
    free = np.flatnonzero(support & (np.abs(coef) < bound - small))
    if not len(free):
        return np.where(support, e + coef * np.diag(K), e)
    A = np.ones((len(free) + 1, len(free) + 1))
    A[:-1, :-1], A[-1, -1] = K[np.ix_(free, free)] + np.diag(ridge[free]), 0.0
    inverse = _inverse(A)
    moved = np.zeros(len(e))
    spans = np.diag(inverse)[:-1]
    moved[free] = coef[free] * (1 / np.maximum(spans, TINY) - ridge[free])
    held = np.flatnonzero(support & (np.abs(coef) >= bound - small))
    k = np.column_stack([K[np.ix_(held, free)], np.ones(len(held))])
    rest = np.diag(K)[held] - np.einsum("ij,ij->i", k @ inverse, k)
    moved[held] = coef[held] * np.maximum(rest, 0.0)
    return e + moved


def _inverse(A: Float[Array, "p p"]) -> Float[Array, "p p"]:
    try:
        return np.asarray(np.linalg.inv(A))
    except LinAlgError:
        return np.asarray(pinvh(A))
