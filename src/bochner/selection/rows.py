"""Rows of a search in units of their columns, their median distance, and a screen of the columns.

Dense and sparse rows give the same means and deviations. Lengthscales are rounded to digits that
are the same on every processor.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bochner._core import native
from bochner._core.arrays import is_sparse, to_numpy
from bochner._core.random import stream
from bochner._core.shapes import Array, Float, Int
from bochner.data.sample import RowSample
from bochner.kernels.kernel import Kernel

Scale = float | tuple[float, ...]

#: Significant digits of a tuned lengthscale: its last digits differ between processors.
DIGITS = 4

#: Cells that are processed together.
CELLS = 1 << 20

#: Pairs of rows of a median distance; largest number of their cells; least number of pairs.
PAIRS, MOST_CELLS, FEWEST_PAIRS = 20_000, 20_000_000, 500

#: Pairs of a median distance at which a descent starts.
FEW_PAIRS = 4096

#: A column whose deviation is a smaller share of its largest number is constant.
CONSTANT = 1e-12


def significant(x: float) -> float:
    """Return a number rounded to the digits of a lengthscale."""
    return float(f"{x:.{DIGITS}g}")


def rounded(scale: Scale) -> Scale:
    """Return one lengthscale or several, rounded."""
    return tuple(map(significant, scale)) if isinstance(scale, tuple) else significant(scale)


def column_means(X: Array, w: Float[Array, " n"]) -> Float[Array, " d"]:
    """Return weighted means; sparse rows stay sparse."""
    return np.asarray(X.T @ w).reshape(-1) / w.sum()


def column_spread(X: Array, w: Float[Array, " n"]) -> tuple[Float[Array, " d"], Float[Array, " d"]]:
    """Return the largest magnitude of each column, and its weighted deviation as a share of that.

    σ² = Σ w (x − μ)²/W in two passes. Cells that a sparse matrix does not hold are zeros, and add
    μ² times their weight, without cancellation. O(nnz).
    """
    if is_sparse(X):
        return _sparse_spread(X, w)
    parts = [_dense_spread(X[:, columns], w) for columns in _slices(*X.shape)]
    sizes, shares = zip(*parts, strict=True)
    return np.concatenate(sizes), np.concatenate(shares)


def _slices(n: int, d: int) -> Iterator[slice]:
    step = max(1, CELLS // max(n, 1))
    return (slice(start, start + step) for start in range(0, d, step))


def _dense_spread(X: Array, w: Array) -> tuple[Array, Array]:
    size = np.maximum(np.abs(X).max(axis=0), 1e-300).astype(np.float64)
    scaled = X / size
    return size, np.sqrt(w @ (scaled - w @ scaled / w.sum()) ** 2 / w.sum())


def _sparse_spread(X: Any, w: Float[Array, " n"]) -> tuple[Array, Array]:
    X = X.tocsr()
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    size = np.maximum(abs(X).max(axis=0).toarray().reshape(-1), 1e-300).astype(np.float64)
    column, weight = X.indices, np.repeat(w, np.diff(X.indptr))
    scaled = X.data / size[column]
    mean = _sums(column, weight * scaled, size) / w.sum()
    square = _sums(column, weight * (scaled - mean[column]) ** 2, size)
    stored = np.bincount(column, minlength=X.shape[1])
    absent = np.where(stored < len(w), w.sum() - _sums(column, weight, size), 0.0)
    return size, np.sqrt((square + absent * mean**2) / w.sum())


def _sums(column: Array, values: Array, like: Array) -> Float[Array, " d"]:
    return np.bincount(column, weights=values, minlength=len(like))


# --- The median distance -------------------------------------------------------------------------


def median_distance(
    X: Array,
    w: Float[Array, " n"],
    units: tuple[float | Array, ...],
    seed: int,
    order: int = 2,
    most: int = PAIRS,
) -> float:
    """Return the weighted median of the positive distances between rows, or 1 if there is none.

    Columns are divided by each of ``units``, a number or an array of numbers per column. The
    distance of order 2 is Euclidean, of order 1 a sum over columns. Copies of a row do not count.
    """
    pairs = _pairs(X.shape[0], X.shape[1], seed, most)
    step = max(1, CELLS // X.shape[1])
    blocks = (pairs[:, start : start + step] for start in range(0, pairs.shape[1], step))
    parts = [_lengths(X[i] - X[j], units, order) for i, j in blocks]
    lengths = np.concatenate([np.empty(0), *parts])  # one row has no pairs
    kept = lengths > 0
    if not np.any(kept):
        return 1.0
    lengths = lengths[kept]
    if np.all(w == w[0]):
        return float(np.median(lengths))
    weights = (w[pairs[0]] * w[pairs[1]])[kept]
    rising = np.argsort(lengths, kind="stable")
    below = np.cumsum(weights[rising])
    middle = [np.searchsorted(below, 0.5 * below[-1], side) for side in ("left", "right")]
    return float(lengths[rising[np.minimum(middle, len(rising) - 1)]].mean())


def _pairs(n: int, d: int, seed: int, most: int) -> Array:
    """Return all pairs of few rows, else random pairs; fewer pairs of very wide rows."""
    most = min(most, max(FEWEST_PAIRS, MOST_CELLS // d))
    if n <= 200 and n * (n - 1) // 2 <= most:
        return np.stack(np.triu_indices(n, 1))
    return stream(seed, "pairs").integers(n, size=(2, most))


def _lengths(D: Array, units: tuple[float | Array, ...], order: int) -> Float[Array, " p"]:
    D = abs(D).astype(np.float64)
    for unit in units:
        D = D.multiply(1 / np.reshape(unit, (1, -1))).tocsr() if is_sparse(D) else D / unit
    powers = D.power(order) if is_sparse(D) else D**order
    return np.asarray(powers.sum(axis=1)).reshape(-1) ** (1 / order)


def near_rows(kernel: Kernel, X: Float[Array, "n d"], count: int, size: int, seed: int) -> Any:
    """Return ``count`` random rows and their nearest rows by kernel values, (count, size).

    The nearest come first. O(n) kernel values each.
    """
    centres = stream(seed, "near rows").permutation(len(X))[:count]
    unit = 1 / np.sqrt(np.maximum(to_numpy(kernel.diag(X)), np.finfo(float).tiny))
    return np.stack([_nearest(unit * _values(kernel, X, i), min(size, len(X))) for i in centres])


def _values(kernel: Kernel, X: Float[Array, "n d"], i: int) -> Float[Array, " n"]:
    return to_numpy(kernel.evaluate(X[i : i + 1], X))[0]


def _nearest(values: Float[Array, " n"], size: int) -> Int[Array, " m"]:
    nearest = np.sort(np.argpartition(-values, size - 1)[:size])
    return nearest[np.argsort(-values[nearest], kind="stable")]


def deviations(X: Array, w: Float[Array, " n"], unit: float = 1.0) -> Float[Array, " d"]:
    """Return weighted standard deviations in a unit; for constant columns the largest, or 1."""
    size, shares = column_spread(X, w)
    constant, spread = shares <= CONSTANT, shares * (size / unit)
    other = max(float(spread[~constant].max()), 1e-300) if np.any(~constant) else 1.0
    return np.where(constant, other, spread)


# --- Rows in units of their columns --------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class TuningRows:
    """Rows of a criterion, centred and in units of their columns."""

    X: Array
    y: Float[Array, "n t"]
    w: Float[Array, " n"]
    units: Float[Array, " d"]  # divisors of the columns

    @staticmethod
    def of(X: Array, y: Array, w: Array, units: Array, dtype: Any = np.float64) -> "TuningRows":
        """Return rows in their units; dense rows are centred, which no kernel here depends on."""
        if is_sparse(X):
            return TuningRows(X.multiply(1 / units).tocsr().astype(dtype), y, w, units)
        scaled = (X - w @ X / w.sum()) / units
        return TuningRows(np.ascontiguousarray(scaled, dtype=dtype), y, w, units)

    def __len__(self) -> int:
        return len(self.w)

    @property
    def count(self) -> float:
        """Number of rows; a row of weight w counts as w rows."""
        return max(float(self.w.sum()), len(self.w))

    def take(self, rows: Array) -> "TuningRows":
        """Return these rows."""
        X = self.X[rows]
        return replace(
            self, X=X if is_sparse(X) else np.ascontiguousarray(X), y=self.y[rows], w=self.w[rows]
        )

    def first(self, n: int) -> "TuningRows":
        """Return the first n rows, or all."""
        return self if len(self) <= n else self.take(np.arange(n))

    def log_median(self, seed: int, logs: Array | float = 0.0, order: int = 2) -> float:
        """Return the log of the median distance between rows, columns divided by e^``logs``."""
        scale = np.exp(np.broadcast_to(logs, self.X.shape[1]))
        median = median_distance(self.X, self.w, (scale,), seed, order, FEW_PAIRS)
        return round(float(np.log(median)), 6)


def rows_of(sample: RowSample) -> TuningRows:
    """Return the rows in float64 and random order, in units of their columns' deviations.

    These are rounded as lengthscales are, so that all processors divide by the same numbers.
    """
    sample = sample.take(np.argsort(sample.priority, kind="stable"))
    units = np.array([significant(unit) for unit in deviations(sample.X, sample.w)])
    return TuningRows.of(sample.X, sample.y, sample.w, units)


# --- Which columns matter, before any fit: random frequencies, scored by the targets
#
# A frequency ω explains the share |Σ w y e^{iω·x}|² of the targets' variance (Sinha and Duchi 2016,
# *Learning kernels with random features*, score frequencies by the same sum). Drawn in one, two or
# three columns at a time, the frequencies with more than chance show in which directions the target
# varies and how fast:
#
#     E|∂_k f|² ≈ Σ_ω ω_k² |f̂(ω)|².
#
# A kernel of all columns with one lengthscale misses a function of few of many columns.

#: Number of frequencies, columns of each, and sizes in units of 1/deviation.
TRIED, COLUMNS, SIZES = 6144, (1, 2, 3), (0.5, 1.0, 2.0)

#: Rows whose cosines are computed together and stay in cache.
SCREENED_ROWS = 64

#: A cosine with a smaller variance is constant on the rows.
LEAST_VARIANCE = 1e-3

#: Least slope of a column, as a share of the largest.
LEAST_SLOPE = 1e-3


@dataclass(frozen=True, eq=False)
class Relevance:
    """Mean squared slope along each column, and the explained part of the variance."""

    #: E|∂_k f|² of the explained part, in units of the columns; zeros without any.
    slopes: Float[Array, " d"]
    explained: float  # the largest share of variance that one frequency explains

    @property
    def lengthscales(self) -> Float[Array, " d"]:
        """2/√slope of each column in units of the deviations: a start for descents."""
        top = float(self.slopes.max())
        return 2 / np.sqrt(np.maximum(self.slopes, LEAST_SLOPE * top))

    def __bool__(self) -> bool:
        """Whether anything was explained beyond chance."""
        return bool(np.any(self.slopes > 0))


def screen(rows: TuningRows, seed: int, tried: int = TRIED) -> Relevance:
    """Return the relevance of columns; O(n · tried)."""
    W = _sparse_frequencies(rows.X.shape[1], tried, seed)
    scores = _explained(rows, W)
    # For pure noise a score times n/2 is exponential: the largest exceeds this once in 20.
    chance = 2 * np.log(20 * tried) / len(rows)
    beyond = np.maximum(scores - chance, 0.0)
    slopes = W**2 @ beyond / max(float(beyond.sum()), np.finfo(float).tiny)
    return Relevance(slopes, float(scores.max()))


def _sparse_frequencies(d: int, tried: int, seed: int) -> Float[Array, "d m"]:
    rng = stream(seed, "screening")
    W = rng.standard_normal((d, tried)) * np.array(SIZES)[np.arange(tried) // 3 % 3]
    each = np.array(COLUMNS)[np.arange(tried) % 3]
    draws, sparse, all_ = rng.random((d, tried)), np.zeros((d, tried)), np.arange(tried)
    for k in range(min(d, max(COLUMNS))):  # ranks of the first draws are columns at random
        rank = (draws < draws[k]).sum(axis=0)
        here = all_[k < each]
        sparse[rank[here], here] = W[rank[here], here]
    return sparse


def _explained(rows: TuningRows, W: Float[Array, "d m"]) -> Float[Array, " m"]:
    """Return the largest share of a target's variance that each cosine and sine explain."""
    w = rows.w / rows.w.sum()
    y = rows.y - w @ rows.y
    y = y / np.sqrt(np.maximum(w @ y**2, np.finfo(float).tiny))
    left, mean = np.column_stack([w, w[:, None] * y]), column_means(rows.X, rows.w)
    sums, squares = np.zeros((left.shape[1], 2 * W.shape[1])), np.zeros(2 * W.shape[1])
    for start in range(0, len(rows), SCREENED_ROWS):
        here = slice(start, start + SCREENED_ROWS)
        Z = _cosines(rows.X[here], W, mean)
        sums += left[here].T @ Z
        squares += w[here] @ np.square(Z, out=Z)
    variance, products = squares - sums[0] ** 2, sums[1:]
    shares = products**2 / np.maximum(variance, LEAST_VARIANCE)
    shares = np.where(variance > LEAST_VARIANCE, shares, 0.0).max(axis=0)
    m = W.shape[1]
    return shares[:m] + shares[m:]


def _cosines(X: Array, W: Float[Array, "d m"], mean: Float[Array, " d"]) -> Float[Array, "n 2*m"]:
    """Return cosines and sines of rows about their mean; sparse rows are not made dense."""
    if is_sparse(X):
        P = X @ W - mean @ W
        return np.hstack([np.cos(P), np.sin(P)])
    T = np.ascontiguousarray(W / (2 * np.pi))
    return native.cos_sin(np.ascontiguousarray(X - mean), T, 1.0)
