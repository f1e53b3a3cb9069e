"""Laws of the random features of dot-product kernels: Maclaurin, sketches, positive features."""

import functools
import tracemalloc

import numpy as np
import pytest
import scipy.sparse
import tolerance
from gallery import POSITIVE, POWERS, SKETCHED, rows
from scipy.special import gammaln
from scipy.stats import t as student
from tolerance import ALARM, assert_close

from bochner.features import IID, Maclaurin, PolySketch, Positive, TensorSketch, draw
from bochner.features.sketch.powers import Weights
from bochner.kernels import DotExponential, Gaussian, Polynomial

MAPS = SKETCHED

D = 24
SEEDS = 100


def named(pair):
    return f"{pair[1]!r}-{pair[0]!r}"


def drawn(pair, seed=0, n_features=D, X=None):
    X = rows(40) if X is None else X
    return draw(*pair, n_features=n_features, X=X, random_state=seed)


@functools.cache
def many(kernel, method, n_features=2 * D, seeds=SEEDS):
    """Maps of many seeds."""
    return [drawn((kernel, method), seed, n_features) for seed in range(seeds)]


# ---- unbiased


COMPARISONS = 10 * len(MAPS)


def bias(kernel, maps):
    """Rows are short, so that products of many factors are not far from normal."""
    X = 0.5 * rows(5, seed=3)[:4]
    return tolerance.bias(kernel(X), [phi(X) for phi in maps], COMPARISONS)


@pytest.mark.statistical
@pytest.mark.parametrize("method", [Maclaurin(), TensorSketch(), PolySketch()], ids=repr)
def test_features_are_unbiased_for_rows_of_other_lengths_than_those_drawn_with(method):
    """Few features at radius 1; the rows are half as long again: no degree was cut off."""
    kernel, at_one = DotExponential(), type(method)(radius=1.0)
    X = np.array([[1.5, 0.0, 0.0], [0.9, 1.2, 0.0]])
    maps = [draw(kernel, at_one, n_features=16, n_inputs=3, random_state=s) for s in range(500)]
    estimates = np.array([(Z := phi(X)) @ Z.T for phi in maps])
    error = estimates.std(axis=0, ddof=1) / np.sqrt(len(maps))
    bar = student.isf(ALARM / 24, len(maps) - 1)
    assert (np.abs(estimates.mean(axis=0) - kernel(X)) < bar * error).all()


# ---- variances are those of the formulas


PAIR = np.array([[0.9, -0.3, 0.5, 0.2], [0.4, 0.6, 0.8, -0.5]])
MANY = 600


def parts():
    x, y = PAIR
    same = float((x * x * y * y).sum())
    A = float(x @ y) ** 2
    return A, float(x @ x) * float(y @ y) - same, A - same


def tensor_sketch(p, m):
    A, B, C = parts()
    one = (A + B) ** p + (A + C) ** p - 2 * A**p
    return one / m + ((A + B + C) ** p - (A + B) ** p - (A + C) ** p + A**p) * (2 - m % 2) / m**2


def maclaurin(p, m):
    A, B, C = parts()
    return ((A + B + C) ** p - A**p) / m


def balanced(m):
    _, B, C = parts()
    blocks = m / 4
    return (B + C) ** 2 * (4 - blocks) / (blocks * 9)


def positive(form, m, modulated):
    x, y = PAIR
    k = np.exp(x @ y) * (np.exp(-(x @ x + y @ y) / 2) if modulated else 1)
    sum_ = float((x + y) @ (x + y))
    factor = 1 - np.exp(-sum_) if form == "hyperbolic" else 1
    return k**2 * np.expm1(sum_) * factor / m


VARIANCES = [
    (Polynomial(2, 0.0), Maclaurin(), 6, maclaurin(2, 6)),
    (Polynomial(3, 0.0), Maclaurin(), 4, maclaurin(3, 4)),
    (Polynomial(2, 0.0), TensorSketch(), 5, tensor_sketch(2, 5)),
    (Polynomial(2, 0.0), TensorSketch(), 6, tensor_sketch(2, 6)),
    (Polynomial(3, 0.0), TensorSketch(), 9, tensor_sketch(3, 9)),
    (Polynomial(2, 0.0), PolySketch(), 4, balanced(4)),
    (Polynomial(2, 0.0), PolySketch(), 12, balanced(12)),
    (Polynomial(2, 0.0), PolySketch("independent"), 12, maclaurin(2, 12)),
    (DotExponential(), Positive(IID(), "plain"), 8, positive("plain", 8, False)),
    (DotExponential(), Positive(IID()), 8, positive("hyperbolic", 8, False)),
    (Gaussian(), Positive(IID(), "plain"), 8, positive("plain", 8, True)),
    (Gaussian(), Positive(IID()), 8, positive("hyperbolic", 8, True)),
]


def squared_errors(kernel, method, m):
    """(Z Zᵀ − K)² of one pair of rows, for many seeds."""
    K = float(kernel(PAIR)[0, 1])
    return np.array(
        [
            (float(Z[0] @ Z[1]) - K) ** 2
            for Z in (
                draw(kernel, method, n_features=m, n_inputs=4, random_state=s)(PAIR)
                for s in range(MANY)
            )
        ]
    )


def excess(squares, variance):
    """|mean of squared errors − variance| over its bar of chance 1e-6 for all cases."""
    bar = student.isf(ALARM / (2 * len(VARIANCES)), len(squares) - 1)
    return abs(squares.mean() - variance) / (bar * squares.std(ddof=1) / len(squares) ** 0.5)


@pytest.mark.main_cases(3)
@pytest.mark.statistical
@pytest.mark.parametrize("case", VARIANCES, ids=lambda c: f"{c[1]!r}-{c[0]!r}-{c[2]}")
def test_variance_is_that_of_the_formula(case):
    kernel, method, m, variance = case
    assert excess(squared_errors(kernel, method, m), variance) < 1


@pytest.mark.statistical
def test_planted_fault_variance_of_independent_pairs_is_not_that_of_balanced_ones():
    squares = squared_errors(Polynomial(2, 0.0), PolySketch("independent"), 12)
    assert excess(squares, balanced(12)) > 1


# ---- planted faults


def replaced(phi, **changes):
    """The map with other fields."""
    fields = {name: getattr(phi, name) for name in phi.__dataclass_fields__}
    return type(phi)(**(fields | changes))


@pytest.mark.statistical
@pytest.mark.parametrize("method", [Maclaurin(), TensorSketch(), PolySketch()], ids=repr)
def test_planted_fault_missing_factorials_are_seen(method):
    """Derivatives at zero for coefficients: n! too much for degree n."""
    kernel = DotExponential(scale=0.5)
    maps = many(kernel, method)

    def fault(phi):
        n = phi.weights.degrees
        logs = phi.weights.logs + 0.5 * gammaln(n + 1.0)
        return replaced(phi, weights=Weights(n, logs, False))

    assert bias(kernel, maps) < 1 < bias(kernel, [fault(phi) for phi in maps])


@pytest.mark.statistical
def test_planted_fault_series_cut_at_the_width_is_seen():
    """Without the worth of drawn degrees, what stands for the rest counts once for one of them."""
    kernel, method = DotExponential(), Maclaurin(radius=1.5)
    maps = [draw(kernel, method, n_features=48, n_inputs=3, random_state=s) for s in range(SEEDS)]
    faults = []
    for phi in maps:
        low = phi.weights.degrees <= 2
        logs = np.where(low, phi.weights.logs, -np.inf)
        faults.append(replaced(phi, weights=Weights(phi.weights.degrees, logs, False)))
    X = np.array([[1.2, 0.5, 0.0], [1.0, 0.8, 0.3]])

    def z(group):
        T = np.array([float(Z[0] @ Z[1]) for Z in (phi(X) for phi in group)])
        return abs(T.mean() - float(kernel(X)[0, 1])) / (T.std(ddof=1) / len(T) ** 0.5)

    bar = student.isf(ALARM / 2, SEEDS - 1)
    assert z(maps) < bar < z(faults)


# ---- what the maps say of themselves


WIDE = [p for p in MAPS if "inner=2" not in repr(p[1]) and "inner=4" not in repr(p[1])]


@pytest.mark.parametrize("pair", [p for p in WIDE if p[0] != POWERS[7]], ids=named)
def test_every_feature_asked_for_is_there_where_no_sketch_is_exact(pair):
    X = np.random.default_rng(0).normal(size=(30, 40)) / 6
    assert draw(*pair, n_features=96, X=X, random_state=0).n_features == 96


@pytest.mark.parametrize("pair", [p for p in MAPS if p[1] in POSITIVE], ids=named)
def test_positive_features_are_positive(pair):
    assert (drawn(pair)(3 * rows(50)) > 0).all()


def test_linear_term_is_exact_where_it_pays():
    """By itself: 1 + x has all its weight there; a long row's series has little."""
    X = rows(40)
    short = draw(DotExponential(), Maclaurin(radius=0.3), n_features=D, X=X, random_state=0)
    long = draw(DotExponential(), Maclaurin(radius=3.0), n_features=8, X=X, random_state=0)
    assert list(short.exact.degrees) == [0, 1]
    assert list(long.exact.degrees) == [0]
    assert_close(short(X)[:, 1:4], X)


def test_wider_maclaurin_maps_begin_with_the_narrower_one():
    X, kernel = rows(20), DotExponential(scale=0.5)
    Z = draw(kernel, Maclaurin(), n_features=54, X=X, random_state=0)(X)
    wider = draw(kernel, Maclaurin(), n_features=104, X=X, random_state=0)(X)
    assert_close(wider[:, :4], Z[:, :4])
    assert_close(wider[:, 4:54] * 2**0.5, Z[:, 4:])


def test_wider_sketches_of_one_power_begin_with_the_narrower_one():
    X, kernel = np.random.default_rng(0).normal(size=(5, 16)), Polynomial(2, 0.0)
    Z = draw(kernel, PolySketch(inner=64), n_features=64, X=X, random_state=0)(X)
    wider = draw(kernel, PolySketch(inner=64), n_features=128, X=X, random_state=0)(X)
    assert_close(wider[:, :64] * 2**0.5, Z)


# ---- one map for all: blocks, libraries, precisions, seeds, files


@pytest.mark.parametrize("method", [TensorSketch(), PolySketch()], ids=repr)
def test_threads_do_not_change_a_bit(method, monkeypatch):
    X = np.random.default_rng(0).normal(size=(600, 30)).astype(np.float32)
    phi = draw(Polynomial(3), method, n_features=2048, X=X, random_state=0)
    results = []
    for threads in (1, 3):
        monkeypatch.setattr("bochner._core.threads._chosen_threads", [threads])
        results.append(phi(X))
    assert (results[0] == results[1]).all()


@pytest.mark.parametrize("method", [Maclaurin(), TensorSketch(), PolySketch()], ids=repr)
def test_sparse_rows_are_not_made_dense(method):
    """Memory traced stays below a tenth of what the dense rows would take, 800 MB."""
    n, d = 2000, 50_000
    X = scipy.sparse.random_array((n, d), density=20 / d, format="csr", rng=0)
    phi = draw(Polynomial(2, 1.0), method, n_features=64, X=X, random_state=0)
    tracemalloc.start()
    Z = phi(X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert Z.shape == (n, 64)
    assert peak < 0.1 * 8 * n * d
