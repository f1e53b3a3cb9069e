"""Functions f(x) = Σ_i c_i k(x, x_i) + b, the predictions of fits with the kernel itself."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from bochner._core.arrays import numpy_rows, to_numpy
from bochner._core.shapes import Array, Float, Gradients, Predictions
from bochner.data.blocks import Blocks
from bochner.kernels.kernel import Kernel
from bochner.kernels.numbers import gradients
from bochner.solvers.cg import TILE


@dataclass(frozen=True, eq=False)
class KernelSum:
    """The kernel, the rows of the fit, (n, d), their coefficients, (n, t), and b, (t,)."""

    kernel: Kernel
    X: Any
    coef: Float[Array, "n t"]
    intercept: Float[Array, " t"]

    def values(self, blocks: Blocks) -> Predictions:
        """Yield the rows of each block and f there."""
        for block in blocks.with_rows(TILE):
            yield block.X, self.at(numpy_rows(block.X))

    def gradients(self, blocks: Blocks) -> Gradients:
        """Yield the rows of each block and the gradients of f there."""
        for block in blocks.with_rows(TILE):
            X = np.ascontiguousarray(to_numpy(block.X), dtype=np.float64)
            yield block.X, self.gradients_at(X)

    def at(self, X: Float[Array, "b d"]) -> Float[Array, "b t"]:
        """Return f of rows in float64, by tiles."""
        total = np.zeros((X.shape[0], self.coef.shape[1])) + self.intercept
        for here in self._tiles:
            total += self.kernel(X, self.X[here]) @ self.coef[here]
        return total

    def gradients_at(self, X: Float[Array, "b d"]) -> Float[Array, "b d t"]:
        """Return the gradients of f at rows in float64, by tiles."""
        total = np.zeros((*X.shape, self.coef.shape[1]))
        for here in self._tiles:
            S = to_numpy(self.X[here])
            for t, c in enumerate(self.coef[here].T):
                total[:, :, t] += gradients(self.kernel, X, S, np.broadcast_to(c, (len(X), len(S))))
        return total

    @property
    def _tiles(self) -> list[slice]:
        return [slice(start, start + TILE) for start in range(0, len(self.coef), TILE)]
