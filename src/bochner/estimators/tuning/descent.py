"""Descent of a criterion in log lengthscales, log smoothness and log penalty, by L-BFGS."""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import LinAlgError
from scipy.optimize import minimize

from bochner._ground.shapes import Array, Float
from bochner.estimators.tuning.rescaled import Rescaled, Rows, in_numbers
from bochner.kernels import Kernel
from bochner.solvers.criteria import CRITERIA

__all__ = ["Clock", "Dials", "Objective", "Point", "descend"]

#: Lowest penalty a row: what products in float32 resolve, and in float64.
LOWEST = {"float32": 1e-6, "float64": 1e-10}

#: A step that gains less than this share of the criterion is the last.
GAIN = 3e-4

#: Value where there is none.
WORST = 1e3

#: log ℓ stays within these of its start, log ν and log share within these at all.
FAR, SHAPES, HIGHEST = 7.0, (0.4, 12.0), 10.0


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
    """

    rescaled: Rescaled
    rows: Rows
    offsets: Float[Array, " d"]
    criterion: str = "loo"
    pinned: bool = False

    def __call__(self, dials: Dials) -> tuple[float, Float[Array, " q"]]:
        """Return the criterion and its gradient in the dials' vector; O(n D (D + d))."""
        X, y, w = self.rows.X, self.rows.y, self.rows.w
        W = self.rescaled.frequencies(self.logs(dials), dials.shape)
        Z = self.rescaled.features(X, W)
        score = CRITERIA[self.criterion](Z, y, w, float(np.exp(dials.share) * w.sum()))
        by_logs, by_shape = self.rescaled.through(X, W, Z, score.by_features, dials.shape)
        lengths = by_logs if len(dials.lengths) > 1 else by_logs.sum(keepdims=True)
        shape = [] if dials.shape is None else [by_shape]
        return score.value, np.concatenate([lengths, shape, [score.by_log_alpha]])

    def kernel(self, dials: Dials) -> Kernel:
        """Return the kernel at these dials, in the units of the data."""
        scales = np.exp(self.logs(dials)) * self.rows.units
        return self.rescaled.kernel(in_numbers(scales, len(dials.lengths) == 1), dials.shape)

    def bounds(self, dials: Dials) -> list[tuple[float, float]]:
        """Return how far each dial may turn."""
        low = np.log(LOWEST[str(self.rows.X.dtype)])
        lengths = [(x - FAR, x + FAR) for x in dials.lengths]
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

    def value_and_gradient(vector: Array) -> tuple[float, Array]:
        nonlocal best, count
        if count and (clock.over or count >= evaluations):
            raise Enough
        count += 1
        dials = start.like(vector)
        try:
            value, gradient = objective(dials)
        except LinAlgError:  # rounding left G + αI no longer positive: as bad as can be
            return WORST, np.zeros_like(vector)
        note(dials, value)
        best = Point(dials, value) if value < best.value else best
        return value, gradient

    with suppress(Enough):
        minimize(
            value_and_gradient,
            start.vector,
            jac=True,
            method="L-BFGS-B",
            bounds=objective.bounds(start),
            options={"maxfun": 2 * evaluations, "maxiter": evaluations, "ftol": GAIN},
        )
    return best
