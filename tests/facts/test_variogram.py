"""Variograms: sums over pairs by a slow route, models that are known, refusals."""

from dataclasses import replace

import numpy as np
import pytest

import bochner as bo
from bochner import VariogramModel
from bochner.errors import InvalidInput, UnsupportedKernel
from bochner.kernels import Gaussian, Linear, Matern, OnSphere


def places(n, d=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 1, (n, d))
    return X, np.sin(5 * X[:, 0]) + 0.3 * rng.standard_normal(n)


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
    X, y = places(120)
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


def test_outliers_move_the_robust_one_little():
    X, y = places(400)
    spoiled = np.where(np.arange(400) % 50 == 0, y + 20, y)
    change = {
        name: bo.variogram(X, spoiled, estimator=name).gamma[0]
        / bo.variogram(X, y, estimator=name).gamma[0]
        for name in ("matheron", "cressie-hawkins")
    }
    assert change["matheron"] > 10
    assert change["cressie-hawkins"] < 4


@pytest.mark.parametrize("kernel", [Matern(1.5, 0.1), Gaussian((0.1, 0.2))], ids=repr)
def test_a_model_that_is_the_truth_is_found_again(kernel):
    found = bo.variogram(*places(300))
    given = found.fit(kernel)
    truth = type(given)(kernel, 2.0, 0.5, given.direction)
    exact = type(found)(found.lags, truth(found.lags), found.pairs, 2.5, "matheron", None, 2).fit(
        kernel
    )
    np.testing.assert_allclose(exact.kernel.lengthscale, kernel.lengthscale, rtol=1e-3)
    assert exact.nugget == pytest.approx(0.5, rel=1e-2)
    assert exact.sill == pytest.approx(2.5, rel=1e-2)
    assert truth(np.array([truth.range]))[0] == pytest.approx(2.5 - 0.05 * 2.0)
    assert "nugget 0.5, sill 2.5, range" in str(truth)


def test_anisotropy_shows_along_directions():
    X, _ = places(1500)
    y = np.sin(20 * X[:, 0])
    across, along = (bo.variogram(X, y, max_lag=0.1, direction=u) for u in ((1, 0), (0, 1)))
    assert across.gamma[-1] > 3 * along.gamma[-1]


def test_a_process_takes_what_was_fitted():
    X, y = places(500)
    model = bo.variogram(X, y).fit("matern52")
    process = bo.GaussianProcessRegressor(**model.parameters, method=bo.FourierGrid(1e-3)).fit(X, y)
    assert process.noise_variance_ == model.nugget
    assert process.score(X, y) > 0.8


def test_blocks_and_samples_are_read_too():
    X, y = places(600)
    blocks = bo.Blocks.from_arrays(X, y).with_rows(100)
    np.testing.assert_allclose(bo.variogram(blocks).gamma, bo.variogram(X, y).gamma)
    few = bo.variogram(X, y, n_sample=50, random_state=3)
    assert few.pairs.sum() < 50 * 49 / 2


def test_the_picture_shows_classes_and_model():
    found = bo.variogram(*places(200))
    ax = found.plot(model=found.fit())
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), found.gamma)
    assert len(ax.lines) == 3
    assert ax.get_xlabel() == "distance"


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"y": np.ones(30)}, "y must be one target that varies; got 1 targets of one value"),
        ({"y": np.ones((30, 2))}, "y must be one target that varies; got 2 targets"),
        ({"max_lag": 1e-9}, "some pairs of rows must be at most max_lag apart.*none of 30 rows"),
        ({"direction": (0, 0)}, r"direction must be a vector of 2 numbers.*got \(0, 0\)"),
        ({"direction": (1, 0, 0)}, "direction must be a vector of 2 numbers"),
        ({"estimator": "mean"}, "estimator must be"),
        ({"n_lags": 0}, "n_lags must be"),
        ({"max_lag": -1.0}, "max_lag must be"),
        ({"tolerance": 0.0}, "tolerance must be"),
        ({"X": np.full((30, 2), np.nan)}, "NaN|missing|finite"),
    ],
    ids=lambda given: "-".join(given) if isinstance(given, dict) else None,
)
def test_what_no_variogram_can_be_made_of_is_refused(given, sentence):
    X, y = places(30)
    asked = {"X": X, "y": y} | given
    with pytest.raises(InvalidInput, match=sentence):
        bo.variogram(asked.pop("X"), asked.pop("y"), **asked)


def test_rows_at_one_place_have_no_variogram():
    X, y = places(30)
    with pytest.raises(InvalidInput, match="at two places at least; got 30 rows at the same one"):
        bo.variogram(np.repeat(X[:1], 30, axis=0), y)


def test_kernels_without_a_lengthscale_are_refused():
    found = bo.variogram(*places(50))
    for kernel in (Linear(), "linear"):
        with pytest.raises(UnsupportedKernel, match="requires a kernel with a lengthscale"):
            found.fit(kernel)


# ---- the globe


def globe(n=150, seed=0):
    rng = np.random.default_rng(seed)
    X = np.stack([np.rad2deg(np.arcsin(rng.uniform(-1, 1, n))), rng.uniform(-180, 180, n)], axis=1)
    return X, np.sin(np.deg2rad(X[:, 0])) + 0.3 * rng.standard_normal(n)


def test_distances_on_the_globe_are_those_of_great_circles():
    """By the law of cosines, pair by pair; across 180 degrees of longitude too."""
    X, y = globe()
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
    X, y = globe()
    found = bo.variogram(X, y, metric="great-circle")
    truth = VariogramModel(OnSphere("matern32", 25.0), 2.0, 0.3, np.array([0.0, 1.0]))
    drawn = replace(found, gamma=truth(found.lags), variance=2.3)
    model = drawn.fit("matern32")
    assert isinstance(model.kernel, OnSphere)
    assert model.kernel.lengthscale == pytest.approx(25.0, rel=5e-3)
    assert (model.nugget, model.sill) == pytest.approx((0.3, 2.3), rel=0.03)
    at = model.range
    left = model.kernel([[0.0, 0.0]], [[0.0, at]])[0, 0]
    assert left == pytest.approx(0.05, abs=1e-6)
    assert 0 < at < 180
    assert replace(model, kernel=OnSphere("matern32", 500.0)).range == np.inf
    process = bo.GaussianProcessRegressor(**model.parameters, method=bo.SphericalHarmonics(20))
    assert process.fit(X, y).noise_variance_ == pytest.approx(0.3, rel=0.5)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"direction": (0, 1)}, r"direction is a vector of the plane.*got \(0, 1\)"),
        ({"X": np.full((150, 2), 95.0)}, "latitude, the first column, must lie within -90 to 90"),
        ({"X": np.zeros((150, 3))}, r"rows must be \(latitude, longitude\) in degrees"),
        ({"metric": "haversine"}, "metric must be"),
    ],
    ids=["direction", "latitude", "columns", "metric"],
)
def test_what_is_not_on_the_globe_is_refused(given, sentence):
    X, y = globe()
    asked = {"X": X, "y": y, "metric": "great-circle"} | given
    with pytest.raises(InvalidInput, match=sentence):
        bo.variogram(asked.pop("X"), asked.pop("y"), **asked)


def test_kernels_of_the_plane_are_refused_on_the_globe():
    found = bo.variogram(*globe(), metric="great-circle")
    for kernel in (Gaussian(), "laplace", OnSphere() + OnSphere()):
        with pytest.raises(UnsupportedKernel, match="OnSphere"):
            found.fit(kernel)
