"""SVR, OneClassSVM and KernelRegressor, compared with scikit-learn and brute force."""

import warnings

import numpy as np
import pytest
from gallery import maker, table
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax
from sklearn.base import clone
from sklearn.linear_model import GammaRegressor, HuberRegressor, PoissonRegressor, QuantileRegressor
from sklearn.svm import SVR as ExactSVR
from sklearn.svm import LinearSVR
from sklearn.svm import OneClassSVM as ExactOneClass
from tolerance import assert_close

import bochner as bo
from bochner import Huber
from bochner.errors import SolutionWarning
from bochner.kernels import Gaussian, Linear, Matern
from bochner.solvers.convex.losses import Quantile

# ---- fits with exact features, compared with scikit-learn

KERNEL = Gaussian(lengthscale=0.8)
GAMMA = 1 / (2 * 0.8**2)
N = 120
OPTIONS = {"n_features": 24, "alpha": 0.3, "random_state": 0, "method": "orthogonal"}
regressor = maker(bo.KernelRegressor, KERNEL, **OPTIONS)
LINEAR = OPTIONS | {"method": "auto", "n_features": 2, "tol": 1e-12}
linear = maker(bo.KernelRegressor, Linear(), **LINEAR)


def exact(n=N):
    """Return options for features that reproduce the kernel."""
    return dict(method="auto", n_features=n, random_state=0, tol=1e-11)


@pytest.mark.parametrize("features", [{}, exact()], ids=["kernel", "features"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("nu", [0.02, 0.333, 0.95])
def test_one_class_svm_equals_scikit_learn(nu, weighted, features):
    X, _ = table(N, noise=0.3)
    w = np.random.default_rng(1).uniform(0.2, 3, N) if weighted else None
    fit = bo.OneClassSVM(KERNEL, nu=nu, **features).fit(X, sample_weight=w)
    peer = ExactOneClass(gamma=GAMMA, nu=nu, tol=1e-9).fit(X, sample_weight=w)
    new = table(50, seed=1)[0]
    scale = np.abs(peer.score_samples(new)).max()
    assert np.abs(fit.decision_function(new) - peer.decision_function(new)).max() < 1e-5 * scale
    assert np.abs(fit.offset_ - peer.offset_).max() < 1e-5 * scale
    assert_close(fit.score_samples(new) - fit.offset_, fit.decision_function(new), factor=1e3)
    assert (fit.predict(new) == peer.predict(new)).mean() > 0.99
    assert fit.solution_.gap <= 1e-6 * abs(fit.solution_.objective)


def test_an_offset_that_is_not_unique_is_in_the_middle():
    """Exactly nu n rows are outside, and none is at the border; libsvm chooses the middle too."""
    X = np.array([[0.0], [0.1], [0.2], [5.0]])
    fit = bo.OneClassSVM(Gaussian(1.0), nu=0.25, **exact(4)).fit(X)
    peer = ExactOneClass(gamma=0.5, nu=0.25, tol=1e-9).fit(X)
    assert_close(fit.decision_function(X), peer.decision_function(X), factor=1e8)
    assert np.isfinite(bo.OneClassSVM(Gaussian(1.0), nu=1.0, **exact(4)).fit(X).offset_).all()


SQUARED = dict(C=0.7, epsilon=0.2, loss="squared_epsilon_insensitive", tol=1e-10)
LINEAR_SVR = LinearSVR(intercept_scaling=1e3, max_iter=200_000, **SQUARED)
RIDGE = bo.KernelRidge(KERNEL, method="orthogonal", n_features=24, alpha=0.3, random_state=0)
#: A regression, the same by another learner, and the largest difference of predictions.
EQUAL = {
    "squared svr": (bo.SVR(Linear(), **SQUARED), LINEAR_SVR, 2e-4),
    "svr on features": (bo.SVR(Linear(), n_features=N, **SQUARED), LINEAR_SVR, 2e-4),
    "squares": (regressor(loss="squared"), RIDGE, 1e-9),
    **{
        f"quantile {level}": (
            linear(loss="quantile", quantiles=level, alpha=1e-8),
            QuantileRegressor(quantile=level, alpha=0),
            1e-5,
        )
        for level in (0.2, 0.5, 0.9)
    },
}


@pytest.mark.parametrize("name", EQUAL)
def test_regressions_equal_those_of_other_learners(name):
    (X, y), (fit, peer, close) = table(N, noise=0.3), EQUAL[name]
    assert np.abs(fit.fit(X, y).predict(X) - peer.fit(X, y).predict(X)).max() < close


@pytest.mark.parametrize("kind", [PoissonRegressor, GammaRegressor])
def test_log_links_of_a_linear_kernel_equal_generalised_linear_models(kind):
    (X, y), loss = table(N, noise=0.3), "gamma" if kind is GammaRegressor else "poisson"
    y -= 5
    y = np.exp(y) if loss == "gamma" else np.random.default_rng(0).poisson(np.exp(y)) * 1.0
    w = np.random.default_rng(1).uniform(0.2, 3, N)
    glm = kind(alpha=0.02, tol=1e-10, max_iter=5000).fit(X, y, w)
    fit = linear(loss=loss, alpha=0.02 * w.sum()).fit(X, y, w)
    assert np.abs(fit.predict(X) / glm.predict(X) - 1).max() < 1e-5
    assert abs(fit.score(X, y, w) - glm.score(X, y, w)) < 1e-6


@pytest.mark.parametrize("alpha", [0.01, 1.0])
def test_huber_of_a_linear_kernel_equals_huber_regressor(alpha):
    """Its alpha is that of scikit-learn times the scale."""
    X, y = table(N, noise=0.3)
    peer = HuberRegressor(alpha=alpha, tol=1e-10, max_iter=10_000).fit(X, y)
    fit = linear(loss="huber", alpha=alpha * peer.scale_).fit(X, y)
    assert abs(fit.loss_.threshold / (1.35 * peer.scale_) - 1) < 1e-3
    assert np.abs(fit.predict(X) - peer.predict(X)).max() < 1e-3
    fixed = linear(loss=fit.loss_, alpha=fit.alpha_).fit(X, y)
    assert_close(fixed.predict(X), fit.predict(X), factor=1e7)


@pytest.mark.main_cases(1)
@pytest.mark.parametrize(
    "features",
    [{}, {"n_features": 64}, {"n_features": 64, "method": "orthogonal", "precision": "float32"}],
    ids=["exact", "landmarks", "float32"],
)
@pytest.mark.parametrize("kind", ["plain", "weighted", "copies"])
def test_at_most_nu_of_the_weight_is_outside(kind, features):
    """Values of rows at the border are equal up to rounding, which depends on the block."""
    for seed, nu in enumerate((0.01, 0.05, 0.1, 0.29, 0.5, 0.9)):
        X = table(150, seed=seed)[0]
        rng = np.random.default_rng(seed)
        X = X[rng.integers(0, 40, 150)] if kind == "copies" else X
        w = rng.uniform(0.1, 3, 150) * (rng.random(150) > 0.1) if kind == "weighted" else None
        options = dict(nu=nu, random_state=seed) | features
        fit = bo.OneClassSVM(KERNEL, **options).fit(X, sample_weight=w)
        for labels in (fit.predict(X), np.array([fit.predict(row[None])[0] for row in X])):
            assert np.average(labels < 0, weights=w) <= nu + (0 if w is None else 1e-12)
        border = 3e-4 if features else 1e-6
        inliers = fit.decision_function(X) > border * np.abs(fit.score_samples(X)).max()
        assert np.average(~inliers, weights=w) >= nu - 1e-12


@pytest.mark.parametrize("kernel", [KERNEL, "gaussian"], ids=repr)
def test_quantiles_do_not_cross_and_have_their_coverage(kernel):
    """Five binomial standard deviations at each level, and 0.05 for overfitting by 24 features."""
    X, y = table(600, noise=0.3)
    levels = (0.05, 0.1, 0.4, 0.5, 0.6, 0.9, 0.95)
    fitted = regressor(kernel, loss="quantile", quantiles=levels).fit(X, y)
    wide = 10 * table(500, seed=2)[0]
    assert np.all(np.diff(fitted.predict(wide), axis=1) >= 0)
    new, target = table(2000, seed=3, noise=0.3)
    share = (target[:, None] <= fitted.predict(new)).mean(axis=0)
    sd = np.sqrt(np.array(levels) * (1 - np.array(levels)) / 2000)
    assert np.all(np.abs(share - levels) < 5 * sd + 0.05)
    crossed = regressor(kernel, loss="quantile", quantiles=levels, alpha=1e-6, n_features=64)
    raw = crossed.fit(X, y).map_(wide) @ crossed.coef_.T + crossed.intercept_
    assert np.any(np.diff(raw, axis=1) < 0)  # unsorted, these cross


def test_the_chosen_penalty_is_nearly_the_best():
    X, y = table(300, noise=0.5)
    new, f = table(500, seed=5, noise=0.0)
    chosen = regressor(loss="absolute", alpha="holdout").fit(X, y)
    errors = [
        np.abs(regressor(loss="absolute", alpha=a).fit(X, y).predict(new) - f).mean()
        for a in chosen.path_.alphas
    ]
    assert np.abs(chosen.predict(new) - f).mean() < 1.35 * min(errors)
    assert max(errors) > 1.2 * min(errors)
    assert chosen.alpha_ == chosen.path_.alpha


@pytest.mark.main_cases(1)
@pytest.mark.parametrize("d", [2, 1])
def test_targets_without_noise_are_fitted_to_tolerance_without_a_warning(d):
    X = np.random.default_rng(0).uniform(-1, 1, (1500, d))
    y = np.sin(3 * X[:, 0]) + (X[:, 1] ** 2 if d > 1 else 0)
    with warnings.catch_warnings(action="error", category=SolutionWarning):
        model = bo.SVR(Matern(1.5, 0.3), n_features=256, random_state=0).fit(X, y)
    assert model.n_iter_ < 0.75 * model.max_iter
    assert model.solution_.gap <= model.tol * model.solution_.objective
    assert np.sqrt(np.mean((model.predict(X) - y) ** 2)) < model.epsilon_


def test_huber_fits_targets_of_which_half_are_equal():
    """The scale about the median is zero, so the standard deviation is used."""
    X, y = table(N, noise=0.3)
    y[::2] = y[1::2] = np.where(np.arange(60) < 40, 1.0, y[:60])
    for options in ({}, {"alpha": "holdout"}):
        assert np.isfinite(regressor(loss="huber", **options).fit(X, y).predict(X)).all()


# ---- support vector regression with the exact kernel, compared with scikit-learn

ROWS = np.random.default_rng(0).uniform(-2, 2, (120, 2))
TARGET = np.sin(2 * ROWS[:, 0]) + 0.2 * np.random.default_rng(1).standard_normal(120)
WEIGHTS = np.random.default_rng(2).uniform(0.5, 2, 120)
NEW_ROWS = np.random.default_rng(3).uniform(-2, 2, (30, 2))


@pytest.mark.parametrize("C", [0.3, 5.0])
@pytest.mark.parametrize("w", [None, WEIGHTS], ids=["equal weights", "weighted"])
def test_svr_of_given_kernel_and_C_equals_scikit_learn(C, w):
    fit = bo.SVR(KERNEL, C=C, epsilon=0.1).fit(ROWS, TARGET, w)
    peer = ExactSVR(gamma=GAMMA, C=C, epsilon=0.1, tol=1e-8).fit(ROWS, TARGET, w)
    assert np.allclose(fit.predict(NEW_ROWS), peer.predict(NEW_ROWS), atol=1e-3)
    dual = np.zeros(120)
    dual[peer.support_] = peer.dual_coef_[0]
    K, w = KERNEL(ROWS), np.ones(120) if w is None else w
    losses = np.maximum(np.abs(TARGET - peer.predict(ROWS)) - 0.1, 0)
    minimum = 0.5 * dual @ K @ dual + C * w @ losses
    value = fit.solution_.objective * C
    assert -1e-5 * minimum <= value - minimum <= fit.solution_.gap * C + 1e-7 * minimum
    assert fit.solution_.gap <= 1e-3 * fit.solution_.objective
    median = np.quantile(TARGET, 0.5, weights=w, method="inverted_cdf")
    tube = 0.05 * np.average(np.abs(TARGET - median), weights=w)
    assert bo.SVR(KERNEL, C=C).fit(ROWS, TARGET, w).epsilon_ == pytest.approx(tube, rel=1e-3)


def test_coefficients_of_rows_and_features_give_the_predictions():
    for model in (bo.SVR(KERNEL, C=1.0, epsilon=0.1), bo.OneClassSVM(KERNEL, nu=0.2)):
        method = "predict" if hasattr(model, "C") else "score_samples"
        fitted = clone(model).fit(ROWS, TARGET)
        b = getattr(fitted, "intercept_", 0.0)
        expected = getattr(fitted, method)(NEW_ROWS)
        assert np.allclose(KERNEL(NEW_ROWS, fitted.X_fit_) @ fitted.dual_coef_ + b, expected)
        assert np.allclose(fitted.map_(NEW_ROWS) @ np.ravel(fitted.coef_) + b, expected, atol=1e-5)
        features = clone(model).set_params(n_features=64, random_state=0).fit(ROWS, TARGET)
        with pytest.raises(AttributeError, match="only a fit with the exact kernel"):
            features.dual_coef_  # noqa: B018


@pytest.mark.parametrize("loss", ["absolute", "huber", "squared", Huber(1.0), Quantile(0.3), "svr"])
def test_constant_targets_are_predicted(loss):
    models = [regressor(loss=loss, alpha=alpha) for alpha in (0.1, "holdout")]
    for model in [bo.SVR(KERNEL, random_state=0)] if loss == "svr" else models:
        assert np.abs(model.fit(ROWS, np.full(N, 7.0)).predict(NEW_ROWS) - 7).max() < 1e-6


@pytest.mark.main_cases(1)
@pytest.mark.parametrize("options", [{}, {"n_features": 128, "method": "orthogonal"}], ids=str)
def test_the_kernel_is_chosen_among_candidates(options):
    """One of ten columns matters: separate lengthscales find it, a common one does not."""
    rng = np.random.default_rng(4)
    A = rng.uniform(-2, 2, (700, 10))
    y = np.sin(3 * A[:, 0]) + 0.1 * rng.standard_normal(700)
    auto = bo.SVR(random_state=0, **options).fit(A[:300], y[:300])
    first = bo.SVR("gaussian", random_state=0, **options).fit(A[:300], y[:300])
    errors = [np.abs(m.predict(A[300:]) - y[300:]).mean() for m in (auto, first)]
    assert errors[0] < 0.5 * errors[1]
    assert sum(c.chosen for c in auto.search_.candidates) == 1 < len(auto.search_.candidates)


def test_a_penalty_in_the_unit_of_the_targets_chooses_the_same_kernel():
    (X, y), unit = table(N, noise=0.3), 2.0**20
    options = OPTIONS | {"loss": "absolute", "kernel": "gaussian"}
    one, other = (regressor(**options | {"alpha": 0.3 / u}).fit(X, u * y) for u in (1.0, unit))
    assert other.kernel_ == one.kernel_
    assert_close(other.predict(X) / unit, one.predict(X), factor=1e3)


# ---- one-class machines with the exact kernel, compared with scikit-learn

NORMAL = np.random.default_rng(0).standard_normal((150, 2))


def test_one_class_svm_fits_rows_on_a_line_and_a_single_row():
    """The matrix of a linear kernel has rank one: the system of support vectors is singular."""
    line = np.abs(NORMAL[:, :1]) + 1
    fit = bo.OneClassSVM(Linear(), nu=0.3).fit(line)
    peer = ExactOneClass(kernel="linear", nu=0.3, tol=1e-9).fit(line)
    assert np.allclose(fit.score_samples(line), peer.score_samples(line), rtol=1e-4)
    assert bo.OneClassSVM(KERNEL, nu=0.5).fit(NORMAL[:1]).predict(NORMAL[:1])[0] == 1


# ---- losses of several outputs, penalties of the norm, dual coefficients, by brute force

ALPHA = 0.3
LANDMARKS = {"method": bo.Nystrom(), "n_features": 25, "random_state": 0, "tol": 1e-10}
general = maker(bo.KernelRegressor, Gaussian(1.0), alpha=ALPHA, **LANDMARKS)
A = np.array([[2.0, 0.6], [0.6, 1.0]])


def data(n=60, t=3):
    g = np.random.default_rng(0)
    X = g.uniform(-2, 2, (n, 2))
    f = np.stack([X[:, 0], np.sin(2 * X[:, 1]), np.zeros(n)], axis=1)[:, :t]
    return X, softmax(f + 0.1 * g.standard_normal(f.shape), axis=1), g.uniform(0.5, 2.0, n)


def brute(Z, y, w, loss, penalty):
    """Minimise Σ w loss(y, Zβ + b) + penalty(‖β‖) by quasi-Newton from numerical slopes."""
    D, t = Z.shape[1], y.shape[1]

    def objective(theta):
        B = theta.reshape(D + 1, t)
        return w @ loss(y, Z @ B[:-1] + B[-1]) + penalty(np.linalg.norm(B[:-1]))

    start = 0.01 * np.random.default_rng(1).standard_normal((D + 1) * t)
    options = {"maxfun": 20_000, "maxiter": 400, "ftol": 1e-13}
    return minimize(objective, start, method="L-BFGS-B", options=options)


def multinomial(y, f):
    return logsumexp(f, axis=1) - (y * f).sum(axis=1)


def test_multinomial_loss_of_one_hot_targets_is_logistic_regression():
    X, y, _ = data(80)
    labels = y.argmax(axis=1)
    method = {"method": bo.Fourier(bo.IID()), "n_features": 20}
    options = {"random_state": 0, "tol": 1e-10} | method
    classifier = bo.LogisticRegression(Gaussian(1.0), C=1 / ALPHA, **options).fit(X, labels)
    shares = general(loss="multinomial", **method).fit(X, np.eye(3)[labels])
    assert shares.predict(X) == pytest.approx(classifier.predict_proba(X), abs=1e-4)
    step = np.array([1e-5, 0.0])
    slopes = (shares.predict(X[:9] + step) - shares.predict(X[:9] - step)) / 2e-5
    assert shares.gradient(X[:9])[:, 0] == pytest.approx(slopes, abs=1e-7)


def test_penalties_of_joint_losses_are_chosen_by_held_out_rows():
    X, y, w = data(200)
    model = general(loss="multinomial", alpha="holdout", tol=1e-6).fit(X, y, w)
    assert model.alpha_ in model.path_.alphas
    assert model.path_.errors.min() < 0.95
    assert 0 < model.score(X, y) < 1
    log = lambda p: -(y * np.log(p)).sum(axis=1).mean()
    assert log(model.predict(X)) < log(np.tile(y.mean(axis=0), (200, 1)))


def joint(**options):
    return bo.JointLoss(
        lambda y, f: 0.5 * np.einsum("ni,ij,nj->n", f - y, A, f - y),
        lambda y, f: (f - y) @ A,
        lambda y, f: np.broadcast_to(A, (len(y), 2, 2)),
        **options,
    )


def test_a_quadratic_user_loss_of_two_outputs_solves_its_linear_system():
    """Σ w (f − y)ᵀA(f − y)/2 + (α/2)‖B‖²: ZᵀW(ZB + 1bᵀ − Y)A + αB = 0, and mean residual 0."""
    X, y, w = data()
    y = y[:, :2]
    model = general(loss=joint()).fit(X, y, w)
    Z = model.map_(X)
    D = Z.shape[1]
    Zc, yc = Z - w @ Z / w.sum(), y - w @ y / w.sum()
    G = Zc.T @ (w[:, None] * Zc)
    system = np.kron(G, A) + ALPHA * np.eye(2 * D)
    B = np.linalg.solve(system, (Zc.T @ (w[:, None] * yc) @ A).ravel()).reshape(D, 2)
    expected = Zc @ B + w @ y / w.sum()
    assert model.predict(X) == pytest.approx(expected, abs=1e-5)
    plain = general(loss="squared").fit(X, y, w).predict(X)
    assert np.abs(plain - expected).max() > 1e-3  # the outputs depend on each other


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e5])
def test_a_correct_user_loss_passes_its_check_far_from_zero(scale):
    """Steps of differences grow with f, as values of 1e10 have rounding errors of 1e-6."""
    f = scale * np.random.default_rng(4).standard_normal((9, 2))
    assert np.array_equal(joint(points=(np.zeros((9, 2)), f)).slope(0 * f, f), f @ A)


@pytest.mark.parametrize(
    ("R", "loss", "elementwise"),
    [
        (lambda r: r, "squared", lambda y, f: 0.5 * ((y - f) ** 2).sum(axis=1)),
        (lambda r: np.log1p(r * r), "squared", lambda y, f: 0.5 * ((y - f) ** 2).sum(axis=1)),
        (lambda r: r**4 / 50, "multinomial", multinomial),
    ],
    ids=["norm", "logarithm", "fourth power"],
)
def test_fits_with_penalties_of_the_norm_attain_the_minimum(R, loss, elementwise):
    X, y, w = data()
    y = y if loss == "multinomial" else 3 * y[:, :1]
    model = general(loss=loss, penalty=R, alpha=1.0, n_features=5).fit(X, y, w)
    Z = model.map_(X)
    coef = model.coef_.reshape(-1, Z.shape[1]).T
    value = w @ elementwise(y, Z @ coef + model.intercept_) + R(np.linalg.norm(coef))
    assert value <= brute(Z, y, w, elementwise, R).fun * (1 + 1e-6)
    # at the minimum R has the slope of alpha_ r²/2
    r = np.linalg.norm(model.coef_)
    slope = (R(r * (1 + 1e-5)) - R(r * (1 - 1e-5))) / (2e-5 * r)
    assert slope / r == pytest.approx(model.alpha_, rel=1e-3)


@pytest.mark.parametrize("loss", ["squared", "absolute"])
def test_the_norm_is_that_of_all_targets_and_may_be_bounded(loss):
    X, y, _ = data()
    model = general(loss=loss, penalty=lambda r: r, alpha=0.1).fit(X, y[:, :2] * (1.0, 1000.0))
    r = np.linalg.norm(model.coef_)
    assert np.broadcast_to(model.alpha_, 2) == pytest.approx(0.1 / r, rel=1e-3)
    bounded = general(penalty=lambda r: 0.0 if r <= 0.7 else np.inf, alpha=1.0).fit(X, y[:, 0])
    assert 0.7 * (1 - 1e-5) < np.linalg.norm(bounded.coef_) <= 0.7


@pytest.mark.parametrize("loss", ["squared", "absolute", "multinomial", "huber", "norm"])
def test_dual_coefficients_give_coefficients_and_predictions(loss):
    X, y, w = data()
    penalty = (lambda r: r) if loss == "norm" else None
    loss = {"norm": "squared", "huber": bo.Huber(0.1)}.get(loss, loss)
    y = y if loss == "multinomial" else y[:, :2] * (1.0, 8.0)
    model = general(loss=loss, penalty=penalty).fit(X, y, w)
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


def test_fits_to_many_rows_have_no_dual_coefficients(tmp_path):
    X, y, _ = data(1200)
    model = general(n_features=10).fit(X, y[:, 0])
    with pytest.raises(AttributeError, match="of at most 1,024 rows with a penalty"):
        _ = model.dual_coef_
    small_fit = general(loss="multinomial").fit(X[:50], y[:50])
    bo.save(small_fit, tmp_path / "few.bochner")
    loaded = bo.load(tmp_path / "few.bochner")
    np.testing.assert_array_equal(loaded.dual_coef_, small_fit.dual_coef_)
    np.testing.assert_array_equal(loaded.predict(X), small_fit.predict(X))
