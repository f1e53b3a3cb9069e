"""Fourier features by ridge leverage: unbiased, nearer at small penalties."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse
import tolerance

import bochner as bo
from bochner.errors import InvalidInput, UnsupportedKernel
from bochner.features.fourier.leverage import LeverageFourierMap, leverages
from bochner.features.method import Request
from bochner.features.rules import draw_map
from bochner.kernels import Constant, Exponential, Gaussian, Laplace, Linear, Matern

SEEDS = range(100)


def cube(n, d, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, (n, d))


def drawn(kernel, method, X, D=64, seed=0):
    return bo.draw(kernel, method, n_features=D, X=X, random_state=seed)


# ---- unbiased, on rows that no map was drawn from


CASES = [
    (Gaussian(0.3), bo.LeverageFourier(), 1),
    (Gaussian((0.7, 0.4)), bo.LeverageFourier(1e-6), 2),
    (Gaussian(1.0), bo.LeverageFourier(1e-2), 4),
    (Matern(1.5, 0.5), bo.LeverageFourier(), 2),
    (Laplace(1.0), bo.LeverageFourier(), 2),
    (Exponential(2.0), bo.LeverageFourier(1e-3), 5),
    (2.0 * Gaussian(0.5) + Linear() + 1.0, bo.LeverageFourier(), 2),
    (Gaussian(1.0) * Matern(2.5, 1.0), bo.LeverageFourier(), 2),
]
NAMES = [f"{kernel}-{method}-{d}" for kernel, method, d in CASES]


def maps(kernel, method, d):
    return [drawn(kernel, method, cube(60, d), seed=seed) for seed in SEEDS]


def bias(kernel, found, d):
    X = 0.8 * cube(4, d, seed=1)
    return tolerance.bias(kernel(X), [phi(X) for phi in found], 10 * len(CASES))


@pytest.mark.statistical
@pytest.mark.parametrize(("kernel", "method", "d"), CASES, ids=NAMES)
def test_features_are_unbiased_and_say_so(kernel, method, d):
    found = maps(kernel, method, d)
    assert all(phi.unbiased and not phi.below_kernel for phi in found)
    assert bias(kernel, found, d) < 1


@pytest.mark.statistical
@pytest.mark.parametrize(
    "case", [CASES[0], CASES[1], CASES[3]], ids=lambda c: NAMES[CASES.index(c)]
)
@pytest.mark.parametrize("power", [0.0, 0.5])
def test_planted_weights_are_seen(case, power):
    """No weights, and their roots."""
    kernel, method, d = case
    found = maps(kernel, method, d)
    assert all(type(phi) is LeverageFourierMap for phi in found)
    faults = [replace(p, weights=(32 * p.weights) ** power / 32) for p in found]
    assert bias(kernel, found, d) < 1 < bias(kernel, faults, d)


# ---- leverage


@pytest.mark.parametrize("kernel", [Gaussian(0.4), Matern(1.5, 0.7), 2.0 * Gaussian(0.5)], ids=repr)
def test_leverages_are_quadratic_forms_of_waves(kernel):
    X, W = cube(40, 2), np.random.default_rng(2).standard_normal((5000, 2)) * 3
    K = kernel(X)
    Z = np.exp(1j * X @ W.T)
    by_hand = (Z.conj() * np.linalg.solve(K + 1e-3 * np.trace(K) * np.eye(40), Z)).sum(axis=0)
    found = leverages(kernel, X, W, 1e-3)
    np.testing.assert_allclose(found, by_hand.real, rtol=1e-9)  # of condition 40/1e-3
    np.testing.assert_allclose(leverages(kernel, scipy.sparse.csr_array(X), W, 1e-3), found)


def distance(kernel, X, method, alpha, seed, D=512):
    K = kernel(X)
    values, V = np.linalg.eigh(K)
    Z = drawn(kernel, method, X, D=D, seed=seed)(X)
    white = V / np.sqrt(np.maximum(values, 0) + alpha)
    return np.abs(np.linalg.eigvalsh(white.T @ (Z @ Z.T - K) @ white)).max()


@pytest.mark.parametrize(
    ("kernel", "d"), [(Gaussian(0.1), 1), (Gaussian(0.35), 2), (Gaussian(0.8), 3), (Matern(1.5), 2)]
)
def test_the_spectral_distance_is_far_below_that_of_independent_frequencies(kernel, d):
    X, alpha = cube(200, d), 1e-4 * 200
    methods = (bo.LeverageFourier(), bo.Fourier(bo.IID()))
    found = [[distance(kernel, X, m, alpha, seed) for seed in range(7)] for m in methods]
    weighted, plain = map(np.median, found)
    assert 1.5 * weighted < plain


# ---- what is refused, and what maps do


@pytest.mark.parametrize(
    ("ask", "error", "message"),
    [
        (lambda: bo.LeverageFourier(0.0), InvalidInput, "LeverageFourier: penalty must be"),
        (
            lambda: bo.draw(Gaussian(), bo.LeverageFourier(), n_features=8, n_inputs=2),
            InvalidInput,
            "LeverageFourier takes rows to measure leverage on",
        ),
        (
            lambda: drawn(Gaussian(), bo.LeverageFourier(), cube(9, 2), D=7),
            InvalidInput,
            "LeverageFourier requires an even number of features, .* got 7. Ask for one more",
        ),
        (
            lambda: draw_map(
                bo.LeverageFourier(), bo.kernels.Polynomial(2), Request(30, 8, 0, X=cube(9, 30))
            ),
            UnsupportedKernel,
            "LeverageFourier requires a kernel of x − y, or sums and products of such",
        ),
    ],
)
def test_what_cannot_be_drawn_is_refused_in_a_sentence(ask, error, message):
    with pytest.raises(error, match=message):
        ask()


def test_constant_columns_and_one_row_are_served():
    X = np.column_stack([cube(30, 1), np.ones(30)])
    for rows in (X, X[:1]):
        phi = drawn(Gaussian(0.5), bo.LeverageFourier(), rows)
        assert np.isfinite(phi(X)).all()
    assert drawn(Gaussian(0.5) + Constant(2.0), bo.LeverageFourier(), X).n_features <= 64
