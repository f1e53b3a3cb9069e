"""Newton's method with whole Hessians, each column for itself: where features are not too many.

    minimise  Σᵢ wᵢ ℓ(yᵢ, φ(xᵢ)·β + b) + (alpha/2) ‖β‖²

A column's Hessian is a sum over the rows that bend, kept from step to step and changed by the rows
that bend otherwise than before, O(a D² + D³) for a of them; its Cholesky factor gives the step
(Mangasarian 2002; Keerthi and DeCoste 2005). The images Zd of all columns' steps are one pass,
after which lengths and values need no features. Of narrow features each column goes on by itself
over the rows that bend or nearly do, until those left out cost next to nothing.

From zero the way leads over few rows: a column starts from its minimum for every 4th row, which
starts from that for every 16th. Where rows are too few beside wide features, it starts with
conjugate gradients, preconditioned by the Hessian at zero that all columns share: a ridge
regression, and some sweeps after which most rows that will not bend have ceased to.
"""

from itertools import zip_longest
from typing import NamedTuple

import numpy as np

from bochner._core.shapes import Array, Float
from bochner.solvers.convex.loss import Loss, weighted
from bochner.solvers.convex.optimum import Convergence
from bochner.solvers.convex.row_table import Table, changed
from bochner.solvers.convex.whole_steps import (
    TINY,
    Column,
    Log,
    Problem,
    columns_at,
    curvatures,
    factored,
    go,
    moved,
    pulls_of,
    solved,
)

#: Every how many rows are kept on the way from one level to the next ...
EVERY = 4

#: ... as long as this many times the features are left.
ROWS_PER_FEATURE = 8

#: Fewer rows than this are no way.
FEWEST = 500

#: What the last step on few rows promises, as a share of the objective: more rows move it by more.
COARSE = 0.1

#: From so many features on sweeps of conjugate gradients are worth it, beside Newton's steps ...
WIDE = 256

#: ... and so many of them are.
SWEEPS = 9

#: A column goes on by itself, over so many times the rows that bend and the fewest, the nearest to
#: bending ...
NEAR = 2

#: ... where they are this share of all at most.
MOST_NEAR = 0.5


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
    problem = Problem(table, losses, alpha, fit_intercept, slack)
    columns = (
        _started(problem, loss, tol, max_iter) if start is None else columns_at(problem, start)
    )
    near = _near(problem, columns) if loss.local and table.n_features < WIDE else None
    if near is None:
        outcome, log = go(problem, columns, tol, max_iter)
    else:
        outcome, log = _apart(problem, columns, near, tol, max_iter)
    return Descent(
        np.stack([c.theta for c in columns]),
        np.array([c.value for c in columns]),
        outcome,
        tuple(log),
    )


# --- starts --------------------------------------------------------------------------------------


def _started(problem: Problem, loss: Loss, tol: float, max_iter: int) -> list[Column]:
    """Return the columns at the minimum for every 4th row, or near their own from zero."""
    table = problem.table
    n, D = len(table.w), table.n_features
    enough = n >= EVERY * max(ROWS_PER_FEATURE * D, FEWEST)
    few = table.thinned(EVERY) if enough else None
    if few is None or not np.any(few.w):
        zero = columns_at(problem, np.zeros((len(table.y), D + 1)))
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
    return columns_at(problem, theta)


def _swept(problem: Problem, columns: list[Column]) -> list[Column]:
    """Take some steps of conjugate gradients, where all columns bend alike (Polak and Ribière)."""
    bent = [curvatures(problem, k, at) for k, at in enumerate(columns)]
    if not all(np.array_equal(c, bent[0]) for c in bent):
        return columns
    factor = factored(changed(problem.table, None, bent[0]).total, problem)
    live = list(range(len(columns)))
    pulls = pulls_of(problem, columns, live)
    up = solved(factor, pulls)
    steps = -up
    for sweep in range(SWEEPS):
        images, slopes = problem.table.image(steps), (pulls * steps).sum(axis=1).tolist()
        columns = [moved(problem, k, columns[k], steps[k], images[k], slopes[k]) for k in live]
        if sweep == SWEEPS - 1:
            break
        new = pulls_of(problem, columns, live)
        before, up = np.maximum((pulls * up).sum(axis=1), TINY), solved(factor, new)
        turn = np.maximum(((new - pulls) * up).sum(axis=1) / before, 0.0)
        steps, pulls = turn[:, None] * steps - up, new
    return columns


# --- few rows near bending -----------------------------------------------------------------------


class _Near(NamedTuple):
    """The rows of a column that are no farther from bending than ``reach``."""

    rows: Array
    reach: float


def _near(problem: Problem, columns: list[Column]) -> list[_Near] | None:
    """Return the rows of each column that bend or are next to it, or None where these are many."""
    n = len(problem.table.w)
    near = []
    for k, at in enumerate(columns):
        distance = problem.losses[k].distance(problem.table.y[k], at.fitted)
        many = min(NEAR * int(np.count_nonzero(distance < 0)) + FEWEST, n - 1)
        reach = max(float(np.partition(distance, many)[many]), 0.0)
        near.append(_Near(distance <= reach, reach))
    return (
        near if sum(np.count_nonzero(m.rows) for m in near) <= MOST_NEAR * n * len(near) else None
    )


def _apart(
    problem: Problem, columns: list[Column], near: list[_Near], tol: float, max_iter: int
) -> tuple[Convergence, list[Log]]:
    """Take each column to its minimum over the rows near it, until others cost next to nothing.

    What these others cost at that minimum bounds what it is above that over all rows.
    """
    live, outcome = list(range(len(columns))), Convergence.CONVERGED
    log: list[Log] = []
    while live and len(log) < max_iter:
        mean = sum(c.value for c in columns) / len(columns)
        ends = [_end(problem, k, columns[k], near[k], tol, max_iter - len(log), mean) for k in live]
        resting = sum(c.value for k, c in enumerate(columns) if k not in live)
        log += _side_by_side([end.log for end in ends], resting)
        images = problem.table.image(np.concatenate([end.theta for end in ends]))
        left = []
        for k, end, fitted in zip(live, ends, images, strict=True):
            beyond, near[k] = _beyond(problem, k, fitted, near[k])
            columns[k] = Column(end.theta[0], fitted, float(end.value[0]) + beyond)
            outcome = end.outcome if end.outcome is not Convergence.CONVERGED else outcome
            if beyond > tol * max(columns[k].value, mean):
                left.append(k)
        live = left
    return (Convergence.MOST_STEPS if live else outcome), log


def _end(
    problem: Problem, k: int, at: Column, near: _Near, tol: float, most: int, mean: float
) -> Descent:
    """Return the minimum of a column over the rows near it."""
    table = problem.table.of(k, np.flatnonzero(near.rows))
    losses = (problem.losses[k],)
    part = Problem(table, losses, problem.alpha, problem.fit_intercept, problem.slack)
    columns = columns_at(part, at.theta[None])
    outcome, log = go(part, columns, tol, most, mean)
    share = len(table.w) / len(problem.table.w)
    log = [(*row[:3], share * row[3], row[4]) for row in log]
    return Descent(columns[0].theta[None], np.array([columns[0].value]), outcome, tuple(log))


def _beyond(
    problem: Problem, k: int, fitted: Float[Array, " n"], near: _Near
) -> tuple[float, _Near]:
    """Return what the rows that were left out cost, and the rows near now beside those before."""
    loss, y, w = problem.losses[k], problem.table.y[k], problem.table.w
    distance = loss.distance(y, fitted)
    out = np.flatnonzero((distance < 0) & ~near.rows)
    cost = float(weighted(w[out], loss.value(y[out], fitted[out])).sum()) if len(out) else 0.0
    return cost, _Near(near.rows | (distance <= near.reach), near.reach) if cost else near


def _side_by_side(logs: list[tuple[Log, ...]], resting: float) -> list[Log]:
    """Return the rows of columns that went each by itself, as if all had gone at once."""
    rows: list[Log] = []
    for steps in zip_longest(*logs):
        values = [(step or log[-1])[0] for step, log in zip(steps, logs, strict=True)]
        taken = [step for step in steps if step]
        promise, bending = sum(step[1] for step in taken), max(step[3] for step in taken)
        rows.append((resting + sum(values), promise, 0.0, bending, 0.0))
    return rows
