"""Kernels and spectral densities at thirty digits, and the errors of sampling these."""

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
from tolerance import assert_close, bernstein_bar, of

from bochner.errors import InvalidInput, NotPositive, UnsupportedKernel
from bochner.features import IID, QMC, Fourier, HistogramSampling, draw
from bochner.features.fourier.histogram import best_step, sampling_error
from bochner.kernels import (
    AdditiveChi2,
    Cauchy,
    Columns,
    Exponential,
    ExponentialPower,
    Gaussian,
    Intersection,
    JensenShannon,
    Laplace,
    Linear,
    Matern,
    Monotone,
    Periodic,
    Radial,
    RationalQuadratic,
    SkewedChi2,
    SpectralMixture,
)
from bochner.kernels.banded import kernel_matrix as in_bands
from bochner.kernels.stationary_families import HarmonicLaw, Stable

DISTANCES = (0.1, 0.7, 1.3, 2.0, 5.0)
FACTS = {
    Gaussian(): (
        "0.995012479192682313352564246233 0.782704538241868167710865985465"
        " 0.429557358210739148350710799901 0.135335283236612691893999494972"
        " 0.00000372665317207867099292485147595"
    ),
    Exponential(): (
        "0.904837418035959573164249059446 0.496585303791409514704800093398"
        " 0.272531793034012603122333167563 0.135335283236612691893999494972"
        " 0.00673794699908546709663604842315"
    ),
    Cauchy(): (
        "0.990099009900990099009900990099 0.671140939597315436241610738255"
        " 0.371747211895910780669144981413 0.2 0.0384615384615384615384615384615"
    ),
    Matern(0.8): (
        "0.960415470439621148358572124775 0.573179619542994869897350357414"
        " 0.304687967126099683475269117216 0.138983620830866075002686608618"
        " 0.00396531773895271573525693083249"
    ),
    Matern(1.5): (
        "0.986624564889706469037681442687 0.658137376316583915847374988652"
        " 0.342152561842440413598653364181 0.139731350192314670938450327278"
        " 0.00167451100765960369474029251089"
    ),
    Matern(2.5): (
        "0.991759236171177621733684596887 0.706942681904097708213165135772"
        " 0.367412041191480981920848628808 0.138660219138504277281484941903"
        " 0.000750933788873754955139897859511"
    ),
    Matern(3.5): (
        "0.993040410609317215966402998053 0.72928430236141631208610802921"
        " 0.381258658851841271987137208027 0.137780618556620083492718801662"
        " 0.000428972437009741221726542453112"
    ),
    Matern(3.7): (
        "0.993185120254485400129989049495 0.732321970793231981254010871949"
        " 0.383322752961200947030554329919 0.137641419000132619735928337437"
        " 0.000390542871045811866273920059248"
    ),
    Matern(7.3): (
        "0.994226242750012851297089847622 0.758152888308804444610704708215"
        " 0.403531147933430353806103904314 0.136302928808095754253083238519"
        " 0.000124066551669548759660763573643"
    ),
    Matern(40.0): (
        "0.994885265866367658560584689316 0.778443665223418322173575617023"
        " 0.424399886299055243318803033519 0.135386226530626433365927735375"
        " 0.0000126276022277559916193063508132"
    ),
    RationalQuadratic(0.8): (
        "0.995027961905811465982058485055 0.807567731499617724281366638889"
        " 0.561745067570983722591760406513 0.367067187749554096765552304405"
        " 0.105533581439304611944844684307"
    ),
    RationalQuadratic(2.5): (
        "0.995017447644000561163837672615 0.791578791369123164145890586722"
        " 0.482902792057424051056426660132 0.23004814583331169716143762024"
        " 0.0113402302906628615657281670125"
    ),
}
FACTS[Laplace()] = FACTS[Matern(0.5)] = FACTS[Exponential()]  # in one dimension
CASES = [
    (kernel, r, float(v))
    for kernel, text in FACTS.items()
    for r, v in zip(DISTANCES, text.split(), strict=True)
]
MIXTURES = [case for case in CASES if isinstance(case[0], Radial)]

DENSITIES = [  # kernel, d, |ω|, density at a vector of this length
    (Matern(0.5), 1, 1.0, 0.15915494309189533576888376337251),
    (Matern(1.5), 3, 1.0, 0.032905019615914810710638148506808),
    (Matern(2.5), 3, 2.0, 0.0069062964238685260099102961266501),
    (Matern(0.8), 2, 0.5, 0.12255385853261161238033770492241),
    (Matern(3.7), 9, 1.5, 0.00014598501008505827927024881092379),
    (Gaussian(), 2, 1.0, math.exp(-0.5) / (2 * math.pi)),
    (Exponential(), 1, 2.0, 1 / (5 * math.pi)),
]


@pytest.mark.parametrize(("kernel", "r", "expected"), CASES, ids=str)
def test_values_are_those_of_the_formula(kernel, r, expected):
    value = kernel(np.array([[r]]), np.array([[0.0]]))[0, 0]
    assert value == pytest.approx(expected, rel=4 * of(np.float64), abs=0)


@pytest.mark.parametrize(("kernel", "r", "expected"), MIXTURES, ids=str)
def test_spectral_mixture_gives_the_kernel(kernel, r, expected):
    """Quadrature over quantiles of the one factor that multiplies the Gaussian vector."""
    mixing = kernel.spectral_measure(1).mixing

    def gaussian(u):
        return math.exp(-0.5 * r * r * mixing.quantile(np.float64(u)))

    # The integrand falls to zero in a corner at u = 1, where the factor is unbounded.
    value, _ = quad(gaussian, 0, 1, epsabs=1e-12, limit=200, points=1 - np.logspace(-8, -1, 8))
    assert value == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("kernel", [Laplace(), Cauchy()], ids=repr)
@pytest.mark.parametrize("r", DISTANCES)
def test_spectral_law_of_a_coordinate_gives_the_kernel(kernel, r):
    """The cosine transform of the density, by quadrature for oscillating integrands."""
    law = kernel.spectral_measure(1).law
    half, _ = quad(
        lambda c: math.exp(law.log_density(np.float64(c))), 0, np.inf, weight="cos", wvar=r
    )
    assert 2 * half == pytest.approx(kernel(np.array([[r]]), np.array([[0.0]]))[0, 0], abs=1e-8)


@pytest.mark.parametrize("kernel", [Laplace(), Cauchy()], ids=repr)
def test_quantiles_of_a_coordinate_invert_the_density(kernel):
    law = kernel.spectral_measure(1).law
    for u in (0.01, 0.3, 0.5, 0.9):
        c = float(law.quantile(np.float64(u)))
        mass, _ = quad(lambda t: math.exp(law.log_density(np.float64(t))), -np.inf, c)
        assert mass == pytest.approx(u, abs=1e-8)


@pytest.mark.parametrize(("kernel", "d", "length", "expected"), DENSITIES, ids=str)
def test_spectral_density(kernel, d, length, expected):
    W = np.zeros((1, d))
    W[0, -1] = length
    density = np.exp(kernel.spectral_measure(d).log_density(W))[0]
    assert density == pytest.approx(expected, rel=of(np.float64))


@pytest.mark.parametrize("kernel", [RationalQuadratic(0.8), RationalQuadratic(2.5), Matern(3.7)])
def test_spectral_density_is_that_of_the_mixture(kernel):
    """p(ω) = E (2πs²)^(−d/2) exp(−|ω|²/(2s²)), by quadrature over quantiles of s², d = 3."""
    measure = kernel.spectral_measure(3)
    q = 1.7

    def gaussian(u):
        s2 = float(measure.mixing.quantile(np.float64(u)))
        return (2 * math.pi * s2) ** -1.5 * math.exp(-q / (2 * s2)) if s2 > 0 else 0.0

    expected, _ = quad(gaussian, 0, 1, epsabs=1e-10)
    density = math.exp(measure.log_density(np.full((1, 3), math.sqrt(q / 3)))[0])
    assert density == pytest.approx(expected, abs=1e-8)


def test_second_moments():
    assert Gaussian((1.0, 2.0)).spectral_measure(2).second_moment == 1.25
    assert Matern(1.5).spectral_measure(4).second_moment == pytest.approx(12.0)
    assert Matern(1.0).spectral_measure(4).second_moment == math.inf
    assert RationalQuadratic(0.3, 2.0).spectral_measure(4).second_moment == 1.0
    assert Laplace().spectral_measure(2).second_moment == math.inf
    assert Cauchy(2.0).spectral_measure(2).second_moment == pytest.approx(1.0)


SMOOTHNESSES = [0.1, 0.3, 1.0, 2.0, 6.5, 7.5, 20.0, 29.9, 30.1, 50.0, 100.0]
SMOOTHNESSES += [3.0, 4.5, 5.0, 5.5, 7.0, 9.0, 11.0, 13.0]  # no closed form is of whole ones


@pytest.mark.parametrize("smoothness", SMOOTHNESSES)
def test_matern_is_accurate_for_any_smoothness_at_any_distance(smoothness):
    """Each branch (closed forms, Bessel function, Debye's expansion) against fifty digits."""
    r = np.concatenate([[0.0, 1e-100, 1e-12, 1e-6], np.geomspace(1e-4, 40.0, 12)])[:, None]
    zero = np.zeros((1, 1))
    kernel = Matern(smoothness)
    with mpmath.workdps(50):
        expected = kernel_matrix(kernel, r, zero)
    np.testing.assert_allclose(kernel(r, zero), expected, rtol=1e-12, atol=2e-13)


@pytest.mark.parametrize("distance", [60.0, 1e10, 1e100, 1e200])
@pytest.mark.parametrize(
    "kernel", [k for k in FACTS if not isinstance(k, RationalQuadratic | Cauchy)]
)
def test_values_at_huge_distances_are_zero_and_not_nan(kernel, distance):
    value = kernel(np.array([[distance]]), np.array([[-distance]]))[0, 0]
    assert 0 <= value < 1e-40


@pytest.mark.parametrize("kernel", [Gaussian(0.7), Exponential(), Laplace((1.0, 2.0))], ids=repr)
def test_pairs_of_rows_with_themselves_are_made_once_to_the_same_bits(kernel):
    X = np.random.default_rng(0).standard_normal((1100, 2))
    assert np.array_equal(kernel(X), kernel(X, X.copy()))


@pytest.mark.parametrize("n", [40, 512, 700])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_matrix_of_a_sum_in_bands_is_that_of_one_call(n, dtype):
    X = np.random.default_rng(0).standard_normal((n, 3)).astype(dtype)
    total = Gaussian(0.7) + 0.5 * Linear()
    bent = Monotone(Columns(total, (0, 2)), (0,), ((-1.0, 0.0, 2.0),), ((0.0, 1.0, 2.0),))
    for kernel, rows in product((total, bent), (X, csr_array(X))):
        K = in_bands(kernel, rows)
        assert K.dtype == dtype
        assert K.flags.c_contiguous
        np.testing.assert_array_equal(K, K.T)
        scale = np.abs(K).max()
        np.testing.assert_allclose(K, kernel(rows), atol=50 * scale * np.finfo(dtype).eps)
    np.testing.assert_array_equal(in_bands(Laplace(2.0), X), Laplace(2.0)(X))


@pytest.mark.parametrize("share", [2.0**-7, 2.0**-9, 2.0**-12, 2.0**-20, 2.0**-40])
def test_distances_of_near_rows_keep_their_digits_in_every_library(share):
    """Of |x − y|² a share of |x|² + |y|²: by products it has no more than share/ε of its digits.

    From 2^−8 on these are 256 roundings, nearer rows are subtracted; k = exp(−r/ℓ) with r = ℓ.
    """
    rng, d = np.random.default_rng(0), 20
    X = rng.standard_normal((30, d))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    steps = rng.standard_normal((30, d))
    steps *= math.sqrt(2 * share) / np.linalg.norm(steps, axis=1, keepdims=True)
    Y = np.concatenate([X + steps, -X - steps])  # of mean zero, about which rows are taken
    r = np.linalg.norm(X - Y[:30], axis=1)
    scale = math.sqrt(2 * share)
    found = np.diag(Exponential(scale)(torch.asarray(X), torch.asarray(Y)).numpy()[:, :30])
    rounded = np.spacing(1.0) / scale  # of x itself, in units of r
    allowed = 2 * rounded + 600 * np.finfo(float).eps
    np.testing.assert_allclose(found, np.exp(-r / scale), rtol=allowed)


# ---- kernels of stable laws and of spectra with peaks: thirty digits, and what their laws promise


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


# ---- histogram kernels at thirty digits, their spectra, and the error of sampling these


ADDITIVE = [AdditiveChi2(), Intersection(), JensenShannon()]
HISTOGRAM_FACTS = [
    (AdditiveChi2(), 0.31111111111111111111111111111111),
    (SkewedChi2(0.1), 0.89072354283024658116264875443851),
    (JensenShannon(), 0.34389202792887912570367578852189),
    (Intersection(), 0.2),
]


def shares(n, d=3, seed=0):
    """Rows that sum to one, with zeros."""
    X = np.random.default_rng(seed).gamma(0.5, size=(n, d)) * (
        np.arange(n * d).reshape(n, d) % 7 > 0
    )
    return X / X.sum(axis=1, keepdims=True)


@pytest.mark.parametrize(("kernel", "expected"), HISTOGRAM_FACTS, ids=str)
def test_values_of_histogram_kernels_are_those_of_the_formula(kernel, expected):
    x, y = np.array([[0.7]]), np.array([[0.2]])
    assert kernel(x, y)[0, 0] == pytest.approx(expected, rel=of(np.float64))
    own = 1.0 if kernel == SkewedChi2(0.1) else 0.7
    assert (kernel(x)[0, 0], kernel.diag(x)[0]) == pytest.approx((own, own), rel=of(np.float64))


@pytest.mark.parametrize("kernel", ADDITIVE, ids=repr)
def test_additive_kernels_are_their_signature(kernel):
    a, b = np.array([[0.3]]), np.array([[1e-9], [0.01], [0.3], [2.0]])
    t = np.log(b[:, 0] / 0.3)
    assert_close(kernel(a, b)[0], np.sqrt(0.3 * b[:, 0]) * kernel.signature(t))


@pytest.mark.parametrize("kernel", ADDITIVE, ids=repr)
@pytest.mark.parametrize("t", [0.0, 0.5, 3.0])
def test_spectrum_is_the_transform_of_the_signature(kernel, t):
    weight = dict(weight="cos", wvar=t) if t else {}
    half, _ = quad(kernel.spectrum, 0, np.inf, **weight)
    assert 2 * half == pytest.approx(float(kernel.signature(np.float64(t))), abs=1e-7)


def test_jensen_shannon_of_shares_is_one_less_the_divergence():
    X, Y = shares(5) + 1e-9, shares(6, seed=1) + 1e-9
    X, Y = X / X.sum(axis=1, keepdims=True), Y / Y.sum(axis=1, keepdims=True)

    def entropy(p):
        return -(p * np.log2(p)).sum(axis=-1)

    middle = 0.5 * (X[:, None] + Y[None])
    divergence = entropy(middle) - 0.5 * entropy(X)[:, None] - 0.5 * entropy(Y)[None]
    assert_close(JensenShannon()(X, Y), 1 - divergence, factor=8)


def test_the_law_of_the_skewed_kernel_has_its_density_and_its_quantiles():
    law = SkewedChi2().spectral_measure(1).law
    for t in (0.3, 1.0, 4.0):
        half, _ = quad(
            lambda c: math.exp(law.log_density(np.float64(c))), 0, np.inf, weight="cos", wvar=t
        )
        assert 2 * half == pytest.approx(1 / math.cosh(t / 2), abs=1e-8)
    for u in (0.01, 0.3, 0.9):
        mass, _ = quad(lambda c: math.exp(law.log_density(np.float64(c))), -np.inf, law.quantile(u))
        assert mass == pytest.approx(u, abs=1e-8)
    second, _ = quad(lambda c: c * c * math.exp(law.log_density(np.float64(c))), -np.inf, np.inf)
    assert second == pytest.approx(law.second_moment, abs=1e-8)


# ---- features


@pytest.mark.parametrize("kernel", ADDITIVE, ids=repr)
@pytest.mark.parametrize("width", [3, 9, 17, 60])
def test_features_err_by_the_bound_at_most(kernel, width):
    X = shares(40)
    phi = draw(kernel, HistogramSampling(), n_features=width, n_inputs=3)
    assert width - 6 < phi.n_features <= width
    bound = sampling_error(kernel, phi.terms, phi.step) * np.maximum(X[:, None], X[None]).sum(
        axis=2
    )
    far = 2 * math.exp(-0.5 * 12.5)  # log y/x up to 12.5 is looked at
    assert (np.abs(phi(X) @ phi(X).T - kernel(X)) <= 1.01 * bound + far).all()


@pytest.mark.parametrize(
    ("terms", "published", "largest"), [(1, 0.8, 0.032), (2, 0.5, 0.013), (3, 0.4, 0.006)]
)
def test_the_step_is_the_best_and_better_than_the_published_one(terms, published, largest):
    kernel = AdditiveChi2()
    step = best_step(kernel, terms)
    error = sampling_error(kernel, terms, step)
    others = np.geomspace(0.05, 3, 500)
    assert error <= min(sampling_error(kernel, terms, other) for other in others) + 1e-4
    assert error < largest < sampling_error(kernel, terms, published)


@pytest.mark.statistical
@pytest.mark.parametrize("method", [HistogramSampling(), Fourier(IID()), Fourier(QMC())], ids=repr)
def test_features_of_the_skewed_kernel_are_unbiased(method):
    """Cosines of differences: their mean of 40,000 is in Bernstein's bar (wider than QMC needs)."""
    X, kernel, m = shares(6), SkewedChi2(0.2), 40_000
    Z = draw(kernel, method, n_features=2 * m, n_inputs=3, random_state=0)(X)
    assert np.abs(Z @ Z.T - kernel(X)).max() < bernstein_bar(36 * 3, 1.0, 2.0, m)


@pytest.mark.statistical
def test_planted_fault_forgotten_skew_is_seen():
    X, m = shares(6), 40_000
    Z = draw(SkewedChi2(0.4), HistogramSampling(), n_features=2 * m, n_inputs=3, random_state=0)(X)
    assert np.abs(Z @ Z.T - SkewedChi2(0.2)(X)).max() > bernstein_bar(36 * 3, 1.0, 2.0, m)


# ---- refusals


def test_what_is_no_histogram_is_refused():
    bad = np.array([[0.5, -0.25, 1.0]])
    message = r"AdditiveChi2: all numbers of X must be not below 0, as in a histogram; got -0.25"
    phi = draw(AdditiveChi2(), HistogramSampling(), n_features=9, n_inputs=3)
    for ask in (AdditiveChi2(), AdditiveChi2().diag, phi):
        with pytest.raises(InvalidInput, match=message):
            ask(bad)
    for ask in (SkewedChi2(0.25), SkewedChi2(0.25).diag):
        with pytest.raises(
            InvalidInput, match=r"SkewedChi2: all numbers of X must be above -0.25.*got -0.25"
        ):
            ask(bad)
    with pytest.raises(InvalidInput, match=r"SkewedChi2: skew must be a positive"):
        SkewedChi2(0.0)


def test_what_sampling_cannot_serve_is_refused():
    with pytest.raises(
        UnsupportedKernel, match=r"HistogramSampling requires AdditiveChi2.*Nystrom"
    ):
        draw(Gaussian(), HistogramSampling(), n_features=9, n_inputs=3)
    with pytest.raises(InvalidInput, match=r"at least one feature a column; got 2 for 3 columns"):
        draw(AdditiveChi2(), HistogramSampling(), n_features=2, n_inputs=3)
