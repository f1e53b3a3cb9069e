"""Maps made of maps: sums, products, multiples, and features of other inputs."""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from bochner._core.arrays import array_namespace, dense, is_numpy, moved, precision, taken
from bochner._core.native import power_of_two, signed_walsh
from bochner._core.shapes import Array, Float, Int
from bochner.features.map import FeatureMap, in_precision, in_rounds, with_far_rows
from bochner.kernels import algebra
from bochner.kernels.histogram import SkewedChi2
from bochner.kernels.kernel import Kernel
from bochner.kernels.windows import Windows, added


@dataclass(frozen=True, eq=False)
class ConstantMap(FeatureMap):
    """The one feature √c of the constant kernel c. Exact."""

    kernel: Kernel
    value: float
    inputs: int

    n_features = 1
    below_kernel = True  # exact, so below

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n 1"]:
        column = np.full((X.shape[0], 1), self.value**0.5)
        return moved(column, like=X)

    def pullback(self, X: Float[Array, "n d"], C: Float[Array, "n D"]) -> Float[Array, "n d"]:
        return array_namespace(X).zeros_like(X)


@dataclass(frozen=True, eq=False)
class LinearMap(FeatureMap):
    """The d columns of X themselves: the linear kernel ⟨x, y⟩. Exact."""

    kernel: Kernel
    inputs: int

    below_kernel = True  # exact, so below

    @property
    def n_features(self) -> int:
        return self.inputs

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n d"]:
        return dense(X)

    def pullback(self, X: Float[Array, "n d"], C: Float[Array, "n D"]) -> Float[Array, "n d"]:
        return array_namespace(C).asarray(C, copy=True)


@dataclass(frozen=True, eq=False)
class ScaledMap(FeatureMap):
    """√c φ: features of c·k."""

    kernel: Kernel
    scale: float
    inner: FeatureMap

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        return self.scale**0.5 * self.inner.features(X)

    def pullback(self, X: Float[Array, "n d"], C: Float[Array, "n D"]) -> Float[Array, "n d"]:
        return self.inner.pullback(X, self.scale**0.5 * C)


@dataclass(frozen=True, eq=False)
class Concatenate(FeatureMap):
    """[φ₁(x), φ₂(x), …]: features of a sum of kernels."""

    kernel: Kernel
    parts: tuple[FeatureMap, ...]

    @property
    def n_features(self) -> int:
        return sum(part.n_features for part in self.parts)

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        columns = [part.features(X) for part in self.parts]
        return array_namespace(columns[0]).concat(columns, axis=1)

    def pullback(self, X: Float[Array, "n d"], C: Float[Array, "n D"]) -> Float[Array, "n d"]:
        ends = np.cumsum([0, *(part.n_features for part in self.parts)]).tolist()
        of_parts = zip(self.parts, pairwise(ends), strict=True)
        gradients = [part.pullback(X, C[:, start:end]) for part, (start, end) in of_parts]
        return sum(gradients[1:], gradients[0])


@dataclass(frozen=True, eq=False)
class TensorProduct(FeatureMap):
    """φ₁(x) ⊗ φ₂(x): features of a product of kernels, D₁·D₂ of them."""

    kernel: Kernel
    left: FeatureMap
    right: FeatureMap

    @property
    def n_features(self) -> int:
        return self.left.n_features * self.right.n_features

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        left, right = self.left.features(X), self.right.features(X)
        product = left[:, :, None] * right[:, None, :]
        return array_namespace(product).reshape(product, (X.shape[0], self.n_features))

    def pullback(self, X: Float[Array, "n d"], C: Float[Array, "n D"]) -> Float[Array, "n d"]:
        xp, left, right = array_namespace(X), self.left.features(X), self.right.features(X)
        C = xp.reshape(C, (X.shape[0], left.shape[1], right.shape[1]))
        by_left = self.left.pullback(X, xp.sum(C * right[:, None, :], axis=2))
        return by_left + self.right.pullback(X, xp.sum(C * left[:, :, None], axis=1))


@dataclass(frozen=True, eq=False)
class OnInputs(FeatureMap):
    """φ of other inputs: features of ``Columns``, ``Mahalanobis``, ``Warped`` and the like."""

    kernel: algebra.Transformed | SkewedChi2
    inner: FeatureMap
    inputs: int

    @cached_property
    def reach(self) -> float:
        if isinstance(self.kernel, algebra.Mahalanobis | algebra.Bilinear):  # steps in other units
            return self.inner.reach * float(np.linalg.norm(self.kernel.root, 2))
        return self.inner.reach if isinstance(self.kernel, algebra.Columns) else 0.0

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        turned = lambda X: self.inner.features(self.kernel.inputs(X))
        return with_far_rows(self, X, turned)

    def pullback(self, X: Float[Array, "n d"], C: Float[Array, "n D"]) -> Float[Array, "n d"]:
        return self.kernel.back(X, self.inner.pullback(self.kernel.inputs(X), C))


@dataclass(frozen=True, eq=False)
class WindowsMap(FeatureMap):
    """Σ_i φ(x_i)/s(x) over the windows of a sequence: features of a kernel of sequences."""

    kernel: Windows
    inner: FeatureMap
    inputs: int

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        positions = self.kernel.positions(X)
        _, U, share = next(positions)
        Z = share[:, None] * self.inner.features(U)
        for rows, U, share in positions:
            Z = added(Z, share[:, None] * self.inner.features(U), rows)
        return Z

    def pullback(self, X: Float[Array, "n d"], C: Float[Array, "n D"]) -> Float[Array, "n d"]:
        back = lambda rows, U, share: self.inner.pullback(U, share[:, None] * C[rows, :])
        return self.kernel.back(X, back)


@dataclass(frozen=True, eq=False)
class ModulatedMap(FeatureMap):
    """f(x) φ(x): features of f(x) k(x, y) f(y); with f = k(x, x)^(−½) of the normalised kernel."""

    kernel: algebra.Modulated | algebra.Normalised
    inner: FeatureMap

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        if not isinstance(self.kernel, algebra.Normalised):
            return self.kernel.factor(X)[:, None] * self.inner.features(X)
        U = self.kernel.rows(X)
        Z = self.kernel.factor(U)[:, None] * self.inner.features(U)
        return in_precision(Z, precision(X))


@dataclass(frozen=True, eq=False)
class SketchedProduct(FeatureMap):
    """D random numbers of φ₁(x) ⊗ φ₂(x): a product of kernels at any width.

    z_t = D^(−½) (H s₁∘φ₁(x))_{i_t} (H s₂∘φ₂(x))_{j_t}, t = 1, …, D, with H the Hadamard matrix of
    signs, random signs s and random rows i, j: the TensorSRHT [Ahle et al. (2020), definition 15].
    The variance of an entry is about (|u|²|u'|² + 2⟨u, u'⟩²)(|v|²|v'|² + 2⟨v, v'⟩²)/D.
    """

    kernel: Kernel
    left: FeatureMap  # φ₁, padded with zeros to a power of two
    right: FeatureMap  # φ₂, as well
    left_signs: Int[Array, " D1"]  # s₁, int8
    right_signs: Int[Array, " D2"]  # s₂
    rows: Int[Array, "2 D"]  # i and j: each walks through all rows before it repeats one

    below_kernel = False

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        left, right = self.left.features(X), self.right.features(X)
        if not is_numpy(left):
            return self._sampled(left, right)
        Z = np.empty((X.shape[0], self.n_features), dtype=left.dtype)
        for start in range(0, X.shape[0], 512):  # rows that stay in a core's own cache
            rows = slice(start, start + 512)
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
    """Draw a sketch of a product of maps; a wider one begins with it, but for its factor."""
    sizes = left.n_features, right.n_features
    first, second = (rng.choice(np.array([-1, 1], dtype=np.int8), size) for size in sizes)
    rows = np.stack([in_rounds(power_of_two(size), width, rng.spawn(1)[0]) for size in sizes])
    return SketchedProduct(kernel, left, right, first, second, rows)
