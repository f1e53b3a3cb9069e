"""Radial kernels R_l: the parts of a rotation-invariant kernel, degree by degree.

A generalised zonal kernel depends on |x|, |y| and the angle between x and y:

    k(x, y) = Σ_l R_l(|x|, |y|) P_l(cos ∠(x, y)),

P_l the Gegenbauer polynomial in dimension d, each R_l a positive semi-definite kernel on [0, ∞)
(α_l is inside it), R_l(0, ·) = 0 for l ≥ 1. Every kernel of ⟨x, y⟩, of |x − y|, and every
|x|^p |y|^p K(cos) is one; sums and positive multiples are again. Han et al. (2022), definition 3.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
from scipy.special import gammaln, ive, xlogy

from bochner._core.arrays import slices
from bochner._core.native import power_of_two
from bochner._core.shapes import Float
from bochner.errors import InvalidInput, NotPositive
from bochner.kernels import dotproduct
from bochner.kernels.algebra import folded
from bochner.kernels.dotproduct import DotExponential, DotProductKernel, PowerSeries
from bochner.kernels.kernel import Constant, Kernel, Scaled
from bochner.kernels.stationary import Gaussian, Radial
from bochner.kernels.zonal import (
    GeneralizedZonal,
    Homogeneous,
    Zonal,
    angles,
    log_alpha,
    orthonormals,
)

Radii = Float[np.ndarray, " _"]


@dataclass(frozen=True, eq=False)
class RadialKernels:
    """The radial kernels of one kernel in one dimension."""

    n_inputs: int  # dimension d of the sphere's space
    #: A degree L and radii r_i, s_j, zero or above, to R_0(r_i, s_j), ..., R_L(r_i, s_j), with α_l.
    matrices: Callable[[int, Radii, Radii], Float[np.ndarray, "q a b"]]
    zonal: bool = False  # whether R_l(r, s) = c_l (r s)^p: one radial function for each degree
    #: κ with k(x, y) = e^{−decay (|x|² + |y|²)/2} κ(⟨x, y⟩), None for kernels without `monomials`.
    power_series: PowerSeries | None = None
    decay: float = 0.0  # rate of that envelope: 1/ℓ² for the Gaussian, else zero


# --- Radial kernels of ⟨x, y⟩ and of the Gaussian: Bessel functions, or power series in |x||y| ---


def _of_series(d: int, series: PowerSeries, decay: float = 0.0) -> RadialKernels:
    """R_l of e^{−decay (|x|² + |y|²)/2} κ(⟨x, y⟩): Σ_i h_{l,i}(r) h_{l,i}(s), all i."""

    def one(l: int, r: Radii, s: Radii) -> Float[np.ndarray, "a b"]:
        largest = float((r[:, None] * s).max(initial=0.0))
        if series.degree is None:
            log_half = math.log(max(0.5 * largest, 1e-300))
            logs = lambda i: log_weights(series, d, l, len(i)) + (l + 2 * i) * log_half
            what = f"Radial kernels: the power series must converge at |x|·|y|; at {largest:.3g}"
            order = len(dotproduct.converged(logs, what))
        else:
            order = max((series.degree - l) // 2 + 1, 0)
        # Without an envelope only r·s matters: powers of radii of one size do not overflow.
        c = 1.0 if decay or not largest else math.sqrt(s.max() / r.max())
        left, right = (_monomials(series, d, l, order, decay, t) for t in (c * r, s / c))
        return left.T @ right

    matrices = lambda degree, r, s: np.stack([one(l, r, s) for l in range(degree + 1)])
    return RadialKernels(d, matrices, power_series=series, decay=decay)


def _of_exponential(d: int, scale: float, decay: float = 0.0) -> RadialKernels:
    """R_l of e^{−decay (|x|² + |y|²)/2} e^{scale ⟨x, y⟩}, by Bessel functions."""

    def matrices(degree: int, r: Radii, s: Radii) -> Float[np.ndarray, "q a b"]:
        # e^{−z} of the Bessel function and the envelope make one square: Gaussians never overflow.
        z, square = r[:, None] * s, 0.5 * decay * (r[:, None] - s) ** 2
        logs = np.stack([_log_bessel(l, d, scale * z) for l in range(degree + 1)])
        with np.errstate(over="ignore"):
            R = np.exp(logs - square + (scale - decay) * z)
        if not bool(np.isfinite(R).all()):
            raise InvalidInput(
                "Radial kernels of exp(scale·⟨x, y⟩): scale·|x|·|y| must be below 700; got an "
                "overflow. Rescale X."
            )
        return R

    return RadialKernels(d, matrices, power_series=DotExponential(scale).power_series, decay=decay)


def _log_bessel(l: int, d: int, z: np.ndarray) -> np.ndarray:
    """Return log(α_l Γ(ν + 1) (2/z)^ν I_{l+ν}(z) e^{−z}), ν = d/2 − 1; z ≥ 0."""
    # It is log(α_l (z/2)^l Γ(d/2)/Γ(l + d/2)) + log Λ − z, Λ = Γ(μ + 1)(2/z)^μ I_μ(z), μ = l + ν:
    # by its series, all terms positive, where that is short; else by SciPy's Bessel function.
    mu = l + 0.5 * d - 1.0
    power, peak = xlogy(l, 0.5 * z), 0.5 * (np.hypot(mu, z) - mu)
    short = peak <= 200.0
    log_lambda = np.empty_like(z)
    log_lambda[short] = _log_lambda(mu, z[short]) - z[short]
    log_lambda[~short] = _log_scaled(mu, z[~short])
    return log_alpha(l, d) - _log_sum(0.5 * d, l)[l] + power + log_lambda


def _log_lambda(mu: float, z: np.ndarray) -> np.ndarray:
    """Return log Σ_i (z²/4)^i/(i! (μ + 1)_i) by nested sums, from the last term inwards."""
    x, total = 0.25 * z * z, np.ones_like(z)
    peak = 0.5 * float((np.hypot(mu, z) - mu).max(initial=0.0))
    for i in range(int(peak + 10.0 * math.sqrt(peak + 1.0)) + 20, 0, -1):
        total = 1.0 + x / (i * (mu + i)) * total
    return np.log(total)


def _log_scaled(mu: float, z: np.ndarray) -> np.ndarray:
    """Return log(Γ(μ + 1)(2/z)^μ I_μ(z) e^{−z}) for large z, by DLMF 10.41.3 where SciPy fails."""
    with np.errstate(divide="ignore"):
        logs = np.log(ive(mu, z))
    fails = ~np.isfinite(logs)
    far = z[fails]
    w = np.hypot(mu, far)
    p = (mu / w) ** 2
    u = 1.0 + (3 - 5 * p) / (24 * w) + (81 - 462 * p + 385 * p**2) / (1152 * w**2)
    grows = mu * (mu / (w + far)) - mu * np.arcsinh(mu / far)  # w − z without its cancellation
    logs[fails] = grows - 0.5 * np.log(2 * math.pi * w) + np.log(u)
    return logs + gammaln(mu + 1.0) + mu * np.log(2.0 / z)


def log_weights(series: PowerSeries, d: int, l: int, order: int) -> Radii:
    """Return log(α_l κ⁽ˡ⁺²ⁱ⁾(0) Γ(d/2)/(i! Γ(l + i + d/2))), i < order."""
    i = np.arange(order)
    logs = log_alpha(l, d) + series.log_derivative(l + 2 * i) - _log_sum(1.0, order)[:order]
    return logs - _log_sum(d / 2, l + order)[l + i]


def _monomials(
    series: PowerSeries, d: int, l: int, order: int, decay: float, t: Radii
) -> Float[np.ndarray, "s n"]:
    """Return h_{l,i}(t), i < order: R_l(t, u) = Σ_i h_{l,i}(t) h_{l,i}(u)."""
    # h_{l,i}(t)² = α_l κ⁽ⁿ⁾(0) Γ(d/2)/(i! Γ(l + i + d/2)) (t²/2)ⁿ e^{−decay t²}, n = l + 2i
    # [Han et al. (2022), lemmas 4 and 15, simplified].
    n = l + 2 * np.arange(order)[:, None]
    logs = log_weights(series, d, l, order)[:, None] - n * math.log(2.0)
    return np.exp(0.5 * logs + xlogy(n, t) - 0.5 * decay * t * t)


def _log_sum(a: float, n: int) -> Float[np.ndarray, " n"]:
    """Return log Γ(a + j)/Γ(a) for j = 0..n: sums, which keep digits that two gammas lose."""
    return np.concatenate([[0.0], np.cumsum(np.log(a + np.arange(n)))])


# --- Radial kernels of |x − y|, by integrals over the angle --------------------------------------


def _of_distance(kernel: Radial, scale: float, d: int) -> RadialKernels:
    """R_l(r, s) = α_l E k(√((r − s)² + 4 r s sin²(θ/2))) P_l(cos θ), to √α_l eps, by quadrature."""

    def matrices(degree: int, r: Radii, s: Radii) -> Float[np.ndarray, "q a b"]:
        theta, w = angles(d, degree, towards_zero=True)
        p = np.stack([*orthonormals(degree, d, np.cos(theta))]) * w
        chord = 4.0 * np.sin(0.5 * theta) ** 2
        i, j = np.indices((len(r), len(s))).reshape(2, -1)
        if len(r) == len(s) and bool((r == s).all()):  # each unordered pair once
            i, j = np.triu_indices(len(r))
        values = np.empty((len(p), len(i)))
        for part in slices(len(i), 4096):
            a, b = r[i[part], None], s[j[part], None]
            k = kernel.profile(((a - b) ** 2 + a * b * chord) / scale**2)
            values[:, part] = p @ k.T
        R = np.empty((len(p), len(r), len(s)))
        R[:, i, j] = values
        if len(i) < R[0].size:
            R[:, j, i] = values
        # A mean of k p_l, |k| ≤ 1, is right to about eps; functions below ten eps everywhere are
        # noise, which √α_l would enlarge without bound.
        large = np.abs(R).max(axis=(1, 2), initial=0.0) > 10.0 * np.finfo(float).eps
        roots = np.exp([0.5 * log_alpha(l, d) for l in range(len(R))])
        R *= np.where(large, roots, 0.0)[:, None, None]
        R[1:] *= (r > 0)[:, None] & (s > 0)[None, :]
        return R

    return RadialKernels(d, matrices)


def zonal(kernel: Kernel, d: int) -> RadialKernels | None:
    """Return the radial kernels of a generalised zonal kernel in d dimensions; None for others.

    For one lengthscale per column see `isotropic`.
    """

    def leaf(part: Any, _: tuple[int, ...]) -> RadialKernels | None:
        match part:
            case DotExponential():
                return _of_exponential(d, part.scale)
            case DotProductKernel():
                return _of_series(d, part.power_series)
            case Constant():
                return _of_series(d, PowerSeries((part.value,)))
            case Radial():
                scale, *others = {*np.atleast_1d(part.lengthscale).tolist()}
                if others:
                    return None
                if isinstance(part, Gaussian):
                    return _of_exponential(d, 1.0 / scale**2, decay=1.0 / scale**2)
                return _of_distance(part, scale, d)
            case Homogeneous() | Zonal():
                return RadialKernels(d, partial(_of_angle, part, d), zonal=True)
            case GeneralizedZonal():
                return RadialKernels(d, partial(_of_functions, part, d))
        return None

    return folded(kernel, leaf, _sum, _product, scale=_multiple)


def isotropic(kernel: Kernel, d: int) -> tuple[Kernel, Float[np.ndarray, " d"]]:
    """Return a kernel of unit lengthscale, k(x, y) = unit(x/ℓ, y/ℓ), and ℓ; others with ones."""
    if isinstance(kernel, Scaled):
        unit, scales = isotropic(kernel.kernel, d)
        return replace(kernel, kernel=unit), scales
    if not isinstance(kernel, Radial):
        return kernel, np.ones(d)
    scales = 1.0 / np.asarray(kernel.spectral_measure(d).scales)
    return kernel.replace(lengthscale=1.0), scales


def monomials(
    radial: RadialKernels, degree: int, order: int, t: Float[np.ndarray, " n"]
) -> Float[np.ndarray, "q s n"]:
    """Return the functions h_{l,i}(t), l ≤ degree, i < order, of a kernel with a power series."""
    series, d, t = radial.power_series, radial.n_inputs, np.asarray(t, dtype=np.float64)
    assert series is not None
    each = [_monomials(series, d, l, order, radial.decay, t) for l in range(degree + 1)]
    return np.stack(each)


# --- |x|^p |y|^p K(cos), and functions of one's own ----------------------------------------------


def _of_angle(
    kernel: Homogeneous | Zonal, d: int, degree: int, r: Radii, s: Radii
) -> Float[np.ndarray, "q a b"]:
    """R_l(r, s) = c_l (r s)^p."""
    c = _coefficients(kernel, d, power_of_two(max(degree, 31) + 1))[: degree + 1, None, None]
    R = c * (r**kernel.degree)[:, None] * s**kernel.degree
    R[1:] *= (r > 0)[:, None] & (s > 0)
    return R


@lru_cache(maxsize=64)
def _coefficients(kernel: Homogeneous | Zonal, d: int, l: int) -> Float[np.ndarray, " k"]:
    """Return c_0, ..., c_l, zero where a series is below the error of quadrature."""
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


def _of_functions(
    kernel: GeneralizedZonal, d: int, degree: int, r: Radii, s: Radii
) -> Float[np.ndarray, "q a b"]:
    """R_l(r, s) = ⟨h_l(r), h_l(s)⟩ of the kernel's own functions."""
    h, most = kernel.radial, 1 if d == 1 else math.inf
    return np.stack([float(l <= most) * h(l, r) @ h(l, s).T for l in range(degree + 1)])


def _multiple(scale: float, one: RadialKernels) -> RadialKernels:
    series = one.power_series and dotproduct.weighted(scale, one.power_series)
    matrices = lambda degree, r, s: scale * one.matrices(degree, r, s)
    return replace(one, matrices=matrices, power_series=series)


def _sum(left: RadialKernels, right: RadialKernels) -> RadialKernels:
    series = None
    if left.power_series and right.power_series and left.decay == right.decay:
        series = dotproduct.summed(left.power_series, right.power_series)
    return RadialKernels(
        left.n_inputs,
        lambda degree, r, s: left.matrices(degree, r, s) + right.matrices(degree, r, s),
        power_series=series,
        decay=left.decay if series else 0.0,
    )


def _product(left: RadialKernels, right: RadialKernels) -> RadialKernels | None:
    """Return the radial kernels of a product: its series is the product of the factors'."""
    if left.power_series is None or right.power_series is None:
        return None
    both = dotproduct.multiplied(left.power_series, right.power_series)
    return _of_series(left.n_inputs, both, left.decay + right.decay)
