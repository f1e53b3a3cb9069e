"""Support vector machines, of classes and of one class, and logistic regression."""

import math
import sys
from collections.abc import Iterator
from dataclasses import KW_ONLY
from typing import Any

import numpy as np
from sklearn.base import OutlierMixin
from sklearn.utils.metaestimators import available_if

from bochner._core.arrays import from_numpy, joined, to_numpy
from bochner._core.checks import finite, one_of, positive
from bochner._core.random import Seed
from bochner._core.shapes import Array, Float, Tabular
from bochner._core.sizes import kept_rows
from bochner.data.blocks import Blocks
from bochner.data.schema import Inputs
from bochner.errors import InvalidInput
from bochner.features.map import Method
from bochner.kernels.kernel import Kernel
from bochner.models._base import Differentiable, WithoutTarget, learned
from bochner.models._labels import ProbableLabels, log_probabilities
from bochner.models._parameters import KernelParameters, estimator, shared
from bochner.models._tables import by_partition
from bochner.models.convex.classification import (
    EXACT_ROWS,
    SQUARED_HINGE_ROWS,
    fit_classifier,
    fit_classifier_exactly,
    fit_one_class,
    fit_one_class_exactly,
    fit_to_support,
)
from bochner.models.convex.fit import (
    ClassPairs,
    ConvexEstimator,
    ConvexFit,
    ConvexSpec,
    number_or_word,
)
from bochner.solvers.convex.losses import (
    BelowZero,
    Hinge,
    Logistic,
    Loss,
    Multinomial,
    SquaredHinge,
)
from bochner.sums.passes import LOCAL, Executor


@shared
class ConvexClassifier(KernelParameters, Differentiable, ProbableLabels, ConvexEstimator):
    """A classifier by a convex loss."""

    C: float | str = "auto"
    class_weight: Any = None
    tol: float = 1e-4
    max_iter: int = 100

    def _fit(self, blocks: Blocks, inputs: Inputs, where: Executor = LOCAL) -> ConvexFit:
        local = where is LOCAL and self._penalty() != 0  # the kernel itself needs a penalty
        n, n_classes = int(blocks.n_rows or 0), len(inputs.classes)
        few = local and n <= kept_rows(blocks.n_columns) and self._on_kernel(blocks, EXACT_ROWS)
        spec = self._spec_for(n_classes, n if few else 0)
        # LIBSVM needs an intercept.
        most = {Hinge: 0, SquaredHinge: SQUARED_HINGE_ROWS}.get(type(spec.loss), EXACT_ROWS)
        if few and (spec.fit_intercept or self._on_kernel(blocks, most)):
            return fit_classifier_exactly(spec, blocks, inputs)
        if local and not few and self._on_kernel(blocks, sys.maxsize):
            support = fit_to_support(self._spec_for(n_classes, n), blocks, inputs)
            if support is not None:
                return support
        return fit_classifier(spec, blocks, inputs, where)

    def _spec_for(self, n_classes: int, rows: int) -> ConvexSpec:
        """Return the spec; ``rows`` is the number of rows with the kernel itself, 0 on features."""
        loss, pairs = self._loss(n_classes, rows), self._pairs(n_classes, rows)
        probability = vars(self).get("probability", False)
        of_classes = {"n_classes": n_classes, "pairs": pairs, "probability": probability}
        return self._convex_spec(loss, self._penalty(), **of_classes)

    def _loss(self, n_classes: int, rows: int) -> Loss:
        """Return the loss; ``rows`` is the number of rows with the kernel itself, 0 on features."""
        raise NotImplementedError

    def _pairs(self, n_classes: int, rows: int) -> ClassPairs | None:
        """Return the pairs of classes, if each is separated from each other."""
        return None

    def _penalty(self) -> float | None:
        """Return alpha = 1/C, None where C is chosen; an infinite C is no penalty."""
        if isinstance(self.C, float) and math.inf == self.C:
            return 0.0
        C = number_or_word(self.C, type(self).__name__, "C", positive)
        return None if C is None else 1 / C

    def _decisions(self, X: Tabular) -> Float[Array, "n t"]:
        return self._fitted.decisions(self._rows_to_predict(X))

    def _ridge_penalty(self, X: Any, n: int) -> float:
        return 1 / (2 * self.C_)

    @property
    def C_(self) -> float:
        """C, the weight of the losses that was used."""
        return 1 / self.solution_.alpha if self.solution_.alpha > 0 else math.inf

    intercept_ = learned("solution.intercept", "b, (1,) or (K,).")


def _has_probabilities(model: "SVC") -> bool:
    if not model.probability:
        raise AttributeError(
            "SVC: probabilities were not asked for; set probability=True before fit, "
            "or take LogisticRegression."
        )
    return True


@estimator
class SVC(ConvexClassifier):
    """Support vector machine for classification, through features.

    Minimises ‖β‖²/2 + C Σ wᵢ ℓ(yᵢ, φ(xᵢ)·β + b), with φ(x)·φ(y) ≈ k(x, y): scikit-learn's SVC with
    the kernel φ(x)·φ(y), for any number of rows. Several classes are separated in pairs, as in
    scikit-learn's SVC, or each from the rest.

    Parameters
    ----------
    %(kernel or auto)s
    %(method or exact)s
    %(n_features or exact)s
    loss : {"squared_hinge", "hinge"} or None, default None
        The hinge max(0, 1 − yf) is the loss of scikit-learn's SVC, and faster with the kernel
        itself, by LIBSVM; the squared hinge is faster on features. None: the faster one, but the
        squared hinge for classes against the rest: the hinge fails where no class has half of the
        probability.
    multi_class : {"auto", "ovo", "ovr"}, default "auto"
        "ovo": one problem for each pair of classes, on the rows of the two (Chang and Lin 2011,
        section 7); the value of a class is that against its nearest rival, (n, K) as with "ovr",
        which has one problem a class, against all others. "auto": pairs with the kernel itself,
        an intercept and 100 rows a class, in a half of the time; else "ovr".
    probability : bool, default True
        Whether ``predict_proba`` is calibrated, on as many of five folds as hold 1000 rows: a fit
        more for each, which a fit with the kernel itself makes when probabilities are first asked
        for, or saved. The class predicted always has the largest probability. With
        ``class_weight`` probabilities are of weighted classes.
    tol : float, default 1e-4
        The last Newton step lowered the objective by less than this share of it, and promised no
        more; the hinge's objective is above its minimum by no more than this share.
    max_iter : int, default 100
        Newton steps at most; where a width of smoothing goes to zero, for each width. LIBSVM has
        no such limit.

    See Also
    --------
    LogisticRegression : Classification with probabilities.
    KernelRidgeClassifier : Classification in one pass over the rows.

    Notes
    -----
    On features Newton's method, with these kept in memory where they fit, takes
    O(n (c(φ) + s D K) + K (a D² + s D³)), with s some ten steps and a the rows that enter or
    leave the margin in all; above D = 2048, and without memory for features, conjugate gradients
    take O(n (c(φ) + s D K) + D³), with s some tens. Memory O(K D² + n K) beside the features.

    Without features LIBSVM finds the hinge's least (Fan, Chen and Lin 2005), in O(n²) mostly. The
    squared hinge takes Newton steps over the active rows of each class, a of them (Chapelle 2007),
    of O(a³/3 + n a). Memory 2 n². Beyond 8192 rows, with a Gaussian kernel and C given, LIBSVM
    serves where two samples say that support vectors are few: ``X_fit_`` are then these.

    Examples
    --------
    >>> import numpy as np
    >>> from bochner import SVC
    >>> X = np.random.default_rng(0).uniform(-2, 2, (500, 2))
    >>> y = np.where((X**2).sum(axis=1) < 2, "inside", "outside")
    >>> SVC(random_state=0).fit(X, y).predict([[0.0, 0.5], [1.8, 1.0]]).tolist()
    ['inside', 'outside']
    """

    kernel: Kernel | str = "auto"
    _: KW_ONLY
    loss: str | None = None
    multi_class: str = "auto"
    probability: bool = True

    def _loss(self, n_classes: int, rows: int) -> Loss:
        one_of(self.multi_class, "SVC", "multi_class", ("auto", "ovo", "ovr"))
        asked = self.loss
        if asked is None:
            two = n_classes == 2 or self._pairs(n_classes, rows) is not None
            asked = "hinge" if rows and self.fit_intercept and two else "squared_hinge"
        squared = one_of(asked, "SVC", "loss", ("squared_hinge", "hinge")) == "squared_hinge"
        return SquaredHinge() if squared else Hinge()

    def _pairs(self, n_classes: int, rows: int) -> ClassPairs | None:
        # From 100 rows a class on pairs of classes have rows enough to tell them apart
        auto = self.multi_class == "auto" and self.fit_intercept and rows >= 100 * n_classes
        pairs = n_classes > 2 and (auto or self.multi_class == "ovo")
        return ClassPairs(n_classes) if pairs else None

    predict_proba = available_if(_has_probabilities)(ProbableLabels.predict_proba)
    predict_log_proba = available_if(_has_probabilities)(ProbableLabels.predict_log_proba)

    def _log_probabilities(self, f: Float[Array, "n t"]) -> Float[Array, "n K"]:
        return self.calibration_.log_probabilities(f)

    calibration_ = learned(
        "calibration",
        "A Calibration: probabilities from decision values, with ``probability=True``.",
        "SVC: this model has no probabilities: it was fitted with probability=False, or some class "
        "had too few different rows to hold some out. Fit again, with more.",
    )


@estimator
class LogisticRegression(ConvexClassifier):
    """Logistic regression through features: kernel logistic regression for any number of rows.

    Minimises ‖β‖²/2 + C Σ wᵢ ℓ(yᵢ, φ(xᵢ)·β + b), with φ(x)·φ(y) ≈ k(x, y) and ℓ minus the log of
    the probability of the class: of scikit-learn's LogisticRegression on φ(X).

    Parameters
    ----------
    %(kernel or auto)s
    %(method or exact)s
    %(n_features or exact)s
    tol : float, default 1e-4
        The last Newton step promised to lower the objective by less than this share of it.
    max_iter : int, default 100
        Newton steps at most.

    See Also
    --------
    SVC : Classification by a hinge loss.
    KernelRidgeClassifier : Classification in one pass over the rows.

    Notes
    -----
    Newton's method with conjugate gradients, in passes over the features that all classes share:
    time O(n (c(φ) + s D K) + D³) with s some tens, memory O(D² + n K) beside the features. Without
    features some tens of steps of O(n² K), a few factors of n³/3, and memory 2 n².

    Examples
    --------
    >>> import numpy as np
    >>> from bochner import LogisticRegression
    >>> X = np.random.default_rng(0).uniform(-2, 2, (500, 2))
    >>> model = LogisticRegression(random_state=0).fit(X, (X**2).sum(axis=1) < 2)
    >>> bool(model.predict_proba([[0.0, 0.5]])[0, 1] > 0.7)
    True
    """

    kernel: Kernel | str = "auto"

    def _loss(self, n_classes: int, rows: int) -> Loss:
        return Multinomial() if n_classes > 2 else Logistic()

    def _log_probabilities(self, f: Float[Array, "n t"]) -> Float[Array, "n K"]:
        return log_probabilities(f)


@estimator
class OneClassSVM(OutlierMixin, Differentiable, WithoutTarget, ConvexEstimator):
    """Support of a distribution: detection of outliers, with features for many rows.

    Minimises ½‖β‖² + Σ wᵢ max(0, ρ − φ(xᵢ)·β) − nu W ρ, W = Σ wᵢ (Schölkopf et al. 2001): the
    problem of scikit-learn's ``OneClassSVM`` with the kernel φ(x)·φ(y), for any number of rows.

    Parameters
    ----------
    %(kernel at the median)s
    method : Method, str or None, default None
        None: up to 4096 rows the kernel itself, with no features, unless ``n_features`` or
        ``precision`` ask for them, and "auto" for more. "auto" or a method: how features are made;
        see :func:`bochner.draw`.
    %(n_features or exact)s
    nu : float, default 0.5
        Share of rows, in (0, 1]: at most this share of the weight lies outside (φ(x)·β < ρ), and
        at least this share outside or at the border (to rounding of the features).
    tol : float, default 1e-6
        Tolerance of the duality gap and of the gain of a step, relative to ½‖β‖² and the loss.
    max_iter : int, default 200
        Largest number of Newton steps.

    See Also
    --------
    KernelFeatures : Features for any linear method.
    SVC : Classification of rows with labels.

    Notes
    -----
    With the kernel itself LIBSVM minimises, in O(n²) to O(n³); through features time is
    O(steps (n D + a D²)), a the rows near the border. ρ is the nu-quantile of the scores.

    Examples
    --------
    >>> import numpy as np
    >>> from bochner import OneClassSVM
    >>> X = np.random.default_rng(0).standard_normal((300, 2))
    >>> model = OneClassSVM(nu=0.1, random_state=0).fit(X)
    >>> model.predict([[0.0, 0.0], [9.0, 9.0]]).tolist()
    [1, -1]
    """

    kernel: Kernel | str = "gaussian"
    _: KW_ONLY
    method: Method | str | None = None
    n_features: int | float | str | None = None
    nu: float = 0.5
    tol: float = 1e-6
    max_iter: int = 200
    precision: str = "auto"
    random_state: Seed = None
    n_jobs: int | None = None

    def _fit(self, blocks: Blocks, inputs: Inputs, where: Executor = LOCAL) -> ConvexFit:
        nu = finite(self.nu, "OneClassSVM", "nu")
        spec = self._convex_spec(BelowZero(), 1.0, nu=nu)
        if not 0 < nu <= 1:
            raise InvalidInput(
                f"OneClassSVM: nu must lie in (0, 1]; got {nu!r}. It is the share of rows that may "
                "lie outside: 0.05, say."
            )
        if where is LOCAL and self._on_kernel(blocks, 4096):
            return fit_one_class_exactly(spec, blocks, inputs)
        return fit_one_class(spec, blocks, inputs, where)

    def fit_predict(
        self, X: Tabular, y: object = None, sample_weight: Array | None = None
    ) -> Array:
        """Fit, and return +1 for rows inside and −1 for those outside."""
        return self._atomic(lambda model: model.fit(X, y, sample_weight).predict(X))

    @by_partition
    def decision_function(self, X: Tabular) -> Array:
        """Return φ(X)·β − ρ, (n,): above zero inside, below zero outside."""
        rows = self._rows_to_predict(X)
        return joined([from_numpy(f[:, 0], like=X) for X, f in self._fitted.predictions(rows)])

    @by_partition
    def score_samples(self, X: Tabular) -> Array:
        """Return φ(X)·β, (n,): the higher, the more like the rows of the fit."""
        return self.decision_function(X) + float(self.offset_[0])

    @by_partition
    def predict(self, X: Tabular) -> Array:
        """Return +1 for rows inside and −1 for those outside, (n,)."""
        return joined(list(self.predict_blocks(self._rows_to_predict(X))))

    def outputs(self, X: Tabular) -> dict[str, Array]:
        """Return +1 or −1, and the value above zero inside, of each row."""
        f = to_numpy(self.decision_function(X))
        return {"label": np.where(f >= 0, 1, -1), "decision": f}

    def predict_blocks(self, blocks: Blocks) -> Iterator[Array]:
        """Yield the predictions of each block of rows."""
        for X, fitted in self._fitted.predictions(self._as_fitted(blocks)):
            yield from_numpy(np.where(fitted[:, 0] >= 0, 1, -1), like=X)

    @property
    def offset_(self) -> Float[Array, " 1"]:
        """ρ, (1,): ``decision_function`` is ``score_samples`` − ρ."""
        return -self.solution_.intercept

    @property
    def dual_coef_(self) -> Float[Array, " n"]:
        """Coefficients of the kernel and each row of ``X_fit_``, of a fit without features."""
        return self._of_rows("dual_coef_").solution.coef[:, 0]
