"""Support vector machines for classes and for outliers, and logistic regression.

Fits use features, or for few rows the exact kernel.

The penalty is chosen by cross-validation of the loss of the estimator on a sample of m rows, which
has more rows of rare classes. The search goes downhill on a grid of half decades; each fit starts
from the solution at the neighbouring penalty. A row represents r rows of its class, so that the
variance of the noise in the sample is the variance in all rows times

    r̄ = Σ r² w g² / Σ r w g²,      with the slopes g of the loss at the best constant.

The best penalty is proportional to this variance. The fit to all rows therefore has alpha_m/r̄, and
C does not change if all classes are sampled at the same rate. With the exact kernel the search
starts at the penalty of ridge regression.
"""

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Any, cast

import numpy as np
from sklearn.base import OutlierMixin

from bochner._core.arrays import array_namespace, concat, from_numpy, is_sparse, to_numpy, unit_of
from bochner._core.blas import symmetric_product
from bochner._core.checks import finite, one_of, positive
from bochner._core.random import stream
from bochner._core.shapes import Array, Bool, Float, Int, Tabular
from bochner._core.sizes import cached_rows
from bochner.data.blocks import Blocks, count_rows
from bochner.data.sample import RowSample, gather, row_priorities
from bochner.data.schema import Inputs
from bochner.data.sources import Block, Piece, join, part, piece_of
from bochner.errors import InvalidInput
from bochner.features.map import Method
from bochner.kernels.algebra import kernel_matrix
from bochner.kernels.kernel import Kernel, has_free
from bochner.kernels.stationary import Gaussian
from bochner.models import _labels
from bochner.models._base import Differentiable, Unsupervised, getter
from bochner.models._labels import Calibration, LabelEstimator, calibrate, log_probabilities
from bochner.models._parameters import FeatureParameters, KernelParameters, estimator, parameters
from bochner.models._rows import N_FOLDS, TARGETS, Features, fold_numbers, row_marks
from bochner.models._tables import accept_partitions
from bochner.models.convex.fit import (
    EXACT_ROWS,
    SMALL,
    ClassPairs,
    ConvexEstimator,
    ConvexFit,
    ConvexSpec,
    rows_of,
)
from bochner.models.representations.representation import chosen_exactly
from bochner.selection.choices import Choices
from bochner.selection.choose import search_kernel
from bochner.selection.held_out import platt_targets
from bochner.solvers.convex.kernel import (
    MOVES,
    MOVES_COMPARED,
    SQUARED_HINGE_ROWS,
    GaussianRows,
    KernelMatrix,
)
from bochner.solvers.convex.losses import LOG_LOSSES, Hinge, Logistic, Loss, Multinomial, ZeroHinge
from bochner.solvers.convex.newton import constant, evaluate, fastest_algorithm, minimise
from bochner.solvers.convex.penalty_path import LAST, HeldOutLoss, HeldOutPath
from bochner.solvers.convex.problem import TOL, Convergence, FeatureBlock, Problem, State, optimum
from bochner.sums.passes import LOCAL, BlockSum, Executor, draw_rows

# --- The sample of rows on which the penalty is chosen --------------------------------------------


def class_sample(blocks: Blocks, spec: ConvexSpec, where: Executor) -> "ClassRows":
    """Return all rows if ≤ 4096, else about 4096 with more of rare classes; 1 or 2 passes."""
    seed, n_classes = spec.features.seed, spec.n_classes
    rows, weights = draw_rows(blocks, seed, where=where).lowest(4096), None
    pieces = [rows]
    if count_rows(blocks) > 4096:
        limit = 4096 // (2 * n_classes)
        counts = np.bincount(rows.y[:, 0].astype(np.int64), minlength=n_classes)
        rare, counts = np.flatnonzero(counts < limit), np.maximum(counts, 1)
        part_of = partial(_weights_and_rare_rows, seed=seed, counts=counts, limit=limit)
        weights, sample = where.sum(BlockSum(part_of), blocks)
        pieces = [rows.take(np.flatnonzero(~np.isin(rows.y[:, 0], rare)))]
        pieces += [sample.take(np.flatnonzero(sample.y[:, 0] == k)).lowest(limit) for k in rare]
    X, y, w = join(pieces)
    return ClassRows(spec, y[:, 0], w, X).with_folds(weights)


def _weights_and_rare_rows(
    block: Block, seed: int, counts: Int[Array, " K"], limit: int
) -> tuple[Array, RowSample]:
    """Return the weight of each class, and a sample of the rows of rare classes."""
    piece = piece_of(block)
    codes = piece.y[:, 0].astype(np.int64)
    rows = np.flatnonzero((counts[codes] < limit) & (piece.w > 0))
    priority = row_priorities(seed, block.start, len(codes)) * counts[codes]
    sample = RowSample(*part(piece, rows), priority[rows]).lowest(cached_rows(piece.X.shape[1]))
    return _labels.weights_of_classes(block, len(counts)), sample


def valid_folds(
    fold_of: Array, codes: Int[Array, " n"], counts: Bool[Array, " n"], n_classes: int
) -> list[Bool[Array, " n"]]:
    """Return the masks of folds that are not empty and whose complement has all classes."""
    members = np.zeros((N_FOLDS, n_classes), np.int64)
    np.add.at(members, (fold_of, codes), counts)
    serves = members.any(axis=1) & (members < members.sum(axis=0)).all(axis=1)
    return [fold_of == fold for fold in np.flatnonzero(serves)]


def enough_folds(folds: Sequence[Array]) -> tuple[Array, ...]:
    """Return the first folds with 1000 rows in total, which calibration requires, or all folds."""
    counts = np.cumsum([int(np.count_nonzero(fold)) for fold in folds])
    return tuple(folds[: int(np.searchsorted(counts, 1000)) + 1])


SUPPORT_SAMPLES = 2048, 4096  # Rows on which support vectors are counted, to extrapolate

#: From this number of rows LIBSVM computes kernel values itself, if at most an eighth of the rows
#: of a sample have multipliers at their bounds: pendigits (5,148 rows): 0.04 s instead of 0.10 s.
BOUNDED_FROM, BOUNDED_SAMPLE, BOUNDED = 3072, 256, 1 / 8

MOVES_TRIED = 20  # LIBSVM steps per row with many rows; if it needs more, features are faster

#: Half decades between smaller penalties, which are tried with more rows while the loss falls by
#: 0.2 %. They lower the error of SVC from 14.4 to 13.6 % on adult and from 12.5 to 12.1 % on magic.
FINER = 2


def fit_classifier(
    spec: ConvexSpec, blocks: Blocks, inputs: Inputs, where: Executor, exact: bool = False
) -> ConvexFit:
    """Return the fit on a kernel matrix, on features, or by ridge regressions."""
    alpha, path, start, calibration = spec.alpha, None, None, cast(Any, None)
    # A squared hinge has twice the curvature of ridge's loss: ridge has alpha/2.
    chosen, design, data = rows_of(spec, blocks, alpha / 2 if alpha else None, where, exact)
    if exact:
        rows = ClassRows(spec, data.y[:, 0], data.w, data.X)
        calibration = rows.calibrate_held_out if spec.probability else None
        rows = replace(rows, design=KernelMatrix(rows.matrix(chosen.kernel)))
    if alpha is None:
        alpha, sample = 1.0, rows.with_folds() if exact else class_sample(blocks, spec, where)
        if sample.folds:  # otherwise a class has too few rows to hold some out
            path, start = _path(sample, chosen)
            alpha = path.alpha
    if not exact:
        targets = where.sum(TARGETS, blocks) if spec.by_ridge else design.sum(TARGETS)
        codes, w = map(np.concatenate, zip(*targets, strict=True))
        fold_of = fold_numbers(blocks, w, chosen.seed, where) if spec.probability else codes
        if spec.by_ridge:  # rows of weight zero are left out
            start, (codes, fold_of, w) = None, (a[w > 0] for a in (codes, fold_of, w))
        rows = ClassRows(spec, codes, w, design=design)
    problem = rows.problem(alpha)
    at = rows.minimise(problem, start, spec.tol)
    if spec.probability and not exact:
        # Without rows of all classes the intercept is not determined
        folds = enough_folds(valid_folds(fold_of, codes.astype(np.int64), w > 0, spec.n_classes))
        state = replace(at, multipliers=None)
        calibration = rows.calibrate(folds, alpha, state, spec.tol)
    parts = inputs, chosen, spec.loss, optimum(problem, at), path, calibration
    fit = ConvexFit(*parts, pairs=spec.pairs, X=data.X if exact else None).warn()
    return fit.by_ridge(problem, at) if spec.by_ridge else fit


def _is_machine(spec: ConvexSpec, kernel: Any, X: Any) -> bool:
    """Whether LIBSVM can compute the kernel values: for a hinge, a Gaussian and a given C."""
    hinge = spec.alpha is not None and spec.loss.nonsmooth and spec.fit_intercept
    return hinge and isinstance(kernel, Gaussian) and not is_sparse(X)


def fit_to_support(spec: ConvexSpec, blocks: Blocks, inputs: Inputs) -> ConvexFit | None:
    """Return LIBSVM's fit to many rows; None if two samples predict many support vectors."""
    ask, n, sizes = spec.features, blocks.n_rows or 0, SUPPORT_SAMPLES
    limit = 1 << 28  # kernel values between support vectors and rows; above, features are faster
    is_given = not has_free(ask.kernel) and not ask.learns_metric
    is_small = is_given and EXACT_ROWS < n <= limit / max(sizes[1], 8 * blocks.n_columns)
    if not is_small or not _is_machine(spec, ask.kernel, next(iter(blocks)).X):
        return None
    kernel, sample = cast(Kernel, ask.kernel), gather(blocks, ask.seed)
    n, rows = len(sample), ClassRows(spec, sample.y[:, 0], sample.w, sample.X)
    counts = [rows.multipliers(kernel, size)[0].any(axis=1).sum() for size in sizes]
    if not counts[0]:
        return None
    growth = np.log(counts[1] / counts[0]) / np.log(sizes[1] / sizes[0])
    if not counts[1] * (n / sizes[1]) ** growth <= min(EXACT_ROWS, limit / n):
        return None
    on_rows = replace(rows, design=KernelMatrix(GaussianRows(kernel, rows.X)))
    problem = on_rows.problem(spec.alpha or 1.0)
    solution = optimum(problem, on_rows.minimise(problem, None, spec.tol, MOVES_TRIED))
    if solution.outcome is Convergence.MOST_STEPS:
        return None
    support = np.any(solution.coef != 0, axis=1)
    solution, X = replace(solution, coef=solution.coef[support]), rows.X[support]
    chosen = spec.choose_exactly(sample.lowest(cached_rows(blocks.n_columns)), None, X)
    calibration: Any = rows.calibrate_held_out if spec.probability else None
    return ConvexFit(inputs, chosen, spec.loss, solution, None, calibration, pairs=spec.pairs, X=X)


def _path(rows: "ClassRows", chosen: Choices) -> tuple[HeldOutPath, State]:
    """Return the penalties with their held-out losses, and the state at the best penalty."""
    if rows.design is None:
        single = len(rows.w) * chosen.map.n_features**2 > SMALL
        Z = to_numpy(chosen.map(rows.X)).astype(np.float32 if single else np.float64)
        largest = float(rows.w @ (Z.astype(np.float64) ** 2).sum(axis=1)) or 1.0
        held_out = replace(rows, design=FeatureBlock(Z)).held_out(largest)
        held_out.walk()
        path, end = held_out.path(rows.inflation)
        return path, replace(end, multipliers=None)  # multipliers belong to the sampled rows
    # On 2048 rows, then on more rows, which may resolve structure that looks like noise in few rows
    subset, first = rows.subsample(2048)
    subset = subset if subset.folds else rows
    spec, ridge = rows.spec, 2 * chosen.search.share * float(subset.w.sum())
    if spec.loss.nonsmooth and ridge > 0:
        ridge = max(ridge, 0.03)  # below it the fit rarely changes, as all margins are met
    held_out = subset.held_out(float(subset.w @ np.diag(subset.design.K)) or 1.0)
    # Beyond step 10 a fit that starts at zero, and its neighbours, stop far from the minimum
    held_out.walk(ridge, last=10)
    path, end = held_out.path(subset.inflation)
    if subset is rows:
        return path, end
    columns = spec.targets(rows.codes[:1]).shape[1]
    dense, indices = rows.subsample(max(3072, int(EXACT_ROWS / columns**0.5)))
    dense = replace(dense, folds=enough_folds(dense.every_fold))
    start, step = dense.expand(end, np.searchsorted(indices, first)), 0
    held_out = dense.held_out(dense.inflation * path.alpha, start)
    while step < LAST and 0.998 * held_out(step) > held_out(step + FINER):
        step += FINER
    finer, end = held_out.path(dense.inflation)
    return (finer if step else path), rows.expand(end, indices)


@dataclass(frozen=True, eq=False)
class ClassRows:
    """Rows with class codes, and the problem on their features or kernel matrix."""

    spec: ConvexSpec
    codes: Float[Array, " m"]
    w: Float[Array, " m"]  # weights, times the number r of rows that a row represents
    X: Any = None
    design: Any = None  # features or kernel matrix
    inflation: float = 1.0  # r̄
    # Masks of the held-out rows of each fold; () if there are too few rows
    folds: tuple[Array, ...] = ()  # enough for the choice of a penalty
    every_fold: tuple[Array, ...] = ()

    def problem(self, alpha: float, held_out: Array | None = None) -> Problem:
        """Return the problem without the held-out rows."""
        spec, w, y = self.spec, self.w, self.spec.targets(self.codes)
        w = w if held_out is None else np.where(held_out, 0.0, w)
        y = y.astype(np.float32) if isinstance(self.design, Features | FeatureBlock) else y
        return Problem(self.design, y, w[:, None], spec.loss, alpha, spec.fit_intercept)

    def minimise(
        self, problem: Problem, start: Any = None, tol: float = TOL, moves: int = MOVES
    ) -> State:
        """Return the minimum; ``moves`` limits the steps of LIBSVM."""
        limits: dict[str, Any] = {"tol": tol, "max_iter": self.spec.max_iter, "moves": moves}
        return minimise(problem, start, algorithm=fastest_algorithm(problem), **limits)

    def calibrate(
        self, folds: Sequence[Array], alpha: float, start: Any, tol: float = TOL
    ) -> Calibration | None:
        """Return the calibration on held-out decision values; None without folds."""
        if not folds:
            return None
        ends = (self.minimise(self.problem(alpha, out), start, tol) for out in folds)
        f = np.concatenate([end.fitted[out] for end, out in zip(ends, folds, strict=True)])
        f, order = self.spec.values(f), np.concatenate([np.flatnonzero(out) for out in folds])
        codes, w = self.codes[order], self.w[order]
        step = -(-len(f) // 50_000)  # at most 50,000 rows: calibration has few parameters
        return calibrate(f[::step], codes[::step], w[::step])

    def held_out(self, largest: float, start: State | None = None) -> HeldOutLoss:
        """Return the held-out loss; of hinges and pairs on a kernel matrix, calibrated log loss."""
        # Targets of log losses are smoothed by a tenth of a row: otherwise tiny penalties win
        spec = self.spec
        margins = spec.loss.nonsmooth or spec.pairs is not None
        calibrates = margins and isinstance(self.design, KernelMatrix)

        def total(indices: Array, f: Array) -> float:
            codes, w = self.codes[indices], self.w[indices]
            if not (calibrates or isinstance(spec.loss, LOG_LOSSES)):
                return float((w[:, None] * spec.loss.value(spec.targets(codes), f)).sum())
            largest = float(self.w.max())
            w = w if largest >= 1 else w / (2 * unit_of(largest))
            if calibrates:
                return calibrate(spec.values(f), codes, w).log_loss
            targets = platt_targets(codes[:, None] == np.arange(spec.n_classes), w, 0.1)
            return -float(w @ (targets * log_probabilities(f)).sum(axis=1))

        fit = partial(self.minimise, moves=MOVES_COMPARED)
        return HeldOutLoss(self.problem(1.0), self.folds, fit, largest, total, start)

    def with_folds(self, weights: Array | None = None) -> "ClassRows":
        """Return the rows with folds; ``weights`` of the classes in all rows if it is a sample."""
        n_classes, marks = self.spec.n_classes, row_marks(self.X, self.spec.features.seed)
        labels, w, represents = self.codes.astype(np.int64), self.w, np.ones(len(self.w))
        if weights is not None:
            totals = np.bincount(labels, w, minlength=n_classes)
            represents = (weights / np.where(totals > 0, totals, 1.0))[labels]
        w = represents * w
        shares = np.bincount(labels, w, minlength=n_classes) / w.sum()
        squares = w * (1 - shares[labels]) ** 2
        inflation = float((represents * squares).sum() / max(squares.sum(), 1e-300)) or 1.0
        uniques, first = np.unique(marks, return_index=True)
        valid = valid_folds(np.searchsorted(uniques, marks) % N_FOLDS, labels, w > 0, n_classes)
        n_other = len(uniques) - int(np.bincount(labels[first], minlength=n_classes).max())
        valid = valid if n_other > 1 else []
        # 200 held-out rows outside the largest class are enough to choose a penalty
        n_folds = max(1, -(-N_FOLDS * 200 // max(n_other, 1)))
        folds, every_fold = tuple(valid[:n_folds]), tuple(valid)
        return replace(self, w=w, inflation=inflation, folds=folds, every_fold=every_fold)

    def matrix(self, kernel: Kernel) -> Any:
        """Return the kernel matrix, or the rows if LIBSVM needs few kernel values."""
        if len(self.w) >= BOUNDED_FROM and _is_machine(self.spec, kernel, self.X):
            multipliers, y = self.multipliers(kernel, BOUNDED_SAMPLE)
            if (multipliers > 0.999).mean(axis=0) @ (y != 0).mean(axis=0) <= BOUNDED:
                return GaussianRows(kernel, self.X)
        return kernel_matrix(kernel, self.X)

    def multipliers(self, kernel: Kernel, size: int) -> tuple[Array, Array]:
        """Return multipliers of ``size`` rows, as shares of their bounds wᵢ/alpha; and targets."""
        first = stream(self.spec.features.seed, "support").permutation(len(self.w))[:size]
        design = KernelMatrix(GaussianRows(kernel, self.X[first]))
        subset = replace(self, codes=self.codes[first], w=self.w[first], design=design)
        problem = subset.problem(self.spec.alpha or 1.0)
        if len(np.unique(subset.codes[subset.w > 0])) < 2:
            return np.zeros(problem.y.shape), problem.y
        coef = subset.minimise(problem, moves=MOVES_TRIED).coef
        w = np.where(subset.w > 0, subset.w, 1.0)[:, None]
        return np.abs(coef) * problem.alpha / w, problem.y

    def calibrate_held_out(self, fit: ConvexFit) -> Calibration | None:
        """Return the calibration of a fit on held-out decision values; None with too few rows."""
        rows = self.with_folds()
        if not rows.folds:
            return None
        is_large, end, start = rows.X.shape[0] > EXACT_ROWS, fit.solution, None
        # For many rows the matrix is not stored
        K: Any = (GaussianRows if is_large else kernel_matrix)(fit.chosen.kernel, rows.X)
        if len(end.coef) == len(rows.w):
            start = State(end.coef, end.intercept, K @ end.coef + end.intercept)
        folds = enough_folds(rows.every_fold)
        return replace(rows, design=KernelMatrix(K)).calibrate(folds, end.alpha, start)

    def subsample(self, size: int) -> tuple["ClassRows", Array]:
        """Return ``size`` random rows, with more rows of rare classes, and their indices."""
        spec, n_classes, codes = self.spec, self.spec.n_classes, self.codes.astype(np.int64)
        if len(codes) <= size:
            return self, np.arange(len(codes))
        order = stream(spec.features.seed, "some of the rows").permutation(len(codes))
        is_kept = np.isin(np.arange(len(codes)), order[:size])
        rare = size // (2 * n_classes)
        for k in np.flatnonzero(np.bincount(codes[is_kept], minlength=n_classes) < rare):
            is_kept[order[codes[order] == k][:rare]] = True
        indices = np.flatnonzero(is_kept)
        weights = np.bincount(codes, self.w, minlength=n_classes)
        rows = self.codes[indices], self.w[indices], part(Piece(self.X), indices).X
        design = KernelMatrix(self.design.K[np.ix_(indices, indices)])
        return ClassRows(spec, *rows, design).with_folds(weights), indices

    def expand(self, at: State, indices: Array) -> State:
        """Return the state for all rows, with zero coefficients except for ``indices``."""
        coef = np.zeros((len(self.design.K), at.coef.shape[1]))
        coef[indices] = at.coef
        return State(coef, at.intercept, symmetric_product(self.design.K, coef) + at.intercept)


#: Relative rounding of scores for different block sizes: whitening amplifies rounding errors.
ROUNDING = {"float64": 1e-9, "float32": 1e-4}


def fit_one_class(
    spec: ConvexSpec, blocks: Blocks, inputs: Inputs, where: Executor, exact: bool
) -> ConvexFit:
    """Return the one-class fit, with the offset at the nu-quantile of the scores."""
    design: Any
    if exact:
        sample = gather(blocks, spec.features.seed)
        tuning = search_kernel(spec.features, sample)
        chosen = chosen_exactly(spec.features.seed, tuning, None, sample.X)
        # Copies are one row of their total weight, so that weights and copies give the same fit
        marks = row_marks(sample.X, 0)  # sorted, so that the order of rows does not matter
        _, first, inverse = np.unique(marks, return_index=True, return_inverse=True)
        total = np.bincount(inverse, sample.w)
        K = np.ascontiguousarray(chosen.kernel(sample.X[first]))
        size, weight = float(np.diag(K).mean()) or 1.0, float(total.mean())
        K /= size
        design, w, value = KernelMatrix(K), total[:, None] / weight, weight**2 * size
    else:
        chosen, design, _ = rows_of(spec, blocks, None, where, exact)
        w, value = np.concatenate([w for _, w in design.sum(TARGETS)])[:, None], 1.0
    drift = spec.nu * float(w.sum())
    problem = Problem(design, np.zeros_like(w), w, spec.loss, spec.alpha, True, drift, value)
    if exact and spec.nu == 1:  # all coefficients are at their bounds; any ρ above the scores
        f = design.K @ w
        ends = w, -f.max(keepdims=True)[0]
        state = State(*ends, f + ends[1], algorithm="libsvm", outcome=Convergence.CONVERGED)
    else:
        start = constant(problem, 0.0)
        state = minimise(problem, start, tol=spec.tol, max_iter=spec.max_iter)
    state = at_quantile(problem, state, spec.nu, chosen.precision)
    solution = optimum(problem, evaluate(problem, state))
    if not exact:
        return ConvexFit(inputs, chosen, spec.loss, solution).warn()
    coef = weight * solution.coef[inverse] * (sample.w / total[inverse])[:, None]
    solution = replace(solution, coef=coef, intercept=weight * size * solution.intercept)
    return ConvexFit(inputs, chosen, spec.loss, solution, X=sample.X).warn()


def at_quantile(problem: Problem, at: State, nu: float, precision: str) -> State:
    """Return the state with the offset ρ at the ν-quantile of the scores."""
    # All ν-quantiles of the scores are optimal: one number, or an interval between two rows, of
    # which the middle is used. Rows at the border, with equal scores up to rounding, are inside.
    positive = problem.w[:, 0] > 0
    f, w = at.fitted[positive, 0], problem.w[positive, 0]  # scores minus ρ
    order = np.argsort(f, kind="stable")
    f, shares = f[order], np.cumsum(w[order]) / w.sum()
    border = int(np.searchsorted(shares, nu, side="right"))
    if border == len(f):
        return at  # all rows may be outside
    shift = float(f[border] - ROUNDING[precision] * np.abs(f - at.intercept).max())
    if border and shares[border - 1] > nu * (1 - 1e-12):
        shift = min(shift, 0.5 * float(f[border - 1] + f[border]))
    return replace(at, fitted=at.fitted - shift, intercept=at.intercept - shift)


@parameters
class ConvexClassifier(KernelParameters, Differentiable, LabelEstimator, ConvexEstimator):
    """Base class of classifiers with a convex loss."""

    C: float | str = "auto"
    class_weight: Any = None
    tol: float = 1e-4
    max_iter: int = 100

    def _fit(self, blocks: Blocks, inputs: Inputs, where: Executor = LOCAL) -> ConvexFit:
        penalised = self._penalty() != 0  # required by the exact kernel
        n, n_classes = int(blocks.n_rows or 0), len(inputs.classes)
        limit = min(EXACT_ROWS, cached_rows(blocks.n_columns))
        on_kernel = penalised and self._uses_kernel(blocks, limit, where)
        spec = self._spec_for(n_classes, n if on_kernel else 0)
        # LIBSVM always fits an intercept
        limit = SQUARED_HINGE_ROWS if spec.loss.has_inactive_rows else EXACT_ROWS
        limit = 0 if spec.loss.nonsmooth else limit
        if on_kernel and (spec.fit_intercept or self._uses_kernel(blocks, limit, where)):
            return fit_classifier(spec, blocks, inputs, where, exact=True)
        if penalised and not on_kernel and self._uses_kernel(blocks, sys.maxsize, where):
            support = fit_to_support(self._spec_for(n_classes, n), blocks, inputs)
            if support is not None:
                return support
        return fit_classifier(spec, blocks, inputs, where)

    def _spec_for(self, n_classes: int, rows: int) -> ConvexSpec:
        """Return the spec; ``rows`` is the number of rows of the kernel matrix, or 0."""
        loss, pairs = self._loss(n_classes, rows), self._pairs(n_classes, rows)
        probability = vars(self).get("probability", False)
        of_classes = {"n_classes": n_classes, "pairs": pairs, "probability": probability}
        return self._convex_spec(loss, self._penalty(), **of_classes)

    def _pairs(self, n_classes: int, rows: int) -> ClassPairs | None:
        """Return the pairs of classes if one problem is solved for each pair, else None."""
        return None

    def _penalty(self) -> float | None:
        """Return alpha = 1/C; 0 if C is infinite, None if C is "auto"."""
        if isinstance(self.C, float) and math.inf == self.C:
            return 0.0
        C = self._number("C", positive)
        return None if C is None else 1 / C

    @property
    def C_(self) -> float:
        """The C of the fit."""
        return 1 / self.solution_.alpha if self.solution_.alpha > 0 else math.inf

    intercept_ = getter("solution.intercept", "b, (1,) or (K,).")


@estimator
class SVC(ConvexClassifier):
    """Support vector machine for classification: exact kernel for few rows, features for many.

    Minimises ‖β‖²/2 + C Σ wᵢ ℓ(yᵢ, φ(xᵢ)·β + b), with φ(x)·φ(y) ≈ k(x, y): the problem of
    scikit-learn's SVC with the kernel φ(x)·φ(y), for any number of rows. Several classes are
    separated in pairs, as in scikit-learn's SVC, or each class from the rest.

    Parameters
    ----------
    %(kernel or auto)s
    %(method or exact)s
    %(n_features or exact)s
    loss : {"squared_hinge", "hinge"} or None, default None
        - "hinge": max(0, 1 − y f), as in scikit-learn's SVC; faster with the exact kernel.
        - "squared_hinge": its square; faster on features.
        - None: "hinge" with the exact kernel, an intercept, and two classes or pairs of classes;
          else "squared_hinge", because one-against-rest hinges fail if no class has probability ½.
    multi_class : {"auto", "ovo", "ovr"}, default "auto"
        - "ovo": one problem for each pair of classes, on their rows (Chang and Lin 2011, sec. 7).
          The decision value of a class is its smoothed minimum against the other classes.
        - "ovr": one problem for each class, against all others.
        - "auto": "ovr", but "ovo" with exact kernel, intercept and on average 100 rows per class.
    probability : bool, default True
        Whether to calibrate ``predict_proba`` on held-out rows. This takes one more fit for each of
        the first folds, out of five, with 1000 rows in total. With the exact kernel these fits are
        made when probabilities are first used or the model is saved. With ``class_weight``
        probabilities refer to weighted classes.
    tol : float, default 1e-4
        Relative tolerance: the last Newton step lowers the objective by less than this share; the
        objective of the hinge is at most this share above its minimum.
    max_iter : int, default 100
        Largest number of Newton steps; for the hinge on features, for each width of smoothing.
        LIBSVM takes at most 1000 steps per row instead.

    See Also
    --------
    LogisticRegression : Classification with probabilities.
    KernelRidgeClassifier : Classification in one pass over the rows.

    Notes
    -----
    With features: Newton's method takes O(n (c(φ) + s D K) + K (a D² + s D³)), with about ten
    steps s, and the total number a of rows that enter or leave the margin. Above D = 2048, or if
    the features do not fit in memory, conjugate gradients take O(n (c(φ) + s D K) + D³), with some
    tens of steps s. Memory O(K D² + n K) and the features.

    With the exact kernel: LIBSVM minimises the hinge loss (Fan, Chen and Lin 2005), mostly in
    O(n²). The squared hinge takes, up to 2048 rows, Newton steps over the a active rows of each
    class (Chapelle 2007), O(a³/3 + n a) each. Memory 2 n². With a Gaussian kernel and a number C no
    matrix is stored if few multipliers of a sample are at their bounds. LIBSVM is then also used
    above 8192 rows if two samples predict few support vectors, which are the rows of ``X_fit_``.

    Examples
    --------
    >>> import numpy as np
    >>> from bochner import SVC
    >>> X = np.random.default_rng(0).uniform(-2, 2, (500, 2))
    >>> y = np.where((X**2).sum(axis=1) < 2, "inside", "outside")
    >>> SVC(random_state=0).fit(X, y).predict([[0.0, 0.5], [1.8, 1.0]]).tolist()
    ['inside', 'outside']
    """

    kernel: Kernel | str = "auto"
    _: KW_ONLY
    loss: str | None = None
    multi_class: str = "auto"
    probability: bool = True

    def _loss(self, n_classes: int, rows: int) -> Loss:
        one_of(self.multi_class, "SVC", "multi_class", ("auto", "ovo", "ovr"))
        name = self.loss
        if name is None:
            is_binary = n_classes == 2 or self._pairs(n_classes, rows) is not None
            name = "hinge" if rows and self.fit_intercept and is_binary else "squared_hinge"
        squared = one_of(name, "SVC", "loss", ("squared_hinge", "hinge")) == "squared_hinge"
        return Hinge(None if squared else 0.0)

    def _pairs(self, n_classes: int, rows: int) -> ClassPairs | None:
        # With 100 rows per class a pair has enough rows for its problem
        auto = self.multi_class == "auto" and self.fit_intercept and rows >= 100 * n_classes
        pairs = n_classes > 2 and (auto or self.multi_class == "ovo")
        return ClassPairs(n_classes) if pairs else None

    @property
    def _lacks_probabilities(self) -> str:  # type: ignore[override]
        required = "require probability=True before fit. LogisticRegression always has them."
        return "" if self.probability else required

    calibration_ = getter(
        "calibration",
        "A Calibration: the map from decision values to probabilities, with ``probability=True``.",
        "SVC: this model has no probabilities: it was fitted with probability=False, or a class "
        "has too few distinct rows to hold some out. Fit with probability=True, or with more rows.",
    )


@estimator
class LogisticRegression(ConvexClassifier):
    """Kernel logistic regression: exact kernel for few rows, features for many.

    Minimises ‖β‖²/2 + C Σ wᵢ ℓ(yᵢ, φ(xᵢ)·β + b), with φ(x)·φ(y) ≈ k(x, y) and ℓ the log loss: the
    problem of scikit-learn's LogisticRegression on φ(X).

    Parameters
    ----------
    %(kernel or auto)s
    %(method or exact)s
    %(n_features or exact)s
    tol : float, default 1e-4
        Relative tolerance: the last Newton step lowers the objective by less than this share.
    max_iter : int, default 100
        Largest number of Newton steps.

    See Also
    --------
    SVC : Classification by a hinge loss.
    KernelRidgeClassifier : Classification in one pass over the rows.

    Notes
    -----
    With features: Newton's method with conjugate gradients, time O(n (c(φ) + s D K) + D³) with some
    tens of steps s, memory O(D² + n K) and the features. With the exact kernel: some tens of steps
    of O(n² K), a few factorisations of n³/3, and memory 2 n².

    Examples
    --------
    >>> import numpy as np
    >>> from bochner import LogisticRegression
    >>> X = np.random.default_rng(0).uniform(-2, 2, (500, 2))
    >>> model = LogisticRegression(random_state=0).fit(X, (X**2).sum(axis=1) < 2)
    >>> bool(model.predict_proba([[0.0, 0.5]])[0, 1] > 0.7)
    True
    """

    kernel: Kernel | str = "auto"

    def _loss(self, n_classes: int, rows: int) -> Loss:
        return Multinomial() if n_classes > 2 else Logistic()

    def _log_probabilities(self, f: Float[Array, "n t"]) -> Float[Array, "n K"]:
        return log_probabilities(f)


@estimator
class OneClassSVM(FeatureParameters, OutlierMixin, Differentiable, Unsupervised, ConvexEstimator):
    """One-class support vector machine for outlier detection.

    Minimises ½‖β‖² + Σ wᵢ max(0, ρ − φ(xᵢ)·β) − nu ρ Σ wᵢ (Schölkopf et al. 2001): the problem of
    scikit-learn's OneClassSVM with the kernel φ(x)·φ(y), for any number of rows.

    Parameters
    ----------
    %(kernel at the median)s
    method : Method, str or None, default None
        - None: up to 4096 rows the exact kernel, unless ``n_features`` or ``precision`` is set;
          "auto" for more rows.
        - "exact": the exact kernel, up to 8192 rows.
        - "auto" or a method: features; see :func:`bochner.draw`.
    %(n_features or exact)s
    nu : float, default 0.5
        Share of outliers, in (0, 1]: at most this share of the weight is outside (φ(x)·β < ρ), and
        at least this share is outside or at the boundary, up to rounding of the features.
    tol : float, default 1e-6
        Tolerance of the duality gap and of the gain of a step, relative to ½‖β‖² plus the loss.
    max_iter : int, default 200
        Largest number of Newton steps; with the exact kernel, of LIBSVM steps per row (below
        1,000 rows as many steps as for 1,000 rows).

    See Also
    --------
    KernelFeatures : Features for any linear method.
    SVC : Classification of rows with labels.

    Notes
    -----
    ρ is the nu-quantile of φ(x)·β. With the exact kernel LIBSVM takes between O(n²) and O(n³). With
    features s steps take O(s (n D + a D²)) for a rows near the boundary.

    Examples
    --------
    >>> import numpy as np
    >>> from bochner import OneClassSVM
    >>> X = np.random.default_rng(0).standard_normal((300, 2))
    >>> model = OneClassSVM(nu=0.1, random_state=0).fit(X)
    >>> model.predict([[0.0, 0.0], [9.0, 9.0]]).tolist()
    [1, -1]
    """

    kernel: Kernel | str = "gaussian"
    _: KW_ONLY
    method: Method | str | None = None
    n_features: int | float | str | None = None
    nu: float = 0.5
    tol: float = 1e-6
    max_iter: int = 200

    def _fit(self, blocks: Blocks, inputs: Inputs, where: Executor = LOCAL) -> ConvexFit:
        nu = finite(self.nu, "OneClassSVM", "nu")
        spec = self._convex_spec(ZeroHinge(), 1.0, nu=nu)
        if not 0 < nu <= 1:
            raise InvalidInput(
                f"OneClassSVM: nu must be in (0, 1]; got {nu!r}. It is the share of rows that may "
                "be outside, such as 0.05."
            )
        exact = self._uses_kernel(blocks, 4096, where)
        return fit_one_class(spec, blocks, inputs, where, exact)

    def fit_predict(
        self, X: Tabular, y: object = None, sample_weight: Array | None = None
    ) -> Array:
        """Fit, and return +1 for inliers and −1 for outliers, (n,)."""
        return self._atomic(lambda model: model.fit(X, y, sample_weight).predict(X))

    @accept_partitions
    def decision_function(self, X: Tabular) -> Array:
        """Return φ(X)·β − ρ, (n,): positive inside, negative outside."""
        rows = self._rows_to_predict(X)
        return concat([from_numpy(f[:, 0], like=X) for X, f in self._fitted.predictions(rows)])

    @accept_partitions
    def score_samples(self, X: Tabular) -> Array:
        """Return φ(X)·β, (n,): the larger, the more similar a row is to the training rows."""
        return self.decision_function(X) + float(self.offset_[0])

    @accept_partitions
    def predict(self, X: Tabular) -> Array:
        """Return +1 for inliers and −1 for outliers, (n,)."""
        return concat(list(self.predict_blocks(self._rows_to_predict(X))))

    def _outputs_of(self, f: Array) -> dict[str, Array]:
        decision = f[:, 0]
        return {"label": array_namespace(f).where(decision >= 0, 1, -1), "decision": decision}

    def predict_blocks(self, blocks: Blocks) -> Iterator[Array]:
        """Yield the predictions of each block of rows."""
        for X, fitted in self._fitted.predictions(self._encode_as_fit(blocks)):
            yield from_numpy(np.where(fitted[:, 0] >= 0, 1, -1), like=X)

    @property
    def offset_(self) -> Float[Array, " 1"]:
        """ρ, (1,): ``decision_function`` is ``score_samples`` − ρ."""
        return -self.solution_.intercept

    @property
    def dual_coef_(self) -> Float[Array, " n"]:
        """Coefficients of the rows ``X_fit_``, (n,), for a fit with the exact kernel."""
        return self._row_fit("dual_coef_").solution.coef[:, 0]
