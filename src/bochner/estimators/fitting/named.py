"""Kernels by name, with the lengthscale chosen from the data.

The lengthscale is sought on a sample of rows, by the leave-one-out error of ridge regression on
Fourier features, from the median heuristic outwards: first among one lengthscale for
all columns and one in proportion to each column's standard deviation, then by doubling or halving
while that helps, then by steps of √2. The seed of the features stays, so that frequencies are
rescaled and not drawn anew, and the errors are comparable.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from sklearn.base import BaseEstimator

from bochner._ground.arrays import is_sparse
from bochner._ground.random import stream
from bochner._ground.shapes import Array, Float
from bochner.errors import InvalidInput, UnsupportedKernel
from bochner.estimators.fitting.columns import column_spread, rounded
from bochner.estimators.fitting.rows import RowSample
from bochner.estimators.fitting.state import all_or_nothing
from bochner.estimators.tuning.search import tune_kernel
from bochner.estimators.tuning.tuned import Tuning
from bochner.features import IID, Fourier, Method, Orthogonal
from bochner.features.judging import left_out
from bochner.features.rules import Request, draw_map
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
from bochner.solvers.solution import best_of

__all__ = [
    "NAMED",
    "LengthscaleSearch",
    "accepts_sparse",
    "as_kernel",
    "choose_lengthscale",
    "set_kernel_params",
]

Model = TypeVar("Model", bound=BaseEstimator)
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


def as_kernel(kernel: object) -> Kernel | str:
    """Return a kernel or a known name."""
    if isinstance(kernel, Kernel) or (isinstance(kernel, str) and kernel in NAMED):
        return kernel
    raise InvalidInput(
        "kernel must be a value such as Gaussian(lengthscale=0.5), or one of "
        f"{', '.join(map(repr, NAMED))}, whose lengthscale is then chosen; got {kernel!r}."
    )


@all_or_nothing
def set_kernel_params(model: Model, params: dict[str, Any]) -> Model:
    """Set an estimator's parameters; those under ``kernel__`` replace numbers of its kernel.

    Kernels are values: the one that was passed in is never changed. A name stands for its kernel
    at lengthscale 1.
    """
    inner = {k.removeprefix("kernel__"): v for k, v in params.items() if k.startswith("kernel__")}
    outer = {k: v for k, v in params.items() if not k.startswith("kernel__")}
    BaseEstimator.set_params(model, **outer)
    if inner:
        kernel = as_kernel(model.kernel)
        value = NAMED[kernel](1.0) if isinstance(kernel, str) else kernel
        model.kernel = value.replace(**inner)
    return model


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
    (:mod:`bochner.estimators.tuning.search`); with fewer than 64 rows it is "gaussian".
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
    """Leave-one-out error of a lengthscale, remembered."""

    def __init__(
        self, family: Family, sample: RowSample, n_features: int, seed: int, share: float | None
    ) -> None:
        self._family, self._sample, self._seed, self._share = family, sample, seed, share
        self._width = max(2, n_features - n_features % 2)
        self.tried: dict[Scale, float] = {}

    def __call__(self, start: Scale, half_octaves: float) -> float:
        scale = _times(start, half_octaves)
        if scale not in self.tried:
            self.tried[scale] = self._error(self._family(scale))
        return self.tried[scale]

    def _error(self, kernel: Kernel) -> float:
        sample = self._sample
        ask = Request(sample.X.shape[1], self._width, self._seed, ("lengthscale",))
        try:
            phi = draw_map(Fourier(Orthogonal()), kernel, ask)
        except UnsupportedKernel:
            phi = draw_map(Fourier(IID()), kernel, ask)
        Z = phi(sample.X.astype(np.float64, copy=False))
        found = left_out(Z, sample.y, sample.w, self._share)
        power, weight = found.moments.power, found.moments.weight
        least = float(found.errors[best_of(found.errors, "loo")])
        return max(least, ROUNDING * float(power.max()) / weight)


def _median_scales(sample: RowSample, coordinatewise: bool, seed: int) -> list[Scale]:
    """Return the median distance of rows, for one lengthscale and for one a column."""
    X = sample.X
    pairs = _pairs(X.shape[0], seed)
    differences = X[pairs[0]] - X[pairs[1]]
    weights = sample.w[pairs[0]] * sample.w[pairs[1]]
    unit = float(abs(X).max()) or 1.0  # squares of huge and tiny numbers are no numbers
    differences = abs(differences / np.float64(unit))
    deviations = _deviations(X / np.float64(unit), sample.w)
    scales: list[Scale] = [
        _median(_lengths(differences, coordinatewise), weights),
        *_by_column(differences, deviations, coordinatewise, weights),
    ]
    return [_scaled(scale, unit) for scale in scales]


def _by_column(
    differences: Array, deviations: Array, coordinatewise: bool, weights: Array
) -> list[tuple[float, ...]]:
    """Return lengthscales in proportion to the columns' deviations, if those differ."""
    if deviations.max() <= 1.05 * deviations.min():
        return []
    scaled = _divided(differences, deviations)
    median = _median(_lengths(scaled, coordinatewise), weights)
    return [tuple((median * deviations).tolist())]


def _pairs(n: int, seed: int) -> tuple[Array, Array]:
    """All pairs of up to 200 rows, otherwise 20,000 at random."""
    if n <= 200:
        return np.triu_indices(n, 1)
    rng = stream(seed, "pairs")
    return rng.integers(n, size=20000), rng.integers(n, size=20000)


def _divided(differences: Array, deviations: Float[Array, " d"]) -> Array:
    if is_sparse(differences):
        return differences.multiply(1 / deviations[None, :]).tocsr()
    return differences / deviations


def _lengths(differences: Float[Array, "p d"], coordinatewise: bool) -> Float[Array, " p"]:
    """Euclidean lengths, or sums of absolute differences for coordinatewise kernels."""
    if coordinatewise:
        return np.asarray(differences.sum(axis=1)).reshape(-1)
    if is_sparse(differences):
        return np.sqrt(np.asarray(differences.power(2).sum(axis=1))).reshape(-1)
    return np.sqrt(np.einsum("ij,ij->i", differences, differences))


def _median(lengths: Float[Array, " p"], weights: Float[Array, " p"]) -> float:
    """Weighted median of the positive lengths (copies of a row say nothing of scale), or 1."""
    kept = lengths > 0
    if not np.any(kept):
        return 1.0
    lengths, weights = lengths[kept], weights[kept]
    order = np.argsort(lengths, kind="stable")
    below = np.cumsum(weights[order])
    return float(lengths[order][np.searchsorted(below, 0.5 * below[-1])])


def _deviations(X: Float[Array, "n d"], w: Float[Array, " n"]) -> Float[Array, " d"]:
    """Weighted standard deviations; 1 for constant columns, which no kernel of x − y sees."""
    size, deviations = column_spread(X, w)
    constant = deviations <= 1e-12
    deviations = deviations * size
    return np.where(
        constant, max(float(deviations.max()), 1e-300) if np.any(~constant) else 1.0, deviations
    )
