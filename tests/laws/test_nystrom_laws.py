"""Laws of Nyström maps, for every choice of landmarks."""

from pkgutil import resolve_name

import numpy as np
import pytest
import torch
from gallery import LANDMARKS, rows
from tolerance import assert_close, of

import bochner as bo
from bochner.errors import InvalidInput, InvalidType
from bochner.features import Nystrom, draw
from bochner.features.nystrom.nystrom import NystromMap
from bochner.kernels import (
    Angular,
    ArcCosine,
    Gaussian,
    Laplace,
    Linear,
    Matern,
    NeuralTangent,
    Polynomial,
)
from bochner.landmarks import Given, KMeans, RidgeLeverage, RPCholesky, Uniform

D = 24

ROUNDED = 1e-9
"""Jitter of 1e-12 and roundings of C = k(X, S), made larger by L⁻ᵀ (at most 1e6 of them)."""

KERNELS = [
    Gaussian(),
    Gaussian(lengthscale=(0.5, 1.0, 3.0)),
    Matern(0.5) + 0.5 * Linear(),
    Laplace(lengthscale=2.0),
    Polynomial(degree=3, offset=0.5, scale=0.2),
    Angular(),
    ArcCosine(),
    NeuralTangent(depth=2),
]

every_method = pytest.mark.parametrize("method", LANDMARKS, ids=repr)
every_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=repr)
both_precisions = pytest.mark.parametrize("dtype", ["float32", "float64"])


def drawn(kernel, method, seed=0, n_features=D, X=None):
    X = rows(60, seed=5) if X is None else X
    return draw(kernel, method, n_features=n_features, X=X, random_state=seed)


# ---- below the kernel, exact on landmarks, certified everywhere


@every_method
@every_kernel
def test_features_are_exact_on_landmarks(kernel, method):
    phi = drawn(kernel, method)
    S, other = phi.landmarks, rows(10, seed=7)
    Z = phi(S)
    assert_close(Z @ Z.T, kernel(S), factor=ROUNDED / of(np.float64))
    assert_close(phi(other) @ Z.T, kernel(other, S), factor=ROUNDED / of(np.float64))
    assert phi.residual(S).max() <= ROUNDED * max(1.0, kernel.diag(S).max())


@every_method
def test_features_are_the_projection_by_brute_force(method):
    """ZZᵀ = K_XS K_SS⁺ K_SX, by a pseudo-inverse."""
    X, kernel = rows(50, seed=8), Laplace(lengthscale=2.0)
    phi = drawn(kernel, method)
    S, Z = phi.landmarks, phi(X)
    C = kernel(X, S)
    exact = C @ np.linalg.pinv(kernel(S), rcond=1e-13, hermitian=True) @ C.T
    assert_close(Z @ Z.T, exact, factor=ROUNDED / of(np.float64))


@pytest.mark.parametrize("mode", ["accelerated", "blocked", "simple"])
@every_kernel
def test_unexplained_is_the_share_of_the_trace_that_is_left(kernel, mode):
    X = rows(60, seed=5)
    phi = drawn(kernel, Nystrom(RPCholesky(mode=mode)), X=X)
    assert abs(phi.unexplained - phi.residual(X).sum() / kernel.diag(X).sum()) < 1e-9


# ---- blocks, precision, seeds, arguments


@pytest.mark.parametrize("landmarks", [Uniform(), Given(rows(40))], ids=repr)
def test_twice_the_width_keeps_the_landmarks(landmarks):
    """And with them the features, for a kernel whose diagonal, and so the jitter, is constant."""
    X = rows(60, seed=5)[:-1]
    narrow, wide = (drawn(Gaussian(), Nystrom(landmarks), 0, m, X) for m in (D // 2, D))
    assert (wide.landmarks[: D // 2] == narrow.landmarks).all()
    assert_close(wide(X)[:, : D // 2], narrow(X), factor=1e4)


@pytest.mark.parametrize("landmarks", [Uniform(), RPCholesky(), RidgeLeverage()], ids=repr)
def test_landmarks_are_different_rows_of_the_data(landmarks):
    X = rows(60, seed=5)[:-1]
    for seed in range(10):
        S = drawn(Gaussian(), Nystrom(landmarks), seed, X=X).landmarks
        assert len(np.unique(S, axis=0)) == len(S) == D
        assert {tuple(s) for s in S} <= {tuple(x) for x in X}


@every_method
def test_few_rows_are_all_taken_once(method):
    X = np.repeat(rows(6)[:5], 8, axis=0)
    phi = drawn(Gaussian(), method, X=X)
    if isinstance(method.landmarks, RPCholesky | KMeans):
        assert phi.n_features == 5
    if not isinstance(method.landmarks, Given | RidgeLeverage | Uniform):
        assert_close(phi(X) @ phi(X).T, Gaussian()(X), factor=ROUNDED / of(np.float64))
    assert np.isfinite(phi(X)).all()


@every_method
def test_one_row_and_one_landmark_are_enough(method):
    X = rows(9)[:1]
    Z = drawn(Gaussian(), method, n_features=1, X=X)(X)
    assert Z.shape == (1, 1)
    if not isinstance(method.landmarks, Given):
        assert_close(Z, [[1.0]], factor=1e3)


# ---- saved maps


@every_method
@both_precisions
def test_a_used_map_means_the_same_where_factors_come_out_otherwise(
    method, dtype, tmp_path, monkeypatch
):
    """Another machine's LAPACK is played by a factor of another, equally good, matrix."""
    X = rows(50).astype(dtype)
    phi = drawn(Gaussian(lengthscale=3.0), method)
    expected = phi(X)
    bo.save(phi, tmp_path / "map")
    name = "bochner.features.nystrom.nystrom._inverse_root"
    there = resolve_name(name)
    monkeypatch.setattr(name, lambda A, jitter: there(A * (1 + 1e-15), 2 * jitter))
    back = bo.load(tmp_path / "map")
    assert back(X).tobytes() == expected.tobytes()
    assert back.unexplained == phi.unexplained
    fresh = NystromMap(phi.kernel, phi.landmarks)
    assert fresh(X).tobytes() != expected.tobytes()


# ---- landmarks given


def test_given_landmarks_need_no_data():
    phi = draw(Gaussian(), Nystrom(Given(rows(9))), n_features=5, n_inputs=3)
    assert (phi.landmarks == rows(9)[:5]).all()
    assert draw(Gaussian(), Nystrom(Given(rows(9))), n_inputs=3).n_features == 9


def test_given_rows_are_a_copy_that_cannot_change():
    S = rows(4)
    landmarks = Given(S)
    S[0] = 7
    assert landmarks == Given(rows(4)) != Given(S)
    assert hash(landmarks) == hash(Given(rows(4)))
    with pytest.raises(ValueError, match="read-only"):
        landmarks.rows[0] = 1
    assert Given(torch.asarray(rows(4))) == Given(rows(4).tolist()) == landmarks
    assert repr(Given([[1.0, 2.0]])) == "Given(rows=[[1.0, 2.0]])"
    assert repr(Given(rows(40))) == "Given(rows=<40 × 3>)"


# ---- refusals


def test_refusals():
    X = rows(9)
    with pytest.raises(InvalidInput, match=r"landmarks from rows of data; got none.*Pass X"):
        draw(Gaussian(), Nystrom(KMeans()), n_inputs=3)
    with pytest.raises(InvalidInput, match=r"Given\(rows\) must have the 3 columns.*got 2"):
        draw(Gaussian(), Nystrom(Given(X[:, :2])), X=X)
    with pytest.raises(
        InvalidInput, match=r"landmarks must be 'rpcholesky', 'kmeans', .*got 'k-means'"
    ):
        Nystrom("k-means")
    with pytest.raises(InvalidInput, match=r"landmarks must be .* or a value of bochner.landmarks"):
        Nystrom(7)
    with pytest.raises(InvalidInput, match=r"Given: rows must be at least one row; got none"):
        Given(X[:0])
    with pytest.raises(InvalidInput, match=r"Given: rows must be finite"):
        Given([[np.nan]])
    with pytest.raises(InvalidInput, match=r"RPCholesky: mode must be one of 'accelerated'"):
        RPCholesky(mode="greedy")
    with pytest.raises(InvalidInput, match=r"RPCholesky: pool must be an integer, 1 or above"):
        RPCholesky(pool=0)
    with pytest.raises(InvalidInput, match=r"KMeans: iterations must be an integer, 1 or above"):
        KMeans(iterations=0)
    with pytest.raises(InvalidInput, match=r"KMeans: seeds must be one of 'k-means\+\+', 'random'"):
        KMeans(seeds="pivots")
    with pytest.raises(InvalidInput, match=r"RidgeLeverage: alpha must be a positive"):
        RidgeLeverage(alpha=0.0)
    with pytest.raises(InvalidType, match=r"RidgeLeverage: alpha must be a positive"):
        RidgeLeverage(alpha="loo")


def test_names_and_rows_stand_for_the_values_of_landmarks():
    for name, value in {
        "rpcholesky": RPCholesky(),
        "kmeans": KMeans(),
        "uniform": Uniform(),
        "ridge-leverage": RidgeLeverage(),
    }.items():
        assert Nystrom(name) == Nystrom(value)
        assert Nystrom(name).landmarks == value
    assert Nystrom() == Nystrom("rpcholesky")
    assert Nystrom(rows(4)) == Nystrom(rows(4).tolist()) == Nystrom(Given(rows(4)))
