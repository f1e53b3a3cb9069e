"""Stochastic gradient descent on rows of features, or on rows of the kernel matrix.

Minimises (1/W) Σ wᵢ ℓ(yᵢ, fᵢ) + (alpha/2)‖β‖² over f = φ(x)·β + b by steps on batches B of rows,

    gᵢ = (η/|B|) (wᵢ/w̄) ℓ'(yᵢ, fᵢ),   β ← (1 − η alpha) β − Σ gᵢ φ(xᵢ),   b ← b − Σ gᵢ.

If β starts at 0, β = Σ uᵢ φ(xᵢ) stays in the span of the rows, so the same steps can update u:
f = K u + b and uᵢ ← (1 − η alpha) uᵢ − gᵢ (Kivinen, Smola and Williamson 2004).
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

SLOWEST = 1e-6  # "adaptive" ends the descent if its rate is below

#: Losses for classification and regression, with the scale of scikit-learn (so alpha agrees), and
#: the largest curvature L of the smooth losses.
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
    """Return the loss of this name; ``epsilon`` and ``quantile`` are its parameters, if any."""
    huber = Hinge(0.5, slopes=(0.0, 4.0))  # (1 − y f)² where y f ≥ −1, else −4 y f: Zhang (2004)
    of_classes = (Hinge(0.0), Hinge(), Logistic(), huber, Hinge(0.0, edge=0.0, at_jump=1.0))
    tubes = (EpsilonInsensitive(epsilon, 0.0), EpsilonInsensitive(epsilon))
    losses = (*of_classes, Squared(), Huber(epsilon), *tubes, Quantile(quantile))
    return dict(zip((*CLASS_LOSSES, *NUMBER_LOSSES), losses, strict=True))[name]


@dataclass(frozen=True)
class Schedule:
    """Learning rates η of steps s = 0, 1, ...."""

    #: "constant": eta0; "optimal": 1/(alpha (first + s)); "invscaling": eta0/(s + 1)^power;
    #: "adaptive": eta0, divided by 5 whenever the loss no longer falls.
    kind: str
    loss: str
    alpha: float
    eta: float | None  # eta0; None is 1/(L (size + 1))
    power: float
    size: float  # mean k(x, x) of the rows

    @cached_property
    def eta0(self) -> float:
        return self._safe_rate if self.eta is None else self.eta

    @property
    def _safe_rate(self) -> float:
        """1/(L (size + 1)), which seldom overshoots; L: largest curvature of the loss, else 1."""
        return 1 / (CURVATURE.get(self.loss, 1.0) * (self.size + 1))

    @cached_property
    def first(self) -> float:
        """1/(alpha η₀) of "optimal", η₀ the rate of a step from a typical coefficient to zero.

        η₀ is divided by the mean of k(x, x) (Bottou 2012). With a smooth loss the descent could
        diverge, as in scikit-learn, so η₀ is at most 1/(L (size + 1)).
        """
        typical = self.alpha**-0.25
        y, f = np.ones((1, 1)), np.full((1, 1), -typical)
        slope = float(as_loss(self.loss).slope(y, f)[0, 0])
        rate = typical / max(1.0, slope) / max(self.size, 1e-300)
        if self.loss in CURVATURE:
            rate = min(rate, self._safe_rate)
        return 1 / (rate * self.alpha)

    def rate(self, step: int, current: float) -> float:
        """Return η of step ``step``; ``current`` is the rate of "adaptive"."""
        if self.kind == "optimal":
            return 1 / (self.alpha * (self.first + step))
        if self.kind == "invscaling":
            return self.eta0 / (step + 1) ** self.power
        return current


@dataclass(frozen=True, eq=False)
class Walk:
    """State of a descent."""

    coef: Float[Array, "D t"]  # β of features, or u of rows
    intercept: Float[Array, " t"]
    #: Mean coefficients over the averaged steps; (0, t) without averaging.
    mean_coef: Float[Array, "_ t"]
    mean_intercept: Float[Array, " t"]
    steps: int = 0  # number of steps
    n_averaged: int = 0  # number of steps in the means
    rate: float = 0.0  # current rate of "adaptive"

    def of_width(self, width: int, average: bool) -> "Walk":
        """Return a copy with ``width`` coefficients; new coefficients are zero."""

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
        """Coefficients and intercept for predictions: the means if any step is averaged."""
        if self.n_averaged:
            return self.mean_coef, self.mean_intercept
        return self.coef, self.intercept

    @property
    def support(self) -> Array:
        """Mask of the coefficients that are not zero for all targets."""
        mask = self.coef.any(axis=1)
        return mask | self.mean_coef.any(axis=1) if len(self.mean_coef) else mask


def descend(
    walk: Walk,
    loss: Loss,
    schedule: Schedule,
    fit_intercept: bool,
    average_from: int,
    batch_size: int,
    rows_of: tuple[Float[Array, "c m"], Float[Array, "c t"], Float[Array, " c"]],
    coordinates: Array | None = None,
) -> tuple[Walk, float, float]:
    """Make a step per batch of these rows; the arrays of ``walk`` are modified.

    Returns the walk, the sum of the losses of the rows before their steps, and their weight.
    ``rows_of`` is (R, y, w), where w has mean one over all rows, and R has features, or kernel
    values; with kernel values, ``coordinates`` are the indices of the rows in u. Coefficients are
    averaged from step ``average_from`` on, counted from 1; 0: never.
    """
    R, y, w = rows_of
    steps, n_averaged, total, weight = walk.steps, walk.n_averaged, 0.0, 0.0
    coef, mean, b, middle = walk.coef, walk.mean_coef, walk.intercept, walk.mean_intercept
    for first in range(0, len(y), batch_size):
        batch = slice(first, first + batch_size)
        rows, targets, weights = R[batch].astype(np.float64, copy=False), y[batch], w[batch]
        f = rows @ coef + b
        total += float(weights @ loss.value(targets, f).mean(axis=1))
        weight += float(weights.sum())
        eta = schedule.rate(steps, walk.rate)
        g = eta * (loss.slope(targets, f) * (weights / len(targets))[:, None])
        # If the penalty is too large for the rate, coefficients become zero: no change of sign.
        coef *= max(0.0, 1 - eta * schedule.alpha)
        if coordinates is None:
            coef -= rows.T @ g
        else:
            coef[coordinates[batch]] -= g
        if fit_intercept:
            b -= g.sum(axis=0)
        steps += 1
        if 0 < average_from <= steps:
            n_averaged += 1
            mean += (coef - mean) / n_averaged
            middle += (b - middle) / n_averaged
    return replace(walk, steps=steps, n_averaged=n_averaged), total, weight
