"""One tolerance for each precision, in one place.

``of(dtype)`` is the relative error allowed to a computation of a few roundings; a test that needs
more says how many of them, with the reason beside it.
"""

import math

import numpy as np
from scipy.stats import norm

ALARM = 1e-6
"""Chance that a correct statistical test fails, all its comparisons together."""

ROUNDINGS = 64


def of(dtype) -> float:
    """Sixty-four roundings: 1.4e-14 in float64, 7.6e-6 in float32."""
    return ROUNDINGS * float(np.finfo(dtype).eps)


def assert_close(actual, expected, dtype=np.float64, factor=1.0, label=""):
    """Errors at most ``factor`` tolerances of the largest expected value."""
    actual, expected = np.asarray(actual, dtype=float), np.asarray(expected, dtype=float)
    assert actual.shape == expected.shape, f"{label}: {actual.shape} is not {expected.shape}"
    allowed = factor * of(dtype) * max(1.0, float(np.abs(expected).max(initial=0.0)))
    worst = float(np.abs(actual - expected).max(initial=0.0))
    assert worst <= allowed, f"{label}: error {worst:.2e} above {allowed:.2e}"


def bar(comparisons: int, alarm: float = ALARM) -> float:
    """|z| that a correct method passes with chance ``alarm`` in this many comparisons together.

    Bonferroni: each of them gets its share of the alarm rate, two-sided.
    """
    return float(norm.isf(alarm / (2 * comparisons)))


def bernstein_bar(comparisons: int, sd: float, bound: float, m: int, alarm: float = ALARM) -> float:
    """|error of a mean of m| that is passed with chance ``alarm`` at most, for any m.

    Bernstein's inequality, for independent terms of standard deviation ``sd`` that differ from
    their mean by ``bound`` at most: no normal approximation.
    """
    t = math.log(2 * comparisons / alarm)
    return sd * math.sqrt(2 * t / m) + 2 * bound * t / (3 * m)
