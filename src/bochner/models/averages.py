"""Averages of a process over cells: block kriging.

The mean of f over a cell is Σ_q w_q f(x_q) by Gauss-Legendre quadrature along each column, and its
variance Σ_q Σ_r w_q w_r Cov(f(x_q), f(x_r)). Cells of the globe are weighed by cos(latitude).
"""

from typing import Any

import numpy as np

from bochner._core.checks import integer, require_switch
from bochner._core.shapes import Array, Float
from bochner.errors import InvalidInput
from bochner.kernels.sphere import is_on_sphere
from bochner.models.gaussian_process.observations import quadrature
from bochner.models.gaussian_process.regressor import GaussianProcessRegressor

#: Rows whose predictions are made together.
TOGETHER = 1 << 19

#: Nodes of a cell, at most: deviations take the square of their number.
MOST_NODES = 1 << 12


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
    if not isinstance(process, GaussianProcessRegressor):
        raise InvalidInput(
            "cell_averages: process must be a fitted GaussianProcessRegressor; got "
            f"{type(process).__name__}."
        )
    count = integer(nodes, "cell_averages", "nodes", least=1)
    d = process.n_features_in_
    corners = _corners(lower, upper, d)
    if count**d > MOST_NODES:
        raise InvalidInput(
            f"cell_averages: nodes must make at most {MOST_NODES:,} places a cell; got "
            f"{count}^{d} = {count**d:,}. Ask for fewer, or for smaller cells."
        )
    places, weights = _nodes(corners, count, is_on_sphere(process.kernel_))
    means = _means(process, places, weights)
    if not require_switch("cell_averages", return_std, "return_std"):
        return means
    found = [_deviation(process, *cell) for cell in zip(places, weights, strict=True)]
    return means, np.stack(found)


def _corners(lower: Any, upper: Any, d: int) -> Float[Array, "2 m d"]:
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
    return np.stack([low, high])


def _nodes(
    corners: Float[Array, "2 m d"], count: int, globe: bool
) -> tuple[Float[Array, "m q d"], Float[Array, "m q"]]:
    """Return places of each cell, and their weights, which add up to one."""
    unit, shares = quadrature(count, corners.shape[2])
    lower, upper = corners
    places = lower[:, None] + unit * (upper - lower)[:, None]
    weights = np.broadcast_to(shares, places.shape[:2])
    if globe:
        weights = weights * np.cos(np.deg2rad(places[:, :, 0]))
    return places, weights / weights.sum(axis=1, keepdims=True)


def _means(
    process: GaussianProcessRegressor, places: Float[Array, "m q d"], weights: Float[Array, "m q"]
) -> Array:
    m, q, d = places.shape
    step = max(1, TOGETHER // q)
    parts = []
    for i in range(0, m, step):
        some = places[i : i + step]
        values = np.asarray(process.predict(some.reshape(-1, d)))
        shaped = values.reshape(len(some), q, *values.shape[1:])
        parts.append(np.einsum("mq,mq...->m...", weights[i : i + step], shaped))
    return np.concatenate(parts)


def _deviation(
    process: GaussianProcessRegressor, places: Float[Array, "q d"], weights: Float[Array, " q"]
) -> Array:
    _, cov = process.predict(places, return_cov=True)
    variance = np.einsum("q,r,qr...->...", weights, weights, np.asarray(cov))
    return np.sqrt(np.maximum(variance, 0.0))
