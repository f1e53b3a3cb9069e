"""Kernels and spectral densities to thirty digits, and errors of sampled frequencies."""

import math
from itertools import product

import array_api_strict
import mpmath
import naive
import numpy as np
import pytest
import torch
from naive import kernel_matrix
from scipy.integrate import quad
from scipy.sparse import csr_array
from tolerance import assert_close, bernstein_bar

import bochner as bo
from bochner import draw
from bochner.features import IID, QMC, Fourier, HistogramSampling
from bochner.features.fourier.fourier import best_step, sampling_error
from bochner.kernels import Cauchy, Gaussian, Laplace, Matern, RationalQuadratic, SkewedChi2
from bochner.kernels.algebra import kernel_matrix as in_bands
from bochner.kernels.stationary_families import harmonic_law

DISTANCES = (0.1, 0.7, 1.3, 2.0, 5.0)
RADIAL = [Gaussian(), bo.kernels.Exponential(), *map(RationalQuadratic, (0.8, 2.5))]
RADIAL += [*map(Matern, (0.8, 1.5, 2.5, 3.5, 3.7, 7.3, 40.0))]


@pytest.mark.parametrize("kernel", RADIAL, ids=repr)
def test_a_mixture_of_gaussians_over_its_spectrum_is_the_kernel(kernel):
    """By quadrature over quantiles of the factor of the Gaussian vector."""
    mixing = kernel.spectral(1).law
    # The integrand falls to zero in a corner at u = 1, where the factor is unbounded.
    options = dict(epsabs=1e-12, limit=200, points=1 - np.logspace(-8, -1, 8))
    for r in DISTANCES:
        gaussian = lambda u, r=r: math.exp(-0.5 * r * r * mixing.quantile(np.float64(u)))
        assert quad(gaussian, 0, 1, **options)[0] == pytest.approx(at(kernel, r), abs=1e-8)


@pytest.mark.parametrize("kernel", [Laplace(), Cauchy(), SkewedChi2()], ids=repr)
def test_the_transform_of_a_coordinate_density_is_the_kernel(kernel):
    """By quadrature; quantiles invert the distribution function."""
    law = getattr(kernel, "spectral_of_logs", kernel.spectral)(1).law
    density = lambda t: math.exp(law.log_density(np.float64(t)))
    for r in DISTANCES:
        half, _ = quad(density, 0, np.inf, weight="cos", wvar=r)
        value = 1 / math.cosh(r / 2) if isinstance(kernel, SkewedChi2) else at(kernel, r)
        assert 2 * half == pytest.approx(value, abs=1e-8)
    for u in (0.01, 0.3, 0.5, 0.9):
        mass, _ = quad(density, -np.inf, float(law.quantile(np.float64(u))))
        assert mass == pytest.approx(u, abs=1e-8)
    if law.second_moment < math.inf:
        second, _ = quad(lambda c: c * c * density(c), -np.inf, np.inf)
        assert second == pytest.approx(law.second_moment, abs=1e-8)


@pytest.mark.parametrize("d", [1, 3])
@pytest.mark.parametrize("kernel", RADIAL, ids=repr)
def test_the_spectral_density_is_the_mixture_of_gaussians(kernel, d):
    """p(ω) = E (2πs²)^(−d/2) exp(−|ω|²/(2s²)), by quadrature over quantiles of s²."""
    measure = kernel.spectral(d)
    q = 1.7

    def gaussian(u):
        s2 = float(measure.law.quantile(np.float64(u)))
        return (2 * math.pi * s2) ** (-d / 2) * math.exp(-q / (2 * s2)) if s2 > 0 else 0.0

    expected, _ = quad(gaussian, 0, 1, epsabs=1e-10)
    density = math.exp(measure.log_density(np.full((1, d), math.sqrt(q / d)))[0])
    assert density == pytest.approx(expected, abs=1e-8)


def test_second_moments_of_spectra_have_their_known_values():
    assert Gaussian((1.0, 2.0)).spectral(2).second_moment == 1.25
    assert Matern(1.5).spectral(4).second_moment == pytest.approx(12.0)
    assert Matern(1.0).spectral(4).second_moment == math.inf
    assert RationalQuadratic(0.3, 2.0).spectral(4).second_moment == 1.0
    assert Laplace().spectral(2).second_moment == math.inf
    assert Cauchy(2.0).spectral(2).second_moment == pytest.approx(1.0)


SMOOTH = [0.1, 0.3, 0.5, 1.0, 2.0, 6.5, 7.5, 20.0, 29.9, 30.1, 50.0, 100.0]
SMOOTH += [3.0, 4.5, 5.0, 5.5, 7.0, 9.0, 11.0, 13.0]  # closed forms exist only for half-integers


@pytest.mark.parametrize("kernel", [*map(Matern, SMOOTH), *RADIAL, Cauchy(), Laplace()], ids=repr)
def test_values_are_accurate_at_any_distance(kernel):
    """Closed forms, Bessel functions and Debye's expansion are compared with fifty digits."""
    r = np.concatenate([[0.0, 1e-100, 1e-12, 1e-6], np.geomspace(1e-4, 40.0, 12)])[:, None]
    zero = np.zeros((1, 1))
    with mpmath.workdps(50):
        expected = kernel_matrix(kernel, r, zero)
    np.testing.assert_allclose(kernel(r, zero), expected, rtol=1e-12, atol=2e-13)


@pytest.mark.parametrize("n", [40, 512, 700])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_matrix_of_a_sum_in_bands_equals_one_call(n, dtype):
    X = np.random.default_rng(0).standard_normal((n, 3)).astype(dtype)
    total = Gaussian(0.7) + 0.5 * bo.kernels.Linear()
    lines = (0,), ((-1.0, 0.0, 2.0),), ((0.0, 1.0, 2.0),)
    warped = bo.kernels.Monotone(bo.kernels.Columns(total, (0, 2)), *lines)
    for kernel, rows in product((total, warped), (X, csr_array(X))):
        K = in_bands(kernel, rows)
        assert K.dtype == dtype
        assert K.flags.c_contiguous
        np.testing.assert_array_equal(K, K.T)
        np.testing.assert_allclose(K, kernel(rows), atol=50 * np.abs(K).max() * np.finfo(dtype).eps)
    np.testing.assert_array_equal(in_bands(Laplace(2.0), X), Laplace(2.0)(X))


@pytest.mark.parametrize("share", [2.0**-7, 2.0**-9, 2.0**-12, 2.0**-20, 2.0**-40])
def test_distances_of_near_rows_are_accurate_in_each_library(share):
    """``share`` is |x − y|²/(|x|² + |y|²): by products, share/ε of its digits remain.

    Below 2^−8 (256 roundings) rows are subtracted; k = exp(−r/ℓ) with r = ℓ.
    """
    rng, d = np.random.default_rng(0), 20
    X = rng.standard_normal((30, d))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    steps = rng.standard_normal((30, d))
    steps *= math.sqrt(2 * share) / np.linalg.norm(steps, axis=1, keepdims=True)
    Y = np.concatenate([X + steps, -X - steps])  # the mean is zero, so centring changes nothing
    r = np.linalg.norm(X - Y[:30], axis=1)
    scale = math.sqrt(2 * share)
    K = bo.kernels.Exponential(scale)(torch.asarray(X), torch.asarray(Y)).numpy()
    values = np.diag(K[:, :30])
    rounding = np.spacing(1.0) / scale  # rounding error of x in units of r
    allowed = 2 * rounding + 600 * np.finfo(float).eps
    np.testing.assert_allclose(values, np.exp(-r / scale), rtol=allowed)


def at(kernel, r):
    return kernel(np.array([[r]]), np.zeros((1, 1)))[0, 0]


@pytest.mark.parametrize("lengthscale", [0.05, 0.8, 20.0])
def test_a_periodic_kernel_is_its_fourier_series(lengthscale):
    law = harmonic_law((1 / lengthscale**2,))
    harmonics = np.arange(-400.0, 401.0)
    weights = np.exp(law.log_density(harmonics))
    for x in (0.0, 0.37, 1.4):
        series = (weights * np.cos(2 * np.pi * harmonics * x / 1.5)).sum()
        assert series == pytest.approx(at(bo.kernels.Periodic(1.5, lengthscale), x), abs=1e-13)
    assert (weights * harmonics**2).sum() == pytest.approx(law.second_moment[0], rel=1e-10)
    assert law.log_density(np.array([0.5]))[0] == -math.inf


@pytest.mark.statistical
@pytest.mark.parametrize("concentration", [0.01, 1.5, 300.0])
def test_samples_and_quantiles_of_a_harmonic_law_have_its_weights(concentration):
    law, m = harmonic_law((concentration,)), 20_000
    sample = law.sample(np.random.default_rng(0), m)
    quantiles = law.quantile((np.arange(m)[:, None] + 0.5) / m)
    for k in (0, 1, 2, 15):
        p = math.exp(law.log_density(np.array([float(k)]))[0])
        assert abs((sample == k).mean() - p) < bernstein_bar(12, math.sqrt(p * (1 - p)), 1.0, m)
        assert abs((quantiles == k).mean() - p) < 2 / m


PERIODS = (1e-2, 1e-4, 1e-7, (3e-3, 5.0))
FAST = [bo.kernels.Periodic(p, lengthscale) for p in PERIODS for lengthscale in (0.3, 1.0, 5.0)]
"""Kernels whose rows are hundreds or millions of periods apart."""

PEAKS = [
    bo.kernels.SpectralMixture((1.0, 2.0), (0.0, 2 * math.pi / p), (1.0, 0.1)) for p in (1e-2, 1e-4)
]


def spread(n, dtype, size=3.0):
    return (size * np.random.default_rng(n).normal(size=(n, 2))).astype(dtype)


@pytest.mark.parametrize("kernel", FAST + PEAKS, ids=repr)
@pytest.mark.parametrize("offset", [0.0, 1e3])
def test_float32_is_accurate_for_rows_many_periods_apart(kernel, offset):
    X, Y = (spread(n, np.float32) + np.float32(offset) for n in (20, 11))
    K = kernel(X, Y)
    assert K.dtype == np.float32
    expected = kernel(X.astype(np.float64), Y.astype(np.float64))
    assert_close(K, expected, np.float32)
    for xp in (torch, array_api_strict):
        assert_close(kernel(xp.asarray(X), xp.asarray(Y)), expected, np.float32)


@pytest.mark.parametrize("kernel", FAST, ids=repr)
def test_a_periodic_kernel_is_accurate_over_many_periods(kernel):
    """The error is 2π ε/ℓ of a phase, however many periods are between the rows."""
    X, Y = spread(6, np.float64, 1e6), spread(5, np.float64, 1e6)
    with mpmath.workdps(60):
        expected = [[float(naive.value(kernel, x, y)) for y in Y.tolist()] for x in X.tolist()]
    assert_close(kernel(X, Y), expected)


@pytest.mark.parametrize("r", [0.0, 0.7, 2.0])
def test_the_transform_of_a_mixture_density_is_the_kernel(r):
    kernel = bo.kernels.SpectralMixture((2.0, 1.0), (0.5, 3.0), (0.5, 1.5))
    measure = kernel.spectral(1)

    def wave(w):
        return math.exp(measure.log_density(np.array([[w]]))[0]) * math.cos(w * r)

    value, _ = quad(wave, -20, 20, limit=200)
    assert value == pytest.approx(at(kernel, r), abs=1e-9)


ADDITIVE = [bo.kernels.AdditiveChi2(), bo.kernels.Intersection(), bo.kernels.JensenShannon()]


def shares(n, d=3, seed=0):
    """Return rows that sum to one, with zeros."""
    X = np.random.default_rng(seed).gamma(0.5, size=(n, d))
    X *= np.arange(n * d).reshape(n, d) % 7 > 0
    return X / X.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("kernel", ADDITIVE, ids=repr)
@pytest.mark.parametrize("t", [0.0, 0.5, 3.0])
def test_the_spectrum_is_the_transform_of_the_signature(kernel, t):
    weight = dict(weight="cos", wvar=t) if t else {}
    half, _ = quad(kernel.spectrum, 0, np.inf, **weight)
    assert 2 * half == pytest.approx(float(kernel.term(np.exp(-t / 2), np.exp(t / 2))), abs=1e-7)


@pytest.mark.parametrize("kernel", ADDITIVE, ids=repr)
@pytest.mark.parametrize("width", [3, 9, 17, 60])
def test_errors_of_features_are_within_the_bound(kernel, width):
    X = shares(40)
    phi = draw(kernel, HistogramSampling(), n_features=width, n_inputs=3)
    assert width - 6 < phi.n_features <= width
    bound = sampling_error(kernel, phi.terms, phi.step) * np.maximum(X[:, None], X[None]).sum(2)
    tail = 2 * math.exp(-0.5 * 12.5)  # the bound covers |log y/x| up to 12.5
    assert (np.abs(phi(X) @ phi(X).T - kernel(X)) <= 1.01 * bound + tail).all()


@pytest.mark.parametrize(
    ("terms", "published", "largest"), [(1, 0.8, 0.032), (2, 0.5, 0.013), (3, 0.4, 0.006)]
)
def test_the_sampling_step_is_optimal_and_better_than_the_published_one(terms, published, largest):
    kernel = bo.kernels.AdditiveChi2()
    error = sampling_error(kernel, terms, best_step(kernel, terms))
    steps = np.geomspace(0.05, 3, 500)
    assert error <= min(sampling_error(kernel, terms, other) for other in steps) + 1e-4
    assert error < largest < sampling_error(kernel, terms, published)


@pytest.mark.statistical
@pytest.mark.parametrize("method", [Fourier(IID()), Fourier(QMC())], ids=repr)
def test_features_of_the_skewed_kernel_are_unbiased(method):
    """The limit is Bernstein's for 40,000 cosines; the planted fault is another skew."""
    X, kernel, m = shares(6), SkewedChi2(0.2), 40_000
    Z = draw(kernel, method, n_features=2 * m, n_inputs=3, random_state=0)(X)
    bar = bernstein_bar(36 * 3, 1.0, 2.0, m)
    assert np.abs(Z @ Z.T - kernel(X)).max() < bar < np.abs(Z @ Z.T - SkewedChi2(0.4)(X)).max()


def test_the_tuned_skew_is_as_good_as_the_best_of_a_grid():
    """For waves of log(x + 0.05), errors on the grid are 0.08 to 1.2; the default of 1 has 0.4."""
    rng, X, new = np.random.default_rng(0), shares(200, 4), shares(500, 4, seed=1)
    y, truth = (np.sin(2 * np.log(Z + 0.05)).sum(axis=1) for Z in (X, new))
    y += 0.1 * rng.standard_normal(200)
    fit = lambda skew: bo.KernelRidge(SkewedChi2(skew), random_state=0).fit(X, y)
    error = lambda skew: np.sqrt(np.mean((fit(skew).predict(new) - truth) ** 2))
    errors = [error(skew) for skew in np.geomspace(0.003, 10, 8)]
    assert error("auto") < 1.1 * min(errors) < 0.5 * error(1.0)
