"""Marginal likelihood of a Gaussian process from its kernel matrix, and its gradient in that.

With s = √w, A = √w K √w + λI and M its inverse on all directions but s where there is an intercept
(:func:`inverse_of`; A⁻¹ without one), u = √w (y − ȳ), ν and q = uᵀMu as in
:mod:`bochner.solvers.ridge.evidence`,

    E = −log p = ½ q/a² + ½ (log det A + (ν − m) log λ) + (ν/2) log 2πa²,
    ∂E/∂K = ½ √w (M − vvᵀ/a²) √w,   v = Mu,
    ∂E/∂log λ = ½ (λ tr M + ν − m − λ vᵀv/a²),

where m and the determinant count only the directions of M. With the noise held, a² = σ²/λ, also
½ (q/a² − ν). With the best a² = q/ν the rest is as if a² were held (Rasmussen and Williams 2006,
eq. 5.9).
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from bochner._core.blas import (
    add_outer,
    factor,
    invert_triangle,
    mirror,
    upper_product,
    upper_products,
)
from bochner._core.lapack import outer_of_rows
from bochner._core.shapes import Array, Float
from bochner.solvers.ridge.problem import TINY, amplitude_of, log_likelihood


@dataclass(frozen=True, eq=False)
class KernelScore:
    """Minus the log marginal likelihood, summed over targets, and its gradient."""

    value: float
    below: Float[Array, "m m"]  # ∂value/∂K, valid on and below the diagonal
    by_log_alpha: float  # ∂value/∂log λ

    @cached_property
    def by_kernel(self) -> Float[Array, "m m"]:
        """∂value/∂K, symmetric."""
        return mirror(self.below.T).T


def inverse_of(
    A: Float[Array, "m m"], s: Float[Array, " m"] | None
) -> tuple[Float[Array, "m m"], float]:
    """Return the inverse of A in its place, and log det A: of all directions but s, if it is given.

    A⁻¹ − A⁻¹s sᵀA⁻¹/sᵀA⁻¹s: where an intercept is fitted, s = √w is taken up by it. A is
    Fortran-contiguous float64, and its upper triangle alone is read and written; m³ operations.

    Raises
    ------
    LinAlgError
        If rounding leaves A not positive.
    """
    factor(A)
    log_det = 2 * float(np.log(np.diag(A)).sum())
    invert_triangle(A)
    outer_of_rows(A)
    if s is not None:
        p = upper_product(A, s)
        share = max(float(s @ p), TINY)
        add_outer(A, p, -1 / share)
        log_det += float(np.log(share / (s @ s)))
    return A, log_det


def kernel_evidence(
    K: Float[Array, "m m"],
    y: Float[Array, "m t"],
    w: Float[Array, " m"],
    alpha: float,
    *,
    centred: bool = True,
    noise: float | None = None,
    amplitude: float | None = None,
    overwrite: bool = False,
) -> KernelScore:
    """Return the evidence of rows at λ = ``alpha``, the same for all targets: O(m³).

    Parameters
    ----------
    K : (m, m)
        Read on and below the diagonal only.
    y : (m, t)
        Targets that vary; each has its own amplitude where that is open.
    w : (m,)
    alpha : float
        λ = σ²/a².
    centred : bool, default True
        Whether there is an intercept, of flat prior.
    noise, amplitude : float, optional
        σ² and a² where they are given; the amplitude decides where both are.
    overwrite : bool, default False
        Whether K may be written to.

    Raises
    ------
    LinAlgError
        If rounding leaves A not positive.
    """
    n, t = y.shape
    m = n - centred
    root, freedom = np.sqrt(w), max(float(w.sum()), n) - centred
    u = root[:, None] * (y - w @ y / w.sum() if centred else y)
    A = shifted(K, root, alpha, overwrite)
    M, log_det = inverse_of(A, root if centred else None)
    log_det += (freedom - m) * np.log(alpha)
    v = upper_products(M, u)
    q = np.maximum((u * v).sum(axis=0), TINY)
    scale = amplitude_of(q, alpha, freedom, noise, amplitude)
    value = -float(log_likelihood(q, log_det, freedom, scale).sum())
    slope = t * (alpha * float(np.trace(M)) + freedom - m)
    slope -= alpha * float(((v * v).sum(axis=0) / scale).sum())
    if noise is not None and amplitude is None:
        slope += float((q / scale - freedom).sum())
    M *= 0.5 * t
    for each, a in zip(v.T, scale, strict=True):
        add_outer(M, each, -0.5 / a)
    return KernelScore(value, both_sides(M.T, root), 0.5 * slope)


def both_sides(M: Float[Array, "m m"], root: Float[Array, " m"]) -> Float[Array, "m m"]:
    """Return √w M √w."""
    return M if np.all(root == 1) else root[:, None] * M * root


def shifted(
    K: Float[Array, "m m"],
    root: Float[Array, " m"],
    alpha: float,
    overwrite: bool = False,
    dtype: Any = np.float64,
) -> Float[Array, "m m"]:
    """Return √w K √w + αI, Fortran-contiguous; overwrites K if allowed.

    The lower triangle of K becomes the upper triangle of the result, without a copy.
    """
    M = both_sides(K, root)
    A = np.asfortranarray(M.T, dtype) if overwrite else np.array(M.T, dtype, order="F")
    A[np.diag_indices(len(A))] += alpha
    return A
