"""One-class machines with the kernel itself, of few rows.

LIBSVM's decomposition (Chang and Lin 2011, by scikit-learn) finds the support of

    minimise  ½ aᵀKa,    0 ≤ aᵢ ≤ wᵢ,    Σ a = nu Σ w,

and the coefficients inside their bounds then solve a linear system, K_FF a_F − ρ = −K_FB a_B.
"""

import warnings
from dataclasses import dataclass, replace

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from bochner._core.arrays import is_sparse, to_numpy
from bochner._core.shapes import Array, Float
from bochner.data.blocks import Blocks
from bochner.data.schema import Inputs
from bochner.data.sources import Piece, join
from bochner.models._rows import row_marks
from bochner.models.convex.exact import ExactConvexFit, matrix_choice
from bochner.models.convex.exact_regression import CORRECTIONS, DualFit, put_on_support
from bochner.models.convex.fit import ConvexSpec, warned
from bochner.models.convex.left_out import AT_BOUND
from bochner.selection.choose import choose_without_target
from bochner.selection.chosen import Chosen
from bochner.solvers.convex.optimum import Convergence, Libsvm, Optimum, Step, history_of
from bochner.solvers.convex.problem import quantile_shift
from bochner.sums.rows import sampled

#: LIBSVM's tolerances of a slope, each tried where the one before leaves too wide a gap.
TOLERANCES = (1e-3, 1e-5, 1e-7)

#: Of scores, as a share of the largest: rows at the border tie within it.
ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class SupportProblem:
    """Minimise ½ aᵀKa for 0 ≤ a ≤ w and Σ a = nu Σ w; ρ is the intercept."""

    K: Float[Array, "n n"]
    w: Float[Array, " n"]
    nu: float

    def judged(self, coef: Float[Array, " n"], rho: float, steps: int) -> DualFit:
        """Return coefficients with ½‖β‖² and the loss, and the duality gap."""
        f = self.K @ coef
        power = 0.5 * float(coef @ f)
        value = power + float(self.w @ np.maximum(rho - f, 0.0))
        gap = value + power - self.nu * float(self.w.sum()) * rho
        return DualFit(coef, rho, value, max(gap, 0.0), steps)

    def decomposed(self, tol: float, most: int) -> DualFit:
        """Return LIBSVM's answer."""
        from sklearn.svm import OneClassSVM as Decomposition  # noqa: PLC0415

        model = Decomposition(kernel="precomputed", nu=self.nu, tol=tol, max_iter=most)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(self.K, sample_weight=self.w)
        coef = np.zeros(len(self.w))
        coef[model.support_] = model.dual_coef_[0]
        return self.judged(coef, float(model.offset_[0]), int(model.n_iter_))

    def polished(self, at: DualFit, tol: float) -> DualFit:
        """Return the answer on the support, corrected where it is none, if that is better.

        A primal-dual active set method, as for the tube of a regression.
        """
        small = AT_BOUND * self.w
        held = at.coef >= self.w - small
        free = ~held & (at.coef > small)
        for _ in range(CORRECTIONS):
            found = self._on_support(np.flatnonzero(free), np.where(held, self.w, 0.0))
            if found is None:
                return at
            coef, rho = found
            inside = self.judged(np.clip(coef, 0.0, self.w), rho, at.steps)
            if abs(float((inside.coef - coef).sum())) <= AT_BOUND * float(self.w.sum()):
                at = inside if inside.gap < at.gap else at
            if at.gap <= tol * at.value:
                return at
            f = self.K @ coef
            left, over = free & (coef < 0), free & (coef > self.w)
            back, enters = held & (f > rho), ~held & ~free & (f < rho)
            if not np.any(left | over | back | enters):
                return at
            held = (held | over) & ~back
            free = (free | back | enters) & ~left & ~over
        return at

    def _on_support(
        self, free: Array, coef: Float[Array, " n"]
    ) -> tuple[Float[Array, " n"], float] | None:
        """Return all coefficients, and ρ, at which the scores of the free rows are ρ."""
        if not len(free):
            return None
        A = np.ones((len(free) + 1, len(free) + 1))
        A[:-1, :-1], A[:-1, -1], A[-1, -1] = self.K[np.ix_(free, free)], -1.0, 0.0
        rest = self.nu * float(self.w.sum()) - float(coef.sum())
        return put_on_support(A, np.append(-self.K[free] @ coef, rest), free, coef)

    def solved(self, tol: float, max_iter: int) -> DualFit:
        """Return the least, to a share ``tol`` of it where that can be had."""
        if self.nu == 1:  # all coefficients are at their bounds, and any ρ above all scores is best
            return self.judged(self.w, float((self.K @ self.w).max()), 0)
        at = None
        for fine in TOLERANCES:
            found = self.polished(self.decomposed(fine, max_iter * len(self.w)), tol)
            at = found if at is None or found.gap < at.gap else at
            if at.gap <= tol * at.value:
                break
        assert at is not None
        return at


def fit_one_class_exactly(
    spec: ConvexSpec, nu: float, blocks: Blocks, inputs: Inputs
) -> ExactConvexFit:
    """Choose the kernel where it is open, minimise on the matrix of rows, and put the offset."""
    X, w = _rows_and_weights(blocks)
    rows = sampled(blocks.recoded(lambda _: None), spec.features.seed)
    found = choose_without_target(spec.features, rows)
    chosen = Chosen(spec.features.seed, found, matrix_choice(found, X))
    # Copies are one row with their weight: weights and copies of rows give the same machine.
    marks = row_marks(X, 0)  # an order that depends on the rows alone
    _, first, own = np.unique(marks, return_index=True, return_inverse=True)
    total = np.bincount(own, w)
    K = np.ascontiguousarray(chosen.kernel(X[first]))
    size, weight = float(np.diag(K).mean()) or 1.0, float(total.mean())
    K /= size
    problem = SupportProblem(K, total / weight, nu)
    at = problem.solved(spec.tol, spec.max_iter)
    at = problem.judged(at.coef, _offset(problem, at), at.steps)
    solution = _solution(at, problem.nu * len(total), weight, size, spec.tol)
    solution = replace(solution, coef=solution.coef[own] * (w / total[own])[:, None])
    return warned(
        ExactConvexFit(inputs, chosen, spec.loss, X, solution, max(1, len(solution.history)))
    )


def _rows_and_weights(blocks: Blocks) -> tuple[Array, Float[Array, " n"]]:
    """Return all rows of positive weight, and their weights."""
    pieces = [Piece(block.X, None, block.w) for block in blocks]
    w = np.concatenate(
        [np.ones(p.X.shape[0]) if p.w is None else to_numpy(p.w).astype(np.float64) for p in pieces]
    )
    X = join([Piece(piece.X) for piece in pieces]).X
    kept = np.flatnonzero(w > 0)
    X = X if is_sparse(X) else np.ascontiguousarray(to_numpy(X), np.float64)
    return (X, w) if len(kept) == len(w) else (X[kept], w[kept])


def _offset(problem: SupportProblem, at: DualFit) -> float:
    """Return the offset that leaves at most the share nu of the weight outside."""
    f = problem.K @ at.coef
    return at.intercept + quantile_shift(
        f - at.intercept, problem.w, at.intercept, problem.nu, ROUNDING
    )


def _solution(at: DualFit, drift: float, weight: float, size: float, tol: float) -> Optimum:
    """Return what was found, in the units of the rows."""
    worth = weight**2 * size
    objective, gap = worth * (at.value - drift * at.intercept), worth * at.gap
    return Optimum(
        weight * at.coef[:, None],
        np.array([-weight * size * at.intercept]),
        1.0,
        objective,
        gap,
        Convergence.CONVERGED if at.gap <= tol * at.value else Convergence.ROUNDED,
        history_of((Step(objective, gap, at.steps),)),
        Libsvm(),
    )
