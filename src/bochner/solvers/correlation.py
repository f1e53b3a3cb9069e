"""Canonical correlations of two sets of features from moments, with one penalty on both sets.

With G the centred Gram matrix of [Z_x, Z_y], directions a and b maximise a·G_xy b subject
to a·(G_xx + λI)a = b·(G_yy + λI)b = 1: singular vectors of (G_xx + λI)^(−½) G_xy (G_yy + λI)^(−½).
One eigendecomposition of each side serves all penalties.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from bochner._core.blas import eigh, product
from bochner._core.shapes import Array, Float

TINY = 1e-13  # Squared singular values below TINY times the largest are rounding errors

#: Rounding error of the products relative to the largest eigenvalue; times D in float64.
ROUNDING = {"float64": float(np.finfo(np.float64).eps), "float32": 1e-6}

#: Smallest penalty to try, as a power of ten relative to the largest eigenvalue. A rounding error ε
#: of the products becomes ε/alpha, so smaller penalties would be chosen by rounding.
MIN_EXPONENT = {"float64": -7, "float32": -6}

ROUNDINGS = 8  # A feature is constant if its deviation is below 8 rounding errors of its mean


@dataclass(frozen=True, eq=False)
class Directions:
    """Pairs of canonical directions."""

    a: Float[Array, "D q"]
    b: Float[Array, "E q"]
    values: Float[Array, " q"]  # a·G_xy b where a·(G_xx + λI)a = 1, as for b; descending


@dataclass(frozen=True, eq=False)
class Sides:
    """Moments of both sides in the coordinates of their eigenvectors."""

    x: Float[Array, " D"]  # eigenvalues of G_xx
    y: Float[Array, " E"]  # eigenvalues of G_yy
    U: Float[Array, "D D"]  # eigenvectors of G_xx
    V: Float[Array, "E E"]  # eigenvectors of G_yy
    cross: Float[Array, "D E"]  # Uᵀ G_xy V
    weight: float  # Σ w
    precision: str  # precision of the products

    @staticmethod
    def of(sums: Any, width: int) -> "Sides":
        """Decompose :class:`bochner.Moments`; the first ``width`` features are x's. O(D³)."""
        G = _varying_gram(sums)
        x, U = eigh(G[:width, :width], driver="evd", check_finite=False)
        y, V = eigh(G[width:, width:], driver="evd", check_finite=False)
        cross = product(product(np.ascontiguousarray(U.T), G[:width, width:].copy()), V.copy())
        x, y = np.maximum(x, 0.0), np.maximum(y, 0.0)
        return Sides(x, y, U, V, cross, sums.weight, sums.precision)

    def penalties(self) -> Float[Array, " p"]:
        """Return penalties to try: powers of ten times the largest eigenvalue, ascending."""
        top = max(float(self.x[-1]), float(self.y[-1])) or 1.0
        return top * 10.0 ** np.arange(MIN_EXPONENT[self.precision], 1)

    def directions(self, count: int, alpha: float) -> Directions:
        """Return at most ``count`` pairs of largest correlation; scores have variance 1."""
        left, right = self._root(self.x, alpha), self._root(self.y, alpha)
        u, values, v = _leading_triplets(left[:, None] * self.cross * right, count)
        a, b = self.U @ (left[:, None] * u), self.V @ (right[:, None] * v)
        largest = np.argmax(np.abs(a), axis=0)
        signs = np.where(a[largest, np.arange(a.shape[1])] < 0, -1.0, 1.0)
        a = a * signs * self._unit(self.x, left[:, None] * u)
        b = b * signs * self._unit(self.y, right[:, None] * v)
        return Directions(a, b, values)

    def _root(self, eigenvalues: Float[Array, " D"], alpha: float) -> Float[Array, " D"]:
        """Return (w + alpha)^(−½); 0 for eigenvalues w at rounding level."""
        share = ROUNDING[self.precision] * len(eigenvalues) ** (self.precision == "float64")
        weights = eigenvalues + alpha
        keep = (weights > share * float(eigenvalues[-1])) & (weights > 0)
        return np.divide(1.0, np.sqrt(weights), out=np.zeros_like(weights), where=keep)

    def _unit(self, eigenvalues: Float[Array, " D"], c: Float[Array, "D q"]) -> Float[Array, " q"]:
        """Return the factor of each direction c for which its scores have variance 1."""
        variance = eigenvalues @ c**2 / self.weight
        return np.divide(1.0, np.sqrt(variance), out=np.zeros_like(variance), where=variance > 0)


def correlations(sums: Any, directions: Directions) -> Float[Array, " q"]:
    """Return the correlation of each pair of scores on the rows of these moments."""
    width = len(directions.a)
    G = _varying_gram(sums)
    xx = np.einsum("ij,ij->j", directions.a, G[:width, :width] @ directions.a)
    yy = np.einsum("ij,ij->j", directions.b, G[width:, width:] @ directions.b)
    xy = np.einsum("ij,ij->j", directions.a, G[:width, width:] @ directions.b)
    size = np.sqrt(np.maximum(xx, 0.0) * np.maximum(yy, 0.0))
    return np.divide(xy, size, out=np.zeros_like(xy), where=size > 0)


def _varying_gram(sums: Any) -> Float[Array, "D D"]:
    """Return the Gram matrix, with zeros for features that are constant up to rounding."""
    rounding = ROUNDINGS * float(np.finfo(sums.precision).eps) * np.abs(sums.feature_mean)
    varies = np.diag(sums.gram) > sums.weight * rounding**2
    return sums.gram * np.outer(varies, varies)


def _leading_triplets(M: Float[Array, "D E"], count: int) -> tuple[Array, Array, Array]:
    """Return at most ``count`` leading singular triplets (u, values, v) above rounding level."""
    if M.shape[0] > M.shape[1]:
        v, values, u = _leading_triplets(M.T, count)
        return u, values, v
    m = len(M)
    squares, u = eigh(M @ M.T, subset_by_index=[max(0, m - count), m - 1], check_finite=False)
    squares, u = squares[::-1], u[:, ::-1]
    keep = squares > TINY * max(float(squares[0]), 0.0)
    u, values = u[:, keep], np.sqrt(squares[keep])
    return u, values, M.T @ u / values
