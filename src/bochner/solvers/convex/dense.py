"""Hessians as matrices, kept from step to step; each column by itself.

A column's Hessian is a sum over its active rows, changed at a step by the rows whose curvature has
changed, O(a D² + D³) for a of them; its Cholesky factor gives the step (Mangasarian 2002; Keerthi
and DeCoste 2005). From zero the descent starts on few rows: from the minimum for every fourth row,
which starts from that for every 16th.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from bochner._core.blas import add_gram
from bochner._core.shapes import Array, Float
from bochner.solvers.convex.conjugate_gradients import FLOOR, CopiedRows
from bochner.solvers.convex.losses import Loss, weighted
from bochner.solvers.convex.newton import Direction, Point, curvatures, descend
from bochner.solvers.convex.optimum import Cholesky
from bochner.solvers.convex.problem import (
    TINY,
    Problem,
    SolverRows,
    State,
    active_features,
    hessian_factor,
    places,
    solved,
    taken_rows,
)

#: A sum is changed if fewer rows differ than the first share of the active ones, and all that were
#: changed since it was new are at most the second: each change leaves its rounding.
CHANGED, DRIFT = 0.7, 4.0

SINGLE = 2e-6  # Factors are in float32 where the penalty is at least this share of the trace
EVERY, THINNED_ROWS_PER_FEATURE = 4, 8  # Step of thinning, and rows per feature that must be left
FEWEST = 500  # Rows below which a descent does not start from its minimum for every fourth row
COARSE = 0.1  # Promise of the last step on few rows, as a share of the objective


def minimum(problem: Problem, start: State | None, tol: float, max_iter: int) -> State:
    """Return the minimum of each column, from the coefficients of a start or by way of few rows.

    The loss is elementwise and smooth, the penalty above zero; memory O(n D + t D²).
    """
    theta = None if start is None else start.theta
    n, D = len(problem.w), problem.rows.n_features
    taken = np.arange(n) % EVERY == 0
    enough = n >= EVERY * max(THINNED_ROWS_PER_FEATURE * D, FEWEST)
    if theta is None and enough and np.any(problem.w[taken]):
        rows = CopiedRows(taken_rows(problem.rows, taken))
        few = replace(problem, rows=rows, y=problem.y[taken], w=EVERY * problem.w[taken])
        theta = minimum(few, None, max(COARSE, tol), max_iter).theta
    return descend(problem, theta, KeptFactors(problem), Cholesky(), tol, max_iter)


class OuterSum(NamedTuple):
    """Σ c z zᵀ, z ending in a one."""

    total: Float[Array, "p p"]  # its upper triangle, in Fortran order
    factors: Float[Array, " n"]  # c
    drift: int  # rows changed since it was new


def changed(rows: SolverRows, old: OuterSum | None, c: Float[Array, " n"]) -> OuterSum:
    """Return the sum with factors c, none negative: the old one changed, or a new one."""
    active = int(np.count_nonzero(c))
    if old is not None:
        change = c - old.factors
        count = int(np.count_nonzero(change))
        drift = old.drift + count
        if count <= CHANGED * active and drift <= DRIFT * active:
            total = old.total.copy(order="F")
            _add(rows, total, np.maximum(change, 0.0), 1.0)
            _add(rows, total, np.maximum(-change, 0.0), -1.0)
            return OuterSum(total, c, drift)
    p, dtype = rows.n_features + 1, next(iter(rows)).Z.dtype
    total = np.zeros((p, p), dtype, order="F")
    _add(rows, total, c, 1.0)
    return OuterSum(total, c, 0)


def _add(rows: SolverRows, total: Float[Array, "p p"], c: Float[Array, " n"], sign: float) -> None:
    """Add sign Σ c z zᵀ to the upper triangle."""
    for block in rows:
        A = active_features(block.Z, c[places(block)], total.dtype)
        if len(A):
            add_gram(total, A, sign)


class KeptFactors:
    """Newton steps by Cholesky factors; keeps each column's Hessian, and the last factor."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._sums: list[OuterSum | None] = [None] * problem.n_columns
        self._factored: tuple[OuterSum, Array] | None = None

    def __call__(self, loss: Loss, point: Point, columns: Array, tol: float) -> Direction:
        """Return the steps of these columns."""
        c = weighted(self._problem.w, curvatures(self._problem, loss, point, columns))
        each = zip(columns.tolist(), c.T, point.gradient, strict=True)
        steps = [-solved(self._factor(k, np.ascontiguousarray(h)), g[None]) for k, h, g in each]
        active = np.count_nonzero(c, axis=0).max() / len(c)
        return Direction(np.concatenate(steps), 0, float(active))

    def _factor(self, k: int, c: Float[Array, " n"]) -> Array:
        """Return the factor of column k; columns of the same curvatures share one."""
        if self._factored is not None and np.array_equal(self._factored[0].factors, c):
            self._sums[k] = self._factored[0]
            return self._factored[1]
        self._sums[k] = total = changed(self._problem.rows, self._sums[k], c)
        self._factored = total, factored(total.total, self._problem)
        return self._factored[1]


def factored(H: Float[Array, "p p"], problem: Problem) -> Float[Array, "p p"]:
    """Return the factor of H + alpha I, in the features' precision where that resolves alpha."""
    diagonal = np.diag(H).astype(np.float64) + problem.alpha
    diagonal[-1] = max(H[-1, -1], FLOOR * float(problem.w.sum()), TINY)
    single = H.dtype == np.float32 and problem.alpha >= SINGLE * diagonal.sum()
    return hessian_factor(H, diagonal, problem.fit_intercept, single)
