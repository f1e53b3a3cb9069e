"""Kernels by name, with the lengthscale chosen from the data.

The lengthscale is sought on a sample of rows, by the leave-one-out error of ridge regression on
Fourier features, from the median heuristic outwards: first among one lengthscale for
all columns and one in proportion to each column's standard deviation, then by doubling or halving
while that helps, then by steps of √2. The seed of the features stays, so that frequencies are
rescaled and not drawn anew, and the errors are comparable.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from bochner._core.arrays import is_sparse
from bochner._core.random import stream
from bochner._core.shapes import Array, Float
from bochner.data.sample import RowSample
from bochner.errors import InvalidInput, UnsupportedKernel
from bochner.features import IID, Fourier, Method, Orthogonal
from bochner.features.fourier.fourier import FourierMap
from bochner.features.judging import left_out
from bochner.features.method import Request
from bochner.features.rules import draw_map
from bochner.kernels import (
    Cauchy,
    CoordinateWise,
    Exponential,
    Gaussian,
    Kernel,
    Laplace,
    Linear,
    Matern,
    RationalQuadratic,
)
from bochner.selection.columns import column_spread, rounded
from bochner.selection.search import tune_kernel
from bochner.selection.tuning import Tuning
from bochner.solvers.ridge.solution import best_of

Scale = float | tuple[float, ...]
Family = Callable[[Scale], Kernel]

#: What a name stands for: the kernel of that family at a lengthscale. "auto" is searched among
#: families; until it has been, it is the Gaussian.
NAMED: dict[str, Family] = {
    "auto": Gaussian,
    "gaussian": Gaussian,
    "laplace": Laplace,
    "exponential": Exponential,
    "matern12": lambda scale: Matern(0.5, scale),
    "matern32": lambda scale: Matern(1.5, scale),
    "matern52": lambda scale: Matern(2.5, scale),
    "cauchy": Cauchy,
    "rational_quadratic": lambda scale: RationalQuadratic(1.0, scale),
    "linear": lambda _: Linear(),
}

#: Families of the sum of coordinate distances, not of the Euclidean distance.
COORDINATEWISE = ("laplace", "cauchy")

#: Errors below this share of the variance are taken as equal.
ROUNDING = 1e-10

#: Half-octaves from the median distance that the search goes at most: a factor of 16.
FARTHEST = 8

#: Fewer rows than this tell no family from another.
FEW = 64

#: Rows and features of the search.
SEARCH_ROWS, SEARCH_FEATURES = 4096, 512

#: Pairs of rows that a median distance is of: so many, or as many as have these cells together,
#: but no fewer than the last. Cells that are looked at together.
MOST_PAIRS, MOST_CELLS, FEWEST_PAIRS, CELLS = 20000, 20_000_000, 500, 1 << 20


def as_kernel(kernel: object) -> Kernel | str:
    """Return a kernel or a known name."""
    if isinstance(kernel, Kernel) or (isinstance(kernel, str) and kernel in NAMED):
        return kernel
    raise InvalidInput(
        "kernel must be a value such as Gaussian(lengthscale=0.5), or one of "
        f"{', '.join(map(repr, NAMED))}, whose lengthscale is then chosen; got {kernel!r}."
    )


def accepts_sparse(kernel: Kernel | str) -> bool:
    """Whether sparse rows are served: not by kernels of a sum over coordinates."""
    value = NAMED[kernel](1.0) if isinstance(kernel, str) and kernel in NAMED else kernel
    parts = value.get_params().values() if isinstance(value, Kernel) else ()
    return not any(isinstance(part, CoordinateWise) for part in (value, *parts))


@dataclass(frozen=True)
class LengthscaleSearch:
    """What was tried: a row is (lengthscale, leave-one-out mean squared error).

    Attributes
    ----------
    kernel : Kernel
        The best.
    tried : tuple of (float or tuple of float, float)
    """

    kernel: Kernel
    tried: tuple[tuple[Scale, float], ...] = ()


def choose_lengthscale(
    name: str,
    sample: RowSample,
    n_features: int,
    seed: int,
    share: float | None = None,
    method: Method | None = None,
) -> LengthscaleSearch | Tuning:
    """Return the kernel of this family with the lengthscale that predicts the sample best.

    ``share`` is a given penalty a row (alpha/n); without it each lengthscale has its own best
    penalty. Without targets it is the median heuristic: the median distance between rows. "auto"
    is tuned, among the families that ``method`` serves
    (:mod:`bochner.selection.search`); with fewer than 64 rows it is "gaussian".
    """
    if name == "auto" and len(sample) >= FEW:
        return tune_kernel(name, sample, n_features, seed, method=method, share=share)
    family = NAMED[name]
    if name == "linear":
        return LengthscaleSearch(Linear())
    sample = sample.lowest(SEARCH_ROWS)
    starts = _median_scales(sample, name in COORDINATEWISE, seed)
    if sample.y.shape[1] == 0 or len(sample) < 4 or not np.any(np.ptp(sample.y, axis=0)):
        return LengthscaleSearch(family(starts[0]))
    error = _Errors(family, sample, min(n_features, SEARCH_FEATURES), seed, share)
    start = min(starts, key=lambda scale: (1 if scale is starts[0] else 1.0001) * error(scale, 0.0))
    best = 0.0
    for step in (2.0, 1.0):
        best = _descend(lambda half_octaves: error(start, half_octaves), best, step)
    return LengthscaleSearch(family(_times(start, best)), tuple(error.tried.items()))


def _descend(error: Callable[[float], float], start: float, step: float) -> float:
    """Walk from ``start`` in steps while the error falls, in whichever direction it does."""
    best = start
    for direction in (-step, step):
        while abs(best + direction) <= FARTHEST and error(best + direction) < 0.9999 * error(best):
            best += direction
        if best != start:
            return best
    return best


def _times(scale: Scale, half_octaves: float) -> Scale:
    return _scaled(scale, 2.0 ** (half_octaves / 2))


def _scaled(scale: Scale, factor: float) -> Scale:
    """Return lengthscales times a factor, in the digits that are the same on every processor."""
    return rounded(tuple(s * factor for s in scale) if isinstance(scale, tuple) else scale * factor)


class _Errors:
    """Leave-one-out error of a lengthscale, remembered.

    Of rows with more columns than there are frequencies the angles xᵀω are remembered too: at
    another multiple of the same lengthscales they are the same but for a factor.
    """

    def __init__(
        self, family: Family, sample: RowSample, n_features: int, seed: int, share: float | None
    ) -> None:
        self._family, self._sample, self._seed, self._share = family, sample, seed, share
        self._width = max(2, n_features - n_features % 2)
        self.tried: dict[Scale, float] = {}
        self._angles: dict[Scale, Array] = {}

    def __call__(self, start: Scale, half_octaves: float) -> float:
        scale = _times(start, half_octaves)
        if scale not in self.tried:
            self.tried[scale] = self._error(start, half_octaves)
        return self.tried[scale]

    def _error(self, start: Scale, half_octaves: float) -> float:
        sample = self._sample
        Z = self._features(start, half_octaves)
        found = left_out(Z, sample.y, sample.w, self._share)
        power, weight = found.moments.power, found.moments.weight
        least = float(found.errors[best_of(found.errors, "loo")])
        return max(least, ROUNDING * float(power.max()) / weight)

    def _features(self, start: Scale, half_octaves: float) -> Float[Array, "n D"]:
        X, m = self._sample.X.astype(np.float64, copy=False), self._width // 2
        if X.shape[1] <= m:
            return self._map(_times(start, half_octaves))(X)
        if start not in self._angles:
            W = self._unit.frequencies / np.reshape(start, (-1, 1))
            self._angles[start] = X @ W
        factors = np.diag(np.full(m, 2.0 ** (-half_octaves / 2)))
        phi = FourierMap(self._unit.kernel, factors, self._unit.amplitude)
        return phi.features(self._angles[start])

    @cached_property
    def _unit(self) -> Any:
        """The map at lengthscale 1, whose frequencies are those of all others times 1/ℓ."""
        return self._map(1.0)

    def _map(self, scale: Scale) -> Any:
        kernel = self._family(scale)
        ask = Request(self._sample.X.shape[1], self._width, self._seed, ("lengthscale",))
        try:
            return draw_map(Fourier(Orthogonal()), kernel, ask)
        except UnsupportedKernel:
            return draw_map(Fourier(IID()), kernel, ask)


def _median_scales(sample: RowSample, coordinatewise: bool, seed: int) -> list[Scale]:
    """Return the median distance of rows, for one lengthscale and for one a column."""
    X = sample.X
    pairs = _pairs(X.shape[0], X.shape[1], seed)
    weights = sample.w[pairs[0]] * sample.w[pairs[1]]
    unit = float(abs(X).max()) or 1.0  # squares of huge and tiny numbers are no numbers
    scales: list[Scale] = [_median(_lengths(X, pairs, (unit,), coordinatewise), weights)]
    deviations = _deviations(X, unit, sample.w)
    if deviations.max() > 1.05 * deviations.min():  # one a column, in proportion to these
        median = _median(_lengths(X, pairs, (unit, deviations), coordinatewise), weights)
        scales.append(tuple((median * deviations).tolist()))
    scales = [_scaled(scale, unit) for scale in scales]
    if np.min(scales[0]) < np.finfo(np.float64).tiny:
        raise InvalidInput(
            "X must hold numbers whose differences float64 holds to all its digits; got columns "
            f"of {unit:.3g} at most. Multiply them by a power of ten."
        )
    return scales


def _pairs(n: int, d: int, seed: int) -> tuple[Array, Array]:
    """All pairs of up to 200 rows, otherwise 20,000 at random; fewer of very wide rows."""
    most = min(MOST_PAIRS, max(FEWEST_PAIRS, MOST_CELLS // d))
    if n <= 200 and n * (n - 1) // 2 <= most:
        return np.triu_indices(n, 1)
    rng = stream(seed, "pairs")
    return rng.integers(n, size=most), rng.integers(n, size=most)


def _lengths(
    X: Float[Array, "n d"],
    pairs: tuple[Array, Array],
    units: tuple[float | Array, ...],
    coordinatewise: bool,
) -> Float[Array, " p"]:
    """Euclidean lengths, or sums of absolute differences for coordinatewise kernels.

    Of rows divided by each of ``units``, one number or one a column; a block of pairs at a time.
    """
    step = max(1, CELLS // X.shape[1])
    order = 1 if coordinatewise else 2
    lengths = np.empty(len(pairs[0]))
    for start in range(0, len(lengths), step):
        i, j = (side[start : start + step] for side in pairs)
        D = abs(X[i] - X[j]).astype(np.float64)
        for unit in units:
            D = D.multiply(1 / np.reshape(unit, (1, -1))).tocsr() if is_sparse(D) else D / unit
        powers = D.power(order) if is_sparse(D) else D**order
        lengths[start : start + step] = np.asarray(powers.sum(axis=1)).reshape(-1) ** (1 / order)
    return lengths


def _median(lengths: Float[Array, " p"], weights: Float[Array, " p"]) -> float:
    """Weighted median of the positive lengths (copies of a row say nothing of scale), or 1."""
    kept = lengths > 0
    if not np.any(kept):
        return 1.0
    lengths, weights = lengths[kept], weights[kept]
    order = np.argsort(lengths, kind="stable")
    below = np.cumsum(weights[order])
    return float(lengths[order][np.searchsorted(below, 0.5 * below[-1])])


def _deviations(X: Float[Array, "n d"], unit: float, w: Float[Array, " n"]) -> Float[Array, " d"]:
    """Weighted standard deviations in this unit; 1 for constant columns, which no kernel sees."""
    size, shares = column_spread(X, w)
    constant = shares <= 1e-12
    deviations = shares * (size / unit)
    other = max(float(deviations.max()), 1e-300) if np.any(~constant) else 1.0
    return np.where(constant, other, deviations)
