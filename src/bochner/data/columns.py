"""Encoders of the columns of a table, learned from their cells in one pass.

The pass finds missing cells, constant columns and equal columns, keeps a random sample of rows for
medians and spans, and sums targets by level for columns of many levels.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bochner._core.arrays import to_numpy
from bochner._core.random import mix_bits
from bochner._core.shapes import Array, Float, Int
from bochner.data.encoders import FOLDS, Encoder, Levels, Numbers, Times, folds, ordinal, parts_for
from bochner.data.sample import RowSample
from bochner.data.sources import Block, weights_of

#: Most levels of a column that is one-hot encoded; more levels are encoded by target means.
MAX_ONE_HOT = 50

#: Reasons to leave a column out.
NOTHING, CONSTANT, COPY = "all values missing", "one value", "the same as another column"


@dataclass(frozen=True, eq=False)
class CellSums:
    """Sums over the cells of each column."""

    rows: int
    missing: Int[Array, " c"]  # number of missing cells
    minimum: Float[Array, " c"]  # of cells that are not missing
    maximum: Float[Array, " c"]
    marks: Array  # fingerprints: equal for columns with equal cells only
    sample: RowSample  # random rows
    # by the number of a column of many levels: the number of rows, and the sums of weights, targets
    # and squared targets, (folds, levels + 1, 2 + 2t); the last level is for missing cells
    sums: dict[int, Array]

    def __add__(self, other: "CellSums") -> "CellSums":
        return CellSums(
            rows=self.rows + other.rows,
            missing=self.missing + other.missing,
            minimum=np.minimum(self.minimum, other.minimum),
            maximum=np.maximum(self.maximum, other.maximum),
            marks=self.marks + other.marks,
            sample=self.sample + other.sample,
            sums={j: total + other.sums[j] for j, total in self.sums.items()},
        )

    def sample_cells(self, j: int) -> Float[Array, " m"]:
        """Return the cells of column j in the sample, without missing ones."""
        cells = self.sample.X[:, j]
        finite = cells[np.isfinite(cells)]
        return finite if len(finite) else np.array([self.minimum[j]])

    def means(self, j: int, fold: int | None = None) -> Float[Array, "l t"]:
        """Return shrunken mean targets by level, of missing cells and all rows, without a fold."""
        folds = [k for k in range(FOLDS) if k != fold]
        sums = self.sums[j][folds, :, 1:].sum(axis=0)
        ends = 1, 1 + sums.shape[1] // 2
        count, total, square = map(np.ascontiguousarray, np.split(sums, ends, axis=1))
        return np.vstack(shrunken_means(count[:, 0], total, square))


def cells_in(
    block: Block, drafts: tuple[Encoder, ...], n_classes: int = 0, supervised: bool = True
) -> CellSums:
    """Return the sums of cells read by ``drafts``; with ``n_classes`` > 0, y has class codes."""
    X = np.asarray(to_numpy(block.X), np.float64)
    columns = np.ascontiguousarray(X.T)  # reductions along rows in memory are many times faster
    missing = np.isnan(columns)
    has_y = supervised and block.y is not None
    y = _targets(to_numpy(block.y), n_classes) if has_y else np.empty((len(X), 0))
    levels = {j: e for j, e in enumerate(drafts) if isinstance(e, Levels) and not e.is_ordered}
    large = {j: len(e.levels) for j, e in levels.items() if len(e.levels) > MAX_ONE_HOT}
    return CellSums(
        rows=len(X),
        missing=missing.sum(axis=1),
        minimum=np.where(missing, np.inf, columns).min(axis=1),
        maximum=np.where(missing, -np.inf, columns).max(axis=1),
        marks=_marks(columns, block.start),
        sample=RowSample.of(block._replace(X=X), seed=0),
        sums={j: _level_sums(columns[j], count, y, block) for j, count in large.items()},
    )


def _level_sums(cells: Array, levels: int, y: Any, block: Block) -> Float[Array, "k l p"]:
    """Return, per fold and level, counts of a block's rows and sums of w, w y and w y²."""
    w = weights_of(block)
    places = np.where(np.isnan(cells), levels, cells).astype(np.intp)
    shape = (FOLDS, levels + 1)
    cell = np.ravel_multi_index((folds(block.start, len(y)), places), shape)
    summands = [None, w, *(w * column**power for power in (1, 2) for column in y.T)]
    size = shape[0] * shape[1]
    return np.stack([np.bincount(cell, v, size) for v in summands], 1).reshape(*shape, -1)


def _targets(y: Array, n_classes: int) -> Float[Array, "n t"]:
    """Return targets, or class indicators: one for two classes, else one per class."""
    if not n_classes:
        return y.reshape(len(y), -1).astype(np.float64)
    # no targets for over 20 classes: the most frequent levels have columns instead
    classes = [1] if n_classes == 2 else range(n_classes if n_classes <= 20 else 0)
    return (y.reshape(-1, 1) == np.array(classes)).astype(np.float64)


def _marks(columns: Float[Array, "c n"], start: int) -> Array:
    """Return a number per column, equal only for columns with the same cells."""
    rows = mix_bits(np.arange(start + 1, start + columns.shape[1] + 1, dtype=np.uint64))
    bits = np.where(np.isnan(columns), -1e308, columns + 0.0).view(np.uint64)
    return mix_bits(bits ^ rows).sum(axis=1, dtype=np.uint64)


def shrunken_means(
    count: np.ndarray, total: np.ndarray, square: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean of each level, shrunk towards the mean of all rows, and this overall mean.

    (Σ w y + m ȳ)/(Σ w + m) with m = σ²/τ², the variance within levels divided by the variance
    between levels, both by the method of moments. Levels without rows have the overall mean.
    """
    weight = max(float(count.sum()), 1e-300)
    prior = total.sum(axis=0) / weight
    present = count > 0
    n = np.where(present, count, 1.0)[:, None]
    means = np.where(present[:, None], total / n, prior)
    inner = np.maximum((square - n * means**2)[present].sum(axis=0), 0.0)
    inner /= max(weight - present.sum(), 1.0)
    spread = (count[:, None] * (means - prior) ** 2).sum(axis=0) - (present.sum() - 1) * inner
    scale = weight - float((count**2).sum()) / weight
    outer = np.maximum(spread / max(scale, 1e-300), 1e-9 * inner + 1e-300)
    m = np.minimum(inner / outer, 1e9)
    return (n * means * present[:, None] + m * prior) / (n * present[:, None] + m + 1e-300), prior


def columns_from(
    drafts: tuple[Encoder, ...], cells: CellSums, dropped: tuple[tuple[str, str], ...]
) -> tuple[tuple[Encoder, ...], list[tuple[str, str]], dict[str, Array]]:
    """Return encoders (none if all columns are complete numbers), dropped columns, fold tables."""
    keys: set[Any] = set()
    encoders, out, tables = [], dict(dropped), {}
    for j, draft in enumerate(drafts):
        levels = (draft.is_ordered, len(draft.levels)) if isinstance(draft, Levels) else ()
        key = int(cells.marks[j]), type(draft), levels  # equal for equal cells with equal meaning
        encoder: Encoder | str
        if cells.missing[j] == cells.rows:
            encoder = NOTHING
        elif cells.minimum[j] == cells.maximum[j] and not cells.missing[j]:
            encoder = CONSTANT
        else:
            encoder = COPY if key in keys else _encoder(draft, j, cells)
        keys.add(key)
        if isinstance(encoder, str):
            out[draft.name] = encoder
            continue
        encoders.append(encoder)
        if isinstance(encoder, Levels) and encoder.table and j in cells.sums:
            means = [cells.means(j, fold=fold) for fold in range(FOLDS)]
            is_coded = len(encoder.features) > means[0].shape[1]
            tables[draft.name] = np.stack([_table(table, is_coded) for table in means])
    # constants and copies among complete numbers are no reason to encode
    if {*out.values()} <= {CONSTANT, COPY} and all(
        isinstance(e, Numbers) and not (e.indicator or e.comma) for e in encoders
    ):
        return (), [], {}
    return tuple(encoders), list(out.items()), tables


def _encoder(draft: Encoder, j: int, cells: CellSums) -> Encoder | str:
    """Return the encoder of a column, or the reason to drop it."""
    gaps = bool(cells.missing[j])
    if isinstance(draft, Levels) and not draft.is_ordered:
        return _encode_levels(draft, j, cells, gaps)
    middle = float(np.median(cells.sample_cells(j)))
    if isinstance(draft, Levels):
        return ordinal(draft.name, draft.levels, middle / max(1, len(draft.levels) - 1), gaps)
    if isinstance(draft, Times):
        parts = parts_for(cells.sample_cells(j), "trend" not in draft.parts)
        return replace(draft, parts=parts, origin=middle, fill=middle, indicator=gaps)
    assert isinstance(draft, Numbers)
    return replace(draft, fill=middle, indicator=gaps)


def _encode_levels(draft: Levels, j: int, cells: CellSums, gaps: bool) -> Levels | str:
    levels = draft.levels
    if len(levels) <= MAX_ONE_HOT:
        return replace(draft, indicator=gaps)
    rows_present = cells.rows - int(cells.missing[j])
    if 2 * len(levels) > rows_present >= 100:  # an identifier of rows
        return "a different text in almost every row"
    counts = cells.sums[j][:, :-1, 0].sum(axis=0)
    if cells.sums[j].shape[-1] == 2:  # there are no targets
        frequent = np.sort(np.argsort(-counts, kind="stable")[:MAX_ONE_HOT])
        columns = tuple(levels[k] for k in frequent)
        return Levels(draft.name, columns, indicator=gaps, tolerated=1.0)
    means = cells.means(j)
    if not np.any(np.ptp(means[: len(levels)], axis=0) > 1e-9 * (1 + np.abs(means[-1]))):
        return "the same target mean at every level"
    # with fewer rows per level, interactions with other columns cannot be learned
    is_coded = len(levels) < MAX_CODED and bool(np.median(counts) >= 10)
    t = means.shape[1]
    features = [f"{draft.name} (target{f' {i}' * (t > 1)})" for i in range(t)]
    features += [f"{draft.name} (code {i})" for i in range(CODE * is_coded)]
    table = tuple(map(tuple, _table(means, is_coded).tolist()))
    return Levels(draft.name, levels, table, tuple(features), tolerated=0.5)


#: Columns of a code; a column of fewer than MAX_CODED levels may have codes.
CODE, MAX_CODED = 16, 1 << 11


def codes_of_levels(count: int) -> np.ndarray:
    """Return a code of 0 and 1 for each level, (count + 1, CODE); two differ in ≥ 4 columns.

    The codes are the 2¹¹ words of the Reed–Muller code RM(2, 4) (MacWilliams and Sloane, 1977,
    chapter 13): the bits of a level's number times all monomials of degree ≤ 2 at the 16
    points of {0, 1}⁴. On average two codes differ in half of the columns, so that a kernel of codes
    is nearly a kernel of one column per level. The last row, for unseen levels, is equally far from
    all others.
    """
    x = (np.arange(CODE)[:, None] >> np.arange(4)) & 1
    pairs = [x[:, i] * x[:, j] for i in range(4) for j in range(i)]
    monomials = np.column_stack([np.ones(CODE, np.int64), x, *pairs])
    bits = (np.arange(count)[:, None] >> np.arange(monomials.shape[1])) & 1
    return np.vstack([(bits @ monomials.T) % 2, np.full(CODE, 0.5)])


def _table(means: Float[Array, "l t"], is_coded: bool) -> Array:
    """Return the columns of X for each level, for missing cells and for unknown levels."""
    return np.hstack([means, codes_of_levels(len(means) - 1)]) if is_coded else means
