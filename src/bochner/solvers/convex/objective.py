"""Σ wᵢ ℓ(yᵢ, φ(xᵢ)·β + b) + (alpha/2)‖β‖² over re-iterable features: values and gradients."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from bochner._core.shapes import Array, Float
from bochner.solvers.cg import inner
from bochner.solvers.convex.hessian import (
    Bends,
    Rows,
    backward,
    forward,
)
from bochner.solvers.convex.lengths import best_length
from bochner.solvers.convex.loss import Loss, weighted

#: Rows that are worked on at once where no features are needed.
ROWS_AT_ONCE = 1 << 15


class Source(Protocol):
    """Features that can be read again and again."""

    @property
    def cached(self) -> bool: ...
    def __iter__(self) -> Iterator[Rows]: ...


@dataclass(frozen=True, eq=False)
class Point:
    """Parameters, their fit, and what the objective of each column is there.

    Attributes
    ----------
    theta : (t, D + 1)
        β and b of each column.
    fitted : (n, t)
        Z β + b.
    value : (t,)
        The objective; a joint one in every place.
    gradient : (t, D + 1)
    """

    theta: Float[Array, "t p"]
    fitted: Float[Array, "n t"]
    value: Float[Array, " t"]
    gradient: Float[Array, "t p"]

    def at(self, columns: Array) -> "Point":
        """Return the part of these columns."""
        return Point(
            self.theta[columns],
            self.fitted[:, columns],
            self.value[columns],
            self.gradient[columns],
        )

    def where(self, mine: Array, other: "Point") -> "Point":
        """Return these columns of mine, and the rest of the other's."""
        return Point(
            np.where(mine[:, None], self.theta, other.theta),
            np.where(mine, self.fitted, other.fitted),
            np.where(mine, self.value, other.value),
            np.where(mine[:, None], self.gradient, other.gradient),
        )

    def put(self, columns: Array, part: "Point") -> "Point":
        """Return the point with these columns replaced."""
        if len(columns) == len(self.theta):
            return part
        self.fitted[:, columns] = part.fitted
        for mine, new in (
            (self.theta, part.theta),
            (self.value, part.value),
            (self.gradient, part.gradient),
        ):
            mine[columns] = new
        return self


class Objective:
    """The rows, their targets and weights, and the penalty.

    Parameters
    ----------
    features : Source
    alpha : float
    fit_intercept : bool
    targets : callable, optional
        From the blocks' y to what the loss compares with, (b, t).

    Notes
    -----
    Targets and weights are read once and kept; memory O(n).
    """

    def __init__(
        self,
        features: Source,
        alpha: float,
        fit_intercept: bool,
        targets: Callable[[Array], Array] | None = None,
    ) -> None:
        self.features = features
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self._targets = targets
        ys, ws = [], []
        for block in features:
            ys.append(np.asarray(block.y, np.float64))
            ws.append(np.ones(len(block.Z)) if block.w is None else np.asarray(block.w, np.float64))
            self.dtype, self.n_features = block.Z.dtype, block.Z.shape[1]
        self._y, self.w = np.concatenate(ys), np.concatenate(ws)
        self.n_columns = self.targets(slice(0, 1)).shape[1]

    def targets(self, rows: slice) -> Float[Array, "b t"]:
        """Return what the loss compares with, for these rows."""
        y = self._y[rows]
        return y.reshape(len(y), -1) if self._targets is None else self._targets(y)

    def point(self, loss: Loss, theta: Float[Array, "u p"], columns: Array) -> Point:
        """Return value and gradient of these columns, by one sweep of all rows."""
        gradient = self.alpha * theta
        gradient[:, -1] = 0.0
        fitted = np.empty((len(self.w), len(theta)))
        with np.errstate(over="ignore", invalid="ignore"):
            for block in self.features:
                rows = slice(block.start, block.start + len(block.Z))
                fitted[rows] = f = forward(block.Z, theta)
                slope = loss.slope(self.targets(rows)[:, columns], f)
                gradient += backward(block.Z, weighted(self.w[rows][:, None], slope))
        if not self.fit_intercept:
            gradient[:, -1] = 0.0
        return Point(theta, fitted, self.values(loss, theta, fitted, columns), gradient)

    def values(
        self,
        loss: Loss,
        theta: Float[Array, "u p"],
        fitted: Float[Array, "n u"],
        columns: Array,
    ) -> Float[Array, " u"]:
        """Return the objective of each of these columns, from their fit; no sweep."""
        sums = np.zeros(len(theta))
        for rows in self.chunks():
            with np.errstate(over="ignore", invalid="ignore"):
                value = loss.value(self.targets(rows)[:, columns], fitted[rows])
                sums += weighted(self.w[rows][:, None], value).sum(axis=0)
        norms = inner(theta[:, :-1], theta[:, :-1], loss.joint)
        return np.where(np.isnan(sums), np.inf, sums) + 0.5 * self.alpha * norms

    def bends(self, loss: Loss, fitted: Float[Array, "n u"], columns: Array) -> Bends:
        """Return what bends each row."""
        state = np.empty(fitted.shape)
        for rows in self.chunks():
            state[rows] = loss.curvature(self.targets(rows)[:, columns], fitted[rows])
        return Bends(state, self.w)

    def stiffening(self, loss: Loss, fitted: Float[Array, "n t"]) -> Float[Array, "t p"]:
        """Return the part of the gradient that grows as the width of a smoothed loss shrinks."""
        out = np.zeros((self.n_columns, self.n_features + 1))
        for block in self.features:
            rows = slice(block.start, block.start + len(block.Z))
            grows = loss.stiffening(self.targets(rows), fitted[rows])
            if np.any(grows):
                out += backward(block.Z, weighted(self.w[rows][:, None], grows))
        if not self.fit_intercept:
            out[:, -1] = 0.0
        return out

    def total(self, loss: Loss, point: Point) -> float:
        """Return the objective over all columns together."""
        columns = np.arange(self.n_columns)
        values = self.values(loss, point.theta, point.fitted, columns)
        return float(values[0] if loss.joint else values.sum())

    def chunks(self) -> Iterator[slice]:
        """Give the rows, some at a time."""
        n = len(self.w)
        return (slice(i, min(i + ROWS_AT_ONCE, n)) for i in range(0, n, ROWS_AT_ONCE))


class Line(NamedTuple):
    """The objective along a direction, of which ``moves`` is the fit; no sweeps."""

    objective: Objective
    loss: Loss
    columns: Array
    point: Point
    direction: Float[Array, "u p"]
    moves: Float[Array, "n u"]

    def least(self) -> Float[Array, " u"]:
        """Return where the slope is next to zero, between nothing and the whole way."""
        return best_length(self.slopes, len(self.columns), doublings=0)

    def slopes(self, length: Float[Array, " u"]) -> Float[Array, " u"]:
        """Return the slope of each column at this share of the way; infinite past all numbers."""
        objective, joint = self.objective, self.loss.joint
        here = self.point.theta[:, :-1] + length[:, None] * self.direction[:, :-1]
        sums = objective.alpha * inner(here, self.direction[:, :-1], joint)
        rises = np.zeros(len(length))
        with np.errstate(over="ignore", invalid="ignore"):
            for rows in objective.chunks():
                fitted = self.point.fitted[rows] + length * self.moves[rows]
                slope = self.loss.slope(objective.targets(rows)[:, self.columns], fitted)
                rises += weighted(objective.w[rows][:, None], slope * self.moves[rows]).sum(axis=0)
        rises = np.full(len(length), rises.sum()) if joint else rises
        return np.where(np.isfinite(rises), rises, np.inf) + sums
