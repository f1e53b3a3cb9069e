"""What a fit to all rows will err with a map, foretold from a sample of rows with targets.

Leave-one-out errors of m rows hold what so few rows cost. Least squares on Gaussian features pays
1/(1 − D/m) for it; at a penalty λ the degrees of freedom d(λ) = Σ w²/(w + λ)² take the place of D,
w the eigenvalues of G. A fit to n rows at the same penalty a row has the same bias, so that

    e_n(λ) ≈ loo_m(λ) (1 − d(λ)/m)/(1 − d(λ)/n),

and it chooses its own penalty: maps are compared by the least of these along the path.
"""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from bochner._core.arrays import to_numpy
from bochner._core.shapes import Array, Float
from bochner.features.map import FeatureMap
from bochner.solvers.ridge.eigen import TINY, Eigen, decompose, floor, leave_one_out, penalties
from bochner.solvers.ridge.solution import best_of
from bochner.sums.moments import Moments

#: Errors within this share of the least are equal: a hundred times what products in float32 leave.
SAME = 1e-3

#: Errors below this share of the targets' variance are rounding of such products.
ROUNDING = 1e-10


@dataclass(frozen=True, eq=False)
class Targets:
    """What sampled rows are to be fitted to, and the fit that the sample stands for."""

    y: Float[Array, "m t"]
    w: Float[Array, " m"]  # Weights, positive
    n_rows: int  # Rows of the fit, m or more
    share: float | None = None  # A given penalty a row (alpha/n); None where the fit chooses it

    def take(self, rows: Array) -> "Targets":
        """Return those of these rows."""
        return replace(self, y=self.y[rows], w=self.w[rows])


class LeftOut(NamedTuple):
    """Leave-one-out mean squared errors of ridge regression on features, and what they are of."""

    moments: Moments
    eigen: Eigen
    alphas: Float[Array, " a"]  # Penalties, ascending
    errors: Float[Array, " a"]
    n_rows: int  # Rows of positive weight


def left_out(
    Z: Float[Array, "m D"],
    y: Float[Array, "m t"],
    w: Float[Array, " m"] | None = None,
    share: float | None = None,
    dtype: Any = np.float64,
) -> LeftOut:
    """Return the errors of all rows along the path of penalties, or at a given one a row.

    Z is float64; ``dtype`` is that of the products which leave rows out. O(m D² + D³).
    """
    moments = Moments.of(Z, y, w)
    eigen = decompose(moments)
    if share is None:
        alphas = penalties(eigen)
    else:
        alphas = np.array([max(share * moments.weight, floor(eigen))])
    centred = (Z - moments.feature_mean).astype(dtype, copy=False), y - moments.target_mean, w
    errors, m = leave_one_out(eigen, [centred], alphas)
    if dtype != np.float64 and not np.isfinite(errors[max(int(errors.argmin()) - 1, 0)]):
        return left_out(Z, y, w, share)  # the best may lie where these products tell nothing
    return LeftOut(moments, eigen, alphas, errors, m)


class Judgement(NamedTuple):
    """What a fit to all rows will find."""

    error: float  # Mean squared error
    penalty: float  # The penalty, as a share of ‖G‖


def judge(phi: FeatureMap, X: Float[Array, "m d"], targets: Targets) -> Judgement:
    """Return the error that a fit to ``targets.n_rows`` rows will have, and its penalty.

    Several targets: the mean of their relative errors, in units of their mean variance. Rows that
    landmarks were taken from flatter a map. O(m D² + D³).
    """
    Z = to_numpy(phi(X)).astype(np.float64, copy=False)
    # Of float32 for speed: what the errors of two maps differ by is far above its rounding.
    found = left_out(Z, targets.y, targets.w, targets.share, np.float32)
    values = found.eigen.values[:, None]
    spent = ((values / (values + found.alphas)) ** 2).sum(axis=0) / found.eigen.count
    all_rows = 1 - spent * found.n_rows / targets.n_rows
    errors = found.errors * (1 - spent) / all_rows
    best, top = best_of(errors, "loo", SAME), max(float(values[-1, 0]), TINY)
    variance = float(found.moments.power.max()) / found.moments.weight
    error = max(float(errors[best]), ROUNDING * variance)
    return Judgement(error, float(found.alphas[best] / top))
