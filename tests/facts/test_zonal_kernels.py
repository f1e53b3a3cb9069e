"""Thirty digits of kernels of angles, of inner products and of one's own functions; refusals."""

import math

import mpmath
import naive
import numpy as np
import pytest
import scipy.sparse
import torch
from tolerance import assert_close, of

from bochner.errors import InvalidInput, InvalidType, NotPositive
from bochner.kernels import (
    NNGP,
    Angular,
    ArcCosine,
    DotExponential,
    DotProduct,
    Gaussian,
    GeneralizedZonal,
    Monomials,
    NeuralTangent,
    Polynomial,
    Zonal,
)
from bochner.kernels.radial import radial_kernels
from bochner.kernels.zonal import Angle, directions

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
