"""Ridge regression whose penalty is found by two-fold cross-validation: for all methods the same.

Everything is float64: the moments of each half, an eigendecomposition of each, and errors on one
half of the coefficients of the other, from its moments alone: no feature is made twice.
"""

from collections.abc import Iterator

import numpy as np

import bochner as bo
from bochner.solvers.ridge.eigen import decompose
from bochner.sums.moments import Accumulator, Moments

__all__ = ["PENALTIES", "fit_and_predict", "two_fold_error"]

Array = np.ndarray

#: Penalties that are tried, as shares of the largest eigenvalue of a half.
PENALTIES = 10.0 ** np.arange(-13, 0.1, 0.25)

#: Numbers of features of a block of rows.
BLOCK = 1 << 22


def fit_and_predict(phi: bo.FeatureMap, X: Array, y: Array, X_test: Array) -> Array:
    """Return the predictions for the test rows of the fit with the best penalty."""
    halves = _halves(phi, X, y)
    _, alpha = _best(*halves)
    both = halves[0] + halves[1]
    beta = decompose(both).coefficients(alpha)[:, 0]
    intercept = both.target_mean[0] - both.feature_mean @ beta
    parts = [phi(X_test[rows]) @ beta for rows in _slices(len(X_test), phi.n_features)]
    return np.concatenate(parts) + intercept


def two_fold_error(phi: bo.FeatureMap, X: Array, y: Array) -> float:
    """Return the mean squared error of the best penalty, each half predicted from the other."""
    error, _ = _best(*_halves(phi, X, y))
    return error


def _halves(phi: bo.FeatureMap, X: Array, y: Array) -> tuple[Moments, Moments]:
    middle = len(X) // 2
    return _moments(phi, X[:middle], y[:middle]), _moments(phi, X[middle:], y[middle:])


def _moments(phi: bo.FeatureMap, X: Array, y: Array) -> Moments:
    total = Accumulator("float64")
    for part in _slices(len(X), phi.n_features):
        total.add(phi(X[part]), y[part])
    return total.moments()


def _slices(n: int, width: int) -> Iterator[slice]:
    step = max(1, BLOCK // width)
    return (slice(start, start + step) for start in range(0, n, step))


def _best(a: Moments, b: Moments) -> tuple[float, float]:
    """Return the least error and its penalty."""
    alphas = PENALTIES * max(float(np.linalg.norm(a.gram, 2)), 1e-200)  # features may all be zero
    errors = _squares(a, b, alphas) + _squares(b, a, alphas)
    best = int(np.argmin(errors))
    return float(errors[best]) / (a.weight + b.weight), float(alphas[best])


def _squares(fitted: Moments, held_out: Moments, alphas: Array) -> Array:
    """Return the sum of squares of errors on held-out rows, for each penalty."""
    eigen = decompose(fitted)
    beta = eigen.vectors @ (eigen.projected / (eigen.values[:, None] + alphas))
    explained = 2 * (held_out.cross[:, 0] @ beta) - np.einsum(
        "kp,kp->p", beta, held_out.gram @ beta
    )
    shift = held_out.target_mean - fitted.target_mean
    bias = shift - (held_out.feature_mean - fitted.feature_mean) @ beta
    return held_out.power - explained + held_out.weight * bias**2
