"""Newton's method with whole Hessians, each column for itself: where features are not too many.

    minimise  Σᵢ wᵢ ℓ(yᵢ, φ(xᵢ)·β + b) + (alpha/2) ‖β‖²

A column's Hessian is a sum over the rows that bend, kept from step to step and changed by the rows
that bend otherwise than before, O(a D² + D³) for a of them; its Cholesky factor gives the step
(Mangasarian 2002; Keerthi and DeCoste 2005). The images Zd of all columns' steps are one pass,
after which lengths and values need no features.

From zero the way leads over few rows: a column starts from its minimum for every 4th row, which
starts from that for every 16th.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.linalg.blas import dgemm, dgemv, sgemm, sgemv

from bochner._ground.blas import add_gram, product
from bochner._ground.shapes import Array, Float
from bochner.solvers.loss import Loss, weighted
from bochner.solvers.optimum import Convergence

__all__ = ["Descent", "Table", "descend"]

#: Every how many rows are kept on the way from one level to the next ...
EVERY = 4

#: ... as long as this many times the features are left.
ROWS_PER_FEATURE = 2

#: Fewer rows than this are no way.
FEWEST = 500

#: Sides of a column's targets with no more rows than this are kept whole.
FEW = 256

#: What the last step on few rows promises, as a share of the objective: more rows move it by more.
COARSE = 1e-2

#: A Hessian is changed if fewer rows bend otherwise than this share of those that bend ...
CHANGED = 0.7

#: ... and all that were changed since it was added up are at most this many times as many.
DRIFT = 4.0

#: Slopes looked at along a step, at most, and the share of the first that is next to none.
LOOKS = 20
FLAT = 0.1

#: Rows that are gathered at once.
AT_ONCE = 4096

#: What an intercept bends at least, as a share of what it would if every row bent.
FLOOR = 1e-7

#: Shares of the diagonal that are added to a Hessian which rounding has made indefinite.
JITTERS = (0.0, 1e-14, 1e-12, 1e-10, 1e-8, 1e-7, 1e-6, 1e-5)

#: Factors are in float32 where the penalty is at least this share of the trace.
SINGLE = 2e-6

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

    @property
    def dtype(self) -> np.dtype:
        """Precision of the features."""
        return self.pieces[0].dtype

    def parts(self) -> Iterator[tuple[slice, Array]]:
        """Give the pieces with their rows."""
        start = 0
        for Z in self.pieces:
            yield slice(start, start + len(Z)), Z
            start += len(Z)

    def thinned(self, every: int) -> "Table":
        """Return every so many-th row, of as much more weight, and rows on a side with few rows."""
        few = np.zeros(len(self.w), bool)
        for column in self.y:
            side = column > 0
            side ^= np.count_nonzero(side) > len(side) / 2
            if np.count_nonzero(side) <= FEW:
                few |= side
        kept = few.copy()
        kept[::every] = True
        pieces = [Z[kept[rows]] for rows, Z in self.parts()]
        w = np.where(few, self.w, every * self.w)[kept]
        return Table([np.concatenate(pieces)], np.ascontiguousarray(self.y[:, kept]), w)

    def gathered(self, rows: Array) -> Float[Array, "m p"]:
        """Return [Z 1] of these rows, which are in order."""
        starts = np.cumsum([0, *map(len, self.pieces)])
        cuts = np.searchsorted(rows, starts)
        out = np.ones((len(rows), self.n_features + 1), self.dtype)
        for i in np.flatnonzero(np.diff(cuts)):
            here = slice(cuts[i], cuts[i + 1])
            out[here, :-1] = self.pieces[i][rows[here] - starts[i]]
        return out

    def image(self, theta: Float[Array, "u p"]) -> Float[Array, "u n"]:
        """Return Z β + b, a row for each column."""
        coef = theta[:, :-1].astype(self.dtype)
        out = np.empty((len(theta), len(self.w)))
        for rows, Z in self.parts():
            out[:, rows] = _images(coef, Z)
        out += theta[:, -1:]
        return out

    def pulls(self, slopes: Float[Array, "u n"]) -> Float[Array, "u p"]:
        """Return the rows of slopes times [Z 1]."""
        narrow = slopes.astype(self.dtype)
        out = np.zeros((len(slopes), self.n_features + 1))
        for rows, Z in self.parts():
            out[:, :-1] += _sums_of(narrow[:, rows], Z)
        out[:, -1] = slopes.sum(axis=1)
        return out


def _images(coef: Float[Array, "u D"], Z: Float[Array, "b D"]) -> Float[Array, "u b"]:
    if len(coef) == 1:
        gemv = sgemv if Z.dtype == np.float32 else dgemv
        return gemv(1.0, Z.T, coef[0], trans=1)[None]
    return (sgemm if Z.dtype == np.float32 else dgemm)(1.0, coef, Z.T)


def _sums_of(slopes: Float[Array, "u b"], Z: Float[Array, "b D"]) -> Float[Array, "u D"]:
    if len(slopes) == 1:
        return (sgemv if Z.dtype == np.float32 else dgemv)(1.0, Z.T, slopes[0])[None]
    return product(slopes, Z)


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


class _Sum(NamedTuple):
    """The upper triangle of Σ c z zᵀ, z ending in a one, and the rows changed since it was new."""

    total: Float[Array, "p p"]
    curvature: Float[Array, " n"]
    drift: int


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
    problem = _Problem(table, losses, alpha, fit_intercept, slack)
    theta = _started(problem, loss, tol, max_iter) if start is None else start
    fitted = table.image(theta)
    columns = [_column(problem, k, theta[k], fitted[k]) for k in range(len(theta))]
    live, outcome = list(range(len(columns))), Convergence.CONVERGED
    log: list[Any] = []
    directions = _Directions(problem)
    while live:
        if len(log) == max_iter:
            outcome = Convergence.MOST_STEPS
            break
        ways = directions(columns, live)
        images = table.image(np.stack([way.direction for way in ways]))
        moves = [
            _moved(problem, k, columns[k], way, image)
            for k, way, image in zip(live, ways, images, strict=True)
        ]
        for k, move in zip(live, moves, strict=True):
            columns[k] = move.column
        log.append(_logged(columns, moves))
        mean = log[-1][0] / len(columns)
        going = [move.promise > tol * max(move.column.value, mean) for move in moves]
        if any(move.stuck and on for move, on in zip(moves, going, strict=True)):
            outcome = Convergence.ROUNDED
        live = [k for k, move, on in zip(live, moves, going, strict=True) if on and not move.stuck]
    theta, value = np.stack([c.theta for c in columns]), np.array([c.value for c in columns])
    return Descent(theta, value, outcome, tuple(log))


def _started(problem: _Problem, loss: Loss, tol: float, max_iter: int) -> Float[Array, "t p"]:
    """Return the minimum for every 4th row, or zero where few are left."""
    table = problem.table
    n, D = len(table.w), table.n_features
    enough = n >= EVERY * max(ROWS_PER_FEATURE * D, FEWEST)
    few = table.thinned(EVERY) if enough else None
    if few is None or not np.any(few.w):
        return np.zeros((len(table.y), D + 1))
    return descend(
        few,
        loss,
        problem.alpha,
        fit_intercept=problem.fit_intercept,
        start=None,
        tol=max(COARSE, tol),
        max_iter=max_iter,
        slack=problem.slack,
    ).theta


# --- steps ---------------------------------------------------------------------------------------


class _Way(NamedTuple):
    """Newton's direction, the decrease it promises, and the share of rows that bend."""

    direction: Float[Array, " p"]
    promise: float
    bending: float


class _Move(NamedTuple):
    """Where a column went, what the step had promised, and the share of rows that bent."""

    column: _Column
    promise: float
    bending: float
    stuck: bool


def _moved(problem: _Problem, k: int, at: _Column, way: _Way, image: Float[Array, " n"]) -> _Move:
    """Go the whole way where that keeps half its promise, else to the least on the way."""
    d, slack = way.direction, problem.slack * abs(at.value)
    moved = _column(problem, k, at.theta + d, at.fitted + image)
    if not moved.value <= at.value - 0.5 * way.promise + slack:
        length = _length(problem, k, at, d, image)
        moved = _column(problem, k, at.theta + length * d, at.fitted + length * image)
    stuck = not moved.value <= at.value + slack
    return _Move(at if stuck else moved, way.promise, way.bending, stuck)


def _length(problem: _Problem, k: int, at: _Column, d: Array, image: Array) -> float:
    """Return the length in (0, 1] of the least value, by the rows that slope at either end."""
    loss, y, f = problem.losses[k], problem.table.y[k], at.fitted
    with np.errstate(over="ignore", invalid="ignore"):
        rows = np.flatnonzero((loss.slope(y, f) != 0) | (loss.slope(y, f + image) != 0))
    y, f, w, image = y[rows], f[rows], problem.table.w[rows], image[rows]
    along, across = float(at.theta[:-1] @ d[:-1]), float(d[:-1] @ d[:-1])

    def slope(length: float) -> float:
        with np.errstate(over="ignore", invalid="ignore"):
            total = float(weighted(w, loss.slope(y, f + length * image)) @ image)
        total += problem.alpha * (along + length * across)
        return np.inf if np.isnan(total) else total

    return _root(slope)


def _root(slope: Callable[[float], float]) -> float:
    """Return where a rising function is next to zero in (0, 1]; one if it is below zero there."""
    low, high, first, top = 0.0, 1.0, slope(0.0), slope(1.0)
    if top <= 0:
        return 1.0
    bottom = first
    for _ in range(LOOKS):
        share = bottom / (bottom - top) if np.isfinite(top) else 0.5
        trial = low + min(max(share, 0.05), 0.95) * (high - low)
        here = slope(trial)
        if abs(here) <= FLAT * abs(first):
            return trial
        if here > 0:
            high, top = trial, here
        else:
            low, bottom = trial, here
    return low


def _column(problem: _Problem, k: int, theta: Array, fitted: Array) -> _Column:
    table = problem.table
    with np.errstate(over="ignore", invalid="ignore"):
        loss = float(weighted(table.w, problem.losses[k].value(table.y[k], fitted)).sum())
    value = loss + 0.5 * problem.alpha * float(theta[:-1] @ theta[:-1])
    return _Column(theta, fitted, np.inf if np.isnan(value) else value)


def _logged(columns: list[_Column], moved: list[_Move]) -> tuple[float, ...]:
    """Return a round's row of :class:`NewtonHistory`."""
    total = sum(c.value for c in columns)
    promised = sum(move.promise for move in moved)
    return (total, promised, 0.0, max(move.bending for move in moved), 0.0)


# --- Newton's direction --------------------------------------------------------------------------


class _Directions:
    """Directions of all columns; keeps their Hessians, and the last factor within a round."""

    def __init__(self, problem: _Problem) -> None:
        self._problem = problem
        self._sums: list[_Sum | None] = [None] * len(problem.losses)
        self._factored: tuple[_Sum, tuple[Array, bool]] | None = None

    def __call__(self, columns: list[_Column], live: list[int]) -> list[_Way]:
        """Return the directions of these columns."""
        pulls = self._pulls(columns, live)
        return [self._way(k, columns[k], pull) for k, pull in zip(live, pulls, strict=True)]

    def _pulls(self, columns: list[_Column], live: list[int]) -> Float[Array, "u p"]:
        """Return the gradients, by one pass."""
        problem = self._problem
        y, w = problem.table.y, problem.table.w
        with np.errstate(over="ignore", invalid="ignore"):
            slopes = [weighted(w, problem.losses[k].slope(y[k], columns[k].fitted)) for k in live]
        pulls = problem.table.pulls(np.stack(slopes))
        pulls[:, :-1] += problem.alpha * np.stack([columns[k].theta[:-1] for k in live])
        pulls[:, -1] *= problem.fit_intercept
        return pulls

    def _way(self, k: int, at: _Column, pull: Float[Array, " p"]) -> _Way:
        table = self._problem.table
        c = weighted(table.w, self._problem.losses[k].curvature(table.y[k], at.fitted))
        d = -cho_solve(self._factor(k, c), pull, check_finite=False)
        return _Way(d, float(-pull @ d) / 2, np.count_nonzero(c) / len(c))

    def _factor(self, k: int, c: Float[Array, " n"]) -> tuple[Array, bool]:
        """Return the Cholesky factor; columns of the same curvatures share one."""
        if self._factored is not None and np.array_equal(self._factored[0].curvature, c):
            self._sums[k] = self._factored[0]
            return self._factored[1]
        self._sums[k] = total = _changed(self._problem.table, self._sums[k], c)
        self._factored = total, _factored(total.total, self._problem)
        return self._factored[1]


def _changed(table: Table, old: _Sum | None, c: Float[Array, " n"]) -> _Sum:
    """Return the sum with curvatures c: the old one changed, or a new one."""
    p, bent = table.n_features + 1, np.flatnonzero(c)
    if old is not None:
        change = c - old.curvature
        rows = np.flatnonzero(change)
        drift = old.drift + len(rows)
        if len(rows) <= CHANGED * len(bent) and drift <= DRIFT * len(bent):
            total = old.total.copy(order="F")
            more = change[rows] > 0
            _add(table, total, rows[more], change[rows[more]], 1.0)
            _add(table, total, rows[~more], -change[rows[~more]], -1.0)
            return _Sum(total, c, drift)
    total = np.zeros((p, p), order="F")
    _add(table, total, bent, c[bent], 1.0)
    return _Sum(total, c, 0)


def _add(table: Table, total: Float[Array, "p p"], rows: Array, c: Array, sign: float) -> None:
    """Add sign Σ c z zᵀ over these rows to the upper triangle."""
    if not len(rows):
        return
    root = None if c.min() == c.max() else np.sqrt(c).astype(table.dtype)
    factor = sign if root is not None else sign * float(c[0])
    for low in range(0, len(rows), AT_ONCE):
        A = table.gathered(rows[low : low + AT_ONCE])
        if root is not None:
            A *= root[low : low + AT_ONCE, None]
        part = np.zeros(total.shape, A.dtype, order="F")
        add_gram(part, A)
        if factor != 1:
            part *= factor
        total += part


def _factored(H: Float[Array, "p p"], problem: _Problem) -> tuple[Array, bool]:
    """Factor H + alpha I, and as much more as rounding needs, in the features' precision."""
    every, diagonal = np.arange(len(H)), np.diag(H) + problem.alpha
    diagonal[-1] = max(H[-1, -1], FLOOR * float(problem.table.w.sum()), TINY)
    single = problem.table.dtype == np.float32 and problem.alpha >= SINGLE * diagonal.sum()
    for jitter in JITTERS:
        shifted = H.astype(np.float32 if single else np.float64, order="F")
        shifted[every, every] = (1 + jitter) * diagonal
        if not problem.fit_intercept:
            shifted[:-1, -1] = 0.0
        try:
            return cho_factor(shifted, lower=False, overwrite_a=True, check_finite=False)
        except LinAlgError:
            continue
    return np.diag(np.sqrt(diagonal)), False
