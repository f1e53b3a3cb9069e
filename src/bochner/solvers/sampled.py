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

from bochner._ground.shapes import Array, Float
from bochner.solvers.direct import EPS, FLOAT32_GRAM, Eigen, squared_rows

__all__ = ["LeftOutErrors", "left_out_path"]

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
