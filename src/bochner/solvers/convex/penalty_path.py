"""The penalty of any loss, chosen by the loss of rows that were left out.

Folds are columns: every target has one for each fold, whose weights are zero on the rows left out,
so that all folds share their sweeps. The path goes from large penalties to small ones, each
starting where the last ended, and stops when the loss of the rows left out has risen for good.
"""

from dataclasses import dataclass, replace

import numpy as np

from bochner._core.shapes import Array, Float
from bochner.solvers.convex.lengths import best_constant
from bochner.solvers.convex.loss import Loss
from bochner.solvers.convex.losses import (
    EpsilonInsensitive,
    Huber,
    Quantile,
    SquaredEpsilonInsensitive,
)
from bochner.solvers.convex.nonsmooth import (
    Problem,
    State,
    descend,
    spread,
    start,
)

#: Penalties of the path: from the largest down by this factor, so many at most.
FACTOR, MOST = 10**-0.5, 18

#: Penalties without a lower loss before the path stops.
PATIENCE = 3

#: Width of kinks that each fit starts from, as a share of the first one's.
WIDTH = 0.1

#: Least that is divided by.
TINY = 1e-300

#: Tolerance of the fits along the path.
TOL = 3e-3


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
    """

    alphas: Float[Array, " p"]
    errors: Float[Array, " p"]

    @property
    def best(self) -> int:
        """Index of the largest alpha whose error is within one part in 10⁴ of the least."""
        return int(np.flatnonzero(self.errors <= 1.0001 * self.errors.min())[0])

    @property
    def alpha(self) -> float:
        """The best penalty."""
        return float(self.alphas[self.best])

    @property
    def reason(self) -> str:
        """How the choice was made, and what to do where it is the end of the path."""
        place = f"the best of {len(self.alphas)} by rows left out"
        if self.errors[self.best] >= 1:
            return f"{place}, which a constant serves as well: try another kernel or lengthscale"
        if self.best in (int(np.argmin(self.alphas)), int(np.argmax(self.alphas))):
            return f"{place}, an end of the path"
        return place

    def __str__(self) -> str:
        """Return the path as a table."""
        rows = (f"{a:13.5g}{e:13.5g}" for a, e in zip(self.alphas, self.errors, strict=True))
        return "\n".join([f"{'alpha':>13}{'error':>13}", *rows])


def path_of(
    problem: Problem,
    left_out: Float[Array, "n k"],
    max_iter: int = 200,
    largest: float | None = None,
) -> tuple[HeldOutPath, State]:
    """Return the path, and the first fold's state at the best penalty.

    Parameters
    ----------
    problem : Problem
        Of all rows; its alpha is not looked at.
    left_out : (n, k) bool
        Rows that each fold leaves out.
    max_iter : int, default 200
        Newton steps a penalty, at most.
    largest : float, optional
        The penalty to start from; default :func:`largest_penalty`.
    """
    folds, t = left_out.shape[1], problem.y.shape[1]
    out = np.repeat(left_out, t, axis=1)
    w_all = np.tile(np.broadcast_to(problem.w, problem.y.shape), (1, folds))
    y, w = np.tile(problem.y, (1, folds)), np.where(out, 0.0, w_all)
    held, share = np.where(out, w_all, 0.0), float(w.sum() / w_all.sum())
    loss = tiled(problem.loss, folds)
    inner = replace(problem, y=y, w=w, loss=loss, value=1.0)
    at = first = start(inner)
    constant = _errors(loss, y, held, at.fitted)
    alphas: list[float] = []
    errors: list[float] = []
    states: list[State] = []
    alpha = largest_penalty(problem) if largest is None else largest
    while len(alphas) < MOST and len(alphas) - _lowest(errors) <= PATIENCE:
        at = replace(at, width=WIDTH * first.width)
        at = descend(replace(inner, alpha=share * alpha), at, tol=TOL, max_iter=max_iter)
        alphas.append(alpha)
        errors.append(float(np.mean(_errors(loss, y, held, at.fitted) / constant)))
        states = [*states[-PATIENCE - 1 :], _columns(at, t)]
        alpha *= FACTOR
    path = HeldOutPath(np.array(alphas), np.array(errors))
    return path, states[max(path.best - len(alphas), -len(states))]


def _lowest(errors: list[float]) -> int:
    return 1 + int(np.argmin(errors)) if errors else 0


def _errors(loss: Loss, y: Array, held: Array, f: Array) -> Float[Array, " t"]:
    with np.errstate(over="ignore"):
        total = (held * loss.value(y, f)).sum(axis=0)
    return np.maximum(total, TINY)


def _columns(at: State, t: int) -> State:
    return replace(
        at,
        coef=at.coef[:, :t],
        intercept=at.intercept[:t],
        fitted=at.fitted[:, :t],
        multipliers=at.multipliers[:, :t],
        gap=at.gap[:t],
    )


def tiled(loss: Loss, times: int) -> Loss:
    """Return the loss of columns that are repeated."""
    if isinstance(loss, Quantile) and isinstance(loss.level, tuple) and len(loss.level) > 1:
        return replace(loss, level=times * loss.level)
    if isinstance(loss, Huber) and isinstance(loss.threshold, tuple):
        return Huber(times * loss.threshold)
    if isinstance(loss, EpsilonInsensitive | SquaredEpsilonInsensitive) and isinstance(
        loss.epsilon, tuple
    ):
        return replace(loss, epsilon=times * loss.epsilon)
    return loss


def largest_penalty(problem: Problem) -> float:
    """Return Σ w c |z|², from the first rows: there the penalty leaves next to the constant.

    c is the loss's mean curvature at the best constant, or of its slope's jump spread over the
    residuals, for a loss with kinks.
    """
    block = next(iter(problem.features))
    rows = slice(block.start, block.start + len(block.Z))
    loss, y, w = problem.loss, problem.y, np.broadcast_to(problem.w, problem.y.shape)
    squares = np.einsum("ij,ij->i", block.Z, block.Z, dtype=np.float64)
    squares = float(w[rows, 0] @ squares / max(w[rows, 0].sum(), TINY)) or 1.0
    f = np.tile(best_constant(loss, y, w), (len(y), 1))
    smooth = loss.smooth(spread(y - f, w)) if loss.kinked else loss
    bent = float((w * smooth.curvature(y, f)).sum() / y.shape[1])
    return squares * (bent if np.isfinite(bent) and bent > 0 else float(w[:, 0].sum()))
