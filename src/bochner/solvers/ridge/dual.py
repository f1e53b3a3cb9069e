"""Ridge regression from the kernel matrix of its rows: one Cholesky factor a penalty, no features.

With A = √w K √w + αI, s = √w and M = A⁻¹, or where an intercept is fitted
M = A⁻¹ − A⁻¹s sᵀA⁻¹/sᵀA⁻¹s, the inverse on all directions but s:

    u = M √w y,   f(x) = Σ √w_i u_i k(x, x_i) + b,   residuals r = α u/√w,

    leave-one-out:  e_i = r_i/s_i,  s_i = (W_i − 1 + α M_ii)/W_i,  W_i = max(w_i, 1),
    freedom:        tr(I − H) = α tr M,

so each criterion has its slope in log α for n² operations more: ∂u/∂α = −Mu, ∂M/∂α = −M².
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import LinAlgError

from bochner._core.blas import (
    add_outer,
    add_outer_sum,
    factor,
    invert_triangle,
    mirror,
    product,
    scaled_gram,
    solve_factored,
    symmetric_product,
    upper_part,
)
from bochner._core.lapack import outer_of_rows
from bochner._core.shapes import Array, Float
from bochner.solvers.ridge.kernel_evidence import KernelScore, both_sides, inverse_of, shifted
from bochner.solvers.ridge.problem import (
    LEAST_SLACK,
    TINY,
    gcv,
    left_out_errors,
    log_likelihood,
    slack_of_inverse,
)

#: Number of rows from which factors are float32; largest number of refinements; residual at which
#: they stop, as a share of the right side, and the residual that float64 rounding leaves.
SINGLE_FROM, REFINEMENTS, REFINED, ROUNDING = 1024, 12, 1e-12, 2 * float(np.finfo(float).eps)

#: Share of a residual that a refinement may leave, or one by a factor whose inverse is read too:
#: with more the factor is of float64.
CONVERGES, SURE = 0.3, 0.01


@dataclass(frozen=True, eq=False)
class KernelRows:
    """The kernel matrix of rows, their targets and weights."""

    K: Float[Array, "n n"]
    y: Float[Array, "n t"]
    w: Float[Array, " n"]  # positive
    centred: bool = True  # whether an intercept is fitted

    @cached_property
    def root(self) -> Float[Array, " n"]:
        """√w."""
        return np.sqrt(self.w)

    @cached_property
    def weighted(self) -> Float[Array, "n n"]:
        """√w K √w."""
        return both_sides(self.K, self.root)

    @property
    def weight(self) -> float:
        """W."""
        return float(self.w.sum())

    @property
    def count(self) -> float:
        """Rows that the data are worth: W where weights count copies, n where they are shares."""
        return max(float(self.w.sum()), len(self.w))

    @cached_property
    def trace(self) -> float:
        """Of √w K √w."""
        return max(float(np.trace(self.weighted)), TINY)

    @cached_property
    def mean(self) -> Float[Array, " t"]:
        """ȳ of each target; without an intercept zero.

        Targets are taken about it, since rounding of a large mean would be solved for.
        """
        return self.centred * (self.w @ self.y) / self.w.sum()

    @cached_property
    def about(self) -> Float[Array, "n t"]:
        """Y − ȳ."""
        return self.y - self.mean

    @cached_property
    def power(self) -> Float[Array, " t"]:
        """Σ w (y − ȳ)² of each target; without an intercept about zero."""
        return self.w @ self.about**2

    def take(self, some: Array) -> "KernelRows":
        """Return these rows."""
        part = self.K[np.ix_(some, some)], self.y[some], self.w[some]
        return KernelRows(*part, self.centred)

    def first(self, m: int) -> "KernelRows":
        """Return the first m rows, without a copy of K."""
        return KernelRows(self.K[:m, :m], self.y[:m], self.w[:m], self.centred)

    def coefficients(
        self, alpha: float | Float[Array, " t"], within: float = REFINED
    ) -> tuple[Float[Array, "n t"], Float[Array, " t"]]:
        """Return coefficients and intercept at a penalty, or one for each target; n³/3 for each.

        Of many rows the factor is of float32, in half of the time, where a few refinements in
        float64 bring all digits back; ``within`` is the residual that they stop at, as a share of
        the right side, for answers that are compared and not kept.

        Raises
        ------
        LinAlgError
            If rounding leaves A not positive.
        """
        return self.solved(alpha, 0, within)[:2]

    def solved(
        self, alpha: float | Float[Array, " t"], last: int, within: float = REFINED
    ) -> "SolvedRows":
        """Return coefficients, intercept, slacks s of the last ``last`` rows, and the evidence.

        The last block of the inverse comes from the last block of the Cholesky factor: O(last³).
        """
        root, tail = self.root[:, None], slice(len(self.w) - last, None)
        each = np.broadcast_to(np.asarray(alpha, np.float64), self.y.shape[1])
        coef, intercept = np.empty(self.y.shape), np.zeros(self.y.shape[1])
        slack, evidence = np.empty((last, self.y.shape[1])), np.empty(self.y.shape[1])
        for value in np.unique(each):
            own = np.flatnonzero(each == value)
            right = np.hstack([root * self.about[:, own], root])
            u, U = self._refined(float(value), right, within)
            u, p, spare = u[:, :-1], u[:, -1:], inverse_diagonal(U, last)
            log_det = 2 * float(np.log(np.diag(U).astype(np.float64)).sum())
            if self.centred:
                share = float(self.root @ p[:, 0])
                intercept[own] = self.root @ u / share
                u, spare = u - p * intercept[own], spare - p[tail, 0] ** 2 / share
                log_det += float(np.log(max(share, TINY) / self.w.sum()))
            evidence[own] = self.evidence(float(value), u, log_det, own)[0]
            coef[:, own] = root * u
            slack[:, own] = slack_of_inverse(value * spare, self.w[tail])[:, None]
        return SolvedRows(coef, intercept + self.mean, slack, evidence)

    def evidence(
        self, alpha: float, u: Float[Array, "n t"], log_det: float, targets: Any = slice(None)
    ) -> tuple[Float[Array, " t"], Float[Array, " t"]]:
        """Return minus twice the log marginal likelihood per row, and q, of each target.

        Amplitudes maximise the likelihood; ``log_det`` is log |A| on all directions except √w if an
        intercept is fitted. See :mod:`bochner.solvers.ridge.evidence`.
        """
        freedom = max(self.count - self.centred, 1.0)
        least = alpha * (u**2).sum(axis=0)  # lower bound of q = uᵀ(K + αI)u
        q = (self.root[:, None] * self.about[:, targets] * u).sum(axis=0)
        q = np.maximum(np.maximum(q, least), TINY)
        log_det += (freedom - len(self.w) + self.centred) * np.log(alpha)
        return -2 * log_likelihood(q, log_det, freedom, q / freedom) / freedom, q

    def inverse_of_last(
        self, alpha: float, last: int
    ) -> tuple[Float[Array, "n t"], Float[Array, "m m"]]:
        """Return u of all rows, and the block of M of the last ``last`` rows.

        n³/3 operations, and 2/3 last³ for the block, which is U⁻¹U⁻ᵀ of the last block of A's
        Cholesky factor U. Of many rows the factor is of float32 and u refined, where a refinement
        gains two digits: with UᵀU = A + E both a step's residual and the error of (M)_ii, as shares
        of themselves, are at most |E|/α.

        Raises
        ------
        LinAlgError
            If rounding leaves A not positive.
        """
        root, tail = self.root[:, None], slice(len(self.w) - last, None)
        right = np.hstack([root * self.about, root])
        u, U = self._refined(alpha, right, REFINED, SURE)
        upper, u, p = _inverse_block(U, last), u[:, :-1], u[:, -1:]
        if self.centred:
            share = float(self.root @ p[:, 0])
            u = u - p * (self.root @ u / share)
            add_outer(upper, p[tail, 0].astype(upper.dtype), -1 / share)
        return u, mirror(upper)

    def _refined(
        self, alpha: float, right: Float[Array, "n r"], within: float, most: float = CONVERGES
    ) -> tuple[Float[Array, "n r"], Float[Array, "n n"]]:
        """Return A⁻¹ of these columns, and U with UᵀU = A, on and above its diagonal."""
        if len(right) > SINGLE_FROM:
            found = self._by_single(alpha, right, within, most)
            if found is not None:
                return found
        A = shifted(self.K, self.root, alpha)
        factor(A)
        return solve_factored(A, right), A

    def _by_single(
        self, alpha: float, right: Float[Array, "n r"], within: float, most: float = CONVERGES
    ) -> tuple[Float[Array, "n r"], Float[Array, "n n"]] | None:
        """Refine what a factor of float32 gives; None if a step leaves more than ``most``.

        A residual of rounding itself, |A| |u| in units of the last digit, is as good as zero: no
        factor of float64 has a smaller one.
        """
        A = shifted(self.K, self.root, alpha, dtype=np.float32)
        try:
            factor(A)
        except LinAlgError:
            return None
        size, u, before = np.linalg.norm(right, axis=0), np.zeros_like(right), np.inf
        left, unit = right, ROUNDING * (self.trace + alpha)
        for _ in range(REFINEMENTS):
            u += solve_factored(A, left)
            left = right - symmetric_product(self.weighted, u) - alpha * u
            known = np.maximum(within * size, unit * np.linalg.norm(u, axis=0))
            # A column of zeros (a class without rows) has the solution zero.
            off = float((np.linalg.norm(left, axis=0) / np.maximum(known, TINY)).max())
            if off <= 1:
                return u, A
            if not off < most * before:
                return None
            before = off
        return None

    def at(self, alpha: float, overwrite: bool = False) -> "Dual":
        """Return the ridge regression at one penalty; O(n³).

        With ``overwrite`` the inverse overwrites K, which cannot be used afterwards.

        Raises
        ------
        LinAlgError
            If rounding leaves A not positive.
        """
        A = shifted(self.K, self.root, alpha, overwrite)
        upper, log_det = inverse_of(A, self.root if self.centred else None)
        inverse = mirror(upper)
        return Dual(self, alpha, inverse, inverse @ (self.root[:, None] * self.about), log_det)


class SolvedRows(NamedTuple):
    """Coefficients, intercept, slacks of the last rows, minus twice the log evidence per row."""

    coef: Float[Array, "n t"]
    intercept: Float[Array, " t"]
    slack: Float[Array, "m t"]
    evidence: Float[Array, " t"]


@dataclass(frozen=True, eq=False)
class Dual:
    """A ridge regression on the kernel matrix of its rows, at one penalty."""

    rows: KernelRows
    alpha: float
    inverse: Float[Array, "n n"] = field(repr=False)  # M
    u: Float[Array, "n t"] = field(repr=False)
    log_det: float  # of A, on all directions but √w where an intercept is fitted

    @cached_property
    def coef(self) -> Float[Array, "n t"]:
        """Coefficients of the kernel and each row."""
        return self.rows.root[:, None] * self.u

    @cached_property
    def residuals(self) -> Float[Array, "n t"]:
        """Of the rows, y − f."""
        return self.alpha * self.u / self.rows.root[:, None]

    @cached_property
    def intercept(self) -> Float[Array, " t"]:
        """Intercept b."""
        rows = self.rows
        if not rows.centred:
            return rows.mean
        left = rows.root @ (rows.weighted @ self.u)
        return rows.mean + (rows.w @ (rows.about - self.residuals) - left) / rows.w.sum()

    @cached_property
    def slack(self) -> Float[Array, " n"]:
        """1 − h of each row."""
        return slack_of_inverse(self.alpha * np.diag(self.inverse), self.rows.w)

    @cached_property
    def left_out(self) -> Float[Array, "n t"]:
        """Leave-one-out errors."""
        return left_out_errors(self.residuals, self.slack[:, None])

    @property
    def left_out_shares(self) -> Float[Array, "n n"]:
        """H, with H y the predictions of rows without each: ŷ_i = y_i − e_i."""
        scale = self.alpha / (self.rows.root * self.slack)
        return np.eye(len(scale)) - scale[:, None] * self.inverse * self.rows.root

    def shares(self, across: Float[Array, "s n"]) -> Float[Array, "s n"]:
        """Return H, with H y the predictions of other rows, from their kernel values; O(s n²)."""
        rows, root = self.rows, self.rows.root
        H = product(across * root, self.inverse) * root
        if rows.centred:
            H += (rows.w - self.inverse @ (rows.weighted @ root) * root) / rows.w.sum()
        return H

    @cached_property
    def _falling(self) -> Float[Array, "n t"]:
        """−∂u/∂α."""
        return self.inverse @ self.u

    def loo(self) -> tuple[Float[Array, " t"], Float[Array, " t"]]:
        """Return mean squared leave-one-out errors, and their slopes in log α."""
        w, alpha, above = self.rows.w, self.alpha, np.maximum(self.rows.w, 1.0)
        M = self.inverse
        by_diagonal = -np.einsum("ij,ij->i", M, M)
        slack = (np.diag(M) + alpha * by_diagonal) * alpha / above
        residuals = alpha * (self.u - alpha * self._falling) / self.rows.root[:, None]
        e, s = self.left_out, self.slack[:, None]
        slope = 2 * w @ (e * (residuals - e * slack[:, None]) / s)
        return w @ e**2 / w.sum(), slope / w.sum()

    def gcv(self) -> tuple[Float[Array, " t"], Float[Array, " t"]]:
        """Return generalised cross-validation, and its slope in log α."""
        alpha, M, value = self.alpha, self.inverse, gcv(self.rows, self)
        slope = alpha * float(np.trace(M)) - alpha**2 * float(np.einsum("ij,ij->", M, M))
        rss = np.maximum(self.rss, TINY)
        by_rss = 2 * rss - 2 * alpha**3 * (self.u * self._falling).sum(axis=0)
        return value, value * (by_rss / rss - 2 * slope / self.free)

    def evidence(self) -> tuple[Float[Array, " t"], Float[Array, " t"]]:
        """Return minus twice the log marginal likelihood per row, amplitudes profiled; its slope.

        Of each target; see :mod:`bochner.solvers.ridge.evidence`.
        """
        freedom = max(self.rows.count - self.rows.centred, 1.0)
        value, q = self.rows.evidence(self.alpha, self.u, self.log_det)
        traced = self.alpha * float(np.trace(self.inverse)) + self.rows.centred - len(self.rows.w)
        by_q = self.alpha * (self.u**2).sum(axis=0) / q
        return value, 1 - by_q + traced / freedom

    @property
    def rss(self) -> Float[Array, " t"]:
        """Σ w (y − ŷ)² of each target."""
        return self.alpha**2 * (self.u**2).sum(axis=0)

    @cached_property
    def free(self) -> float:
        """tr(I − H): of all rows that the data are worth, less the intercept."""
        rows = self.rows
        more = rows.count - len(rows.w)
        return max(more + self.alpha * float(np.trace(self.inverse)), LEAST_SLACK)


def inverse_diagonal(U: Float[Array, "n n"], last: int) -> Float[Array, " m"]:
    """Return the last entries of the diagonal of (UᵀU)⁻¹; entries below U's diagonal are not read.

    They are the squares of the rows of U⁻¹, whose last block is the inverse of U's.
    """
    if not last:
        return np.empty(0)
    upper = upper_part(U[-last:, -last:])
    invert_triangle(upper)
    return np.square(upper, out=upper).sum(axis=1, dtype=np.float64)


def _inverse_block(U: Float[Array, "n n"], last: int) -> Float[Array, "m m"]:
    """Return the last block of (UᵀU)⁻¹; only its upper triangle is valid."""
    upper = np.array(U[-last:, -last:], order="F")
    invert_triangle(upper)
    outer_of_rows(upper)
    return upper


# --- a criterion and its gradient in the kernel matrix -------------------------------------------
#
# With J = Σ_t c_t Σ_i w_i e_it², P = ∂J/∂u, q = ∂J/∂diag M and dM = −M dA M,
#
#     ∂J/∂A = −½(M P uᵀ + u PᵀM) − M diag(q) M.


def kernel_leave_one_out(rows: KernelRows, alpha: float, overwrite: bool = False) -> KernelScore:
    """Return the log of the mean squared leave-one-out error, relative to the targets' variances.

    And its gradient in K, which is read on and below its diagonal alone; 2 n³ operations, half of
    which are the gradient's. With ``overwrite`` K may be written to.

    Raises
    ------
    LinAlgError
        If rounding leaves A not positive.
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
    outer = scaled_gram(inverse, -by_diagonal)
    for left, right in zip((inverse @ by_u).T, dual.u.T, strict=True):
        add_outer_sum(outer, left, -0.5 * right)
    by_alpha = float(np.trace(outer)) + float((by_u * dual.u).sum()) / alpha
    by_alpha += float(by_diagonal @ np.diag(inverse)) / alpha
    outer /= total
    below = both_sides(outer.T, rows.root)
    return KernelScore(float(np.log(total)), below, alpha * by_alpha / total)
