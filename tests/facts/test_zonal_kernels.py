"""Kernels of angles and inner products to thirty digits: polynomials, series, harmonics."""

import math
from itertools import pairwise

import mpmath
import naive
import numpy as np
import pytest
import scipy.sparse
import torch
from array_api_compat import array_namespace
from naive import gegenbauer as explicit
from scipy.special import gammaln, roots_gegenbauer
from tolerance import assert_close, of

import bochner as bo
from bochner._core import native
from bochner.features.mercer.radial import Polar
from bochner.features.mercer.sphere import harmonic_blocks, programme
from bochner.kernels import Angular, ArcCosine, NeuralTangent, PowerSeries, Zonal, series
from bochner.kernels.series import alpha, gegenbauers, orthonormals
from bochner.kernels.series import recurrence as coefficients
from bochner.kernels.zonal import Angle, directions

ANGULAR = [Angular(), ArcCosine(0), ArcCosine(), ArcCosine(2), bo.kernels.NNGP(3), NeuralTangent(1)]
ANGULAR += [NeuralTangent(3), NeuralTangent(10)]
EDGES = [0.0, 1e-300, 1e-16, 1e-9, 1e-4, 0.1, 0.74, 0.76, 1.4, 1.6, 2.9]
"""Angles θ, and π − θ: near the ends, and where series and formulas meet."""


def exact(kernel, theta):
    """Return K(θ) by the published formulas, in fifty digits more than cancellation loses."""
    with mpmath.workdps(700 if min(theta, mpmath.pi - theta) < 1e-10 else 80):
        c = mpmath.cos(theta)
        if isinstance(kernel, Angular):
            return 1 - 2 * theta / mpmath.pi
        layer = {
            0: lambda c: 1 - mpmath.acos(c) / mpmath.pi,
            1: lambda c: (mpmath.sqrt(1 - c * c) + (mpmath.pi - mpmath.acos(c)) * c) / mpmath.pi,
        }
        if isinstance(kernel, ArcCosine):
            if kernel.order < 2:
                return layer[kernel.order](c)
            s = mpmath.sqrt(1 - c * c)
            return (3 * s * c + (mpmath.pi - mpmath.acos(c)) * (1 + 2 * c * c)) / mpmath.pi
        tangent = c
        for _ in range(kernel.depth):
            following = layer[1](c)
            tangent, c = tangent * layer[0](c) + following, following
        return c if isinstance(kernel, bo.kernels.NNGP) else tangent


# ---- values


@pytest.mark.parametrize("kernel", ANGULAR, ids=repr)
def test_values_are_accurate_at_every_angle(kernel):
    """At φ = π − θ kernels decrease like φ, φ³ or φ⁵; half-chords keep the relative accuracy."""
    ends = np.array(EDGES)
    expected = [float(exact(kernel, mpmath.mpf(t))) for t in EDGES]
    values = kernel.profile(Angle.of(ends))
    np.testing.assert_allclose(values, expected, rtol=of(np.float64), atol=0)
    assert values[0] == expected[0]
    angle = Angle.of_chords(np.cos(ends / 2) ** 2, np.sin(ends / 2) ** 2)
    with mpmath.workdps(700):
        expected = [float(exact(kernel, mpmath.pi - mpmath.mpf(t))) for t in EDGES]
    # Near the kernel's zero, one rounding of two terms that cancel to a tenth.
    np.testing.assert_allclose(kernel.profile(angle), expected, rtol=20 * of(float), atol=1e-300)


@pytest.mark.main_cases(6)
@pytest.mark.parametrize("kernel", ANGULAR, ids=repr)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_near_and_opposite_rows_have_accurate_values(kernel, dtype):
    """Angles are 1e-7 to 0.1 in fifty columns; by the arccosine errors would be √eps."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4, 50))
    Y = np.concatenate(
        [s * X + e * rng.normal(size=X.shape) for s in (1, -2) for e in (1e-7, 1e-3, 0.1)]
    )
    X, Y = X.astype(dtype), Y.astype(dtype)
    expected = naive.kernel_matrix(kernel, X.astype(np.float64), Y.astype(np.float64))
    assert_close(kernel(X, Y), expected, dtype)


@pytest.mark.parametrize("kernel", [*ANGULAR, Zonal((1.0, 0.5), 0), Zonal((1.0, 0.5))], ids=repr)
@pytest.mark.parametrize("make", [np.asarray, scipy.sparse.csr_array, torch.asarray])
def test_rows_of_zeros_have_the_mean_over_directions(kernel, make):
    """A zero row has the mean over directions with every row, also with itself."""
    X = np.array([[0.0, 0.0, 0.0], [0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 2.0, 0.0]])
    K = np.asarray(kernel(make(X)))
    mean = kernel.zonal(3).matrices(0, np.zeros(1), np.zeros(1))[0][0, 0]
    np.testing.assert_allclose(K[:2], np.full((2, 4), mean), atol=1e-16)
    np.testing.assert_allclose(np.asarray(kernel.diag(make(X))), np.diag(K), rtol=1e-15)
    assert np.linalg.eigvalsh(K)[0] > -1e-15


@pytest.mark.parametrize("scale", [1e-300, 1e-160, 1.0, 1e150, 1e200])
def test_norms_of_rows_do_not_underflow_or_overflow(scale):
    X = np.array([[3.0, 4.0], [0.0, 0.0], [4.0, -3.0]])
    for U, r in (directions(scale * X), Polar(np.zeros(2), np.ones(2), None)(scale * X)):
        np.testing.assert_allclose(r, [5 * scale, 0, 5 * scale], rtol=1e-14)
        assert_close(U[[0, 2]], [[0.6, 0.8], [0.8, -0.6]])
    np.testing.assert_allclose(Angular()(scale * X[:1], X[[0, 2]]), [[1.0, 0.0]], atol=1e-15)


@pytest.mark.parametrize("d", [1, 2, 5])
@pytest.mark.parametrize("power", [0, 1, 3])
def test_zonal_kernels_equal_the_sums_of_their_polynomials(d, power):
    """In one dimension there are only two polynomials."""
    X, c = np.random.default_rng(d).normal(size=(6, d)), (1.0, 0.25, 0.5, 0.125)
    K = naive.kernel_matrix(Zonal(c[:2] if d == 1 else c, power), X)
    assert_close(Zonal(c, power)(X), K)
    assert_close(Zonal(c, power).diag(X), np.diag(K))


def test_generalised_zonal_kernels_of_functions_give_the_gaussian():
    """Its first radial functions in two dimensions are given as lambdas."""
    X, i = np.random.default_rng(0).normal(size=(8, 2)) / 2, np.arange(12)

    def function(l):
        logs = gammaln(i + 1) + gammaln(l + i + 1) + i * math.log(4.0) + l * math.log(2.0)
        weights = np.sqrt((1.0 if l == 0 else 2.0) * np.exp(-logs))
        return lambda t: weights * t[:, None] ** (l + 2 * i) * np.exp(-t * t / 2)[:, None]

    kernel = bo.kernels.GeneralizedZonal(tuple(map(function, range(20))))
    assert_close(kernel(X), bo.kernels.Gaussian()(X))
    assert_close(kernel.diag(X), np.ones(8))
    assert (bo.kernels.GeneralizedZonal(np.ones_like)(X) == 1).all()


def mean_over_angles(kappa, l, d):
    """Return α_l times the mean over directions of κ(θ) P_l(cos θ), by quadrature."""
    points = [0, mpmath.mpf("0.01"), mpmath.mpf("0.1"), 1, 2, mpmath.pi]

    def over(f):
        return mpmath.quad(lambda a: f(a) * mpmath.sin(a) ** (d - 2), points)

    mean = over(lambda a: kappa(a) * explicit(l, d, mpmath.cos(a))) / over(lambda a: 1)
    return float(alpha(l, d) * mean)


@pytest.mark.parametrize("t", [-0.9, 0.05, 0.3, 0.7, 0.99])
@pytest.mark.parametrize(
    ("d", "l"), [(2, 7), (3, 5), (3, 20), (4, 6), (5, 3), (9, 12), (9, 30), (64, 10), (784, 6)]
)
def test_gegenbauer_polynomials_equal_their_explicit_sum(d, l, t):
    expected, root, x = float(explicit(l, d, t)), math.sqrt(alpha(l, d)), np.array([t])
    for value in (list(gegenbauers(l, d, x))[l][0], list(orthonormals(l, d, x))[l][0] / root):
        assert value == pytest.approx(expected, rel=1e3 * of(np.float64))


@pytest.mark.main_cases(3)
@pytest.mark.parametrize("kernel", [*ANGULAR[:4], NeuralTangent(1), NeuralTangent(2)], ids=repr)
@pytest.mark.parametrize("d", [2, 3, 9])
def test_coefficients_equal_their_integrals(kernel, d):
    """By quadrature of κ(θ) P_l(cos θ) sin^(d−2) θ."""
    c, radial = kernel.gegenbauer_coefficients(d, 30), kernel.zonal(d)
    for l in (0, 1, 2, 5, 12):
        expected = mean_over_angles(lambda a: exact(kernel, a), l, d)
        allowed = 10 * math.sqrt(alpha(l, d)) * np.finfo(float).eps
        assert c[l] == pytest.approx(expected, abs=allowed, rel=of(np.float64))
        of_pair = radial.matrices(l, np.array([2.0]), np.array([0.5]))[l][0, 0]
        assert of_pair == pytest.approx(c[l], abs=allowed)


NAMED = {
    "binomial": (bo.kernels.Polynomial(5, 0.5, 2.0).series(3), lambda t: (2 * t + 0.5) ** 5),
    "pure power": (bo.kernels.Polynomial(3, 0.0, 2.0).series(3), lambda t: (2 * t) ** 3),
    "coefficients": (PowerSeries((1.0, 0.0, 0.5)), lambda t: 1 + t * t / 2),
    "geometric": (PowerSeries(lambda n: gammaln(n + 1.0)), lambda t: 1 / (1 - t)),
    "finite": (PowerSeries(lambda n: 0.0 * n, 2), lambda t: 1 + t + t * t / 2),
    "sum": (series.add(PowerSeries((1.0,)), series.exponential()), lambda t: 1 + math.exp(t)),
    "product": (
        series.multiply(PowerSeries((1.0, 1.0)), series.exponential()),
        lambda t: (1 + t) * math.exp(t),
    ),
}


@pytest.mark.parametrize("name", NAMED)
def test_power_series_equal_their_functions(name):
    power_series, function = NAMED[name]
    t = np.array([-0.8, -0.1, 0.0, 0.3, 0.9])
    expected = np.array([function(v) for v in t.tolist()])
    np.testing.assert_allclose(power_series.value(t), expected, rtol=1e-13)
    n = np.arange(150)
    with np.errstate(under="ignore"):
        terms = np.exp(power_series.log_derivative(n)[:, None] - gammaln(n + 1.0)[:, None])
    np.testing.assert_allclose((terms * t ** n[:, None]).sum(axis=0), expected, rtol=1e-6)
    assert power_series.log_derivative(3) == power_series.log_derivative(n)[3]
    if power_series.degree is not None:
        assert (power_series.log_derivative(n)[power_series.degree + 1 :] == -math.inf).all()
        assert power_series.log_derivative(power_series.degree) > -math.inf


@pytest.mark.parametrize("name", NAMED)
def test_slopes_of_power_series_equal_differences(name):
    """Differences of step 1e-5 have errors of 1e-10 times third derivatives (< 2e3), and rounding."""
    power_series, function = NAMED[name]
    t, h = np.array([-0.7, -0.1, 0.3, 0.5]), 1e-5
    expected = [(function(v + h) - function(v - h)) / (2 * h) for v in t.tolist()]
    np.testing.assert_allclose(power_series.slope(t), expected, rtol=1e-7, atol=1e-7)


def chord(r, s, a):
    return mpmath.sqrt((mpmath.mpf(r) - s) ** 2 + 4 * mpmath.mpf(r) * s * mpmath.sin(a / 2) ** 2)


INTEGRALS = {
    bo.kernels.Exponential(2.0): lambda r, s, a: mpmath.exp(-chord(r, s, a) / 2),
    bo.kernels.Matern(1.5): lambda r, s, a: (
        (1 + mpmath.sqrt(3) * chord(r, s, a)) * mpmath.exp(-mpmath.sqrt(3) * chord(r, s, a))
    ),
    bo.kernels.RationalQuadratic(0.8): lambda r, s, a: (1 + chord(r, s, a) ** 2 / 1.6) ** -0.8,
    bo.kernels.DotExponential(0.5): lambda r, s, a: mpmath.exp(0.5 * r * s * mpmath.cos(a)),
    bo.kernels.Polynomial(4, 0.5): lambda r, s, a: (r * s * mpmath.cos(a) + 0.5) ** 4,
    bo.kernels.DotProduct(lambda n: n * math.log(0.3)): lambda r, s, a: mpmath.exp(
        0.3 * r * s * mpmath.cos(a)
    ),
    bo.kernels.Linear(): lambda r, s, a: r * s * mpmath.cos(a),
    bo.kernels.Constant(2.0): lambda r, s, a: mpmath.mpf(2),
}


@pytest.mark.main_cases(5)
@pytest.mark.parametrize("kernel", INTEGRALS, ids=lambda k: repr(k).split(" at 0x")[0])
@pytest.mark.parametrize("d", [2, 3, 9])
def test_radial_kernels_equal_integrals_over_the_angle(kernel, d):
    radial, k = kernel.zonal(d), INTEGRALS[kernel]
    for l, r, s in [(0, 1.0, 1.0), (1, 0.5, 2.0), (4, 1.5, 1.5), (5, 1.2, 1.3)]:
        value = radial.matrices(l, np.array([r]), np.array([s]))[l][0, 0]
        expected = mean_over_angles(lambda a, r=r, s=s: k(r, s, a), l, d)
        assert value == pytest.approx(expected, rel=1e-11, abs=1e-12), (l, r, s)


SMALL = [(2, 3, 1.0, 2.0), (3, 0, 1.0, 1.0), (3, 5, 2.0, 1.5), (9, 10, 3.0, 3.0), (64, 3, 0.7, 0.8)]
LARGE = [(2, 0, 30.0), (3, 40, 70.0), (9, 7, 300.0), (2, 0, 1e6), (9, 3, 1e7), (200, 1, 1e6)]
LARGE += [(3000, 1, 54.0), (3000, 900, 63.0)]


@pytest.mark.parametrize(("d", "l", "r", "s"), [*SMALL, *((d, l, r, r) for d, l, r in LARGE)])
def test_radial_kernels_of_the_gaussian_are_accurate(d, l, r, s):
    """Both branches agree with fifty digits, also where Bessel functions overflow or underflow."""
    radii = np.array([r]), np.array([s])
    value = bo.kernels.Gaussian(3).zonal(d).matrices(l, *(3 * t for t in radii))[l][0, 0]
    with mpmath.workdps(50):
        nu, r, s = mpmath.mpf(d) / 2 - 1, mpmath.mpf(r), mpmath.mpf(s)
        bessel = mpmath.besseli(l + nu, r * s) * mpmath.gamma(nu + 1) * (2 / (r * s)) ** nu
        expected = float(alpha(l, d) * bessel * mpmath.exp(-(r * r + s * s) / 2))
    assert value == pytest.approx(expected, rel=1e-10)
    if r < 5:  # the integral over the angle, as for other isotropic kernels
        like = bo.kernels.Matern(1e12).zonal(d).matrices(l, *radii)[l]
        assert like[0, 0] == pytest.approx(expected, rel=1e-9)


DEGREES = {1: 3, 2: 15, 3: 12, 4: 8, 5: 6, 9: 4, 20: 3, 50: 2}
every_dimension = pytest.mark.parametrize("d", DEGREES)


def directions_with_poles(n, d, seed=0):
    """Return unit rows; the first two are poles of the recurrence."""
    X = np.random.default_rng(seed).standard_normal((n, d))
    X[0], X[1] = np.eye(d)[-1], np.eye(d)[0]
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def sphere(d, n):
    """Return nodes and weights that integrate polynomials of degree 2n − 1 over the sphere of R^d."""
    if d == 2:
        angle = np.arange(2 * n) * np.pi / n
        return np.stack([np.cos(angle), np.sin(angle)], axis=1), np.full(2 * n, 0.5 / n)
    t, w = roots_gegenbauer(n, d / 2 - 1)
    U, v = sphere(d - 1, n)
    inner = np.sqrt(1 - t * t)[:, None, None] * U
    height = np.broadcast_to(t[:, None, None], (n, len(U), 1))
    points = np.concatenate([inner, height], axis=2).reshape(-1, d)
    return points, (w[:, None] / w.sum() * v).ravel()


def spherical(degree, U):
    """Return all orthonormal harmonics up to a degree at the unit rows U, by degree."""
    counts = np.array([alpha(l, U.shape[1]) for l in range(degree + 1)])
    ones = array_namespace(U).ones((U.shape[0], degree + 1), dtype=U.dtype)
    return harmonic_blocks(U, U.shape[1], np.arange(degree + 1), counts, ones)


def by_degree(Y, d, degree):
    ends = np.cumsum([0] + [alpha(l, d) for l in range(degree + 1)])
    # The number of independent polynomials up to the degree on the sphere
    count = math.comb(degree + d - 2, degree - 1) if degree else 0
    assert Y.shape[1] == ends[-1] == math.comb(degree + d - 1, degree) + count
    return [Y[:, a:b] for a, b in pairwise(ends.tolist())]


@pytest.mark.parametrize(("d", "degree"), [(2, 9), (3, 8), (4, 5), (5, 3)])
def test_harmonics_are_orthonormal(d, degree):
    X, w = sphere(d, degree + 1)
    Y = spherical(degree, X)
    assert_close(Y.T @ (w[:, None] * Y), np.eye(Y.shape[1]), factor=4)


@every_dimension
def test_harmonics_of_a_degree_sum_to_its_gegenbauer_polynomial(d):
    X, degree = directions_with_poles(12, d), DEGREES[d]
    cos = np.clip(X @ X.T, -1, 1)
    for l, Y in enumerate(by_degree(spherical(degree, X), d, degree)):
        assert_close(Y @ Y.T, alpha(l, d) * list(gegenbauers(l, d, cos))[l], factor=4)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("d", [1, 2, 3, 7])
@pytest.mark.parametrize("n", [0, 1, 16, 53])
def test_compiled_harmonics_equal_those_of_the_twin(n, d, dtype, monkeypatch):
    U = directions_with_poles(max(n, 2), d)[:n].astype(dtype)
    counts = tuple(alpha(l, d) for l in range(4))
    plan = programme(d, counts)
    ends = np.cumsum([0, *counts]).astype(np.int32)
    first, count = ends[[2, 0, 3, 2]], np.array([counts[2], 1, 1, counts[2]], np.int32)
    count = np.minimum(count, np.array(counts)[[2, 0, 3, 2]]).astype(np.int32)
    radial = np.random.default_rng(1).random((n, 4)).astype(dtype)
    Z = native.harmonics(U, plan, radial, first, count)
    monkeypatch.setattr(native, "loops", lambda: None)
    assert_close(Z, native.harmonics(U, plan, radial, first, count), dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("d", [1, 2, 3, 40])
@pytest.mark.parametrize(("m", "functions"), [(1, 1), (70, 3), (600, 2)])
def test_compiled_polynomials_equal_those_of_twin_and_series(d, m, functions, dtype, monkeypatch):
    X = directions_with_poles(21, d).astype(dtype)
    W = np.ascontiguousarray(directions_with_poles(m + 2, d, 1)[2:].T.astype(dtype))
    steps = [step.astype(dtype) for step in recurrence_of(5, d)]
    radial = np.random.default_rng(d).random((21, functions, 6)).astype(dtype)
    Z = native.polynomials(X, W, radial, *steps)
    monkeypatch.setattr(native, "loops", lambda: None)
    assert_close(Z, native.polynomials(X, W, radial, *steps), dtype, factor=4)
    p = np.stack([*orthonormals(5, d, np.clip(X @ W, -1, 1).astype(np.float64))])
    slow = np.einsum("nfl,lnm->nfm", radial.astype(np.float64), p).reshape(21, -1)
    assert_close(Z, slow, dtype, factor=10 if dtype == "float64" else 40)


def recurrence_of(q, d):
    """Return the steps of the recurrence, from the coefficients of the polynomials."""
    if d == 1:
        return np.eye(1, q)[0], np.zeros(q)
    b = coefficients(q, d)
    return 1 / b[1:], b[:-1] / b[1:]


@pytest.mark.skipif(not native.HAVE_NATIVE, reason="BLAS may change the order of its sums")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_bits_of_compiled_rows_do_not_depend_on_other_rows(dtype):
    X = directions_with_poles(50, 5).astype(dtype)
    W = np.ascontiguousarray(directions_with_poles(70, 5, 1).T.astype(dtype))
    steps = [s.astype(dtype) for s in recurrence_of(6, 5)]
    radial = np.random.default_rng(0).random((50, 3, 7)).astype(dtype)
    plan, factors = programme(5, tuple(alpha(l, 5) for l in range(5))), radial[:, 0, :2].copy()
    ends = np.array([6, 0], np.int32), np.array([14, 6], np.int32)
    polynomials = lambda rows: native.polynomials(X[rows], W, radial[rows], *steps)
    harmonics = lambda rows: native.harmonics(X[rows], plan, factors[rows], *ends)
    for values in (polynomials, harmonics):
        for rows in (slice(0, 1), slice(7, 30), slice(33, 50)):
            assert (values(rows) == values(slice(None))[rows]).all()


@pytest.mark.skipif(not native.HAVE_NATIVE, reason="twins do not check their arguments")
def test_invalid_programmes_of_harmonics_raise():
    U, radial = np.ones((3, 2)), np.ones((3, 1))
    first, count = np.zeros(1, np.int32), np.ones(1, np.int32)
    good = programme(2, (1, 2))
    assert native.harmonics(U, good, radial, first, count).shape == (3, 1)
    cases = {
        "before its child": good._replace(parents=good.parents + 1),
        "no such input": good._replace(inputs=good.inputs + 4),
    }
    for message, plan in cases.items():
        with pytest.raises(ValueError, match=message):
            native.harmonics(U, plan, radial, first, count)
    with pytest.raises(ValueError, match="within the values"):
        native.harmonics(U, good, radial, first + 3, count)
    with pytest.raises(ValueError, match="rows or degrees"):
        native.polynomials(U, U.T[:, :2].copy(), np.ones((3, 1, 4)), np.ones(2), np.ones(2))
