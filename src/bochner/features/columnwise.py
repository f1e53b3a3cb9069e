"""Products of kernels of one column each: their Mercer features, found numerically.

k(x, y) = Π_j k_j(x_j, y_j). With nodes q of column j, their weights p and the eigenpairs of
P^½ k_j(q, q) P^½ = V diag(w) Vᵀ, the functions

    g_i(x) = w_i^(−½) Σ_a k_j(x, q_a) p_a^½ V_{a i}

are the Nyström extension of eigenfunctions: k_j − Σ_i g_i g_i ⪰ 0 for **all** x and y, and by
Schur's theorem the same holds for products of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, singledispatch

import numpy as np

from bochner._core.arrays import dense, moved
from bochner._core.blas import eigh
from bochner._core.shapes import Array, Float
from bochner.features.map import FeatureMap
from bochner.features.products import (
    Pairs,
    best_products,
    factored,
    in_double,
    left_over,
    products_of_rows,
)
from bochner.kernels import (
    Columns,
    Constant,
    CoordinateWise,
    Gaussian,
    Kernel,
    Power,
    Product,
    Scaled,
)

#: Eigenvalues below this share of the largest are rounding.
SMALLEST = 1e-12

#: Share of all rows that nodes have together beside the rows nearest to each.
LEAST = 0.01

ONE = Constant(1.0)


@singledispatch
def columnwise(kernel: Kernel, d: int) -> tuple[Kernel, ...] | None:
    """Return kernels of one column each whose product is the kernel, None if there are none."""
    return (kernel,) if d == 1 else None


@columnwise.register
def _(kernel: Gaussian | CoordinateWise, d: int) -> tuple[Kernel, ...] | None:
    scales = kernel.spectral_measure(d).scales
    return tuple(kernel.replace(lengthscale=1.0 / s) for s in scales.tolist())


@columnwise.register
def _(kernel: Constant, d: int) -> tuple[Kernel, ...] | None:
    return (kernel, *(ONE,) * (d - 1))


@columnwise.register
def _(kernel: Scaled, d: int) -> tuple[Kernel, ...] | None:
    factors = columnwise(kernel.kernel, d)
    return factors and (_times(Constant(kernel.scale), factors[0]), *factors[1:])


@columnwise.register
def _(kernel: Product, d: int) -> tuple[Kernel, ...] | None:
    left, right = columnwise(kernel.left, d), columnwise(kernel.right, d)
    return left and right and tuple(map(_times, left, right))


@columnwise.register
def _(kernel: Power, d: int) -> tuple[Kernel, ...] | None:
    factors = columnwise(kernel.kernel, d)
    return factors and tuple(k if k == ONE else Power(k, kernel.exponent) for k in factors)


@columnwise.register
def _(kernel: Columns, d: int) -> tuple[Kernel, ...] | None:
    factors = columnwise(kernel.kernel, len(kernel.columns))
    placed = dict(zip(kernel.columns, factors or (), strict=False))
    return factors and tuple(placed.get(j, ONE) for j in range(d))


def _times(left: Kernel, right: Kernel) -> Kernel:
    if left == ONE:
        return right
    return left if right == ONE else Product(left, right)


@dataclass(frozen=True, eq=False)
class ColumnwiseMap(FeatureMap):
    """φ(x) = (Π_j g_{j,k_j}(x_j))_k.

    Attributes
    ----------
    factors : tuple of d Kernel
        k_j, each of one column.
    nodes : tuple of (M_j,) float64
    weights : tuple of (M_j, m_j) float64
        g_j(x) = k_j(x, nodes) weights.
    indices : (D, d) int32
        k of each feature, by decreasing eigenvalue.
    """

    kernel: Kernel
    factors: tuple[Kernel, ...]
    nodes: tuple[Float[Array, " M"], ...]
    weights: tuple[Float[Array, "M m"], ...]
    indices: Array

    @property
    def n_inputs(self) -> int:
        """Columns d that X must have."""
        return len(self.factors)

    @property
    def n_features(self) -> int:
        """D, the number of products."""
        return len(self.indices)

    @property
    def below_kernel(self) -> bool:
        """A product of projections: always."""
        return True

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        """Return the products, (n, D)."""
        return products_of_rows(self._how, self.n_features, self._table, X)

    def residual(self, X: Float[Array, "n d"]) -> Float[Array, " n"]:
        """Return e(x) = k(x, x) − |φ(x)|² ≥ 0 in float64: |k − k̂|(x, y) ≤ √(e(x) e(y))."""
        return left_over(self, X)

    @cached_property
    def _how(self) -> Pairs | Array:
        ends = np.cumsum([w.shape[1] for w in self.weights])
        return factored(self.indices + np.concatenate([[0], ends[:-1]]))

    def _table(self, X: Float[Array, "n d"]) -> Float[Array, "m n"]:
        xp, X = in_double(dense(X))
        columns = [
            k(X[:, j : j + 1], moved(q[:, None], like=X)) @ moved(w, like=X)
            for j, (k, q, w) in enumerate(zip(self.factors, self.nodes, self.weights, strict=True))
        ]
        return xp.permute_dims(xp.concat(columns, axis=1), (1, 0))


def draw_columnwise(
    kernel: Kernel, factors: tuple[Kernel, ...], X: Float[Array, "n d"], width: int
) -> ColumnwiseMap:
    """Return the ``width`` products of largest eigenvalue for the spread of the columns of X."""
    most = max(64, min(4 * width, 1024 // len(factors)))
    nodes, weights, logs = [], [], []
    for j, k in enumerate(factors):
        q, share = _nodes(X[:, [j]], most)
        values, functions = eigenfunctions(k, q, share)
        nodes.append(q)
        weights.append(functions)
        logs.append(np.log(values))
    indices, _ = best_products(logs, width)
    kept = _shortened(weights, indices)
    return ColumnwiseMap(kernel, factors, tuple(nodes), kept, indices)


def _shortened(weights: Sequence[Array], indices: Array) -> tuple[Array, ...]:
    """Drop the eigenfunctions that no product has."""
    used = 1 + indices.max(axis=0)
    return tuple(np.ascontiguousarray(w[:, :m]) for w, m in zip(weights, used, strict=True))


def _nodes(column: Float[Array, "n 1"], most: int) -> tuple[Float[Array, " M"], Float[Array, " M"]]:
    """Return nodes and the share of the rows that are nearest to each.

    All values of the column, if they are few; else half of the nodes are values at even ranks, and
    half are evenly spaced, for smooth kernels have their largest errors in the gaps of the tails.
    """
    values, counts = np.unique(dense(column).astype(np.float64), return_counts=True)
    if len(values) <= most:
        return values, counts / counts.sum()
    ranks = np.searchsorted(np.cumsum(counts) / counts.sum(), np.linspace(0, 1, most // 2))
    even = np.linspace(values[0], values[-1], most - most // 2)
    nodes = np.unique(np.concatenate([values[np.minimum(ranks, len(values) - 1)], even]))
    nearest = np.searchsorted((nodes[1:] + nodes[:-1]) / 2, values)
    share = np.bincount(nearest, counts, len(nodes)) / counts.sum() + LEAST / len(nodes)
    return nodes, share / share.sum()


def eigenfunctions(
    kernel: Kernel, nodes: Float[Array, " M"], share: Float[Array, " M"]
) -> tuple[Float[Array, " m"], Float[Array, "M m"]]:
    """Return the eigenvalues, from the largest, and the weights of the eigenfunctions."""
    root = np.sqrt(share)
    A = kernel(nodes[:, None]) * np.outer(root, root)
    values, vectors = eigh(A, driver="evd", check_finite=False)
    kept = np.flatnonzero(values > SMALLEST * max(values[-1], 0.0))[::-1]
    if not len(kept):  # the kernel is zero on these rows
        return np.ones(1), np.zeros((len(nodes), 1))
    values, vectors = values[kept], vectors[:, kept]
    signs = np.sign(vectors[np.abs(vectors).argmax(axis=0), np.arange(len(kept))])
    return values, root[:, None] * vectors * signs / np.sqrt(values)
