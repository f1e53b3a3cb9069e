"""Column deviations, median distance of rows, nearest rows, and screening of columns."""

from typing import Any

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.utils.sparsefuncs import mean_variance_axis

from bochner._core import native
from bochner._core.arrays import is_sparse, to_numpy
from bochner._core.random import stream
from bochner._core.shapes import Array, Float
from bochner.data.sample import RowSample
from bochner.errors import InvalidInput
from bochner.kernels.kernel import Kernel

Scale = float | tuple[float, ...]

CELLS = 1 << 20  # Cells per batch
PAIRS = 20_000  # Pairs of rows of a median distance


def four_digits(x: float) -> float:
    """Return a number rounded to four digits; further digits differ between processors."""
    return float(f"{x:.4g}")


def rounded(scale: Scale) -> Scale:
    """Return one or more lengthscales, rounded to four digits."""
    return tuple(map(four_digits, scale)) if isinstance(scale, tuple) else four_digits(scale)


def times(scale: Scale, factor: Any) -> Scale:
    """Return the lengthscales, one or several, times one factor or times one factor each."""
    scales: Any = np.multiply(scale, factor)
    return tuple(scales.tolist()) if isinstance(scale, tuple) else float(scales.item())


def deviations(X: Array, w: Float[Array, " n"], unit: float = 1.0) -> Float[Array, " d"]:
    """Return weighted column deviations over ``unit``; constant columns get the largest, or 1."""
    sizes, shares = np.full((2, X.shape[1]), 1e-300)  # shares of the largest magnitude
    if is_sparse(X):
        sizes = np.maximum(sizes, abs(X).max(axis=0).toarray().reshape(-1))
        scaled = csr_matrix(X.multiply(1 / sizes), dtype=np.float64)
        scaled.sum_duplicates()
        shares = np.sqrt(mean_variance_axis(scaled, 0, weights=w)[1])
    else:
        step = max(1, CELLS // max(X.shape[0], 1))
        for start in range(0, X.shape[1], step):
            columns = slice(start, start + step)
            sizes[columns] = np.maximum(sizes[columns], np.abs(X[:, columns]).max(axis=0))
            scaled = X[:, columns] / sizes[columns]
            shares[columns] = np.sqrt(w @ (scaled - w @ scaled / w.sum()) ** 2 / w.sum())
    constant, spread = shares <= 1e-12, shares * (sizes / unit)
    largest = max(float(spread[~constant].max()), 1e-300) if np.any(~constant) else 1.0
    return np.where(constant, largest, spread)


def median_distance(
    X: Array,
    w: Float[Array, " n"],
    units: tuple[float | Array, ...],
    seed: int,
    order: int = 2,
    max_pairs: int = PAIRS,
) -> float:
    """Return the weighted median of the positive distances of pairs of rows; 1 if all are zero.

    Columns are divided by each of ``units``, a number or one per column. The distance of order 2 is
    Euclidean, of order 1 a sum over columns.
    """
    n, d = X.shape
    max_pairs = min(max_pairs, max(500, 20_000_000 // d))  # fewer pairs of wide rows
    if n <= 200 and n * (n - 1) // 2 <= max_pairs:
        pairs = np.stack(np.triu_indices(n, 1))
    else:
        pairs = stream(seed, "pairs").integers(n, size=(2, max_pairs))
    parts, step = [np.empty(0)], max(1, CELLS // d)  # one row has no pairs
    for start in range(0, pairs.shape[1], step):
        i, j = pairs[:, start : start + step]
        parts.append(_lengths(X[i] - X[j], units, order))
    lengths = np.concatenate(parts)
    positive = lengths > 0
    if not np.any(positive):
        return 1.0
    lengths = lengths[positive]
    if np.all(w == w[0]):
        return float(np.median(lengths))
    weights = (w[pairs[0]] * w[pairs[1]])[positive]
    rising = np.argsort(lengths, kind="stable")
    cumulative = np.cumsum(weights[rising])
    middle = [np.searchsorted(cumulative, 0.5 * cumulative[-1], side) for side in ("left", "right")]
    return float(lengths[rising[np.minimum(middle, len(rising) - 1)]].mean())


def median_scales(
    sample: RowSample, coordinatewise: bool, seed: int, max_pairs: int = PAIRS
) -> list[Scale]:
    """Return median distances as lengthscales: a common one, and one per column if they differ."""
    X, w, order = sample.X, sample.w, 1 if coordinatewise else 2
    unit = float(abs(X).max()) or 1.0  # squares of huge and tiny numbers overflow
    scales: list[Any] = [unit * median_distance(X, w, (unit,), seed, order, max_pairs)]
    spread = deviations(X, w, unit)
    if spread.max() > 1.05 * spread.min():  # one per column
        median = median_distance(X, w, (unit, spread), seed, order, max_pairs)
        scales.append(tuple((unit * (median * spread)).tolist()))
    scales = [rounded(scale) for scale in scales]
    if np.min(scales[0]) < np.finfo(np.float64).tiny:
        raise InvalidInput(
            "Differences of the values of X underflow in float64: the largest absolute value is "
            f"{unit:.3g}. Multiply X by a power of ten."
        )
    return scales


def laplace_scales(scales: Any, X: Array, w: Float[Array, " n"], seed: int) -> tuple[float, ...]:
    """Return lengthscales of a Laplace kernel from lengthscales of a kernel of Euclidean distance.

    The distance of a Laplace kernel is a sum over columns, which is longer by about √d.
    """
    lengths = np.asarray(scales)
    l1 = median_distance(X, w, (lengths,), seed, 1, 4096)
    l2 = median_distance(X, w, (lengths,), seed, 2, 4096)
    return tuple((lengths * l1 / l2).tolist())


def _lengths(D: Array, units: tuple[float | Array, ...], order: int) -> Float[Array, " p"]:
    D = abs(D).astype(np.float64)
    for unit in units:
        D = D.multiply(1 / np.reshape(unit, (1, -1))).tocsr() if is_sparse(D) else D / unit
    powers = D.power(order) if is_sparse(D) else D**order
    return np.asarray(powers.sum(axis=1)).reshape(-1) ** (1 / order)


def near_rows(kernel: Kernel, X: Float[Array, "n d"], count: int, size: int, seed: int) -> Any:
    """Return the indices of the rows nearest to random rows, (count, size), nearest first."""
    size, places = min(size, len(X)), []
    unit = 1 / np.sqrt(np.maximum(to_numpy(kernel.diag(X)), np.finfo(float).tiny))
    chosen, step = stream(seed, "near rows").permutation(len(X))[:count], max(1, CELLS // len(X))
    for start in range(0, len(chosen), step):
        for values in unit * to_numpy(kernel.evaluate(X[chosen[start : start + step]], X)):
            nearest = np.sort(np.argpartition(-values, size - 1)[:size])
            places.append(nearest[np.argsort(-values[nearest], kind="stable")])
    return np.stack(places)


# --- Which columns matter, before any fit: random frequencies, scored by the targets
#
# A frequency ω explains the share |Σ w y e^{iω·x}|² of the targets' variance (Sinha and Duchi 2016,
# *Learning kernels with random features*, score frequencies by the same sum). Drawn in one, two or
# three columns at a time, frequencies with more power than chance show in which directions the
# target varies and how fast:
#
#     E|∂_k f|² ≈ Σ_ω ω_k² |f̂(ω)|².
#
# A kernel of all columns with one lengthscale misses a function of few of many columns: without
# the screen the error on pumadyn32nm (6,000 rows, 32 columns) is 12 % larger.

#: Number of frequencies, columns of each, and sizes in units of 1/deviation.
TRIED, COLUMNS, SIZES = 2048, (1, 2, 3), (0.5, 1.0, 2.0)


def screened_lengthscales(
    X: Float[Array, "n d"], y: Float[Array, "n t"], w: Float[Array, " n"], units: Float[Array, " d"]
) -> Float[Array, " d"] | None:
    """Return starting lengthscales 2/√E|∂f/∂x_k|², f the significant frequencies of y, or None."""
    X = np.ascontiguousarray((X - w @ X / w.sum()) / units)
    W = _sparse_frequencies(X.shape[1])
    # For pure noise n/2 times a score is exponential: the largest is above this in 5 % of cases.
    chance = 2 * np.log(20 * TRIED) / len(w)
    shares = np.maximum(_explained_shares(X, y, w, W) - chance, 0.0)
    slopes = W**2 @ shares / max(float(shares.sum()), np.finfo(float).tiny)
    if not np.any(slopes > 0):
        return None
    return units * (2 / np.sqrt(np.maximum(slopes, 1e-3 * float(slopes.max()))))


def _sparse_frequencies(d: int) -> Float[Array, "d m"]:
    rng, index = stream(0, "screening"), np.arange(TRIED)
    W = rng.standard_normal((d, TRIED)) * np.array(SIZES)[index // 3 % 3]
    sizes = np.array(COLUMNS)[index % 3]
    draws, sparse = rng.random((d, TRIED)), np.zeros((d, TRIED))
    for k in range(min(d, max(COLUMNS))):  # ranks of the first draws are columns at random
        rank = (draws < draws[k]).sum(axis=0)
        chosen = index[k < sizes]
        sparse[rank[chosen], chosen] = W[rank[chosen], chosen]
    return sparse


def _explained_shares(
    X: Float[Array, "n d"], y: Float[Array, "n t"], w: Float[Array, " n"], W: Float[Array, "d m"]
) -> Float[Array, " m"]:
    """Return the largest share, over targets, of variance that cosine and sine of ω explain."""
    mean, w = X.T @ w / w.sum(), w / w.sum()
    y = y - w @ y
    y = y / np.sqrt(np.maximum(w @ y**2, np.finfo(float).tiny))
    weights, turns = np.column_stack([w, w[:, None] * y]), np.ascontiguousarray(W / (2 * np.pi))
    sums, squares = np.zeros((weights.shape[1], 2 * TRIED)), np.zeros(2 * TRIED)
    for start in range(0, len(w), 64):  # rows whose cosines stay in cache
        batch = slice(start, start + 64)
        Z = native.waves(np.ascontiguousarray(X[batch] - mean), turns, 1.0)
        sums += weights[batch].T @ Z
        squares += w[batch] @ np.square(Z, out=Z)
    variance, products = squares - sums[0] ** 2, sums[1:]
    shares = products**2 / np.maximum(variance, 1e-3)  # with a smaller variance it is constant
    shares = np.where(variance > 1e-3, shares, 0.0).max(axis=0)
    return shares[:TRIED] + shares[TRIED:]
