"""Rows that grids and harmonics are given: those that are served, and what is said of others."""

import numpy as np
import pytest

import bochner as bo
from bochner.errors import InvalidInput, UnsupportedKernel
from bochner.kernels import Gaussian, Matern, OnSphere, RationalQuadratic

GRID = {"kernel": Gaussian(0.4), "method": bo.FourierGrid(1e-6)}
GLOBE = {"kernel": OnSphere("gaussian", 40.0), "method": bo.SphericalHarmonics(12)}


def places(n=80, d=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 1, (n, d))
    return X, np.sin(4 * X[:, 0]) + 0.1 * rng.standard_normal(n)


@pytest.mark.parametrize("given", [GRID, GLOBE], ids=["grid", "globe"])
def test_rows_at_one_place_are_one_row_of_more_weight(given):
    X, y = places()
    twice = bo.KernelRidge(**given, alpha=0.5).fit(np.repeat(X, 2, axis=0), np.repeat(y, 2))
    once = bo.KernelRidge(**given, alpha=0.5).fit(X, y, np.full(80, 2.0))
    np.testing.assert_allclose(twice.predict(X), once.predict(X), atol=1e-6)
    apart = np.append(y, 1.0 + y[:1]), np.vstack([X, X[:1]])
    process = bo.GaussianProcessRegressor(**given, noise=0.1, amplitude=1.0).fit(apart[1], apart[0])
    assert np.isfinite(process.predict(X, return_std=True)).all()


@pytest.mark.parametrize("open_", ["amplitude", "noise", "both"])
def test_one_row_is_a_process_that_passes_near_it(open_):
    """Of one row that is its own mean nothing is left: no degree of freedom, and no amplitude."""
    box, X, y = ((0.0, 1.0), (0.0, 1.0)), np.array([[0.3, 0.6]]), np.array([2.5])
    given = {"amplitude": {"noise": 0.1}, "noise": {"amplitude": 1.0}, "both": {}}[open_]
    model = bo.GaussianProcessRegressor(
        Gaussian(0.4), method=bo.FourierGrid(1e-6, box), **given
    ).fit(X, y)
    mean, std = model.predict(np.array([[0.3, 0.6], [0.9, 0.1]]), return_std=True)
    np.testing.assert_allclose(mean, 2.5)
    assert np.isfinite(std).all()
    assert np.isfinite([model.amplitude_, model.noise_variance_]).all()


@pytest.mark.parametrize("noise", [0.1, 0.5])
def test_one_row_about_a_known_mean_is_the_exact_law(noise):
    """f(x) given y at x' is normal of mean a² k y/(a² + σ²) and variance a² − a⁴ k²/(a² + σ²)."""
    box, X, y = ((0.0, 1.0), (0.0, 1.0)), np.array([[0.3, 0.6]]), np.array([2.5])
    model = bo.GaussianProcessRegressor(
        Gaussian(0.4),
        method=bo.FourierGrid(1e-8, box),
        noise=noise,
        amplitude=2.0,
        fit_intercept=False,
    ).fit(X, y)
    new = np.array([[0.3, 0.6], [0.5, 0.2], [0.9, 0.9]])
    mean, std = model.predict(new, return_std=True)
    k = Gaussian(0.4)(new, X)[:, 0]
    np.testing.assert_allclose(mean, 2 * k * 2.5 / (2 + noise), atol=1e-6)
    np.testing.assert_allclose(std**2, 2 - 4 * k**2 / (2 + noise), atol=1e-6)
    open_ = bo.GaussianProcessRegressor(
        Gaussian(0.4), method=bo.FourierGrid(1e-8, box), fit_intercept=False
    ).fit(X, y)
    assert open_.amplitude_ + open_.noise_variance_ == pytest.approx(2.5**2, rel=1e-3)


def test_rows_that_are_all_at_one_place_have_no_box():
    X, y = np.full((20, 2), 0.5), np.arange(20.0)
    with pytest.raises(InvalidInput, match=r"one value 0\.5. Drop that column, or give a box"):
        bo.KernelRidge(**GRID).fit(X, y)
    model = bo.KernelRidge(**GLOBE, alpha=1.0).fit(X, y)
    assert model.predict(X[:1])[0] == pytest.approx(9.5)


@pytest.mark.parametrize("Learner", [bo.KernelRidge, bo.GaussianProcessRegressor])
def test_many_columns_are_told_what_to_use(Learner):
    with pytest.raises(UnsupportedKernel, match=r"one to three columns; got 4.*Columns\(kernel"):
        Learner(**GRID).fit(*places(d=4))


def test_short_lengthscales_say_how_large_and_what_a_tolerance_would_do():
    X, y = places()
    with pytest.raises(InvalidInput) as refused:
        bo.KernelRidge(Matern(0.5, 0.01), method=bo.FourierGrid(1e-4)).fit(X, y)
    said = str(refused.value)
    assert "FourierGrid: tolerance=0.0001 takes" in said
    assert " x " in said
    assert "No tolerance up to 0.5 takes under a million waves. Or take" in said
    assert "Or take a longer lengthscale, a smoother kernel, Nystrom(), or for a Gaussian" in said
    assert said.endswith("process NearestNeighbours(), which has no grid.")
    with pytest.raises(InvalidInput, match=r"tolerance=0\.\d+ takes [\d,]+ x [\d,]+\. Or take"):
        bo.KernelRidge(Matern(1.5, 0.02), method=bo.FourierGrid(1e-9)).fit(X, y)


@pytest.mark.parametrize("given", [GRID, GLOBE], ids=["grid", "globe"])
@pytest.mark.parametrize("Learner", [bo.KernelRidge, bo.GaussianProcessRegressor])
def test_missing_and_infinite_numbers_are_refused(Learner, given):
    X, y = places()
    for bad in (np.nan, np.inf):
        rows, target = X.copy(), y.copy()
        rows[3, 1] = target[3] = bad
        with pytest.raises(ValueError, match=r"NaN|infinity|inf"):
            Learner(**given).fit(rows, y)
        with pytest.raises(ValueError, match=r"NaN|infinity|inf"):
            Learner(**given).fit(X, target)


def test_latitudes_beyond_the_poles_are_refused_by_fits_and_predictions():
    X, y = places()
    far = np.array([[95.0, 10.0]])
    said = r"latitude, the first column, must lie within -90 to 90 degrees; got 95\."
    with pytest.raises(InvalidInput, match=said):
        bo.KernelRidge(**GLOBE).fit(np.vstack([X, far]), np.append(y, 0.0))
    model = bo.GaussianProcessRegressor(**GLOBE).fit(X, y)
    with pytest.raises(InvalidInput, match=said):
        model.predict(far)
    with pytest.raises(InvalidInput, match=said):
        model.predict_grid(lat=[95.0], lon=[10.0])


# ---- what waves leave out


@pytest.mark.parametrize(
    ("d", "kernel", "tolerance"),
    [
        (1, Matern(0.5, 0.1), 0.02),
        (2, Matern(2.5, 0.2), 0.02),
        (2, RationalQuadratic(2.0, 0.2), 0.02),
    ],
    ids=["rough", "plane", "long tails"],
)
def test_deviations_have_what_waves_leave_out(d, kernel, tolerance):
    """At a tolerance of two hundredths, those of waves alone would be off by more."""
    X, y = places(1000, d)
    new, _ = places(100, d, 1)
    process = bo.GaussianProcessRegressor(
        kernel, method=bo.FourierGrid(tolerance), noise=0.09, amplitude=1.0, fit_intercept=False
    ).fit(X, y)
    _, std = process.predict(new, return_std=True)
    K, k = kernel(X) + 0.09 * np.eye(1000), kernel(new, X)
    exact = np.sqrt(1 - np.einsum("ij,ji->i", k, np.linalg.solve(K, k.T)))
    off = lambda found: np.sqrt(np.mean((found / exact - 1) ** 2))
    assert off(std) < 0.02
    left_out = 1 - process.map_.variances.sum()
    assert off(np.sqrt(std**2 - left_out)) > 2 * off(std)
    _, cov = process.predict(new[:10], return_cov=True)
    np.testing.assert_allclose(np.diag(cov), std[:10] ** 2, rtol=1e-3)


def test_open_noise_gives_what_waves_leave_out_to_the_function():
    X, y = places(300, 1)
    process = bo.GaussianProcessRegressor(Matern(0.5, 0.3), method=bo.FourierGrid(0.05)).fit(X, y)
    left_out = process.amplitude_ * (1 - process.map_.variances.sum())
    found = process.evidence_.noise[0]
    assert process.noise_variance_ == pytest.approx(max(found - left_out, 0.0))
    assert left_out > 0
    _, of_new = process.predict(X[:5], return_std=True, include_noise=True)
    _, of_f = process.predict(X[:5], return_std=True)
    np.testing.assert_allclose(of_new**2 - of_f**2, process.noise_variance_, atol=1e-12)
