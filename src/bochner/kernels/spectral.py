"""Spectral measures as values: the law of ω with k(x − y) = E cos ω·(x − y) (Bochner).

Every measure here is exact in any dimension. Two shapes cover all kernels of this package:

* `GaussianMixture`: ω = s · z / ℓ, with z ~ N(0, I) and **one** s ≥ 0 for the whole vector. Then
  k(x, y) = E exp(−s² r²/2), r = |(x − y)/ℓ|. One s for each coordinate would be another kernel.
* `Independent`: ω_j = c_j / ℓ_j, with independent c_j of one law.

ω is in radians per unit of x.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import gammainccinv, gammaincinv, gammaln, kve, logsumexp

from bochner.errors import UnsupportedKernel

Numbers = np.ndarray
Sample = Callable[..., Numbers]


def unknown(*_: Any) -> Any:
    """Refuse what has no closed form."""
    raise UnsupportedKernel(
        "Quantiles and densities of frequencies have no closed form for ExponentialPower. Use "
        "Fourier(Orthogonal()), Fourier(IID()), Nystrom(...) or a Matern kernel."
    )


@dataclass(frozen=True, eq=False)
class Law:
    """Law of a number c, symmetric about zero, or of the factor s² of a Gaussian vector."""

    second_moment: float | Numbers  # E c², E s², possibly infinite; an array where columns differ
    sample: Sample  # (rng, size): independent values of c or s²
    quantile: Callable[[Numbers], Numbers] = unknown  # c or s² with P(value ≤ it) = u, u in (0, 1)
    #: Log density at c; or, from (q, d), of s·z in R^d where |s·z|² = q, z ~ N(0, I).
    log_density: Callable[..., Numbers] = unknown
    fixed: bool = False  # whether s² is the same for every vector


def fixed(value: float = 1.0) -> Law:
    """s² = v > 0 for every vector: a Gaussian of variance v."""
    return Law(
        value,
        lambda _, m: np.full(m, value),
        lambda u: np.full_like(u, value),
        lambda q, d: -0.5 * (q / value + d * math.log(2 * math.pi * value)),
        fixed=True,
    )


def inverse_chi2(dof: float) -> Law:
    """s² = f / χ²_f: the multivariate Student t; f = 2ν for the Matérn kernel of smoothness ν."""

    def log_density(q: Numbers, d: int) -> Numbers:
        constant = gammaln((dof + d) / 2) - gammaln(dof / 2) - 0.5 * d * math.log(dof * math.pi)
        return constant - 0.5 * (dof + d) * np.log1p(q / dof)

    return Law(
        dof / (dof - 2) if dof > 2 else math.inf,
        lambda rng, m: dof / rng.chisquare(dof, m),
        lambda u: 0.5 * dof / gammainccinv(0.5 * dof, u),
        log_density,
    )


def gamma_mixing(a: float) -> Law:
    """s² ~ Gamma(shape a, rate a), of mean 1: a is the shape of the rational quadratic kernel."""

    def log_density(q: Numbers, d: int) -> Numbers:
        order, u = a - 0.5 * d, np.sqrt(2 * a * q)
        constant = a * math.log(a) - gammaln(a) - 0.5 * d * math.log(2 * math.pi) + math.log(2)
        return constant + 0.5 * order * np.log(q / (2 * a)) + np.log(kve(order, u)) - u

    return Law(
        1.0,
        lambda rng, m: rng.standard_gamma(a, m) / a,
        lambda u: gammaincinv(a, u) / a,
        log_density,
    )


#: Density 1 / (π (1 + c²)), characteristic function exp(−|t|).
CAUCHY = Law(
    math.inf,
    lambda rng, size: rng.standard_cauchy(size),
    lambda u: np.tan(np.pi * (u - 0.5)),
    lambda c: -np.log1p(c * c) - math.log(math.pi),
)

#: Density ½ exp(−|c|), characteristic function 1 / (1 + t²).
LAPLACE = Law(
    2.0,
    lambda rng, size: rng.laplace(size=size),
    lambda u: np.sign(u - 0.5) * -np.log1p(-np.abs(2 * u - 1)),
    lambda c: -np.abs(c) - math.log(2),
)


def _sech_quantile(u: Numbers) -> Numbers:
    return np.log(np.tan(0.5 * np.pi * u)) / np.pi


#: Density sech(πc), characteristic function sech(t/2).
SECH = Law(
    0.25,
    lambda rng, size: _sech_quantile(rng.uniform(size=size)),
    _sech_quantile,
    lambda c: math.log(2) - np.pi * np.abs(c) - np.log1p(np.exp(-2 * np.pi * np.abs(c))),
)


# Laws of a frequency vector ω in R^d, symmetric about zero: E |ω|², possibly infinite, m
# independent frequencies (m, d), and the log density at rows W (m, d); scales are 1/ℓ, (d,).


@dataclass(frozen=True, eq=False)
class GaussianMixture:
    """ω = s · z ∘ scales, with z ~ N(0, I) and one factor s² for the whole vector."""

    mixing: Law  # law of s²
    scales: np.ndarray

    @property
    def second_moment(self) -> float:
        return float(self.mixing.second_moment * math.fsum(self.scales**2))

    def sample(self, rng: np.random.Generator, m: int) -> np.ndarray:
        Z = rng.standard_normal((m, len(self.scales)))
        return Z * np.sqrt(self.mixing.sample(rng, m))[:, None] * self.scales

    def log_density(self, W: np.ndarray) -> np.ndarray:
        q = np.sum((W / self.scales) ** 2, axis=1)
        return self.mixing.log_density(q, W.shape[1]) - np.log(self.scales).sum()


@dataclass(frozen=True, eq=False)
class Independent:
    """ω_j = c_j · scales_j, with independent c_j of one law."""

    law: Law  # of each c_j
    scales: np.ndarray

    @property
    def second_moment(self) -> float:
        return float(np.sum(self.law.second_moment * self.scales**2))

    def sample(self, rng: np.random.Generator, m: int) -> np.ndarray:
        return self.law.sample(rng, (m, len(self.scales))) * self.scales

    def log_density(self, W: np.ndarray) -> np.ndarray:
        return np.sum(self.law.log_density(W / self.scales), axis=1) - np.log(self.scales).sum()


@dataclass(frozen=True, eq=False)
class Components:
    """ω = ±μ_q + σ_q ∘ z with z ~ N(0, I); q has probability w_q, and the sign is random."""

    weights: np.ndarray  # of the components; they sum to one
    means: np.ndarray  # μ_q, shape (q, d)
    deviations: np.ndarray  # σ_q, shape (q, d)
    scales: np.ndarray  # ones

    @property
    def second_moment(self) -> float:
        return float(self.weights @ (self.means**2 + self.deviations**2).sum(axis=1))

    def sample(self, rng: np.random.Generator, m: int) -> np.ndarray:
        q = rng.choice(len(self.weights), m, p=self.weights)
        signs = rng.choice((-1.0, 1.0), (m, 1))
        return signs * self.means[q] + self.deviations[q] * rng.standard_normal(
            (m, len(self.scales))
        )

    def log_density(self, W: np.ndarray) -> np.ndarray:
        parts = []
        for w, mu, sigma in zip(self.weights, self.means, self.deviations, strict=True):
            scale = math.log(0.5 * w) - np.log(sigma).sum() - 0.5 * len(mu) * math.log(2 * math.pi)
            parts += [scale - 0.5 * np.sum(((W + m) / sigma) ** 2, axis=1) for m in (mu, -mu)]
        return logsumexp(parts, axis=0)


Measure = GaussianMixture | Independent | Components
