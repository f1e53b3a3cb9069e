"""Fourier modes on a regular grid of frequencies, in one to three columns.

Greengard, Rachh and Barnett (2022) compute k(x − y) = ∫ p(ω) cos ω·(x − y) dω by the trapezoidal
rule, with frequencies h∘j, |j_a| ≤ m_a, which follow from the kernel, the box and the tolerance.

A row farther than a margin r from the box is moved to distance r. Its kernel values with rows of
the box are below 0.01, so a fit predicts its prior mean there. With periodic terms, the row is
moved by a multiple of the period to just beyond the margin, so that these terms do not change.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated

import numpy as np

from bochner._core.arrays import adapt, array_namespace, dense, in_precision, precision
from bochner._core.checks import bounded, optional, require_room, share
from bochner._core.native import waves
from bochner._core.shapes import Array, Float, Int
from bochner.errors import InvalidInput, UnsupportedKernel
from bochner.features.compose import box_of_rows, check_box
from bochner.features.map import FeatureMap, Method, Request
from bochner.kernels import equispaced
from bochner.kernels.basis import as_box
from bochner.kernels.kernel import Kernel
from bochner.solvers.gram import ToeplitzGram
from bochner.sums.fourier import BoxAngles, nufft


@dataclass(frozen=True)
class FourierGrid(Method):
    """Fourier modes on a regular grid, within a tolerance of the kernel for all pairs of rows.

    Parameters
    ----------
    tolerance : float, default 1e-4
        Largest error of φ(x)·φ(y) in the box, relative to k(x, x); 1e-12 ≤ tolerance < 1.
    box : d pairs (lower, upper), optional
        The box, in the units of X. Default: the bounding box of the rows.

    See Also
    --------
    LaplacianEigenfunctions : Sines on a box, in one to three columns.
    SphericalHarmonics : Harmonics on the sphere.

    Notes
    -----
    Supports stationary kernels with a spectral density in one to three columns, ``Periodic``
    kernels, and their sums, multiples and products. The periods of a column need a common multiple
    of at most 4,096 times the longest.

    :class:`KernelRidge` and :class:`GaussianProcessRegressor` do not compute features. They sum
    the modes over the rows by non-uniform FFT, and solve by conjugate gradients with FFT. This
    takes O(n log^d(1/tolerance)) time for n rows, O(D log D) time per step, and O(2^d D) memory.
    The tolerance determines D, up to many millions; ``n_features`` is not used. finufft is required
    (``pip install "bochner[grid]"``). All other learners use at most ``n_features`` modes, with the
    smallest tolerance that these allow.

    Sources: Greengard, Rachh and Barnett (2022); Barnett, Greengard and Rachh (2023).

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> X = np.random.default_rng(0).uniform(-1, 1, (50, 1))
    >>> phi = bo.draw(bo.kernels.Gaussian(), bo.FourierGrid(tolerance=1e-4), n_features=64, X=X)
    >>> float(abs(phi(X) @ phi(X).T - phi.kernel(X, X)).max()) < 1e-4
    True
    """

    tolerance: Annotated[float, bounded(share, 1e-12, 1)] = 1e-4  # float64 does not resolve less
    box: Annotated[tuple[tuple[float, float], ...] | None, optional(as_box)] = None

    floats_each = 0


@dataclass(frozen=True, eq=False)
class EquispacedMap(FeatureMap):
    """φ(x) = (√v_0, (√(2 v_j) cos j·θ)_j, (√(2 v_j) sin j·θ)_j), θ = h∘(x − centre)."""

    kernel: Kernel
    centre: Float[Array, " d"]  # Of the box
    spacing: Float[Array, " d"]  # h
    half: Float[Array, " d"]  # Half of the box's size
    extent: Int[Array, " d"]  # m: |j_a| ≤ m_a; features use one j of each pair j, −j
    weights: Float[Array, " F"]  # v_j of these j, beginning with j = 0
    error: float  # Bound of |φ(x)·φ(y) − k(x, y)|/k(x, x) in the box
    tapered: bool = False  # Whether the kernel is tapered beyond the box (no images)

    def __post_init__(self) -> None:
        waves = math.prod(2 * m + 1 for m in self.shape) if min(self.shape, default=-1) >= 0 else 0
        if waves != self.n_features:
            raise InvalidInput(
                f"EquispacedMap: weights of {waves:,} modes are required, one per pair j, −j; "
                f"got {len(self.weights):,}."
            )

    unbiased = False  # The map is deterministic

    @property
    def n_features(self) -> int:
        return 2 * len(self.weights) - 1

    @property
    def shape(self) -> tuple[int, ...]:
        """Largest j along each axis."""
        return tuple(int(m) for m in self.extent)

    @property
    def variances(self) -> Array:
        """Weights v_j of all modes, by j."""
        flat = np.concatenate([self.weights[:0:-1], self.weights])
        return flat.reshape([2 * m + 1 for m in self.shape])

    @cached_property
    def places(self) -> BoxAngles:
        """Map from rows to angles θ."""
        d = self.n_inputs
        cyclic = np.array([equispaced.is_cyclic(self.kernel, a, d) for a in range(d)])
        half = np.where(cyclic, math.inf, self.half)
        return BoxAngles(
            self.centre, self.spacing, half, equispaced.repeat_angles(self.kernel, self.spacing)
        )

    def variances_of(self, kernel: Kernel) -> Array:
        """Return the weights of another kernel on the same modes."""
        lengths = 2 * self.half if self.tapered else None
        weights = equispaced.equispaced_weights(kernel, self.spacing, self.shape, lengths)
        return np.maximum(weights, 0.0)

    gram = ToeplitzGram  # ZᵀZ from sums of modes over rows

    def as_coefficients(self, numbers: Array) -> Array:
        """Return one number per mode j as coefficients of the features, cosines before sines."""
        upper = numbers.ravel()[numbers.size // 2 :]
        return np.concatenate([upper, upper[1:]])

    def matrix(self, X: Float[Array, "m d"], error: float) -> Float[Array, "m m"]:
        """Return Σ_j v_j cos j·(θ(x) − θ(y)) of all pairs of rows."""
        angles = self.places.angles(X)
        waves = self.variances[None].astype(np.complex128)
        lower, batch = np.stack(np.tril_indices(len(angles))), 1 << 20  # pairs at a time
        K = np.empty((len(angles), len(angles)))
        for start in range(0, lower.shape[1], batch):
            i, j = lower[:, start : start + batch]
            K[i, j] = K[j, i] = nufft(angles[i] - angles[j], waves, error)[0].real
        return K

    @cached_property
    def _frequencies(self) -> Array:
        """Integer vectors j of the features, (F, d)."""
        axes = [np.arange(-m, m + 1, dtype=np.float64) for m in self.shape]
        lattice = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))
        return lattice[len(lattice) // 2 :]

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        theta, F = self.places.angles(dense(X)), len(self.weights)
        xp = array_namespace(theta)
        turns = np.ascontiguousarray(self._frequencies.T / (2 * math.pi))
        Z = waves(theta, adapt(turns, like=theta), 1.0)
        roots = np.sqrt(2 * np.concatenate([self.weights, self.weights[1:]]))
        roots[0] = math.sqrt(self.weights[0])
        Z = xp.concat([Z[:, :F], Z[:, F + 1 :]], axis=1) * adapt(roots, like=theta)
        return in_precision(Z, precision(X))

    def pullback(self, X: Float[Array, "n d"], C: Float[Array, "n D"]) -> Float[Array, "n d"]:
        xp, Z, F = array_namespace(X), self.features(X), len(self.weights)
        slopes = Z[:, 1:F] * C[:, F:] - Z[:, F:] * C[:, 1:F]
        G = slopes @ adapt(self._frequencies[1:] * self.spacing, like=X)
        moving = xp.abs(self.places.angles(X)) < math.pi  # rows far outside are clipped
        return xp.where(moving, G, xp.zeros_like(G))


# --- Frequencies, from kernel, box and tolerance ------------------------------------------------
#
# Barnett, Greengard and Rachh (2023) bound two errors of frequencies h∘j, |j_a| ≤ m_a:
#
# * **images**: the sum over all j is the kernel plus its images at multiples of the period 2π/h.
#   The nearest image is at distance 2π/h − |x − y|. The period is the box plus 2r, with a margin r
#   such that the kernel at distance 2r is below a share of the tolerance. Kernels with long tails
#   would need a period of many boxes. They are instead multiplied by a smooth taper beyond the
#   box, which needs few modes; weights that become negative are set to zero;
# * **truncation**: it is largest for x = y, where it is k(0) − Σ_j v_j, as all weights are
#   positive. It is computed, not bounded, one axis at a time.
#
# The frequencies include the harmonics of periodic kernels if 2π/h is a multiple of their periods.
# Along an axis where a kernel is purely periodic, 2π/h is its period for any box.


MAX_COLUMNS = 3
#: Largest number of modes along one axis, for d = 1 and for d > 1.
MAX_EXTENT_1D, MAX_EXTENT = 1 << 20, 1 << 16
#: Largest signal-to-noise ratio W k(x, x)/alpha at which errors of predictions are within the
#: tolerance; above it the truncation error dominates.
WORTH = 1e5
#: A kernel whose period exceeds TAPERED_FROM boxes is tapered if this needs fewer modes. The width
#: of the taper is the first of TAPERS (in boxes) with positive weights.
TAPERED_FROM, TAPERS = 3.0, (0.5, 1.0, 2.0, 4.0)


@dataclass(frozen=True)
class Frequencies:
    """Spacing h and extent m of a grid, and a bound on the images, relative to k(x, x)."""

    spacing: Float[Array, " d"]
    extent: tuple[int, ...]
    images: float
    tapered: bool = False

    @property
    def n_modes(self) -> int:
        """Number of modes D."""
        return math.prod(2 * m + 1 for m in self.extent)


def grid_of(
    kernel: Kernel, lower: Float[Array, " d"], upper: Float[Array, " d"], tolerance: float
) -> Frequencies:
    """Return the frequencies of the kernel, or of the tapered kernel if these are fewer."""
    if len(lower) > MAX_COLUMNS:
        raise UnsupportedKernel(
            f"FourierGrid supports one to three columns; got {len(lower)}. Fourier() and Nystrom() "
            "support any number, as does NearestNeighbours() for a Gaussian process; "
            "Columns(kernel, (0, 1)) uses two columns only."
        )
    equispaced.equispaced_weights(kernel, np.ones(len(lower)), (0,) * len(lower))
    for a, (smallest, largest) in enumerate(zip(lower, upper, strict=True)):
        if not largest > smallest:
            raise InvalidInput(
                f"FourierGrid: the box must have a size along each column; got column {a} (counted "
                f"from 0) with one value, {smallest:g}. Drop this column, or pass box=..."
            )
    d, lengths = len(lower), upper - lower
    parts, period, images = equispaced.spectral_parts(kernel, d), np.empty(d), 0.0
    share = tolerance / (8 * d)
    for a, length in enumerate(lengths):  # the margin separates the images
        margins = [_margin(_profile(part, a, d), length, share) for part in parts]
        period[a] = length + 2 * max((r for r, _ in margins), default=length / 8)
        images += 2 * max((size for _, size in margins), default=0.0)
        if terms := equispaced.seasons(kernel, a, d):
            smallest = 0.0 if equispaced.is_cyclic(kernel, a, d) else period[a]
            period[a], change = equispaced.common_period(terms, a, length, smallest, share)
            images += change
    spacing = 2 * math.pi / period
    is_far = np.any(period > TAPERED_FROM * lengths)
    short = _taper(kernel, lengths, tolerance) if is_far and tolerance >= equispaced.LEAKS else None
    # For every kernel, a period 8 times as long as with the taper needs more modes.
    if short is not None and np.any(short.spacing > 8.0 * spacing):
        return short
    kernel = equispaced.snap_periods(kernel, spacing)

    def profile(a: int, t: Array) -> Array:
        count = 0 if equispaced.is_cyclic(kernel, a, d) else 2
        images = np.abs(t + period[a] * np.arange(-count, count + 1)[:, None])
        return _profile(kernel, a, d)(images.ravel()).reshape(images.shape).sum(axis=0)

    extent = [_extent(kernel, spacing, a, profile, tolerance)[0] for a in range(d)]
    grid = Frequencies(spacing, tuple(extent), images)
    return grid if short is None or short.n_modes >= grid.n_modes else short


def _taper(kernel: Kernel, lengths: Float[Array, " d"], tolerance: float) -> Frequencies | None:
    """Return frequencies of the tapered kernel; None if negative weights are not negligible."""
    d, previous = len(lengths), None
    if any(
        equispaced.seasons(kernel, a, d) and (d > 1 or equispaced.is_cyclic(kernel, a, d))
        for a in range(d)
    ):
        return None
    for first in range(len(TAPERS)):
        grid = _modes_by_taper(kernel, lengths, tolerance, TAPERS[first:])
        if grid is None or d == 1:
            return grid
        if previous is not None and np.array_equal(grid.spacing, previous.spacing):
            continue
        previous = grid
        # Negative weights are at low frequencies: check the lowest 2¹⁶ modes.
        share = min(1.0, ((1 << 16) / grid.n_modes) ** (1 / d))
        lowest = tuple(math.ceil(share * m) for m in grid.extent)
        weights = equispaced.equispaced_weights(kernel, grid.spacing, lowest, lengths)
        if -np.minimum(weights, 0.0).sum() <= 0.05 * tolerance * weights.sum():
            return grid
    return None


def _modes_by_taper(
    kernel: Kernel, lengths: Float[Array, " d"], tolerance: float, widths: tuple[float, ...]
) -> Frequencies | None:
    """Return frequencies with, per axis, the first width whose negative weights are negligible."""
    d, change = len(lengths), 0.0  # of the kernel, if its periods are rounded
    # Half the tolerance in three columns: few more modes, and also accurate for smooth functions.
    share = 0.5 if d > 2 else 1.0
    # Axes without a width yet have the largest spacing, and so the largest weights.
    spacing, extent = 2 * math.pi / ((3 + 2 * widths[0]) * lengths), []
    periodic, falling = equispaced.split_periodic(kernel) if d == 1 else (None, kernel)
    part = kernel if falling is None else falling
    terms = () if periodic is None else equispaced.seasons(periodic, 0, d)

    def profile(a: int, t: Array) -> Array:
        values = _profile(part, a, d)(t) * equispaced.taper(t, 2 * math.pi / spacing[a], lengths[a])
        if periodic is None:
            return values
        return values + _profile(equispaced.snap_periods(periodic, spacing), a, d)(t)

    for a, length in enumerate(lengths):
        for width in widths:
            period = (3 + 2 * width) * length
            if terms:
                period, change = equispaced.common_period(terms, a, length, period, tolerance / 8)
            spacing[a] = 2 * math.pi / period
            m, negative = _extent(kernel, spacing, a, profile, tolerance * share)
            if not negative:
                break
        else:
            return None
        extent.append(m)
    return Frequencies(spacing, tuple(extent), d * equispaced.LEAKS + change, tapered=True)


def _profile(kernel: Kernel, a: int, d: int) -> Callable[[Array], Array]:
    """Return k as a function of the difference along axis a."""
    unit = np.zeros((1, d))
    unit[0, a] = 1.0
    return lambda t: kernel.evaluate(t[:, None] * unit, 0 * unit)[:, 0]


def _margin(profile: Callable[[Array], Array], length: float, level: float) -> tuple[float, float]:
    """Return a margin r beyond which k < 0.01 k(0), and the sum of images, at most ``level``."""
    t = length * np.logspace(-8, 8, 3201)
    values = profile(np.append(0.0, t))
    value_at_zero, values = values[0], np.abs(values[1:] - values[-1])  # a constant has no images
    envelope = np.maximum.accumulate(values[::-1])[::-1]  # k may oscillate
    crossings = [np.flatnonzero(values > share * value_at_zero) for share in (level, 0.01)]
    ends = [t[min(places[-1] + 1, len(t) - 1)] if len(places) else t[0] for places in crossings]
    r, order = max(ends[0] / 2, ends[1]), np.arange(1, 201)
    while True:
        nearest = order * (length + 2 * r) - length
        places = np.minimum(np.searchsorted(t, nearest), len(t) - 1)
        images = 2 * float(envelope[places].sum()) / value_at_zero
        if images <= level or r >= t[-1]:
            return r, images
        r *= 1.1


def _extent(
    kernel: Kernel,
    spacing: Float[Array, " d"],
    a: int,
    profile: Callable[[int, Array], Array],
    tolerance: float,
) -> tuple[int, bool]:
    """Return the largest mode number m along axis a, and whether negative weights exceed rounding.

    With the signal-to-noise ratio N = W k(0)/α (`WORTH`) and weights v of sum one, omitted modes
    add Σ N v²/(N v + 1) to the mean squared error of predictions of a draw of the process.
    """
    d = len(spacing)
    period, limit = 2 * math.pi / spacing[a], MAX_EXTENT_1D if d == 1 else MAX_EXTENT
    variance = kernel.at_zero(d)
    has_axes = d > 1 and equispaced.has_axes(kernel, d)
    tail = lambda weights: 2 * np.cumsum(weights[::-1])[::-1][1:]  # sums over |j_a| > m
    tail_limit, loss_limit = tolerance / (4 * d), (tolerance / 4) ** 2 / d
    # Enough samples to separate all harmonics along the axis.
    highest = sum(
        2 * math.pi / (period * spacing[a]) * equispaced.highest_harmonic(lengthscale)
        for period, lengthscale, _ in equispaced.seasons(kernel, a, d)
    )
    samples = 1 << max(10, math.ceil(math.log2(4 * highest + 1)))
    while samples <= 4 * limit:
        half = profile(a, np.arange(samples // 2 + 1) * (period / samples)) / variance
        coefficients = np.fft.rfft(np.concatenate([half, half[-2:0:-1]])).real / samples
        weights = np.maximum(coefficients, 0.0)
        largest = weights * variance  # bound of the weights with this j_a
        if has_axes:
            extent = tuple((len(weights) - 1) * (a == b) for b in range(d))
            axis_weights = equispaced.equispaced_weights(kernel, spacing, extent).ravel()
            largest = np.minimum(axis_weights[len(axis_weights) // 2 :], largest)
        signal = WORTH * largest / variance
        losses = np.where(weights > 1e-16, weights * signal / (1 + signal), 0.0)  # drop rounding
        sufficient = (tail(weights) <= tail_limit) & (tail(losses) <= loss_limit)
        extents = np.flatnonzero(sufficient)
        if len(extents) and 4 * extents[0] <= samples // 2:
            m = int(extents[0])
            negative = np.maximum(-coefficients[: m + 1], 0.0)
            wrong = 4 * negative.sum() > tail_limit or 2 * WORTH * (negative**2).sum() > loss_limit
            return m, bool(wrong)
        samples *= 4
    return limit, False


def equispaced_map(
    kernel: Kernel,
    lower: Float[Array, " d"],
    upper: Float[Array, " d"],
    tolerance: float,
    ends: tuple[Kernel, ...] = (),
) -> EquispacedMap:
    """Return the map of all Fourier modes for the tolerance; refuse a map larger than the memory.

    With ``ends``, two kernels (shorter lengthscale first), the modes suffice for both kernels.
    """
    grids = [grid_of(part, lower, upper, tolerance) for part in ends or (kernel,)]
    spacing = np.min([grid.spacing for grid in grids], axis=0)
    extents = np.max([grid.spacing * grid.extent / spacing for grid in grids], axis=0)
    extent = tuple(math.ceil(m) for m in extents.round(6))
    # The period and the taper of the longest kernel suffice for shorter kernels.
    images = max(grid.images for grid in grids)
    grid = Frequencies(spacing, extent, images, grids[-1].tapered)
    limit = MAX_EXTENT if len(grid.extent) > 1 else MAX_EXTENT_1D
    too_many = grid.n_modes > 1 << 30 or max(grid.extent) >= limit
    # Memory of an implicit fit: sums, their FFT, and ten vectors.
    size = grid.n_modes * (48 * 2 ** len(grid.extent) + 320)
    sizes = " x ".join(f"{2 * m + 1:,}" for m in grid.extent)
    start = f"FourierGrid: tolerance={tolerance:.3g} takes {sizes} modes,"
    remedy = (
        "Take a larger tolerance, a longer lengthscale, a smoother kernel, Nystrom(), or for a "
        "Gaussian process NearestNeighbours(), which has no grid."
    )
    if too_many:
        raise InvalidInput(f"{start} at least, more than any memory holds. {remedy}")
    require_room(size, start, remedy)
    return _make_map(kernel, lower, upper, grid)


def draw_grid(method: FourierGrid, kernel: Kernel, ask: Request) -> EquispacedMap:
    """Return the map of the smallest tolerance ≥ ``method.tolerance`` that fits in n_features."""
    if method.box is not None:
        lower, upper = check_box("FourierGrid", method.box, ask.n_inputs)
    else:
        lower, upper = box_of_rows(ask.rows("FourierGrid", "the box"))
    grid, width = grid_of(kernel, lower, upper, method.tolerance), ask.n_features
    if grid.n_modes > width:
        fine, coarse = math.log(method.tolerance), math.log(0.5)
        for _ in range(12):
            middle = (fine + coarse) / 2
            fits = grid_of(kernel, lower, upper, math.exp(middle)).n_modes <= width
            fine, coarse = (fine, middle) if fits else (middle, coarse)
        grid = grid_of(kernel, lower, upper, math.exp(coarse))
    while grid.n_modes > width:  # n_features is too small for any tolerance
        longest = int(np.argmax(grid.extent))
        grid = replace(grid, extent=tuple(m - (a == longest) for a, m in enumerate(grid.extent)))
    return _make_map(kernel, lower, upper, grid)


def _make_map(kernel: Kernel, lower: Array, upper: Array, grid: Frequencies) -> EquispacedMap:
    variance = float(kernel.diag(np.zeros((1, len(lower))))[0])
    lengths = upper - lower if grid.tapered else None
    flat = equispaced.equispaced_weights(kernel, grid.spacing, grid.extent, lengths).ravel()
    images = grid.images + float(np.maximum(-flat, 0.0).sum()) / variance
    flat = np.maximum(flat, 0.0)
    lacks = 1 - float(flat.sum()) / variance
    if lacks < -2 * images - 1e-3:
        raise UnsupportedKernel(
            f"FourierGrid requires a kernel whose spectral density is finite; got {kernel!r}, "
            f"whose weights add up to {1 - lacks:.3g} of k(x, x). Use Nystrom()."
        )
    return EquispacedMap(
        kernel,
        (lower + upper) / 2,
        grid.spacing,
        (upper - lower) / 2,
        np.array(grid.extent, dtype=np.int64),
        flat[len(flat) // 2 :].copy(),
        max(lacks + images, 0.0) + images,
        grid.tapered,
    )
