"""What the deterministic maps need of rows: mean and covariance in one pass, a box, a few rows."""

from collections.abc import Iterator

import numpy as np

from bochner._ground.arrays import is_sparse
from bochner._ground.shapes import Array, Float
from bochner.errors import InvalidInput
from bochner.features.request import Request

__all__ = ["dense_blocks", "mean_and_covariance", "principal_axes", "required_rows", "some_rows"]

#: Cells of a block of rows that is made dense, in float64.
CELLS = 1 << 22


def required_rows(ask: Request, who: str, what: str) -> Array:
    """Return the rows of the request, or say what the method wants them for."""
    if ask.X is None or ask.X.shape[0] == 0:
        raise InvalidInput(f"draw: {who} takes {what} from rows of data; got none. Pass X=...")
    return ask.X


def dense_blocks(X: Float[Array, "n d"]) -> Iterator[Float[Array, "m d"]]:
    """Yield the rows as dense float64 blocks."""
    step = max(1, CELLS // X.shape[1])
    for start in range(0, X.shape[0], step):
        rows = X[start : start + step]
        rows = rows.toarray() if is_sparse(rows) else rows
        yield rows.astype(np.float64, copy=False)


def some_rows(X: Float[Array, "n d"], most: int, rng: np.random.Generator) -> Float[Array, "m d"]:
    """Return at most this many different rows at random, dense, in float64."""
    n = X.shape[0]
    chosen = np.arange(n) if n <= most else np.sort(rng.choice(n, size=most, replace=False))
    rows = X[chosen]
    return (rows.toarray() if is_sparse(rows) else rows).astype(np.float64, copy=False)


def mean_and_covariance(
    X: Float[Array, "n d"],
) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
    """Return both in one pass over blocks, which are merged as Chan et al. (1979) merge them."""
    n, mean, scatter = 0, np.zeros(X.shape[1]), np.zeros((X.shape[1], X.shape[1]))
    for rows in dense_blocks(X):
        m, centre = len(rows), rows.mean(axis=0)
        shift = centre - mean
        scatter += (rows - centre).T @ (rows - centre) + np.outer(shift, shift) * (n * m / (n + m))
        mean = mean + shift * (m / (n + m))
        n += m
    return mean, scatter / n


def principal_axes(matrix: Float[Array, "d d"]) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
    """Return eigenvalues, none below zero, from the largest, and eigenvectors as columns.

    The largest entry of each vector is positive, so that LAPACK's choice of signs is no matter.
    """
    values, vectors = np.linalg.eigh(matrix)
    values, vectors = values[::-1], vectors[:, ::-1]
    largest = np.abs(vectors).argmax(axis=0)
    signs = np.sign(vectors[largest, np.arange(len(values))])
    return np.maximum(values, 0.0), vectors * signs
