"""Sums over rows: any blocks, parts and workers give the same sums and moments."""

import functools
from copy import deepcopy

import array_api_strict
import naive
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tolerance import assert_close

import bochner as bo
from bochner import Moments
from bochner.kernels import Gaussian
from bochner.models._rows import SumOnFeatures
from bochner.models.unsupervised.cca import CorrelationSum
from bochner.models.unsupervised.transformers import diagonal_of
from bochner.solvers.lloyd import CentroidSum
from bochner.sums.moments import Accumulator, MomentSum
from bochner.sums.passes import BRANCHES, Serial, Summands, sample_summand

# ---- sums are independent of blocks, parts and their order

rng = np.random.default_rng(0)
N, D = 300, 16
X = rng.standard_normal((N, 3))
Y = np.column_stack([np.sin(X[:, 0]), X[:, 1] ** 2])
W = rng.integers(0, 3, N).astype(float)
PHI = bo.draw(Gaussian(1.0), "orthogonal", n_features=D, n_inputs=3, random_state=0)
LIBRARIES = {"torch": torch.asarray, "strict": array_api_strict.asarray}


def flatten(moments):
    """Return all arrays of moments as one vector."""
    parts = (moments.feature_mean, moments.target_mean, moments.gram, moments.cross, moments.power)
    return np.concatenate([[moments.rows, moments.weight], *(np.ravel(p) for p in parts)])


def join(sums):
    return np.concatenate([sums.sums.ravel(), sums.sizes, [sums.power, sums.inertia]])


CENTRES = CentroidSum(PHI(X[:4]))
PAIR = bo.KernelCCA(2, Gaussian(1.0), method="orthogonal", n_features=8, random_state=0)
SIDES = CorrelationSum(PAIR.fit(X, Y).fit_.chosen, PAIR.fit_.chosen_y)
MOMENTS = MomentSum(PHI, "float64")
SUMMANDS = {
    "diagonal": (diagonal_of(Gaussian(1.0)), np.array),
    "clusters": (SumOnFeatures(PHI, CENTRES), lambda total: join(CENTRES.clusters(total))),
    "halves": (SIDES, lambda total: np.hstack([flatten(MOMENTS.moments(half)) for half in total])),
    "moments": (MOMENTS, lambda total: flatten(MOMENTS.moments(total))),
    "sample": (sample_summand(7), lambda total: total.X.ravel()),
}
every_summand = pytest.mark.parametrize("name", SUMMANDS)


def blocks(rows, size):
    return bo.Blocks.from_arrays(X[rows], Y[rows], W[rows], block_rows=size)


@every_summand
def test_sums_are_independent_of_blocks_and_parts(name, monkeypatch):
    """Up to rounding of sums of N rows in another order."""
    summand, result = SUMMANDS[name]
    sum_of = lambda size, value=summand: Serial().sum(value, blocks(slice(None), size))
    total = None
    for part in np.array_split(np.arange(N), 4):
        subtotal = None
        for block in blocks(part, 40):
            subtotal = summand.add(subtotal, block._replace(start=block.start + int(part[0])))
        total = subtotal if total is None else summand.merge(total, subtotal)
    totals = [sum_of(1), sum_of(7), total]
    joint_fit = Summands(tuple(item for item, _ in SUMMANDS.values()))
    totals.append(sum_of(50, joint_fit)[list(SUMMANDS).index(name)])
    monkeypatch.setattr("bochner.sums.passes.PART_ROWS", 2)
    for total in (*totals, sum_of(5)):
        assert_close(result(total), result(sum_of(N)), factor=1e3)


class Trace:
    """A summand whose total is a text: the order of its calls."""

    def add(self, total, block):
        return f"{total or ''}{block.start} "

    def merge(self, a, b):
        return f"({a}|{b})"


def tree_of(parts):
    """Return the merged text: groups of sixteen are merged from left to right until one is left."""
    while len(parts) > 1:
        groups = [parts[i : i + BRANCHES] for i in range(0, len(parts), BRANCHES)]
        parts = [functools.reduce(Trace().merge, group) for group in groups]
    return parts[0]


@pytest.fixture
def small_parts(monkeypatch):
    """Make parts of two blocks of one row."""
    monkeypatch.setattr("bochner.sums.passes.PART_ROWS", 2)


@pytest.mark.parametrize("n", [1, 2, 3, 31, 32, 33, 34, 65, 511, 512, 513, 600])
def test_sums_are_merged_in_the_order_of_the_tree(small_parts, n):
    rows = bo.Blocks.from_arrays(np.zeros((n, 1)), block_rows=1)
    parts = ["".join(f"{i} " for i in range(n)[k : k + 2]) for k in range(0, n, 2)]
    assert Serial().sum(Trace(), rows) == tree_of(parts)


@every_summand
def test_merging_does_not_change_the_second_sum(name):
    """Another worker may need it again."""
    summand, result = SUMMANDS[name]
    parts = [Serial().sum(summand, blocks(rows, 20)) for rows in (slice(100), slice(100, None))]
    copy = deepcopy(parts[1])
    expected = result(summand.merge(deepcopy(parts[0]), parts[1]))
    np.testing.assert_array_equal(result(summand.merge(deepcopy(parts[0]), copy)), expected)
    np.testing.assert_array_equal(result(summand.merge(deepcopy(parts[0]), parts[1])), expected)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_moments_are_summed_in_the_library_of_the_rows(library, precision):
    """Compared with NumPy, up to ten roundings of products of n rows in this precision."""
    asarray = LIBRARIES[library]
    rows = bo.Blocks.from_arrays(asarray(X), Y, W, block_rows=64)
    summand = MomentSum(PHI, precision)
    total = Serial().sum(summand, rows)
    assert type(total._z0) is type(asarray(X))
    numpy_total = Serial().sum(summand, blocks(slice(None), 64))
    process, reference = (summand.moments(sums) for sums in (total, numpy_total))
    bound = 10 * np.finfo(precision).eps * np.sqrt(N) * flatten(reference).max()
    assert np.abs(flatten(process) - flatten(reference)).max() < bound
    assert process.precision == precision


# ---- moments: addition, subtraction and weights

FIELDS = ("feature_mean", "target_mean", "gram", "cross", "power")


def sums_table(n=60, D=5, t=2, mean=0.0, seed=0):
    rng = np.random.default_rng(seed)
    Z = rng.normal(mean, 1.0, (n, D))
    return Z, Z[:, :t] - 2 + rng.normal(size=(n, t)), rng.uniform(0.1, 3.0, n)


def assert_moments_agree(a, b, factor=16.0):
    """Compare sums, up to rounding of the larger of the spread and W mean²."""
    assert a.rows == b.rows
    assert_close(a.weight, b.weight, factor=factor)
    for name in FIELDS:
        assert_close(getattr(a, name), getattr(b, name), factor=factor, label=name)


def assert_equal_to_loop(m, Z, y, w=None, factor=4.0):
    for name, value in zip(("weight", *FIELDS), naive.moments(Z, y, w), strict=True):
        assert_close(getattr(m, name), value, factor=factor, label=name)


@pytest.mark.parametrize("t", [1, 3])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n", [1, 2, 60])
def test_moments_equal_a_loop_over_rows(n, weighted, t):
    Z, y, w = sums_table(n, t=t, mean=2.0)
    m = Moments.of(Z, y, w if weighted else None)
    assert_equal_to_loop(m, Z, y, w if weighted else None)
    assert (m.rows, m.n_features, m.precision) == (n, 5, "float64")
    m, zero = Moments.of(Z, y, w), Moments.of(Z, y, w).about_zero()
    assert_close(zero.gram, Z.T @ (w[:, None] * Z), factor=4)
    assert_close(zero.cross, Z.T @ (w[:, None] * y), factor=4)
    assert_close(zero.power, w @ y**2, factor=4)
    assert not zero.feature_mean.any()
    assert_moments_agree(m.decay(0.25), Moments.of(Z, y, 0.25 * w))
    counts = np.random.default_rng(1).integers(1, 5, n)
    repeated = Moments.of(np.repeat(Z, counts, axis=0), np.repeat(y, counts, axis=0))
    weighted_moments = Moments.of(Z, y, counts.astype(float))
    assert weighted_moments.weight == repeated.weight == repeated.rows
    for name in FIELDS:
        assert_close(getattr(weighted_moments, name), getattr(repeated, name), factor=4, label=name)


@pytest.mark.parametrize("mean", [1e3, 1e6])
@pytest.mark.parametrize("distance", [0.0, 1.0])
def test_large_and_different_means_lose_no_digits(mean, distance):
    """Sums about zero would lose twelve of sixteen digits."""
    Z, y, w = sums_table(mean=mean)
    Z[:20] -= distance * mean
    m = Moments.of(Z[:20], y[:20], w[:20]) + Moments.of(Z[20:], y[20:], w[20:])
    assert_equal_to_loop(m, Z, y, w, factor=4 * mean / 100)  # rounding of Z itself: ε · mean


@settings(max_examples=60)
@given(
    cuts=st.lists(st.integers(1, 59), min_size=2, max_size=2, unique=True).map(sorted),
    mean=st.sampled_from([0.0, -5.0, 1e4]),
    weighted=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_addition_is_associative_for_any_split(cuts, mean, weighted, seed):
    Z, y, w = sums_table(mean=mean, seed=seed)
    w = w if weighted else np.ones(60)
    pieces = [slice(0, cuts[0]), slice(cuts[0], cuts[1]), slice(cuts[1], 60)]
    a, b, c = (Moments.of(Z[p], y[p], w[p]) for p in pieces)
    factor = 32 * max(1.0, abs(mean) / 10)
    assert_moments_agree((a + b) + c, a + (b + c), factor)
    assert_moments_agree(a + b + c, Moments.of(Z, y, w), factor)


def test_subtraction_inverts_addition():
    Z, y, w = sums_table(mean=3.0)
    a, b = Moments.of(Z[:25], y[:25], w[:25]), Moments.of(Z[25:], y[25:], w[25:])
    original = a.gram.copy(), b.gram.copy()
    assert_moments_agree((a + b) - b, a, factor=64)
    assert_moments_agree((a + b) - a, b, factor=64)
    a.decay(0.5)
    assert (a.gram == original[0]).all()
    assert (b.gram == original[1]).all()


def test_rows_of_weight_zero_are_ignored():
    Z, y, w = sums_table()
    w[:10] = w[::3] = 0
    positive = w > 0
    m = Moments.of(Z, y, w)
    assert_moments_agree(m, Moments.of(Z[positive], y[positive], w[positive]))
    assert m.rows == positive.sum()
    total = Accumulator()
    for rows in (slice(10), slice(10, None)):  # the first block has no weight
        total.add(np.where(positive[:, None], Z, 1e300)[rows], y[rows], w[rows])
    assert_moments_agree(total.moments(), m)


def test_float32_products_have_the_stated_relative_error():
    """Below 1e-6 of ‖G‖, about 1e-8 for many rows, as products are summed in float64."""
    rng = np.random.default_rng(0)
    Z = rng.normal(1.0, 1.0, (30_000, 40)) * np.logspace(0, -4, 40)
    y = rng.normal(size=(30_000, 1))
    single, double = Moments.of(Z, y, None, "float32"), Moments.of(Z, y)
    error = np.linalg.norm(single.gram - double.gram, 2) / np.linalg.norm(double.gram, 2)
    assert 1e-12 < error < 1e-6
    for name in FIELDS:
        assert getattr(single, name).dtype == np.float64
        assert_close(getattr(single, name), getattr(double, name), np.float32, label=name)
    assert (single + double).precision == (double + single).precision == "float32"
    assert (double + double).precision == "float64"
