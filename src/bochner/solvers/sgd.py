"""Stochastic gradient descent on rows of features, or on rows of the kernel matrix.

Minimises (1/W) Σ wᵢ ℓ(yᵢ, fᵢ) + (alpha/2)‖β‖² over f = φ(x)·β + b by steps on batches B of rows,

    gᵢ = (η/|B|) (wᵢ/w̄) ℓ'(yᵢ, fᵢ),   β ← (1 − η alpha) β − Σ gᵢ φ(xᵢ),   b ← b − Σ gᵢ.

From β = 0 on, β = Σ uᵢ φ(xᵢ) stays in the span of the rows, so that the same steps can be made on
u: f = K u + b and uᵢ ← (1 − η alpha) uᵢ − gᵢ (Kivinen, Smola and Williamson 2004).
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from bochner._core.shapes import Array, Float
from bochner.solvers.convex.losses import (
    EpsilonInsensitive,
    Hinge,
    Huber,
    Logistic,
    Loss,
    Quantile,
    Squared,
)

SLOWEST = 1e-6  # Rates of "adaptive" below this end the descent


#: Losses of classes and of numbers, as scikit-learn scales them, so that alpha is the same; and the
#: largest curvature L of the smooth ones.
CLASS_LOSSES = ("hinge", "squared_hinge", "log_loss", "modified_huber", "perceptron")
NUMBER_LOSSES = (
    "squared_error",
    "huber",
    "epsilon_insensitive",
    "squared_epsilon_insensitive",
    "quantile",
)
CURVATURE = {
    "squared_hinge": 2.0,
    "log_loss": 0.25,
    "modified_huber": 2.0,
    "squared_error": 1.0,
    "huber": 1.0,
    "squared_epsilon_insensitive": 2.0,
}


def as_loss(name: str, epsilon: float = 0.1, quantile: float = 0.5) -> Loss:
    """Return the loss of this name."""
    huber = Hinge(0.5, slopes=(0.0, 4.0))  # (1 − y f)² where y f ≥ −1, else −4 y f: Zhang (2004)
    of_classes = (Hinge(0.0), Hinge(), Logistic(), huber, Hinge(0.0, edge=0.0, at_jump=1.0))
    tubes = (EpsilonInsensitive(epsilon, 0.0), EpsilonInsensitive(epsilon))
    losses = (*of_classes, Squared(), Huber(epsilon), *tubes, Quantile(quantile))
    return dict(zip((*CLASS_LOSSES, *NUMBER_LOSSES), losses, strict=True))[name]


# --- Rates ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Schedule:
    """Learning rates η of steps s = 0, 1, ...."""

    #: η = eta0; 1/(alpha (first + s)); eta0/(s + 1)^power; or eta0, divided by 5 whenever the loss
    #: no longer falls.
    kind: str
    loss: str
    alpha: float
    eta: float | None  # eta0; None is 1/(L (size + 1))
    power: float
    size: float  # mean k(x, x) of the rows

    @cached_property
    def eta0(self) -> float:
        return self._safe if self.eta is None else self.eta

    @property
    def _safe(self) -> float:
        """The rate 1/(L (size + 1)), L the curvature of the loss: no step overshoots its row."""
        return 1 / (CURVATURE.get(self.loss, 1.0) * (self.size + 1))

    @cached_property
    def first(self) -> float:
        """1/(alpha η₀) of "optimal", η₀ the rate of a step from the typical coefficient to zero.

        Divided by the mean of k(x, x): Bottou (2012). With a smooth loss that rate can diverge
        (scikit-learn's does): there η₀ ≤ 1/(L (size + 1)).
        """
        typical = self.alpha**-0.25
        y, f = np.ones((1, 1)), np.full((1, 1), -typical)
        slope = float(as_loss(self.loss).slope(y, f)[0, 0])
        rate = typical / max(1.0, slope) / max(self.size, 1e-300)
        if self.loss in CURVATURE:
            rate = min(rate, self._safe)
        return 1 / (rate * self.alpha)

    def rate(self, step: int, now: float) -> float:
        """Return η of this step; ``now`` is the rate that "adaptive" has come to."""
        if self.kind == "optimal":
            return 1 / (self.alpha * (self.first + step))
        if self.kind == "invscaling":
            return self.eta0 / (step + 1) ** self.power
        return now


# --- Steps ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Walk:
    """State of a descent."""

    coef: Float[Array, "D t"]  # β of features, or u of rows
    intercept: Float[Array, " t"]
    #: Their means over the averaged steps; (0, t) where no step is averaged.
    mean_coef: Float[Array, "_ t"]
    mean_intercept: Float[Array, " t"]
    steps: int = 0
    averaged: int = 0  # steps in the means
    rate: float = 0.0  # current rate of "adaptive"

    def of_width(self, width: int, average: bool) -> "Walk":
        """Return a copy with coefficients zero for what is new."""

        def longer(coef: Array) -> Array:
            return np.concatenate([coef, np.zeros((width - len(coef), coef.shape[1]))])

        wide = average or len(self.mean_coef)
        return replace(
            self,
            coef=longer(self.coef),
            intercept=self.intercept.copy(),
            mean_coef=longer(self.mean_coef) if wide else self.mean_coef.copy(),
            mean_intercept=self.mean_intercept.copy(),
        )

    @property
    def result(self) -> tuple[Float[Array, "D t"], Float[Array, " t"]]:
        """Coefficients and intercept of predictions: the means, once there are any."""
        if self.averaged:
            return self.mean_coef, self.mean_intercept
        return self.coef, self.intercept

    @property
    def support(self) -> Array:
        """Which rows of the coefficients are not all zero."""
        used = self.coef.any(axis=1)
        return used | self.mean_coef.any(axis=1) if len(self.mean_coef) else used


def descended(
    walk: Walk,
    loss: Loss,
    schedule: Schedule,
    fit_intercept: bool,
    average_from: int,
    batch_size: int,
    rows_of: tuple[Float[Array, "c m"], Float[Array, "c t"], Float[Array, " c"]],
    coordinates: Array | None = None,
) -> tuple[Walk, float, float]:
    """Make the steps of these rows, a batch at a time, in the arrays of ``walk``.

    Returns it, the sum of the rows' losses, and their weight. Rows are (R, y, w), w of mean one
    over all rows. R has their features, or kernel values: then ``coordinates`` are their rows of u.
    Coefficients are averaged from step ``average_from`` on, counted from 1; 0 for never.
    """
    R, y, w = rows_of
    steps, averaged, total, weight = walk.steps, walk.averaged, 0.0, 0.0
    coef, mean, b, middle = walk.coef, walk.mean_coef, walk.intercept, walk.mean_intercept
    for first in range(0, len(y), batch_size):
        batch = slice(first, first + batch_size)
        rows, targets, weights = R[batch].astype(np.float64, copy=False), y[batch], w[batch]
        f = rows @ coef + b
        total += float(weights @ loss.value(targets, f).mean(axis=1))
        weight += float(weights.sum())
        eta = schedule.rate(steps, walk.rate)
        g = eta * (loss.slope(targets, f) * (weights / len(targets))[:, None])
        # Never through zero: a penalty too large for the rate makes coefficients zero.
        coef *= max(0.0, 1 - eta * schedule.alpha)
        if coordinates is None:
            coef -= rows.T @ g
        else:
            coef[coordinates[batch]] -= g
        if fit_intercept:
            b -= g.sum(axis=0)
        steps += 1
        if 0 < average_from <= steps:
            averaged += 1
            mean += (coef - mean) / averaged
            middle += (b - middle) / averaged
    return replace(walk, steps=steps, averaged=averaged), total, weight
