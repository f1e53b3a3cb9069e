"""Partial dependence and contributions: against scikit-learn's, and against all subsets."""

from itertools import combinations
from math import factorial

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from scipy.stats import norm
from sklearn.inspection import partial_dependence as scikit_learns

import bochner as bo
from bochner import ContributionDisplay, PartialDependenceDisplay, contributions, partial_dependence
from bochner.errors import InvalidInput
from bochner.kernels import Gaussian, Linear

N, ALARM = 200, 1e-6


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 3))
    return X, 3 * X[:, 0] - X[:, 1] ** 2 + X[:, 0] * X[:, 2]


@pytest.fixture(scope="module")
def ridge(rows):
    return bo.KernelRidge(Gaussian(2.0), n_features=64, random_state=0).fit(*rows)


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(
        {
            "kind": rng.choice(["a", "b", "c"], N),
            "size": np.where(rng.random(N) < 0.2, np.nan, rng.normal(size=N)),
            "day": pd.date_range("2020-01-01", periods=N, freq="3D"),
        }
    )
    value = frame["kind"].map({"a": 0.0, "b": 2.0, "c": -1.0}) + frame["size"].fillna(4.0)
    model = bo.KernelRidge("gaussian", n_features=64, columns="as_given", random_state=0)
    return frame, model.fit(frame, value)


# --- partial dependence --------------------------------------------------------------------------


def test_one_column_is_scikit_learns(ridge, rows):
    X = rows[0].round(0)  # few values, and so all of them are the grid
    found = partial_dependence(ridge, X, 1, grid_resolution=20)
    other = scikit_learns(ridge, X, [1], grid_resolution=20, kind="both", method="brute")
    np.testing.assert_array_equal(found.grid_values[0], other["grid_values"][0])
    np.testing.assert_allclose(found.average[0], other["average"][0], rtol=1e-9)
    # rows are drawn in another order
    lines = np.sort(other["individual"][0], axis=0)
    np.testing.assert_allclose(np.sort(found.individual[0], axis=0), lines, rtol=1e-9)


def test_many_numbers_are_seen_at_equal_steps_without_the_ends(ridge, rows):
    X = rows[0]
    found = partial_dependence(ridge, X, 1, grid_resolution=20)
    (grid,) = found.grid_values
    np.testing.assert_allclose(grid, np.linspace(*np.quantile(X[:, 1], [0.05, 0.95]), 20))
    assert found.individual.shape == (1, N, 20)


def test_two_columns_are_all_pairs_of_values(ridge, rows):
    X = rows[0]
    found = partial_dependence(ridge, X, [0, 2], grid_resolution=9)
    assert found.average.shape == (1, 6, 6)
    moved = X.copy()
    moved[:, [0, 2]] = found.grid_values[0][2], found.grid_values[1][4]
    assert found.average[0, 2, 4] == pytest.approx(ridge.predict(moved).mean(), rel=1e-9)
    f = found.average[0] - found.average.mean()
    sums = f.mean(axis=1)[:, None] + f.mean(axis=0)
    assert found.interaction[0] == pytest.approx(np.sqrt(np.sum((f - sums) ** 2) / np.sum(f**2)))


def test_columns_that_add_do_not_interact_and_a_product_does(rows):
    X = rows[0]
    linear = bo.KernelRidge(Linear(), random_state=0).fit(X, X @ [1.0, 2.0, 3.0])
    assert partial_dependence(linear, X, [0, 2]).interaction[0] < 1e-6
    kernel = Gaussian(1.5)
    model = bo.KernelRidge(kernel, n_features=128, random_state=0).fit(X, X[:, 0] * X[:, 2])
    assert partial_dependence(model, X, [0, 2]).interaction[0] > 0.9


def test_columns_of_a_table_have_their_own_levels_and_units(table):
    frame, model = table
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


def test_errors_are_those_of_the_rows_that_are_averaged(ridge, rows):
    found = partial_dependence(ridge, rows[0], 0, grid_resolution=5)
    lines = found.individual[0] - found.individual[0].mean(axis=1, keepdims=True)
    np.testing.assert_allclose(found.error[0], lines.std(axis=0) / np.sqrt(N))


def test_plots_show_the_average(ridge, rows, table):
    found = PartialDependenceDisplay.from_estimator(ridge, rows[0], 0, grid_resolution=8)
    ax = found.plot(Figure().subplots(), rows=3).ax_
    assert len(ax.lines) == 4
    np.testing.assert_array_equal(ax.lines[-1].get_ydata(), found.average[0])
    both = (
        partial_dependence(ridge, rows[0], [0, 1], grid_resolution=9).plot(Figure().subplots()).ax_
    )
    assert both.get_ylabel() == "column 1"
    levels = partial_dependence(table[1], table[0], "kind").plot(Figure().subplots()).ax_
    assert [text.get_text() for text in levels.get_xticklabels()] == ["a", "b", "c"]
    pair = partial_dependence(table[1], table[0], ["kind", "size"], grid_resolution=9)
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
def test_other_columns_are_refused(ridge, rows, columns, message):
    with pytest.raises(InvalidInput, match=message):
        partial_dependence(ridge, rows[0], columns)


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


def test_contributions_are_those_of_all_subsets(ridge, rows):
    X = rows[0]
    found = contributions(ridge, X[:4], X, n_orders=400)
    z = norm.isf(ALARM / (2 * 12))
    for i in range(4):
        exact = shapley(ridge.predict, X[i], X)
        # of 200 background rows all are used once: their part of the error is not there
        assert np.all(np.abs(found.contributions[i, :, 0] - exact) < z * found.error[i, :, 0])


def test_planted_order_of_columns_is_seen(ridge, rows):
    X = rows[0]
    found = contributions(ridge, X[:4], X, n_orders=400)
    z = norm.isf(ALARM / (2 * 12))
    wrong = shapley(ridge.predict, X[0], X)[::-1]
    assert np.any(np.abs(found.contributions[0, :, 0] - wrong) > z * found.error[0, :, 0])


@pytest.mark.parametrize("n_orders", [2, 64])
def test_contributions_add_up_however_few_orders_there_are(ridge, rows, n_orders):
    X = rows[0]
    found = contributions(ridge, X[:5], X, n_orders=n_orders)
    whole = found.base + found.contributions.sum(axis=1)
    np.testing.assert_allclose(whole, found.predictions, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.predictions[:, 0], ridge.predict(X[:5]))


def test_of_a_linear_function_a_contribution_is_slope_times_distance(rows):
    X = rows[0]
    slopes = np.array([1.0, -2.0, 0.5])
    model = bo.KernelRidge(Linear(), alpha=1e-6, random_state=0).fit(X, X @ slopes)
    found = contributions(model, X[:3], X, n_orders=2 * N)
    exact = slopes * (X[:3] - X.mean(axis=0))
    np.testing.assert_allclose(found.contributions[:, :, 0], exact, atol=1e-5)


def test_columns_of_a_table_contribute_whole(table):
    frame, model = table
    found = contributions(model, frame.iloc[[0, 7]], frame)
    assert found.columns == ("kind", "size", "day")
    whole = found.base + found.contributions.sum(axis=1)
    np.testing.assert_allclose(whole[:, 0], model.predict(frame.iloc[[0, 7]]), rtol=1e-9)


def test_classes_have_contributions_each(rows):
    X, y = rows
    labels = np.where(y > 1, "high", np.where(y < -1, "low", "mid"))
    model = bo.LogisticRegression(Gaussian(2.0), n_features=32, random_state=0).fit(X, labels)
    found = contributions(model, X[:2], X, n_orders=8)
    assert found.contributions.shape == (2, 3, 3)
    assert found.outputs == ("high", "low", "mid")
    whole = found.base + found.contributions.sum(axis=1)
    np.testing.assert_allclose(whole, model.decision_function(X[:2]), atol=1e-9)


def test_table_and_plot_show_the_largest(ridge, rows):
    X = rows[0]
    found = ContributionDisplay.from_estimator(ridge, X[:2], X)
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


def test_an_odd_number_of_orders_is_refused(ridge, rows):
    with pytest.raises(InvalidInput, match=r"n_orders must be even, .*; got 5"):
        contributions(ridge, rows[0][:1], rows[0], n_orders=5)
