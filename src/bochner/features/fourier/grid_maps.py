"""Maps of Fourier grids: from kernel, box and tolerance to waves with weights."""

import math
from dataclasses import replace

import numpy as np

from bochner._core.checks import LITTLE, require_room
from bochner._core.shapes import Array, Float
from bochner.errors import InvalidInput, UnsupportedKernel
from bochner.features.fourier import frequencies
from bochner.features.fourier.grid import EquispacedMap, FourierGrid
from bochner.features.mercer.axes import box_of_rows, given_box
from bochner.features.method import Request
from bochner.kernels.equispaced import equispaced_weights, tapered_weights
from bochner.kernels.kernel import Kernel

#: The coarsest tolerance for a given width, and steps of the bisection that finds it.
LOOSEST, BISECTIONS = 0.5, 12

#: Rounding of what waves add up to, as a share of k(x, x).
SMALL = 1e-3

#: Waves that are few.
FEW_WAVES = 10**6


def equispaced_map(
    kernel: Kernel, lower: Float[Array, " d"], upper: Float[Array, " d"], tolerance: float
) -> EquispacedMap:
    """Return the map of a kernel on a box: all waves that the tolerance takes."""
    found = frequencies.grid_of(kernel, lower, upper, tolerance)
    _require_room(kernel, lower, upper, tolerance, found)
    return _mapped(kernel, lower, upper, found)


def map_between(
    kernel: Kernel,
    ends: tuple[Kernel, Kernel],
    lower: Float[Array, " d"],
    upper: Float[Array, " d"],
    tolerance: float,
) -> EquispacedMap:
    """Return the map of a kernel with the waves that a shorter and a longer one take."""
    short, long = (frequencies.grid_of(end, lower, upper, tolerance) for end in ends)
    if short.tapered != long.tapered:
        lengths = upper - lower
        short, long = (
            frequencies.with_images(
                end, *frequencies.spacing_of(end, lengths, tolerance), tolerance
            )
            for end in ends
        )
    spacing = np.minimum(short.spacing, long.spacing)
    reached = [
        np.maximum(np.ceil(grid.spacing * grid.extent / spacing), grid.extent)
        for grid in (short, long)
    ]
    extent = tuple(int(m) for m in np.maximum(*reached))
    both = frequencies.Frequencies(spacing, extent, max(short.images, long.images), short.tapered)
    _require_room(kernel, lower, upper, tolerance, both)
    return _mapped(kernel, lower, upper, both)


def draw_grid(method: FourierGrid, kernel: Kernel, ask: Request) -> EquispacedMap:
    """Draw the waves of the finest tolerance, from that asked for on, that fit in the width."""
    frequencies.require_served(kernel, ask.n_inputs)
    if method.box is not None:
        lower, upper = given_box("FourierGrid", method.box, ask.n_inputs)
    else:
        lower, upper = box_of_rows(ask.rows("FourierGrid", "the box"))
    found = frequencies.grid_of(kernel, lower, upper, method.tolerance)
    if found.waves > ask.n_features:
        found = _coarse(kernel, lower, upper, method.tolerance, ask.n_features)
    return _mapped(kernel, lower, upper, found)


def _coarse(
    kernel: Kernel, lower: Array, upper: Array, tolerance: float, width: int
) -> frequencies.Frequencies:
    """Return the waves of the finest tolerance that takes no more of them than ``width``."""
    fine, coarse = math.log(tolerance), math.log(LOOSEST)
    for _ in range(BISECTIONS):
        middle = (fine + coarse) / 2
        fits = frequencies.frequencies_of(kernel, lower, upper, math.exp(middle)).waves <= width
        fine, coarse = (fine, middle) if fits else (middle, coarse)
    found = frequencies.frequencies_of(kernel, lower, upper, math.exp(coarse))
    while found.waves > width:  # too few for any tolerance
        longest = int(np.argmax(found.extent))
        found = replace(found, extent=tuple(m - (a == longest) for a, m in enumerate(found.extent)))
    return found


def _mapped(
    kernel: Kernel, lower: Array, upper: Array, grid: frequencies.Frequencies
) -> EquispacedMap:
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


def waves_bytes(grid: frequencies.Frequencies) -> int:
    """Return the memory of an implicit fit: sums, their FFT, and ten vectors."""
    return grid.waves * (48 * 2 ** len(grid.extent) + 320)


def _require_room(
    kernel: Kernel, lower: Array, upper: Array, tolerance: float, grid: frequencies.Frequencies
) -> None:
    what = f"FourierGrid: tolerance={tolerance:.3g} takes {grid} waves,"
    if grid.waves > frequencies.MOST_WAVES or max(grid.extent) >= (
        frequencies.MOST_ALONG if len(grid.extent) > 1 else frequencies.MOST_ALONE
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
        grid = frequencies.grid_of(kernel, lower, upper, tolerance)
        if grid.waves < FEW_WAVES:
            less = f"tolerance={tolerance:.1g} takes {grid}. "
            break
    return (
        f"{less}Or take a longer lengthscale, a smoother kernel, Nystrom(), or for a Gaussian "
        "process NearestNeighbours(), which has no grid."
    )
