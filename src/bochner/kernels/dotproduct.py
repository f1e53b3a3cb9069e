"""Kernels of the inner product ⟨x, y⟩ alone."""

import abc
from dataclasses import dataclass
from typing import final

from bochner._ground.shapes import Array, Float
from bochner.kernels import distances
from bochner.kernels.kernel import Kernel

__all__ = ["DotProduct", "Linear"]


class DotProduct(Kernel):
    """A kernel of the inner product t = ⟨x, y⟩."""

    @abc.abstractmethod
    def profile(self, t: Array) -> Array:
        """Return k as a function of t = ⟨x, y⟩, elementwise."""

    def evaluate(self, X: Float[Array, "n d"], Y: Float[Array, "m d"]) -> Float[Array, "n m"]:
        return self.profile(distances.inner(X, Y))

    def diagonal(self, X: Float[Array, "n d"]) -> Float[Array, " n"]:
        return self.profile(distances.square_norms(X))


@final
@dataclass(frozen=True)
class Linear(DotProduct):
    """k(x, y) = ⟨x, y⟩: its feature map is x itself, its model the linear one."""

    def profile(self, t: Array) -> Array:
        return t
