"""Kernel k-means at any number of rows."""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from scipy.stats import norm
from sklearn.base import ClusterMixin
from sklearn.exceptions import ConvergenceWarning

from bochner._core.arrays import concat, from_numpy, squared_norms, to_numpy
from bochner._core.checks import integer, nonnegative, warn_user
from bochner._core.random import stream
from bochner._core.shapes import Array, Float, Tabular
from bochner._core.text import HtmlResult
from bochner.certificates.pencil import row_sums, sample
from bochner.data.blocks import Blocks
from bochner.data.sample import RowSample
from bochner.data.schema import Inputs
from bochner.errors import InvalidInput
from bochner.kernels.kernel import Kernel
from bochner.models._base import FitSummary, Unsupervised, getter
from bochner.models._parameters import FeatureParameters, estimator
from bochner.models._rows import Features, row_marks
from bochner.models._tables import accept_partitions
from bochner.models.unsupervised.transformers import KernelTransformer, choose_by_rows, diagonal_of
from bochner.selection.choices import Choices
from bochner.solvers.convex.problem import FeatureBlock
from bochner.solvers.lloyd import CentroidSum, Clusters, assign, distances, run_lloyd, step
from bochner.sums.passes import LOCAL, Executor, Summands, as_sample, draw_rows, sample_summand


@dataclass(frozen=True)
class KernelCost(HtmlResult):
    """Cost of a clustering in features, and bounds of its cost with the exact kernel.

    The cost with the exact kernel is tr(K − PKP), the sum of squared distances to the means of the
    clusters, with the projection P onto the clusters. It is larger than the cost in features by
    tr E − tr PE, where E = K − Z Zᵀ. If Z Zᵀ ⪯ K this difference is in [0, tr E]; otherwise
    |tr PE| ≤ √k ‖E‖_F for all clusterings into k clusters (projection-cost preservation: Cohen et
    al. (2015)). Costs are weighted sums over all rows. :func:`bochner.certify_costs` bounds the
    costs of all clusterings of a sample.

    Attributes
    ----------
    features : float
        Cost in features, Σ w |φ(x) − mean|².
    low, high : float
        Bounds of the cost with the exact kernel.
    hidden : float
        Bound of the excess cost, with the exact kernel, of the best clustering in features.
    confidence : float
        Confidence of low, high and hidden; 1 if they are certain.
    weight : float
        Σ w. Costs divided by it are mean squared distances.
    n_clusters, n_features : int
    below_kernel : bool
        Whether Z Zᵀ ⪯ K.
    """

    features: float
    low: float
    high: float
    hidden: float
    confidence: float
    weight: float
    n_clusters: int
    n_features: int
    below_kernel: bool

    def __str__(self) -> str:
        """Return the costs per row in three sentences."""
        n = self.weight or 1.0
        level = "certain" if self.confidence == 1 else f"{100 * self.confidence:.3g} % confidence"
        reason = "because Z Zᵀ ⪯ K; " if self.below_kernel else ""
        return (
            f"In {self.n_features:,} features the cost of these {self.n_clusters:,} clusters is "
            f"{self.features / n:.4g} per row (mean squared distance to the cluster mean). With "
            f"the exact kernel it is between {self.low / n:.4g} and {self.high / n:.4g} ({reason}"
            f"{level}). The best clustering in features costs at most {self.hidden / n:.3g} more "
            "per row, with the exact kernel, than the best clustering."
        )


@dataclass(frozen=True, eq=False)
class Clustering(FitSummary):
    """Clusters of features: centres, and the rows assigned to them."""

    inputs: Inputs
    chosen: Choices
    weights: Float[Array, " k"]  # Σ w of the rows assigned to each centre in all calls
    clusters: Clusters  # centres, and the assigned rows of the last call
    diagonal: tuple[float, int]  # Σ w k(x, x) of these rows, and their number
    sample: RowSample  # a sample of these rows

    def values(self) -> Callable[[Array], Float[Array, "b k"]]:
        return self._distances

    def _distances(self, X: Array) -> Float[Array, "b k"]:
        """Return the distances |φ(x) − c| to all centres."""
        Z = self.chosen.double(X)
        norms = squared_norms(Z)[:, None]
        squares = distances(Z, self.clusters.centres) + norms
        # Smaller differences of squares are rounding errors, which depend on the processor
        squares[squares < 16 * np.finfo(np.float64).eps * norms] = 0.0
        return np.sqrt(squares)

    def _results(self) -> dict[str, Any]:
        clusters, sizes = self.clusters, self.clusters.sizes
        end = "converged" if clusters.converged else "stopped before it converged: raise max_iter"
        return {
            "clusters": f"{len(sizes):,}, of weight {sizes.min():.4g} to {sizes.max():.4g}",
            "inertia": clusters.inertia,
            "passes": clusters.passes,
            "passes_words": f"{clusters.passes:,}, {end}",
        }

    @cached_property
    def objective(self) -> KernelCost:
        """Cost of the clusters in features, and bounds of their cost with the exact kernel."""
        (trace, n), chosen, clusters = self.diagonal, self.chosen, self.clusters
        cost, left_out, k = clusters.cost, trace - clusters.power, len(clusters.centres)
        is_below, confidence = chosen.map.below_kernel, 1.0
        if is_below:
            hidden = max(left_out, 0.0)
            low, high = cost, cost + hidden
        else:
            rows = self.sample.lowest(2048)  # to estimate ‖K − Z Zᵀ‖_F
            roots = np.sqrt(rows.w)
            E = sample(chosen.precision_map, rows.X, chosen.kernel)[1] * roots[:, None] * roots
            m, squares = len(E), row_sums(E, n)
            mean = float(squares.mean())
            error = float(np.sqrt(n * mean))  # ‖E‖_F, exact if all rows are used
            if m < n and mean > 0:  # a U-statistic and its one-sided normal bound
                spread = float(np.std(squares, ddof=1)) / mean / m**0.5 * (1 - m / n) ** 0.5
                confidence = 0.95
                error *= float(np.exp(norm.ppf(confidence) * spread))
            gap, middle = k**0.5 * error, cost + left_out
            low, high, hidden = max(middle - gap, 0.0), middle + gap, 2 * gap
        weight = float(clusters.sizes.sum())
        sizes = weight, k, chosen.map.n_features
        return KernelCost(cost, low, high, hidden, confidence, *sizes, below_kernel=is_below)


def with_rows(
    inputs: Inputs, chosen: Choices, centres: Array, weights: Array, blocks: Blocks
) -> Clustering:
    """Return the clustering after a step of the centres per block, with the rows assigned anew."""
    features = Features(chosen.map, blocks, chosen.precision)
    sums: Any = Summands((diagonal_of(chosen.kernel), sample_summand(chosen.seed)))
    total: Any = None
    for block in features:
        centres, weights = step(centres, weights, block)
        total = sums.add(total, block)
    (diagonal, rows), clusters = total, assign(features, centres)
    return Clustering(inputs, chosen, weights, clusters, diagonal, as_sample(rows))


@estimator
class KernelKMeans(FeatureParameters, ClusterMixin, Unsupervised, KernelTransformer):
    """k-means in the feature space of a kernel.

    Minimises Σᵢ wᵢ |φ(xᵢ) − c(i)|² over the centres; row i has weight wᵢ and nearest centre c(i),
    and φ(x)·φ(y) ≈ k(x, y). This is kernel k-means without a kernel matrix, for any number of rows.
    ``transform`` returns the distances |φ(x) − c| to all centres c.

    Parameters
    ----------
    n_clusters : int, default 8
        Number of clusters.
    %(kernel at the median)s
    %(quick method)s
    n_features : int, default 512
        Number D of features.
    n_init : int, default 3
        Number of starts by k-means++ on a random sample; the best start is continued on all rows.
    max_iter : int, default 300
        Largest number of passes over all rows.
    tol : float, default 1e-5
        Stop when a pass reduces the cost by less than ``tol`` times the cost.

    See Also
    --------
    KernelPCA : Directions in which rows vary most.
    KernelFeatures : Features for any linear method.

    Notes
    -----
    p passes of Lloyd's algorithm for m clusters compute the features p times and take O(p n D m)
    more; memory is O(D m) and a block, or n D if features are cached. Starting centres are chosen
    on ``max(2048, 20 m)`` random rows and improved on at most 8192, so very small clusters can be
    missed. Sources: Dhillon, Guan and Kulis (2004); Chitta, Jin and Jain (2012), random features.

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

    n_clusters: int = 8
    kernel: Kernel | str = "gaussian"
    _: KW_ONLY
    n_init: int = 3
    max_iter: int = 300
    tol: float = 1e-5

    def _start(
        self, blocks: Blocks, where: Executor = LOCAL
    ) -> tuple[Choices, RowSample, Float[Array, "k D"]]:
        """Return kernel and map, a sample, and centres by k-means++ and Lloyd's algorithm on it."""
        from sklearn.cluster import KMeans  # noqa: PLC0415  takes a second to import

        k, spec = self.n_clusters, self._width_spec()
        for name in ("n_clusters", "n_init", "max_iter"):
            integer(vars(self)[name], "KernelKMeans", name, 1)
        nonnegative(self.tol, "KernelKMeans", "tol")
        chosen, rows = choose_by_rows(spec, blocks, where)
        rows = draw_rows(blocks, chosen.seed, where=where) if rows is None else rows
        if len(rows) < k:
            raise InvalidInput(
                f"KernelKMeans: n_clusters={k} must be at most the number of sampled rows; got "
                f"n_samples={len(rows)} of positive weight. Use fewer clusters."
            )
        # Distinct rows in a fixed order, with the summed weights of their copies; at least k rows
        starts = rows.lowest(max(2048, 20 * k))
        marks = row_marks(starts.X, chosen.seed)
        _, first, index = np.unique(marks, return_index=True, return_inverse=True)
        starts = replace(starts.take(first), w=np.bincount(index, starts.w))
        starts = starts.take(np.resize(np.arange(len(starts)), max(len(starts), k)))
        seed = int(stream(chosen.seed, "clusters").integers(2**31))
        means = KMeans(k, n_init=self.n_init, max_iter=self.max_iter, random_state=seed)
        Z = to_numpy(chosen.precision_map.features(starts.X))
        with warnings.catch_warnings():  # fewer distinct rows than clusters
            warnings.simplefilter("ignore", ConvergenceWarning)
            means.fit(Z, sample_weight=starts.w)
        centres = means.cluster_centers_.astype(np.float64)
        if len(empty := np.setdiff1d(np.arange(k), means.labels_)):
            warn_user(
                f"KernelKMeans: n_clusters={k}, but the sampled rows have only {k - len(empty)} "
                "distinct features; the other clusters are empty. Use fewer clusters."
            )
            centres[empty] = Z[empty % len(starts)]  # scikit-learn's centres can be anywhere
        points = FeatureBlock(to_numpy(chosen.precision_map.features(rows.X)), w=rows.w)
        end = run_lloyd(points, assign(points, centres), self.max_iter, self.tol)
        return chosen, rows, end.means

    def _fit(self, blocks: Blocks, inputs: Inputs, where: Executor = LOCAL) -> Clustering:
        # Start on a sample, and continue on all rows
        chosen, rows, centres = self._start(blocks, where)
        features = Features(chosen.map, blocks, chosen.precision, where=where)
        summand = CentroidSum(centres)
        total, diagonal = features.sum(Summands((summand, diagonal_of(chosen.kernel))))
        lloyd = run_lloyd(features, summand.clusters(total), self.max_iter, self.tol)
        if not lloyd.converged:
            warn_user(
                f"KernelKMeans: not converged after max_iter={self.max_iter} passes; increase "
                "max_iter or tol."
            )
        return Clustering(inputs, chosen, lloyd.sizes, lloyd, diagonal, rows)

    def partial_fit(self, X: Tabular, y: object = None, sample_weight: Array | None = None) -> Self:
        """Move the centres towards the means of these rows, for streams.

        The first call draws the map and the starting centres, from at least ``n_clusters`` rows.
        Each centre is the mean of all rows assigned to it so far.
        """
        return self._add_rows(X, None, sample_weight)

    def _first_piece(self, blocks: Blocks, inputs: Inputs) -> Clustering:
        chosen, _, centres = self._start(blocks)
        return with_rows(inputs, chosen, centres, np.zeros(len(centres)), blocks)

    def _update(self, blocks: Blocks, inputs: Inputs) -> Clustering:
        fit = self.fit_
        return with_rows(fit.inputs, fit.chosen, fit.clusters.centres, fit.weights, blocks)

    def fit_predict(self, X: Tabular, y: object = None, **fit_params: Any) -> Array:
        """Fit, and return the clusters of the rows, (n,) int32."""
        return self._atomic(ClusterMixin.fit_predict, X, y, **fit_params)

    @accept_partitions
    def predict(self, X: Tabular) -> Array:
        """Return the nearest centre of each row, (n,) int32, in the array library of X."""
        return concat(list(self.predict_blocks(self._rows_to_predict(X))))

    def predict_blocks(self, blocks: Blocks) -> Iterator[Array]:
        """Yield the nearest centres of each block of rows."""
        fit = self._fitted
        for block in self._encode_as_fit(blocks).with_rows(fit.chosen.block_rows):
            Z = to_numpy(fit.chosen.precision_map.features(block.X))
            nearest = np.argmin(distances(Z, fit.clusters.centres), axis=1)
            yield from_numpy(nearest.astype(np.int32), like=block.X)

    def outputs(self, X: Tabular) -> dict[str, Array]:
        """Return the clusters of rows."""
        return {"cluster": to_numpy(self.predict(X))}

    def score(self, X: Tabular, y: object = None, sample_weight: Array | None = None) -> float:
        """Return minus Σ wᵢ |φ(xᵢ) − c(i)|² of these rows."""
        fit = self._fitted
        blocks, _ = self._read(X, None, sample_weight, first=False)
        features = Features(fit.chosen.map, blocks, fit.chosen.precision, 0)
        return -assign(features, fit.clusters.centres).inertia

    cluster_centers_ = getter("clusters.centres", "Centres in feature space, (k, D) float64.")
    labels_ = getter(
        "clusters.labels", "Clusters of the rows of the last fit or ``partial_fit``, (n,) int32."
    )
    inertia_ = getter("clusters.inertia", "Σ wᵢ |φ(xᵢ) − c(i)|² of the rows of ``labels_``.")
    n_iter_ = getter("clusters.passes", "Number of passes over all rows.")
    converged_ = getter("clusters.converged", "Whether the cost converged within ``tol``.")
    weights_seen_ = getter("weights", "Σ w of all rows assigned to each centre so far, (k,).")
    sample_ = getter("sample", "Sample of the rows of ``labels_``, for ``objective_``.")
    objective_ = getter(
        "objective",
        "A KernelCost: cost of the clusters in features, and its bounds with the exact kernel; "
        "computed at first use.",
    )
    _n_features_out = getter("weights.size", "Number of columns of ``transform``.")
