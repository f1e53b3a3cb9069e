"""Certificates: numbers against dense linear algebra, sentences, residuals, costs, refusals."""

import json
from dataclasses import dataclass

import numpy as np
import pytest
from scipy.linalg import eigh
from scipy.special import expit
from scipy.stats import t as student

import bochner as bo
from bochner import (
    Certificate,
    approximation_residual,
    certify,
    certify_costs,
    check_features,
    risk,
)
from bochner.certificates import effective_dimension, intrinsic_dimension, leverage_scores
from bochner.certificates.pencil import match
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


# ---- the certificate's numbers against dense linear algebra, its sentences, and what it refuses


@dataclass(frozen=True)
class Radial:
    """amplitude · exp(−|x − y|²/2)."""

    amplitude: float = 1.0

    def __call__(self, X, Y=None):
        Y = X if Y is None else Y
        square = np.sum((X[:, None, :] - Y[None, :, :]) ** 2, axis=2)
        return self.amplitude * np.exp(-square / 2)


@dataclass(frozen=True, eq=False)
class Waves:
    """Random Fourier features of ``Radial``."""

    W: np.ndarray
    kernel: Radial
    below_kernel = False

    def __call__(self, X):
        P = X @ self.W.astype(X.dtype)
        scale = (self.kernel.amplitude / self.W.shape[1]) ** 0.5
        return (scale * np.hstack([np.cos(P), np.sin(P)])).astype(X.dtype)


@dataclass(frozen=True, eq=False)
class Landmarks:
    """Nyström features of ``Radial``."""

    S: np.ndarray
    kernel: Radial
    below_kernel = True

    def __call__(self, X):
        L = np.linalg.cholesky(self.kernel(self.S) + 1e-10 * np.eye(len(self.S)))
        return np.linalg.solve(L, self.kernel(X, self.S).T).T


def waves(d=3, pairs=60, amplitude=1.0):
    return Waves(np.random.default_rng(1).standard_normal((d, pairs)), Radial(amplitude))


def landmarks(X, count=30):
    return Landmarks(X[:count], Radial())


def brute(phi, X, alpha):
    """ε below, ε above and K, by the dense generalised eigenvalues of the pencil."""
    Z, K, I = phi(X), phi.kernel(X), np.eye(len(X))
    values = eigh(Z @ Z.T + alpha * I, K + alpha * I, eigvals_only=True)
    return 1 - values[0], values[-1] - 1, K, Z @ Z.T - K


@pytest.mark.parametrize("alpha", [30.0, 0.3, 3e-3])
@pytest.mark.parametrize("n", [2, 300, 700])
@pytest.mark.parametrize("kind", ["waves", "landmarks"])
def test_all_numbers_are_those_of_dense_algebra_when_all_rows_are_measured(kind, n, alpha):
    X = rows(n)
    phi = waves() if kind == "waves" else landmarks(X, min(n - 1, 30))
    below, above, K, E = brute(phi, X, alpha)
    c = certify(phi, X, alpha=alpha, random_state=0)
    # 700 rows take the Lanczos route, whose values are good to 1e-5 of the larger side.
    assert c.epsilon == pytest.approx(max(below, above), rel=2e-5, abs=1e-11)
    assert c.epsilon_interval == (c.epsilon, c.epsilon)
    assert c.exact
    assert c.confidence == 1
    assert c.frobenius == pytest.approx(np.linalg.norm(E) / np.linalg.norm(K), rel=1e-9)
    assert c.frobenius_interval == pytest.approx((c.frobenius, c.frobenius))
    assert c.entrywise == pytest.approx(np.abs(E).max(), rel=1e-9)
    d = np.trace(np.linalg.solve(K + alpha * np.eye(n), K))
    assert c.effective_dimension == pytest.approx(d, rel=1e-8)


def test_no_scale_matters():
    X = rows(400)
    one = certify(waves(), X, alpha=0.5, n_sample=128, random_state=3)
    for factor in [1e-8, 1e8]:
        scaled = waves(amplitude=factor)
        other = certify(scaled, X, alpha=0.5 * factor, n_sample=128, random_state=3)
        assert other.epsilon == pytest.approx(one.epsilon, rel=1e-7)
        assert other.epsilon_interval == pytest.approx(one.epsilon_interval, rel=1e-6)
        assert other.effective_dimension == pytest.approx(one.effective_dimension, rel=1e-6)
        assert other.frobenius == pytest.approx(one.frobenius, rel=1e-7)


def test_matched_penalty_gives_the_effective_dimension_of_all_rows():
    X = rows(1000, d=2, seed=5)
    K = np.exp(-np.linalg.norm(X[:, None] - X[None], axis=2))
    exact = np.trace(np.linalg.solve(K + np.eye(1000), K))
    values = [np.linalg.eigvalsh(K[s, s]) for s in (slice(0, 250), slice(250, 500))]
    found = np.mean([match(v, 1000, 1.0).effective_dimension for v in values])
    plain = np.mean([np.sum(v / (v + 0.25)) for v in values])
    assert found == pytest.approx(exact, rel=0.1)
    assert plain < 0.8 * exact  # alpha scaled to the sample alone misses a fifth of it


def test_the_sample_says_when_it_cannot_resolve_the_penalty():
    X = rows(800, d=12)
    phi = Waves(np.random.default_rng(1).standard_normal((12, 50)), Radial())
    c = certify(phi, X, alpha=1e-3, n_sample=64, random_state=0)
    below, above, _, _ = brute(phi, X, 1e-3)
    assert not c.resolved
    assert c.epsilon_interval[1] > max(below, above)
    assert "too small to resolve" in str(c)
    assert "at least" in str(c)


@dataclass(frozen=True, eq=False)
class Seen:
    """A map that keeps the rows it is asked about."""

    phi: Waves
    rows: list

    below_kernel = False

    def __call__(self, X):
        self.rows.append(X)
        return self.phi(X)


def scores(phi, X, alpha):
    """Logarithms of ε₋/(1 − ε₋) and of ε₊."""
    below, above, _, _ = brute(phi, X, alpha)
    return np.array([np.log(below / (1 - below)), np.log(above)])


@pytest.mark.parametrize(("n", "alpha"), [(500, 8.0), (6000, 60.0)])
def test_the_interval_of_a_sample_is_put_together_as_the_notes_say(n, alpha):
    """Trend, shift and spread from dense eigenvalues of rows and groups, the slope by differences.

    Of 500 rows the sample is 1/4, of 6,000 less than the eighth that a group is of a sample.
    """
    phi, kept, m = waves(), [], 128
    c = certify(Seen(phi, kept), rows(m), kernel=phi.kernel, alpha=alpha, n_rows=n, random_state=0)
    X, penalty = kept[0], alpha * m / n
    values = np.linalg.eigvalsh(phi.kernel(X))
    found = match(values, n, alpha)
    assert c.resolved
    assert found.penalty < penalty
    whole, h = scores(phi, X, penalty), 1e-4
    groups = np.array([scores(phi, part, penalty / 8) for part in np.split(X, 8)])
    slope = -(scores(phi, X, penalty * np.exp(h)) - scores(phi, X, penalty * np.exp(-h))) / (2 * h)
    gain, reach = whole - groups.mean(axis=0), np.log(n / m) / np.log(8)
    shift = slope * min(np.log(penalty / found.penalty), np.log(10))
    spread = student.ppf(0.975, 7) * groups.std(axis=0, ddof=1) / 8**0.5
    low = whole + np.minimum(gain * reach, 0) - shift - spread * np.sqrt(1 - m / n)
    high = whole + np.maximum(gain * reach, shift) + spread
    middle = whole + (np.minimum(gain * min(reach, 1), 0) + shift) / 2
    ends = [max(expit(below), np.exp(above)) for below, above in (low, middle, high)]
    assert [c.epsilon_interval[0], c.epsilon, c.epsilon_interval[1]] == pytest.approx(
        ends, rel=1e-5
    )


def test_the_frobenius_error_of_a_sample_has_the_interval_of_a_jackknife():
    """Each row left out in turn; pairs of a row with itself are as rare as among all rows."""
    phi, X, n, m = waves(), rows(160), 640, 160
    c = certify(phi, X, alpha=1.0, n_rows=n, random_state=0)
    E, K = phi(X) @ phi(X).T - phi.kernel(X), phi.kernel(X)

    def ratio(some):
        def total(A):
            own, k = (np.diag(A)[some] ** 2).sum(), len(some)
            pairs = (A[np.ix_(some, some)] ** 2).sum() - own
            return pairs * n * (n - 1) / (k * (k - 1)) + own * n / k

        return np.sqrt(total(E) / total(K))

    assert c.frobenius == pytest.approx(ratio(np.arange(m)), rel=1e-9)
    without = np.log([ratio(np.delete(np.arange(m), i)) for i in range(m)])
    deviation = np.sqrt((m - 1) * without.var() * (1 - m / n))
    low, high = c.frobenius_interval
    assert np.log(high / c.frobenius) == pytest.approx(1.96 * deviation, rel=0.05)
    assert low * high == pytest.approx(c.frobenius**2)


def test_a_smaller_epsilon_bounds_the_risk_and_a_larger_one_does_not():
    X = rows()
    good = certify(waves(pairs=4000), X, alpha=30.0, random_state=0)
    high = good.epsilon_interval[1]
    assert good.risk_factor == pytest.approx(1 / (1 - high))
    assert good.risk_noise == pytest.approx(high / (1 + high))  # D > n, so rank/n is 1
    bad = certify(waves(pairs=5), X, alpha=0.01, random_state=0)
    assert bad.epsilon > 1
    assert bad.risk_factor is None
    assert bad.risk_noise is None


def test_the_risk_bound_holds_for_this_fit():
    X, sigma = rows(200), 0.3
    phi, alpha = waves(pairs=300), 20.0
    c = certify(phi, X, alpha=alpha, random_state=0)
    K, Z = phi.kernel(X), phi(X)
    f = np.sin(X[:, 0])

    def risk(A):
        H = A @ np.linalg.inv(A + alpha * np.eye(200))
        return np.mean((H @ f - f) ** 2) + sigma**2 * np.sum(H**2) / 200

    inverse = np.linalg.inv(K + alpha * np.eye(200))
    guarantee = (alpha * f @ inverse @ f + sigma**2 * np.trace(K @ inverse)) / 200
    assert risk(K) <= guarantee
    assert risk(Z @ Z.T) <= c.risk_factor * guarantee + c.risk_noise * sigma**2


def test_fewer_landmark_features_do_not_halve():
    """The number is a lower bound: for the best directions it is enough, and one fewer is not."""
    X = rows()
    c = certify(landmarks(X), X, alpha=0.1, random_state=0)
    assert c.n_features < c.features_to_halve < 300
    assert "Halving ε takes at least" in str(c)
    # The best map of that width: the leading eigenvectors of the residual, added.
    Z, K = landmarks(X)(X), Radial()(X)
    I = 0.1 * np.eye(300)
    values, V = eigh(K - Z @ Z.T, K + I)
    for fewer in (0, 1):
        W = (K + I) @ V[:, -(c.features_to_halve - c.n_features - fewer) :]
        E = K - Z @ Z.T - (W * values[-W.shape[1] :]) @ W.T
        halved = eigh(E, K + I, eigvals_only=True)[-1] <= c.epsilon / 2 * (1 + 1e-6)
        assert halved == (fewer == 0)
    wider = bo.draw(
        bo.kernels.Gaussian(), "nystrom", n_features=c.features_to_halve - 1, X=X, random_state=0
    )
    assert certify(wider, X, alpha=0.1).epsilon > c.epsilon / 2


def test_exact_features_are_zero_away():
    @dataclass(frozen=True)
    class Dot:
        def __call__(self, X, Y=None):
            return X @ (X if Y is None else Y).T

    phi = lambda X: X
    for n_sample in (2048, 64):
        c = certify(phi, rows(), alpha=1e-3, kernel=Dot(), n_sample=n_sample, random_state=0)
        assert c.epsilon == 0
        assert c.epsilon_interval[0] == 0
        assert c.epsilon_interval[1] < 1e-8
        assert c.frobenius < 1e-14
        assert c.features_to_halve is None
        assert "zero up to rounding" in str(c)
    c = certify(phi, np.zeros((50, 2)), alpha=1.0, kernel=Dot())
    assert (c.epsilon, c.frobenius, c.effective_dimension) == (0, 0, 0)


def test_alpha_below_rounding_is_raised_and_said():
    X = rows()
    c = certify(waves(), X, alpha=1e-16, random_state=0)
    assert c.alpha == 1e-16
    assert 1e-13 < c.alpha_measured < 1e-10
    assert c.risk_factor is None
    assert "lost to rounding in float64" in str(c)


def test_words_and_numbers_for_people_and_machines():
    X = rows(2000)
    c = certify(waves(pairs=2000), X, alpha=200.0, n_sample=400, random_state=0)
    text = str(c)
    assert text.startswith("With 4,000 features, 2,000 rows and alpha = 200, the features are")
    assert "95 % interval" in text
    assert "measured on 400 of them" in text
    assert "times what theory guarantees for the exact kernel, plus" in text
    assert "Halving ε takes about 16,000 features: the error of random features" in text
    assert "(Frobenius)" in text
    assert 3 <= text.count(". ") + 1 <= 5
    assert repr(c).startswith("Certificate(epsilon=0.")
    assert len(repr(c)) < 160
    numbers = json.loads(json.dumps(c.to_dict(), allow_nan=False))
    assert numbers["epsilon_interval"] == list(c.epsilon_interval)
    assert numbers["risk_factor"] == c.risk_factor
    assert isinstance(c, Certificate)
    assert "follows the spectrum" not in text
    options = dict(n_sample=100, random_state=0)
    assert "follows the spectrum" in str(certify(landmarks(X), X, alpha=1.0, **options))
    assert "because ε reaches 1" in str(certify(waves(pairs=3), X, alpha=0.1, **options))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"alpha": 0}, InvalidInput, "alpha must be a positive finite number; got 0"),
        ({"alpha": -1.0}, InvalidInput, "alpha must be a positive finite number; got -1"),
        ({"alpha": np.nan}, InvalidInput, "alpha must be a positive finite number; got nan"),
        ({"alpha": "loo"}, InvalidType, "alpha must be a positive finite number; got 'loo'"),
        ({"confidence": 1}, InvalidInput, "confidence must be above 0 and below 1; got 1"),
        ({"n_sample": 10}, InvalidInput, "n_sample must be an integer, 64 or above; got 10"),
        ({"n_rows": 10}, InvalidInput, "n_rows must be an integer, 300 or above; got 10"),
        ({"X": rows(1)}, InvalidInput, "X must have at least 2 rows to compare; got 1"),
        ({"X": rows(20), "n_rows": 99}, InvalidInput, "at least 64 rows to represent n_rows=99"),
        ({"X": np.full((9, 3), np.nan)}, InvalidInput, "X must be finite"),
        ({"X": np.zeros(9)}, InvalidInput, "X must have two dimensions"),
        ({"random_state": -1}, InvalidInput, "random_state must be None"),
        ({"kernel": lambda X: np.full((len(X),) * 2, np.inf)}, InvalidInput, "must be finite"),
        ({"kernel": lambda X: np.zeros(len(X))}, InvalidInput, r"kernel\(X\) must be a matrix"),
        ({"kernel": lambda X: -np.eye(len(X))}, NotPositive, "must be positive semi-definite"),
        ({"phi": lambda X: X}, InvalidInput, "kernel must be given"),
        ({"phi": lambda X: X[:5], "kernel": Radial()}, InvalidInput, r"phi\(X\) must be a matrix"),
    ],
)
def test_bad_input_ends_in_one_sentence(change, error, message):
    arguments = {"phi": waves(), "X": rows(), "alpha": 1.0} | change
    with pytest.raises(error, match=message):
        certify(arguments.pop("phi"), arguments.pop("X"), **arguments)


def test_a_map_for_other_columns_is_refused():
    features = pytest.importorskip("bochner.features")
    kernels = pytest.importorskip("bochner.kernels")
    phi = features.draw(kernels.Gaussian(), features.Fourier(), n_features=64, n_inputs=3)
    with pytest.raises(InvalidInput, match="X must have the 3 columns"):
        certify(phi, rows(d=4), alpha=1.0)
    assert certify(phi, rows(d=3), alpha=1.0).n_features == 64
