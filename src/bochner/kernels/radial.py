"""Radial kernels R_l: what a rotation-invariant kernel is made of, degree by degree.

A generalised zonal kernel depends on |x|, |y| and the angle between x and y:

    k(x, y) = Σ_l R_l(|x|, |y|) P_l(cos ∠(x, y)),

P_l the Gegenbauer polynomial in dimension d, each R_l a positive semi-definite kernel on [0, ∞)
(α_l is inside it), R_l(0, ·) = 0 for l ≥ 1. Every kernel of ⟨x, y⟩, of |x − y|, and every
|x|^p |y|^p K(cos) is one; sums and positive multiples are again. Han et al. (2022), definition 3.
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache, partial, reduce
from typing import final

import numpy as np

from bochner._core.native import power_of_two
from bochner._core.shapes import Float
from bochner.errors import NotPositive, UnsupportedKernel
from bochner.kernels.dotproduct import (
    Coefficients,
    DotProductKernel,
    ExponentialSeries,
    MultipliedSeries,
    PowerSeries,
    SummedSeries,
    WeightedSeries,
)
from bochner.kernels.kernel import Constant, Kernel, Power, Product, Scaled, Sum
from bochner.kernels.radial_families import (
    DistanceRadial,
    PowerRadial,
    RadialKernels,
    log_weights,
    one_lengthscale,
)
from bochner.kernels.stationary import Gaussian, Radial
from bochner.kernels.zonal import GeneralizedZonal, Homogeneous, Zonal, log_alpha


def radial_kernels(kernel: Kernel, d: int) -> RadialKernels:
    """Return the radial kernels of a generalised zonal kernel in d dimensions.

    Parameters
    ----------
    kernel : Kernel
        A kernel of ⟨x, y⟩, of |x − y| with one lengthscale, of the angle times powers of the
        norms, a `GeneralizedZonal`, or sums and positive multiples of such.
    d : int
        Columns of the data.

    Raises
    ------
    UnsupportedKernel
        If the kernel is not one of these, or has one lengthscale per column: see `isotropic`.
    """
    match kernel:
        case DotProductKernel():
            return PowerRadial(kernel.power_series, d)
        case Constant():
            return PowerRadial(Coefficients((kernel.value,)), d)
        case Gaussian():
            rate = 1.0 / one_lengthscale(kernel) ** 2
            return PowerRadial(ExponentialSeries(rate), d, rate)
        case Radial():
            one_lengthscale(kernel)
            return DistanceRadial(kernel, d)
        case Homogeneous() | Zonal():
            return ZonalRadial(kernel, d)
        case GeneralizedZonal():
            return OwnRadial(kernel, d)
        case Scaled():
            return ScaledRadial(kernel.scale, radial_kernels(kernel.kernel, d))
        case Sum():
            return SumRadial(radial_kernels(kernel.left, d), radial_kernels(kernel.right, d))
        case Product():
            left, right = radial_kernels(kernel.left, d), radial_kernels(kernel.right, d)
            return _product(kernel, left, right)
        case Power():
            factor = radial_kernels(kernel.kernel, d)
            others = (factor for _ in range(kernel.exponent - 1))
            return reduce(partial(_product, kernel), others, factor)
    raise UnsupportedKernel(
        "Radial kernels require a kernel of ⟨x, y⟩, of the Euclidean distance with one lengthscale "
        "(Gaussian, Matern, Exponential, RationalQuadratic), of the angle (Angular, ArcCosine, "
        "NeuralTangent, NNGP, Zonal), GeneralizedZonal, or sums and multiples of these; got "
        f"{kernel!r}."
    )


def isotropic(kernel: Kernel, d: int) -> tuple[Kernel, Float[np.ndarray, " d"]]:
    """Return the kernel with unit lengthscale and ℓ_1, ..., ℓ_d: k(x, y) = unit(x/ℓ, y/ℓ).

    Raises
    ------
    UnsupportedKernel
        If it is not a kernel of the Euclidean distance, or a multiple of one.
    """
    if isinstance(kernel, Scaled):
        unit, scales = isotropic(kernel.kernel, d)
        return replace(kernel, kernel=unit), scales
    if not isinstance(kernel, Radial):
        raise UnsupportedKernel(
            "isotropic requires a kernel of the Euclidean distance (Gaussian, Matern, Exponential, "
            f"RationalQuadratic); got {kernel!r}."
        )
    scales = 1.0 / np.asarray(kernel.spectral_measure(d).scales)
    return kernel.replace(lengthscale=1.0), scales


def monomials(
    radial: RadialKernels, degree: int, order: int, t: Float[np.ndarray, " n"]
) -> Float[np.ndarray, "q s n"]:
    """Return h_{l,i}(t), l = 0..degree, i = 0..order − 1: R_l(t, u) = Σ_i h_{l,i}(t) h_{l,i}(u).

    Parameters
    ----------
    radial : RadialKernels
        With a `power_series`.
    degree, order : int
        Largest l, and how many functions for each.
    t : (n,)
        Radii, zero or above.

    Returns
    -------
    h : (degree + 1, order, n)

    Notes
    -----
    h_{l,i}(t)² = α_l κ⁽ⁿ⁾(0) Γ(d/2)/(i! Γ(l + i + d/2)) (t²/2)ⁿ e^{−decay t²}, n = l + 2i
    [Han et al. (2022), lemmas 4 and 15, simplified].
    """
    if radial.power_series is None:
        raise UnsupportedKernel(
            "Monomial radial functions require a kernel of ⟨x, y⟩ or the Gaussian; got "
            f"{radial!r}. Take radial functions from the radial kernels instead."
        )
    t = np.asarray(t, dtype=np.float64)
    l, i = np.arange(degree + 1)[:, None], np.arange(order)[None, :]
    n = l + 2 * i
    logs = log_weights(radial.power_series, radial.n_inputs, degree, order) - n * math.log(2.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        powers = np.where(n[..., None] == 0, 0.0, n[..., None] * np.log(t))
    return np.exp(0.5 * logs[..., None] + powers - 0.5 * radial.decay * t * t)


# --- |x|^p |y|^p K(cos), and functions of one's own ----------------------------------------------


@final
@dataclass(frozen=True)
class ZonalRadial(RadialKernels):
    """R_l(r, s) = c_l (r s)^p."""

    kernel: Homogeneous | Zonal
    d: int

    @property
    def n_inputs(self) -> int:
        return self.d

    zonal = True

    def matrix(self, degree: int, r: np.ndarray, s: np.ndarray) -> Float[np.ndarray, "a b"]:
        return self._values(np.array([degree]), r, s)[0]

    def matrices(self, degree: int, r: np.ndarray, s: np.ndarray) -> Float[np.ndarray, "q a b"]:
        return self._values(np.arange(degree + 1), r, s)

    def _values(self, l: np.ndarray, r: np.ndarray, s: np.ndarray) -> Float[np.ndarray, "q a b"]:
        r, s = (np.asarray(v, dtype=np.float64) for v in (r, s))
        c = _all_coefficients(self.kernel, self.d, int(l[-1]))[l]
        powers = [v**self.kernel.degree for v in (r, s)]
        R = c[:, None, None] * powers[0][:, None] * powers[1]
        there = (r > 0)[:, None] & (s > 0)
        return R * (there | (l == 0)[:, None, None])


@lru_cache(maxsize=64)
def _all_coefficients(kernel: Homogeneous | Zonal, d: int, l: int) -> Float[np.ndarray, " k"]:
    """Return c_0, ..., c_l, each from a series of 32 degrees, 64, and so on: few serve all."""
    series = [_zonal_coefficients(kernel, d, power_of_two(max(k, 31) + 1)) for k in range(l + 1)]
    return np.array([c[k] for k, c in enumerate(series)])


@lru_cache(maxsize=64)
def _zonal_coefficients(kernel: Homogeneous | Zonal, d: int, l: int) -> Float[np.ndarray, " k"]:
    """Return c_0, ..., c_l, zero where a series is below what quadrature can tell from zero."""
    c = kernel.gegenbauer_coefficients(d, l)
    if isinstance(kernel, Zonal):
        return c
    # Quadrature of degree l has nodes in proportion to l, whose roundings add up as their root.
    noise = 10.0 * np.finfo(float).eps * (1 + l / 16) ** 0.5
    noise = noise * np.exp([0.5 * log_alpha(k, d) for k in range(l + 1)])
    noise *= max(1.0, float(c.max()))
    if bool((c < -noise).any()):
        raise NotPositive(
            f"Radial kernels: the kernel must be positive semi-definite in dimension {d}; got "
            f"coefficient {c.min():.3g} of degree {int(c.argmin())} from {kernel!r}."
        )
    return np.where(c > noise, c, 0.0)


@final
@dataclass(frozen=True)
class OwnRadial(RadialKernels):
    """R_l(r, s) = ⟨h_l(r), h_l(s)⟩ of functions given."""

    kernel: GeneralizedZonal
    d: int

    @property
    def n_inputs(self) -> int:
        return self.d

    def matrix(self, degree: int, r: np.ndarray, s: np.ndarray) -> Float[np.ndarray, "a b"]:
        exists = float(degree < 2 or self.d > 1)
        return exists * self.kernel.radial(degree, r) @ self.kernel.radial(degree, s).T


# --- sums, multiples and products ---------------------------------------------------------------


@final
@dataclass(frozen=True)
class ScaledRadial(RadialKernels):
    """scale · R_l."""

    scale: float
    radial: RadialKernels

    @property
    def n_inputs(self) -> int:
        return self.radial.n_inputs

    @property
    def zonal(self) -> bool:
        return self.radial.zonal

    @property
    def power_series(self) -> PowerSeries | None:
        series = self.radial.power_series
        return None if series is None else WeightedSeries(self.scale, series)

    @property
    def decay(self) -> float:
        return self.radial.decay

    def matrix(self, degree: int, r: np.ndarray, s: np.ndarray) -> Float[np.ndarray, "a b"]:
        return self.scale * self.radial.matrix(degree, r, s)

    def matrices(self, degree: int, r: np.ndarray, s: np.ndarray) -> Float[np.ndarray, "q a b"]:
        return self.scale * self.radial.matrices(degree, r, s)


@final
@dataclass(frozen=True)
class SumRadial(RadialKernels):
    """R_l of the left kernel and R_l of the right."""

    left: RadialKernels
    right: RadialKernels

    @property
    def n_inputs(self) -> int:
        return self.left.n_inputs

    @property
    def power_series(self) -> PowerSeries | None:
        left, right = self.left.power_series, self.right.power_series
        if left is None or right is None or self.left.decay != self.right.decay:
            return None
        return SummedSeries(left, right)

    @property
    def decay(self) -> float:
        return self.left.decay if self.power_series is not None else 0.0

    def matrix(self, degree: int, r: np.ndarray, s: np.ndarray) -> Float[np.ndarray, "a b"]:
        return self.left.matrix(degree, r, s) + self.right.matrix(degree, r, s)

    def matrices(self, degree: int, r: np.ndarray, s: np.ndarray) -> Float[np.ndarray, "q a b"]:
        return self.left.matrices(degree, r, s) + self.right.matrices(degree, r, s)


def _product(kernel: Kernel, left: RadialKernels, right: RadialKernels) -> RadialKernels:
    """Return the radial kernels of a product: its series is the product of the factors'."""
    if left.power_series is None or right.power_series is None:
        raise UnsupportedKernel(
            "Radial kernels: Products require factors of ⟨x, y⟩ or Gaussians with one lengthscale, "
            f"or sums of those; got {kernel!r}."
        )
    both = MultipliedSeries(left.power_series, right.power_series)
    return PowerRadial(both, left.n_inputs, left.decay + right.decay)
