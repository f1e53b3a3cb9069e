"""Local fits: the kernel within leaves and landmarks across them; leaves against features; places; near rows."""

import numpy as np
import pytest
from gallery import table
from naive import dual
from scipy.spatial.distance import cdist
from tolerance import assert_close

import bochner as bo
from bochner import Tuning
from bochner.data.sample import RowSample, row_priorities
from bochner.kernels import (
    Constant,
    Exponential,
    Gaussian,
    Laplace,
    Linear,
    Mahalanobis,
    Matern,
    Monotone,
)
from bochner.selection.descent import Hyperparameters
from bochner.selection.lengthscales import OnProcess, ProcessRows
from bochner.selection.near import (
    DensePlaces,
    NearRows,
    OnBlocks,
    stretched,
    tuned_among_near_rows,
)
from bochner.selection.record import KernelComparison
from bochner.selection.rows import near_rows
from bochner.selection.tree import grow, neighbourhoods
from bochner.solvers.ridge.groups import Group, reduced_at

# ---- local: Ridge regression with the kernel itself within leaves, and landmarks across them


KERNEL = Matern(1.5, lengthscale=0.8)


BENT = Monotone(KERNEL, (0,), ((-3.0, 0.0, 3.0),), ((-2.0, 0.0, 4.0),))


TURNED = 0.5 * Mahalanobis(Gaussian(), ((2.0, 0.5), (0.5, 1.0))) + 0.5 * Laplace((1.0, 2.0))


def model(kernel=KERNEL, **changes):
    method = bo.LocalKernel(leaf_rows=40, landmarks=12)
    return bo.KernelRidge(kernel, **dict(method=method, alpha=0.3, random_state=0) | changes)


def own_kernel(fitted, A, B):
    """The kernel of the fit, by its definition."""
    fit = fitted.fit_.representation
    seen = lambda X: fit.chosen.kernel.inputs(X) if fit.chosen.kernel == BENT else X
    inner = KERNEL if fit.chosen.kernel == BENT else fit.chosen.kernel
    a, b = (fit.tree.leaves(inner, np.ascontiguousarray(seen(X))) for X in (A, B))
    across = fitted.map_(A) @ fitted.map_(B).T
    return np.where(a[:, None] == b, fit.chosen.kernel(A, B), across)


def test_leaves_are_solved_in_the_precision_asked_for():
    X, y = table(200, t=1)
    auto, double = (model(alpha=3.0, precision=p).fit(X, y) for p in ("auto", "float64"))
    coef, intercept = dual(own_kernel(double, X, X), y, 3.0, np.ones(200), True)
    expected = own_kernel(double, X, X) @ coef + intercept
    errors = [np.abs(m.predict(X) - expected).max() for m in (auto, double)]
    assert errors[0] > 1e-8
    assert errors[1] < 1e-11


@pytest.mark.parametrize("kernel", [KERNEL, BENT, TURNED], ids=["plain", "bent", "turned"])
@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("alpha", [0.3, 1e-6])
def test_the_fit_is_that_of_its_own_kernel_by_one_dense_system(kernel, centred, alpha):
    X, y = table(200, t=2)
    w = np.random.default_rng(1).uniform(0.2, 3, len(X))
    found = model(kernel, alpha=alpha, fit_intercept=centred).fit(X, y, w)
    assert found.fit_.representation.tree.n_leaves == 5
    assert np.bincount(found.fit_.representation.leaf).tolist() == [40] * 5
    K = own_kernel(found, X, X)
    assert np.linalg.eigvalsh(K)[0] > -1e-9
    coef, intercept = dual(K, y, alpha, w, centred)
    there = X[::7] + 0.01
    precise = 1e11 if alpha < 0.1 else 1e10  # factors are of float32 where the penalty hides it
    assert_close(found.predict(X), K @ coef + intercept, factor=precise)
    there = there[found.fit_.representation.tree.leaves(*_seen(found, there)) >= 0]
    expected = own_kernel(found, there, X) @ coef + intercept
    assert_close(found.predict(there), expected, factor=precise)
    residuals = w @ (y - found.predict(X)) ** 2 / w.sum()
    assert found.solution_.residual_variance == pytest.approx(residuals, rel=1e-3)


def _seen(fitted, X):
    kernel = fitted.fit_.chosen.kernel
    return (KERNEL, kernel.inputs(X)) if kernel == BENT else (kernel, X)


@pytest.mark.parametrize("centred", [True, False])
def test_errors_without_a_row_are_those_of_fits_without_it(centred, monkeypatch):
    """Each row's by a dense system of all other rows, with the leaves and landmarks of all."""
    monkeypatch.setattr("bochner.models.representations.leaves.LEFT_OUT_ROWS", 60)
    X, y = table(200, t=2)
    w = np.random.default_rng(1).uniform(0.2, 3, len(X))
    found = model(TURNED, alpha=[0.3, 2.0], fit_intercept=centred).fit(X, y, w)
    told = found.fit_.left_out()
    assert 50 <= len(told.w) <= 60
    K = own_kernel(found, X, X)
    for X_i, error, predicted, w_i in zip(told.X, told.errors, told.predicted, told.w, strict=True):
        i = int(np.flatnonzero((X == X_i).all(axis=1))[0])
        rest = np.delete(np.arange(200), i)
        for j, alpha in enumerate((0.3, 2.0)):
            coef, b = dual(K[np.ix_(rest, rest)], y[rest, j : j + 1], alpha, w[rest], centred)
            expected = float(K[i, rest] @ coef[:, 0] + b[0])
            assert predicted[j] == pytest.approx(expected, abs=1e-4)
            assert error[j] == pytest.approx(y[i, j] - expected, abs=1e-4)
        assert w_i == w[i]


def test_landmarks_carry_what_leaves_have_to_tell_one_another():
    """A slow wave and few rows: alone, leaves do not know of it what landmarks know."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 10, (400, 1))
    y = np.sin(X[:, 0]) + 0.5 * rng.normal(size=400)
    there = np.linspace(0.2, 9.8, 300)[:, None]
    errors = [
        np.mean((m.fit(X, y).predict(there) - np.sin(there[:, 0])) ** 2)
        for m in (
            model(Gaussian(1.0), method=bo.LocalKernel(20, landmarks=count)) for count in (1, 40)
        )
    ]
    assert errors[1] < 0.7 * errors[0]


def test_classes_are_targets_and_one_leaf_is_the_exact_kernel():
    X, y = table(300)
    labels = np.where(y > np.median(y), "high", "low")
    found = bo.KernelRidgeClassifier(KERNEL, method=bo.LocalKernel(60), random_state=0)
    assert found.fit(X, labels).score(X, labels) > 0.9
    p = found.predict_proba(X)
    assert (p.argmax(axis=1) == (found.decision_function(X) > 0)).all()
    assert -np.log(p[np.arange(300), (labels == "low").astype(int)]).mean() < 0.4
    whole = model(method=bo.LocalKernel(leaf_rows=300)).fit(X, y)
    assert_close(whole.predict(X), model(method="exact").fit(X, y).predict(X), factor=1e10)


# ---- by default


@pytest.fixture
def few(monkeypatch):
    """More than 250 rows are many."""
    monkeypatch.setattr("bochner.models.ridge.fit.DIRECT_ROWS", 250)


def test_many_rows_are_split_into_leaves_by_default(few):
    X, y = table(400, noise=0.1)
    fit = lambda **changes: bo.KernelRidge(effort="low", random_state=0, **changes).fit(X, y)
    assert fit().choice_.method == bo.LocalKernel(1024)
    assert "landmarks across them" in fit().choice_.reason
    for asked in (dict(n_features=32), dict(method="fourier"), dict(kernel=KERNEL), dict(alpha=0)):
        assert not isinstance(fit(**asked).choice_.method, bo.LocalKernel)
    assert fit(kernel=KERNEL, method="local").choice_.method == bo.LocalKernel()
    blocks = bo.Blocks.from_arrays(X, y, block_rows=30)
    streamed = bo.KernelRidge(effort="low", random_state=0).fit_blocks(blocks)
    assert (streamed.predict(X) == fit().predict(X)).all()
    unknown = bo.Blocks.from_iterable(lambda: iter([(X, y)]))
    streamed = bo.KernelRidge(effort="low", random_state=0).fit_blocks(unknown)
    assert not isinstance(streamed.choice_.method, bo.LocalKernel)


@pytest.mark.slow
def test_many_rows_of_few_columns_are_summed_as_waves_where_these_are_few(few):
    """The rule is that of a process and of method="auto"; a classifier needs rows left out."""
    pytest.importorskip("finufft")
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (8300, 2))
    y = np.sin(6 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(8300)
    model = bo.KernelRidge(random_state=0).fit(X[:8200], y[:8200])
    assert isinstance(model.choice_.method, bo.FourierGrid)
    assert "summed as" in model.choice_.reason
    assert " Kernel: " in model.choice_.reason
    assert np.std(model.predict(X[8200:]) - y[8200:]) < 0.13
    _, low, high = model.predict_interval(X[8200:], 0.9)
    assert abs(np.mean((low <= y[8200:]) & (y[8200:] <= high)) - 0.9) < 4 * np.sqrt(0.09 / 100)
    for asked in (dict(method="local"),):
        other = bo.KernelRidge(effort="low", random_state=0, **asked).fit(X[:8200], y[:8200])
        assert isinstance(other.choice_.method, bo.LocalKernel)


def test_further_rows_go_to_features_of_the_same_kernel(few):
    X, y = table(400, noise=0.1)
    found = bo.KernelRidge(effort="low", random_state=0).fit(X[:300], y[:300])
    kernel = found.kernel_
    found.partial_fit(X[300:], y[300:])
    assert found.kernel_ == kernel
    assert found.moments_.rows == found.rows_seen_ == 400


def test_leaves_become_smaller_where_rows_are_many():
    most, landmarks = bo.LocalKernel().most_in_leaf, bo.LocalKernel().landmarks_of
    assert [most(1 << k) for k in (13, 14, 15, 16, 20)] == [3072, 3072, 2172, 2048, 2048]
    assert bo.LocalKernel(300).most_in_leaf(10**6) == 300
    assert [landmarks(1 << k) for k in (13, 16, 20)] == [384, 256, 128]
    assert bo.LocalKernel(landmarks=7).landmarks_of(100) == 7


@pytest.mark.parametrize("n", [1, 40, 41, 1000])
def test_leaves_are_even_and_rows_are_found_in_theirs(n):
    X = np.random.default_rng(0).normal(size=(n, 3))
    tree, leaf = grow(KERNEL, X, 40, 0)
    sizes = np.bincount(leaf)
    assert tree.n_leaves == len(sizes) == -(-n // 40)
    assert sizes.max() <= 40
    assert np.ptp(sizes) <= 2
    assert (tree.leaves(KERNEL, X) == leaf).all()
    assert np.bincount(grow(KERNEL, np.ones((n, 2)), 40, 0)[1]).max() <= 40  # equal rows too


def test_neighbourhoods_are_as_dense_as_all_rows_and_leaves_lie_together():
    X = np.random.default_rng(0).uniform(size=(4000, 2))
    some = neighbourhoods(Gaussian(0.5), X, 4, 64, 0)
    assert len(some) <= 4 * 64
    gap = lambda A: np.median((cdist(A, A) + 9 * np.eye(len(A))).min(axis=1))
    assert gap(X[some]) < 1.6 * gap(X[:2000])
    assert gap(X[some]) < 0.6 * gap(X[:256])
    X, (_, leaf) = X[:800], grow(Gaussian(0.5), X[:800], 100, 0)
    within = np.mean([X[leaf == k].var(axis=0).sum() for k in range(8)])
    assert within < 0.35 * X.var(axis=0).sum()  # squares of an eighth of the area have 1/8


def test_blocks_that_rounding_leaves_not_positive_err_without_end_or_have_a_larger_penalty():
    x = np.ones((30, 1))
    K = lambda dtype: np.asarray(Gaussian()(x), dtype, order="F")
    group = Group(K, np.zeros((30, 1)), np.ones((30, 1)), np.ones(30))
    assert np.isfinite(reduced_at(group, 1e-30).own).all()
    y = np.arange(100.0)[:, None]
    near = NearRows.of(Gaussian(), (np.ones((100, 1)), y, np.ones(100)), 0, True)
    assert np.isinf(near.squared_errors(Gaussian(), 1e-30)).all()


@pytest.mark.parametrize(
    "kernel",
    [KERNEL, Gaussian((1.0, 3.0)), BENT, TURNED, 2.0 * Exponential() * Matern(2.5) + Constant(0.3)],
    ids=["one", "each", "bent", "turned", "product"],
)
def test_stretched_kernels_see_rows_nearer(kernel):
    X, _ = table(30)
    wider = stretched(kernel, 2.0)
    seen = kernel.inputs(X) if kernel == BENT else X
    inner = KERNEL if kernel == BENT else kernel
    assert_close(wider(X), inner(seen / 2.0), factor=1e5)
    assert stretched(Linear() + kernel, 2.0) is None


def test_the_scale_is_that_of_all_rows():
    """A fine wave that few rows do not show: lengthscales found on them are far too long."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 60, (3000, 1))
    y = (np.sin(4 * X) + 0.1 * rng.normal(size=X.shape)).reshape(-1, 1)
    rows = X, y, np.ones(len(X))
    places = DensePlaces.of(Gaussian(2.0), rows, 0, True, "loo", False, float("nan"))
    best = places.best(Tuning(Gaussian(2.0)))
    assert best.factor < 0.75
    assert best.error < 0.3 * places.steps[0].value
    least = min(step.value for step in places.steps)
    assert least == pytest.approx(best.error, rel=0.006)  # less is not worth it
    assert places.steps[0].kernel == Gaussian(2.0)
    assert places.best(Tuning(Linear())).factor == 1.0


def test_the_kernel_is_judged_again_among_all_rows():
    """Few rows take a smooth kernel for as good as a rough one; of all rows it is far behind."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 60, (3000, 1))
    y = np.abs(np.sin(4 * X)) + 0.01 * rng.normal(size=X.shape)
    kinds = {"smooth": Gaussian(20.0), "rough": Exponential(2.0), "far": Exponential(1.0)}
    errors = {"smooth": 1.0, "rough": 1.01, "far": 2.0}
    compared = tuple(
        KernelComparison(1, kernel, errors[name], np.nan, 0.0, name == "smooth", name=name)
        for name, kernel in kinds.items()
    )
    found = Tuning(kinds["smooth"], compared=compared)
    rows = X, y, np.ones(len(X))
    places = DensePlaces.of(kinds["smooth"], rows, 0, True, "loo", False, float("nan"))
    best = places.best(found)
    assert best.kernel == kinds["rough"]
    noted = places.noted(found, best)
    assert [c.taken for c in noted.compared] == [False, True, False]
    assert kinds["far"] not in [step.kernel for step in places.steps]
    assert noted.path == tuple(places.steps)


def test_what_a_few_places_say_must_be_more_than_chance():
    """A gain that one row makes is none, the same gain of each row is one."""
    X, y = table(600, noise=0.1)
    rows = X, y.reshape(-1, 1), np.ones(len(X))
    places = DensePlaces.of(KERNEL, rows, 0, True, "loo", False, float("nan"))
    found = places.at(KERNEL, 1.0)
    assert_close(found.squared.mean(), found.error, factor=1e3)
    gain = 0.1 * found.error
    lucky = np.where(np.arange(len(found.squared)) < 2, gain * len(found.squared), 0.0)
    lucky[1] *= -0.5
    lucky *= gain / lucky.mean()
    by_one = found._replace(error=found.error - gain, squared=found.squared - lucky)
    by_all = found._replace(error=found.error - gain, squared=found.squared - gain)
    assert not by_one.surely_below(found)
    assert by_all.surely_below(found)
    little = found._replace(error=found.error - 1e-3 * gain, squared=found.squared - 1e-3 * gain)
    assert not little.surely_below(found)


def test_near_rows_are_those_that_the_kernel_takes_for_nearest():
    X = np.random.default_rng(0).normal(size=(500, 2)) + 3.0
    for kernel in (Laplace((0.3, 2.0)), Linear()):
        found = near_rows(kernel, X, 5, 40, 0)
        K = kernel(X)
        K = K / np.sqrt(np.outer(np.diag(K), np.diag(K)))
        for own in found:
            assert K[own[0], own[0]] == pytest.approx(K[own[0], own].max())
            assert (np.diff(K[own[0], own]) <= 1e-12).all()
            rest = np.setdiff1d(np.arange(500), own)
            assert K[own[0], own].min() >= K[own[0], rest].max() - 1e-12
    assert near_rows(KERNEL, X[:30], 50, 64, 0).shape == (30, 30)


@pytest.mark.parametrize("alphas", [0.2, np.array([0.2, 1.5])], ids=["one", "each"])
def test_errors_amid_near_rows_are_those_of_fits_without_each_row(alphas):
    X, y = table(300, t=2)
    w = np.random.default_rng(1).uniform(0.2, 3, len(X))
    near = NearRows.of(KERNEL, (X, y, w), 0, True)
    mean = np.average(y, axis=0, weights=w)
    assert_close(np.average((y - mean) ** 2, axis=0, weights=w) ** 0.5, _unit(near, X, y), 1e6)
    squared = near.squared_errors(KERNEL, alphas)
    core = len(squared) // len(near.X)
    own, K = near.w[:, :core].ravel(), KERNEL(near.X[3])
    for i in (0, core - 1):
        rest = np.delete(np.arange(len(K)), i)
        error = 0.0
        for j, alpha in enumerate(np.broadcast_to(alphas, 2)):
            A = K[np.ix_(rest, rest)] + alpha * np.diag(1 / near.w[3, rest])
            coef = np.linalg.solve(A, near.y[3, rest, j])
            error += (near.y[3, i, j] - K[i, rest] @ coef) ** 2 / 2
        expected = error * near.w[3, i] / own.mean()
        assert squared[3 * core + i] == pytest.approx(expected, rel=1e-8)


def _unit(near, X, y):
    """What targets were divided by."""
    first = int(np.flatnonzero((X == near.X[0, 0]).all(axis=1))[0])
    second = int(np.flatnonzero((X == near.X[0, 1]).all(axis=1))[0])
    return (y[first] - y[second]) / (near.y[0, 0] - near.y[0, 1])


def test_the_slope_of_blocks_is_that_of_their_evidence():
    X, y = table(240, noise=0.3)
    blocks = tuple(
        ProcessRows(X[own], y[own, None], np.ones(40), True)
        for own in np.arange(240).reshape(6, 40)
    )
    whole = ProcessRows(X, y[:, None], np.ones(240), True)
    on = OnBlocks(OnProcess(Matern(1.5, (0.8, 1.2)), whole, 2), blocks)
    vector = np.array([0.1, -0.2, np.log(0.3 / 240)])
    at = lambda v: Hyperparameters(v[:2], float(v[2]))
    value, slope = on(at(vector))
    steps = 1e-5 * np.eye(3)
    differences = [(on(at(vector + e))[0] - on(at(vector - e))[0]) / 2e-5 for e in steps]
    assert_close(slope, differences, factor=1e9)
    prior = on.whole.known(at(vector))[0]
    pairs = blocks[:1], blocks[1:2], blocks[:2]
    one, other, both = (OnBlocks(on.whole, b)(at(vector))[0] - prior for b in pairs)
    assert both == pytest.approx((one + other) / 2)


def test_columns_that_matter_among_near_rows_alone_are_found():
    """A fine wave along one column: of a sample it is noise, of near rows it is all there is."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (6000, 2))
    y = (np.sin(40 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=6000))[:, None]
    w = np.ones(6000)
    slow = Matern(1.5, (0.7, 0.7))
    compared = (KernelComparison(2, slow, 1.0, np.nan, 0.0, True, name="one a column"),)
    sample = RowSample(X, y, w, row_priorities(0, 0, 6000)).lowest(500)
    found = list(tuned_among_near_rows(Tuning(slow, compared=compared), (X, y, w), sample, 0, True))
    assert [type(each.kernel) for each in found] == [Exponential, Laplace, Matern]
    for each in found:
        fine, other = each.kernel.lengthscale
        assert fine < 0.5 * other
    assert list(tuned_among_near_rows(Tuning(slow), (X, y, w), sample, 0, True)) == []
    places = DensePlaces.of(slow, (X, y, w), 0, True, "loo", False, float("nan"))
    start = Tuning(slow, compared=compared)
    best = places.best(start, found)
    noted = places.noted(start, best, found)
    assert best.kernel in [each.kernel for each in found]
    assert next(c.name for c in noted.compared if c.taken).endswith("among near rows")
    assert "R² among near rows" in noted.reason
    assert best.error < places.steps[0].value


@pytest.mark.filterwarnings("ignore::bochner.errors.SolutionWarning")
def test_predictions_keep_where_landmarks_make_up_the_intercept_too():
    """With hardly any penalty landmarks explain a constant, and rounding all that is left of it."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    y = np.sin(X[:, 0]) + 1e3
    for alpha in (1e-12, 1e-9):
        found = model(Gaussian(6.0), alpha=alpha).fit(X, y)
        assert abs(found.intercept_) < 1e6
        assert np.abs(found.predict(X) - y).max() < 0.05
