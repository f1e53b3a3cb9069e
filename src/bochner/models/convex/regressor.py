"""Regression by any convex loss, at any number of rows."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from bochner._core.checks import nonnegative
from bochner._core.random import Seed
from bochner._core.shapes import Array, Float
from bochner.data.blocks import Blocks
from bochner.errors import InvalidInput
from bochner.features import Method
from bochner.kernels import Kernel
from bochner.models import _engine
from bochner.models._alike import N_FOLDS, left_out
from bochner.models._inputs import fit_blocks_of, note_columns, predict_blocks_of
from bochner.models._state import all_or_nothing, set_kernel_params
from bochner.models.convex import iterated
from bochner.selection.search import accepts_sparse
from bochner.selection.width import Tolerance
from bochner.solvers.convex.driver import solve
from bochner.solvers.convex.losses import (
    LOG_LINK,
    Absolute,
    Gamma,
    Loss,
    Poisson,
    by_name,
    huber_scale,
    hubers,
)
from bochner.solvers.convex.optimum import Optimum
from bochner.solvers.convex.penalty_path import HeldOutPath, path_of, stopped_early, take_steps
from bochner.solvers.convex.problem import Problem, State, best_constant, optimum

#: The threshold of Huber's loss, in standard deviations of the noise: 95 % as efficient as squares.
HUBER_SCALES = 1.35

#: Scales below this share of the standard deviation mean that half of y is one number.
SPIKE = 1e-3

#: Rounds of fit and scale, at most, and the relative change of the scale that ends them.
SCALE_ROUNDS, SCALE_CHANGE = 30, 1e-6


class KernelRegressor(MultiOutputMixin, RegressorMixin, BaseEstimator):
    """Regression through features by any convex loss: medians, quantiles, counts, a user's own.

    Minimises Σ wᵢ loss(yᵢ, φ(xᵢ)·β + b) + (alpha/2)‖β‖² where φ(x)·φ(y) ≈ k(x, y).

    Parameters
    ----------
    kernel : Kernel or str, default "gaussian"
        A value is used as it is; of a name the lengthscale is chosen from a sample of the rows.
    loss : str or Loss, default "squared"
        "squared" (y − f)²/2; "absolute" |y − f|, the conditional median; "huber", squares up to
        1.35 standard deviations of the noise, which is estimated along with the fit as in
        scikit-learn's ``HuberRegressor`` (with early stopping: that of y about its median), and
        straight from there; "quantile", one for each of
        ``quantiles``; "poisson" (y ≥ 0) and "gamma" (y > 0), half the deviance with a log link,
        as in scikit-learn's GLMs, times the number of rows. Or a value: ``Huber(0.5)``,
        ``CustomLoss(value, slope, curvature)``.
    quantiles : float or sequence of float, default (0.1, 0.5, 0.9)
        Levels for loss="quantile". Several are columns of the prediction and never cross: they
        are sorted in each row (Chernozhukov et al. 2010), which brings them nearer to the truth.
    method : Method or str, default "auto"
        How features are made; see :func:`bochner.draw`.
    n_features : int, "auto" or Tolerance, default 1024
        D.
    metric : None or "learned", default None
        "learned": columns are scaled and turned by the gradients of a few fits on a sample of
        rows; see :class:`bochner.KernelRidge`.
    alpha : float or {"holdout", "kfold"}, default "holdout"
        The penalty, or how to choose it along a path: by the loss of a fifth of the rows that is
        left out, or of five fifths in turn. The last fit has all rows.
    early_stopping : bool, default False
        Whether the number of steps of a descent is the regulariser instead: chosen by a fifth of
        the rows that is left out, then taken on all. alpha is then added only if it is a number.
    precision : {"auto", "float32", "float64"}, default "auto"
        Of the features; "auto" is float64 where the fit is small.
    fit_intercept : bool, default True
        Whether b is fitted (unpenalised) or zero.
    tol : float, default 1e-6
        The objective is at most about this share above its least value.
    max_iter : int, default 200
        Newton steps, or steps of the descent that is stopped early, at most.
    random_state : int, Generator, RandomState or None, default None
        Seed of features, samples and folds.

    Attributes
    ----------
    kernel_, map_, choice_, search_
        The kernel with its numbers, φ, and how both were chosen.
    loss_ : Loss
        The loss as a value, with its numbers.
    solution_ : Optimum
        Coefficients, duality gap, outcome, and what every step did.
    path_ : HeldOutPath or None
        Penalties and what the rows left out lost.
    alpha_ : float or (t,)
        The penalty used; one for each target where the loss is not quadratic and their units
        differ.
    coef_ : (D,) or (t, D)
    intercept_ : float or (t,)
    n_iter_ : int
        Steps taken in the last fit.
    stopping_errors_ : (s,)
        With early stopping: what the rows left out lost after each step, as a share of the first.
    n_features_in_ : int
    feature_names_in_ : (d,) of str
        Where the rows had names.

    Notes
    -----
    Targets are fitted in a unit near their spread, a power of two, so that s y is fitted as y is
    for every s, but with losses of a log link and custom ones.

    Time O(steps (n D + a D²)), a the rows that bend the loss: all for smooth losses, few for
    others. Five folds share their sweeps, not their Hessians.
    """

    solution_: Optimum
    target_shape_: tuple[int, ...]

    def __init__(
        self,
        kernel: Kernel | str = "gaussian",
        *,
        loss: str | Loss = "squared",
        quantiles: Any = (0.1, 0.5, 0.9),
        method: Method | str = "auto",
        n_features: int | str | Tolerance = 1024,
        metric: str | None = None,
        alpha: float | str = "holdout",
        early_stopping: bool = False,
        precision: str = "auto",
        fit_intercept: bool = True,
        tol: float = 1e-6,
        max_iter: int = 200,
        random_state: Seed = None,
    ) -> None:
        self.kernel = kernel
        self.loss = loss
        self.quantiles = quantiles
        self.method = method
        self.n_features = n_features
        self.metric = metric
        self.alpha = alpha
        self.early_stopping = early_stopping
        self.precision = precision
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state

    # --- fitting ---------------------------------------------------------------------------------

    @all_or_nothing
    def fit(self, X: Float[Array, "n d"], y: Array, sample_weight: Array | None = None) -> Self:
        """Fit to rows in memory.

        Parameters
        ----------
        X : (n, d)
            Array, sparse matrix, or table.
        y : (n,) or (n, t)
            One column for several quantiles.
        sample_weight : (n,), optional
            Finite, not negative. A row of weight 2 counts as two rows.

        Raises
        ------
        InvalidInput, ValueError
            If the data are not what was required; the message says what to do.
        """
        return self._fit(fit_blocks_of(self, X, y, sample_weight, reset=True))

    @all_or_nothing
    def fit_blocks(self, blocks: Blocks) -> Self:
        """Fit to blocks: files larger than memory, tables, streams that can be read again."""
        note_columns(self, blocks, reset=True)
        return self._fit(blocks)

    def _fit(self, blocks: Blocks) -> Self:
        asked, alpha = by_name(self.loss, self.quantiles), _as_alpha(self.alpha)
        rows = iterated.scaled(self, blocks, asked.degree)
        features = iterated.prepare(self, rows.blocks, self._like_ridge(asked, alpha, rows))
        y, w = iterated.targets_of(self, features)
        y = self._columns(asked, np.where(w > 0, y, y[w[:, 0] > 0][0]))
        rows = rows.repeated(y.shape[1] // len(rows.units))
        _check_targets(asked, y, w)
        loss, intercept = asked.in_units(rows.units), bool(self.fit_intercept)
        problem = Problem(features, y, w, loss, 0.0, intercept, value=rows.value)
        if self.loss == "huber":
            problem = replace(problem, loss=_first_huber(problem))
        self.path_: HeldOutPath | None = None
        self.n_iter_ = 0
        alpha = alpha if isinstance(alpha, str) else rows.penalty(alpha)
        if self.early_stopping:
            alpha = 0.0 if isinstance(alpha, str) else alpha
            problem, found = self._stopped(replace(problem, alpha=alpha), rows.blocks)
        else:
            problem, found = self._descended(problem, alpha, rows.blocks)
        if self.path_ is not None:
            first = np.atleast_1d(rows.original(1.0))[0]
            self.path_ = replace(self.path_, alphas=first * self.path_.alphas)
        self.loss_ = problem.loss.in_units(1 / rows.units) if self.loss == "huber" else asked
        self.solution_ = optimum(problem, found, rows.units, rows.original(problem.alpha))
        iterated.warn(self.solution_.outcome)
        return self

    def _columns(self, loss: Loss, y: Float[Array, "n t"]) -> Float[Array, "n t"]:
        """Return y with a column for each quantile."""
        levels = getattr(loss, "level", None)
        if not isinstance(levels, tuple):
            return y
        if y.shape[1] > 1 and len(levels) > 1:
            raise InvalidInput(
                f"KernelRegressor: several quantiles need one target; got {len(levels)} quantiles "
                f"and {y.shape[1]} targets. Fit the targets one by one, or ask for one quantile."
            )
        if len(levels) == 1 and np.ndim(self.quantiles) == 0:
            return y
        if y.shape[1] > 1:
            return y
        self.target_shape_ = (len(levels),)
        return np.repeat(y, len(levels), axis=1)

    def _like_ridge(self, loss: Loss, alpha: float | str, rows: iterated.Scaled) -> float | None:
        """Return a given penalty as that of squares, where the two compare."""
        if isinstance(alpha, str) or self.early_stopping or isinstance(loss, LOG_LINK):
            return None
        spread = iterated.spread_of(rows.blocks) if loss.nonsmooth else 1.0
        return spread * float(np.mean(rows.penalty(alpha)))

    def _descended(self, problem: Problem, alpha: Any, blocks: Blocks) -> tuple[Problem, State]:
        """Return the problem with its penalty, and the minimum."""
        at = None
        if isinstance(alpha, str):
            out = self._left_out(problem, blocks, N_FOLDS if alpha == "kfold" else 1)
            self.path_, at = path_of(problem, out, self.max_iter)
            alpha = self.path_.alpha
        problem = replace(problem, alpha=alpha)
        found = solve(problem, at, tol=self.tol, max_iter=self.max_iter)
        self.n_iter_ = len(found.steps)
        return self._with_scale(problem, found) if self.loss == "huber" else (problem, found)

    def _with_scale(self, problem: Problem, at: State) -> tuple[Problem, State]:
        """Fit and estimate the scale of the noise in turns, until both stay."""
        least = 1e-6 * np.maximum(np.abs(problem.y).max(axis=0), 1e-300)
        old = np.full(len(least), np.inf)
        for _ in range(SCALE_ROUNDS):
            scale = np.maximum(huber_scale(problem.y - at.fitted, problem.w, HUBER_SCALES), least)
            if np.all(np.abs(scale / old - 1) <= SCALE_CHANGE):
                break
            problem, old = replace(problem, loss=hubers(HUBER_SCALES * scale)), scale
            at = solve(problem, at, tol=self.tol, max_iter=self.max_iter)
            self.n_iter_ += len(at.steps)
        return problem, at

    def _stopped(self, problem: Problem, blocks: Blocks) -> tuple[Problem, State]:
        """Return what as many steps give on all rows as are best for those left out."""
        out = self._left_out(problem, blocks, 1)[:, 0]
        trial = stopped_early(problem, out, self.max_iter)
        self.stopping_errors_, self.n_iter_ = trial.errors.mean(axis=1), max(trial.best, 1)
        state = take_steps(problem, trial.best).state
        return problem, state

    def _left_out(self, problem: Problem, blocks: Blocks, folds: int) -> Float[Array, "n k"]:
        return left_out(type(self).__name__, blocks, problem.w[:, 0], self.seed_, folds)

    # --- prediction ------------------------------------------------------------------------------

    def predict(self, X: Float[Array, "n d"]) -> Array:
        """Return the mean, median or quantiles, (n,) or (n, t), in the array library of X."""
        check_is_fitted(self)
        return _engine.joined(list(self.predict_blocks(predict_blocks_of(self, X))))

    def predict_blocks(self, blocks: Blocks) -> Iterator[Array]:
        """Give the predictions of one block of rows after the other."""
        for X, fitted in iterated.fitted_blocks(self, blocks):
            yield iterated.shaped(self._predicted(fitted), self.target_shape_, like=X)

    def _predicted(self, f: Float[Array, "b t"]) -> Float[Array, "b t"]:
        if isinstance(self.loss_, LOG_LINK):
            return np.exp(np.minimum(f, 700.0))
        return np.sort(f, axis=1) if _several_levels(self.loss_) else f

    def score(self, X: Float[Array, "n d"], y: Array, sample_weight: Array | None = None) -> float:
        """Return the share of the best constant's loss that the model explains, 1 at best.

        For the squared loss this is R², for others its generalisation (D²); the mean over targets.
        """
        fitted = np.asarray(self._fitted(X)).reshape(-1, self.solution_.coef.shape[1])
        y = np.asarray(y, np.float64).reshape(len(fitted), -1)
        y = np.broadcast_to(y, fitted.shape)
        w = np.ones((len(y), 1)) if sample_weight is None else np.asarray(sample_weight)[:, None]
        w = np.broadcast_to(w / iterated.unit_of(float(np.max(w))), y.shape)
        units = np.array([iterated.unit_of(m) for m in np.abs(y).max(axis=0)])
        units, loss = units if self.loss_.degree else units / units, self.loss_.in_units(units)
        y, fitted = y / units, fitted / units
        lost = (w * loss.value(y, fitted)).sum(axis=0)
        best = np.broadcast_to(best_constant(loss, y, w), y.shape)
        most = (w * loss.value(y, best)).sum(axis=0)
        return float(np.mean(1 - lost / np.maximum(most, 1e-300)))

    def _fitted(self, X: Array) -> Float[Array, "n t"]:
        parts = [f for _, f in iterated.fitted_blocks(self, predict_blocks_of(self, X))]
        f = np.concatenate(parts)
        return np.sort(f, axis=1) if _several_levels(self.loss_) else f

    # --- what was learned ------------------------------------------------------------------------

    @property
    def alpha_(self) -> Any:
        """The penalty used."""
        return self.solution_.alpha

    @property
    def coef_(self) -> Float[Array, " D"]:
        """β, (D,) or (t, D)."""
        coef = self.solution_.coef.T
        return coef if self.target_shape_ else coef[0]

    @property
    def intercept_(self) -> Any:
        """b, a number or (t,)."""
        intercept = self.solution_.intercept
        return intercept if self.target_shape_ else float(intercept[0])

    def set_params(self, **params: Any) -> Self:
        """Set parameters; ``kernel__lengthscale`` and the like replace the kernel's numbers."""
        return set_kernel_params(self, params)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = accepts_sparse(self.kernel)
        tags.target_tags.positive_only = self.loss in ("poisson", "gamma")
        return tags


def _several_levels(loss: Loss) -> bool:
    levels = getattr(loss, "level", 0.0)
    return isinstance(levels, tuple) and len(levels) > 1


def _as_alpha(alpha: object) -> float | str:
    if isinstance(alpha, str):
        if alpha in ("holdout", "kfold"):
            return alpha
        raise InvalidInput(
            f'KernelRegressor: alpha must be "holdout", "kfold" or a number above 0; got {alpha!r}.'
        )
    return nonnegative(alpha, "KernelRegressor", "alpha")


def _check_targets(loss: Loss, y: Float[Array, "n t"], w: Float[Array, "n 1"]) -> None:
    """Refuse targets that a log link cannot have."""
    there = y[w[:, 0] > 0]
    if isinstance(loss, Poisson) and np.any(there < 0):
        raise InvalidInput(
            f'KernelRegressor: loss="poisson" needs y of 0 or above; got {there.min():g}. '
            'For targets of both signs take loss="squared" or "huber".'
        )
    if isinstance(loss, Gamma) and np.any(there <= 0):
        raise InvalidInput(
            f'KernelRegressor: loss="gamma" needs y above 0; got {there.min():g}. For zeros take '
            'loss="poisson", for targets of both signs "squared" or "huber".'
        )
    if isinstance(loss, Poisson) and np.any(there.max(axis=0) <= 0):
        raise InvalidInput(
            'KernelRegressor: loss="poisson" needs a y above 0 in some row; all are 0, so the mean '
            "has no logarithm."
        )


def _first_huber(problem: Problem) -> Loss:
    """Return the loss whose thresholds suit the spread of y itself."""
    y = problem.y
    w = np.broadcast_to(problem.w, y.shape)
    r = y - best_constant(Absolute(), y, w)
    scale = huber_scale(r, problem.w, HUBER_SCALES)
    deviation = np.sqrt((w * r**2).sum(axis=0) / w.sum(axis=0))
    some = np.where(scale > SPIKE * deviation, scale, deviation)
    return hubers(HUBER_SCALES * np.where(some > 0, some, 1.0))
