"""Kernels of stable laws and of spectra with peaks: thirty digits, and what their laws promise."""

import math

import array_api_strict
import mpmath
import naive
import numpy as np
import pytest
import torch
from scipy.integrate import quad
from tolerance import assert_close, bernstein_bar, of

from bochner.errors import InvalidInput, NotPositive
from bochner.features import IID, QMC, Fourier, draw
from bochner.kernels import (
    Exponential,
    ExponentialPower,
    Gaussian,
    Periodic,
    SpectralMixture,
)
from bochner.kernels.stationary_families import HarmonicLaw, Stable


def at(kernel, r):
    return kernel(np.array([[r]]), np.zeros((1, 1)))[0, 0]


def test_periodic_at_the_reference_point():
    expected = 0.071926907226774942054200528347825
    assert at(Periodic(1.0, 0.8), 0.37) == pytest.approx(expected, rel=of(np.float64))


def test_periodic_weight_at_the_reference_point():
    law = Periodic(1.0, 0.8).spectral_measure(1).law
    expected = 0.019360809686216947476418756446460
    assert math.exp(law.log_density(np.array([3.0]))[0]) == pytest.approx(expected, rel=1e-13)
    assert math.exp(law.log_density(np.array([-3.0]))[0]) == pytest.approx(expected, rel=1e-13)
    assert law.log_density(np.array([0.5]))[0] == -math.inf


@pytest.mark.parametrize("lengthscale", [0.05, 0.8, 20.0])
def test_a_periodic_kernel_is_its_fourier_series(lengthscale):
    law = HarmonicLaw((1 / lengthscale**2,))
    whole = np.arange(-400.0, 401.0)
    weights = np.exp(law.log_density(whole))
    for x in (0.0, 0.37, 1.4):
        series = (weights * np.cos(2 * np.pi * whole * x / 1.5)).sum()
        assert series == pytest.approx(at(Periodic(1.5, lengthscale), x), abs=1e-13)
    assert (weights * whole**2).sum() == pytest.approx(law.second_moment[0], rel=1e-10)


@pytest.mark.statistical
@pytest.mark.parametrize("concentration", [0.01, 1.5, 300.0])
def test_samples_and_quantiles_of_a_harmonic_law_have_its_weights(concentration):
    law, m = HarmonicLaw((concentration,)), 20_000
    drawn = law.sample(np.random.default_rng(0), m)
    placed = law.quantile((np.arange(m) + 0.5) / m)
    for k in (0, 1, 2, 15):
        p = math.exp(law.log_density(np.array([float(k)]))[0])
        bar = bernstein_bar(12, math.sqrt(p * (1 - p)), 1.0, m)
        assert abs((drawn == k).mean() - p) < bar
        assert abs((placed == k).mean() - p) < 2 / m


FAST = [
    Periodic(period, lengthscale)
    for period in (1e-2, 1e-4, 1e-7, (3e-3, 5.0))
    for lengthscale in (0.3, 1.0, 5.0)
]
"""Rows are hundreds, or millions, of periods apart."""

PEAKS = [SpectralMixture((1.0, 2.0), (0.0, 2 * math.pi / p), (1.0, 0.1)) for p in (1e-2, 1e-4)]


def spread(n, dtype, size=3.0):
    return (size * np.random.default_rng(n).normal(size=(n, 2))).astype(dtype)


@pytest.mark.parametrize("kernel", FAST + PEAKS, ids=repr)
@pytest.mark.parametrize("offset", [0.0, 1e3])
def test_float32_rows_many_periods_apart_have_the_kernel_of_float64(kernel, offset):
    X, Y = (spread(n, np.float32) + np.float32(offset) for n in (20, 11))
    K = kernel(X, Y)
    assert K.dtype == np.float32
    expected = kernel(X.astype(np.float64), Y.astype(np.float64))
    assert_close(K, expected, np.float32)
    for xp in (torch, array_api_strict):
        assert_close(kernel(xp.asarray(X), xp.asarray(Y)), expected, np.float32)


@pytest.mark.parametrize("kernel", FAST, ids=repr)
def test_a_periodic_kernel_of_many_periods_has_thirty_digits(kernel):
    """2π ε/ℓ from phases within a period, however many lie between: no digit is lost by them."""
    X, Y = spread(6, np.float64, 1e6), spread(5, np.float64, 1e6)
    with mpmath.workdps(60):
        expected = [[float(naive.value(kernel, x, y)) for y in Y.tolist()] for x in X.tolist()]
    assert_close(kernel(X, Y), expected)


@pytest.mark.parametrize("kernel", FAST, ids=repr)
@pytest.mark.parametrize("method", [Fourier(IID()), Fourier(QMC(), "phase")], ids=repr)
def test_float32_rows_many_periods_apart_have_the_features_of_float64(kernel, method):
    """Also where most of the frequencies are zero, as at lengthscale 5."""
    phi = draw(kernel, method, n_features=64, n_inputs=2, random_state=0)
    X = spread(20, np.float32)
    limit = 1024 * 2.0**-24 * 8  # of angles that float32 may have
    assert np.abs(phi(X) - phi(X.astype(np.float64))).max() < limit


@pytest.mark.parametrize("placement", [IID(), QMC()], ids=repr)
def test_frequencies_of_a_periodic_kernel_are_harmonics(placement):
    kernel = Periodic((2.0, 0.5), (0.4, 3.0))
    phi = draw(kernel, Fourier(placement), n_features=64, n_inputs=2, random_state=0)
    harmonics = phi.frequencies / (2 * np.pi) * np.array([[2.0], [0.5]])
    assert_close(harmonics, np.rint(harmonics))
    assert np.abs(harmonics[0]).max() > np.abs(harmonics[1]).max()


# ---- exponential power


def test_powers_one_and_two_are_exponential_and_gaussian():
    X, Y = (
        np.random.default_rng(0).normal(size=(9, 2)),
        np.random.default_rng(1).normal(size=(5, 2)),
    )
    assert_close(ExponentialPower(1.0, 2.0)(X, Y), Exponential(2.0)(X, Y))
    assert_close(ExponentialPower(2.0, 2.0)(X, Y), Gaussian(2.0 / math.sqrt(2))(X, Y))
    law, q = ExponentialPower(2.0, 2.0).spectral_measure(3), Gaussian(2**0.5).spectral_measure(3)
    W = np.random.default_rng(0).normal(size=(4, 3))
    assert_close(law.log_density(W), q.log_density(W))
    assert law.second_moment == pytest.approx(q.second_moment)


@pytest.mark.parametrize("power", [0.4, 1.0, 1.5, 1.9])
def test_mixtures_of_gaussians_by_stable_factors_are_the_kernel(power):
    law = Stable(power)
    u = np.concatenate(
        [
            [0],
            np.logspace(-10, -1, 20),
            np.linspace(0.15, 0.9, 9),
            1 - np.logspace(-1.2, -12, 25),
            [1],
        ]
    )
    nodes, weights = np.polynomial.legendre.leggauss(8)
    middle, half = (u[1:] + u[:-1]) / 2, np.diff(u) / 2
    points = middle[:, None] + half[:, None] * nodes
    factors = law.quantile(points)
    for r in (0.1, 1.0, 3.0):
        total = (half[:, None] * weights * np.exp(-0.5 * factors * r * r)).sum()
        assert total == pytest.approx(at(ExponentialPower(power), r), abs=1e-7)


@pytest.mark.parametrize("r", [0.3, 2.0])
def test_the_stable_density_has_the_kernel_as_its_transform(r):
    """In three dimensions, k(r) = 4π ∫ p(ω) sinc(ωr) ω² dω; the tail beyond 400 is below 1e-3."""
    grid = np.linspace(1e-3, 400, 40_001)
    density = np.exp(
        np.concatenate([Stable(1.5).log_density(g**2, 3) for g in np.split(grid[1:], 40)])
    )
    total = (
        4
        * math.pi
        * np.trapezoid(density * np.sinc(grid[1:] * r / np.pi) * grid[1:] ** 2, grid[1:])
    )
    assert total == pytest.approx(math.exp(-(r**1.5)), abs=2e-3)


# ---- mixtures


def test_a_mixture_of_one_component_without_mean_is_gaussian():
    X, Y = (
        np.random.default_rng(0).normal(size=(9, 2)),
        np.random.default_rng(1).normal(size=(5, 2)),
    )
    kernel = SpectralMixture([3.0], [0.0], [(0.5, 2.0)])
    assert_close(kernel(X, Y), Gaussian((2.0, 0.5))(X, Y))
    W = np.random.default_rng(2).normal(size=(6, 2))
    a, b = (k.spectral_measure(2) for k in (kernel, Gaussian((2.0, 0.5))))
    assert_close(a.log_density(W), b.log_density(W))
    assert a.second_moment == pytest.approx(b.second_moment)


@pytest.mark.parametrize("r", [0.0, 0.7, 2.0])
def test_the_density_of_a_mixture_has_the_kernel_as_its_transform(r):
    kernel = SpectralMixture((2.0, 1.0), (0.5, 3.0), (0.5, 1.5))
    measure = kernel.spectral_measure(1)

    def wave(w):
        return math.exp(measure.log_density(np.array([[w]]))[0]) * math.cos(w * r)

    value, _ = quad(wave, -20, 20, limit=200)
    assert value == pytest.approx(at(kernel, r), abs=1e-9)


# ---- refusals


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: ExponentialPower(2.1), NotPositive, r"power must be at most 2.*got 2.1"),
        (
            lambda: ExponentialPower(0.0),
            InvalidInput,
            r"ExponentialPower: power must be a positive",
        ),
        (lambda: Periodic(0.0), InvalidInput, r"Periodic: period must be a positive"),
        (
            lambda: Periodic((1.0, 2.0))(np.ones((2, 3))),
            InvalidInput,
            r"Periodic: period.*got 2 for 3",
        ),
        (
            lambda: Periodic(1.0, (1.0, 2.0)).diag(np.ones((2, 3))),
            InvalidInput,
            r"lengthscale.*got 2 for 3",
        ),
        (
            lambda: SpectralMixture((1.0,), (0.0, 1.0), (1.0,)),
            InvalidInput,
            r"one entry for each component; got 1, 2 and 1",
        ),
        (
            lambda: SpectralMixture(1.0, (0.0,), (1.0,)),
            InvalidInput,
            r"weights must be a sequence.*got 1.0",
        ),
        (
            lambda: SpectralMixture((0.0,), (0.0,), (1.0,)),
            InvalidInput,
            r"weights\[0\] must be a positive",
        ),
        (
            lambda: SpectralMixture((1.0,), ((0.0, 1.0),), (1.0,))(np.ones((2, 3))),
            InvalidInput,
            r"means must be one number or one per column; got 2 for 3",
        ),
    ],
)
def test_wrong_arguments_are_refused_in_a_sentence(make, error, message):
    with pytest.raises(error, match=message):
        make()
