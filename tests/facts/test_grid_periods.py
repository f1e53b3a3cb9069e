"""Periodic kernels on Fourier grids: alone, times kernels that decay, beside them; exact twins."""

import math

import numpy as np
import pytest

import bochner as bo
from bochner.errors import UnsupportedKernel
from bochner.kernels import Columns, Constant, Gaussian, Mahalanobis, Matern, Periodic
from bochner.kernels import RationalQuadratic as RQ

SEASON, DAY, LONG = Periodic(0.31, 0.8), Periodic(0.1, 0.7), Periodic(7.0, 1.0)

KERNELS = {
    "periodic": (1, SEASON, 1e-10),
    "of a long period": (1, LONG, 1e-8),
    "sharp": (1, Periodic(0.3, 0.1), 1e-6),
    "quasi-periodic": (1, Gaussian(0.5) * DAY, 1e-8),
    "quasi-periodic Matern": (1, Matern(1.5, 0.4) * SEASON, 1e-4),
    "beside a Matern": (1, Matern(1.5, 0.3) + 0.5 * DAY, 1e-4),
    "beside, of a long period": (1, Matern(2.5, 0.3) + 2 * LONG, 1e-4),
    "two periods": (1, Matern(1.5, 0.3) + DAY + 0.3 * Periodic(0.02), 1e-3),
    "periods of no common multiple": (1, DAY + Periodic(0.1 * 2**0.5), 1e-3),
    "beside long tails": (1, RQ(0.7, 0.1) + DAY, 1e-8),
    "times long tails": (1, RQ(0.7, 0.1) * DAY, 1e-8),
    "both": (1, Gaussian(1.0) * DAY + Matern(1.5, 0.2) + 2 * Periodic(0.05), 1e-3),
    "power": (1, 0.5 * (DAY + Constant(0.3)) ** 2, 1e-6),
    "another column": (2, Columns(Matern(2.5, 0.4), (0,)) * Columns(DAY, (1,)), 1e-4),
    "of two": (2, Matern(2.5, 0.5) + Columns(DAY, (1,)), 1e-2),
    "periods of both": (2, Periodic((0.1, 0.31), (1.0, 0.6)), 1e-8),
}
CASES = pytest.mark.parametrize(("d", "kernel", "tolerance"), KERNELS.values(), ids=KERNELS)


def rows(n, d, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 1, (n, d))
    X[:2] = [[0.0] * d, [1.0] * d]
    y = np.sin(2 * math.pi * X[:, -1] / 0.1) + np.cos(4 * X[:, 0]) + 0.2 * rng.standard_normal(n)
    return X, y


def exact(kernel, X, y, new, alpha):
    n = len(X)
    K, one = kernel(X) + alpha * np.eye(n), np.ones((n, 1))
    solved = np.linalg.solve(np.block([[K, one], [one.T, 0]]), np.append(y, 0))
    return kernel(new, X) @ solved[:-1] + solved[-1]


def whole_map(kernel, X, tolerance):
    """All waves that a tolerance takes."""
    return bo.draw(kernel, bo.FourierGrid(tolerance), n_features=1 << 20, X=X)


@CASES
def test_periodic_kernels_are_met_within_the_tolerance(d, kernel, tolerance):
    X, _ = rows(60, d)
    phi = whole_map(kernel, X, tolerance)
    K, found = kernel(X), phi(X) @ phi(X).T
    assert np.abs(found - K).max() <= tolerance * K[0, 0]
    assert phi.error <= tolerance
    # one wave of weight less, and it is not the kernel
    heaviest = int(np.argmax((phi(X) ** 2).sum(axis=0)))
    fewer = np.delete(phi(X), heaviest, axis=1)
    assert np.abs(fewer @ fewer.T - K).max() > 10 * tolerance * K[0, 0]


@CASES
def test_predictions_are_those_of_the_exact_process(d, kernel, tolerance):
    X, _ = rows(400, d)
    new, _ = rows(60, d, 5)
    drawn = np.random.default_rng(2).standard_normal((2, 400))
    y = np.linalg.cholesky(kernel(X) + 1e-9 * np.eye(400)) @ drawn[0] + 0.08**0.5 * drawn[1]
    mean = exact(kernel, X, y, new, 0.08)
    model = bo.KernelRidge(kernel, method=bo.FourierGrid(tolerance), alpha=0.08).fit(X, y)
    error = np.linalg.norm(model.predict(new) - mean) / np.linalg.norm(mean)
    assert error <= tolerance


@pytest.mark.parametrize("name", ["periodic", "beside a Matern", "two periods", "another column"])
def test_periods_go_on_beyond_the_box(name):
    """Where the rest is forgotten; the exact process of an intercept that is known."""
    d, kernel, tolerance = KERNELS[name]
    X, y = rows(300, d)
    new, _ = rows(40, d, 5)
    new[:, -1] += np.where(np.arange(40) % 2, 23.0, -11.0)
    K = kernel(X) + 0.08 * np.eye(300)
    mean = kernel(new, X) @ np.linalg.solve(K, y)
    asked = {"method": bo.FourierGrid(tolerance), "alpha": 0.08, "fit_intercept": False}
    model = bo.KernelRidge(kernel, **asked).fit(X, y)
    off = np.linalg.norm(model.predict(new) - mean) / np.linalg.norm(mean)
    # a kernel that decays is below a hundredth there, and not zero
    assert off <= (tolerance if name in ("periodic", "another column") else 0.03)


def test_deviations_are_those_of_the_exact_process():
    X, y = rows(500, 1)
    new, _ = rows(50, 1, 5)
    kernel, law = Matern(2.5, 0.3) + 0.5 * DAY, {"noise": 0.08, "amplitude": 1.0}
    full = bo.GaussianProcessRegressor(kernel, method=bo.ExactKernel(), **law).fit(X, y)
    grid = bo.GaussianProcessRegressor(kernel, method=bo.FourierGrid(1e-5), **law).fit(X, y)
    for found, true in zip(*(m.predict(new, return_std=True) for m in (grid, full)), strict=True):
        np.testing.assert_allclose(found, true, atol=1e-3)


def test_rows_of_any_cycle_may_come_where_a_kernel_is_periodic_alone():
    X, y = rows(300, 1)
    late = X + 0.31 * np.arange(300)[:, None]
    whole = bo.KernelRidge(SEASON, method=bo.FourierGrid(1e-6), alpha=0.1).fit(
        np.concatenate([X, late]), np.concatenate([y, y])
    )
    first = bo.KernelRidge(SEASON, method=bo.FourierGrid(1e-6), alpha=0.1).fit(X, y)
    first.partial_fit(late, y)
    new, _ = rows(50, 1, 5)
    np.testing.assert_allclose(first.predict(new), whole.predict(new), atol=1e-5)
    assert first.map_.n_features < 40


def test_other_lengthscales_and_files_keep_periods(tmp_path):
    X, y = rows(300, 1)
    kernel = Matern(1.5, 0.3) + 0.5 * DAY
    model = bo.KernelRidge(kernel, method=bo.FourierGrid(1e-3), alpha=0.1).fit(X, y)
    phi = model.map_
    np.testing.assert_allclose(phi.variances_of(kernel), phi.variances, atol=1e-15)
    bo.save(model, tmp_path / "m.bochner")
    new = np.array([[0.3], [9.77]])
    np.testing.assert_array_equal(bo.load(tmp_path / "m.bochner").predict(new), model.predict(new))
    np.testing.assert_allclose(phi(new) @ phi(X).T, phi.matrix(np.vstack([new, X]), 1e-9)[:2, 2:])


@pytest.mark.slow
def test_many_rows_of_a_season_have_a_grid_by_themselves():
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 40, (10_000, 1))
    y = np.sin(2 * math.pi * X[:, 0]) + 0.1 * X[:, 0] + 0.2 * rng.standard_normal(10_000)
    kernel = 10 * Matern(2.5, 20.0) + Gaussian(30.0) * Periodic(1.0)
    model = bo.GaussianProcessRegressor(kernel).fit(X, y)
    assert isinstance(model.choice_.method, bo.FourierGrid)
    new = rng.uniform(0, 40, (100, 1))
    f = np.sin(2 * math.pi * new[:, 0]) + 0.1 * new[:, 0]
    # noise of 0.2 over some sixty numbers: √(60/10,000) of it, with a margin of three
    assert np.sqrt(np.mean((model.predict(new) - f) ** 2)) < 3 * 0.2 * (60 / 10_000) ** 0.5


def test_the_common_period_is_the_least_one():
    X, _ = rows(50, 1)
    for periods, common in (((0.25, 1.0), 1.0), ((4.0, 6.0), 12.0), ((365.25, 7.0), 10227.0)):
        phi = whole_map(Periodic(periods[0]) + Periodic(periods[1]), X, 1e-6)
        assert 2 * math.pi / phi.spacing[0] == pytest.approx(common)


def test_what_has_no_common_period_is_refused():
    X, y = rows(50, 1)
    kernel = Periodic(1.0) + Periodic(2**0.5)
    with pytest.raises(UnsupportedKernel, match=r"got 1, 1\.41421 of column 0.*Round them, take a"):
        bo.KernelRidge(kernel, method=bo.FourierGrid(1e-10), alpha=1.0).fit(100 * X, y)
    turned = Mahalanobis(Periodic(1.0), ((1.0,),))
    with pytest.raises(UnsupportedKernel, match="requires a stationary kernel with a spectral"):
        bo.KernelRidge(turned, method=bo.FourierGrid(1e-3), alpha=1.0).fit(X, y)
