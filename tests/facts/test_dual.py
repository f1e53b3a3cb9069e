"""Ridge regression on the kernel matrix, compared with exact features and with refits."""

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
from bochner.solvers.ridge.kernel_path import solve_kernel
from bochner.solvers.ridge.problem import evidence, evidence_slope, gcv
from bochner.solvers.ridge.search import downhill, minimise
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
    """Return features whose products are the kernel matrix, their decomposition, centred rows."""
    Z = np.linalg.cholesky(problem.K + 1e-12 * np.eye(N))
    moments = Moments.of(Z, problem.y, problem.w)
    moments = moments if problem.centred else moments.about_zero()
    centred_rows = Z - moments.feature_mean, problem.y - moments.target_mean, problem.w
    return Z, decompose(moments, problem.centred), centred_rows


centrings = pytest.mark.parametrize("centred", [True, False])
weighted = pytest.mark.parametrize("weights", WEIGHTS)


@centrings
@weighted
def test_the_path_equals_that_of_exact_features(weights, centred):
    """All criteria of two targets at each penalty of the path; standard errors without weights."""
    problem = rows(weights, centred)
    path = solve_kernel(problem, "loo").path
    _, eigen, centred_rows = features_of(problem)
    state, loo = eigen.at(path.alphas), left_out_path(eigen, [centred_rows], path.alphas)
    values = eigen.values[:, None]
    assert len(path.alphas) > 1
    assert_close(path.loo, pool(loo.mean_squares, eigen.power / eigen.weight), factor=1e7)
    assert_close(path.gcv, pool(gcv(eigen, state), eigen.power), factor=1e7)
    assert_close(path.effective_dimension, (values / (values + path.alphas)).sum(0), factor=1e7)
    assert_close(path.evidence, evidence(eigen, state).sum(axis=1), factor=1e8)
    if weights == "none":
        assert_close(path.loo_error, loo.deviation, factor=1e7)
    assert path.loo_rows == loo.rows == N


@centrings
@weighted
def test_predictions_equal_those_of_exact_features(weights, centred):
    problem = rows(weights, centred)
    Z, *_ = features_of(problem)
    model = Ridge(alpha=0.3, fit_intercept=centred, solver="cholesky")
    solution, expected = problem.at(0.3), model.fit(Z, problem.y, problem.w).predict(Z)
    assert_close(problem.K @ solution.coef + solution.intercept, expected, factor=1e6)
    coef, intercept = problem.solve(0.3, 0)[:2]
    assert_close(coef, solution.coef, factor=1e6)
    assert_close(intercept, solution.intercept, factor=1e6)
    assert_close(0.3 * solution.u / solution.root[:, None], problem.y - expected, factor=1e6)


@pytest.mark.parametrize("criterion", ["loo", "gcv", "evidence"])
@centrings
@weighted
def test_slopes_in_log_alpha_equal_differences(weights, centred, criterion):
    problem, step = rows(weights, centred), 1e-5
    high, low = (problem.at(0.3 * np.exp(h)).criteria[criterion][0] for h in (step, -step))
    slope = problem.at(0.3).criteria[criterion][1]
    assert np.allclose(slope, (high - low) / (2 * step), rtol=1e-6, atol=1e-9)


@centrings
@weighted
@pytest.mark.parametrize("amplitude", [None, 0.7])
def test_the_evidence_equals_that_of_exact_features(amplitude, weights, centred):
    problem = rows(weights, centred)
    _, eigen, _ = features_of(problem)
    for alpha in (0.01, 1.0):
        score = kernel_evidence(problem, alpha, amplitude=amplitude)
        arguments = eigen, eigen.at([alpha]), None, amplitude
        assert_close(score.value, -evidence(*arguments).sum() / problem.count, factor=1e6)
        slope = -evidence_slope(*arguments).sum() / problem.count
        assert_close(score.alpha_gradient, slope, factor=1e7)


LAWS = [{}, {"noise": 0.2}, {"amplitude": 0.7}, {"noise": 0.2, "amplitude": 0.7}]
SCORES = {"errors": kernel_leave_one_out}
SCORES |= {f"evidence {law}": partial(kernel_evidence, **law) for law in LAWS}


@centrings
@weighted
@pytest.mark.parametrize("score", SCORES)
def test_gradients_in_the_kernel_matrix_equal_differences(score, weights, centred):
    problem, step = rows(weights, centred), 1e-5
    turn = Gaussian(0.3)(table()[0])
    value = lambda h, alpha: SCORES[score](replace(problem, K=problem.K + h * turn), alpha)
    result = value(0.0, 0.3)
    slope = (value(step, 0.3).value - value(-step, 0.3).value) / (2 * step)
    assert abs((result.gradient * turn).sum() / slope - 1) < 1e-6
    ends = (value(0.0, 0.3 * np.exp(h)).value for h in (step, -step))
    if score != f"evidence {LAWS[-1]}":  # its penalty is given
        assert abs(result.alpha_gradient / (np.subtract(*ends) / (2 * step)) - 1) < 1e-5


@pytest.mark.parametrize("criterion", ["loo", "gcv", "evidence"])
@pytest.mark.parametrize("per_target", [False, True])
def test_the_chosen_penalty_is_the_best_of_a_grid(criterion, per_target):
    problem = rows()
    solution = solve_kernel(problem, criterion, per_target=per_target)
    assert solution.outcome is Outcome.SOLVED
    grid = np.geomspace(1e-3, 10, 200)
    values = np.array([problem.at(a).criteria[criterion][0] for a in grid])
    power = problem.power if criterion != "evidence" else np.ones(2)
    for i, alpha in enumerate(np.broadcast_to(solution.alpha, 2)):
        score = values[:, i] if per_target else values @ (1 / power)
        at = problem.at(alpha).criteria[criterion][0]
        best = at[i] if per_target else at @ (1 / power)
        assert best <= score.min() + 1e-4 * abs(score.min())
    assert len(solution.path.alphas) <= 28


def test_many_rows_use_a_subset_for_the_penalty_and_refined_float32_factors(monkeypatch):
    problem, w = rows(), WEIGHTS["shares"]
    exact = problem.solve(0.3, 0)[:2]
    monkeypatch.setattr("bochner.solvers.ridge.dual.SINGLE_FROM", 10)
    for actual, expected in zip(problem.solve(0.3, 0)[:2], exact, strict=True):
        assert_close(actual, expected, factor=1e6)
    smooth = KernelRows(Gaussian(8.0)(table()[0]), problem.y, problem.w)
    # refinement does not converge at this penalty
    assert smooth._solve_single(1e-12, problem.y, 1e-12, 0.3) is None
    monkeypatch.setattr("bochner.solvers.ridge.kernel_path.PENALTY_ROWS", 30)
    subset = solve_kernel(problem, "loo")
    assert subset.path.loo_rows == 30
    assert_close(subset.coef, problem.solve(subset.alpha, 0).coef, factor=1e6)
    kernel, (X, y) = 0.5 * Gaussian(0.8) + 0.5 * Linear(), table()
    fit = lambda: bo.KernelRidge(kernel, alpha=0.3).fit(X + 9, y).predict(X + 10)
    expected = fit()
    monkeypatch.setattr("bochner.models.representations.exact.STORED_ROWS", 10)
    assert_close(fit(), expected, factor=1e6)
    stored = replace(problem, K=kernel(table()[0]), w=w)
    unstored = replace(stored, K=matrix_of(kernel, table()[0]))
    assert isinstance(unstored.K, np.ndarray) == (native.loops() is None)
    for actual, expected in zip(unstored.solve(0.3, 9), stored.solve(0.3, 9), strict=True):
        assert_close(actual, expected, factor=1e6)
    assert_close(solve_kernel(unstored, "loo").coef, solve_kernel(stored, "loo").coef, factor=1e6)
    separate = solve_kernel(problem, "gcv", per_target=True)
    assert (separate.alpha.shape, separate.criterion) == ((2,), "gcv")


def test_a_constant_target_does_not_change_other_targets(monkeypatch):
    """For example a class without rows: float32 factors and refinements still serve all others."""
    monkeypatch.setattr("bochner.solvers.ridge.dual.SINGLE_FROM", 10)
    problem = rows()
    constant = replace(problem, y=np.column_stack([problem.y, -np.ones(N)]))
    with np.errstate(divide="raise", invalid="raise"):
        coef, intercept = constant.solve(0.3, 0)[:2]
    assert_close(coef[:, :-1], problem.solve(0.3, 0).coef, factor=1e6)
    assert not coef[:, -1].any()
    assert intercept[-1] == -1.0


@pytest.mark.parametrize("noise", [0.1, 3.0])
def test_more_rows_lower_the_penalty_only_if_they_resolve_more(monkeypatch, noise):
    """40 of 400 rows cannot resolve a fast wave and take it for noise; noise stays noise."""
    monkeypatch.setattr("bochner.solvers.ridge.kernel_path.PENALTY_ROWS", 40)
    monkeypatch.setattr("bochner.solvers.ridge.kernel_path.SETTLED_ROWS", 40)
    monkeypatch.setattr("bochner.solvers.ridge.kernel_path.DENSE_ROWS", 400)
    monkeypatch.setattr("bochner.solvers.ridge.kernel_path.MAX_STEPS", 12)
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 20, (500, 1))
    y = np.abs(np.sin(3 * X)) + noise * rng.standard_normal((500, 1))
    problem = KernelRows(Exponential(2.0)(X), y, np.ones(500))
    subset, dense = problem.first(40), problem.first(400)
    first, dense_fit = solve_kernel(subset, "loo"), solve_kernel(problem, "loo")
    grid = dense_fit.alpha * 3.0 ** np.arange(-2, 3)
    errors = [np.mean(dense.at(alpha).left_out()[0][-40:] ** 2) for alpha in grid]  # the slow way
    if noise > 1:
        assert dense_fit.alpha == first.alpha
    else:
        assert dense_fit.alpha < 0.5 * first.alpha
        assert np.argmin(errors) in (1, 2, 3)
    assert dense_fit.alpha in dense_fit.path.alphas
    assert_close(dense_fit.coef, problem.solve(dense_fit.alpha, 0).coef, factor=1e6)


def classes():
    """Return rows with signs of a noisy wave as targets, and a log loss of leave-one-out values."""
    noisy = rows(t=1)

    def log_loss(f, y, w):
        return float(np.average(np.log1p(np.exp(-8 * y * f))[:, 0], weights=w))

    return replace(noisy, y=np.sign(noisy.y - 2)), log_loss


def loss_of_refits(problem, last, loss, alpha):
    f = problem.y - problem.at(alpha).left_out()[0]
    return loss(f[-last:], problem.y[-last:], problem.w[-last:])


@pytest.mark.parametrize("limit", [1024, 20])
def test_the_penalty_minimises_a_loss_of_leave_one_out_values(monkeypatch, limit):
    """The loss is computed again at a grid of penalties."""
    for name, value in (("PENALTY_ROWS", limit), ("DENSE_FOR_LOSS", N), ("LOSS_ROWS", 25)):
        monkeypatch.setattr(f"bochner.solvers.ridge.kernel_path.{name}", value)
    signs, log_loss = classes()
    solution = solve_kernel(signs, "loo", loss=log_loss)
    slow = partial(loss_of_refits, signs, 25, log_loss)
    assert slow(solution.alpha) <= 1.01 * min(map(slow, solution.alpha * 3.0 ** np.arange(-2, 3)))
    assert slow(solution.alpha) < 0.99 * slow(solve_kernel(signs, "loo").alpha)
    assert np.isfinite(solution.slack).all()


def test_all_rows_may_lower_the_penalty(monkeypatch):
    """The penalty is divided by four while the loss on all rows falls."""
    for name, value in (("PENALTY_ROWS", 10), ("DENSE_FOR_LOSS", 12), ("LOSS_ROWS", 12)):
        monkeypatch.setattr(f"bochner.solvers.ridge.kernel_path.{name}", value)
    signs, log_loss = classes()
    solution = solve_kernel(signs, "loo", loss=log_loss)
    slow = partial(loss_of_refits, signs, 12, log_loss)
    assert slow(solution.alpha) < 0.998 * slow(4 * solution.alpha)
    assert slow(solution.alpha / 4) > 0.998 * slow(solution.alpha)
    assert_close(solution.coef, signs.solve(solution.alpha, 0).coef, factor=1e6)
    assert np.isfinite(solution.slack[:, 0]).tolist() == [False] * 28 + [True] * 12


def test_penalties_at_an_edge_are_reported_as_outcomes():
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
def test_line_searches_find_the_minimum_within_their_bounds(start):
    assert abs(minimise(lambda x: ((x - 2) ** 2, 2 * (x - 2)), start, -10, 10) - 2) < 0.05
    assert minimise(lambda x: (x, 1.0), start, -10, 10) == -10
    hidden = lambda x: (np.inf, -np.inf) if x < 1 else ((x - 2) ** 2, 2 * (x - 2))
    assert abs(minimise(hidden, start, -10, 10) - 2) < 0.05
    calls = []
    cubic = lambda x: calls.append(x) or (x**3 - 3 * x, 3 * x**2 - 3)
    assert abs(minimise(cubic, 0.3 + start / 9, -0.95, 10) - 1) < 1e-9
    assert len(calls) == 3
    assert downhill(lambda k: abs(k - start), 1, (-4, 8), sizes=(3, 1)) == np.clip(start, -4, 8)

    def plateau(x):
        """Return −1/(1 + e⁻ˣ) + eˣ⁻⁶ and its slope: flat left of its minimum, like interpolation."""
        risen = 1 / (1 + np.exp(-x))
        return -risen + np.exp(x - 6), -risen * (1 - risen) + np.exp(x - 6)

    minimum = min(np.linspace(-10, 10, 20_001), key=lambda x: plateau(x)[0])
    assert abs(minimise(plateau, -7.0 + start / 2, -10, 10) - minimum) < 0.1
