"""The Walsh-Hadamard transform and its chains, compared with Sylvester's matrices and twins."""

import array_api_strict
import numpy as np
import pytest
import torch
from gallery import fixed_points as rows
from internals import with_threads
from scipy.linalg import hadamard as sylvester
from tolerance import of

from bochner._core import native
from bochner._core.native import Chains, chain_phases, walsh, waves

DTYPES = [np.float32, np.float64]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("p", [1, 2, 4, 8, 16, 32, 64, 128, 256, 1024])
def test_the_transform_equals_a_product_with_the_matrix(p, dtype, level):
    X = rows(5, p, dtype)
    expected = X.astype(np.float64) @ sylvester(p)
    bound = (1 + p.bit_length()) * np.finfo(dtype).eps * np.abs(X).sum(axis=1, keepdims=True)
    Z = native.hadamard(X)
    assert Z.dtype == dtype
    assert (np.abs(Z - expected) <= bound).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("p", [2**k for k in range(15)])
def test_each_instruction_set_gives_the_bits_of_the_twin(p, dtype, level):
    X = rows(3, p, dtype)
    assert native.hadamard(X).tobytes() == walsh(X).tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("p", [4, 64, 2048])
def test_the_transform_works_in_place_and_into_a_wider_array(p, dtype, level):
    X = rows(7, p, dtype)
    expected, local, wide = native.hadamard(X), np.array(X), np.full((7, p + 5), 9, dtype)
    assert native.hadamard(local, out=local) is local
    assert (local == expected).all()
    native.hadamard(X, out=wide[:, 2 : 2 + p])
    assert (wide[:, 2 : 2 + p] == expected).all()
    assert (wide[:, [0, 1, *range(p + 2, p + 5)]] == 9).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_bits_do_not_depend_on_other_rows_or_threads(dtype, level):
    X = rows(1500, 1024, dtype)
    parallel, serial = with_threads(lambda: native.hadamard(X), 3, 1)
    assert (serial == parallel).all()
    assert (native.hadamard(X[700:701]) == parallel[700]).all()


SHAPES = [  # d, p, blocks, m, transforms, orders: sizes below and above a vector register
    (1, 1, 2, 2, 2, False),
    (3, 4, 3, 10, 3, True),
    (5, 8, 2, 13, 3, False),
    (33, 64, 3, 180, 3, False),
    (100, 128, 2, 200, 2, True),
    (1000, 1024, 1, 1024, 1, False),
]


def chains_like(d, p, blocks, m, transforms, ordered, dtype):
    rng = np.random.default_rng(p)
    diagonals = rng.standard_normal((blocks, transforms + 1, p)) / p**0.5
    orders = [rng.permutation(p) for _ in range(blocks)] if ordered else np.empty((0, p))
    return Chains(diagonals.astype(dtype), np.array(orders, np.int32), m)


def frequencies_of(chains, d):
    """Return the frequencies in turns, (d, m), from dense matrices."""
    H, columns = sylvester(chains.diagonals.shape[2]).astype(float), []
    for b, diagonals in enumerate(chains.diagonals.astype(float)):
        A = np.diag(diagonals[0])
        for step, diagonal in enumerate(diagonals[1:]):
            A = H @ A
            A = A[chains.orders[b]] if step == 0 and len(chains.orders) else A
            A = diagonal[:, None] * A
        columns.append(A[:, :d].T)
    return np.concatenate(columns, axis=1)[:, : chains.m]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("phases", [False, True])
def test_waves_of_chains_equal_those_of_their_matrices(shape, phases, dtype, level):
    d, m = shape[0], shape[3]
    chains, X = chains_like(*shape, dtype), rows(20, d, dtype)
    b = np.random.default_rng(1).random(m).astype(dtype) if phases else None
    T = X.astype(np.float64) @ frequencies_of(chains, d) + (0 if b is None else b)
    columns = [np.cos(2 * np.pi * T), np.sin(2 * np.pi * T)]
    expected = 0.5 * np.concatenate(columns if b is None else columns[:1], axis=1)
    Z = waves(X, chains, 0.5, b)
    assert Z.dtype == dtype
    assert np.abs(Z - expected).max() <= of(dtype) * (1 + np.linalg.norm(X, axis=1).max())


@pytest.mark.parametrize("xp", [torch, array_api_strict], ids=["torch", "strict"])
@pytest.mark.parametrize("shape", SHAPES)
def test_chains_are_equal_in_each_array_library(shape, xp):
    chains, X = chains_like(*shape, np.float64), rows(6, shape[0], np.float64)
    rows_of_library, expected = xp.asarray(np.array(X)), chain_phases(X, chains)
    T = chain_phases(rows_of_library, chains)
    assert type(T) is type(rows_of_library)
    np.testing.assert_allclose(np.from_dlpack(T), expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(expected, X @ frequencies_of(chains, shape[0]), atol=1e-11)
    for phases in (None, np.random.default_rng(1).random(shape[3])):
        Z = np.from_dlpack(waves(rows_of_library, chains, 1.0, phases))
        np.testing.assert_allclose(Z, waves(X, chains, 1.0, phases), atol=1e-9)


@pytest.mark.skipif(not native.HAVE_NATIVE, reason="errors of the compiled function")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"m": 200}, "too few diagonals"),
        ({"diagonals": np.ones((2, 3, 6))}, "must fit a power of two"),
        ({"diagonals": np.ones((2, 3, 4))}, "must fit a power of two"),
        ({"orders": np.zeros((1, 8), np.int32)}, "orders and diagonals disagree"),
        ({"orders": np.full((2, 8), 8, np.int32)}, "orders are out of range"),
    ],
)
def test_chains_with_inconsistent_shapes_raise(change, message):
    chains = chains_like(*SHAPES[2], np.float64)._replace(**change)
    with pytest.raises(ValueError, match=message):
        waves(rows(4, 5, np.float64), chains, 1.0)


@pytest.mark.parametrize("d", [3, 100, 784])
def test_phases_add_one_rounding_for_any_number_of_columns(d, level):
    """Rows are near zero: with the phase added first, d sums would round a number near one."""
    rng = np.random.default_rng(d)
    X = (0.01 * rng.standard_normal((50, d))).astype(np.float32)
    T = (rng.standard_normal((d, 70)) / 6).astype(np.float32)
    b = (rng.random(70) - 0.5).astype(np.float32)
    exact = np.cos(2 * np.pi * (X.astype(float) @ T.astype(float) + b.astype(float)))
    worst = np.abs(waves(X, T, 1.0, b) - exact).max()
    assert worst <= 2 * np.pi * np.finfo(np.float32).eps * (0.5 + 0.05 * d**0.5)
