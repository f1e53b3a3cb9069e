"""Local fits: the kernel within leaves and landmarks between them, and their choice by default."""

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
MONOTONE = Monotone(KERNEL, (0,), ((-3.0, 0.0, 3.0),), ((-2.0, 0.0, 4.0),))
MIXTURE = 0.5 * Mahalanobis(Gaussian(), ((2.0, 0.5), (0.5, 1.0))) + 0.5 * Laplace((1.0, 2.0))
WITH_LINEAR = 5.0 * Mahalanobis(Linear(), ((2.0, 0.5), (0.5, 1.0))) + KERNEL
CASES = {"plain": KERNEL, "monotone": MONOTONE, "mixture": MIXTURE, "linear": WITH_LINEAR}

LEAVES = {"method": bo.LocalKernel(leaf_rows=40, landmarks=12), "alpha": 0.3, "random_state": 0}
model = maker(bo.KernelRidge, KERNEL, **LEAVES)


def local_kernel(fitted, A, B):
    """Return the kernel of a fit from its definition: landmarks between leaves."""
    fit = fitted.fit_.representation
    inputs = lambda X: fit.chosen.kernel.inputs(X) if fit.chosen.kernel == MONOTONE else X
    inner = KERNEL if fit.chosen.kernel == MONOTONE else fit.chosen.kernel
    a, b = (fit.tree.leaves(inner, np.ascontiguousarray(inputs(X))) for X in (A, B))
    cross = fitted.map_(A) @ fitted.map_(B).T
    return np.where(a[:, None] == b, fit.chosen.kernel(A, B), cross)


def test_leaves_are_solved_in_the_requested_precision():
    X, y = table(200, t=1)
    auto, double = (model(alpha=3.0, precision=p).fit(X, y) for p in ("auto", "float64"))
    coef, intercept = dual(local_kernel(double, X, X), y, 3.0, np.ones(200), True)
    expected = local_kernel(double, X, X) @ coef + intercept
    errors = [np.abs(m.predict(X) - expected).max() for m in (auto, double)]
    assert errors[0] > 1e-8
    assert errors[1] < 1e-11


@pytest.mark.parametrize("kernel", CASES.values(), ids=CASES)
@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("alpha", [0.3, 1e-6])
def test_a_local_fit_equals_a_dense_solve_with_its_kernel(kernel, centred, alpha):
    X, y = table(200, t=2)
    w = np.random.default_rng(1).uniform(0.2, 3, len(X))
    fitted = model(kernel, alpha=alpha, fit_intercept=centred).fit(X, y, w)
    assert fitted.fit_.representation.tree.n_leaves == 5
    assert np.bincount(fitted.fit_.representation.leaf).tolist() == [40] * 5
    K = local_kernel(fitted, X, X)
    assert np.linalg.eigvalsh(K)[0] > -1e-9
    coef, intercept = dual(K, y, alpha, w, centred)
    new = X[::7] + 0.01
    factor = 1e11 if alpha < 0.1 else 1e10  # factors are in float32 if the penalty permits it
    assert_close(fitted.predict(X), K @ coef + intercept, factor=factor)
    new = new[fitted.fit_.representation.tree.leaves(*_kernel_and_inputs(fitted, new)) >= 0]
    expected = local_kernel(fitted, new, X) @ coef + intercept
    assert_close(fitted.predict(new), expected, factor=factor)


def _kernel_and_inputs(fitted, X):
    kernel = fitted.fit_.chosen.kernel
    return (KERNEL, kernel.inputs(X)) if kernel == MONOTONE else (kernel, X)


@pytest.mark.parametrize("centred", [True, False])
def test_leave_one_out_errors_equal_refits(centred, monkeypatch):
    """Refits are dense solves with all other rows, and the leaves and landmarks of all rows."""
    monkeypatch.setattr("bochner.models.representations.exact.LEAVES_LEFT_OUT", 60)
    X, y = table(200, t=2)
    w = np.random.default_rng(1).uniform(0.2, 3, len(X))
    fitted = model(MIXTURE, alpha=[0.3, 2.0], fit_intercept=centred).fit(X, y, w)
    loo = fitted.fit_.left_out()
    assert 50 <= len(loo.w) <= 60
    K = local_kernel(fitted, X, X)
    for X_i, error, predicted, w_i in zip(loo.X, loo.errors, loo.predicted, loo.w, strict=True):
        i = int(np.flatnonzero((X == X_i).all(axis=1))[0])
        keep = np.delete(np.arange(200), i)
        for j, alpha in enumerate((0.3, 2.0)):
            coef, b = dual(K[np.ix_(keep, keep)], y[keep, j : j + 1], alpha, w[keep], centred)
            expected = float(K[i, keep] @ coef[:, 0] + b[0])
            assert predicted[j] == pytest.approx(expected, abs=1e-4)
            assert error[j] == pytest.approx(y[i, j] - expected, abs=1e-4)
        assert w_i == w[i]


def test_landmarks_share_information_between_leaves():
    """A slow wave and few rows: leaves alone have larger errors than with landmarks."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 10, (400, 1))
    y = np.sin(X[:, 0]) + 0.5 * rng.normal(size=400)
    new = np.linspace(0.2, 9.8, 300)[:, None]
    errors = [
        np.mean((m.fit(X, y).predict(new) - np.sin(new[:, 0])) ** 2)
        for m in (model(Gaussian(1.0), method=bo.LocalKernel(20, landmarks=n)) for n in (1, 40))
    ]
    assert errors[1] < 0.7 * errors[0]


def test_classes_are_fitted_and_one_leaf_equals_the_exact_kernel():
    X, y = table(300)
    labels = np.where(y > np.median(y), "high", "low")
    classifier = bo.KernelRidgeClassifier(KERNEL, method=bo.LocalKernel(60), random_state=0)
    assert classifier.fit(X, labels).score(X, labels) > 0.9
    p = classifier.predict_proba(X)
    assert (p.argmax(axis=1) == (classifier.decision_function(X) > 0)).all()
    assert -np.log(p[np.arange(300), (labels == "low").astype(int)]).mean() < 0.4
    base = model(method=bo.LocalKernel(leaf_rows=300)).fit(X, y)
    assert_close(base.predict(X), model(method="exact").fit(X, y).predict(X), factor=1e10)


# ---- choice by default


@pytest.fixture
def limits(monkeypatch):
    """Treat more than 250 rows as many."""
    monkeypatch.setattr("bochner.models.route.most_at_once", lambda _: 250)


def test_many_rows_are_split_into_leaves_by_default(limits):
    X, y = table(400, noise=0.1)
    fit = lambda **changes: bo.KernelRidge(effort="low", random_state=0, **changes).fit(X, y)
    default = fit()
    assert default.choice_.method == bo.LocalKernel(1024)
    assert "landmarks between leaves" in default.choice_.reason
    for extra in (dict(n_features=32), dict(method="fourier"), dict(kernel=KERNEL), dict(alpha=0)):
        assert not isinstance(fit(**extra).choice_.method, bo.LocalKernel)
    assert fit(kernel=KERNEL, method="local").choice_.method == bo.LocalKernel()
    blocks = bo.Blocks.from_arrays(X, y, block_rows=30)
    streamed = bo.KernelRidge(effort="low", random_state=0).fit_blocks(blocks)
    assert (streamed.predict(X) == default.predict(X)).all()
    stream = bo.Blocks.from_iterable(lambda: iter([(X, y)]))
    streamed = bo.KernelRidge(effort="low", random_state=0).fit_blocks(stream)
    assert not isinstance(streamed.choice_.method, bo.LocalKernel)


@pytest.mark.slow
def test_many_rows_of_few_columns_use_few_fourier_modes(limits):
    """As for a process and method="auto"; a local fit must be requested."""
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


def test_partial_fits_use_features_of_the_same_kernel(limits):
    X, y = table(400, noise=0.1)
    model = bo.KernelRidge(effort="low", random_state=0).fit(X[:300], y[:300])
    kernel = model.kernel_
    model.partial_fit(X[300:], y[300:])
    assert model.kernel_ == kernel
    assert model.moments_.rows == model.rows_seen_ == 400


@pytest.mark.slow
def test_columns_with_fine_structure_are_kept(limits):
    """A sample cannot resolve a fine wave along one column, near rows can."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (6500, 2))
    y = np.sin(40 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=6500)
    model = bo.KernelRidge(random_state=0).fit(X[:6000], y[:6000])
    assert isinstance(model.choice_.method, bo.LocalKernel)
    assert np.std(model.predict(X[6000:]) - y[6000:]) < 0.15


def test_leaves_and_near_rows_ignore_linear_terms_of_the_kernel():
    """With them, leaves had rows of similar values of the linear function, not near rows."""
    X, y = table(200)
    with_line, baseline = model(WITH_LINEAR).fit(X, y), model().fit(X, y)
    assert (with_line.fit_.representation.leaf == baseline.fit_.representation.leaf).all()
    remainder = without_linear(WITH_LINEAR)
    assert (near_rows(remainder, X, 9, 5, 0) == near_rows(KERNEL, X, 9, 5, 0)).all()
    assert all(without_linear(kernel) is kernel for kernel in (KERNEL, MIXTURE, Linear()))


@pytest.mark.slow
def test_a_steep_line_does_not_hide_fine_structure():
    """With one kernel for line and curve, the error of the curve was as large as the curve."""
    rng = np.random.default_rng(0)
    X = np.column_stack([10 * rng.standard_t(2, 5200), rng.uniform(0, 1, (5200, 3))])
    curve = 4 * np.sin(12 * X[:, 1]) * np.sin(12 * X[:, 2])
    y = X[:, 0] + curve + 2 * rng.normal(size=5200)
    model = bo.KernelRidge(columns="as_given", random_state=0).fit(X[:4200], y[:4200])
    assert np.std(model.predict(X[4200:]) - X[4200:, 0] - curve[4200:]) < 0.3 * np.std(curve)


def test_a_candidate_with_a_smaller_error_in_neighbourhoods_is_chosen_with_its_scale():
    rng = np.random.default_rng(0)
    X, wide, narrow = rng.uniform(0, 10, (200, 1)), Gaussian(2.0), Gaussian(0.2)
    y = 3 * np.sin(X / 2) + np.sin(8 * X) / 2 + rng.normal(0, 0.1, (200, 1))
    rows, tuned = RowSample(X, y, np.ones(200), rng.random(200)), [TunedKernel("", narrow, 1.0, 1)]
    tuning, spec = Tuning(wide, candidates=(KernelComparison(1, wide),)), bo.KernelRidge()._spec()
    result, _ = neighbourhoods.compare(tuning, rows, 0, candidates=tuned, **exact._penalty(spec))
    assert result.chosen.kernel == result.kernel == narrow
    assert result.chosen.error == min(c.error for c in result.candidates)


@pytest.mark.parametrize("name", ["race", "simple", "near"])
def test_the_kernel_of_least_log_loss_is_chosen_for_classes(name):
    X, w = np.random.default_rng(0).uniform(-2, 2, (300, 2)), np.ones(300)
    y = np.where((X**2).sum(axis=1) < 2, 1.0, -1.0)[:, None]
    rows, spec = RowSample(X, y, w, np.arange(300.0)), bo.KernelRidgeClassifier()._spec()
    race, simple, last = (Gaussian(1.0 if name == k else 0.02) for k in ("race", "simple", "near"))
    simple = simple if name == "simple" else Gaussian(0.03)
    compared = [KernelComparison(2, race, 0.5, chosen=True), KernelComparison(1, simple, 0.54)]
    tuning, other = Tuning(race, 1e-3, candidates=tuple(compared)), Tuning(last, 1e-3)
    present = exact._solve(spec, last, rows, 1e-3)
    best = exact._minimise_log_loss(spec, rows, tuning, other, present)
    assert best.kernel == {"race": race, "simple": simple, "near": last}[name]
    assert name == "near" or best.chosen.kernel == best.kernel


def test_leaves_of_many_rows_are_smaller():
    leaf_rows, landmarks = bo.LocalKernel().most_in_leaf, bo.LocalKernel().landmarks_of
    assert [leaf_rows(1 << k) for k in (13, 14, 15, 16, 20)] == [3072, 3072, 2172, 2048, 2048]
    assert bo.LocalKernel(300).most_in_leaf(10**6) == 300
    assert [landmarks(1 << k) for k in (13, 16, 20)] == [384, 256, 128]
    assert bo.LocalKernel(landmarks=7).landmarks_of(100) == 7


@pytest.mark.filterwarnings("ignore::bochner.errors.SolutionWarning")
def test_predictions_are_accurate_where_landmarks_explain_the_intercept():
    """With a tiny penalty landmarks explain a constant; the intercept is then rounding error."""
    X = np.random.default_rng(0).normal(size=(300, 2))
    y = np.sin(X[:, 0]) + 1e3
    for alpha in (1e-12, 1e-9):
        fitted = model(Gaussian(6.0), alpha=alpha).fit(X, y)
        assert abs(fitted.intercept_) < 1e6
        assert np.abs(fitted.predict(X) - y).max() < 0.05


@pytest.mark.parametrize("seed", [0, 3])
@pytest.mark.parametrize("learner", [bo.KernelRidge, bo.KernelRidgeClassifier])
def test_near_rows_of_one_value_do_not_choose_the_penalty(learner, seed):
    """All near rows are far from 40 rows of another class; a constant was predicted."""
    X, rare = np.random.default_rng(seed).standard_normal((900, 2)), np.arange(900) < 40
    X[rare] += 20
    model = learner("gaussian", method=bo.LocalKernel(leaf_rows=300), random_state=seed)
    assert np.abs(model.fit(X, rare * 1).predict(X) - rare).max() < 0.01
