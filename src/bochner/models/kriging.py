"""Kriging: averages of a process over cells, scores of its predictions, trends.

The mean of f over a cell is Σ_q w_q f(x_q) by Gauss-Legendre quadrature along each column, and its
variance Σ_q Σ_r w_q w_r Cov(f(x_q), f(x_r)). Cells of the globe are weighed by cos(latitude).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
from scipy.linalg import cho_solve
from scipy.stats import norm
from sklearn.base import clone

from bochner._core.blas import cholesky, eigvalsh
from bochner._core.checks import integer, one_of, require_switch, share
from bochner._core.shapes import Array, Float, Tabular
from bochner.errors import InvalidInput
from bochner.kernels.sphere import is_on_sphere
from bochner.models.gaussian_process.observed import quadrature
from bochner.models.gaussian_process.regressor import GaussianProcessRegressor


def _require_process(who: str, process: object) -> None:
    if not isinstance(process, GaussianProcessRegressor):
        raise InvalidInput(
            f"{who}: process must be a GaussianProcessRegressor, whose predictions have "
            f"deviations; got {type(process).__name__}."
        )


def cell_averages(
    process: GaussianProcessRegressor,
    lower: Float[Array, "m d"],
    upper: Float[Array, "m d"],
    *,
    nodes: int = 4,
    return_std: bool = False,
) -> Any:
    """Return the mean of f over cells: averages over blocks, pixels or months.

    Parameters
    ----------
    process : GaussianProcessRegressor
        Fitted.
    lower, upper : (m, d)
        Corners of the cells, in the columns of the fit. Of a kernel of the globe, in degrees of
        latitude and longitude; the average is over the area.
    nodes : int, default 4
        Places along each column of a cell, whose values are averaged: nodes^d in all, 4,096 at
        most. The error is the error of Gauss-Legendre quadrature: increase it if cells are
        several lengthscales wide.
    return_std : bool, default False
        Also return the standard deviation of the average, which is smaller than the standard
        deviation of f at a place.

    Returns
    -------
    mean : (m,) or (m, t)
    std : (m,) or (m, t)
        With ``return_std``.

    Raises
    ------
    InvalidInput
        If the corners do not describe cells with a positive size along each column.

    Notes
    -----
    Means take nodes^d predictions a cell. Deviations take the covariance of these, of one cell
    after the other: with features O(nodes^2d D), on a grid of waves a solution for each node.
    Block kriging: Cressie (1993), *Statistics for spatial data*, chapter 3.

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> X = np.random.default_rng(0).uniform(0, 1, (200, 1))
    >>> process = bo.GaussianProcessRegressor("gaussian", random_state=0).fit(X, X[:, 0])
    >>> mean = bo.cell_averages(process, [[0.2]], [[0.6]])
    >>> bool(abs(mean[0] - 0.4) < 0.01)
    True
    """
    _require_process("cell_averages", process)
    count = integer(nodes, "cell_averages", "nodes", least=1)
    d = process.n_features_in_
    low, high = np.asarray(lower, dtype=np.float64), np.asarray(upper, dtype=np.float64)
    if low.shape != high.shape or low.ndim != 2 or low.shape[1] != d or not len(low):
        raise InvalidInput(
            f"cell_averages: lower and upper must be corners of cells, both (m, {d}); got shapes "
            f"{low.shape} and {high.shape}."
        )
    if not (np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all()):
        raise InvalidInput(
            "cell_averages: each cell must have a size along each column, lower below upper and "
            "both finite; it has not. Predict places without a size by predict."
        )
    if count**d > 4096:  # deviations take the square of their number
        raise InvalidInput(
            "cell_averages: nodes must make at most 4,096 places a cell; got "
            f"{count}^{d} = {count**d:,}. Ask for fewer, or for smaller cells."
        )
    unit, shares = quadrature(count, d)
    places = low[:, None] + unit * (high - low)[:, None]
    weights = np.broadcast_to(shares, places.shape[:2])
    if is_on_sphere(process.kernel_):
        weights = weights * np.cos(np.deg2rad(places[:, :, 0]))
    weights = weights / weights.sum(axis=1, keepdims=True)
    values = np.asarray(process.predict(places.reshape(-1, d)))
    means = np.einsum("mq,mq...->m...", weights, values.reshape(*weights.shape, *values.shape[1:]))
    if not require_switch("cell_averages", return_std, "return_std"):
        return means
    variances = []
    for cell, w in zip(places, weights, strict=True):
        cov = np.asarray(process.predict(cell, return_cov=True)[1])
        variances.append(np.einsum("q,r,qr...->...", w, w, cov))
    return means, np.sqrt(np.maximum(np.stack(variances), 0.0))


# --- Scores of normal laws of new rows: how near, how sure, and how often they cover --------------
#
# The continuous ranked probability score of N(μ, σ²) at y is, with z = (y − μ)/σ,
#
#     CRPS = ∫ (F(t) − 1{t ≥ y})² dt = σ (z (2Φ(z) − 1) + 2φ(z) − 1/√π)
#
# (Gneiting and Raftery 2007, equation 21): the absolute error of a law of no width.


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

    See Also
    --------
    normal_scores : Computes them.
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
            *((f"{asked:.0%} covers", f"{reached:.1%}") for asked, reached in self.coverage),
        ]
        return "\n".join(f"{name:<12} {value}" for name, value in lines)


def normal_scores(
    y: Array, mean: Array, deviation: Array, coverages: Sequence[float] = (0.5, 0.9, 0.95)
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
    >>> scores = bo.normal_scores(y, 0 * y, 1 + 0 * y)
    >>> bool(abs(scores.crps - 1 / np.sqrt(np.pi)) < 0.02), round(scores.z_variance, 1)
    (True, 1.0)
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

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> from sklearn.model_selection import cross_validate
    >>> X = np.random.default_rng(0).uniform(-3, 3, (150, 1))
    >>> process = bo.GaussianProcessRegressor("gaussian", random_state=0)
    >>> scores = cross_validate(process, X, np.sin(X[:, 0]), scoring=bo.predictive_scorer, cv=3)
    >>> bool(scores["test_rmse"].max() < 0.1)
    True
    """
    _require_process("predictive_scorer", process)
    scores = normal_scores(y, *process.predict(X, return_std=True, include_noise=True))
    names = ("bias", "rmse", "crps", "log_density", "z_variance")
    covered = {f"coverage_{asked:g}": within for asked, within in scores.coverage}
    return {name: getattr(scores, name) for name in names} | covered


# --- Universal kriging: a trend with unknown coefficients beside a process ------------------------
#
# y = b(x)·β + f(x) + ε, β of flat prior. With P the precision of y without the trend (contrasts of
# it, where there is an unknown mean), generalised least squares has
#
#     S = BᵀPB,    β̂ = S⁻¹ BᵀPy,    mean(x) = f_y(x) + e(x)·β̂,    var(x) = var_0(x) + e(x)ᵀS⁻¹e(x),
#
# where f_y and f_B are the process' predictions from y and from the columns B as targets, and e(x)
# = b(x) − f_B(x): P B = (B − f_B(X))/σ², so that one fit with all of them as targets is all that is
# needed (Cressie 1993, section 3.4).

WHO = "universal_kriging"

Trend = Callable[[Float[Array, "n d"]], Float[Array, "n p"]]


@dataclass(frozen=True, eq=False)
class TrendColumns:
    """Columns b(x) of a trend, about their means and in units of their deviations."""

    trend: str | Trend
    centre: Float[Array, " d"]  # That powers of columns are taken about
    # Of the columns of the trend over the rows
    mean: float | Float[Array, " p"] = 0.0
    deviation: float | Float[Array, " p"] = 1.0

    @staticmethod
    def of(trend: str | Trend, X: Float[Array, "n d"]) -> "TrendColumns":
        """Return the columns for rows like these; refuse constant and dependent ones."""
        columns = TrendColumns(trend, X.mean(axis=0))
        B = columns(X)
        deviation = np.where(np.ptp(B, axis=0) > 0, B.std(axis=0), 1.0)
        columns = replace(columns, mean=B.mean(axis=0), deviation=deviation)
        B = columns(X)
        if eigvalsh(B.T @ B / len(B))[0] < 1e-8:
            raise InvalidInput(
                f"{WHO}: columns of the trend must vary, and none be a combination of others; got "
                f"{B.shape[1]} of which some are. The constant is there already: leave it out."
            )
        return columns

    def __call__(self, X: Float[Array, "n d"]) -> Float[Array, "n p"]:
        """Return b(x) of rows."""
        if callable(self.trend):
            B = np.asarray(self.trend(X), dtype=np.float64)
            if B.ndim != 2 or len(B) != len(X) or not B.shape[1] or not np.isfinite(B).all():
                raise InvalidInput(
                    f"{WHO}: trend must return a finite array of a row for each of {len(X):,} rows "
                    f"and one column at least; got shape {B.shape}."
                )
        else:
            x = (X - self.centre).T
            pairs = combinations_with_replacement(x, 2) if self.trend == "quadratic" else ()
            B = np.stack([*x, *(a * b for a, b in pairs)], axis=1)
        return (B - self.mean) / self.deviation


@dataclass(frozen=True, eq=False)
class TrendedProcess:
    """A process with a trend, fitted.

    Attributes
    ----------
    process : GaussianProcessRegressor
        Fitted to y and to the columns of the trend, as targets: its kernel, noise and amplitude
        describe the process without the trend.
    columns : TrendColumns
    coef : (p,)
        β̂, of the columns about their means and in units of their deviations.
    coef_covariance : (p, p)
        S⁻¹, its covariance.

    See Also
    --------
    universal_kriging : Fits one.
    """

    process: GaussianProcessRegressor
    columns: TrendColumns
    coef: Float[Array, " p"]
    coef_covariance: Float[Array, "p p"]

    @property
    def noise_variance(self) -> float:
        """σ²."""
        return float(self.process.noise_variance_[0])

    def predict(self, X: Any, return_std: bool = False, include_noise: bool = False) -> Any:
        """Return the mean of trend and process at rows, and their deviation.

        Parameters
        ----------
        X : (m, d)
        return_std : bool, default False
            Also return the standard deviation, without noise.
        include_noise : bool, default False
            With ``return_std``: whether it is the standard deviation of a new y.

        Returns
        -------
        mean : (m,)
        std : (m,)
        """
        X = np.asarray(X, dtype=np.float64)
        return_std = require_switch("predict", return_std, "return_std")
        noise = self.noise_variance * require_switch("predict", include_noise, "include_noise")
        parts = self.process.predict(X, return_std=return_std)
        prediction = parts[0] if return_std else parts
        left = self.columns(X) - prediction[:, 1:]  # e(x)
        mean = prediction[:, 0] + left @ self.coef
        if not return_std:
            return mean
        trend = np.einsum("mp,pq,mq->m", left, self.coef_covariance, left)
        return mean, np.sqrt(parts[1][:, 0] ** 2 + trend + noise)


def universal_kriging(
    process: GaussianProcessRegressor, X: Any, y: Array, trend: str | Trend = "linear"
) -> TrendedProcess:
    """Fit a process and a trend with unknown coefficients to rows.

    Parameters
    ----------
    process : GaussianProcessRegressor
        Its parameters; any method, so that rows may be millions on a
        :class:`~bochner.FourierGrid`. It is not fitted itself.
    X : (n, d)
        Numbers.
    y : (n,)
    trend : {"linear", "quadratic"} or callable, default "linear"
        The columns of X; these, their squares and products; or X ↦ (n, p), columns that depend on
        the row alone, such as heights or distances from the coast. The mean is there besides.

    Returns
    -------
    TrendedProcess

    Raises
    ------
    InvalidInput
        If the learner is no process with an intercept, y is not one target, or columns of the
        trend are constant or combinations of others.

    Notes
    -----
    Kernel, noise and amplitude that are open are chosen on least-squares residuals of y; given
    these, trend and predictions are exact generalised least squares, by one fit with p + 1 targets.
    Source: Cressie (1993), *Statistics for spatial data*, section 3.4.

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> X = np.random.default_rng(0).uniform(0, 1, (200, 1))
    >>> y = 10 * X[:, 0] + np.sin(20 * X[:, 0])
    >>> model = bo.universal_kriging(bo.GaussianProcessRegressor("gaussian", random_state=0), X, y)
    >>> mean, std = model.predict([[0.5], [0.6]], return_std=True)
    >>> bool(abs(mean[0] - 5 - np.sin(10)) < 0.1), std.shape
    (True, (2,))
    """
    if not isinstance(process, GaussianProcessRegressor) or not process.fit_intercept:
        raise InvalidInput(
            f"{WHO}: process must be a GaussianProcessRegressor with fit_intercept=True; got "
            f"{process!r}."
        )
    X, y = np.asarray(X, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if X.ndim != 2 or y.shape != (len(X),) or not (np.isfinite(X).all() and np.isfinite(y).all()):
        raise InvalidInput(
            f"{WHO}: X and y must be finite numbers of shapes (n, d) and (n,); got shapes "
            f"{X.shape} and {y.shape}."
        )
    if not callable(trend):
        one_of(trend, WHO, "trend", ("linear", "quadratic"))
    columns = TrendColumns.of(trend, X)
    B = columns(X)
    rest = y - y.mean() - B @ np.linalg.lstsq(B, y - y.mean(), rcond=None)[0]
    first = clone(process).fit(X, rest)
    known = {"noise": first.noise_variance_, "amplitude": first.amplitude_, "lengthscale": "loo"}
    both = clone(process).set_params(kernel=first.kernel_, metric=None, **known)
    both.fit(X, np.column_stack([y, B]))
    prediction = both.predict(X)
    noise = float(both.noise_variance_[0])
    left = (B - prediction[:, 1:]) / noise
    S = B.T @ left
    factor = cholesky((S + S.T) / 2, lower=True), True
    coef = cho_solve(factor, B.T @ (y - prediction[:, 0]) / noise)
    return TrendedProcess(both, columns, coef, cho_solve(factor, np.eye(len(S))))
