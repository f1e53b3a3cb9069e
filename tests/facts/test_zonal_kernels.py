"""Kernels of angles and inner products at thirty digits: polynomials, series, harmonics; two routes."""

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
from scipy.special import gammainc, gammaln, roots_gegenbauer
from tolerance import assert_close, of

from bochner._core import native
from bochner.errors import InvalidInput, InvalidType, NotPositive
from bochner.features.mercer.radial import Polar, quantiles
from bochner.features.mercer.recurrence import harmonic_blocks, programme
from bochner.kernels import (
    NNGP,
    Angular,
    ArcCosine,
    Coefficients,
    Constant,
    DotExponential,
    DotProduct,
    Exponential,
    Gaussian,
    GeneralizedZonal,
    Linear,
    LogDerivatives,
    Matern,
    Monomials,
    NeuralTangent,
    Polynomial,
    RationalQuadratic,
    Zonal,
    dotproduct,
    zonal,
)
from bochner.kernels.radial import monomials, radial_kernels
from bochner.kernels.zonal import Angle, alpha, directions, gegenbauers, orthonormals
from bochner.kernels.zonal import recurrence as coefficients

NETWORKS = [  # kernel, cos θ, K
    (NeuralTangent(1), 0.3, 0.66184028904169110878540924292909),
    (NeuralTangent(1), -1.0, 0.0),
    (NeuralTangent(1), 0.0, 0.31830988618379067153776752674503),
    (NeuralTangent(2), 0.3, 1.0346012996128433099600537640661),
    (NeuralTangent(2), -0.5, 0.34386224627272686445205090416365),
    (NeuralTangent(3), 0.9, 2.9856931873747136681122304123114),
    (NeuralTangent(5), 0.999, 5.7873994777658958015847856707724),
    (NeuralTangent(10), 0.1, 3.5588393609334780835698995786790),
    (ArcCosine(0), 0.3, 0.59698668402067829050136692106914),
    (ArcCosine(1), 0.3, 0.48274428383548762163499916660834),
    (NNGP(1), 0.3, 0.48274428383548762163499916660834),
    (ArcCosine(2), 0.3, 0.97772773791075610382774314812043),
    (Angular(), 0.3, 0.19397336804135658100273384213828),
]
ANGULAR = [Angular(), ArcCosine(0), ArcCosine(1), ArcCosine(2), NNGP(3), NeuralTangent(1)]
ANGULAR += [NeuralTangent(3), NeuralTangent(10)]
EDGES = [0.0, 1e-300, 1e-16, 1e-9, 1e-4, 0.1, 0.74, 0.76, 1.4, 1.6, 2.9]
"""Angles from zero on, and down from π: about the ends, and where series give way to sines."""


def exact(kernel, theta):
    """K(θ) in fifty digits beyond what cancels, from the printed formulas."""
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
        return c if isinstance(kernel, NNGP) else tangent


# ---- values


@pytest.mark.parametrize(("kernel", "cos", "expected"), NETWORKS, ids=str)
def test_reference_values(kernel, cos, expected):
    x, y = np.array([[1.0, 0.0]]), np.array([[cos, math.sqrt(1 - cos * cos)]])
    assert kernel(x, y)[0, 0] == pytest.approx(expected, rel=of(np.float64), abs=1e-16)
    # The norms count to the power of the degree, and nothing else of them.
    scaled = kernel(3 * x, 0.5 * y)[0, 0]
    assert scaled == pytest.approx(1.5**kernel.degree * expected, rel=of(np.float64), abs=1e-15)


@pytest.mark.parametrize("kernel", ANGULAR, ids=repr)
def test_values_have_all_digits_from_zero_to_a_right_angle(kernel):
    theta = np.array(EDGES)
    expected = [float(exact(kernel, mpmath.mpf(t))) for t in theta.tolist()]
    values = kernel.profile(Angle.of(theta))
    np.testing.assert_allclose(values, expected, rtol=of(np.float64), atol=0)
    assert values[0] == expected[0]


@pytest.mark.parametrize("kernel", ANGULAR, ids=repr)
def test_values_have_all_digits_towards_opposite_rows(kernel):
    """At φ = π − θ kernels fall like φ, φ³ or φ⁵: relative digits, from half-chords of φ."""
    phi = np.array(EDGES)
    angle = Angle.of_chords(np.cos(phi / 2) ** 2, np.sin(phi / 2) ** 2)
    with mpmath.workdps(700):
        expected = [float(exact(kernel, mpmath.pi - mpmath.mpf(t))) for t in phi.tolist()]
    values = kernel.profile(angle)
    # One rounding of a sum of two terms that cancel to a tenth, near the kernel's zero.
    np.testing.assert_allclose(values, expected, rtol=20 * of(np.float64), atol=1e-300)


@pytest.mark.parametrize("kernel", ANGULAR, ids=repr)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_near_and_opposite_rows_keep_their_digits(kernel, dtype):
    """Angles from 1e-7 to 0.1 between rows of fifty columns; the arccosine would err by √eps."""
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
def test_rows_of_zeros_stand_at_a_right_angle_or_vanish(kernel, make):
    """With every row, itself too: the mean over directions, times zero norms."""
    X = np.array([[0.0, 0.0, 0.0], [0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 2.0, 0.0]])
    K = np.asarray(kernel(make(X)))
    mean = radial_kernels(kernel, 3).matrix(0, np.zeros(1), np.zeros(1))[0, 0]
    np.testing.assert_allclose(K[:2], np.full((2, 4), mean), atol=1e-16)
    np.testing.assert_allclose(np.asarray(kernel.diag(make(X))), np.diag(K), rtol=1e-15)
    assert np.linalg.eigvalsh(K)[0] > -1e-15


@pytest.mark.parametrize("scale", [1e-160, 1e-300, 1e150])
def test_lengths_of_rows_neither_vanish_nor_overflow(scale):
    x, y = np.array([[3.0, 4.0]]), np.array([[4.0, -3.0]])
    assert Angular()(scale * x, x)[0, 0] == 1.0
    assert Angular()(scale * x, y)[0, 0] == pytest.approx(0.0, abs=1e-15)
    U, r = directions(scale * x)
    assert r[0] == pytest.approx(5 * scale, rel=1e-14)
    assert_close(U, [[0.6, 0.8]])


def test_identities_between_kernels():
    X = np.random.default_rng(0).normal(size=(9, 4))
    assert_close(ArcCosine(0)(X), (1 + Angular()(X)) / 2)
    assert_close(NNGP(1)(X), ArcCosine(1)(X))
    norms = np.linalg.norm(X, axis=1)
    assert_close(ArcCosine(1)(X) + (X @ X.T) * ArcCosine(0)(X), NeuralTangent(1)(X))
    assert_close(NeuralTangent(4).diag(X), 5 * norms**2)
    assert_close(Zonal((0.0, 1.0))(X), X @ X.T)
    assert_close(DotProduct((0.0, 0.0, 1.0))(X), Polynomial(2, 0.0)(X))
    assert_close(DotProduct((1.0, 2.0, 1.0))(X), Polynomial(2)(X))
    assert_close(DotExponential(0.5)(X), DotProduct(lambda n: n * math.log(0.5))(X))
    envelope = np.exp(-0.25 * norms**2)
    assert_close(DotExponential(0.5)(X) * envelope[:, None] * envelope, Gaussian(math.sqrt(2.0))(X))


@pytest.mark.parametrize("d", [1, 2, 5])
def test_zonal_kernels_are_the_sums_of_their_polynomials(d):
    X = np.random.default_rng(d).normal(size=(6, d))
    c = (1.0, 0.25, 0.5, 0.125)
    U, r = directions(X)
    P = [naive.gegenbauer(l, max(d, 2), 1) for l in range(4)]
    assert [float(p) for p in P] == [1.0] * 4
    for power in (0, 1, 3):
        kernel, K = Zonal(c, power), np.empty((6, 6))
        for i, x in enumerate(U.tolist()):
            for j, y in enumerate(U.tolist()):
                terms = [
                    a * naive.gegenbauer(l, d, naive.dot(x, y))
                    for l, a in enumerate(c[:2] if d == 1 else c)
                ]
                K[i, j] = float(sum(terms)) * (r[i] * r[j]) ** power
        assert_close(kernel(X), K)
        assert_close(kernel.diag(X), np.diag(K))


def test_generalised_zonal_kernels_of_functions():
    """The Gaussian in two dimensions by its first radial functions, given as lambdas."""

    def function(l):
        def h(t):
            n = l + 2 * np.arange(12)
            return np.sqrt(radial_weights(l)) * t[:, None] ** n * np.exp(-t * t / 2)[:, None]

        return h

    def radial_weights(l):
        i = np.arange(12)
        two = 1.0 if l == 0 else 2.0
        return np.array(
            [two / (math.factorial(j) * math.factorial(l + j) * 4.0**j * 2**l) for j in i]
        )

    X = np.random.default_rng(0).normal(size=(8, 2)) / 2
    kernel = GeneralizedZonal(tuple(function(l) for l in range(20)))
    assert_close(kernel(X), Gaussian()(X))
    assert_close(kernel.diag(X), np.ones(8))
    one_column = GeneralizedZonal(np.ones_like)
    assert one_column(X).tolist() == np.ones((8, 8)).tolist()


# ---- refusals

X = np.array([[1.0, 2.0]])
REFUSED = {
    "order": (lambda: ArcCosine(3), InvalidInput, r"ArcCosine: order must be 0, 1 or 2; got 3"),
    "order type": (lambda: ArcCosine(1.5), InvalidType, r"order must be an integer.*got 1\.5"),
    "depth": (
        lambda: NeuralTangent(0),
        InvalidInput,
        r"NeuralTangent: depth must be an .*1 or above",
    ),
    "NNGP": (lambda: NNGP("deep"), InvalidType, r"NNGP: depth must be an integer.*got 'deep'"),
    "degree": (
        lambda: Polynomial(0),
        InvalidInput,
        r"Polynomial: degree must be .*1 or above; got 0",
    ),
    "offset": (lambda: Polynomial(2, -1.0), InvalidInput, r"Polynomial: offset .*non-negative"),
    "scale": (
        lambda: Polynomial(2, 1.0, 0.0),
        InvalidInput,
        r"Polynomial: scale must be a positive",
    ),
    "rate": (
        lambda: DotExponential(-1.0),
        InvalidInput,
        r"DotExponential: scale must be a positive",
    ),
    "overflow": (
        lambda: DotExponential()(30 * X),
        InvalidInput,
        r"DotExponential: k\(x, y\) must be a number of dtype float64; .* up to 4\.5e\+03\. Rescale",
    ),
    "overflow float32": (
        lambda: DotExponential()(np.full((2, 1), 10.0, np.float32)),
        InvalidInput,
        r"number of dtype float32; got an overflow .* up to 100\.",
    ),
    "overflow diag": (lambda: DotExponential().diag(30 * X), InvalidInput, r"got an overflow"),
    "long rows": (
        lambda: ArcCosine(2)(1e100 * X),
        InvalidInput,
        r"ArcCosine: k\(x, y\) must be a number of dtype float64.*rows are too long\. Rescale X",
    ),
    "long rows, diag": (lambda: NNGP().diag(1e200 * X), InvalidInput, r"NNGP: .*too long"),
    "coefficients": (
        lambda: Zonal((1.0, -0.1)),
        NotPositive,
        r"Zonal: coefficients must be zero or above.*on the sphere; got -0\.1",
    ),
    "no coefficients": (lambda: Zonal(()), InvalidInput, r"coefficients must be a sequence"),
    "nan": (lambda: Zonal((np.nan,)), InvalidInput, r"coefficients\[0\] must be a finite number"),
    "power": (lambda: Zonal((1.0,), -1), InvalidInput, r"Zonal: power must be an integer, 0 or"),
    "no functions": (
        lambda: GeneralizedZonal(()),
        InvalidType,
        r"callables of radii, at least one",
    ),
    "numbers": (
        lambda: GeneralizedZonal((1.0,)),
        InvalidType,
        r"must be callables .*got \(1\.0,\)",
    ),
    "shape of radial functions": (
        lambda: GeneralizedZonal(lambda t: np.ones(3))(X),
        InvalidInput,
        r"radial_functions\[0\] must return finite numbers, one row for each of 1 radii; .* \(3,\)",
    ),
    "infinite radial functions": (
        lambda: GeneralizedZonal(lambda t: np.inf + t)(X),
        InvalidInput,
        r"numbers not finite",
    ),
    "lengths": (
        lambda: Monomials((1.0,), (0, 1)),
        InvalidInput,
        r"Monomials: coefficients and powers must be of one length; got 1 and 2",
    ),
    "powers": (lambda: Monomials((1.0,), (-1,)), InvalidInput, r"powers\[0\] must be an integer"),
    "decay": (lambda: Monomials((1.0,), (1,), -1.0), InvalidInput, r"decay must be a non-negative"),
    "empty": (lambda: Monomials((), ()), InvalidInput, r"Monomials: coefficients must be a seq"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusal(name):
    call, error, match = REFUSED[name]
    with pytest.raises(error, match=match):
        call()


# ---- thirty digits of Gegenbauer polynomials, their series and radial kernels; two routes to each


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
NETWORK_COEFFICIENTS = [  # depth, d, l, c_l
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


@pytest.mark.parametrize(("depth", "d", "l", "expected"), NETWORK_COEFFICIENTS)
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


# ---- spherical harmonics, their recurrences and radial functions, by two routes each


DEGREES = {1: 3, 2: 15, 3: 12, 4: 8, 5: 6, 9: 4, 20: 3, 50: 2}
every_dimension = pytest.mark.parametrize("d", DEGREES)


def directions_with_poles(n, d, seed=0):
    """Unit rows, the first two at the poles of the recurrence."""
    X = np.random.default_rng(seed).standard_normal((n, d))
    X[0], X[1] = np.eye(d)[-1], np.eye(d)[0]
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def sphere(d, n):
    """Nodes and weights that integrate polynomials of degree 2n − 1 over the sphere in R^d."""
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
    """All orthonormal harmonics of the unit rows U up to a degree, degree by degree."""
    counts = np.array([alpha(l, U.shape[1]) for l in range(degree + 1)])
    ones = array_namespace(U).ones((U.shape[0], degree + 1), dtype=U.dtype)
    return harmonic_blocks(U, U.shape[1], np.arange(degree + 1), counts, ones)


def by_degree(Y, d, degree):
    ends = np.cumsum([0] + [alpha(l, d) for l in range(degree + 1)])
    # The polynomials of degree l in d columns that are no multiples of |x|²: so many, exactly.
    below = math.comb(degree + d - 2, degree - 1) if degree else 0
    assert Y.shape[1] == ends[-1] == math.comb(degree + d - 1, degree) + below
    return [Y[:, a:b] for a, b in pairwise(ends.tolist())]


# ---- harmonics


@pytest.mark.parametrize(("d", "degree"), [(2, 9), (3, 8), (4, 5), (5, 3)])
def test_harmonics_are_orthonormal(d, degree):
    X, w = sphere(d, degree + 1)
    Y = spherical(degree, X)
    assert_close(Y.T @ (w[:, None] * Y), np.eye(Y.shape[1]), factor=4)


@every_dimension
def test_harmonics_of_a_degree_add_up_to_its_gegenbauer_polynomial(d):
    X, degree = directions_with_poles(12, d), DEGREES[d]
    cos = np.clip(X @ X.T, -1, 1)
    for l, Y in enumerate(by_degree(spherical(degree, X), d, degree)):
        assert_close(Y @ Y.T, alpha(l, d) * gegenbauers(l, d, cos)[l], factor=4)


def test_harmonics_of_low_degree_are_the_known_polynomials():
    X = directions_with_poles(20, 3)
    x, y, z = X.T
    Y = spherical(2, X)
    assert_close(Y[:, 1:4], 3**0.5 * X)
    known = [15**0.5 / 2 * (x * x - y * y), 15**0.5 * x * y, 15**0.5 * x * z, 15**0.5 * y * z]
    assert_close(Y[:, 4:], np.stack([*known, 5**0.5 / 2 * (3 * z * z - 1)], axis=1))
    angle = np.arctan2(y, x)
    flat = X[2:, :2] / np.hypot(x, y)[2:, None]
    circle = spherical(7, flat)[:, -2:]
    assert_close(circle, 2**0.5 * np.stack([np.cos(7 * angle), np.sin(7 * angle)], axis=1)[2:])


@every_dimension
def test_a_prefix_of_a_degree_is_the_first_of_its_harmonics(d):
    X, degree = directions_with_poles(9, d), DEGREES[d]
    whole = by_degree(spherical(degree, X), d, degree)
    for count in {1, 2, d, alpha(degree, d) // 2, alpha(degree, d)}:
        if not 0 < count <= alpha(degree, d):
            continue
        blocks = np.array([degree, 0]), np.array([count, 1])
        Z = harmonic_blocks(X, d, *blocks, np.full((9, 2), 2.0))
        assert_close(Z, 2 * np.concatenate([whole[degree][:, :count], whole[0]], axis=1))


# ---- compiled loops and their twins


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("d", [1, 2, 3, 7])
@pytest.mark.parametrize("n", [0, 1, 16, 53])
def test_compiled_harmonics_are_those_of_the_twin(n, d, dtype):
    U = directions_with_poles(max(n, 2), d)[:n].astype(dtype)
    counts = tuple(alpha(l, d) for l in range(4))
    plan = programme(d, counts)
    ends = np.cumsum([0, *counts]).astype(np.int32)
    first, count = ends[[2, 0, 3, 2]], np.array([counts[2], 1, 1, counts[2]], np.int32)
    count = np.minimum(count, np.array(counts)[[2, 0, 3, 2]]).astype(np.int32)
    radial = np.random.default_rng(1).random((n, 4)).astype(dtype)
    expected = native.harmonics_twin(U, plan, radial, first, count)
    assert_close(native.harmonics(U, plan, radial, first, count), expected, dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("d", [1, 2, 3, 40])
@pytest.mark.parametrize(("m", "functions"), [(1, 1), (70, 3), (600, 2)])
def test_compiled_polynomials_are_those_of_the_twin_and_of_the_series(d, m, functions, dtype):
    rng = np.random.default_rng(d)
    X, W = (
        directions_with_poles(21, d).astype(dtype),
        directions_with_poles(m + 2, d, 1)[2:].T.astype(dtype),
    )
    b = recurrence_of(5, d)
    up, down = (step.astype(dtype) for step in b)
    radial = rng.random((21, functions, 6)).astype(dtype)
    W = np.ascontiguousarray(W)
    Z = native.polynomials(X, W, radial, up, down)
    assert_close(Z, native.polynomials_twin(X, W, radial, up, down), dtype, factor=4)
    p = np.stack(orthonormals(5, d, np.clip(X @ W, -1, 1).astype(np.float64)))
    slow = np.einsum("nfl,lnm->nfm", radial.astype(np.float64), p).reshape(21, -1)
    assert_close(Z, slow, dtype, factor=10 if dtype == "float64" else 40)


def recurrence_of(q, d):
    """Steps of the recurrence, from the polynomials' own coefficients."""
    if d == 1:
        return np.eye(1, q)[0], np.zeros(q)
    b = coefficients(q, d)
    return 1 / b[1:], b[:-1] / b[1:]


@pytest.mark.skipif(not native.HAVE_NATIVE, reason="BLAS promises no order of its sums")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_no_bit_of_a_compiled_row_depends_on_the_others(dtype):
    X, W = (
        directions_with_poles(50, 5).astype(dtype),
        directions_with_poles(70, 5, 1).T.astype(dtype),
    )
    W, steps = np.ascontiguousarray(W), [s.astype(dtype) for s in recurrence_of(6, 5)]
    radial = np.random.default_rng(0).random((50, 3, 7)).astype(dtype)
    counts = tuple(alpha(l, 5) for l in range(5))
    plan, first = programme(5, counts), np.array([6, 0], np.int32)
    count, factors = np.array([14, 6], np.int32), np.ascontiguousarray(radial[:, 0, :2])
    whole = native.polynomials(X, W, radial, *steps)
    all_blocks = native.harmonics(X, plan, factors, first, count)
    for rows in (slice(0, 1), slice(7, 30), slice(33, 50)):
        part = native.polynomials(X[rows], W, radial[rows], *steps)
        assert (part == whole[rows]).all()
        blocks = native.harmonics(X[rows], plan, factors[rows], first, count)
        assert (blocks == all_blocks[rows]).all()


@pytest.mark.skipif(not native.HAVE_NATIVE, reason="twins trust their callers")
def test_a_programme_that_reads_what_is_not_there_is_refused():
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


# ---- radii


@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e200])
def test_radii_and_directions_neither_overflow_nor_vanish(scale):
    X = np.random.default_rng(0).standard_normal((5, 3))
    X[2] = 0
    U, r = Polar(np.zeros(3), np.ones(3), None)(scale * X)
    assert_close(r / scale, np.linalg.norm(X, axis=1))
    assert_close(r[:, None] / scale * U, X)
    assert (U[2] == 0).all()
    assert r[2] == 0


def test_quantiles_are_radii_of_the_data_with_shares_that_add_up():
    r = np.random.default_rng(0).gamma(3.0, size=5000)
    q, share = quantiles(r, 64)
    assert (np.diff(q) > 0).all()
    assert r.min() <= q[0]
    assert q[-1] <= r.max()
    assert abs(share.sum() - 1) < 1e-12
    assert abs(q @ share - r.mean()) < 0.01 * r.mean()
    assert quantiles(np.full(9, 2.0), 64).q.tolist() == [2.0]
    assert len(quantiles(r[:5], 64).q) == 5
