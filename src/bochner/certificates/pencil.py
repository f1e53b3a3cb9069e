"""The pencil (K̂ + λI, K + λI) of m rows, its extreme eigenvalues, and ridge leverage."""

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from scipy.linalg import cho_solve, eigh_tridiagonal, solve_triangular
from scipy.linalg.blas import dgemv, dsymv
from scipy.optimize import brentq
from scipy.special import expit, logit
from scipy.stats import norm
from scipy.stats import t as student

from bochner._core.arrays import as_matrix, in_float64, take, to_numpy
from bochner._core.blas import cho_factor, eigh, eigvalsh
from bochner._core.checks import positive
from bochner._core.random import Seed, seed_of, stream
from bochner._core.shapes import Array, Float, Others, Rows
from bochner.errors import InvalidInput, InvalidType, NotPositive
from bochner.features.map import FeatureMap
from bochner.kernels.kernel import Kernel
from bochner.solvers.factorisations import eigenvalues, lower_factor, solve_lower, symmetrise

EPS = float(np.finfo(np.float64).eps)


def sides(
    K: Float[Array, "m m"], E: Float[Array, "m m"], penalty: float, noise: float
) -> tuple[Float[Array, " 2"], Float[Array, " 2"]]:
    """Return the scores log ε₋/(1 − ε₋) and log ε₊, and −d score/d log λ at fixed eigenvectors.

    A whitened error below ``noise`` is rounding: its score is log ``noise`` and its slope 0.
    """
    L = factor(K, penalty)
    if len(L) <= 512:  # LAPACK's dense eigensolver is faster than Lanczos, O(m³/3 + 600 m²)
        values, vectors = eigh(whiten(L, E), check_finite=False)
        ends, vectors = values[[0, -1]], vectors[:, [0, -1]]
    else:
        # SciPy's BLAS only: threads of alternating BLAS libraries wait for one another.
        solve = partial(solve_triangular, L, lower=True, check_finite=False)
        product = lambda v: solve(dsymv(1.0, E.T, solve(v, trans="T")))
        ends, vectors = _extremes(product, len(L))
    V = solve_triangular(L, vectors, lower=True, trans="T", check_finite=False)
    slopes = np.array([float(penalty * (v @ v)) for v in V.T])
    errors = np.array([min(-ends[0], 1 - EPS), ends[1]])
    slopes[0] /= 1 - errors[0]
    low, high = np.maximum(errors, noise)
    real, floor = errors > noise, np.log(noise)
    return np.where(real, [logit(low), np.log(high)], floor), np.where(real, slopes, 0.0)


def factor(K: Float[Array, "m m"], penalty: float) -> Float[Array, "m m"]:
    """Return L with L Lᵀ = K + λI."""
    A = K.T.copy(order="F")
    A.T.flat[:: len(A) + 1] += penalty
    return lower_factor(A)


def whiten(L: Float[Array, "m m"], E: Float[Array, "m m"]) -> Float[Array, "m m"]:
    """Return L⁻¹ E L⁻ᵀ."""
    return symmetrise(solve_lower(L, solve_lower(L, E).T))


def _extremes(
    product: Callable[[Float[Array, " m"]], Float[Array, " m"]], m: int
) -> tuple[Float[Array, " 2"], Float[Array, "m 2"]]:
    """Return the extreme eigenvalues of ``product``, to 1e-5 of the larger, and their vectors."""
    # Lanczos; SciPy's eigsh takes two to four times as many products.
    steps = min(300, m)  # 40 to 150 are usual
    Q = np.zeros((steps + 1, m))
    start = np.cos(np.arange(m) ** 2.0)  # deterministic: the same rows give the same bits
    Q[0] = start / np.linalg.norm(start)
    diagonal, off_diagonal = np.zeros(steps), np.zeros(steps)
    for k in range(steps):
        w = product(Q[k])
        diagonal[k] = Q[k] @ w
        basis = Q[: k + 1].T
        for _ in range(2):  # twice is enough (Kahan and Parlett)
            w = dgemv(-1.0, basis, dgemv(1.0, basis, w, trans=1), 1.0, w)
        off_diagonal[k] = np.linalg.norm(w)
        last = k == steps - 1 or off_diagonal[k] <= 1e-14 * np.abs(diagonal[: k + 1]).max()
        if last or k % 8 == 7:
            values, vectors = eigh_tridiagonal(diagonal[: k + 1], off_diagonal[:k])
            residual = off_diagonal[k] * np.abs(vectors[-1, [0, -1]]).max()
            if last or residual <= 1e-5 * np.abs(values).max():
                break
        Q[k + 1] = w / off_diagonal[k]
    return values[[0, -1]], Q[: k + 1].T @ vectors[:, [0, -1]]


def operator_ratio(K: Float[Array, "m m"], E: Float[Array, "m m"]) -> float:
    """Return ‖E‖/‖K‖."""
    ends = lambda A: _extremes(lambda v: dsymv(1.0, A.T, v), len(A))[0]
    error, size = (float(np.abs(ends(A)).max()) for A in (E, K))
    return error / size if size else (0.0 if error == 0 else math.inf)


# --- The spectral distance of K̂ = Z Zᵀ from K: on m rows, and estimated for n rows --------------
#
# The (ε, λ)-spectral distance is the smallest ε with
#
#     (1 − ε)(K + λI) ⪯ K̂ + λI ⪯ (1 + ε)(K + λI),
#
# so ε = max(ε₋, ε₊), where −ε₋ and ε₊ are the extreme eigenvalues of the whitened error
# (K + λI)^(-1/2) E (K + λI)^(-1/2), E = K̂ − K (Avron et al. 2017, definition 1), ε₋ < 1.

#: Number of disjoint groups of the sample, which show how ε varies with the rows and their number.
GROUPS = 8


def match_penalty(
    values: Float[Array, " m"], n: float, penalty: float
) -> tuple[float, float, bool]:
    """Return (t, d, resolved): with penalty t, m rows have the d_λ of n rows at λ = ``penalty``.

    ``values`` are the eigenvalues of the m rows; if not ``resolved``, d is above the d_λ sought.
    """
    # Rows regularise one another: m rows at penalty t act on the population as a penalty
    # κ = 1/tr(K_S + tI)⁻¹ per row, and κ(n − d) = λ must hold for n rows, where d = m − t/κ is d_λ
    # of the m and of the n rows (deterministic equivalents; Jacot et al. 2020). Without a solution
    # t > 0 all rows have m effective dimensions or more, and the sample cannot resolve λ.
    m, scaled, resolved = len(values), penalty * len(values) / n, True

    def excess(share: float) -> float:
        t = share * scaled
        return t + (n - m) / float(np.sum(1 / (values + t))) - penalty

    share, tolerance = 1.0, 1e-3  # a lower share is not resolved
    if n > m and excess(1.0) > 0:
        resolved = excess(tolerance) <= 0
        share = float(brentq(excess, tolerance, 1.0, xtol=1e-9)) if resolved else tolerance
    t = share * scaled
    return t, float(np.sum(values / (values + t))), resolved


def spectrum(K: Float[Array, "m m"]) -> Float[Array, " m"]:
    """Return the eigenvalues of K, ascending; values that rounding made negative become zero."""
    return clip_negative(eigenvalues(K), "certify")


def distance(
    K: Float[Array, "m m"], E: Float[Array, "m m"], n: int, alpha: float, confidence: float
) -> dict[str, Any]:
    """Return the fields of a certificate on the spectral distance of K + E from K.

    It is estimated for n rows and ``alpha`` from the m rows of K and E, in random order.
    """
    m = len(K)
    values = spectrum(K)
    largest = max(float(values[-1]), float(np.abs(np.diagonal(E)).max()))
    scaled = alpha * m / n
    penalty = max(scaled, m * EPS * largest)
    effective = alpha if penalty == scaled else penalty * n / m
    # Rounding in E is 16 eps ‖K‖: ε₋ or ε₊ below it is zero up to rounding.
    noise = min(0.5, max(16 * EPS * largest / penalty, EPS**2))
    target, d, resolved = match_penalty(values, n, penalty * n / m)
    scores, slopes = sides(K, E, penalty, noise)
    ends = [scores] * 3
    if m < n:
        size = m // GROUPS
        parts = [slice(g * size, (g + 1) * size) for g in range(GROUPS)]
        part_sides = lambda g: sides(K[g, g], E[g, g], penalty * size / m, noise)[0]
        groups = np.array(list(map(part_sides, parts)))
        gain, reach = scores - groups.mean(axis=0), np.log(n / m) / np.log(GROUPS)
        # ε is extrapolated by at most a factor of ten towards the matched penalty.
        shift = slopes * min(np.log(penalty / target), np.log(10))
        trend = gain * reach
        rises, lowest = shift, np.full(2, -np.inf)
        if not resolved:  # ε₋/(1 − ε₋) ≤ ‖E₋‖/λ and ε₊ ≤ ‖E₊‖/λ hold for any K
            bounds = eigenvalues(E) / penalty
            lowest = np.log(np.maximum([-bounds[0], bounds[-1]], noise))
            rises = np.maximum(trend, shift)
        deviation = groups.std(axis=0, ddof=1) / np.sqrt(GROUPS)
        deviation *= student.ppf((1 + confidence) / 2, GROUPS - 1)
        # A few influential rows that were not measured can make ε too small, however few they are:
        # only the lower end gets the finite-population factor.
        low = scores + np.minimum(trend, 0) - shift - deviation * np.sqrt(1 - m / n)
        # The trend is conservative: the estimate follows it down by a factor of 8 in rows at most,
        # and up only if there is no matched penalty.
        middle = scores + (np.minimum(gain * min(reach, 1.0), 0) + rises) / 2
        high = np.maximum(scores + np.maximum(trend, shift), lowest) + deviation
        # If ε₋ or ε₊ is below a hundredth of the other, it is not extrapolated: it may be rounding.
        sizes = np.array([expit(scores[0]), np.exp(min(scores[1], 700))])
        small = sizes * 100 < sizes[::-1]
        ends = [np.where(small, scores, end) for end in (low, middle, high)]
    errors = [max(float(expit(odds)), math.exp(min(log_error, 700))) for odds, log_error in ends]
    lower, epsilon, upper = (0.0 if e <= noise * (1 + 1e-6) else e for e in errors)
    return {
        "epsilon": epsilon,
        "epsilon_interval": (lower, upper),
        "effective_dimension": d,
        "alpha_measured": effective,
        "resolved": resolved,
    }


# --- The sample of a certificate: K and E = Z Zᵀ − K of m rows, in float64 ------------------------


def require_rows(caller: str, X: Any, minimum: int = 2) -> Rows:
    """Return X, checked; raise an error if it has fewer than ``minimum`` rows."""
    X = as_matrix(X, caller)
    if X.shape[0] < minimum:
        rows = "one row" if minimum == 1 else f"{minimum} rows"
        raise InvalidInput(f"{caller}: X must have at least {rows}; got {X.shape[0]}. Pass more.")
    return X


def rows_of(X: Any, n_sample: int, random_state: Seed) -> Others:
    """Return at most ``n_sample`` random rows of X, checked, in random order."""
    X = require_rows("certify", X)
    index = stream(seed_of(random_state), "certificate").permutation(X.shape[0])[:n_sample]
    return take(X, index, axis=0)


def sample(
    phi: Any, X: Others, kernel: Any
) -> tuple[Float[Array, "m m"], Float[Array, "m m"], int]:
    """Return K and E of the rows X, and the number of features."""
    kernel = getattr(phi, "kernel", None) if kernel is None else kernel
    if kernel is None:
        raise InvalidInput(
            "certify: kernel must be passed if the map has no kernel; got None. Pass the exact "
            "kernel that the features approximate."
        )
    m = X.shape[0]
    Z = finite_matrix(to_numpy(phi(X)), m, "phi(X)")
    K = symmetrise(finite_matrix(to_numpy(kernel(in_float64(X))), m, "kernel(X)"))
    E = Z @ Z.T
    E -= K
    return K, E, Z.shape[1]


def clip_negative(values: Float[Array, " m"], caller: str) -> Float[Array, " m"]:
    """Return increasing eigenvalues of a kernel matrix, with zero in place of negative values."""
    if -values[0] > 100 * len(values) * np.finfo(float).eps * np.abs(values).max():
        raise NotPositive(
            f"{caller}: the kernel matrix must be positive semi-definite; its eigenvalues run from "
            f"{values[0]:.3g} to {values[-1]:.3g}. Check the kernel: check_kernel(kernel, X)."
        )
    return np.maximum(values, 0.0)


def finite_matrix(A: Array, m: int, name: str, caller: str = "certify") -> Float[Array, "m k"]:
    """Return the values of a map or a kernel on m rows as float64, checked."""
    if A.ndim != 2 or A.shape[0] != m:
        raise InvalidInput(
            f"{caller}: {name} must be a matrix with one row for each of the {m} rows of X; "
            f"got shape {A.shape}."
        )
    A = A.astype(np.float64)
    if not np.isfinite(A).all():
        raise InvalidInput(f"{caller}: {name} must be finite; got NaN or infinity. Rescale X.")
    return A


def frobenius(
    K: Float[Array, "m m"], E: Float[Array, "m m"], n: int, confidence: float
) -> tuple[float, tuple[float, float]]:
    """Return ‖E‖_F/‖K‖_F of n rows, a ratio of U-statistics, and its interval."""
    errors, sizes = row_sums(E, n), row_sums(K, n)
    total, size = errors.sum(), sizes.sum()
    if total == 0 or size == 0:
        value = 0.0 if total == 0 else float("inf")
        return value, (value, value)
    m = len(K)
    deviation = np.std(errors / errors.mean() - sizes / sizes.mean(), ddof=1) / np.sqrt(m)
    deviation *= norm.ppf((1 + confidence) / 2) * np.sqrt(1 - m / n)
    value = float(np.sqrt(total / size))
    return value, (value * float(np.exp(-deviation)), value * float(np.exp(deviation)))


def row_sums(A: Float[Array, "m m"], n: int) -> Float[Array, " m"]:
    """Return Σ_j A_ij² of each row, with the off-diagonal terms times (n − 1)/(m − 1)."""
    m = len(A)
    diagonal = np.diagonal(A) ** 2
    sums = np.einsum("ij,ij->i", A, A) - diagonal
    return np.maximum(sums, 0.0) * (n - 1) / max(m - 1, 1) + diagonal


# --- Ridge leverage of rows, and the effective dimension ------------------------------------------

BLOCK = 4096  # rows whose features are computed together


def leverage_scores(
    source: Kernel | FeatureMap, X: Rows, *, alpha: float
) -> Float[np.ndarray, " n"]:
    """Return the ridge leverage τ_i = (K(K + alpha I)⁻¹)_ii of each row.

    It is the influence of the row's target on its own fitted value.

    Parameters
    ----------
    source : Kernel or FeatureMap
        A kernel: exact, for at most 10,000 rows; O(n³), memory 16n². A map: leverage scores of
        K̂ = Z Zᵀ, z_i·(G + alpha I)⁻¹ z_i, for any number of rows; O(n D²). Within ε of the kernel
        (``certify``), 1 − τ̂_i is 1 − τ_i times a factor from 1/(1 + ε) to 1/(1 − ε).
    X : (n, d)
    alpha : float
        λ, above zero, on the scale of these n rows.

    Returns
    -------
    tau : (n,)
        Between 0 and 1; their sum is the effective dimension.

    Notes
    -----
    Source: Alaoui and Mahoney (2015), definition 1.

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> from bochner.certificates import leverage_scores
    >>> X = np.random.default_rng(0).standard_normal((100, 2))
    >>> scores = leverage_scores(bo.kernels.Gaussian(), X, alpha=1.0)
    >>> scores.shape
    (100,)
    >>> bool(scores.min() > 0 and scores.max() < 1)
    True
    >>> round(float(scores.sum()), 1)
    11.6
    """
    alpha = positive(alpha, "leverage_scores", "alpha")
    if isinstance(source, Kernel):
        values, vectors = eigen(source, X, "leverage_scores")
        return np.einsum("ij,j,ij->i", vectors, values / (values + alpha), vectors)
    gram = _gram(source, X, "leverage_scores")
    factor = cho_factor(gram + alpha * np.eye(len(gram)))
    blocks = _features(source, X, "leverage_scores")
    parts = [np.einsum("ij,ji->i", Z, cho_solve(factor, Z.T)) for Z in blocks]
    return np.clip(np.concatenate(parts), 0.0, 1.0)


def effective_dimension(source: Kernel | FeatureMap, X: Rows, *, alpha: float) -> float:
    """Return d_λ = Tr K(K + alpha I)⁻¹ of these rows, λ = alpha.

    It is the sum of :func:`leverage_scores`, with the same parameters and cost.

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> from bochner.certificates import effective_dimension
    >>> X = np.random.default_rng(0).standard_normal((100, 2))
    >>> round(effective_dimension(bo.kernels.Gaussian(), X, alpha=1.0), 1)
    11.6
    >>> round(effective_dimension(bo.kernels.Gaussian(), X, alpha=10.0), 1)
    4.3
    """
    alpha = positive(alpha, "effective_dimension", "alpha")
    values = values_of(source, X, "effective_dimension")
    return float(np.sum(values / (values + alpha)))


def values_of(source: Kernel | FeatureMap, X: Array, caller: str) -> Float[np.ndarray, " n"]:
    """Return the increasing eigenvalues of a kernel's K, or of a map's G = ZᵀZ."""
    if isinstance(source, Kernel):
        return clip_negative(eigvalsh(_matrix(source, X, caller), check_finite=False), caller)
    return np.maximum(eigvalsh(_gram(source, X, caller), check_finite=False), 0.0)


def eigen(
    kernel: Kernel, X: Rows, caller: str
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, "n n"]]:
    """Return the increasing eigenvalues of K, negative ones as zero, and the eigenvectors."""
    values, vectors = eigh(_matrix(kernel, X, caller), check_finite=False)
    return clip_negative(values, caller), vectors


def _matrix(kernel: Kernel, X: Rows, caller: str) -> Float[np.ndarray, "n n"]:
    X = as_matrix(X, caller)
    if not 1 <= X.shape[0] <= 10_000:  # 800 MB, minutes
        raise InvalidInput(
            f"{caller}: X must have 1 to 10,000 rows for the exact kernel; got {X.shape[0]:,}. "
            "Pass a feature map instead of the kernel, or a sample of rows."
        )
    K = finite_matrix(to_numpy(kernel(X)), X.shape[0], "kernel(X)", caller)
    return (K + K.T) / 2


def _features(phi: FeatureMap, X: Array, caller: str) -> Iterator[Float[np.ndarray, "b D"]]:
    """Yield the features of a block of rows at a time, in float64."""
    if not isinstance(phi, FeatureMap):
        raise InvalidType(f"{caller}: source must be a Kernel or a FeatureMap; got {phi!r}.")
    X = require_rows(caller, X, 1)
    for start in range(0, X.shape[0], BLOCK):
        yield to_numpy(phi(X[start : start + BLOCK])).astype(np.float64)


def _gram(phi: FeatureMap, X: Array, caller: str) -> Float[np.ndarray, "D D"]:
    return sum((Z.T @ Z for Z in _features(phi, X, caller)), np.zeros(()))
