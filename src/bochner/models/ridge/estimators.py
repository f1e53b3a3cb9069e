"""Kernel ridge regression and classification at any number of rows."""

from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, replace
from typing import Any, Self

import numpy as np
from sklearn.utils.metaestimators import available_if

from bochner import models
from bochner._core.arrays import to_numpy
from bochner._core.checks import switch
from bochner._core.shapes import Array, Float, Tabular
from bochner.certificates.certificate import Certificate
from bochner.data.blocks import Blocks
from bochner.data.schema import Inputs
from bochner.data.sources import Block
from bochner.errors import InvalidInput
from bochner.kernels.kernel import Kernel
from bochner.models._base import Differentiable, getter
from bochner.models._intervals import IntervalRegressor
from bochner.models._labels import Calibration, LabelEstimator, decide
from bochner.models._parameters import KernelParameters, estimator
from bochner.models.error_law import HeldOutRows
from bochner.models.representations import representation
from bochner.models.representations.representation import AddsRows, RidgeSpec
from bochner.solvers.ridge.solution import as_alpha
from bochner.sums.passes import LOCAL, Executor, indicators


class RidgeEstimator(KernelParameters, Differentiable, AddsRows):
    """An estimator whose ``fit_`` is a ridge regression."""

    alpha: Any
    alpha_per_target: bool

    def _spec(self) -> RidgeSpec:
        method = representation.as_method(self.method)
        features = self._feature_spec(representation.as_features(method))
        alpha = as_alpha(self.alpha, features.caller)
        centred = switch(self.fit_intercept, features.caller)
        return RidgeSpec(features, alpha, self.alpha_per_target, centred, method)

    def _fit(
        self, blocks: Blocks, inputs: Inputs, where: Executor = LOCAL, precision: Any = None
    ) -> "models.RidgeFit":
        spec = self._spec()
        if inputs.schema is not None:
            spec = replace(spec, features=replace(spec.features, trends=inputs.schema.trends))
        rows = models.represent(spec, blocks, where, precision, self.n_features is None)
        return models.warn(inputs, spec, *rows)

    def _update(self, blocks: Blocks, inputs: Inputs) -> "models.RidgeFit":
        self._require_rows("partial_fit", type(self).__name__)
        return models.add_rows(self._fitted, self._spec(), blocks)

    def solve_again(self) -> Self:
        """Solve again from the stored moments and sample, with the current ``alpha``."""
        self._require_rows("solve_again", type(self).__name__)
        spec = self._spec()
        self.fit_ = models.warn(self._inputs, spec, *self._fitted.representation.solve(spec))
        return self

    @property
    def _has_sums(self) -> bool:
        if not self.__sklearn_is_fitted__():
            return False
        rows = self.fit_.representation
        return "coef_" not in rows.lacks or (self.method is None and rows.y is not None)

    def _require_rows(self, name: str, caller: str = "") -> Any:
        return self._fitted.representation.require(name, caller)

    @property
    def coef_(self) -> Any:
        """Coefficients β, (D,) or (t, D); for K classes (K, D), for two classes (1, D)."""
        self._require_rows("coef_")
        return self._squeeze(self.solution_.coef.T)

    intercept_ = getter(
        "solution.intercept",
        "Intercept b, a number or (t,); for K classes (K,), for two classes (1,).",
        by_target=True,
    )

    solution_ = getter(
        "solution", "A Solution: coefficients, outcome, and the criteria of each compared alpha."
    )

    alpha_ = getter("solution.alpha", "The penalty; (t,) if each target has its own.")

    @property
    def X_fit_(self) -> Any:
        """Training rows (n, d) of an exact or local fit; other fits raise AttributeError."""
        return self._require_rows("X_fit_").X

    @property
    def certificate_(self) -> Certificate:
        """Certificate of the features: errors of φ(x)·φ(y) on a sample of the training rows."""
        self._require_rows("certificate_")
        return self._fitted.certificate

    def certify(self, X: Tabular) -> Certificate:
        """Return the certificate of the map and kernel on n other rows.

        The penalty is ``alpha_`` times n, divided by the number of training rows.
        """
        return self.certify_blocks(self._rows_to_predict(X))

    def certify_blocks(self, blocks: Blocks) -> Certificate:
        """Return the certificate on other rows, given as blocks; see :meth:`certify`."""
        return self._certificate_on(blocks, new_rows=True)

    _path = getter("solution.path", "The penalties that were compared.")


@estimator
class KernelRidge(IntervalRegressor, RidgeEstimator):
    """Kernel ridge regression with the exact kernel or with features, for any number of rows.

    Minimises Σ wᵢ (yᵢ − f(xᵢ) − b)² + alpha ‖f‖². With features, f(x) = φ(x)·β, ‖f‖ = ‖β‖ and
    φ(x)·φ(y) ≈ k(x, y); the rows are then read in one pass.

    Parameters
    ----------
    kernel : Kernel or str, default "auto"
        - "auto": the kernel of smallest held-out error, from several families with one lengthscale,
          one lengthscale per column or a learned metric, and from sums; see ``search_``.
        - "gaussian", "laplace", "exponential", "matern12", "matern32", "matern52", "cauchy",
          "rational_quadratic" or "linear": this family; its lengthscale is chosen by the
          leave-one-out errors of a sample of rows.
        - a kernel: used without changes; hyperparameters that are "auto" are tuned by leave-one-out
          errors, see :class:`bochner.kernels.Free`.
    effort : {"low", "medium", "high"}, default "medium"
        - "low": ``kernel="auto"`` is a Gaussian kernel with one lengthscale, or lengthscales
          proportional to the standard deviations of columns; above 2048 rows fits are local.
        - "medium": ``kernel="auto"`` takes 2 to 3 CPU seconds for any n. "high": 17 CPU seconds.
    method : Method, str or None, default None
        - None: "exact" up to 8192 rows (2048 with ``effort="low"``), unless ``n_features`` or
          ``precision`` is set or ``alpha`` is 0. For more rows "local" with ``kernel="auto"``, if
          the rows are in this process and take at most a gigabyte; otherwise "auto". Both may use a
          Fourier grid, see "auto".
        - "auto": features of the best method on a sample of rows; see :func:`bochner.draw` and
          ``choice_``. Above 8192 rows, for up to three columns or a kernel on the globe:
          :class:`bochner.FourierGrid` or :class:`bochner.SphericalHarmonics`, if finufft is
          installed, ``n_features`` and ``precision`` are not set, ``alpha`` is not 0, and 2047
          modes (n/4 for 131,072 rows or more) have an error of at most 3 % of k(x, x).
        - "exact": the exact kernel (:class:`bochner.ExactKernel`). The model contains all rows.
          The time grows as n³ up to 8192 rows (2000 rows: a second), then as n² (100,000 rows:
          minutes), with a penalty chosen on the features of the preconditioner.
        - "local": the exact kernel in groups of neighbouring rows, and landmarks for other pairs
          (:class:`bochner.LocalKernel`). The model contains all rows; the time grows as n.
    n_features : int, float, "auto" or None, default None
        - None: 1024 features, if features are used; 2048 for 65,536 rows or more.
        - D, a number of features; the error falls with D. Above 10,000 the fit takes some tens of
          passes of O(n D) each if there are more than 8192 rows. With "exact" D is the width of the
          preconditioner.
        - a number below one: the least D with spectral distance ε at most this number, at alpha or
          a predicted penalty; "auto" is 0.1. See :func:`bochner.required_features`.
    metric : None or "learned", default None
        "learned": first scale and rotate the columns by the average outer product of the gradients
        of a few fits on a sample of rows (recursive feature machines).
    alpha : float, (t,) or {"loo", "gcv", "evidence"}, default "loo"
        - "loo": the penalty of smallest leave-one-out error. With features: error of at most 8192
          random rows, times the ratio of the mean squared residuals of all and of these rows. With
          a kernel matrix: error of at most 2048 random rows; if the prior variance is large, or f
          hardly better than a constant, the evidence decides among errors up to 1 % larger.
        - "gcv": chosen by generalised cross-validation. "evidence": by the marginal likelihood.
        - a number, or one for each target; 0: the solution of least norm.
    alpha_per_target : bool, default False
        Whether each target has its own penalty; ``alpha_`` is then (t,).
    precision : {"auto", "float32", "float64"}, default "auto"
        - "auto": float64 for small fits; otherwise float32 features and products, with sums and
          solution in float64. If float32 limits the accuracy, products are computed again in
          float64, in a second pass.
        - "float32": as "auto", without the second pass. "float64": float64 throughout.

    See Also
    --------
    GaussianProcessRegressor : The same mean, with standard deviations.
    KernelRegressor : Regression by other losses.

    Notes
    -----
    With features, time is O(n (c(φ) + D²) + D³), c(φ) the cost of φ(x), and memory O(D²) and one
    block of rows, for any n.

    **alpha = 0** gives the least-squares coefficients of least norm, which interpolate if D ≥ n.
    ``fit`` uses a QR factorisation in float64 and drops directions with singular values below
    max(n, D)·2⁻⁵² times the largest; after ``partial_fit``, below √D·1.5e-8 times the largest.

    Examples
    --------
    >>> import numpy as np
    >>> from bochner import KernelRidge
    >>> X = np.random.default_rng(0).uniform(-3, 3, (500, 1))
    >>> model = KernelRidge(random_state=0).fit(X, np.sin(X[:, 0]))
    >>> bool(abs(model.predict([[1.0]])[0] - np.sin(1.0)) < 1e-3)
    True
    """

    kernel: Kernel | str = "auto"
    _: KW_ONLY
    alpha: float | Sequence[float] | str = "loo"
    alpha_per_target: bool = False

    def _left_out(self) -> HeldOutRows | None:
        return self._fitted.left_out()

    @property
    def dual_coef_(self) -> Float[Array, " n *t"]:
        """Coefficients of the rows ``X_fit_``, (n,) or (n, t), of an exact or local fit.

        These fits have no ``coef_``, ``moments_`` and ``certificate_``.
        """
        self._require_rows("dual_coef_")
        return self._squeeze(self.solution_.coef.T).T


@estimator
class KernelRidgeClassifier(LabelEstimator, RidgeEstimator):
    """Classification by kernel ridge regression of ±1.

    Each class is a target, +1 on its rows and −1 on other rows (two classes: one target). All
    targets are fitted as by :class:`KernelRidge`, with one factorisation, and the class of the
    largest value is predicted. The error rate is similar to :class:`SVC`.
    Probabilities are calibrated on leave-one-out decision values of some thousand rows.

    Parameters
    ----------
    %(kernel or auto)s
    method : Method, str or None, default None
        As in :class:`KernelRidge`, but None is "exact" up to 12,288 rows.
    %(n_features or exact)s
    alpha : float, (K,) or {"loo", "gcv", "evidence"}, default "loo"
        The penalty, or the criterion that chooses it from squared errors of ±1. With the exact
        kernel "loo" then minimises the leave-one-out log loss of calibrated probabilities.
    alpha_per_target : bool, default False
        Whether each class has its own penalty.

    See Also
    --------
    LogisticRegression : Classification by the logistic loss.
    SVC : Classification by a hinge loss.

    Notes
    -----
    Time and memory are as for :class:`KernelRidge`, for any K. With "balanced", ``partial_fit``
    computes the class weights from the rows of each call.

    Examples
    --------
    >>> import numpy as np
    >>> from bochner import KernelRidgeClassifier
    >>> X = np.random.default_rng(0).uniform(-1, 1, (400, 2))
    >>> y = np.where((X**2).sum(axis=1) < 0.5, "in", "out")
    >>> KernelRidgeClassifier(random_state=0).fit(X, y).predict([[0.0, 0.0], [0.9, 0.9]]).tolist()
    ['in', 'out']
    """

    kernel: Kernel | str = "auto"
    _: KW_ONLY
    alpha: float | str = "loo"
    alpha_per_target: bool = False
    class_weight: Any = None

    def _read(self, *rows: Any, **options: Any) -> tuple[Blocks, Inputs]:
        """Return blocks with targets ±1, (b, K) or (b, 1), and weights divided by a unit."""
        # Leave-one-out errors count a weight above one as copies, and leave out one copy. A class
        # weight is no number of copies: weights are divided by the largest class weight.
        blocks, inputs = super()._read(*rows, **options)
        unit, codes = 1.0, np.arange(len(inputs.classes))
        # All calls of partial_fit have the same unit
        is_fixed = not ("classes" in options and self.class_weight == "balanced")
        if self.class_weight is not None and isinstance(self.alpha, str) and is_fixed:
            unit = float(np.max(blocks.weigh(codes))) or 1.0  # type: ignore[misc]

        def signs(block: Block) -> Block:
            w = None if block.w is None else to_numpy(block.w) / unit
            return block._replace(y=indicators(to_numpy(block.y), len(inputs.classes)), w=w)

        return blocks.map(signs), inputs

    @available_if(representation.takes_pieces)
    def partial_fit(
        self, X: Tabular, y: Array, classes: Any = None, sample_weight: Array | None = None
    ) -> Self:
        """Add rows to the fit, and solve again; see :meth:`KernelRidge.partial_fit`.

        Parameters
        ----------
        X : (n, d)
        y : (n,)
        classes : (K,), optional
            All labels of all calls. Required in the first call unless its y has all labels.
        sample_weight : (n,), optional
        """
        return self._add_rows(X, y, sample_weight, classes=classes)

    @property
    def calibration_(self) -> Calibration:
        """Map from decision values to probabilities, fitted to leave-one-out decision values."""
        calibration = self._fitted.calibration
        if calibration is None:
            raise InvalidInput(
                "KernelRidgeClassifier: probabilities need leave-one-out values, which conjugate "
                "gradients do not compute; use features, e.g. n_features=1024."
            )
        return calibration

    def predict_blocks(self, blocks: Blocks) -> Iterator[Array]:
        """Yield the labels of each block of rows."""
        for _, values in self._fitted.predictions(self._encode_as_fit(blocks)):
            yield self.classes_[decide(values)]
