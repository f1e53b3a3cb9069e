"""The Matérn kernel of any smoothness: closed forms, Bessel function, and Debye's expansion."""

import math
from dataclasses import dataclass
from functools import cache
from typing import final

import numpy as np
from numpy.polynomial import Polynomial
from scipy.special import gammaln, kve

from bochner._core.arrays import array_namespace, moved, to_numpy
from bochner._core.checks import numbers, positive
from bochner._core.shapes import Array
from bochner.kernels.spectral import InverseChi2, Mixing
from bochner.kernels.stationary import Compiled, Lengthscale, Radial

HALF_INTEGERS = (0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5)
"""Smoothness with a closed form."""

LARGE = 30.0
"""Smoothness from which Debye's expansion is used: there its error is below 1e-13."""


@final
@dataclass(frozen=True)
class Matern(Radial):
    r"""k(x, y) = 2^(1−ν)/Γ(ν) · u^ν K_ν(u), u = √(2ν) r, r = |(x − y)/ℓ|.

    Functions of the space have all derivatives below order ν. ν = ½, 3/2, 5/2: e^(−r),
    (1 + √3 r) e^(−√3 r), (1 + √5 r + 5r²/3) e^(−√5 r); ν → ∞: the Gaussian.

    Spectral measure: multivariate Student t, ω = (z/ℓ)·√(2ν/χ²), z ~ N(0, I), and **one**
    χ² of 2ν degrees of freedom for the whole vector.

    Parameters
    ----------
    smoothness : float, default 1.5
        ν > 0. ½, 3/2 and 5/2 are the fastest. Values that are neither ½, 3/2, ..., 13/2 nor
        above 30 take a Bessel function of SciPy, about 0.4 µs for each pair; distances of another
        array library travel to NumPy and back.
    lengthscale : float or one per column, default 1.0
        ℓ > 0, in the units of X.
    """

    smoothness: float = 1.5
    lengthscale: Lengthscale = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "smoothness", positive(self.smoothness, "Matern", "smoothness"))
        object.__setattr__(self, "lengthscale", numbers(self.lengthscale, "Matern", "lengthscale"))

    def profile(self, s: Array) -> Array:
        if self.smoothness in HALF_INTEGERS:
            return _half_integer(self.smoothness, s)
        if self.smoothness > LARGE:
            return _debye(self.smoothness, s)
        return moved(_bessel(self.smoothness, to_numpy(s).astype(np.float64)), like=s)

    @property
    def mixing(self) -> Mixing:
        return InverseChi2(2.0 * self.smoothness)

    @property
    def compiled(self) -> Compiled | None:
        loops = {0.5: "exponential", 1.5: "matern32", 2.5: "matern52"}
        return (loops[self.smoothness], 1.0) if self.smoothness in loops else None


def _half_integer(smoothness: float, s: Array) -> Array:
    """Return the closed form for ν = p + ½: e^(−u) times a polynomial with positive coefficients.

    Σ_i p!/(2p)! · (2p − i)!/((p − i)! i!) (2u)^i [Rasmussen & Williams (2006), 4.16]. Values
    beyond u = 1000 are zero in every dtype; there the polynomial must not overflow.
    """
    xp = array_namespace(s)
    p = int(smoothness)
    u = xp.clip(xp.sqrt(s) * math.sqrt(2.0 * smoothness), max=1000.0)
    ratios = (2**i * math.comb(p, i) / math.perm(2 * p, i) for i in range(p + 1))
    return _horner(tuple(ratios), u) * xp.exp(-u)


def _bessel(smoothness: float, s: np.ndarray) -> np.ndarray:
    """Return the definition, by logarithms in float64; beyond u = 1e5 every value is zero.

    K_ν(u) overflows near u = 0 for large ν; there k = 1 − u²/(4(ν − 1)) to the last digit.
    """
    u = np.minimum(np.sqrt(2.0 * smoothness * s), 1e5)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        bessel = kve(smoothness, u)
        constant = (1.0 - smoothness) * math.log(2.0) - gammaln(smoothness)
        k = np.exp(constant + smoothness * np.log(u) + np.log(bessel) - u)
    near = ~np.isfinite(bessel)
    k[near] = 1.0 - (u[near] ** 2 / (4.0 * (smoothness - 1.0)) if smoothness > 1 else 0.0)
    return np.minimum(k, 1.0)


def _debye(smoothness: float, s: Array) -> Array:
    """Debye's expansion of K_ν(νz) [DLMF 10.41.4], z² = 2s/ν, its large terms cancelled by hand.

    log k = ν(log1p(e/2) − e) − ½ log w + log(Σ_j (−1)^j U_j(1/w)/ν^j / Σ_j (−1)^j U_j(1)/ν^j),
    w = √(1 + z²), e = w − 1 = z²/(1 + w). As ν → ∞ this is −s/2, the Gaussian. (Replacing the
    kernel by the Gaussian instead would err by 7e-3 at ν = 30 and 2e-4 at ν = 1000.)
    """
    xp = array_namespace(s)
    z2 = xp.clip(s, max=1e15) * (2.0 / smoothness)
    w = xp.sqrt(1.0 + z2)
    e = z2 / (1.0 + w)
    series = _horner(_debye_series(smoothness), 1.0 / w)
    return xp.exp(smoothness * (xp.log1p(0.5 * e) - e) - 0.5 * xp.log(w)) * series


@cache
def _debye_series(smoothness: float) -> tuple[float, ...]:
    """Coefficients in t of Σ_{j<8} (−1)^j U_j(t)/ν^j, divided by its value at t = 1.

    U_{j+1} = ½ t²(1 − t²) U_j' + ⅛ ∫_0^t (1 − 5s²) U_j ds [DLMF 10.41.9].
    """
    U, total = Polynomial([1.0]), Polynomial([1.0])
    for j in range(1, 8):
        U = (
            Polynomial([0, 0, 0.5, 0, -0.5]) * U.deriv()
            + (Polynomial([0.125, 0, -0.625]) * U).integ()
        )
        total = total + U * (-1.0 / smoothness) ** j
    return tuple((total / total(1.0)).coef.tolist())


def _horner(coefficients: tuple[float, ...], t: Array) -> Array:
    total = 0.0 * t
    for c in reversed(coefficients):
        total = total * t + c
    return total
