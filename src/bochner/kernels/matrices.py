"""Positive semi-definite matrices given by users: checked, kept as tuples, and their roots."""

from functools import lru_cache
from typing import Any

import numpy as np

from bochner._core.arrays import is_numpy, moved
from bochner._core.checks import finite, unpacked
from bochner._core.shapes import Array, Float
from bochner.errors import InvalidInput, NotPositive


def positive_matrix(matrix: Any, who: str) -> tuple[tuple[float, ...], ...]:
    """Return a symmetric positive semi-definite matrix as a tuple of rows; refuse any other."""
    rows = unpacked(matrix)
    d = len(rows) if isinstance(rows, list | tuple) else 0
    if d == 0 or any(not isinstance(r, list | tuple) or len(r) != d for r in rows):
        raise InvalidInput(f"{who}: matrix must be square, d rows of d numbers; got {matrix!r}.")
    result = tuple(
        tuple(finite(v, who, f"matrix[{i}, {j}]") for j, v in enumerate(row))
        for i, row in enumerate(rows)
    )
    symmetric_root(result, who)
    return matrix if isinstance(matrix, tuple) and matrix == result else result


@lru_cache(maxsize=16)
def symmetric_root(matrix: tuple[tuple[float, ...], ...], who: str) -> np.ndarray:
    """Return the symmetric root of a positive semi-definite matrix; do not write into it."""
    A = np.array(matrix)
    asymmetry = float(np.abs(A - A.T).max())
    if asymmetry > 1e-12 * float(np.abs(A).max()):
        raise NotPositive(
            f"{who}: matrix must be symmetric; got entries that differ from their mirror "
            f"by {asymmetry:.3g}. Pass (A + A.T) / 2."
        )
    values, vectors = np.linalg.eigh((A + A.T) / 2)
    if values[0] < -1e-12 * max(values[-1], -values[0]):
        raise NotPositive(
            f"{who}: matrix must be positive semi-definite; got smallest eigenvalue "
            f"{values[0]:.3g}. Pass an inverse covariance, or L @ L.T."
        )
    return (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T


def turned(X: Float[Array, "n d"], root: Float[np.ndarray, "d r"], who: str) -> Float[Array, "n r"]:
    """Return X R, dense, for the root R of a matrix of d rows and columns."""
    if X.shape[1] != len(root):
        raise InvalidInput(
            f"{who}: matrix must have one row and column per column of X; got {len(root)} for "
            f"{X.shape[1]} columns."
        )
    X = np.ascontiguousarray(X) if is_numpy(X) else X
    return X @ moved(root, like=X)
