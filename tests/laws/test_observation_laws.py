"""Derivatives and block averages in a Gaussian process, beside dense processes with closed forms."""

import itertools

import numpy as np
import pytest
from scipy.special import erf

import bochner as bo
from bochner import BlockAverages, Derivatives
from bochner.errors import InvalidInput, InvalidType, UnsupportedKernel
from bochner.kernels import Gaussian, Laplace, Matern

NOISE, AMPLITUDE, SCALE = 0.01, 2.0, 1.3
FLAT = 1e7
"""Variance that stands for a flat prior of the intercept: rounding of 1e-7 · 1e-16/1e-2 is left."""


def rng():
    return np.random.default_rng(0)


def data(n=40, d=2, t=None):
    g = rng()
    X = g.uniform(-2, 2, (n, d))
    y = np.sin(X[:, 0]) + X[:, -1] ** 2 + 0.1 * g.standard_normal(n)
    return X, (y if t is None else np.stack([y * (i + 1) - X[:, 0] * i for i in range(t)], axis=1))


def process(kernel=None, **options):
    options = {"noise": NOISE, "amplitude": AMPLITUDE, "random_state": 0} | options
    return bo.GaussianProcessRegressor(kernel or Gaussian(SCALE), **options)


PLACES, BOXES = rng().uniform(-2, 2, (5, 2)), rng().uniform(-2, 1, (3, 2))
TESTS = rng().uniform(-3, 3, (7, 2))
SLOPES, MEANS = np.cos(PLACES[:, 0]), np.array([0.5, 1.0, -0.3])
SIDES = np.array([1.0, 0.5])
NEW = (
    Derivatives(PLACES, 0, SLOPES, 1e-3),
    BlockAverages(BOXES, BOXES + SIDES, MEANS, [0.1, 0.01, 0.02]),
)


# ---- the twin: one dense process of values, slopes and averages, Gaussian kernel, closed forms


def k(X, Y):
    return AMPLITUDE * np.exp(-((X[:, None] - Y[None]) ** 2).sum(axis=2) / (2 * SCALE**2))


def slope(Z, Y):
    """∂k(z, y)/∂z_0."""
    return -(Z[:, None, 0] - Y[None, :, 0]) / SCALE**2 * k(Z, Y)


def twice(Z, Y):
    """∂²k(z, y)/∂z_0 ∂y_0."""
    gap = Z[:, None, 0] - Y[None, :, 0]
    return (1 / SCALE**2 - gap**2 / SCALE**4) * k(Z, Y)


def averaged(low, high, Y, derivative=False):
    """Averages over boxes of k(·, y), by error functions; or of its slope in y_0."""
    root, found = np.sqrt(2) * SCALE, np.full((len(low), len(Y)), AMPLITUDE)
    for j in range(2):
        a, b, y = low[:, None, j], high[:, None, j], Y[None, :, j]
        if derivative and j == 0:  # −∫ ∂/∂x = k(a) − k(b)
            ends = [np.exp(-((e - y) ** 2) / root**2) for e in (a, b)]
            found = found * (ends[0] - ends[1]) / (b - a)
        else:
            whole = np.sqrt(np.pi) / 2 * root * (erf((b - y) / root) - erf((a - y) / root))
            found = found * whole / (b - a)
    return found


def both(low, high):
    """Averages over pairs of boxes, by error functions and forty places of quadrature."""
    nodes, weights = np.polynomial.legendre.leggauss(40)
    found = []
    for a, b in zip(low, high, strict=True):
        along = [(p + q) / 2 + nodes * (q - p) / 2 for p, q in zip(a, b, strict=True)]
        places = np.array(list(itertools.product(*along)))
        found.append(averaged(low, high, places) @ np.outer(weights, weights).ravel() / 4)
    return np.array(found)


def dense(X, y, T, *, sign=1.0):
    """Mean and covariance of f at T given values, slopes and averages, all at once."""
    high = BOXES + SIDES
    at = lambda Y: np.vstack([k(X, Y), sign * slope(PLACES, Y), averaged(BOXES, high, Y)])
    K = np.block(
        [
            [k(X, X), slope(PLACES, X).T, averaged(BOXES, high, X).T],
            [
                slope(PLACES, X),
                twice(PLACES, PLACES),
                averaged(BOXES, high, PLACES, derivative=True).T,
            ],
            [
                averaged(BOXES, high, X),
                averaged(BOXES, high, PLACES, derivative=True),
                both(BOXES, high),
            ],
        ]
    )
    constant = np.r_[np.ones(len(X)), np.zeros(5), np.ones(3)]
    noise = np.r_[np.full(len(X), NOISE), NEW[0].noise, NEW[1].noise]
    S = K + FLAT * np.outer(constant, constant) + np.diag(noise)
    cross = at(T) + FLAT * constant[:, None]
    solved = np.linalg.solve(S, np.c_[np.r_[y, SLOPES, MEANS], cross])
    return cross.T @ solved[:, 0], k(T, T) + FLAT - cross.T @ solved[:, 1:]


def test_the_exact_process_is_conditioned_on_all_at_once():
    X, y = data()
    model = process().fit(X, y).observe(*NEW)
    mean, cov = dense(X, y, TESTS)
    found, deviation = model.predict(TESTS, return_std=True)
    assert found == pytest.approx(mean, abs=2e-6)
    assert deviation == pytest.approx(np.sqrt(np.diag(cov)), abs=2e-6)
    assert model.predict(TESTS, return_cov=True)[1] == pytest.approx(cov, abs=2e-6)
    # the planted fault: slopes taken with the other sign
    wrong, _ = dense(X, y, TESTS, sign=-1.0)
    assert np.abs(found - wrong).max() > 0.01


def test_a_rougher_process_has_slopes_too():
    """Matérn 3/2 in one column: a²(1 − ar) e^(−ar) is ∂²k/∂x∂y, a = √3/ℓ."""
    X, y = data(25, 1)
    Z, T, a = np.array([[-1.0], [0.3]]), np.linspace(-2, 2, 9)[:, None], np.sqrt(3) / 2
    values, noise = np.array([0.5, -1.0]), np.array([0.0, 0.1])
    model = process(Matern(1.5, 2.0), fit_intercept=False).fit(X, y)
    model.observe(Derivatives(Z, 0, values, noise))
    r = lambda A, B: np.abs(A - B.T)
    k0 = lambda A, B: AMPLITUDE * (1 + a * r(A, B)) * np.exp(-a * r(A, B))
    k1 = lambda A, B: -AMPLITUDE * a**2 * (A - B.T) * np.exp(-a * r(A, B))
    k2 = AMPLITUDE * a**2 * (1 - a * r(Z, Z)) * np.exp(-a * r(Z, Z))
    S = np.block([[k0(X, X), k1(Z, X).T], [k1(Z, X), k2]])
    S += np.diag(np.r_[np.full(25, NOISE), noise])
    cross = np.vstack([k0(X, T), k1(Z, T)])
    solved = np.linalg.solve(S, np.c_[np.r_[y, values], cross])
    mean, deviation = model.predict(T, return_std=True)
    # differences over 1e-5 of a lengthscale leave 2e-5 of a second derivative
    assert mean == pytest.approx(cross.T @ solved[:, 0], abs=1e-4)
    variance = np.diag(k0(T, T) - cross.T @ solved[:, 1:])
    assert deviation == pytest.approx(np.sqrt(variance), abs=1e-4)


@pytest.mark.parametrize("centred", [True, False])
def test_features_are_conditioned_on_rows_of_their_slopes_and_averages(centred):
    """Ridge regression on stacked rows: those of y, ∂φ/∂x_0 without, averages with a constant."""
    X, y = data()
    method = bo.Fourier(bo.IID())
    model = process(method=method, n_features=30, fit_intercept=centred).fit(X, y)
    T = np.vstack([X[:5], TESTS])
    before = model.predict(T, return_cov=True)[1]
    phi = model.map_
    law = model.predictive_
    model.observe(*NEW)
    step = np.array([1e-5, 0.0])
    along = (phi(PLACES + step) - phi(PLACES - step)) / 2e-5
    nodes, weights = np.polynomial.legendre.leggauss(30)
    unit = np.array(list(itertools.product((nodes + 1) / 2, (nodes + 1) / 2)))
    mean_of = lambda low: np.outer(weights, weights).ravel() / 4 @ phi(low + unit * SIDES)
    rows = [phi(X), along, np.array([mean_of(low) for low in BOXES])]
    ones = np.r_[np.ones(len(X)), np.zeros(5), np.ones(3)] * centred
    noise = np.r_[np.full(len(X), law.posterior.floor[0]), NEW[0].noise, NEW[1].noise]
    A = np.column_stack([np.vstack(rows), ones])
    prior = np.r_[np.full(30, 1 / AMPLITUDE), 1 / FLAT if centred else 1.0]
    precision = A.T @ (A / noise[:, None]) + np.diag(prior)
    at = np.column_stack([phi(T), np.full(len(T), float(centred))])
    mean = at @ np.linalg.solve(precision, A.T @ (np.r_[y, SLOPES, MEANS] / noise))
    found, cov = model.predict(T, return_cov=True)
    assert found == pytest.approx(mean, abs=2e-6)
    # what features leave out stays; what they have is conditioned
    keep = slice(0, len(X))
    only = A[keep].T @ (A[keep] / noise[keep, None]) + np.diag(prior)
    lost = at @ (np.linalg.inv(only) - np.linalg.inv(precision)) @ at.T
    assert before - cov == pytest.approx(lost, abs=2e-6)


@pytest.mark.parametrize("options", [{}, {"method": bo.Fourier(), "n_features": 60}], ids=str)
def test_exact_observations_are_met_by_means_gradients_and_functions(options):
    X, y = data(t=2)
    slopes = np.stack([SLOPES, 2 * SLOPES], axis=1)
    model = process(**options).fit(X, y).observe(Derivatives(PLACES, 1, slopes))
    assert model.predict(TESTS).shape == (7, 2)
    # 1e-10 of the variance is added for observations that repeat each other
    assert model.gradient(PLACES)[:, 1] == pytest.approx(slopes, abs=1e-5)
    f = model.sample_functions(4, random_state=1)
    assert len(f) == 4
    step = np.array([0.0, 1e-4])
    drawn = (f(PLACES + step) - f(PLACES - step)) / 2e-4
    assert drawn == pytest.approx(np.repeat(slopes[:, :, None], 4, axis=2), abs=1e-3)
    assert model.sample_y(TESTS, 3).shape == (7, 2, 3)


@pytest.mark.statistical
def test_functions_have_the_law_that_is_predicted():
    """Of 400 functions: means within 5 and variances within 6 standard errors, 7 places of each."""
    X, y = data()
    model = process().fit(X, y).observe(*NEW)
    mean, deviation = model.predict(TESTS, return_std=True)
    values = model.sample_functions(400, random_state=0)(TESTS)
    assert np.all(np.abs(values.mean(axis=1) - mean) < 5 * deviation / 20)
    ratio = values.var(axis=1) / deviation**2
    assert np.all(np.abs(ratio - 1) < 6 * np.sqrt(2 / 400))


def test_observations_bring_predictions_nearer_and_intervals_stay_true():
    g = rng()
    X, P = g.uniform(-3, 3, (12, 1)), g.uniform(-3, 3, (8, 1))
    T = np.linspace(-3, 3, 60)[:, None]
    model = process(Gaussian(1.0), noise=1e-4).fit(X, np.sin(2 * X[:, 0]))
    before = np.abs(model.predict(T) - np.sin(2 * T[:, 0])).mean()
    model.observe(Derivatives(P, 0, 2 * np.cos(2 * P[:, 0]), 1e-4))
    assert np.abs(model.predict(T) - np.sin(2 * T[:, 0])).mean() < 0.5 * before
    mean, low, high = model.predict_interval(T, 0.9)
    assert ((low <= mean) & (mean <= high)).all()
    assert np.mean((low <= np.sin(2 * T[:, 0])) & (np.sin(2 * T[:, 0]) <= high)) > 0.8
    model.calibrate(T[::2], np.sin(2 * T[::2, 0]))
    assert "held out" in model.calibration_.source
    assert np.isfinite(model.log_predictive_density(T, np.sin(2 * T[:, 0]))).all()


def test_later_observations_take_the_place_of_earlier_ones_and_fits_forget_them():
    X, y = data()
    model = process().fit(X, y)
    plain = model.predict(TESTS)
    one = process().fit(X, y).observe(NEW[1]).predict(TESTS)
    np.testing.assert_array_equal(model.observe(NEW[0]).observe(NEW[1]).predict(TESTS), one)
    swapped = model.observe(NEW[1], NEW[0]).predict(TESTS)
    assert swapped == pytest.approx(model.observe(*NEW).predict(TESTS), abs=1e-9)
    np.testing.assert_array_equal(model.solve_again().predict(TESTS), plain)
    added = process().fit(X, y).observe(*NEW).partial_fit(X[:3], y[:3]).predict(TESTS)
    without = process().fit(X, y).partial_fit(X[:3], y[:3]).predict(TESTS)
    np.testing.assert_array_equal(added, without)


@pytest.mark.parametrize("options", [{}, {"method": bo.Nystrom(), "n_features": 20}], ids=str)
def test_files_keep_observations(tmp_path, options):
    X, y = data()
    model = process(**options).fit(X, y).observe(*NEW)
    bo.save(model, tmp_path / "told.bochner")
    again = bo.load(tmp_path / "told.bochner")
    found, expected = (np.array(m.predict(TESTS, return_std=True)) for m in (again, model))
    assert found == pytest.approx(expected, abs=1e-9)


def test_a_held_column_has_no_width():
    X, y = data()
    box = BlockAverages([[0.0, 1.0]], [[2.0, 1.0]], [3.0], points=20)
    assert box.places.shape == (20, 2)
    line = np.column_stack([np.linspace(0, 2, 2001), np.ones(2001)])
    model = process().fit(X, y).observe(box)
    assert np.trapezoid(model.predict(line), line[:, 0]) / 2 == pytest.approx(3.0, abs=1e-5)


@pytest.mark.parametrize(
    ("ask", "error", "message"),
    [
        (lambda: Derivatives(PLACES, 2, SLOPES), InvalidInput, "column must be below the 2 col"),
        (lambda: Derivatives(PLACES, 0, SLOPES[:3]), InvalidInput, "for each of the 5 places"),
        (lambda: Derivatives(PLACES, 0, SLOPES, -1.0), InvalidInput, "noise must be a variance"),
        (lambda: Derivatives(PLACES, 0, SLOPES * np.nan), InvalidInput, "values must"),
        (
            lambda: BlockAverages(BOXES + SIDES, BOXES, MEANS),
            InvalidInput,
            "lower at most upper; got shapes",
        ),
        (
            lambda: BlockAverages(np.zeros((2, 6)), np.ones((2, 6)), [0.0, 1.0]),
            InvalidInput,
            "8,192 places of quadrature in all at most",
        ),
        (lambda: process().fit(*data()).observe(), InvalidInput, "pass Derivatives or BlockAver"),
        (lambda: process().fit(*data()).observe(3), InvalidType, "must be Derivatives or Block"),
        (
            lambda: process().fit(*data(d=3)).observe(*NEW),
            InvalidInput,
            "must have the 3 columns and 1 targets of the fit; got 2 and 1",
        ),
        (
            lambda: process(Laplace()).fit(*data()).observe(NEW[0]),
            UnsupportedKernel,
            "Gradients in rows have no closed form",
        ),
        (
            lambda: process(method=bo.NearestNeighbours()).fit(*data(300)).observe(NEW[0]),
            InvalidInput,
            "one on a Fourier grid or on nearest neighbours",
        ),
    ],
)
def test_what_cannot_be_observed_is_refused_in_a_sentence(ask, error, message):
    with pytest.raises(error, match=message):
        ask()
