"""Kernels of transformed inputs: some columns only, or another metric."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, final

import numpy as np

from bochner._ground.arrays import array_namespace, device, from_numpy, is_sparse
from bochner._ground.checks import finite, integers
from bochner._ground.shapes import Array, Float
from bochner.errors import InvalidInput, NotPositive
from bochner.kernels.distances import centred
from bochner.kernels.kernel import Kernel, require_kernels
from bochner.kernels.stationary import Stationary

__all__ = ["Columns", "Mahalanobis"]


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
        object.__setattr__(self, "matrix", _square(self.matrix))
        _root(self.matrix)

    @property
    def root(self) -> Float[np.ndarray, "d d"]:
        """L, the symmetric root of A: rows x become rows x L."""
        return _root(self.matrix).copy()

    def turn(self, X: Float[Array, "n d"]) -> Float[Array, "n d"]:
        """Return X L, dense."""
        if X.shape[1] != len(self.matrix):
            raise InvalidInput(
                f"Mahalanobis: matrix must have one row and column per column of X; got "
                f"{len(self.matrix)} for {X.shape[1]} columns."
            )
        root = _root(self.matrix).astype(str(X.dtype).rpartition(".")[2])
        return X @ from_numpy(root, like=X)

    def evaluate(self, X: Float[Array, "n d"], Y: Float[Array, "m d"]) -> Float[Array, "n m"]:
        if isinstance(self.kernel, Stationary):
            X, Y = centred(X, Y)
        turned = self.turn(X)
        return self.kernel.evaluate(turned, turned if Y is X else self.turn(Y))

    def diagonal(self, X: Float[Array, "n d"]) -> Float[Array, " n"]:
        return self.kernel.diagonal(self.turn(X))


def _square(matrix: Any) -> tuple[tuple[float, ...], ...]:
    """Return the matrix as a tuple of rows of finite floats."""
    rows = matrix.tolist() if hasattr(matrix, "tolist") else matrix
    d = len(rows) if isinstance(rows, list | tuple) else 0
    if d == 0 or any(not isinstance(r, list | tuple) or len(r) != d for r in rows):
        raise InvalidInput(
            f"Mahalanobis: matrix must be square, d rows of d numbers; got {matrix!r}."
        )
    result = tuple(
        tuple(finite(v, "Mahalanobis", f"matrix[{i}, {j}]") for j, v in enumerate(row))
        for i, row in enumerate(rows)
    )
    return matrix if isinstance(matrix, tuple) and matrix == result else result


@lru_cache(maxsize=16)
def _root(matrix: tuple[tuple[float, ...], ...]) -> np.ndarray:
    """Return the symmetric root of a positive semi-definite matrix."""
    A = np.array(matrix)
    asymmetry = float(np.abs(A - A.T).max())
    if asymmetry > 1e-12 * float(np.abs(A).max()):
        raise NotPositive(
            f"Mahalanobis: matrix must be symmetric; got entries that differ from their mirror "
            f"by {asymmetry:.3g}. Pass (A + A.T) / 2."
        )
    values, vectors = np.linalg.eigh((A + A.T) / 2)
    if values[0] < -1e-12 * max(values[-1], -values[0]):
        raise NotPositive(
            f"Mahalanobis: matrix must be positive semi-definite; got smallest eigenvalue "
            f"{values[0]:.3g}. Pass an inverse covariance, or L @ L.T."
        )
    return (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
