"""Universal kriging: a trend with unknown coefficients beside a process, at any number of rows.

y = b(x)·β + f(x) + ε, β of flat prior. With P the precision of y without the trend (contrasts of
it, where there is an unknown mean), generalised least squares has

    S = BᵀPB,    β̂ = S⁻¹ BᵀPy,    mean(x) = f_y(x) + e(x)·β̂,    var(x) = var_0(x) + e(x)ᵀS⁻¹e(x),

where f_y and f_B are the process' predictions from y and from the columns B as targets, and
e(x) = b(x) − f_B(x): P B = (B − f_B(X))/σ², so that one fit with all of them as targets is all that
is needed (Cressie 1993, section 3.4).
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
from scipy.linalg import cho_solve
from sklearn.base import clone

from bochner._core.blas import cholesky, eigvalsh
from bochner._core.checks import one_of, require_switch
from bochner._core.shapes import Array, Float
from bochner.errors import InvalidInput
from bochner.models.gaussian_process.regressor import GaussianProcessRegressor

WHO = "universal_kriging"

TRENDS = ("linear", "quadratic")

#: Columns whose part that is not of the others is smaller, as a share, are of the others.
DEPENDENT = 1e-8

Trend = Callable[[Float[Array, "n d"]], Float[Array, "n p"]]


@dataclass(frozen=True, eq=False)
class TrendColumns:
    """Columns b(x) of a trend, about their means and in units of their deviations."""

    trend: str | Trend
    # That powers of columns are taken about, and in units of
    centre: Float[Array, " d"]
    unit: Float[Array, " d"]
    # Of the columns of the trend over the rows
    mean: Float[Array, " p"]
    deviation: Float[Array, " p"]

    @staticmethod
    def of(trend: str | Trend, X: Float[Array, "n d"]) -> "TrendColumns":
        """Return the columns for rows like these; refuse constant and dependent ones."""
        centre, unit = X.mean(axis=0), np.ptp(X, axis=0) / 2
        unit = np.where(unit > 0, unit, 1.0)
        B = _columns(trend, X, centre, unit)
        mean, deviation = B.mean(axis=0), B.std(axis=0)
        if not (deviation > 0).all() or _dependent((B - mean) / deviation):
            raise InvalidInput(
                f"{WHO}: columns of the trend must vary, and none be a combination of others; got "
                f"{B.shape[1]} of which some are. The constant is there already: leave it out."
            )
        return TrendColumns(trend, centre, unit, mean, deviation)

    def __call__(self, X: Float[Array, "n d"]) -> Float[Array, "n p"]:
        """Return b(x) of rows."""
        return (_columns(self.trend, X, self.centre, self.unit) - self.mean) / self.deviation


def _dependent(B: Float[Array, "n p"]) -> bool:
    return bool(eigvalsh(B.T @ B / len(B))[0] < DEPENDENT)


def _columns(trend: str | Trend, X: Array, centre: Array, unit: Array) -> Float[Array, "n p"]:
    if callable(trend):
        B = np.asarray(trend(X), dtype=np.float64)
        if B.ndim != 2 or len(B) != len(X) or not B.shape[1] or not np.isfinite(B).all():
            raise InvalidInput(
                f"{WHO}: trend must return a finite array of a row for each of {len(X):,} rows and "
                f"one column at least; got shape {B.shape}."
            )
        return B
    x = (X - centre) / unit
    pairs = combinations_with_replacement(range(x.shape[1]), 2)
    products = [x[:, i] * x[:, j] for i, j in pairs] if trend == "quadratic" else []
    return np.stack([*x.T, *products], axis=1)


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
        if not require_switch("predict", return_std, "return_std"):
            found = self.process.predict(X)
            return found[:, 0] + self._left(X, found) @ self.coef
        found, std = self.process.predict(X, return_std=True)
        left = self._left(X, found)
        variance = std[:, 0] ** 2 + np.einsum("mp,pq,mq->m", left, self.coef_covariance, left)
        if require_switch("predict", include_noise, "include_noise"):
            variance = variance + self.noise_variance
        return found[:, 0] + left @ self.coef, np.sqrt(variance)

    def _left(self, X: Array, found: Float[Array, "m t"]) -> Float[Array, "m p"]:
        """Return e(x), the residual of the trend columns after the process."""
        return self.columns(X) - found[:, 1:]


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
    >>> found = bo.universal_kriging(bo.GaussianProcessRegressor("gaussian", random_state=0), X, y)
    >>> bool(abs(found.predict([[0.5]])[0] - 5 - np.sin(10)) < 0.1)
    True
    """
    X, y = _checked(process, X, y)
    if not callable(trend):
        one_of(trend, WHO, "trend", TRENDS)
    columns = TrendColumns.of(trend, X)
    B = columns(X)
    rest = y - y.mean() - B @ np.linalg.lstsq(B, y - y.mean(), rcond=None)[0]
    first = clone(process).fit(X, rest)
    known = {"noise": first.noise_variance_, "amplitude": first.amplitude_, "lengthscale": "loo"}
    both = clone(process).set_params(kernel=first.kernel_, metric=None, **known)
    both.fit(X, np.column_stack([y, B]))
    found = both.predict(X)
    noise = float(both.noise_variance_[0])
    left = (B - found[:, 1:]) / noise
    S = B.T @ left
    factor = cholesky((S + S.T) / 2, lower=True), True
    coef = cho_solve(factor, B.T @ (y - found[:, 0]) / noise)
    return TrendedProcess(both, columns, coef, cho_solve(factor, np.eye(len(S))))


def _checked(process: Any, X: Any, y: Any) -> tuple[Float[Array, "n d"], Float[Array, " n"]]:
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
    return X, y
