"""Kernel k-means at any number of rows."""

import warnings
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    ClusterMixin,
    TransformerMixin,
    clone,
)
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from bochner._core.arrays import from_numpy, to_numpy
from bochner._core.checks import integer, nonnegative, one_of, warn_user
from bochner._core.random import Seed, stream
from bochner._core.shapes import Array, Float, Tabular
from bochner.data.blocks import Blocks
from bochner.data.sample import Keeper, RowSample
from bochner.errors import InvalidInput
from bochner.features import Method
from bochner.kernels import Kernel
from bochner.models import _engine
from bochner.models._alike import row_marks
from bochner.models._engine import as_features
from bochner.models._feature_blocks import Features
from bochner.models._inputs import fit_blocks_of, note_columns, predict_blocks_of
from bochner.models._state import all_or_nothing, set_kernel_params
from bochner.models.unsupervised import choice
from bochner.models.unsupervised.clustering import (
    COMPARED_ROWS,
    Elbow,
    KernelCost,
    kernel_cost,
)
from bochner.selection.search import accepts_sparse
from bochner.solvers.lloyd import Clusters, WeightedFeatures, assign, distances, lloyd, step

#: Rows that starts are found on, at least; or this many for each cluster.
START_ROWS, START_SHARE = 2048, 20


class KernelKMeans(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator):
    """k-means in the feature space of a kernel.

    Minimises Σ wᵢ |φ(xᵢ) − c(i)|² over k centres c, φ(x)·φ(y) ≈ k(x, y): that is kernel k-means
    with the kernel φ(x)·φ(y), without a kernel matrix, for any number of rows.

    Parameters
    ----------
    n_clusters : int, default 8
        k.
    kernel : Kernel or str, default "gaussian"
        A value is used as it is. A name means: of this family, with the median distance of a
        sample of rows as lengthscale.
    method : Method or str, default "auto"
        How features are made; see :func:`bochner.draw`. From 128 columns on, and with more than
        four rows a feature, "auto" leaves out what takes longer to draw than the fit, and compares
        Nyström features on centres found in little time.
    n_features : int, default 512
        D.
    n_init : int, default 3
        Starts by k-means++ on a random sample of rows; the best of them, there, goes on.
    max_iter : int, default 300
        Passes over all rows, at most.
    tol : float, default 1e-5
        The centres rest when a pass lowers the cost by less than this share of it.
    algorithm : {"full", "minibatch"}, default "full"
        "full": Lloyd's algorithm on all rows until the centres rest; features stay in memory
        where they fit and are made anew otherwise. "minibatch": one pass that moves the centres
        towards each block's means, and one that assigns the rows.
    precision : {"auto", "float32", "float64"}, default "auto"
        Of features; "auto" is float64 where the fit is small.
    random_state : int, Generator, RandomState or None, default None

    Attributes
    ----------
    cluster_centers_ : (k, D) float64
        In feature space.
    labels_ : (n,) int32
        Of the rows of the last fit, or call of ``partial_fit``.
    inertia_ : float
        Σ wᵢ |φ(xᵢ) − c(i)|² of these rows.
    objective_ : KernelCost
        The same in the kernel's own terms, with what the features can hide; measured when first
        asked for. ``print`` says it in words.
    n_iter_ : int
        Passes over all rows.
    kernel_, map_, choice_, search_
        As in :class:`bochner.KernelRidge`.
    sample_ : RowSample
        Rows kept for the objective.
    n_features_in_ : int
    feature_names_in_ : (d,) of str
        Where the rows had names.

    Notes
    -----
    Time O(n c(φ) + passes·n D k), memory O(D k) and one block, or n D where features are kept.
    Starts are sought on ``max(2048, 20 k)`` random rows, and improved on 8192, before the first
    pass over all; clusters so small that these miss them have no start of their own.
    Source: Dhillon, Guan and Kulis (2004); with random features, Chitta, Jin and Jain (2012).

    Examples
    --------
    >>> import numpy as np
    >>> from bochner import KernelKMeans
    >>> from bochner.kernels import Gaussian
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(0, 0.2, (100, 2)), rng.normal(3, 0.2, (100, 2))])
    >>> labels = KernelKMeans(2, Gaussian(1.0), random_state=0).fit_predict(X)
    >>> bool(len(set(labels[:100])) == 1 and labels[0] != labels[100])
    True
    """

    def __init__(
        self,
        n_clusters: int = 8,
        kernel: Kernel | str = "gaussian",
        *,
        method: Method | str = "auto",
        n_features: int = 512,
        n_init: int = 3,
        max_iter: int = 300,
        tol: float = 1e-5,
        algorithm: str = "full",
        precision: str = "auto",
        random_state: Seed = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.kernel = kernel
        self.method = method
        self.n_features = n_features
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.algorithm = algorithm
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
        """Fit to blocks: files larger than memory, tables, streams that can be read again."""
        note_columns(self, blocks, reset=True)
        return self._fit(blocks)

    @all_or_nothing
    def partial_fit(
        self,
        X: Tabular,
        y: object = None,  # noqa: ARG002  scikit-learn's signature
        sample_weight: Array | None = None,
    ) -> Self:
        """Move the centres towards the means of these rows: mini-batches of an endless stream.

        The first call draws the map and starts from its rows; it needs as many as clusters. Each
        centre is the mean of all rows that were assigned to it when they came.
        """
        first = not hasattr(self, "cluster_centers_")
        blocks = fit_blocks_of(self, X, None, sample_weight, reset=first)
        if first:
            self.cluster_centers_ = self._start(self._choose(blocks))
            self.weights_seen_ = np.zeros(self.n_clusters)
        seen: Any = choice.Diagonal(self.kernel_, Keeper(self.seed_))
        features = Features(self.map_, blocks, self.feature_dtype_, seen)
        self._follow(features)
        return self._keep(assign(features, self.cluster_centers_), seen, seen.sample)

    def _fit(self, blocks: Blocks) -> Self:
        rows = self._choose(blocks)
        centres = self._start(rows)
        seen: Any = choice.Diagonal(self.kernel_)
        features = Features(self.map_, blocks, self.feature_dtype_, seen)
        if self.algorithm == "full":
            found = lloyd(features, centres, self.max_iter, self.tol)
            self.weights_seen_ = found.sizes
            return self._keep(found, seen, rows)._warn()
        self.cluster_centers_, self.weights_seen_ = centres, np.zeros(self.n_clusters)
        self._follow(features)
        return self._keep(assign(features, self.cluster_centers_), seen, rows)._warn()

    def _choose(self, blocks: Blocks) -> RowSample:
        """Check the arguments, draw the map, and return a sample of the rows."""
        for name in ("n_clusters", "n_init", "max_iter"):
            integer(getattr(self, name), "KernelKMeans", name, 1)
        nonnegative(self.tol, "KernelKMeans", "tol")
        one_of(self.algorithm, "KernelKMeans", "algorithm", ("full", "minibatch"))
        _engine.check_precision(self)
        rows = choice.choose(self, blocks)
        width = self.map_.n_features
        self.feature_dtype_ = choice.precision_of(self, blocks.n_rows, width)
        return choice.alone(_engine.presample(blocks, self.seed_)) if rows is None else rows

    def _start(self, rows: RowSample) -> Float[Array, "k D"]:
        """Return centres by k-means++ on some rows, and Lloyd's algorithm on all of the sample."""
        if len(rows) < self.n_clusters:
            raise InvalidInput(
                f"KernelKMeans: n_clusters={self.n_clusters} must be at most the number of rows "
                f"to start from; got n_samples={len(rows)} of positive weight. Ask for fewer "
                "clusters."
            )
        few = different(rows.lowest(max(START_ROWS, START_SHARE * self.n_clusters)), self.seed_)
        Z = self._features(few.X)
        if len(few) < self.n_clusters:
            self._warn_few(len(few))
            return Z[np.arange(self.n_clusters) % len(few)].astype(np.float64)
        found = best_start(self, Z, few.w, self.n_clusters)
        if len(np.unique(found.labels_)) < self.n_clusters:
            self._warn_few(len(np.unique(found.labels_)))
        centres = found.cluster_centers_.astype(np.float64)
        return lloyd(
            [WeightedFeatures(self._features(rows.X), rows.w)], centres, self.max_iter, self.tol
        ).means

    def _warn_few(self, different: int) -> None:
        warn_user(
            f"KernelKMeans: n_clusters={self.n_clusters}, but the rows to start from have only "
            f"{different} different features; the other clusters stay empty. Ask for fewer.",
        )

    def _follow(self, features: Iterable[Any]) -> None:
        for block in features:
            self.cluster_centers_, self.weights_seen_ = step(
                block.Z, block.w, self.cluster_centers_, self.weights_seen_
            )

    def _keep(self, found: Clusters, seen: Any, rows: RowSample) -> Self:
        """Keep what was found, and what the objective is made of."""
        self.cluster_centers_ = found.centres
        self.labels_, self.inertia_ = found.labels, found.inertia
        self.n_iter_, self.converged_ = found.passes, found.converged
        self._n_features_out = self.n_clusters
        self.sample_ = rows
        self._sums = _sums(found, seen)
        self.__dict__.pop("_objective", None)
        return self

    def _warn(self) -> Self:
        if not self.converged_:
            warn_user(
                f"KernelKMeans: the centres still move after max_iter={self.max_iter} passes; "
                "raise max_iter, or tol if this is near enough.",
            )
        return self

    # --- prediction ------------------------------------------------------------------------------

    def predict(self, X: Tabular) -> Array:
        """Return the nearest centre of each row, (n,) int32, in the array library of X."""
        check_is_fitted(self)
        return _engine.joined(list(self.predict_blocks(predict_blocks_of(self, X))))

    def predict_blocks(self, blocks: Blocks) -> Iterator[Array]:
        """Give the nearest centres of one block of rows after the other."""
        check_is_fitted(self)
        for block in blocks.with_rows(_engine.block_rows(self.map_.n_features)):
            gaps = distances(self._features(block.X), self.cluster_centers_)
            yield from_numpy(np.argmin(gaps, axis=1).astype(np.int32), like=block.X)

    def transform(self, X: Tabular) -> Float[Array, "n k"]:
        """Return the distances |φ(x) − c| to all centres, (n, k), float64."""
        check_is_fitted(self)
        parts = []
        for block in predict_blocks_of(self, X).with_rows(_engine.block_rows(self.map_.n_features)):
            Z = self._features(block.X).astype(np.float64, copy=False)
            squares = distances(Z, self.cluster_centers_) + np.einsum("ij,ij->i", Z, Z)[:, None]
            parts.append(from_numpy(np.sqrt(np.maximum(squares, 0.0)), like=block.X))
        return _engine.joined(parts)

    def score(
        self,
        X: Tabular,
        y: object = None,  # noqa: ARG002  scikit-learn's signature
        sample_weight: Array | None = None,
    ) -> float:
        """Return minus Σ wᵢ |φ(xᵢ) − c(i)|² of these rows."""
        return -self._measured(X, sample_weight)[0].inertia

    # --- how good it is --------------------------------------------------------------------------

    @property
    def objective_(self) -> KernelCost:
        """Cost of the clusters of the last fit in the kernel's own terms; measured once."""
        check_is_fitted(self)
        if "_objective" not in self.__dict__:
            self._objective = kernel_cost(self, self._sums, self.sample_)
        return self._objective

    def objective(self, X: Float[Array, "n d"], sample_weight: Array | None = None) -> KernelCost:
        """Return the cost, in the kernel's own terms, of the clusters that these rows fall into."""
        found, seen = self._measured(X, sample_weight)
        return kernel_cost(self, _sums(found, seen), seen.sample)

    def _measured(
        self, X: Float[Array, "n d"], sample_weight: Array | None
    ) -> tuple[Clusters, Any]:
        check_is_fitted(self)
        blocks = fit_blocks_of(self, X, None, sample_weight, reset=False)
        seen: Any = choice.Diagonal(self.kernel_, Keeper(self.seed_))
        features = Features(self.map_, blocks, self.feature_dtype_, seen, most_bytes=0)
        return assign(features, self.cluster_centers_), seen

    def silhouette(self, X: Float[Array, "n d"]) -> float:
        """Return the mean silhouette in the kernel's distance, of 2048 random rows at most."""
        check_is_fitted(self)
        rows = _engine.presample(predict_blocks_of(self, X), self.seed_).lowest(COMPARED_ROWS)
        gaps = distances(self._features(rows.X), self.cluster_centers_)
        return kernel_silhouette(self.kernel_, rows.X, np.argmin(gaps, axis=1))

    def elbow(
        self,
        X: Float[Array, "n d"],
        clusters: Iterable[int] = range(1, 11),
        *,
        silhouette: bool = False,
    ) -> Elbow:
        """Return what different numbers of clusters cost, on a random sample of rows.

        Parameters
        ----------
        X : (n, d)
            8192 random rows of it are looked at, at most.
        clusters : iterable of int, default 1 to 10
        silhouette : bool, default False
            Whether mean silhouettes in the kernel's distance are measured too.

        Returns
        -------
        Elbow
            ``print`` it for a table.

        Notes
        -----
        All share one map: that of the fit, else one drawn from X. The estimator stays as it is.
        """
        model, rows = self._ready(X)
        return elbow(model, rows, clusters, silhouette)

    def _ready(self, X: Float[Array, "n d"]) -> tuple["KernelKMeans", RowSample]:
        """Return a model that has its map, and a sample of the rows."""
        if hasattr(self, "map_"):
            return self, _engine.presample(predict_blocks_of(self, X), self.seed_)
        model = clone(self)
        blocks = fit_blocks_of(model, X, None, None, reset=True)
        return model, model._choose(blocks)

    def _features(self, X: Array) -> Float[Array, "b D"]:
        return to_numpy(_engine.as_features(self.map_, X, self.feature_dtype_))

    # --- scikit-learn ----------------------------------------------------------------------------

    fit_transform = all_or_nothing(TransformerMixin.fit_transform)
    fit_predict = all_or_nothing(ClusterMixin.fit_predict)

    def set_params(self, **params: Any) -> Self:
        """Set parameters; ``kernel__lengthscale`` and the like replace the kernel's numbers."""
        return set_kernel_params(self, params)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = accepts_sparse(self.kernel)
        return tags


def _sums(found: Clusters, seen: choice.Diagonal) -> tuple[float, float, float, int]:
    """Return the cost in features, tr(K − Z Zᵀ), the weight of all rows, and their number."""
    return found.cost, seen.trace - found.power, float(found.sizes.sum()), seen.rows


# --- Where k-means begins, and what more clusters would save -------------------------------------


def different(rows: RowSample, seed: int) -> RowSample:
    """Return the different rows, in an order of their own, with the weights of all their copies.

    So a row of weight 2 starts as two rows do, in whatever order they came.
    """
    marks = row_marks(rows.X, seed)
    _, first, which = np.unique(marks, return_index=True, return_inverse=True)
    return replace(rows.take(first), w=np.bincount(which, rows.w))


def best_start(model: Any, Z: Float[Array, "m D"], w: Float[Array, " m"], k: int) -> Any:
    """Return scikit-learn's k-means of these features: the best of ``n_init`` k-means++ starts."""
    from sklearn.cluster import KMeans  # noqa: PLC0415  takes a second to import
    from sklearn.exceptions import ConvergenceWarning  # noqa: PLC0415

    seed = int(stream(model.seed_, "clusters").integers(2**31))
    means = KMeans(k, n_init=model.n_init, max_iter=model.max_iter, random_state=seed)
    with warnings.catch_warnings():  # of fewer different rows than clusters
        warnings.simplefilter("ignore", ConvergenceWarning)
        return means.fit(Z, sample_weight=w)


def elbow(model: Any, rows: RowSample, clusters: Iterable[int], silhouette: bool) -> Elbow:
    """Return what these numbers of clusters cost on these rows."""
    numbers = tuple(sorted({integer(k, "KernelKMeans", "clusters", 1) for k in clusters}))
    if not numbers or numbers[-1] > len(rows):
        raise InvalidInput(
            f"KernelKMeans.elbow: clusters must be numbers from 1 to the {len(rows)} rows looked "
            f"at; got {numbers}."
        )
    Z = to_numpy(as_features(model.map_, rows.X, model.feature_dtype_))
    found = [best_start(model, Z, rows.w, k) for k in numbers]
    costs = tuple(float(f.inertia_) / float(rows.w.sum()) for f in found)
    few = np.arange(min(len(rows), COMPARED_ROWS) if silhouette else 0)
    X = rows.take(few).X
    each = [kernel_silhouette(model.kernel_, X, f.labels_[few]) for f in found if silhouette]
    return Elbow(numbers, costs, tuple(each), len(rows))


def kernel_silhouette(kernel: Kernel, X: Array, labels: Array) -> float:
    """Return the mean silhouette; 0 where all rows are of one cluster, or each of its own."""
    from sklearn.metrics import silhouette_score  # noqa: PLC0415  takes a second to import

    if not 1 < len(np.unique(labels)) < len(labels):
        return 0.0
    K = to_numpy(kernel(X)).astype(np.float64)
    squares = np.diagonal(K)[:, None] + np.diagonal(K) - (K + K.T)
    np.fill_diagonal(squares, 0.0)
    lengths = np.sqrt(np.maximum(squares, 0.0))
    return float(silhouette_score(lengths, labels, metric="precomputed"))
