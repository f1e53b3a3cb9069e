"""Errors on rows held out: of a fit that has not seen them, in the measures of scikit-learn."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.metrics import log_loss, roc_auc_score

import bochner as bo
from bochner import Blocks
from bochner.data.sample import row_priorities
from bochner.errors import DataWarning
from bochner.kernels import Gaussian
from bochner.report.held_out import judge_held_out
from bochner.report.labelled import KeptValues

N = 240
COMMON = {"kernel": Gaussian(1.0), "n_features": 16, "random_state": 0}


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 2))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] + 0.3 * rng.normal(size=N)


def parts(found, X, fit):
    """Rows of the fit and rows held out, found again by what the other fit was given."""
    train = np.array([np.any(np.all(fit == x, axis=1)) for x in X])
    assert (train.sum(), (~train).sum()) == (found.n_train, found.n_test)
    return train


@pytest.fixture
def given(monkeypatch):
    """The rows and labels that every fit of the test is given."""
    kept = []
    for kind in (bo.KernelRidge, bo.GaussianProcessRegressor, bo.SVR, bo.KernelRegressor, bo.SVC,
                 bo.LogisticRegression, bo.KernelRidgeClassifier, bo.KernelSGDClassifier):  # fmt: skip
        true = kind.fit

        def fit(self, X, y, sample_weight=None, true=true):
            kept.append((np.array(X), np.array(y), sample_weight))
            return true(self, X, y, sample_weight)

        monkeypatch.setattr(kind, "fit", fit)
    return kept


NUMBERS = {
    "ridge": bo.KernelRidge(alpha=0.5, **COMMON),
    "process": bo.GaussianProcessRegressor(**COMMON),
    "svr": bo.SVR(C=2.0, **COMMON),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_quantities_are_judged_on_rows_that_the_fit_has_not_seen(rows, given, name):
    X, y = rows
    model = clone(NUMBERS[name]).fit(X, y)
    found, why = judge_held_out(model, Blocks.from_arrays(X, y))
    assert why == ""
    train = parts(found, X, given[-1][0])
    asked = {"alpha": 0.5 * 0.8} if name == "ridge" else {"C": 2.5} if name == "svr" else {}
    other = clone(NUMBERS[name]).set_params(**asked).fit(X[train], y[train])
    errors = (y - other.predict(X))[~train]
    assert found.errors["target"]["rmse"] == pytest.approx(np.sqrt(np.mean(errors**2)), rel=1e-6)
    share = 1 - np.mean(errors**2) / np.var(y[~train])
    assert found.errors["target"]["r_squared"] == pytest.approx(share, rel=1e-6)
    assert found.n_rows == N


@pytest.mark.parametrize("kind", [bo.LogisticRegression, bo.SVC, bo.KernelRidgeClassifier])
@pytest.mark.parametrize("several", [False, True], ids=["two", "three"])
def test_labels_are_judged_by_shares_log_loss_and_areas(rows, given, kind, several):
    X, y = rows
    labels = np.where(y > 0.5, "up", np.where(several & (y < -0.5), "down", "flat"))
    model = kind(**COMMON).fit(X, labels)
    errors = judge_held_out(model, Blocks.from_arrays(X, np.unique(labels, return_inverse=True)[1]))
    found = errors[0] if errors[0] else pytest.fail(errors[1])
    train = parts(found, X, given[-1][0])
    other = kind(**COMMON).fit(X[train], labels[train])
    f, truth = other.decision_function(X[~train]), labels[~train]
    told = found.errors["target"]
    assert told["accuracy"] == np.mean(other.predict(X[~train]) == truth)
    assert told["majority"] == max(np.mean(truth == c) for c in other.classes_)
    if several:
        areas = [roc_auc_score(truth == c, f[:, k]) for k, c in enumerate(other.classes_)]
        assert told["auc"] == pytest.approx(np.mean(areas), rel=1e-6)
    else:
        assert told["auc"] == pytest.approx(roc_auc_score(truth == other.classes_[1], f), rel=1e-6)
    expected = log_loss(truth, other.predict_proba(X[~train]), labels=other.classes_)
    assert told["log_loss"] == pytest.approx(expected, rel=1e-3)


def test_categories_of_noise_gain_nothing(given):
    """A category of its own for every few rows tells its target only to a fit that has seen it."""
    rng = np.random.default_rng(1)
    n = 600
    table = pd.DataFrame(
        {"code": [f"c{i}" for i in rng.integers(0, 200, n)], "x": rng.normal(size=n)}
    )
    table["y"] = rng.normal(size=n)
    blocks = Blocks.from_table(table, target="y")
    model = bo.GaussianProcessRegressor("gaussian", n_features=32, random_state=0)
    found, _ = judge_held_out(model.fit_blocks(blocks), blocks)
    # R² of pure noise on 120 rows is below 0 but for its deviation, √(2/120), six times over
    assert found.errors["y"]["r_squared"] < 6 * np.sqrt(2 / 120)


def test_every_label_is_kept_for_the_fit(rows):
    X, y = rows
    labels = np.where(np.arange(N) == 7, 2.0, (y > 0).astype(float))
    with pytest.warns(DataWarning, match="1 class has fewer than 5"):
        model = bo.LogisticRegression(**COMMON).fit(X, labels)
    found, why = judge_held_out(model, Blocks.from_arrays(X, labels))
    assert why == ""
    assert 0.15 * N < found.n_test < 0.21 * N


def test_weights_count_and_a_sample_is_bounded(rows, given):
    X, y = rows
    w = np.where(np.arange(N) % 2, 1.0, 3.0)
    model = bo.KernelRidge(alpha=0.5, **COMMON).fit(X, y, w)
    found, _ = judge_held_out(model, Blocks.from_arrays(X, y, w), n_sample=100)
    assert (found.n_train, found.n_test, found.n_rows) == (80, 20, N)
    fit, _, weights = given[-1]
    np.testing.assert_array_equal(weights, [w[np.all(X == x, axis=1)][0] for x in fit])


def test_words_say_what_was_measured_and_on_what(rows):
    X, y = rows
    model = bo.SVC(**COMMON).fit(X, y > 0)
    text = str(judge_held_out(model, Blocks.from_arrays(X, (y > 0) * 1.0))[0])
    assert text.startswith("accuracy 0.")
    assert "where the most frequent label has 0." in text
    assert "48 rows, of a fit to 192 others)" in text or "47 rows, of a fit to 193 others)" in text


def test_quantiles_have_the_share_of_the_loss_explained(rows):
    X, y = rows
    model = bo.KernelRegressor(loss="quantile", quantiles=[0.1, 0.9], **COMMON).fit(X, y)
    (found,) = judge_held_out(model, Blocks.from_arrays(X, y))[0].errors.values()
    assert list(found) == ["explained"]
    assert 0 < found["explained"] < 1


def test_learners_without_a_target_say_so(rows):
    X, _ = rows
    components = bo.KernelPCA(2, n_features=16, random_state=0).fit(X)
    assert judge_held_out(components, Blocks.from_arrays(X)) == (
        None,
        "none: KernelPCA predicts nothing that could be wrong.",
    )
    outliers = bo.OneClassSVM(nu=0.2, **COMMON).fit(X)
    (found,) = judge_held_out(outliers, Blocks.from_arrays(X))[0].errors.values()
    assert found["nu"] == 0.2
    assert abs(found["outside"] - 0.2) < 6 * np.sqrt(0.16 / 48)


def test_few_rows_say_so(rows):
    X, y = rows
    model = bo.SVR(**COMMON).fit(X[:4], y[:4])
    found, why = judge_held_out(model, Blocks.from_arrays(X[:4], y[:4]))
    assert found is None
    assert why == "none: 4 rows are too few to hold some out."


@pytest.mark.parametrize("several", [False, True], ids=["two", "three"])
def test_areas_of_many_rows_are_those_of_some_at_random(rows, several):
    """Blocks of any size keep the same rows: those of the lowest priority."""
    X, y = rows
    codes = np.where(y > 0.5, 2.0 if several else 1.0, np.where(several & (y < -0.5), 1.0, 0.0))
    model = bo.LogisticRegression(**COMMON).fit(X, codes)
    w = np.random.default_rng(0).uniform(0.5, 2, len(y)) * (np.arange(len(y)) % 5 > 0)
    told = []
    for size in (7, 50, len(y)):
        kept = KeptValues(model, 3, most=60)
        for start in range(0, len(y), size):
            here = slice(start, start + size)
            kept.add(X[here], codes[here], w[here], start)
        told.append(kept.measures())
    priority = np.where(w > 0, row_priorities(3, 0, len(y)), 2.0)
    some = np.argsort(priority, kind="stable")[:60]
    expected = log_loss(codes[some], model.predict_proba(X[some]), sample_weight=w[some])
    f = model.decision_function(X[some])
    f = f if several else np.column_stack([-f, f])
    areas = [
        roc_auc_score(codes[some] == c, f[:, k], sample_weight=w[some])
        for k, c in enumerate(model.classes_)
    ]
    for found in told:
        assert found["log_loss"] == pytest.approx(expected, rel=1e-9)
        assert found["auc"] == pytest.approx(np.mean(areas), rel=1e-9)
