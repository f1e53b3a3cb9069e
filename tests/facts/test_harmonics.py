"""Spherical harmonics, their recurrences and radial functions, by two routes each."""

import math
from itertools import pairwise

import numpy as np
import pytest
from array_api_compat import array_namespace
from scipy.special import roots_gegenbauer
from tolerance import assert_close

from bochner._core import native
from bochner.features.mercer.radial import Polar, quantiles
from bochner.features.mercer.recurrence import harmonic_blocks, programme
from bochner.kernels.zonal import alpha, gegenbauers, orthonormals
from bochner.kernels.zonal import recurrence as coefficients

DEGREES = {1: 3, 2: 15, 3: 12, 4: 8, 5: 6, 9: 4, 20: 3, 50: 2}
every_dimension = pytest.mark.parametrize("d", DEGREES)


def directions(n, d, seed=0):
    """Unit rows, the first two at the poles of the recurrence."""
    X = np.random.default_rng(seed).standard_normal((n, d))
    X[0], X[1] = np.eye(d)[-1], np.eye(d)[0]
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def sphere(d, n):
    """Nodes and weights that integrate polynomials of degree 2n − 1 over the sphere in R^d."""
    if d == 2:
        angle = np.arange(2 * n) * np.pi / n
        return np.stack([np.cos(angle), np.sin(angle)], axis=1), np.full(2 * n, 0.5 / n)
    t, w = roots_gegenbauer(n, d / 2 - 1)
    U, v = sphere(d - 1, n)
    inner = np.sqrt(1 - t * t)[:, None, None] * U
    height = np.broadcast_to(t[:, None, None], (n, len(U), 1))
    points = np.concatenate([inner, height], axis=2).reshape(-1, d)
    return points, (w[:, None] / w.sum() * v).ravel()


def spherical(degree, U):
    """All orthonormal harmonics of the unit rows U up to a degree, degree by degree."""
    counts = np.array([alpha(l, U.shape[1]) for l in range(degree + 1)])
    ones = array_namespace(U).ones((U.shape[0], degree + 1), dtype=U.dtype)
    return harmonic_blocks(U, U.shape[1], np.arange(degree + 1), counts, ones)


def by_degree(Y, d, degree):
    ends = np.cumsum([0] + [alpha(l, d) for l in range(degree + 1)])
    # The polynomials of degree l in d columns that are no multiples of |x|²: so many, exactly.
    below = math.comb(degree + d - 2, degree - 1) if degree else 0
    assert Y.shape[1] == ends[-1] == math.comb(degree + d - 1, degree) + below
    return [Y[:, a:b] for a, b in pairwise(ends.tolist())]


# ---- harmonics


@pytest.mark.parametrize(("d", "degree"), [(2, 9), (3, 8), (4, 5), (5, 3)])
def test_harmonics_are_orthonormal(d, degree):
    X, w = sphere(d, degree + 1)
    Y = spherical(degree, X)
    assert_close(Y.T @ (w[:, None] * Y), np.eye(Y.shape[1]), factor=4)


@every_dimension
def test_harmonics_of_a_degree_add_up_to_its_gegenbauer_polynomial(d):
    X, degree = directions(12, d), DEGREES[d]
    cos = np.clip(X @ X.T, -1, 1)
    for l, Y in enumerate(by_degree(spherical(degree, X), d, degree)):
        assert_close(Y @ Y.T, alpha(l, d) * gegenbauers(l, d, cos)[l], factor=4)


def test_harmonics_of_low_degree_are_the_known_polynomials():
    X = directions(20, 3)
    x, y, z = X.T
    Y = spherical(2, X)
    assert_close(Y[:, 1:4], 3**0.5 * X)
    known = [15**0.5 / 2 * (x * x - y * y), 15**0.5 * x * y, 15**0.5 * x * z, 15**0.5 * y * z]
    assert_close(Y[:, 4:], np.stack([*known, 5**0.5 / 2 * (3 * z * z - 1)], axis=1))
    angle = np.arctan2(y, x)
    flat = X[2:, :2] / np.hypot(x, y)[2:, None]
    circle = spherical(7, flat)[:, -2:]
    assert_close(circle, 2**0.5 * np.stack([np.cos(7 * angle), np.sin(7 * angle)], axis=1)[2:])


@every_dimension
def test_a_prefix_of_a_degree_is_the_first_of_its_harmonics(d):
    X, degree = directions(9, d), DEGREES[d]
    whole = by_degree(spherical(degree, X), d, degree)
    for count in {1, 2, d, alpha(degree, d) // 2, alpha(degree, d)}:
        if not 0 < count <= alpha(degree, d):
            continue
        blocks = np.array([degree, 0]), np.array([count, 1])
        Z = harmonic_blocks(X, d, *blocks, np.full((9, 2), 2.0))
        assert_close(Z, 2 * np.concatenate([whole[degree][:, :count], whole[0]], axis=1))


# ---- compiled loops and their twins


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("d", [1, 2, 3, 7])
@pytest.mark.parametrize("n", [0, 1, 16, 53])
def test_compiled_harmonics_are_those_of_the_twin(n, d, dtype):
    U = directions(max(n, 2), d)[:n].astype(dtype)
    counts = tuple(alpha(l, d) for l in range(4))
    plan = programme(d, counts)
    ends = np.cumsum([0, *counts]).astype(np.int32)
    first, count = ends[[2, 0, 3, 2]], np.array([counts[2], 1, 1, counts[2]], np.int32)
    count = np.minimum(count, np.array(counts)[[2, 0, 3, 2]]).astype(np.int32)
    radial = np.random.default_rng(1).random((n, 4)).astype(dtype)
    expected = native.harmonics_twin(U, plan, radial, first, count)
    assert_close(native.harmonics(U, plan, radial, first, count), expected, dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("d", [1, 2, 3, 40])
@pytest.mark.parametrize(("m", "functions"), [(1, 1), (70, 3), (600, 2)])
def test_compiled_polynomials_are_those_of_the_twin_and_of_the_series(d, m, functions, dtype):
    rng = np.random.default_rng(d)
    X, W = directions(21, d).astype(dtype), directions(m + 2, d, 1)[2:].T.astype(dtype)
    b = recurrence_of(5, d)
    up, down = (step.astype(dtype) for step in b)
    radial = rng.random((21, functions, 6)).astype(dtype)
    W = np.ascontiguousarray(W)
    Z = native.polynomials(X, W, radial, up, down)
    assert_close(Z, native.polynomials_twin(X, W, radial, up, down), dtype, factor=4)
    p = np.stack(orthonormals(5, d, np.clip(X @ W, -1, 1).astype(np.float64)))
    slow = np.einsum("nfl,lnm->nfm", radial.astype(np.float64), p).reshape(21, -1)
    assert_close(Z, slow, dtype, factor=10 if dtype == "float64" else 40)


def recurrence_of(q, d):
    """Steps of the recurrence, from the polynomials' own coefficients."""
    if d == 1:
        return np.eye(1, q)[0], np.zeros(q)
    b = coefficients(q, d)
    return 1 / b[1:], b[:-1] / b[1:]


@pytest.mark.skipif(not native.HAVE_NATIVE, reason="BLAS promises no order of its sums")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_no_bit_of_a_compiled_row_depends_on_the_others(dtype):
    X, W = directions(50, 5).astype(dtype), directions(70, 5, 1).T.astype(dtype)
    W, steps = np.ascontiguousarray(W), [s.astype(dtype) for s in recurrence_of(6, 5)]
    radial = np.random.default_rng(0).random((50, 3, 7)).astype(dtype)
    counts = tuple(alpha(l, 5) for l in range(5))
    plan, first = programme(5, counts), np.array([6, 0], np.int32)
    count, factors = np.array([14, 6], np.int32), np.ascontiguousarray(radial[:, 0, :2])
    whole = native.polynomials(X, W, radial, *steps)
    all_blocks = native.harmonics(X, plan, factors, first, count)
    for rows in (slice(0, 1), slice(7, 30), slice(33, 50)):
        part = native.polynomials(X[rows], W, radial[rows], *steps)
        assert (part == whole[rows]).all()
        blocks = native.harmonics(X[rows], plan, factors[rows], first, count)
        assert (blocks == all_blocks[rows]).all()


@pytest.mark.skipif(not native.HAVE_NATIVE, reason="twins trust their callers")
def test_a_programme_that_reads_what_is_not_there_is_refused():
    U, radial = np.ones((3, 2)), np.ones((3, 1))
    first, count = np.zeros(1, np.int32), np.ones(1, np.int32)
    good = programme(2, (1, 2))
    assert native.harmonics(U, good, radial, first, count).shape == (3, 1)
    cases = {
        "before its child": good._replace(parents=good.parents + 1),
        "no such input": good._replace(inputs=good.inputs + 4),
    }
    for message, plan in cases.items():
        with pytest.raises(ValueError, match=message):
            native.harmonics(U, plan, radial, first, count)
    with pytest.raises(ValueError, match="within the values"):
        native.harmonics(U, good, radial, first + 3, count)
    with pytest.raises(ValueError, match="rows or degrees"):
        native.polynomials(U, U.T[:, :2].copy(), np.ones((3, 1, 4)), np.ones(2), np.ones(2))


# ---- radii


@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e200])
def test_radii_and_directions_neither_overflow_nor_vanish(scale):
    X = np.random.default_rng(0).standard_normal((5, 3))
    X[2] = 0
    U, r = Polar(np.zeros(3), np.ones(3), None)(scale * X)
    assert_close(r / scale, np.linalg.norm(X, axis=1))
    assert_close(r[:, None] / scale * U, X)
    assert (U[2] == 0).all()
    assert r[2] == 0


def test_quantiles_are_radii_of_the_data_with_shares_that_add_up():
    r = np.random.default_rng(0).gamma(3.0, size=5000)
    q, share = quantiles(r, 64)
    assert (np.diff(q) > 0).all()
    assert r.min() <= q[0]
    assert q[-1] <= r.max()
    assert abs(share.sum() - 1) < 1e-12
    assert abs(q @ share - r.mean()) < 0.01 * r.mean()
    assert quantiles(np.full(9, 2.0), 64).q.tolist() == [2.0]
    assert len(quantiles(r[:5], 64).q) == 5
