"""Products with the kernel matrix of rows with one another, and solutions, against that matrix."""

import numpy as np
import pytest
from tolerance import assert_close

from bochner._core import native
from bochner._core.blas import cho_factor, solve_factored, symmetric_product
from bochner._core.native import radial_product, radial_product_twin
from bochner._core.threads import set_num_threads

LEVELS = ["twin"]
if native.HAVE_NATIVE:
    from bochner import _native

    LEVELS += _native.levels()


@pytest.fixture(params=LEVELS)
def product(request, monkeypatch):
    """The loop of every instruction set that this processor has, and its twin."""
    if request.param == "twin":
        yield radial_product_twin
        return
    before = _native.get_level()
    _native.set_level(request.param)
    yield radial_product
    _native.set_level(before)


def rows(n, d, t, dtype):
    rng = np.random.default_rng(n + d + t)
    return rng.normal(size=(n, d)).astype(dtype), rng.normal(size=(n, t)).astype(dtype)


# rows alone, either side of a strip of 256, several strips; more vectors than share values
@pytest.mark.parametrize(
    ("n", "d", "t"), [(1, 1, 1), (7, 3, 2), (256, 2, 1), (257, 17, 3), (1100, 4, 17)]
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("profile", native.PROFILES)
def test_products_are_those_with_the_matrix(profile, dtype, n, d, t, product):
    X, V = rows(n, d, t, dtype)
    K = np.empty((n, n))
    native.radial_twin(X.astype(float), X.astype(float), profile, 1.5, K)
    found = product(X, V, profile, 1.5)
    assert found.dtype == np.float64
    scale = (K @ np.abs(V)).max()
    assert_close(found / scale, K @ V / scale, np.dtype(dtype).name)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_planted_fault_a_value_that_serves_once_is_seen(dtype, product):
    X, V = rows(300, 2, 1, dtype)
    K = native.radial(X.astype(float), X.astype(float), "gaussian")
    K[3, 280] = 0.0
    scale = (K @ np.abs(V)).max()
    assert np.abs(product(X, V, "gaussian", 1.0) - K @ V).max() > 1e-5 * scale


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_bits_do_not_depend_on_the_number_of_threads(dtype):
    X, V = rows(9000, 3, 2, dtype)
    found = []
    try:
        for threads in (1, 2, 5, 1 << 40):  # the last: as many as there is work for
            set_num_threads(threads)
            found.append(radial_product(X, V, "gaussian"))
    finally:
        set_num_threads(None)
    assert all((found[0] == other).all() for other in found[1:])


@pytest.mark.parametrize("profile", ["gaussian", "matern52"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_equal_rows_are_ones_and_far_rows_nothing(profile, dtype, product):
    X = np.repeat(np.array([[0.0], [1e10]]), 300, axis=0).astype(dtype)
    found = product(X, np.ones((600, 1), dtype), profile, 1.0)
    assert_close(found / 300, np.ones((600, 1)), np.dtype(dtype).name)


def test_a_row_that_is_not_a_number_is_not_hidden(product):
    X, V = rows(300, 2, 1, np.float32)
    X[7] = np.nan
    assert np.isnan(product(X, V, "gaussian", 1.0)).all()


# none, few columns, the most that are few, and more
@pytest.mark.parametrize("t", [0, 1, 2, 4, 5, 9])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_few_columns_are_multiplied_and_solved_for_as_many_are(dtype, t):
    X, V = rows(300, 2, t, dtype)
    K = native.radial(X.astype(float), X.astype(float), "exponential") + 0.1 * np.eye(300)
    whole = np.ascontiguousarray(K.astype(dtype))
    part = np.zeros((400, 400), dtype)  # a matrix that is a part of another one
    part[:300, :300] = whole
    scale = np.abs(K).sum(axis=1).max() * max(np.abs(V).max(initial=0), 1)
    for matrix in (whole, part[:300, :300]):
        found = symmetric_product(matrix, V)
        assert found.flags.c_contiguous
        assert_close(found / scale, K @ V.astype(float) / scale, np.dtype(dtype).name)
    U = cho_factor(whole, False)[0]
    U[np.tril_indices(300, -1)] = np.nan  # nothing there is read
    found = solve_factored(U, V)
    assert found.dtype == dtype
    left = K @ found.astype(float) - V
    assert np.abs(left).max(initial=0) <= 300 * np.finfo(dtype).eps * scale / 0.1
