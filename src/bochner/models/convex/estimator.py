"""What the estimators of convex losses share: parameters, and what reads their fits."""

from typing import Any

from bochner.models._base import KernelEstimator, learned
from bochner.models.convex.fit import ConvexFit, ConvexSpec
from bochner.solvers.convex.losses import Loss


class ConvexEstimator(KernelEstimator):
    """An estimator whose fitted value is a :class:`ConvexFit`."""

    fit_: ConvexFit
    fit_intercept: bool
    tol: float
    max_iter: int
    method: Any

    def _convex_spec(self, loss: Loss, alpha: float | str, centred: object) -> ConvexSpec:
        features = self._feature_spec(self.method)
        return ConvexSpec.of(features, loss, alpha, centred, self.tol, self.max_iter)

    solution_ = learned("solution", "Coefficients, objective, outcome, and what every step did.")
    path_ = learned("path", "Penalties that were compared, and what the rows left out lost.")
    n_iter_ = learned("n_iter", "Steps taken.")

    @property
    def _path(self) -> Any:
        return self.path_
