"""Tables as numbers: readers yield Arrow data, and a schema encodes them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from bochner._core.checks import warn_user
from bochner.data import encoders
from bochner.data.encoders import Encoder, Levels, Location, Numbers, Times, column_of, is_missing
from bochner.data.schema import Schema, quote, reasons
from bochner.data.sources import Partition, Piece, Source, require_finite, require_weights
from bochner.errors import DataWarning, InvalidInput

MAX_CATEGORIES = 1000

# 4 MB of float64: large enough to hide the cost per piece, small compared with features of a block.
CELLS_PER_PIECE = 1 << 19

#: Empty array of row numbers.
NO_ROWS: np.ndarray = np.empty(0, np.intp)

#: Cells of one column that did not occur in training: description, examples, place and first row.
Unseen = tuple[str, str, Location, int]


class Column(NamedTuple):
    """A raw column: ``kind`` names its content, such as "numbers", "text" or "nothing"."""

    name: str
    kind: str
    type_text: str = ""  # the type, as its library writes it
    order: tuple[str, ...] = ()  # of categories that have one
    declared: tuple[str, ...] = ()  # categories of its type, in no order


@dataclass(frozen=True, eq=False)
class Reader:
    """One table: in memory, an Arrow stream, a file, or a partition that an engine holds."""

    label: str  # name in messages, e.g. 'train.csv' with the quotes
    columns: tuple[Column, ...]  # the raw columns, in order, with different names
    # function that yields Arrow data, with arguments: the reader, the columns to read, the columns
    # that are text in CSV, and the preferred number of rows
    read: Any
    n_rows: int | None = None  # None if unknown before the table was read
    key: str = ""  # fingerprint without reading, e.g. of name, size and time
    first: int = 0  # number of the first row in the whole table
    # ascending indices of the rows without a target, which are left out
    absent: np.ndarray = field(default_factory=lambda: NO_ROWS)
    partition: Partition | None = None  # of a table in memory, or one that an engine holds
    text_file: Any = None  # TextFile: rows have lines, and every column can be read as text
    hint: str = ""  # added to errors about missing columns

    def place(self, row: int) -> str:
        """Return the place of a row, counted from 0, as part of a sentence."""
        if self.text_file is not None:
            return f"line {self.text_file.line_of(row)} of {self.label}"
        return f"row {row} of {self.label} (counted from 0)"

    def part(self, start: int, stop: int) -> "Reader":
        """Return the reader of these rows."""
        partition, first, n_rows = self.partition, self.first + start, stop - start
        # slices of Arrow would be pickled with all rows
        if partition is not None and not partition.library:
            begin, index = first - partition.first, np.arange(n_rows)
            rows = {
                name: encoders.arrow_rows(column, begin, begin + n_rows).take(index)
                for name, column in partition.content.items()
            }
            partition = Partition(rows, n_rows, first)
        return replace(self, n_rows=n_rows, first=first, partition=partition)


@dataclass(frozen=True, eq=False, repr=False)
class Tables(Source):
    """Rows of several readers in order, encoded by one schema."""

    readers: tuple[Reader, ...]
    schema: Schema = field(kw_only=True)
    dtype: np.dtype
    target_dtype: np.dtype
    drafts: tuple[Encoder, ...] | None = None  # encoders to be fitted; None if they are fitted
    # by name, (folds, levels + 2, p): encoding of training rows, without the rows of their fold
    fold_tables: Mapping[str, np.ndarray] = field(default_factory=dict)
    raw: bool = False  # whether X are the cells themselves, one column each
    label: str = field(kw_only=True)
    n_columns: int = field(kw_only=True)
    n_rows: Any = field(default=None, kw_only=True)
    first: int = field(default=0, kw_only=True)

    def pieces(self, rows: int) -> Iterator[Piece]:
        if not self.raw and not self.schema.encoders and self.drafts is not None:
            require_plain(self.drafts, self.schema.dropped)
        unseen: dict[str, Unseen] = {}
        for frame, location, start in self._frames(rows):
            X = np.empty((frame.num_rows, self.n_columns), np.float64 if self.raw else self.dtype)
            fold, row = encoders.folds(start, frame.num_rows) if self.fold_tables else None, 0
            for encoder in self.readable:
                columns = self._columns(encoder, frame, location, fold, unseen)
                X[:, row : row + columns.shape[1]] = columns
                row += columns.shape[1]
            if not (self.raw or self.schema.encoders):
                label = lambda col: f"column {self.schema.feature_names[col]!r}"
                require_finite(X, label, location)
            yield Piece(X, self._targets(frame, location), self._weights(frame, location))
        if unseen:
            _warn_unseen(unseen)

    def raw_rows(self, rows: Sequence[int]) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        """Return the names of the used columns, and their cells in these rows (None: missing)."""
        names = self.schema.used_columns
        by_row: dict[int, tuple[Any, ...]] = {}
        for frame, _, start in self._frames(4096):
            for row in (row for row in rows if start <= row < start + frame.num_rows):
                cells = (column_of(frame, name)[row - start].as_py() for name in names)
                by_row[row] = tuple(None if cell != cell else cell for cell in cells)  # noqa: PLR0124
        return names, [by_row[row] for row in rows]

    def of_cells(self) -> "Tables":
        """Return the same rows before they are encoded: cells as numbers, missing ones as NaN."""
        return replace(self, raw=True, n_columns=len(self.readable), fold_tables={})

    @property
    def readable(self) -> tuple[Encoder, ...]:
        """The encoder that reads each column."""
        return self.drafts or self.schema.plain

    def with_encoders(
        self,
        fitted: tuple[Encoder, ...],
        dropped: Sequence[tuple[str, str]],
        fold_tables: Mapping[str, np.ndarray],
    ) -> "Tables":
        """Return the same rows with the encoders of a fit."""
        schema = replace(self.schema, categories=(), encoders=fitted, dropped=tuple(dropped))
        exact = not any(isinstance(e, Times) or getattr(e, "table", ()) for e in fitted)
        dtype, n_columns = self.dtype if exact else np.dtype(np.float64), len(schema.feature_names)
        tables = replace(self, drafts=None, schema=schema, fold_tables=fold_tables)
        return replace(tables, dtype=dtype, n_columns=n_columns)

    def with_schema(self, schema: Schema) -> "Tables":
        """Return the same rows, target and weight, encoded by a schema of a fit."""
        roles = replace(self.schema, columns=schema.columns, categories=())
        return replace(self, schema=roles).with_encoders(schema.encoders, schema.dropped, {})

    def _frames(self, rows: int) -> Iterator[tuple[Any, Location, int]]:
        """Yield frames, the function that names places of their rows, and their first row."""
        names = self.schema.read_names
        labels = {str(self.schema.target)} if self.schema.classes else set()
        roles = {*(self.schema.target_names or ()), self.schema.weight}
        limit = CELLS_PER_PIECE // max(len(names), self.n_columns)
        size = max(rows, limit - limit % rows)
        total = self.first
        for reader in self.readers:
            start = reader.first
            text = labels | {e.name for e in self.readable if is_text(e, reader)}
            text |= {c.name for c in reader.columns if c.name in roles and c.kind == "text"}
            for frame in reader.read(reader, names, frozenset(text), size):
                step = -(-frame.num_rows // max(1, frame.num_rows // size))  # below 2 size
                for begin in range(0, frame.num_rows, step or 1):
                    piece = frame.slice(begin, step)
                    part, numbers = compact(piece, start, reader.absent)
                    location = lambda row, reader=reader, at=numbers: reader.place(int(at[row]))
                    yield part, location, total
                    start += piece.num_rows
                    total += part.num_rows

    def mark(self) -> str:
        if all(reader.key for reader in self.readers):
            marks = [f"{r.key}, {r.n_rows} rows from {r.first} on" for r in self.readers]
        else:
            marks = [repr(self.drafts), Source.mark(self if self.raw else self.of_cells())]
        return "; ".join([repr(self.schema), *marks])

    def part(self, start: int, stop: int) -> "Tables | None":
        if self.n_rows is None:
            return None
        parts, n_before = [], 0
        for reader in self.readers:
            count = reader.n_rows or 0
            gaps = entries_in(reader.absent, reader.first, count) - reader.first
            rows = count - len(gaps)
            low, high = max(start - n_before, 0), min(stop - n_before, rows)
            if low < high:
                # for each gap, the number of rows before it that are kept
                shifts = gaps - np.arange(len(gaps))
                ends = low, high - 1
                first, last = ends + np.searchsorted(shifts, ends, side="right")
                parts.append(reader.part(int(first), int(last) + 1))
            n_before += rows
        readers, n_rows = tuple(parts), stop - start
        return replace(self, readers=readers, n_rows=n_rows, first=self.first + start)

    @property
    def partitions(self) -> tuple[Partition, ...]:
        return tuple(r.partition for r in self.readers if r.partition and r.partition.library)

    def with_content(self, rows: Sequence[Any]) -> "Tables":
        readers = zip(self.readers, self.partitions, rows, strict=True)
        partitions = ((r, replace(p, content=content, get=None)) for r, p, content in readers)
        return replace(self, readers=tuple(replace(r, partition=p) for r, p in partitions))

    def _columns(
        self, encoder: Encoder, frame: Any, location: Location, fold: Any, unseen: dict[str, Unseen]
    ) -> np.ndarray:
        """Encode a table's column as columns of X; before a fit, as one column per category."""
        column = column_of(frame, encoder.name)
        if isinstance(encoder, Levels) and not (self.raw or self.schema.encoders):
            levels = dict(self.schema.categories)[encoder.name]
            codes = _codes(encoder.name, column, levels, location)
            return codes[:, None] == np.arange(len(levels))
        cells = encoder.cells(column, location)
        if np.isinf(cells).any():
            filled = np.where(np.isnan(cells), 0.0, cells)
            require_finite(filled, lambda _: f"column {encoder.name!r}", location)
        if self.raw or not self.schema.encoders:
            return cells[:, None]
        if isinstance(encoder, Levels) and encoder.name in self.fold_tables:
            table = self.fold_tables[encoder.name]
            rows = fold * table.shape[1] + encoder.places(cells)
            return table.reshape(-1, table.shape[2]).take(rows, axis=0)
        columns = encoder.encode(cells)
        description, mask = encoder.find_unseen(cells)
        if encoder.name not in unseen and len(rows := np.flatnonzero(mask)):
            texts = encoders.texts_in(column, rows) if isinstance(encoder, Levels) else ()
            unseen[encoder.name] = description, quote(sorted(texts), 3), location, int(rows[0])
        return columns

    def _targets(self, frame: Any, location: Location) -> np.ndarray | None:
        names = self.schema.target_names
        if names is None:
            return None
        columns = [column_of(frame, name) for name in names]
        if self.schema.classes:
            codes = _codes(names[0], columns[0], self.schema.classes, location)
            return codes.astype(self.target_dtype)
        pairs = zip(names, columns, strict=True)
        parts = [encoders.numbers_of(*p, self.target_dtype, location, comma=True) for p in pairs]
        y = np.column_stack(parts)
        require_finite(y, lambda col: f"target {names[col]!r}", location)
        return y[:, 0] if isinstance(self.schema.target, str) else y

    def _weights(self, frame: Any, location: Location) -> np.ndarray | None:
        name = self.schema.weight
        if name is None:
            return None
        column, dtype = column_of(frame, name), np.dtype(np.float64)
        w = encoders.numbers_of(name, column, dtype, location, comma=True)
        require_weights(w, location)
        return w


def is_text(encoder: Encoder, reader: Reader) -> bool:
    """Whether a column is read as text; times in text files are read as text."""
    if isinstance(encoder, Times):
        return reader.text_file is not None or encoder.form != ""
    return isinstance(encoder, Levels) or (isinstance(encoder, Numbers) and encoder.comma)


def _warn_unseen(unseen: dict[str, Unseen]) -> None:
    """Warn of unseen cells, in one sentence for all columns with the same description."""
    sentences = []
    for words, names in reasons((name, cell[0]) for name, cell in unseen.items()).items():
        _, texts, location, row = unseen[names[0]]
        columns = f"column {names[0]!r} has" if len(names) == 1 else f"columns {quote(names)} have"
        examples = f", such as {texts}" if texts else ""
        sentences.append(f"{columns} {words}{examples}; first in {location(row)}")
    text = ". ".join(sentence[0].upper() + sentence[1:] for sentence in sentences)
    warn_user(f"{text}. Fit again with such rows if there are many.", DataWarning)


def require_plain(drafts: Sequence[Encoder], dropped: Sequence[tuple[str, str]]) -> None:
    """Raise one error for all columns that only a fit can encode as numbers."""
    content = [f"{draft.name!r} (dates or times)" for draft in drafts if isinstance(draft, Times)]
    content += [
        f"{draft.name!r} (more texts, e.g. {quote(draft.levels[:3])})"
        for draft in drafts
        if isinstance(draft, Levels) and len(draft.levels) > MAX_CATEGORIES
    ]
    if content := content + [f"{name!r} ({reason})" for name, reason in dropped]:
        raise InvalidInput(
            f"Blocks: columns must hold numbers, or at most {MAX_CATEGORIES} different texts, "
            f"which become columns of 0 and 1; got {', '.join(content)}. Learners' fit and "
            "fit_blocks encode such columns; or turn them into numbers first, or drop them."
        )


def entries_in(numbers: np.ndarray, first: int, count: int) -> np.ndarray:
    """Return the entries of ascending ``numbers`` that are in [first, first + count)."""
    return numbers[slice(*np.searchsorted(numbers, (first, first + count)))]


def compact(frame: Any, start: int, absent: np.ndarray) -> tuple[Any, Sequence[int] | np.ndarray]:
    """Return a frame, which begins with row ``start``, without absent rows; and its row numbers."""
    count = frame.num_rows
    numbers, gaps = range(start, start + count), entries_in(absent, start, count)
    if not len(gaps):
        return frame, numbers
    index = np.setdiff1d(np.asarray(numbers), gaps, assume_unique=True)
    return frame.take(index - start), index


def without_target(frame: Any, names: Sequence[str]) -> np.ndarray:
    """Return the rows of an Arrow table in which one of these columns is null or NaN."""
    return np.flatnonzero(np.any([is_missing(column_of(frame, name)) for name in names], axis=0))


def _codes(name: str, column: Any, categories: tuple[str, ...], location: Location) -> np.ndarray:
    """Return the code of each text; a missing or unknown category raises an error."""
    if column.null_count:
        raise InvalidInput(
            f"Blocks: column {name!r} must have no missing values; got one in "
            f"{location(int(np.argmax(is_missing(column))))}. Fill or drop such rows first (in a "
            'CSV file, empty fields and NA are missing, "NA" in quotes is text).'
        )
    codes = Levels(name, categories).cells(column, location).astype(np.intp)
    if (rows := np.flatnonzero(codes < 0)).size:
        values = sorted({*encoders.texts_in(column)} - {*categories})
        raise InvalidInput(
            f"Blocks: column {name!r} must hold categories seen when the schema was "
            f"learned ({quote(categories)}); got {quote(values)}, first in "
            f"{location(int(rows[0]))}. Drop such rows or fit again with them."
        )
    return codes
