"""The certificate's numbers against dense linear algebra, its sentences, and what it refuses."""

import json
from dataclasses import dataclass

import numpy as np
import pytest
from scipy.linalg import eigh
from scipy.special import expit
from scipy.stats import t as student

import bochner as bo
from bochner import Certificate, certify
from bochner.certificates.pencil import match
from bochner.errors import InvalidInput, InvalidType, NotPositive

pytestmark = pytest.mark.usefixtures("one_thread")


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


def rows(n=300, d=3, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d))


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
