"""Conjugate gradients on the kernel matrix of rows, and products with it."""

from functools import partial

import numpy as np
import pytest
from internals import with_threads
from tolerance import assert_close

from bochner import draw
from bochner._core import native
from bochner._core.blas import cho_factor, solve_factored, symmetric_product
from bochner.kernels import (
    Cauchy,
    Exponential,
    Gaussian,
    Laplace,
    Linear,
    Matern,
    RationalQuadratic,
)
from bochner.solvers.cg import KernelOperator
from bochner.solvers.ridge.krylov import ShiftedSystems, low_rank_inverse, solve_kernel_systems

RNG = np.random.default_rng(0)
X = RNG.uniform(-2, 2, (301, 3))
KERNEL = Matern(1.5, 1.0)
K = KERNEL(X)
B = np.column_stack([np.sin(2 * X[:, 0]), X[:, 1] * X[:, 2], np.zeros(301)])
SPREAD = B.std(axis=0)


@pytest.mark.parametrize("tile", [1, 64, 300, 301, 1000])
def test_products_by_tiles_equal_products_with_the_matrix(tile):
    rows, exact = (X, K) if tile > 1 else (X[:20], K[:20, :20])
    operator = KernelOperator(KERNEL.evaluate, rows, tile)
    V = RNG.normal(size=(len(rows), 4)) * [1.0, 1e200, 1e-200, 0.0]
    for precision in ("float64", "float32"):
        result = operator.product(V, precision)
        assert result.dtype == np.float64
        scale = np.abs(exact @ V).max(axis=0) + 1e-300
        assert_close(result / scale, exact @ V / scale, precision, factor=30)


def test_float32_products_of_stationary_kernels_are_accurate_far_from_the_origin():
    V = RNG.normal(size=(301, 1))
    shifted = KernelOperator(KERNEL.evaluate, X + 1e6, 100, stationary=True)
    assert_close(shifted.product(V, "float32"), K @ V, "float32", factor=50)
    rounded = KernelOperator(KERNEL.evaluate, X + 1e6, 100).product(V, "float32")
    assert np.abs(rounded - K @ V).max() > 1e-3 * np.abs(K @ V).max()
    linear = KernelOperator(Linear().evaluate, X + 3.0, 100).product(V, "float32")
    assert_close(linear, Linear()(X + 3.0) @ V, "float32", factor=100)
    assert shifted.single
    assert KernelOperator(KERNEL.evaluate, X).single
    assert not KernelOperator(KERNEL.evaluate, X + 1e9).single
    assert not KernelOperator(Gaussian(1e-200).evaluate, X * 1e-200).single


def features(method, width, kernel=KERNEL):
    return draw(kernel, method, n_features=width, X=X, random_state=0)(X)


def solve(alphas, Z, rough=None, right=B, **options):
    values, vectors = np.linalg.eigh(Z.T @ Z)
    alphas = np.broadcast_to(np.asarray(alphas, float), (right.shape[1],))
    systems = ShiftedSystems(right, alphas, right.std(axis=0))
    precondition = partial(low_rank_inverse, Z, np.maximum(values, 0), vectors)
    multiply = lambda V, precision: K @ V if precision == "float64" else rough(V)
    return solve_kernel_systems(systems, multiply, rough is not None, precondition, 1.0, **options)


def error(solution, alphas, right=B):
    """Return each target's largest error at 2000 other rows, in units of its spread."""
    new = np.random.default_rng(1).uniform(-2, 2, (2000, 3))
    alphas = np.broadcast_to(np.asarray(alphas, float), (right.shape[1],))
    exact = [np.linalg.solve(K + a * np.eye(301), b) for a, b in zip(alphas, right.T, strict=True)]
    errors = np.abs(KERNEL(new, X) @ (solution.u - np.column_stack(exact))).max(axis=0)
    return errors / np.where(SPREAD > 0, SPREAD, 1.0)


def single(V):
    """Return the product with the kernel matrix rounded to float32."""
    return (K.astype(np.float32) @ V.astype(np.float32)).astype(np.float64)


@pytest.mark.parametrize("rough", [None, single], ids=["float64", "float32"])
@pytest.mark.parametrize("alphas", [1e-4, 0.1, (0.01, 10.0, 1.0)], ids=str)
def test_errors_of_predictions_are_within_the_bound(alphas, rough):
    solution = solve(alphas, features("nystrom", 60), rough, tol=1e-6)
    assert solution.converged
    assert (solution.bound <= 1e-6).all()
    assert (error(solution, alphas) <= solution.bound + 1e-13).all()
    assert (solution.u[:, 2] == 0).all()
    assert f"pass {solution.iterations}: within" in solution.history[-1]


@pytest.mark.parametrize("tol", [1e-2, 1e-4])
def test_the_bound_holds_if_the_iteration_ends_early(tol):
    solution = solve(1e-3, features("nystrom", 40), tol=tol)
    assert (error(solution, 1e-3) <= solution.bound).all()
    assert 1e-4 * tol < error(solution, 1e-3).max()
    cut = solve(1e-3, features("nystrom", 40), tol=1e-9, max_iter=7)
    assert not cut.converged
    assert cut.iterations == 8  # seven passes and an exact residual
    assert (error(cut, 1e-3) <= cut.bound).all()


def test_float32_products_are_not_used_if_they_are_wrong_or_too_inaccurate():
    solution = solve(1e-3, features("nystrom", 60), lambda V: 0.5 * (K @ V), tol=1e-6)
    assert solution.converged
    assert "float32" in solution.history[0]
    assert "float64" in solution.history[-2]
    small = solve(1e-6, features("nystrom", 250), single, tol=1e-3)
    assert "float32" not in "".join(small.history)
    assert small.converged


@pytest.mark.parametrize("size", [1e-200, 1.0, 1e200])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_preconditioner_is_the_inverse_of_its_matrix_up_to_rounding(size, dtype):
    """The rounding error is relative to the penalty."""
    Z = features("nystrom", 30)
    values, vectors = np.linalg.eigh(Z.T @ Z)
    r = RNG.normal(size=(301, 2)) * [1.0, 0.0]
    for alpha in (0.1, 3.0):
        exact = np.linalg.solve(Z @ Z.T + alpha * np.eye(301), r)
        result = low_rank_inverse(Z.astype(dtype), values, vectors, size * r, np.full(2, alpha))
        result, rounding = result / size, 5 * np.finfo(dtype).eps * values.max() / alpha
        assert np.abs(result - exact).max() <= rounding * np.abs(exact).max()
        assert (result[:, 1] == 0).all()


def test_an_indefinite_matrix_gives_a_finite_solution_that_has_not_converged():
    def indefinite(V, precision):
        return K @ V - 5.0 * V

    systems = ShiftedSystems(B, np.full(3, 0.01), SPREAD)
    solution = solve_kernel_systems(systems, indefinite, False, np.divide, 1.0, max_iter=200)
    assert not solution.converged
    assert np.isfinite(solution.u).all()


# ==== Products with the kernel matrix of rows, and solutions, compared with dense algebra.


def rows(n, d, t, dtype):
    rng = np.random.default_rng(n + d + t)
    return rng.normal(size=(n, d)).astype(dtype), rng.normal(size=(n, t)).astype(dtype)


KERNELS = [Gaussian(), Exponential(), Matern(1.5), Matern(2.5), RationalQuadratic(1.5)]
KERNELS += [Laplace(), Cauchy()]


def product(kernel, X, V, dtype):
    """Return K V by the compiled loop, or in pure Python by tiles."""
    loop = None if native.loops() is None else kernel.compiled
    operator = KernelOperator(kernel.evaluate, X.astype(float), loop=loop)
    return operator.product(V, np.dtype(dtype).name)


# one row, 256 rows (a strip) and one more, several strips; more vectors than one pass takes
@pytest.mark.parametrize(
    ("n", "d", "t"), [(1, 1, 1), (7, 3, 2), (256, 2, 1), (257, 17, 3), (1100, 4, 17)]
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: str(k.compiled[0]))
def test_compiled_products_equal_products_with_the_matrix(kernel, dtype, n, d, t, level):
    X, V = rows(n, d, t, dtype)
    K = kernel(X.astype(float))
    result = product(kernel, X, V, dtype)
    assert result.dtype == np.float64
    scale = (K @ np.abs(V)).max()
    assert_close(result / scale, K @ V / scale, np.dtype(dtype).name)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_bits_do_not_depend_on_the_number_of_threads(dtype):
    X, V = rows(9000, 3, 2, dtype)
    counts = (1, 2, 5, 1 << 40)  # the last is limited by the amount of work
    first, *products = with_threads(lambda: product(Gaussian(), X, V, dtype), *counts)
    assert all((first == other).all() for other in products)


# no column, few columns, the limit of few columns, and more
@pytest.mark.parametrize("t", [0, 1, 2, 4, 5, 9])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_products_and_solutions_of_few_columns_equal_those_of_many(dtype, t):
    X, V = rows(300, 2, t, dtype)
    K = Exponential()(X.astype(float)) + 0.1 * np.eye(300)
    matrix_of_all = np.ascontiguousarray(K.astype(dtype))
    part = np.zeros((400, 400), dtype)  # contains the matrix as a block
    part[:300, :300] = matrix_of_all
    scale = np.abs(K).sum(axis=1).max() * max(np.abs(V).max(initial=0), 1)
    for matrix in (matrix_of_all, part[:300, :300]):
        result = symmetric_product(matrix, V)
        assert result.flags.c_contiguous
        assert_close(result / scale, K @ V.astype(float) / scale, np.dtype(dtype).name)
    U = cho_factor(matrix_of_all, False)[0]
    U[np.tril_indices(300, -1)] = np.nan  # this half is not read
    result = solve_factored(U, V)
    assert result.dtype == dtype
    residual = K @ result.astype(float) - V
    assert np.abs(residual).max(initial=0) <= 300 * np.finfo(dtype).eps * scale / 0.1
