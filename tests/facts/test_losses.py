"""Losses: formulas and derivatives, and fits compared with brute force and with each other."""

from dataclasses import replace
from functools import partial

import mpmath
import numpy as np
import pytest
from internals import source
from numpy.testing import assert_allclose
from scipy.optimize import minimize
from scipy.special import softmax
from tolerance import assert_close

from bochner import Huber, JointLoss
from bochner.solvers.convex import losses, newton
from bochner.solvers.convex.kernel import KernelMatrix
from bochner.solvers.convex.losses import Absolute, EpsilonInsensitive, PoissonDeviance, Quantile
from bochner.solvers.convex.penalty_path import HeldOutLoss, largest_penalty
from bochner.solvers.convex.problem import Problem, best_constant, best_length, optimum
from bochner.solvers.sgd import as_loss

# ==== Each loss and its derivatives, compared with the published formula.


def ramp(width):
    """Return max(0, m), or its smooth form of width δ."""

    def at(m):
        if m <= 0:
            return mpmath.mpf(0)
        return m - width / 2 if m >= width else m**2 / (2 * width)

    return at


def two_slopes(low, high, width=0):
    """Return max(low r, high r), or smoothed q r − δq²/2 with q = r/δ between low and high."""

    def at(r):
        if not width:
            return max(low * r, high * r)
        q = min(max(r / width, low), high)
        return q * r - width * q**2 / 2

    return at


def modified_huber(y, f):
    return max(1 - y * f, 0) ** 2 if y * f >= -1 else -4 * y * f


def huber(c):
    return lambda y, f: (y - f) ** 2 / 2 if abs(y - f) <= c else c * abs(y - f) - c**2 / 2


ONE, TWO = mpmath.mpf(1) / 5, mpmath.mpf(3) / 10

#: Losses and formulas of y = −1 or 1.
OF_CLASSES = [
    (losses.Hinge(0.0), lambda y, f: ramp(0)(1 - y * f)),
    (losses.Hinge(0.2), lambda y, f: ramp(ONE)(1 - y * f)),
    (losses.Hinge(), lambda y, f: max(1 - y * f, 0) ** 2),
    (losses.Logistic(), lambda y, f: mpmath.log(1 + mpmath.exp(-y * f))),
    (as_loss("modified_huber"), modified_huber),
    (as_loss("perceptron"), lambda y, f: max(0, -y * f)),
]

#: Losses and formulas of numbers, here above zero.
OF_NUMBERS = [
    (losses.Squared(), lambda y, f: (y - f) ** 2 / 2),
    (Huber(0.3), huber(TWO)),
    (Absolute(), lambda y, f: abs(y - f)),
    (Absolute(0.2), lambda y, f: two_slopes(-1, 1, ONE)(y - f)),
    (Quantile(0.3), lambda y, f: two_slopes(TWO - 1, TWO)(y - f)),
    (Quantile(0.3, 0.2), lambda y, f: two_slopes(TWO - 1, TWO, ONE)(y - f)),
    (EpsilonInsensitive(0.3, 0.0), lambda y, f: ramp(0)(abs(y - f) - TWO)),
    (EpsilonInsensitive(0.3, 0.2), lambda y, f: ramp(ONE)(abs(y - f) - TWO)),
    (losses.EpsilonInsensitive(0.3), lambda y, f: max(abs(y - f) - TWO, 0) ** 2),
    (losses.ZeroHinge(), lambda y, f: max(0, -f)),
    (losses.ZeroHinge(0.2), lambda y, f: ramp(ONE)(-f)),
    (PoissonDeviance(), lambda y, f: mpmath.exp(f) - y * f + y * mpmath.log(y) - y),
    (losses.GammaDeviance(), lambda y, f: f + y * mpmath.exp(-f) - mpmath.log(y) - 1),
]
LOSSES = [
    *((loss, formula, (-1.0, 1.0)) for loss, formula in OF_CLASSES),
    *((loss, formula, (0.4, 1.7)) for loss, formula in OF_NUMBERS),
]
#: Predictions on either side of each place where a slope or a curvature changes.
AT = (-2.3, -1.06, -0.93, -0.25, -0.12, 0.03, 0.11, 0.37, 0.55, 0.73, 0.87, 1.08, 1.43, 1.83, 2.6)


@pytest.mark.parametrize(("loss", "formula", "targets"), LOSSES, ids=[repr(c[0]) for c in LOSSES])
def test_values_slopes_and_curvatures_equal_the_published_formula(loss, formula, targets):
    for y in targets:
        f = np.array([AT])
        target = np.full_like(f, y)
        for order, function in enumerate((loss.value, loss.slope, loss.curvature)):
            expected = [
                float(mpmath.diff(lambda x, y=y: formula(mpmath.mpf(y), x), at, order, h=1e-9))
                for at in AT
            ]
            np.testing.assert_allclose(function(target, f)[0], expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("loss", [l for l, _, _ in LOSSES if l.degree and not l.width], ids=repr)
def test_a_loss_in_other_units_is_scaled_by_a_power_of_them(loss):
    """s⁻ᵖ ℓ(y, f) is the loss of y/s and f/s in these units."""
    rng, units = np.random.default_rng(0), np.array([3.0, 0.25])
    y, f = rng.standard_normal((2, 50, 2))
    values = loss.in_units(units).value(y / units, f / units)
    np.testing.assert_allclose(values, loss.value(y, f) / units**loss.degree, rtol=1e-12)
    halved = loss.in_units(np.array([2.0, 2.0]))
    expected = loss.slope(y, f) * 2.0 ** (1 - loss.degree)
    np.testing.assert_allclose(halved.slope(y / 2, f / 2), expected)


# ==== Minima of nonsmooth and smooth losses, compared with brute force and with each other.

NONSMOOTH = [Absolute(), Quantile(0.2), EpsilonInsensitive(0.3, 0.0), losses.ZeroHinge()]
SMOOTH = [losses.Squared(), Huber(0.4), PoissonDeviance(), losses.GammaDeviance()]
SMOOTH += [losses.EpsilonInsensitive(0.3)]
N, D = 60, 5


def _rounded(y, f):
    return np.sqrt(1 + ((f - y) ** 2).sum(axis=1))[:, None, None]


ROUNDED_DISTANCE = JointLoss(
    lambda y, f: _rounded(y, f)[:, 0, 0],
    lambda y, f: (f - y) / _rounded(y, f)[:, 0],
    lambda y, f: (
        np.eye(y.shape[1]) / _rounded(y, f)
        - (f - y)[:, :, None] * (f - y)[:, None] / _rounded(y, f) ** 3
    ),
)


def problem(loss, alpha=0.5, t=1, seed=0, **options):
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(N, D))
    y = np.exp(0.5 * Z[:, :1] + 0.3 * rng.normal(size=(N, t)))
    return Problem(source(Z, size=25), y, rng.uniform(0.5, 2, (N, 1)), loss, alpha, **options)


def minimise(p, tol):
    return optimum(p, newton.minimise(p, None, tol=tol, max_iter=200))


def objective(p, theta, target=0):
    """Return the objective of one target, from its formula."""
    value = p.loss.value(p.y[:, [target]], (p.rows.Z @ theta[:-1] + theta[-1])[:, None])
    return (p.w * value).sum() + 0.5 * p.alpha * theta[:-1] @ theta[:-1] + p.drift * theta[-1]


def is_minimum(p, at, target=0):
    """Return whether no small random change of the point lowers the objective."""
    rng = np.random.default_rng(1)
    local = objective(p, at, target)
    moves = (size * rng.normal(size=D + 1) for size in np.repeat([1e-1, 1e-3, 1e-5], 60))
    if not p.fit_intercept:
        moves = (np.append(move[:-1], 0) for move in moves)
    return all(objective(p, at + move, target) >= local - 1e-9 * abs(local) for move in moves)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize(
    "alpha", [0.5, *(pytest.param(a, marks=pytest.mark.slow) for a in (1e-3, 50.0))]
)
@pytest.mark.parametrize("loss", NONSMOOTH[:3] + SMOOTH, ids=repr)
def test_the_minimum_equals_that_of_a_general_minimiser(loss, alpha, intercept):
    p = problem(loss, alpha, fit_intercept=intercept)
    optimum_of_features = minimise(p, tol=1e-12)
    at = np.append(optimum_of_features.coef[:, 0], optimum_of_features.intercept)
    assert optimum_of_features.outcome.is_good
    assert is_minimum(p, at)
    rough = minimize(lambda theta: objective(p, theta * [*np.ones(D), intercept]), 0.9 * at + 0.01)
    assert optimum_of_features.objective <= rough.fun * (1 + 1e-10)
    assert_close(optimum_of_features.objective, objective(p, at), factor=100)
    # With the kernel matrix Z Zᵀ the function is the same, but coefficients are not unique
    matrix = replace(p, rows=KernelMatrix(p.rows.Z @ p.rows.Z.T))
    on_kernel = newton.minimise(matrix, tol=1e-9, max_iter=500, algorithm="cholesky")
    fitted = p.rows.Z @ optimum_of_features.coef + optimum_of_features.intercept
    assert on_kernel.value.sum() == pytest.approx(optimum_of_features.objective, rel=1e-7)
    assert_allclose(on_kernel.fitted, fitted, atol=1e-3 * np.ptp(fitted))


@pytest.mark.parametrize("loss", NONSMOOTH[:3] + SMOOTH, ids=repr)
def test_the_best_constant_minimises_the_loss(loss):
    p = problem(loss)
    b = best_constant(loss, p.y, p.w)
    local = (p.w * loss.value(p.y, np.full_like(p.y, b))).sum()
    for step in (-0.1, -1e-3, 1e-3, 0.1):
        assert (p.w * loss.value(p.y, np.full_like(p.y, b + step))).sum() >= local - 1e-10


def test_the_best_constants_of_a_joint_loss_minimise_it():
    """Shares give their weighted means by softmax; distances agree with Nelder-Mead."""
    rng = np.random.default_rng(0)
    y, w = rng.dirichlet([1, 2, 4], N), rng.uniform(0, 2, (N, 1))
    b = best_constant(losses.Multinomial(), y, w)
    assert_allclose(softmax(b), np.average(y, axis=0, weights=w[:, 0]), atol=1e-6)
    y = rng.standard_t(3, (N, 3)) + np.array([0.0, 5.0, -3.0])
    b = best_constant(ROUNDED_DISTANCE, y, w)
    total = lambda b: w[:, 0] @ np.sqrt(1 + ((b - y) ** 2).sum(axis=1))
    best = minimize(total, y.mean(axis=0), method="Nelder-Mead", tol=1e-9)
    assert_allclose(b, best.x, atol=1e-4)
    state = ROUNDED_DISTANCE.curvature(y, 0 * y)
    assert_allclose(ROUNDED_DISTANCE.diagonal(state), state.reshape(N, 3, 3)[:, range(3), range(3)])


def test_line_searches_find_long_and_short_steps_and_survive_overflow():
    def slope(t):
        with np.errstate(over="ignore"):
            return np.array([t[0] - 300.0, np.exp(np.minimum(1e4 * t[1], 800)) - 2, t[2] + 1])

    long, short, flat = best_length(slope, 3)
    assert abs(long - 300) < 31
    assert abs(short - np.log(2) * 1e-4) < 1e-4
    assert flat == 0


@pytest.mark.parametrize("at", [1e-2, 3e-5, 1e-7])
def test_line_searches_end_before_a_jump_of_many_powers_of_ten(at):
    first = -1e-4
    slope = lambda length: np.where(length < at, first, first + 1e6 * (length - at))
    (length,) = best_length(slope, 1)
    assert abs(slope(length)) <= 0.1 * abs(first)


def test_parameters_per_column_apply_to_their_columns():
    y, f = np.random.default_rng(0).normal(size=(2, 50, 2))
    loss, c = Huber().of([0.3, 1.0]), (Huber(0.3), Huber(1.0))
    for part in ("value", "slope", "curvature"):
        columns = [getattr(c[j], part)(y[:, j], f[:, j]) for j in (0, 1)]
        assert_close(getattr(loss, part)(y, f), np.stack(columns, axis=1))
    assert Huber().of([0.3]) == Huber(0.3)
    index = np.array([0, 1, 0, 1])
    assert Quantile((0.1, 0.9)).at(index) == Quantile((0.1, 0.9, 0.1, 0.9))
    assert Huber((1.0, 2.0)).at(index) == Huber((1.0, 2.0, 1.0, 2.0))
    assert Quantile((0.3,)).at(index) == Quantile((0.3,))
    r = np.random.default_rng(0).standard_t(2, (400, 1))
    w = np.random.default_rng(1).uniform(0, 2, (400, 1))
    sigma = losses.huber_scale(r, w, 1.35)
    assert_close((w * np.minimum((r / sigma) ** 2, 1.35**2)).sum() / w.sum(), 1.0, factor=100)


def test_slopes_at_jumps_are_between_both_sides_and_exponents_are_bounded():
    y, f = np.array([[1.0, -1.0]]), np.zeros((1, 2))
    assert np.all(np.abs(as_loss("perceptron").slope(y, f)) <= 1)
    assert np.array_equal(Absolute().slope(y, y), [[0.0, 0.0]])
    assert np.allclose(Quantile(0.3).slope(y, y), 0.2)  # −(0.3 − 0.7)/2
    assert np.array_equal(losses.Hinge(0.0).slope(y, y), [[0.0, 0.0]])
    y, f = np.ones((1, 2)), np.array([[590.0, 650.0]])
    assert np.isfinite(PoissonDeviance().value(y, f)).tolist() == [[True, False]]
    assert PoissonDeviance().curvature(y, f)[0, 0] == pytest.approx(np.exp(590.0))
    assert np.isfinite(losses.GammaDeviance().slope(y, -f)).tolist() == [[True, False]]


def held_out(p, folds):
    fit = partial(newton.minimise, tol=3e-3, max_iter=200)
    losses_of_path = HeldOutLoss(p, folds, fit, largest_penalty(p))
    losses_of_path.walk()
    return losses_of_path.path()


def test_the_path_chooses_the_penalty_of_least_held_out_loss():
    p = problem(Absolute())
    folds = [np.arange(N) % 3 == k for k in range(2)]
    path, at = held_out(p, folds)
    for alpha, error in zip(path.alphas[::4], path.errors[::4], strict=True):
        total = limit = 0.0
        for out in folds:
            w = np.where(out, 0, p.w[:, 0])[:, None]
            fit = minimise(Problem(p.rows, p.y, w, p.loss, alpha), tol=1e-9)
            f = p.rows.Z @ fit.coef + fit.intercept
            total += (p.w[out] * np.abs(p.y - f)[out]).sum()
            limit += (p.w[out] * np.abs(p.y - best_constant(p.loss, p.y, w))[out]).sum()
        assert error == pytest.approx(total / limit, rel=0.02)
    assert path.alpha == path.alphas[path.best]
    assert at.coef.shape == (D, 1)
    assert str(path).splitlines()[0].split() == ["alpha", "error"]


@pytest.mark.slow
def test_differences_within_the_tube_do_not_lower_the_penalty():
    x = np.random.default_rng(0).uniform(-1, 1, (300, 1))
    Z = np.cos(x * np.arange(1, 13) + np.arange(12))
    y, w = np.sin(3 * x), np.ones((300, 1))
    out = np.arange(300) % 3 == 0
    epsilon, loss = 0.05, EpsilonInsensitive(0.05, 0.0)
    path, _ = held_out(Problem(source(Z, size=25), y, w, loss, 1.0), [out])
    constant = best_constant(loss, y, np.where(out[:, None], 0.0, w))
    unfitted = np.maximum(np.abs(y - constant) - epsilon, 0)[out].mean()
    assert path.tie == pytest.approx(1e-3 * epsilon / unfitted)
    assert path.errors[path.best] <= 1.0001 * path.errors.min() + path.tie
    assert len(path.errors) < 18
    assert np.all(path.errors[: path.best] > 1.0001 * path.errors.min() + path.tie)
    assert held_out(Problem(source(Z, size=25), y, w, Absolute(), 1.0), [out])[0].tie == 0
