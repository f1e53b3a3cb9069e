"""The exponential power kernel exp(−r^γ), and the positive stable law that mixes it of Gaussians.

A > 0 with E exp(−tA) = exp(−t^b), b = γ/2 in (0, 1). With Kanter's function

    a(θ) = sin(bθ)^(b/(1−b)) sin((1−b)θ) / sin(θ)^(1/(1−b)), 0 < θ < π,

A has the law of (a(U)/E)^((1−b)/b), U uniform on (0, π), E standard exponential [Kanter (1975);
Chambers, Mallows & Stuck (1976)], so that P(A ≤ x) = E exp(−z a(U)) with z = x^(−b/(1−b)).
"""

import math
from dataclasses import dataclass
from functools import cache
from typing import final

import numpy as np

from bochner._core.arrays import array_namespace
from bochner._core.checks import numbers, positive
from bochner._core.shapes import Array
from bochner.errors import NotPositive
from bochner.kernels.spectral import Fixed, Mixing
from bochner.kernels.stationary import Compiled, Lengthscale, Radial

STEPS = 1 / 512, 1 / 32
"""Least and largest step of the double exponential rule for integrals over θ."""

BLOCK = 4096
"""Quantiles that are found together."""


@final
@dataclass(frozen=True)
class ExponentialPower(Radial):
    """k(x, y) = exp(−r^γ), r = |(x − y)/ℓ|: from rough (γ → 0) to the Gaussian (γ = 2).

    γ = 1 is `Exponential`; γ = 2 is ``Gaussian(lengthscale / √2)``. Also called powered
    exponential or stretched exponential kernel.

    Spectral measure: isotropic γ-stable, ω = (z/ℓ)√(2A), z ~ N(0, I), and **one** positive
    (γ/2)-stable A for the whole vector, E exp(−tA) = exp(−t^(γ/2)).

    Parameters
    ----------
    power : float, default 1.0
        γ in (0, 2]: above 2 it is not positive.
    lengthscale : float or one per column, default 1.0
        ℓ > 0, in the units of X.
    """

    power: float = 1.0
    lengthscale: Lengthscale = 1.0

    def __post_init__(self) -> None:
        power = positive(self.power, "ExponentialPower", "power")
        if power > 2:
            raise NotPositive(
                f"ExponentialPower: power must be at most 2, or the function is not positive "
                f"semi-definite; got {power!r}. Pass 2.0 for the smoothest, a Gaussian."
            )
        object.__setattr__(self, "power", power)
        scale = numbers(self.lengthscale, "ExponentialPower", "lengthscale")
        object.__setattr__(self, "lengthscale", scale)

    def profile(self, s: Array) -> Array:
        return array_namespace(s).exp(-(s ** (0.5 * self.power)))

    @property
    def mixing(self) -> Mixing:
        return Stable(self.power) if self.power < 2 else Fixed(2.0)

    @property
    def compiled(self) -> Compiled | None:
        return ("exponential", 1.0) if self.power == 1 else None


@final
@dataclass(frozen=True)
class Stable(Mixing):
    """s² = 2A, A positive (γ/2)-stable: k = E exp(−s² r²/2) = exp(−r^γ).

    Parameters
    ----------
    power : float
        γ in (0, 2); 1 is the multivariate Cauchy law of the exponential kernel.
    """

    power: float

    @property
    def _index(self) -> float:
        return 0.5 * self.power

    def quantile(self, u: np.ndarray) -> np.ndarray:
        """Invert P(A ≤ x) by bisection for log z; to about 1e-9."""
        b, flat = self._index, np.asarray(u, dtype=float).reshape(-1)
        parts = [_bisect(flat[i : i + BLOCK], b) for i in range(0, flat.size, BLOCK)]
        log_z = np.concatenate([np.empty(0), *parts]).reshape(np.shape(u))
        with np.errstate(over="ignore"):
            return 2.0 * np.exp(-log_z * (1 - b) / b)

    def sample(self, rng: np.random.Generator, m: int) -> np.ndarray:
        b = self._index
        theta = rng.uniform(0, math.pi, m)
        log_a = _log_kanter(theta, math.pi - theta, b)
        with np.errstate(over="ignore"):
            return 2.0 * np.exp((log_a - np.log(rng.standard_exponential(m))) * (1 - b) / b)

    @property
    def mean(self) -> float:
        return math.inf

    def log_density(self, q: np.ndarray, d: int) -> np.ndarray:
        """Integrate the density of s·z given A over A, on a grid of log A: to about 1e-9."""
        log_x, log_weight = _density_grid(self._index)
        q = np.asarray(q, dtype=float)[..., None]
        log_normal = -0.5 * d * (math.log(4 * math.pi) + log_x) - 0.25 * q * np.exp(-log_x)
        terms = log_normal + log_weight
        top = terms.max(axis=-1, keepdims=True)
        return (top + np.log(np.exp(terms - top).sum(axis=-1, keepdims=True)))[..., 0]


def _log_kanter(theta: np.ndarray, rest: np.ndarray, b: float) -> np.ndarray:
    """Return log a(θ); ``rest`` is π − θ, whose sine keeps its digits near π."""
    small = np.where(theta < rest, theta, rest)
    first, second = np.log(np.sin(b * theta)), np.log(np.sin((1 - b) * theta))
    return b / (1 - b) * first + second - np.log(np.sin(small)) / (1 - b)


@cache
def _rule(b: float) -> tuple[np.ndarray, np.ndarray]:
    """Return log a at the nodes, and weights that sum to one, of a rule for E over U."""
    step = min(max((1 - b) / 8, STEPS[0]), STEPS[1])  # a(θ) is steep near π for b near one
    t = np.arange(-4.0, 4.0 + step / 2, step)
    share = 1 / (1 + np.exp(math.pi * np.sinh(-t)))  # of (0, π)
    rest = 1 / (1 + np.exp(math.pi * np.sinh(t)))
    weight = math.pi * np.cosh(t) * share * rest
    return _log_kanter(math.pi * share, math.pi * rest, b), weight / weight.sum()


def _bisect(u: np.ndarray, b: float) -> np.ndarray:
    """Return log z with E exp(−z a(U)) = u."""
    log_a, weight = _rule(b)
    low = np.full(u.shape, -40.0 / (1 - b) - 40.0)
    high = np.full(u.shape, 10.0 - log_a.min())
    for _ in range(60):
        middle = 0.5 * (low + high)
        with np.errstate(over="ignore"):
            value = np.exp(-np.exp(middle[..., None] + log_a)) @ weight
        low, high = np.where(value > u, middle, low), np.where(value > u, high, middle)
    return 0.5 * (low + high)


@cache
def _density_grid(b: float) -> tuple[np.ndarray, np.ndarray]:
    """Return log x, and the log of the density of log A there times the grid's step."""
    log_a, weight = _rule(b)
    log_z = np.linspace(-40.0 / (1 - b), 8.0 - log_a.min(), 1200)
    with np.errstate(over="ignore", under="ignore"):
        u = log_z[:, None] + log_a
        density = (np.exp(u - np.exp(u))) @ weight  # of −log z, whose step is that of the grid
    kept = density > 0
    step = log_z[1] - log_z[0]
    return -log_z[kept] * (1 - b) / b, np.log(density[kept] * step)
