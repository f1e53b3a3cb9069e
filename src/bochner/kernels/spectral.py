"""Spectral measures as values: the law of ω with k(x − y) = E cos ω·(x − y) (Bochner).

Every measure here is exact in any dimension. Two shapes cover all kernels of this package:

* `GaussianMixture`: ω = s · z / ℓ, with z ~ N(0, I) and **one** s ≥ 0 for the whole vector. Then
  k(x, y) = E exp(−s² r²/2), r = |(x − y)/ℓ|. One s for each coordinate would be another kernel.
* `Independent`: ω_j = c_j / ℓ_j, with independent c_j of one law.

ω is in radians per unit of x.
"""

import abc
import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import gammainccinv, gammaincinv, gammaln, kve, logsumexp

from bochner.errors import UnsupportedKernel


class Mixing(abc.ABC):
    """Law of the factor s² ≥ 0 that scales a whole Gaussian vector; all powers below are of s²."""

    #: Whether quantile and density are known in closed form.
    closed: ClassVar[bool] = True

    def quantile(self, u: np.ndarray) -> np.ndarray:
        """Return s² such that P(factor ≤ s²) = u, for u in (0, 1)."""
        raise self._unknown("quantile")

    @abc.abstractmethod
    def sample(self, rng: np.random.Generator, m: int) -> np.ndarray:
        """Return m independent values of s², shape (m,)."""

    @property
    @abc.abstractmethod
    def mean(self) -> float:
        """E s², possibly infinite."""

    def log_density(self, q: np.ndarray, d: int) -> np.ndarray:
        """Return the log density of s·z in R^d where |s·z|² = q, z ~ N(0, I)."""
        raise self._unknown("density")

    def _unknown(self, what: str) -> UnsupportedKernel:
        return UnsupportedKernel(
            f"The {what} of the frequencies has no closed form for ExponentialPower; got {self!r}. "
            "Use Fourier(Orthogonal()), Fourier(IID()), Nystrom(...) or a Matern kernel."
        )


@dataclass(frozen=True)
class Fixed(Mixing):
    """s² = v for every vector: a Gaussian of variance v, by default the standard one."""

    value: float = 1.0  # v > 0

    def quantile(self, u: np.ndarray) -> np.ndarray:
        return np.full_like(u, self.value)

    def sample(self, rng: np.random.Generator, m: int) -> np.ndarray:
        return np.full(m, self.value)

    @property
    def mean(self) -> float:
        return self.value

    def log_density(self, q: np.ndarray, d: int) -> np.ndarray:
        return -0.5 * (q / self.value + d * math.log(2 * math.pi * self.value))


@dataclass(frozen=True)
class InverseChi2(Mixing):
    """s² = f / χ²_f: the multivariate Student t with f degrees of freedom."""

    dof: float  # f > 0; 2ν for the Matérn kernel of smoothness ν

    def quantile(self, u: np.ndarray) -> np.ndarray:
        return 0.5 * self.dof / gammainccinv(0.5 * self.dof, u)

    def sample(self, rng: np.random.Generator, m: int) -> np.ndarray:
        return self.dof / rng.chisquare(self.dof, m)

    @property
    def mean(self) -> float:
        return self.dof / (self.dof - 2) if self.dof > 2 else math.inf

    def log_density(self, q: np.ndarray, d: int) -> np.ndarray:
        f = self.dof
        constant = gammaln((f + d) / 2) - gammaln(f / 2) - 0.5 * d * math.log(f * math.pi)
        return constant - 0.5 * (f + d) * np.log1p(q / f)


@dataclass(frozen=True)
class GammaMixing(Mixing):
    """s² ~ Gamma(shape a, rate a), of mean 1."""

    shape: float  # a > 0; the shape of the rational quadratic kernel

    def quantile(self, u: np.ndarray) -> np.ndarray:
        return gammaincinv(self.shape, u) / self.shape

    def sample(self, rng: np.random.Generator, m: int) -> np.ndarray:
        return rng.standard_gamma(self.shape, m) / self.shape

    mean = 1.0

    def log_density(self, q: np.ndarray, d: int) -> np.ndarray:
        a, order = self.shape, self.shape - 0.5 * d
        u = np.sqrt(2 * a * q)
        constant = a * math.log(a) - gammaln(a) - 0.5 * d * math.log(2 * math.pi) + math.log(2)
        return constant + 0.5 * order * np.log(q / (2 * a)) + np.log(kve(order, u)) - u


class Law(abc.ABC):
    """Law of one real number, symmetric about zero."""

    @abc.abstractmethod
    def quantile(self, u: np.ndarray) -> np.ndarray:
        """Return c such that P(number ≤ c) = u, for u in (0, 1)."""

    @abc.abstractmethod
    def sample(self, rng: np.random.Generator, size: int | tuple[int, ...]) -> np.ndarray:
        """Return independent numbers in an array of this size."""

    @property
    @abc.abstractmethod
    def second_moment(self) -> float | np.ndarray:
        """E c², possibly infinite; an array where columns differ."""

    @abc.abstractmethod
    def log_density(self, c: np.ndarray) -> np.ndarray:
        """Return the log density at c."""


@dataclass(frozen=True)
class CauchyLaw(Law):
    """Density 1 / (π (1 + c²)), characteristic function exp(−|t|)."""

    def quantile(self, u: np.ndarray) -> np.ndarray:
        return np.tan(np.pi * (u - 0.5))

    def sample(self, rng: np.random.Generator, size: int | tuple[int, ...]) -> np.ndarray:
        return rng.standard_cauchy(size)

    second_moment = math.inf

    def log_density(self, c: np.ndarray) -> np.ndarray:
        return -np.log1p(c * c) - math.log(math.pi)


@dataclass(frozen=True)
class LaplaceLaw(Law):
    """Density ½ exp(−|c|), characteristic function 1 / (1 + t²)."""

    def quantile(self, u: np.ndarray) -> np.ndarray:
        return np.sign(u - 0.5) * -np.log1p(-np.abs(2 * u - 1))

    def sample(self, rng: np.random.Generator, size: int | tuple[int, ...]) -> np.ndarray:
        return rng.laplace(size=size)

    second_moment = 2.0

    def log_density(self, c: np.ndarray) -> np.ndarray:
        return -np.abs(c) - math.log(2)


class Measure(abc.ABC):
    """Law of a frequency vector ω in R^d, symmetric about zero."""

    @property
    @abc.abstractmethod
    def scales(self) -> np.ndarray:
        """1 / lengthscale of each column, shape (d,)."""

    @property
    @abc.abstractmethod
    def second_moment(self) -> float:
        """E |ω|², possibly infinite."""

    @abc.abstractmethod
    def sample(self, rng: np.random.Generator, m: int) -> np.ndarray:
        """Return m independent frequencies, shape (m, d)."""

    @abc.abstractmethod
    def log_density(self, W: np.ndarray) -> np.ndarray:
        """Return the log density at each row of W (m, d), shape (m,)."""


@dataclass(frozen=True)
class GaussianMixture(Measure):
    """ω = s · z ∘ scales, with z ~ N(0, I) and one factor s² for the whole vector."""

    mixing: Mixing  # law of s²
    inverse_lengthscales: tuple[float, ...]  # one per column

    @property
    def scales(self) -> np.ndarray:
        return np.array(self.inverse_lengthscales)

    @property
    def second_moment(self) -> float:
        return self.mixing.mean * math.fsum(s * s for s in self.inverse_lengthscales)

    def sample(self, rng: np.random.Generator, m: int) -> np.ndarray:
        Z = rng.standard_normal((m, len(self.inverse_lengthscales)))
        return Z * np.sqrt(self.mixing.sample(rng, m))[:, None] * self.scales

    def log_density(self, W: np.ndarray) -> np.ndarray:
        q = np.sum((W / self.scales) ** 2, axis=1)
        return self.mixing.log_density(q, W.shape[1]) - np.log(self.scales).sum()


@dataclass(frozen=True)
class Independent(Measure):
    """ω_j = c_j · scales_j, with independent c_j of one law."""

    law: Law  # of each c_j
    inverse_lengthscales: tuple[float, ...]  # one per column

    @property
    def scales(self) -> np.ndarray:
        return np.array(self.inverse_lengthscales)

    @property
    def second_moment(self) -> float:
        return float(np.sum(self.law.second_moment * self.scales**2))

    def sample(self, rng: np.random.Generator, m: int) -> np.ndarray:
        return self.law.sample(rng, (m, len(self.inverse_lengthscales))) * self.scales

    def log_density(self, W: np.ndarray) -> np.ndarray:
        return np.sum(self.law.log_density(W / self.scales), axis=1) - np.log(self.scales).sum()


@dataclass(frozen=True)
class Components(Measure):
    """ω = ±μ_q + σ_q ∘ z with z ~ N(0, I), the component q drawn by weight, the sign by a coin."""

    weights: tuple[float, ...]  # of the components; they sum to one
    means: tuple[tuple[float, ...], ...]  # μ_q, d numbers each
    deviations: tuple[tuple[float, ...], ...]  # σ_q

    @property
    def scales(self) -> np.ndarray:
        return np.ones(len(self.means[0]))

    @property
    def second_moment(self) -> float:
        squares = np.square(self.means) + np.square(self.deviations)
        return float(np.array(self.weights) @ squares.sum(axis=1))

    def sample(self, rng: np.random.Generator, m: int) -> np.ndarray:
        q = rng.choice(len(self.weights), m, p=np.array(self.weights))
        signs = rng.choice((-1.0, 1.0), (m, 1))
        Z = rng.standard_normal((m, len(self.means[0])))
        return signs * np.array(self.means)[q] + np.array(self.deviations)[q] * Z

    def log_density(self, W: np.ndarray) -> np.ndarray:
        parts = []
        for w, mean, deviation in zip(self.weights, self.means, self.deviations, strict=True):
            mu, sigma = np.array(mean), np.array(deviation)
            scale = math.log(0.5 * w) - np.log(sigma).sum() - 0.5 * len(mu) * math.log(2 * math.pi)
            parts += [scale - 0.5 * np.sum(((W + m) / sigma) ** 2, axis=1) for m in (mu, -mu)]
        return logsumexp(parts, axis=0)
