"""Hessians of a sum of losses on features: products by sweeps, and preconditioners.

With the curvatures of the rows in S, H = [Z 1]ᵀ S [Z 1] + alpha diag(1, …, 1, 0). Parameters are
(t, D + 1): a row of coefficients and an intercept for each column of the problem.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy.linalg import LinAlgError, cho_solve
from scipy.linalg.blas import dgemv, sgemv

from bochner._core.blas import add_gram, cho_factor, mirror, product
from bochner._core.shapes import Array, Float
from bochner.solvers.convex.loss import Loss

#: Rows that bend are copied out when they are at most this share of all ...
SHARE = 0.5

#: ... and take no more memory than this, where the features are not kept in memory anyway.
MOST_BYTES = 256 << 20

#: Rows of a sample for the preconditioner, as a multiple of D.
ROWS_PER_FEATURE = 2

#: Rows of a copy that are multiplied at once.
CHUNK = 2048


class Rows(Protocol):
    """Rows of features: Z (b, D), y, w (b,) or None, and the number of the first."""

    @property
    def Z(self) -> Array: ...
    @property
    def y(self) -> Any: ...
    @property
    def w(self) -> Any: ...
    @property
    def start(self) -> int: ...


class Sums(Protocol):
    """Moments of all rows, about the mean."""

    @property
    def weight(self) -> float: ...
    @property
    def feature_mean(self) -> Float[Array, " D"]: ...
    @property
    def target_mean(self) -> Float[Array, " t"]: ...
    @property
    def gram(self) -> Float[Array, "D D"]: ...
    @property
    def cross(self) -> Float[Array, "D t"]: ...


class Piece(NamedTuple):
    """Rows that bend, what bends them, and their weights."""

    Z: Float[Array, "b D"]
    state: Float[Array, "b t"]
    w: Float[Array, " b"]


@dataclass(frozen=True, eq=False)
class Bends:
    """What bends each row: all fields of :class:`Piece` but the features."""

    state: Float[Array, "n t"]
    w: Float[Array, " n"]

    def of(self, Z: Float[Array, "b D"], rows: slice) -> Piece:
        """Return the piece of these rows."""
        return Piece(Z, self.state[rows], self.w[rows])


def forward(Z: Float[Array, "b D"], theta: Float[Array, "t p"]) -> Float[Array, "b t"]:
    """Return Z β + b in float64; one or two columns as products with vectors."""
    coef = theta[:, :-1].astype(Z.dtype)
    if len(coef) > 2:
        return product(Z, coef.T) + theta[:, -1]
    gemv = sgemv if Z.dtype == np.float32 else dgemv
    return np.stack([gemv(1.0, Z.T, c, trans=1) for c in coef], axis=1) + theta[:, -1]


def backward(Z: Float[Array, "b D"], R: Float[Array, "b t"]) -> Float[Array, "t p"]:
    """Return [Z 1]ᵀ R, transposed, in float64."""
    right = np.ascontiguousarray(R.T, dtype=Z.dtype)
    if len(right) > 2:
        sums = product(right, Z)
    else:
        gemv = sgemv if Z.dtype == np.float32 else dgemv
        sums = np.stack([gemv(1.0, Z.T, r) for r in right])
    return np.column_stack([sums.astype(np.float64), R.sum(axis=0)])


def bending(
    features: Iterable[Rows], bends: Bends, cached: bool
) -> tuple[Callable[[], Iterator[Piece]], float]:
    """Return what gives the rows that bend, a piece at a time, and their share of all.

    They are copied out where they are few: every product then reads them alone.
    """
    active = np.any(bends.state, axis=1) & (bends.w > 0)
    count = int(active.sum())
    share = count / len(active)
    first = next(iter(features)).Z
    size = count * first.shape[1] * first.itemsize
    if not count or share > SHARE or not (cached or size <= MOST_BYTES):
        return lambda: (bends.of(b.Z, slice(b.start, b.start + len(b.Z))) for b in features), share
    Z, at = np.empty((count, first.shape[1]), first.dtype), 0
    for block in features:
        part = block.Z[active[block.start : block.start + len(block.Z)]]
        Z[at : at + len(part)] = part
        at += len(part)
    kept = Bends(bends.state[active], bends.w[active])
    chunks = [slice(i, i + CHUNK) for i in range(0, count, CHUNK)]
    return lambda: (kept.of(Z[chunk], chunk) for chunk in chunks), share


@dataclass(frozen=True, eq=False)
class Hessian:
    """Multiplies by H: one sweep of the rows that bend, 4 n D t operations.

    Attributes
    ----------
    pieces : callable
        Gives the rows that bend.
    share : float
        Their share of all.
    loss : Loss
    alpha : float
    floor : float
        What an intercept bends at least: with kinks it may happen that no row does. 0: there is
        no intercept.
    scale : float, default 1
        Factor of all curvatures.
    """

    pieces: Callable[[], Iterator[Piece]]
    share: float
    loss: Loss
    alpha: float
    floor: float
    scale: float = 1.0

    def __call__(self, V: Float[Array, "u p"], columns: Array) -> Float[Array, "u p"]:
        """Return the Hessians of these columns times the rows of V."""
        out = self.alpha * V
        out[:, -1] = self.floor * V[:, -1]
        for Z, state, w in self.pieces():
            bent = self.loss.bend(_some(state, columns), forward(Z, V))
            out += backward(Z, self.scale * w[:, None] * bent)
        if not self.floor:
            out[:, -1] = 0.0
        return out


def _some(state: Array, columns: Array) -> Array:
    return state if len(columns) == state.shape[1] else state[:, columns]


# --- Preconditioner ------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Preconditioners:
    """One approximate inverse for all columns of a problem, or one for each."""

    parts: tuple["Preconditioner", ...]
    shared: bool

    def __call__(self, V: Float[Array, "u p"], columns: Array | None = None) -> Float[Array, "u p"]:
        """Multiply the rows of V, which belong to these columns; default: one to each."""
        if self.shared:
            return self.parts[0](V)
        parts = self.parts if columns is None else [self.parts[c] for c in columns]
        return np.concatenate([part(v[None]) for part, v in zip(parts, V, strict=True)])

    def at(self, columns: Array) -> "Preconditioners":
        """Return those of these columns."""
        if self.shared:
            return self
        return Preconditioners(tuple(self.parts[c] for c in columns), False)


@dataclass(frozen=True, eq=False)
class Preconditioner:
    """Multiplies by an approximate inverse: that of the moments of some rows, plus alpha.

    Attributes
    ----------
    factor : tuple
        Cholesky factor of G + alpha I, or of alpha I + U Uᵀ where the rows are fewer than D.
    rows : (m, D) or None
        U of the second, the rows about their mean times the root of their curvature.
    mean : (D,)
        Mean of the rows, as they bend.
    mass : float
        Sum of their curvatures; 0 where no intercept is fitted.
    alpha : float
    """

    factor: tuple[Array, bool]
    rows: Float[Array, "m D"] | None
    mean: Float[Array, " D"]
    mass: float
    alpha: float

    def __call__(self, V: Float[Array, "t p"]) -> Float[Array, "t p"]:
        """Solve in coefficients about the mean, where the intercept is alone."""
        if not self.mass:
            return np.column_stack([self._solve(V[:, :-1]), np.zeros(len(V))])
        coef = self._solve(V[:, :-1] - np.outer(V[:, -1], self.mean))
        return np.column_stack([coef, V[:, -1] / self.mass - coef @ self.mean])

    def _solve(self, V: Float[Array, "t D"]) -> Float[Array, "t D"]:
        if self.rows is None:
            return cho_solve(self.factor, V.T, check_finite=False).T
        inside = cho_solve(self.factor, self.rows @ V.T, check_finite=False)
        return (V - inside.T @ self.rows) / self.alpha


def from_moments(moments: Sums, weight: float, hessian: Hessian) -> Preconditioners:
    """Return (c G + alpha I)⁻¹ from moments of all rows, of this weight; c: mean curvature."""
    bent = sum(
        float((w[:, None] * hessian.loss.diagonal(state)).sum()) / state.shape[1]
        for _, state, w in hessian.pieces()
    )
    mean, G = moments.feature_mean, bent / weight * moments.gram
    if not hessian.floor:
        G += bent * np.outer(mean, mean)
    mass = bent + hessian.floor if hessian.floor else 0.0
    alpha = hessian.alpha
    return Preconditioners((Preconditioner(_cholesky(G, alpha), None, mean, mass, alpha),), True)


def from_rows(hessian: Hessian, apart: bool) -> Preconditioners:
    """Return the same of rows drawn in proportion to their curvatures, in O(D³).

    Rows are drawn at equal steps of the running sum of curvatures, which steers as well as chance
    does and is the same in every run: about 2 D of them, or all if they are no more. ``apart``
    makes one for each column, from its own curvatures; else one serves all, of their means.
    """
    Zs, weights = [], []
    for Z, state, w in hessian.pieces():
        bent = hessian.scale * w[:, None] * hessian.loss.diagonal(state)
        Zs.append(Z)
        weights.append(bent if apart else bent.mean(axis=1, keepdims=True))
    columns = np.concatenate(weights).T
    parts = tuple(_of_rows(Zs, c, hessian.alpha, hessian.floor) for c in columns)
    return Preconditioners(parts, not apart)


def _of_rows(
    Zs: list[Array], weights: Float[Array, " m"], alpha: float, floor: float
) -> Preconditioner:
    D = Zs[0].shape[1]
    shares = _drawn(weights, ROWS_PER_FEATURE * D)
    taken = np.split(shares > 0, np.cumsum([len(Z) for Z in Zs])[:-1])
    Z, s = np.concatenate([Z[t] for Z, t in zip(Zs, taken, strict=True)]), shares[shares > 0]
    mass = float(s.sum())
    mean = (s @ Z / mass).astype(np.float64) if floor and mass else np.zeros(D)
    mass = mass + floor if floor else 0.0
    U = np.sqrt(s).astype(Z.dtype)[:, None] * (Z - mean.astype(Z.dtype))
    if 2 * len(U) < D and alpha > 0:
        U = U.astype(np.float64)
        return Preconditioner(_cholesky(U @ U.T, alpha), U, mean, mass, alpha)
    G = np.zeros((D, D), U.dtype, order="F")
    add_gram(G, U)
    return Preconditioner(_cholesky(mirror(G).astype(np.float64), alpha), None, mean, mass, alpha)


def _drawn(weights: Float[Array, " m"], most: int) -> Float[Array, " m"]:
    """Return the weights if few are not zero, else those of about ``most`` rows that stand in."""
    if np.count_nonzero(weights) <= most:
        return weights
    sums = np.cumsum(weights)
    tick = sums[-1] / most
    return tick * np.diff(np.floor(sums / tick + 0.5), prepend=0.0)


def _cholesky(G: Float[Array, "D D"], alpha: float) -> tuple[Array, bool]:
    """Factor G + alpha I, and as much more as rounding needs."""
    size = max(float(np.trace(G)) / max(len(G), 1), alpha, 1e-300)
    jitter = 0.0
    while True:
        try:
            shifted = G + (alpha + jitter) * np.eye(len(G))
            return cho_factor(shifted, lower=True, overwrite_a=True, check_finite=False)
        except LinAlgError:
            jitter = max(10 * jitter, 1e-7 * size)
