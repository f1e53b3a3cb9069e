"""Kernels of transformed inputs: some columns only, another metric, any function of the rows."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np

from bochner._core.arrays import array_namespace, device, is_sparse
from bochner._core.checks import integers
from bochner._core.shapes import Array, Float
from bochner.errors import InvalidInput
from bochner.kernels.callables import answer, name_of, require_function
from bochner.kernels.distances import centred
from bochner.kernels.kernel import Kernel, require_kernels
from bochner.kernels.matrices import positive_matrix, symmetric_root, turned
from bochner.kernels.stationary import Stationary


@final
@dataclass(frozen=True)
class Columns(Kernel):
    """A kernel that looks at some columns only: k(x, y) = kernel(x[columns], y[columns]).

    Parameters
    ----------
    kernel : Kernel
        Its lengthscales, if it has one per column, belong to the chosen columns in their order.
    columns : tuple of int
        Column numbers from 0, each once.
    """

    kernel: Kernel
    columns: tuple[int, ...]

    def __post_init__(self) -> None:
        require_kernels(self, "kernel")
        object.__setattr__(self, "columns", integers(self.columns, "Columns", "columns"))

    def take(self, X: Float[Array, "n d"]) -> Float[Array, "n c"]:
        """Return the chosen columns of X."""
        if max(self.columns) >= X.shape[1]:
            raise InvalidInput(
                f"Columns: columns must be below the number of columns of X; got column "
                f"{max(self.columns)} of {X.shape[1]} (counted from 0)."
            )
        if is_sparse(X):
            return X[:, list(self.columns)]
        xp = array_namespace(X)
        return xp.take(X, xp.asarray(self.columns, device=device(X)), axis=1)

    def evaluate(self, X: Float[Array, "n d"], Y: Float[Array, "m d"]) -> Float[Array, "n m"]:
        taken = self.take(X)
        return self.kernel.evaluate(taken, taken if Y is X else self.take(Y))

    def diagonal(self, X: Float[Array, "n d"]) -> Float[Array, " n"]:
        return self.kernel.diagonal(self.take(X))


@final
@dataclass(frozen=True)
class Mahalanobis(Kernel):
    """A kernel in another metric: k(x, y) = kernel(x L, y L), A = L Lᵀ.

    For a kernel of the Euclidean distance, r² = (x − y)ᵀ A (x − y).

    Parameters
    ----------
    kernel : Kernel
    matrix : array of shape (d, d)
        A, symmetric positive semi-definite, kept as a tuple of rows. L is its symmetric root.
    """

    kernel: Kernel
    matrix: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        require_kernels(self, "kernel")
        object.__setattr__(self, "matrix", positive_matrix(self.matrix, "Mahalanobis"))

    @cached_property
    def root(self) -> Float[np.ndarray, "d d"]:
        """L, the symmetric root of A: rows x become rows x L. Not to be written into."""
        return symmetric_root(self.matrix, "Mahalanobis")

    def turn(self, X: Float[Array, "n d"]) -> Float[Array, "n d"]:
        """Return X L, dense."""
        return turned(X, self.root, "Mahalanobis")

    def evaluate(self, X: Float[Array, "n d"], Y: Float[Array, "m d"]) -> Float[Array, "n m"]:
        if isinstance(self.kernel, Stationary):
            X, Y = centred(X, Y)
        turned = self.turn(X)
        return self.kernel.evaluate(turned, turned if Y is X else self.turn(Y))

    def diagonal(self, X: Float[Array, "n d"]) -> Float[Array, " n"]:
        return self.kernel.diagonal(self.turn(X))


@final
@dataclass(frozen=True)
class Warped(Kernel):
    """A kernel of transformed rows: k(x, y) = kernel(f(x), f(y)).

    Parameters
    ----------
    function : callable
        f: takes rows (n, d), an array of the caller's library, and returns rows (n, d'), each
        from its own row alone. Two such kernels are equal if their functions are the same object.
    kernel : Kernel
        A kernel of d' columns.

    Notes
    -----
    A model file cannot hold a function; a model with this kernel can be pickled if f can be.
    """

    function: Callable[[Array], Array]
    kernel: Kernel

    def __post_init__(self) -> None:
        require_function(self.function, "Warped", "function")
        require_kernels(self, "kernel")

    def __repr__(self) -> str:
        return f"Warped(function={name_of(self.function)}, kernel={self.kernel!r})"

    def warp(self, X: Float[Array, "n d"]) -> Float[Array, "n e"]:
        """Return f(X), in the precision of X."""
        return answer(self.function(X), (X.shape[0], None), X, "Warped")

    def evaluate(self, X: Float[Array, "n d"], Y: Float[Array, "m d"]) -> Float[Array, "n m"]:
        warped = self.warp(X)
        return self.kernel.evaluate(warped, warped if Y is X else self.warp(Y))

    def diagonal(self, X: Float[Array, "n d"]) -> Float[Array, " n"]:
        return self.kernel.diagonal(self.warp(X))
