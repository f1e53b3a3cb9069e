"""What the estimators of convex losses share: parameters, and what reads their fits."""

from typing import Any

from bochner.models._base import KernelEstimator
from bochner.models.convex.fit import ConvexFit, ConvexSpec
from bochner.solvers.convex.losses import Loss
from bochner.solvers.convex.optimum import Optimum
from bochner.solvers.convex.penalty_path import HeldOutPath


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

    @property
    def solution_(self) -> Optimum:
        """Coefficients, objective, outcome, and what every step did."""
        return self._fitted.solution

    @property
    def path_(self) -> HeldOutPath | None:
        """Penalties that were compared, and what the rows left out lost."""
        return self._fitted.path

    @property
    def _path(self) -> Any:
        return self.path_

    @property
    def n_iter_(self) -> int:
        """Steps taken."""
        return self._fitted.n_iter
