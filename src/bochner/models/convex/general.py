"""Penalties that are any function of the norm, and the coefficients of the representer theorem.

Of all β with ‖β‖ ≤ r the loss is least on the path of β(α), the minima of Σ w ℓ + (α/2)‖β‖²: r
falls as α rises, and takes all values up to the norm at the least loss. So the minimum of
Σ w ℓ + R(‖β‖) is on that path for any R that never falls, convex or not, and one number is searched
for. Either is a sum over rows Σ uᵢ φ(xᵢ) (Schölkopf, Herbrich and Smola 2001, theorem 1).
"""

from dataclasses import replace

import numpy as np
from scipy.optimize import minimize_scalar

from bochner._core.arrays import to_numpy
from bochner._core.shapes import Array, Float
from bochner.errors import InvalidInput
from bochner.models.convex.fit import ConvexSpec
from bochner.models.convex.units import ScaledRows
from bochner.solvers.convex.driver import solve
from bochner.solvers.convex.penalty_path import largest_penalty
from bochner.solvers.convex.problem import Problem, State, optimum

#: Penalties tried by factors of ten, and the tolerance of the logarithm of the best one.
DECADES, LOG_TOL = 16, 1e-6

#: Rows up to which the coefficients of rows are kept.
MOST_DUAL = 1024


def under_norm(problem: Problem, rows: ScaledRows, spec: ConvexSpec) -> tuple[Problem, State]:
    """Minimise Σ w ℓ + alpha·R(‖β‖): return the problem of squares with that minimum, and it.

    Raises
    ------
    InvalidInput
        If R falls somewhere, or is infinite on the whole path.
    """
    R, largest = spec.norm, float(np.max(rows.original(largest_penalty(problem))))
    assert R is not None
    ends: dict[float, tuple[float, float, Problem, State]] = {}

    def objective(step: float) -> float:
        near = ends[min(ends, key=lambda known: abs(known - step))][3] if ends else None
        alpha = rows.penalty(largest * 10.0**step)
        here = replace(problem, alpha=alpha)
        state = solve(here, near, tol=spec.tol, max_iter=spec.max_iter)
        found = optimum(here, state, rows.units, rows.original(alpha))
        squares = np.square(found.coef).sum(axis=0)
        loss = found.objective - 0.5 * float((squares * found.alpha).sum())
        norm = float(np.sqrt(squares.sum()))
        value = loss + float(spec.alpha) * float(R(norm))
        ends[step] = value, norm, here, state
        return value

    steps = np.arange(2, 2 - DECADES, -1.0)
    values = [objective(float(step)) for step in steps]
    _check([(ends[step][1], R(ends[step][1])) for step in steps])
    best = int(np.argmin(values))
    bounds = steps[min(best + 1, len(steps) - 1)], steps[max(best - 1, 0)]
    with np.errstate(invalid="ignore"):  # penalties may be infinite
        options = {"xatol": LOG_TOL}
        minimize_scalar(objective, bounds=bounds, method="bounded", options=options)
    return min(ends.values(), key=lambda end: end[0])[2:]


def _check(pairs: list[tuple[float, float]]) -> None:
    pairs = sorted(pairs)
    values = np.array([value for _, value in pairs], dtype=np.float64)
    if np.isnan(values).any() or not np.isfinite(values).any():
        raise InvalidInput(
            "KernelRegressor: penalty must be a number for some norm that fits have; got "
            f"{values.tolist()[:3]} … for norms {pairs[0][0]:.3g} … {pairs[-1][0]:.3g}."
        )
    finite = values[np.isfinite(values)]
    if np.any(np.diff(finite) < -1e-12 * np.abs(finite[1:])):
        raise InvalidInput(
            "KernelRegressor: penalty must never fall as the norm rises; got "
            f"{finite.tolist()[:3]} … for rising norms. Pass, say, lambda r: r."
        )


def dual_of(problem: Problem, state: State, rows: ScaledRows) -> Float[Array, "n t"] | None:
    """Return u with β = Σ uᵢ φ(xᵢ), in units of one; None without a penalty.

    Of a smooth loss u_i = −w_i ℓ'(y_i, f_i)/alpha, where the gradient of the objective is zero; of
    others the u of least norm that gives β.
    """
    if not np.all(problem.alpha):
        return None
    if not problem.loss.nonsmooth:
        u = -problem.w * problem.loss.slope(problem.y, state.fitted) / problem.alpha
    else:
        Z = np.concatenate([to_numpy(block.Z) for block in problem.rows]).astype(np.float64)
        live = np.flatnonzero(problem.w[:, 0] > 0)
        u = np.zeros(state.fitted.shape)
        u[live] = np.linalg.lstsq(Z[live].T, state.coef, rcond=None)[0]
    return np.asarray(u * rows.units)
