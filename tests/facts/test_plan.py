"""plan: memory by hand, extrapolated errors, choices, and refusals."""

import json
import math
import re
import time
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone
from tolerance import assert_close

import bochner as bo
from bochner.errors import InvalidInput, InvalidType
from bochner.features import Fourier, Nystrom
from bochner.kernels import Gaussian
from bochner.planner.choice import Budget, PlannedFit, as_budget, best_of
from bochner.planner.trials import expected, wider


def rows(n=300, d=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=n)


def planned(**options):
    X, y = rows()
    given = dict(kernel=Gaussian(1.0), widths=[16, 64], random_state=0)
    return bo.plan(X, y, **(given | options))


@pytest.fixture(scope="module")
def found():
    return planned()


def a_fit(error, seconds, size=1.0, width=64, solver="moments float64", against=""):
    return PlannedFit(Nystrom(), width, solver, error, 0.1, seconds, size, {}, "sample", against)


# ---- memory


@pytest.mark.main_cases(1)
@pytest.mark.parametrize(
    ("method", "precision", "D"),
    [("orthogonal", "float64", 256), ("orthogonal", "float32", 1024), ("nystrom", "float64", 384)],
)
def test_memory_is_what_arrays_take(method, precision, D):
    """Within a fifth of what NumPy allocates at the worst moment of a fit, and not much less."""
    X, y = rows(9000, 4)
    model = bo.KernelRidge(
        Gaussian(1.0), method=method, n_features=D, precision=precision, random_state=0
    )
    clone(model).fit(X[:50], y[:50])
    plan = bo.plan(X, y, Gaussian(1.0), methods=[method], widths=[D], random_state=0)
    tracemalloc.start()
    model.fit(X, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    fit = plan.with_choice(n_features=D, solver=f"moments {precision}").choice
    assert 0.8 < peak / fit.bytes < 1.1


def test_memory_is_measured_also_where_it_is_traced_already(found):
    tracemalloc.start()
    traced = planned().choice.bytes
    assert tracemalloc.is_tracing()
    tracemalloc.stop()
    assert 0.5 < traced / found.choice.bytes < 2


def test_memory_of_wider_features_is_extrapolated():
    """Of widths that are not tried: within a fifth of what a fit allocates."""
    X, y = rows(1500, 4)
    plan = bo.plan(X, y, Gaussian(1.0), methods=["orthogonal"], widths=[512, 1200], random_state=0)
    wide = plan.fits[-1]
    model = plan.with_choice(n_features=1200).estimator()
    tracemalloc.start()
    model.fit(X, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (wide.n_features, wide.error_from) == (1200, "widths")
    assert 0.8 < peak / wide.bytes < 1.2


# ---- more features than a Gram matrix is formed of


@pytest.fixture(scope="module")
def by_passes():
    """A plan of fits with and without a Gram matrix, the rows, and the wide fit itself."""
    X, y = rows(9000, 3)
    options = dict(methods=["orthogonal"], widths=[256, 10_240], random_state=0)
    with pytest.MonkeyPatch.context() as patch:  # what else the machine does takes no such seconds
        patch.setattr("time.perf_counter", time.process_time)
        plan = bo.plan(X, y, Gaussian(1.0), **options)
    model = plan.with_choice(solver="products").estimator()
    start = time.process_time()
    tracemalloc.start()
    model.fit(X, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return plan, model, peak, time.process_time() - start


@pytest.mark.slow
def test_a_wide_fit_is_planned_by_its_passes(by_passes):
    plan, model, peak, seconds = by_passes
    fit = plan.fits[-1]
    assert (fit.n_features, fit.solver, fit.error_from) == (10_240, "products", "widths")
    passes = int(re.findall(r"pass (\d+)", str(model.solution_.history))[-1])
    assert 0.5 < fit.passes / passes < 2
    assert 0.7 < fit.bytes / peak < 1.4
    assert fit.bytes < 0.8 * 8 * 10_240**2  # no D × D matrix
    assert fit.seconds == pytest.approx(sum(fit.steps.values()))
    assert 0.2 < fit.seconds / seconds < 5
    loo = np.nanmin(model.solution_.path.loo) ** 0.5
    assert fit.error == pytest.approx(loo, rel=0.1)


def test_a_wide_fit_is_described_as_what_it_is(by_passes):
    plan = by_passes[0]
    fit = plan.fits[-1]
    assert f"products, {fit.passes} passes" in str(plan)
    assert fit.name.endswith(f"by products with their Gram matrix in {fit.passes} passes")
    chosen = plan.with_choice(n_features=10_240)
    assert chosen.choice is fit
    assert chosen.facts()["choice"]["passes"] == fit.passes
    assert plan.fits[0].passes == 1


# ---- errors


def test_gains_of_doublings_are_carried_on():
    assert_close(wider([1.0, math.sqrt(1.4), math.sqrt(2.4)], 0), 1.0)
    assert_close(wider([1.0, math.sqrt(1.4), math.sqrt(2.4)], 1) ** 2, 1 - 0.4**2)
    assert_close(wider([1.0, math.sqrt(1.4), math.sqrt(2.4)], math.inf) ** 2, 1 - 0.4**2 / 0.6)
    assert_close(wider([1.0, math.sqrt(1.4)], 1) ** 2, 1 - 0.2)
    assert_close(wider([1.0, 0.9], 3), 1.0)
    assert_close(wider([1.0, 4.0], 9), 0.5)


def test_errors_are_extrapolated_by_the_dimensions_that_a_fit_spends():
    """The traces of I − H and of its square by hand, from the eigenvalues."""
    X, y = rows(200)
    model = bo.KernelRidge(Gaussian(1.0), method="orthogonal", n_features=32, random_state=0)
    path = model.fit(X, y).solution_.path
    w = np.linalg.eigvalsh(model.moments_.gram)[:, None]
    fitted = w / (w + path.alphas)
    left, squared = 199 - fitted.sum(axis=0), 199 - (2 * fitted - fitted**2).sum(axis=0)
    slack = left**2 / (199 * squared)
    by_hand = path.loo * slack / (1 - (1 - slack) / 10)
    found = expected(path, 200, 2000)
    assert found.error**2 == pytest.approx(by_hand.min(), rel=0.01)
    assert found.alpha == model.alpha_
    assert expected(path, 200, 200).error ** 2 == pytest.approx(path.loo.min())


# ---- choices


def test_the_least_error_within_the_budget_is_taken_and_the_fastest_of_equals():
    fits = [a_fit(1.0, 1), a_fit(0.5, 8, 100), a_fit(0.504, 5), a_fit(0.3, 20)]
    assert best_of(fits, Budget(10.0, 1000))[0] is fits[2]
    assert best_of(fits, Budget(10.0, 50))[0] is fits[2]
    assert best_of(fits, Budget(2.0, 1000))[0] is fits[0]
    assert best_of(fits, Budget(30.0, 1000))[0] is fits[3]
    assert best_of([*fits, a_fit(0.1, 1, against="no")], Budget(30.0, 1000))[0] is fits[3]


def test_without_seconds_time_must_be_worth_it():
    fits = [a_fit(1.0, 1), a_fit(0.97, 2), a_fit(0.80, 8)]
    chosen, reason = best_of(fits, Budget(bytes=1000))
    assert chosen is fits[2]
    assert reason.startswith("64 features of Nystrom(), summed up in float64: no other")
    fits[2] = a_fit(0.90, 8)
    chosen, reason = best_of(fits, Budget(bytes=1000))
    assert chosen is fits[0]
    assert "would lower it by 10 % and take 8 s" in reason


def test_the_choice_can_be_changed(found):
    other = found.with_choice("fourier", 64)
    assert other.choice.method == Fourier()
    assert other.reason == "64 features of Fourier(), summed up in float64: as asked."
    assert found.with_choice(n_features=16).choice.n_features == 16
    least = min(fit.seconds for fit in found.fits)
    fast = found.with_choice(budget=1.01 * least)
    assert fast.choice.seconds <= 1.01 * least
    assert fast.budget == Budget(1.01 * least)
    with pytest.raises(InvalidInput, match="no fit is predicted to take at most"):
        found.with_choice(budget=1e-9)


def test_the_estimator_is_that_of_the_choice(found):
    X, y = rows()
    model = found.with_choice("nystrom", 64).estimator()
    assert (model.method, model.n_features, model.precision) == (Nystrom(), 64, "float64")
    assert model.fit(X, y).map_.n_features == 64
    exact = replace(found, choice=a_fit(0.1, 1, width=32, solver="exact")).estimator()
    assert (exact.method, exact.n_features) == (bo.ExactKernel(Nystrom()), 32)


def test_the_table_marks_the_choice_and_says_why(found):
    lines = str(found).splitlines()
    assert lines[0].startswith("Gaussian(lengthscale=1.0), 300 rows of 2 columns; any time and")
    marked = [line for line in lines[2:-2] if line.startswith(">")]
    assert len(marked) == 1
    assert str(found.choice.method) in marked[0]
    assert lines[-2] == f"> {found.reason}"
    assert len(lines) == len(found.fits) + 4
    assert json.dumps(found.facts())


def test_usual_widths_end_at_all_rows():
    short = dict(kernel=Gaussian(0.03), widths=None)
    widths = {fit.n_features for fit in planned(methods=["nystrom"], **short).fits}
    assert widths == {256, 300}
    assert [fit.n_features for fit in planned(**short).fits if fit.solver == "exact"] == [300]


# ---- refusals


@pytest.mark.parametrize(
    ("options", "kind", "sentence"),
    [
        (dict(budget=-1), InvalidInput, "budget must be a positive finite number; got -1"),
        (dict(budget=0), InvalidInput, "budget must be a positive finite number; got 0"),
        (dict(budget="1h"), InvalidType, "budget must be seconds, or a mapping such as"),
        (
            dict(budget={"hours": 1}),
            InvalidInput,
            'must have "seconds", "bytes" or both; got hours',
        ),
        (dict(budget={"bytes": -5}), InvalidInput, "budget bytes must be a positive"),
        (
            dict(budget={"bytes": 1000}),
            InvalidInput,
            "no fit is predicted to take at most any time",
        ),
        (dict(budget=1e-9), InvalidInput, "the fastest takes .* Allow more, or pass smaller"),
        (dict(n_rows=200), InvalidInput, "n_rows must be at least the 300 rows passed; got 200"),
        (dict(widths=[]), InvalidInput, "widths must be at least one number"),
        (dict(widths=[0]), InvalidInput, "widths must be"),
        (dict(methods=["best"]), InvalidInput, "method must be a value such as"),
        (dict(methods=[]), InvalidInput, "methods must name at least one"),
        (dict(methods=["structured"], kernel=bo.kernels.Polynomial(2)), InvalidInput, "Fourier"),
        (dict(kernel="best"), InvalidInput, "kernel must be a value such as"),
    ],
)
def test_plan_refuses_what_it_cannot_plan(options, kind, sentence):
    with pytest.raises(kind, match=sentence):
        planned(**options)


@pytest.mark.parametrize(
    ("X", "y", "kind", "sentence"),
    [
        (np.ones((40, 2)), None, InvalidInput, "requires y"),
        (np.ones((15, 2)), np.arange(15.0), InvalidInput, "at least 16 rows; got 15"),
        (np.ones((40, 2)), np.ones(40), InvalidInput, "the target must vary"),
        (np.full((40, 2), np.nan), np.arange(40.0), InvalidInput, "finite|nan|NaN|missing"),
        (bo.Blocks.from_arrays(np.ones((40, 2))), None, InvalidInput, "the target must vary"),
        (bo.Blocks.from_arrays(np.ones((40, 2))), np.ones(40), InvalidInput, "leave y out"),
    ],
)
def test_plan_refuses_rows_that_say_nothing(X, y, kind, sentence):
    with pytest.raises(kind, match=sentence):
        bo.plan(X, y, Gaussian())


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (dict(solver="lbfgs"), "solver must be .*'moments float32'.* got 'lbfgs'"),
        (dict(solver="products"), "products is not in the plan, which has"),
        (dict(method="iid"), "is not in the plan, which has"),
        (dict(n_features=0), "n_features must be"),
    ],
)
def test_a_choice_that_is_not_in_the_plan_is_refused(found, options, sentence):
    with pytest.raises(InvalidInput, match=sentence):
        found.with_choice(**options)


def test_budgets_are_read():
    assert as_budget(None) == Budget()
    assert as_budget(5) == Budget(5.0)
    assert as_budget({"seconds": 5, "bytes": 4e9}) == Budget(5.0, 4_000_000_000)
    assert as_budget(Budget(bytes=3)).room == 3
