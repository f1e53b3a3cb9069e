"""Displays hold the numbers they draw: each is found again by another route."""

import sys

import numpy as np
import pytest
from scipy.stats import binom, norm
from sklearn.base import clone
from sklearn.calibration import calibration_curve
from sklearn.kernel_ridge import KernelRidge as Exact

import bochner as bo
from bochner import CalibrationDisplay, PathDisplay, ResidualDisplay, SpectrumDisplay, WidthDisplay
from bochner.errors import InvalidInput, MissingDependency
from bochner.features.method import stream
from bochner.kernels import Gaussian

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
