"""Local fits: the kernel within leaves and landmarks across them; leaves against features; places; near rows."""

import numpy as np
import pytest
from gallery import maker, table, unit_table
from naive import dual
from tolerance import assert_close

import bochner as bo
from bochner.data.sample import RowSample
from bochner.kernels import Gaussian, Laplace, Linear, Mahalanobis, Matern, Monotone
from bochner.models.representations import exact
from bochner.selection import neighbourhoods
from bochner.selection.metric import TunedKernel
from bochner.selection.neighbourhoods import without_linear
from bochner.selection.record import KernelComparison, Tuning
from bochner.selection.rows import near_rows

KERNEL = Matern(1.5, lengthscale=0.8)
BENT = Monotone(KERNEL, (0,), ((-3.0, 0.0, 3.0),), ((-2.0, 0.0, 4.0),))
TURNED = 0.5 * Mahalanobis(Gaussian(), ((2.0, 0.5), (0.5, 1.0))) + 0.5 * Laplace((1.0, 2.0))
LINED = 5.0 * Mahalanobis(Linear(), ((2.0, 0.5), (0.5, 1.0))) + KERNEL
KINDS = {"plain": KERNEL, "bent": BENT, "turned": TURNED, "lined": LINED}


LEAVES = {"method": bo.LocalKernel(leaf_rows=40, landmarks=12), "alpha": 0.3, "random_state": 0}
model = maker(bo.KernelRidge, KERNEL, **LEAVES)


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


@pytest.mark.parametrize("kernel", KINDS.values(), ids=KINDS)
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


def _seen(fitted, X):
    kernel = fitted.fit_.chosen.kernel
    return (KERNEL, kernel.inputs(X)) if kernel == BENT else (kernel, X)


@pytest.mark.parametrize("centred", [True, False])
def test_errors_without_a_row_are_those_of_fits_without_it(centred, monkeypatch):
    """Each row's by a dense system of all other rows, with the leaves and landmarks of all."""
    monkeypatch.setattr("bochner.models.representations.exact.LEAVES_LEFT_OUT", 60)
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
        for m in (model(Gaussian(1.0), method=bo.LocalKernel(20, landmarks=n)) for n in (1, 40))
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
    monkeypatch.setattr("bochner.models.route.most_at_once", lambda _: 250)


def test_many_rows_are_split_into_leaves_by_default(few):
    X, y = table(400, noise=0.1)
    fit = lambda **changes: bo.KernelRidge(effort="low", random_state=0, **changes).fit(X, y)
    default = fit()
    assert default.choice_.method == bo.LocalKernel(1024)
    assert "landmarks between leaves" in default.choice_.reason
    for asked in (dict(n_features=32), dict(method="fourier"), dict(kernel=KERNEL), dict(alpha=0)):
        assert not isinstance(fit(**asked).choice_.method, bo.LocalKernel)
    assert fit(kernel=KERNEL, method="local").choice_.method == bo.LocalKernel()
    blocks = bo.Blocks.from_arrays(X, y, block_rows=30)
    streamed = bo.KernelRidge(effort="low", random_state=0).fit_blocks(blocks)
    assert (streamed.predict(X) == default.predict(X)).all()
    unknown = bo.Blocks.from_iterable(lambda: iter([(X, y)]))
    streamed = bo.KernelRidge(effort="low", random_state=0).fit_blocks(unknown)
    assert not isinstance(streamed.choice_.method, bo.LocalKernel)


@pytest.mark.slow
def test_many_rows_of_few_columns_are_summed_as_waves_where_these_are_few(few):
    """The rule is that of a process and of method="auto"; a classifier needs rows left out."""
    pytest.importorskip("finufft")
    X, y = unit_table(8300)
    model = bo.KernelRidge(random_state=0).fit(X[:8200], y[:8200])
    assert isinstance(model.choice_.method, bo.FourierGrid)
    assert "summed as" in model.choice_.reason
    assert " Kernel: " in model.choice_.reason
    assert np.std(model.predict(X[8200:]) - y[8200:]) < 0.13
    _, low, high = model.predict_interval(X[8200:], 0.9)
    assert abs(np.mean((low <= y[8200:]) & (y[8200:] <= high)) - 0.9) < 4 * np.sqrt(0.09 / 100)
    other = bo.KernelRidge(effort="low", method="local", random_state=0).fit(X[:8200], y[:8200])
    assert isinstance(other.choice_.method, bo.LocalKernel)


def test_further_rows_go_to_features_of_the_same_kernel(few):
    X, y = table(400, noise=0.1)
    found = bo.KernelRidge(effort="low", random_state=0).fit(X[:300], y[:300])
    kernel = found.kernel_
    found.partial_fit(X[300:], y[300:])
    assert found.kernel_ == kernel
    assert found.moments_.rows == found.rows_seen_ == 400


@pytest.mark.slow
def test_columns_that_only_matter_in_neighbourhoods_are_found(few):
    """A fine wave along one column: of a sample it is noise, of near rows it is all there is."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (6500, 2))
    y = np.sin(40 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=6500)
    found = bo.KernelRidge(random_state=0).fit(X[:6000], y[:6000])
    assert isinstance(found.choice_.method, bo.LocalKernel)
    assert np.std(found.predict(X[6000:]) - y[6000:]) < 0.15


def test_rows_are_near_by_the_kernel_without_its_linear_terms():
    """Rows of one leaf had about the same value of the linear function, and were not near."""
    X, y = table(200)
    with_line, without = model(LINED).fit(X, y), model().fit(X, y)
    assert (with_line.fit_.representation.leaf == without.fit_.representation.leaf).all()
    assert (near_rows(without_linear(LINED), X, 9, 5, 0) == near_rows(KERNEL, X, 9, 5, 0)).all()
    assert all(without_linear(kernel) is kernel for kernel in (KERNEL, TURNED, Linear()))


@pytest.mark.slow
def test_a_steep_line_does_not_hide_what_near_rows_show():
    """With one kernel for both, the error of the curve was as large as the curve."""
    rng = np.random.default_rng(0)
    X = np.column_stack([10 * rng.standard_t(2, 5200), rng.uniform(0, 1, (5200, 3))])
    curve = 4 * np.sin(12 * X[:, 1]) * np.sin(12 * X[:, 2])
    y = X[:, 0] + curve + 2 * rng.normal(size=5200)
    model = bo.KernelRidge(columns="as_given", random_state=0).fit(X[:4200], y[:4200])
    assert np.std(model.predict(X[4200:]) - X[4200:, 0] - curve[4200:]) < 0.3 * np.std(curve)


def test_the_mean_of_the_best_two_kernels_is_a_candidate_in_neighbourhoods():
    rng = np.random.default_rng(0)
    X, wide, narrow = rng.uniform(0, 10, (200, 1)), Gaussian(2.0), Gaussian(0.2)
    y = 3 * np.sin(X / 2) + np.sin(8 * X) / 2 + rng.normal(0, 0.1, (200, 1))
    rows, others = RowSample(X, y, np.ones(200), rng.random(200)), [TunedKernel("", narrow, 1.0, 1)]
    tuning, asked = Tuning(wide, compared=(KernelComparison(1, wide),)), bo.KernelRidge()._spec()
    found, _ = neighbourhoods.compare(tuning, rows, 0, candidates=others, **exact._penalty(asked))
    assert found.chosen.kernel == 0.5 * narrow + 0.5 * wide
    assert found.chosen.error == min(c.error for c in found.compared)


@pytest.mark.parametrize("right", ["race", "simple", "near"])
def test_of_kernels_of_classes_the_one_of_least_log_loss_is_taken(right):
    X, w = np.random.default_rng(0).uniform(-2, 2, (300, 2)), np.ones(300)
    y = np.where((X**2).sum(axis=1) < 2, 1.0, -1.0)[:, None]
    rows, spec = RowSample(X, y, w, np.arange(300.0)), bo.KernelRidgeClassifier()._spec()
    race, simple, last = (Gaussian(1.0 if right == k else 0.02) for k in ("race", "simple", "near"))
    simple = simple if right == "simple" else Gaussian(0.03)
    compared = [KernelComparison(2, race, 0.5, chosen=True), KernelComparison(1, simple, 0.54)]
    tuning, other = Tuning(race, 1e-3, compared=tuple(compared)), Tuning(last, 1e-3)
    known = exact._solve(spec, last, rows, 1e-3)
    best = exact._of_least_log_loss(spec, rows, tuning, other, known)
    assert best.kernel == {"race": race, "simple": simple, "near": last}[right]
    assert right == "near" or best.chosen.kernel == best.kernel


def test_leaves_become_smaller_where_rows_are_many():
    most, landmarks = bo.LocalKernel().most_in_leaf, bo.LocalKernel().landmarks_of
    assert [most(1 << k) for k in (13, 14, 15, 16, 20)] == [3072, 3072, 2172, 2048, 2048]
    assert bo.LocalKernel(300).most_in_leaf(10**6) == 300
    assert [landmarks(1 << k) for k in (13, 16, 20)] == [384, 256, 128]
    assert bo.LocalKernel(landmarks=7).landmarks_of(100) == 7


@pytest.mark.filterwarnings("ignore::bochner.errors.SolutionWarning")
def test_predictions_keep_where_landmarks_make_up_the_intercept_too():
    """With hardly any penalty landmarks explain a constant, and rounding all that is left of it."""
    X = np.random.default_rng(0).normal(size=(300, 2))
    y = np.sin(X[:, 0]) + 1e3
    for alpha in (1e-12, 1e-9):
        found = model(Gaussian(6.0), alpha=alpha).fit(X, y)
        assert abs(found.intercept_) < 1e6
        assert np.abs(found.predict(X) - y).max() < 0.05


@pytest.mark.parametrize("seed", [0, 3])
@pytest.mark.parametrize("learner", [bo.KernelRidge, bo.KernelRidgeClassifier])
def test_near_rows_of_one_value_choose_no_penalty(learner, seed):
    """All near rows were far from 40 others of another class, and a constant was predicted."""
    X, rare = np.random.default_rng(seed).standard_normal((900, 2)), np.arange(900) < 40
    X[rare] += 20
    model = learner("gaussian", method=bo.LocalKernel(leaf_rows=300), random_state=seed)
    assert np.abs(model.fit(X, rare * 1).predict(X) - rare).max() < 0.01
