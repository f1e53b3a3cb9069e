"""Losses of classifiers: of one column against its −1 and +1, or of the columns of all classes."""

from dataclasses import dataclass

import numpy as np
from scipy.special import expit, logsumexp, softmax

from bochner._core.shapes import Array
from bochner.solvers.convex.losses import Loss, OfMargin, RampLoss, SquaredRampLoss, positive

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

    def first_width(self, y: Array, f: Array) -> float:  # noqa: ARG002
        return 2.0


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


@dataclass(frozen=True)
class CrammerSinger(Loss):
    """ξ = max(0, max_{k ≠ y} 1 + fₖ − f_y), or ξ² (Crammer and Singer 2001).

    Smoothed: max of q·m − δ‖q‖²/2 over q ≥ 0 with Σq ≤ 1 (or less (Σq)²/4, for ξ²), where
    mₖ = 1 + fₖ − f_y. The best q is (m − θ)₊/δ, with θ from sorted margins.
    """

    squared: bool = False
    width: float = 0.0

    joint = True

    def first_width(self, y: Array, f: Array) -> float:  # noqa: ARG002
        return 2.0

    def value(self, y: Array, f: Array) -> Array:
        m = _margins(y, f)
        if self.nonsmooth:
            xi = positive(m.max(axis=1, keepdims=True))
            return xi**2 if self.squared else xi
        q, _ = self._best(m)
        mass = q.sum(axis=1, keepdims=True)
        gain = (q * np.where(q > 0, m, 0.0)).sum(axis=1, keepdims=True)
        cost = self.width * (q**2).sum(axis=1, keepdims=True) / 2
        return gain - cost - (mass**2 / 4 if self.squared else 0.0)

    def slope(self, y: Array, f: Array) -> Array:
        m = _margins(y, f)
        q = self._steepest(m) if self.nonsmooth else self._best(m)[0]
        return q - y * q.sum(axis=1, keepdims=True)

    def curvature(self, y: Array, f: Array) -> Array:
        """Return 1/δ where q > 0, and −1 − c in the column of the class.

        The Hessian in m is (I − c 11ᵀ)/δ on the columns where q > 0.
        """
        if self.nonsmooth:
            return np.zeros_like(f)
        q, theta = self._best(_margins(y, f))
        size = (q > 0).sum(axis=1, keepdims=True)
        some = np.maximum(size, 1)
        c = 0.5 / (self.width + some / 2) if self.squared else (theta > 0) / some
        return (q > 0) / self.width - y * np.where(size > 0, 1 + c, 0.0)

    def hessian_product(self, state: Array, V: Array) -> Array:
        own, others = state < 0, np.maximum(state, 0.0)
        c = -np.where(own, state + 1, 0.0).sum(axis=1, keepdims=True)
        moves = others * (V - (own * V).sum(axis=1, keepdims=True))
        mean = moves.sum(axis=1, keepdims=True)
        moves -= c * (others > 0) * mean
        return moves - own * moves.sum(axis=1, keepdims=True)

    def diagonal(self, state: Array) -> Array:
        own, others = state < 0, np.maximum(state, 0.0)
        size = (others > 0).sum(axis=1, keepdims=True)
        c = -np.where(own, state + 1, 0.0).sum(axis=1, keepdims=True)
        return others * (1 - c) + own * others.sum(axis=1, keepdims=True) * (1 - c * size)

    def width_slope(self, y: Array, f: Array) -> Array:
        q, theta = self._best(_margins(y, f))
        size = (q > 0).sum(axis=1, keepdims=True)
        some = np.maximum(size, 1)
        falls = 2 * theta / (2 * self.width + some) if self.squared else (theta > 0) / some
        moves = q - (q > 0) * falls
        return moves - y * moves.sum(axis=1, keepdims=True)

    def _steepest(self, m: Array) -> Array:
        top = m.max(axis=1, keepdims=True)
        q = (m == top) & (top > 0)
        return q / np.maximum(q.sum(axis=1, keepdims=True), 1) * (2 * top if self.squared else 1.0)

    def _best(self, m: Array) -> tuple[Array, Array]:
        """Return q and θ: θ = Σq/2, or the least θ ≥ 0 with Σq ≤ 1."""
        top = -np.sort(-m, axis=1)
        count = np.arange(1, m.shape[1] + 1)
        total = np.cumsum(np.where(np.isfinite(top), top, 0.0), axis=1)
        # Both are largest, over the number of columns taken, at the number that solves.
        squared = total / (2 * self.width + count)
        trial = squared if self.squared else (total - self.width) / count
        theta = positive(np.where(np.isfinite(top), trial, -np.inf).max(axis=1, keepdims=True))
        return positive(m - theta) / self.width, theta


def _margins(y: Array, f: Array) -> Array:
    """Return 1 + fₖ − f_y, and −∞ in the column of the class."""
    own = (y * f).sum(axis=1, keepdims=True)
    return np.where(y > 0, -np.inf, 1 + f - own)
