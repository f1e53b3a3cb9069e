"""The certificate's interval holds ε of all rows at least as often as it says.

Truth is the dense eigenvalue problem of all n rows; each case is measured on several samples of
n/3 to n/8 rows. If every interval missed with exactly the stated probability, and independently,
the count of misses would be binomial: the bar is its quantile at the false-alarm rate ALARM.
Samples of one case share its systematic error, so the bar is also a demand that no kind of case
fails as a whole.
"""

from functools import cache

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from scipy.stats import binom

from bochner import certify

N = 600
CONFIDENCE = 0.95
ALARM = 1e-6
REPEATS = 3

pytestmark = [pytest.mark.statistical, pytest.mark.usefixtures("one_thread")]


PROFILES = {
    "gaussian": (lambda r: np.exp(-(r**2) / 2), lambda _, m: np.ones(m)),
    "matern": (
        lambda r: (1 + 3**0.5 * r) * np.exp(-(3**0.5) * r),
        lambda g, m: np.sqrt(3 / g.chisquare(3, m)),
    ),
    "exponential": (lambda r: np.exp(-r), lambda g, m: 1 / np.sqrt(g.chisquare(1, m))),
}
GALLERY = [
    (profile, d, width, kind)
    for profile in PROFILES
    for d, width in [(2, 0.5), (6, 1.0)]
    for kind in ["iid", "orthogonal", "landmarks"]
]


def frequencies(kind, d, m, radial, g):
    W = g.standard_normal((d, m))
    if kind == "orthogonal":
        blocks = [np.linalg.qr(g.standard_normal((d, d)))[0] for _ in range(-(-m // d))]
        W = np.hstack(blocks)[:, :m] * np.linalg.norm(W, axis=0)
    return W * radial(g, m)


@cache
def matrices(profile, d, width, kind):
    """K and Z of one case, and the eigendecomposition of K."""
    g = np.random.default_rng([d, len(profile), len(kind)])
    X = g.standard_normal((N, d)) / (width * d**0.5)
    value, radial = PROFILES[profile]
    K = value(cdist(X, X))
    if kind == "landmarks":
        S = g.choice(N, 60, replace=False)
        L = np.linalg.cholesky(K[np.ix_(S, S)] + 1e-10 * np.eye(60))
        Z = np.linalg.solve(L, K[S]).T
    else:
        P = X @ frequencies(kind, d, 100, radial, g)
        Z = np.hstack([np.cos(P), np.sin(P)]) / 10
    return X, K, Z, np.linalg.eigh(K)


def truth(case, alpha):
    _, K, Z, (values, U) = matrices(*case)
    W = U / np.sqrt(np.maximum(values, 0) + alpha)
    whitened = np.linalg.eigvalsh(W.T @ (Z @ Z.T - K) @ W)
    return max(-whitened[0], whitened[-1])


def interval(case, alpha, m, seed, *, rows=None, n_rows=None):
    """The certificate's, with K and Z looked up by row number."""
    _, K, Z, _ = matrices(*case)
    number = lambda X: X[:, 0].astype(int)
    kernel = lambda X: K[np.ix_(number(X), number(X))]
    X = np.arange(N)[:, None] if rows is None else rows[:, None]
    c = certify(
        lambda X: Z[number(X)],
        X.astype(float),
        alpha=alpha,
        kernel=kernel,
        n_rows=n_rows,
        n_sample=m,
        confidence=CONFIDENCE,
        random_state=seed,
    )
    return c.epsilon, *c.epsilon_interval


def honest(case, alpha, m, seed):
    return interval(case, alpha, m, seed)


def unscaled_penalty(case, alpha, m, seed):
    return interval(case, alpha * N / m, m, seed)


def neighbouring_rows(case, alpha, m, seed):
    X = matrices(*case)[0]
    near = np.argsort(np.linalg.norm(X - X[seed], axis=1))[:m]
    return interval(case, alpha, m, seed, rows=near, n_rows=N)


def interval_shrunk_by_four(case, alpha, m, seed):
    middle, low, high = interval(case, alpha, m, seed)
    shrink = lambda end: middle * (max(end, 1e-12) / middle) ** 0.25
    return middle, shrink(low), shrink(high)


@cache
def misses(measure):
    """Intervals that end below the truth, those that begin above it, and all."""
    over, under, count = 0, 0, 0
    for case in GALLERY:
        for share in [1e-1, 1e-2, 1e-4]:
            exact = truth_of(case, share * N)
            for seed in range(REPEATS):
                m = (75, 120, 200)[seed]
                _, low, high = measure(case, share * N, m, seed)
                over += high < exact
                under += low > exact
                count += 1
    return over, under, count


truth_of = cache(truth)


def bar(count, probability):
    return binom.isf(ALARM, count, probability)


@pytest.mark.slow
def test_intervals_hold_the_truth_as_often_as_they_say():
    over, under, count = misses(honest)
    assert over <= bar(count, (1 - CONFIDENCE) / 2)
    assert under <= bar(count, (1 - CONFIDENCE) / 2)


@pytest.mark.main_cases(1)
@pytest.mark.parametrize(
    "fault",
    [unscaled_penalty, neighbouring_rows, interval_shrunk_by_four],
    ids=lambda f: f.__name__,
)
def test_planted_fault_is_seen(fault):
    over, under, count = misses(fault)
    assert max(over, under) > bar(count, (1 - CONFIDENCE) / 2)


def test_intervals_are_short_enough_to_be_of_use():
    widths = [
        np.log(high / low) for case in GALLERY for _, low, high in [interval(case, 0.1 * N, 200, 0)]
    ]
    assert np.median(widths) < np.log(1.7)
