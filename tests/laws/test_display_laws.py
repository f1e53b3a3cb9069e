"""What users see: numbers of displays, importance and contributions of columns."""

import sys
from functools import cache
from itertools import combinations
from math import factorial

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from scipy.stats import binom, norm
from sklearn.calibration import calibration_curve
from sklearn.inspection import partial_dependence

import bochner as bo
from bochner import CalibrationDisplay, PathDisplay, SpectrumDisplay
from bochner.errors import MissingDependency
from bochner.kernels import Columns, Gaussian

N = 120
ALARM = 1e-6
rng = np.random.default_rng(0)
X = rng.uniform(-2, 2, (N, 2))
Y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(N)


@cache
def ridge():
    options = {"method": "fourier", "n_features": 24, "precision": "float64", "random_state": 0}
    return bo.KernelRidge(Gaussian(1.0), **options).fit(X, Y)


@cache
def logistic():
    return bo.LogisticRegression(Gaussian(1.0), n_features=24, random_state=0).fit(X, Y > 0)


# --- path and spectrum ---------------------------------------------------------------------------


def test_path_is_the_error_of_fits_without_each_row():
    shown, errors = PathDisplay.from_estimator(ridge()), ridge().fit_.left_out().errors
    at = int(np.argmin(np.abs(shown.alphas - shown.alpha[0])))
    assert shown.chosen == "leave-one-out"
    expected = np.sqrt(np.mean(np.square(errors)))
    assert shown.criteria["leave-one-out"][at] == pytest.approx(expected, rel=1e-8)


def test_path_chosen_by_evidence_shows_the_evidence():
    model = bo.KernelRidge(Gaussian(1.0), n_features=16, alpha="evidence", random_state=0)
    shown = PathDisplay.from_estimator(model.fit(X, Y))
    (values,) = shown.criteria.values()
    assert shown.alphas[np.argmax(values)] == pytest.approx(shown.alpha[0])
    assert shown.unit == "log marginal likelihood"


def test_paths_of_other_losses_rise_in_alpha():
    huber = bo.KernelRegressor(Gaussian(1.0), n_features=16, loss="huber", random_state=0).fit(X, Y)
    for model, alpha in ((huber, huber.alpha_), (logistic(), 1 / logistic().C_)):
        shown = PathDisplay.from_estimator(model)
        assert np.all(np.diff(shown.alphas) > 0)
        assert shown.alpha[0] == pytest.approx(alpha)


@pytest.mark.parametrize("name", ["ridge", "logistic"])
def test_spectrum_is_that_of_the_centred_features(name):
    """From moments of the fit, or where it keeps none from the rows given."""
    model = {"ridge": ridge, "logistic": logistic}[name]()
    shown = SpectrumDisplay.from_estimator(model, *(() if name == "ridge" else (X,)))
    Z = np.asarray(model.map_(X))
    squares = np.linalg.svd(Z - Z.mean(axis=0), compute_uv=False) ** 2
    np.testing.assert_allclose(shown.eigenvalues, squares, atol=1e-9 * squares[0])
    alpha = model.alpha_ if name == "ridge" else 1 / (2 * model.C_)
    assert shown.alpha == pytest.approx(alpha)
    assert shown.effective_dimension == pytest.approx(np.sum(squares / (squares + alpha)))


# --- errors --------------------------------------------------------------------------------------


def test_reliability_is_scikit_learns_calibration_curve():
    shown = CalibrationDisplay.from_estimator(logistic(), X, Y > 0, n_bins=5)
    observed, expected = calibration_curve(Y > 0, logistic().predict_proba(X)[:, 1], n_bins=5)
    np.testing.assert_allclose(shown.expected, expected)
    np.testing.assert_allclose(shown.observed, observed)
    assert shown.count.sum() == N
    assert shown.error == pytest.approx(np.sum(shown.count * np.abs(observed - expected)) / N)


def outside(stated, true, seed=0):
    """How many of 40 bins are off by more than chance makes of it in 95 of 100 cases."""
    happened = np.random.default_rng(seed).uniform(size=len(true)) < true
    shown = CalibrationDisplay.of_probabilities(happened, stated, 40)
    return int(np.sum(np.abs(shown.observed - shown.expected) > shown.spread))


@pytest.mark.statistical
def test_bins_of_true_probabilities_are_off_as_often_as_stated():
    p = np.random.default_rng(1).uniform(0.1, 0.9, 20_000)
    limit = binom.isf(ALARM, 32, 0.06)  # 32 bins hold rows; 5 % by the normal law, near 600 rows
    assert outside(p, p) <= limit
    assert outside(p, np.clip(p + 0.1, 0, 1)) > limit  # planted: ten percent too low


def test_gaussian_process_shows_the_coverage_of_its_intervals():
    model = bo.GaussianProcessRegressor(Gaussian(1.0), n_features=24, random_state=0)
    model.fit(X[:80], Y[:80])
    shown = CalibrationDisplay.from_estimator(model, X[80:], Y[80:])
    mean, std = model.predict(X[80:], return_std=True, include_noise=True)
    low, high = norm.ppf(0.05, mean, std), norm.ppf(0.95, mean, std)
    at = list(shown.expected).index(0.9)
    assert shown.kind == "coverage"
    assert shown.observed[at] == pytest.approx(np.mean((low <= Y[80:]) & (Y[80:] <= high)))


def test_quantiles_show_the_share_of_rows_below_and_means_those_of_sorted_rows():
    model = bo.KernelRegressor(Gaussian(1.0), loss="quantile", n_features=16, random_state=0)
    shown = CalibrationDisplay.from_estimator(model.fit(X, Y), X, Y)
    np.testing.assert_allclose(shown.observed, np.mean(Y[:, None] <= model.predict(X), axis=0))
    np.testing.assert_allclose(shown.expected, [0.1, 0.5, 0.9])
    f = ridge().predict(X)
    shown, order = CalibrationDisplay.from_estimator(ridge(), X, Y, n_bins=4), np.argsort(f)
    np.testing.assert_allclose(shown.expected, f[order].reshape(4, -1).mean(axis=1))
    np.testing.assert_allclose(shown.observed, Y[order].reshape(4, -1).mean(axis=1))


# --- pictures ------------------------------------------------------------------------------------


def test_plots_name_their_axes_and_draw_on_those_given():
    probability = CalibrationDisplay.from_estimator(logistic(), X, Y > 0)
    for display, x, y in (
        (PathDisplay.from_estimator(ridge()), "penalty alpha", "root mean squared error"),
        (SpectrumDisplay.from_estimator(ridge()), "number", "eigenvalue"),
        (probability, "probability predicted", "share observed"),
    ):
        ax = Figure().subplots()
        assert display.plot(ax).ax_ is ax
        assert (ax.get_xlabel(), ax.get_ylabel()) == (x, y)
        assert ax.has_data()
        assert display.plot().figure_ is not None


def test_without_matplotlib_a_plot_says_how_to_get_it(monkeypatch):
    shown = PathDisplay.from_estimator(ridge())
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingDependency, match=r"PathDisplay.plot needs .* matplotlib.*pip inst"):
        shown.plot()


# --- importance: by exchange and gradients, each found again by a slow route --------------

N_ROWS = 300
ROWS = rng.normal(size=(N_ROWS, 3)) * [1.0, 10.0, 0.1] + [0.0, 5.0, 0.0]
VALUES = 3 * ROWS[:, 0] - 0.2 * ROWS[:, 1] + np.sin(ROWS[:, 0]) * ROWS[:, 1]


@cache
def steep():
    kernel = Gaussian((1.0, 10.0, 1.0))
    return bo.KernelRidge(kernel, n_features=64, random_state=0).fit(ROWS, VALUES)


@pytest.fixture(scope="module")
def table():
    """A table of columns of three kinds and one that is left out, and a fit to it."""
    size = np.where(rng.random(N_ROWS) < 0.2, np.nan, rng.normal(size=N_ROWS))
    frame = pd.DataFrame({"kind": rng.choice(["a", "b", "c"], N_ROWS), "size": size})
    frame["day"], frame["same"] = pd.date_range("2020-01-01", periods=N_ROWS, freq="3D"), "one"
    value = frame["kind"].map({"a": 0.0, "b": 2.0, "c": -1.0}) + frame["size"].fillna(4.0)
    options = {"method": "fourier", "n_features": 64, "columns": "as_given", "random_state": 0}
    with pytest.warns(bo.errors.DataWarning, match="'same'"):
        return frame, bo.KernelRidge("gaussian", **options).fit(frame, value)


def all_pairs(predict, X, j):
    """T_j over all ordered pairs of different rows, one prediction at a time."""
    f, total = predict(X), 0.0
    for i in range(len(X)):
        moved = np.repeat(X[i : i + 1], len(X), axis=0)
        moved[:, j] = X[:, j]
        total += np.sum((predict(moved) - f[i]) ** 2) / 2
    return total / (len(X) * (len(X) - 1))


def test_exchange_is_the_mean_over_all_pairs_of_rows():
    found = bo.column_importance(steep(), ROWS)
    z = norm.isf(ALARM / 6)
    exact = [np.sqrt(all_pairs(steep().predict, ROWS, j)) for j in range(3)]
    assert np.all(np.abs(found.importance[:, 0] - exact) < z * found.error[:, 0])
    assert abs(found.importance[0, 0] - exact[2]) > z * found.error[0, 0]  # another column is seen


def test_columns_of_a_table_are_exchanged_whole_and_named_as_given(table):
    frame, model = table
    found = bo.column_importance(model, frame, n_rows=N_ROWS)
    assert found.columns == ("kind", "size", "day")  # without the one that was left out
    z = norm.isf(ALARM / 4)
    for j, name in enumerate(found.columns[:2]):
        total = 0.0
        for shift in range(1, 40):
            other = frame.copy()
            other[name] = np.roll(frame[name].to_numpy(), shift)
            total += np.mean((model.predict(other) - model.predict(frame)) ** 2) / 2
        exact = np.sqrt(total / 39)
        # the mean over 39 rings has less than the error of one
        assert abs(found.importance[j, 0] - exact) < 1.4 * z * found.error[j, 0]
    assert found.columns[found.order[-1]] == "day"


def test_a_column_that_predictions_do_not_see_has_none():
    kernel = Columns(Gaussian((1.0, 10.0)), (0, 1))
    model = bo.KernelRidge(kernel, n_features=64, random_state=0).fit(ROWS, VALUES)
    found = bo.column_importance(model, ROWS)
    assert found.importance[2, 0] == found.error[2, 0] == 0
    assert found.columns[found.order[-1]] == "column 2"


def test_gradients_are_differences_of_predictions():
    found, h = bo.column_importance(steep(), ROWS, by="gradient"), 1e-4
    for j, step in enumerate(h * np.eye(3)):
        slopes = (steep().predict(ROWS + step) - steep().predict(ROWS - step)) / (2 * h)
        exact = np.sqrt(np.mean(slopes**2)) * ROWS[:, j].std()
        assert found.importance[j, 0] == pytest.approx(exact, rel=1e-4)


def test_gradients_of_the_columns_of_one_are_the_deviation_of_its_linear_part(table):
    frame, model = table
    found = bo.column_importance(model, frame, by="gradient", n_rows=N_ROWS)
    A = np.concatenate([b.X for b in bo.Blocks.from_table(frame, schema=model.schema_)])
    names, h = model.schema_.feature_names, 1e-4
    places = [i for i, name in enumerate(names) if name.startswith("kind=")]
    predict = lambda A: model.predict(bo.Blocks.from_arrays(A))
    slopes = [predict(A + h * e) - predict(A - h * e) for e in np.eye(A.shape[1])[places]]
    linear = (np.stack(slopes, axis=1) / (2 * h)) @ (A[:, places] - A[:, places].mean(axis=0)).T
    assert found.importance[0, 0] == pytest.approx(np.sqrt(np.mean(linear.var(axis=1))), rel=1e-4)


def test_classes_and_targets_have_columns_of_their_own():
    labels = np.where(VALUES > 3, "high", np.where(VALUES < -3, "low", "mid"))
    model = bo.LogisticRegression(Gaussian(3.0), n_features=32, random_state=0).fit(ROWS, labels)
    found = bo.column_importance(model, ROWS)
    assert found.outputs == ("high", "low", "mid")
    assert found.importance.shape == (3, 3)
    assert found.unit == "decision value"
    shares = np.sqrt(np.mean((found.importance / found.spread) ** 2, axis=1))
    np.testing.assert_allclose(found.share, shares)
    assert "high" in str(found).splitlines()[0]
    two = bo.KernelRidge(Gaussian(3.0), n_features=32, random_state=0)
    both = bo.column_importance(two.fit(ROWS, np.c_[VALUES, -2 * VALUES]), ROWS)
    np.testing.assert_allclose(both.importance[:, 1], 2 * both.importance[:, 0], rtol=1e-6)
    assert both.outputs == ("prediction 0", "prediction 1")


def test_table_is_ranked_and_counts_the_rest():
    many = np.c_[ROWS, rng.normal(size=(N_ROWS, 12))]
    model = bo.KernelRidge(Gaussian(8.0), n_features=64, random_state=0).fit(many, VALUES)
    found = bo.column_importance(model, many)
    head, lines, tail = found.table(4)
    assert head == ["column", "importance", "error", "share"]
    assert [line[0] for line in lines] == [found.columns[j] for j in found.order[:4]]
    assert np.all(np.diff(found.share[found.order]) <= 0)
    assert tail.startswith("11 others, ")
    assert str(found).endswith(found.table()[2])


def test_plot_has_a_bar_for_each_column():
    found = bo.column_importance(steep(), ROWS)
    ax = Figure().subplots()
    assert found.plot(ax).ax_ is ax
    assert [bar.get_width() for bar in ax.patches] == sorted(found.importance[:, 0])
    names = [text.get_text() for text in ax.get_yticklabels()]
    assert names == [found.columns[j] for j in found.order[::-1]]


# --- partial dependence --------------------------------------------------------------------------

N_FEW = 200
FEW = rng.normal(size=(N_FEW, 3))
CURVED = 3 * FEW[:, 0] - FEW[:, 1] ** 2 + FEW[:, 0] * FEW[:, 2]


@cache
def smooth():
    return bo.KernelRidge(Gaussian(2.0), n_features=64, random_state=0).fit(FEW, CURVED)


def test_scikit_learn_shows_the_dependence_on_a_column_of_a_table(table):
    frame, model = table
    options = {"kind": "average", "method": "brute", "categorical_features": ["kind"]}
    found = partial_dependence(model, frame, ["kind"], **options)
    assert found["grid_values"][0].tolist() == ["a", "b", "c"]
    exact = [model.predict(frame.assign(kind=kind)).mean() for kind in "abc"]
    np.testing.assert_allclose(found["average"][0], exact, rtol=1e-9)


# --- contributions to a row ----------------------------------------------------------------------


def shapley(predict, x, B):
    """Shapley values by all subsets of columns, (d,)."""
    d = len(x)

    def value(subset):
        moved = B.copy()
        moved[:, list(subset)] = x[list(subset)]
        return predict(moved).mean()

    found = np.zeros(d)
    for j in range(d):
        rest = [k for k in range(d) if k != j]
        for size in range(d):
            weight = factorial(size) * factorial(d - size - 1) / factorial(d)
            for S in combinations(rest, size):
                found[j] += weight * (value((*S, j)) - value(S))
    return found


@pytest.mark.parametrize("n_orders", [2, 400])
def test_contributions_are_those_of_all_subsets_and_add_up(n_orders):
    found = bo.contributions(smooth(), FEW[:4], FEW, n_orders=n_orders)
    whole = found.base + found.contributions.sum(axis=1)
    np.testing.assert_allclose(whole, found.predictions, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.predictions[:, 0], smooth().predict(FEW[:4]))
    if n_orders == 400:
        z = norm.isf(ALARM / (2 * 12))
        exact = np.array([shapley(smooth().predict, x, FEW) for x in FEW[:4]])
        off = np.abs(found.contributions[..., 0] - exact) / (z * found.error[..., 0])
        # of 200 background rows all are used once: their part of the error is not there
        assert np.all(off < 1)
        wrong = np.abs(found.contributions[0, :, 0] - exact[0, ::-1]) / found.error[0, :, 0]
        assert np.any(wrong > z)


def test_columns_of_a_table_contribute_whole(table):
    frame, model = table
    found = bo.contributions(model, frame.iloc[[0, 7]], frame)
    assert found.columns == ("kind", "size", "day")
    whole = found.base + found.contributions.sum(axis=1)
    np.testing.assert_allclose(whole[:, 0], model.predict(frame.iloc[[0, 7]]), rtol=1e-9)


def test_classes_have_contributions_each():
    labels = np.where(CURVED > 1, "high", np.where(CURVED < -1, "low", "mid"))
    model = bo.LogisticRegression(Gaussian(2.0), n_features=32, random_state=0).fit(FEW, labels)
    found = bo.contributions(model, FEW[:2], FEW, n_orders=8)
    assert found.contributions.shape == (2, 3, 3)
    assert found.outputs == ("high", "low", "mid")
    whole = found.base + found.contributions.sum(axis=1)
    np.testing.assert_allclose(whole, model.decision_function(FEW[:2]), atol=1e-9)


def test_table_and_plot_show_the_largest():
    found = bo.contributions(smooth(), FEW[:2], FEW)
    lines = found.table(1).splitlines()
    first = found.columns[np.argmax(np.abs(found.contributions[1, :, 0]))]
    assert lines[0].startswith("mean of the background")
    assert lines[1].startswith(first)
    assert lines[-1].split() == ["prediction", f"{found.predictions[1, 0]:.4g}"]
    assert "2 others" in found.table(1, top=1)
    assert str(found) == found.table(0)
    drawn = sorted(bar.get_width() for bar in found.plot(Figure().subplots(), row=1).ax_.patches)
    np.testing.assert_allclose(drawn, np.sort(found.contributions[1, :, 0]))
