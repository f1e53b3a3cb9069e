"""Laws of radial kernels: every rotation-invariant kernel of the gallery, degree by degree."""

import math

import numpy as np
import pytest
from gallery import OTHERS, SERIES, STATIONARY
from naive import n_harmonics
from scipy.special import gammaln
from tolerance import assert_close

from bochner.errors import UnsupportedKernel
from bochner.kernels import (
    ArcCosine,
    Coefficients,
    Constant,
    DotExponential,
    DotProduct,
    Gaussian,
    Linear,
    LogDerivatives,
    Matern,
    NeuralTangent,
    Polynomial,
    Radial,
)
from bochner.kernels.radial import monomials, radial_kernels
from bochner.kernels.zonal import gegenbauers

DIMENSIONS = [1, 2, 3, 9]
DEGREE = 40


def served(kernel):
    try:
        radial_kernels(kernel, 3)
    except UnsupportedKernel:
        return False
    return True


KERNELS = [k for k in STATIONARY + OTHERS + SERIES if served(k)] + [
    Gaussian(2.0),
    DotExponential(0.5),
    DotProduct(Coefficients((0.0, 0.0, 0.0, 1.0))),
    3.0 * Gaussian() + Polynomial(3) + Constant(0.5),
    0.5 * Matern(2.5) + NeuralTangent(),
    2.0 * Polynomial(2) + 0.5 * DotExponential(0.5),
    Gaussian() * Polynomial(2) * Gaussian(2.0),
    (Linear() + 1.0) ** 3 * DotExponential(0.5),
]
every_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=repr)
every_dimension = pytest.mark.parametrize("d", DIMENSIONS)
RADII = np.array([0.0, 1e-3, 0.3, 0.7, 1.0, 1.3, 1.7])


ROUGH = ("Matern", "Exponential(l", "ExponentialPower(power=0", "Angular", "Arc", "Neural", "NNGP")


def rough(kernel):
    """Whether Gegenbauer coefficients fall slowly: kernels that are not smooth where x = y."""
    return any(name in repr(kernel) for name in ROUGH)


def rounding(kernel, d):
    """Tolerances of the sum of all degrees: integrals are right to √α_l eps, series to eps."""
    integral = isinstance(kernel, Radial) and not isinstance(kernel, Gaussian)
    return 10 * (math.sqrt(max(n_harmonics(l, d) for l in range(DEGREE + 1))) if integral else 1)


@every_kernel
@every_dimension
def test_degrees_add_up_to_the_kernel(kernel, d):
    """Σ_l R_l P_l = k for smooth kernels; for others the rest is no larger than its diagonal."""
    rng = np.random.default_rng(d)
    U = rng.normal(size=(7, d))
    U /= np.linalg.norm(U, axis=1)[:, None]
    R = radial_kernels(kernel, d).matrices(DEGREE, RADII, RADII)
    P = gegenbauers(DEGREE, d, np.clip(U @ U.T, -1, 1))
    K = kernel(RADII[:, None] * U)
    total = sum(r * p for r, p in zip(R, P, strict=True))
    if not rough(kernel) or d == 1:
        assert_close(total, K, factor=rounding(kernel, d))
        return
    rest = K - total
    bound = np.sqrt(np.maximum(np.diag(rest), 0))
    assert (np.abs(rest) <= bound[:, None] * bound + 1e-11).all()
    assert np.diag(rest).max() < 0.6 * np.diag(K).max()


@every_kernel
@every_dimension
def test_every_degree_is_positive_semidefinite(kernel, d):
    for l, R in enumerate(radial_kernels(kernel, d).matrices(DEGREE, RADII, RADII)):
        assert_close(R, R.T)
        floor = 64 * np.finfo(float).eps * max(math.sqrt(n_harmonics(l, d)), R.max())
        assert np.linalg.eigvalsh(R)[0] >= -floor * len(R), l


@every_kernel
def test_one_degree_is_that_of_all(kernel):
    radial = radial_kernels(kernel, 3)
    s = RADII[2:5]
    R = radial.matrices(6, RADII, s)
    assert R.shape == (7, len(RADII), 3)
    for l in (0, 1, 6):
        assert_close(radial.matrix(l, RADII, s), R[l])
        assert_close(radial.matrix(l, s, RADII), R[l].T)
    assert radial.matrix(2, RADII[:0], s).shape == (0, 3)


@every_kernel
@every_dimension
def test_monomials_factor_the_radial_kernels(kernel, d):
    """Σ_i h_{l,i} h_{l,i}, each degree of l + 2i with the energy κ⁽ⁿ⁾(0) t²ⁿ e^{−decay t²}/n!."""
    radial = radial_kernels(kernel, d)
    if radial.power_series is None:
        with pytest.raises(UnsupportedKernel, match="Monomial radial functions require"):
            monomials(radial, 2, 2, RADII)
        return
    h = monomials(radial, 12, 30, RADII)
    R = radial.matrices(12, RADII, RADII)
    assert_close(np.einsum("lin,lim->lnm", h, h), R, factor=10)
    n = np.arange(13)[:, None] + 2 * np.arange(30)
    for k in (0, 1, 5, 12):
        with np.errstate(divide="ignore"):
            logs = radial.power_series.log_derivative(k) - gammaln(k + 1.0)
            powers = 2 * k * np.log(RADII) if k else 0.0
        expected = np.exp(logs + powers - radial.decay * RADII**2)
        assert_close((h[n == k] ** 2).sum(axis=0), expected)


@pytest.mark.parametrize("d", [3, 8])
@pytest.mark.parametrize(("kernel", "absent"), [(ArcCosine(0), 0), (ArcCosine(1), 1)])
def test_degrees_that_parity_forbids_are_none_however_high(kernel, absent, d):
    """A step is ½ and an odd function, max(0, x) is x/2 and an even one: |x|/2."""
    degrees = np.arange(801)
    found = radial_kernels(kernel, d).matrices(800, np.ones(1), np.ones(1))[:, 0, 0]
    forbidden = (degrees % 2 == absent) & (degrees > 1)
    assert not found[forbidden].any()
    assert (found[~forbidden & (degrees <= 30)] > 0).all()


def test_planted_fault_a_forgotten_count_is_seen():
    """Without α_l the sum of degrees is another kernel."""
    r = np.ones(1)
    radial = radial_kernels(Gaussian(), 3)
    R = np.array([radial.matrix(l, r, r)[0, 0] for l in range(20)])
    counts = np.array([n_harmonics(l, 3) for l in range(20)])
    assert R.sum() == pytest.approx(1.0, abs=1e-14)
    assert abs((R / counts).sum() - 1) > 0.1


def test_a_series_by_its_derivatives_is_that_by_its_name():
    named = radial_kernels(DotExponential(0.5), 3).matrices(8, RADII, RADII)
    own = DotProduct(LogDerivatives(lambda n: n * math.log(0.5)))
    assert_close(radial_kernels(own, 3).matrices(8, RADII, RADII), named)


def test_products_are_series_of_products():
    both = [
        (Gaussian(3.0) * Gaussian(4.0), Gaussian(2.4)),
        (DotExponential(0.5) * DotExponential(0.25), DotExponential(0.75)),
        ((Linear() + 0.5) ** 3, Polynomial(3, 0.5)),
        (Polynomial(2) * Polynomial(3), Polynomial(5)),
    ]
    for product, single in both:
        left, right = radial_kernels(product, 3), radial_kernels(single, 3)
        assert left.decay == pytest.approx(right.decay)
        assert_close(left.matrices(8, RADII, RADII), right.matrices(8, RADII, RADII))
        n = np.arange(9)
        a, b = left.power_series, right.power_series
        np.testing.assert_allclose(a.log_derivative(n), b.log_derivative(n), atol=1e-13)
        assert a.degree == b.degree
        assert_close(a.value(RADII), b.value(RADII))


def test_products_without_a_series_are_refused():
    match = r"Products require factors of ⟨x, y⟩ or Gaussians.*got "
    with pytest.raises(UnsupportedKernel, match=match + r"Matern.* \* Gaussian"):
        radial_kernels(Matern() * Gaussian(), 3)
    with pytest.raises(UnsupportedKernel, match=match + r"NeuralTangent.*\*\*2"):
        radial_kernels(NeuralTangent() ** 2 * Linear(), 3)
