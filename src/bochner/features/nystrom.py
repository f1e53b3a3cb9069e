"""Nyström features: projections on kernel functions of landmarks, usually rows of the data.

With landmarks S, C = k(X, S) and A = k(S, S) = L Lᵀ the features are Z = C L⁻ᵀ, so that
Z Zᵀ = C A⁻¹ Cᵀ: the kernel matrix of the projections onto span{k(s, ·)}. Hence Z Zᵀ ⪯ K, and
k(x, x) − |φ(x)|² ≥ 0 is an exact certificate for every point.
"""

import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import numpy as np
from numpy.random import Generator
from scipy.linalg import solve_triangular

from bochner._core import arrays
from bochner._core.blas import eigvalsh, triangular_product
from bochner._core.checks import Counted, MaybePositive, word
from bochner._core.lapack import invert_triangle
from bochner._core.names import NamedArguments, suggestion
from bochner._core.shapes import Array, Float, Tabular
from bochner._core.sizes import FEW_CELLS
from bochner.errors import InvalidInput
from bochner.features.map import FeatureMap, Method, Request, capped_shares
from bochner.kernels.algebra import SAME_ROWS
from bochner.kernels.kernel import Columns, Kernel
from bochner.kernels.stationary import Compilable
from bochner.solvers.convex.problem import FeatureBlock
from bochner.solvers.factorisations import jittered_cholesky, randomly_pivoted_cholesky
from bochner.solvers.lloyd import assign, run_lloyd


class Landmarks(NamedArguments, ABC):
    """Choice of up to D landmarks among rows in memory."""

    @abstractmethod
    def choose(self, kernel: Kernel, X: Array, count: int, rng: Generator) -> Array:
        """Return at most ``count`` landmarks for rows X, (n, d), NumPy or CSR."""


@dataclass(frozen=True)
class Uniform(Landmarks):
    """Rows uniformly at random: Williams and Seeger (2001). The cheapest choice.

    Nested: the landmarks of width D are the first D landmarks of width 2D.
    """

    def choose(self, kernel: Kernel, X: Array, count: int, rng: Generator) -> Array:
        return dense_rows(X, rng.permutation(X.shape[0])[:count])


@dataclass(frozen=True, eq=False, repr=False)
class Points(Landmarks):
    """Rows given by the user: rows of the data, a grid, or the landmarks of another map.

    Parameters
    ----------
    rows : (m, d)
        Landmarks; they need not be rows of the data. A map of width D uses the first D.

    Notes
    -----
    The only choice that needs no data. Use it if maps must not contain rows of the data.
    """

    rows: Tabular

    def __post_init__(self) -> None:
        """Keep a read-only copy in float64."""
        rows = np.array(arrays.to_numpy(arrays.as_matrix(self.rows, "Points", "rows")), np.float64)
        if not len(rows):
            raise InvalidInput("Points: rows must be at least one row; got none.")
        rows.flags.writeable = False
        object.__setattr__(self, "rows", rows)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Points) and np.array_equal(self.rows, other.rows)

    def __hash__(self) -> int:
        return hash((Points, self.rows.shape, self.rows.tobytes()))

    def __repr__(self) -> str:
        if self.rows.size <= 12:
            return f"Points(rows={self.rows.tolist()})"
        return f"Points(rows=<{len(self.rows)} × {self.rows.shape[1]}>)"

    def choose(self, kernel: Kernel, X: Array, count: int, rng: Generator) -> Array:
        return self.rows[:count].copy()


@dataclass(frozen=True)
class RPCholesky(Landmarks):
    """Rows by randomly pivoted Cholesky: Chen et al. (2023), Epperly, Tropp and Webber (2024).

    Covers the clusters and edges of the data, and stops if the landmarks represent all rows.

    Parameters
    ----------
    pool : int, default 4
        Landmarks are chosen among at most ``max(8192, pool * n_features)`` random rows, so that
        the cost of choosing, O(pool D³), does not grow with n.
    """

    pool: Counted = 4

    def choose(self, kernel: Kernel, X: Array, count: int, rng: Generator) -> Array:
        pool = _pool(X, self.pool * count, rng).astype(np.float64, copy=False)
        inner, rows = kernel.unwrap(pool)  # rows are transformed once
        columns = lambda places: inner.evaluate(rows, rows[places])
        corner = lambda places: inner.evaluate(rows[places], rows[places])
        pivots = randomly_pivoted_cholesky(columns, inner.diagonal(rows), count, rng, corner)
        # If the kernel is zero on all rows there is no pivot; then the landmark is the first row.
        return dense_rows(pool, pivots if len(pivots) else [0])


@dataclass(frozen=True)
class KMeans(Landmarks):
    """Centres of k-means clusters of the rows: Zhang, Tsang and Kwok (2008).

    Usually the most accurate landmarks for kernels of the distance; :class:`RPCholesky` is better
    if D is far above the effective dimension. Distances are in units of the lengthscales of the
    kernel. The landmarks are means, not rows of X.

    Parameters
    ----------
    pool : int, default 4
        Clusters are computed from at most ``max(8192, pool * n_features)`` random rows.
    iterations : int, default 10
        Iterations of Lloyd's algorithm.
    seeds : {"k-means++", "random"}, default "k-means++"
        Starting centres. "random": random rows, faster, but small clusters can be missed.

    Notes
    -----
    Cost O(pool D² d) per iteration, and per candidate (log D of them) of k-means++.
    """

    pool: Counted = 4
    iterations: Counted = 10
    seeds: Annotated[str, word("k-means++", "random")] = "k-means++"

    def choose(self, kernel: Kernel, X: Array, count: int, rng: Generator) -> Array:
        pool = _pool(X, self.pool * count, rng)
        if not arrays.is_sparse(pool) and len(np.unique(pool[: 2 * count], axis=0)) <= count:
            distinct = np.unique(pool, axis=0)
            if len(distinct) <= count:
                return distinct.astype(np.float64)
        units = lengthscales(kernel, X.shape[1])
        if (units != 1.0).any():
            scales = 1.0 / units
            sparse = arrays.is_sparse(pool)
            pool = pool.multiply(scales[None, :]).tocsr() if sparse else pool * scales
        centres = self._centres(pool, min(count, pool.shape[0]), rng)
        return np.unique(centres, axis=0) * units

    def _centres(self, X: Array, count: int, rng: Generator) -> Float[Array, "D d"]:
        if self.seeds == "random" and not arrays.is_sparse(X):
            # Rows are centred and scaled: float32 loses no digits to the mean, and squares do not
            # overflow.
            mean = X.mean(axis=0, dtype=np.float64)
            Z = X - mean.astype(X.dtype)
            largest = float(np.abs(Z).max()) or 1.0
            rows = FeatureBlock(Z / X.dtype.type(largest))
            start = rows.Z[rng.choice(len(Z), size=count, replace=False)].astype(np.float64)
            return run_lloyd(rows, assign(rows, start), self.iterations, 0.0).means * largest + mean
        from sklearn import cluster  # noqa: PLC0415  takes a second to import
        from sklearn.exceptions import ConvergenceWarning  # noqa: PLC0415

        clusters = cluster.KMeans(
            count,
            init=self.seeds,
            n_init=1,
            max_iter=self.iterations,
            random_state=int(rng.integers(2**31)),
        )
        with warnings.catch_warnings():  # fewer distinct rows than clusters
            warnings.simplefilter("ignore", ConvergenceWarning)
            return clusters.fit(X.astype(np.float64, copy=False)).cluster_centers_


@dataclass(frozen=True)
class RidgeLeverage(Landmarks):
    """Rows by their ridge leverage: recursive Nyström, Musco and Musco (2017).

    Rows are drawn in proportion to τ_i = (K(K + alpha I)⁻¹)_ii, estimated recursively from
    landmarks of half of the rows. For comparisons; :class:`RPCholesky` is usually better.

    Parameters
    ----------
    alpha : float, optional
        Ridge penalty of the fit on these rows. Default, as in the program of the authors: the sum
        of the eigenvalues of k(S, S) after the first k, divided by k = D/(4 log D).

    Notes
    -----
    Cost O(n D (d + D)), memory O(n + D²).
    """

    alpha: MaybePositive = None

    def choose(self, kernel: Kernel, X: Array, count: int, rng: Generator) -> Array:
        X = X.astype(np.float64, copy=False)
        n = X.shape[0]
        level = max(0, int(np.ceil(np.log2(max(n, 1) / count))))
        order, draws = rng.random(n), rng.random(n)
        sample = order < max(0.5**level, np.nextafter(order.min(), 1.0))  # one row at least
        S, p = dense_rows(X, sample), np.ones(int(sample.sum()))
        for depth in range(level - 1, -1, -1):
            level_rows = order < 0.5**depth
            tau = estimate(kernel, X[level_rows], S, p, _penalty(kernel, S, p, self.alpha))
            if depth == 0:
                # Exponential races draw without replacement: Efraimidis and Spirakis (2006).
                times = -np.log1p(-draws) / np.maximum(tau, np.finfo(float).tiny)
                return dense_rows(X, np.sort(np.argsort(times, kind="stable")[:count]))
            chances = capped_shares(tau if tau.any() else np.ones(len(tau)), 1.0, count)
            accept = draws[level_rows] < chances
            sample = level_rows.copy()
            sample[level_rows] = accept
            draws[level_rows] = rng.random(int(level_rows.sum()))
            if accept.any():
                S, p = dense_rows(X, sample), chances[accept]
        return S


def dense_rows(X: Float[Array, "n d"], index: Array) -> Float[Array, "m d"]:
    """Return X[index] as a dense NumPy array of float64."""
    return np.ascontiguousarray(arrays.dense(X[index]), dtype=np.float64)


def lengthscales(kernel: Kernel, d: int) -> Float[Array, " d"]:
    """Return the geometric mean of the lengthscales of each column; ones if all are equal."""
    product, parts = np.ones(d), np.zeros(d)
    for leaf, columns in kernel.leaves((*SAME_ROWS, Columns), range(d)):
        if isinstance(leaf, Compilable):
            product[list(columns)] *= leaf.lengthscale
            parts[list(columns)] += 1
    scales = product ** (1 / np.maximum(parts, 1))
    return np.ones(d) if (scales == scales[0]).all() else scales


def _pool(X: Float[Array, "n d"], size: int, rng: Generator) -> Float[Array, "m d"]:
    """Return at most ``max(8192, size)`` random rows in the order of X; dense if small."""
    size = min(X.shape[0], max(8192, size))
    rows = np.sort(rng.choice(X.shape[0], size=size, replace=False))
    pool = X if size == X.shape[0] else X[rows]
    pool = arrays.dense(pool) if size * X.shape[1] <= FEW_CELLS else pool
    return pool if pool.dtype == np.float32 else pool.astype(np.float64, copy=False)


# --- Ridge leverage, estimated recursively: Musco and Musco (2017), Algorithm 2 ------------------
#
# With landmarks S drawn with chances p, the estimate of τ_i = (K(K + λI)⁻¹)_ii is
#
#     τ̃_i = (1/λ) (k(x_i, x_i) − k(x_i, S) (k(S, S) + λ diag(p))⁻¹ k(S, x_i)),
#
# at least τ_i if p = 1: fewer rows represent less. Each level has half the rows of the next.

#: Smallest penalty, as a share of the mean diagonal; below it K(S, S) is singular in float64.
MIN_ALPHA = 1e-11


def estimate(
    kernel: Kernel,
    X: Float[Array, "n d"],
    S: Float[Array, "s d"],
    p: Float[Array, " s"],
    penalty: float,
) -> Float[Array, " n"]:
    """Return the estimate τ̃ ≤ 1 of each row's leverage, by rows S drawn with probabilities p."""
    A = kernel(S) + penalty * np.diag(p)
    L = jittered_cholesky(A, 0.0, MIN_ALPHA * float(np.mean(np.diag(A))) or 1.0)

    def estimate_slice(rows: Float[Array, "b d"]) -> Float[Array, " b"]:
        Z = solve_triangular(L, kernel(S, rows), lower=True, check_finite=False)
        return np.clip((kernel.diag(rows) - np.einsum("ij,ij->j", Z, Z)) / penalty, 0.0, 1.0)

    return np.concatenate([estimate_slice(X[rows]) for rows in arrays.slices(X.shape[0], 4096)])


def _penalty(kernel: Kernel, S: Array, p: Array, alpha: float | None) -> float:
    """Return λ: ``alpha``, or Σ_{i>k} λ_i/k, λ_i the decreasing eigenvalues of K by S and p."""
    K = kernel(S)
    if alpha is None:
        weights = p**-0.5
        values = eigvalsh(weights[:, None] * K * weights, check_finite=False)
        k = int(np.ceil(len(K) / (4 * max(1.0, np.log(len(K))))))
        alpha = float(values[: len(K) - k].sum()) / k
    return max(alpha, MIN_ALPHA * float(np.mean(np.diag(K))), np.finfo(float).tiny)


@dataclass(frozen=True)
class Nystrom(Method):
    """Nyström features with the given choice of landmarks.

    Parameters
    ----------
    landmarks : str, rows (m, d) or a value of `bochner.landmarks`, default "rpcholesky"
        The names "rpcholesky", "kmeans", "uniform" and "ridge-leverage" mean ``RPCholesky()``,
        ``KMeans()``, ``Uniform()`` and ``RidgeLeverage()``, which have options. An array of
        landmarks means ``Points(rows)``.

    Notes
    -----
    Supports every kernel, and requires rows. The error follows the spectrum of K: if it decays, the
    map is 5 to 10⁸ times more accurate than random features of equal width; otherwise use
    :class:`Fourier`. Cost of φ(X): O(n d D + n D²), about three times the time of summing
    ZᵀZ. Fewer than D landmarks are used if they represent the kernel to the rounding of
    float32. ``phi.residual(X)`` is the error of every row, k(x, x) − |φ(x)|² ≥ 0. Landmarks are
    chosen among rows in memory.

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> X = np.random.default_rng(0).uniform(-1, 1, (50, 3))
    >>> phi = bo.draw(bo.kernels.Gaussian(), bo.Nystrom("kmeans"), n_features=32, X=X)
    >>> phi.n_features, bool(phi.residual(X).max() < 0.1)
    (32, True)
    """

    landmarks: Landmarks = field(default_factory=RPCholesky)

    def __init__(self, landmarks: Landmarks | str | Float[Array, "m d"] = "rpcholesky") -> None:
        names = {
            "rpcholesky": RPCholesky(),
            "kmeans": KMeans(),
            "uniform": Uniform(),
            "ridge-leverage": RidgeLeverage(),
        }
        value: Any = names.get(landmarks) if isinstance(landmarks, str) else landmarks
        if isinstance(value, list | tuple) or hasattr(value, "shape"):
            value = Points(value)
        if not isinstance(value, Landmarks):
            raise InvalidInput(
                f"Nystrom: landmarks must be {', '.join(map(repr, names))}, rows (m, d) or a value "
                f"of bochner.landmarks; got {landmarks!r}{suggestion(landmarks, names) or '.'}"
            )
        object.__setattr__(self, "landmarks", value)


#: Share of the mean diagonal added to A = k(S, S) before its Cholesky factorization, so that
#: float32 features keep four digits of the smallest direction, and Z Zᵀ stays below K.
JITTER = {np.dtype(np.float32): 1e-6, np.dtype(np.float64): 1e-12}
#: Smallest jitter for whitening float64 sums of k(S, x); G is then as accurate as in float32.
COARSE = 1e-6


@dataclass(frozen=True, eq=False)
class NystromMap(FeatureMap):
    """φ(x) = L⁻¹ k(S, x) with A = k(S, S) + τI = L Lᵀ; τ limits the effect of rounding.

    A saved map has the landmarks (often rows of the data) and L⁻ᵀ, so all machines use the same.
    """

    kernel: Kernel
    landmarks: Float[Array, "D d"]  # S: rows of the data, centres of clusters, or given rows
    #: τ over the mean diagonal of k(S, S). None: 1e-6 for float32 rows, 1e-12 for float64 rows.
    jitter: float | None = None
    #: L⁻ᵀ, (D, D), by the name of its precision: a cache, filled when first needed.
    roots: dict[str, Array] = field(default_factory=dict, compare=False)
    whitened: bool = True  # False: features k(S, x), which cost less; Z Zᵀ is then not near K

    unbiased = False

    @property
    def below_kernel(self) -> bool:  # A projection in feature space
        return self.whitened

    @property
    def multiplications(self) -> float:
        d, D = self.n_inputs, self.n_features
        return float(D * d + 2 * D * D)

    def root(self, dtype: np.dtype) -> Float[Array, "D D"]:
        """Return L⁻ᵀ in this precision, so that features are one product C L⁻ᵀ."""
        root = self.roots.get(dtype.name)
        if root is None:
            A = arrays.to_numpy(self.kernel(self.landmarks, self.landmarks)).astype(np.float64)
            scale = float(np.mean(np.diag(A))) or 1.0
            jitter = scale * (JITTER[dtype] if self.jitter is None else self.jitter)
            lower = jittered_cholesky(A, jitter, float(np.finfo(float).eps) * scale)
            upper = np.asfortranarray(lower.T)
            invert_triangle(upper)
            root = np.ascontiguousarray(upper, dtype=dtype)
            self.roots[dtype.name] = root
        return root

    def unwhitened(self) -> tuple[FeatureMap, Any]:
        return (replace(self, whitened=False), self) if self.whitened else (self, None)

    def with_jitter(self, jitter: float | None) -> "NystromMap":
        return self if jitter == self.jitter else replace(self, jitter=jitter, roots={})

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        C = self.kernel.evaluate(X, arrays.adapt(self.landmarks, like=X))
        return self.whiten(C, arrays.precision(C)) if self.whitened else C

    def pullback(self, X: Float[Array, "n d"], C: Float[Array, "n D"]) -> Float[Array, "n d"]:
        if self.whitened:
            C = C @ arrays.adapt(self.root(arrays.precision(X)).T, like=X)
        return self.kernel.pullback(X, arrays.adapt(self.landmarks, like=X), C)

    def whiten(self, C: Float[Array, "n D"], dtype: np.dtype) -> Float[Array, "n D"]:
        """Return C L⁻ᵀ by the root of this precision; a NumPy array C is overwritten."""
        root = self.root(dtype)
        if isinstance(C, np.ndarray):
            return triangular_product(C, root.T)
        return C @ arrays.adapt(root, like=C)


@dataclass(frozen=True, eq=False)
class PrecisionMap(FeatureMap):
    """A map with features in one precision; rows, such as times in seconds, are not rounded."""

    kernel: Kernel
    inner: FeatureMap
    precision: str

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        if self.precision == "float64":
            return self.inner.features(arrays.in_float64(X))
        base, landmarks = self.inner.unwhitened()
        C = arrays.in_precision(base.features(X), "float32")
        return C if landmarks is None else landmarks.whiten(C, np.dtype(np.float32))

    def pullback(self, X: Float[Array, "n d"], C: Float[Array, "n D"]) -> Float[Array, "n d"]:
        """Return the gradient of φ(x_i)·C_i in x_i by the inner map; rounding is ignored."""
        return self.inner.pullback(X, C)


def draw_nystrom(method: Nystrom, kernel: Kernel, ask: Request) -> NystromMap:
    """Draw the map of at most D landmarks among the rows of the request."""
    X = ask.X if isinstance(method.landmarks, Points) else ask.rows("Nystrom", "its landmarks")
    rows = method.landmarks.choose(kernel, X, ask.n_features, ask.stream("landmarks"))
    if rows.shape[1] != ask.n_inputs:
        raise InvalidInput(
            f"draw: Points(rows) must have the {ask.n_inputs} columns of the data; got "
            f"{rows.shape[1]}."
        )
    return NystromMap(kernel, rows)
