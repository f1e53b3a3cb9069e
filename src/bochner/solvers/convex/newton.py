"""Newton's method for sums of convex losses on features, smooth or not.

    minimise  Σᵢ wᵢ ℓ(yᵢ, φ(xᵢ)·β + b) + (alpha/2) ‖β‖²

About multipliers, one per row, a loss whose slope jumps is replaced by a smooth one of width δ
about f + δu, its Moreau envelope, and u ← slope of the smooth loss makes the replacement exact.
Each subproblem is solved by Newton steps, whose Hessian αI + Σ wᵢ cᵢ zᵢ zᵢᵀ has a term only for
rows within δ of a jump: few of them, once δ has shrunk. This is the augmented Lagrangian method
with semismooth Newton steps of Li, Sun and Toh (2018), on features. For piecewise linear losses it
ends after finitely many steps, and the duality gap

    Σ wᵢ (ℓ(fᵢ) − ℓ(vᵢ) − uᵢ (fᵢ − vᵢ)) ≥ 0,      v = f + δu − δ·slope,

bounds the distance from the least value. Smooth losses take the same steps, with neither widths nor
multipliers. A step reads the features twice: for gradient and Hessian, and for its image Zd, with
which the length of the step is found on n numbers.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from bochner._core.shapes import Array, Float
from bochner.solvers.cg import inner
from bochner.solvers.convex.losses import weighted
from bochner.solvers.convex.problem import (
    TINY,
    Algorithm,
    Convergence,
    FeatureBlock,
    Optimum,
    Problem,
    State,
    Step,
    best_constant,
    images,
    least_length,
    taken_rows,
)
from bochner.solvers.convex.systems import (
    HessianProducts,
    KeptHessians,
    LossAtRows,
    sums_at,
    systems_of_rows,
)

NOISE = 1e-9  # Gains below this share of loss and penalty may be rounding
FEWEST = 500  # Rows below which a descent does not start from its minimum for every fourth row


def fastest(problem: Problem) -> Algorithm:
    """Return factors where features are in memory and few: more where rows are inactive."""
    rows, loss = problem.rows, problem.loss
    D, local = rows.n_features, loss.has_inactive_rows or loss.nonsmooth
    # Kept Hessians are faster up to 2048 features, or 128 where all rows are active
    few = (2048 if local else 128) >= D and problem.y.shape[1] * D**2 <= 1 << 26
    suits = few and rows.cached and problem.alpha > 0 and not loss.joint
    return "cholesky updates" if suits else "conjugate gradients"


def minimise(
    problem: Problem,
    start: State | Optimum | None = None,
    *,
    tol: float,
    max_iter: int,
    algorithm: Algorithm | None = None,
) -> State:
    """Return the minimum with the numbers of the rows there.

    By default Hessians are summed again in each step, as learners of numbers need: they weigh each
    column's rows by itself, and weights and copies of rows agree to more digits than products with
    Hessians give. Joint losses take conjugate gradients. The start is the best constant by default;
    of kept Hessians the minimum for few rows, and of smooth losses by products zero, from where the
    first step of a squared hinge is to the ridge solution.

    Ends where the duality gap, and the gain of a further step, are at most ``tol`` of loss and
    penalty. Time O(n D + a D² + D³) a step and target, a the rows within δ of a jump (all, for
    smooth losses). Memory O(t D²), and a few numbers for each row and target.
    """
    loss = problem.loss
    algorithm = algorithm or ("conjugate gradients" if loss.joint else "cholesky")
    # A subproblem is solved to this share of the duality gap, or of the tolerance
    system: Any = systems_of_rows
    share = 0.1 if loss.nonsmooth or algorithm == "cholesky" else 1.0
    if algorithm == "cholesky updates" and not loss.nonsmooth:
        system = KeptHessians(problem)
        start = start or _thinned(problem, tol, max_iter)
    elif algorithm == "conjugate gradients":
        system = HessianProducts(apart=loss.nonsmooth)
        start = start or (None if loss.nonsmooth else constant(problem, 0.0))
    if start is None:
        start = constant(problem)
    elif not isinstance(start, State) or start.multipliers is None:
        fitted = images(problem.rows, start.theta)
        slope = loss.slope(problem.y, fitted)
        start = State(start.coef, start.intercept, fitted, slope, width=0.1)
    end = _descended(problem, start, system, tol, share, max_iter)
    return replace(end, algorithm=algorithm)


def _descended(
    problem: Problem, at: State, system: Any, tol: float, share: float, max_iter: int
) -> State:
    """Take steps until every column is done; columns of a smooth loss each by itself."""
    joint, nonsmooth = problem.loss.joint, problem.loss.nonsmooth
    live, outcome = np.arange(len(at.intercept)), Convergence.CONVERGED
    steps, idle = list[Step](), 0
    every = local = _local(problem, at)
    nothing = np.full(len(live), -np.inf)
    if not np.any(problem.alpha) and isinstance(system, HessianProducts):
        nothing = 1e-9 * _local(problem, constant(problem, 0.0)).size
    size = every.size.copy()
    while True:
        if np.any(size[live] <= nothing[live]):
            outcome = Convergence.UNBOUNDED
            going = size[live] > nothing[live]
            live, local = live[going], local.at(going)
        if not len(live):
            break
        if len(steps) == max_iter:
            outcome = Convergence.MOST_STEPS
            break
        part, here = problem.at(live), at.at(live)
        step = system(part, here, local, live, tol)
        gain = -0.5 * inner(step.gradient, step.steps, joint) / local.size
        image = images(problem.rows, step.steps)
        loss, fitted = smoothed(part, here)
        length = least_length(replace(part, loss=loss), here.coef, fitted, step.steps, image)
        hessians = step.hessians if len(live) == len(size) else None
        way = State(step.steps[:, :-1].T, step.steps[:, -1], image)
        moved = replace(here.moved(length, way), hessians=hessians)
        before, local = local, _local(part, moved)
        at, size[live] = at.put(live, moved), local.size
        done = gain <= share * np.maximum(local.gap, tol)
        solved = bool(np.all(done))
        curved = np.count_nonzero(before.curvature, axis=0).max() / len(fitted)
        promised = part.objective(gain * before.size, 0.0 * gain)
        value = problem.objective(size, at.intercept)
        steps.append(Step(value, promised, step.products, curved, at.width if nonsmooth else 0.0))
        idle = 0 if solved else idle + bool(gain.max() < NOISE)
        if idle >= 3:  # three steps gained less than rounding hides
            outcome = Convergence.ROUNDED
            break
        if nonsmooth or joint:
            if solved and np.all(local.gap <= tol):
                break
            if solved:
                at = replace(at, multipliers=local.slope, width=at.width / 2)
                local = _local(problem, at)
        else:
            live, local = live[~done], local.at(~done)
    return valued(problem, replace(at, outcome=outcome, steps=tuple(steps)))


def valued(problem: Problem, at: State) -> State:
    """Return a point with its value and duality gap."""
    local = _local(problem, at)
    with np.errstate(over="ignore"):
        return replace(at, value=local.size, gap=local.gap * local.size)


def at_rows(
    problem: Problem, at: State
) -> tuple[Float[Array, "n t"], Float[Array, "n t"], list[Float[Array, "p p"]]]:
    """Return w times slope and curvature of the (smoothed) loss at the rows, and the Hessians."""
    local = _local(problem, at)
    slopes, curvatures = weighted(problem.w, local.slope), weighted(problem.w, local.curvature)
    return slopes, curvatures, sums_at(problem, at, slopes, curvatures)[1]


def _local(problem: Problem, at: State) -> LossAtRows:
    """Return slopes and curvatures for a step, and the gap as a share of the objective."""
    loss, y, f, w = problem.loss, problem.y, at.fitted, problem.w
    with np.errstate(over="ignore", invalid="ignore"):
        value = loss.value(y, f)
        sums = weighted(w, value).sum(axis=0)
        norms = inner(at.coef.T, at.coef.T, loss.joint)
        size = np.where(np.isnan(sums), np.inf, sums) + 0.5 * problem.alpha * norms
        size = np.maximum(size, TINY)
        if not loss.nonsmooth:
            return LossAtRows(loss.slope(y, f), loss.curvature(y, f), 0 * norms, size)
    smooth, c = smoothed(problem, at)
    slope = smooth.slope(y, c)
    nearest = c - at.width * slope
    short = value - loss.value(y, nearest) - slope * (f - nearest)
    gap = (w * np.maximum(short, 0.0)).sum(axis=0)
    return LossAtRows(slope, smooth.curvature(y, c), gap / size, size)


def smoothed(problem: Problem, at: State) -> tuple[Any, Float[Array, "n t"]]:
    """Return the loss of a subproblem, and where it is evaluated."""
    loss = problem.loss
    if not loss.nonsmooth or at.multipliers is None:
        return loss, at.fitted
    return loss.smooth(at.width), at.fitted + at.width * at.multipliers


# --- starts --------------------------------------------------------------------------------------


def _thinned(problem: Problem, tol: float, max_iter: int) -> State:
    """Return the minimum for every fourth row, whose own start is that for every 16th; or zero."""
    n, every = len(problem.w), 4
    taken = np.arange(n) % every == 0
    enough = n >= every * max(8 * problem.rows.n_features, FEWEST)
    if not enough or not np.any(problem.w[taken]):
        return constant(problem, 0.0)
    rows = FeatureBlock(taken_rows(problem.rows, taken))
    few = replace(problem, rows=rows, y=problem.y[taken], w=every * problem.w[taken])
    at = minimise(few, tol=max(0.1, tol), max_iter=max_iter, algorithm="cholesky updates")
    return replace(at, multipliers=None, steps=())


def constant(problem: Problem, value: float | None = None) -> State:
    """Return β = 0, the best constant or this one, and a width as wide as residuals are spread."""
    y = problem.y
    t = y.shape[1]
    best = problem.fit_intercept and value is None
    b = best_constant(problem.loss, y, problem.w) if best else np.full(t, value or 0.0)
    none, fitted = np.zeros((problem.rows.n_features, t)), np.tile(b, (len(y), 1))
    return State(none, b, fitted, np.zeros(y.shape), spread(y - b, problem.w))


def spread(r: Float[Array, "n t"], w: Float[Array, " n #t"]) -> float:
    """Return the weighted mean of |r|, or 1 where that is zero: a width to start from."""
    w = np.broadcast_to(w, r.shape)
    return float((w * np.abs(r)).sum() / w.sum()) or 1.0
