"""KernelRidge and KernelRidgeClassifier: penalties, leave-one-out errors, the exact kernel, and float32 sums."""

import warnings

import naive
import numpy as np
import pytest
from gallery import maker, sectors, table
from inside import record_calls
from sklearn.kernel_ridge import KernelRidge as Exact
from sklearn.linear_model import RidgeClassifier
from tolerance import assert_close

import bochner as bo
from bochner import Blocks
from bochner.datasets import load_concrete, load_earth
from bochner.errors import SolutionWarning
from bochner.features import Nystrom
from bochner.features.nystrom import COARSE
from bochner.kernels import Gaussian, Laplace, Linear, Matern
from bochner.landmarks import Uniform
from bochner.models._labels import calibrate
from bochner.selection.spec import NAMED
from bochner.solvers.ridge.solution import Outcome

# ---- ridge: KernelRidge: the same model from blocks, pieces, weights, tables and libraries; and the trap

OPTIONS = {"method": "orthogonal", "n_features": 64, "alpha": 0.3, "random_state": 0}
KERNEL = Gaussian(lengthscale=0.8)
model = maker(bo.KernelRidge, KERNEL, **OPTIONS)


@pytest.mark.main_cases(2)
@pytest.mark.parametrize("seed", [0, 5, 6, "concrete"])
def test_of_noise_leave_one_out_states_that_nothing_is_explained(seed):
    """Correlations without the row have a deviation of 0.1: an R² of 0.3 has chance 1e-6."""
    rng = np.random.default_rng(0 if seed == "concrete" else seed)
    X, y = rng.standard_normal((100, 8)), rng.standard_normal(100)
    X = load_concrete().X[rng.permutation(1000)[:100]] if seed == "concrete" else X
    ours = bo.KernelRidge(random_state=0).fit(X, y)
    Z, path = ours.map_(X), ours.solution_.path
    stated = path.loo[np.abs(path.alphas - ours.alpha_).argmin()]
    refits = naive.left_out_errors(Z, y[:, None], np.ones(100), np.array([ours.alpha_]), range(100))
    assert_close(stated, (refits**2).mean(), factor=1e8)
    assert 1 - stated / y.var() < 0.3


@pytest.mark.parametrize("kind", ["orthogonal", "exact"])
def test_of_a_sample_leave_one_out_errors_are_those_of_all_rows(kind):
    """A heavy tail: the mean of the 8192 rows kept of 40,000 is 1.46 times that of all."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (40_000 if kind == "orthogonal" else 9000, 1))
    y = np.sin(2 * X[:, 0]) + rng.standard_t(2.0, len(X))
    options = dict(method="exact", alpha="loo") if kind == "exact" else dict(alpha="loo")
    ours = model(n_features=32, **options).fit(X, y)
    Z, path, n = ours.map_(X), ours.solution_.path, len(X)
    assert path.loo_rows == 8192
    centred, target = Z - Z.mean(axis=0), y - y.mean()
    for alpha, loo, error in list(zip(path.alphas, path.loo, path.loo_error, strict=True))[20::8]:
        hat = np.linalg.solve(centred.T @ centred + alpha * np.eye(Z.shape[1]), centred.T)
        leverage = np.einsum("ij,ji->i", centred, hat) + 1 / n
        all_rows = np.mean(((target - centred @ (hat @ target)) / (1 - leverage)) ** 2)
        assert abs(loo / all_rows - 1) < 1e-3
        assert 0.02 < error / loo < 0.5


@pytest.mark.parametrize("truth", [0.25, 1.0, 4.0])
def test_a_named_kernel_finds_the_lengthscale_of_the_data(truth):
    """A sample of a Gaussian process; chosen within a factor of two, from a median of 2.2."""
    rng = np.random.default_rng(3)
    X = rng.uniform(-2, 2, (700, 2))
    W = rng.normal(size=(2, 400)) / truth
    f = np.sqrt(2 / 400) * np.cos(X @ W + rng.uniform(0, 7, 400)) @ rng.normal(size=400)
    y = f + 0.05 * rng.normal(size=700)
    fitted = bo.KernelRidge("gaussian", method="nystrom", n_features=200, random_state=0).fit(X, y)
    assert truth / 2 <= np.mean(fitted.kernel_.lengthscale) <= 2 * truth
    assert [c.kernel for c in fitted.search_.compared] == [fitted.kernel_]


def test_a_named_kernel_scales_with_the_columns():
    X, y = table()
    a = bo.KernelRidge("gaussian", n_features=64, random_state=0).fit(X, y)
    b = bo.KernelRidge("gaussian", n_features=64, random_state=0).fit(X * 1000, y)
    ratio = np.asarray(b.kernel_.lengthscale) / np.asarray(a.kernel_.lengthscale)
    assert_close(ratio, 0 * ratio + 1000, factor=1e4)
    assert_close(a.predict(X), b.predict(X * 1000), factor=1e6)


@pytest.mark.main_cases(4)
@pytest.mark.parametrize("name", NAMED)
def test_every_named_kernel_fits_and_a_lengthscale_that_was_given_stays(name):
    X, y = table(noise=0.01)
    fitted = bo.KernelRidge(name, n_features=128, random_state=0).fit(X, y)
    assert fitted.score(X, y) > (0.9 if name != "linear" else -0.1)
    again = bo.KernelRidge(fitted.kernel_, n_features=128, random_state=0).fit(X, y)
    assert again.kernel_ == fitted.kernel_


# ---- the trap: penalties below what float32 products carry


@pytest.fixture(scope="module")
def earth():
    """20,000 rows to fit and 6,000 to test: with D = 512 more products than a fit takes in float64."""
    data = load_earth()
    order = np.random.default_rng(0).permutation(len(data.y))[:26_000]
    X, y = data.X[order].astype(np.float64), data.y[order] / data.y.std()
    return X[:20_000], y[:20_000], X[20_000:], y[20_000:]


def trapped(earth, method, precision):
    X, y, new, truth = earth
    options = {"method": method, "n_features": 512, "precision": precision, "random_state": 0}
    fitted = bo.KernelRidge(Gaussian(0.5 if method == "orthogonal" else 0.3), **options).fit(X, y)
    return fitted, float(np.sqrt(np.mean((fitted.predict(new) - truth) ** 2)))


@pytest.mark.main_cases(1)
@pytest.mark.filterwarnings("ignore::bochner.errors.SolutionWarning")
@pytest.mark.parametrize("rows", ["float64", "float32"])
@pytest.mark.parametrize("method", ["orthogonal", "nystrom"])
def test_the_answer_is_within_one_per_cent_of_float64(earth, method, rows):
    """And the planted fault beside it: float32 products alone are further off than that."""
    earth = [a.astype(rows) for a in earth]
    double, right = trapped(earth, method, "float64")
    auto, error = trapped(earth, method, "auto")
    single, wrong = trapped(earth, method, "float32")
    assert abs(error / right - 1) < 0.01, f"{error / right:.4f}"
    assert wrong / right > 1.01, f"{wrong / right:.4f}"
    assert single.solution_.outcome is Outcome.FLOAT32_LIMITED
    assert single.moments_.precision == "float32"
    assert auto.moments_.precision == double.moments_.precision == "float64"
    solved = Outcome.REFINED if method == "orthogonal" else Outcome.SOLVED
    assert auto.solution_.outcome in (solved, Outcome.EDGE_LOW)
    assert auto.alpha_ < single.alpha_


@pytest.mark.main_cases(1)
def test_the_sweep_is_done_again_in_float64_and_says_so(monkeypatch):
    sweeps = record_calls(monkeypatch, "bochner.selection.choices.Choices.add_up")
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (20_000, 2))
    y = np.cos(3 * X[:, 0]) + X[:, 1] ** 3 + 0.03 * rng.normal(size=20_000)
    options = dict(kernel=Matern(2.5, 1.0), n_features=512, method="orthogonal", random_state=0)
    auto = bo.KernelRidge(**options).fit(X, y)
    assert [precision for _, _, precision, *_ in sweeps] == ["float32", "float64"]
    assert auto.solution_.outcome is Outcome.REFINED
    assert "repeated in float64" in str(auto.solution_.outcome)
    double = bo.KernelRidge(**options, precision="float64").fit(X, y)
    assert double.solution_.outcome is Outcome.SOLVED
    new = rng.uniform(-1, 1, (1000, 2))
    assert np.abs(auto.predict(new) - double.predict(new)).max() < 1e-3
    with pytest.warns(SolutionWarning, match=r'Use precision="float64"'):
        bo.KernelRidge(**options, precision="float32").fit(X, y)


@pytest.mark.parametrize("method", ["orthogonal", "exact"])
def test_a_list_of_penalties_is_one_for_each_target(method):
    X, y = table(t=2)
    together = model(alpha=[0.1, 5.0], method=method).fit(X, y)
    for i, alpha in enumerate((0.1, 5.0)):
        alone = model(alpha=alpha, method=method).fit(X, y[:, i])
        assert_close(together.predict(X)[:, i], alone.predict(X), factor=1e9)
    assert "alpha=0.1, 5 by given" in repr(together.solution_)
    if method == "orthogonal":
        assert together.certificate_.alpha == 0.1


KERNELS = [KERNEL, Matern(0.5, 1.0) + Linear() * 0.3, Gaussian(0.1) * 2.0, Laplace(2.0)]


@pytest.mark.parametrize("method", ["exact", "auto"])
@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_the_exact_kernel_is_solved_as_one_dense_system_is(kernel, centred, method):
    """With an intercept by the bordered system, else as scikit-learn's; "auto" has room for all."""
    X, y = table(400, t=2)
    w = np.random.default_rng(1).uniform(0.1, 2, 400)
    w[::5] = 0
    options = {"method": method, "n_features": 512, "alpha": 0.01, "fit_intercept": centred}
    ours = model(kernel, **options).fit(X, y, w)
    kept, new = w > 0, table(200, seed=1)[0]
    c, b = naive.dual(kernel(X[kept]), y[kept], 0.01, w[kept], centred)
    if not centred:
        theirs = Exact(kernel="precomputed", alpha=0.01).fit(kernel(X[kept]), y[kept], w[kept])
        assert_close(c, theirs.dual_coef_, factor=1e9)
    close = 1e-6 if method == "exact" else 1e-5
    assert np.abs(ours.predict(new) - kernel(new, X[kept]) @ c - b).max() < close * y.std()
    if method == "auto":
        assert "exact kernel" in ours.choice_.reason
        return
    assert_close(ours.dual_coef_, c, factor=1e11)
    assert_close(ours.intercept_, b, factor=1e8)
    assert len(ours.X_fit_) == kept.sum()
    assert ours.solution_.outcome is Outcome.SOLVED


@pytest.mark.parametrize("preconditioner", ["mercer", "orthogonal", "uniform"])
def test_any_features_precondition_and_too_few_passes_are_said(preconditioner):
    X, y = table(300)
    method = bo.ExactKernel(preconditioner=preconditioner, tol=1e-7)
    found = model(method=method, alpha=0.05).fit(X, y)
    assert found.solution_.outcome is Outcome.SOLVED
    expected = model(method="exact", alpha=0.05).fit(X, y)
    assert np.abs(found.predict(X) - expected.predict(X)).max() < 1e-6
    few = bo.ExactKernel(preconditioner, max_iter=3)
    with pytest.warns(SolutionWarning, match=r"iteration stopped before.*Raise alpha, or n_feat"):
        fitted = model(method=few, alpha=1e-6, n_features=8).fit(X, y)
    assert fitted.solution_.outcome is Outcome.NOT_CONVERGED
    assert np.isfinite(fitted.predict(X)).all()


def test_columns_that_float32_cannot_hold_are_solved_in_float64():
    X, y = table(200)
    for scale in (1e200, 1e-200):
        fitted = model(Gaussian(scale), method="exact", alpha=0.1).fit(X * scale, y)
        expected = model(Gaussian(1.0), method="exact", alpha=0.1).fit(X, y)
        assert np.abs(fitted.predict(X * scale) - expected.predict(X)).max() < 1e-6


def test_penalties_chosen_for_the_exact_kernel_are_those_of_its_features():
    X, y = table(300, noise=0.3)
    iterated = bo.ExactKernel("nystrom")
    with warnings.catch_warnings(action="ignore", category=SolutionWarning):
        exact = model(Matern(1.5, 2.0), method=iterated, alpha="loo").fit(X, y)
        features = model(Matern(1.5, 2.0), method="nystrom", alpha="loo").fit(X, y)
    assert_close(exact.alpha_ / features.alpha_, 1.0, factor=1e6)
    assert_close(exact.solution_.path.loo, features.solution_.path.loo, factor=1e6)


# ---- ridge classifier: KernelRidgeClassifier: ridge regression of ±1, from rows, blocks, pieces and files

classifier = maker(bo.KernelRidgeClassifier, Gaussian(lengthscale=1.0), **OPTIONS)


def test_balanced_classes_have_the_penalty_of_their_factors():
    X, y = sectors()
    factors = dict(zip(y, balanced(y, np.ones(len(y))), strict=True))
    given, named = (
        classifier(alpha="loo", class_weight=weight).fit(X, y) for weight in (factors, "balanced")
    )
    assert named.alpha_ == pytest.approx(given.alpha_, rel=1e-6)
    assert named.partial_fit(X, y).alpha_ > 0  # pieces have their own factors, in one unit


@pytest.mark.parametrize("weight", [None, "balanced", {0: 3.0}], ids=str)
@pytest.mark.parametrize("K", [2, 3, 4])
def test_it_is_scikit_learns_ridge_classifier_on_the_features(K, weight):
    X, y = sectors(K=K)
    w = np.random.default_rng(1).uniform(0.2, 2, 300)
    ours = classifier(class_weight=weight).fit(X, y, w)
    theirs = RidgeClassifier(0.3, class_weight=weight).fit(ours.map_(X), y, w)
    new = sectors(100, K, seed=1)[0]
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


def noisy(n, seed, K):
    """Rows whose classes have known probabilities, and these."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 2))
    scores = np.stack([2 * np.cos(X[:, 0] + k) + X[:, 1] * (k - 1) for k in range(K)], axis=1)
    p = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    return X, (rng.random(n)[:, None] > p.cumsum(axis=1)).sum(axis=1), p


@pytest.mark.main_cases(2)
@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("asked", [{}, {"n_features": 128}], ids=["exact", "features"])
def test_probabilities_lose_about_what_the_law_of_the_labels_does(K, asked):
    """And less than those of the labels' shares."""
    X, y, _ = noisy(1500, 0, K)
    new, labels, law = noisy(4000, 1, K)
    model = bo.KernelRidgeClassifier(Gaussian(1.5), random_state=0, **asked).fit(X, y)
    p = model.predict_proba(new)
    lost, best = (-np.log(q[np.arange(4000), labels]).mean() for q in (p, law))
    none = -np.log((np.bincount(y) / len(y))[labels]).mean()
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


# ---- whitened sums: Sums of kernel values that are whitened in the place of rows: the same moments, the same fits

N, D, NOISY, WAYS = 17_000, 512, Gaussian(0.7), ("auto", "float64")


@pytest.fixture(scope="module")
def noisy_rows():
    X = np.random.default_rng(0).normal(size=(N + 2000, 3))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.5 * np.random.default_rng(1).normal(size=len(X))
    return X[:N], y[:N], X[N:], y[N:]


def fit_of_sums(data, method="nystrom", kernel=NOISY, **options):
    options = dict(n_features=D, random_state=0) | options
    return bo.KernelRidge(kernel, method=method, **options).fit(*data[:2])


def error(model, data):
    return np.sqrt(np.mean((model.predict(data[2]) - data[3]) ** 2))


@pytest.mark.main_cases(1)
@pytest.mark.parametrize("kernel", [NOISY, "matern32"], ids=repr)  # which transforms columns
@pytest.mark.parametrize("method", ["nystrom", Nystrom(Uniform())], ids=repr)
def test_a_fit_by_whitened_sums_is_that_of_whitened_rows(noisy_rows, method, kernel):
    data = [np.exp(a) if kernel == "matern32" and a.ndim == 2 else a for a in noisy_rows]
    quick, right = (fit_of_sums(data, method, kernel, precision=p) for p in WAYS)
    assert [fit.map_.unwhitened()[1].jitter for fit in (quick, right)] == [COARSE, None]
    assert (quick.moments_.precision, right.moments_.precision) == ("float32", "float64")
    assert quick.solution_.outcome.good
    assert abs(error(quick, data) / error(right, data) - 1) < 5e-3


@pytest.mark.slow
def test_where_noise_is_low_rows_are_whitened_after_all(noisy_rows):
    X, _, new, _ = noisy_rows
    y, truth = (np.sin(2 * A[:, 0]) + A[:, 1] * A[:, 2] for A in (X, new))
    data = X, y, new, truth
    quick, right = (fit_of_sums(data, kernel=Gaussian(2.0), precision=p) for p in WAYS)
    assert quick.map_.jitter is quick.choice_.map.jitter is None
    assert quick.moments_.precision == "float64"
    np.testing.assert_array_equal(quick.predict(new), right.predict(new))


@pytest.mark.slow
def test_such_a_model_is_saved_goes_on_and_does_not_depend_on_blocks(noisy_rows, tmp_path):
    X, y, new, _ = noisy_rows
    model = fit_of_sums(noisy_rows)
    bo.save(model, tmp_path / "model")
    back = bo.load(tmp_path / "model")
    assert back.map_.jitter == COARSE
    np.testing.assert_array_equal(back.predict(new), model.predict(new))
    cut = bo.KernelRidge(NOISY, method="nystrom", n_features=D, random_state=0)
    cut.fit_blocks(Blocks.from_arrays(X, y, block_rows=777))
    np.testing.assert_allclose(cut.predict(new), model.predict(new), atol=1e-6)
    back.partial_fit(X[:100], y[:100])
    assert back.moments_.rows == N + 100
