"""Newton's method on features: minima by other methods, and Hessians of subsets of rows."""

import numpy as np
import pytest
from internals import source
from scipy.optimize import minimize

from bochner import Huber
from bochner.models._rows import TARGETS
from bochner.solvers.convex import newton
from bochner.solvers.convex.losses import Hinge, Logistic, PoissonDeviance, Squared
from bochner.solvers.convex.problem import Optimum, Problem, hessian_factor, optimum

K, C = 4, 0.5


def minimise(features, loss, alpha, targets=None, fit_intercept=True, start=None, **options):
    y, w = map(np.concatenate, zip(*features.sum(TARGETS), strict=True))
    y = y[:, None] if targets is None else targets(y).astype(np.int8)
    problem = Problem(features, y, w[:, None], loss, alpha, fit_intercept)
    options = dict(tol=1e-4, max_iter=100, algorithm=newton.fastest_algorithm(problem)) | options
    return optimum(problem, newton.minimise(problem, start, **options))


def ones(codes):
    return (codes[:, None] == np.arange(K)).astype(float)


def signs(codes):
    return 2 * ones(codes) - 1


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((300, 20))
    return Z, np.argmax(Z[:, :K] + 0.7 * rng.standard_normal((300, K)), axis=1).astype(float)


# ---- losses


@pytest.mark.parametrize("loss", [Hinge(), Logistic(), Huber(0.5), Squared()], ids=repr)
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("cached", [True, False])
def test_smooth_minima_equal_those_of_a_general_method(rows, loss, intercept, cached):
    """By dense Hessians if features are cached, else by conjugate gradients."""
    Z, codes = rows
    w = np.random.default_rng(4).uniform(0.2, 2, len(Z))
    features = source(Z, codes, w, cached=cached)
    solution = minimise(features, loss, 1 / C, targets=signs, fit_intercept=intercept, tol=1e-12)
    assert (solution.algorithm == "conjugate gradients") != cached
    y = signs(codes)

    def objective(theta, k):
        f = (Z @ theta[:-1] + intercept * theta[-1])[:, None]
        slope = w * loss.slope(y[:, [k]], f)[:, 0]
        gradient = np.append(Z.T @ slope + theta[:-1] / C, intercept * slope.sum())
        value = w @ loss.value(y[:, [k]], f)[:, 0] + 0.5 / C * (theta[:-1] ** 2).sum()
        return value, gradient

    total = 0.0
    for k in range(K):
        general = minimize(objective, np.zeros(21), (k,), jac=True, options={"gtol": 1e-9})
        np.testing.assert_allclose(solution.coef[:, k], general.x[:-1], atol=1e-6)
        np.testing.assert_allclose(solution.intercept[k], general.x[-1], atol=1e-6)
        total += general.fun
    assert solution.objective == pytest.approx(total, rel=1e-9)
    assert solution.outcome.name == "CONVERGED"


@pytest.mark.parametrize("cached", [True, False])
def test_a_start_at_the_minimum_takes_one_step(rows, cached):
    features = source(*rows, cached=cached)
    first = minimise(features, Logistic(), 1 / C, targets=signs)
    repeat = minimise(features, Logistic(), 1 / C, targets=signs, start=first)
    assert repeat.iterations == 1 < first.iterations
    assert repeat.objective <= first.objective * (1 + 1e-12)


def test_a_preconditioner_follows_the_curvature_of_unequal_classes(monkeypatch):
    """Few rows have most of the curvature at the minimum: 38 products, 81 with the first one."""
    products, descend = [], newton.conjugate_gradients

    def count(*args):
        step = descend(*args)
        products.append(step.products)
        return step

    monkeypatch.setattr(newton, "conjugate_gradients", count)
    Z = np.random.default_rng(7).standard_normal((3000, 20))
    y = 2.0 * (Z[:, 0] + Z[:, 1] > 3) - 1
    minimise(source(Z, y), Logistic(), 0.01, algorithm="conjugate gradients")
    assert sum(products) < 55


def test_a_step_that_overshoots_is_shortened():
    """From a low start the first step leads to e¹⁰⁰; infinite losses of weight 0 are ignored."""
    rng = np.random.default_rng(6)
    Z = rng.standard_normal((200, 3))
    y = rng.poisson(np.exp(3 + Z[:, 0])).astype(float)
    start = minimise(source(Z, y), PoissonDeviance(), 1.0)
    low = Optimum(np.zeros((3, 1)), np.array([-5.0]), 1.0, 0.0, 0.0, start.outcome, 0)
    solution = minimise(source(Z, y), PoissonDeviance(), 1.0, start=low, tol=1e-10)
    np.testing.assert_allclose(solution.coef, start.coef, atol=1e-4)
    assert solution.outcome.is_good
    extra, w = np.vstack([np.full((1, 3), 1e4), Z]), np.append(0.0, np.ones(200))
    weighted = minimise(source(extra, np.append(1.0, y), w), PoissonDeviance(), 1.0, tol=1e-10)
    np.testing.assert_allclose(weighted.coef, solution.coef, atol=1e-6)
    assert np.isfinite(weighted.objective)


@pytest.mark.parametrize(
    ("loss", "algorithms"),
    [
        (Hinge(), ["cholesky updates", "conjugate gradients", "cholesky"]),
        (Hinge(0.0), ["cholesky updates", "conjugate gradients"]),
    ],
    ids=repr,
)
def test_every_algorithm_ends_at_the_minimum_and_is_recorded(rows, loss, algorithms):
    Z, codes = rows
    options = {"targets": signs, "tol": 1e-9}
    default = minimise(source(Z, codes), loss, 1 / C, **options)
    assert default.algorithm == algorithms[0]
    for algorithm in algorithms:
        solution = minimise(source(Z, codes), loss, 1 / C, algorithm=algorithm, **options)
        assert solution.algorithm == algorithm
        assert repr(algorithm) in repr(solution)
        np.testing.assert_allclose(solution.coef, default.coef, atol=1e-4)
        assert solution.objective == pytest.approx(default.objective, rel=1e-8)


# ==== Dense Hessians: starts on subsets of rows, and updated sums.


@pytest.fixture(scope="module")
def many_rows():
    """Return 4000 rows in five classes; the last class has 21."""
    rng = np.random.default_rng(7)
    Z = rng.standard_normal((4000, 8))
    codes = np.argmax(Z[:, :4] + 0.5 * rng.standard_normal((4000, 4)), axis=1).astype(float)
    codes[::199] = 4
    Z[codes == 4, 5] += 3
    return Z, codes


def five(codes):
    return 2.0 * (codes[:, None] == np.arange(5)) - 1


@pytest.mark.parametrize("loss", [Hinge(), Logistic()], ids=repr)
def test_a_start_on_few_rows_ends_at_the_minimum_of_all_rows(many_rows, loss, monkeypatch):
    Z, codes = many_rows
    w = np.random.default_rng(8).uniform(0.5, 2, len(Z))
    features, rounded = (source(Z, codes, w, 1000, dtype) for dtype in ("float64", "float32"))
    short = minimise(features, loss, 2.0, targets=five, tol=1e-12)
    single = minimise(rounded, loss, 2.0, targets=five, tol=1e-7)
    monkeypatch.setattr("bochner.solvers.convex.newton.FEWEST", len(Z))
    long = minimise(features, loss, 2.0, targets=five, tol=1e-12)
    assert short.algorithm == long.algorithm == "cholesky updates"
    np.testing.assert_allclose(short.coef, long.coef, atol=1e-8)
    np.testing.assert_allclose(single.coef, long.coef, atol=1e-3)
    assert short.iterations < long.iterations


@pytest.mark.parametrize("power", [14, 12, 10, 8, 7, 6])
def test_the_shift_of_an_indefinite_hessian_is_small(power):
    """[[1, 1 + s], [1 + s, 1]] needs s: the shift is at most 100 s, and 10 s for s ≥ 1e-8."""
    shift = 1.05 * 10.0**-power
    H = np.array([[1.0, 1.0 + shift], [1.0 + shift, 1.0]])
    factor = np.triu(hessian_factor(H, 0.0, 0.0, True))
    added = factor.T @ factor - H
    np.testing.assert_allclose(added, added[0, 0] * np.eye(2), atol=1e-15)
    assert shift < added[0, 0] <= (100 if power > 8 else 10) * shift
