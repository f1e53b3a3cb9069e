"""SVR, OneClassSVM and KernelRegressor: scikit-learn's answers with exact features, and laws."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.linear_model import (
    GammaRegressor,
    HuberRegressor,
    PoissonRegressor,
    QuantileRegressor,
)
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVR as ExactSVR
from sklearn.svm import LinearSVR
from sklearn.svm import OneClassSVM as ExactOneClass
from tolerance import assert_close

import bochner as bo
from bochner import Huber
from bochner.errors import InvalidInput, SolutionWarning
from bochner.kernels import Gaussian, Linear, Matern
from bochner.models._rows import rows_left_out
from bochner.solvers.convex.losses import Absolute, Quantile

KERNEL = Gaussian(lengthscale=0.8)
N = 120


def table(n=N, seed=0, noise=0.3):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 2))
    return X, np.sin(2 * X[:, 0]) * X[:, 1] + noise * rng.standard_t(3, n)


def regressor(kernel=KERNEL, **changes):
    options = dict(n_features=24, alpha=0.3, random_state=0, method="orthogonal") | changes
    return bo.KernelRegressor(kernel, **options)


def exact(n=N):
    """Options by which features are the kernel itself."""
    return dict(method="auto", n_features=n, random_state=0, tol=1e-11)


# ---- scikit-learn's answers


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("C", "epsilon"), [(1.0, 0.1), (30.0, 0.3), (2.0, 0.0)])
def test_svr_with_exact_features_is_support_vector_regression(C, epsilon, weighted):
    X, y = table()
    w = np.random.default_rng(1).uniform(0.2, 3, N) if weighted else None
    ours = bo.SVR(KERNEL, C=C, epsilon=epsilon, **exact()).fit(X, y, w)
    theirs = ExactSVR(gamma=1 / (2 * 0.8**2), C=C, epsilon=epsilon, tol=1e-8).fit(X, y, w)
    new = table(50, seed=1)[0]
    assert np.abs(ours.predict(new) - theirs.predict(new)).max() < 1e-4
    assert ours.solution_.gap <= 1e-10 * ours.solution_.objective


def test_svr_of_the_squared_loss_is_that_of_linear_svr():
    X, y = table()
    ours = bo.SVR(Linear(), C=0.7, epsilon=0.2, loss="squared_epsilon_insensitive", **exact()).fit(
        X, y
    )
    coef, b = ours.map_(X), ours.intercept_
    w = np.linalg.lstsq(X, coef @ ours.coef_, rcond=None)[0]
    theirs = LinearSVR(
        C=0.7, epsilon=0.2, loss="squared_epsilon_insensitive", intercept_scaling=1e3, tol=1e-10,
        max_iter=200_000,
    ).fit(X, y)  # fmt: skip
    assert np.abs(w - theirs.coef_).max() < 1e-4
    assert abs(b - theirs.intercept_[0]) < 1e-4


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("nu", [0.06, 0.333, 0.9])
def test_one_class_with_exact_features_is_the_one_class_machine(nu, weighted):
    X, _ = table()
    w = np.random.default_rng(1).uniform(0.2, 3, N) if weighted else None
    ours = bo.OneClassSVM(KERNEL, nu=nu, **exact()).fit(X, sample_weight=w)
    theirs = ExactOneClass(gamma=1 / (2 * 0.8**2), nu=nu, tol=1e-9).fit(X, sample_weight=w)
    new = table(50, seed=1)[0]
    scale = np.abs(theirs.score_samples(new)).max()
    assert np.abs(ours.decision_function(new) - theirs.decision_function(new)).max() < 1e-5 * scale
    assert np.abs(ours.offset_ - theirs.offset_).max() < 1e-5 * scale
    assert_close(ours.score_samples(new) - ours.offset_, ours.decision_function(new), factor=1e3)
    assert (ours.predict(new) == theirs.predict(new)).mean() > 0.99


def test_an_offset_that_is_not_unique_is_the_middle_one():
    """nu n rows fill the outside exactly, and none lies at the border: libsvm's choice too."""
    X = np.array([[0.0], [0.1], [0.2], [5.0]])
    ours = bo.OneClassSVM(Gaussian(1.0), nu=0.25, **exact(4)).fit(X)
    theirs = ExactOneClass(gamma=0.5, nu=0.25, tol=1e-9).fit(X)
    assert_close(ours.decision_function(X), theirs.decision_function(X), factor=1e8)
    all_outside = bo.OneClassSVM(Gaussian(1.0), nu=1.0, **exact(4)).fit(X)
    assert np.isfinite(all_outside.offset_).all()


@pytest.mark.parametrize("level", [0.2, 0.5, 0.9])
def test_quantiles_of_a_linear_kernel_are_those_of_quantile_regressor(level):
    X, y = table()
    ours = regressor(Linear(), loss="quantile", quantiles=level, alpha=1e-8, **exact_of(2)).fit(
        X, y
    )
    theirs = QuantileRegressor(quantile=level, alpha=0).fit(X, y)
    assert np.abs(ours.predict(X) - theirs.predict(X)).max() < 1e-5


def exact_of(d):
    return dict(method="auto", n_features=d, tol=1e-12)


@pytest.mark.parametrize("alpha", [0.01, 1.0])
def test_huber_of_a_linear_kernel_is_huber_regressor(alpha):
    """Their penalty alpha is ours over the scale; at the same scale both are one problem."""
    X, y = table()
    theirs = HuberRegressor(alpha=alpha, tol=1e-10, max_iter=10_000).fit(X, y)
    ours = regressor(
        Linear(), loss="huber", alpha=alpha * theirs.scale_, **exact_of(2)
    ).fit(X, y)  # fmt: skip
    assert abs(ours.loss_.threshold / (1.35 * theirs.scale_) - 1) < 1e-3
    assert np.abs(ours.predict(X) - theirs.predict(X)).max() < 1e-3
    fixed = regressor(Linear(), loss=ours.loss_, alpha=ours.alpha_, **exact_of(2)).fit(X, y)
    assert_close(fixed.predict(X), ours.predict(X), factor=1e7)


@pytest.mark.parametrize(
    ("loss", "theirs"), [("poisson", PoissonRegressor), ("gamma", GammaRegressor)]
)
def test_log_links_of_a_linear_kernel_are_the_generalised_linear_models(loss, theirs):
    X, y = table()
    y = np.exp(y) if loss == "gamma" else np.random.default_rng(0).poisson(np.exp(y)) * 1.0
    w = np.random.default_rng(1).uniform(0.2, 3, N)
    glm = theirs(alpha=0.02, tol=1e-10, max_iter=5000).fit(X, y, w)
    ours = regressor(Linear(), loss=loss, alpha=0.02 * w.sum(), **exact_of(2)).fit(X, y, w)
    assert np.abs(ours.predict(X) / glm.predict(X) - 1).max() < 1e-5
    assert abs(ours.score(X, y, w) - glm.score(X, y, w)) < 1e-6


def test_squares_are_kernel_ridge_regression():
    X, y = table()
    ridge = bo.KernelRidge(KERNEL, method="orthogonal", n_features=24, alpha=0.3, random_state=0)
    ridge.fit(X, y)
    ours = regressor(loss="squared").fit(X, y)
    assert_close(ours.predict(X), ridge.predict(X), factor=1e5)
    assert abs(ours.score(X, y) - ridge.score(X, y)) < 1e-10


# ---- properties


@pytest.mark.parametrize("nu", [0.05, 0.5])
def test_nu_bounds_the_share_outside_and_at_the_border(nu):
    """Schölkopf et al. (2001), proposition 3: outliers <= nu n <= outliers and border."""
    X, _ = table(400)
    fitted = bo.OneClassSVM(KERNEL, nu=nu, n_features=64, random_state=0, tol=1e-10).fit(X)
    f = fitted.decision_function(X)
    border = 1e-6 * np.abs(fitted.offset_[0])
    assert (f < -border).mean() <= nu <= (f < border).mean()


@pytest.mark.parametrize("features", [{}, {"method": "orthogonal", "precision": "float32"}])
@pytest.mark.parametrize("kind", ["plain", "weighted", "copies"])
def test_at_most_nu_of_the_weight_lies_outside_to_the_letter(kind, features):
    """Rows at the border tie but for rounding; by multipliers some of them fall outside.

    Blocks of other sizes and rows by themselves have other roundings.
    """
    for seed, nu in enumerate((0.01, 0.05, 0.1, 0.29, 0.5, 0.9)):
        X = table(150, seed=seed)[0]
        rng = np.random.default_rng(seed)
        X = X[rng.integers(0, 40, 150)] if kind == "copies" else X
        w = rng.uniform(0.1, 3, 150) * (rng.random(150) > 0.1) if kind == "weighted" else None
        options = dict(n_features=64, nu=nu, random_state=seed) | features
        ours = bo.OneClassSVM(KERNEL, **options).fit(X, sample_weight=w)
        one_by_one = np.array([ours.predict(row[None])[0] for row in X])
        for labels in (ours.predict(X), one_by_one):
            outside = np.average(labels < 0, weights=w)
            assert outside <= nu + (0 if w is None else 1e-12)
        inside = ours.decision_function(X) > 3e-4 * np.abs(ours.score_samples(X)).max()
        assert np.average(~inside, weights=w) >= nu - 1e-12


@pytest.mark.parametrize("kernel", [KERNEL, "gaussian"], ids=repr)
def test_quantiles_never_cross_and_cover(kernel):
    """Binomial at each level: 5 standard deviations, and 0.05 for what 24 features may fit."""
    X, y = table(600)
    levels = (0.05, 0.1, 0.4, 0.5, 0.6, 0.9, 0.95)
    fitted = regressor(kernel, loss="quantile", quantiles=levels).fit(X, y)
    far = 10 * table(500, seed=2)[0]
    assert np.all(np.diff(fitted.predict(far), axis=1) >= 0)
    new, target = table(2000, seed=3)
    below = (target[:, None] <= fitted.predict(new)).mean(axis=0)
    sd = np.sqrt(np.array(levels) * (1 - np.array(levels)) / 2000)
    assert np.all(np.abs(below - levels) < 5 * sd + 0.05)
    crossed = regressor(kernel, loss="quantile", quantiles=levels, alpha=1e-6, n_features=64)
    raw = crossed.fit(X, y).map_(far) @ crossed.coef_.T + crossed.intercept_
    assert np.any(np.diff(raw, axis=1) < 0)  # unsorted, these cross


MODELS = {
    "svr": bo.SVR(KERNEL, method="orthogonal", n_features=24, random_state=0, tol=1e-11),
    "one class": bo.OneClassSVM(KERNEL, nu=0.3, n_features=24, random_state=0, tol=1e-11),
    "absolute": regressor(loss="absolute", tol=1e-11),
    "quantile": regressor(loss="quantile", quantiles=(0.2, 0.7), alpha="holdout", tol=1e-11),
    "huber": regressor(loss="huber", tol=1e-11),
}
models = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)


def answers(model, X):
    return (model.decision_function if hasattr(model, "nu") else model.predict)(X)


def test_outliers_move_the_median_little_and_the_mean_far():
    X, y = table(noise=0.1)
    spoilt = y.copy()
    spoilt[::10] += 100
    moved = {
        loss: np.abs(
            regressor(loss=loss).fit(X, spoilt).predict(X)
            - regressor(loss=loss).fit(X, y).predict(X)
        ).mean()
        for loss in ("squared", "absolute", "huber")
    }
    assert max(moved["absolute"], moved["huber"]) < 0.3
    assert moved["squared"] > 3


@pytest.mark.parametrize("alpha", ["holdout", "kfold"])
def test_the_chosen_penalty_is_near_the_best(alpha):
    X, y = table(300, noise=0.5)
    new, f = table(500, seed=5, noise=0.0)
    chosen = regressor(loss="absolute", alpha=alpha).fit(X, y)
    errors = [
        np.abs(regressor(loss="absolute", alpha=a).fit(X, y).predict(new) - f).mean()
        for a in chosen.path_.alphas
    ]
    assert np.abs(chosen.predict(new) - f).mean() < 1.35 * min(errors)
    assert max(errors) > 2 * min(errors)
    assert chosen.alpha_ == chosen.path_.alpha


def test_equal_rows_are_left_out_together_in_any_order():
    X = np.random.default_rng(0).normal(size=(50, 3)).round(0)
    out = rows_left_out("t", bo.Blocks.from_arrays(X), np.ones(50), 7, 5)
    assert (out.sum(axis=1) == 1).all()
    _, group = np.unique(X, axis=0, return_inverse=True)
    for g in range(group.max() + 1):
        assert len(np.unique(out[group.ravel() == g], axis=0)) == 1
    order = np.random.default_rng(1).permutation(50)
    again = rows_left_out("t", bo.Blocks.from_arrays(X[order], block_rows=9), np.ones(50), 7, 5)
    assert (again == out[order]).all()


def test_grid_search_and_tables():
    X, y = table()
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1]})
    search = GridSearchCV(
        bo.SVR(KERNEL, n_features=32, random_state=0), {"kernel__lengthscale": [0.8, 50.0]}, cv=2
    ).fit(frame, y)
    assert search.best_params_ == {"kernel__lengthscale": 0.8}
    assert list(search.best_estimator_.feature_names_in_) == ["a", "b"]


# ---- refusals and warnings


@pytest.mark.parametrize(
    ("changes", "target", "message"),
    [
        (dict(loss="poisson"), lambda y: y, r'loss="poisson" needs y of 0 or above; got -'),
        (dict(loss="gamma"), np.abs, None),
        (dict(loss="gamma"), lambda y: np.maximum(y, 0), r'loss="gamma" needs y above 0; got 0'),
        (dict(loss="poisson"), lambda y: 0 * y, r"needs a y above 0 in some row; all are 0"),
        (dict(loss="l1"), lambda y: y, r"loss must be one of 'squared'.*got 'l1'"),
        (dict(alpha="loo"), lambda y: y, r'alpha must be "holdout", "kfold" or a number'),
        (dict(alpha=-1.0), lambda y: y, r"alpha must be a non-negative finite number; got -1"),
        (
            dict(loss="quantile"),
            lambda y: np.column_stack([y, y]),
            r"several quantiles need one target; got 3 quantiles and 2 targets",
        ),
        (dict(tol=0), lambda y: y, r"KernelRegressor: tol must be a positive finite number"),
        (dict(precision="half"), lambda y: y, r"precision must be one of"),
    ],
)
def test_what_cannot_be_fitted_is_refused_in_a_sentence(changes, target, message):
    X, y = table()
    if message is None:
        regressor(**changes).fit(X, target(y))
        return
    with pytest.raises(InvalidInput, match=message):
        regressor(**changes).fit(X, target(y))


def test_other_refusals():
    X, y = table()
    for nu in (0.0, 1.5):
        with pytest.raises(InvalidInput, match=r"nu must lie in \(0, 1\]; got"):
            bo.OneClassSVM(KERNEL, nu=nu).fit(X)
    with pytest.raises(InvalidInput, match=r"SVR: C must be a positive finite number"):
        bo.SVR(KERNEL, C=0).fit(X, y)
    with pytest.raises(InvalidInput, match=r"at least 2 different rows .* got n_samples = 1"):
        regressor(alpha="holdout").fit(X[[0, 0]], y[:2])
    with pytest.raises(InvalidInput, match=r"at least one row must have a weight above zero"):
        regressor().fit_blocks(bo.Blocks.from_arrays(X, y, np.zeros(N)))
    with pytest.raises(ValueError, match=r"requires y to be passed"):
        bo.SVR(KERNEL, method="orthogonal").fit_blocks(bo.Blocks.from_arrays(X))


@pytest.mark.parametrize("d", [1, 2])
def test_targets_without_noise_are_fitted_to_tolerance_without_a_warning(d):
    X = np.random.default_rng(0).uniform(-1, 1, (1500, d))
    y = np.sin(3 * X[:, 0]) + (X[:, 1] ** 2 if d > 1 else 0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", SolutionWarning)
        model = bo.SVR(Matern(1.5, 0.3), n_features=256, random_state=0).fit(X, y)
    assert model.n_iter_ < model.max_iter / 2
    assert model.solution_.gap <= model.tol * model.solution_.objective
    assert np.sqrt(np.mean((model.predict(X) - y) ** 2)) < model.epsilon_


def test_steps_that_do_not_suffice_are_warned_of():
    X, y = table()
    with pytest.warns(SolutionWarning, match=r"max_iter Newton steps were taken"):
        bo.SVR(KERNEL, n_features=32, max_iter=1, random_state=0).fit(X, y)


def test_huber_of_a_target_that_is_half_one_number():
    """The scale about the median is zero there: the standard deviation takes its place."""
    X, y = table()
    y[::2] = y[1::2] = np.where(np.arange(60) < 40, 1.0, y[:60])
    for options in ({}, {"alpha": "holdout"}):
        fitted = regressor(loss="huber", **options).fit(X, y)
        assert np.isfinite(fitted.predict(X)).all()


def test_constant_targets_are_predicted():
    X, _ = table()
    for loss in ("absolute", "huber", "squared", Huber(1.0), Absolute(), Quantile(0.3)):
        for alpha in (0.1, "holdout"):
            fitted = regressor(loss=loss, alpha=alpha).fit(X, np.full(N, 7.0))
            assert np.abs(fitted.predict(X) - 7).max() < 1e-6
    assert np.abs(bo.SVR(KERNEL, epsilon=0.0).fit(X, np.full(N, 7.0)).predict(X) - 7).max() < 1e-6


# ---- units of targets and weights

UNITS = [2.0**-7, 2.0**-990, 2.0**990]
HOMOGENEOUS = {
    "squared": regressor(loss="squared", alpha="holdout"),
    "absolute": regressor(loss="absolute", alpha="holdout"),
    "huber": regressor(loss="huber", alpha="holdout"),
    "quantile": regressor(loss="quantile", alpha="kfold"),
    "chosen lengthscale": regressor("gaussian", loss="huber", alpha="holdout"),
    "svr": bo.SVR(KERNEL, method="orthogonal", n_features=24, random_state=0),
    "squared svr": bo.SVR(
        KERNEL,
        loss="squared_epsilon_insensitive",
        method="orthogonal",
        n_features=24,
        random_state=0,
    ),
}
homogeneous = pytest.mark.parametrize("model", HOMOGENEOUS.values(), ids=HOMOGENEOUS)


@homogeneous
@pytest.mark.parametrize("unit", UNITS)
def test_targets_in_another_unit_are_predicted_in_that_unit(model, unit):
    X, y = table()
    plain, other = clone(model).fit(X, y), clone(model).fit(X, unit * y)
    np.testing.assert_array_equal(other.predict(X), unit * plain.predict(X))
    assert other.solution_.outcome is plain.solution_.outcome
    if not isinstance(model, bo.SVR):
        assert other.score(X, unit * y) == pytest.approx(plain.score(X, y))


@homogeneous
def test_targets_side_by_side_are_each_in_their_unit(model):
    X, y = table()
    if model.loss == "quantile":
        model = clone(model).set_params(quantiles=(0.3,))
    f = clone(model).fit(X, np.column_stack([y, 2.0**-40 * y])).predict(X)
    assert np.ptp(f[:, 0]) > 0.1
    np.testing.assert_allclose(2.0**40 * f[:, 1], f[:, 0], atol=1e-4)


def test_a_constant_target_near_the_largest_number_is_predicted():
    X, _ = table()
    for loss in ("squared", "absolute", "huber"):
        model = regressor(loss=loss, alpha="holdout").fit(X, np.full(N, 1e300))
        np.testing.assert_allclose(model.predict(X), 1e300, rtol=1e-6)


@pytest.mark.parametrize("loss", ["epsilon_insensitive", "squared_epsilon_insensitive"])
def test_numbers_given_to_svr_are_in_the_units_of_the_target(loss):
    X, y = table()
    options = dict(method="orthogonal", n_features=24, random_state=0, loss=loss)
    plain = bo.SVR(KERNEL, C=3.0, epsilon=0.2, **options).fit(X, y)
    C = 3.0 * 1024 if loss == "epsilon_insensitive" else 3.0
    other = bo.SVR(KERNEL, C=C, epsilon=0.2 * 1024, **options).fit(X, 1024 * y)
    np.testing.assert_array_equal(other.predict(X), 1024 * plain.predict(X))
    assert (plain.C_, plain.epsilon_, plain.path_) == (3.0, 0.2, None)


def test_svr_in_raw_units_predicts_new_rows():
    X, y = table(600, noise=0.1)
    model = bo.SVR(n_features=64, method="orthogonal", random_state=0).fit(X[:300], 1e5 * y[:300])
    assert model.score(X[300:], 1e5 * y[300:]) > 0.8
    deviation = np.abs(y[:300] - np.median(y[:300])).mean()
    assert model.epsilon_ == pytest.approx(0.05 * 1e5 * deviation)
    assert model.path_.errors.min() < 0.5


def test_parameters_of_svr_are_refused_in_a_sentence():
    X, y = table()
    for name in ("C", "epsilon"):
        with pytest.raises(InvalidInput, match=rf'SVR: {name} must be "auto" or a number; got'):
            bo.SVR(KERNEL, **{name: "best"}).fit(X, y)
