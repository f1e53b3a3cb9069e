"""Laws of the maps made of products, of sines, of compressed and projected maps."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from gallery import BASES, COMPRESSED, HERMITE, PROJECTED, SINES, rows
from tolerance import assert_close

import bochner as bo
from bochner.features import Compressed, Fourier, HermiteMercer, Nystrom, draw
from bochner.features.mercer.hermite import HermiteMap
from bochner.kernels import Gaussian, Matern, Sum

D = 24
MAPS = [*BASES, *HERMITE, *COMPRESSED, *SINES, *PROJECTED]
BELOW = [*BASES, *HERMITE, *COMPRESSED[:2]]
CERTIFIED = [p for p in BELOW if hasattr(draw(*p, n_features=D, X=rows(40)), "residual")]


def named(pair):
    return f"{pair[1]!r}-{pair[0]!r}"


every_map = pytest.mark.parametrize("pair", MAPS, ids=named)
every_below = pytest.mark.parametrize("pair", BELOW, ids=named)
every_certified = pytest.mark.parametrize("pair", CERTIFIED, ids=named)


def drawn(pair, n_features=D, seed=0, X=None):
    X = rows(200) if X is None else X
    return draw(*pair, n_features=n_features, X=X, random_state=seed)


# ---- below the kernel


def lowest(phi, X):
    """Smallest eigenvalue of K − ZZᵀ, as a share of the largest of k(x, x)."""
    Z, K = phi(X).astype(np.float64), phi.kernel(X.astype(np.float64))
    return np.linalg.eigvalsh(K - Z @ Z.T)[0] / np.diag(K).max()


@every_below
@pytest.mark.parametrize("n_features", [1, 7, D, 200])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_features_stay_below_the_kernel_on_rows_never_seen(pair, n_features, dtype):
    phi = drawn(pair, max(n_features, 12 if isinstance(pair[0], Sum) else 1))
    X = np.concatenate([rows(40, seed=6), 3 * rows(30, seed=7)]).astype(dtype)
    assert phi.below_kernel
    assert lowest(phi, X) > (-1e-9 if dtype == "float64" else -1e-4)


@pytest.mark.parametrize("pair", [COMPRESSED[2], SINES[5], *PROJECTED[:2]], ids=named)
def test_the_others_are_above_the_kernel_somewhere_and_say_so(pair):
    phi = drawn(pair, 400)
    assert not phi.below_kernel
    assert lowest(phi, np.concatenate([rows(150), 1.5 * rows(50, seed=4)])) < -1e-9


def test_planted_fault_of_a_scale_that_differs_between_features_and_weights_is_seen():
    phi = drawn((Gaussian(), HermiteMercer(scale=1.0)), 100)
    fault = replace(phi, axes=1.1 * phi.axes)
    assert lowest(phi, rows(60)) > -1e-9 > lowest(fault, rows(60))


@every_certified
def test_the_residual_bounds_every_error_of_the_kernel(pair):
    phi = drawn(pair)
    X, Y = 2 * rows(50, seed=8), rows(40, seed=9)
    e, f = phi.residual(X), phi.residual(Y)
    assert e.dtype == np.float64
    assert (e >= 0).all()
    error = np.abs(phi.kernel(X, Y) - phi(X) @ phi(Y).T)
    assert (error <= np.sqrt(np.outer(e, f)) + 1e-7 * phi.kernel.diag(X).max()).all()
    assert_close(e, phi.kernel.diag(X) - (phi(X) ** 2).sum(axis=1), factor=4)
    assert (phi.residual(X.astype(np.float32)).dtype) == np.float64


@every_certified
def test_more_features_leave_less(pair):
    X, wide = rows(50, seed=8), drawn(pair, 400)
    leaves = [drawn(pair, m).residual(X).mean() for m in (8, 32, 128)]
    leaves.append(wide.residual(X).mean())
    assert all(b <= a + 1e-12 for a, b in pairwise(leaves))
    assert leaves[-1] < 0.7 * leaves[0] + 1e-12


# ---- nested


NESTED = [
    *BASES[:2],
    *BASES[3:],
    (Gaussian(), HermiteMercer(scale=1.0)),
    (Gaussian(lengthscale=(0.5, 1.0, 3.0)), HermiteMercer(scale=0.8)),
    *SINES[:3],
]


@pytest.mark.parametrize("pair", NESTED, ids=named)
def test_the_first_half_of_twice_the_width_is_the_map(pair):
    X = rows(50, seed=8)
    for narrow in (3, 16, 24):
        wide = drawn(pair, 2 * narrow)(X)
        assert_close(wide[:, :narrow], drawn(pair, narrow)(X), factor=10)


# ---- one map for all: blocks, libraries, precisions, seeds


@pytest.mark.parametrize("pair", [*HERMITE[:1], *HERMITE[3:4], *SINES[:1]], ids=named)
def test_deterministic_maps_of_few_rows_do_not_depend_on_the_seed(pair):
    X = rows(50, seed=8)
    assert (drawn(pair, seed=3)(X) == drawn(pair, seed=4)(X)).all()


def test_the_order_of_rows_does_not_matter():
    X = rows(300)
    phi, psi = (drawn((Gaussian(), HermiteMercer()), X=A) for A in (X, X[::-1]))
    assert_close(phi(X), psi(X), factor=1e4)


@pytest.mark.parametrize("pair", [HERMITE[0], CERTIFIED[0], SINES[0]], ids=named)
def test_residuals_of_another_library_are_of_that_library(pair):
    phi, X = drawn(pair), rows(9)
    e = phi.residual(torch.asarray(X))
    assert isinstance(e, torch.Tensor)
    assert_close(e.numpy(), phi.residual(X), factor=100)


SPARSE = [p for p in MAPS if "Laplace(" not in repr(p[0]) or isinstance(p[1], HermiteMercer)]
SPARSE = [p for p in SPARSE if "Product" not in repr(p[0]) and p[1] != Compressed(Nystrom(), 2)]


@pytest.mark.parametrize(
    "method", [HermiteMercer(), Compressed(Nystrom()), bo.Projected(Fourier(), 2)], ids=repr
)
def test_a_model_of_these_features_predicts(method, tmp_path):
    X = rows(300)
    y = np.sin(X[:, 0]) + X[:, 1]
    model = bo.KernelRidge(Gaussian(2.0), method=method, n_features=64, random_state=0).fit(X, y)
    bo.save(model, tmp_path / "model.bochner")
    assert (bo.load(tmp_path / "model.bochner").predict(X) == model.predict(X)).all()
    assert model.score(X, y) > 0.6


# ---- what each is made of


def test_the_map_of_a_gaussian_is_analytic_whatever_is_around_it():
    for kernel in (2.0 * Gaussian(), bo.kernels.Columns(Gaussian(), (0, 2))):
        assert isinstance(drawn((kernel, HermiteMercer())).inner, HermiteMap)


def test_axes_and_lengthscales_are_those_of_the_rows():
    """Rotated rows have rotated axes: the features are the same, up to signs."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 3)) * (3.0, 1.0, 0.3) + 5.0
    Q = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    phi, psi = (drawn((Gaussian(), HermiteMercer(scale=1.0)), X=A) for A in (X, X @ Q))
    assert_close(np.abs(phi(X)), np.abs(psi(X @ Q)), factor=1e3)
    scaled = drawn((Gaussian((3.0, 1.0, 0.3)), HermiteMercer(scale=1.0)), X=X * (3.0, 1.0, 0.3))
    assert_close(np.abs(scaled(X * (3.0, 1.0, 0.3))), np.abs(phi(X)), factor=1e3)


def test_compression_of_all_directions_changes_no_product():
    phi = drawn((Matern(1.5), Compressed(Nystrom(), width=1)))
    psi = drawn((Matern(1.5), Nystrom()))
    assert type(phi) is type(psi)
