"""Learning by stochastic gradient descent in the space of a kernel."""

from copy import deepcopy
from dataclasses import KW_ONLY
from functools import partial
from typing import Any, Self

import numpy as np
from sklearn.utils.metaestimators import available_if

from bochner._core.arrays import array_namespace
from bochner._core.random import Seed
from bochner._core.shapes import Array, Float, Tabular
from bochner._core.sizes import kept_rows
from bochner.data.blocks import Blocks
from bochner.data.schema import Inputs
from bochner.errors import InvalidInput
from bochner.features.map import FeatureMap, Method
from bochner.kernels.kernel import Kernel
from bochner.models._base import Differentiable, KernelEstimator, learned
from bochner.models._intervals import WithIntervals
from bochner.models._labels import LabelEstimator
from bochner.models._parameters import by_jobs, estimator, shared
from bochner.models.sgd.fit import (
    SgdFit,
    SgdSpec,
    StrategyPlan,
    fit_sgd,
    fit_stream,
    plan_sgd,
    with_rows_of,
)
from bochner.solvers.sgd import CLASS_LOSSES, NUMBER_LOSSES
from bochner.sums.passes import LOCAL, Executor


@shared
class SgdEstimator(Differentiable):
    """An estimator whose ``fit_`` is a :class:`SgdFit`."""

    _losses = CLASS_LOSSES

    strategy: str = "auto"
    method: Method | str = "auto"
    n_features: int = 1024
    alpha: float = 1e-4
    fit_intercept: bool = True
    batch_size: int = 32
    eta0: float | str = "auto"
    average: bool | int = False
    max_iter: int = 1000
    tol: float | None = 1e-3
    early_stopping: bool = False
    validation_fraction: float = 0.1
    n_iter_no_change: int = 5
    shuffle: bool = True
    warm_start: bool = False
    random_state: Seed = None
    n_jobs: int | None = None

    def _spec(self, before: SgdFit | None = None, **instead: Any) -> SgdSpec:
        """Check the parameters; a seed is drawn once."""
        if before is not None:
            instead["random_state"] = before.chosen.seed
        asked = vars(self) | instead
        return SgdSpec.of(type(self).__name__, self._losses, asked)

    def _fit_rows(self, X: Any, y: Any, sample_weight: Any) -> SgdFit:
        """Step on from the last fit, if ``warm_start`` asks for it."""
        before = self.fit_ if self.warm_start and self.__sklearn_is_fitted__() else None
        blocks, inputs = self._read(X, y, sample_weight, before is None)
        return self._run(partial(fit_sgd, self._spec(before)), blocks, inputs, before)

    def _fit(self, blocks: Blocks, inputs: Inputs, where: Executor = LOCAL) -> SgdFit:
        n = blocks.n_rows
        if where is LOCAL and n is not None and n <= kept_rows(blocks.n_columns):
            return fit_sgd(self._spec(), blocks, inputs)
        return fit_stream(self._spec(), blocks, inputs, where)

    def _first_piece(self, blocks: Blocks, inputs: Inputs) -> SgdFit:
        return with_rows_of(None, self._spec(), blocks, inputs)

    def _with_rows(self, blocks: Blocks, inputs: Inputs) -> SgdFit:
        return with_rows_of(self.fit_, self._spec(self.fit_), blocks, inputs)

    def plan(self, X: Tabular, y: Array | None = None) -> StrategyPlan:
        """Return the predicted cost of each of the six strategies for a fit to these rows.

        Parameters
        ----------
        X : (n, d)
        y : (n,) or (n, t), optional
            Without targets, one output is assumed.

        Returns
        -------
        StrategyPlan
            ``print`` shows the table; a star marks the strategy that "auto" chooses.

        Notes
        -----
        T = n·epochs steps of one row take T (φ + s(D)) operations with features that are made for
        each step, and n φ + T s(D) with features that are kept, which are n D numbers; T (n k +
        s(n)) with kernel values, and n² k + T s(n) with the Gram matrix, n² numbers. φ and k take
        30 + d/4 operations for each number, s(D) 4 D for each target.
        """
        blocks, inputs = KernelEstimator._read(self, X) if y is None else self._read(X, y)
        spec = self._spec(strategy="auto", random_state=deepcopy(self.random_state))
        return plan_sgd(spec, blocks, inputs)

    def _stepped_on(self, *, rows: bool) -> SgdFit:
        """Return the fit, whose coefficients must belong to rows, or to features."""
        fit = self._fitted
        if fit.is_dual != rows:
            owner = "rows: dual_coef_ of support_vectors_" if fit.is_dual else "features: coef_"
            raise AttributeError(
                f"{type(self).__name__}: with strategy {fit.strategy!r} coefficients belong to "
                f"{owner}."
            )
        return fit

    def _ridge_penalty(self, X: Any, n: int) -> float:
        return float(self.alpha) * n / 2  # of a mean of losses

    plan_ = learned(
        "plan",
        'A StrategyPlan: what "auto" decided by.',
        'plan_: only fit with strategy="auto" makes a plan.',
    )

    @property
    def map_(self) -> FeatureMap:
        """φ, where steps are made on features."""
        return self._stepped_on(rows=False).chosen.map

    @property
    def support_vectors_(self) -> Float[Array, "m d"]:
        """Rows that have coefficients, where steps are made on these."""
        return self._stepped_on(rows=True).support

    @property
    def coef_(self) -> Any:
        """β, a row for each output, (t, D) or (K, D); of a single target (D,)."""
        return self._by_target(self._stepped_on(rows=False).walk.result[0].T)

    @property
    def dual_coef_(self) -> Any:
        """Coefficients of ``support_vectors_``, (t, m) or (K, m); of a single target (m,)."""
        return self._by_target(self._stepped_on(rows=True).walk.result[0].T)

    @property
    def intercept_(self) -> Any:
        """Intercept of each output; of a single target a number."""
        return self._by_target(self._fitted.walk.result[1])

    strategy_ = learned("strategy", "The strategy taken.")
    loss_curve_ = learned(
        "losses", "Of each epoch of the last fit: mean loss of its rows before their steps."
    )
    validation_scores_ = learned("scores", "Of each epoch of the last fit: score on rows held out.")
    t_ = learned("walk.steps", "Steps in all.")

    @property
    def n_iter_(self) -> int:
        """Epochs of the last fit."""
        return len(self._fitted.losses)


def _has_probabilities(model: "KernelSGDClassifier") -> bool:
    if model.loss in ("log_loss", "modified_huber"):
        return True
    raise AttributeError(
        f"KernelSGDClassifier: probabilities require loss='log_loss' or 'modified_huber'; "
        f"this one has loss={model.loss!r}."
    )


@estimator
class KernelSGDClassifier(LabelEstimator, SgdEstimator):
    """Linear classification on a kernel's features by stochastic gradient descent.

    Minimises (1/W) Σ wᵢ ℓ(yᵢ, f(xᵢ)) + (alpha/2) ‖f‖² over f = φ(x)·β + b, y = ±1, for each class
    against the others, by steps on batches of rows in random order.

    Parameters
    ----------
    kernel : Kernel or str, default "gaussian"
        A value is used as it is; a name means this family, with the lengthscale chosen from rows.
    loss : str, default "hinge"
        "hinge", "squared_hinge", "log_loss", "modified_huber" or "perceptron", as scikit-learn
        scales them.
    strategy : str, default "auto"
        Inputs of the steps. "exact_on_the_fly", "exact_cached": the exact features of a kernel
        with finitely many features (Linear, Polynomial, their sums and products).
        "kernel_on_the_fly", "gram_cached": kernel values, steps on coefficients of rows.
        "approximate_on_the_fly", "approximate_cached": n_features features by ``method``.
        "auto": the fewest operations that fit in memory, by :meth:`plan`. The two strategies of a
        pair give the same model up to rounding; so do the first four for finitely many features.
    method, n_features : default "auto", 1024
        Method and number of approximate features; see :func:`bochner.draw`.
    alpha : float, default 1e-4
        Penalty, relative to the mean loss.
    batch_size : int, default 32
        Rows per step.
    learning_rate : str, default "optimal"
        "optimal", "constant", "invscaling" (eta0/step^power_t) or "adaptive" (eta0, divided by 5
        whenever the loss no longer falls).
    eta0 : float or "auto", default "auto"
        "auto" is 1/(L (mean k(x, x) + 1)), L the largest curvature of the loss (1 where it has
        kinks).
    power_t : float, default 0.5
    average : bool or int, default False
        Predict with the mean of the coefficients over all steps, or from this step on.
    max_iter : int, default 1000
        Epochs at most.
    tol : float or None, default 1e-3
        Stop once the mean loss of an epoch (with early_stopping: minus the score) has not fallen
        by this below its least for n_iter_no_change epochs. None runs max_iter epochs.
    early_stopping : bool, default False
        Stop by the accuracy on rows held out.
    validation_fraction, n_iter_no_change : default 0.1, 5
    shuffle : bool, default True
        Whether the order is random in each epoch; it depends on the seed and the epoch alone.
    warm_start : bool, default False
        Whether ``fit`` continues from the last fit, with its kernel, map and strategy.

    See Also
    --------
    LogisticRegression : The minimum of a logistic loss, by Newton steps.
    KernelSGDRegressor : Regression by stochastic gradients.

    Notes
    -----
    Probabilities are 1/(1 + e^{−f}) with the logistic loss, and (min(max(f, −1), 1) + 1)/2 with the
    modified Huber loss (Zhang 2004), divided by their sum over the classes.

    Time and memory: see :meth:`plan`. With ``partial_fit`` features need O(D) memory for ever,
    coefficients of rows grow with them. ``fit_blocks`` of more than 8192 rows steps on features,
    in an epoch on all rows, which it shuffles within windows of 8192: shuffle sorted rows before.

    Examples
    --------
    >>> import numpy as np
    >>> from bochner import KernelSGDClassifier
    >>> X = np.random.default_rng(0).standard_normal((300, 2))
    >>> ring = (X**2).sum(axis=1) > 1.5
    >>> model = KernelSGDClassifier(strategy="approximate_cached", random_state=0).fit(X, ring)
    >>> bool(model.score(X, ring) > 0.95)
    True
    """

    kernel: Kernel | str = "gaussian"
    _: KW_ONLY
    loss: str = "hinge"
    learning_rate: str = "optimal"
    power_t: float = 0.5
    class_weight: Any = None

    @by_jobs
    def partial_fit(
        self, X: Tabular, y: Array, classes: Array | None = None, sample_weight: Array | None = None
    ) -> Self:
        """Step once on each of these rows.

        Parameters
        ----------
        X, y, sample_weight
            As for :meth:`fit`.
        classes : (K,), optional
            All classes that the stream will have; needed in the first call where its rows do not
            have them all.

        Notes
        -----
        The first call chooses lengthscale, map and strategy from its rows; "auto" is then a
        strategy on the fly, with the kernel's own features where these are no more than
        n_features.
        """
        if self.class_weight == "balanced":
            raise InvalidInput(
                "KernelSGDClassifier.partial_fit: class_weight='balanced' requires all rows at "
                "once; pass a dict of class: weight."
            )
        return self._add_rows(X, y, sample_weight, classes=classes)

    predict_proba = available_if(_has_probabilities)(LabelEstimator.predict_proba)
    predict_log_proba = available_if(_has_probabilities)(LabelEstimator.predict_log_proba)

    def _probabilities(self, f: Float[Array, "n t"]) -> Float[Array, "n K"]:
        xp = array_namespace(f)
        if self.loss == "log_loss":
            p = xp.exp(xp.minimum(f, 0.0)) / (1.0 + xp.exp(-xp.abs(f)))  # with no overflow
        else:
            p = (xp.clip(f, -1.0, 1.0) + 1.0) / 2.0
        if p.shape[1] == 1:
            return xp.concat([1.0 - p, p], axis=1)
        total = xp.sum(p, axis=1, keepdims=True)
        none = total == 0.0
        return xp.where(none, 1.0, p) / xp.where(none, float(p.shape[1]), total)

    def _log_probabilities(self, f: Float[Array, "n t"]) -> Float[Array, "n K"]:
        with np.errstate(divide="ignore"):
            return np.log(self._probabilities(f))


@estimator
class KernelSGDRegressor(WithIntervals, SgdEstimator):
    """Linear regression on a kernel's features by stochastic gradient descent.

    Minimises (1/W) Σ wᵢ ℓ(yᵢ, f(xᵢ)) + (alpha/2) ‖f‖² over f = φ(x)·β + b, by steps on batches of
    rows in random order; several targets share the steps.

    Parameters
    ----------
    kernel, strategy, method, n_features, alpha, fit_intercept, batch_size, average, max_iter, tol,
    early_stopping, validation_fraction, n_iter_no_change, shuffle, warm_start
        See :class:`KernelSGDClassifier`; rows held out are judged by R².
    loss : str, default "squared_error"
        "squared_error" ((y − f)²/2), "huber", "epsilon_insensitive",
        "squared_epsilon_insensitive" or "quantile".
    learning_rate : str, default "invscaling"
        As there; "invscaling" is eta0/step^power_t.
    eta0, power_t : default "auto", 0.25
    epsilon : float, default 0.1
        Of "huber", where its slope stops to grow; of the insensitive losses, what counts nothing.
    quantile : float, default 0.5

    See Also
    --------
    KernelRegressor : The minimum of any convex loss, by Newton steps.
    KernelSGDClassifier : Classification by stochastic gradients.

    Examples
    --------
    >>> import numpy as np
    >>> from bochner import KernelSGDRegressor
    >>> X = np.random.default_rng(0).uniform(-3, 3, (500, 1))
    >>> model = KernelSGDRegressor(alpha=0, tol=None, max_iter=50, random_state=0)
    >>> bool(model.fit(X, np.sin(X[:, 0])).score(X, np.sin(X[:, 0])) > 0.99)
    True
    """

    _losses = NUMBER_LOSSES

    kernel: Kernel | str = "gaussian"
    _: KW_ONLY
    loss: str = "squared_error"
    learning_rate: str = "invscaling"
    power_t: float = 0.25
    epsilon: float = 0.1
    quantile: float = 0.5

    @by_jobs
    def partial_fit(self, X: Tabular, y: Array, sample_weight: Array | None = None) -> Self:
        """Step once on each of these rows; see :meth:`KernelSGDClassifier.partial_fit`."""
        return self._add_rows(X, y, sample_weight)
