"""KernelRidgeClassifier: ridge regression of ±1, from rows, blocks, pieces and files."""

import numpy as np
import pytest
from sklearn.linear_model import RidgeClassifier
from tolerance import assert_close

import bochner as bo
from bochner.errors import InvalidInput
from bochner.kernels import Gaussian
from bochner.models._calibration import calibrate

KERNEL = Gaussian(lengthscale=1.0)
NAMES = np.array(["ash", "elm", "oak", "yew"])


def table(n=300, K=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 2))
    angle = np.arctan2(X[:, 1], X[:, 0]) + 0.2 * rng.normal(size=n)
    return X, NAMES[np.floor((angle / (2 * np.pi) % 1) * K).astype(int)]


def model(kernel=KERNEL, **changes):
    options = dict(method="orthogonal", n_features=64, alpha=0.3, random_state=0) | changes
    return bo.KernelRidgeClassifier(kernel, **options)


@pytest.mark.parametrize("weight", [None, "balanced", {"ash": 3.0}], ids=str)
@pytest.mark.parametrize("K", [2, 3, 4])
def test_it_is_scikit_learns_ridge_classifier_on_the_features(K, weight):
    X, y = table(K=K)
    w = np.random.default_rng(1).uniform(0.2, 2, 300)
    ours = model(class_weight=weight).fit(X, y, w)
    theirs = RidgeClassifier(0.3, class_weight=weight).fit(ours.map_(X), y, w)
    new = table(100, K, seed=1)[0]
    if weight == "balanced":  # ours counts weights, theirs rows: the weights of classes differ
        theirs = RidgeClassifier(0.3).fit(ours.map_(X), y, w * balanced(y, w))
    assert_close(ours.decision_function(new), theirs.decision_function(ours.map_(new)), factor=1e6)
    assert (ours.predict(new) == theirs.predict(ours.map_(new))).all()
    assert_close(ours.coef_, np.atleast_2d(theirs.coef_), factor=1e6)
    assert_close(ours.intercept_, np.atleast_1d(theirs.intercept_), factor=1e6)
    assert (ours.classes_ == theirs.classes_).all()


def balanced(y, w):
    sizes = {label: w[y == label].sum() for label in np.unique(y)}
    return np.array([w.sum() / (len(sizes) * sizes[label]) for label in y])


@pytest.mark.parametrize("alpha", ["loo", "gcv", "evidence"])
def test_a_chosen_penalty_classifies_nearly_all(alpha):
    X, y = table(600)
    fitted = model("gaussian", alpha=alpha, alpha_per_target=True).fit(X, y)
    assert fitted.score(*table(400, seed=3)) > 0.85
    assert fitted.alpha_.shape == (3,)


@pytest.mark.parametrize("K", [2, 3])
def test_the_exact_kernel_classifies_as_its_regression_does(K):
    X, y = table(K=K)
    ours = model(method="exact").fit(X, y)
    targets = np.where(y[:, None] == NAMES[:K], 1.0, -1.0)
    values = bo.KernelRidge(KERNEL, method="exact", alpha=0.3, random_state=0)
    values = values.fit(X, targets).predict(X)
    expected = values[:, 1] if K == 2 else values
    assert np.abs(ours.decision_function(X) - expected).max() < 2e-6
    assert not hasattr(ours, "coef_")
    assert hasattr(model(), "partial_fit")
    assert not hasattr(model(method="exact"), "partial_fit")


# ---- labels


def test_what_cannot_be_classified_is_refused_in_a_sentence():
    X, y = table()
    with pytest.raises(InvalidInput, match=r"y must have at least 2 classes; got the 1 class"):
        model().fit(X, np.full(300, "ash"))
    with pytest.raises(InvalidInput, match=r"every label must be one of the classes.*yew"):
        model().partial_fit(X, y).partial_fit(X, np.full(300, "yew"))
    with pytest.raises(InvalidInput, match=r"Name all classes in the first call"):
        model().partial_fit(X[:9], y[:9], classes=["ash", "elm"])
    with pytest.raises(ValueError, match=r"Unknown label type: continuous"):
        model().fit(X, X[:, 0])
    with pytest.raises(InvalidInput, match=r'class_weight must be None, "balanced" or a dict'):
        model(class_weight="even").fit(X, y)


def test_the_certificate_is_that_of_the_regression():
    X, y = table()
    regression = bo.KernelRidge(
        KERNEL, method="orthogonal", n_features=64, alpha=0.3, random_state=0
    )
    ours, theirs = model().fit(X, y), regression.fit(X, X[:, 0])
    assert ours.certificate_.epsilon == pytest.approx(theirs.certificate_.epsilon)
    assert ours.certify(X[:100]).n_rows == 100


# ---- probabilities


def noisy(n, seed, K):
    """Rows whose classes have known probabilities, and these."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 2))
    scores = np.stack([2 * np.cos(X[:, 0] + k) + X[:, 1] * (k - 1) for k in range(K)], axis=1)
    p = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    return X, (rng.random(n)[:, None] > p.cumsum(axis=1)).sum(axis=1), p


@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("asked", [{}, {"n_features": 128}], ids=["exact", "features"])
def test_probabilities_lose_about_what_the_law_of_the_labels_does(K, asked):
    """And less than those of the labels' shares; the class predicted has the largest."""
    X, y, _ = noisy(1500, 0, K)
    new, labels, law = noisy(4000, 1, K)
    model = bo.KernelRidgeClassifier(Gaussian(1.5), random_state=0, **asked).fit(X, y)
    p = model.predict_proba(new)
    np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-12)
    np.testing.assert_array_equal(p.argmax(axis=1), model.predict(new))
    np.testing.assert_allclose(np.exp(model.predict_log_proba(new)), p, atol=1e-12)
    lost, best = (-np.log(q[np.arange(4000), labels]).mean() for q in (p, law))
    shares = np.bincount(y) / len(y)
    none = -np.log(shares[labels]).mean()
    assert lost - best < 0.15 * (none - best)


def test_calibration_is_made_of_values_of_rows_left_out_one_by_one():
    """By so many fits, each without one row; and of the last rows of a factor as of all."""
    X, y, _ = noisy(40, 2, 3)
    given = {"alpha": 0.3, "random_state": 0}
    model = bo.KernelRidgeClassifier(Gaussian(1.0), **given).fit(X, y)
    values = [
        bo.KernelRidgeClassifier(Gaussian(1.0), **given)
        .fit(np.delete(X, i, 0), np.delete(y, i))
        .decision_function(X[[i]])[0]
        for i in range(40)
    ]
    slow = calibrate(np.array(values), y.astype(float), np.ones(40))
    np.testing.assert_allclose(model.calibration_.slopes, slow.slopes, rtol=1e-4)


def test_slacks_of_many_rows_are_those_of_the_inverse(monkeypatch):
    """Of 2,300 rows 1,024 are looked at, in any order of rows, by a factor of float32."""
    monkeypatch.setattr("bochner.solvers.ridge.kernel_path.DENSE_ROWS", 1024)
    X, y, _ = noisy(2300, 3, 2)
    model = bo.KernelRidgeClassifier(Gaussian(1.0), alpha=2.0, random_state=0).fit(X, y)
    slack = model.solution_.slack[:, 0]
    seen = np.isfinite(slack)
    assert seen.sum() == 1024
    inverse = np.linalg.inv(Gaussian(1.0)(X) + 2.0 * np.eye(2300))
    p = inverse.sum(axis=1)
    expected = 2.0 * (np.diag(inverse) - p**2 / p.sum())
    # A factor of float32 has about n·2⁻²⁴ of relative rounding.
    np.testing.assert_allclose(slack[seen], expected[seen], rtol=1e-3)


def test_fits_without_values_left_out_say_so():
    X, y, _ = noisy(60, 0, 2)
    how = bo.ExactKernel(preconditioner="nystrom")
    model = bo.KernelRidgeClassifier(Gaussian(1.0), method=how, n_features=20).fit(X, y)
    with pytest.raises(InvalidInput, match="probabilities need leave-one-out values"):
        model.predict_proba(X)
