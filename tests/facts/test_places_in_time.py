"""Places on the globe, or of a plane, beside time: nearest neighbours of products of kernels."""

import numpy as np
import pytest

import bochner as bo
from bochner.errors import InvalidInput, UnsupportedKernel
from bochner.kernels import Columns, Constant, Matern, OnSphere, Periodic

GLOBE = Columns(OnSphere("matern32", 25.0), (1, 2))
TIME = Columns(Matern(1.5, 4.0), (0,))
WEATHER = GLOBE * TIME
LAW = {"noise": 0.02, "amplitude": 1.3}


def places(n, seed=0):
    """Rows of (time, latitude, longitude)."""
    rng = np.random.default_rng(seed)
    lat, lon = np.rad2deg(np.arcsin(rng.uniform(-1, 1, n))), rng.uniform(-180, 180, n)
    X = np.stack([rng.uniform(0, 10, n), lat, lon], axis=1)
    heat = np.cos(np.deg2rad(2 * X[:, 1])) * np.sin(X[:, 0] + np.deg2rad(X[:, 2]))
    return X, heat + 0.1 * rng.standard_normal(n)


def process(kernel, neighbours, **options):
    method = bo.NearestNeighbours(neighbours)
    return bo.GaussianProcessRegressor(kernel, method=method, random_state=0, **LAW, **options)


def points(X):
    lat, lon = np.deg2rad(X[:, 1]), np.deg2rad(X[:, 2])
    return np.stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)], axis=1)


@pytest.mark.main_cases(5)
@pytest.mark.parametrize(
    "kernel",
    [WEATHER, 0.5 * WEATHER + Constant(0.2), GLOBE + TIME, WEATHER + 0.3 * GLOBE**2],
    ids=["product", "multiple", "sum", "both"],
)
def test_with_all_rows_as_neighbours_it_is_the_exact_process(kernel):
    """Systems of condition 1e4 at most."""
    X, y = places(90)
    new, _ = places(30, 1)
    exact = bo.GaussianProcessRegressor(kernel, method=bo.ExactKernel(), **LAW).fit(X, y)
    found = process(kernel, 90).fit(X, y)
    for a, b in zip(*(m.predict(new, return_std=True) for m in (found, exact)), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


def test_neighbours_are_near_in_lengthscales_of_the_globe_and_of_time():
    X, y = places(300)
    new, _ = places(8, 1)
    new[0, 2] = 179.9  # longitude wraps
    found = process(WEATHER, 12).fit(X, y).predict(new, return_std=True)
    for i, row in enumerate(new):
        apart = np.linalg.norm(points(X) - points(row[None]), axis=1) / np.deg2rad(25.0)
        near = np.argsort(np.hypot(apart, (X[:, 0] - row[0]) / 4.0))[:12]
        twin = process(WEATHER, 12).fit(X[near], y[near]).predict(row[None], return_std=True)
        np.testing.assert_allclose([part[i] for part in found], np.ravel(twin), atol=1e-9)


def test_planes_and_time_have_units_of_their_own_too():
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (200, 3)) * [1.0, 1.0, 1000.0]
    y = np.sin(5 * X[:, 0]) + np.cos(X[:, 2] / 200)
    kernel = 2.0 * Columns(Matern(1.5, 0.3), (0, 1)) * Columns(Matern(2.5, 300.0), (2,))
    row = np.array([[0.5, 0.5, 500.0]])
    near = np.argsort((((X - row) / [0.3, 0.3, 300.0]) ** 2).sum(axis=1))[:10]
    found = process(kernel, 10).fit(X, y).predict(row, return_std=True)
    twin = process(kernel, 10).fit(X[near], y[near]).predict(row, return_std=True)
    np.testing.assert_allclose(found, twin, atol=1e-9)


def test_a_default_takes_them_of_many_rows(monkeypatch):
    monkeypatch.setattr("bochner.models.gaussian_process.regressor.DIRECT_ROWS", 250)
    monkeypatch.setattr("bochner.models.gaussian_process.rough.FEWEST_ROWS", 251)
    monkeypatch.setattr("bochner.selection.chosen.WIDTH", 16)
    X, y = places(900)
    model = bo.GaussianProcessRegressor(WEATHER, random_state=0).fit(X, y)
    assert isinstance(model.choice_.method, bo.NearestNeighbours)


def test_odd_places_and_kernels_are_refused():
    X, y = places(60)
    with pytest.raises(InvalidInput, match="latitude, the first column, must lie within"):
        process(WEATHER, 5).fit(np.where(X == X[3, 1], 95.0, X), y)
    flat = Columns(OnSphere("matern32", 25.0), (1, 2)) * Columns(Matern(1.5), (0, 1))
    two = WEATHER * Columns(OnSphere("matern32", 25.0), (1, 0))
    for kernel in (flat, two, GLOBE * Matern(1.5)):
        with pytest.raises(UnsupportedKernel, match="requires a stationary kernel, for which rows"):
            process(kernel, 5).fit(X, y)
    # a season is near in units of its own lengthscale
    season = GLOBE * Columns(Periodic(2.0, 1.0), (0,))
    assert np.isfinite(process(season, 5).fit(X, y).predict(X)).all()
