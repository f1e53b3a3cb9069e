"""Stochastic gradient descent on rows of features, or on rows of the kernel matrix.

Minimises (1/W) Σ wᵢ ℓ(yᵢ, fᵢ) + (alpha/2)‖β‖² over f = φ(x)·β + b by steps on batches B of rows,

    gᵢ = (η/|B|) (wᵢ/w̄) ℓ'(yᵢ, fᵢ),   β ← (1 − η alpha) β − Σ gᵢ φ(xᵢ),   b ← b − Σ gᵢ.

From β = 0 on, β = Σ uᵢ φ(xᵢ) stays in the span of the rows, so that the same steps can be made on
u: f = K u + b and uᵢ ← (1 − η alpha) uᵢ − gᵢ (Kivinen, Smola and Williamson 2004). Which of the two
is made is one branch, and the models are equal to rounding.
"""

from dataclasses import dataclass, replace

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
    SquaredEpsilonInsensitive,
    SquaredHinge,
)

SLOWEST = 1e-6  # Rates of "adaptive" below this end the descent


@dataclass(frozen=True)
class Perceptron(Loss):
    """max(0, −y f)."""

    def value(self, y: Array, f: Array) -> Array:
        return np.maximum(-y * f, 0.0)

    def slope(self, y: Array, f: Array) -> Array:
        return np.where(y * f <= 0, -y, 0.0)

    def curvature(self, y: Array, f: Array) -> Array:
        return np.zeros_like(f)


@dataclass(frozen=True)
class ModifiedHuber(Loss):
    """max(0, 1 − y f)² where y f ≥ −1, else −4 y f: Zhang (2004)."""

    def value(self, y: Array, f: Array) -> Array:
        z = y * f
        return np.where(z >= -1, np.maximum(1 - z, 0.0) ** 2, -4 * z)

    def slope(self, y: Array, f: Array) -> Array:
        z = y * f
        return -y * np.where(z >= -1, 2 * np.maximum(1 - z, 0.0), 4.0)

    def curvature(self, y: Array, f: Array) -> Array:
        return 2.0 * (np.abs(y * f) < 1)


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
    plain = (Hinge, SquaredHinge, Logistic, ModifiedHuber, Perceptron)
    numbers = (Huber(epsilon), EpsilonInsensitive(epsilon), SquaredEpsilonInsensitive(epsilon))
    values = (*(loss() for loss in plain), Squared(), *numbers, Quantile(quantile))
    return dict(zip((*CLASS_LOSSES, *NUMBER_LOSSES), values, strict=True))[name]


# --- Rates ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Schedule:
    """Learning rates η of steps s = 0, 1, ...."""

    #: η = eta0; 1/(alpha (first + s)); eta0/(s + 1)^power; or eta0, divided by 5 whenever the loss
    #: no longer falls.
    kind: str
    eta0: float
    power: float
    alpha: float
    #: Of "optimal": 1/(alpha η₀), where η₀ is the rate at which one step from the typical
    #: coefficient reaches zero (Bottou 2012), divided by the mean of k(x, x). With a smooth loss
    #: that rate can diverge (scikit-learn's does): there η₀ ≤ 1/(L (size + 1)).
    first: float = 0.0

    @staticmethod
    def of(
        kind: str, loss: str, alpha: float, eta0: float | None, power: float, size: float
    ) -> "Schedule":
        """Return the schedule for rows of mean k(x, x) = ``size``; eta0 None is 1/(L (size + 1)).

        L bounds the curvature of the loss: a step never overshoots the row that it is made for.
        """
        start = 1 / (CURVATURE.get(loss, 1.0) * (size + 1))
        if kind != "optimal":
            return Schedule(kind, start if eta0 is None else eta0, power, alpha)
        typical = alpha**-0.25
        y, f = np.ones((1, 1)), np.full((1, 1), -typical)
        slope = float(as_loss(loss).slope(y, f)[0, 0])
        rate = typical / max(1.0, slope) / max(size, 1e-300)
        rate = min(rate, start) if loss in CURVATURE else rate
        return Schedule(kind, start, power, alpha, 1 / (rate * alpha))

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

    @staticmethod
    def start(t: int, rate: float) -> "Walk":
        return Walk(np.zeros((0, t)), np.zeros(t), np.zeros((0, t)), np.zeros(t), rate=rate)

    def of_width(self, width: int, average: bool) -> "Walk":
        """Return a copy with coefficients zero for what is new."""

        def longer(coef: Array) -> Array:
            return np.concatenate([coef, np.zeros((width - len(coef), coef.shape[1]))])

        mean = longer(self.mean_coef) if average or len(self.mean_coef) else self.mean_coef.copy()
        intercepts = {"intercept": self.intercept.copy()}
        intercepts["mean_intercept"] = self.mean_intercept.copy()
        return replace(self, coef=longer(self.coef), mean_coef=mean, **intercepts)

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


class Descent:
    """Makes the steps.

    It continues from the state ``walk``, whose arrays the steps change. Coefficients are averaged
    from step ``average_from`` on, counted from 1; 0 for never.
    """

    def __init__(
        self,
        loss: Loss,
        schedule: Schedule,
        walk: Walk,
        fit_intercept: bool = True,
        average_from: int = 0,
        batch_size: int = 1,
    ) -> None:
        self._loss, self._schedule, self._fit_intercept = loss, schedule, fit_intercept
        self._from, self._batch, self._at = average_from, batch_size, walk
        self._steps, self._averaged, self.rate = walk.steps, walk.averaged, walk.rate
        self.begin()

    def begin(self) -> None:
        """Begin an epoch: its loss is summed anew."""
        self.total = self.weight = 0.0

    def slow_down(self, factor: float) -> None:
        """Divide the rate of steps."""
        self.rate /= factor

    @property
    def walk(self) -> Walk:
        """State after the steps so far; further steps change its arrays."""
        return replace(self._at, steps=self._steps, averaged=self._averaged, rate=self.rate)

    def step(
        self,
        R: Float[Array, "c m"],
        y: Float[Array, "c t"],
        w: Float[Array, " c"],
        columns: Array | None = None,
        coordinates: Array | None = None,
    ) -> None:
        """Make the steps of these rows, a batch at a time; w has mean one over all rows.

        ``R`` are their features, or their rows of the kernel matrix. Then ``columns`` are the rows
        of u of its columns, all nonzero rows of u among them, and ``coordinates`` (c,) the
        columns of the rows themselves.
        """
        walk = self._at
        if columns is None:
            self._sweep(R, y, w, walk.coef, walk.mean_coef, coordinates)
            return
        coef = walk.coef[columns]
        mean = walk.mean_coef[columns] if len(walk.mean_coef) else walk.mean_coef
        self._sweep(R, y, w, coef, mean, coordinates)
        walk.coef[columns] = coef
        if len(mean):
            walk.mean_coef[columns] = mean

    def _sweep(
        self, R: Array, y: Array, w: Array, coef: Array, mean: Array, coordinates: Array | None
    ) -> None:
        walk = self._at
        for first in range(0, len(y), self._batch):
            batch = slice(first, first + self._batch)
            rows = R[batch].astype(np.float64, copy=False)
            eta = self._schedule.rate(self._steps, self.rate)
            g = eta * self._slopes(rows @ coef, y[batch], w[batch])
            # Never through zero: a penalty too large for the rate makes coefficients zero.
            coef *= max(0.0, 1 - eta * self._schedule.alpha)
            if coordinates is None:
                coef -= rows.T @ g
            else:
                coef[coordinates[batch]] -= g
            if self._fit_intercept:
                b = walk.intercept
                b -= g.sum(axis=0)
            self._steps += 1
            if 0 < self._from <= self._steps:
                self._averaged += 1
                mean += (coef - mean) / self._averaged
                middle = walk.mean_intercept
                middle += (walk.intercept - middle) / self._averaged

    def _slopes(self, f: Array, y: Array, w: Array) -> Float[Array, "b t"]:
        """Return (w/|B|) ℓ'(y, f + b), and add the losses to the total."""
        f = f + self._at.intercept
        self.total += float(w @ self._loss.value(y, f).mean(axis=1))
        self.weight += float(w.sum())
        return self._loss.slope(y, f) * (w / len(y))[:, None]
