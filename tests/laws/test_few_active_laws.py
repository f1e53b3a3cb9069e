"""Regressions by losses whose slopes jump, where features are more than the rows that count."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.svm import SVR as Decomposition

import bochner as bo
from bochner.kernels import Gaussian

RNG = np.random.default_rng(0)
X = RNG.uniform(-2, 2, (150, 2))
Y = np.sin(2 * X[:, 0]) + 0.3 * RNG.standard_normal(150)
W = RNG.uniform(0.5, 2, 150)
KERNEL = Gaussian(0.8)


@pytest.mark.parametrize("w", [None, W], ids=["alike", "weighted"])
@pytest.mark.parametrize("D", [64, 1024])
def test_systems_of_rows_and_of_features_find_the_same_minimum(D, w):
    """LIBSVM on Z Zᵀ: with 1,024 features every step solves a system of its active rows."""
    options = dict(method="orthogonal", n_features=D, tol=1e-8, random_state=0)
    ours = bo.SVR(KERNEL, C=2.0, epsilon=0.1, **options).fit(X, Y, w)
    Z = ours.map_(X)
    theirs = Decomposition(kernel="precomputed", C=2.0, epsilon=0.1, tol=1e-10)
    theirs.fit(Z @ Z.T, Y, w)
    assert np.abs(ours.predict(X) - theirs.predict(Z @ Z.T)).max() < 1e-5
    assert ours.solution_.gap <= 1e-8 * ours.solution_.objective


def test_without_an_intercept():
    options = dict(method="orthogonal", tol=1e-10, random_state=0, loss="absolute", alpha=0.5)
    model = bo.KernelRegressor(KERNEL, n_features=1024, fit_intercept=False, **options).fit(X, Y)
    assert model.intercept_ == 0
    found = model.solution_.objective
    for direction in np.random.default_rng(1).standard_normal((20, 1024)):
        coef = model.coef_ + 1e-3 * direction
        value = np.abs(Y - model.map_(X) @ coef).sum() + 0.25 * coef @ coef
        assert value >= found * (1 - 1e-9)


@pytest.mark.parametrize("loss", ["squared", "absolute", "quantile"])
def test_a_large_penalty_leaves_the_best_constant(loss):
    """Of squares the weighted mean; else what a share of the weight is no larger than."""
    model = bo.KernelRegressor(
        KERNEL, loss=loss, quantiles=0.8, alpha=1e12, n_features=32, random_state=0
    )
    constant = model.fit(X, Y, W).predict(X[:1])[0]
    if loss == "squared":
        assert constant == pytest.approx(np.average(Y, weights=W), abs=1e-6)
        return
    below = W[constant + 1e-6 >= Y].sum() / W.sum()
    without = W[constant - 1e-6 >= Y].sum() / W.sum()
    assert without <= {"absolute": 0.5, "quantile": 0.8}[loss] <= below


#: Errors of a falling penalty: best at the last one, and at the first.
ENDS = (0.9, 0.1), (0.1, 0.9)


@pytest.mark.parametrize("loss", ["squared", "absolute", "huber"])
def test_penalties_are_walked_to_a_valley(loss):
    model = bo.KernelRegressor(KERNEL, loss=loss, n_features=64, random_state=0).fit(X, Y)
    path = model.path_
    assert np.all(np.diff(path.alphas) < 0)
    assert 0 < path.best < len(path.alphas) - 1
    assert path.errors[path.best] < 1
    assert "that was tried" not in path.reason
    low, high = (replace(path, errors=np.linspace(*ends, len(path.alphas))) for ends in ENDS)
    assert "the smallest penalty that was tried: try more features" in low.reason
    assert "the largest penalty that was tried: try another kernel" in high.reason
