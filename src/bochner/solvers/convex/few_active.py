"""Newton steps where few rows are active: a system of their number in the place of D.

With F the active rows √cᵢ zᵢ, s their √cᵢ, a of them,

    (αI + FᵀF)⁻¹ v = (v − Fᵀ M⁻¹ F v)/α,      M = αI + F Fᵀ,

so that a step takes O(a² D + a³) and not O(a D² + D³). The intercept is eliminated.
"""

import numpy as np

from bochner._core.blas import add_gram
from bochner._core.shapes import Array, Float
from bochner.solvers.convex.factors import cholesky, solved
from bochner.solvers.convex.problem import TINY, backward

#: So many active rows are few, as a share of the features: where both ways take as long.
FEW = 0.5


def gradients_and_rows(
    Z: Float[Array, "b D"], slopes: Float[Array, "b t"], curvatures: Float[Array, "b t"]
) -> tuple[Float[Array, "t p"], tuple[list[Float[Array, "a p"]], ...]]:
    """Return Σ sᵢ [zᵢ 1], and the rows √cᵢ [zᵢ 1] with c > 0, for each column of s and c."""
    return backward(Z, slopes), tuple([_active(Z, c)] for c in curvatures.T)


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
