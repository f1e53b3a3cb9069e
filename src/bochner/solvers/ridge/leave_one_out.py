"""Leave-one-out errors of all rows from those of a sample, and how far they may be off.

With e_i the leave-one-out error of a row and r_i its residual, L the mean of e² and R that of r²,
known of all rows from their moments and of the sample S from its rows:

    L ≈ L_S R/R_S,
    variance ≈ (1 − f) Σ (e² − b r²)²/m² + f Σ (e² − L_S)²/m²   over the m rows of S, b = L_S/R_S,

f the share of the rows that is in S. e = r/s with s near one for most rows, so that the few rows
of a heavy-tailed target that make most of L_S make most of R_S too. The second term is what the
mean of all rows misses the expected error of a new row by. In means a row of weight w counts as w
rows; in variances as one where w is below one.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from scipy.sparse.linalg import eigsh

from bochner._core.blas import cholesky
from bochner._core.shapes import Array, Float
from bochner.solvers.ridge.eigen import (
    EPS,
    FLOAT32_FLOOR,
    FLOAT32_GRAM,
    Eigen,
    Rounding,
    Sums,
    left_out_errors,
    squared_rows,
)
from bochner.solvers.ridge.solution import LEVEL

#: RSS is told from rounding if it is so many times that of P.
CLEAR = 1e3

TINY = float(np.finfo(float).tiny)


class LeftOutErrors(NamedTuple):
    """Leave-one-out errors along a path of penalties.

    Attributes
    ----------
    each : (p, t)
        Mean squared errors of each target.
    deviation : (p,)
        Standard error of their pooled mean, for the expected squared error of a new row.
    rows : int
        Rows that were left out.
    """

    each: Float[Array, "p t"]
    deviation: Float[Array, " p"]
    rows: int


class _Sums:
    """Weighted sums of e² and r², (p, t), and of the squares of their pooled values, (p,)."""

    def __init__(self, p: int, units: Float[Array, " t"]) -> None:
        self.units = units
        self.errors, self.residuals = np.zeros((2, p, len(units)))
        self.squares, self.first, self.size = np.zeros((3, p)), np.zeros(p), 0.0
        self.weight, self.rows = 0.0, 0

    def add(self, w: Array, targets: Iterable[tuple[Array, Array]]) -> None:
        """Add rows; ``targets`` gives r² and e² of each target, (b, p)."""
        v, e, r = w * np.minimum(w, 1.0), 0.0, 0.0
        for target, (residuals, errors) in enumerate(targets):
            self.residuals[:, target] += w @ residuals
            self.errors[:, target] += w @ errors
            e, r = e + self.units[target] * errors, r + self.units[target] * residuals
        self.squares += np.stack([v @ (e * e), v @ (e * r), v @ (r * r)])
        self.first += v @ e
        self.size += float(v.sum())
        self.weight += float(w.sum())
        self.rows += len(w)

    def deviation(self, share: float) -> Float[Array, " p"]:
        """Return the standard error of the pooled mean, from this share of all rows."""
        W, (ee, er, rr) = max(self.weight, TINY), self.squares
        mean = self.errors @ self.units / W
        b = mean / np.maximum(self.residuals @ self.units / W, TINY)
        within = ee - 2 * b * er + b**2 * rr
        among = ee - 2 * mean * self.first + mean**2 * self.size
        return np.sqrt(np.maximum((1 - share) * within + share * among, 0.0)) / W


def left_out_path(
    eigen: Eigen,
    blocks: Iterable[tuple[Float[Array, "b D"], Float[Array, "b t"], Float[Array, " b"] | None]],
    alphas: Float[Array, " p"],
) -> LeftOutErrors:
    """Return the errors of all rows that ``eigen`` is of, from a random sample of them.

    ``blocks`` are the sample's rows, about the means of all. Where they are all rows the errors
    are exact. Time O(b D (D + p)) a block.
    """
    power = eigen.power / eigen.weight
    varies = power > 0
    units = np.divide(1 / max(varies.sum(), 1), power, out=np.zeros_like(power), where=varies)
    sums = _Sums(len(alphas), units)
    with np.errstate(invalid="ignore"):  # infinite errors have no deviation
        for w, targets in squared_rows(eigen, blocks, alphas):
            sums.add(w, targets)
        share = min(1.0, sums.weight / eigen.weight)
        deviation = sums.deviation(share) * (power[varies].mean() if varies.any() else 1.0)
    each = sums.errors / max(sums.weight, TINY)
    if 0 < sums.rows < eigen.rows:
        each *= _of_all(eigen, sums, alphas)
    return LeftOutErrors(each, np.nan_to_num(deviation, nan=np.inf), sums.rows)


def _of_all(eigen: Eigen, sums: _Sums, alphas: Float[Array, " p"]) -> Float[Array, "p t"]:
    """Return R/R_S; below the penalties at which rounding leaves RSS a value, the last there."""
    RSS, gram = eigen.residual_power(alphas), EPS
    if eigen.precision == "float32":
        gram = FLOAT32_GRAM
    here = sums.residuals / max(sums.weight, TINY)
    clear = (CLEAR * gram * eigen.power < RSS) & (here > 0)
    ratio = np.divide(RSS / eigen.weight, here, out=np.ones_like(here), where=clear)
    first = np.maximum(clear.argmax(axis=0), np.arange(len(alphas))[:, None])
    return np.take_along_axis(ratio, first, axis=0)


# --- Whether float32 products will limit an answer, judged from the first rows of a sweep --------

#: Step of the penalty whose gain is looked at.
STEP = 2.0


def limited(
    sums: Sums,
    n: int,
    alpha: float | str,
    rows: Iterable[tuple[Float[Array, "b D"], Float[Array, "b t"], Float[Array, " b"]]],
) -> bool:
    """Return whether n rows such as these will ask for a penalty that float32 does not resolve.

    A given penalty is compared with that of all n rows, 1e-6 n/rows ‖G‖. One to be chosen by
    leave-one-out lies below it where the errors still fall there and are not level. The other
    criteria are not foretold.

    Parameters
    ----------
    sums : Sums
        Moments of the first rows.
    n : int
        Rows there will be.
    alpha : float or {"loo", "gcv", "evidence"}
    rows : iterable of (Z, y, w)
        Some of the first rows, about the means of ``sums``.

    Notes
    -----
    Two Cholesky factors and triangular solves, O(D³/3 + b D²) each: a tenth of an
    eigendecomposition.
    """
    top = float(eigsh(sums.gram, k=1, tol=1e-2, v0=np.ones(len(sums.gram)))[0][0])
    resolved = FLOAT32_FLOOR * top * n / sums.rows
    if not isinstance(alpha, str):
        return alpha < resolved
    if alpha != "loo" or not top > 0 or not np.any(sums.power > 0):
        return False
    given = list(rows)
    here, there = (_loo_error(sums, given, step * resolved, top) for step in (1.0, STEP))
    return here < (1 - LEVEL) * there


def _loo_error(
    sums: Sums, rows: list[tuple[Array, Array, Array]], alpha: float, top: float
) -> float:
    """Leave-one-out mean squared error of the rows, as :func:`leave_one_out`, by Cholesky."""
    gram = FLOAT32_GRAM if sums.precision == "float32" else EPS
    rounding = Rounding(top, 0.0, gram, EPS)
    L = cholesky(sums.gram + alpha * np.eye(len(sums.gram)), lower=True, check_finite=False)
    projected = solve_triangular(L, sums.cross, lower=True, check_finite=False)
    varies, total = sums.power > 0, 0.0
    for Z, y, w in rows:
        A = solve_triangular(L, Z.T.astype(np.float64), lower=True, check_finite=False)
        leverage = (A * A).sum(axis=0) + 1 / sums.weight
        slack = rounding.slack(leverage[:, None], w, np.array([alpha]))
        errors = left_out_errors((y - A.T @ projected)[:, varies], slack)
        total += float(w @ (errors**2 / sums.power[varies]).sum(axis=1))
    return total
