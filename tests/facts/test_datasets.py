"""The bundled data sets agree with their descriptions; double descent."""

import zlib

import numpy as np
import pytest

from bochner import double_descent, draw
from bochner.datasets import load_co2, load_concrete, load_earth, on_sphere
from bochner.features import IID, Fourier
from bochner.kernels import Laplace


def great_circle(a, b):
    """Return the angle between two places by the haversine formula, in radians."""
    (p, q), (r, s) = np.deg2rad(a), np.deg2rad(b)
    h = np.sin((r - p) / 2) ** 2 + np.cos(p) * np.cos(r) * np.sin((s - q) / 2) ** 2
    return 2 * np.arcsin(np.sqrt(h))


EARTH, CONCRETE, CO2 = load_earth(), load_concrete(), load_co2()


def test_chords_agree_with_great_circles():
    places = np.array([[52.5, 13.4], [-33.9, 151.2], [90.0, 77.0], [0.0, 180.0], [0.0, -180.0]])
    points = on_sphere(*places.T)
    for i, a in enumerate(places):
        for j, b in enumerate(places):
            chord = np.linalg.norm(points[i] - points[j])
            assert chord == pytest.approx(2 * np.sin(great_circle(a, b) / 2), abs=1e-14)
    single = np.array([10.0], np.float32)
    assert on_sphere(single, single).dtype == np.float32
    assert on_sphere(single, single.astype(float)).dtype == np.float64
    assert on_sphere([10], [20]).dtype == np.float64


def test_the_data_equal_the_published_tables():
    """The checksums are of bytes that were compared with the published tables."""
    shapes = {"earth": (64800, 3), "concrete": (1030, 8), "co2": (521, 1)}
    sums = {"earth": 2933465582, "concrete": 2356823448, "co2": 2736575920}
    for name, data in {"earth": EARTH, "concrete": CONCRETE, "co2": CO2}.items():
        assert (data.X.shape, data.X.dtype, data.y.dtype) == (shapes[name], "f4", "f4")
        stored = data.y if name == "earth" else np.column_stack([data.X, data.y])
        assert zlib.crc32(stored.astype("<f4").tobytes()) == sums[name], name
    latitude, longitude = (a.reshape(180, 360) for a in (EARTH.latitude, EARTH.longitude))
    np.testing.assert_array_equal(latitude[:, 7], np.arange(-89.5, 90))
    np.testing.assert_array_equal(longitude[7], np.arange(-179.5, 180))
    np.testing.assert_allclose(EARTH.X, on_sphere(EARTH.latitude, EARTH.longitude), atol=2e-7)


# ---- double descent: the peak at D = n, the second descent, and a penalty without a peak

N = 60


def noisy(n, seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 4))
    return X, np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.5 * rng.standard_normal(n)


@pytest.fixture(scope="module")
def data():
    return *noisy(N, 0), *noisy(400, 1)


@pytest.fixture(scope="module", params=["fourier", "relu"])
def curves(request, data):
    return double_descent(*data, features=request.param, alpha=(0.0, 10.0), random_state=0)


def error(curves, share, alpha=0):
    return curves.test_error[alpha, np.flatnonzero(curves.widths == round(share * N))[0]]


def test_the_error_peaks_where_features_are_as_many_as_rows_and_descends_again(curves):
    """Fits with more features than rows interpolate, and a penalty removes the peak."""
    valley, peak = curves.test_error[0][curves.widths < 0.9 * N].min(), curves.test_error[0].max()
    assert 0.9 * N <= curves.peak <= 1.1 * N
    assert 0.9 * N <= curves.widths[np.argmax(curves.norm[0])] <= 1.1 * N
    assert peak > 4 * valley
    assert peak > 5 * error(curves, 2)
    assert error(curves, 2) > error(curves, 10)
    assert error(curves, 10) < 1.5 * valley
    assert curves.train_error[0][curves.widths > N].max() < 1e-16
    assert curves.train_error[0][curves.widths < 0.7 * N].min() > 1e-3
    errors = curves.test_error[1]
    assert errors.max() < 2 * errors.min()
    assert error(curves, 1, alpha=1) < 0.2 * error(curves, 1)


@pytest.mark.parametrize("D", [20, 59, 60, 61, 200])
def test_solutions_solve_least_squares_and_normal_equations(data, D):
    X, y, X_test, y_test = data
    kernel = Laplace(4.0)
    curves = double_descent(*data, kernel=kernel, widths=[D], alpha=(0.0, 0.5), random_state=3)
    phi = draw(kernel, Fourier(IID(), "phase"), n_features=D, n_inputs=4, random_state=3)
    Z, Z_test, centred = phi(X), phi(X_test), y - y.mean()
    lstsq_coef = np.linalg.lstsq(Z, centred, rcond=None)[0]
    ridge = np.linalg.solve(Z.T @ Z + 0.5 * np.eye(D), Z.T @ centred)
    for i, coef in enumerate((lstsq_coef, ridge)):
        errors = (Z_test @ coef + y.mean() - y_test) ** 2
        np.testing.assert_allclose(curves.test_error[i, 0], errors.mean(), rtol=1e-6)
        np.testing.assert_allclose(curves.norm[i, 0], np.linalg.norm(coef), rtol=1e-6)


def test_labels_are_coded_as_indicators(data):
    X, _, X_test, _ = data
    names = np.array(["b", "a", "c"])
    y, y_test = (names[(A[:, 0] > 0).astype(int) + (A[:, 1] > 1)] for A in (X, X_test))
    curves = double_descent(X, y, X_test, y_test, widths=[5, 20, 60, 600], random_state=0)
    assert curves.train_wrong[0, -1] == 0
    assert curves.test_wrong[0, -1] < 0.3 < curves.test_wrong[0, 2]
    assert "test error rate" in str(curves)
    counts, counts_test = np.rint(data[1]), np.rint(data[3])
    options = {"widths": [10], "random_state": 0}
    as_labels = double_descent(X, counts, X_test, np.clip(counts_test, -1, 1), **options)
    as_numbers = double_descent(X, counts, X_test, counts_test, task="regression", **options)
    assert as_labels.test_wrong is not None
    assert as_numbers.test_wrong is None
