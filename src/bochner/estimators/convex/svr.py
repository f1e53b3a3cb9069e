"""Support vector regression at any number of rows."""

from collections.abc import Iterator
from typing import Any, Self

from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from bochner._ground.blocks import Blocks
from bochner._ground.checks import nonnegative, one_of, positive
from bochner._ground.random import Seed
from bochner._ground.shapes import Array, Float
from bochner.estimators.convex import iterated
from bochner.estimators.fitting import engine
from bochner.estimators.fitting.inputs import fit_blocks_of, note_columns, predict_blocks_of
from bochner.estimators.fitting.named import accepts_sparse, set_kernel_params
from bochner.estimators.fitting.state import all_or_nothing
from bochner.features import Method
from bochner.kernels import Kernel
from bochner.planning.width import Enough
from bochner.solvers.losses import EpsilonInsensitive, SquaredEpsilonInsensitive
from bochner.solvers.nonsmooth import Problem, minimise
from bochner.solvers.optimum import Optimum

__all__ = ["SVR"]

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
    n_features : int, "auto" or Enough, default 1024
        D.
    metric : None or "learned", default None
        "learned": columns are scaled and turned by the gradients of a few fits on a sample of
        rows; see :class:`bochner.KernelRidge`.
    C : float, default 1.0
        Weight of the loss against the penalty, above zero.
    epsilon : float, default 0.1
        Errors up to this cost nothing; zero or above, in the units of y.
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
    coef_ : (D,) or (t, D)
    intercept_ : float or (t,)
    n_iter_ : int
    n_features_in_ : int
    feature_names_in_ : (d,) of str
        Where the rows had names.

    Notes
    -----
    Time O(steps (n D + a D²)), a the rows near a kink, few at the end; see
    :mod:`bochner.solvers.nonsmooth`. Features are kept where a quarter of the free memory holds
    them, and made anew in every step otherwise.
    """

    solution_: Optimum

    def __init__(
        self,
        kernel: Kernel | str = "gaussian",
        *,
        method: Method | str = "auto",
        n_features: int | str | Enough = 1024,
        metric: str | None = None,
        C: float = 1.0,
        epsilon: float = 0.1,
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
        alpha = 1 / positive(self.C, "SVR", "C")
        loss = _LOSSES[one_of(self.loss, "SVR", "loss", tuple(_LOSSES))](
            nonnegative(self.epsilon, "SVR", "epsilon")
        )
        squared = self.loss == "squared_epsilon_insensitive"
        like_ridge = alpha / 2 if squared else alpha * iterated.spread_of(blocks)
        features = iterated.prepare(self, blocks, like_ridge)
        y, w = iterated.targets_of(self, features)
        problem = Problem(features, y, w, loss, alpha, bool(self.fit_intercept))
        self.solution_ = minimise(problem, tol=self.tol, max_iter=self.max_iter)
        iterated.warn(self.solution_.outcome)
        return self

    def predict(self, X: Float[Array, "n d"]) -> Array:
        """Return φ(X) β + b, (n,) or (n, t), in the array library of X and float64."""
        check_is_fitted(self)
        return engine.joined(list(self.predict_blocks(predict_blocks_of(self, X))))

    def predict_blocks(self, blocks: Blocks) -> Iterator[Array]:
        """Give the predictions of one block of rows after the other."""
        for X, fitted in iterated.fitted_blocks(self, blocks):
            yield iterated.shaped(fitted, self.target_shape_, like=X)

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
