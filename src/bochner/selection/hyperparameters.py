"""Hyperparameters of composite kernels (sums, products), by descents from many starts.

The criterion has many minima. Starts are spread over ranges derived from the rows, and evaluated on
few rows. The best starts descend a few steps, the best of these to convergence, and the best end is
refined on more rows. Periods start at the peaks of the spectrum of the targets.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.stats import qmc

from bochner._core.arrays import is_sparse
from bochner._core.progress import progress
from bochner._core.random import stream
from bochner._core.shapes import Array, Float
from bochner.data.sample import RowSample
from bochner.errors import InvalidInput
from bochner.kernels.dotproduct import Linear
from bochner.kernels.hyperparameters import Free, Place, free_places, places_of, replace_values
from bochner.kernels.kernel import Constant, Kernel, Product, Scaled, Sum, has_free
from bochner.kernels.stationary import Stationary
from bochner.kernels.stationary_families import Periodic, SpectralMixture
from bochner.kernels.windows import window_count
from bochner.selection.held_out import FEWEST
from bochner.selection.lengthscales import (
    FIRST_ROWS,
    LONGEST,
    ROWS,
    SHORTEST,
    Evaluation,
    Objective,
    ProcessRows,
    as_tuning,
    best_of,
    descend,
    tune_lengthscales,
)
from bochner.selection.record import Tuning
from bochner.selection.rows import four_digits, median_distance
from bochner.solvers.ridge.dual import EVIDENCE, LOO, Criterion, KernelRows

#: Relative tolerance of the last descents.
GAIN = 1e-5
#: First and last start, lower and upper bound: of lengthscales in median distances, of weights in
#: units of 1/k(x, x) of the term, and of other hyperparameters by name.
LENGTHS = (1 / 64, 4.0, SHORTEST, LONGEST)
WEIGHTS = (1e-3, 1.0, 1e-9, 1e9)
RANGES = {
    "lengthscale": (0.3, 5.0, 1 / 32, 32.0),  # of Periodic
    "shape": (0.1, 10.0, 1e-3, 1e3),
    "smoothness": (0.5, 5.0, 0.4, 12.0),
    "power": (0.5, 1.9, 0.1, 2.0),
}


@dataclass(frozen=True, eq=False)
class SearchRange:
    """Starts and bounds of the logarithm of a hyperparameter."""

    interval: tuple[float, float]  # Interval of the starts; unused with ``starts``
    bounds: tuple[float, float]
    user_start: float | None = None  # Logarithm of the user's start
    starts: Float[Array, " k"] | None = None
    #: Step that matches a unit step of other hyperparameters; for a period: a phase of 1 in total.
    unit: float = 1.0

    @property
    def centre(self) -> float:
        if self.user_start is not None:
            return self.user_start
        return 0.5 * sum(self.interval) if self.starts is None else float(self.starts[0])

    def at(self, share: float) -> float:
        if self.starts is not None:
            return float(self.starts[min(int(share * len(self.starts)), len(self.starts) - 1)])
        return self.interval[0] + share * (self.interval[1] - self.interval[0])

    def restrict_to(self, free: Free) -> "SearchRange":
        """Return the range restricted to the user's bounds and start."""
        low, high = self.bounds
        user_start = None if free.start is None else float(np.log(free.start))
        if user_start is not None:
            low, high = min(low, user_start), max(high, user_start)
        low = low if free.low is None else float(np.log(free.low))
        high = max(high, low) if free.high is None else float(np.log(free.high))
        low = min(low, high)
        first, last = np.clip(self.interval, low, high).tolist()
        starts = None if self.starts is None else np.clip(self.starts, low, high)
        return SearchRange((first, last), (low, high), user_start, starts, self.unit)


def tune_hyperparameters(
    kernel: Kernel,
    sample: RowSample,
    criterion: Criterion,
    seed: int,
    *,
    centred: bool = True,
    **options: Any,
) -> Tuning:
    """Tune the free hyperparameters of a kernel and the weights of its terms (`make_free`)."""
    if not sample.y.shape[1]:
        raise InvalidInput(
            f"A kernel with free hyperparameters requires targets, which tune them; got "
            f'{kernel!r}. Give all numbers, or a name such as "gaussian".'
        )
    open_kernel = make_free(kernel)
    windows = window_count(kernel, sample.X.shape[1])
    # Rows of sequences: at most 4,096 windows in total
    sample = sample.lowest(ROWS if windows == 1 else max(FEWEST, min(ROWS, 4096 // windows)))
    if is_sparse(sample.X):
        raise InvalidInput(
            "A kernel with free hyperparameters requires dense rows; got sparse ones. Pass "
            "X.toarray(), or give all numbers."
        )
    sample = replace(sample, X=np.ascontiguousarray(sample.X, np.float64))
    rows, places = ProcessRows.of(sample, centred, **options), free_places(open_kernel)
    if rows is None:
        return Tuning(_initial_kernel(open_kernel), criterion=criterion.name)
    end = _search(HyperparameterLoss(open_kernel, rows, criterion), seed)
    result, weights = end.kernel, _weights_of(open_kernel)
    if rows.amplitude is None and weights is not None:  # all are free: their sum is set to single
        total = sum(place.get(result) for place in weights)
        result = replace_values(result, {place: place.get(result) / total for place in weights})
    # Errors of a period accumulate over many periods: seven digits
    round_ = lambda name, x: float(f"{x:.7g}") if name == "period" else four_digits(x)
    values = {place: round_(place.name, place.get(result)) for place in places}
    return as_tuning(criterion, replace_values(result, values), end, len(places))


def _initial_kernel(kernel: Kernel) -> Kernel:
    return replace_values(kernel, {p: p.get(kernel).start or 1.0 for p in free_places(kernel)})


def make_free(kernel: Kernel) -> Kernel:
    """Return the kernel with free hyperparameters and a weight for each term."""
    # Scale factors are moved out of products. If no hyperparameter is free, all become free with
    # their present values as starts, except smoothness, power and zeros.
    kernel = kernel.rebuild(_lift_scales)
    if not has_free(kernel):
        places = [place for place in places_of(kernel) if place.name not in ("smoothness", "power")]
        values = {place: place.get(kernel) for place in places}
        kernel = replace_values(kernel, {place: Free(v) for place, v in values.items() if v > 0})
    return kernel.rebuild(_add_weights)


def _lift_scales(kernel: Kernel, _: Any) -> Kernel:
    """Return a product of scaled kernels as one scaled kernel; a free factor replaces all."""
    scaled = {k: v for k, v in kernel.parts.items() if isinstance(v, Scaled)}
    if not scaled or not isinstance(kernel, Product | Scaled):
        return kernel
    factors: list[Any] = [part.scale for part in scaled.values()]
    if isinstance(kernel, Scaled):
        factors, bare = [kernel.scale, *factors], scaled["kernel"].kernel
    else:
        bare = kernel.replace(**{name: part.kernel for name, part in scaled.items()})
    free = [factor for factor in factors if isinstance(factor, Free)]
    return Scaled(free[0] if free else math.prod(factors), bare)  # type: ignore[arg-type]


def _add_weights(kernel: Kernel, _: Any) -> Kernel:
    """Return a sum with a free weight for each term that has none."""
    if not isinstance(kernel, Sum):
        return kernel
    bare = {k: v for k, v in kernel.parts.items() if not isinstance(v, Sum | Scaled | Constant)}
    return kernel.replace(**{name: Scaled(Free(), term) for name, term in bare.items()})  # type: ignore[arg-type]


def tune_loo(
    kernel: Kernel,
    sample: RowSample | None,
    seed: int,
    share: float | None = None,
    centred: bool = True,
) -> Tuning:
    """Return a kernel with its free hyperparameters tuned by leave-one-out errors."""
    if sample is None or not has_free(kernel):
        return Tuning(kernel)
    return tune_hyperparameters(kernel, sample, LOO, seed, centred=centred, share=share)


def tune_evidence(kernel: Kernel, sample: RowSample, seed: int, **options: Any) -> Tuning:
    """Maximise the evidence over lengthscales; for composite kernels over all hyperparameters."""
    if is_composite(kernel):
        return tune_hyperparameters(kernel, sample, EVIDENCE, seed, **options)
    return tune_lengthscales(kernel, sample, **options)


def is_composite(kernel: Kernel) -> bool:
    """Whether a kernel has more hyperparameters than the lengthscales of one family."""
    simple = isinstance(kernel, Stationary) and not has_free(kernel)
    return bool(places_of(kernel)) and not (simple and kernel.tunable[-1:] == ("lengthscale",))


@dataclass(frozen=True, eq=False)
class HyperparameterLoss(Objective):
    """A criterion as a function of the free hyperparameters of ``start`` and of alpha."""

    start: Kernel
    rows: ProcessRows
    criterion: Criterion
    level = 0.0

    @cached_property
    def limits(self) -> dict[Place, SearchRange]:
        ranges: dict[Place, SearchRange] = {}
        for place in free_places(self.start):
            part, X = self.start, self.rows.X  # The part with this hyperparameter
            for name in place.path.split("__")[:-1]:
                X, part = part.inputs(X), part.parts[name]
            ranges[place] = _suggest(place, part, X, self.rows).restrict_to(place.get(self.start))
        return ranges

    @cached_property
    def centres(self) -> Float[Array, " p"]:
        return np.array([limits.centre for limits in self.limits.values()])

    @cached_property
    def units(self) -> Float[Array, " p"]:
        return np.array([limits.unit for limits in self.limits.values()])

    def value_and_slope(self, x: Array, alpha: float) -> tuple[float, Float[Array, " q"]]:
        rows = self.rows
        values, gradient = self.kernel(x).vjp(rows.X, rows.X, self.limits.__contains__)
        problem = KernelRows(values(), rows.y, rows.w, rows.centred)
        score = self.criterion.of_kernel(problem, alpha, rows.noise, rows.amplitude)
        slopes = gradient(score.gradient)
        return score.value, np.array([*(slopes[p] for p in self.limits), score.alpha_gradient])

    def kernel(self, x: Array) -> Kernel:
        values = map(float, np.exp(x[:-1] * self.units))
        return replace_values(self.start, dict(zip(self.limits, values, strict=True)))

    def ranges(self, x: Array) -> Float[Array, "p 2"]:
        return np.array([limits.bounds for limits in self.limits.values()]) / self.units[:, None]

    def starts(self, count: int, seed: int) -> list[Float[Array, " q"]]:
        """Return starts spread over the ranges; the first are the centres."""
        ranges, shares = list(self.limits.values()), self.rows.shares
        weight = float(self.rows.w.sum())
        low, high = (float(np.log(share / weight)) for share in (1e-5, 1.0))
        spread = qmc.Halton(len(ranges) + 1, rng=stream(seed, "numbers")).random(count)
        levels = low + spread[:, -1] * (high - low) if len(shares) > 1 else [shares[0]] * count
        points = [[r.at(u) for r, u in zip(ranges, row, strict=False)] for row in spread]
        pairs = [*((self.centres, share) for share in shares), *zip(points, levels, strict=True)]
        return [np.append(np.array(x) / self.units, float(share)) for x, share in pairs]


def _search(fun: HyperparameterLoss, seed: int) -> Evaluation:
    """Return the best optimum: many starts on few rows, then the best on more rows."""
    subset = replace(fun, rows=fun.rows.first(FIRST_ROWS))
    ranked = lambda points: sorted(points, key=lambda point: point.value)
    progress("Tuning the kernel: starts")
    points = [descend(subset, start, 1) for start in subset.starts(64, seed)]
    best = [best_of(points[: len(subset.rows.shares)]), *ranked(points)[:8]]
    best = ranked([descend(subset, point.x, 20) for point in best])[:3]
    progress("Tuning the kernel: few rows")
    ends = [descend(subset, point.x, 60, GAIN) for point in best]
    if len(fun.rows.w) <= FIRST_ROWS:
        return best_of([*best, *ends])
    progress("Tuning the kernel: all rows")
    refined = best_of([descend(*end.on_rows(fun.rows), 6, GAIN) for end in ends])
    return best_of([refined, descend(fun, refined.x, 20, GAIN)])


def _suggest(place: Place, leaf: Kernel, X: Array, rows: ProcessRows) -> SearchRange:
    """Return the search range of a hyperparameter of a leaf kernel with input rows X."""
    mixture = isinstance(leaf, SpectralMixture)  # hyperparameters per component
    columns = X if place.column is None or mixture else X[:, [place.column]]
    match place.name:
        case "means" | "scales" if mixture:
            means = place.name == "means"
            limits = _period(columns, rows) if means else _lengths(columns, rows)
            log, first = np.log(2 * np.pi) if means else 0.0, -(place.column or 0)
            starts = None if limits.starts is None else log - np.roll(limits.starts, first)
            ends = [(log - high, log - low) for low, high in (limits.interval, limits.bounds)]
            return replace(limits, interval=ends[0], bounds=ends[1], starts=starts)
        case "period":
            return _period(columns, rows)
        case "lengthscale" if not isinstance(leaf, Periodic):
            return _lengths(columns, rows)
        case "scale":
            inner = _initial_kernel(leaf.kernel) if isinstance(leaf, Scaled) else Linear()
            unit = 1 / max(float(np.mean(inner.diag(X))), np.finfo(float).tiny)
            return _range_of(*(unit * share for share in WEIGHTS))
        case "offset" | "value":
            return _range_of(*WEIGHTS)
    return _range_of(*RANGES.get(place.name, RANGES["shape"]))


def _range_of(first: float, last: float, low: float, high: float, **options: Any) -> SearchRange:
    """Return the range of a logarithm, with starts from ``first`` to ``last``, and bounds."""
    first, last, low, high = (float(np.log(x)) for x in (first, last, low, high))
    return SearchRange((first, last), (low, high), **options)


def _lengths(X: Array, rows: ProcessRows) -> SearchRange:
    """Return the range of a lengthscale: multiples of the median distance of rows."""
    w = rows.w if len(X) == len(rows.w) else np.ones(len(X))  # there are more windows than rows
    median = median_distance(X, w, (1.0,), 0, max_pairs=4096)
    gaps = np.diff(np.unique(X[:, 0])) if X.shape[1] == 1 else ()
    first, last, low, high = (share * median for share in LENGTHS)
    shortest = min(low, float(np.median(gaps)) if len(gaps) else np.inf)
    return _range_of(max(first, shortest), last, shortest, high)


def _period(X: Array, rows: ProcessRows) -> SearchRange:
    """Return the range of a period: up to the span of X, with starts at spectral peaks."""
    span = max(float(np.ptp(X, axis=0).max()), np.finfo(float).tiny)
    shortest = max(span / len(X), np.finfo(float).tiny)
    inputs = X.T if len(X) == len(rows.w) else ()  # windows have no targets
    peaks = np.concatenate([np.empty(0), *(spectral_peaks(x, rows.y, rows.w) for x in inputs)])
    options: dict[str, Any] = {}
    if len(peaks):
        options = {"starts": np.log(peaks), "unit": float(peaks[0]) / (2 * np.pi * span)}
    return _range_of(2 * shortest, span, shortest, 4 * span, **options)


def spectral_peaks(
    x: Float[Array, " n"], y: Float[Array, "n t"], w: Float[Array, " n"]
) -> Float[Array, " k"]:
    """Return the periods of the four highest peaks of the spectrum of detrended targets: O(n²).

    The power is |Σ w y e^(2πifx)|² of residuals from a parabola, at frequencies up to n/2 per span.
    """
    span = float(np.ptp(x))
    if not span or len(x) < FEWEST:
        return np.empty(0)
    x = (x - x.min()) / span
    curve, root = np.vander(2 * x - 1, 3), np.sqrt(w)[:, None]
    r = y - curve @ np.linalg.lstsq(root * curve, root * y, rcond=None)[0]
    residuals = w[:, None] * r / np.maximum(np.sqrt(w @ r**2), np.finfo(float).tiny)
    grid = np.arange(2, len(x) / 2, 0.25)
    power = np.zeros(len(grid))
    for part in np.array_split(np.arange(len(grid)), max(1, len(grid) * len(x) >> 20)):
        sums = np.exp(2j * np.pi * np.outer(grid[part], x)) @ residuals
        power[part] = (np.abs(sums) ** 2).sum(axis=1)
    inner = power[1:-1]
    peaks = 1 + np.flatnonzero((inner > power[:-2]) & (inner >= power[2:]))
    return span / grid[peaks[np.argsort(-power[peaks], kind="stable")[:4]]]


def _weights_of(kernel: Kernel) -> list[Place] | None:
    """Return the places of the weights of all terms; None if the user fixed one of them."""
    terms, params = [id(term) for term, _ in kernel.leaves(Sum)], kernel.get_params()
    owner = lambda place: params.get(place.path.rpartition("__")[0], kernel)
    is_weight = lambda part: id(part) in terms and isinstance(part, Scaled | Constant)
    weights = [place for place in free_places(kernel) if is_weight(owner(place))]
    return weights if len(weights) == len(terms) else None
