"""The error of a fit to all rows with a map, predicted from a sample of rows with targets.

Leave-one-out errors of the sample are extrapolated to all rows at every penalty of the path
(:func:`bochner.solvers.ridge.leave_one_out.extrapolate`), and the fit chooses its own penalty: maps
are compared by the least of these errors.
"""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from bochner._core.arrays import to_numpy
from bochner._core.shapes import Array, Float
from bochner.features.map import FeatureMap
from bochner.solvers.ridge.eigen import TINY, Eigen, decompose, penalties
from bochner.solvers.ridge.leave_one_out import equivalent_alpha, extrapolate, left_out_path
from bochner.solvers.ridge.solution import NO_ERROR, SAME_FLOAT32, best_of, pooled
from bochner.sums.moments import Moments


@dataclass(frozen=True, eq=False)
class Targets:
    """Targets of sampled rows, and the fit to all rows that the sample represents."""

    y: Float[Array, "m t"]
    w: Float[Array, " m"]  # weights, positive
    n_rows: int  # rows of the fit, m or more
    share: float | None = None  # a given per-row penalty (alpha/n); None where the fit chooses it

    def take(self, rows: Array) -> "Targets":
        """Return the targets of these rows."""
        return replace(self, y=self.y[rows], w=self.w[rows])


class SampleErrors(NamedTuple):
    """Leave-one-out mean squared errors of ridge regression on features, with their moments."""

    moments: Moments
    eigen: Eigen
    alphas: Float[Array, " a"]  # penalties, ascending
    errors: Float[Array, " a"]
    n_rows: int  # rows of positive weight


def left_out(
    Z: Float[Array, "m D"],
    y: Float[Array, "m t"],
    w: Float[Array, " m"] | None = None,
    share: float | None = None,
    dtype: Any = np.float64,
    ratio: float = 1.0,
) -> SampleErrors:
    """Return the errors of all rows along the path of penalties, or at the one of a given share.

    Z is float64; ``dtype`` is the type of the products that leave rows out. ``share`` is a penalty
    a row of ``ratio`` times as many rows. O(m D² + D³).
    """
    moments = Moments.of(Z, y, w)
    eigen = decompose(moments)
    alphas = (
        penalties(eigen) if share is None else np.array([equivalent_alpha(eigen, share, ratio)])
    )
    centred = (Z - moments.feature_mean).astype(dtype, copy=False), y - moments.target_mean, w
    path = left_out_path(eigen, [centred], alphas)
    errors = pooled(path.each, eigen.power / eigen.weight)
    if dtype != np.float64 and not np.isfinite(errors[max(int(errors.argmin()) - 1, 0)]):
        return left_out(Z, y, w, share, ratio=ratio)  # the best may lie where these overflow
    return SampleErrors(moments, eigen, alphas, errors, path.rows)


def judge(phi: FeatureMap, X: Float[Array, "m d"], targets: Targets) -> tuple[float, float]:
    """Return the predicted mean squared error of a fit to all rows, and its penalty over ‖G‖.

    Several targets: the mean of their relative errors, in units of their mean variance. Optimistic
    on rows that were used as landmarks. O(m D² + D³).
    """
    Z = to_numpy(phi(X)).astype(np.float64, copy=False)
    ratio = targets.n_rows / max(int(np.count_nonzero(targets.w)), 1)
    # Of float32 for speed: the errors of two maps differ by far more than its rounding.
    result = left_out(Z, targets.y, targets.w, targets.share, np.float32, ratio)
    errors, alphas = extrapolate(result.eigen, result.errors, result.alphas, ratio)
    best = best_of(errors, "loo", SAME_FLOAT32)
    top = max(float(result.eigen.values[-1]), TINY)
    variance = float(result.moments.power.max()) / result.moments.weight
    error = max(float(errors[best]), NO_ERROR * variance)
    return error, float(alphas[best] / (ratio * top))
