"""Criteria for the penalty of a ridge regression: GCV, leave-one-out error and evidence.

    minimise  Σ w_i (y_i − f(x_i))² + α ‖f‖²,   f̂ = H y.

Criteria need the residual sum of squares, q = (y − ȳ)ᵀ(K + αI)⁻¹(y − ȳ), tr (I − H) and
log |K + αI|, all on the ν = n − 1 contrasts that an intercept leaves (ν = n without an intercept),
and the residual r and the leverage h of each row (Hastie, Tibshirani and Friedman 2009, section
7.10; Rasmussen and Williams 2006, eq. 2.30 and 5.10):

    leave-one-out errors   r_i/(1 − h_i),
    GCV                    (RSS/W) (n/tr (I − H))²,
    log p(y)               −½ (q/a² + log |K + αI| + ν log 2πa²),   â² = q/ν.

n is the larger of the number of rows and W, as weights may count copies.
"""

from typing import Any

import numpy as np

from bochner._core.shapes import Array, Float

MIN_SLACK = 1e-100  # Floor for 1 − h, for a row that the fit interpolates
TINY = float(np.finfo(float).tiny)  # Floor for divisors


# A problem has ``weight`` (W = Σ w), ``count`` (n, see above) and ``centred`` (whether an intercept
# is fitted). Classes: :class:`~.eigen.Eigen`, :class:`~.dual.KernelRows`,
# :class:`bochner.solvers.modes.ModeProblem` and :class:`~.iterative.WideProblem`.
#
# A smoother is the solution at one penalty, or along a path of penalties (the first axis). It has
# ``alpha``, ``rss`` (Σ w (y − ŷ)²) and ``quadratic_form`` (q) of each target, ``free``
# (tr (I − H)) and ``log_det`` (log |K + αI|). ``gcv`` needs no q and no ``log_det``.


def slack_of_leverage(leverage: Array, w: Array, max_weight: float = 1.0) -> Array:
    """Return 1 − min(w, max_weight) h; at most ``max_weight`` of the weight w is left out."""
    return 1 - np.minimum(w, max_weight) * leverage


def slack_of_inverse(diagonal: Array, w: Array) -> Array:
    """Return 1 − min(w, 1) h without cancellation, from ``diagonal``, α ((K + αI)⁻¹)_ii."""
    scale = np.maximum(w, 1.0)
    return np.maximum((scale - 1 + diagonal) / scale, MIN_SLACK)


def left_out_errors(residuals: Array, slack: Array) -> Array:
    """Return leave-one-out errors r/(1 − h); infinite if 1 − h is zero."""
    errors = np.full(np.broadcast_shapes(residuals.shape, slack.shape), np.inf)
    return np.divide(residuals, slack, out=errors, where=slack > 0)


def gcv(problem: Any, smoother: Any) -> Float[Array, "*p t"]:
    """Return the GCV score of each target; infinite if no degrees of freedom are left."""
    free = np.asarray(smoother.free)[..., None]
    with np.errstate(divide="ignore", invalid="ignore"):
        values = (problem.count / free) ** 2 * smoother.rss / problem.weight
    return np.where(free > 0, values, np.inf)


def freedom(problem: Any) -> float:
    """Return ν: n minus one if an intercept is fitted."""
    return max(problem.count - problem.centred, 0.0)


def amplitude_at(
    problem: Any, smoother: Any, noise: float | None = None, amplitude: float | None = None
) -> Float[Array, "*p t"]:
    """Return a² of each target: ``amplitude``, noise/α, or the value of largest likelihood."""
    q = np.maximum(smoother.quadratic_form, TINY)
    if amplitude is not None:
        return np.full_like(q, amplitude)
    if noise is not None:
        return np.full_like(q, noise) / np.asarray(smoother.alpha)[..., None]
    return q / max(freedom(problem), 1.0)


def evidence(
    problem: Any, smoother: Any, noise: float | None = None, amplitude: float | None = None
) -> Float[Array, "*p t"]:
    """Return log p(y) per target at α, maximised over the amplitude unless it is given."""
    nu, a2 = freedom(problem), amplitude_at(problem, smoother, noise, amplitude)
    log_det = np.asarray(smoother.log_det)[..., None]
    q = np.maximum(smoother.quadratic_form, TINY)
    return -0.5 * (nu > 0) * (q / a2 + log_det + nu * np.log(2 * np.pi * a2))


def evidence_slope(
    problem: Any, smoother: Any, noise: float | None = None, amplitude: float | None = None
) -> Float[Array, "*p t"]:
    """Return ∂log p(y)/∂log α of each target, from ∂q/∂log α = −RSS/α."""
    alpha, free = np.asarray(smoother.alpha)[..., None], np.asarray(smoother.free)[..., None]
    a2 = amplitude_at(problem, smoother, noise, amplitude)
    fit = smoother.rss / alpha
    if noise is not None and amplitude is None:  # a² falls with α
        q = np.maximum(smoother.quadratic_form, TINY)
        return 0.5 * ((fit - q) / a2 - free + freedom(problem))
    return 0.5 * (fit / a2 - free)
