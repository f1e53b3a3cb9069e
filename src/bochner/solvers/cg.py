"""Conjugate gradients for several right-hand sides, and products with a kernel matrix by tiles."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.linalg import eigh_tridiagonal

from bochner._core.arrays import is_sparse
from bochner._core.native import radial_product
from bochner._core.shapes import Array, Float
from bochner.errors import InvalidInput


class Steps(NamedTuple):
    """Approximate solutions, and the steps of conjugate gradients."""

    solution: Float[Array, "t ..."]
    first: Float[Array, " t"]  # rᵀM⁻¹r at the start
    last: Float[Array, " t"]  # and at the end
    lengths: Float[Array, "s t"]  # of the steps; NaN where a right-hand side takes no part
    ratios: Float[Array, "s t"]

    @property
    def products(self) -> int:
        """Number of products."""
        return len(self.lengths)

    @property
    def residual(self) -> Float[Array, " t"]:
        """|r|/|b| in the norm of M⁻¹, which is nearly the relative error of the solution."""
        share = np.divide(self.last, self.first, out=np.zeros_like(self.last), where=self.first > 0)
        return np.sqrt(share)

    def log_forms(self) -> Float[Array, " t"]:
        """Return zᵀ log(R⁻¹ H R⁻ᵀ) z of right = R z, M = R Rᵀ, by Gauss quadrature (Lanczos)."""
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
    """Return the inner product of each row, or of all rows together in every place."""
    rows = np.einsum("ij,ij->i", A, B)
    return np.full(len(rows), rows.sum()) if joint else rows


def conjugate_gradients(
    operator: Callable[[Array, Array], Array],
    right: Float[Array, "t ..."],
    precondition: Callable[[Array, Array], Array],
    shares: Float[Array, " t"],
    most: int,
    inner: Callable[[Array, Array], Float[Array, " t"]] = inner,
) -> Steps:
    """Solve H x = right from zero, until the residual is ``shares`` of what it was.

    ``operator(V, rows)`` gives the matrices of these rows' problems times the rows of V, and
    ``precondition(V, rows)`` approximate inverses likewise, in whose norm residuals are measured.
    If ``inner`` returns the sum over all rows in every place, the rows are one problem; else each
    has its own steps, and a row that is done takes no part in the ``most`` products.
    """
    x, r, every = np.zeros_like(right), right.copy(), np.arange(len(right))
    z = precondition(r, every)
    first = inner(r, z)
    rho, rows = first.copy(), np.flatnonzero(first > 0)
    p, steps = z[rows], list[Array]()
    while len(rows) and len(steps) < most:
        q = operator(p, rows)
        curvature = inner(p, q)
        bends = curvature > 0  # else rounding is all that is left
        step = np.divide(rho[rows], curvature, out=np.zeros_like(curvature), where=bends)
        shaped = step.reshape(-1, *(1,) * (right.ndim - 1))
        x[rows] += shaped * p
        r[rows] -= shaped * q
        z = precondition(r[rows], rows)
        new = np.maximum(inner(r[rows], z), 0.0)
        ratio = new / rho[rows]
        taken = np.full((2, len(right)), np.nan)
        taken[:, rows[bends]] = step[bends], ratio[bends]
        steps.append(taken)
        going = bends & (new > shares[rows] ** 2 * first[rows])
        p = (z + ratio.reshape(shaped.shape) * p)[going]
        rho[rows] = new
        rows = rows[going]
    lengths, ratios = np.array(steps).reshape(-1, 2, len(right)).swapaxes(0, 1)
    return Steps(x, first, rho, lengths, ratios)


# --- The kernel matrix as an operator: products with it, a tile at a time, and never the matrix

TILE = 1024  # Rows and columns of a tile: 8 MB in float64


@dataclass(frozen=True, eq=False)
class KernelOperator:
    """Products K V of the n × n kernel matrix of some rows, which is never stored.

    Tiles on and above the diagonal are recomputed for each product, and each serves twice, as
    itself and transposed: n²/2 kernel values a product. Tiles in float32 take half of the time or
    less; sums over a tile are of its precision, sums over tiles float64 always.
    """

    tiles: Callable[[Array, Array], Array]  # the kernel matrix of checked rows, in their precision
    X: Float[Array, "n d"]
    tile: int = TILE
    # Whether the kernel is one of x − y: float32 rows about their mean lose less
    moved: bool = False
    # Profile and parameter of the compiled loop, which multiplies values as they are computed
    loop: tuple[str, float] | None = None

    @property
    def n(self) -> int:
        return int(self.X.shape[0])

    @cached_property
    def single(self) -> bool:
        """Whether float32 serves: of 64 rows kernel values differ by a thousandth at most."""
        few = slice(0, None, max(1, self.n // 64))
        rows, rounded = (A[few].copy() for A in (self.X, self._single_rows))
        right = self.tiles(rows, rows)
        with np.errstate(all="ignore"):
            try:
                product = self.tiles(rounded, rounded)
            except InvalidInput:
                return False
        return bool(np.abs(product - right).max() <= 1e-3 * np.abs(right).max())

    def product(self, V: Float[Array, "n t"], precision: str = "float64") -> Float[Array, "n t"]:
        """Return K V in float64, by tiles of this precision."""
        X = self.X if precision == "float64" else self._single_rows
        scale = np.abs(V).max(axis=0, initial=0.0)
        scale[scale == 0] = 1.0
        small = np.ascontiguousarray(V / scale, dtype=precision)
        if self.loop is not None:
            return radial_product(X, small, *self.loop) * scale
        total = np.zeros(V.shape)
        for start in range(0, self.n, self.tile):
            here = slice(start, min(start + self.tile, self.n))
            for other in range(start, self.n, self.tile):
                there = slice(other, min(other + self.tile, self.n))
                K = self.tiles(X[here], X[there])
                total[here] += K @ small[there]
                if other > start:
                    total[there] += K.T @ small[here]
        return total * scale

    @cached_property
    def _single_rows(self) -> Array:
        moved = self.moved and not is_sparse(self.X)
        with np.errstate(over="ignore"):
            return (self.X - self.X.mean(axis=0) if moved else self.X).astype(np.float32)


@dataclass(frozen=True, eq=False)
class KernelTerms:
    """The kernel matrix of a sum of compiled loops, computed where it is needed and never stored.

    A fit makes about five products, which take no longer than to read a stored matrix.
    """

    terms: Sequence[tuple[float, KernelOperator]]  # Share and loop of each

    def __getitem__(self, place: tuple[slice, slice]) -> Float[Array, "b c"]:
        here, there = place
        return sum(share * term.tiles(term.X[here], term.X[there]) for share, term in self.terms)

    def diagonal(self) -> Float[Array, " n"]:
        return np.full(self.terms[0][1].n, sum(share for share, _ in self.terms))

    def product(self, V: Float[Array, "n t"]) -> Float[Array, "n t"]:
        return sum(share * term.product(V) for share, term in self.terms)
