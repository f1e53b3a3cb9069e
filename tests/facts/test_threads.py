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
        bo.KernelRidge(Gaussian(), n_features=32),
        bo.KernelRidge(Gaussian(), method="exact", n_features=32),
        bo.SVR(Gaussian(), n_features=32),
    ):
        model.fit(X, y)
        assert blas_threads() == {2}
