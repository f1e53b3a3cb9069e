"""Quantities of each row: leverage scores and approximation residuals; effective dimension."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import cho_solve

from bochner._core.arrays import as_matrix, in_float64, to_numpy
from bochner._core.blas import cho_factor, eigh, eigvalsh
from bochner._core.checks import positive
from bochner._core.html import HtmlResult
from bochner._core.shapes import Array, Float
from bochner.certificates.pencil import finite_matrix, kernel_of, nonnegative
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
    """Return the rising eigenvalues of K, or of G: K̂'s except for zeros."""
    if isinstance(source, Kernel):
        return nonnegative(eigvalsh(_matrix(source, X, who), check_finite=False), who)
    return np.maximum(eigvalsh(_gram(source, X, who), check_finite=False), 0.0)


def eigen(
    kernel: Kernel, X: Float[Array, "n d"], who: str
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, "n n"]]:
    """Return the eigenvalues of K, rising and not below zero, and the eigenvectors as columns."""
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
    yield from _blocks(phi, X)


def _blocks(phi: Any, X: Array) -> Iterator[Float[np.ndarray, "b D"]]:
    """Yield the features of a block of rows at a time, in float64."""
    for start in range(0, X.shape[0], BLOCK):
        yield to_numpy(phi(X[start : start + BLOCK])).astype(np.float64)


def _gram(phi: FeatureMap, X: Array, who: str) -> Float[np.ndarray, "D D"]:
    return sum((Z.T @ Z for Z in _features(phi, X, who)), np.zeros(()))


# --- What a map below its kernel leaves out of each row: e(x) = k(x, x) − |φ(x)|² ≥ 0 ------------
#
# If Z Zᵀ ⪯ K for any rows, then for any two, seen or not, |k(x, y) − φ(x)·φ(y)|² ≤ e(x) e(y), and
# ‖K − Z Zᵀ‖ ≤ Tr(K − Z Zᵀ) = Σ e(x_i). No sample, no probability.


@dataclass(frozen=True, eq=False)
class ApproximationResidual(HtmlResult):
    """Approximation error of a map at each row; ``print`` says it in sentences.

    Attributes
    ----------
    residual : (n,)
        e(x) = k(x, x) − |φ(x)|², zero or above: zero where the map is exact. An entry of the kernel
        matrix errs by √(e(x) e(y)) at most.
    size : (n,)
        k(x, x).

    See Also
    --------
    bochner.approximation_residual : Returns one.
    bochner.certify : Errors of any map.

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> X = np.random.default_rng(0).standard_normal((100, 2))
    >>> phi = bo.draw(bo.kernels.Gaussian(), "nystrom", n_features=50, X=X, random_state=0)
    >>> residual = bo.approximation_residual(phi, X)
    >>> residual.score.shape
    (100,)
    >>> 0 < residual.epsilon_bound(1.0) < 1
    True
    """

    residual: Float[np.ndarray, " n"]
    size: Float[np.ndarray, " n"]

    @property
    def score(self) -> Float[np.ndarray, " n"]:
        """|φ(x)|²/k(x, x): 1 where the map represents x exactly, 0 where x is orthogonal to it."""
        nothing = np.zeros_like(self.residual)
        share = np.divide(self.residual, self.size, out=nothing, where=self.size > 0)
        return 1.0 - np.clip(share, 0.0, 1.0)

    @property
    def trace(self) -> float:
        """Σ e(x_i) = Tr(K − Z Zᵀ), no less than ‖K − Z Zᵀ‖."""
        return float(self.residual.sum())

    def epsilon_bound(self, alpha: float) -> float:
        """Return t/(t + alpha), t = Σ e: the spectral distance of these rows is no larger.

        Certain, and loose where many directions are each left out a little: ``certify`` measures.
        """
        alpha = positive(alpha, "ApproximationResidual.epsilon_bound", "alpha")
        return self.trace / (self.trace + alpha)

    def __str__(self) -> str:
        if not len(self.residual):
            return "There are no rows."
        score = self.score
        worst, poor = int(np.argmin(score)), int((score < 0.5).sum())
        few = (
            f" {poor:,} are held by less than half: the prediction there leans to the intercept, "
            "whatever the exact kernel would say."
            if poor
            else ""
        )
        return (
            f"Of {len(score):,} rows the features hold {100 * np.mean(score):.3g} % on average, "
            f"and {100 * score[worst]:.3g} % of the worst, row {worst}.{few} The kernel matrix is "
            f"off by at most {self.trace:.3g} (operator norm)."
        )


def approximation_residual(
    phi: Any, X: Float[Array, "n d"], *, kernel: Any = None
) -> ApproximationResidual:
    """Return how much of each row a deterministic map has, for rows of a fit or rows to predict.

    Parameters
    ----------
    phi : FeatureMap
        Below its kernel: Nystrom, MercerHarmonic, HermiteMercer and the like. It is called with
        the rows' own precision.
    X : (n, d)
    kernel : Kernel, optional
        ``phi.kernel`` if not given.

    Returns
    -------
    ApproximationResidual

    See Also
    --------
    certify : Errors of any map.
    bochner.certificates.leverage_scores : The influence of each row on its fit.

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> from bochner.certificates import approximation_residual
    >>> X = np.random.default_rng(0).standard_normal((500, 2))
    >>> phi = bo.draw(bo.kernels.Gaussian(), "nystrom", n_features=100, X=X, random_state=0)
    >>> near, far = approximation_residual(phi, [[0.0, 0.0], [9.0, 9.0]]).score
    >>> bool(near > 0.999 and far < 0.001)
    True
    """
    kernel = kernel_of(phi, kernel, "approximation_residual")
    if not getattr(phi, "below_kernel", False):
        raise InvalidInput(
            "approximation_residual requires a map that stays below its kernel (Nystrom, "
            f"MercerHarmonic, HermiteMercer); got {type(phi).__name__}, whose errors have both "
            "signs. certify measures those."
        )
    X = as_matrix(X, "approximation_residual")
    norms = [np.einsum("ij,ij->i", Z, Z) for Z in _blocks(phi, X)]
    size = to_numpy(kernel.diag(in_float64(X))).astype(np.float64)
    return ApproximationResidual(
        np.maximum(size - np.concatenate([np.empty(0), *norms]), 0.0), size
    )
