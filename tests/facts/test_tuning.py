"""Criteria and their gradients, the search of a kernel, and its path."""

from dataclasses import replace

import naive
import numpy as np
import pytest
from scipy.linalg import LinAlgError
from scipy.sparse import csr_array
from scipy.stats import norm
from sklearn.base import clone
from sklearn.linear_model import Ridge
from tolerance import ALARM

import bochner as bo
from bochner import Blocks, Moments, tune
from bochner.errors import InvalidInput, UnsupportedKernel
from bochner.kernels import (
    Cauchy,
    Exponential,
    Gaussian,
    Laplace,
    Linear,
    Matern,
    RationalQuadratic,
)
from bochner.selection.descent import (
    LOWEST,
    Hyperparameters,
    OnFeatures,
    Prior,
    Rescaled,
    TimeBudget,
    descend,
)
from bochner.selection.rows import TuningRows, rows_of, screen
from bochner.selection.search import tune_kernel
from bochner.selection.trials import FOLDS, crossed, first_least
from bochner.solvers.ridge.criteria import (
    CRITERIA,
    FEW,
    LeaveOneOutError,
    evidence,
    leave_one_out_error,
)
from bochner.solvers.ridge.eigen import decompose
from bochner.solvers.ridge.path import path_of
from bochner.sums.rows import sampled

FAMILIES = [
    Gaussian(),
    Exponential(),
    Matern(1.5),
    RationalQuadratic(2.0),
    Laplace(),
    Cauchy(),
]


def problem(seed, n=60, D=8, t=2):
    rng = np.random.default_rng(seed)
    Z = rng.standard_normal((n, D)) + 1.0
    y = Z[:, :t] + rng.standard_normal((n, t))
    return Z, y, rng.uniform(0.3, 2.5, n)


def sample_of(X, y, w=None, seed=0):
    return sampled(Blocks.from_arrays(X, y, w), seed)


# --- criteria ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CRITERIA)
@pytest.mark.parametrize("alpha", [0.05, 5.0])
def test_gradients_of_criteria_are_central_differences(name, alpha):
    Z, y, w = problem(0)
    criterion, h = CRITERIA[name], 1e-5
    score = criterion(Z, y, w, alpha)
    E = np.random.default_rng(1).standard_normal(Z.shape)
    along = (criterion(Z + h * E, y, w, alpha).value - criterion(Z - h * E, y, w, alpha).value) / (
        2 * h
    )
    assert np.isclose((score.by_features * E).sum(), along, rtol=1e-6, atol=1e-8)
    up, down = (criterion(Z, y, w, alpha * np.exp(s)).value for s in (h, -h))
    assert np.isclose(score.by_log_alpha, (up - down) / (2 * h), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", CRITERIA)
@pytest.mark.parametrize(("alpha", "n"), [(0.05, 20), (1e-3, 12), (1e-3, 24)])
def test_gradients_hold_where_the_fit_nearly_passes_through_the_rows(name, alpha, n):
    """Central differences of h = 1e-4 are off by h² times a third derivative."""
    Z, y, w = problem(1, n, D=20)
    criterion, h = CRITERIA[name], 1e-4
    score = criterion(Z, y, w, alpha)
    E = np.random.default_rng(1).standard_normal(Z.shape)
    sides = [criterion(Z + s * E, y, w, alpha).value for s in (h, -h)]
    along = (sides[0] - sides[1]) / (2 * h)
    assert np.isclose((score.by_features * E).sum(), along, rtol=1e-4, atol=1e-4)
    up, down = (criterion(Z, y, w, alpha * np.exp(s)).value for s in (h, -h))
    assert np.isclose(score.by_log_alpha, (up - down) / (2 * h), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("n", "D"), [(5, 20), (30, 40), (40, 40), (48, 40), (60, 40)])
def test_leave_one_out_error_is_that_of_refits_down_to_the_lowest_penalty(n, D, dtype):
    """Or there is none; rounding is below a hundred times its first-order bound."""
    Z, y, w = problem(n, n, D)
    y = np.random.default_rng(n).standard_normal(y.shape)
    Z = Z.astype(dtype)
    shares = np.logspace(np.log10(LOWEST[np.dtype(dtype).name]), 0, 10)
    alphas = shares * w.sum()
    refits = naive.left_out_errors(Z.astype(float), y, w, alphas, range(n))
    variance = w @ (y - w @ y / w.sum()) ** 2
    expected = (np.einsum("i,ipt->pt", w, refits**2) / variance).mean(axis=1)
    for alpha, error in zip(alphas, expected, strict=True):
        unit = np.finfo(dtype if n > FEW * D else np.float64).eps
        allowed = 100 * unit * (1 + np.linalg.norm(Z, 2) ** 2 * w.max() / alpha)
        try:
            assert np.expm1(abs(CRITERIA["loo"](Z, y, w, alpha).value - np.log(error))) < allowed
        except LinAlgError:
            assert n > FEW * D
            assert alpha < 1e-4 * w.sum()


def test_leave_one_out_error_is_that_of_refits_without_the_row():
    Z, y, _ = problem(2, n=30)
    alpha, ones = 0.7, np.ones(30)
    errors = []
    for i in range(30):
        kept = np.arange(30) != i
        model = Ridge(alpha=alpha).fit(Z[kept], y[kept])
        errors.append((y[i] - model.predict(Z[i : i + 1])[0]) ** 2)
    relative = np.mean(errors, axis=0) / y.var(axis=0)
    value = leave_one_out_error(Z, y, ones, alpha).value
    assert np.isclose(value, np.log(relative.mean()), rtol=1e-10)


def test_a_weight_of_two_is_a_row_twice():
    Z, y, _ = problem(3)
    twice = np.concatenate([np.arange(60), np.arange(20)])
    w = np.where(np.arange(60) < 20, 2.0, 1.0)
    for criterion in (leave_one_out_error, evidence):
        weighted = criterion(Z, y, w, 0.5)
        copied = criterion(Z[twice], y[twice], np.ones(80), 0.5)
        assert np.isclose(weighted.value, copied.value, rtol=1e-10)
        assert np.isclose(weighted.by_log_alpha, copied.by_log_alpha, rtol=1e-8)


def test_evidence_is_that_of_the_path():
    Z, y, w = problem(4)
    eigen = decompose(Moments.of(Z, y, w))
    path = path_of(eigen, np.array([0.3]))
    freedom = eigen.count - 1
    assert np.isclose(evidence(Z, y, w, 0.3).value, -path.evidence[0] / freedom, rtol=1e-10)


def test_float32_features_give_the_same_score():
    Z, y, w = problem(5)
    for criterion in CRITERIA.values():
        wide, narrow = criterion(Z, y, w, 0.5), criterion(Z.astype(np.float32), y, w, 0.5)
        assert narrow.by_features.dtype == np.float32
        assert np.isclose(wide.value, narrow.value, rtol=1e-4)
        scale = np.abs(wide.by_features).max()
        assert np.allclose(narrow.by_features, wide.by_features, atol=1e-3 * scale)


# --- rescaled features ---------------------------------------------------------------------------


def objective_of(family, name="loo", many=True, n=80, d=3, D=16):
    rng = np.random.default_rng(6)
    X = rng.standard_normal((n, d))
    y = np.sin(X[:, :1] + X[:, 1:2]) + 0.1 * rng.standard_normal((n, 1))
    rows = TuningRows.of(X, y, rng.uniform(0.5, 2.0, n), X.std(axis=0))
    offsets = np.array([0.0, 0.2, -0.1])
    objective = OnFeatures(Rescaled.draw(family, d, D, 0), rows, offsets, CRITERIA[name])
    shape = np.log(1.3) if isinstance(family, Matern | RationalQuadratic) else None
    return objective, Hyperparameters(np.full(d if many else 1, 0.7), np.log(1e-2), shape)


@pytest.mark.parametrize("many", [True, False])
@pytest.mark.parametrize("family", FAMILIES, ids=repr)
def test_gradients_in_lengthscales_smoothness_and_penalty_are_central_differences(family, many):
    objective, at = objective_of(family, many=many)
    _, gradient = objective(at)
    h = 1e-6 if isinstance(family, Exponential | Laplace) else 1e-5
    for i, slope in enumerate(gradient):
        step = h * (np.arange(len(gradient)) == i)
        up, down = (objective(at.like(at.vector + s))[0] for s in (step, -step))
        assert np.isclose(slope, (up - down) / (2 * h), rtol=1e-4, atol=1e-6)


def test_rescaled_features_have_the_kernel_at_those_lengthscales():
    X = np.random.default_rng(7).standard_normal((20, 2))
    logs = np.log([0.8, 2.0])
    for family in FAMILIES:
        rescaled, m = Rescaled.draw(family, 2, 10_000, 1), 5000
        Z = rescaled.features(X, rescaled.frequencies(logs, None))
        K = rescaled.kernel(tuple(np.exp(logs)), None)(X)
        bar = norm.isf(ALARM / (2 * K.size * len(FAMILIES))) / np.sqrt(2 * m)
        assert np.abs(Z @ Z.T - K).max() < 1.5 * bar
        halved = rescaled.kernel(tuple(0.5 * np.exp(logs)), None)(X)  # the fault it would catch
        assert np.abs(Z @ Z.T - halved).max() > 1.5 * bar


def test_a_descent_never_ends_above_its_start_and_stops_when_told():
    objective, at = objective_of(Matern(1.5))
    values = []
    point = descend(objective, at, 5, TimeBudget.of(None), lambda found: values.append(found.value))
    assert len(values) == 5
    assert point.value == min(values) <= values[0]
    late = TimeBudget(0.0, 0.0)
    again = []
    descend(objective, at, 5, late, lambda found: again.append(found.value))
    assert again == values[:1]


@pytest.mark.parametrize("many", [True, False])
def test_the_gradient_minds_the_prior_and_the_range_holds_the_start(many):
    plain, at = objective_of(Matern(1.5), many=many)
    prior = Prior(0.2, 80.0, columns=3)
    objective = replace(plain, prior=prior)
    value, gradient = objective(at)
    distance = at.lengths - 0.2
    assert np.isclose(value - plain(at)[0], distance @ distance / (2 * 9 * 80))
    for i in range(len(at.lengths)):
        step = 1e-5 * (np.arange(len(gradient)) == i)
        up, down = (objective(at.like(at.vector + s))[0] for s in (step, -step))
        assert np.isclose(gradient[i], (up - down) / 2e-5, rtol=1e-4, atol=1e-6)
    low, high = prior.bounds(0.7)
    assert np.allclose([low, high], [0.2 - np.log(128 * 3**0.5), 0.2 + np.log(32)])
    assert prior.bounds(9.0) == (low, 9.0)
    assert prior.bounds(-9.0) == (-9.0, high)


# --- the judge -----------------------------------------------------------------------------------


@pytest.mark.statistical
def test_errors_of_a_choice_are_those_of_rows_it_was_not_made_by():
    """Twenty candidates that are alike, 40 rows each: squared normal errors, of mean one.

    What is chosen by three folds is judged by the fourth, so the mean over 400 tables is one but
    for √(2/40/400): five of those deviations, alarm rate 6e-7. The least of twenty means is .6.
    """
    rng = np.random.default_rng(0)
    tables = rng.standard_normal((400, 20, 40)) ** 2
    told = np.mean([crossed(list(table)).mean() for table in tables])
    assert abs(told - 1) < 5 * np.sqrt(2 / 40 / 400)
    assert np.mean([table.mean(axis=1).min() for table in tables]) < 0.7


def test_a_choice_of_one_and_of_few_rows_is_that_one():
    one = np.arange(12.0)
    assert np.array_equal(crossed([one, one + 1]), one)
    few = np.ones(2 * FOLDS - 1)
    assert np.array_equal(crossed([2 * few, few]), few)
    assert first_least([1.0 + 1e-9, 1.0]) == 0
    assert first_least([1.1, 1.0]) == 1


# --- the search ----------------------------------------------------------------------------------


def drawn_function(X, kernel, noise, seed):
    """A draw of a Gaussian process, by Cholesky: no features in it."""
    rng = np.random.default_rng(seed)
    K = kernel(X) + 1e-10 * np.eye(len(X))
    return np.linalg.cholesky(K) @ rng.standard_normal(len(X)) + noise * rng.standard_normal(len(X))


@pytest.mark.parametrize("criterion", ["evidence", "loo"])
def test_lengthscales_of_a_function_drawn_from_a_process_are_found(criterion):
    """Within five deviations of the log: Fisher information of the exact process at the truth.

    I_kl = ½ tr(C⁻¹ ∂_k C C⁻¹ ∂_l C) bounds what any unbiased estimate can do, and maximum
    likelihood attains it. Leave-one-out is not efficient: twice the deviation.
    """
    rng = np.random.default_rng(8)
    X, truth, noise = rng.uniform(-2, 2, (400, 2)), np.array([0.8, 2.0]), 0.1
    y = drawn_function(X, Gaussian(tuple(truth)), noise, 9)
    K = Gaussian(tuple(truth))(X)
    inverse = np.linalg.inv(K + noise**2 * np.eye(len(X)))
    slopes = [K * (X[:, [k]] - X[:, k]) ** 2 / truth[k] ** 2 for k in range(2)]
    parts = [inverse @ S for S in [*slopes, K, noise**2 * np.eye(len(X))]]
    information = [[0.5 * np.sum(A * B.T) for B in parts] for A in parts]
    deviation = np.sqrt(np.diag(np.linalg.inv(information))[:2])
    rows = rows_of(sample_of(X, y))
    objective = OnFeatures(
        Rescaled.draw(Gaussian(), 2, 256, 0), rows, np.zeros(2), CRITERIA[criterion]
    )
    point = descend(
        objective,
        Hyperparameters(np.zeros(2), np.log(1e-2)),
        25,
        TimeBudget.of(None),
        lambda _: None,
    )
    found = np.log(objective.kernel(point.at).lengthscale)
    bar = (5 if criterion == "evidence" else 10) * deviation
    assert np.all(np.abs(found - np.log(truth)) < bar)
    assert np.all(bar < np.log(3.0))  # a factor of three would be seen


@pytest.fixture(scope="module")
def ridge_of_one_column():
    rng = np.random.default_rng(10)
    X = rng.standard_normal((500, 6)) * [1, 10, 0.1, 1, 1, 1]
    y = np.sin(2 * X[:, 1] / 10) + np.cos(X[:, 3] * 1.5) + 0.1 * rng.standard_normal(500)
    return X, y


@pytest.fixture(scope="module")
def tuned(ridge_of_one_column):
    return tune_kernel("auto", sample_of(*ridge_of_one_column), 64, 1)


def test_columns_that_do_not_matter_get_long_lengthscales(tuned, ridge_of_one_column):
    lengths = np.array(tuned.kernel.lengthscale) / ridge_of_one_column[0].std(axis=0)
    assert lengths[[1, 3]].max() * 3 < np.delete(lengths, [1, 3]).min()
    assert tuned.error < 0.05


def test_the_best_of_each_stage_never_rises(tuned):
    stages = {
        name: [s for s in tuned.path if s.stage == name]
        for name in dict.fromkeys(s.stage for s in tuned.path)
    }
    assert {"one lengthscale", "one a column", "more rows", "trial", "scale"} == set(stages)
    for steps in stages.values():
        best = [step.best for step in steps]
        assert best == list(np.minimum.accumulate([step.value for step in steps]))
    seconds = [step.seconds for step in tuned.path]
    assert seconds == sorted(seconds)


def test_the_same_seed_finds_the_same_kernel(tuned, ridge_of_one_column):
    again = tune_kernel("auto", sample_of(*ridge_of_one_column), 64, 1)
    assert again.kernel == tuned.kernel
    assert again.share == tuned.share


def test_what_was_compared_is_kept(tuned):
    nothing, one, many = tuned.compared
    assert (nothing.tuned, one.tuned, many.tuned) == (0, 1, 6)
    assert nothing.taken
    assert many.taken
    assert tuned.error < 0.5 * one.error
    for comparison in (one, many):
        assert comparison.taken == (comparison.gain > comparison.deviation)
    assert "held-out R²" in str(tuned)
    assert str(nothing).startswith("no lengthscale tuned: ")
    assert str(nothing).endswith(f"held-out R² {nothing.score}, taken")


@pytest.mark.parametrize("rows", [60, 300])
def test_lengthscales_stay_in_the_range_that_rows_can_tell(rows):
    """A linear target without noise asks for ever longer ones, and smaller penalties."""
    rng = np.random.default_rng(rows)
    X = rng.standard_normal((rows, 5)) * [1.0, 100.0, 0.01, 1.0, 1.0]
    y = X @ [1.0, 0.01, 0.0, 2.0, 0.0]
    lengths = np.array(tune_kernel("auto", sample_of(X, y), 64, 0).kernel.lengthscale) / X.std(0)
    assert lengths.max() < 4 * 32 * 1.2 * np.sqrt(2 * 5)  # four steps of √2 beyond 32 medians


@pytest.mark.parametrize("kernel", ["auto", Matern(1.5)])
def test_rounding_of_another_processor_finds_the_same_kernel(kernel, monkeypatch):
    """Values and slopes off by 1e-11, a hundred times what two processors differ by."""
    rng = np.random.default_rng(15)
    X = rng.standard_normal((160, 4)) * [1, 10, 0.1, 1]
    y = np.sin(2 * X[:, 0]) + X[:, 3] ** 2 + 0.1 * rng.standard_normal(160)
    here = tune_kernel(kernel, sample_of(X, y), 48, 0)

    class Elsewhere(LeaveOneOutError):
        def __call__(self, *arguments):
            score, off = super().__call__(*arguments), 1e-11 * rng.uniform(-1, 1, 2)
            shaken = 1 + 1e-11 * rng.uniform(-1, 1, score.by_features.shape)
            return replace(
                score,
                value=score.value + off[1],
                by_features=score.by_features * shaken,
                by_log_alpha=score.by_log_alpha * (1 + off[0]),
            )

    monkeypatch.setitem(CRITERIA, "loo", Elsewhere())
    there = tune_kernel(kernel, sample_of(X, y), 48, 0)
    assert there.kernel == here.kernel
    assert [step.kernel for step in there.path] == [step.kernel for step in here.path]
    assert np.isclose(there.error, here.error, rtol=1e-6)


def test_the_path_prints_and_plots(tuned):
    text = str(tuned)
    assert "held-out R²" in text
    assert repr(tuned.kernel) in text
    pytest.importorskip("matplotlib")
    ax = tuned.plot()
    assert len(ax.lines) == 2 * 5
    assert ax.get_xlabel() == "seconds"


def test_few_rows_of_noise_keep_one_lengthscale():
    """Six columns of noise and 60 rows: ARD would fit the rows; the guard holds in 5 of 6 seeds.

    On pure noise neither kernel is surely better, and "surely" is one deviation: 16 % a seed by
    the normal law. More than 4 of 6 by chance: below 1e-3.
    """
    simple = 0
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X, y = rng.standard_normal((60, 6)), rng.standard_normal(60)
        kernel = tune_kernel(Gaussian(2.0), sample_of(X, y), 32, seed).kernel
        ratios = np.array(kernel.lengthscale) / X.std(axis=0)
        simple += np.ptp(np.log(ratios)) < 1.0
    assert simple >= 2


def test_a_budget_is_kept():
    rng = np.random.default_rng(11)
    X = rng.standard_normal((1500, 5))
    y = np.sin(X[:, 0] * X[:, 1]) + 0.1 * rng.standard_normal(1500)
    sample = sample_of(X, y)
    with_time = tune_kernel("auto", sample, 64, 0, budget=1e-6)
    assert max(step.seconds for step in with_time.path) == with_time.path[-1].seconds
    counts = [sum(s.stage == name for s in with_time.path) for name in ("one a column", "trial")]
    assert counts[0] <= 3  # each start is looked at, the best once more, and no step is made
    assert counts[1] == 3  # one of each kind: nothing tuned, one lengthscale, one a column
    assert isinstance(with_time.kernel.lengthscale, float | tuple)


def test_frequencies_screen_columns_that_one_lengthscale_cannot_see():
    """One frequency of 20 columns' two: a kernel of all columns sees noise, the screen sees it."""
    rng = np.random.default_rng(12)
    X = rng.standard_normal((2000, 20))
    y = X[:, 4] * np.sin(1.5 * X[:, 15]) + 0.1 * rng.standard_normal(2000)
    relevance = screen(rows_of(sample_of(X, y)), 0)
    assert set(np.argsort(-relevance.slopes)[:2]) == {4, 15}
    nothing = screen(rows_of(sample_of(X, rng.standard_normal(2000))), 0)
    assert nothing.explained < 0.03 < relevance.explained


def test_a_given_penalty_stays(ridge_of_one_column):
    tuning = tune_kernel(Gaussian(), sample_of(*ridge_of_one_column), 32, 0, share=0.01)
    assert {round(step.share, 12) for step in tuning.path} == {0.01}
    assert np.isclose(tuning.share, 0.01)


def test_weights_of_zero_are_rows_that_are_not_there(ridge_of_one_column):
    X, y = ridge_of_one_column
    w = np.ones(500)
    w[::7] = 0.0
    y = np.where(w > 0, y, 1e6)
    error = tune_kernel(Gaussian((10.0,) * 6), sample_of(X, y, w), 64, 1).error
    assert error < 0.1


# --- estimators ----------------------------------------------------------------------------------


def test_auto_is_a_kernel_of_every_learner_and_beats_one_lengthscale(ridge_of_one_column):
    X, y = ridge_of_one_column
    models = [
        bo.KernelRidge(kernel, n_features=64, random_state=0).fit(X[:400], y[:400])
        for kernel in ("auto", "gaussian")
    ]
    errors = [np.mean((model.predict(X[400:]) - y[400:]) ** 2) for model in models]
    assert errors[0] < 0.5 * errors[1]
    assert models[0].search_.path


def test_few_rows_tell_no_family_from_another_and_a_weight_is_a_row_repeated():
    rng = np.random.default_rng(14)
    X, w = rng.standard_normal((15, 2)), rng.integers(1, 4, 15)
    y, twice = np.sin(X[:, 0]), np.repeat(np.arange(15), w)
    model = bo.KernelRidge("auto", method="fourier", n_features=32, random_state=0)
    weighted = clone(model).fit(X, y, sample_weight=w).predict(X)
    assert np.allclose(weighted, model.fit(X[twice], y[twice]).predict(X), atol=1e-6)
    assert isinstance(model.kernel_, Gaussian)


def test_tune_returns_an_estimator_ready_to_fit(ridge_of_one_column):
    X, y = ridge_of_one_column
    model = bo.KernelRidge(Matern(1.5), n_features=64, method="fourier", random_state=0)
    tuning = tune(model, X, y)
    assert isinstance(tuning.kernel, Matern)
    assert tuning.kernel.smoothness == 1.5
    assert tuning.estimator.kernel == tuning.kernel
    assert model.kernel == Matern(1.5)
    assert clone(tuning.estimator).fit(X, y).score(X, y) > 0.9


def test_classes_are_tuned_for_as_indicators(ridge_of_one_column):
    X, y = ridge_of_one_column
    labels = np.array(["low", "middle", "high"])[np.digitize(y, [-0.5, 0.8])]
    model = bo.KernelRidgeClassifier(n_features=64, random_state=0)
    tuning = tune(model, X, labels)
    lengths = np.array(tuning.kernel.lengthscale) / X.std(axis=0)
    assert set(np.argsort(lengths)[:2]) == {1, 3}
    assert tuning.estimator.fit(X, labels).score(X, labels) > 0.85


def test_methods_are_offered_only_families_they_serve(ridge_of_one_column):
    tuning = tune(
        bo.KernelRidge(method="orthogonal", n_features=32, random_state=0), *ridge_of_one_column
    )
    assert not any(isinstance(step.kernel, Laplace) for step in tuning.path)


def test_sparse_rows_are_tuned_as_dense_ones(tuned, ridge_of_one_column):
    X, y = ridge_of_one_column
    sparse = tune_kernel("auto", sample_of(csr_array(X), y), 64, 1)
    assert sparse.kernel == tuned.kernel
    assert np.isclose(sparse.error, tuned.error, rtol=1e-8)


def test_what_cannot_be_tuned_is_refused(ridge_of_one_column):
    X, y = ridge_of_one_column
    with pytest.raises(UnsupportedKernel, match="requires a stationary kernel with a lengthscale"):
        tune(bo.KernelRidge(Linear()), X, y)
    with pytest.raises(InvalidInput, match="requires an estimator with kernel, method"):
        tune(Ridge(), X, y)
    with pytest.raises(InvalidInput, match="criterion must be one of 'loo', 'evidence'"):
        tune(bo.KernelRidge(), X, y, criterion="aic")
    with pytest.raises(InvalidInput, match="budget must be a positive finite number"):
        tune(bo.KernelRidge(), X, y, budget=0)


def test_a_constant_target_and_few_rows_leave_the_median():
    X = np.random.default_rng(13).standard_normal((50, 2))
    constant = tune_kernel("auto", sample_of(X, np.ones(50)), 16, 0)
    assert isinstance(constant.kernel, Gaussian)
    assert 0.5 < constant.kernel.lengthscale < 4.0
    few = tune_kernel(Matern(1.5, 3.0), sample_of(X[:5], np.arange(5.0)), 16, 0)
    assert few.kernel == Matern(1.5, 3.0)
