"""Gaussian processes by nearest neighbours: laws of few rows, fits and defaults."""

import naive
import numpy as np
import pytest
from gallery import maker
from gallery import unit_table as some
from scipy.stats import multivariate_normal

import bochner as bo
from bochner.kernels import Columns, Exponential, Gaussian, Linear, Matern
from bochner.landmarks import Given
from bochner.models.gaussian_process.neighbours import condition

KERNELS = [Matern(1.5, 0.3), 2.0 * Matern(0.5, (0.4, 0.2)), Gaussian(0.3) + Columns(Matern(2.5), 1)]


def process(method, kernel=KERNELS[0], **options):
    return bo.GaussianProcessRegressor(kernel, method=method, random_state=0, **options)


def exact(X, kernel=KERNELS[0], **options):
    """The exact process: all rows as landmarks."""
    method, n = bo.Nystrom(Given(X)), len(X)
    return process(method, kernel, n_features=n, precision="float64", **options)


def test_without_noise_the_amplitude_is_still_found():
    """Of a law without noise, a² is the mean of (y − E y)²/Var y; rows at one place may differ."""
    X, y = some(80, noise=0.2)
    model = process(bo.NearestNeighbours(79), noise=0.0).fit(X, y)
    K = KERNELS[0](X) + 1e-8 * np.eye(80)
    squares = []
    for i in range(80):
        rest = np.delete(np.arange(80), i)
        law = naive.kriging(K[np.ix_(rest, rest)], y[rest], K[[i]][:, rest], K[i, i])
        squares.append(((y[i] - law[0]) / law[1]).item() ** 2)
    assert model.noise_variance_ == 0
    assert model.amplitude_ == pytest.approx(np.mean(squares), rel=1e-2)
    twice = process(bo.NearestNeighbours(10), noise=0.0).fit(np.repeat(X, 2, axis=0), [*y, *y + 1])
    assert np.isfinite(twice.predict(X, return_std=True)).all()


@pytest.mark.parametrize("centred", [True, False])
def test_law_of_few_rows_is_that_of_the_joint_normal(centred):
    """A flat prior of the mean is one of variance 1e8, which errs by its inverse."""
    rng = np.random.default_rng(1)
    places, y = rng.uniform(0, 1, (3, 5, 2)), rng.standard_normal((3, 5, 2))
    x, noise = rng.uniform(0, 1, (3, 2)), rng.uniform(0.01, 0.5, (3, 5))
    kernel = Matern(1.5, 0.4)
    K = np.stack([kernel(P, P) for P in places])
    k = np.stack([kernel(P, row[None])[:, 0] for P, row in zip(places, x, strict=True)])
    mean, variance = condition(K.copy(), k, np.ones(3), y, noise, centred)
    flat = 1e8 * centred
    for i in range(3):
        A = K[i] + np.diag(noise[i]) + flat
        side = k[i] + flat
        np.testing.assert_allclose(mean[i], side @ np.linalg.solve(A, y[i]), atol=1e-5)
        left = 1 + flat - side @ np.linalg.solve(A, side)
        np.testing.assert_allclose(variance[i], left, atol=1e-5)


def test_density_of_rows_left_out_is_that_of_fits_without_them():
    X, y = some(12, noise=0.2)
    found = process(bo.NearestNeighbours(11)).fit(X, y)
    noise, densities = found.noise_variance_, []
    for i in range(12):
        rest = np.arange(12) != i
        law = exact(X[rest], found.kernel_, noise=noise, amplitude=found.amplitude_)
        mean, std = law.fit(X[rest], y[rest]).predict(X[i : i + 1], return_std=True)
        densities.append(multivariate_normal(mean, std**2 + noise).logpdf(y[i]))
    slow = np.mean(densities)
    assert found.loo_log_density_ == pytest.approx(slow, abs=1e-5)
    assert found.log_marginal_likelihood_value_ == pytest.approx(12 * slow, abs=1e-3)


def test_noise_and_amplitude_are_likelier_than_others():
    X, y = some(300, noise=0.2)
    found = process(bo.NearestNeighbours(20)).fit(X, y)
    for noise, amplitude in ((2.0, 1.0), (0.5, 1.0), (1.0, 2.0), (1.0, 0.5), (2.0, 2.0)):
        held = {"noise": noise * found.noise_variance_, "amplitude": amplitude * found.amplitude_}
        other = process(bo.NearestNeighbours(20), **held).fit(X, y)
        assert (other.noise_variance_, other.amplitude_) == tuple(held.values())
        assert other.loo_log_density_ < found.loo_log_density_


def test_columns_have_lengthscales_of_their_own_where_evidence_asks_for_them():
    rng = np.random.default_rng(5)
    X = rng.uniform(0, 1, (600, 2)) * [1.0, 100.0]
    y = np.sin(6 * X[:, 0]) + np.cos(0.05 * X[:, 1]) + 0.1 * rng.standard_normal(600)
    first, second = process(bo.NearestNeighbours(20), "matern52").fit(X, y).kernel_.lengthscale
    assert second > 20 * first


def test_deviations_are_true_of_a_drawn_process():
    """Scores of 500 rows are normal: their mean square is within 6 deviations of 1, √(2/500)
    each, and twice that for neighbours being alike (rows 0.03 apart share their errors)."""
    rng = np.random.default_rng(6)
    X = rng.uniform(0, 1, (1500, 2))
    kernel = Matern(1.5, 0.2)
    f = np.linalg.cholesky(kernel(X, X) + 1e-8 * np.eye(1500)) @ rng.standard_normal(1500)
    y = f + 0.1 * rng.standard_normal(1500)
    found = process(bo.NearestNeighbours(20), "matern32", lengthscale="loo").fit(X[:1000], y[:1000])
    mean, std = found.predict(X[1000:], return_std=True)
    assert np.mean(((mean - f[1000:]) / std) ** 2) == pytest.approx(1, abs=0.76)
    assert found.noise_variance_ == pytest.approx(0.01, rel=0.5)
    _, lower, upper = found.predict_interval(X[1000:], 0.9)
    inside = np.mean((lower < y[1000:]) & (y[1000:] < upper))
    assert inside == pytest.approx(0.9, abs=0.07)  # of 1,000 scores and 500 rows: 4 deviations


def test_rows_at_one_place_constant_and_several_targets_are_served():
    X, y = some(60, noise=0.2)
    X[:40] = X[0]
    mean, std = process(bo.NearestNeighbours(10)).fit(X, y).predict(X[:1], return_std=True)
    assert np.isfinite([mean, std]).all()
    constant = process(bo.NearestNeighbours(10)).fit(X, np.full(60, 3.0))
    assert "constant" in str(constant.evidence_.outcome)
    mean, std = constant.predict(X[-5:], return_std=True)
    np.testing.assert_allclose(mean, 3.0)
    assert np.all(std == 0)
    X, y = some(200, noise=0.2)
    both = process(bo.NearestNeighbours(20)).fit(X, np.stack([y, 10 * y], axis=1))
    assert both.amplitude_[1] == pytest.approx(100 * both.amplitude_[0], rel=1e-6)
    for found in both.predict(X[:5] + 0.01, return_std=True):
        np.testing.assert_allclose(found[:, 1], 10 * found[:, 0], rtol=1e-6)


# ==== Neighbours in the place of features: where a default takes them, and what it says of them.

KERNEL_ROUGH = Exponential(0.5)
process_rough = maker(bo.GaussianProcessRegressor, KERNEL_ROUGH, random_state=0)


@pytest.fixture
def few(monkeypatch):
    """More than 250 rows are many, and 24 features are what a default makes."""
    monkeypatch.setattr("bochner.models.route.DIRECT_ROWS", 250)
    monkeypatch.setattr("bochner.models.gaussian_process.neighbours.FEWEST_ROWS", 251)
    monkeypatch.setattr("bochner.selection.choices.WIDTH", 24)


def rough_draws(n=900, d=4, seed=0, targets=()):
    """Draws of the process, with little noise."""
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


@pytest.mark.usefixtures("few")
@pytest.mark.main_cases(1)
@pytest.mark.parametrize("d", [2, 4])
def test_rough_functions_of_few_columns_are_kriged_from_neighbours(d):
    """As they are by the method itself; the reason has the errors of rows left out, by hand."""
    X, y = rough_draws(d=d)
    new = np.random.default_rng(1).uniform(0, 1, (50, d))
    found = process_rough().fit(X, y)
    assert by_neighbours(found)
    given = process_rough(method=bo.NearestNeighbours(), lengthscale="loo").fit(X, y)
    for a, b in zip(
        found.predict(new, return_std=True), given.predict(new, return_std=True), strict=True
    ):
        np.testing.assert_array_equal(a, b)
    reason = found.choice_.reason
    assert reason.startswith("NearestNeighbours(): left-out rows are predicted from their 40")
    assert reason.endswith('method="auto" takes features.')
    own = np.argsort(found.sample_.priority, kind="stable")[512:]
    errors = [error_without(X, y, i, found.noise_variance_ / found.amplitude_) for i in own]
    said = float(reason.split("errors of ")[1].split()[0])
    assert said == pytest.approx(np.sqrt(np.mean(np.square(errors))) / y[own].std(), rel=0.01)
    features = process_rough(method="auto").fit(X, y)
    assert said < 0.95 * float(reason.split("against ")[1].split()[0])
    assert np.std(features.predict(new) - found.predict(new)) > 0


def error_without(X, y, i, share):
    """Return the error of ordinary kriging of a row from the forty nearest others."""
    order = np.argsort(((X - X[i]) ** 2).sum(axis=1), kind="stable")
    near = order[order != i][:40]
    K, k = KERNEL_ROUGH(X[near]) + share * np.eye(40), KERNEL_ROUGH(X[i : i + 1], X[near])
    return y[i] - naive.kriging(K, y[near], k, 1.0)[0].item()


@pytest.mark.main_cases(5)
@pytest.mark.usefixtures("few")
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
def test_what_has_features(d, options):
    X, y = smooth() if d == "smooth" else rough_draws(d=d)
    assert not by_neighbours(process_rough(**options).fit(X, y))


@pytest.mark.slow
@pytest.mark.usefixtures("few")
def test_intervals_and_further_rows_are_served():
    X, y = rough_draws(targets=(2,))
    new, _ = rough_draws(60, seed=3)
    found = process_rough().fit(X[:800], y[:800])
    mean, lower, upper = found.predict_interval(new, 0.9)
    assert np.all((lower < mean) & (mean < upper))
    more = found.partial_fit(X[800:], y[800:])
    assert more.rows_seen_ == 900
    assert by_neighbours(more)
