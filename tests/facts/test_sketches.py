"""Sketches of powers of ⟨x, y⟩: exact means and variances by enumeration, and what they refuse."""

import itertools
import math

import mpmath
import numpy as np
import pytest
import scipy.linalg
import scipy.sparse
from tolerance import assert_close

from bochner.errors import InvalidInput, UnsupportedKernel
from bochner.features import Maclaurin, PolySketch, Positive, TensorSketch, draw
from bochner.features.random.positive import PositiveMap
from bochner.features.sketch.polysketch import Hashed, Padded, Pairs, _balanced
from bochner.features.sketch.powers import Weights, energies, shares
from bochner.features.sketch.tensorsketch import CountSketch
from bochner.kernels import (
    Coefficients,
    DotExponential,
    DotProduct,
    Gaussian,
    LogDerivatives,
    Matern,
    Polynomial,
)
from bochner.kernels.dotproduct import ExponentialSeries

X2 = np.array([[0.8, -0.5], [0.3, 1.1]])
X3 = np.array([[0.8, -0.5, 0.4], [0.3, 1.1, -0.2]])


def parts(X):
    """A = ⟨x, y⟩², B = |x|²|y|² − Σxᵢ²yᵢ² and C = A − Σxᵢ²yᵢ² of two rows."""
    x, y = X
    same = float((x * x * y * y).sum())
    return float(x @ y) ** 2, float(x @ x) * float(y @ y) - same, float(x @ y) ** 2 - same


def tensor_sketch_variance(X, p, D):
    """By cases for each factor: i = j; i ≠ j paired with itself; i ≠ j crossed."""
    A, B, C = parts(X)
    one = (A + B) ** p + (A + C) ** p - 2 * A**p
    both = (A + B + C) ** p - (A + B) ** p - (A + C) ** p + A**p
    return one / D + both * math.gcd(2, D) / D**2


def pair_variance(V_L, V_R, P_L, P_R, m):
    """Of balanced pairs in whole blocks, m = B P_L."""
    B = m / P_L
    return V_L * V_R * (P_R - B) / (B * (P_L - 1) * (P_R - 1))


def spread(X):
    """V = |x|²|y|² + ⟨x, y⟩² − 2Σxᵢ²yᵢ²."""
    _, B, C = parts(X)
    return B + C


# ---- TensorSketch: every hash there is


@pytest.mark.parametrize("D", [1, 2, 3])
def test_tensor_sketch_mean_and_variance_by_enumeration_of_all_hashes(D):
    """d = 2, p = 2: D⁴ buckets times 2⁴ signs."""
    values = [
        float(Z[0] @ Z[1])
        for h in map(as_pairs, itertools.product(range(D), repeat=4))
        for s in map(as_pairs, itertools.product((-1, 1), repeat=4))
        for Z in [CountSketch(h, s, D).of(X2)]
    ]
    exact = float(X2[0] @ X2[1]) ** 2
    assert_close(np.mean(values), exact)
    assert_close(np.mean((np.array(values) - exact) ** 2), tensor_sketch_variance(X2, 2, D))


def as_pairs(four):
    return np.array(four).reshape(2, 2)


@pytest.mark.parametrize("p", [1, 2, 3, 4])
@pytest.mark.parametrize("D", [5, 8])
def test_tensor_sketch_is_the_count_sketch_of_the_tensor_power(p, D):
    """Two routes: by FFT, and by all dᵖ entries of x^{⊗p} into their buckets."""
    rng = np.random.default_rng(p)
    h, s = rng.integers(0, D, (p, 3)), 2 * rng.integers(0, 2, (p, 3)) - 1
    slow = np.zeros((2, D))
    for index in itertools.product(range(3), repeat=p):
        bucket = sum(h[j, i] for j, i in enumerate(index)) % D
        sign = math.prod(int(s[j, i]) for j, i in enumerate(index))
        slow[:, bucket] += sign * math.prod(X3[:, i] for i in index)
    assert_close(CountSketch(h, s, D).of(X3), slow)


# ---- PolySketch: every sign and every order there is


class Orders:
    """A generator whose permutations are those given, in turn."""

    def __init__(self, *orders):
        self.orders = list(orders)

    def permutation(self, _):
        return np.array(self.orders.pop(0))


def turned(signs):
    return Padded(np.array(signs, dtype=np.int8)).of(X2, [])


@pytest.mark.parametrize("m", [2, 4])
def test_balanced_pairs_mean_and_variance_by_enumeration(m):
    """d = 2: all signs, all orders; all four pairs leave no variance."""
    swaps = [(0, 1), (1, 0)]
    values = []
    for signs in itertools.product((-1, 1), repeat=4):
        sides = [turned(signs[:2]), turned(signs[2:])]
        for orders in itertools.product(swaps, repeat=4):
            Z = np.empty((2, m))
            pairs = Pairs(0, 1, *_balanced(2, 2, m, Orders(*orders)))
            pairs.fill(Z, X2, sides, np.ones((1, 1)))
            values.append(float(Z[0] @ Z[1]))
    exact = float(X2[0] @ X2[1]) ** 2
    assert_close(np.mean(values), exact)
    expected = pair_variance(spread(X2), spread(X2), 2, 2, m)
    assert_close(np.mean((np.array(values) - exact) ** 2), expected)


@pytest.mark.parametrize("m", [1, 3, 8, 9, 20, 64])
def test_balanced_pairs_come_once_and_use_every_entry_equally_often(m):
    full, tail, partners = _balanced(8, 8, m, np.random.default_rng(m))
    left = np.concatenate([np.tile(np.arange(8), full), tail])
    assert len(left) == len(partners) == m
    assert len(set(zip(left.tolist(), partners.tolist(), strict=True))) == m
    for entries in (left, partners[: 8 * full]):
        counts = np.bincount(entries, minlength=8)
        assert counts.max() - counts.min() <= 1


def test_all_pairs_are_the_tensor_product_and_exact():
    X = np.random.default_rng(0).normal(size=(9, 3))
    for degree, width in ((2, 16), (3, 64), (4, 256)):
        kernel = Polynomial(degree, 0.0)
        phi = draw(kernel, PolySketch(), n_features=width, X=X, random_state=0)
        Z = phi(X)
        assert_close(Z @ Z.T, kernel(X), factor=10)
        assert phi.below_kernel
        assert draw(kernel, PolySketch(), n_features=999, X=X).n_features == width
        less = draw(kernel, PolySketch(), n_features=width - 1, X=X)
        assert not less.below_kernel


def test_hashed_leaf_is_an_osnap_matrix():
    """Two routes: the sparse product and a loop; s different rows for each column."""
    X = np.random.default_rng(1).normal(size=(3, 40))
    phi = draw(Polynomial(2, 0.0), PolySketch(inner=16), n_features=64, X=X, random_state=0)
    leaves = [step for step in phi.steps if isinstance(step, Hashed)]
    assert len(leaves) == 2
    assert not (leaves[0].rows == leaves[1].rows).all()
    for leaf in leaves:
        assert all(len(set(rows)) == 4 for rows in leaf.rows.tolist())
        slow = np.zeros((3, 16))
        for i, (rows, signs) in enumerate(zip(leaf.rows, leaf.signs, strict=True)):
            for r, sign in zip(rows, signs, strict=True):
                slow[:, r] += sign * X[:, i] / 2
        H = scipy.linalg.hadamard(16)
        assert_close(leaf.of(X, []), slow @ H, factor=4)


# ---- Positive features: by quadrature


@pytest.mark.parametrize("form", ["plain", "hyperbolic"])
@pytest.mark.parametrize("half", [0.5, 1.0])
def test_positive_mean_and_variance_by_quadrature(form, half):
    """d = 1, one frequency: 90 Gauss-Hermite nodes."""
    x, y = 0.7, -0.4
    nodes, weights = np.polynomial.hermite_e.hermegauss(90)
    weights = weights / weights.sum()
    kernel = DotExponential() if half == 0.5 else Gaussian()
    maps = [PositiveMap(kernel, np.array([[w]]), np.ones(1), half, form) for w in nodes]
    values = np.array([float(Z[0] @ Z[1]) for Z in (phi(np.array([[x], [y]])) for phi in maps)])
    exact = math.exp(x * y) if half == 0.5 else math.exp(-((x - y) ** 2) / 2)
    variance = exact**2 * math.expm1((x + y) ** 2)
    if form == "hyperbolic":
        variance *= (1 - math.exp(-((x + y) ** 2))) / 2
    assert_close(weights @ values, exact)
    assert_close(weights @ (values - exact) ** 2, variance, factor=4)


def test_positive_features_of_long_rows_are_finite_where_their_factors_are_not():
    """e^{ω·x} overflows and e^{−|x|²} underflows; their product is a number."""
    x = np.full((1, 1), 40.0)
    phi = PositiveMap(Gaussian(), np.array([[40.0]]), np.ones(1), 1.0, "plain")
    assert phi(x)[0, 0] == 1.0
    assert phi(x.astype(np.float32))[0, 0] == 1.0
    assert math.exp(-(40.0**2)) == 0.0
    with pytest.raises(OverflowError):
        math.exp(40.0**2)


# ---- degrees


@pytest.mark.parametrize("D", [1, 2, 7, 40, 1000])
def test_shares_use_what_there_is_and_stand_for_every_degree(D):
    """Expected worth of each degree is one: core degrees once, others p times 1/p."""
    law = energies(ExponentialSeries(), np.array([2.0]))
    got = [shares(law, lambda _: np.inf, D, np.random.default_rng(seed)) for seed in range(400)]
    assert all(sum(s.widths) == D for s in got)
    worth = np.zeros(len(law))
    for s in got:
        for n, p in zip(s.degrees, s.probabilities, strict=True):
            worth[n] += 1 / p / len(got)
    core = [n for n in range(len(law)) if law[n] * D >= 1]
    assert_close(worth[core], np.ones(len(core)))
    rest = np.delete(law, core)
    assert_close(np.delete(law * worth, core).sum(), rest.sum())  # wₙ/pₙ is the same for all


@pytest.mark.parametrize("n", [1, 2, 50, 1300])
def test_degrees_are_weighed_at_five_hundred_and_twelve_rows_from_the_first_to_the_last(n):
    """Rows of growing length: a degree has the mean share of its term at rows evenly spaced."""
    lengths = np.linspace(0.5, 3.0, n)
    X = lengths[:, None] * np.array([[0.6, 0.0, 0.8]])
    phi = draw(DotExponential(), TensorSketch(), n_features=2000, X=X, random_state=0)
    some = np.unique(np.linspace(0, n - 1, min(n, 512)).astype(int))
    k = np.arange(40)
    terms = [[r ** (2 * i) / math.factorial(i) for i in k] for r in lengths[some].tolist()]
    law = np.mean(terms / np.sum(terms, axis=1, keepdims=True), axis=0)
    exact = [d for d, s in zip(phi.weights.degrees, phi.sketches, strict=True) if s is None]
    assert exact in ([0], [0, 1])
    law[exact] = 0.0
    left = 2000 - sum(3 if d else 1 for d in exact)
    for degree, sketch in zip(phi.weights.degrees.tolist(), phi.sketches, strict=True):
        wanted = left * law[degree] / law.sum()
        if sketch is not None and wanted >= 2:
            assert abs(sketch.width - wanted) <= 2


def test_published_maclaurin_draws_degrees_geometrically():
    phi = draw(
        DotExponential(), Maclaurin("geometric"), n_features=20_000, n_inputs=2, random_state=0
    )
    counts = np.bincount(phi.weights.degrees)[:6] / 20_000
    assert (np.abs(counts - 0.5 ** np.arange(1, 7)) < 5 * np.sqrt(0.25 / 20_000)).all()


def test_weights_are_powers_of_the_length_in_one_exponent():
    weights = Weights(np.array([0, 3, 400]), np.log([2.0, 1.0, 1e-300]), True)
    lengths = np.array([1e-30, 1.0, 30.0])
    slow = [
        [
            float(w * mpmath.mpf(r) ** n * mpmath.exp(-(mpmath.mpf(r) ** 2) / 2))
            for w, n in ((2.0, 0), (1.0, 3), (1e-300, 400))
        ]
        for r in lengths.tolist()
    ]
    assert_close(
        weights.at(lengths, like=lengths) / np.maximum(slow, 1e-320),
        np.array(slow) / np.maximum(slow, 1e-320),
        factor=1000,
    )


# ---- refusals


@pytest.mark.parametrize("method", [Maclaurin(), TensorSketch(), PolySketch()], ids=repr)
def test_sketches_refuse_kernels_without_a_power_series(method):
    name = type(method).__name__
    with pytest.raises(UnsupportedKernel, match=rf"{name} requires .* Nystrom\(...\) every kernel"):
        draw(Matern(1.5), method, n_features=16, X=X3)


def test_positive_refuses_other_kernels_and_names_who_serves_them():
    with pytest.raises(UnsupportedKernel, match=r"DotExponential or Gaussian.*PolySketch"):
        draw(Polynomial(2), Positive(), n_features=16, X=X3)


@pytest.mark.parametrize("method", [Maclaurin(), TensorSketch(), PolySketch()], ids=repr)
def test_degrees_of_a_series_are_weighed_at_rows_or_a_radius(method):
    with pytest.raises(InvalidInput, match=r"got no rows. Pass X=..., or the method's radius"):
        draw(DotExponential(), method, n_features=16, n_inputs=3)
    same = type(method)(radius=1.0)
    assert draw(DotExponential(), same, n_features=16, n_inputs=3, random_state=0).n_features == 16
    assert draw(Polynomial(2, 0.0), method, n_features=8, n_inputs=3).n_features <= 8


def test_a_divergent_series_is_refused():
    kernel = DotProduct(LogDerivatives(lambda n: np.vectorize(math.lgamma)(n + 1.0)))
    with pytest.raises(InvalidInput, match="must converge"):
        draw(kernel, Maclaurin(radius=1.5), n_features=16, n_inputs=3)
    with pytest.raises(InvalidInput, match="must have a term above zero"):
        draw(DotProduct(Coefficients((0.0, 0.0))), Maclaurin(radius=1.5), n_features=4, n_inputs=3)


def test_arguments_of_the_methods_are_checked():
    with pytest.raises(InvalidInput, match="Maclaurin: degrees must be one of"):
        Maclaurin("all")
    with pytest.raises(InvalidInput, match="TensorSketch: radius must be a positive"):
        TensorSketch(radius=0.0)
    with pytest.raises(InvalidInput, match="PolySketch: pairs must be one of"):
        PolySketch(pairs="random")
    with pytest.raises(InvalidInput, match="PolySketch: inner must be an integer, 1 or above"):
        PolySketch(inner=0)
    with pytest.raises(InvalidInput, match="PolySketch: nonzeros must be an integer, 1 or above"):
        PolySketch(nonzeros=0)
    with pytest.raises(InvalidInput, match="Positive: placement must be Orthogonal"):
        Positive(placement="iid")
    with pytest.raises(InvalidInput, match="Positive: form must be one of"):
        Positive(form="both")
    with pytest.raises(InvalidInput, match="requires an even number of features"):
        draw(Gaussian(), Positive(), n_features=7, n_inputs=2)
