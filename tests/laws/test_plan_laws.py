"""Plans hold what they promise: errors foretold, counts that grow as they should, determinism."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bochner as bo
from bochner.kernels import Gaussian
from bochner.planner.machine import (
    WIDTHS,
    Machine,
    least_time,
    measured,
)
from bochner.planner.plan import Budget, PlannedFit, best_of
from bochner.planner.predicted import Features, Task, moments_cost


@pytest.fixture(scope="module")
def rates():
    return measured()


def rows(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, size=(n, 2))
    return X, np.sin(2 * X[:, 0]) * np.cos(X[:, 1]) + 0.3 * rng.normal(size=n)


def test_measured_rates_are_positive_numbers_of_each_kind(rates):
    for field in dataclasses.fields(Machine):
        value = getattr(rates, field.name)
        parts = value.values() if hasattr(value, "values") else [value]
        assert np.all(np.concatenate([np.atleast_1d(part) for part in parts]) > 0)
    assert len(rates.eigen) == len(WIDTHS)


def test_the_least_of_repeats_is_taken_by_the_clock_given():
    ticks = iter([0.0, 9.0, 10.0, 10.03, 20.0, 20.01, 30.0, 30.02])
    assert least_time(lambda: None, lambda: next(ticks)) == 9.0
    ticks = iter([0.0, 0.05, 10.0, 10.04, 20.0, 20.02, 30.0, 30.06])
    assert least_time(lambda: None, lambda: next(ticks)) == pytest.approx(0.02)


@given(n=st.integers(20, 10**7), D=st.integers(1, 8192), d=st.integers(1, 100), t=st.integers(1, 5))
@settings(max_examples=200)
def test_more_rows_and_targets_never_take_less(rates, n, D, d, t):
    phi = Features(D, 1e-6, draw_seconds=1.0, from_rows=True)
    for precision in ("float32", "float64"):
        a, b = (
            moments_cost(Task(size, d, targets, read_seconds=1e-6 * size), phi, precision, rates)
            for size, targets in ((n, t), (2 * n + 20_000, t + 1))
        )
        # rows that are all kept may be decomposed row by row and are all judged: that can be longer
        of_kept = {"decomposition", "leave-one-out", "memory"} if n < 20_000 else set()
        assert all(a.seconds[step] <= b.seconds[step] for step in a.seconds.keys() - of_kept)
        few = n * D**2 <= 2e8
        assert 0 < a.peak <= 1.3 * b.peak + 8e8 * few


@given(
    numbers=st.lists(
        st.tuples(st.floats(0.01, 10), st.floats(0.01, 1e4), st.floats(1, 1e9)), min_size=1
    ),
    seconds=st.none() | st.floats(0.1, 1e5),
)
@settings(max_examples=100)
def test_the_choice_is_within_the_budget_and_nothing_beats_it_in_all(numbers, seconds):
    fits = [
        PlannedFit(bo.Nystrom(), 8, "moments float64", error, 0.1, s, size, {})
        for error, s, size in numbers
    ]
    budget = Budget(seconds, 10**8)
    able = [fit for fit in fits if fit.within(budget)]
    if not able:
        with pytest.raises(bo.errors.InvalidInput, match="Allow more"):
            best_of(fits, budget)
        return
    chosen, _ = best_of(fits, budget)
    assert chosen.within(budget)
    assert not any(f.error < 0.98 * chosen.error and f.seconds < chosen.seconds for f in able)


def test_the_error_of_all_rows_is_foretold_from_a_sample(rates):
    """Within a tenth of what fits to all rows report; that of the sample alone is further off."""
    X, y = rows(9000)
    few = slice(0, 500)
    methods = ["orthogonal", "nystrom"]
    options = dict(methods=methods, widths=[32, 64, 128], machine=rates, random_state=0)
    plan = bo.plan(X[few], y[few], Gaussian(1.0), n_rows=9000, **options)
    for fit in plan.fits:
        model = bo.KernelRidge(
            Gaussian(1.0), method=fit.method, n_features=fit.n_features, random_state=0
        ).fit(X, y)
        found = np.nanmin(model.solution_.path.loo) ** 0.5
        assert 0.9 < fit.error / found < 1.1


def test_the_same_seed_gives_the_same_plan_but_for_the_clock(rates):
    X, y = rows(400)
    a, b = (
        bo.plan(X, y, Gaussian(1.0), widths=[16, 32], machine=rates, random_state=3)
        for _ in range(2)
    )
    assert [(f.method, f.error, f.kernel_error, f.bytes) for f in a.fits] == [
        (f.method, f.error, f.kernel_error, f.bytes) for f in b.fits
    ]


def test_blocks_arrays_and_sparse_rows_give_the_same_errors(rates):
    import scipy.sparse as sp  # noqa: PLC0415

    X, y = rows(300)
    options = dict(
        kernel=Gaussian(1.0), widths=[16], methods=["nystrom"], machine=rates, random_state=0
    )
    errors = [
        bo.plan(*given, **options).choice.error
        for given in (
            (X, y),
            (bo.Blocks.from_arrays(X, y, block_rows=70),),
            (sp.csr_matrix(X), y),
        )
    ]
    assert errors == pytest.approx([errors[0]] * 3, rel=1e-6)


def test_a_lengthscale_that_is_open_is_chosen_once_and_kept(rates):
    X, y = rows(300)
    plan = bo.plan(X, y, widths=[16], methods=["iid"], machine=rates, random_state=0)
    model = plan.estimator().fit(X, y)
    assert isinstance(plan.kernel, Gaussian)
    assert model.kernel_ == plan.kernel
    assert model.search_.tried == ()


def test_many_rows_have_the_exact_kernel_in_the_plan(rates):
    X, y = rows(4200)
    plan = bo.plan(X, y, Gaussian(1.0), widths=[32, 64], machine=rates, random_state=0)
    exact = plan.fits[-1]
    assert exact.solver == "exact"
    assert exact.steps["iterations"] > 0
    assert exact.kernel_error == 0
    assert all(fit.error >= exact.error for fit in plan.fits if fit.error_from == "widths")
    assert "~" in str(plan).splitlines()[-3]
