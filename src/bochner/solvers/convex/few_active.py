"""Newton steps where few rows are active: a system of their number in the place of D.

With F the active rows √cᵢ zᵢ, s their √cᵢ, a of them,

    (αI + FᵀF)⁻¹ v = (v − Fᵀ M⁻¹ F v)/α,      M = αI + F Fᵀ,

so that a step takes O(a² D + a³) and not O(a D² + D³). The intercept is eliminated.
"""

from dataclasses import dataclass, replace

import numpy as np

from bochner._core.blas import add_gram
from bochner._core.shapes import Array, Float
from bochner.solvers.convex.factors import cholesky, solved
from bochner.solvers.convex.problem import TINY, RowBlock, backward, places

#: So many active rows are few, as a share of the features: where both ways take as long.
FEW = 0.5


@dataclass(frozen=True, eq=False)
class GradientsAndRows:
    """Σ sᵢ [zᵢ 1], and the rows √cᵢ [zᵢ 1] with c > 0, for each column of s and c."""

    slopes: Float[Array, "n t"]
    curvatures: Float[Array, "n t"]
    n_features: int
    first: int = 0  # the row that they begin with

    def zero(self) -> tuple[Float[Array, "t p"], list[list[Float[Array, "a p"]]]]:
        t = self.slopes.shape[1]
        return np.zeros((t, self.n_features + 1)), [[] for _ in range(t)]

    def add(
        self, total: tuple[Array, list[list[Array]]], block: RowBlock
    ) -> tuple[Array, list[list[Array]]]:
        gradient, pieces = total
        rows = places(block, self.first)
        gradient += backward(block.Z, self.slopes[rows])
        curvatures = self.curvatures[rows].T
        found = [[*p, _active(block.Z, c)] for p, c in zip(pieces, curvatures, strict=True)]
        return gradient, found

    def merge(
        self, a: tuple[Array, list[list[Array]]], b: tuple[Array, list[list[Array]]]
    ) -> tuple[Array, list[list[Array]]]:
        return a[0] + b[0], [[*mine, *other] for mine, other in zip(a[1], b[1], strict=True)]

    def within(self, rows: slice) -> "GradientsAndRows":
        slopes, curvatures = self.slopes[rows], self.curvatures[rows]
        return replace(self, slopes=slopes, curvatures=curvatures, first=rows.start)


def _active(Z: Float[Array, "b D"], c: Float[Array, " b"]) -> Float[Array, "a p"]:
    """Return √c [z 1] of the rows with c > 0, in float64."""
    kept = np.flatnonzero(c > 0)
    F = np.ones((len(kept), Z.shape[1] + 1))
    F[:, :-1] = Z[kept]
    F *= np.sqrt(c[kept])[:, None]
    return F


def are_few(curvatures: Float[Array, "n t"], n_features: int) -> bool:
    """Whether every column has few active rows, and some."""
    active = np.count_nonzero(curvatures, axis=0)
    return int(active.min()) > 0 and int(active.max()) <= FEW * n_features


def direction(
    rows: list[Float[Array, "a p"]],
    gradient: Float[Array, " p"],
    alpha: float,
    farthest: float,
    free: bool,
) -> Float[Array, " p"]:
    """Return −(FᵀF + alpha I)⁻¹ times the gradient, alpha for the features only.

    The intercept moves by about ``farthest`` at most where no row holds it, and not at all unless
    it is free.
    """
    both = np.concatenate(rows)
    F, s = np.ascontiguousarray(both[:, :-1]), both[:, -1]
    M = np.zeros((len(F), len(F)), order="F")
    add_gram(M, np.ascontiguousarray(F.T))
    factor = cholesky(M, np.diag(M) + alpha, True)
    u, v = solved(factor, np.stack([F @ gradient[:-1], s]))
    step = np.zeros(len(gradient))
    if free:
        lifted = max(abs(gradient[-1]) / farthest - float(s @ s), 0.0)
        step[-1] = -(gradient[-1] - s @ u) / max(lifted + alpha * float(s @ v), TINY)
    step[:-1] = -(gradient[:-1] - F.T @ u) / alpha - step[-1] * (F.T @ v)
    return step
