"""Which columns matter, before any fit: random frequencies in a few columns, scored by the targets.

A frequency ω explains the share |Σ w y e^{iω·x}|² of the targets' variance (Sinha and Duchi 2016,
*Learning kernels with random features*, score frequencies by the same sum). Drawn in one, two or
three columns at a time, those that pass what chance gives tell in which directions the target
varies and how fast:

    E|∂_k f|² ≈ Σ_ω ω_k² |f̂(ω)|².

A kernel of all columns at one lengthscale sees nothing where few of many columns matter.
"""

from dataclasses import dataclass

import numpy as np

from bochner._ground import native
from bochner._ground.arrays import is_sparse
from bochner._ground.random import stream
from bochner._ground.shapes import Array, Float
from bochner.estimators.fitting.columns import column_means
from bochner.estimators.tuning.rescaled import Rows

__all__ = ["Relevance", "screen"]

#: Frequencies tried, columns that each is in, and their sizes in units of 1/deviation.
TRIED, COLUMNS, SIZES = 6144, (1, 2, 3), (0.5, 1.0, 2.0)

#: A frequency whose cosine varies less than this is constant on the rows.
LEAST_VARIANCE = 1e-3

#: Columns below this share of the largest slope are taken to have it.
LEAST_SLOPE = 1e-3


@dataclass(frozen=True, eq=False)
class Relevance:
    """Mean squared slope along each column, and the part of the variance it was seen in.

    Attributes
    ----------
    slopes : (d,)
        E|∂_k f|² of what was explained, in units of the columns; zeros where nothing was.
    explained : float
        The largest share of variance that one frequency explains.
    """

    slopes: Float[Array, " d"]
    explained: float

    @property
    def lengthscales(self) -> Float[Array, " d"]:
        """2/√slope of each column in units of the deviations: where a descent may start."""
        top = float(self.slopes.max())
        return 2 / np.sqrt(np.maximum(self.slopes, LEAST_SLOPE * top))

    def __bool__(self) -> bool:
        """Whether anything was explained beyond chance."""
        return bool(np.any(self.slopes > 0))


def screen(rows: Rows, seed: int, tried: int = TRIED) -> Relevance:
    """Return the relevance of columns; O(n · tried)."""
    W = _sparse_frequencies(rows.X.shape[1], tried, seed)
    scores = _explained(rows, W)
    # For pure noise a score times n/2 is exponential: the largest of all passes this once in 20.
    chance = 2 * np.log(20 * tried) / len(rows)
    beyond = np.maximum(scores - chance, 0.0)
    slopes = W**2 @ beyond / max(float(beyond.sum()), np.finfo(float).tiny)
    return Relevance(slopes, float(scores.max()))


def _sparse_frequencies(d: int, tried: int, seed: int) -> Float[Array, "d m"]:
    rng = stream(seed, "screening")
    W = rng.standard_normal((d, tried)) * np.array(SIZES)[np.arange(tried) // 3 % 3]
    each = np.array(COLUMNS)[np.arange(tried) % 3]
    order = rng.random((d, tried)).argsort(axis=0)
    return np.where(order < each, W, 0.0)


def _explained(rows: Rows, W: Float[Array, "d m"]) -> Float[Array, " m"]:
    """Return the largest share of a target's variance that each cosine and sine explain."""
    w = rows.w / rows.w.sum()
    y = rows.y - w @ rows.y
    y = y / np.sqrt(np.maximum(w @ y**2, np.finfo(float).tiny))
    Z = _cosines(rows.X, W, column_means(rows.X, rows.w))
    mean, right = w @ Z, w[:, None] * y
    variance = w @ Z**2 - mean**2
    products = right.T @ Z
    shares = products**2 / np.maximum(variance, LEAST_VARIANCE)
    shares = np.where(variance > LEAST_VARIANCE, shares, 0.0).max(axis=0)
    m = W.shape[1]
    return shares[:m] + shares[m:]


def _cosines(X: Array, W: Float[Array, "d m"], mean: Float[Array, " d"]) -> Float[Array, "n 2m"]:
    """Return cosines and sines of rows about their mean; sparse rows are not made dense."""
    if is_sparse(X):
        P = X @ W - mean @ W
        return np.hstack([np.cos(P), np.sin(P)])
    T = np.ascontiguousarray(W / (2 * np.pi))
    return native.cos_sin(np.ascontiguousarray(X - mean), T, 1.0)
