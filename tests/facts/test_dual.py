"""Ridge regression from the kernel matrix and smoothers on landmarks: refits and densities."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from scipy.linalg import LinAlgError
from sklearn.linear_model import Ridge
from tolerance import assert_close

import bochner as bo
from bochner._core import native
from bochner.errors import InvalidInput
from bochner.kernels import Exponential, Gaussian, Linear
from bochner.models.representations.exact import matrix_of
from bochner.solvers.ridge.dual import KernelRows, kernel_evidence, kernel_leave_one_out
from bochner.solvers.ridge.eigen import decompose, left_out_path
from bochner.solvers.ridge.kernel_path import downhill, least_along, solve_kernel
from bochner.solvers.ridge.problem import evidence, evidence_slope, gcv
from bochner.solvers.ridge.solution import Outcome, pool
from bochner.sums.moments import Moments

N = 40
WEIGHTS = {"none": np.ones(N), "copies": np.arange(N) % 3 + 1.0, "shares": 0.2 + np.ones(N) / 3}


def table(t=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (N, 2))
    return X, np.sin(2 * X[:, :1]) + 0.3 * rng.standard_normal((N, t)) + 2


def rows(weights="none", centred=True, t=2):
    X, y = table(t)
    return KernelRows(Gaussian(0.8)(X), y, WEIGHTS[weights], centred)


def features_of(problem):
    """Features whose products are the kernel matrix, and the eigenvalues of their moments."""
    Z = np.linalg.cholesky(problem.K + 1e-12 * np.eye(N))
    moments = Moments.of(Z, problem.y, problem.w)
    moments = moments if problem.centred else moments.about_zero()
    about = Z - moments.feature_mean, problem.y - moments.target_mean, problem.w
    return Z, decompose(moments, problem.centred), about


both = pytest.mark.parametrize("centred", [True, False])
weighted = pytest.mark.parametrize("weights", WEIGHTS)


@both
@weighted
def test_the_path_is_that_of_exact_features(weights, centred):
    """All criteria of two targets, at each penalty that was tried; deviations of equal rows."""
    problem = rows(weights, centred)
    found = solve_kernel(problem, "loo").path
    _, eigen, about = features_of(problem)
    along, loo = eigen.at(found.alphas), left_out_path(eigen, [about], found.alphas)
    values = eigen.values[:, None]
    assert len(found.alphas) > 1
    assert_close(found.loo, pool(loo.mean_squares, eigen.power / eigen.weight), factor=1e7)
    assert_close(found.gcv, pool(gcv(eigen, along), eigen.power), factor=1e7)
    assert_close(found.effective_dimension, (values / (values + found.alphas)).sum(0), factor=1e7)
    assert_close(found.evidence, evidence(eigen, along).sum(axis=1), factor=1e8)
    if weights == "none":
        assert_close(found.loo_error, loo.deviation, factor=1e7)
    assert found.loo_rows == loo.rows == N


@both
@weighted
def test_predictions_are_those_of_exact_features(weights, centred):
    problem = rows(weights, centred)
    Z, *_ = features_of(problem)
    model = Ridge(alpha=0.3, fit_intercept=centred, solver="cholesky")
    found, expected = problem.at(0.3), model.fit(Z, problem.y, problem.w).predict(Z)
    assert_close(problem.K @ found.coef + found.intercept, expected, factor=1e6)
    coef, intercept = problem.solve(0.3, 0)[:2]
    assert_close(coef, found.coef, factor=1e6)
    assert_close(intercept, found.intercept, factor=1e6)
    assert_close(found.residuals, problem.y - expected, factor=1e6)


@pytest.mark.parametrize("criterion", ["loo", "gcv", "evidence"])
@both
@weighted
def test_slopes_in_log_alpha_are_those_of_differences(weights, centred, criterion):
    problem, step = rows(weights, centred), 1e-5
    up, down = (problem.at(0.3 * np.exp(h)).criteria[criterion][0] for h in (step, -step))
    found = problem.at(0.3).criteria[criterion][1]
    assert np.allclose(found, (up - down) / (2 * step), rtol=1e-6, atol=1e-9)


@both
@weighted
@pytest.mark.parametrize("amplitude", [None, 0.7])
def test_the_evidence_is_that_of_exact_features(amplitude, weights, centred):
    problem = rows(weights, centred)
    _, eigen, _ = features_of(problem)
    for alpha in (0.01, 1.0):
        ours = kernel_evidence(problem, alpha, amplitude=amplitude)
        given = eigen, eigen.at([alpha]), None, amplitude
        assert_close(ours.value, -evidence(*given).sum() / problem.count, factor=1e6)
        assert_close(ours.by_log_alpha, -evidence_slope(*given).sum() / problem.count, factor=1e7)


LAWS = [{}, {"noise": 0.2}, {"amplitude": 0.7}, {"noise": 0.2, "amplitude": 0.7}]
SCORES = {"errors": kernel_leave_one_out}
SCORES |= {f"evidence {law}": partial(kernel_evidence, **law) for law in LAWS}


@both
@weighted
@pytest.mark.parametrize("score", SCORES)
def test_the_gradient_in_the_kernel_matrix_is_that_of_differences(score, weights, centred):
    problem, step = rows(weights, centred), 1e-5
    turn = Gaussian(0.3)(table()[0])
    value = lambda h, alpha: SCORES[score](replace(problem, K=problem.K + h * turn), alpha)
    found = value(0.0, 0.3)
    along = (value(step, 0.3).value - value(-step, 0.3).value) / (2 * step)
    assert abs((found.by_kernel * turn).sum() / along - 1) < 1e-6
    ends = (value(0.0, 0.3 * np.exp(h)).value for h in (step, -step))
    if score != f"evidence {LAWS[-1]}":  # whose penalty is given
        assert abs(found.by_log_alpha / (np.subtract(*ends) / (2 * step)) - 1) < 1e-5


@pytest.mark.parametrize("criterion", ["loo", "gcv", "evidence"])
@pytest.mark.parametrize("per_target", [False, True])
def test_the_penalty_that_is_found_is_the_least_of_many(criterion, per_target):
    problem = rows()
    found = solve_kernel(problem, criterion, per_target=per_target)
    assert found.outcome is Outcome.SOLVED
    grid = np.geomspace(1e-3, 10, 200)
    values = np.array([problem.at(a).criteria[criterion][0] for a in grid])
    power = problem.power if criterion != "evidence" else np.ones(2)
    for i, alpha in enumerate(np.broadcast_to(found.alpha, 2)):
        score = values[:, i] if per_target else values @ (1 / power)
        at = problem.at(alpha).criteria[criterion][0]
        here = at[i] if per_target else at @ (1 / power)
        assert here <= score.min() + 1e-4 * abs(score.min())
    assert len(found.path.alphas) <= 28


def test_many_rows_choose_by_some_and_are_solved_in_float32_with_refinements(monkeypatch):
    problem, w = rows(), WEIGHTS["shares"]
    whole = problem.solve(0.3, 0)[:2]
    monkeypatch.setattr("bochner.solvers.ridge.dual.SINGLE_FROM", 10)
    for found, expected in zip(problem.solve(0.3, 0)[:2], whole, strict=True):
        assert_close(found, expected, factor=1e6)
    smooth = KernelRows(Gaussian(8.0)(table()[0]), problem.y, problem.w)
    # below what refinements bring back
    assert smooth._by_single(1e-12, problem.y, 1e-12, 0.3) is None
    monkeypatch.setattr("bochner.solvers.ridge.kernel_path.PENALTY_ROWS", 30)
    some = solve_kernel(problem, "loo")
    assert some.path.loo_rows == 30
    assert_close(some.coef, problem.solve(some.alpha, 0).coef, factor=1e6)
    kernel, (X, y) = 0.5 * Gaussian(0.8) + 0.5 * Linear(), table()
    fit = lambda: bo.KernelRidge(kernel, alpha=0.3).fit(X + 9, y).predict(X + 10)
    expected = fit()
    monkeypatch.setattr("bochner.models.representations.exact.STORED_ROWS", 10)
    assert_close(fit(), expected, factor=1e6)
    stored = replace(problem, K=kernel(table()[0]), w=w)
    unstored = replace(stored, K=matrix_of(kernel, table()[0]))
    assert isinstance(unstored.K, np.ndarray) == (native.loops() is None)
    for found, expected in zip(unstored.solve(0.3, 9), stored.solve(0.3, 9), strict=True):
        assert_close(found, expected, factor=1e6)
    assert_close(solve_kernel(unstored, "loo").coef, solve_kernel(stored, "loo").coef, factor=1e6)
    each = solve_kernel(problem, "gcv", per_target=True)
    assert each.alpha.shape == (2,)
    assert each.criterion == "gcv"


def test_a_target_that_does_not_vary_costs_no_digit_of_others_and_warns_of_nothing(monkeypatch):
    """As that of a class that none of these rows has: float32 and refinements serve all others."""
    monkeypatch.setattr("bochner.solvers.ridge.dual.SINGLE_FROM", 10)
    problem = rows()
    constant = replace(problem, y=np.column_stack([problem.y, -np.ones(N)]))
    with np.errstate(divide="raise", invalid="raise"):
        coef, intercept = constant.solve(0.3, 0)[:2]
    assert_close(coef[:, :-1], problem.solve(0.3, 0).coef, factor=1e6)
    assert not coef[:, -1].any()
    assert intercept[-1] == -1.0


@pytest.mark.parametrize("noise", [0.1, 3.0])
def test_the_penalty_falls_where_denser_rows_tell_more_and_else_stays(monkeypatch, noise):
    """Of 400 rows, 40 see little of a fast wave and take it for noise; of noise 400 see no more."""
    monkeypatch.setattr("bochner.solvers.ridge.kernel_path.PENALTY_ROWS", 40)
    monkeypatch.setattr("bochner.solvers.ridge.kernel_path.SETTLED_ROWS", 40)
    monkeypatch.setattr("bochner.solvers.ridge.kernel_path.DENSE_ROWS", 400)
    monkeypatch.setattr("bochner.solvers.ridge.kernel_path.MOST_STEPS", 12)
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 20, (500, 1))
    y = np.abs(np.sin(3 * X)) + noise * rng.standard_normal((500, 1))
    problem = KernelRows(Exponential(2.0)(X), y, np.ones(500))
    few, dense = problem.first(40), problem.first(400)
    first, found = solve_kernel(few, "loo"), solve_kernel(problem, "loo")
    grid = found.alpha * 3.0 ** np.arange(-2, 3)
    errors = [np.mean(dense.at(alpha).left_out()[0][-40:] ** 2) for alpha in grid]  # the slow way
    if noise > 1:
        assert found.alpha == first.alpha
    else:
        assert found.alpha < 0.5 * first.alpha
        assert np.argmin(errors) in (1, 2, 3)
    assert found.alpha in found.path.alphas
    assert_close(found.coef, problem.solve(found.alpha, 0).coef, factor=1e6)


def classes():
    """Signs of a noisy wave, and what values without each row lose."""
    noisy = rows(t=1)

    def lost(f, y, w):
        return float(np.average(np.log1p(np.exp(-8 * y * f))[:, 0], weights=w))

    return replace(noisy, y=np.sign(noisy.y - 2)), lost


def lost_slowly(problem, last, lost, alpha):
    f = problem.y - problem.at(alpha).left_out()[0]
    return lost(f[-last:], problem.y[-last:], problem.w[-last:])


@pytest.mark.parametrize("most", [1024, 20])
def test_a_loss_of_rows_left_out_settles_the_penalty(monkeypatch, most):
    """The slow way: what rows lose without themselves at each of many penalties."""
    for name, value in (("PENALTY_ROWS", most), ("DENSE_FOR_LOSS", N), ("LOSS_ROWS", 25)):
        monkeypatch.setattr(f"bochner.solvers.ridge.kernel_path.{name}", value)
    signs, lost = classes()
    found, slow = solve_kernel(signs, "loo", loss=lost), partial(lost_slowly, signs, 25, lost)
    assert slow(found.alpha) <= 1.01 * min(map(slow, found.alpha * 3.0 ** np.arange(-2, 3)))
    assert slow(found.alpha) < 0.99 * slow(solve_kernel(signs, "loo").alpha)
    assert np.isfinite(found.slack).all()


def test_all_rows_may_ask_for_a_smaller_penalty(monkeypatch):
    """Where more rows tell more: each penalty a quarter of the last, while they lose less."""
    for name, value in (("PENALTY_ROWS", 10), ("DENSE_FOR_LOSS", 12), ("LOSS_ROWS", 12)):
        monkeypatch.setattr(f"bochner.solvers.ridge.kernel_path.{name}", value)
    signs, lost = classes()
    found = solve_kernel(signs, "loo", loss=lost)
    slow = partial(lost_slowly, signs, 12, lost)
    assert slow(found.alpha) < 0.998 * slow(4 * found.alpha)
    assert slow(found.alpha / 4) > 0.998 * slow(found.alpha)
    assert_close(found.coef, signs.solve(found.alpha, 0).coef, factor=1e6)
    assert np.isfinite(found.slack[:, 0]).tolist() == [False] * 28 + [True] * 12


def test_edges_are_outcomes():
    X, _ = table()
    noise = np.random.default_rng(3).standard_normal((N, 1))
    assert solve_kernel(KernelRows(Gaussian(50.0)(X), noise, np.ones(N)), "loo").alpha > 1
    assert solve_kernel(KernelRows(Gaussian(2.0)(X), X[:, :1] ** 2, np.ones(N)), "loo").alpha < 1e-6
    constant = KernelRows(Gaussian(2.0)(X), np.ones((N, 1)), np.ones(N))
    assert solve_kernel(constant, "loo").outcome is Outcome.CONSTANT_TARGET
    flat = KernelRows(np.ones((N, N)), X[:, :1], np.ones(N))
    assert solve_kernel(flat, 1e-30).outcome is Outcome.SINGULAR
    with pytest.raises(InvalidInput, match=r"one for each of the 1 targets; got 2"):
        solve_kernel(constant, (1.0, 2.0))
    with pytest.raises(LinAlgError):
        KernelRows(-np.eye(N), noise, np.ones(N)).at(0.5)


@pytest.mark.parametrize("start", [-5.0, 0.0, 3.0, 9.0])
def test_the_walk_finds_the_least_and_stays_in_its_bounds(start):
    assert abs(least_along(lambda x: ((x - 2) ** 2, 2 * (x - 2)), start, -10, 10) - 2) < 0.05
    assert least_along(lambda x: (x, 1.0), start, -10, 10) == -10
    hidden = lambda x: (np.inf, -np.inf) if x < 1 else ((x - 2) ** 2, 2 * (x - 2))
    assert abs(least_along(hidden, start, -10, 10) - 2) < 0.05
    tried = []
    cubic = lambda x: tried.append(x) or (x**3 - 3 * x, 3 * x**2 - 3)
    assert abs(least_along(cubic, 0.3 + start / 9, -0.95, 10) - 1) < 1e-9
    assert len(tried) == 3
    assert downhill(lambda k: abs(k - start), 1, (-4, 8), sizes=(3, 1)) == np.clip(start, -4, 8)

    def plateau(x):
        """−1/(1 + e⁻ˣ) + eˣ⁻⁶: level far below its least, as where a fit passes through rows."""
        risen = 1 / (1 + np.exp(-x))
        return -risen + np.exp(x - 6), -risen * (1 - risen) + np.exp(x - 6)

    known = min(np.linspace(-10, 10, 20_001), key=lambda x: plateau(x)[0])
    assert abs(least_along(plateau, -7.0 + start / 2, -10, 10) - known) < 0.1
