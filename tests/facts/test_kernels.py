"""Numbers of thirty digits for each kernel and each spectral density.

The kernel values come from two computations that agree to 24 digits, in mpmath: the formula
printed in the docstring, and the cosine transform of the spectral density in one dimension,
2∫cos(ωr)p(ω)dω, by oscillatory quadrature (for the rational quadratic kernel, whose density is
infinite at zero if its shape is below one half: the mixture ∫exp(−r²τ/2)p(τ)dτ).
"""

import math
from itertools import product

import mpmath
import numpy as np
import pytest
import torch
from naive import kernel_matrix
from scipy.integrate import quad
from scipy.sparse import csr_array
from tolerance import of

from bochner.kernels import (
    Cauchy,
    Columns,
    Exponential,
    Gaussian,
    Laplace,
    Linear,
    Matern,
    Monotone,
    Radial,
    RationalQuadratic,
)
from bochner.kernels.banded import kernel_matrix as in_bands

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
