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

from bochner._core.arrays import from_numpy, joined, squared_norms, to_numpy
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
from bochner.models._base import FitSummary, WithoutTarget, learned
from bochner.models._parameters import FeatureParameters, estimator
from bochner.models._rows import Features, row_marks
from bochner.models._tables import by_partition
from bochner.models.unsupervised.transformers import KernelTransformer, choose_alone, diagonal_of
from bochner.selection.chosen import Chosen
from bochner.solvers.convex.problem import FeatureBlock
from bochner.solvers.lloyd import CentroidsOf, Clusters, assign, distances, run_lloyd, stepped
from bochner.sums.passes import LOCAL, Executor, Together, nonempty, sample_of, sampled


@dataclass(frozen=True)
class KernelCost(HtmlResult):
    """Cost of a clustering in features, and bounds of its cost with the exact kernel.

    The cost is tr(K − PKP), P the projection onto the clusters: the sum of squared distances to
    the clusters' means in the kernel's own space. With E = K − Z Zᵀ it differs from the cost of the
    features by tr E − tr PE. Where Z Zᵀ ⪯ K that lies in [0, tr E]; otherwise
    |tr PE| ≤ √k ‖E‖_F, for all clusterings into k (projection-cost preservation: Cohen et al.
    (2015)). Of all rows, with their weights; :func:`bochner.certify_costs` has the whole range over
    all clusterings, of a sample.
    """

    features: float  # Σ w |φ(x) − mean|²
    # Between these lies the cost in the kernel
    low: float
    high: float
    # How much more a clustering of least cost in features may cost there than the best
    hidden: float
    confidence: float  # Of low, high and hidden: 1 where they are certain
    weight: float  # Σ w, the number of rows: divide by it for the mean squared distance
    n_clusters: int
    n_features: int
    below_kernel: bool  # Whether Z Zᵀ ⪯ K

    def __str__(self) -> str:
        """Return the costs in three sentences."""
        per = self.weight or 1.0
        sure = "certain" if self.confidence == 1 else f"{100 * self.confidence:.3g} % confidence"
        why = "because Z Zᵀ ⪯ K; " if self.below_kernel else ""
        return (
            f"In {self.n_features:,} features the cost of these {self.n_clusters:,} clusters is "
            f"{self.features / per:.4g} per row (mean squared distance to the cluster mean). With "
            f"the exact kernel it is between {self.low / per:.4g} and {self.high / per:.4g} ({why}"
            f"{sure}). The best clustering in features costs at most {self.hidden / per:.3g} more "
            "per row, with the exact kernel, than the best clustering."
        )


@dataclass(frozen=True, eq=False)
class Clustering(FitSummary):
    """Clusters of features: centres, and the rows assigned to them."""

    inputs: Inputs
    chosen: Chosen
    seen: Float[Array, " k"]  # Σ w of the rows that led to the centres
    clusters: Clusters  # centres, and the rows of the last fit or call
    diagonal: tuple[float, int]  # Σ w k(x, x) of these rows, and their number
    sample: RowSample  # of these rows

    def values(self) -> Callable[[Array], Float[Array, "b k"]]:
        return self._distances

    def _distances(self, X: Array) -> Float[Array, "b k"]:
        """Return the distances |φ(x) − c| to all centres."""
        Z = self.chosen.double(X)
        norms = squared_norms(Z)[:, None]
        squares = distances(Z, self.clusters.centres) + norms
        # Smaller differences of squares are rounding, which depends on the processor.
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
        """Cost of the clusters with the exact kernel."""
        (trace, n), chosen, clusters = self.diagonal, self.chosen, self.clusters
        cost, left_out, k = clusters.cost, trace - clusters.power, len(clusters.centres)
        below, confidence = chosen.map.below_kernel, 1.0
        if below:
            hidden = max(left_out, 0.0)
            low, high = cost, cost + hidden
        else:
            rows = self.sample.lowest(2048)  # whose kernel matrix is compared with Z Zᵀ
            roots = np.sqrt(rows.w)
            E = sample(chosen.rounded, rows.X, chosen.kernel)[1] * roots[:, None] * roots
            m, squares = len(E), row_sums(E, n)
            mean = float(squares.mean())
            error = float(np.sqrt(n * mean))  # ‖E‖_F, certain of all rows
            if m < n and mean > 0:  # else a U-statistic and its one-sided normal bound
                spread = float(np.std(squares, ddof=1)) / mean / m**0.5 * (1 - m / n) ** 0.5
                confidence = 0.95
                error *= float(np.exp(norm.ppf(confidence) * spread))
            gap, middle = k**0.5 * error, cost + left_out
            low, high, hidden = max(middle - gap, 0.0), middle + gap, 2 * gap
        weight = float(clusters.sizes.sum())
        sizes = weight, k, chosen.map.n_features
        return KernelCost(cost, low, high, hidden, confidence, *sizes, below_kernel=below)


def followed(
    inputs: Inputs, chosen: Chosen, centres: Array, seen: Array, blocks: Blocks
) -> Clustering:
    """Move the centres in one pass, block after block, and assign the rows in another."""
    features = Features(chosen.map, blocks, chosen.precision)
    sums: Any = Together((diagonal_of(chosen.kernel), sample_of(chosen.seed)))
    total: Any = None
    for block in features:
        centres, seen = stepped(centres, seen, block)
        total = sums.add(total, block)
    (diagonal, kept), clusters = total, assign(features, centres)
    return Clustering(inputs, chosen, seen, clusters, diagonal, nonempty(kept))


@estimator
class KernelKMeans(FeatureParameters, ClusterMixin, WithoutTarget, KernelTransformer):
    """k-means in the feature space of a kernel.

    Minimises Σ wᵢ |φ(xᵢ) − c(i)|² over k centres c, φ(x)·φ(y) ≈ k(x, y): that is kernel k-means
    with the kernel φ(x)·φ(y), without a kernel matrix, for any number of rows. ``transform`` gives
    the distances |φ(x) − c| to all centres.

    Parameters
    ----------
    n_clusters : int, default 8
        k.
    %(kernel at the median)s
    %(quick method)s
    n_features : int, default 512
        D.
    n_init : int, default 3
        Number of starts by k-means++ on a random sample of rows; the best one continues on all.
    max_iter : int, default 300
        Largest number of passes over all rows.
    tol : float, default 1e-5
        Stop if a pass lowers the cost by less than this share of it.

    See Also
    --------
    KernelPCA : Directions in which rows vary most.
    KernelFeatures : Features for any linear method.

    Notes
    -----
    Lloyd's algorithm. Time O(n c(φ) + passes·n D k), memory O(D k) and one block, or n D where
    features are kept. Starts are sought on ``max(2048, 20 k)`` random rows, and improved on 8192:
    very small clusters can be missed. Source: Dhillon, Guan and Kulis (2004); with random features,
    Chitta, Jin and Jain (2012).

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

    def _begun(
        self, blocks: Blocks, where: Executor = LOCAL
    ) -> tuple[Chosen, RowSample, Float[Array, "k D"]]:
        """Choose open parameters, and find centres by k-means++ and Lloyd's method on a sample."""
        from sklearn.cluster import KMeans  # noqa: PLC0415  takes a second to import

        k, spec = self.n_clusters, self._width_spec()
        for name in ("n_clusters", "n_init", "max_iter"):
            integer(vars(self)[name], "KernelKMeans", name, 1)
        nonnegative(self.tol, "KernelKMeans", "tol")
        chosen, rows = choose_alone(spec, blocks, where)
        rows = sampled(blocks, chosen.seed, where=where) if rows is None else rows
        if len(rows) < k:
            raise InvalidInput(
                f"KernelKMeans: n_clusters={k} must be at most the number of rows to start from; "
                f"got n_samples={len(rows)} of positive weight. Ask for fewer clusters."
            )
        # Distinct rows in a fixed order, with the summed weights of their copies; k rows at least
        few = rows.lowest(max(2048, 20 * k))
        marks = row_marks(few.X, chosen.seed)
        _, first, which = np.unique(marks, return_index=True, return_inverse=True)
        few = replace(few.take(first), w=np.bincount(which, few.w))
        few = few.take(np.resize(np.arange(len(few)), max(len(few), k)))
        seed = int(stream(chosen.seed, "clusters").integers(2**31))
        means = KMeans(k, n_init=self.n_init, max_iter=self.max_iter, random_state=seed)
        Z = to_numpy(chosen.rounded.features(few.X))
        with warnings.catch_warnings():  # of fewer different rows than clusters
            warnings.simplefilter("ignore", ConvergenceWarning)
            means.fit(Z, sample_weight=few.w)
        centres = means.cluster_centers_.astype(np.float64)
        if len(empty := np.setdiff1d(np.arange(k), means.labels_)):
            warn_user(
                f"KernelKMeans: n_clusters={k}, but the rows to start from have only "
                f"{k - len(empty)} different features; the other clusters stay empty. Ask for "
                "fewer."
            )
            centres[empty] = Z[empty % len(few)]  # their own centres may be anywhere
        points = FeatureBlock(to_numpy(chosen.rounded.features(rows.X)), w=rows.w)
        end = run_lloyd(points, assign(points, centres), self.max_iter, self.tol)
        return chosen, rows, end.means

    def _fit(self, blocks: Blocks, inputs: Inputs, where: Executor = LOCAL) -> Clustering:
        # Start on a sample of rows, and continue on all
        chosen, rows, centres = self._begun(blocks, where)
        features = Features(chosen.map, blocks, chosen.precision, where=where)
        summand = CentroidsOf(centres)
        total, diagonal = features.sum(Together((summand, diagonal_of(chosen.kernel))))
        lloyd = run_lloyd(features, summand.clusters(total), self.max_iter, self.tol)
        if not lloyd.converged:
            warn_user(
                f"KernelKMeans: the centres still move after max_iter={self.max_iter} passes; "
                "raise max_iter, or tol if this is near enough."
            )
        return Clustering(inputs, chosen, lloyd.sizes, lloyd, diagonal, rows)

    def partial_fit(self, X: Tabular, y: object = None, sample_weight: Array | None = None) -> Self:
        """Move the centres towards the means of these rows, for streams.

        The first call draws the map and the starting centres from its rows; it needs at least as
        many rows as clusters. Each centre is the mean of all rows assigned to it so far.
        """
        return self._add_rows(X, None, sample_weight)

    def _first_piece(self, blocks: Blocks, inputs: Inputs) -> Clustering:
        chosen, _, centres = self._begun(blocks)
        return followed(inputs, chosen, centres, np.zeros(len(centres)), blocks)

    def _with_rows(self, blocks: Blocks, inputs: Inputs) -> Clustering:
        fit = self.fit_
        return followed(fit.inputs, fit.chosen, fit.clusters.centres, fit.seen, blocks)

    def fit_predict(self, X: Tabular, y: object = None, **fit_params: Any) -> Array:
        """Fit, and return the clusters of the rows, (n,) int32."""
        return self._atomic(ClusterMixin.fit_predict, X, y, **fit_params)

    @by_partition
    def predict(self, X: Tabular) -> Array:
        """Return the nearest centre of each row, (n,) int32, in the array library of X."""
        return joined(list(self.predict_blocks(self._rows_to_predict(X))))

    def predict_blocks(self, blocks: Blocks) -> Iterator[Array]:
        """Yield the nearest centres of each block of rows."""
        fit = self._fitted
        for block in self._as_fitted(blocks).with_rows(fit.chosen.block_rows):
            gaps = distances(to_numpy(fit.chosen.rounded.features(block.X)), fit.clusters.centres)
            nearest = np.argmin(gaps, axis=1)
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

    cluster_centers_ = learned("clusters.centres", "Centres in feature space, (k, D) float64.")
    labels_ = learned(
        "clusters.labels", "Clusters of the rows of the last fit or ``partial_fit``, (n,) int32."
    )
    inertia_ = learned("clusters.inertia", "Σ wᵢ |φ(xᵢ) − c(i)|² of these rows.")
    n_iter_ = learned("clusters.passes", "Passes over all rows.")
    converged_ = learned("clusters.converged", "Whether the centres rest.")
    weights_seen_ = learned("seen", "Σ w of the rows that led to each centre, (k,).")
    sample_ = learned("sample", "Rows kept for the objective.")
    objective_ = learned(
        "objective",
        "Cost of the clusters in the kernel's own terms, with what the features can hide; measured "
        "when first asked for. ``print`` says it in words.",
    )
    _n_features_out = learned("seen.size", "Columns of ``transform``.")
