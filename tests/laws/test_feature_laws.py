"""Laws that every feature map of the gallery obeys."""

import array_api_strict
import numpy as np
import pytest
import scipy.sparse
import tolerance
import torch
from gallery import (
    DENSE_ONLY,
    EXACT,
    FOURIER,
    KERNELS,
    KINDS,
    MAPS,
    N_COLUMNS,
    NYSTROM,
    RANDOM_MAPS,
    rows,
)
from inside import HAVE_NATIVE
from layouts import in_library
from tolerance import assert_close, of

from bochner.features import (
    IID,
    Auto,
    Fastfood,
    Fourier,
    Grid,
    LeverageFourier,
    Nystrom,
    Orthogonal,
    Projected,
    Structured,
    draw,
)
from bochner.features.fourier.fourier import FourierMap, FourierPhaseMap
from bochner.features.map import reach_of
from bochner.features.nystrom.nystrom import JITTER, NystromMap
from bochner.kernels import Cauchy, Columns, Gaussian, Laplace, Linear, Mahalanobis, Matern
from bochner.landmarks import RPCholesky, Uniform

D = 24
"""Features of each map: enough for the exact parts and an even number for each of the others."""


def named(pair):
    kernel, method = pair
    return f"{method!r}-{kernel!r}"


every_map = pytest.mark.parametrize("pair", MAPS, ids=named)
every_kind = pytest.mark.parametrize("pair", KINDS, ids=named)
every_random_map = pytest.mark.parametrize("pair", RANDOM_MAPS, ids=named)


def drawn(pair, seed=0, n_features=D, X=None):
    kernel, method = pair
    X = rows(40) if X is None else X
    return draw(kernel, method, n_features=n_features, X=X, random_state=seed)


# ---- unbiased


SEEDS = {"IID()": 120, "Orthogonal()": 120, "QMC()": 40}
COMPARISONS = 10 * len(RANDOM_MAPS)


def bias(kernel, maps):
    X = 0.7 * rows(5, seed=3)[:4]
    return tolerance.bias(kernel(X), [phi(X) for phi in maps], COMPARISONS)


@pytest.mark.statistical
@every_random_map
def test_features_are_unbiased(pair):
    kernel, method = pair
    seeds = range(SEEDS[repr(method.placement)])
    assert bias(kernel, [drawn(pair, seed, 2 * D) for seed in seeds]) < 1


@pytest.mark.statistical
@pytest.mark.parametrize("method", FOURIER, ids=repr)
def test_planted_fault_wrong_lengthscale_is_seen(method):
    other = Gaussian(lengthscale=1.4)
    seeds = range(SEEDS[repr(method.placement)])
    assert bias(Gaussian(), [drawn((other, method), seed, 2 * D) for seed in seeds]) > 1


@pytest.mark.statistical
def test_planted_fault_absent_phases_are_seen():
    maps = [drawn((Gaussian(), Fourier(IID(), "phase")), seed, 2 * D) for seed in range(120)]
    faults = [FourierPhaseMap(p.kernel, p.frequencies, 0 * p.phases, 1.0) for p in maps]
    assert bias(Gaussian(), maps) < 1 < bias(Gaussian(), faults)


@pytest.mark.statistical
def test_planted_fault_one_chi_square_per_coordinate_is_seen():
    rng, kernel = np.random.default_rng(0), Matern(0.5, lengthscale=1.5)
    faults = [
        FourierMap(kernel, rng.standard_t(1.0, (N_COLUMNS, D)) / 1.5, 1.0) for _ in range(120)
    ]
    assert bias(kernel, faults) > 1


@pytest.mark.statistical
def test_planted_fault_constant_radii_are_seen():
    """Orthogonal directions of length √d, as structured maps have them: biased for small d."""
    maps = [drawn((Gaussian(), Fourier(Orthogonal())), seed, 2 * D) for seed in range(120)]
    faults = [
        FourierMap(
            p.kernel,
            N_COLUMNS**0.5 * p.frequencies / np.linalg.norm(p.frequencies, axis=0),
            1.0,
        )
        for p in maps
    ]
    assert bias(Gaussian(), faults) > 1


@pytest.mark.statistical
def test_planted_fault_shared_frequencies_of_a_product_are_seen():
    """ω₁ + ω₂ with ω₁ = ω₂ is Gaussian of twice the frequency, not of √2 times."""
    kernel = Gaussian() * Gaussian()
    maps = [drawn((Gaussian(), Fourier(IID())), seed, 2 * D) for seed in range(120)]
    assert bias(kernel, [FourierMap(kernel, 2 * p.frequencies, 1.0) for p in maps]) > 1


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


ROUNDED = 1e-9
"""Jitter of 1e-12 and roundings of C = k(X, S), made larger by L⁻ᵀ (at most 1e6 of them)."""


@pytest.mark.parametrize("method", NYSTROM, ids=repr)
@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_nystrom_stays_below_the_kernel(kernel, method, dtype):
    X = rows(60, seed=5)
    phi = drawn((kernel, method), X=X)
    Y = np.concatenate([X, rows(40, seed=6)]).astype(dtype)
    K = kernel(Y.astype(np.float64))
    Z = phi(Y).astype(np.float64)
    allowed = ROUNDED if dtype == "float64" else 1e-3
    assert np.linalg.eigvalsh(K - Z @ Z.T)[0] > -allowed * np.diag(K).max()


@pytest.mark.parametrize("method", NYSTROM, ids=repr)
@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_nystrom_is_exact_on_landmarks(kernel, method):
    phi = drawn((kernel, method), X=rows(60, seed=5))
    S = phi.landmarks
    Z, K, other = phi(S), kernel(S), phi(rows(10, seed=7))
    assert_close(Z @ Z.T, K, factor=ROUNDED / of(np.float64))
    assert_close(other @ Z.T, kernel(rows(10, seed=7), S), factor=ROUNDED / of(np.float64))


def test_pivots_are_rows_of_the_data_and_never_twice():
    X = rows(60, seed=5)
    for seed in range(20):
        S = drawn((Gaussian(), Nystrom()), seed, X=X).landmarks
        assert len(np.unique(S, axis=0)) == len(S) == D
        assert {tuple(s) for s in S} <= {tuple(x) for x in X}


@every_map
def test_below_kernel_is_true_exactly_where_it_holds(pair):
    """Random features are above K in some direction for every seed; the others never are."""
    kernel, method = pair
    X = rows(60)
    for seed in range(3):
        phi = drawn(pair, seed, X=X)
        Z = phi(X)
        lowest = np.linalg.eigvalsh(kernel(X) - Z @ Z.T)[0] / kernel.diag(X).max()
        assert phi.below_kernel == (lowest > -ROUNDED), f"{lowest}"


def test_nystrom_holds_fewer_landmarks_where_they_explain_all():
    X = np.repeat(rows(5), 10, axis=0)
    assert draw(Gaussian(), "nystrom", n_features=30, X=X, random_state=0).n_features == 4
    assert draw(Linear(), "nystrom", n_features=30, X=rows(50), random_state=0).n_features == 3


def test_nystrom_of_rows_that_the_kernel_maps_to_zero():
    phi = draw(Linear(), "nystrom", n_features=4, X=np.zeros((9, 3)), random_state=0)
    Z = phi(rows(5))
    assert Z.shape == (5, phi.n_features)
    assert np.isfinite(Z).all()


@pytest.mark.statistical
def test_pivots_cover_clusters_that_uniform_rows_miss():
    """1000 rows in a tight cluster and 20 far apart: uniform landmarks see few of the 20."""
    rng = np.random.default_rng(0)
    X = np.concatenate([0.1 * rng.normal(size=(1000, 2)), 50 * rng.normal(size=(20, 2))])
    K = Gaussian()(X)

    def error(landmarks, seed):
        Z = draw(Gaussian(), Nystrom(landmarks), n_features=40, X=X, random_state=seed)(X)
        return np.trace(K - Z @ Z.T)

    pivoted = [error(RPCholesky(), seed) for seed in range(8)]
    uniform = [error(Uniform(), seed) for seed in range(8)]
    assert max(pivoted) < 0.2 * min(uniform)


# ---- one map for all: blocks, libraries, precisions, seeds


@every_map
def test_a_map_has_the_shape_it_says(pair):
    phi = drawn(pair)
    assert phi.n_inputs == N_COLUMNS
    assert phi.kernel == pair[0]
    assert phi(rows(7)).shape == (7, phi.n_features)
    assert phi(rows(7)[:0]).shape == (0, phi.n_features)
    assert 1 <= phi.n_features <= max(D, 40 if isinstance(pair[1], Auto) else 0)


@every_kind
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_precision_is_that_of_the_rows(pair, dtype):
    phi, X = drawn(pair), rows(12)
    Z = phi(X.astype(dtype))
    assert Z.dtype == dtype
    assert type(Z) is np.ndarray
    whitened = pair[1] not in FOURIER
    assert_close(Z @ Z.T, phi(X) @ phi(X).T, dtype, factor=200 if whitened else 8)


@every_kind
def test_other_real_types_become_float64(pair):
    phi, X = drawn(pair), np.round(3 * rows(8))
    for dtype in (np.int32, np.int8, np.float16):
        Z = phi(X.astype(dtype))
        assert Z.dtype == np.float64
        assert (Z == phi(X)).all()
    assert (phi(X.tolist()) == phi(X)).all()


@every_kind
def test_layout_does_not_matter_and_arguments_are_unchanged(pair):
    X = rows(20)
    before, phi = X.copy(), drawn(pair)
    expected = phi(X)
    X.flags.writeable = False
    drawn(pair, X=X)
    wide = np.repeat(X, 2, axis=1)
    exact = pair[1] in FOURIER
    for same in (X, np.asfortranarray(X), wide[:, ::2], X[::-1][::-1]):
        assert_close(phi(same), expected, factor=1 if exact else 1e4)
    assert (before == X).all()


@every_kind
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_block_size_does_not_matter(pair, dtype):
    """To rounding: BLAS sums in another order for other shapes, and L⁻ᵀ amplifies that of C."""
    phi, X = drawn(pair), rows(50).astype(dtype)
    factor = 1 if pair[1] in FOURIER else 1e4 if dtype == "float64" else 200
    if isinstance(phi, NystromMap):
        factor = max(factor, np.abs(phi.root(np.dtype(dtype))).sum(axis=0).max())
    for size in (1, 7, 32):
        assert_close(in_blocks(phi, X, size), phi(X), dtype, factor=factor)


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


@pytest.mark.parametrize("pair", [p for p in MAPS if p[1] != Auto()], ids=named)
def test_seeds_reproduce_a_map_and_differ(pair):
    X = rows(60)
    Z = drawn(pair, 1, X=X)(X)
    assert (Z == drawn(pair, 1, X=X)(X)).all()
    if pair[1] in FOURIER:
        assert (Z == draw(*pair, n_features=D, n_inputs=3, random_state=1)(X)).all()
    if pair[0] not in EXACT:
        assert not np.allclose(Z, drawn(pair, 2, X=X)(X))


def test_a_generator_is_a_seed_that_moves_on():
    rng, X = np.random.default_rng(0), rows(5)
    first, second = (draw(Gaussian(), "iid", n_inputs=3, random_state=rng)(X) for _ in range(2))
    again = draw(Gaussian(), "iid", n_inputs=3, random_state=np.random.default_rng(0))(X)
    assert (first == again).all()
    assert not np.allclose(first, second)


def amplification(phi, X):
    """What Z = C L⁻ᵀ makes of rounding in C: |C| ‖L⁻¹‖, in units of the largest feature."""
    size = np.abs(phi.values(X)).max() / max(1.0, np.abs(phi(X)).max())
    return size * np.linalg.norm(phi.root(X.dtype), 2)


@every_kind
@pytest.mark.parametrize("xp", [torch, array_api_strict], ids=["torch", "strict"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_array_library_gives_the_features_of_numpy(pair, xp, dtype):
    phi, X = drawn(pair), rows(9).astype(dtype)
    factor = 8 if pair[1] in FOURIER else 1 + amplification(phi, X)
    assert_close(in_library(phi, X, xp), phi(X), dtype, factor=factor)


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


SPARSE = [p for p in KINDS if not any(word in repr(p[0]) for word in DENSE_ONLY)]


@pytest.mark.parametrize("pair", SPARSE, ids=named)
def test_sparse_rows_give_the_features_of_dense_rows(pair):
    X = rows(30)
    X[np.abs(X) < 0.7] = 0
    phi = drawn(pair, X=X)
    sparse = drawn(pair, X=scipy.sparse.csr_array(X))
    factor = 300 if pair[1] in FOURIER else 10 * ROUNDED / of(np.float64)  # angles of hundreds
    for make in (scipy.sparse.csr_array, scipy.sparse.csr_matrix, scipy.sparse.coo_array):
        Z = phi(make(X))
        assert type(Z) is np.ndarray
        assert_close(Z, phi(X), factor=factor)
    Z = sparse(X)
    assert_close(Z @ Z.T, phi(X) @ phi(X).T, factor=factor)


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


def test_jitter_is_what_the_tolerances_here_assume():
    assert JITTER == {np.dtype("float32"): 1e-6, np.dtype("float64"): 1e-12}


def test_columns_outside_are_not_seen():
    X = rows(10)
    other = X.copy()
    other[:, 1] = 9
    phi = drawn((Columns(Gaussian(), columns=(0, 2)), Fourier(IID())))
    assert (phi(X) == phi(other)).all()
    assert not np.allclose(drawn((Gaussian(), Fourier(IID())))(X), phi(X))


@pytest.mark.parametrize("kernel", [Laplace(), Cauchy()], ids=repr)
def test_sparse_rows_of_coordinatewise_kernels_are_served_by_random_features(kernel):
    X = rows(10)
    X[X < 0.5] = 0
    phi = drawn((kernel, Fourier(IID())))
    assert_close(phi(scipy.sparse.csr_array(X)), phi(X))
