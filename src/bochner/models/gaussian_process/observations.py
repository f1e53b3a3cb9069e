"""Observations other than values: derivatives at places, and averages over boxes.

Each is a linear functional L of f, and L f is normal with f: covariances are L of the kernel's
arguments (Solak et al. 2003, eq. 2 and 3), or rows ∂φ/∂x_j and ∫φ of features.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from bochner._core.arrays import as_array, as_matrix, dense, to_numpy
from bochner._core.checks import check_fields, counted, integer
from bochner._core.shapes import Array, Float
from bochner.errors import InvalidInput
from bochner.kernels.kernel import Kernel

#: Places of all quadratures together: their kernel matrix is 512 MB.
MOST_PLACES = 8192

#: Columns of kernel values that are differentiated at once.
AT_ONCE = 16

#: Step of differences of closed-form derivatives, in lengthscales.
STEP = 1e-5


@dataclass(frozen=True, eq=False)
class Derivatives:
    """Observed slopes: values of ∂f/∂x_j at places, each with normal noise.

    Parameters
    ----------
    X : (m, d)
        Places, with the columns of the fit.
    column : int
        j.
    values : (m,) or (m, t)
        In units of y for one unit of the column.
    noise : float or (m,), default 0.0
        Variance of each value about the slope, in these units squared; 0: values are exact.
    """

    X: Float[Array, "m d"]
    column: int
    values: Float[Array, " m *t"]
    noise: float | Float[Array, " m"] = 0.0

    def __post_init__(self) -> None:
        check_fields(self, column=integer)
        X = np.asarray(to_numpy(dense(as_matrix(self.X, "Derivatives"))), np.float64)
        object.__setattr__(self, "X", X)
        _check_values(self, len(X))
        if self.column >= X.shape[1]:
            raise InvalidInput(
                f"Derivatives: column must be below the {X.shape[1]} columns of X; got "
                f"{self.column}."
            )

    @property
    def n_columns(self) -> int:
        """D."""
        return self.X.shape[1]


@dataclass(frozen=True, eq=False)
class BlockAverages:
    """Observed averages of f over boxes, each with normal noise: an integral over its volume.

    Parameters
    ----------
    lower, upper : (m, d)
        Corners of the boxes, lower at most upper; a column with both equal is held there.
    values : (m,) or (m, t)
        Averages, in units of y; of an integral divide by the volume of the box.
    noise : float or (m,), default 0.0
        Variance of each value about the average; 0: values are exact.
    points : int, default 8
        Places of Gauss's quadrature along each column in which a box is extended; 8,192 in all
        boxes together at most.
    """

    lower: Float[Array, "m d"]
    upper: Float[Array, "m d"]
    values: Float[Array, " m *t"]
    noise: float | Float[Array, " m"] = 0.0
    points: int = 8

    def __post_init__(self) -> None:
        check_fields(self, points=counted)
        for name in ("lower", "upper"):
            X = as_matrix(getattr(self, name), "BlockAverages", name)
            object.__setattr__(self, name, np.asarray(to_numpy(dense(X)), np.float64))
        if self.lower.shape != self.upper.shape or np.any(self.lower > self.upper):
            raise InvalidInput(
                "BlockAverages: lower and upper must be corners of the same boxes, lower at most "
                f"upper; got shapes {self.lower.shape} and {self.upper.shape}."
            )
        _check_values(self, len(self.lower))
        places = self.points ** len(self._extended)
        if len(self.lower) * places > MOST_PLACES:
            raise InvalidInput(
                f"BlockAverages: boxes must have {MOST_PLACES:,} places of quadrature in all at "
                f"most; got {len(self.lower)} boxes of {places:,}. Pass fewer points, "
                "or lower equal to upper in columns that do not matter."
            )

    @property
    def n_columns(self) -> int:
        """D."""
        return self.lower.shape[1]

    @property
    def _extended(self) -> Array:
        return np.flatnonzero(np.any(self.upper > self.lower, axis=0))

    @cached_property
    def _rule(self) -> tuple[Float[np.ndarray, "q e"], Float[np.ndarray, " q"]]:
        return quadrature(self.points, len(self._extended))

    @cached_property
    def places(self) -> Float[np.ndarray, "p d"]:
        """Quadrature places of all boxes, box by box."""
        nodes, weights = self._rule
        unit = np.full((len(weights), self.n_columns), 0.5)
        unit[:, self._extended] = nodes
        found = self.lower[:, None] + unit * (self.upper - self.lower)[:, None]
        return found.reshape(-1, self.n_columns)

    def averaged(self, values: Array) -> Array:
        """Return the averages of values at all places."""
        each = values.reshape(len(self.lower), -1, *values.shape[1:])
        return np.einsum("q,mq...->m...", self._rule[1], each)


Observation = Derivatives | BlockAverages


def quadrature(points: int, d: int) -> tuple[Float[np.ndarray, "q d"], Float[np.ndarray, " q"]]:
    """Return Gauss-Legendre nodes in the unit cube, ``points`` a column, and weights of sum one."""
    x, w = np.polynomial.legendre.leggauss(points)
    each = np.indices((points,) * d).reshape(d, points**d).T
    return ((x + 1) / 2)[each], (w / 2)[each].prod(axis=1)


def _check_values(given: Any, m: int) -> None:
    """Convert and check values, (m, t), and variances, (m,)."""
    who = type(given).__name__
    values = np.asarray(to_numpy(as_array(given.values, who, "values")), np.float64)
    noise = np.asarray(given.noise, np.float64)
    if m == 0 or values.ndim not in (1, 2) or len(values) != m or not np.isfinite(values).all():
        raise InvalidInput(
            f"{who}: values must be a finite number for each of the {m} places or boxes; got "
            f"shape {values.shape}."
        )
    if noise.shape not in ((), (m,)) or not (np.isfinite(noise) & (noise >= 0)).all():
        raise InvalidInput(
            f"{who}: noise must be a variance, zero or above, or one for each value; got "
            f"{given.noise!r}."
        )
    object.__setattr__(given, "values", values.reshape(m, -1))
    object.__setattr__(given, "noise", np.broadcast_to(noise, (m,)).copy())


# --- Functionals of kernels ----------------------------------------------------------------------


def constant_of(given: Observation) -> Float[np.ndarray, " m"]:
    """Return what the functionals make of the constant 1."""
    return np.full(len(given.values), float(isinstance(given, BlockAverages)))


def applied(
    given: Observation, kernel: Kernel, Y: Float[np.ndarray, "c d"]
) -> Float[np.ndarray, "m c"]:
    """Return the functionals of k(·, y) for each row y."""
    if isinstance(given, BlockAverages):
        return given.averaged(np.asarray(kernel(given.places, Y)))
    return slopes(kernel, given.X, given.column, Y)


def applied_twice(
    first: Observation, second: Observation, kernel: Kernel, steps: Float[np.ndarray, " d"]
) -> Float[np.ndarray, "m c"]:
    """Return the functionals of both arguments of the kernel.

    Second derivatives are differences of first ones, over ``steps``: of closed forms, so that
    rounding is divided by one step and not by its square.
    """
    if isinstance(second, BlockAverages):
        return second.averaged(applied(first, kernel, second.places).T).T
    if isinstance(first, BlockAverages):
        return applied_twice(second, first, kernel, steps).T
    along = np.zeros(first.n_columns)
    along[second.column] = steps[second.column]
    after = slopes(kernel, first.X, first.column, second.X + along)
    before = slopes(kernel, first.X, first.column, second.X - along)
    return (after - before) / (2 * steps[second.column])


def slopes(
    kernel: Kernel, Z: Float[np.ndarray, "m d"], column: int, Y: Float[np.ndarray, "c d"]
) -> Float[np.ndarray, "m c"]:
    """Return ∂k(z, y)/∂z_j of all pairs."""
    found = np.empty((len(Z), len(Y)))
    for start in range(0, len(Y), AT_ONCE):
        some = np.ascontiguousarray(Y[start : start + AT_ONCE])
        one_by_one = np.tile(np.eye(len(some)), (len(Z), 1))
        G = kernel.pullback(np.repeat(Z, len(some), axis=0), some, one_by_one)
        found[:, start : start + AT_ONCE] = G[:, column].reshape(len(Z), len(some))
    return found


def steps_of(kernel: Kernel, X: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " d"]:
    """Return 1e-5 of how far f goes along each column before it changes by its deviation."""
    spread = X.std(axis=0)
    spread = np.where(spread > 0, spread, 1.0)
    middle = X[:1]
    steps = np.empty(len(spread))
    for j, s in enumerate(spread):
        moved = middle.copy()
        moved[:, j] += 1e-3 * s
        both = np.asarray(kernel(np.vstack([middle, moved])))
        change = float(both[0, 0] + both[1, 1] - 2 * both[0, 1]) / max(float(both[0, 0]), 1e-300)
        steps[j] = STEP * np.clip(1e-3 / np.sqrt(max(change, 1e-18)), 1e-3, 1e3) * s
    return steps


Values = Callable[[Float[Array, "p d"]], Float[Array, "p r"]]


def of_function(given: Observation, f: Values, steps: Float[np.ndarray, " d"]) -> Array:
    """Return the functionals of a smooth function by its values: slopes by differences."""
    if isinstance(given, BlockAverages):
        return given.averaged(f(given.places))
    along = np.zeros(given.n_columns)
    along[given.column] = 100 * steps[given.column]
    return (f(given.X + along) - f(given.X - along)) / (200 * steps[given.column])
