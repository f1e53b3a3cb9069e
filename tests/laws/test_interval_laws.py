"""Prediction intervals and held-out errors, compared with refits, coverage and scikit-learn."""

from dataclasses import replace
from functools import partial

import gallery
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.metrics import log_loss, roc_auc_score

import bochner as bo
from bochner import Blocks
from bochner.errors import InvalidInput
from bochner.kernels import Gaussian
from bochner.models.error_law import HeldOutRows, TargetLaw, learn_errors
from bochner.report.quality import held_out_error

# ---- intervals of regressors: leave-one-out errors by refits, coverage and calibration

#: Number of standard errors that a correct library exceeds with probability 1e-6.
ALARM = 4.9


def table(n, seed=0, t=1):
    """Return rows and targets with noise that grows with the first column."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 2))
    y = np.sin(2 * X[:, 1]) + (0.1 + 0.4 * np.abs(X[:, 0])) * rng.standard_normal(n)
    return X, y if t == 1 else np.column_stack([y * 3**j for j in range(t)])


def exact(**options):
    return bo.KernelRidge(Gaussian(0.8), alpha=0.5, random_state=0, **options)


def features(**options):
    return exact(method="fourier", n_features=20, precision="float64", **options)


def law_of(scores, w=None, shape=None):
    """Return a law without a scale, from its scores."""
    w = np.ones(len(scores)) if w is None else w
    order = np.argsort(scores, kind="stable")
    return TargetLaw(scores[order], np.cumsum(w[order]) * len(w) / w.sum(), shape=shape)


@pytest.mark.parametrize("limit", [1, 4], ids=["rows", "copies"])
@pytest.mark.parametrize("make", [exact, features], ids=["exact", "features"])
def test_leave_one_out_errors_equal_refits(make, limit):
    """Rows are left out with their copies if these chose the penalty. Landmarks have no errors."""
    X, y = table(25)
    w, copies = np.random.default_rng(1).uniform(0.2, 1.0, 25), 1 + np.arange(25) % limit

    def fitted(alternatives, alpha):
        rows = (np.repeat(a[alternatives], copies[alternatives], axis=0) for a in (X, y, w))
        return make().set_params(alpha=alpha).fit(*rows)

    model = fitted(np.arange(25), 0.5 if limit == 1 else "loo")
    left_out = model.fit_.left_out()
    for i in range(0, 25, 6):
        baseline = fitted(np.arange(25) != i, model.alpha_).predict(X[i : i + 1])[0]
        np.testing.assert_allclose(left_out.errors[i, 0], y[i] - baseline, rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(left_out.predicted[i, 0], baseline, rtol=1e-7, atol=1e-9)
    model = exact(method="nystrom", n_features=10).fit(X, y)
    marks = {tuple(row) for row in model.map_.landmarks}
    alternatives = model.fit_.left_out()
    assert len(alternatives.w) == 25 - len(marks)
    assert not marks & {tuple(row) for row in alternatives.X}


MAKES = {
    "ridge": bo.KernelRidge,
    "ridge on a grid": partial(bo.KernelRidge, "gaussian", method=bo.FourierGrid()),
    "process": bo.GaussianProcessRegressor,
    "process on features": partial(bo.GaussianProcessRegressor, method="nystrom", n_features=150),
    "process on a grid": partial(bo.GaussianProcessRegressor, "gaussian", method=bo.FourierGrid()),
    "neighbours": partial(bo.GaussianProcessRegressor, "matern32", method=bo.NearestNeighbours(30)),
}


@pytest.mark.parametrize("make", MAKES.values(), ids=MAKES)
def test_copies_and_weights_do_not_hide_the_noise(make):
    """If a copy stayed in the fit, it would follow the noise of 0.3: RMSE 0.5, and no coverage."""
    X, new = np.random.default_rng(0).uniform(-2, 2, (2, 300, 2))
    y, target = (np.sin(2 * Z[:, 0]) * Z[:, 1] for Z in (X, new))
    noise = 0.3 * np.random.default_rng(1).standard_normal((2, 300))
    for copies, w in ((3, 1.0), (1, 10.0)):
        rows = np.repeat(X, copies, axis=0), np.repeat(y + noise[0], copies)
        model = make(random_state=0).fit(*rows, np.full(len(rows[1]), w))
        predicted, low, high = model.predict_interval(new)
        assert np.sqrt(np.mean((predicted - target) ** 2)) < 0.15
        assert 0.8 < np.mean((low < target + noise[1]) & (target + noise[1] < high)) < 0.98


def test_copies_are_merged_only_if_the_sample_has_all_rows():
    X, y = table(40)
    fit = features().set_params(alpha="loo").fit(np.tile(X, (3, 1)), np.tile(y, 3)).fit_
    rows = fit.representation
    assert (rows.max_weight, len(rows.sample)) == (3, 40)
    assert replace(rows, sample=rows.sample.lowest(30)).without_copies(fit.spec).max_weight == 1


@pytest.mark.parametrize("coverage", [0.5, 0.9])
def test_ends_of_intervals_are_order_statistics_of_the_scores(coverage):
    """Equal weights change nothing, and the ends of few scores are symmetric."""
    scores = np.random.default_rng(2).gamma(1.0, size=199)
    low, high = law_of(scores).ends(coverage)
    tail = round(200 * (1 - coverage) / 2)
    assert (low, high) == (np.sort(scores)[tail - 1], np.sort(scores)[200 - tail - 1])
    assert law_of(scores, np.full(199, 3.0)).ends(coverage) == (low, high)
    assert law_of(scores, np.where(scores > 1, 3.0, 1.0)).ends(coverage)[0] > low
    errors = np.random.default_rng(3).standard_normal(19)
    half = np.sort(np.abs(errors))[17]
    assert law_of(errors).ends(0.9) == (-half, half)


def rows_of(errors, X, source="leave one out"):
    return HeldOutRows(X, np.zeros((len(X), 1)), errors[:, None], np.ones(len(X)), source)


def test_the_scale_of_errors_is_learned_only_if_it_varies():
    """Of enough held-out rows, one half fits the scale and the other half gives the scores."""
    rng = np.random.default_rng(7)
    e, X = rng.standard_normal(600), rng.uniform(-1, 1, (600, 2))
    assert learn_errors(rows_of(e, X), 0).targets[0].scale is None
    assert len(learn_errors(rows_of(e, X, "held out"), 0)) == 300
    assert len(learn_errors(rows_of(e[:200], X[:200], "held out"), 0)) == 200
    rng = np.random.default_rng(8)
    X = rng.uniform(-1, 1, (800, 2))
    law = learn_errors(rows_of(np.exp(2 * X[:, 0]) * rng.standard_normal(800), X), 0)
    low, high = law.bounds(np.array([[-0.8, 0.0], [0.8, 0.0]]), np.zeros((2, 1)), 0.9)
    assert law.targets[0].scale is not None
    assert 0.5 < (high - low)[1, 0] / (high - low)[0, 0] / np.exp(3.2) < 2


def test_a_varying_shape_of_errors_is_learned():
    """Errors have one sign left of zero, and the other sign right of it."""
    rng = np.random.default_rng(9)
    X = rng.uniform(-1, 1, (1500, 1))
    e = np.sign(X[:, 0]) * (rng.exponential(size=1500) - 0.05)
    law = learn_errors(rows_of(e, X), 0)
    low, high = law.bounds(np.array([[-0.6], [0.6]]), np.zeros((2, 1)), 0.9)
    assert law.targets[0].shape is not None
    assert low[0, 0] < -2
    assert low[1, 0] > -1
    assert high[0, 0] < 1
    assert high[1, 0] > 2
    assert np.all((high - low)[:, 0] < 4.5)


def test_infinite_errors_widen_only_large_intervals_and_zero_errors_give_no_width():
    rng = np.random.default_rng(10)
    e = rng.standard_normal(400)
    e[:40] = np.where(np.arange(40) % 2, np.inf, -np.inf)
    law = learn_errors(rows_of(e, rng.uniform(-1, 1, (400, 1))), 0)
    assert np.all(np.isfinite(law.bounds(np.zeros((1, 1)), np.zeros((1, 1)), 0.8)))
    assert np.all(np.isinf(law.bounds(np.zeros((1, 1)), np.zeros((1, 1)), 0.99)))
    for n in (1, 40, 200):
        law = learn_errors(rows_of(np.zeros(n), np.ones((n, 1))), 0)
        assert np.all(np.array(law.bounds(np.ones((3, 1)), np.ones((3, 1)), 0.3)) == 1)


@pytest.fixture(scope="module")
def fitted():
    return bo.KernelRidge("gaussian", random_state=0).fit(*table(800))


def test_a_default_fit_has_the_requested_coverage_everywhere(fitted):
    """The standard error of 800 scores and 3000 rows is 0.012 at 90 %."""
    X, y = table(3000, seed=1)
    for coverage in (0.5, 0.9, 0.95):
        predicted, low, high = fitted.predict_interval(X, coverage)
        covered = (low <= y) & (y <= high)
        assert abs(covered.mean() - coverage) < ALARM * np.sqrt(coverage * (1 - coverage) / 630)
        varies = fitted.calibration_.targets[0].scale is not None
        assert varies or np.all((low <= predicted) & (predicted <= high))
    wide = high - low
    assert wide[np.abs(X[:, 0]) > 1.5].mean() > 2 * wide[np.abs(X[:, 0]) < 0.5].mean()
    assert covered[np.abs(X[:, 0]) < 0.5].mean() > 0.85
    assert covered[np.abs(X[:, 0]) > 1.5].mean() > 0.85


def test_conditional_distributions_are_saved(tmp_path):
    rng = np.random.default_rng(12)
    X = rng.uniform(-1, 1, (1500, 1))
    y = np.sign(X[:, 0]) * (rng.exponential(size=1500) - 1)
    model = exact().fit(X, y)
    original = model.predict_interval(X, 0.9)[1]
    assert model.calibration_.targets[0].shape is not None
    bo.save(model, tmp_path / "model.bochner")
    repeat = bo.load(tmp_path / "model.bochner").predict_interval(X, 0.9)[1]
    np.testing.assert_array_equal(original, repeat)


def test_intervals_of_tables_and_targets_are_dropped_by_a_further_fit():
    X, y = table(300, t=2)
    _, low, high = exact().fit(X, y).predict_interval(X[:7], 0.9)
    np.testing.assert_allclose((high - low)[:, 1], 3 * (high - low)[:, 0], rtol=1e-6)
    rows = pd.DataFrame(X, columns=["a", "b"]).assign(c=np.where(X[:, 0] > 0, "u", "v"))
    model = exact().fit(rows, y[:, 0])
    assert model.predict_interval(rows)[1].shape == (300,)
    assert model.calibrate(rows, y[:, 0], folds=3).calibration_.source == "cross-validation"
    assert len(model.calibration_) == 300
    model = features().fit(X, y).calibrate(X, y)
    assert model.calibration_.source == "held out"
    assert model.partial_fit(X, y).calibration_.source == "leave one out"


WITHOUT_ROWS = {
    "sgd": bo.KernelSGDRegressor(
        Gaussian(0.8), n_features=64, tol=None, max_iter=5, random_state=0
    ),
    "grid": bo.KernelRidge(Gaussian(0.8), method=bo.FourierGrid(), alpha=0.1, random_state=0),
}


@pytest.mark.parametrize("name", WITHOUT_ROWS)
def test_fits_without_leave_one_out_errors_require_calibration(name, tmp_path):
    (X, y), (Xc, yc), (Xt, yt) = (table(300, seed) for seed in (5, 6, 7))
    model = clone(WITHOUT_ROWS[name]).fit(X, y)
    cls = type(model).__name__
    with pytest.raises(InvalidInput, match=rf"{cls}.predict_interval: this fit has no leave.*Call"):
        model.predict_interval(Xt)
    predicted, low, high = model.calibrate(Xc, yc).predict_interval(Xt, 0.9)
    assert predicted.shape == low.shape == (300,)
    assert abs(np.mean((low <= yt) & (yt <= high)) - 0.9) < ALARM * np.sqrt(0.09 / 100)
    bo.save(model, tmp_path / "m")
    np.testing.assert_array_equal(bo.load(tmp_path / "m").predict_interval(Xt, 0.9)[1], low)
    assert len(model.calibrate(X, y, np.arange(300.0), folds=2).calibration_) == 299


ORTHOGONAL = {"method": "orthogonal", "n_features": 64, "random_state": 0}
LOSSES = {"squared": "squared", "median": "absolute", "Huber": bo.Huber(0.3)}
LOSSES |= {"counts": "poisson", "quantiles": "quantile"}
CONVEX = {
    "exact svr": bo.SVR(Gaussian(0.8), C=1.0),
    "exact svr, squared": bo.SVR(Gaussian(0.8), C=1.0, loss="squared_epsilon_insensitive"),
    "svr": bo.SVR(Gaussian(0.8), C=1.0, **ORTHOGONAL),
    **{
        name: bo.KernelRegressor(Gaussian(0.8), loss=loss, alpha=0.5, **ORTHOGONAL)
        for name, loss in LOSSES.items()
    },
}

#: Root mean squared distance from refits, relative to the change by leaving out a row. It is
#: rounding for quadratic losses, and the remainder of a Newton step for smooth losses. For
#: nonsmooth losses only the distribution of errors is near.
NEAR = {"squared": 1e-9, "exact svr, squared": 0.3, "Huber": 0.3, "counts": 0.2}


@pytest.mark.parametrize("features", [{}, {"method": "orthogonal", "n_features": 16}], ids=str)
def test_an_intercept_that_no_row_determines_stays(features):
    """With a small C all rows are outside the tube, equally many on both sides."""
    X, y = np.random.default_rng(0).standard_normal((60, 2)), np.repeat([-1.0, 1.0], 30)
    model = bo.SVR(Gaussian(1.0), C=1e-6, epsilon=0.1, random_state=0, **features).fit(X, y)
    assert 1 < np.abs(np.asarray(model.predict_interval(X))).max() < 4


@pytest.mark.main_cases(2)
@pytest.mark.parametrize("name", CONVEX)
def test_leave_one_out_errors_of_convex_losses_agree_with_refits(name):
    """The 80 % quantile of their size is near that of refits, and above that of the residuals."""
    X, y = table(60, seed=5)
    y = np.exp(y - y.max()) if name == "counts" else y
    model = clone(CONVEX[name]).fit(X, y)
    left_out = model._left_out()
    middle = left_out.predicted.shape[1] // 2

    def refit_without(i):
        other = clone(model).fit(np.delete(X, i, 0), np.delete(y, i)).predict(X[i : i + 1])
        return np.ravel(other)[len(np.ravel(other)) // 2]

    refitted = np.array([refit_without(i) for i in range(60)])
    predicted = model.predict(X)
    predicted = predicted if predicted.ndim == 1 else predicted[:, predicted.shape[1] // 2]
    errors, distances = left_out.errors, left_out.predicted[:, middle] - refitted
    np.testing.assert_allclose(left_out.predicted + errors, y[:, None], atol=1e-9)
    if name in NEAR:
        assert np.linalg.norm(distances) <= NEAR[name] * np.linalg.norm(predicted - refitted)
    size, true, fitted = (
        np.quantile(np.abs(e), 0.8) for e in (errors[:, middle], y - refitted, y - predicted)
    )
    assert abs(size - true) < 0.25 * true
    assert size > fitted


def test_leave_one_out_errors_allow_zero_weights_and_several_targets():
    X, y = table(80, seed=5)
    targets = np.column_stack([y, -3 * y])
    w = np.arange(80) % 4 > 0
    for name in ("exact svr", "svr", "median"):
        multiple = clone(CONVEX[name]).fit(X, targets, sample_weight=w)._left_out()
        single = clone(CONVEX[name]).fit(X[w], y[w])._left_out()
        assert multiple.errors.shape == (60, 2)
        np.testing.assert_allclose(multiple.errors[:, 0], single.errors[:, 0], atol=1e-2)
    weights = np.arange(3000) % 100 == 0  # few of more rows than the sample
    large_fit = clone(CONVEX["median"]).fit(*table(3000, seed=5), sample_weight=weights)
    assert len(large_fit._left_out().w) == 30


# ---- held-out errors of the report, compared with scikit-learn's measures

N = 240
COMMON = {"kernel": Gaussian(1.0), "n_features": 16, "random_state": 0}


def parts(counts, X, fit):
    """Return the mask of the training rows, from the rows that the refit received."""
    train = np.array([np.any(np.all(fit == x, axis=1)) for x in X])
    assert (train.sum(), (~train).sum()) == (counts["n_train"], counts["n_test"])
    return train


@pytest.fixture
def records(monkeypatch):
    """Return a list of the rows, labels and weights of each fit in the test."""
    calls = []
    for kind in (bo.KernelRidge, bo.GaussianProcessRegressor, bo.SVR, bo.KernelRegressor, bo.SVC,
                 bo.LogisticRegression, bo.KernelRidgeClassifier, bo.KernelSGDClassifier):  # fmt: skip
        original = kind.fit

        def fit(self, X, y, sample_weight=None, original=original):
            calls.append((np.array(X), np.array(y), sample_weight))
            return original(self, X, y, sample_weight)

        monkeypatch.setattr(kind, "fit", fit)
    return calls


NUMBERS = {"ridge": bo.KernelRidge(alpha=0.5, **COMMON), "svr": bo.SVR(C=2.0, **COMMON)}
NUMBERS["process"] = bo.GaussianProcessRegressor(**COMMON)


@pytest.mark.parametrize("name", NUMBERS)
def test_errors_of_quantities_are_those_of_held_out_rows(records, name):
    X, y = gallery.table(N, noise=0.3)
    result, reason = held_out_error(clone(NUMBERS[name]).fit(X, y), Blocks.from_arrays(X, y))
    assert "held out: 48 rows, of a fit to 192 others" in reason
    train = parts(result, X, records[-1][0])
    penalty = {"alpha": 0.5 * 0.8} if name == "ridge" else {"C": 2.5} if name == "svr" else {}
    other = clone(NUMBERS[name]).set_params(**penalty).fit(X[train], y[train])
    errors = (y - other.predict(X))[~train]
    rmse = np.sqrt(np.mean(errors**2))
    assert result["errors"]["target"]["rmse"] == pytest.approx(rmse, rel=1e-6)
    share = 1 - np.mean(errors**2) / np.var(y[~train])
    assert result["errors"]["target"]["r_squared"] == pytest.approx(share, rel=1e-6)
    assert result["n_rows"] == N


@pytest.mark.main_cases(3)
@pytest.mark.parametrize("kind", [bo.LogisticRegression, bo.SVC, bo.KernelRidgeClassifier])
@pytest.mark.parametrize("multiple", [False, True], ids=["two", "three"])
def test_errors_of_labels_are_those_of_held_out_rows(records, kind, multiple):
    X, y = gallery.table(N, noise=0.3)
    labels = np.where(y > 5.5, "up", np.where(multiple & (y < 4.5), "down", "flat"))
    model = kind(**COMMON).fit(X, labels)
    errors = held_out_error(model, Blocks.from_arrays(X, np.unique(labels, return_inverse=True)[1]))
    result = errors[0] if errors[0] else pytest.fail(errors[1])
    train = parts(result, X, records[-1][0])
    other = kind(**COMMON).fit(X[train], labels[train])
    f, truth = other.decision_function(X[~train]), labels[~train]
    measures = result["errors"]["target"]
    assert measures["accuracy"] == np.mean(other.predict(X[~train]) == truth)
    assert measures["majority"] == max(np.mean(truth == c) for c in other.classes_)
    if multiple:
        areas = [roc_auc_score(truth == c, f[:, k]) for k, c in enumerate(other.classes_)]
        assert measures["auc"] == pytest.approx(np.mean(areas), rel=1e-6)
    else:
        auc = roc_auc_score(truth == other.classes_[1], f)
        assert measures["auc"] == pytest.approx(auc, rel=1e-6)
    expected = log_loss(truth, other.predict_proba(X[~train]), labels=other.classes_)
    assert measures["log_loss"] == pytest.approx(expected, rel=1e-3)


def test_categories_of_noise_do_not_lower_the_held_out_error(records):
    """A category of three rows predicts its target only in a fit that contains the row."""
    rng = np.random.default_rng(1)
    n = 600
    table = pd.DataFrame(
        {"code": [f"c{i}" for i in rng.integers(0, 200, n)], "x": rng.normal(size=n)}
    )
    table["y"] = rng.normal(size=n)
    blocks = Blocks.from_table(table, target="y")
    model = bo.GaussianProcessRegressor("gaussian", n_features=32, random_state=0)
    result, _ = held_out_error(model.fit_blocks(blocks), blocks)
    # R² of pure noise on 120 rows is below 0 plus six times its deviation √(2/120)
    assert result["errors"]["y"]["r_squared"] < 6 * np.sqrt(2 / 120)


def test_held_out_errors_use_weights_and_a_bounded_sample(records, monkeypatch):
    monkeypatch.setattr("bochner.report.quality.ROWS", 100)
    X, y = gallery.table(N, noise=0.3)
    w = np.where(np.arange(N) % 2, 1.0, 3.0)
    model = bo.KernelRidge(alpha=0.5, **COMMON).fit(X, y, w)
    result, _ = held_out_error(model, Blocks.from_arrays(X, y, w))
    assert (result["n_train"], result["n_test"], result["n_rows"]) == (80, 20, N)
    fit, _, weights = records[-1]
    np.testing.assert_array_equal(weights, [w[np.all(X == x, axis=1)][0] for x in fit])


def test_held_out_errors_of_other_learners_exist_or_have_a_reason():
    X, y = gallery.table(N, noise=0.3)
    quantiles = bo.KernelRegressor(loss="quantile", quantiles=[0.1, 0.9], **COMMON).fit(X, y)
    (measures,) = held_out_error(quantiles, Blocks.from_arrays(X, y))[0]["errors"].values()
    assert list(measures) == ["explained"]
    assert 0 < measures["explained"] < 1
    components = bo.KernelPCA(2, n_features=16, random_state=0).fit(X)
    flat = "none: KernelPCA predicts nothing that could be wrong."
    assert held_out_error(components, Blocks.from_arrays(X)) == (None, flat)
    outliers = bo.OneClassSVM(nu=0.2, **COMMON).fit(X)
    (measures,) = held_out_error(outliers, Blocks.from_arrays(X))[0]["errors"].values()
    assert measures["nu"] == 0.2
    assert abs(measures["outside"] - 0.2) < 6 * np.sqrt(0.16 / 48)
    result_ = held_out_error(bo.SVR(**COMMON).fit(X[:4], y[:4]), Blocks.from_arrays(X[:4], y[:4]))
    assert result_ == (None, "none: 4 rows are too few to hold some out.")
