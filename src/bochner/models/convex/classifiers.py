"""Support vector and logistic classification at any number of rows."""

import math
from typing import Any, Self

import numpy as np
from scipy.special import log_expit, log_softmax, logsumexp
from sklearn.base import ClassifierMixin
from sklearn.utils.metaestimators import available_if

from bochner._core.checks import one_of, positive, require_switch
from bochner._core.random import Seed
from bochner._core.shapes import Array, Float, Tabular
from bochner.data.blocks import Blocks
from bochner.data.schema import Inputs
from bochner.errors import InvalidInput
from bochner.features.method import Method
from bochner.kernels.kernel import Kernel
from bochner.models.convex.calibration import Calibration, agreeing
from bochner.models.convex.classification import fit_classifier
from bochner.models.convex.estimator import ConvexEstimator
from bochner.models.convex.fit import ConvexFit
from bochner.selection.spec import Tolerance
from bochner.solvers.convex.class_losses import (
    CrammerSinger,
    Hinge,
    Logistic,
    Multinomial,
    SquaredHinge,
)
from bochner.solvers.convex.losses import Loss

#: What must be the same for the features and coefficients of before to serve again.
SAME = ("kernel", "method", "n_features", "metric", "random_state", "precision")


class ConvexClassifier(ClassifierMixin, ConvexEstimator):
    """A classifier by a convex loss."""

    C: float | str
    warm_start: bool

    def fit(self, X: Tabular, y: Array, sample_weight: Array | None = None) -> Self:
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
        self.fit_ = self._fit(*self._class_blocks_of(X, y, sample_weight))
        return self

    def fit_blocks(self, blocks: Blocks) -> Self:
        """Fit to blocks: files larger than memory, tables, streams that can be read again."""
        self.fit_ = self._fit(*self._class_blocks(blocks))
        return self

    def _fit(self, blocks: Blocks, inputs: Inputs) -> ConvexFit:
        loss = self._loss(len(inputs.classes))
        spec = self._convex_spec(loss, self._penalty(), self.fit_intercept)
        asked = [repr(self.get_params(deep=False)[name]) for name in SAME]
        asked += [repr(inputs.n_features_in), repr(inputs.classes.tolist())]
        warm = require_switch(spec.who, self.warm_start, "warm_start")
        before = self.fit_ if warm and self.__sklearn_is_fitted__() else None
        if before is not None and before.asked != tuple(asked):
            before = None
        return fit_classifier(spec, blocks, inputs, before, self._calibrates, tuple(asked))

    def _loss(self, n_classes: int) -> Loss:
        raise NotImplementedError

    @property
    def _calibrates(self) -> bool:
        return False

    def _penalty(self) -> float | str:
        """Return alpha = 1/C, or "auto" where C is chosen; an infinite C is no penalty."""
        who = type(self).__name__
        if isinstance(self.C, str):
            if self.C == "auto":
                return "auto"
            raise InvalidInput(f'{who}: C must be "auto" or a positive number; got {self.C!r}.')
        if isinstance(self.C, float) and math.inf == self.C:
            return 0.0
        return 1 / positive(self.C, who, "C")

    # --- prediction ------------------------------------------------------------------------------

    def decision_function(self, X: Tabular) -> Array:
        """Return φ(X) β + b: (n,), positive for ``classes_[1]``, or (n, K), the largest wins."""
        f = self._decisions(X)
        return f[:, 0] if f.shape[1] == 1 else f

    def predict(self, X: Tabular) -> Array:
        """Return the classes decided for, (n,)."""
        return self.classes_[_decided(self._decisions(X))]

    def _decisions(self, X: Array) -> Float[Array, "n t"]:
        return self._fitted.decisions(self._rows_to_predict(X))

    # --- what was learned ------------------------------------------------------------------------

    @property
    def classes_(self) -> Array:
        """Labels, sorted, (K,)."""
        return self._inputs.classes

    def _ridge_penalty(self, X: Any, n: int) -> float:  # noqa: ARG002
        return 1 / (2 * self.C_)

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


def _decided(f: Float[Array, "n t"]) -> Array:
    """Return the codes decided for."""
    return (f[:, 0] > 0).astype(np.int64) if f.shape[1] == 1 else f.argmax(axis=1)


def _has_probabilities(model: "SVC") -> bool:
    if not model.probability:
        raise AttributeError(
            "SVC: probabilities were not asked for; set probability=True before fit, which fits "
            "five folds more, or take LogisticRegression."
        )
    return True


class SVC(ConvexClassifier):
    """Support vector machine for classification, through features.

    Minimises ‖β‖²/2 + C Σ wᵢ ℓ(yᵢ, φ(xᵢ)·β + b), with φ(x)·φ(y) ≈ k(x, y): scikit-learn's SVC with
    the kernel φ(x)·φ(y), for any number of rows. Several classes are told apart one against the
    rest, or jointly; scikit-learn's SVC votes among pairs.

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
    loss : {"squared_hinge", "hinge"}, default "squared_hinge"
        max(0, 1 − yf)² is the faster; max(0, 1 − yf) is that of scikit-learn's SVC.
    multi_class : {"ovr", "crammer_singer"}, default "ovr"
        One problem a class, or one for all (Crammer and Singer 2001): slower, seldom better. Its
        largest of margins is smoothed, and more digits than ``tol`` says are not
        to be had: weights and copies of rows agree to ``tol`` only.
    probability : bool, default False
        Whether ``predict_proba`` is calibrated, on five folds
        (``bochner.models.convex.calibration``). Its largest probability is always that of the
        class predicted. With ``class_weight`` it is that of weighted classes.
    class_weight : dict, "balanced" or None, default None
        Factors of the weights.
    fit_intercept : bool, default True
        Whether b is fitted (unpenalised) or zero.
    tol : float, default 1e-4
        The last Newton step lowered the objective by less than this share of it, and promised no
        more; the hinge's objective is above its minimum by no more than this share.
    max_iter : int, default 100
        Newton steps at most; where a width of smoothing goes to zero, for each width.
    warm_start : bool, default False
        Start from the solution before, with its features, where kernel, method, width, metric,
        seed, columns and classes are the same.
    precision : {"auto", "float32", "float64"}, default "auto"
        Of features; "auto" is float64 where the fit is small.
    random_state : int, Generator, RandomState or None, default None
        Seed of features, samples and folds.

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
    calibration_ : Calibration
        With ``probability=True``.
    kernel_, map_, choice_, search_
        As in :class:`KernelRidge`.
    n_features_in_ : int
    feature_names_in_ : (d,) of str

    Notes
    -----
    Newton's method, on features kept in memory where they fit, else recomputed in each pass. To
    D = 2048 each class has its own Hessian, changed from step to step by the rows that enter or
    leave the margin: time O(n (c(φ) + s D K) + K (a D² + s D³)), with s some ten steps and a the
    rows in all. Below D = 256 a step reads rows near the margin only. Above D = 2048, and without
    memory for features, conjugate gradients that all classes share take O(n (c(φ) + s D K) + D³),
    with s some tens. Memory O(K D² + n K) beside the features.

    Examples
    --------
    >>> import numpy as np
    >>> from bochner import SVC
    >>> X = np.random.default_rng(0).uniform(-2, 2, (500, 2))
    >>> y = np.where((X**2).sum(axis=1) < 2, "inside", "outside")
    >>> SVC(random_state=0).fit(X, y).predict([[0.0, 0.5], [1.8, 1.0]]).tolist()
    ['inside', 'outside']
    """

    def __init__(
        self,
        kernel: Kernel | str = "gaussian",
        *,
        method: Method | str = "auto",
        n_features: int | str | Tolerance = 1024,
        metric: str | None = None,
        C: float | str = "auto",
        loss: str = "squared_hinge",
        multi_class: str = "ovr",
        probability: bool = False,
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
        self.loss = loss
        self.multi_class = multi_class
        self.probability = probability
        self.class_weight = class_weight
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_iter = max_iter
        self.warm_start = warm_start
        self.precision = precision
        self.random_state = random_state

    def _loss(self, n_classes: int) -> Loss:
        squared = one_of(self.loss, "SVC", "loss", ("squared_hinge", "hinge")) == "squared_hinge"
        joint = one_of(self.multi_class, "SVC", "multi_class", ("ovr", "crammer_singer")) != "ovr"
        if joint and n_classes > 2:
            return CrammerSinger(squared)
        return SquaredHinge() if squared else Hinge()

    @property
    def _calibrates(self) -> bool:
        return self.probability

    @available_if(_has_probabilities)
    def predict_proba(self, X: Tabular) -> Float[Array, "n K"]:
        """Return calibrated probabilities of the classes; the largest is of the class predicted."""
        f = self._decisions(X)
        return agreeing(self._calibration.probabilities(f), _decided(f))

    @available_if(_has_probabilities)
    def predict_log_proba(self, X: Tabular) -> Float[Array, "n K"]:
        """Return their logarithms."""
        f = self._decisions(X)
        return agreeing(self._calibration.log_probabilities(f), _decided(f))

    @property
    def _calibration(self) -> Calibration:
        if self._fitted.calibration is None:
            raise InvalidInput(
                "SVC: this model was fitted with probability=False; fit again for probabilities."
            )
        return self._fitted.calibration

    @property
    def calibration_(self) -> Calibration:
        """Probabilities from decision values, with ``probability=True``."""
        found = self._fitted.calibration
        if found is None:
            raise AttributeError("calibration_: only a fit with probability=True has one.")
        return found


class LogisticRegression(ConvexClassifier):
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
    Newton's method with conjugate gradients on features kept in memory where they fit, else
    recomputed in each pass; all classes share the passes. Time O(n (c(φ) + s D K) + D³) with s some
    tens; memory O(D² + n K) beside the features.

    Examples
    --------
    >>> import numpy as np
    >>> from bochner import LogisticRegression
    >>> X = np.random.default_rng(0).uniform(-2, 2, (500, 2))
    >>> model = LogisticRegression(random_state=0).fit(X, (X**2).sum(axis=1) < 2)
    >>> bool(model.predict_proba([[0.0, 0.5]])[0, 1] > 0.7)
    True
    """

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

    def _loss(self, n_classes: int) -> Loss:
        joint = require_switch("LogisticRegression", self.multinomial, "multinomial")
        return Multinomial() if joint and n_classes > 2 else Logistic()

    def predict_proba(self, X: Tabular) -> Float[Array, "n K"]:
        """Return the probabilities of the classes; the largest is of the class predicted."""
        f = self._decisions(X)
        return agreeing(np.exp(self._log_probabilities(f)), _decided(f))

    def predict_log_proba(self, X: Tabular) -> Float[Array, "n K"]:
        """Return their logarithms, good to the last digits also where they are tiny."""
        f = self._decisions(X)
        return agreeing(self._log_probabilities(f), _decided(f))

    def _log_probabilities(self, f: Float[Array, "n t"]) -> Float[Array, "n K"]:
        if f.shape[1] == 1:
            return log_expit(np.column_stack([-f, f]))
        if self.joint_:
            return log_softmax(f, axis=1)
        apart = log_expit(f)
        return apart - logsumexp(apart, axis=1, keepdims=True)

    @property
    def joint_(self) -> bool:
        """Whether one softmax was fitted to all classes."""
        return self._fitted.loss.joint
