"""plan: rates that are kept, counts of work and memory by hand, choices, and refusals."""

import dataclasses
import json
import math
import tracemalloc

import numpy as np
import pytest
from sklearn.base import clone
from tolerance import assert_close

import bochner as bo
from bochner.errors import InvalidInput, InvalidType
from bochner.features import IID, Fourier, Nystrom
from bochner.kernels import Gaussian
from bochner.planner import machine as machines
from bochner.planner.foretold import wider
from bochner.planner.machine import WIDTHS, Machine, machine
from bochner.planner.plan import (
    Budget,
    PlannedFit,
    as_budget,
    best_of,
)
from bochner.planner.predicted import (
    PENALTIES,
    Features,
    Task,
    exact_cost,
    moments_cost,
    resweeps,
    whitened_again_cost,
    whitened_sums_cost,
    whitens_sums,
)

FLAT = Machine(
    gram={"float32": (0.5e-10,) * 3, "float64": (1e-10,) * 3},
    eigen=(1e-9,) * 3,
    factor=(1e-10,) * 3,
    singular=(2e-9,) * 3,
    product={"float32": 1e-10, "float64": 2e-10},
    triangle=1e-10,
    solve=1e-10,
    cosine={"float32": (1e-9, 2e-9), "float64": (2e-9, 4e-9)},
    hadamard={"float32": 1e-10, "float64": 1e-10},
    kernel={"float32": (1e-9, 2e-9), "float64": (2e-9, 4e-9)},
    copy=1e-10,
    threads=1,
)


def rows(n=300, d=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=n)


def planned(**options):
    X, y = rows()
    given = dict(kernel=Gaussian(1.0), widths=[16, 64], machine=FLAT, random_state=0)
    return bo.plan(X, y, **(given | options))


@pytest.fixture(scope="module")
def found():
    return planned()


def a_fit(error, seconds, size=1.0, width=64, solver="moments float64", against=""):
    return PlannedFit(Nystrom(), width, solver, error, 0.1, seconds, size, {}, "sample", against)


# ---- rates


@pytest.fixture
def quick(monkeypatch, tmp_path):
    """Measure nothing: rates are flat; count how often they are asked for."""
    calls = []
    monkeypatch.setenv("BOCHNER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(machines, "measured", lambda timer: calls.append(timer) or FLAT)
    monkeypatch.setattr(machines, "_gram_rate", lambda *_: 1e-10)
    return calls, tmp_path / "cache"


def test_rates_are_measured_once_and_kept(quick):
    calls, folder = quick
    first = machine()
    assert machine() == first == FLAT
    assert len(calls) == 1
    assert [path.suffix for path in folder.iterdir()] == [".json"]


def test_rates_are_measured_again_where_the_pace_has_changed(quick, monkeypatch):
    calls, _ = quick
    machine()
    monkeypatch.setattr(machines, "_gram_rate", lambda *_: 3e-10)
    machine()
    assert len(calls) == 2


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '{"gram": 1}', "\x00\xff"]
    + [
        json.dumps(dataclasses.asdict(FLAT) | part)
        for part in (
            {"copy": -1},
            {"copy": "fast"},
            {"copy": None},
            {"eigen": [1.0]},
            {"gram": {"float32": 1}},
            {"kernel": {"float32": [1.0, 1.0]}},
            {"threads": True},
        )
    ],
)
def test_what_is_not_rates_is_ignored(quick, text):
    calls, folder = quick
    machine()
    path = next(folder.iterdir())
    path.write_bytes(text.encode("latin-1"))
    assert machine() == FLAT
    assert len(calls) == 2
    assert json.loads(path.read_text()) == json.loads(json.dumps(dataclasses.asdict(FLAT)))


def test_a_folder_that_cannot_be_written_is_no_harm(quick, monkeypatch, tmp_path):
    calls, _ = quick
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("BOCHNER_CACHE", str(tmp_path / "file" / "inner"))
    assert machine() == machine() == FLAT
    assert len(calls) == 2


def test_another_number_of_threads_has_rates_of_its_own(quick, monkeypatch):
    calls, folder = quick
    machine()
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "7")
    machine()
    assert len(calls) == len(list(folder.iterdir())) == 2


def test_rates_are_interpolated_in_the_logarithm_of_the_width():
    rising = dataclasses.replace(FLAT, eigen=(4e-10, 2e-10, 1e-10))
    between = math.sqrt(WIDTHS[0] * WIDTHS[1])
    assert_close(rising.eigh(between), between**3 * math.sqrt(4e-10 * 2e-10))
    assert_close(rising.eigh(4 * WIDTHS[-1]), (4 * WIDTHS[-1]) ** 3 * 1e-10)
    assert_close(FLAT.cosines(10, 5, 2, "float32"), 10 * 5 * 1e-9)
    assert_close(FLAT.tiles(7, 32, "float64"), 7 * 4e-9)


# ---- counts


def test_seconds_are_counts_times_rates():
    n, D = 100_000, 512
    task, phi = Task(n, 8, read_seconds=0.5), Features(D, 1e-6, 0.25, from_rows=True)
    steps = moments_cost(task, phi, "float64", FLAT).seconds
    assert_close(steps["read"], 1.0)
    assert_close(steps["draw"], 0.25)
    assert_close(steps["features"], n * 1e-6)
    assert_close(steps["moments"], n * D**2 * 1e-10)
    assert_close(steps["decomposition"], D**3 * 1e-9)
    assert steps["forecast"] == 0
    path = 49 * 2 * D
    assert_close(steps["leave-one-out"], 8192 * (1e-6 + (D**2 + path) * 2e-10))
    single = moments_cost(task, phi, "float32", FLAT).seconds
    assert_close(single["forecast"], 2048 * (1e-6 + 2 * D**2 * 1e-10) + 2 * D**3 * 1e-10)


def test_what_begins_in_float32_and_is_told_otherwise_wastes_a_quarter():
    task, phi = Task(100_000, 8), Features(512, 1e-6)
    single, double = (moments_cost(task, phi, p, FLAT) for p in ("float32", "float64"))
    wasted = resweeps(task, phi, FLAT).total - double.total
    quarter = (single.seconds["features"] + single.seconds["moments"]) / 4
    assert_close(wasted, quarter + single.seconds["forecast"])
    few = Task(1000, 8)
    assert_close(
        resweeps(few, phi, FLAT).total,
        sum(moments_cost(few, phi, p, FLAT).total for p in ("float32", "float64")),
    )


def test_sums_that_are_whitened_save_the_product_of_each_row():
    n, D = 100_000, 512
    task, phi = Task(n, 8), Features(D, 3e-6, whitening=2e-6)
    assert whitens_sums(task, phi)
    assert not any(
        whitens_sums(*other)
        for other in (
            (task, Features(D, 3e-6)),
            (Task(8 * D - 1, 8), Features(4 * D, 3e-6, whitening=2e-6)),
            (Task(10_000, 8), phi),
        )
    )
    rows = moments_cost(task, phi, "float64", FLAT)
    sums = whitened_sums_cost(task, phi, FLAT)
    forecast = 2048 * (3e-6 + 2 * D**2 * 1e-10) + 2 * D**3 * 1e-10
    assert_close(rows.total - sums.total, n * 2e-6 - forecast - 4 * D * 2e-6)
    again = whitened_again_cost(task, phi, FLAT)
    quarter = (n * 1e-6 + rows.seconds["moments"]) / 4
    assert_close(again.total - rows.total, quarter + forecast + 2 * D * 2e-6)
    assert again.peak >= sums.peak >= rows.peak


def test_the_exact_kernel_takes_half_of_all_values_in_each_product():
    task, phi = Task(20_000, 8), Features(512, 1e-6)
    pair = {"float32": 1e-9, "float64": 2e-9}
    none, some = (exact_cost(task, phi, FLAT, pair, steps, 0) for steps in (0, 10))
    each = (some.total - none.total) / 10
    half = 20_000 * (20_000 + 1024) / 2
    assert_close(each, half * 1e-9 + 8 * 20_000 * 512 * 1e-10)
    assert none.peak > 8 * 20_000 * 512


@pytest.mark.parametrize(("n", "d"), [(300, 2), (9000, 2), (1100, 9000)])
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_a_task_keeps_and_judges_as_many_rows_at_as_many_penalties_as_a_fit(n, d, precision):
    X = np.random.default_rng(0).standard_normal((n, d), np.float32)
    model = bo.KernelRidge(
        Gaussian(d**0.5), method=Fourier(IID()), n_features=8, precision=precision, random_state=0
    )
    path, task = model.fit(X, X[:, 0]).solution_.path, Task(n, d)
    assert task.kept == len(model.sample_)
    assert task.judged == path.loo_rows
    assert PENALTIES[precision] == len(path.alphas)


@pytest.mark.parametrize(
    ("method", "precision", "D"),
    [("orthogonal", "float64", 256), ("orthogonal", "float32", 512), ("nystrom", "float64", 384)],
)
def test_memory_is_what_arrays_take(method, precision, D):
    """Within a fifth of what NumPy allocates at the worst moment of a fit, and not much less."""
    X, y = rows(9000, 4)
    model = bo.KernelRidge(
        Gaussian(1.0), method=method, n_features=D, precision=precision, random_state=0
    )
    clone(model).fit(X[:50], y[:50])
    plan = bo.plan(X, y, Gaussian(1.0), methods=[method], widths=[D], machine=FLAT, random_state=0)
    tracemalloc.start()
    model.fit(X, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    fit = plan.with_choice(n_features=D, solver="moments float64").choice
    if precision == "float32":
        fit = dataclasses.replace(
            fit, bytes=moments_cost(Task(9000, 4), Features(D, 0.0), "float32", FLAT).peak
        )
    assert 0.8 < peak / fit.bytes < 1.1


# ---- errors


def test_gains_of_doublings_are_carried_on():
    assert_close(wider([1.0, math.sqrt(1.4), math.sqrt(2.4)], 0), 1.0)
    assert_close(wider([1.0, math.sqrt(1.4), math.sqrt(2.4)], 1) ** 2, 1 - 0.4**2)
    assert_close(wider([1.0, math.sqrt(1.4), math.sqrt(2.4)], math.inf) ** 2, 1 - 0.4**2 / 0.6)
    assert_close(wider([1.0, math.sqrt(1.4)], 1) ** 2, 1 - 0.2)
    assert_close(wider([1.0, 0.9], 3), 1.0)
    assert_close(wider([1.0, 4.0], 9), 0.5)


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


def test_any_number_can_be_overridden(found):
    assert isinstance(found, bo.Plan)
    other = found.with_choice("fourier", 64)
    assert other.choice.method == Fourier()
    assert other.reason == "64 features of Fourier(), summed up in float64: as asked."
    between = found.with_choice(method=Nystrom(), n_features=32).choice
    near = [f for f in found.fits if f.method == Nystrom()][:2]
    assert near[0].seconds < between.seconds < near[1].seconds
    assert between.n_features == 32
    assert between.error_from == "widths"
    least = min(fit.seconds for fit in found.fits)
    assert found.replace(budget=1.01 * least).choice.seconds <= 1.01 * least
    assert found.replace(seed=7).estimator().random_state == 7
    assert found.with_choice(n_features=16).choice.n_features == 16


def test_the_estimator_is_that_of_the_choice(found):
    X, y = rows()
    model = found.with_choice("nystrom", 64).estimator()
    assert (model.method, model.n_features, model.precision) == (Nystrom(), 64, "float64")
    assert model.fit(X, y).map_.n_features == 64
    fits = (*found.fits, a_fit(0.1, 1, width=32, solver="exact"))
    exact = found.replace(fits=fits).with_choice(solver="exact").estimator()
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
    assert all(fit.solver != "exact" for fit in planned(**short).fits)


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
        bo.plan(X, y, Gaussian(), machine=FLAT)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (dict(solver="lbfgs"), "solver must be one of 'moments float32'.* got 'lbfgs'"),
        (dict(solver="exact"), "exact is not in the plan, which has"),
        (dict(method="iid"), "is not in the plan, which has"),
        (dict(n_features=0), "n_features must be"),
    ],
)
def test_a_choice_that_is_not_in_the_plan_is_refused(found, options, sentence):
    with pytest.raises(InvalidInput, match=sentence):
        found.with_choice(**options)


def test_numbers_that_a_plan_has_not_are_refused(found):
    with pytest.raises(InvalidInput, match="there is no 'width'; there are budget, choice"):
        found.replace(width=3)


def test_budgets_are_read():
    assert as_budget(None) == Budget()
    assert as_budget(5) == Budget(5.0)
    assert as_budget({"seconds": 5, "bytes": 4e9}) == Budget(5.0, 4_000_000_000)
    assert as_budget(Budget(bytes=3)).room == 3
