"""Feature maps: values that turn rows into columns, and their combinations."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, is_dataclass
from functools import cached_property, singledispatch
from typing import Any

import numpy as np

from bochner._core.arrays import (
    array_namespace,
    as_matrix,
    dense,
    moved,
)
from bochner._core.shapes import Array, Float
from bochner.errors import InvalidInput
from bochner.features.far import with_far_rows
from bochner.kernels import Bilinear, Columns, Kernel, Mahalanobis, SkewedChi2, Warped


class FeatureMap(ABC):
    """A map φ with φ(x)·φ(y) ≈ k(x, y): ``phi(X)`` gives Z with Z @ Z.T ≈ K.

    A frozen value drawn from a kernel by :func:`bochner.draw`. It holds all that it needs, knows
    no data afterwards, and the same rows give the same features for any block size.
    """

    kernel: Kernel

    @property
    @abstractmethod
    def n_inputs(self) -> int:
        """Columns d that X must have."""

    @property
    @abstractmethod
    def n_features(self) -> int:
        """Columns D of φ(X)."""

    @property
    @abstractmethod
    def below_kernel(self) -> bool:
        """Whether Z Zᵀ ⪯ K for any rows: then k(x, x) − |φ(x)|² ≥ 0 bounds every error."""

    @property
    def reach(self) -> float:
        """Radians that features turn along a step of length one; 0 where rows are not turned so."""
        return 0.0

    @property
    def unbiased(self) -> bool:
        """Whether the mean of φ(x)·φ(y) over draws is k(x, y), so that errors fall like 1/√D.

        Not so below the kernel, nor where a series is cut, an integral is a sum, or rows are
        projected: more features of the kind do not mend that. Of a map made of maps: whether all
        are, or are below their kernels.
        """
        parts = parts_of(self)
        return not self.below_kernel and all(p.unbiased or p.below_kernel for p in parts)

    @abstractmethod
    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        """Return φ of checked rows: floating point, two-dimensional, d columns."""

    def __call__(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        """Return Z = φ(X), (n, D), in the array library and precision of X.

        Parameters
        ----------
        X : (n, d)
            NumPy array, torch tensor or any array of the standard; SciPy CSR where the first
            step is a projection. float32 stays float32; other real types become float64.

        Raises
        ------
        InvalidInput
            If X is not two-dimensional, has another number of columns, or is not real.
        """
        who = type(self).__name__
        X = as_matrix(X, who)
        if X.shape[1] != self.n_inputs:
            raise InvalidInput(
                f"{who}: X must have the {self.n_inputs} columns the map was drawn for; "
                f"got {X.shape[1]}."
            )
        return self.features(X)


def parts_of(phi: Any) -> list[FeatureMap]:
    """Return the maps that a map is made of."""
    values = [getattr(phi, f.name) for f in fields(phi)] if is_dataclass(phi) else []
    flat = [v for value in values for v in (value if isinstance(value, tuple) else (value,))]
    return [v for v in flat if isinstance(v, FeatureMap)]


@dataclass(frozen=True, eq=False)
class ConstantMap(FeatureMap):
    """The one feature √c of the constant kernel c. Exact."""

    kernel: Kernel
    value: float
    inputs: int

    @property
    def n_inputs(self) -> int:
        """Columns d that X must have."""
        return self.inputs

    @property
    def n_features(self) -> int:
        """Always 1."""
        return 1

    @property
    def below_kernel(self) -> bool:
        """Exact, so below."""
        return True

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n 1"]:
        """Return the column √c."""
        column = np.full((X.shape[0], 1), self.value**0.5)
        return moved(column, like=X)


@dataclass(frozen=True, eq=False)
class LinearMap(FeatureMap):
    """The d columns of X themselves: the linear kernel ⟨x, y⟩. Exact."""

    kernel: Kernel
    inputs: int

    @property
    def n_inputs(self) -> int:
        """Columns d that X must have."""
        return self.inputs

    @property
    def n_features(self) -> int:
        """D = d."""
        return self.inputs

    @property
    def below_kernel(self) -> bool:
        """Exact, so below."""
        return True

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n d"]:
        """Return X, dense."""
        return dense(X)


@dataclass(frozen=True, eq=False)
class ScaledMap(FeatureMap):
    """√c φ: features of c·k."""

    kernel: Kernel
    scale: float
    inner: FeatureMap

    @property
    def n_inputs(self) -> int:
        """Columns d that X must have."""
        return self.inner.n_inputs

    @property
    def n_features(self) -> int:
        """D of the map that is scaled."""
        return self.inner.n_features

    @property
    def reach(self) -> float:
        """As the map that is scaled."""
        return self.inner.reach

    @property
    def below_kernel(self) -> bool:
        """As the map that is scaled."""
        return self.inner.below_kernel

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        """Return √c φ(X)."""
        return self.scale**0.5 * self.inner.features(X)


@dataclass(frozen=True, eq=False)
class Concatenate(FeatureMap):
    """[φ₁(x), φ₂(x), …]: features of a sum of kernels."""

    kernel: Kernel
    parts: tuple[FeatureMap, ...]

    @property
    def n_inputs(self) -> int:
        """Columns d that X must have."""
        return self.parts[0].n_inputs

    @property
    def n_features(self) -> int:
        """Sum of the parts' D."""
        return sum(part.n_features for part in self.parts)

    @property
    def reach(self) -> float:
        """The largest of the parts."""
        return max(part.reach for part in self.parts)

    @property
    def below_kernel(self) -> bool:
        """If every part is."""
        return all(part.below_kernel for part in self.parts)

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        """Return the parts' features side by side."""
        columns = [part.features(X) for part in self.parts]
        return array_namespace(columns[0]).concat(columns, axis=1)


@dataclass(frozen=True, eq=False)
class TensorProduct(FeatureMap):
    """φ₁(x) ⊗ φ₂(x): features of a product of kernels, D₁·D₂ of them."""

    kernel: Kernel
    left: FeatureMap
    right: FeatureMap

    @property
    def n_inputs(self) -> int:
        """Columns d that X must have."""
        return self.left.n_inputs

    @property
    def n_features(self) -> int:
        """D₁·D₂."""
        return self.left.n_features * self.right.n_features

    @property
    def reach(self) -> float:
        """The larger of both."""
        return max(self.left.reach, self.right.reach)

    @property
    def below_kernel(self) -> bool:
        """If both are: the entrywise product of psd matrices is psd (Schur)."""
        return self.left.below_kernel and self.right.below_kernel

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        """Return all products of a feature of the left and one of the right."""
        left, right = self.left.features(X), self.right.features(X)
        product = left[:, :, None] * right[:, None, :]
        return array_namespace(product).reshape(product, (X.shape[0], self.n_features))


@dataclass(frozen=True, eq=False)
class OnInputs(FeatureMap):
    """φ of other inputs: features of ``Columns``, ``Mahalanobis``, ``Warped`` and the like."""

    kernel: Kernel
    inner: FeatureMap
    inputs: int

    @property
    def n_inputs(self) -> int:
        """Columns d that X must have."""
        return self.inputs

    @property
    def n_features(self) -> int:
        """D of the map behind the change of inputs."""
        return self.inner.n_features

    @cached_property
    def reach(self) -> float:
        """That of the map behind the change of inputs, if this is linear."""
        return self.inner.reach * _stretch(self.kernel)

    @property
    def below_kernel(self) -> bool:
        """As the map behind the change of inputs."""
        return self.inner.below_kernel

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        """Return φ of the inputs that the kernel's inner kernel sees."""
        turned = lambda X: self.inner.features(inner_inputs(self.kernel, X))
        return with_far_rows(X, self.reach, turned)


def _stretch(kernel: Kernel) -> float:
    """Return how much longer a step can be for the kernel within; 0 where steps are not kept."""
    if isinstance(kernel, Mahalanobis | Bilinear):
        return float(np.linalg.norm(kernel.root, 2))
    return 1.0 if isinstance(kernel, Columns) else 0.0


@singledispatch
def inner_inputs(kernel: Kernel, X: Float[Array, "n d"]) -> Float[Array, "n e"]:
    """Return rows as the kernel within a kernel of transformed inputs sees them."""
    raise NotImplementedError(kernel)


@inner_inputs.register
def _(kernel: Columns, X: Float[Array, "n d"]) -> Float[Array, "n e"]:
    return kernel.take(X)


@inner_inputs.register
def _(kernel: Mahalanobis | Bilinear, X: Float[Array, "n d"]) -> Float[Array, "n e"]:
    return kernel.turn(X)


@inner_inputs.register
def _(kernel: Warped, X: Float[Array, "n d"]) -> Float[Array, "n e"]:
    return kernel.warp(X)


@inner_inputs.register
def _(kernel: SkewedChi2, X: Float[Array, "n d"]) -> Float[Array, "n e"]:
    return kernel.logs(X)


def same_arrays(a: Any, b: Any) -> bool:
    """Whether two maps are of one kind and hold equal values, so that their features are equal."""
    if type(a) is not type(b):
        return False
    pairs = ((getattr(a, f.name), getattr(b, f.name)) for f in fields(a) if f.name != "kernel")
    return all(_same(x, y) for x, y in pairs)


def _same(x: Any, y: Any) -> bool:
    if isinstance(x, FeatureMap):
        return isinstance(y, FeatureMap) and same_arrays(x, y)
    if isinstance(x, tuple):
        return len(x) == len(y) and all(_same(u, v) for u, v in zip(x, y, strict=True))
    return bool(np.array_equal(x, y))
