"""How many dimensions a kernel matrix has at a penalty, and which rows they hang on."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_solve

from bochner._core.arrays import as_matrix, to_numpy
from bochner._core.blas import cho_factor, eigh, eigvalsh
from bochner._core.checks import positive
from bochner._core.shapes import Array, Float
from bochner.certificates.pencil import EPS
from bochner.errors import InvalidInput, InvalidType, NotPositive
from bochner.features.fourier import require_real
from bochner.features.map import FeatureMap
from bochner.kernels import Kernel

#: Rows whose kernel matrix is decomposed densely: 800 MB, minutes.
DENSE = 10_000

#: Rows whose features are made together.
BLOCK = 4096


class Eigen(NamedTuple):
    """Eigenvalues of K, rising and not below zero, and its eigenvectors as columns."""

    values: Float[np.ndarray, " n"]
    vectors: Float[np.ndarray, "n n"]


def leverage_scores(
    source: Kernel | FeatureMap, X: Float[Array, "n d"], *, alpha: float
) -> Float[np.ndarray, " n"]:
    """Return the ridge leverage τ_i = (K(K + alpha I)⁻¹)_ii of each row: what only it tells.

    Parameters
    ----------
    source : Kernel or FeatureMap
        A kernel: exact, for at most 10,000 rows. A map: those of K̂ = Z Zᵀ,
        z_i·(G + alpha I)⁻¹ z_i, for any number of rows. Where the map is within ε of the kernel at
        alpha (``certify``), 1 − τ̂_i is 1 − τ_i times a factor from 1/(1 + ε) to 1/(1 − ε).
    X : (n, d)
    alpha : float
        λ, above zero, on the scale of these n rows.

    Returns
    -------
    tau : (n,)
        Between 0 and 1; their sum is the effective dimension.

    Raises
    ------
    InvalidInput
        If alpha is not positive, or a kernel is given more than 10,000 rows.
    NotPositive
        If the kernel matrix has an eigenvalue below zero.

    Notes
    -----
    Kernel: O(n³), memory 16n². Map: O(n D²) and one block of features. Source: Alaoui and
    Mahoney (2015), definition 1.
    """
    alpha = positive(alpha, "leverage_scores", "alpha")
    if isinstance(source, Kernel):
        values, vectors = eigen(source, X, "leverage_scores")
        return np.einsum("ij,j,ij->i", vectors, values / (values + alpha), vectors)
    gram = _gram(source, X, "leverage_scores")
    factor = cho_factor(gram + alpha * np.eye(len(gram)))
    parts = [
        np.einsum("ij,ji->i", Z, cho_solve(factor, Z.T))
        for Z in _features(source, X, "leverage_scores")
    ]
    return np.clip(np.concatenate(parts), 0.0, 1.0)


def effective_dimension(
    source: Kernel | FeatureMap, X: Float[Array, "n d"], *, alpha: float
) -> float:
    """Return d_λ = Tr K(K + alpha I)⁻¹ of these rows, λ = alpha.

    Parameters and cost are those of :func:`leverage_scores`, whose sum it is.
    """
    alpha = positive(alpha, "effective_dimension", "alpha")
    values = _values(source, X, "effective_dimension")
    return float(np.sum(values / (values + alpha)))


def intrinsic_dimension(source: Kernel | FeatureMap, X: Float[Array, "n d"]) -> float:
    """Return Tr K/‖K‖ of these rows: how many directions share the largest eigenvalue's size.

    Parameters and cost are those of :func:`leverage_scores`. Between 1 and n; it does not change
    with the scale of the kernel.
    """
    values = _values(source, X, "intrinsic_dimension")
    return float(values.sum() / values[-1]) if values[-1] > 0 else 0.0


def _values(source: Kernel | FeatureMap, X: Array, who: str) -> Float[np.ndarray, " n"]:
    """Eigenvalues, rising, of K or of G, which has those of K̂ but for zeros."""
    if isinstance(source, Kernel):
        return _not_negative(eigvalsh(_matrix(source, X, who), check_finite=False), who)
    return np.maximum(eigvalsh(_gram(source, X, who), check_finite=False), 0.0)


def eigen(kernel: Kernel, X: Float[Array, "n d"], who: str) -> Eigen:
    """Return the eigendecomposition of the kernel matrix of these rows, checked."""
    values, vectors = eigh(_matrix(kernel, X, who), check_finite=False)
    return Eigen(_not_negative(values, who), vectors)


def _matrix(kernel: Kernel, X: Float[Array, "n d"], who: str) -> Float[np.ndarray, "n n"]:
    X = as_matrix(X, who)
    if not 1 <= X.shape[0] <= DENSE:
        raise InvalidInput(
            f"{who}: X must have 1 to {DENSE:,} rows for the exact kernel; got {X.shape[0]:,}. "
            "Pass a feature map in place of the kernel, or a sample of rows."
        )
    K = to_numpy(kernel(X)).astype(np.float64)
    if not np.isfinite(K).all():
        raise InvalidInput(f"{who}: kernel(X) must be finite; got NaN or infinity. Rescale X.")
    return (K + K.T) / 2


def _not_negative(values: Float[np.ndarray, " n"], who: str) -> Float[np.ndarray, " n"]:
    if -values[0] > 100 * len(values) * EPS * np.abs(values).max():
        raise NotPositive(
            f"{who}: the kernel matrix must be positive semi-definite; its eigenvalues run from "
            f"{values[0]:.3g} to {values[-1]:.3g}. Check the kernel: check_kernel(kernel, X)."
        )
    return np.maximum(values, 0.0)


def _features(phi: FeatureMap, X: Array, who: str) -> Iterator[Float[np.ndarray, "b D"]]:
    if not isinstance(phi, FeatureMap):
        raise InvalidType(f"{who}: source must be a Kernel or a FeatureMap; got {phi!r}.")
    require_real(phi, who)
    X = as_matrix(X, who)
    if X.shape[0] < 1:
        raise InvalidInput(f"{who}: X must have at least one row; got none. Pass your rows.")
    for start in range(0, X.shape[0], BLOCK):
        yield to_numpy(phi(X[start : start + BLOCK])).astype(np.float64)


def _gram(phi: FeatureMap, X: Array, who: str) -> Float[np.ndarray, "D D"]:
    return sum((Z.T @ Z for Z in _features(phi, X, who)), np.zeros(()))


def draw_leverages(
    Z: Float[np.ndarray, "n D"], found: Eigen, alpha: float, features: int
) -> Float[np.ndarray, " m"]:
    """Return τ(ω) = Tr Z_ωᵀ(K + alpha I)⁻¹ Z_ω of each of the m random draws behind a map.

    Z are features of m draws, ``features`` a draw: column i·m + j is the i-th of draw j, as in
    Fourier and Gegenbauer maps, scaled by 1/√m. Their mean over ω is the effective dimension.
    """
    rotated = found.vectors.T @ Z
    each = np.einsum("ij,i,ij->j", rotated, 1 / (found.values + alpha), rotated)
    m = Z.shape[1] // features
    return m * each.reshape(features, m).sum(axis=0)
