"""From tables to numbers: kinds of columns, categories, and the matrix of a few thousand rows.

Everything that has columns with names is a tuple of readers: one for a table in memory, one for
each file. Readers give small data frames; narwhals makes pandas, polars and Arrow look alike.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from bochner._core.checks import warn_user
from bochner.data.cells import (
    cast_as,
    cells_of,
    holds_text,
    places_of,
    plain,
    plain_numbers,
    unseen_texts,
)
from bochner.data.encoders import (
    UNSEEN,
    DroppedColumn,
    Encoder,
    Lookup,
    NumberColumn,
    OneHot,
    OutOfFold,
    TargetMeans,
    TimeColumn,
)
from bochner.data.optional import needed
from bochner.data.schema import Schema, did_you_mean, listed, parsed
from bochner.data.sources import (
    DIGEST_ROWS,
    Partition,
    Piece,
    Source,
    Where,
    digest_of,
    require_finite,
    require_weights,
)
from bochner.data.times import is_missing, seconds_in
from bochner.errors import DataWarning, InvalidInput

MOST_CATEGORIES = 1000

#: Rows of a frame, at least, where some rows are shown as they were given.
GIVEN_ROWS = 4096

# 4 MB of float64: large enough to hide what a frame costs, small beside a block of features.
CELLS_PER_PIECE = 1 << 19


class Column(NamedTuple):
    """A raw column: ``kind`` is "numbers", "text", "nothing" (all missing) or what it holds."""

    name: str
    kind: str
    narrow: bool = False  # float32 holds every value
    shown: str = ""  # the type, as its library writes it
    order: tuple[str, ...] = ()  # of categories that have one
    declared: tuple[str, ...] = ()  # categories of its type, in no order


class Reader(ABC):
    """One table: a frame, an Arrow stream or a file."""

    label: str  # what messages call it, e.g. 'train.csv' with the quotes
    columns: tuple[Column, ...]  # the raw columns, in order, with different names
    n_rows: int | None  # None if only reading tells
    hint: str  # what to add when a column is not found
    of_text: bool = False  # whether any column can be read as text
    first: int = 0  # number of the first row, where it is a part of a table
    partition: Partition | None = None  # where an engine holds it
    library: str = ""  # the package of that engine

    @abstractmethod
    def frames(self, names: tuple[str, ...], text: frozenset[str], rows: int) -> Iterator[Any]:
        """Give narwhals frames with these columns, at most about ``rows`` rows each.

        ``text`` are the columns to read as text whatever they look like (CSV files); all others
        are numbers.
        """

    def place(self, row: int) -> str:
        """Return where a row, counted from 0, is: part of a sentence."""
        return f"row {row} of {self.label} (counted from 0)"

    def mark(self) -> str:
        """Return a fingerprint that needs no reading, as name, size and time; "" without one."""
        return ""

    def part(self, start: int, stop: int) -> "Reader | None":  # noqa: ARG002
        """Return the reader of these rows alone; None where those before must be read for it."""
        return None


@dataclass(frozen=True, eq=False)
class Tables(Source):
    """Readers one after the other, seen through one schema.

    ``drafts`` say what cells are before a fit has learned what they become; ``out_of_fold`` is of
    the rows of a fit alone; ``who`` reads them, for warnings. ``absent`` are, for each reader, the
    numbers of its rows without a target, ascending: these rows are left out.
    """

    readers: tuple[Reader, ...]
    schema: Schema
    dtype: np.dtype
    target_dtype: np.dtype
    n_rows: int | None
    n_columns: int
    drafts: tuple[Encoder, ...] = ()
    out_of_fold: OutOfFold | None = None
    first: int = 0  # number of the first row, where they are a part
    who: str = "Blocks"
    absent: tuple[np.ndarray, ...] = ()

    def __repr__(self) -> str:
        first = self.readers[0].label
        more = len(self.readers) - 1
        return f"{first} and {more} more file{'s' * (more > 1)}" if more else first

    def pieces(self, rows: int) -> Iterator[Piece]:
        """Give the rows of all readers as numbers, whole blocks of ``rows`` where possible."""
        if self.schema.encoders:
            return self._encoded(rows)
        require_plain(self.drafts)
        return (
            Piece(
                self._plain(frame, where), self._targets(frame, where), self._weights(frame, where)
            )
            for frame, where, _ in self._frames(rows)
        )

    def cells(self, rows: int) -> Iterator[Piece]:
        """Give the cells of all rows as encoders read them, NaN where they are missing."""
        for frame, where, _ in self._frames(rows):
            X = np.column_stack([_cells(e, frame, where) for e in self.readable])
            yield Piece(X, self._targets(frame, where), self._weights(frame, where))

    def as_given(self, rows: Sequence[int]) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        """Return the feature columns that are read, and their cells in these rows.

        Cells are as the tables have them, None where they are missing. One pass.
        """
        names = tuple(e.name for e in self.readable if not isinstance(e, DroppedColumn))
        found: dict[int, tuple[Any, ...]] = {}
        for frame, _, start in self._frames(GIVEN_ROWS):
            for row in (row for row in rows if start <= row < start + len(frame)):
                cells = (frame[name][row - start] for name in names)
                found[row] = tuple(None if is_missing(cell) else cell for cell in cells)
        return names, [found[row] for row in rows]

    def of_cells(self) -> "Cells":
        """Return the same rows as cells."""
        return Cells(self, self.n_rows, len(self.readable), self.schema)

    @property
    def readable(self) -> tuple[Encoder, ...]:
        """What cells are, column by column."""
        return self.schema.encoders or self.drafts or self.schema.plain

    def learned(self, encoders: tuple[Encoder, ...], out_of_fold: OutOfFold | None) -> "Tables":
        """Return the same rows through what a fit has learned of their columns."""
        schema = replace(self.schema, categories=(), encoders=encoders)
        exact = all(isinstance(e, NumberColumn | OneHot | DroppedColumn) for e in encoders)
        return replace(
            self,
            schema=schema,
            dtype=self.dtype if exact else np.dtype(np.float64),
            n_columns=len(schema.feature_names),
            drafts=(),
            out_of_fold=out_of_fold,
        )

    def read_as(self, schema: Schema) -> "Tables":
        """Return the same rows, target and weight through a schema with encoders."""
        own = self.schema
        schema = replace(schema, target=own.target, weight=own.weight, classes=own.classes)
        return replace(self, schema=schema).learned(schema.encoders, None)

    def _frames(self, rows: int) -> Iterator[tuple[Any, Where, int]]:
        """Give frames, what says where their rows are, and the number of their first row of all."""
        names = self.schema.read_names
        labels = {str(self.schema.target)} if self.schema.classes else set()
        roles = {*(self.schema.target_names or ()), self.schema.weight}
        fit = CELLS_PER_PIECE // max(len(names), self.n_columns)
        size = max(rows, fit - fit % rows)
        total = self.first
        for reader, absent in zip(self.readers, self._absent, strict=True):
            start = reader.first
            text = labels | {e.name for e in self.readable if is_text(e, reader)}
            text |= {c.name for c in reader.columns if c.name in roles and c.kind == "text"}
            for frame in reader.frames(names, frozenset(text), size):
                kept, numbers = present(frame, start, absent)
                yield kept, row_of(reader, numbers), total
                start += len(frame)
                total += len(kept)

    @property
    def _absent(self) -> tuple[np.ndarray, ...]:
        return self.absent or (NO_ROWS,) * len(self.readers)

    def mark(self) -> str:
        """Return the schema with the fingerprints of the readers, or a digest of all cells."""
        marks = [reader.mark() for reader in self.readers]
        marks = marks if all(marks) else [repr(self.drafts), digest_of(self.cells(DIGEST_ROWS))]
        return "; ".join([repr(self.schema), *marks])

    def part(self, start: int, stop: int) -> "Tables | None":
        """Return the parts of those tables that hold these rows."""
        if self.n_rows is None:
            return None
        parts, absent, before = [], [], 0
        for reader, numbers in zip(self.readers, self._absent, strict=True):
            count = reader.n_rows or 0
            gaps = within(numbers, reader.first, count) - reader.first
            rows = count - len(gaps)
            low, high = max(start - before, 0), min(stop - before, rows)
            if low < high:
                # present rows before each gap
                ahead = gaps - np.arange(len(gaps))
                ends = low, high - 1
                first, last = ends + np.searchsorted(ahead, ends, side="right")
                parts.append(reader.part(int(first), int(last) + 1))
                absent.append(numbers)
            before += rows
        if None in parts:
            return None
        readers: Any = tuple(parts)
        first = self.first + start
        return replace(
            self, readers=readers, n_rows=stop - start, first=first, absent=tuple(absent)
        )

    @property
    def library(self) -> str:
        """That of the readers."""
        return self.readers[0].library

    @property
    def partitions(self) -> tuple[Partition, ...]:
        """Those of the readers."""
        return tuple(r.partition for r in self.readers if r.partition is not None)

    def held_by(self, partitions: Sequence[Partition]) -> "Tables":
        """Return the same rows, in these partitions."""
        if not partitions:
            return self
        pairs: Any = zip(self.readers, partitions, strict=True)
        return replace(self, readers=tuple(replace(r, partition=p) for r, p in pairs))

    def _plain(self, frame: Any, where: Where) -> np.ndarray:
        schema = self.schema
        X = _features(frame, schema, self.drafts, self.dtype, where)
        require_finite(X, lambda col: f"column {schema.feature_names[col]!r}", where)
        return X

    def _encoded(self, rows: int) -> Iterator[Piece]:
        unseen: dict[str, _Unseen] = {}
        for frame, where, start in self._frames(rows):
            columns = [self._column(e, frame, where, start, unseen) for e in self.schema.encoders]
            X = np.concatenate(columns, axis=1).astype(self.dtype, copy=False)
            yield Piece(X, self._targets(frame, where), self._weights(frame, where))
        if unseen:
            _warn_unseen(self.who, unseen)

    def _column(
        self, encoder: Encoder, frame: Any, where: Where, start: int, unseen: dict[str, "_Unseen"]
    ) -> np.ndarray:
        cells = _cells(encoder, frame, where)
        if self.out_of_fold is not None and isinstance(encoder, TargetMeans):
            return self.out_of_fold.encode(encoder, cells, start)
        words = encoder.surprises(cells) if encoder.name not in unseen else ""
        if words:
            new = encoder.levels is not None and bool(np.any(cells == UNSEEN))
            row = int(np.flatnonzero(cells == UNSEEN if new else np.isnan(cells))[0])
            texts = unseen_texts(frame[encoder.name], encoder) if new else ""
            unseen[encoder.name] = _Unseen(words, texts, where, row)
        return encoder.encode(cells)

    def _targets(self, frame: Any, where: Where) -> np.ndarray | None:
        names = self.schema.target_names
        if names is None:
            return None
        if self.schema.classes:
            return _codes(frame[names[0]], self.schema.classes, where).astype(self.target_dtype)
        y = np.column_stack([_in_role(frame[name], self.target_dtype, where) for name in names])
        require_finite(y, lambda col: f"target {names[col]!r}", where)
        return y[:, 0] if isinstance(self.schema.target, str) else y

    def _weights(self, frame: Any, where: Where) -> np.ndarray | None:
        if self.schema.weight is None:
            return None
        w = _in_role(frame[self.schema.weight], np.dtype(np.float64), where)
        require_weights(w, where)
        return w


@dataclass(frozen=True, eq=False)
class Cells(Source):
    """The cells of tables, one column each: what a fit learns encoders from."""

    tables: Tables
    n_rows: int | None
    n_columns: int
    schema: Schema

    def __repr__(self) -> str:
        return repr(self.tables)

    def pieces(self, rows: int) -> Iterator[Piece]:
        """Give all rows in order."""
        return self.tables.cells(rows)

    def mark(self) -> str:
        """Return that of the tables."""
        return self.tables.mark()

    def part(self, start: int, stop: int) -> "Cells | None":
        """Return the cells of these rows."""
        tables = self.tables.part(start, stop)
        return None if tables is None else replace(self, tables=tables, n_rows=stop - start)

    @property
    def library(self) -> str:
        """That of the tables."""
        return self.tables.library

    @property
    def partitions(self) -> tuple[Partition, ...]:
        """Those of the tables."""
        return self.tables.partitions

    def held_by(self, partitions: Sequence[Partition]) -> "Cells":
        """Return the same cells, in these partitions."""
        return replace(self, tables=self.tables.held_by(partitions))


def _cells(encoder: Encoder, frame: Any, where: Where) -> np.ndarray:
    if isinstance(encoder, DroppedColumn):
        return np.zeros(len(frame))
    return cells_of(encoder, frame[encoder.name], where)


def is_text(encoder: Encoder, reader: Reader) -> bool:
    """Whether the cells of a column are read as text, as times are where all can be."""
    if isinstance(encoder, NumberColumn):
        return encoder.comma
    if isinstance(encoder, TimeColumn):
        return reader.of_text or encoder.form != ""
    return encoder.levels is not None


class _Unseen(NamedTuple):
    """Cells of a column that are unlike those of the fit: in words, and the first of them."""

    words: str
    texts: str
    where: Where
    row: int


def _warn_unseen(who: str, unseen: dict[str, _Unseen]) -> None:
    """Warn of cells that are unlike those of the fit, of all columns in one sentence each kind."""
    said = []
    for words in dict.fromkeys(found.words for found in unseen.values()):
        names = [name for name, found in unseen.items() if found.words == words]
        _, texts, where, row = unseen[names[0]]
        columns = f"column {names[0]!r} has" if len(names) == 1 else f"columns {listed(names)} have"
        such = f", such as {texts}" if texts else ""
        said.append(f"{columns} {words}{such}; first in {where(row)}")
    warn_user(f"{who}: {'. '.join(said)}. Fit again with such rows if there are many.", DataWarning)


_REMEDY = {
    "dates or times": "Turn it into numbers first, e.g. days since the first.",
    "nothing": "Fill it or drop it.",
}


def require_plain(drafts: tuple[Encoder, ...]) -> None:
    """Refuse columns that only a fit makes numbers of, all in one message."""
    said = [sentence for draft in drafts if (sentence := _not_plain(draft))]
    if said:
        raise InvalidInput(f"Blocks: {numbered(said)}")


def _not_plain(draft: Encoder) -> str:
    who = f"column {draft.name!r}"
    fit = "A learner's fit and fit_blocks do so by themselves. Or drop it."
    if isinstance(draft, TimeColumn):
        return (
            f"{who} must hold numbers or text; got dates or times. "
            f"{_REMEDY['dates or times']} {fit}"
        )
    if isinstance(draft, DroppedColumn):
        return (
            f"{who} must hold numbers or text; got nothing ({draft.reason}). "
            f"{_REMEDY['nothing']} {fit}"
        )
    if draft.levels is not None and len(draft.levels) > MOST_CATEGORIES:
        return (
            f"{who} must have at most {MOST_CATEGORIES} different texts to become columns of 0 and "
            f"1; got more, e.g. {listed(draft.levels[:3])}. Group rare ones, turn it into numbers, "
            f"or drop it; a learner's fit takes their target means."
        )
    return ""


def numbered(sentences: list[str]) -> str:
    """Return one sentence as it is, several with their numbers."""
    if len(sentences) == 1:
        return sentences[0]
    listing = " ".join(f"({i}) {text}" for i, text in enumerate(sentences, 1))
    return f"{len(sentences)} columns cannot be used. {listing}"


def total_rows(readers: tuple[Reader, ...]) -> int | None:
    """Rows of all readers together, None if one does not know."""
    counts = [reader.n_rows for reader in readers]
    return None if None in counts else sum(counts)  # type: ignore[arg-type]


def row_of(reader: Reader, numbers: Sequence[int] | np.ndarray) -> Where:
    """Return the function that says where a row of a piece is, whose rows have these numbers."""
    return lambda row: reader.place(int(numbers[row]))


#: The numbers of no rows.
NO_ROWS = np.empty(0, np.intp)


def within(numbers: np.ndarray, first: int, count: int) -> np.ndarray:
    """Return those of ascending numbers that are among ``count`` numbers from the first on."""
    return numbers[slice(*np.searchsorted(numbers, (first, first + count)))]


def present(frame: Any, start: int, absent: np.ndarray) -> tuple[Any, Sequence[int] | np.ndarray]:
    """Return a frame, whose first row has this number, without the absent rows; and its numbers."""
    numbers, gaps = range(start, start + len(frame)), within(absent, start, len(frame))
    if not len(gaps):
        return frame, numbers
    kept = np.setdiff1d(np.asarray(numbers), gaps, assume_unique=True)
    return frame[(kept - start).tolist()], kept


def without_target(frame: Any, names: Sequence[str]) -> np.ndarray:
    """Return the rows of a frame in which one of these columns is missing or NaN."""
    missing = np.zeros(len(frame), bool)
    for name in names:
        series = frame[name]
        if is_arrow(native := series.to_native()):
            compute = needed("pyarrow.compute", "Blocks")
            gone = compute.is_null(native, nan_is_null=True).combine_chunks()
            missing[plain(compute.indices_nonzero(gone))] = True
            continue
        missing |= series.is_null().to_numpy()
        if series.dtype.is_float():
            missing |= series.is_nan().fill_null(True).to_numpy().astype(bool)
    return np.flatnonzero(missing)


def warn_without_target(
    who: str, names: Sequence[str], missing: int, rows: int, first: str
) -> None:
    """Warn of rows that are left out for want of a target; refuse a table in which all are."""
    target = " or ".join(map(repr, names))
    if missing == rows:
        raise InvalidInput(
            f"{who}: at least one row must have a target {target}; got none in {rows:,} rows."
        )
    have = "1 row has" if missing == 1 else f"{missing:,} rows have"
    left = "It is" if missing == 1 else "They are"
    warn_user(
        f"{who}: {have} no target {target}, of {rows:,} rows; first {first}. {left} left out.",
        DataWarning,
    )


def _features(
    frame: Any, schema: Schema, drafts: tuple[Encoder, ...], dtype: np.dtype, where: Where
) -> np.ndarray:
    categories = dict(schema.categories)
    with_commas = {e.name: e for e in drafts if isinstance(e, NumberColumn) and e.comma}
    X = np.empty((len(frame), len(schema.feature_names)), dtype)
    numeric: dict[str, int] = {}
    at = 0
    for name in schema.columns:
        width = len(categories[name]) if name in categories else 1
        if name in categories:
            _one_hot(frame[name], categories[name], X[:, at : at + width], where)
        elif name in with_commas:
            X[:, at] = cells_of(with_commas[name], frame[name], where)
        else:
            numeric[name] = at
        at += width
    _write_numbers(frame, numeric, X, where)
    return X


def _write_numbers(frame: Any, places: dict[str, int], X: np.ndarray, where: Where) -> None:
    """Write columns to their places in X, with NaN where they have null.

    All at once where the library can: a column at a time costs 0.1 ms, and tables may be wide.
    """
    native = frame.to_native()
    if is_arrow(native):
        for name, at in places.items():
            X[:, at] = _numeric(frame[name], X.dtype, where)
        return
    ready = _dtype_names(X.dtype)
    schema = frame.select(*places).schema if places else {}
    same = [name for name, dtype in schema.items() if str(dtype) == ready]
    if same:
        X[:, [places[name] for name in same]] = frame.select(*same).to_numpy()
    for name in places.keys() - same:
        X[:, places[name]] = _numeric(frame[name], X.dtype, where)


def _dtype_names(dtype: np.dtype) -> str:
    """Name a NumPy dtype as narwhals does."""
    return "Float32" if dtype == np.float32 else "Float64"


def is_arrow(native: Any) -> bool:
    """Whether it is an array or table of pyarrow."""
    return type(native).__module__.startswith("pyarrow")


def _in_role(series: Any, dtype: np.dtype, where: Where) -> np.ndarray:
    """Return a target or weights, of which texts may have a comma before the decimals."""
    if holds_text(series):
        return plain_numbers(series, where).astype(dtype)
    return _numeric(series, dtype, where)


def _numeric(series: Any, dtype: np.dtype, where: Where) -> np.ndarray:
    """Return numbers, with NaN where the series has null; texts must be numbers."""
    import narwhals as nw

    native = series.to_native()
    if series.dtype == nw.Duration:
        return seconds_in(series).astype(dtype)
    if series.dtype in (nw.String, nw.Categorical, nw.Enum) and not is_arrow(native):
        return parsed(series.name, series.to_list(), dtype, where)
    with cast_as("numbers", series, where):
        if is_arrow(native):
            return _from_arrow(series.name, native, dtype, where)
        return series.cast(getattr(nw, _dtype_names(dtype))).to_numpy()


def _from_arrow(name: str, column: Any, dtype: np.dtype, where: Where) -> np.ndarray:
    """Return an Arrow column as numbers."""
    if "string" in str(column.type):  # dictionaries of texts too
        return parsed(name, column.to_pylist(), dtype, where)
    try:
        column = column.cast("float" if dtype == np.float32 else "double")
    except ValueError as error:  # pyarrow's ArrowInvalid
        raise _too_long(name, column.to_pylist(), where) from error
    if column.null_count:
        return column.to_numpy()
    chunks = [plain(chunk) for chunk in column.iterchunks() if len(chunk)]
    return chunks[0] if len(chunks) == 1 else np.concatenate([*chunks, np.empty(0, dtype)])


def _too_long(name: str, values: list[Any], where: Where) -> InvalidInput:
    """Say which whole number float64 would round."""
    longest = 1 << 53
    row = next((i for i, v in enumerate(values) if v is not None and abs(v) > longest), 0)
    return InvalidInput(
        f"Blocks: column {name!r} must hold numbers that float64 holds, whole ones from -2**53 to "
        f"2**53; got {values[row]} in {where(row)}. Subtract the least of them first, or store "
        "the column as double if rounding does no harm."
    )


def _one_hot(series: Any, categories: tuple[str, ...], out: np.ndarray, where: Where) -> None:
    codes = _codes(series, categories, where)
    out[:] = 0
    out[np.arange(len(codes)), codes] = 1


def _codes(series: Any, categories: tuple[str, ...], where: Where) -> np.ndarray:
    """Return the place of each text among the categories."""
    require_present(series, where)
    codes = places_of(series, Lookup(categories)).astype(np.intp)
    if (unknown := np.flatnonzero(codes < 0)).size:
        cells = series.to_list()
        values = sorted({str(cells[row]) for row in unknown})
        raise InvalidInput(
            f"Blocks: column {series.name!r} must hold categories seen when the schema was "
            f"learned ({listed(categories)}); got {listed(values)}, first in "
            f"{where(int(unknown[0]))}. Drop such rows or fit again with them."
        )
    return codes


def require_present(series: Any, where: Where) -> None:
    """Refuse a missing value in a column of text, naming its row."""
    missing = series.is_null()
    if missing.any():
        row = missing.to_list().index(True)
        raise InvalidInput(
            f"Blocks: column {series.name!r} must have no missing values; got one in "
            f"{where(row)}. Fill or drop such rows first (in a CSV file, empty "
            'fields and NA are missing, "NA" in quotes is text).'
        )


def missing_column(absent: list[tuple[str, str]], reader: Reader) -> InvalidInput:
    """Say which columns are not there, and which were perhaps meant.

    Each comes with what it would be, such as "a target column {}", to be filled with its name.
    """
    known = [column.name for column in reader.columns]
    named = [f"{role.format(repr(name))}{did_you_mean(name, known)}" for role, name in absent[:6]]
    more = f" and {len(absent) - 6} more" if len(absent) > 6 else ""
    return InvalidInput(
        f"Blocks: {reader.label} must have {', '.join(named)}{more}; its columns are "
        f"{listed(known)}{reader.hint}."
    )
