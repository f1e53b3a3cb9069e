"""Losses of classifiers: of one column against its −1 and +1, or of the columns of all classes."""

from dataclasses import dataclass

import numpy as np
from scipy.special import expit, logsumexp, softmax

from bochner._core.shapes import Array
from bochner.solvers.convex.losses import Loss, OfMargin, RampLoss, SquaredRampLoss

# --- one column: y is −1 or +1, or 0 ------------------------------------------------------------


class ClassMargin(OfMargin):
    """A loss of 1 − y f; nothing where y is 0, which rows that take no part have."""

    def margin(self, y: Array, f: Array) -> Array:
        return np.abs(y) - y * f

    def direction(self, y: Array, f: Array) -> Array:  # noqa: ARG002
        return -y


@dataclass(frozen=True)
class SquaredHinge(ClassMargin, SquaredRampLoss):
    """max(0, 1 − y f)²."""


@dataclass(frozen=True)
class Hinge(ClassMargin, RampLoss):
    """max(0, 1 − y f); with a width δ, (1 − y f)²/2δ until that is δ/2, and straight from there."""

    width: float = 0.0


@dataclass(frozen=True)
class Logistic(Loss):
    """log(1 + exp(−y f))."""

    def value(self, y: Array, f: Array) -> Array:
        return np.logaddexp(0.0, -y * f)

    def slope(self, y: Array, f: Array) -> Array:
        return -y * expit(-y * f)

    def curvature(self, y: Array, f: Array) -> Array:  # noqa: ARG002
        return expit(f) * expit(-f)


# --- all columns together: y is 1 in the column of the class, else 0 -----------------------------


@dataclass(frozen=True)
class Multinomial(Loss):
    """log Σₖ exp(fₖ) − f_y: minus the log of the softmax."""

    joint = True

    def value(self, y: Array, f: Array) -> Array:
        return (logsumexp(f, axis=1) - (y * f).sum(axis=1))[:, None]

    def slope(self, y: Array, f: Array) -> Array:
        return softmax(f, axis=1) - y

    def curvature(self, y: Array, f: Array) -> Array:  # noqa: ARG002
        return softmax(f, axis=1)

    def hessian_product(self, state: Array, V: Array) -> Array:
        return state * (V - (state * V).sum(axis=1, keepdims=True))

    def diagonal(self, state: Array) -> Array:
        return state * (1 - state)
