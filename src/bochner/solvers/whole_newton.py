"""Newton's method with whole Hessians, each column for itself: where features are not too many.

    minimise  Σᵢ wᵢ ℓ(yᵢ, φ(xᵢ)·β + b) + (alpha/2) ‖β‖²

A column's Hessian is added up from the rows that bend and factored, O(a D² + D³) for a rows. Three
things keep rows out of the way (Keerthi and DeCoste 2005; Joachims 1998):

* from zero the way leads over few rows: a column starts from its minimum for every 8th row, which
  starts from that for every 64th;
* where a loss is zero past a margin, several steps are taken on the rows near it alone, copied out;
  the way they went is then looked at on all rows, and cut where rows from outside object;
* the images Zd of all columns' ways are one pass, after which lengths and values need no features.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.linalg.blas import dgemm, dgemv, sgemm, sgemv

from bochner._ground.blas import add_gram
from bochner._ground.shapes import Array, Float
from bochner.solvers.lengths import best_length
from bochner.solvers.loss import Loss
from bochner.solvers.optimum import Convergence

__all__ = ["Descent", "Table", "descend"]

#: Every how many rows are kept on the way from one level to the next ...
EVERY = 8

#: ... as long as this many times the features are left.
ROWS_PER_FEATURE = 4

#: What the last step on few rows promises, as a share of the objective: more rows move it by more.
COARSE = 1e-2

#: Rows are near that bend when their fit moves by this ...
REACH = 0.5

#: ... and are worked on alone, for this many steps at most, if they are at most this share of all.
STEPS = 6
SHARE = 0.5

#: Rows that are gathered at once.
AT_ONCE = 4096

#: An intercept that no row holds moves by this many times the largest fit at most.
FARTHEST = 100.0

#: Shares of the diagonal that are added to a Hessian which rounding has made indefinite.
JITTERS = (0.0, 1e-14, 1e-12, 1e-10, 1e-8, 1e-7, 1e-6, 1e-5)

#: Least that a diagonal is taken for.
TINY = 1e-300


@dataclass(frozen=True, eq=False)
class Table:
    """Rows in memory: features in pieces, and a row for each column of targets.

    Attributes
    ----------
    pieces : list of (b, D)
        Consecutive rows.
    y : (t, n) float64
    w : (n,) float64
    """

    pieces: list[Array]
    y: Float[Array, "t n"]
    w: Float[Array, " n"]

    @property
    def n_features(self) -> int:
        """D."""
        return self.pieces[0].shape[1]

    def parts(self) -> Iterator[tuple[slice, Array]]:
        """Give the pieces with their rows."""
        start = 0
        for Z in self.pieces:
            yield slice(start, start + len(Z)), Z
            start += len(Z)

    def thinned(self, every: int) -> "Table":
        """Return every so many-th row, in memory of their own."""
        kept = np.concatenate([Z[-rows.start % every :: every] for rows, Z in self.parts()])
        return Table([kept], np.ascontiguousarray(self.y[:, ::every]), self.w[::every].copy())

    def of(self, rows: Array, column: int) -> "Table":
        """Return these rows, in order, with one column of targets, in memory of their own."""
        starts = np.cumsum([0, *map(len, self.pieces)])
        cuts = np.searchsorted(rows, starts)
        Z = np.empty((len(rows), self.n_features), self.pieces[0].dtype)
        for i in np.flatnonzero(np.diff(cuts)):
            here = slice(cuts[i], cuts[i + 1])
            np.take(self.pieces[i], rows[here] - starts[i], axis=0, out=Z[here], mode="clip")
        return Table([Z], self.y[column, rows][None], self.w[rows])

    def image(self, theta: Float[Array, "u p"]) -> Float[Array, "u n"]:
        """Return Z β + b, a row for each column."""
        coef = theta[:, :-1].astype(self.pieces[0].dtype)
        out = np.empty((len(theta), len(self.w)))
        for rows, Z in self.parts():
            out[:, rows] = _images(coef, Z)
        out += theta[:, -1:]
        return out

    def pull(self, slope: Float[Array, " n"]) -> Float[Array, " p"]:
        """Return [Z 1]ᵀ slope."""
        narrow, total = slope.astype(self.pieces[0].dtype), np.zeros(self.n_features + 1)
        for rows, Z in self.parts():
            total[:-1] += _gemv(Z.T, narrow[rows])
        total[-1] = slope.sum()
        return total


def _images(coef: Float[Array, "u D"], Z: Float[Array, "b D"]) -> Float[Array, "u b"]:
    if len(coef) == 1:
        gemv = sgemv if Z.dtype == np.float32 else dgemv
        return gemv(1.0, Z.T, coef[0], trans=1)[None]
    return (sgemm if Z.dtype == np.float32 else dgemm)(1.0, coef, Z.T)


def _gemv(A: Array, x: Array) -> Array:
    return (sgemv if A.dtype == np.float32 else dgemv)(1.0, A, x)


@dataclass(frozen=True, eq=False)
class _Problem:
    """What all columns share."""

    table: Table
    losses: tuple[Loss, ...]
    alpha: float
    fit_intercept: bool
    tol: float
    slack: float


class _Column(NamedTuple):
    """One column at a point: coefficients, fit of the rows, objective."""

    theta: Float[Array, " p"]
    fitted: Float[Array, " n"]
    value: float


class Descent(NamedTuple):
    """Where the descent ended; ``log`` has the rows of :class:`NewtonHistory`."""

    theta: Float[Array, "t p"]
    value: Float[Array, " t"]
    outcome: Convergence
    log: tuple[tuple[float, ...], ...]


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
    problem = _Problem(table, losses, alpha, fit_intercept, tol, slack)
    theta = _started(problem, loss, max_iter) if start is None else start
    fitted = table.image(theta)
    columns = [_column(problem, k, theta[k], fitted[k]) for k in range(len(theta))]
    live, outcome, log = list(range(len(columns))), Convergence.CONVERGED, []
    while live:
        if len(log) == max_iter:
            outcome = Convergence.MOST_STEPS
            break
        mean = sum(c.value for c in columns) / len(columns)
        moved = _round(problem, columns, live, mean)
        for k, move in zip(live, moved, strict=True):
            columns[k] = move.column
        log.append(_logged(columns, moved))
        if any(move.stuck and not move.done for move in moved):
            outcome = Convergence.ROUNDED
        live = [k for k, move in zip(live, moved, strict=True) if not (move.done or move.stuck)]
    theta, value = np.stack([c.theta for c in columns]), np.array([c.value for c in columns])
    return Descent(theta, value, outcome, tuple(log))


def _started(problem: _Problem, loss: Loss, max_iter: int) -> Float[Array, "t p"]:
    """Return the minimum for every 8th row, or zero where few are left."""
    table = problem.table
    n, D = len(table.w), table.n_features
    few = table.thinned(EVERY) if n >= EVERY * ROWS_PER_FEATURE * D else None
    if few is None or not few.w.sum() > 0:
        return np.zeros((len(table.y), D + 1))
    return descend(
        few,
        loss,
        problem.alpha * float(few.w.sum() / table.w.sum()),
        fit_intercept=problem.fit_intercept,
        start=None,
        tol=max(COARSE, problem.tol),
        max_iter=max_iter,
        slack=problem.slack,
    ).theta


# --- rounds: one pass over all rows each ---------------------------------------------------------


class _Way(NamedTuple):
    """Where a column wants to go.

    ``promise`` is the decrease that the first step foretold, ``gain`` what the objective of the
    rows looked at falls by; ``last`` the promise of the last step, if none was left undone.
    """

    direction: Float[Array, " p"]
    promise: float
    gain: float
    last: float
    bending: float


class _Move(NamedTuple):
    """Where a column went."""

    column: _Column
    promise: float
    bending: float
    done: bool
    stuck: bool


def _round(
    problem: _Problem, columns: list[_Column], live: list[int], mean: float
) -> list[_Move]:
    """Find a way for each column, by itself, and go along it as far as all rows agree."""
    same = _Same()
    ways = [_way(problem, k, columns[k], same, mean) for k in live]
    images = problem.table.image(np.stack([way.direction for way in ways]))
    return [
        _moved(problem, k, columns[k], way, image, mean)
        for k, way, image in zip(live, ways, images, strict=True)
    ]


def _way(problem: _Problem, k: int, at: _Column, same: "_Same", mean: float) -> _Way:
    """Return the way of a step on all rows, or of some on the rows near the margin."""
    loss, y = problem.losses[k], problem.table.y[k]
    if loss.local:
        near = loss.curvature(y, at.fitted - REACH) + loss.curvature(y, at.fitted + REACH)
        rows = np.flatnonzero(near)
        if len(rows) <= SHARE * len(y):
            return _way_near(problem, k, at, rows, mean)
    way = _newton(problem, k, at, same)
    return way


def _way_near(problem: _Problem, k: int, at: _Column, rows: Array, mean: float) -> _Way:
    """Return the way of some steps on these rows; the others have no loss yet."""
    part = _Problem(
        problem.table.of(rows, k),
        (problem.losses[k],),
        problem.alpha,
        problem.fit_intercept,
        problem.tol,
        problem.slack,
    )
    here = _column(part, 0, at.theta, at.fitted[rows])
    start, first = here, None
    for _ in range(STEPS):
        step = _newton(part, 0, here, _Same())
        first = first or step
        image = part.table.image(step.direction[None])[0]
        move = _moved(part, 0, here, step, image, mean)
        here = move.column
        if move.done or move.stuck:
            break
    share = len(rows) / len(problem.table.w)
    last = step.promise if move.done else np.inf
    gain = start.value - here.value
    return _Way(here.theta - at.theta, first.promise, gain, last, first.bending * share)


def _moved(
    problem: _Problem, k: int, at: _Column, way: _Way, image: Float[Array, " n"], mean: float
) -> _Move:
    """Go the whole way where that gains half of what it should, else to the least on the way."""
    d, slack = way.direction, problem.slack * abs(at.value)
    moved = _column(problem, k, at.theta + d, at.fitted + image)
    short = not moved.value <= at.value - 0.5 * way.gain + slack
    if short:
        length = _length(problem, k, at, d, image)
        moved = _column(problem, k, at.theta + length * d, at.fitted + length * image)
    enough = problem.tol * max(moved.value, mean)
    whole = not short and moved.value <= at.value - way.gain + enough
    done = way.promise <= enough or (whole and way.last <= enough)
    stuck = not moved.value <= at.value + slack
    return _Move(at if stuck else moved, way.promise, way.bending, done, stuck)


def _length(problem: _Problem, k: int, at: _Column, d: Array, image: Array) -> float:
    """Return the length in (0, 1] of the least value, by the rows that slope at either end."""
    loss, y, f = problem.losses[k], problem.table.y[k], at.fitted
    with np.errstate(over="ignore", invalid="ignore"):
        rows = np.flatnonzero((loss.slope(y, f) != 0) | (loss.slope(y, f + image) != 0))
    y, f, w, image = y[rows], f[rows], problem.table.w[rows], image[rows]
    along, across = at.theta[:-1] @ d[:-1], d[:-1] @ d[:-1]

    def slope(length: Array) -> Float[Array, " 1"]:
        with np.errstate(over="ignore", invalid="ignore"):
            total = (w * loss.slope(y, f + length * image)) @ image
            total += problem.alpha * (along + length * across)
        return np.nan_to_num(total, nan=np.inf, posinf=np.inf)

    return 1.0 if slope(np.ones(1))[0] <= 0 else float(best_length(slope, 1)[0])


def _column(problem: _Problem, k: int, theta: Array, fitted: Array) -> _Column:
    table = problem.table
    with np.errstate(over="ignore", invalid="ignore"):
        loss = float(table.w @ problem.losses[k].value(table.y[k], fitted))
    value = loss + 0.5 * problem.alpha * float(theta[:-1] @ theta[:-1])
    return _Column(theta, fitted, np.inf if np.isnan(value) else value)


def _logged(columns: list[_Column], moved: list[_Move]) -> tuple[float, ...]:
    """Return a round's row of :class:`NewtonHistory`."""
    total = sum(c.value for c in columns)
    promised = sum(move.promise for move in moved)
    return (total, promised, 0.0, max(move.bending for move in moved), 0.0)


# --- Newton's direction --------------------------------------------------------------------------


class _Same:
    """The last factor made in a round, and the curvatures it belongs to."""

    curvature: Array | None = None
    solver: "_Solver"


def _newton(problem: _Problem, k: int, at: _Column, same: _Same) -> _Way:
    """Return Newton's direction; columns of the same curvatures share a factor."""
    table, loss, y, f = problem.table, problem.losses[k], problem.table.y[k], at.fitted
    c = loss.curvature(y, f)
    bent = np.flatnonzero(c)
    known = same.curvature is not None and np.array_equal(same.curvature, c)
    w = table.w[bent]
    pull = None
    if not known:
        slope = w * loss.slope(y[bent], f[bent])
        H, pull = _sums(table, bent, w * c[bent], slope)
        same.curvature, same.solver = c, _factored(H, problem)
    if known or not loss.local:
        pull = table.pull(table.w * loss.slope(y, f))
    pull[:-1] += problem.alpha * at.theta[:-1]
    pull[-1] = pull[-1] if problem.fit_intercept else 0.0
    farthest = FARTHEST * (1 + float(np.abs(f).max(initial=0.0)))
    d = same.solver(pull, farthest)
    promise = float(-pull @ d) / 2
    return _Way(d, promise, promise, np.inf, len(bent) / max(len(c), 1))


def _sums(table: Table, rows: Array, c: Array, slope: Array) -> tuple[Array, Array]:
    """Return the upper triangle of Σ c z zᵀ and Σ slope z over these rows, z ending in a one."""
    p, dtype = table.n_features + 1, table.pieces[0].dtype
    H, pull = np.zeros((p, p), order="F"), np.zeros(p)
    even = len(c) > 0 and c.min() == c.max()
    root, narrow = np.sqrt(c).astype(dtype), slope.astype(dtype)
    for low in range(0, len(rows), AT_ONCE):
        at = slice(low, low + AT_ONCE)
        A = np.ones((len(rows[at]), p), dtype)
        A[:, :-1] = table.of(rows[at], 0).pieces[0]
        pull += _gemv(A.T, narrow[at])
        if not even:
            A *= root[at, None]
        part = H if dtype == np.float64 else np.zeros((p, p), dtype, order="F")
        add_gram(part, A)
        if part is not H:
            H += part
    return (c[0] * H if even else H), pull


@dataclass(frozen=True, eq=False)
class _Solver:
    """Cholesky factor of a Hessian; the intercept's place is held by what it must not exceed."""

    factor: tuple[Array, bool]
    free: bool

    def __call__(self, pull: Float[Array, " p"], farthest: float) -> Float[Array, " p"]:
        d = -cho_solve(self.factor, pull, check_finite=False)
        return d


def _factored(H: Float[Array, "p p"], problem: _Problem) -> _Solver:
    raise NotImplementedError
