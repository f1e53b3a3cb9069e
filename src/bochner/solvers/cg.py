"""Conjugate gradients for several right-hand sides, and kernel matrices as operators."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.linalg import eigh_tridiagonal

from bochner._core.arrays import is_sparse, slices
from bochner._core.native import radial_product
from bochner._core.shapes import Array, Float
from bochner.errors import InvalidInput


class Steps(NamedTuple):
    """Approximate solutions, and the coefficients of the steps of conjugate gradients."""

    solution: Float[Array, "t ..."]
    first: Float[Array, " t"]  # rᵀM⁻¹r at the start
    last: Float[Array, " t"]  # rᵀM⁻¹r at the end
    lengths: Float[Array, "s t"]  # step lengths; NaN after a right-hand side has converged
    ratios: Float[Array, "s t"]  # ratios of rᵀM⁻¹r from step to step

    @property
    def products(self) -> int:
        """Number of products with H."""
        return len(self.lengths)

    @property
    def residual(self) -> Float[Array, " t"]:
        """|r|/|b| in the norm of M⁻¹; for M ≈ H the relative error of x in the norm of H."""
        share = np.divide(self.last, self.first, out=np.zeros_like(self.last), where=self.first > 0)
        return np.sqrt(share)

    def log_forms(self) -> Float[Array, " t"]:
        """Return zᵀ log(R⁻¹HR⁻ᵀ) z of each right-hand side Rz, M = RRᵀ, by Lanczos quadrature."""
        forms = np.zeros(len(self.first))
        for s, size in enumerate(self.first):
            steps = self.lengths[np.isfinite(self.lengths[:, s]), s]
            if len(steps):
                ratios = self.ratios[: len(steps), s]
                diagonal = 1 / steps
                diagonal[1:] += ratios[:-1] / steps[:-1]
                values, vectors = eigh_tridiagonal(diagonal, np.sqrt(ratios[:-1]) / steps[:-1])
                forms[s] = size * (vectors[0] ** 2 @ np.log(np.maximum(values, 1e-300)))
        return forms


def inner(
    A: Float[Array, "t p"], B: Float[Array, "t p"], joint: bool = False
) -> Float[Array, " t"]:
    """Return the inner product of each row; with ``joint`` their sum, repeated for each row."""
    rows = np.einsum("ij,ij->i", A, B)
    return np.full(len(rows), rows.sum()) if joint else rows


def conjugate_gradients(
    operator: Callable[[Array, Array], Array],
    right: Float[Array, "t ..."],
    precondition: Callable[[Array, Array], Array],
    shares: Float[Array, " t"],
    max_steps: int,
    inner: Callable[[Array, Array], Float[Array, " t"]] = inner,
) -> Steps:
    """Solve H x = b for each row b of ``right``, from x = 0; return solutions and steps.

    ``operator(V, rows)`` returns H times each row of V, and ``precondition(V, rows)`` M⁻¹ times
    each row; ``rows`` are their numbers in ``right``. A row is done if its residual, in the norm of
    M⁻¹, is at most ``shares`` times the first; it is not multiplied again. If ``inner`` is joint,
    all rows are one problem. At most ``max_steps`` products are computed.
    """
    x, r, indices = np.zeros_like(right), right.copy(), np.arange(len(right))
    z = precondition(r, indices)
    first = inner(r, z)
    rho, rows = first.copy(), np.flatnonzero(first > 0)
    p, steps = z[rows], list[Array]()
    while len(rows) and len(steps) < max_steps:
        q = operator(p, rows)
        curvature = inner(p, q)
        positive = curvature > 0  # else the residual is rounding
        step = np.divide(rho[rows], curvature, out=np.zeros_like(curvature), where=positive)
        shaped = step.reshape(-1, *(1,) * (right.ndim - 1))
        x[rows] += shaped * p
        r[rows] -= shaped * q
        z = precondition(r[rows], rows)
        new = np.maximum(inner(r[rows], z), 0.0)
        ratio = new / rho[rows]
        coefficients = np.full((2, len(right)), np.nan)
        coefficients[:, rows[positive]] = step[positive], ratio[positive]
        steps.append(coefficients)
        active = positive & (new > shares[rows] ** 2 * first[rows])
        p = (z + ratio.reshape(shaped.shape) * p)[active]
        rho[rows] = new
        rows = rows[active]
    lengths, ratios = np.array(steps).reshape(-1, 2, len(right)).swapaxes(0, 1)
    return Steps(x, first, rho, lengths, ratios)


# --- The kernel matrix as an operator, by tiles, without storing the matrix ----------------------

TILE = 1024  # Rows and columns of a tile: 8 MB in float64


@dataclass(frozen=True, eq=False)
class KernelOperator:
    """Products K V with the n × n kernel matrix of rows, without storing the matrix.

    A product computes the tiles on and above the diagonal, n²/2 kernel values; a tile above it is
    also used transposed. Tiles in float32 take at most half of the time; sums over a tile have its
    dtype, sums over tiles are float64.
    """

    tiles: Callable[[Array, Array], Array]  # kernel matrix of checked rows, in their dtype
    X: Float[Array, "n d"]
    tile: int = TILE
    # Whether K depends on differences of rows only: float32 rows are then centred, for accuracy
    stationary: bool = False
    # Name and parameter of a compiled loop that computes K V, if there is one
    loop: tuple[str, float] | None = None

    @property
    def n(self) -> int:
        return int(self.X.shape[0])

    @cached_property
    def single(self) -> bool:
        """Whether float32 changes kernel values of a few rows by 0.1 % of the largest, at most."""
        sample = slice(0, None, max(1, self.n // 64))
        rows, rounded = (A[sample].copy() for A in (self.X, self._single_rows))
        right = self.tiles(rows, rows)
        with np.errstate(all="ignore"):
            try:
                product = self.tiles(rounded, rounded)
            except InvalidInput:
                return False
        return bool(np.abs(product - right).max() <= 1e-3 * np.abs(right).max())

    def product(self, V: Float[Array, "n t"], precision: str = "float64") -> Float[Array, "n t"]:
        """Return K V in float64; tiles are computed in ``precision``."""
        X = self.X if precision == "float64" else self._single_rows
        scale = np.abs(V).max(axis=0, initial=0.0)
        scale[scale == 0] = 1.0
        small = np.ascontiguousarray(V / scale, dtype=precision)
        if self.loop is not None:
            return radial_product(X, small, *self.loop) * scale
        total = np.zeros(V.shape)
        for start in range(0, self.n, self.tile):
            rows = slice(start, min(start + self.tile, self.n))
            for column in range(start, self.n, self.tile):
                columns = slice(column, min(column + self.tile, self.n))
                K = self.tiles(X[rows], X[columns])
                total[rows] += K @ small[columns]
                if column > start:
                    total[columns] += K.T @ small[rows]
        return total * scale

    @cached_property
    def _single_rows(self) -> Array:
        centred = self.stationary and not is_sparse(self.X)
        with np.errstate(over="ignore"):
            return (self.X - self.X.mean(axis=0) if centred else self.X).astype(np.float32)


@dataclass(frozen=True, eq=False)
class KernelTerms:
    """The kernel matrix of a sum of radial and linear kernels, without storing the matrix.

    A fit needs about five products; together they take as long as computing and reading K.
    """

    terms: Sequence[tuple[float, KernelOperator]]  # weight and operator of each term

    def __getitem__(self, place: tuple[slice, slice]) -> Float[Array, "b c"]:
        rows, columns = place
        return sum(share * term.tiles(term.X[rows], term.X[columns]) for share, term in self.terms)

    def diagonal(self) -> Float[Array, " n"]:
        blocks = slices(self.terms[0][1].n, 64)
        return np.concatenate([np.diagonal(self[rows, rows]) for rows in blocks])

    def product(self, V: Float[Array, "n t"]) -> Float[Array, "n t"]:
        return sum(share * term.product(V) for share, term in self.terms)
