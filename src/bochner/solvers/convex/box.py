"""Dual problems with box constraints on a kernel matrix: SVR and one-class machines.

    minimise  ½ aᵀKa − yᵀa + ε Σ |aᵢ|,    lowerᵢ ≤ aᵢ ≤ upperᵢ,    Σ a = total

They are solved by LIBSVM's decomposition (Chang and Lin 2011, by scikit-learn), and the duality gap
bounds the distance of the objective from its minimum. The primal problem has f = Ka + b and the
loss upper max(0, y − f − ε) − lower max(0, f − y − ε) of each row.
"""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from bochner._core.shapes import Array, Float
from bochner.solvers.convex.optimum import Convergence, Libsvm, Optimum, Step, history_of

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

    def solved(self, tol: float, max_iter: int, tolerances: tuple[float, ...]) -> BoxPoint:
        """Return the minimum, to a share ``tol`` of it where LIBSVM's tolerances reach that."""
        best = None
        for fine in tolerances:
            at = self.decomposed(fine, max_iter * len(self.y))
            best = at if best is None or at.gap < best.gap else best
            if best.gap <= tol * best.value:
                break
        assert best is not None
        return best
