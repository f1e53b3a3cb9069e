"""Moments add up: in any order, in any pieces, with any weights."""

import itertools

import naive
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tolerance import assert_close

from bochner import Moments
from bochner.errors import IncompatibleModels, InvalidInput
from bochner.sums.moments import Accumulator

FIELDS = ("feature_mean", "target_mean", "gram", "cross", "power")


def table(n=60, D=5, t=2, mean=0.0, seed=0):
    rng = np.random.default_rng(seed)
    Z = rng.normal(mean, 1.0, (n, D))
    return Z, Z[:, :t] - 2 + rng.normal(size=(n, t)), rng.uniform(0.1, 3.0, n)


def same(a, b, factor=16.0):
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
    Z, y, w = table(n, t=t)
    m = Moments.of(Z, y, w if weighted else None)
    equal_to_loops(m, Z, y, w if weighted else None)
    assert (m.rows, m.n_features, m.precision) == (n, 5, "float64")


def test_one_target_may_be_a_column_or_a_row_of_numbers():
    Z, y, w = table(t=1)
    same(Moments.of(Z, y[:, 0], w), Moments.of(Z, y, w))


@pytest.mark.parametrize("mean", [1e3, 1e6])
def test_a_large_mean_takes_no_digits(mean):
    """Sums about zero would lose twelve digits here: all but four of sixteen."""
    Z, y, w = table(mean=mean)
    m = Moments.of(Z[:20], y[:20], w[:20]) + Moments.of(Z[20:], y[20:], w[20:])
    equal_to_loops(m, Z, y, w, factor=4 * mean / 100)  # rounding of Z itself: ε · mean
    G = naive.moments(Z, y, w)[3].astype(float)
    about_zero = Z.T @ (w[:, None] * Z) - w.sum() * np.outer(*[w @ Z / w.sum()] * 2)
    if mean == 1e6:  # the planted fault
        assert np.abs(about_zero - G).max() > 100 * np.abs(m.gram - G).max()


def test_about_zero_are_the_plain_sums():
    Z, y, w = table(mean=2.0)
    m = Moments.of(Z, y, w).about_zero()
    assert_close(m.gram, Z.T @ (w[:, None] * Z), factor=4)
    assert_close(m.cross, Z.T @ (w[:, None] * y), factor=4)
    assert_close(m.power, w @ y**2, factor=4)
    assert not m.feature_mean.any()
    assert not m.target_mean.any()


# ---- addition


def test_merge_in_any_order_is_the_same():
    Z, y, w = table(mean=3.0)
    whole = Moments.of(Z, y, w)
    parts = [Moments.of(Z[i:j], y[i:j], w[i:j]) for i, j in ((0, 7), (7, 8), (8, 40), (40, 60))]
    for a, b, c, d in itertools.permutations(parts):
        same(((a + b) + c) + d, whole)
        same((a + b) + (c + d), whole)


@settings(max_examples=60)
@given(
    cuts=st.lists(st.integers(1, 59), min_size=2, max_size=2, unique=True).map(sorted),
    mean=st.sampled_from([0.0, -5.0, 1e4]),
    weighted=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_addition_is_associative_and_any_split_is_the_same(cuts, mean, weighted, seed):
    Z, y, w = table(mean=mean, seed=seed)
    w = w if weighted else np.ones(60)
    pieces = [slice(0, cuts[0]), slice(cuts[0], cuts[1]), slice(cuts[1], 60)]
    a, b, c = (Moments.of(Z[p], y[p], w[p]) for p in pieces)
    factor = 32 * max(1.0, abs(mean) / 10)
    same((a + b) + c, a + (b + c), factor)
    same(a + b + c, Moments.of(Z, y, w), factor)


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_blocks_of_any_size_give_the_same_moments(precision):
    Z, y, w = table(500)
    whole = Moments.of(Z, y, w, precision)
    for size in (1, 7, 128):
        total = Accumulator(precision)
        for i in range(0, 500, size):
            total.add(Z[i : i + size], y[i : i + size], w[i : i + size])
        m = total.moments()
        for name in FIELDS:
            assert_close(getattr(m, name), getattr(whole, name), precision, factor=4, label=name)


def test_subtraction_undoes_addition():
    Z, y, w = table(mean=3.0)
    a, b = Moments.of(Z[:25], y[:25], w[:25]), Moments.of(Z[25:], y[25:], w[25:])
    same((a + b) - b, a, factor=64)
    same((a + b) - a, b, factor=64)


def test_leaving_a_fold_out_is_a_subtraction():
    Z, y, w = table()
    whole, fold = Moments.of(Z, y, w), slice(20, 40)
    kept = np.r_[0:20, 40:60]
    same(whole - Moments.of(Z[fold], y[fold], w[fold]), Moments.of(Z[kept], y[kept], w[kept]), 64)


def test_precision_of_a_sum_is_the_lower_of_the_two():
    Z, y, w = table()
    a, b = Moments.of(Z, y, w, "float32"), Moments.of(Z, y, w)
    assert (a + b).precision == (b + a).precision == (a + a).precision == "float32"
    assert (b + b).precision == "float64"


def test_moments_that_do_not_fit_are_refused():
    Z, y, w = table()
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
    Z, y, _ = table()
    counts = np.random.default_rng(1).integers(1, 5, 60)
    m = Moments.of(Z, y, counts.astype(float))
    repeated = Moments.of(np.repeat(Z, counts, axis=0), np.repeat(y, counts, axis=0))
    assert m.weight == repeated.weight == repeated.rows
    for name in FIELDS:
        assert_close(getattr(m, name), getattr(repeated, name), factor=4, label=name)


def test_rows_of_zero_weight_take_no_part():
    Z, y, w = table()
    w[::3] = 0
    kept = w > 0
    m = Moments.of(Z, y, w)
    same(m, Moments.of(Z[kept], y[kept], w[kept]))
    assert m.rows == kept.sum()
    wild = Z.copy()
    wild[::3] = 1e300
    same(Moments.of(wild, y, w), m)


def test_a_first_block_of_zero_weights_is_passed_over():
    Z, y, w = table()
    total = Accumulator()
    total.add(Z[:10], y[:10], np.zeros(10))
    total.add(Z[10:], y[10:], w[10:])
    same(total.moments(), Moments.of(Z[10:], y[10:], w[10:]))


@pytest.mark.parametrize("bad", [-1.0, np.nan, np.inf])
def test_weights_that_are_no_weights_are_refused(bad):
    Z, y, w = table()
    w[3] = bad
    with pytest.raises(InvalidInput, match=r"sample_weight must be finite and not neg.*; got"):
        Moments.of(Z, y, w)


def test_weights_that_are_all_nan_are_refused_without_a_warning():
    Z, y, w = table()
    with pytest.raises(InvalidInput, match=r"sample_weight must be finite"):
        Moments.of(Z, y, np.nan * w)


def test_no_rows_are_refused():
    Z, y, w = table()
    with pytest.raises(InvalidInput, match=r"at least one row with a positive weight"):
        Moments.of(Z, y, 0 * w)
    with pytest.raises(InvalidInput, match=r"at least one row with a positive weight"):
        Accumulator().moments()


def test_decay_is_a_smaller_weight_for_all_rows():
    Z, y, w = table(mean=2.0)
    same(Moments.of(Z, y, w).decay(0.25), Moments.of(Z, y, 0.25 * w))
    same(Moments.of(Z, y, w).decay(1.0), Moments.of(Z, y, w))
    stream = Moments.of(Z[:30], y[:30], w[:30]).decay(0.5) + Moments.of(Z[30:], y[30:], w[30:])
    same(stream, Moments.of(Z, y, w * np.repeat([0.5, 1.0], 30)))


@pytest.mark.parametrize("factor", [0.0, -0.5, 1.5, np.nan])
def test_a_decay_outside_zero_to_one_is_refused(factor):
    with pytest.raises(InvalidInput, match=r"factor must lie in \(0, 1\]; got"):
        Moments.of(*table()).decay(factor)


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
        G = Moments.of(*table(300, D=17), precision).gram
        assert (G == G.T).all()


def test_arguments_are_unchanged_and_may_be_read_only():
    arrays = table()
    before = [a.copy() for a in arrays]
    for a in arrays:
        a.flags.writeable = False
    for precision in ("float32", "float64"):
        Moments.of(*arrays, precision)
    for a, b in zip(arrays, before, strict=True):
        assert (a == b).all()


def test_adding_leaves_both_sides_as_they_were():
    Z, y, w = table()
    a, b = Moments.of(Z[:25], y[:25], w[:25]), Moments.of(Z[25:], y[25:], w[25:])
    before = a.gram.copy(), b.gram.copy()
    a + b, a - Moments.of(Z[:5], y[:5], w[:5]), a.decay(0.5), a.about_zero()
    assert (a.gram == before[0]).all()
    assert (b.gram == before[1]).all()
