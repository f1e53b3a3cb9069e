"""Laws of random features: frequencies, placements, leverage, sketches and networks."""

import itertools
import math
import tracemalloc
from dataclasses import replace

import mpmath
import numpy as np
import pytest
import scipy.linalg
import scipy.sparse
import tolerance
import torch
from gallery import DEEP, NETWORKS, PLACEMENTS, POWERS, SKETCH_METHODS, rows
from inside import native
from scipy.linalg import hadamard
from scipy.special import gammaln, hyp1f1
from scipy.stats import beta, ks_2samp, kstest, norm
from scipy.stats import t as student
from tolerance import ALARM, assert_close, bar

import bochner as bo
from bochner.features import (
    IID,
    QMC,
    Fastfood,
    Fourier,
    Grid,
    Maclaurin,
    NeuralTangentFeatures,
    Orthogonal,
    PolySketch,
    Positive,
    ReLU,
    Sign,
    Structured,
    TensorSketch,
    draw,
)
from bochner.features.fourier.leverage import leverages
from bochner.features.fourier.maps import FourierMap, StructuredMap
from bochner.features.fourier.placements import chains_of, orthonormal_rows
from bochner.features.random.networks import NeuralMap, ReLUMap, SignMap, polynomial_width
from bochner.features.random.positive import PositiveMap
from bochner.features.sketch.polysketch import Hashed, Padded, Pairs, _balanced
from bochner.features.sketch.powers import Weights, energies, shares
from bochner.features.sketch.tensorsketch import CountSketch
from bochner.kernels import (
    NNGP,
    Angular,
    ArcCosine,
    Constant,
    DotExponential,
    Exponential,
    ExponentialPower,
    Gaussian,
    Laplace,
    Matern,
    NeuralTangent,
    Polynomial,
    RationalQuadratic,
)
from bochner.kernels.dotproduct import ExponentialSeries


def drawn(kernel, method, D=48, seed=0, X=None, d=None):
    """A map for forty normal rows, for given ones, or for a number of columns alone."""
    X = rows(40) if X is None and d is None else X
    return draw(kernel, method, n_features=D, X=X, n_inputs=d, random_state=seed)


def of_frequencies(kernel, form, d=3, m=None):
    """Kernel, method, D, rows and variance of m orthogonal, or independent, frequencies.

    The closed forms of docs/notation.md, and as a planted fault those of the other form or law.
    """
    z = np.array([0.3, 0.8, 1.5, 2.5])
    u = np.random.default_rng(1).normal(size=d)
    X = np.concatenate([np.zeros((1, d)), z[:, None] * u / np.linalg.norm(u)])
    k, k2 = kernel(X)[0, 1:], kernel(2 * X)[0, 1:]
    pair, phase = (1 + k2) / 2 - k * k, 1 + k2 / 2 - k * k
    if m:
        bracket = hyp1f1(d, d / 2, -(z**2) / 2) - np.exp(-(z**2))
        law = Fourier(Orthogonal()), 2 * m, X, (pair + (d - 1) * bracket) / m, pair / m
    else:
        first, second = (pair / 4, phase / 8) if form == "pair" else (phase / 8, pair / 4)
        law = Fourier(IID(), form), 8, X, first, second
    return kernel, *law


def degree_two_parts(X):
    """A = ⟨x, y⟩², B = |x|²|y|² − Σxᵢ²yᵢ² and C = A − Σxᵢ²yᵢ² of two rows."""
    x, y = X
    same = float((x * x * y * y).sum())
    return float(x @ y) ** 2, float(x @ x) * float(y @ y) - same, float(x @ y) ** 2 - same


def tensor_sketch_variance(X, p, D):
    """By cases for each factor: i = j; i ≠ j paired with itself; i ≠ j crossed."""
    A, B, C = degree_two_parts(X)
    one = (A + B) ** p + (A + C) ** p - 2 * A**p
    both = (A + B + C) ** p - (A + B) ** p - (A + C) ** p + A**p
    return one / D + both * math.gcd(2, D) / D**2


def balanced(X, P, m):
    """Of balanced pairs of P entries a side in whole blocks, m = B P; V = B + C."""
    V, blocks = sum(degree_two_parts(X)[1:]), m / P
    return V * V * (P - blocks) / (blocks * (P - 1) ** 2)


def maclaurin(X, p, m):
    A, B, C = degree_two_parts(X)
    return ((A + B + C) ** p - A**p) / m


def positive(X, form, kernel):
    x, y = X
    sum_ = float((x + y) @ (x + y))
    factor = 1 - np.exp(-sum_) if form == "hyperbolic" else 1
    return kernel(X)[0, 1] ** 2 * np.expm1(sum_) * factor / 8


PAIR = np.array([[0.9, -0.3, 0.5, 0.2], [0.4, 0.6, 0.8, -0.5]])
SQUARE, CUBE = Polynomial(2, 0.0), Polynomial(3, 0.0)
INDEPENDENT = maclaurin(PAIR, 2, 12), balanced(PAIR, 4, 12)  # and as a fault the other one
VARIANCES = [
    of_frequencies(Gaussian(), "pair"),
    of_frequencies(Laplace(3.0), "phase"),
    of_frequencies(Gaussian(), "pair", 2, 2),
    of_frequencies(Gaussian(), "pair", 3, 6),
    (SQUARE, PolySketch("independent"), 12, PAIR, *INDEPENDENT),
    (SQUARE, PolySketch(), 12, PAIR, *INDEPENDENT[::-1]),
    (CUBE, TensorSketch(), 9, PAIR, tensor_sketch_variance(PAIR, 3, 9), None),
    (CUBE, Maclaurin(), 4, PAIR, maclaurin(PAIR, 3, 4), None),
    (Gaussian(), Positive(IID()), 8, PAIR, positive(PAIR, "hyperbolic", Gaussian()), None),
    *(of_frequencies(kernel, "phase") for kernel in (Gaussian(), Matern(1.5), Exponential(2.0))),
    *(of_frequencies(kernel, "pair") for kernel in (Laplace(3.0), RationalQuadratic(0.8))),
    of_frequencies(Gaussian(), "pair", 8, 8),
    (SQUARE, Maclaurin(), 6, PAIR, maclaurin(PAIR, 2, 6), None),
    *((SQUARE, TensorSketch(), D, PAIR, tensor_sketch_variance(PAIR, 2, D), None) for D in (5, 6)),
    (SQUARE, PolySketch(), 4, PAIR, balanced(PAIR, 4, 4), None),
    *(
        (kernel, Positive(IID(), form), 8, PAIR, positive(PAIR, form, kernel), None)
        for kernel, form in (
            (Gaussian(), "plain"),
            *((DotExponential(), f) for f in ("plain", "hyperbolic")),
        )
    ),
]


def excess(squares, variance):
    """|mean of squared errors − variance| over its bar of chance 1e-6 for all cases."""
    bar = student.isf(ALARM / (8 * len(VARIANCES)), len(squares) - 1)
    error = squares.std(axis=0, ddof=1) / len(squares) ** 0.5
    return float((np.abs(squares.mean(axis=0) - variance) / (bar * error)).max())


@pytest.mark.main_cases(7)
@pytest.mark.statistical
@pytest.mark.parametrize(
    ("kernel", "method", "D", "X", "variance", "fault"), VARIANCES, ids=lambda v: repr(v)[:60]
)
def test_variances_are_the_closed_forms(kernel, method, D, X, variance, fault):
    """Of φ(x)·φ(y) over seeds, of the first row with each other one."""
    K, seeds = kernel(X)[0, 1:], range(600 if fault is None else 2000)
    maps = (drawn(kernel, method, D, seed, d=X.shape[1]) for seed in seeds)
    squares = np.array([(Z[1:] @ Z[0] - K) ** 2 for Z in (phi(X) for phi in maps)])
    assert excess(squares, variance) < 1
    assert fault is None or excess(squares, fault) > 1


def weighed(power):
    """Leverage that counts with another power of its weights."""
    return lambda p: replace(p, weights=(32 * p.weights) ** power / 32)


def with_factorials(phi):
    """Derivatives at zero for coefficients: n! too much for degree n."""
    n = phi.weights.degrees
    return replace(phi, weights=Weights(n, phi.weights.logs + 0.5 * gammaln(n + 1.0), False))


def cut(phi):
    """Without the worth of drawn degrees, what stands for the rest counts once for one of them."""
    logs = np.where(phi.weights.degrees <= 2, phi.weights.logs, -np.inf)
    return replace(phi, weights=Weights(phi.weights.degrees, logs, False))


def long(phi):
    """Gaussian ω where the factors d and d(d + 2) expect unit directions, one tenth too long."""
    return replace(phi, directions=1.1 * phi.directions)


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("kernel", "method", "D", "size", "fault"),
    [
        *((Gaussian(0.7), bo.LeverageFourier(), 64, 0.5, weighed(p)) for p in (0.0, 0.5)),
        *(
            (Gaussian((0.7, 0.4, 1.0)), bo.LeverageFourier(1e-6), 64, 0.5, weighed(p))
            for p in (0.0, 0.5)
        ),
        *(
            (DotExponential(0.5), m, 48, 0.5, with_factorials)
            for m in (Maclaurin(), TensorSketch(), PolySketch())
        ),
        (DotExponential(), Maclaurin(radius=1.5), 48, 0.8, cut),
        *(
            (DotExponential(), type(m)(radius=1.0), 24, 0.5, with_factorials)
            for m in (Maclaurin(), TensorSketch(), PolySketch())
        ),
        *(
            (ArcCosine(p), ReLU(p, IID(), split), 400, 1.0, long)
            for p in (1, 2)
            for split in (True, False)
        ),
    ],
    ids=lambda v: getattr(v, "__name__", None) or repr(v),
)
def test_planted_faults_are_seen(kernel, method, D, size, fault):
    """Of maps drawn with other rows, or for a radius that some rows are beyond."""
    X, given = size * rows(5, seed=3)[:4], {} if "radius=1" not in repr(method) else {"d": 3}
    maps = [drawn(kernel, method, D, seed, **given) for seed in range(160)]
    wrong = [fault(phi) for phi in maps]
    found, seen = (tolerance.bias(kernel(X), [phi(X) for phi in p], 200) for p in (maps, wrong))
    assert found < 1 < seen


@pytest.mark.parametrize("m", [1, 40, 90, 150, 310])
def test_of_a_wide_block_as_many_directions_as_are_asked_for_are_orthogonal(m):
    """By a Cholesky factor (m ≤ d/2), by reflections, and with whole blocks before."""
    d = 150
    W = Orthogonal().place(Matern(1.5).spectral_measure(d), m, np.random.default_rng(0))
    directions = W / np.linalg.norm(W, axis=0)
    for start in range(0, m, d):
        block = directions[:, start : start + d]
        assert_close(block.T @ block, np.eye(block.shape[1]))


@pytest.mark.statistical
@pytest.mark.parametrize("count", [30, 70])
def test_parts_of_wide_blocks_are_uniform_in_every_direction(count):
    """(1 + u)/2 of one coordinate of the last row is Beta((d − 1)/2, (d − 1)/2).

    Kolmogorov-Smirnov over 400 draws; the alarm rate is 1e-6 of all four. Planted fault: rows of
    reflections whose signs are left as they come, of which the first never has a positive number
    in the first place.
    """
    d, draws, law = 100, 400, beta(99 / 2, 99 / 2)

    def coordinates(rows):
        return [(1 + rows(np.random.default_rng(seed))) / 2 for seed in range(draws)]

    for place in (0, 17):
        right = coordinates(lambda rng, k=place: orthonormal_rows(d, count, rng)[-1, k])
        assert kstest(right, law.cdf).pvalue > 1e-6 / 4
    wrong = coordinates(lambda rng: np.linalg.qr(rng.standard_normal((d, count)))[0][0, 0])
    assert kstest(wrong, law.cdf).pvalue < 1e-6 / 4


def test_few_frequencies_of_many_columns_take_little_memory():
    """16 of 20,000 columns: a (d, d) matrix is 3.2 GB, the frequencies are 2.6 MB."""
    measure = Gaussian().spectral_measure(20_000)
    for placement in (Orthogonal(), Structured(), Fastfood()):
        tracemalloc.start()
        W = placement.place(measure, 16, np.random.default_rng(0))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert W.shape == (20_000, 16)
        assert peak < 20 * W.nbytes, placement


EVERY = [*PLACEMENTS, QMC("halton"), Structured(), Fastfood()]


@pytest.mark.parametrize("form", ["pair", "phase"])
@pytest.mark.parametrize("placement", EVERY, ids=repr)
@pytest.mark.parametrize("d", [1, 4, 130])
def test_wider_maps_hold_the_features_of_the_narrow_one(placement, form, d):
    X = np.random.default_rng(0).normal(size=(9, d))
    method, parts = Fourier(placement, form), 2 if form == "pair" else 1
    for kernel in (Matern(2.5, 6.0), RationalQuadratic(0.8)):
        few, *more = (
            draw(kernel, method, n_features=D, n_inputs=d, random_state=3)(X).reshape(9, parts, -1)
            for D in (48, 96, 768)
        )
        for many in more:
            ratio = (many.shape[2] / few.shape[2]) ** 0.5
            assert_close(ratio * many[:, :, : few.shape[2]], few, factor=16)


@pytest.mark.parametrize(
    ("kernel", "method", "exact"),
    [
        *((Angular(), Sign(placement), 0) for placement in (IID(), Orthogonal())),
        *((ArcCosine(p), ReLU(p, Orthogonal(), split=False), 0) for p in range(3)),
        (DotExponential(0.5), Maclaurin(), 4),
        (Polynomial(2, 0.0), PolySketch(inner=64), 0),
    ],
    ids=repr,
)
def test_wider_maps_of_other_methods_begin_with_the_narrow_one(kernel, method, exact):
    """But for exact features of the first degrees, which are the same."""
    X, D = np.random.default_rng(0).normal(size=(5, 3 if exact else 16)), 64 + exact
    Z, wider = (
        draw(kernel, method, n_features=n, X=X, random_state=0)(X) for n in (D, 2 * D - exact)
    )
    assert_close(wider[:, :exact], Z[:, :exact])
    assert_close(wider[:, exact:D] * 2**0.5, Z[:, exact:])


@pytest.mark.statistical
@pytest.mark.parametrize(
    "kernel",
    [Gaussian(), Matern(0.8), RationalQuadratic(0.8), ExponentialPower(power=0.7), Exponential()],
    ids=repr,
)
@pytest.mark.parametrize("placement", [Orthogonal(), Fastfood(), Structured()], ids=repr)
def test_lengths_of_frequencies_have_the_law_of_the_kernel(kernel, placement):
    """Kolmogorov-Smirnov against draws of the measure; the planted fault is another kernel's."""
    rng = np.random.default_rng(0)
    lengths, fault = (
        np.linalg.norm(placement.place(k.spectral_measure(32), 6000, rng), axis=0)
        for k in (kernel, Matern(2.0))
    )
    expected = np.linalg.norm(kernel.spectral_measure(32).sample(rng, 6000), axis=1)
    assert ks_2samp(fault, expected).pvalue < ALARM / 15 < ks_2samp(lengths, expected).pvalue


def test_sobol_frequencies_are_spread_better_than_independent_ones():
    """Half of the frequencies are below the median of |ω|, but for one, in each coordinate."""
    for placement, even in ((QMC(), True), (IID(), False)):
        W = placement.place(Gaussian().spectral_measure(5), 256, np.random.default_rng(0))
        off = np.abs((np.abs(W) < norm.ppf(0.75)).sum(axis=1) - 128)
        assert (off <= 1).all() == even


D_INPUTS = 100
MAPS = {
    f"{placement!r}-{form}": draw(
        Matern(1.5, 8.0), Fourier(placement, form), n_features=300, n_inputs=D_INPUTS
    )
    for placement in (Structured(), Fastfood())
    for form in ("pair", "phase")
}


def fixed_rows(n, d=D_INPUTS, dtype=np.float64, seed=0):
    X = np.random.default_rng(seed).normal(size=(n, d)).astype(dtype)
    X.flags.writeable = False
    return X


@pytest.mark.parametrize("phi", MAPS.values(), ids=MAPS)
def test_transforms_give_the_features_of_the_frequencies(phi):
    assert type(phi) is StructuredMap
    assert phi.frequencies.shape == (D_INPUTS, phi.n_frequencies)
    assert phi.n_features == 300
    X, dense = fixed_rows(25), FourierMap(phi.kernel, phi.frequencies, phi.amplitude, phi.phases)
    assert_close(phi(X), dense(X), factor=8)


@pytest.mark.parametrize("placement", [Structured(), Fastfood()], ids=repr)
def test_lengthscales_of_columns_scale_the_frequencies(placement):
    scales = np.linspace(0.5, 3.0, D_INPUTS)
    many, one = (
        drawn(k, Fourier(placement), 300, d=D_INPUTS) for k in (Gaussian(tuple(scales)), Gaussian())
    )
    assert_close(many.frequencies * scales[:, None], one.frequencies)


@pytest.mark.parametrize(
    ("d", "D", "placement", "kind"),
    [
        *((d, D, Structured(), StructuredMap) for d, D in ((1024, 8192), (256, 512))),
        (784, 1000, Fastfood(), StructuredMap),
        *((d, 512, Structured(), FourierMap) for d in (3, 31)),
        (3, 512, Fastfood(), FourierMap),
        (1024, 32, Structured(), FourierMap),  # most of a block would be cut away
    ],
)
def test_frequencies_are_formed_where_that_is_faster(d, D, placement, kind):
    assert type(drawn(Gaussian(), Fourier(placement), D, d=d)) is kind


def projections(count, d, u, steps=3):
    """Of a direction u on the unit rows of Structured blocks, (count, d); fewer steps: a fault."""
    measure = Gaussian().spectral_measure(d)
    chains = chains_of(Structured(), measure, count * d, np.random.default_rng(0))
    diagonals = chains.diagonals[:, 3 - steps :].copy()
    diagonals[:, -1] = d ** (-steps / 2)
    return native.turns(u[None], chains._replace(diagonals=diagonals)).reshape(count, d)


def deviation(a, r, radius, comparisons):
    """|E cos(length · a · r) − k(r)| beyond what sampling explains; lengths are averaged exactly."""
    d = a.shape[1]
    if radius == "chi":
        values = hyp1f1(d / 2, 0.5, -((a * r) ** 2) / 2).mean(axis=1)
    else:
        values = np.cos(d**0.5 * a * r).mean(axis=1)
    error = values.std(ddof=1) / len(values) ** 0.5
    return abs(values.mean() - np.exp(-(r**2) / 2)) - bar(comparisons) * error


BIAS = 2e-3
"""What `Structured` says of itself at 32 columns."""


@pytest.mark.statistical
def test_bias_of_structured_frequencies_is_below_what_they_say():
    """Along a coordinate, the sum of two, and no axis; planted faults: equal lengths, one step."""
    d, distances = 32, (0.5, 1.0, 1.5, 2.0)
    rng = np.random.default_rng(0)
    directions = np.array([np.eye(d)[0], np.eye(d)[:2].sum(axis=0), rng.normal(size=d)])
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    for u in directions:
        a = projections(4000, d, u)
        assert_close((a * a).sum(axis=1), np.ones(4000))
        for r in distances:
            assert deviation(a, r, "chi", 12) < BIAS
        assert deviation(a, 1.5, "equal", 12) > BIAS
    once = projections(4000, d, directions[0], steps=1)
    assert deviation(once, 1.5, "chi", 12) > BIAS


def test_rows_of_structured_blocks_are_orthogonal_and_differ():
    W = Structured().place(Matern(1.5).spectral_measure(64), 128, np.random.default_rng(0))
    directions = W / np.linalg.norm(W, axis=0)
    for block in (directions[:, :64], directions[:, 64:]):
        assert_close(block.T @ block, np.eye(64))
    assert np.abs(directions[:, :64].T @ directions[:, 64:]).max() > 0.1


@pytest.mark.main_cases(6)
@pytest.mark.statistical
@pytest.mark.parametrize("form", ["pair", "phase"])
@pytest.mark.parametrize("d", [3, 8])
@pytest.mark.parametrize("kernel", [Gaussian(), Matern(0.8), RationalQuadratic(0.8)], ids=repr)
def test_fastfood_is_unbiased(kernel, d, form):
    """Of maps of 200 seeds; the planted fault is 1.3 times the lengthscale."""
    X = np.concatenate([np.zeros((1, d)), np.eye(d)[:1], fixed_rows(2, d) / d**0.5])
    ask = dict(n_features=64, n_inputs=d)
    Z = [draw(kernel, Fourier(Fastfood(), form), **ask, random_state=s)(X) for s in range(200)]
    assert tolerance.bias(kernel(X), Z, 120) < 1 < tolerance.bias(kernel(1.3 * X), Z, 120)


@pytest.mark.parametrize(
    ("d", "n_features", "q"), [(1, 40, 40), (2, 300, 17), (2, 128, 11), (3, 1000, 10)]
)
def test_grids_are_exact_where_points_are_near(d, n_features, q):
    phi = draw(Gaussian(2.0), Fourier(Grid()), n_features=n_features, n_inputs=d)
    assert not phi.unbiased
    assert phi.n_features == 2 * ((q**d + 1) // 2) <= n_features + 1
    X = 0.3 * fixed_rows(20, d)
    Z = phi(X)
    assert_close(Z @ Z.T, Gaussian(2.0)(X), factor=100)
    assert_close((Z * Z).sum(axis=1), np.ones(20))


def test_grids_integrate_what_one_node_less_does_not():
    """q nodes hold |ω|^(2q−2) exactly and not |ω|^(2q): moments of the normal law."""
    for q in (3, 4, 7):
        W, weights = Grid().nodes(Gaussian().spectral_measure(1), (q + 1) // 2)
        moments = [weights @ W[0] ** (2 * j) for j in range(q + 1)]
        exact = [float(np.prod(np.arange(2 * j - 1, 0, -2))) for j in range(q + 1)]
        q_used = 2 * len(weights) - (W[0] == 0).any()
        assert_close(moments[:q_used], exact[:q_used])


def test_grids_serve_sums_of_gaussians():
    kernel, X = 2.0 * Gaussian((2.0, 3.0)) + Gaussian(4.0), 0.3 * fixed_rows(10, 2)
    Z = draw(kernel, Fourier(Grid()), n_features=400, X=X)(X)
    assert_close(Z @ Z.T, kernel(X), factor=100)


@pytest.mark.parametrize("placement", [QMC(), Structured()], ids=repr)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_complex_features_are_the_pairs_as_one_number(placement, dtype):
    X = fixed_rows(12, 64, dtype)
    ask = dict(n_features=400, n_inputs=64, random_state=2)
    phi = draw(Matern(1.5, 9.0), Fourier(placement), **ask)
    Z, P = phi.complex(X), phi(X)
    assert Z.dtype == (np.complex64 if dtype == np.float32 else np.complex128)
    assert (Z.real == P[:, :200]).all()
    assert (Z.imag == P[:, 200:]).all()
    assert np.abs(Z @ Z.conj().T - phi.kernel(X.astype(float))).max() < 0.4
    same = phi.complex(torch.asarray(np.array(X)))
    assert_close(np.from_dlpack(torch.imag(same)), Z.imag, dtype)


def cube(n, d, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, (n, d))


@pytest.mark.parametrize("kernel", [Gaussian(0.4), Matern(1.5, 0.7), 2.0 * Gaussian(0.5)], ids=repr)
def test_leverages_are_quadratic_forms_of_waves(kernel):
    X, W = cube(40, 2), np.random.default_rng(2).standard_normal((5000, 2)) * 3
    K = kernel(X)
    Z = np.exp(1j * X @ W.T)
    by_hand = (Z.conj() * np.linalg.solve(K + 1e-3 * np.trace(K) * np.eye(40), Z)).sum(axis=0)
    found = leverages(kernel, X, W, 1e-3)
    np.testing.assert_allclose(found, by_hand.real, rtol=1e-9)  # of condition 40/1e-3
    np.testing.assert_allclose(leverages(kernel, scipy.sparse.csr_array(X), W, 1e-3), found)


def distance(kernel, X, method, alpha, seed):
    K, Z = kernel(X), drawn(kernel, method, 512, seed, X)(X)
    values, V = np.linalg.eigh(K)
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


def test_constant_columns_and_one_row_are_served():
    X = np.column_stack([cube(30, 1), np.ones(30)])
    for seen in (X, X[:1]):
        assert np.isfinite(drawn(Gaussian(0.5), bo.LeverageFourier(), 64, X=seen)(X)).all()
    assert drawn(Gaussian(0.5) + Constant(2.0), bo.LeverageFourier(), 64, X=X).n_features <= 64


@pytest.mark.parametrize("kernel", [k for k in POWERS if k != POWERS[7]], ids=repr)
@pytest.mark.parametrize("method", SKETCH_METHODS, ids=repr)
def test_every_feature_asked_for_is_there_where_no_sketch_is_exact(kernel, method):
    X = np.random.default_rng(0).normal(size=(30, 40)) / 6
    assert drawn(kernel, method, 96, X=X).n_features == 96


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


X2 = np.array([[0.8, -0.5], [0.3, 1.1]])
X3 = np.array([[0.8, -0.5, 0.4], [0.3, 1.1, -0.2]])


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
    values = []
    for signs in itertools.product((-1, 1), repeat=4):
        sides = [turned(signs[:2]), turned(signs[2:])]
        for orders in itertools.product([(0, 1), (1, 0)], repeat=4):
            Z = np.empty((2, m))
            pairs = Pairs(0, 1, *_balanced(2, 2, m, Orders(*orders)))
            pairs.fill(Z, X2, sides, np.ones((1, 1)))
            values.append(float(Z[0] @ Z[1]))
    exact = float(X2[0] @ X2[1]) ** 2
    assert_close(np.mean(values), exact)
    assert_close(np.mean((np.array(values) - exact) ** 2), balanced(X2, 2, m))


@pytest.mark.parametrize("m", [1, 3, 8, 9, 20, 64])
def test_balanced_pairs_come_once_and_use_every_entry_equally_often(m):
    full, tail, partners = _balanced(8, 8, m, np.random.default_rng(m))
    left = np.concatenate([np.tile(np.arange(8), full), tail])
    assert len(left) == len(partners) == m
    assert len(set(zip(left.tolist(), partners.tolist(), strict=True))) == m
    for entries in (left, partners[: 8 * full]):
        counts = np.bincount(entries, minlength=8)
        assert counts.max() - counts.min() <= 1


@pytest.mark.parametrize(("degree", "width"), [(2, 16), (3, 64), (4, 256)])
def test_all_pairs_are_the_tensor_product_and_exact(degree, width):
    X, kernel = np.random.default_rng(0).normal(size=(9, 3)), Polynomial(degree, 0.0)
    less, phi, more = (drawn(kernel, PolySketch(), D, X=X) for D in (width - 1, width, 999))
    assert_close(phi(X) @ phi(X).T, kernel(X), factor=10)
    assert phi.below_kernel
    assert not less.below_kernel
    assert more.n_features == width


def test_hashed_leaf_is_an_osnap_matrix():
    """Two routes: the sparse product and a loop; s different rows for each column."""
    X = np.random.default_rng(1).normal(size=(3, 40))
    phi = draw(Polynomial(2, 0.0), PolySketch(inner=16), n_features=64, X=X, random_state=0)
    first, second = leaves = [step for step in phi.steps if isinstance(step, Hashed)]
    assert not (first.rows == second.rows).all()
    for leaf in leaves:
        assert all(len(set(rows)) == 4 for rows in leaf.rows.tolist())
        slow = np.zeros((3, 16))
        for i, (chosen, signs) in enumerate(zip(leaf.rows, leaf.signs, strict=True)):
            for r, sign in zip(chosen, signs, strict=True):
                slow[:, r] += sign * X[:, i] / 2
        assert_close(leaf.of(X, []), slow @ hadamard(16), factor=4)


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
    assert phi(x)[0, 0] == phi(x.astype(np.float32))[0, 0] == 1.0


@pytest.mark.parametrize("D", [1, 2, 7, 40, 1000])
def test_shares_use_what_there_is_and_stand_for_every_degree(D):
    """Expected worth of each degree is one: core degrees once, others p times 1/p."""
    law = energies(ExponentialSeries(), np.array([2.0]))
    worth = np.zeros(len(law))
    for seed in range(400):
        s = shares(law, lambda _: np.inf, D, np.random.default_rng(seed))
        assert sum(s.widths) == D
        for n, p in zip(s.degrees, s.probabilities, strict=True):
            worth[n] += 1 / p / 400
    core = law * D >= 1
    assert_close(worth[core], np.ones(core.sum()))
    assert_close((law * worth)[~core].sum(), law[~core].sum())  # wₙ/pₙ is the same for all


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
    phi = drawn(DotExponential(), Maclaurin("geometric"), 20_000, d=2)
    counts = np.bincount(phi.weights.degrees)[:6] / 20_000
    assert (np.abs(counts - 0.5 ** np.arange(1, 7)) < 5 * np.sqrt(0.25 / 20_000)).all()


def test_weights_are_powers_of_the_length_in_one_exponent():
    terms = ((2.0, 0), (1.0, 3), (1e-300, 400))
    weights = Weights(np.array([0, 3, 400]), np.log([w for w, _ in terms]), True)
    lengths = np.array([1e-30, 1.0, 30.0])
    power = lambda r, n: mpmath.mpf(r) ** n * mpmath.exp(-(mpmath.mpf(r) ** 2) / 2)
    slow = np.array([[float(w * power(r, n)) for w, n in terms] for r in lengths.tolist()])
    scale = np.maximum(slow, 1e-320)
    assert_close(weights.at(lengths, like=lengths) / scale, slow / scale, factor=1000)


@pytest.mark.parametrize("pair", DEEP, ids=repr)
def test_deep_features_converge(pair):
    """Sixteen times the width: a quarter of the error, and of the bias less."""
    X, K, errors = rows(40), pair[0](rows(40)), []
    for width in (128, 2048):
        Z = [drawn(*pair, width, seed)(X) for seed in range(8)]
        errors.append(np.mean([np.linalg.norm(z @ z.T - K) for z in Z]))
    assert errors[1] < 0.35 * errors[0]


def stated(order, d, split):
    """The table of `ReLU`."""
    c = d * (d + 2) / ((d + 4) * (d + 6))
    if split:
        return (0.0, (3 * d / (d + 2) - 1) / 4, (105 * c - 9) / 4)[order]
    return (1.0, 6 * d / (d + 2) - 1, 210 * c - 9)[order]


@pytest.mark.statistical
@pytest.mark.parametrize("order", [0, 1, 2])
@pytest.mark.parametrize("d", [4, 9])
@pytest.mark.parametrize("split", [True, False])
def test_variance_of_a_direction_is_as_stated(order, d, split):
    """Of D times the random part of |φ(x)|², one direction at a time."""
    phi = drawn(ArcCosine(order), ReLU(order, IID(), split), 4000, 1, d=d)
    m = phi.directions.shape[1]
    products = m * phi(np.eye(d)[:1])[0, -m:] ** 2
    centred = (products - products.mean()) ** 2
    bar = student.isf(ALARM / 24, 1000) * centred.std() / np.sqrt(m)
    assert abs(centred.mean() - stated(order, d, split)) <= bar + 1e-9


@pytest.mark.parametrize("d", [1, 2, 5])
def test_polynomial_features_are_exact(d):
    X = np.random.default_rng(d).normal(size=(12, d))
    G, norms = X @ X.T, (X * X).sum(axis=1)
    exact = (np.full_like(G, 0.5), 0.5 * G, 0.5 * np.outer(norms, norms) + G * G)
    for order in range(3):
        phi = draw(ArcCosine(order), ReLU(order, IID(), True), n_features=20, X=X, random_state=0)
        P = phi(X)[:, : polynomial_width(order, d)]
        assert_close(P @ P.T, exact[order])


def twin_of_sign(phi, x):
    return [np.sign(x @ u) / phi.n_features**0.5 for u in phi.directions.T]


def twin_of_relu(phi, x):
    d, m = phi.directions.shape
    c = (1, d, d * (d + 2))[phi.order]
    t = phi.directions.T @ x
    if phi.split:
        power = (np.sign(t), np.abs(t), t * np.abs(t))[phi.order]
        return list(np.sqrt(c / (2 * m)) * power)
    return list(np.sqrt(2 * c / m) * np.where(t > 0, t**phi.order, 0))


def signed_transform(v, signs):
    padded = np.zeros(len(signs))
    padded[: len(v)] = v
    return hadamard(len(signs)) @ (signs * padded)


def twin_of_network(phi, x):
    """The sums that the module states, one row at a time: pairs (j, block) of A_j and T_j."""
    u, A, T = x / np.linalg.norm(x), [], []

    def sigma(h):
        return np.concatenate([2.0 ** (-h / 2) * u, *(2.0 ** ((j - h) / 2) * a for j, a in A)])

    def full(h):
        parts = [((h + 1) / 2**h) ** 0.5 * u]
        for (j, a), (_, t) in zip(A, T, strict=True):
            parts += [((h - j + 1) / 2 ** (h - j)) ** 0.5 * a, 2.0 ** ((j - h) / 2) * t]
        return np.concatenate(parts)

    for h, W in enumerate(phi.ramps):
        p, m = W.shape
        below = sigma(h)
        if phi.steps:
            mixed = signed_transform(full(h), phi.signs[h])[phi.picks[h]]
            T.append((h + 1, np.sign(phi.steps[h].T @ below) * mixed / np.sqrt(2 * len(mixed))))
        A.append((h + 1, np.array([abs(w @ below) for w in W.T]) * np.sqrt(p / (2 * m))))
    return np.linalg.norm(x) * (full if phi.steps else sigma)(len(A))


@pytest.mark.parametrize("kernel", [NeuralTangent(1), NeuralTangent(3), NNGP(1), NNGP(4)], ids=repr)
def test_layers_share_the_features_by_their_factors(kernel):
    """As (L − j + 1) 2^(j − L) to A_j and j 2^(j − L) to T_j; of NNGP 2^(j − L), and no T_j."""
    phi, L = draw(kernel, NeuralTangentFeatures(), n_features=1003, n_inputs=3), kernel.depth
    tangent = isinstance(kernel, NeuralTangent)
    ramps = [(L - j + 1 if tangent else 1) / 2 ** (L - j) for j in range(1, L + 1)]
    steps = [j / 2 ** (L - j) if tangent else 0.0 for j in range(1, L + 1)]
    found = [W.shape[1] for W in phi.ramps], [W.shape[1] for W in phi.steps] or [0] * L
    assert phi.n_features == 1003
    for widths, expected_shares in zip(found, (ramps, steps), strict=True):
        expected = 1000 * np.array(expected_shares) / (sum(ramps) + sum(steps))
        assert np.abs(np.array(widths) - expected).max() <= 1


@pytest.mark.parametrize("kind", [NeuralTangent, NNGP])
def test_directions_of_layers_are_orthogonal_in_blocks_and_of_length_one(kind):
    phi = draw(kind(2), NeuralTangentFeatures(), n_features=43, n_inputs=4, random_state=0)
    below = 4
    for W in (*phi.ramps, *phi.steps):
        assert_close(np.linalg.norm(W, axis=0), np.ones(W.shape[1]))
    for W in phi.ramps:
        assert W.shape[0] == below
        for start in range(0, W.shape[1], below):
            block = W[:, start : start + below]
            assert_close(block.T @ block, np.eye(block.shape[1]))
        below += W.shape[1]


@pytest.mark.parametrize(("order", "exact"), [(0, 1), (1, 5), (2, 15)])
def test_exact_parts_are_split_off_where_they_are_half_of_the_features_at_most(order, exact):
    for width, split in ((2 * exact, True), (2 * exact - 1, False)):
        phi = draw(ArcCosine(order), ReLU(order), n_features=width, n_inputs=5, random_state=0)
        assert (phi.n_features, phi.split) == (width, split)


@pytest.mark.parametrize("pair", [*NETWORKS, *DEEP], ids=repr)
def test_features_are_those_of_the_slow_twin(pair):
    """And φ(c x) = c^p φ(x); a row of zeros is at right angles to all, as the kernel has it."""
    phi, X, kernel = drawn(*pair), rows(9), pair[0]
    twin = {SignMap: twin_of_sign, ReLUMap: twin_of_relu, NeuralMap: twin_of_network}[type(phi)]
    slow = np.array([twin(phi, x) for x in X])
    assert_close(phi(X)[:, -slow.shape[1] :], slow)
    assert_close(phi(7.0 * X), 7.0**kernel.degree * phi(X))
    X[3] = 0
    Z = phi(X)
    assert np.isfinite(Z).all()
    exact = (ArcCosine(0), ReLU(0, IID(), split=False)) != pair
    assert_close((Z @ Z.T)[3], kernel(X)[3] if exact else Z @ Z[3])
    assert_close(Z[3] @ Z[3], kernel(X)[3, 3])
