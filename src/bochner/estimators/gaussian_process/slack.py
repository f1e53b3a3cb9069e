"""What leaving out a row costs: its residual y − f̂ and its slack 1 − h, without cancellation.

With C = Ω^½ (Z − 1z̄ᵀ), u = Ω^½ (y − ȳ) and A = CCᵀ + λI on what an intercept leaves,

    Ω^½ (y − f̂) = λ A⁻¹u,   1 − h_i = λ (A⁻¹)_ii,   h_i = w_i Var f(x_i)/(a²λ),

and the fit without row i is off by (y − f̂)/(1 − h), with a variance of f of a²λ h/(1 − h): both
exact (Rasmussen and Williams 2006, eq. 5.10 to 5.12). Where a row is all that speaks for itself,
h is so near to one that 1 − h is made of rounding; the n × n form has its digits. Of a row of
weight w > 1, that is w rows, one is left out.
"""

import numpy as np

from bochner._ground.lapack import eigh
from bochner._ground.shapes import Array, Float
from bochner.estimators.gaussian_process.posterior import Posterior

__all__ = ["MOST_ROWS", "of_all_rows", "of_some_rows", "told_apart"]

#: Rows of the n × n form, at most: a fraction of a second.
MOST_ROWS = 1024

#: Rounding of float64, and of products in float32 as a share of ‖G‖.
EPS, FLOAT32 = float(np.finfo(np.float64).eps), 1e-8


def of_all_rows(
    posterior: Posterior, Z: Float[Array, "n D"], y: Float[Array, "n t"], w: Float[Array, " n"]
) -> tuple[Float[Array, "n t"], Float[Array, "n t"]]:
    """Return residuals and slacks of the rows that the posterior is of, all of them: O(n³)."""
    root, alpha = np.sqrt(w), posterior.evidence.alpha
    C = root[:, None] * (Z - posterior.feature_mean)
    mean = posterior.intercept + posterior.feature_mean @ posterior.coef
    u = root[:, None] * (y - mean)
    if posterior.spread:
        C, u = _turned(C, root), _turned(u, root)
    if not len(C):
        return np.zeros_like(y), np.ones_like(y)  # one row, and the intercept is it
    values, vectors = eigh(C @ C.T, driver="evd", check_finite=False)
    U = _turned_back(vectors, root) if posterior.spread else vectors
    shrink = alpha / (np.maximum(values, 0.0)[:, None] + alpha)
    residual = (U @ (shrink * (vectors.T @ u))) / root[:, None]
    slack = (U * U) @ shrink
    return residual, np.where(w[:, None] > 1, 1 - (1 - slack) / np.maximum(w, 1)[:, None], slack)


def of_some_rows(
    posterior: Posterior,
    Z: Float[Array, "b D"],
    y: Float[Array, "b t"],
    w: Float[Array, " b"],
    precision: str = "float64",
) -> tuple[Float[Array, "b t"], Float[Array, "b t"]]:
    """Return residuals and slacks of some rows: O(b D²)."""
    prior = np.einsum("ij,ij->i", Z - posterior.feature_mean, Z - posterior.feature_mean)
    leverage = posterior.leverage(Z)
    return told_apart(posterior, y, posterior.mean(Z), leverage, w, prior, precision)


def told_apart(
    posterior: Posterior,
    y: Float[Array, "b t"],
    mean: Float[Array, "b t"],
    leverage: Float[Array, "b t"],
    w: Float[Array, " b"],
    prior: Float[Array, " b"],
    precision: str = "float64",
) -> tuple[Float[Array, "b t"], Float[Array, "b t"]]:
    """Return y − f̂ and 1 − h; where rounding made them, those of a row that stands by itself.

    Such a row has 1 − h = λ/(λ + k), the least for rows with φ·φ = k, and is predicted by the mean
    without itself. Coordinates are off by ε√k, which moves h by up to 2ε √(kD/λ); float32 products
    move it by their share of ‖G‖/λ.
    """
    alpha, one = posterior.evidence.alpha, np.minimum(w, 1.0)[:, None]
    slack = 1 - one * leverage
    rounding = 10 * EPS * np.sqrt(1 + prior[:, None] * len(posterior.coef) / alpha)
    if precision == "float32":
        rounding = rounding + FLOAT32 * posterior.values.max(initial=0.0) / alpha
    least = alpha / (alpha + one * prior[:, None])
    centre = posterior.intercept + posterior.feature_mean @ posterior.coef
    resolved = slack > rounding
    residual = np.where(resolved, y - mean, least * (y - centre))
    return residual, np.where(resolved, slack, least)


def _turned(A: Float[Array, "n k"], root: Float[Array, " n"]) -> Float[Array, "m k"]:
    """Return coordinates of columns orthogonal to ``root``: n − 1 of them, by a reflection."""
    v = _mirror(root)
    return (A - np.outer(v, 2 * (v @ A)))[1:]


def _turned_back(A: Float[Array, "m k"], root: Float[Array, " n"]) -> Float[Array, "n k"]:
    """Return the columns that have these coordinates."""
    v = _mirror(root)
    return np.vstack([np.zeros(A.shape[1]), A]) - np.outer(v, 2 * (v[1:] @ A))


def _mirror(root: Float[Array, " n"]) -> Float[Array, " n"]:
    """Return the unit vector whose reflection takes ``root`` to the first axis."""
    v = root / np.linalg.norm(root)
    v[0] += 1.0
    return v / np.linalg.norm(v)
