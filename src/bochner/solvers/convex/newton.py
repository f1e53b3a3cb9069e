"""Newton's method for smooth losses, all columns of a problem sharing their passes.

A step goes along −H⁻¹∇, with H = [Z 1]ᵀ S [Z 1] + alpha diag(1, …, 1, 0) and the curvatures of the
rows in S. H is factored (:mod:`~.dense`) or known by its products (:mod:`~.conjugate_gradients`).
One pass over all rows gives the next value and gradient.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from bochner._core.shapes import Array, Float
from bochner.solvers.cg import inner
from bochner.solvers.convex.losses import Loss, weighted
from bochner.solvers.convex.optimum import Algorithm, Convergence, Step
from bochner.solvers.convex.problem import (
    ROUNDING,
    LineSearch,
    OverRows,
    Problem,
    State,
    backward,
    encoded,
    forward,
)

NOTHING = 1e-9  # Without a penalty, an objective of this share of that at zero is next to nothing


@dataclass(frozen=True, eq=False)
class Point:
    """Parameters, their fit, and the objective of each column with its gradient."""

    theta: Float[Array, "t p"]  # β and b of each column
    fitted: Float[Array, "n t"]  # Z β + b
    value: Float[Array, " t"]  # the objective; a joint one in every place
    gradient: Float[Array, "t p"]

    def at(self, columns: Array) -> "Point":
        part = self.theta[columns], self.fitted[:, columns]
        return Point(*part, self.value[columns], self.gradient[columns])

    def put(self, columns: Array, part: "Point") -> "Point":
        """Return the point with these columns replaced."""
        if len(columns) == len(self.theta):
            return part
        self.fitted[:, columns] = part.fitted
        self.theta[columns] = part.theta
        self.value[columns] = part.value
        self.gradient[columns] = part.gradient
        return self


class Direction(NamedTuple):
    """Newton steps of columns, their products with Hessians, and the share of active rows."""

    steps: Float[Array, "u p"]
    products: int
    active: float


#: From the loss of some columns, their point, which columns these are, and the tolerance.
System = Callable[[Loss, Point, Array, float], Direction]


def _fit_and_gradient(
    Z: Float[Array, "b D"],
    y: Array,
    w: Float[Array, " b #t"],
    encode: Callable[[Array], Array] | None,
    loss: Loss,
    theta: Float[Array, "u p"],
    columns: Array,
) -> tuple[list[Array], Float[Array, "u p"]]:
    """Return Z β + b, (b, u), and the gradient of the loss there, (u, p)."""
    f = forward(Z, theta)
    with np.errstate(over="ignore", invalid="ignore"):
        slope = loss.slope(encoded(y, encode)[:, columns], f)
        return [f], backward(Z, weighted(w, slope))


def point_at(problem: Problem, loss: Loss, theta: Float[Array, "u p"], columns: Array) -> Point:
    """Return value and gradient of these columns, by one pass over all rows."""
    part = partial(
        _fit_and_gradient, encode=problem.encode, loss=loss, theta=theta, columns=columns
    )
    pieces, gradient = problem.rows.sum(OverRows(part, (problem.y, problem.w)))
    fitted = np.concatenate(pieces)
    gradient[:, :-1] += problem.alpha * theta[:, :-1]
    if not problem.fit_intercept:
        gradient[:, -1] = 0.0
    return Point(theta, fitted, values(problem, loss, theta, fitted, columns), gradient)


def values(
    problem: Problem, loss: Loss, theta: Float[Array, "u p"], fitted: Array, columns: Array
) -> Float[Array, " u"]:
    """Return the objective of each column from its fitted values, or a joint one in all places."""
    sums = np.zeros(len(theta))
    for rows in problem.chunks():
        with np.errstate(over="ignore", invalid="ignore"):
            value = loss.value(problem.targets(rows)[:, columns], fitted[rows])
            sums += weighted(problem.w[rows], value).sum(axis=0)
    norms = inner(theta[:, :-1], theta[:, :-1], loss.joint)
    return np.where(np.isnan(sums), np.inf, sums) + 0.5 * problem.alpha * norms


def curvatures(problem: Problem, loss: Loss, point: Point, columns: Array) -> Float[Array, "n u"]:
    """Return the curvature of the loss at the rows."""
    each = ((problem.targets(rows)[:, columns], rows) for rows in problem.chunks())
    return np.concatenate([loss.curvature(y, point.fitted[rows]) for y, rows in each])


def descend(
    problem: Problem,
    start: Float[Array, "t p"] | None,
    system: System,
    algorithm: Algorithm,
    tol: float,
    max_iter: int,
) -> State:
    """Return the minimum, from a start or from zero: steps until every column is done."""
    loss, steps, outcome = problem.loss, list[Step](), Convergence.CONVERGED
    zero = np.zeros((problem.n_columns, problem.rows.n_features + 1))
    live = np.arange(len(zero))
    point = point_at(problem, loss, zero if start is None else start, live)
    nothing = np.full(len(zero), -np.inf)
    if not problem.alpha > 0:
        nothing = NOTHING * values(problem, loss, zero, np.zeros_like(point.fitted), live)
    while True:
        if np.any(point.value[live] <= nothing[live]):
            outcome, live = Convergence.UNBOUNDED, live[point.value[live] > nothing[live]]
        if not len(live):
            break
        if len(steps) == max_iter:
            outcome = Convergence.MOST_STEPS
            break
        part, here = loss.at(live), point.at(live)
        direction = system(part, here, live, tol)
        decrease = -inner(here.gradient, direction.steps, loss.joint) / 2
        moved, stuck = _along(problem, part, here, direction.steps, decrease, live)
        point = point.put(live[~stuck], moved.at(~stuck) if np.any(stuck) else moved)
        value, one = point.value[live], slice(1 if loss.joint else None)
        total, promised = float(value[one].sum()), float(decrease[one].sum())
        steps.append(Step(total, promised, direction.products, direction.active))
        done = decrease <= tol * value
        if np.any(stuck & ~done):
            outcome = Convergence.ROUNDED
        live = live[~(done | stuck)]
    value = point.value.copy()
    if loss.joint:
        value[1:] = 0.0
    return State(
        point.theta[:, :-1].T.copy(),
        point.theta[:, -1].copy(),
        point.fitted,
        value,
        np.zeros(len(zero)),
        algorithm=algorithm,
        outcome=outcome,
        steps=tuple(steps),
    )


def _along(
    problem: Problem, loss: Loss, point: Point, steps: Array, decrease: Array, columns: Array
) -> tuple[Point, Array]:
    """Go the whole way where that keeps half its promise, else to the least on the way.

    Also returned are the columns whose objective no step lowers.
    """
    slack = ROUNDING[np.dtype(problem.first.Z.dtype).name] * np.abs(point.value)
    moved = point_at(problem, loss, point.theta + steps, columns)
    short = ~(moved.value <= point.value - 0.5 * decrease + slack)
    if np.any(short):
        image = moved.fitted - point.fitted
        line = LineSearch(problem, loss, columns, point.theta, point.fitted, steps, image)
        length = np.where(short, line.least(doublings=0), 1.0)
        moved = point_at(problem, loss, point.theta + length[:, None] * steps, columns)
    return moved, ~(moved.value <= point.value + slack)
