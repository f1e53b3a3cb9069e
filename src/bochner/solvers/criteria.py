"""Criteria of a ridge regression on features, with their gradients: what tuning descends.

For rows z_i of Z about their weighted means, Ω = diag(w), A = ZᵀΩZ + αI, β = A⁻¹ZᵀΩy,
r = y − Zβ, Q = ZA⁻¹ and the leverages h_i = z_i·q_i + 1/W:

    leave-one-out:  J = (1/W) Σ w_i r_i²/s_i²,  s_i = 1 − min(w_i, 1) h_i,
    ∂J/∂Z = −(u − ΩZp) βᵀ − Ωr pᵀ + 2 diag(v) Q − 2 ΩZ S,
        u_i = 2 w_i r_i/(W s_i²),  v_i = 2 w_i min(w_i, 1) r_i²/(W s_i³),
        p = QᵀΩ⁰u = A⁻¹Zᵀu,  S = Qᵀ diag(v) Q,
    ∂J/∂α = p·β − tr S;

    evidence (amplitude profiled):  E = ½ log q + (1/2n) log det(ΩZZᵀ + αI) + const,
        q = yᵀΩr/α,
    ∂E/∂Z = −Ωr βᵀ/(α q) + ΩQ/n,
    ∂E/∂α = −rᵀΩr/(2 α² q) + (tr A⁻¹ + (n − D)/α)/(2n).

Several targets: errors relative to each target's variance are averaged, evidences added. Derived
by the product rule from dA = dZᵀΩZ + ZᵀΩdZ; checked against central differences in the tests.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_solve, cholesky

from bochner._ground.blas import add_gram, mirror, product
from bochner._ground.shapes import Array, Float

__all__ = ["CRITERIA", "Score", "coefficients", "evidence", "leave_one_out_error"]

#: Leverages are kept this far below one: a row that the fit passes through says nothing.
LEAST_SLACK = 1e-6


@dataclass(frozen=True, eq=False)
class Score:
    """A criterion, to be minimised, and its gradient.

    Attributes
    ----------
    value : float
        Logarithm of the relative leave-one-out error, or minus the log evidence a row.
    by_features : (n, D)
        ∂value/∂Z, of the features before they were centred.
    by_log_alpha : float
        ∂value/∂log α.
    """

    value: float
    by_features: Float[Array, "n D"]
    by_log_alpha: float


@dataclass(frozen=True, eq=False)
class _Fit:
    """What both criteria need of a ridge regression at one penalty."""

    Z: Float[Array, "n D"]
    y: Float[Array, "n t"]
    w: Float[Array, " n"]
    alpha: float
    inverse: Float[Array, "D D"]
    log_det: float
    coef: Float[Array, "D t"]
    residuals: Float[Array, "n t"]
    rows: Float[Array, "n D"]

    @property
    def weight(self) -> float:
        """W."""
        return float(self.w.sum())

    @property
    def scale(self) -> Float[Array, " t"]:
        """Variance of each target that varies."""
        return self.w @ self.y**2 / self.weight


def _fit(Z: Array, y: Array, w: Array, alpha: float) -> _Fit:
    """Solve for rows about their means, the targets that vary only; O(n D² + D³)."""
    Z = Z - ((w @ Z) / w.sum()).astype(Z.dtype)
    y = y - w @ y / w.sum()
    y = y[:, w @ y**2 > 0]
    root = np.sqrt(w).astype(Z.dtype)
    G = np.zeros((Z.shape[1],) * 2, Z.dtype, order="F")
    add_gram(G, np.ascontiguousarray(root[:, None] * Z))
    A = mirror(G).astype(np.float64) + alpha * np.eye(len(G))
    L = cholesky(A, lower=True, overwrite_a=True, check_finite=False)
    inverse = cho_solve((L, True), np.eye(len(L)), check_finite=False)
    coef = inverse @ (Z.T @ (w[:, None] * y).astype(Z.dtype)).astype(np.float64)
    fitted = (Z @ coef.astype(Z.dtype)).astype(np.float64)
    rows = product(np.ascontiguousarray(Z), np.ascontiguousarray(inverse, dtype=Z.dtype))
    log_det = 2 * float(np.log(np.diag(L)).sum())
    return _Fit(Z, y, w, alpha, inverse, log_det, coef, y - fitted, rows)


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
    """
    fit = _fit(Z, y, w, alpha)
    left_out, W = np.minimum(w, 1.0), fit.weight
    leverage = np.einsum("ij,ij->i", fit.Z, fit.rows).astype(np.float64) + 1 / W
    slack = np.maximum(1 - left_out * leverage, LEAST_SLACK)
    shares = 1 / (fit.scale * len(fit.scale))
    total = float((w / slack**2) @ (fit.residuals**2 @ shares)) / W
    u = 2 * shares / W * (w / slack**2)[:, None] * fit.residuals
    v = 2 / W * w * left_out / slack**3 * (fit.residuals**2 @ shares)
    by_features, by_alpha = _through_errors(fit, u, v)
    return Score(float(np.log(total)), by_features / total, alpha * by_alpha / total)


def _through_errors(fit: _Fit, u: Array, v: Array) -> tuple[Array, float]:
    """Return the gradient of Σ u·r + Σ v h in Z and in α, u and v held."""
    dtype = fit.Z.dtype
    p = (fit.rows.T @ u.astype(dtype)).astype(np.float64)
    S = np.zeros((len(p),) * 2, dtype, order="F")
    add_gram(S, np.ascontiguousarray(np.sqrt(v).astype(dtype)[:, None] * fit.rows))
    S = mirror(S)
    w, Zp = fit.w[:, None], (fit.Z @ p.astype(dtype)).astype(np.float64)
    left = np.hstack([w * Zp - u, -w * fit.residuals]).astype(dtype)
    gradient = product(fit.Z, np.ascontiguousarray(S)) * (-2 * w).astype(dtype)
    gradient += (2 * v).astype(dtype)[:, None] * fit.rows
    gradient += left @ np.hstack([fit.coef, p]).astype(dtype).T
    by_alpha = float((p * fit.coef).sum()) - float(np.trace(S))
    return _uncentred(gradient, fit.w), by_alpha


def evidence(
    Z: Float[Array, "n D"], y: Float[Array, "n t"], w: Float[Array, " n"], alpha: float
) -> Score:
    """Return minus the log marginal likelihood a row, at the best amplitude of each target.

    y ~ N(b, a²(ZZᵀ + αΩ⁻¹)) with a in closed form; targets are independent. Three products of n D².
    """
    fit = _fit(Z, y, w, alpha)
    n, t, D = max(fit.weight, len(w)), fit.y.shape[1], Z.shape[1]
    weighted = w[:, None] * fit.residuals
    q = np.maximum((fit.y * weighted).sum(axis=0), np.finfo(float).tiny) / alpha
    log_det = fit.log_det + (n - D) * np.log(alpha)
    value = 0.5 * float(np.log(2 * np.pi * q / n).sum() + t) + 0.5 * t * log_det / n
    gradient = (t / n * w[:, None]).astype(Z.dtype) * fit.rows
    gradient -= (weighted / (alpha * q)).astype(Z.dtype) @ fit.coef.astype(Z.dtype).T
    by_alpha = -0.5 * float(((weighted * fit.residuals).sum(axis=0) / (alpha**2 * q)).sum())
    by_alpha += 0.5 * t * (float(np.trace(fit.inverse)) + (n - D) / alpha) / n
    return Score(value, _uncentred(gradient, w), alpha * by_alpha)


def _uncentred(gradient: Float[Array, "n D"], w: Array) -> Float[Array, "n D"]:
    """Return the gradient in Z, given that in Z − 1 z̄ᵀ."""
    gradient -= np.outer(w / w.sum(), gradient.sum(axis=0)).astype(gradient.dtype)
    return gradient


#: By name: Z, y, w and the penalty to a score.
CRITERIA: dict[str, Callable[[Array, Array, Array, float], Score]] = {
    "loo": leave_one_out_error,
    "evidence": evidence,
}
