"""Ridge regression with features of all rows and the exact kernel within groups of rows.

The kernel is k̂(x, x') = φ(x)·φ(x'), and k(x, x') if both rows are in one group. Its matrix is
ZZᵀ + R, with the blocks R_g = K_g − Z_g Z_gᵀ (Snelson and Ghahramani (2007), "partially independent
conditional"). With s = √w, C_g = s R_g s + αI and V = sZ,

    (VVᵀ + C)⁻¹ r = C⁻¹(r − V v),   v = (I + VᵀC⁻¹V)⁻¹ VᵀC⁻¹ r,

so groups are coupled only through sums of VᵀC⁻¹V, VᵀC⁻¹[y, s] and [y, s]ᵀC⁻¹[y, s]. A group of m
rows takes O(m³/3 + m² D). The sums also give the diagonal of the inverse, and leave-one-out errors:
with u = (VVᵀ + C)⁻¹(s y), the error of row i is u_i / (s_i ((VVᵀ + C)⁻¹)_ii), in O(m²) per row.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from bochner._core.blas import add_gram, cho_factor, cholesky
from bochner._core.shapes import Array, Float, Int
from bochner.solvers.ridge.problem import left_out_errors


def reduce_rows(
    matrix: Callable[[Any], Float[Array, "m m"]],
    Z: Float[Array, "m D"],
    y: Float[Array, "m t"],
    w: Float[Array, " m"],
    single: bool,
    sample: Int[Array, " p"],
    alpha: float,
) -> "ReducedGroup":
    """Return the factored rows of a group; raise LinAlgError if rounding makes C not positive.

    ``matrix(dtype)`` returns K ⪰ Z Zᵀ, Fortran-contiguous; it is overwritten. If ``single``, C is
    float32 if its rounding error, about eps ‖C‖_F, is at most 1 % of alpha. ``sample`` has the
    positions of the rows with leave-one-out errors.
    """
    root, D = np.sqrt(w)[:, None], Z.shape[1]
    for dtype in (np.float32, np.float64)[not single :]:
        C = matrix(dtype)
        add_gram(C, np.ascontiguousarray(Z.T, dtype), -1.0)
        if not np.all(w == 1):
            C *= (root * root[:, 0]).astype(dtype)
        C[np.diag_indices(len(C))] += dtype(alpha)
        if dtype is np.float64:
            break
        squares = sum(float(np.vdot(C[:j, j], C[:j, j])) for j in range(len(C)))
        norm = float(np.sqrt(2 * squares + np.square(np.diag(C), dtype=np.float64).sum()))
        if np.finfo(dtype).eps * norm <= 0.01 * alpha:
            break
    right = np.hstack([root * Z, root * y, root]).astype(C.dtype, copy=False)
    units = np.zeros((len(C), len(sample)), C.dtype)
    units[sample, np.arange(len(sample))] = 1
    U, _ = cho_factor(C, False, overwrite_a=True, check_finite=False)
    half = solve_triangular(U, right, trans=1, check_finite=False)
    columns = solve_triangular(U, half, overwrite_b=False, check_finite=False)
    sums, power = np.empty((half.shape[1],) * 2), half[:, D:].astype(np.float64)
    sums[:D] = half[:, :D].T @ half
    sums[D:] = np.hstack([sums[:D, D:].T, power.T @ power])
    units = solve_triangular(U, units, trans=1, overwrite_b=True, check_finite=False)
    diagonal = np.einsum("ij,ij->j", units, units, dtype=np.float64)
    return ReducedGroup(sums, columns[:, :D], columns[:, D:].astype(np.float64), sample, diagonal)


def solve_shared(sums: Float[Array, "p p"], D: int, centred: bool, rounding: float) -> "Shared":
    """Return the coefficients v that all groups share, and the intercept, in O(D³).

    The intercept is zero if sᵀ(VVᵀ + C)⁻¹s is at most ``rounding`` sᵀC⁻¹s, its rounding error.
    """
    H, cross, power = sums[:D, :D] + np.eye(D), sums[:D, D:], sums[D:, D:]
    L = cholesky(H, lower=True, check_finite=False)
    half = solve_triangular(L, cross, lower=True, check_finite=False)
    form = power - half.T @ half  # [y, s]ᵀ(VVᵀ + C)⁻¹[y, s]
    intercept, weight = np.zeros(len(form) - 1), np.inf
    if centred and form[-1, -1] > rounding * power[-1, -1]:
        weight = float(form[-1, -1])
        intercept = form[-1, :-1] / weight
    right = cross[:, :-1] - np.outer(cross[:, -1], intercept)
    of_constant = np.linalg.solve(H, cross[:, -1])
    return Shared(np.linalg.solve(H, right), intercept, L, of_constant, weight)


@dataclass(frozen=True, eq=False)
class Shared:
    """Coefficients and factors shared by all groups."""

    v: Float[Array, "D t"]  # Vᵀ(VVᵀ + C)⁻¹(y − b s)
    intercept: Float[Array, " t"]  # b
    factor: Float[Array, "D D"]  # L of L Lᵀ = I + VᵀC⁻¹V
    of_constant: Float[Array, " D"]  # Vᵀ(VVᵀ + C)⁻¹s
    weight: float  # sᵀ(VVᵀ + C)⁻¹s; infinite without an intercept


@dataclass(frozen=True, eq=False)
class ReducedGroup:
    """A factored group: its part of the sums, C⁻¹V, C⁻¹[y, s], and (C⁻¹)_ii of the sample."""

    sums: Float[Array, "s s"]  # [V, y, s]ᵀC⁻¹[V, y, s]
    by_features: Float[Array, "m D"]
    reduced_rows: Float[Array, "m c"]
    sample: Int[Array, " p"]  # positions of the rows with leave-one-out errors
    diagonal: Float[Array, " p"]

    @property
    def single(self) -> bool:
        """Whether the factor is float32."""
        return self.by_features.dtype == np.float32

    def coefficients(self, shared: Shared, root: Float[Array, " m"]) -> Float[Array, "m t"]:
        """Return the c_i of the group's rows in f = Σ c_i k̂(x, x_i) + b; ``root`` is √w."""
        u = self.reduced_rows[:, :-1] - np.outer(self.reduced_rows[:, -1], shared.intercept)
        return root[:, None] * (u - self.by_features @ shared.v)

    def left_out(
        self, shared: Shared, coef: Float[Array, "m t"], root: Float[Array, " m"]
    ) -> Float[Array, "p t"]:
        """Return the leave-one-out errors of the sample."""
        rows = self.by_features[self.sample].astype(np.float64)
        half = solve_triangular(shared.factor, rows.T, lower=True, check_finite=False)
        constant = self.reduced_rows[self.sample, -1] - rows @ shared.of_constant
        inverse = self.diagonal - (half**2).sum(axis=0) - constant**2 / shared.weight
        return left_out_errors(coef[self.sample], (root[self.sample] ** 2 * inverse)[:, None])
