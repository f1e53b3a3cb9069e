"""Support vector regression at any number of rows."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from bochner._core.arrays import to_numpy
from bochner._core.checks import nonnegative, one_of, positive
from bochner._core.random import Seed
from bochner._core.shapes import Array, Float
from bochner.data.blocks import Blocks
from bochner.errors import InvalidInput
from bochner.features import Method
from bochner.kernels import Kernel
from bochner.models import _engine
from bochner.models._alike import N_FOLDS, row_marks
from bochner.models._feature_blocks import FeatureBlock, Kept
from bochner.models._inputs import fit_blocks_of, note_columns, predict_blocks_of
from bochner.models._state import all_or_nothing, set_kernel_params
from bochner.models.convex import iterated
from bochner.selection.search import accepts_sparse
from bochner.selection.width import Tolerance
from bochner.solvers.convex.driver import solve
from bochner.solvers.convex.losses import EpsilonInsensitive, Loss, SquaredEpsilonInsensitive
from bochner.solvers.convex.optimum import Optimum
from bochner.solvers.convex.penalty_path import HeldOutPath, path_of
from bochner.solvers.convex.problem import Problem, optimum

#: epsilon="auto", as a share of the mean distance of y from its median.
AUTO_EPSILON = 0.05

#: Least spread of targets, in their units, that penalties start from.
NARROW = 1e-3

#: Rows that penalties are compared on, and from how many on one fold of five is enough.
PATH_ROWS, ONE_FOLD = 4096, 1000

_LOSSES = {
    "epsilon_insensitive": EpsilonInsensitive,
    "squared_epsilon_insensitive": SquaredEpsilonInsensitive,
}


class SVR(MultiOutputMixin, RegressorMixin, BaseEstimator):
    """Support vector regression through features.

    Minimises ½‖β‖² + C Σ wᵢ max(0, |yᵢ − φ(xᵢ)·β − b| − epsilon) where φ(x)·φ(y) ≈ k(x, y): the
    problem of scikit-learn's ``SVR`` with the kernel φ(x)·φ(y), for any number of rows.

    Parameters
    ----------
    kernel : Kernel or str, default "gaussian"
        A value is used as it is; of a name the lengthscale is chosen from a sample of the rows.
    method : Method or str, default "auto"
        How features are made; see :func:`bochner.draw`.
    n_features : int, "auto" or Tolerance, default 1024
        D.
    metric : None or "learned", default None
        "learned": columns are scaled and turned by the gradients of a few fits on a sample of
        rows; see :class:`bochner.KernelRidge`.
    C : "auto" or float, default "auto"
        Weight of the loss against the penalty, above zero; a number means what it does in
        scikit-learn, in the units of y. "auto" is the one at which rows that were left out of a
        sample of some thousand lose the least.
    epsilon : "auto" or float, default "auto"
        Errors up to this cost nothing; zero or above, in the units of y. "auto" is a twentieth of
        the mean distance of y from its median.
    loss : {"epsilon_insensitive", "squared_epsilon_insensitive"}, default "epsilon_insensitive"
        The squared one is smooth, and faster to fit.
    precision : {"auto", "float32", "float64"}, default "auto"
        Of the features; "auto" is float64 where the fit is small.
    fit_intercept : bool, default True
        Whether b is fitted (unpenalised) or zero.
    tol : float, default 1e-6
        The objective is at most this share above its least value.
    max_iter : int, default 200
        Newton steps at most.
    random_state : int, Generator, RandomState or None, default None
        Seed of features and samples.

    Attributes
    ----------
    kernel_, map_, choice_, search_
        The kernel with its numbers, φ, and how both were chosen.
    solution_ : Optimum
        Coefficients, duality gap, outcome, and what every step did.
    C_, epsilon_ : float or (t,)
        Those used, in the units of y; one for each target where these differ.
    path_ : HeldOutPath or None
        With C="auto": the penalties 1/C that were compared, of the first target, and what rows
        left out lost.
    coef_ : (D,) or (t, D)
    intercept_ : float or (t,)
    n_iter_ : int
    n_features_in_ : int
    feature_names_in_ : (d,) of str
        Where the rows had names.

    Notes
    -----
    Targets are fitted in a unit near their spread, a power of two: with C and epsilon "auto" s y is
    fitted as y is, for every s.

    Time O(steps (n D + a D²)), a the rows near a kink, few at the end; see
    :mod:`bochner.solvers.convex.smoothing`. Features are kept where a quarter of the free memory
    holds them, and made anew in every step otherwise.
    """

    solution_: Optimum
    path_: HeldOutPath | None

    def __init__(
        self,
        kernel: Kernel | str = "gaussian",
        *,
        method: Method | str = "auto",
        n_features: int | str | Tolerance = 1024,
        metric: str | None = None,
        C: float | str = "auto",
        epsilon: float | str = "auto",
        loss: str = "epsilon_insensitive",
        precision: str = "auto",
        fit_intercept: bool = True,
        tol: float = 1e-6,
        max_iter: int = 200,
        random_state: Seed = None,
    ) -> None:
        self.kernel = kernel
        self.method = method
        self.n_features = n_features
        self.metric = metric
        self.C = C
        self.epsilon = epsilon
        self.loss = loss
        self.precision = precision
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state

    @all_or_nothing
    def fit(self, X: Float[Array, "n d"], y: Array, sample_weight: Array | None = None) -> Self:
        """Fit to rows in memory.

        Parameters
        ----------
        X : (n, d)
            Array, sparse matrix, or table.
        y : (n,) or (n, t)
        sample_weight : (n,), optional
            Finite, not negative; each multiplies C for its row.

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
        kind = _LOSSES[one_of(self.loss, "SVR", "loss", tuple(_LOSSES))]
        C, epsilon = _number(self.C, "C", positive), _number(self.epsilon, "epsilon", nonnegative)
        rows = iterated.scaled(self, blocks, kind().degree)
        tube = AUTO_EPSILON * rows.spread if epsilon is None else epsilon / rows.units
        loss = kind(tuple(tube.tolist()) if len(tube) > 1 else float(tube[0]))
        alpha = None if C is None else rows.penalty(1 / C)
        features = iterated.prepare(self, rows.blocks, _like_ridge(loss, alpha, rows))
        self.path_ = None
        if alpha is None:
            self.path_, alpha = self._path(loss, rows)
        y, w = iterated.targets_of(self, features)
        y, intercept = np.where(w > 0, y, y[w[:, 0] > 0][0]), bool(self.fit_intercept)
        problem = Problem(features, y, w, loss, alpha, intercept, value=rows.value)
        found = solve(problem, tol=self.tol, max_iter=self.max_iter)
        self.solution_ = optimum(problem, found, rows.units, rows.original(alpha))
        self.epsilon_ = iterated.one_or_each(rows.units * tube)
        iterated.warn(self.solution_.outcome)
        return self

    def _path(self, loss: Loss, rows: iterated.Scaled) -> tuple[HeldOutPath | None, float]:
        """Return what rows left out lost on the path, and the best penalty in the rows' units."""
        sample = _engine.presample(rows.blocks, self.seed_).lowest(PATH_ROWS)
        marks = row_marks(sample.X, self.seed_)
        different = np.unique(marks)
        if len(different) < 2:
            return None, 1.0
        folds = 1 if len(different) >= ONE_FOLD else min(N_FOLDS, len(different))
        numbers = np.asarray(np.searchsorted(different, marks))[:, None] % N_FOLDS
        Z = to_numpy(_engine.as_features(self.map_, sample.X, self.feature_dtype_))
        kept = Kept(FeatureBlock(Z, sample.y, sample.w, 0))
        problem = Problem(kept, sample.y, sample.w[:, None], loss, 0.0, bool(self.fit_intercept))
        # As if all rows bent, for squares or over the spread: medians may be any in an interval.
        bends = 2.0 if rows.degree == 2 else 1 / float(np.maximum(rows.spread, NARROW).mean())
        largest = bends * float(sample.w @ (Z.astype(np.float64) ** 2).sum(axis=1)) or 1.0
        out = np.equal(numbers, np.arange(folds))
        path, _ = path_of(problem, out, self.max_iter, largest)
        first = np.atleast_1d(rows.original(1.0))[0]
        return replace(path, alphas=first * path.alphas), path.alpha

    def predict(self, X: Float[Array, "n d"]) -> Array:
        """Return φ(X) β + b, (n,) or (n, t), in the array library of X and float64."""
        check_is_fitted(self)
        return _engine.joined(list(self.predict_blocks(predict_blocks_of(self, X))))

    def predict_blocks(self, blocks: Blocks) -> Iterator[Array]:
        """Give the predictions of one block of rows after the other."""
        for X, fitted in iterated.fitted_blocks(self, blocks):
            yield iterated.shaped(fitted, self.target_shape_, like=X)

    @property
    def C_(self) -> Any:
        """The weight of the loss that was used."""
        return 1 / self.solution_.alpha

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

    @property
    def n_iter_(self) -> int:
        """Newton steps taken."""
        return len(self.solution_.history)

    def set_params(self, **params: Any) -> Self:
        """Set parameters; ``kernel__lengthscale`` and the like replace the kernel's numbers."""
        return set_kernel_params(self, params)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = accepts_sparse(self.kernel)
        return tags


def _number(given: object, name: str, check: Callable[[Any, str, str], float]) -> float | None:
    """Return a parameter that is a number, None where it is to be chosen."""
    if given == "auto":
        return None
    if isinstance(given, str):
        raise InvalidInput(f'SVR: {name} must be "auto" or a number; got {given!r}.')
    return check(given, "SVR", name)


def _like_ridge(loss: Loss, alpha: Any, rows: iterated.Scaled) -> float | None:
    """Return a given penalty as that of squares."""
    if alpha is None:
        return None
    times = iterated.spread_of(rows.blocks) if loss.nonsmooth else 0.5
    return times * float(np.mean(alpha))
