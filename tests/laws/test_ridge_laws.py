"""KernelRidge and KernelRidgeClassifier: penalties, leave-one-out, exact kernel, float32 sums."""

import warnings

import naive
import numpy as np
import pytest
from gallery import maker, sectors, table
from internals import record_calls
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

# ---- penalties, leave-one-out errors and named kernels

OPTIONS = {"method": "orthogonal", "n_features": 64, "alpha": 0.3, "random_state": 0}
KERNEL = Gaussian(lengthscale=0.8)
model = maker(bo.KernelRidge, KERNEL, **OPTIONS)


@pytest.mark.main_cases(2)
@pytest.mark.parametrize("seed", [0, 5, 6, "concrete"])
def test_leave_one_out_errors_of_noise_explain_nothing(seed):
    """Correlations have a deviation of 0.1, so an R² of 0.3 has chance 1e-6."""
    rng = np.random.default_rng(0 if seed == "concrete" else seed)
    X, y = rng.standard_normal((100, 8)), rng.standard_normal(100)
    X = load_concrete().X[rng.permutation(1000)[:100]] if seed == "concrete" else X
    fit = bo.KernelRidge(random_state=0).fit(X, y)
    Z, path = fit.map_(X), fit.solution_.path
    loo = path.loo[np.abs(path.alphas - fit.alpha_).argmin()]
    refits = naive.left_out_errors(Z, y[:, None], np.ones(100), np.array([fit.alpha_]), range(100))
    assert_close(loo, (refits**2).mean(), factor=1e8)
    assert 1 - loo / y.var() < 0.3


@pytest.mark.parametrize("kind", ["orthogonal", "exact"])
def test_leave_one_out_errors_of_a_sample_agree_with_those_of_all_rows(kind):
    """For a heavy tail: the mean of 8192 sampled rows alone is 1.46 times that of all 40,000."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (40_000 if kind == "orthogonal" else 9000, 1))
    y = np.sin(2 * X[:, 0]) + rng.standard_t(2.0, len(X))
    options = dict(method="exact", alpha="loo") if kind == "exact" else dict(alpha="loo")
    fit = model(n_features=32, **options).fit(X, y)
    Z, path, n = fit.map_(X), fit.solution_.path, len(X)
    assert path.loo_rows == 8192
    centred, target = Z - Z.mean(axis=0), y - y.mean()
    for alpha, loo, error in list(zip(path.alphas, path.loo, path.loo_error, strict=True))[20::8]:
        hat = np.linalg.solve(centred.T @ centred + alpha * np.eye(Z.shape[1]), centred.T)
        leverage = np.einsum("ij,ji->i", centred, hat) + 1 / n
        all_rows = np.mean(((target - centred @ (hat @ target)) / (1 - leverage)) ** 2)
        assert abs(loo / all_rows - 1) < 1e-3
        assert 0.02 < error / loo < 0.5


@pytest.mark.parametrize("truth", [0.25, 1.0, 4.0])
def test_a_named_kernel_gets_the_lengthscale_of_the_data(truth):
    """Within a factor of two for draws of Gaussian processes; the median distance is 2.2."""
    rng = np.random.default_rng(3)
    X = rng.uniform(-2, 2, (700, 2))
    W = rng.normal(size=(2, 400)) / truth
    f = np.sqrt(2 / 400) * np.cos(X @ W + rng.uniform(0, 7, 400)) @ rng.normal(size=400)
    y = f + 0.05 * rng.normal(size=700)
    fitted = bo.KernelRidge("gaussian", method="nystrom", n_features=200, random_state=0).fit(X, y)
    assert truth / 2 <= np.mean(fitted.kernel_.lengthscale) <= 2 * truth
    assert [c.kernel for c in fitted.search_.candidates] == [fitted.kernel_]


def test_a_named_kernel_scales_with_the_columns():
    X, y = table()
    a = bo.KernelRidge("gaussian", n_features=64, random_state=0).fit(X, y)
    b = bo.KernelRidge("gaussian", n_features=64, random_state=0).fit(X * 1000, y)
    ratio = np.asarray(b.kernel_.lengthscale) / np.asarray(a.kernel_.lengthscale)
    assert_close(ratio, 0 * ratio + 1000, factor=1e4)
    assert_close(a.predict(X), b.predict(X * 1000), factor=1e6)


@pytest.mark.main_cases(4)
@pytest.mark.parametrize("name", NAMED)
def test_named_kernels_fit_and_given_lengthscales_are_kept(name):
    X, y = table(noise=0.01)
    fitted = bo.KernelRidge(name, n_features=128, random_state=0).fit(X, y)
    assert fitted.score(X, y) > (0.9 if name != "linear" else -0.1)
    repeat = bo.KernelRidge(fitted.kernel_, n_features=128, random_state=0).fit(X, y)
    assert repeat.kernel_ == fitted.kernel_


# ---- penalties smaller than the rounding error of float32 sums


@pytest.fixture(scope="module")
def earth():
    """Return 20,000 rows to fit and 6,000 to test; sums of 512 features start in float32."""
    data = load_earth()
    order = np.random.default_rng(0).permutation(len(data.y))[:26_000]
    X, y = data.X[order].astype(np.float64), data.y[order] / data.y.std()
    return X[:20_000], y[:20_000], X[20_000:], y[20_000:]


def fit_and_error(earth, method, precision):
    X, y, new, truth = earth
    options = {"method": method, "n_features": 512, "precision": precision, "random_state": 0}
    fitted = bo.KernelRidge(Gaussian(0.5 if method == "orthogonal" else 0.3), **options).fit(X, y)
    return fitted, float(np.sqrt(np.mean((fitted.predict(new) - truth) ** 2)))


@pytest.mark.main_cases(1)
@pytest.mark.filterwarnings("ignore::bochner.errors.SolutionWarning")
@pytest.mark.parametrize("rows", ["float64", "float32"])
@pytest.mark.parametrize("method", ["orthogonal", "nystrom"])
def test_auto_precision_has_the_error_of_float64_within_one_per_cent(earth, method, rows):
    """The planted fault is float32 sums alone: their error differs by more than one per cent."""
    earth = [a.astype(rows) for a in earth]
    double, right = fit_and_error(earth, method, "float64")
    auto, error = fit_and_error(earth, method, "auto")
    single, wrong = fit_and_error(earth, method, "float32")
    assert abs(error / right - 1) < 0.01, f"{error / right:.4f}"
    assert wrong / right > 1.01, f"{wrong / right:.4f}"
    assert single.solution_.outcome is Outcome.FLOAT32_LIMITED
    assert single.moments_.precision == "float32"
    assert auto.moments_.precision == double.moments_.precision == "float64"
    solved = Outcome.REFINED if method == "orthogonal" else Outcome.SOLVED
    assert auto.solution_.outcome in (solved, Outcome.EDGE_LOW)
    assert auto.alpha_ < single.alpha_


@pytest.mark.main_cases(1)
def test_the_pass_is_repeated_in_float64_and_the_outcome_states_it(monkeypatch):
    calls = record_calls(monkeypatch, "bochner.selection.choices.Choices.add_up")
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (20_000, 2))
    y = np.cos(3 * X[:, 0]) + X[:, 1] ** 3 + 0.03 * rng.normal(size=20_000)
    options = dict(kernel=Matern(2.5, 1.0), n_features=512, method="orthogonal", random_state=0)
    auto = bo.KernelRidge(**options).fit(X, y)
    assert [precision for _, _, precision, *_ in calls] == ["float32", "float64"]
    assert auto.solution_.outcome is Outcome.REFINED
    assert "repeated in float64" in str(auto.solution_.outcome)
    double = bo.KernelRidge(**options, precision="float64").fit(X, y)
    assert double.solution_.outcome is Outcome.SOLVED
    new = rng.uniform(-1, 1, (1000, 2))
    assert np.abs(auto.predict(new) - double.predict(new)).max() < 1e-3
    with pytest.warns(SolutionWarning, match=r'Use precision="float64"'):
        bo.KernelRidge(**options, precision="float32").fit(X, y)


@pytest.mark.parametrize("method", ["orthogonal", "exact"])
def test_a_list_of_penalties_has_one_for_each_target(method):
    X, y = table(t=2)
    joint_fit = model(alpha=[0.1, 5.0], method=method).fit(X, y)
    for i, alpha in enumerate((0.1, 5.0)):
        single = model(alpha=alpha, method=method).fit(X, y[:, i])
        assert_close(joint_fit.predict(X)[:, i], single.predict(X), factor=1e9)
    assert "alpha=0.1, 5 by given" in repr(joint_fit.solution_)
    if method == "orthogonal":
        assert joint_fit.certificate_.alpha == 0.1


KERNELS = [KERNEL, Matern(0.5, 1.0) + Linear() * 0.3, Gaussian(0.1) * 2.0, Laplace(2.0)]


@pytest.mark.parametrize("method", ["exact", "auto"])
@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_the_exact_kernel_equals_a_dense_solve(kernel, centred, method):
    """A bordered system with an intercept, otherwise scikit-learn; "auto" has enough features."""
    X, y = table(400, t=2)
    w = np.random.default_rng(1).uniform(0.1, 2, 400)
    w[::5] = 0
    options = {"method": method, "n_features": 512, "alpha": 0.01, "fit_intercept": centred}
    fit = model(kernel, **options).fit(X, y, w)
    mask, new = w > 0, table(200, seed=1)[0]
    c, b = naive.dual(kernel(X[mask]), y[mask], 0.01, w[mask], centred)
    if not centred:
        peer = Exact(kernel="precomputed", alpha=0.01).fit(kernel(X[mask]), y[mask], w[mask])
        assert_close(c, peer.dual_coef_, factor=1e9)
    close = 1e-6 if method == "exact" else 1e-5
    assert np.abs(fit.predict(new) - kernel(new, X[mask]) @ c - b).max() < close * y.std()
    if method == "auto":
        assert "exact kernel" in fit.choice_.reason
        return
    assert_close(fit.dual_coef_, c, factor=1e11)
    assert_close(fit.intercept_, b, factor=1e8)
    assert len(fit.X_fit_) == mask.sum()
    assert fit.solution_.outcome is Outcome.SOLVED


@pytest.mark.parametrize("preconditioner", ["mercer", "orthogonal", "uniform"])
def test_any_features_precondition_and_too_few_iterations_warn(preconditioner):
    X, y = table(300)
    expected = model(method="exact", alpha=0.05).fit(X, y).predict(X)
    exact = model(method=bo.ExactKernel(preconditioner, tol=1e-7), alpha=0.05).fit(X, y)
    assert exact.solution_.outcome is Outcome.SOLVED
    assert np.abs(exact.predict(X) - expected).max() < 1e-6
    few, small = bo.ExactKernel(preconditioner, max_iter=3), bo.ExactKernel(preconditioner, 1e-14)
    for method, options in ((few, {"alpha": 1e-6, "n_features": 8}), (small, {"alpha": 0.05})):
        with pytest.warns(SolutionWarning, match=r"iteration stopped before.*Raise alpha, or n_f"):
            fitted = model(method=method, **options).fit(X, y)
        assert fitted.solution_.outcome is Outcome.NOT_CONVERGED
    assert np.abs(fitted.predict(X) - expected).max() < 1e-10  # products of both precisions


def test_columns_outside_the_range_of_float32_are_solved_in_float64():
    X, y = table(200)
    for scale in (1e200, 1e-200):
        fitted = model(Gaussian(scale), method="exact", alpha=0.1).fit(X * scale, y)
        expected = model(Gaussian(1.0), method="exact", alpha=0.1).fit(X, y)
        assert np.abs(fitted.predict(X * scale) - expected.predict(X)).max() < 1e-6


def test_penalties_of_the_iterated_exact_kernel_are_those_of_its_features():
    X, y = table(300, noise=0.3)
    iterated = bo.ExactKernel("nystrom")
    with warnings.catch_warnings(action="ignore", category=SolutionWarning):
        exact = model(Matern(1.5, 2.0), method=iterated, alpha="loo").fit(X, y)
        features = model(Matern(1.5, 2.0), method="nystrom", alpha="loo").fit(X, y)
    assert_close(exact.alpha_ / features.alpha_, 1.0, factor=1e6)
    assert_close(exact.solution_.path.loo, features.solution_.path.loo, factor=1e6)


# ---- classifiers: ridge regression of ±1

classifier = maker(bo.KernelRidgeClassifier, Gaussian(lengthscale=1.0), **OPTIONS)


def test_balanced_weights_choose_the_penalty_of_equal_given_weights():
    X, y = sectors()
    factors = dict(zip(y, balanced(y, np.ones(len(y))), strict=True))
    options, named = (
        classifier(alpha="loo", class_weight=weight).fit(X, y) for weight in (factors, "balanced")
    )
    assert named.alpha_ == pytest.approx(options.alpha_, rel=1e-6)
    assert named.partial_fit(X, y).alpha_ > 0  # with its own factors, in the same unit


@pytest.mark.parametrize("weight", [None, "balanced", {0: 3.0}], ids=str)
@pytest.mark.parametrize("K", [2, 3, 4])
def test_the_classifier_equals_scikit_learns_on_the_features(K, weight):
    X, y = sectors(K=K)
    w = np.random.default_rng(1).uniform(0.2, 2, 300)
    fit = classifier(class_weight=weight).fit(X, y, w)
    peer = RidgeClassifier(0.3, class_weight=weight).fit(fit.map_(X), y, w)
    new = sectors(100, K, seed=1)[0]
    if weight == "balanced":  # bochner counts weights, scikit-learn rows
        peer = RidgeClassifier(0.3).fit(fit.map_(X), y, w * balanced(y, w))
    assert_close(fit.decision_function(new), peer.decision_function(fit.map_(new)), factor=1e6)
    assert (fit.predict(new) == peer.predict(fit.map_(new))).all()
    assert_close(fit.coef_, np.atleast_2d(peer.coef_), factor=1e6)
    assert_close(fit.intercept_, np.atleast_1d(peer.intercept_), factor=1e6)
    assert (fit.classes_ == peer.classes_).all()


def balanced(y, w):
    """Return the factor of each row that gives all classes the same weight."""
    sizes = {label: w[y == label].sum() for label in np.unique(y)}
    return np.array([w.sum() / (len(sizes) * sizes[label]) for label in y])


def noisy(n, seed, K):
    """Return rows, their labels, and the probabilities of the labels."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 2))
    scores = np.stack([2 * np.cos(X[:, 0] + k) + X[:, 1] * (k - 1) for k in range(K)], axis=1)
    p = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    return X, (rng.random(n)[:, None] > p.cumsum(axis=1)).sum(axis=1), p


@pytest.mark.main_cases(2)
@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("options", [{}, {"n_features": 128}], ids=["exact", "features"])
def test_probabilities_have_nearly_the_log_loss_of_the_true_ones(K, options):
    """At most 15 % of the excess log loss of constant probabilities."""
    X, y, _ = noisy(1500, 0, K)
    new, labels, truth = noisy(4000, 1, K)
    model = bo.KernelRidgeClassifier(Gaussian(1.5), random_state=0, **options).fit(X, y)
    p = model.predict_proba(new)
    loss, best = (-np.log(q[np.arange(4000), labels]).mean() for q in (p, truth))
    constant = -np.log((np.bincount(y) / len(y))[labels]).mean()
    assert loss - best < 0.15 * (constant - best)


def test_calibration_uses_leave_one_out_values():
    """Compared with one refit for each row."""
    X, y, _ = noisy(40, 2, 3)
    options = {"alpha": 0.3, "random_state": 0}
    model = bo.KernelRidgeClassifier(Gaussian(1.0), **options).fit(X, y)
    values = [
        bo.KernelRidgeClassifier(Gaussian(1.0), **options)
        .fit(np.delete(X, i, 0), np.delete(y, i))
        .decision_function(X[[i]])[0]
        for i in range(40)
    ]
    slow = calibrate(np.array(values), y.astype(float), np.ones(40))
    np.testing.assert_allclose(model.calibration_.slopes, slow.slopes, rtol=1e-4)


# ---- sums of kernel values that are whitened instead of the rows

N, D, KERNEL_OF_SUMS, PRECISIONS = 17_000, 512, Gaussian(0.7), ("auto", "float64")


@pytest.fixture(scope="module")
def noisy_rows():
    X = np.random.default_rng(0).normal(size=(N + 2000, 3))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.5 * np.random.default_rng(1).normal(size=len(X))
    return X[:N], y[:N], X[N:], y[N:]


def fit_of_sums(data, method="nystrom", kernel=KERNEL_OF_SUMS, **options):
    options = dict(n_features=D, random_state=0) | options
    return bo.KernelRidge(kernel, method=method, **options).fit(*data[:2])


def error(model, data):
    return np.sqrt(np.mean((model.predict(data[2]) - data[3]) ** 2))


@pytest.mark.main_cases(1)
@pytest.mark.parametrize("kernel", [KERNEL_OF_SUMS, "matern32"], ids=repr)
@pytest.mark.parametrize("method", ["nystrom", Nystrom(Uniform())], ids=repr)
def test_fits_of_whitened_sums_agree_with_those_of_whitened_rows(noisy_rows, method, kernel):
    data = [np.exp(a) if kernel == "matern32" and a.ndim == 2 else a for a in noisy_rows]
    quick, right = (fit_of_sums(data, method, kernel, precision=p) for p in PRECISIONS)
    assert [fit.map_.unwhitened()[1].jitter for fit in (quick, right)] == [COARSE, None]
    assert (quick.moments_.precision, right.moments_.precision) == ("float32", "float64")
    assert quick.solution_.outcome.is_good
    assert abs(error(quick, data) / error(right, data) - 1) < 5e-3


@pytest.mark.slow
def test_rows_are_whitened_if_noise_is_low(noisy_rows):
    X, _, new, _ = noisy_rows
    y, truth = (np.sin(2 * A[:, 0]) + A[:, 1] * A[:, 2] for A in (X, new))
    data = X, y, new, truth
    quick, right = (fit_of_sums(data, kernel=Gaussian(2.0), precision=p) for p in PRECISIONS)
    assert quick.map_.jitter is quick.choice_.map.jitter is None
    assert quick.moments_.precision == "float64"
    np.testing.assert_array_equal(quick.predict(new), right.predict(new))


@pytest.mark.slow
def test_fits_of_whitened_sums_are_saved_continued_and_independent_of_blocks(noisy_rows, tmp_path):
    X, y, new, _ = noisy_rows
    model = fit_of_sums(noisy_rows)
    bo.save(model, tmp_path / "model")
    loaded = bo.load(tmp_path / "model")
    assert loaded.map_.jitter == COARSE
    np.testing.assert_array_equal(loaded.predict(new), model.predict(new))
    streamed = bo.KernelRidge(KERNEL_OF_SUMS, method="nystrom", n_features=D, random_state=0)
    streamed.fit_blocks(Blocks.from_arrays(X, y, block_rows=777))
    np.testing.assert_allclose(streamed.predict(new), model.predict(new), atol=1e-6)
    loaded.partial_fit(X[:100], y[:100])
    assert loaded.moments_.rows == N + 100
