"""Kernel ridge regression at any number of rows."""

from collections.abc import Iterator, Sequence
from typing import Any, Self

from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils.metaestimators import available_if

from bochner._core.arrays import from_numpy
from bochner._core.random import Seed
from bochner._core.shapes import Array, Float, Tabular
from bochner.data.blocks import Blocks
from bochner.features import Method
from bochner.kernels import Kernel
from bochner.models._fitting import joined
from bochner.models.ridge.estimator import RidgeEstimator, takes_pieces
from bochner.selection.width import Tolerance


class KernelRidge(MultiOutputMixin, RegressorMixin, RidgeEstimator):
    """Kernel ridge regression through features, in one pass over the rows.

    Minimises Σ wᵢ(yᵢ − φ(xᵢ)·β − b)² + alpha ‖β‖² where φ(x)·φ(y) ≈ k(x, y). That is kernel ridge
    regression with the kernel φ(x)·φ(y), for any number of rows.

    Parameters
    ----------
    kernel : Kernel or str, default "gaussian"
        A value is used as it is. A name ("gaussian", "laplace", "exponential", "matern12",
        "matern32", "matern52", "cauchy", "rational_quadratic", "linear") means: of this family,
        with the lengthscale chosen from a sample of the rows by leave-one-out error. "auto":
        family, lengthscales and smoothness are tuned on a sample; see :func:`bochner.tune`.
    method : Method or str, default "auto"
        How features are made; see :func:`bochner.draw`. "auto" measures the candidates on a
        sample of rows and says in ``choice_`` what it took and why. "exact" takes no features but
        the kernel itself, by conjugate gradients (:class:`bochner.ExactKernel`): all rows are kept
        in memory, time grows like n² (100,000 rows are minutes), predictions are within 1e-6 of
        the exact ones.
    n_features : int, "auto" or Tolerance, default 1024
        D. Error falls with D; time grows like n D² + D³ and memory like D². "auto": as many as
        bring ε of the certificate to 0.1 at the penalty that is forecast; see
        :func:`bochner.required_features`. With "exact" the width of the preconditioner.
    metric : None or "learned", default None
        "learned": columns are scaled and turned first, by the average outer product of the
        gradients of a few fits on a sample of rows (recursive feature machines). Worth trying on
        tables whose columns matter unequally.
    alpha : float, (t,) or {"loo", "gcv", "evidence", "kfold"}, default "loo"
        The penalty, or one for each target, or how to choose it: by leave-one-out errors
        (exact for all rows up to 8192; beyond, those of as many random ones, corrected by the
        residuals of all), generalised cross-validation, marginal likelihood, or five folds, whose
        moments are taken out of the total one by one (memory 5 D²; folds go by row number,
        whatever the blocks). With "exact" it is chosen on the features of the preconditioner. 0 is
        the solution of least norm.
    alpha_per_target : bool, default False
        Whether each target has the penalty that is best for it alone; one factorisation serves
        all. ``alpha_`` is then (t,).
    precision : {"auto", "float32", "float64"}, default "auto"
        "auto": float32 features and products, float64 sums and solution; all in float64 where
        the fit is small, and products again in float64 where float32 would limit the answer.
        "float32" never sweeps again, and the outcome says if it should. "float64" throughout.
    fit_intercept : bool, default True
        Whether b is fitted (unpenalised) or zero.
    random_state : int, Generator, RandomState or None, default None
        Seed of features and samples. The same seed gives the same model for any block size.

    Attributes
    ----------
    kernel_ : Kernel
        The kernel with its numbers.
    map_ : FeatureMap
        φ.
    choice_ : Choice
        Method taken, what it was compared with, and the reason.
    search_ : Tuning
        Lengthscales tried and their errors.
    moments_ : Moments
        What further rows, or other models, are added to.
    solution_ : Solution
        Coefficients, outcome, and criteria along the whole path of alpha.
    alpha_ : float or (t,)
    coef_ : (D,) or (t, D)
    dual_coef_ : (n,) or (n, t)
        Of the kernel and each row of ``X_fit_``: only with ``method="exact"``, and then there are
        no ``coef_``, ``moments_`` and ``certificate_``.
    intercept_ : float or (t,)
    certificate_ : Certificate
        How far φ(x)·φ(y) is from k on the rows of the fit; measured when first asked for.
    schema_ : Schema or None
        What the columns of a table mean.
    sample_ : RowSample
        Rows kept for leave-one-out errors and the certificate.
    n_features_in_ : int
    feature_names_in_ : (d,) of str
        Where the rows had names.

    Notes
    -----
    Time O(n (c(φ) + D²) + D³), memory O(D²) and one block, whatever n.

    **alpha = 0.** Of the coefficients that fit best, those of least norm: the interpolant where
    D ≥ n, least squares where D < n. ``fit`` adds rows up by QR in float64 (twice the time of a
    sweep, any n), and drops directions whose singular values are below max(n, D)·2⁻⁵² of the
    largest. After ``partial_fit`` or a merge of more than 8192 rows there are only moments, and
    directions below √D·1.5e-8 are dropped.

    Examples
    --------
    >>> import numpy as np
    >>> from bochner import KernelRidge
    >>> X = np.random.default_rng(0).uniform(-3, 3, (500, 1))
    >>> model = KernelRidge(random_state=0).fit(X, np.sin(X[:, 0]))
    >>> bool(abs(model.predict([[1.0]])[0] - np.sin(1.0)) < 1e-3)
    True
    """

    def __init__(
        self,
        kernel: Kernel | str = "gaussian",
        *,
        method: Method | str = "auto",
        n_features: int | str | Tolerance = 1024,
        metric: str | None = None,
        alpha: float | Sequence[float] | str = "loo",
        alpha_per_target: bool = False,
        precision: str = "auto",
        fit_intercept: bool = True,
        random_state: Seed = None,
    ) -> None:
        self.kernel = kernel
        self.method = method
        self.n_features = n_features
        self.metric = metric
        self.alpha = alpha
        self.alpha_per_target = alpha_per_target
        self.precision = precision
        self.fit_intercept = fit_intercept
        self.random_state = random_state

    # --- fitting ---------------------------------------------------------------------------------

    def fit(self, X: Tabular, y: Array, sample_weight: Array | None = None) -> Self:
        """Fit to rows in memory.

        Parameters
        ----------
        X : (n, d)
            Array, sparse matrix, or table; text columns of a table become one column of zeros
            and ones for each category.
        y : (n,) or (n, t)
        sample_weight : (n,), optional
            Finite, not negative. A row of weight 2 counts as two rows.

        Returns
        -------
        self

        Raises
        ------
        InvalidInput, ValueError
            If the data are not what was required; the message says what to do.
        """
        blocks, inputs = self._blocks_of(X, y, sample_weight)
        self.fit_ = self._fit(blocks, inputs)
        return self

    def fit_blocks(self, blocks: Blocks) -> Self:
        """Fit to blocks: files larger than memory, tables, streams that can be read again.

        One pass makes the features. A pass before it, without features, is made where the
        lengthscale or the method is chosen from rows, and one more in float64 where float32 would
        limit the answer.
        """
        self.fit_ = self._fit(blocks, self._inputs_of(blocks))
        return self

    @available_if(takes_pieces)
    def partial_fit(self, X: Tabular, y: Array, sample_weight: Array | None = None) -> Self:
        """Add rows to those seen so far, and solve again.

        The first call draws the map (and chooses lengthscale and method from its rows, where
        those are open); later calls add to the moments. All is float64 unless
        ``precision="float32"``, because rows do not come again; all calls together equal one
        ``fit`` with the same map.
        """
        first = not self._has_sums
        blocks, inputs = self._blocks_of(X, y, sample_weight, first=first)
        self.fit_ = self._first_piece(blocks, inputs) if first else self._more(blocks)
        return self

    # --- prediction ------------------------------------------------------------------------------

    def predict(self, X: Tabular) -> Array:
        """Return φ(X) β + b, (n,) or (n, t), in the array library of X and float64."""
        return joined(list(self.predict_blocks(self._rows_to_predict(X))))

    def predict_blocks(self, blocks: Blocks) -> Iterator[Array]:
        """Give the predictions of one block of rows after the other."""
        fit = self._fitted
        for X, fitted in fit.predictions(blocks):
            yield from_numpy(fitted.reshape(len(fitted), *fit.target_shape), like=X)

    # --- what was learned ------------------------------------------------------------------------

    @property
    def coef_(self) -> Float[Array, " D"]:
        """β, (D,) or (t, D)."""
        coef = self._coef("see dual_coef_ and X_fit_").T
        return coef if self.target_shape_ else coef[0]

    @property
    def dual_coef_(self) -> Float[Array, " n *t"]:
        """Of the kernel and each row of ``X_fit_``, (n,) or (n, t): of an exact fit."""
        dual = self._exact("dual_coef_").solution.coef
        return dual if self.target_shape_ else dual[:, 0]

    @property
    def intercept_(self) -> Any:
        """b, a number or (t,)."""
        intercept = self.solution_.intercept
        return intercept if self.target_shape_ else float(intercept[0])
