"""Classification by convex losses with the kernel itself, of few rows.

The kernel is chosen by the matrices of rows (:mod:`bochner.selection.candidates`), the penalty as
on features: by the loss of rows left out, walked downhill from that of ridge regression.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from bochner._core.arrays import dense, is_sparse, to_numpy
from bochner._core.blas import square_part, symmetric_product
from bochner._core.random import stream
from bochner._core.shapes import Array, Float
from bochner.data.blocks import Blocks
from bochner.data.sample import RowSample
from bochner.data.schema import Inputs
from bochner.features.auto import Choice
from bochner.features.nystrom.nystrom import NystromMap
from bochner.kernels.banded import kernel_matrix
from bochner.kernels.kernel import Kernel
from bochner.kernels.numbers import is_given
from bochner.kernels.stationary import Gaussian
from bochner.models._calibration import Calibration, calibrate
from bochner.models._kernel_sum import KernelSum
from bochner.models._shown import Fact, ShownFit
from bochner.models.convex.class_sample import (
    CONSTANT,
    FIRST,
    NEAREST,
    ClassSample,
    Learned,
    class_sample,
    rows_to_choose_by,
)
from bochner.models.convex.fit import ConvexSpec, found_by_loss, in_units, warned
from bochner.models.convex.pairs import ClassPairs
from bochner.models.error_law import ErrorLaw, LeftOutRows
from bochner.models.ridge.gathered import gather
from bochner.selection.choose import choose_for_matrix
from bochner.selection.chosen import Chosen
from bochner.selection.curves import choose_curves
from bochner.selection.record import Tuning
from bochner.selection.search import error_near_median
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
from bochner.solvers.convex.optimum import Convergence, Optimum
from bochner.solvers.convex.penalty_path import FACTOR, TOL, HeldOutPath
from bochner.solvers.convex.problem import best_constant, walk
from bochner.sums.rows import sampled

#: So few rows are fitted with the kernel itself: by factors of their matrix, and by LIBSVM.
EXACT_ROWS, SQUARED_HINGE_ROWS, REGRESSION_ROWS, ONE_CLASS_ROWS = 8192, 2048, 2048, 4096

#: Samples by which the number of support vectors of many rows is extrapolated.
SUPPORT_SAMPLES = 2048, 4096

#: Kernel values of support vectors and all rows, at most, and moves of LIBSVM for each row: for
#: more, features take less time.
MOST_VALUES, MOVES_TRIED = 1 << 28, 20

#: Penalty below which a hinge seldom changes: margins are met.
LEAST_HINGE = 0.03

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


class WhenAsked:
    """A field that may be a function of the value: it is called at the first reading, and kept.

    A copy or a pickle made before that holds the function; a model file holds what it returns.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, value: Any, owner: type) -> Any:
        if value is None:
            return None  # the default
        found = vars(value)[self.name]
        if callable(found):
            found = vars(value)[self.name] = found(value)
        return found

    def __set__(self, value: Any, found: Any) -> None:
        vars(value)[self.name] = found


@dataclass(frozen=True, eq=False)
class ExactConvexFit(ShownFit):
    """A classifier by a convex loss with the kernel itself.

    Attributes
    ----------
    inputs : Inputs
    chosen : Chosen
        Its map is the Nyström map on all rows.
    loss : Loss
    X : (n, d)
        The rows of the fit.
    solution : Optimum
        Coefficients of the kernel and each row.
    n_iter : int
    path : HeldOutPath or None
        Penalties that were compared.
    calibration : Calibration or None
        Fitted when first asked for.
    target_shape : tuple of int
    errors : ErrorLaw or None
        Of new rows, where a regressor's were calibrated.
    pairs : ClassPairs or None
        Of classes, whose values the columns are, where each is told from each other.
    left_out : LeftOutRows or None
        Of a regression: its rows, with f without each.
    """

    inputs: Inputs
    chosen: Chosen
    loss: Loss
    X: Any
    solution: Optimum
    n_iter: int
    path: HeldOutPath | None = None
    calibration: Calibration | None = WhenAsked()  # type: ignore[assignment]
    target_shape: tuple[int, ...] = ()
    errors: ErrorLaw | None = None
    pairs: ClassPairs | None = None
    left_out: LeftOutRows | None = None

    def _found(self) -> Iterator[Fact]:
        """Give the loss, the penalty and the outcome."""
        yield from found_by_loss(self.loss, self.solution, self.path)

    def predictions(self, blocks: Blocks) -> Iterator[tuple[Array, Float[Array, "b t"]]]:
        """Give the rows of one block after the other, and their decision values."""
        return self._sum.values(blocks)

    def gradients(self, blocks: Blocks) -> Iterator[tuple[Array, Float[Array, "b d t"]]]:
        """Give the rows of one block after the other, and the gradients of decision values."""
        found = self._sum.gradients(blocks)
        return found if self.pairs is None else self._of_classes(self.pairs, found)

    def _of_classes(self, pairs: ClassPairs, found: Iterator[tuple[Array, Array]]) -> Iterator[Any]:
        machine = self._sum
        for X, G in found:
            f = machine.at(np.ascontiguousarray(to_numpy(X), np.float64))
            yield X, pairs.gradients(f, G)

    def decisions(self, blocks: Blocks) -> Float[Array, "n t"]:
        """Return the decision values of all rows."""
        found = (f for _, f in self.predictions(blocks))
        return np.concatenate([f if self.pairs is None else self.pairs.values(f) for f in found])

    @property
    def on_features(self) -> Optimum:
        """The solution whose coefficients are those of the features φ, (D, t)."""
        Z = self.chosen.map(self.X)
        return replace(self.solution, coef=to_numpy(Z).T @ self.solution.coef)

    @property
    def _sum(self) -> KernelSum:
        coef = self.solution.coef
        support = np.any(coef != 0, axis=1)
        X = self.X if support.all() else self.X[support]
        return KernelSum(self.chosen.kernel, X, coef[support], self.solution.intercept)


def on_kernel(fit: object, name: str) -> ExactConvexFit:
    """Return a fit with the kernel itself; refuse an attribute of it that other fits lack."""
    if not isinstance(fit, ExactConvexFit):
        raise AttributeError(  # noqa: TRY004  as hasattr() asks
            f"{name}: only a fit with the kernel itself has them; see coef_."
        )
    return fit


def fit_classifier_exactly(
    spec: ConvexSpec, blocks: Blocks, inputs: Inputs, probability: bool = False
) -> ExactConvexFit:
    """Choose the kernel and the penalty, where they are open, and minimise on the matrix of rows.

    Targets of the blocks are codes of classes; ``spec.alpha`` is a number above 0, or "auto".
    """
    learned = Learned(spec.loss, len(inputs.classes), spec.fit_intercept, spec.pairs)
    blocks, unit = in_units(blocks)
    seed, given = spec.features.seed, spec.alpha if isinstance(spec.alpha, float) else None
    rows = class_sample(blocks, seed, learned.n_classes, most=EXACT_ROWS)
    X = rows.X if is_sparse(rows.X) else np.ascontiguousarray(to_numpy(rows.X), np.float64)
    # Near the answer half of a squared hinge's slope is that of squares: alpha/2 is ridge's.
    share = None if given is None else given / unit / 2 / float(rows.w.sum())
    chosen = choose_exactly(spec, sampled(blocks, seed, learned.n_classes), X, share)
    on_rows = OnRows(kernel_matrix(chosen.kernel, X), rows, learned)
    path, near, alpha = None, None, unit if given is None else given
    if given is None and rows.folds:
        path, near = _path(on_rows, chosen)
        alpha = unit * path.alpha
    ended = on_rows.minimised(alpha / unit, None, None, spec.tol, spec.max_iter, near)
    solution = ended.solution.scaled(unit)
    steps = max(1, len(solution.history))
    later: Any = partial(_calibrated, replace(rows, X=X), learned, unit) if probability else None
    return warned(
        ExactConvexFit(inputs, chosen, spec.loss, X, solution, steps, path, later, pairs=spec.pairs)
    )


def _calibrated(
    rows: ClassSample, learned: Learned, unit: float, fit: ExactConvexFit
) -> Calibration | None:
    """Return the calibration of a fit, on decision values of rows held out."""
    if not rows.folds:
        return None
    K, end, start = _matrix(fit.chosen.kernel, rows.X), fit.solution, None
    if len(end.coef) == len(rows.w):
        start = DualPoint(end.coef, end.intercept, K @ end.coef + end.intercept)
    return OnRows(K, rows, learned).calibration(end.alpha / unit, start, unit)


def _matrix(kernel: Kernel, X: Any) -> Any:
    """Return the kernel matrix; of many rows it is not kept."""
    many = X.shape[0] > EXACT_ROWS
    return GaussianRows(kernel, X) if many else kernel_matrix(kernel, X)


def fit_to_support(
    spec: ConvexSpec, blocks: Blocks, inputs: Inputs, probability: bool = False
) -> ExactConvexFit | None:
    """Return the fit of LIBSVM to many rows; None where support vectors are many.

    The number of support vectors is extrapolated from those of two samples, by a power of the
    number of rows. Only of a hinge with an intercept, a Gaussian kernel and a penalty.
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
    blocks, unit = in_units(blocks)
    seed, every = ask.seed, gather(blocks)
    labels = every.y[:, 0], every.w, np.ones(len(every.w))
    rows = rows_to_choose_by(every.X, *labels, seed, learned.n_classes)
    on_rows = OnRows(GaussianRows(ask.kernel, rows.X), rows, learned)
    alpha, order = float(spec.alpha) / unit, stream(seed, "support").permutation(len(rows.w))
    if len(np.unique(rows.codes[order[: SUPPORT_SAMPLES[0]]])) < 2:
        return None
    found = [on_rows.support(alpha, order[:most]) for most in SUPPORT_SAMPLES]
    growth = np.log(found[1] / found[0]) / np.log(SUPPORT_SAMPLES[1] / SUPPORT_SAMPLES[0])
    most = found[1] * (len(order) / SUPPORT_SAMPLES[1]) ** growth
    if not most <= min(EXACT_ROWS, MOST_VALUES / len(order)):
        return None
    ended = on_rows.minimised(alpha, tol=spec.tol, moves=MOVES_TRIED).solution
    if ended.outcome is Convergence.MOST_STEPS:
        return None
    support = np.any(ended.coef != 0, axis=1)
    solution, X = replace(ended.scaled(unit), coef=ended.coef[support]), rows.X[support]
    chosen = choose_exactly(spec, sampled(blocks, seed, learned.n_classes), X, None)
    later: Any = partial(_calibrated, rows, learned, unit) if probability else None
    return ExactConvexFit(inputs, chosen, spec.loss, X, solution, 1, None, later, pairs=spec.pairs)


def rows_on_kernel(loss: Loss, centred: bool) -> int:
    """Return how many rows a loss is minimised for on their kernel matrix, at most."""
    if isinstance(loss, Hinge):
        return EXACT_ROWS if centred else 0
    if isinstance(loss, SquaredHinge):
        return EXACT_ROWS if centred else SQUARED_HINGE_ROWS
    return EXACT_ROWS if isinstance(loss, Logistic | Multinomial) else 0


def _path(on_rows: "OnRows", chosen: Chosen) -> tuple[HeldOutPath, DualPoint | None]:
    """Return penalties and what rows left out lost; of many rows by some, then by more."""
    few, first = on_rows.some(PENALTY_ROWS, chosen.seed)
    if few is on_rows or not few.rows.folds:
        return on_rows.path(chosen.search)
    most = max(DENSE_ROWS, int(EXACT_ROWS / on_rows.learned.columns**0.5))
    dense, kept = on_rows.some(most, chosen.seed)
    path, end = few.path(chosen.search)
    path, end = dense.finer(path, dense.spread(end, np.searchsorted(kept, first)))
    return path, on_rows.spread(end, kept)


def choose_exactly(spec: ConvexSpec, sample: RowSample, X: Array, share: float | None) -> Chosen:
    """Choose how columns are transformed, and the kernel."""
    asked = spec.features
    curves = choose_curves(sample, asked.seed, error_near_median) if asked.bends else None
    if curves is not None:
        sample, X = replace(sample, X=curves.inputs(sample.X)), curves.inputs(X)
    found, metric = choose_for_matrix(asked, sample, share, spec.fit_intercept)
    chosen = Chosen(asked.seed, found, matrix_choice(found, X), metric)
    return chosen if curves is None else chosen.through(curves)


def matrix_choice(found: Tuning, X: Array) -> Choice:
    """Return the map that is the kernel itself on these rows."""
    from bochner.models.ridge.methods import ExactKernel  # noqa: PLC0415

    reason = f"The exact kernel of {X.shape[0]:,} rows, by Cholesky factors of their matrix."
    phi = NystromMap(found.kernel, to_numpy(dense(X)))
    return Choice(phi, ExactKernel(), (), reason + found.reason)


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
        held: Array | None = None,
        tol: float = TOL,
        max_iter: int = 100,
        near: DualPoint | None = None,
        moves: int = MOVES,
    ) -> Any:
        """Return the minimum for the rows but those held out; ``moves`` are those of LIBSVM."""
        learned, w = self.learned, self.rows.w
        problem = KernelProblem(
            self.K,
            learned.targets(self.rows.codes),
            w if held is None else np.where(held, 0.0, w),
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

    def path(self, found: Tuning) -> tuple[HeldOutPath, DualPoint]:
        """Return penalties and what rows left out lost, and where the best ended."""
        largest = float(self.rows.w @ np.diag(self.K)) or 1.0
        lost = _LeftOutOnMatrix(self, largest)
        near = FIRST
        if np.isfinite(found.share) and found.share > 0:
            ridge = 2 * found.share * float(self.rows.w.sum())
            if isinstance(self.learned.loss, Hinge):
                ridge = max(ridge, LEAST_HINGE)
            near = int(np.clip(np.rint(np.log(ridge / largest) / np.log(FACTOR)), 0, LAST_START))
        best = walk(lost, near, NEAREST, LAST)
        steps = sorted(lost.tried)
        errors = np.array([lost(step) for step in steps]) / max(lost(CONSTANT), 1e-300)
        alphas = np.array([lost.alpha(step) for step in steps]) / self.rows.inflation
        return HeldOutPath(alphas, errors), lost.end(best)

    def finer(self, path: HeldOutPath, near: DualPoint) -> tuple[HeldOutPath, DualPoint]:
        """Go on to smaller penalties while folds of these rows, which are more, lose less.

        What some rows take for noise more rows may tell, and more so in sums over columns.
        """
        rows, held = self.rows, replace(self.rows, folds=self.rows.calibrating)
        largest = rows.inflation * path.alpha
        lost, step = _LeftOutOnMatrix(replace(self, rows=held), largest, near), 0
        while step < LAST and (1 - WORTH) * lost(step) > lost(step + FINER):
            step += FINER
        if not step:
            return path, lost.end(0)
        steps, scale = sorted(lost.tried), path.errors[path.best] / max(lost(0), 1e-300)
        errors = scale * np.array([lost(each) for each in steps])
        alphas = np.array([lost.alpha(each) for each in steps]) / rows.inflation
        return HeldOutPath(alphas, errors), lost.end(step)

    def some(self, most: int, seed: int) -> tuple["OnRows", Array]:
        """Return the matrix of so many rows, and which these are; all of them where they are few.

        The same first rows for any number.
        """
        rows, numbers = self.rows.some(most, seed, self.learned.n_classes)
        if rows is self.rows:
            return self, numbers
        return replace(self, K=square_part(self.K, numbers), rows=rows), numbers

    def spread(self, at: DualPoint, numbers: Array) -> DualPoint:
        """Return the point that has coefficients of these rows alone."""
        coef = np.zeros((len(self.K), at.coef.shape[1]))
        coef[numbers] = at.coef
        return DualPoint(coef, at.intercept, symmetric_product(self.K, coef) + at.intercept)

    def support(self, alpha: float, some: Array) -> int:
        """Return how many support vectors a fit to some of the rows has."""
        rows = replace(self.rows, codes=self.rows.codes[some], w=self.rows.w[some])
        K = kernel_matrix(self.K.kernel, self.rows.X[some])
        found = replace(self, K=K, rows=rows).minimised(alpha, moves=MOVES_TRIED).solution
        return int(np.count_nonzero(np.any(found.coef != 0, axis=1)))

    def calibration(self, alpha: float, start: DualPoint | None, unit: float) -> Calibration:
        """Return the calibration on decision values of rows held out, fold by fold."""
        ends = [(held, self.minimised(alpha, start, held).at) for held in self.rows.calibrating]
        f = self.learned.values(np.concatenate([at.fitted[held] for held, at in ends]))
        codes, w = (
            np.concatenate([a[held] for held, _ in ends]) for a in (self.rows.codes, self.rows.w)
        )
        return calibrate(f, codes, unit * w)


class _LeftOutOnMatrix:
    """Loss of the rows left out, for penalties by their step; remembered."""

    def __init__(self, on_rows: OnRows, largest: float, near: DualPoint | None = None) -> None:
        self._on, self._largest, self._near = on_rows, largest, near
        self._ends: list[dict[int, DualPoint]] = [{} for _ in on_rows.rows.folds]
        self.tried: dict[int, float] = {}
        self._endless: set[int] = set()

    def __call__(self, step: int) -> float:
        if step not in self.tried:
            learned = self._on.learned
            sure = isinstance(learned.loss, Hinge) or learned.pairs is not None
            self.tried[step] = self._calibrated(step) if sure else self._summed(step)
        return self.tried[step]

    def alpha(self, step: int) -> float:
        """Return the penalty of a step."""
        return self._largest * FACTOR**step

    def end(self, step: int) -> DualPoint:
        """Return the minimum without the first fold."""
        return self._ends[0][step]

    def _summed(self, step: int) -> float:
        """Return the loss itself."""
        rows, learned, total = self._on.rows, self._on.learned, 0.0
        for held, ends in zip(rows.folds, self._ends, strict=True):
            f = self._constants(held) if step == CONSTANT else self._values(held, step, ends)
            lost = learned.loss.value(learned.targets(rows.codes[held]), f)
            total += float((rows.w[held, None] * lost).sum())
        return total

    def _calibrated(self, step: int) -> float:
        """Return the log loss of calibrated values: a hinge says little of how sure they are.

        Infinite where LIBSVM does not end, and another penalty was judged: too small a one.
        """
        rows, values, found = self._on.rows, self._on.learned.values, []
        for held, ends in zip(rows.folds, self._ends, strict=True):
            f = values(self._values(held, step, ends))
            if step in self._endless and self.tried:
                return np.inf
            found.append((f, rows.codes[held], rows.w[held]))
        return calibrate(*map(np.concatenate, zip(*found, strict=True))).log_loss

    def _constants(self, held: Array) -> Float[Array, "m t"]:
        """Return what the largest penalties leave."""
        rows, learned = self._on.rows, self._on.learned
        y = learned.targets(rows.codes[~held])
        b = learned.fit_intercept * best_constant(learned.loss, y, rows.w[~held, None])
        return np.tile(b, (int(held.sum()), 1))

    def _values(self, held: Array, step: int, ends: dict[int, DualPoint]) -> Float[Array, "m t"]:
        start, near = _nearest(ends, step), self._near
        for others in self._ends:
            near = _nearest(others, step) or near
        found = self._on.minimised(self.alpha(step), start, held, near=near, moves=MOVES_COMPARED)
        if found.solution.outcome is Convergence.MOST_STEPS:
            self._endless.add(step)
        ends[step] = found.at
        return ends[step].fitted[held]


def _nearest(ends: dict[int, DualPoint], step: int) -> DualPoint | None:
    """Return the end of the nearest penalty that is no smaller: small ones end far away."""
    nearest = max((other for other in ends if other <= step), default=None)
    return None if nearest is None else ends[nearest]
