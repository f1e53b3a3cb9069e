"""What the minimisation of a convex loss returns: a value, an outcome whose text is the remedy."""

from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import numpy as np

from bochner._core.shapes import Array, Float


class Convergence(Enum):
    """How the minimisation ended, and what to do; ``str(outcome)`` is the sentence."""

    CONVERGED = "Converged: the objective is within tol of its minimum, relative."
    ROUNDED = (
        "Converged as far as rounding allows: no step lowers the objective by more than the "
        'precision of the features resolves. precision="float64" resolves more.'
    )
    MOST_STEPS = (
        "Not converged: max_iter Newton steps were taken and the objective still falls. Raise "
        "max_iter or tol, or penalise more (a smaller C, a larger alpha)."
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

    def __str__(self) -> str:
        """Return the sentence."""
        return self.value


@dataclass(frozen=True, eq=False)
class NewtonHistory:
    """What each Newton step did, all (s,).

    Attributes
    ----------
    objective : (s,)
        Value after the step, summed over columns; of the smoothed loss where that has kinks.
    decrease : (s,)
        Decrease that the step promised.
    products : (s,)
        Products with the Hessian; 0 where it was factored.
    bending : (s,)
        Share of the rows that bend, the largest of all columns.
    width : (s,)
        Width of kinks; 0 for smooth losses.
    """

    objective: Float[Array, " s"]
    decrease: Float[Array, " s"]
    products: Float[Array, " s"]
    bending: Float[Array, " s"]
    width: Float[Array, " s"]

    def __len__(self) -> int:
        return len(self.objective)


@dataclass(frozen=True, eq=False)
class Optimum:
    """Where the objective is least.

    Attributes
    ----------
    coef : (D, t) float64
        β.
    intercept : (t,) float64
    alpha : float or (t,)
        One for all columns, or one each.
    objective : float
        Its value there, summed over columns; of the loss itself, kinks and all.
    gap : float
        What smoothed kinks leave open: the minimum is at most this much lower. 0 without kinks.
    outcome : Convergence
        Its text is the remedy.
    history : NewtonHistory
    """

    coef: Float[Array, "D t"]
    intercept: Float[Array, " t"]
    alpha: Any
    objective: float
    gap: float
    outcome: Convergence
    history: NewtonHistory

    @property
    def theta(self) -> Float[Array, "t p"]:
        """Coefficients and intercept, a row for each column of the problem."""
        return np.column_stack([self.coef.T, self.intercept])

    def scaled(self, weights: float) -> "Optimum":
        """Return the minimum where all weights are so many times as large, and alpha too."""
        if weights == 1:
            return self
        log = self.history
        return replace(
            self,
            alpha=weights * self.alpha,
            objective=weights * self.objective,
            gap=weights * self.gap,
            history=replace(
                log, objective=weights * log.objective, decrease=weights * log.decrease
            ),
        )

    def __repr__(self) -> str:
        """Return one line."""
        return (
            f"Optimum(objective={self.objective:.6g}, D={len(self.coef)}, "
            f"steps={len(self.history)}, outcome={self.outcome.name})"
        )
