"""Averages over cells: against sums over many places of the exact process, and drawn functions."""

import numpy as np
import pytest

import bochner as bo
from bochner.errors import InvalidInput
from bochner.kernels import Gaussian, Matern, OnSphere

LOW, HIGH = np.array([[0.1, 0.2], [0.5, 0.0]]), np.array([[0.4, 0.6], [0.9, 0.3]])
GIVEN = {"noise": 0.05, "amplitude": 1.5}


def rows(n=150, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 1, (n, 2))
    return X, np.sin(4 * X[:, 0]) * X[:, 1] + 0.2 * rng.standard_normal(n)


def by_hand(kernel, X, y, low, high, weigh=lambda places: np.ones(len(places)), places=30):
    """Mean and deviation over cells of midpoints of the exact process of unknown mean."""
    axes = [
        a + (b - a) * (np.arange(places) + 0.5) / places for a, b in zip(low, high, strict=True)
    ]
    at = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
    w = weigh(at) / weigh(at).sum()
    a2, one = GIVEN["amplitude"], np.ones(len(y))
    inverse = np.linalg.inv(a2 * kernel(X) + GIVEN["noise"] * np.eye(len(y)))
    k = a2 * w @ kernel(at, X)
    b = one @ inverse @ y / (one @ inverse @ one)
    rest = 1 - k @ inverse @ one
    variance = a2 * w @ kernel(at) @ w - k @ inverse @ k + rest**2 / (one @ inverse @ one)
    return b + k @ inverse @ (y - b), np.sqrt(variance)


@pytest.mark.parametrize("method", ["exact", bo.FourierGrid(1e-8)], ids=["exact", "grid"])
def test_averages_are_those_of_many_places(method):
    X, y = rows()
    kernel = Gaussian(0.3)
    process = bo.GaussianProcessRegressor(kernel, method=method, **GIVEN).fit(X, y)
    mean, std = bo.cell_averages(process, LOW, HIGH, nodes=5, return_std=True)
    for i in range(2):
        expected = by_hand(kernel, X, y, LOW[i], HIGH[i])
        assert mean[i] == pytest.approx(expected[0], abs=1e-3)
        assert std[i] == pytest.approx(expected[1], rel=1e-2)
    np.testing.assert_array_equal(mean, bo.cell_averages(process, LOW, HIGH, nodes=5))


def test_averages_vary_less_than_places():
    X, y = rows()
    process = bo.GaussianProcessRegressor(Matern(0.5, 0.2), method="exact", **GIVEN).fit(X, y)
    _, std = bo.cell_averages(process, LOW, HIGH, return_std=True)
    _, at = process.predict((LOW + HIGH) / 2, return_std=True)
    assert (std < 0.8 * at).all()
    small = LOW + 1e-6
    _, of_places = bo.cell_averages(process, LOW, small, return_std=True)
    _, at = process.predict(LOW, return_std=True)
    np.testing.assert_allclose(of_places, at, rtol=1e-4)


def test_cells_of_the_globe_are_weighed_by_area():
    rng = np.random.default_rng(1)
    X = np.stack([rng.uniform(-80, 80, 200), rng.uniform(-180, 180, 200)], axis=1)
    y = np.sin(np.deg2rad(X[:, 0])) + 0.2 * rng.standard_normal(200)
    kernel = OnSphere("gaussian", 40.0)
    process = bo.GaussianProcessRegressor(kernel, method="exact", **GIVEN).fit(X, y)
    low, high = np.array([[20.0, 0.0]]), np.array([[80.0, 40.0]])
    mean, std = bo.cell_averages(process, low, high, nodes=6, return_std=True)
    area = lambda at: np.cos(np.deg2rad(at[:, 0]))
    expected = by_hand(kernel, X, y, low[0], high[0], area)
    assert mean[0] == pytest.approx(expected[0], abs=1e-3)
    assert std[0] == pytest.approx(expected[1], rel=1e-2)


def test_targets_keep_their_places():
    X, y = rows()
    both = np.stack([y, 1 - y], axis=1)
    process = bo.GaussianProcessRegressor(Gaussian(0.3), method="exact", **GIVEN).fit(X, both)
    mean, std = bo.cell_averages(process, LOW, HIGH, return_std=True)
    assert mean.shape == std.shape == (2, 2)
    np.testing.assert_allclose(mean.sum(axis=1), 1, atol=1e-9)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"upper": LOW}, "each cell must have a size along each column"),
        ({"upper": np.full((2, 2), np.nan)}, "both finite"),
        ({"lower": LOW[0]}, r"corners of cells, both \(m, 2\); got shapes \(2,\) and \(2, 2\)"),
        ({"nodes": 100}, r"at most 4,096 places a cell; got 100\^2 = 10,000"),
        ({"nodes": 0}, "nodes must be"),
        ({"process": bo.KernelRidge()}, "must be a fitted GaussianProcessRegressor; got KernelR"),
    ],
    ids=["no size", "NaN", "shapes", "many nodes", "no nodes", "no process"],
)
def test_what_are_no_cells_is_refused(given, sentence):
    process = bo.GaussianProcessRegressor(Gaussian(0.3), method="exact", **GIVEN).fit(*rows(30))
    asked = {"process": process, "lower": LOW, "upper": HIGH} | given
    with pytest.raises(InvalidInput, match=sentence):
        bo.cell_averages(**asked)
