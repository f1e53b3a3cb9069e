"""What the estimators of ridge regression share: fits by moments or exact, and what they tell."""

from abc import abstractmethod
from typing import Any, Self

import numpy as np

from bochner._core.shapes import Array, Float, Tabular
from bochner.certificates import Certificate
from bochner.data.blocks import Blocks
from bochner.data.sample import RowSample
from bochner.errors import InvalidInput
from bochner.models._base import Inputs, KernelEstimator, require_switch
from bochner.models.displays import PathDisplay, SpectrumDisplay
from bochner.models.ridge.exact import ExactFit, ExactKernel, as_exact, fit_exact
from bochner.models.ridge.fit import (
    RidgeFit,
    RidgeSpec,
    fit_ridge,
    solved_again,
    with_rows_of,
)
from bochner.solvers.ridge.solution import Solution
from bochner.sums.folds import Folds
from bochner.sums.moments import Moments, Precision


def takes_pieces(model: "RidgeEstimator") -> bool:
    """Whether rows can come in pieces; raise AttributeError, which says why, where they cannot."""
    if as_exact(model.method) is not None:
        raise AttributeError(
            f'{type(model).__name__}.partial_fit: method="exact" needs all rows at once; call fit, '
            "or take features, whose moments add up."
        )
    return True


class RidgeEstimator(KernelEstimator):
    """An estimator whose ``fit_`` is a :class:`RidgeFit` or an :class:`ExactFit`."""

    method: Any
    alpha: Any
    alpha_per_target: bool
    fit_intercept: bool
    precision: str

    def _spec(self, exact: ExactKernel | None) -> RidgeSpec:
        centred = require_switch(type(self).__name__, self.fit_intercept)
        features = self._feature_spec(self.method if exact is None else exact.preconditioner)
        return RidgeSpec.of(features, self.alpha, self.alpha_per_target, centred)

    def _fit(
        self, blocks: Blocks, inputs: Inputs, precision: Precision | None = None
    ) -> RidgeFit | ExactFit:
        exact = as_exact(self.method)
        spec = self._spec(exact)
        if exact is not None:
            return fit_exact(spec, exact, blocks, inputs)
        return fit_ridge(spec, blocks, inputs, precision=precision)

    def _first_piece(self, blocks: Blocks, inputs: Inputs) -> RidgeFit | ExactFit:
        """Fit in one precision: rows do not come again."""
        single = self.precision == "float32"
        return self._fit(blocks, inputs, "float32" if single else "float64")

    def _more(self, blocks: Blocks) -> RidgeFit:
        return with_rows_of(self.fit_, self._spec(None), blocks)

    def solve_again(self) -> Self:
        """Solve anew from the moments and the sample of rows as they are now."""
        fit = self._fitted
        if isinstance(fit, ExactFit):
            raise InvalidInput(
                f"{type(self).__name__}.solve_again: an exact fit keeps no moments that could be "
                "solved again. Call fit."
            )
        self.fit_ = solved_again(fit, self._spec(None))
        return self

    # --- what was learned ------------------------------------------------------------------------

    @property
    def _has_sums(self) -> bool:
        """Whether there are moments that further rows can be added to."""
        return self.__sklearn_is_fitted__() and isinstance(self.fit_, RidgeFit)

    def _sums(self, name: str) -> RidgeFit:
        fit = self._fitted
        if isinstance(fit, ExactFit):
            raise AttributeError(f"{name}: an exact fit has no features.")  # noqa: TRY004
        return fit

    def _exact(self, name: str) -> ExactFit:
        fit = self._fitted
        if isinstance(fit, RidgeFit):
            raise AttributeError(  # noqa: TRY004  as hasattr() asks
                f'{name}: only a fit with method="exact" has them; see coef_.'
            )
        return fit

    def _coef(self, instead: str) -> Float[Array, "D t"]:
        fit = self._fitted
        if isinstance(fit, ExactFit):
            raise AttributeError(  # noqa: TRY004
                f"coef_: an exact fit has no features; {instead}."
            )
        return fit.solution.coef

    @property
    @abstractmethod
    def coef_(self) -> Any:
        """β."""

    @property
    def target_shape_(self) -> tuple[int, ...]:
        """Of one row of y: () or (t,)."""
        return self._fitted.target_shape

    @property
    def solution_(self) -> Solution:
        """Coefficients, outcome, and criteria along the path of alpha."""
        return self._fitted.solution

    @property
    def alpha_(self) -> Any:
        """The penalty used, or that of each target."""
        return self.solution_.alpha

    @property
    def moments_(self) -> Moments:
        """What further rows, or other models, are added to."""
        return self._sums("moments_").summed.moments

    @property
    def folds_(self) -> Folds:
        """Moments of each fold, with ``alpha="kfold"``."""
        return self._sums("folds_").summed.folds

    @property
    def rows_seen_(self) -> int:
        """Rows that were read."""
        fit = self._fitted
        return fit.rows if isinstance(fit, ExactFit) else fit.summed.rows

    @property
    def sample_(self) -> RowSample:
        """Rows kept for leave-one-out errors and the certificate."""
        return self._sums("sample_").summed.sample

    @property
    def X_fit_(self) -> Any:
        """The rows of an exact fit, (n, d)."""
        return self._exact("X_fit_").X

    @property
    def certificate_(self) -> Certificate:
        """How far φ(x)·φ(y) is from k on the rows of the fit; measured once, on their sample."""
        fit = self._fitted
        if isinstance(fit, ExactFit):
            raise AttributeError(  # noqa: TRY004
                "certificate_: an exact fit has the kernel itself, and nothing to certify."
            )
        return fit.certificate

    def certify(self, X: Tabular) -> Certificate:
        """Return the certificate of this map, kernel and penalty on other rows.

        The penalty is taken in proportion: alpha·n/(rows of the fit) for n rows.
        """
        return self.certify_blocks(self._rows_to_predict(X))

    def _certificate_on(self, blocks: Blocks, other: bool = False) -> Certificate:
        return self.certify_blocks(blocks) if other else self.certificate_

    def _ridge_penalty(self, X: Any, n: int) -> float:  # noqa: ARG002
        return float(np.max(self.alpha_))

    def _least_penalty(self, X: Any, n: int) -> float:  # noqa: ARG002
        return float(np.min(self.alpha_))

    @property
    def _path(self) -> Any:
        return self.solution_.path

    @property
    def _kept_moments(self) -> Moments | None:
        fit = self._fitted
        return None if isinstance(fit, ExactFit) else fit.summed.seen

    def certify_blocks(self, blocks: Blocks) -> Certificate:
        """Return the certificate on other rows, given as blocks; see :meth:`certify`."""
        fit = self._fitted
        if isinstance(fit, ExactFit):
            raise InvalidInput(
                f"{type(self).__name__}.certify: an exact fit has the kernel itself, and nothing "
                'to certify; fit with features, e.g. method="auto", for a certificate.'
            )
        return fit.certified(blocks)

    def plot_path(self, ax: Any = None) -> Any:
        """Draw the criteria along the path of alpha, on new axes or those given."""
        return PathDisplay.from_estimator(self).plot(ax)

    def plot_spectrum(self, ax: Any = None) -> Any:
        """Draw the eigenvalues of the features' Gram matrix, and the penalty."""
        return SpectrumDisplay.from_estimator(self).plot(ax)
