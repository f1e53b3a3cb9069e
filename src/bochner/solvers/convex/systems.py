"""Systems of Newton's method: H d = −∇ by Cholesky factors or by conjugate gradients.

H = [Z 1]ᵀ S [Z 1] + alpha diag(1, …, 1, 0), with the curvatures of the rows in S. Hessians are
summed again in each step (:func:`systems_of_rows`), or the last one is changed by the rows whose
curvature has changed, O(a D² + D³) for a of them (:class:`KeptHessians`; Mangasarian 2002; Keerthi
and DeCoste 2005). Conjugate gradients (:class:`HessianProducts`; Lin, Weng and Keerthi 2008) are
preconditioned with moments of a few thousand rows drawn by their curvature; a product reads only
rows with curvature. With a active rows in memory, fewer than half of the features, the
preconditioner is exact: a system of a rows, in O(a² D + a³) instead of O(a D² + D³).
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import cho_solve

from bochner._core.blas import add_gram, mirror
from bochner._core.shapes import Array, Float
from bochner.solvers.cg import conjugate_gradients, inner
from bochner.solvers.convex.losses import Loss, weighted
from bochner.solvers.convex.problem import (
    TINY,
    FeatureBlock,
    OverRows,
    Problem,
    SolverRows,
    State,
    backward,
    forward,
    gradients,
    hessian_factor,
    places,
    solved,
    taken_rows,
)
from bochner.solvers.factorisations import raised_factor

FLOOR = 1e-7  # Least curvature of an intercept, as a share of that if every row were active


class LossAtRows(NamedTuple):
    """The rows at one point: slope and curvature of the (smoothed) loss, and the duality gap."""

    slope: Float[Array, "n t"]
    curvature: Float[Array, "n t"]
    gap: Float[Array, " t"]  # as a share of the objective
    size: Float[Array, " t"]  # the objective, of a joint loss in every place

    def at(self, columns: Array) -> "LossAtRows":
        """Return the part of these columns."""
        if np.all(columns):
            return self
        return LossAtRows(*(a[..., columns] for a in self))


class Direction(NamedTuple):
    """The gradient of each column, its Newton step, and the products with Hessians."""

    gradient: Float[Array, "t p"]
    steps: Float[Array, "t p"]
    products: int = 0
    hessians: Any = None  # curvatures and Hessians, if the next step may use them


def _completed(problem: Problem, at: State, gradient: Float[Array, "t p"]) -> Float[Array, "t p"]:
    """Return the gradient of the objective from that of the loss, in place."""
    gradient[:, :-1] += (problem.alpha * at.coef).T
    gradient[:, -1] = gradient[:, -1] + problem.drift if problem.fit_intercept else 0.0
    return gradient


# --- Hessians as matrices ------------------------------------------------------------------------


def systems_of_rows(
    problem: Problem, at: State, local: LossAtRows, columns: Array, tol: float
) -> Direction:
    """Return the steps of these columns, each by its Hessian, or by systems of few active rows."""
    slopes, curvatures = weighted(problem.w, local.slope), weighted(problem.w, local.curvature)
    active = np.count_nonzero(curvatures, axis=0)
    few = active.min() > 0 and active.max() <= problem.rows.n_features / 2  # both take as long
    if few and problem.rows.cached and np.all(problem.alpha):
        return HessianProducts(apart=True)(problem, at, local, columns, tol)
    gradient, hessians = sums_at(problem, at, slopes, curvatures)
    gradient = _completed(problem, at, gradient)
    # Where no row holds an intercept it moves by about this much at most.
    farthest = 100 * (1 + np.ptp(problem.y - at.fitted, axis=0))
    steps, alphas = np.empty(gradient.shape), np.broadcast_to(problem.alpha, len(gradient))
    for k, (H, alpha) in enumerate(zip(hessians, alphas, strict=True)):
        diagonal = np.diag(H) + alpha
        diagonal[-1] = max(H[-1, -1], abs(gradient[k, -1]) / farthest[k], TINY)
        factor = hessian_factor(H, diagonal, problem.fit_intercept)
        steps[k] = -solved(factor, gradient[[k]])[0]
    kept = None if problem.loss.nonsmooth else (curvatures, hessians)
    return Direction(gradient, steps, 0, kept)


def sums_at(
    problem: Problem, at: State, slopes: Array, curvatures: Array
) -> tuple[Float[Array, "t p"], list[Any]]:
    """Return the gradients and the Hessians; for the same curvatures as before they are kept."""
    kept = at.hessians
    if kept is not None and np.array_equal(kept[0], curvatures):
        return gradients(problem.rows, slopes), kept[1]
    part = OverRows(_gradients_and_hessians, (slopes, curvatures), into=True)
    gradient, hessians = problem.rows.sum(part)
    return gradient, list(hessians)


def _gradients_and_hessians(
    total: Any, Z: Float[Array, "b D"], slopes: Float[Array, "b t"], curvatures: Float[Array, "b t"]
) -> tuple[Float[Array, "t p"], tuple[Float[Array, "p p"], ...]]:
    """Add Σ sᵢ [zᵢ 1] and upper triangles of Σ cᵢ [zᵢ 1]ᵀ [zᵢ 1], for each column of s and c."""
    t, p = slopes.shape[1], Z.shape[1] + 1
    if total is None:
        total = np.zeros((t, p)), tuple(np.zeros((p, p), order="F") for _ in range(t))
    gradient, hessians = total
    gradient += backward(Z, slopes)
    for H, c in zip(hessians, curvatures.T, strict=True):
        _add_active(H, Z, c)
    return gradient, hessians


def _add_active(
    H: Float[Array, "p p"], Z: Float[Array, "b D"], c: Float[Array, " b"], sign: float = 1.0
) -> None:
    """Add sign Σ c [z 1]ᵀ[z 1] of the rows with c > 0 to the upper triangle."""
    active = np.flatnonzero(c > 0)
    single = H.dtype == np.float32 or len(active) > 64  # few rows are added up in float64
    A = np.ones((len(active), len(H)), Z.dtype if single else np.float64)
    A[:, :-1] = Z[active]
    A *= np.sqrt(c[active])[:, None]
    if A.dtype == H.dtype:
        add_gram(H, A, sign)
        return
    part = np.zeros(H.shape, A.dtype, order="F")
    add_gram(part, A, sign)
    H += part


class KeptHessians:
    """Keeps Σ c z zᵀ of each column with its factors c, z ending in a one, and the last factor."""

    def __init__(self, problem: Problem) -> None:
        # The upper triangle in Fortran order, c, and rows that changed since the sum was new
        self._sums: list[tuple[Array, Array, int] | None] = [None] * problem.y.shape[1]
        self._factored: tuple[Any, Array] = None, np.empty(0)

    def __call__(
        self, problem: Problem, at: State, local: LossAtRows, columns: Array, tol: float
    ) -> Direction:
        """Return the steps of these columns."""
        gradient = gradients(problem.rows, weighted(problem.w, local.slope))
        gradient, c = _completed(problem, at, gradient), weighted(problem.w, local.curvature)
        each = zip(columns.tolist(), c.T, gradient, strict=True)
        steps = [-solved(self._factor(problem, k, h.copy()), g[None]) for k, h, g in each]
        return Direction(gradient, np.concatenate(steps))

    def _factor(self, problem: Problem, k: int, c: Float[Array, " n"]) -> Array:
        """Return the factor of column k; columns of the same curvatures share one.

        It is of the features' precision where that resolves alpha.
        """
        total, factor = self._factored
        if total is None or not np.array_equal(total[1], c):
            total = _changed(problem.rows, self._sums[k], c)
            H = total[0]
            diagonal = np.diag(H).astype(np.float64) + problem.alpha
            diagonal[-1] = max(H[-1, -1], FLOOR * float(problem.w.sum()), TINY)
            single = H.dtype == np.float32 and problem.alpha >= 2e-6 * diagonal.sum()
            factor = hessian_factor(H, diagonal, problem.fit_intercept, single)
        self._sums[k], self._factored = total, (total, factor)
        return factor


def _changed(
    rows: SolverRows, old: tuple[Array, Array, int] | None, c: Float[Array, " n"]
) -> tuple[Array, Array, int]:
    """Return the sum with factors c, none negative: the old one changed, or a new one.

    It is changed if few rows differ, now and since it was new: each change leaves its rounding.
    """
    if old is not None:
        total, factors, drift = old
        change, active = c - factors, int(np.count_nonzero(c))
        count = int(np.count_nonzero(change))
        drift += count
        if count <= 0.7 * active and drift <= 4 * active:
            total = total.copy(order="F")
            for block in rows:
                part = change[places(block)]
                _add_active(total, block.Z, np.maximum(part, 0.0))
                _add_active(total, block.Z, np.maximum(-part, 0.0), -1.0)
            return total, c, drift
    p, dtype = rows.n_features + 1, next(iter(rows)).Z.dtype
    total = np.zeros((p, p), dtype, order="F")
    for block in rows:
        _add_active(total, block.Z, c[places(block)])
    return total, c, 0


# --- products with Hessians ----------------------------------------------------------------------


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
    """Multiplies by H, over the rows with curvature where they are few, else over all."""

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
    def of(problem: Problem, state: Float[Array, "n u"], width: float) -> "Hessian":
        """Return the Hessian of these curvatures; ``width`` is that of the smoothing, or one.

        Active rows are copied out where they are few: products read them alone.
        """
        w, rows = problem.w, problem.rows
        active = np.any(state, axis=1) & np.any(w > 0, axis=1)
        share = float(active.mean())
        first = next(iter(rows)).Z
        size = int(active.sum()) * first.shape[1] * first.itemsize
        if 0 < share <= 0.5 and (rows.cached or size <= 256 << 20):
            rows = FeatureBlock(taken_rows(rows, active))
            state, w = state[active], w[active]
        floor = FLOOR * float(problem.w.sum()) / width if problem.fit_intercept else 0.0
        return Hessian(rows, state, w, share, problem.loss, problem.alpha, floor)

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


def from_rows(hessian: Hessian, apart: bool) -> list[Preconditioner]:
    """Return preconditioners from rows drawn in proportion to their curvatures, in O(D³).

    Rows are drawn at equal steps of the running sum of curvatures, which steers as well as chance
    does and is the same in every run: about 2 D of them, or all if they are no more. ``apart``
    makes one for each column, from its own curvatures; else one serves all, of their means.
    """
    rows, curvature = hessian.rows, hessian.w * hessian.loss.diagonal(hessian.state)
    columns = (curvature if apart else curvature.mean(axis=1, keepdims=True)).T
    shares = np.stack([_draw(c, 2 * rows.n_features) for c in columns])
    taken = np.any(shares > 0, axis=0)
    Z = taken_rows(rows, taken)
    each = zip(shares[:, taken], np.broadcast_to(hessian.alpha, len(columns)), strict=True)
    return [_of_rows(Z, *numbers, hessian.floor) for numbers in each]


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


class HessianProducts:
    """Newton steps by conjugate gradients; keeps the preconditioner while it is cheaper to keep.

    ``apart``: each column has its own preconditioner, made again in each step.
    """

    def __init__(self, apart: bool) -> None:
        self._anew = self._apart = apart
        self._preconditioners: list[Preconditioner] | None = None

    def __call__(
        self, problem: Problem, at: State, local: LossAtRows, columns: Array, tol: float
    ) -> Direction:
        """Return the steps of these columns."""
        gradient = gradients(problem.rows, weighted(problem.w, local.slope))
        gradient, joint = _completed(problem, at, gradient), problem.loss.joint
        width = at.width if problem.loss.nonsmooth else 1.0
        hessian = Hessian.of(problem, local.curvature, width)
        if self._preconditioners is None:
            self._preconditioners, self._made_for = from_rows(hessian, self._apart), columns
        parts = self._preconditioners
        if len(parts) > 1:
            numbers: Array = np.searchsorted(self._made_for, columns)
            parts = [parts[c] for c in numbers]

        def inverse(V: Float[Array, "u p"], columns: Array) -> Float[Array, "u p"]:
            if len(parts) == 1:
                return parts[0](V)
            return np.concatenate([parts[c](v[None]) for c, v in zip(columns, V, strict=True)])

        nearly = inverse(gradient, np.arange(len(gradient)))
        rest = np.maximum(0.5 * inner(gradient, nearly, joint) / local.size, TINY)
        # Solutions may leave a tenth of the gradient at first, and at last a hundredth, or what is
        # a tenth of the tolerance: the step is then Newton's to the square of that share.
        shares = np.clip(np.maximum(np.sqrt(rest), np.sqrt(0.1 * tol / rest)), 0.01, 0.1)
        along = partial(inner, joint=joint)
        step = conjugate_gradients(hessian, -gradient, inverse, shares, 250, along)
        # The preconditioner goes if the products took longer than to make it; if they took longer
        # than one for each column takes, the next is that. An operation of a product with vectors
        # takes six times one of the preconditioner's.
        D, rows, count = problem.rows.n_features, hessian.share * len(problem.w), len(columns)
        spent, making = step.products * 24 * D * rows * count, (min(2 * D, rows) + D / 3) * D**2
        if spent >= making or self._anew:
            self._preconditioners = None
            self._apart = self._anew or spent >= count * making
        return Direction(gradient, step.solution, step.products)
