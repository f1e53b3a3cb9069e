"""Smoothers on landmarks: shares, and values of rows left out, beside refits without each."""

import numpy as np
import pytest

from bochner.kernels import Gaussian
from bochner.models.smoother import LandmarkSmoother
from bochner.solvers.ridge.dual import KernelRows


def rows(n=60, t=2, weighted=True):
    rng = np.random.default_rng(0)
    z = rng.uniform(-2, 2, (n, 2))
    y = np.sin(z @ rng.standard_normal((2, t))) + 0.3 * rng.standard_normal((n, t))
    return z, y, rng.uniform(0.3, 2.0, n) if weighted else np.ones(n)


def on_features(found, kept):
    """The regression of these rows on features with an intercept, by its normal equations."""
    z, y, w = rows()
    Z = np.column_stack([found.phi(z), np.ones(len(z))])
    penalty = np.diag(np.append(np.full(Z.shape[1] - 1, alpha_of(found)), 0.0))
    G = Z[kept].T @ (w[kept, None] * Z[kept]) + penalty
    return Z @ np.linalg.solve(G, Z[kept].T @ (w[kept, None] * y[kept]))


def alpha_of(found):
    """α from what features are turned by: V/√(λ + α), whose columns have this length."""
    z, _, w = rows()
    about = found.phi(z) - found.mean
    values = np.linalg.eigvalsh(about.T @ (w[:, None] * about))
    return float((1 / np.square(found.turn).sum(axis=0) - values).mean())


@pytest.fixture(scope="module")
def found():
    return LandmarkSmoother.of(Gaussian(0.8), *rows(), 0)


def test_values_are_those_of_the_regression(found):
    z, y, _ = rows()
    np.testing.assert_allclose(found.sum.at(z), on_features(found, np.arange(60)), atol=1e-6)
    np.testing.assert_allclose(found.shares(z) @ y, found.sum.at(z), atol=1e-5)


def test_values_of_rows_left_out_are_those_of_refits(found):
    _, y, _ = rows()
    left = found.left_out()
    for i in range(0, 60, 7):
        without = on_features(found, np.arange(60) != i)[i]
        np.testing.assert_allclose(left[i], without, atol=1e-6)
    some = np.arange(5, 25)
    shares = found.left_out_shares(some)
    np.testing.assert_array_equal(shares[np.arange(20), some], 0.0)
    np.testing.assert_allclose(shares @ y, left[some], atol=1e-5)


def test_with_a_landmark_a_row_it_is_the_regression_on_the_kernel():
    z, y, w = rows(weighted=False)
    found = LandmarkSmoother.of(Gaussian(0.8), z, y, w, 0)
    about = found.phi(z) - found.mean
    values = np.linalg.eigvalsh(about.T @ about)
    alpha = float((1 / np.square(found.turn).sum(axis=0) - values).mean())
    exact = KernelRows(Gaussian(0.8)(z), y, w).at(alpha)
    np.testing.assert_allclose(found.left_out(), y - exact.left_out, atol=1e-5)
