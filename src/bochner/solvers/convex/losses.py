"""Losses of numbers: squared, robust, of quantiles, of support vectors, of counts and amounts."""

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import xlogy

from bochner._core.shapes import Array
from bochner.solvers.convex.loss import (
    Loss,
    positive,
    ramp,
    ramp_curvature,
    ramp_slope,
)

#: Above this exponent, exp times a weight may be no number: the value is then infinite.
LARGEST_EXPONENT = 600.0


@dataclass(frozen=True)
class Squared(Loss):
    """(y − f)²/2: then alpha is the penalty of ridge regression."""

    @property
    def degree(self) -> int:
        return 2

    def value(self, y: Array, f: Array) -> Array:
        return (y - f) ** 2 / 2

    def slope(self, y: Array, f: Array) -> Array:
        return f - y

    def curvature(self, y: Array, f: Array) -> Array:  # noqa: ARG002
        return np.ones_like(f)


@dataclass(frozen=True)
class Huber(Loss):
    """r²/2 for |r| ≤ c, else c|r| − c²/2; r = y − f; one threshold c, or one a column."""

    threshold: float | tuple[float, ...] = 1.0

    @property
    def degree(self) -> int:
        return 2

    def in_units(self, units: Array) -> "Huber":
        return Huber(_divided(self.threshold, units))

    def value(self, y: Array, f: Array) -> Array:
        r = np.abs(y - f)
        near = np.minimum(r, self.threshold)
        return near * (r - near / 2)

    def slope(self, y: Array, f: Array) -> Array:
        c = np.asarray(self.threshold)
        return np.clip(f - y, -c, c)

    def curvature(self, y: Array, f: Array) -> Array:
        return 1.0 * (np.abs(y - f) <= self.threshold)

    def at(self, columns: Array) -> "Huber":
        return Huber(_of(self.threshold, columns))


@dataclass(frozen=True)
class Quantile(Loss):
    """max(τ r, (τ − 1) r), r = y − f; one level τ, or one a column."""

    level: float | tuple[float, ...] = 0.5
    width: float = 0.0

    @property
    def degree(self) -> int:
        return 1

    @property
    def kinked(self) -> bool:
        return self.width == 0

    def value(self, y: Array, f: Array) -> Array:
        q, r = self._best(y - f), y - f
        return q * r - self.width * q**2 / 2

    def slope(self, y: Array, f: Array) -> Array:
        return -self._best(y - f)

    def curvature(self, y: Array, f: Array) -> Array:
        if self.kinked:
            return np.zeros_like(f)
        q, tau = (y - f) / self.width, np.asarray(self.level)
        return ((q > tau - 1) & (q < tau)) / self.width

    def smooth(self, width: float) -> "Quantile":
        return replace(self, width=width)

    def at(self, columns: Array) -> "Quantile":
        return replace(self, level=_of(self.level, columns))

    def _best(self, r: Array) -> Array:
        """Return the q in [τ − 1, τ] of the largest q r − δq²/2."""
        tau = np.asarray(self.level)
        if self.kinked:
            return np.where(r > 0, tau, tau - 1)
        return np.clip(r / self.width, tau - 1, tau)


@dataclass(frozen=True)
class Absolute(Loss):
    """|y − f|; with a width δ, Huber's."""

    width: float = 0.0

    @property
    def degree(self) -> int:
        return 1

    @property
    def kinked(self) -> bool:
        return self.width == 0

    def value(self, y: Array, f: Array) -> Array:
        r = np.abs(y - f)
        return r if self.kinked else ramp(r, self.width)

    def slope(self, y: Array, f: Array) -> Array:
        r = f - y
        return np.sign(r) if self.kinked else np.clip(r / self.width, -1, 1)

    def curvature(self, y: Array, f: Array) -> Array:
        return np.zeros_like(f) if self.kinked else (np.abs(y - f) < self.width) / self.width

    def smooth(self, width: float) -> "Absolute":
        return Absolute(width)


@dataclass(frozen=True)
class EpsilonInsensitive(Loss):
    """max(0, |y − f| − ε): the loss of support vector regression; one ε, or one a column."""

    epsilon: float | tuple[float, ...] = 0.1
    width: float = 0.0

    @property
    def degree(self) -> int:
        return 1

    def in_units(self, units: Array) -> "EpsilonInsensitive":
        return replace(self, epsilon=_divided(self.epsilon, units))

    @property
    def kinked(self) -> bool:
        return self.width == 0

    def value(self, y: Array, f: Array) -> Array:
        return ramp(np.abs(y - f) - np.asarray(self.epsilon), self.width)

    def slope(self, y: Array, f: Array) -> Array:
        return np.sign(f - y) * ramp_slope(np.abs(y - f) - np.asarray(self.epsilon), self.width)

    def curvature(self, y: Array, f: Array) -> Array:
        return ramp_curvature(np.abs(y - f) - np.asarray(self.epsilon), self.width)

    def smooth(self, width: float) -> "EpsilonInsensitive":
        return replace(self, width=width)

    def at(self, columns: Array) -> "EpsilonInsensitive":
        return replace(self, epsilon=_of(self.epsilon, columns))


@dataclass(frozen=True)
class SquaredEpsilonInsensitive(Loss):
    """max(0, |y − f| − ε)²; one ε, or one a column."""

    epsilon: float | tuple[float, ...] = 0.1

    @property
    def degree(self) -> int:
        return 2

    def in_units(self, units: Array) -> "SquaredEpsilonInsensitive":
        return SquaredEpsilonInsensitive(_divided(self.epsilon, units))

    def at(self, columns: Array) -> "SquaredEpsilonInsensitive":
        return SquaredEpsilonInsensitive(_of(self.epsilon, columns))

    @property
    def local(self) -> bool:
        return True

    def value(self, y: Array, f: Array) -> Array:
        return positive(np.abs(y - f) - np.asarray(self.epsilon)) ** 2

    def slope(self, y: Array, f: Array) -> Array:
        return 2 * np.sign(f - y) * positive(np.abs(y - f) - np.asarray(self.epsilon))

    def curvature(self, y: Array, f: Array) -> Array:
        return 2.0 * (np.abs(y - f) > np.asarray(self.epsilon))

    def distance(self, y: Array, f: Array) -> Array:
        return np.asarray(self.epsilon) - np.abs(y - f)


@dataclass(frozen=True)
class Poisson(Loss):
    """exp(f) − y f + y log y − y: half the deviance of counts y ≥ 0 of mean exp(f)."""

    def value(self, y: Array, f: Array) -> Array:
        return _exp(f) - y * f + xlogy(y, y) - y

    def slope(self, y: Array, f: Array) -> Array:
        return _exp(f) - y

    def curvature(self, y: Array, f: Array) -> Array:  # noqa: ARG002
        return _exp(f)


@dataclass(frozen=True)
class Gamma(Loss):
    """f + y exp(−f) − log y − 1: half the deviance of y > 0 of mean exp(f)."""

    def value(self, y: Array, f: Array) -> Array:
        return f + y * _exp(-f) - np.log(y) - 1

    def slope(self, y: Array, f: Array) -> Array:
        return 1 - y * _exp(-f)

    def curvature(self, y: Array, f: Array) -> Array:
        return y * _exp(-f)


def _of(numbers: float | tuple[float, ...], columns: Array) -> float | tuple[float, ...]:
    """Return what is a number for all columns, or the numbers of these."""
    if not isinstance(numbers, tuple):
        return numbers
    return tuple(numbers[i] for i in columns.tolist())


def _divided(numbers: float | tuple[float, ...], units: Array) -> float | tuple[float, ...]:
    """Return numbers in these units: one where all are equal, else one a column."""
    values = np.atleast_1d(np.asarray(numbers) / units).tolist()
    return values[0] if len(set(values)) == 1 else tuple(values)


def _exp(f: Array) -> Array:
    """Return exp(f), infinite where no weight could be put on it."""
    return np.where(f > LARGEST_EXPONENT, np.inf, np.exp(np.minimum(f, LARGEST_EXPONENT)))
