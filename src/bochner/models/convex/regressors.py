"""Support vector regression, and regression by any convex loss, at any number of rows."""

from collections.abc import Callable
from dataclasses import KW_ONLY, replace
from typing import Any

import numpy as np
from sklearn.utils import Tags

from bochner._core.arrays import array_namespace
from bochner._core.checks import nonnegative, one_of, positive
from bochner._core.random import Seed
from bochner._core.shapes import Array, Float, Gradients, Tabular
from bochner.data.blocks import Blocks
from bochner.data.schema import Inputs
from bochner.errors import InvalidInput, InvalidType
from bochner.features.map import Method
from bochner.kernels.kernel import Kernel
from bochner.models._base import Differentiable, learned
from bochner.models._intervals import WithIntervals
from bochner.models._labels import log_probabilities
from bochner.models._parameters import KernelParameters, estimator
from bochner.models.convex.fit import ConvexEstimator, ConvexFit, number_or_word
from bochner.models.convex.regression import fit_regressor, fit_svr_exactly, one_or_each
from bochner.models.error_law import LeftOutRows
from bochner.solvers.convex.losses import (
    LOG_LINK,
    EpsilonInsensitive,
    Loss,
    Multinomial,
    Quantile,
    SquaredEpsilonInsensitive,
    by_name,
)
from bochner.solvers.convex.problem import best_constant
from bochner.sums.passes import LOCAL, Executor


class ConvexRegressor(Differentiable, WithIntervals, ConvexEstimator):
    """A regressor by a convex loss."""

    def _left_out(self) -> LeftOutRows | None:
        errors = self._fitted.left_out
        if errors is None:
            return None
        y, known = errors.predicted + errors.errors, np.isfinite(errors.errors)
        prediction = self._centre(self._predicted(errors.predicted))
        y, known = y[:, : prediction.shape[1]], known[:, : prediction.shape[1]]
        return replace(errors, predicted=prediction, errors=np.where(known, y - prediction, np.inf))

    intercept_ = learned("solution.intercept", "b, a number or (t,).", by_target=True)


@estimator
class SVR(KernelParameters, ConvexRegressor):
    """Support vector regression: of few rows with the kernel itself, else through features.

    Minimises ½‖β‖² + C Σ wᵢ max(0, |yᵢ − φ(xᵢ)·β − b| − epsilon) where φ(x)·φ(y) ≈ k(x, y): the
    problem of scikit-learn's ``SVR`` with the kernel φ(x)·φ(y), for any number of rows.

    Parameters
    ----------
    %(kernel or auto)s
    method : Method, str or None, default None
        None: up to 2048 rows the kernel itself, with no features, unless ``n_features``,
        ``precision`` or ``fit_intercept=False`` ask for them, and "auto" for more. "auto" or a
        method: how features are made; see :func:`bochner.draw`.
    %(n_features or exact)s
    C : "auto" or float, default "auto"
        Weight of the loss against the penalty, above zero; a number means what it does in
        scikit-learn, in the units of y. "auto" is the one at which rows that were left out of a
        sample of some thousand lose the least.
    epsilon : "auto" or float, default "auto"
        Errors up to this cost nothing; zero or above, in the units of y. "auto" is a twentieth of
        the mean distance of y from its median.
    loss : {"epsilon_insensitive", "squared_epsilon_insensitive"}, default "epsilon_insensitive"
        The squared one is smooth, and faster to fit.
    tol : float, default 1e-6
        The objective is at most this share above its least value; with the kernel itself as near
        as LIBSVM comes, mostly to 1e-4: ``solution_.gap``.
    max_iter : int, default 200
        Newton steps at most; with the kernel itself, moves of LIBSVM for each row.

    See Also
    --------
    KernelRegressor : Regression by any convex loss.
    KernelRidge : Regression by squares.

    Notes
    -----
    Targets are fitted in a unit near their spread: with C and epsilon "auto" s y is fitted as y is,
    for every s. With the kernel itself LIBSVM minimises, in a time between n² and n³ for each
    penalty. Through features time O(steps (n D + a D²)), a the rows near the edge of the tube, few
    at the end (:mod:`bochner.solvers.convex.newton`); features are kept where a quarter of the free
    memory holds them.

    Examples
    --------
    >>> import numpy as np
    >>> from bochner import SVR
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-3, 3, (300, 1))
    >>> y = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(300)
    >>> model = SVR("gaussian", random_state=0).fit(X, y)
    >>> bool(abs(model.predict([[1.0]])[0] - np.sin(1.0)) < 0.1)
    True
    """

    kernel: Kernel | str = "auto"
    _: KW_ONLY
    C: float | str = "auto"
    epsilon: float | str = "auto"
    loss: str = "epsilon_insensitive"
    tol: float = 1e-6
    max_iter: int = 200

    def _fit(self, blocks: Blocks, inputs: Inputs, where: Executor = LOCAL) -> ConvexFit:
        kinds = "epsilon_insensitive", "squared_epsilon_insensitive"
        squared = one_of(self.loss, "SVR", "loss", kinds) == kinds[1]
        loss: Loss = SquaredEpsilonInsensitive() if squared else EpsilonInsensitive()
        C = number_or_word(self.C, "SVR", "C", positive)
        epsilon = number_or_word(self.epsilon, "SVR", "epsilon", nonnegative)
        tube = {"epsilon": "auto" if epsilon is None else epsilon}
        spec = self._convex_spec(loss, None if C is None else 1 / C, **tube)
        served = where is LOCAL and (spec.fit_intercept or not loss.nonsmooth)
        if served and self._on_kernel(blocks, 2048):
            return fit_svr_exactly(spec, blocks, inputs)
        return fit_regressor(spec, blocks, inputs, where)

    def _ridge_penalty(self, X: Any, n: int) -> float:
        return 1 / (2 * float(np.min(self.C_)))

    @property
    def C_(self) -> Any:
        """C, the weight of the loss that was used; (t,) where targets differ."""
        return 1 / self.solution_.alpha

    @property
    def epsilon_(self) -> Any:
        """The errors that cost nothing, in the units of y; (t,) where targets differ."""
        return one_or_each(self._fitted.loss.epsilon)


@estimator
class KernelRegressor(ConvexRegressor):
    """Regression through features by any convex loss: medians, quantiles, counts, a user's own.

    Minimises Σ wᵢ loss(yᵢ, φ(xᵢ)·β + b) + (alpha/2)‖β‖² where φ(x)·φ(y) ≈ k(x, y), or with alpha
    times any function of the norm ‖f‖ = ‖β‖ that never falls.

    Parameters
    ----------
    kernel : Kernel or str, default "gaussian"
        A value is used as it is; a name means: of this family, with the lengthscale chosen from a
        sample of the rows, as in :class:`bochner.KernelRidge`.
    loss : str or Loss, default "squared"
        "squared" (y − f)²/2; "absolute" |y − f|, the conditional median; "huber", squares up to
        1.35 standard deviations of the noise, which is estimated along with the fit as in
        scikit-learn's ``HuberRegressor``, and straight from there; "quantile", one for each of
        ``quantiles``; "poisson" (y ≥ 0) and "gamma" (y > 0), half the deviance with a log link,
        as in scikit-learn's GLMs, times the number of rows; "multinomial", for rows of shares that
        sum to one, log Σ exp f_k − Σ y_k f_k, whose predictions are softmax(f). Or a value, such
        as :class:`Huber`, :class:`CustomLoss` or, for several outputs together, :class:`JointLoss`.
    quantiles : float or sequence of float, default (0.1, 0.5, 0.9)
        Levels for loss="quantile". Several are columns of the prediction and never cross: they
        are sorted in each row (Chernozhukov et al. 2010), which brings them nearer to the truth.
    %(method)s
    %(n_features)s
    alpha : float or "holdout", default "holdout"
        The penalty. "holdout" chooses it along a path, by the loss of a fifth of the rows that is
        left out; the last fit has all rows.
    penalty : callable, optional
        R, a function of a number r = ‖β‖ (of all targets together) that never falls, infinite
        where no fit may be: ``lambda r: r``, ``lambda r: 0 if r <= 3 else np.inf``. The penalty is
        then alpha·R(‖β‖), alpha a number, and not (alpha/2)‖β‖². For any R the minimum is that for
        squares at one penalty, ``alpha_``, which is searched for: about 40 fits.
    tol : float, default 1e-6
        The objective is at most about this share above its least value.
    max_iter : int, default 200
        Newton steps at most.

    See Also
    --------
    KernelRidge : Regression by squares, in one pass over the rows.
    SVR : Regression where small errors cost nothing.

    Notes
    -----
    Targets are fitted in a unit near their spread, so that s y is fitted as y is for every s, but
    with losses of a log link and custom ones. Time O(steps (n D + a D²)), a the active rows: all
    for smooth losses, few for others.

    Examples
    --------
    >>> import numpy as np
    >>> from bochner import KernelRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-3, 3, (500, 1))
    >>> y = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(500)
    >>> model = KernelRegressor(loss="quantile", quantiles=(0.1, 0.9), random_state=0).fit(X, y)
    >>> low, high = model.predict([[1.0]])[0]
    >>> bool(low < np.sin(1.0) < high)
    True
    """

    kernel: Kernel | str = "gaussian"
    _: KW_ONLY
    loss: str | Loss = "squared"
    quantiles: Any = (0.1, 0.5, 0.9)
    method: Method | str = "auto"
    n_features: int | float | str = 1024
    metric: str | None = None
    columns: str = "auto"
    alpha: float | str = "holdout"
    penalty: Callable[[float], float] | None = None
    fit_intercept: bool = True
    tol: float = 1e-6
    max_iter: int = 200
    precision: str = "auto"
    random_state: Seed = None
    n_jobs: int | None = None

    def _fit(self, blocks: Blocks, inputs: Inputs, where: Executor = LOCAL) -> ConvexFit:
        loss = by_name(self.loss, self.quantiles)
        alpha = number_or_word(self.alpha, "KernelRegressor", "alpha", nonnegative, "holdout")
        asked = {"finds_scale": self.loss == "huber", "one_level": np.ndim(self.quantiles) == 0}
        spec = self._convex_spec(loss, alpha, norm=self.penalty, **asked)
        if self.penalty is not None and not callable(self.penalty):
            raise InvalidType(
                "KernelRegressor: penalty must be a function of the norm; got "
                f"{self.penalty!r}. Pass, say, lambda r: r."
            )
        if self.penalty is not None and (not alpha or self.loss == "huber"):
            raise InvalidInput(
                "KernelRegressor: with a penalty of the norm alpha must be a number above zero, "
                f"and a threshold of Huber's loss given; got alpha={self.alpha!r}, "
                f"loss={self.loss!r}. Pass alpha=1.0, or Huber(threshold)."
            )
        return fit_regressor(spec, blocks, inputs, where)

    def _predicted(self, f: Float[Array, "b t"]) -> Float[Array, "b t"]:
        xp = array_namespace(f)
        if isinstance(self.loss_, LOG_LINK):
            return xp.exp(xp.minimum(f, 700.0))
        if isinstance(self.loss_, Multinomial):
            return xp.exp(log_probabilities(f))
        return xp.sort(f, axis=1) if _several_levels(self.loss_) else f

    def _gradients(self, blocks: Blocks) -> Gradients:
        for X, G in self._fitted.gradients(blocks):
            f = np.concatenate([f for _, f in self._fitted.predictions(Blocks.from_arrays(X))])
            if isinstance(self.loss_, LOG_LINK):
                yield X, self._predicted(f)[:, None, :] * G
            elif isinstance(self.loss_, Multinomial):
                p = self._predicted(f)[:, None, :]
                yield X, p * (G - (p * G).sum(axis=2, keepdims=True))
            elif _several_levels(self.loss_):
                yield X, np.take_along_axis(G, np.argsort(f, axis=1)[:, None, :], axis=2)
            else:
                yield X, G

    def _centre(self, predicted: Float[Array, "b t"]) -> Float[Array, "b t"]:
        loss = self.loss_
        if not (isinstance(loss, Quantile) and _several_levels(loss)):
            return predicted
        nearest = int(np.argmin(np.abs(np.sort(loss.level) - 0.5)))
        return predicted[:, nearest : nearest + 1]

    def score(self, X: Tabular, y: Array, sample_weight: Array | None = None) -> float:
        """Return the share of the best constant's loss that the model explains, 1 at best.

        For the squared loss this is R², for others its generalisation (D²); the mean over targets.
        """
        fitted = np.concatenate([f for _, f in self._fitted.predictions(self._rows_to_predict(X))])
        fitted = np.sort(fitted, axis=1) if _several_levels(self.loss_) else fitted
        y = np.broadcast_to(np.asarray(y, np.float64).reshape(len(fitted), -1), fitted.shape)
        w = np.ones((len(y), 1)) if sample_weight is None else np.asarray(sample_weight)[:, None]
        loss, w = self.loss_, np.broadcast_to(w, y.shape)
        lost = (w * loss.value(y, fitted)).sum(axis=0)
        best = np.broadcast_to(best_constant(loss, y, w), y.shape)
        most = (w * loss.value(y, best)).sum(axis=0)
        return float(np.mean(1 - lost / np.maximum(most, 1e-300)))

    loss_ = learned("loss", "The loss as a value, with its numbers.")
    alpha_ = learned(
        "solution.alpha", "The penalty used; (t,) where targets differ in their units."
    )

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = self.loss in ("poisson", "gamma")
        return tags


def _several_levels(loss: Loss) -> bool:
    return isinstance(loss, Quantile) and isinstance(loss.level, tuple) and len(loss.level) > 1
