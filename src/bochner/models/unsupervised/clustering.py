"""Cost of a clustering in the feature space of the kernel."""

import warnings
from dataclasses import dataclass

import numpy as np
from scipy.stats import norm

from bochner._core.html import ShownResult
from bochner._core.random import stream
from bochner._core.shapes import Array, Float
from bochner.certificates.pencil import row_sums, sample
from bochner.data.sample import RowSample
from bochner.selection.chosen import Chosen
from bochner.solvers.lloyd import Clusters

#: Rows whose kernel matrix is compared with Z Zᵀ.
COMPARED_ROWS = 2048


@dataclass(frozen=True)
class KernelCost(ShownResult):
    """The cost of a clustering in features, and where its cost in the kernel lies.

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
    # A clustering of least cost in features costs at most this much more, in the kernel, than the
    # best there is
    hidden: float
    confidence: float  # Of low, high and hidden: 1 where they are certain
    weight: float  # Σ w, the number of rows: divide by it for the mean squared distance
    n_clusters: int
    n_features: int
    below_kernel: bool  # Whether Z Zᵀ ⪯ K

    def __str__(self) -> str:
        """Return what it says, in three sentences."""
        per = self.weight or 1.0
        sure = "certain" if self.confidence == 1 else f"{100 * self.confidence:.3g} % confidence"
        why = "the features lie below the kernel; " if self.below_kernel else ""
        return (
            f"In {self.n_features:,} features these {self.n_clusters:,} clusters cost "
            f"{self.features / per:.4g} a row (mean squared distance to the cluster's mean). In "
            f"the kernel's own terms the cost lies between {self.low / per:.4g} and "
            f"{self.high / per:.4g} a row ({why}{sure}). A clustering of least cost in features "
            f"costs at most {self.hidden / per:.3g} a row more, in the kernel, than the best there "
            "is."
        )


def kernel_cost(
    chosen: Chosen, found: Clusters, diagonal: tuple[float, int], rows: RowSample
) -> KernelCost:
    """Return the cost of clusters in the kernel's own terms.

    ``diagonal`` are Σ w k(x, x) of all rows and their number; ``rows`` a sample of them.
    """
    trace, n = diagonal
    cost, left_out, k = found.cost, trace - found.power, len(found.centres)
    below, confidence = chosen.map.below_kernel, 1.0
    if below:
        hidden = max(left_out, 0.0)
        low, high = cost, cost + hidden
    else:
        rows = rows.lowest(COMPARED_ROWS)
        roots = np.sqrt(rows.w)
        E = sample(chosen.rounded, rows.X, chosen.kernel).E * roots[:, None] * roots
        error, confidence = matrix_error(E, n)
        gap, middle = k**0.5 * error, cost + left_out
        low, high, hidden = max(middle - gap, 0.0), middle + gap, 2 * gap
    weight = float(found.sizes.sum())
    return KernelCost(
        cost, low, high, hidden, confidence, weight, k, chosen.n_features, below_kernel=below
    )


def matrix_error(E: Float[Array, "m m"], n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return a bound of ‖E‖_F over n rows from m random ones, and its confidence.

    A U-statistic and its one-sided normal bound, as in the certificate; certain for m = n.
    """
    m, rows = len(E), row_sums(E, n)
    mean = float(rows.mean())
    if m >= n or mean == 0:
        return float(np.sqrt(n * mean)), 1.0
    spread = float(np.std(rows, ddof=1)) / mean / m**0.5 * (1 - m / n) ** 0.5
    return float(np.sqrt(n * mean)) * float(np.exp(norm.ppf(confidence) * spread)), confidence


@dataclass(frozen=True)
class Starts:
    """How starts are sought: by k-means++, ``count`` times, and at most ``max_iter`` passes."""

    count: int
    max_iter: int
    seed: int

    def best(
        self, Z: Float[Array, "m D"], w: Float[Array, " m"], k: int
    ) -> tuple[Float[Array, "k D"], Array, float]:
        """Return centres, labels and cost of the best of scikit-learn's k-means of features."""
        from sklearn.cluster import KMeans  # noqa: PLC0415  takes a second to import
        from sklearn.exceptions import ConvergenceWarning  # noqa: PLC0415

        seed = int(stream(self.seed, "clusters").integers(2**31))
        means = KMeans(k, n_init=self.count, max_iter=self.max_iter, random_state=seed)
        with warnings.catch_warnings():  # of fewer different rows than clusters
            warnings.simplefilter("ignore", ConvergenceWarning)
            means.fit(Z, sample_weight=w)
        return means.cluster_centers_.astype(np.float64), means.labels_, float(means.inertia_)
