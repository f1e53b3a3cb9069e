"""Where a convex function of one number, known by its slope, is least; several at once."""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from bochner._core.shapes import Array, Float
from bochner.solvers.convex.loss import Loss

#: Share of the first slope that is next to none.
ENOUGH = 0.1

#: How often a length is doubled at most.
DOUBLINGS = 20

Slope = Callable[[Float[Array, " t"]], Float[Array, " t"]]


class _Bracket(NamedTuple):
    """Lengths below and above the best one, and the slopes there, one a target."""

    low: Array
    high: Array
    at_low: Array
    at_high: Array


def best_length(slope: Slope, count: int, doublings: int = DOUBLINGS) -> Float[Array, " t"]:
    """Return where the slope is a tenth of that at zero, or less; zero where it does not fall.

    ``slope`` takes and gives ``count`` numbers, one a target, and rises in each. From one the
    length is doubled until the function rises, so often at most, then sought between.
    """
    zero = np.zeros(count)
    first = slope(zero)
    falls = first < 0
    b = _Bracket(zero, zero + 1, first, slope(zero + 1))
    for _ in range(doublings):
        short = falls & (b.at_high < ENOUGH * first)
        if not np.any(short):
            break
        far = np.where(short, 2 * b.high, b.high)
        low, at_low = np.where(short, b.high, b.low), np.where(short, b.at_high, b.at_low)
        b = _Bracket(low, far, at_low, slope(far))
    between = falls & (b.at_high > 0)
    enough = np.where(between, ENOUGH * np.abs(first), np.inf)
    return np.where(falls, _root(slope, b, enough), 0.0)


def _root(slope: Slope, b: _Bracket, enough: Array) -> Float[Array, " t"]:
    """Return where a rising function is within ``enough`` of zero: secants and bisection."""
    best: Array = b.high
    value: Array = b.at_high
    for turn in range(40):
        open_ = np.abs(value) > enough
        if not np.any(open_):
            break
        rise = b.at_high - b.at_low
        secant = b.low - b.at_low * (b.high - b.low) / np.where(rise > 0, rise, 1)
        halve = (turn % 3 == 2) | ~np.isfinite(rise) | (rise <= 0)
        best = np.where(open_, np.where(halve, (b.low + b.high) / 2, secant), best)
        value = np.where(open_, slope(best), value)
        left = open_ & (value < 0)
        right = open_ & ~left
        b = _Bracket(
            np.where(left, best, b.low),
            np.where(right, best, b.high),
            np.where(left, value, b.at_low),
            np.where(right, value, b.at_high),
        )
    return best


def next_best_length(slope: Callable[[float], float], first: float, most: float) -> float:
    """Return where one slope is a tenth of ``first``, its value at zero, or less; ``most`` at most.

    The same as :func:`best_length` of a step whose slope at its start is known, by numbers instead
    of arrays: from one by secants, between a length that is too short and one that is too long.
    Zero where the slope is not below zero, or stays what it is by rounding.
    """
    if not first < 0:
        return 0.0
    low, at_low, high, at_high = 0.0, first, math.inf, math.inf
    length = 1.0
    for turn in range(40):
        value = slope(length)
        if abs(value) <= -ENOUGH * first or (value < 0 and length >= most):
            break
        if value < 0:
            low, at_low = length, value
        else:
            high, at_high = length, value
        if high == math.inf:
            length = min(low * min(first / min(first - at_low, -1e-300), 2.0), most)
        elif at_high == math.inf or turn % 3 == 2:
            length = (low + high) / 2
        else:
            length = low - at_low * (high - low) / (at_high - at_low)
    return length


def best_constant(loss: Loss, y: Float[Array, "n t"], w: Float[Array, "n t"]) -> Float[Array, " t"]:
    """Return the constants of least loss: by doubling about zero, then by halving."""

    def slope(b: Array) -> Float[Array, " t"]:
        with np.errstate(over="ignore", invalid="ignore"):
            total = (w * loss.slope(y, np.broadcast_to(b, y.shape))).sum(axis=0)
        return np.nan_to_num(total, nan=np.inf, posinf=np.inf)

    low, high = -np.ones(y.shape[1]), np.ones(y.shape[1])
    least = 1e-12 * w.sum(axis=0)
    for _ in range(100):
        falls, rises = slope(high) < -least, slope(low) > least
        if not np.any(falls | rises):
            break
        low, high = np.where(rises, 2 * low, low), np.where(falls, 2 * high, high)
    for _ in range(64):
        middle = (low + high) / 2
        up = slope(middle) < 0
        low, high = np.where(up, middle, low), np.where(up, high, middle)
    return (low + high) / 2
