"""The error that theory expects of a method's features, before any are made."""

import numpy as np
from scipy.special import hyp1f1

from bochner._core.arrays import is_sparse, to_numpy
from bochner._core.shapes import Array, Float
from bochner.features.fourier import Fourier
from bochner.features.map import FeatureMap
from bochner.features.method import Method
from bochner.features.placements import IID, Orthogonal
from bochner.kernels import Gaussian, Kernel, Stationary

#: Pairs of rows that stand for all where there is no formula.
PAIRS = 1000


def expected_error(
    method: Method, kernel: Kernel, X: Float[Array, "n d"], n_features: int
) -> float | None:
    """Return √(E‖ZZᵀ − K‖_F²)/‖K‖_F on these rows, None where no formula is known.

    For stationary kernels with k(0) = a, δ = x − y and D features (Sutherland and Schneider
    (2015), section 2.1):

        pair:  Var = a²(1 + k(2δ)/a − 2k(δ)²/a²)/D,
        phase: Var = a²(1 + ½k(2δ)/a − k(δ)²/a²)/D.

    Orthogonal frequencies of a Gaussian kernel add to the variance of a pair

        (c/m)[₁F₁(d; d/2; −|δ|²/2) − exp(−|δ|²)],   m = D/2,

    where c is the mean number of other frequencies in the block of one, d − 1 for whole blocks.
    """
    if not isinstance(method, Fourier) or not isinstance(kernel, Stationary) or is_sparse(X):
        return None
    K, doubled = to_numpy(kernel(X)).astype(float), to_numpy(kernel(2 * X)).astype(float)
    a = float(K[0, 0])
    k, k2 = K / a, doubled / a
    if method.form == "phase":
        variance = (1 + k2 / 2 - k**2) / n_features
    else:
        variance = (1 + k2 - 2 * k**2) / n_features
    if isinstance(method.placement, Orthogonal):
        if not isinstance(kernel, Gaussian) or method.form == "phase":
            return None
        variance = variance + _block_gain(k, X.shape[1], n_features // 2)
    elif not isinstance(method.placement, IID):
        return None
    return float(a * np.sqrt(np.maximum(variance, 0).sum()) / np.linalg.norm(K))


def _block_gain(k: Float[Array, "n n"], d: int, m: int) -> Float[Array, "n n"]:
    """Return what orthogonality adds to the variance of m frequencies, from k = exp(−|δ|²/2)."""
    blocks = np.bincount(np.arange(m) // d)
    others = float((blocks * (blocks - 1)).sum()) / m
    half = np.minimum(-np.log(np.maximum(k, np.finfo(float).tiny)), 300.0)
    return others / m * (hyp1f1(d, d / 2, -half) - np.exp(-2 * half))


def paired_error(phi: FeatureMap, X: Float[Array, "n d"]) -> float:
    """Return the relative error on pairs of neighbouring rows, and on each row with itself.

    An estimate of ‖ZZᵀ − K‖_F/‖K‖_F without a matrix of n²: the rows come in random order, and
    a pair stands for n − 1 of its kind, a diagonal entry for one.
    """
    n = X.shape[0] - X.shape[0] % 2
    first, second = X[: min(n, 2 * PAIRS) : 2], X[1 : min(n, 2 * PAIRS) : 2]
    Z, V = to_numpy(phi(first)).astype(float), to_numpy(phi(second)).astype(float)
    k = _paired(phi.kernel, first, second)
    diag = to_numpy(phi.kernel.diag(first)).astype(float)
    off, own = (Z * V).sum(axis=1) - k, (Z * Z).sum(axis=1) - diag
    error = (n - 1) * (off**2).mean() + (own**2).mean()
    size = (n - 1) * (k**2).mean() + (diag**2).mean()
    return float(np.sqrt(error / max(size, np.finfo(float).tiny)))


def _paired(kernel: Kernel, X: Array, Y: Array) -> Float[Array, " n"]:
    """Return k(xᵢ, yᵢ), by small matrices whose diagonal is kept."""
    parts = [
        np.diag(to_numpy(kernel(X[i : i + 50], Y[i : i + 50]))) for i in range(0, X.shape[0], 50)
    ]
    return np.concatenate(parts).astype(float)
