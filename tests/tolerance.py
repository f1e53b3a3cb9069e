"""Tolerances of all tests, by precision.

``of(dtype)`` is the relative tolerance of a computation with a few roundings; a test that needs
more passes a factor, with the reason in a comment.
"""

import math

import numpy as np
from scipy.stats import norm
from scipy.stats import t as student

ALARM = 1e-6
"""Probability that a statistical test of correct code fails, over all its comparisons."""

ROUNDINGS = 64


def of(dtype) -> float:
    """Return 64 relative rounding errors: 1.4e-14 in float64, 7.6e-6 in float32."""
    return ROUNDINGS * float(np.finfo(dtype).eps)


def assert_close(actual, expected, dtype=np.float64, factor=1.0, label=""):
    """Assert that errors are at most ``factor`` × tolerance × the largest of 1 and |expected|."""
    actual, expected = np.asarray(actual, dtype=float), np.asarray(expected, dtype=float)
    assert actual.shape == expected.shape, f"{label}: {actual.shape} is not {expected.shape}"
    allowed = factor * of(dtype) * max(1.0, float(np.abs(expected).max(initial=0.0)))
    worst = float(np.abs(actual - expected).max(initial=0.0))
    assert worst <= allowed, f"{label}: error {worst:.2e} above {allowed:.2e}"


def bar(comparisons: int, alarm: float = ALARM) -> float:
    """Return the |z| that correct code exceeds in any of the comparisons with probability ``alarm``.

    Two-sided, with a Bonferroni share of the alarm rate for each comparison.
    """
    return float(norm.isf(alarm / (2 * comparisons)))


def bias(K, features, comparisons: int, factor=1.0) -> float:
    """Return the largest |mean of ZZᵀ − K| over its limit; above 1 with probability 1e-6 if unbiased.

    The limit is a quantile of Student's t, with a Bonferroni share of the alarm rate, times the
    standard error over seeds, plus ``factor`` tolerances. Each seed is a mean of bounded terms.
    """
    estimates = np.array([Z @ Z.T for Z in features])
    bar = student.isf(ALARM / (2 * comparisons), len(estimates) - 1)
    error = estimates.std(axis=0, ddof=1) / np.sqrt(len(estimates))
    rounding = factor * of(np.float64) * np.abs(K).max()
    return float((np.abs(estimates.mean(axis=0) - K) / (bar * error + rounding)).max())


def bernstein_bar(comparisons: int, sd: float, bound: float, m: int, alarm: float = ALARM) -> float:
    """Return an |error| of a mean of m terms that is exceeded with probability at most ``alarm``.

    By Bernstein's inequality, for any m: terms are independent, with standard deviation ``sd``, and
    differ from their mean by at most ``bound``.
    """
    t = math.log(2 * comparisons / alarm)
    return sd * math.sqrt(2 * t / m) + 2 * bound * t / (3 * m)
