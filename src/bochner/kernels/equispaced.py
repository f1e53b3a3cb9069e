"""Weights of equispaced Fourier frequencies for stationary kernels.

By Poisson's formula, with frequencies h∘j for all integer vectors j, weights v_j = Π_a h_a p(h∘j)
and the spectral density p,

    Σ_j v_j cos(h∘j)·(x − y) = Σ_n k(x − y + 2πn/h),

which is the kernel plus its images at multiples of the period 2π/h, without any other error. The
weights of a sum of kernels are sums, weights of a product are convolutions, and unused columns have
j = 0. Periodic kernels have weights at multiples of 2π/p only, and no images.

A kernel with long tails is multiplied by a taper, which is one for all differences within the box
and zero where the nearest image begins. The weights are then computed from samples by FFT. Other
kernels are not sampled, as aliasing adds v_{j+N} to v_j for N samples per axis: for a Matérn kernel
of smoothness ½ and N = 4m, a fifth of the truncation error. Sampling also costs 50 times as much.
"""

import math
import operator
from dataclasses import replace
from functools import reduce
from itertools import product
from typing import Any

import numpy as np
from scipy.fft import fftn, next_fast_len
from scipy.special import erfc

from bochner._core.arrays import slices
from bochner._core.shapes import Array, Float
from bochner.errors import UnsupportedKernel
from bochner.kernels.algebra import Mahalanobis, Normalised
from bochner.kernels.kernel import Algebra, Columns, Constant, Kernel, Scaled, Sum
from bochner.kernels.spectral import Measure
from bochner.kernels.stationary_families import Periodic, harmonics, steps_of

#: Number of frequencies per batch of densities.
BATCH = 1 << 18

LEAKS = 1e-12  # Bound on 1 − taper within the box, and on the taper where it should be zero


def has_weights(kernel: Kernel, d: int) -> bool:
    """Whether :func:`equispaced_weights` has the weights of a kernel of d columns."""
    leaves = kernel.leaves((Algebra, Normalised, Columns), range(d))
    inner = lambda leaf: leaf.kernel if isinstance(leaf, Mahalanobis) else leaf
    return all(
        isinstance(leaf, Constant | Periodic) or has_density(inner(leaf), len(columns))
        for leaf, columns in leaves
    )


def has_density(kernel: Kernel, d: int) -> bool:
    """Whether the spectral measure of a kernel of d columns has a known density."""
    measure = kernel.spectral(d)
    return isinstance(measure, Measure) and measure.has_density


def equispaced_weights(
    kernel: Kernel,
    spacing: Float[Array, " d"],
    extent: tuple[int, ...],
    lengths: Float[Array, " d"] | None = None,
) -> Array:
    """Return the weights v_j for all integer j with |j_a| ≤ extent_a, ascending.

    k(x, y) ≈ Σ_j v_j cos((j ∘ h)·(x − y)), h = ``spacing``. ``lengths`` are the sides of a box
    beyond which the kernel is tapered; weights may then be negative.
    """
    if lengths is not None:
        return _tapered_weights(kernel, spacing, extent, lengths)

    def leaf(part: Any, axes: tuple[int, ...]) -> Array:
        """Return the weights of a leaf, which is not a sum, product, power or multiple."""
        axes = () if isinstance(part, Constant) else axes
        grid = spacing[list(axes)], tuple(extent[a] for a in axes)
        match part:
            case Constant():
                values = np.array(part.value)
            case Periodic():
                values = _harmonic(part, *grid)
            case Mahalanobis() if has_density(part.kernel, len(axes)):
                values = _density(part.kernel, part.root, *grid)
            case _ if isinstance(part.spectral(len(axes)), Measure):
                values = _density(part, np.eye(len(axes)), *grid)
            case _:
                raise UnsupportedKernel(
                    "FourierGrid requires a stationary kernel with a spectral density, a Periodic "
                    f"kernel, or sums and products of these; got {part!r}. Use Nystrom(...)."
                )
        weights = np.zeros([2 * m + 1 for m in extent])
        place = tuple(slice(None) if a in axes else m for a, m in enumerate(extent))
        weights[place] = values.transpose(np.argsort(axes))
        return weights

    operations = operator.add, _convolve, operator.mul, tuple(range(len(extent)))
    weights = _plain(kernel, len(extent)).reduce(leaf, *operations)
    assert weights is not None
    return weights


def taper(t: Array, period: float, length: float) -> Array:
    """Return the smooth taper at t: 1 for |t| ≤ length, 0 for |t| ≥ (period − length)/2."""
    end = (period - length) / 2
    position = (np.abs(t) - (length + end) / 2) / ((end - length) / 2)
    return erfc(5.0 * position) / 2  # its argument is −5 at |t| = length and 5 at |t| = end


def _tapered_weights(
    kernel: Kernel, spacing: Float[Array, " d"], extent: tuple[int, ...], lengths: Array
) -> Array:
    if len(extent) == 1:  # periodic terms are not tapered
        periodic, decaying = split_periodic(kernel)
        if periodic is not None and decaying is not None:
            tapered = _tapered_weights(decaying, spacing, extent, lengths)
            return tapered + equispaced_weights(periodic, spacing, extent)
    shape = [next_fast_len(4 * m + 2, real=True) for m in extent]
    periods = 2 * math.pi / spacing
    axes = [np.fft.fftfreq(n) * period for n, period in zip(shape, periods, strict=True)]
    tapers = [taper(t, p, size) for t, p, size in zip(axes, periods, lengths, strict=True)]
    samples = np.empty(math.prod(shape))
    for start in range(0, len(samples), BATCH):
        places = np.unravel_index(range(start, min(start + BATCH, len(samples))), shape)
        T = np.stack([t[index] for t, index in zip(axes, places, strict=True)], axis=1)
        falls = np.prod([w[index] for w, index in zip(tapers, places, strict=True)], axis=0)
        samples[start : start + len(T)] = kernel(T, np.zeros((1, len(axes))))[:, 0] * falls
    weights = np.fft.fftshift(fftn(samples.reshape(shape)).real) / len(samples)
    middle = [slice(n // 2 - m, n // 2 + m + 1) for n, m in zip(shape, extent, strict=True)]
    return np.ascontiguousarray(weights[tuple(middle)])


def spectral_parts(kernel: Kernel, d: int) -> list[Columns]:
    """Return the distinct factors of the kernel's terms that have a spectral density."""
    factors = dict.fromkeys(factor for term in _terms(kernel, tuple(range(d))) for factor in term)
    return [Columns(leaf, axes) for leaf, axes in factors if not isinstance(leaf, Periodic)]


def split_periodic(kernel: Kernel) -> tuple[Kernel | None, Kernel | None]:
    """Return the periodic and constant terms of a kernel of one column, and its other terms."""
    sides: tuple[list[Kernel], list[Kernel]] = [], []
    for term in kernel.summands:
        sides[bool(spectral_parts(term, 1))].append(term)
    periodic, falling = (reduce(Sum, side) if side else None for side in sides)
    return periodic, falling


def has_axes(kernel: Kernel, d: int) -> bool:
    """Whether, for each value of each j_a, the weight is largest where all other j_b are 0."""
    leaves = kernel.leaves((Sum, Scaled, Normalised, Columns), range(d))
    supported = lambda leaf, d: isinstance(leaf, Constant) or isinstance(leaf.spectral(d), Measure)
    return all(supported(leaf, len(columns)) for leaf, columns in leaves)


def _harmonic(kernel: Periodic, spacing: Float[Array, " d"], extent: tuple[int, ...]) -> Array:
    """Return the Fourier weights of a periodic kernel, each at the nearest frequency."""
    rows = []
    for p, length, h, m in zip(*kernel.per_axis(len(spacing)), spacing, extent, strict=True):
        steps = steps_of(p, h)
        weights = harmonics(1 / length**2)[: m // steps + 1]
        row, places = np.zeros(2 * m + 1), steps * np.arange(len(weights))
        row[m + places] = row[m - places] = weights
        rows.append(row)
    return reduce(np.multiply.outer, rows)


def _density(
    kernel: Any, root: Float[Array, "d d"], spacing: Float[Array, " d"], extent: tuple[int, ...]
) -> Array:
    """Return the weights of k(xL, yL), L = ``root``: Π_a h_a p(L⁻¹ω)/|det L|, density p of k."""
    size = abs(float(np.linalg.det(root)))
    if size <= 1e-12 * np.linalg.norm(root) ** len(root):
        raise UnsupportedKernel(
            "FourierGrid requires a metric of full rank; got a Mahalanobis kernel whose matrix is "
            "singular. Add a small multiple of the identity to it, or take Fourier()."
        )
    axes = [h * np.arange(-m, m + 1) for h, m in zip(spacing, extent, strict=True)]
    places = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
    W, measure = places.reshape(-1, len(root)), kernel.spectral(len(root))
    W = W @ np.linalg.inv(root)
    density = np.empty(len(W))
    for rows in slices(len(W), BATCH):
        with np.errstate(all="ignore"):
            density[rows] = measure.log_density(W[rows])
    odd = ~np.isfinite(density) & ~W.any(axis=1)
    if odd.any():
        density[odd] = measure.log_density(1e-6 * measure.scales[None])  # infinite at zero
    weights = np.exp(np.nan_to_num(density, nan=-math.inf)) * (math.prod(spacing) / size)
    return weights.reshape(places.shape[:-1])


def _convolve(a: Array, b: Array) -> Array:
    """Return the weights of a product of kernels; negative rounding errors become zero."""
    from scipy.signal import fftconvolve  # noqa: PLC0415  a tenth of a second, rarely needed

    return np.maximum(fftconvolve(a, b, mode="same"), 0.0)


# --- Periods along axes, and the frequencies that include their harmonics -------------------------
#
# The Fourier series of a periodic kernel has frequencies at multiples of 2π/p. The equispaced
# frequencies 2πj/P include these if P is a multiple of p; with several periods, P must be a
# multiple of each. Each term of a sum is treated separately: a product with a decaying factor has
# a spectral density, not harmonics.


#: Period p, lengthscale ℓ of exp(−2 sin²(πt/p)/ℓ²), and whether the term of this factor is
#: periodic, without decay along the axis.
Season = tuple[float, float, bool]


def seasons(kernel: Kernel, a: int, d: int) -> tuple[Season, ...]:
    """Return the distinct `Season` tuples of the periodic factors along axis a."""
    terms = []
    for term in _terms(kernel, tuple(range(d))):
        decays = any(a in axes and not isinstance(leaf, Periodic) for leaf, axes in term)
        for leaf, axes in term:
            if isinstance(leaf, Periodic) and a in axes:
                periods, lengths = leaf.per_axis(len(axes))
                terms.append((periods[axes.index(a)], lengths[axes.index(a)], not decays))
    return tuple(dict.fromkeys(terms))


def highest_harmonic(lengthscale: float) -> int:
    """Return the highest harmonic of a Periodic kernel whose weight is above rounding error."""
    tail = 2 * np.cumsum(harmonics(1 / lengthscale**2)[::-1])[::-1]
    return max(1, int(np.flatnonzero(tail > 1e-16)[-1]))


def is_cyclic(kernel: Kernel, a: int, d: int) -> bool:
    """Whether a kernel has periods along an axis and no term decays along it."""
    decays = any(a in part.columns for part in spectral_parts(kernel, d))
    return bool(seasons(kernel, a, d)) and not decays


def common_period(
    terms: tuple[Season, ...], a: int, length: float, shortest: float, tolerance: float
) -> tuple[float, float]:
    """Return a common multiple of all periods, at least ``shortest``, and the change of the kernel.

    Rounding the periods changes k by at most ``tolerance`` at differences up to ``length``. With
    periodic terms the result is one multiple larger, as room for rows far outside the box.
    """
    # Replacing period p by p' moves harmonic c by 2πc|1/p − 1/p'| t, t up to ``length``, and the
    # kernel by at most 2π|1/p − 1/p'| t/ℓ, as the mean of c² is 1/ℓ².
    periods, lengths = np.array([season[:2] for season in terms]).T[:, :, None]
    longest = float(periods.max())
    limit = 4096
    multiples = longest * np.arange(1, limit + 1)
    rates = np.abs(1 / periods - np.maximum(np.rint(multiples / periods), 1) / multiples)
    errors = (2 * math.pi * length * rates / lengths).sum(axis=0)
    indices = np.flatnonzero(errors <= max(tolerance, length / longest * 1e-12))
    if len(indices) == 0:
        texts = ", ".join(f"{p:.6g}" for p in np.unique(periods))
        raise UnsupportedKernel(
            f"FourierGrid requires periods along a column that divide one of up to {limit:,} "
            f"times the longest; got {texts} of column {a} (counted from 0). Round them, take a "
            "larger tolerance, or multiply all but one with a long Gaussian kernel."
        )
    common = float(multiples[indices[0]])
    steps = math.ceil(shortest / common) + any(is_periodic for *_, is_periodic in terms)
    return common * steps, float(errors[indices[0]])


def repeat_angles(kernel: Kernel, spacing: Float[Array, " d"]) -> Float[Array, " d"]:
    """Return the angle after which periodic terms repeat, per axis; 0 if there are none."""
    frequencies = np.zeros(len(spacing))
    for a, h in enumerate(spacing):
        terms = seasons(kernel, a, len(spacing))
        steps = [steps_of(period, h) for period, _, is_periodic in terms if is_periodic]
        frequencies[a] = 2 * math.pi / math.gcd(*steps) if steps else 0.0
    return frequencies


def snap_periods(kernel: Kernel, spacing: Float[Array, " d"]) -> Kernel:
    """Return the kernel with periods rounded to frequencies that are multiples of ``spacing``."""

    def change(part: Kernel, axes: list[int]) -> Kernel:
        if not isinstance(part, Periodic):
            return part
        pairs = zip(part.per_axis(len(axes))[0], spacing[[*axes]], strict=True)
        return replace(part, period=tuple(2 * math.pi / (h * steps_of(p, h)) for p, h in pairs))

    return kernel.rebuild(change, columns=range(len(spacing)))


# --- Terms of a kernel, and their axes -----------------------------------------------------------

#: A kernel without parts, and the axes that it uses.
Factor = tuple[Kernel, tuple[int, ...]]


def _terms(kernel: Kernel, axes: tuple[int, ...]) -> list[tuple[Factor, ...]]:
    """Return the distinct factors of each term of a kernel, without constant factors."""

    def leaf(part: Kernel, axes: tuple[int, ...]) -> list[tuple[Factor, ...]]:
        return [()] if isinstance(part, Constant) else [((part, axes),)]

    def multiply(left: Any, right: Any) -> list[tuple[Factor, ...]]:
        pairs = (tuple(dict.fromkeys((*a, *b))) for a, b in product(left, right))
        return list(dict.fromkeys(pairs))

    return _plain(kernel, len(axes)).reduce(leaf, operator.add, multiply, columns=axes) or []


def _plain(kernel: Kernel, d: int) -> Kernel:
    """Return the kernel with `Normalised` parts as multiples: equal for stationary kernels."""

    def change(part: Kernel, columns: Any) -> Kernel:
        if not isinstance(part, Normalised):
            return part
        return Scaled(1.0 / part.kernel.at_zero(len(columns)), part.kernel)

    return kernel.rebuild(change, columns=range(d))
