"""Choices: kernels among candidates, metrics, transformed columns, sparse and wide rows."""

import json
import re

import naive
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from gallery import sample_of
from internals import with_peak
from sklearn.base import clone
from tolerance import assert_close

import bochner as bo
from bochner.errors import UnsupportedKernel
from bochner.features import Fourier, Projected
from bochner.kernels import Gaussian, Matern, Monotone
from bochner.selection.choose import choose_curves, choose_kernel
from bochner.selection.lengthscales import EVIDENCE, MatrixSearch
from bochner.selection.race import Race, learn_metric
from bochner.selection.spec import EFFORTS, Effort, accepts_sparse

# ---- kernels chosen among candidates

QUICK = Effort(rows=96, finalists=2, rounds=1)


def table(name, n=300, seed=0):
    """Return rows of four columns, and the target of this name."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 4)) * [1.0, 1.0, 5.0, 0.2]
    noise = 0.1 * rng.standard_normal(n)
    return X, noise + {
        "one column": np.sin(3 * X[:, 0]),
        "all columns": np.sin(np.linalg.norm(X / [1.0, 1.0, 5.0, 0.2], axis=1)),
        "diagonal": np.sin(2 * (X[:, 0] + X[:, 1])),
        "noise": 10 * noise,
    }[name]


def best_of(X, y, w=None, **changes):
    options = {"effort": QUICK} | changes
    race = Race.of(sample_of(X, y, w), 0, options.pop("effort"), **options)
    return None if race is None else race.best()


def error(kernel, X, y, T, u):
    return np.mean((bo.KernelRidge(kernel, method="exact").fit(X, y).predict(T) - u) ** 2)


@pytest.mark.main_cases(2)
@pytest.mark.parametrize("name", ["one column", "all columns", "diagonal", "noise"])
def test_the_chosen_kernel_is_not_worse_than_one_lengthscale_on_new_rows(name):
    """On 700 new rows, the ratio of errors of two good fits varies by less than a tenth."""
    (X, y), (T, u) = table(name), table(name, 700, seed=1)
    result = best_of(X, y, effort=EFFORTS["medium"])
    simple = bo.KernelRidge("gaussian", method="exact", random_state=0).fit(X, y).kernel_
    assert error(result.kernel, X, y, T, u) <= 1.1 * error(simple, X, y, T, u)
    if name in ("one column", "diagonal"):
        assert error(result.kernel, X, y, T, u) < 0.7 * error(simple, X, y, T, u)


def test_comparisons_state_the_gains_and_required_gains():
    """Each candidate is compared with the best of those that are preferred in a tie."""
    result = best_of(*table("one column"))
    last = max(c.rows for c in result.candidates)
    best, *losers = (c for c in result.candidates if c.rows == last)
    for c in losers:
        assert c.gain == pytest.approx(best.error - c.error)
        assert c.required >= 0.003 * best.error
        best = c if c.gain > c.required else best
    assert best.chosen
    assert result.ranked[0].chosen or "Rank 1 is not chosen: it lowers the error of" in str(result)
    assert sum(c.chosen for c in result.candidates) == 1
    assert next(c for c in result.candidates if c.chosen).kernel == result.kernel
    assert len({c.name for c in result.candidates}) == len(result.candidates) > 6
    assert result.error >= 0.9 * min(c.error for c in result.candidates)
    assert {c.rows for c in result.candidates} == {96, 192}
    limited = best_of(*table("one column"), serves=lambda kernel: isinstance(kernel, Gaussian))
    assert {type(c.kernel) for c in limited.candidates} == {Gaussian}


def test_candidates_print_as_a_table_sorted_by_r2():
    X, y = table("one column")
    model = bo.KernelRidge(random_state=0).fit(pd.DataFrame(X, columns=list("abcd")), y)
    search = model.search_
    assert re.search(r" Kernel: .+, held-out R² -?[\d.]+ \(.+ baseline -?", model.choice_.reason)
    head, *rows = search.lines()
    assert head[1:5] == ("rank", "kernel", "terms", "lengthscales")
    assert [float(row[5]) for row in rows] == sorted((float(row[5]) for row in rows), reverse=True)
    assert [row[0] for row in rows].count(">") == 1
    assert re.search(r"\ba \d", next(row[4] for row in rows if row[0]))
    assert str(search).startswith(f"{search.summary}\n")
    assert json.loads(json.dumps(search.facts()))[0]["rank"] == 1


@pytest.mark.parametrize("learner", [bo.KernelRidge, bo.GaussianProcessRegressor, bo.SVR])
def test_rows_with_two_distinct_values_are_fitted(learner):
    """For example a column of yes and no: the sample of the choice may have one value only."""
    X = np.repeat([[0.0], [1.0]], [10, 70], axis=0)
    y = X[:, 0] + np.linspace(-0.1, 0.1, 80)
    assert best_of(X, y) is None
    means = learner(random_state=0).fit(X, y).predict([[0.0], [1.0]])
    assert means == pytest.approx([y[:10].mean(), y[10:].mean()], abs=0.15)


@pytest.mark.parametrize("n_rows", [5, 63])
def test_few_rows_and_constant_targets_get_the_default_kernel(n_rows):
    X, y = table("one column")
    assert best_of(X, np.ones(len(X))) is None
    arguments = (sample_of(X[:n_rows], y[:n_rows]), 0, None, None, "medium")
    assert isinstance(choose_kernel("auto", *arguments).kernel, Gaussian)
    learned = learn_metric(Gaussian(), sample_of(X, np.ones(300)), 0)
    assert (learned.candidates, learned.kernel) == ((), Gaussian())


def test_choices_support_weights_several_targets_sparse_rows_and_given_penalties():
    X, y = table("one column")
    w = 1.0 + np.arange(300) % 2
    assert best_of(X, np.column_stack([y, -y, np.zeros(300)]), w).error < 0.3
    assert best_of(X, y, share=1e-3, centred=False).share == pytest.approx(1e-3)
    sparse = best_of(scipy.sparse.csr_array(X), y)
    assert all(c.kernel.get_params()["lengthscale"] for c in sparse.candidates)


def test_copies_do_not_improve_the_error_of_a_metric():
    """Noise cannot be predicted; a copy of a held-out row in the fit would predict its target."""
    X = np.repeat(np.random.default_rng(0).standard_normal((100, 2)), 4, axis=0)
    noise = np.repeat(np.random.default_rng(1).standard_normal(100), 4)
    model = bo.KernelRidge("gaussian", metric="learned", n_features=64, random_state=0)
    assert model.fit(X, noise).metric_.error > 0.9


SPECIAL = [bo.ReLU(), bo.Sign(), bo.Explicit(), bo.HistogramSampling(), bo.NeuralTangentFeatures()]


@pytest.mark.parametrize("method", SPECIAL, ids=repr)
@pytest.mark.parametrize("metric", [None, "learned"])
def test_auto_raises_with_the_kernels_of_a_method_that_supports_no_candidate(method, metric):
    X, y = table("one column", 80)
    model = bo.KernelRidge(method=method, metric=metric, n_features=16, random_state=0)
    for fit in (model.fit, lambda X, y: bo.tune(model, X, y)):
        with pytest.raises(UnsupportedKernel, match=r"requires .*(Angular|Arc|Neural|Chi2|Linear)"):
            fit(X, y)


def test_classes_of_an_additive_function_get_a_sum_over_columns():
    """600 rows determine no product over six waves and six binary columns."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.integers(0, 2, (800, 6)), rng.uniform(-2, 2, (800, 6))])
    f = X[:, :6] @ rng.standard_normal(6) + np.sin(2 * X[:, 6:]).sum(axis=1)
    y = np.where(f + 0.3 * rng.logistic(size=800) > np.median(f), 1.0, -1.0)
    result = best_of(X, y, of_classes=True, effort=EFFORTS["medium"])
    assert "sum over columns" in next(c for c in result.candidates if c.chosen).name
    assert 0 < result.error < 0.8 * min(c.error for c in result.candidates if c.n_tuned <= 1)
    assert "Linear, a metric with lengthscales along" in str(result)
    assert len(str(result).splitlines()[-1]) < 2000


def test_classes_compare_a_metric_learned_from_one_lengthscale_with_more_rows():
    X, y = table("all columns", 900)
    result = best_of(X, np.sign(y), of_classes=True)
    metrics = [c for c in result.candidates if c.name.startswith("Gaussian, learned metric")]
    assert max(c.rows for c in metrics) == 4 * QUICK.rows


def test_descents_of_noise_start_at_a_penalty_above_one():
    search = MatrixSearch.of(sample_of(*table("noise")), EVIDENCE, True)
    assert search.first_points(Matern(1.5, 2.0))[0].alpha == pytest.approx(10.0)


# ---- the learned metric


@pytest.fixture(scope="module")
def rotated():
    """Return a function of one direction across six columns with different units."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((600, 6))
    y = np.sin(2 * X @ np.ones(6) / 6**0.5) + 0.05 * rng.standard_normal(600)
    return X * [1, 100, 0.01, 1, 1, 1], y


@pytest.fixture(scope="module")
def learned(rotated):
    """Return the metric learned from 450 of these rows."""
    X, y = rotated
    return learn_metric(Gaussian(tuple(X.std(axis=0) * 2)), sample_of(X[:450], y[:450]), 0)


@pytest.mark.main_cases(3)
def test_the_learned_metric_has_the_relevant_direction(learned, rotated):
    """The best round is chosen, and is better than one lengthscale per column."""
    values, vectors = np.linalg.eigh(np.array(learned.matrix))
    assert abs(vectors[:, -1] @ np.ones(6)) / 6**0.5 > 0.99
    assert values[-1] > 20 * values[-2]
    assert np.isclose(np.trace(learned.matrix), 6.0)
    X, y = rotated
    (start,) = (c for c in learned.candidates if c.name == "start")
    assert learned.kernel == learned.chosen.kernel
    assert learned.chosen.error <= learned.error < 0.3 * start.error
    kernels, options = (start.kernel, learned.kernel), {"n_features": 128, "random_state": 0}
    fits = (bo.KernelRidge(k, **options).fit(X[:450], y[:450]) for k in kernels)
    original, result = (np.mean((m.predict(X[450:]) - y[450:]) ** 2) for m in fits)
    assert result < 0.3 * original


def test_a_metric_of_many_columns_has_one_lengthscale_for_each():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 260))
    y = np.sin(X[:, 0]) + X[:, 1] + 0.05 * rng.standard_normal(400)
    metric = learn_metric(Gaussian(20.0), sample_of(X, y), 0)
    assert {*np.argsort(metric.kernel.lengthscale)[:2]} == {0, 1}
    (start,) = (c for c in metric.candidates if c.name == "start")
    assert metric.chosen.error < 0.1 * start.error


# ---- learners with metric="learned"

TURNED_RNG = np.random.default_rng(0)
TURNED_X = TURNED_RNG.standard_normal((700, 5))
CLEAN = np.sin(2 * (TURNED_X[:, 0] + TURNED_X[:, 1]))
TURNED_Y = CLEAN + 0.1 * TURNED_RNG.standard_normal(700)
TURNED_LABELS = np.where(CLEAN > 0, "up", "down")
METRIC_OPTIONS = {"kernel": "gaussian", "n_features": 64, "random_state": 0, "method": "orthogonal"}

IN_METRIC = {
    "ridge": (bo.KernelRidge(**METRIC_OPTIONS), TURNED_Y),
    "exact": (bo.KernelRidge("gaussian", n_features=64, random_state=0, method="exact"), TURNED_Y),
    "process": (bo.GaussianProcessRegressor(**METRIC_OPTIONS), TURNED_Y),
    "losses": (bo.KernelRegressor(alpha=0.1, **METRIC_OPTIONS), TURNED_Y),
    "classes": (bo.KernelRidgeClassifier(**METRIC_OPTIONS), TURNED_LABELS),
    "vectors": (bo.SVR(**METRIC_OPTIONS), TURNED_Y),
    "margins": (bo.SVC(**METRIC_OPTIONS), TURNED_LABELS),
    "probabilities": (bo.LogisticRegression(**METRIC_OPTIONS), TURNED_LABELS),
}


@pytest.mark.main_cases(2)
@pytest.mark.parametrize("name", IN_METRIC)
def test_all_learners_find_the_relevant_direction(name):
    learner, y = IN_METRIC[name]
    plain, model = (
        clone(learner).set_params(metric=metric).fit(TURNED_X[:500], y[:500])
        for metric in (None, "learned")
    )
    assert model.score(TURNED_X[500:], y[500:]) > plain.score(TURNED_X[500:], y[500:])
    leading = np.linalg.eigh(np.array(model.metric_.matrix))[1][:, -1]
    assert abs(leading[:2].sum()) / 2**0.5 > 0.95  # along the sum of the first two columns


# ---- skewed columns are transformed if that predicts better

CURVE_RNG = np.random.default_rng(0)
SKEWED = np.column_stack([CURVE_RNG.lognormal(0, 2, 600), CURVE_RNG.normal(size=600)])
FAST = {"n_features": 128, "random_state": 0}


UNIFORM, NORMAL = 6 * CURVE_RNG.uniform(size=600), 2.5 * CURVE_RNG.normal(size=600)
TAILS = CURVE_RNG.standard_t(1.5, 600)
#: A column and its transformation, of which the target is a smooth function.
SHAPES = {
    "logarithms": (np.exp(UNIFORM), 3 * UNIFORM),
    "quantiles": (np.sinh(NORMAL), NORMAL),
    "clipped": (TAILS, 2 * TAILS / np.sqrt(1 + (TAILS / 3) ** 2)),
}


@pytest.mark.parametrize("name", SHAPES)
def test_a_smooth_function_of_a_transformed_column_is_found(name):
    x, u = SHAPES[name]
    rows = np.column_stack([x, SKEWED[:, 1]])
    curves = choose_curves(sample_of(rows, np.sin(u) + rows[:, 1]), 0)
    assert (curves.name, curves.columns) == (name, (0,))
    assert curves.gain > 0.3
    transformed = curves.inputs(rows)
    np.testing.assert_array_equal(transformed[:, 1], rows[:, 1])
    assert (np.diff(transformed[np.argsort(x), 0]) >= 0).all()
    assert np.corrcoef(transformed[:, 0], u)[0, 1] > 0.98
    original, result = (np.clip(x, *np.quantile(x, [0.01, 0.99])) for x in (x, transformed[:, 0]))
    assert np.std(result) == pytest.approx(np.std(original), rel=1e-3)


def test_columns_are_not_transformed_without_a_gain():
    y = np.sin(SKEWED[:, 1])  # independent of the skewed column
    assert choose_curves(sample_of(SKEWED[:, 1:], y), 0) is None
    normal = CURVE_RNG.normal(size=(600, 2))
    assert choose_curves(sample_of(normal, normal[:, 0]), 0) is None
    assert choose_curves(sample_of(SKEWED[:50], SKEWED[:50, 0]), 0) is None
    assert choose_curves(sample_of(scipy.sparse.csr_array(SKEWED), y), 0) is None
    assert choose_curves(sample_of(SKEWED, np.zeros(600)), 0) is None


@pytest.mark.main_cases(1)
@pytest.mark.parametrize("cls", [bo.KernelRidge, bo.KernelRidgeClassifier])
def test_fits_and_model_files_transform_columns(cls, tmp_path):
    f = np.sin(2 * np.log(SKEWED[:, 0]))
    y = f > 0 if cls is bo.KernelRidgeClassifier else f
    rows = SKEWED.astype(np.float32)
    fit = lambda **options: cls("gaussian", **options, **FAST).fit(rows[:400], y[:400])
    plain, model = fit(columns="as_given"), fit()
    assert isinstance(model.kernel_, Monotone)
    assert isinstance(plain.kernel_, Gaussian)
    assert model.score(rows[400:], y[400:]) > plain.score(rows[400:], y[400:]) + 0.05
    bo.save(model, tmp_path / "m")
    np.testing.assert_array_equal(bo.load(tmp_path / "m").predict(rows), model.predict(rows))
    single = fit(method="nystrom", precision="float32", alpha=0.1)
    f, Z = raw_predictions(single, rows), single.fit_.chosen.double(rows)
    np.testing.assert_allclose(f, Z @ single.coef_.ravel() + single.intercept_, atol=1e-4)
    np.testing.assert_array_equal(raw_predictions(single, rows.astype(np.float64)), f)


# ---- choices and predictions of sparse rows equal those of dense rows


def raw_predictions(model, rows):
    return getattr(model, "decision_function", model.predict)(rows)


def skewed(n=300):
    """Return rows with outliers, and a target with a kink along each column."""
    rng = np.random.default_rng(1)
    rows = np.exp(1.5 * rng.standard_normal((n, 3))) * (rng.random((n, 3)) < 0.7)
    return rows, np.abs(np.log1p(rows) - 0.5).sum(axis=1)


@pytest.mark.main_cases(1)
@pytest.mark.parametrize(
    "learner", [bo.KernelRidge, bo.GaussianProcessRegressor, bo.SVR, bo.KernelRidgeClassifier]
)
def test_choices_of_sparse_rows_equal_those_of_dense_rows(learner):
    rows, y = skewed()
    y = y > np.median(y) if learner is bo.KernelRidgeClassifier else y
    dense = learner(random_state=0).fit(rows, y)
    sparse = learner(random_state=0).fit(scipy.sparse.csr_array(rows), y)
    assert isinstance(dense.kernel_, Monotone) or not accepts_sparse(dense.kernel_)
    assert sparse.kernel_ == dense.kernel_
    expected = raw_predictions(dense, rows)
    if isinstance(dense, bo.KernelRidge | bo.SVR):  # predictions use the transformed rows
        by_rows = dense.kernel_(rows, dense.X_fit_) @ dense.dual_coef_ + dense.intercept_
        assert_close(expected, by_rows, factor=300)
    for X in (rows, scipy.sparse.csr_array(rows), scipy.sparse.csc_matrix(rows)):
        assert_close(raw_predictions(sparse, X), expected, factor=300)
        assert_close(raw_predictions(dense, X), expected, factor=300)


# ---- tables of more columns than rows

D = 5000


def wide_table(n=60, d=D, seed=0):
    """Return rows near a subspace of three dimensions; the target is its first coordinate."""
    rng = np.random.default_rng(seed)
    hidden = rng.standard_normal((n, 3))
    X = hidden @ rng.standard_normal((3, d)) + 0.5 * rng.standard_normal((n, d))
    return X, hidden[:, 0] + 0.1 * rng.standard_normal(n)


def sparse_table(n=60, d=D):
    X = scipy.sparse.random(n, d, density=0.02, format="csr", random_state=0)
    return X, np.asarray(X[:, : d // 5].sum(axis=1)).ravel()


FITS = [
    {},
    {"kernel": "auto"},
    {"kernel": "laplace"},
    {"n_features": 32},
    {"kernel": "auto", "n_features": 32},
    {"n_features": 32, "method": "structured"},
    {"n_features": 32, "method": Projected(Fourier(), 4)},
]


@pytest.mark.main_cases(2)
@pytest.mark.parametrize(
    ("rows", "options"),
    [
        *((wide_table, options) for options in FITS),
        *((sparse_table, options) for options in FITS if options.get("kernel") != "laplace"),
    ],
)
def test_fits_of_wide_tables_need_no_matrix_of_columns_by_columns(options, rows):
    """64 MB hold the rows 26 times, or 512 frequencies three times; d² numbers take 200 MB."""
    X, y = rows()
    model = bo.KernelRidge(**({"n_features": 512} | options), random_state=0)
    _, peak = with_peak(lambda: model.fit(X, y))
    assert peak < 64 << 20


@pytest.mark.parametrize("kernel", ["gaussian", "auto"])
def test_wide_fits_equal_a_dense_solve(kernel):
    X, y = wide_table(90)
    model = bo.KernelRidge(kernel, random_state=0).fit(X[:60], y[:60])
    coef, b = naive.dual(model.kernel_(X[:60]), y[:60, None], model.alpha_, np.ones(60))
    expected = (model.kernel_(X[60:], X[:60]) @ coef + b)[:, 0]
    # The jitter of 1e-12 relative to alpha, amplified by the inverse.
    allowed = 1e-6 + 100 * 1e-12 * 60 / model.alpha_
    assert np.abs(model.predict(X[60:]) - expected).max() < allowed * np.ptp(y)
    assert model.score(X[60:], y[60:]) > 0.8
