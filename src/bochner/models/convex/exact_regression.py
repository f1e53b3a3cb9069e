"""Support vector regression with the kernel itself, of few rows.

LIBSVM's decomposition (Chang and Lin 2011, by scikit-learn) finds the support of the
epsilon-insensitive loss. Then the coefficients inside their bounds solve a linear system,

    K_FF a_F + b = y_F − ε sign a_F − K_FB a_B,     Σ a = 0,

and the duality gap says how near the objective is to its least value. The squared loss takes
Newton steps (:mod:`bochner.solvers.convex.kernel`).
"""

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, solve
from sklearn.exceptions import ConvergenceWarning

from bochner._core.arrays import is_sparse, to_numpy
from bochner._core.shapes import Array, Float
from bochner.data.blocks import Blocks
from bochner.data.schema import Inputs
from bochner.data.sources import required_targets
from bochner.kernels.banded import kernel_matrix
from bochner.models._rows import N_FOLDS, folds_of, row_marks
from bochner.models.convex.class_sample import CONSTANT, FIRST, NEAREST
from bochner.models.convex.exact import LAST, ExactConvexFit, choose_exactly
from bochner.models.convex.fit import ConvexSpec, scaled, warned
from bochner.models.convex.left_out import AT_BOUND, left_out_of_matrix
from bochner.models.convex.regression import (
    AUTO_EPSILON,
    NARROW_SPREAD,
    ONE_FOLD,
    epsilon_insensitive,
)
from bochner.models.convex.units import ScaledRows
from bochner.models.error_law import LeftOutRows
from bochner.selection.record import Tuning
from bochner.solvers.convex.kernel import KernelProblem, minimise_on_kernel
from bochner.solvers.convex.losses import Loss
from bochner.solvers.convex.optimum import Convergence, Newton, Optimum, Smoothed, Step, history_of
from bochner.solvers.convex.penalty_path import FACTOR, TOL, HeldOutPath
from bochner.solvers.convex.problem import best_constant, walk
from bochner.sums.rows import sampled

#: LIBSVM's tolerance of a slope: of fits to compare, and those that a last fit is tried with.
COARSE, FINE = 3e-2, (1e-2, 1e-3)

#: Steps of LIBSVM, in rows, for fits to compare: where these are too few, it is the penalty.
MOST_TRIED = 20

#: Corrections of a support, at most.
CORRECTIONS = 30


@dataclass(frozen=True, eq=False)
class DualFit:
    """Coefficients of the kernel and each row, an intercept, and what they cost."""

    coef: Float[Array, " n"]
    intercept: float
    value: float
    gap: float
    steps: int


@dataclass(frozen=True, eq=False)
class TubeProblem:
    """Minimise ½ aᵀKa + C Σ w max(0, |y − Ka − b| − ε) over a and b."""

    K: Float[Array, "n n"]
    y: Float[Array, " n"]
    w: Float[Array, " n"]
    C: float
    epsilon: float

    def judged(self, coef: Float[Array, " n"], intercept: float, steps: int) -> DualFit:
        """Return coefficients with their objective and duality gap."""
        image = self.K @ coef
        power = 0.5 * float(coef @ image)
        lost = np.maximum(np.abs(self.y - image - intercept) - self.epsilon, 0.0)
        value = power + self.C * float(self.w @ lost)
        dual = float(self.y @ coef) - self.epsilon * float(np.abs(coef).sum()) - power
        return DualFit(coef, intercept, value, max(value - dual, 0.0), steps)

    def decomposed(self, tol: float, most: int) -> DualFit:
        """Return LIBSVM's answer."""
        from sklearn.svm import SVR as Decomposition  # noqa: PLC0415

        model = Decomposition(
            kernel="precomputed", C=self.C, epsilon=self.epsilon, tol=tol, max_iter=most
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(self.K, self.y, self.w)
        coef = np.zeros(len(self.y))
        coef[model.support_] = model.dual_coef_[0]
        return self.judged(coef, float(model.intercept_[0]), int(model.n_iter_))

    def polished(self, at: DualFit, tol: float) -> DualFit:
        """Return the answer on the support, corrected where it is none, if that is better.

        A primal-dual active set method: coefficients that leave their bounds stay there, others
        whose errors ask for it are let go.
        """
        bound = self.C * self.w
        small = AT_BOUND * bound
        sign = np.sign(np.where(np.abs(at.coef) > small, at.coef, 0.0))
        held = np.abs(at.coef) >= bound - small
        for _ in range(CORRECTIONS):
            free = np.flatnonzero((sign != 0) & ~held)
            found = self._on_support(free, np.where(held, sign * bound, 0.0), sign)
            if found is None:
                return at
            coef, intercept = found
            r = self.y - self.K @ coef - intercept
            inside = self.judged(np.clip(coef, -bound, bound), intercept, at.steps)
            if abs(float(inside.coef.sum())) <= AT_BOUND * float(bound.sum()):
                at = inside if inside.gap < at.gap else at
            if at.gap <= tol * at.value:
                return at
            left = ~held & (sign != 0) & (coef * sign < 0)
            over = ~held & (sign * coef > bound)
            back = held & (sign * r < self.epsilon)
            enters = (sign == 0) & (np.abs(r) > self.epsilon)
            if not np.any(left | over | back | enters):
                return at
            sign = np.where(left, 0.0, np.where(enters, np.sign(r), sign))
            held = (held | over) & ~back
        return at

    def _on_support(
        self, free: Array, coef: Float[Array, " n"], sign: Float[Array, " n"]
    ) -> tuple[Float[Array, " n"], float] | None:
        """Return all coefficients and the intercept that meet the tube's edge at the free rows."""
        if not len(free):
            return None
        A = np.ones((len(free) + 1, len(free) + 1))
        A[:-1, :-1], A[-1, -1] = self.K[np.ix_(free, free)], 0.0
        right = self.y[free] - self.epsilon * sign[free] - self.K[free] @ coef
        return put_on_support(A, np.append(right, -coef.sum()), free, coef, assume_a="sym")

    def solved(self, tol: float, max_iter: int) -> DualFit:
        """Return the least, to a share ``tol`` of it where that can be had."""
        at = self.decomposed(FINE[0], max_iter * len(self.y))
        for fine in FINE[1:]:
            at = self.polished(at, tol)
            if at.gap <= tol * at.value:
                break
            more = self.polished(self.decomposed(fine, max_iter * len(self.y)), tol)
            at = more if more.gap < at.gap else at
        return at


def put_on_support(
    A: Float[Array, "f f"], right: Float[Array, " f"], free: Array, coef: Array, **options: Any
) -> tuple[Float[Array, " n"], float] | None:
    """Return coefficients with the free ones, and the intercept, that solve a system of these.

    None where rounding leaves no solution. ``options`` are those of :func:`scipy.linalg.solve`.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = solve(A, right, **options)
    except LinAlgError:
        return None
    if not np.isfinite(found).all():
        return None
    coef = coef.copy()
    coef[free] = found[:-1]
    return coef, float(found[-1])


# --- fitting -------------------------------------------------------------------------------------


def fit_svr_exactly(
    spec: ConvexSpec, epsilon: float | str, blocks: Blocks, inputs: Inputs
) -> ExactConvexFit:
    """Choose the kernel and the penalty, where they are open, and minimise on the matrix of rows.

    Both ``spec.alpha`` and ``epsilon`` are a number or "auto".
    """
    from bochner.models.ridge.exact import gather  # noqa: PLC0415

    rows = scaled(spec.who, blocks, spec.loss.degree)
    shape = required_targets(spec.who, blocks.target_shape)
    given = gather(rows.blocks)
    tube = AUTO_EPSILON * rows.spread if isinstance(epsilon, str) else epsilon / rows.units
    loss = epsilon_insensitive(spec.loss, tube)
    curvature = (
        2.0 if rows.degree == 2 else 1 / float(np.maximum(rows.spread, NARROW_SPREAD).mean())
    )
    alpha: Any = None if isinstance(spec.alpha, str) else np.atleast_1d(rows.penalty(spec.alpha))
    share = None if alpha is None else float(np.mean(alpha)) / curvature / given.weight
    X = given.X if is_sparse(given.X) else np.ascontiguousarray(to_numpy(given.X), np.float64)
    chosen = choose_exactly(spec, sampled(rows.blocks, spec.features.seed), X, share)
    on_rows = _OnRows(kernel_matrix(chosen.kernel, X), given, loss, spec, curvature)
    path = None if alpha is not None else on_rows.path(chosen.search, spec.features.seed)
    if path is not None:
        alpha = np.atleast_1d(path.alpha)
    alpha = np.ones(1) if alpha is None else alpha
    found = on_rows.minimised(alpha, spec.tol)
    solution = _in_units(found, rows, alpha)
    fit = ExactConvexFit(
        inputs,
        chosen,
        loss.in_units(1 / rows.units),
        X,
        solution,
        max(1, len(solution.history)),
        None if path is None else rows.original_path(path),
        target_shape=shape,
        left_out=on_rows.left_out(found, X, rows),
    )
    return warned(fit)


@dataclass(frozen=True, eq=False)
class _OnRows:
    """The kernel matrix of all rows, and what is minimised on it."""

    K: Float[Array, "n n"]
    rows: Any  # all of them, with X, y and w
    loss: Loss
    spec: ConvexSpec
    curvature: float

    def minimised(
        self, alpha: Float[Array, " #t"], tol: float, seen: Array | None = None
    ) -> Optimum:
        """Return the minimum for rows, all unless some are named; coefficients of these."""
        K, y, w = self.K, self.rows.y, self.rows.w
        if seen is not None:
            K, y, w = np.ascontiguousarray(K[np.ix_(seen, seen)]), y[seen], w[seen]
        middle = self.spec.fit_intercept * np.median(y, axis=0)
        y = y - middle  # the rounding of a large offset would be fitted
        each = np.broadcast_to(alpha, y.shape[1])
        ends = [self._column(K, y[:, i], w, i, float(a), tol) for i, a in enumerate(each)]
        order = (Convergence.MOST_STEPS, Convergence.ROUNDED, Convergence.CONVERGED)
        return Optimum(
            np.hstack([end.coef for end in ends]),
            middle + np.concatenate([end.intercept for end in ends]),
            float(each[0]) if np.all(each == each[0]) else each,
            sum(end.objective for end in ends),
            sum(end.gap for end in ends),
            next(one for one in order if any(end.outcome is one for end in ends)),
            max((end.history for end in ends), key=len),
            ends[0].algorithm,
        )

    def _column(self, K: Array, y: Array, w: Array, i: int, alpha: float, tol: float) -> Optimum:
        loss, spec = self.loss.at(np.array([i])), self.spec
        if not loss.nonsmooth:
            problem = KernelProblem(K, y[:, None], w, loss, alpha, spec.fit_intercept)
            return minimise_on_kernel(problem, tol=tol, max_iter=spec.max_iter).solution
        tube = TubeProblem(K, y, w, 1 / alpha, float(np.atleast_1d(loss.epsilon)[0]))  # type: ignore[attr-defined]
        if tol >= TOL:
            at = tube.decomposed(COARSE, MOST_TRIED * len(y))
        else:
            at = tube.solved(tol, spec.max_iter)
        near = at.gap <= tol * at.value
        steps = history_of((Step(alpha * at.value, alpha * at.gap, at.steps),))
        return Optimum(
            at.coef[:, None],
            np.array([at.intercept]),
            alpha,
            alpha * at.value,
            alpha * at.gap,
            Convergence.CONVERGED if near else Convergence.ROUNDED,
            steps,
            Smoothed(Newton()),
        )

    def left_out(self, found: Optimum, X: Any, rows: ScaledRows) -> LeftOutRows:
        """Return the rows with f without each, and y − f, in units of one."""
        y, w, errors = self.rows.y, self.rows.w, np.empty(self.rows.y.shape)
        alphas = np.broadcast_to(found.alpha, y.shape[1])
        for k, (y_k, alpha) in enumerate(zip(y.T, alphas, strict=True)):
            bound, ridge = w / alpha, np.zeros(len(w))
            if not self.loss.nonsmooth:
                bound, ridge = np.full(len(w), np.inf), alpha / (2 * w)
            fit = found.coef[:, k], float(found.intercept[k])
            errors[:, k] = left_out_of_matrix(self.K, y_k, *fit, bound, ridge)
        scaled_rows = (y - errors) * rows.units, errors * rows.units, w * rows.weight
        return LeftOutRows(X, *scaled_rows, "leave one out")

    def path(self, found: Tuning, seed: int) -> HeldOutPath | None:
        """Return penalties and what rows left out lost."""
        X, w = self.rows.X, self.rows.w
        marks = row_marks(X, seed)
        different = len(np.unique(marks))
        if different < 2:
            return None
        folds = 1 if different >= ONE_FOLD else min(N_FOLDS, different)
        number = folds_of(marks, w)
        largest = self.curvature * float(w @ np.diag(self.K)) or 1.0
        lost = _TubeLeftOut(self, largest, [number == k for k in range(folds)])
        near = FIRST
        if np.isfinite(found.share) and found.share > 0:
            ridge = self.curvature * found.share * float(w.sum())
            near = int(np.clip(np.rint(np.log(ridge / largest) / np.log(FACTOR)), 0, LAST))
        walk(lost, max(near - 1, 0), NEAREST, LAST, first=-1)  # large penalties take less time
        steps = sorted(lost.tried)
        errors = np.array([lost(step) for step in steps]) / max(lost(CONSTANT), 1e-300)
        return HeldOutPath(np.array([lost.alpha(step) for step in steps]), errors)


class _TubeLeftOut:
    """Loss of the rows left out, for penalties by their step; remembered."""

    def __init__(self, on_rows: _OnRows, largest: float, folds: list[Array]) -> None:
        self._on, self._largest, self._folds = on_rows, largest, folds
        self.tried: dict[int, float] = {}

    def __call__(self, step: int) -> float:
        if step == CONSTANT:
            return sum(self._lost(held, None) for held in self._folds)
        if step not in self.tried:
            self.tried[step] = sum(self._lost(held, step) for held in self._folds)
        return self.tried[step]

    def alpha(self, step: int) -> float:
        """Return the penalty of a step, for all rows."""
        return self._largest * FACTOR**step

    def _lost(self, held: Array, step: int | None) -> float:
        """Return what the rows held out lose by a fit to the others, or by their best constant."""
        on, seen, out = self._on, np.flatnonzero(~held), np.flatnonzero(held)
        y, w = on.rows.y, on.rows.w
        if step is None:
            weights = np.broadcast_to(w[seen, None], y[seen].shape)
            fitted = np.tile(best_constant(on.loss, y[seen], weights), (len(out), 1))
        else:
            share = float(w[seen].sum() / w.sum())
            found = on.minimised(np.atleast_1d(share * self.alpha(step)), TOL, seen)
            fitted = on.K[np.ix_(out, seen)] @ found.coef + found.intercept
        return float((w[out, None] * on.loss.value(y[out], fitted)).sum())


def _in_units(found: Optimum, rows: ScaledRows, alpha: Float[Array, " #t"]) -> Optimum:
    """Return the minimum in units of one."""
    worth = float(np.mean(rows.value))
    return replace(
        found,
        coef=found.coef * rows.units,
        intercept=found.intercept * rows.units,
        alpha=rows.original(alpha if len(alpha) > 1 else float(alpha[0])),
        objective=worth * found.objective,
        gap=worth * found.gap,
    )
