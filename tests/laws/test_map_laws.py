"""Laws that maps of every class obey: shape, precision, blocks, libraries, seeds, files, bias."""

from dataclasses import replace

import array_api_strict
import numpy as np
import pytest
import scipy.sparse
import tolerance
import torch
from gallery import EXACT, FOURIER, N_COLUMNS, POSITIVE, rows
from layouts import assert_same_in_any_layout, in_library
from maps import (
    FAMILIES,
    PAIR,
    Case,
    afresh,
    drawn,
    factor_of,
    of_maps,
    rows_of,
    takes_sparse_rows,
)
from tolerance import assert_close

from bochner.features import IID, Fourier, HermiteMercer, Nystrom, draw
from bochner.features.fourier.fourier import FourierMap, FourierPhaseMap
from bochner.features.nystrom.nystrom import NystromMap
from bochner.kernels import Gaussian, Matern
from bochner.landmarks import Uniform
from bochner.persist.values import NamedArrays, decode, encode

every_map = of_maps()
DTYPES = ("float32", "float64")


@pytest.mark.main_cases(151)
@every_map
def test_a_map_has_the_shape_it_says(case):
    phi, X = drawn(case), rows_of(case, 7)
    assert (phi.n_inputs, phi.kernel) == (X.shape[1], case.kernel)
    most = FAMILIES[case.family].drawn_from if "Auto" in str(case) else 0
    assert 1 <= phi.n_features <= max(FAMILIES[case.family].width, most)
    for n in (0, 7):
        assert phi(X[:n]).shape == (n, phi.n_features)


@pytest.mark.main_cases(74)
@every_map
@pytest.mark.parametrize("dtype", DTYPES)
def test_precision_blocks_and_layout_do_not_matter(case, dtype):
    phi, X, factor = drawn(case), rows_of(case, 50), factor_of(case, dtype)
    Z = phi(X)
    if isinstance(phi, NystromMap):  # each precision has a root of its own
        Z = phi(X.astype(dtype))
        assert_close(Z @ Z.T, phi(X) @ phi(X).T, dtype, factor=200)
    assert_same_in_any_layout(phi, X, Z, dtype, factor, sparse=takes_sparse_rows(case))


@pytest.mark.main_cases(333)
@every_map
@pytest.mark.parametrize("xp", [torch, array_api_strict], ids=["torch", "strict"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_array_library_gives_the_features_of_numpy(case, xp, dtype):
    phi, X = drawn(case), rows_of(case, 9).astype(dtype)
    assert_close(in_library(phi, X, xp), phi(X), dtype, factor=20 * factor_of(case, dtype))


@of_maps(takes_sparse_rows)
def test_a_map_drawn_from_sparse_rows_is_that_of_dense_rows(case):
    X = rows_of(case, 60)
    X[np.abs(X) < 0.7] = 0
    maps = (afresh(case, X=form(X)) for form in (np.asarray, scipy.sparse.csr_array))
    one, other = (phi(X) for phi in maps)
    factor = 1e6 if case.family == "landmarks" else 100 * FAMILIES[case.family].factor
    assert_close(one @ one.T, other @ other.T, factor=factor)


@pytest.mark.main_cases(324)
@every_map
def test_seeds_reproduce_a_map_and_differ(case):
    X = rows_of(case, 60)
    assert (drawn(case, 1)(X) == afresh(case, 1)(X)).all()
    fixed = "Given" in str(case) or case.kernel in EXACT
    if FAMILIES[case.family].random and not fixed:
        assert not np.array_equal(drawn(case, 1)(X), drawn(case, 2)(X))


@every_map
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_map_from_a_file_has_the_same_bits(case, dtype):
    phi, X, arrays = drawn(case), rows_of(case, 30, seed=2).astype(dtype), NamedArrays()
    if any(word in repr(case.kernel) for word in ("function", "weight")):
        return  # functions have no place in a file
    text = encode(phi, arrays)
    assert decode(text, arrays.by_name)(X).tobytes() == phi(X).tobytes()
    assert decode(encode(case.method, arrays), arrays.by_name) == case.method


def test_a_planted_map_that_depends_on_its_block_is_caught():
    X = rows(50)
    with pytest.raises(AssertionError):
        assert_same_in_any_layout(lambda A: A - A.mean(axis=0), X, X - X.mean(axis=0), "float64")


# ---- below the kernel, and certified


def lowest(phi, X):
    """Smallest eigenvalue of K − ZZᵀ, as a share of the largest of k(x, x)."""
    Z, K = phi(X).astype(np.float64), phi.kernel(X.astype(np.float64))
    return np.linalg.eigvalsh(K - Z @ Z.T)[0] / np.diag(K).max()


def interpolated(case, phi):
    """What the interpolant in the radius of harmonics may add, as a share of k(x, x)."""
    if case.family != "harmonics":
        return 0.0
    X = rows(400, seed=2)
    return 1e-4 * phi.residual(X).mean() / phi.kernel.diag(X).max()


@every_map
def test_a_map_that_says_so_stays_below_the_kernel_for_rows_seen_or_not(case):
    X = np.concatenate([rows_of(case, 40), rows_of(case, 30, seed=6), 2 * rows_of(case, 9, 7)])
    if case.family == "harmonics":
        X = X[:70]  # beyond all radii seen: tests/laws/test_zonal_map_laws.py
    maps = [drawn(case, seed) for seed in range(6 if case.family == "sketches" else 2)]
    if maps[0].below_kernel:
        slack = len(X) * interpolated(case, maps[0])
        assert lowest(maps[0], X) > -1e-9 - slack
        assert lowest(maps[0], X.astype(np.float32)) > -1e-3 - slack
    elif FAMILIES[case.family].random:
        assert min(lowest(phi, X) for phi in maps) < -1e-9


@of_maps(lambda case: case.family in ("landmarks", "harmonics", "products"))
def test_the_residual_bounds_every_error_of_the_kernel(case):
    phi, X, Y = drawn(case), rows(50, seed=8), 1.5 * rows(40, seed=9)
    if not (phi.below_kernel and hasattr(phi, "residual")):
        return
    e, f, diag = phi.residual(X), phi.residual(Y), phi.kernel.diag(X)
    assert e.dtype == np.float64
    assert e.min() >= 0
    between = np.sqrt(np.outer(e, f))
    slack = 1e-7 * np.sqrt(np.outer(diag, phi.kernel.diag(Y)))
    slack = slack + (1e-3 * (between + e.mean()) if case.family == "harmonics" else 0.0)
    assert (np.abs(phi.kernel(X, Y) - phi(X) @ phi(Y).T) <= between + slack).all()
    assert_close(e, np.maximum(diag - (phi(X) ** 2).sum(axis=1), 0), factor=1e5)
    of_torch = phi.residual(torch.asarray(X))
    assert isinstance(of_torch, torch.Tensor)
    assert_close(of_torch.numpy(), e, factor=1e5)


def test_planted_faults_are_above_the_kernel():
    X = rows(60)
    landmarks = draw(Gaussian(), Nystrom(Uniform()), n_features=24, X=X, random_state=0)
    Z, K = 1.01 * landmarks(X), Gaussian()(X)
    assert np.linalg.eigvalsh(K - Z @ Z.T)[0] < -1e-3
    phi = draw(Gaussian(), HermiteMercer(scale=1.0), n_features=100, X=X, random_state=0)
    assert lowest(phi, X) > -1e-9 > lowest(replace(phi, axes=1.1 * phi.axes), X)


# ---- unbiased


def is_random(case):
    """Features whose mean over seeds is the kernel; those of Gegenbauer are of a cut kernel."""
    if case.family == "networks":
        return getattr(case.kernel, "depth", 1) == 1
    return case.family == "sketches" or case.method in FOURIER


def bias(case, maps):
    """Rows are short, so that products of many factors are not far from normal."""
    X = (0.5 if case.family == "sketches" else 0.7) * rows(5, seed=3)[:4]
    return tolerance.bias(case.kernel(X), [phi(X) for phi in maps], comparisons=6000)


def many(case):
    return [afresh(case, seed, 48) for seed in range(40 if "QMC" in str(case) else 100)]


@pytest.mark.statistical
@of_maps(is_random)
def test_features_are_unbiased(case):
    assert bias(case, many(case)) < 1


GAUSSIAN = Case("frequencies", Gaussian(), PAIR)


@pytest.mark.statistical
def test_planted_faults_of_frequencies_are_seen():
    """Another lengthscale, phases that are absent, one χ² for each coordinate."""
    assert bias(GAUSSIAN, many(GAUSSIAN)) < 1
    assert bias(GAUSSIAN, many(Case("frequencies", Gaussian(1.4), PAIR))) > 1
    phases = many(GAUSSIAN._replace(method=Fourier(IID(), "phase")))
    faults = [FourierPhaseMap(p.kernel, p.frequencies, 0 * p.phases, 1.0) for p in phases]
    assert bias(GAUSSIAN, phases) < 1 < bias(GAUSSIAN, faults)
    rng, kernel = np.random.default_rng(0), Matern(0.5, lengthscale=1.5)
    drawn_t = (rng.standard_t(1.0, (N_COLUMNS, 24)) / 1.5 for _ in range(120))
    assert bias(GAUSSIAN._replace(kernel=kernel), [FourierMap(kernel, W, 1.0) for W in drawn_t]) > 1


@pytest.mark.parametrize("method", POSITIVE, ids=repr)
def test_positive_features_are_positive(method):
    phi = draw(Gaussian(2.0), method, n_features=24, X=rows(40), random_state=0)
    assert (phi(3 * rows(50)) > 0).all()
