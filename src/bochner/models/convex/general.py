"""Regression by joint losses, by any penalty of the norm, and what the representer theorem says.

Of all β with ‖β‖ ≤ r the loss is least on the path of β(α), the minima of Σ w ℓ + (α/2)‖β‖²: r
falls as α rises, and takes all values up to that of the least loss. So the minimum of
Σ w ℓ + R(‖β‖), R never falling, convex or not, is on that path, and one number is looked for.
Either is a sum over rows Σ uᵢ φ(xᵢ) (Schölkopf, Herbrich and Smola 2001, theorem 1).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from bochner._core.arrays import to_numpy
from bochner._core.shapes import Array, Bool, Float
from bochner.errors import InvalidInput
from bochner.models.convex.units import ScaledRows
from bochner.solvers.convex.driver import solve
from bochner.solvers.convex.penalty_path import FACTOR, MOST, PATIENCE, TOL, HeldOutPath
from bochner.solvers.convex.problem import Problem, State, best_constant, optimum

#: Steps of a factor of ten, and of the golden section, that a penalty of the norm is looked for by.
DECADES, SECTIONS = 16, 30

#: Rows up to which the coefficients of rows are kept.
MOST_DUAL = 1024


# --- joint losses ---------------------------------------------------------------------------------


def scale_of(problem: Problem) -> float:
    """Return Σ w c |z|², c the mean curvature of a joint loss at its best constant."""
    block, y, w = problem.first, problem.y, problem.w[:, :1]
    squares = np.einsum("ij,ij->i", block.Z, block.Z, dtype=np.float64)
    f = np.tile(best_constant(problem.loss, y, w), (len(y), 1))
    curvature = problem.loss.diagonal(problem.loss.curvature(y, f))
    share = float((w * curvature).sum() / max(w.sum() * y.shape[1], 1e-300))
    return float(squares.mean()) * float(w.sum()) * (share or 1.0) or 1.0


def joint_path(
    problem: Problem, left_out: Bool[Array, "n k"], max_iter: int
) -> tuple[HeldOutPath, None]:
    """Return penalties, and what rows left out lose by fits of all columns together."""
    alphas: list[float] = []
    errors: list[float] = []
    alpha, w = scale_of(problem), problem.w
    at: list[State | None] = [None] * left_out.shape[1]
    while len(alphas) < MOST and len(alphas) - 1 - int(np.argmin(errors or [0])) <= PATIENCE:
        lost = []
        for k, out in enumerate(left_out.T[:, :, None]):
            seen, held = np.where(out, 0.0, w), np.where(out, w, 0.0)
            share = float(seen.sum() / w.sum())
            inner = replace(problem, w=seen, alpha=share * alpha, value=1.0)
            at[k] = found = solve(inner, at[k], tol=TOL, max_iter=max_iter)
            first = np.tile(best_constant(problem.loss, problem.y, seen), (len(w), 1))
            pair = (found.fitted, first)
            sums = [float((held * problem.loss.value(problem.y, f)).sum()) for f in pair]
            lost.append(sums[0] / max(sums[1], 1e-300))
        alphas.append(alpha)
        errors.append(float(np.mean(lost)))
        alpha *= FACTOR
    return HeldOutPath(np.array(alphas), np.array(errors)), None


# --- penalties of the norm ------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class NormPenalty:
    """Σ w ℓ + times·R(‖β‖) along the path of penalties of squares, in units of one."""

    problem: Problem
    rows: ScaledRows
    R: Callable[[float], float]
    times: float
    tol: float
    max_iter: int

    def minimum(self, largest: float) -> tuple[Problem, State]:
        """Return the problem of squares that has the minimum, and the minimum.

        Raises
        ------
        InvalidInput
            If R falls somewhere, or is infinite on the whole path.
        """
        steps = np.arange(2, 2 - DECADES, -1.0)
        found: list[tuple[float, float, float, Problem, State]] = []
        for step in steps:
            near = found[-1][4] if found else None
            found.append(self._at(float(step), largest, near))
        self._check([(r, self.R(r)) for _, _, r, _, _ in found])
        best = int(np.argmin([each[0] for each in found]))
        low, high = steps[min(best + 1, len(steps) - 1)], steps[max(best - 1, 0)]
        least = found[best]
        golden = (np.sqrt(5) - 1) / 2
        ends = [self._at(float(high - golden * (high - low)), largest, least[4])]
        ends.append(self._at(float(low + golden * (high - low)), largest, least[4]))
        for _ in range(SECTIONS):
            least = min(least, *ends, key=lambda each: each[0])
            if ends[0][0] < ends[1][0]:
                high = ends[1][1]
                inner = self._at(float(high - golden * (high - low)), largest, least[4])
                ends = [inner, ends[0]]
            else:
                low = ends[0][1]
                inner = self._at(float(low + golden * (high - low)), largest, least[4])
                ends = [ends[1], inner]
        least = min(least, *ends, key=lambda each: each[0])
        return least[3], least[4]

    def _at(
        self, step: float, largest: float, near: State | None
    ) -> tuple[float, float, float, Problem, State]:
        """Return the objective, the step, the norm, and the problem of squares with its minimum."""
        alpha = self.rows.penalty(largest * 10.0**step)
        problem = replace(self.problem, alpha=alpha)
        state = solve(problem, near, tol=self.tol, max_iter=self.max_iter)
        found = optimum(problem, state, self.rows.units, self.rows.original(alpha))
        squares = np.square(found.coef).sum(axis=0)
        loss = found.objective - 0.5 * float((squares * found.alpha).sum())
        norm = float(np.sqrt(squares.sum()))
        return loss + self.times * float(self.R(norm)), step, norm, problem, state

    def _check(self, pairs: list[tuple[float, float]]) -> None:
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


# --- the representer theorem ---------------------------------------------------------------------


def dual_of(problem: Problem, state: State, rows: ScaledRows) -> Float[Array, "n t"] | None:
    """Return u with β = Σ uᵢ φ(xᵢ), in units of one; None of many rows, or without a penalty.

    Of a smooth loss u_i = −w_i ℓ'(y_i, f_i)/alpha, where the gradient of the objective is zero; of
    others the u of least norm that gives β.
    """
    if len(problem.w) > MOST_DUAL or not np.all(problem.alpha):
        return None
    if not problem.loss.nonsmooth:
        u = -problem.w * problem.loss.slope(problem.y, state.fitted) / problem.alpha
    else:
        Z = np.concatenate([to_numpy(block.Z) for block in problem.rows]).astype(np.float64)
        live = np.flatnonzero(problem.w[:, 0] > 0)
        u = np.zeros(state.fitted.shape)
        u[live] = np.linalg.lstsq(Z[live].T, state.coef, rcond=None)[0]
    return np.asarray(u * rows.units)
