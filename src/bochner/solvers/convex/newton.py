"""Newton's method for sums of convex losses, smooth or not, on features or with a kernel.

    minimise  Σᵢ wᵢ ℓ(yᵢ, φ(xᵢ)·β + b) + (alpha/2) ‖β‖²

About multipliers, one per row, a loss whose slope jumps is replaced by a smooth one of width δ
about f + δu, its Moreau envelope, and u ← slope of the smooth loss makes the replacement exact:
the augmented Lagrangian method with semismooth Newton steps of Li, Sun and Toh (2018), on features.
A Hessian αI + Σ wᵢ cᵢ zᵢ zᵢᵀ has a term only for the few rows within δ of a jump. For piecewise
linear losses it ends after finitely many steps, and the duality gap

    Σ wᵢ (ℓ(fᵢ) − ℓ(vᵢ) − uᵢ (fᵢ − vᵢ)) ≥ 0,      v = f + δu − δ·slope,

bounds the distance from the least value. A step reads the features twice: for gradient and
Hessian, and for its image Zd, with which the length of the step is found on n numbers.

Of the systems H d = −∇, H = [Z 1]ᵀ S [Z 1] + alpha diag(1, …, 1, 0) with the curvatures of the rows
in S, features have three. Hessians are summed again in each step (:func:`systems_of_rows`), or the
last one is changed by the rows whose curvature has changed, O(a D² + D³) for a of them
(:func:`kept_hessians`; Mangasarian 2002; Keerthi and DeCoste 2005). Conjugate gradients
(:func:`hessian_products`; Lin, Weng and Keerthi 2008) are preconditioned with moments of a few
thousand rows drawn by their curvature, or exactly where rows are few: O(a² D + a³).

Rows with a kernel have one coefficient each, f = Kc + b, and systems of their own
(:meth:`~.problem.DualRows.system`), which serve several steps with conjugate gradients between them
(:func:`conjugate_steps`; Polak and Ribière).
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import cho_solve

from bochner._core.blas import add_gram, mirror
from bochner._core.shapes import Array, Float
from bochner.solvers.cg import conjugate_gradients, inner
from bochner.solvers.convex.losses import Loss, weighted
from bochner.solvers.convex.problem import (
    TINY,
    Algorithm,
    Convergence,
    DualRows,
    FeatureBlock,
    Gradient,
    OverRows,
    Problem,
    Rows,
    State,
    backward,
    best_constant,
    forward,
    gradients,
    hessian_factor,
    images,
    least_length,
    places,
    side_by_side,
    solved,
    taken_rows,
)
from bochner.solvers.factorisations import FLOAT32_PENALTY, raised_factor

NOISE = 1e-9  # Gains below this share of loss and penalty may be rounding
EVERY = 4  # Step of thinning, where enough rows are left to start from
FEWEST, FEWEST_DUAL = 500, 256  # That many rows, on features and on a kernel matrix
FLOOR = 1e-7  # Least curvature of an intercept, as a share of that if every row were active


class LossAtRows(NamedTuple):
    """The rows at one point: slope and curvature of the (smoothed) loss, and the duality gap."""

    slope: Float[Array, "n t"]
    curvature: Float[Array, "n t"]
    gap: Float[Array, " t"]  # as a share of the objective
    size: Float[Array, " t"]  # the objective, of a joint loss in every place

    def at(self, columns: Array) -> "LossAtRows":
        """Return the part of these columns."""
        return LossAtRows(*(a[..., columns] for a in self))


#: Slope of the objective of each column along its Newton step, the step, and curvatures with
#: Hessians for the next step.
Direction = tuple[Float[Array, " t"], State, Any]


def fastest(problem: Problem) -> Algorithm:
    """Return the fastest algorithm: Cholesky updates for few features in memory."""
    rows, loss = problem.rows, problem.loss
    D, local = rows.n_features, loss.has_inactive_rows or loss.nonsmooth
    # Kept Hessians are faster up to 2048 features, or 128 where all rows are active
    few = (2048 if local else 128) >= D and problem.y.shape[1] * D**2 <= 1 << 26
    suits = few and rows.cached and problem.alpha > 0 and not loss.joint
    return "cholesky updates" if suits else "conjugate gradients"


def minimise(
    problem: Problem,
    start: Any = None,
    *,
    tol: float,
    max_iter: int,
    algorithm: Algorithm | None = None,
) -> State:
    """Return the minimum, to a share ``tol`` of loss and penalty, with f at the rows there.

    ``start`` is a State, or an Optimum on features. By default Hessians are summed again in each
    step: weights and copies of rows then agree best.
    """
    loss, rows, dual = problem.loss, problem.rows, isinstance(problem.rows, DualRows)
    algorithm = algorithm or ("conjugate gradients" if loss.joint else "cholesky")
    # A subproblem is solved to this share of the duality gap, or of the tolerance
    system: Any = systems_of_rows
    share = 0.1 if loss.nonsmooth or algorithm == "cholesky" else 1.0
    if dual:
        if start is None and loss.has_inactive_rows:
            start = _thinned(problem, FEWEST_DUAL, tol, max_iter)
        if problem.y.shape[1] > 1 and not loss.joint:  # one by one, as a factor is large
            ends = []
            for k in np.arange(problem.y.shape[1])[:, None]:
                near = None if start is None else start.at(k)
                ends.append(minimise(problem.at(k), near, tol=tol, max_iter=max_iter))
            return side_by_side(ends)
        local = loss.has_inactive_rows or loss.nonsmooth
        system, share = conjugate_steps(), 1.0
        algorithm = "cholesky" if local else "conjugate gradients"
        start = start or constant(problem, 0.0 if local or loss.joint else None)
    elif algorithm == "cholesky updates" and not loss.nonsmooth:
        system = kept_hessians(problem)
        few = max(8 * rows.n_features, FEWEST)
        start = start or _thinned(problem, few, tol, max_iter) or constant(problem, 0.0)
    elif algorithm == "conjugate gradients":
        system = hessian_products(apart=loss.nonsmooth)
        start = start or (None if loss.nonsmooth else constant(problem, 0.0))
    if start is None:
        start = constant(problem)
    elif not isinstance(start, State) or start.multipliers is None:
        theta = np.column_stack([start.coef.T, start.intercept])
        fitted = start.fitted if dual else images(rows, theta)  # else maybe of other rows
        slope = loss.slope(problem.y, fitted)
        start = State(start.coef, start.intercept, fitted, slope, width=0.1)
    end = _descended(problem, start, system, tol, share, max_iter)
    return replace(end, algorithm=algorithm)


def _descended(
    problem: Problem, at: State, system: Any, tol: float, share: float, max_iter: int
) -> State:
    """Take steps until every column is done; columns of a smooth loss each by itself."""
    joint, nonsmooth = problem.loss.joint, problem.loss.nonsmooth
    of_kernel = isinstance(problem.rows, DualRows)
    live, outcome = np.arange(len(at.intercept)), Convergence.CONVERGED
    taken = idle = 0
    local = loss_at_rows(problem, at)
    threshold = np.full(len(live), -np.inf)
    if not np.any(problem.alpha) and system is not systems_of_rows:
        threshold = 1e-9 * loss_at_rows(problem, constant(problem, 0.0)).size
    while True:
        going = local.size > threshold[live]
        if not np.all(going):
            outcome = Convergence.UNBOUNDED
            live, local = live[going], local.at(going)
        if not len(live):
            break
        if taken == max_iter:
            outcome = Convergence.MOST_STEPS
            break
        part, here = problem.at(live), at.at(live)
        slope, step, hessians = system(part, here, local, live, tol)
        gain = -0.5 * slope / local.size  # that it promises
        loss, fitted = smoothed(part, here)
        length = least_length(replace(part, loss=loss), fitted, here, step)
        hessians = hessians if len(live) == len(threshold) else None
        moved = replace(here.moved(length, step), hessians=hessians)
        before, local = local.size, loss_at_rows(part, moved)
        if of_kernel and not nonsmooth:  # by an older Hessian a step may make more than it promises
            gain = np.maximum(gain, (before - local.size) / local.size)
        at = at.put(live, moved)
        done = gain <= share * np.maximum(local.gap, tol)
        solved = bool(np.all(done))
        taken += 1
        idle = 0 if solved else idle + bool(gain.max() < NOISE)
        if idle >= 3:  # three steps gained less than rounding hides
            outcome = Convergence.ROUNDED
            break
        if nonsmooth or joint:
            if solved and np.all(local.gap <= tol):
                break
            if solved:
                at = replace(at, multipliers=local.slope, width=at.width / 2)
                local = loss_at_rows(problem, at)
        else:
            live, local = live[~done], local.at(~done)
    return valued(problem, replace(at, outcome=outcome, steps=taken))


def valued(problem: Problem, at: State) -> State:
    """Return a point with its value and duality gap."""
    local = loss_at_rows(problem, at)
    with np.errstate(over="ignore"):
        return replace(at, value=local.size, gap=local.gap * local.size)


def loss_at_rows(problem: Problem, at: State) -> LossAtRows:
    """Return slopes and curvatures for a step, and the gap as a share of the objective."""
    loss, y, f, w = problem.loss, problem.y, at.fitted, problem.w
    size = np.maximum(problem.values(at), TINY)
    if not loss.nonsmooth:
        with np.errstate(over="ignore", invalid="ignore"):
            return LossAtRows(loss.slope(y, f), loss.curvature(y, f), np.zeros_like(size), size)
    smooth, c = smoothed(problem, at)
    slope = smooth.slope(y, c)
    nearest = c - at.width * slope
    short = loss.value(y, f) - loss.value(y, nearest) - slope * (f - nearest)
    gap = (w * np.maximum(short, 0.0)).sum(axis=0)
    return LossAtRows(slope, smooth.curvature(y, c), gap / size, size)


def smoothed(problem: Problem, at: State) -> tuple[Any, Float[Array, "n t"]]:
    """Return the loss of a subproblem, and where it is evaluated."""
    loss = problem.loss
    if not loss.nonsmooth or at.multipliers is None:
        return loss, at.fitted
    return loss.smooth(at.width), at.fitted + at.width * at.multipliers


# --- starts --------------------------------------------------------------------------------------


def _thinned(problem: Problem, least: int, tol: float, max_iter: int) -> State | None:
    """Return the minimum for every fourth row of positive weight; None for fewer than ``least``."""
    rows, taken = problem.rows, np.zeros(len(problem.w), bool)
    taken[np.flatnonzero(np.any(problem.w > 0, axis=1))[::EVERY]] = True
    if np.count_nonzero(taken) < least:
        return None
    dual = isinstance(rows, DualRows)
    part: Any = rows.part(taken) if dual else FeatureBlock(taken_rows(rows, taken))
    few = replace(problem, rows=part, y=problem.y[taken], w=EVERY * problem.w[taken])
    at = minimise(few, tol=max(0.1, tol), max_iter=max_iter, algorithm="cholesky updates")
    if not dual:
        return replace(at, multipliers=None, steps=0)
    coef = np.zeros(problem.y.shape)
    coef[taken] = at.coef
    return State(coef, at.intercept, rows @ coef + at.intercept)


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


# --- systems: Hessians as matrices ----------------------------------------------------------------


def _completed(problem: Problem, at: State, gradient: Float[Array, "t p"]) -> Float[Array, "t p"]:
    """Return the gradient of the objective from the gradient of the loss, in place."""
    gradient[:, :-1] += (problem.alpha * at.coef).T
    gradient[:, -1] = gradient[:, -1] + problem.drift if problem.fit_intercept else 0.0
    return gradient


def systems_of_rows(
    problem: Problem, at: State, local: LossAtRows, columns: Array, tol: float
) -> Direction:
    """Return the Newton steps of columns, by Hessians or by systems of few active rows."""
    slopes, curvatures = weighted(problem.w, local.slope), weighted(problem.w, local.curvature)
    active = np.count_nonzero(curvatures, axis=0)
    few = active.min() > 0 and active.max() <= problem.rows.n_features / 2  # both take as long
    if few and problem.rows.cached and np.all(problem.alpha):
        return hessian_products(apart=True)(problem, at, local, columns, tol)
    gradient, hessians = sums_at(problem, at, slopes, curvatures)
    gradient = _completed(problem, at, gradient)
    # Where no row holds an intercept it moves by about this much at most.
    farthest = 100 * (1 + np.ptp(problem.y - at.fitted, axis=0))
    steps, alphas = np.empty(gradient.shape), np.broadcast_to(problem.alpha, len(gradient))
    for k, (H, alpha) in enumerate(zip(hessians, alphas, strict=True)):
        least = abs(gradient[k, -1]) / farthest[k]
        factor = hessian_factor(H, alpha, least, problem.fit_intercept)
        steps[k] = -solved(factor, gradient[[k]])[0]
    kept = None if problem.loss.nonsmooth else (curvatures, hessians)
    return _direction(problem, gradient, steps, kept)


def _direction(
    problem: Problem, gradient: Float[Array, "t p"], steps: Float[Array, "t p"], kept: Any = None
) -> Direction:
    """Return steps with their images."""
    step = State(steps[:, :-1].T, steps[:, -1], images(problem.rows, steps))
    return inner(gradient, steps, problem.loss.joint), step, kept


def sums_at(
    problem: Problem, at: State, slopes: Array, curvatures: Array
) -> tuple[Float[Array, "t p"], list[Any]]:
    """Return the gradients and the Hessians; for the same curvatures as before they are kept."""
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


def _add_active(
    H: Float[Array, "p p"], Z: Float[Array, "b D"], c: Float[Array, " b"], sign: float = 1.0
) -> None:
    """Add sign Σ c [z 1]ᵀ[z 1] of the rows with c > 0 to the upper triangle."""
    active = np.flatnonzero(c > 0)
    single = H.dtype == np.float32 or len(active) > 64  # few rows are added up in float64
    A = np.ones((len(active), len(H)), Z.dtype if single else np.float64)
    A[:, :-1] = Z[active]
    A *= np.sqrt(c[active])[:, None]
    if A.dtype == H.dtype:
        add_gram(H, A, sign)
        return
    part = np.zeros(H.shape, A.dtype, order="F")
    add_gram(part, A, sign)
    H += part


def kept_hessians(problem: Problem) -> Callable[..., Direction]:
    """Return steps that keep Σ c z zᵀ of each column, z ending in a one, and the last factor."""
    # The upper triangle in Fortran order, c, and rows that changed since the sum was new
    sums: list[tuple[Array, Array, int] | None] = [None] * problem.y.shape[1]
    total: Any = None
    last = np.empty(0)

    def factor(problem: Problem, k: int, c: Float[Array, " n"]) -> Array:
        """Return the factor of column k, of the features' precision where that resolves alpha."""
        nonlocal total, last
        if total is None or not np.array_equal(total[1], c):
            total = _changed(problem.rows, sums[k], c)
            H = total[0]
            trace = float(np.trace(H, dtype=np.float64)) + len(H) * problem.alpha
            single = H.dtype == np.float32 and problem.alpha >= FLOAT32_PENALTY * trace
            least = FLOOR * float(problem.w.sum())
            last = hessian_factor(H, problem.alpha, least, problem.fit_intercept, single)
        sums[k] = total
        return last

    def steps(
        problem: Problem, at: State, local: LossAtRows, columns: Array, _tol: float
    ) -> Direction:
        gradient = gradients(problem.rows, weighted(problem.w, local.slope))
        gradient, c = _completed(problem, at, gradient), weighted(problem.w, local.curvature)
        each = zip(columns.tolist(), c.T, gradient, strict=True)
        made = [-solved(factor(problem, k, h.copy()), g[None]) for k, h, g in each]
        return _direction(problem, gradient, np.concatenate(made))

    return steps


def _changed(
    rows: Rows, old: tuple[Array, Array, int] | None, c: Float[Array, " n"]
) -> tuple[Array, Array, int]:
    """Return the sum with factors c: updated if few rows changed, otherwise computed again."""
    if old is not None:
        total, factors, drift = old
        change, active = c - factors, int(np.count_nonzero(c))
        count = int(np.count_nonzero(change))
        drift += count
        if count <= 0.7 * active and drift <= 4 * active:
            total = total.copy(order="F")
            for block in rows:
                part = change[places(block)]
                _add_active(total, block.Z, np.maximum(part, 0.0))
                _add_active(total, block.Z, np.maximum(-part, 0.0), -1.0)
            return total, c, drift
    p, dtype = rows.n_features + 1, next(iter(rows)).Z.dtype
    total = np.zeros((p, p), dtype, order="F")
    for block in rows:
        _add_active(total, block.Z, c[places(block)])
    return total, c, 0


# --- products with Hessians ----------------------------------------------------------------------


def _hessian_product(
    Z: Float[Array, "b D"],
    state: Float[Array, "b u"],
    w: Float[Array, "b v"],
    loss: Loss,
    V: Float[Array, "u p"],
) -> Float[Array, "u p"]:
    """Return [Z 1]ᵀ S [Z 1] times the rows of V, (u, p), in 4 n D u operations."""
    return backward(Z, w * loss.hessian_product(state, forward(Z, V)))


class Hessian:
    """Multiplies by H, over the rows with curvature where they are few, else over all."""

    def __init__(self, problem: Problem, state: Float[Array, "n u"], width: float) -> None:
        w, rows, self.loss, self.alpha = problem.w, problem.rows, problem.loss, problem.alpha
        active = np.any(state, axis=1) & np.any(w > 0, axis=1)
        first, share = next(iter(rows)).Z, float(active.mean())
        size = int(active.sum()) * first.shape[1] * first.itemsize
        if 0 < share <= 0.5 and (rows.cached or size <= 256 << 20):
            rows = FeatureBlock(taken_rows(rows, active))  # products read them alone
            state, w = state[active], w[active]
        self.rows, self.state, self.w = rows, state, w
        # Least curvature of an intercept, for no row may be active where a loss is smoothed; or 0
        intercept = problem.fit_intercept
        self.floor = FLOOR * float(problem.w.sum()) / width if intercept else 0.0

    def __call__(self, V: Float[Array, "u p"], columns: Array) -> Float[Array, "u p"]:
        """Return the Hessians of these columns times the rows of V."""
        each = np.ndim(self.alpha) > 0
        out, state, w = (self.alpha[columns, None] if each else self.alpha) * V, self.state, self.w
        out[:, -1] = self.floor * V[:, -1]
        if not self.loss.joint and len(columns) < state.shape[1]:
            state, w = state[:, columns], w[:, columns] if w.shape[1] > 1 else w
        part = partial(_hessian_product, loss=self.loss, V=V)
        out += self.rows.sum(OverRows(part, (state, w)))
        if not self.floor:
            out[:, -1] = 0.0
        return out


# --- preconditioners -----------------------------------------------------------------------------


Solve = Callable[[Float[Array, "t p"]], Float[Array, "t p"]]


def preconditioner(
    Z: Float[Array, "m D"], curvatures: Float[Array, " m"], alpha: float, floor: float
) -> Solve:
    """Return an approximate inverse; ``floor`` is an intercept's least curvature, or 0.

    It solves in coefficients about the mean, where the intercept is alone.
    """
    if not np.all(curvatures > 0):
        Z, curvatures = Z[curvatures > 0], curvatures[curvatures > 0]
    D, mass = Z.shape[1], float(curvatures.sum())
    mean = (curvatures @ Z / mass).astype(np.float64) if floor and mass else np.zeros(D)
    U = np.sqrt(curvatures).astype(Z.dtype)[:, None] * (Z - mean.astype(Z.dtype))
    rows: Array | None = None
    if 2 * len(U) < D and alpha > 0:  # then alpha I + U Uᵀ is factored, else UᵀU + alpha I
        rows = U.astype(np.float64)
        G = rows @ rows.T
    else:
        G = np.zeros((D, D), U.dtype, order="F")
        add_gram(G, U)
        G = mirror(G).astype(np.float64)
    size = max(float(np.trace(G)) / max(len(G), 1), alpha, 1e-300)
    factor = raised_factor(G + alpha * np.eye(len(G)), 0.0, 1e-7 * size)

    def solve(V: Float[Array, "t p"]) -> Float[Array, "t p"]:
        v = V[:, :-1] - np.outer(V[:, -1], mean)
        if rows is None:
            coef = cho_solve((factor, True), v.T, check_finite=False).T
        else:
            coef = (v - cho_solve((factor, True), rows @ v.T, check_finite=False).T @ rows) / alpha
        last = V[:, -1] / (mass + floor) - coef @ mean if floor else np.zeros(len(V))
        return np.column_stack([coef, last])

    return solve


def from_rows(hessian: Hessian, apart: bool) -> list[Solve]:
    """Return a preconditioner of all columns, or of each, of 2 D rows drawn by their curvatures."""
    rows, curvature = hessian.rows, hessian.w * hessian.loss.diagonal(hessian.state)
    columns = (curvature if apart else curvature.mean(axis=1, keepdims=True)).T
    shares = np.stack([_draw(c, 2 * rows.n_features) for c in columns])
    taken = np.any(shares > 0, axis=0)
    Z = taken_rows(rows, taken)
    each = zip(shares[:, taken], np.broadcast_to(hessian.alpha, len(columns)), strict=True)
    return [preconditioner(Z, *numbers, hessian.floor) for numbers in each]


def _draw(weights: Float[Array, " m"], most: int) -> Float[Array, " m"]:
    """Return the weights if few are not zero, else weights of about ``most`` rows instead."""
    if np.count_nonzero(weights) <= most:
        return weights
    sums = np.cumsum(weights)
    tick = sums[-1] / most
    return tick * np.diff(np.floor(sums / tick + 0.5), prepend=0.0)


def hessian_products(apart: bool) -> Callable[..., Direction]:
    """Return steps by conjugate gradients; the preconditioner is kept while it is cheaper to keep.

    ``apart``: each column has its own preconditioner, made again in each step.
    """
    shared: list[Solve] = []

    def steps(
        problem: Problem, at: State, local: LossAtRows, _columns: Array, tol: float
    ) -> Direction:
        nonlocal shared
        gradient = gradients(problem.rows, weighted(problem.w, local.slope))
        gradient, joint = _completed(problem, at, gradient), problem.loss.joint
        width = at.width if problem.loss.nonsmooth else 1.0
        hessian = Hessian(problem, local.curvature, width)
        parts = shared or from_rows(hessian, apart)

        def inverse(V: Float[Array, "u p"], columns: Array) -> Float[Array, "u p"]:
            if len(parts) == 1:
                return parts[0](V)
            return np.concatenate([parts[c](v[None]) for c, v in zip(columns, V, strict=True)])

        nearly = inverse(gradient, np.arange(len(gradient)))
        rest = np.maximum(0.5 * inner(gradient, nearly, joint) / local.size, TINY)
        # Solutions may leave a tenth of the gradient at first, and at last a hundredth, or what is
        # a tenth of the tolerance: the step is then Newton's to the square of that share.
        shares = np.clip(np.maximum(np.sqrt(rest), np.sqrt(0.1 * tol / rest)), 0.01, 0.1)
        along = partial(inner, joint=joint)
        step = conjugate_gradients(hessian, -gradient, inverse, shares, 250, along)
        # An operation of a product takes six times as long as one of making the preconditioner.
        D, n = hessian.rows.n_features, len(hessian.w)
        spent, making = step.products * 24 * D * n * len(gradient), (min(2 * D, n) + D / 3) * D**2
        shared = [] if apart or spent >= making else parts
        return _direction(problem, gradient, step.solution)

    return steps


# --- systems of rows with a kernel ----------------------------------------------------------------


def _slope_along(gradient: Gradient, step: State) -> float:
    r, s = gradient
    return float((r * (step.fitted - step.intercept)).sum()) + float(s @ step.intercept)


def conjugate_steps() -> Callable[..., Direction]:
    """Return steps by the system of rows with a kernel, made again after 6, 18, 42 of them.

    With inactive rows it is made again in each step, else steps are conjugate.
    """
    system: Any = None
    before: tuple[Gradient, float, State] | None = None
    since, most = 0, 6  # steps with the first one; twice as many with each that follows

    def steps(
        problem: Problem, at: State, local: LossAtRows, _columns: Array, _tol: float
    ) -> Direction:
        nonlocal system, before, since, most
        always = problem.loss.has_inactive_rows or problem.loss.nonsmooth
        if system is None or always or since >= most:
            most *= 1 + (since >= most)
            system, since = problem.rows.system(problem, local.curvature), 0
        since += 1
        slopes = weighted(problem.w, local.slope)
        gradient = slopes + problem.alpha * at.coef, problem.fit_intercept * slopes.sum(axis=0)
        up = step = system(gradient)
        steepest = _slope_along(gradient, up)
        if before is not None and not always:
            old, size, earlier = before
            share = max((steepest - _slope_along(old, up)) / min(size, -TINY), 0.0)
            turned = up.moved(share, earlier)
            step = turned if _slope_along(gradient, turned) < 0 else up
        before = gradient, steepest, step
        return np.full(len(at.intercept), steepest), step, None

    return steps
