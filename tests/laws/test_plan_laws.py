"""Plans predict errors, seconds and memory; fits that need too much memory raise."""

import re

import maps
import naive
import numpy as np
import pytest
import scipy.sparse as sp
from gallery import table, unit_table
from hypothesis import given, settings
from hypothesis import strategies as st
from internals import with_peak
from sklearn.base import clone

import bochner as bo
from bochner._core import checks
from bochner.errors import InvalidInput
from bochner.features import Auto, Fourier, Nystrom
from bochner.features.auto import Targets, assess
from bochner.kernels import Exponential, Gaussian, Linear
from bochner.planner import trials
from bochner.planner.plans import Budget, choose_fit
from bochner.planner.trials import FitForecast, powers

#: Bytes of code and small objects that a plan adds to the measured arrays.
OVERHEAD = 4 << 20


def plan_of(**options):
    """Return a plan for 300 rows."""
    options = dict(kernel=Gaussian(1.0), widths=[16, 64], random_state=0) | options
    return bo.plan(*table(300, noise=0.3), **options)


def forecast(error, seconds, size=1.0, method=None, width=64, solver="moments float64", **kw):
    return FitForecast(method or Nystrom(), width, solver, error, 0.1, seconds, size, {}, **kw)


SIZES = st.integers(16, 512)


@given(st.floats(0, 1e-6), st.floats(1e-12, 1e-9), SIZES, SIZES, st.integers(16, 8192))
@settings(max_examples=200)
def test_seconds_of_two_sizes_determine_a_square_and_a_cubic_term(a, b, size, step, n):
    coefs = powers({m: a * m**2 + b * m**3 for m in (size, size + step)})
    assert coefs[0] * n**2 + coefs[1] * n**3 == pytest.approx(a * n**2 + b * n**3, rel=1e-6)


@given(
    values=st.lists(
        st.tuples(st.floats(0.01, 10), st.floats(0.01, 1e4), st.floats(1, 1e9)), min_size=1
    ),
    seconds=st.none() | st.floats(0.1, 1e5),
)
@settings(max_examples=100)
def test_the_choice_is_within_the_budget_and_not_dominated(values, seconds):
    fits = [forecast(*row) for row in values]
    budget = Budget(seconds, 10**8)
    allowed = [fit for fit in fits if budget.allows(fit)]
    if not allowed:
        with pytest.raises(InvalidInput, match="Allow more"):
            choose_fit(fits, budget)
        return
    chosen, _ = choose_fit(fits, budget)
    assert budget.allows(chosen)
    assert not any(f.error < 0.98 * chosen.error and f.seconds < chosen.seconds for f in allowed)


def test_the_error_of_a_fit_to_all_rows_is_predicted_from_a_sample():
    """Within a tenth of the leave-one-out errors of fits to all rows."""
    X, y = table(9000, noise=0.3)
    subset = slice(0, 500)
    options = dict(methods=["orthogonal", "nystrom"], widths=[32, 64, 128], random_state=0)
    for fit in bo.plan(X[subset], y[subset], Gaussian(1.0), n_rows=9000, **options).fits:
        model = bo.KernelRidge(
            Gaussian(1.0), method=fit.method, n_features=fit.n_features, random_state=0
        ).fit(X, y)
        assert 0.9 < fit.error / np.nanmin(model.solution_.path.loo) ** 0.5 < 1.1


def test_seconds_grow_by_the_passes_over_more_rows(monkeypatch):
    """Ten times as many rows; a row takes a microsecond, all other steps a millisecond."""
    X, y = table(500, noise=0.3)
    options = dict(methods=["orthogonal"], widths=[64], random_state=0)
    monkeypatch.setattr(trials, "seconds_of", lambda act, *_: (act(), 1e-3)[1])
    monkeypatch.setattr("time.perf_counter", lambda: 0.0)  # reading rows takes no time
    subset, large = (
        bo.plan(X, y, Gaussian(1.0), n_rows=n, **options).choice for n in (2_000_000, 20_000_000)
    )
    assert large.seconds == pytest.approx(10 * subset.seconds, rel=0.01)
    assert subset.solver == large.solver == "moments float64"
    assert large.bytes == pytest.approx(subset.bytes, rel=0.1)
    assert large.error <= subset.error


def test_plans_of_arrays_blocks_and_sparse_rows_have_the_error_of_the_fit():
    """If all rows are sampled, errors are not extrapolated; above 8,192 rows no exact kernel."""
    X, y = table(250, noise=0.3)
    options = dict(kernel=Gaussian(1.0), widths=[32], methods=["nystrom"], random_state=0)
    blocks = bo.Blocks.from_arrays(X, y, block_rows=70)
    plans = [bo.plan(*rows, **options) for rows in ((X, y), (blocks,), (sp.csr_matrix(X), y))]
    model = plans[0].estimator().fit(X, y)
    for plan in plans:
        assert plan.choice.error == pytest.approx(np.nanmin(model.solution_.path.loo) ** 0.5)
        assert plan.choice.steps["sums"] == 0
    assert {fit.solver for fit in plans[0].fits} == {"moments float64"}
    open_ = options | {"methods": None}
    subset, large = (bo.plan(X, y, n_rows=n, **open_).fits for n in (8192, 8193))
    assert [bo.ExactKernel() in [fit.method for fit in fits] for fits in (subset, large)] == [1, 0]


def test_a_raw_table_is_planned_like_its_fit():
    pd = pytest.importorskip("pandas")
    X, y = table(200, noise=0.3)
    raw = pd.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])])
    raw["where"] = np.where(X[:, 0] > 0, "north", "south")
    raw.loc[3, "x0"] = np.nan
    options = dict(widths=[16], methods=["nystrom"], random_state=0)
    plan = bo.plan(raw, y, **options)
    assert bo.plan(raw.assign(price=y), "price", **options).choice.error == plan.choice.error
    model = plan.estimator().fit(raw, y)
    assert plan.n_columns == model.choice_.map.n_inputs > raw.shape[1]
    assert model.kernel_ == plan.kernel


def test_a_kernel_by_name_is_chosen_once_and_kept():
    X, y = table(300, noise=0.3)
    for name in ("gaussian", "auto"):
        plan = bo.plan(X, y, name, widths=[16], random_state=0)
        model = plan.estimator().fit(X, y)
        assert (
            model.kernel_ == plan.kernel == bo.KernelRidge(name, random_state=0).fit(X, y).kernel_
        )
        assert model.search_.candidates == ()


def test_the_default_of_many_rows_is_planned_as_a_local_fit(monkeypatch):
    """Leaves have 256 rows; error and kernel equal those of the fit."""
    for place in ("planner.plans", "planner.trials"):
        monkeypatch.setattr(f"bochner.{place}.DIRECT_ROWS", 600)
    for place in ("planner.plans", "models.route"):
        monkeypatch.setattr(f"bochner.{place}.most_at_once", lambda _: 600)
    for name in ("LEAF_ROWS", "FEWEST_LEAF_ROWS"):
        monkeypatch.setattr(f"bochner.models.representations.representation.{name}", 256)
    X, y = table(1000, noise=0.3)
    plan = bo.plan(X, y, widths=[16], random_state=0)
    (local,) = (fit for fit in plan.fits if fit.solver == "local")
    assert [fit for fit in plan.fits if fit.default] == [local]
    assert plan.choice is local  # 16 features have a larger error
    assert local.seconds == pytest.approx(sum(local.steps.values()))
    model = plan.estimator()
    left_out = model.fit(X, y).fit_.left_out()
    assert model.kernel_ == plan.kernel == bo.KernelRidge(random_state=0).fit(X, y).kernel_
    assert type(model.fit_.representation).__name__ == "LeafRows"
    assert local.error == pytest.approx(np.sqrt(np.mean(left_out.errors**2)), rel=0.15)


@pytest.mark.parametrize("seconds", [None, 100.0])
def test_no_fit_of_larger_error_than_the_default_is_chosen(seconds):
    default = forecast(1.0, 50.0, method=bo.ExactKernel(), width=90, solver="exact", default=True)
    fits = [forecast(1.02, 1.0), forecast(1.005, 2.0), default]
    assert choose_fit(fits, Budget(seconds, 10))[0] is fits[1]
    assert choose_fit(fits, Budget(1.5, 10))[0] is fits[0]


@pytest.mark.main_cases(1)
@pytest.mark.parametrize("n", [240, 900, 2500])
def test_plans_of_few_rows_contain_the_exact_kernel(n):
    """Its memory and error equal those of the fit; features do not have smaller errors."""
    X, y = table(n, noise=0.3)
    plan = bo.plan(X, y, Gaussian(1.0), widths=[32, 64], random_state=0)
    (fit,) = (fit for fit in plan.fits if fit.solver == "exact")
    model = plan.estimator(fit)
    assert (fit.method, fit.n_features) == (bo.ExactKernel(), n)
    assert fit.name == "the exact kernel, by Cholesky factorisation"
    assert model.method == bo.ExactKernel()
    _, peak = with_peak(lambda: model.fit(X, y))
    assert 0.8 * peak < fit.bytes < 1.3 * peak + OVERHEAD
    slack = model.solution_.slack[:, 0]
    finite = np.isfinite(slack)
    left_out = model.alpha_ * np.ravel(model.dual_coef_)[finite] / slack[finite]
    assert fit.error == pytest.approx(np.sqrt(np.mean(left_out**2)), rel=0.1)
    assert fit.seconds == pytest.approx(sum(fit.steps.values()))
    assert ("factor" in fit.steps) == (n > 1024)
    assert all(other.error > 0.9 * fit.error for other in plan.fits)


def test_the_penalty_is_chosen_with_fewer_rows_than_the_factor():
    X, y = table(500, noise=0.3)
    plan = bo.plan(X, y, Gaussian(1.0), widths=[32], n_rows=8000, random_state=0)
    (steps,) = (fit.steps for fit in plan.fits if fit.solver == "exact")
    assert 0 < steps["settling"] < 2.5 * steps["factor"]


@pytest.mark.main_cases(1)
@pytest.mark.parametrize("scale", [0.05, 0.2, 0.5])
def test_errors_of_a_rough_kernel_are_not_underestimated(scale):
    """The path of penalties alone predicts a fifth to half of the error in six columns."""
    X, y = unit_table(1500, 6, noise=0.5)
    plan = bo.plan(X[:900], y[:900], Exponential(scale), widths=[16], random_state=0)
    (exact,) = (fit for fit in plan.fits if fit.solver == "exact")
    model = plan.estimator(exact).fit(X[:900], y[:900])
    error = np.mean((model.predict(X[900:]) - y[900:]) ** 2) ** 0.5
    assert exact.error == pytest.approx(error, rel=0.3)


@pytest.mark.main_cases(1)
@pytest.mark.parametrize(
    ("method", "precision", "D"),
    [("orthogonal", "float64", 256), ("orthogonal", "float32", 1024), ("nystrom", "float64", 384)],
)
@pytest.mark.filterwarnings("ignore:float32 products")
def test_predicted_memory_is_that_of_the_arrays(method, precision, D):
    """Within a fifth of NumPy's allocations; 30 % above 512 features, which are not tried."""
    X, y = table(9000, 4, noise=1.0)
    options = {"method": method, "n_features": D, "precision": precision}
    model = bo.KernelRidge(Gaussian(1.0), random_state=0, **options)
    clone(model).fit(X[:50], y[:50])
    plan = bo.plan(X, y, Gaussian(1.0), methods=[method], widths=[D], random_state=0)
    _, peak = with_peak(lambda: model.fit(X, y))
    (fit,) = plan.fits
    assert fit.solver == f"moments {precision}"
    assert (0.8 if D <= 512 else 0.7) < peak / fit.bytes < 1.1


# ---- choices


def test_without_a_budget_of_seconds_a_slower_fit_must_be_much_better():
    fits = [forecast(1.0, 1), forecast(0.97, 2), forecast(0.80, 8)]
    chosen, reason = choose_fit(fits, Budget(bytes=1000))
    assert chosen is fits[2]
    assert reason.startswith("64 features of Nystrom(), moments in float64: no other")
    fits[2] = forecast(0.90, 8)
    chosen, reason = choose_fit(fits, Budget(bytes=1000))
    assert chosen is fits[0]
    assert "would lower the error by 10 % and take 8 s" in reason


def test_the_estimator_of_a_plan_has_the_options_of_its_fit():
    (X, y), plan = table(300, noise=0.3), plan_of()
    assert plan.estimator().method == plan.choice.method
    (fit,) = (fit for fit in plan.fits if (fit.method, fit.n_features) == (Nystrom(), 64))
    model = plan.estimator(fit)
    assert (model.method, model.n_features, model.precision) == (Nystrom(), 64, "float64")
    assert model.fit(X, y).map_.n_features == 64


def test_default_widths_end_at_the_number_of_rows():
    short = dict(kernel=Gaussian(0.03), widths=None)
    assert {fit.n_features for fit in plan_of(methods=["nystrom"], **short).fits} == {256, 300}
    assert [fit.n_features for fit in plan_of(**short).fits if fit.solver == "exact"] == [300]


# ---- errors of fits that need more memory than is free

ROWS = np.random.default_rng(0).standard_normal((50, 3))
TOO_MANY = 10**13
TAKES = r"takes at least [\d.e+]+ (GB|TB) of memory; .* are free\. Ask for fewer"
SLOW = (bo.PolySketch, bo.Projected)  # their widths have large limits


@pytest.mark.parametrize("case", [c for c in maps.CASES if not isinstance(c.method, SLOW)], ids=str)
def test_a_map_of_too_many_features_raises_or_has_the_most_possible(case):
    try:
        outcome = maps.new_map(case, width=TOO_MANY).n_features
    except InvalidInput as error:
        outcome = str(error)
    assert re.search(TAKES, outcome) if isinstance(outcome, str) else outcome < 10_000


@pytest.mark.parametrize("learner", [bo.KernelRidge, bo.SVR, bo.KernelPCA, bo.KernelFeatures])
def test_a_learner_with_more_features_than_memory_raises(learner):
    with pytest.raises(InvalidInput, match=TAKES):
        learner(kernel=Gaussian(), method="fourier", n_features=TOO_MANY).fit(ROWS, ROWS[:, 0])


def test_sums_of_products_larger_than_the_memory_raise(monkeypatch):
    """16 D² bytes at D = 6000 are 576 MB."""
    monkeypatch.setattr(checks, "_available", lambda swap=False: 500_000_000)
    match = r"A fit with 6,000 features .* takes at least 576 MB of memory; 500 MB are free"
    options = {"n_features": 6000, "precision": "float32"}  # few rows in float64 need no sums
    with pytest.raises(InvalidInput, match=match):
        bo.KernelRidge(Gaussian(), method="fourier", **options).fit(ROWS, ROWS[:, 0])


def test_the_file_cache_of_a_container_counts_as_free_memory(monkeypatch, tmp_path):
    (tmp_path / "memory.max").write_text("10000000000")
    (tmp_path / "memory.current").write_text("9000000000")
    (tmp_path / "memory.stat").write_text("anon 1000000000\ninactive_file 7500000000")
    monkeypatch.setattr(checks, "Path", lambda name: tmp_path)
    assert checks._left_in_container() == 8_500_000_000


# ---- methods compared by targets: errors extrapolated to all rows, and the choice

N = 1200


def extrapolated(X, y, w, alpha, n):
    """Return the error of a fit to n rows and its penalty, from traces of I − H."""
    Z = np.sqrt(w)[:, None] * (X - w @ X / w.sum())
    hat = Z @ np.linalg.inv(Z.T @ Z + alpha * np.eye(Z.shape[1])) @ Z.T
    free = max(w.sum(), len(w)) - 1
    left, squared = free - np.trace(hat), free - 2 * np.trace(hat) + np.trace(hat @ hat)
    slack, ratio = left**2 / (free * squared), n / len(w)
    errors = naive.left_out_errors(X, y, w, np.array([alpha]), range(len(X)))[:, 0, 0]
    error = (w @ errors**2 / w.sum()) * slack / (1 - (1 - slack) / ratio)
    return error, alpha * (ratio * free - np.trace(hat)) / left


@pytest.mark.main_cases(1)
@pytest.mark.parametrize("weights", [(1.0, 1.0), (1.0, 3.0)])
def test_the_extrapolated_error_is_the_least_one_minus_the_cost_of_few_rows(weights):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(25, 3)), rng.normal(size=(25, 1))
    w = rng.uniform(*weights, 25)
    W, n = w.sum(), 100
    phi = bo.draw(Linear(), "orthogonal", n_features=3, n_inputs=3)
    Z = (X - w @ X / W) * np.sqrt(w)[:, None]
    top = np.linalg.eigvalsh(Z.T @ Z)[-1]
    expected = [extrapolated(X, y, w, alpha, n) for alpha in np.logspace(-11, 1, 49) * top]
    error, penalty = min(expected)
    result = assess(phi, X, Targets(y, w, n))
    assert result[0] == pytest.approx(error, rel=1e-4)
    assert result[1] == pytest.approx(penalty / (n / 25 * top), rel=1e-6)
    share = 0.3  # alpha per row of all rows; the sample has the equivalent penalty, a little less
    alphas = np.linspace(0.2, 0.3, 201) * W
    pairs = np.array([extrapolated(X, y, w, alpha, n) for alpha in alphas])
    expected_error = np.interp(share * W * n / 25, pairs[:, 1], pairs[:, 0])
    assert assess(phi, X, Targets(y, w, n, share))[0] == pytest.approx(expected_error, rel=1e-3)


@pytest.mark.main_cases(2)
@pytest.mark.parametrize("seed", range(3))
def test_an_eighth_of_the_rows_predicts_the_error_of_all(seed):
    """Means of 1,024 and 4,096 squares deviate by 4.4 and 2.2 %; four deviations are 20 %."""
    rng = np.random.default_rng(seed)
    d, n, m, beta = 256, 8192, 1024, rng.normal(size=256)
    X = rng.normal(size=(n + 4096, d))
    y = (X @ beta + 4 * rng.normal(size=len(X)))[:, None]
    phi = bo.draw(Linear(), "orthogonal", n_features=d, n_inputs=d)
    true = float(((y[n:] - X[n:] @ np.linalg.lstsq(X[:n], y[:n], rcond=None)[0]) ** 2).mean())
    assert assess(phi, X[:m], Targets(y[:m], np.ones(m), n))[0] == pytest.approx(true, rel=0.2)
    assert assess(phi, X[:m], Targets(y[:m], np.ones(m), m))[0] > 1.2 * true


@pytest.mark.main_cases(1)
@pytest.mark.parametrize(("n", "words"), [(N, "extrapolated from leave"), (600, "relative")])
def test_methods_are_compared_by_targets_if_there_are_enough_rows(n, words):
    X, y = table(n)
    model = bo.KernelRidge(Gaussian(0.3), n_features=64, random_state=0).fit(X, y)
    assert words in model.choice_.reason
    labels = bo.KernelRidgeClassifier(Gaussian(0.3), n_features=64, random_state=0).fit(X, y > 5)
    assert words in labels.choice_.reason
    constant = bo.KernelRidge(Gaussian(0.3), n_features=64, random_state=0).fit(X, 0 * y)
    assert "relative error" in constant.choice_.reason
    components = bo.KernelPCA(2, Gaussian(0.3), n_features=64, random_state=0).fit(X)
    assert "relative error" in components.choice_.reason


def test_preconditioners_are_chosen_by_the_kernel_not_by_targets():
    """Rows are near forty points, so landmarks represent them all."""
    rng = np.random.default_rng(1)
    X = np.repeat(rng.normal(0, 9, (40, 8)), N // 40, axis=0) + 0.1 * rng.normal(size=(N, 8))
    y = np.random.default_rng(3).normal(size=N)
    candidates = Auto((Fourier(), Nystrom()))
    options = dict(n_features=48, alpha=1.0, random_state=0)
    features = bo.KernelRidge(Gaussian(4.0), method=candidates, **options).fit(X, y)
    assert features.choice_.method == Fourier()
    exact = bo.KernelRidge(Gaussian(4.0), method=bo.ExactKernel(candidates), **options).fit(X, y)
    assert "features of Nystrom()" in exact.choice_.reason
