"""Certificates: numbers compared with dense linear algebra, sentences, costs, errors raised."""

import json
from dataclasses import replace

import numpy as np
import pytest
from gallery import points
from gallery import two_maps as maps
from scipy.linalg import eigh
from scipy.special import expit
from scipy.stats import t as student

import bochner as bo
from bochner import certify, certify_costs, risk
from bochner.certificates import effective_dimension, leverage_scores
from bochner.certificates.pencil import match_penalty
from bochner.kernels import Gaussian, Polynomial

pytestmark = pytest.mark.usefixtures("one_thread")

ALARM_BAR = 5.0
"""Number of standard errors that a correct mean exceeds with probability below 1e-6."""


def test_few_pairs_exceed_the_largest_error_of_a_sample():
    """In 25 samples; the planted fault understates the largest error by a factor of four."""
    phi, X = maps()[0], points()
    E = np.abs(phi(X) @ phi(X).T - phi.kernel(X))[np.triu_indices(300, 1)]
    certificates = [certify(phi, X, alpha=1.0, n_sample=64, random_state=s) for s in range(25)]
    assert all((E > c.entrywise).mean() <= c.pairs_beyond for c in certificates)
    assert any((E > c.entrywise / 4).mean() > c.pairs_beyond for c in certificates)


@pytest.mark.parametrize(
    "method", [bo.Gegenbauer(order=1, degree=2), bo.Projected(bo.Fourier(), 2)], ids=repr
)
def test_no_number_of_features_is_stated_for_biased_features(method):
    X, kernel = points(), Gaussian()
    a, b = (bo.draw(kernel, method, n_features=300, X=X, random_state=s) for s in (0, 1))
    A, B, K = a(X) @ a(X).T, b(X) @ b(X).T, kernel(X)
    # The noise, the difference of two draws, is less than the error.
    assert np.linalg.norm(A - B) / 2**0.5 < 0.9 * np.linalg.norm(A - K)
    assert certify(a, X, alpha=1.0).features_to_halve is None
    phi = bo.draw(Polynomial(3), bo.Gegenbauer("monomial"), n_features=300, X=X, random_state=0)
    assert certify(phi, X, alpha=1.0).features_to_halve == 4 * phi.n_features


def test_the_omitted_part_is_positive_for_a_cut_series_and_zero_for_unbiased_maps():
    X, methods = points(60), (bo.Gegenbauer("monomial", order=1, degree=2), "iid")
    cut, unbiased = (bo.draw(Gaussian(1.5), m, n_features=64, X=X, random_state=0) for m in methods)
    assert (cut.truncation_error(X) > 0).all()
    assert (unbiased.truncation_error(X) == 0).all()


@pytest.mark.parametrize("kind", ["kernel", "features"])
def test_dimensions_and_leverage_equal_those_of_dense_algebra(kind, monkeypatch):
    monkeypatch.setattr("bochner.certificates.pencil.BLOCK", 50)
    X, phi = points(120), maps()[0]
    k = Gaussian() if kind == "kernel" else phi
    K = k(X) if kind == "kernel" else phi(X) @ phi(X).T
    S = K @ np.linalg.inv(K + 0.5 * np.eye(120))
    np.testing.assert_allclose(leverage_scores(k, X, alpha=0.5), np.diag(S), atol=1e-10)
    assert effective_dimension(k, X, alpha=0.5) == pytest.approx(np.trace(S))


def cost(A, P):
    return np.trace(A) - np.trace(P @ A @ P)


@pytest.mark.parametrize("kind", [0, 1], ids=["Fourier", "Nystrom"])
def test_projection_costs_are_in_the_interval_and_two_reach_its_ends(kind):
    phi, X = maps()[kind], points()
    c = certify_costs(phi, X, rank=5, random_state=0)
    K, K_hat = phi.kernel(X), phi(X) @ phi(X).T
    E, g = K_hat - K, np.random.default_rng(0)
    values, vectors = np.linalg.eigh(E)
    for U in (vectors[:, -5:], vectors[:, :5], np.linalg.eigh(K)[1][:, -5:]):
        gap = cost(K_hat, U @ U.T) - cost(K, U @ U.T)
        assert c.lowest - 1e-8 <= gap <= c.highest + 1e-8
    assert c.lowest == pytest.approx(np.trace(E) - values[-5:].sum())
    for _ in range(20):
        U = np.linalg.qr(g.standard_normal((300, 5)))[0]
        gap = cost(K_hat, U @ U.T) - cost(K, U @ U.T)
        assert c.lowest <= gap <= c.highest
        assert abs(gap) <= c.relative_error * cost(K, U @ U.T)
    assert c.best_cost == pytest.approx(np.linalg.eigvalsh(K)[:-5].sum())
    upper, lower = max(c.highest, 0) / c.best_cost, max(-c.lowest, 0) / c.best_cost
    assert c.factor == (None if lower >= 1 else pytest.approx((1 + upper) / (1 - lower)))
    assert replace(c, lowest=-1.5 * c.best_cost).factor is None  # no bound


def solved(A, alpha):
    return np.linalg.inv(A + alpha * np.eye(len(A)))


def truth_of(A, f, variance, alpha):
    """Return regularisation and noise by the definition."""
    S = A @ solved(A, alpha)
    return np.mean((f - S @ f) ** 2), variance * np.mean(np.diag(S.T @ S))


@pytest.fixture(scope="module")
def experiment():
    X = points(150)
    f = np.sin(X[:, 0]) + X[:, 1] ** 2
    return X, f - f.mean(), maps(150, D=40)[0]


@pytest.mark.statistical
def test_parts_of_the_risk_are_unbiased_over_draws_of_noise(experiment):
    """Without the trace of (I − S)² the first part would differ by more than the tolerance."""
    X, f, phi = experiment
    g, parts = np.random.default_rng(0), []
    for _ in range(40):
        r = risk(phi, X, f + 0.5 * g.standard_normal(150), alpha=0.3, noise=0.25)
        parts.append((r.regularisation, r.total))
    means, errors = np.mean(parts, axis=0), np.std(parts, axis=0, ddof=1) / 40**0.5
    exact, approximate = (truth_of(A, f, 0.25, 0.3) for A in (phi.kernel(X), phi(X) @ phi(X).T))
    assert abs(means[0] - exact[0]) < ALARM_BAR * errors[0]
    assert abs(means[1] - sum(approximate)) < ALARM_BAR * errors[1]
    shrinkage = 0.3 / (np.linalg.eigvalsh(phi.kernel(X)) + 0.3)
    assert 0.25 * (shrinkage**2).mean() > ALARM_BAR * errors[0]


@pytest.mark.parametrize("alpha", [1.0, 20.0])
@pytest.mark.parametrize("kind", [0, 1], ids=["Fourier", "Nystrom"])
def test_the_risk_is_below_its_bound(experiment, alpha, kind):
    X, f, _ = experiment
    phi = maps(D=100)[kind]
    K, K_hat = phi.kernel(X), phi(X) @ phi(X).T
    exact, approximate = (truth_of(A, f, 0.25, alpha) for A in (K, K_hat))
    r = risk(phi, X, f, alpha=alpha, noise=0.25)
    mu = eigh(K_hat + alpha * np.eye(150), K + alpha * np.eye(150), eigvals_only=True)
    assert r.epsilon == pytest.approx(np.abs(mu - 1).max())
    S = solved(K, alpha)
    assert sum(exact) <= (guarantee := (alpha * f @ S @ f + 0.25 * np.trace(K @ S)) / 150)
    if r.epsilon < 1:
        noise = r.epsilon / (1 + r.epsilon) * min(phi.n_features, 150) / 150 * 0.25
        assert sum(approximate) <= guarantee / (1 - r.epsilon) + noise
        assert r.bound == pytest.approx(r.guarantee / (1 - r.epsilon) + noise)
    else:
        assert r.bound is None


# ---- the certificate's numbers compared with dense algebra, its sentences, and errors raised


def waves(d=3, pairs=60, amplitude=1.0):
    kernel = amplitude * Gaussian() if amplitude != 1 else Gaussian()
    return bo.draw(kernel, bo.Fourier(bo.IID()), n_features=2 * pairs, n_inputs=d, random_state=1)


def landmarks(X, count=30):
    method = bo.Nystrom(bo.landmarks.Points(X[:count]))
    return bo.draw(Gaussian(), method, n_features=count, X=X, random_state=0)


def brute(phi, X, alpha):
    """Return 1 − the smallest and the largest − 1 generalised eigenvalue, K, and ZZᵀ − K."""
    Z, K, I = phi(X), phi.kernel(X), np.eye(len(X))
    values = eigh(Z @ Z.T + alpha * I, K + alpha * I, eigvals_only=True)
    return 1 - values[0], values[-1] - 1, K, Z @ Z.T - K


@pytest.mark.main_cases(2)
@pytest.mark.parametrize("alpha", [30.0, 0.3, 3e-3])
@pytest.mark.parametrize("n", [2, 300, 700])
@pytest.mark.parametrize("kind", ["waves", "landmarks"])
def test_certificates_of_all_rows_equal_dense_algebra(kind, n, alpha):
    """With 700 rows the Lanczos method is used, which is accurate to 1e-5 of the larger side."""
    X = points(n)
    phi = waves() if kind == "waves" else landmarks(X, min(n - 1, 30))
    lower, upper, K, E = brute(phi, X, alpha)
    c = certify(phi, X, alpha=alpha, random_state=0)
    assert c.epsilon == pytest.approx(max(lower, upper), rel=2e-5, abs=1e-11)
    assert c.epsilon_interval == (c.epsilon, c.epsilon)
    assert (c.exact, c.confidence) == (True, 1)
    assert c.frobenius == pytest.approx(np.linalg.norm(E) / np.linalg.norm(K), rel=1e-9)
    assert c.frobenius_interval == pytest.approx((c.frobenius, c.frobenius))
    assert c.entrywise == pytest.approx(np.abs(E).max(), rel=1e-9)
    d = np.trace(np.linalg.solve(K + alpha * np.eye(n), K))
    assert c.effective_dimension == pytest.approx(d, rel=1e-8)


def test_a_sample_too_small_for_the_penalty_is_reported():
    X, phi = points(800, d=12), waves(d=12, pairs=50)
    c = certify(phi, X, alpha=1e-3, n_sample=64, random_state=0)
    lower, upper, _, _ = brute(phi, X, 1e-3)
    assert not c.resolved
    assert c.epsilon_interval[1] > max(lower, upper)
    assert "too small to resolve" in str(c)


class Recorded:
    """A map that records the rows of its calls."""

    def __init__(self, phi, rows):
        self.phi, self.rows, self.below_kernel = phi, rows, False

    def __call__(self, X):
        self.rows.append(X)
        return self.phi(X)


def scores(phi, X, alpha):
    """Return log ε₋/(1 − ε₋) and log ε₊."""
    lower, upper, _, _ = brute(phi, X, alpha)
    return np.array([np.log(lower / (1 - lower)), np.log(upper)])


@pytest.mark.parametrize(("n", "alpha"), [(500, 8.0), (6000, 60.0)])
def test_the_interval_of_a_sample_follows_its_formula(n, alpha):
    """Trend, shift and spread by dense eigenvalues of rows and groups, slopes by differences."""
    phi, calls, m = waves(), [], 128
    options = {"kernel": phi.kernel, "alpha": alpha, "n_rows": n, "random_state": 0}
    c = certify(Recorded(phi, calls), points(m), **options)
    X, penalty = calls[0], alpha * m / n
    matched_penalty, _, _ = match_penalty(np.linalg.eigvalsh(phi.kernel(X)), n, alpha)
    assert c.resolved
    assert matched_penalty < penalty
    sample, h = scores(phi, X, penalty), 1e-4
    groups = np.array([scores(phi, part, penalty / 8) for part in np.split(X, 8)])
    slope = -(scores(phi, X, penalty * np.exp(h)) - scores(phi, X, penalty * np.exp(-h))) / (2 * h)
    gain, reach = sample - groups.mean(axis=0), np.log(n / m) / np.log(8)
    shift = slope * min(np.log(penalty / matched_penalty), np.log(10))
    spread = student.ppf(0.975, 7) * groups.std(axis=0, ddof=1) / 8**0.5
    low = sample + np.minimum(gain * reach, 0) - shift - spread * np.sqrt(1 - m / n)
    high = sample + np.maximum(gain * reach, shift) + spread
    middle = sample + (np.minimum(gain * min(reach, 1), 0) + shift) / 2
    ends = [max(expit(lower), np.exp(upper)) for lower, upper in (low, high, middle)]
    assert [*c.epsilon_interval, c.epsilon] == pytest.approx(ends, rel=1e-5)


def test_the_interval_of_the_frobenius_error_is_that_of_a_jackknife():
    """Pairs of a row with itself get the weight that they have among all rows."""
    phi, X, n, m = waves(), points(160), 640, 160
    c = certify(phi, X, alpha=1.0, n_rows=n, random_state=0)
    E, K = phi(X) @ phi(X).T - phi.kernel(X), phi.kernel(X)

    def ratio(rows):
        def total(A):
            squares, k = (np.diag(A)[rows] ** 2).sum(), len(rows)
            pairs = (A[np.ix_(rows, rows)] ** 2).sum() - squares
            return pairs * n * (n - 1) / (k * (k - 1)) + squares * n / k

        return np.sqrt(total(E) / total(K))

    assert c.frobenius == pytest.approx(ratio(np.arange(m)), rel=1e-9)
    logs = np.log([ratio(np.delete(np.arange(m), i)) for i in range(m)])
    deviation = np.sqrt((m - 1) * logs.var() * (1 - m / n))
    low, high = c.frobenius_interval
    assert np.log(high / c.frobenius) == pytest.approx(1.96 * deviation, rel=0.05)
    assert low * high == pytest.approx(c.frobenius**2)


def test_epsilon_bounds_the_risk_only_below_one():
    X = points()
    good = certify(waves(pairs=4000), X, alpha=30.0, random_state=0)
    high = good.epsilon_interval[1]
    assert good.risk_factor == pytest.approx(1 / (1 - high))
    assert good.risk_noise == pytest.approx(high / (1 + high))  # D > n, so rank/n is 1
    bad = certify(waves(pairs=5), X, alpha=0.01, random_state=0)
    assert bad.epsilon > 1
    assert bad.risk_factor is None
    assert bad.risk_noise is None


def test_the_number_of_landmarks_that_halve_epsilon_is_a_lower_bound():
    """With the best directions this number is sufficient, and one fewer is not."""
    X = points()
    c = certify(landmarks(X), X, alpha=0.1, random_state=0)
    assert c.n_features < c.features_to_halve < 300
    # The best map of that width adds the leading eigenvectors of the residual.
    Z, K = landmarks(X)(X), Gaussian()(X)
    I = 0.1 * np.eye(300)
    values, V = eigh(K - Z @ Z.T, K + I)
    for difference in (0, 1):
        W = (K + I) @ V[:, -(c.features_to_halve - c.n_features - difference) :]
        E = K - Z @ Z.T - (W * values[-W.shape[1] :]) @ W.T
        halved = eigh(E, K + I, eigvals_only=True)[-1] <= c.epsilon / 2 * (1 + 1e-6)
        assert halved == (difference == 0)


def test_exact_features_have_zero_distance():
    phi, dot = lambda X: X, lambda X, Y=None: X @ (X if Y is None else Y).T
    for n_sample in (2048, 64):
        c = certify(phi, points(), alpha=1e-3, kernel=dot, n_sample=n_sample, random_state=0)
        assert c.epsilon == c.epsilon_interval[0] == 0
        assert c.epsilon_interval[1] < 1e-8
        assert c.frobenius < 1e-14
        assert c.features_to_halve is None
        assert "zero up to rounding" in str(c)
    c = certify(phi, np.zeros((50, 2)), alpha=1.0, kernel=dot)
    assert (c.epsilon, c.frobenius, c.effective_dimension) == (0, 0, 0)


def test_alpha_below_rounding_is_raised_and_reported():
    c = certify(waves(), points(), alpha=1e-16, random_state=0)
    assert c.alpha == 1e-16
    assert 1e-13 < c.alpha_measured < 1e-10
    assert c.risk_factor is None
    assert "lost to rounding in float64" in str(c)


def test_certificates_are_sentences_and_json():
    X = points(2000)
    c = certify(waves(pairs=2000), X, alpha=200.0, n_sample=400, random_state=0)
    assert str(c).startswith("With 4,000 features, 2,000 rows and alpha = 200, the features are")
    for words in ("95 % interval", "measured on 400 of them", "about 16,000 features"):
        assert words in str(c)
    data = json.loads(json.dumps(c.to_dict(), allow_nan=False))
    assert data["epsilon_interval"] == list(c.epsilon_interval)
    assert data["risk_factor"] == c.risk_factor
    options = dict(n_sample=100, random_state=0)
    assert "follows the spectrum" in str(certify(landmarks(X), X, alpha=1.0, **options))
    assert "because ε reaches 1" in str(certify(waves(pairs=3), X, alpha=0.1, **options))
