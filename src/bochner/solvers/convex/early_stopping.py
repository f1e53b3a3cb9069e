"""Descent that is stopped early: the number of steps is the regulariser.

Conjugate directions on the features themselves, without preconditioner: large eigenvalues of ZᵀZ
are fitted first, small ones late, so that few steps are a smooth fit; see
Yao, Rosasco and Caponnetto (2007) for plain descent. Rows left out say when to stop.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from bochner._core.shapes import Array, Float
from bochner.solvers.convex.lengths import best_length
from bochner.solvers.convex.loss import Loss
from bochner.solvers.convex.nonsmooth import Problem, State, start
from bochner.solvers.convex.penalty_path import largest_penalty
from bochner.solvers.convex.second_order import images, pull_of

#: Steps without a lower loss of the rows left out before it is over.
PATIENCE = 10

#: Width of kinks, as a share of the residuals' spread: descent needs slopes that do not jump.
WIDTH = 0.05

#: Share of the first loss that is none.
FITTED = 1e-9

#: Least loss that shares are taken of.
TINY = 1e-300


@dataclass(frozen=True, eq=False)
class Stopped:
    """Where the steps led, and what rows left out lost on the way.

    Attributes
    ----------
    state : State
        After the last step.
    errors : (s, t) float64
        Loss of the rows left out (or of all, if there are none), as a share of that of the best
        constant, before the first step and after every one.
    """

    state: State
    errors: Float[Array, "s t"]

    @property
    def best(self) -> int:
        """Fewest steps whose error is the least, but for 1e-4 of it and 1e-9 of the first."""
        return _fewest(self.errors)


def stopped_early(problem: Problem, left_out: Float[Array, " n"], max_iter: int) -> Stopped:
    """Descend on the other rows until the loss of those left out has risen for good."""
    out = left_out[:, None]
    held = np.where(out, np.broadcast_to(problem.w, problem.y.shape), 0.0)
    return take_steps(replace(problem, w=np.where(out, 0.0, problem.w)), max_iter, held)


def take_steps(problem: Problem, steps: int, held: Array | None = None) -> Stopped:
    """Take so many steps from the best constant; with weights ``held``, fewer if those say so."""
    at = start(problem)
    loss = problem.loss.smooth(WIDTH * at.width) if problem.loss.kinked else problem.loss
    unit, errors = 1 / largest_penalty(problem), [_error(problem, held, at)]
    trail = _Trail(*(np.zeros(a.shape) for a in (at.coef, at.intercept, at.fitted)))
    old: Array | None = None
    for step in range(steps):
        slope = problem.w * loss.slope(problem.y, at.fitted)
        pull = pull_of(problem.features, slope)
        pull[:-1] += problem.alpha * at.coef
        pull[-1] *= problem.fit_intercept
        trail = _next(problem, trail, -unit * pull, _polak(pull, old))
        at, old = _moved(problem, loss, at, trail), pull
        errors.append(_error(problem, held, at))
        shares = np.array(errors) / np.maximum(errors[0], TINY)
        if shares[-1].mean() <= FITTED or (
            held is not None and step + 1 - _fewest(shares) >= PATIENCE
        ):
            break
    return Stopped(at, np.array(errors) / np.maximum(errors[0], TINY))


def _fewest(errors: Float[Array, "s t"]) -> int:
    mean = errors.mean(axis=1)
    return int(np.argmax(mean <= 1.0001 * mean.min() + FITTED * mean[0]))


class _Trail(NamedTuple):
    """A direction in β and b, and its image."""

    coef: Float[Array, "D t"]
    intercept: Float[Array, " t"]
    image: Float[Array, "n t"]


def _polak(pull: Array, old: Array | None) -> Float[Array, " t"]:
    """Return how much of the last direction is kept: Polak and Ribière's, zero or above."""
    if old is None:
        return np.zeros(pull.shape[1])
    kept = (pull * (pull - old)).sum(axis=0) / np.maximum((old * old).sum(axis=0), TINY)
    return np.maximum(kept, 0.0)


def _next(problem: Problem, trail: _Trail, down: Array, kept: Array) -> _Trail:
    image = images(problem.features, down, len(problem.y))
    return _Trail(
        down[:-1] + kept * trail.coef,
        down[-1] + kept * trail.intercept,
        image + kept * trail.image,
    )


def _moved(problem: Problem, loss: Loss, at: State, trail: _Trail) -> State:
    """Return the lowest point along the direction."""
    along = problem.alpha * (at.coef * trail.coef).sum(axis=0)
    across = problem.alpha * (trail.coef**2).sum(axis=0)

    def slope(length: Array) -> Float[Array, " t"]:
        with np.errstate(over="ignore", invalid="ignore"):
            s = loss.slope(problem.y, at.fitted + length * trail.image)
            total = (problem.w * s * trail.image).sum(axis=0) + along + length * across
        return np.nan_to_num(total, nan=np.inf, posinf=np.inf)

    length = best_length(slope, len(along))
    return replace(
        at,
        coef=at.coef + length * trail.coef,
        intercept=at.intercept + length * trail.intercept,
        fitted=at.fitted + length * trail.image,
    )


def _error(problem: Problem, held: Array | None, at: State) -> Float[Array, " t"]:
    w = problem.w if held is None else held
    with np.errstate(over="ignore"):
        return (w * problem.loss.value(problem.y, at.fitted)).sum(axis=0)
