"""Choose the penalty by the loss of rows that were left out.

Penalties are steps of half decades below the largest, at which the fit is nearly a constant.
:class:`HeldOutLoss` remembers the loss of each step; the search goes downhill from a step that is
likely to be near the best one. A fold is the problem of all rows, with weights of zero for the
rows left out.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import numpy as np

from bochner._core.progress import progress
from bochner._core.shapes import Array, Bool, Float
from bochner.solvers.convex.losses import Loss
from bochner.solvers.convex.newton import constant, minimise, spread
from bochner.solvers.convex.problem import TINY, Problem, State, best_constant, places

FACTOR, TOL = 10**-0.5, 3e-3  # Factor between penalties, and tolerance of fits to compare

#: Steps of a walk: the first if no penalty is known, the least, the last of a classification on
#: features, of a regression on features, and with the kernel itself, where a machine that
#: interpolates stays as it is; and a step at which the fit is nearly a constant.
FIRST, NEAREST, FARTHEST, MOST, LAST, CONSTANT = 6, -2, 24, 18, 16, -8


@dataclass(frozen=True, eq=False)
class HeldOutPath:
    """Held-out loss of each penalty."""

    alphas: Float[Array, " p"]  # Decreasing; on the scale of all rows
    errors: Float[Array, " p"]  # As a share of the best constant's loss; the mean over targets
    none: float = 0.0  # Differences of errors up to this size count as zero

    @property
    def best(self) -> int:
        """Index of the largest alpha whose error is the least, within one part in 10⁴ of it."""
        near = self.errors <= 1.0001 * self.errors.min() + self.none
        return int(np.flatnonzero(near)[0])

    @property
    def alpha(self) -> float:
        return float(self.alphas[self.best])

    @property
    def reason(self) -> str:
        """How the penalty was chosen, and what to do if it is at an end of the path."""
        several = len(self.alphas) > 1
        chosen = f"the best of {len(self.alphas)} by the loss of held-out rows"
        if self.errors[self.best] >= 1:
            chosen += "; a constant is as good: try another kernel or lengthscale"
        elif several and self.best == int(np.argmin(self.alphas)):
            chosen += (
                ", and the smallest penalty that was tried: try more features, a smaller "
                "lengthscale, or a smaller penalty (a larger C) by hand"
            )
        elif several and self.best == int(np.argmax(self.alphas)):
            chosen += (
                ", and the largest penalty that was tried: try another kernel or lengthscale, or "
                "scale the columns"
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

    def step_near(self, ridge: float, least: int = 0, most: int = LAST) -> int:
        """Return the step of the penalty of ridge regression; FIRST where it is unknown."""
        if not (np.isfinite(ridge) and ridge > 0):
            return FIRST
        return int(np.clip(np.rint(np.log(ridge / self.largest) / np.log(FACTOR)), least, most))

    def walk(self, start: int, most: int, first: int = 1) -> int:
        """Return the step of least loss: downhill by twos, then by ones.

        ``first`` is the sign of the steps that are tried first.
        """
        best = start
        for step in (2 * first, first):
            for direction in (step, -step):
                before, there = best, best + direction
                # A loss must be smaller by more than rounding
                while NEAREST <= there <= most and self(there) < 0.9999 * self(best):
                    best, there = there, there + direction
                if best != before:
                    break
        return best

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
    ridge: float = 0.0,
) -> tuple[HeldOutPath, State | None]:
    """Return the path, and the first fold's state at the best penalty.

    ``largest`` is the penalty to start from, ``ridge`` one that is likely to be near the best one.
    """
    largest = largest_penalty(problem) if largest is None else largest
    lost = _Folds(problem, left_out, max_iter, largest)
    # Large penalties first: they take less time.
    lost.walk(lost.step_near(ridge, NEAREST, MOST), MOST, first=-1)
    path = lost.path()
    # A joint loss has no end that all rows can start from.
    end = None if problem.loss.joint else lost.ends[sorted(lost.tried)[path.best]][0]
    return path, end


class _Folds(HeldOutLoss):
    """Loss of the rows left out, as a share of the best constants' loss."""

    def __init__(
        self, problem: Problem, left_out: Bool[Array, "n k"], max_iter: int, largest: float
    ) -> None:
        super().__init__(largest)
        self._problem, self._max_iter = replace(problem, value=1.0), max_iter
        self.ends: dict[int, list[State]] = {}
        # Of each fold the weights of its rows and of those left out, the state to start from, which
        # a joint loss lacks, and the loss of the best constants
        self._folds = list[tuple[Array, Array, State | None, Array]]()
        y, loss = problem.y, problem.loss
        for out in left_out.T:
            w, held_out = (np.where(kept[:, None], problem.w, 0.0) for kept in (~out, out))
            first = None if loss.joint else constant(replace(problem, w=w))
            f = np.tile(best_constant(loss, y, w), (len(y), 1)) if first is None else first.fitted
            unfitted = np.maximum(_lost(loss, y, held_out, f), TINY)
            self._folds.append((w, held_out, first, unfitted))

    def lost(self, step: int) -> float:
        alpha, loss, y = self.alpha(step), self._problem.loss, self._problem.y
        near = min(self.ends, key=lambda known: abs(known - step), default=None)
        ends, shares = list[State](), list[Array]()
        for k, (w, held_out, first, unfitted) in enumerate(self._folds):
            start = first if near is None else self.ends[near][k]
            if start is not None and first is not None:
                start = replace(start, width=0.1 * first.width)
            share = float(w.sum() / self._problem.w.sum())
            inner = replace(self._problem, w=w, alpha=share * alpha)
            ends.append(minimise(inner, start, tol=TOL, max_iter=self._max_iter))
            shares.append(np.maximum(_lost(loss, y, held_out, ends[-1].fitted), TINY) / unfitted)
        self.ends[step] = ends
        error = float(np.mean(np.concatenate(shares)))
        progress("Choosing the penalty", f"{alpha:.3g}, held-out loss {error:.4g}")
        return error

    @property
    def none(self) -> float:
        """A thousandth of the loss of rows at ε, if ε cost something.

        Rows of targets without noise lie at the border of the tube, and the loss of rows between
        them falls with the penalty for ever.
        """
        loss = self._problem.loss
        if loss.joint:
            return 0.0
        tube = np.asarray(getattr(loss, "epsilon", 0.0))
        shares = [held_out.sum() / unfitted for _, held_out, _, unfitted in self._folds]
        return float(np.mean(1e-3 * tube**loss.degree * np.array(shares)))


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
