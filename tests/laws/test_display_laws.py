"""What users see: numbers of displays, importance of columns, partial dependence."""

import sys
from itertools import combinations
from math import factorial

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from scipy.stats import binom, norm
from sklearn.base import clone
from sklearn.calibration import calibration_curve
from sklearn.inspection import partial_dependence as scikit_learns
from sklearn.kernel_ridge import KernelRidge as Exact

import bochner as bo
from bochner import (
    CalibrationDisplay,
    ContributionDisplay,
    ImportanceDisplay,
    PartialDependenceDisplay,
    PathDisplay,
    ResidualDisplay,
    SpectrumDisplay,
    WidthDisplay,
    column_importance,
    contributions,
    partial_dependence,
)
from bochner.errors import InvalidInput, MissingDependency, UnsupportedKernel
from bochner.features.method import stream
from bochner.kernels import Columns, Gaussian, Linear, Mahalanobis, Monotone, Polynomial

# ---- display: Displays hold the numbers they draw: each is found again by another route


N = 120
ALARM = 1e-6


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (N, 2))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(N)


@pytest.fixture(scope="module")
def ridge(data):
    return bo.KernelRidge(
        Gaussian(1.0), method="fourier", n_features=24, precision="float64", random_state=0
    ).fit(*data)


@pytest.fixture(scope="module")
def logistic(data):
    X, y = data
    return bo.LogisticRegression(Gaussian(1.0), n_features=24, random_state=0).fit(X, y > 0)


def centred(ridge, X):
    Z = np.asarray(ridge.map_(X))
    return Z - Z.mean(axis=0)


# --- path and spectrum ---------------------------------------------------------------------------


def test_path_is_the_error_of_fits_without_each_row(ridge, data):
    X, y = data
    shown = PathDisplay.from_estimator(ridge)
    at = int(np.argmin(np.abs(shown.alphas - shown.alpha[0])))
    Z, errors = np.asarray(ridge.map_(X)), []
    for i in range(N):
        rest = np.arange(N) != i
        mean, level = Z[rest].mean(axis=0), y[rest].mean()
        G = (Z[rest] - mean).T @ (Z[rest] - mean) + shown.alpha[0] * np.eye(Z.shape[1])
        beta = np.linalg.solve(G, (Z[rest] - mean).T @ (y[rest] - level))
        errors.append(y[i] - level - (Z[i] - mean) @ beta)
    assert shown.chosen == "leave-one-out"
    assert shown.criteria["leave-one-out"][at] == pytest.approx(
        np.sqrt(np.mean(np.square(errors))), rel=1e-8
    )


def test_path_chosen_by_evidence_shows_the_evidence(data):
    model = bo.KernelRidge(Gaussian(1.0), n_features=16, alpha="evidence", random_state=0)
    shown = PathDisplay.from_estimator(model.fit(*data))
    (values,) = shown.criteria.values()
    assert shown.alphas[np.argmax(values)] == pytest.approx(shown.alpha[0])
    assert shown.unit == "log marginal likelihood"


def test_path_of_rows_left_out_rises_in_alpha(data):
    model = bo.KernelRegressor(Gaussian(1.0), n_features=16, loss="huber", random_state=0)
    shown = PathDisplay.from_estimator(model.fit(*data))
    assert np.all(np.diff(shown.alphas) > 0)
    assert shown.alpha[0] == model.alpha_


def test_path_of_a_classifier_is_that_of_its_penalty(logistic):
    shown = PathDisplay.from_estimator(logistic)
    assert np.all(np.diff(shown.alphas) > 0)
    assert shown.alpha[0] == pytest.approx(1 / logistic.C_)


def test_path_is_refused_where_there_is_none(logistic, data):
    given = clone(logistic).set_params(C=1.0).fit(data[0], data[1] > 0)
    with pytest.raises(InvalidInput, match=r"must have tried a path.*LogisticRegression has none"):
        PathDisplay.from_estimator(given)


def test_spectrum_is_that_of_the_centred_features(ridge, data):
    shown = SpectrumDisplay.from_estimator(ridge)
    singular = np.linalg.svd(centred(ridge, data[0]), compute_uv=False)
    np.testing.assert_allclose(shown.eigenvalues, singular**2, atol=1e-9 * singular[0] ** 2)
    assert shown.effective_dimension == pytest.approx(
        np.sum(singular**2 / (singular**2 + ridge.alpha_))
    )


def test_spectrum_without_moments_is_that_of_the_rows_given(logistic, data):
    shown = SpectrumDisplay.from_estimator(logistic, data[0])
    singular = np.linalg.svd(centred(logistic, data[0]), compute_uv=False)
    np.testing.assert_allclose(shown.eigenvalues, singular**2, atol=1e-9 * singular[0] ** 2)
    assert shown.alpha == pytest.approx(1 / (2 * logistic.C_))
    with pytest.raises(InvalidInput, match=r"keeps no moments of its rows\. Pass rows"):
        SpectrumDisplay.from_estimator(logistic)


# --- errors --------------------------------------------------------------------------------------


def test_residuals_are_observed_less_predicted(ridge, data):
    X, y = data
    shown = ResidualDisplay.from_estimator(ridge, X, y)
    np.testing.assert_array_equal(shown.residuals, y - ridge.predict(X))
    both = bo.KernelRidge(Gaussian(1.0), n_features=16, random_state=0).fit(X, np.c_[y, -y])
    second = ResidualDisplay.from_estimator(both, X, np.c_[y, -y], target=1)
    np.testing.assert_array_equal(second.residuals, -y - both.predict(X)[:, 1])


def test_residuals_of_labels_or_of_nothing_are_refused(logistic, data):
    with pytest.raises(InvalidInput, match=r"must be quantities; LogisticRegression gives labels"):
        ResidualDisplay.from_estimator(logistic, data[0], data[1] > 0)
    with pytest.raises(InvalidInput, match="one prediction for each observed value"):
        ResidualDisplay.from_predictions([1.0, 2.0], [1.0])


def test_reliability_is_scikit_learns_calibration_curve(logistic, data):
    X, y = data
    shown = CalibrationDisplay.from_estimator(logistic, X, y > 0, n_bins=5)
    observed, expected = calibration_curve(y > 0, logistic.predict_proba(X)[:, 1], n_bins=5)
    np.testing.assert_allclose(shown.expected, expected)
    np.testing.assert_allclose(shown.observed, observed)
    assert shown.count.sum() == N
    assert shown.error == pytest.approx(
        np.sum(shown.count * np.abs(observed - expected)) / shown.count.sum()
    )


def outside(stated, true, seed=0):
    """How many of 40 bins are off by more than chance makes of it in 95 of 100 cases."""
    rng = np.random.default_rng(seed)
    happened = rng.uniform(size=len(true)) < true
    shown = CalibrationDisplay.of_probabilities(happened, stated, 40)
    return int(np.sum(np.abs(shown.observed - shown.expected) > shown.spread))


@pytest.mark.statistical
def test_bins_of_true_probabilities_are_off_as_often_as_stated():
    p = np.random.default_rng(1).uniform(0.1, 0.9, 20_000)
    limit = binom.isf(ALARM, 32, 0.06)  # 32 bins hold rows; 5 % by the normal law, near 600 rows
    assert outside(p, p) <= limit
    assert outside(p, np.clip(p + 0.1, 0, 1)) > limit  # planted: ten percent too low


@pytest.mark.statistical
def test_coverage_of_gaussian_errors_is_the_level():
    z = np.random.default_rng(0).standard_normal(20_000)
    shown = CalibrationDisplay.of_scores(z)
    tolerance = norm.isf(ALARM / 22) / 1.959964 * shown.spread
    assert np.all(np.abs(shown.observed - shown.expected) <= tolerance)
    wide = CalibrationDisplay.of_scores(1.2 * z)  # planted: intervals a sixth too narrow
    assert np.any(np.abs(wide.observed - wide.expected) > tolerance)


def test_gaussian_process_shows_the_coverage_of_its_intervals(data):
    X, y = data
    model = bo.GaussianProcessRegressor(Gaussian(1.0), n_features=24, random_state=0)
    model.fit(X[:80], y[:80])
    shown = CalibrationDisplay.from_estimator(model, X[80:], y[80:])
    _, low, high = model.predict_interval(X[80:], coverage=0.9, calibrated=False)
    at = list(shown.expected).index(0.9)
    assert shown.kind == "coverage"
    assert shown.observed[at] == pytest.approx(np.mean((low <= y[80:]) & (y[80:] <= high)))


def test_quantiles_show_the_share_of_rows_below(data):
    X, y = data
    model = bo.KernelRegressor(Gaussian(1.0), loss="quantile", n_features=16, random_state=0)
    shown = CalibrationDisplay.from_estimator(model.fit(X, y), X, y)
    np.testing.assert_allclose(shown.observed, np.mean(y[:, None] <= model.predict(X), axis=0))
    np.testing.assert_allclose(shown.expected, [0.1, 0.5, 0.9])


def test_means_of_bins_are_means_of_sorted_rows(ridge, data):
    X, y = data
    f = ridge.predict(X)
    shown, order = CalibrationDisplay.from_estimator(ridge, X, y, n_bins=4), np.argsort(f)
    np.testing.assert_allclose(shown.expected, f[order].reshape(4, -1).mean(axis=1))
    np.testing.assert_allclose(shown.observed, y[order].reshape(4, -1).mean(axis=1))


def test_calibration_without_probabilities_is_refused(data):
    X, y = data
    model = bo.SVC(Gaussian(1.0), n_features=16, probability=False, random_state=0).fit(X, y > 0)
    with pytest.raises(InvalidInput, match=r"this SVC has no predict_proba"):
        CalibrationDisplay.from_estimator(model, X, y > 0)


# --- width ---------------------------------------------------------------------------------------


def test_widths_are_fits_by_hand_and_the_exact_kernel_is_scikit_learns(data):
    X, y = data
    model = bo.KernelRidge(
        Gaussian(0.7),
        method="fourier",
        n_features=64,
        alpha=0.5,
        fit_intercept=False,
        random_state=0,
    ).fit(X, y)
    shown = WidthDisplay.from_estimator(model, X, y, random_state=3)
    order = stream(3, "widths").permutation(N)
    train, test = order[:60], order[60:]
    assert shown.widths.tolist() == [8, 16, 32, 64]
    assert (shown.n_train, shown.n_test) == (60, 60)
    for D, error in zip(shown.widths, shown.errors, strict=True):
        one = bo.KernelRidge(
            Gaussian(0.7),
            method="fourier",
            n_features=int(D),
            alpha=0.25,  # half the rows, half the penalty
            fit_intercept=False,
            random_state=3,
        ).fit(X[train], y[train])
        assert error == pytest.approx(np.sqrt(np.mean((y[test] - one.predict(X[test])) ** 2)))
    exact = Exact(alpha=0.25, kernel="rbf", gamma=0.5 / 0.7**2).fit(X[train], y[train])
    rmse = np.sqrt(np.mean((y[test] - exact.predict(X[test])) ** 2))
    assert shown.exact == pytest.approx(rmse, rel=1e-6)


def test_kernel_errors_fall_with_width_and_are_those_of_the_map(data):
    X, _ = data
    model = bo.KernelKMeans(2, Gaussian(1.0), method="fourier", n_features=512, random_state=0)
    shown = WidthDisplay.from_estimator(model.fit(X), X, random_state=1)
    held = X[stream(1, "widths").permutation(N)[60:]]
    phi = bo.draw(Gaussian(1.0), "fourier", n_features=512, n_inputs=2, random_state=1)
    Z, K = phi(held), Gaussian(1.0)(held)
    assert shown.kernel_errors[-1] == pytest.approx(np.linalg.norm(Z @ Z.T - K) / np.linalg.norm(K))
    assert shown.kernel_errors[-1] < shown.kernel_errors[0]
    assert np.all(np.isnan(shown.errors))
    assert shown.measure == "relative error of the kernel"


def test_widths_of_classifiers_are_shares_of_labels_wrong(logistic, data):
    X, y = data
    shown = WidthDisplay.from_estimator(logistic, X, y > 0, widths=[8, 24], random_state=0)
    assert shown.measure == "share of labels wrong"
    assert np.all((shown.errors >= 0) & (shown.errors < 0.5))
    assert shown.exact is not None


def test_widths_of_what_has_none_are_refused(data, ridge):
    X, y = data
    exact = bo.KernelRidge(Gaussian(1.0), method="exact", alpha=1.0).fit(X, y)
    with pytest.raises(InvalidInput, match="must have features whose number can be changed"):
        WidthDisplay.from_estimator(exact, X, y)
    with pytest.raises(InvalidInput, match="at least 16 rows are required"):
        WidthDisplay.from_estimator(ridge, X[:15], y[:15])


# --- pictures ------------------------------------------------------------------------------------


def shown_by(ridge, logistic, data):
    X, y = data
    return {
        "path": (PathDisplay.from_estimator(ridge), "penalty alpha", "root mean squared error"),
        "spectrum": (SpectrumDisplay.from_estimator(ridge), "number", "eigenvalue"),
        "residuals": (
            ResidualDisplay.from_estimator(ridge, X, y),
            "predicted target",
            "observed − predicted",
        ),
        "calibration": (
            CalibrationDisplay.from_estimator(logistic, X, y > 0),
            "probability predicted",
            "share observed",
        ),
        "width": (WidthDisplay.from_estimator(ridge, X, y, exact=False), "features D", "RMSE"),
    }


def test_plots_name_their_axes_and_draw_on_those_given(ridge, logistic, data):
    figure = pytest.importorskip("matplotlib.figure")
    for display, x, y in shown_by(ridge, logistic, data).values():
        ax = figure.Figure().subplots()
        assert display.plot(ax).ax_ is ax
        assert (ax.get_xlabel(), ax.get_ylabel()) == (x, y)
        assert ax.has_data()
        assert display.plot().figure_ is not None
    other = ResidualDisplay.from_estimator(ridge, *data).plot(kind="actual_vs_predicted")
    assert other.ax_.get_ylabel() == "observed target"


def test_without_matplotlib_a_plot_says_how_to_get_it(ridge, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingDependency, match=r"PathDisplay.plot needs matplotlib.*pip install"):
        PathDisplay.from_estimator(ridge).plot()


# ---- importance: Importance of columns: by exchange, gradients and metric, each found again by a slow route


N_ROWS = 300


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N_ROWS, 3)) * [1.0, 10.0, 0.1] + [0.0, 5.0, 0.0]
    return X, 3 * X[:, 0] - 0.2 * X[:, 1] + np.sin(X[:, 0]) * X[:, 1]


@pytest.fixture(scope="module")
def steep(rows):
    kernel = Gaussian((1.0, 10.0, 1.0))
    return bo.KernelRidge(kernel, n_features=64, random_state=0).fit(*rows)


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(
        {
            "kind": rng.choice(["a", "b", "c"], N_ROWS),
            "size": np.where(rng.random(N_ROWS) < 0.2, np.nan, rng.normal(size=N_ROWS)),
            "day": pd.date_range("2020-01-01", periods=N_ROWS, freq="3D"),
            "same": "one",
        }
    )
    value = frame["kind"].map({"a": 0.0, "b": 2.0, "c": -1.0}) + frame["size"].fillna(4.0)
    with pytest.warns(bo.errors.DataWarning, match="'same'"):
        model = bo.KernelRidge(
            "gaussian", method="fourier", n_features=64, columns="as_given", random_state=0
        ).fit(frame, value)
    return frame, model


# --- by exchange ---------------------------------------------------------------------------------


def all_pairs(predict, X, j):
    """T_j over all ordered pairs of different rows, one prediction at a time."""
    f, total = predict(X), 0.0
    for i in range(len(X)):
        moved = np.repeat(X[i : i + 1], len(X), axis=0)
        moved[:, j] = X[:, j]
        total += np.sum((predict(moved) - f[i]) ** 2) / 2
    return total / (len(X) * (len(X) - 1))


def test_exchange_is_the_mean_over_all_pairs_of_rows(steep, rows):
    X = rows[0]
    found = column_importance(steep, X)
    z = norm.isf(ALARM / (2 * X.shape[1]))
    for j in range(X.shape[1]):
        exact = np.sqrt(all_pairs(steep.predict, X, j))
        assert abs(found.importance[j, 0] - exact) < z * found.error[j, 0]


def test_planted_column_that_is_not_exchanged_is_seen(steep, rows):
    X = rows[0]
    found, exact = (column_importance(steep, X), np.sqrt(all_pairs(steep.predict, X, 2)))
    z = norm.isf(ALARM / (2 * X.shape[1]))
    assert abs(found.importance[0, 0] - exact) > z * found.error[0, 0]


def test_errors_are_those_of_many_draws(steep, rows):
    draws = [column_importance(steep, rows[0], n_rows=100, random_state=s) for s in range(60)]
    spread = np.std([d.importance[:, 0] for d in draws], axis=0)
    stated = np.mean([d.error[:, 0] for d in draws], axis=0)
    # χ of 59 degrees of freedom is within 50 % of its mean but for 1e-6; a third of the rows is
    # drawn without putting back, which makes the true spread smaller
    assert np.all(spread < 1.5 * stated)
    assert np.all(spread > 0.4 * stated)


def test_columns_of_a_table_are_exchanged_whole_and_named_as_given(table):
    frame, model = table
    found = column_importance(model, frame, n_rows=N_ROWS)
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


def test_a_column_that_predictions_do_not_see_has_none(rows):
    X, y = rows
    kernel = Columns(Gaussian((1.0, 10.0)), (0, 1))
    model = bo.KernelRidge(kernel, n_features=64, random_state=0).fit(X, y)
    found = column_importance(model, X)
    assert found.importance[2, 0] == found.error[2, 0] == 0
    assert found.columns[found.order[-1]] == "column 2"


# --- by gradients --------------------------------------------------------------------------------


def test_of_a_linear_function_gradients_give_slope_times_deviation(rows):
    X = rows[0]
    y = X @ [3.0, -0.2, 1.0]
    model = bo.KernelRidge(Linear(), alpha=1e-6, random_state=0).fit(X, y)
    found = column_importance(model, X, by="gradient")
    exact = np.array([3.0, 0.2, 1.0]) * X.std(axis=0)  # shrunk by alpha/(n σ²), 3e-7 at most
    # The condition n σ²/alpha is 2e9: rounding in float64 alone may leave 1e-6.
    np.testing.assert_allclose(found.importance[:, 0], exact, rtol=1e-5)
    assert np.all(found.error < 1e-6)
    drawn = column_importance(model, X)
    z = norm.isf(ALARM / 6)
    assert np.all(np.abs(drawn.importance - found.importance) < z * drawn.error)


def test_gradients_are_differences_of_predictions(steep, rows):
    X, h = rows[0], 1e-4
    found = column_importance(steep, X, by="gradient")
    for j in range(3):
        step = h * np.eye(3)[j]
        slopes = (steep.predict(X + step) - steep.predict(X - step)) / (2 * h)
        exact = np.sqrt(np.mean(slopes**2)) * X[:, j].std()
        assert found.importance[j, 0] == pytest.approx(exact, rel=1e-4)


def test_gradients_of_the_columns_of_one_are_the_deviation_of_its_linear_part(table):
    frame, model = table
    found = column_importance(model, frame, by="gradient", n_rows=N_ROWS)
    X = np.concatenate([b.X for b in bo.Blocks.from_table(frame, schema=model.schema_)])
    names, h = model.schema_.feature_names, 1e-4
    places = [i for i, name in enumerate(names) if name.startswith("kind=")]
    predict = lambda A: model.predict(bo.Blocks.from_arrays(A))
    slopes = [predict(X + h * e) - predict(X - h * e) for e in np.eye(X.shape[1])[places]]
    linear = (np.stack(slopes, axis=1) / (2 * h)) @ (X[:, places] - X[:, places].mean(axis=0)).T
    exact = np.sqrt(np.mean(linear.var(axis=1)))
    assert found.importance[0, 0] == pytest.approx(exact, rel=1e-4)


def test_of_transformed_columns_gradients_are_those_that_the_kernel_sees(rows):
    rng = np.random.default_rng(2)
    U = rng.uniform(-3, 3, (N_ROWS, 2))
    points = np.linspace(-4, 4, 200)
    X = np.c_[np.exp(np.interp(U[:, 0], points, points)), U[:, 1]]
    kernel = Monotone(Gaussian(2.0), (0,), (tuple(np.exp(points)),), (tuple(points),))
    y = np.sin(U[:, 0]) + U[:, 1]
    curved = bo.KernelRidge(kernel, method="fourier", n_features=64, random_state=0).fit(X, y)
    V = kernel.inputs(X)
    plain = bo.KernelRidge(Gaussian(2.0), method="fourier", n_features=64, random_state=0).fit(V, y)
    one, other = (
        column_importance(model, A, by="gradient") for model, A in ((curved, X), (plain, V))
    )
    np.testing.assert_allclose(one.importance, other.importance, rtol=1e-3)


# --- by the metric -------------------------------------------------------------------------------


def test_metric_counts_lengthscales_of_each_column(rows):
    X, y = rows
    A = np.array([[2.0, 0.5, 0.0], [0.5, 1.0, 0.0], [0.0, 0.0, 0.1]])
    kernels = [
        (1 / np.array([1.0, 2.0, 4.0]), Gaussian((1.0, 2.0, 4.0))),
        (np.full(3, 0.5), 3.0 * Gaussian(2.0)),
        (np.sqrt(np.diag(A)) / 2, Mahalanobis(Gaussian(2.0), A)),
    ]
    for each, kernel in kernels:
        model = bo.KernelRidge(kernel, n_features=32, random_state=0).fit(X, y)
        found = column_importance(model, X, by="metric")
        np.testing.assert_allclose(found.importance[:, 0], each * X.std(axis=0), rtol=1e-9)
        assert found.outputs == ("lengthscales",)
        assert str(found).splitlines()[0].split() == ["column", "lengthscales", "share"]


# --- what is shown -------------------------------------------------------------------------------


def test_classes_and_targets_have_columns_of_their_own(rows):
    X, y = rows
    labels = np.where(y > 3, "high", np.where(y < -3, "low", "mid"))
    model = bo.LogisticRegression(Gaussian(3.0), n_features=32, random_state=0).fit(X, labels)
    found = column_importance(model, X)
    assert found.outputs == ("high", "low", "mid")
    assert found.importance.shape == (3, 3)
    assert found.unit == "decision value"
    np.testing.assert_allclose(
        found.share, np.sqrt(np.mean((found.importance / found.spread) ** 2, axis=1))
    )
    assert "high" in str(found).splitlines()[0]
    two = bo.KernelRidge(Gaussian(3.0), n_features=32, random_state=0).fit(X, np.c_[y, -2 * y])
    both = column_importance(two, X)
    np.testing.assert_allclose(both.importance[:, 1], 2 * both.importance[:, 0], rtol=1e-6)
    assert both.outputs == ("prediction 0", "prediction 1")


def test_table_is_ranked_and_counts_the_rest(rows):
    X, y = rows
    many = np.c_[X, np.random.default_rng(3).normal(size=(N_ROWS, 12))]
    model = bo.KernelRidge(Gaussian(8.0), n_features=64, random_state=0).fit(many, y)
    found = column_importance(model, many)
    head, lines, tail = found.table(4)
    assert head == ["column", "importance", "error", "share"]
    assert [line[0] for line in lines] == [found.columns[j] for j in found.order[:4]]
    assert np.all(np.diff(found.share[found.order]) <= 0)
    assert tail.startswith("11 others, ")
    assert str(found).endswith(found.table()[2])


def test_plot_has_a_bar_for_each_column(steep, rows):
    found = ImportanceDisplay.from_estimator(steep, rows[0], by="exchange")
    ax = Figure().subplots()
    assert found.plot(ax).ax_ is ax
    widths = [bar.get_width() for bar in ax.patches]
    assert widths == sorted(found.importance[:, 0])
    assert [text.get_text() for text in ax.get_yticklabels()] == [
        found.columns[j] for j in found.order[::-1]
    ]


# --- what is refused -----------------------------------------------------------------------------


def test_what_cannot_be_measured_is_refused(steep, rows):
    X, y = rows
    with pytest.raises(InvalidInput, match=r"must predict a target; KernelPCA has none"):
        column_importance(bo.KernelPCA(2, n_features=8).fit(X), X)
    with pytest.raises(InvalidInput, match=r"column_importance: by must be"):
        column_importance(steep, X, by="shapley")
    with pytest.raises(InvalidInput, match=r"at least 2 rows are required to compare; got 1"):
        column_importance(steep, X[:1])
    model = bo.KernelRidge(Polynomial(2), n_features=16, random_state=0).fit(X, y)
    with pytest.raises(
        UnsupportedKernel, match=r"a kernel with lengthscales, or a metric; got Pol"
    ):
        column_importance(model, X, by="metric")


# ---- dependence: Partial dependence and contributions: against scikit-learn's, and against all subsets


N_FEW = 200


@pytest.fixture(scope="module")
def few_rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N_FEW, 3))
    return X, 3 * X[:, 0] - X[:, 1] ** 2 + X[:, 0] * X[:, 2]


@pytest.fixture(scope="module")
def smooth(few_rows):
    return bo.KernelRidge(Gaussian(2.0), n_features=64, random_state=0).fit(*few_rows)


@pytest.fixture(scope="module")
def mixed():
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(
        {
            "kind": rng.choice(["a", "b", "c"], N_FEW),
            "size": np.where(rng.random(N_FEW) < 0.2, np.nan, rng.normal(size=N_FEW)),
            "day": pd.date_range("2020-01-01", periods=N_FEW, freq="3D"),
        }
    )
    value = frame["kind"].map({"a": 0.0, "b": 2.0, "c": -1.0}) + frame["size"].fillna(4.0)
    model = bo.KernelRidge("gaussian", n_features=64, columns="as_given", random_state=0)
    return frame, model.fit(frame, value)


# --- partial dependence --------------------------------------------------------------------------


def test_one_column_is_scikit_learns(smooth, few_rows):
    X = few_rows[0].round(0)  # few values, and so all of them are the grid
    found = partial_dependence(smooth, X, 1, grid_resolution=20)
    other = scikit_learns(smooth, X, [1], grid_resolution=20, kind="both", method="brute")
    np.testing.assert_array_equal(found.grid_values[0], other["grid_values"][0])
    np.testing.assert_allclose(found.average[0], other["average"][0], rtol=1e-9)
    # rows are drawn in another order
    lines = np.sort(other["individual"][0], axis=0)
    np.testing.assert_allclose(np.sort(found.individual[0], axis=0), lines, rtol=1e-9)


def test_many_numbers_are_seen_at_equal_steps_without_the_ends(smooth, few_rows):
    X = few_rows[0]
    found = partial_dependence(smooth, X, 1, grid_resolution=20)
    (grid,) = found.grid_values
    np.testing.assert_allclose(grid, np.linspace(*np.quantile(X[:, 1], [0.05, 0.95]), 20))
    assert found.individual.shape == (1, N_FEW, 20)


def test_two_columns_are_all_pairs_of_values(smooth, few_rows):
    X = few_rows[0]
    found = partial_dependence(smooth, X, [0, 2], grid_resolution=9)
    assert found.average.shape == (1, 6, 6)
    moved = X.copy()
    moved[:, [0, 2]] = found.grid_values[0][2], found.grid_values[1][4]
    assert found.average[0, 2, 4] == pytest.approx(smooth.predict(moved).mean(), rel=1e-9)
    f = found.average[0] - found.average.mean()
    sums = f.mean(axis=1)[:, None] + f.mean(axis=0)
    assert found.interaction[0] == pytest.approx(np.sqrt(np.sum((f - sums) ** 2) / np.sum(f**2)))


def test_columns_that_add_do_not_interact_and_a_product_does(few_rows):
    X = few_rows[0]
    linear = bo.KernelRidge(Linear(), random_state=0).fit(X, X @ [1.0, 2.0, 3.0])
    assert partial_dependence(linear, X, [0, 2]).interaction[0] < 1e-6
    kernel = Gaussian(1.5)
    model = bo.KernelRidge(kernel, n_features=128, random_state=0).fit(X, X[:, 0] * X[:, 2])
    assert partial_dependence(model, X, [0, 2]).interaction[0] > 0.9


def test_columns_of_a_table_have_their_own_levels_and_units(mixed):
    frame, model = mixed
    kinds = partial_dependence(model, frame, "kind")
    assert kinds.grid_values == (("a", "b", "c"),)
    for i, kind in enumerate("abc"):
        exact = model.predict(frame.assign(kind=kind)).mean()
        assert kinds.average[0, i] == pytest.approx(exact, rel=1e-9)
    sizes = partial_dependence(model, frame, "size", grid_resolution=7)
    exact = model.predict(frame.assign(size=sizes.grid_values[0][3])).mean()
    assert sizes.average[0, 3] == pytest.approx(exact, rel=1e-9)
    low, high = frame["size"].quantile([0.05, 0.95])
    np.testing.assert_allclose(sizes.grid_values[0][[0, -1]], [low, high])
    days = partial_dependence(model, frame, "day", grid_resolution=5)
    exact = model.predict(frame.assign(day=frame["day"].iloc[0])).mean()
    assert days.average[0, 0] == pytest.approx(exact, rel=1e-9)


def test_errors_are_those_of_the_rows_that_are_averaged(smooth, few_rows):
    found = partial_dependence(smooth, few_rows[0], 0, grid_resolution=5)
    lines = found.individual[0] - found.individual[0].mean(axis=1, keepdims=True)
    np.testing.assert_allclose(found.error[0], lines.std(axis=0) / np.sqrt(N_FEW))


def test_plots_show_the_average(smooth, few_rows, mixed):
    found = PartialDependenceDisplay.from_estimator(smooth, few_rows[0], 0, grid_resolution=8)
    ax = found.plot(Figure().subplots(), rows=3).ax_
    assert len(ax.lines) == 4
    np.testing.assert_array_equal(ax.lines[-1].get_ydata(), found.average[0])
    both = (
        partial_dependence(smooth, few_rows[0], [0, 1], grid_resolution=9)
        .plot(Figure().subplots())
        .ax_
    )
    assert both.get_ylabel() == "column 1"
    levels = partial_dependence(mixed[1], mixed[0], "kind").plot(Figure().subplots()).ax_
    assert [text.get_text() for text in levels.get_xticklabels()] == ["a", "b", "c"]
    pair = partial_dependence(mixed[1], mixed[0], ["kind", "size"], grid_resolution=9)
    assert len(pair.plot(Figure().subplots()).ax_.get_xticks()) == 3


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("colour", r"columns must be names or numbers of the 3 columns of the fit .*got 'colour'"),
        (3, r"columns must be names or numbers .*got 3"),
        ([0, 0], r"columns must be one column or two different ones; got \[0, 0\]"),
        ([0, 1, 2], r"columns must be one column or two different ones"),
    ],
    ids=["name", "number", "twice", "three"],
)
def test_other_columns_are_refused(smooth, few_rows, columns, message):
    with pytest.raises(InvalidInput, match=message):
        partial_dependence(smooth, few_rows[0], columns)


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


def test_contributions_are_those_of_all_subsets(smooth, few_rows):
    X = few_rows[0]
    found = contributions(smooth, X[:4], X, n_orders=400)
    z = norm.isf(ALARM / (2 * 12))
    for i in range(4):
        exact = shapley(smooth.predict, X[i], X)
        # of 200 background rows all are used once: their part of the error is not there
        assert np.all(np.abs(found.contributions[i, :, 0] - exact) < z * found.error[i, :, 0])


def test_planted_order_of_columns_is_seen(smooth, few_rows):
    X = few_rows[0]
    found = contributions(smooth, X[:4], X, n_orders=400)
    z = norm.isf(ALARM / (2 * 12))
    wrong = shapley(smooth.predict, X[0], X)[::-1]
    assert np.any(np.abs(found.contributions[0, :, 0] - wrong) > z * found.error[0, :, 0])


@pytest.mark.parametrize("n_orders", [2, 64])
def test_contributions_add_up_however_few_orders_there_are(smooth, few_rows, n_orders):
    X = few_rows[0]
    found = contributions(smooth, X[:5], X, n_orders=n_orders)
    whole = found.base + found.contributions.sum(axis=1)
    np.testing.assert_allclose(whole, found.predictions, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.predictions[:, 0], smooth.predict(X[:5]))


def test_of_a_linear_function_a_contribution_is_slope_times_distance(few_rows):
    X = few_rows[0]
    slopes = np.array([1.0, -2.0, 0.5])
    model = bo.KernelRidge(Linear(), alpha=1e-6, random_state=0).fit(X, X @ slopes)
    found = contributions(model, X[:3], X, n_orders=2 * N_FEW)
    exact = slopes * (X[:3] - X.mean(axis=0))
    np.testing.assert_allclose(found.contributions[:, :, 0], exact, atol=1e-5)


def test_columns_of_a_table_contribute_whole(mixed):
    frame, model = mixed
    found = contributions(model, frame.iloc[[0, 7]], frame)
    assert found.columns == ("kind", "size", "day")
    whole = found.base + found.contributions.sum(axis=1)
    np.testing.assert_allclose(whole[:, 0], model.predict(frame.iloc[[0, 7]]), rtol=1e-9)


def test_classes_have_contributions_each(few_rows):
    X, y = few_rows
    labels = np.where(y > 1, "high", np.where(y < -1, "low", "mid"))
    model = bo.LogisticRegression(Gaussian(2.0), n_features=32, random_state=0).fit(X, labels)
    found = contributions(model, X[:2], X, n_orders=8)
    assert found.contributions.shape == (2, 3, 3)
    assert found.outputs == ("high", "low", "mid")
    whole = found.base + found.contributions.sum(axis=1)
    np.testing.assert_allclose(whole, model.decision_function(X[:2]), atol=1e-9)


def test_table_and_plot_show_the_largest(smooth, few_rows):
    X = few_rows[0]
    found = ContributionDisplay.from_estimator(smooth, X[:2], X)
    lines = found.table(1).splitlines()
    first = found.columns[np.argmax(np.abs(found.contributions[1, :, 0]))]
    assert lines[0].startswith("mean of the background")
    assert lines[1].startswith(first)
    assert lines[-1].split() == ["prediction", f"{found.predictions[1, 0]:.4g}"]
    assert "2 others" in found.table(1, most=1)
    assert str(found) == found.table(0)
    ax = found.plot(Figure().subplots(), row=1).ax_
    drawn = sorted(bar.get_width() for bar in ax.patches)
    np.testing.assert_allclose(drawn, np.sort(found.contributions[1, :, 0]))


def test_an_odd_number_of_orders_is_refused(smooth, few_rows):
    with pytest.raises(InvalidInput, match=r"n_orders must be even, .*; got 5"):
        contributions(smooth, few_rows[0][:1], few_rows[0], n_orders=5)
