"""Classification by convex losses with the kernel itself, of few rows.

The kernel is chosen by the matrices of rows (:mod:`bochner.selection.candidates`), the penalty as
on features: by the loss of rows left out, downhill from the penalty of ridge regression.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bochner._core.arrays import is_sparse, numpy_rows
from bochner._core.blas import square_part, symmetric_product
from bochner._core.random import stream
from bochner._core.shapes import Array, Float
from bochner.data.blocks import Blocks
from bochner.data.sample import RowSample
from bochner.data.schema import Inputs
from bochner.kernels.algebra import kernel_matrix
from bochner.kernels.numbers import is_given
from bochner.kernels.stationary import Gaussian
from bochner.models._calibration import Calibration, calibrate
from bochner.models.convex.classification import (
    ClassesLeftOut,
    ClassSample,
    Learned,
    class_sample,
    rows_to_choose_by,
)
from bochner.models.convex.fit import ConvexFit, ConvexSpec, warned
from bochner.models.representations.methods import exact_choice
from bochner.models.representations.representation import gather
from bochner.selection.choose import choose_for_matrix, transformed
from bochner.selection.chosen import Chosen
from bochner.selection.record import Tuning
from bochner.solvers.convex.class_losses import Hinge, Logistic, Multinomial, SquaredHinge
from bochner.solvers.convex.kernel import DualPoint, KernelProblem, minimise_on_kernel
from bochner.solvers.convex.libsvm import (
    MOVES,
    MOVES_COMPARED,
    GaussianRows,
    hinge_of_pairs,
    hinge_on_kernel,
)
from bochner.solvers.convex.losses import Loss
from bochner.solvers.convex.optimum import Convergence
from bochner.solvers.convex.penalty_path import CONSTANT, FACTOR, FIRST, NEAREST, TOL, HeldOutPath
from bochner.solvers.convex.problem import best_constant, walk
from bochner.sums.rows import sampled

#: Rows up to which the kernel itself is fitted: by factors of its matrix, and by LIBSVM.
EXACT_ROWS, SQUARED_HINGE_ROWS, REGRESSION_ROWS, ONE_CLASS_ROWS = 8192, 2048, 2048, 4096

#: Samples by which the number of support vectors of many rows is extrapolated.
SUPPORT_SAMPLES = 2048, 4096

#: Kernel values of support vectors and all rows, at most, and moves of LIBSVM for each row: for
#: more, features take less time.
MOST_VALUES, MOVES_TRIED = 1 << 28, 20

LEAST_HINGE = 0.03  # Penalty below which a hinge rarely changes: margins are met

#: Rows that a penalty is chosen by, at most, and among which it is chosen again, at least: as many
#: more as columns of the problem are few.
PENALTY_ROWS, DENSE_ROWS = 2048, 3072

#: Steps between penalties that are tried again with more rows, and the share by which the loss must
#: fall.
FINER, WORTH = 2, 0.002

#: The last step of the penalty, below which a machine that interpolates stays as it is; and the
#: last one that a walk starts from. Beyond it a fit from nothing stops far from the minimum, its
#: neighbours with it, and the walk would stay where it is.
LAST, LAST_START = 16, 10


def fit_classifier_exactly(
    spec: ConvexSpec, blocks: Blocks, inputs: Inputs, probability: bool = False
) -> ConvexFit:
    """Choose kernel and penalty where they are open, and minimise on the matrix of rows.

    Targets of the blocks are codes of classes; ``spec.alpha`` is a number above 0, or "auto".
    """
    learned = Learned(spec.loss, len(inputs.classes), spec.fit_intercept, spec.pairs)
    seed, alpha = spec.features.seed, spec.alpha if isinstance(spec.alpha, float) else None
    rows = class_sample(blocks, seed, learned.n_classes, most=EXACT_ROWS)
    X = numpy_rows(rows.X)
    # Near the minimum a squared hinge has twice the slope of squares: ridge takes alpha/2.
    share = None if alpha is None else alpha / 2 / float(rows.w.sum())
    chosen = choose_exactly(spec, sampled(blocks, seed, learned.n_classes), X, share)
    on_rows = OnRows(kernel_matrix(chosen.kernel, X), rows, learned)
    path, near = None, None
    if alpha is None and rows.folds:
        path, near = _path(on_rows, chosen)
        alpha = path.alpha
    alpha = 1.0 if alpha is None else alpha
    solution = on_rows.minimised(alpha, None, None, spec.tol, spec.max_iter, near).solution
    steps = max(1, len(solution.history))
    later: Any = Calibrating(replace(rows, X=X), learned) if probability else None
    return warned(
        ConvexFit(inputs, chosen, spec.loss, solution, steps, path, later, pairs=spec.pairs, X=X)
    )


@dataclass(frozen=True, eq=False)
class Calibrating:
    """The calibration of a fit, on decision values of rows held out; made when it is asked for."""

    rows: ClassSample
    learned: Learned

    def __call__(self, fit: ConvexFit) -> Calibration | None:
        rows = self.rows
        if not rows.folds:
            return None
        many, end, start = rows.X.shape[0] > EXACT_ROWS, fit.solution, None
        # Of many rows the matrix is not kept
        K: Any = (GaussianRows if many else kernel_matrix)(fit.chosen.kernel, rows.X)
        if len(end.coef) == len(rows.w):
            start = DualPoint(end.coef, end.intercept, K @ end.coef + end.intercept)
        return OnRows(K, rows, self.learned).calibration(end.alpha, start)


def fit_to_support(
    spec: ConvexSpec, blocks: Blocks, inputs: Inputs, probability: bool = False
) -> ConvexFit | None:
    """Return the fit of LIBSVM to many rows; None where support vectors are many.

    The number of support vectors is extrapolated from two samples, by a power of the number of
    rows. Only for a hinge with an intercept, a given Gaussian kernel and a given penalty.
    """
    ask, n = spec.features, blocks.n_rows or 0
    given = is_given(ask.kernel) and isinstance(spec.alpha, float) and not ask.learns_metric
    hinge = isinstance(spec.loss, Hinge) and spec.fit_intercept
    size = n * max(SUPPORT_SAMPLES[1], 8 * blocks.n_columns)
    if not (given and hinge and isinstance(ask.kernel, Gaussian) and n > EXACT_ROWS):
        return None
    if size > MOST_VALUES or is_sparse(next(iter(blocks)).X):
        return None
    learned = Learned(spec.loss, len(inputs.classes), spec.fit_intercept, spec.pairs)
    seed, every = ask.seed, gather(blocks)
    labels = every.y[:, 0], every.w, np.ones(len(every.w))
    rows = rows_to_choose_by(every.X, *labels, seed, learned.n_classes)
    on_rows = OnRows(GaussianRows(ask.kernel, rows.X), rows, learned)
    alpha, order = float(spec.alpha), stream(seed, "support").permutation(len(rows.w))
    if len(np.unique(rows.codes[order[: SUPPORT_SAMPLES[0]]])) < 2:
        return None
    counts = [on_rows.support(alpha, order[:most]) for most in SUPPORT_SAMPLES]
    growth = np.log(counts[1] / counts[0]) / np.log(SUPPORT_SAMPLES[1] / SUPPORT_SAMPLES[0])
    most = counts[1] * (len(order) / SUPPORT_SAMPLES[1]) ** growth
    if not most <= min(EXACT_ROWS, MOST_VALUES / len(order)):
        return None
    solution = on_rows.minimised(alpha, tol=spec.tol, moves=MOVES_TRIED).solution
    if solution.outcome is Convergence.MOST_STEPS:
        return None
    support = np.any(solution.coef != 0, axis=1)
    solution, X = replace(solution, coef=solution.coef[support]), rows.X[support]
    chosen = choose_exactly(spec, sampled(blocks, seed, learned.n_classes), X, None)
    later: Any = Calibrating(rows, learned) if probability else None
    return ConvexFit(inputs, chosen, spec.loss, solution, 1, None, later, pairs=spec.pairs, X=X)


def rows_on_kernel(loss: Loss, centred: bool) -> int:
    """Return how many rows a loss is minimised for on their kernel matrix, at most."""
    if isinstance(loss, Hinge):
        return EXACT_ROWS if centred else 0
    if isinstance(loss, SquaredHinge):
        return EXACT_ROWS if centred else SQUARED_HINGE_ROWS
    return EXACT_ROWS if isinstance(loss, Logistic | Multinomial) else 0


def _path(on_rows: "OnRows", chosen: Chosen) -> tuple[HeldOutPath, DualPoint | None]:
    """Return penalties with the losses of rows left out: by some of many rows, then by more."""
    few, first = on_rows.subsample(PENALTY_ROWS, chosen.seed)
    if few is on_rows or not few.rows.folds:
        return on_rows.path(chosen.search)
    most = max(DENSE_ROWS, int(EXACT_ROWS / on_rows.learned.columns**0.5))
    dense, kept = on_rows.subsample(most, chosen.seed)
    path, end = few.path(chosen.search)
    path, end = dense.finer(path, dense.spread(end, np.searchsorted(kept, first)))
    return path, on_rows.spread(end, kept)


def choose_exactly(spec: ConvexSpec, sample: RowSample, X: Array, share: float | None) -> Chosen:
    """Choose how columns are transformed, and the kernel."""
    asked = spec.features
    curves, sample = transformed(sample, asked.seed, asked.bends)
    X = X if curves is None else curves.inputs(X)
    tuning = choose_for_matrix(asked, sample, share, spec.fit_intercept)
    chosen = Chosen(asked.seed, tuning, exact_choice(tuning, X))
    return chosen if curves is None else chosen.through(curves)


def step_near(ridge: float, largest: float, most: int) -> int:
    """Return the step of the penalty of ridge regression, 0 to ``most``; FIRST if unknown."""
    if not (np.isfinite(ridge) and ridge > 0):
        return FIRST
    return int(np.clip(np.rint(np.log(ridge / largest) / np.log(FACTOR)), 0, most))


@dataclass(frozen=True, eq=False)
class OnRows:
    """The kernel matrix of all rows, and what is minimised on it."""

    K: Any
    rows: ClassSample
    learned: Learned

    def minimised(
        self,
        alpha: float,
        start: DualPoint | None = None,
        held_out: Array | None = None,
        tol: float = TOL,
        max_iter: int = 100,
        near: DualPoint | None = None,
        moves: int = MOVES,
    ) -> Any:
        """Return the minimum without the rows held out; ``moves`` limits LIBSVM."""
        learned, w = self.learned, self.rows.w
        problem = KernelProblem(
            self.K,
            learned.targets(self.rows.codes),
            w if held_out is None else np.where(held_out, 0.0, w),
            learned.loss,
            alpha,
            learned.fit_intercept,
        )
        if learned.pairs is not None and learned.fit_intercept:
            return hinge_of_pairs(problem, self.rows.codes, tol=tol, moves=moves)
        many = len(w) > SQUARED_HINGE_ROWS and isinstance(learned.loss, SquaredHinge)
        if isinstance(learned.loss, Hinge) or many:
            return hinge_on_kernel(problem, tol=tol, moves=moves)
        return minimise_on_kernel(problem, start, near=near, tol=tol, max_iter=max_iter)

    def path(self, tuning: Tuning) -> tuple[HeldOutPath, DualPoint]:
        """Return penalties with the losses of rows left out, and where the best ended."""
        largest = float(self.rows.w @ np.diag(self.K)) or 1.0
        lost = MatrixLeftOut(self, largest)
        ridge = 2 * tuning.share * float(self.rows.w.sum())
        if isinstance(self.learned.loss, Hinge) and ridge > 0:
            ridge = max(ridge, LEAST_HINGE)
        best = walk(lost, step_near(ridge, largest, LAST_START), NEAREST, LAST)
        return lost.path(lost(CONSTANT), self.rows.inflation), lost.end(best)

    def finer(self, path: HeldOutPath, near: DualPoint) -> tuple[HeldOutPath, DualPoint]:
        """Try smaller penalties while the folds of these rows, which are more, lose less.

        More rows may resolve what looks like noise to fewer, most of all in sums over columns.
        """
        rows = replace(self.rows, folds=self.rows.calibrating)
        lost, step = MatrixLeftOut(replace(self, rows=rows), rows.inflation * path.alpha, near), 0
        while step < LAST and (1 - WORTH) * lost(step) > lost(step + FINER):
            step += FINER
        if not step:
            return path, lost.end(0)
        return lost.path(lost(0) / path.errors[path.best], rows.inflation), lost.end(step)

    def subsample(self, most: int, seed: int) -> tuple["OnRows", Array]:
        """Return the matrix of ``most`` rows, or of all, and their numbers.

        The same first rows for any number.
        """
        rows, numbers = self.rows.subsample(most, seed, self.learned.n_classes)
        if rows is self.rows:
            return self, numbers
        return replace(self, K=square_part(self.K, numbers), rows=rows), numbers

    def spread(self, at: DualPoint, numbers: Array) -> DualPoint:
        """Return the point with coefficients of these rows and zeros."""
        coef = np.zeros((len(self.K), at.coef.shape[1]))
        coef[numbers] = at.coef
        return DualPoint(coef, at.intercept, symmetric_product(self.K, coef) + at.intercept)

    def support(self, alpha: float, index: Array) -> int:
        """Return how many support vectors a fit to some of the rows has."""
        rows = replace(self.rows, codes=self.rows.codes[index], w=self.rows.w[index])
        K = kernel_matrix(self.K.kernel, self.rows.X[index])
        solution = replace(self, K=K, rows=rows).minimised(alpha, moves=MOVES_TRIED).solution
        return int(np.count_nonzero(np.any(solution.coef != 0, axis=1)))

    def calibration(self, alpha: float, start: DualPoint | None) -> Calibration:
        """Return the calibration on decision values of rows held out, fold by fold."""
        ends = [
            (fold_rows, self.minimised(alpha, start, fold_rows).at)
            for fold_rows in self.rows.calibrating
        ]
        f = self.learned.values(np.concatenate([at.fitted[fold_rows] for fold_rows, at in ends]))
        codes, w = (
            np.concatenate([a[fold_rows] for fold_rows, _ in ends])
            for a in (self.rows.codes, self.rows.w)
        )
        return calibrate(f, codes, w)


class MatrixLeftOut(ClassesLeftOut):
    """Loss of the rows left out, on the matrix of all rows."""

    def __init__(self, on_rows: OnRows, largest: float, near: DualPoint | None = None) -> None:
        super().__init__(on_rows.rows, on_rows.learned, largest)
        self._on, self._near = on_rows, near

    def lost(self, step: int) -> float:
        """Return the loss, or the log loss of calibrated values of a hinge, which is not its own.

        Infinite where LIBSVM does not end and another penalty was judged: this one is too small.
        """
        rows, learned, w, values = self.rows, self.learned, self.rows.copies, []
        if not isinstance(learned.loss, Hinge) and learned.pairs is None:
            return super().lost(step)
        for fold, fold_rows in enumerate(rows.folds):
            f, ended = self._minimum(step, fold, fold_rows)
            if not ended and self.tried:
                return np.inf
            values.append((learned.values(f), rows.codes[fold_rows], w[fold_rows]))
        return calibrate(*map(np.concatenate, zip(*values, strict=True))).log_loss

    def values(self, step: int, fold: int, fold_rows: Array) -> Float[Array, "m t"]:
        if step != CONSTANT:
            return self._minimum(step, fold, fold_rows)[0]
        rows, learned = self.rows, self.learned
        y = learned.targets(rows.codes[~fold_rows])
        b = learned.fit_intercept * best_constant(learned.loss, y, rows.w[~fold_rows, None])
        return np.tile(b, (int(fold_rows.sum()), 1))

    def _minimum(self, step: int, fold: int, fold_rows: Array) -> tuple[Float[Array, "m t"], bool]:
        """Return decision values by the minimum without the fold, and whether it was reached."""
        start, near = _nearest(self.ends[fold], step), self._near
        for ends in self.ends:
            near = _nearest(ends, step) or near
        optimum = self._on.minimised(
            self.alpha(step), start, fold_rows, near=near, moves=MOVES_COMPARED
        )
        self.ends[fold][step] = optimum.at
        return optimum.at.fitted[fold_rows], optimum.solution.outcome is not Convergence.MOST_STEPS


def _nearest(ends: dict[int, DualPoint], step: int) -> DualPoint | None:
    """Return the end of the nearest penalty that is no smaller: small ones end far away."""
    nearest = max((other for other in ends if other <= step), default=None)
    return None if nearest is None else ends[nearest]
