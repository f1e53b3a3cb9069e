"""SVC and LogisticRegression: scikit-learn's answers with exact features, and laws of classes."""

import itertools

import numpy as np
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import make_moons
from sklearn.linear_model import LogisticRegression as Linear
from sklearn.metrics import log_loss
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import SVC as Exact
from sklearn.svm import LinearSVC
from sklearn.utils.class_weight import compute_sample_weight

import bochner as bo
from bochner.errors import InvalidInput, InvalidType, SolutionWarning
from bochner.features import Nystrom
from bochner.kernels import Gaussian
from bochner.landmarks import RPCholesky
from bochner.models._calibration import agreeing, calibrate
from bochner.models._rows import fold_numbers
from bochner.models.convex.classification import class_sample
from bochner.solvers.convex.optimum import Convergence

KERNEL = Gaussian(lengthscale=0.7)
GAMMA = 0.5 / 0.7**2

BOTH = pytest.mark.parametrize("cls", [bo.SVC, bo.LogisticRegression])


def table(n=160, K=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 2))
    angle = np.arctan2(X[:, 1], X[:, 0]) + 0.3 * rng.standard_normal(n) + np.pi
    return X, np.floor(angle * K / (2 * np.pi)).astype(int) % K


def options(**changes):
    return dict(method="orthogonal", n_features=64, random_state=0, tol=1e-8, C=1.0) | changes


def exact(cls, n=160, **changes):
    """A model whose features have all rows for landmarks, so that they are the kernel."""
    return cls(KERNEL, **options(method=Nystrom(RPCholesky()), n_features=n, **changes))


# ---- scikit-learn's answers with exact features


@pytest.mark.parametrize("C", [0.3, 3.0])
def test_hinge_with_exact_features_is_the_exact_svc(C):
    X, y = table()
    new = table(60, seed=1)[0]
    ours = exact(bo.SVC, C=C, loss="hinge", tol=1e-7).fit(X, y)
    theirs = Exact(C=C, gamma=GAMMA, tol=1e-8).fit(X, y)
    expected = theirs.decision_function(new)
    np.testing.assert_allclose(ours.decision_function(new), expected, atol=1e-3)
    clear = np.abs(expected) > 1e-3
    assert (ours.predict(new) == theirs.predict(new))[clear].all()
    assert ours.solution_.outcome is Convergence.CONVERGED


def test_several_classes_with_exact_features_are_scikit_learns_one_vs_rest():
    X, y = table(K=3)
    w = np.random.default_rng(2).uniform(0.5, 2, len(y))
    new = table(60, seed=1)[0]
    ours = exact(bo.SVC, loss="hinge", tol=1e-7).fit(X, y, w)
    for k in range(3):
        theirs = Exact(gamma=GAMMA, tol=1e-8).fit(X, y == k, w).decision_function(new)
        np.testing.assert_allclose(ours.decision_function(new)[:, k], theirs, atol=1e-3)
    plain = exact(bo.SVC, loss="hinge").fit(X, y)
    votes = OneVsRestClassifier(Exact(gamma=GAMMA, tol=1e-6)).fit(X, y)
    assert (plain.predict(new) == votes.predict(new)).mean() > 0.98


@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("weight", [None, "balanced"])
def test_squared_hinge_and_logistic_are_scikit_learns_on_the_same_features(K, weight):
    X, y = table(K=K)
    w = compute_sample_weight(weight, y)
    ours = bo.SVC(KERNEL, **options(fit_intercept=False, class_weight=weight)).fit(X, y)
    Z = ours.map_(X)
    theirs = LinearSVC(fit_intercept=False, tol=1e-10, max_iter=10**5, dual=False)
    np.testing.assert_allclose(ours.coef_, theirs.fit(Z, y, w).coef_, atol=1e-4)
    ours = bo.LogisticRegression(KERNEL, **options(C=2.0, class_weight=weight)).fit(X, y)
    theirs = Linear(C=2.0, class_weight=weight, tol=1e-10, max_iter=5000).fit(Z, y)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(Z), atol=1e-5)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-4)
    assert (ours.predict(X) == theirs.predict(Z)).all()


def test_one_against_the_rest_is_a_binary_fit_for_each_class():
    X, y = table(K=3)
    apart = bo.LogisticRegression(KERNEL, **options(multinomial=False)).fit(X, y)
    ps = []
    for k in range(3):
        one = bo.LogisticRegression(KERNEL, **options()).fit(X, y == k)
        np.testing.assert_allclose(apart.coef_[k], one.coef_[0], atol=1e-5)
        ps.append(one.predict_proba(X)[:, 1])
    p = np.stack(ps, axis=1)
    np.testing.assert_allclose(apart.predict_proba(X), p / p.sum(axis=1, keepdims=True), atol=1e-5)


# ---- probabilities


def test_equal_decisions_go_to_the_class_predicted():
    p = agreeing(np.array([[0.5, 0.5], [0.2, 0.8]]), np.array([1, 1]))
    assert p.argmax(axis=1).tolist() == [1, 1]
    np.testing.assert_allclose(p, [[0.5, 0.5], [0.2, 0.8]], rtol=1e-15)


@pytest.mark.parametrize("K", [2, 3])
def test_calibration_finds_the_slopes_that_labels_were_drawn_with(K):
    """Labels drawn with p ∝ exp(2 f): slopes within five deviations (false alarm 1e-6 each).

    Deviations are those of maximum likelihood; the planted fault, slopes of 1, is caught by the loss.
    """
    rng = np.random.default_rng(0)
    n = 40_000
    f = rng.uniform(-2, 2, (n, 1 if K == 2 else K))
    scores = np.column_stack([0 * f, 2 * f]) if K == 2 else 2 * f
    p = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    codes = (rng.random(n)[:, None] > p.cumsum(axis=1)).sum(axis=1).astype(float)
    found = calibrate(f, codes, np.ones(n))
    ends = [-np.inf, -1, -0.8, -0.5, 0, 0.5, 0.8, 1, np.inf]
    parts = [np.clip(f, a, b) - (b if b <= 0 else a) for a, b in itertools.pairwise(ends)]
    b = np.stack(parts, axis=2)
    b = np.concatenate([0 * b, b], axis=1) if K == 2 else b
    mean = np.einsum("nk,nkj->nj", p, b)
    information = np.einsum("nk,nki,nkj->ij", p, b, b) - mean.T @ mean
    assert (np.abs(found.slopes - 2) < 5 * np.linalg.inv(information).diagonal() ** 0.5).all()
    true = log_loss(codes, p)
    assert abs(found.log_loss - true) < 1e-2
    flat = np.exp(scores / 2) / np.exp(scores / 2).sum(axis=1, keepdims=True)
    assert log_loss(codes, flat) > true + 2e-2
    np.testing.assert_allclose(found.probabilities(f), p, atol=0.05)


def test_probabilities_are_as_good_as_platts():
    """Log loss on 2000 new rows, against scikit-learn's five folds with a sigmoid."""
    X, y = make_moons(2400, noise=0.35, random_state=0)
    new, labels = X[400:], y[400:]
    ours = bo.SVC(KERNEL, **options(probability=True, tol=1e-4)).fit(X[:400], y[:400])
    theirs = CalibratedClassifierCV(LinearSVC(tol=1e-6, max_iter=10**5), ensemble=False, cv=5)
    theirs.fit(ours.map_(X[:400]), y[:400])
    rival = log_loss(labels, theirs.predict_proba(ours.map_(new)))
    assert log_loss(labels, ours.predict_proba(new)) < 1.05 * rival


def test_folds_do_not_depend_on_the_order_of_rows():
    X, w = np.random.default_rng(0).standard_normal((5000, 3)), np.ones(5000)
    folds = fold_numbers(bo.Blocks.from_arrays(X, block_rows=77), w, 0)
    order = np.random.default_rng(1).permutation(5000)
    again = fold_numbers(bo.Blocks.from_arrays(X[order], block_rows=5000), w, 0)
    np.testing.assert_array_equal(again, folds[order])
    assert (fold_numbers(bo.Blocks.from_arrays(X), w, 1) != folds).mean() > 0.7
    # five standard deviations of a binomial count: a false alarm in two million a fold
    assert np.abs(np.bincount(folds.astype(int)) - 1000).max() < 5 * np.sqrt(800)


def test_two_different_rows_of_each_class_are_enough_for_probabilities():
    """Dealt to folds by chance, neither class would have rows in two of them in one of 25 fits."""
    X, y = (
        np.repeat([[1.0, 3.0], [3.0, 3.0], [2.0, 1.0], [4.0, 1.0]], 4, axis=0),
        np.arange(16) // 8,
    )
    for seed in range(60):
        model = bo.SVC(KERNEL, **options(probability=True, n_features=8, random_state=seed))
        assert model.fit(X, y).predict_proba(X).shape == (16, 2)


# ---- the same from any blocks, weights, labels


@pytest.mark.parametrize("cls", [bo.SVC, bo.LogisticRegression, bo.SVR])
def test_the_lengthscale_is_chosen_for_c_times_the_weights(cls):
    X, y = table(300)
    w = np.full(300, 1e-4)
    little = cls("gaussian", n_features=64, method="orthogonal", random_state=0, C=1.0).fit(X, y, w)
    same = cls("gaussian", n_features=64, method="orthogonal", random_state=0, C=1e-4).fit(X, y)
    np.testing.assert_allclose(little.kernel_.lengthscale, same.kernel_.lengthscale)


@pytest.mark.parametrize("cls", [bo.SVC, bo.LogisticRegression, bo.SVR])
def test_the_width_is_judged_at_the_penalty_given(cls):
    X, y = table(400)
    narrow, wide = (
        cls(KERNEL, method="nystrom", n_features="auto", C=C, random_state=0).fit(X, y)
        for C in (0.01, 10.0)
    )
    assert 2 * narrow.map_.n_features < wide.map_.n_features


def test_nonsmooth_losses_take_no_pass_for_moments(monkeypatch):
    """Few rows bend, others than in the step before: moments of all rows are no preconditioner."""
    X, y = table()
    monkeypatch.setattr("bochner.models._rows.free_bytes", lambda: 0)
    swept = []
    monkeypatch.setattr(
        "bochner.models.convex.classification.moments_of", lambda *_: swept.append(1)
    )
    bo.SVC(KERNEL, loss="hinge", **options(tol=1e-3)).fit(X, y)
    assert not swept


# ---- refusals and warnings


@BOTH
@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"C": 0.0}, InvalidInput, r": C must be a positive finite number; got 0"),
        ({"C": -np.inf}, InvalidInput, r": C must be a positive finite number"),
        ({"tol": 0}, InvalidInput, r": tol must be a positive"),
        ({"max_iter": 0}, InvalidInput, r": max_iter must be an integer, 1 or above"),
        ({"precision": "half"}, InvalidInput, r": precision must be one of 'auto'"),
        ({"class_weight": "even"}, InvalidInput, r"class_weight must be None, \"balanced\""),
    ],
)
def test_parameters_that_cannot_be_are_refused(cls, change, error, text):
    with pytest.raises(error, match=cls.__name__ + r".*" + text.removeprefix(":")):
        cls(KERNEL, **options(**change)).fit(*table())


def test_words_that_are_not_known_are_refused():
    with pytest.raises(InvalidInput, match=r"SVC: loss must be one of 'squared_hinge', 'hinge'"):
        bo.SVC(KERNEL, **options(loss="log")).fit(*table())
    with pytest.raises(InvalidInput, match=r"SVC: multi_class must be one of 'auto', 'ovo', 'ovr'"):
        bo.SVC(KERNEL, **options(multi_class="one_vs_one")).fit(*table())
    with pytest.raises(InvalidType, match=r"multinomial must be True or False; got 'auto'"):
        bo.LogisticRegression(KERNEL, **options(multinomial="auto")).fit(*table())


@BOTH
def test_data_that_cannot_be_classified_are_refused(cls):
    X, y = table()
    with pytest.raises(ValueError, match=r"at least 2 classes; got the 1 class 0 only"):
        cls(KERNEL, **options()).fit(X, 0 * y)
    with pytest.raises(ValueError, match=r"at least one non-zero number"):
        cls(KERNEL, **options()).fit(X, y, np.zeros(160))
    blocks = bo.Blocks.from_arrays(X, y, np.zeros(160))
    with pytest.raises(InvalidInput, match=r"at least one row must have a weight above zero"):
        cls(KERNEL, **options()).fit_blocks(blocks)
    with pytest.raises(ValueError, match=r"requires y to be passed"):
        cls(KERNEL, **options()).fit(X, None)


def test_probabilities_that_were_not_asked_for_are_refused():
    X, y = table()
    model = bo.SVC(KERNEL, **options(probability=False)).fit(X, y)
    assert not hasattr(model, "predict_proba")
    with pytest.raises(AttributeError, match=r"predict_proba"):
        model.predict_proba(X)
    with pytest.raises(InvalidInput, match=r"fitted with probability=False, or some class"):
        model.set_params(probability=True).predict_proba(X)
    equal = np.ones((20, 2))
    model = bo.SVC(KERNEL, **options()).fit(equal, np.arange(20) % 2)
    with pytest.raises(InvalidInput, match=r"had too few different rows to hold some out"):
        model.predict_log_proba(equal)


@BOTH
def test_separable_classes_without_a_penalty_warn_what_to_do(cls):
    X = np.array([[-1.0], [-0.8], [0.8], [1.0]])
    with pytest.warns(SolutionWarning, match=r"separable.*Set a penalty: a finite C"):
        model = cls(KERNEL, **options(C=np.inf)).fit(X, [0, 0, 1, 1])
    assert (model.predict(X) == [0, 0, 1, 1]).all()
    assert np.isfinite(model.coef_).all()


@BOTH
def test_too_few_steps_warn_what_to_do(cls):
    X, y = table(K=3)
    with pytest.warns(SolutionWarning, match=r"Not converged: .*Raise max_iter"):
        model = cls(KERNEL, **options(C=1e4, max_iter=1)).fit(X, y)
    assert model.n_iter_ == 1


# ---- the penalty that is chosen


@pytest.mark.parametrize("K", [2, 3])
def test_path_is_that_of_refits_without_each_fold(K):
    """scikit-learn's fits to the same features, each fold left out in turn."""
    X, y = table(120, K)
    model = bo.LogisticRegression(KERNEL, **options(C="auto", n_features=32)).fit(X, y)
    Z, folds = model.map_(X), fold_numbers(bo.Blocks.from_arrays(X), np.ones(120), model.seed_)
    lost = []
    for alpha in model.path_.alphas:
        theirs = Linear(C=1 / alpha, tol=1e-8, max_iter=5000)
        fits = [(theirs.fit(Z[folds != k], y[folds != k]).predict_proba(Z), k) for k in range(5)]
        lost.append(sum(-np.log(p[folds == k, y[folds == k]]).sum() for p, k in fits))
    ratios = model.path_.errors / model.path_.errors[0]
    np.testing.assert_allclose(ratios, np.divide(lost, lost[0]), rtol=5e-3)
    assert model.C_ == pytest.approx(1 / model.path_.alpha)
    assert model.path_.errors.min() < 1


@BOTH
def test_rows_of_a_rare_class_are_found(cls):
    """One row in a hundred, in a disc: with C=1 none is found."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (4000, 2))
    y = ((X - 1) ** 2).sum(axis=1) < 0.05
    new, rare = X[2000:], y[2000:]
    chosen, one = (
        cls(KERNEL, **options(tol=1e-4, C=C)).fit(X[:2000], y[:2000]) for C in ("auto", 1.0)
    )
    assert chosen.predict(new)[rare].mean() > 0.7
    assert (chosen.predict(new) != rare).mean() < 0.5 * rare.mean()
    assert not one.predict(new)[rare].any()


def test_the_penalty_chosen_is_next_to_the_best_on_new_rows():
    X, y = table(6000)
    train, new = slice(0, 1000), slice(1000, None)
    wide = options(C="auto", n_features=128, tol=1e-5)
    model = bo.LogisticRegression(KERNEL, **wide).fit(X[train], y[train])

    def lost(C):
        given = bo.LogisticRegression(KERNEL, **wide | dict(C=C)).fit(X[train], y[train])
        return log_loss(y[new], given.predict_proba(X[new]))

    grid = {C: lost(C) for C in 10.0 ** np.arange(-2, 5)}
    assert lost(model.C_) < 1.02 * min(grid.values())
    assert min(grid.values()) < 0.9 * min(grid[1.0], grid[1e4])


@BOTH
def test_lengthscale_and_penalty_are_chosen_alike_for_copies_and_weights(cls):
    X, y = table(80)
    counts = np.random.default_rng(0).integers(0, 4, 80)
    few = dict(method="orthogonal", n_features=32, random_state=0, tol=1e-10)
    weighted = cls(**few).fit(X, y, counts)
    copies = cls(**few).fit(np.repeat(X, counts, axis=0), np.repeat(y, counts))
    assert weighted.C_ == pytest.approx(copies.C_)
    found = weighted.kernel_.lengthscale, copies.kernel_.lengthscale
    np.testing.assert_allclose(*found, rtol=5e-4)  # of four digits, the last rounded either way


def test_sample_keeps_rows_of_rare_classes_and_weighs_all_as_all_rows():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20_000, 1))
    codes = (rng.uniform(size=20_000) < 0.01).astype(float)
    rows = class_sample(bo.Blocks.from_arrays(X, codes), seed=0, n_classes=2)
    rare = rows.codes == 1
    assert rare.sum() == codes.sum()
    assert len(rare) < 5000
    assert rows.w[rare].sum() == codes.sum()
    assert rows.w[~rare].sum() == pytest.approx((codes == 0).sum())
    assert 1 < rows.inflation < 1.2  # all slopes that matter are those of the rare class
    even = class_sample(bo.Blocks.from_arrays(X, 1.0 * (X[:, 0] > 0)), seed=0, n_classes=2)
    assert even.inflation == pytest.approx(20_000 / 4096, rel=0.05)


@BOTH
def test_too_few_rows_to_leave_some_out_take_c_of_one(cls):
    X, y = table(20)
    y = np.arange(20) == 3
    model = cls(KERNEL, **options(C="auto")).fit(X, y)
    assert model.path_ is None
    assert model.C_ == 1


@BOTH
def test_penalty_and_weights_are_refused_in_a_sentence(cls):
    X, y = table()
    with pytest.raises(InvalidInput, match=r'C must be "auto" or a positive number; got \'best\''):
        cls(KERNEL, **options(C="best")).fit(X, y)
