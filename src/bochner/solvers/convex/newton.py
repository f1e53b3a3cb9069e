"""Newton's method for sums of convex losses, smooth or not, on features or with a kernel.

    minimise  Σᵢ wᵢ ℓ(yᵢ, φ(xᵢ)·β + b) + (alpha/2) ‖β‖²

A loss whose slope jumps is replaced by its Moreau envelope of width δ at f + δu, with a multiplier
u per row. The update u ← slope of the envelope makes the replacement exact: this is the augmented
Lagrangian method with semismooth Newton steps of Li, Sun and Toh (2018). The Hessian
αI + Σ wᵢ cᵢ zᵢ zᵢᵀ then has a term only for the few rows within δ of a jump. For piecewise linear
losses the method ends after finitely many steps. With the slopes s of the envelope the duality gap

    Σ wᵢ (ℓ(fᵢ) − ℓ(vᵢ) − sᵢ (fᵢ − vᵢ)) ≥ 0,      v = f + δu − δs,

bounds the objective above its minimum. A step reads the features twice: for the gradient and the
Hessian, and for the image Zd. The line search then uses only the n numbers Zd.

A step d solves H d = −∇, where H = [Z 1]ᵀ S [Z 1] + alpha diag(1, …, 1, 0) and S has the curvatures
of the rows. On features there are three ways. :func:`systems_of_rows` sums the Hessian in each
step. :func:`update_hessians` updates the last Hessian by the a rows whose curvature has changed, in
O(a D² + D³) operations (Mangasarian 2002; Keerthi and DeCoste 2005). :func:`hessian_products` uses
conjugate gradients (Lin, Weng and Keerthi 2008), preconditioned with moments of about 2D rows drawn
by their curvature. If only a ≤ 2D rows are active, the preconditioner uses all of them.

On a kernel matrix there is one coefficient per row, f = Kc + b, and another system
(:meth:`~.problem.DualRows.system`). It serves several steps, which are made conjugate
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
from bochner.solvers.convex.kernel import is_machine, run_libsvm, with_gap
from bochner.solvers.convex.losses import Loss, weigh
from bochner.solvers.convex.problem import (
    TINY,
    Algorithm,
    Convergence,
    DualRows,
    FeatureBlock,
    Gradient,
    Problem,
    Rows,
    RowSum,
    State,
    backward,
    best_constant,
    forward,
    gradients,
    hessian_factor,
    images,
    join_states,
    line_search,
    places,
    select_rows,
    solve,
)
from bochner.solvers.factorisations import FLOAT32_PENALTY, jittered_cholesky

NOISE = 1e-9  # Gains below this share of loss and penalty may be rounding
STRIDE = 4  # A start uses every fourth row, if enough rows remain
FEWEST, FEWEST_DUAL = 500, 256  # Fewest rows of such a start, on features and on a kernel matrix
FLOOR = 1e-7  # Least curvature of an intercept, as a share of its curvature if all rows were active


class LossSlopes(NamedTuple):
    """Slope and curvature of the (smoothed) loss at each row, and the duality gap, at one point."""

    slope: Float[Array, "n t"]
    curvature: Float[Array, "n t"]
    gap: Float[Array, " t"]  # as a share of the objective
    size: Float[Array, " t"]  # loss plus penalty; of a joint loss the total, repeated

    def at(self, columns: Array) -> "LossSlopes":
        """Return the values for these columns."""
        return LossSlopes(*(a[..., columns] for a in self))


#: Slope of the objective of each column along its Newton step, the step, and curvatures with
#: Hessians for the next step.
Direction = tuple[Float[Array, " t"], State, Any]


def fastest_algorithm(problem: Problem) -> Algorithm:
    """Return the fastest algorithm: Cholesky updates for few features in memory."""
    if is_machine(problem):
        return "libsvm"
    rows, loss = problem.rows, problem.loss
    D, local = rows.n_features, loss.has_inactive_rows or loss.nonsmooth
    # Kept Hessians are faster up to 2048 features, or 128 where all rows are active
    is_small = (2048 if local else 128) >= D and problem.y.shape[1] * D**2 <= 1 << 26
    is_suited = is_small and rows.is_cached and problem.alpha > 0 and not loss.joint
    return "cholesky updates" if is_suited else "conjugate gradients"


def minimise(
    problem: Problem,
    start: Any = None,
    *,
    tol: float,
    max_iter: int,
    moves: int | None = None,
    algorithm: Algorithm | None = None,
) -> State:
    """Return the minimum, to the relative tolerance ``tol``, with f at the rows.

    ``start`` is a State, or an Optimum on features. ``moves`` limits LIBSVM's steps per row, by
    default to ``max_iter``. By default Hessians are summed again in each step: then a row of weight
    2 and two copies of the row agree most closely.
    """
    if algorithm == "libsvm" or (algorithm is None and is_machine(problem)):
        return run_libsvm(problem, tol, moves or max_iter)
    loss, rows, dual = problem.loss, problem.rows, isinstance(problem.rows, DualRows)
    algorithm = algorithm or ("conjugate gradients" if loss.joint else "cholesky")
    # A subproblem is solved to this share of the duality gap, or of the tolerance
    system: Any = systems_of_rows
    share = 0.1 if loss.nonsmooth or algorithm == "cholesky" else 1.0
    if dual:
        if start is None and loss.has_inactive_rows and rows.is_cached:
            start = _minimise_few(problem, FEWEST_DUAL, tol, max_iter)
        if problem.y.shape[1] > 1 and not loss.joint:  # one at a time, as a factor is large
            part = partial(minimise, tol=tol, max_iter=max_iter, algorithm=algorithm)
            columns = np.arange(problem.y.shape[1])[:, None]
            return join_states([part(problem.at(k), start and start.at(k)) for k in columns])
        local = loss.has_inactive_rows or loss.nonsmooth
        system, share = conjugate_steps(), 1.0
        algorithm = "cholesky" if local else "conjugate gradients"
        start = start or constant(problem, 0.0 if local or loss.joint else None)
    elif algorithm == "cholesky updates" and not loss.nonsmooth:
        system = update_hessians(problem)
        size = max(8 * rows.n_features, FEWEST)
        start = start or _minimise_few(problem, size, tol, max_iter) or constant(problem, 0.0)
    elif algorithm == "conjugate gradients":
        system = hessian_products(separate=loss.nonsmooth)
        start = start or (None if loss.nonsmooth else constant(problem, 0.0))
    if start is None:
        start = constant(problem)
    elif not isinstance(start, State) or start.multipliers is None:
        theta = np.column_stack([start.coef.T, start.intercept])
        fitted = start.fitted if dual else images(rows, theta)  # a start may be of other rows
        slope = loss.slope(problem.y, fitted)
        start = State(start.coef, start.intercept, fitted, slope, width=0.1)
    return replace(_descend(problem, start, system, tol, share, max_iter), algorithm=algorithm)


def _descend(
    problem: Problem, at: State, system: Any, tol: float, share: float, max_iter: int
) -> State:
    """Return the state after steps until all columns are done; smooth columns end one by one."""
    joint, nonsmooth = problem.loss.joint, problem.loss.nonsmooth
    of_kernel = isinstance(problem.rows, DualRows)
    columns, outcome = np.arange(len(at.intercept)), Convergence.CONVERGED
    steps = n_idle = 0
    local = loss_slopes(problem, at)
    threshold = np.full(len(columns), -np.inf)
    if not np.any(problem.alpha) and system is not systems_of_rows:
        threshold = 1e-9 * loss_slopes(problem, constant(problem, 0.0)).size
    while True:
        active = local.size > threshold[columns]
        if not np.all(active):
            outcome = Convergence.UNBOUNDED
            columns, local = columns[active], local.at(active)
        if not len(columns):
            break
        if steps == max_iter:
            outcome = Convergence.MOST_STEPS
            break
        part, start = problem.at(columns), at.at(columns)
        slope, step, hessians = system(part, start, local, columns, tol)
        gain = -0.5 * slope / local.size  # predicted by the quadratic model
        loss, fitted = smooth_loss(part, start)
        length = line_search(replace(part, loss=loss), fitted, start, step)
        hessians = hessians if len(columns) == len(threshold) else None
        end = replace(start.at_step(length, step), hessians=hessians)
        size, local = local.size, loss_slopes(part, end)
        if of_kernel and not nonsmooth:  # an older Hessian may predict too little
            gain = np.maximum(gain, (size - local.size) / local.size)
        at = at.replace_columns(columns, end)
        converged = gain <= share * np.maximum(local.gap, tol)
        all_done = bool(np.all(converged))
        steps += 1
        n_idle = 0 if all_done else n_idle + bool(gain.max() < NOISE)
        if n_idle >= 3:  # three steps gained no more than rounding errors
            outcome = Convergence.ROUNDED
            break
        if nonsmooth or joint:
            if all_done and np.all(local.gap <= tol):
                break
            if all_done:
                at = replace(at, multipliers=local.slope, width=at.width / 2)
                local = loss_slopes(problem, at)
        else:
            columns, local = columns[~converged], local.at(~converged)
    return evaluate(problem, replace(at, outcome=outcome, steps=steps))


def evaluate(problem: Problem, at: State) -> State:
    """Return a point with its value and duality gap."""
    if is_machine(problem):
        return with_gap(problem, at)
    local = loss_slopes(problem, at)
    with np.errstate(over="ignore"):
        return replace(at, value=local.size, gap=local.gap * local.size)


def loss_slopes(problem: Problem, at: State) -> LossSlopes:
    """Return slopes and curvatures of the (smoothed) loss, the relative gap and the objective."""
    loss, y, f, w = problem.loss, problem.y, at.fitted, problem.w
    size = np.maximum(problem.values(at), TINY)
    if not loss.nonsmooth:
        with np.errstate(over="ignore", invalid="ignore"):
            return LossSlopes(loss.slope(y, f), loss.curvature(y, f), np.zeros_like(size), size)
    smooth, c = smooth_loss(problem, at)
    slope = smooth.slope(y, c)
    nearest = c - at.width * slope
    gaps = loss.value(y, f) - loss.value(y, nearest) - slope * (f - nearest)
    gap = (w * np.maximum(gaps, 0.0)).sum(axis=0)
    return LossSlopes(slope, smooth.curvature(y, c), gap / size, size)


def smooth_loss(problem: Problem, at: State) -> tuple[Any, Float[Array, "n t"]]:
    """Return the loss of a subproblem, and the values f + δu at which it is evaluated."""
    loss = problem.loss
    if not loss.nonsmooth or at.multipliers is None:
        return loss, at.fitted
    return loss.smooth(at.width), at.fitted + at.width * at.multipliers


def _minimise_few(problem: Problem, size: int, tol: float, max_iter: int) -> State | None:
    """Return the minimum for every fourth row of positive weight; None for fewer than ``size``."""
    rows, mask = problem.rows, np.zeros(len(problem.w), bool)
    mask[np.flatnonzero(np.any(problem.w > 0, axis=1))[::STRIDE]] = True
    if np.count_nonzero(mask) < size:
        return None
    dual = isinstance(rows, DualRows)
    part: Any = rows.part(mask) if dual else FeatureBlock(select_rows(rows, mask))
    subset = replace(problem, rows=part, y=problem.y[mask], w=STRIDE * problem.w[mask])
    at = minimise(subset, tol=max(0.1, tol), max_iter=max_iter, algorithm="cholesky updates")
    if not dual:
        return replace(at, multipliers=None, steps=0)
    coef = np.zeros(problem.y.shape)
    coef[mask] = at.coef
    return State(coef, at.intercept, rows @ coef + at.intercept)


def constant(problem: Problem, value: float | None = None) -> State:
    """Return the state β = 0, b = ``value`` or the best b; its width is the mean |residual|."""
    y = problem.y
    t = y.shape[1]
    best = problem.fit_intercept and value is None
    b = best_constant(problem.loss, y, problem.w) if best else np.full(t, value or 0.0)
    coef, fitted = np.zeros((problem.rows.n_features, t)), np.tile(b, (len(y), 1))
    return State(coef, b, fitted, np.zeros(y.shape), mean_size(y - b, problem.w))


def mean_size(r: Float[Array, "n t"], w: Float[Array, " n #t"]) -> float:
    """Return the weighted mean of |r|, or 1 if it is zero: the first width of a smoothed loss."""
    w = np.broadcast_to(w, r.shape)
    return float((w * np.abs(r)).sum() / w.sum()) or 1.0


def _complete(problem: Problem, at: State, gradient: Float[Array, "t p"]) -> Float[Array, "t p"]:
    """Return the gradient of the objective from the gradient of the loss, in place."""
    gradient[:, :-1] += (problem.alpha * at.coef).T
    gradient[:, -1] = gradient[:, -1] + problem.drift if problem.fit_intercept else 0.0
    return gradient


def systems_of_rows(
    problem: Problem, at: State, local: LossSlopes, columns: Array, tol: float
) -> Direction:
    """Return Newton steps by factors of the Hessians, or by systems of the active rows if few."""
    slopes, curvatures = weigh(problem.w, local.slope), weigh(problem.w, local.curvature)
    active = np.count_nonzero(curvatures, axis=0)
    # With at most D/2 active rows in each column, both take as long
    is_small = active.min() > 0 and active.max() <= problem.rows.n_features / 2
    if is_small and problem.rows.is_cached and np.all(problem.alpha):
        return hessian_products(separate=True)(problem, at, local, columns, tol)
    gradient, hessians = derivative_sums(problem, at, slopes, curvatures)
    gradient = _complete(problem, at, gradient)
    # If no row is active, the intercept moves by about this much at most.
    farthest = 100 * (1 + np.ptp(problem.y - at.fitted, axis=0))
    steps, alphas = np.empty(gradient.shape), np.broadcast_to(problem.alpha, len(gradient))
    for k, (H, alpha) in enumerate(zip(hessians, alphas, strict=True)):
        floor = abs(gradient[k, -1]) / farthest[k]
        steps[k] = -solve(hessian_factor(H, alpha, floor, problem.fit_intercept), gradient[[k]])[0]
    state = None if problem.loss.nonsmooth else (curvatures, hessians)
    return _direction(problem, gradient, steps, state)


def _direction(
    problem: Problem, gradient: Float[Array, "t p"], steps: Float[Array, "t p"], sums: Any = None
) -> Direction:
    """Return the slopes along the steps, the steps with their images, and ``sums``."""
    step = State(steps[:, :-1].T, steps[:, -1], images(problem.rows, steps))
    return inner(gradient, steps, problem.loss.joint), step, sums


def derivative_sums(
    problem: Problem, at: State, slopes: Array, curvatures: Array
) -> tuple[Float[Array, "t p"], list[Any]]:
    """Return the gradients and the Hessians; the last Hessians if curvatures are equal."""
    last = at.hessians
    if last is not None and np.array_equal(last[0], curvatures):
        return gradients(problem.rows, slopes), last[1]
    part = RowSum(_gradients_and_hessians, (slopes, curvatures), in_place=True)
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


def update_hessians(problem: Problem) -> Callable[..., Direction]:
    """Return a function for steps; it updates Σ c [z 1]ᵀ [z 1] per column, and reuses factors."""
    # Upper triangle in Fortran order, c, and the number of row updates since it was summed
    sums: list[tuple[Array, Array, int] | None] = [None] * problem.y.shape[1]
    total: Any = None
    last = np.empty(0)

    def factor(problem: Problem, k: int, c: Float[Array, " n"]) -> Array:
        """Return the factor of column k, in float32 if features are and float32 resolves alpha."""
        nonlocal total, last
        if total is None or not np.array_equal(total[1], c):
            total = _update(problem.rows, sums[k], c)
            H = total[0]
            trace = float(np.trace(H, dtype=np.float64)) + len(H) * problem.alpha
            single = H.dtype == np.float32 and problem.alpha >= FLOAT32_PENALTY * trace
            floor = FLOOR * float(problem.w.sum())
            last = hessian_factor(H, problem.alpha, floor, problem.fit_intercept, single)
        sums[k] = total
        return last

    def steps(
        problem: Problem, at: State, local: LossSlopes, columns: Array, _tol: float
    ) -> Direction:
        gradient = gradients(problem.rows, weigh(problem.w, local.slope))
        gradient, c = _complete(problem, at, gradient), weigh(problem.w, local.curvature)
        triples = zip(columns.tolist(), c.T, gradient, strict=True)
        parts = [-solve(factor(problem, k, h.copy()), g[None]) for k, h, g in triples]
        return _direction(problem, gradient, np.concatenate(parts))

    return steps


def _update(
    rows: Rows, old: tuple[Array, Array, int] | None, c: Float[Array, " n"]
) -> tuple[Array, Array, int]:
    """Return Σ c [z 1]ᵀ [z 1], c, and the number of row updates since the Hessian was summed."""
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
    """The Hessian H as an operator; if few rows are active, products read only these."""

    def __init__(self, problem: Problem, state: Float[Array, "n u"], width: float) -> None:
        w, rows, self.loss, self.alpha = problem.w, problem.rows, problem.loss, problem.alpha
        active = np.any(state, axis=1) & np.any(w > 0, axis=1)
        first, share = next(iter(rows)).Z, float(active.mean())
        size = int(active.sum()) * first.shape[1] * first.itemsize
        if 0 < share <= 0.5 and (rows.is_cached or size <= 256 << 20):
            rows = FeatureBlock(select_rows(rows, active))
            state, w = state[active], w[active]
        self.rows, self.state, self.w = rows, state, w
        # Least curvature of the intercept, as perhaps no row is active; 0 without an intercept
        self.floor = FLOOR * float(problem.w.sum()) / width if problem.fit_intercept else 0.0

    def __call__(self, V: Float[Array, "u p"], columns: Array) -> Float[Array, "u p"]:
        """Return the Hessian of each column times the corresponding row of V."""
        alpha = self.alpha[columns, None] if np.ndim(self.alpha) else self.alpha
        out, state, w = alpha * V, self.state, self.w
        out[:, -1] = self.floor * V[:, -1]
        if not self.loss.joint and len(columns) < state.shape[1]:
            state, w = state[:, columns], w[:, columns] if w.shape[1] > 1 else w
        out += self.rows.sum(RowSum(partial(_hessian_product, loss=self.loss, V=V), (state, w)))
        if not self.floor:
            out[:, -1] = 0.0
        return out


Solve = Callable[[Float[Array, "t p"]], Float[Array, "t p"]]


def preconditioner(
    Z: Float[Array, "m D"], curvatures: Float[Array, " m"], alpha: float, floor: float
) -> Solve:
    """Return the inverse of the Hessian of these rows, as a function of (t, p) arrays.

    ``floor`` is the least curvature of the intercept, or 0 without one. Features are centred at
    their weighted mean, which separates the equation of the intercept.
    """
    if not np.all(curvatures > 0):
        Z, curvatures = Z[curvatures > 0], curvatures[curvatures > 0]
    D, mass = Z.shape[1], float(curvatures.sum())
    mean = (curvatures @ Z / mass).astype(np.float64) if floor and mass else np.zeros(D)
    U = np.sqrt(curvatures).astype(Z.dtype)[:, None] * (Z - mean.astype(Z.dtype))
    rows: Array | None = None
    if 2 * len(U) < D and alpha > 0:  # factor alpha I + U Uᵀ, else UᵀU + alpha I
        rows = U.astype(np.float64)
        G = rows @ rows.T
    else:
        G = np.zeros((D, D), U.dtype, order="F")
        add_gram(G, U)
        G = mirror(G).astype(np.float64)
    size = max(float(np.trace(G)) / max(len(G), 1), alpha, 1e-300)
    factor = jittered_cholesky(G + alpha * np.eye(len(G)), 0.0, 1e-7 * size)

    def solve(V: Float[Array, "t p"]) -> Float[Array, "t p"]:
        v = V[:, :-1] - np.outer(V[:, -1], mean)
        if rows is None:
            coef = cho_solve((factor, True), v.T, check_finite=False).T
        else:
            coef = (v - cho_solve((factor, True), rows @ v.T, check_finite=False).T @ rows) / alpha
        last = V[:, -1] / (mass + floor) - coef @ mean if floor else np.zeros(len(V))
        return np.column_stack([coef, last])

    return solve


def from_rows(hessian: Hessian, separate: bool) -> list[Solve]:
    """Return a preconditioner of 2D rows drawn by curvature, or if ``separate`` one per column."""
    rows, curvature = hessian.rows, hessian.w * hessian.loss.diagonal(hessian.state)
    columns = (curvature if separate else curvature.mean(axis=1, keepdims=True)).T
    shares = np.stack([_draw(c, 2 * rows.n_features) for c in columns])
    mask = np.any(shares > 0, axis=0)
    Z = select_rows(rows, mask)
    pairs = zip(shares[:, mask], np.broadcast_to(hessian.alpha, len(columns)), strict=True)
    return [preconditioner(Z, c, alpha, hessian.floor) for c, alpha in pairs]


def _draw(weights: Float[Array, " m"], size: int) -> Float[Array, " m"]:
    """Return the weights, or a systematic sample of ``size`` weights if more are nonzero."""
    if np.count_nonzero(weights) <= size:
        return weights
    sums = np.cumsum(weights)
    tick = sums[-1] / size
    return tick * np.diff(np.floor(sums / tick + 0.5), prepend=0.0)


def hessian_products(separate: bool) -> Callable[..., Direction]:
    """Return a function for steps by conjugate gradients.

    If ``separate``, each column has its own preconditioner, new in each step. Otherwise all columns
    share one, until the products of a step take longer than a new preconditioner.
    """
    shared: list[Solve] = []

    def steps(
        problem: Problem, at: State, local: LossSlopes, _columns: Array, tol: float
    ) -> Direction:
        nonlocal shared
        gradient = gradients(problem.rows, weigh(problem.w, local.slope))
        gradient, joint = _complete(problem, at, gradient), problem.loss.joint
        width = at.width if problem.loss.nonsmooth else 1.0
        hessian = Hessian(problem, local.curvature, width)
        parts = shared or from_rows(hessian, separate)

        def inverse(V: Float[Array, "u p"], columns: Array) -> Float[Array, "u p"]:
            if len(parts) == 1:
                return parts[0](V)
            return np.concatenate([parts[c](v[None]) for c, v in zip(columns, V, strict=True)])

        nearly = inverse(gradient, np.arange(len(gradient)))
        decrease = np.maximum(0.5 * inner(gradient, nearly, joint) / local.size, TINY)
        # Relative residuals: 0.1 far from the minimum, 0.01 near it, or as the tolerance allows.
        # The gain differs from the gain of Newton's step by about the square of the residual.
        shares = np.clip(np.maximum(np.sqrt(decrease), np.sqrt(0.1 * tol / decrease)), 0.01, 0.1)
        dot = partial(inner, joint=joint)
        step = conjugate_gradients(hessian, -gradient, inverse, shares, 250, dot)
        # One operation of a product takes six times as long as one of a new preconditioner.
        D, n = hessian.rows.n_features, len(hessian.w)
        cost, making = step.products * 24 * D * n * len(gradient), (min(2 * D, n) + D / 3) * D**2
        shared = [] if separate or cost >= making else parts
        return _direction(problem, gradient, step.solution)

    return steps


def _slope_along(gradient: Gradient, step: State) -> float:
    r, s = gradient
    return float((r * (step.fitted - step.intercept)).sum()) + float(s @ step.intercept)


def conjugate_steps() -> Callable[..., Direction]:
    """Return a function for steps on a kernel matrix, with a new system after 6, 18, 42, … steps.

    For losses with inactive rows or jumps the system is new in each step; else steps are conjugate.
    """
    system: Any = None
    previous: tuple[Gradient, float, State] | None = None
    count, limit = 0, 6  # steps with the system, and their limit, which doubles

    def steps(
        problem: Problem, at: State, local: LossSlopes, _columns: Array, _tol: float
    ) -> Direction:
        nonlocal system, previous, count, limit
        refreshes = problem.loss.has_inactive_rows or problem.loss.nonsmooth
        if system is None or refreshes or count >= limit or not problem.rows.is_cached:
            limit *= 1 + (count >= limit)
            system, count = problem.rows.system(problem, local.curvature), 0
        count += 1
        slopes = weigh(problem.w, local.slope)
        gradient = slopes + problem.alpha * at.coef, problem.fit_intercept * slopes.sum(axis=0)
        newton = step = system(gradient)
        slope = _slope_along(gradient, newton)
        if previous is not None and not refreshes:
            last_gradient, last_slope, last_step = previous
            change = slope - _slope_along(last_gradient, newton)
            conjugate = newton.at_step(max(change / min(last_slope, -TINY), 0.0), last_step)
            step = conjugate if _slope_along(gradient, conjugate) < 0 else newton
        previous = gradient, slope, step
        return np.full(len(at.intercept), slope), step, None

    return steps
