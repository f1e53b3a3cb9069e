"""Classification by stochastic gradient descent in the space of a kernel."""

from typing import Any, Self

import numpy as np
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from bochner._core.arrays import from_numpy, to_numpy
from bochner._core.random import Seed
from bochner._core.shapes import Array, Float, Tabular
from bochner.data.blocks import Blocks
from bochner.errors import InvalidInput
from bochner.features import Method
from bochner.kernels import Kernel
from bochner.models._inputs import class_blocks, class_blocks_of
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
from bochner.solvers.sgd import CLASS_LOSSES


def _has_probabilities(model: "KernelSGDClassifier") -> bool:
    if model.loss in ("log_loss", "modified_huber"):
        return True
    raise AttributeError(
        f"KernelSGDClassifier: probabilities require loss='log_loss' or 'modified_huber'; "
        f"this one has loss={model.loss!r}."
    )


class KernelSGDClassifier(ClassifierMixin, BaseEstimator):
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
        What the steps read. "exact_on_the_fly", "exact_cached": the kernel's own features, where
        they are finitely many (Linear, Polynomial, sums and products of such).
        "kernel_on_the_fly", "gram_cached": kernel values, steps on coefficients of rows.
        "approximate_on_the_fly", "approximate_cached": n_features features by ``method``.
        "auto": the fastest that fits in memory, by :meth:`plan`. The two of a pair give the same
        model to rounding, and so do the first four where the kernel has features.
    method, n_features : default "auto", 1024
        How approximate features are made, and D; see :func:`bochner.draw`.
    alpha : float, default 1e-4
        Penalty, of the mean loss.
    fit_intercept : bool, default True
        Whether b is fitted (unpenalised) or zero.
    batch_size : int, default 32
        Rows a step.
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
    class_weight : None, "balanced" or dict
    warm_start : bool, default False
        Whether ``fit`` goes on from the last fit, with its kernel, map and strategy.
    random_state : int, Generator, RandomState or None

    Attributes
    ----------
    classes_ : (K,)
    kernel_ : Kernel
    strategy_ : str
        The one taken.
    plan_ : StrategyPlan
        What "auto" decided by.
    map_ : FeatureMap
        φ, where steps are made on features.
    coef_ : (K, D) or (1, D)
    support_vectors_, dual_coef_ : (m, d), (K, m)
        Rows and their coefficients, where steps are made on these.
    intercept_ : (K,) or (1,)
    loss_curve_, validation_scores_ : tuple of float
        Of each epoch: mean loss of its rows before their steps; accuracy on rows held out.
    n_iter_, t_ : int
        Epochs of the last fit, and steps in all.

    Notes
    -----
    Time and memory: see :func:`bochner.models.sgd.strategies.plan_strategies`. With ``partial_fit``
    a stream has no end: features need O(D) memory for ever, coefficients of rows grow with them.

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

    def __init__(
        self,
        kernel: Kernel | str = "gaussian",
        *,
        loss: str = "hinge",
        strategy: str = "auto",
        method: Method | str = "auto",
        n_features: int = 1024,
        alpha: float = 1e-4,
        fit_intercept: bool = True,
        batch_size: int = 32,
        learning_rate: str = "optimal",
        eta0: float | str = "auto",
        power_t: float = 0.5,
        average: bool | int = False,
        max_iter: int = 1000,
        tol: float | None = 1e-3,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 5,
        shuffle: bool = True,
        class_weight: Any = None,
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
        self.average = average
        self.max_iter = max_iter
        self.tol = tol
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.shuffle = shuffle
        self.class_weight = class_weight
        self.warm_start = warm_start
        self.random_state = random_state

    # --- fitting ---------------------------------------------------------------------------------

    @all_or_nothing
    def fit(self, X: Tabular, y: Array, sample_weight: Array | None = None) -> Self:
        """Fit to rows in memory.

        Parameters
        ----------
        X : (n, d)
            Array, sparse matrix, or table.
        y : (n,)
            Labels of any type, of two classes or more.
        sample_weight : (n,), optional
            Finite, not negative. A row's loss counts this many times.

        Returns
        -------
        self

        Raises
        ------
        InvalidInput
            If the data are not what was required, or the steps diverge.
        """
        check(self, CLASS_LOSSES)
        first = not (self.warm_start and hasattr(self, "walk_"))
        blocks = class_blocks_of(self, X, y, sample_weight, reset=first)
        rows = gathered(self, blocks)
        if first:
            choose(self, blocks, rows, outputs(self))
        walk.fit(self, rows)
        return self

    @all_or_nothing
    def fit_blocks(self, blocks: Blocks) -> Self:
        """Fit to blocks: files larger than memory, read once for each epoch.

        Rows are shuffled within windows of 8192: rows that come sorted should be shuffled before.
        Steps are made on features, which are kept where that is the strategy.
        """
        check(self, CLASS_LOSSES)
        blocks = class_blocks(self, blocks)
        choose_for_stream(self, blocks, outputs(self))
        walk.fit_stream(self, blocks, outputs(self))
        return self

    @all_or_nothing
    def partial_fit(
        self,
        X: Tabular,
        y: Array,
        classes: Array | None = None,
        sample_weight: Array | None = None,
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
        n_features. A strategy that caches keeps what it needs of one call.
        """
        check(self, CLASS_LOSSES)
        if self.class_weight == "balanced":
            raise InvalidInput(
                "KernelSGDClassifier.partial_fit: class_weight='balanced' requires all rows at "
                "once; pass a dict of class: weight."
            )
        first = not hasattr(self, "walk_")
        blocks = class_blocks_of(self, X, y, sample_weight, reset=first, classes=classes)
        rows = gathered(self, blocks)
        if first:
            choose(self, blocks, rows, outputs(self), streaming=True)
        walk.add(self, rows)
        return self

    def plan(
        self, X: Float[Array, "n d"], y: Array | None = None, *, measure: float = 0.0
    ) -> StrategyPlan:
        """Say what each of the six strategies takes for a fit to these rows.

        Parameters
        ----------
        X : (n, d)
        y : (n,), optional
            Labels; without them one output is reckoned with.
        measure : float, default 0
            Run every strategy that is predicted to take at most this many seconds, and measure.

        Returns
        -------
        StrategyPlan
            ``print`` shows the table; a star marks what "auto" takes.
        """
        check(self, CLASS_LOSSES)
        return plan_for(self, X, y, measure)

    # --- prediction ------------------------------------------------------------------------------

    def decision_function(self, X: Tabular) -> Array:
        """Return f, (n,) for two classes (above zero: the second), else (n, K)."""
        check_is_fitted(self, "walk_")
        f, like = walk.values(self, X)
        return from_numpy(f[:, 0] if f.shape[1] == 1 else f, like=like)

    def predict(self, X: Tabular) -> Array:
        """Return the class of largest f, (n,)."""
        f = to_numpy(self.decision_function(X))
        return self.classes_[(f > 0).astype(int) if f.ndim == 1 else f.argmax(axis=1)]

    @available_if(_has_probabilities)
    def predict_proba(self, X: Tabular) -> Float[Array, "n K"]:
        """Return probabilities: of the logistic loss 1/(1 + e^{−f}), of the modified Huber loss
        (min(max(f, −1), 1) + 1)/2 (Zhang 2004), divided by their sum over the classes.
        """  # noqa: D205
        f = to_numpy(self.decision_function(X))
        p = expit(f) if self.loss == "log_loss" else (np.clip(f, -1, 1) + 1) / 2
        if p.ndim == 1:
            return np.column_stack([1 - p, p])
        total = p.sum(axis=1, keepdims=True)
        none = total == 0
        return np.where(none, 1.0, p) / np.where(none, p.shape[1], total)

    @available_if(_has_probabilities)
    def predict_log_proba(self, X: Tabular) -> Float[Array, "n K"]:
        """Return logarithms of the probabilities."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    # --- what was learned ------------------------------------------------------------------------

    @property
    def coef_(self) -> Float[Array, "K D"]:
        """β of each class."""
        return primal(self).T

    @property
    def dual_coef_(self) -> Float[Array, "K m"]:
        """Coefficients of ``support_vectors_``, of each class."""
        return dual(self).T

    @property
    def intercept_(self) -> Float[Array, " K"]:
        """The b of each class."""
        return fitted(self)[1]

    def set_params(self, **params: Any) -> Self:
        """Set parameters; ``kernel__lengthscale`` and the like replace the kernel's numbers."""
        return set_kernel_params(self, params)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = accepts_sparse(self.kernel)
        return tags
