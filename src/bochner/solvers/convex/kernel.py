"""Convex losses on the kernel matrix of their rows: one coefficient per row, and no features.

    minimise  Σᵢ wᵢ ℓ(yᵢ, fᵢ) + (alpha/2) cᵀKc,    f = Kc + b

With slopes g = w ℓ' and curvatures h = w ℓ'' Newton's step (Chapelle 2007) solves

    (√h K √h + alpha I) u = √h (f − g/h − b),   c = √h u,   Σ c = 0.

The Cholesky factor excludes rows with almost no curvature and preconditions several steps of
conjugate gradients (Polak and Ribière). A joint loss has one factor per column, or one factor for
all columns if this is faster. For a loss with inactive rows, whose c is zero, the search starts
at the minimum for every fourth row.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from bochner._core.blas import square_part, symmetric_product
from bochner._core.shapes import Array, Float
from bochner.solvers.cg import inner
from bochner.solvers.convex.losses import weighted
from bochner.solvers.convex.problem import (
    TINY,
    Convergence,
    Problem,
    State,
    Step,
    best_constant,
    best_length,
    raised_diagonal,
    side_by_side,
    solved,
)

EVERY = 4  # Step of thinning, where enough rows are left to start from
CHEAP = 4.0  # Steps that a factor for each column may take the time of
TRUSTED = 100  # Multiple of the rounding below which slopes judge steps


@dataclass(frozen=True, eq=False)
class KernelMatrix:
    """The kernel matrix of the rows of a problem, in place of their features."""

    K: Any  # (n, n)

    @cached_property
    def single(self) -> Array:
        return np.asarray(self.K.astype(np.float32))


def values(problem: Problem, at: State) -> Float[Array, " t"]:
    """Return the objective of each column, of a joint loss in every place."""
    sums = weighted(problem.w, problem.loss.value(problem.y, at.fitted)).sum(axis=0)
    norms = inner(at.coef.T, (at.fitted - at.intercept).T, problem.loss.joint)
    value = sums + 0.5 * problem.alpha * norms
    return np.where(np.isnan(value), np.inf, value)


def _slopes(problem: Problem, fitted: Float[Array, "n t"]) -> Float[Array, "n t"]:
    """Return g."""
    return weighted(problem.w, problem.loss.slope(problem.y, fitted))


#: Rows, their curvatures and the factor over them that was made last; the next column may share it.
_Last = list[tuple[Array, Array, Array]]


def minimise_on_kernel(
    problem: Problem,
    start: State | None = None,
    *,
    near: State | None = None,
    tol: float = 1e-4,
    max_iter: int = 100,
) -> State:
    """Return the least of Σ w ℓ(y, Kc + b) + (alpha/2) cᵀKc.

    Without a start, ``near`` may be a fit of these rows, such as that to some of them, whose
    coefficients are not looked at. The last step promised to lower the objective by less than the
    share ``tol`` of it; ``max_iter`` limits the steps of each column.

    A step takes O(n² t), and after 6, 18, 42 of them a factor of a³/3 for a rows with curvature, or
    smaller ones more often. Memory 2 n².
    """
    loss, t = problem.loss, problem.y.shape[1]
    each = [np.arange(t)] if loss.joint else [np.array([k]) for k in range(t)]
    columns, last = [problem.at(k) for k in each], _Last()
    starts = [None if start is None else start.at(k) for k in each]
    near = near if start is None else None
    fits = [None if near is None else near.at(k) for k in each]
    local, none = loss.has_inactive_rows, start is None and near is None
    if none and local and np.count_nonzero(problem.w) >= 256 * EVERY:
        starts = [_thinly(column, tol, max_iter) for column in columns]
    ends = [
        _descended(column, at, fit, last, tol, max_iter)
        for column, at, fit in zip(columns, starts, fits, strict=True)
    ]
    return side_by_side(ends)


def _thinly(problem: Problem, tol: float, max_iter: int) -> State:
    """Return the minimum for one column and every fourth row of positive weight."""
    index = np.flatnonzero(problem.w)[::EVERY]
    rows = problem.rows.K[index]
    few = replace(
        problem, rows=KernelMatrix(rows[:, index]), y=problem.y[index], w=EVERY * problem.w[index]
    )
    at = minimise_on_kernel(few, tol=max(0.1, tol), max_iter=max_iter)
    c = np.zeros(problem.y.shape)
    c[index] = at.coef
    return State(c, at.intercept, (at.coef[:, 0] @ rows)[:, None] + at.intercept)


def _along(problem: Problem, at: State, step: State) -> State:
    """Go to the least on the way, or all of it where rounding hides that the objective falls."""
    image = step.fitted - step.intercept
    along, across = float((at.coef * image).sum()), float((step.coef * image).sum())

    def slope(length: Array) -> Float[Array, " 1"]:
        total = float((_slopes(problem, at.fitted + length * step.fitted) * step.fitted).sum())
        total += problem.alpha * (along + float(length[0]) * across)
        return np.array([np.inf if np.isnan(total) else total])

    return at.moved(float(best_length(slope, 1, doublings=3)[0]) or 1.0, step)


# --- factors -------------------------------------------------------------------------------------


def _factored(K: Array, root: Float[Array, " a"], alpha: float) -> Float[Array, "a a"]:
    """Return the factor U of √h K √h + αI = UᵀU, with more than alpha where rounding needs it."""
    root, even = root.astype(K.dtype), len(root) and root.min() == root.max()
    every, scale = np.arange(len(root)), root[0] ** 2 if even else 1.0

    def shifted(jitter: float) -> Float[Array, "a a"]:
        A = K.copy() if even else root[:, None] * K
        if not even:
            A *= root
        A = np.asfortranarray(A.T)  # symmetric
        A[every, every] += (1 + jitter) * alpha / scale
        return A

    size = np.full(len(root), float(root**2 @ np.diag(K)) + alpha, K.dtype)
    U = raised_diagonal(shifted, size / scale, 1e-3, 1e2)
    U *= np.sqrt(scale)
    return U


# --- steps ---------------------------------------------------------------------------------------


def _descended(
    problem: Problem,
    start: State | None,
    near: State | None,
    last: _Last,
    tol: float,
    max_iter: int,
) -> State:
    """Take steps until the last promised, and made, less than ``tol`` of the objective.

    They are steps of conjugate gradients (Polak and Ribière), with new factors after every few.
    Cheap factors are renewed sooner; the directions continue with them. Of a loss with inactive
    rows each is Newton's, after which these rows have no coefficients.
    """
    local = problem.loss.has_inactive_rows
    at, taken, least = near or start, list[Step](), np.inf
    if at is None:  # the best constant, or zero, from where the first step is a ridge regression
        b, none = np.zeros(problem.y.shape[1]), np.zeros(problem.y.shape)
        if problem.fit_intercept and not local and not problem.loss.joint:
            b = best_constant(problem.loss, problem.y, problem.w)
        at = State(none, b, none + b)
    inverse = _Inverse.of(problem, _curved(problem, at.fitted)[0], last)
    at = at if near is None else inverse.solved(near)
    since, most = 0, 6  # steps with the first factors; twice as many with each that follow
    value = problem.objective(values(problem, at), at.intercept)
    before: tuple[_Gradient, float, State] | None = None
    outcome = Convergence.MOST_STEPS
    for _ in range(max_iter):
        if since:
            curved, worth = _curved(problem, at.fitted)
            if local or since >= (worth if worth <= CHEAP else most):
                most *= 1 + (since >= most)
                inverse, since = _Inverse.of(problem, curved, last), 0
        since += 1
        gradient = _gradient(problem, at)
        up = step = inverse(*gradient)
        steepest = _slope_along(gradient, up)
        if before is not None and not local:
            old, size, earlier = before
            turned = up.moved(
                max((steepest - _slope_along(old, up)) / min(size, -TINY), 0.0), earlier
            )
            step = turned if _slope_along(gradient, turned) < 0 else up
        before, promise = (gradient, steepest, step), -steepest / 2
        there = _along(problem, at, step) if _slope_along(gradient, step) < 0 else at
        new = problem.objective(values(problem, there), there.intercept)
        share = len(inverse.parts[0].rows) / len(problem.w) if local else 1.0
        taken.append(Step(min(new, value), promise, active=share))
        rounding = 1e-13 * abs(value)
        if promise < min(least, TRUSTED * rounding):
            rounding *= TRUSTED  # the gradient still shows a step that rounding hides
        if not new <= value + rounding:
            outcome = Convergence.ROUNDED
            break
        made, at, value, least = value - new, there, new, min(least, promise)
        if max(promise, made) <= tol * max(value, TINY):
            outcome = Convergence.CONVERGED
            break
    return replace(
        at,
        value=values(problem, at),
        gap=np.zeros(len(at.intercept)),
        algorithm="cholesky" if local else "conjugate gradients",
        outcome=outcome,
        steps=tuple(taken),
    )


_Gradient = tuple[Array, Array]  # r and s: of the objective K r in c, and s in b


def _gradient(problem: Problem, at: State) -> _Gradient:
    g = _slopes(problem, at.fitted)
    s = g.sum(axis=0) if problem.fit_intercept else np.zeros(g.shape[1])
    return g + problem.alpha * at.coef, s


def _slope_along(gradient: _Gradient, step: State) -> float:
    r, s = gradient
    return float((r * (step.fitted - step.intercept)).sum()) + float(s @ step.intercept)


#: Columns, their curvatures, and the rows that have some.
_Curved = tuple[slice, Array, Array]


def _curved(problem: Problem, fitted: Float[Array, "n t"]) -> tuple[list[_Curved], float]:
    """Return the columns one by one, or all by their mean curvature if that is much faster.

    Also return the number of steps that take as long as the factors.
    """
    loss, (n, t) = problem.loss, problem.y.shape
    h = weighted(problem.w, loss.diagonal(loss.curvature(problem.y, fitted)))
    options = [[(slice(k, k + 1), h[:, k]) for k in range(t)]]
    if t > 1:
        options.append([(slice(0, t), h.mean(axis=1))])
    made = []
    for option in options:
        curved = [(columns, h, _curved_rows(problem, h)) for columns, h in option]
        work = sum(len(rows) ** 3 for _, _, rows in curved) / 3
        # Operations of a factor that take as long as a step does for a pair of rows
        made.append((curved, work / (n**2 * (70 + 10 * t))))
    return made[0] if made[0][1] <= max(made[-1][1], CHEAP) else made[-1]


def _curved_rows(problem: Problem, h: Float[Array, " n"]) -> Array:
    """Return the rows of most curvature; the curvature of all other rows is small.

    All rows that count, where most of them have much curvature or where they are few; ``h`` is then
    raised to a least one.
    """
    active = np.flatnonzero(h)
    if problem.loss.has_inactive_rows and len(active):
        return active
    size = h * np.diag(problem.rows.K) / problem.alpha
    order = np.argsort(size)
    # The rows left out raise the least eigenvalue of the factor, αI, by twice of it at most
    few = int(np.searchsorted(np.cumsum(size[order]), 2.0))
    rows, every = np.sort(order[min(few, len(h) - 1) :]), np.flatnonzero(problem.w)
    if len(rows) <= 0.7 * len(every) and len(every) > 64:
        return rows
    w = problem.w[every, 0]
    h[every] = np.maximum(h[every], 1e-3 * w * h[every].sum() / w.sum())
    return every


@dataclass(frozen=True, eq=False)
class _Part:
    """Columns that have a factor in common, over the rows that have curvature."""

    columns: slice
    rows: Array
    h: Float[Array, " a"]  # their curvatures
    factor: Float[Array, "a a"]
    one: Float[Array, " a"]  # change of the coefficients if the intercept falls by one
    rest: float  # curvature of the other rows, over alpha


@dataclass(frozen=True, eq=False)
class _Inverse:
    """Negative inverse of a Hessian without the entries that couple columns.

    Rows with almost no curvature have α δc = −r, and add curvature along the intercept only.
    """

    problem: Problem
    parts: list[_Part]

    @staticmethod
    def of(problem: Problem, curved: list[_Curved], last: _Last) -> "_Inverse":
        K, alpha, parts = problem.rows.K, problem.alpha, []
        diagonal = K.diagonal()
        fits = alpha > 1e-30 and float(diagonal.max()) < 1e30
        for columns, every, rows in curved:
            h = every[rows]
            border, h = float(every.sum() - h.sum()) / alpha, np.maximum(h, TINY)
            root = np.sqrt(h)
            if not (last and np.array_equal(rows, last[0][0]) and np.array_equal(h, last[0][1])):
                # Whether a factor of float32 over these rows turns steps by next to nothing
                many = fits and len(rows) > 256
                single = many and float(h @ diagonal[rows]) * 1e-6 <= alpha
                matrix = problem.rows.single if single else K
                if len(rows) < len(K):
                    matrix = square_part(matrix, rows)
                last[:] = [(rows, h, _factored(matrix, root, alpha))]
            factor = last[0][2]
            one = root * solved(factor, root[None])[0]
            parts.append(_Part(columns, rows, h, factor, one, max(border, 0.0)))
        return _Inverse(problem, parts)

    def __call__(self, r: Float[Array, "n t"], s: Float[Array, " t"]) -> State:
        """Return the step down a gradient."""
        problem, c, b = self.problem, -r / self.problem.alpha, np.zeros(r.shape[1])
        wanted = (s - r.sum(axis=0)) / problem.alpha  # of Σ δc
        for part in self.parts:
            c[part.rows, part.columns] = 0.0
        far = c
        if np.any(c):
            single = all(part.factor.dtype == np.float32 for part in self.parts)
            K = problem.rows.single if single else problem.rows.K
            far = symmetric_product(K, c.astype(K.dtype))
        for part in self.parts:
            rows, columns, root = part.rows, part.columns, np.sqrt(part.h)[:, None]
            right = -r[rows, columns] / root - root * far[rows, columns]
            c[rows, columns] = root * solved(part.factor, right.T).T
            if problem.fit_intercept:
                curvature = float(part.one.sum()) + part.rest
                if curvature > TINY**0.5:  # where no row is active, nothing determines b
                    b[columns] = (c[:, columns].sum(axis=0) - wanted[columns]) / curvature
                c[rows, columns] -= np.outer(part.one, b[columns])
        c, b = problem.loss.centred(c), problem.loss.centred(b)
        return State(c, b, symmetric_product(problem.rows.K, c) + b)

    def solved(self, near: State) -> State:
        """Return the end of a Newton step from a fit of rows; its coefficients are not used.

        The end is linear in the slopes, and their factor is the one of least objective.
        """
        problem, r = self.problem, np.zeros(near.fitted.shape)
        for part in self.parts:
            within = (near.fitted - near.intercept)[part.rows, part.columns]
            r[part.rows, part.columns] = -part.h[:, None] * within
        base = self(r, r.sum(axis=0))
        base = base.moved(1.0, State(np.zeros(r.shape), near.intercept, near.intercept + 0 * r))
        g = _slopes(problem, near.fitted)
        step = self(g, g.sum(axis=0))
        first = _slope_along(_gradient(problem, base), step)
        return _along(problem, base, step) if first < 0 else base
