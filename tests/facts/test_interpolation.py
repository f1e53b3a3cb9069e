"""No penalty: the solution of least norm, on either side of as many features as rows, and at it."""

import numpy as np
import pytest
from tolerance import assert_close

import bochner as bo
from bochner import Moments
from bochner.errors import SolutionWarning
from bochner.kernels import Gaussian, Linear
from bochner.solvers.ridge.eigen import Triangle, decompose
from bochner.solvers.ridge.path import solve_ridge
from bochner.solvers.ridge.solution import Outcome

D = 40
ROWS = [10, 38, 39, 40, 41, 42, 60, 300]


def table(n, t=2, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(0.5, 1.0, (n, D)), rng.normal(7.0, 1.0, (n, t)), rng.uniform(0.5, 2.0, n)


def least_norm(Z, y, w, centred):
    """Coefficients and intercept by numpy.linalg.lstsq of the centred, weighted rows."""
    z, m = (w @ Z / w.sum(), w @ y / w.sum()) if centred else (np.zeros(Z.shape[1]), 0 * y[0])
    root = np.sqrt(w)[:, None]
    coef = np.linalg.lstsq(root * (Z - z), root * (y - m), rcond=None)[0]
    return coef, m - z @ coef


@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("n", ROWS)
def test_a_triangle_has_the_solution_of_least_norm(n, centred):
    Z, y, w = table(n)
    sums = Triangle(centred)
    for start in range(0, n, 17):
        sums.add(Z[start : start + 17], y[start : start + 17], w[start : start + 17])
    moments = Moments.of(Z, y, w) if centred else Moments.of(Z, y, w).about_zero()
    means = moments.feature_mean, moments.target_mean
    solution = solve_ridge(sums.eigen(), means, 0.0)
    coef, intercept = least_norm(Z, y, w, centred)
    worst = np.linalg.cond(Z) if n == D else 1e3
    assert_close(solution.coef, coef, factor=worst * 10)
    assert_close(solution.intercept, intercept, factor=worst * 10)
    expected = Outcome.LEAST_NORM if n - centred < D else Outcome.SOLVED
    assert solution.outcome is expected
    assert expected.good


@pytest.mark.parametrize("n", [20, 39, 100])
def test_a_triangle_is_the_moments_in_every_criterion(n):
    Z, y, w = table(n)
    sums = Triangle()
    sums.add(Z, y, w)
    moments = Moments.of(Z, y, w)
    means = moments.feature_mean, moments.target_mean
    a, b = (solve_ridge(e, means, 0.5) for e in (sums.eigen(), decompose(moments)))
    assert_close(a.coef, b.coef, factor=1e4)
    for name in ("gcv", "evidence", "effective_dimension"):
        one, other = (solution.path.to_dict()[name][24:] for solution in (a, b))
        assert_close(one, other, factor=1e6, label=name)  # penalties that moments resolve
    assert_close(a.residual_variance, b.residual_variance, factor=1e4)


@pytest.mark.parametrize("centred", [True, False])
def test_triangles_of_parts_merge_to_that_of_all_rows(centred):
    """One of them empty, one of fewer rows than features; rows of no weight do not count."""
    Z, y, w = table(100)
    w = np.where(np.arange(100) % 7 == 0, 0.0, w)
    whole, parts = Triangle(centred), [Triangle(centred) for _ in range(4)]
    whole.add(Z, y, w)
    for part, some in zip(parts[1:], np.split(np.arange(100), [9, 30]), strict=True):
        part.add(Z[some], y[some], w[some])
    merged = parts[0].merge(parts[1]).merge(parts[2]).merge(parts[3])
    found, expected = merged.eigen(), whole.eigen()
    assert found.rows == expected.rows == np.count_nonzero(w)
    assert found.weight == pytest.approx(w.sum())
    assert_close(found.values, expected.values, factor=1e3)
    assert_close(found.coefficients(0.3), expected.coefficients(0.3), factor=1e4)


def test_small_singular_values_are_kept_that_moments_lose():
    """Singular values over ten decades: the triangle fits all of the target, moments cannot."""
    rng = np.random.default_rng(0)
    scales = np.logspace(0, -10, 12)
    Z = np.linalg.qr(rng.normal(size=(200, 12)))[0] * scales
    y = Z @ (1 / scales)[:, None]
    sums = Triangle(centred=False)
    sums.add(Z, y)
    means = np.zeros(12), np.zeros(1)
    kept = solve_ridge(sums.eigen(), means, 0.0)
    assert kept.outcome is Outcome.SOLVED
    assert_close(kept.coef[:, 0] * scales, np.ones(12), factor=1e8)
    lost = solve_ridge(decompose(Moments.of(Z, y).about_zero(), False), means, 0.0)
    assert lost.outcome is Outcome.SINGULAR
    assert np.abs(lost.coef[:, 0] * scales - 1).max() > 0.5


# ---- the estimator


def rows(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 2))
    return X, np.sin(2 * X[:, 0]) * X[:, 1] + 3 + 0.1 * rng.normal(size=n)


def model(**changes):
    options = dict(method="iid", n_features=D, alpha=0.0, random_state=0) | changes
    return bo.KernelRidge(Gaussian(0.3), **options)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("n", [10, 39, 41, 80, 400])
def test_no_penalty_is_least_squares_of_least_norm(n, intercept):
    X, y = rows(n)
    fitted = model(fit_intercept=intercept).fit(X, y)
    Z = fitted.map_(X)
    coef, b = least_norm(Z, y[:, None], np.ones(n), intercept)
    Znew = fitted.map_(rows(50, 1)[0])
    factor = 100 * np.linalg.cond(Z - intercept * Z.mean(axis=0)) if n > D else 1e7
    assert_close(fitted.predict(rows(50, 1)[0]), Znew @ coef[:, 0] + b, factor=factor)
    if n < D:
        assert_close(fitted.predict(X), y, factor=1e6)
        assert fitted.solution_.outcome is Outcome.LEAST_NORM


def test_as_many_features_as_rows_interpolate():
    X, y = rows(D)
    fitted = model().fit(X, y)
    assert fitted.solution_.outcome is Outcome.LEAST_NORM
    assert_close(fitted.predict(X), y, factor=1e7)


@pytest.mark.parametrize("n", [30, 300])
def test_blocks_give_the_same_and_so_do_pieces(n):
    X, y = rows(n)
    whole = model().fit(X, y).predict(X)
    for size in (7, 100):
        streamed = model().fit_blocks(bo.Blocks.from_arrays(X, y, block_rows=size))
        assert_close(streamed.predict(X), whole, factor=1e7)
    pieces = model().partial_fit(X[:12], y[:12]).partial_fit(X[12:], y[12:])
    assert_close(pieces.predict(X), whole, factor=1e7)


def test_rows_beyond_the_sample_are_read_again_and_added_up_as_a_triangle():
    """10,000 rows whose last feature is 1e-9 of the first: moments cannot see it."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(10_000, 3)) * [1.0, 1.0, 1e-9]
    y = X @ [1.0, 1.0, 1e9]
    fitted = bo.KernelRidge(
        Linear(), alpha=0.0, n_features=3, method="nystrom", random_state=0
    ).fit(X, y)
    linear = bo.KernelRidge(Linear(), alpha=0.0, method="iid", n_features=4, random_state=0).fit(
        X, y
    )
    assert len(linear.sample_) < 10_000
    assert np.abs(linear.predict(X) - y).max() < 1e-5
    assert fitted.predict(X).shape == (10_000,)


def test_rows_that_repeat_are_refused_no_fit_but_a_warning():
    X, y = rows(20)
    with pytest.warns(SolutionWarning, match=r"singular to working precision.*Raise alpha"):
        fitted = model().fit(
            np.repeat(X, 3, axis=0), np.repeat(y, 3) + np.tile([0.0, 0.1, 0.2], 20)
        )
    assert_close(fitted.predict(X), y + 0.1, factor=1e6)


def test_test_error_peaks_where_rows_are_as_many_as_features():
    """Double descent, and none with a penalty (MATHS §5: 1.4, 2000, 1.3 at n = 100)."""
    X, y = rows(100)
    new, truth = rows(2000, 5)

    def error(width, alpha):
        fitted = model(n_features=width, alpha=alpha).fit(X, y)
        return np.mean((fitted.predict(new) - truth) ** 2)

    below, peak, above = (error(width, 0.0) for width in (30, 100, 1600))
    assert peak > 10 * max(below, above)
    assert error(100, "loo") < 0.1 * peak
