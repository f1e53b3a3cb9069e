"""Kernel principal components at any number of rows."""

from collections.abc import Iterator
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from bochner._core.arrays import from_numpy, to_numpy
from bochner._core.blas import eigh
from bochner._core.checks import integer, warn_user
from bochner._core.random import Seed
from bochner._core.shapes import Array, Float, Tabular
from bochner.data.blocks import Blocks
from bochner.data.sample import Keeper, RowSample
from bochner.features import Method
from bochner.kernels import Kernel
from bochner.models import _engine
from bochner.models._feature_blocks import Features
from bochner.models._inputs import fit_blocks_of, note_columns, predict_blocks_of
from bochner.models._state import all_or_nothing, set_kernel_params
from bochner.models.ridge.regressor import KernelRidge
from bochner.models.unsupervised import choice
from bochner.selection.search import accepts_sparse
from bochner.solvers.ridge.path import as_alpha
from bochner.sums.moments import Accumulator, Moments

#: Eigenvalues below this share of the largest are rounding: times D in float64.
ROUNDING = {"float64": float(np.finfo(np.float64).eps), "float32": 1e-6}


def _goes_back(model: Any) -> bool:
    """Whether the way back is, or will be, learned."""
    if not model.fit_inverse_transform:
        raise AttributeError(
            "KernelPCA.inverse_transform: the way back is learned with the components; got "
            "fit_inverse_transform=False. Fit with fit_inverse_transform=True."
        )
    return True


class KernelPCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Principal components in the feature space of a kernel, in one pass over the rows.

    Eigenvectors v of Σ wᵢ (zᵢ − z̄)(zᵢ − z̄)ᵀ, z = φ(x), φ(x)·φ(y) ≈ k(x, y): those of the centred
    kernel matrix, as :class:`sklearn.decomposition.KernelPCA` has them, for any number of rows.
    The score of a row is (z − z̄)·v.

    Parameters
    ----------
    n_components : int or None, default None
        Components kept; None keeps all whose eigenvalues are above rounding.
    kernel : Kernel or str, default "gaussian"
        A value is used as it is. A name means: of this family, with the median distance of a
        sample of rows as lengthscale.
    method : Method or str, default "auto"
        How features are made; see :func:`bochner.draw`. From 128 columns on, and with more than
        four rows a feature, "auto" leaves out what takes longer to draw than the fit, and compares
        Nyström features on centres found in little time.
    n_features : int, default 512
        D. With D at or above the number of different rows, "auto" is the exact kernel.
    fit_inverse_transform : bool, default False
        Whether :meth:`inverse_transform` is learned: kernel ridge regression from scores to rows,
        on a random sample of the rows (8192 at most), which the model then holds.
    inverse_kernel : Kernel or str, default "gaussian"
        Kernel of the scores in that regression; with a name its lengthscale is the one of least
        leave-one-out error.
    alpha : float or str, default "loo"
        Penalty of that regression, as in :class:`bochner.KernelRidge`.
    precision : {"auto", "float32", "float64"}, default "auto"
        Of features and of their products; "auto" is float64 where the fit is small.
    random_state : int, Generator, RandomState or None, default None
        Seed of features and samples. The same seed gives the same model for any block size.

    Attributes
    ----------
    eigenvalues_ : (q,) float64
        Eigenvalues of the centred kernel matrix of the features, falling; the sums of squares of
        the scores of the fit's rows.
    eigenvectors_ : (D, q)
        v. The entry of largest size of each is positive, so that signs do not depend on the rows'
        order.
    explained_variance_ratio_ : (q,)
        Shares of the trace of the centred kernel matrix: of the kernel itself, so that what the
        features leave out counts as unexplained.
    trace_ : float
        Σ wᵢ k(xᵢ, xᵢ) − n |z̄|².
    kernel_, map_, choice_, search_
        As in :class:`bochner.KernelRidge`.
    moments_ : Moments
        What further rows are added to.
    inverse_ : KernelRidge
        From scores to rows, with ``fit_inverse_transform``.
    n_features_in_ : int
    feature_names_in_ : (d,) of str
        Where the rows had names.

    Notes
    -----
    Time O(n (c(φ) + D²) + D³), memory O(D²) and one block. Features of maps below their kernel
    (Nyström, Mercer) give eigenvalues at most those of the kernel, each of them. Source:
    Schölkopf, Smola and Müller (1998); with random features, Lopez-Paz et al. (2014). Unlike
    scikit-learn's, the regression of ``inverse_transform`` has an intercept and chooses its
    kernel's scale and its penalty.

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

    moments_: Moments
    _diagonal: float
    sample_: RowSample | None

    def __init__(
        self,
        n_components: int | None = None,
        kernel: Kernel | str = "gaussian",
        *,
        method: Method | str = "auto",
        n_features: int = 512,
        fit_inverse_transform: bool = False,
        inverse_kernel: Kernel | str = "gaussian",
        alpha: float | str = "loo",
        precision: str = "auto",
        random_state: Seed = None,
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.method = method
        self.n_features = n_features
        self.fit_inverse_transform = fit_inverse_transform
        self.inverse_kernel = inverse_kernel
        self.alpha = alpha
        self.precision = precision
        self.random_state = random_state

    # --- fitting ---------------------------------------------------------------------------------

    @all_or_nothing
    def fit(
        self,
        X: Tabular,
        y: object = None,  # noqa: ARG002  scikit-learn's signature
        sample_weight: Array | None = None,
    ) -> Self:
        """Fit to rows in memory.

        Parameters
        ----------
        X : (n, d)
            Array, sparse matrix, or table.
        y : ignored
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
        return self._fit(fit_blocks_of(self, X, None, sample_weight, reset=True))

    @all_or_nothing
    def fit_blocks(self, blocks: Blocks) -> Self:
        """Fit to blocks: files larger than memory, tables, streams; targets are not looked at.

        One pass makes the features; a pass before it, without features, is made where lengthscale
        or method are chosen from rows.
        """
        note_columns(self, blocks, reset=True)
        return self._fit(blocks)

    @all_or_nothing
    def partial_fit(
        self,
        X: Tabular,
        y: object = None,  # noqa: ARG002  scikit-learn's signature
        sample_weight: Array | None = None,
    ) -> Self:
        """Add rows to those seen so far, and decompose again.

        The first call draws the map, and chooses what is open from its rows; all calls together
        equal one ``fit`` with the same map.
        """
        first = not hasattr(self, "moments_")
        blocks = fit_blocks_of(self, X, None, sample_weight, reset=first)
        if first:
            return self._fit(blocks)
        moments, diagonal = self._sweep(blocks)
        self.moments_, self._diagonal = self.moments_ + moments, self._diagonal + diagonal
        return self._finish(blocks)

    def _fit(self, blocks: Blocks) -> Self:
        _engine.check_precision(self)
        if self.n_components is not None:
            integer(self.n_components, "KernelPCA", "n_components", 1)
        as_alpha(self.alpha)
        choice.choose(self, blocks)
        width = self.map_.n_features
        self.feature_dtype_ = choice.precision_of(self, blocks.n_rows, width)
        self.rows_seen_ = 0
        self.sample_ = None
        self.moments_, self._diagonal = self._sweep(blocks)
        return self._finish(blocks)

    def _sweep(self, blocks: Blocks) -> tuple[Moments, float]:
        """Return the moments of the features, and Σ w k(x, x), of all rows."""
        keeper = None
        if self.fit_inverse_transform:
            keeper = Keeper(self.seed_, self.sample_, self.rows_seen_)
        seen: Any = choice.Diagonal(self.kernel_, keeper)
        sums = Accumulator(self.feature_dtype_)
        for block in Features(self.map_, blocks, self.feature_dtype_, seen, most_bytes=0):
            sums.add(block.Z, np.zeros((len(block.Z), 0)), block.w)
        self.sample_ = seen.sample
        return sums.moments(), seen.trace

    def _finish(self, blocks: Blocks) -> Self:
        self.rows_seen_ += _engine.count_rows(blocks)
        return self.solve_again()

    @all_or_nothing
    def solve_again(self) -> Self:
        """Decompose anew the moments as they are now, and learn the way back."""
        values, vectors = eigh(self.moments_.gram, driver="evd", check_finite=False)
        values, vectors = np.maximum(values[::-1], 0.0), vectors[:, ::-1]
        q = self._count(values)
        largest = np.argmax(np.abs(vectors[:, :q]), axis=0)
        signs = np.where(vectors[largest, np.arange(q)] < 0, -1.0, 1.0)
        self.eigenvalues_ = values[:q]
        self.eigenvectors_ = np.ascontiguousarray(vectors[:, :q] * signs)
        self._n_features_out = q
        self.__dict__.pop("inverse_", None)
        if self.sample_ is not None:
            self._learn_inverse(self.sample_)
        return self

    def _count(self, values: Float[Array, " D"]) -> int:
        """Return how many components there are to keep: no more than rounding lets stand."""
        tiny = ROUNDING[self.feature_dtype_] * len(values) ** (self.feature_dtype_ == "float64")
        rank = max(1, int(np.sum(values > tiny * values[0])))
        if self.n_components is not None and self.n_components > rank:
            warn_user(
                f"KernelPCA: n_components={self.n_components}, but {self.moments_.rows} rows in "
                f"{len(values)} features have {rank} components above rounding; these are kept. "
                "Raise n_features, or ask for fewer.",
            )
        return rank if self.n_components is None else min(rank, self.n_components)

    def _learn_inverse(self, rows: RowSample) -> None:
        scores = to_numpy(self._scores(rows.X))
        self.inverse_ = KernelRidge(
            self.inverse_kernel,
            n_features=self.n_features,
            alpha=self.alpha,
            random_state=self.seed_,
        ).fit(scores, to_numpy(rows.X), rows.w)

    # --- scores ----------------------------------------------------------------------------------

    def transform(self, X: Tabular) -> Float[Array, "n q"]:
        """Return the scores (φ(x) − z̄)·v, (n, q), in the array library of X and float64."""
        check_is_fitted(self)
        return _engine.joined(list(self.transform_blocks(predict_blocks_of(self, X))))

    def transform_blocks(self, blocks: Blocks) -> Iterator[Array]:
        """Give the scores of one block of rows after the other."""
        check_is_fitted(self)
        for block in blocks.with_rows(_engine.block_rows(self.map_.n_features)):
            yield self._scores(block.X)

    def _scores(self, X: Array) -> Array:
        Z = to_numpy(_engine.as_features(self.map_, X, self.feature_dtype_))
        centre = self.moments_.feature_mean.astype(Z.dtype)
        scores = (Z - centre) @ self.eigenvectors_.astype(Z.dtype, copy=False)
        return from_numpy(scores.astype(np.float64, copy=False), like=X)

    @available_if(_goes_back)
    def inverse_transform(self, X: Float[Array, "n q"]) -> Float[Array, "n d"]:
        """Return rows whose scores are near these: pre-images, (n, d).

        Kernel ridge regression from scores to rows. Columns that text became come back as numbers
        between zero and one.

        Raises
        ------
        AttributeError
            Without ``fit_inverse_transform=True``.
        """
        check_is_fitted(self)
        return self.inverse_.predict(X)

    # --- what was learned ------------------------------------------------------------------------

    @property
    def trace_(self) -> float:
        """Trace of the centred kernel matrix of all rows."""
        moments = self.moments_
        return self._diagonal - moments.weight * float(moments.feature_mean @ moments.feature_mean)

    @property
    def explained_variance_ratio_(self) -> Float[Array, " q"]:
        """Share of the kernel's variance that each component explains."""
        trace = self.trace_
        return self.eigenvalues_ / trace if trace > 0 else np.zeros_like(self.eigenvalues_)

    # --- scikit-learn ----------------------------------------------------------------------------

    fit_transform = all_or_nothing(TransformerMixin.fit_transform)

    def set_params(self, **params: Any) -> Self:
        """Set parameters; ``kernel__lengthscale`` and the like replace the kernel's numbers."""
        return set_kernel_params(self, params)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = accepts_sparse(self.kernel)
        return tags
