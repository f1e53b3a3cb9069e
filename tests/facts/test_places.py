"""The globe, and places beside time: waves, fits, nearest neighbours, each by a slow route too."""

from functools import partial

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import eval_legendre

import bochner as bo
from bochner.data.sources import Block
from bochner.kernels import Columns, Constant, Matern, OnSphere, Zonal
from bochner.kernels.numbers import gradients
from bochner.kernels.sphere import degree_variances, of_degrees
from bochner.solvers.gram import conjugate_gradients, full_of, to_real
from bochner.solvers.harmonics import from_waves, to_waves
from bochner.solvers.waves import WaveProblem
from bochner.sums.fourier import GlobePlaces, WavesOf, as_complex

KERNELS = [
    OnSphere("gaussian", 30.0),
    OnSphere("matern32", 5.0),
    OnSphere(Matern(0.8, 2.0), 5.0),
    2.0 * OnSphere("matern52", 40.0) * OnSphere("gaussian", 60.0) + Constant(0.5),
    OnSphere(Zonal((0.5, 1.0, 0.0, 0.25), power=0)),
]
NAMES = ["gaussian", "matern32", "matern", "product", "zonal"]


def places(n, seed=0):
    """Places that are uniform on the sphere, longitudes in any turn."""
    rng = np.random.default_rng(seed)
    latitude = np.rad2deg(np.arcsin(rng.uniform(-1, 1, n)))
    return np.stack([latitude, rng.uniform(-540, 540, n)], axis=1)


def angle(X, Y):
    """Great-circle angles, by the haversine formula."""
    (a, b), (c, d) = (np.deg2rad(Z).T[:, :, None] for Z in (X, Y))
    c, d = c.T, d.T
    half = np.sin((a - c) / 2) ** 2 + np.cos(a) * np.cos(c) * np.sin((b - d) / 2) ** 2
    return 2 * np.arcsin(np.sqrt(np.minimum(half, 1.0)))


def test_the_kernel_is_one_of_the_chord():
    X, Y = places(20), places(15, 1)
    chord = 2 * np.sin(angle(X, Y) / 2) / np.deg2rad(7.0)
    expected = (1 + np.sqrt(3) * chord) * np.exp(-np.sqrt(3) * chord)
    np.testing.assert_allclose(OnSphere("matern32", 7.0)(X, Y), expected, atol=1e-9)
    np.testing.assert_allclose(OnSphere("matern32", 7.0).diag(X), 1.0)


@pytest.mark.parametrize("kernel", KERNELS, ids=NAMES)
def test_degree_variances_are_those_of_the_integral(kernel):
    """By adaptive quadrature in θ, with k of places on a meridian; and summed they are the kernel.

    What degrees above 200 hold is the same at all angles at most, k(x, x) less the sum.
    """
    found = degree_variances(kernel, 200)
    meridian = lambda t: kernel([[90.0, 0.0]], [[90.0 - np.rad2deg(t), 0.0]])[0, 0]
    for l in (0, 1, 2, 7):
        integrand = lambda t, l=l: meridian(t) * eval_legendre(l, np.cos(t)) * np.sin(t) / 2
        value, error = quad(integrand, 0, np.pi, limit=200, points=[0.05, 0.3])
        assert found[l] == pytest.approx(value, abs=error + 1e-9)
    X = places(40)
    rest = kernel.diag(X[:1])[0] - (2 * np.arange(201) + 1) @ found
    assert np.abs(of_degrees(found, X) - kernel(X)).max() <= rest + 1e-9


def test_gradients_in_degrees_are_those_of_differences():
    X, Y = places(6), places(4, 1)
    C = np.random.default_rng(2).standard_normal((6, 4))
    k, step = OnSphere("matern52", 40.0), 1e-4
    found = gradients(k, X, Y, C)
    for a in range(2):
        h = step * np.eye(2)[a]
        slope = ((k(X + h, Y) - k(X - h, Y)) / (2 * step) * C).sum(axis=1)
        np.testing.assert_allclose(found[:, a], slope, atol=1e-7)


@pytest.mark.parametrize("degree", [1, 2, 7, 12])
def test_waves_are_the_harmonics_of_the_features(degree):
    """Features are polynomials of points in space, by another recurrence."""
    X, D = places(30), (degree + 1) ** 2
    coef = np.random.default_rng(1).standard_normal((D, 3))
    zonal = OnSphere(Zonal(tuple(2.0 * np.arange(degree + 1) + 1), power=0))  # a_l = 1
    phi = bo.draw(zonal, bo.SphericalHarmonics(degree), n_features=D, n_inputs=2)
    np.testing.assert_allclose(phi.weights, 1.0, atol=1e-12)
    waves = full_of(to_waves(coef.T, degree))
    k = np.arange(-degree, degree + 1)
    theta = GlobePlaces().angles(X)
    tables = [np.exp(1j * np.outer(theta[:, a], k)) for a in range(2)]
    values = np.einsum("nk,skm,nm->ns", tables[0], waves, tables[1])
    np.testing.assert_allclose(values.imag, 0.0, atol=1e-11)
    np.testing.assert_allclose(values.real, phi(X) @ coef, atol=1e-11)


def test_from_waves_is_the_adjoint():
    L, rng = 8, np.random.default_rng(3)
    a, b = rng.standard_normal((2, 1, (L + 1) ** 2))
    waves = [to_real(to_waves(c, L), (L, L)) for c in (a, b)]
    back = from_waves(to_waves(b, L))
    np.testing.assert_allclose((waves[0] * waves[1]).sum(), (a * back).sum(), rtol=1e-11)


def problem_of(degree, centred, X=None):
    """Sums of rows as waves, and the features of the same rows."""
    rng, X = np.random.default_rng(1), places(200) if X is None else X
    n = len(X)
    w, y = rng.uniform(0, 2, n) if n == 200 else np.ones(n), rng.standard_normal((n, 3)) + 2
    summand = WavesOf(GlobePlaces(), (degree, degree), np.ones(3), 1e-13)
    parts = [Block(X[:50], y[:50], w[:50], 0), Block(X[50:], y[50:], w[50:], 50)]
    sums = summand.merge(*(summand.add(summand.zero(), part) for part in parts))
    phi = bo.draw(KERNELS[2], bo.SphericalHarmonics(degree), n_features=(degree + 1) ** 2, X=X)
    mean = sums.origin + sums.total / sums.weight if centred else np.zeros(3)
    sums = sums.about(mean)
    gram = phi.gram(as_complex(sums.gram), phi.variances, centred)
    problem = WaveProblem.of(gram, as_complex(sums.cross), sums.squares, w.sum(), rng)
    return problem, phi(X), y, w


@pytest.mark.parametrize("centred", [True, False])
def test_solutions_are_those_of_the_matrix(centred):
    degree = 6
    problem, Z, y, w = problem_of(degree, centred)
    gram = problem.gram
    Zc, yc = (A - (w @ A / w.sum()) * centred for A in (Z, y))
    G, B = Zc.T @ (w[:, None] * Zc), Zc.T @ (w[:, None] * yc)
    c = np.random.default_rng(2).standard_normal((2, len(G)))
    np.testing.assert_allclose(gram(c), c @ G, atol=1e-10)
    np.testing.assert_allclose(problem.b, B.T, atol=1e-10)
    np.testing.assert_allclose(gram.block(3), G[:16, :16], atol=1e-10)
    assert gram.size == pytest.approx((gram.roots**2).sum())
    for low in (0, 2, degree):
        M = gram.low_degrees(0.5, low)
        np.testing.assert_allclose(M.root(M.inverse_root(c)), c, atol=1e-10)
        by_roots = M.inverse_root(M.inverse_root(c), transposed=True)
        np.testing.assert_allclose(by_roots, M.solve(c), atol=1e-10)
        found = conjugate_gradients(M, problem.b, 1e-11).solution.T
        np.testing.assert_allclose(found, np.linalg.solve(G + 0.5 * np.eye(len(G)), B), atol=1e-8)
    whole = np.linalg.inv(G + 0.5 * np.eye(len(G)))
    assert M.inverse_diagonal.sum() == pytest.approx(np.trace(whole))
    assert M.log_determinant() == pytest.approx(-np.linalg.slogdet(whole)[1])


@pytest.mark.parametrize("centred", [True, False])
def test_rows_on_parallels_have_a_block_for_each_order(centred):
    """On whole parallels of more than 2L rows each that is G itself."""
    degree, alpha = 5, 0.5
    lat, lon = np.meshgrid(np.linspace(-80, 60, 9), np.arange(14) * 360 / 14, indexing="ij")
    problem, Z, _, w = problem_of(degree, centred, np.stack([lat.ravel(), lon.ravel()], axis=1))
    gram = problem.gram
    assert gram.by_order
    Zc = Z - (w @ Z / w.sum()) * centred
    A = Zc.T @ (w[:, None] * Zc) + alpha * np.eye(Z.shape[1])
    M, c = gram.preconditioner(alpha), np.random.default_rng(2).standard_normal((2, len(A)))
    np.testing.assert_allclose(M.solve(c), np.linalg.solve(A, c.T).T, atol=1e-9)
    np.testing.assert_allclose(M.root(M.inverse_root(c)), c, atol=1e-10)
    by_roots = M.inverse_root(M.inverse_root(c), transposed=True)
    np.testing.assert_allclose(by_roots, M.solve(c), atol=1e-9)
    assert M.log_determinant() == pytest.approx(np.linalg.slogdet(A)[1])
    assert M.inverse_diagonal.sum() == pytest.approx(np.trace(np.linalg.inv(A)))
    assert conjugate_gradients(M, problem.b, 1e-8).products <= 2


def regressor(kernel, method, X, y, **options):
    return bo.GaussianProcessRegressor(kernel, method=method, random_state=0, **options).fit(X, y)


@pytest.mark.parametrize(
    ("kernel", "method", "X", "truth"),
    [
        (partial(OnSphere, "matern52"), bo.SphericalHarmonics(25), places(1500), 40.0),
        (partial(Matern, 1.5), bo.FourierGrid(1e-3), np.linspace(0, 1, 800)[:, None], 0.1),
    ],
    ids=["globe", "grid"],
)
def test_lengthscales_of_all_rows_have_a_larger_evidence(kernel, method, X, truth):
    rng, n = np.random.default_rng(0), len(X)
    root = np.linalg.cholesky(kernel(truth)(X) + 1e-8 * np.eye(n))
    y = root @ rng.standard_normal(n) + 0.1 * rng.standard_normal(n)
    best, *given = (
        regressor(kernel(share * truth), method, X, y, **options)
        for share, options in ((0.75, {"lengthscale": "evidence"}), (0.6, {}), (1.5, {}))
    )
    values = [fit.log_marginal_likelihood_value_ for fit in given]
    assert best.log_marginal_likelihood_value_ > max(values)


GLOBE = Columns(OnSphere("matern32", 25.0), (1, 2))
TIME = Columns(Matern(1.5, 4.0), (0,))
WEATHER = GLOBE * TIME
LAW = {"noise": 0.02, "amplitude": 1.3}


def times_and_places(n, seed=0):
    """Rows of (time, latitude, longitude)."""
    rng = np.random.default_rng(seed)
    lat, lon = np.rad2deg(np.arcsin(rng.uniform(-1, 1, n))), rng.uniform(-180, 180, n)
    X = np.stack([rng.uniform(0, 10, n), lat, lon], axis=1)
    heat = np.cos(np.deg2rad(2 * X[:, 1])) * np.sin(X[:, 0] + np.deg2rad(X[:, 2]))
    return X, heat + 0.1 * rng.standard_normal(n)


def near(kernel, neighbours, X, y):
    return regressor(kernel, bo.NearestNeighbours(neighbours), X, y, **LAW)


def points(X):
    lat, lon = np.deg2rad(X[:, 1]), np.deg2rad(X[:, 2])
    return np.stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)], axis=1)


def test_columns_of_columns_are_those_of_the_rows():
    X, y = times_and_places(60)
    beside = np.hstack([np.ones((60, 1)), X])
    found = near(Columns(WEATHER, (1, 2, 3)), 12, beside, y).predict(beside)
    np.testing.assert_allclose(found, near(WEATHER, 12, X, y).predict(X), atol=1e-9)


def test_a_kernel_beside_the_globe_may_be_an_exponential():
    """With all rows as neighbours, the process is the exact one."""
    X, y = times_and_places(60)
    kernel = GLOBE + bo.kernels.Exp(TIME)
    found = near(kernel, 60, X, y).predict(X)
    exact = bo.GaussianProcessRegressor(kernel, **LAW).fit(X, y).predict(X)
    np.testing.assert_allclose(found, exact, atol=1e-9)
    two, beside = GLOBE + bo.kernels.Exp(Columns(OnSphere(), (3, 4))), np.hstack([X, X[:, 1:]])
    with pytest.raises(bo.errors.UnsupportedKernel, match="NearestNeighbours"):
        near(two, 12, beside, y)


def test_neighbours_are_near_in_lengthscales_of_the_globe_and_of_time():
    (X, y), (new, _) = times_and_places(300), times_and_places(8, 1)
    new[0, 2] = 179.9  # longitude wraps
    found = near(WEATHER, 12, X, y).predict(new, return_std=True)
    for i, row in enumerate(new):
        apart = np.linalg.norm(points(X) - points(row[None]), axis=1) / np.deg2rad(25.0)
        rows = np.argsort(np.hypot(apart, (X[:, 0] - row[0]) / 4.0))[:12]
        twin = near(WEATHER, 12, X[rows], y[rows]).predict(row[None], return_std=True)
        np.testing.assert_allclose([part[i] for part in found], np.ravel(twin), atol=1e-9)
