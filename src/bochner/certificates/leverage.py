"""Ridge leverage of rows, and the effective dimension."""

from collections.abc import Iterator

import numpy as np
from scipy.linalg import cho_solve

from bochner._core.arrays import as_matrix, to_numpy
from bochner._core.blas import cho_factor, eigh, eigvalsh
from bochner._core.checks import positive
from bochner._core.shapes import Array, Float
from bochner.certificates.pencil import finite_matrix, nonnegative
from bochner.errors import InvalidInput, InvalidType
from bochner.features.map import FeatureMap
from bochner.kernels.kernel import Kernel

DENSE = 10_000  # Rows whose kernel matrix is decomposed densely: 800 MB, minutes
BLOCK = 4096  # Rows whose features are computed together


def leverage_scores(
    source: Kernel | FeatureMap, X: Float[Array, "n d"], *, alpha: float
) -> Float[np.ndarray, " n"]:
    """Return the ridge leverage τ_i = (K(K + alpha I)⁻¹)_ii of each row.

    It is the influence of the row's target on its own fitted value.

    Parameters
    ----------
    source : Kernel or FeatureMap
        A kernel: exact, for at most 10,000 rows; O(n³), memory 16n². A map: leverage scores of
        K̂ = Z Zᵀ, z_i·(G + alpha I)⁻¹ z_i, for any number of rows; O(n D²). Where the map is within
        ε of the kernel at alpha (``certify``), 1 − τ̂_i is 1 − τ_i times a factor from 1/(1 + ε) to
        1/(1 − ε).
    X : (n, d)
    alpha : float
        λ, above zero, on the scale of these n rows.

    Returns
    -------
    tau : (n,)
        Between 0 and 1; their sum is the effective dimension.

    See Also
    --------
    effective_dimension : Their sum.

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


def effective_dimension(
    source: Kernel | FeatureMap, X: Float[Array, "n d"], *, alpha: float
) -> float:
    """Return d_λ = Tr K(K + alpha I)⁻¹ of these rows, λ = alpha.

    It is the sum of :func:`leverage_scores`, with the same parameters and cost.

    See Also
    --------
    leverage_scores : The part of each row.

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


def values_of(source: Kernel | FeatureMap, X: Array, who: str) -> Float[np.ndarray, " n"]:
    """Return the increasing eigenvalues of K, or of G (those of K̂ without zeros)."""
    if isinstance(source, Kernel):
        return nonnegative(eigvalsh(_matrix(source, X, who), check_finite=False), who)
    return np.maximum(eigvalsh(_gram(source, X, who), check_finite=False), 0.0)


def eigen(
    kernel: Kernel, X: Float[Array, "n d"], who: str
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, "n n"]]:
    """Return the nonnegative eigenvalues of K, increasing, and the eigenvectors as columns."""
    values, vectors = eigh(_matrix(kernel, X, who), check_finite=False)
    return nonnegative(values, who), vectors


def _matrix(kernel: Kernel, X: Float[Array, "n d"], who: str) -> Float[np.ndarray, "n n"]:
    X = as_matrix(X, who)
    if not 1 <= X.shape[0] <= DENSE:
        raise InvalidInput(
            f"{who}: X must have 1 to {DENSE:,} rows for the exact kernel; got {X.shape[0]:,}. "
            "Pass a feature map in place of the kernel, or a sample of rows."
        )
    K = finite_matrix(to_numpy(kernel(X)), X.shape[0], "kernel(X)", who)
    return (K + K.T) / 2


def _features(phi: FeatureMap, X: Array, who: str) -> Iterator[Float[np.ndarray, "b D"]]:
    """Yield the features of a block of rows at a time, in float64."""
    if not isinstance(phi, FeatureMap):
        raise InvalidType(f"{who}: source must be a Kernel or a FeatureMap; got {phi!r}.")
    X = as_matrix(X, who)
    if X.shape[0] < 1:
        raise InvalidInput(f"{who}: X must have at least one row; got none. Pass your rows.")
    for start in range(0, X.shape[0], BLOCK):
        yield to_numpy(phi(X[start : start + BLOCK])).astype(np.float64)


def _gram(phi: FeatureMap, X: Array, who: str) -> Float[np.ndarray, "D D"]:
    return sum((Z.T @ Z for Z in _features(phi, X, who)), np.zeros(()))
