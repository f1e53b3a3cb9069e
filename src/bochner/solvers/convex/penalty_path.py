"""Choice of the penalty by held-out loss.

Penalties decrease in steps of half a decade from the largest, at which the fit is nearly constant.
:class:`HeldOutLoss` caches the loss of each step. The search moves downhill from a first guess of
the best step. The problem of a fold has all rows, with zero weights for the held-out rows.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from bochner._core.progress import progress
from bochner._core.shapes import Array, Bool, Float, Int
from bochner.solvers.convex.kernel import KernelMatrix
from bochner.solvers.convex.newton import mean_size
from bochner.solvers.convex.problem import TINY, Convergence, Problem, State, best_constant, places
from bochner.solvers.ridge.search import downhill

FACTOR = 10**-0.5  # Factor between penalties
FIRST, NEAREST, LAST = 6, -2, 18  # Steps: the first without a guess, the smallest, the largest


@dataclass(frozen=True, eq=False)
class HeldOutPath:
    """Held-out loss of each penalty; a fit leaves out a fold of at most 4,096 rows.

    A fit to all rows has a lower loss. For log losses (here with Platt's targets) its loss is 0.6
    to 0.7 times this loss on tables with few errors.

    Attributes
    ----------
    alphas : array of shape (p,)
        Penalties on the scale of all rows, decreasing.
    errors : array of shape (p,)
        Held-out loss divided by the loss of the best constant, averaged over targets.
    tie : float
        Differences of errors up to this size count as zero.
    """

    alphas: Float[Array, " p"]
    errors: Float[Array, " p"]
    tie: float = 0.0

    @property
    def best(self) -> int:
        """Index of the largest alpha with error at most 1.0001 times the least, plus ``tie``."""
        return int(np.flatnonzero(self.errors <= 1.0001 * self.errors.min() + self.tie)[0])

    @property
    def alpha(self) -> float:
        return float(self.alphas[self.best])

    @property
    def reason(self) -> str:
        """How the penalty was chosen, and what to do if it is at an end of the path."""
        has_path = len(self.alphas) > 1
        chosen = f"the best of {len(self.alphas)} by the loss of held-out rows"
        if self.errors[self.best] >= 1:
            chosen += "; a constant is as good: try another kernel or lengthscale"
        elif has_path and self.best == int(np.argmin(self.alphas)):
            chosen += (
                ", and the smallest penalty that was tried: try more features, a smaller "
                "lengthscale, or a smaller penalty (a larger C) by hand"
            )
        elif has_path and self.best == int(np.argmax(self.alphas)):
            chosen += (
                ", and the largest penalty that was tried: try another kernel or lengthscale, or "
                "scale the columns"
            )
        return chosen

    def __str__(self) -> str:
        rows = (f"{a:13.5g}{e:13.5g}" for a, e in zip(self.alphas, self.errors, strict=True))
        return "\n".join([f"{'alpha':>13}{'error':>13}", *rows])


#: Returns the minimum of the problem of a fold; the start is a minimum of another penalty or fold.
Fit = Callable[[Problem, State | None], State]
#: Loss of these rows with these predictions: one number, or one per target.
Total = Callable[[Int[Array, " m"], Float[Array, "m t"]], Any]


@dataclass(frozen=True, eq=False)
class HeldOutLoss:
    """Held-out loss as a function of the index (step) of a penalty; values are computed once."""

    problem: Problem  # its penalty is not used
    folds: Sequence[Bool[Array, " n"]]
    fit: Fit
    largest: float
    total: Total | None = None  # replaces the problem's loss
    start: State | None = None  # start of the first fits
    losses: dict[int, float] = field(default_factory=dict)
    ends: dict[tuple[int, int], State] = field(default_factory=dict)  # minimum per (fold, step)

    @cached_property
    def constant_loss(self) -> Any:
        return np.maximum(self._loss(None), TINY)

    def __call__(self, step: int) -> float:
        """Return the loss divided by the loss of the best constants, averaged over targets."""
        if step not in self.losses:
            loss = float(np.mean(np.maximum(self._loss(step), TINY) / self.constant_loss))
            progress("Choosing the penalty", f"{self.alpha(step):.3g}, held-out loss {loss:.4g}")
            self.losses[step] = loss
        return self.losses[step]

    def _loss(self, step: int | None) -> Any:
        """Return the held-out loss (of constants for None); infinite if a later fit fails."""
        problem, fitted = self.problem, list[Array]()
        y, w, loss = problem.y, problem.w, problem.loss
        for fold, out in enumerate(self.folds):
            weights = np.where(out[:, None], 0.0, w)
            if step is None:
                b = problem.fit_intercept * best_constant(loss, y, weights)
                fitted.append(np.tile(b, (int(out.sum()), 1)))
                continue
            part = replace(problem, w=weights, alpha=self.alpha(step))
            states = (self._nearest(other, step) for other in (fold, *range(len(self.folds))))
            end = self.fit(part, next(filter(None, states), self.start))
            self.ends[fold, step] = replace(end, width=0.1)
            if self.losses and end.outcome is Convergence.MOST_STEPS:
                return np.inf
            fitted.append(end.fitted[out])
        rows, f = np.concatenate([np.flatnonzero(o) for o in self.folds]), np.concatenate(fitted)
        if self.total is not None:
            return self.total(rows, f)
        with np.errstate(over="ignore"):
            return (w[rows] * loss.value(y[rows], f)).sum(axis=0)

    def _nearest(self, fold: int, step: int) -> State | None:
        """Return the minimum at the nearest penalty; on a kernel matrix not at a smaller one."""
        of_kernel = isinstance(self.problem.rows, KernelMatrix)
        places = [at for at in self.ends if at[0] == fold and (at[1] <= step or not of_kernel)]
        nearest = min(places, key=lambda at: abs(at[1] - step), default=None)
        return None if nearest is None else self.ends[nearest]

    def alpha(self, step: int) -> float:
        return float(self.largest * FACTOR**step)

    def walk(self, ridge: float = 0.0, last: int = LAST) -> None:
        """Search downhill by two steps, then one, from the best ``ridge`` penalty if it is known.

        Larger penalties are tried first, as they take less time.
        """
        best = FIRST
        if np.isfinite(ridge) and ridge > 0:
            step = np.log(ridge / self.largest) / np.log(FACTOR)
            best = int(np.clip(np.rint(step), NEAREST, last))
        # A loss must be smaller by more than rounding
        downhill(self, best, (NEAREST, LAST), sizes=(2, 1), decrease=1e-4)

    def path(self, inflation: float = 1.0) -> tuple[HeldOutPath, State]:
        """Return the path, penalties divided by ``inflation``, and the best state of fold 0.

        Without noise an ε-insensitive loss falls with each smaller penalty: differences up to
        0.001 ε^degree per row are ignored.
        """
        steps, loss, tie = sorted(self.losses), self.problem.loss, 0.0
        if hasattr(loss, "epsilon"):
            weight = sum(float(self.problem.w[out].sum()) for out in self.folds)
            tie = 1e-3 * float(
                np.mean(np.asarray(loss.epsilon) ** loss.degree * weight / self.constant_loss)
            )
        alphas = np.array([self.alpha(step) for step in steps]) / inflation
        path = HeldOutPath(alphas, np.array([self(step) for step in steps]), tie)
        return path, self.ends[0, steps[path.best]]


def largest_penalty(problem: Problem) -> float:
    """Return a penalty at which f is nearly constant: Σ w c times the mean |z|² of the first block.

    c is the curvature at the best constant; the width of a smoothed loss is the mean |residual|.
    """
    block = next(iter(problem.rows))
    rows = places(block)
    loss, y, w = problem.loss, problem.y, np.broadcast_to(problem.w, problem.y.shape)
    squares = np.einsum("ij,ij->i", block.Z, block.Z, dtype=np.float64)
    squares = float(w[rows, 0] @ squares / max(w[rows, 0].sum(), TINY)) or 1.0
    f = np.tile(best_constant(loss, y, problem.w if loss.joint else w), (len(y), 1))
    smooth = loss.smooth(mean_size(y - f, w)) if loss.nonsmooth else loss
    curvature = smooth.curvature(y, f)
    curvature = smooth.diagonal(curvature) if loss.joint else curvature
    curvature = float((w * curvature).sum() / y.shape[1])
    is_known = np.isfinite(curvature) and curvature > 0
    return squares * (curvature if is_known else float(w[:, 0].sum()))
