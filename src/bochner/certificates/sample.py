"""The sample of a certificate: K and E = Z Zᵀ − K of some rows, in float64."""

from typing import Any, NamedTuple

import numpy as np
from scipy.stats import norm

from bochner._core.arrays import as_matrix, in_float64, taken, to_numpy
from bochner._core.random import Seed, seed_of, stream
from bochner._core.shapes import Array, Float
from bochner.errors import InvalidInput, NotPositive
from bochner.solvers.factorisations import slabs, symmetric

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
    """Return Σ_j A_ij² of each row, pairs of different rows as often as n rows have them."""
    m = len(A)
    diagonal = np.diagonal(A) ** 2
    off = np.einsum("ij,ij->i", A, A) - diagonal
    return np.maximum(off, 0.0) * (n - 1) / max(m - 1, 1) + diagonal
