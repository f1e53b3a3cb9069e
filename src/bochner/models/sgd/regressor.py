"""Regression by stochastic gradient descent in the space of a kernel."""

from typing import Any, Self

from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from bochner._core.arrays import from_numpy
from bochner._core.checks import nonnegative
from bochner._core.random import Seed
from bochner._core.shapes import Array, Float, Tabular
from bochner.data.blocks import Blocks
from bochner.errors import InvalidInput
from bochner.features import Method
from bochner.kernels import Kernel
from bochner.models._inputs import fit_blocks_of, note_columns, required_targets
from bochner.models._state import all_or_nothing, set_kernel_params
from bochner.models.sgd import walk
from bochner.models.sgd.plan import plan_for
from bochner.models.sgd.rows import (
    check,
    choose,
    choose_for_stream,
    gathered,
)
from bochner.models.sgd.strategies import StrategyPlan
from bochner.models.sgd.walk import (
    dual,
    fitted,
    outputs,
    primal,
)
from bochner.selection.search import accepts_sparse
from bochner.solvers.sgd import NUMBER_LOSSES


class KernelSGDRegressor(MultiOutputMixin, RegressorMixin, BaseEstimator):
    """Linear regression on a kernel's features by stochastic gradient descent.

    Minimises (1/W) Σ wᵢ ℓ(yᵢ, f(xᵢ)) + (alpha/2) ‖f‖² over f = φ(x)·β + b, by steps on batches of
    rows in random order; several targets share the steps.

    Parameters
    ----------
    kernel, strategy, method, n_features, alpha, fit_intercept, batch_size, average, max_iter, tol,
    early_stopping, validation_fraction, n_iter_no_change, shuffle, warm_start, random_state
        As of :class:`KernelSGDClassifier`; rows held out are judged by R².
    loss : str, default "squared_error"
        "squared_error" ((y − f)²/2), "huber", "epsilon_insensitive",
        "squared_epsilon_insensitive" or "quantile".
    learning_rate : str, default "invscaling"
        As there; "invscaling" is eta0/step^power_t.
    eta0, power_t : default "auto", 0.25
    epsilon : float, default 0.1
        Of "huber", where its slope stops to grow; of the insensitive losses, what counts nothing.
    quantile : float, default 0.5

    Attributes
    ----------
    kernel_, strategy_, plan_, map_, support_vectors_, loss_curve_, validation_scores_, n_iter_, t_
        As of :class:`KernelSGDClassifier`.
    coef_ : (D,) or (t, D)
    dual_coef_ : (m,) or (t, m)
    intercept_ : float or (t,)

    Examples
    --------
    >>> import numpy as np
    >>> from bochner import KernelSGDRegressor
    >>> X = np.random.default_rng(0).uniform(-3, 3, (500, 1))
    >>> model = KernelSGDRegressor(alpha=0, tol=None, max_iter=50, random_state=0)
    >>> bool(model.fit(X, np.sin(X[:, 0])).score(X, np.sin(X[:, 0])) > 0.99)
    True
    """

    def __init__(
        self,
        kernel: Kernel | str = "gaussian",
        *,
        loss: str = "squared_error",
        strategy: str = "auto",
        method: Method | str = "auto",
        n_features: int = 1024,
        alpha: float = 1e-4,
        fit_intercept: bool = True,
        batch_size: int = 32,
        learning_rate: str = "invscaling",
        eta0: float | str = "auto",
        power_t: float = 0.25,
        epsilon: float = 0.1,
        quantile: float = 0.5,
        average: bool | int = False,
        max_iter: int = 1000,
        tol: float | None = 1e-3,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 5,
        shuffle: bool = True,
        warm_start: bool = False,
        random_state: Seed = None,
    ) -> None:
        self.kernel = kernel
        self.loss = loss
        self.strategy = strategy
        self.method = method
        self.n_features = n_features
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.eta0 = eta0
        self.power_t = power_t
        self.epsilon = epsilon
        self.quantile = quantile
        self.average = average
        self.max_iter = max_iter
        self.tol = tol
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.shuffle = shuffle
        self.warm_start = warm_start
        self.random_state = random_state

    # --- fitting ---------------------------------------------------------------------------------

    @all_or_nothing
    def fit(self, X: Tabular, y: Array, sample_weight: Array | None = None) -> Self:
        """Fit to rows in memory; see :meth:`KernelSGDClassifier.fit`. y is (n,) or (n, t)."""
        _check_numbers(self)
        first = not (self.warm_start and hasattr(self, "walk_"))
        blocks = fit_blocks_of(self, X, y, sample_weight, reset=first)
        rows = gathered(self, blocks)
        _note_targets(self, blocks, first)
        if first:
            choose(self, blocks, rows, outputs(self))
        walk.fit(self, rows)
        return self

    @all_or_nothing
    def fit_blocks(self, blocks: Blocks) -> Self:
        """Fit to blocks; see :meth:`KernelSGDClassifier.fit_blocks`."""
        _check_numbers(self)
        note_columns(self, blocks, reset=True)
        _note_targets(self, blocks, True)
        choose_for_stream(self, blocks, outputs(self))
        walk.fit_stream(self, blocks, outputs(self))
        return self

    @all_or_nothing
    def partial_fit(self, X: Tabular, y: Array, sample_weight: Array | None = None) -> Self:
        """Step once on each of these rows; see :meth:`KernelSGDClassifier.partial_fit`."""
        _check_numbers(self)
        first = not hasattr(self, "walk_")
        blocks = fit_blocks_of(self, X, y, sample_weight, reset=first)
        rows = gathered(self, blocks)
        _note_targets(self, blocks, first)
        if first:
            choose(self, blocks, rows, outputs(self), streaming=True)
        walk.add(self, rows)
        return self

    def plan(
        self, X: Float[Array, "n d"], y: Array | None = None, *, measure: float = 0.0
    ) -> StrategyPlan:
        """Say what each of the six strategies takes; see :meth:`KernelSGDClassifier.plan`."""
        _check_numbers(self)
        return plan_for(self, X, y, measure)

    # --- prediction ------------------------------------------------------------------------------

    def predict(self, X: Tabular) -> Array:
        """Return f, (n,) or (n, t), in the array library of X and float64."""
        check_is_fitted(self, "walk_")
        f, like = walk.values(self, X)
        return from_numpy(f.reshape(len(f), *self.target_shape_), like=like)

    # --- what was learned ------------------------------------------------------------------------

    @property
    def coef_(self) -> Float[Array, " D"]:
        """β, (D,) or (t, D)."""
        coef = primal(self).T
        return coef if self.target_shape_ else coef[0]

    @property
    def dual_coef_(self) -> Float[Array, " m"]:
        """Coefficients of ``support_vectors_``, (m,) or (t, m)."""
        coef = dual(self).T
        return coef if self.target_shape_ else coef[0]

    @property
    def intercept_(self) -> Any:
        """b, a number or (t,)."""
        intercept = fitted(self)[1]
        return intercept if self.target_shape_ else float(intercept[0])

    def set_params(self, **params: Any) -> Self:
        """Set parameters; ``kernel__lengthscale`` and the like replace the kernel's numbers."""
        return set_kernel_params(self, params)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = accepts_sparse(self.kernel)
        return tags


def _check_numbers(model: KernelSGDRegressor) -> None:
    check(model, NUMBER_LOSSES)
    nonnegative(model.epsilon, "KernelSGDRegressor", "epsilon")
    if not 0 < nonnegative(model.quantile, "KernelSGDRegressor", "quantile") < 1:
        raise InvalidInput(
            f"KernelSGDRegressor: quantile must be between 0 and 1; got {model.quantile}."
        )


def _note_targets(model: KernelSGDRegressor, blocks: Blocks, first: bool) -> None:
    """Set the shape of one row of y, or hold it to the one before."""
    shape = tuple(required_targets("KernelSGDRegressor", next(iter(blocks)).y).shape[1:])
    if not first and shape != model.target_shape_:
        raise InvalidInput(
            "KernelSGDRegressor: y must have the same targets in every call; got rows of shape "
            f"{model.target_shape_} before and {shape} now."
        )
    model.target_shape_ = shape
