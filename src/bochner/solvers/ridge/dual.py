"""Ridge regression from the kernel matrix of its rows, by one Cholesky factor per penalty.

With A = √w K √w + αI, s = √w and M = A⁻¹, or where an intercept is fitted
M = A⁻¹ − A⁻¹s sᵀA⁻¹/sᵀA⁻¹s, the inverse on all directions but s:

    u = M √w y,   f(x) = Σ √w_i u_i k(x, x_i) + b,   residuals r = α u/√w,

    leave-one-out:  e_i = r_i/q_i,  q_i = (W_i − 1 + α M_ii)/W_i,  W_i = max(w_i, 1),
    residual degrees of freedom:  tr(I − H) = α tr M, H the hat matrix,

so the slope of each criterion in log α takes n² more operations: ∂u/∂α = −Mu, ∂M/∂α = −M².
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import LinAlgError

from bochner._core.arrays import slices
from bochner._core.blas import add_gram, factor, mirror, solve_factored, symmetric_product
from bochner._core.lapack import (
    add_square,
    add_symmetric_product,
    invert_triangle,
    outer_of_rows,
    solve_by_triangle,
)
from bochner._core.shapes import Array, Both, Float
from bochner.solvers.cg import KernelTerms
from bochner.solvers.ridge.problem import (
    MIN_SLACK,
    TINY,
    amplitude_at,
    evidence,
    evidence_slope,
    freedom,
    gcv,
    left_out_errors,
    slack_of_inverse,
)

#: Factors of more rows are float32, and solutions are refined up to this residual, relative to the
#: right-hand side. If a refinement leaves a larger share of the residual, the factor is float64.
SINGLE_FROM, REFINED, CONVERGES = 1024, 1e-12, 0.3

BAND = 64  # Rows whose kernel values are computed together


@dataclass(frozen=True, eq=False)
class KernelRows:
    """The kernel matrix of rows, their targets and weights."""

    K: Any  # (n, n): an array, or KernelTerms
    y: Float[Array, "n t"]
    w: Float[Array, " n"]  # positive
    centred: bool = True  # whether an intercept is fitted

    @cached_property
    def root(self) -> Float[Array, " n"]:
        return np.sqrt(self.w)

    def product(self, u: Float[Array, "n r"]) -> Float[Array, "n r"]:
        """Return √w K √w u."""
        root, K = self.root[:, None], self.K
        unstored = isinstance(K, KernelTerms)
        return root * (K.product(root * u) if unstored else symmetric_product(K, root * u))

    def shift(self, alpha: float, dtype: Any = np.float64) -> Float[Array, "n n"]:
        """Return the upper triangle of √w K √w + αI, Fortran-contiguous."""
        n, root = len(self.w), self.root
        A = np.zeros((n, n), dtype, order="F")  # Later products also read the lower half
        for band in slices(n, BAND):
            left = slice(band.stop)
            A[left, band] = scale_both(self.K[band, left], root[band], root[left]).T
        A[np.diag_indices(n)] += alpha
        return A

    @cached_property
    def weight(self) -> float:
        return float(self.w.sum())

    @cached_property
    def count(self) -> float:
        return max(self.weight, len(self.w))

    @cached_property
    def trace(self) -> float:
        """Trace of √w K √w."""
        return max(float(self.w @ self.K.diagonal()), TINY)

    @cached_property
    def spread(self) -> float:
        """Trace of √w K √w; with an intercept, centred about the mean of the rows."""
        root = self.root[:, None]
        mean = self.centred * float((root * self.product(root)).sum()) / self.weight
        return max(self.trace - mean, 1e-12 * self.trace)

    @cached_property
    def mean(self) -> Float[Array, " t"]:
        """ȳ of each target, or zero without an intercept."""
        return self.centred * (self.w @ self.y) / self.weight

    @cached_property
    def deviations(self) -> Float[Array, "n t"]:
        return self.y - self.mean

    @cached_property
    def power(self) -> Float[Array, " t"]:
        return self.w @ self.deviations**2

    def first(self, m: int) -> "KernelRows":
        """Return the first m rows, without a copy of K."""
        return KernelRows(self.K[:m, :m], self.y[:m], self.w[:m], self.centred)

    def solve(
        self, alpha: float | Float[Array, " t"], last: int, tolerance: float = REFINED
    ) -> "RowSolution":
        """Solve at one penalty or one per target; keep 1 − leverage of the last rows."""
        t = self.y.shape[1]
        alphas = np.broadcast_to(np.asarray(alpha, np.float64), t)
        coef, intercept = np.empty(self.y.shape), np.empty(t)
        slack, left_out = np.empty((2, last, t))
        for value in np.unique(alphas):
            index = np.flatnonzero(alphas == value)
            part = self if len(index) == t else replace(self, y=self.y[:, index])
            factor = part.factor(float(value), tolerance, CONVERGES)
            coef[:, index], intercept[index] = factor.coef, factor.intercept
            left_out[:, index], slack[:, index] = factor.left_out(last)
        return RowSolution(coef, intercept, slack, left_out)

    def factor(
        self, alpha: float, tolerance: float = REFINED, ratio: float = 0.01, single: bool = True
    ) -> "KernelFactor":
        """Return the solution at one penalty with its factor; n³/3 operations.

        With ``single`` and more than 1024 rows the factor is float32, if each refinement leaves at
        most the share ``ratio`` of a residual. Raises LinAlgError if A is not positive.
        """
        root = self.root[:, None]
        right, pair = np.hstack([root * self.deviations, root]), None
        if single and len(right) > SINGLE_FROM:
            pair = self._solve_single(alpha, right, tolerance, ratio)
        if pair is None:
            A = self.shift(alpha)
            factor(A)
            pair = solve_factored(A, right), A
        u, p, intercept = pair[0][:, :-1], pair[0][:, -1], self.mean
        if self.centred:
            shift = self.root @ u / (self.root @ p)
            u, intercept = u - p[:, None] * shift, self.mean + shift
        form = np.maximum((right[:, :-1] * u).sum(axis=0), alpha * (u**2).sum(axis=0) + TINY)
        log_det = 2 * float(np.log(np.diag(pair[1]).astype(np.float64)).sum())
        log_det += (freedom(self) - len(p) + self.centred) * np.log(alpha)
        total, weight = max(float(self.root @ p), TINY), float(self.root @ self.root)
        log_det += np.log(total / self.weight) if self.centred else 0.0
        of_rows = self.root, alpha, self.centred, weight, max(weight, len(p)), total
        return KernelFactor(pair[1], *of_rows, p, u, intercept, form, log_det)

    def _solve_single(
        self, alpha: float, right: Float[Array, "n r"], tolerance: float, ratio: float
    ) -> tuple[Float[Array, "n r"], Float[Array, "n n"]] | None:
        """Return A⁻¹ right and the float32 factor U; None if refinement does not converge.

        A step may leave the share ``ratio`` of a residual; one at rounding level counts as zero.
        """
        A = self.shift(alpha, np.float32)
        try:
            factor(A)
        except LinAlgError:
            return None
        size, u, last = np.linalg.norm(right, axis=0), np.zeros_like(right), np.inf
        residual, unit = right, 2 * float(np.finfo(float).eps) * (self.trace + alpha)
        for _ in range(12):
            u += solve_factored(A, residual)
            residual = right - self.product(u) - alpha * u
            level = np.maximum(tolerance * size, unit * np.linalg.norm(u, axis=0))
            # A column of zeros (a class without rows) has the solution zero.
            error = float((np.linalg.norm(residual, axis=0) / np.maximum(level, TINY)).max())
            if error <= 1:
                return u, A
            if not error < ratio * last:
                return None
            if error * error <= 0.1 * min(last, 1 / tolerance):  # the next step leaves little
                return u + solve_factored(A, residual), A
            last = error
        return None

    def at(self, alpha: float, full: bool = True) -> "KernelFactor":
        """Return the solution at one penalty, with the inverse M or its upper triangle; O(n³)."""
        fit = self.factor(alpha, single=False)
        A = fit.factor
        invert_triangle(A)
        outer_of_rows(A)
        if self.centred:
            add_square(A, fit.p[:, None], -1 / fit.total)
        return replace(fit, factor=np.empty((0, 0)), inverse=mirror(A) if full else A)


class RowSolution(NamedTuple):
    """A solution, with slacks 1 − h and leave-one-out errors of the last rows."""

    coef: Float[Array, "n t"]
    intercept: Float[Array, " t"]
    slack: Float[Array, "m t"]
    left_out: Float[Array, "m t"]


# --- one Cholesky factor ------------------------------------------------------------------------
#
# For the process y = b + f(x) + ε, f ~ GP(0, a² k), ε ~ N(0, a²λ/w), with b of flat prior and
# k = √w k(X, x),
#
#     Var f = a² (k(x, x) − kᵀA⁻¹k + (1 − kᵀA⁻¹s)²/sᵀA⁻¹s)
#
# (Rasmussen and Williams 2006, eq. 2.26 and 2.41 with B⁻¹ = 0). For the last m rows the block of
# A⁻¹ is U₂₂⁻¹U₂₂⁻ᵀ, with the last m × m block of A = UᵀU: it costs m³.


@dataclass(frozen=True, eq=False)
class KernelFactor:
    """A factored ridge regression on the kernel matrix, or Gaussian process of amplitude one."""

    factor: Float[Array, "m m"] = field(repr=False)  # U, float32 or float64; empty if M is given
    root: Float[Array, " n"]  # s
    alpha: float
    centred: bool
    weight: float  # W
    count: float  # Number of rows, or W if it is larger
    total: float  # sᵀA⁻¹s
    p: Float[Array, " n"] = field(repr=False)  # A⁻¹s
    u: Float[Array, "n t"] = field(repr=False)
    intercept: Float[Array, " t"]
    quadratic_form: Float[Array, " t"]
    log_det: float  # log |K + αI| on the contrasts
    inverse: Any = field(default=None, repr=False)  # M of all rows, in place of the factor

    @property
    def coef(self) -> Float[Array, "n t"]:
        return self.root[:, None] * self.u

    @property
    def rss(self) -> Float[Array, " t"]:
        return self.alpha**2 * (self.u**2).sum(axis=0)

    @property
    def free(self) -> float:
        """Trace of I − H, with ``count`` rows, minus the intercept."""
        copies = self.count - len(self.root)
        return max(copies + self.alpha * float(self.diagonal.sum()), MIN_SLACK)

    def slope(self, noise: float | None, amplitude: float | None) -> Float[Array, " t"]:
        """Return ∂log p/∂log α of each target."""
        return evidence_slope(self, self, noise, amplitude)

    @cached_property
    def diagonal(self) -> Float[Array, " n"]:
        """Diagonal of M."""
        return np.diag(self.inverse).copy()

    @cached_property
    def criteria(self) -> dict[str, Both]:
        """Value and slope in log α, per target, of "loo" and "gcv", and of −2/ν log p."""
        alpha, w = self.alpha, self.root**2
        falling = self.inverse @ self.u  # −∂u/∂α
        squared = np.einsum("ij,ij->i", self.inverse, self.inverse)  # Diagonal of M²
        by_diagonal = alpha * (self.diagonal - alpha * squared)
        by_residual = alpha * (self.u - alpha * falling) / self.root[:, None]
        e, s = self.left_out()
        by_error = (by_residual - e * (by_diagonal / np.maximum(w, 1.0))[:, None]) / s
        rss, value = np.maximum(self.rss, TINY), gcv(self, self)
        by_rss = 2 * rss - 2 * alpha**3 * (self.u * falling).sum(axis=0)
        per_row = -2 / max(freedom(self), 1.0)
        return {
            "loo": (w @ e**2 / self.weight, 2 * w @ (e * by_error) / self.weight),
            "gcv": (value, value * (by_rss / rss - 2 * float(by_diagonal.sum()) / self.free)),
            "evidence": (per_row * evidence(self, self), per_row * evidence_slope(self, self)),
        }

    def coefficients(
        self, y: Float[Array, "n t"]
    ) -> tuple[Float[Array, "n t"], Float[Array, " t"]]:
        """Return coefficients and intercept for other targets, in the dtype of the factor."""
        mean = self.centred * (self.root**2 @ y) / self.weight
        u = solve_factored(self.factor, self.root[:, None] * (y - mean)).astype(np.float64)
        shift = self.centred * (self.root @ u) / self.total
        return self.root[:, None] * (u - self.p[:, None] * shift), mean + shift

    @property
    def quadratic(self) -> tuple[Float[Array, "n n"], Float[Array, " n"], float]:
        """√w A⁻¹ √w, √w A⁻¹s and sᵀA⁻¹s in the formula of Var f, with s = √w; O(n³)."""
        inverse = solve_factored(self.factor, np.eye(len(self.root))).astype(np.float64)
        return self.root[:, None] * inverse * self.root, self.root * self.p, self.total

    def variance(self, k: Float[Array, "b n"], prior: Float[Array, " b"]) -> Float[Array, " b"]:
        """Return Var f/a², (b,), from ``k``, k(x, X), and ``prior``, k(x, x); O(b n²)."""
        half = self._half(k)
        result = prior - np.einsum("ij,ij->j", half, half, dtype=np.float64)
        return np.maximum(result + self._intercept_term(k) ** 2, 0.0)

    def cross_covariance(
        self,
        k: tuple[Float[Array, "b n"], Float[Array, "c n"]],
        prior: Float[Array, "b c"],
        constant: tuple[Float[Array, " b"], Float[Array, " c"]],
    ) -> Float[Array, "b c"]:
        """Return Cov(Lf, L'f)/a² of linear functionals: values, derivatives, averages.

        ``k`` is L k(·, X), ``prior`` L L'k, ``constant`` the value of L for the constant 1.
        """
        left = self._half(k[0]).astype(np.float64)
        right = left if k[1] is k[0] else self._half(k[1]).astype(np.float64)
        by_intercept = [self._intercept_term(e, c) for e, c in zip(k, constant, strict=True)]
        return prior - left.T @ right + np.outer(*by_intercept)

    def _half(self, k: Float[Array, "b n"]) -> Float[Array, "n b"]:
        half = np.array((self.root * k).T, self.factor.dtype, order="F")
        solve_by_triangle(self.factor, half)
        return half

    def _intercept_term(
        self, k: Float[Array, "b n"], constant: Float[Array, " b"] | float = 1.0
    ) -> Float[Array, " b"]:
        """Return (1 − kᵀA⁻¹s)/√(sᵀA⁻¹s); zero without an intercept."""
        if not self.centred:
            return np.zeros(len(k))
        return (constant - k @ (self.root * self.p)) / np.sqrt(self.total)

    def left_out(self, last: int | None = None) -> Both:
        """Return leave-one-out errors (m, t) and slacks (m, 1) of all rows, or of the ``last``.

        The last rows take O(m³), without the inverse.
        """
        first = 0 if last is None else len(self.root) - last
        root = self.root[first:, None]
        if last is None:
            diagonal = self.diagonal
        else:
            upper = np.tril(self.factor[first:, first:].T).T
            if last:
                invert_triangle(upper)
            diagonal = np.square(upper, out=upper).sum(axis=1, dtype=np.float64)
            if self.centred:
                diagonal = diagonal - self.p[first:] ** 2 / self.total
        slack = slack_of_inverse(self.alpha * diagonal[:, None], root**2)
        return left_out_errors(self.alpha * self.u[first:] / root, slack), slack


def scale_both(
    M: Float[Array, "n m"], left: Float[Array, " n"], right: Float[Array, " m"]
) -> Float[Array, "n m"]:
    """Return diag(left) M diag(right)."""
    return M if np.all(left == 1) and np.all(right == 1) else left[:, None] * M * right


# --- Criteria with gradients in the kernel matrix, for the search of hyperparameters --------------
#
# With E = −log p and v = Mu,
#
#     ∂E/∂K = ½ √w (M − vvᵀ/a²) √w
#
# (Rasmussen and Williams 2006, eq. 5.9). With J = Σ_t c_t Σ_i w_i e_it², P = ∂J/∂u,
# q = ∂J/∂diag M and dM = −M dA M,
#
#     ∂J/∂A = −½(M P uᵀ + u PᵀM) − M diag(q) M.


@dataclass(frozen=True, eq=False)
class KernelScore:
    """A criterion and its gradient."""

    value: float
    lower: Float[Array, "m m"]  # ∂value/∂K, valid on and below the diagonal
    alpha_gradient: float  # ∂value/∂log λ

    @cached_property
    def gradient(self) -> Float[Array, "m m"]:
        """∂value/∂K, symmetric."""
        return mirror(self.lower.T).T


def kernel_evidence(
    rows: KernelRows, alpha: float, noise: float | None = None, amplitude: float | None = None
) -> KernelScore:
    """Return minus the log marginal likelihood per row, summed over targets that vary: O(n³).

    K is read on and below its diagonal only.
    """
    dual = rows.at(alpha, full=False)
    value = float(evidence(rows, dual, noise, amplitude).sum())
    slope = float(dual.slope(noise, amplitude).sum())
    scale, M, n = amplitude_at(rows, dual, noise, amplitude), dual.inverse, rows.count
    M *= 0.5 * len(scale) / n
    add_square(M, np.asfortranarray(dual.u * (0.5 / (n * scale)) ** 0.5, M.dtype), -1.0)
    return KernelScore(-value / n, scale_both(M.T, rows.root, rows.root), -slope / n)


def kernel_leave_one_out(
    rows: KernelRows,
    alpha: float,
    noise: float | None = None,  # noqa: ARG001  as for the evidence
    amplitude: float | None = None,  # noqa: ARG001
) -> KernelScore:
    """Return the log of the mean squared leave-one-out error, relative to the targets' variances.

    2 n³ operations; half of them are for the gradient.
    """
    dual, w = rows.at(alpha), rows.w
    (e, slack), copies = dual.left_out(), np.maximum(rows.w, 1.0)
    s = slack[:, 0]
    varies = rows.power > 0
    shares = np.where(varies, 1 / np.where(varies, rows.power, 1.0), 0.0) / max(varies.sum(), 1)
    squares = w * (e**2 @ shares)
    total = max(float(squares.sum()), TINY)
    by_u = 2 * alpha * shares * (rows.root / s)[:, None] * e
    by_diagonal = -2 * alpha * squares / (s * copies)
    inverse = dual.inverse
    outer = np.zeros(inverse.shape, inverse.dtype, order="F")
    add_gram(outer, (inverse * np.sqrt(-by_diagonal)).T)
    add_symmetric_product(outer, inverse @ by_u, -0.5 * dual.u)
    by_alpha = float(np.trace(outer)) + float((by_u * dual.u).sum()) / alpha
    by_alpha += float(by_diagonal @ dual.diagonal) / alpha
    outer /= total
    gradient = scale_both(outer.T, rows.root, rows.root)
    return KernelScore(float(np.log(total)), gradient, alpha * by_alpha / total)


@dataclass(frozen=True)
class Criterion:
    """A criterion that the search of hyperparameters minimises."""

    name: str
    of_kernel: Callable[..., KernelScore]
    label: str  # Name of the quantity in tables


LOO = Criterion("loo", kernel_leave_one_out, "error")
EVIDENCE = Criterion("evidence", kernel_evidence, "minus log evidence per row")
CRITERIA = {criterion.name: criterion for criterion in (LOO, EVIDENCE)}
