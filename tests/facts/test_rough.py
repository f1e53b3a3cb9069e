"""Neighbours in the place of features: where a default takes them, and what it says of them."""

import numpy as np
import pytest

import bochner as bo
from bochner.errors import InvalidInput
from bochner.kernels import Exponential, Gaussian, Linear

KERNEL = Exponential(0.5)


@pytest.fixture(autouse=True)
def few(monkeypatch):
    """More than 250 rows are many, and 24 features are what a default makes."""
    monkeypatch.setattr("bochner.models.gaussian_process.regressor.DIRECT_ROWS", 250)
    monkeypatch.setattr("bochner.models.gaussian_process.rough.FEWEST_ROWS", 251)
    monkeypatch.setattr("bochner.selection.chosen.WIDTH", 24)


def rough(n=900, d=4, seed=0, targets=()):
    """Draws of the process, with little noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 1, (n, d))
    root = np.linalg.cholesky(KERNEL(X) + 1e-4 * np.eye(n))
    return X, root @ rng.standard_normal((n, *targets))


def smooth(n=900, d=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 1, (n, d))
    return X, X @ np.arange(1, d + 1) + rng.standard_normal(n)


def process(kernel=KERNEL, **options):
    return bo.GaussianProcessRegressor(kernel, random_state=0, **options)


def by_neighbours(model):
    return isinstance(model.choice_.method, bo.NearestNeighbours)


@pytest.mark.main_cases(1)
@pytest.mark.parametrize("d", [2, 4])
def test_rough_functions_of_few_columns_are_kriged_from_neighbours(d):
    """As they are by the method itself; the reason has the errors of rows left out, by hand."""
    X, y = rough(d=d)
    new = np.random.default_rng(1).uniform(0, 1, (50, d))
    found = process().fit(X, y)
    assert by_neighbours(found)
    given = process(method=bo.NearestNeighbours(), lengthscale="loo").fit(X, y)
    for a, b in zip(
        found.predict(new, return_std=True), given.predict(new, return_std=True), strict=True
    ):
        np.testing.assert_array_equal(a, b)
    reason = found.choice_.reason
    assert reason.startswith(
        "NearestNeighbours(): rows left out are predicted from their 40 nearest"
    )
    assert reason.endswith('method="auto" takes features.')
    own = np.argsort(found.sample_.priority, kind="stable")[512:]
    errors = [error_without(X, y, i, found.noise_variance_ / found.amplitude_) for i in own]
    said = float(reason.split("errors of ")[1].split()[0])
    assert said == pytest.approx(np.sqrt(np.mean(np.square(errors))) / y[own].std(), rel=0.01)
    features = process(method="auto").fit(X, y)
    before = float(reason.split("against ")[1].split()[0])
    assert said < 0.95 * before
    assert np.std(features.predict(new) - found.predict(new)) > 0


def error_without(X, y, i, share):
    """Return the error of ordinary kriging of a row from the forty nearest others."""
    order = np.argsort(((X - X[i]) ** 2).sum(axis=1), kind="stable")
    near = order[order != i][:40]
    A = np.ones((41, 41))
    A[:40, :40] = KERNEL(X[near]) + share * np.eye(40)
    A[40, 40] = 0
    weights = np.linalg.solve(A, np.append(KERNEL(X[near], X[i : i + 1])[:, 0], 1))
    return y[i] - weights[:40] @ y[near]


def test_smooth_functions_keep_features():
    X, y = smooth()
    found, features = (process(Gaussian(2.0), **o).fit(X, y) for o in ({}, {"method": "auto"}))
    assert not by_neighbours(found)
    assert found.choice_.reason == features.choice_.reason
    np.testing.assert_array_equal(found.predict(X), features.predict(X))


@pytest.mark.parametrize(
    ("d", "options"),
    [
        (5, {}),
        (4, {"method": "auto"}),
        (4, {"n_features": 24}),
        (4, {"precision": "float64"}),
        (4, {"kernel": Linear()}),
        (4, {"kernel": "gaussian", "metric": "learned"}),
    ],
    ids=["five columns", "auto", "features", "precision", "not stationary", "metric"],
)
def test_what_has_features(d, options):
    X, y = rough(d=d)
    assert not by_neighbours(process(**options).fit(X, y))


@pytest.mark.slow
def test_a_default_chooses_among_rough_families():
    X, y = rough()
    found = process("auto").fit(X, y)
    assert by_neighbours(found)
    new, _ = rough(100, seed=5)
    assert np.isfinite(found.predict(new, return_std=True)).all()


@pytest.mark.slow
def test_lengthscales_of_a_kernel_by_name_are_those_that_suit_neighbours():
    """Features that cannot follow the function take another lengthscale for noise."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (900, 3))
    y = np.sin(12 * X[:, 0]) * np.cos(9 * X[:, 1]) + np.sin(8 * X[:, 2])
    found, features = (process("matern32", **o).fit(X, y) for o in ({}, {"method": "auto"}))
    assert by_neighbours(found)
    assert found.kernel_ != features.kernel_
    held = process(features.kernel_, method=bo.NearestNeighbours()).fit(X, y)
    new = rng.uniform(0, 1, (500, 3))
    f = np.sin(12 * new[:, 0]) * np.cos(9 * new[:, 1]) + np.sin(8 * new[:, 2])
    assert np.std(found.predict(new) - f) < 0.9 * np.std(held.predict(new) - f)


def test_few_rows_in_memory_and_constant_targets_keep_features(monkeypatch):
    X, y = rough()
    assert not by_neighbours(process().fit(X, np.ones(len(y))))
    monkeypatch.setattr("bochner.models.gaussian_process.rough.MOST_CELLS", 1000)
    assert not by_neighbours(process().fit(X, y))


def test_intervals_files_blocks_and_further_rows_are_served(tmp_path):
    X, y = rough(targets=(2,))
    new, _ = rough(60, seed=3)
    found = process().fit(X[:800], y[:800])
    assert by_neighbours(found)
    mean, lower, upper = found.predict_interval(new, 0.9)
    assert np.all((lower < mean) & (mean < upper))
    bo.save(found, tmp_path / "m.bochner")
    again = bo.load(tmp_path / "m.bochner")
    assert again.choice_.reason == found.choice_.reason
    np.testing.assert_array_equal(again.predict(new), found.predict(new))
    blocks = process().fit_blocks(bo.Blocks.from_arrays(X[:800], y[:800], block_rows=93))
    np.testing.assert_allclose(blocks.predict(new), found.predict(new), rtol=1e-8)
    with pytest.raises(InvalidInput, match=r"has no functions\. Fit with a method that makes"):
        found.sample_functions(2)
    more = found.partial_fit(X[800:], y[800:])
    assert more.rows_seen_ == 900
    assert by_neighbours(more)
