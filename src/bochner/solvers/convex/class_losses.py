"""Losses of classifiers: of one column against its −1 and +1, or of the columns of all classes.

The multinomial loss also serves rows of shares that sum to one. Losses of numbers by name are here
because it is one of them.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit, logsumexp, softmax

from bochner._core.names import meant
from bochner._core.shapes import Array, Float
from bochner.errors import InvalidInput
from bochner.solvers.convex.losses import (
    Absolute,
    GammaDeviance,
    Huber,
    Loss,
    OfMargin,
    PoissonDeviance,
    Quantile,
    RampLoss,
    Squared,
    SquaredRampLoss,
    as_levels,
)

# --- one column: y is −1 or +1, or 0 ------------------------------------------------------------


class ClassMargin(OfMargin):
    """A loss of 1 − y f; nothing where y is 0, which rows that take no part have."""

    def margin(self, y: Array, f: Array) -> Array:
        return np.abs(y) - y * f

    def direction(self, y: Array, f: Array) -> Array:
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

    def curvature(self, y: Array, f: Array) -> Array:
        return expit(f) * expit(-f)


# --- all columns together: y is 1 in the column of the class, else 0 -----------------------------


class SoftmaxLoss(Loss):
    """log Σₖ exp(fₖ) − Σₖ yₖfₖ."""

    joint = True

    def value(self, y: Array, f: Array) -> Array:
        return (logsumexp(f, axis=1) - (y * f).sum(axis=1))[:, None]

    def slope(self, y: Array, f: Array) -> Array:
        return softmax(f, axis=1) - y

    def curvature(self, y: Array, f: Array) -> Array:
        return softmax(f, axis=1)

    def hessian_product(self, state: Array, V: Array) -> Array:
        return state * (V - (state * V).sum(axis=1, keepdims=True))

    def diagonal(self, state: Array) -> Array:
        return state * (1 - state)


@dataclass(frozen=True)
class Multinomial(SoftmaxLoss):
    """The loss of classes, minus the log of the softmax."""


@dataclass(frozen=True)
class MultinomialShares(SoftmaxLoss):
    """The loss of shares y ≥ 0 of sum one."""

    of_numbers = True


def check_shares(y: Float[Array, "n t"], w: Float[Array, "n 1"]) -> None:
    """Refuse targets that are no shares."""
    there = y[w[:, 0] > 0]
    sums = there.sum(axis=1)
    if y.shape[1] < 2 or np.any(there < 0) or np.any(np.abs(sums - 1) > 1e-6):
        raise InvalidInput(
            'KernelRegressor: loss="multinomial" needs y of two columns or more, shares of 0 or '
            f"above whose rows sum to one; got {y.shape[1]} columns, sums from {sums.min():g} to "
            f"{sums.max():g}. Divide rows by their sums; for labels take LogisticRegression."
        )


# --- losses of numbers by name -------------------------------------------------------------------

#: Losses by name.
NAMES: dict[str, type[Loss]] = {
    "squared": Squared,
    "absolute": Absolute,
    "huber": Huber,
    "quantile": Quantile,
    "poisson": PoissonDeviance,
    "gamma": GammaDeviance,
    "multinomial": MultinomialShares,
}


def by_name(loss: object, quantiles: Any = (0.1, 0.5, 0.9)) -> Loss:
    """Return a loss given by name, or as a value; "quantile" has a column for each level."""
    if isinstance(loss, Loss):
        if loss.joint and not loss.of_numbers:
            raise InvalidInput(
                f"loss must be one of numbers; got {loss!r}, which is of classes. Take a "
                "classifier."
            )
        return loss
    if isinstance(loss, str) and loss in NAMES:
        return Quantile(as_levels(quantiles)) if loss == "quantile" else NAMES[loss]()
    raise InvalidInput(
        f"loss must be one of {', '.join(map(repr, NAMES))}, or a value such as Huber(0.5), "
        "CustomLoss(value, slope, curvature) or JointLoss(value, slope, hessian); "
        f"got {loss!r}{meant(loss, NAMES) or '.'}"
    )
