"""Probabilities from decision values, that never disagree with the decision.

A classifier decides for the class of the largest value f. Probabilities

    p_k ∝ exp(h(f_k))   (two classes: p = 1/(1 + exp(−h(f)))),    h(f) = Σ_j a_j b_j(f),

keep that decision for any rising h. The b_j are the pieces of a broken line with knots at −1 and 1
(where support vectors lie, and the targets of ridge regression) and some between them, that is 0 at
0, and a_j > 0: so h rises, h(0) = 0, and minus the log-likelihood is convex in a. With all slopes
equal that is temperature scaling (Guo et al. 2017). The sigmoid of Platt (1999) has one slope and
an offset; the offset makes its probabilities contradict ``predict``, and is not needed: consistent
losses have p = 1/2 at f = 0.

a is fitted to decision values of rows that the classifier had not seen: left out one by one, in
closed form, or fold by fold.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_expit, log_softmax

from bochner._core.shapes import Array, Float
from bochner.selection.held_out import platt_targets

LEAST_SLOPE = 1e-3  # Slopes above zero, so that h rises
PRIOR = 0.1  # Weight of the belief that slopes are 1

#: The slopes of squared errors, f ≈ 2p − 1, are steep near both ends.
KNOTS = (-1.0, -0.8, -0.5, 0.0, 0.5, 0.8, 1.0)


@dataclass(frozen=True, eq=False)
class Calibration:
    """The slopes of h."""

    # Below −1, between the knots −1, −0.8, −0.5, 0, 0.5, 0.8 and 1, and above 1
    slopes: Float[Array, " j"]
    # Mean of −log p of the rows it was fitted to, which the classifier had not seen
    log_loss: float

    def log_probabilities(self, f: Float[Array, "n t"]) -> Float[Array, "n K"]:
        """Return log p; a single column of decision values belongs to the second of two classes."""
        scores = _pieces(f) @ self.slopes
        if f.shape[1] == 1:
            return log_expit(np.column_stack([-scores[:, 0], scores[:, 0]]))
        return log_softmax(scores, axis=1)


def calibrate(f: Float[Array, "n t"], codes: Array, w: Float[Array, " n"]) -> Calibration:
    """Fit the slopes to decision values of rows that were held out, by maximum likelihood.

    Targets are Platt's: (N + 1)/(N + 2) in place of 1, N being the rows of the class, so that
    slopes stay finite where classes are separable. More than a million values are thinned to
    equally spaced rows. The loss is minus the mean log-likelihood of the slopes a, plus a prior at
    1 with the weight of a tenth of a row, because some pieces may contain no row.
    """
    every = slice(None, None, -(-f.size // (1 << 20)))  # a million values at most
    f, codes, w = f[every], codes[every], w[every]
    owned = codes.astype(np.int64)[:, None] == np.arange(max(2, f.shape[1]))
    targets, total, b = platt_targets(owned, w), float(w.sum()), _pieces(f)
    j = b.shape[2]
    if f.shape[1] == 1:
        b = np.concatenate([np.zeros_like(b), b], axis=1)
    b = b.reshape(-1, j)  # row by row, a line for each class

    def logs(a: Float[Array, " j"]) -> Float[Array, "n K"]:
        return log_softmax((b @ a).reshape(targets.shape), axis=1)

    def sloping(a: Float[Array, " j"]) -> tuple[float, Float[Array, " j"]]:
        """Return the loss with its gradient."""
        log_p = logs(a)
        value = float(-w @ (targets * log_p).sum(axis=1)) + PRIOR / 2 * float(((a - 1) ** 2).sum())
        away = w[:, None] * (np.exp(log_p) - targets)
        return value / total, (b.T @ away.ravel() + PRIOR * (a - 1)) / total

    def curvature(a: Float[Array, " j"]) -> Float[Array, "j j"]:
        """Return the Hessian of the loss."""
        p = np.exp(logs(a))
        mean = np.matmul(p[:, None, :], b.reshape(*p.shape, j))[:, 0]
        weights = (w[:, None] * p).reshape(-1, 1)
        hessian = (weights * b).T @ b - (w[:, None] * mean).T @ mean
        return (hessian + PRIOR * np.eye(j)) / total

    bounds = [(LEAST_SLOPE, None)] * j
    a = minimize(sloping, np.ones(j), jac=True, method="L-BFGS-B", bounds=bounds).x
    for _ in range(10):  # Newton steps: the digits that a quasi-Newton method leaves
        value, slope = sloping(a)
        free, step = (a > LEAST_SLOPE) | (slope < 0), np.zeros(j)
        step[free] = np.linalg.solve(curvature(a)[np.ix_(free, free)], slope[free])
        while sloping(np.maximum(a - step, LEAST_SLOPE))[0] > value + 1e-14 * abs(value):
            step /= 2
        a = np.maximum(a - step, LEAST_SLOPE)
    return Calibration(a, sloping(a)[0])


def log_loss_of_signs(
    f: Float[Array, "n t"], y: Float[Array, "n t"], w: Float[Array, " n"]
) -> float:
    """Return what values of rows that were held out lose, calibrated; y are ±1 of the classes."""
    finite = np.isfinite(f).all(axis=1)
    return calibrate(f[finite], decided(y[finite]), w[finite]).log_loss


def _pieces(f: Float[Array, "n t"]) -> Float[Array, "n t j"]:
    """Return the pieces b_j of the broken line: they sum to f."""
    return np.stack([part(f) for part in pieces(np.minimum, np.maximum, np.clip)], axis=2)


def pieces(minimum: Any, maximum: Any, clip: Any) -> list[Callable[[Any], Any]]:
    """Return the pieces as functions of f, made of these functions of arrays."""

    def between(a: float, b: float) -> Callable[[Any], Any]:
        return lambda f: clip(f, a, b) - (b if b <= 0 else a)

    low, high = KNOTS[0], KNOTS[-1]
    inner = [between(a, b) for a, b in pairwise(KNOTS)]
    return [lambda f: minimum(f - low, 0.0), *inner, lambda f: maximum(f - high, 0.0)]


def decided(f: Float[Array, "n t"]) -> Array:
    """Return the codes decided for: of the largest value, or of the sign of a single one."""
    return (f[:, 0] > 0).astype(np.int64) if f.shape[1] == 1 else f.argmax(axis=1)


def agreeing(p: Float[Array, "n K"], decided: Array) -> Float[Array, "n K"]:
    """Return p with the decided class the first of the largest also where rounding made it equal.

    Changes p by one unit in the last place, and only in such rows.
    """
    rows = np.flatnonzero(p.argmax(axis=1) != decided)
    top = p[rows].max(axis=1)
    p[rows, decided[rows]] = np.nextafter(top, 2.0)
    return p
