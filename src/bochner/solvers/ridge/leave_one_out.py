"""Leave-one-out errors of ridge regressions, in closed form: of all rows, or from a sample of them.

The leverage of a row z is h = (z − z̄)ᵀ(G + λI)⁻¹(z − z̄) + 1/W = Σ a²/(w + λ) + 1/W with its
coordinates a = Vᵀ(z − z̄), and its leave-one-out error is e = (y − ŷ)/s, s = 1 − min(w, 1) h the
slack. A row of weight w > 1 represents w equal rows, one of which is left out; a row of weight
below one is left out whole.

Where the fit passes through the rows, h is near one. Rounding changes it by about
g ‖G‖ q + 2u √(‖G‖ q) + u, with q = Σ a²/(w + λ)², g the relative error of G and u of the
products. As q ≤ s/λ, that is little beside s down to λ = 1e-11 ‖G‖ in float64. Otherwise
the leave-one-out error is unknown: the slack is set to zero and the error to infinity.

From the sample S of m rows, with L the mean of e² and R the mean of the squared residuals r², which
the moments give for all rows:

    L ≈ L_S R/R_S,
    variance ≈ (1 − f) Σ (e² − b r²)²/m² + f Σ (e² − L_S)²/m²   over the m rows of S, b = L_S/R_S,

f the share of the rows that is in S. s is near one for most rows, so that the few rows of a
heavy-tailed target that make most of L_S make most of R_S too. The second term is what the mean of
all rows misses the expected error of a new row by. In means a row of weight w counts as w rows; in
variances as one where w is below one.
"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from bochner._core.blas import product
from bochner._core.shapes import Array, Both, Float
from bochner.solvers.ridge.eigen import EPS, Eigen, floor, penalties
from bochner.solvers.ridge.problem import TINY, left_out_errors, slack_of_leverage

CLEAR = 1e3  # RSS is above rounding if it exceeds this many times the rounding of P

#: A slack is above rounding if it exceeds this many times its first-order bound, in float32 and in
#: float64. Rounding was measured to be up to five times as large as that bound.
RESOLVED = (50.0, 500.0)

#: This many times the bound is subtracted from a slack in float64, so that the minimum on a plateau
#: of errors does not depend on rounding. In float32 the bound is too
#: far above what rounding makes.
WITHHELD = (0.0, 10.0)

#: Rows about the means of the moments: features, targets, weights.
Rows = tuple[Float[Array, "b D"], Float[Array, "b t"], Float[Array, " b"] | None]


def _slacks(
    eigen: Eigen, blocks: Iterable[Rows], alphas: Float[Array, " p"], kept: Any = slice(None)
) -> Iterator[tuple[Float[Array, "b r"], Float[Array, "b t"], Float[Array, " b"], Array]]:
    """Give rows in the coordinates of eigenvectors, targets, weights and slacks s.

    Time O(b D (D + p)) a block.
    """
    inverse, vectors = 1 / (eigen.values[kept, None] + alphas), eigen.vectors[:, kept]
    for Z, y, w in blocks:
        A = product(Z, np.ascontiguousarray(vectors, dtype=Z.dtype))
        weights = np.ones(len(y)) if w is None else w
        yield A, y, weights, _slack(eigen, A, inverse, weights, alphas)


def _slack(
    eigen: Eigen, A: Array, inverse: Array, w: Array, alphas: Float[Array, " p"]
) -> Float[Array, "b p"]:
    """Return s = 1 − min(w, 1) h, or zero where rounding of the features' precision hides it.

    In float64 it is a lower bound, so that errors are not underestimated. q = Σ a²/(w + λ)² is
    bounded by s/λ and by h/(w_1 + λ), w_1 the smallest eigenvalue.
    """
    leverage = product(A * A, inverse.astype(A.dtype)).astype(np.float64)
    leverage += 1 / eigen.weight if eigen.centred else 0.0
    slack = slack_of_leverage(leverage, w[:, None])
    gram, unit = eigen.rounding, float(np.finfo(A.dtype).eps)
    with np.errstate(divide="ignore", invalid="ignore"):
        q = np.fmin(np.maximum(slack, 0.0) / alphas, (1 - slack) / (eigen.values[0] + alphas))
    q *= eigen.values[-1]
    doubt = gram * q + 2 * unit * np.sqrt(q) + unit
    double = max(gram, unit) <= EPS
    return np.where(slack > RESOLVED[double] * doubt, slack - WITHHELD[double] * doubt, 0.0)


def left_out_rows(
    eigen: Eigen, blocks: Iterable[Rows], alpha: Float[Array, " t"]
) -> Iterator[Both]:
    """Give residuals of rows and their leave-one-out errors, at a penalty of each target.

    The rows are a subset of the rows of ``eigen``, centred; an error hidden by rounding is
    infinite.
    """
    coef = eigen.projected / (eigen.values[:, None] + alpha)
    for A, y, _, slack in _slacks(eigen, blocks, alpha):
        residuals = y - product(A, coef.astype(A.dtype))
        errors = left_out_errors(residuals, slack)
        yield residuals, np.where(slack > 0, errors, np.copysign(np.inf, residuals))


class LeftOutErrors(NamedTuple):
    """Leave-one-out errors along a path of penalties."""

    each: Float[Array, "p t"]  # mean squared errors of each target
    #: Standard error of their pooled mean, for the expected squared error of a new row.
    deviation: Float[Array, " p"]
    rows: int  # rows that were left out


def deviation_of(
    squares: Float[Array, "m p"],
    residual_squares: Float[Array, "m p"],
    w: Float[Array, " m"],
    share: float,
) -> Float[Array, " p"]:
    """Return the standard error of Σ w e²/Σ w, from e² and r² of this share of all rows."""
    W, v = max(float(w.sum()), TINY), w * np.minimum(w, 1.0)
    mean = w @ squares / W
    b = mean / np.maximum(w @ residual_squares / W, TINY)
    within = v @ (squares - b * residual_squares) ** 2
    return np.sqrt((1 - share) * within + share * (v @ (squares - mean) ** 2)) / W


def left_out_path(
    eigen: Eigen, blocks: Iterable[Rows], alphas: Float[Array, " p"]
) -> LeftOutErrors:
    """Return the errors of all rows that ``eigen`` is of, from a random sample of them.

    ``blocks`` are the sample's rows, about the means of all. Where they are all rows the errors
    are exact. Directions whose eigenvalues sum to less than 1e-6 of the smallest penalty change no
    slack by a larger share, and are left out.
    """
    power = eigen.power / eigen.weight
    varies = power > 0
    units = np.divide(1 / max(varies.sum(), 1), power, out=np.zeros_like(power), where=varies)
    kept = np.cumsum(eigen.values) > 1e-6 * alphas[0]
    inverse = 1 / (eigen.values[kept, None] + alphas)
    coefs = [c[:, None] * inverse for c in eigen.projected[kept].T]
    residuals, errors = np.zeros((2, len(alphas), len(power)))
    W, rows, deviation = TINY, 0, np.zeros(len(alphas))

    def squares_of(A: Array, y: Array, w: Array, slack: Array) -> tuple[Array, Array, Array]:
        both = np.zeros((2, len(w), len(alphas)))
        for target, coef in enumerate(coefs):
            left = y[:, target, None] - product(A, coef.astype(A.dtype))
            r, e = left**2, left_out_errors(left, slack) ** 2
            residuals[:, target] += w @ r
            errors[:, target] += w @ e
            both += units[target] * np.stack([e, r])
        return both[0], both[1], w

    with np.errstate(invalid="ignore"):  # infinite errors have no deviation
        parts = [squares_of(*each) for each in _slacks(eigen, blocks, alphas, kept)]
        if parts:
            squares, residual_squares, w = map(np.concatenate, zip(*parts, strict=True))
            W, rows = max(float(w.sum()), TINY), len(w)
            deviation = deviation_of(squares, residual_squares, w, min(1.0, W / eigen.weight))
            deviation *= power[varies].mean() if np.any(varies) else 1.0
    each = errors / W
    if 0 < rows < eigen.rows:
        each *= _of_all(eigen, residuals / W, alphas)
    return LeftOutErrors(each, np.nan_to_num(deviation, nan=np.inf), rows)


def _of_all(
    eigen: Eigen, here: Float[Array, "p t"], alphas: Float[Array, " p"]
) -> Float[Array, "p t"]:
    """Return R/R_S; below the penalties at which rounding leaves RSS a value, the last there."""
    RSS, gram = eigen.at(alphas).rss, eigen.rounding
    clear = (CLEAR * gram * eigen.power < RSS) & (here > 0)
    ratio = np.divide(RSS / eigen.weight, here, out=np.ones_like(here), where=clear)
    first = np.maximum(clear.argmax(axis=0), np.arange(len(alphas))[:, None])
    return np.take_along_axis(ratio, first, axis=0)


# --- A sample's error, extrapolated to a fit to more rows ----------------------------------------
#
# A ridge regression of m rows at the penalty λ acts as one of infinitely many rows does at
#
#     κ = λ/(m s),   s = tr (I − H)/m,
#
# H its hat matrix, because the eigenvalues of a sample are the population's, spread out
# (Bach (2024), for random projections). At equal κ the fits to m and to n rows
# have the same bias. Noise, and bias as noise, costs them
#
#     e_m = b(κ)/(1 − δ/m),   e_n = b(κ)/(1 − δ/n),   δ = Σ μ²/(μ + κ)² of the population's μ.
#
# The sample tells δ: as Σ μ/(μ + κ) = tr H, differentiating κ by λ gives 1 − δ/m = s²/v with
# v = tr (I − H)²/m, so that
#
#     e_n(λ') ≈ e_m(λ) (s²/v)/(1 − (m/n)(1 − s²/v)),   λ' = κ (n − tr H) = λ (n − tr H)/(m − tr H).
#
# Least squares on D < m features has δ = D. The sum of squares tr H², which is δ where D is far
# below m, is m itself where D ≥ m and λ = 0: all error would be taken for noise.


def extrapolate(
    eigen: Eigen, errors: Float[Array, " p"], alphas: Float[Array, " p"], ratio: float
) -> tuple[Float[Array, " p"], Float[Array, " p"]]:
    """Return the errors of fits to ``ratio`` ≥ 1 times as many rows, and the penalties they have.

    ``errors`` are leave-one-out errors of all rows of ``eigen`` at ``alphas``.
    """
    free = max(eigen.count - eigen.centred, 1.0)
    left, squared = eigen.left_over(alphas), eigen.left_over(alphas, 2)
    more = (ratio - 1) * free
    return of_more_rows(errors, left, squared, free, ratio), alphas * (left + more) / left


def of_more_rows(
    errors: Float[Array, " p"],
    left: Float[Array, " p"],
    squared: Float[Array, " p"],
    free: float,
    ratio: float,
) -> Float[Array, " p"]:
    """Return the same errors from tr (I − H), tr (I − H)² and the rows less the intercept."""
    slack = left**2 / (free * squared)
    return errors * slack / (1 - (1 - slack) / ratio)


def equivalent_alpha(eigen: Eigen, share: float, ratio: float) -> float:
    """Return the penalty equivalent to a per-row penalty of ``ratio`` times as many rows.

    That is the λ of equal κ, or the smallest that G resolves.
    """
    alphas = penalties(eigen)
    _, others = extrapolate(eigen, np.zeros_like(alphas), alphas, ratio)
    wanted = share * ratio * eigen.weight
    if not wanted > 0:
        return floor(eigen)
    less = np.interp(np.log(wanted), np.log(others), np.log(others / alphas))
    return max(wanted * float(np.exp(-less)), floor(eigen))
