"""Errors due to features: the risk of ridge regression, and the costs of clusters and PCA.

The risk of ridge regression on features, at the training rows, has three parts: regularisation,
noise and approximation. With y = f + noise of variance σ² and S = K(K + λI)⁻¹, the expected mean
squared distance of the fit from f, over m rows, is

    R(K) = ‖(I − S) f‖²/m + σ² Tr S²/m:    regularisation + noise.

R(K̂) − R(K), K̂ = Z Zᵀ, is the cost of the approximation. f is unknown, but E ‖(I − S) y‖² =
‖(I − S) f‖² + σ² Tr (I − S)², so that each part has an unbiased estimate given σ² (Mallows 1973).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import brentq

from bochner._core.arrays import as_array, as_matrix, take, to_numpy
from bochner._core.blas import eigh, eigvalsh
from bochner._core.checks import integer, nonnegative, positive
from bochner._core.random import Seed, seed_of, stream
from bochner._core.shapes import Array, Float, Rows
from bochner._core.text import HtmlResult
from bochner.certificates.pencil import EPS, distance, rows_of, sample, spectrum
from bochner.errors import InvalidInput


@dataclass(frozen=True)
class Risk(HtmlResult):
    """Expected squared error of a fit about the truth, split by cause; see :func:`bochner.risk`.

    Attributes
    ----------
    approximation : float
        R(K̂) − R(K): the risk that features add to the exact kernel's; negative if they lower it.
    regularisation : float
        ‖(I − S)f‖²/m, S = K(K + λI)⁻¹, f the truth: squared bias due to the penalty.
    noise : float
        σ² Tr S²/m of the exact kernel: variance of the fit due to noise.
    noise_variance : float
        σ².
    epsilon : float
        The spectral distance on these rows.
    guarantee : float
        G = (λ f·(K + λI)⁻¹f + σ² d_λ)/m, which R(K) does not exceed.
    bound : float or None
        G/(1 − ε) + ε/(1 + ε) · min(D, m)/m · σ², which R(K̂) does not exceed; None if ε ≥ 1.
    alpha : float
        λ, the penalty for the rows measured: alpha of the fit times m/n.
    n_rows, n_features : int
        Number of rows measured, and D.
    """

    approximation: float
    regularisation: float
    noise: float
    noise_variance: float
    epsilon: float
    guarantee: float
    bound: float | None
    alpha: float
    n_rows: int
    n_features: int

    @property
    def exact_kernel(self) -> float:
        """R(K): the risk of the exact kernel at this penalty."""
        return self.regularisation + self.noise

    @property
    def total(self) -> float:
        """R(K̂): the risk of the fit with features."""
        return self.exact_kernel + self.approximation

    def __str__(self) -> str:
        split = (
            f"On {self.n_rows:,} rows at alpha = {self.alpha:.3g} the expected squared error about "
            f"the truth is {self.total:.3g}: {self.regularisation:.2g} from the penalty, "
            f"{self.noise:.2g} from noise (of variance {self.noise_variance:.2g}), and "
            f"{self.approximation:.2g} from the approximation by {self.n_features:,} features."
        )
        bound = (
            "ε is 1 or more, so there is no bound."
            if self.bound is None
            else f"Its bound is {self.bound:.3g} (ε = {self.epsilon:.2g})."
        )
        gain = f"up to {self.approximation:.2g}."
        if self.approximation <= 0.1 * self.exact_kernel:
            gain = "little: the exact kernel has nearly the same error."
        return f"{split} {bound} More features would gain {gain}"


def risk(
    phi: Any,
    X: Rows,
    y: Array,
    *,
    alpha: float,
    kernel: Any = None,
    noise: float | None = None,
    n_sample: int = 2048,
    random_state: Seed = None,
) -> Risk:
    """Split the expected error of a ridge regression with features into its causes; O(m³).

    Parameters
    ----------
    phi : FeatureMap
        A map, or any callable from rows to features.
    X : (n, d)
    y : (n,) or (n, t)
        Targets; their mean is subtracted. Errors of several targets are added.
    alpha : float
        Penalty of the fit, above zero, on the scale of the n rows.
    kernel : Kernel, optional
        ``phi.kernel`` if not given.
    noise : float, optional
        σ², the noise's variance (the sum over targets). Default: estimated from the residuals of a
        fit whose effective dimension is about m/2.
    n_sample : int, default 2048
        Number of rows measured; if X has more, a random sample at the penalty alpha·m/n. The
        numbers hold for a fit to these rows, which has more variance than a fit to all rows.
    random_state : int, Generator, RandomState or None

    Returns
    -------
    Risk

    Notes
    -----
    ``approximation``, ``regularisation`` and ``noise`` are unbiased given σ², except that negative
    estimates of regularisation are set to zero.
    Sources: Mallows (1973); Avron et al. (2017), lemma 2, for the bound, which contains an upper
    bound of R(K) instead of R(K): ε does not bound R(K̂)/R(K).

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> X = np.random.default_rng(0).standard_normal((100, 2))
    >>> phi = bo.draw(bo.kernels.Gaussian(), "fourier", n_features=500, n_inputs=2, random_state=0)
    >>> split = bo.risk(phi, X, np.sin(X[:, 0]), alpha=1.0, noise=0.01)
    >>> abs(split.approximation) < split.exact_kernel and split.total < split.bound
    True
    """
    alpha = positive(alpha, "risk", "alpha")
    n_sample = integer(n_sample, "risk", "n_sample", minimum=8)
    X, y = as_matrix(X, "risk"), to_numpy(as_array(y, "risk", "y")).astype(np.float64)
    n = int(X.shape[0])
    if y.ndim not in (1, 2) or len(y) != n or n < 8:
        raise InvalidInput(
            f"risk: X and y must have the same number of rows, 8 or more; got {n} and "
            f"{y.shape}. Pass the rows and targets of the fit."
        )
    if not np.isfinite(y).all():
        raise InvalidInput("risk: y must be finite; got NaN or infinity. Leave such rows out.")
    y = y.reshape(n, -1)
    if n > n_sample:
        index = stream(seed_of(random_state), "risk").permutation(n)[:n_sample]
        X, y = take(X, index, axis=0), y[index]
    y = y - y.mean(axis=0)
    (K, E, D), m = sample(phi, X, kernel), len(y)
    penalty = alpha * m / n
    measured = distance(K, E, m, penalty, 0.95)
    values, energy = _energies(K, y)
    if noise is None:
        variance = noise_variance(values, energy, penalty)
    else:
        variance = nonnegative(noise, "risk", "noise")
    # Means over rows, sums over targets; w of the signal are squares of eigenvalues of I − S
    signal = lambda w, energy: max(float(np.mean(w * (energy - variance))), 0.0)
    var = lambda shrinkage: variance * float(np.mean((1 - shrinkage) ** 2))
    shrinkage, e = penalty / (values + penalty), measured["epsilon"]
    regularisation, fit_noise = signal(shrinkage**2, energy), var(shrinkage)
    # G = (λ f·(K + λI)⁻¹f + σ² d_λ)/m
    guarantee = signal(shrinkage, energy) + variance * float(np.mean(1 - shrinkage))
    rank_noise = min(D, m) / m * variance
    values, energy = _energies(K + E, y)
    shrinkage = penalty / (values + penalty)
    return Risk(
        approximation=signal(shrinkage**2, energy) + var(shrinkage) - regularisation - fit_noise,
        regularisation=regularisation,
        noise=fit_noise,
        noise_variance=variance,
        epsilon=e,
        guarantee=guarantee,
        bound=None if e >= 1 else guarantee / (1 - e) + e / (1 + e) * rank_noise,
        alpha=penalty,
        n_rows=m,
        n_features=D,
    )


def _energies(
    K: Float[np.ndarray, "m m"], y: Float[np.ndarray, "m t"]
) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
    """Return the eigenvalues of K, and Σ (v·y)² over targets for each eigenvector v."""
    values, vectors = eigh(K, check_finite=False)
    return np.maximum(values, 0.0), np.sum((vectors.T @ y) ** 2, axis=1)


def noise_variance(
    values: Float[np.ndarray, " m"], energy: Float[np.ndarray, " m"], penalty: float
) -> float:
    """Return the estimate ‖(I − S)y‖²/Tr (I − S)² of σ², at λ ≤ 2 ``penalty`` nearest d_λ = m/2."""
    floor = len(values) * EPS * max(float(values[-1]), np.finfo(float).tiny)
    excess = lambda log: float(np.sum(np.exp(log) / (values + np.exp(log)))) - len(values) / 2
    low, high = np.log(floor), np.log(max(penalty, 2 * floor))
    half = high
    if excess(high) > 0:
        half = low if excess(low) > 0 else brentq(excess, low, high)
    weights = (np.exp(half) / (values + np.exp(half))) ** 2
    return float(weights @ energy) / float(weights.sum())


# --- Clustering and principal components of features: the error of the cost of every projection --
#
# The cost of a projection P of rank k is Tr(K − PKP). Kernel k-means with k clusters and kernel PCA
# with k components minimise it, each over a set of projections. With E = Z Zᵀ − K,
#
#     cost of Z − cost of K = Tr((I − P)E),
#
# from Tr E minus the k largest eigenvalues of E to Tr E minus the k smallest, over P of rank k.


@dataclass(frozen=True)
class CostCertificate(HtmlResult):
    """Range of cost with features − cost with the kernel; see :func:`bochner.certify_costs`.

    Attributes
    ----------
    rank : int
        k, number of clusters or components.
    lowest, highest : float
        Range of cost with features − cost with the kernel, over projections of this rank.
    best_cost : float
        Σ_{i>k} λ_i(K), λ_i the i-th largest eigenvalue: the smallest cost with the kernel.
    n_rows, n_features : int
        Number of rows measured, and D.
    """

    rank: int
    lowest: float
    highest: float
    best_cost: float
    n_rows: int
    n_features: int

    @property
    def relative_error(self) -> float:
        """ε: for each projection, the two costs differ by at most ε times the kernel's cost."""
        worst = max(abs(self.lowest), abs(self.highest))
        return worst / self.best_cost if self.best_cost > 0 else float("inf")

    @property
    def factor(self) -> float | None:
        """Bound of the kernel cost of the features' best projection, divided by ``best_cost``.

        (1 + a)/(1 − b), a = highest/best_cost, b = −lowest/best_cost; None (no bound) if b ≥ 1.
        """
        if self.best_cost <= 0:
            return None
        upper, lower = max(self.highest, 0) / self.best_cost, max(-self.lowest, 0) / self.best_cost
        return None if lower >= 1 else (1 + upper) / (1 - lower)

    def __str__(self) -> str:
        means = (
            "there is no bound of the cost of a clustering of the features in the kernel"
            if self.factor is None
            else "the cost of the best clustering of the features in the kernel is at most "
            f"{self.factor:.4g} times the least cost"
        )
        return (
            f"With {self.n_features:,} features, the cost of {self.rank} clusters or components of "
            f"{self.n_rows:,} rows is within {100 * self.relative_error:.2g} % of the cost with "
            f"the exact kernel. So {means}."
        )


def certify_costs(
    phi: Any,
    X: Rows,
    *,
    rank: int,
    kernel: Any = None,
    n_sample: int = 2048,
    random_state: Seed = None,
) -> CostCertificate:
    """Bound the error of clustering and PCA costs computed from φ(X) instead of K.

    Parameters
    ----------
    phi : FeatureMap
        A map, or any callable from rows to features.
    X : (n, d)
    rank : int
        k, the number of clusters or components; less than the number of rows measured.
    kernel : Kernel, optional
        ``phi.kernel`` if not given.
    n_sample : int, default 2048
        Number m of rows measured, at random if X has more; the result holds for these rows.
    random_state : int, Generator, RandomState or None

    Returns
    -------
    CostCertificate

    Notes
    -----
    For the rows measured, ``lowest`` and ``highest`` are exact up to rounding: some projection has
    each of these differences. Time O(m³).
    Sources: Han et al. (2022), theorem 10 and lemma 14; Cohen et al. (2015).

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> X = np.random.default_rng(0).standard_normal((100, 2))
    >>> phi = bo.draw(bo.kernels.Gaussian(), "fourier", n_features=500, n_inputs=2, random_state=0)
    >>> costs = bo.certify_costs(phi, X, rank=5)
    >>> 0 < costs.relative_error < 1 < costs.factor
    True
    """
    n_sample = integer(n_sample, "certify_costs", "n_sample", minimum=2)
    rows = rows_of(X, n_sample, random_state)
    rank = integer(rank, "certify_costs", "rank", minimum=1)
    m = int(rows.shape[0])
    if rank >= m:
        raise InvalidInput(
            f"certify_costs: rank must be below the {m} rows measured; got {rank}. Ask for a lower "
            "rank, or measure more rows."
        )
    K, E, D = sample(phi, rows, kernel)
    lowest, highest = cost_changes(E, rank)
    return CostCertificate(
        rank=rank,
        lowest=lowest,
        highest=highest,
        best_cost=float(spectrum(K)[: m - rank].sum()),
        n_rows=m,
        n_features=D,
    )


def cost_changes(E: Float[np.ndarray, "m m"], rank: int) -> tuple[float, float]:
    """Return the least and largest change of the cost of projections of this rank, for K + E."""
    errors, trace = eigvalsh(E, check_finite=False), float(np.trace(E))
    return trace - float(errors[-rank:].sum()), trace - float(errors[:rank].sum())
