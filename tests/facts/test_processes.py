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
from bochner.kernels import Gaussian, Matern, OnSphere

# ==== Scores of normal laws: closed forms against their integrals, and processes that are true.


def drawn(m=40, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=m), rng.normal(size=m), rng.uniform(0.3, 2.0, m)


def test_scores_are_their_integrals_and_counts_of_all_targets():
    y, mean, deviation = drawn()
    found = bo.normal_scores(y, mean, deviation, coverages=(0.5, 0.9))
    crps, density = [], []
    for value, mu, s in zip(y, mean, deviation, strict=True):
        law = norm(mu, s)
        below = quad(lambda t, law=law: law.cdf(t) ** 2, mu - 12 * s, value)[0]
        above = quad(lambda t, law=law: law.sf(t) ** 2, value, mu + 12 * s)[0]
        crps.append(below + above)
        density.append(np.log(law.pdf(value)))
    assert found.crps == pytest.approx(np.mean(crps), rel=1e-7)
    assert found.log_density == pytest.approx(np.mean(density), rel=1e-12)
    assert found.rmse == pytest.approx(np.sqrt(np.mean((y - mean) ** 2)))
    assert found.bias == pytest.approx(np.mean(mean - y))
    assert found.z_variance == pytest.approx(np.mean(((y - mean) / deviation) ** 2))
    for share, covered in found.coverage:
        low, high = norm(mean, deviation).interval(share)
        assert covered == np.mean((low <= y) & (y <= high))
    found = bo.normal_scores(y, mean, deviation)
    assert found == bo.normal_scores(*(a.reshape(20, 2) for a in (y, mean, deviation)))
    assert str(found).splitlines()[-1] == f"95% covers   {found.coverage[-1][1]:.1%}"


def test_cross_validated_scores_are_those_of_fits_without_each_fold():
    X, y = places(120, noise=0.3)
    process = bo.GaussianProcessRegressor(Gaussian(0.4), noise=0.04, amplitude=1.0)
    split = KFold(4)
    scores = cross_validate(process, X, y, scoring=bo.predictive_scorer, cv=split)
    found = {name.removeprefix("test_"): values.mean() for name, values in scores.items()}
    mean, variance = np.empty(120), np.empty(120)
    for train, held in split.split(X):
        K, k = Gaussian(0.4)(X[train]), Gaussian(0.4)(X[held], X[train])
        law = naive.kriging(K + 0.04 * np.eye(len(train)), y[train], k, 1.0)
        mean[held], variance[held] = law[0], law[1] ** 2 + 0.04
    by_hand = bo.normal_scores(y, mean, np.sqrt(variance))
    assert found["crps"] == pytest.approx(by_hand.crps, rel=1e-6)
    assert found["log_density"] == pytest.approx(by_hand.log_density, rel=1e-6)
    assert found["coverage_0.9"] == pytest.approx(dict(by_hand.coverage)[0.9])


# ==== Universal kriging: by one fit with more targets, and by the matrices of its definition.

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
    """Mean, deviation, coefficients (that of the constant first) and their precision."""
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
def test_it_is_generalised_least_squares(trend, columns):
    X, y = rows()
    new = np.random.default_rng(1).uniform(-0.3, 1.3, (50, 2))
    found = bo.universal_kriging(PROCESS, X, y, trend)
    mean, std = found.predict(new, return_std=True)
    expected = by_hand(columns, X, y, new)
    np.testing.assert_allclose(mean, expected[0], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(std, expected[1], rtol=1e-5)
    np.testing.assert_array_equal(found.predict(new), mean)
    _, of_new = found.predict(new, return_std=True, include_noise=True)
    np.testing.assert_allclose(of_new**2, std**2 + NOISE)


def test_coefficients_and_their_covariance_and_a_trend_that_is_carried_on(tmp_path):
    X, y = rows()
    found = bo.universal_kriging(PROCESS, X, y)
    _, _, beta, S = by_hand(linear, X, y, X[:1])
    per_column = found.columns.deviation
    np.testing.assert_allclose(found.coef / per_column, beta[1:], rtol=1e-6)
    by_columns = found.coef_covariance / np.outer(per_column, per_column)
    np.testing.assert_allclose(by_columns, np.linalg.inv(S)[1:, 1:], rtol=1e-5)
    far = np.array([[3.0, 0.5]])
    assert found.predict(far)[0] > 10
    bo.save(found, tmp_path / "process.bochner")
    loaded = bo.load(tmp_path / "process.bochner")
    np.testing.assert_array_equal(loaded.predict(far), found.predict(far))
    assert PROCESS.fit(X, y).predict(far)[0] < 6


# ==== Averages over cells: against sums over many places of the exact process, and drawn functions.

LOW, HIGH = np.array([[0.1, 0.2], [0.5, 0.0]]), np.array([[0.4, 0.6], [0.9, 0.3]])
GIVEN = {"noise": 0.05, "amplitude": 1.5}


def by_hand_averages(kernel, X, y, low, high, weigh=lambda places: np.ones(len(places)), places=30):
    """Mean and deviation over cells of midpoints of the exact process of unknown mean."""
    shares = (np.arange(places) + 0.5) / places
    axes = [a + (b - a) * shares for a, b in zip(low, high, strict=True)]
    at = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
    w = weigh(at) / weigh(at).sum()
    a2, n = GIVEN["amplitude"], len(y)
    K, k = a2 * kernel(X) + GIVEN["noise"] * np.eye(n), a2 * w @ kernel(at, X)
    mean, deviation, *_ = naive.kriging(K, y, k[None], a2 * w @ kernel(at) @ w)
    return mean.item(), deviation.item()


@pytest.mark.parametrize("method", ["exact", bo.FourierGrid(1e-8)], ids=["exact", "grid"])
def test_averages_are_those_of_many_places(method):
    X, y = places(150, noise=0.3)
    kernel = Gaussian(0.3)
    process = bo.GaussianProcessRegressor(kernel, method=method, **GIVEN).fit(X, y)
    mean, std = bo.cell_averages(process, LOW, HIGH, nodes=5, return_std=True)
    for i in range(2):
        expected = by_hand_averages(kernel, X, y, LOW[i], HIGH[i])
        assert mean[i] == pytest.approx(expected[0], abs=1e-3)
        assert std[i] == pytest.approx(expected[1], rel=1e-2)
    np.testing.assert_array_equal(mean, bo.cell_averages(process, LOW, HIGH, nodes=5))


def test_cells_of_the_globe_are_weighed_by_area():
    (X, y), kernel = globe(200), OnSphere("gaussian", 40.0)
    process = bo.GaussianProcessRegressor(kernel, method="exact", **GIVEN).fit(X, y)
    low, high = np.array([[20.0, 0.0]]), np.array([[80.0, 40.0]])
    mean, std = bo.cell_averages(process, low, high, nodes=6, return_std=True)
    area = lambda at: np.cos(np.deg2rad(at[:, 0]))
    expected = by_hand_averages(kernel, X, y, low[0], high[0], area)
    assert mean[0] == pytest.approx(expected[0], abs=1e-3)
    assert std[0] == pytest.approx(expected[1], rel=1e-2)


# ==== Variograms: sums over pairs by a slow route, models that are known, refusals.


def pairs_of(X, y, longest, n_lags, unit=None, degrees=22.5):
    """Lists of (distance, difference) by class, pair by pair."""
    found = [[] for _ in range(n_lags)]
    for i in range(len(X)):
        for j in range(i):
            step = X[i] - X[j]
            h = np.sqrt(step @ step)
            along = unit is None or abs(step @ unit) >= np.cos(np.radians(degrees)) * h
            if h <= longest and along:
                found[min(int(n_lags * h / longest), n_lags - 1)].append((h, y[i] - y[j]))
    return [np.array(pairs) for pairs in found]


@pytest.mark.parametrize("direction", [None, (1.0, 1.0)], ids=["any", "diagonal"])
@pytest.mark.parametrize("estimator", ["matheron", "cressie-hawkins"])
def test_the_variogram_is_that_of_all_pairs(estimator, direction):
    X, y = places(120, noise=0.3)
    found = bo.variogram(X, y, n_lags=6, max_lag=0.6, estimator=estimator, direction=direction)
    unit = None if direction is None else np.array(direction) / np.sqrt(2)
    for at, pairs in enumerate(pairs_of(X, y, 0.6, 6, unit)):
        h, change = pairs.T
        n = len(pairs)
        mean = 0.5 * np.mean(change**2)
        robust = 0.5 * np.mean(np.abs(change) ** 0.5) ** 4 / (0.457 + 0.494 / n + 0.045 / n**2)
        assert found.pairs[at] == n
        assert found.lags[at] == pytest.approx(h.mean())
        assert found.gamma[at] == pytest.approx(mean if estimator == "matheron" else robust)
    assert found.variance == pytest.approx(y.var())


@pytest.mark.parametrize("kernel", [Matern(1.5, 0.1), Gaussian((0.1, 0.2))], ids=repr)
def test_a_model_that_is_the_truth_is_found_again(kernel):
    found = bo.variogram(*places(300, noise=0.3))
    given = found.fit(kernel)
    truth = type(given)(kernel, 2.0, 0.5, given.direction)
    rest = found.pairs, 2.5, "matheron", None, 2
    exact = type(found)(found.lags, truth(found.lags), *rest).fit(kernel)
    np.testing.assert_allclose(exact.kernel.lengthscale, kernel.lengthscale, rtol=1e-3)
    assert exact.nugget == pytest.approx(0.5, rel=1e-2)
    assert exact.sill == pytest.approx(2.5, rel=1e-2)
    assert truth(np.array([truth.range]))[0] == pytest.approx(2.5 - 0.05 * 2.0)
    assert "nugget 0.5, sill 2.5, range" in str(truth)


def test_blocks_samples_directions_and_processes_are_served():
    X, y = places(600, noise=0.3)
    blocks = bo.Blocks.from_arrays(X, y).with_rows(100)
    found = bo.variogram(X, y)
    np.testing.assert_allclose(bo.variogram(blocks).gamma, found.gamma)
    assert bo.variogram(X, y, n_sample=50, random_state=3).pairs.sum() < 50 * 49 / 2
    model = found.fit("matern52")
    process = bo.GaussianProcessRegressor(**model.parameters, method=bo.FourierGrid(1e-3)).fit(X, y)
    assert process.noise_variance_ == model.nugget
    assert process.score(X, y) > 0.8
    X, _ = places(1500, noise=0.3)
    across, along = (
        bo.variogram(X, np.sin(20 * X[:, 0]), max_lag=0.1, direction=u) for u in ((1, 0), (0, 1))
    )
    assert across.gamma[-1] > 3 * along.gamma[-1]


def test_distances_on_the_globe_are_those_of_great_circles():
    """By the law of cosines, pair by pair; across 180 degrees of longitude too."""
    X, y = globe(150)
    found = bo.variogram(X, y, n_lags=5, max_lag=60.0, metric="great-circle")
    lat, lon = np.deg2rad(X).T
    cosine = np.sin(lat[:, None]) * np.sin(lat)
    cosine += np.cos(lat[:, None]) * np.cos(lat) * np.cos(lon[:, None] - lon)
    i, j = np.tril_indices(150, -1)
    h, change = np.degrees(np.arccos(np.clip(cosine[i, j], -1, 1))), y[i] - y[j]
    for at in range(5):
        some = (h >= 12 * at) & (h < 12 * (at + 1))
        assert found.pairs[at] == some.sum()
        assert found.lags[at] == pytest.approx(h[some].mean())
        assert found.gamma[at] == pytest.approx(0.5 * np.mean(change[some] ** 2))
    east = np.array([0, 77.0])
    turned = bo.variogram(X + east, y, n_lags=5, max_lag=60.0, metric="great-circle")
    np.testing.assert_allclose(turned.gamma, found.gamma)
    assert bo.variogram(X, y, metric="great-circle").lags[-1] <= 90


def test_a_model_of_the_globe_is_found_again():
    X, y = globe(150)
    found = bo.variogram(X, y, metric="great-circle")
    truth = VariogramModel(OnSphere("matern32", 25.0), 2.0, 0.3, np.array([0.0, 1.0]))
    model = replace(found, gamma=truth(found.lags), variance=2.3).fit("matern32")
    assert isinstance(model.kernel, OnSphere)
    assert model.kernel.lengthscale == pytest.approx(25.0, rel=5e-3)
    assert (model.nugget, model.sill) == pytest.approx((0.3, 2.3), rel=0.03)
    at = model.range
    assert model.kernel([[0.0, 0.0]], [[0.0, at]])[0, 0] == pytest.approx(0.05, abs=1e-6)
    assert 0 < at < 180
    assert replace(model, kernel=OnSphere("matern32", 500.0)).range == np.inf
    process = bo.GaussianProcessRegressor(**model.parameters, method=bo.SphericalHarmonics(20))
    assert process.fit(X, y).noise_variance_ == pytest.approx(0.3, rel=0.5)
