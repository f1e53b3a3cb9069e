"""Transformers: features of rows and their principal components; base class of all transformers."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial, reduce
from typing import Any, Self

import numpy as np
from scipy.sparse.linalg import ArpackError, eigsh
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.metaestimators import available_if

from bochner import models
from bochner._core.arrays import concat, from_numpy, is_sparse, to_numpy
from bochner._core.blas import eigh
from bochner._core.checks import integer, warn_user
from bochner._core.random import Seed
from bochner._core.shapes import Array, Float, Tabular
from bochner._core.sizes import SMALL
from bochner._core.text import as_text
from bochner.data.blocks import Blocks, count_rows
from bochner.data.sample import RowSample
from bochner.data.schema import Inputs
from bochner.data.sources import weights_of
from bochner.features.auto import Auto
from bochner.features.fourier.fourier import Fourier
from bochner.features.map import FeatureMap, Method
from bochner.features.mercer.products import HermiteMercer
from bochner.features.mercer.radial import MercerHarmonic
from bochner.features.nystrom import KMeans, Nystrom
from bochner.features.rules import contenders
from bochner.kernels.kernel import Kernel
from bochner.models._base import FitSummary, KernelEstimator, Unsupervised, getter
from bochner.models._parameters import FeatureParameters, estimator
from bochner.models._tables import accept_partitions
from bochner.models.representations.representation import RidgeSpec
from bochner.selection.choices import Choices, FeatureSpec
from bochner.selection.choose import choose, choose_from, draw_given
from bochner.solvers.ridge.solution import as_alpha
from bochner.sums.moments import Moments, MomentSum
from bochner.sums.passes import LOCAL, BlockSum, Executor, Summands, draw_rows, sample_summand


def choose_by_rows(
    spec: FeatureSpec, blocks: Blocks, where: Executor
) -> tuple[Choices, RowSample | None]:
    """Return the choices made without targets, and the sample of rows if they depend on it."""
    rows = draw_rows(blocks, spec.seed, where=where) if spec.needs_rows else None
    chosen, n = choose_quickly(spec, blocks.n_columns, rows), blocks.n_rows
    # Without a penalty, rounding in float32 has little effect
    single = n is None or n * chosen.map.n_features**2 > SMALL
    single = single if spec.precision == "auto" else spec.precision == "float32"
    return replace(chosen, precision="float32" if single else "float64"), rows


def choose_quickly(spec: FeatureSpec, n_columns: int, rows: RowSample | None) -> Choices:
    """Return the choices from a sample; with many rows and columns "auto" compares fast methods."""
    if rows is None:
        return draw_given(spec, n_columns)
    if spec.method == Auto():
        # With few rows all distinct rows may be landmarks, so that the map is exact
        d, is_small = rows.X.shape[1], len(rows) <= 4 * spec.width_to_search
        if d >= 128 and not is_small and not is_sparse(rows.X):
            # These maps take at least as long to draw as a fit; Fourier(Structured()) is compared
            # instead of Fourier()
            slow = MercerHarmonic(), HermiteMercer(), Fourier(), Nystrom()
            # Cluster centres approximate the leading directions of K better than pivots; two
            # iterations from random rows are as good as ten from k-means++
            centres = Nystrom(KMeans(iterations=2, seeds="random"))
            candidates = (method for method in contenders(d) if method not in slow)
            spec = replace(spec, method=Auto((*candidates, centres)))
    return choose_from(spec, rows)


def diagonal_of(kernel: Kernel) -> BlockSum:
    """Return the summand of Σ w k(x, x), and of the number of rows of positive weight."""
    return BlockSum(partial(_diagonal, kernel=kernel))


def _diagonal(block: Any, kernel: Kernel) -> tuple[float, int]:
    w = weights_of(block)
    return float(w @ to_numpy(kernel.diag(block.X)).astype(np.float64)), int(np.sum(w > 0))


class KernelTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, KernelEstimator):
    """Base class of estimators whose ``transform`` returns new columns."""

    n_features: Any
    method: Any

    def fit_transform(self, X: Tabular, y: Array | None = None, **fit_params: Any) -> Any:
        """Fit, and transform the same rows; a failed call does not change the estimator."""
        return self._atomic(TransformerMixin.fit_transform, X, y, **fit_params)

    @accept_partitions
    def transform(self, X: Tabular) -> Any:
        """Return the new columns of the rows, (n, q), in the array library of X."""
        return concat(list(self.transform_blocks(self._rows_to_predict(X))))

    def transform_blocks(self, blocks: Blocks) -> Iterator[Array]:
        """Yield the new columns of each block."""
        for X, columns in self._fitted.predictions(self._encode_as_fit(blocks)):
            yield from_numpy(columns, like=X)

    def _width_spec(self) -> FeatureSpec:
        """Return the checked parameters of features; their number must be an integer."""
        integer(self.n_features, type(self).__name__, "n_features", 1)
        return self._feature_spec(self.method)


@dataclass(frozen=True, eq=False)
class FeaturesFit(FitSummary):
    """A feature map, and the inputs for which it was drawn."""

    inputs: Inputs
    chosen: Choices

    def values(self) -> FeatureMap:  # in the precision and array library of X
        return self.chosen.map


@estimator
class KernelFeatures(KernelTransformer):
    """Transform rows to features φ(x) with φ(x)·φ(y) ≈ k(x, y), for any linear method.

    Features are float32 for float32 rows, otherwise float64.

    Parameters
    ----------
    kernel : Kernel or str, default "gaussian"
        - a name: this family; its lengthscale is the median distance between rows of a sample, or
          with ``y`` the lengthscale of smallest leave-one-out error.
        - a kernel: used without changes.
    n_features : int, float or "auto", default 1024
        Number D of features. Below one: the largest ε at a ridge penalty of k(x, x)/1000 per row,
        see :func:`bochner.required_features`; "auto" is 0.1.

    See Also
    --------
    KernelPCA : Principal components of the features.
    draw : A feature map without an estimator.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> from bochner import KernelFeatures
    >>> X = np.random.default_rng(0).standard_normal((200, 2))
    >>> ring = (X**2).sum(axis=1) > 1.5
    >>> model = make_pipeline(KernelFeatures(random_state=0), LogisticRegression())
    >>> bool(model.fit(X, ring).score(X, ring) > 0.9)
    True
    """

    kernel: Kernel | str = "gaussian"
    _: KW_ONLY
    method: Method | str = "auto"
    n_features: int | float | str = 1024
    random_state: Seed = None
    n_jobs: int | None = None

    def fit(  # type: ignore[override]
        self, X: Tabular, y: Array | None = None
    ) -> Self:
        """Choose open parameters and draw the map; numbers y help to choose a lengthscale."""
        return super().fit(X, y)

    def _fit_rows(self, X: Any, y: Any, sample_weight: None) -> FeaturesFit:
        numeric = y is not None and np.issubdtype(np.asarray(y).dtype, np.number)
        return self._run(self._fit, *self._read(X, y if numeric else None))

    def _fit(self, blocks: Blocks, inputs: Inputs, where: Executor = LOCAL) -> FeaturesFit:
        spec = self._feature_spec(self.method)
        return FeaturesFit(inputs, choose(spec, blocks, where=where)[0])

    def _outputs_of(self, f: Array) -> dict[str, Array]:
        return {"features": f}

    _n_features_out = getter("chosen.map.n_features", "Number of columns of ``transform``.")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


@dataclass(frozen=True)
class PcaSpec:
    """Checked parameters of principal components."""

    features: FeatureSpec
    n_components: int | None
    inverse: RidgeSpec | None  # regression from scores to rows, for the inverse transform


@dataclass(frozen=True, eq=False)
class PcaSums:
    """Sums over the rows, to which the sums over further rows are added."""

    moments: Moments
    diagonal: float  # Σ w k(x, x)
    sample: RowSample | None  # rows for the inverse transform
    rows: int  # number of rows read

    def merge(self, other: "PcaSums") -> "PcaSums":
        sample = self.sample
        if sample is not None and other.sample is not None:
            sample = sample + other.sample
        diagonal, rows = self.diagonal + other.diagonal, self.rows + other.rows
        return PcaSums(self.moments + other.moments, diagonal, sample, rows)


@dataclass(frozen=True, eq=False)
class PrincipalComponents(FitSummary):
    """Principal components of features, and the sums from which they were computed."""

    inputs: Inputs
    spec: PcaSpec
    chosen: Choices
    sums: PcaSums
    eigenvalues: Float[Array, " q"]
    eigenvectors: Float[Array, "D q"]
    inverse: "models.RidgeFit | None" = None  # regression from scores to rows

    def _results(self) -> dict[str, Any]:
        words = f"{as_text(100 * self.shares)}; per component, of the variance of the kernel"
        return {"rows": self.sums.moments.rows, "explained_variance,_%": words}

    @property
    def shares(self) -> Float[Array, " q"]:
        return self.eigenvalues / self.trace if self.trace > 0 else 0.0 * self.eigenvalues

    @property
    def trace(self) -> float:
        """Trace of the centred kernel matrix of all rows."""
        moments = self.sums.moments
        size = float(moments.feature_mean @ moments.feature_mean)
        return self.sums.diagonal - moments.weight * size

    def values(self) -> Callable[[Array], Float[Array, "b q"]]:
        """Return X ↦ the scores (φ(x) − z̄)·v."""
        centre = self.sums.moments.feature_mean @ self.eigenvectors
        vectors = self.eigenvectors.astype(self.chosen.precision, copy=False)
        return self.chosen.linear(vectors, -centre)

    def merge_all(self, fits: list["PrincipalComponents"]) -> "PrincipalComponents":
        sums = reduce(PcaSums.merge, [fit.sums for fit in fits])
        return solve(self.spec, self.inputs, self.chosen, sums)


def add_up(
    spec: PcaSpec, chosen: Choices, blocks: Blocks, where: Executor, start: int = 0
) -> PcaSums:
    """Return the sums of all rows; row numbers start at ``start``."""
    moments_of = MomentSum(chosen.precision_map.features, chosen.precision)
    samples = () if spec.inverse is None else (sample_summand(chosen.seed, start),)
    sums = (moments_of, diagonal_of(chosen.kernel), *samples)
    totals = where.sum(Summands(sums), blocks.with_rows(chosen.block_rows))
    moments, (diagonal, _) = moments_of.moments(totals[0]), totals[1]
    return PcaSums(moments, diagonal, totals[2] if samples else None, count_rows(blocks))


def solve(spec: PcaSpec, inputs: Inputs, chosen: Choices, sums: PcaSums) -> PrincipalComponents:
    """Return the principal components from the moments, and fit the inverse transform."""
    values, vectors = _leading(sums.moments.gram, spec.n_components)
    values, vectors = np.maximum(values[::-1], 0.0), vectors[:, ::-1]
    D, double = chosen.map.n_features, chosen.precision == "float64"
    rounding = float(np.finfo(np.float64).eps) * D if double else 1e-6  # share of the largest
    q = rank = max(1, int(np.sum(values > rounding * values[0])))
    if (count := spec.n_components) is not None:
        q = min(rank, count)
        if count > rank:
            warn_user(
                f"KernelPCA: n_components={count}, but {sums.moments.rows} rows in {D} features "
                f"have {rank} components above rounding; these are kept. Use more features, or "
                "fewer components."
            )
    largest = np.argmax(np.abs(vectors[:, :q]), axis=0)
    signs = np.where(vectors[largest, np.arange(q)] < 0, -1.0, 1.0)
    vectors = np.ascontiguousarray(vectors[:, :q] * signs)
    fit = PrincipalComponents(inputs, spec, chosen, sums, values[:q], vectors)
    if spec.inverse is None or sums.sample is None:
        return fit
    inverse = replace(spec.inverse, features=replace(spec.inverse.features, seed=chosen.seed))
    X, w = sums.sample.X, sums.sample.w
    rows = Blocks.from_arrays(fit.values()(X), to_numpy(X), w)
    return replace(fit, inverse=models.fit_features(inverse, rows, Inputs(rows.n_columns)))


def _leading(
    gram: Float[Array, "D D"], count: int | None
) -> tuple[Float[Array, " p"], Float[Array, "D p"]]:
    """Return the leading eigenvalues, increasing, and their vectors."""
    D = len(gram)
    if count is None or 4 * count > D:  # all eigenvalues take no longer
        return eigh(gram, driver="evd", check_finite=False)
    if 40 * count <= D and D >= 256:  # takes at most a third of the time of a decomposition
        start = np.random.default_rng(D).standard_normal(D)
        with suppress(ArpackError):  # not converged, as eigenvalues are close
            # Restarted Lanczos iterations (ARPACK: Lehoucq, Sorensen and Yang 1998)
            return eigsh(gram, count, v0=start, maxiter=D // 32)
    return eigh(gram, driver="evr", check_finite=False, subset_by_index=[D - count, D - 1])


def _has_inverse(model: "KernelPCA") -> bool:
    """Whether the inverse transform is fitted with the components."""
    if not model.fit_inverse_transform:
        raise AttributeError(
            "KernelPCA.inverse_transform requires fit_inverse_transform=True; got False. Fit again "
            "with fit_inverse_transform=True."
        )
    return True


@estimator
class KernelPCA(FeatureParameters, Unsupervised, KernelTransformer):
    """Principal components in the feature space of a kernel, in one pass over the rows.

    Components are eigenvectors v of Σ wᵢ (zᵢ − z̄)(zᵢ − z̄)ᵀ with z = φ(x) and φ(x)·φ(y) ≈ k(x, y);
    the score of a row is (z − z̄)·v. These are the components of the centred kernel matrix, as in
    :class:`sklearn.decomposition.KernelPCA`, for any number of rows.

    Parameters
    ----------
    n_components : int or None, default None
        Number of components. None: all components with eigenvalues above rounding.
    %(kernel at the median)s
    %(quick method)s
    n_features : int, default 512
        Number of features. If there are at most as many distinct rows, method "auto" is exact.
    fit_inverse_transform : bool, default False
        Whether to fit :meth:`inverse_transform`: kernel ridge regression from scores to rows, on a
        random sample of at most 8192 rows, which the model then contains.
    inverse_kernel : Kernel or str, default "gaussian"
        Kernel of this regression; a name: this family, with the lengthscale of smallest
        leave-one-out error.
    alpha : float or {"loo", "gcv", "evidence"}, default "loo"
        Penalty of this regression, as in :class:`bochner.KernelRidge`.

    See Also
    --------
    KernelCCA : Directions along which two tables correlate most.
    KernelFeatures : Features for any linear method.

    Notes
    -----
    Time O(n (c + D²) + D³), c the cost of φ(x), memory O(D²) and a block. With Nyström and Mercer
    features, eigenvalues are at most the eigenvalues of the kernel matrix. Sources: Schölkopf,
    Smola and Müller (1998); with random features, Lopez-Paz et al. (2014).

    Examples
    --------
    >>> import numpy as np
    >>> from bochner import KernelPCA
    >>> rng = np.random.default_rng(0)
    >>> radius = np.repeat([1.0, 3.0], 200)
    >>> angle = rng.uniform(0, 6.28, 400)
    >>> X = radius[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
    >>> KernelPCA(2, random_state=0).fit_transform(X).shape
    (400, 2)
    """

    n_components: int | None = None
    kernel: Kernel | str = "gaussian"
    _: KW_ONLY
    fit_inverse_transform: bool = False
    inverse_kernel: Kernel | str = "gaussian"
    alpha: float | str = "loo"

    def _spec(self) -> PcaSpec:
        features, count = self._width_spec(), self.n_components
        alpha = as_alpha(self.alpha, features.caller)
        if count is not None:
            count = integer(count, "KernelPCA", "n_components", 1)
        if not self.fit_inverse_transform:
            return PcaSpec(features, count, None)
        options = self.inverse_kernel, "auto", self.n_features, features.seed
        scores = FeatureSpec.of("KernelRidge", *options)
        return PcaSpec(features, count, RidgeSpec(scores, alpha, False, True))

    def _fit(self, blocks: Blocks, inputs: Inputs, where: Executor = LOCAL) -> PrincipalComponents:
        spec = self._spec()
        chosen, _ = choose_by_rows(spec.features, blocks, where)
        return solve(spec, inputs, chosen, add_up(spec, chosen, blocks, where))

    def partial_fit(self, X: Tabular, y: object = None, sample_weight: Array | None = None) -> Self:
        """Add rows to the fit, and decompose again; the first call chooses parameters and map.

        The result equals one ``fit`` to all rows with the same map.
        """
        return self._add_rows(X, None, sample_weight)

    def _update(self, blocks: Blocks, inputs: Inputs) -> PrincipalComponents:
        fit, spec = self.fit_, self._spec()
        sums = add_up(spec, fit.chosen, blocks, LOCAL, fit.sums.rows)
        return solve(spec, fit.inputs, fit.chosen, fit.sums.merge(sums))

    def solve_again(self) -> Self:
        """Decompose the stored moments again, and fit the inverse transform."""
        fit = self._fitted
        self.fit_ = solve(self._spec(), fit.inputs, fit.chosen, fit.sums)
        return self

    @available_if(_has_inverse)
    def inverse_transform(self, X: Float[Array, "n q"]) -> Float[Array, "n d"]:
        """Return pre-images, rows whose scores are near X, (n, d), by kernel ridge regression.

        Encoded columns of text are numbers between zero and one.

        Raises
        ------
        AttributeError
            Without ``fit_inverse_transform=True``.
        """
        return self.inverse_.predict(X)

    eigenvalues_ = getter(
        "eigenvalues",
        "Eigenvalues of the centred kernel matrix of the features, decreasing, (q,): the sums of "
        "the squared scores of the training rows.",
    )
    eigenvectors_ = getter(
        "eigenvectors",
        "Eigenvectors v, (D, q). The largest entry of each is positive: signs do not depend on "
        "the order of the rows.",
    )
    moments_ = getter("sums.moments", "Moments of the features of all rows.")
    sample_ = getter("sums.sample", "Rows to which the inverse transform was fitted.")
    rows_seen_ = getter("sums.rows", "Number of rows read.")
    trace_ = getter("trace", "Trace of the centred kernel matrix, Σ wᵢ (k(xᵢ, xᵢ) − |z̄|²).")
    _n_features_out = getter("eigenvalues.size", "Number of columns of ``transform``.")

    explained_variance_ratio_ = getter(
        "shares",
        "Eigenvalues divided by the trace of the centred exact kernel matrix, (q,): variance that "
        "features miss counts as unexplained.",
    )

    _inverse = getter("inverse", "", "inverse_ requires fit_inverse_transform=True.")

    @property
    def inverse_(self) -> Any:
        """The inverse transform from scores to rows, a fitted :class:`bochner.KernelRidge`."""
        from bochner.models.ridge.estimators import KernelRidge  # noqa: PLC0415  rarely needed

        fit = self._inverse
        spec = fit.spec.features
        model = KernelRidge(
            spec.kernel, n_features=spec.width, alpha=fit.spec.alpha, random_state=spec.seed
        )
        model.fit_ = fit
        return model
