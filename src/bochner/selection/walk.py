"""The lengthscale of a named kernel, by leave-one-out errors in steps of √2.

The walk starts from the median distance, with one lengthscale or with one per column in proportion
to its deviation, and takes about a second.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from bochner._core.shapes import Array, Float
from bochner.data.sample import RowSample
from bochner.errors import InvalidInput, UnsupportedKernel
from bochner.features.auto import Auto, left_out
from bochner.features.fourier.fourier import Fourier, FourierMap
from bochner.features.fourier.placements import IID, Orthogonal
from bochner.features.method import Method, Request
from bochner.features.rules import draw_map
from bochner.kernels.dotproduct import Linear
from bochner.kernels.kernel import Kernel
from bochner.kernels.stationary import Gaussian
from bochner.kernels.stationary_families import Matern
from bochner.selection.held_out import FEWEST
from bochner.selection.record import Recorder, Tuning
from bochner.selection.rows import FEW_PAIRS, PAIRS, Scale, deviations, median_distance, rounded
from bochner.selection.spec import NAMED, Family
from bochner.solvers.convex.problem import walk
from bochner.solvers.ridge.criteria import LOO
from bochner.solvers.ridge.solution import NO_ERROR, SAME, best_of

#: Families of the sum of coordinate distances, not of the Euclidean distance.
COORDINATEWISE = ("laplace", "cauchy")
FARTHEST = 8  # Largest number of half-octaves from the median distance: a factor of 16
#: Relative rounding error of a leave-one-out error, times the penalty per row: at 1.4e-12 errors of
#: 15 rows differ by 2 % between processors.
ROUNDING = 256 * np.finfo(np.float64).eps
SEARCH_ROWS, SEARCH_FEATURES = 4096, 512  # Rows and features of the search
JUDGED_FEATURES = 256  # Features by which transformations of columns are judged


def choose_lengthscale(
    name: str,
    sample: RowSample,
    n_features: int,
    seed: int,
    share: float | None = None,
) -> Tuning:
    """Return the kernel of this family with the lengthscale of the least leave-one-out error.

    ``share`` is a given per-row penalty (alpha/n); without it each lengthscale has its own best
    penalty. Without targets the median distance between rows is returned. "auto" is "gaussian".
    """
    if name == "linear":
        return Tuning(Linear())
    family, sample = NAMED[name], sample.lowest(SEARCH_ROWS)
    starts = median_scales(sample, name in COORDINATEWISE, seed)
    if sample.y.shape[1] == 0 or len(sample) < 4 or not np.any(np.ptp(sample.y, axis=0)):
        return Tuning(family(starts[0]))
    error = WalkErrors(family, sample, min(n_features, SEARCH_FEATURES), seed, share)
    values = [error(scale, 0) for scale in starts]
    start = starts[int(len(starts) > 1 and (1 + SAME) * values[1] < values[0])]
    best = walk(partial(error, start), 0, -FARTHEST, FARTHEST, first=-1)
    scale = _scaled(start, 2.0 ** (best / 2))
    return error.recorder.tuning(family(scale), error.tried[scale][1])


def _scaled(scale: Scale, factor: float) -> Scale:
    """Return lengthscales times a factor, rounded to four digits."""
    return rounded(tuple(s * factor for s in scale) if isinstance(scale, tuple) else scale * factor)


def median_scales(
    sample: RowSample, coordinatewise: bool, seed: int, most: int = PAIRS
) -> list[Scale]:
    """Return median distances as lengthscales: a common one, and one per column if they differ."""
    X, w, order = sample.X, sample.w, 1 if coordinatewise else 2
    unit = float(abs(X).max()) or 1.0  # squares of huge and tiny numbers overflow
    scales: list[Scale] = [median_distance(X, w, (unit,), seed, order, most)]
    spread = deviations(X, w, unit)
    if spread.max() > 1.05 * spread.min():  # one per column
        median = median_distance(X, w, (unit, spread), seed, order, most)
        scales.append(tuple((median * spread).tolist()))
    scales = [_scaled(scale, unit) for scale in scales]
    if np.min(scales[0]) < np.finfo(np.float64).tiny:
        raise InvalidInput(
            "X must hold numbers whose differences float64 holds to all its digits; got columns "
            f"of {unit:.3g} at most. Multiply them by a power of ten."
        )
    return scales


class WalkErrors:
    """Leave-one-out errors of one family, some half-octaves from a start.

    All features have the same seed, so that frequencies are rescaled and errors are comparable.
    The angles xᵀω of a start are kept: with a multiple of its lengthscales they only change by a
    factor.
    """

    def __init__(
        self, family: Family, sample: RowSample, width: int, seed: int, share: float | None = None
    ) -> None:
        self.recorder = Recorder(LOO)
        self.tried: dict[Scale, tuple[float, float]] = {}
        self._family, self._sample, self._share = family, sample, share
        self._X = sample.X.astype(np.float64, copy=False)
        ask = Request(sample.X.shape[1], max(2, width - width % 2), seed, ("lengthscale",))
        try:
            self._unit: Any = draw_map(Fourier(Orthogonal()), family(1.0), ask)
        except UnsupportedKernel:
            self._unit = draw_map(Fourier(IID()), family(1.0), ask)
        self._angles: dict[Scale, Array] = {}

    def __call__(self, start: Scale, half_octaves: int) -> float:
        """Return the error, relative to the targets' variance."""
        scale = _scaled(start, 2.0 ** (half_octaves / 2))
        if scale in self.tried:
            return self.tried[scale][0]
        sample = self._sample
        errors = left_out(self._features(start, half_octaves), sample.y, sample.w, self._share)
        weight = errors.moments.weight
        power, shares = errors.moments.power / weight, errors.alphas / weight
        best = best_of(errors.errors * (1 + ROUNDING / shares), "loo")
        least = max(float(errors.errors[best]), NO_ERROR * float(power.max()))
        self.tried[scale] = least, float(shares[best])
        stage, relative = (
            "half-octaves" if half_octaves else "median distance",
            least / power[power > 0].mean(),
        )
        self.recorder.step(stage, self._family(scale), float(shares[best]), relative)
        return least

    def _features(self, start: Scale, half_octaves: int) -> Float[Array, "n D"]:
        if start not in self._angles:
            self._angles[start] = self._X @ (self._unit.matrix / np.reshape(start, (-1, 1)))
        factors = np.diag(np.full(self._unit.n_frequencies, 2.0 ** (-half_octaves / 2)))
        phi = FourierMap(self._unit.kernel, factors, self._unit.amplitude)
        return phi.features(self._angles[start])


def error_near_median(rows: RowSample, seed: int) -> Callable[[int, int], float]:
    """Return the leave-one-out error of rows as a function of kind and steps of √2 from the median.

    The kind is 0 for one lengthscale and 1 for one per column.
    """
    error = WalkErrors(NAMED["gaussian"], rows, JUDGED_FEATURES, seed)
    starts = median_scales(rows, False, seed, FEW_PAIRS)
    return lambda which, step: error(starts[min(which, len(starts) - 1)], step)


def serves_kernel(method: Method | None, X: Array, seed: int, kernel: Kernel) -> bool:
    """Whether the method makes features of the kernel; "auto" and None serve every kernel."""
    if method is None or isinstance(method, Auto):
        return True
    try:
        _draw_few(method, kernel, X, seed)
    except UnsupportedKernel:
        return False
    except InvalidInput:  # too few features or rows for this trial
        return True
    return True


def require_served(method: Method | None, X: Array, seed: int) -> None:
    """Raise UnsupportedKernel if the method serves no kernel from which a search starts."""
    starts = Gaussian(), Matern(1.5)
    if method and not any(serves_kernel(method, X, seed, kernel) for kernel in starts):
        _draw_few(method, Gaussian(), X, seed)


def _draw_few(method: Method, kernel: Kernel, X: Array, seed: int) -> None:
    draw_map(method, kernel, Request(X.shape[1], 2 * X.shape[1], seed, X=X[:FEWEST]))
