"""Processes on more waves than rows: by the matrix of the rows, beside the exact process."""

import pickle

import numpy as np
import pytest

import bochner as bo
from bochner.kernels import Gaussian, Matern

pytest.importorskip("finufft")

KERNEL, TOLERANCE = Matern(1.5, 0.1), 1e-3


def some(n=300, noise=0.02, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 1, (n, 2))
    f = np.sin(9 * X[:, 0]) * np.cos(7 * X[:, 1])
    return X, f + noise * rng.standard_normal(n)


def both(X, y, w=None, **given):
    grid, exact = (
        bo.GaussianProcessRegressor(KERNEL, method=method, random_state=0, **given).fit(X, y, w)
        for method in (bo.FourierGrid(TOLERANCE), "exact")
    )
    assert grid.map_.n_features > 20_000
    return grid, exact


def apart(found, true):
    return np.linalg.norm(found - true) / np.linalg.norm(true)


@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("noise", [0.02, 0.5])
def test_deviations_are_those_of_the_exact_process(noise, centred):
    """By rows where noise is small and waves would take long, and where waves solve."""
    X, y = some(noise=noise)
    new, _ = some(50, seed=1)
    given = {"noise": noise**2, "amplitude": 0.5, "fit_intercept": centred}
    grid, exact = both(X, y, **given)
    (mean, std), (true, deviation) = (m.predict(new, return_std=True) for m in (grid, exact))
    assert apart(mean, true) < TOLERANCE
    np.testing.assert_allclose(std, deviation, rtol=1e-6)
    many, _ = some(200, seed=2)
    found, asked = (m.predict(many, return_std=True)[1] for m in (grid, exact))
    np.testing.assert_allclose(found, asked, rtol=1e-6)
    covariance = [m.predict(new, return_cov=True)[1] for m in (grid, exact)]
    np.testing.assert_allclose(*covariance, atol=1e-6 * covariance[1].max())


def test_noise_and_amplitude_are_those_of_the_largest_evidence():
    """Of all targets, with weights: the same numbers as the exact process, and the same means."""
    X, y = some()
    Y = np.stack([y, X[:, 0] - y**2], axis=1)
    w = np.random.default_rng(1).uniform(0.5, 2, len(y))
    grid, exact = both(X, Y, w, noise="evidence")
    np.testing.assert_allclose(grid.noise_variance_, exact.noise_variance_, rtol=1e-2)
    np.testing.assert_allclose(grid.amplitude_, exact.amplitude_, rtol=1e-2)
    new, _ = some(80, seed=1)
    (mean, std), (true, deviation) = (m.predict(new, return_std=True) for m in (grid, exact))
    assert apart(mean, true) < 2 * TOLERANCE
    np.testing.assert_allclose(std, deviation, rtol=1e-2)


@pytest.mark.slow
@pytest.mark.statistical
def test_deviations_of_very_many_places_are_of_draws(monkeypatch):
    """Of 128 functions beside as many of a known law: 6 % at most; false alarms of 6 σ: 2e-9."""
    X, y = some(noise=0.5)
    model, _ = both(X, y, noise=0.25, amplitude=0.5)
    new, _ = some(200, seed=2)
    by_rows = model.predict(new, return_std=True)[1]
    monkeypatch.setattr("bochner.models.grid_rows.MOST_PRODUCTS", 1.0)
    by_draws = model.predict(new, return_std=True)[1]
    ratio = by_draws / by_rows
    assert 0 < np.abs(ratio - 1).max() < 6 / np.sqrt(2 * 128)


def test_files_and_copies_hold_the_rows_and_no_factor(tmp_path):
    X, y = some()
    model, _ = both(X, y, noise="evidence")
    new, _ = some(80, seed=1)
    expected = model.predict(new, return_std=True)
    bo.save(model, tmp_path / "m.bochner")
    for again in (bo.load(tmp_path / "m.bochner"), pickle.loads(pickle.dumps(model))):
        assert set(vars(again.fit_)) == set(again.fit_.__dataclass_fields__)
        assert "few" not in vars(again.fit_.summed)
        for found, before in zip(again.predict(new, return_std=True), expected, strict=True):
            np.testing.assert_allclose(found, before, rtol=1e-6)


def test_smooth_kernels_and_coarse_tolerances_are_solved_by_waves():
    X, y = some(noise=0.5)
    for kernel, tolerance in ((Gaussian(0.3), 1e-4), (Matern(0.5, 0.3), 0.1)):
        model = bo.GaussianProcessRegressor(
            kernel, method=bo.FourierGrid(tolerance), noise=0.25, amplitude=0.5
        ).fit(X, y)
        assert model.fit_.summed.few is None
