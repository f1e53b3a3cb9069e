"""Laws of all kernels of the gallery."""

import itertools
import operator
import pickle
from dataclasses import FrozenInstanceError, fields

import array_api_strict
import naive
import numpy as np
import pytest
import scipy.sparse
import torch
from gallery import DENSE_ONLY, FUNCTIONS, KERNELS, N_COLUMNS, STATIONARY, rows
from internals import with_peak
from layouts import STRICTEST
from sklearn.base import clone
from tolerance import assert_close, bernstein_bar, of

import bochner as bo
import bochner.kernels
from bochner.kernels import Columns, Constant, Gaussian, Laplace, Linear, Mahalanobis, Matern, Sum
from bochner.kernels.spectral import unknown

every_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=repr)
every_stationary = pytest.mark.parametrize("kernel", STATIONARY, ids=repr)
SPARSE = [k for k in KERNELS if not any(word in repr(k) for word in DENSE_ONLY)]


def test_the_gallery_has_every_kernel():
    excluded = "Kernel Stationary Radial CoordinateWise DotProductKernel Homogeneous Additive"
    excluded += " PowerSeries Monomials Free"  # parts of kernels
    excluded += " OnSphere GreenFunction"  # tested in test_grids.py and test_eigenfunction_laws.py
    named = {getattr(bochner.kernels, name) for name in bochner.kernels.__all__}
    public = {value for value in named if isinstance(value, type)}
    excluded = {getattr(bochner.kernels, name) for name in excluded.split()}
    assert public - excluded == set().union(*(classes_of(k) for k in KERNELS))


def classes_of(kernel):
    """Return the classes of a kernel and of the kernels in it."""
    parts = (v for v in kernel.get_params(deep=False).values() if isinstance(v, bo.kernels.Kernel))
    return {type(kernel)}.union(*(classes_of(part) for part in parts))


# ---- values


@every_kernel
def test_matrices_equal_the_printed_formula(kernel):
    X, Y = rows(6), rows(5, seed=1)
    assert_close(kernel(X, Y), naive.kernel_matrix(kernel, X, Y), factor=4)


@every_kernel
def test_matrices_are_symmetric_positive_and_independent_of_other_rows(kernel):
    X = rows(60)
    K = kernel(X)
    assert_close(K, K.T)
    assert_close(K, kernel(X, X.copy()))
    assert_close(kernel.diag(X), np.diag(K))
    assert_close(np.concatenate([kernel(X[i : i + 1], X[:9]) for i in range(20)]), K[:20, :9])
    assert_close(kernel(X[:7], X).T, kernel(X, X[:7]))
    values = np.linalg.eigvalsh(K)
    assert values[0] > -60 * of(np.float64) * values[-1]


@every_stationary
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("mean", [0.0, 100.0])
def test_a_stationary_kernel_of_equal_rows_is_exactly_one(kernel, dtype, mean):
    X = rows(300, mean=mean, dtype=dtype)
    K = kernel(X)
    assert (np.diag(K) == 1).all()
    assert K[0, -1] == 1
    assert (np.diag(kernel(X, X.copy())) == 1).all()
    assert K.max() == 1


@every_stationary
def test_lengthscales_divide_columns(kernel):
    scales = np.array([0.25, 2.0, 8.0])
    unit = kernel.replace(lengthscale=1.0)
    X, Y = rows(20), rows(10, seed=1)
    assert_close(kernel.replace(lengthscale=scales)(X * scales, Y * scales), unit(X, Y))


ATOMS = [Gaussian(lengthscale=(0.5, 1.0, 2.0)), Laplace(2.0), Linear(), Constant(0.5)]
OPERATIONS = {"a + b": operator.add, "a * b": operator.mul, "3 * a + b": lambda a, b: 3.0 * a + b}
OPERATIONS["a * b * 0.5 + 2"] = lambda a, b: a * b * 0.5 + 2


@pytest.mark.parametrize("second", OPERATIONS)
@pytest.mark.parametrize("first", OPERATIONS)
def test_sums_and_products_of_kernels_are_those_of_matrices(first, second):
    """All expressions of two operations and three kernels, with either operation first."""
    f, g, X, Y = OPERATIONS[first], OPERATIONS[second], rows(6), rows(5, seed=1)
    for a, b, c in itertools.product(ATOMS, repeat=3):
        A, B, C = a(X, Y), b(X, Y), c(X, Y)
        assert_close(g(f(a, b), c)(X, Y), g(f(A, B), C), label=f"{(a, b, c)}")
        assert_close(g(a, f(b, c))(X, Y), g(A, f(B, C)), label=f"{(a, b, c)}")
        assert_close(g(f(a, b), c).diag(X), g(f(a.diag(X), b.diag(X)), c.diag(X)))


def test_numbers_may_be_the_left_or_right_operand():
    k = Gaussian()
    assert 2.0 * k == k * 2.0 == np.float64(2.0) * k == bo.kernels.Scaled(2.0, k)
    assert 2.0 * k == k * np.int64(2) == 2 * k
    assert k + 1.0 == Sum(k, Constant(1.0))
    assert np.float32(1.0) + k == 1 + k == Sum(Constant(1.0), k)
    assert sum([k, Linear()]) == Sum(Sum(Constant(0.0), k), Linear())


N_FREQUENCIES = 20_000
OFFSETS = [0.05, 0.3, 1.0, 3.0]


def spectral_excess(kernel, measure, d, seed):
    """Return the largest |mean cos ω·δ − k(δ)| over its bound; it exceeds one with chance 1e-6.

    cos ω·δ has mean k(δ) and variance (1 + k(2δ))/2 − k(δ)², and is at most two from its mean:
    Bernstein's inequality holds for any tails of ω.
    """
    rng = np.random.default_rng(seed)
    directions = np.concatenate([np.eye(d), rng.normal(size=(d, d)) / np.sqrt(d)])
    delta = np.concatenate([length * directions for length in OFFSETS])
    zero = np.zeros((1, d))
    k, k2 = kernel(delta, zero)[:, 0], kernel(2 * delta, zero)[:, 0]
    sd = np.sqrt(np.maximum((1 + k2) / 2 - k * k, 0))
    error = np.cos(measure.sample(rng, N_FREQUENCIES) @ delta.T).mean(axis=0) - k
    comparisons = len(delta) * len(STATIONARY) * 3
    return max(
        abs(e) / bernstein_bar(comparisons, s, 2.0, N_FREQUENCIES)
        for e, s in zip(error, sd, strict=True)
    )


@pytest.mark.statistical
@every_stationary
@pytest.mark.parametrize("d", [1, 3, 7])
def test_frequencies_of_the_spectral_measure_reproduce_the_kernel(kernel, d):
    if isinstance(kernel.lengthscale, tuple):
        kernel = kernel.replace(lengthscale=(kernel.lengthscale * d)[:d])
    assert spectral_excess(kernel, kernel.spectral(d), d, seed=d) < 1


@every_stationary
def test_spectral_samples_and_quantiles_have_the_same_distribution(kernel):
    """Shares of samples below quantiles are within the bound of Bernstein (alarm rate 1e-6)."""
    source = kernel.spectral(N_COLUMNS).law
    rng, u = np.random.default_rng(5), np.array([0.02, 0.25, 0.5, 0.9])
    if source.quantile is unknown:
        return
    if source.constant:
        assert (source.sample(rng, 9) == source.quantile(np.full(9, 0.3))).all()
        return
    share = (source.sample(rng, N_FREQUENCIES)[:, None] <= source.quantile(u)).mean(axis=0)
    bounds = [bernstein_bar(60, np.sqrt(v * (1 - v)), 1.0, N_FREQUENCIES) for v in u]
    assert (np.abs(share - u) < bounds).all()


# ---- arrays


@every_kernel
@pytest.mark.parametrize("xp", [torch, array_api_strict], ids=["torch", "strict"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_array_libraries_give_the_values_of_numpy(kernel, xp, dtype):
    X, Y = rows(12, mean=3.0, dtype=dtype), rows(5, seed=1, mean=3.0, dtype=dtype)
    with array_api_strict.ArrayAPIStrictFlags(**STRICTEST):
        A, B = xp.asarray(X), xp.asarray(Y)
        results = [kernel(A, B), kernel(A), kernel.diag(A)]
    for result, expected in zip(results, [kernel(X, Y), kernel(X), kernel.diag(X)], strict=True):
        assert type(result) is type(A)
        assert result.dtype == getattr(xp, dtype)
        assert_close(np.from_dlpack(result), expected, dtype, label=f"{kernel}")


@pytest.mark.parametrize("kernel", SPARSE, ids=repr)
@pytest.mark.parametrize(
    "make", [scipy.sparse.csr_matrix, scipy.sparse.csr_array, scipy.sparse.coo_array]
)
def test_sparse_rows_give_the_values_of_dense_rows(kernel, make):
    X, Y = rows(30), rows(12, seed=1)
    X[np.abs(X) < 0.7] = 0
    Y[np.abs(Y) < 0.7] = 0
    X[3] = Y[4] = 0
    assert_close(kernel(make(X)), kernel(X))
    assert_close(kernel(make(X), make(Y)), kernel(X, Y))
    assert_close(kernel(X, make(Y)), kernel(X, Y))
    assert_close(kernel(make(X), Y), kernel(X, Y))
    assert_close(kernel.diag(make(X)), kernel.diag(X))
    assert type(kernel(make(X))) is np.ndarray


@pytest.mark.parametrize("kernel", [Gaussian(3.0), Matern(0.5), Linear()], ids=repr)
def test_sparse_rows_are_not_converted_to_dense_rows(kernel):
    """200 rows of a million columns would take 1.6 GB."""
    X = scipy.sparse.random_array((200, 1_000_000), density=2e-5, format="csr", rng=0)
    K, peak = with_peak(lambda: kernel(X))
    assert peak < 60e6
    assert_close(np.diag(K), kernel.diag(X))


@every_kernel
@pytest.mark.parametrize("mean", [0.0, 100.0])
def test_float32_rows_give_float32_values_with_small_errors(kernel, mean):
    """Far from the origin, distances of rows that are not centred have errors of up to 0.08."""
    X, Y = rows(50, mean=mean, dtype=np.float32), rows(30, 1, mean, np.float32)
    K = kernel(X, Y)
    assert K.dtype == np.float32
    assert kernel.diag(X).dtype == np.float32
    assert_close(K, kernel(X.astype(np.float64), Y.astype(np.float64)), np.float32)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("d", [2, 30])
@pytest.mark.parametrize("spread", [1e-4, 6e-3])
def test_squared_distances_of_near_pairs_keep_their_digits(dtype, d, spread):
    """At most twelve bits are lost for clusters far smaller than the spread of the data."""
    rng = np.random.default_rng(0)
    centres = np.repeat(rng.normal(size=(8, d)), 6, axis=0)
    X = (centres + spread * rng.normal(size=(48, d))).astype(dtype)
    exact = ((X[:, None].astype(np.longdouble) - X[None]) ** 2).sum(axis=2)
    error = np.abs(bo.kernels.distances.squared_distances(X, X) - exact)
    assert (error <= 2**12 * np.finfo(dtype).eps * exact).all()


@pytest.mark.main_cases(47)
@every_kernel
@pytest.mark.parametrize("library", [np, torch], ids=["numpy", "torch"])
def test_values_are_independent_of_the_block_size(kernel, library, monkeypatch):
    X, Y = library.asarray(rows(37)), library.asarray(rows(11, seed=1))
    reference = kernel(X, Y)
    monkeypatch.setattr("bochner.kernels.distances.BLOCK_BYTES", 8 * 11 * 4)
    assert_close(kernel(X, Y), reference)


@pytest.mark.main_cases(1)
def test_temporary_memory_is_bounded():
    """Memory besides a matrix of 128 MB, without a compiled loop."""
    X = np.random.default_rng(0).normal(size=(320, 3))
    Y = np.random.default_rng(1).normal(size=(50_000, 3))
    K, peak = with_peak(lambda: Matern(40.0)(X, Y))
    assert K.nbytes == 128_000_000
    assert peak - K.nbytes < 100e6


@every_kernel
def test_values_are_independent_of_layout_and_type_of_the_rows(kernel):
    X, Y = np.round(4 * rows(10)), np.round(4 * rows(5, seed=1))
    expected = kernel(X, Y)
    assert (kernel(np.asfortranarray(X), Y[::-1][::-1]) == expected).all()
    assert (kernel(X.astype(np.int32), Y.astype(np.int8)) == expected).all()
    assert (kernel(X.tolist(), Y.astype(np.float16)) == expected).all()
    assert (kernel(X.astype(np.float32), Y) == expected).all()
    assert kernel(X[:0], Y).shape == (0, 5)
    assert kernel(X, Y[:0]).shape == (10, 0)


def test_expressions_print_as_code():
    a, b, c = parts = Gaussian(2.0), Columns(Laplace(1.5), (0,)), Linear()
    assert repr(0.3 * c + c**2 * a) == f"0.3 * {c!r} + {c!r}**2 * {a!r}"
    assert repr((a + b) * (c * (2.0 * a)) + (b + c)) == (
        f"({a!r} + {b!r}) * ({c!r} * (2.0 * {a!r})) + ({b!r} + {c!r})"
    )
    rng, trees = np.random.default_rng(0), [*parts]
    for _ in range(200):
        left, right = (trees[rng.integers(len(trees))] for _ in range(2))
        candidates = left + right, left * right, 0.5 * left, left ** int(rng.integers(1, 4))
        trees.append(candidates[rng.integers(4)])
        assert eval(repr(trees[-1]), vars(bochner.kernels)) == trees[-1]
        if len(repr(trees[-1])) > 500:
            trees.pop()


@every_kernel
def test_kernels_are_values(kernel):
    """Kernels print as code, pickle, compare by content, are immutable and have replace."""
    twin = pickle.loads(pickle.dumps(kernel))
    assert twin == kernel == eval(repr(kernel), vars(bochner.kernels) | FUNCTIONS)
    assert hash(twin) == hash(kernel)
    assert clone(kernel) is kernel
    for field in fields(kernel):
        with pytest.raises(FrozenInstanceError):
            setattr(kernel, field.name, 1.0)
    params = kernel.get_params()
    assert kernel.replace(**params) == kernel
    assert kernel.replace() is kernel
    for path, value in params.items():
        if isinstance(value, float):
            changed = kernel.replace(**{path: 0.5 * value})
            assert changed.get_params()[path] == 0.5 * value
            assert changed != kernel
    assert kernel.get_params() == params


def test_replace_sets_parts_before_their_parameters():
    k = 2.0 * Matern(smoothness=1.5) + Gaussian()
    assert k.get_params(deep=False) == {"left": k.left, "right": k.right}
    assert k.replace(left__kernel__lengthscale=0.5).left == bo.kernels.Scaled(2.0, Matern(1.5, 0.5))
    changed = k.replace(left=Laplace(), left__lengthscale=3, right__lengthscale=[1, 2])
    assert changed == Laplace(3.0) + Gaussian((1.0, 2.0))


def test_parameters_are_converted_to_floats_or_kept_if_canonical(monkeypatch):
    assert Gaussian(np.float32(0.5)).lengthscale == 0.5
    for scales in ([1, 2], np.array([1.0, 2.0]), (1, np.float64(2)), torch.tensor([1.0, 2.0])):
        kernel = Gaussian(scales)
        assert kernel.lengthscale == (1.0, 2.0)
        assert [type(v) for v in kernel.lengthscale] == [float, float]
    scale, columns, matrix = (0.5, 2.0), (1, 0), ((1.0, 0.0), (0.0, 1.0))
    assert Gaussian(scale).lengthscale == scale
    assert Columns(Gaussian(), columns).columns is columns
    metric = Mahalanobis(Gaussian(), matrix)
    assert metric.matrix is matrix
    with monkeypatch.context() as patched:  # replace does not decompose the matrix again
        patched.setattr(np.linalg, "eigh", None)
        assert metric.replace(kernel__lengthscale=2.0).matrix is matrix
    assert Columns(Gaussian(), 2) == Columns(Gaussian(), np.array([2])) == Columns(Gaussian(), (2,))
    assert Mahalanobis(Gaussian(), np.eye(2, dtype=int)) == Mahalanobis(Gaussian(), matrix)
    assert bo.kernels.RationalQuadratic(np.int64(2)).shape == 2.0
    assert bo.kernels.Exponential(np.array(3)).lengthscale == 3.0
