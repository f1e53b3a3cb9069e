"""Frequencies of Fourier grids: the coarsest that the rule allows, by sums of printed densities."""

import math

import numpy as np
import pytest
from scipy import stats
from scipy.special import erfc

import bochner as bo
from bochner.kernels import Gaussian, Matern, RationalQuadratic

WORTH = 1e5  # Predictions are held to the tolerance up to this W k(x, x)/alpha


def whole_map(kernel, tolerance, upper):
    """All waves of the box from 0 to ``upper`` that a tolerance takes."""
    box = tuple((0.0, float(side)) for side in upper)
    method = bo.FourierGrid(tolerance, box=box)
    return bo.draw(kernel, method, n_features=1 << 20, n_inputs=len(box))


def density(kernel, W):
    """Of frequencies as rows: normal, or Student's t with 2ν degrees of freedom."""
    d, scale = W.shape[1], kernel.lengthscale
    if isinstance(kernel, Gaussian):
        return stats.multivariate_normal(np.zeros(d), np.eye(d) / scale**2).pdf(W)
    shape = np.eye(d) / scale**2
    return stats.multivariate_t(np.zeros(d), shape, df=2 * kernel.smoothness).pdf(W)


STEP = 10 ** (16 / 3200)  # Between distances that are looked at


def images_of(kernel, length, period, farther=1.0):
    """What images in one column add at most: twice Σ_n k(nP − L), which are on either side."""
    gaps = farther * (np.arange(1, 201) * period - length)
    return 2 * kernel(gaps[:, None], np.zeros((1, 1))).sum()


def at(kernel, t):
    return float(kernel(np.array([[t]]), np.zeros((1, 1)))[0, 0])


CASES = [
    (Gaussian(0.1), 1e-2),
    (Gaussian(0.1), 1e-9),
    (Gaussian(3.0), 1e-6),
    (Matern(1.5, 0.1), 1e-3),
    (Matern(2.5, 0.05), 1e-5),
    (Matern(3.5, 0.3), 1e-7),
]


@pytest.mark.parametrize(("kernel", "tolerance"), CASES, ids=str)
@pytest.mark.parametrize("length", [1.0, 0.4])
def test_the_period_is_the_box_and_twice_the_margin_where_the_kernel_is_gone(
    kernel, tolerance, length
):
    """Of the least margin r: k(2r) and images at an eighth of the tolerance, k(r) at .01.

    It is looked for in steps of .5 %, and of a tenth where images of higher order count.
    """
    phi = whole_map(kernel, tolerance, [length])
    assert not phi.tapered
    r = (2 * math.pi / phi.spacing[0] - length) / 2
    level = tolerance / 8
    allowed = lambda r: at(kernel, 2 * r) <= level and at(kernel, r) <= 0.01
    assert allowed(r)
    assert images_of(kernel, length, length + 2 * r) <= 1.02 * level
    steps = r / STEP, r / STEP / 1.1
    fails = [not allowed(s) or images_of(kernel, length, length + 2 * s) > level for s in steps]
    if not fails[0]:  # then it was lengthened for images of higher order, by a tenth
        first = images_of(kernel, length, length + 2 * steps[1])
        assert first > 0.99 * level
    assert fails[1]


def test_a_multiple_has_the_grid_of_the_kernel():
    for kernel in (Matern(1.5, 0.1), RationalQuadratic(0.7, 0.1)):
        for upper in ([0.5], [0.5, 0.4]):
            one, many = (whole_map(c * kernel, 1e-3, upper) for c in (1.0, 7.0))
            assert one.tapered == many.tapered
            np.testing.assert_array_equal(one.spacing, many.spacing)
            np.testing.assert_array_equal(one.extent, many.extent)
            np.testing.assert_allclose(many.weights, 7.0 * one.weights, rtol=1e-9, atol=1e-12)
            assert many.error == pytest.approx(one.error, rel=1e-6)


def along(kernel, phi, a, far):
    """Weights of all waves of each j_a from 0 on, and the largest among these."""
    d, h = phi.n_inputs, phi.spacing
    j = np.arange(far + 1.0)
    others = np.arange(-far, far + 1.0) if d > 1 else np.zeros(1)
    W = np.zeros((len(j), len(others), d))
    W[..., a] = (j * h[a])[:, None]
    if d > 1:
        W[..., 1 - a] = others * h[1 - a]
    v = density(kernel, W.reshape(-1, d)).reshape(len(j), -1) * np.prod(h)
    return v.sum(axis=1), v.max(axis=1)


@pytest.mark.parametrize(("kernel", "tolerance"), [*CASES, (Matern(1.5, 0.5), 1e-2)], ids=str)
@pytest.mark.parametrize("upper", [(1.0,), (1.0, 0.6)], ids=len)
def test_no_more_waves_are_taken_than_the_tolerance_asks_for(kernel, tolerance, upper):
    """The first m with Σ_{|j|>m} v_j ≤ ε/4d and Σ_{|j|>m} v_j N v_j/(1 + N v_j) ≤ (ε/4)²/d."""
    d = len(upper)
    if d > 1 and tolerance < 1e-6:
        return
    phi = whole_map(kernel, tolerance, upper)
    for a, m in enumerate(phi.extent.tolist()):
        v, largest = along(kernel, phi, a, 20_000 if d == 1 else 600)
        told = WORTH * largest
        beyond = lambda weights: 2 * np.cumsum(weights[::-1])[::-1][1:]
        kept = np.flatnonzero(
            (beyond(v) <= tolerance / (4 * d))
            & (beyond(v * told / (1 + told)) <= (tolerance / 4) ** 2 / d)
        )
        assert abs(m - kept[0]) <= 0.02 * m  # of heavy tails 600 waves are not all


@pytest.mark.parametrize(("kernel", "tolerance"), CASES, ids=str)
def test_the_error_that_a_map_says_is_what_it_lacks_and_its_images_four_times(kernel, tolerance):
    """On either side of k(0), and as much again; at distances that are looked at."""
    phi = whole_map(kernel, tolerance, [1.0])
    period, lacks = 2 * math.pi / phi.spacing[0], 1 - (2 * phi.weights.sum() - phi.weights[0])
    least, most = (lacks + 4 * images_of(kernel, 1.0, period, far) for far in (STEP, 1.0))
    assert 0.999 * least <= phi.error <= 1.001 * most
    j = np.arange(len(phi.weights))[:, None]
    expected = phi.spacing[0] * density(kernel, j * phi.spacing[0])
    np.testing.assert_allclose(phi.weights, expected, rtol=1e-9, atol=1e-15)


# ---- kernels of long tails


def taper_by_hand(t, length, period):
    """½ erfc from −5 at the end of the box to 5 where the nearest image's begins."""
    end = (period - length) / 2
    share = (np.abs(t) - length) / (end - length)
    return 0.5 * erfc(5.0 * (2.0 * share - 1.0))


TAILS = [(RationalQuadratic(1.0, 0.1), 1e-6), (RationalQuadratic(0.7, 0.2), 1e-4)]
TAILS += [(RationalQuadratic(0.5, 0.05), 1e-8), (RationalQuadratic(2.0, 0.1), 1e-6)]


@pytest.mark.parametrize(("kernel", "tolerance"), TAILS, ids=str)
def test_waves_of_long_tails_are_those_of_the_tapered_kernel(kernel, tolerance):
    """Over half a box, one, two or four: the first of which waves below zero are few."""
    length = 0.8
    phi = whole_map(kernel, tolerance, [length])
    assert phi.tapered
    taken = None
    for width in (0.5, 1.0, 2.0, 4.0):
        period, n = (3 + 2 * width) * length, 1 << 16
        t = np.fft.fftfreq(n) * period
        samples = kernel(t[:, None], np.zeros((1, 1)))[:, 0] * taper_by_hand(t, length, period)
        v = np.fft.rfft(samples).real / n
        up, told = np.maximum(v, 0), WORTH * np.maximum(v, 0)
        beyond = lambda weights: 2 * np.cumsum(weights[::-1])[::-1][1:]
        lacking, missing = tolerance / 4, (tolerance / 4) ** 2
        missed = np.where(up > 1e-16, up * told / (1 + told), 0)
        m = int(np.flatnonzero((beyond(up) <= lacking) & (beyond(missed) <= missing))[0])
        below = np.maximum(-v[: m + 1], 0)
        if 4 * below.sum() <= lacking and 2 * WORTH * (below**2).sum() <= missing:
            taken = width, m, up[: m + 1]
            break
    assert taken is not None
    assert 2 * math.pi / phi.spacing[0] == pytest.approx((3 + 2 * taken[0]) * length, rel=1e-12)
    assert abs(phi.extent[0] - taken[1]) <= 1
    shared = min(len(phi.weights), len(taken[2]))
    np.testing.assert_allclose(phi.weights[:shared], taken[2][:shared], atol=1e-3 * tolerance)
