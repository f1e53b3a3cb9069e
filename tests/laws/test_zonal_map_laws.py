"""Laws of Gegenbauer features and spherical harmonics of rotation-invariant kernels."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
import tolerance
from gallery import GEGENBAUER, ROTATION_INVARIANT, rows, sphere
from naive import n_harmonics
from scipy.special import gammainc, gammaincinv, ive
from tolerance import assert_close

from bochner import draw
from bochner.errors import FeatureWarning, UnsupportedKernel
from bochner.features import Gegenbauer, MercerHarmonic
from bochner.features.fourier.placements import IID, unit_directions
from bochner.kernels import (
    ArcCosine,
    DotExponential,
    Gaussian,
    GeneralizedZonal,
    Matern,
    Monomials,
    NeuralTangent,
    Polynomial,
    Zonal,
)
from bochner.kernels.series import gegenbauers, monomials

D = 48


def new_map(pair, seed=0, n_features=D, X=None):
    kernel, method = pair
    X = rows(60) if X is None else X
    return draw(kernel, method, n_features=n_features, X=X, random_state=seed)


def draw_maps(pair, count, n_features=D, X=None):
    """Return maps of several seeds, which differ only in their directions."""
    phi = new_map(pair, 0, n_features, X)
    streams = (np.random.default_rng(seed) for seed in range(count))
    d, m = phi.directions.shape
    if d == 1:  # the two directions alternate
        return [replace(phi, directions=rng.choice((-1, 1)) * phi.directions) for rng in streams]
    return [replace(phi, directions=unit_directions(IID(), d, m, rng)) for rng in streams]


def angles(phi, X):
    """Return cosines between the scaled rows of X, and their radii, in float64."""
    A = (X - phi.polar.centre) / phi.polar.scales
    r = np.linalg.norm(A, axis=1)
    return np.clip((A @ A.T) / np.outer(r, r), -1, 1), r


def truncated_kernel(phi, X):
    """Return the expectation of the features: Σ_l Σ_i h_{l,i}(x) h_{l,i}(y) P_l(cos)."""
    cos, r = angles(phi, X)
    K = np.zeros((len(X), len(X)))
    for l, h in zip(phi.radial.degrees.tolist(), phi.radial(r).T, strict=True):
        K += np.outer(h, h) * list(gegenbauers(l, phi.n_inputs, cos))[l]
    return K


# ---- definition 8


def steep(t):
    """Return two functions of radii that 64 quantiles of the radii do not resolve."""
    return np.stack([np.cos(40.0 * t), 0.3 + 0.0 * t], axis=1)


CUSTOM = GeneralizedZonal((steep, Monomials((1.0, 0.2), (1, 3)), lambda t: np.sin(30.0 * t)))


@pytest.mark.parametrize("kind", ["monomials", "user functions"])
def test_features_equal_the_terms_of_definition_8(kind):
    """Sums over l of √α_l h_{l,i}(|x|) P_l(⟨x, w⟩/|x|)."""
    X = rows(12)
    r = np.linalg.norm(X, axis=1)
    if kind == "monomials":
        phi = new_map((Gaussian(1.5), Gegenbauer("monomial", 2, 5)), n_features=20, X=X)
        h = monomials(Gaussian(1.5).zonal(3), 5, 2, r).transpose(0, 2, 1)
    else:
        phi = draw(CUSTOM, Gegenbauer(), n_features=20, n_inputs=3, random_state=0)  # without rows
        h = [CUSTOM.radial(l, r) for l in range(3)]
        double = draw(2.0 * CUSTOM, Gegenbauer(), n_features=20, n_inputs=3, random_state=0)
        assert_close(double(X), 2.0**0.5 * phi(X), factor=4)
    assert phi.directions.shape == (3, 10)
    P = list(gegenbauers(len(h) - 1, 3, X @ phi.directions / r[:, None]))
    slow = np.zeros((12, 2, 10))
    for l, values in enumerate(h):
        for i in range(values.shape[1]):
            slow[:, i] += n_harmonics(l, 3) ** 0.5 * values[:, [i]] * P[l]
    assert_close(phi(X), slow.reshape(12, -1) / 10**0.5, factor=4)


#: Radius whose remainder after degree 11 is 1.5e-12; twice the threshold would stop there.
AT_THE_EDGE = float(gammaincinv(12, 1.5e-12)) ** 0.5


@pytest.mark.parametrize("radius", [0.5, 1.0, 3.0, AT_THE_EDGE])
@pytest.mark.parametrize("n_features", [64, 4096])
def test_the_default_degree_is_the_first_of_negligible_remainder(radius, n_features):
    """The remainder of the Gaussian is P(Poisson(|x|²) > q), at most 1e-12 for any width."""
    X = sphere(50, radius)
    X[:25] *= 1 - 1e-3  # two radii need monomials; the 99th percentile is the larger one
    phi = draw(Gaussian(), Gegenbauer("monomial", 1), n_features=n_features, X=X, random_state=0)
    assert gammainc(phi.degree + 1, radius**2) <= 1e-12 < gammainc(phi.degree, radius**2)


SMOOTH = [Gaussian(), Gaussian(0.7), 2.0 * Gaussian(), DotExponential(), Polynomial(5)]


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("kernel", [*SMOOTH, NeuralTangent(2), ArcCosine(1)], ids=repr)
@pytest.mark.parametrize("radial", ["monomial", "optimal"])
def test_the_truncated_kernel_converges_with_the_order(kernel, d, radial):
    """With 16 optimal functions or 24 monomials; slow series are truncated at degree 48."""
    X = np.random.default_rng(0).uniform(-1.2, 1.2, (40, d))
    method = Gegenbauer(radial=radial, order=16 if radial == "optimal" else 24)
    phi = draw(kernel, method, n_features=960, X=X, random_state=0)
    K = kernel(X)
    slow = d > 1 and kernel not in SMOOTH
    assert np.abs(truncated_kernel(phi, X) - K).max() / np.abs(K).max() < (0.02 if slow else 1e-9)
    # The planted fault: one order only, though degrees end at one in one dimension.
    if d == 1 and kernel in SMOOTH:
        first = draw(kernel, replace(method, order=1), n_features=960, X=X, random_state=0)
        assert np.abs(truncated_kernel(first, X) - K).max() / np.abs(K).max() > 0.02


def test_features_of_one_column_are_exact():
    """e^{xy} = cosh + sinh: both directions, and as many orders as long rows need."""
    for kernel, method, D in (
        *(
            (kernel, Gegenbauer(radial), 256)
            for kernel in (*SMOOTH, NeuralTangent(2), ArcCosine(1))
            for radial in ("monomial", "optimal")
        ),
        (CUSTOM, Gegenbauer(), 8),
    ):
        X = np.random.default_rng(0).standard_normal((100, 1))
        Z, K = draw(kernel, method, n_features=D, X=X, random_state=0)(X), kernel(X)
        assert np.abs(Z @ Z.T - K).max() < 1e-9 * np.abs(K).max(), kernel


@pytest.mark.main_cases(2)
@pytest.mark.parametrize("D", [480, 2000])
@pytest.mark.parametrize("kernel", [Gaussian(), DotExponential(0.5)], ids=repr)
def test_the_default_order_minimises_bias_plus_noise(kernel, D):
    """Bias of the truncated kernel, and noise (s/D) k_s(x, x) k_s(y, y), of each order s."""
    X = np.random.default_rng(0).standard_normal((60, 3))
    maps = [
        draw(kernel, Gegenbauer("monomial", s, 30), n_features=D, X=X, random_state=0)
        for s in range(1, 17)
    ]
    cut = [truncated_kernel(phi, X) for phi in maps]
    bias = [np.mean((K - cut[-1]) ** 2) for K in cut]
    noise = [s / D * np.mean(np.diag(K)) ** 2 for s, K in enumerate(cut, 1)]
    phi = draw(kernel, Gegenbauer("monomial", degree=30), n_features=D, X=X, random_state=0)
    assert phi.order == 1 + np.argmin(np.add(bias, noise))


def test_defaults_of_large_remainder_warn():
    X = np.random.default_rng(0).standard_normal((100, 5))
    with pytest.warns(FeatureWarning, match=r"leave out \d+ % of k\(x, x\) in the mean"):
        phi = draw(Gaussian(), Gegenbauer(), n_features=256, X=X, random_state=0)
    errors = phi.truncation_error(X)
    assert_close(errors, np.diag(Gaussian()(X) - truncated_kernel(phi, X)), factor=10)
    assert errors.mean() > 0.01
    with warnings.catch_warnings(action="error", category=FeatureWarning):
        draw(Gaussian(), Gegenbauer(), n_features=256, X=sphere(100, 2.0), random_state=0)
        draw(Gaussian(), Gegenbauer(order=1, degree=2), n_features=256, X=X, random_state=0)


SEEDS = 120
COMPARISONS = 10 * (len(GEGENBAUER) + 8)


def bias(K, maps, X):
    return tolerance.bias(K, [phi(X) for phi in maps], COMPARISONS, factor=100)


@pytest.mark.main_cases(3)
@pytest.mark.statistical
@pytest.mark.parametrize("pair", GEGENBAUER, ids=repr)
def test_features_are_unbiased_for_the_truncated_kernel(pair):
    X = 0.7 * rows(5, seed=3)[:4]
    maps = draw_maps(pair, SEEDS)
    assert bias(truncated_kernel(maps[0], X), maps, X) < 1


@pytest.mark.statistical
def test_the_variance_on_the_sphere_equals_its_formula():
    """(1 − Σ c_l²/α_l)/D for uniform pairs on the sphere, within ten standard errors of 60 maps."""
    X, pairs = sphere(400, 1.5, seed=2), ~np.eye(400, dtype=bool)
    maps = draw_maps((Gaussian(), Gegenbauer(degree=12)), 60, 64, X)
    c = maps[0].radial(np.array([1.5]))[0] ** 2
    expected = (c.sum() ** 2 - (c**2 / (2 * maps[0].radial.degrees + 1)).sum()) / 64
    K = truncated_kernel(maps[0], X)
    errors = np.array([((phi(X) @ phi(X).T - K)[pairs] ** 2).mean() for phi in maps])
    allowed = 10 * errors.std() / 60**0.5
    assert allowed < 0.6 * expected
    assert abs(errors.mean() - expected) < allowed


@pytest.mark.parametrize("kernel", [Gaussian(), Matern(1.5)], ids=repr)
def test_rows_near_a_sphere_have_a_small_remainder(kernel):
    """Deviations of 1e-5 need no further order; with monomials 7 % of the kernel was lost."""
    X = sphere(200, 2.0)
    shell = X * (1 + 1e-5 * np.random.default_rng(1).standard_normal((200, 1)))
    phi = draw(kernel, Gegenbauer(), n_features=256, X=shell, random_state=0)
    first = draw(kernel, Gegenbauer(), n_features=256, X=X, random_state=0)
    assert phi.order == 1
    assert phi.truncation_error(shell).mean() < first.truncation_error(X).mean() + 1e-3


def test_a_row_of_zeros_has_degree_zero_only():
    X = rows(40)
    X[3] = 0
    phi = new_map((Gaussian(), Gegenbauer("monomial", 2, 4)), X=X)
    m = phi.directions.shape[1]
    assert_close(phi(X)[3], np.repeat([m**-0.5, 0.0], m))


D_MERCER = 40
ROUNDED = 1e-9
"""Rounding error of kernels, and of radial functions for small eigenvalues of R_l."""


def drawn_mercer(kernel, n_features=D_MERCER, X=None):
    X = rows(60) if X is None else X
    return draw(kernel, MercerHarmonic(), n_features=n_features, X=X, random_state=0)


def remainder(phi):
    """Return the mean remainder k(x, x) − |φ(x)|² over rows."""
    return float(phi.residual(rows(400, seed=2)).mean())


@pytest.mark.parametrize("kernel", ROTATION_INVARIANT, ids=repr)
def test_features_of_larger_radii_are_below_the_kernel(kernel):
    phi = drawn_mercer(kernel, X=rows(60, seed=5))
    Y = np.concatenate([2.5 * rows(20, seed=6), 10 * rows(5, seed=8)])
    Z, K = phi(Y), kernel(Y)
    low = np.linalg.eigvalsh((K - Z @ Z.T) / np.sqrt(np.outer(np.diag(K), np.diag(K))))[0]
    assert low > -len(Y) * (1e-4 * remainder(phi) / np.diag(K).min() + 1e-8)


def test_enough_features_reproduce_the_kernel():
    for kernel, D, factor in (
        (Polynomial(3), 200, 1e3),
        (Zonal((1.0, 0.5, 0.25)), 200, 1e3),
        (Zonal((0.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.5), power=2), 200, 1e3),
        (GeneralizedZonal((Monomials((1.0, 0.5), (0, 2)), Monomials((0.5,), (1,)))), 200, 1e3),
        (2.0 * Polynomial(2) + 0.5, 200, 1e3),
        *((k, 1500, 1e5) for k in (Gaussian(2.0), DotExponential(0.3), Gaussian((2.0, 3.0, 4.0)))),
    ):
        X, Y = rows(80), rows(20, seed=8)
        phi = drawn_mercer(kernel, n_features=D, X=X)
        assert phi.n_features < 200 or D > 200
        assert_close(phi(Y) @ phi(X).T, kernel(Y, X), factor=factor, label=kernel)


@pytest.mark.parametrize("radius", [0.5, 2.0, 30.0])
def test_rows_on_a_sphere_are_detected(radius):
    X = sphere(300, radius)
    kernel = Gaussian(radius / 2)
    phi = drawn_mercer(kernel, 121, X=X)
    assert phi.radial.nodes.tolist() == pytest.approx([2.0])  # in units of the lengthscale
    assert (phi.polar.centre == 0).all()
    assert sorted(phi.radial.degrees.tolist()) == list(range(11))
    K = kernel(X)
    for Z in (phi(X), phi(X.astype(np.float32)).astype(np.float64)):
        assert np.linalg.norm(K - Z @ Z.T) < 2e-5 * np.linalg.norm(K)
    assert len(drawn_mercer(kernel, 121, X=X.astype(np.float32)).radial.nodes) == 1


@pytest.mark.parametrize("d", [1, 2])
@pytest.mark.parametrize(
    ("kernel", "share"),
    [(Gaussian(0.7), 1e-5), (DotExponential(), 1e-5), (Matern(1.5), 0.03), (NeuralTangent(), 0.03)],
    ids=repr,
)
def test_features_in_one_and_two_columns_are_accurate(kernel, share, d):
    """Smooth kernels up to 1e-5; others up to 3 %, as their series decay slowly."""
    X, Y = rows(80)[:, :d], 0.6 * rows(30, seed=4)[:, :d]
    phi, K = drawn_mercer(kernel, 300, X=X), kernel(Y)
    E = K - phi(Y) @ phi(Y).T
    assert np.abs(E).max() < share * K.max()
    assert np.linalg.eigvalsh(E)[0] > -1e-3 * float(phi.residual(Y).mean()) - 1e-8 * np.trace(K)


@pytest.mark.parametrize(
    "kernel",
    [*(ROTATION_INVARIANT[i] for i in (0, 1, 5)), Polynomial(3), NeuralTangent(2)],
    ids=repr,
)
def test_rows_of_zeros_have_finite_features(kernel):
    X = rows(60)
    X[0] = 0
    phi = drawn_mercer(kernel, X=X)
    Z = phi(X)
    assert np.isfinite(Z).all()
    assert phi.residual(X)[0] >= 0
    zeros = np.zeros((5, 3))
    Z = drawn_mercer(kernel, X=zeros)(zeros)
    assert_close(Z @ Z.T, kernel(zeros), factor=10)


def test_more_columns_than_features_use_the_leading_axes():
    rng = np.random.default_rng(0)
    spread = np.concatenate([np.full(8, 2.0), np.full(42, 0.1)])
    X = (rng.standard_normal((300, 50)) * spread) @ np.linalg.qr(rng.standard_normal((50, 50)))[0]
    phi = drawn_mercer(Gaussian(8.0), 12, X=X)
    assert phi.n_features == 12
    assert phi.polar.axes.shape[1] < 15
    K, Z = Gaussian(8.0)(X), phi(X)
    assert np.linalg.eigvalsh(K - Z @ Z.T)[0] > -ROUNDED
    reversed_map = drawn_mercer(Gaussian(8.0), 12, X=X[:, ::-1])
    assert_close(reversed_map.residual(X[:, ::-1]), phi.residual(X), factor=1e3)
    assert np.linalg.norm(K - Z @ Z.T) < 0.1 * np.linalg.norm(K)


def test_wide_rows_without_correlation_raise_and_auto_uses_another_method():
    """784 columns, 40 lengthscales apart: the number of harmonics of some degrees overflows."""
    X = 1.5 * np.random.default_rng(0).standard_normal((100, 784))
    with pytest.raises(UnsupportedKernel, match=r"no degree has energy. Use a larger lengthscale"):
        draw(Gaussian(1.0), MercerHarmonic(), n_features=8, X=X)
    assert draw(Gaussian(1.0), "auto", n_features=8, X=X, random_state=0).n_features == 8


def test_a_homogeneous_kernel_needs_no_radii():
    phi = draw(NeuralTangent(), MercerHarmonic(), n_features=8, n_inputs=3)
    assert phi(rows(4)).shape == (4, 8)


def test_rows_far_away_are_centred():
    """At a distance of 10⁸ all radii are equal up to rounding; degrees around zero would be 10⁸."""
    X, K = rows(300), Gaussian(2.0)(rows(300))
    base, moved = (drawn_mercer(Gaussian(2.0), 100, X=X + shift) for shift in (0, 1e8))
    np.testing.assert_allclose(moved.polar.centre, X.mean(axis=0) + 1e8, rtol=1e-14)
    worst = [np.abs(p(A) @ p(A).T - K).max() for p, A in ((base, X), (moved, X + 1e8))]
    assert worst[1] < 1.01 * worst[0] + 1e-6  # the rows themselves are rounded to 1e-8
    on_sphere = sphere(300, 1.0)
    small_cap = on_sphere[on_sphere[:, 0] > 0.95]
    for S in (on_sphere, small_cap, small_cap.astype(np.float32)):
        assert (drawn_mercer(Gaussian(2.0), 100, X=S).polar.centre == 0).all()
    assert (drawn_mercer(Polynomial(2), X=X + 100.0).polar.centre == 0).all()


def test_degrees_are_added_until_the_width_is_reached():
    """For a short Gaussian on the sphere, 1,024 features are the degrees 0 to 31.

    On the unit sphere k = e^(−a) e^(a t), a = 1/ℓ², has (2l + 1) e^(−a) i_l(a) in degree l, with
    the modified spherical Bessel functions i_l.
    """
    X = np.random.default_rng(0).standard_normal((60, 3))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    phi = drawn_mercer(Gaussian(0.1), n_features=32**2, X=X)
    l, a = np.arange(32), 100.0
    energy = ((2 * l + 1) * np.sqrt(np.pi / (2 * a)) * ive(l + 0.5, a)).sum()
    assert phi.radial.degrees.max() == 31
    assert_close((phi(X) ** 2).sum(axis=1), np.full(60, energy), factor=1e4)


def test_axes_are_independent_of_signs_of_lapack(monkeypatch):
    X = rows(60)
    original = drawn_mercer(Gaussian(), X=X)(X)
    eigh = np.linalg.eigh

    def mirrored(A):
        values, vectors = eigh(A)
        return values, vectors * (-1.0) ** np.arange(len(values))

    monkeypatch.setattr(np.linalg, "eigh", mirrored)
    assert (drawn_mercer(Gaussian(), X=X)(X) == original).all()


@pytest.mark.parametrize("d", [3, 8])
@pytest.mark.parametrize(("kernel", "absent"), [(ArcCosine(0), 0), (ArcCosine(1), 1)])
def test_degrees_of_the_wrong_parity_are_zero(kernel, absent, d):
    """A step is ½ plus an odd function, max(0, x) is x/2 plus the even |x|/2."""
    degrees = np.arange(801)
    values = kernel.zonal(d).matrices(800, np.ones(1), np.ones(1))[:, 0, 0]
    forbidden = (degrees % 2 == absent) & (degrees > 1)
    assert not values[forbidden].any()
    assert (values[~forbidden & (degrees <= 30)] > 0).all()
