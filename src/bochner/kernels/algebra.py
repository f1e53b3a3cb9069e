"""Kernels made of one kernel: multiplied by a function, normalised, exponentiated; and xᵀAy.

Each keeps a kernel positive semi-definite: Shawe-Taylor & Cristianini (2004), proposition 3.22.
Sums, products, multiples and whole powers are in ``bochner.kernels.kernel``: they have a sign.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np

from bochner._ground.arrays import array_namespace
from bochner._ground.shapes import Array, Float
from bochner.errors import InvalidInput
from bochner.kernels import distances
from bochner.kernels.callables import answer, name_of, require_function
from bochner.kernels.kernel import Kernel, require_kernels
from bochner.kernels.matrices import positive_matrix, symmetric_root, turned

__all__ = ["Bilinear", "Exp", "Modulated", "Normalised"]


@final
@dataclass(frozen=True)
class Exp(Kernel):
    """k(x, y) = exp(kernel(x, y)) = Σ_n kernel(x, y)ⁿ/n!.

    Parameters
    ----------
    kernel : Kernel
        Of values below about 700 (88 in float32): scale it down if they are larger.
    """

    kernel: Kernel

    def __post_init__(self) -> None:
        require_kernels(self, "kernel")

    def evaluate(self, X: Float[Array, "n d"], Y: Float[Array, "m d"]) -> Float[Array, "n m"]:
        return _exp(self.kernel.evaluate(X, Y))

    def diagonal(self, X: Float[Array, "n d"]) -> Float[Array, " n"]:
        return _exp(self.kernel.diagonal(X))


@final
@dataclass(frozen=True)
class Modulated(Kernel):
    """k(x, y) = f(x) · kernel(x, y) · f(y).

    Parameters
    ----------
    function : callable
        f: takes rows (n, d), an array of the caller's library, and returns (n,) numbers. Two
        such kernels are equal if their functions are the same object.
    kernel : Kernel

    Notes
    -----
    A model file cannot hold a function; a model with this kernel can be pickled if f can be.
    """

    function: Callable[[Array], Array]
    kernel: Kernel

    def __post_init__(self) -> None:
        require_function(self.function, "Modulated", "function")
        require_kernels(self, "kernel")

    def __repr__(self) -> str:
        return f"Modulated(function={name_of(self.function)}, kernel={self.kernel!r})"

    def factor(self, X: Float[Array, "n d"]) -> Float[Array, " n"]:
        """Return f(x) of each row: what features of ``kernel`` are multiplied by."""
        return answer(self.function(X), (X.shape[0],), X, "Modulated")

    def evaluate(self, X: Float[Array, "n d"], Y: Float[Array, "m d"]) -> Float[Array, "n m"]:
        return _between(self.factor, self.kernel.evaluate(X, Y), X, Y)

    def diagonal(self, X: Float[Array, "n d"]) -> Float[Array, " n"]:
        f = self.factor(X)
        return f * self.kernel.diagonal(X) * f


@final
@dataclass(frozen=True)
class Normalised(Kernel):
    """k(x, y) = kernel(x, y)/√(kernel(x, x) kernel(y, y)): the cosine in feature space.

    Rows with kernel(x, x) = 0, which have no direction, have k = 0 with every row.

    Parameters
    ----------
    kernel : Kernel
    """

    kernel: Kernel

    def __post_init__(self) -> None:
        require_kernels(self, "kernel")

    def factor(self, X: Float[Array, "n d"]) -> Float[Array, " n"]:
        """Return 1/√kernel(x, x): what features of ``kernel`` are multiplied by."""
        size = self.kernel.diagonal(X)
        xp = array_namespace(size)
        some = size > 0
        return xp.where(some, xp.where(some, size, xp.ones_like(size)) ** -0.5, 0.0 * size)

    def evaluate(self, X: Float[Array, "n d"], Y: Float[Array, "m d"]) -> Float[Array, "n m"]:
        return _between(self.factor, self.kernel.evaluate(X, Y), X, Y)

    def diagonal(self, X: Float[Array, "n d"]) -> Float[Array, " n"]:
        size = self.kernel.diagonal(X)
        xp = array_namespace(size)
        return xp.astype(size > 0, size.dtype)


@final
@dataclass(frozen=True)
class Bilinear(Kernel):
    """k(x, y) = xᵀ A y with A positive semi-definite; refused if A is not.

    Parameters
    ----------
    matrix : array of shape (d, d)
        A, symmetric positive semi-definite, kept as a tuple of rows.

    Raises
    ------
    NotPositive
        If A is not symmetric, or has a negative eigenvalue.
    """

    matrix: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "matrix", positive_matrix(self.matrix, "Bilinear"))

    @cached_property
    def root(self) -> Float[np.ndarray, "d r"]:
        """R with A = R Rᵀ, one column for each positive eigenvalue. Not to be written into."""
        values, vectors = np.linalg.eigh(symmetric_root(self.matrix, "Bilinear"))
        kept = values >= 1e-7 * values[-1]
        return vectors[:, kept] * values[kept]

    def turn(self, X: Float[Array, "n d"]) -> Float[Array, "n r"]:
        """Return X R, dense: exact features."""
        return turned(X, self.root, "Bilinear")

    def evaluate(self, X: Float[Array, "n d"], Y: Float[Array, "m d"]) -> Float[Array, "n m"]:
        turned = self.turn(X)
        return distances.inner(turned, turned if Y is X else self.turn(Y))

    def diagonal(self, X: Float[Array, "n d"]) -> Float[Array, " n"]:
        return distances.square_norms(self.turn(X))


def _exp(K: Array) -> Array:
    with np.errstate(over="ignore"):
        result = array_namespace(K).exp(K)
    if not bool(array_namespace(K).all(result < np.inf)):
        raise InvalidInput(
            f"Exp: values of the kernel must have an exponential in {K.dtype}; got an overflow. "
            "Scale the kernel down, e.g. Exp(0.01 * kernel), or take Exp(Normalised(kernel))."
        )
    return result


def _between(factor: Callable[[Array], Array], K: Array, X: Array, Y: Array) -> Array:
    """Return f(X) K f(Y), row by column."""
    left = factor(X)
    right = left if Y is X else factor(Y)
    return left[:, None] * K * right[None, :]
