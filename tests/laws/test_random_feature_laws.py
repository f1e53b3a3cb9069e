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
from gallery import DEEP, N_COLUMNS, NETWORKS, PLACEMENTS, POWERS, SKETCHED, rows
from inside import native
from scipy.linalg import hadamard
from scipy.special import gammaln, hyp1f1
from scipy.stats import beta, ks_2samp, kstest, norm
from scipy.stats import t as student
from sklearn.kernel_approximation import RBFSampler
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

SEEDS = 2000
DISTANCES = np.array([0.3, 0.8, 1.5, 2.5])


def pairs_at(distances, d):
    """Rows 0 and x_j with ‖x_j‖ = distances[j], in a direction of no special kind."""
    u = np.random.default_rng(1).normal(size=d)
    return np.concatenate([np.zeros((1, d)), distances[:, None] * u / np.linalg.norm(u)])


def estimates(kernel, method, n_features, d):
    X = pairs_at(DISTANCES, d)
    maps = (
        draw(kernel, method, n_features=n_features, n_inputs=d, random_state=s)
        for s in range(SEEDS)
    )
    return np.array([(Z := phi(X))[1:] @ Z[0] for phi in maps])


def variance_excess(values, expected, comparisons):
    """Largest |s² − σ²| over its bar, from the empirical fourth moment."""
    centred = values - values.mean(axis=0)
    s2 = (centred**2).mean(axis=0)
    error = np.sqrt(((centred**2 - s2) ** 2).mean(axis=0) / len(values))
    return float((np.abs(s2 - expected) / (bar(comparisons) * error)).max())


def variances(kernel, d):
    """(1 + k(2δ) − 2k(δ)²) and (1 + ½k(2δ) − k(δ)²): D times those of pairs and of phases."""
    X = pairs_at(DISTANCES, d)
    k, k2 = kernel(X)[0, 1:], kernel(2 * X)[0, 1:]
    return {"pair": 1 + k2 - 2 * k * k, "phase": 1 + k2 / 2 - k * k}


SAMPLED = [Gaussian(), Laplace(3.0), Matern(1.5), Exponential(2.0), RationalQuadratic(0.8)]


@pytest.mark.main_cases(2)
@pytest.mark.statistical
@pytest.mark.parametrize("kernel", SAMPLED, ids=repr)
def test_variance_of_independent_frequencies_is_the_closed_form(kernel):
    expected = variances(kernel, 3)
    pair = estimates(kernel, Fourier(IID(), "pair"), 8, 3)
    phase = estimates(kernel, Fourier(IID(), "phase"), 8, 3)
    comparisons = 2 * len(SAMPLED) * len(DISTANCES)
    assert variance_excess(pair, expected["pair"] / 8, comparisons) < 1
    assert variance_excess(phase, expected["phase"] / 8, comparisons) < 1
    # The planted fault: the variance of the other form.
    assert variance_excess(pair, expected["phase"] / 8, comparisons) > 1
    assert variance_excess(phase, expected["pair"] / 8, comparisons) > 1


def orthogonal_variance(d, m):
    """The closed form of docs/notation.md, Gaussian kernel, m frequencies in blocks of d."""
    z = DISTANCES
    k, k2 = np.exp(-(z**2) / 2), np.exp(-2 * z**2)
    bracket = hyp1f1(d, d / 2, -(z**2) / 2) - np.exp(-(z**2))
    return ((1 + k2) / 2 - k * k) / m + (d - 1) / m * bracket


@pytest.mark.main_cases(2)
@pytest.mark.statistical
@pytest.mark.parametrize(("d", "m"), [(2, 2), (3, 3), (3, 6), (8, 8)])
def test_variance_of_orthogonal_frequencies_is_the_closed_form(d, m):
    expected = orthogonal_variance(d, m)
    values = estimates(Gaussian(), Fourier(Orthogonal()), 2 * m, d)
    assert variance_excess(values, expected, 4 * len(DISTANCES)) < 1
    # The planted fault: independent directions.
    independent = estimates(Gaussian(), Fourier(IID()), 2 * m, d)
    assert variance_excess(independent, expected, 4 * len(DISTANCES)) > 1


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
    for kernel in (Matern(2.5, 6.0), ExponentialPower(power=1.2)):
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


def relative_error(Z, K):
    return np.linalg.norm(Z @ Z.T - K) / np.linalg.norm(K)


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("d", "placement", "share"),
    [(5, QMC(), 1 / 8), (20, Orthogonal(), 1 / 3), (100, Orthogonal(), 1 / 3)],
)
def test_error_is_a_fraction_of_that_of_scikit_learn(d, placement, share):
    """Gaussian data, median distance as lengthscale, D = 1024; means over eight seeds each."""
    X = np.random.default_rng(d).normal(size=(800, d))
    distances = np.sqrt(((X[:400] - X[400:]) ** 2).sum(axis=1))
    kernel = Gaussian(float(np.median(distances)))
    K, ours, theirs = kernel(X), [], []
    for seed in range(8):
        phi = draw(kernel, Fourier(placement), n_features=1024, X=X, random_state=seed)
        gamma = 1 / (2 * kernel.lengthscale**2)
        sampler = RBFSampler(gamma=gamma, n_components=1024, random_state=seed)
        ours.append(relative_error(phi(X), K))
        theirs.append(relative_error(sampler.fit_transform(X), K))
    assert np.mean(ours) <= share * np.mean(theirs), f"{np.mean(ours) / np.mean(theirs):.3f}"


D_INPUTS = 100
MAPS = {
    f"{placement!r}-{form}": draw(
        Matern(1.5, lengthscale=8.0),
        Fourier(placement, form),
        n_features=300,
        n_inputs=D_INPUTS,
        random_state=1,
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


def test_lengthscales_of_columns_scale_the_frequencies():
    scales = np.linspace(0.5, 3.0, D_INPUTS)
    for placement in (Structured(), Fastfood()):
        many, one = (
            draw(k, Fourier(placement), n_features=300, n_inputs=D_INPUTS, random_state=0)
            for k in (Gaussian(tuple(scales)), Gaussian())
        )
        assert_close(many.frequencies * scales[:, None], one.frequencies)


def test_frequencies_are_formed_where_that_is_faster():
    def kind(d, n_features, placement=None):
        method = Fourier(placement or Structured())
        return type(draw(Gaussian(), method, n_features=n_features, n_inputs=d, random_state=0))

    assert kind(1024, 8192) is kind(256, 512) is kind(784, 1000, Fastfood()) is StructuredMap
    assert kind(3, 512) is kind(31, 512) is kind(3, 512, Fastfood()) is FourierMap
    assert kind(1024, 32) is FourierMap  # most of a block would be cut away


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


LEVERAGE_SEEDS = range(100)


def cube(n, d, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, (n, d))


def drawn(kernel, method, X, D=64, seed=0):
    return bo.draw(kernel, method, n_features=D, X=X, random_state=seed)


CASES = [
    (Gaussian(0.3), bo.LeverageFourier(), 1),
    (Gaussian((0.7, 0.4)), bo.LeverageFourier(1e-6), 2),
    (Matern(1.5, 0.5), bo.LeverageFourier(), 2),
]


def maps(kernel, method, d):
    return [drawn(kernel, method, cube(60, d), seed=seed) for seed in LEVERAGE_SEEDS]


def bias(kernel, found, d):
    X = 0.8 * cube(4, d, seed=1)
    return tolerance.bias(kernel(X), [phi(X) for phi in found], 10 * len(CASES))


@pytest.mark.statistical
@pytest.mark.parametrize("case", CASES, ids=repr)
@pytest.mark.parametrize("power", [0.0, 0.5])
def test_planted_weights_are_seen(case, power):
    """No weights, and their roots."""
    kernel, method, d = case
    found = maps(kernel, method, d)
    faults = [replace(p, weights=(32 * p.weights) ** power / 32) for p in found]
    assert bias(kernel, found, d) < 1 < bias(kernel, faults, d)


@pytest.mark.parametrize("kernel", [Gaussian(0.4), Matern(1.5, 0.7), 2.0 * Gaussian(0.5)], ids=repr)
def test_leverages_are_quadratic_forms_of_waves(kernel):
    X, W = cube(40, 2), np.random.default_rng(2).standard_normal((5000, 2)) * 3
    K = kernel(X)
    Z = np.exp(1j * X @ W.T)
    by_hand = (Z.conj() * np.linalg.solve(K + 1e-3 * np.trace(K) * np.eye(40), Z)).sum(axis=0)
    found = leverages(kernel, X, W, 1e-3)
    np.testing.assert_allclose(found, by_hand.real, rtol=1e-9)  # of condition 40/1e-3
    np.testing.assert_allclose(leverages(kernel, scipy.sparse.csr_array(X), W, 1e-3), found)


def distance(kernel, X, method, alpha, seed, D=512):
    K = kernel(X)
    values, V = np.linalg.eigh(K)
    Z = drawn(kernel, method, X, D=D, seed=seed)(X)
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
    for X_seen in (X, X[:1]):
        phi = drawn(Gaussian(0.5), bo.LeverageFourier(), X_seen)
        assert np.isfinite(phi(X)).all()
    assert drawn(Gaussian(0.5) + Constant(2.0), bo.LeverageFourier(), X).n_features <= 64


D = 24
SKETCH_SEEDS = 100


def named(pair):
    return f"{pair[1]!r}-{pair[0]!r}"


def drawn_sketch(pair, seed=0, n_features=D, X=None):
    X = rows(40) if X is None else X
    return draw(*pair, n_features=n_features, X=X, random_state=seed)


COMPARISONS = 10 * len(SKETCHED)


def bias_sketch(kernel, maps):
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


PAIR = np.array([[0.9, -0.3, 0.5, 0.2], [0.4, 0.6, 0.8, -0.5]])
MANY = 600


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


def pair_variance(V_L, V_R, P_L, P_R, m):
    """Of balanced pairs in whole blocks, m = B P_L."""
    B = m / P_L
    return V_L * V_R * (P_R - B) / (B * (P_L - 1) * (P_R - 1))


def spread(X):
    """V = |x|²|y|² + ⟨x, y⟩² − 2Σxᵢ²yᵢ²."""
    _, B, C = degree_two_parts(X)
    return B + C


def maclaurin(p, m):
    A, B, C = degree_two_parts(PAIR)
    return ((A + B + C) ** p - A**p) / m


def balanced(m):
    return pair_variance(spread(PAIR), spread(PAIR), 4, 4, m)


def positive(form, m, modulated):
    x, y = PAIR
    k = np.exp(x @ y) * (np.exp(-(x @ x + y @ y) / 2) if modulated else 1)
    sum_ = float((x + y) @ (x + y))
    factor = 1 - np.exp(-sum_) if form == "hyperbolic" else 1
    return k**2 * np.expm1(sum_) * factor / m


VARIANCES = [
    (Polynomial(2, 0.0), Maclaurin(), 6, maclaurin(2, 6)),
    (Polynomial(3, 0.0), Maclaurin(), 4, maclaurin(3, 4)),
    (Polynomial(2, 0.0), TensorSketch(), 5, tensor_sketch_variance(PAIR, 2, 5)),
    (Polynomial(2, 0.0), TensorSketch(), 6, tensor_sketch_variance(PAIR, 2, 6)),
    (Polynomial(3, 0.0), TensorSketch(), 9, tensor_sketch_variance(PAIR, 3, 9)),
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
    maps = (draw(kernel, method, n_features=m, n_inputs=4, random_state=s) for s in range(MANY))
    return np.array([(float(Z[0] @ Z[1]) - K) ** 2 for Z in (phi(PAIR) for phi in maps)])


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


@pytest.mark.statistical
@pytest.mark.parametrize("method", [Maclaurin(), TensorSketch(), PolySketch()], ids=repr)
def test_planted_fault_missing_factorials_are_seen(method):
    """Derivatives at zero for coefficients: n! too much for degree n."""
    kernel = DotExponential(scale=0.5)
    maps = [drawn_sketch((kernel, method), seed, 2 * D) for seed in range(SKETCH_SEEDS)]

    def fault(phi):
        n = phi.weights.degrees
        logs = phi.weights.logs + 0.5 * gammaln(n + 1.0)
        return replace(phi, weights=Weights(n, logs, False))

    assert bias_sketch(kernel, maps) < 1 < bias_sketch(kernel, [fault(phi) for phi in maps])


@pytest.mark.statistical
def test_planted_fault_series_cut_at_the_width_is_seen():
    """Without the worth of drawn degrees, what stands for the rest counts once for one of them."""
    kernel, faults, ask = DotExponential(), [], dict(n_features=48, n_inputs=3)
    maps = [draw(kernel, Maclaurin(radius=1.5), random_state=s, **ask) for s in range(SKETCH_SEEDS)]
    for phi in maps:
        logs = np.where(phi.weights.degrees <= 2, phi.weights.logs, -np.inf)
        faults.append(replace(phi, weights=Weights(phi.weights.degrees, logs, False)))
    X = np.array([[1.2, 0.5, 0.0], [1.0, 0.8, 0.3]])
    found, fault = (tolerance.bias(kernel(X), [phi(X) for phi in p], 4) for p in (maps, faults))
    assert found < 1 < fault


@pytest.mark.parametrize("pair", [p for p in SKETCHED if p[0] != POWERS[7]], ids=named)
def test_every_feature_asked_for_is_there_where_no_sketch_is_exact(pair):
    X = np.random.default_rng(0).normal(size=(30, 40)) / 6
    if "inner=2" not in repr(pair[1]) and "inner=4" not in repr(pair[1]):
        assert draw(*pair, n_features=96, X=X, random_state=0).n_features == 96


def test_linear_term_is_exact_where_it_pays():
    """By itself: 1 + x has all its weight there; a long row's series has little."""
    X = rows(40)
    short = draw(DotExponential(), Maclaurin(radius=0.3), n_features=D, X=X, random_state=0)
    long = draw(DotExponential(), Maclaurin(radius=3.0), n_features=8, X=X, random_state=0)
    assert list(short.exact.degrees) == [0, 1]
    assert list(long.exact.degrees) == [0]
    assert_close(short(X)[:, 1:4], X)


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
    phi = draw(
        DotExponential(), Maclaurin("geometric"), n_features=20_000, n_inputs=2, random_state=0
    )
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


D_NETWORK = 48

ALL = [*NETWORKS, *DEEP]
every_map_network = pytest.mark.parametrize("pair", ALL, ids=repr)


def drawn_network(pair, seed=0, n_features=D_NETWORK, n_inputs=N_COLUMNS):
    return draw(*pair, n_features=n_features, n_inputs=n_inputs, random_state=seed)


@pytest.mark.statistical
@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("split", [True, False])
def test_planted_fault_lengths_of_directions_are_seen(order, split):
    """Gaussian ω where the factors d and d(d + 2) expect unit directions, one tenth too long."""
    kernel, X = ArcCosine(order), rows(5, seed=3)[:4]
    maps = [drawn_network((kernel, ReLU(order, IID(), split)), seed, 400) for seed in range(160)]
    faults = [ReLUMap(p.kernel, 1.1 * p.directions, p.order, p.split) for p in maps]
    found, fault = (tolerance.bias(kernel(X), [phi(X) for phi in p], 160) for p in (maps, faults))
    assert found < 1 < fault


@pytest.mark.parametrize("pair", DEEP, ids=repr)
def test_deep_features_converge(pair):
    """Sixteen times the width: a quarter of the error, and of the bias less."""
    X = rows(40)
    K, seeds = pair[0](X), range(8)
    narrow, wide = (
        np.mean([relative_error(drawn_network(pair, seed, width)(X), K) for seed in seeds])
        for width in (128, 2048)
    )
    assert wide < 0.35 * narrow


def product_variances(method, d, x, y, runs=4000):
    """Variance of D times the random part of φ(x)·φ(y), one direction at a time."""
    phi = draw(ArcCosine(method.order), method, n_features=runs, n_inputs=d, random_state=1)
    m = phi.directions.shape[1]
    Z = phi(np.stack([x, y]))[:, -m:]
    products = m * Z[0] * Z[1]
    centred = (products - products.mean()) ** 2
    return centred.mean(), centred.std() / np.sqrt(m)


CASES_NETWORK = list(itertools.product((0, 1, 2), (4, 9), (True, False)))


def stated(order, d, split):
    """The table of `ReLU`."""
    c = d * (d + 2) / ((d + 4) * (d + 6))
    if split:
        return (0.0, (3 * d / (d + 2) - 1) / 4, (105 * c - 9) / 4)[order]
    return (1.0, 6 * d / (d + 2) - 1, 210 * c - 9)[order]


@pytest.mark.statistical
@pytest.mark.parametrize(("order", "d", "split"), CASES_NETWORK)
def test_variance_of_a_direction_is_as_stated(order, d, split):
    x = np.eye(d)[0]
    found, error = product_variances(ReLU(order, IID(), split), d, x, x)
    bar = student.isf(ALARM / (2 * len(CASES_NETWORK)), 1000)
    assert abs(found - stated(order, d, split)) <= bar * error + 1e-9


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


@every_map_network
def test_features_are_those_of_the_slow_twin(pair):
    phi, X = drawn_network(pair), rows(7)
    twin = {SignMap: twin_of_sign, ReLUMap: twin_of_relu, NeuralMap: twin_of_network}[type(phi)]
    slow = np.array([twin(phi, x) for x in X])
    assert_close(phi(X)[:, -slow.shape[1] :], slow)


@every_map_network
def test_lengths_act_as_in_the_kernel(pair):
    """φ(c x) = c^p φ(x), and a row of zeros is at right angles to all, as the kernel has it."""
    kernel, _ = pair
    phi, X = drawn_network(pair), rows(9)
    assert_close(phi(7.0 * X), 7.0**kernel.degree * phi(X))
    X[3] = 0
    Z = phi(X)
    assert np.isfinite(Z).all()
    exact = (ArcCosine(0), ReLU(0, IID(), split=False)) != pair
    assert_close((Z @ Z.T)[3], kernel(X)[3] if exact else Z @ Z[3])
    assert_close(Z[3] @ Z[3], kernel(X)[3, 3])
