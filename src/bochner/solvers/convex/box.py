"""Dual problems with box constraints on a kernel matrix: SVR and one-class machines.

    minimise  ½ aᵀKa − yᵀa + ε Σ |aᵢ|,    lowerᵢ ≤ aᵢ ≤ upperᵢ,    Σ a = total

LIBSVM's decomposition (Chang and Lin 2011, by scikit-learn) finds the support. Then the
coefficients inside their bounds solve a linear system, with b the multiplier of the sum,

    K_FF a_F + b = y_F − ε sign a_F − K_FB a_B,     Σ a = total,

and the duality gap bounds the distance of the objective from its minimum. The primal problem
has f = Ka + b and the loss upper max(0, y − f − ε) − lower max(0, f − y − ε) of each row.
"""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, solve
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from bochner._core.shapes import Array, Float
from bochner.solvers.convex.optimum import Convergence, Libsvm, Optimum, Step, history_of

CORRECTIONS = 30  # Corrections of a support, at most
AT_BOUND = 1e-8  # Coefficients nearer than this share to their bound, or to zero, are there


@dataclass(frozen=True, eq=False)
class BoxPoint:
    """Coefficients of the rows, an intercept, the primal objective, its gap, and the steps."""

    coef: Float[Array, " n"]
    intercept: float
    value: float
    gap: float
    steps: int

    def optimum(self, alpha: float, tol: float, worth: float, drift: float = 0.0) -> Optimum:
        """Return the optimum at a penalty, of ``worth`` times this objective and drift·b."""
        value, gap = worth * (self.value + drift * self.intercept), worth * self.gap
        return Optimum(
            self.coef[:, None],
            np.array([self.intercept]),
            alpha,
            value,
            gap,
            Convergence.CONVERGED if self.gap <= tol * self.value else Convergence.ROUNDED,
            history_of((Step(value, gap, self.steps),)),
            Libsvm(),
        )


@dataclass(frozen=True, eq=False)
class BoxProblem:
    """The problem, and scikit-learn's machine that solves it on a precomputed kernel matrix."""

    K: Float[Array, "n n"]
    y: Float[Array, " n"]
    w: Float[Array, " n"]  # weights that the machine takes
    lower: Float[Array, " n"]
    upper: Float[Array, " n"]
    total: float
    epsilon: float
    machine: Any

    def judged(self, coef: Float[Array, " n"], intercept: float, steps: int) -> BoxPoint:
        """Return coefficients with their objective and duality gap."""
        image = self.K @ coef
        power = 0.5 * float(coef @ image)
        r = self.y - image - intercept
        lost = self.upper * np.maximum(r - self.epsilon, 0.0)
        lost -= self.lower * np.maximum(-r - self.epsilon, 0.0)
        value = power + float(lost.sum())
        dual = float(self.y @ coef) - self.epsilon * float(np.abs(coef).sum()) - power
        gap = value - dual + self.total * intercept
        return BoxPoint(coef, intercept, value, max(gap, 0.0), steps)

    def decomposed(self, tol: float, most: int) -> BoxPoint:
        """Return LIBSVM's answer."""
        machine = clone(self.machine).set_params(kernel="precomputed", tol=tol, max_iter=most)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            machine.fit(self.K, self.y, self.w)
        coef = np.zeros(len(self.y))
        coef[machine.support_] = machine.dual_coef_[0]
        return self.judged(coef, float(machine.intercept_[0]), int(machine.n_iter_))

    def polished(self, at: BoxPoint, tol: float) -> BoxPoint:
        """Return the answer on the support, corrected by a primal-dual active set method.

        Coefficients that leave their bounds stay at them; others are freed where their residuals
        ask for it. The point itself is returned where no correction is better.
        """
        lower, upper = self.lower, self.upper
        small = AT_BOUND * (upper - lower)
        sign = np.sign(np.where(np.abs(at.coef) > small, at.coef, 0.0))
        at_bound = (sign != 0) & ((at.coef >= upper - small) | (at.coef <= lower + small))
        for _ in range(CORRECTIONS):
            bound = np.where(sign > 0, upper, np.where(sign < 0, lower, 0.0))
            solution = self._on_support(
                np.flatnonzero((sign != 0) & ~at_bound), np.where(at_bound, bound, 0.0), sign
            )
            if solution is None:
                return at
            coef, intercept = solution
            r = self.y - self.K @ coef - intercept
            inside = self.judged(np.clip(coef, lower, upper), intercept, at.steps)
            if abs(float(inside.coef.sum()) - self.total) <= AT_BOUND * float(upper.sum()):
                at = inside if inside.gap < at.gap else at
            if at.gap <= tol * at.value:
                return at
            left = ~at_bound & (sign != 0) & (coef * sign < 0)
            over = ~at_bound & (sign * coef > sign * bound)
            back = at_bound & (sign * r < self.epsilon)
            enters = (sign == 0) & ((r > self.epsilon) | ((-r > self.epsilon) & (lower < 0)))
            if not np.any(left | over | back | enters):
                return at
            sign = np.where(left, 0.0, np.where(enters, np.sign(r), sign))
            at_bound = (at_bound | over) & ~back
        return at

    def _on_support(
        self, free: Array, coef: Float[Array, " n"], sign: Float[Array, " n"]
    ) -> tuple[Float[Array, " n"], float] | None:
        """Return all coefficients and the intercept that meet y − ε sign at the free rows.

        None without free rows, and where rounding leaves no solution.
        """
        if not len(free):
            return None
        A = np.ones((len(free) + 1, len(free) + 1))
        A[:-1, :-1], A[-1, -1] = self.K[np.ix_(free, free)], 0.0
        right = self.y[free] - self.epsilon * sign[free] - self.K[free] @ coef
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                solution = solve(A, np.append(right, self.total - coef.sum()), assume_a="sym")
        except LinAlgError:
            return None
        if not np.isfinite(solution).all():
            return None
        coef = coef.copy()
        coef[free] = solution[:-1]
        return coef, float(solution[-1])

    def solved(self, tol: float, max_iter: int, tolerances: tuple[float, ...]) -> BoxPoint:
        """Return the minimum, to a share ``tol`` of it where LIBSVM's tolerances reach that."""
        best = None
        for fine in tolerances:
            at = self.polished(self.decomposed(fine, max_iter * len(self.y)), tol)
            best = at if best is None or at.gap < best.gap else best
            if best.gap <= tol * best.value:
                break
        assert best is not None
        return best
