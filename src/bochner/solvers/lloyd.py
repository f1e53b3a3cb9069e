"""Lloyd's algorithm over blocks of features: k-means of any number of rows.

A pass assigns every row to its nearest centre and adds up each cluster; the new centres are the
means. No pass raises Σ wᵢ |zᵢ − c(i)|². Lloyd (1982); steps by blocks: Sculley (2010).
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from bochner._core.blas import product
from bochner._core.shapes import Array, Float


class WeightedFeatures(NamedTuple):
    """A block of rows, Z (b, D), and their weights, w (b,) or None."""

    Z: Array
    w: Array | None = None


@dataclass(frozen=True, eq=False)
class Clusters:
    """Rows assigned to centres."""

    centres: Float[Array, "k D"]  # centres that rows were assigned to
    sums: Float[Array, "k D"]  # Σ w z of each cluster
    sizes: Float[Array, " k"]  # Σ w
    power: float  # Σ w |z|² of all rows
    inertia: float  # Σ w |z − c|², c the row's centre
    labels: Array
    passes: int = 1  # passes that led here
    converged: bool = True

    @property
    def means(self) -> Float[Array, "k D"]:
        """Means of the clusters; an empty cluster keeps its centre."""
        sizes = np.where(self.sizes > 0, self.sizes, 1.0)[:, None]
        return np.where(self.sizes[:, None] > 0, self.sums / sizes, self.centres)

    @property
    def cost(self) -> float:
        """Σ w |z − mean|²: the inertia about the clusters' own means."""
        moved = ((self.means - self.centres) ** 2).sum(axis=1)
        return max(self.inertia - float(self.sizes @ moved), 0.0)


def distances(Z: Float[Array, "b D"], centres: Float[Array, "k D"]) -> Float[Array, "b k"]:
    """Return |z − c|² − |z|² of every row and centre, in the precision of Z."""
    C = np.ascontiguousarray(centres.T, dtype=Z.dtype)
    return np.einsum("ij,ij->i", centres, centres).astype(Z.dtype) - 2 * product(Z, C)


def assign(
    features: Iterable[Any], centres: Float[Array, "k D"], power: float | None = None
) -> Clusters:
    """Assign all rows in one pass over blocks of (Z, w); ``power`` is known from a pass before."""
    sums, sizes = np.zeros(centres.shape), np.zeros(len(centres))
    total = gap = 0.0
    labels = []
    for block in features:
        nearest, gaps = _nearest(block.Z, centres)
        w = np.ones(len(nearest)) if block.w is None else block.w.astype(np.float64)
        gap += float(w @ gaps)
        if power is None:
            total += float(w @ np.einsum("ij,ij->i", block.Z, block.Z))
        sums += _sums(block.Z, w, nearest, len(centres))
        sizes += np.bincount(nearest, w, minlength=len(centres))
        labels.append(nearest.astype(np.int32))
    total = total if power is None else power
    return Clusters(centres, sums, sizes, total, max(total + gap, 0.0), np.concatenate(labels))


def lloyd(
    features: Iterable[Any], centres: Float[Array, "k D"], max_iter: int, tol: float
) -> Clusters:
    """Move centres to the means until they rest.

    Stops when no row changes its cluster, or a pass lowers the cost by less than ``tol`` of it.
    """
    old = assign(features, centres)
    for passes in range(2, max_iter + 2):
        new = assign(features, old.means, old.power)
        rest = old.cost - new.cost <= tol * new.cost
        still = rest or np.array_equal(new.labels, old.labels)
        if still or passes == max_iter + 1:
            return replace(new, passes=passes, converged=still)
        old = new
    return old


def step(
    Z: Float[Array, "b D"],
    w: Float[Array, " b"] | None,
    centres: Float[Array, "k D"],
    seen: Float[Array, " k"],
) -> tuple[Float[Array, "k D"], Float[Array, " k"]]:
    """Return centres moved towards one block's means, by its share of the weight ``seen``."""
    nearest, _ = _nearest(Z, centres)
    weights = np.ones(len(Z)) if w is None else w.astype(np.float64)
    sizes = np.bincount(nearest, weights, minlength=len(centres))
    seen = seen + sizes
    pull = _sums(Z, weights, nearest, len(centres)) - sizes[:, None] * centres
    return centres + pull / np.where(seen > 0, seen, 1.0)[:, None], seen


def _nearest(
    Z: Float[Array, "b D"], centres: Float[Array, "k D"]
) -> tuple[Array, Float[Array, " b"]]:
    """Return each row's nearest centre, and |z − c|² − |z|² in float64."""
    gaps = distances(Z, centres)
    nearest = np.argmin(gaps, axis=1)
    return nearest, np.take_along_axis(gaps, nearest[:, None], axis=1)[:, 0].astype(np.float64)


def _sums(
    Z: Float[Array, "b D"], w: Float[Array, " b"], labels: Array, k: int
) -> Float[Array, "k D"]:
    """Return Σ w z of each cluster, by a sparse product: n D additions, whatever k."""
    entries = (w.astype(Z.dtype), (labels, np.arange(len(labels))))
    return (scipy.sparse.csr_array(entries, shape=(k, len(labels))) @ Z).astype(np.float64)
