"""Lengthscales by the gradient of the evidence: where they end, and what they must not do."""

import numpy as np
import pytest
import scipy.sparse
from sklearn.gaussian_process import GaussianProcessRegressor as Exact
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from tolerance import assert_close

import bochner as bo
from bochner.errors import InvalidInput, UnsupportedKernel
from bochner.kernels import Cauchy, Gaussian, Laplace, Linear, Matern, RationalQuadratic
from bochner.selection.descent import Hyperparameters
from bochner.selection.process import SPREAD, OnProcess, ProcessRows

KERNELS = [Gaussian(1.0), Matern(1.5, 1.0), RationalQuadratic(1.0, 1.0), Laplace(1.0), Cauchy(1.0)]


def table(n=80, d=2, seed=0, noise=0.1):
    """A function of the first column, fast, and the second, slow; others do not matter."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, d))
    return X, np.sin(3 * X[:, 0]) + X[:, 1] + noise * rng.standard_normal(n)


def model(kernel, lengthscale="evidence", **changes):
    options = dict(method="nystrom", n_features=80, random_state=0) | changes
    return bo.GaussianProcessRegressor(kernel, lengthscale=lengthscale, **options)


def likelihood(fitted):
    return fitted.log_marginal_likelihood_value_


def rows_of(X, y, w=None, centred=True, **given):
    w = np.ones(len(y)) if w is None else w
    both = {"noise": None, "amplitude": None} | given
    return ProcessRows(X, y.reshape(len(y), -1), w, centred, **both)


# ---- where they end


@pytest.mark.parametrize("start", [0.3, 3.0])
def test_with_exact_features_they_are_those_of_scikit_learn(start):
    """Both descend by L-BFGS; ours stops where a step gains less than 3e-4 a row."""
    X, y = table()
    ours = model(Gaussian(start), fit_intercept=False).fit(X, y)
    kernel = ConstantKernel(1.0) * RBF([1.0, 1.0]) + WhiteKernel(0.1)
    exact = Exact(kernel, n_restarts_optimizer=3, random_state=0).fit(X, y)
    gap = exact.log_marginal_likelihood_value_ - likelihood(ours)
    assert -1e-3 < gap < 10 * 3e-4 * len(y)
    theirs = exact.kernel_.k1.k2.length_scale
    assert np.abs(np.log(ours.kernel_.lengthscale / theirs)).max() < 0.2


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
@pytest.mark.parametrize("given", [{}, {"noise": 0.02}, {"amplitude": 2.0}], ids=str)
@pytest.mark.parametrize("centred", [True, False])
def test_the_evidence_of_the_fit_is_not_less_than_that_of_the_start(kernel, given, centred):
    X, y = table(d=3)
    options = {"fit_intercept": centred} | given
    before, after = (model(kernel, how, **options).fit(X, y) for how in ("loo", "evidence"))
    assert before.kernel_ == kernel
    assert likelihood(after) > likelihood(before) + 1.0
    assert after.search_.path[-1].best <= after.search_.path[0].value


def test_a_name_starts_where_its_search_has_ended():
    X, y = table()
    found = model("gaussian", "loo").fit(X, y).kernel_
    by_name, by_value = model("gaussian").fit(X, y), model(found).fit(X, y)
    assert by_name.kernel_ == by_value.kernel_
    assert likelihood(by_name) >= likelihood(model(found, "loo").fit(X, y))
    assert by_name.kernel == "gaussian"


def test_the_value_of_the_search_is_the_evidence_of_the_fit():
    X, y = table()
    fitted = model(Matern(1.5, 0.7)).fit(X, y)
    best = min(fitted.search_.path, key=lambda step: step.value)
    away = OnProcess(best.kernel, rows_of(X, y), 2).centre
    prior = (away @ away) / (2 * SPREAD**2 * len(y))
    gap = likelihood(fitted) / len(y) + best.value - prior
    assert -1e-6 <= gap < 1e-2  # the fit's own λ is the best one; a last step gains 3e-4


# ---- by default


#: Features that have room for the exact process, and too few, for which longer ones are better.
ROOM = {"room": dict(n_features=80), "too few": dict(method="orthogonal", n_features=24)}


def waves():
    """Many periods along both columns, and a slope."""
    rng = np.random.default_rng(2)
    X = rng.uniform(-2, 2, (150, 2))
    y = np.sin(5 * X[:, 0]) * np.cos(5 * X[:, 1]) + X[:, 0] + 0.1 * rng.standard_normal(150)
    return X, y


@pytest.mark.parametrize("room", ROOM)
@pytest.mark.parametrize("name", ["gaussian", "matern32"])
def test_by_default_a_name_means_the_lengthscales_that_are_likelier_without_each_row(name, room):
    X, y = waves()
    ways = ("loo", "evidence", "auto")
    loo, evidence, auto = (model(name, how, **ROOM[room]).fit(X, y) for how in ways)
    best = max((loo, evidence), key=lambda fitted: fitted.loo_log_density_)
    assert best is (evidence if room == "room" else loo)
    assert auto.kernel_ == best.kernel_
    assert auto.loo_log_density_ == best.loo_log_density_
    assert type(auto.search_) is type(best.search_)
    assert bo.GaussianProcessRegressor().lengthscale == "auto"


def test_a_start_where_nearly_all_is_noise_is_left():
    """A name's search ends at a plane here: at sixteen times the median distance of rows."""
    X, y = table(150, d=4)
    plane, found = (model("gaussian", how).fit(X, y) for how in ("loo", "evidence"))
    assert plane.kernel_.lengthscale > 20
    assert found.noise_variance_ < 0.1 * plane.noise_variance_


def test_few_columns_among_many_are_found_where_one_factor_finds_noise():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((500, 32))
    y = np.sin(3 * X[:, 0]) + 0.3 * rng.standard_normal(500)
    found = model("matern32", "evidence").fit(X, y)
    assert np.argmin(found.kernel_.lengthscale) == 0
    assert found.noise_variance_ < 0.5 * np.var(y)


@pytest.mark.parametrize("kernel", [Gaussian(0.7), Matern(1.5, (1.0, 2.0)), "linear", "auto"])
def test_by_default_values_and_what_is_found_in_other_ways_are_as_by_leave_one_out(kernel):
    X, y = table()
    default, loo = (model(kernel, how).fit(X, y) for how in ("auto", "loo"))
    assert default.kernel_ == loo.kernel_
    if not isinstance(kernel, str):
        assert default.kernel_ == kernel


def test_by_default_a_learned_metric_is_as_by_leave_one_out():
    X, y = table()
    default, loo = (model("gaussian", how, metric="learned").fit(X, y) for how in ("auto", "loo"))
    assert default.kernel_ == loo.kernel_


# ---- its gradient


@pytest.mark.parametrize("given", [{}, {"noise": 0.02}, {"amplitude": 2.0}], ids=str)
@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
@pytest.mark.parametrize("width", [1, 2])
def test_the_gradient_in_log_lengthscales_is_that_of_differences(kernel, width, given):
    if width == 2 and isinstance(kernel, Laplace | Cauchy):
        kernel = Matern(0.7, 1.2)
    X, y = table()
    w = 1.0 + np.arange(80) % 2
    evidence = OnProcess(kernel, rows_of(X, y, w, **given), width)
    at = Hyperparameters(np.linspace(-0.2, 0.3, width), -6.0)
    found, step = evidence(at)[1], 1e-5
    for i, slope in enumerate(found):
        move = step * np.eye(width + 1)[i]
        up, down = (evidence(at.like(at.vector + s * move))[0] for s in (1, -1))
        assert abs(slope - (up - down) / (2 * step)) < 1e-6 * np.abs(found).max()


# ---- how many, and of what


def test_columns_that_do_not_matter_lose_their_say():
    X, y = table(150, d=4)
    scales = np.array(model(Gaussian(1.0)).fit(X, y).kernel_.lengthscale)
    assert scales[0] < scales[1]
    assert scales[2:].min() > 3 * scales[:2].max()


def test_columns_that_are_alike_keep_one_lengthscale():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (150, 3))
    y = np.cos(2 * np.linalg.norm(X, axis=1)) + 0.2 * rng.standard_normal(150)
    assert isinstance(model(Gaussian(1.0)).fit(X, y).kernel_.lengthscale, float)


def test_lengthscales_of_a_start_stay_in_proportion_where_one_factor_is_enough():
    X, y = table()
    X = X @ np.diag([1.0, 10.0])
    found = model(Laplace((1.0, 10.0))).fit(X, y).kernel_.lengthscale
    assert_close(found[1] / found[0], 10.0)


def test_sparse_rows_of_few_cells_have_the_lengthscales_of_dense_ones(monkeypatch):
    X, y = table()
    X[np.random.default_rng(1).random(X.shape) < 0.5] = 0.0
    S = scipy.sparse.csr_matrix(X)
    assert model(Gaussian(1.0)).fit(S, y).kernel_ == model(Gaussian(1.0)).fit(X, y).kernel_
    monkeypatch.setattr("bochner.selection.process.MOST_CELLS", 0)
    sparse = model(Gaussian(1.0)).fit(S, y)
    one = OnProcess(Gaussian(1.0), rows_of(X, y), 1)
    at = Hyperparameters(np.log([sparse.kernel_.lengthscale]), np.log(sparse.search_.share))
    assert abs(one(at)[0] - min(step.value for step in sparse.search_.path)) < 3e-6


def test_the_same_lengthscales_from_blocks_and_from_further_rows_none():
    X, y = table()
    whole = model(Gaussian(1.0)).fit(X, y)
    blocks = model(Gaussian(1.0)).fit_blocks(bo.Blocks.from_arrays(X, y, block_rows=7))
    assert blocks.kernel_ == whole.kernel_
    pieces = model(Gaussian(1.0)).partial_fit(X[:40], y[:40])
    first = pieces.kernel_
    assert pieces.partial_fit(X[40:], y[40:]).kernel_ == first


def test_weights_are_copies_of_rows():
    X, y = table(40)
    w = 1.0 + np.arange(40) % 3
    twice = np.repeat(np.arange(40), w.astype(int))
    weighted = OnProcess(Gaussian(1.0), rows_of(X, y, w), 2)
    copies = OnProcess(Gaussian(1.0), rows_of(X[twice], y[twice]), 2)
    at = Hyperparameters(np.array([-0.3, 0.4]), -6.0)
    for ours, theirs in zip(weighted(at), copies(at), strict=True):
        assert_close(ours, theirs, factor=1e6)


@pytest.mark.parametrize("n", [4, 30])
def test_a_constant_target_or_few_rows_leave_the_kernel_as_it_is(n):
    X, y = table(n)
    found = model(Gaussian(1.3)).fit(X, y if n < 8 else np.ones(n))
    assert found.kernel_ == Gaussian(1.3)
    assert found.search_.path == ()


def test_refusals():
    X, y = table(30)
    with pytest.raises(InvalidInput, match=r"lengthscale must be one of 'auto', 'loo', 'evi"):
        model(Gaussian(1.0), "gcv").fit(X, y)
    with pytest.raises(InvalidInput, match=r'lengthscale="evidence" and metric="learned" both'):
        model(Gaussian(1.0), metric="learned").fit(X, y)
    with pytest.raises(UnsupportedKernel, match=r"requires a stationary kernel with a lengthscale"):
        model(Linear()).fit(X, y)
