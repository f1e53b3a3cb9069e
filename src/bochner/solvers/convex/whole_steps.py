"""Steps of Newton's method with whole Hessians.

Values and slopes may overflow on the way: it is the caller that silences NumPy.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotrs, spotrf, spotrs

from bochner._core.shapes import Array, Float
from bochner.solvers.convex.lengths import next_best_length
from bochner.solvers.convex.loss import Loss, weighted
from bochner.solvers.convex.optimum import Convergence
from bochner.solvers.convex.row_table import Sum, Table, changed

#: Sums over so few features are as soon made anew as changed.
NARROW = 32

#: How many times its length a step is made longer at most.
FARTHEST = 8.0

#: What an intercept bends at least, as a share of what it would if every row bent.
FLOOR = 1e-7

#: Shares of the diagonal that are added to a Hessian which rounding has made indefinite.
JITTERS = (0.0, 1e-14, 1e-12, 1e-10, 1e-8, 1e-7, 1e-6, 1e-5)

#: Factors are in float32 where the penalty is at least this share of the trace.
SINGLE = 2e-6

#: Least that a diagonal is taken for.
TINY = 1e-300


@dataclass(frozen=True, eq=False)
class Problem:
    """What all columns share."""

    table: Table
    losses: tuple[Loss, ...]
    alpha: float
    fit_intercept: bool
    slack: float


class Column(NamedTuple):
    """One column at a point: coefficients, fit of the rows, objective."""

    theta: Float[Array, " p"]
    fitted: Float[Array, " n"]
    value: float


#: A row of :class:`NewtonHistory`.
Log = tuple[float, ...]


def columns_at(problem: Problem, theta: Float[Array, "t p"]) -> list[Column]:
    """Return the columns at these coefficients, by one pass."""
    rows = zip(theta, problem.table.image(theta), strict=True)
    return [_column(problem, k, row, fitted) for k, (row, fitted) in enumerate(rows)]


def go(
    problem: Problem, columns: list[Column], tol: float, most: int, least: float = 0.0
) -> tuple[Convergence, list[Log]]:
    """Take steps in all columns, in place, until each lowers by less than ``tol`` of its value.

    Or of the mean of all values, or of ``least``. At most so many steps.
    """
    live, outcome = list(range(len(columns))), Convergence.CONVERGED
    log: list[Log] = []
    directions = _Directions(problem)
    while live and len(log) < most:
        moves = _round(problem, directions, columns, live)
        log.append(_logged(columns, moves))
        mean = max(log[-1][0] / len(columns), least)
        left = [m for m in moves if m.decrease > tol * max(columns[m.k].value, mean)]
        outcome = Convergence.ROUNDED if any(m.stuck for m in left) else outcome
        live = [m.k for m in left if not m.stuck]
    return (Convergence.MOST_STEPS if live else outcome), log


# --- steps ---------------------------------------------------------------------------------------


class _Way(NamedTuple):
    """Newton's direction, the decrease it promises, and the share of rows that bend."""

    direction: Float[Array, " p"]
    promise: float
    bending: float


class _Move(NamedTuple):
    """What the step of column k did: decrease promised or made, rows that bent, if it led nowhere.

    Of both decreases the larger: where rows cease to bend a step makes more than it promised, and
    so may the next.
    """

    k: int
    promise: float
    decrease: float
    bending: float
    stuck: bool


def _round(
    problem: Problem, directions: "_Directions", columns: list[Column], live: list[int]
) -> list[_Move]:
    """Take a step in each of these columns, in place."""
    ways = directions(columns, live)
    images = problem.table.image(np.stack([way.direction for way in ways]))
    moves = []
    for k, way, image in zip(live, ways, images, strict=True):
        at = columns[k]
        there = moved(problem, k, at, way.direction, image, -2 * way.promise)
        rounding = problem.slack * abs(at.value)
        stuck = not there.value <= at.value + rounding
        columns[k] = at if stuck else there
        made = 0.0 if stuck else at.value - there.value - rounding
        moves.append(_Move(k, way.promise, max(way.promise, made), way.bending, stuck))
    return moves


def moved(
    problem: Problem, k: int, at: Column, d: Array, image: Float[Array, " n"], first: float
) -> Column:
    """Go to the least on the way, or all of it where rounding hides that it falls.

    ``first`` is the slope at its start.
    """
    length = _length(problem, k, at, d, image, first) or 1.0
    return _column(problem, k, at.theta + length * d, at.fitted + length * image)


def _length(problem: Problem, k: int, at: Column, d: Array, image: Array, first: float) -> float:
    """Return the length of the least value, or about it; zero where none is lower."""
    loss, y, f, w = problem.losses[k], problem.table.y[k], at.fitted, problem.table.w
    along, across = float(at.theta[:-1] @ d[:-1]), float(d[:-1] @ d[:-1])

    def slope(length: float) -> float:
        total = float(weighted(w, loss.slope(y, f + length * image)) @ image)
        total += problem.alpha * (along + length * across)
        return math.inf if math.isnan(total) else total

    return next_best_length(slope, first, FARTHEST)


def _column(problem: Problem, k: int, theta: Array, fitted: Array) -> Column:
    table = problem.table
    loss = float(weighted(table.w, problem.losses[k].value(table.y[k], fitted)).sum())
    value = loss + 0.5 * problem.alpha * float(theta[:-1] @ theta[:-1])
    return Column(theta, fitted, np.inf if np.isnan(value) else value)


def _logged(columns: list[Column], moves: list[_Move]) -> Log:
    """Return a round's row of :class:`NewtonHistory`."""
    total, promised = sum(c.value for c in columns), sum(m.promise for m in moves)
    return (total, promised, 0.0, max(m.bending for m in moves), 0.0)


# --- Newton's direction --------------------------------------------------------------------------


class _Directions:
    """Directions of all columns; keeps their Hessians, and the last factor within a round."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._sums: list[Sum | None] = [None] * len(problem.losses)
        self._factored: tuple[Sum, Array] | None = None

    def __call__(self, columns: list[Column], live: list[int]) -> list[_Way]:
        """Return the directions of these columns."""
        pulls = pulls_of(self._problem, columns, live)
        return [self._way(k, columns[k], pull) for k, pull in zip(live, pulls, strict=True)]

    def _way(self, k: int, at: Column, pull: Float[Array, " p"]) -> _Way:
        c = curvatures(self._problem, k, at)
        d = -solved(self._factor(k, c), pull[None])[0]
        return _Way(d, float(-pull @ d) / 2, np.count_nonzero(c) / len(c))

    def _factor(self, k: int, c: Float[Array, " n"]) -> Array:
        """Return the Cholesky factor; columns of the same curvatures share one."""
        if self._factored is not None and np.array_equal(self._factored[0].factors, c):
            self._sums[k] = self._factored[0]
            return self._factored[1]
        table = self._problem.table
        old = self._sums[k] if table.n_features > NARROW else None
        self._sums[k] = total = changed(table, old, c)
        self._factored = total, factored(total.total, self._problem)
        return self._factored[1]


def pulls_of(problem: Problem, columns: list[Column], live: list[int]) -> Float[Array, "u p"]:
    """Return the gradients of these columns, by one pass."""
    y, w = problem.table.y, problem.table.w
    slopes = [weighted(w, problem.losses[k].slope(y[k], columns[k].fitted)) for k in live]
    pulls = problem.table.pulls(np.stack(slopes))
    pulls[:, :-1] += problem.alpha * np.stack([columns[k].theta[:-1] for k in live])
    pulls[:, -1] *= problem.fit_intercept
    return pulls


def curvatures(problem: Problem, k: int, at: Column) -> Float[Array, " n"]:
    """Return how much the rows bend, with their weights."""
    table = problem.table
    return weighted(table.w, problem.losses[k].curvature(table.y[k], at.fitted))


def factored(H: Float[Array, "p p"], problem: Problem) -> Float[Array, "p p"]:
    """Return the upper factor of H + alpha I, and as much more as rounding needs.

    It is in the features' precision where that resolves the penalty.
    """
    every, diagonal = np.arange(len(H)), np.diag(H).astype(np.float64) + problem.alpha
    diagonal[-1] = max(H[-1, -1], FLOOR * float(problem.table.w.sum()), TINY)
    single = problem.table.dtype == np.float32 and problem.alpha >= SINGLE * diagonal.sum()
    potrf = spotrf if single else dpotrf
    for jitter in JITTERS:
        shifted = H.astype(np.float32 if single else np.float64, order="F")
        shifted[every, every] = (1 + jitter) * diagonal
        if not problem.fit_intercept:
            shifted[:-1, -1] = 0.0
        factor, failed = potrf(shifted, lower=0, clean=0, overwrite_a=1)
        if not failed:
            return factor
    return np.diag(np.sqrt(diagonal))


def solved(factor: Float[Array, "p p"], pulls: Float[Array, "u p"]) -> Float[Array, "u p"]:
    """Return the solutions for the rows of pulls."""
    potrs = spotrs if factor.dtype == np.float32 else dpotrs
    found, _ = potrs(factor, pulls.T.astype(factor.dtype), lower=0)
    return found.T.astype(np.float64)
