"""Displays, importance and contributions of columns: their numbers by a second route."""

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


def test_the_path_shows_leave_one_out_errors():
    display, errors = PathDisplay.from_estimator(ridge()), ridge().fit_.left_out().errors
    at = int(np.argmin(np.abs(display.alphas - display.alpha[0])))
    assert display.chosen == "leave-one-out"
    expected = np.sqrt(np.mean(np.square(errors)))
    assert display.criteria["leave-one-out"][at] == pytest.approx(expected, rel=1e-8)


def test_a_path_chosen_by_evidence_shows_the_evidence():
    model = bo.KernelRidge(Gaussian(1.0), n_features=16, alpha="evidence", random_state=0)
    display = PathDisplay.from_estimator(model.fit(X, Y))
    (values,) = display.criteria.values()
    assert display.alphas[np.argmax(values)] == pytest.approx(display.alpha[0])
    assert display.unit == "log marginal likelihood"


def test_paths_of_other_losses_are_sorted_by_alpha():
    huber = bo.KernelRegressor(Gaussian(1.0), n_features=16, loss="huber", random_state=0).fit(X, Y)
    for model, alpha in ((huber, huber.alpha_), (logistic(), 1 / logistic().C_)):
        display = PathDisplay.from_estimator(model)
        assert np.all(np.diff(display.alphas) > 0)
        assert display.alpha[0] == pytest.approx(alpha)


@pytest.mark.parametrize("name", ["ridge", "logistic"])
def test_the_spectrum_is_that_of_centred_features(name):
    """From moments of the fit, or from given rows if it keeps none."""
    model = {"ridge": ridge, "logistic": logistic}[name]()
    display = SpectrumDisplay.from_estimator(model, *(() if name == "ridge" else (X,)))
    Z = np.asarray(model.map_(X))
    squares = np.linalg.svd(Z - Z.mean(axis=0), compute_uv=False) ** 2
    np.testing.assert_allclose(display.eigenvalues, squares, atol=1e-9 * squares[0])
    alpha = model.alpha_ if name == "ridge" else 1 / (2 * model.C_)
    assert display.alpha == pytest.approx(alpha)
    assert display.effective_dimension == pytest.approx(np.sum(squares / (squares + alpha)))


# --- errors --------------------------------------------------------------------------------------


def test_reliability_equals_scikit_learns_calibration_curve():
    display = CalibrationDisplay.from_estimator(logistic(), X, Y > 0, n_bins=5)
    observed, expected = calibration_curve(Y > 0, logistic().predict_proba(X)[:, 1], n_bins=5)
    np.testing.assert_allclose(display.expected, expected)
    np.testing.assert_allclose(display.observed, observed)
    assert display.count.sum() == N
    assert display.error == pytest.approx(np.sum(display.count * np.abs(observed - expected)) / N)


def n_outside(stated, true, seed=0):
    """Return how many of 40 bins are outside their 95 % interval."""
    events = np.random.default_rng(seed).uniform(size=len(true)) < true
    display = CalibrationDisplay.of_probabilities(events, stated, 40)
    return int(np.sum(np.abs(display.observed - display.expected) > display.spread))


@pytest.mark.statistical
def test_bins_of_true_probabilities_are_inside_as_often_as_stated():
    p = np.random.default_rng(1).uniform(0.1, 0.9, 20_000)
    limit = binom.isf(ALARM, 32, 0.06)  # 32 bins of about 600 rows; 5 % is by the normal law
    assert n_outside(p, p) <= limit
    assert n_outside(p, np.clip(p + 0.1, 0, 1)) > limit  # planted fault: ten percent too high


def test_a_process_shows_the_coverage_of_its_intervals():
    model = bo.GaussianProcessRegressor(Gaussian(1.0), n_features=24, random_state=0)
    model.fit(X[:80], Y[:80])
    display = CalibrationDisplay.from_estimator(model, X[80:], Y[80:])
    mean, std = model.predict(X[80:], return_std=True, include_noise=True)
    low, high = norm.ppf(0.05, mean, std), norm.ppf(0.95, mean, std)
    at = list(display.expected).index(0.9)
    assert display.kind == "coverage"
    assert display.observed[at] == pytest.approx(np.mean((low <= Y[80:]) & (Y[80:] <= high)))


def test_quantiles_show_shares_of_rows_and_means_show_averages_of_bins():
    model = bo.KernelRegressor(Gaussian(1.0), loss="quantile", n_features=16, random_state=0)
    display = CalibrationDisplay.from_estimator(model.fit(X, Y), X, Y)
    np.testing.assert_allclose(display.observed, np.mean(Y[:, None] <= model.predict(X), axis=0))
    np.testing.assert_allclose(display.expected, [0.1, 0.5, 0.9])
    f = ridge().predict(X)
    display, order = CalibrationDisplay.from_estimator(ridge(), X, Y, n_bins=4), np.argsort(f)
    np.testing.assert_allclose(display.expected, f[order].reshape(4, -1).mean(axis=1))
    np.testing.assert_allclose(display.observed, Y[order].reshape(4, -1).mean(axis=1))


# --- plots ---------------------------------------------------------------------------------------


def test_plots_have_labels_and_use_given_axes():
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


def test_a_plot_without_matplotlib_raises_with_the_remedy(monkeypatch):
    display = PathDisplay.from_estimator(ridge())
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingDependency, match=r"PathDisplay.plot needs .* matplotlib.*pip inst"):
        display.plot()


# --- importance by exchange and by gradients, each by a second route -----------------------------

N_ROWS = 300
ROWS = rng.normal(size=(N_ROWS, 3)) * [1.0, 10.0, 0.1] + [0.0, 5.0, 0.0]
VALUES = 3 * ROWS[:, 0] - 0.2 * ROWS[:, 1] + np.sin(ROWS[:, 0]) * ROWS[:, 1]


@cache
def steep():
    kernel = Gaussian((1.0, 10.0, 1.0))
    return bo.KernelRidge(kernel, n_features=64, random_state=0).fit(ROWS, VALUES)


@pytest.fixture(scope="module")
def table():
    """Return a table with columns of three kinds and a constant one, and a fit to it."""
    size = np.where(rng.random(N_ROWS) < 0.2, np.nan, rng.normal(size=N_ROWS))
    frame = pd.DataFrame({"kind": rng.choice(["a", "b", "c"], N_ROWS), "size": size})
    frame["day"], frame["same"] = pd.date_range("2020-01-01", periods=N_ROWS, freq="3D"), "one"
    value = frame["kind"].map({"a": 0.0, "b": 2.0, "c": -1.0}) + frame["size"].fillna(4.0)
    options = {"method": "fourier", "n_features": 64, "columns": "as_given", "random_state": 0}
    with pytest.warns(bo.errors.DataWarning, match="'same'"):
        return frame, bo.KernelRidge("gaussian", **options).fit(frame, value)


def all_pairs(predict, X, j):
    """Return T_j over all ordered pairs of different rows, by a loop."""
    f, total = predict(X), 0.0
    for i in range(len(X)):
        changed = np.repeat(X[i : i + 1], len(X), axis=0)
        changed[:, j] = X[:, j]
        total += np.sum((predict(changed) - f[i]) ** 2) / 2
    return total / (len(X) * (len(X) - 1))


def test_importance_by_exchange_equals_the_mean_over_all_pairs():
    result = bo.column_importance(steep(), ROWS)
    z = norm.isf(ALARM / 6)
    exact = [np.sqrt(all_pairs(steep().predict, ROWS, j)) for j in range(3)]
    assert np.all(np.abs(result.importance[:, 0] - exact) < z * result.error[:, 0])
    assert abs(result.importance[0, 0] - exact[2]) > z * result.error[0, 0]  # another column


def test_columns_of_a_table_are_exchanged_as_units(table):
    frame, model = table
    result = bo.column_importance(model, frame, n_rows=N_ROWS)
    assert result.columns == ("kind", "size", "day")  # without the constant column
    z = norm.isf(ALARM / 4)
    for j, name in enumerate(result.columns[:2]):
        total = 0.0
        for shift in range(1, 40):
            other = frame.copy()
            other[name] = np.roll(frame[name].to_numpy(), shift)
            total += np.mean((model.predict(other) - model.predict(frame)) ** 2) / 2
        exact = np.sqrt(total / 39)
        # the mean over 39 shifts has a smaller error than one shift
        assert abs(result.importance[j, 0] - exact) < 1.4 * z * result.error[j, 0]
    assert result.columns[result.order[-1]] == "day"


def test_a_column_outside_the_kernel_has_no_importance():
    kernel = Columns(Gaussian((1.0, 10.0)), (0, 1))
    model = bo.KernelRidge(kernel, n_features=64, random_state=0).fit(ROWS, VALUES)
    result = bo.column_importance(model, ROWS)
    assert result.importance[2, 0] == result.error[2, 0] == 0
    assert result.columns[result.order[-1]] == "column 2"


def test_importance_by_gradients_equals_differences():
    result, h = bo.column_importance(steep(), ROWS, by="gradient"), 1e-4
    for j, step in enumerate(h * np.eye(3)):
        slopes = (steep().predict(ROWS + step) - steep().predict(ROWS - step)) / (2 * h)
        exact = np.sqrt(np.mean(slopes**2)) * ROWS[:, j].std()
        assert result.importance[j, 0] == pytest.approx(exact, rel=1e-4)


def test_importance_of_a_category_is_the_deviation_of_its_linear_part(table):
    frame, model = table
    result = bo.column_importance(model, frame, by="gradient", n_rows=N_ROWS)
    A = np.concatenate([b.X for b in bo.Blocks.from_table(frame, schema=model.schema_)])
    names, h = model.schema_.feature_names, 1e-4
    places = [i for i, name in enumerate(names) if name.startswith("kind=")]
    predict = lambda A: model.predict(bo.Blocks.from_arrays(A))
    slopes = [predict(A + h * e) - predict(A - h * e) for e in np.eye(A.shape[1])[places]]
    linear = (np.stack(slopes, axis=1) / (2 * h)) @ (A[:, places] - A[:, places].mean(axis=0)).T
    assert result.importance[0, 0] == pytest.approx(np.sqrt(np.mean(linear.var(axis=1))), rel=1e-4)


def test_classes_and_targets_have_separate_importances():
    labels = np.where(VALUES > 3, "high", np.where(VALUES < -3, "low", "mid"))
    model = bo.LogisticRegression(Gaussian(3.0), n_features=32, random_state=0).fit(ROWS, labels)
    result = bo.column_importance(model, ROWS)
    assert result.outputs == ("high", "low", "mid")
    assert result.importance.shape == (3, 3)
    assert result.unit == "decision value"
    shares = np.sqrt(np.mean((result.importance / result.spread) ** 2, axis=1))
    np.testing.assert_allclose(result.share, shares)
    assert "high" in str(result).splitlines()[0]
    ridge = bo.KernelRidge(Gaussian(3.0), n_features=32, random_state=0)
    joint = bo.column_importance(ridge.fit(ROWS, np.c_[VALUES, -2 * VALUES]), ROWS)
    np.testing.assert_allclose(joint.importance[:, 1], 2 * joint.importance[:, 0], rtol=1e-6)
    assert joint.outputs == ("prediction 0", "prediction 1")


def test_the_table_is_ranked_and_counts_other_columns():
    rows = np.c_[ROWS, rng.normal(size=(N_ROWS, 12))]
    model = bo.KernelRidge(Gaussian(8.0), n_features=64, random_state=0).fit(rows, VALUES)
    result = bo.column_importance(model, rows)
    head, lines, tail = result.table(4)
    assert head == ["column", "importance", "error", "share"]
    assert [line[0] for line in lines] == [result.columns[j] for j in result.order[:4]]
    assert np.all(np.diff(result.share[result.order]) <= 0)
    assert tail.startswith("11 others, ")
    assert str(result).endswith(result.table()[2])


def test_the_plot_has_one_bar_per_column():
    result = bo.column_importance(steep(), ROWS)
    ax = Figure().subplots()
    assert result.plot(ax).ax_ is ax
    assert [bar.get_width() for bar in ax.patches] == sorted(result.importance[:, 0])
    names = [text.get_text() for text in ax.get_yticklabels()]
    assert names == [result.columns[j] for j in result.order[::-1]]


# --- partial dependence --------------------------------------------------------------------------

N_FEW = 200
FEW = rng.normal(size=(N_FEW, 3))
CURVED = 3 * FEW[:, 0] - FEW[:, 1] ** 2 + FEW[:, 0] * FEW[:, 2]


@cache
def smooth():
    return bo.KernelRidge(Gaussian(2.0), n_features=64, random_state=0).fit(FEW, CURVED)


def test_partial_dependence_of_scikit_learn_works_on_tables(table):
    frame, model = table
    options = {"kind": "average", "method": "brute", "categorical_features": ["kind"]}
    result = partial_dependence(model, frame, ["kind"], **options)
    assert result["grid_values"][0].tolist() == ["a", "b", "c"]
    exact = [model.predict(frame.assign(kind=kind)).mean() for kind in "abc"]
    np.testing.assert_allclose(result["average"][0], exact, rtol=1e-9)


# --- contributions to a row ----------------------------------------------------------------------


def shapley(predict, x, B):
    """Return Shapley values by all subsets of columns, (d,)."""
    d = len(x)

    def value(subset):
        changed = B.copy()
        changed[:, list(subset)] = x[list(subset)]
        return predict(changed).mean()

    values = np.zeros(d)
    for j in range(d):
        indices = [k for k in range(d) if k != j]
        for size in range(d):
            weight = factorial(size) * factorial(d - size - 1) / factorial(d)
            for S in combinations(indices, size):
                values[j] += weight * (value((*S, j)) - value(S))
    return values


@pytest.mark.parametrize("n_orders", [2, 400])
def test_contributions_equal_shapley_values_and_add_up(n_orders):
    result = bo.contributions(smooth(), FEW[:4], FEW, n_orders=n_orders)
    sums = result.base + result.contributions.sum(axis=1)
    np.testing.assert_allclose(sums, result.predictions, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(result.predictions[:, 0], smooth().predict(FEW[:4]))
    if n_orders == 400:
        z = norm.isf(ALARM / (2 * 12))
        exact = np.array([shapley(smooth().predict, x, FEW) for x in FEW[:4]])
        deviations = np.abs(result.contributions[..., 0] - exact) / (z * result.error[..., 0])
        # all 200 background rows are used, which removes their part of the error
        assert np.all(deviations < 1)
        wrong = np.abs(result.contributions[0, :, 0] - exact[0, ::-1]) / result.error[0, :, 0]
        assert np.any(wrong > z)


def test_columns_of_a_table_contribute_as_units(table):
    frame, model = table
    result = bo.contributions(model, frame.iloc[[0, 7]], frame)
    assert result.columns == ("kind", "size", "day")
    sums = result.base + result.contributions.sum(axis=1)
    np.testing.assert_allclose(sums[:, 0], model.predict(frame.iloc[[0, 7]]), rtol=1e-9)


def test_classes_have_separate_contributions():
    labels = np.where(CURVED > 1, "high", np.where(CURVED < -1, "low", "mid"))
    model = bo.LogisticRegression(Gaussian(2.0), n_features=32, random_state=0).fit(FEW, labels)
    result = bo.contributions(model, FEW[:2], FEW, n_orders=8)
    assert result.contributions.shape == (2, 3, 3)
    assert result.outputs == ("high", "low", "mid")
    sums = result.base + result.contributions.sum(axis=1)
    np.testing.assert_allclose(sums, model.decision_function(FEW[:2]), atol=1e-9)


def test_table_and_plot_show_the_largest_contributions():
    result = bo.contributions(smooth(), FEW[:2], FEW)
    lines = result.table(1).splitlines()
    first = result.columns[np.argmax(np.abs(result.contributions[1, :, 0]))]
    assert lines[0].startswith("mean of the background")
    assert lines[1].startswith(first)
    assert lines[-1].split() == ["prediction", f"{result.predictions[1, 0]:.4g}"]
    assert "2 others" in result.table(1, top=1)
    assert str(result) == result.table(0)
    widths = sorted(bar.get_width() for bar in result.plot(Figure().subplots(), row=1).ax_.patches)
    np.testing.assert_allclose(widths, np.sort(result.contributions[1, :, 0]))
