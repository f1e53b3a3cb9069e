"""From tables to numbers: kinds of columns, categories, and the matrix of a few thousand rows.

Everything that has columns with names is a tuple of readers: one for a table in memory, one for
each file. Readers give small data frames; narwhals makes pandas, polars and Arrow look alike.
"""

import importlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from bochner.data.schema import Schema, did_you_mean, listed, parsed, repeated
from bochner.data.sources import (
    Piece,
    Source,
    Where,
    require_finite,
    require_weights,
)
from bochner.errors import InvalidInput, InvalidType, MissingDependency

MOST_CATEGORIES = 1000

_WHO = "Blocks.from_table"

# 4 MB of float64: large enough to hide what a frame costs, small beside a block of features.
CELLS_PER_PIECE = 1 << 19


class Column(NamedTuple):
    """A raw column: ``kind`` is "numbers", "text", "nothing" (all missing) or what it holds."""

    name: str
    kind: str
    narrow: bool = False  # float32 holds every value
    shown: str = ""  # the type, as its library writes it


class Reader(ABC):
    """One table: a frame, an Arrow stream or a file."""

    label: str  # what messages call it, e.g. 'train.csv' with the quotes
    columns: tuple[Column, ...]  # the raw columns, in order, with different names
    n_rows: int | None  # None if only reading tells
    hint: str  # what to add when a column is not found

    @abstractmethod
    def frames(self, names: tuple[str, ...], text: frozenset[str], rows: int) -> Iterator[Any]:
        """Give narwhals frames with these columns, at most about ``rows`` rows each.

        ``text`` are the columns to read as text whatever they look like (CSV files); all others
        are numbers.
        """

    def place(self, row: int) -> str:
        """Return where a row, counted from 0, is: part of a sentence."""
        return f"row {row} of {self.label} (counted from 0)"


@dataclass(frozen=True, eq=False)
class Tables(Source):
    """Readers one after the other, seen through one schema."""

    readers: tuple[Reader, ...]
    schema: Schema
    dtype: np.dtype
    target_dtype: np.dtype
    n_rows: int | None
    n_columns: int

    def __repr__(self) -> str:
        first = self.readers[0].label
        more = len(self.readers) - 1
        return f"{first} and {more} more file{'s' * (more > 1)}" if more else first

    def pieces(self, rows: int) -> Iterator[Piece]:
        """Give the rows of all readers as numbers, whole blocks of ``rows`` where possible."""
        names = self.schema.raw_names
        text = frozenset(dict(self.schema.categories))
        text |= {str(self.schema.target)} if self.schema.classes else frozenset()
        fit = CELLS_PER_PIECE // max(len(names), self.n_columns)
        size = max(rows, fit - fit % rows)
        for reader in self.readers:
            start = 0
            for frame in reader.frames(names, text, size):
                yield self._numbers(frame, row_of(reader, start))
                start += len(frame)

    def _numbers(self, frame: Any, where: Where) -> Piece:
        schema = self.schema
        X = _features(frame, schema, self.dtype, where)
        require_finite(X, lambda col: f"column {schema.feature_names[col]!r}", where)
        return Piece(X, self._targets(frame, where), self._weights(frame, where))

    def _targets(self, frame: Any, where: Where) -> np.ndarray | None:
        names = self.schema.target_names
        if names is None:
            return None
        if self.schema.classes:
            return _codes(frame[names[0]], self.schema.classes, where).astype(self.target_dtype)
        y = np.column_stack([_numeric(frame[name], self.target_dtype, where) for name in names])
        require_finite(y, lambda col: f"target {names[col]!r}", where)
        return y[:, 0] if isinstance(self.schema.target, str) else y

    def _weights(self, frame: Any, where: Where) -> np.ndarray | None:
        if self.schema.weight is None:
            return None
        w = _numeric(frame[self.schema.weight], np.dtype(np.float64), where)
        require_weights(w, where)
        return w


def total_rows(readers: tuple[Reader, ...]) -> int | None:
    """Rows of all readers together, None if one does not know."""
    counts = [reader.n_rows for reader in readers]
    return None if None in counts else sum(counts)  # type: ignore[arg-type]


def column_of(name: str, dtype: Any) -> Column:
    """Sort a narwhals dtype into the kinds that matter here."""
    import narwhals as nw  # noqa: PLC0415

    narrow = (nw.Boolean, nw.Int8, nw.Int16, nw.UInt8, nw.UInt16, nw.Float32)
    small = dtype in narrow or str(dtype) == "Float16"
    if dtype.is_numeric() or dtype == nw.Boolean:
        return Column(name, "numbers", small, str(dtype))
    if dtype in (nw.String, nw.Categorical, nw.Enum):
        return Column(name, "text", False, str(dtype))
    if dtype.is_temporal():
        return Column(name, "dates or times", False, str(dtype))
    if dtype.is_nested():
        return Column(name, "lists or records", False, str(dtype))
    return Column(name, "neither numbers nor text", False, str(dtype))


def row_of(reader: Reader, start: int) -> Where:
    """Return the function that says where a row of a piece is, which starts at row ``start``."""
    return lambda row: Reader.place(reader, start + row)


def _features(frame: Any, schema: Schema, dtype: np.dtype, where: Where) -> np.ndarray:
    categories = dict(schema.categories)
    X = np.empty((len(frame), len(schema.feature_names)), dtype)
    numeric: dict[str, int] = {}
    at = 0
    for name in schema.columns:
        width = len(categories[name]) if name in categories else 1
        if name in categories:
            _one_hot(frame[name], categories[name], X[:, at : at + width], where)
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
    if _is_arrow(native):
        for name, at in places.items():
            X[:, at] = _from_arrow(name, native.column(name), X.dtype, where)
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


def _is_arrow(native: Any) -> bool:
    return type(native).__module__.startswith("pyarrow")


def _numeric(series: Any, dtype: np.dtype, where: Where) -> np.ndarray:
    """Return numbers, with NaN where the series has null; texts must be numbers."""
    import narwhals as nw  # noqa: PLC0415

    native = series.to_native()
    if _is_arrow(native):
        return _from_arrow(series.name, native, dtype, where)
    if series.dtype in (nw.String, nw.Categorical, nw.Enum):
        return parsed(series.name, series.to_list(), dtype, where)
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
    chunks = [_plain(chunk) for chunk in column.iterchunks() if len(chunk)]
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
    codes = _places(series, categories)
    if (unknown := np.flatnonzero(codes < 0)).size:
        cells = series.to_list()
        values = sorted({str(cells[row]) for row in unknown})
        raise InvalidInput(
            f"Blocks: column {series.name!r} must hold categories seen when the schema was "
            f"learned ({listed(categories)}); got {listed(values)}, first in "
            f"{where(int(unknown[0]))}. Drop such rows or fit again with them."
        )
    return codes


def _places(series: Any, categories: tuple[str, ...]) -> np.ndarray:
    """Return the place of each value, -1 for others; Arrow finds which values there are."""
    place = {category: j for j, category in enumerate(categories)}
    native = series.to_native()
    if _is_arrow(native):
        parts = [np.empty(0, np.intp)]
        for chunk in native.dictionary_encode().iterchunks():
            values = chunk.dictionary.to_pylist()
            places = np.array([place.get(str(value), -1) for value in values], np.intp)
            parts.append(places[_plain(chunk.indices)])
        return np.concatenate(parts)
    values = series.to_list()
    code = {value: place.get(str(value), -1) for value in set(values)}
    return np.fromiter(map(code.__getitem__, values), np.intp, len(values))


def _plain(array: Any) -> np.ndarray:
    """Return an Arrow array of numbers, none missing; its own conversion would import pandas."""
    dtype = np.dtype({"float": "float32"}.get(str(array.type), str(array.type)))
    if len(array) == 0:  # it may have no buffer
        return np.empty(0, dtype)
    return np.frombuffer(array.buffers()[1], dtype, len(array), array.offset * dtype.itemsize)


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
    """Say which columns are not there, and which were perhaps meant."""
    known = [column.name for column in reader.columns]
    named = [f"{role} {name!r}{did_you_mean(name, known)}" for role, name in absent[:6]]
    more = f" and {len(absent) - 6} more" if len(absent) > 6 else ""
    return InvalidInput(
        f"Blocks: {reader.label} must have {', '.join(named)}{more}; its columns are "
        f"{listed(known)}{reader.hint}."
    )


# --- Tables in memory: pandas, polars, pyarrow, and whatever speaks Arrow's C stream protocol ----


def needed(module: str, who: str) -> Any:
    """Import an optional package now, or say how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise MissingDependency(
            f"{who} needs the package {package}, which is not installed; "
            "install it with: pip install 'bochner[files]'"
        ) from error


@dataclass(frozen=True, eq=False)
class FrameReader(Reader):
    """A data frame that is in memory."""

    frame: Any  # a narwhals DataFrame
    label: str
    columns: tuple[Column, ...]
    n_rows: int
    hint: str = ""

    def frames(self, names: tuple[str, ...], text: frozenset[str], rows: int) -> Iterator[Any]:  # noqa: ARG002
        """Give slices of the frame: types are known, and taking rows copies no column."""
        for start in range(0, len(self.frame), rows):
            yield self.frame[start : start + rows]


@dataclass(frozen=True, eq=False)
class StreamReader(Reader):
    """An object that can start an Arrow stream of record batches as often as asked."""

    table: Any
    label: str
    columns: tuple[Column, ...]
    n_rows: None = None
    hint: str = ""

    def frames(self, names: tuple[str, ...], text: frozenset[str], rows: int) -> Iterator[Any]:  # noqa: ARG002
        """Give the stream's batches, cut if they are long."""
        for batch in _batches(self.table):
            for start in range(0, batch.num_rows, rows):
                yield arrow_frame(batch.slice(start, rows))


def open_table(table: Any) -> Reader:
    """Return the reader that suits the table."""
    label = f"the {type(table).__module__.partition('.')[0]} {type(table).__name__}"
    nw = needed("narwhals", _WHO)
    try:
        frame = nw.from_native(table, eager_only=True)
    except nw.exceptions.DuplicateError as error:
        names = getattr(table, "column_names", None) or table.columns
        raise _repeated_names(label, list(names)) from error
    except TypeError:
        return _open_stream(table, label)
    _require_names(frame.columns, label)
    columns = tuple(_frame_column(frame, name) for name in frame.columns)
    return FrameReader(frame, label, columns, len(frame))


def _frame_column(frame: Any, name: str) -> Column:
    column = column_of(name, frame.schema[name])
    if column.shown == "Unknown" and len(frame) and frame[name].is_null().all():
        return Column(name, "nothing", False, "all values missing")
    return column


def _open_stream(table: Any, label: str) -> StreamReader:
    one_shot = hasattr(table, "read_next_batch")
    if one_shot or not hasattr(table, "__arrow_c_stream__"):
        got = f"{label}, which is used up after one pass" if one_shot else label
        raise InvalidType(
            "Blocks.from_table: the table must be a data frame in memory (pandas, polars, pyarrow) "
            f"or offer Arrow's C stream protocol, again and again; got {got}. Collect or read it "
            "into a table first; for arrays use Blocks.from_arrays, for files Blocks.from_files."
        )
    columns = arrow_columns(_schema(table, label), label)
    first = _first_row(table)
    if first is None or first != _first_row(table):
        raise InvalidInput(
            f"Blocks.from_table: the stream of {label} must have rows, and the same each time it "
            "is opened; got none or others. Read it into a table first."
        )
    return StreamReader(table, label, columns)


def _first_row(table: Any) -> str | None:
    """Return the first row in words (NaN is equal to NaN there), None if there is none."""
    rows = (batch.slice(0, 1) for batch in _batches(table) if batch.num_rows)
    return next((repr(row.to_pylist()) for row in rows), None)


def _schema(table: Any, label: str) -> Any:
    try:
        return _reader(table).schema
    except ValueError as error:  # pyarrow's ArrowInvalid
        raise InvalidType(
            f"Blocks.from_table: the Arrow stream must have columns; got {label}, which is one "
            "column without a table. Pass the table it belongs to."
        ) from error


def _reader(table: Any) -> Any:
    return needed("pyarrow", _WHO).RecordBatchReader.from_stream(table)


def _batches(table: Any) -> Iterator[Any]:
    yield from _reader(table)


def arrow_frame(batch: Any) -> Any:
    """Return an Arrow record batch as a narwhals frame, without a copy."""
    pyarrow = needed("pyarrow", _WHO)
    nw = needed("narwhals", _WHO)
    return nw.from_native(pyarrow.Table.from_batches([batch]), eager_only=True)


def arrow_columns(schema: Any, label: str) -> tuple[Column, ...]:
    """Sort the columns of an Arrow schema into kinds; columns of nulls hold nothing."""
    _require_names(schema.names, label)
    return tuple(_arrow_column(field.type)._replace(name=field.name) for field in schema)


@lru_cache(maxsize=256)
def _arrow_column(kind: Any) -> Column:
    """Sort an Arrow type into a kind; files may have thousands of columns of few types."""
    pyarrow = needed("pyarrow", _WHO)
    nw = needed("narwhals", _WHO)
    if pyarrow.types.is_null(kind):
        return Column("", "nothing", False, "all values missing")
    dtype = nw.Schema.from_arrow(pyarrow.schema([("", kind)]))[""]
    return column_of("", dtype)._replace(shown=str(kind))


def _require_names(names: list[Any], label: str) -> None:
    """Column names must be texts, not empty, and different."""
    if repeated(names):
        raise _repeated_names(label, names)
    for number, name in enumerate(names):
        if not isinstance(name, str) or not name.strip():
            raise InvalidInput(
                f"Blocks: every column of {label} must have a name that is text; column {number} "
                f"(counted from 0) is called {name!r}. Rename it (df.columns = "
                "df.columns.astype(str) in pandas); a column without a name is often a row "
                "number saved by mistake (to_csv(index=False) leaves it out)."
            )


def _repeated_names(label: str, names: list[Any]) -> InvalidInput:
    return InvalidInput(
        f"Blocks: the columns of {label} must have different names; got {listed(repeated(names))} "
        "more than once. Rename or drop the repeated ones."
    )
