"""Importance of columns: by exchange, gradients and metric, each found again by a slow route."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from scipy.stats import norm

import bochner as bo
from bochner import ImportanceDisplay, column_importance
from bochner.errors import InvalidInput, UnsupportedKernel
from bochner.kernels import Columns, Gaussian, Linear, Mahalanobis, Monotone, Polynomial

N, ALARM = 300, 1e-6


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 3)) * [1.0, 10.0, 0.1] + [0.0, 5.0, 0.0]
    return X, 3 * X[:, 0] - 0.2 * X[:, 1] + np.sin(X[:, 0]) * X[:, 1]


@pytest.fixture(scope="module")
def ridge(rows):
    kernel = Gaussian((1.0, 10.0, 1.0))
    return bo.KernelRidge(kernel, n_features=64, random_state=0).fit(*rows)


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(
        {
            "kind": rng.choice(["a", "b", "c"], N),
            "size": np.where(rng.random(N) < 0.2, np.nan, rng.normal(size=N)),
            "day": pd.date_range("2020-01-01", periods=N, freq="3D"),
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


def test_exchange_is_the_mean_over_all_pairs_of_rows(ridge, rows):
    X = rows[0]
    found = column_importance(ridge, X)
    z = norm.isf(ALARM / (2 * X.shape[1]))
    for j in range(X.shape[1]):
        exact = np.sqrt(all_pairs(ridge.predict, X, j))
        assert abs(found.importance[j, 0] - exact) < z * found.error[j, 0]


def test_planted_column_that_is_not_exchanged_is_seen(ridge, rows):
    X = rows[0]
    found, exact = column_importance(ridge, X), np.sqrt(all_pairs(ridge.predict, X, 2))
    z = norm.isf(ALARM / (2 * X.shape[1]))
    assert abs(found.importance[0, 0] - exact) > z * found.error[0, 0]


def test_errors_are_those_of_many_draws(ridge, rows):
    draws = [column_importance(ridge, rows[0], n_rows=100, random_state=s) for s in range(60)]
    spread = np.std([d.importance[:, 0] for d in draws], axis=0)
    stated = np.mean([d.error[:, 0] for d in draws], axis=0)
    # χ of 59 degrees of freedom is within 50 % of its mean but for 1e-6; a third of the rows is
    # drawn without putting back, which makes the true spread smaller
    assert np.all(spread < 1.5 * stated)
    assert np.all(spread > 0.4 * stated)


def test_columns_of_a_table_are_exchanged_whole_and_named_as_given(table):
    frame, model = table
    found = column_importance(model, frame, n_rows=N)
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


def test_gradients_are_differences_of_predictions(ridge, rows):
    X, h = rows[0], 1e-4
    found = column_importance(ridge, X, by="gradient")
    for j in range(3):
        step = h * np.eye(3)[j]
        slopes = (ridge.predict(X + step) - ridge.predict(X - step)) / (2 * h)
        exact = np.sqrt(np.mean(slopes**2)) * X[:, j].std()
        assert found.importance[j, 0] == pytest.approx(exact, rel=1e-4)


def test_gradients_of_the_columns_of_one_are_the_deviation_of_its_linear_part(table):
    frame, model = table
    found = column_importance(model, frame, by="gradient", n_rows=N)
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
    U = rng.uniform(-3, 3, (N, 2))
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
    many = np.c_[X, np.random.default_rng(3).normal(size=(N, 12))]
    model = bo.KernelRidge(Gaussian(8.0), n_features=64, random_state=0).fit(many, y)
    found = column_importance(model, many)
    head, lines, tail = found.table(4)
    assert head == ["column", "importance", "error", "share"]
    assert [line[0] for line in lines] == [found.columns[j] for j in found.order[:4]]
    assert np.all(np.diff(found.share[found.order]) <= 0)
    assert tail.startswith("11 others, ")
    assert str(found).endswith(found.table()[2])


def test_plot_has_a_bar_for_each_column(ridge, rows):
    found = ImportanceDisplay.from_estimator(ridge, rows[0], by="exchange")
    ax = Figure().subplots()
    assert found.plot(ax).ax_ is ax
    widths = [bar.get_width() for bar in ax.patches]
    assert widths == sorted(found.importance[:, 0])
    assert [text.get_text() for text in ax.get_yticklabels()] == [
        found.columns[j] for j in found.order[::-1]
    ]


# --- what is refused -----------------------------------------------------------------------------


def test_what_cannot_be_measured_is_refused(ridge, rows):
    X, y = rows
    with pytest.raises(InvalidInput, match=r"must predict a target; KernelPCA has none"):
        column_importance(bo.KernelPCA(2, n_features=8).fit(X), X)
    with pytest.raises(InvalidInput, match=r"column_importance: by must be"):
        column_importance(ridge, X, by="shapley")
    with pytest.raises(InvalidInput, match=r"at least 2 rows are required to compare; got 1"):
        column_importance(ridge, X[:1])
    model = bo.KernelRidge(Polynomial(2), n_features=16, random_state=0).fit(X, y)
    with pytest.raises(
        UnsupportedKernel, match=r"a kernel with lengthscales, or a metric; got Pol"
    ):
        column_importance(model, X, by="metric")
