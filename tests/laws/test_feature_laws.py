"""Laws that every feature map of the gallery obeys."""

import array_api_strict
import numpy as np
import pytest
import scipy.sparse
from gallery import (
    FOURIER,
    KINDS,
    RANDOM_MAPS,
    rows,
)
from inside import HAVE_NATIVE
from layouts import in_library
from tolerance import assert_close, of

from bochner.features import (
    IID,
    Fastfood,
    Fourier,
    Grid,
    LeverageFourier,
    Orthogonal,
    Projected,
    Structured,
    draw,
)
from bochner.features.map import reach_of
from bochner.kernels import Columns, Gaussian, Linear, Mahalanobis, Matern

D = 24
"""Features of each map: enough for the exact parts and an even number for each of the others."""


def named(pair):
    kernel, method = pair
    return f"{method!r}-{kernel!r}"


def drawn(pair, seed=0, n_features=D, X=None):
    kernel, method = pair
    X = rows(40) if X is None else X
    return draw(kernel, method, n_features=n_features, X=X, random_state=seed)


# ---- unbiased


@pytest.mark.parametrize(
    "pair",
    [
        p
        for p in RANDOM_MAPS
        if p[1].form == "pair" and not any(word in repr(p[0]) for word in ("Linear", "Windows"))
    ],
    ids=named,
)
def test_pairs_have_the_norm_of_the_kernel(pair):
    X = rows(30)
    Z = drawn(pair)(X)
    assert_close((Z * Z).sum(axis=1), pair[0].diag(X))


# ---- Nyström: below the kernel, exact on landmarks


def test_nystrom_holds_fewer_landmarks_where_they_explain_all():
    X = np.repeat(rows(5), 10, axis=0)
    assert draw(Gaussian(), "nystrom", n_features=30, X=X, random_state=0).n_features == 4
    assert draw(Linear(), "nystrom", n_features=30, X=rows(50), random_state=0).n_features == 3


def test_nystrom_of_rows_that_the_kernel_maps_to_zero():
    phi = draw(Linear(), "nystrom", n_features=4, X=np.zeros((9, 3)), random_state=0)
    Z = phi(rows(5))
    assert Z.shape == (5, phi.n_features)
    assert np.isfinite(Z).all()


# ---- one map for all: blocks, libraries, precisions, seeds


def in_blocks(phi, X, size):
    return np.concatenate([phi(X[i : i + size]) for i in range(0, len(X), size)])


@pytest.mark.skipif(not HAVE_NATIVE, reason="BLAS promises no order of its sums")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("form", ["pair", "phase"])
@pytest.mark.parametrize("d", [1, 3, 40])
def test_block_size_does_not_change_a_bit_of_compiled_features(form, dtype, d):
    X = np.random.default_rng(d).normal(size=(50, d)).astype(dtype)
    phi = draw(Matern(1.5), Fourier(IID(), form), n_features=70, n_inputs=d, random_state=0)
    for size in (1, 7, 32):
        assert (in_blocks(phi, X, size) == phi(X)).all()


def test_a_generator_is_a_seed_that_moves_on():
    rng, X = np.random.default_rng(0), rows(5)
    first, second = (draw(Gaussian(), "iid", n_inputs=3, random_state=rng)(X) for _ in range(2))
    again = draw(Gaussian(), "iid", n_inputs=3, random_state=np.random.default_rng(0))(X)
    assert (first == again).all()
    assert not np.allclose(first, second)


TURNING = [p for p in KINDS if p[1] in FOURIER]
"""Maps that multiply rows by frequencies."""

PROJECTED = [
    (Gaussian(2.0), Projected(Fourier(), 2, how="jl")),
    (Gaussian((1.0, 2.0, 3.0)), Projected(Fourier(), 2, how="jl")),
    (Mahalanobis(Gaussian(), np.diag([1.0, 2.0, 3.0])), Fourier()),
    (Gaussian(), Fourier(Grid())),
    (Gaussian(), LeverageFourier()),
    (Gaussian(), Fourier(form="complex")),
]


@pytest.mark.parametrize("pair", TURNING + PROJECTED, ids=named)
def test_float32_rows_far_away_have_the_features_of_float64(pair):
    """Of the same rounded rows; all that is lost is the rounding of the features."""
    far = (4 * rows(40) + 1e6).astype(np.float32)
    some = np.where(np.arange(40)[:, None] % 3, rows(40), far).astype(np.float32)
    phi = drawn(pair)
    for X in (far, some):
        exact, Z = phi(X.astype(np.float64)), phi(X)
        assert Z.dtype in (np.float32, np.complex64)
        error = np.abs(Z - exact).max() / max(1.0, np.abs(exact).max())
        assert error <= 16 * of(np.float32)  # a tenth and more, where angles are in float32
        assert (phi(X[11:20]) == Z[11:20]).all() or not HAVE_NATIVE
        if np.isrealobj(Z):
            assert_close(in_library(phi, X, array_api_strict), Z, np.float32, factor=16)


@pytest.mark.parametrize("placement", [Orthogonal(), Structured(), Fastfood()], ids=repr)
def test_sparse_and_wide_float32_rows_far_away(placement):
    far = (np.random.default_rng(0).normal(size=(40, 64)) + 1e5).astype(np.float32)
    far[:, 5:] = 0
    for form in ("pair", "phase"):
        method = Fourier(placement, form)
        phi = draw(Gaussian(3.0), method, n_features=256, n_inputs=64, random_state=0)
        assert phi.reach == pytest.approx(reach_of(phi.frequencies), rel=0.2)
        exact = phi(far.astype(np.float64))
        for X in (far, scipy.sparse.csr_array(far)):
            assert phi(X).dtype == np.float32
            assert_close(phi(X), exact, np.float32)


@pytest.mark.parametrize("d", [1, 3, 10, 100, 784])
@pytest.mark.parametrize("form", ["pair", "phase"])
def test_float32_features_err_by_two_in_a_million(d, form):
    """Error at most 2e-6 √(2/D) (1 + ‖x‖) against float64 angles, for lengthscale one."""
    rng = np.random.default_rng(d)
    X = (rng.normal(size=(300, d)) * rng.uniform(0, 5, (300, 1))).astype(np.float32)
    phi = draw(Gaussian(), Fourier(IID(), form), n_features=256, n_inputs=d, random_state=0)
    angle = X.astype(np.float64) @ phi.frequencies
    if form == "pair":
        exact = np.concatenate([np.cos(angle), np.sin(angle)], axis=1)
    else:
        exact = np.cos(angle + phi.phases)
    allowed = 2e-6 * np.sqrt(2 / 256) * (1 + np.linalg.norm(X, axis=1, keepdims=True))
    allowed *= 1 if HAVE_NATIVE else 1.5  # BLAS does not turn back whole turns on its way
    assert (np.abs(phi(X) - np.sqrt(2 / 256) * exact) <= allowed).all()


def test_columns_outside_are_not_seen():
    X = rows(10)
    other = X.copy()
    other[:, 1] = 9
    phi = drawn((Columns(Gaussian(), columns=(0, 2)), Fourier(IID())))
    assert (phi(X) == phi(other)).all()
    assert not np.allclose(drawn((Gaussian(), Fourier(IID())))(X), phi(X))
