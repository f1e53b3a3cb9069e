"""Descent of a criterion in log lengthscales, log smoothness and log penalty, by L-BFGS.

Two processors round differently, and a descent would carry that on from step to step. So it sees
its criterion on a grid: points, values and slopes are rounded to multiples that are far above the
rounding of float64 and far below what matters, and every processor takes the same steps.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError
from scipy.optimize import minimize

from bochner._core.shapes import Array, Float
from bochner.kernels import Kernel
from bochner.selection.rescaled import Rescaled, Rows, in_numbers
from bochner.solvers.ridge.criteria import CRITERIA

#: Lowest penalty a row: what products in float32 resolve, and in float64.
LOWEST = {"float32": 1e-6, "float64": 1e-10}

#: Lowest penalty a row of a descent: it leaves ten digits of the slopes, and the grid below fewer.
LEAST = 1e-6

#: A step that gains less than this share of the criterion is the last.
GAIN = 3e-4

#: Value where there is none.
WORST = 1e3

#: log ℓ stays within these of its start where there is no prior, log ν and log share at all.
FAR, SHAPES, HIGHEST = 7.0, (0.4, 12.0), 10.0

#: Multiples that points, values and slopes of a descent are rounded to.
POINTS, VALUES, SLOPES = 1e-6, 1e-6, 1e-5

#: Lengthscales are rounded to this share of an octave where a descent has ended.
SIXTEENTH = float(np.log(2)) / 16


def on_grid(x: Any, step: float) -> Any:
    """Return the multiples of `step` nearest to x."""
    return np.round(np.asarray(x, np.float64) / step) * step


@dataclass(frozen=True)
class Prior:
    """What is known of log ℓ before any target is seen: it is about that of the median distance.

    A normal law of log ℓ about `centre` adds (log ℓ − centre)²/(2·spread²·n) to a criterion that
    is a mean over n rows: a row's worth of knowledge, which many rows outweigh and which decides
    where they say nothing. A lengthscale leaves the range from `shortest` to `longest` times that
    of the centre only if its start is outside.

    Attributes
    ----------
    centre : float
        log ℓ at the median distance of rows.
    rows : float
        n.
    columns : int
        d: the median distance of d columns is that of one times √d.
    """

    centre: float
    rows: float
    columns: int = 1
    spread: float = 3.0
    shortest: float = 1 / 128
    longest: float = 32.0

    def of(self, logs: Float[Array, " p"]) -> tuple[float, Float[Array, " p"]]:
        """Return what is added to the criterion, and its gradient."""
        scaled = (logs - self.centre) / (self.spread**2 * self.rows)
        return 0.5 * float(scaled @ (logs - self.centre)), scaled

    def bounds(self, start: float) -> tuple[float, float]:
        """Return the range of log ℓ, and its start in any case."""
        low = self.centre + np.log(self.shortest) - 0.5 * np.log(self.columns)
        return min(float(low), start), max(self.centre + float(np.log(self.longest)), start)


@dataclass(frozen=True)
class Clock:
    """Seconds since the start, and how many there are."""

    start: float
    seconds: float = float("inf")

    @staticmethod
    def of(budget: float | None) -> "Clock":
        """Start now."""
        return Clock(time.perf_counter(), float("inf") if budget is None else budget)

    @property
    def passed(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self.start

    @property
    def over(self) -> bool:
        """Whether the time is up."""
        return self.passed >= self.seconds

    def part(self, share: float) -> "Clock":
        """Return the clock that stops when this share of all seconds has passed."""
        return replace(self, seconds=share * self.seconds)


class Enough(Exception):
    """Raised within a descent, and caught there."""


@dataclass(frozen=True, eq=False)
class Dials:
    """Where a descent stands: all that is tuned, as logarithms.

    Attributes
    ----------
    lengths : (1,) or (d,)
        log ℓ, of all columns together or of each, in the units of the rows.
    share : float
        log of the penalty a row, alpha/W.
    shape : float or None
        log ν where the smoothness is tuned.
    """

    lengths: Float[Array, " p"]
    share: float
    shape: float | None = None

    @property
    def vector(self) -> Float[Array, " q"]:
        """All of them side by side."""
        shape = [] if self.shape is None else [self.shape]
        return np.concatenate([self.lengths, shape, [self.share]])

    def like(self, vector: Float[Array, " q"]) -> "Dials":
        """Return such dials from their vector."""
        shape = None if self.shape is None else float(vector[-2])
        return Dials(vector[: len(self.lengths)], float(vector[-1]), shape)


@dataclass(frozen=True, eq=False)
class Point:
    """Dials and the criterion there."""

    dials: Dials
    value: float


@dataclass(frozen=True, eq=False)
class Objective:
    """A criterion of a family's dials on rows.

    Attributes
    ----------
    rescaled : Rescaled
    rows : Rows
    offsets : (d,)
        What is added to the dials' log lengthscales.
    criterion : {"loo", "evidence"}
    pinned : bool
        Whether the penalty stays.
    prior : Prior or None
        Of the dials' log lengthscales.
    """

    rescaled: Rescaled
    rows: Rows
    offsets: Float[Array, " d"]
    criterion: str = "loo"
    pinned: bool = False
    prior: Prior | None = None

    def __call__(self, dials: Dials) -> tuple[float, Float[Array, " q"]]:
        """Return the criterion, less the log prior a row, and the gradient; O(n D (D + d))."""
        y, w = self.rows.y, self.rows.w
        rescaled, X, logs = self._seen(dials)
        W = rescaled.frequencies(logs, dials.shape)
        Z = rescaled.features(X, W)
        score = CRITERIA[self.criterion](Z, y, w, float(np.exp(dials.share) * w.sum()))
        by_logs, by_shape = rescaled.through(X, W, Z, score.by_features, dials.shape)
        lengths = by_logs if len(dials.lengths) > 1 else by_logs.sum(keepdims=True)
        shape = [] if dials.shape is None else [by_shape]
        known, by_known = (0.0, 0.0) if self.prior is None else self.prior.of(dials.lengths)
        gradient = np.concatenate([lengths + by_known, shape, [score.by_log_alpha]])
        return score.value + known, gradient

    def _seen(self, dials: Dials) -> tuple[Rescaled, Array, Float[Array, " p"]]:
        """Return base, rows and log ℓ: with one ℓ for more columns than frequencies, of angles."""
        d, m = self.rescaled.base.shape
        if len(dials.lengths) > 1 or d <= m:
            return self.rescaled, self.rows.X, self.logs(dials)
        rescaled, angles = self._angles
        return rescaled, angles, np.full(m, dials.lengths[0])

    @cached_property
    def _angles(self) -> tuple[Rescaled, Array]:
        return self.rescaled.angles(self.rows.X, self.offsets)

    def kernel(self, dials: Dials) -> Kernel:
        """Return the kernel at these dials, in the units of the data."""
        scales = np.exp(self.logs(dials)) * self.rows.units
        return self.rescaled.kernel(in_numbers(scales, len(dials.lengths) == 1), dials.shape)

    def bounds(self, dials: Dials) -> list[tuple[float, float]]:
        """Return how far each dial may turn."""
        low = np.log(LEAST)
        if self.prior is None:
            lengths = [(x - FAR, x + FAR) for x in dials.lengths]
        else:
            lengths = [self.prior.bounds(float(x)) for x in dials.lengths]
        shape = [] if dials.shape is None else [tuple(np.log(SHAPES))]
        share = (dials.share,) * 2 if self.pinned else (low, np.log(HIGHEST))
        return [*lengths, *shape, share]

    def logs(self, dials: Dials) -> Float[Array, " d"]:
        """Return log ℓ of each column, in the units of the rows."""
        return self.offsets + dials.lengths


def descend(
    objective: Objective,
    start: Dials,
    evaluations: int,
    clock: Clock,
    note: Callable[[Dials, float], None],
) -> Point:
    """Return the best point of at most so many evaluations; ``note`` hears of each.

    The start counts, whatever the time: there is always a point to return.
    """
    best, count = Point(start, float("inf")), 0
    bounds = objective.bounds(start)
    free = np.array([low < high for low, high in bounds])

    def value_and_gradient(vector: Array) -> tuple[float, Array]:
        nonlocal best, count
        if count and (clock.over or count >= evaluations):
            raise Enough
        count += 1
        dials = start.like(np.where(free, on_grid(vector, POINTS), start.vector))
        try:
            value, gradient = objective(dials)
        except LinAlgError:  # rounding left G + αI no longer positive: as bad as can be
            return WORST, np.zeros_like(vector)
        value, gradient = float(on_grid(value, VALUES)), on_grid(gradient, SLOPES)
        note(dials, value)
        best = Point(dials, value) if value < best.value else best
        return value, gradient

    with suppress(Enough):
        minimize(
            value_and_gradient,
            start.vector,
            jac=True,
            method="L-BFGS-B",
            bounds=bounds,
            options={"maxfun": 2 * evaluations, "maxiter": evaluations, "ftol": GAIN},
        )
    return best
