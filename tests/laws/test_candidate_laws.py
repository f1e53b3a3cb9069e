"""A kernel chosen among candidates: it is never worse than the simplest, and says what it saw."""

import json
import re

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from scipy.special import log_softmax
from tolerance import assert_close

import bochner as bo
from bochner.data.sample import RowSample, row_priorities
from bochner.errors import InvalidInput, UnsupportedKernel
from bochner.kernels import Exponential, Gaussian, Laplace
from bochner.selection.candidates import choose_among, choose_kernel
from bochner.selection.held_out import relative_losses
from bochner.selection.judges import Matrices, Trials, TunedKernel
from bochner.selection.record import KernelComparison
from bochner.selection.spec import EFFORTS, Effort, as_effort
from bochner.selection.trials import split_rows

QUICK = Effort(
    "quick", tuned=96, more=120, tried=96, judged=150, finalists=2, rounds=1, families=()
)


def sample_of(X, y, w=None):
    y = y.reshape(len(y), -1)
    w = np.ones(len(y)) if w is None else w
    return RowSample(X, y, w, row_priorities(0, 0, len(y)))


def table(name, n=300, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 4)) * [1.0, 1.0, 5.0, 0.2]
    noise = 0.1 * rng.standard_normal(n)
    return X, noise + {
        "one column": np.sin(3 * X[:, 0]),
        "all alike": np.sin(np.linalg.norm(X / [1.0, 1.0, 5.0, 0.2], axis=1)),
        "a turn": np.sin(2 * (X[:, 0] + X[:, 1])),
        "noise": 10 * noise,
    }[name]


def chosen(X, y, w=None, **changes):
    options = {"effort": QUICK, "serves": lambda kernel: True} | changes
    return choose_among(sample_of(X, y, w), 0, options.pop("effort"), **options)


def error(kernel, X, y, T, u):
    model = bo.KernelRidge(kernel, method="exact").fit(X, y)
    return np.mean((model.predict(T) - u) ** 2)


@pytest.mark.parametrize("name", ["one column", "all alike", "a turn", "noise"])
def test_it_is_not_worse_than_one_lengthscale_on_rows_that_none_has_seen(name):
    """On 700 new rows: chance alone moves the quotient of two good fits by less than a tenth."""
    (X, y), (T, u) = table(name), table(name, 700, seed=1)
    found = chosen(X, y)
    simple = bo.KernelRidge("gaussian", method="exact", random_state=0).fit(X, y).kernel_
    assert error(found.kernel, X, y, T, u) <= 1.1 * error(simple, X, y, T, u)
    if name in ("one column", "a turn"):
        assert error(found.kernel, X, y, T, u) < 0.7 * error(simple, X, y, T, u)


def test_what_was_compared_is_said():
    found = chosen(*table("one column"))
    assert sum(c.taken for c in found.compared) == 1
    taken = next(c for c in found.compared if c.taken)
    assert taken.kernel == found.kernel
    assert len({c.name for c in found.compared}) == len(found.compared) > 6
    assert found.error >= 0.9 * min(c.error for c in found.compared)
    assert {step.stage for step in found.path} == {"96 rows", "150 rows", "225 rows"}
    for asked in ({}, {"n_features": 64}):
        model = bo.KernelRidge(random_state=0, **asked).fit(*table("one column", 80))
        said = r" Kernel: .+, held-out R² -?[\d.]+ \(.+ baseline -?[\d.]+\)\."
        assert re.search(said, model.choice_.reason)
        assert model.search_.reason in model.choice_.reason


def test_candidates_are_shown_as_a_table_by_their_r2():
    X, y = table("one column")
    model = bo.KernelRidge(random_state=0).fit(pd.DataFrame(X, columns=list("abcd")), y)
    found = model.search_
    head, *rows = found.lines()
    assert head[1:5] == ("rank", "kernel", "terms", "lengthscales")
    assert [float(row[5]) for row in rows] == sorted((float(row[5]) for row in rows), reverse=True)
    assert [row[0] for row in rows].count(">") == 1
    assert re.search(r"\ba \d", next(row[4] for row in rows if row[0]))
    assert all(float(row[7]) >= 0 for row in rows)
    assert str(found).startswith(f"{found.summary}\n")
    assert all(cell in found._repr_html_() for row in rows for cell in row)
    assert json.loads(json.dumps(found.facts()))[0]["rank"] == 1


def test_gain_and_required_gain_are_those_that_decided():
    """Each candidate against the best of those that are preferred to it, and what is required."""
    found = chosen(*table("all alike", 300))
    last = max(c.rows for c in found.compared)
    order = [c for c in found.compared if c.rows == last]
    best = order[0]
    for c in order[1:]:
        assert c.gain == pytest.approx(best.error - c.error)
        assert c.deviation >= 0.003 * best.error
        best = c if c.gain > c.deviation else best
    assert best.taken
    assert found.ranked[0].taken or "Rank 1 is not chosen: it lowers the error of" in str(found)


def test_a_sum_is_named_by_its_terms_and_the_first_rank_explained():
    compared = (
        KernelComparison(1, Gaussian(2.0), 0.11, np.nan, np.nan, False, name="one"),
        KernelComparison(2, Gaussian() + Laplace(3.0), 0.042, 0.068, 0.01, True, name="two"),
        KernelComparison(3, Laplace((1.0, 2.0)), 0.041, 0.001, 0.004, False, name="three"),
    )
    found = bo.Tuning(compared[1].kernel, compared=compared)
    assert found.summary == "Sum of 2 kernels, held-out R² 0.958 (Gaussian baseline 0.890)."
    assert "by 0.001, and 0.004 is required." in str(found)
    assert [line[0] for line in found.lines()[1:]] == ["", ">", ""]


@pytest.mark.parametrize("t", [1, 2])
def test_targets_that_vary_among_rows_held_out_alone_choose_nothing(t):
    """A rare event may be none of the rows that candidates are tuned on; other targets still are."""
    X, y = table("one column", 150)
    held = split_rows(sample_of(X, y), 0)[1].priority[0]
    rare = 1.0 * (row_priorities(0, 0, 150) == held)
    assert chosen(X, rare) is None
    targets = rare if t == 1 else np.column_stack([rare, y])
    model = bo.KernelRidge(n_features=16, random_state=0).fit(X, targets)
    assert np.isfinite(model.predict(X)).all()
    if t == 2:
        assert len(chosen(X, targets).compared) > 6


@pytest.mark.parametrize("learner", [bo.KernelRidge, bo.GaussianProcessRegressor, bo.SVR])
def test_rows_of_two_kinds_are_fitted(learner):
    """As of one column of yes and no: all rows to tune on are of one kind."""
    X = np.repeat([[0.0], [1.0]], [10, 70], axis=0)
    y = X[:, 0] + np.linspace(-0.1, 0.1, 80)
    assert chosen(X, y) is None
    means = learner(random_state=0).fit(X, y).predict([[0.0], [1.0]])
    assert means == pytest.approx([y[:10].mean(), y[10:].mean()], abs=0.15)


def test_the_same_seed_gives_the_same_kernel_and_units_of_columns_do_not_matter():
    X, y = table("one column")
    one, same = chosen(X, y), chosen(X, y)
    assert one.kernel == same.kernel
    assert one.error == same.error
    far = chosen(X * 1e6, y)
    assert abs(far.error - one.error) < 0.2 * one.error


def test_lengthscales_do_not_run_away_from_few_rows_of_many_columns():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((120, 21))
    found = chosen(X, np.sin(X[:, 0]) + 0.3 * rng.standard_normal(120))
    for step in found.path:
        scales = np.atleast_1d(step.kernel.get_params().get("lengthscale", 1.0))
        assert scales.max() < 32 * 2 * np.sqrt(2 * 21)


@pytest.mark.parametrize("few", [5, 63])
def test_few_rows_and_constant_targets_choose_nothing(few):
    X, y = table("one column")
    assert chosen(X[:few], y[:few]) is None
    assert chosen(X, np.ones(len(X))) is None
    asked = (sample_of(X[:few], y[:few]), 64, 0, None, None, "medium")
    assert isinstance(choose_kernel("auto", *asked, exact=True).kernel, Gaussian)


def test_weights_targets_sparse_rows_and_given_penalties_are_served():
    X, y = table("one column")
    w = 1.0 + np.arange(300) % 2
    assert chosen(X, np.column_stack([y, -y, np.zeros(300)]), w).error < 0.3
    assert chosen(X, y, share=1e-3, centred=False).share == pytest.approx(1e-3)
    sparse = chosen(scipy.sparse.csr_array(X), y)
    assert all(c.kernel.get_params()["lengthscale"] for c in sparse.compared)


def test_equal_rows_are_held_out_together():
    X, y = table("one column", 100)
    train, test = split_rows(sample_of(np.repeat(X, 3, axis=0), np.repeat(y, 3)), 0)
    assert not {*map(tuple, train.X)} & {*map(tuple, test.X)}
    assert len(train) + len(test) == 300
    assert 75 <= len(test) <= 78


@pytest.mark.parametrize("found", [bo.tune, lambda model, X, y: model.fit(X, y).metric_])
def test_copies_do_not_flatter_what_is_tuned(found):
    """Of noise nothing can be learned; copies of a row held out would tell its target."""
    X = np.repeat(np.random.default_rng(0).standard_normal((100, 2)), 4, axis=0)
    noise = np.repeat(np.random.default_rng(1).standard_normal(100), 4)
    model = bo.KernelRidge("gaussian", metric="learned", n_features=64, random_state=0)
    assert found(model, X, noise).error > 0.9


def test_kernels_that_the_method_does_not_serve_are_not_tried():
    X, y = table("one column")
    only = chosen(X, y, serves=lambda kernel: isinstance(kernel, Gaussian))
    assert {type(c.kernel) for c in only.compared} == {Gaussian}


SPECIAL = [bo.ReLU(), bo.Sign(), bo.Explicit(), bo.HistogramSampling(), bo.NeuralTangentFeatures()]


@pytest.mark.parametrize("method", SPECIAL, ids=repr)
@pytest.mark.parametrize("metric", [None, "learned"])
def test_auto_names_the_kernels_of_a_method_that_serves_no_candidate(method, metric):
    X, y = table("one column", 80)
    model = bo.KernelRidge(method=method, metric=metric, n_features=16, random_state=0)
    for ask in (model.fit, lambda X, y: bo.tune(model, X, y)):
        with pytest.raises(UnsupportedKernel, match=r"requires .*(Angular|Arc|Neural|Chi2|Linear)"):
            ask(X, y)


@pytest.mark.parametrize("estimator", [bo.KernelRidge, bo.KernelRidgeClassifier])
def test_effort_is_a_word(estimator):
    X, y = table("one column", 80)
    y = y > 0 if estimator is bo.KernelRidgeClassifier else y
    low = estimator("auto", effort="low", random_state=0).fit(X, y)
    assert isinstance(low.kernel_, Gaussian)
    assert isinstance(low.kernel_.lengthscale, float | tuple)
    for effort in ("much", 3, -1.0):
        with pytest.raises(InvalidInput, match=r"effort must be one of 'low', 'medium', 'high'"):
            estimator("auto", effort=effort).fit(X, y)
    assert as_effort("low", "who") is None
    assert EFFORTS["medium"].tuned < EFFORTS["high"].tuned


def test_few_rows_take_the_kernel_itself_and_more_are_added_as_features():
    X, y = table("one column")
    whole = bo.KernelRidge("gaussian", random_state=0).fit(X, y)
    assert whole.choice_.method == bo.ExactKernel()
    assert "exact kernel of 300 rows" in whole.choice_.reason
    for asked in ({"n_features": 32}, {"method": "auto"}, {"precision": "float32"}, {"alpha": 0}):
        assert hasattr(bo.KernelRidge(Gaussian(), **asked).fit(X, y), "coef_")
    asked = {"alpha": 0.1, "random_state": 0}
    first = bo.KernelRidge(Gaussian(0.8), **asked).fit(X[:150], y[:150])
    pieces = bo.KernelRidge(Gaussian(0.8), **asked).partial_fit(X[:150], y[:150])
    both, expected = (model.partial_fit(X[150:], y[150:]) for model in (first, pieces))
    assert both.rows_seen_ == 300
    assert_close(both.predict(X), expected.predict(X), factor=1e6)


def test_sums_of_matrices_at_hand_are_the_matrices_of_sums(monkeypatch):
    X, y = table("all alike")
    shared = {each.name: each.error for each in chosen(X, y).compared}
    assert any(" + " in name for name in shared)
    whole = lambda _, found, X, test: (found.kernel(X), found.kernel(test, X))
    monkeypatch.setattr("bochner.selection.judges.Matrices.of", whole)
    for each in chosen(X, y).compared:
        assert_close(shared[each.name], each.error, factor=1e6)


class Given:
    """Candidates that are given, and nothing that goes on from them."""

    def __init__(self, *candidates):
        self.candidates = candidates

    def starts(self):
        return [lambda: self.candidates]

    def others(self, _):
        return []

    def turned(self, _):
        return ()

    def takes_more_rows(self, _):
        return False


def judged(X, y, candidates, effort, **changes):
    train, test = split_rows(sample_of(X, y), 0)
    asked = {"share": None, "serves": lambda kernel: True} | changes
    trials = Trials(train, test, effort, True, *asked.values())
    return trials, trials.best(Given(*candidates))


def test_the_last_word_has_a_fit_to_more_rows():
    """Few rows show nothing of the fine wave, so what is smooth errs least on them."""
    X = np.random.default_rng(0).uniform(0, 60, (1600, 1))
    y = 0.8 * np.sin(X[:, 0] / 5) + np.sin(8 * X[:, 0])
    smooth = TunedKernel("smooth", Gaussian(3.0), 0.5, 1)
    fine = TunedKernel("fine", Gaussian(0.12), 0.5, 1)
    only = lambda kernel: isinstance(kernel, Gaussian)
    few = Effort("few", tuned=64, more=64, tried=64, judged=64, finalists=2, rounds=0, last=64)
    many = Effort("many", tuned=64, more=64, tried=64, judged=64, finalists=2, rounds=0, last=1000)
    _, first = judged(X, y, [smooth, fine], few, serves=only)
    trials, last = judged(X, y, [smooth, fine], many, serves=only)
    assert first.kernel == smooth.kernel
    assert last.kernel == fine.kernel
    assert {step.stage for step in last.path} == {"64 rows", "1000 rows"}
    rows = trials.train.lowest(1000)  # the slow way: solve, predict, subtract
    alpha = last.share * len(rows)
    system = fine.kernel(rows.X) + alpha * np.eye(1000)
    mean = lambda v: np.linalg.solve(system, v)
    b = mean(rows.y).sum() / mean(np.ones((1000, 1))).sum()
    fitted = fine.kernel(trials.test.X, rows.X) @ mean(rows.y - b) + b
    expected = np.mean((trials.test.y - fitted) ** 2) / trials.train.y.var()
    assert_close(next(c.error for c in last.compared if c.taken), expected, factor=1e6)


def test_sums_of_three_are_tried_and_have_the_mean_of_their_matrices():
    X, y = table("noise", 200)
    kernels = [Gaussian(1.0), Laplace(3.0), Exponential(2.0)]
    some = [TunedKernel(str(k), kernel, 0.1, k) for k, kernel in enumerate(kernels)]
    effort = Effort("q", tuned=99, more=99, tried=99, judged=150, finalists=3, rounds=0)
    _, found = judged(X, y, some, effort)
    named = {each.name: each.kernel for each in found.compared}
    (three,) = [name for name in named if name.count(" + ") == 2]
    mean = np.mean([kernel(X) for kernel in kernels], axis=0)
    assert_close(named[three](X), mean, factor=1e3)


def test_what_may_be_chance_is_not_taken():
    """Two kernels that are alike but for a thousandth: the one of fewer numbers stays."""
    X, y = table("noise")
    some = [TunedKernel(str(k), Gaussian(1.0 + k / 1000), 1.0, k) for k in (1, 2)]
    _, found = judged(X, y, some, QUICK)
    assert found.kernel == Gaussian(1.001)


def test_columns_that_few_rows_see_nothing_of_are_found_with_more(monkeypatch):
    """Column 2 has a say with the others alone: it is lost where no slope leads back to it."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((1200, 16))
    y = X[:, 0] * np.sin(1.5 * X[:, 1]) + 0.5 * X[:, 2] * X[:, 0] * X[:, 3]
    y += 0.05 * rng.standard_normal(1200)
    effort = Effort(
        "q", tuned=128, more=512, tried=128, judged=512, finalists=2, rounds=0, families=()
    )
    found = chosen(X, y, effort=effort)
    monkeypatch.setattr("bochner.selection.candidates.LONGEST", np.inf)
    assert found.error < 0.95 * chosen(X, y, effort=effort).error


PLACES = Effort(
    "q",
    tuned=128,
    more=256,
    tried=256,
    judged=1500,
    finalists=3,
    rounds=0,
    families=(Exponential(),),
)


def places(n=3000):
    """Heights that are fine along two columns, and a third that is slow and goes with these."""
    rng = np.random.default_rng(3)
    place = rng.uniform(0, 1, (n, 2))
    X = np.column_stack([place, place.sum(axis=1) + 0.05 * rng.standard_normal(n)])
    height = np.sin(45 * X[:, 0]) * np.sin(45 * X[:, 1])
    return X, 2 * X[:, 2] + height + 0.1 * rng.standard_normal(n)


def test_more_rows_are_neighbourhoods_in_which_fine_columns_are_seen(monkeypatch):
    """Planted fault: as many rows at random, among which no two places are near."""
    X, y = places()
    found = chosen(X, y, effort=PLACES)
    at_random = lambda rows, kernel, most, seed: rows.lowest(most)
    monkeypatch.setattr("bochner.selection.candidates._amid_others", at_random)
    assert found.error < 0.5 * chosen(X, y, effort=PLACES).error


def test_rough_functions_go_on_with_more_rows_where_few_tell_no_difference():
    X, y = places()
    rough = "Exponential, one a column, by evidence, more rows"
    names = [each.name for each in chosen(X, y, effort=PLACES).compared]
    assert rough in names
    assert any(name.endswith("more rows") and name != rough for name in names)
    smooth = np.sin(3 * X[:, 0]) + X[:, 1] ** 2
    assert rough not in [each.name for each in chosen(X, smooth, effort=PLACES).compared]


def test_the_best_goes_on_with_more_rows_and_lends_its_scales_to_rougher_kernels():
    X, y = table("one column", n=400)
    names = [each.name for each in chosen(X, y).compared]
    assert any(name.endswith(", more rows") for name in names)
    assert any(name.startswith("Exponential, scales as ") for name in names)
    assert any(name.startswith("Laplace, scales as ") and "more rows" in name for name in names)


# --- classes -------------------------------------------------------------------------------------


def signs(codes, n_classes):
    return 2.0 * (codes[:, None] == np.arange(n_classes)) - 1


@pytest.mark.parametrize("n_classes", [2, 4])
def test_classes_lose_the_log_loss_at_the_best_temperature_whatever_the_scale_of_values(n_classes):
    """The obvious route: the softmax of classes, at each of a thousand temperatures."""
    rng = np.random.default_rng(0)
    codes, w = rng.integers(0, n_classes, 200), rng.uniform(0.5, 2.0, 200)
    F = signs(codes, n_classes) + rng.standard_normal((200, n_classes))
    y, f = (signs(codes, n_classes), F) if n_classes > 2 else (signs(codes, 2)[:, 1:], F[:, 1:])
    rows = sample_of(np.zeros((200, 1)), y, w)
    own = F if n_classes > 2 else np.column_stack([-f / 2, f / 2])
    N = np.bincount(codes, w)
    targets = np.full((200, n_classes), 1 / (n_classes - 1)) / (N[codes] + 2)[:, None]
    targets[np.arange(200), codes] = ((N + 1) / (N + 2))[codes]
    losses = [
        -(w @ (targets * log_softmax(a * own, axis=1)).sum(axis=1))
        for a in np.geomspace(0.1, 9, 999)
    ]
    shares = np.bincount(codes, w) / w.sum()
    best = min(losses) / -(shares @ np.log(shares))
    for scale in (1.0, 7.0):
        found = relative_losses(rows, rows, scale * f, True).sum()
        assert found == pytest.approx(best, rel=1e-4)
    constant = relative_losses(rows, rows, np.zeros_like(f), True).sum() / w.sum()
    assert constant >= 1  # equal shares lose more than those of the classes


@pytest.mark.parametrize("n_classes", [2, 3])
def test_classes_that_are_all_told_apart_still_lose_something(n_classes):
    codes = np.arange(60) % n_classes
    y = signs(codes, n_classes)[:, (n_classes == 2) * 1 :]
    rows = sample_of(np.zeros((60, 1)), y, np.ones(60))
    found = [relative_losses(rows, rows, far * y, True).mean() for far in (1, 9)]
    assert found == pytest.approx([found[0]] * 2, rel=1e-3)
    # The entropy of Platt's targets, of N rows a class.
    p = 1 / (60 / n_classes + 2)
    entropy = -p * np.log(p / (n_classes - 1)) - (1 - p) * np.log(1 - p)
    assert found[0] == pytest.approx(entropy / np.log(n_classes), rel=1e-3)


def test_numbers_lose_their_squared_errors():
    rng = np.random.default_rng(0)
    y, w = rng.standard_normal((50, 2)), rng.uniform(0.5, 2.0, 50)
    rows, mean = sample_of(np.zeros((50, 1)), y, w), w @ y / w.sum()
    found = relative_losses(rows, rows, np.tile(mean, (50, 1)), False)
    assert found.sum() == pytest.approx(w.sum(), rel=1e-12)


def test_classes_of_columns_that_add_up_are_told_apart_by_a_sum_over_columns():
    """Of six waves and six columns of two values 600 rows tell no product of columns."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.integers(0, 2, (800, 6)), rng.uniform(-2, 2, (800, 6))])
    f = X[:, :6] @ rng.standard_normal(6) + np.sin(3 * X[:, 6:]).sum(axis=1)
    y = np.where(f + 0.3 * rng.logistic(size=800) > np.median(f), 1.0, -1.0)
    found = chosen(X, y, of_classes=True)
    taken = next(c for c in found.compared if c.taken)
    assert "sum over columns" in taken.name
    assert 0 < found.error < 0.8 * min(c.error for c in found.compared if c.tuned <= 1)
    assert "Linear, a metric with lengthscales along" in str(found)
    assert len(str(found).splitlines()[-1]) < 2000


def test_penalties_of_classes_are_judged_again_with_more_rows():
    X, y = table("one column", 600)
    train, test = split_rows(sample_of(X, np.sign(y)), 0)
    asked = {"share": None, "serves": lambda kernel: True}
    found = {}
    for of_classes in (False, True):
        trials = Trials(train, test, QUICK, True, *asked.values(), of_classes)
        wide = TunedKernel("much too large a penalty", Gaussian((1.0, 9.0, 45.0, 1.8)), 1e4, 1)
        found[of_classes] = trials._judged([wide], train, Matrices())[0].candidate.alpha
    assert found[False] == 1e4
    assert found[True] < 1e3
