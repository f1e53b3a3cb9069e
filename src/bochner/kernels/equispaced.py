"""Stationary kernels as sums of waves at equispaced frequencies: the weight of each.

By Poisson's formula, with frequencies h∘j for all whole j and weights v_j = Π_a h_a p(h∘j), p the
spectral density,

    Σ_j v_j cos(h∘j)·(x − y) = Σ_n k(x − y + 2πn/h),

the kernel and its images a period 2π/h apart: nothing else is wrong where the period is long. Sums
of kernels add weights, products convolve them, and columns that a kernel does not see have j = 0.
"""

import math

import numpy as np
from scipy.signal import fftconvolve

from bochner._core.shapes import Array, Float
from bochner.errors import UnsupportedKernel
from bochner.kernels.algebra import Columns, Mahalanobis, Normalised
from bochner.kernels.kernel import Constant, Kernel, Power, Product, Scaled, Sum
from bochner.kernels.stationary import Stationary
from bochner.kernels.stationary_families import Periodic

#: Where the density at zero is asked for and has no value of its own, in units of 1/ℓ.
NEXT_TO_ZERO = 1e-6

#: Frequencies whose density is computed together.
TOGETHER = 1 << 18


def equispaced_weights(
    kernel: Kernel, spacing: Float[Array, " d"], extent: tuple[int, ...]
) -> Array:
    """Return v_j of all whole j with |j_a| ≤ extent_a, in rising order.

    Parameters
    ----------
    kernel : Kernel
        Stationary, with a spectral density, or made of such by sums, products, powers, multiples,
        choices of columns and metrics; constants too.
    spacing : (d,)
        h, in radians per unit of x.
    extent : tuple of d int

    Returns
    -------
    (2 extent_1 + 1, ..., 2 extent_d + 1) float64

    Raises
    ------
    UnsupportedKernel
        If the kernel has no spectral density.
    """
    shape = tuple(2 * m + 1 for m in extent)
    match kernel:
        case Constant():
            return _at_zero(np.array(kernel.value), shape)
        case Scaled():
            return kernel.scale * equispaced_weights(kernel.kernel, spacing, extent)
        case Sum():
            left, right = kernel.left, kernel.right
            return equispaced_weights(left, spacing, extent) + equispaced_weights(
                right, spacing, extent
            )
        case Product():
            left, right = kernel.left, kernel.right
            return _convolved(
                equispaced_weights(left, spacing, extent),
                equispaced_weights(right, spacing, extent),
            )
        case Power():
            factor = equispaced_weights(kernel.kernel, spacing, extent)
            found = _at_zero(np.array(1.0), shape)
            for _ in range(kernel.exponent):
                found = _convolved(found, factor)
            return found
        case Columns():
            return _embedded(kernel, spacing, extent)
        case Normalised():
            whole = float(kernel.kernel.diag(np.zeros((1, len(extent))))[0])
            return equispaced_weights(kernel.kernel, spacing, extent) / whole
        case Mahalanobis() if isinstance(kernel.kernel, Stationary):
            return _turned(kernel, kernel.kernel, spacing, extent)
        case Stationary() if not isinstance(kernel, Periodic):
            W = _frequencies(spacing, extent)
            return _density(kernel, W, math.prod(spacing)).reshape(shape)
    raise UnsupportedKernel(
        "FourierGrid requires a stationary kernel with a spectral density, such as Gaussian, "
        "Matern, Exponential, RationalQuadratic, Laplace or Cauchy, or sums and products of such; "
        f"got {kernel!r}. Nystrom(...) serves every kernel."
    )


def spectral_parts(kernel: Kernel) -> list[Kernel]:
    """Return the kernels whose densities make that of a kernel: each has images of its own."""
    match kernel:
        case Constant():
            return []
        case Sum() | Product():
            return [*spectral_parts(kernel.left), *spectral_parts(kernel.right)]
        case Scaled() | Power() | Normalised():
            return spectral_parts(kernel.kernel)
        case Columns():
            return [Columns(part, kernel.columns) for part in spectral_parts(kernel.kernel)]
    return [kernel]


def _density(kernel: Stationary, W: Float[Array, "m d"], cell: float) -> Float[Array, " m"]:
    """Return the spectral density at rows of W, times a cell of the grid."""
    measure = kernel.spectral_measure(W.shape[1])
    found = np.empty(len(W))
    for start in range(0, len(W), TOGETHER):
        rows = slice(start, start + TOGETHER)
        with np.errstate(all="ignore"):
            found[rows] = measure.log_density(W[rows])
    odd = ~np.isfinite(found) & ~W.any(axis=1)
    if odd.any():
        found[odd] = measure.log_density(NEXT_TO_ZERO * measure.scales[None])
    return cell * np.exp(np.nan_to_num(found, nan=-math.inf))


def _turned(
    kernel: Mahalanobis, inner: Stationary, spacing: Float[Array, " d"], extent: tuple[int, ...]
) -> Array:
    """Return weights of k(xL, yL): the density at L⁻¹ω, over |det L|."""
    root = np.asarray(kernel.root, dtype=float)
    size = abs(float(np.linalg.det(root)))
    if size <= 1e-12 * np.linalg.norm(root) ** len(root):
        raise UnsupportedKernel(
            "FourierGrid requires a metric of full rank; got a Mahalanobis kernel whose matrix is "
            "singular. Add a small multiple of the identity to it, or take Fourier()."
        )
    W = _frequencies(spacing, extent) @ np.linalg.inv(root)
    return _density(inner, W, math.prod(spacing) / size).reshape([2 * m + 1 for m in extent])


def _embedded(kernel: Columns, spacing: Float[Array, " d"], extent: tuple[int, ...]) -> Array:
    columns = list(kernel.columns)
    if max(columns) >= len(extent):
        raise UnsupportedKernel(
            f"FourierGrid requires columns that are there; got {max(columns)} of {len(extent)} "
            "(counted from 0)."
        )
    inner = equispaced_weights(kernel.kernel, spacing[columns], tuple(extent[c] for c in columns))
    order = np.argsort(columns)
    lengths = [2 * m + 1 if a in columns else 1 for a, m in enumerate(extent)]
    return _at_zero(inner.transpose(order).reshape(lengths), tuple(2 * m + 1 for m in extent))


def _frequencies(spacing: Float[Array, " d"], extent: tuple[int, ...]) -> Float[Array, "m d"]:
    axes = [h * np.arange(-m, m + 1) for h, m in zip(spacing, extent, strict=True)]
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))


def _at_zero(weights: Array, shape: tuple[int, ...]) -> Array:
    """Return weights that are zero but where j = 0 along the axes that are short."""
    weights = weights.reshape(weights.shape or (1,) * len(shape))
    whole = np.zeros(shape)
    place = tuple(
        slice(None) if short == long else slice(long // 2, long // 2 + 1)
        for short, long in zip(weights.shape, shape, strict=True)
    )
    whole[place] = weights
    return whole


def _convolved(a: Array, b: Array) -> Array:
    """Return the weights of a product of kernels; rounding below zero is zero."""
    return np.maximum(fftconvolve(a, b, mode="same"), 0.0)
