"""How much a loss is regularised, chosen by the loss of rows that were left out.

Penalties are steps of half decades below the largest, at which the penalty leaves next to the
constant. Two ways lead to the best one:

* :func:`held_out_path` goes from large penalties to small ones, each starting where the last
  ended, and stops when the loss of the rows left out has risen for good. Folds are columns: every
  target has one for each fold, whose weights are zero on the rows left out, so that all folds share
  their passes.
* :func:`walked_path`, and :func:`walk` of penalties that are solved one by one, go downhill from a
  step that is likely to be near.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from bochner._core.progress import progress
from bochner._core.shapes import Array, Bool, Float
from bochner.solvers.convex.driver import solve
from bochner.solvers.convex.losses import Loss
from bochner.solvers.convex.problem import (
    TINY,
    Problem,
    State,
    best_constant,
    places,
    walk,
)
from bochner.solvers.convex.smoothing import constant, spread

#: Factor between penalties, and tolerance of fits to compare.
FACTOR, TOL = 10**-0.5, 3e-3

#: Penalties of a path at most, and those without a lower loss before it stops.
MOST, PATIENCE = 18, 3

#: The largest penalty that a walk goes to, in steps from that at which next to a constant is left.
NEAREST = -2

#: Width of smoothing that each fit starts from, as a share of the first one's.
WIDTH = 0.1

#: Mean loss that is none where rows within ε cost nothing, as a share of what ε itself would cost.
WITHIN_TUBE = 1e-3

#: Share of the first loss that is none.
FITTED = 1e-9


@dataclass(frozen=True, eq=False)
class HeldOutPath:
    """What the rows left out lost, along the path.

    Attributes
    ----------
    alphas : (p,) float64
        Falling; as penalties for all rows.
    errors : (p,) float64
        Mean loss of the rows left out, as a share of that of the best constant; the mean over
        targets.
    none : float, default 0
        Difference of errors that is none.
    """

    alphas: Float[Array, " p"]
    errors: Float[Array, " p"]
    none: float = 0.0

    @property
    def best(self) -> int:
        """Index of the largest alpha whose error is the least, within one part in 10⁴ of it."""
        return _first_least(self.errors, self.none)

    @property
    def alpha(self) -> float:
        """The best penalty."""
        return float(self.alphas[self.best])

    @property
    def reason(self) -> str:
        """How the penalty was chosen, and what to do if it is at an end of the path."""
        chosen = f"the best of {len(self.alphas)} by the loss of held-out rows"
        if self.errors[self.best] >= 1:
            return f"{chosen}; a constant is as good: try another kernel or lengthscale"
        if len(self.alphas) > 1 and self.best == int(np.argmin(self.alphas)):
            return (
                f"{chosen}, and the smallest penalty that was tried: try more features, a smaller "
                "lengthscale, or a smaller penalty (a larger C) by hand"
            )
        if len(self.alphas) > 1 and self.best == int(np.argmax(self.alphas)):
            return (
                f"{chosen}, and the largest penalty that was tried: try another kernel or "
                "lengthscale, or scale the columns"
            )
        return chosen

    def __str__(self) -> str:
        """Return the path as a table."""
        rows = (f"{a:13.5g}{e:13.5g}" for a, e in zip(self.alphas, self.errors, strict=True))
        return "\n".join([f"{'alpha':>13}{'error':>13}", *rows])


# --- penalties -----------------------------------------------------------------------------------


def held_out_path(
    problem: Problem,
    left_out: Bool[Array, "n k"],
    max_iter: int = 200,
    largest: float | None = None,
) -> tuple[HeldOutPath, State]:
    """Return the path, and the first fold's state at the best penalty.

    ``left_out`` are the rows that each fold leaves out; ``largest`` is the penalty to start from.
    """
    folds = _Folds.of(problem, left_out, max_iter)
    at, states = folds.first, list[State]()
    alphas: list[float] = []
    errors: list[float] = []
    alpha = largest_penalty(problem) if largest is None else largest
    while len(alphas) < MOST and len(alphas) - _lowest(errors, folds.none) <= PATIENCE:
        at, error = folds.ended(alpha, at)
        alphas.append(alpha)
        errors.append(error)
        states = [*states[-PATIENCE - 1 :], folds.first_fold(at)]
        alpha *= FACTOR
    path = HeldOutPath(np.array(alphas), np.array(errors), folds.none)
    return path, states[max(path.best - len(alphas), -len(states))]


def walked_path(
    problem: Problem,
    left_out: Bool[Array, "n k"],
    max_iter: int,
    largest: float,
    near: int,
) -> tuple[HeldOutPath, State]:
    """Return penalties downhill from a step that is likely to be near, and the first fold's state.

    ``near`` counts steps from ``largest``; the arguments are else those of :func:`held_out_path`.
    """
    folds = _Folds.of(problem, left_out, max_iter)
    ends: dict[int, tuple[State, float]] = {}

    def lost(step: int) -> float:
        if step not in ends:
            other = min(ends, key=lambda known: abs(known - step), default=None)
            start = folds.first if other is None else ends[other][0]
            ends[step] = folds.ended(largest * FACTOR**step, start)
        return ends[step][1]

    # Large penalties first: they take less time.
    walk(lost, min(max(near, NEAREST), MOST), NEAREST, MOST, first=-1)
    steps = sorted(ends)
    alphas = np.array([largest * FACTOR**step for step in steps])
    path = HeldOutPath(alphas, np.array([ends[step][1] for step in steps]), folds.none)
    return path, folds.first_fold(ends[steps[path.best]][0])


@dataclass(frozen=True, eq=False)
class _Folds:
    """A problem whose columns are the targets for each fold, without its rows."""

    inner: Problem
    held: Float[Array, "n t"]  # weights of the rows left out
    share: float  # of the weight that is not
    unfitted: Float[Array, " t"]  # what the best constants lose
    first: State
    targets: int
    max_iter: int

    @staticmethod
    def of(problem: Problem, left_out: Bool[Array, "n k"], max_iter: int) -> "_Folds":
        folds, t = left_out.shape[1], problem.y.shape[1]
        out = np.repeat(left_out, t, axis=1)
        w_all = np.tile(np.broadcast_to(problem.w, problem.y.shape), (1, folds))
        y, w = np.tile(problem.y, (1, folds)), np.where(out, 0.0, w_all)
        held, share = np.where(out, w_all, 0.0), float(w.sum() / w_all.sum())
        loss = problem.loss.at(np.tile(np.arange(t), folds))
        inner = replace(problem, y=y, w=w, loss=loss, value=1.0)
        first = constant(inner)
        unfitted = np.maximum(_lost(loss, y, held, first.fitted), TINY)
        return _Folds(inner, held, share, unfitted, first, t, max_iter)

    def ended(self, alpha: float, start: State) -> tuple[State, float]:
        """Return the minimum at a penalty for all rows, and what rows left out lose."""
        inner = replace(self.inner, alpha=self.share * alpha)
        at = replace(start, width=WIDTH * self.first.width)
        at = solve(inner, at, tol=TOL, max_iter=self.max_iter)
        lost = np.maximum(_lost(inner.loss, inner.y, self.held, at.fitted), TINY)
        error = float(np.mean(lost / self.unfitted))
        progress("Choosing the penalty", f"{alpha:.3g}, held-out loss {error:.4g}")
        return at, error

    def first_fold(self, at: State) -> State:
        return at.at(np.arange(self.targets))

    @cached_property
    def none(self) -> float:
        """The error that is none: a thousandth of what rows at ε would lose if ε cost something.

        Rows of targets without noise lie at the border of the tube, and what rows between them lose
        falls with the penalty for ever, as far as rounding goes.
        """
        lost = WITHIN_TUBE * self.held.sum(axis=0) * self.inner.loss.tube**self.inner.loss.degree
        return float(np.mean(lost / self.unfitted))


def _first_least(errors: Float[Array, " p"], none: float) -> int:
    return int(np.flatnonzero(errors <= 1.0001 * errors.min() + none)[0])


def _lowest(errors: list[float], none: float) -> int:
    """Return how many penalties there were when the error was as low as it has become."""
    if not errors:
        return 0
    return 1 + (_first_least(np.array(errors), none) if none else int(np.argmin(errors)))


def _lost(loss: Loss, y: Array, w: Array, f: Array) -> Float[Array, " t"]:
    with np.errstate(over="ignore"):
        return (w * loss.value(y, f)).sum(axis=0)


def largest_penalty(problem: Problem) -> float:
    """Return Σ w c |z|², from the first rows: there the penalty leaves next to the constant.

    c is the loss's mean curvature at the best constant, or of its slope's jump spread over the
    residuals, for a nonsmooth loss.
    """
    block = problem.first
    rows = places(block)
    loss, y, w = problem.loss, problem.y, np.broadcast_to(problem.w, problem.y.shape)
    squares = np.einsum("ij,ij->i", block.Z, block.Z, dtype=np.float64)
    squares = float(w[rows, 0] @ squares / max(w[rows, 0].sum(), TINY)) or 1.0
    f = np.tile(best_constant(loss, y, w), (len(y), 1))
    smooth = loss.smooth(spread(y - f, w)) if loss.nonsmooth else loss
    curvature = float((w * smooth.curvature(y, f)).sum() / y.shape[1])
    some = np.isfinite(curvature) and curvature > 0
    return squares * (curvature if some else float(w[:, 0].sum()))
