"""All rows of a fit at once, for fits with the kernel itself."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from bochner._core.arrays import is_sparse, to_numpy
from bochner._core.shapes import Array, Float
from bochner.data.blocks import Blocks
from bochner.data.sources import Piece, join, part
from bochner.kernels.algebra import Columns, Mahalanobis
from bochner.kernels.kernel import Constant, Kernel, Power, Product, Scaled, Sum
from bochner.kernels.stationary import Stationary


@dataclass(frozen=True, eq=False)
class GatheredRows:
    """All rows of positive weight: X (n, d) float64 or CSR, y (n, t), w (n,), their numbers."""

    X: Any
    y: Float[Array, "n t"]
    w: Float[Array, " n"]
    number: Array

    @property
    def weight(self) -> float:
        return float(self.w.sum())

    def take(self, some: Array) -> "GatheredRows":
        """Return these rows, in this order."""
        return GatheredRows(self.X[some], self.y[some], self.w[some], self.number[some])


def gather(blocks: Blocks) -> GatheredRows:
    """Return all rows of positive weight."""
    pieces = []
    for block in blocks:
        n = block.X.shape[0]
        X = block.X if is_sparse(block.X) else to_numpy(block.X)
        y = to_numpy(block.y).astype(np.float64).reshape(n, -1)
        w = np.ones(n) if block.w is None else to_numpy(block.w).astype(np.float64)
        pieces.append(Piece(X.astype(np.float64, copy=False), y, w))
    X, y, w = join(pieces)
    kept = np.flatnonzero(w > 0)
    if len(kept) < len(w):
        X, y, w = part(Piece(X, y, w), kept)
    return GatheredRows(X if is_sparse(X) else np.ascontiguousarray(X), y, w, kept)


def of_differences(kernel: Kernel) -> bool:
    """Whether the kernel is one of x − y alone."""
    if isinstance(kernel, Sum | Product):
        return of_differences(kernel.left) and of_differences(kernel.right)
    if isinstance(kernel, Scaled | Power):
        return of_differences(kernel.kernel)
    if isinstance(kernel, Mahalanobis | Columns):
        return of_differences(kernel.kernel)
    return isinstance(kernel, Stationary | Constant)
