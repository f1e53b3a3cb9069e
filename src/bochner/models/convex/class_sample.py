"""Sample of rows by which the penalty of a classifier is chosen, and the problem of its classes."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bochner._core.arrays import to_numpy
from bochner._core.random import stream
from bochner._core.shapes import Array, Bool, Float, Int
from bochner.data.blocks import Blocks, count_rows
from bochner.data.sample import RowSample
from bochner.data.sources import Block, Piece, part
from bochner.models._rows import N_FOLDS, row_marks
from bochner.models.convex.pairs import ClassPairs
from bochner.models.convex.units import unit_of
from bochner.solvers.convex.losses import Loss
from bochner.solvers.convex.penalty_path import HeldOutLoss
from bochner.sums.executor import LOCAL, Executor
from bochner.sums.rows import indicators, sampled

#: Rows of the sample, and more of rare classes: each has MOST/2K rows of K classes, if there are.
MOST = 4096

#: Rows in the folds that are left out for probabilities.
CALIBRATED = 1000

#: Rows outside the largest class in the folds that are left out for a penalty.
ENOUGH = 200


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
        """Return −1 and +1 of the classes' codes, or ones in their columns for a joint loss."""
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

    def some(self, most: int, seed: int, n_classes: int) -> tuple["ClassSample", Array]:
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
        whole = np.bincount(codes, self.w, minlength=n_classes)
        have = np.bincount(codes[numbers], self.w[numbers], minlength=n_classes)
        stands = (whole / np.where(have > 0, have, 1.0))[codes[numbers]]
        rows = part(Piece(self.X), numbers).X, self.codes[numbers], self.w[numbers]
        return rows_to_choose_by(*rows, stands, seed, n_classes), numbers


class ClassesLeftOut(HeldOutLoss):
    """Loss of the rows left out of a sample of classes."""

    def __init__(self, rows: ClassSample, learned: Learned, largest: float) -> None:
        super().__init__(largest)
        self.rows, self.learned = rows, learned
        self.ends: list[dict[int, Any]] = [{} for _ in rows.folds]

    @abstractmethod
    def values(self, step: int, fold: int, held: Array) -> Float[Array, "m t"]:
        """Return decision values of the rows of a fold by the minimum without them."""

    def lost(self, step: int) -> float:
        rows, learned, total = self.rows, self.learned, 0.0
        for fold, held in enumerate(rows.folds):
            y = learned.targets(rows.codes[held])
            loss = learned.loss.value(y, self.values(step, fold, held))
            total += float((rows.w[held, None] * loss).sum())
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
    for held in kept.values():
        common = common.merge(held)
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
    beside = len(different) - int(np.bincount(codes[first], minlength=n_classes).max())
    every = every if beside > 1 else []
    serve = every[: max(1, -(-N_FOLDS * ENOUGH // max(beside, 1)))]
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
    held = np.cumsum([int(np.count_nonzero(fold)) for fold in folds])
    return tuple(folds[: int(np.searchsorted(held, CALIBRATED)) + 1])
