"""Every class against every other: LIBSVM's pairs, the values of classes, and what users see."""

from itertools import combinations

import numpy as np
import pytest
from sklearn.svm import SVC as Exact

import bochner as bo
from bochner.errors import InvalidType
from bochner.kernels import Gaussian
from bochner.models.convex.pairs import ClassPairs
from bochner.solvers.convex.class_losses import Hinge, SquaredHinge
from bochner.solvers.convex.kernel import KernelProblem, minimise_on_kernel
from bochner.solvers.convex.libsvm import hinge_of_pairs, hinge_on_kernel
from bochner.solvers.convex.optimum import Libsvm

K = 4
PAIRS = list(combinations(range(K), 2))


def rows(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 2))
    codes = 2 * (X[:, 0] + 0.4 * rng.standard_normal(n) > 0)
    return X, codes + (X[:, 1] + 0.4 * rng.standard_normal(n) > 0.3)


def values_of(f):
    """Of classes, by the formula: a row and a class at a time."""
    out = np.empty((len(f), K))
    for row, each in enumerate(f):
        against = dict(zip(PAIRS, each, strict=True)) | {
            (l, k): -value for (k, l), value in zip(PAIRS, each, strict=True)
        }
        for k in range(K):
            total = sum(np.exp(-4 * against[k, l]) for l in range(K) if l != k)
            out[row, k] = -np.log(total) / 4
    return out


@pytest.mark.parametrize("C", [0.3, 3.0])
def test_pairs_are_scikit_learns(C):
    """With weights, by the kernel in the place of its matrix; classes by the formula."""
    X, y = rows(160)
    w = np.random.default_rng(2).uniform(0.5, 2, 160)
    given = {"C": C, "loss": "hinge", "multi_class": "ovo", "random_state": 0}
    model = bo.SVC(Gaussian(0.7), tol=1e-8, **given).fit(X, y, w)
    theirs = Exact(C=C, gamma=0.5 / 0.7**2, tol=1e-8, decision_function_shape="ovo").fit(X, y, w)
    T = rows(50, 1)[0]
    f = Gaussian(0.7)(T, X) @ model.dual_coef_.T + model.intercept_
    np.testing.assert_allclose(f, theirs.decision_function(T), atol=1e-5)
    np.testing.assert_allclose(model.decision_function(T), values_of(f), atol=1e-9)
    assert model.solution_.algorithm == Libsvm()
    assert 0 <= model.solution_.gap < 1e-6 * model.solution_.objective


def test_the_pairs_of_libsvm_are_the_columns_one_by_one():
    X, codes = rows(150)
    w = np.random.default_rng(1).integers(0, 3, 150) * 1.0
    for loss in (Hinge(), SquaredHinge()):
        problem = KernelProblem(Gaussian(1.0)(X), ClassPairs(K).targets(codes), w, loss, 0.3)
        at_once, apart = (
            hinge_of_pairs(problem, codes, tol=1e-9),
            hinge_on_kernel(problem, tol=1e-9),
        )
        np.testing.assert_allclose(at_once.solution.coef, apart.solution.coef, atol=1e-5)
        np.testing.assert_allclose(at_once.at.fitted, apart.at.fitted, atol=1e-5)
        assert at_once.solution.objective == pytest.approx(apart.solution.objective, rel=1e-9)


def test_the_squared_hinge_of_pairs_is_that_by_newton_steps():
    X, codes = rows(150)
    problem = KernelProblem(
        Gaussian(1.0)(X), ClassPairs(K).targets(codes), np.ones(150), SquaredHinge(), 0.3
    )
    one = hinge_of_pairs(problem, codes, tol=1e-9)
    two = minimise_on_kernel(problem, tol=1e-12)
    assert one.solution.objective == pytest.approx(two.solution.objective, rel=1e-7)
    np.testing.assert_allclose(one.at.fitted, two.at.fitted, atol=1e-4)


@pytest.mark.parametrize("gone", [(2,), (0, 3), (0, 1, 2), (0, 1, 2, 3)], ids=str)
def test_classes_without_weight_lose_to_all_others(gone):
    X, codes = rows(80)
    w = np.where(np.isin(codes, gone), 0.0, 1.0)
    problem = KernelProblem(Gaussian(1.0)(X), ClassPairs(K).targets(codes), w, Hinge(), 0.3)
    found = hinge_of_pairs(problem, codes, tol=1e-9)
    for place, (k, l) in enumerate(PAIRS):
        if k in gone or l in gone:
            assert not np.any(found.solution.coef[:, place])
            assert found.solution.intercept[place] == (k not in gone) - float(l not in gone)
        else:
            own = np.isin(codes, (k, l))
            machine = Exact(C=1 / 0.3, gamma=0.5, tol=1e-9).fit(X[own], codes[own] == k)
            f = found.at.fitted[:, place]
            np.testing.assert_allclose(f, machine.decision_function(X), atol=1e-6)
    if 0 < len(gone) < K:
        decided = ClassPairs(K).values(found.at.fitted).argmax(axis=1)
        assert not np.isin(decided, gone).any()


def test_on_features_a_pair_is_a_machine_of_its_rows():
    X, y = rows(200)
    given = {"n_features": 32, "method": "orthogonal", "C": 2.0, "tol": 1e-9, "random_state": 0}
    model = bo.SVC(Gaussian(1.0), multi_class="ovo", **given).fit(X, y)
    T = rows(40, 1)[0]
    f = model.map_(T) @ model.coef_.T + model.intercept_
    for place, (k, l) in enumerate(PAIRS):
        own = np.isin(y, (k, l))
        machine = bo.SVC(Gaussian(1.0), **given).fit(X[own], y[own] == k)
        np.testing.assert_allclose(f[:, place], machine.decision_function(T), atol=1e-5)
    np.testing.assert_allclose(model.decision_function(T), values_of(f), atol=1e-6)


def test_the_largest_value_is_of_the_class_that_wins_all_its_pairs():
    """Smoothing takes log(K − 1)/s at most off the least value."""
    f = 3 * np.random.default_rng(0).standard_normal((500, len(PAIRS)))
    values, wins = ClassPairs(K).values(f), 0
    for row, each in enumerate(f):
        least = np.full(K, np.inf)
        for (k, l), value in zip(PAIRS, each, strict=True):
            least[k], least[l] = min(least[k], value), min(least[l], -value)
        np.testing.assert_array_less(values[row], least + 1e-12)
        np.testing.assert_array_less(least - np.log(K - 1) / 4 - 1e-12, values[row])
        if least.max() > np.log(K - 1) / 4:
            wins += 1
            assert values[row].argmax() == least.argmax()
    assert wins > 50
    two = np.array([[0.3], [-2.0]])
    np.testing.assert_allclose(ClassPairs(2).values(two), np.hstack([two, -two]))


def test_probabilities_of_pairs_agree_with_the_classes_predicted(tmp_path):
    X, y = rows(600)
    names = np.array(["a", "b", "c", "d"])
    model = bo.SVC(Gaussian(0.7), multi_class="ovo", random_state=0).fit(X, names[y])
    T, new = rows(4000, 1)
    p = model.predict_proba(T)
    np.testing.assert_allclose(p.sum(axis=1), 1)
    np.testing.assert_array_equal(model.classes_[p.argmax(axis=1)], model.predict(T))
    shares = np.bincount(new, minlength=K) / 4000
    # Some slopes of 600 rows: five standard errors of a share among these.
    assert np.abs(p.mean(axis=0) - shares).max() < 5 * 0.5 / 600**0.5
    bo.save(model, tmp_path / "model.bochner")
    again = bo.load(tmp_path / "model.bochner")
    np.testing.assert_array_equal(again.predict_proba(T), p)


def test_the_penalty_of_pairs_is_chosen_by_rows_left_out():
    X, y = rows(600)
    model = bo.SVC(Gaussian(0.5), multi_class="ovo", random_state=0).fit(X, y)
    assert 0 < model.path_.best < len(model.path_.alphas) - 1
    stiff = bo.SVC(Gaussian(0.5), multi_class="ovo", C=1e4, random_state=0).fit(X, y)
    T, new = rows(4000, 1)
    assert model.score(T, new) > stiff.score(T, new)


def test_two_classes_are_one_pair():
    X, y = rows(100)
    one, two = (
        bo.SVC(Gaussian(1.0), C=1.0, multi_class=way).fit(X, y > 1) for way in ("ovo", "ovr")
    )
    np.testing.assert_array_equal(one.decision_function(X), two.decision_function(X))


def test_scikit_learns_word_is_answered():
    with pytest.raises(InvalidType, match="multi_class, 'ovr' or 'ovo'"):
        bo.SVC(decision_function_shape="ovo")


def test_pairs_are_the_way_of_many_rows_a_class_with_the_kernel_itself():
    X, y = rows(400)
    given = {"kernel": Gaussian(1.0), "C": 1.0, "probability": False, "random_state": 0}
    assert bo.SVC(**given).fit(X, y).solution_.coef.shape == (400, len(PAIRS))
    assert bo.SVC(**given).fit(X[:399], y[:399]).solution_.coef.shape == (399, K)
    assert bo.SVC(fit_intercept=False, **given).fit(X, y).solution_.coef.shape == (400, K)
    assert bo.SVC(n_features=16, **given).fit(X, y).coef_.shape == (K, 16)
