"""Laws of all maps: shape, precision, blocks, libraries, seeds, files, bias."""

import array_api_strict
import numpy as np
import pytest
import scipy.sparse
import tolerance
import torch
from gallery import EXACT, FOURIER, KINDS, POSITIVE, RANDOM_MAPS, rows
from internals import HAVE_NATIVE
from layouts import assert_same_in_any_layout, in_library
from maps import CASES, FAMILIES, factor_of, map_of, new_map, of_maps, rows_of, takes_sparse_rows
from tolerance import assert_close, of

import bochner as bo
from bochner import draw
from bochner.features.map import reach_of
from bochner.features.mercer.products import BasisMap
from bochner.features.nystrom import NystromMap
from bochner.kernels import Gaussian, Linear, Mahalanobis
from bochner.persist.values import decode, encode

every_map = of_maps()
DTYPES = ("float32", "float64")


@every_map
def test_features_have_the_stated_shape(case):
    phi, X = map_of(case), rows_of(case, 7)
    assert (phi.n_inputs, phi.kernel) == (X.shape[1], case.kernel)
    limit = FAMILIES[case.family].n_rows if "Auto" in str(case) else 0
    assert 1 <= phi.n_features <= max(FAMILIES[case.family].width, limit)
    for n in (0, 7):
        assert phi(X[:n]).shape == (n, phi.n_features)


@of_maps(dtype=DTYPES)
def test_features_are_independent_of_precision_blocks_and_layout(case, dtype):
    phi, X, factor = map_of(case), rows_of(case, 50), factor_of(case, dtype)
    Z = phi(X)
    if isinstance(phi, NystromMap):  # each precision has its own root
        Z = phi(X.astype(dtype))
        assert_close(Z @ Z.T, phi(X) @ phi(X).T, dtype, factor=200)
    assert_same_in_any_layout(phi, X, Z, dtype, factor, sparse=takes_sparse_rows(case))


@of_maps(xp=[torch, array_api_strict], dtype=DTYPES)
def test_array_libraries_give_the_features_of_numpy(case, xp, dtype):
    phi, X = map_of(case), rows_of(case, 9).astype(dtype)
    assert_close(in_library(phi, X, xp), phi(X), dtype, factor=20 * factor_of(case, dtype))


@of_maps(takes_sparse_rows)
def test_maps_of_sparse_rows_equal_maps_of_dense_rows(case):
    X = rows_of(case, 60)
    X[np.abs(X) < 0.7] = 0
    maps = (new_map(case, X=form(X)) for form in (np.asarray, scipy.sparse.csr_array))
    first, other = (phi(X) for phi in maps)
    factor = 1e6 if case.family == "landmarks" else 100 * FAMILIES[case.family].factor
    assert_close(first @ first.T, other @ other.T, factor=factor)


@every_map
def test_a_seed_determines_a_map(case):
    X = rows_of(case, 60)
    assert (map_of(case, 1)(X) == new_map(case, 1)(X)).all()
    fixed = isinstance(map_of(case), BasisMap) or "Points" in str(case) or case.kernel in EXACT
    if FAMILIES[case.family].random and not fixed:
        assert not np.array_equal(map_of(case, 1)(X), map_of(case, 2)(X))


#: Parts of names of cases whose features all depend on the width.
OF_THE_WIDTH = (
    *("Leverage", "KMeans", "Auto", "Compressed", "TensorSketch", "independent", "Exp(", "**3"),
    *("NeuralTangentFeatures", " * ", "scale=None)-Gaussian", "method=Hermite"),
)

NESTED = [case for case in CASES if not any(word in str(case) for word in OF_THE_WIDTH)]


@pytest.mark.parametrize("case", NESTED, ids=str)
def test_a_wider_map_contains_the_features_of_a_narrow_one(case):
    """Up to order and positive factors."""
    if "PolySketch" in str(case) and "Gaussian" in str(case):
        return
    X_fit, X, width = rows_of(case, 60), rows_of(case, 40, 5), FAMILIES[case.family].width
    narrow, wide = (new_map(case, 3, D, X_fit)(X) for D in (width, 2 * width))
    lengths = [np.linalg.norm(Z, axis=0) for Z in (narrow, wide)]
    narrow, wide = (Z[:, n > 0] / n[n > 0] for Z, n in zip((narrow, wide), lengths, strict=True))
    assert np.abs(wide.T @ narrow).max(axis=0).min() > 1 - 1e-9


@of_maps(dtype=DTYPES)
def test_a_map_from_a_file_has_the_same_bits(case, dtype):
    phi, X = map_of(case), rows_of(case, 30, seed=2).astype(dtype)
    if any(word in repr(case.kernel) for word in ("function", "weight")):
        return  # files cannot contain functions
    assert decode(*encode(phi))(X).tobytes() == phi(X).tobytes()
    assert decode(*encode(case.method)) == case.method


def lowest(phi, X):
    """Return the smallest eigenvalue of K − ZZᵀ, relative to the largest k(x, x)."""
    Z, K = phi(X).astype(np.float64), phi.kernel(X.astype(np.float64))
    return np.linalg.eigvalsh(K - Z @ Z.T)[0] / np.diag(K).max()


def interpolated(case, phi):
    """Return the error of radial interpolation of harmonics, relative to the largest k(x, x)."""
    if case.family != "harmonics":
        return 0.0
    X = rows(400, seed=2)
    return 1e-4 * phi.residual(X).mean() / phi.kernel.diag(X).max()


@every_map
def test_maps_with_below_kernel_are_below_it_for_any_rows(case):
    X = np.concatenate([rows_of(case, 40), rows_of(case, 30, seed=6), 2 * rows_of(case, 9, 7)])
    if case.family == "harmonics":
        X = X[:70]  # larger radii: tests/laws/test_zonal_map_laws.py
    maps = [map_of(case, seed) for seed in range(6 if case.family == "sketches" else 2)]
    if maps[0].below_kernel:
        slack = len(X) * interpolated(case, maps[0])
        assert lowest(maps[0], X) > -1e-9 - slack
        assert lowest(maps[0], X.astype(np.float32)) > -1e-3 - slack
    elif FAMILIES[case.family].random:
        assert min(lowest(phi, X) for phi in maps) < -1e-9


@of_maps(lambda case: case.family in ("landmarks", "harmonics", "products"))
def test_residuals_bound_all_errors_of_the_kernel(case):
    phi, X, Y = map_of(case), rows(50, seed=8), 1.5 * rows(40, seed=9)
    if not (phi.below_kernel and hasattr(phi, "residual")):
        return
    e, f, diag = phi.residual(X), phi.residual(Y), phi.kernel.diag(X)
    assert e.dtype == np.float64
    assert e.min() >= 0
    bound = np.sqrt(np.outer(e, f))
    slack = 1e-7 * np.sqrt(np.outer(diag, phi.kernel.diag(Y)))
    slack += 4 * np.finfo(float).eps * diag.max()  # zeros are differences of rounded numbers
    slack = slack + (1e-3 * (bound + e.mean()) if case.family == "harmonics" else 0.0)
    assert (np.abs(phi.kernel(X, Y) - phi(X) @ phi(Y).T) <= bound + slack).all()
    assert_close(e, np.maximum(diag - (phi(X) ** 2).sum(axis=1), 0), factor=1e5)
    of_torch = phi.residual(torch.asarray(X))
    assert isinstance(of_torch, torch.Tensor)
    assert_close(of_torch.numpy(), e, factor=1e5)


def is_random(case):
    """Return whether the mean of features over seeds is the kernel, not a truncated kernel."""
    if case.family == "networks":
        return getattr(case.kernel, "depth", 1) == 1
    return case.family in ("sketches", "frequencies")


def first_sketch(case):
    """Return whether no earlier case has this sketch."""
    return case.family != "sketches" or case is next(c for c in CASES if c.method == case.method)


@pytest.mark.statistical
@of_maps(is_random, main=first_sketch)
def test_features_are_unbiased(case):
    """Rows are short, so that products of many factors are nearly normal."""
    maps = (new_map(case, seed, 48) for seed in range(40 if "QMC" in str(case) else 100))
    X = (0.5 if case.family == "sketches" else 0.7) * rows(5, seed=3)[:4]
    assert tolerance.bias(case.kernel(X), [phi(X) for phi in maps], comparisons=6000) < 1


@pytest.mark.parametrize("method", POSITIVE, ids=repr)
def test_positive_features_are_positive(method):
    phi = draw(Gaussian(2.0), method, n_features=24, X=rows(40), random_state=0)
    assert (phi(3 * rows(50)) > 0).all()


def new_map_of(pair, seed=0):
    """Return a map of a kernel and a method."""
    return draw(*pair, n_features=24, X=rows(40), random_state=seed)


@pytest.mark.parametrize("pair", [p for p in RANDOM_MAPS if p[1].form == "pair"], ids=repr)
def test_norms_of_pairs_equal_the_kernel(pair):
    if not any(word in repr(pair[0]) for word in ("Linear", "Windows")):
        X = rows(30)
        assert_close((new_map_of(pair)(X) ** 2).sum(axis=1), pair[0].diag(X))


@pytest.mark.parametrize(
    ("kernel", "X", "width"),
    [(Gaussian(), rows(5).repeat(10, 0), 4), (Linear(), rows(50), 3), (Linear(), 0 * rows(9), 1)],
)
def test_nystrom_has_fewer_features_if_they_explain_the_kernel(kernel, X, width):
    phi = draw(kernel, "nystrom", n_features=30, X=X, random_state=0)
    assert phi.n_features == width
    assert np.isfinite(phi(rows(5))).all()


def test_a_generator_gives_another_map_at_each_draw():
    rng, X = np.random.default_rng(0), rows(5)
    first, second = (draw(Gaussian(), "iid", n_inputs=3, random_state=rng)(X) for _ in range(2))
    repeat = draw(Gaussian(), "iid", n_inputs=3, random_state=np.random.default_rng(0))(X)
    assert (first == repeat).all()
    assert not np.allclose(first, second)


FREQUENCY_MAPS = [
    *(pair for pair in KINDS if pair[1] in FOURIER),
    (Gaussian(2.0), bo.Projected(bo.Fourier(), 2, projection="jl")),
    (Gaussian((1.0, 2.0, 3.0)), bo.Projected(bo.Fourier(), 2, projection="jl")),
    (Mahalanobis(Gaussian(), np.diag([1.0, 2.0, 3.0])), bo.Fourier()),
    (Gaussian(), bo.Fourier(bo.Grid())),
    (Gaussian(), bo.LeverageFourier()),
]
"""Maps of products of rows and frequencies."""


@pytest.mark.parametrize("pair", FREQUENCY_MAPS, ids=repr)
def test_float32_rows_far_away_have_the_features_of_float64(pair):
    """Only features are rounded, as the rows are the same."""
    distant = (4 * rows(40) + 1e6).astype(np.float32)
    mixed = np.where(np.arange(40)[:, None] % 3, rows(40), distant).astype(np.float32)
    phi = new_map_of(pair)
    for X in (distant, mixed):
        exact, Z = phi(X.astype(np.float64)), phi(X)
        assert Z.dtype == np.float32
        error = np.abs(Z - exact).max() / max(1.0, np.abs(exact).max())
        assert error <= 16 * of(np.float32)  # angles in float32 would give 0.1 and more
        assert (phi(X[11:20]) == Z[11:20]).all() or not HAVE_NATIVE
        assert_close(in_library(phi, X, array_api_strict), Z, np.float32, factor=16)


@pytest.mark.parametrize("placement", [bo.Orthogonal(), bo.Structured(), bo.Fastfood()], ids=repr)
def test_features_of_sparse_and_wide_float32_rows_far_away(placement):
    distant = (np.random.default_rng(0).normal(size=(40, 64)) + 1e5).astype(np.float32)
    distant[:, 5:] = 0
    for form in ("pair", "phase"):
        method = bo.Fourier(placement, form)
        phi = draw(Gaussian(3.0), method, n_features=256, n_inputs=64, random_state=0)
        assert phi.reach == pytest.approx(reach_of(phi.matrix), rel=0.2)
        exact = phi(distant.astype(np.float64))
        for X in (distant, scipy.sparse.csr_array(distant)):
            assert phi(X).dtype == np.float32
            assert_close(phi(X), exact, np.float32)


@pytest.mark.parametrize("d", [1, 3, 10, 100, 784])
@pytest.mark.parametrize("placement", [bo.IID(), bo.Structured(), bo.Fastfood()], ids=repr)
@pytest.mark.parametrize("form", ["pair", "phase"])
def test_float32_features_have_errors_of_two_in_a_million(d, placement, form):
    """Errors from float64 angles are at most 2e-6 √(2/D) (1 + ‖x‖), for lengthscale one."""
    rng = np.random.default_rng(d)
    X = (rng.normal(size=(300, d)) * rng.uniform(0, 5, (300, 1))).astype(np.float32)
    phi = draw(Gaussian(), bo.Fourier(placement, form), n_features=256, n_inputs=d, random_state=0)
    angle = X.astype(np.float64) @ phi.matrix
    if form == "pair":
        exact = np.concatenate([np.cos(angle), np.sin(angle)], axis=1)
    else:
        exact = np.cos(angle + phi.phases)
    allowed = 2e-6 * np.sqrt(2 / 256) * (1 + np.linalg.norm(X, axis=1, keepdims=True))
    allowed *= 1 if HAVE_NATIVE else 1.5  # BLAS does not reduce angles within its sums
    assert (np.abs(phi(X) - np.sqrt(2 / 256) * exact) <= allowed).all()
