"""Passes over rows: sums, moments, and features that are kept or made anew."""

import functools
import itertools
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
from bochner import Blocks, Moments
from bochner.errors import IncompatibleModels, InvalidInput
from bochner.kernels import Gaussian
from bochner.models._rows import Features, SumOnFeatures
from bochner.models.unsupervised.base import DiagonalOf
from bochner.models.unsupervised.cca import CorrelationsOf
from bochner.solvers.lloyd import CentroidsOf
from bochner.sums.executor import InProcess, Together
from bochner.sums.moments import Accumulator, MomentsOf
from bochner.sums.rows import SampleOf
from bochner.sums.tree import BRANCHES

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


def of_folds(folds):
    return np.concatenate([numbers(fold) for fold in folds])


def of_clusters(found):
    return np.concatenate([found.sums.ravel(), found.sizes, [found.power, found.inertia]])


CENTRES = CentroidsOf(PHI(X[:4]))
PAIR = bo.KernelCCA(2, Gaussian(1.0), method="orthogonal", n_features=8, random_state=0)
SIDES = CorrelationsOf(PAIR.fit(X, Y).fit_.chosen, PAIR.fit_.chosen_y)
MOMENTS = MomentsOf(PHI, "float64")
SUMMANDS = {
    "diagonal": (DiagonalOf(Gaussian(1.0).diag), np.array),
    "clusters": (SumOnFeatures(PHI, CENTRES), lambda total: of_clusters(CENTRES.clusters(total))),
    "halves": (SIDES, lambda total: of_folds(SIDES.halves(total))),
    "moments": (MOMENTS, lambda total: numbers(MOMENTS.moments(total))),
    "sample": (SampleOf(7), lambda total: total.X.ravel()),
}
every_summand = pytest.mark.parametrize("name", SUMMANDS)


def blocks(rows, size):
    return bo.Blocks.from_arrays(X[rows], Y[rows], W[rows], block_rows=size)


@every_summand
@pytest.mark.parametrize("size", [1, 7, 300])
def test_blocks_of_any_size_give_one_sum(name, size):
    summand, result = SUMMANDS[name]
    whole = result(InProcess().sum(summand, blocks(slice(None), N)))
    assert_close(result(InProcess().sum(summand, blocks(slice(None), size))), whole, factor=1e3)


@every_summand
def test_parts_are_merged_into_the_sum_of_all_rows(name):
    summand, result = SUMMANDS[name]
    total = summand.zero()
    for part in np.array_split(np.arange(N), 4):
        one = summand.zero()
        for block in blocks(part, 40):
            one = summand.add(one, block._replace(start=block.start + int(part[0])))
        total = one if part[0] == 0 else summand.merge(total, one)
    whole = result(InProcess().sum(summand, blocks(slice(None), N)))
    assert_close(result(total), whole, factor=1e3)


@every_summand
def test_a_part_without_rows_changes_nothing(name):
    summand, result = SUMMANDS[name]
    whole = InProcess().sum(summand, blocks(slice(None), 50))
    first = summand.merge(summand.zero(), InProcess().sum(summand, blocks(slice(None), 50)))
    assert_close(result(summand.merge(first, summand.zero())), result(whole), factor=1e3)


def test_several_sums_are_made_in_one_pass():
    summands = tuple(summand for summand, _ in SUMMANDS.values())
    totals = InProcess().sum(Together(summands), blocks(slice(None), 50))
    for total, (summand, result) in zip(totals, SUMMANDS.values(), strict=True):
        assert_close(result(total), result(InProcess().sum(summand, blocks(slice(None), 50))))


# ---- the tree


class Words:
    """A summand that writes down in which order it was asked."""

    def zero(self):
        return ""

    def add(self, total, block):
        return f"{total}{block.start} "

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
    monkeypatch.setattr("bochner.sums.tree.PART_ROWS", 2)


@pytest.mark.parametrize("n", [1, 2, 3, 31, 32, 33, 34, 65, 511, 512, 513, 600])
def test_sums_are_merged_as_the_tree_is_defined(small_parts, n):
    rows = bo.Blocks.from_arrays(np.zeros((n, 1)), block_rows=1)
    parts = ["".join(f"{i} " for i in range(n)[k : k + 2]) for k in range(0, n, 2)]
    assert InProcess().sum(Words(), rows) == tree_of(parts)


@every_summand
def test_sums_of_the_tree_are_those_of_one_block(small_parts, name):
    """To rounding of sums of N rows, in another order."""
    summand, result = SUMMANDS[name]
    whole = result(InProcess().sum(summand, blocks(slice(None), N)))
    assert_close(result(InProcess().sum(summand, blocks(slice(None), 5))), whole, factor=1e3)


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
def test_sums_on_devices_are_merged(library):
    """To NumPy's: rounding of products of n rows, a few times."""
    there = LIBRARIES[library]
    summand = MomentsOf(PHI, "float64")
    parts = [
        InProcess().sum(summand, bo.Blocks.from_arrays(there(X[s]), Y[s], W[s]))
        for s in (slice(90), slice(90, None))
    ]
    ours = numbers(summand.moments(summand.merge(*parts)))
    theirs = numbers(summand.moments(InProcess().sum(summand, blocks(slice(None), N))))
    assert np.abs(ours - theirs).max() < 10 * np.finfo(float).eps * np.sqrt(N) * theirs.max()


def test_means_far_apart_lose_no_digits():
    """Parts about means 1e6 standard deviations apart: what is lost is that of the sum of all."""
    Z = rng.standard_normal((200, 3)) + np.repeat([[0.0], [1e6]], 100, axis=0)
    both = MomentsOf(lambda Z: Z, "float64")
    parts = [
        InProcess().sum(both, bo.Blocks.from_arrays(Z[s], Z[s, 0]))
        for s in (slice(100), slice(100, None))
    ]
    moments = both.moments(both.merge(*parts))
    exact = (Z - Z.mean(axis=0)).T @ (Z - Z.mean(axis=0))
    assert np.abs(moments.gram - exact).max() < 1e-15 * 200 * 1e12 * 10


# ---- on the device of the features


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_moments_are_added_up_in_the_library_of_the_rows(library, precision):
    """To NumPy's moments: rounding of products of n rows in this precision, a few times."""
    there = LIBRARIES[library]
    rows = bo.Blocks.from_arrays(there(X), Y, W, block_rows=64)
    summand = MomentsOf(PHI, precision)
    total = InProcess().sum(summand, rows)
    assert type(total[0]._z0) is type(there(X))
    here = InProcess().sum(summand, blocks(slice(None), 64))
    ours, theirs = (summand.moments(sums) for sums in (total, here))
    eps = np.finfo(precision).eps
    bar = 10 * eps * np.sqrt(N) * numbers(theirs).max()
    assert np.abs(numbers(ours) - numbers(theirs)).max() < bar
    assert ours.precision == precision


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_fit_to_rows_of_another_library_is_that_of_numpy(library):
    there = LIBRARIES[library]
    options = dict(method="orthogonal", n_features=D, alpha=0.1, random_state=0)
    ours = bo.KernelRidge(Gaussian(1.0), **options).fit(there(X), there(Y))
    theirs = bo.KernelRidge(Gaussian(1.0), **options).fit(X, Y)
    assert_close(np.asarray(ours.predict(there(X))), theirs.predict(X), factor=1e5)


def test_a_planted_sum_of_one_block_is_seen():
    """A summand that forgets what it had."""

    class Forgets(MomentsOf):
        def add(self, total, block):  # noqa: ARG002
            return MomentsOf.add(self, [], block)

    summand, result = Forgets(PHI, "float64"), SUMMANDS["moments"][1]
    one = result(InProcess().sum(summand, blocks(slice(None), 50)))
    assert abs(one - result(InProcess().sum(summand, blocks(slice(None), N)))).max() > 1


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
    expected = naive.moments(Z, y, w)
    for name, value in zip(("weight", *FIELDS), expected, strict=True):
        assert_close(getattr(m, name), value, factor=factor, label=name)


@pytest.mark.parametrize("t", [1, 3])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n", [1, 2, 60])
def test_moments_are_those_of_a_loop_over_rows(n, weighted, t):
    Z, y, w = sums_table(n, t=t)
    m = Moments.of(Z, y, w if weighted else None)
    equal_to_loops(m, Z, y, w if weighted else None)
    assert (m.rows, m.n_features, m.precision) == (n, 5, "float64")


def test_one_target_may_be_a_column_or_a_row_of_numbers():
    Z, y, w = sums_table(t=1)
    same_moments(Moments.of(Z, y[:, 0], w), Moments.of(Z, y, w))


@pytest.mark.parametrize("mean", [1e3, 1e6])
def test_a_large_mean_takes_no_digits(mean):
    """Sums about zero would lose twelve digits here: all but four of sixteen."""
    Z, y, w = sums_table(mean=mean)
    m = Moments.of(Z[:20], y[:20], w[:20]) + Moments.of(Z[20:], y[20:], w[20:])
    equal_to_loops(m, Z, y, w, factor=4 * mean / 100)  # rounding of Z itself: ε · mean
    G = naive.moments(Z, y, w)[3].astype(float)
    about_zero = Z.T @ (w[:, None] * Z) - w.sum() * np.outer(*[w @ Z / w.sum()] * 2)
    if mean == 1e6:  # the planted fault
        assert np.abs(about_zero - G).max() > 100 * np.abs(m.gram - G).max()


def test_about_zero_are_the_plain_sums():
    Z, y, w = sums_table(mean=2.0)
    m = Moments.of(Z, y, w).about_zero()
    assert_close(m.gram, Z.T @ (w[:, None] * Z), factor=4)
    assert_close(m.cross, Z.T @ (w[:, None] * y), factor=4)
    assert_close(m.power, w @ y**2, factor=4)
    assert not m.feature_mean.any()
    assert not m.target_mean.any()


# ---- addition


def test_merge_in_any_order_is_the_same():
    Z, y, w = sums_table(mean=3.0)
    whole = Moments.of(Z, y, w)
    parts = [Moments.of(Z[i:j], y[i:j], w[i:j]) for i, j in ((0, 7), (7, 8), (8, 40), (40, 60))]
    for a, b, c, d in itertools.permutations(parts):
        same_moments(((a + b) + c) + d, whole)
        same_moments((a + b) + (c + d), whole)


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


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_blocks_of_any_size_give_the_same_moments(precision):
    Z, y, w = sums_table(500)
    whole = Moments.of(Z, y, w, precision)
    for size in (1, 7, 128):
        total = Accumulator(precision)
        for i in range(0, 500, size):
            total.add(Z[i : i + size], y[i : i + size], w[i : i + size])
        m = total.moments()
        for name in FIELDS:
            assert_close(getattr(m, name), getattr(whole, name), precision, factor=4, label=name)


def test_subtraction_undoes_addition():
    Z, y, w = sums_table(mean=3.0)
    a, b = Moments.of(Z[:25], y[:25], w[:25]), Moments.of(Z[25:], y[25:], w[25:])
    same_moments((a + b) - b, a, factor=64)
    same_moments((a + b) - a, b, factor=64)


def test_leaving_a_fold_out_is_a_subtraction():
    Z, y, w = sums_table()
    whole, fold = Moments.of(Z, y, w), slice(20, 40)
    kept = np.r_[0:20, 40:60]
    same_moments(
        whole - Moments.of(Z[fold], y[fold], w[fold]), Moments.of(Z[kept], y[kept], w[kept]), 64
    )


def test_precision_of_a_sum_is_the_lower_of_the_two():
    Z, y, w = sums_table()
    a, b = Moments.of(Z, y, w, "float32"), Moments.of(Z, y, w)
    assert (a + b).precision == (b + a).precision == (a + a).precision == "float32"
    assert (b + b).precision == "float64"


def test_moments_that_do_not_fit_are_refused():
    Z, y, w = sums_table()
    a = Moments.of(Z, y, w)
    with pytest.raises(IncompatibleModels, match=r"same features and targets.*D=5, t=2 and D=4"):
        a + Moments.of(Z[:, :4], y, w)
    with pytest.raises(IncompatibleModels, match=r"same features and targets.*t=2 and D=5, t=1"):
        a + Moments.of(Z, y[:, :1], w)
    with pytest.raises(
        IncompatibleModels, match=r"must be part of what is there; asked to take 60"
    ):
        Moments.of(Z[:5], y[:5], w[:5]) - a
    with pytest.raises(IncompatibleModels, match=r"must be part of what is there"):
        a - a


# ---- weights


def test_whole_weights_are_repeated_rows():
    Z, y, _ = sums_table()
    counts = np.random.default_rng(1).integers(1, 5, 60)
    m = Moments.of(Z, y, counts.astype(float))
    repeated = Moments.of(np.repeat(Z, counts, axis=0), np.repeat(y, counts, axis=0))
    assert m.weight == repeated.weight == repeated.rows
    for name in FIELDS:
        assert_close(getattr(m, name), getattr(repeated, name), factor=4, label=name)


def test_rows_of_zero_weight_take_no_part():
    Z, y, w = sums_table()
    w[::3] = 0
    kept = w > 0
    m = Moments.of(Z, y, w)
    same_moments(m, Moments.of(Z[kept], y[kept], w[kept]))
    assert m.rows == kept.sum()
    wild = Z.copy()
    wild[::3] = 1e300
    same_moments(Moments.of(wild, y, w), m)


def test_a_first_block_of_zero_weights_is_passed_over():
    Z, y, w = sums_table()
    total = Accumulator()
    total.add(Z[:10], y[:10], np.zeros(10))
    total.add(Z[10:], y[10:], w[10:])
    same_moments(total.moments(), Moments.of(Z[10:], y[10:], w[10:]))


@pytest.mark.parametrize("bad", [-1.0, np.nan, np.inf])
def test_weights_that_are_no_weights_are_refused(bad):
    Z, y, w = sums_table()
    w[3] = bad
    with pytest.raises(InvalidInput, match=r"sample_weight must be finite and not neg.*; got"):
        Moments.of(Z, y, w)


def test_weights_that_are_all_nan_are_refused_without_a_warning():
    Z, y, w = sums_table()
    with pytest.raises(InvalidInput, match=r"sample_weight must be finite"):
        Moments.of(Z, y, np.nan * w)


def test_no_rows_are_refused():
    Z, y, w = sums_table()
    with pytest.raises(InvalidInput, match=r"at least one row with a positive weight"):
        Moments.of(Z, y, 0 * w)
    with pytest.raises(InvalidInput, match=r"at least one row with a positive weight"):
        Accumulator().moments()


def test_decay_is_a_smaller_weight_for_all_rows():
    Z, y, w = sums_table(mean=2.0)
    same_moments(Moments.of(Z, y, w).decay(0.25), Moments.of(Z, y, 0.25 * w))
    same_moments(Moments.of(Z, y, w).decay(1.0), Moments.of(Z, y, w))
    stream = Moments.of(Z[:30], y[:30], w[:30]).decay(0.5) + Moments.of(Z[30:], y[30:], w[30:])
    same_moments(stream, Moments.of(Z, y, w * np.repeat([0.5, 1.0], 30)))


@pytest.mark.parametrize("factor", [0.0, -0.5, 1.5, np.nan])
def test_a_decay_outside_zero_to_one_is_refused(factor):
    with pytest.raises(InvalidInput, match=r"factor must lie in \(0, 1\]; got"):
        Moments.of(*sums_table()).decay(factor)


# ---- precision and arguments


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


def test_the_gram_is_symmetric_to_the_last_bit():
    for precision in ("float32", "float64"):
        G = Moments.of(*sums_table(300, D=17), precision).gram
        assert (G == G.T).all()


def test_arguments_are_unchanged_and_may_be_read_only():
    arrays = sums_table()
    before = [a.copy() for a in arrays]
    for a in arrays:
        a.flags.writeable = False
    for precision in ("float32", "float64"):
        Moments.of(*arrays, precision)
    for a, b in zip(arrays, before, strict=True):
        assert (a == b).all()


def test_adding_leaves_both_sides_as_they_were():
    Z, y, w = sums_table()
    a, b = Moments.of(Z[:25], y[:25], w[:25]), Moments.of(Z[25:], y[25:], w[25:])
    before = a.gram.copy(), b.gram.copy()
    a + b, a - Moments.of(Z[:5], y[:5], w[:5]), a.decay(0.5), a.about_zero()
    assert (a.gram == before[0]).all()
    assert (b.gram == before[1]).all()


# ---- feature block: Features for many sweeps: the same numbers whether they are kept or made anew


KEPT_RNG = np.random.default_rng(0)
KEPT_X, KEPT_Y, KEPT_W = (
    KEPT_RNG.standard_normal((700, 2)),
    KEPT_RNG.standard_normal(700),
    KEPT_RNG.uniform(1, 2, 700),
)


class Counted:
    """An iterable that counts how often it is read."""

    def __init__(self):
        self.passes = 0

    def __call__(self):
        self.passes += 1
        return iter(
            [(KEPT_X[:300], KEPT_Y[:300], KEPT_W[:300]), (KEPT_X[300:], KEPT_Y[300:], KEPT_W[300:])]
        )


@pytest.fixture
def phi():
    return bo.draw(Gaussian(), "orthogonal", n_features=16384, n_inputs=2, random_state=0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("room", "kept"), [(None, True), (1 << 40, True), (1 << 20, False), (0, False)]
)
def test_kept_features_are_those_made_anew(phi, dtype, room, kept):
    source = Counted()
    features = Features(phi, Blocks.from_iterable(source), dtype, most_bytes=room)
    before = source.passes
    first = [(b.Z.copy(), b.y, b.w, b.start) for b in features]
    assert features.cached is kept
    for block, (Z, y, w, start) in zip(features, first, strict=True):
        assert np.array_equal(block.Z, Z)
        assert block.Z.dtype == np.dtype(dtype)
        assert np.array_equal(block.y, y)
        assert np.array_equal(block.w, w)
        assert block.start == start
    assert source.passes - before == (1 if kept else 2)
    assert features.n_rows == 700
    assert [start for *_, start in first] == [0, 256, 512]


def test_a_pass_that_is_left_keeps_nothing(phi):
    features = Features(phi, Blocks.from_arrays(KEPT_X, KEPT_Y, KEPT_W), "float32")
    next(iter(features))
    assert not features.cached
    assert sum(len(b.Z) for b in features) == 700
