"""Laws of Mercer-harmonic features: deterministic, below the kernel, certified everywhere."""

import numpy as np
import pytest
from gallery import ROTATION_INVARIANT, rows
from scipy.special import ive
from tolerance import assert_close

from bochner.errors import InvalidInput, UnsupportedKernel
from bochner.features import MercerHarmonic, draw
from bochner.features.mercer.harmonic import MercerHarmonicMap
from bochner.kernels import (
    DotExponential,
    Gaussian,
    GeneralizedZonal,
    Laplace,
    Matern,
    Monomials,
    NeuralTangent,
    Polynomial,
    RationalQuadratic,
    Zonal,
)
from bochner.kernels.radial import radial_kernels

every_kernel = pytest.mark.parametrize("kernel", ROTATION_INVARIANT, ids=repr)
KINDS = [ROTATION_INVARIANT[i] for i in (0, 1, 5)] + [Polynomial(3), NeuralTangent(2)]
every_kind = pytest.mark.parametrize("kernel", KINDS, ids=repr)

D = 40
ROUNDED = 1e-9
"""Rounding of radial functions where eigenvalues of R_l are small, and of kernels."""


def drawn(kernel, n_features=D, X=None, **options):
    X = rows(60) if X is None else X
    return draw(kernel, MercerHarmonic(**options), n_features=n_features, X=X, random_state=0)


def on_sphere(n, radius, d=3, seed=0):
    X = np.random.default_rng(seed).standard_normal((n, d))
    return radius * X / np.linalg.norm(X, axis=1, keepdims=True)


# ---- below the kernel, and certified


def rest(phi):
    """What the features leave out of a row, in the mean."""
    return float(phi.residual(rows(400, seed=2)).mean())


@every_kernel
def test_rows_beyond_all_radii_seen_stay_below_the_kernel(kernel):
    phi = drawn(kernel, X=rows(60, seed=5))
    Y = np.concatenate([2.5 * rows(20, seed=6), 10 * rows(5, seed=8)])
    Z, K = phi(Y), kernel(Y)
    size = np.sqrt(np.outer(np.diag(K), np.diag(K)))
    low = np.linalg.eigvalsh((K - Z @ Z.T) / size)[0]
    assert low > -len(Y) * (1e-4 * rest(phi) / np.diag(K).min() + 1e-8)


def test_planted_fault_of_harmonics_not_orthonormal_is_above_the_kernel():
    """Without the α_l^{−1/2} the sum over a degree is α_l times too large."""
    X = rows(60)
    phi = drawn(Gaussian(), X=X)
    alphas = 2 * phi.radial.degrees + 1.0
    fault = MercerHarmonicMap(phi.kernel, phi.polar, phi.radial.times(alphas**0.5), phi.counts)
    lowest = [np.linalg.eigvalsh(phi.kernel(X) - p(X) @ p(X).T)[0] for p in (phi, fault)]
    assert lowest[1] < -0.1 < lowest[0]


# ---- complete where the kernel is


@pytest.mark.parametrize(
    "kernel",
    [
        Polynomial(3),
        Zonal((1.0, 0.5, 0.25)),
        Zonal((0.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.5), power=2),
        GeneralizedZonal((Monomials((1.0, 0.5), (0, 2)), Monomials((0.5,), (1,)))),
        2.0 * Polynomial(2) + 0.5,
    ],
    ids=repr,
)
def test_a_finite_kernel_is_met_exactly(kernel):
    X, Y = rows(60), rows(20, seed=8)
    phi = drawn(kernel, n_features=200, X=X)
    assert phi.n_features < 200
    assert_close(phi(Y) @ phi(X).T, kernel(Y, X), factor=1e3)


@pytest.mark.parametrize("kernel", [Gaussian(2.0), DotExponential(0.3), Gaussian((2.0, 3.0, 4.0))])
def test_enough_blocks_are_the_kernel(kernel):
    X, Y = rows(80), rows(20, seed=8)
    phi = drawn(kernel, n_features=1500, X=X)
    assert_close(phi(Y) @ phi(X).T, kernel(Y, X), factor=1e5)


@pytest.mark.parametrize("radius", [0.5, 2.0, 30.0])
def test_rows_on_a_sphere_are_recognised(radius):
    X = on_sphere(300, radius)
    kernel = Gaussian(radius / 2)
    phi, told = drawn(kernel, 121, X=X), MercerHarmonic(radius=radius)
    told = draw(kernel, told, n_features=121, n_inputs=3, random_state=0)
    assert phi.radial.nodes.tolist() == pytest.approx([2.0])  # in units of the lengthscale
    assert (phi.polar.centre == 0).all()
    assert sorted(phi.radial.degrees.tolist()) == list(range(11))
    K = kernel(X)
    for Z in (phi(X), told(X), phi(X.astype(np.float32)).astype(np.float64)):
        assert np.linalg.norm(K - Z @ Z.T) < 2e-5 * np.linalg.norm(K)
    single = drawn(kernel, 121, X=X.astype(np.float32))
    assert len(single.radial.nodes) == 1


def test_the_error_is_near_the_best_of_its_width():
    X = rows(1000, seed=1)
    K = Gaussian()(X)
    best = np.sqrt((np.linalg.eigvalsh(K)[:-128] ** 2).sum())
    Z = drawn(Gaussian(), 128, X=X)(X)
    assert np.linalg.norm(K - Z @ Z.T) < 6 * best


# ---- width, order, special cases


@every_kernel
def test_a_wider_map_begins_with_the_narrow_one(kernel):
    X = rows(60)
    narrow, wide = drawn(kernel, 20, X=X), drawn(kernel, 40, X=X)
    width = narrow.n_features
    size = np.sqrt(kernel.diag(X).max())
    assert np.abs(wide(X)[:, :width] - narrow(X)).max() < 1e-3 * size * max(rest(narrow), 1e-6)


@every_kernel
def test_features_come_in_the_order_of_their_energy(kernel):
    X = rows(2000, seed=3)
    phi = drawn(kernel, 60, X=X)
    energy = (phi.radial(phi.polar(X)[1]) ** 2).mean(axis=0)
    assert (energy[1:] <= 1.1 * energy[:-1] + ROUNDED).all()


@pytest.mark.parametrize("d", [1, 2])
@pytest.mark.parametrize(
    ("kernel", "share"),
    [(Gaussian(0.7), 1e-5), (DotExponential(), 1e-5), (Matern(1.5), 0.03), (NeuralTangent(), 0.03)],
)
def test_lines_and_planes(kernel, share, d):
    """Smooth kernels are met; of the others a share is left, as their series fall slowly."""
    X, Y = rows(80)[:, :d], 0.6 * rows(30, seed=4)[:, :d]
    phi = drawn(kernel, 300, X=X)
    K = kernel(Y)
    E = K - phi(Y) @ phi(Y).T
    assert np.abs(E).max() < share * K.max()
    assert np.linalg.eigvalsh(E)[0] > -1e-3 * float(phi.residual(Y).mean()) - 1e-8 * np.trace(K)


@every_kind
def test_a_row_of_zeros_and_rows_of_zeros_only(kernel):
    X = rows(60)
    X[0] = 0
    phi = drawn(kernel, X=X)
    Z = phi(X)
    assert np.isfinite(Z).all()
    assert phi.residual(X)[0] >= 0
    nothing = np.zeros((5, 3))
    Z = drawn(kernel, X=nothing)(nothing)
    assert_close(Z @ Z.T, kernel(nothing), factor=10)


def test_more_columns_than_features_take_the_leading_axes():
    rng = np.random.default_rng(0)
    spread = np.concatenate([np.full(8, 2.0), np.full(42, 0.1)])
    X = (rng.standard_normal((300, 50)) * spread) @ np.linalg.qr(rng.standard_normal((50, 50)))[0]
    phi = drawn(Gaussian(8.0), 12, X=X)
    assert phi.n_features == 12
    assert phi.polar.axes.shape[1] < 15
    K, Z = Gaussian(8.0)(X), phi(X)
    assert np.linalg.eigvalsh(K - Z @ Z.T)[0] > -ROUNDED
    turned = drawn(Gaussian(8.0), 12, X=X[:, ::-1])
    assert_close(turned.residual(X[:, ::-1]), phi.residual(X), factor=1e3)
    assert np.linalg.norm(K - Z @ Z.T) < 0.1 * np.linalg.norm(K)


def test_kernels_of_the_distance_are_centred_and_others_not():
    X = rows(60) + 100.0
    far, near = drawn(Gaussian(), X=X), drawn(Gaussian(), X=X - 100.0)
    assert_close(far(X), near(X - 100.0), factor=1e4)
    assert (drawn(Polynomial(2), X=X).polar.centre == 0).all()


# ---- refusals


def test_wide_rows_that_the_kernel_does_not_relate_are_refused_and_auto_goes_on():
    """784 columns, 40 lengthscales apart: harmonics of some degrees are more than floats go to."""
    X = 1.5 * np.random.default_rng(0).standard_normal((100, 784))
    with pytest.raises(UnsupportedKernel, match=r"no degree has energy. Take a larger lengthscale"):
        draw(Gaussian(1.0), MercerHarmonic(), n_features=8, X=X)
    assert draw(Gaussian(1.0), "auto", n_features=8, X=X, random_state=0).n_features == 8


def test_rows_too_far_apart_for_the_kernel_are_told_soon(monkeypatch):
    """Rows 1e8 lengthscales apart: thousands of degrees would take a minute to find nothing."""
    by_distance = type(radial_kernels(RationalQuadratic(), 7))
    seen, made = [], by_distance.matrices
    spy = lambda self, degree, r, s: (seen.append(degree), made(self, degree, r, s))[1]
    monkeypatch.setattr(by_distance, "matrices", spy)
    X = 1e8 * np.random.default_rng(0).standard_normal((30, 7))
    with pytest.raises(UnsupportedKernel, match="no degree has energy"):
        draw(RationalQuadratic(1.0, 2.0), MercerHarmonic(), n_features=2, X=X)
    assert max(seen) == 255
    seen.clear()
    draw(RationalQuadratic(1.0, 2.0) + 1.0, MercerHarmonic(), n_features=8, X=X)
    assert max(seen) == 255


def test_kernels_that_are_not_rotation_invariant_are_refused_with_names():
    with pytest.raises(UnsupportedKernel, match=r"MercerHarmonic requires a rotation-invariant"):
        drawn(Laplace())


def test_radii_must_be_known():
    with pytest.raises(InvalidInput, match=r"MercerHarmonic takes its radial functions.*radius="):
        draw(Gaussian(), MercerHarmonic(), n_features=8, n_inputs=3)
    phi = draw(NeuralTangent(), MercerHarmonic(), n_features=8, n_inputs=3)
    assert phi(rows(4)).shape == (4, 8)


@pytest.mark.parametrize("options", [{"nodes": 0}, {"radius": 0.0}, {"radius": -1.0}])
def test_arguments_of_the_method_are_checked(options):
    with pytest.raises(InvalidInput, match=r"MercerHarmonic: (nodes|radius) must be"):
        MercerHarmonic(**options)


# ---- one map for all: blocks, libraries, precisions, files


def test_rows_far_away_do_not_lie_on_a_sphere_about_zero():
    """10⁸ away all radii are equal to rounding; harmonics about zero would have to be of 10⁸."""
    X = np.random.default_rng(0).standard_normal((300, 3))
    near = draw(Gaussian(2.0), MercerHarmonic(), n_features=100, X=X, random_state=0)
    far = draw(Gaussian(2.0), MercerHarmonic(), n_features=100, X=X + 1e8, random_state=0)
    np.testing.assert_allclose(far.polar.centre, X.mean(axis=0) + 1e8, rtol=1e-14)
    worst = [
        np.abs(phi(A) @ phi(A).T - Gaussian(2.0)(X)).max() for phi, A in ((near, X), (far, X + 1e8))
    ]
    assert worst[1] < 1.01 * worst[0] + 1e-6  # the rows themselves are rounded to 1e-8
    on_sphere = X / np.linalg.norm(X, axis=1, keepdims=True)
    small_cap = on_sphere[on_sphere[:, 0] > 0.95]
    for S in (on_sphere, small_cap, small_cap.astype(np.float32)):
        phi = draw(Gaussian(2.0), MercerHarmonic(), n_features=100, X=S, random_state=0)
        assert (phi.polar.centre == 0).all()


# ---- how far degrees are sought


def test_degrees_are_sought_until_the_width_is_filled():
    """A short Gaussian on the sphere: 1,024 features are degrees 0 to 31, whose energy is printed.

    On the unit sphere k = e^(−a) e^(a t), a = 1/ℓ², has (2l + 1) e^(−a) i_l(a) in degree l, i_l the
    modified spherical Bessel functions.
    """
    X = np.random.default_rng(0).standard_normal((60, 3))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    phi = drawn(Gaussian(0.1), n_features=32**2, X=X)
    l, a = np.arange(32), 100.0
    energy = ((2 * l + 1) * np.sqrt(np.pi / (2 * a)) * ive(l + 0.5, a)).sum()
    assert phi.radial.degrees.max() == 31
    assert_close((phi(X) ** 2).sum(axis=1), np.full(60, energy), factor=1e4)


def test_axes_do_not_have_the_signs_of_lapack(monkeypatch):
    X = rows(60)
    before = drawn(Gaussian(), X=X)(X)
    eigh = np.linalg.eigh

    def mirrored(A):
        values, vectors = eigh(A)
        return values, vectors * (-1.0) ** np.arange(len(values))

    monkeypatch.setattr(np.linalg, "eigh", mirrored)
    assert (drawn(Gaussian(), X=X)(X) == before).all()
