"""Kriging: averages over cells, scores of predictions, trends, and variograms.

The average of f over a cell is Σ_q w_q f(x_q) by Gauss-Legendre quadrature along each column; its
variance is Σ_q Σ_r w_q w_r Cov(f(x_q), f(x_r)). On the globe the weights w include cos(latitude).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement
from operator import attrgetter
from typing import Any

import numpy as np
from scipy.linalg import cho_solve
from scipy.optimize import brentq, least_squares
from scipy.stats import norm
from sklearn.base import clone

from bochner._core.arrays import dense, to_numpy
from bochner._core.blas import cholesky, eigvalsh
from bochner._core.checks import integer, one_of, positive, share, switch
from bochner._core.globe import require_places, unit_vectors
from bochner._core.random import Seed, seed_of
from bochner._core.shapes import Array, Float, Int, Tabular
from bochner._core.text import HtmlResult, axes_for
from bochner.data.blocks import Blocks
from bochner.errors import InvalidInput, UnsupportedKernel
from bochner.kernels.kernel import Kernel
from bochner.kernels.sphere import OnSphere, as_sphere_kernel, globe_columns
from bochner.models.gaussian_process.observations import quadrature
from bochner.models.gaussian_process.regressor import GaussianProcessRegressor
from bochner.selection.modes import rescale
from bochner.selection.spec import NAMED, as_kernel
from bochner.sums.passes import draw_rows


def _require_process(caller: str, process: object) -> None:
    if not isinstance(process, GaussianProcessRegressor):
        raise InvalidInput(
            f"{caller}: process must be a GaussianProcessRegressor, whose predictions have "
            f"standard deviations; got {type(process).__name__}."
        )


def cell_averages(
    process: GaussianProcessRegressor,
    lower: Float[Array, "m d"],
    upper: Float[Array, "m d"],
    *,
    nodes: int = 4,
    return_std: bool = False,
) -> Any:
    """Return the predicted averages of f over cells, such as blocks, pixels or months.

    Parameters
    ----------
    process : GaussianProcessRegressor
        Fitted.
    lower, upper : (m, d)
        Corners of the cells, in the columns of the fit. With a kernel on the globe they are
        latitudes and longitudes in degrees, and averages are over the area.
    nodes : int, default 4
        Number of nodes of Gauss-Legendre quadrature along each column of a cell; nodes^d is at most
        4,096. Increase it if cells are several lengthscales wide.
    return_std : bool, default False
        Also return the standard deviation of the average, which is mostly smaller than the standard
        deviation of f at a place.

    Returns
    -------
    mean : (m,) or (m, t)
    std : (m,) or (m, t)
        With ``return_std``.

    Raises
    ------
    InvalidInput
        If ``lower`` is not below ``upper`` in each column, or there are too many nodes.

    Notes
    -----
    An average takes nodes^d predictions. Its standard deviation takes their covariance: O(nodes^2d
    D) with features, and one linear solve per node on a Fourier grid.
    Source (block kriging): Cressie (1993), *Statistics for spatial data*, chapter 3.

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
    count = integer(nodes, "cell_averages", "nodes", minimum=1)
    d = process.n_features_in_
    low, high = np.asarray(lower, dtype=np.float64), np.asarray(upper, dtype=np.float64)
    if low.shape != high.shape or low.ndim != 2 or low.shape[1] != d or not len(low):
        raise InvalidInput(
            f"cell_averages: lower and upper must be corners of cells, both (m, {d}); got shapes "
            f"{low.shape} and {high.shape}."
        )
    if not (np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all()):
        raise InvalidInput(
            "cell_averages: lower and upper must be finite, and lower below upper in each column; "
            "they are not. For single places use predict."
        )
    if count**d > 4096:  # the time of standard deviations grows with its square
        raise InvalidInput(
            "cell_averages: nodes^d must be at most 4,096 places per cell; got "
            f"{count}^{d} = {count**d:,}. Use fewer nodes, and smaller cells if they are wide."
        )
    unit, shares = quadrature(count, d)
    places = low[:, None] + unit * (high - low)[:, None]
    weights = np.broadcast_to(shares, places.shape[:2])
    for latitude in {columns[0] for columns in globe_columns(process.kernel_)}:
        weights = weights * np.cos(np.deg2rad(places[:, :, latitude]))
    weights = weights / weights.sum(axis=1, keepdims=True)
    values = np.asarray(process.predict(places.reshape(-1, d)))
    means = np.einsum("mq,mq...->m...", weights, values.reshape(*weights.shape, *values.shape[1:]))
    if not switch(return_std, "cell_averages", "return_std"):
        return means
    variances = []
    for cell, w in zip(places, weights, strict=True):
        cov = np.asarray(process.predict(cell, return_cov=True)[1])
        variances.append(np.einsum("q,r,qr...->...", w, w, cov))
    return means, np.sqrt(np.maximum(np.stack(variances), 0.0))


# --- Scores of normal predictive distributions: errors, density and coverage ---------------------
#
# The continuous ranked probability score of N(μ, σ²) at y is, with z = (y − μ)/σ,
#
#     CRPS = ∫ (F(t) − 1{t ≥ y})² dt = σ (z (2Φ(z) − 1) + 2φ(z) − 1/√π)
#
# (Gneiting and Raftery 2007, equation 21). As σ → 0 it approaches the absolute error.


@dataclass(frozen=True)
class NormalScores:
    """Mean scores of normal predictions N(μ, σ²) of held-out y; prints as a table.

    Attributes
    ----------
    rows : int
        Number of values of y: rows times targets.
    bias : float
        Mean of μ − y, in units of y.
    rmse : float
        Root mean squared error of μ, in units of y.
    crps : float
        Mean continuous ranked probability score, in units of y: smaller is better.
    log_density : float
        Mean log N(y; μ, σ²): larger is better.
    z_variance : float
        Mean of ((y − μ)/σ)²: 1 if the standard deviations are correct.
    coverage : tuple of (float, float)
        Nominal coverage of each central interval, and the share of values inside it.

    See Also
    --------
    normal_scores : Compute these scores.
    """

    rows: int
    bias: float
    rmse: float
    crps: float
    log_density: float
    z_variance: float
    coverage: tuple[tuple[float, float], ...]

    def __str__(self) -> str:
        """Return the scores, one per line."""
        lines = [
            ("rows", f"{self.rows:,}"),
            ("bias", f"{self.bias:.4g}"),
            ("RMSE", f"{self.rmse:.4g}"),
            ("CRPS", f"{self.crps:.4g}"),
            ("log density", f"{self.log_density:.4g}"),
            ("mean of z²", f"{self.z_variance:.4g}"),
            *((f"{nominal:.0%} covers", f"{share:.1%}") for nominal, share in self.coverage),
        ]
        return "\n".join(f"{name:<12} {value}" for name, value in lines)


def normal_scores(
    y: Array, mean: Array, deviation: Array, coverages: Sequence[float] = (0.5, 0.9, 0.95)
) -> NormalScores:
    """Return mean scores of normal predictive distributions of new values.

    Parameters
    ----------
    y, mean, deviation : (m,) or (m, t)
        Observed values, and the means and standard deviations of their predictive distributions:
        ``process.predict(X, return_std=True, include_noise=True)``. Several targets are pooled.
    coverages : sequence of float, default (0.5, 0.9, 0.95)
        Nominal coverage of central intervals, above 0 and below 1.

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
            "normal_scores: y, mean and deviation must have one shape and at least one row; got "
            f"{y.shape}, {mean.shape} and {deviation.shape}."
        )
    for name, values in (("y", y), ("mean", mean), ("deviation", deviation)):
        if not np.isfinite(values).all():
            raise InvalidInput(f"normal_scores: {name} must be finite; got NaN or infinity.")
    if not (deviation > 0).all():
        raise InvalidInput(
            f"normal_scores: deviation must be above 0; got {deviation.min():g}. Pass the standard "
            "deviation of a new y: predict(X, return_std=True, include_noise=True)."
        )
    nominal = [share(coverage, "normal_scores", "coverages") for coverage in coverages]
    z = (y - mean) / deviation
    crps = deviation * (z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z) - 1 / math.sqrt(math.pi))
    shares = [float(np.mean(np.abs(z) <= norm.ppf(0.5 + c / 2))) for c in nominal]
    return NormalScores(
        y.size,
        float(np.mean(mean - y)),
        float(np.sqrt(np.mean((y - mean) ** 2))),
        float(np.mean(crps)),
        float(np.mean(norm.logpdf(z) - np.log(deviation))),
        float(np.mean(z**2)),
        tuple(zip(nominal, shares, strict=True)),
    )


def predictive_scorer(process: GaussianProcessRegressor, X: Tabular, y: Array) -> dict[str, float]:
    """Return scores of predictions of held-out rows; a scorer for ``cross_validate``.

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
        If ``process`` is not a GaussianProcessRegressor.

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
    coverage = {f"coverage_{nominal:g}": share for nominal, share in scores.coverage}
    return {name: getattr(scores, name) for name in names} | coverage


# --- Universal kriging: a process with a trend of unknown coefficients ----------------------------
#
# y = b(x)·β + f(x) + ε, with a flat prior on β. Let P be the inverse covariance of y without the
# trend (on contrasts if the mean is unknown). Generalised least squares gives
#
#     S = BᵀPB,    β̂ = S⁻¹ BᵀPy,    mean(x) = f_y(x) + e(x)·β̂,    var(x) = var_0(x) + e(x)ᵀS⁻¹e(x).
#
# Here f_y and f_B are the predictions of the process from y and from the columns B as targets, and
# e(x) = b(x) − f_B(x). Since P B = (B − f_B(X))/σ², one fit with the targets y and B is sufficient
# (Cressie 1993, section 3.4).

CALLER = "universal_kriging"

Trend = Callable[[Float[Array, "n d"]], Float[Array, "n p"]]


@dataclass(frozen=True, eq=False)
class TrendColumns:
    """Standardised columns b(x) of a trend."""

    trend: str | Trend
    centre: Float[Array, " d"]  # Subtracted before powers are computed
    # Means and standard deviations of the columns over the rows
    mean: float | Float[Array, " p"] = 0.0
    deviation: float | Float[Array, " p"] = 1.0

    @staticmethod
    def of(trend: str | Trend, X: Float[Array, "n d"]) -> "TrendColumns":
        """Return the columns, standardised on the rows X; refuse linearly dependent columns."""
        columns = TrendColumns(trend, X.mean(axis=0))
        B = columns(X)
        deviation = np.where(np.ptp(B, axis=0) > 0, B.std(axis=0), 1.0)
        columns = replace(columns, mean=B.mean(axis=0), deviation=deviation)
        B = columns(X)
        if eigvalsh(B.T @ B / len(B))[0] < 1e-8:
            raise InvalidInput(
                f"{CALLER}: columns of the trend must vary and be linearly independent; these "
                f"{B.shape[1]} columns do not. The constant is included already: leave it out."
            )
        return columns

    def __call__(self, X: Float[Array, "n d"]) -> Float[Array, "n p"]:
        """Return b(x) of rows."""
        if callable(self.trend):
            B = np.asarray(self.trend(X), dtype=np.float64)
            if B.ndim != 2 or len(B) != len(X) or not B.shape[1] or not np.isfinite(B).all():
                raise InvalidInput(
                    f"{CALLER}: trend must return a finite array of {len(X):,} rows and at least "
                    f"one column; got shape {B.shape}."
                )
        else:
            x = (X - self.centre).T
            pairs = combinations_with_replacement(x, 2) if self.trend == "quadratic" else ()
            B = np.stack([*x, *(a * b for a, b in pairs)], axis=1)
        return (B - self.mean) / self.deviation


@dataclass(frozen=True, eq=False)
class TrendedProcess:
    """A fitted process with a trend.

    Attributes
    ----------
    process : GaussianProcessRegressor
        Fit with y and the columns of the trend as targets; its kernel, noise and amplitude
        describe the process without the trend.
    columns : TrendColumns
    coef : (p,)
        β̂, the coefficients of the standardised columns.
    coef_covariance : (p, p)
        S⁻¹, the covariance of β̂.

    See Also
    --------
    universal_kriging : Fit a process with a trend.
    """

    process: GaussianProcessRegressor
    columns: TrendColumns
    coef: Float[Array, " p"]
    coef_covariance: Float[Array, "p p"]

    @property
    def noise_variance(self) -> float:
        """Variance σ² of the noise."""
        return float(self.process.noise_variance_[0])

    def predict(self, X: Any, return_std: bool = False, include_noise: bool = False) -> Any:
        """Return the predicted mean at rows, of trend and process, and optionally its deviation.

        Parameters
        ----------
        X : (m, d)
        return_std : bool, default False
            Also return the standard deviation of trend and process, without noise.
        include_noise : bool, default False
            With ``return_std``: return the standard deviation of a new y instead.

        Returns
        -------
        mean : (m,)
        std : (m,)
            With ``return_std``.
        """
        X = np.asarray(X, dtype=np.float64)
        return_std = switch(return_std, "predict", "return_std")
        noise = self.noise_variance * switch(include_noise, "predict", "include_noise")
        parts = self.process.predict(X, return_std=return_std)
        prediction = parts[0] if return_std else parts
        e = self.columns(X) - prediction[:, 1:]
        mean = prediction[:, 0] + e @ self.coef
        if not return_std:
            return mean
        trend = np.einsum("mp,pq,mq->m", e, self.coef_covariance, e)
        return mean, np.sqrt(parts[1][:, 0] ** 2 + trend + noise)


def universal_kriging(
    process: GaussianProcessRegressor, X: Any, y: Array, trend: str | Trend = "linear"
) -> TrendedProcess:
    """Fit a process and a trend with unknown coefficients to rows.

    Parameters
    ----------
    process : GaussianProcessRegressor
        A process with the parameters of the fit; a clone is fitted. For millions of rows use
        ``method=FourierGrid()``.
    X : (n, d)
        Coordinates.
    y : (n,)
    trend : {"linear", "quadratic"} or callable, default "linear"
        "linear": the constant and the columns of X. "quadratic": also their squares and products. A
        function of X: the constant and its values (n, p), such as the distance from the coast.

    Returns
    -------
    TrendedProcess

    Raises
    ------
    InvalidInput
        If the process has no intercept, y is not one target, or columns of the trend are constant
        or linearly dependent.

    Notes
    -----
    Kernel, noise and amplitude, if not given, are chosen on least-squares residuals of y. Trend
    and predictions are then generalised least squares, by one fit with p + 1 targets.
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
            f"{CALLER}: process must be a GaussianProcessRegressor with fit_intercept=True; got "
            f"{process!r}."
        )
    X, y = np.asarray(X, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if X.ndim != 2 or y.shape != (len(X),) or not (np.isfinite(X).all() and np.isfinite(y).all()):
        raise InvalidInput(
            f"{CALLER}: X and y must be finite numbers of shapes (n, d) and (n,); got shapes "
            f"{X.shape} and {y.shape}."
        )
    if not callable(trend):
        one_of(trend, CALLER, "trend", ("linear", "quadratic"))
    columns = TrendColumns.of(trend, X)
    B = columns(X)
    residuals = y - y.mean() - B @ np.linalg.lstsq(B, y - y.mean(), rcond=None)[0]
    trial = clone(process).fit(X, residuals)
    options = {"noise": trial.noise_variance_, "amplitude": trial.amplitude_, "lengthscale": "loo"}
    joint = clone(process).set_params(kernel=trial.kernel_, metric=None, **options)
    joint.fit(X, np.column_stack([y, B]))
    prediction = joint.predict(X)
    noise = float(joint.noise_variance_[0])
    PB = (B - prediction[:, 1:]) / noise
    S = B.T @ PB
    factor = cholesky((S + S.T) / 2, lower=True), True
    coef = cho_solve(factor, B.T @ (y - prediction[:, 0]) / noise)
    return TrendedProcess(joint, columns, coef, cho_solve(factor, np.eye(len(S))))


# --- Empirical variograms, and kernels fitted to them ---------------------------------------------
#
# For a process with noise σ², amplitude a² and kernel k, k(0) = 1, γ(h) = ½ E (y(x) − y(x + h))² is
#
#     γ(h) = σ² + a² (1 − k(h)):    nugget σ², partial sill a², sill σ² + a².
#
# On the globe h is the great-circle distance, in degrees.


@dataclass(frozen=True, eq=False)
class VariogramModel(HtmlResult):
    """A kernel, its amplitude and noise, in terms of geostatistics.

    Attributes
    ----------
    kernel : Kernel
        Kernel with k(0) = 1.
    amplitude : float
        a², the partial sill.
    noise : float
        σ², the nugget.
    direction : (d,)
        Unit vector along which distances are measured; for a kernel on the globe, the equator.

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> kernel = bo.kernels.Gaussian(2.0)
    >>> model = bo.VariogramModel(kernel, amplitude=3.0, noise=0.5, direction=np.array([1.0]))
    >>> model.nugget, model.sill, round(model.range, 2)
    (0.5, 3.5, 4.9)
    >>> process = bo.GaussianProcessRegressor(**model.parameters)
    """

    kernel: Kernel
    amplitude: float
    noise: float
    direction: Float[Array, " d"]

    def __call__(self, lags: Array) -> Float[Array, " m"]:
        """Return γ at distances above zero."""
        lags = np.asarray(lags, float)
        return self.noise + self.amplitude * (1 - _correlation(self.kernel, self.direction, lags))

    nugget = property(attrgetter("noise"), doc="σ²: γ just above zero.")

    @property
    def sill(self) -> float:
        """σ² + a²: γ at large distances."""
        return self.noise + self.amplitude

    @property
    def range(self) -> float:
        """Practical range: the distance at which k is 5 % of k(0); inf if there is none."""
        excess = lambda h: float(_correlation(self.kernel, self.direction, np.array([h]))[0]) - 0.05
        if isinstance(self.kernel, OnSphere):  # no place is further away than the antipode
            return float(brentq(excess, 0.0, 180.0)) if excess(180.0) < 0 else math.inf
        bound = next((h for h in 2.0 ** np.arange(-99, 100) if excess(h) <= 0), math.inf)
        return float(brentq(excess, bound / 2, bound)) if bound < math.inf else bound

    @property
    def parameters(self) -> dict[str, Any]:
        """Parameters of a process: ``GaussianProcessRegressor(**model.parameters)``."""
        return {"kernel": self.kernel, "amplitude": self.amplitude, "noise": self.noise}

    def __str__(self) -> str:
        """Return nugget, sill and range in a line."""
        return (
            f"{self.kernel!r}: nugget {self.nugget:.4g}, sill {self.sill:.4g}, "
            f"range {self.range:.4g}"
        )


@dataclass(frozen=True, eq=False)
class Variogram:
    """Empirical variogram: γ, half the mean squared difference of pairs of rows, by distance.

    Attributes
    ----------
    lags : (m,)
        Mean distance of the pairs in each class of distances.
    gamma : (m,)
        γ of each class, in units of y².
    pairs : (m,) int
        Number of pairs in each class.
    variance : float
        Variance of y, which γ approaches at large distances if there is no trend.
    estimator : {"matheron", "cressie-hawkins"}
    direction : (d,) or None
        Unit vector of the pairs; None for all directions.
    n_columns : int
        Number of coordinates.
    metric : {"euclidean", "great-circle"}

    See Also
    --------
    variogram : Estimate a variogram from rows.
    VariogramModel : A kernel, amplitude and noise fitted to a variogram.
    """

    lags: Float[Array, " m"]
    gamma: Float[Array, " m"]
    pairs: Int[Array, " m"]
    variance: float
    estimator: str
    direction: Float[Array, " d"] | None
    n_columns: int
    metric: str = "euclidean"

    def fit(self, kernel: Kernel | str = "matern32") -> VariogramModel:
        """Return the model with the lengthscale, amplitude and noise of least weighted squares.

        Parameters
        ----------
        kernel : Kernel or str, default "matern32"
            A kernel with a lengthscale, which is multiplied by the best factor; lengthscales per
            column keep their ratios. For great-circle distances
            :class:`~bochner.kernels.OnSphere`, or a name.

        Notes
        -----
        Minimises Σ N (γ̂/γ − 1)² over the classes of N pairs (Cressie 1985), from six starts. Pairs
        share rows, so there are no standard errors. Maximum likelihood uses the rows more
        efficiently: ``GaussianProcessRegressor(lengthscale="evidence")``.

        Raises
        ------
        UnsupportedKernel
            If the kernel has no lengthscale, or is not OnSphere for great-circle distances.
        """
        unit = np.eye(self.n_columns)[0] if self.direction is None else self.direction
        start: Any
        if self.metric == "great-circle":
            unit, start = np.array([0.0, 1.0]), as_sphere_kernel(kernel)
            if not isinstance(start, OnSphere):
                raise UnsupportedKernel(
                    "Variogram.fit requires OnSphere(...) for great-circle distances, or a "
                    f'name such as "matern32"; got {kernel!r}.'
                )
        else:
            start = as_kernel(kernel)
            start = NAMED[start](1.0) if isinstance(start, str) else start
        if "lengthscale" not in start.get_params(deep=False):
            raise UnsupportedKernel(
                f"Variogram.fit requires a kernel with a lengthscale, such as Matern(1.5); got "
                f"{kernel!r}."
            )
        weight = np.sqrt(self.pairs / self.pairs.sum())
        mean = float(np.exp(np.mean(np.log(np.asarray(start.lengthscale)))))
        unit_kernel = rescale(start, np.array([1.0 / mean]))
        top = max(self.variance, float(self.gamma.max()))

        def curve(p: Float[Array, " 3"]) -> Array:
            size, a2, s2 = np.exp(p)
            return s2 + a2 * (1 - _correlation(unit_kernel, unit, self.lags / size))

        starts = [
            np.log([share * self.lags[-1], (1 - nugget) * top, nugget * top])
            for share in (0.05, 0.15, 0.5)  # Lengthscale / longest lag
            for nugget in (0.02, 0.5)  # Nugget / variance
        ]
        lowest = [self.lags[0] * 1e-3, top * 1e-6, top * 1e-9]
        bounds = np.log([lowest, [self.lags[-1] * 100, top * 1e3, top * 10]])
        residuals = lambda p: weight * (self.gamma / curve(p) - 1)
        fits = [least_squares(residuals, np.clip(p, *bounds), bounds=bounds) for p in starts]
        size, a2, s2 = np.exp(min(fits, key=lambda fit: fit.cost).x)
        best = rescale(unit_kernel, np.array([size]))
        return VariogramModel(best, float(a2), float(s2), unit)

    def plot(self, ax: Any = None, model: VariogramModel | None = None) -> Any:
        """Draw γ against distance, and the curve of a model; return the axes.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Default: a new figure.
        model : VariogramModel, optional
            A model returned by :meth:`fit`.
        """
        ax = axes_for("Variogram", ax)
        ax.plot(self.lags, self.gamma, "o", label=self.estimator)
        ax.axhline(self.variance, color="gray", linestyle=":", label="variance of y")
        if model is not None:
            h = np.linspace(0, self.lags[-1], 200)[1:]
            ax.plot(h, model(h), label=f"nugget {model.nugget:.3g}, sill {model.sill:.3g}")
        label = "distance, degrees" if self.metric == "great-circle" else "distance"
        ax.set(xlabel=label, ylabel="γ", xlim=(0, None), ylim=(0, None))
        ax.legend()
        return ax


def _correlation(kernel: Kernel, unit: Float[Array, " d"], lags: Float[Array, " m"]) -> Array:
    """Return k/k(0) at distances along a direction."""
    origin = np.zeros((1, len(unit)))
    return kernel(lags[:, None] * unit, origin)[:, 0] / float(kernel.diag(origin)[0])


def variogram(
    X: Any,
    y: Any = None,
    *,
    n_lags: int = 15,
    max_lag: float | None = None,
    estimator: str = "matheron",
    direction: Any = None,
    tolerance: float = 22.5,
    metric: str = "euclidean",
    n_sample: int = 4096,
    random_state: Seed = 0,
) -> Variogram:
    """Return the empirical variogram of rows: half the mean squared difference by distance.

    Parameters
    ----------
    X : (n, d) or Blocks
        Coordinates, in units in which distances are meaningful.
    y : (n,)
        One target; None with Blocks, which contain it.
    n_lags : int, default 15
        Number of classes of distances, of equal width.
    max_lag : float, optional
        Largest distance. Default: half the diagonal of the bounding box of the rows, because few
        pairs are further apart, all of them near the edges.
    estimator : {"matheron", "cressie-hawkins"}, default "matheron"
        Half the mean of (y − y′)² (Matheron 1963), or the robust estimator from the fourth power of
        the mean of |y − y′|^½ (Cressie and Hawkins 1980, equation 3.10).
    direction : (d,), optional
        Use only pairs along this vector: a directional variogram.
    tolerance : float, default 22.5
        Largest angle between a pair and ``direction``, in degrees.
    metric : {"euclidean", "great-circle"}, default "euclidean"
        "great-circle": rows are (latitude, longitude) in degrees, and distances are in degrees.
        The default ``max_lag`` is then the largest distance of a row from the centre, at most 90.
    n_sample : int, default 4096
        Largest number of rows whose pairs are used, chosen at random; at most 8192.
    random_state : int, Generator, RandomState or None, default 0

    Returns
    -------
    Variogram
        With a value for each class that has pairs.

    Raises
    ------
    InvalidInput
        If y is not one target that varies, or no pair is within ``max_lag``. With great-circle
        distances also if rows are not (latitude, longitude), or a direction is given.

    Notes
    -----
    Time O(m² d) for m sampled rows, one to two seconds for 4096; memory O(m).

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> X = np.random.default_rng(0).uniform(0, 1, (500, 2))
    >>> variogram = bo.variogram(X, np.sin(6 * X[:, 0]))
    >>> bool(variogram.gamma[0] < variogram.gamma[-1])
    True
    >>> model = variogram.fit("gaussian")
    >>> bool(model.sill > model.nugget)
    True
    """
    caller = "variogram"
    n_lags = integer(n_lags, caller, "n_lags", 1)
    one_of(estimator, caller, "estimator", ("matheron", "cressie-hawkins"))
    globe = one_of(metric, caller, "metric", ("euclidean", "great-circle")) == "great-circle"
    n_sample = integer(n_sample, caller, "n_sample", 2)
    tolerance = positive(tolerance, caller, "tolerance")
    blocks = X if isinstance(X, Blocks) else Blocks.from_arrays(X, y)
    rows = draw_rows(blocks, seed_of(random_state)).lowest(n_sample)
    places = to_numpy(dense(rows.X)).astype(np.float64)
    if rows.y.shape[1] != 1 or not np.ptp(rows.y) > 0:
        raise InvalidInput(
            f"variogram: y must be one target that varies; got {rows.y.shape[1]} targets"
            f"{' with a single value' if rows.y.shape[1] == 1 else ''}. Pass one column of numbers."
        )
    if globe and direction is not None:
        raise InvalidInput(
            'variogram: direction requires metric="euclidean", because the direction of a great '
            f"circle changes; got {direction!r}. Leave it out, or project the places first."
        )
    unit = None
    if direction is not None:
        unit = np.asarray(direction, dtype=np.float64)
        if unit.shape != places.shape[1:] or not 0 < np.linalg.norm(unit) < np.inf:
            raise InvalidInput(
                f"variogram: direction must be a vector of {places.shape[1]} numbers, not all "
                f"zero; got {direction!r}."
            )
        unit = unit / np.linalg.norm(unit)
    if globe:
        require_places("variogram", places)
        places = unit_vectors(places)
    longest = _max_lag(places, globe) if max_lag is None else positive(max_lag, caller, "max_lag")
    if not longest > 0:
        raise InvalidInput(
            f"variogram: rows must be at two or more places; got {len(places):,} rows at the same "
            "place. Pass rows of several places."
        )
    # Number of pairs, and sums of distances, of squares and roots of |y − y′|
    y, sums = rows.y[:, 0], np.zeros((4, n_lags))
    cosine = math.cos(math.radians(min(tolerance, 90.0)))
    for start in range(0, len(places), size := 256):  # rows per step
        part = slice(start, start + size)
        steps = places[part, None] - places[None, start:]
        gaps = np.linalg.norm(steps, axis=2)
        gaps = np.degrees(2 * np.arcsin(np.minimum(gaps / 2, 1.0))) if globe else gaps
        upper = np.arange(start, len(places)) > np.arange(start, start + len(gaps))[:, None]
        mask = upper & (gaps <= longest)
        if unit is not None:
            mask &= (np.abs(steps @ unit) >= cosine * gaps) & (gaps > 0)
        h, change = gaps[mask], np.abs(y[part, None] - y[None, start:])[mask]
        lag = np.minimum((h * (n_lags / longest)).astype(np.int64), n_lags - 1)
        for i, values in enumerate((None, h, change**2, np.sqrt(change))):
            sums[i] += np.bincount(lag, values, n_lags)
    as_sample = sums[0] > 0
    if not as_sample.any():
        raise InvalidInput(
            "variogram: at least one pair of rows must be within max_lag, and along the direction; "
            f"no pair of {len(places):,} rows is within {longest:.4g}. Pass a larger max_lag or "
            "tolerance."
        )
    pairs, distance, squares, roots = (values[as_sample] for values in sums)
    gamma = squares / (2 * pairs)
    if estimator == "cressie-hawkins":
        bias = 0.457 + 0.494 / pairs + 0.045 / pairs**2
        gamma = (roots / pairs) ** 4 / bias / 2
    variance = float(np.var(rows.y))
    d, count = (2 if globe else places.shape[1]), pairs.astype(np.int64)
    return Variogram(distance / pairs, gamma, count, variance, estimator, unit, d, metric)


def _max_lag(places: Float[Array, "m d"], globe: bool) -> float:
    """Return the default ``max_lag`` of :func:`variogram`."""
    if not globe:
        return float(np.linalg.norm(np.ptp(places, axis=0))) / 2
    centre = places.mean(axis=0)
    cosine = float((places @ centre).min()) / max(float(np.linalg.norm(centre)), 1e-300)
    return min(math.degrees(math.acos(min(max(cosine, -1.0), 1.0))), 90.0)
