"""Newton steps by products with Hessians, all columns of a problem sharing their passes.

H d = −∇ is solved by conjugate gradients, preconditioned with moments: of all rows where they are
given, else of a few thousand rows drawn by their curvature. A product with H reads only active
rows, which have curvature. As in Lin, Weng and Keerthi (2008), and Keerthi and DeCoste (2005).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from scipy.linalg import cho_solve

from bochner._core.blas import add_gram, mirror
from bochner._core.shapes import Array, Float
from bochner.solvers.cg import conjugate_gradients, inner
from bochner.solvers.convex.losses import Loss
from bochner.solvers.convex.newton import Direction, Point, curvatures
from bochner.solvers.convex.problem import (
    OverRows,
    Problem,
    SolverRows,
    backward,
    forward,
    taken_rows,
)
from bochner.solvers.factorisations import raised_factor
from bochner.solvers.ridge.problem import SummedProducts

#: Active rows are copied out when they are at most this share of all, and take no more memory than
#: this where the features are not kept in memory anyway.
COPIED_SHARE, COPIED_BYTES = 0.5, 256 << 20

ROWS_AT_A_TIME = 2048  # Rows of a copy that are multiplied at once
ROWS_PER_FEATURE = 2  # Rows of a sample for the preconditioner, as a multiple of D

#: Share of the gradient that the first steps' solutions may leave, and the last's: the step is then
#: Newton's to LAST_SHARE² of its decrease. Products a step, at most.
FIRST_SHARE, LAST_SHARE, MOST_PRODUCTS = 0.1, 0.01, 250

BESIDE = 0.1  # Share of the tolerance that conjugate gradients may leave of a decrease

#: An operation of a product with vectors takes this many times one of the preconditioner's.
VECTOR_COST = 6

FLOOR = 1e-7  # Least curvature of an intercept, as a share of that if every row were active


# --- Hessians ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class CopiedRows:
    """Features that were copied out, as rows to solve with, and as a block of them."""

    Z: Float[Array, "m D"]
    start: int = 0
    y: ClassVar[None] = None
    w: ClassVar[None] = None
    cached: ClassVar[bool] = True

    @property
    def n_features(self) -> int:
        return self.Z.shape[1]

    def sum(self, summand: Any) -> Any:
        total = summand.zero()
        for block in self:
            total = summand.add(total, block)
        return total

    def __iter__(self) -> Iterator["CopiedRows"]:
        for start in range(0, len(self.Z), ROWS_AT_A_TIME):
            yield CopiedRows(self.Z[start : start + ROWS_AT_A_TIME], start)


def _hessian_product(
    Z: Float[Array, "b D"],
    state: Float[Array, "b u"],
    w: Float[Array, "b v"],
    loss: Loss,
    V: Float[Array, "u p"],
) -> Float[Array, "u p"]:
    """Return [Z 1]ᵀ S [Z 1] times the rows of V, (u, p), in 4 n D u operations."""
    return backward(Z, w * loss.hessian_product(state, forward(Z, V)))


@dataclass(frozen=True, eq=False)
class Hessian:
    """Multiplies by H, over rows of some curvature, or over all rows where these are many."""

    rows: SolverRows
    state: Float[Array, "m u"]  # what ``Loss.curvature`` says of the rows
    w: Float[Array, "m v"]  # one column for all, or one each
    share: float  # of active rows
    loss: Loss
    alpha: Any  # one for all columns or one each
    # Least curvature of an intercept: no row may be active where a loss is smoothed. 0: there is
    # no intercept.
    floor: float

    @staticmethod
    def of(
        problem: Problem, loss: Loss, state: Float[Array, "n u"], width: float = 1.0
    ) -> "Hessian":
        """Return the Hessian of these curvatures; ``width`` is that of the smoothing.

        Active rows are copied out where they are few: products read them alone.
        """
        w, rows = problem.w, problem.rows
        active = np.any(state, axis=1) & np.any(w > 0, axis=1)
        share = float(active.mean())
        first = problem.first.Z
        size = int(active.sum()) * first.shape[1] * first.itemsize
        if 0 < share <= COPIED_SHARE and (rows.cached or size <= COPIED_BYTES):
            rows = CopiedRows(taken_rows(rows, active))
            state, w = state[active], w[active]
        floor = FLOOR * float(problem.w.sum()) / width if problem.fit_intercept else 0.0
        return Hessian(rows, state, w, share, loss, problem.alpha, floor)

    def __call__(self, V: Float[Array, "u p"], columns: Array) -> Float[Array, "u p"]:
        """Return the Hessians of these columns times the rows of V."""
        each = np.ndim(self.alpha) > 0
        out, state, w = (self.alpha[columns, None] if each else self.alpha) * V, self.state, self.w
        out[:, -1] = self.floor * V[:, -1]
        if not self.loss.joint and len(columns) < state.shape[1]:
            state, w = state[:, columns], w[:, columns] if w.shape[1] > 1 else w
        part = partial(_hessian_product, loss=self.loss, V=V)
        out += self.rows.sum(OverRows(part, (state, w)))
        if not self.floor:
            out[:, -1] = 0.0
        return out


# --- preconditioners -----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Preconditioners:
    """One approximate inverse for all columns of a problem, or one for each."""

    parts: tuple["Preconditioner", ...]

    def __call__(self, V: Float[Array, "u p"], columns: Array | None = None) -> Float[Array, "u p"]:
        """Multiply the rows of V, which belong to these columns; default: one to each."""
        if len(self.parts) == 1:
            return self.parts[0](V)
        parts = self.parts if columns is None else [self.parts[c] for c in columns]
        return np.concatenate([part(v[None]) for part, v in zip(parts, V, strict=True)])

    def at(self, columns: Array) -> "Preconditioners":
        """Return the preconditioners of these columns."""
        if len(self.parts) == 1:
            return self
        return Preconditioners(tuple(self.parts[c] for c in columns))


@dataclass(frozen=True, eq=False)
class Preconditioner:
    """Multiplies by an approximate inverse, of the moments of some rows plus alpha."""

    # Cholesky factor of G + alpha I, or of alpha I + U Uᵀ where the rows are fewer than D
    factor: Float[Array, "m m"]
    # U of the second, the rows about their mean times the root of their curvature
    rows: Float[Array, "m D"] | None
    mean: Float[Array, " D"]  # mean of the rows, weighted by their curvatures
    mass: float  # sum of their curvatures; 0 where no intercept is fitted
    alpha: float

    def __call__(self, V: Float[Array, "t p"]) -> Float[Array, "t p"]:
        """Solve in coefficients about the mean, where the intercept is alone."""
        if not self.mass:
            return np.column_stack([self._solve(V[:, :-1]), np.zeros(len(V))])
        coef = self._solve(V[:, :-1] - np.outer(V[:, -1], self.mean))
        return np.column_stack([coef, V[:, -1] / self.mass - coef @ self.mean])

    def _solve(self, V: Float[Array, "t D"]) -> Float[Array, "t D"]:
        if self.rows is None:
            return cho_solve((self.factor, True), V.T, check_finite=False).T
        inside = cho_solve((self.factor, True), self.rows @ V.T, check_finite=False)
        return (V - inside.T @ self.rows) / self.alpha


def from_moments(moments: SummedProducts, weight: float, hessian: Hessian) -> Preconditioners:
    """Return (c G + alpha I)⁻¹ from moments of all rows, of this weight; c: mean curvature."""
    diagonal = hessian.loss.diagonal(hessian.state)
    mass = float((hessian.w * diagonal).sum()) / diagonal.shape[1]
    mean, G = moments.feature_mean, mass / weight * moments.gram
    if not hessian.floor:
        G += mass * np.outer(mean, mean)
    mass, alpha = mass + hessian.floor if hessian.floor else 0.0, hessian.alpha
    return Preconditioners((Preconditioner(_cholesky(G, alpha), None, mean, mass, alpha),))


def from_rows(hessian: Hessian, apart: bool) -> Preconditioners:
    """Return the same of rows drawn in proportion to their curvatures, in O(D³).

    Rows are drawn at equal steps of the running sum of curvatures, which steers as well as chance
    does and is the same in every run: about 2 D of them, or all if they are no more. ``apart``
    makes one for each column, from its own curvatures; else one serves all, of their means.
    """
    rows, curvature = hessian.rows, hessian.w * hessian.loss.diagonal(hessian.state)
    columns = (curvature if apart else curvature.mean(axis=1, keepdims=True)).T
    shares = np.stack([_draw(c, ROWS_PER_FEATURE * rows.n_features) for c in columns])
    taken = np.any(shares > 0, axis=0)
    Z = taken_rows(rows, taken)
    each = zip(shares[:, taken], np.broadcast_to(hessian.alpha, len(columns)), strict=True)
    return Preconditioners(tuple(_of_rows(Z, *numbers, hessian.floor) for numbers in each))


def _of_rows(
    Z: Float[Array, "m D"], shares: Float[Array, " m"], alpha: float, floor: float
) -> Preconditioner:
    Z, s = (Z, shares) if np.all(shares > 0) else (Z[shares > 0], shares[shares > 0])
    D, mass = Z.shape[1], float(s.sum())
    mean = (s @ Z / mass).astype(np.float64) if floor and mass else np.zeros(D)
    mass = mass + floor if floor else 0.0
    U = np.sqrt(s).astype(Z.dtype)[:, None] * (Z - mean.astype(Z.dtype))
    if 2 * len(U) < D and alpha > 0:
        U = U.astype(np.float64)
        return Preconditioner(_cholesky(U @ U.T, alpha), U, mean, mass, alpha)
    G = np.zeros((D, D), U.dtype, order="F")
    add_gram(G, U)
    return Preconditioner(_cholesky(mirror(G).astype(np.float64), alpha), None, mean, mass, alpha)


def _draw(weights: Float[Array, " m"], most: int) -> Float[Array, " m"]:
    """Return the weights if few are not zero, else weights of about ``most`` rows instead."""
    if np.count_nonzero(weights) <= most:
        return weights
    sums = np.cumsum(weights)
    tick = sums[-1] / most
    return tick * np.diff(np.floor(sums / tick + 0.5), prepend=0.0)


def _cholesky(G: Float[Array, "D D"], alpha: float) -> Float[Array, "D D"]:
    """Return L of G + alpha I = L Lᵀ, and of as much more as rounding needs."""
    size = max(float(np.trace(G)) / max(len(G), 1), alpha, 1e-300)
    return raised_factor(G + alpha * np.eye(len(G)), 0.0, 1e-7 * size)


# --- steps ---------------------------------------------------------------------------------------


class HessianProducts:
    """Newton steps by conjugate gradients; keeps the preconditioner while it is cheaper to keep."""

    def __init__(self, problem: Problem, moments: SummedProducts | None) -> None:
        self._problem, self._moments = problem, moments
        self._preconditioners: Preconditioners | None = None
        self._apart = False

    def __call__(self, loss: Loss, point: Point, columns: Array, tol: float) -> Direction:
        """Return the steps of these columns."""
        problem = self._problem
        hessian = Hessian.of(problem, loss, curvatures(problem, loss, point, columns))
        inverse = self._inverse(hessian, columns)
        estimate = inner(point.gradient, inverse(point.gradient), loss.joint) / 2
        rest = estimate / np.maximum(point.value, 1e-300)
        shares = np.maximum(np.sqrt(rest), np.sqrt(BESIDE * tol / np.maximum(rest, 1e-300)))
        shares = np.clip(shares, LAST_SHARE, FIRST_SHARE)
        along = partial(inner, joint=loss.joint)
        step = conjugate_gradients(hessian, -point.gradient, inverse, shares, MOST_PRODUCTS, along)
        self._judge(step.products, hessian.share, len(columns))
        return Direction(step.solution, step.products, hessian.share)

    def _inverse(self, hessian: Hessian, columns: Array) -> Preconditioners:
        """Return the preconditioner: the one of before while it is cheaper to keep."""
        if self._preconditioners is None:
            if self._moments is not None and not self._apart:
                weight = float(self._problem.w.sum())
                self._preconditioners = from_moments(self._moments, weight, hessian)
            else:
                self._preconditioners = from_rows(hessian, self._apart)
            self._made_for = columns
        return self._preconditioners.at(np.searchsorted(self._made_for, columns))

    def _judge(self, products: int, share: float, columns: int) -> None:
        """Drop the preconditioner if the products of a step took longer than to make it.

        If they took longer than one for each column takes, the next is that.
        """
        D = self._problem.rows.n_features
        rows = share * len(self._problem.w)
        spent = products * VECTOR_COST * 4 * rows * columns
        making = min(2 * D, rows) * D + D * D / 3
        if spent >= making:
            self._preconditioners = None
            self._apart = spent >= columns * making
