"""Criteria of a ridge regression on features, with their gradients: what tuning descends.

For rows z_i of Z about their weighted means, Ω = diag(w), A = ZᵀΩZ + αI, β = A⁻¹ZᵀΩy,
r = y − Zβ, Q = ZA⁻¹ and the leverages h_i = z_i·q_i + 1/W:

    leave-one-out:  J = (1/W) Σ w_i r_i²/s_i²,  s_i = 1 − min(w_i, 1) h_i,
    ∂J/∂Z = −(u − ΩZp) βᵀ − Ωr pᵀ + 2 diag(v) Q − 2 ΩZ S,
        u_i = 2 w_i r_i/(W s_i²),  v_i = 2 w_i min(w_i, 1) r_i²/(W s_i³),
        p = QᵀΩ⁰u = A⁻¹Zᵀu,  S = Qᵀ diag(v) Q,
    ∂J/∂α = p·β − tr S;

    evidence (amplitude profiled), of the ν = n − 1 contrasts that an intercept leaves:
        E = ½ log q + (1/2ν) (log det A + (ν − D) log α) + const,  q = yᵀΩr/α,
    ∂E/∂Z = −Ωr βᵀ/(α q) + ΩQ/ν,
    ∂E/∂α = −rᵀΩr/(2 α² q) + (tr A⁻¹ + (ν − D)/α)/(2ν).

Where there are hardly more rows than features a fit may pass through them, and differences such
as y − Zβ and 1 − h_i are lost in rounding. There all is taken from the n × n side, which has none:
K = √Ω ZZᵀ √Ω, M the inverse of K + αI on all directions but √w,

    r = α Ω^(−½) M √Ω y,   W_i = max(w_i, 1),   s_i = (W_i − 1 + α M_ii)/W_i,   Q = Ω^(−½) M √Ω Z,
    x − ΩZQᵀx = α √Ω M Ω^(−½) x   for x = u and x = diag(v) Q, but for a multiple of w.

Several targets: errors relative to each target's variance are averaged, evidences added. Derived
by the product rule from dA = dZᵀΩZ + ZᵀΩdZ; checked against central differences in the tests.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.linalg import LinAlgError, cho_solve

from bochner._core.blas import (
    add_gram,
    cholesky,
    mirror,
    product,
)
from bochner._core.shapes import Array, Float
from bochner.solvers.ridge.dual import KernelRows, kernel_leave_one_out
from bochner.solvers.ridge.kernel_evidence import KernelScore, kernel_evidence
from bochner.solvers.ridge.problem import log_likelihood, slack_of_inverse, slack_of_leverage
from bochner.solvers.ridge.solution import LABELS

#: Up to this many rows a feature, the n × n side is taken.
FEW = 1.25

#: Smallest slack that is above rounding. Measured with more rows than that, at the lowest penalties
#: of a descent: rounding is below 1e-4 in float32, 1e-8 in float64.
LEAST_SLACK = {"float32": 1e-3, "float64": 1e-6}


@dataclass(frozen=True, eq=False)
class Score:
    """A criterion, to be minimised, and its gradient."""

    value: float  # logarithm of the relative leave-one-out error, or minus the log evidence per row
    by_features: Float[Array, "n D"]  # ∂value/∂Z, of the features before they were centred
    by_log_alpha: float  # ∂value/∂log α


@dataclass(frozen=True, eq=False)
class _Fit:
    """What both criteria need of a ridge regression at one penalty."""

    Z: Float[Array, "n D"]  # about their means, as y
    y: Float[Array, "n t"]
    w: Float[Array, " n"]
    alpha: float
    trace: float  # of A⁻¹
    log_det: float  # of A
    coef: Float[Array, "D t"]
    residuals: Float[Array, "n t"]
    rows: Float[Array, "n D"]  # Q
    slack: Float[Array, " n"]  # s
    dual: Float[Array, "n n"] | None = None  # M, where the n × n side was taken

    @property
    def weight(self) -> float:
        """W."""
        return float(self.w.sum())

    @property
    def scale(self) -> Float[Array, " t"]:
        """Variance of each target that varies."""
        return self.w @ self.y**2 / self.weight

    def left(self, u: Float[Array, "n t"]) -> Float[Array, "n t"]:
        """Return u − ΩZQᵀu."""
        if self.dual is not None:
            root = np.sqrt(self.w)[:, None]
            return self.alpha * root * (self.dual @ (u / root))
        p = (self.rows.T @ u.astype(self.Z.dtype)).astype(np.float64)
        return u - self.w[:, None] * (self.Z @ p.astype(self.Z.dtype)).astype(np.float64)

    def left_of_rows(self, v: Float[Array, " n"]) -> Float[Array, "n D"]:
        """Return the same of diag(v) Q, v ≥ 0."""
        if self.dual is not None:
            return self.left(v[:, None] * self.rows)
        dtype = self.Z.dtype
        S = np.zeros((self.Z.shape[1],) * 2, dtype, order="F")
        add_gram(S, np.ascontiguousarray(np.sqrt(v).astype(dtype)[:, None] * self.rows))
        less = product(self.Z, np.ascontiguousarray(mirror(S))) * self.w.astype(dtype)[:, None]
        return v.astype(dtype)[:, None] * self.rows - less


def _fit(Z: Array, y: Array, w: Array, alpha: float) -> _Fit:
    """Solve for rows about their means, the targets that vary only."""
    few = len(Z) <= FEW * Z.shape[1]
    Z = Z.astype(np.float64) if few else Z
    Z = Z - ((w @ Z) / w.sum()).astype(Z.dtype)
    y = y - w @ y / w.sum()
    y = y[:, w @ y**2 > 0]
    return _fit_of_few(Z, y, w, alpha) if few else _fit_of_many(Z, y, w, alpha)


def _fit_of_many(Z: Array, y: Array, w: Array, alpha: float) -> _Fit:
    """Solve for the coefficients; O(n D² + D³)."""
    root = np.sqrt(w).astype(Z.dtype)
    G = np.zeros((Z.shape[1],) * 2, Z.dtype, order="F")
    add_gram(G, np.ascontiguousarray(root[:, None] * Z))
    A = mirror(G).astype(np.float64) + alpha * np.eye(len(G))
    inverse, log_det = _inverse(A)
    coef = inverse @ (Z.T @ (w[:, None] * y).astype(Z.dtype)).astype(np.float64)
    fitted = (Z @ coef.astype(Z.dtype)).astype(np.float64)
    rows = product(np.ascontiguousarray(Z), np.ascontiguousarray(inverse, dtype=Z.dtype))
    leverage = np.einsum("ij,ij->i", Z, rows).astype(np.float64) + 1 / w.sum()
    slack = slack_of_leverage(leverage, w)
    trace = float(np.trace(inverse))
    return _Fit(Z, y, w, alpha, trace, log_det, coef, y - fitted, rows, slack)


def _fit_of_few(Z: Array, y: Array, w: Array, alpha: float) -> _Fit:
    """Solve for the residuals; O(n² D + n³), in float64."""
    root, (n, D) = np.sqrt(w)[:, None], Z.shape
    K = (root * Z) @ (root * Z).T
    high = float(np.trace(K)) + alpha  # an eigenvalue for √w, far from those that count
    out = root @ root.T / w.sum()
    M, log_det = _inverse(K + alpha * np.eye(n) + high * out)
    M -= out / (alpha + high)
    log_det += (D - n + 1) * np.log(alpha) - np.log(alpha + high)
    residuals, slack = alpha * M @ (root * y) / root, slack_of_inverse(alpha * np.diag(M), w)
    rows = M @ (root * Z) / root
    coef = rows.T @ (w[:, None] * y)
    trace = float(np.trace(M)) + (D - n + 1) / alpha
    return _Fit(Z, y, w, alpha, trace, log_det, coef, residuals, rows, slack, M)


def _inverse(A: Array) -> tuple[Array, float]:
    """Return the inverse of a positive matrix, and the logarithm of its determinant."""
    L = cholesky(A, lower=True, overwrite_a=True, check_finite=False)
    inverse = cho_solve((L, True), np.eye(len(L)), check_finite=False)
    return inverse, 2 * float(np.log(np.diag(L)).sum())


def coefficients(
    Z: Float[Array, "n D"], y: Float[Array, "n t"], w: Float[Array, " n"], alpha: float
) -> Float[Array, "D t"]:
    """Return β of each target that varies, in units of its standard deviation."""
    fit = _fit(Z, y, w, alpha)
    return fit.coef / np.sqrt(fit.scale)


def leave_one_out_error(
    Z: Float[Array, "n D"], y: Float[Array, "n t"], w: Float[Array, " n"], alpha: float
) -> Score:
    """Return log of the mean squared leave-one-out error, relative to the targets' variances.

    The products are in the precision of Z, solves and sums in float64. Six products of n D², three
    times a fit.

    Raises
    ------
    LinAlgError
        Where rounding hides how far the fit is from passing through a row.
    """
    fit = _fit(Z, y, w, alpha)
    left_out, W, slack = np.minimum(w, 1.0), fit.weight, fit.slack
    if fit.dual is None and slack.min() <= LEAST_SLACK[str(Z.dtype)]:
        raise LinAlgError("leave-one-out error: the fit passes through a row, to rounding.")
    shares = 1 / (fit.scale * len(fit.scale))
    total = float((w / slack**2) @ (fit.residuals**2 @ shares)) / W
    u = 2 * shares / W * (w / slack**2)[:, None] * fit.residuals
    v = 2 / W * w * left_out / slack**3 * (fit.residuals**2 @ shares)
    by_features, by_alpha = _through_errors(fit, u, v)
    by_features = (by_features / total).astype(Z.dtype, copy=False)
    return Score(float(np.log(total)), by_features, alpha * by_alpha / total)


def _through_errors(fit: _Fit, u: Array, v: Array) -> tuple[Array, float]:
    """Return the gradient of Σ u·r + Σ v h in Z and in α, u and v held."""
    dtype, w = fit.Z.dtype, fit.w[:, None]
    p = (fit.rows.T @ u.astype(dtype)).astype(np.float64)
    gradient = 2 * fit.left_of_rows(v)
    left = np.hstack([-fit.left(u), -w * fit.residuals]).astype(dtype)
    gradient += left @ np.hstack([fit.coef, p]).astype(dtype).T
    trace = v @ np.einsum("ij,ij->i", fit.rows, fit.rows).astype(np.float64)
    by_alpha = float((p * fit.coef).sum()) - float(trace)
    return _uncentred(gradient, fit.w), by_alpha


def evidence(
    Z: Float[Array, "n D"], y: Float[Array, "n t"], w: Float[Array, " n"], alpha: float
) -> Score:
    """Return minus the log marginal likelihood at the best amplitudes, over ν = n − 1.

    y ~ N(b, a²(ZZᵀ + αΩ⁻¹)) with a in closed form; targets are independent. Three products of n D².
    """
    fit = _fit(Z, y, w, alpha)
    freedom, t, D = max(fit.weight - 1, len(w) - 1, 1), fit.y.shape[1], Z.shape[1]
    weighted = w[:, None] * fit.residuals
    q = np.maximum((fit.y * weighted).sum(axis=0), np.finfo(float).tiny) / alpha
    log_det = fit.log_det + (freedom - D) * np.log(alpha)
    value = -float(log_likelihood(q, log_det, freedom, q / freedom).sum()) / freedom
    gradient = (t / freedom * w[:, None]).astype(Z.dtype) * fit.rows
    gradient -= (weighted / (alpha * q)).astype(Z.dtype) @ fit.coef.astype(Z.dtype).T
    by_alpha = -0.5 * float(((weighted * fit.residuals).sum(axis=0) / (alpha**2 * q)).sum())
    by_alpha += 0.5 * t * (fit.trace + (freedom - D) / alpha) / freedom
    by_features = _uncentred(gradient, w).astype(Z.dtype, copy=False)
    return Score(value, by_features, alpha * by_alpha)


def _uncentred(gradient: Float[Array, "n D"], w: Array) -> Float[Array, "n D"]:
    """Return the gradient in Z, given that in Z − 1 z̄ᵀ."""
    gradient -= np.outer(w / w.sum(), gradient.sum(axis=0)).astype(gradient.dtype)
    return gradient


class Criterion(ABC):
    """What a search minimises, as a value."""

    name: ClassVar[str]
    label: ClassVar[str]

    @abstractmethod
    def __call__(self, Z: Array, y: Array, w: Array, alpha: float) -> Score:
        """Return the criterion of a ridge regression on features."""

    @abstractmethod
    def of_kernel(
        self,
        rows: KernelRows,
        alpha: float,
        noise: float | None = None,
        amplitude: float | None = None,
        *,
        overwrite: bool = False,
    ) -> KernelScore:
        """Return the criterion of a ridge regression on the kernel matrix; see :mod:`.dual`.

        Of the matrix only what is on and below the diagonal is read; with ``overwrite`` it may be
        written to.
        """

    @abstractmethod
    def shown(self, value: float) -> float:
        """Return a value as people read it."""


@dataclass(frozen=True)
class LeaveOneOutError(Criterion):
    """The mean squared leave-one-out error, relative to the targets' variances."""

    name: ClassVar[str] = "loo"
    label: ClassVar[str] = LABELS["loo"]

    def __call__(self, Z: Array, y: Array, w: Array, alpha: float) -> Score:
        return leave_one_out_error(Z, y, w, alpha)

    def of_kernel(
        self,
        rows: KernelRows,
        alpha: float,
        noise: float | None = None,  # noqa: ARG002
        amplitude: float | None = None,  # noqa: ARG002
        *,
        overwrite: bool = False,
    ) -> KernelScore:
        return kernel_leave_one_out(rows, alpha, overwrite)

    def shown(self, value: float) -> float:
        return float(np.exp(value))


@dataclass(frozen=True)
class LogEvidence(Criterion):
    """Minus the log marginal likelihood per row."""

    name: ClassVar[str] = "evidence"
    label: ClassVar[str] = LABELS["evidence"]

    def __call__(self, Z: Array, y: Array, w: Array, alpha: float) -> Score:
        return evidence(Z, y, w, alpha)

    def of_kernel(
        self,
        rows: KernelRows,
        alpha: float,
        noise: float | None = None,
        amplitude: float | None = None,
        *,
        overwrite: bool = False,
    ) -> KernelScore:
        found = kernel_evidence(
            rows.K,
            rows.y,
            rows.w,
            alpha,
            centred=rows.centred,
            noise=noise,
            amplitude=amplitude,
            overwrite=overwrite,
        )
        n, below = rows.count, found.below
        below /= n
        return KernelScore(found.value / n, below, found.by_log_alpha / n)

    def shown(self, value: float) -> float:
        return value


#: By name.
CRITERIA: dict[str, Criterion] = {
    criterion.name: criterion for criterion in (LeaveOneOutError(), LogEvidence())
}
