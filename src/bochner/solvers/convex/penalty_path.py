"""Choose the penalty by the loss of rows that were left out.

Penalties are steps of half decades below the largest, at which the fit is nearly a constant.
:class:`HeldOutLoss` remembers the loss of each step; the search goes downhill from a step that is
likely to be near the best one.

Folds are columns: every target has one for each fold, whose weights are zero on the rows
left out, so that all folds share their passes. A joint loss has one problem for each fold.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import numpy as np

from bochner._core.progress import progress
from bochner._core.shapes import Array, Bool, Float
from bochner.solvers.convex.losses import Loss
from bochner.solvers.convex.newton import constant, minimise, spread
from bochner.solvers.convex.problem import TINY, Problem, State, best_constant, places, walk

FACTOR, TOL = 10**-0.5, 3e-3  # Factor between penalties, and tolerance of fits to compare

#: Steps of a walk: the first if no penalty is known, the least, the last of a classification, the
#: last of a regression, and a step at which the fit is nearly a constant.
FIRST, NEAREST, FARTHEST, MOST, CONSTANT = 6, -2, 24, 18, -8

WIDTH = 0.1  # Width of smoothing that each fit starts from, as a share of the first one's
WITHIN_TUBE = 1e-3  # Mean loss that counts as none, as a share of what ε itself would cost


@dataclass(frozen=True, eq=False)
class HeldOutPath:
    """What the rows left out lost, along the path.

    Attributes
    ----------
    alphas : (p,) float64
        Falling; as penalties for all rows.
    errors : (p,) float64
        Mean loss of the rows left out, as a share of the loss of the best constant; the mean
        over targets.
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
        rows = (f"{a:13.5g}{e:13.5g}" for a, e in zip(self.alphas, self.errors, strict=True))
        return "\n".join([f"{'alpha':>13}{'error':>13}", *rows])


# --- penalties -----------------------------------------------------------------------------------


class HeldOutLoss(ABC):
    """Loss of the rows left out, for penalties by their step; each is computed once."""

    def __init__(self, largest: float) -> None:
        self.largest = largest
        self.tried: dict[int, float] = {}

    def __call__(self, step: int) -> float:
        if step not in self.tried:
            self.tried[step] = self.lost(step)
        return self.tried[step]

    @abstractmethod
    def lost(self, step: int) -> float:
        """Return the loss at the penalty of a step."""

    def alpha(self, step: int) -> float:
        return float(self.largest * FACTOR**step)

    def path(self, constant: float = 1.0, inflation: float = 1.0) -> HeldOutPath:
        """Return the penalties tried, divided by ``inflation``, and losses, by ``constant``."""
        steps = sorted(step for step in self.tried if step != CONSTANT)
        alphas = np.array([self.alpha(step) for step in steps]) / inflation
        errors = np.array([self(step) for step in steps]) / max(constant, TINY)
        return HeldOutPath(alphas, errors, self.none)

    @property
    def none(self) -> float:
        """Difference of losses that counts as none."""
        return 0.0


def held_out_path(
    problem: Problem,
    left_out: Bool[Array, "n k"],
    max_iter: int = 200,
    largest: float | None = None,
    near: int | None = None,
) -> tuple[HeldOutPath, State | None]:
    """Return the path, and the first fold's state at the best penalty.

    ``left_out`` are the rows that each fold leaves out; ``largest`` is the penalty to start from.
    ``near`` is a step from there that is likely to be near the best one: the path goes downhill.
    """
    largest = largest_penalty(problem) if largest is None else largest
    lost = _Folds(problem, left_out, max_iter, largest)
    start = FIRST if near is None else min(max(near, NEAREST), MOST)
    walk(lost, start, NEAREST, MOST, first=-1)  # Large penalties first: they take less time.
    path = lost.path()
    return path, lost.end(sorted(lost.tried)[path.best])


class _Folds(HeldOutLoss):
    """Loss of the rows left out, as a share of the best constants' loss."""

    def __init__(
        self, problem: Problem, left_out: Bool[Array, "n k"], max_iter: int, largest: float
    ) -> None:
        super().__init__(largest)
        folds = left_out.T[:, :, None] if problem.loss.joint else [left_out]
        self._parts = [FoldProblem.of(problem, out) for out in folds]
        self._targets, self._max_iter = problem.y.shape[1], max_iter
        self.ends: dict[int, list[State]] = {}

    def lost(self, step: int) -> float:
        alpha = self.alpha(step)
        near = min(self.ends, key=lambda known: abs(known - step), default=None)
        starts = [part.first for part in self._parts] if near is None else self.ends[near]
        pairs = zip(self._parts, starts, strict=True)
        ends = [part.minimum(alpha, at, self._max_iter) for part, at in pairs]
        self.ends[step] = ends
        shares = []
        for part, at in zip(self._parts, ends, strict=True):
            lost = _lost(part.inner.loss, part.inner.y, part.held_out, at.fitted)
            shares.append(np.maximum(lost, TINY) / part.unfitted)
        error = float(np.mean(np.concatenate(shares)))
        progress("Choosing the penalty", f"{alpha:.3g}, held-out loss {error:.4g}")
        return error

    def end(self, step: int) -> State | None:
        """Return the first fold's state; a joint loss has none that all rows can start from."""
        if self._parts[0].inner.loss.joint:
            return None
        return self.ends[step][0].at(np.arange(self._targets))

    @property
    def none(self) -> float:
        """Difference of losses that counts as none.

        It is a thousandth of the loss of rows at ε if ε cost something. Rows of targets without
        noise lie at the border of the tube, and the loss of rows between them falls with the
        penalty for ever, as far as rounding goes.
        """
        loss = self._parts[0].inner.loss
        if loss.joint:
            return 0.0
        shares = [part.held_out.sum(axis=0) / part.unfitted for part in self._parts]
        return float(np.mean(WITHIN_TUBE * loss.tube**loss.degree * np.concatenate(shares)))


@dataclass(frozen=True, eq=False)
class FoldProblem:
    """The problem of one fold, or of all folds as columns, without the rows left out."""

    inner: Problem
    held_out: Float[Array, "n t"]  # weights of the rows left out
    share: float  # of the weight that is not left out
    unfitted: Float[Array, " t"]  # loss of the best constants
    first: State | None  # to start from

    @staticmethod
    def of(problem: Problem, left_out: Bool[Array, "n k"]) -> "FoldProblem":
        folds, t = left_out.shape[1], problem.y.shape[1]
        joint, loss = problem.loss.joint, problem.loss
        out = left_out if joint else np.repeat(left_out, t, axis=1)
        w_all = problem.w if joint else np.tile(np.broadcast_to(problem.w, (len(out), t)), folds)
        y, w = np.tile(problem.y, (1, folds)), np.where(out, 0.0, w_all)
        held_out, share = np.where(out, w_all, 0.0), float(w.sum() / w_all.sum())
        loss = loss if joint else loss.at(np.tile(np.arange(t), folds))
        inner = replace(problem, y=y, w=w, loss=loss, value=1.0)
        first = None if joint else constant(inner)
        f = np.tile(best_constant(loss, y, w), (len(y), 1)) if first is None else first.fitted
        unfitted = np.maximum(_lost(loss, y, held_out, f), TINY)
        return FoldProblem(inner, held_out, share, unfitted, first)

    def minimum(self, alpha: float, start: State | None, max_iter: int) -> State:
        """Return the minimum at a penalty for all rows."""
        if self.first is not None and start is not None:
            start = replace(start, width=WIDTH * self.first.width)
        inner = replace(self.inner, alpha=self.share * alpha)
        return minimise(inner, start, tol=TOL, max_iter=max_iter)


def _first_least(errors: Float[Array, " p"], none: float) -> int:
    return int(np.flatnonzero(errors <= 1.0001 * errors.min() + none)[0])


def _lost(loss: Loss, y: Array, w: Array, f: Array) -> Float[Array, " t"]:
    with np.errstate(over="ignore"):
        return (w * loss.value(y, f)).sum(axis=0)


def largest_penalty(problem: Problem) -> float:
    """Return Σ w c |z|², from the first rows: at this penalty the fit is nearly a constant.

    c is the mean curvature of the loss at the best constant; the jump of the slope of a nonsmooth
    loss is spread over the residuals.
    """
    block = next(iter(problem.rows))
    rows = places(block)
    loss, y, w = problem.loss, problem.y, np.broadcast_to(problem.w, problem.y.shape)
    squares = np.einsum("ij,ij->i", block.Z, block.Z, dtype=np.float64)
    squares = float(w[rows, 0] @ squares / max(w[rows, 0].sum(), TINY)) or 1.0
    f = np.tile(best_constant(loss, y, problem.w if loss.joint else w), (len(y), 1))
    smooth = loss.smooth(spread(y - f, w)) if loss.nonsmooth else loss
    curvature = smooth.curvature(y, f)
    curvature = smooth.diagonal(curvature) if loss.joint else curvature
    curvature = float((w * curvature).sum() / y.shape[1])
    is_known = np.isfinite(curvature) and curvature > 0
    return squares * (curvature if is_known else float(w[:, 0].sum()))
