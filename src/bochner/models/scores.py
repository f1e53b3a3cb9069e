"""Scores of normal laws of new rows: how near, how sure, and how often they cover.

The continuous ranked probability score of N(μ, σ²) at y is, with z = (y − μ)/σ,

    CRPS = ∫ (F(t) − 1{t ≥ y})² dt = σ (z (2Φ(z) − 1) + 2φ(z) − 1/√π)

(Gneiting and Raftery 2007, equation 21): the absolute error of a law of no width.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import norm

from bochner._core.checks import share
from bochner._core.shapes import Array, Tabular
from bochner.errors import InvalidInput
from bochner.models.gaussian_process.regressor import GaussianProcessRegressor

#: Shares that intervals are to cover.
COVERAGES = (0.5, 0.9, 0.95)


@dataclass(frozen=True)
class NormalScores:
    """Mean scores of normal laws, of rows that they were not fitted to; prints as a table.

    Attributes
    ----------
    rows : int
        Number of values of y; several targets count separately.
    bias : float
        Mean of μ − y, in units of y.
    rmse : float
        Root of the mean squared error of μ.
    crps : float
        Mean continuous ranked probability score, in units of y: smaller is better.
    log_density : float
        Mean log N(y; μ, σ²): larger is better.
    z_variance : float
        Mean of ((y − μ)/σ)²: one if the deviations are right.
    coverage : tuple of (float, float)
        Shares asked for, and the shares of rows within the central intervals of that chance.
    """

    rows: int
    bias: float
    rmse: float
    crps: float
    log_density: float
    z_variance: float
    coverage: tuple[tuple[float, float], ...]

    def __str__(self) -> str:
        """Return the scores, one a line."""
        lines = [
            ("rows", f"{self.rows:,}"),
            ("bias", f"{self.bias:.4g}"),
            ("RMSE", f"{self.rmse:.4g}"),
            ("CRPS", f"{self.crps:.4g}"),
            ("log density", f"{self.log_density:.4g}"),
            ("mean of z²", f"{self.z_variance:.4g}"),
            *((f"{asked:.0%} covers", f"{found:.1%}") for asked, found in self.coverage),
        ]
        return "\n".join(f"{name:<12} {value}" for name, value in lines)


def normal_scores(
    y: Array, mean: Array, deviation: Array, coverages: Sequence[float] = COVERAGES
) -> NormalScores:
    """Score normal laws of new values.

    Parameters
    ----------
    y, mean, deviation : (m,) or (m, t)
        Values, and the mean and standard deviation of their predictive laws, with noise, as from
        ``process.predict(X, return_std=True, include_noise=True)``. Several targets are pooled.
    coverages : sequence of float, default (0.5, 0.9, 0.95)
        Chances of central intervals, above 0 and below 1.

    Returns
    -------
    NormalScores

    Raises
    ------
    InvalidInput
        If shapes differ or are empty, a number is not finite, or a deviation is not above zero.

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> y = np.random.default_rng(0).standard_normal(10_000)
    >>> found = bo.normal_scores(y, 0 * y, 1 + 0 * y)
    >>> bool(abs(found.crps - 1 / np.sqrt(np.pi)) < 0.02)
    True
    """
    y, mean, deviation = (np.asarray(a, dtype=np.float64) for a in (y, mean, deviation))
    if not y.size or not y.shape == mean.shape == deviation.shape:
        raise InvalidInput(
            "normal_scores: y, mean and deviation must have one shape, of one row at least; got "
            f"{y.shape}, {mean.shape} and {deviation.shape}."
        )
    for name, values in (("y", y), ("mean", mean), ("deviation", deviation)):
        if not np.isfinite(values).all():
            raise InvalidInput(f"normal_scores: {name} must be finite; got NaN or infinity.")
    if not (deviation > 0).all():
        raise InvalidInput(
            f"normal_scores: deviation must be above 0; got {deviation.min():g}. A law of new "
            "values has the noise in it: pass include_noise=True to predict."
        )
    asked = [share(chance, "normal_scores", "coverages") for chance in coverages]
    z = (y - mean) / deviation
    crps = deviation * (z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z) - 1 / math.sqrt(math.pi))
    within = [float(np.mean(np.abs(z) <= norm.ppf(0.5 + chance / 2))) for chance in asked]
    return NormalScores(
        y.size,
        float(np.mean(mean - y)),
        float(np.sqrt(np.mean((y - mean) ** 2))),
        float(np.mean(crps)),
        float(np.mean(norm.logpdf(z) - np.log(deviation))),
        float(np.mean(z**2)),
        tuple(zip(asked, within, strict=True)),
    )


def predictive_scorer(process: GaussianProcessRegressor, X: Tabular, y: Array) -> dict[str, float]:
    """Score the laws of rows held out: a scorer for scikit-learn's ``cross_validate``.

    Parameters
    ----------
    process : GaussianProcessRegressor
        Fitted to other rows.
    X : (n, d)
    y : (n,) or (n, t)

    Returns
    -------
    dict
        "bias", "rmse", "crps", "log_density", "z_variance" of :class:`NormalScores`, and
        "coverage_0.5", "coverage_0.9", "coverage_0.95".

    Raises
    ------
    InvalidInput
        If the learner is no process.
    """
    if not isinstance(process, GaussianProcessRegressor):
        raise InvalidInput(
            "predictive_scorer: process must be a GaussianProcessRegressor, whose predictions "
            f"have deviations; got {type(process).__name__}."
        )
    found = normal_scores(y, *process.predict(X, return_std=True, include_noise=True))
    names = ("bias", "rmse", "crps", "log_density", "z_variance")
    covered = {f"coverage_{asked:g}": within for asked, within in found.coverage}
    return {name: getattr(found, name) for name in names} | covered
