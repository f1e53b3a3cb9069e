"""Support vector regression with the kernel itself: scikit-learn's answer, and what bounds it."""

import numpy as np
import pytest
from sklearn.svm import SVR as Decomposition
from sklearn.svm import LinearSVR

import bochner as bo
from bochner.kernels import Gaussian, Linear

X = np.random.default_rng(0).uniform(-2, 2, (120, 2))
Y = np.sin(2 * X[:, 0]) + 0.2 * np.random.default_rng(1).standard_normal(120)
W = np.random.default_rng(2).uniform(0.5, 2, 120)
NEW = np.random.default_rng(3).uniform(-2, 2, (30, 2))
KERNEL = Gaussian(0.8)
GAMMA = 1 / (2 * 0.8**2)


@pytest.mark.parametrize("C", [0.3, 5.0])
@pytest.mark.parametrize("w", [None, W], ids=["alike", "weighted"])
def test_given_kernel_and_C_as_scikit_learn(C, w):
    ours = bo.SVR(KERNEL, C=C, epsilon=0.1).fit(X, Y, w)
    theirs = Decomposition(gamma=GAMMA, C=C, epsilon=0.1, tol=1e-8).fit(X, Y, w)
    assert np.allclose(ours.predict(NEW), theirs.predict(NEW), atol=1e-3)
    dual = np.zeros(120)
    dual[theirs.support_] = theirs.dual_coef_[0]
    K, w = KERNEL(X), np.ones(120) if w is None else w
    lost = np.maximum(np.abs(Y - theirs.predict(X)) - 0.1, 0)
    least = 0.5 * dual @ K @ dual + C * w @ lost
    value = ours.solution_.objective * C
    assert -1e-5 * least <= value - least <= ours.solution_.gap * C + 1e-7 * least
    assert ours.solution_.gap <= 1e-3 * ours.solution_.objective


def test_targets_in_other_units():
    plain = bo.SVR(KERNEL, C=3.0, epsilon=0.2).fit(X, Y)
    large = bo.SVR(KERNEL, C=3.0 * 1024, epsilon=0.2 * 1024).fit(X, 1024 * Y)
    assert np.allclose(large.predict(NEW), 1024 * plain.predict(NEW))
    assert large.C_ == pytest.approx(3 * 1024)
    assert large.epsilon_ == pytest.approx(0.2 * 1024)


def test_squared_loss_as_linear_svr():
    loss = "squared_epsilon_insensitive"
    ours = bo.SVR(Linear(), C=0.7, epsilon=0.2, loss=loss).fit(X, Y)
    theirs = LinearSVR(C=0.7, epsilon=0.2, loss=loss, intercept_scaling=1e4, tol=1e-10)
    theirs.set_params(max_iter=100_000).fit(X, Y)
    assert np.allclose(ours.predict(NEW), theirs.predict(NEW), atol=1e-3)


def test_coefficients_of_rows_and_of_features():
    model = bo.SVR(KERNEL, C=1.0, epsilon=0.1).fit(X, Y)
    own = KERNEL(NEW, model.X_fit_) @ model.dual_coef_ + model.intercept_
    assert np.allclose(own, model.predict(NEW))
    assert np.allclose(model.map_(NEW) @ model.coef_ + model.intercept_, own, atol=1e-6)
    features = bo.SVR(KERNEL, C=1.0, epsilon=0.1, n_features=64, random_state=0).fit(X, Y)
    with pytest.raises(AttributeError, match="only a fit with the kernel itself"):
        features.dual_coef_  # noqa: B018


@pytest.mark.parametrize("loss", ["epsilon_insensitive", "squared_epsilon_insensitive"])
def test_the_penalty_is_the_best_for_rows_left_out(loss):
    model = bo.SVR(loss=loss, random_state=0).fit(X, Y)
    assert model.path_.errors.min() == model.path_.errors[model.path_.best]
    assert np.sqrt(np.mean((model.predict(NEW) - np.sin(2 * NEW[:, 0])) ** 2)) < 0.15


def test_constant_and_equal_rows():
    assert np.allclose(
        bo.SVR(KERNEL, random_state=0).fit(X, np.full(120, 7.0)).predict(NEW), 7, atol=1e-6
    )
    one = bo.SVR(KERNEL, random_state=0).fit(np.zeros((5, 2)), np.arange(5.0))
    assert one.path_ is None


@pytest.mark.parametrize("given", [{}, {"n_features": 128, "method": "orthogonal"}], ids=str)
def test_the_kernel_is_chosen_among_candidates_in_any_unit(given):
    """Of ten columns one matters: lengthscales of its own find it, one for all does not."""
    rng = np.random.default_rng(4)
    A = rng.uniform(-2, 2, (700, 10))
    y = np.sin(3 * A[:, 0]) + 0.1 * rng.standard_normal(700)
    auto = bo.SVR(random_state=0, **given).fit(A[:300], y[:300])
    one = bo.SVR("gaussian", random_state=0, **given).fit(A[:300], y[:300])
    errors = [np.abs(m.predict(A[300:]) - y[300:]).mean() for m in (auto, one)]
    assert errors[0] < 0.5 * errors[1]
    assert sum(each.taken for each in auto.search_.compared) == 1 < len(auto.search_.compared)
    large = bo.SVR(random_state=0, **given).fit(A[:300], 1024 * y[:300])
    assert large.kernel_ == auto.kernel_
    np.testing.assert_allclose(large.predict(A), 1024 * auto.predict(A), rtol=1e-6, atol=1e-3)
