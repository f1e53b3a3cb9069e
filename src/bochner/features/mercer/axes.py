"""Rows along their principal axes: means, covariances, and the axes themselves."""

from collections.abc import Iterator

import numpy as np

from bochner._core.arrays import dense
from bochner._core.shapes import Array, Float
from bochner.errors import InvalidInput, UnsupportedKernel

#: Covariances are made of this many columns; with more, axes come from as many rows at most.
MOST_COLUMNS = 2048


def dense_blocks(X: Float[Array, "n d"]) -> Iterator[Float[Array, "m d"]]:
    """Yield the rows as dense float64 blocks."""
    step = max(1, (1 << 22) // X.shape[1])
    for start in range(0, X.shape[0], step):
        yield dense(X[start : start + step]).astype(np.float64, copy=False)


def box_of_rows(X: Float[Array, "n d"]) -> tuple[Float[Array, " d"], Float[Array, " d"]]:
    """Return the least and the largest value of each column."""
    faces = [(rows.min(axis=0), rows.max(axis=0)) for rows in dense_blocks(X)]
    least, largest = (np.array(side) for side in zip(*faces, strict=True))
    return least.min(axis=0), largest.max(axis=0)


def given_box(
    who: str, box: tuple[tuple[float, float], ...], d: int
) -> tuple[Float[Array, " d"], Float[Array, " d"]]:
    """Return the corners of a box that was given for d columns."""
    if len(box) != d:
        raise InvalidInput(
            f"{who}: box must have a pair for each column; got {len(box)} for {d} columns."
        )
    lower, upper = np.array(box, dtype=float).T
    return lower.copy(), upper.copy()


def some_rows(X: Float[Array, "n d"], most: int, rng: np.random.Generator) -> Float[Array, "m d"]:
    """Return at most this many different rows at random, dense, in float64."""
    n = X.shape[0]
    chosen = np.arange(n) if n <= most else np.sort(rng.choice(n, size=most, replace=False))
    return dense(X[chosen]).astype(np.float64, copy=False)


def mean_and_covariance(
    X: Float[Array, "n d"], scales: Float[Array, " d"] | float = 1.0
) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
    """Return the mean of X and the covariance of scales · X, block by block: Chan et al. (1979)."""
    d = X.shape[1]
    n, mean, scatter = 0, np.zeros(d), np.zeros((d, d))
    for rows in dense_blocks(X):
        m, centre = len(rows), rows.mean(axis=0)
        shift, about = centre - mean, (rows - centre) * scales
        scatter += about.T @ about
        scatter += np.outer(shift * scales, shift * scales) * (n * m / (n + m))
        mean = mean + shift * (m / (n + m))
        n += m
    return mean, scatter / n


def axes_of_rows(
    X: Float[Array, "n d"], scales: Float[Array, " d"], centred: bool, count: int
) -> Float[Array, "d c"]:
    """Return at most ``count`` principal axes of scales · X, about the mean where ``centred``."""
    n, d = X.shape
    if d <= MOST_COLUMNS:
        mean, moments = mean_and_covariance(X)
        if not centred:
            moments = moments + np.outer(mean, mean)
        return principal_axes(moments * np.outer(scales, scales))[1][:, :count]
    rows = dense(X[:: -(-n // MOST_COLUMNS)]).astype(np.float64) * scales
    rows -= rows.mean(axis=0) if centred else 0.0
    values, vectors = principal_axes(rows @ rows.T)
    kept = min(count, int((values > values[0] * len(rows) * np.finfo(float).eps).sum()) or 1)
    return with_signs(np.linalg.qr(rows.T @ vectors[:, :kept])[0])


def require_squares(who: str, X: Float[Array, "n d"], scales: Float[Array, " d"]) -> None:
    """Refuse rows so far away, in lengthscales, that their squares are no numbers."""
    largest = max(float(np.abs(rows * scales).max()) for rows in dense_blocks(X))
    if not largest <= 1e150:
        raise UnsupportedKernel(
            f"{who} requires rows up to 1e+150 lengthscales, for squares to be numbers; got "
            f"{largest:.3g}. Take a larger lengthscale, or another method."
        )


def principal_axes(matrix: Float[Array, "d d"]) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
    """Return eigenvalues, none below zero, from the largest, and eigenvectors as columns."""
    values, vectors = np.linalg.eigh(matrix)
    return np.maximum(values[::-1], 0.0), with_signs(vectors[:, ::-1])


def with_signs(vectors: Float[Array, "d c"]) -> Float[Array, "d c"]:
    """Return columns whose largest entries are positive: LAPACK's choice of signs is no matter."""
    largest = vectors[np.abs(vectors).argmax(axis=0), np.arange(vectors.shape[1])]
    return vectors * np.where(largest < 0, -1.0, 1.0)
