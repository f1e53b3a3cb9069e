"""Convex losses ℓ(y, f) as values: value, slope and curvature in f, and a smooth one near a kink.

How they are used: :func:`bochner.solvers.convex.newton.minimise` minimises
Σ wᵢ ℓ(yᵢ, fᵢ) + (alpha/2)‖β‖² over f = Zβ + b. It takes y and f as (n, t) float64, one problem a
column, and asks a loss for

* ``value(y, f)``, (n, t): ℓ of each number;
* ``slope(y, f)``, (n, t): ∂ℓ/∂f;
* ``curvature(y, f)``, (n, t), not negative: ∂²ℓ/∂f², zero where a row takes no part.

A loss with kinks (``kinked``) has neither where it bends: ``smooth(width)`` is the loss
ℓ_δ(y, f) = max_q q·m − ℓ*(q) − δ q²/2 of Nesterov (2005), smooth and never above ℓ: so the
minimum of Σ w ℓ_δ bounds that of Σ w ℓ from below; ``minimise`` lets δ go to zero until the two
meet. ``spread(y, f)`` is the δ to start from, in units of f.

A joint loss (``joint``) has one value a row, (n, 1), of all columns together. Its ``curvature`` is
what ``bend(state, V)`` needs to multiply the Hessians of the rows by the rows of V, and
``diagonal(state)`` their diagonals. Columns that differ, as levels of ``Quantile``, have ``at``.

Losses of numbers are in ``bochner.solvers.convex.losses``, of classes in
``bochner.solvers.convex.class_losses``; a loss of one's own is a class with these methods.
"""

from abc import ABC, abstractmethod

import numpy as np

from bochner._core.shapes import Array, Float


class Loss(ABC):
    """A convex loss of the prediction f, for the target y."""

    @property
    def joint(self) -> bool:
        """Whether one value is made of all columns of a row."""
        return False

    @property
    def kinked(self) -> bool:
        """Whether slopes jump, so that ``minimise`` goes through ``smooth``."""
        return False

    @property
    def local(self) -> bool:
        """Whether rows that do not bend have no slope either."""
        return False

    @abstractmethod
    def value(self, y: Float[Array, "n t"], f: Float[Array, "n t"]) -> Float[Array, "n t"]:
        """Return ℓ(y, f)."""

    @abstractmethod
    def slope(self, y: Float[Array, "n t"], f: Float[Array, "n t"]) -> Float[Array, "n t"]:
        """Return ∂ℓ/∂f; at a kink, one of the slopes between both sides."""

    @abstractmethod
    def curvature(self, y: Float[Array, "n t"], f: Float[Array, "n t"]) -> Float[Array, "n t"]:
        """Return ∂²ℓ/∂f²; at a kink zero."""

    def bend(self, state: Float[Array, "n t"], V: Float[Array, "n t"]) -> Float[Array, "n t"]:
        """Return the Hessian of each row times the row of V; ``state`` is what ``curvature`` is."""
        return state * V

    def diagonal(self, state: Float[Array, "n t"]) -> Float[Array, "n t"]:
        """Return the diagonals of the rows' Hessians."""
        return state

    def stiffening(self, y: Float[Array, "n t"], f: Float[Array, "n t"]) -> Float[Array, "n t"]:
        """Return −δ ∂(slope)/∂δ of a smoothed loss: the slopes that grow as δ shrinks."""
        return np.where(self.curvature(y, f) > 0, self.slope(y, f), 0.0)

    def distance(self, y: Float[Array, "n t"], f: Float[Array, "n t"]) -> Float[Array, "n t"]:  # noqa: ARG002
        """Return how far rows are from bending, negative where they do; asked of local losses."""
        return np.full(np.shape(f), -np.inf)

    def smooth(self, width: float) -> "Loss":  # noqa: ARG002
        """Return the loss whose slope takes ``width`` to change where this one's jumps."""
        return self

    def spread(self, y: Float[Array, "n t"], f: Float[Array, "n t"]) -> float:
        """Return the width to start smoothing from: the mean of |y − f|."""
        return float(np.abs(y - f).mean())

    @property
    def degree(self) -> int:
        """p, where the loss of y and f in units s is s⁻ᵖ times that in units of one; else 0."""
        return 0

    def in_units(self, units: Float[Array, " t"]) -> "Loss":  # noqa: ARG002
        """Return the loss whose numbers are in these units, one for each column."""
        return self

    def settled(self, intercept: Float[Array, " t"]) -> Float[Array, " t"]:
        """Return the intercepts; where only their differences matter, about their mean."""
        return intercept

    def at(self, columns: Array) -> "Loss":  # noqa: ARG002
        """Return the loss of these columns."""
        return self


def weighted(w: Array, A: Array) -> Array:
    """Return w A; rows of no weight take no part, whatever they hold."""
    return w * A if w.all() else np.where(w > 0, w * A, 0.0)


# --- Ramps ---------------------------------------------------------------------------------------


def positive(m: Array) -> Array:
    """Return max(0, m)."""
    return np.maximum(m, 0.0)


def ramp(m: Array, width: float) -> Array:
    """Return max(0, m), or the largest q m − δq²/2 with q in [0, 1]."""
    if not width:
        return positive(m)
    q = np.clip(m / width, 0.0, 1.0)
    return q * (m - width * q / 2)


def ramp_slope(m: Array, width: float) -> Array:
    """Return the q of the largest."""
    return np.clip(m / width, 0.0, 1.0) if width else 1.0 * (m > 0)


def ramp_curvature(m: Array, width: float) -> Array:
    """Return 1/δ between both straight parts."""
    return ((m > 0) & (m <= width)) / width if width else np.zeros_like(m)
