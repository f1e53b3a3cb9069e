"""Universal kriging: by one fit with more targets, and by the matrices of its definition."""

import numpy as np
import pytest

import bochner as bo
from bochner.errors import InvalidInput
from bochner.kernels import Gaussian, Matern

NOISE, AMPLITUDE = 0.05, 1.5
KERNEL = Matern(1.5, 0.3)


def rows(n=200, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 1, (n, 2))
    y = 3 + 4 * X[:, 0] - 2 * X[:, 1] + np.sin(9 * X[:, 0] * X[:, 1])
    return X, y + 0.2 * rng.standard_normal(n)


def process(method="exact", **changes):
    given = {"noise": NOISE, "amplitude": AMPLITUDE} | changes
    return bo.GaussianProcessRegressor(KERNEL, method=method, **given)


def by_hand(columns, X, y, new):
    """Mean, deviation and coefficients (of the constant first) by dense generalised least squares.

    Without a word about contrasts: the constant is a column like the others.
    """
    F, f = columns(X), columns(new)
    inverse = np.linalg.inv(AMPLITUDE * KERNEL(X) + NOISE * np.eye(len(y)))
    S = F.T @ inverse @ F
    beta = np.linalg.solve(S, F.T @ inverse @ y)
    k = AMPLITUDE * KERNEL(new, X)
    left = f - k @ inverse @ F
    mean = f @ beta + k @ inverse @ (y - F @ beta)
    variance = AMPLITUDE - np.einsum("ij,jk,ik->i", k, inverse, k)
    variance += np.einsum("ip,pq,iq->i", left, np.linalg.inv(S), left)
    return mean, np.sqrt(variance), beta, S


def linear(X):
    return np.column_stack([np.ones(len(X)), X])


def quadratic(X):
    return np.column_stack([linear(X), X**2, X[:, 0] * X[:, 1]])


def waves(X):
    return np.column_stack([np.ones(len(X)), np.cos(X[:, 0]), np.exp(X[:, 1])])


@pytest.mark.parametrize(
    ("trend", "columns"),
    [("linear", linear), ("quadratic", quadratic), (lambda X: waves(X)[:, 1:], waves)],
    ids=["linear", "quadratic", "columns"],
)
def test_it_is_generalised_least_squares(trend, columns):
    X, y = rows()
    new = np.random.default_rng(1).uniform(-0.3, 1.3, (50, 2))
    found = bo.universal_kriging(process(), X, y, trend)
    mean, std = found.predict(new, return_std=True)
    expected = by_hand(columns, X, y, new)
    np.testing.assert_allclose(mean, expected[0], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(std, expected[1], rtol=1e-5)
    np.testing.assert_array_equal(found.predict(new), mean)
    _, of_new = found.predict(new, return_std=True, include_noise=True)
    np.testing.assert_allclose(of_new**2, std**2 + NOISE)


def test_coefficients_and_their_covariance():
    X, y = rows()
    found = bo.universal_kriging(process(), X, y)
    _, _, beta, S = by_hand(linear, X, y, X[:1])
    per_column = found.columns.unit * found.columns.deviation
    np.testing.assert_allclose(found.coef / per_column, beta[1:], rtol=1e-6)
    by_columns = found.coef_covariance / np.outer(per_column, per_column)
    np.testing.assert_allclose(by_columns, np.linalg.inv(S)[1:, 1:], rtol=1e-5)


def test_on_a_grid_it_is_the_same():
    X, y = rows()
    kernel = Gaussian(0.4)
    given = {"noise": NOISE, "amplitude": AMPLITUDE}
    new = np.random.default_rng(1).uniform(0, 1, (50, 2))
    exact, grid = (
        bo.universal_kriging(
            bo.GaussianProcessRegressor(kernel, method=method, **given), X, y
        ).predict(new, return_std=True)
        for method in ("exact", bo.FourierGrid(1e-9))
    )
    np.testing.assert_allclose(grid[0], exact[0], atol=1e-4)
    np.testing.assert_allclose(grid[1], exact[1], rtol=1e-3)


def test_a_trend_is_carried_on_where_there_are_no_rows():
    X, y = rows()
    far = np.array([[3.0, 0.5]])
    assert bo.universal_kriging(process(), X, y).predict(far)[0] > 10
    assert process().fit(X, y).predict(far)[0] < 6


def test_open_numbers_are_those_of_what_least_squares_leave():
    X, y = rows()
    found = bo.universal_kriging(process(noise="auto", amplitude="auto"), X, y)
    F = linear(X)
    rest = y - F @ np.linalg.lstsq(F, y, rcond=None)[0]
    first = process(noise="auto", amplitude="auto").fit(X, rest)
    assert found.noise_variance == pytest.approx(first.noise_variance_, rel=1e-6)
    assert found.process.amplitude_[0] == pytest.approx(first.amplitude_, rel=1e-6)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"trend": "cubic"}, "trend must be"),
        ({"trend": linear}, "must vary, and none be a combination.*The constant is there already"),
        ({"trend": lambda X: X[:, [0, 0]]}, "none be a combination of others; got 2"),
        ({"trend": lambda X: X[:, 0]}, r"a row for each of 200 rows.*got shape \(200,\)"),
        ({"trend": lambda X: X * np.nan}, "must return a finite array"),
        ({"y": np.ones((200, 2))}, r"shapes \(n, d\) and \(n,\); got shapes .*\(200, 2\)"),
        ({"X": np.full((200, 2), np.nan)}, "must be finite numbers"),
        ({"process": process(fit_intercept=False)}, "with fit_intercept=True; got"),
        ({"process": bo.KernelRidge()}, "must be a GaussianProcessRegressor"),
    ],
    ids=["word", "constant", "twice", "shape", "NaN", "targets", "rows", "no mean", "learner"],
)
def test_what_is_no_trend_is_refused(given, sentence):
    X, y = rows()
    with pytest.raises(InvalidInput, match=sentence):
        bo.universal_kriging(**({"process": process(), "X": X, "y": y} | given))
