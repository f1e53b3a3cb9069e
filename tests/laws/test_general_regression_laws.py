"""Losses of several outputs, penalties of the norm, and coefficients of rows: beside brute force."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax, logsumexp, softmax

import bochner as bo
from bochner.errors import InvalidInput, InvalidType
from bochner.kernels import Gaussian

ALPHA = 0.3
A = np.array([[2.0, 0.6], [0.6, 1.0]])


def data(n=60, t=3):
    g = np.random.default_rng(0)
    X = g.uniform(-2, 2, (n, 2))
    f = np.stack([X[:, 0], np.sin(2 * X[:, 1]), np.zeros(n)], axis=1)[:, :t]
    y = softmax(f + 0.1 * g.standard_normal(f.shape), axis=1)
    return X, y, g.uniform(0.5, 2.0, n)


def regressor(**options):
    method = {"method": bo.Nystrom(), "n_features": 25, "random_state": 0, "tol": 1e-10}
    return bo.KernelRegressor(Gaussian(1.0), **(method | {"alpha": ALPHA} | options))


def brute(Z, y, w, loss, penalty):
    """Minimise Σ w loss(y, Zβ + b) + penalty(‖β‖) by quasi-Newton from numerical slopes."""
    D, t = Z.shape[1], y.shape[1]

    def objective(theta):
        B = theta.reshape(D + 1, t)
        return w @ loss(y, Z @ B[:-1] + B[-1]) + penalty(np.linalg.norm(B[:-1]))

    start = 0.01 * np.random.default_rng(1).standard_normal((D + 1) * t)
    return minimize(
        objective,
        start,
        method="L-BFGS-B",
        options={"maxfun": 20_000, "maxiter": 400, "ftol": 1e-13},
    )


def multinomial(y, f):
    return logsumexp(f, axis=1) - (y * f).sum(axis=1)


def objective_of(model, X, y, w, loss, penalty):
    Z = model.map_(X)
    coef = model.coef_.reshape(-1, Z.shape[1]).T
    f = Z @ coef + model.intercept_
    return w @ loss(y, f) + penalty(np.linalg.norm(coef))


# ---- several outputs


def test_shares_are_fitted_to_the_least_multinomial_loss():
    X, y, w = data(30)
    model = regressor(loss="multinomial", n_features=4).fit(X, y, w)
    squares = lambda r: ALPHA * r * r / 2
    least = brute(model.map_(X), y, w, multinomial, squares).fun
    found = objective_of(model, X, y, w, multinomial, squares)
    assert found == pytest.approx(least, rel=1e-6)
    assert model.solution_.objective == pytest.approx(found, rel=1e-9)
    p = model.predict(X)
    assert p.sum(axis=1) == pytest.approx(np.ones(30))
    assert 0 < model.score(X, y) < 1
    # the planted fault: each output for itself, as a sum of one-column losses is fitted
    alone = lambda y, f: (np.logaddexp(0, f) - y * f).sum(axis=1)
    wrong = brute(model.map_(X), y, w, alone, squares).x.reshape(5, 3)
    f = model.map_(X) @ wrong[:-1] + wrong[-1]
    assert np.abs(softmax(f, axis=1) - p).max() > 0.01


def test_shares_of_one_class_each_are_multinomial_logistic_regression():
    X, y, _ = data(80)
    labels = y.argmax(axis=1)
    method = {"method": bo.Nystrom(), "n_features": 20, "random_state": 0, "tol": 1e-10}
    classifier = bo.LogisticRegression(Gaussian(1.0), C=1 / ALPHA, multinomial=True, **method)
    expected = classifier.fit(X, labels).predict_proba(X)
    shares = regressor(loss="multinomial", n_features=20).fit(X, np.eye(3)[labels])
    if np.array_equal(shares.map_(X), classifier.map_(X)):
        assert shares.predict(X) == pytest.approx(expected, abs=1e-4)
    loss = objective_of(
        shares, X, np.eye(3)[labels], np.ones(80), multinomial, lambda r: ALPHA * r * r / 2
    )
    assert loss == pytest.approx(shares.solution_.objective, rel=1e-9)


def test_gradients_of_shares_are_those_of_the_softmax():
    X, y, w = data()
    model = regressor(loss="multinomial").fit(X, y, w)
    step = np.array([1e-5, 0.0])
    slopes = (model.predict(X[:9] + step) - model.predict(X[:9] - step)) / 2e-5
    assert model.gradient(X[:9])[:, 0] == pytest.approx(slopes, abs=1e-7)


@pytest.mark.parametrize("alpha", ["holdout", "kfold"])
def test_penalties_of_joint_losses_are_chosen_by_rows_left_out(alpha):
    X, y, w = data(200)
    model = regressor(loss="multinomial", alpha=alpha, tol=1e-6).fit(X, y, w)
    assert model.alpha_ in model.path_.alphas
    assert model.path_.errors.min() < 0.95
    log = lambda p: -(y * np.log(p)).sum(axis=1).mean()
    assert log(model.predict(X)) < log(np.tile(y.mean(axis=0), (200, 1)))


def joint(**options):
    return bo.JointLoss(
        lambda y, f: 0.5 * np.einsum("ni,ij,nj->n", f - y, A, f - y),
        lambda y, f: (f - y) @ A,
        lambda y, f: np.broadcast_to(A, (len(y), 2, 2)),
        **options,
    )


def test_a_users_loss_of_two_outputs_is_the_solution_of_its_linear_system():
    """Σ w (f − y)ᵀA(f − y)/2 + (α/2)‖B‖²: ZᵀW(ZB + 1bᵀ − Y)A + αB = 0, and no mean error."""
    X, y, w = data()
    y = y[:, :2]
    model = regressor(loss=joint()).fit(X, y, w)
    Z = model.map_(X)
    D = Z.shape[1]
    Zc, yc = Z - w @ Z / w.sum(), y - w @ y / w.sum()
    G = Zc.T @ (w[:, None] * Zc)
    system = np.kron(G, A) + ALPHA * np.eye(2 * D)
    B = np.linalg.solve(system, (Zc.T @ (w[:, None] * yc) @ A).ravel()).reshape(D, 2)
    expected = Zc @ B + w @ y / w.sum()
    assert model.predict(X) == pytest.approx(expected, abs=1e-5)
    plain = regressor(loss="squared").fit(X, y, w).predict(X)
    assert np.abs(plain - expected).max() > 1e-3  # outputs do tell of each other


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e5])
def test_a_right_loss_is_taken_where_it_is_tried_far_from_zero(scale):
    """Steps of the differences grow with f: else rounding, 1e-6 of values of 1e10, is all they see."""
    f = scale * np.random.default_rng(4).standard_normal((9, 2))
    assert np.array_equal(joint(points=(np.zeros((9, 2)), f)).slope(0 * f, f), f @ A)


def test_the_multinomial_loss_as_a_users_is_the_same():
    X, y, w = data()

    def hessian(y, f):
        p = softmax(f, axis=1)
        return p[:, :, None] * np.eye(3) - p[:, :, None] * p[:, None, :]

    points = y[:9], np.random.default_rng(2).standard_normal((9, 3))
    loss = bo.JointLoss(multinomial, lambda y, f: softmax(f, axis=1) - y, hessian, points=points)
    own = regressor(loss=loss).fit(X, y, w).predict(X)
    named = regressor(loss="multinomial").fit(X, y, w).predict(X)
    assert np.exp(log_softmax(own, axis=1)) == pytest.approx(named, abs=1e-5)


# ---- penalties of the norm


@pytest.mark.parametrize(
    ("R", "loss", "elementwise"),
    [
        (lambda r: r, "squared", lambda y, f: 0.5 * ((y - f) ** 2).sum(axis=1)),
        (lambda r: np.log1p(r * r), "squared", lambda y, f: 0.5 * ((y - f) ** 2).sum(axis=1)),
        (lambda r: r**4 / 50, "multinomial", multinomial),
    ],
    ids=["norm", "logarithm", "fourth power"],
)
def test_any_rising_penalty_of_the_norm_has_its_least_value(R, loss, elementwise):
    X, y, w = data()
    y = y if loss == "multinomial" else 3 * y[:, :1]
    model = regressor(loss=loss, penalty=R, alpha=1.0, n_features=5).fit(
        X, y if loss == "multinomial" else y[:, 0], w
    )
    found = objective_of(model, X, y, w, elementwise, R)
    least = brute(model.map_(X), y, w, elementwise, R).fun
    assert found <= least * (1 + 1e-6)
    # at the minimum the slope of R is that of squares at alpha_
    r = np.linalg.norm(model.coef_)
    slope = (R(r * (1 + 1e-5)) - R(r * (1 - 1e-5))) / (2e-5 * r)
    assert slope / r == pytest.approx(model.alpha_, rel=1e-3)
    # the planted fault: squares at the same alpha are another minimum
    squares = regressor(loss=loss, alpha=1.0, n_features=5)
    squares = squares.fit(X, y if loss == "multinomial" else y[:, 0], w)
    assert objective_of(squares, X, y, w, elementwise, R) > found * (1 + 1e-5)


def test_half_the_square_is_the_penalty_of_squares():
    X, y, w = data()
    half = regressor(penalty=lambda r: r * r / 2).fit(X, y[:, 0], w)
    assert half.alpha_ == pytest.approx(ALPHA, rel=1e-4)
    plain = regressor().fit(X, y[:, 0], w)
    assert half.predict(X) == pytest.approx(plain.predict(X), abs=1e-6)


def test_a_bound_of_the_norm_is_met():
    X, y, _ = data()
    model = regressor(penalty=lambda r: 0.0 if r <= 0.7 else np.inf, alpha=1.0).fit(X, y[:, 0])
    assert np.linalg.norm(model.coef_) == pytest.approx(0.7, rel=1e-5)
    assert np.linalg.norm(model.coef_) <= 0.7


def test_the_norm_is_that_of_all_targets_together_whatever_their_units():
    X, y, _ = data()
    two = y[:, :2] * (1.0, 1000.0)
    model = regressor(penalty=lambda r: r, alpha=0.1).fit(X, two)
    r = np.linalg.norm(model.coef_)
    assert np.broadcast_to(model.alpha_, 2) == pytest.approx(0.1 / r, rel=1e-3)


# ---- the representer theorem


@pytest.mark.parametrize(
    ("loss", "penalty"),
    [
        ("squared", None),
        ("absolute", None),
        ("multinomial", None),
        (bo.Huber(0.1), None),
        ("squared", lambda r: r),
    ],
    ids=["squares", "absolute", "multinomial", "huber", "norm"],
)
def test_the_minimum_is_a_sum_over_rows(loss, penalty):
    X, y, w = data()
    y = y if loss == "multinomial" else y[:, :2] * (1.0, 8.0)
    model = regressor(loss=loss, penalty=penalty).fit(X, y, w)
    u, rows = model.dual_coef_, model.X_fit_
    np.testing.assert_array_equal(rows, X)
    assert u.shape == (y.shape[1], 60)
    size = np.abs(model.coef_).max()
    assert u @ model.map_(rows) == pytest.approx(model.coef_, abs=1e-3 * size)
    k = model.map_(X[:5]) @ model.map_(rows).T
    f = k @ u.T + model.intercept_
    f = softmax(f, axis=1) if loss == "multinomial" else f
    assert f == pytest.approx(model.predict(X[:5]), abs=1e-2 * size)
    if loss == "squared":
        residual = (y - model.predict(X)) * w[:, None] / model.alpha_
        assert u.T == pytest.approx(residual, abs=1e-9 * np.abs(u).max())


def test_many_rows_keep_no_coefficients_of_rows(tmp_path):
    X, y, _ = data(1200)
    model = regressor(n_features=10).fit(X, y[:, 0])
    with pytest.raises(AttributeError, match="only fits to 1,024 rows at most keep them"):
        _ = model.dual_coef_
    few = regressor(loss="multinomial").fit(X[:50], y[:50])
    bo.save(few, tmp_path / "few.bochner")
    again = bo.load(tmp_path / "few.bochner")
    np.testing.assert_array_equal(again.dual_coef_, few.dual_coef_)
    np.testing.assert_array_equal(again.predict(X), few.predict(X))


# ---- refusals


def fitted(**options):
    X, y, _ = data()
    return lambda: regressor(**options).fit(X, y)


@pytest.mark.parametrize(
    ("ask", "error", "message"),
    [
        (lambda: regressor(loss="multinomial").fit(*data()[::2]), InvalidInput, "two columns or"),
        (
            lambda: regressor(loss="multinomial").fit(data()[0], 2 * data()[1]),
            InvalidInput,
            "whose rows sum to one; got 3 columns, sums from 2 to 2",
        ),
        (fitted(penalty=3.0), InvalidType, "penalty must be a function of the norm; got 3.0"),
        (fitted(penalty=abs, alpha="holdout"), InvalidInput, "alpha must be a number above zero"),
        (fitted(penalty=lambda r: -r), InvalidInput, "penalty must never fall as the norm rises"),
        (fitted(penalty=lambda r: np.nan), InvalidInput, "must be a number for some norm"),
        (lambda: bo.JointLoss(1, 2, 3), InvalidType, "must be functions of .y, f.; got 1"),
        (
            lambda: bo.JointLoss(
                lambda y, f: (f - y).sum(1),
                lambda y, f: f - y,
                lambda y, f: np.zeros((len(y), 2, 2)),
            ),
            InvalidInput,
            "slope must be the derivative of value in f",
        ),
        (
            lambda: bo.JointLoss(
                lambda y, f: -0.5 * ((f - y) ** 2).sum(1),
                lambda y, f: y - f,
                lambda y, f: np.broadcast_to(-np.eye(2), (len(y), 2, 2)),
            ),
            InvalidInput,
            "the loss must be convex, eigenvalues of its hessian zero or above; got -1",
        ),
        (
            lambda: bo.JointLoss(lambda y, f: f, lambda y, f: f, lambda y, f: f),
            InvalidInput,
            "hessian must have shape .16, 2, 2. for y and f",
        ),
    ],
)
def test_what_cannot_be_minimised_is_refused_in_a_sentence(ask, error, message):
    with pytest.raises(error, match=message):
        ask()
