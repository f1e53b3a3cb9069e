"""Logistic regression at any number of rows."""

import math
from typing import Any, Self

import numpy as np
from scipy.special import log_expit, log_softmax, logsumexp
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags

from bochner._core.random import Seed
from bochner._core.shapes import Array, Float
from bochner.data.blocks import Blocks
from bochner.errors import InvalidType
from bochner.features import Method
from bochner.kernels import Kernel
from bochner.models._inputs import class_blocks, class_blocks_of
from bochner.models._state import all_or_nothing, set_kernel_params
from bochner.models.convex import classification
from bochner.models.convex.calibration import agreeing
from bochner.selection.search import accepts_sparse
from bochner.selection.width import Tolerance
from bochner.solvers.convex.class_losses import Logistic, Multinomial
from bochner.solvers.convex.optimum import Optimum
from bochner.solvers.convex.penalty_path import HeldOutPath


class LogisticRegression(ClassifierMixin, BaseEstimator):
    """Logistic regression through features: kernel logistic regression for any number of rows.

    Minimises ‖β‖²/2 + C Σ wᵢ ℓ(yᵢ, φ(xᵢ)·β + b), with φ(x)·φ(y) ≈ k(x, y) and ℓ minus the log of
    the probability of the class: of scikit-learn's LogisticRegression on φ(X).

    Parameters
    ----------
    kernel : Kernel or str, default "gaussian"
        A value is used as it is; a name means: of this family, with the lengthscale chosen from a
        sample of the rows, as in :class:`KernelRidge`.
    method : Method or str, default "auto"
        How features are made; see :func:`bochner.draw`.
    n_features : int, "auto" or Tolerance, default 1024
        D.
    metric : None or "learned", default None
        "learned": columns are scaled and turned by the gradients of a few fits on a sample of
        rows; see :class:`bochner.KernelRidge`.
    C : "auto" or float, default "auto"
        Weight of the losses, as in scikit-learn; ``inf`` is no penalty. "auto" is the one at which
        rows that were left out of a sample of some thousand lose the least, and where the kernel
        is a name, its lengthscale is compared with those an octave away by the same loss.
    multinomial : bool, default True
        Several classes: one softmax, or (False) each against the rest, normalised.
    class_weight : dict, "balanced" or None, default None
        Factors of the weights.
    fit_intercept : bool, default True
        Whether b is fitted (unpenalised) or zero.
    tol : float, default 1e-4
        The last Newton step promised to lower the objective by less than this share of it.
    max_iter : int, default 100
        Newton steps at most.
    warm_start : bool, default False
        Start from the solution before, with its features, where kernel, method, width, metric,
        seed, columns and classes are the same.
    precision : {"auto", "float32", "float64"}, default "auto"
        Of features; "auto" is float64 where the fit is small.
    random_state : int, Generator, RandomState or None, default None
        Seed of features and samples.

    Attributes
    ----------
    classes_ : (K,)
    coef_ : (1, D) or (K, D)
    intercept_ : (1,) or (K,)
    solution_ : Optimum
        Coefficients, objective, outcome (its text is the remedy) and history.
    C_ : float
        The one used.
    path_ : HeldOutPath or None
        With C="auto": the penalties 1/C that were compared, and what rows left out lost. None also
        where rows are too few to leave some of a class out: C is then 1.
    n_iter_ : int
        Newton steps.
    kernel_, map_, choice_, search_
        As in :class:`KernelRidge`.
    n_features_in_ : int
    feature_names_in_ : (d,) of str

    Notes
    -----
    Newton's method with conjugate gradients on features kept in memory where they fit, else made
    anew each sweep; all classes share the sweeps. Time O(n (c(φ) + s D K) + D³) with s some tens;
    memory O(D² + n K) beside the features.

    Examples
    --------
    >>> import numpy as np
    >>> from bochner import LogisticRegression
    >>> X = np.random.default_rng(0).uniform(-2, 2, (500, 2))
    >>> model = LogisticRegression(random_state=0).fit(X, (X**2).sum(axis=1) < 2)
    >>> bool(model.predict_proba([[0.0, 0.5]])[0, 1] > 0.7)
    True
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
        multinomial: bool = True,
        class_weight: Any = None,
        fit_intercept: bool = True,
        tol: float = 1e-4,
        max_iter: int = 100,
        warm_start: bool = False,
        precision: str = "auto",
        random_state: Seed = None,
    ) -> None:
        self.kernel = kernel
        self.method = method
        self.n_features = n_features
        self.metric = metric
        self.C = C
        self.multinomial = multinomial
        self.class_weight = class_weight
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_iter = max_iter
        self.warm_start = warm_start
        self.precision = precision
        self.random_state = random_state

    @all_or_nothing
    def fit(self, X: Float[Array, "n d"], y: Array, sample_weight: Array | None = None) -> Self:
        """Fit to rows in memory.

        Parameters
        ----------
        X : (n, d)
            Array, sparse matrix, or table.
        y : (n,)
            Labels of any type; two classes at least.
        sample_weight : (n,), optional
            Finite, not negative.

        Returns
        -------
        self

        Raises
        ------
        InvalidInput, ValueError
            If the data are not what was required; the message says what to do.
        """
        return self._fit(class_blocks_of(self, X, y, sample_weight))

    @all_or_nothing
    def fit_blocks(self, blocks: Blocks) -> Self:
        """Fit to blocks: files larger than memory, tables, streams that can be read again."""
        return self._fit(class_blocks(self, blocks))

    def _fit(self, blocks: Blocks) -> Self:
        if not isinstance(self.multinomial, bool | np.bool_):
            raise InvalidType(
                f"LogisticRegression: multinomial must be True or False; got {self.multinomial!r}."
            )
        joint = self.multinomial and len(self.classes_) > 2
        classification.fit(self, blocks, Multinomial() if joint else Logistic())
        self.joint_ = bool(joint)
        return self

    # --- prediction ------------------------------------------------------------------------------

    def decision_function(self, X: Float[Array, "n d"]) -> Array:
        """Return φ(X) β + b: (n,), positive for ``classes_[1]``, or (n, K), the largest wins."""
        f = classification.decisions(self, X)
        return f[:, 0] if f.shape[1] == 1 else f

    def predict(self, X: Float[Array, "n d"]) -> Array:
        """Return the classes decided for, (n,)."""
        return classification.decided(self, X)

    def predict_proba(self, X: Float[Array, "n d"]) -> Float[Array, "n K"]:
        """Return the probabilities of the classes; the largest is of the class predicted."""
        f = classification.decisions(self, X)
        return agreeing(np.exp(self._log_probabilities(f)), classification.chosen(f))

    def predict_log_proba(self, X: Float[Array, "n d"]) -> Float[Array, "n K"]:
        """Return their logarithms, good to the last digits also where they are tiny."""
        f = classification.decisions(self, X)
        return agreeing(self._log_probabilities(f), classification.chosen(f))

    def _log_probabilities(self, f: Float[Array, "n t"]) -> Float[Array, "n K"]:
        if f.shape[1] == 1:
            return log_expit(np.column_stack([-f, f]))
        if self.joint_:
            return log_softmax(f, axis=1)
        apart = log_expit(f)
        return apart - logsumexp(apart, axis=1, keepdims=True)

    # --- what was learned ------------------------------------------------------------------------

    @property
    def C_(self) -> float:
        """The weight of the losses that was used."""
        return 1 / self.solution_.alpha if self.solution_.alpha > 0 else math.inf

    @property
    def coef_(self) -> Float[Array, "t D"]:
        """β, (1, D) or (K, D)."""
        return self.solution_.coef.T

    @property
    def intercept_(self) -> Float[Array, " t"]:
        """b, (1,) or (K,)."""
        return np.asarray(self.solution_.intercept)

    # --- scikit-learn ----------------------------------------------------------------------------

    def set_params(self, **params: Any) -> Self:
        """Set parameters; ``kernel__lengthscale`` and the like replace the kernel's numbers."""
        return set_kernel_params(self, params)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = accepts_sparse(self.kernel)
        return tags
