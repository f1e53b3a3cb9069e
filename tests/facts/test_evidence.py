"""Marginal likelihood from moments: dense normal densities, differences and brute force."""

import numpy as np
import pytest
from scipy.linalg import null_space
from scipy.optimize import minimize
from scipy.stats import multivariate_normal
from tolerance import assert_close

from bochner import Moments
from bochner.solvers.ridge.eigen import decompose, floor
from bochner.solvers.ridge.problem import evidence, evidence_slope
from bochner.solvers.ridge.solution import EvidenceOutcome, maximise_evidence


def data(n=30, D=7, t=1, noise=0.3, seed=0):
    rng = np.random.default_rng(seed)
    Z = rng.standard_normal((n, D)) * np.logspace(0, -1, D)
    return Z, Z @ rng.standard_normal((D, t)) + noise * rng.standard_normal((n, t)) + 2


def eigen_of(Z, y, w=None, centred=True):
    moments = Moments.of(Z, y, w)
    return decompose(moments if centred else moments.about_zero(), centred)


def log_evidence(eigen, alpha, amplitude=None):
    """Return log p(y) of each target, and its derivative in log λ."""
    given = eigen, eigen.at([alpha]), None, amplitude
    return evidence(*given)[0], evidence_slope(*given)[0]


def dense(Z, y, noise, amplitude, centred):
    """Log density of y, or of contrasts of y that no constant changes."""
    Q = null_space(np.ones((1, len(y)))) if centred else np.eye(len(y))
    K = Q.T @ (amplitude * Z @ Z.T + noise * np.eye(len(y))) @ Q
    return multivariate_normal.logpdf(Q.T @ y, np.zeros(len(K)), K)


@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("D", [7, 50])
def test_it_is_the_normal_density_of_the_targets(D, centred):
    Z, y = data(D=D)
    for alpha, amplitude in [(0.1, 2.0), (3.0, 0.5)]:
        value, _ = log_evidence(eigen_of(Z, y, centred=centred), alpha, amplitude)
        assert_close(value[0], dense(Z, y[:, 0], alpha * amplitude, amplitude, centred), factor=1e3)


@pytest.mark.parametrize("amplitude", [None, 0.7])
@pytest.mark.parametrize("centred", [True, False])
def test_its_slope_is_that_of_differences(centred, amplitude):
    eigen, step = eigen_of(*data(t=2), centred=centred), 1e-4
    for alpha in (1e-2, 1.0, 30.0):
        up, down = (log_evidence(eigen, alpha * np.exp(s), amplitude)[0] for s in (step, -step))
        slope = log_evidence(eigen, alpha, amplitude)[1]
        assert np.abs(slope / ((up - down) / (2 * step)) - 1).max() < 1e-5


@pytest.mark.parametrize("given", [{}, {"noise": 0.2}, {"amplitude": 0.7}])
@pytest.mark.parametrize("centred", [True, False])
def test_the_maximum_is_that_of_brute_force(centred, given):
    Z, y = data()
    found = maximise_evidence(eigen_of(Z, y, centred=centred), **given)

    def loss(logs):
        noise, amplitude = np.exp(logs)
        values = {"noise": noise, "amplitude": amplitude} | given
        return -dense(Z, y[:, 0], **values, centred=centred)

    options = {"xatol": 1e-8, "fatol": 1e-10, "maxiter": 2000}
    best = minimize(loss, [0.0, 0.0], method="Nelder-Mead", options=options)
    expected = dict(zip(("noise", "amplitude"), np.exp(best.x), strict=True)) | given
    assert abs(found.noise[0] / expected["noise"] - 1) < 1e-5
    assert abs(found.amplitude[0] / expected["amplitude"] - 1) < 1e-5
    assert_close(found.log_likelihood[0], -best.fun, factor=1e5)
    assert_close(found.alpha, found.noise / found.amplitude)
    assert found.outcome is EvidenceOutcome.SOLVED


def test_edges_and_limits_are_outcomes():
    Z, y = data(noise=0.0)
    assert maximise_evidence(eigen_of(Z, y)).outcome is EvidenceOutcome.EDGE_LOW
    assert not EvidenceOutcome.EDGE_LOW.good
    Z, y = (np.random.default_rng(i).standard_normal((40, 3 - 2 * i)) for i in (0, 1))
    Q = np.linalg.qr(np.column_stack([np.ones(40), Z]))[0]
    unexplained = maximise_evidence(eigen_of(Z, y - Q @ (Q.T @ y)))
    assert unexplained.outcome is EvidenceOutcome.EDGE_HIGH
    Z, y = data(noise=1e-6)
    single = maximise_evidence(decompose(Moments.of(Z, y, precision="float32")))
    assert single.outcome is EvidenceOutcome.FLOAT32_LIMITED
    assert 'precision="float64"' in str(single.outcome)
    Z, y = data(D=3)
    eigen = eigen_of(np.hstack([Z, Z]), y)
    tiny = maximise_evidence(eigen, noise=1e-20, amplitude=1.0)
    assert tiny.outcome is EvidenceOutcome.SINGULAR
    assert tiny.alpha[0] == 0.1 * floor(eigen)


def test_a_constant_target_has_neither_noise_nor_amplitude():
    Z, y = data(t=2)
    y[:, 0] = 5.0
    found = maximise_evidence(eigen_of(Z, y))
    assert found.noise[0] == found.amplitude[0] == 0
    assert found.noise[1] > 0
    assert found.outcome is EvidenceOutcome.SOLVED
    alone = maximise_evidence(eigen_of(Z, y[:, :1]), noise=0.1)
    assert alone.outcome is EvidenceOutcome.CONSTANT_TARGET
    assert alone.outcome.good
    assert alone.noise[0] == 0.1


def test_noise_zero_takes_the_best_amplitude():
    Z, y = data(n=10, D=20, noise=0.0)
    found = maximise_evidence(eigen_of(Z, y, centred=False), noise=0.0)
    K = Z @ Z.T
    assert found.noise[0] == 0
    assert abs(found.amplitude[0] / (y.T @ np.linalg.solve(K, y) / 10).item() - 1) < 1e-6


@pytest.mark.parametrize("centred", [True, False])
def test_a_noise_too_small_to_be_resolved_has_the_amplitude_of_none(centred):
    """With λ held at the smallest that is resolved, σ²/λ would be an amplitude as small as σ²."""
    x = np.linspace(-3, 3, 40)
    Z = np.linalg.cholesky(np.exp(-((x[:, None] - x) ** 2) / 2) + 1e-14 * np.eye(40))
    y = np.sin(2 * x)[:, None]
    smooth, plain = eigen_of(Z, y, centred=centred), eigen_of(*data(D=50), centred=centred)
    for eigen, outcome in [(smooth, EvidenceOutcome.SINGULAR), (plain, EvidenceOutcome.SOLVED)]:
        without = maximise_evidence(eigen, noise=0.0)
        for noise in (1e-20, 1e-30, 1e-60):
            found = maximise_evidence(eigen, noise=noise)
            assert found.noise[0] == noise
            assert found.amplitude[0] == without.amplitude[0]
            assert found.alpha[0] == floor(eigen)
            assert found.outcome is outcome
