"""What the columns of a table become, learned from their cells in one pass.

The pass adds up what is missing, what is constant and what two columns share, keeps a random sample
of rows for medians and spans, and sums up targets by level for columns of many levels.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from bochner._core.arrays import to_numpy
from bochner._core.shapes import Array, Float
from bochner.data.encoders import (
    FOLDS,
    DroppedColumn,
    Encoder,
    NumberColumn,
    OneHot,
    Ordered,
    OutOfFold,
    TargetMeans,
    TimeColumn,
    folds,
    parts_for,
    shrunk,
)
from bochner.data.sample import RowSample
from bochner.data.sources import Block

#: Levels that have a column of 0 and 1 each; of more, the target means.
MOST_ONE_HOT = 50

#: Classes whose shares are means of a level; of more, the most frequent levels have columns.
MOST_CLASSES = 20

#: A column with a level for every so many rows names its rows.
ROWS_OF_LEVEL = 2

#: Rows whose levels are looked at for that, at least.
FEWEST = 100


@dataclass(frozen=True, eq=False)
class LearnedColumns:
    """What columns become.

    Attributes
    ----------
    encoders : tuple of Encoder
        Empty where columns are numbers without missing ones, which stay as they are.
    out_of_fold : OutOfFold or None
        The target means that the rows of the fit see.
    """

    encoders: tuple[Encoder, ...] = ()
    out_of_fold: OutOfFold | None = None


def learn_columns(
    drafts: Sequence[Encoder], cells: Iterable[Block], seed: int = 0, n_classes: int = 0
) -> LearnedColumns:
    """Learn encoders from the cells of all rows, in one pass.

    Parameters
    ----------
    drafts : sequence of Encoder
        What the cells of each column are: numbers, levels of text, times.
    cells : blocks of cells
        X (n, c) with NaN where cells are missing; y the targets, codes of classes, or None.
    seed : int
        Of the sample of rows.
    n_classes : int
        Above 0, y holds codes of so many classes.

    Notes
    -----
    Memory: a block, a sample of rows, and FOLDS sums for each level of columns of many levels.
    """
    seen = _Seen(tuple(drafts), seed, n_classes)
    for block in cells:
        seen.add(block)
    encoders = tuple(_encoder(draft, j, seen) for j, draft in enumerate(drafts))
    if not any(e.is_lossy or e.levels is not None for e in _without_gaps(encoders)):
        return LearnedColumns()
    tables = {e.name: seen.means[e.name].out_of_fold for e in encoders if e.name in seen.means}
    return LearnedColumns(encoders, OutOfFold(tables) if tables else None)


def _without_gaps(encoders: Iterable[Encoder]) -> list[Encoder]:
    """Return the encoders; constants and copies among complete numbers are no reason to encode."""
    return [e for e in encoders if not (isinstance(e, DroppedColumn) and e.reason in _HARMLESS)]


#: Reasons to leave a column out.
NOTHING, CONSTANT, COPY, NAMES, NO_LEVEL = (
    "all values missing",
    "one value",
    "the same as another column",
    "a text for almost every row",
    "no level that tells more than the others",
)
_HARMLESS = (CONSTANT, COPY)


class _Seen:
    """What the pass has added up so far."""

    def __init__(self, drafts: tuple[Encoder, ...], seed: int, n_classes: int) -> None:
        self.n_classes, self.rows = n_classes, 0
        self.drafts = drafts
        c = len(drafts)
        self.missing = np.zeros(c, np.int64)
        self.least, self.most = np.full(c, np.inf), np.full(c, -np.inf)
        self.marks = np.zeros(c, np.uint64)
        self.seed = seed
        self.sample: RowSample | None = None
        self.counts = {
            j: np.zeros(len(e.levels), np.int64)
            for j, e in enumerate(drafts)
            if e.levels is not None
        }
        self.means: dict[str, _Means] = {}

    def add(self, block: Block) -> None:
        """Take in the cells of a block."""
        X = np.asarray(block.X, np.float64)
        gone = np.isnan(X)
        self.rows += len(X)
        self.missing += gone.sum(axis=0)
        self.least = np.minimum(self.least, np.where(gone, np.inf, X).min(axis=0))
        self.most = np.maximum(self.most, np.where(gone, -np.inf, X).max(axis=0))
        self.marks += _marks(X, block.start)
        new = RowSample.of(block._replace(X=X), self.seed)
        self.sample = new if self.sample is None else self.sample.merge(new)
        for j, counts in self.counts.items():
            known = X[X[:, j] >= 0, j].astype(np.intp)
            counts[:] += np.bincount(known, minlength=len(counts))
            if len(counts) > MOST_ONE_HOT and block.y is not None:
                self._average(j, X[:, j], block)

    def _average(self, j: int, cells: Array, block: Block) -> None:
        y = _targets(to_numpy(block.y), self.n_classes)
        if y is None:
            return
        draft = self.drafts[j]
        names = draft.levels or ()
        zero = partial(_Means, len(names), y.shape[1])
        sums = self.means.get(draft.name) or self.means.setdefault(draft.name, zero())
        w = np.ones(len(y)) if block.w is None else to_numpy(block.w).astype(np.float64)
        places = np.where(np.isnan(cells), len(names), cells).astype(np.intp)
        sums.add(places, folds(block.start, len(y)), y, w)

    def sampled(self, j: int) -> Float[Array, " m"]:
        """Return cells of a column in random rows that are not missing."""
        cells = np.empty(0) if self.sample is None else self.sample.X[:, j]
        held = cells[np.isfinite(cells)]
        return held if len(held) else np.array([self.least[j]])


def _targets(y: Array, n_classes: int) -> Float[Array, "n t"] | None:
    """Return targets, or indicators of classes: of the second of two, of all of more."""
    if not n_classes:
        return y.reshape(len(y), -1).astype(np.float64)
    if n_classes > MOST_CLASSES:
        return None
    classes = [1] if n_classes == 2 else range(n_classes)
    return (y.reshape(-1, 1) == np.array(classes)).astype(np.float64)


def _marks(X: Array, start: int) -> Array:
    """Return a number for each column that columns of the same cells share, and no others."""
    rows = np.arange(start + 1, start + len(X) + 1, dtype=np.uint64)
    odd = (rows * np.uint64(0x9E3779B97F4A7C15)) | np.uint64(1)
    bits = np.where(np.isnan(X), -1e308, X + 0.0).view(np.uint64)
    bits = (bits ^ (bits >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (bits ^ (bits >> np.uint64(32))) * odd[:, None]
    return (mixed ^ (mixed >> np.uint64(31))).sum(axis=0, dtype=np.uint64)


class _Means:
    """Sums of targets by fold and level; missing cells are a level of their own, the last."""

    def __init__(self, levels: int, t: int) -> None:
        self.shape = (FOLDS, levels + 1)
        self.count = np.zeros(self.shape)
        self.total, self.square = np.zeros((*self.shape, t)), np.zeros((*self.shape, t))

    def add(self, places: Array, fold: Array, y: Array, w: Array) -> None:
        """Add rows."""
        cell = np.ravel_multi_index((fold, places), self.shape)
        size = self.shape[0] * self.shape[1]
        self.count += np.bincount(cell, w, size).reshape(self.shape)
        for i in range(y.shape[1]):
            self.total[:, :, i] += np.bincount(cell, w * y[:, i], size).reshape(self.shape)
            self.square[:, :, i] += np.bincount(cell, w * y[:, i] ** 2, size).reshape(self.shape)

    def without(self, fold: int | None) -> tuple[Array, Array]:
        """Return the means of levels and of all, of rows of other folds."""
        kept = [k for k in range(FOLDS) if k != fold]
        return shrunk(*(a[kept].sum(axis=0) for a in (self.count, self.total, self.square)))

    @property
    def out_of_fold(self) -> Float[Array, "k l t"]:
        """Means by fold and level, then that of all rows."""
        pairs = (self.without(fold) for fold in range(FOLDS))
        return np.stack([np.vstack([means, prior]) for means, prior in pairs])


# --- The encoder of one column -------------------------------------------------------------------


def _encoder(draft: Encoder, j: int, seen: _Seen) -> Encoder:
    """Return what a column becomes."""
    if isinstance(draft, DroppedColumn):
        return draft
    gaps = bool(seen.missing[j])
    if reason := _reason(draft, j, seen, gaps):
        return DroppedColumn(draft.name, reason)
    match draft:
        case NumberColumn():
            return replace(draft, fill=_median(seen, j), indicator=gaps)
        case Ordered():
            place = _median(seen, j) / max(1, len(draft.of) - 1)
            return replace(draft, fill=place, indicator=gaps)
        case TimeColumn():
            middle = _median(seen, j)
            parts = parts_for(seen.sampled(j), "trend" not in draft.parts)
            return replace(draft, parts=parts, origin=middle, fill=middle, indicator=gaps)
    return _of_levels(draft, j, seen, gaps)


def _reason(draft: Encoder, j: int, seen: _Seen, gaps: bool) -> str:
    """Return why a column tells rows apart by nothing, "" if it does not."""
    if seen.missing[j] == seen.rows:
        return NOTHING
    if seen.least[j] == seen.most[j] and not gaps:
        return CONSTANT
    copies = (i for i in range(j) if seen.marks[i] == seen.marks[j])
    return COPY if any(_alike(draft, seen.drafts[i]) for i in copies) else ""


def _alike(a: Encoder, b: Encoder) -> bool:
    """Whether equal cells of two columns mean the same."""
    same = type(a) is type(b)
    return same and (a.levels is None or len(a.levels) == len(b.levels or ()))


def _median(seen: _Seen, j: int) -> float:
    return float(np.median(seen.sampled(j)))


def _of_levels(draft: Encoder, j: int, seen: _Seen, gaps: bool) -> Encoder:
    levels, counts = draft.levels or (), seen.counts[j]
    if len(levels) <= MOST_ONE_HOT:
        return OneHot(draft.name, levels, gaps)
    held = seen.rows - int(seen.missing[j])
    if len(levels) * ROWS_OF_LEVEL > held >= FEWEST:
        return DroppedColumn(draft.name, NAMES)
    if draft.name in seen.means:
        means, prior = seen.means[draft.name].without(None)
        if not np.any(np.ptp(means[: len(levels)], axis=0) > 1e-9 * (1 + np.abs(prior))):
            return DroppedColumn(draft.name, NO_LEVEL)
        return TargetMeans(
            draft.name, levels, tuple(map(tuple, means.tolist())), tuple(prior.tolist())
        )
    frequent = np.sort(np.argsort(-counts, kind="stable")[:MOST_ONE_HOT])
    return OneHot(draft.name, tuple(levels[k] for k in frequent), gaps, others=True)
