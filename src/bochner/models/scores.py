"""Scores of normal laws of new rows: how near, how sure, and how often they cover.

The continuous ranked probability score of N(μ, σ²) at y is, with z = (y − μ)/σ,

    CRPS = ∫ (F(t) − 1{t ≥ y})² dt = σ (z (2Φ(z) − 1) + 2φ(z) − 1/√π)

(Gneiting and Raftery 2007, equation 21): the absolute error of a law of no width.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import norm
from sklearn.base import clone
from sklearn.utils import _safe_indexing

from bochner._core.checks import share
from bochner._core.random import Seed, seed_of
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
        Values of y, those of several targets counted one by one.
    bias : float
        Mean of μ − y, in units of y.
    rmse : float
        Root of the mean squared error of μ.
    crps : float
        Mean continuous ranked probability score, in units of y: smaller is better.
    log_density : float
        Mean log N(y; μ, σ²): larger is better.
    z_variance : float
        Mean of ((y − μ)/σ)²: one if deviations are those of the errors.
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
        Values, and mean and standard deviation of their laws: of new values, with noise, as of
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


def cross_validated_scores(
    process: GaussianProcessRegressor,
    X: Tabular,
    y: Array,
    *,
    folds: Any = 10,
    groups: Array | None = None,
    coverages: Sequence[float] = COVERAGES,
    random_state: Seed = 0,
) -> NormalScores:
    """Score the laws of rows by processes that were fitted without them.

    Parameters
    ----------
    process : GaussianProcessRegressor
        Its parameters; it is not fitted itself.
    X : (n, d)
    y : (n,) or (n, t)
    folds : int or splitter of scikit-learn, default 10
        How many folds, of rows chosen at random. With ``groups`` whole groups are left out
        together, as ``GroupKFold`` does: stations, or squares of a map, so that neighbours do not
        tell of one another.
    groups : (n,), optional
        Of each row.
    coverages : sequence of float, default (0.5, 0.9, 0.95)
    random_state : int, Generator, RandomState or None, default 0
        Of the folds.

    Returns
    -------
    NormalScores
        Of all rows, each scored once.

    Raises
    ------
    InvalidInput
        If the learner is no process.

    Notes
    -----
    As many fits as there are folds; everything that is open is chosen again in each.
    """
    if not isinstance(process, GaussianProcessRegressor):
        raise InvalidInput(
            "cross_validated_scores: process must be a GaussianProcessRegressor, whose predictions "
            f"have deviations; got {type(process).__name__}."
        )
    y = np.asarray(y)
    parts = []
    for train, held in _splitter(folds, groups, random_state).split(X, y, groups):
        model = clone(process).fit(_safe_indexing(X, train), y[train])
        found = model.predict(_safe_indexing(X, held), return_std=True, include_noise=True)
        parts.append((y[held], *(np.asarray(a) for a in found)))
    of_all, mean, deviation = (np.concatenate(part) for part in zip(*parts, strict=True))
    return normal_scores(of_all, mean, deviation, coverages)


def _splitter(folds: Any, groups: Array | None, random_state: Seed) -> Any:
    from sklearn.model_selection import GroupKFold, KFold, check_cv  # noqa: PLC0415  slow to import

    if isinstance(folds, int) and groups is None:
        return KFold(folds, shuffle=True, random_state=seed_of(random_state) % 2**32)
    if isinstance(folds, int):
        return GroupKFold(folds)
    return check_cv(folds)
