"""Algorithms, and the minimum they find with its outcome, whose text is the remedy.

A loss whose slope jumps is smoothed about multipliers, which make it exact, by every algorithm
(:mod:`bochner.solvers.convex.newton`).
"""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from bochner._core.shapes import Array, Float
from bochner._core.text import Sentence

# Newton steps by Cholesky factors of Hessians or of the kernel matrix of the active rows: each step
# sums the Hessian again ("cholesky"), or updates the last one by the rows whose curvature has
# changed. Newton steps by products with Hessians, preconditioned, where all columns share their
# passes. Sequential minimal optimisation of the dual, on a kernel matrix.
Algorithm = Literal["cholesky", "cholesky updates", "conjugate gradients", "libsvm"]

# --- outcomes ------------------------------------------------------------------------------


class Convergence(Sentence):
    """How the minimisation ended, and what to do; ``str(outcome)`` is the sentence."""

    CONVERGED = "Converged: the objective is within tol of its minimum, relative."
    ROUNDED = (
        "Converged as far as rounding allows: no step lowers the objective by more than the "
        'precision of the features resolves. precision="float64" resolves more.'
    )
    MOST_STEPS = (
        "Not converged: max_iter Newton steps were taken, or 1,000 moves of LIBSVM for each row, "
        "and the objective still falls. Raise max_iter or tol, or penalise more (a smaller C, a "
        "larger alpha)."
    )
    UNBOUNDED = (
        "The loss is next to nothing without a penalty: the classes are separable, or the target "
        "is fitted exactly, so that no finite coefficients are best; those here are some that fit. "
        "Set a penalty: a finite C, an alpha above zero."
    )

    @property
    def good(self) -> bool:
        """Whether nothing needs to be done."""
        return self in (Convergence.CONVERGED, Convergence.ROUNDED)


class Step(NamedTuple):
    """Record of a step; see :class:`NewtonHistory`."""

    objective: float
    decrease: float
    products: float = 0.0
    active: float = 1.0
    width: float = 0.0


@dataclass(frozen=True, eq=False)
class NewtonHistory:
    """Record of each Newton step, all (s,)."""

    # Value after the step, summed over columns; of the smoothed loss where one is smoothed.
    objective: Float[Array, " s"]
    decrease: Float[Array, " s"]  # decrease that the step promised
    products: Float[Array, " s"]  # products with the Hessian; 0 where it was factored
    active: Float[Array, " s"]  # share of the rows with curvature, the largest of all columns
    width: Float[Array, " s"]  # width of the smoothing; 0 for smooth losses

    def __len__(self) -> int:
        return len(self.objective)


def history_of(steps: tuple[Step, ...]) -> NewtonHistory:
    """Return the steps as arrays."""
    return NewtonHistory(*np.array(steps, dtype=float).reshape(-1, len(Step._fields)).T)


@dataclass(frozen=True, eq=False)
class Optimum:
    """Where the objective is least."""

    coef: Float[Array, "D t"]  # β
    intercept: Float[Array, " t"]
    alpha: Any  # one for all columns, or one each
    # Value there, summed over columns; of the loss itself, not of a smoothed one
    objective: float
    # The minimum is at most this much lower; 0 for smooth losses
    gap: float
    outcome: Convergence  # its text is the remedy
    history: NewtonHistory
    algorithm: Algorithm | None = None  # what found it

    @property
    def theta(self) -> Float[Array, "t p"]:
        return np.column_stack([self.coef.T, self.intercept])

    def __repr__(self) -> str:
        return (
            f"Optimum(objective={self.objective:.6g}, D={len(self.coef)}, "
            f"steps={len(self.history)}, outcome={self.outcome.name}, algorithm={self.algorithm!r})"
        )
