"""Threads of BLAS: decompositions use one, and what was set before comes back."""

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import bochner as bo

# inside: which decomposition runs on how many threads
from bochner._core import blas
from bochner._core.blas import one_thread
from bochner.kernels import Gaussian


def blas_threads():
    return {info["num_threads"] for info in threadpool_info() if info["user_api"] == "blas"}


@pytest.fixture
def two_threads():
    with threadpool_limits(2, "blas"):
        if blas_threads() != {2}:
            pytest.skip("this BLAS has one thread")
        yield


def test_one_thread_gives_back_what_was_set_before(two_threads):
    with one_thread():
        assert blas_threads() == {1}
        with one_thread():
            assert blas_threads() == {1}
        assert blas_threads() == {1}
    assert blas_threads() == {2}
    with pytest.raises(ZeroDivisionError), one_thread():
        _ = 1 / 0
    assert blas_threads() == {2}


def test_one_thread_is_asked_for_once(monkeypatch):
    libraries, asked = blas._libraries(), []

    class Libraries:
        def limit(self, **wanted):
            asked.append(wanted["limits"])
            return libraries.limit(**wanted)

    monkeypatch.setattr(blas, "_libraries", Libraries)
    with one_thread(), one_thread():
        blas.cholesky(np.eye(3))
    assert asked == [1]
    with pytest.raises(ZeroDivisionError), one_thread():
        _ = 1 / 0
    blas.cholesky(np.eye(3))
    assert asked == [1, 1, 1]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 5, 128, 129, 300])
def test_triangles_are_inverted_in_their_place(n, dtype):
    rng = np.random.default_rng(n)
    A = np.asfortranarray(rng.standard_normal((n, n)) / n + 2 * np.eye(n), dtype)
    U = A.copy(order="F")
    blas.invert_triangle(U)
    assert np.abs(np.triu(U) @ np.triu(A) - np.eye(n)).max() < 50 * np.finfo(dtype).eps
    assert (np.tril(U, -1) == np.tril(A, -1)).all()  # nothing below is touched


def test_a_triangle_with_a_zero_on_its_diagonal_has_no_inverse():
    with pytest.raises(np.linalg.LinAlgError, match="a factor without an inverse"):
        blas.invert_triangle(np.zeros((3, 3), order="F"))


def bits(name, G, Z):
    A = Z if name in ("svd", "qr") else G
    found = getattr(blas, name)(A)
    return [np.asarray(part) for part in (found if isinstance(found, tuple) else (found,))]


@pytest.mark.parametrize("name", ["cho_factor", "cholesky", "eigh", "eigvalsh", "qr", "svd"])
def test_decompositions_have_the_same_bits_on_any_number_of_threads(name):
    Z = np.random.default_rng(0).standard_normal((700, 500))
    G = Z.T @ Z
    results = []
    for threads in (1, 2):
        with threadpool_limits(threads, "blas"):
            results.append(bits(name, G, Z))
    for one, two in zip(*results, strict=True):
        assert (one == two).all()


def test_large_matrices_are_decomposed_by_all_threads(two_threads, monkeypatch):
    seen = []
    spy = blas._on_one_thread(lambda A: seen.append(blas_threads()))
    spy(np.eye(20))
    monkeypatch.setattr(blas, "LARGE", 20)
    spy(np.eye(20))
    spy(np.ones((20, 19)))
    assert seen == [{1}, {2}, {1}]


def test_fits_leave_the_number_of_threads_alone(two_threads):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((200, 2)), rng.standard_normal(200)
    for model in (
        bo.KernelRidge(Gaussian(), n_features=32, random_state=0),
        bo.KernelRidge(Gaussian(), method="exact", n_features=32, random_state=0),
        bo.SVR(Gaussian(), n_features=32, random_state=0),
    ):
        model.fit(X, y)
        assert blas_threads() == {2}
