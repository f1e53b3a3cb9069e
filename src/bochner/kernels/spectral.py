"""Spectral measures: the distribution of ω with k(x − y) = E cos ω·(x − y) (Bochner).

Every measure is exact in any dimension. Nearly all kernels of this package have one of two forms:

* ω = s · z / ℓ, with z ~ N(0, I) and **one** s ≥ 0 for the whole vector. Then k(x, y) =
  E exp(−s² r²/2), r = |(x − y)/ℓ|. One s per coordinate would be a different kernel.
* ω_j = c_j / ℓ_j, with independent c_j of one law.

ω is in radians per unit of x.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.special import gammainccinv, gammaincinv, gammaln, kve, logsumexp, ndtri

from bochner.errors import UnsupportedKernel

Numbers = np.ndarray
Sample = Callable[..., Numbers]


def unknown(*_: Any) -> Any:
    """Raise UnsupportedKernel: the quantile or the density has no closed form."""
    raise UnsupportedKernel(
        "Quantiles and densities of frequencies have no closed form for ExponentialPower. Use "
        "Fourier(Orthogonal()), Fourier(IID()), Nystrom(...) or a Matern kernel."
    )


@dataclass(frozen=True, eq=False)
class Law:
    """Distribution of a coordinate c, symmetric about 0, or of a Gaussian vector's factor s²."""

    second_moment: float | Numbers  # E c² or E s², possibly infinite; an array if columns differ
    sample: Sample  # (rng, size): independent values of c or s²
    quantile: Callable[[Numbers], Numbers] = unknown  # c or s² at probability u, 0 < u < 1
    #: Log density at c; or, from (q, d), of s·z in R^d where |s·z|² = q, z ~ N(0, I).
    log_density: Callable[..., Numbers] = unknown
    constant: bool = False  # whether s² is constant
    discrete: bool = False  # whether c is an integer, and densities are probabilities


def constant_law(value: float = 1.0) -> Law:
    """Return the distribution of a constant s² = value: ω is Gaussian of this variance."""
    return Law(
        value,
        lambda _, m: np.full(m, value),
        lambda u: np.full_like(u, value),
        lambda q, d: -0.5 * (q / value + d * math.log(2 * math.pi * value)),
        constant=True,
    )


def inverse_chi2(dof: float) -> Law:
    """Return the distribution of s² = f/χ²_f of the multivariate Student t; f = 2ν for Matérn."""

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
    """Return the distribution Gamma(shape a, rate a), of mean 1, of the rational quadratic's s²."""

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

#: Density sech(πc), characteristic function sech(t/2).
SECH: Law = Law(
    0.25,
    lambda rng, size: SECH.quantile(rng.uniform(size=size)),
    lambda u: np.log(np.tan(0.5 * np.pi * u)) / np.pi,
    lambda c: math.log(2) - np.pi * np.abs(c) - np.log1p(np.exp(-2 * np.pi * np.abs(c))),
)


def components(weights: Numbers, means: Numbers, deviations: Numbers) -> Law:
    """Return the distribution of c = ±μ_q + σ_q ∘ z, z ~ N(0, I): q has probability weights[q]."""

    def sample(rng: np.random.Generator, size: tuple[int, int]) -> Numbers:
        q = rng.choice(len(weights), size[0], p=weights)
        signs = rng.choice((-1.0, 1.0), (size[0], 1))
        return signs * means[q] + deviations[q] * rng.standard_normal(size)

    def quantile(u: Numbers) -> Numbers:
        q = np.searchsorted(np.cumsum(weights)[:-1], u[:, -1])
        return means[q] + deviations[q] * ndtri(u[:, :-1])

    def log_density(c: Numbers) -> Numbers:
        parts = []
        for w, mu, sigma in zip(weights, means, deviations, strict=True):
            scale = math.log(0.5 * w) - np.log(sigma).sum() - 0.5 * len(mu) * math.log(2 * math.pi)
            parts += [scale - 0.5 * np.sum(((c + m) / sigma) ** 2, axis=1) for m in (mu, -mu)]
        return logsumexp(parts, axis=0)[:, None]

    return Law(weights @ (means**2 + deviations**2), sample, quantile, log_density)


@dataclass(frozen=True, eq=False)
class Measure:
    """Distribution of ω = c ∘ scales in R^d, symmetric about zero; scales are 1/ℓ, (d,)."""

    law: Law
    scales: np.ndarray
    #: The variable of `law`: independent "coordinates" c_j; the "factor" s² of c = s · z,
    #: z ~ N(0, I); or "vectors" c, whose quantile takes d + 1 uniform numbers.
    role: str = "coordinates"

    @property
    def second_moment(self) -> float:
        """E |ω|², possibly infinite."""
        return float(np.sum(self.law.second_moment * self.scales**2))

    @property
    def isotropic(self) -> bool:
        """Whether the distribution of c is rotation invariant."""
        return self.role == "factor"

    @property
    def has_density(self) -> bool:
        """Whether the density of the frequencies is known."""
        return self.law.log_density is not unknown and not self.law.discrete

    def place(self, place: "Place", m: int, rng: np.random.Generator) -> Numbers:
        """Return m frequencies, (d, m), drawn by the function ``place``."""
        return place(self, m, rng)

    def sample(self, rng: np.random.Generator, m: int) -> np.ndarray:
        """Return m independent frequencies, (m, d)."""
        shape = m, len(self.scales)
        if self.role != "factor":
            return self.law.sample(rng, shape) * self.scales
        Z = rng.standard_normal(shape)
        return Z * np.sqrt(self.law.sample(rng, m))[:, None] * self.scales

    def log_density(self, W: np.ndarray) -> np.ndarray:
        """Return the log density at rows W (m, d)."""
        c = W / self.scales
        if self.role == "factor":
            logs = self.law.log_density(np.sum(c**2, axis=1), W.shape[1])
        else:
            logs = np.sum(self.law.log_density(c), axis=1)
        return logs - np.log(self.scales).sum()


#: Function from a measure, m and a generator to m frequencies, shape (d, m).
Place = Callable[[Measure, int, np.random.Generator], Numbers]


@dataclass(frozen=True, eq=False)
class Composite:
    """Distribution of frequencies that are computed from the frequencies of other kernels."""

    parts: tuple["Frequencies", ...]
    draw: Callable[..., Numbers]  # from m, a generator and one sampler per part, to (d, m)
    moment: Callable[..., float]  # from E |ω|² of each part

    @property
    def second_moment(self) -> float:
        """E |ω|², possibly infinite, or NaN if it is unknown."""
        return self.moment(*(part.second_moment for part in self.parts))

    @property
    def isotropic(self) -> bool:
        """Whether the distribution of every part is rotation invariant."""
        return all(part.isotropic for part in self.parts)

    def place(self, place: Place, m: int, rng: np.random.Generator) -> Numbers:
        """Return m frequencies, (d, m), from frequencies of the parts that ``place`` draws."""
        return self.draw(m, rng, *(partial(part.place, place, m, rng) for part in self.parts))


Frequencies = Measure | Composite


def composite(
    draw: Callable[..., Numbers], moment: Callable[..., float], *parts: Frequencies | None
) -> Composite | None:
    """Return the `Composite` of the parts by ``draw`` and ``moment``; None if a part is None."""
    measures = tuple(part for part in parts if part is not None)
    return Composite(measures, draw, moment) if len(measures) == len(parts) else None
