"""One-class machines with the kernel itself, of few rows."""

from dataclasses import replace

import numpy as np

from bochner._core.arrays import is_sparse, to_numpy
from bochner._core.shapes import Array, Float
from bochner.data.blocks import Blocks
from bochner.data.schema import Inputs
from bochner.data.sources import Piece, join
from bochner.models._rows import row_marks
from bochner.models.convex.exact import matrix_choice
from bochner.models.convex.fit import ConvexFit, ConvexSpec, warned
from bochner.selection.choose import choose_without_target
from bochner.selection.chosen import Chosen
from bochner.solvers.convex.box import BoxProblem
from bochner.solvers.convex.problem import quantile_shift
from bochner.sums.rows import sampled

#: LIBSVM's tolerances of a slope, each tried where the one before leaves too wide a gap.
TOLERANCES = (1e-3, 1e-5, 1e-7)

#: Of scores, as a share of the largest: rows at the border tie within it.
ROUNDING = 1e-9


def fit_one_class_exactly(spec: ConvexSpec, nu: float, blocks: Blocks, inputs: Inputs) -> ConvexFit:
    """Choose the kernel where it is open, minimise on the matrix of rows, and put the offset."""
    X, w = _rows_and_weights(blocks)
    rows = sampled(blocks.recoded(lambda _: None), spec.features.seed)
    found = choose_without_target(spec.features, rows)
    chosen = Chosen(spec.features.seed, found, matrix_choice(found, X))
    # Copies are one row with their weight: weights and copies of rows give the same machine.
    marks = row_marks(X, 0)  # an order that does not depend on the order of rows
    _, first, own = np.unique(marks, return_index=True, return_inverse=True)
    total = np.bincount(own, w)
    K = np.ascontiguousarray(chosen.kernel(X[first]))
    size, weight = float(np.diag(K).mean()) or 1.0, float(total.mean())
    K /= size
    w_one = total / weight
    problem = _support_problem(K, w_one, nu)
    if nu == 1:  # all coefficients are at their bounds, and any ρ above all scores is best
        at = problem.judged(w_one, -float((K @ w_one).max()), 0)
    else:
        at = problem.solved(spec.tol, spec.max_iter, TOLERANCES)
    f, rho = K @ at.coef, -at.intercept
    rho += quantile_shift(f - rho, w_one, rho, nu, ROUNDING)
    at = problem.judged(at.coef, -rho, at.steps)
    solution = at.optimum(1.0, spec.tol, weight**2 * size, drift=nu * len(total))
    coef = weight * solution.coef[own] * (w / total[own])[:, None]
    solution = replace(solution, coef=coef, intercept=weight * size * solution.intercept)
    steps = max(1, len(solution.history))
    return warned(ConvexFit(inputs, chosen, spec.loss, solution, steps, X=X))


def _support_problem(K: Float[Array, "n n"], w: Float[Array, " n"], nu: float) -> BoxProblem:
    """Return the problem of ½ aᵀKa for 0 ≤ a ≤ w and Σ a = nu Σ w, where ρ = −b."""
    from sklearn.svm import OneClassSVM  # noqa: PLC0415  takes a sixth of a second to import

    none, total = np.zeros(len(w)), nu * float(w.sum())
    return BoxProblem(K, none, w, none, w, total, 0.0, OneClassSVM(nu=nu))


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
