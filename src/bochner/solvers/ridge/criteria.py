"""Criteria of a ridge regression on a kernel matrix, with gradients, which descents minimise.

With E = −log p and v = Mu of :mod:`~.dual`,

    ∂E/∂K = ½ √w (M − vvᵀ/a²) √w

(Rasmussen and Williams 2006, eq. 5.9). With J = Σ_t c_t Σ_i w_i e_it², P = ∂J/∂u,
q = ∂J/∂diag M and dM = −M dA M,

    ∂J/∂A = −½(M P uᵀ + u PᵀM) − M diag(q) M.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bochner._core.blas import add_gram, mirror
from bochner._core.lapack import add_outer, add_outer_sum
from bochner._core.shapes import Array, Float
from bochner.solvers.ridge.dual import KernelRows, both_sides
from bochner.solvers.ridge.problem import TINY, amplitude_at, evidence, evidence_slope
from bochner.solvers.ridge.solution import LABELS


@dataclass(frozen=True, eq=False)
class KernelScore:
    """A criterion and its gradient."""

    value: float
    below: Float[Array, "m m"]  # ∂value/∂K, valid on and below the diagonal
    by_log_alpha: float  # ∂value/∂log λ

    @cached_property
    def by_kernel(self) -> Float[Array, "m m"]:
        """∂value/∂K, symmetric."""
        return mirror(self.below.T).T


def kernel_evidence(
    rows: KernelRows,
    alpha: float,
    noise: float | None = None,
    amplitude: float | None = None,
    *,
    overwrite: bool = False,
) -> KernelScore:
    """Return minus the log marginal likelihood per row, summed over targets that vary: O(n³).

    K is read on and below its diagonal only; with ``overwrite`` it may be written to. LinAlgError:
    rounding leaves A not positive.
    """
    dual = rows.at(alpha, overwrite)
    value = float(evidence(rows, dual, noise, amplitude).sum())
    slope = float(evidence_slope(rows, dual, noise, amplitude).sum())
    scale, M, n = amplitude_at(rows, dual, noise, amplitude), dual.inverse, rows.count
    M *= 0.5 * len(scale) / n
    for v, a2 in zip(dual.u.T, scale, strict=True):
        add_outer(M, v, -0.5 / (n * a2))
    return KernelScore(-value / n, both_sides(M.T, rows.root), -slope / n)


def kernel_leave_one_out(
    rows: KernelRows,
    alpha: float,
    noise: float | None = None,  # noqa: ARG001  as of the evidence
    amplitude: float | None = None,  # noqa: ARG001
    *,
    overwrite: bool = False,
) -> KernelScore:
    """Return the log of the mean squared leave-one-out error, relative to the targets' variances.

    And its gradient in K, which is read on and below its diagonal alone; 2 n³ operations, half of
    which are the gradient's. With ``overwrite`` K may be written to. LinAlgError: rounding leaves A
    not positive.
    """
    dual, w = rows.at(alpha, overwrite), rows.w
    e, s, above = dual.left_out, dual.slack, np.maximum(rows.w, 1.0)
    varies = rows.power > 0
    shares = np.where(varies, 1 / np.where(varies, rows.power, 1.0), 0.0) / max(varies.sum(), 1)
    squares = w * (e**2 @ shares)
    total = max(float(squares.sum()), TINY)
    by_u = 2 * alpha * shares * (rows.root / s)[:, None] * e
    by_diagonal = -2 * alpha * squares / (s * above)
    inverse = dual.inverse
    outer = np.zeros(inverse.shape, inverse.dtype, order="F")
    add_gram(outer, (inverse * np.sqrt(-by_diagonal)).T)
    for left, right in zip((inverse @ by_u).T, dual.u.T, strict=True):
        add_outer_sum(outer, left, -0.5 * right)
    by_alpha = float(np.trace(outer)) + float((by_u * dual.u).sum()) / alpha
    by_alpha += float(by_diagonal @ dual.diagonal) / alpha
    outer /= total
    below = both_sides(outer.T, rows.root)
    return KernelScore(float(np.log(total)), below, alpha * by_alpha / total)


@dataclass(frozen=True)
class Criterion:
    """A criterion that a search minimises."""

    name: str
    of_kernel: Callable[..., KernelScore]

    @property
    def label(self) -> str:
        """Name of the quantity in tables."""
        return LABELS[self.name]

    def display_value(self, value: float) -> float:
        """Return the value for tables: an error, or minus the log evidence per row."""
        return float(np.exp(value)) if self.name == "loo" else value


#: The mean squared leave-one-out error, relative to the targets' variances; and minus the log
#: marginal likelihood per row.
LOO, EVIDENCE = Criterion("loo", kernel_leave_one_out), Criterion("evidence", kernel_evidence)
CRITERIA = {each.name: each for each in (LOO, EVIDENCE)}
