"""Descents of a criterion in the logarithms of a kernel's numbers and of the penalty, by L-BFGS.

Two processors round differently, and a descent would carry that on from step to step. So points,
values and slopes are rounded to multiples far above the rounding of float64 and far below any
relevant difference, and every processor takes the same steps.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from scipy.linalg import LinAlgError
from scipy.optimize import minimize

from bochner._core.shapes import Array, Float
from bochner.errors import UnsupportedKernel
from bochner.kernels.kernel import Kernel
from bochner.kernels.stationary import Stationary
from bochner.solvers.ridge.criteria import Criterion

#: A step that gains less than this share of the criterion is the last.
GAIN = 3e-4

#: Value of a point whose matrix is not positive.
WORST = 1e3

#: Multiples to which points, values and slopes are rounded.
POINTS, VALUES, SLOPES = 1e-6, 1e-6, 1e-5


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
class Hyperparameters:
    """Logarithms of a kernel's numbers and of the penalty."""

    lengths: Float[Array, " p"]  # Of factors of the lengthscales, or of other numbers
    share: float  # Of the penalty per row, alpha/W

    @property
    def vector(self) -> Float[Array, " q"]:
        """All of them in one array."""
        return np.append(self.lengths, self.share)

    def like(self, vector: Float[Array, " q"]) -> "Hyperparameters":
        """Return hyperparameters from their vector."""
        return Hyperparameters(vector[:-1], float(vector[-1]))


class Objective(ABC):
    """A criterion as a function of hyperparameters, to be minimised."""

    criterion: Criterion

    @property
    def level(self) -> float:
        """Part of the value that depends on the unit of the targets alone.

        A descent ends where a step gains a small share of the value without it.
        """
        return 0.0

    @abstractmethod
    def __call__(self, at: Hyperparameters) -> tuple[float, Float[Array, " q"]]:
        """Return the criterion, and its gradient in the vector of the hyperparameters."""

    @abstractmethod
    def kernel(self, at: Hyperparameters) -> Any:
        """Return the kernel with these hyperparameters, in the units of the data."""

    @abstractmethod
    def bounds(self, at: Hyperparameters) -> list[tuple[float, float]]:
        """Return the range of each hyperparameter in a descent from this start."""


On = TypeVar("On", bound=Objective)


@dataclass(frozen=True, eq=False)
class Evaluated(Generic[On]):
    """An objective, a point, and the value there."""

    of: On
    at: Hyperparameters
    value: float

    @property
    def kernel(self) -> Any:
        """The kernel at the point."""
        return self.of.kernel(self.at)


Note = Callable[[Evaluated[Any]], None]


class _Spent(Exception):
    """Ends a descent after its last evaluation."""


def descend(
    of: On, start: Hyperparameters, evaluations: int, note: Note, gain: float = GAIN
) -> Evaluated[On]:
    """Return the best of at most so many evaluations; ``note`` is called with each."""
    best, count = Evaluated(of, start, float("inf")), 0
    bounds = of.bounds(start)
    free = np.array([low < high for low, high in bounds])

    def value_and_gradient(vector: Array) -> tuple[float, Array]:
        nonlocal best, count
        if count >= max(evaluations, 1):
            raise _Spent
        count += 1
        at = start.like(np.where(free, on_grid(vector, POINTS), start.vector))
        try:
            value, gradient = of(at)
        except LinAlgError:
            return WORST, np.zeros_like(vector)
        point = Evaluated(of, at, float(on_grid(value, VALUES)))
        note(point)
        best = point if point.value < best.value else best
        return float(on_grid(value - of.level, VALUES)), on_grid(gradient, SLOPES)

    with suppress(_Spent):
        minimize(
            value_and_gradient,
            start.vector,
            jac=True,
            method="L-BFGS-B",
            bounds=bounds,
            options={"maxfun": 2 * evaluations, "maxiter": evaluations, "ftol": gain},
        )
    return best


def go_on(
    tried: Iterable[Evaluated[On]], evaluations: int, note: Note, gain: float = GAIN
) -> Evaluated[On]:
    """Descend from the best of these points; return the better of it and of the end."""
    start = min(tried, key=lambda point: point.value)
    end = descend(start.of, start.at, evaluations, note, gain)
    return end if end.value < start.value else start
