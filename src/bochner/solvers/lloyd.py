"""Lloyd's algorithm over blocks of features: k-means of any number of rows.

A pass assigns every row to its nearest centre and computes the means of the clusters, which are the
new centres. No pass increases Σ wᵢ |zᵢ − c(i)|². Lloyd (1982); steps by blocks: Sculley (2010).
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse

from bochner._core.blas import product
from bochner._core.shapes import Array, Float


@dataclass(frozen=True, eq=False)
class Clusters:
    """Assignment of rows to centres, and sums of the clusters."""

    centres: Float[Array, "k D"]  # centres that rows were assigned to
    sums: Float[Array, "k D"]  # Σ w z of each cluster
    sizes: Float[Array, " k"]  # Σ w
    power: float  # Σ w |z|² of all rows
    inertia: float  # Σ w |z − c|², c the row's centre
    labels: Array
    passes: int = 1  # number of passes
    converged: bool = True

    @property
    def means(self) -> Float[Array, "k D"]:
        """Means of the clusters; an empty cluster keeps its centre."""
        sizes = np.where(self.sizes > 0, self.sizes, 1.0)[:, None]
        return np.where(self.sizes[:, None] > 0, self.sums / sizes, self.centres)

    @property
    def cost(self) -> float:
        """Σ w |z − mean|²: the inertia about the means of the clusters."""
        squares = ((self.means - self.centres) ** 2).sum(axis=1)
        return max(self.inertia - float(self.sizes @ squares), 0.0)


@dataclass(frozen=True, eq=False)
class CentroidSum:
    """Summand of a pass of k-means, which adds each row to its nearest centre."""

    centres: Float[Array, "k D"]
    power: float | None = None  # Σ w |z|² of all rows, if an earlier pass computed it

    def add(self, total: list[Any] | None, block: Any) -> list[Any]:
        """Return sums, sizes, Σ w |z|², Σ w (|z − c|² − |z|²) and labels."""
        total = total or [np.zeros(self.centres.shape), np.zeros(len(self.centres)), 0.0, 0.0, []]
        sums, sizes, power, gap, labels = total
        nearest, gaps = _nearest_centres(block.Z, self.centres)
        w = _weights(block)
        if self.power is None:
            power += float(w @ np.einsum("ij,ij->i", block.Z, block.Z))
        sums += _sums(block.Z, w, nearest, len(self.centres))
        sizes += np.bincount(nearest, w, minlength=len(self.centres))
        labels.append(nearest.astype(np.int32))
        return [sums, sizes, power, gap + float(w @ gaps), labels]

    def merge(self, a: list[Any], b: list[Any]) -> list[Any]:
        return [x + y for x, y in zip(a, b, strict=True)]

    def clusters(self, total: list[Any]) -> Clusters:
        """Return the clusters of a sum."""
        sums, sizes, power, gap, labels = total
        power = power if self.power is None else self.power
        inertia = max(power + gap, 0.0)
        return Clusters(self.centres, sums, sizes, power, inertia, np.concatenate(labels))


def step(
    centres: Float[Array, "k D"], weights: Float[Array, " k"], block: Any
) -> tuple[Float[Array, "k D"], Float[Array, " k"]]:
    """Return centres as means of all rows assigned to them so far, and their weights (k,)."""
    nearest, _ = _nearest_centres(block.Z, centres)
    w = _weights(block)
    sizes = np.bincount(nearest, w, minlength=len(centres))
    weights = weights + sizes
    moves = _sums(block.Z, w, nearest, len(centres)) - sizes[:, None] * centres
    return centres + moves / np.where(weights > 0, weights, 1.0)[:, None], weights


def assign(features: Any, centres: Float[Array, "k D"], power: float | None = None) -> Clusters:
    """Return the clusters after a pass that assigns each row to its nearest centre.

    ``features.sum(summand)`` is a pass over blocks of (Z, w). ``power``: Σ w |z|², if known.
    """
    summand = CentroidSum(centres, power)
    return summand.clusters(features.sum(summand))


def run_lloyd(features: Any, first: Clusters, max_iter: int, tol: float) -> Clusters:
    """Return the clusters of Lloyd's algorithm, from the assignment ``first`` to initial centres.

    Stops if no row changes its cluster, if a pass lowers the cost by at most ``tol`` times the
    cost, or after ``max_iter`` passes.
    """
    old = first
    for passes in range(2, max_iter + 2):
        new = assign(features, old.means, old.power)
        level = old.cost - new.cost <= tol * new.cost
        converged = level or np.array_equal(new.labels, old.labels)
        if converged or passes == max_iter + 1:
            return replace(new, passes=passes, converged=converged)
        old = new
    return old


def distances(Z: Float[Array, "b D"], centres: Float[Array, "k D"]) -> Float[Array, "b k"]:
    """Return |z − c|² − |z|² of every row and centre, in the dtype of Z."""
    C = np.ascontiguousarray(centres.T, dtype=Z.dtype)
    return np.einsum("ij,ij->i", centres, centres).astype(Z.dtype) - 2 * product(Z, C)


def _nearest_centres(
    Z: Float[Array, "b D"], centres: Float[Array, "k D"]
) -> tuple[Array, Float[Array, " b"]]:
    """Return each row's nearest centre, and |z − c|² − |z|² in float64."""
    gaps = distances(Z, centres)
    nearest = np.argmin(gaps, axis=1)
    return nearest, np.take_along_axis(gaps, nearest[:, None], axis=1)[:, 0].astype(np.float64)


def _weights(block: Any) -> Float[Array, " b"]:
    return np.ones(len(block.Z)) if block.w is None else block.w.astype(np.float64)


def _sums(
    Z: Float[Array, "b D"], w: Float[Array, " b"], labels: Array, k: int
) -> Float[Array, "k D"]:
    """Return Σ w z of each cluster by a sparse product, in O(n D) for any k."""
    entries = (w.astype(Z.dtype), (labels, np.arange(len(labels))))
    return (scipy.sparse.csr_array(entries, shape=(k, len(labels))) @ Z).astype(np.float64)
