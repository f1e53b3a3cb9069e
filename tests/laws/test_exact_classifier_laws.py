"""Classifiers with the kernel itself: minima by another route, and what users see of them."""

import pickle
import re
import warnings
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from inside import seen_by
from scipy.special import expit, softmax
from sklearn.metrics import log_loss
from sklearn.svm import SVC as Exact

import bochner as bo
from bochner.errors import DataWarning, InvalidInput, SolutionWarning
from bochner.kernels import Gaussian, Laplace, Linear
from bochner.models.convex.classification import class_sample
from bochner.solvers.convex.class_losses import Hinge, Logistic, Multinomial, SquaredHinge
from bochner.solvers.convex.driver import minimise
from bochner.solvers.convex.kernel import KernelProblem, minimise_on_kernel
from bochner.solvers.convex.libsvm import hinge_on_kernel
from bochner.solvers.convex.optimum import ActiveRows, CommonFactor, Convergence, Libsvm, Newton
from bochner.sums.rows import indicators

K = 3


def rows(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 2))
    codes = ((X**2).sum(axis=1) + 0.5 * rng.standard_normal(n) > 2).astype(int)
    codes += (X[:, 0] + 0.5 * rng.standard_normal(n) > 1).astype(int)
    return X, codes.astype(float)


def targets(loss, codes):
    return (codes[:, None] == np.arange(K)).astype(float) if loss.joint else indicators(codes, K)


class Whole:
    """Features in one block, as the solvers on features read them."""

    cached = True

    def __init__(self, Z, y, w):
        self.block, self.n_features = Block(Z, y, w), Z.shape[1]

    def __iter__(self):
        yield self.block

    def sum(self, summand):
        return summand.add(summand.zero(), self.block)


class Block:
    start = 0

    def __init__(self, Z, y, w):
        self.Z, self.y, self.w = Z, y, w


LOSSES = {"squared hinge": SquaredHinge(), "logistic": Logistic(), "softmax": Multinomial()}


@pytest.fixture(params=LOSSES)
def loss(request):
    return LOSSES[request.param]


@pytest.mark.parametrize("intercept", [True, False], ids=["intercept", "none"])
def test_the_least_on_the_matrix_is_that_on_its_factor(loss, intercept):
    """Features with φ(x)·φ(y) = k(x, y) on the rows, by the solvers that know no kernel."""
    X, codes = rows(150)
    w = np.random.default_rng(1).integers(0, 4, 150).astype(float)
    matrix = Gaussian(1.0)(X)
    Z = np.linalg.cholesky(matrix + 1e-9 * np.eye(150))
    y = targets(loss, codes)
    problem = KernelProblem(Z @ Z.T, y, w, loss, 0.3, intercept)
    found = minimise_on_kernel(problem, tol=1e-11)
    # Both are within 1e-10 of the least, relative: coefficients within its root, fits of rows too.
    same = minimise(Whole(Z, y, w), loss, 0.3, fit_intercept=intercept, tol=1e-11, max_iter=300)
    assert found.solution.objective == pytest.approx(same.objective, rel=1e-9)
    mean = np.mean if loss.joint else lambda f, axis, keepdims: 0.0
    fits = [found.at.fitted, Z @ same.coef + same.intercept]
    one, two = (f - mean(f, axis=1, keepdims=True) for f in fits)
    np.testing.assert_allclose(one, two, atol=2e-4)


def test_coefficients_are_slopes_at_the_least(loss):
    """alpha c = −w ℓ'(f), and f = Kc + b; without weight they are zero."""
    X, codes = rows(200)
    w = np.random.default_rng(1).uniform(0, 2, 200) * (np.arange(200) % 5 > 0)
    matrix, y = Gaussian(0.7)(X), targets(loss, codes)
    found = minimise_on_kernel(KernelProblem(matrix, y, w, loss, 0.5), tol=1e-13)
    c, f = found.solution.coef, found.at.fitted
    np.testing.assert_allclose(f, matrix @ c + found.at.intercept, atol=1e-10)
    np.testing.assert_allclose(0.5 * c, -w[:, None] * loss.slope(y, f), atol=1e-5)
    assert not np.any(c[w == 0])
    np.testing.assert_allclose(c.sum(axis=0), 0, atol=1e-5)


def test_rows_without_weight_are_predicted_by_the_others(loss):
    X, codes = rows(120)
    left = np.arange(120) % 3 == 0
    k, y = Gaussian(1.0), targets(loss, codes)
    found = minimise_on_kernel(KernelProblem(k(X), y, 1.0 - left, loss, 0.2), tol=1e-12)
    one = np.ones((~left).sum())
    alone = minimise_on_kernel(KernelProblem(k(X[~left]), y[~left], one, loss, 0.2), tol=1e-12)
    f = k(X[left], X[~left]) @ alone.solution.coef + alone.at.intercept
    np.testing.assert_allclose(found.at.fitted[left], f, atol=1e-4)


def test_many_rows_start_from_few_and_end_at_the_same_least():
    X, codes = rows(1200)
    loss, k = SquaredHinge(), Gaussian(0.5)
    problem = KernelProblem(k(X), targets(loss, codes), np.ones(1200), loss, 0.05)
    found = minimise_on_kernel(problem, tol=1e-10)
    zero = minimise_on_kernel(problem, found.at.moved(-1.0, found.at), tol=1e-10)
    assert found.solution.objective == pytest.approx(zero.solution.objective, rel=1e-9)
    assert found.solution.history.active[0] < 1 == zero.solution.history.active[0]
    assert found.solution.algorithm == Newton(ActiveRows())


@pytest.mark.parametrize("n", [90, 700], ids=["few", "many"])
def test_from_a_fit_that_is_near_the_least_is_the_same(loss, n):
    """Its coefficients are not looked at: those of the rows left out are wrong."""
    X, codes = rows(n)
    left = np.arange(n) % 3 == 0
    problem = KernelProblem(Gaussian(0.7)(X), targets(loss, codes), np.ones(n), loss, 0.2)
    some = minimise_on_kernel(replace(problem, w=1.0 - left)).at
    none = replace(some, coef=np.full_like(some.coef, np.nan))
    one, two = (minimise_on_kernel(problem, near=at, tol=1e-11) for at in (none, None))
    assert one.solution.objective == pytest.approx(two.solution.objective, rel=1e-9)
    again = minimise_on_kernel(problem, near=two.at)
    assert len(again.solution.history) <= 3


def test_classes_that_can_be_told_apart_take_few_steps():
    """Most rows are told for certain then, and have no say in a step."""
    X = np.random.default_rng(0).standard_normal((600, 2))
    codes = (X[:, 0] > 0).astype(float) + (X[:, 1] > 0.5)
    y = targets(Multinomial(), codes)
    problem = KernelProblem(Gaussian(1.0)(X), y, np.ones(600), Multinomial(), 1e-5)
    cold = minimise_on_kernel(problem).solution
    assert cold.outcome is Convergence.CONVERGED
    assert len(cold.history) <= 40  # measured: 22; with the mean curvature of classes over 100
    some = minimise_on_kernel(replace(problem, w=(np.arange(600) % 3 > 0).astype(float))).at
    warm = minimise_on_kernel(problem, near=some).solution
    assert warm.objective == pytest.approx(cold.objective, rel=1e-3)
    assert len(warm.history) < len(cold.history)


def test_a_solution_says_how_it_ended():
    X, codes = rows(200)
    y = targets(Multinomial(), codes)
    problem = KernelProblem(Gaussian(0.5)(X), y, np.ones(200), Multinomial(), 1e-4)
    few = minimise_on_kernel(problem, max_iter=2).solution
    assert few.outcome is Convergence.MOST_STEPS
    assert len(few.history) == 2
    many = minimise_on_kernel(problem).solution
    assert many.outcome is Convergence.CONVERGED
    assert many.algorithm == Newton(CommonFactor())
    assert np.all(np.diff(many.history.objective) <= 1e-9 * many.history.objective[0])


def test_equal_rows_make_no_step_impossible():
    """The matrix of equal rows is of rank one, and a tiny penalty cannot be seen beside it."""
    X, codes = np.repeat(rows(20)[0], 10, axis=0), np.tile([0.0, 1.0, 2.0, 1.0], 50)
    for loss in LOSSES.values():
        y = targets(loss, codes)
        problem = KernelProblem(Gaussian(3.0)(X), y, np.ones(200), loss, 1e-14)
        found = minimise_on_kernel(problem, max_iter=40).solution
        assert np.all(np.isfinite(found.coef))
        assert np.isfinite(found.objective)


# --- learners ------------------------------------------------------------------------------------

LEARNERS = [bo.SVC, bo.LogisticRegression]


def labelled(n, seed=0):
    X, codes = rows(n, seed)
    return X, np.array(["a", "b", "c"])[codes.astype(int)]


def squared(cls):
    """The loss that is the same with features and without, where there are two."""
    return {"loss": "squared_hinge"} if cls is bo.SVC else {}


@pytest.mark.parametrize("cls", LEARNERS)
def test_few_rows_are_fitted_with_the_kernel_itself_as_with_features_of_it(cls):
    X, y = labelled(200)
    given = {"C": 2.0, "tol": 1e-11, "random_state": 0} | squared(cls)
    model = cls(Gaussian(0.8), **given).fit(X, y)
    features = cls(
        Gaussian(0.8), method="nystrom", n_features=200, precision="float64", max_iter=300, **given
    ).fit(X, y)
    T = rows(50, 1)[0]
    # The Nyström map of all rows is the kernel, but for a jitter of 1e-12 or so of it.
    one, two = (m.decision_function(T) for m in (model, features))
    if cls is bo.LogisticRegression:
        one, two = (f - f.mean(axis=1, keepdims=True) for f in (one, two))
    np.testing.assert_allclose(one, two, atol=1e-3)
    assert model.X_fit_.shape == (200, 2)
    assert model.dual_coef_.shape == (3, 200)
    by_rows = Gaussian(0.8)(T, model.X_fit_) @ model.dual_coef_.T + model.intercept_
    np.testing.assert_allclose(model.decision_function(T), by_rows, atol=1e-10)
    np.testing.assert_allclose(model.map_(T) @ model.coef_.T + model.intercept_, by_rows, atol=1e-6)
    assert model.choice_.reason.startswith("The exact kernel of 200 rows")


@pytest.mark.parametrize("cls", LEARNERS)
def test_features_are_made_where_they_are_asked_for(cls):
    X, y = labelled(100)
    for asked in (
        {"method": "nystrom"},
        {"n_features": 64},
        {"precision": "float32"},
        {"C": np.inf},
    ):
        model = cls(Gaussian(1.0), max_iter=5, tol=1.0, **asked)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SolutionWarning)  # five steps are few
            model.fit(X, y)
        text = "dual_coef_: only a fit with the kernel itself has them; see coef_."
        with pytest.raises(AttributeError, match=re.escape(text)):
            _ = model.dual_coef_
        with pytest.raises(AttributeError, match="X_fit_: only a fit with the kernel itself"):
            _ = model.X_fit_


@pytest.mark.parametrize("cls", LEARNERS)
def test_the_penalty_is_the_best_of_rows_left_out(cls):
    """And its neighbours on the path lose more; predictions err about as the law of y makes them."""
    X, y = labelled(400)
    model = cls("gaussian", random_state=0).fit(X, y)
    path = model.path_
    assert path.alpha == pytest.approx(1 / model.C_)
    assert 0 < path.best < len(path.alphas) - 1
    T, truth = labelled(2000, 1)
    # With the true borders 21 % err; three deviations of 2000 rows are 3 %.
    ideal = np.array(["a", "b", "c"])[((T**2).sum(1) > 2).astype(int) + (T[:, 0] > 1)]
    assert np.mean(model.predict(T) != truth) < np.mean(ideal != truth) + 0.05


@pytest.mark.parametrize("n_classes", [2, 6])
def test_the_penalty_does_not_depend_on_where_its_search_starts(n_classes, monkeypatch):
    """A ridge regression that interpolates starts it at a tiny penalty, whose fit ends early."""
    rng = np.random.default_rng(0)
    X, B = rng.standard_normal((160, 9)), rng.standard_normal((9, n_classes))
    y = (X @ B + rng.standard_normal((160, n_classes))).argmax(axis=1)
    model = bo.LogisticRegression(Laplace(4.0), random_state=0)
    usual = model.fit(X, y).path_
    chosen = model.fit_.chosen
    chosen = replace(chosen, search=replace(chosen.search, share=1e-12))
    monkeypatch.setattr("bochner.models.convex.exact.choose_exactly", lambda *_: chosen)
    tiny = model.fit(X, y).path_
    assert tiny.alpha == pytest.approx(usual.alpha)
    # Fits to compare end within 0.3 % of their objective.
    assert tiny.errors[tiny.best] == pytest.approx(usual.errors[usual.best], rel=0.01)


def test_svc_takes_calm_penalties_where_classes_are_apart():
    """Lengthscale and penalty stay where rows can tell them, and steps converge."""
    X = np.random.default_rng(0).uniform(-2, 2, (500, 2))
    model = bo.SVC(random_state=0).fit(X, (X**2).sum(axis=1) < 2)
    assert model.solution_.outcome is Convergence.CONVERGED
    parts = model.kernel_.get_params().items()
    scales = [np.max(value) for name, value in parts if name.endswith("lengthscale")]
    assert scales
    assert max(scales) < 8
    T = np.random.default_rng(1).uniform(-2, 2, (500, 2))
    assert np.mean(model.predict(T) != ((T**2).sum(axis=1) < 2)) < 0.05


def test_logistic_regression_finds_the_columns_that_matter():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1000, 8))
    p = expit(4 * np.sin(3 * X[:, 0]))
    y = rng.uniform(size=1000) < p
    auto, plain = (
        bo.LogisticRegression(kernel, random_state=0).fit(X[:500], y[:500])
        for kernel in ("auto", "gaussian")
    )
    lost = [
        -np.mean(np.log(m.predict_proba(X[500:])[np.arange(500), y[500:].astype(int)]))
        for m in (auto, plain)
    ]
    law = -np.mean(np.log(np.where(y, p, 1 - p))[500:])
    # Beside what the law of y loses, columns of noise cost the plain kernel several times as much.
    assert lost[0] - law < 0.5 * (lost[1] - law)
    assert auto.search_.compared


def test_probabilities_of_a_machine_are_calibrated_by_rows_left_out():
    X, codes = rows(600)
    y = codes > 0
    model = bo.SVC(probability=True, random_state=0).fit(X, y)
    p = model.predict_proba(X)
    np.testing.assert_allclose(p.sum(axis=1), 1)
    np.testing.assert_array_equal(model.classes_[p.argmax(axis=1)], model.predict(X))
    T, new = rows(4000, 1)
    mean = model.predict_proba(T)[:, 1].mean()
    # Four slopes of 600 rows, and the mean of 4000: five standard errors of the smaller sample.
    assert abs(mean - np.mean(new > 0)) < 5 * 0.5 / 600**0.5


@pytest.fixture
def machines(monkeypatch):
    """What LIBSVM is called with, each time."""
    return seen_by(monkeypatch, "bochner.solvers.convex.libsvm._fitted")


def sizes(machines):
    return [len(K) for K, *_ in machines]


def test_probabilities_are_calibrated_when_they_are_asked_for(machines, tmp_path):
    X, y = rows(300)
    model = bo.SVC(Gaussian(), C=10, random_state=0).fit(X, y)
    assert sizes(machines) == [300]
    fresh = pickle.loads(pickle.dumps(model))
    bo.save(model, tmp_path / "asked.bochner")
    assert len(machines) > 1
    asked = len(machines)
    p = model.predict_proba(X)
    assert len(machines) == asked  # kept
    bo.save(bo.SVC(Gaussian(), C=10, random_state=0).fit(X, y), tmp_path / "again.bochner")
    assert (tmp_path / "again.bochner").read_bytes() == (tmp_path / "asked.bochner").read_bytes()
    loaded, asked = bo.load(tmp_path / "asked.bochner"), len(machines)
    assert (loaded.predict_proba(X) == p).all()
    assert len(machines) == asked
    assert (fresh.predict_proba(X) == p).all()
    assert len(machines) > asked


@pytest.fixture
def few_rows(monkeypatch):
    """Let 300 rows be many."""
    monkeypatch.setattr("bochner.models.convex.exact.EXACT_ROWS", 200)
    monkeypatch.setattr("bochner.models.convex.classifiers.EXACT_ROWS", 200)
    monkeypatch.setattr("bochner.models.convex.exact.SUPPORT_SAMPLES", (60, 120))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_libsvm_fits_many_rows_with_few_support_vectors(n_classes, few_rows, machines):
    X = np.random.default_rng(0).uniform(-2, 2, (450, 2))
    y = np.digitize((X**2).sum(axis=1), [2, 4][: n_classes - 1])
    w = np.where(np.arange(450) % 3, 1.0, 0.0)
    kernel = Gaussian((1.5, 0.8))
    model = bo.SVC(kernel, C=5, random_state=0, tol=1e-6).fit(X, y, w)
    theirs = Exact(gamma=0.5, C=5, tol=1e-6, decision_function_shape="ovo")
    scaled = X / np.array(kernel.lengthscale)
    theirs.fit(scaled[w > 0], y[w > 0])
    assert model.fit_.X.shape == theirs.support_vectors_.shape
    f = np.concatenate([f for _, f in model.fit_.predictions(model._rows_to_predict(X))])
    expected = theirs.decision_function(scaled).reshape(len(X), -1)
    assert np.abs(f - expected).max() < 1e-3  # both end where slopes agree to 1e-5 and 1e-6
    assert sizes(machines) == [60, 120, 300]
    assert (model.predict_proba(X).argmax(axis=1) == model.predict(X)).all()


def test_features_fit_many_rows_with_many_support_vectors(few_rows, machines):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((300, 2)), rng.integers(2, size=300)
    model = bo.SVC(Gaussian(), C=10, random_state=0).fit(X, y)
    assert sizes(machines) == [60, 120]
    assert not hasattr(model, "dual_coef_")
    rare = np.arange(300) == 299  # no sample has any
    with pytest.warns(DataWarning, match="fewer than 5"):
        model.fit(X, rare)
    assert not hasattr(model, "dual_coef_")


def test_probabilities_need_rows_to_leave_out():
    model = bo.SVC(Linear(), random_state=0).fit([[0.0], [1.0]], [0, 1])
    assert model.predict([[0.0], [1.0]]).tolist() == [0, 1]
    with pytest.raises(InvalidInput, match="some class had too few different rows to hold some"):
        model.predict_proba([[0.0]])


@pytest.mark.parametrize("C", [0.3, 3.0])
def test_a_machine_is_scikit_learns_one_against_the_rest(C):
    """With weights, by the kernel in the place of its matrix; and the gap bounds the objective."""
    X, codes = rows(160)
    w = np.random.default_rng(2).uniform(0.5, 2, 160)
    given = {"C": C, "loss": "hinge", "random_state": 0}
    model = bo.SVC(Gaussian(0.7), tol=1e-8, **given).fit(X, codes, w)
    T = rows(50, 1)[0]
    for k in range(3):
        theirs = Exact(C=C, gamma=0.5 / 0.7**2, tol=1e-8).fit(X, codes == k, w)
        f = theirs.decision_function(T)
        np.testing.assert_allclose(model.decision_function(T)[:, k], f, atol=1e-5)
    assert model.solution_.algorithm == Libsvm()
    assert 0 <= model.solution_.gap < 1e-6 * model.solution_.objective
    rough = bo.SVC(Gaussian(0.7), tol=1e-2, **given).fit(X, codes, w).solution_
    least = model.solution_.objective
    assert least * (1 - 1e-9) <= rough.objective <= least + rough.gap + 1e-9


def test_a_hinge_is_of_rows_that_take_part():
    """Rows whose y is 0 in a column, and rows without weight, have no coefficient in it."""
    X, codes = rows(120)
    y, w = targets(Hinge(), codes), (np.arange(120) % 4 > 0).astype(float)
    y[codes == 2, 0] = 0.0
    found = hinge_on_kernel(KernelProblem(Gaussian(1.0)(X), y, w, Hinge(), 0.5), tol=1e-9)
    some = (codes < 2) & (w > 0)
    alone = hinge_on_kernel(
        KernelProblem(Gaussian(1.0)(X[some]), y[some, :1], w[some], Hinge(), 0.5), tol=1e-9
    )
    np.testing.assert_allclose(found.solution.coef[some, 0], alone.solution.coef[:, 0], atol=1e-6)
    assert not np.any(found.solution.coef[~some, 0])
    f = Gaussian(1.0)(X, X[some]) @ alone.solution.coef + alone.solution.intercept
    np.testing.assert_allclose(found.at.fitted[:, :1], f, atol=1e-6)


def test_a_hinge_says_where_moves_end_it():
    X, codes = rows(120)
    problem = KernelProblem(Gaussian(1.0)(X), targets(Hinge(), codes), np.ones(120), Hinge(), 0.01)
    whole, cut = (hinge_on_kernel(problem, tol=1e-9, moves=moves) for moves in (1000, 1))
    assert whole.solution.outcome is Convergence.CONVERGED
    assert cut.solution.outcome is Convergence.MOST_STEPS
    assert cut.solution.objective > whole.solution.objective
    assert cut.solution.objective <= whole.solution.objective + cut.solution.gap + 1e-9


def test_a_penalty_at_which_a_hinge_does_not_end_is_not_taken(monkeypatch):
    """The first that is tried counts however it ends; and the machine itself has all its moves."""
    X, codes = rows(300)
    y = (codes > 0) ^ (np.random.default_rng(3).random(300) < 0.3)
    machine = partial(bo.SVC, Gaussian(0.5), loss="hinge", random_state=0)
    assert np.isfinite(machine().fit(X, y).path_.errors).all()
    monkeypatch.setattr("bochner.models.convex.exact.MOVES_COMPARED", 1)
    short = machine().fit(X, y)
    ended = np.isfinite(short.path_.errors)
    assert ended.sum() == 1
    assert ended[short.path_.best]
    assert short.solution_.outcome is Convergence.CONVERGED


def test_a_squared_hinge_by_libsvm_is_that_by_newton_steps():
    X, codes = rows(150)
    y, w = targets(SquaredHinge(), codes), np.random.default_rng(1).integers(0, 3, 150) * 1.0
    problem = KernelProblem(Gaussian(1.0)(X), y, w, SquaredHinge(), 0.3)
    one, two = hinge_on_kernel(problem, tol=1e-9), minimise_on_kernel(problem, tol=1e-12)
    assert one.solution.objective == pytest.approx(two.solution.objective, rel=1e-7)
    assert 0 <= one.solution.gap < 1e-6 * one.solution.objective
    np.testing.assert_allclose(one.at.fitted, two.at.fitted, atol=1e-4)


def test_a_machine_without_an_intercept_has_the_squared_hinge():
    X, codes = rows(120)
    model = bo.SVC(Gaussian(1.0), C=1.0, fit_intercept=False, random_state=0).fit(X, codes)
    assert model.solution_.algorithm == Newton(ActiveRows())


def test_many_rows_have_the_kernel_itself_and_a_penalty_by_some():
    X, codes = rows(2500)
    model = bo.SVC(Gaussian(0.7), random_state=0).fit(X, codes)
    assert model.X_fit_.shape == (2500, 2)
    assert 0 < model.path_.best < len(model.path_.alphas) - 1
    T, new = rows(2000, 1)
    p = model.predict_proba(T)
    # The law of y loses about .5; three slopes of a thousand rows cost a hundredth.
    assert -np.log(p[np.arange(2000), new.astype(int)]).mean() < 0.65


def test_some_rows_stand_for_all_of_their_class():
    X, codes = rows(600)
    codes[::60] = 3
    w = 1 + np.arange(600) % 3
    sample = class_sample(bo.Blocks.from_arrays(X, codes, 1.0 * w), 0, 4)
    some, numbers = sample.some(80, 0, 4)
    np.testing.assert_array_equal(some.X, X[numbers])
    assert (np.flatnonzero(codes == 3)[:, None] == numbers).any(axis=1).all()  # ten of 600 are rare
    shares = [np.bincount(each.codes.astype(int), each.w) for each in (some, sample)]
    np.testing.assert_allclose(*shares)
    assert some.inflation > 2
    assert all(len(set(some.codes[~fold])) == 4 for fold in some.folds)
    assert set(sample.some(40, 0, 4)[1]) <= set(numbers)
    assert sample.some(600, 0, 4)[0] is sample


def test_the_penalty_of_many_rows_is_tried_again_with_more(monkeypatch):
    """The obvious route: a fit at each penalty without the first fold, and what that loses."""
    X = np.random.default_rng(0).uniform(-2, 2, (700, 2))
    y, kernel = (np.sin(4 * X).prod(axis=1) > 0).astype(int), Gaussian(0.3)
    monkeypatch.setattr("bochner.models.convex.exact.PENALTY_ROWS", 60)
    monkeypatch.setattr("bochner.models.convex.class_sample.CALIBRATED", 100)
    model = bo.LogisticRegression(kernel, random_state=0).fit(X, y)
    path, held = model.path_, class_sample(bo.Blocks.from_arrays(X, 1.0 * y), 0, 2).folds[0]
    assert pytest.approx(1 / path.alpha) == model.C_
    np.testing.assert_allclose(path.alphas[1:] / path.alphas[:-1], 0.1)
    lost = []
    for alpha in path.alphas:
        fit = bo.LogisticRegression(kernel, C=1 / alpha).fit(X[~held], y[~held])
        lost.append(log_loss(y[held], fit.predict_proba(X[held])))
    # Penalties are compared by fits to 3e-3 of their objective.
    np.testing.assert_allclose(path.errors / path.errors[0], np.array(lost) / lost[0], rtol=0.02)


def test_softmax_probabilities_are_those_of_the_decisions():
    X, y = labelled(80)
    model = bo.LogisticRegression(random_state=0).fit(X, y)
    f = model.decision_function(X)
    np.testing.assert_allclose(model.predict_proba(X), softmax(f, axis=1), atol=1e-12)
