"""Kernel ridge regression at any number of rows."""

import warnings
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from bochner._ground.arrays import from_numpy, to_numpy
from bochner._ground.blocks import Blocks
from bochner._ground.checks import one_of
from bochner._ground.random import Seed, seed_of
from bochner._ground.shapes import Array, Float
from bochner.errors import InvalidInput, SolutionWarning
from bochner.estimators import engine
from bochner.estimators.inputs import fit_blocks_of, note_columns, predict_blocks_of
from bochner.estimators.named import accepts_sparse, as_kernel, set_kernel_params
from bochner.estimators.rows import Keeper, RowSample
from bochner.features import Method
from bochner.features.draw import as_method
from bochner.features.nystrom import NystromMap, Rounded
from bochner.kernels import Kernel
from bochner.moments import Moments, Precision
from bochner.planning import Certificate, certify
from bochner.solvers.direct import Eigen, decompose, decompose_rows
from bochner.solvers.forecast import limited
from bochner.solvers.ridge import as_alpha, solve_ridge
from bochner.solvers.solution import Outcome, Solution

__all__ = ["KernelRidge"]

#: Below this many products n·D² a fit in float64 takes no time that anyone would notice.
SMALL = 4e9

#: Rows of a sample that leave-one-out errors are the mean of, where the sample is not all rows:
#: penalties are compared on the same rows, so that few decide.
LOO_ROWS = 4096

#: Rows that a forecast of the precision looks at.
LOOK_ROWS = 2048

#: Below this many, singular values of the rows are affordable.
FEW = 2e8


class KernelRidge(MultiOutputMixin, RegressorMixin, BaseEstimator):
    """Kernel ridge regression through features, in one pass over the rows.

    Minimises Σ wᵢ(yᵢ − φ(xᵢ)·β − b)² + alpha ‖β‖² where φ(x)·φ(y) ≈ k(x, y). That is kernel ridge
    regression with the kernel φ(x)·φ(y), for any number of rows.

    Parameters
    ----------
    kernel : Kernel or str, default "gaussian"
        A value is used as it is. A name ("gaussian", "laplace", "exponential", "matern12",
        "matern32", "matern52", "cauchy", "rational_quadratic", "linear") means: of this family,
        with the lengthscale chosen from a sample of the rows by leave-one-out error.
    method : Method or str, default "auto"
        How features are made; see :func:`bochner.draw`. "auto" measures the candidates on a
        sample of rows and says in ``choice_`` what it took and why.
    n_features : int, default 1024
        D. Error falls with D; time grows like n D² + D³ and memory like D².
    alpha : float or {"loo", "gcv", "evidence"}, default "loo"
        The penalty, or how to choose it: by exact leave-one-out errors (of all rows up to 8192,
        else of 4096 random ones), generalised cross-validation, or marginal likelihood.
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
    search_ : LengthscaleSearch
        Lengthscales tried and their errors.
    moments_ : Moments
        What further rows, or other models, are added to.
    solution_ : Solution
        Coefficients, outcome, and criteria along the whole path of alpha.
    alpha_ : float
    coef_ : (D,) or (t, D)
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

    Examples
    --------
    >>> import numpy as np
    >>> from bochner import KernelRidge
    >>> X = np.random.default_rng(0).uniform(-3, 3, (500, 1))
    >>> model = KernelRidge(random_state=0).fit(X, np.sin(X[:, 0]))
    >>> bool(abs(model.predict([[1.0]])[0] - np.sin(1.0)) < 1e-3)
    True
    """

    solution_: Solution

    def __init__(
        self,
        kernel: Kernel | str = "gaussian",
        *,
        method: Method | str = "auto",
        n_features: int = 1024,
        alpha: float | str = "loo",
        precision: str = "auto",
        fit_intercept: bool = True,
        random_state: Seed = None,
    ) -> None:
        self.kernel = kernel
        self.method = method
        self.n_features = n_features
        self.alpha = alpha
        self.precision = precision
        self.fit_intercept = fit_intercept
        self.random_state = random_state

    # --- fitting ---------------------------------------------------------------------------------

    def fit(self, X: Float[Array, "n d"], y: Array, sample_weight: Array | None = None) -> Self:
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
        return self._fit(fit_blocks_of(self, X, y, sample_weight, reset=True))

    def fit_blocks(self, blocks: Blocks) -> Self:
        """Fit to blocks: files larger than memory, tables, streams that can be read again.

        One pass makes the features. A pass before it, without features, is made where the
        lengthscale or the method is chosen from rows, and one more in float64 where float32 would
        limit the answer.
        """
        note_columns(self, blocks, reset=True)
        return self._fit(blocks)

    def partial_fit(
        self, X: Float[Array, "n d"], y: Array, sample_weight: Array | None = None
    ) -> Self:
        """Add rows to those seen so far, and solve again.

        The first call draws the map (and chooses lengthscale and method from its rows, where
        those are open); later calls add to the moments. All is float64 unless
        ``precision="float32"``, because rows do not come again; all calls together equal one
        ``fit`` with the same map.
        """
        first = not hasattr(self, "moments_")
        blocks = fit_blocks_of(self, X, y, sample_weight, reset=first)
        if first:
            return self._fit(blocks, "float32" if self.precision == "float32" else "float64")
        self._check_targets(blocks)
        keeper = Keeper(self.seed_, self.sample_, self.rows_seen_)
        self.moments_ += engine.sweep(self.map_, blocks, self.feature_dtype_, "float64", keeper)
        return self._finish(blocks, keeper)

    def _fit(self, blocks: Blocks, precision: Precision | None = None) -> Self:
        self._choose(blocks)
        self.rows_seen_ = 0
        self.target_shape_ = _target_shape(blocks)
        self.feature_dtype_ = precision or self._precision(blocks.n_rows)
        self._finish(blocks, self._sweep(blocks))
        if self.solution_.outcome is Outcome.FLOAT32_LIMITED and self.precision == "auto":
            self.moments_ = engine.sweep(self.map_, blocks, self.feature_dtype_, "float64")
            self.solution_ = self._solve()
        return self._warn()

    def _choose(self, blocks: Blocks) -> None:
        """Check the arguments, choose what is open, draw the map."""
        kernel, method = as_kernel(self.kernel), as_method(self.method)
        one_of(self.precision, "KernelRidge", "precision", ("auto", "float32", "float64"))
        alpha = as_alpha(self.alpha)
        self.seed_ = seed_of(self.random_state)
        rows = engine.presample(blocks, self.seed_) if engine.needs_rows(kernel, method) else None
        share = (
            None if isinstance(alpha, str) or rows is None else alpha / engine.count_rows(blocks)
        )
        recipe = engine.prepare(
            kernel, method, self.n_features, blocks.n_columns, rows, self.seed_, share
        )
        self.kernel_, self.map_ = recipe.kernel, recipe.map
        self.search_, self.choice_ = recipe.search, recipe.choice

    def _precision(self, n: int | None) -> Precision:
        """Return the precision of features and of their products in the first sweep."""
        if self.precision != "auto":
            return "float32" if self.precision == "float32" else "float64"
        # A Nyström map of float32 features is that of K plus a jitter, which limits most fits;
        # its float64 sweep costs 1.6 times as much, and a second sweep more.
        small = n is not None and n * self.map_.n_features**2 <= SMALL
        return "float64" if small or isinstance(self.map_, NystromMap) else "float32"

    def _sweep(self, blocks: Blocks) -> Keeper:
        """Sum up all rows; in float64 after all where a quarter of them shows the need."""
        dtype = self.feature_dtype_
        if self.precision == "auto" and dtype == "float32" and self._many(blocks.n_rows):
            keeper = Keeper(self.seed_)
            stop = partial(self._limited, keeper, blocks)
            moments = engine.sweep_unless(stop, self.map_, blocks, dtype, dtype, keeper)
            if moments is not None:
                self.moments_ = moments
                return keeper
            dtype = "float64"
        keeper = Keeper(self.seed_)
        self.moments_ = engine.sweep(self.map_, blocks, self.feature_dtype_, dtype, keeper)
        return keeper

    def _many(self, n: int | None) -> bool:
        """Whether the sweep is long beside a forecast."""
        return n is not None and n >= 8 * self.map_.n_features

    def _limited(self, keeper: Keeper, blocks: Blocks, first: Moments) -> bool:
        """Whether float32 products will limit the answer, as far as the first rows tell."""
        moments = first if self.fit_intercept else first.about_zero()
        rows = self._centred_rows(moments, keeper.sample.lowest(LOOK_ROWS))
        return limited(moments, engine.count_rows(blocks), as_alpha(self.alpha), rows)

    def _finish(self, blocks: Blocks, keeper: Keeper) -> Self:
        self.rows_seen_ += engine.count_rows(blocks)
        self.sample_ = keeper.sample
        self.solution_ = self._solve()
        return self

    def solve_again(self) -> Self:
        """Solve anew from the moments and the sample of rows as they are now."""
        self.solution_ = self._solve()
        return self._warn()

    def _solve(self) -> Solution:
        self.__dict__.pop("_certificate", None)
        moments = self.moments_ if self.fit_intercept else self.moments_.about_zero()
        means = moments.feature_mean, moments.target_mean
        eigen = self._decompose(moments)
        complete = len(self.sample_) == moments.rows
        sample = self.sample_ if complete else self.sample_.lowest(LOO_ROWS)
        rows = self._centred_rows(moments, sample) if self.alpha == "loo" else ()
        solution = solve_ridge(eigen, means, as_alpha(self.alpha), rows)
        again = moments.precision != self.feature_dtype_
        return _refined(solution) if again else solution

    def _decompose(self, moments: Moments) -> Eigen:
        """Decompose the rows themselves while they are few and at hand, else their moments."""
        few = moments.rows * moments.n_features**2 <= FEW
        if few and len(self.sample_) == moments.rows and self.feature_dtype_ == "float64":
            Z, y, w = map(
                np.concatenate, zip(*self._centred_rows(moments, self.sample_), strict=True)
            )
            return decompose_rows(Z, y, w, self.fit_intercept)
        return decompose(moments, self.fit_intercept)

    def _centred_rows(
        self, moments: Moments, sample: RowSample
    ) -> Iterator[tuple[Array, Array, Array]]:
        """Give the rows' features and targets about the means, a block at a time."""
        size = engine.block_rows(self.map_.n_features)
        for start in range(0, len(sample), size):
            rows = sample.take(np.arange(start, min(start + size, len(sample))))
            Z = engine.as_features(self.map_, rows.X, self.feature_dtype_)
            centred = Z - moments.feature_mean.astype(Z.dtype)
            yield centred, rows.y - moments.target_mean, rows.w

    def _warn(self) -> Self:
        if self.solution_.outcome in (Outcome.FLOAT32_LIMITED, Outcome.SINGULAR):
            warnings.warn(str(self.solution_.outcome), SolutionWarning, stacklevel=3)
        return self

    def _check_targets(self, blocks: Blocks) -> None:
        shape = _target_shape(blocks)
        if shape != self.target_shape_:
            raise InvalidInput(
                "KernelRidge.partial_fit: y must have the same targets in every call; got rows of "
                f"shape {self.target_shape_} before and {shape} now."
            )

    # --- prediction ------------------------------------------------------------------------------

    def predict(self, X: Float[Array, "n d"]) -> Array:
        """Return φ(X) β + b, (n,) or (n, t), in the array library of X and float64."""
        check_is_fitted(self)
        return engine.joined(list(self.predict_blocks(predict_blocks_of(self, X))))

    def predict_blocks(self, blocks: Blocks) -> Iterator[Array]:
        """Give the predictions of one block of rows after the other."""
        check_is_fitted(self)
        for block in blocks.with_rows(engine.block_rows(self.map_.n_features)):
            Z = engine.as_features(self.map_, block.X, self.feature_dtype_)
            fitted = to_numpy(Z) @ self.solution_.coef + self.solution_.intercept
            yield from_numpy(fitted.reshape(len(fitted), *self.target_shape_), like=block.X)

    # --- what was learned ------------------------------------------------------------------------

    @property
    def alpha_(self) -> float:
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

    @property
    def certificate_(self) -> Certificate:
        """How far φ(x)·φ(y) is from k on the rows of the fit; measured once, on their sample."""
        check_is_fitted(self)
        if "_certificate" not in self.__dict__:
            self._certificate = self._certify(self.sample_.X, self.moments_.rows)
        return self._certificate

    def certify(self, X: Float[Array, "n d"]) -> Certificate:
        """Return the certificate of this map, kernel and penalty on other rows.

        The penalty is taken in proportion: alpha·n/(rows of the fit) for n rows.
        """
        check_is_fitted(self)
        rows = engine.presample(predict_blocks_of(self, X), self.seed_)
        return self._certify(rows.X, len(rows))

    def certify_blocks(self, blocks: Blocks) -> Certificate:
        """Return the certificate on other rows, given as blocks; see :meth:`certify`."""
        check_is_fitted(self)
        rows = engine.presample(blocks, self.seed_)
        return self._certify(rows.X, engine.count_rows(blocks))

    def _certify(self, X: Array, n_rows: int) -> Certificate:
        return certify(
            Rounded(self.kernel_, self.map_, self.feature_dtype_),
            X,
            alpha=self.alpha_ * n_rows / self.moments_.rows,
            kernel=self.kernel_,
            n_rows=n_rows,
            random_state=self.seed_,
        )

    # --- scikit-learn ----------------------------------------------------------------------------

    def set_params(self, **params: Any) -> Self:
        """Set parameters; ``kernel__lengthscale`` and the like replace the kernel's numbers.

        Kernels are values, so the one that was passed in is never changed.
        """
        return set_kernel_params(self, params)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = accepts_sparse(self.kernel)
        return tags


def _refined(solution: Solution) -> Solution:
    solved = solution.outcome is Outcome.SOLVED
    return replace(solution, outcome=Outcome.REFINED) if solved else solution


def _target_shape(blocks: Blocks) -> tuple[int, ...]:
    """Return the shape of one row of y: () or (t,)."""
    y = next(iter(blocks)).y
    if y is None:
        raise InvalidInput(
            "KernelRidge: requires y to be passed, but the target y is None; name it with "
            "target=... where the blocks are made."
        )
    return tuple(y.shape[1:])
