"""Eigenfunctions: Mehler's formula, Mercer sums, boxes, Green's functions."""

import itertools
import math
from itertools import pairwise

import mpmath
import numpy as np
import pytest
import torch
from gallery import BASES, COMPRESSED, HERMITE, rows
from scipy.special import eval_hermite
from tolerance import assert_close

import bochner as bo
from bochner.features import Explicit, Fourier, HermiteMercer, LaplacianEigenfunctions, draw
from bochner.features.mercer.products import HermiteMap
from bochner.kernels import Brownian, Columns, FourierSeries, Gaussian, GreenFunction, Polynomial
from bochner.kernels.basis import half_turns, modes

D = 24


def new_map(pair, n_features=D, seed=0, X=None):
    X = rows(200) if X is None else X
    return draw(*pair, n_features=n_features, X=X, random_state=seed)


@pytest.mark.parametrize("pair", [*BASES[:2], *BASES[3:], *HERMITE, *COMPRESSED[:2]], ids=repr)
def test_more_features_have_a_smaller_residual(pair):
    maps = [new_map(pair, m) for m in (8, 32, 128, 400)]
    if hasattr(maps[0], "residual"):
        residuals = [phi.residual(rows(50, seed=8)).mean() for phi in maps]
        assert all(b <= a + 1e-12 for a, b in pairwise(residuals))
        assert residuals[-1] < 0.7 * residuals[0] + 1e-12


def test_the_order_of_rows_does_not_matter():
    X = rows(300)
    phi, psi = (new_map((Gaussian(), HermiteMercer()), X=A) for A in (X, X[::-1]))
    assert_close(phi(X), psi(X), factor=1e4)


def test_axes_and_lengthscales_follow_the_rows():
    """Rotated rows have rotated axes: features are equal up to signs."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 3)) * (3.0, 1.0, 0.3) + 5.0
    Q = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    phi, psi = (new_map((Gaussian(), HermiteMercer(scale=1.0)), X=A) for A in (X, X @ Q))
    assert_close(np.abs(phi(X)), np.abs(psi(X @ Q)), factor=1e3)
    scaled = new_map((Gaussian((3.0, 1.0, 0.3)), HermiteMercer(scale=1.0)), X=X * (3.0, 1.0, 0.3))
    assert_close(np.abs(scaled(X * (3.0, 1.0, 0.3))), np.abs(phi(X)), factor=1e3)


# ---- Mehler's formula


def line(spread, degrees):
    """Return the map of one column with the measure N(0, spread²)."""
    indices = np.arange(degrees, dtype=np.int32)[:, None]
    return HermiteMap(Gaussian(), np.zeros(1), np.eye(1), np.array([spread]), indices)


def mercer_term(s, k, x):
    """Return √λ_k φ_k(x) by the published formula, in mpmath."""
    s, x = mpmath.mpf(s), mpmath.mpf(x)
    a, b = 1 / (4 * s * s), mpmath.mpf(1) / 2
    c = mpmath.sqrt(a * a + 2 * a * b)
    A = a + b + c
    value = mpmath.sqrt(2 * a / A) * (b / A) ** k
    function = (c / a) ** mpmath.mpf("0.25") / mpmath.sqrt(mpmath.mpf(2) ** k * mpmath.factorial(k))
    function *= mpmath.exp(-(c - a) * x * x) * mpmath.hermite(k, mpmath.sqrt(2 * c) * x)
    return mpmath.sqrt(value) * function


@pytest.mark.parametrize(("s", "x"), [(1.0, 0.3), (50.0, 160.0), (300.0, 500.0), (1e-3, 2.0)])
def test_high_degrees_and_far_points_are_accurate(s, x):
    """exp(−(c − a)x²) is below 1e-100 for some points, where the polynomial is above 1e100."""
    z = line(s, 500)(np.array([[x]]))[0]
    with mpmath.workdps(60):
        exact = np.array([float(mercer_term(s, k, x)) for k in (0, 1, 2, 17, 64, 255, 499)])
    assert np.abs(exact).max() <= 1
    assert_close(z[[0, 1, 2, 17, 64, 255, 499]], exact, factor=50)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_points_at_any_distance_have_finite_features(dtype):
    """Near and far rows in one block, for few and many degrees."""
    x = np.array([0.0, 1.0, 30.0, 1e4, 1e9, 1e30, -1e30], dtype=dtype)[:, None]
    for phi in (line(1.0, 20), line(100.0, 400), line(1e-6, 5)):
        Z = phi(x)
        assert Z.dtype == dtype
        assert np.isfinite(Z).all()
        assert (Z[-3:] == 0).all()
        assert ((Z.astype(np.float64) ** 2).sum(axis=1) < 1 + 1e-6).all()


def test_features_are_products_with_the_largest_eigenvalues():
    """Compared with all products of twelve functions per axis, by SciPy's polynomials."""
    X = rows(30, seed=3) * (1.5, 1.0, 0.4)
    phi = draw(Gaussian(1.3), HermiteMercer(scale=1.0), n_features=60, X=X, random_state=0)
    U, s = (X - phi.mean) @ phi.axes, phi.spread
    a = 1 / (4 * s**2)
    c = np.sqrt(a * a + a)
    B = 0.5 / (a + 0.5 + c)

    def term(j, k):
        norm = (2 * c[j] / (a[j] + 0.5 + c[j])) ** 0.25 * B[j] ** (k / 2)
        norm /= math.sqrt(2.0**k * math.factorial(k))
        wave = np.exp(-(c - a)[j] * U[:, j] ** 2) * eval_hermite(k, np.sqrt(2 * c[j]) * U[:, j])
        return norm * wave

    degrees = itertools.product(range(12), repeat=3)
    largest = sorted(degrees, key=lambda k: -float(np.dot(k, np.log(B))))[:60]
    brute = np.stack([math.prod(term(j, k) for j, k in enumerate(ks)) for ks in largest], axis=1)
    assert_close(phi(X) @ phi(X).T, brute @ brute.T, factor=10)


def test_the_chosen_scale_has_the_least_residual():
    """Rows on a sphere are far from normal; the sixth scale is one."""
    X = rows(400) / np.linalg.norm(rows(400), axis=1, keepdims=True)
    residuals = [
        draw(Gaussian(0.7), HermiteMercer(c), n_features=200, X=X).residual(X).mean()
        for c in (*(0.5 * 2 ** (np.arange(11) / 5)), None)
    ]
    assert residuals.pop() == pytest.approx(min(residuals), rel=1e-6)
    assert min(residuals) < 0.8 * residuals[5]


def relative_error(phi, X):
    Z, K = phi(X), phi.kernel(X)
    return np.linalg.norm(Z @ Z.T - K) / np.linalg.norm(K)


@pytest.mark.parametrize("method", [HermiteMercer(), bo.features.Nystrom()], ids=repr)
def test_compression_reaches_the_least_error_of_its_rank(method):
    X = np.random.default_rng(0).normal(size=(800, 3))
    best = np.linalg.eigvalsh(Gaussian()(X))[::-1]
    minimum = np.linalg.norm(best[128:]) / np.linalg.norm(best)
    phi = draw(Gaussian(), bo.features.Compressed(method), n_features=128, X=X, random_state=0)
    plain = draw(Gaussian(), method, n_features=128, X=X, random_state=0)
    assert phi.n_features == 128
    assert minimum <= relative_error(phi, X) < 1.03 * minimum < relative_error(plain, X) / 3


@pytest.mark.parametrize("conditions", ["dirichlet", "neumann", "periodic"])
@pytest.mark.parametrize("kernel", [Gaussian(0.7), bo.kernels.Matern(2.5, 0.5)], ids=repr)
@pytest.mark.parametrize("d", [1, 2])
def test_many_features_equal_the_kernel_and_its_images(conditions, kernel, d):
    """By the method of images in [−1, 2]^d: signs −1 or 1, or shifts by periods."""
    X = np.random.default_rng(0).uniform(-1, 2, (12, d))
    method = LaplacianEigenfunctions(box=((-1.0, 2.0),) * d, conditions=conditions)
    phi = draw(kernel, method, n_features=400 if d == 1 else 4000, n_inputs=d)
    sign = {"dirichlet": -1.0, "neumann": 1.0, "periodic": 0.0}[conditions]
    period = 3.0 if conditions == "periodic" else 6.0
    copies = [(1.0, lambda x, m: x + m * period), (sign, lambda x, m: -2 - x + m * period)]
    expected = np.zeros((12, 12))
    for copy in itertools.product(range(-4, 5), (0, 1), repeat=d):
        Y, weight = np.empty_like(X), 1.0
        for j in range(d):
            factor, image = copies[copy[2 * j + 1]]
            Y[:, j], weight = image(X[:, j], copy[2 * j]), weight * factor
        if weight:
            expected += weight * kernel(X, Y)
    Z = phi(X)
    assert np.abs(Z @ Z.T - expected).max() < (1e-9 if kernel == Gaussian(0.7) else 2e-4)
    if conditions == "periodic":
        assert_close(phi(X + 3.0), Z, factor=100)
    elif conditions == "neumann":  # zero slope at the faces
        faces = np.full((2, d), [[-1.0], [2.0]])
        inner_faces = faces + np.array([[1e-4], [-1e-4]])
        assert np.abs(phi(faces) - phi(inner_faces)).max() < 1e-4


@pytest.mark.parametrize(("kernel", "shift"), [(Brownian(2.0), 0.5), (Brownian(2.0, True), 0.0)])
def test_brownian_motion_has_its_karhunen_loeve_series(kernel, shift):
    phi = draw(kernel, LaplacianEigenfunctions(), n_features=2000, n_inputs=1)
    assert_close(phi.amplitudes, 2 / (math.pi * (np.arange(1, 2001) - shift)))
    X = np.linspace(0, 2, 21)[:, None]
    assert np.abs(phi(X) @ phi(X).T - kernel(X)).max() < 1e-3
    expected = np.minimum(X, X.T) - (X * X.T / 2 if shift == 0 else 0)
    assert_close(kernel(X), expected)


@pytest.mark.parametrize(
    "kernel",
    [FourierSeries((1.0, 0.0, 0.5), period=4.0), bo.kernels.Polynomials((1.0, 0.5), -3, 3)],
    ids=repr,
)
@pytest.mark.parametrize("method", [Explicit(), Fourier(), HermiteMercer()], ids=repr)
def test_any_method_gives_exact_features_if_they_fit(kernel, method):
    X = rows(50)
    phi = draw(kernel, method, n_features=30, X=X, random_state=0)
    assert phi.n_features == (27 if isinstance(kernel, FourierSeries) else 8)
    assert_close(phi(X) @ phi(X).T, kernel(X), factor=10)
    assert phi.residual(X).max() < 1e-10


def test_polynomials_have_their_monomials_as_features():
    for kernel, width in (
        (Polynomial(3), 10),
        (Polynomial(2) * bo.kernels.Linear(), 12),
        (Columns(Polynomial(2), (1,)) + 1.0, 4),
    ):
        X = rows(50)[:, :2]
        phi = draw(kernel, Explicit(), n_features=60, n_inputs=2)
        assert phi.n_features == width
        assert phi.below_kernel
        assert_close(phi(X) @ phi(X).T, kernel(X), factor=100, label=kernel)


@pytest.mark.statistical
def test_random_projections_keep_square_distances_on_average():
    """|Px|²/|x|² is χ²/d′ with variance 2/d′: the mean of 400 within 5 deviations."""
    x, method = np.arange(1.0, 31.0), bo.features.Projected(Fourier(), 8, "jl")
    maps = (draw(Gaussian(), method, n_inputs=30, random_state=s) for s in range(400))
    ratios = np.array([((x @ phi.projection) ** 2).sum() for phi in maps]) / (x * x).sum()
    assert abs(ratios.mean() - 1) < 5 * math.sqrt(2 / 8 / 400)
    assert 0.15 < ratios.var() < 0.38


INTERVAL = ((1.0, 3.0),)
PLATE = ((0.0, 1.0), (-1.0, 1.5))


@pytest.mark.parametrize("conditions", ["dirichlet", "neumann", "periodic"])
def test_modes_of_a_box_have_the_smallest_eigenvalues(conditions):
    box = ((0.0, 1.0), (-1.0, 1.5), (2.0, 2.7))
    (numbers, eigenvalues), turns = modes(box, 200, conditions), half_turns(conditions, 40)
    sides = [(np.pi * turns / (b - a)) ** 2 for a, b in box]
    assert_close(eigenvalues, sorted(sum(product) for product in itertools.product(*sides))[:200])
    assert_close(sum(side[k] for side, k in zip(sides, numbers.T, strict=True)), eigenvalues)


@pytest.mark.parametrize("kappa", [0.0, 0.5, 4.0, 900.0])
@pytest.mark.parametrize("conditions", ["dirichlet", "neumann", "periodic"])
def test_the_closed_form_on_an_interval_equals_the_series(conditions, kappa):
    if kappa == 0 and conditions != "dirichlet":
        return
    kernel = GreenFunction(INTERVAL, conditions, kappa)
    X = np.array([[0.5], [1.0], [1.1], [1.7], [2.2], [2.99], [3.4]])
    Z = kernel.features(X)
    remainder = kernel(X) - Z @ Z.T
    # Σ_{j > 1024} (2/L)/(κ² + (πj/L)²) is below (2/L) (L/π)²/1024
    assert np.abs(remainder).max() < 2 / 2 * (2 / np.pi) ** 2 / 1024 * 1.01
    assert np.linalg.eigvalsh(remainder)[0] > -1e-12
    assert_close(kernel.diag(X), np.diag(kernel(X)))
    assert_close(kernel(torch.from_numpy(X)).numpy(), kernel(X))


def differences(conditions, length, n):
    """Return the points of a side, and the matrix of minus second differences."""
    is_dirichlet = conditions == "dirichlet"
    m, h = n - is_dirichlet, length / n
    A = 2 * np.eye(m) - np.eye(m, k=1) - np.eye(m, k=-1)
    if conditions == "neumann":
        A[0, 0] = A[-1, -1] = 1
    if conditions == "periodic":
        A[0, -1] = A[-1, 0] = -1
    return (np.arange(m) + (1.0 if is_dirichlet else 0.5)) * h, A / h**2


@pytest.mark.parametrize(
    ("conditions", "kappa"), [("dirichlet", 0.0), ("neumann", 3.0), ("periodic", 3.0)]
)
def test_the_kernel_of_a_plate_is_the_limit_of_inverse_differences(conditions, kappa):
    """(κ² − Δ_h)^(−2)/h² on a grid converges to the kernel like h²."""
    kernel, errors = GreenFunction(PLATE, conditions, kappa, terms=4000), []
    for n in (10, 20):
        (x, A), (y, B) = (differences(conditions, length, n) for length in (1.0, 2.5))
        L = np.kron(A, np.eye(len(y))) + np.kron(np.eye(len(x)), B)
        L += kappa**2 * np.eye(len(L))
        approximation = np.linalg.inv(L @ L) / (1.0 / n * 2.5 / n)
        K = kernel(np.stack(np.meshgrid(x, y - 1.0, indexing="ij"), axis=2).reshape(-1, 2))
        errors.append(np.abs(approximation - K).max() / K.max())
    assert errors[1] < 0.5 * errors[0] < 0.05


@pytest.mark.parametrize(
    "kernel",
    [
        GreenFunction(INTERVAL),
        GreenFunction(INTERVAL, "periodic", 2.0, power=2, terms=300),
        GreenFunction(PLATE, "neumann", 2.0, power=1.5, terms=300),
    ],
    ids=["interval", "periods", "plate"],
)
def test_features_are_below_the_kernel_and_exact_at_its_terms(kernel):
    d = len(kernel.box)
    X = np.random.default_rng(0).uniform(-1, 3, (40, d))
    K = kernel(X)
    assert np.linalg.eigvalsh(K)[0] > -1e-10 * K.max()
    features = bo.draw(kernel, bo.LaplacianEigenfunctions(), n_features=60, n_inputs=d)
    Z = features(X)
    assert features.below_kernel
    assert Z.shape == (40, 60)
    assert np.linalg.eigvalsh(K - Z @ Z.T)[0] > -1e-10 * K.max()
    assert features.residual(X) == pytest.approx(np.diag(K - Z @ Z.T), abs=1e-12)
    if not kernel.has_closed_form:
        phi = bo.draw(kernel, bo.LaplacianEigenfunctions(), n_features=999, n_inputs=d)
        assert phi.n_features == 300
        assert_close(phi(X) @ phi(X).T, K, factor=1e3)


@pytest.mark.parametrize("method", ["auto", bo.LaplacianEigenfunctions()], ids=repr)
def test_learners_keep_the_boundary_conditions(method):
    X = np.random.default_rng(0).uniform(-1.0, 1.0, (80, 2))
    y, rim = np.cos(np.pi * X / 4).prod(axis=1), np.array([[2.0, 0.0], [0.6, -2.0]])
    options = dict(method=method, alpha=1e-3, fit_intercept=False)
    model = bo.KernelRidge(GreenFunction([(-2.0, 2.0)] * 2), **options).fit(X, y)
    assert np.abs(model.predict(rim)).max() < 1e-8
    assert np.abs(model.predict(X[:9]) - y[:9]).max() < 0.1
