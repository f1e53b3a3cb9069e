"""What the columns of a table become, learned from their cells in one pass.

The pass adds up what is missing, what is constant and what two columns share, keeps a random sample
of rows for medians and spans, and sums up targets by level for columns of many levels.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from bochner._core.arrays import to_numpy
from bochner._core.shapes import Array, Float, Int
from bochner.data.encoders import (
    FOLDS,
    MOST_CODED,
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

#: Rows that half of the levels have, from which on a code tells them apart beside their means: what
#: other columns do at a level cannot be learned from fewer.
ROWS_OF_CODE = 10

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


@dataclass(frozen=True, eq=False)
class LevelSums:
    """Sums of targets by fold and level; missing cells are a level of their own, the last.

    Attributes
    ----------
    count : (k, l)
    total, square : (k, l, t)
    """

    count: Float[Array, "k l"]
    total: Float[Array, "k l t"]
    square: Float[Array, "k l t"]

    def __add__(self, other: "LevelSums") -> "LevelSums":
        pairs = zip(self._parts, other._parts, strict=True)
        return LevelSums(*(a + b for a, b in pairs))

    def without(self, fold: int | None) -> tuple[Array, Array]:
        """Return the means of levels and of all, of rows of other folds."""
        kept = [k for k in range(FOLDS) if k != fold]
        return shrunk(*(part[kept].sum(axis=0) for part in self._parts))

    @property
    def out_of_fold(self) -> Float[Array, "k l t"]:
        """Means by fold and level, then that of all rows."""
        pairs = (self.without(fold) for fold in range(FOLDS))
        return np.stack([np.vstack([means, prior]) for means, prior in pairs])

    @property
    def _parts(self) -> tuple[Array, Array, Array]:
        return self.count, self.total, self.square


@dataclass(frozen=True, eq=False)
class SeenCells:
    """What a pass over cells adds up, column by column.

    Attributes
    ----------
    rows : int
    missing : (c,)
        How many cells are.
    least, most : (c,)
        Of cells that are not missing.
    marks : (c,)
        Columns of the same cells have the same, and no others.
    sample : RowSample or None
        Random rows; None of no rows.
    counts : dict
        How often each level occurs, by the number of the column.
    means : dict
        Sums of targets by level, by the name of the column, where it has many levels.
    """

    rows: int
    missing: Int[Array, " c"]
    least: Float[Array, " c"]
    most: Float[Array, " c"]
    marks: Array
    sample: RowSample | None
    counts: dict[int, Array]
    means: dict[str, LevelSums]

    def sampled(self, j: int) -> Float[Array, " m"]:
        """Return cells of a column in random rows that are not missing."""
        cells = np.empty(0) if self.sample is None else self.sample.X[:, j]
        held = cells[np.isfinite(cells)]
        return held if len(held) else np.array([self.least[j]])


@dataclass(frozen=True)
class CellsOf:
    """The summand of :class:`SeenCells`: of cells with NaN where they are missing.

    Memory: a block, a sample of rows, and FOLDS sums for each level of columns of many levels.

    Attributes
    ----------
    drafts : tuple of Encoder
        What the cells of each column are.
    seed : int
        Of the sample of rows.
    n_classes : int
        Above 0, targets are codes of so many classes.
    with_targets : bool
        Whether targets are looked at, where there are any.
    """

    drafts: tuple[Encoder, ...]
    seed: int = 0
    n_classes: int = 0
    with_targets: bool = True

    def zero(self) -> SeenCells:
        """Return what no rows show."""
        c = len(self.drafts)
        levels = {j: len(e.levels) for j, e in enumerate(self.drafts) if e.levels is not None}
        return SeenCells(
            rows=0,
            missing=np.zeros(c, np.int64),
            least=np.full(c, np.inf),
            most=np.full(c, -np.inf),
            marks=np.zeros(c, np.uint64),
            sample=None,
            counts={j: np.zeros(count, np.int64) for j, count in levels.items()},
            means={},
        )

    def add(self, total: SeenCells, block: Block) -> SeenCells:
        """Take in the cells of a block."""
        X = np.asarray(to_numpy(block.X), np.float64)
        columns = np.ascontiguousarray(X.T)  # reductions along rows in memory are many times faster
        gone = np.isnan(columns)
        new = SeenCells(
            rows=len(X),
            missing=gone.sum(axis=1),
            least=np.where(gone, np.inf, columns).min(axis=1),
            most=np.where(gone, -np.inf, columns).max(axis=1),
            marks=_marks(columns, block.start),
            sample=RowSample.of(block._replace(X=X), self.seed),
            counts={j: _counted(X[:, j], len(count)) for j, count in total.counts.items()},
            means=self._means(X, block),
        )
        return self.merge(total, new)

    def merge(self, a: SeenCells, b: SeenCells) -> SeenCells:
        """Return what the rows of both show."""
        return SeenCells(
            rows=a.rows + b.rows,
            missing=a.missing + b.missing,
            least=np.minimum(a.least, b.least),
            most=np.maximum(a.most, b.most),
            marks=a.marks + b.marks,
            sample=_sample_of(a.sample, b.sample),
            counts={j: count + b.counts[j] for j, count in a.counts.items()},
            means={name: _both(a.means, b.means, name) for name in a.means | b.means},
        )

    def _means(self, X: Array, block: Block) -> dict[str, LevelSums]:
        """Return sums of targets for columns of many levels."""
        looked = self.with_targets and block.y is not None
        y = _targets(to_numpy(block.y), self.n_classes) if looked else None
        if y is None:
            return {}
        levels = ((j, e.name, len(e.levels or ())) for j, e in enumerate(self.drafts))
        many = (column for column in levels if column[2] > MOST_ONE_HOT)
        return {name: _level_sums(X[:, j], count, y, block) for j, name, count in many}


def _sample_of(a: RowSample | None, b: RowSample | None) -> RowSample | None:
    """Return the sample of the rows of both."""
    if a is None or b is None:
        return b if a is None else a
    return a.merge(b)


def _both(a: dict[str, LevelSums], b: dict[str, LevelSums], name: str) -> LevelSums:
    """Return the sum of what both have under a name, or what one has."""
    return a[name] + b[name] if name in a and name in b else (a | b)[name]


def _counted(cells: Array, levels: int) -> Array:
    """Return how often each level occurs."""
    return np.bincount(cells[cells >= 0].astype(np.intp), minlength=levels)


def _level_sums(cells: Array, levels: int, y: Float[Array, "n t"], block: Block) -> LevelSums:
    """Return the sums of a block's targets by the levels of its cells."""
    w = np.ones(len(y)) if block.w is None else to_numpy(block.w).astype(np.float64)
    places = np.where(np.isnan(cells), levels, cells).astype(np.intp)
    shape = (FOLDS, levels + 1)
    cell = np.ravel_multi_index((folds(block.start, len(y)), places), shape)
    by_cell = lambda of: np.bincount(cell, of, shape[0] * shape[1]).reshape(shape)
    total, square = (
        np.stack([by_cell(w * column**power) for column in y.T], axis=2) for power in (1, 2)
    )
    return LevelSums(by_cell(w), total, square)


def _targets(y: Array, n_classes: int) -> Float[Array, "n t"] | None:
    """Return targets, or indicators of classes: of the second of two, of all of more."""
    if not n_classes:
        return y.reshape(len(y), -1).astype(np.float64)
    if n_classes > MOST_CLASSES:
        return None
    classes = [1] if n_classes == 2 else range(n_classes)
    return (y.reshape(-1, 1) == np.array(classes)).astype(np.float64)


def _marks(columns: Float[Array, "c n"], start: int) -> Array:
    """Return a number for each column that columns of the same cells share, and no others."""
    rows = np.arange(start + 1, start + columns.shape[1] + 1, dtype=np.uint64)
    odd = (rows * np.uint64(0x9E3779B97F4A7C15)) | np.uint64(1)
    bits = np.where(np.isnan(columns), -1e308, columns + 0.0).view(np.uint64)
    bits = (bits ^ (bits >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (bits ^ (bits >> np.uint64(32))) * odd
    return (mixed ^ (mixed >> np.uint64(31))).sum(axis=1, dtype=np.uint64)


# --- The encoder of one column -------------------------------------------------------------------


def columns_from(drafts: tuple[Encoder, ...], seen: SeenCells) -> LearnedColumns:
    """Return what columns become, from what a pass has added up of their cells."""
    marks: list[int] = seen.marks.tolist()
    before: dict[int, list[Encoder]] = {mark: [] for mark in marks}
    encoders = tuple(_encoder(drafts[j], before[mark], j, seen) for j, mark in enumerate(marks))
    if not any(e.is_lossy or e.levels is not None for e in _without_gaps(encoders)):
        return LearnedColumns()
    tables = {e.name: seen.means[e.name].out_of_fold for e in encoders if e.name in seen.means}
    return LearnedColumns(encoders, OutOfFold(tables) if tables else None)


def _encoder(draft: Encoder, same: list[Encoder], j: int, seen: SeenCells) -> Encoder:
    """Return what a column becomes; ``same`` are those before it whose cells are equal."""
    same.append(draft)
    if isinstance(draft, DroppedColumn):
        return draft
    gaps = bool(seen.missing[j])
    if reason := _reason(same, j, seen, gaps):
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


def _reason(same: list[Encoder], j: int, seen: SeenCells, gaps: bool) -> str:
    """Return why a column tells rows apart by nothing, "" if it does not."""
    if seen.missing[j] == seen.rows:
        return NOTHING
    if seen.least[j] == seen.most[j] and not gaps:
        return CONSTANT
    return COPY if any(_alike(same[-1], other) for other in same[:-1]) else ""


def _alike(a: Encoder, b: Encoder) -> bool:
    """Whether equal cells of two columns mean the same."""
    same = type(a) is type(b)
    return same and (a.levels is None or len(a.levels) == len(b.levels or ()))


def _median(seen: SeenCells, j: int) -> float:
    return float(np.median(seen.sampled(j)))


def _of_levels(draft: Encoder, j: int, seen: SeenCells, gaps: bool) -> Encoder:
    levels, counts = draft.levels or (), seen.counts[j]
    if len(levels) <= MOST_ONE_HOT:
        return OneHot(draft.name, levels, gaps, declared=draft.declared)
    held = seen.rows - int(seen.missing[j])
    if len(levels) * ROWS_OF_LEVEL > held >= FEWEST:
        return DroppedColumn(draft.name, NAMES)
    if draft.name in seen.means:
        means, prior = seen.means[draft.name].without(None)
        if not np.any(np.ptp(means[: len(levels)], axis=0) > 1e-9 * (1 + np.abs(prior))):
            return DroppedColumn(draft.name, NO_LEVEL)
        coded = len(levels) < MOST_CODED and bool(np.median(counts) >= ROWS_OF_CODE)
        table = tuple(map(tuple, means.tolist()))
        return TargetMeans(draft.name, levels, table, tuple(prior.tolist()), coded)
    frequent = np.sort(np.argsort(-counts, kind="stable")[:MOST_ONE_HOT])
    return OneHot(draft.name, tuple(levels[k] for k in frequent), gaps, others=True)
