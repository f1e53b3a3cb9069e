"""Thirty digits of Gegenbauer polynomials, their series and radial kernels; two routes to each.

Tables come from mpmath at 45 to 60 digits; the second route is the explicit sum, an integral, or a
sum of harmonics, computed here.
"""

import math

import mpmath
import numpy as np
import pytest
from naive import gegenbauer as explicit
from scipy.special import gammainc, gammaln
from tolerance import of

from bochner.kernels import (
    Angular,
    ArcCosine,
    Coefficients,
    Constant,
    DotExponential,
    DotProduct,
    Exponential,
    Gaussian,
    Linear,
    LogDerivatives,
    Matern,
    NeuralTangent,
    Polynomial,
    RationalQuadratic,
    dotproduct,
    zonal,
)
from bochner.kernels.radial import monomials, radial_kernels

POLYNOMIALS = [  # d, l, t, P_l(t) in dimension d
    (2, 7, 0.3, -0.84616320000000000000000000000000),
    (3, 5, 0.3, 0.34538625000000000000000000000000),
    (3, 20, -0.9, -0.14930823530984868263316326141357),
    (4, 6, 0.25, 0.029017857142857142857142857142857),
    (5, 3, -0.5, 0.15625000000000000000000000000000),
    (9, 4, 0.3, -0.022271250000000000000000000000000),
    (9, 12, 0.7, 0.0059646714446032714843750000000000),
    (9, 30, 0.99, 0.18441391647378871977609659900224),
    (16, 8, 0.1, 0.00022907720123839009287925696594427),
    (64, 10, 0.2, -0.00000092492502734672900378359610063918),
    (784, 6, 0.05, 0.000000047531204088548883482812855099332),
]
COUNTS = [  # d, l, α_l, α_0 + ... + α_l
    (1, 1, 1, 2),
    (1, 2, 0, 2),
    (2, 5, 2, 11),
    (3, 10, 21, 121),
    (4, 10, 121, 506),
    (9, 4, 450, 660),
    (9, 12, 82212, 201552),
    (16, 6, 50388, 69768),
    (32, 10, 1059575660, 1394538288),
    (64, 8, 10519248168, 11837900360),
    (784, 3, 80621856, 80930360),
    (
        784,
        20,
        4020946723953363426979485668815921658760,
        4123527951572064702986053387773759647960,
    ),
]
GAUSSIAN_MONOMIALS = [  # d, l, i, t, h_{l,i}(t)
    (3, 0, 0, 1.0, 0.60653065971263342360379953499118),
    (3, 2, 1, 1.5, 0.25360575163968854824556912087860),
    (4, 5, 2, 2.0, 0.064702640950709145432764942126780),
    (9, 3, 0, 0.7, 0.093468440727599450248323990846699),
    (9, 6, 3, 2.5, 0.068987953449977786675056939559745),
    (2, 4, 1, 1.0, 0.0097878464334634462317658261766993),
    (64, 2, 0, 0.7, 0.26906624745287713693158592136085),
]
GAUSSIAN_RADIAL = [  # d, l, r, s, R_l(r, s)
    (2, 3, 1.0, 2.0, 0.034925518522903181964969221467313),
    (3, 0, 1.0, 1.0, 0.43233235838169365405300025251376),
    (3, 5, 2.0, 1.5, 0.015850531134714867200050314128212),
    (4, 2, 0.5, 3.0, 0.0095025784780110576468641563454418),
    (9, 4, 1.0, 1.0, 0.0088308375061053135317796635522930),
    (9, 10, 3.0, 3.0, 0.024964185886079492759661799400051),
    (64, 3, 0.7, 0.8, 0.015914971001989941938844333324360129),
]
RESIDUALS = [  # |x|, N, P(Poisson(|x|²) > N)
    (1.0, 5, 0.00059418481758169299882709106136464),
    (2.0, 12, 0.00027371682285550300032691074894028),
    (3.0, 20, 0.00043925185772929873693902533599660),
    (4.0, 40, 0.00000012603534061638677718965589495225),
    (0.7, 3, 0.0016283936018138471081972483813547),
]
NETWORKS = [  # depth, d, l, c_l
    (1, 3, 0, 0.50000000000000000000000000000000),
    (1, 3, 1, 1.0000000000000000000000000000000),
    (1, 3, 2, 0.39062500000000000000000000000000),
    (1, 3, 4, 0.046875000000000000000000000000000),
    (1, 9, 2, 0.46057128906250000000000000000000),
    (2, 3, 3, 0.13050854049227973388762312130479),
    (2, 9, 0, 0.75841167041788692008356596965405),
    (2, 9, 5, 0.046546546023824581758371052441060),
]

ROUNDINGS = of(np.float64)


def near(value, rel=ROUNDINGS):
    return pytest.approx(value, rel=rel, abs=0)


def mean_over_angles(kappa, l, d):
    """α_l times the mean over directions of κ(θ) P_l(cos θ), by mpmath's quadrature."""
    points = [0, mpmath.mpf("0.01"), mpmath.mpf("0.1"), 1, 2, mpmath.pi]

    def over(f):
        return mpmath.quad(lambda a: f(a) * mpmath.sin(a) ** (d - 2), points)

    mean = over(lambda a: kappa(a) * explicit(l, d, mpmath.cos(a))) / over(lambda a: 1)
    return float(zonal.alpha(l, d) * mean)


# ---- polynomials


@pytest.mark.parametrize(("d", "l", "t", "expected"), POLYNOMIALS)
def test_gegenbauer_polynomials(d, l, t, expected):
    value = zonal.gegenbauers(l, d, np.array([t]))[l][0]
    root = math.sqrt(zonal.alpha(l, d))
    assert value == near(expected, rel=16 * of(np.float64))
    assert zonal.orthonormals(l, d, np.array([t]))[l][0] == near(
        expected * root, 16 * of(np.float64)
    )
    assert value == near(float(explicit(l, d, t)), rel=16 * of(np.float64))


@pytest.mark.parametrize("d", [1, 2, 3, 4, 9, 784])
def test_polynomials_are_one_at_one_and_odd_or_even(d):
    t = np.linspace(-1, 1, 41)
    P = zonal.gegenbauers(12, d, t)
    for l, values in enumerate(P if d > 1 else P[:2]):
        assert values[-1] == near(1.0)
        np.testing.assert_allclose(values[::-1], (-1) ** l * values, atol=1e-14)
        assert np.abs(values).max() <= 1 + 1e-14
    assert len(zonal.orthonormals(0, d, t)) == len(zonal.gegenbauers(0, d, t)) == 1


@pytest.mark.parametrize("d", [2, 3, 9, 40])
def test_recurrence_gives_the_orthonormal_polynomials(d):
    b, t = zonal.recurrence(9, d), np.linspace(-0.9, 0.9, 7)
    p = [np.ones(7), t / b[1]]
    for l in range(1, 9):
        p.append((t * p[l] - b[l] * p[l - 1]) / b[l + 1])
    np.testing.assert_allclose(p, zonal.orthonormals(9, d, t), atol=1e-12)


@pytest.mark.parametrize(("d", "l", "count", "total"), COUNTS)
def test_counts_of_harmonics_are_exact(d, l, count, total):
    assert zonal.alpha(l, d) == count
    assert total == sum(zonal.alpha(k, d) for k in range(l + 1))
    assert zonal.log_alpha(l, d) == (math.log(count) if count else -math.inf)


# ---- series of functions of the angle


@pytest.mark.parametrize(("depth", "d", "l", "expected"), NETWORKS)
def test_coefficients_of_networks(depth, d, l, expected):
    c = NeuralTangent(depth).gegenbauer_coefficients(d, 30)
    allowed = 10 * math.sqrt(zonal.alpha(l, d)) * np.finfo(float).eps
    assert c[l] == pytest.approx(expected, abs=allowed, rel=of(np.float64))
    radial = radial_kernels(NeuralTangent(depth), d)
    assert radial.matrix(l, np.array([2.0]), np.array([0.5]))[0, 0] == pytest.approx(
        c[l], abs=allowed
    )


@pytest.mark.parametrize("d", [2, 3, 9])
@pytest.mark.parametrize("kernel", [Angular(), ArcCosine(0), ArcCosine(1), ArcCosine(2)], ids=repr)
def test_coefficients_are_the_integrals(kernel, d):
    """mpmath's quadrature of κ(θ) P_l(cos θ) sin^(d−2) θ."""
    J = {
        0: lambda a: 1 - a / mpmath.pi,
        1: lambda a: mpmath.sin(a) / mpmath.pi + (1 - a / mpmath.pi) * mpmath.cos(a),
    }
    if isinstance(kernel, Angular):
        kappa = lambda a: 1 - 2 * a / mpmath.pi
    elif kernel.order < 2:
        kappa = J[kernel.order]
    else:
        kappa = lambda a: (
            3 * mpmath.sin(a) * mpmath.cos(a) / mpmath.pi
            + (1 - a / mpmath.pi) * (1 + 2 * mpmath.cos(a) ** 2)
        )
    c = kernel.gegenbauer_coefficients(d, 12)
    for l in (0, 1, 2, 5, 12):
        expected = mean_over_angles(kappa, l, d)
        allowed = 10 * math.sqrt(zonal.alpha(l, d)) * np.finfo(float).eps
        assert c[l] == pytest.approx(expected, abs=allowed, rel=0)


# ---- power series


NAMED = {
    "exp": (dotproduct.ExponentialSeries(0.7), lambda t: math.exp(0.7 * t)),
    "binomial": (dotproduct.Binomial(5, 0.5, 2.0), lambda t: (2 * t + 0.5) ** 5),
    "pure power": (dotproduct.Binomial(3, 0.0, 2.0), lambda t: (2 * t) ** 3),
    "coefficients": (Coefficients((1.0, 0.0, 0.5)), lambda t: 1 + t * t / 2),
    "geometric": (LogDerivatives(lambda n: gammaln(n + 1.0)), lambda t: 1 / (1 - t)),
    "finite": (LogDerivatives(lambda n: 0.0 * n, 2), lambda t: 1 + t + t * t / 2),
    "sum": (
        dotproduct.SummedSeries(Coefficients((1.0,)), dotproduct.ExponentialSeries()),
        lambda t: 1 + math.exp(t),
    ),
    "multiple": (
        dotproduct.WeightedSeries(3.0, dotproduct.ExponentialSeries()),
        lambda t: 3 * math.exp(t),
    ),
}


@pytest.mark.parametrize("name", NAMED)
def test_power_series_are_their_functions(name):
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
def test_slopes_of_power_series_are_differences_of_their_functions(name):
    """Central differences of step 1e-5: c·1e-10 of third derivatives below 2e3, and rounding."""
    power_series, function = NAMED[name]
    t, h = np.array([-0.7, -0.1, 0.3, 0.5]), 1e-5
    expected = [(function(v + h) - function(v - h)) / (2 * h) for v in t.tolist()]
    np.testing.assert_allclose(power_series.slope(t), expected, rtol=1e-7, atol=1e-7)


# ---- radial kernels


@pytest.mark.parametrize(("d", "l", "i", "t", "expected"), GAUSSIAN_MONOMIALS)
def test_monomial_radial_functions_of_the_gaussian(d, l, i, t, expected):
    h = monomials(radial_kernels(Gaussian(), d), l, i + 1, np.array([t]))
    assert h.shape == (l + 1, i + 1, 1)
    assert h[l, i, 0] == near(expected)


@pytest.mark.parametrize(("length", "N", "expected"), RESIDUALS)
@pytest.mark.parametrize("d", [2, 3, 9])
def test_energies_of_the_gaussian_are_those_of_a_poisson_law(length, N, expected, d):
    """1 − Σ_{l + 2i ≤ N} h_{l,i}(t)² = P(Poisson(t²) > N), whatever d; each degree its own share."""
    h = monomials(radial_kernels(Gaussian(), d), N, N // 2 + 1, np.array([length]))[..., 0]
    n = np.arange(N + 1)[:, None] + 2 * np.arange(N // 2 + 1)
    shares = np.array([(h[n == k] ** 2).sum() for k in range(N + 1)])
    k = np.arange(N + 1)
    poisson = np.exp(-(length**2) + 2 * k * math.log(length) - gammaln(k + 1.0))
    np.testing.assert_allclose(shares, poisson, rtol=1e-12)
    assert 1 - shares.sum() == pytest.approx(expected, abs=1e-14)
    assert gammainc(N + 1, length**2) == near(expected)


@pytest.mark.parametrize(("d", "l", "r", "s", "expected"), GAUSSIAN_RADIAL)
def test_radial_kernels_of_the_gaussian(d, l, r, s, expected):
    value = radial_kernels(Gaussian(), d).matrix(l, np.array([r]), np.array([s]))[0, 0]
    assert value == near(expected)
    # With one lengthscale, that of rows divided by it.
    wide = radial_kernels(Gaussian(3.0), d)
    assert wide.matrix(l, np.array([3 * r]), np.array([3 * s]))[0, 0] == near(expected)
    # The integral over the angle, which other isotropic kernels take.
    like = radial_kernels(Matern(1e12), d).matrix(l, np.array([r]), np.array([s]))[0, 0]
    assert like == pytest.approx(expected, rel=1e-9)


def by_quadrature(k, d, l, r, s):
    """R_l(r, s) by mpmath; k takes (r, s, θ)."""
    return mean_over_angles(lambda a: k(r, s, a), l, d)


def chord(r, s, a):
    return mpmath.sqrt((mpmath.mpf(r) - s) ** 2 + 4 * mpmath.mpf(r) * s * mpmath.sin(a / 2) ** 2)


INTEGRALS = {
    Exponential(2.0): lambda r, s, a: mpmath.exp(-chord(r, s, a) / 2),
    Matern(1.5): lambda r, s, a: (
        (1 + mpmath.sqrt(3) * chord(r, s, a)) * mpmath.exp(-mpmath.sqrt(3) * chord(r, s, a))
    ),
    RationalQuadratic(0.8): lambda r, s, a: (1 + chord(r, s, a) ** 2 / 1.6) ** -0.8,
    DotExponential(0.5): lambda r, s, a: mpmath.exp(0.5 * r * s * mpmath.cos(a)),
    Polynomial(4, 0.5): lambda r, s, a: (r * s * mpmath.cos(a) + 0.5) ** 4,
    DotProduct(lambda n: n * math.log(0.3)): lambda r, s, a: mpmath.exp(
        0.3 * r * s * mpmath.cos(a)
    ),
    Linear(): lambda r, s, a: r * s * mpmath.cos(a),
    Constant(2.0): lambda r, s, a: mpmath.mpf(2),
}


@pytest.mark.main_cases(17)
@pytest.mark.parametrize("kernel", INTEGRALS, ids=lambda k: repr(k).split(" at 0x")[0])
@pytest.mark.parametrize("d", [2, 3, 9])
def test_radial_kernels_are_integrals_over_the_angle(kernel, d):
    radial = radial_kernels(kernel, d)
    for l, r, s in [(0, 1.0, 1.0), (1, 0.5, 2.0), (4, 1.5, 1.5), (5, 1.2, 1.3)]:
        value = radial.matrix(l, np.array([r]), np.array([s]))[0, 0]
        expected = by_quadrature(INTEGRALS[kernel], d, l, r, s)
        assert value == pytest.approx(expected, rel=1e-11, abs=1e-12), (l, r, s)


@pytest.mark.parametrize(
    ("d", "l", "z"),
    [
        (2, 0, 900.0),
        (3, 40, 5000.0),
        (9, 7, 1e5),
        (2, 0, 1e12),
        (9, 3, 1e14),
        (200, 1, 1e12),
        (3000, 1, 3000.0),
        (3000, 900, 4000.0),
    ],
)
def test_radial_kernels_of_the_gaussian_at_large_radii(d, l, z):
    """Bessel functions that overflow or underflow: both branches against fifty digits."""
    r = math.sqrt(z)
    value = radial_kernels(Gaussian(), d).matrix(l, np.array([r]), np.array([r]))[0, 0]
    with mpmath.workdps(50):
        nu, z = mpmath.mpf(d) / 2 - 1, mpmath.mpf(r) ** 2
        bessel = mpmath.besseli(l + nu, z) * mpmath.gamma(nu + 1) * (2 / z) ** nu * mpmath.exp(-z)
        expected = float(zonal.alpha(l, d) * bessel)
    assert value == near(expected, rel=1e-10)
