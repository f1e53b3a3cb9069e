"""KernelRidge: the same model from blocks, pieces, weights, tables and libraries; and the trap."""

import naive
import numpy as np
import pytest
import scipy.sparse
from gallery import table
from inside import seen_by
from sklearn.exceptions import NotFittedError
from sklearn.kernel_ridge import KernelRidge as Exact
from tolerance import assert_close

import bochner as bo
from bochner import Moments
from bochner.datasets import load_concrete, load_earth
from bochner.errors import IncompatibleModels, InvalidInput, SolutionWarning
from bochner.kernels import Gaussian, Laplace, Linear, Matern
from bochner.selection.spec import NAMED
from bochner.solvers.ridge.eigen import decompose
from bochner.solvers.ridge.path import path_of
from bochner.solvers.ridge.solution import Outcome

KERNEL = Gaussian(lengthscale=0.8)


def model(kernel=KERNEL, **changes):
    options = dict(method="orthogonal", n_features=64, alpha=0.3, random_state=0) | changes
    return bo.KernelRidge(kernel, **options)


def same(a, b, factor=1e5):
    """The same fit: predictions on other rows, penalty, and criteria along the path."""
    X = table(50, a.n_features_in_, seed=9)[0]
    assert_close(a.predict(X), b.predict(X), factor=factor)
    assert a.rows_seen_ == b.rows_seen_
    assert_close(a.alpha_ / b.alpha_, 1.0, factor=factor)
    return True


# ---- equal to kernel ridge regression


@pytest.mark.parametrize("alpha", [1e-2, 1.0])
@pytest.mark.parametrize("t", [None, 3])
def test_without_intercept_it_is_kernel_ridge_regression_with_the_kernel_of_the_features(t, alpha):
    X, y = table(t=t)
    ours = model(alpha=alpha, fit_intercept=False).fit(X, y)
    exact = Exact(alpha=alpha, kernel="precomputed").fit(ours.map_(X) @ ours.map_(X).T, y)
    new = table(40, seed=1)[0]
    assert_close(ours.predict(new), exact.predict(ours.map_(new) @ ours.map_(X).T), factor=1e5)
    assert np.all(ours.intercept_ == 0)


@pytest.mark.parametrize("method", ["iid", "nystrom"])
@pytest.mark.parametrize("t", [None, 3])
def test_coefficients_are_those_of_the_normal_equations(t, method):
    X, y = table(t=t)
    ours = model(Matern(1.5, 2.0), method=method).fit(X, y)
    coef, intercept = naive.ridge(ours.map_(X), y.reshape(300, -1), np.ones(300), 0.3)
    assert_close(ours.coef_, coef.T if t else coef[:, 0], factor=1e6)
    assert_close(ours.intercept_, intercept if t else intercept[0], factor=1e6)
    assert ours.coef_.shape == ((3, 64) if t else (64,))
    assert np.shape(ours.intercept_) == ((3,) if t else ())


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("kernel", [KERNEL, Laplace(2.0), Matern(0.5) + Linear()], ids=repr)
def test_auto_with_room_for_all_rows_is_the_exact_kernel(kernel, intercept):
    X, y = table(60)
    ours = model(kernel, method="auto", alpha=0.1, fit_intercept=intercept).fit(X, y)
    assert "exact kernel" in ours.choice_.reason
    new, K = table(40, seed=1)[0], kernel(X)
    if intercept:  # the unpenalised constant: one more equation, Σ dual = 0
        system = np.block([[K + 0.1 * np.eye(60), np.ones((60, 1))], [np.ones((1, 60)), 0]])
        dual = np.linalg.solve(system, np.append(y, 0.0))
        expected = kernel(new, X) @ dual[:-1] + dual[-1]
    else:
        expected = Exact(alpha=0.1, kernel="precomputed").fit(K, y).predict(kernel(new, X))
    assert np.abs(ours.predict(new) - expected).max() < 1e-6
    shifted = np.abs(ours.predict(new) - ours.predict(new).mean()).max()
    assert shifted > 0.5


def test_leave_one_out_errors_are_those_of_refits():
    X, y = table(40)
    ours = model(alpha="loo", n_features=16).fit(X, y)
    Z, path = ours.map_(X), ours.solution_.path
    assert path.loo_rows == 40
    for alpha, loo in list(zip(path.alphas, path.loo, strict=True))[8::6]:
        expected = naive.leave_one_out(Z, y[:, None], np.ones(40), alpha)[0]
        assert abs(loo / expected - 1) < 1e-6
    assert path.loo[path.alphas == ours.alpha_] <= path.loo.min() * (1 + 1e-4)


@pytest.mark.parametrize("seed", [0, 5, 6, "concrete"])
def test_of_noise_leave_one_out_states_that_nothing_is_explained(seed):
    """The kernel passes through 100 rows in eight columns; lengthscale and penalty are chosen.

    Predictions without the row are independent of it: their correlation has a deviation of 0.1,
    and an R² of 0.3 asks for one of 0.55. Fifty independent choices reach it with chance 1e-6.
    """
    rng = np.random.default_rng(0 if seed == "concrete" else seed)
    X, y = rng.standard_normal((100, 8)), rng.standard_normal(100)
    X = load_concrete().X[rng.permutation(1000)[:100]] if seed == "concrete" else X
    ours = bo.KernelRidge(random_state=0).fit(X, y)
    Z, path = ours.map_(X), ours.solution_.path
    stated = path.loo[path.best("loo")]
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


# ---- the same from any blocks and pieces


def test_models_that_do_not_add_up_are_refused():
    X, y = table()
    a = model().fit(X, y)
    for other in (model(random_state=1), model(n_features=32), model(Gaussian(0.9))):
        with pytest.raises(IncompatibleModels, match=r"must share one feature map; theirs differ"):
            bo.merge(a, other.fit(X, y))
    with pytest.raises(IncompatibleModels, match=r"same targets; got rows of y of shape \(\)"):
        bo.merge(a, model().fit(X, table(t=2)[1]))
    with pytest.raises(InvalidInput, match=r"at least one fitted model is required; got none"):
        bo.merge()
    with pytest.raises(InvalidInput, match=r"y must have the same targets in every call"):
        model().fit(X, y).partial_fit(X, table(t=2)[1])
    with pytest.raises(ValueError, match=r"X has 1 features, but KernelRidge is expecting 2"):
        model().fit(X, y).partial_fit(X[:, :1], y)


@pytest.mark.parametrize("kind", [bo.KernelRidge, bo.KernelRidgeClassifier])
def test_nothing_is_solved_again_where_there_are_no_moments(kind):
    with pytest.raises(NotFittedError, match="not fitted yet"):
        kind().solve_again()
    X, y = table()
    exact = kind(KERNEL, method="exact", n_features=16, alpha=0.1).fit(X, y > 5)
    with pytest.raises(InvalidInput, match=r"solve_again: an exact fit keeps no moments.*Call fit"):
        exact.solve_again()


# ---- tables, libraries, sparse rows


def test_sparse_rows_are_refused_by_kernels_of_coordinates():
    X, y = table()
    with pytest.raises(TypeError, match=r"[Ss]parse"):
        model("laplace").fit(scipy.sparse.csr_array(X), y)


# ---- what is chosen


def test_a_lengthscale_that_was_given_is_never_touched():
    X, y = table()
    kernel = Gaussian(lengthscale=17.0)
    fitted = model(kernel, alpha="loo", method="auto").fit(X, y)
    assert fitted.kernel_ == kernel == Gaussian(lengthscale=17.0)
    assert fitted.kernel is kernel
    assert fitted.search_.tried == ()


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
    errors = [error for _, error in fitted.search_.tried]
    scales = [scale for scale, _ in fitted.search_.tried]
    assert fitted.kernel_ == Gaussian(scales[int(np.argmin(errors))])


def test_a_named_kernel_scales_with_the_columns():
    X, y = table()
    a = bo.KernelRidge("gaussian", n_features=64, random_state=0).fit(X, y)
    b = bo.KernelRidge("gaussian", n_features=64, random_state=0).fit(X * 1000, y)
    ratio = np.asarray(b.kernel_.lengthscale) / np.asarray(a.kernel_.lengthscale)
    assert_close(ratio, 0 * ratio + 1000, factor=1e4)
    assert_close(a.predict(X), b.predict(X * 1000), factor=1e6)


@pytest.mark.parametrize("name", NAMED)
def test_every_named_kernel_fits(name):
    X, y = table(noise=0.01)
    fitted = bo.KernelRidge(name, n_features=128, random_state=0).fit(X, y)
    assert fitted.score(X, y) > (0.9 if name != "linear" else -0.1)


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
    fitted = bo.KernelRidge(
        Gaussian(0.5 if method == "orthogonal" else 0.3),
        method=method,
        n_features=512,
        precision=precision,
        random_state=0,
    ).fit(X, y)
    return fitted, float(np.sqrt(np.mean((fitted.predict(new) - truth) ** 2)))


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


def test_the_sweep_is_done_again_in_float64_and_says_so(monkeypatch):
    sweeps = seen_by(monkeypatch, "bochner.models.ridge.sums.add_up")
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (20_000, 2))
    y = np.cos(3 * X[:, 0]) + X[:, 1] ** 3 + 0.03 * rng.normal(size=20_000)
    options = dict(kernel=Matern(2.5, 1.0), n_features=512, method="orthogonal", random_state=0)
    auto = bo.KernelRidge(**options).fit(X, y)
    assert [precision for _, _, precision, *_ in sweeps] == ["float32", "float64"]
    assert auto.solution_.outcome is Outcome.REFINED
    assert "again in float64" in str(auto.solution_.outcome)
    double = bo.KernelRidge(**options, precision="float64").fit(X, y)
    assert double.solution_.outcome is Outcome.SOLVED
    new = rng.uniform(-1, 1, (1000, 2))
    assert np.abs(auto.predict(new) - double.predict(new)).max() < 1e-3
    with pytest.warns(SolutionWarning, match=r'Use precision="float64"'):
        bo.KernelRidge(**options, precision="float32").fit(X, y)


def test_planted_fault_float32_sums_and_a_path_below_their_noise(earth):
    """What the trap was: Grams summed in float32, and GCV down to 1e-9 of their norm."""
    X, y, new, truth = earth
    phi = bo.draw(Gaussian(0.5), "orthogonal", n_features=512, n_inputs=3, random_state=0)
    Z, Znew = (phi(A.astype(np.float32)) for A in (X, new))
    m = Moments.of(Z.astype(np.float64), y)
    errors = {}
    for kind, G in (("float64", m.gram), ("float32", gram_in_float32(Z))):
        fault = Moments(
            m.rows, m.weight, m.feature_mean, m.target_mean, G, m.cross, m.power, "float64"
        )
        eigen = decompose(fault)
        path = path_of(eigen, eigen.values[-1] * np.logspace(-9, 1, 41))
        coef = eigen.coefficients(path.alphas[path.best("gcv")])
        fitted = (Znew - m.feature_mean) @ coef + m.target_mean
        errors[kind] = np.sqrt(np.mean((fitted[:, 0] - truth) ** 2))
    assert errors["float32"] > 1.01 * errors["float64"], errors


def gram_in_float32(Z):
    mean = Z.mean(axis=0)
    return (Z.T @ Z - len(Z) * np.outer(mean, mean)).astype(np.float64)
