"""Newton's method with Hessians as matrices, kept from step to step; each column for itself.

A column's Hessian is a sum over its active rows, changed at a step by the rows whose curvature has
changed, O(a D² + D³) for a of them; its Cholesky factor gives the step (Mangasarian 2002; Keerthi
and DeCoste 2005). The images Zd of all columns' steps are one pass, after which lengths and values
need no features.

From zero the descent starts on few rows: a column starts from its minimum for every 4th row, which
starts from that for every 16th. Where rows are too few beside wide features, it starts with
conjugate gradients, preconditioned by the Hessian at zero that all columns share: a ridge
regression, and some sweeps after which most rows that will end inactive are.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from bochner._core.blas import add_gram
from bochner._core.shapes import Array, Float
from bochner.solvers.convex.losses import Loss, weighted
from bochner.solvers.convex.optimum import Cholesky, Convergence, Step
from bochner.solvers.convex.problem import (
    ROUNDING,
    TINY,
    Problem,
    State,
    backward,
    forward,
    hessian_factor,
    length_on_line,
    solved,
)

#: Sides of a column's targets with no more rows than this are kept whole by thinning ...
FEW_ON_A_SIDE = 256

#: ... but none where so large a share of the rows would be.
MOST_KEPT_WHOLE = 0.125

#: Numbers of the rows that are gathered at once: a few megabytes, written again and again.
AT_ONCE = 1 << 20

#: A sum is changed if fewer rows differ than this share of the active ones ...
CHANGED = 0.7

#: ... and all that were changed since it was new are at most this many times as many: each change
#: leaves its rounding.
DRIFT = 4.0

#: Number of features up to which sums are recomputed as fast as changed.
NARROW = 32

#: Least curvature of an intercept, as a share of that if every row were active.
FLOOR = 1e-7

#: Factors are in float32 where the penalty is at least this share of the trace.
SINGLE = 2e-6

#: Every how many rows are kept in thinning, and the rows per feature that must be left.
EVERY, THINNED_ROWS_PER_FEATURE = 4, 8

#: Rows below which a descent does not start from its minimum for every fourth row, and features
#: from which it starts with sweeps instead, of a loss with inactive rows.
FEWEST, WIDE = 500, 256

#: Promise of the last step on few rows, as a share of the objective: more rows change it by more.
COARSE = 0.1

#: Sweeps of conjugate gradients before the first step with wide features.
SWEEPS = 9


def descend(problem: Problem, start: State | None, tol: float, max_iter: int) -> State:
    """Return the minimum of each column, from the coefficients of a start or by way of few rows.

    The loss is elementwise and smooth, the penalty above zero; memory O(n D + t D²).
    """
    targets = np.ascontiguousarray(problem.targets().T)
    table = Table([block.Z for block in problem.rows], targets, problem.w[:, 0])
    losses = tuple(problem.loss.at(np.array([k])) for k in range(len(targets)))
    slack = ROUNDING[table.dtype.name]
    columns = DenseProblem(table, losses, problem.alpha, problem.fit_intercept, slack)
    theta = None if start is None else start.theta
    with np.errstate(over="ignore", invalid="ignore"):
        at, outcome, steps = _descended(columns, theta, tol, max_iter)
    theta = np.stack([c.theta for c in at])
    return State(
        theta[:, :-1].T.copy(),
        theta[:, -1].copy(),
        np.stack([c.fitted for c in at], axis=1),
        np.array([c.value for c in at]),
        np.zeros(len(at)),
        algorithm=Cholesky(),
        outcome=outcome,
        steps=tuple(steps),
    )


# --- rows in memory ------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Table:
    """Rows in memory: features in pieces, and a row for each column of targets."""

    pieces: list[Array]  # consecutive rows
    y: Float[Array, "t n"]
    w: Float[Array, " n"]

    @property
    def n_features(self) -> int:
        """D."""
        return self.pieces[0].shape[1]

    @property
    def dtype(self) -> np.dtype:
        """Precision of the features."""
        return self.pieces[0].dtype

    def parts(self) -> Iterator[tuple[slice, Array]]:
        """Yield the pieces with their rows."""
        start = 0
        for Z in self.pieces:
            yield slice(start, start + len(Z)), Z
            start += len(Z)

    def thinned(self, every: int) -> "Table":
        """Return every ``every``-th row with as much more weight, and sides with few rows."""
        few = self._few_sided()
        kept = few.copy()
        kept[::every] = True
        rows = np.flatnonzero(kept)
        w = np.where(few[rows], self.w[rows], every * self.w[rows])
        return Table([self._taken(rows)], self.y.take(rows, axis=1), w)

    def _taken(self, rows: Array) -> Float[Array, "m D"]:
        """Return the features of these rows, which are in order."""
        cuts = np.searchsorted(rows, np.cumsum([0, *map(len, self.pieces)]))
        cut = zip(self.parts(), cuts, cuts[1:], strict=False)
        pieces = [Z.take(rows[low:high] - here.start, axis=0) for (here, Z), low, high in cut]
        return np.concatenate(pieces)

    def _few_sided(self) -> Array:
        """Return which rows are on a side of zero, in some column's targets, that has few rows.

        None, where many rows are.
        """
        few = np.zeros(len(self.w), bool)
        for column in self.y:
            side = column > 0
            side ^= np.count_nonzero(side) > len(side) / 2
            if np.count_nonzero(side) <= FEW_ON_A_SIDE:
                few |= side
        return few & (np.count_nonzero(few) <= MOST_KEPT_WHOLE * len(few))

    def gathered(self, rows: Array) -> Iterator[tuple[slice, Float[Array, "m p"]]]:
        """Give [Z 1] of these rows, which are in order, some at a time, and which of them they are.

        All are written to the same place.
        """
        most = max(1, AT_ONCE // (self.n_features + 1))
        out = np.ones((min(most, len(rows)), self.n_features + 1), self.dtype)
        starts = np.cumsum([0, *map(len, self.pieces)])
        cuts = np.searchsorted(rows, starts)
        for i, Z in enumerate(self.pieces):
            for low in range(cuts[i], cuts[i + 1], most):
                here = slice(low, min(low + most, cuts[i + 1]))
                part = out[: here.stop - low]
                part[:, :-1] = Z.take(rows[here] - starts[i], axis=0)
                yield here, part

    def image(self, theta: Float[Array, "u p"]) -> Float[Array, "u n"]:
        """Return Z β + b, a row for each column."""
        out = np.empty((len(theta), len(self.w)))
        for rows, Z in self.parts():
            out[:, rows] = forward(Z, theta).T
        return out

    def gradients(self, slopes: Float[Array, "u n"]) -> Float[Array, "u p"]:
        """Return the rows of slopes times [Z 1]."""
        out = np.zeros((len(slopes), self.n_features + 1))
        for rows, Z in self.parts():
            out += backward(Z, slopes[:, rows].T)
        return out


# --- sums of outer products ----------------------------------------------------------------------


class OuterSum(NamedTuple):
    """Σ c z zᵀ, z ending in a one."""

    total: Float[Array, "p p"]  # its upper triangle, in Fortran order
    factors: Float[Array, " n"]  # c
    drift: int  # rows changed since it was new


def changed(table: Table, old: OuterSum | None, c: Float[Array, " n"]) -> OuterSum:
    """Return the sum with factors c, none negative: the old one changed, or a new one."""
    p, active = table.n_features + 1, np.flatnonzero(c)
    if old is not None:
        change = c - old.factors
        rows = np.flatnonzero(change)
        drift = old.drift + len(rows)
        if len(rows) <= CHANGED * len(active) and drift <= DRIFT * len(active):
            total = old.total.copy(order="F")
            more = change[rows] > 0
            _add(table, total, rows[more], change[rows[more]], 1.0)
            _add(table, total, rows[~more], -change[rows[~more]], -1.0)
            return OuterSum(total, c, drift)
    total = np.zeros((p, p), table.dtype, order="F")
    _add(table, total, active, c[active], 1.0)
    return OuterSum(total, c, 0)


def _add(table: Table, total: Float[Array, "p p"], rows: Array, c: Array, sign: float) -> None:
    """Add sign Σ c z zᵀ over these rows to the upper triangle."""
    if not len(rows):
        return
    root = None if c.min() == c.max() else np.sqrt(c).astype(table.dtype)
    factor = sign if root is not None else sign * float(c[0])
    for index, A in table.gathered(rows):
        add_gram(total, A if root is None else root[index, None] * A, factor)


# --- columns -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class DenseProblem:
    """Rows, a loss for each column, the penalty, and the objective's relative rounding."""

    table: Table
    losses: tuple[Loss, ...]
    alpha: float
    fit_intercept: bool
    slack: float


class ColumnState(NamedTuple):
    """One column at a point: coefficients, fit of the rows, objective."""

    theta: Float[Array, " p"]
    fitted: Float[Array, " n"]
    value: float


def columns_at(problem: DenseProblem, theta: Float[Array, "t p"]) -> list[ColumnState]:
    """Return the columns at these coefficients, by one pass."""
    rows = zip(theta, problem.table.image(theta), strict=True)
    return [_column(problem, k, row, fitted) for k, (row, fitted) in enumerate(rows)]


def _column(problem: DenseProblem, k: int, theta: Array, fitted: Array) -> ColumnState:
    table = problem.table
    loss = float(weighted(table.w, problem.losses[k].value(table.y[k], fitted)).sum())
    value = loss + 0.5 * problem.alpha * float(theta[:-1] @ theta[:-1])
    return ColumnState(theta, fitted, np.inf if np.isnan(value) else value)


def gradients_of(
    problem: DenseProblem, columns: list[ColumnState], live: list[int]
) -> Float[Array, "u p"]:
    """Return the gradients of these columns, by one pass."""
    y, w = problem.table.y, problem.table.w
    slopes = [weighted(w, problem.losses[k].slope(y[k], columns[k].fitted)) for k in live]
    gradients = problem.table.gradients(np.stack(slopes))
    gradients[:, :-1] += problem.alpha * np.stack([columns[k].theta[:-1] for k in live])
    gradients[:, -1] *= problem.fit_intercept
    return gradients


def curvatures(problem: DenseProblem, k: int, at: ColumnState) -> Float[Array, " n"]:
    """Return the second derivatives at the rows, times their weights."""
    table = problem.table
    return weighted(table.w, problem.losses[k].curvature(table.y[k], at.fitted))


# --- steps ---------------------------------------------------------------------------------------


class _Move(NamedTuple):
    """Step of column k: decrease promised or made, share of active rows, and if it was stuck.

    Of both decreases the larger: where rows become inactive a step makes more than it promised, and
    so may the next.
    """

    k: int
    promise: float
    decrease: float
    active: float
    stuck: bool


def take_steps(
    problem: DenseProblem, columns: list[ColumnState], tol: float, most: int
) -> tuple[Convergence, list[Step]]:
    """Take steps in all columns, in place, until each lowers by less than ``tol`` of its value.

    Or of the mean of all values. ``most`` limits the steps.
    """
    live, outcome = list(range(len(columns))), Convergence.CONVERGED
    steps: list[Step] = []
    factors = _Factors(problem)
    while live and len(steps) < most:
        moves = _round(problem, factors, columns, live)
        value, promised = sum(c.value for c in columns), sum(m.promise for m in moves)
        steps.append(Step(value, promised, active=max(m.active for m in moves)))
        mean = value / len(columns)
        left = [m for m in moves if m.decrease > tol * max(columns[m.k].value, mean)]
        outcome = Convergence.ROUNDED if any(m.stuck for m in left) else outcome
        live = [m.k for m in left if not m.stuck]
    return (Convergence.MOST_STEPS if live else outcome), steps


def _round(
    problem: DenseProblem, factors: "_Factors", columns: list[ColumnState], live: list[int]
) -> list[_Move]:
    """Take a step in each of these columns, in place."""
    gradients = gradients_of(problem, columns, live)
    active = [curvatures(problem, k, columns[k]) for k in live]
    steps = np.stack(
        [
            -solved(factors(k, c), gradient[None])[0]
            for k, c, gradient in zip(live, active, gradients, strict=True)
        ]
    )
    images, moves = problem.table.image(steps), []
    for k, c, g, d, image in zip(live, active, gradients, steps, images, strict=True):
        at, promise = columns[k], float(-g @ d) / 2
        there = moved(problem, k, at, d, image, -2 * promise)
        rounding = problem.slack * abs(at.value)
        stuck = not there.value <= at.value + rounding
        columns[k] = at if stuck else there
        made = 0.0 if stuck else at.value - there.value - rounding
        share = np.count_nonzero(c) / len(c)
        moves.append(_Move(k, promise, max(promise, made), share, stuck))
    return moves


def moved(
    problem: DenseProblem,
    k: int,
    at: ColumnState,
    d: Array,
    image: Float[Array, " n"],
    first: float,
) -> ColumnState:
    """Go to the least on the way; ``first`` is the slope at its start."""
    loss, y, f, w = problem.losses[k], problem.table.y[k], at.fitted, problem.table.w
    along, across = float(at.theta[:-1] @ d[:-1]), float(d[:-1] @ d[:-1])
    slopes = lambda length: float(weighted(w, loss.slope(y, f + length * image)) @ image)
    length = length_on_line(slopes, problem.alpha, along, across, first)
    return _column(problem, k, at.theta + length * d, f + length * image)


class _Factors:
    """Cholesky factors of all columns' Hessians: keeps these, and the last factor in a round."""

    def __init__(self, problem: DenseProblem) -> None:
        self._problem = problem
        self._sums: list[OuterSum | None] = [None] * len(problem.losses)
        self._factored: tuple[OuterSum, Array] | None = None

    def __call__(self, k: int, c: Float[Array, " n"]) -> Array:
        """Return the factor of column k; columns of the same curvatures share one."""
        if self._factored is not None and np.array_equal(self._factored[0].factors, c):
            self._sums[k] = self._factored[0]
            return self._factored[1]
        table = self._problem.table
        old = self._sums[k] if table.n_features > NARROW else None
        self._sums[k] = total = changed(table, old, c)
        self._factored = total, factored(total.total, self._problem)
        return self._factored[1]


def factored(H: Float[Array, "p p"], problem: DenseProblem) -> Float[Array, "p p"]:
    """Return the factor of H + alpha I, in the features' precision where that resolves alpha."""
    diagonal = np.diag(H).astype(np.float64) + problem.alpha
    diagonal[-1] = max(H[-1, -1], FLOOR * float(problem.table.w.sum()), TINY)
    single = problem.table.dtype == np.float32 and problem.alpha >= SINGLE * diagonal.sum()
    return hessian_factor(H, diagonal, problem.fit_intercept, single)


# --- the descent ---------------------------------------------------------------------------------


def _descended(
    problem: DenseProblem, start: Float[Array, "t p"] | None, tol: float, max_iter: int
) -> tuple[list[ColumnState], Convergence, list[Step]]:
    columns = _started(problem, tol, max_iter) if start is None else columns_at(problem, start)
    return columns, *take_steps(problem, columns, tol, max_iter)


def _started(problem: DenseProblem, tol: float, max_iter: int) -> list[ColumnState]:
    """Return the columns at the minimum for every 4th row, or near their own from zero."""
    table = problem.table
    n, D = len(table.w), table.n_features
    enough = n >= EVERY * max(THINNED_ROWS_PER_FEATURE * D, FEWEST)
    few = table.thinned(EVERY) if enough else None
    if few is None or not np.any(few.w):
        zero = columns_at(problem, np.zeros((len(table.y), D + 1)))
        sweeps = problem.losses[0].has_inactive_rows and WIDE <= D
        return _swept(problem, zero) if sweeps else zero
    ends, *_ = _descended(replace(problem, table=few), None, max(COARSE, tol), max_iter)
    return columns_at(problem, np.stack([c.theta for c in ends]))


def _swept(problem: DenseProblem, columns: list[ColumnState]) -> list[ColumnState]:
    """Take some steps of conjugate gradients, where all Hessians are equal (Polak and Ribière)."""
    active = [curvatures(problem, k, at) for k, at in enumerate(columns)]
    if not all(np.array_equal(c, active[0]) for c in active):
        return columns
    factor = factored(changed(problem.table, None, active[0]).total, problem)
    live = list(range(len(columns)))
    gradients = gradients_of(problem, columns, live)
    up = solved(factor, gradients)
    steps = -up
    for sweep in range(SWEEPS):
        images, slopes = problem.table.image(steps), (gradients * steps).sum(axis=1).tolist()
        columns = [moved(problem, k, columns[k], steps[k], images[k], slopes[k]) for k in live]
        if sweep == SWEEPS - 1:
            break
        new = gradients_of(problem, columns, live)
        before, up = np.maximum((gradients * up).sum(axis=1), TINY), solved(factor, new)
        turn = np.maximum(((new - gradients) * up).sum(axis=1) / before, 0.0)
        steps, gradients = turn[:, None] * steps - up, new
    return columns
