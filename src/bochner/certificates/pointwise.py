"""Row by row: effective dimension, leverage scores, split halves, what the features leave out."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import cho_solve

from bochner._core.arrays import as_matrix, in_float64, to_numpy
from bochner._core.blas import cho_factor, eigh, eigvalsh
from bochner._core.checks import positive
from bochner._core.html import ShownResult
from bochner._core.shapes import Array, Float
from bochner.certificates.sample import kernel_of, nonnegative
from bochner.errors import InvalidInput, InvalidType
from bochner.features.fourier.fourier import require_real
from bochner.features.map import FeatureMap
from bochner.kernels.kernel import Kernel

DENSE = 10_000  # Rows whose kernel matrix is decomposed densely: 800 MB, minutes
BLOCK = 4096  # Rows whose features are computed together


class KernelEigen(NamedTuple):
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
    blocks = _features(source, X, "leverage_scores")
    parts = [np.einsum("ij,ji->i", Z, cho_solve(factor, Z.T)) for Z in blocks]
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
        return nonnegative(eigvalsh(_matrix(source, X, who), check_finite=False), who)
    return np.maximum(eigvalsh(_gram(source, X, who), check_finite=False), 0.0)


def eigen(kernel: Kernel, X: Float[Array, "n d"], who: str) -> KernelEigen:
    """Return the eigendecomposition of the kernel matrix of these rows, checked."""
    values, vectors = eigh(_matrix(kernel, X, who), check_finite=False)
    return KernelEigen(nonnegative(values, who), vectors)


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


def _features(phi: FeatureMap, X: Array, who: str) -> Iterator[Float[np.ndarray, "b D"]]:
    if not isinstance(phi, FeatureMap):
        raise InvalidType(f"{who}: source must be a Kernel or a FeatureMap; got {phi!r}.")
    require_real(phi, who)
    X = as_matrix(X, who)
    if X.shape[0] < 1:
        raise InvalidInput(f"{who}: X must have at least one row; got none. Pass your rows.")
    yield from _blocks(phi, X)


def _blocks(phi: Any, X: Array) -> Iterator[Float[np.ndarray, "b D"]]:
    """Give the features of a block of rows at a time, in float64."""
    for start in range(0, X.shape[0], BLOCK):
        yield to_numpy(phi(X[start : start + BLOCK])).astype(np.float64)


def _gram(phi: FeatureMap, X: Array, who: str) -> Float[np.ndarray, "D D"]:
    return sum((Z.T @ Z for Z in _features(phi, X, who)), np.zeros(()))


def draw_leverages(
    Z: Float[np.ndarray, "n D"], found: KernelEigen, alpha: float, features: int
) -> Float[np.ndarray, " m"]:
    """Return τ(ω) = Tr Z_ωᵀ(K + alpha I)⁻¹ Z_ω of each of the m random draws behind a map.

    Z are features of m draws, ``features`` a draw: column i·m + j is the i-th of draw j, as in
    Fourier and Gegenbauer maps, scaled by 1/√m. Their mean over ω is the effective dimension.
    """
    rotated = found.vectors.T @ Z
    each = np.einsum("ij,i,ij->j", rotated, 1 / (found.values + alpha), rotated)
    m = Z.shape[1] // features
    return m * each.reshape(features, m).sum(axis=0)


# --- The error of random features without one value of the kernel: two draws against each other
#
# Independent unbiased maps A and B err independently, so E‖K_A − K_B‖² = E‖K_A − K‖² + E‖K_B − K‖²
# (Frobenius): their difference shows the error of each, and a quarter of it that of both together,
# [φ_A, φ_B]/√2. With Gram matrices
#
#     ‖K_A − K_B‖² = ‖Z_Aᵀ Z_A‖² + ‖Z_Bᵀ Z_B‖² − 2‖Z_Aᵀ Z_B‖²,
#
# one pass over rows of any number; ‖K‖² is ‖Z_Aᵀ Z_B‖² in the mean.
#
# That shows noise alone. What a series that is cut leaves out is the same in both draws, and their
# difference does not show it: such maps are refused, unless its trace is small beside the noise.

#: Bias up to this share of the error is left unsaid: squares add up, so it is half a per cent.
SMALL = 0.1
ROUNDING = 1e-12  # ‖K_A − K_B‖² below this share of ‖K_A‖² is rounding of a difference of sums


@dataclass(frozen=True)
class SplitHalf(ShownResult):
    """The error of two independent maps, from their difference; ``print`` says it in a sentence.

    Attributes
    ----------
    error_each : float
        ‖Z Zᵀ − K‖_F/‖K‖_F to expect of one of them.
    error_both : float
        The same of [φ_A, φ_B]/√2, which is smaller by √2.
    n_rows, n_features : int
        Rows looked at, and features of both together.
    """

    error_each: float
    error_both: float
    n_rows: int
    n_features: int

    def __str__(self) -> str:
        return (
            f"Two independent maps of {self.n_features:,} features together differ by so much on "
            f"{self.n_rows:,} rows that each is off the kernel matrix by about "
            f"{100 * self.error_each:.2g} % (Frobenius), and both side by side by "
            f"{100 * self.error_both:.2g} %. No value of the kernel was computed."
        )


def split_half_error(first: FeatureMap, second: FeatureMap, X: Float[Array, "n d"]) -> SplitHalf:
    """Estimate the error of random features from two independent draws, without the kernel.

    Parameters
    ----------
    first, second : FeatureMap
        Unbiased maps of one kernel, drawn with different ``random_state``.
    X : (n, d)
        Any number of rows.

    Returns
    -------
    SplitHalf

    Raises
    ------
    InvalidInput
        If the maps are of different kernels, are not random, are one and the same, or if their
        mean over draws is off the kernel: a series cut short (``Gegenbauer`` of too low a degree
        or order), quadrature, a projection.

    Notes
    -----
    The estimate of the squared error is unbiased. It varies with the draws as the squared error
    itself does, so it is within a few percent where many frequencies share the error. O(n D²),
    memory O(D²) and a block.

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> from bochner.certificates import split_half_error
    >>> X = np.random.default_rng(0).standard_normal((500, 3))
    >>> a, b = (bo.draw(bo.kernels.Gaussian(2.0), bo.Fourier(bo.IID()), n_features=200, X=X,
    ...                 random_state=seed) for seed in (0, 1))
    >>> 0.02 < split_half_error(a, b, X).error_both < 0.1
    True
    """
    for phi in (first, second):
        _require_random(phi)
    if first.kernel != second.kernel:
        raise InvalidInput(
            f"split_half_error: both maps must be of one kernel; got {first.kernel!r} and "
            f"{second.kernel!r}."
        )
    X = as_matrix(X, "split_half_error")
    A, B, C = _grams(first, second, X)
    squares, cross = float(np.vdot(A, A) + np.vdot(B, B)), float(np.vdot(C, C))
    apart = squares - 2 * cross
    if apart <= ROUNDING * squares:
        raise InvalidInput(
            "split_half_error: the maps must be independent draws; got two with the same features. "
            "Draw them with different random_state."
        )
    width = first.n_features + second.n_features
    each = float(np.sqrt(apart / 2 / cross)) if cross else float("inf")
    _require_noise(first, X, SMALL * each * cross**0.5)
    return SplitHalf(each, each / 2**0.5, int(X.shape[0]), width)


def _require_random(phi: FeatureMap) -> None:
    if not isinstance(phi, FeatureMap):
        raise InvalidType(f"split_half_error: both maps must be a FeatureMap; got {phi!r}.")
    require_real(phi, "split_half_error")
    if phi.below_kernel:
        raise InvalidInput(
            "split_half_error requires random, unbiased features (Fourier, sketches); got "
            f"{type(phi).__name__}, which stays below its kernel. "
            "approximation_residual(phi, X) has its error."
        )


def _require_noise(phi: FeatureMap, X: Array, most: float) -> None:
    """Refuse a map of which more is left out than this: ‖K − K̃‖_F ≤ Σ e(x_i)."""
    e, k = 0.0, 0.0
    for start in range(0, X.shape[0], BLOCK):
        rows = in_float64(X[start : start + BLOCK])
        rest = phi.left_out(rows)
        if rest is None:
            raise InvalidInput(
                "split_half_error requires features whose mean over draws is the kernel; got "
                f"{type(phi).__name__}, whose error is not noise alone. certify(phi, X, alpha=...) "
                "measures all of it."
            )
        e, k = e + float(rest.sum()), k + float(to_numpy(phi.kernel.diag(rows)).sum())
    if e > most:
        raise InvalidInput(
            "split_half_error requires features whose mean over draws is the kernel; these leave "
            f"out {100 * e / k:.2g} % of its trace in every draw, which two draws cannot show. Ask "
            "for a higher degree or order, or use certify(phi, X, alpha=...), which measures all "
            "of it."
        )


def _grams(first: FeatureMap, second: FeatureMap, X: Array) -> tuple[Array, Array, Array]:
    """Z_Aᵀ Z_A, Z_Bᵀ Z_B and Z_Aᵀ Z_B, summed in float64."""
    a, b = first.n_features, second.n_features
    A, B, C = np.zeros((a, a)), np.zeros((b, b)), np.zeros((a, b))
    for Z, V in zip(_blocks(first, X), _blocks(second, X), strict=True):
        A += Z.T @ Z
        B += V.T @ V
        C += Z.T @ V
    return A, B, C


# --- What a map below its kernel leaves out of each row: e(x) = k(x, x) − |φ(x)|² ≥ 0 ------------
#
# If Z Zᵀ ⪯ K for any rows, then for any two, seen or not, |k(x, y) − φ(x)·φ(y)|² ≤ e(x) e(y), and
# ‖K − Z Zᵀ‖ ≤ Tr(K − Z Zᵀ) = Σ e(x_i). No sample, no probability.


@dataclass(frozen=True, eq=False)
class ApproximationResidual(ShownResult):
    """How much of each row a map has; ``print`` says it in sentences.

    Attributes
    ----------
    residual : (n,)
        e(x) = k(x, x) − |φ(x)|², zero or above: zero where the map is exact.
    size : (n,)
        k(x, x).
    """

    residual: Float[np.ndarray, " n"]
    size: Float[np.ndarray, " n"]

    @property
    def score(self) -> Float[np.ndarray, " n"]:
        """|φ(x)|²/k(x, x): 1 where the map has all of x, 0 where it knows nothing of it."""
        nothing = np.zeros_like(self.residual)
        share = np.divide(self.residual, self.size, out=nothing, where=self.size > 0)
        return 1.0 - np.clip(share, 0.0, 1.0)

    @property
    def trace(self) -> float:
        """Σ e(x_i) = Tr(K − Z Zᵀ), no less than ‖K − Z Zᵀ‖."""
        return float(self.residual.sum())

    def entry_bound(self, i: int, j: int) -> float:
        """Return √(e(x_i) e(x_j)), what |φ(x_i)·φ(x_j) − k(x_i, x_j)| does not exceed."""
        return float(np.sqrt(self.residual[i] * self.residual[j]))

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

    Raises
    ------
    InvalidInput
        If the map is not below its kernel, or X does not fit it.

    Notes
    -----
    That of φ(X), memory one block of features. In float32 e(x) is known to about 1e-6 k(x, x).

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
    held = [np.einsum("ij,ij->i", Z, Z) for Z in _blocks(phi, X)]
    size = to_numpy(kernel.diag(in_float64(X))).astype(np.float64)
    return ApproximationResidual(np.maximum(size - np.concatenate([np.empty(0), *held]), 0.0), size)
