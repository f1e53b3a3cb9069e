"""Cross-validation from moments: folds are taken out of the total, and no row is read again.

With the moments of all rows and those of one fold, the others' are their difference. The ridge
regression of the others then errs on the fold by

    W_k δ² + P_k − 2 β·B_k + βᵀ G_k β,   δ = ȳ_k − ȳ − (z̄_k − z̄)·β,

where z̄, ȳ are the means that it was fitted about.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from bochner._ground.shapes import Array, Float
from bochner.solvers.direct import Eigen, Sums, decompose

__all__ = ["Fold", "kfold_errors"]

#: Share of the weight that the other folds have at least.
LEAST_LEFT = 1e-9


class Fold(Sums, Protocol):
    """Moments that can be taken out of others."""

    @property
    def feature_mean(self) -> Float[Array, " D"]: ...
    @property
    def target_mean(self) -> Float[Array, " t"]: ...
    def about_zero(self) -> Any: ...
    def __sub__(self, other: Any) -> Any: ...


def kfold_errors(
    total: Fold, folds: Sequence[Fold], alphas: Float[Array, " p"], centred: bool = True
) -> Float[Array, "p t"] | None:
    """Return the mean squared error of each target at every penalty, each fold left out in turn.

    Parameters
    ----------
    total : Moments
        Of all rows, about their means.
    folds : sequence of Moments
        Of each fold, about its means; together they are the total.
    alphas : (p,)
        Penalties of the fits to the other folds, not scaled to their fewer rows.
    centred : bool, default True
        Whether an intercept is fitted.

    Returns
    -------
    errors : (p, t), or None
        None where there are not two folds.

    Notes
    -----
    Time O(K (D³ + p t D²)), no pass over rows. Errors below about 1e-13 of the variance, 1e-7 in
    float32, are rounding.
    """
    left = [f for f in folds if total.weight - f.weight > LEAST_LEFT * total.weight]
    if len(left) < 2:
        return None
    errors = np.zeros((len(alphas), len(total.power)))
    for fold in left:
        others = total - fold
        others = others if centred else others.about_zero()
        errors += _errors(decompose(others, centred), others, fold, alphas)
    return errors / sum(fold.weight for fold in left)


def _errors(
    eigen: Eigen, others: Fold, fold: Fold, alphas: Float[Array, " p"]
) -> Float[Array, "p t"]:
    """Weighted sum of squared errors on the fold, in the coordinates of the eigenvectors."""
    V = eigen.vectors
    gram, cross = V.T @ fold.gram @ V, V.T @ fold.cross
    shift = V.T @ (fold.feature_mean - others.feature_mean)
    rise = fold.target_mean - others.target_mean
    errors = []
    for alpha in alphas:
        beta = eigen.projected / (eigen.values[:, None] + alpha)
        spread = fold.power + (beta * (gram @ beta - 2 * cross)).sum(axis=0)
        errors.append(fold.weight * (rise - shift @ beta) ** 2 + np.maximum(spread, 0.0))
    return np.stack(errors)
