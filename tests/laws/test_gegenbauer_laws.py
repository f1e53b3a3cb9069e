"""Laws of random Gegenbauer features: definition 8, with monomials and optimal radial functions."""

import tracemalloc
import warnings
from dataclasses import replace

import numpy as np
import pytest
import tolerance
from gallery import GEGENBAUER, rows
from inside import HAVE_NATIVE, in_pure_python
from naive import n_harmonics
from scipy.special import gammainc, gammaincinv
from tolerance import assert_close

import bochner as bo
from bochner.errors import FeatureWarning, InvalidInput, UnsupportedKernel
from bochner.features import Gegenbauer, draw
from bochner.features.random.gegenbauer import draw_directions
from bochner.kernels import (
    ArcCosine,
    DotExponential,
    Gaussian,
    GeneralizedZonal,
    Laplace,
    Matern,
    Monomials,
    NeuralTangent,
    Polynomial,
)
from bochner.kernels.radial import monomials, radial_kernels
from bochner.kernels.zonal import gegenbauers

D = 48


def named(pair):
    kernel, method = pair
    return f"{method!r}-{kernel!r}"


every_map = pytest.mark.parametrize("pair", GEGENBAUER, ids=named)
KINDS = [
    (Gaussian((0.5, 1.0, 3.0)), Gegenbauer("monomial")),
    (Polynomial(3, scale=0.2), Gegenbauer("monomial", order=2)),
    (NeuralTangent(2), Gegenbauer()),
    (Matern(1.5), Gegenbauer()),
]


def drawn(pair, seed=0, n_features=D, X=None):
    kernel, method = pair
    X = rows(60) if X is None else X
    return draw(kernel, method, n_features=n_features, X=X, random_state=seed)


def many(pair, count, n_features=D, X=None):
    """Maps that differ in their directions alone, as those of other seeds do."""
    phi = drawn(pair, 0, n_features, X)
    streams = (np.random.default_rng(seed) for seed in range(count))
    d, m = phi.directions.shape
    return [replace(phi, directions=draw_directions(d, m, rng)) for rng in streams]


def angles(phi, X):
    """Cosines between the rows of X, as the map sees them, and their radii, in float64."""
    A = (X - phi.polar.centre) / phi.polar.scales
    r = np.linalg.norm(A, axis=1)
    return np.clip((A @ A.T) / np.outer(r, r), -1, 1), r


def cut_kernel(phi, X):
    """Σ_l Σ_i h_{l,i}(x) h_{l,i}(y) P_l(cos): what the features of a map are unbiased for."""
    cos, r = angles(phi, X)
    K = np.zeros((len(X), len(X)))
    for l, h in zip(phi.radial.degrees.tolist(), phi.radial(r).T, strict=True):
        K += np.outer(h, h) * gegenbauers(l, phi.n_inputs, cos)[l]
    return K


def sphere(n, radius, d=3, seed=0):
    X = np.random.default_rng(seed).standard_normal((n, d))
    return radius * X / np.linalg.norm(X, axis=1, keepdims=True)


# ---- definition 8


def test_definition_8_term_by_term():
    """√α_l h_{l,i}(|x|) P_l(⟨x, w⟩/|x|), summed over l, by the unnormalised polynomials."""
    X = rows(12)
    phi = drawn((Gaussian(1.5), Gegenbauer("monomial", 2, 5)), n_features=20, X=X)
    W = phi.directions
    assert W.shape == (3, 10)
    r = np.linalg.norm(X, axis=1)
    h = monomials(radial_kernels(Gaussian(1.5), 3), 5, 2, r)
    P = gegenbauers(5, 3, X @ W / r[:, None])
    parts = [
        sum(n_harmonics(l, 3) ** 0.5 * h[l, i][:, None] * P[l] for l in range(6)) / 10**0.5
        for i in range(2)
    ]
    assert_close(phi(X), np.concatenate(parts, axis=1), factor=4)


#: Where degree 12 leaves out 1.5e-12: of a threshold twice or half as large it would not be the first.
AT_THE_EDGE = float(gammaincinv(12, 1.5e-12)) ** 0.5


@pytest.mark.parametrize("radius", [0.5, 1.0, 3.0, AT_THE_EDGE])
@pytest.mark.parametrize("n_features", [64, 4096])
def test_the_default_degree_is_the_first_that_leaves_next_to_nothing(radius, n_features):
    """Of the Gaussian e(x) = P(Poisson(|x|²) > q): at most 1e-12, whatever the width."""
    X = sphere(50, radius)
    X[:25] *= 1 - 1e-3  # two radii, and so monomials; the 99th percentile is the larger
    phi = draw(Gaussian(), Gegenbauer("monomial", 1), n_features=n_features, X=X, random_state=0)
    assert gammainc(phi.degree + 1, radius**2) <= 1e-12 < gammainc(phi.degree, radius**2)


SMOOTH = [Gaussian(), Gaussian(0.7), 2.0 * Gaussian(), DotExponential(), Polynomial(5)]


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("kernel", [*SMOOTH, NeuralTangent(2), ArcCosine(1)], ids=repr)
@pytest.mark.parametrize("radial", ["monomial", "optimal"])
def test_of_enough_orders_the_cut_kernel_is_the_kernel(kernel, d, radial):
    """Up to what 16 optimal functions or 24 monomials leave out, or degree 48 of slow series."""
    X = np.random.default_rng(0).uniform(-1.2, 1.2, (40, d))
    method = Gegenbauer(radial=radial, order=16 if radial == "optimal" else 24)
    phi = draw(kernel, method, n_features=960, X=X, random_state=0)
    K = kernel(X)
    slow = d > 1 and kernel not in SMOOTH
    error = np.abs(cut_kernel(phi, X) - K).max() / np.abs(K).max()
    assert error < (0.02 if slow else 1e-9)
    # The planted fault: orders counted from the degree in one dimension, where it ends at one.
    if d == 1 and kernel in SMOOTH:
        first = draw(kernel, replace(method, order=1), n_features=960, X=X, random_state=0)
        assert np.abs(cut_kernel(first, X) - K).max() / np.abs(K).max() > 0.02


@pytest.mark.parametrize("kernel", [*SMOOTH, NeuralTangent(2), ArcCosine(1)], ids=repr)
@pytest.mark.parametrize(
    "method",
    [
        Gegenbauer("monomial"),
        Gegenbauer(),
    ],
    ids=repr,
)
def test_of_one_column_nothing_is_random_and_nothing_is_left_out(kernel, method):
    """e^{xy} = cosh + sinh: both directions, and as many orders as the rows are long."""
    X = np.random.default_rng(0).standard_normal((100, 1))
    phi = draw(kernel, method, n_features=256, X=X, random_state=0)
    Z, K = phi(X), kernel(X)
    assert np.abs(Z @ Z.T - K).max() < 1e-9 * np.abs(K).max()
    model = bo.KernelRidge(kernel, method=method, n_features=256, random_state=0)
    if kernel in SMOOTH[:4]:
        assert model.fit(X, np.sin(2 * X[:, 0])).score(X, np.sin(2 * X[:, 0])) > 0.9999


@pytest.mark.parametrize("D", [480, 2000])
@pytest.mark.parametrize("kernel", [Gaussian(), DotExponential(0.5)], ids=repr)
def test_the_default_order_has_the_least_bias_and_noise(kernel, D):
    """Bias of the cut kernel, and noise (s/D) k_s(x, x) k_s(y, y), summed up order by order."""
    X = np.random.default_rng(0).standard_normal((60, 3))
    maps = [
        draw(kernel, Gegenbauer("monomial", s, 30), n_features=D, X=X, random_state=0)
        for s in range(1, 17)
    ]
    cut = [cut_kernel(phi, X) for phi in maps]
    bias = [np.mean((K - cut[-1]) ** 2) for K in cut]
    noise = [s / D * np.mean(np.diag(K)) ** 2 for s, K in enumerate(cut, 1)]
    phi = draw(kernel, Gegenbauer("monomial", degree=30), n_features=D, X=X, random_state=0)
    assert phi.order == 1 + np.argmin(np.add(bias, noise))


def test_defaults_that_leave_out_much_say_so():
    X = np.random.default_rng(0).standard_normal((100, 5))
    with pytest.warns(FeatureWarning, match=r"leave out \d+ % of k\(x, x\) in the mean"):
        phi = draw(Gaussian(), Gegenbauer(), n_features=256, X=X, random_state=0)
    share = phi.left_out(X).sum() / 100
    _, r = angles(phi, X)
    assert_close(phi.left_out(X), np.diag(Gaussian()(X) - cut_kernel(phi, X)), factor=10)
    assert share > 0.01
    with warnings.catch_warnings():
        warnings.simplefilter("error", FeatureWarning)
        draw(Gaussian(), Gegenbauer(), n_features=256, X=sphere(100, 2.0), random_state=0)
        draw(Gaussian(), Gegenbauer(order=1, degree=2), n_features=256, X=X, random_state=0)


SEEDS = 120
COMPARISONS = 10 * (len(GEGENBAUER) + 8)


def bias(K, maps, X):
    return tolerance.bias(K, [phi(X) for phi in maps], COMPARISONS, factor=100)


@pytest.mark.main_cases(13)
@pytest.mark.statistical
@every_map
def test_features_are_unbiased_for_the_cut_kernel(pair):
    X = 0.7 * rows(5, seed=3)[:4]
    maps = many(pair, SEEDS)
    assert bias(cut_kernel(maps[0], X), maps, X) < 1


FAULTS = {
    "no √α_l": lambda l, d: np.array([n_harmonics(int(v), d) for v in l]) ** -0.5,
    "no degree 1": lambda l, d: 1.0 * (l != 1),
    "α_l twice": lambda l, d: np.array([n_harmonics(int(v), d) for v in l]) ** 0.5,
}


@pytest.mark.statistical
@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_of_the_radial_functions_are_seen(fault):
    X = 0.7 * rows(5, seed=3)[:4]
    pair = (Gaussian(), Gegenbauer(radial="optimal", order=2))
    maps = many(pair, SEEDS)
    wrong = [replace(p, radial=p.radial.times(FAULTS[fault](p.radial.degrees, 3))) for p in maps]
    K = cut_kernel(maps[0], X)
    assert bias(K, maps, X) < 1 < bias(K, wrong, X)


# ---- variance


def squared_error(method, m, X, K, seeds):
    """Mean squared error of the entries beside the diagonal, over maps and pairs."""
    off = ~np.eye(len(X), dtype=bool)
    maps = many((Gaussian(), method), seeds, m, X)
    return np.array([((phi(X) @ phi(X).T - K)[off] ** 2).mean() for phi in maps])


@pytest.mark.statistical
def test_on_the_sphere_the_variance_is_that_of_the_formula():
    """(1 − Σ c_l²/α_l)/D for pairs uniform on the sphere, whatever the signs of the degrees.

    Means of 60 maps with spread s: five standard errors, and the same again for a finite sample
    of rows.
    """
    X = sphere(400, 1.5, seed=2)
    plain = drawn((Gaussian(), Gegenbauer(degree=12)), 0, 64, X)
    c = plain.radial(np.array([1.5]))[0] ** 2
    expected = (c.sum() ** 2 - (c**2 / (2 * plain.radial.degrees + 1)).sum()) / 64
    K = cut_kernel(plain, X)
    errors = squared_error(Gegenbauer(degree=12), 64, X, K, 60)
    allowed = 10 * errors.std() / 60**0.5
    assert allowed < 0.6 * expected
    assert abs(errors.mean() - expected) < allowed


# ---- directions, widths, choices


def test_directions_are_unit_and_even():
    W = draw_directions(3, 2048, np.random.default_rng(0))
    assert_close(np.linalg.norm(W, axis=0), np.ones(2048))
    assert np.abs(W @ W.T / 2048 - np.eye(3) / 3).max() < 0.05


def test_a_wider_map_holds_the_directions_of_the_narrow_one():
    method = Gegenbauer("monomial", order=2, degree=5)
    narrow, wide = (
        draw(Gaussian(), method, n_features=D, n_inputs=3, random_state=0) for D in (32, 64)
    )
    assert (wide.directions[:, :16] == narrow.directions).all()
    X = rows(9)
    assert_close(2**0.5 * wide(X)[:, :16], narrow(X)[:, :16])


@pytest.mark.parametrize("kernel", [Gaussian(), Matern(1.5)], ids=repr)
def test_near_a_sphere_next_to_nothing_is_cut(kernel):
    """Radii off by 1e-5 ask for no further order; with monomials 7 % of the kernel was lost."""
    X = sphere(200, 2.0)
    near = X * (1 + 1e-5 * np.random.default_rng(1).standard_normal((200, 1)))
    phi = draw(kernel, Gegenbauer(), n_features=256, X=near, random_state=0)
    one = draw(kernel, Gegenbauer(), n_features=256, X=X, random_state=0)
    assert phi.order == 1
    assert phi.left_out(near).mean() < one.left_out(X).mean() + 1e-3


def test_degree_and_order_of_a_polynomial_are_its_own():
    phi = draw(Polynomial(4), Gegenbauer("monomial", 3), n_features=30, n_inputs=5, random_state=0)
    assert phi.degree == 4
    X = np.random.default_rng(0).standard_normal((9, 5))
    assert_close(cut_kernel(phi, X), Polynomial(4)(X), factor=10)


def test_a_row_of_zeros_has_degree_zero_alone():
    X = rows(40)
    X[3] = 0
    phi = drawn((Gaussian(), Gegenbauer("monomial", 2, 4)), X=X)
    m = phi.directions.shape[1]
    assert_close(phi(X)[3], np.repeat([m**-0.5, 0.0], m))


# ---- refusals


def refused(kernel, method, **options):
    options = {"n_features": 32, "n_inputs": 3, "random_state": 0} | options
    return draw(kernel, method, **options)


def test_what_cannot_be_served_is_refused_with_names():
    with pytest.raises(UnsupportedKernel, match=r"Gegenbauer requires a rotation-invariant"):
        refused(Laplace(), Gegenbauer())
    with pytest.raises(UnsupportedKernel, match=r"requires a kernel of ⟨x, y⟩"):
        refused(Matern(1.5), Gegenbauer("monomial"), X=rows(20))
    with pytest.raises(InvalidInput, match=r"Gegenbauer chooses order and degree"):
        refused(Gaussian(), Gegenbauer())
    with pytest.raises(InvalidInput, match=r"n_features must be at least the 3 of one"):
        refused(Gaussian(), Gegenbauer("monomial", order=3, degree=2), n_features=2)


@pytest.mark.parametrize(
    "options",
    [
        {"radial": "best"},
        {"order": 0},
        {"degree": -1},
    ],
)
def test_arguments_of_the_method_are_checked(options):
    with pytest.raises(InvalidInput, match=r"Gegenbauer: \w+ must be"):
        Gegenbauer(**options)


# ---- one map for all: blocks, libraries, precisions, files


def test_memory_of_many_orders_is_that_of_the_functions_of_the_rows():
    """Rows times orders times degrees, 3 MB; a matrix of functions by orders by degrees is 1.6 GB."""
    X = sphere(20, 2.0)
    phi = draw(Gaussian(), Gegenbauer("monomial", 100, 200), n_features=100, X=X, random_state=0)
    tracemalloc.start()
    phi(X)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 26


@pytest.mark.skipif(not HAVE_NATIVE, reason="there is one way only")
def test_the_compiled_features_are_those_of_the_twin(monkeypatch):
    X = rows(300)
    maps = [drawn(pair, X=X) for pair in KINDS]
    compiled = [phi(X) for phi in maps]
    in_pure_python(monkeypatch)
    for phi, Z in zip(maps, compiled, strict=True):
        assert_close(phi(X), Z, factor=4)


# ---- functions of one's own


def steep(t):
    """Two functions of radii that 64 quantiles of the radii of rows do not tell."""
    return np.stack([np.cos(40.0 * t), 0.3 + 0.0 * t], axis=1)


OWN = GeneralizedZonal((steep, Monomials((1.0, 0.2), (1, 3)), lambda t: np.sin(30.0 * t)))


def biased(phi, kernel, X, count=400):
    """Largest error of a mean over directions in its bars; above one alarms with chance 1e-6."""
    streams = (np.random.default_rng(seed) for seed in range(count))
    m = phi.directions.shape[1]
    maps = [replace(phi, directions=draw_directions(3, m, s)) for s in streams]
    return tolerance.bias(kernel(X), [phi(X) for phi in maps], comparisons=len(X) ** 2)


@pytest.mark.parametrize(
    "method",
    [
        Gegenbauer("monomial"),
        Gegenbauer(),
    ],
    ids=repr,
)
def test_features_of_functions_of_ones_own_are_unbiased(method):
    """Definition 8 with h_l as given; rows to come have radii that the map has not seen."""
    X = rows(12, seed=8)
    phi = drawn((OWN, method))
    assert phi.unbiased
    assert phi.left_out(X).max() == 0
    assert biased(phi, OWN, X) < 1


def test_functions_of_ones_own_term_by_term():
    X = rows(12)
    phi = draw(OWN, Gegenbauer(), n_features=20, n_inputs=3, random_state=0)  # no rows are needed
    r = np.linalg.norm(X, axis=1)
    P = gegenbauers(2, 3, X @ phi.directions / r[:, None])
    h = [OWN.radial(l, r) for l in range(3)]
    parts = [
        sum(n_harmonics(l, 3) ** 0.5 * h[l][:, [i]] * P[l] for l in range(3) if i < h[l].shape[1])
        for i in range(2)
    ]
    assert_close(phi(X), np.concatenate(parts, axis=1) / 10**0.5, factor=4)
    double = draw(2.0 * OWN, Gegenbauer(), n_features=20, n_inputs=3, random_state=0)
    assert double.unbiased
    assert_close(double(X), 2.0**0.5 * phi(X), factor=4)


def test_of_one_column_functions_of_ones_own_end_at_degree_one():
    X = np.random.default_rng(0).normal(size=(30, 1))
    phi = draw(OWN, Gegenbauer(), n_features=8, X=X, random_state=0)
    assert phi.unbiased
    assert_close(phi(X) @ phi(X).T, OWN(X), factor=8)
