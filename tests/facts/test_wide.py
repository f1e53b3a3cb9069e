"""Ridge regression with too many features for a Gram matrix, compared with the dense solution."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from gallery import maker

import bochner as bo
from bochner.data.blocks import Blocks
from bochner.errors import InvalidInput
from bochner.kernels import Gaussian
from bochner.solvers.ridge import iterative, search
from bochner.solvers.ridge.iterative import SampleRows, WideProblem, solve_wide
from bochner.solvers.ridge.krylov import GrowingSubspace, ShiftedSystems
from bochner.solvers.ridge.solution import Outcome
from bochner.sums.passes import LOCAL, gram_products, row_signs

N, D, WIDE = 3000, 240, 1_002


def table(n=N, noise=0.3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 3))
    y = np.column_stack([np.sin(2 * X[:, 0]) * X[:, 1], X[:, 2] + 40.0])
    return X, y + noise * rng.standard_normal(y.shape), rng.uniform(0.2, 2.0, n)


PHI = bo.draw(Gaussian(1.0), "orthogonal", n_features=D, n_inputs=3, random_state=0)


def problem(X, y, w, m=400, signs=4):
    """Return the WideProblem of the rows, the means, and the centred features."""
    Z, W = PHI(X), w.sum()
    mean, target = w @ Z / W, w @ y / W
    Zc, yc = Z - mean, y - target
    blocks = Blocks.from_arrays(X, y, w)

    def multiply(V, precision):
        return gram_products(partial(LOCAL.sum, blocks=blocks), PHI.features, V, mean, precision)

    power = w @ yc**2
    draws = Zc.T @ (np.sqrt(w)[:, None] * row_signs(0, 0, len(w), signs))
    sample_rows = np.random.default_rng(1).permutation(len(w))[:m]
    sample = SampleRows(Zc[sample_rows], yc[sample_rows], w[sample_rows], W)
    cross = Zc.T @ (w[:, None] * yc)
    return WideProblem(multiply, cross, power, W, len(w), True, draws, sample), (mean, target), Zc


def exact(Zc, w, cross, alpha):
    return np.linalg.solve(Zc.T @ (w[:, None] * Zc) + alpha * np.eye(D), cross)


@pytest.mark.parametrize("alpha", [3.0, 0.1])
def test_the_history_bounds_the_error_at_a_given_penalty(alpha):
    """The sample's preconditioner is an exact inverse; a constant target is predicted exactly."""
    X, y, w = table()
    wide, means, Zc = problem(X, y, w)
    solution = solve_wide(wide, np.array([alpha]), False, means)
    f = Zc @ (solution.coef - exact(Zc, w, wide.cross, alpha))
    rms = np.sqrt(w @ f**2 / w.sum()) / wide.spread
    bound = float(solution.history[-1].split("at most ")[1].split(" of")[0])
    assert rms.max() <= 1.06 * bound <= 1.06e-3  # the history has one digit
    assert solution.outcome is Outcome.SOLVED
    sample, r = wide.sample, np.random.default_rng(0).standard_normal((D, 1))
    P = w.sum() / sample.w.sum() * sample.Z.T @ (sample.w[:, None] * sample.Z)
    expected = np.linalg.solve(P + alpha * np.eye(D), r)
    scale = np.abs(expected).max()
    assert np.abs(sample.inverse(r, np.array([alpha])) - expected).max() < 1e-7 * scale
    constant = replace(wide, power=np.zeros(2), cross=np.zeros((D, 2)))
    solution = solve_wide(constant, "loo", False, (means[0], np.full(2, 7.0)))
    assert solution.outcome is Outcome.CONSTANT_TARGET
    np.testing.assert_array_equal(solution.coef, 0)
    np.testing.assert_allclose(solution.intercept, 7.0)


def shifted(k=60, seed=0, noise=0.0):
    """Return G with decreasing eigenvalues, systems at three penalties, products and solutions."""
    rng = np.random.default_rng(seed)
    Q, _ = np.linalg.qr(rng.standard_normal((k, k)))
    G = (Q * 10.0 ** -np.linspace(0, 5, k)) @ Q.T
    right = np.tile(G @ rng.standard_normal((k, 2)), 3)
    alphas = np.repeat([1e-3, 1e-4, 1e-5], 2)
    systems = ShiftedSystems(right, alphas, np.ones(6))
    calls = []

    def multiply(V, precision):
        calls.append(V.shape[1])
        product = G @ V
        if precision == "float32":
            product *= 1 + noise * rng.standard_normal(product.shape)
        return product

    expected = [np.linalg.solve(G + a * np.eye(k), b) for a, b in zip(alphas, right.T, strict=True)]
    return G, systems, multiply, np.stack(expected, axis=1), calls


def test_one_subspace_solves_the_systems_of_all_penalties():
    G, systems, multiply, expected, calls = shifted()
    space = GrowingSubspace(multiply, 60, 2, "float64")
    solution = space.solve(systems, np.divide, 1e-6, 100)
    error = solution.u - expected
    assert solution.converged
    # the bound holds for the error in the norm of G
    assert np.all(np.einsum("ij,ij->j", error, G @ error) <= solution.bound**2 * (1 + 1e-9))
    residual = systems.right - G @ solution.u - systems.alphas * solution.u
    np.testing.assert_allclose(solution.residual, residual, atol=1e-13)
    assert space.passes == len(calls) == solution.iterations <= 32
    repeat = space.solve(systems, np.divide, 1e-6, 100)
    assert repeat.iterations == solution.iterations  # the subspace already contains the solutions


def test_exact_residuals_correct_errors_of_products():
    """After the last pass the solution is returned as not converged."""
    _, systems, multiply, expected, _ = shifted(noise=1e-4)
    space = GrowingSubspace(multiply, 60, 2, "float32")
    wrong = space.solve(systems, np.divide, 1e-6, 100)
    residual = systems.right - multiply(wrong.u, "float64") - systems.alphas * wrong.u
    assert systems.bound(residual).max() > 1e-6
    solution, first = space.refine(systems, np.divide, 1e-6, 200)
    assert first > 1e-6
    assert solution.converged
    np.testing.assert_allclose(solution.u, expected, atol=1e-6 * 2 / 1e-5**0.5)
    space = GrowingSubspace(multiply, 60, 2, "float64")
    solution, first = space.refine(systems, np.divide, 1e-12, 5)
    assert not solution.converged
    assert solution.iterations <= 6
    assert first > 1e-12


def test_leave_one_out_errors_and_traces_are_those_of_the_dense_fit():
    X, y, w = table()
    w = np.ones(N)
    wide, means, Zc = problem(X, y, w, m=1000, signs=32)
    path = solve_wide(wide, "loo", False, means).path
    U, s, _ = np.linalg.svd(Zc, full_matrices=False)
    r = y - means[1]
    for k, alpha in enumerate(path.alphas):
        shrunk = s**2 / (s**2 + alpha)
        hat = U @ (shrunk[:, None] * (U.T @ r))
        squares = (((r - hat) / (1 - U**2 @ shrunk - 1 / N)[:, None]) ** 2).mean(axis=0)
        loo = (squares / wide.power).mean() * wide.power.mean()
        assert abs(path.loo[k] - loo) < 5 * path.loo_error[k]
        # Hutchinson: variance below 2 |H|² / 32
        deviation = np.sqrt(2 * (shrunk**2).sum() / 32)
        assert abs(path.effective_dimension[k] - shrunk.sum()) < 5 * deviation + 0.01 * D
    assert np.all(path.loo_error < 0.2 * path.loo)


def test_standard_errors_of_leave_one_out_errors_equal_a_jackknife():
    """A sample of one row in fifty is compared with the jackknife over its rows."""
    m, alpha = 60, 1.0
    X, y, _ = table()
    wide, (_, mean), Zc = problem(X, y, np.ones(N), m=m)
    coef, sample = exact(Zc, np.ones(N), wide.cross, alpha), wide.sample
    H = Zc @ np.linalg.solve(Zc.T @ Zc + alpha * np.eye(D), Zc.T)
    rss = N * ((sample.y - sample.Z @ coef) ** 2).mean(axis=0)

    def estimate(rows):
        part = SampleRows(sample.Z[rows], sample.y[rows], sample.w[rows], sample.weight)
        return iterative.left_out(replace(wide, sample=part), alpha, coef, rss, H.trace(), 0.0)

    estimates = np.array([estimate(np.arange(m) != i)[0] for i in range(m)])
    jackknife = (m - 1) / m * ((estimates - estimates.mean(axis=0)) ** 2).sum(axis=0)
    errors = (y - mean - H @ (y - mean)) / (1 - H.diagonal() - 1 / N)[:, None]
    expected = (1 - m / N) * jackknife + m / N * (errors**2).var(axis=0) / m
    assert estimate(np.arange(m))[1] == pytest.approx(np.sqrt(expected), rel=0.15)


def dense_errors(wide, Zc, y, w, alpha):
    """Return the mean squared leave-one-out error of each target, from leverages of all rows."""
    A = Zc.T @ (w[:, None] * Zc) + alpha * np.eye(D)
    h = np.einsum("ij,ji->i", Zc, np.linalg.solve(A, Zc.T)) + 1 / w.sum()
    r = y - w @ y / w.sum() - Zc @ np.linalg.solve(A, wide.cross)
    return w @ (r / (1 - np.minimum(w, 1.0) * h)[:, None]) ** 2 / w.sum()


def test_each_target_gets_the_penalty_of_its_smallest_error():
    X, y, w = table(noise=1.0)
    wide, means, Zc = problem(X, y, w)
    solution = solve_wide(wide, "loo", True, means)
    assert solution.outcome is Outcome.SOLVED
    grid = [dense_errors(wide, Zc, y, w, alpha) for alpha in np.geomspace(0.03, 30, 13)]
    errors = [dense_errors(wide, Zc, y, w, alpha)[k] for k, alpha in enumerate(solution.alpha)]
    # the path ends before a step that gains less than 0.5 %
    assert np.all(errors < 1.007 * np.min(grid, axis=0))


def test_a_penalty_at_an_edge_is_an_outcome():
    """A feature has errors that fall with the penalty; what features do not explain is a mean."""
    X, y, w = table()
    Z = np.column_stack([PHI(X), np.ones(N)])
    residual = y[:, :1] - Z @ np.linalg.solve(Z.T @ (w[:, None] * Z), Z.T @ (w[:, None] * y[:, :1]))
    for target, edge in ((Z[:, :1], Outcome.EDGE_LOW), (residual, Outcome.EDGE_HIGH)):
        wide, means, _ = problem(X, target, w)
        assert solve_wide(wide, "gcv", False, means).outcome is edge
    errors = np.array([[1.0, 1.006, 2.0], [1.0, 1.004, 2.0], [1.0, 1.006, 0.9]])
    assert [iterative.is_falling(row) for row in errors] == [True, False, False]


def test_the_guess_from_a_sample_has_the_order_of_the_best_penalty():
    X, y, w = table(noise=1.0)
    wide, means, _ = problem(X, y, w)
    assert 0.01 < iterative.guess(wide)[0] / solve_wide(wide, "gcv", False, means).alpha < 100


@pytest.mark.parametrize("start", [0.0, -10.0])
@pytest.mark.parametrize("at", [-0.4, 0.0, 0.25])
def test_the_penalty_is_the_minimum_of_a_parabola_through_the_smallest_errors(at, start):
    """Errors are a parabola in log alpha; if the smallest is at an end, its penalty is chosen."""
    x = start + np.arange(4.0)
    errors = 2.0 + 3.0 * (x - x[1] - at) ** 2
    log_alpha = lambda errors: np.log(search.parabola_minimum(np.exp(x), errors))
    assert log_alpha(errors) == pytest.approx(x[1] + at, abs=1e-12)
    ends = [log_alpha(np.sort(errors)), log_alpha(np.sort(errors)[::-1])]
    assert ends == pytest.approx([x[0], x[3]])


ROWS = 8300  # more than the sample that a pass keeps
SETTINGS = {"method": "orthogonal", "n_features": WIDE, "alpha": 30.0, "random_state": 0}
learner = maker(bo.KernelRidge, Gaussian(1.0), **SETTINGS)


@pytest.fixture(scope="module")
def rows():
    X, y, w = table(ROWS)
    return X, y[:, 0], w


@pytest.fixture(scope="module")
def model(rows):
    """Return a fit with more features than WIDE, which is lowered here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bochner.models.representations.features.WIDE", WIDE // 10 * 9)
        yield learner().fit(*rows)


def test_the_gradient_of_the_objective_is_zero_at_the_fit(model, rows, tmp_path):
    X, y, w = rows
    beta, r, slope = model.coef_, y - model.predict(X), -30.0 * model.coef_
    for part in np.array_split(np.arange(ROWS), 20):
        slope += model.map_(X[part].astype(np.float32)).T @ (w[part] * r[part])
    W, spread = w.sum(), np.sqrt(np.cov(y, aweights=w))
    assert abs(w @ r) < 1e-4 * W * spread  # the intercept
    assert np.linalg.norm(slope) / np.sqrt(4 * 30.0 * W) < 1.5e-3 * spread
    assert np.linalg.norm(beta) > 0.1
    assert model.solution_.outcome.is_good
    assert model.certificate_.n_features == WIDE
    bo.save(model, tmp_path / "model.bochner")
    loaded = bo.load(tmp_path / "model.bochner")
    np.testing.assert_array_equal(loaded.predict(X[:9]), model.predict(X[:9]))


@pytest.mark.slow
def test_a_killed_fit_resumes_to_the_same_bits(model, rows, tmp_path):
    blocks, stopped = Blocks.from_arrays(*rows).with_rows(1000), []

    class Killed(Exception):
        pass

    def stopping(piece):
        stopped.append(1)
        if len(stopped) == 20:  # of 31
            raise Killed
        return piece

    where = bo.engines.Local(checkpoint=tmp_path / "run", interval=1.0)
    with pytest.raises(Killed):
        learner().fit_blocks(blocks.map(stopping), where=where)
    result = learner().fit_blocks(blocks.map(stopping), where=where)
    np.testing.assert_array_equal(result.coef_, model.coef_)


@pytest.mark.parametrize("alpha", ["loo", 0.5])
def test_leave_one_out_errors_agree_with_those_of_moments(alpha, monkeypatch):
    """Intervals cover the expected share of new rows, and probabilities agree with the classes."""
    X, y, _ = table(2000)
    y = y[:, 0]
    options = {"n_features": 128, "alpha": alpha}
    moments = learner(**options).fit(X, y).fit_
    monkeypatch.setattr("bochner.models.representations.features.WIDE", 8)
    monkeypatch.setattr("bochner.models.representations.features.cached_rows", lambda _: 100)
    model = learner(**options).fit(X, y)
    left_out = model.fit_.left_out()
    sample = model.fit_.representation.sample.lowest(len(left_out.w))
    rows = moments.representation
    rows = replace(rows, sums=rows.moments, sample=sample)
    expected = rows.left_out(moments.solution).errors
    # leverages are estimated from a hundred rows
    assert (left_out.errors - expected).std() < 0.25 * expected.std()
    new, target, _ = table(1000, seed=1)
    _, low, high = model.predict_interval(new, 0.9)
    coverage = np.mean((low <= target[:, 0]) & (target[:, 0] <= high))
    # the bounds are quantiles of len(left_out.w) scores
    assert abs(coverage - 0.9) < 5 * np.sqrt(0.09 / len(left_out.w) + 0.09 / 1000)
    labels = bo.KernelRidgeClassifier(**model.get_params(deep=False)).fit(X, y > 0)
    assert labels.calibration_.log_loss < 0.6
    np.testing.assert_array_equal(labels.predict_proba(X)[:, 1] > 0.5, labels.predict(X))


def test_methods_that_need_moments_raise(model, rows):
    X, y, _ = rows
    reason = "a fit with more than 10,000 features"
    for call in (lambda: model.partial_fit(X[:5], y[:5]), model.solve_again):
        with pytest.raises(InvalidInput, match=f"(partial_fit|solve_again): {reason}"):
            call()
    with pytest.raises(AttributeError, match=f"moments_: {reason}"):
        _ = model.moments_
    with pytest.raises(InvalidInput, match="sample weights must have a sum above"):
        learner().fit(X, y, np.full(ROWS, 1e-95))


def test_fewer_rows_than_features_are_decomposed_without_a_gram_matrix(monkeypatch):
    monkeypatch.setattr("bochner.models.representations.features.decompose", None)
    X, y, _ = table(400)
    model = learner(Gaussian(2.0), n_features=800, alpha=2.0).fit(X, y)
    Z = model.map_(X) - model.map_(X).mean(axis=0)
    dual = np.linalg.solve(Z @ Z.T + 2 * np.eye(400), y - y.mean(axis=0))
    np.testing.assert_allclose(model.predict(X), y.mean(axis=0) + Z @ (Z.T @ dual), atol=1e-9)
