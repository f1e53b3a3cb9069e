"""Maps made of maps: rows multiplied by a function, and products too wide to be written out."""

from dataclasses import dataclass

import numpy as np

from bochner._core.arrays import (
    array_namespace,
    is_numpy,
    precision,
    taken,
)
from bochner._core.native import power_of_two, signed_walsh
from bochner._core.shapes import Array, Float
from bochner.features.map import FeatureMap
from bochner.kernels import Kernel, Modulated, Normalised

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
        if not isinstance(self.kernel, Normalised):
            return self.kernel.factor(X)[:, None] * self.inner.features(X)
        U = self.kernel.rows(X)
        return _rounded(self.kernel.factor(U)[:, None] * self.inner.features(U), X)


def _rounded(Z: Float[Array, "n D"], X: Float[Array, "n d"]) -> Float[Array, "n D"]:
    """Return Z, real or complex, in the precision of X."""
    xp, single = array_namespace(Z), precision(X) == np.float32
    if xp.isdtype(Z.dtype, "complex floating"):
        return xp.astype(Z, xp.complex64 if single else xp.complex128, copy=False)
    return xp.astype(Z, xp.float32 if single else xp.float64, copy=False)


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
        first = taken(signed_walsh(left, self.left_signs), self.rows[0], axis=1)
        first *= self.n_features**-0.5
        first *= taken(signed_walsh(right, self.right_signs), self.rows[1], axis=1)
        return first


def sketched(
    kernel: Kernel, left: FeatureMap, right: FeatureMap, width: int, rng: np.random.Generator
) -> SketchedProduct:
    """Draw a sketch of this width of the product of two maps.

    The first half of a wider one has the same rows and signs, but for its factor.
    """
    sizes = left.n_features, right.n_features
    first, second = (rng.choice(np.array([-1, 1], dtype=np.int8), size) for size in sizes)
    rows = np.stack([in_rounds(power_of_two(size), width, rng.spawn(1)[0]) for size in sizes])
    return SketchedProduct(kernel, left, right, first, second, rows)


def in_rounds(size: int, count: int, rng: np.random.Generator) -> Array:
    """Return ``count`` numbers below ``size``: random permutations of all, one after the other."""
    rounds = [rng.permutation(size) for _ in range(-(-count // size))]
    return np.concatenate([np.empty(0, np.int64), *rounds])[:count]
