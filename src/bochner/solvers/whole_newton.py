"""Newton's method with whole Hessians, each column for itself: where features are not too many.

    minimise  Σᵢ wᵢ ℓ(yᵢ, φ(xᵢ)·β + b) + (alpha/2) ‖β‖²

A column's Hessian is a sum over the rows that bend, kept from step to step and changed by the rows
that bend otherwise than before, O(a D² + D³) for a of them; its Cholesky factor gives the step
(Mangasarian 2002; Keerthi and DeCoste 2005). The images Zd of all columns' steps are one pass,
after which lengths and values need no features.

From zero the way leads over few rows: a column starts from its minimum for every 4th row, which
starts from that for every 16th. Where rows are too few beside wide features, it starts with
conjugate gradients, preconditioned by the Hessian at zero that all columns share: a ridge
regression, and some sweeps after which most rows that will not bend have ceased to.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotrs, spotrf, spotrs

from bochner._ground.shapes import Array, Float
from bochner.solvers.lengths import best_length
from bochner.solvers.loss import Loss, weighted
from bochner.solvers.optimum import Convergence
from bochner.solvers.row_table import Sum, Table, changed

__all__ = ["Descent", "descend"]

#: Every how many rows are kept on the way from one level to the next ...
EVERY = 4

#: ... as long as this many times the features are left.
ROWS_PER_FEATURE = 8

#: Fewer rows than this are no way.
FEWEST = 500

#: What the last step on few rows promises, as a share of the objective: more rows move it by more.
COARSE = 1e-2

#: From so many features on sweeps of conjugate gradients are worth it, beside Newton's steps ...
WIDE = 256

#: ... and so many of them are.
SWEEPS = 9

#: How often a step is doubled at most.
DOUBLINGS = 3

#: What an intercept bends at least, as a share of what it would if every row bent.
FLOOR = 1e-7

#: Shares of the diagonal that are added to a Hessian which rounding has made indefinite.
JITTERS = (0.0, 1e-14, 1e-12, 1e-10, 1e-8, 1e-7, 1e-6, 1e-5)

#: Factors are in float32 where the penalty is at least this share of the trace.
SINGLE = 2e-6

#: Least that a diagonal is taken for.
TINY = 1e-300


@dataclass(frozen=True, eq=False)
class _Problem:
    """What all columns share."""

    table: Table
    losses: tuple[Loss, ...]
    alpha: float
    fit_intercept: bool
    slack: float


class _Column(NamedTuple):
    """One column at a point: coefficients, fit of the rows, objective."""

    theta: Float[Array, " p"]
    fitted: Float[Array, " n"]
    value: float


#: A row of :class:`NewtonHistory`.
Log = tuple[float, ...]


class Descent(NamedTuple):
    """Where the descent ended; ``log`` has the rows of :class:`NewtonHistory`."""

    theta: Float[Array, "t p"]
    value: Float[Array, " t"]
    outcome: Convergence
    log: tuple[Log, ...]


def descend(
    table: Table,
    loss: Loss,
    alpha: float,
    *,
    fit_intercept: bool,
    start: Float[Array, "t p"] | None,
    tol: float,
    max_iter: int,
    slack: float,
) -> Descent:
    """Return the minimum of each column, from a start or by way of few rows.

    Parameters
    ----------
    table : Table
    loss : Loss
        Elementwise, smooth.
    alpha : float
        Above zero.
    fit_intercept : bool
    start : (t, D + 1) or None
    tol : float
        Largest promise of the last step, as a share of the objective.
    max_iter : int
        Passes over all rows at most.
    slack : float
        Rounding of the objective, as a share of it.
    """
    losses = tuple(loss.at(np.array([k])) for k in range(len(table.y)))
    problem = _Problem(table, losses, alpha, fit_intercept, slack)
    columns = _started(problem, loss, tol, max_iter) if start is None else _at(problem, start)
    live, outcome = list(range(len(columns))), Convergence.CONVERGED
    log: list[Log] = []
    directions = _Directions(problem)
    while live and len(log) < max_iter:
        moves = _round(problem, directions, columns, live)
        log.append(_logged(columns, moves))
        mean = log[-1][0] / len(columns)
        left = [m for m in moves if m.promise > tol * max(columns[m.k].value, mean)]
        outcome = Convergence.ROUNDED if any(m.stuck for m in left) else outcome
        live = [m.k for m in left if not m.stuck]
    return Descent(
        np.stack([c.theta for c in columns]),
        np.array([c.value for c in columns]),
        Convergence.MOST_STEPS if live else outcome,
        tuple(log),
    )


def _at(problem: _Problem, theta: Float[Array, "t p"]) -> list[_Column]:
    """Return the columns at these coefficients, by one pass."""
    rows = zip(theta, problem.table.image(theta), strict=True)
    return [_column(problem, k, row, fitted) for k, (row, fitted) in enumerate(rows)]


def _started(problem: _Problem, loss: Loss, tol: float, max_iter: int) -> list[_Column]:
    """Return the columns at the minimum for every 4th row, or near their own from zero."""
    table = problem.table
    n, D = len(table.w), table.n_features
    enough = n >= EVERY * max(ROWS_PER_FEATURE * D, FEWEST)
    few = table.thinned(EVERY) if enough else None
    if few is None or not np.any(few.w):
        zero = _at(problem, np.zeros((len(table.y), D + 1)))
        return _swept(problem, zero) if loss.local and D >= WIDE else zero
    theta = descend(
        few,
        loss,
        problem.alpha,
        fit_intercept=problem.fit_intercept,
        start=None,
        tol=max(COARSE, tol),
        max_iter=max_iter,
        slack=problem.slack,
    ).theta
    return _at(problem, theta)


def _swept(problem: _Problem, columns: list[_Column]) -> list[_Column]:
    """Take some steps of conjugate gradients, where all columns bend alike (Polak and Ribière)."""
    curvatures = [_curvatures(problem, k, at) for k, at in enumerate(columns)]
    if not all(np.array_equal(c, curvatures[0]) for c in curvatures):
        return columns
    factor = _factored(changed(problem.table, None, curvatures[0]).total, problem)
    live = list(range(len(columns)))
    pulls = _pulls(problem, columns, live)
    up = _solved(factor, pulls)
    steps = -up
    for sweep in range(SWEEPS):
        images = problem.table.image(steps)
        columns = [_moved(problem, k, columns[k], steps[k], images[k]) for k in live]
        if sweep == SWEEPS - 1:
            break
        new = _pulls(problem, columns, live)
        before, up = np.maximum((pulls * up).sum(axis=1), TINY), _solved(factor, new)
        turn = np.maximum(((new - pulls) * up).sum(axis=1) / before, 0.0)
        steps, pulls = turn[:, None] * steps - up, new
    return columns


# --- steps ---------------------------------------------------------------------------------------


class _Way(NamedTuple):
    """Newton's direction, the decrease it promises, and the share of rows that bend."""

    direction: Float[Array, " p"]
    promise: float
    bending: float


class _Move(NamedTuple):
    """What the step of column k did: its promise, the rows that bent, whether it led nowhere."""

    k: int
    promise: float
    bending: float
    stuck: bool


def _round(
    problem: _Problem, directions: "_Directions", columns: list[_Column], live: list[int]
) -> list[_Move]:
    """Take a step in each of these columns, in place."""
    ways = directions(columns, live)
    images = problem.table.image(np.stack([way.direction for way in ways]))
    moves = []
    for k, way, image in zip(live, ways, images, strict=True):
        at = columns[k]
        moved = _moved(problem, k, at, way.direction, image)
        stuck = not moved.value <= at.value + problem.slack * abs(at.value)
        columns[k] = at if stuck else moved
        moves.append(_Move(k, way.promise, way.bending, stuck))
    return moves


def _moved(
    problem: _Problem, k: int, at: _Column, d: Float[Array, " p"], image: Float[Array, " n"]
) -> _Column:
    """Go to the least on the way, or all of it where rounding hides that it falls."""
    length = _length(problem, k, at, d, image) or 1.0
    return _column(problem, k, at.theta + length * d, at.fitted + length * image)


def _length(problem: _Problem, k: int, at: _Column, d: Array, image: Array) -> float:
    """Return the length of the least value, or about it; zero where none is lower."""
    loss, y, f, w = problem.losses[k], problem.table.y[k], at.fitted, problem.table.w
    along, across = float(at.theta[:-1] @ d[:-1]), float(d[:-1] @ d[:-1])

    def slope(length: Float[Array, " 1"]) -> Float[Array, " 1"]:
        with np.errstate(over="ignore", invalid="ignore"):
            total = weighted(w, loss.slope(y, f + length * image)) @ image
        total = total + problem.alpha * (along + length * across)
        return np.where(np.isnan(total), np.inf, total)

    return float(best_length(slope, 1, doublings=DOUBLINGS)[0])


def _column(problem: _Problem, k: int, theta: Array, fitted: Array) -> _Column:
    table = problem.table
    with np.errstate(over="ignore", invalid="ignore"):
        loss = float(weighted(table.w, problem.losses[k].value(table.y[k], fitted)).sum())
    value = loss + 0.5 * problem.alpha * float(theta[:-1] @ theta[:-1])
    return _Column(theta, fitted, np.inf if np.isnan(value) else value)


def _logged(columns: list[_Column], moves: list[_Move]) -> Log:
    """Return a round's row of :class:`NewtonHistory`."""
    total, promised = sum(c.value for c in columns), sum(m.promise for m in moves)
    return (total, promised, 0.0, max(m.bending for m in moves), 0.0)


# --- Newton's direction --------------------------------------------------------------------------


class _Directions:
    """Directions of all columns; keeps their Hessians, and the last factor within a round."""

    def __init__(self, problem: _Problem) -> None:
        self._problem = problem
        self._sums: list[Sum | None] = [None] * len(problem.losses)
        self._factored: tuple[Sum, Array] | None = None

    def __call__(self, columns: list[_Column], live: list[int]) -> list[_Way]:
        """Return the directions of these columns."""
        pulls = _pulls(self._problem, columns, live)
        return [self._way(k, columns[k], pull) for k, pull in zip(live, pulls, strict=True)]

    def _way(self, k: int, at: _Column, pull: Float[Array, " p"]) -> _Way:
        c = _curvatures(self._problem, k, at)
        d = -_solved(self._factor(k, c), pull[None])[0]
        return _Way(d, float(-pull @ d) / 2, np.count_nonzero(c) / len(c))

    def _factor(self, k: int, c: Float[Array, " n"]) -> Array:
        """Return the Cholesky factor; columns of the same curvatures share one."""
        if self._factored is not None and np.array_equal(self._factored[0].factors, c):
            self._sums[k] = self._factored[0]
            return self._factored[1]
        self._sums[k] = total = changed(self._problem.table, self._sums[k], c)
        self._factored = total, _factored(total.total, self._problem)
        return self._factored[1]


def _pulls(problem: _Problem, columns: list[_Column], live: list[int]) -> Float[Array, "u p"]:
    """Return the gradients of these columns, by one pass."""
    y, w = problem.table.y, problem.table.w
    with np.errstate(over="ignore", invalid="ignore"):
        slopes = [weighted(w, problem.losses[k].slope(y[k], columns[k].fitted)) for k in live]
    pulls = problem.table.pulls(np.stack(slopes))
    pulls[:, :-1] += problem.alpha * np.stack([columns[k].theta[:-1] for k in live])
    pulls[:, -1] *= problem.fit_intercept
    return pulls


def _curvatures(problem: _Problem, k: int, at: _Column) -> Float[Array, " n"]:
    table = problem.table
    return weighted(table.w, problem.losses[k].curvature(table.y[k], at.fitted))


def _factored(H: Float[Array, "p p"], problem: _Problem) -> Float[Array, "p p"]:
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


def _solved(factor: Float[Array, "p p"], pulls: Float[Array, "u p"]) -> Float[Array, "u p"]:
    """Return the solutions for the rows of pulls."""
    potrs = spotrs if factor.dtype == np.float32 else dpotrs
    found, _ = potrs(factor, pulls.T.astype(factor.dtype), lower=0)
    return found.T.astype(np.float64)
