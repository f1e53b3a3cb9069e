"""SVC, LogisticRegression and labels, compared with scikit-learn and other minimisers."""

import warnings
from functools import partial
from itertools import combinations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from gallery import sectors as table
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression as LinearLogistic
from sklearn.svm import SVC as ExactSVC
from sklearn.svm import LinearSVC
from sklearn.utils.class_weight import compute_sample_weight

import bochner as bo
from bochner import SVC, Blocks, KernelRidgeClassifier, KernelSGDClassifier, LogisticRegression
from bochner.errors import DataWarning, InvalidInput, SolutionWarning
from bochner.features import Nystrom
from bochner.kernels import Gaussian
from bochner.landmarks import RPCholesky
from bochner.models._rows import fold_numbers
from bochner.models.convex import classification
from bochner.solvers.convex.problem import Convergence

# ---- SVC and LogisticRegression on features, compared with scikit-learn; laws of classes

KERNEL = Gaussian(lengthscale=0.7)
BOTH = pytest.mark.parametrize("cls", [bo.SVC, bo.LogisticRegression])


def options(**changes):
    return dict(method="orthogonal", n_features=64, random_state=0, tol=1e-8, C=1.0) | changes


@pytest.mark.parametrize("C", [0.3, 3.0])
def test_the_hinge_on_exact_features_equals_scikit_learns_svc(C):
    X, y = table(160, 2)
    new = table(60, 2, seed=1)[0]
    features = options(method=Nystrom(RPCholesky()), n_features=160, C=C, loss="hinge", tol=1e-7)
    model = bo.SVC(KERNEL, **features).fit(X, y)
    reference = ExactSVC(C=C, gamma=0.5 / 0.7**2, tol=1e-8).fit(X, y)
    expected = reference.decision_function(new)
    np.testing.assert_allclose(model.decision_function(new), expected, atol=1e-3)
    assert (model.predict(new) == reference.predict(new))[np.abs(expected) > 1e-3].all()
    assert model.solution_.outcome is Convergence.CONVERGED


@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("weight", [None, "balanced"])
def test_squared_hinge_and_logistic_equal_scikit_learn_on_the_same_features(K, weight):
    X, y = table(160, K)
    w = compute_sample_weight(weight, y)
    model = bo.SVC(KERNEL, **options(fit_intercept=False, class_weight=weight)).fit(X, y)
    Z = model.map_(X)
    other = LinearSVC(fit_intercept=False, tol=1e-10, max_iter=10**5, dual=False)
    np.testing.assert_allclose(model.coef_, other.fit(Z, y, w).coef_, atol=1e-4)
    model = bo.LogisticRegression(KERNEL, **options(C=2.0, class_weight=weight)).fit(X, y)
    other = LinearLogistic(C=2.0, class_weight=weight, tol=1e-10, max_iter=5000).fit(Z, y)
    np.testing.assert_allclose(model.predict_proba(X), other.predict_proba(Z), atol=1e-5)
    np.testing.assert_allclose(model.coef_, other.coef_, atol=1e-4)
    assert (model.predict(X) == other.predict(Z)).all()


def test_two_different_rows_per_class_suffice_for_probabilities():
    """With random folds, one of 25 fits would have a class without rows in two folds."""
    X = np.repeat([[1.0, 3.0], [3.0, 3.0], [2.0, 1.0], [4.0, 1.0]], 4, axis=0)
    y = np.arange(16) // 8
    for seed in range(60):
        model = bo.SVC(KERNEL, **options(probability=True, n_features=8, random_state=seed))
        assert model.fit(X, y).predict_proba(X).shape == (16, 2)


@pytest.mark.parametrize("cls", [bo.SVC, bo.LogisticRegression, bo.SVR])
def test_the_chosen_lengthscale_depends_on_c_times_the_weights(cls):
    X, y = table(300, 2)
    settings = {"kernel": "gaussian", "n_features": 64, "method": "orthogonal", "random_state": 0}
    small = cls(C=1.0, **settings).fit(X, y, np.full(300, 1e-4))
    equal = cls(C=1e-4, **settings).fit(X, y)
    np.testing.assert_allclose(small.kernel_.lengthscale, equal.kernel_.lengthscale)


@pytest.mark.main_cases(1)
@pytest.mark.parametrize("cls", [bo.SVC, bo.LogisticRegression, bo.SVR])
def test_the_chosen_width_depends_on_the_given_penalty(cls):
    X, y = table(400, 2)
    narrow, wide = (
        cls(KERNEL, method="nystrom", n_features="auto", C=C, random_state=0).fit(X, y)
        for C in (0.01, 10.0)
    )
    assert 2 * narrow.map_.n_features < wide.map_.n_features


@pytest.mark.main_cases(1)
@pytest.mark.parametrize("K", [2, 3])
def test_the_path_equals_refits_without_each_fold(K):
    """The refits are scikit-learn's, on the same features.

    Platt's targets: each class counts a tenth of a row of the other classes.
    """
    X, y = table(120, K)
    model = bo.LogisticRegression(KERNEL, **options(C="auto", n_features=32)).fit(X, y)
    Z, folds = model.map_(X), fold_numbers(bo.Blocks.from_arrays(X), np.ones(120), model.seed_)
    share, losses = 0.1 / (np.bincount(y) + 0.2)[y, None], []
    shares = np.where(y[:, None] == np.arange(K), 1 - share, share / (K - 1))
    for alpha in model.path_.alphas:
        other = LinearLogistic(C=1 / alpha, tol=1e-8, max_iter=5000)
        fits = [(other.fit(Z[folds != k], y[folds != k]).predict_proba(Z), k) for k in range(5)]
        losses.append(sum(-(shares * np.log(p))[folds == k].sum() for p, k in fits))
    ratios = model.path_.errors / model.path_.errors[0]
    np.testing.assert_allclose(ratios, np.divide(losses, losses[0]), rtol=5e-3)
    assert model.C_ == pytest.approx(1 / model.path_.alpha)
    assert model.path_.errors.min() < 1


@BOTH
def test_rows_of_a_rare_class_are_predicted(cls):
    """One row in a hundred, in a disc: with C = 1 none is predicted."""
    X = np.random.default_rng(0).uniform(-2, 2, (4000, 2))
    y = ((X - 1) ** 2).sum(axis=1) < 0.05
    new, rare = X[2000:], y[2000:]
    chosen, fixed = (
        cls(KERNEL, **options(tol=1e-4, C=C)).fit(X[:2000], y[:2000]) for C in ("auto", 1.0)
    )
    assert chosen.predict(new)[rare].mean() > 0.7
    assert (chosen.predict(new) != rare).mean() < 0.5 * rare.mean()
    assert not fixed.predict(new)[rare].any()


@BOTH
def test_copies_and_weights_give_the_same_lengthscale_and_penalty(cls):
    X, y = table(80, 2)
    counts = np.random.default_rng(0).integers(0, 4, 80)
    # A named kernel is chosen by held-out rows, unlike "auto"
    base = dict(kernel="gaussian", method="orthogonal", n_features=32, random_state=0, tol=1e-10)
    weighted = cls(**base).fit(X, y, counts)
    copies = cls(**base).fit(np.repeat(X, counts, axis=0), np.repeat(y, counts))
    assert weighted.C_ == pytest.approx(copies.C_)
    lengthscales = weighted.kernel_.lengthscale, copies.kernel_.lengthscale
    np.testing.assert_allclose(*lengthscales, rtol=5e-4)  # lengthscales are rounded to four digits


@BOTH
def test_c_is_one_for_too_few_rows_to_hold_out(cls):
    model = cls(KERNEL, **options(C="auto")).fit(table(20, 2)[0], np.arange(20) == 3)
    assert (model.path_, model.C_) == (None, 1)


# ---- classifiers with the exact kernel, compared with features


def codes_of_rows(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 2))
    codes = ((X**2).sum(axis=1) + 0.5 * rng.standard_normal(n) > 2).astype(int)
    codes += (X[:, 0] + 0.5 * rng.standard_normal(n) > 1).astype(int)
    return X, codes.astype(float)


@pytest.mark.parametrize("cls", LEARNERS := [bo.SVC, bo.LogisticRegression])
def test_equal_rows_and_separable_classes_give_finite_coefficients(cls):
    """The matrix of equal rows has rank one, and rounding hides a tiny penalty."""
    X, y = np.repeat(codes_of_rows(20)[0], 10, axis=0), np.tile([0, 1, 2, 1], 50)
    model = cls(Gaussian(3.0), C=1e14, max_iter=40)
    with warnings.catch_warnings(action="ignore", category=SolutionWarning):
        assert np.isfinite(model.fit(X, y).decision_function(X)).all()
    X = np.array([[-1.0], [-0.8], [0.8], [1.0]])
    with pytest.warns(SolutionWarning, match=r"separable.*Set a penalty: a finite C"):
        model = cls(KERNEL, **options(C=np.inf)).fit(X, [0, 0, 1, 1])
    assert (model.predict(X) == [0, 0, 1, 1]).all()
    assert np.isfinite(model.coef_).all()


# --- learners ------------------------------------------------------------------------------------


def labelled(n, seed=0):
    X, codes = codes_of_rows(n, seed)
    return X, np.array(["a", "b", "c"])[codes.astype(int)]


@pytest.mark.parametrize("cls", LEARNERS)
def test_fits_with_the_exact_kernel_equal_those_with_all_landmarks(cls):
    X, y = labelled(200)
    loss = {"C": 2.0, "tol": 1e-11, "random_state": 0}
    loss |= {"loss": "squared_hinge"} if cls is bo.SVC else {}  # as with features
    model = cls(Gaussian(0.8), **loss).fit(X, y)
    features = cls(
        Gaussian(0.8), method="nystrom", n_features=200, precision="float64", max_iter=300, **loss
    ).fit(X, y)
    T = codes_of_rows(50, 1)[0]
    # The Nyström map of all rows is the kernel up to a jitter of about 1e-12.
    first, second = (m.decision_function(T) for m in (model, features))
    if cls is bo.LogisticRegression:
        first, second = (f - f.mean(axis=1, keepdims=True) for f in (first, second))
    np.testing.assert_allclose(first, second, atol=1e-3)
    assert model.X_fit_.shape == (200, 2)
    assert model.dual_coef_.shape == (3, 200)
    by_rows = Gaussian(0.8)(T, model.X_fit_) @ model.dual_coef_.T + model.intercept_
    np.testing.assert_allclose(model.decision_function(T), by_rows, atol=1e-10)
    np.testing.assert_allclose(model.map_(T) @ model.coef_.T + model.intercept_, by_rows, atol=1e-6)
    assert model.choice_.reason.startswith("Exact kernel, with the full")


@pytest.mark.main_cases(2)
@pytest.mark.parametrize("cls", [*LEARNERS, partial(bo.SVC, multi_class="ovo")])
def test_the_penalty_has_the_least_held_out_loss(cls):
    """Neighbours on the path have a larger loss; errors are about those of the true classes."""
    X, y = labelled(400)
    model = cls("gaussian", random_state=0).fit(X, y)
    path = model.path_
    assert path.alpha == pytest.approx(1 / model.C_)
    assert 0 < path.best < len(path.alphas) - 1
    T, truth = labelled(2000, 1)
    # The true borders have an error rate of 21 %; three deviations of 2000 rows are 3 %.
    ideal = np.array(["a", "b", "c"])[((T**2).sum(1) > 2).astype(int) + (T[:, 0] > 1)]
    assert np.mean(model.predict(T) != truth) < np.mean(ideal != truth) + 0.05


def test_probabilities_of_an_svc_are_calibrated_on_held_out_rows():
    X, codes = codes_of_rows(600)
    model = bo.SVC(probability=True, random_state=0).fit(X, codes > 0)
    T, new = codes_of_rows(4000, 1)
    mean = model.predict_proba(T)[:, 1].mean()
    # The tolerance is five standard errors of the mean of 600 rows.
    assert abs(mean - np.mean(new > 0)) < 5 * 0.5 / 600**0.5


@pytest.fixture
def few_rows(monkeypatch):
    """Treat 300 rows as many."""
    monkeypatch.setattr(classification, "EXACT_ROWS", 200)
    monkeypatch.setattr(classification, "SUPPORT_SAMPLES", (60, 120))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_libsvm_fits_many_rows_with_few_support_vectors(n_classes, few_rows):
    X = np.random.default_rng(0).uniform(-2, 2, (450, 2))
    y = np.digitize((X**2).sum(axis=1), [2, 4][: n_classes - 1])
    w = np.where(np.arange(450) % 3, 1.0, 0.0)
    kernel = Gaussian((1.5, 0.8))
    model = bo.SVC(kernel, C=5, random_state=0, tol=1e-6).fit(X, y, w)
    reference = ExactSVC(gamma=0.5, C=5, tol=1e-6, decision_function_shape="ovo")
    scaled = X / np.array(kernel.lengthscale)
    reference.fit(scaled[w > 0], y[w > 0])
    assert model.X_fit_.shape == reference.support_vectors_.shape
    f = kernel(X, model.X_fit_) @ model.dual_coef_.T + model.intercept_
    expected = reference.decision_function(scaled).reshape(len(X), -1)
    assert np.abs(f - expected).max() < 1e-3  # both stop when slopes agree to 1e-5 and 1e-6
    assert (model.predict_proba(X).argmax(axis=1) == model.predict(X)).all()


def test_features_fit_many_rows_with_many_support_vectors(few_rows):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((300, 2)), rng.integers(2, size=300)
    model = bo.SVC(Gaussian(), C=10, random_state=0).fit(X, y)
    assert not hasattr(model, "dual_coef_")
    rare = np.arange(300) == 299  # in no sample
    with pytest.warns(DataWarning, match="fewer than 5"):
        model.fit(X, rare)
    assert not hasattr(model, "dual_coef_")


# ---- pairs of classes: LIBSVM's pairs and the decision values of classes

K = 4
PAIRS = list(combinations(range(K), 2))


def rows(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 2))
    codes = 2 * (X[:, 0] + 0.4 * rng.standard_normal(n) > 0)
    return X, codes + (X[:, 1] + 0.4 * rng.standard_normal(n) > 0.3)


def values_of(f):
    """Return the decision values of classes from those of pairs, by loops over the formula."""
    out = np.empty((len(f), K))
    for row, pairs in enumerate(f):
        margins = dict(zip(PAIRS, pairs, strict=True)) | {
            (l, k): -value for (k, l), value in zip(PAIRS, pairs, strict=True)
        }
        for k in range(K):
            total = sum(np.exp(-4 * margins[k, l]) for l in range(K) if l != k)
            out[row, k] = -np.log(total) / 4
    return out


@pytest.mark.parametrize("C", [0.3, 3.0])
@pytest.mark.parametrize("way", ["ovr", "ovo"])
@pytest.mark.parametrize("patch", [{}, {"BOUNDED_FROM": 0, "BOUNDED": K, "kernel_matrix": None}])
def test_machines_and_pairs_equal_those_of_scikit_learn(C, way, patch, monkeypatch):
    """With weights, with and without a stored matrix; the gap bounds the objective."""
    for name, value in patch.items():
        monkeypatch.setattr(classification, name, value)
    (X, y), T, w = rows(160), rows(50, 1)[0], np.random.default_rng(2).uniform(0.5, 2, 160)
    model = bo.SVC(Gaussian(0.7), C=C, loss="hinge", multi_class=way, random_state=0, tol=1e-8)
    f = Gaussian(0.7)(T, X) @ model.fit(X, y, w).dual_coef_.T + model.intercept_
    exact = ExactSVC(C=C, gamma=0.5 / 0.7**2, tol=1e-8, decision_function_shape="ovo")
    machines = [y] if way == "ovo" else [y == k for k in range(K)]
    expected = [exact.fit(X, codes, w).decision_function(T) for codes in machines]
    np.testing.assert_allclose(f, np.column_stack(expected), atol=1e-5)
    values = values_of(f) if way == "ovo" else f
    np.testing.assert_allclose(model.decision_function(T), values, atol=1e-9)
    minimum = model.solution_.objective
    assert model.solution_.algorithm == "libsvm"
    assert 0 <= model.solution_.gap < 1e-6 * minimum
    rough = clone(model).set_params(tol=1e-2).fit(X, y, w).solution_
    assert minimum * (1 - 1e-9) <= rough.objective <= minimum + rough.gap + 1e-9


@pytest.mark.parametrize("missing", [(2,), (0, 3)], ids=str)
def test_classes_without_weight_are_never_predicted(missing):
    X, y = rows(80)
    model = bo.SVC(Gaussian(1.0), C=3.0, loss="hinge", multi_class="ovo", random_state=0)
    keep = ~np.isin(y, missing)
    model.fit(X, y, keep.astype(float))
    assert not np.isin(model.predict(X), missing).any()
    np.testing.assert_array_equal(model.predict(X), clone(model).fit(X[keep], y[keep]).predict(X))


def test_each_pair_on_features_is_a_machine_of_its_rows():
    X, y = rows(200)
    settings = {"n_features": 32, "method": "orthogonal", "C": 2.0, "tol": 1e-9, "random_state": 0}
    model = bo.SVC(Gaussian(1.0), multi_class="ovo", **settings).fit(X, y)
    T = rows(40, 1)[0]
    f = model.map_(T) @ model.coef_.T + model.intercept_
    for place, (k, l) in enumerate(PAIRS):
        pair = np.isin(y, (k, l))
        machine = bo.SVC(Gaussian(1.0), **settings).fit(X[pair], y[pair] == k)
        np.testing.assert_allclose(f[:, place], machine.decision_function(T), atol=1e-5)
    np.testing.assert_allclose(model.decision_function(T), values_of(f), atol=1e-6)


def test_many_rows_per_class_use_pairs_with_the_exact_kernel():
    X, y = rows(400)
    settings = {"kernel": Gaussian(1.0), "C": 1.0, "probability": False, "random_state": 0}
    assert bo.SVC(**settings).fit(X, y).solution_.coef.shape == (400, len(PAIRS))
    assert bo.SVC(**settings).fit(X[:399], y[:399]).solution_.coef.shape == (399, K)
    baseline = bo.SVC(fit_intercept=False, **settings).fit(X, y).solution_
    assert (baseline.coef.shape, baseline.algorithm) == ((400, K), "cholesky")
    features = bo.SVC(n_features=16, **settings).fit(X, y)
    assert features.coef_.shape == (K, 16)
    with pytest.raises(AttributeError, match="dual_coef_: only a fit with the exact kernel"):
        _ = features.dual_coef_
    first, second = (bo.SVC(multi_class=way, **settings).fit(X, y > 1) for way in ("ovo", "ovr"))
    np.testing.assert_array_equal(first.decision_function(X), second.decision_function(X))


# ---- labels of any type, from arrays, tables and files

NAMES = {
    "texts": np.array(["b", "a", "long name"]),
    "integers": np.array([7, -1, 100]),
    "fractions as whole floats": np.array([2.0, 0.0, 5.0]),
    "objects": np.array(["b", "a", "c"], dtype=object),
}


@pytest.mark.parametrize("names", NAMES.values(), ids=NAMES)
def test_predictions_have_the_labels_of_columns_tables_and_files(names, tmp_path):
    X, labels = np.random.default_rng(0).standard_normal((30, 2)), names[np.arange(30) % 3]
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(label=labels)
    frame.iloc[::-1].to_csv(tmp_path / "rows.csv", index=False)
    blocks = Blocks.from_files(tmp_path / "rows.csv", target="label", block_rows=7)
    model = KernelRidgeClassifier(Gaussian(0.5), method="exact", alpha=1e-3)
    fits = [model.fit(X, column(labels.tolist())) for column in (pa.array, pl.Series, pd.Series)]
    fits = [clone(model).fit(X, labels), *fits, clone(model).fit(frame, "label")]
    fits += [clone(model).fit_blocks(b) for b in (Blocks.from_table(frame, "label"), blocks)]
    for fit in fits:
        assert fit.classes_.tolist() == sorted(set(labels.tolist()))
        new = frame[["a", "b"]] if hasattr(fit, "feature_names_in_") else X
        assert fit.predict(new).tolist() == labels.tolist()
    classifier = KernelRidgeClassifier(Gaussian(0.5), method="iid", n_features=20, alpha=1e-3)
    classifier.fit(X, labels).partial_fit(X[:2], labels[:2])  # these rows lack a class
    assert classifier.classes_.tolist() == fits[0].classes_.tolist()


# ---- quantities are not classes

CLASSIFIERS = pytest.mark.parametrize(
    "cls", [KernelRidgeClassifier, KernelSGDClassifier, LogisticRegression, SVC]
)

ROWS = np.random.default_rng(1).standard_normal((150, 2))


def ways(cls, y):
    """Yield functions that fit to arrays and to blocks."""
    model = cls(Gaussian(1.0), method="orthogonal", n_features=8, random_state=0)
    yield lambda: model.fit(ROWS, y)
    if y.dtype.kind != "U":
        yield lambda: model.fit_blocks(Blocks.from_arrays(ROWS, y))
    else:
        frame = pd.DataFrame({"a": ROWS[:, 0], "b": ROWS[:, 1], "y": y})
        yield lambda: model.fit_blocks(Blocks.from_table(frame, target="y"))


@CLASSIFIERS
def test_fractions_and_too_many_numbers_raise_as_classes(cls):
    y = ROWS[:, 0] + ROWS[:, 1]
    for fit in ways(cls, y):
        with pytest.raises(InvalidInput, match=r"not whole, such as .* quantity use (Kernel|SVR)"):
            fit()
    if hasattr(cls, "partial_fit"):
        with pytest.raises(InvalidInput, match=r"numbers that are not whole"):
            cls(Gaussian(1.0), n_features=8).partial_fit(ROWS, y, classes=[0, 1])
    rows, prices = np.zeros((15_000, 1)), np.arange(15_000) % 2000
    with pytest.raises(InvalidInput, match=r"got 2,000 different numbers in 15,000 rows"):
        cls(Gaussian(1.0), n_features=8).fit(rows, prices)


@CLASSIFIERS
@pytest.mark.parametrize("kind", ["whole", "text", "text with a hole"])
def test_different_numbers_in_all_rows_raise_as_classes(cls, kind):
    y = np.random.default_rng(0).permutation(150)
    if kind != "whole":
        y = (y / 7).astype("U8")
    if kind == "text with a hole":
        y[3] = "?"
    words = r"got 150 different numbers in 150 rows.* quantity use (Kernel|SVR)"
    if kind == "text with a hole":  # for a table, the cell is named
        words = r"150 rows, but for '\?'.* quantity use|149 of its cells are numbers .*first '\?'"
    for fit in ways(cls, y):
        with pytest.raises(InvalidInput, match=words):
            fit()


@pytest.mark.filterwarnings("ignore:The number of unique classes")
def test_many_classes_with_several_rows_each_are_accepted():
    y = np.arange(150) % 60
    for fit in ways(KernelRidgeClassifier, y):
        assert len(fit().classes_) == 60
    model = KernelRidgeClassifier(Gaussian(1.0), method="orthogonal", n_features=8, random_state=0)
    assert len(model.partial_fit(ROWS, np.arange(150), classes=np.arange(500)).classes_) == 500


def with_rare(sizes, seed=0):
    """Return distant clusters of these numbers of rows, and their codes."""
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(len(sizes)), sizes)
    return 6.0 * np.eye(len(sizes))[y] + 0.3 * rng.standard_normal((len(y), len(sizes))), y


@pytest.mark.parametrize("cls", [KernelRidgeClassifier, LogisticRegression, SVC])
def test_classes_of_few_rows_give_a_warning_and_are_fitted(cls):
    """A class of one row, far from all others, is predicted."""
    X, y = with_rare([200, 200, 1, 3])
    start = rf"{cls.__name__}: 2 classes have fewer than 5 of the 404 rows: 'c \(1\)', 'd \(3\)'\. "
    penalty = {"alpha": 1e-3} if cls is KernelRidgeClassifier else {"C": 100.0}
    model = cls(Gaussian(2.0), random_state=0, **penalty)
    with pytest.warns(DataWarning, match=start + "These rows are used"):
        model.fit(X, np.array(list("abcd"))[y])
    assert model.predict(X[[0, 200, 400]]).tolist() == ["a", "b", "c"]
    assert np.isfinite(model.predict_proba(X)).all()
    for sizes in ([96, 3], [200, 5]):  # no warning
        model.fit(*with_rare(sizes))
    with pytest.warns(DataWarning, match=r"1 class has fewer than 5 of the 204 rows: '1 \(4\)'\."):
        model.fit(*with_rare([200, 4]))
