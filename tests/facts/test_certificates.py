"""Certificates beside ``certify``'s sample: residuals, costs, risk.

Each number by a second, dense route.
"""

from dataclasses import dataclass

import numpy as np
import pytest
from scipy.linalg import eigh

import bochner as bo
from bochner import (
    approximation_residual,
    certify,
    certify_costs,
    check_features,
    risk,
)
from bochner.certificates import effective_dimension, intrinsic_dimension, leverage_scores
from bochner.certificates.risk import Smoother, noise_variance
from bochner.errors import InvalidInput, InvalidType, NotPositive
from bochner.kernels import Custom, Gaussian, Kernel, Polynomial

pytestmark = pytest.mark.usefixtures("one_thread")

ALARM_BAR = 5.0
"""Standard errors that a correct mean is off with a chance below 1e-6."""


def rows(n=300, d=3, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d))


def maps(D=60, kernel=None, n=300):
    kernel = Gaussian(1.5) if kernel is None else kernel
    X = rows(n)
    fourier = bo.draw(kernel, bo.Fourier(bo.IID()), n_features=D, X=X, random_state=0)
    return fourier, bo.draw(kernel, bo.Nystrom(), n_features=D, X=X, random_state=0)


def test_the_share_of_pairs_beyond_the_largest_error_is_small_enough():
    """Of 25 samples of 64 rows none leaves more pairs beyond than it says, by far."""
    phi, X = maps()[0], rows()
    E = np.abs(phi(X) @ phi(X).T - phi.kernel(X))[np.triu_indices(300, 1)]
    over = [
        float((E > c.entrywise).mean()) > c.pairs_beyond
        for c in (certify(phi, X, alpha=1.0, n_sample=64, random_state=s) for s in range(25))
    ]
    assert not any(over)
    worst = max(
        float((E > c.entrywise / 4).mean()) - c.pairs_beyond
        for c in (certify(phi, X, alpha=1.0, n_sample=64, random_state=s) for s in range(5))
    )
    assert worst > 0  # an entry understated by four would be seen


# ---- what the features leave out in the mean over draws


CUT = [
    bo.Gegenbauer(order=1, degree=2),
    bo.Projected(bo.Fourier(), 2),
]


def pair_of(method, kernel, X):
    return [bo.draw(kernel, method, n_features=300, X=X, random_state=s) for s in (0, 1)]


@pytest.mark.parametrize("method", CUT, ids=["series", "projection"])
def test_no_number_of_features_is_promised_where_the_mean_over_draws_is_off(method):
    X, kernel = rows(), Gaussian()
    a, b = pair_of(method, kernel, X)
    A, B, K = a(X) @ a(X).T, b(X) @ b(X).T, kernel(X)
    # The noise, of which two draws differ, is less than the error.
    assert np.linalg.norm(A - B) / 2**0.5 < 0.9 * np.linalg.norm(A - K)
    certificate = certify(a, X, alpha=1.0)
    assert certificate.features_to_halve is None
    assert "1/√D." not in str(certificate) or "does not fall" in str(certificate)


def test_halving_takes_four_times_the_features_of_a_series_that_leaves_nothing_out():
    """On a sphere the default degree leaves nothing, of a polynomial its own degree does."""
    X = rows()
    on_sphere = X / np.linalg.norm(X, axis=1, keepdims=True)
    for kernel, table in ((Gaussian(), on_sphere), (bo.kernels.Polynomial(3), X)):
        a = pair_of(bo.Gegenbauer("monomial"), kernel, table)[0]
        assert certify(a, table, alpha=1.0).features_to_halve == 4 * a.n_features


def test_what_is_left_out_of_sums_and_multiples_is_that_of_their_parts():
    X = rows(60)
    cut = bo.Gegenbauer("monomial", order=1, degree=2)
    one = bo.draw(Gaussian(1.5), cut, n_features=64, X=X, random_state=0)
    e = one.left_out(X)
    assert (e > 0).all()
    for kernel, factor in ((2.0 * Gaussian(1.5), 2.0), (Gaussian(1.5) + bo.kernels.Linear(), 1.0)):
        phi = bo.draw(kernel, cut, n_features=64, X=X, random_state=0)
        np.testing.assert_allclose(phi.left_out(X), factor * e, rtol=1e-9)
    known = bo.draw(Gaussian(1.5), bo.Fourier(), n_features=64, X=X, random_state=0)
    assert (known.left_out(X) == 0).all()
    below = bo.draw(Gaussian(1.5), "nystrom", n_features=20, X=X, random_state=0)
    np.testing.assert_allclose(below.left_out(X), below.residual(X), atol=1e-11)


# ---- residuals


@pytest.mark.parametrize("method", [bo.Nystrom(), bo.HermiteMercer(), bo.MercerHarmonic()])
def test_trust_bounds_every_entry_and_the_distance(method):
    X, k = rows(), Gaussian(1.5)
    phi = bo.draw(k, method, n_features=60, X=X[:200], random_state=0)
    found = approximation_residual(phi, X)
    E = k(X) - phi(X) @ phi(X).T
    np.testing.assert_allclose(found.residual, np.diag(E), atol=1e-9)
    bound = np.sqrt(np.outer(found.residual, found.residual))
    assert (np.abs(E) <= bound + 1e-8).all()
    assert found.entry_bound(3, 250) == pytest.approx(bound[3, 250])
    assert found.trace == pytest.approx(np.trace(E))
    assert np.linalg.norm(E, 2) <= found.trace
    for alpha in (0.1, 10.0):
        assert certify(phi, X, alpha=alpha).epsilon <= found.epsilon_bound(alpha)


# ---- dimensions and leverage


def test_dimensions_and_leverage_are_those_of_the_matrix():
    X, k = rows(120), Gaussian()
    K = k(X)
    S = K @ np.linalg.inv(K + 0.5 * np.eye(120))
    np.testing.assert_allclose(leverage_scores(k, X, alpha=0.5), np.diag(S), atol=1e-10)
    assert effective_dimension(k, X, alpha=0.5) == pytest.approx(np.trace(S))
    assert intrinsic_dimension(k, X) == pytest.approx(120 / np.linalg.norm(K, 2))
    assert intrinsic_dimension(Polynomial(offset=0.0), 0 * X) == 0.0


def test_leverage_of_features_is_that_of_their_matrix(monkeypatch):
    monkeypatch.setattr("bochner.certificates.pointwise.BLOCK", 50)
    phi, X = maps()[0], rows(120)
    K = phi(X) @ phi(X).T
    S = K @ np.linalg.inv(K + 0.5 * np.eye(120))
    np.testing.assert_allclose(leverage_scores(phi, X, alpha=0.5), np.diag(S), atol=1e-10)
    assert effective_dimension(phi, X, alpha=0.5) == pytest.approx(np.trace(S))
    assert intrinsic_dimension(phi, X) == pytest.approx(np.trace(K) / np.linalg.norm(K, 2))


# ---- costs of projections


def cost(A, P):
    return np.trace(A) - np.trace(P @ A @ P)


@pytest.mark.parametrize("which", [0, 1], ids=["Fourier", "Nystrom"])
def test_no_projection_leaves_the_interval_of_costs_and_two_reach_its_ends(which):
    phi, X = maps()[which], rows()
    c = certify_costs(phi, X, rank=5, random_state=0)
    K, K_hat = phi.kernel(X), phi(X) @ phi(X).T
    E, g = K_hat - K, np.random.default_rng(0)
    values, vectors = np.linalg.eigh(E)
    for U in (vectors[:, -5:], vectors[:, :5], np.linalg.eigh(K)[1][:, -5:]):
        gap = cost(K_hat, U @ U.T) - cost(K, U @ U.T)
        assert c.least - 1e-8 <= gap <= c.most + 1e-8
    assert c.least == pytest.approx(np.trace(E) - values[-5:].sum())
    for _ in range(20):
        U = np.linalg.qr(g.standard_normal((300, 5)))[0]
        gap = cost(K_hat, U @ U.T) - cost(K, U @ U.T)
        assert c.least <= gap <= c.most
        assert abs(gap) <= c.relative * cost(K, U @ U.T)
    assert max(-c.least, c.most) <= c.simple_bound
    assert c.best_cost == pytest.approx(np.linalg.eigvalsh(K)[:-5].sum())


# ---- risk


def truth_of(A, f, variance, alpha):
    """Regularisation and noise by the definition."""
    n = len(A)
    S = A @ np.linalg.inv(A + alpha * np.eye(n))
    return ((f - S @ f) ** 2).sum() / n, variance * (S * S).sum() / n


@pytest.fixture(scope="module")
def experiment():
    X = rows(150)
    f = np.sin(X[:, 0]) + X[:, 1] ** 2
    return X, f - f.mean(), maps(n=150, D=40)[0]


@pytest.mark.statistical
def test_parts_of_the_risk_are_unbiased(experiment):
    """Over 40 draws of noise; without the trace of (I − S)² the first would be off, and seen."""
    X, f, phi = experiment
    g, found = np.random.default_rng(0), []
    for _ in range(40):
        y = f + 0.5 * g.standard_normal(150)
        r = risk(phi, X, y, alpha=0.3, noise=0.25)
        found.append((r.regularisation, r.total))
    means, errors = np.mean(found, axis=0), np.std(found, axis=0, ddof=1) / 40**0.5
    exact, ours = (truth_of(A, f, 0.25, 0.3) for A in (phi.kernel(X), phi(X) @ phi(X).T))
    assert abs(means[0] - exact[0]) < ALARM_BAR * errors[0]
    assert abs(means[1] - sum(ours)) < ALARM_BAR * errors[1]
    left = 0.3 / (np.linalg.eigvalsh(phi.kernel(X)) + 0.3)
    assert 0.25 * (left**2).mean() > ALARM_BAR * errors[0]


@pytest.mark.parametrize("alpha", [1.0, 20.0])
@pytest.mark.parametrize("which", [0, 1], ids=["Fourier", "Nystrom"])
def test_the_risk_stays_below_its_bound(experiment, alpha, which):
    X, f, _ = experiment
    phi = maps(D=100)[which]
    exact, ours = (truth_of(A, f, 0.25, alpha) for A in (phi.kernel(X), phi(X) @ phi(X).T))
    r = risk(phi, X, f, alpha=alpha, noise=0.25)
    K, K_hat = phi.kernel(X), phi(X) @ phi(X).T
    mu = eigh(K_hat + alpha * np.eye(150), K + alpha * np.eye(150), eigvals_only=True)
    assert r.epsilon == pytest.approx(np.abs(mu - 1).max())
    inverse = np.linalg.inv(K + alpha * np.eye(150))
    guarantee = (alpha * f @ inverse @ f + 0.25 * np.trace(K @ inverse)) / 150
    if r.epsilon < 1:
        noise = r.epsilon / (1 + r.epsilon) * min(phi.n_features, 150) / 150 * 0.25
        assert sum(exact) <= guarantee
        assert sum(ours) <= guarantee / (1 - r.epsilon) + noise
        assert r.bound == pytest.approx(r.guarantee / (1 - r.epsilon) + noise)
    else:
        assert r.bound is None


def test_the_guarantee_is_that_of_the_truth(experiment):
    X, f, phi = experiment
    K = phi.kernel(X)
    inverse = np.linalg.inv(K + 2 * np.eye(150))
    r = risk(phi, X, f, alpha=2.0, noise=0.0)
    assert r.guarantee == pytest.approx(2 * f @ inverse @ f / 150)
    found = [
        risk(phi, X, f + 0.5 * g.standard_normal(150), alpha=2.0, noise=0.25).guarantee
        for g in map(np.random.default_rng, range(20))
    ]
    exact = (2 * f @ inverse @ f + 0.25 * np.trace(K @ inverse)) / 150
    assert abs(np.mean(found) - exact) < ALARM_BAR * np.std(found, ddof=1) / 20**0.5


def test_the_risk_of_the_exact_kernel_itself_is_no_base_for_a_bound():
    """Within ε = ½, and more than ten times the exact kernel's risk over 1 − ε: why G is used."""
    K, alpha = np.diag([1e4, 1e-4]), 1.0
    L = np.sqrt(np.diag(K) + alpha)
    K_hat = K + 0.5 * np.outer(L, L) * np.array([[0.0, 1.0], [1.0, 0.0]])
    K_hat[1, 1] = K_hat[0, 1] ** 2 / K_hat[0, 0]  # psd, of rank one
    mu = eigh(K_hat + alpha * np.eye(2), K + alpha * np.eye(2), eigvals_only=True)
    epsilon = np.abs(mu - 1).max()
    f = np.array([1.0, 0.0])
    exact, ours = (truth_of(A, f, 0.0, alpha)[0] for A in (K, K_hat))
    guarantee = alpha * f @ np.linalg.inv(K + alpha * np.eye(2)) @ f / 2
    assert epsilon < 0.7
    assert ours > 10 * exact / (1 - epsilon)
    assert ours <= guarantee / (1 - epsilon)


def test_the_noise_is_found_where_the_kernel_can_follow_the_truth(experiment):
    X, f, _ = experiment
    K = Gaussian(2.0)(X)
    values, vectors = np.linalg.eigh(K)
    smoother = Smoother(np.maximum(values, 0), vectors)
    found = [
        noise_variance(
            smoother, (f + 0.5 * np.random.default_rng(s).standard_normal(150))[:, None], 1.0
        )
        for s in range(20)
    ]
    # 20 means of squares of about 75 directions: 2.6 % standard error; the rest is the truth's.
    assert np.mean(found) == pytest.approx(0.25, rel=0.15)


# ---- refusals


@pytest.mark.parametrize(
    ("ask", "error", "message"),
    [
        (lambda f, n: certify(f, rows(), alpha=0.0), InvalidInput, "alpha must be a"),
        (lambda f, n: certify(f, rows(d=5), alpha=1.0), InvalidInput, "the 3 columns the map was"),
        (
            lambda f, n: certify(f, rows(), alpha=1.0, n_rows=100),
            InvalidInput,
            "n_rows must be an integer, 300 or above",
        ),
        (
            lambda f, n: certify(f, rows(), alpha=0.5, kernel=dented()),
            NotPositive,
            "certify: the kernel matrix must be positive semi-definite",
        ),
        (
            lambda f, n: approximation_residual(f, rows()),
            InvalidInput,
            "whose errors have both signs",
        ),
        (
            lambda f, n: approximation_residual(n, rows(d=2)),
            InvalidInput,
            "the 3 columns the map was drawn for",
        ),
        (
            lambda f, n: approximation_residual(np.tanh, rows()),
            InvalidInput,
            "approximation_residual: kernel must be given",
        ),
        (
            lambda f, n: approximation_residual(n, rows()).epsilon_bound(0),
            InvalidInput,
            "alpha must be a positive",
        ),
        (
            lambda f, n: certify_costs(f, rows(20), rank=20),
            InvalidInput,
            "below the 20 rows measur",
        ),
        (lambda f, n: certify_costs(f, rows(), rank=0), InvalidInput, "rank must be an integer, 1"),
        (lambda f, n: risk(f, rows(), np.ones(5), alpha=1.0), InvalidInput, "same number of rows"),
        (
            lambda f, n: risk(f, rows(), np.ones(300), alpha=-1),
            InvalidInput,
            "alpha must be a posi",
        ),
        (
            lambda f, n: risk(f, rows(), np.full(300, np.nan), alpha=1.0),
            InvalidInput,
            "risk: y must be finite",
        ),
        (
            lambda f, n: risk(f, rows(), np.ones(300), alpha=1.0, noise=-0.1),
            InvalidInput,
            "noise must be a non-negative",
        ),
        (
            lambda f, n: leverage_scores(f, rows(), alpha=0),
            InvalidInput,
            "alpha must be a positive",
        ),
        (
            lambda f, n: leverage_scores(3, rows(), alpha=1),
            InvalidType,
            "must be a Kernel or a Feat",
        ),
        (lambda f, n: leverage_scores(f, rows()[:0], alpha=1), InvalidInput, "at least one row"),
        (
            lambda f, n: effective_dimension(Gaussian(), np.zeros((10_001, 1)), alpha=1),
            InvalidInput,
            "1 to 10,000 rows for the exact kernel; got 10,001",
        ),
        (
            lambda f, n: intrinsic_dimension(Custom(lambda X, Y: -(X @ Y.T)), rows(20)),
            NotPositive,
            "its eigenvalues run from",
        ),
        (
            lambda f, n: intrinsic_dimension(Endless(), rows(20)),
            InvalidInput,
            "intrinsic_dimension: kernel\\(X\\) must be finite",
        ),
        (lambda f, n: check_features(3), InvalidType, "phi must be a FeatureMap or a callable"),
        (
            lambda f, n: check_features(np.tanh),
            InvalidInput,
            "X must be given where the map does no",
        ),
        (lambda f, n: check_features(f, rows(1)), InvalidInput, "at least 2 rows; got 1"),
    ],
)
def test_what_cannot_be_certified_is_refused_in_a_sentence(ask, error, message):
    with pytest.raises(error, match=message):
        ask(*maps())


def dented():
    """A kernel that is positive on the 64 rows of the sample, and not on all."""
    k = Gaussian(1.5)
    return Custom(lambda X, Y: k(X, Y) - 60.0 * np.exp(-np.add.outer((X**2).sum(1), (Y**2).sum(1))))


@dataclass(frozen=True)
class Endless(Kernel):
    """A user's own that overflows and does not say so."""

    def evaluate(self, X, Y):
        return np.full((len(X), len(Y)), np.inf)

    def diagonal(self, X):
        return np.full(len(X), np.inf)
