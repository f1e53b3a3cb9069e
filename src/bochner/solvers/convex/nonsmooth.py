"""Losses with kinks: multipliers, and Newton steps on the few rows that lie at the kinks.

Minimises, for every target apart,

    Σ w_i loss(y_i, f_i) + (alpha/2)|β|² + drift·b,      f = Zβ + b.

A loss with kinks is replaced by a smooth one of width δ about f + δu, its Moreau envelope, and
multipliers u (one a row) make the replacement exact: u ← slope of the smooth loss. Each
subproblem is solved by Newton steps, whose Hessian αI + Σ w_i c_i z_i z_iᵀ has a term only for the
rows within δ of a kink: few of them, once δ has shrunk. This is the augmented Lagrangian method
with semismooth Newton steps of Li, Sun and Toh (2018), on features. For losses of straight pieces
it ends after finitely many steps, and the duality gap

    Σ w_i (loss(f_i) − loss(v_i) − u_i (f_i − v_i)) ≥ 0,      v = f + δu − δ·slope,

bounds what the answer lacks of the least value. Smooth losses take the same steps, with neither
widths nor multipliers.

A step reads the features twice: for gradient and Hessian, and for its image Zd. With the image at
hand the length of the step is found on n numbers, without features.
"""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from bochner._core.shapes import Array, Float
from bochner.solvers.convex.lengths import best_constant, best_length
from bochner.solvers.convex.loss import Loss
from bochner.solvers.convex.optimum import Convergence, NewtonHistory, Optimum
from bochner.solvers.convex.second_order import (
    Features,
    Hessian,
    direction,
    images,
    pull_of,
)

#: Width of the next subproblem, as a share of the last one's.
NARROWER = 0.5

#: A subproblem is solved to this share of the duality gap, or of the tolerance.
INNER = 0.1

#: Gains below this share of loss and penalty may be rounding.
NOISE = 1e-9

#: Least loss and penalty that shares are taken of.
TINY = 1e-300

#: Steps that gain next to nothing before rounding is blamed.
PATIENCE = 3


@dataclass(frozen=True, eq=False)
class Problem:
    """What is minimised.

    Attributes
    ----------
    features : Features
    y : (n, t) float64
    w : (n, 1) or (n, t) float64
        Weights, zero or above; with t columns each target has its own, as in cross-validation.
    loss : Loss
        Elementwise, convex in f.
    alpha : float or (t,)
        Above zero; one for all targets or one each.
    fit_intercept : bool
        Whether b is fitted, or zero.
    drift : float
        Slope of the objective in b.
    value : float or (t,)
        What one is worth in the objective that is reported, where y is in other units.
    """

    features: Features
    y: Float[Array, "n t"]
    w: Float[Array, "n t"]
    loss: Loss
    alpha: Any
    fit_intercept: bool = True
    drift: float = 0.0
    value: Any = 1.0


class Step(NamedTuple):
    """What a step did; see :class:`bochner.solvers.convex.optimum.NewtonHistory`."""

    objective: float
    decrease: float
    products: int
    bending: float
    width: float


@dataclass(frozen=True, eq=False)
class State:
    """A point on the way to the minimum, with all that a neighbouring problem can start from.

    Attributes
    ----------
    coef : (D, t) float64
    intercept : (t,) float64
    fitted : (n, t) float64
        f at the rows.
    multipliers : (n, t) float64
        u: at the minimum a slope of the loss at each row, with alpha β = −Σ w_i u_i z_i.
    width : float
        δ.
    gap : (t,) float64
        What the objective is above its least value at most, as a share of loss and penalty.
    outcome : Convergence
    steps : tuple of Step
    """

    coef: Float[Array, "D t"]
    intercept: Float[Array, " t"]
    fitted: Float[Array, "n t"]
    multipliers: Float[Array, "n t"]
    width: float
    gap: Float[Array, " t"]
    outcome: Convergence = Convergence.MOST_STEPS
    steps: tuple[Step, ...] = ()


def minimise(
    problem: Problem, at: State | None = None, *, tol: float = 1e-6, max_iter: int = 200
) -> Optimum:
    """Return the minimum; see :func:`descend`."""
    return optimum(problem, descend(problem, at, tol=tol, max_iter=max_iter))


def optimum(problem: Problem, found: State, units: Any = 1.0, alpha: Any = None) -> Optimum:
    """Return what a descent found, without the rows' numbers.

    Where its targets are in ``units``, coefficients are for those in units of one, at this alpha.
    """
    local = _local(problem, found)
    with np.errstate(over="ignore"):
        gap = float((problem.value * found.gap * local.size).sum())
    return Optimum(
        units * found.coef,
        units * found.intercept,
        problem.alpha if alpha is None else alpha,
        _objective(problem, found, local),
        gap,
        found.outcome,
        NewtonHistory(*np.array(found.steps, dtype=float).reshape(-1, len(Step._fields)).T),
    )


def descend(
    problem: Problem, at: State | None = None, *, tol: float = 1e-6, max_iter: int = 200
) -> State:
    """Return the minimum and the rows' numbers there, from a start or from the best constant.

    Parameters
    ----------
    problem : Problem
    at : State, optional
        Where to start: the end for another alpha, say.
    tol : float, default 1e-6
        Largest duality gap, and largest gain of a further step, as a share of loss and penalty.
    max_iter : int, default 200
        Newton steps at most.

    Notes
    -----
    Time O(n D + a D² + D³) a step and target, a the rows within δ of a kink (all, for smooth
    losses). Memory O(t D²), and a few numbers for each row and target.
    """
    at = start(problem) if at is None else replace(at, steps=())
    local, idle = _local(problem, at), 0
    for _ in range(max_iter):
        before = local
        at, gain = _newton_step(problem, at, before)
        local = _local(problem, at)
        solved = bool(np.all(gain <= INNER * np.maximum(local.gap, tol)))
        step = _step(problem, at, before, local, gain)
        at = replace(at, gap=local.gap, steps=(*at.steps, step))
        idle = 0 if solved else idle + bool(gain.max() < NOISE)
        if solved and np.all(at.gap <= tol):
            return replace(at, outcome=Convergence.CONVERGED)
        if idle >= PATIENCE:
            return replace(at, outcome=Convergence.ROUNDED)
        if solved:
            at = replace(at, multipliers=local.slope, width=NARROWER * at.width)
            local = _local(problem, at)
    return replace(at, outcome=Convergence.MOST_STEPS)


def _objective(problem: Problem, at: State, local: "_Local") -> float:
    with np.errstate(over="ignore"):
        return float((problem.value * (local.size + problem.drift * at.intercept)).sum())


def _step(problem: Problem, at: State, before: "_Local", after: "_Local", gain: Array) -> Step:
    width = at.width if problem.loss.kinked else 0.0
    bending = float(np.count_nonzero(before.curvature) / before.curvature.size)
    objective = _objective(problem, at, after)
    with np.errstate(over="ignore"):
        decrease = float((problem.value * gain * before.size).sum())
    return Step(objective, decrease, 0, bending, width)


# --- the objective on n numbers ------------------------------------------------------------------


class _Local(NamedTuple):
    """The rows at one point: slope and curvature of the (smoothed) loss, and the duality gap."""

    slope: Float[Array, "n t"]
    curvature: Float[Array, "n t"]
    gap: Float[Array, " t"]
    size: Float[Array, " t"]


def _local(problem: Problem, at: State) -> _Local:
    """Return what a step needs to know of the rows; the gap is a share of loss and penalty."""
    loss, y, f, width = problem.loss, problem.y, at.fitted, at.width
    value = loss.value(y, f)
    size = (problem.w * value).sum(axis=0) + 0.5 * problem.alpha * (at.coef**2).sum(axis=0)
    size = np.maximum(size, TINY)
    if not loss.kinked:
        return _Local(loss.slope(y, f), loss.curvature(y, f), 0 * size, size)
    smooth, c = loss.smooth(width), f + width * at.multipliers
    slope = smooth.slope(y, c)
    nearest = c - width * slope
    short = value - loss.value(y, nearest) - slope * (f - nearest)
    gap = (problem.w * np.maximum(short, 0.0)).sum(axis=0)
    return _Local(slope, smooth.curvature(y, c), gap / size, size)


def _slope(problem: Problem, at: State, f: Array) -> Float[Array, "n t"]:
    loss = problem.loss
    if loss.kinked:
        return loss.smooth(at.width).slope(problem.y, f + at.width * at.multipliers)
    return loss.slope(problem.y, f)


# --- Newton steps --------------------------------------------------------------------------------


def _newton_step(problem: Problem, at: State, local: _Local) -> tuple[State, Float[Array, " t"]]:
    """Return the point after a step, and what it promised to gain, as a share."""
    pull, hessians = _derivatives(problem, local)
    pull[:-1] += problem.alpha * at.coef
    pull[-1] = pull[-1] + problem.drift if problem.fit_intercept else 0.0
    alphas = np.broadcast_to(problem.alpha, len(hessians))
    farthest = 100 * (1 + np.ptp(problem.y - at.fitted, axis=0))
    steps = np.stack(
        [
            direction(H, g, alpha, far, problem.fit_intercept)
            for H, g, alpha, far in zip(hessians, pull.T, alphas, farthest, strict=True)
        ],
        axis=1,
    )
    image = images(problem.features, steps, len(problem.y))
    gain = -0.5 * (pull * steps).sum(axis=0) / local.size
    return _moved(problem, at, steps, image), gain


def _derivatives(
    problem: Problem, local: _Local
) -> tuple[Float[Array, "p t"], list[Float[Array, "p p"]]]:
    """Return gradient and Hessians of the loss in (β, b), by one pass."""
    slope, curvature = problem.w * local.slope, problem.w * local.curvature
    hessians = [Hessian(problem.features.n_features + 1) for _ in range(slope.shape[1])]

    def add(Z: Array, rows: slice) -> None:
        for target, hessian in enumerate(hessians):
            hessian.add(Z, curvature[rows, target])

    gradient = pull_of(problem.features, slope, add)
    return gradient, [hessian.total() for hessian in hessians]


def _moved(problem: Problem, at: State, steps: Array, image: Array) -> State:
    """Return the lowest point along the steps."""
    d, e = steps[:-1], steps[-1]
    along = problem.alpha * (at.coef * d).sum(axis=0) + problem.drift * e
    across = problem.alpha * (d * d).sum(axis=0)

    def slope(length: Array) -> Float[Array, " t"]:
        with np.errstate(over="ignore", invalid="ignore"):
            s = _slope(problem, at, at.fitted + length * image)
            total = (problem.w * s * image).sum(axis=0) + along + length * across
        return np.nan_to_num(total, nan=np.inf, posinf=np.inf)

    length = best_length(slope, len(e))
    return replace(
        at,
        coef=at.coef + length * d,
        intercept=at.intercept + length * e,
        fitted=at.fitted + length * image,
    )


# --- starts --------------------------------------------------------------------------------------


def start(problem: Problem) -> State:
    """Return β = 0, the best constant, and a width as wide as the residuals are spread."""
    y, t = problem.y, problem.y.shape[1]
    b = best_constant(problem.loss, y, problem.w) if problem.fit_intercept else np.zeros(t)
    width = spread(y - b, problem.w)
    return State(
        np.zeros((problem.features.n_features, t)),
        b,
        np.tile(b, (len(y), 1)),
        np.zeros(y.shape),
        width,
        np.full(t, np.inf),
    )


def spread(r: Float[Array, "n t"], w: Float[Array, "n t"]) -> float:
    """Return the weighted mean of |r|, or 1 where that is zero: a width to start from."""
    w = np.broadcast_to(w, r.shape)
    return float((w * np.abs(r)).sum() / w.sum()) or 1.0


def from_multipliers(problem: Problem, u: Float[Array, "n t"]) -> State:
    """Return β = −Σ w_i u_i z_i / alpha and its images, without intercept."""
    theta = -pull_of(problem.features, problem.w * u) / problem.alpha
    theta[-1] = 0.0
    fitted = images(problem.features, theta, len(u))
    return State(theta[:-1], theta[-1], fitted, u, 1.0, np.full(len(theta[-1]), np.inf))
