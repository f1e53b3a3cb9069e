"""Classification by convex losses on features.

The penalty is chosen on a sample of m rows, with more rows of rare classes: the learner's own loss
is minimised without each fold for penalties on a grid of half decades, downhill, each fit starting
from its neighbour's end. A row represents r rows of its class, so that the noise of the sample is
the noise of all rows times

    r̄ = Σ r² w g² / Σ r w g²,      g the slopes of the loss at the best constant,

and as the best penalty grows with the variance of the noise, all rows take alpha = alpha_m/r̄: C
stays the same where all classes are thinned alike.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from bochner._core.arrays import to_numpy, unit_of
from bochner._core.progress import progress
from bochner._core.random import stream
from bochner._core.shapes import Array, Bool, Float, Int
from bochner.data.blocks import Blocks, count_rows
from bochner.data.sample import RowSample
from bochner.data.schema import Inputs
from bochner.data.sources import Block, Piece, part
from bochner.errors import UnsupportedKernel
from bochner.features.fourier.fourier import Fourier
from bochner.features.fourier.placements import IID, Orthogonal
from bochner.features.map import FeatureMap
from bochner.features.method import Request
from bochner.features.rules import draw_map
from bochner.kernels.kernel import Kernel
from bochner.models._calibration import Calibration, calibrate
from bochner.models._rows import N_FOLDS, FeatureBlock, Features, Kept, fold_numbers, row_marks
from bochner.models.convex.fit import ClassPairs, ConvexFit, ConvexSpec, features_of, warned
from bochner.selection.candidates import FEWEST
from bochner.selection.choose import choose
from bochner.selection.chosen import Chosen, FeatureSpec, moments_of
from bochner.selection.spec import NAMED
from bochner.selection.walk import choose_lengthscale
from bochner.solvers.convex.driver import minimise
from bochner.solvers.convex.losses import Loss
from bochner.solvers.convex.optimum import Optimum
from bochner.solvers.convex.penalty_path import (
    CONSTANT,
    FARTHEST,
    FIRST,
    NEAREST,
    TOL,
    HeldOutLoss,
    HeldOutPath,
)
from bochner.solvers.convex.problem import TargetsOf, forward, images, walk
from bochner.sums.executor import LOCAL, Executor
from bochner.sums.rows import indicators, sampled

# --- The sample of rows by which the penalty of a classifier is chosen ----------------------------

#: Rows of the sample, and more of rare classes: each has MOST/2K rows of K classes, if there are.
MOST = 4096

CALIBRATED = 1000  # Rows in the folds that are left out for probabilities
ENOUGH = 200  # Rows outside the largest class in the folds that are left out for a penalty


@dataclass(frozen=True)
class Learned:
    """The loss of a classifier and the columns of its problem."""

    loss: Loss
    n_classes: int
    fit_intercept: bool
    pairs: ClassPairs | None = None  # pairs of classes, if each is separated from each other

    @property
    def columns(self) -> int:
        """Columns of the problem."""
        if self.pairs is not None:
            return self.pairs.columns
        return 1 if self.n_classes == 2 and not self.loss.joint else self.n_classes

    def targets(self, codes: Array) -> Float[Array, "m t"]:
        """Return targets of −1 and +1 from class codes, or one-hot columns for a joint loss."""
        if self.pairs is not None:
            return self.pairs.targets(codes)
        if self.loss.joint:
            return (codes[:, None] == np.arange(self.n_classes)).astype(np.float64)
        return indicators(codes, self.n_classes)

    def values(self, f: Float[Array, "m t"]) -> Float[Array, "m K"]:
        """Return the values of classes from the values of the problem's columns."""
        return f if self.pairs is None else self.pairs.values(f)


@dataclass(frozen=True, eq=False)
class ClassSample:
    """Rows by which the penalty is chosen."""

    X: Array
    codes: Float[Array, " m"]
    w: Float[Array, " m"]  # their weights, times the rows of their class that each represents
    inflation: float  # r̄
    folds: tuple[Array, ...]  # rows that each fold leaves out; () where rows are too few
    distinct: int  # different rows that are left out
    every_fold: tuple[Array, ...] = ()  # also the folds that a choice does not need

    @property
    def calibrating(self) -> tuple[Array, ...]:
        """Folds whose rows probabilities are calibrated on."""
        return enough_folds(self.every_fold)

    @property
    def copies(self) -> Float[Array, " m"]:
        """Weights as numbers of copies of rows; the largest is a half or above."""
        largest = float(self.w.max())
        return self.w if largest >= 1 else self.w / (2 * unit_of(largest))

    def subsample(self, most: int, seed: int, n_classes: int) -> tuple["ClassSample", Array]:
        """Return ``most`` rows, with more of rare classes, and their numbers."""
        codes = self.codes.astype(np.int64)
        if len(codes) <= most:
            return self, np.arange(len(codes))
        order = stream(seed, "some of the rows").permutation(len(codes))
        kept = np.isin(np.arange(len(codes)), order[:most])
        rare = most // (2 * n_classes)
        for k in np.flatnonzero(np.bincount(codes[kept], minlength=n_classes) < rare):
            kept[order[codes[order] == k][:rare]] = True
        numbers = np.flatnonzero(kept)
        counts = np.bincount(codes, self.w, minlength=n_classes)
        have = np.bincount(codes[numbers], self.w[numbers], minlength=n_classes)
        stands = (counts / np.where(have > 0, have, 1.0))[codes[numbers]]
        rows = part(Piece(self.X), numbers).X, self.codes[numbers], self.w[numbers]
        return rows_to_choose_by(*rows, stands, seed, n_classes), numbers


class ClassesLeftOut(HeldOutLoss):
    """Loss of the rows left out of a sample of classes."""

    def __init__(self, rows: ClassSample, learned: Learned, largest: float) -> None:
        super().__init__(largest)
        self.rows, self.learned = rows, learned
        self.ends: list[dict[int, Any]] = [{} for _ in rows.folds]

    @abstractmethod
    def values(self, step: int, fold: int, fold_rows: Array) -> Float[Array, "m t"]:
        """Return decision values of the rows of a fold by the minimum without them."""

    def lost(self, step: int) -> float:
        rows, learned, total = self.rows, self.learned, 0.0
        for fold, fold_rows in enumerate(rows.folds):
            y = learned.targets(rows.codes[fold_rows])
            loss = learned.loss.value(y, self.values(step, fold, fold_rows))
            total += float((rows.w[fold_rows, None] * loss).sum())
        return total

    def end(self, step: int) -> Any:
        """Return the minimum without the first fold."""
        return self.ends[0][step]


def class_sample(
    blocks: Blocks, seed: int, n_classes: int, where: Executor = LOCAL, most: int = MOST
) -> ClassSample:
    """Return the rows to choose by, all of them where they are few; two passes at most."""
    rows = sampled(blocks, seed, where=where).lowest(most)
    stands = np.ones(len(rows))
    if count_rows(blocks) > most:
        rows, stands = _with_rare(rows, blocks, seed, n_classes, most, where)
    return rows_to_choose_by(rows.X, rows.y[:, 0], rows.w, stands, seed, n_classes)


def rows_to_choose_by(
    X: Array,
    codes: Float[Array, " m"],
    w: Float[Array, " m"],
    stands: Float[Array, " m"],
    seed: int,
    n_classes: int,
) -> ClassSample:
    """Return the sample of rows that each represent ``stands`` rows of their class."""
    w = stands * w
    shares = np.bincount(codes.astype(np.int64), w, minlength=n_classes) / w.sum()
    squares = (1 - shares[codes.astype(np.int64)]) ** 2
    inflation = float((stands * w * squares).sum() / max((w * squares).sum(), 1e-300)) or 1.0
    folds, distinct, every = _folds(X, codes, seed, n_classes)
    return ClassSample(X, codes, w, inflation, folds, distinct, every)


def _with_rare(
    rows: RowSample, blocks: Blocks, seed: int, n_classes: int, most: int, where: Executor
) -> tuple[RowSample, Float[Array, " m"]]:
    """Return the rows with more of rare classes, and the number each represents; one pass."""
    most = most // (2 * n_classes)
    many = np.bincount(rows.y[:, 0].astype(np.int64), minlength=n_classes)
    rare = tuple(np.flatnonzero(many < most).tolist())
    weights, kept = where.sum(RareRows(rare, n_classes, most, seed), blocks)
    common = rows.take(np.flatnonzero(~np.isin(rows.y[:, 0], rare)))
    for fold_rows in kept.values():
        common = common.merge(fold_rows)
    codes = common.y[:, 0].astype(np.int64)
    have = np.bincount(codes, common.w, minlength=n_classes)
    return common, (weights / np.where(have > 0, have, 1.0))[codes]


@dataclass(frozen=True)
class RareRows:
    """The weight of each class, and ``most`` rows of each of some classes."""

    classes: tuple[int, ...]
    n_classes: int
    most: int
    seed: int

    def zero(self) -> tuple[Float[Array, " K"], dict[int, RowSample]]:
        return np.zeros(self.n_classes), {}

    def add(
        self, total: tuple[Array, dict[int, RowSample]], block: Block
    ) -> tuple[Array, dict[int, RowSample]]:
        codes = to_numpy(block.y).astype(np.int64)
        w = np.ones(len(codes)) if block.w is None else to_numpy(block.w).astype(np.float64)
        weights = np.bincount(codes, w, minlength=self.n_classes)
        parts = (k for k in self.classes if np.any(codes == k))
        samples = {
            k: RowSample.of(block._replace(w=np.where(codes == k, w, 0.0)), self.seed)
            for k in parts
        }
        return self.merge(total, (weights, samples))

    def merge(
        self, a: tuple[Array, dict[int, RowSample]], b: tuple[Array, dict[int, RowSample]]
    ) -> tuple[Array, dict[int, RowSample]]:
        kept = dict(a[1])
        for k, other in b[1].items():
            kept[k] = (kept[k].merge(other) if k in kept else other).lowest(self.most)
        return a[0] + b[0], dict(sorted(kept.items()))


def _folds(
    X: Array, codes: Float[Array, " m"], seed: int, n_classes: int
) -> tuple[tuple[Array, ...], int, tuple[Array, ...]]:
    """Return folds that have some rows and leave some of every class, and how many these are.

    As many as are needed for a choice; and all.
    """
    marks, codes = row_marks(X, seed), codes.astype(np.int64)
    different, first = np.unique(marks, return_index=True)
    every = serving(np.searchsorted(different, marks) % N_FOLDS, codes, codes >= 0, n_classes)
    others = len(different) - int(np.bincount(codes[first], minlength=n_classes).max())
    every = every if others > 1 else []
    serve = every[: max(1, -(-N_FOLDS * ENOUGH // max(others, 1)))]
    distinct = len(np.unique(marks[np.logical_or.reduce(serve)])) if serve else 0
    return tuple(serve), distinct, tuple(every)


def serving(
    numbers: Array, codes: Int[Array, " n"], counts: Bool[Array, " n"], n_classes: int
) -> list[Bool[Array, " n"]]:
    """Return the rows of each fold that has some and leaves some of every class.

    Only rows that count are looked at.
    """
    inside = np.zeros((N_FOLDS, n_classes), np.int64)
    np.add.at(inside, (numbers, codes), counts)
    serves = inside.any(axis=1) & (inside < inside.sum(axis=0)).all(axis=1)
    return [numbers == fold for fold in np.flatnonzero(serves)]


def enough_folds(folds: Sequence[Array]) -> tuple[Array, ...]:
    """Return the first folds that hold rows enough to calibrate probabilities, or all."""
    counts = np.cumsum([int(np.count_nonzero(fold)) for fold in folds])
    return tuple(folds[: int(np.searchsorted(counts, CALIBRATED)) + 1])


#: Products n·D² up to which a fit in float64 takes no noticeable time. Decisions need no more than
#: float32.
SMALL = 1e8

#: Rows that probabilities are calibrated on, at most: four numbers are fitted.
CALIBRATION_ROWS = 50_000

#: Another lengthscale must lower the loss by this share over the square root of the number of rows
#: left out; a smaller gain may be chance.
CHANCE = 0.3

#: Features that lengthscales are compared on, and octaves between lengthscales at most.
TRIED_FEATURES, OCTAVES = 512, 6

MOST_CELLS = 1 << 24  # Cells m·D·t of a fit, at most, for lengthscales to be compared


def fit_classifier(
    spec: ConvexSpec,
    blocks: Blocks,
    inputs: Inputs,
    probability: bool = False,
    where: Executor = LOCAL,
) -> ConvexFit:
    """Choose kernel and penalty where they are open, and minimise the loss on features.

    Targets of the blocks are codes of classes; ``spec.alpha`` is a number or "auto".
    """
    learned = Learned(spec.loss, len(inputs.classes), spec.fit_intercept, spec.pairs)
    seed = spec.features.seed
    rows = cache(lambda: class_sample(blocks, seed, learned.n_classes, where))
    chosen, near = _chosen(spec, blocks, learned, rows, where)
    path, start, alpha = None, None, spec.alpha
    if not isinstance(alpha, float):
        alpha = 1.0
        if rows().folds:  # else rows are too few to leave some of a class out
            path, start = chosen_penalty(chosen.map, rows(), learned, near)
            alpha = path.alpha
    features = features_of(chosen, blocks, where)
    features.keep()
    streamed = not (features.cached or spec.loss.nonsmooth)
    moments = moments_of(chosen, blocks, "float32", where) if streamed else None
    solution = _minimum(spec, learned, features, alpha, start, moments)
    calibration = None
    if probability:
        calibration = _calibrated(spec, learned, features, blocks, seed, solution, where)
    steps = max(1, len(solution.history))
    return warned(
        ConvexFit(inputs, chosen, spec.loss, solution, steps, path, calibration, pairs=spec.pairs)
    )


def _minimum(
    spec: ConvexSpec,
    learned: Learned,
    rows: Any,
    alpha: float,
    start: Optimum | None,
    moments: Any = None,
    held_out: Array | None = None,
) -> Optimum:
    return minimise(
        rows,
        learned.loss,
        alpha,
        fit_intercept=learned.fit_intercept,
        start=start,
        moments=moments,
        targets=learned.targets,
        held_out=held_out,
        tol=spec.tol,
        max_iter=spec.max_iter,
    )


def _chosen(
    spec: ConvexSpec,
    blocks: Blocks,
    learned: Learned,
    rows: Callable[[], "ClassSample"],
    where: Executor,
) -> tuple[Chosen, int]:
    """Choose kernel and map where they are open; also return the likely step of the penalty."""
    ask, near = spec.features, FIRST
    if ask.kernel == "auto" and ask.effort is not None and len(rows().w) < FEWEST:
        ask = replace(ask, kernel="gaussian")
    alpha = spec.alpha if isinstance(spec.alpha, float) else None

    def search(kernel: Any, sample: RowSample) -> Any:
        nonlocal near
        tuning, near = chosen_kernel(kernel, sample, rows(), learned, ask)
        return tuning

    # Near the minimum a squared hinge has twice the slope of squares: ridge takes alpha/2.
    given = alpha / 2 if alpha else None
    named = isinstance(ask.kernel, str) and (ask.kernel != "auto" or ask.effort is None)
    by_loss = alpha is None and named and not ask.learns_metric
    chosen, _ = choose(
        ask,
        blocks,
        n_classes=learned.n_classes,
        alpha=given,
        search=search if by_loss else None,
        where=where,
    )
    small = count_rows(blocks) * chosen.n_features**2 <= SMALL
    double = small if ask.precision == "auto" else ask.precision == "float64"
    return replace(chosen, precision="float64" if double else "float32"), near


# --- probabilities -------------------------------------------------------------------------------


def _calibrated(
    spec: ConvexSpec,
    learned: Learned,
    features: Features,
    blocks: Blocks,
    seed: int,
    start: Optimum,
    where: Executor,
) -> Calibration | None:
    """Return the calibration on decision values of rows held out; None where none can be.

    Each fold must leave rows of every class: without them the intercept is any number.
    """
    y, w = map(np.concatenate, zip(*features.sum(TargetsOf()), strict=True))
    numbers = fold_numbers(blocks, w, seed, where)
    folds = serving(numbers, y.astype(np.int64), w > 0, learned.n_classes)
    values: list[tuple[Array, Array, Array]] = []
    for fold_rows in enough_folds(folds):
        theta = _minimum(spec, learned, features, start.alpha, start, held_out=fold_rows).theta
        values.append(
            (learned.values(images(features, theta)[fold_rows]), y[fold_rows], w[fold_rows])
        )
    if not values:
        return None
    f, codes, w = map(np.concatenate, zip(*values, strict=True))
    step = -(-len(f) // CALIBRATION_ROWS)
    return calibrate(f[::step], codes[::step], w[::step])


# --- penalty and lengthscale ---------------------------------------------------------------------


class FeaturesLeftOut(ClassesLeftOut):
    """Loss of the rows left out, on the features of one map."""

    def __init__(self, phi: FeatureMap, rows: ClassSample, learned: Learned) -> None:
        single = len(rows.w) * phi.n_features**2 > SMALL
        self._Z = Z = to_numpy(phi(rows.X)).astype(np.float32 if single else np.float64)
        squares = (Z.astype(np.float64) ** 2).sum(axis=1)
        super().__init__(rows, learned, float(rows.w @ squares) or 1.0)

    def values(self, step: int, fold: int, fold_rows: Array) -> Float[Array, "m t"]:
        rows, learned, ends = self.rows, self.learned, self.ends[fold]
        near = min(ends, key=lambda other: abs(other - step), default=None)
        ends[step] = end = minimise(
            Kept(FeatureBlock(self._Z, rows.codes, rows.w, 0)),
            learned.loss,
            self.alpha(step),
            fit_intercept=learned.fit_intercept,
            start=None if near is None else ends[near],
            targets=learned.targets,
            held_out=fold_rows,
            tol=TOL,
        )
        progress("Choosing the penalty", f"{self.alpha(step):.3g}, one fold")
        return forward(np.ascontiguousarray(self._Z[fold_rows]), end.theta)


def chosen_penalty(
    phi: FeatureMap, rows: ClassSample, learned: Learned, near: int = FIRST
) -> tuple[HeldOutPath, Optimum]:
    """Return penalties for all rows with the losses of rows left out, and a minimum at the best."""
    lost = FeaturesLeftOut(phi, rows, learned)
    best = walk(lost, near, NEAREST, FARTHEST)
    return lost.path(lost(CONSTANT), rows.inflation), lost.end(best)


def chosen_kernel(
    name: str, sample: RowSample, rows: ClassSample, learned: Learned, ask: FeatureSpec
) -> tuple[Any, int]:
    """Return the search for the kernel of this name, and the step of its best penalty.

    It starts at the lengthscale that is best for ridge regression, and moves by octaves while the
    loss of rows left out falls by more than chance.
    """
    width, seed = ask.width_to_search, ask.seed
    tuning = choose_lengthscale(name, sample, width, seed)
    width = min(width, TRIED_FEATURES)
    small = len(rows.w) * width * learned.columns <= MOST_CELLS
    if name in ("linear", "auto") or not small or not rows.folds:
        return tuning, FIRST
    best: dict[int, tuple[float, int]] = {}

    def error(octaves: int, near: int) -> float:
        if octaves not in best:
            kernel = _scaled(name, tuning.kernel, 2.0**octaves)
            left_out = FeaturesLeftOut(_quick(kernel, rows.X.shape[1], width, seed), rows, learned)
            step = walk(left_out, near, NEAREST, FARTHEST)
            best[octaves] = left_out(step), step
        return best[octaves][0]

    here, lower = 0, 1 - CHANCE / rows.distinct**0.5
    least = error(0, FIRST)
    for direction in (1, -1):
        while abs(here + direction) <= OCTAVES and (
            error(here + direction, best[here][1]) < lower * least
        ):
            here += direction
            least = error(here, 0)
        if here:
            break
    kernel = tuning.kernel if not here else _scaled(name, tuning.kernel, 2.0**here)
    return replace(tuning, kernel=kernel), best[here][1]


def _scaled(name: str, kernel: Kernel, factor: float) -> Kernel:
    scale: Any = kernel.get_params()["lengthscale"]
    longer = tuple(factor * s for s in scale) if isinstance(scale, tuple) else factor * scale
    return NAMED[name](longer)


def _quick(kernel: Kernel, n_inputs: int, width: int, seed: int) -> FeatureMap:
    """Return the map that lengthscales are compared on, as for ridge regression."""
    ask = Request(n_inputs, max(2, width - width % 2), seed, ("lengthscale",))
    try:
        return draw_map(Fourier(Orthogonal()), kernel, ask)
    except UnsupportedKernel:
        return draw_map(Fourier(IID()), kernel, ask)
