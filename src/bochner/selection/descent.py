"""Descents of a criterion in the logarithms of a kernel's numbers and of the penalty, by L-BFGS.

Two processors round differently, and a descent would carry that on from step to step. So points,
values and slopes are rounded to multiples far above the rounding of float64 and far below any
relevant difference, and every processor takes the same steps.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError
from scipy.optimize import minimize

from bochner._core.shapes import Array, Float
from bochner.data.sample import RowSample
from bochner.errors import UnsupportedKernel
from bochner.kernels.kernel import Kernel
from bochner.kernels.stationary import Stationary
from bochner.selection.held_out import FEWEST
from bochner.selection.rows import deviations, median_distance
from bochner.solvers.ridge.criteria import Criterion

GAIN = 3e-4  # A step that gains less than this share of the criterion is the last
LEAST = 1e-8  # Least penalty, as a share of k(x, x)
#: Deviation of the normal prior of a log number, worth one row: of a log lengthscale about the log
#: of the median distance.
SPREAD = 3.0


def require_lengthscale(kernel: Kernel) -> None:
    """Raise UnsupportedKernel if the kernel has no lengthscale to tune."""
    if not (isinstance(kernel, Stationary) and "lengthscale" in kernel.get_params(deep=False)):
        raise UnsupportedKernel(
            "Tuning requires a stationary kernel with a lengthscale (Gaussian, Matern, "
            f"Exponential, RationalQuadratic, Laplace, Cauchy), or one of their names; got "
            f"{kernel!r}. Choose other kernels by the estimator's error on rows that were held out."
        )


def on_grid(x: Any, step: float) -> Any:
    """Return the multiples of ``step`` nearest to x."""
    return np.round(np.asarray(x, np.float64) / step) * step


@dataclass(frozen=True, eq=False)
class ProcessRows:
    """Rows of a criterion."""

    X: Array
    y: Float[Array, "m t"]
    w: Float[Array, " m"]
    centred: bool
    noise: float | None = None
    amplitude: float | None = None

    @staticmethod
    def of(
        sample: RowSample, centred: bool, noise: float | None, amplitude: float | None, share: Any
    ) -> "ProcessRows | None":
        """Return the rows with the targets that vary; None if none does, or rows are too few.

        A given penalty per row, ``share``, is the noise of a process with amplitude one.
        """
        y = sample.y[:, np.ptp(sample.y, axis=0) > 0]
        if len(sample) < FEWEST or not y.shape[1]:
            return None
        if share is not None:
            noise, amplitude = share * float(sample.w.sum()), 1.0
        return ProcessRows(sample.X, y, sample.w, centred, noise, amplitude)

    @property
    def count(self) -> float:
        """Number of rows; a row of weight w counts as w rows."""
        return max(float(self.w.sum()), len(self.w))

    @property
    def shares(self) -> tuple[float, ...]:
        """Logarithms of the penalties per row of the starts: the given one, or several."""
        weight = float(self.w.sum())
        if self.noise is not None and self.amplitude is not None:
            return (float(np.log(max(self.noise / self.amplitude, LEAST) / weight)),)
        return tuple(float(np.log(alpha / weight)) for alpha in (1.0, 1e-1, 1e-2, 1e-3))

    def first(self, m: int) -> "ProcessRows":
        """Return the first m rows, of targets that vary in them."""
        if len(self.w) <= m:
            return self
        y = self.y[:m, np.ptp(self.y[:m], axis=0) > 0]
        return self if not y.shape[1] else replace(self, X=self.X[:m], y=y, w=self.w[:m])

    @cached_property
    def spread(self) -> Float[Array, " d"]:
        """Deviations of the columns."""
        return deviations(self.X, self.w)

    def log_median(self, scales: Any) -> float:
        """Return the log of the median distance in these units of the columns."""
        return float(np.log(median_distance(self.X, self.w, (scales,), 0, most=4096)))


class Objective(ABC):
    """A criterion per row minus a log prior, as a function of log numbers and the log penalty.

    A point is a vector: the logarithms of factors of the lengthscales, or of other numbers in
    their units, and last the logarithm of the penalty per row.
    """

    start: Any  # The kernel at zero, or with free numbers
    rows: ProcessRows
    criterion: Criterion

    @cached_property
    def centres(self) -> Float[Array, " p"]:
        """Centres of the normal prior of log numbers, which is worth one row."""
        raise NotImplementedError

    @cached_property
    def units(self) -> Any:
        """Steps of the log numbers that match unit steps of the point."""
        return 1.0

    @property
    def level(self) -> float:
        """Part of the value that depends on the unit of the targets alone.

        A descent ends where a step gains a small share of the value without it.
        """
        return 0.0

    @abstractmethod
    def kernel(self, at: Array) -> Any:
        """Return the kernel at a point, in the units of the data."""

    @abstractmethod
    def at_penalty(self, at: Array, alpha: float) -> tuple[float, Float[Array, " q"]]:
        """Return the criterion at a penalty without the prior, and its gradient."""

    @abstractmethod
    def ranges(self, at: Array) -> list[tuple[float, float]]:
        """Return the range of each number in a descent from this start."""

    def __call__(self, at: Array) -> tuple[float, Float[Array, " q"]]:
        """Return the value and its gradient."""
        value, slope = self.at_penalty(at, float(np.exp(at[-1]) * self.rows.w.sum()))
        known, away = self.known(at)
        return value + known, np.append((slope[:-1] + away) * self.units, slope[-1])

    def known(self, at: Array) -> tuple[float, Float[Array, " p"]]:
        """Return minus the log prior per row, and its gradient in the log numbers."""
        far = at[:-1] * self.units - self.centres
        away = far / (SPREAD**2 * self.rows.count)
        return 0.5 * float(away @ far), away

    def bounds(self, at: Array) -> list[tuple[float, float]]:
        """Return the range of each coordinate in a descent from this start."""
        shares, weight = self.rows.shares, self.rows.w.sum()
        limits = (np.log(LEAST / weight), np.log(1e4 / weight))
        return [*self.ranges(at), (shares[0],) * 2 if len(shares) == 1 else limits]


@dataclass(frozen=True, eq=False)
class Evaluated:
    """An objective, a point, and the value there."""

    of: Any
    at: Float[Array, " q"]
    value: float

    @property
    def kernel(self) -> Any:
        """The kernel at the point."""
        return self.of.kernel(self.at)

    @property
    def alpha(self) -> float:
        """The penalty at the point, for the rows of the objective."""
        return float(np.exp(self.at[-1])) * float(self.of.rows.w.sum())

    def on(self, rows: ProcessRows) -> tuple[Any, Float[Array, " q"]]:
        """Return the objective of these rows, and the point with the same penalty."""
        share = self.at[-1] + np.log(self.of.rows.w.sum() / rows.w.sum())
        return replace(self.of, rows=rows), np.append(self.at[:-1], share)


class _Spent(Exception):
    """Ends a descent after its last evaluation."""


def descend(of: Objective, start: Array, evaluations: int, gain: float = GAIN) -> Evaluated:
    """Return the best of at most so many evaluations."""
    best, count = Evaluated(of, start, float("inf")), 0
    bounds = of.bounds(start)
    free = np.array([low < high for low, high in bounds])

    def value_and_gradient(vector: Array) -> tuple[float, Array]:
        nonlocal best, count
        if count >= max(evaluations, 1):
            raise _Spent
        count += 1
        at = np.where(free, on_grid(vector, 1e-6), start)
        try:
            value, gradient = of(at)
        except LinAlgError:
            return 1e3, np.zeros_like(vector)  # worse than all others
        point = Evaluated(of, at, float(on_grid(value, 1e-6)))
        best = point if point.value < best.value else best
        return float(on_grid(value - of.level, 1e-6)), on_grid(gradient, 1e-5)

    with suppress(_Spent):
        minimize(
            value_and_gradient,
            start,
            jac=True,
            method="L-BFGS-B",
            bounds=bounds,
            options={"maxfun": 2 * evaluations, "maxiter": evaluations, "ftol": gain},
        )
    return best


def least(points: Iterable[Evaluated]) -> Evaluated:
    """Return the point of the least value."""
    return min(points, key=lambda point: point.value)


def go_on(start: Evaluated, evaluations: int, gain: float = GAIN) -> Evaluated:
    """Descend from a point; return the end if it is better."""
    return least([start, descend(start.of, start.at, evaluations, gain)])
