"""Products with the Gram matrix of features, which is never formed: one pass over the rows each.

With rows z_i of Z, weights w_i and means z̄ and ȳ, a pass makes G V, G = Σ w (z − z̄)(z − z̄)ᵀ, for
several vectors V at once: features are made block by block, used twice, and forgotten. D numbers a
vector are all that travels.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bochner._core.arrays import array_namespace, is_sparse, moved, to_numpy
from bochner._core.random import stream
from bochner._core.shapes import Array, Float
from bochner.data.sources import Block
from bochner.sums.moments import Precision

TOGETHER = 1 << 20  # Features that are made at a time, for the processor's cache
ONE_BY_ONE = 12  # Up to this many vectors are multiplied one by one, for which BLAS is faster


def row_signs(seed: int, start: int, count: int, n_signs: int) -> Float[Array, "b s"]:
    """Return random signs of rows ``start`` to ``start + count − 1``, for any blocks.

    Each is a bit of one random number a row, so there are 64 at most.
    """
    generator = stream(seed, "row signs").bit_generator
    generator.advance(start)  # type: ignore[attr-defined]
    bits = generator.random_raw(count)[:, None] >> np.arange(n_signs, dtype=np.uint64)
    return 2.0 * (bits & np.uint64(1)).astype(np.float64) - 1.0


def weights_of(block: Block) -> Float[Array, " b"]:
    """Return the weights of a block's rows, one of each where it has none."""
    if block.w is None:
        return np.ones(block.X.shape[0])
    return to_numpy(block.w).astype(np.float64)


def _pieces(
    features: Callable[[Array], Array], X: Array, n_features: int
) -> Iterator[tuple[slice, Array]]:
    """Yield the features of a few rows at a time, with their slice."""
    size = max(16, TOGETHER // n_features)
    for start in range(0, X.shape[0], size):
        rows = slice(start, min(start + size, X.shape[0]))
        Z = features(X[rows, :])
        yield rows, Z.toarray() if is_sparse(Z) else Z


@dataclass(frozen=True, eq=False)
class Firsts:
    """Sums of rows to the first power of their features."""

    rows: int  # of positive weight
    weight: float  # W = Σ w
    feature_sum: Float[Array, " D"]  # Σ w z
    target_sum: Float[Array, " t"]  # Σ w (y − y₀), y₀ the origin of targets
    cross: Float[Array, "D t"]  # Σ w z (y − y₀)
    squares: Float[Array, " t"]  # Σ w (y − y₀)²
    draws: Float[Array, "D s"]  # Σ √w z ε, ε random signs of the rows
    drawn_sum: Float[Array, " s"]  # Σ √w ε


class ArraySums:
    """A summand whose sums are a list of arrays."""

    def merge(self, a: list[Array], b: list[Array]) -> list[Array]:
        return [x + y for x, y in zip(a, b, strict=True)]


@dataclass(frozen=True, eq=False)
class FirstsOf(ArraySums):
    """The summand of :class:`Firsts`."""

    features: Callable[[Array], Array]  # rows X (b, d) to features (b, D)
    n_features: int  # D
    origin: Float[Array, " t"]  # y₀, near the targets' means
    seed: int  # of the random signs
    n_signs: int  # s, of each row

    def zero(self) -> list[Array]:
        t, c = len(self.origin), 1 + len(self.origin) + self.n_signs
        return [np.zeros((c, self.n_features)), np.zeros(1 + t + c)]

    def add(self, total: list[Array], block: Block) -> list[Array]:
        w = weights_of(block)
        y = to_numpy(block.y).astype(np.float64).reshape(len(w), -1) - self.origin
        signs = row_signs(self.seed, block.start, len(w), self.n_signs)
        right = np.column_stack([w, w[:, None] * y, np.sqrt(w)[:, None] * signs])
        numbers = np.array([float(np.count_nonzero(w > 0)), *(w @ y**2), *right.sum(axis=0)])
        for rows, Z in _pieces(self.features, block.X, self.n_features):
            total[0] += _transposed(Z, right[rows])
        total[1] += numbers
        return total

    def result(self, total: list[Array]) -> Firsts:
        """Return the sums by name."""
        sums, numbers = total
        t = len(self.origin)
        columns = numbers[1 + t :]
        return Firsts(
            int(numbers[0]),
            float(columns[0]),
            sums[0],
            columns[1 : 1 + t],
            np.ascontiguousarray(sums[1 : 1 + t].T),
            numbers[1 : 1 + t],
            np.ascontiguousarray(sums[1 + t :].T),
            columns[1 + t :],
        )


@dataclass(frozen=True, eq=False)
class ProductsOf(ArraySums):
    """The summand of G V."""

    features: Callable[[Array], Array]  # rows X (b, d) to features (b, D)
    vectors: Float[Array, "D c"]  # V
    mean: Float[Array, " D"]  # z̄, zero where there is no intercept
    precision: Precision  # of the products of a few rows; their sum is float64

    def zero(self) -> list[Array]:
        D, c = self.vectors.shape
        return [np.zeros((c, D)), np.zeros(c)]

    def add(self, total: list[Array], block: Block) -> list[Array]:
        w, through_mean = weights_of(block)[:, None], self.mean @ (self.vectors / self._scale)
        for rows, made in _pieces(self.features, block.X, len(self.mean)):
            xp = array_namespace(made)
            Z = xp.astype(made, getattr(xp, self.precision), copy=False)
            u = self._times(Z).astype(np.float64)
            u = w[rows] * (u - through_mean)
            total[0] += _transposed(Z, u)
            total[1] += u.sum(axis=0)
        return total

    def result(self, total: list[Array]) -> Float[Array, "D c"]:
        """Return G V of all rows."""
        sums, through = total
        return (sums.T - np.outer(self.mean, through)) * self._scale

    def _times(self, Z: Array) -> Float[np.ndarray, "b c"]:
        """Return Z V in the precision of Z, each vector in units of its scale."""
        if isinstance(Z, np.ndarray) and self.vectors.shape[1] <= ONE_BY_ONE:
            return np.stack([Z @ v for v in self._scaled.T], axis=1)
        xp = array_namespace(Z)
        return to_numpy(xp.matmul(Z, moved(np.ascontiguousarray(self._scaled), like=Z)))

    @cached_property
    def _scale(self) -> Float[Array, " c"]:
        """Size of each vector: float32 holds numbers near one."""
        scale = np.abs(self.vectors).max(axis=0, initial=0.0)
        return np.where(scale > 0, scale, 1.0)

    @cached_property
    def _scaled(self) -> Float[Array, "D c"]:
        return np.asfortranarray(self.vectors / self._scale, dtype=self.precision)


def _transposed(Z: Array, right: Float[np.ndarray, "b c"]) -> Float[np.ndarray, "c D"]:
    """Return rightᵀ Z, multiplied in the precision of Z where Z is, in NumPy's float64."""
    xp = array_namespace(Z)
    scale = np.abs(right).max(axis=0, initial=0.0)
    scale[scale == 0] = 1.0
    u = xp.astype(moved(np.ascontiguousarray((right / scale).T), like=Z), Z.dtype, copy=False)
    if isinstance(Z, np.ndarray) and len(u) <= ONE_BY_ONE:
        return np.stack([v @ Z for v in u]).astype(np.float64) * scale[:, None]
    return to_numpy(xp.matmul(u, Z)).astype(np.float64) * scale[:, None]
