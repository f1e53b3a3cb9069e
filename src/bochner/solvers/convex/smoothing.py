"""Losses whose slopes jump, smoothed about multipliers.

About multipliers, one per row, the loss is replaced by a smooth one of width δ about f + δu, its
Moreau envelope, and u ← slope of the smooth loss makes the replacement exact.
Each subproblem is solved by Newton steps, whose Hessian αI + Σ wᵢ cᵢ zᵢ zᵢᵀ has a term only for
rows within δ of a jump: few of them, once δ has shrunk. This is the augmented Lagrangian method
with semismooth Newton steps of Li, Sun and Toh (2018), on features. For piecewise linear losses it
ends after finitely many steps, and the duality gap

    Σ wᵢ (ℓ(fᵢ) − ℓ(vᵢ) − uᵢ (fᵢ − vᵢ)) ≥ 0,      v = f + δu − δ·slope,

bounds what the answer lacks of the least value. Smooth losses take the same steps, with neither
widths nor multipliers. A step reads the features twice: for gradient and Hessian, and for its
image Zd, with which the length of the step is found on n numbers.

With a active rows in memory, fewer than half of the features, a step is made by conjugate gradients
whose preconditioner is exact: a system of a rows, in O(a² D + a³) instead of O(a D² + D³).
"""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from bochner._core.blas import add_gram
from bochner._core.shapes import Array, Float
from bochner.solvers.cg import conjugate_gradients
from bochner.solvers.convex.conjugate_gradients import (
    FIRST_SHARE,
    LAST_SHARE,
    MOST_PRODUCTS,
    Hessian,
    from_rows,
)
from bochner.solvers.convex.losses import Loss, weighted
from bochner.solvers.convex.optimum import Algorithm, ConjugateGradients, Convergence, Step
from bochner.solvers.convex.problem import (
    TINY,
    LineSearch,
    OverRows,
    Problem,
    State,
    active_features,
    backward,
    best_constant,
    gradients,
    hessian_factor,
    images,
    solved,
)

HALVED = 0.5  # Width of the next subproblem about multipliers, as a share of the last one's
INNER = 0.1  # A subproblem is solved to this share of the duality gap, or of the tolerance
NOISE = 1e-9  # Gains below this share of loss and penalty may be rounding
PATIENCE = 3  # Steps that gain next to nothing before rounding is blamed
AGAIN = 0.1  # Width where a descent starts from the end of another
FEW = 0.5  # Share of the features up to which active rows are few: there both ways take as long.
FEW_IN_FLOAT64 = 64  # Rows of a block of float32, at most, that are added up in float64


# --- about multipliers ---------------------------------------------------------------------------


def descend(
    problem: Problem, start: State | None, algorithm: Algorithm, tol: float, max_iter: int
) -> State:
    """Return the minimum and the rows' numbers there, from a start or from the best constant.

    Ends where the duality gap, and the gain of a further step, are at most ``tol`` of loss and
    penalty. Time O(n D + a D² + D³) a step and target, a the rows within δ of a jump (all, for
    smooth losses). Memory O(t D²), and a few numbers for each row and target.
    """
    problem = replace(problem, y=problem.targets(), encode=None)
    at, steps, idle = _started(problem, start), [], 0
    by_products = isinstance(algorithm, ConjugateGradients)
    local = _local(problem, at)
    outcome = Convergence.MOST_STEPS
    for _ in range(max_iter):
        before = local
        at, gain, products = _newton_step(problem, at, before, by_products)
        local = _local(problem, at)
        solved = bool(np.all(gain <= INNER * np.maximum(local.gap, tol)))
        steps.append(_step(problem, at, before, local, gain)._replace(products=products))
        idle = 0 if solved else idle + bool(gain.max() < NOISE)
        if solved and np.all(local.gap <= tol):
            outcome = Convergence.CONVERGED
            break
        if idle >= PATIENCE:
            outcome = Convergence.ROUNDED
            break
        if solved:
            at = replace(at, multipliers=local.slope, width=HALVED * at.width)
            local = _local(problem, at)
    end = replace(at, algorithm=algorithm, outcome=outcome, steps=tuple(steps))
    return valued(problem, end, local)


def valued(problem: Problem, at: State, local: "_Local | None" = None) -> State:
    """Return a point with its value and duality gap."""
    local = local or _local(problem, at)
    with np.errstate(over="ignore"):
        return replace(at, value=local.size, gap=local.gap * local.size)


def _step(problem: Problem, at: State, before: "_Local", after: "_Local", gain: Array) -> Step:
    width = at.width if problem.loss.nonsmooth else 0.0
    active = float(np.count_nonzero(before.curvature) / before.curvature.size)
    with np.errstate(over="ignore"):
        objective = float((problem.value * (after.size + problem.drift * at.intercept)).sum())
        decrease = float((problem.value * gain * before.size).sum())
    return Step(objective, decrease, 0, active, width)


def at_rows(
    problem: Problem, at: State
) -> tuple[Float[Array, "n t"], Float[Array, "n t"], list[Float[Array, "p p"]]]:
    """Return w times slope and curvature of the (smoothed) loss at the rows, and the Hessians."""
    local = _local(problem, at)
    slopes, curvatures = weighted(problem.w, local.slope), weighted(problem.w, local.curvature)
    return slopes, curvatures, _sums(problem, at, slopes, curvatures)[1]


class _Local(NamedTuple):
    """The rows at one point: slope and curvature of the (smoothed) loss, and the duality gap."""

    slope: Float[Array, "n t"]
    curvature: Float[Array, "n t"]
    gap: Float[Array, " t"]
    size: Float[Array, " t"]


def _local(problem: Problem, at: State) -> _Local:
    """Return slopes and curvatures for a step, and the gap as a share of the objective."""
    loss, y, f, w = problem.loss, problem.y, at.fitted, problem.w
    value = loss.value(y, f)
    size = weighted(w, value).sum(axis=0) + 0.5 * problem.alpha * (at.coef**2).sum(axis=0)
    size = np.maximum(size, TINY)
    if not loss.nonsmooth:
        return _Local(loss.slope(y, f), loss.curvature(y, f), 0 * size, size)
    smooth, c = _smoothed(problem, at)
    slope = smooth.slope(y, c)
    nearest = c - at.width * slope
    short = value - loss.value(y, nearest) - slope * (f - nearest)
    gap = (w * np.maximum(short, 0.0)).sum(axis=0)
    return _Local(slope, smooth.curvature(y, c), gap / size, size)


def _smoothed(problem: Problem, at: State) -> tuple[Loss, Float[Array, "n t"]]:
    """Return the loss of a subproblem, and where it is looked at."""
    loss = problem.loss
    if not loss.nonsmooth or at.multipliers is None:
        return loss, at.fitted
    return loss.smooth(at.width), at.fitted + at.width * at.multipliers


def _newton_step(
    problem: Problem, at: State, local: _Local, by_products: bool
) -> tuple[State, Float[Array, " t"], int]:
    """Return the point after a step, what it promised to gain, as a share, and the products."""
    slopes, curvatures = weighted(problem.w, local.slope), weighted(problem.w, local.curvature)
    D = problem.rows.n_features
    few = problem.rows.cached and bool(np.all(problem.alpha)) and _are_few(curvatures, D)
    sums: list[Any] = []
    if by_products or few:
        gradient = gradients(problem.rows, slopes)
    else:
        gradient, sums = _sums(problem, at, slopes, curvatures)
    gradient[:, :-1] += (problem.alpha * at.coef).T
    gradient[:, -1] = gradient[:, -1] + problem.drift if problem.fit_intercept else 0.0
    if sums:
        alphas = np.broadcast_to(problem.alpha, len(sums))
        farthest = 100 * (1 + np.ptp(problem.y - at.fitted, axis=0))
        each, products = zip(sums, gradient, alphas, farthest, strict=True), 0
        steps = np.stack([_direction(*numbers, problem.fit_intercept) for numbers in each])
    else:
        steps, products = _by_products(problem, at, local, gradient)
    image = images(problem.rows, steps)
    gain = -0.5 * (gradient * steps).sum(axis=1) / local.size
    loss, fitted = _smoothed(problem, at)
    line = LineSearch(problem, loss, np.arange(len(steps)), at.theta, fitted, steps, image)
    hessians = (curvatures, sums) if sums and not problem.loss.nonsmooth else None
    return replace(at.moved(line.least(), steps, image), hessians=hessians), gain, products


def _by_products(
    problem: Problem, at: State, local: _Local, gradient: Array
) -> tuple[Float[Array, "t p"], int]:
    """Return the steps by conjugate gradients: no Hessian is formed."""
    hessian = Hessian.of(problem, problem.loss, local.curvature, at.width)
    inverse = from_rows(hessian, apart=True)
    promised = -0.5 * (gradient * inverse(-gradient)).sum(axis=1) / local.size
    shares = np.clip(np.sqrt(np.abs(promised)), LAST_SHARE, FIRST_SHARE)
    direction = conjugate_gradients(hessian, -gradient, inverse, shares, MOST_PRODUCTS)
    return direction.solution, direction.products


def _sums(
    problem: Problem, at: State, slopes: Array, curvatures: Array
) -> tuple[Float[Array, "t p"], list[Any]]:
    """Return the gradients and the Hessians; those of the same curvatures as before are kept."""
    kept = at.hessians
    if kept is not None and np.array_equal(kept[0], curvatures):
        return gradients(problem.rows, slopes), kept[1]
    part = OverRows(_gradients_and_hessians, (slopes, curvatures), into=True)
    gradient, hessians = problem.rows.sum(part)
    return gradient, list(hessians)


def _gradients_and_hessians(
    total: Any, Z: Float[Array, "b D"], slopes: Float[Array, "b t"], curvatures: Float[Array, "b t"]
) -> tuple[Float[Array, "t p"], tuple[Float[Array, "p p"], ...]]:
    """Add Σ sᵢ [zᵢ 1] and upper triangles of Σ cᵢ [zᵢ 1]ᵀ [zᵢ 1], for each column of s and c."""
    t, p = slopes.shape[1], Z.shape[1] + 1
    if total is None:
        total = np.zeros((t, p)), tuple(np.zeros((p, p), order="F") for _ in range(t))
    gradient, hessians = total
    gradient += backward(Z, slopes)
    for H, c in zip(hessians, curvatures.T, strict=True):
        _add_active(H, Z, c)
    return gradient, hessians


def _add_active(H: Float[Array, "p p"], Z: Float[Array, "b D"], c: Float[Array, " b"]) -> None:
    """Add the rows with c > 0."""
    many = np.count_nonzero(c > 0) > FEW_IN_FLOAT64
    A = active_features(Z, c, Z.dtype if many else np.float64)
    if A.dtype == np.float64:
        add_gram(H, A)
        return
    part = np.zeros(H.shape, A.dtype, order="F")
    add_gram(part, A)
    H += part


def _direction(
    H: Float[Array, "p p"], gradient: Float[Array, " p"], alpha: float, farthest: float, free: bool
) -> Float[Array, " p"]:
    """Return −(H + alpha I)⁻¹ times the gradient, alpha for the features only.

    The intercept moves by about ``farthest`` at most where no row holds it, and not at all unless
    it is free.
    """
    diagonal = np.diag(H) + alpha
    diagonal[-1] = max(H[-1, -1], abs(gradient[-1]) / farthest, TINY)
    return -solved(hessian_factor(H, diagonal, free), gradient[None])[0]


# --- few active rows ---------------------------------------------------------------------------


def _are_few(curvatures: Float[Array, "n t"], n_features: int) -> bool:
    """Whether every column has few active rows, and some."""
    active = np.count_nonzero(curvatures, axis=0)
    return int(active.min()) > 0 and int(active.max()) <= FEW * n_features


# --- starts --------------------------------------------------------------------------------------


def _started(problem: Problem, at: State | None) -> State:
    if at is None:
        return constant(problem)
    if at.multipliers is not None:
        return at
    fitted = images(problem.rows, at.theta)
    slope = problem.loss.slope(problem.targets(), fitted)
    return replace(at, fitted=fitted, multipliers=slope, width=AGAIN)


def constant(problem: Problem) -> State:
    """Return β = 0, the best constant, and a width as wide as the residuals are spread."""
    y = problem.targets()
    t = y.shape[1]
    b = best_constant(problem.loss, y, problem.w) if problem.fit_intercept else np.zeros(t)
    none, far = np.zeros((problem.rows.n_features, t)), np.full(t, np.inf)
    fitted = np.tile(b, (len(y), 1))
    return State(none, b, fitted, far, far, np.zeros(y.shape), spread(y - b, problem.w))


def spread(r: Float[Array, "n t"], w: Float[Array, " n #t"]) -> float:
    """Return the weighted mean of |r|, or 1 where that is zero: a width to start from."""
    w = np.broadcast_to(w, r.shape)
    return float((w * np.abs(r)).sum() / w.sum()) or 1.0


def from_multipliers(problem: Problem, u: Float[Array, "n t"]) -> State:
    """Return β = −Σ wᵢ uᵢ zᵢ / alpha and its images, without intercept."""
    theta = -gradients(problem.rows, problem.w * u) / problem.alpha
    theta[:, -1] = 0.0
    fitted, far = images(problem.rows, theta), np.full(len(theta), np.inf)
    return State(theta[:, :-1].T, theta[:, -1], fitted, far, far, u, 1.0)
