"""Laws of random features: frequencies, placements, leverage, sketches and networks."""

import math

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse
import tolerance
import torch
from gallery import DEEP, NETWORKS, POWERS, SKETCH_METHODS, fixed_points, rows
from internals import with_peak
from scipy.linalg import hadamard
from scipy.special import hyp1f1
from scipy.stats import beta, f, ks_2samp, kstest, norm
from scipy.stats import t as student
from tolerance import ALARM, assert_close

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
    Structured,
    TensorSketch,
    draw,
    networks,
)
from bochner.features.fourier.fourier import FourierMap
from bochner.features.fourier.placements import Transforms, orthonormal_rows
from bochner.features.networks import NeuralMap, PositiveMap, ReLUMap
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


def new_map(kernel, method, D=48, seed=0, X=None, d=None):
    """Return a map drawn from 40 normal rows, from ``X``, or for ``d`` columns without rows."""
    X = rows(40) if X is None and d is None else X
    return draw(kernel, method, n_features=D, X=X, n_inputs=d, random_state=seed)


def of_frequencies(kernel, form, d=3, m=None):
    """Return kernel, method, D, rows, variance of the features, and a wrong variance.

    The variances are closed forms of docs/notation.md, for m orthogonal or else independent
    frequencies. The wrong one is that of the other form or placement: a planted fault.
    """
    z = np.array([0.3, 0.8, 1.5, 2.5])
    u = np.random.default_rng(1).normal(size=d)
    X = np.concatenate([np.zeros((1, d)), z[:, None] * u / np.linalg.norm(u)])
    k, k2 = kernel(X)[0, 1:], kernel(2 * X)[0, 1:]
    pair, phase = (1 + k2) / 2 - k * k, 1 + k2 / 2 - k * k
    if m:
        bracket = hyp1f1(d, d / 2, -(z**2) / 2) - np.exp(-(z**2))
        remainder = Fourier(Orthogonal()), 2 * m, X, (pair + (d - 1) * bracket) / m, pair / m
    else:
        variance, fault = (pair / 4, phase / 8) if form == "pair" else (phase / 8, pair / 4)
        remainder = Fourier(IID(), form), 8, X, variance, fault
    return kernel, *remainder


def degree_two_parts(X):
    """Return A = ⟨x, y⟩², B = |x|²|y|² − Σxᵢ²yᵢ² and C = A − Σxᵢ²yᵢ² of two rows."""
    x, y = X
    square = float((x * x * y * y).sum())
    return float(x @ y) ** 2, float(x @ x) * float(y @ y) - square, float(x @ y) ** 2 - square


def tensor_sketch_variance(X, p, D):
    """Return the variance, by cases of each factor: i = j, i ≠ j and itself, i ≠ j and swapped."""
    A, B, C = degree_two_parts(X)
    first = (A + B) ** p + (A + C) ** p - 2 * A**p
    second = (A + B + C) ** p - (A + B) ** p - (A + C) ** p + A**p
    return first / D + second * math.gcd(2, D) / D**2


def balanced(X, P, m):
    """Return the variance of m balanced pairs, in whole blocks of P entries."""
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
VARIANCES = [
    of_frequencies(Gaussian(), "pair"),
    of_frequencies(Laplace(3.0), "phase"),
    of_frequencies(Gaussian(), "pair", 2, 2),
    of_frequencies(Gaussian(), "pair", 3, 6),
    (SQUARE, PolySketch(), 12, PAIR, balanced(PAIR, 4, 12), maclaurin(PAIR, 2, 12)),
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
    """Return |mean of squared errors − variance| over its bound of chance 1e-6 for all cases."""
    bound = student.isf(ALARM / (8 * len(VARIANCES)), len(squares) - 1)
    error = squares.std(axis=0, ddof=1) / len(squares) ** 0.5
    return float((np.abs(squares.mean(axis=0) - variance) / (bound * error)).max())


@pytest.mark.main_cases(3)
@pytest.mark.statistical
@pytest.mark.parametrize(
    ("kernel", "method", "D", "X", "variance", "fault"), VARIANCES, ids=lambda v: repr(v)[:60]
)
def test_variances_equal_the_closed_forms(kernel, method, D, X, variance, fault):
    """φ(x)·φ(y) over seeds, for the first row and each other row."""
    K, seeds = kernel(X)[0, 1:], range(600 if fault is None else 2000)
    maps = (new_map(kernel, method, D, seed, d=X.shape[1]) for seed in seeds)
    squares = np.array([(Z[1:] @ Z[0] - K) ** 2 for Z in (phi(X) for phi in maps)])
    assert excess(squares, variance) < 1
    assert fault is None or excess(squares, fault) > 1


@pytest.mark.main_cases(2)
@pytest.mark.statistical
@pytest.mark.parametrize(
    ("method", "D", "length", "size"),
    [
        (Maclaurin(), 48, 1.5, 0.8),
        *((method, 24, 1.0, 0.5) for method in (Maclaurin(), TensorSketch(), PolySketch())),
    ],
    ids=repr,
)
def test_maps_are_unbiased_at_rows_longer_than_those_of_the_draw(method, D, length, size):
    X, kernel = size * rows(5, seed=3)[:4], DotExponential()
    unit = length * np.eye(1, 3)
    maps = [new_map(kernel, method, D, seed, X=unit) for seed in range(160)]
    assert tolerance.bias(kernel(X), [phi(X) for phi in maps], 100) < 1


@pytest.mark.parametrize("m", [1, 40, 90, 150, 310])
def test_directions_of_wide_blocks_are_orthogonal(m):
    """By a Cholesky factor for m ≤ d/2, otherwise by reflections; |ω|²/d has the law F(d, 3)."""
    d = 150
    W = Orthogonal().place(Matern(1.5).spectral(d), m, np.random.default_rng(0))
    assert kstest((W**2).sum(axis=0) / d, f(d, 3).cdf).pvalue > 1e-6
    directions = W / np.linalg.norm(W, axis=0)
    for start in range(0, m, d):
        block = directions[:, start : start + d]
        assert_close(block.T @ block, np.eye(block.shape[1]))


@pytest.mark.statistical
@pytest.mark.parametrize("count", [30, 70])
def test_directions_of_wide_blocks_are_uniform(count):
    """(1 + u)/2 of a coordinate u of the last row is Beta((d − 1)/2, (d − 1)/2).

    Kolmogorov-Smirnov tests of 400 draws have an alarm rate of 1e-6 together. The planted fault is
    a QR factor without random signs: the first coordinate of its first row is never positive.
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
    """16 frequencies of 20,000 columns take 2.6 MB, a (d, d) matrix 3.2 GB."""
    for method in map(Fourier, (Orthogonal(), Structured(), Fastfood())):
        W, peak = with_peak(lambda method=method: new_map(Gaussian(), method, 32, d=20_000).matrix)
        assert W.shape == (20_000, 16)
        assert peak < 20 * W.nbytes, method


@pytest.mark.statistical
@pytest.mark.parametrize(
    "kernel",
    [Gaussian(), Matern(0.8), RationalQuadratic(0.8), ExponentialPower(power=0.7), Exponential()],
    ids=repr,
)
@pytest.mark.parametrize("placement", [Orthogonal(), Fastfood(), Structured()], ids=repr)
def test_lengths_of_frequencies_have_the_distribution_of_the_kernel(kernel, placement):
    """Kolmogorov-Smirnov tests by the spectral measure; the planted fault is another kernel."""
    rng, method = np.random.default_rng(0), Fourier(placement, "phase")
    lengths, fault = (
        np.linalg.norm(new_map(k, method, D=6000, seed=i, d=32).matrix, axis=0)
        for i, k in enumerate((kernel, Matern(2.0)))
    )
    expected = np.linalg.norm(kernel.spectral(32).sample(rng, 6000), axis=1)
    assert ks_2samp(fault, expected).pvalue < ALARM / 15 < ks_2samp(lengths, expected).pvalue


def test_sobol_frequencies_are_balanced():
    """In each coordinate half of the frequencies, up to one, are below the median of |ω|."""
    for placement, is_even in ((QMC(), True), (IID(), False)):
        W = placement.place(Gaussian().spectral(5), 256, np.random.default_rng(0))
        assert (np.abs((np.abs(W) < norm.ppf(0.75)).sum(axis=1) - 128) <= 1).all() == is_even


D_INPUTS = 100
MAPS = {
    f"{placement!r}-{form}": draw(
        Matern(1.5, 8.0), Fourier(placement, form), n_features=300, n_inputs=D_INPUTS
    )
    for placement in (Structured(), Fastfood())
    for form in ("pair", "phase")
}


@pytest.mark.parametrize("phi", MAPS.values(), ids=MAPS)
def test_transforms_give_the_features_of_the_frequencies(phi):
    assert type(phi.frequencies) is Transforms
    assert phi.matrix.shape == phi.frequencies.shape
    assert phi.n_features == 300
    dense = FourierMap(phi.kernel, phi.matrix, phi.amplitude, phi.phases)
    X = fixed_points(25, D_INPUTS)
    assert_close(phi(X), dense(X), factor=8)


@pytest.mark.parametrize("placement", [Structured(), Fastfood()], ids=repr)
def test_lengthscales_of_columns_scale_the_frequencies(placement):
    scales = np.linspace(0.5, 3.0, D_INPUTS)
    scaled, first = (
        new_map(Gaussian(s), Fourier(placement), 300, d=D_INPUTS) for s in (tuple(scales), 1.0)
    )
    assert_close(scaled.matrix * scales[:, None], first.matrix)


@pytest.mark.statistical
def test_the_bias_of_structured_frequencies_is_at_most_the_stated_one():
    """2e-3 at 32 columns, along a coordinate, a sum of two, and a random direction."""
    directions = np.array(
        [np.eye(32)[0], np.eye(32)[:2].sum(axis=0), np.random.default_rng(0).normal(size=32)]
    )
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    X = np.concatenate([np.zeros((1, 32)), *(r * directions for r in (0.5, 1.0, 1.5, 2.0))])
    maps = (new_map(Gaussian(), Fourier(Structured()), 8192, seed, d=32) for seed in range(40))
    values = np.array([Z[1:] @ Z[0] for Z in (phi(X) for phi in maps)])
    error = values.std(axis=0, ddof=1) / len(values) ** 0.5
    excess = np.abs(values.mean(axis=0) - Gaussian()(X)[0, 1:]) - tolerance.bar(12) * error
    assert excess.max() < 2e-3


def test_rows_of_structured_blocks_are_orthogonal_and_differ():
    W = new_map(Matern(1.5), Fourier(Structured()), D=256, d=64).matrix
    directions = W / np.linalg.norm(W, axis=0)
    for block in (directions[:, :64], directions[:, 64:]):
        assert_close(block.T @ block, np.eye(64))
    assert np.abs(directions[:, :64].T @ directions[:, 64:]).max() > 0.1


@pytest.mark.main_cases(2)
@pytest.mark.statistical
@pytest.mark.parametrize("form", ["pair", "phase"])
@pytest.mark.parametrize("d", [3, 8])
@pytest.mark.parametrize("kernel", [Gaussian(), Matern(0.8), RationalQuadratic(0.8)], ids=repr)
def test_fastfood_is_unbiased(kernel, d, form):
    """Means of 200 seeds; the planted fault is a lengthscale 1.3 times shorter."""
    X = np.concatenate([np.zeros((1, d)), np.eye(d)[:1], fixed_points(2, d) / d**0.5])
    options = dict(n_features=64, n_inputs=d)
    Z = [draw(kernel, Fourier(Fastfood(), form), **options, random_state=s)(X) for s in range(200)]
    assert tolerance.bias(kernel(X), Z, 120) < 1 < tolerance.bias(kernel(1.3 * X), Z, 120)


@pytest.mark.parametrize(
    ("d", "n_features", "q"), [(1, 40, 40), (2, 300, 17), (2, 128, 11), (3, 1000, 10)]
)
def test_grids_are_exact_for_near_points(d, n_features, q):
    phi = draw(Gaussian(2.0), Fourier(Grid()), n_features=n_features, n_inputs=d)
    assert not hasattr(Grid(), "place")  # nodes have weights, so they are no sample of frequencies
    assert not phi.unbiased
    assert phi.n_features == 2 * ((q**d + 1) // 2) <= n_features + 1
    X = 0.3 * fixed_points(20, d)
    Z = phi(X)
    assert_close(Z @ Z.T, Gaussian(2.0)(X), factor=100)
    assert_close((Z * Z).sum(axis=1), np.ones(20))


def test_grids_support_sums_of_gaussians():
    kernel, X = 2.0 * Gaussian((2.0, 3.0)) + Gaussian(4.0), 0.3 * fixed_points(10, 2)
    Z = draw(kernel, Fourier(Grid()), n_features=400, X=X)(X)
    assert_close(Z @ Z.T, kernel(X), factor=100)


@pytest.mark.parametrize("placement", [QMC(), Structured()], ids=repr)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_complex_features_are_pairs_of_cosine_and_sine(placement, dtype):
    X = fixed_points(12, 64, dtype)
    options = dict(n_features=400, n_inputs=64, random_state=2)
    phi = draw(Matern(1.5, 9.0), Fourier(placement), **options)
    Z, P = phi.complex(X), phi(X)
    assert Z.dtype == (np.complex64 if dtype == np.float32 else np.complex128)
    assert (Z.real == P[:, :200]).all()
    assert (Z.imag == P[:, 200:]).all()
    assert np.abs(Z @ Z.conj().T - phi.kernel(X.astype(float))).max() < 0.4
    values = phi.complex(torch.asarray(np.array(X)))
    assert_close(np.from_dlpack(torch.imag(values)), Z.imag, dtype)


def uniform_rows(n, d, seed=0):
    """Return rows in the cube [-1, 1]^d."""
    return np.random.default_rng(seed).uniform(-1, 1, (n, d))


def distance(kernel, X, method, alpha, seed):
    """Return ‖(K + αI)^(−½) (ZZᵀ − K) (K + αI)^(−½)‖."""
    K, Z = kernel(X), new_map(kernel, method, 512, seed, X)(X)
    values, V = np.linalg.eigh(K)
    white = V / np.sqrt(np.maximum(values, 0) + alpha)
    return np.abs(np.linalg.eigvalsh(white.T @ (Z @ Z.T - K) @ white)).max()


@pytest.mark.main_cases(2)
@pytest.mark.parametrize(
    ("kernel", "d"), [(Gaussian(0.1), 1), (Gaussian(0.35), 2), (Gaussian(0.8), 3), (Matern(1.5), 2)]
)
def test_leverage_frequencies_have_a_smaller_spectral_distance(kernel, d):
    X, alpha = uniform_rows(200, d), 1e-4 * 200
    methods = (bo.LeverageFourier(), bo.Fourier(bo.IID()))
    distances = [[distance(kernel, X, m, alpha, seed) for seed in range(7)] for m in methods]
    weighted, plain = map(np.median, distances)
    assert 1.5 * weighted < plain


def test_leverage_frequencies_support_constant_columns_and_one_row():
    X = np.column_stack([uniform_rows(30, 1), np.ones(30)])
    for A in (X, X[:1]):
        assert np.isfinite(new_map(Gaussian(0.5), bo.LeverageFourier(), 64, X=A)(X)).all()
    assert new_map(Gaussian(0.5) + Constant(2.0), bo.LeverageFourier(), 64, X=X).n_features <= 64


@pytest.mark.parametrize("kernel", [k for k in POWERS if k != POWERS[7]], ids=repr)
@pytest.mark.parametrize("method", SKETCH_METHODS, ids=repr)
def test_sketches_have_the_requested_number_of_features(kernel, method):
    X = np.random.default_rng(0).normal(size=(30, 40)) / 6
    assert new_map(kernel, method, 96, X=X).n_features == 96


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
def test_sparse_rows_are_not_converted_to_dense_rows(method):
    """Traced memory is below a tenth of the 800 MB of dense rows."""
    n, d = 2000, 50_000
    X = scipy.sparse.random_array((n, d), density=20 / d, format="csr", rng=0)
    phi = draw(Polynomial(2, 1.0), method, n_features=64, X=X, random_state=0)
    Z, peak = with_peak(lambda: phi(X))
    assert Z.shape == (n, 64)
    assert peak < 0.1 * 8 * n * d


@pytest.mark.parametrize(("degree", "width"), [(2, 16), (3, 64), (4, 256)])
def test_all_pairs_of_a_sketch_are_the_exact_tensor_product(degree, width):
    X, kernel = np.random.default_rng(0).normal(size=(9, 3)), Polynomial(degree, 0.0)
    less, phi, extra = (new_map(kernel, PolySketch(), D, X=X) for D in (width - 1, width, 999))
    assert_close(phi(X) @ phi(X).T, kernel(X), factor=10)
    assert phi.below_kernel
    assert not less.below_kernel
    assert extra.n_features == width


def test_positive_features_of_long_rows_are_finite():
    """e^{ω·x} overflows and e^{−|x|²} underflows, but their product is finite."""
    x = np.full((1, 1), 40.0)
    phi = PositiveMap(Gaussian(), np.array([[40.0]]), np.ones(1), 1.0, "plain")
    assert phi(x)[0, 0] == phi(x.astype(np.float32))[0, 0] == 1.0


def test_published_maclaurin_draws_degrees_geometrically():
    phi = new_map(DotExponential(), Maclaurin("geometric"), 20_000, d=2)
    counts = phi.counts[:6] / 20_000  # of degree 0, 1, …
    assert (np.abs(counts - 0.5 ** np.arange(1, 7)) < 5 * np.sqrt(0.25 / 20_000)).all()


@pytest.mark.main_cases(1)
@pytest.mark.parametrize("pair", DEEP, ids=repr)
def test_deep_features_converge(pair):
    """Sixteen times the width has a quarter of the error, with less bias."""
    X, K, errors = rows(40), pair[0](rows(40)), []
    for width in (128, 2048):
        Z = [new_map(*pair, width, seed)(X) for seed in range(8)]
        errors.append(np.mean([np.linalg.norm(z @ z.T - K) for z in Z]))
    assert errors[1] < 0.35 * errors[0]


@pytest.mark.parametrize("d", [1, 2, 5])
def test_polynomial_features_are_exact(d):
    X = np.random.default_rng(d).normal(size=(12, d))
    G, norms = X @ X.T, (X * X).sum(axis=1)
    exact = (np.full_like(G, 0.5), 0.5 * G, 0.5 * np.outer(norms, norms) + G * G)
    for order in range(3):
        phi = draw(ArcCosine(order), ReLU(order, IID(), True), n_features=20, X=X, random_state=0)
        P = phi(X)[:, : networks.polynomial_width(order, d)]
        assert_close(P @ P.T, exact[order])


def twin_of_relu(phi, x):
    d, m = phi.directions.shape
    c = (1, d, d * (d + 2))[phi.order]
    t = phi.directions.T @ x
    if isinstance(phi.kernel, Angular):
        return list(np.sign(t) / m**0.5)
    if phi.split:
        power = (np.sign(t), np.abs(t), t * np.abs(t))[phi.order]
        return list(np.sqrt(c / (2 * m)) * power)
    return list(np.sqrt(2 * c / m) * np.where(t > 0, t**phi.order, 0))


def signed_transform(v, signs):
    padded = np.zeros(len(signs))
    padded[: len(v)] = v
    return hadamard(len(signs)) @ (signs * padded)


def twin_of_network(phi, x):
    """Return the features of a row, by the sums of the module; A and T are pairs (block, vector)."""
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
        values = sigma(h)
        if phi.steps:
            mixed = signed_transform(full(h), phi.signs[h])[phi.picks[h]]
            T.append((h + 1, np.sign(phi.steps[h].T @ values) * mixed / np.sqrt(2 * len(mixed))))
        A.append((h + 1, np.array([abs(w @ values) for w in W.T]) * np.sqrt(p / (2 * m))))
    return np.linalg.norm(x) * (full if phi.steps else sigma)(len(A))


@pytest.mark.parametrize("kind", [NeuralTangent, NNGP])
def test_directions_of_layers_are_orthonormal_in_blocks(kind):
    phi = draw(kind(2), NeuralTangentFeatures(), n_features=43, n_inputs=4, random_state=0)
    width = 4
    for W in (*phi.ramps, *phi.steps):
        assert_close(np.linalg.norm(W, axis=0), np.ones(W.shape[1]))
    for W in phi.ramps:
        assert W.shape[0] == width
        for start in range(0, W.shape[1], width):
            block = W[:, start : start + width]
            assert_close(block.T @ block, np.eye(block.shape[1]))
        width += W.shape[1]


@pytest.mark.parametrize(("order", "exact"), [(0, 1), (1, 5), (2, 15)])
def test_exact_parts_are_separated_if_at_most_half_of_the_features(order, exact):
    for width, split in ((2 * exact, True), (2 * exact - 1, False)):
        phi = draw(ArcCosine(order), ReLU(order), n_features=width, n_inputs=5, random_state=0)
        assert (phi.n_features, phi.split) == (width, split)


@pytest.mark.parametrize("pair", [*NETWORKS, *DEEP], ids=repr)
def test_features_equal_those_of_the_slow_twin(pair):
    """Also φ(c x) = c^p φ(x); as for the kernel, a row of zeros is orthogonal to all."""
    phi, X, kernel = new_map(*pair), rows(9), pair[0]
    twin = {ReLUMap: twin_of_relu, NeuralMap: twin_of_network}[type(phi)]
    slow = np.array([twin(phi, x) for x in X])
    assert_close(phi(X)[:, -slow.shape[1] :], slow)
    assert_close(phi(7.0 * X), 7.0**kernel.degree * phi(X))
    X[3] = 0
    Z = phi(X)
    assert np.isfinite(Z).all()
    exact = (ArcCosine(0), ReLU(0, IID(), split=False)) != pair
    assert_close((Z @ Z.T)[3], kernel(X)[3] if exact else Z @ Z[3])
    assert_close(Z[3] @ Z[3], kernel(X)[3, 3])
