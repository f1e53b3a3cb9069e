"""Histogram kernels at thirty digits, their spectra, and the error of sampling these."""

import math

import numpy as np
import pytest
from scipy.integrate import quad
from tolerance import assert_close, bernstein_bar, of

from bochner.errors import InvalidInput, UnsupportedKernel
from bochner.features import IID, QMC, Fourier, HistogramSampling, draw
from bochner.features.fourier.histogram import best_step, sampling_error
from bochner.kernels import (
    AdditiveChi2,
    Gaussian,
    Intersection,
    JensenShannon,
    SkewedChi2,
)

ADDITIVE = [AdditiveChi2(), Intersection(), JensenShannon()]
FACTS = [
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


@pytest.mark.parametrize(("kernel", "expected"), FACTS, ids=str)
def test_values_are_those_of_the_formula(kernel, expected):
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
