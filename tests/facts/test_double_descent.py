"""Double descent: the peak at D = n, the second descent, and that a penalty removes the peak.

Least squares on the same features by NumPy's `lstsq`, and ridge regression by the normal equations,
are the second route to every number.
"""

import numpy as np
import pytest

from bochner import DoubleDescent, double_descent, draw
from bochner.errors import InvalidInput, InvalidType
from bochner.features import IID, Fourier
from bochner.kernels import Laplace

N = 60


def noisy(n, seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 4))
    return X, np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.5 * rng.standard_normal(n)


@pytest.fixture(scope="module")
def data():
    return *noisy(N, 0), *noisy(400, 1)


@pytest.fixture(scope="module", params=["fourier", "relu"])
def shown(request, data):
    return double_descent(*data, features=request.param, alpha=(0.0, 10.0), random_state=0)


def error(shown, share, alpha=0):
    return shown.test_error[alpha, np.flatnonzero(shown.widths == round(share * N))[0]]


def first_valley(shown):
    return shown.test_error[0][shown.widths < 0.9 * N].min()


def test_the_peak_is_at_as_many_features_as_rows(shown):
    assert 0.9 * N <= shown.peak <= 1.1 * N
    assert shown.test_error[0].max() > 4 * first_valley(shown)


def test_the_error_descends_a_second_time(shown):
    assert shown.test_error[0].max() > 5 * error(shown, 2)
    assert error(shown, 2) > error(shown, 10)
    assert error(shown, 10) < 1.5 * first_valley(shown)


def test_the_norm_of_the_coefficients_peaks_with_the_error(shown):
    assert 0.9 * N <= shown.widths[np.argmax(shown.norm[0])] <= 1.1 * N


def test_wide_features_go_through_every_target(shown):
    wide = shown.widths > N
    assert shown.train_error[0][wide].max() < 1e-16
    assert shown.train_error[0][shown.widths < 0.7 * N].min() > 1e-3


def test_a_penalty_removes_the_peak(shown):
    errors = shown.test_error[1]
    assert errors.max() < 2 * errors.min()
    assert error(shown, 1, alpha=1) < 0.2 * error(shown, 1)


@pytest.mark.parametrize("D", [20, 59, 60, 61, 200])
def test_solutions_are_those_of_least_squares_and_of_the_normal_equations(data, D):
    X, y, X_test, y_test = data
    kernel = Laplace(4.0)
    found = double_descent(*data, kernel=kernel, widths=[D], alpha=(0.0, 0.5), random_state=3)
    method = Fourier(IID(), "phase")
    phi = draw(kernel, method, n_features=D, n_inputs=4, random_state=3)
    Z, Z_test, centred = phi(X), phi(X_test), y - y.mean()
    least = np.linalg.lstsq(Z, centred, rcond=None)[0]
    ridge = np.linalg.solve(Z.T @ Z + 0.5 * np.eye(D), Z.T @ centred)
    for i, coef in enumerate((least, ridge)):
        errors = (Z_test @ coef + y.mean() - y_test) ** 2
        np.testing.assert_allclose(found.test_error[i, 0], errors.mean(), rtol=1e-6)
        np.testing.assert_allclose(found.norm[i, 0], np.linalg.norm(coef), rtol=1e-6)


def test_labels_are_zeros_and_ones_of_classes(data):
    X, _, X_test, _ = data
    names = np.array(["b", "a", "c"])
    y, y_test = (names[(A[:, 0] > 0).astype(int) + (A[:, 1] > 1)] for A in (X, X_test))
    shown = double_descent(X, y, X_test, y_test, widths=[5, 20, 60, 600], random_state=0)
    assert shown.train_wrong[0, -1] == 0
    assert shown.test_wrong[0, -1] < 0.3 < shown.test_wrong[0, 2]
    assert "test wrong" in str(shown)


def test_whole_numbers_can_be_a_quantity(data):
    X, y, X_test, y_test = data
    counts, counts_test = np.rint(y), np.rint(y_test)
    given = {"widths": [10], "random_state": 0}
    as_labels = double_descent(X, counts, X_test, np.clip(counts_test, -1, 1), **given)
    as_numbers = double_descent(X, counts, X_test, counts_test, task="regression", **given)
    assert as_labels.test_wrong is not None
    assert as_numbers.test_wrong is None


def test_the_same_seed_gives_the_same_curves(data):
    first, second, other = (
        double_descent(*data, widths=[30, 90], random_state=seed).test_error for seed in (5, 5, 6)
    )
    np.testing.assert_array_equal(first, second)
    assert (first != other).all()


def test_it_prints_as_a_table_and_draws_itself(shown):
    lines = str(shown).splitlines()
    assert "alpha = 10" in str(shown)
    assert sum(line.split()[:1] == ["60"] for line in lines) == 2
    errors, norms = shown.plot()
    assert len(errors.lines) == 5
    assert len(norms.lines) == 3
    assert isinstance(shown, DoubleDescent)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"widths": []}, "widths must name one D or more"),
        ({"widths": [0]}, "widths must be an integer, 1 or above"),
        ({"alpha": ()}, "alpha must name one penalty or more"),
        ({"alpha": -1.0}, "alpha must be a non-negative"),
        ({"task": "both"}, "task must be one of"),
        ({"y": np.linspace(0, 1.5, N - 1)}, "y must be dense and have one entry per row of X"),
        ({"y": np.full(N, "a")}, "two classes or more in y, and none in y_test"),
        ({"y": np.full(N, "a"), "task": "regression"}, "y must hold real numbers"),
        ({"X_test": np.zeros((3, 2)), "y_test": np.zeros(3)}, "test rows of the same columns"),
        ({"features": "sines"}, "method must be a value"),
        ({"kernel": "sines"}, "kernel must be a value"),
    ],
)
def test_refusals_are_one_sentence(data, change, message):
    given = dict(zip(("X", "y", "X_test", "y_test"), data, strict=True)) | change
    rows = [given.pop(name) for name in ("X", "y", "X_test", "y_test")]
    with pytest.raises((InvalidInput, InvalidType), match=message):
        double_descent(*rows, **given)
