"""Rows drawn by their ridge leverage, estimated recursively: Musco and Musco (2017), Algorithm 2.

With landmarks S drawn with chances p, the estimate of τ_i = (K(K + λI)⁻¹)_ii is

    τ̃_i = (1/λ) (k(x_i, x_i) − k(x_i, S) (k(S, S) + λ diag(p))⁻¹ k(S, x_i)),

never below τ_i where p = 1: fewer rows explain less. The rows of one level are half of those of
the level above; which ones is decided by one random number a row, so that blocks of rows can be
read again and again.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular

from bochner._core.arrays import dense
from bochner._core.blas import cholesky, eigvalsh, triangular_product
from bochner._core.shapes import Array, Float
from bochner.kernels import Kernel

#: Rows whose leverage is computed together.
ROWS = 4096

#: Least penalty, as a share of the mean diagonal: below it K(S, S) is singular in float64.
LEAST = 1e-11


@dataclass(frozen=True, eq=False)
class Weighted:
    """Rows S of one level, and the chances p that they were drawn with."""

    rows: Float[Array, "s d"]
    chances: Float[Array, " s"]


def leverage_rows(
    kernel: Kernel,
    blocks: Iterable[Float[Array, "b d"]],
    n: int,
    count: int,
    alpha: float | None,
    rng: np.random.Generator,
) -> Float[Array, "s d"]:
    """Return ``count`` of n rows, drawn in proportion to their leverage without replacement.

    Parameters
    ----------
    blocks : iterable of (b, d)
        NumPy or CSR, the same rows each time it is iterated; about 2 log₂(n/count) times.
    alpha : float or None
        λ; None takes what ``count`` rows can resolve.
    """
    level = max(0, int(np.ceil(np.log2(max(n, 1) / count))))
    order, draws = rng.random(n), rng.random(n)
    sample = Weighted(_taken(blocks, order < 0.5**level), np.ones(int((order < 0.5**level).sum())))
    if not len(sample.rows):
        sample = Weighted(_taken(blocks, order == order.min()), np.ones(1))
    for depth in range(level - 1, -1, -1):
        inside = order < 0.5**depth
        tau = estimate(kernel, _parts(blocks, inside), sample, _penalty(kernel, sample, alpha))
        if depth == 0:
            # Exponential races: the winners are a draw without replacement (Efraimidis and
            # Spirakis 2006).
            times = -np.log1p(-draws) / np.maximum(tau, np.finfo(float).tiny)
            winners = np.zeros(n, bool)
            winners[np.argsort(times, kind="stable")[:count]] = True
            return _taken(blocks, winners)
        chances = _chances(tau, count)
        drawn = draws[inside] < chances
        chosen = inside.copy()
        chosen[inside] = drawn
        draws[inside] = rng.random(int(inside.sum()))
        if drawn.any():
            sample = Weighted(_taken(blocks, chosen), chances[drawn])
    return sample.rows


def estimate(
    kernel: Kernel, parts: Iterable[Float[Array, "b d"]], sample: Weighted, penalty: float
) -> Float[Array, " n"]:
    """Return τ̃ of the rows of all parts, each at most 1."""
    A = kernel(sample.rows) + penalty * np.diag(sample.chances)
    L = _factor(A)
    inverse = np.asfortranarray(solve_triangular(L, np.eye(len(L)), lower=True, check_finite=False))
    found = [np.empty(0)]
    for X in parts:
        Z = triangular_product(np.ascontiguousarray(kernel(X, sample.rows)), inverse)
        left = kernel.diag(X) - np.einsum("ij,ij->i", Z, Z)
        found.append(np.clip(left / penalty, 0.0, 1.0))
    return np.concatenate(found)


def _factor(A: Float[Array, "s s"]) -> Float[Array, "s s"]:
    jitter = 0.0
    while True:
        try:
            return cholesky(A + jitter * np.eye(len(A)), lower=True, check_finite=False)
        except np.linalg.LinAlgError:
            jitter = 10 * jitter or LEAST * float(np.mean(np.diag(A))) or 1.0


def _penalty(kernel: Kernel, sample: Weighted, alpha: float | None) -> float:
    """Return λ: the one asked for, or the mean eigenvalue that the sample cannot resolve."""
    K = kernel(sample.rows)
    if alpha is None:
        weights = sample.chances**-0.5
        values = eigvalsh(weights[:, None] * K * weights, check_finite=False)
        k = int(np.ceil(len(K) / (4 * max(1.0, np.log(len(K))))))
        alpha = float(values[: len(K) - k].sum()) / k
    return max(alpha, LEAST * float(np.mean(np.diag(K))), np.finfo(float).tiny)


def _chances(tau: Float[Array, " n"], count: int) -> Float[Array, " n"]:
    """Return min(1, c τ) with the c for which they add up to ``count``."""
    if len(tau) <= count or not tau.any():
        return np.full(len(tau), min(1.0, count / max(1, len(tau))))
    chances, sure = np.zeros(len(tau)), np.zeros(len(tau), bool)
    while True:
        rest = max(count - int(sure.sum()), 0)
        chances = np.where(sure, 1.0, tau * (rest / max(tau[~sure].sum(), np.finfo(float).tiny)))
        over = (chances > 1.0) & ~sure
        if not over.any():
            return chances
        sure |= over


def _parts(
    blocks: Iterable[Float[Array, "b d"]], mask: Float[Array, " n"]
) -> Iterator[Float[Array, "m d"]]:
    """Give the rows of the mask, a bounded number at a time."""
    start = 0
    for X in blocks:
        index = np.flatnonzero(mask[start : start + X.shape[0]])
        start += X.shape[0]
        for first in range(0, len(index), ROWS):
            yield X[index[first : first + ROWS]]


def _taken(blocks: Iterable[Float[Array, "b d"]], mask: Float[Array, " n"]) -> Float[Array, "m d"]:
    """Return the rows of the mask, dense."""
    parts = [dense(part) for part in _parts(blocks, mask)]
    return np.ascontiguousarray(np.concatenate(parts or [np.empty((0, 1))]), dtype=np.float64)
