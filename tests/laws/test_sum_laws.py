"""Passes over rows: sums, moments, and features that are kept or made anew."""

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
from bochner.models.unsupervised.cca import CorrelationsOf
from bochner.models.unsupervised.transformers import diagonal_of
from bochner.solvers.lloyd import CentroidsOf
from bochner.sums.moments import Accumulator, MomentsOf
from bochner.sums.passes import BRANCHES, InProcess, Summands, sample_of

# ---- sum: Every pass over rows is a sum: any cut into blocks and parts gives the sum of all rows

rng = np.random.default_rng(0)
N, D = 300, 16
X = rng.standard_normal((N, 3))
Y = np.column_stack([np.sin(X[:, 0]), X[:, 1] ** 2])
W = rng.integers(0, 3, N).astype(float)
PHI = bo.draw(Gaussian(1.0), "orthogonal", n_features=D, n_inputs=3, random_state=0)
LIBRARIES = {"torch": torch.asarray, "strict": array_api_strict.asarray}


def numbers(moments):
    """All that moments hold, as one vector."""
    parts = (moments.feature_mean, moments.target_mean, moments.gram, moments.cross, moments.power)
    return np.concatenate([[moments.rows, moments.weight], *(np.ravel(p) for p in parts)])


def of_clusters(found):
    return np.concatenate([found.sums.ravel(), found.sizes, [found.power, found.inertia]])


CENTRES = CentroidsOf(PHI(X[:4]))
PAIR = bo.KernelCCA(2, Gaussian(1.0), method="orthogonal", n_features=8, random_state=0)
SIDES = CorrelationsOf(PAIR.fit(X, Y).fit_.chosen, PAIR.fit_.chosen_y)
MOMENTS = MomentsOf(PHI, "float64")
SUMMANDS = {
    "diagonal": (diagonal_of(Gaussian(1.0)), np.array),
    "clusters": (SumOnFeatures(PHI, CENTRES), lambda total: of_clusters(CENTRES.clusters(total))),
    "halves": (SIDES, lambda total: np.hstack([numbers(MOMENTS.moments(half)) for half in total])),
    "moments": (MOMENTS, lambda total: numbers(MOMENTS.moments(total))),
    "sample": (sample_of(7), lambda total: total.X.ravel()),
}
every_summand = pytest.mark.parametrize("name", SUMMANDS)


def blocks(rows, size):
    return bo.Blocks.from_arrays(X[rows], Y[rows], W[rows], block_rows=size)


@every_summand
def test_any_cut_into_blocks_parts_and_a_tree_gives_one_sum(name, monkeypatch):
    """To rounding of sums of N rows, in another order."""
    summand, result = SUMMANDS[name]
    summed = lambda size, what=summand: InProcess().sum(what, blocks(slice(None), size))
    total = None
    for part in np.array_split(np.arange(N), 4):
        one = None
        for block in blocks(part, 40):
            one = summand.add(one, block._replace(start=block.start + int(part[0])))
        total = one if total is None else summand.merge(total, one)
    totals = [summed(1), summed(7), total]
    together = Summands(tuple(each for each, _ in SUMMANDS.values()))
    totals.append(summed(50, together)[list(SUMMANDS).index(name)])
    monkeypatch.setattr("bochner.sums.passes.PART_ROWS", 2)
    for total in (*totals, summed(5)):
        assert_close(result(total), result(summed(N)), factor=1e3)


class Words:
    """A summand that writes down in which order it was asked."""

    def add(self, total, block):
        return f"{total or ''}{block.start} "

    def merge(self, a, b):
        return f"({a}|{b})"


def tree_of(parts):
    """The definition: sixteen at a time, one merged after the other, until one is left."""
    while len(parts) > 1:
        groups = [parts[i : i + BRANCHES] for i in range(0, len(parts), BRANCHES)]
        parts = [functools.reduce(Words().merge, group) for group in groups]
    return parts[0]


@pytest.fixture
def small_parts(monkeypatch):
    """Parts of two blocks of one row."""
    monkeypatch.setattr("bochner.sums.passes.PART_ROWS", 2)


@pytest.mark.parametrize("n", [1, 2, 3, 31, 32, 33, 34, 65, 511, 512, 513, 600])
def test_sums_are_merged_as_the_tree_is_defined(small_parts, n):
    rows = bo.Blocks.from_arrays(np.zeros((n, 1)), block_rows=1)
    parts = ["".join(f"{i} " for i in range(n)[k : k + 2]) for k in range(0, n, 2)]
    assert InProcess().sum(Words(), rows) == tree_of(parts)


@every_summand
def test_merging_leaves_the_second_sum_as_it_is(name):
    """Another worker may be asked for it again."""
    summand, result = SUMMANDS[name]
    parts = [InProcess().sum(summand, blocks(rows, 20)) for rows in (slice(100), slice(100, None))]
    kept = deepcopy(parts[1])
    once = result(summand.merge(deepcopy(parts[0]), parts[1]))
    np.testing.assert_array_equal(result(summand.merge(deepcopy(parts[0]), kept)), once)
    np.testing.assert_array_equal(result(summand.merge(deepcopy(parts[0]), parts[1])), once)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_moments_are_added_up_in_the_library_of_the_rows(library, precision):
    """To NumPy's moments: rounding of products of n rows in this precision, a few times."""
    there = LIBRARIES[library]
    rows = bo.Blocks.from_arrays(there(X), Y, W, block_rows=64)
    summand = MomentsOf(PHI, precision)
    total = InProcess().sum(summand, rows)
    assert type(total._z0) is type(there(X))
    here = InProcess().sum(summand, blocks(slice(None), 64))
    ours, theirs = (summand.moments(sums) for sums in (total, here))
    bar = 10 * np.finfo(precision).eps * np.sqrt(N) * numbers(theirs).max()
    assert np.abs(numbers(ours) - numbers(theirs)).max() < bar
    assert ours.precision == precision


# ---- moment: Moments add up: in any order, in any pieces, with any weights

FIELDS = ("feature_mean", "target_mean", "gram", "cross", "power")


def sums_table(n=60, D=5, t=2, mean=0.0, seed=0):
    rng = np.random.default_rng(seed)
    Z = rng.normal(mean, 1.0, (n, D))
    return Z, Z[:, :t] - 2 + rng.normal(size=(n, t)), rng.uniform(0.1, 3.0, n)


def same_moments(a, b, factor=16.0):
    """The same sums, to rounding of the larger of two terms: spread, and W mean²."""
    assert a.rows == b.rows
    assert_close(a.weight, b.weight, factor=factor)
    for name in FIELDS:
        assert_close(getattr(a, name), getattr(b, name), factor=factor, label=name)
    return True


def equal_to_loops(m, Z, y, w=None, factor=4.0):
    for name, value in zip(("weight", *FIELDS), naive.moments(Z, y, w), strict=True):
        assert_close(getattr(m, name), value, factor=factor, label=name)


@pytest.mark.parametrize("t", [1, 3])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n", [1, 2, 60])
def test_moments_are_those_of_a_loop_over_rows(n, weighted, t):
    Z, y, w = sums_table(n, t=t, mean=2.0)
    m = Moments.of(Z, y, w if weighted else None)
    equal_to_loops(m, Z, y, w if weighted else None)
    assert (m.rows, m.n_features, m.precision) == (n, 5, "float64")
    m, zero = Moments.of(Z, y, w), Moments.of(Z, y, w).about_zero()
    assert_close(zero.gram, Z.T @ (w[:, None] * Z), factor=4)
    assert_close(zero.cross, Z.T @ (w[:, None] * y), factor=4)
    assert_close(zero.power, w @ y**2, factor=4)
    assert not zero.feature_mean.any()
    same_moments(m.decay(0.25), Moments.of(Z, y, 0.25 * w))
    counts = np.random.default_rng(1).integers(1, 5, n)
    repeated = Moments.of(np.repeat(Z, counts, axis=0), np.repeat(y, counts, axis=0))
    weighed = Moments.of(Z, y, counts.astype(float))
    assert weighed.weight == repeated.weight == repeated.rows
    for name in FIELDS:
        assert_close(getattr(weighed, name), getattr(repeated, name), factor=4, label=name)


@pytest.mark.parametrize("mean", [1e3, 1e6])
@pytest.mark.parametrize("apart", [0.0, 1.0])
def test_large_means_and_means_far_apart_take_no_digits(mean, apart):
    """Sums about zero would lose twelve digits here: all but four of sixteen."""
    Z, y, w = sums_table(mean=mean)
    Z[:20] -= apart * mean
    m = Moments.of(Z[:20], y[:20], w[:20]) + Moments.of(Z[20:], y[20:], w[20:])
    equal_to_loops(m, Z, y, w, factor=4 * mean / 100)  # rounding of Z itself: ε · mean


@settings(max_examples=60)
@given(
    cuts=st.lists(st.integers(1, 59), min_size=2, max_size=2, unique=True).map(sorted),
    mean=st.sampled_from([0.0, -5.0, 1e4]),
    weighted=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_addition_is_associative_and_any_split_is_the_same(cuts, mean, weighted, seed):
    Z, y, w = sums_table(mean=mean, seed=seed)
    w = w if weighted else np.ones(60)
    pieces = [slice(0, cuts[0]), slice(cuts[0], cuts[1]), slice(cuts[1], 60)]
    a, b, c = (Moments.of(Z[p], y[p], w[p]) for p in pieces)
    factor = 32 * max(1.0, abs(mean) / 10)
    same_moments((a + b) + c, a + (b + c), factor)
    same_moments(a + b + c, Moments.of(Z, y, w), factor)


def test_subtraction_undoes_addition():
    Z, y, w = sums_table(mean=3.0)
    a, b = Moments.of(Z[:25], y[:25], w[:25]), Moments.of(Z[25:], y[25:], w[25:])
    before = a.gram.copy(), b.gram.copy()
    same_moments((a + b) - b, a, factor=64)
    same_moments((a + b) - a, b, factor=64)
    a.decay(0.5)
    assert (a.gram == before[0]).all()
    assert (b.gram == before[1]).all()


def test_rows_of_zero_weight_take_no_part():
    Z, y, w = sums_table()
    w[:10] = w[::3] = 0
    kept = w > 0
    m = Moments.of(Z, y, w)
    same_moments(m, Moments.of(Z[kept], y[kept], w[kept]))
    assert m.rows == kept.sum()
    total = Accumulator()
    for rows in (slice(10), slice(10, None)):  # of the first none counts
        total.add(np.where(kept[:, None], Z, 1e300)[rows], y[rows], w[rows])
    same_moments(total.moments(), m)


def test_float32_products_err_by_a_known_share():
    """Of ‖G‖: below 1e-6 always, about 1e-8 for many rows; sums are float64."""
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
