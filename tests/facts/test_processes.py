"""Gaussian processes: scores, trends, averages over cells, variograms."""

from dataclasses import replace

import naive
import numpy as np
import pytest
from gallery import globe
from gallery import unit_table as places
from scipy.integrate import quad
from scipy.stats import norm
from sklearn.model_selection import KFold, cross_validate

import bochner as bo
from bochner import VariogramModel
from bochner.kernels import Columns, Gaussian, Matern, OnSphere

# ==== Scores of normal laws: closed forms compared with integrals, and cross-validated scores.


def normal_draws(m=40, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=m), rng.normal(size=m), rng.uniform(0.3, 2.0, m)


def test_scores_equal_their_integrals_and_pool_all_targets():
    y, mean, deviation = normal_draws()
    scores = bo.normal_scores(y, mean, deviation, coverages=(0.5, 0.9))
    crps, density = [], []
    for value, mu, s in zip(y, mean, deviation, strict=True):
        law = norm(mu, s)
        lower = quad(lambda t, law=law: law.cdf(t) ** 2, mu - 12 * s, value)[0]
        upper = quad(lambda t, law=law: law.sf(t) ** 2, value, mu + 12 * s)[0]
        crps.append(lower + upper)
        density.append(np.log(law.pdf(value)))
    assert scores.crps == pytest.approx(np.mean(crps), rel=1e-7)
    assert scores.log_density == pytest.approx(np.mean(density), rel=1e-12)
    assert scores.rmse == pytest.approx(np.sqrt(np.mean((y - mean) ** 2)))
    assert scores.bias == pytest.approx(np.mean(mean - y))
    assert scores.z_variance == pytest.approx(np.mean(((y - mean) / deviation) ** 2))
    for share, covered in scores.coverage:
        low, high = norm(mean, deviation).interval(share)
        assert covered == np.mean((low <= y) & (y <= high))
    scores = bo.normal_scores(y, mean, deviation)
    assert scores == bo.normal_scores(*(a.reshape(20, 2) for a in (y, mean, deviation)))
    assert str(scores).splitlines()[-1] == f"95% covers   {scores.coverage[-1][1]:.1%}"


def test_cross_validated_scores_equal_those_of_refits():
    X, y = places(120, noise=0.3)
    process = bo.GaussianProcessRegressor(Gaussian(0.4), noise=0.04, amplitude=1.0)
    split = KFold(4)
    scores = cross_validate(process, X, y, scoring=bo.predictive_scorer, cv=split)
    values_of = {name.removeprefix("test_"): values.mean() for name, values in scores.items()}
    mean, variance = np.empty(120), np.empty(120)
    for train, test in split.split(X):
        K, k = Gaussian(0.4)(X[train]), Gaussian(0.4)(X[test], X[train])
        law = naive.kriging(K + 0.04 * np.eye(len(train)), y[train], k, 1.0)
        mean[test], variance[test] = law[0], law[1] ** 2 + 0.04
    expected = bo.normal_scores(y, mean, np.sqrt(variance))
    assert values_of["crps"] == pytest.approx(expected.crps, rel=1e-6)
    assert values_of["log_density"] == pytest.approx(expected.log_density, rel=1e-6)
    assert values_of["coverage_0.9"] == pytest.approx(dict(expected.coverage)[0.9])


# ==== Universal kriging, compared with the matrices of its definition.

NOISE, AMPLITUDE = 0.05, 1.5
KERNEL = Matern(1.5, 0.3)
LAW = {"method": "exact", "noise": NOISE, "amplitude": AMPLITUDE}
PROCESS = bo.GaussianProcessRegressor(KERNEL, **LAW)


def rows(n=200, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 1, (n, 2))
    y = 3 + 4 * X[:, 0] - 2 * X[:, 1] + np.sin(9 * X[:, 0] * X[:, 1])
    return X, y + 0.2 * rng.standard_normal(n)


def by_hand(columns, X, y, new):
    """Return mean, deviation, coefficients (the constant first) and their precision."""
    K, k = AMPLITUDE * KERNEL(X) + NOISE * np.eye(len(y)), AMPLITUDE * KERNEL(new, X)
    return naive.kriging(K, y, k, AMPLITUDE, columns(X), columns(new))


def linear(X):
    return np.column_stack([np.ones(len(X)), X])


def quadratic(X):
    return np.column_stack([linear(X), X**2, X[:, 0] * X[:, 1]])


def waves(X):
    return np.column_stack([np.ones(len(X)), np.cos(X[:, 0]), np.exp(X[:, 1])])


@pytest.mark.parametrize(
    ("trend", "columns"),
    [("linear", linear), ("quadratic", quadratic), (lambda X: waves(X)[:, 1:], waves)],
    ids=["linear", "quadratic", "columns"],
)
def test_universal_kriging_is_generalised_least_squares(trend, columns):
    X, y = rows()
    new = np.random.default_rng(1).uniform(-0.3, 1.3, (50, 2))
    model = bo.universal_kriging(PROCESS, X, y, trend)
    mean, std = model.predict(new, return_std=True)
    expected = by_hand(columns, X, y, new)
    np.testing.assert_allclose(mean, expected[0], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(std, expected[1], rtol=1e-5)
    np.testing.assert_array_equal(model.predict(new), mean)
    _, of_new = model.predict(new, return_std=True, include_noise=True)
    np.testing.assert_allclose(of_new**2, std**2 + NOISE)


def test_trends_have_coefficients_with_covariance_and_extrapolate(tmp_path):
    X, y = rows()
    model = bo.universal_kriging(PROCESS, X, y)
    _, _, beta, S = by_hand(linear, X, y, X[:1])
    per_column = model.columns.deviation
    np.testing.assert_allclose(model.coef / per_column, beta[1:], rtol=1e-6)
    by_columns = model.coef_covariance / np.outer(per_column, per_column)
    np.testing.assert_allclose(by_columns, np.linalg.inv(S)[1:, 1:], rtol=1e-5)
    row = np.array([[3.0, 0.5]])
    assert model.predict(row)[0] > 10
    bo.save(model, tmp_path / "process.bochner")
    loaded = bo.load(tmp_path / "process.bochner")
    np.testing.assert_array_equal(loaded.predict(row), model.predict(row))
    assert PROCESS.fit(X, y).predict(row)[0] < 6


# ==== Averages over cells, compared with sums over many places of the exact process.

LOW, HIGH = np.array([[0.1, 0.2], [0.5, 0.0]]), np.array([[0.4, 0.6], [0.9, 0.3]])
FIXED = {"noise": 0.05, "amplitude": 1.5}


def by_hand_averages(kernel, X, y, low, high, weigh=lambda places: np.ones(len(places)), places=30):
    """Return mean and deviation of a cell average, from midpoints of the exact process."""
    shares = (np.arange(places) + 0.5) / places
    axes = [a + (b - a) * shares for a, b in zip(low, high, strict=True)]
    at = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(low))
    w = weigh(at) / weigh(at).sum()
    a2, n = FIXED["amplitude"], len(y)
    K, k = a2 * kernel(X) + FIXED["noise"] * np.eye(n), a2 * w @ kernel(at, X)
    mean, deviation, *_ = naive.kriging(K, y, k[None], a2 * w @ kernel(at) @ w)
    return mean.item(), deviation.item()


@pytest.mark.parametrize("method", ["exact", bo.FourierGrid(1e-8)], ids=["exact", "grid"])
def test_cell_averages_equal_averages_over_many_places(method):
    X, y = places(150, noise=0.3)
    kernel = Gaussian(0.3)
    process = bo.GaussianProcessRegressor(kernel, method=method, **FIXED).fit(X, y)
    mean, std = bo.cell_averages(process, LOW, HIGH, nodes=5, return_std=True)
    for i in range(2):
        expected = by_hand_averages(kernel, X, y, LOW[i], HIGH[i])
        assert (mean[i], std[i]) == pytest.approx(expected, rel=5e-3)
    np.testing.assert_array_equal(mean, bo.cell_averages(process, LOW, HIGH, nodes=5))


@pytest.mark.parametrize("d", [2, 3], ids=["place", "place and time"])
def test_cells_of_the_globe_are_weighted_by_area(d):
    (X, y), kernel = globe(200), OnSphere("gaussian", 40.0)
    X = np.column_stack([np.linspace(0, 5, 200), X])[:, 3 - d :]
    kernel = Columns(kernel, (d - 2, d - 1)) * (Columns(Gaussian(4.0), (0,)) if d == 3 else 1.0)
    process = bo.GaussianProcessRegressor(kernel, method="exact", **FIXED).fit(X, y)
    low, high = np.array([[1.0, 20.0, 0.0]])[:, 3 - d :], np.array([[2.0, 80.0, 40.0]])[:, 3 - d :]
    mean, std = bo.cell_averages(process, low, high, nodes=6, return_std=True)
    area = lambda at: np.cos(np.deg2rad(at[:, d - 2]))
    expected = by_hand_averages(kernel, X, y, low[0], high[0], area, 30 if d == 2 else 10)
    assert (mean[0], std[0]) == pytest.approx(expected, rel=2e-3)


# ==== Variograms: sums over pairs by loops, and models with known parameters.


def pairs_of(X, y, longest, n_lags, unit=None, degrees=22.5):
    """Return arrays of (distance, difference) for each lag, by a loop over pairs."""
    lags = [[] for _ in range(n_lags)]
    for i in range(len(X)):
        for j in range(i):
            step = X[i] - X[j]
            h = np.sqrt(step @ step)
            in_cone = unit is None or abs(step @ unit) >= np.cos(np.radians(degrees)) * h
            if h <= longest and in_cone:
                lags[min(int(n_lags * h / longest), n_lags - 1)].append((h, y[i] - y[j]))
    return [np.array(pairs) for pairs in lags]


@pytest.mark.parametrize("direction", [None, (1.0, 1.0)], ids=["any", "diagonal"])
@pytest.mark.parametrize("estimator", ["matheron", "cressie-hawkins"])
def test_the_variogram_equals_a_loop_over_all_pairs(estimator, direction):
    X, y = places(120, noise=0.3)
    result = bo.variogram(X, y, n_lags=6, max_lag=0.6, estimator=estimator, direction=direction)
    unit = None if direction is None else np.array(direction) / np.sqrt(2)
    for at, pairs in enumerate(pairs_of(X, y, 0.6, 6, unit)):
        h, change = pairs.T
        n = len(pairs)
        mean = 0.5 * np.mean(change**2)
        robust = 0.5 * np.mean(np.abs(change) ** 0.5) ** 4 / (0.457 + 0.494 / n + 0.045 / n**2)
        assert result.pairs[at] == n
        assert result.lags[at] == pytest.approx(h.mean())
        assert result.gamma[at] == pytest.approx(mean if estimator == "matheron" else robust)
    assert result.variance == pytest.approx(y.var())


@pytest.mark.parametrize("kernel", [Matern(1.5, 0.1), Gaussian((0.1, 0.2))], ids=repr)
def test_a_fit_recovers_the_parameters_of_an_exact_variogram(kernel):
    empirical = bo.variogram(*places(300, noise=0.3))
    model = empirical.fit(kernel)
    truth = type(model)(kernel, 2.0, 0.5, model.direction)
    fields = empirical.pairs, 2.5, "matheron", None, 2
    exact = type(empirical)(empirical.lags, truth(empirical.lags), *fields).fit(kernel)
    np.testing.assert_allclose(exact.kernel.lengthscale, kernel.lengthscale, rtol=1e-3)
    assert exact.nugget == pytest.approx(0.5, rel=1e-2)
    assert exact.sill == pytest.approx(2.5, rel=1e-2)
    assert truth(np.array([truth.range]))[0] == pytest.approx(2.5 - 0.05 * 2.0)
    assert "nugget 0.5, sill 2.5, range" in str(truth)


def test_variograms_take_blocks_samples_and_directions():
    X, y = places(600, noise=0.3)
    blocks = bo.Blocks.from_arrays(X, y).with_rows(100)
    result = bo.variogram(X, y)
    np.testing.assert_allclose(bo.variogram(blocks).gamma, result.gamma)
    assert bo.variogram(X, y, n_sample=50, random_state=3).pairs.sum() < 50 * 49 / 2
    model = result.fit("matern52")
    process = bo.GaussianProcessRegressor(**model.parameters, method=bo.FourierGrid(1e-3)).fit(X, y)
    assert process.noise_variance_ == model.nugget
    assert process.score(X, y) > 0.8
    X, _ = places(1500, noise=0.3)
    perpendicular, parallel = (
        bo.variogram(X, np.sin(20 * X[:, 0]), max_lag=0.1, direction=u) for u in ((1, 0), (0, 1))
    )
    assert perpendicular.gamma[-1] > 3 * parallel.gamma[-1]


def test_distances_on_the_globe_are_great_circles():
    """By the law of cosines for all pairs; also across 180 degrees of longitude."""
    X, y = globe(150)
    result = bo.variogram(X, y, n_lags=5, max_lag=60.0, metric="great-circle")
    lat, lon = np.deg2rad(X).T
    cosine = np.sin(lat[:, None]) * np.sin(lat)
    cosine += np.cos(lat[:, None]) * np.cos(lat) * np.cos(lon[:, None] - lon)
    i, j = np.tril_indices(150, -1)
    h, change = np.degrees(np.arccos(np.clip(cosine[i, j], -1, 1))), y[i] - y[j]
    for at in range(5):
        mask = (h >= 12 * at) & (h < 12 * (at + 1))
        assert result.pairs[at] == mask.sum()
        assert result.lags[at] == pytest.approx(h[mask].mean())
        assert result.gamma[at] == pytest.approx(0.5 * np.mean(change[mask] ** 2))
    east = np.array([0, 77.0])
    rotated = bo.variogram(X + east, y, n_lags=5, max_lag=60.0, metric="great-circle")
    np.testing.assert_allclose(rotated.gamma, result.gamma)
    assert bo.variogram(X, y, metric="great-circle").lags[-1] <= 90


def test_a_fit_recovers_the_parameters_of_a_variogram_on_the_globe():
    X, y = globe(150)
    empirical = bo.variogram(X, y, metric="great-circle")
    truth = VariogramModel(OnSphere("matern32", 25.0), 2.0, 0.3, np.array([0.0, 1.0]))
    model = replace(empirical, gamma=truth(empirical.lags), variance=2.3).fit("matern32")
    assert isinstance(model.kernel, OnSphere)
    assert model.kernel.lengthscale == pytest.approx(25.0, rel=5e-3)
    assert (model.nugget, model.sill) == pytest.approx((0.3, 2.3), rel=0.03)
    at = model.range
    assert model.kernel([[0.0, 0.0]], [[0.0, at]])[0, 0] == pytest.approx(0.05, abs=1e-6)
    assert 0 < at < 180
    assert replace(model, kernel=OnSphere("matern32", 500.0)).range == np.inf
    process = bo.GaussianProcessRegressor(**model.parameters, method=bo.SphericalHarmonics(20))
    assert process.fit(X, y).noise_variance_ == pytest.approx(0.3, rel=0.5)
