"""Gaussian processes by nearest neighbours: conditional laws, fits and defaults."""

import naive
import numpy as np
import pytest
from gallery import maker
from gallery import unit_table as table
from scipy.stats import multivariate_normal

import bochner as bo
from bochner.kernels import Columns, Exponential, Gaussian, Linear, Matern
from bochner.landmarks import Points

KERNELS = [Matern(1.5, 0.3), 2.0 * Matern(0.5, (0.4, 0.2)), Gaussian(0.3) + Columns(Matern(2.5), 1)]


def process(method, kernel=KERNELS[0], **options):
    return bo.GaussianProcessRegressor(kernel, method=method, random_state=0, **options)


def exact(X, kernel=KERNELS[0], **options):
    """Return the exact process: all rows are landmarks."""
    method, n = bo.Nystrom(Points(X)), len(X)
    return process(method, kernel, n_features=n, precision="float64", **options)


def test_without_noise_the_amplitude_is_the_mean_squared_score():
    """It is the mean of (y − E y)²/Var y; equal rows may have different targets."""
    X, y = table(80, noise=0.2)
    model = process(bo.NearestNeighbours(79), noise=0.0).fit(X, y)
    K = KERNELS[0](X) + 1e-8 * np.eye(80)
    squares = []
    for i in range(80):
        indices = np.delete(np.arange(80), i)
        law = naive.kriging(K[np.ix_(indices, indices)], y[indices], K[[i]][:, indices], K[i, i])
        squares.append(((y[i] - law[0]) / law[1]).item() ** 2)
    assert model.noise_variance_ == 0
    assert model.amplitude_ == pytest.approx(np.mean(squares), rel=1e-2)
    copies = process(bo.NearestNeighbours(10), noise=0.0).fit(np.repeat(X, 2, axis=0), [*y, *y + 1])
    assert np.isfinite(copies.predict(X, return_std=True)).all()


@pytest.mark.parametrize("centred", [True, False])
def test_conditional_laws_equal_those_of_the_joint_normal(centred):
    """A flat prior of the mean is approximated by a variance of 1e8."""
    rng = np.random.default_rng(1)
    X, y, w = rng.uniform(0, 1, (9, 2)), rng.standard_normal((9, 2)), rng.uniform(0.5, 2.0, 9)
    kernel, x, flat = Matern(1.5, 0.4), rng.uniform(0, 1, (3, 2)), 1e8 * centred
    options = {"noise": 0.1, "amplitude": 1.0, "fit_intercept": centred}
    law = process(bo.NearestNeighbours(5), kernel, **options).fit(X, y, w).fit_.law
    near, rows = law.neighbours_of(x), law.representation
    mean, variance = law.krige(x, near, 0.1)
    for i, (row, P) in enumerate(zip(x, rows.X[near], strict=True)):
        A = kernel(P, P) + np.diag(0.1 / rows.w[near[i]]) + flat
        side = kernel(row[None], P)[0] + flat
        np.testing.assert_allclose(mean[i], side @ np.linalg.solve(A, rows.y[near[i]]), atol=1e-5)
        expected = 1 + flat - side @ np.linalg.solve(A, side)
        np.testing.assert_allclose(variance[i], expected, atol=1e-5)


def test_leave_one_out_densities_equal_those_of_refits():
    X, y = table(12, noise=0.2)
    model = process(bo.NearestNeighbours(11)).fit(X, y)
    noise, densities = model.noise_variance_, []
    for i in range(12):
        indices = np.arange(12) != i
        law = exact(X[indices], model.kernel_, noise=noise, amplitude=model.amplitude_)
        mean, std = law.fit(X[indices], y[indices]).predict(X[i : i + 1], return_std=True)
        densities.append(multivariate_normal(mean, std**2 + noise).logpdf(y[i]))
    slow = np.mean(densities)
    assert model.loo_log_density_ == pytest.approx(slow, abs=1e-5)
    assert model.log_marginal_likelihood_value_ == pytest.approx(12 * slow, abs=1e-3)


def test_noise_and_amplitude_maximise_the_leave_one_out_density():
    X, y = table(300, noise=0.2)
    best = process(bo.NearestNeighbours(20)).fit(X, y)
    for noise, amplitude in ((2.0, 1.0), (0.5, 1.0), (1.0, 2.0), (1.0, 0.5), (2.0, 2.0)):
        law = {"noise": noise * best.noise_variance_, "amplitude": amplitude * best.amplitude_}
        other = process(bo.NearestNeighbours(20), **law).fit(X, y)
        assert (other.noise_variance_, other.amplitude_) == tuple(law.values())
        assert other.loo_log_density_ < best.loo_log_density_


def test_columns_get_separate_lengthscales_if_the_evidence_is_larger():
    rng = np.random.default_rng(5)
    X = rng.uniform(0, 1, (600, 2)) * [1.0, 100.0]
    y = np.sin(6 * X[:, 0]) + np.cos(0.05 * X[:, 1]) + 0.1 * rng.standard_normal(600)
    first, second = process(bo.NearestNeighbours(20), "matern52").fit(X, y).kernel_.lengthscale
    assert second > 20 * first


def test_deviations_are_calibrated_for_a_draw_of_the_process():
    """The mean square of 500 normal scores is 1 ± 6 × 2 × √(2/500): near rows share errors."""
    rng = np.random.default_rng(6)
    X = rng.uniform(0, 1, (1500, 2))
    kernel = Matern(1.5, 0.2)
    f = np.linalg.cholesky(kernel(X, X) + 1e-8 * np.eye(1500)) @ rng.standard_normal(1500)
    y = f + 0.1 * rng.standard_normal(1500)
    model = process(bo.NearestNeighbours(20), "matern32", lengthscale="loo").fit(X[:1000], y[:1000])
    mean, std = model.predict(X[1000:], return_std=True)
    assert np.mean(((mean - f[1000:]) / std) ** 2) == pytest.approx(1, abs=0.76)
    assert model.noise_variance_ == pytest.approx(0.01, rel=0.5)
    _, lower, upper = model.predict_interval(X[1000:], 0.9)
    coverage = np.mean((lower < y[1000:]) & (y[1000:] < upper))
    assert coverage == pytest.approx(0.9, abs=0.07)  # 4 deviations of 1,000 scores and 500 rows


def test_equal_rows_constant_targets_and_several_targets_are_fitted():
    X, y = table(60, noise=0.2)
    X[:40] = X[0]
    mean, std = process(bo.NearestNeighbours(10)).fit(X, y).predict(X[:1], return_std=True)
    assert np.isfinite([mean, std]).all()
    constant = process(bo.NearestNeighbours(10)).fit(X, np.full(60, 3.0))
    assert "constant" in str(constant.evidence_.outcome)
    mean, std = constant.predict(X[-5:], return_std=True)
    np.testing.assert_allclose(mean, 3.0)
    assert np.all(std == 0)
    X, y = table(200, noise=0.2)
    joint = process(bo.NearestNeighbours(20)).fit(X, np.stack([y, 10 * y], axis=1))
    assert joint.amplitude_[1] == pytest.approx(100 * joint.amplitude_[0], rel=1e-6)
    for values in joint.predict(X[:5] + 0.01, return_std=True):
        np.testing.assert_allclose(values[:, 1], 10 * values[:, 0], rtol=1e-6)


# ==== Neighbours instead of features: when a default chooses them, and the stated reason.

KERNEL_ROUGH = Exponential(0.5)
process_rough = maker(bo.GaussianProcessRegressor, KERNEL_ROUGH, random_state=0)


@pytest.fixture
def limits(monkeypatch):
    """Treat more than 250 rows as many, and let defaults use 24 features."""
    monkeypatch.setattr("bochner.models.route.DIRECT_ROWS", 250)
    monkeypatch.setattr("bochner.models.gaussian_process.neighbours.FEWEST_ROWS", 251)
    monkeypatch.setattr("bochner.selection.choices.WIDTH", 24)


def rough_draws(n=900, d=4, seed=0, targets=()):
    """Return draws of the process, with little noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 1, (n, d))
    root = np.linalg.cholesky(KERNEL_ROUGH(X) + 1e-4 * np.eye(n))
    return X, root @ rng.standard_normal((n, *targets))


def smooth(n=900, d=4):
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (n, d))
    return X, X @ np.arange(1, d + 1) + rng.standard_normal(n)


def by_neighbours(model):
    return isinstance(model.choice_.method, bo.NearestNeighbours)


@pytest.mark.usefixtures("limits")
@pytest.mark.main_cases(1)
@pytest.mark.parametrize("d", [2, 4])
def test_rough_functions_of_few_columns_use_neighbours(d):
    """The fit equals that of the method; the reason states leave-one-out errors, recomputed."""
    X, y = rough_draws(d=d)
    new = np.random.default_rng(1).uniform(0, 1, (50, d))
    model = process_rough().fit(X, y)
    assert by_neighbours(model)
    explicit = process_rough(method=bo.NearestNeighbours(), lengthscale="loo").fit(X, y)
    for a, b in zip(
        model.predict(new, return_std=True), explicit.predict(new, return_std=True), strict=True
    ):
        np.testing.assert_array_equal(a, b)
    reason = model.choice_.reason
    assert reason.startswith("NearestNeighbours(): left-out rows are predicted from their 40")
    assert reason.endswith('method="auto" uses features.')
    sample = np.argsort(model.sample_.priority, kind="stable")[512:]
    errors = [error_without(X, y, i, model.noise_variance_ / model.amplitude_) for i in sample]
    stated = float(reason.split("errors of ")[1].split()[0])
    assert stated == pytest.approx(np.sqrt(np.mean(np.square(errors))) / y[sample].std(), rel=0.01)
    features = process_rough(method="auto").fit(X, y)
    assert stated < 0.95 * float(reason.split("against ")[1].split()[0])
    assert np.std(features.predict(new) - model.predict(new)) > 0


def error_without(X, y, i, share):
    """Return the error of ordinary kriging of a row from the forty nearest others."""
    order = np.argsort(((X - X[i]) ** 2).sum(axis=1), kind="stable")
    nearest = order[order != i][:40]
    K, k = KERNEL_ROUGH(X[nearest]) + share * np.eye(40), KERNEL_ROUGH(X[i : i + 1], X[nearest])
    return y[i] - naive.kriging(K, y[nearest], k, 1.0)[0].item()


@pytest.mark.main_cases(5)
@pytest.mark.usefixtures("limits")
@pytest.mark.parametrize(
    ("d", "options"),
    [
        (5, {}),
        (4, {"method": "auto"}),
        (4, {"n_features": 24}),
        (4, {"precision": "float64"}),
        (4, {"kernel": Linear()}),
        (4, {"kernel": "gaussian", "metric": "learned"}),
        ("smooth", {"kernel": Gaussian(2.0)}),
    ],
    ids=["five columns", "auto", "features", "precision", "not stationary", "metric", "smooth"],
)
def test_other_kernels_columns_and_options_use_features(d, options):
    X, y = smooth() if d == "smooth" else rough_draws(d=d)
    assert not by_neighbours(process_rough(**options).fit(X, y))


@pytest.mark.slow
@pytest.mark.usefixtures("limits")
def test_neighbours_have_intervals_and_take_further_rows():
    X, y = rough_draws(targets=(2,))
    new, _ = rough_draws(60, seed=3)
    model = process_rough().fit(X[:800], y[:800])
    mean, lower, upper = model.predict_interval(new, 0.9)
    assert np.all((lower < mean) & (mean < upper))
    updated = model.partial_fit(X[800:], y[800:])
    assert updated.rows_seen_ == 900
    assert by_neighbours(updated)
