"""Dense Hessians: ways over some of the rows end where those over all do; sums that change."""

from typing import NamedTuple

import numpy as np
import pytest

from bochner.solvers.convex.class_losses import Logistic, SquaredHinge
from bochner.solvers.convex.dense import DenseProblem, Table, changed, factored
from bochner.solvers.convex.driver import minimise
from bochner.solvers.convex.factors import cholesky, solved
from bochner.solvers.convex.optimum import Convergence, Dense, Newton
from bochner.solvers.convex.problem import next_best_length
from bochner.solvers.lloyd import in_order


class Block(NamedTuple):
    Z: np.ndarray
    y: np.ndarray
    w: np.ndarray | None
    start: int


class Kept(list):
    """Blocks that are kept in memory."""

    cached = True

    @property
    def n_features(self):
        return self[0].Z.shape[1]

    def sum(self, summand):
        return in_order(summand, self)


def source(Z, y, w=None, dtype="float64"):
    Z = Z.astype(dtype)
    cut = [slice(i, i + 1000) for i in range(0, len(Z), 1000)]
    return Kept(Block(Z[s], y[s], None if w is None else w[s], s.start) for s in cut)


@pytest.fixture(scope="module")
def many():
    """4000 rows in five classes, of which the last has 21."""
    rng = np.random.default_rng(7)
    Z = rng.standard_normal((4000, 8))
    codes = np.argmax(Z[:, :4] + 0.5 * rng.standard_normal((4000, 4)), axis=1).astype(float)
    codes[::199] = 4
    Z[codes == 4, 5] += 3
    return Z, codes


def five(codes):
    return 2.0 * (codes[:, None] == np.arange(5)) - 1


@pytest.mark.parametrize("loss", [SquaredHinge(), Logistic()], ids=repr)
def test_a_way_over_few_rows_ends_where_the_way_over_all_does(many, loss):
    Z, codes = many
    w = np.random.default_rng(8).uniform(0.5, 2, len(Z))
    features = source(Z, codes, w)
    short = minimise(features, loss, 2.0, targets=five, tol=1e-12)
    single = minimise(source(Z, codes, w, dtype="float32"), loss, 2.0, targets=five, tol=1e-7)
    all_rows = Newton(Dense(fewest=len(Z)))
    long = minimise(features, loss, 2.0, targets=five, tol=1e-12, algorithm=all_rows)
    assert (short.algorithm, long.algorithm) == (Newton(Dense()), all_rows)
    np.testing.assert_allclose(short.coef, long.coef, atol=1e-8)
    np.testing.assert_allclose(single.coef, long.coef, atol=1e-3)
    assert len(short.history) < len(long.history)


@pytest.mark.parametrize("intercept", [True, False])
def test_sweeps_before_newtons_steps_end_where_the_steps_alone_do(many, intercept):
    """Of wide features rows are not thinned: the first sweeps lead on instead."""
    Z, codes = many
    w = np.random.default_rng(8).uniform(0.5, 2, len(Z))
    ask = {"targets": five, "tol": 1e-12, "fit_intercept": intercept}
    alone, swept = (
        minimise(source(Z, codes, w), SquaredHinge(), 2.0, algorithm=Newton(steps), **ask)
        for steps in (Dense(fewest=len(Z)), Dense(fewest=len(Z), wide=8))
    )
    np.testing.assert_allclose(swept.coef, alone.coef, atol=1e-8)
    np.testing.assert_allclose(swept.intercept, alone.intercept, atol=1e-8)
    assert swept.history.decrease[0] < alone.history.decrease[0] / 100


def test_one_length_is_where_the_slope_is_a_tenth_of_that_at_zero():
    """Beyond the whole way, before it, past infinities, not at all, and no farther than allowed."""
    slopes = {
        3.0: lambda t: t - 3.0,
        0.01: lambda t: t - 0.01,
        0.5: lambda t: np.inf if t > 0.6 else t - 0.5,
        1.4: lambda t: t - 1 if t < 1 else 0.1 * (t - 1) - 0.04 if t < 1.4 else 5 * (t - 1.4),
        0.2: lambda t: np.expm1(30 * (t - 0.2)),
    }
    for slope in slopes.values():
        first = float(slope(0.0))
        length = next_best_length(slope, first, 8.0)
        assert abs(slope(length)) <= 0.1 * abs(first)
    assert next_best_length(lambda t: t - 100.0, -100.0, 8.0) == 8.0
    assert next_best_length(lambda t: -1.0, -1.0, 8.0) == 8.0
    assert next_best_length(lambda t: t, 0.0, 8.0) == 0.0
    assert next_best_length(lambda t: t, np.nan, 8.0) == 0.0


def test_thinned_rows_stand_for_all_and_few_are_kept(many):
    Z, codes = many
    w = np.random.default_rng(9).uniform(0.5, 2, len(Z))
    whole = Table([Z[:1001], Z[1001:]], five(codes).T.copy(), w)
    few = whole.thinned(4)
    rare = codes == 4
    kept = rare | (np.arange(len(Z)) % 4 == 0)
    np.testing.assert_array_equal(few.pieces[0], Z[kept])
    np.testing.assert_array_equal(few.y, whole.y[:, kept])
    np.testing.assert_array_equal(few.w, np.where(rare, w, 4 * w)[kept])
    assert kept.sum() < 1021


def test_rows_of_many_small_classes_are_thinned_all_the_same():
    codes = np.random.default_rng(11).permutation(np.arange(4000) % 40)
    signs = lambda codes: 2.0 * (codes[:, None] == np.arange(40)) - 1
    Z = np.column_stack([np.cos(codes), np.sin(codes)])
    few = Table([Z], signs(codes).T.copy(), np.ones(4000)).thinned(4)
    assert len(few.w) == 1000
    found = minimise(source(Z, codes), SquaredHinge(), 1.0, targets=signs)
    assert found.outcome is Convergence.CONVERGED


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("share", [0.02, 0.9])
def test_a_changed_sum_is_the_new_one(many, dtype, share):
    """A few rows changed are added and taken away; many make a new sum."""
    Z = many[0].astype(dtype)
    rng = np.random.default_rng(10)
    table = Table([Z[:1001], Z[1001:]], np.ones((1, 4000)), np.ones(4000))
    c = rng.integers(0, 3, 4000) * 1.0
    new = np.where(rng.random(4000) < share, rng.integers(0, 3, 4000), c)
    found = changed(table, changed(table, None, c), new)
    ones = np.column_stack([Z, np.ones(4000)]).astype(float)
    expected = np.triu(ones.T @ (new[:, None] * ones))
    atol = 1e-9 if dtype == "float64" else 1e-2
    np.testing.assert_allclose(np.triu(found.total), expected, atol=atol)
    assert (found.drift > 0) == (share < 0.5)


@pytest.mark.parametrize("power", [14, 12, 10, 8, 7, 6])
def test_a_hessian_gets_little_more_of_its_diagonal_than_it_needs(power):
    """[[1, 1 + s], [1 + s, 1]] needs s: it gets up to a hundred times that, from 1e-8 on ten times."""
    needed = 1.05 * 10.0**-power
    H = np.array([[1.0, 1.0 + needed], [1.0 + needed, 1.0]])
    factor = np.triu(cholesky(H, np.ones(2), True))
    added = factor.T @ factor - H
    np.testing.assert_allclose(added, added[0, 0] * np.eye(2), atol=1e-15)
    assert needed < added[0, 0] <= (100 if power > 8 else 10) * needed


@pytest.mark.parametrize(
    ("dtype", "alpha", "single"),
    [("float32", 1.0, True), ("float32", 1e-4, False), ("float64", 1.0, False)],
)
def test_a_factor_has_single_precision_where_that_resolves_the_penalty(dtype, alpha, single):
    """Two columns are equal, and all numbers are whole: only the penalty tells them apart."""
    rng = np.random.default_rng(3)
    Z = rng.integers(-3, 4, (50, 8)).astype(dtype)
    Z[:, 7] = Z[:, 6]
    with_ones = np.column_stack([Z, np.ones(50, dtype)])
    H = with_ones.T @ with_ones
    table = Table([Z], np.ones((1, 50)), np.ones(50))
    problem = DenseProblem(table, (Logistic(),), alpha, True, 1e-12, Dense(False))
    factor, right = factored(H, problem), rng.standard_normal((2, 9))
    assert (factor.dtype == np.float32) == single
    whole = H.astype(float) + np.diag([alpha] * 8 + [0.0])
    expected = np.linalg.solve(whole, right.T).T
    bar = 100 * np.finfo("float32" if single else "float64").eps * np.linalg.cond(whole)
    assert np.abs(solved(factor, right) - expected).max() < bar * np.abs(expected).max()
