"""BLAS and LAPACK: each routine compared with NumPy's; their threads, and parallel tasks."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier, Event

import joblib
import numpy as np
import pytest
from internals import with_threads
from scipy.linalg import LinAlgError, block_diag
from threadpoolctl import threadpool_info, threadpool_limits

import bochner as bo
from bochner._core import blas, lapack, threads
from bochner._core.lapack import SMALL
from bochner._core.threads import single_thread
from bochner.kernels import Custom

# --- routines in place ---

N = 20
SIZES = [N, SMALL + 40]  # below SMALL Python's lock is kept; above it is released


@pytest.fixture(params=[np.float32, np.float64])
def dtype(request):
    return request.param


@pytest.fixture(params=["whole", "part"])
def placement(request, dtype):
    """Return a function that copies a matrix, alone or into a larger one that must not change."""
    placements = []

    def place(A):
        n, m = A.shape
        if request.param == "whole":
            return np.array(A, dtype, order="F")
        room = np.full((n + 5, m + 4), 7, dtype, order="F")
        room[3 : n + 3, 2 : m + 2] = A
        placements.append((room, n, m))
        return room[3 : n + 3, 2 : m + 2]

    yield place
    for room, n, m in placements:
        mask = np.ones(room.shape, bool)
        mask[3 : n + 3, 2 : m + 2] = False
        assert (room[mask] == 7).all()


def matrices(n, dtype):
    rng = np.random.default_rng(n)
    R = rng.standard_normal((n, n)) / np.sqrt(n)
    return (R @ R.T + np.eye(n)).astype(dtype), rng.standard_normal((n, 6)).astype(dtype)


def close(actual, expected, dtype):
    # Condition numbers are below 10, and sums of n terms have at most n rounding errors.
    tolerance = 20 * len(expected) * np.finfo(dtype).eps
    scale = np.abs(expected).max()
    return np.abs(np.asarray(actual, np.float64) - expected).max() <= tolerance * scale


@pytest.mark.parametrize("n", SIZES)
def test_factors_inverses_and_solutions_equal_those_of_numpy(n, dtype, placement):
    A, B = matrices(n, dtype)
    exact = A.astype(np.float64)
    U = placement(np.triu(A) + 9 * np.tri(n, k=-1))
    lapack.factor(U)
    R = np.triu(U)
    assert close(R.T.astype(np.float64) @ R, exact, dtype)
    assert (np.tril(U, -1) == 9 * np.tri(n, k=-1)).all()  # the lower half is unchanged

    X = placement(B)
    lapack.solve_by_triangle(U, X)
    assert close(X, np.linalg.solve(R.T.astype(np.float64), B), dtype)
    for transposed in (False, True):
        x = B[:, 0].copy()
        lapack.solve_by_triangle(U, x, transposed)
        side = (R.T if transposed else R).astype(np.float64)
        assert close(x, np.linalg.solve(side, B[:, 0]), dtype)

    with pytest.raises(ValueError, match="vectors for BLAS must be contiguous"):
        lapack.solve_by_triangle(U, np.repeat(x, 2)[::2])

    lapack.invert_triangle(U)
    assert close(np.triu(U), np.linalg.inv(R.astype(np.float64)), dtype)
    lapack.outer_of_rows(U)
    assert close(np.triu(U), np.triu(np.linalg.inv(exact)), dtype)


@pytest.mark.parametrize("n", SIZES)
def test_products_equal_those_of_numpy(n, dtype, placement):
    A, B = matrices(n, dtype)
    exact, C = A.astype(np.float64), B.astype(np.float64)
    for sides in ((False, False), (True, False), (False, True), (True, True)):
        left, right = (placement(M.T if s else M) for M, s in zip((A, B), sides, strict=True))
        S = placement(np.ones((n, 6)))
        lapack.add_product(S, left, right, -2.0, 3.0, transposed=sides)
        assert close(S, 3 - 2 * exact @ C, dtype)
    for transposed, rows in ((False, C @ C.T), (True, C.T @ C)):
        S = placement(np.ones(rows.shape))
        lapack.add_square(S, placement(B), 2.0, transposed=transposed)
        assert close(np.triu(S), np.triu(1 + 2 * rows), dtype)
    S = placement(np.ones(A.shape))
    lapack.add_symmetric_product(S, placement(B), 2 * B)
    assert close(np.triu(S), np.triu(1 + 4 * C @ C.T), dtype)
    X = placement(B)
    lapack.multiply_by_triangle(placement(A), X)
    assert close(X, np.tril(exact) @ C, dtype)


@pytest.mark.parametrize("n", SIZES)
def test_products_with_symmetric_matrices_read_the_upper_half(n, dtype, placement):
    A, B = matrices(n, dtype)
    exact, C = A.astype(np.float64), B.astype(np.float64)
    half = lambda: placement(np.triu(A) + 9 * np.tri(n, k=-1))
    assert close(lapack.upper_product(half(), B[:, 0].copy()), exact @ C[:, 0], dtype)
    assert close(lapack.upper_product(half(), placement(B)), exact @ C, dtype)


def test_factors_of_indefinite_matrices_raise(dtype):
    A = np.asfortranarray(block_diag(np.eye(3), -1.0), dtype)
    with pytest.raises(LinAlgError, match="not positive"):
        lapack.factor(A)
    with pytest.raises(LinAlgError, match="has no inverse"):
        lapack.invert_triangle(np.zeros((3, 3), dtype, order="F"))


def test_shapes_that_do_not_fit_raise(dtype):
    A, B, x = (np.ones(shape, dtype, order="F") for shape in ((3, 3), (4, 2), 4))
    for call in (
        lambda: lapack.factor(B),
        lambda: lapack.invert_triangle(B),
        lambda: lapack.outer_of_rows(B),
        lambda: lapack.solve_by_triangle(A, x, False),
        lambda: lapack.solve_by_triangle(A, B),
        lambda: lapack.multiply_by_triangle(A, B),
        lambda: lapack.add_product(A, B, B),
        lambda: lapack.add_product(A, B, B, transposed=(True, False)),
        lambda: lapack.add_square(A, B),
        lambda: lapack.add_symmetric_product(A, B, B),
        lambda: lapack.upper_product(A, x),
        lambda: lapack.upper_product(A, B),
    ):
        with pytest.raises(ValueError, match="shapes that fit together; got"):
            call()


# --- threads of BLAS ---


def blas_threads():
    return {info["num_threads"] for info in threadpool_info() if info["user_api"] == "blas"}


@pytest.fixture
def two_threads():
    with threadpool_limits(2, "blas"):
        if blas_threads() != {2}:
            pytest.skip("this BLAS has one thread")
        yield


def test_one_thread_restores_the_number_of_blas_threads(two_threads):
    with single_thread():
        with single_thread():
            assert blas_threads() == {1}
        assert blas_threads() == {1}
    with pytest.raises(ZeroDivisionError), single_thread():
        _ = 1 / 0
    assert blas_threads() == {2}


def test_overlapping_contexts_of_two_python_threads_restore_the_number(two_threads):
    entered, may_leave = Event(), Event()

    def first():
        with single_thread():
            assert blas_threads() == {1}  # threadpoolctl 3.8 obeys one thread of Python
            entered.set()
            assert may_leave.wait(60)
            assert blas_threads() == {1}  # the second has not left

    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(first)
        assert entered.wait(60)
        with single_thread():
            may_leave.set()
            future.result()  # the first to enter leaves first
            assert blas_threads() == {1}
        assert blas_threads() == {2}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 5, 128, 129, 300])
def test_triangles_are_inverted_in_place(n, dtype):
    rng = np.random.default_rng(n)
    A = np.asfortranarray(rng.standard_normal((n, n)) / n + 2 * np.eye(n), dtype)
    U = A.copy(order="F")
    lapack.invert_triangle(U)
    assert np.abs(np.triu(U) @ np.triu(A) - np.eye(n)).max() < 50 * np.finfo(dtype).eps
    assert (np.tril(U, -1) == np.tril(A, -1)).all()  # the lower half is unchanged


@pytest.mark.parametrize("name", ["cho_factor", "cholesky", "eigh", "eigvalsh", "qr", "svd"])
def test_decompositions_have_the_same_bits_for_any_number_of_threads(name):
    Z, results = np.random.default_rng(0).standard_normal((700, 500)), []
    A = Z if name in ("svd", "qr") else Z.T @ Z  # Products have other bits on two threads
    for count in (1, 2):
        with threadpool_limits(count, "blas"):
            result = getattr(blas, name)(A)
            results.append(result if isinstance(result, tuple) else (result,))
    assert all(np.array_equal(first, second) for first, second in zip(*results, strict=True))


@pytest.fixture
def threads_of_fits(monkeypatch):
    """Return a kernel that records the numbers of BLAS threads and own threads, and the records."""
    counts = []

    def kernel(X, Y):
        counts.append(((*blas_threads(),), threads.get_num_threads()))
        return np.exp(-((X[:, None] - Y) ** 2).sum(axis=2))

    return Custom(kernel), counts


@pytest.mark.parametrize(("n_jobs", "threads_used"), [(None, 3), (2, 2), (-1, 5), (-2, 4), (-9, 1)])
def test_a_fit_uses_n_jobs_threads_and_one_of_blas(
    n_jobs, threads_used, threads_of_fits, two_threads, many_threads, monkeypatch
):
    monkeypatch.setattr(threads, "_processors", lambda: 5)
    kernel, counts = threads_of_fits
    X = np.random.default_rng(0).standard_normal((40, 2))
    model = bo.KernelRidge(kernel, alpha=0.1, n_jobs=n_jobs).fit(X, X[:, 0])
    fitted = len(counts)
    model.predict(X)
    assert len(counts) > fitted > 0
    assert {*counts} == {((1,), threads_used)}
    assert (blas_threads(), threads.get_num_threads()) == ({2}, 3)


def test_without_n_jobs_the_context_of_joblib_sets_the_number_of_threads(threads_of_fits):
    kernel, counts = threads_of_fits
    X = np.random.default_rng(0).standard_normal((40, 2))
    with joblib.parallel_config(n_jobs=7):
        bo.KernelRidge(kernel, alpha=0.1).fit(X, X[:, 0])
    assert {n_threads for _, n_threads in counts} == {7}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_large_products_have_the_same_bits_for_any_number_of_threads(dtype, monkeypatch):
    """The error bound is k ε |A||B| (Higham 2002, section 3.5) with rounded factors."""
    for name, value in {"MIN_WORK": 1000, "MIN_WIDTH": 20, "PART": 32}.items():
        monkeypatch.setattr(blas, name, value)
    rng = np.random.default_rng(0)
    A, B = rng.standard_normal((130, 70)), rng.standard_normal((70, 97))
    C, wide = (np.ascontiguousarray(M, dtype) for M in (B, B.T))
    L = np.tril(rng.standard_normal((97, 97)))

    def gram(Z):
        G = np.zeros((70, 70), dtype, order="F")
        blas.add_gram(G, Z)
        return G

    for make, exact in (
        (lambda: blas.product(A.astype(dtype), C), A @ B),
        (lambda: blas.product(wide.T[:9].copy(), wide), B[:9] @ B.T),
        (lambda: blas.triangular_product(C.copy(), L), B @ L.T),
        (lambda: gram(wide), np.triu(B @ B.T)),
    ):
        first, three = with_threads(make, 1, 3)
        assert (first == three).all()
        assert np.abs(first - exact).max() < 100 * np.finfo(dtype).eps * 100


# --- tasks side by side ---


@pytest.fixture
def many_threads():
    threads.set_num_threads(3)
    yield
    threads.set_num_threads(None)


def test_results_of_tasks_are_in_their_order(many_threads):
    meeting = Barrier(3)  # blocks until three tasks run at the same time

    def task(number):
        meeting.wait(60)
        return number, threads.get_num_threads(), blas_threads()

    results = threads.run_parallel([partial(task, number) for number in range(6)])
    assert results == [(number, 1, {1}) for number in range(6)]
    assert threads.get_num_threads() == 3


def test_the_first_error_is_raised_and_later_tasks_do_not_start(many_threads, two_threads):
    numbers = []

    def task(number):
        numbers.append(number)
        if number == 1:
            raise ZeroDivisionError("the second")
        Event().wait(0.05)

    with pytest.raises(ZeroDivisionError, match="the second"):
        threads.run_parallel([partial(task, number) for number in range(200)], limit=2)
    assert len(numbers) < 200
    assert blas_threads() == {2}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_factors_in_parts_have_the_same_bits_for_any_number_of_threads(dtype):
    """The error bound is |A − UᵀU| ≤ (n + 1) ε |Uᵀ||U| (Higham 2002, theorem 10.3)."""
    n = 2 * blas.SHARED + 100  # nine parts; the last is small
    Z = np.random.default_rng(0).standard_normal((n, 50)).astype(dtype)
    A = Z @ Z.T / 50 + np.eye(n, dtype=dtype)

    def factor_copy():
        U = np.array(np.triu(A) + 5 * np.tri(n, k=-1, dtype=dtype), order="F")
        blas.factor(U)
        return U

    first, three = with_threads(factor_copy, 1, 3)
    assert (first == three).all()
    R = np.triu(first)
    assert (first - R == 5 * np.tri(n, k=-1)).all()  # the lower half is unchanged
    errors = np.abs(R.T.astype(np.float64) @ R - A).max()
    assert errors <= (n + 1) * np.finfo(dtype).eps * np.diag(A).max()


def test_a_large_matrix_that_is_not_positive_has_no_factor():
    A = np.eye(blas.SHARED + 600, order="F")
    A[-1, -1] = -1
    with pytest.raises(np.linalg.LinAlgError, match="not positive"):
        blas.factor(A)


@pytest.mark.slow
def test_a_default_fit_is_the_same_for_any_number_of_threads():
    rng = np.random.default_rng(1)
    X = rng.standard_normal((700, 3))
    y = np.sin(2 * X[:, 0]) + 0.3 * X[:, 1] ** 2 + 0.1 * rng.standard_normal(700)
    first, *models = with_threads(lambda: bo.KernelRidge(random_state=0).fit(X, y), 1, 2, 4)
    for model in models:
        for name in ("kernel_", "alpha_"):
            assert getattr(model, name) == getattr(first, name)
        assert str(model.choice_) == str(first.choice_)
        assert (model.predict(X) == first.predict(X)).all()
