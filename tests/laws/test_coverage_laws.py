"""Bounds and intervals hold with at least their stated probability, by brute force."""

from functools import cache
from typing import NamedTuple

import numpy as np
import pytest
from scipy.linalg import eigh
from scipy.stats import binom
from tolerance import ALARM

import bochner as bo
from bochner import certify
from bochner.certificates import fourier_bound, leverage_bound, zonal_bound
from bochner.kernels import Exponential, Gaussian, Matern
from bochner.landmarks import Uniform

pytestmark = [pytest.mark.statistical, pytest.mark.usefixtures("one_thread")]


class Case(NamedTuple):
    """A bound, errors of draws at its width, and a factor that makes the bound fail the test."""

    bound: object
    width: int
    errors: object
    draws: int
    confidence: float
    fault: float


def far_pair(draws, m, g):
    """Return errors for two distant points of a Gaussian kernel: nearly uniform angles."""
    return np.abs(np.cos(g.standard_normal((draws, m)) * 20.0).mean(axis=1))


@cache
def rows(n=80, d=2):
    return np.random.default_rng(7).standard_normal((n, d))


class Truth(NamedTuple):
    K: np.ndarray
    whitening: np.ndarray
    norm: float
    values: np.ndarray


@cache
def truth(kernel, alpha):
    K = kernel(rows())
    values, V = np.linalg.eigh(K)
    return Truth(K, V / np.sqrt(np.maximum(values, 0) + alpha), values[-1], values)


def error_matrix(kernel, method, D, seed):
    phi = bo.draw(kernel, method, n_features=D, X=rows(), random_state=seed)
    Z = phi(rows())
    return Z @ Z.T - kernel(rows())


def matrix_errors(kernel, method, D, measure):
    def errors(draws, _, __):
        return np.array([measure(error_matrix(kernel, method, D, seed)) for seed in range(draws)])

    return errors


def largest(E):
    return np.abs(E).max()


def operator(kernel):
    return lambda E: np.abs(np.linalg.eigvalsh(E)).max() / truth(kernel, 1.0).norm


def spectral(kernel, alpha):
    W = truth(kernel, alpha).whitening
    return lambda E: np.abs(np.linalg.eigvalsh(W.T @ E @ W)).max()


def cost(kernel, rank):
    best = truth(kernel, 1.0).values[:-rank].sum()

    def measure(E):
        values = np.linalg.eigvalsh(E)
        ends = values[-rank:].sum(), values[:rank].sum()
        return max(abs(np.trace(E) - end) for end in ends) / best

    return measure


def pool(weighted):
    """Return the bound for frequencies of a finite pool, by leverage or not, and errors."""
    alpha, n = 2.0, 80
    W = np.random.default_rng(3).standard_normal((2, 150)) * 2.0
    A = rows() @ W
    Z = np.stack([np.cos(A), np.sin(A)])
    K = np.einsum("inm,ikm->nk", Z, Z) / 150
    inverse = np.linalg.inv(K + alpha * np.eye(n))
    tau = np.einsum("inm,nk,ikm->m", Z, inverse, Z)
    chances = tau / tau.sum() if weighted else np.full(150, 1 / 150)
    d = float(np.trace(K @ inverse))
    bound = leverage_bound(d if weighted else float(tau.max()), d)

    def errors(draws, m, g):
        maxima = []
        for _ in range(draws):
            j = g.choice(150, m, p=chances)
            V = Z[:, :, j] / np.sqrt(150 * chances[j])
            K_hat = np.einsum("inm,ikm->nk", V, V) / m
            mu = eigh(K_hat + alpha * np.eye(n), K + alpha * np.eye(n), eigvals_only=True)
            maxima.append(np.abs(mu - 1).max())
        return np.array(maxima)

    return bound, errors


GAUSSIAN, MATERN = Gaussian(1.5), Matern(1.5, 2.0)
PAIRS, PHASES = bo.Fourier(bo.IID()), bo.Fourier(bo.IID(), form="phase")


def of_pair(theorem, distance, draw):
    """Return the case of one pair of rows: 4000 draws, at 95 %."""
    bound = fourier_bound(Gaussian(), [[0.0], [distance]], theorem)
    return Case(bound, 200, draw, 4000, 0.95, 2.0)


def matrices(bound, kernel, method, measure, fault, width=100, draws=80):
    """Return a case of whole matrices, at 90 %."""
    return Case(bound, width, matrix_errors(kernel, method, width, measure), draws, 0.9, fault)


def widest(draws, m, g):
    """Return errors of cos ω·δ = ±1, ω = 0 or π and δ = 1: k(δ) = 0 with the largest variance."""
    return np.abs(np.where(g.random((draws, m)) < 0.5, 1.0, -1.0).mean(axis=1))


def of_spectrum(bound, method, fault, alpha=4.0):
    return matrices(bound, GAUSSIAN, method, spectral(GAUSSIAN, alpha), fault, 400, 60)


def pooled(weighted, fault):
    bound, errors = pool(weighted)
    return Case(bound, 400, errors, 60, 0.9, fault)


def projections():
    bound, measure = fourier_bound(GAUSSIAN, rows(), "projection_cost", rank=4), cost(GAUSSIAN, 4)
    return matrices(bound, GAUSSIAN, PAIRS, measure, 98.0, 400, 60)


def gegenbauer():
    bound = zonal_bound(GAUSSIAN, rows(), alpha=4.0)
    cut = bound.best_cut(400)
    return of_spectrum(bound, bo.Gegenbauer("monomial", cut.order, cut.degree), 14.0)


def of_rows(theorem, kernel, phases, measure, fault):
    """Return the case of all pairs of rows, by its theorem."""
    form = ("phase",) if phases else ()
    return matrices(
        fourier_bound(kernel, rows(), theorem, *form),
        kernel,
        PHASES if phases else PAIRS,
        measure,
        fault,
    )


def of_penalty(form, method, fault):
    return of_spectrum(fourier_bound(GAUSSIAN, rows(), "spectral", form, alpha=4.0), method, fault)


G, M = GAUSSIAN, MATERN
CASES = {
    "Hoeffding, the widest pair": lambda: of_pair("hoeffding", 1.0, widest),
    "Bernstein, a far pair": lambda: of_pair("bernstein", 20.0, far_pair),
    "Hoeffding, all pairs": lambda: of_rows("hoeffding", G, False, largest, 3.3),
    "Bernstein, all pairs, phases": lambda: of_rows("bernstein", M, True, largest, 2.6),
    "Rahimi-Recht": lambda: of_rows("rahimi_recht", G, False, largest, 7.5),
    "Rahimi-Recht, phases": lambda: of_rows("rahimi_recht", G, True, largest, 12.0),
    "operator norm": lambda: of_rows("operator_norm", G, False, operator(G), 9.5),
    "operator norm, phases": lambda: of_rows("operator_norm", M, True, operator(M), 6.6),
    "spectral, n/λ": lambda: of_penalty("pair", PAIRS, 15.0),
    "spectral, n/λ, phases": lambda: of_penalty("phase", PHASES, 13.5),
    "spectral, largest leverage of a pool": lambda: pooled(False, 9.3),
    "spectral, drawn by leverage": lambda: pooled(True, 5.9),
    "cost of projections": projections,
    "spectral, Gegenbauer": gegenbauer,
}


@cache
def case_of(name):
    """Return the case, and errors of its draws."""
    case = CASES[name]()
    draws = case.width // getattr(case.bound, "per_draw", 2)
    return case, case.errors(case.draws, draws, np.random.default_rng(11))


def misses_too_often(name, factor=None):
    """Return whether too many draws exceed the guaranteed error, divided by the fault if given."""
    case, errors = case_of(name)
    guaranteed = case.bound.error(case.width, case.confidence) / (case.fault if factor else 1.0)
    return (errors > guaranteed).sum() > binom.isf(ALARM, case.draws, 1 - case.confidence)


@pytest.mark.parametrize("name", CASES)
def test_draws_are_below_the_guaranteed_error_and_smaller_errors_fail(name):
    assert not misses_too_often(name)
    assert misses_too_often(name, factor=True)


N = 600
CONFIDENCE = 0.95
LANDMARKS = bo.Nystrom(Uniform())
METHODS = [bo.Fourier(bo.IID()), bo.Fourier(bo.Orthogonal()), LANDMARKS]
GALLERY = [
    (kernel.replace(lengthscale=width * d**0.5), d, method)
    for kernel in (Gaussian(), Matern(1.5), Exponential())
    for d, width in [(2, 0.5), (6, 1.0)]
    for method in METHODS
]


@cache
def fitted(kernel, d, method):
    """Return rows, a map, the eigendecomposition of K, and the error matrix."""
    X = np.random.default_rng(d).standard_normal((N, d))
    width = 60 if method == LANDMARKS else 200
    phi = bo.draw(kernel, method, n_features=width, X=X, random_state=0)
    K, Z = kernel(X), phi(X)
    return X, phi, np.linalg.eigh(K), Z @ Z.T - K


@cache
def exact_error(case, alpha):
    _, _, (values, U), E = fitted(*case)
    W = U / np.sqrt(np.maximum(values, 0) + alpha)
    return np.abs(np.linalg.eigvalsh(W.T @ E @ W)).max()


def interval(case, alpha, m, seed):
    X, phi = fitted(*case)[:2]
    c = certify(phi, X, alpha=alpha, n_sample=m, confidence=CONFIDENCE, random_state=seed)
    return c.epsilon, *c.epsilon_interval


@pytest.mark.slow
def test_intervals_contain_the_truth_with_their_confidence():
    """On both sides few intervals miss the truth."""
    n_over, n_under, count = 0, 0, 0
    for case in GALLERY:
        for share in [1e-1, 1e-2, 1e-4]:
            exact = exact_error(case, share * N)
            for seed, m in enumerate((75, 120, 200)):
                _, low, high = interval(case, share * N, m, seed)
                n_over += high < exact
                n_under += low > exact
                count += 1
    assert max(n_over, n_under) <= binom.isf(ALARM, count, (1 - CONFIDENCE) / 2)


@pytest.mark.slow
def test_intervals_are_short():
    widths = [
        np.log(high / low) for case in GALLERY for _, low, high in [interval(case, 0.1 * N, 200, 0)]
    ]
    assert np.median(widths) < np.log(1.7)
