"""Waves in the place of features: where "auto", plan and compare take them, and what they find."""

import numpy as np
import pytest
from scipy import sparse

import bochner as bo
from bochner.errors import InvalidInput
from bochner.features import Fourier
from bochner.kernels import Exponential, Gaussian, Linear, Matern, OnSphere
from bochner.selection.gridded import most_waves, waves_for

pytest.importorskip("finufft")

KERNEL = Gaussian(0.4)


def table(n=400, d=2, seed=0, noise=0.1):
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 1, (n, d))
    return X, np.sin(5 * X[:, 0]) + np.cos(4 * X[:, -1]) + noise * rng.standard_normal(n)


def globe(n=400, seed=0):
    rng = np.random.default_rng(seed)
    X = np.stack([np.rad2deg(np.arcsin(rng.uniform(-1, 1, n))), rng.uniform(-180, 180, n)], axis=1)
    return X, np.cos(np.deg2rad(X[:, 0])) + 0.1 * rng.standard_normal(n)


def sums_waves(model):
    return isinstance(model.choice_.method, bo.FourierGrid | bo.SphericalHarmonics)


@pytest.fixture
def few(monkeypatch):
    """More than 250 rows are many."""
    for where in ("ridge.routes", "gaussian_process.regressor"):
        monkeypatch.setattr(f"bochner.models.{where}.DIRECT_ROWS", 250)
    monkeypatch.setattr("bochner.selection.gridded.FEWEST_ROWS", 251)


# ---- which waves


def test_few_columns_and_many_rows_have_a_grid():
    X, _ = table(500)
    found = waves_for(KERNEL, X, 100_000)
    assert found.method == bo.FourierGrid(1e-3)
    assert found.map.error <= 1e-3
    waves = f"{found.map.n_features:,} waves"
    assert found.reason.startswith("FourierGrid(tolerance=0.001): 100,000 rows of 2 columns are")
    assert waves in found.reason
    assert "up to 2,047 take the place of features." in found.reason
    one = waves_for(KERNEL, X[:, :1], 100_000)
    assert "rows of 1 column are summed" in one.reason
    assert found.map.error == pytest.approx(np.abs(found.map.matrix(X, 1e-9) - KERNEL(X)).max(), 2)


def test_rough_kernels_have_a_coarser_grid_of_so_many_rows_or_none():
    X, _ = table(500)
    lengths = np.geomspace(0.5, 0.005, 12)
    for n in (200_000, 10**6):
        found = [waves_for(Matern(1.5, length), X, n) for length in lengths]
        tolerances = [c and c.method.tolerance for c in found]
        fine = tolerances.count(1e-3)
        coarse, coarsest = tolerances.count(1e-2), tolerances.count(3e-2)
        assert fine > 0
        assert coarse > 0
        taken = [1e-3] * fine + [1e-2] * coarse + [3e-2] * coarsest
        assert tolerances == taken + [None] * (12 - len(taken))
        assert all(c.map.n_features <= most_waves(n) for c in found if c)


def test_waves_that_are_few_enough_grow_with_the_rows():
    found = [most_waves(n) for n in (10**4, 2**17 - 1, 2**17, 2**18, 10**9)]
    assert found == [2047, 2047, 2**15, 2**16, 2**18]


def test_kernels_of_the_globe_have_harmonics():
    X, _ = globe()
    found = waves_for(OnSphere("matern32", 20.0), X, 200_000)
    assert isinstance(found.method, bo.SphericalHarmonics)
    assert found.map.error <= 1e-3
    coarser = bo.SphericalHarmonics(found.method.degree - 1)
    assert bo.draw(OnSphere("matern32", 20.0), coarser, n_features=10**6, X=X).error > 1e-3
    assert "rows of the globe are summed as" in found.reason
    assert waves_for(OnSphere("exponential", 0.5), X, 100_000) is None


@pytest.mark.parametrize(
    ("kernel", "d", "n"),
    [
        (KERNEL, 2, 8192),
        (KERNEL, 4, 10**5),
        (Linear(), 2, 10**5),
        (Exponential(1e-4), 2, 10**5),
    ],
    ids=["few rows", "many columns", "no spectral density", "too rough"],
)
def test_what_has_features(kernel, d, n):
    assert waves_for(kernel, table(300, d)[0], n) is None


def test_sparse_rows_constant_columns_and_no_finufft_have_features(monkeypatch):
    X, _ = table(300)
    assert waves_for(KERNEL, sparse.csr_array(X), 10**5) is None
    assert waves_for(KERNEL, X * [1, 0], 10**5) is None
    monkeypatch.setattr("bochner.selection.gridded.is_fast", lambda: False)
    assert waves_for(KERNEL, X, 10**5) is None


# ---- learners


@pytest.mark.parametrize("d", [1, 2, 3])
def test_ridge_regression_is_that_of_the_kernel_itself(few, d):
    X, y = table(400, d)
    new, _ = table(60, d, 1)
    model = bo.KernelRidge(KERNEL, alpha=0.3, random_state=0).fit(X, y)
    assert sums_waves(model)
    assert model.choice_.method == bo.FourierGrid(1e-3 if d < 3 else 3e-2)
    K = np.block([[KERNEL(X) + 0.3 * np.eye(400), np.ones((400, 1))], [np.ones(400), 0]])
    solved = np.linalg.solve(K, np.append(y, 0))
    by_hand = KERNEL(new, X) @ solved[:-1] + solved[-1]
    within = 3 * model.choice_.method.tolerance
    assert np.linalg.norm(model.predict(new) - by_hand) < within * np.linalg.norm(by_hand)
    given = bo.KernelRidge(KERNEL, method=model.choice_.method, alpha=0.3, random_state=0)
    np.testing.assert_allclose(model.predict(new), given.fit(X, y).predict(new), rtol=1e-12)


def test_a_process_is_that_of_the_kernel_itself(few):
    X, y = table()
    new, _ = table(60, seed=1)
    given = {"noise": 0.01, "amplitude": 2.0, "fit_intercept": False}
    model = bo.GaussianProcessRegressor(KERNEL, random_state=0, **given).fit(X, y)
    assert sums_waves(model)
    mean, std = model.predict(new, return_std=True)
    K, k = 2 * KERNEL(X) + 0.01 * np.eye(400), 2 * KERNEL(new, X)
    np.testing.assert_allclose(mean, k @ np.linalg.solve(K, y), atol=0.02)
    variance = 2 - np.einsum("ij,ji->i", k, np.linalg.solve(K, k.T))
    np.testing.assert_allclose(std, np.sqrt(variance), rtol=0.05)


def test_a_process_of_a_name_and_of_the_globe(few):
    X, y = table()
    model = bo.GaussianProcessRegressor("gaussian", random_state=0).fit(X, y)
    assert sums_waves(model)
    assert model.noise_variance_ == pytest.approx(0.01, rel=0.5)
    X, y = globe()
    model = bo.KernelRidge(OnSphere("matern52", 40.0), random_state=0).fit(X, y)
    assert isinstance(model.choice_.method, bo.SphericalHarmonics)
    assert np.mean((model.predict(X) - np.cos(np.deg2rad(X[:, 0]))) ** 2) < 0.002


@pytest.mark.parametrize(
    "asked",
    [
        {"n_features": 32},
        {"method": "fourier"},
        {"precision": "float64"},
        {"kernel": Linear()},
    ],
    ids=lambda asked: next(iter(asked)),
)
def test_what_is_asked_of_features_is_given(few, asked):
    X, y = table()
    model = bo.KernelRidge(**({"kernel": KERNEL, "random_state": 0} | asked)).fit(X, y)
    assert not sums_waves(model)


def test_rows_in_pieces_have_features(few):
    X, y = table()
    for Learner in (bo.KernelRidge, bo.GaussianProcessRegressor):
        model = Learner(KERNEL, random_state=0).partial_fit(X, y)
        assert not sums_waves(model)


def test_blocks_choose_as_arrays_do(few):
    X, y = table()
    blocks = bo.Blocks.from_arrays(X, y, block_rows=37)
    for Learner in (bo.KernelRidge, bo.GaussianProcessRegressor):
        found = [Learner(KERNEL, random_state=0).fit(X, y)]
        found.append(Learner(KERNEL, random_state=0).fit_blocks(blocks))
        assert found[0].choice_.reason == found[1].choice_.reason
        np.testing.assert_allclose(found[0].predict(X), found[1].predict(X), rtol=1e-8, atol=1e-8)


# ---- gradients


@pytest.mark.main_cases(2)
@pytest.mark.parametrize("d", [1, 2, 3])
def test_gradients_are_those_of_differences(d):
    X, y = table(200, d)
    method, kernel = bo.FourierGrid(1e-4), Gaussian(0.6 if d < 3 else 1.2)
    for Learner in (bo.KernelRidge, bo.GaussianProcessRegressor):
        model = Learner(kernel, method=method).fit(X, np.stack([y, y**2], axis=1))
        inside = 0.1 + 0.8 * X[:20]
        found = model.gradient(inside)
        assert found.shape == (20, d, 2)
        for a, e in enumerate(1e-5 * np.eye(d)):
            slope = (model.predict(inside + e) - model.predict(inside - e)) / 2e-5
            np.testing.assert_allclose(found[:, a], slope, atol=1e-3)


def test_gradients_on_the_globe_are_those_of_differences():
    X, y = globe(300)
    model = bo.KernelRidge(OnSphere("gaussian", 40.0), method=bo.SphericalHarmonics(12), alpha=0.1)
    model.fit(X, y)
    found = model.gradient(X[:20])
    for a, e in enumerate(1e-3 * np.eye(2)):
        slope = (model.predict(X[:20] + e) - model.predict(X[:20] - e)) / 2e-3
        np.testing.assert_allclose(found[:, a], slope, atol=1e-6)


# ---- plan and compare


def test_a_plan_lists_waves_and_what_they_take(monkeypatch):
    monkeypatch.setattr("bochner.selection.gridded.FEWEST_ROWS", 251)
    X, y = table(600, noise=0.3)
    plan = bo.plan(X, y, KERNEL, widths=[16, 64], random_state=0)
    (waves,) = (fit for fit in plan.fits if fit.solver == "waves")
    model = bo.KernelRidge(KERNEL, method=waves.method, random_state=0).fit(X, y)
    assert waves.n_features == model.map_.n_features
    assert waves.kernel_error < 1e-3
    K, alpha = KERNEL(X), model.alpha_  # leave-one-out errors by hand
    one = np.full((600, 600), 1 / 600)
    centred = (np.eye(600) - one) @ K @ (np.eye(600) - one)
    H = one + centred @ np.linalg.inv(centred + alpha * np.eye(600))
    left_out = (y - H @ y) / (1 - np.diag(H))
    # Of 256 rows: their root mean square has a relative deviation of 1/√512; 3.4 of them, 1 in 1,500.
    assert waves.error == pytest.approx(np.sqrt(np.mean(left_out**2)), rel=0.15)
    chosen = plan.with_choice(solver="waves")
    assert (
        f"{waves.n_features:,} waves of FourierGrid(tolerance=0.001)" in chosen.reason.lower()
        or (
            f"{waves.n_features:,} waves of FourierGrid(tolerance=0.001): as asked."
            == chosen.reason
        )
    )
    assert sums_waves(chosen.estimator().fit(X, y))


def test_waves_of_more_rows_take_longer_by_their_sums():
    X, y = table(600)
    options = dict(methods=[bo.FourierGrid(1e-2)], random_state=0)
    few = bo.plan(X[:250], y[:250], KERNEL, **options).fits[0]
    many = bo.plan(X, y, KERNEL, n_rows=10**9, **options).fits[0]
    assert few.solver == many.solver == "waves"
    assert many.steps["further rows"] > few.seconds
    assert "further rows" not in few.steps
    assert many.bytes > few.bytes
    both = bo.plan(X, y, KERNEL, methods=[bo.FourierGrid(1e-2), "fourier"], widths=[16])
    assert [type(fit.method) for fit in both.fits] == [Fourier, bo.FourierGrid]


def test_a_method_that_serves_nothing_is_refused():
    with pytest.raises(InvalidInput, match="spectral density"):
        bo.plan(*table(100), Linear(), methods=[bo.FourierGrid()])


def test_kernels_of_the_globe_are_compared_with_harmonics():
    X, _ = globe(400)
    found = bo.compare(OnSphere("gaussian", 60.0), X, n_features=200, random_state=0)
    (row,) = (row for row in found.rows if isinstance(row.method, bo.SphericalHarmonics))
    assert not row.refused
    assert row.n_features == 196
    assert row.error < 1e-3
    plane = bo.compare(Gaussian(60.0), X, n_features=200, random_state=0)
    assert not any(isinstance(row.method, bo.SphericalHarmonics) for row in plane.rows)
