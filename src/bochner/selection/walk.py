"""The lengthscale of a named kernel, by leave-one-out errors in steps of √2.

The walk starts from the median distance, with one lengthscale or with one per column in proportion
to its deviation, and takes about a second.
"""

from collections.abc import Callable
from functools import cached_property, partial
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

#: Largest number of half-octaves from the median distance: a factor of 16.
FARTHEST = 8

#: Relative rounding error of a leave-one-out error, times the penalty per row: at 1.4e-12 errors of
#: 15 rows differ by 2 % between processors.
ROUNDING = 256 * np.finfo(np.float64).eps

#: Rows and features of the search.
SEARCH_ROWS, SEARCH_FEATURES = 4096, 512

#: Features by which transformations of columns are judged.
JUDGED_FEATURES = 256


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
    family = NAMED[name]
    if name == "linear":
        return Tuning(Linear())
    return KernelWalk(family, name in COORDINATEWISE, n_features, seed, share).run(sample)


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


class KernelWalk:
    """A walk of one family in half-octaves.

    All features have the same seed, so that frequencies are rescaled and errors are comparable.
    If rows have more columns than there are frequencies, the angles xᵀω are kept: with a multiple
    of the same lengthscales they only change by a factor.
    """

    def __init__(
        self,
        family: Family,
        coordinatewise: bool,
        n_features: int,
        seed: int,
        share: float | None = None,
    ) -> None:
        width = min(n_features, SEARCH_FEATURES)
        self._family, self._coordinatewise = family, coordinatewise
        self._width, self._seed, self._share = max(2, width - width % 2), seed, share
        self._recorder = Recorder(LOO)
        self._tried: dict[Scale, tuple[float, float]] = {}
        self._angles: dict[Scale, Array] = {}

    def error_of(self, sample: RowSample, start: Scale, half_octaves: int) -> float:
        """Return the leave-one-out error of a sample at one lengthscale of the walk."""
        self._sample = sample
        return self._error(start, half_octaves)

    def run(self, sample: RowSample) -> Tuning:
        """Return the kernel with the least error, and the record."""
        self._sample = sample = sample.lowest(SEARCH_ROWS)
        starts = median_scales(sample, self._coordinatewise, self._seed)
        if sample.y.shape[1] == 0 or len(sample) < 4 or not np.any(np.ptp(sample.y, axis=0)):
            return Tuning(self._family(starts[0]))
        values = [self._error(scale, 0) for scale in starts]
        start = starts[int(len(starts) > 1 and (1 + SAME) * values[1] < values[0])]
        best = walk(partial(self._error, start), 0, -FARTHEST, FARTHEST, first=-1)
        scale = _scaled(start, 2.0 ** (best / 2))
        return self._recorder.tuning(self._family(scale), self._tried[scale][1])

    def _error(self, start: Scale, half_octaves: int) -> float:
        scale = _scaled(start, 2.0 ** (half_octaves / 2))
        if scale not in self._tried:
            self._tried[scale] = self._evaluated(start, half_octaves, scale)
        return self._tried[scale][0]

    def _evaluated(self, start: Scale, half_octaves: int, scale: Scale) -> tuple[float, float]:
        """Return the error, and its penalty per row."""
        sample = self._sample
        errors = left_out(self._features(start, half_octaves), sample.y, sample.w, self._share)
        weight = errors.moments.weight
        power, shares = errors.moments.power / weight, errors.alphas / weight
        best = best_of(errors.errors * (1 + ROUNDING / shares), "loo")
        least = max(float(errors.errors[best]), NO_ERROR * float(power.max()))
        share = float(shares[best])
        stage = "half-octaves" if half_octaves else "median distance"
        self._recorder.step(stage, self._family(scale), share, least / power[power > 0].mean())
        return least, share

    def _features(self, start: Scale, half_octaves: int) -> Float[Array, "n D"]:
        X, m = self._sample.X.astype(np.float64, copy=False), self._width // 2
        if X.shape[1] <= m:
            return self._map(_scaled(start, 2.0 ** (half_octaves / 2)))(X)
        if start not in self._angles:
            W = self._unit.matrix / np.reshape(start, (-1, 1))
            self._angles[start] = X @ W
        factors = np.diag(np.full(m, 2.0 ** (-half_octaves / 2)))
        phi = FourierMap(self._unit.kernel, factors, self._unit.amplitude)
        return phi.features(self._angles[start])

    @cached_property
    def _unit(self) -> Any:
        """The map at lengthscale 1; other maps have its frequencies times 1/ℓ."""
        return self._map(1.0)

    def _map(self, scale: Scale) -> Any:
        kernel = self._family(scale)
        ask = Request(self._sample.X.shape[1], self._width, self._seed, ("lengthscale",))
        try:
            return draw_map(Fourier(Orthogonal()), kernel, ask)
        except UnsupportedKernel:
            return draw_map(Fourier(IID()), kernel, ask)


def error_near_median(rows: RowSample, seed: int) -> Callable[[int, int], float]:
    """Return the leave-one-out error of rows as a function of kind and steps of √2 from the median.

    The kind is 0 for one lengthscale and 1 for one per column.
    """
    walk = KernelWalk(NAMED["gaussian"], False, JUDGED_FEATURES, seed)
    starts = median_scales(rows, False, seed, FEW_PAIRS)
    return lambda which, step: walk.error_of(rows, starts[min(which, len(starts) - 1)], step)


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
