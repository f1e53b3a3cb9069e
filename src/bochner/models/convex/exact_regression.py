"""Support vector regression with the kernel itself, of few rows.

The epsilon-insensitive loss is a dual problem with box constraints
(:mod:`bochner.solvers.convex.box`); the squared loss takes Newton steps
(:mod:`bochner.solvers.convex.kernel`).
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bochner._core.shapes import Array, Float
from bochner.data.blocks import Blocks
from bochner.data.schema import Inputs
from bochner.data.sources import required_targets
from bochner.kernels.algebra import kernel_matrix
from bochner.models._rows import folds_of, row_marks
from bochner.models.convex.exact import LAST, choose_exactly, step_near
from bochner.models.convex.fit import ConvexFit, ConvexSpec, warned
from bochner.models.convex.left_out import left_out_of_matrix
from bochner.models.convex.regression import curvature_of, fold_count, tube_of
from bochner.models.convex.units import ScaledRows, one_or_each, scaled
from bochner.models.error_law import LeftOutRows
from bochner.models.representations.gathered import GatheredRows, gather
from bochner.selection.record import Tuning
from bochner.solvers.convex.box import BoxProblem
from bochner.solvers.convex.kernel import KernelProblem, minimise_on_kernel
from bochner.solvers.convex.losses import Loss
from bochner.solvers.convex.optimum import Convergence, Optimum
from bochner.solvers.convex.penalty_path import CONSTANT, NEAREST, TOL, HeldOutLoss, HeldOutPath
from bochner.solvers.convex.problem import best_constant, walk
from bochner.sums.rows import sampled

#: LIBSVM's tolerance of a slope: for fits that are compared, and for the final one, in turn.
COARSE, FINE = 3e-2, (1e-2, 1e-3)

#: Steps of LIBSVM for fits that are compared, as a multiple of the rows: a penalty that needs
#: more is too small.
MOST_TRIED = 20


def fit_svr_exactly(
    spec: ConvexSpec, epsilon: float | str, blocks: Blocks, inputs: Inputs
) -> ConvexFit:
    """Choose kernel and penalty where they are open, and minimise on the matrix of rows.

    Both ``spec.alpha`` and ``epsilon`` are a number or "auto".
    """
    rows = scaled(spec.who, blocks, spec.loss.degree)
    shape = required_targets(spec.who, blocks.target_shape)
    given, seed = gather(rows.blocks), spec.features.seed
    loss, curvature = tube_of(spec.loss, epsilon, rows), curvature_of(rows)
    alpha: Any = None if isinstance(spec.alpha, str) else np.atleast_1d(rows.penalty(spec.alpha))
    share = None if alpha is None else float(np.mean(alpha)) / curvature / given.weight
    chosen = choose_exactly(spec, sampled(rows.blocks, seed), given.X, share)
    on_rows = _OnRows(kernel_matrix(chosen.kernel, given.X), given, loss, spec, curvature)
    path = None if alpha is not None else on_rows.path(chosen.search, seed)
    if alpha is None:
        alpha = np.ones(1) if path is None else np.atleast_1d(path.alpha)
    found, worth = on_rows.minimised(alpha, spec.tol), float(np.mean(rows.value))
    solution = replace(
        found,
        coef=found.coef * rows.units,
        intercept=found.intercept * rows.units,
        alpha=rows.original(alpha),
        objective=worth * found.objective,
        gap=worth * found.gap,
    )
    fit = ConvexFit(
        inputs,
        chosen,
        loss.in_units(1 / rows.units),
        solution,
        max(1, len(solution.history)),
        rows.original_path(path),
        target_shape=shape,
        left_out=on_rows.left_out(found, rows),
        X=given.X,
    )
    return warned(fit)


@dataclass(frozen=True, eq=False)
class _OnRows:
    """The kernel matrix of all rows, with the loss that is minimised on it."""

    K: Float[Array, "n n"]
    rows: GatheredRows
    loss: Loss
    spec: ConvexSpec
    curvature: float

    def minimised(
        self, alpha: Float[Array, " #t"], tol: float, seen: Array | None = None
    ) -> Optimum:
        """Return the minimum for these rows, all by default; coefficients of these."""
        K, y, w = self.K, self.rows.y, self.rows.w
        if seen is not None:
            K, y, w = np.ascontiguousarray(K[np.ix_(seen, seen)]), y[seen], w[seen]
        middle = self.spec.fit_intercept * np.median(y, axis=0)
        y = y - middle  # the rounding of a large offset would be fitted
        each = np.broadcast_to(alpha, y.shape[1])
        ends = [self._column(K, y[:, i], w, i, float(a), tol) for i, a in enumerate(each)]
        return Optimum(
            np.hstack([end.coef for end in ends]),
            middle + np.concatenate([end.intercept for end in ends]),
            one_or_each(each),
            sum(end.objective for end in ends),
            sum(end.gap for end in ends),
            Convergence.worst(end.outcome for end in ends),
            max((end.history for end in ends), key=len),
            ends[0].algorithm,
        )

    def _column(self, K: Array, y: Array, w: Array, i: int, alpha: float, tol: float) -> Optimum:
        loss, spec = self.loss.at(np.array([i])), self.spec
        if not loss.nonsmooth:
            problem = KernelProblem(K, y[:, None], w, loss, alpha, spec.fit_intercept)
            return minimise_on_kernel(problem, tol=tol, max_iter=spec.max_iter).solution
        from sklearn.svm import SVR  # noqa: PLC0415  takes a sixth of a second to import

        epsilon = float(np.atleast_1d(loss.tube)[0])
        machine = SVR(C=1 / alpha, epsilon=epsilon)
        tube = BoxProblem(K, y, w, -w / alpha, w / alpha, 0.0, epsilon, machine)
        if tol >= TOL:
            at = tube.decomposed(COARSE, MOST_TRIED * len(y))
        else:
            at = tube.solved(tol, spec.max_iter, FINE)
        return at.optimum(alpha, tol, alpha)

    def left_out(self, found: Optimum, rows: ScaledRows) -> LeftOutRows:
        """Return the rows with f without each, and y − f, in units of one."""
        y, w, errors = self.rows.y, self.rows.w, np.empty(self.rows.y.shape)
        alphas = np.broadcast_to(found.alpha, y.shape[1])
        for k, (y_k, alpha) in enumerate(zip(y.T, alphas, strict=True)):
            bound, ridge = w / alpha, np.zeros(len(w))
            if not self.loss.nonsmooth:
                bound, ridge = np.full(len(w), np.inf), alpha / (2 * w)
            fit = found.coef[:, k], float(found.intercept[k])
            errors[:, k] = left_out_of_matrix(self.K, y_k, *fit, bound, ridge)
        predicted, errors = (y - errors) * rows.units, errors * rows.units
        return LeftOutRows(self.rows.X, predicted, errors, w, "leave one out")

    def path(self, found: Tuning, seed: int) -> HeldOutPath | None:
        """Return penalties with the losses of rows left out; None if all rows are equal."""
        marks, w = row_marks(self.rows.X, seed), self.rows.w
        folds = fold_count(marks)
        if not folds:
            return None
        number = folds_of(marks, w)
        largest = self.curvature * float(w @ np.diag(self.K)) or 1.0
        lost = _TubeLeftOut(self, largest, [number == k for k in range(folds)])
        near = step_near(self.curvature * found.share * float(w.sum()), largest, LAST)
        walk(lost, max(near - 1, 0), NEAREST, LAST, first=-1)  # large penalties take less time
        return lost.path(lost(CONSTANT))


class _TubeLeftOut(HeldOutLoss):
    """Loss of the rows left out, on the matrix of all rows."""

    def __init__(self, on_rows: _OnRows, largest: float, folds: list[Array]) -> None:
        super().__init__(largest)
        self._on, self._folds = on_rows, folds

    def lost(self, step: int) -> float:
        return sum(self._lost(held, step) for held in self._folds)

    def _lost(self, held: Array, step: int) -> float:
        """Return the loss of the rows held out by a fit to the others, or by their constant."""
        on, seen, out = self._on, np.flatnonzero(~held), np.flatnonzero(held)
        y, w = on.rows.y, on.rows.w
        if step == CONSTANT:
            weights = np.broadcast_to(w[seen, None], y[seen].shape)
            fitted = np.tile(best_constant(on.loss, y[seen], weights), (len(out), 1))
        else:
            share = float(w[seen].sum() / w.sum())
            found = on.minimised(np.atleast_1d(share * self.alpha(step)), TOL, seen)
            fitted = on.K[np.ix_(out, seen)] @ found.coef + found.intercept
        return float((w[out, None] * on.loss.value(y[out], fitted)).sum())
