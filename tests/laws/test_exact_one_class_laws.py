"""One-class machines with the kernel itself: scikit-learn's answer, and what bounds it."""

import numpy as np
import pytest
from sklearn.svm import OneClassSVM as Decomposition

import bochner as bo
from bochner.kernels import Gaussian, Linear

X = np.random.default_rng(0).standard_normal((150, 2))
W = np.random.default_rng(1).uniform(0.5, 2, 150)
NEW = np.random.default_rng(2).uniform(-3, 3, (40, 2))
KERNEL = Gaussian(0.8)
GAMMA = 1 / (2 * 0.8**2)


@pytest.mark.parametrize("nu", [0.02, 0.3, 0.95])
@pytest.mark.parametrize("w", [None, W], ids=["alike", "weighted"])
def test_few_rows_as_scikit_learn(nu, w):
    ours = bo.OneClassSVM(KERNEL, nu=nu).fit(X, sample_weight=w)
    theirs = Decomposition(gamma=GAMMA, nu=nu, tol=1e-9).fit(X, sample_weight=w)
    scale = np.abs(theirs.score_samples(NEW)).max()
    assert np.abs(ours.score_samples(NEW) - theirs.score_samples(NEW)).max() < 1e-5 * scale
    assert np.abs(ours.offset_ - theirs.offset_).max() < 1e-5 * scale
    assert ours.solution_.gap <= 1e-6 * abs(ours.solution_.objective)


def test_objective_is_that_of_the_definition():
    ours = bo.OneClassSVM(KERNEL, nu=0.2).fit(X, sample_weight=W)
    a, f, rho = ours.dual_coef_, ours.score_samples(X), float(ours.offset_[0])
    value = 0.5 * a @ KERNEL(X) @ a + W @ np.maximum(rho - f, 0) - 0.2 * W.sum() * rho
    assert ours.solution_.objective == pytest.approx(value, rel=1e-9)
    assert a.sum() == pytest.approx(0.2 * W.sum(), rel=1e-9)
    assert np.all(a >= 0)
    assert np.all(a <= W * (1 + 1e-9))


@pytest.mark.parametrize("nu", [0.01, 0.05, 0.29, 0.5, 0.9])
@pytest.mark.parametrize("kind", ["plain", "weighted", "copies"])
def test_at_most_nu_of_the_weight_lies_outside(kind, nu):
    rng = np.random.default_rng(3)
    rows = X[rng.integers(0, 40, 150)] if kind == "copies" else X
    w = W * (rng.random(150) > 0.1) if kind == "weighted" else None
    ours = bo.OneClassSVM(KERNEL, nu=nu).fit(rows, sample_weight=w)
    one_by_one = np.array([ours.predict(row[None])[0] for row in rows])
    for labels in (ours.predict(rows), one_by_one):
        assert np.average(labels < 0, weights=w) <= nu + (0 if w is None else 1e-12)
    inside = ours.decision_function(rows) > 1e-6 * ours.score_samples(rows).max()
    assert np.average(~inside, weights=w) >= nu - 1e-12


def test_all_rows_may_lie_outside():
    ours = bo.OneClassSVM(KERNEL, nu=1.0).fit(X, sample_weight=W)
    assert np.allclose(ours.dual_coef_, W, rtol=1e-12)
    assert ours.offset_[0] == pytest.approx(ours.score_samples(X).max())


def test_features_are_made_where_they_are_asked_for():
    exact = bo.OneClassSVM(KERNEL, nu=0.2).fit(X)
    own = exact.map_(NEW) @ exact.coef_[0] - exact.offset_
    assert np.allclose(own, exact.decision_function(NEW), atol=1e-6 * exact.offset_)
    features = bo.OneClassSVM(KERNEL, nu=0.2, n_features=150, random_state=0).fit(X)
    with pytest.raises(AttributeError, match="only a fit with the kernel itself"):
        features.dual_coef_  # noqa: B018
    close = np.abs(features.decision_function(NEW) - exact.decision_function(NEW))
    assert close.max() < 1e-3 * exact.offset_[0]  # the jitter of the map, and tol


def test_the_kernel_by_name_has_the_median_distance():
    exact = bo.OneClassSVM(nu=0.2, random_state=0).fit(X)
    features = bo.OneClassSVM(nu=0.2, n_features=150, random_state=0).fit(X)
    assert exact.kernel_ == features.kernel_


def test_a_line_of_rows_and_a_single_row():
    """A linear kernel has a matrix of rank one: the support's system has many solutions."""
    line = np.abs(X[:, :1]) + 1
    ours = bo.OneClassSVM(Linear(), nu=0.3).fit(line)
    theirs = Decomposition(kernel="linear", nu=0.3, tol=1e-9).fit(line)
    assert np.allclose(ours.score_samples(line), theirs.score_samples(line), rtol=1e-4)
    single = bo.OneClassSVM(KERNEL, nu=0.5).fit(X[:1])
    assert single.predict(X[:1])[0] == 1
