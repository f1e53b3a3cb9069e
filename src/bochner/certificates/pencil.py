"""The pencil (K̂ + λI, K + λI) on some rows: its extreme eigenvalues, densely or by Lanczos."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.linalg import eigh_tridiagonal, solve_triangular
from scipy.linalg.blas import dgemv, dsymv
from scipy.optimize import brentq
from scipy.special import expit, logit
from scipy.stats import norm
from scipy.stats import t as student

from bochner._core.arrays import as_matrix, in_float64, taken, to_numpy
from bochner._core.blas import eigh
from bochner._core.random import Seed, seed_of, stream
from bochner._core.shapes import Array, Float
from bochner.errors import InvalidInput, NotPositive
from bochner.solvers.factorisations import eigenvalues, lower_factor, slabs, solve_lower, symmetric

EPS = float(np.finfo(np.float64).eps)
_DENSE = 512  # Up to this many rows LAPACK's dense eigensolver is faster than Lanczos
_STEPS = 300  # Lanczos steps at most; 40 to 150 are usual


class Pencil(NamedTuple):
    """K and E = K̂ − K of m rows, λ, and the size below which a whitened error is rounding."""

    K: Float[Array, "m m"]
    E: Float[Array, "m m"]
    penalty: float
    noise: float

    def part(self, start: int, stop: int) -> Self:
        """Return the pencil of some of the rows, its penalty scaled to their number."""
        rows = slice(start, stop)
        scaled = self.penalty * (stop - start) / len(self.K)
        return self._replace(K=self.K[rows, rows], E=self.E[rows, rows], penalty=scaled)


class Side(NamedTuple):
    """One side of the distance, on the scale of the interval.

    ``score`` is log ε₊ or log ε₋/(1 − ε₋): scales on which spread is even and no value is
    impossible. ``slope`` is −d score / d log λ with the eigenvector held.
    """

    score: float
    slope: float


def sides(pencil: Pencil) -> tuple[Side, Side]:
    """Return the sides below and above; a side within the noise has the noise's score.

    Up to 512 rows densely; else Cholesky and Lanczos in O(m³/3 + 600 m²), to 1e-5 of the larger.
    """
    L, ends, vectors = (_dense if len(pencil.K) <= _DENSE else _krylov)(pencil)
    V = solve_triangular(L, vectors, lower=True, trans="T", check_finite=False)
    down, up = (float(pencil.penalty * (v @ v)) for v in V.T)
    below, above = min(-float(ends[0]), 1 - EPS), float(ends[1])
    nothing = Side(float(np.log(pencil.noise)), 0.0)
    lower = Side(float(logit(below)), down / (1 - below)) if below > pencil.noise else nothing
    return lower, Side(float(np.log(above)), up) if above > pencil.noise else nothing


def excess_count(pencil: Pencil, level: float) -> int:
    """Return how many whitened eigenvalues of −E exceed ``level``.

    A map with K̂ ⪯ K needs this many further directions of the sample before ε is ``level``.
    """
    _, A = _whitened(pencil)
    return int(np.sum(eigenvalues(A) < -level))


def _factor(pencil: Pencil) -> Float[Array, "m m"]:
    """L with L Lᵀ = K + λI."""
    shifted = pencil.K.T.copy(order="F")
    shifted.T.flat[:: len(shifted) + 1] += pencil.penalty
    return lower_factor(shifted)


def _whitened(pencil: Pencil) -> tuple[Float[Array, "m m"], Float[Array, "m m"]]:
    """L and L⁻¹ E L⁻ᵀ."""
    L = _factor(pencil)
    half = solve_lower(L, pencil.E)
    return L, symmetric(solve_lower(L, half.T))


def _dense(pencil: Pencil) -> tuple[Array, Array, Array]:
    """L, the two extreme eigenvalues of L⁻¹ E L⁻ᵀ and their vectors."""
    L, A = _whitened(pencil)
    values, vectors = eigh(A, check_finite=False)
    return L, values[[0, -1]], vectors[:, [0, -1]]


def _krylov(pencil: Pencil) -> tuple[Array, Array, Array]:
    """As ``_dense``, by Lanczos."""
    L = _factor(pencil)

    def product(v: Float[Array, " m"]) -> Float[Array, " m"]:
        u = solve_triangular(L, v, lower=True, trans="T", check_finite=False)
        # SciPy's BLAS throughout: alternating with NumPy's, threads wait for one another.
        return solve_triangular(L, dsymv(1.0, pencil.E.T, u), lower=True, check_finite=False)

    return L, *_extremes(product, len(pencil.K))


def _extremes(
    product: Callable[[Float[Array, " m"]], Float[Array, " m"]], m: int
) -> tuple[Float[Array, " 2"], Float[Array, "m 2"]]:
    """Return both extreme eigenvalues of a symmetric matrix, and their vectors, by Lanczos.

    With full reorthogonalisation, from a fixed start. Stops when both residuals, which bound the
    errors, are below 1e-5 of the larger end. SciPy's ``eigsh`` asks for accuracy relative to each
    end: out of reach where one end is zero (Nyström).
    """
    steps = min(_STEPS, m)
    Q = np.zeros((steps + 1, m))
    start = np.cos(np.arange(m) ** 2.0)  # without pattern: the same rows give the same bits
    Q[0] = start / np.linalg.norm(start)
    diagonal, off = np.zeros(steps), np.zeros(steps)
    for k in range(steps):
        w = product(Q[k])
        diagonal[k] = Q[k] @ w
        basis = Q[: k + 1].T
        for _ in range(2):  # twice is enough (Kahan and Parlett)
            w = dgemv(-1.0, basis, dgemv(1.0, basis, w, trans=1), 1.0, w)
        off[k] = np.linalg.norm(w)
        last = k == steps - 1 or off[k] <= 1e-14 * np.abs(diagonal[: k + 1]).max()
        if last or k % 8 == 7:
            values, vectors = eigh_tridiagonal(diagonal[: k + 1], off[:k])
            residual = off[k] * np.abs(vectors[-1, [0, -1]]).max()
            if last or residual <= 1e-5 * np.abs(values).max():
                break
        Q[k + 1] = w / off[k]
    return values[[0, -1]], Q[: k + 1].T @ vectors[:, [0, -1]]


def operator_ratio(K: Float[Array, "m m"], E: Float[Array, "m m"]) -> float:
    """Return ‖E‖/‖K‖."""
    ends = lambda A: _extremes(lambda v: dsymv(1.0, A.T, v), len(A))[0]
    error, size = (float(np.abs(ends(A)).max()) for A in (E, K))
    return error / size if size else (0.0 if error == 0 else math.inf)


# --- How far K̂ = Z Zᵀ is from K at a penalty, on some rows and, from a sample, on all -----------
#
# The (ε, λ)-spectral distance is the smallest ε with
#
#     (1 − ε)(K + λI) ⪯ K̂ + λI ⪯ (1 + ε)(K + λI),
#
# so ε = max(ε₋, ε₊), where −ε₋ and ε₊ are the extreme eigenvalues of the whitened error
# (K + λI)^(-1/2) E (K + λI)^(-1/2), E = K̂ − K (Avron et al. 2017, definition 1). Always ε₋ < 1;
# ε₊ has no limit.

#: Disjoint groups of the sample that show how ε varies with the rows and with their number.
GROUPS = 8
_LEAST = 1e-3  # A matched penalty below this share of the scaled one is none
_REACH = 10.0  # ε is not followed further than this factor towards the matched penalty
#: Rounding in E, in units of eps ‖K‖: sides below that are zero as far as float64 knows.
NOISE = 16.0
#: A side smaller than the other by this factor is not followed: it may be rounding in φ alone.
_NEGLIGIBLE = 100.0
_LOG_MAX = 700.0


class Match(NamedTuple):
    """The penalty on a sample that acts as λ does on all rows."""

    penalty: float
    effective_dimension: float
    resolved: bool


def match(values: Float[Array, " m"], n: float, penalty: float) -> Match:
    """Return the penalty t on m rows with the effective dimension of all n rows at λ.

    Rows regularise one another: m rows at penalty t act on the population as a penalty
    κ = 1/tr(K_S + tI)⁻¹ per row, and κ(n − d) = λ must hold for n rows, where d = m − t/κ is the
    effective dimension of both (deterministic equivalents; Jacot et al. 2020). Hence t solves
    t + (n − m)/tr(K_S + tI)⁻¹ = λ, and t ≤ λm/n. Without a solution t > 0 all n rows have at
    least m effective dimensions, and the sample cannot resolve the penalty.

    ``values`` are the eigenvalues of K_S.
    """
    m, scaled = len(values), penalty * len(values) / n

    def excess(share: float) -> float:
        t = share * scaled
        return t + (n - m) / float(np.sum(1 / (values + t))) - penalty

    if n <= m or excess(1.0) <= 0:
        share, resolved = 1.0, True
    elif excess(_LEAST) > 0:
        share, resolved = _LEAST, False
    else:
        share, resolved = float(brentq(excess, _LEAST, 1.0, xtol=1e-9)), True
    t = share * scaled
    return Match(t, float(np.sum(values / (values + t))), resolved)


class Range(NamedTuple):
    """Lower end, estimate and upper end of one side, as scores."""

    low: float
    mid: float
    high: float


def _range(
    side: Side, groups: Array, ratio: float, step: float, bound: float, confidence: float
) -> Range:
    """Return what scores of m rows and of disjoint groups of m/8 rows say of n rows.

    ratio = n/m; step = log of (λm/n)/t for the matched penalty t; bound = the least upper end,
    −∞ where the penalty is resolved. ``certify`` gives the reasons.
    """
    gain, reach = side.score - groups.mean(), np.log(ratio) / np.log(GROUPS)
    trend = gain * reach
    shift = side.slope * min(step, np.log(_REACH))
    fallen, risen = side.score + min(trend, 0.0), side.score + max(trend, shift)
    # The trend is wide by design: the estimate follows it down by one factor of 8 at most, and up
    # only where the matched penalty has no information.
    falls = min(gain * min(reach, 1.0), 0.0)
    rises = shift if bound == -np.inf else max(trend, shift)
    mid = side.score + (falls + rises) / 2
    spread = groups.std(ddof=1) / np.sqrt(GROUPS) * student.ppf((1 + confidence) / 2, GROUPS - 1)
    # A few decisive rows left out make ε too small however few were left out, so only the lower
    # end takes the finite-population factor.
    low = fallen - shift - spread * np.sqrt(1 - 1 / ratio)
    return Range(low, mid, max(risen, bound) + spread)


class Distance(NamedTuple):
    """The spectral distance ε of n rows, estimated on m rows: estimate, interval and penalty."""

    epsilon: float
    interval: tuple[float, float]
    effective_dimension: float
    alpha: float
    resolved: bool


def distance(
    K: Float[Array, "m m"], E: Float[Array, "m m"], n: int, alpha: float, confidence: float
) -> Distance:
    """Return the distance for n rows at penalty ``alpha``; K and E list rows in random order."""
    m = len(K)
    values = spectrum(K)
    norm = max(float(values[-1]), float(np.abs(np.diagonal(E)).max()))
    asked = alpha * m / n
    penalty = max(asked, m * EPS * norm)
    measured = alpha if penalty == asked else penalty * n / m
    noise = min(0.5, max(NOISE * EPS * norm / penalty, EPS**2))
    pencil = Pencil(K, E, penalty, noise)
    matching = match(values, n, penalty * n / m)
    low, mid, high = _epsilon(pencil, n, matching, confidence)
    return Distance(mid, (low, high), matching.effective_dimension, measured, matching.resolved)


def spectrum(K: Float[Array, "m m"]) -> Float[Array, " m"]:
    """Return the eigenvalues of K, rising; negative rounding errors become zero."""
    return nonnegative(eigenvalues(K), "certify")


def _epsilon(
    pencil: Pencil, n: int, matching: Match, confidence: float
) -> tuple[float, float, float]:
    """Return the lower end, estimate and upper end of ε = max(ε₋, ε₊)."""
    both_sides = sides(pencil)
    if len(pencil.K) == n:
        ranges = [Range(s.score, s.score, s.score) for s in both_sides]
    else:
        ranges = _ranges(pencil, both_sides, n, matching, confidence)
    below, above = (np.array(r) for r in ranges)
    ends = np.maximum(expit(below), _above(above))
    low, mid, high = np.where(ends <= pencil.noise * (1 + 1e-6), 0.0, ends).tolist()
    return low, mid, high


def _ranges(
    pencil: Pencil, both_sides: tuple[Side, Side], n: int, matching: Match, confidence: float
) -> list[Range]:
    m = len(pencil.K)
    size = m // GROUPS
    groups = [sides(pencil.part(g * size, (g + 1) * size)) for g in range(GROUPS)]
    bounds = [-np.inf, -np.inf]
    if not matching.resolved:  # ε₋/(1 − ε₋) ≤ ‖E₋‖/λ and ε₊ ≤ ‖E₊‖/λ hold for any K
        values = eigenvalues(pencil.E) / pencil.penalty
        bounds = np.log(np.maximum([-values[0], values[-1]], pencil.noise)).tolist()
    step = float(np.log(pencil.penalty / matching.penalty))
    scores = np.array([[side.score for side in group] for group in groups]).T
    ranges = [_range(both_sides[i], scores[i], n / m, step, bounds[i], confidence) for i in (0, 1)]
    sizes = (float(expit(both_sides[0].score)), float(_above(both_sides[1].score)))
    small = [sizes[i] * _NEGLIGIBLE < sizes[1 - i] for i in (0, 1)]
    return [Range(*[both_sides[i].score] * 3) if small[i] else ranges[i] for i in (0, 1)]


def _above(score: Array) -> Array:
    """ε₊ of scores."""
    return np.exp(np.minimum(score, _LOG_MAX))


# --- The sample of a certificate: K and E = Z Zᵀ − K of some rows, in float64 -----


_WHO = "certify"


class MeasuredRows(NamedTuple):
    """K and E (m, m) of the sampled rows, in random order, and the number of features D."""

    K: Float[Array, "m m"]
    E: Float[Array, "m m"]
    n_features: int


def rows_of(X: Any, n_sample: int, random_state: Seed) -> Float[Array, "m d"]:
    """Return at most ``n_sample`` random rows of X, checked, in random order."""
    X = as_matrix(X, _WHO)
    n = X.shape[0]
    if n < 2:
        raise InvalidInput(f"{_WHO}: X must have at least 2 rows to compare; got {n}. Pass more.")
    chosen = stream(seed_of(random_state), "certificate").permutation(n)[:n_sample]
    return taken(X, chosen, axis=0)


def sample(phi: Any, X: Float[Array, "m d"], kernel: Any) -> MeasuredRows:
    """Return K and E of the rows X."""
    kernel = kernel_of(phi, kernel, _WHO)
    Z = finite_matrix(to_numpy(phi(X)), X.shape[0], "phi(X)")
    K = symmetric(_matrix(kernel, in_float64(X)))
    E = np.empty_like(K)
    for rows in slabs(len(K)):
        E[rows] = Z[rows] @ Z.T - K[rows]
    return MeasuredRows(K, E, Z.shape[1])


def _matrix(kernel: Any, X: Float[Array, "m d"]) -> Float[Array, "m m"]:
    """Return K, checked; made in pieces where it is large."""
    m = X.shape[0]
    if len(pieces := list(slabs(m))) == 1:
        return finite_matrix(to_numpy(kernel(X)), m, "kernel(X)")
    K = np.empty((m, m))
    for rows in pieces:
        part = to_numpy(kernel(X[rows, :], X))
        K[rows] = finite_matrix(part, rows.stop - rows.start, "kernel(X)")
    return K


def kernel_of(phi: Any, kernel: Any, who: str) -> Any:
    """Return the kernel that was given, or else the map's own."""
    kernel = getattr(phi, "kernel", None) if kernel is None else kernel
    if kernel is None:
        raise InvalidInput(
            f"{who}: kernel must be given where the map has no kernel; got None. "
            "Pass the exact kernel that the features approximate."
        )
    return kernel


def nonnegative(values: Float[Array, " m"], who: str) -> Float[Array, " m"]:
    """Return rising eigenvalues of a kernel matrix, those that rounding made negative as zero."""
    if -values[0] > 100 * len(values) * np.finfo(float).eps * np.abs(values).max():
        raise NotPositive(
            f"{who}: the kernel matrix must be positive semi-definite; its eigenvalues run from "
            f"{values[0]:.3g} to {values[-1]:.3g}. Check the kernel: check_kernel(kernel, X)."
        )
    return np.maximum(values, 0.0)


def finite_matrix(A: Array, m: int, name: str) -> Float[Array, "m k"]:
    """Return what a map or a kernel made of m rows as float64, checked."""
    if A.ndim != 2 or A.shape[0] != m:
        raise InvalidInput(
            f"{_WHO}: {name} must be a matrix with one row for each of the {m} rows of X; "
            f"got shape {A.shape}."
        )
    A = A.astype(np.float64)
    if not np.isfinite(A).all():
        raise InvalidInput(f"{_WHO}: {name} must be finite; got NaN or infinity. Rescale X.")
    return A


def frobenius(s: MeasuredRows, n: int, confidence: float) -> tuple[float, tuple[float, float]]:
    """Return ‖E‖_F/‖K‖_F of n rows, and its interval.

    Off-diagonal pairs count n(n − 1)/(m(m − 1)) times, diagonal ones n/m times. The logarithm of
    a ratio of two such U-statistics has variance 4 var(a_i/ā − b_i/b̄)/m to first order, a_i and
    b_i the row sums of squares (Hoeffding's projection).
    """
    errors, sizes = row_sums(s.E, n), row_sums(s.K, n)
    total, size = errors.sum(), sizes.sum()
    if total == 0 or size == 0:
        value = 0.0 if total == 0 else float("inf")
        return value, (value, value)
    m = len(s.K)
    spread = np.std(errors / errors.mean() - sizes / sizes.mean(), ddof=1) / np.sqrt(m)
    spread *= norm.ppf((1 + confidence) / 2) * np.sqrt(1 - m / n)
    value = float(np.sqrt(total / size))
    return value, (value * float(np.exp(-spread)), value * float(np.exp(spread)))


def row_sums(A: Float[Array, "m m"], n: int) -> Float[Array, " m"]:
    """Return Σ_j A_ij² of each row, with the off-diagonal terms times (n − 1)/(m − 1)."""
    m = len(A)
    diagonal = np.diagonal(A) ** 2
    off = np.einsum("ij,ij->i", A, A) - diagonal
    return np.maximum(off, 0.0) * (n - 1) / max(m - 1, 1) + diagonal
