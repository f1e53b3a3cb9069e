"""Maps made of maps: rows multiplied by a function, and products too wide to be written out."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from bochner._ground import native
from bochner._ground.arrays import array_namespace, device, is_numpy
from bochner._ground.shapes import Array, Float
from bochner.features.map import FeatureMap, moved
from bochner.kernels import Kernel, Modulated, Normalised

__all__ = ["ModulatedMap", "SketchedProduct", "sketched"]

#: Rows that are sketched together: they stay in a core's own cache.
BLOCK = 512


@dataclass(frozen=True, eq=False)
class ModulatedMap(FeatureMap):
    """f(x) φ(x): features of f(x) k(x, y) f(y); with f = k(x, x)^(−½) of the normalised kernel."""

    kernel: Modulated | Normalised
    inner: FeatureMap

    @property
    def n_inputs(self) -> int:
        """Columns d that X must have."""
        return self.inner.n_inputs

    @property
    def n_features(self) -> int:
        """D of the map that is multiplied."""
        return self.inner.n_features

    @property
    def below_kernel(self) -> bool:
        """As the map that is multiplied."""
        return self.inner.below_kernel

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        """Return f(X) φ(X), row by row."""
        return self.kernel.factor(X)[:, None] * self.inner.features(X)


@dataclass(frozen=True, eq=False)
class SketchedProduct(FeatureMap):
    """D random numbers of φ₁(x) ⊗ φ₂(x): a product of kernels at any width.

    z_t = D^(−½) (H s₁∘φ₁(x))_{i_t} (H s₂∘φ₂(x))_{j_t}, t = 1, …, D, with H the Hadamard matrix of
    signs, random signs s and random rows i, j: the TensorSRHT [Ahle et al. (2020), definition 15].

    Attributes
    ----------
    left, right : FeatureMap
        φ₁ and φ₂, padded with zeros to a power of two.
    signs : (D₁,) and (D₂,) int8
        s₁ and s₂.
    rows : (2, D) int64
        i and j. Each walks through all rows before it repeats one.

    Notes
    -----
    Unbiased for φ₁ · φ₁ times φ₂ · φ₂; the variance of an entry is about
    (|u|²|u'|² + 2⟨u, u'⟩²)(|v|²|v'|² + 2⟨v, v'⟩²)/D − ⟨u, u'⟩²⟨v, v'⟩²/D, at most 9/D on the
    diagonal of a kernel with k(x, x) = 1. Cost beyond φ₁ and φ₂: O(n (P log P + D)), P the larger
    of the padded widths; no D₁ D₂ anywhere.
    """

    kernel: Kernel
    left: FeatureMap
    right: FeatureMap
    left_signs: Float[Array, " D1"]
    right_signs: Float[Array, " D2"]
    rows: Float[Array, "2 D"]

    @property
    def n_inputs(self) -> int:
        """Columns d that X must have."""
        return self.left.n_inputs

    @property
    def n_features(self) -> int:
        """D, whatever the widths of the two maps."""
        return self.rows.shape[1]

    @property
    def below_kernel(self) -> bool:
        """Unbiased, so errors have both signs."""
        return False

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        """Return the sampled products, (n, D)."""
        left, right = self.left.features(X), self.right.features(X)
        if not is_numpy(left):
            return self._sampled(left, right)
        Z = np.empty((X.shape[0], self.n_features), dtype=left.dtype)
        for start in range(0, X.shape[0], BLOCK):
            rows = slice(start, start + BLOCK)
            Z[rows] = self._sampled(left[rows], right[rows])
        return Z

    def _sampled(self, left: Float[Array, "n D1"], right: Float[Array, "n D2"]) -> Array:
        first = _picked(_rotated(left, self.left_signs), self.rows[0])
        first *= self.n_features**-0.5
        first *= _picked(_rotated(right, self.right_signs), self.rows[1])
        return first


def sketched(
    kernel: Kernel, left: FeatureMap, right: FeatureMap, width: int, rng: np.random.Generator
) -> SketchedProduct:
    """Draw a sketch of this width of the product of two maps.

    The first half of a wider one has the same rows and signs, but for its factor.
    """
    sizes = left.n_features, right.n_features
    first, second = (rng.choice(np.array([-1, 1], dtype=np.int8), size) for size in sizes)
    rows = np.stack([_walk(_padded(size), width, rng.spawn(1)[0]) for size in sizes])
    return SketchedProduct(kernel, left, right, first, second, rows)


def _walk(size: int, length: int, rng: np.random.Generator) -> Array:
    """Return row numbers: random permutations of all of them, one after the other."""
    rounds = -(-length // size)
    return np.concatenate([rng.permutation(size) for _ in range(rounds)])[:length]


def _padded(size: int) -> int:
    return 1 << (size - 1).bit_length()


def _rotated(Z: Float[Array, "n D"], signs: Float[Array, " D"]) -> Float[Array, "n P"]:
    """Return H (s ∘ z) of each row z, padded with zeros."""
    Z = Z * moved(signs, like=Z)
    size = _padded(Z.shape[1])
    if size > Z.shape[1]:
        xp = array_namespace(Z)
        rest = xp.zeros((Z.shape[0], size - Z.shape[1]), dtype=Z.dtype, device=device(Z))
        Z = xp.concat([Z, rest], axis=1)
    if not is_numpy(Z) or Z.dtype.kind == "c":
        return _hadamard(Z)
    Z = np.ascontiguousarray(Z)
    return native.hadamard(Z, out=Z)


def _hadamard(Z: Float[Array, "n P"]) -> Float[Array, "n P"]:
    """Do what the compiled transform does, in any array library."""
    xp, (n, size) = array_namespace(Z), Z.shape
    half = 1
    while half < size:
        pairs = xp.reshape(Z, (n, size // (2 * half), 2, half))
        a, b = pairs[:, :, 0, :], pairs[:, :, 1, :]
        Z = xp.reshape(xp.stack([a + b, a - b], axis=2), (n, size))
        half *= 2
    return Z


def _picked(Z: Float[Array, "n P"], columns: Any) -> Float[Array, "n D"]:
    if is_numpy(Z):
        return np.take(Z, columns, axis=1)
    xp = array_namespace(Z)
    return xp.take(Z, xp.asarray(columns, device=device(Z)), axis=1)
