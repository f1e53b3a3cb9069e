"""One tolerance for each precision, in one place.

``of(dtype)`` is the relative error allowed to a computation of a few roundings; a test that needs
more says how many of them, with the reason beside it.
"""

import math

import numpy as np
from scipy.stats import norm
from scipy.stats import t as student

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


def bias(K, features, comparisons: int, factor=1.0) -> float:
    """Largest |mean of ZZᵀ − K| over its bar; above one alarms with chance 1e-6 for all maps.

    The standard error is the empirical one over seeds, each of which is a mean of many bounded
    terms: Student's t with a Bonferroni share of the alarm rate, and ``factor`` tolerances.
    """
    estimates = np.array([Z @ Z.T for Z in features])
    bar = student.isf(ALARM / (2 * comparisons), len(estimates) - 1)
    error = estimates.std(axis=0, ddof=1) / np.sqrt(len(estimates))
    rounding = factor * of(np.float64) * np.abs(K).max()
    return float((np.abs(estimates.mean(axis=0) - K) / (bar * error + rounding)).max())


def bernstein_bar(comparisons: int, sd: float, bound: float, m: int, alarm: float = ALARM) -> float:
    """|error of a mean of m| that is passed with chance ``alarm`` at most, for any m.

    Bernstein's inequality, for independent terms of standard deviation ``sd`` that differ from
    their mean by ``bound`` at most: no normal approximation.
    """
    t = math.log(2 * comparisons / alarm)
    return sd * math.sqrt(2 * t / m) + 2 * bound * t / (3 * m)
