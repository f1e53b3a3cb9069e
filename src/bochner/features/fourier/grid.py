"""Equispaced Fourier features: waves on a grid of frequencies, in one to three columns.

Greengard, Rachh and Barnett (2022) take k(x − y) = ∫ p(ω) cos ω·(x − y) dω by the trapezoidal rule
with frequencies h∘j, |j_a| ≤ m_a. Two errors are made (Barnett, Greengard and Rachh 2023):

* **images**: the sum over all j is that of the kernel and its images a period 2π/h apart, of which
  the nearest is 2π/h − |x − y| away. The period is the box of the rows and twice a margin r, at
  whose double the kernel has come down to a share of the tolerance;
  Kernels of long tails would take a period of many boxes. They come down to zero beyond the box
  instead, by a smooth taper whose waves are few; weights that this makes negative are left out;
* **truncation**: no pair lacks more than the pair x = y, which lacks k(0) − Σ_j v_j, all weights
  being positive. It is not bounded but added up, along one axis after the other.

Rows outside the box by more than r count as r away, where the kernel with all rows of the box is
below a hundredth: there a fit is what it knows without them.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from bochner._core.arrays import dense, moved, precision
from bochner._core.checks import LITTLE, check_fields, optional, require_room, share
from bochner._core.nufft import waves_at
from bochner._core.shapes import Array, Float, Int
from bochner.errors import InvalidInput, UnsupportedKernel
from bochner.features.map import in_double
from bochner.features.mercer.axes import dense_blocks
from bochner.features.method import Request
from bochner.features.waves import WaveMap, WaveMethod
from bochner.kernels.equispaced import (
    LEAKS,
    equispaced_weights,
    has_axes,
    spectral_parts,
    taper,
    tapered_weights,
)
from bochner.kernels.green import checked_box
from bochner.kernels.kernel import Kernel
from bochner.solvers.toeplitz import ToeplitzGram, half_of
from bochner.sums.fourier import BoxPlaces

#: The finest tolerance: below, rounding of float64 sums is as large.
FINEST = 1e-12

#: The coarsest tolerance that a width is given waves of, in so many steps of a bisection.
LOOSEST, BISECTIONS = 0.5, 12

#: Rounding of what waves add up to, as a share of k(x, x).
SMALL = 1e-3

#: The most columns.
MOST_COLUMNS = 3

#: The kernel with all rows of the box is below this share of k(0) from one margin outside on.
FAR = 0.01

#: Most waves along the only axis, and along one of several, that are looked at, and most in all:
#: beyond, no computer has room.
MOST_ALONE, MOST_ALONG, MOST_WAVES = 1 << 20, 1 << 16, 1 << 30

#: Waves that are few.
FEW_WAVES = 10**6

#: Predictions are held to the tolerance up to this W k(x, x)/alpha: rows tell what waves weigh by
#: it, and the more they do the more predictions miss those that are left out.
WORTH = 1e5

#: Rounding of a wave's weight that is read off samples, as a share of k(x, x).
ROUNDED = 1e-16

#: A kernel whose period is more than so many boxes is tapered instead, if that takes fewer waves:
#: over so many boxes from the end of the box on, until what is left is positive.
TAPERED_FROM, TAPERS = 3.0, (0.5, 1.0, 2.0, 4.0)

#: Weights below zero of a tapered kernel, as a share of the tolerance, at most.
NEGATIVE = 0.05

#: Of more waves only the lowest are looked at for weights below zero, which are among these.
MOST_WEIGHED = 1 << 16

#: A period so many times that of the taper takes more waves whatever the kernel.
NOT_COMPARED = 8.0

#: Images of the kernel on either side that its samples along an axis take in, and that are added
#: up for the margin.
IMAGES, FURTHEST = 2, 200

#: Pairs of rows whose kernel is summed up together.
PAIRS = 1 << 20

#: Distances in units of the box, for where the kernel has come down.
DISTANCES = np.logspace(-8, 8, 3201)


@dataclass(frozen=True)
class FourierGrid(WaveMethod):
    """Waves of equispaced frequencies, within a tolerance of the kernel for all pairs of rows.

    Parameters
    ----------
    tolerance : float, default 1e-4
        The largest error of φ(x)·φ(y), as a share of k(x, x), of rows in the box: from 1e-12 to
        below 1. Predictions err by at most as much of the size of f where W k(x, x)/alpha is up to
        10⁵, and beyond by up to its root of that times as much. The number of waves grows as its
        logarithm for smooth kernels, as tolerance^(−d/(2ν)) for Matérn kernels of smoothness ν.
    box : d pairs (lower, upper), optional
        The box itself, in place of the rows' own: where rows will come that are further out.

    Notes
    -----
    Serves stationary kernels with a spectral density in one to three columns (Gaussian, Matérn,
    rational quadratic, Laplace, Cauchy, spectral mixtures, any lengthscales and metric), sums,
    multiples and products of them.

    :class:`KernelRidge` and :class:`GaussianProcessRegressor` never make these features: they sum
    waves over the rows by non-uniform FFT, and solve by conjugate gradients with FFT. Time O(n
    log^d(1/tolerance)) for n rows and O(D log D) a step, memory O(2^d D), and D, up to many
    millions, is what the tolerance takes; ``n_features`` plays no part. Needs finufft (``pip
    install "bochner[grid]"``): NumPy does the same in O(n D).

    For all other learners it is a feature map like others, of ``n_features`` waves at most: where
    the tolerance takes more, those of the tolerance that they suffice for.

    Sources: Greengard, Rachh and Barnett (2022), *Equispaced Fourier representations for efficient
    Gaussian process regression from a billion data points*; Barnett, Greengard and Rachh (2023),
    *Uniform approximation of common Gaussian process kernels using equispaced Fourier grids*, for
    what images and truncation are made of.
    """

    tolerance: float = 1e-4
    box: tuple[tuple[float, float], ...] | None = None

    def __post_init__(self) -> None:
        check_fields(self, tolerance=share, box=optional(checked_box))
        if self.tolerance < FINEST:
            raise InvalidInput(
                f"FourierGrid: tolerance must be {FINEST:g} or above, which is what float64 "
                f"resolves; got {self.tolerance:g}."
            )

    @property
    def accuracy(self) -> float:
        return self.tolerance

    def least_numbers(self, n_features: int, n_columns: int) -> int:
        return 0


@dataclass(frozen=True, eq=False)
class EquispacedMap(WaveMap):
    """φ(x) = (√v_0, (√(2 v_j) cos j·θ)_j, (√(2 v_j) sin j·θ)_j), θ = h∘(x − centre).

    Attributes
    ----------
    kernel : Kernel
    centre, spacing : (d,)
        Of the box; h.
    half : (d,)
        Half of the box's size.
    extent : (d,) int
        m. One j of each pair j, −j has features: the later in lexicographic order.
    weights : (F,)
        v_j of those, from j = 0 on.
    error : float
        Bound of |φ(x)·φ(y) − k(x, y)| in the box, as a share of k(x, x).
    tapered : bool
        Whether the kernel comes down to zero beyond the box, in the place of having images.
    """

    kernel: Kernel
    centre: Float[Array, " d"]
    spacing: Float[Array, " d"]
    half: Float[Array, " d"]
    extent: Int[Array, " d"]
    weights: Float[Array, " F"]
    error: float
    tapered: bool = False

    def __post_init__(self) -> None:
        waves = math.prod(2 * m + 1 for m in self.shape) if min(self.shape, default=-1) >= 0 else 0
        if waves != self.n_features:
            raise InvalidInput(
                f"EquispacedMap: weights must be those of {waves:,} waves, one for a pair j, −j; "
                f"got {len(self.weights):,}."
            )

    unbiased = False  # Nothing random

    @property
    def n_inputs(self) -> int:
        return len(self.centre)

    @property
    def n_features(self) -> int:
        return 2 * len(self.weights) - 1

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(int(m) for m in self.extent)

    @property
    def variances(self) -> Array:
        flat = np.concatenate([self.weights[:0:-1], self.weights])
        return flat.reshape([2 * m + 1 for m in self.shape])

    @property
    def places(self) -> BoxPlaces:
        return BoxPlaces(self.centre, self.spacing, self.half)

    def variances_of(self, kernel: Kernel) -> Array:
        if self.tapered:
            return np.maximum(tapered_weights(kernel, self.spacing, self.shape, 2 * self.half), 0.0)
        return equispaced_weights(kernel, self.spacing, self.shape)

    def gram(self, waves: Array, variances: Array, centred: bool) -> ToeplitzGram:
        return ToeplitzGram(waves, variances, centred)

    def as_coefficients(self, numbers: Array) -> Array:
        return half_of(numbers[None])[0].real

    def matrix(self, X: Float[Array, "m d"], error: float) -> Float[Array, "m m"]:
        """Return Σ_j v_j cos j·(θ(x) − θ(y)) of all pairs of rows."""
        angles = self.places.angles(X)
        waves = self.variances[None].astype(np.complex128)
        m = len(angles)
        i, j = np.tril_indices(m)
        K = np.empty((m, m))
        for start in range(0, len(i), PAIRS):
            some = slice(start, start + PAIRS)
            found = waves_at(angles[i[some]] - angles[j[some]], waves, error)[0].real
            K[i[some], j[some]] = found
            K[j[some], i[some]] = found
        return K

    @cached_property
    def _waves(self) -> Array:
        """Whole numbers j of the features, (F, d)."""
        axes = [np.arange(-m, m + 1, dtype=np.float64) for m in self.shape]
        whole = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))
        return whole[len(whole) // 2 :]

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        dtype = precision(X)
        xp, X = in_double(dense(X))
        theta = (X - moved(self.centre, like=X)) * moved(self.spacing, like=X)
        theta = xp.clip(theta, -math.pi, math.pi)
        waves = moved(np.ascontiguousarray(self._waves), like=X)
        turns = theta[:, 0][:, None] * waves[:, 0][None, :]
        for a in range(1, self.n_inputs):
            turns = turns + theta[:, a][:, None] * waves[:, a][None, :]
        roots = np.sqrt(2 * self.weights)
        roots[0] = math.sqrt(self.weights[0])
        along = moved(roots, like=X)
        found = xp.concat([xp.cos(turns) * along, xp.sin(turns[:, 1:]) * along[1:]], axis=1)
        return xp.astype(found, getattr(xp, str(dtype)), copy=False)


# --- From kernel, box and tolerance to a grid ----------------------------------------------------


def equispaced_map(
    kernel: Kernel, lower: Float[Array, " d"], upper: Float[Array, " d"], tolerance: float
) -> EquispacedMap:
    """Return the map of a kernel on a box: all waves that the tolerance takes.

    Raises
    ------
    UnsupportedKernel
        If the kernel has no spectral density, does not decay, or there are more than three columns.
    InvalidInput
        If the box has no size along a column, or the grid does not fit in memory.
    """
    found = grid_of(kernel, lower, upper, tolerance)
    _require_room(kernel, lower, upper, tolerance, found)
    return _mapped(kernel, lower, upper, found)


@dataclass(frozen=True)
class Frequencies:
    """Spacing h and extent m of a grid, and a bound of what images of the kernel add to it."""

    spacing: Float[Array, " d"]
    extent: tuple[int, ...]
    images: float
    tapered: bool = False

    @property
    def waves(self) -> int:
        """How many there are, D."""
        return math.prod(2 * m + 1 for m in self.extent)

    def __str__(self) -> str:
        """Return how many there are along each axis."""
        return " x ".join(f"{2 * m + 1:,}" for m in self.extent)


def grid_of(
    kernel: Kernel, lower: Float[Array, " d"], upper: Float[Array, " d"], tolerance: float
) -> Frequencies:
    """Return the frequencies that a tolerance takes."""
    _require_serves(kernel, len(lower))
    _require_size(lower, upper)
    return _within(kernel, lower, upper, tolerance)


def _within(kernel: Kernel, lower: Array, upper: Array, tolerance: float) -> Frequencies:
    """Return frequencies of the kernel with images, or tapered where that takes fewer."""
    lengths = upper - lower
    spacing, images = _spacing(kernel, lengths, tolerance)
    far = np.any(2 * math.pi / spacing > TAPERED_FROM * lengths)
    short = _tapered(kernel, lengths, tolerance) if far and tolerance >= LEAKS else None
    if short is not None and np.any(short.spacing > NOT_COMPARED * spacing):
        return short
    found = _periodic(kernel, spacing, images, tolerance)
    return found if short is None or short.waves >= found.waves else short


def _spacing(
    kernel: Kernel, lengths: Float[Array, " d"], tolerance: float
) -> tuple[Float[Array, " d"], float]:
    """Return h and a bound of images, of a margin that keeps them away."""
    d = len(lengths)
    parts, period, images = spectral_parts(kernel), np.empty(d), 0.0
    for a, length in enumerate(lengths):
        found = [_margin(_along(part, a, d), length, tolerance / (8 * d)) for part in parts]
        period[a] = length + 2 * max((r for r, _ in found), default=length / 8)
        images += max((size for _, size in found), default=0.0)
    return 2 * math.pi / period, 2 * images


def _periodic(
    kernel: Kernel, spacing: Float[Array, " d"], images: float, tolerance: float
) -> Frequencies:
    """Return frequencies of the kernel and its images."""
    d, period = len(spacing), 2 * math.pi / spacing

    def sampled(a: int, t: Array) -> Array:
        along = _along(kernel, a, d)
        many = [along(np.abs(t + n * period[a])) for n in range(-IMAGES, IMAGES + 1)]
        return np.sum(many, axis=0)

    extent = [_extent(kernel, spacing, a, sampled, tolerance)[0] for a in range(d)]
    return Frequencies(spacing, tuple(extent), images)


def _tapered(kernel: Kernel, lengths: Float[Array, " d"], tolerance: float) -> Frequencies | None:
    """Return frequencies of the kernel tapered beyond the box, where that is positive enough."""
    before = None
    for first in range(len(TAPERS)):
        found = _tapered_by(kernel, lengths, tolerance, TAPERS[first:])
        if found is None or len(lengths) == 1:
            return found
        if before is not None and np.array_equal(found.spacing, before.spacing):
            continue
        before = found
        share = min(1.0, (MOST_WEIGHED / found.waves) ** (1 / len(lengths)))
        lowest = tuple(math.ceil(share * m) for m in found.extent)
        weights = tapered_weights(kernel, found.spacing, lowest, lengths)
        if -np.minimum(weights, 0.0).sum() <= NEGATIVE * tolerance * weights.sum():
            return found
    return None


def _tapered_by(
    kernel: Kernel, lengths: Float[Array, " d"], tolerance: float, widths: tuple[float, ...]
) -> Frequencies | None:
    """Return those of the first width along each axis whose weights there are positive enough."""
    d = len(lengths)
    spacing, extent = np.empty(d), []

    def sampled(a: int, t: Array) -> Array:
        return _along(kernel, a, d)(t) * taper(t, 2 * math.pi / spacing[a], lengths[a])

    for a, length in enumerate(lengths):
        for width in widths:
            spacing[a] = 2 * math.pi / ((3 + 2 * width) * length)
            m, negative = _extent(kernel, spacing, a, sampled, tolerance)
            if not negative:
                break
        else:
            return None
        extent.append(m)
    return Frequencies(spacing, tuple(extent), d * LEAKS, tapered=True)


def map_between(
    kernel: Kernel,
    ends: tuple[Kernel, Kernel],
    lower: Float[Array, " d"],
    upper: Float[Array, " d"],
    tolerance: float,
) -> EquispacedMap:
    """Return the map of a kernel with the waves that a shorter and a longer one take."""
    short, long = (grid_of(end, lower, upper, tolerance) for end in ends)
    if short.tapered != long.tapered:
        lengths = upper - lower
        short, long = (
            _periodic(end, *_spacing(end, lengths, tolerance), tolerance) for end in ends
        )
    spacing = np.minimum(short.spacing, long.spacing)
    reached = [
        np.maximum(np.ceil(grid.spacing * grid.extent / spacing), grid.extent)
        for grid in (short, long)
    ]
    extent = tuple(int(m) for m in np.maximum(*reached))
    both = Frequencies(spacing, extent, max(short.images, long.images), short.tapered)
    _require_room(kernel, lower, upper, tolerance, both)
    return _mapped(kernel, lower, upper, both)


def box_of(method: FourierGrid, X: Float[Array, "n d"]) -> tuple[Array, Array]:
    """Return the corners of the box: as given, or those of the rows."""
    if method.box is not None:
        return given_box(method.box, X.shape[1])
    faces = [(rows.min(axis=0), rows.max(axis=0)) for rows in dense_blocks(X)]
    least, largest = (np.array(side) for side in zip(*faces, strict=True))
    return least.min(axis=0), largest.max(axis=0)


def given_box(box: tuple[tuple[float, float], ...], d: int) -> tuple[Array, Array]:
    """Return the corners of a box that was given for d columns."""
    if len(box) != d:
        raise InvalidInput(
            f"FourierGrid: box must have a pair for each column; got {len(box)} for {d} columns."
        )
    lower, upper = np.array(box, dtype=float).T
    return lower.copy(), upper.copy()


def draw_grid(method: FourierGrid, kernel: Kernel, ask: Request) -> EquispacedMap:
    """Draw the waves of the finest tolerance, from that asked for on, that fit in the width."""
    _require_serves(kernel, ask.n_inputs)
    if method.box is not None:
        lower, upper = given_box(method.box, ask.n_inputs)
    else:
        lower, upper = box_of(method, ask.rows("FourierGrid", "the box"))
    found = grid_of(kernel, lower, upper, method.tolerance)
    if found.waves > ask.n_features:
        found = _coarse(kernel, lower, upper, method.tolerance, ask.n_features)
    return _mapped(kernel, lower, upper, found)


def _coarse(
    kernel: Kernel, lower: Array, upper: Array, tolerance: float, width: int
) -> Frequencies:
    """Return the waves of the finest tolerance that takes no more of them than ``width``."""
    fine, coarse = math.log(tolerance), math.log(LOOSEST)
    for _ in range(BISECTIONS):
        middle = (fine + coarse) / 2
        fits = _within(kernel, lower, upper, math.exp(middle)).waves <= width
        fine, coarse = (fine, middle) if fits else (middle, coarse)
    found = _within(kernel, lower, upper, math.exp(coarse))
    while found.waves > width:  # too few for any tolerance
        longest = int(np.argmax(found.extent))
        found = replace(found, extent=tuple(m - (a == longest) for a, m in enumerate(found.extent)))
    return found


def _mapped(kernel: Kernel, lower: Array, upper: Array, grid: Frequencies) -> EquispacedMap:
    images = grid.images
    whole = float(kernel.diag(np.zeros((1, len(lower))))[0])
    if grid.tapered:
        flat = tapered_weights(kernel, grid.spacing, grid.extent, upper - lower).ravel()
        images += float(np.maximum(-flat, 0.0).sum()) / whole
        flat = np.maximum(flat, 0.0)
    else:
        flat = equispaced_weights(kernel, grid.spacing, grid.extent).ravel()
    lacks = 1 - float(flat.sum()) / whole
    if lacks < -2 * images - SMALL:
        raise UnsupportedKernel(
            f"FourierGrid requires a kernel whose spectral density is finite; got {kernel!r}, "
            f"whose waves add up to {1 - lacks:.3g} of k(x, x). Take Nystrom()."
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


Profile = Callable[[Array], Array]


def _along(kernel: Kernel, a: int, d: int) -> Profile:
    """Return k as a function of the difference along an axis."""
    unit = np.zeros((1, d))
    unit[0, a] = 1.0
    return lambda t: kernel(t[:, None] * unit, 0 * unit)[:, 0]


def _margin(along: Profile, length: float, level: float) -> tuple[float, float]:
    """Return r, and how much images weigh there: no more than the level, and k(r) a hundredth."""
    t = length * DISTANCES
    values = along(t)
    limit, whole = values[-1], along(np.zeros(1))[0]
    values = np.abs(values - limit)  # a constant part has no images
    beyond = np.maximum.accumulate(values[::-1])[::-1]  # waves of the kernel go up and down
    above = [np.flatnonzero(values > share * whole) for share in (level, FAR)]
    at = [t[min(places[-1] + 1, len(t) - 1)] if len(places) else t[0] for places in above]
    r, order = max(at[0] / 2, at[1]), np.arange(1, FURTHEST + 1)
    while True:
        nearest = order * (length + 2 * r) - length
        places = np.minimum(np.searchsorted(t, nearest), len(t) - 1)
        images = 2 * float(beyond[places].sum()) / whole
        if images <= level or r >= t[-1]:
            return r, images
        r *= 1.1


def _largest(kernel: Kernel, spacing: Float[Array, " d"], a: int) -> Callable[[Array], Array]:
    """Return from the weights of all waves of each j_a a bound of the largest among these."""
    if len(spacing) == 1 or not has_axes(kernel):
        return lambda weights: weights

    def on_axis(weights: Array) -> Array:
        extent = tuple((len(weights) - 1) * (a == b) for b in range(len(spacing)))
        found = equispaced_weights(kernel, spacing, extent).ravel()
        return np.minimum(found[len(found) // 2 :], weights)

    return on_axis


def _extent(
    kernel: Kernel,
    spacing: Float[Array, " d"],
    a: int,
    sampled: Callable[[int, Array], Array],
    tolerance: float,
) -> tuple[int, bool]:
    """Return m along an axis, and whether weights below zero are more than rounding.

    Waves beyond weigh little, and predictions miss little by them. Weights are read off samples by
    FFT. With N = W k(0)/α and weights v that add up to 1, predictions of a draw of the process lack
    Σ N v²/(N v + 1) in the mean square of waves that are left out.
    """
    d = len(spacing)
    period, most = 2 * math.pi / spacing[a], MOST_ALONE if d == 1 else MOST_ALONG
    whole, largest = float(kernel.diag(np.zeros((1, d)))[0]), _largest(kernel, spacing, a)
    lacking, missing = tolerance / (4 * d), (tolerance / 4) ** 2 / d
    samples = 1 << 10
    while samples <= 4 * most:
        half = sampled(a, np.arange(samples // 2 + 1) * (period / samples)) / whole
        signed = np.fft.rfft(np.concatenate([half, half[-2:0:-1]])).real / samples
        weights = np.maximum(signed, 0.0)
        told = WORTH * largest(weights * whole) / whole
        missed = np.where(weights > ROUNDED, weights * told / (1 + told), 0.0)
        enough = (_beyond(weights) <= lacking) & (_beyond(missed) <= missing)
        found = np.flatnonzero(enough)
        if len(found) and 4 * found[0] <= samples // 2:
            m = int(found[0])
            below = np.maximum(-signed[: m + 1], 0.0)
            wrong = 4 * below.sum() > lacking or 2 * WORTH * (below**2).sum() > missing
            return m, bool(wrong)
        samples *= 4
    return most, False


def _beyond(weights: Array) -> Array:
    """Return what the waves of larger j_a than each add up to, −j_a among them."""
    return 2 * np.cumsum(weights[::-1])[::-1][1:]


def _require_serves(kernel: Kernel, d: int) -> None:
    if d > MOST_COLUMNS:
        raise UnsupportedKernel(
            f"FourierGrid serves one to three columns; got {d}. Fourier() and Nystrom() serve any "
            "number, and NearestNeighbours() those of a Gaussian process; Columns(kernel, (0, 1)) "
            "looks at some."
        )
    equispaced_weights(kernel, np.ones(d), (0,) * d)


def _require_size(lower: Array, upper: Array) -> None:
    for a, (least, largest) in enumerate(zip(lower, upper, strict=True)):
        if not largest > least:
            raise InvalidInput(
                f"FourierGrid: the box must have a size along each column; got column {a} (counted "
                f"from 0) with the one value {least:g}. Drop that column, or give a box=..."
            )


def waves_bytes(grid: Frequencies) -> int:
    """Return the memory of an implicit fit: sums, their FFT, and ten vectors."""
    return grid.waves * (48 * 2 ** len(grid.extent) + 320)


def _require_room(
    kernel: Kernel, lower: Array, upper: Array, tolerance: float, grid: Frequencies
) -> None:
    what = f"FourierGrid: tolerance={tolerance:.3g} takes {grid} waves,"
    if grid.waves > MOST_WAVES or max(grid.extent) >= (
        MOST_ALONG if len(grid.extent) > 1 else MOST_ALONE
    ):
        raise InvalidInput(
            f"{what} at least, more than any memory holds. "
            f"{_remedy(kernel, lower, upper, tolerance)}"
        )
    if waves_bytes(grid) > LITTLE:
        remedy = _remedy(kernel, lower, upper, tolerance)
        require_room(waves_bytes(grid), what, remedy)


def _remedy(kernel: Kernel, lower: Array, upper: Array, tolerance: float) -> str:
    """Say what a larger tolerance takes: the first tenfold one of under a million waves."""
    less = f"No tolerance up to {LOOSEST:g} takes under a million waves. "
    while 10 * tolerance <= LOOSEST:
        tolerance *= 10
        grid = grid_of(kernel, lower, upper, tolerance)
        if grid.waves < FEW_WAVES:
            less = f"tolerance={tolerance:.1g} takes {grid}. "
            break
    return (
        f"{less}Or take a longer lengthscale, a smoother kernel, Nystrom(), or for a Gaussian "
        "process NearestNeighbours(), which has no grid."
    )
