"""Tables in memory, Arrow streams, and lazy tables, which are computed while they are read."""

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from functools import cache, lru_cache
from numbers import Real
from typing import Any

import numpy as np

from bochner._core.optional import package
from bochner.data.encoders import arrow_rows
from bochner.data.schema import refuse_repeated
from bochner.data.sources import Partition
from bochner.data.tables import NO_ROWS, Column, Reader, without_target
from bochner.errors import InvalidInput, InvalidType

CALLER = "Blocks.from_table"


# --- The kinds of tables -------------------------------------------------------------------------

#: Packages and classes of tables by how they are read; "lazy": only selected columns are computed.
_KINDS = {
    "memory": ("pandas.DataFrame", "polars.DataFrame", "pyarrow.Table", "pyarrow.RecordBatch"),
    "lazy": ("polars.LazyFrame", "pyarrow.Dataset", "duckdb.DuckDBPyRelation", "ibis.Table"),
    "engine": ("dask.DataFrame", "dask.Array", "ray.Dataset", "pyspark.DataFrame"),
}


def library_of(table: Any, *kinds: str) -> str:
    """Return the package of a table or array if it is read in one of these ways, else ""."""
    library, kind = _package_and_kind(table.__class__)
    return library if kind in kinds else ""


@cache
def _package_and_kind(cls: type) -> tuple[str, str]:
    """Return the package of a class of tables and how they are read; "" for other classes."""
    for base in cls.__mro__:
        name = f"{_package(base)}.{base.__name__}"
        if kind := next((kind for kind, names in _KINDS.items() if name in names), ""):
            return _package(base), kind
    return "", ""


def is_pandas(table: Any) -> bool:
    """Whether ``table`` is a DataFrame of pandas."""
    return library_of(table, "memory") == "pandas"


def _package(cls: type) -> str:
    return cls.__module__.partition(".")[0].lstrip("_")


def label_of(table: Any) -> str:
    """Return the name of a table in messages, for example "the pandas DataFrame"."""
    return f"the {_package(type(table))} {type(table).__name__}"


@lru_cache(maxsize=256)
def _kind_of(dtype: Any) -> Column:
    """Return a nameless column of this Arrow type; cached, because most types occur often."""
    types, text = package("pyarrow", CALLER).types, str(dtype)
    if text.startswith("run_end_encoded"):
        return _kind_of(dtype.value_type)
    numbers = ("is_boolean", "is_integer", "is_floating", "is_decimal", "is_duration")
    is_type = lambda *names: any(getattr(types, name)(dtype) for name in names)
    kinds = {
        "nothing": is_type("is_null"),
        "numbers": is_type(*numbers),
        "text": "string" in text or is_type("is_dictionary"),
        "dates or times": is_type("is_temporal"),
        "lists or records": is_type("is_nested"),
    }
    kind = next((kind for kind, holds in kinds.items() if holds), "neither numbers nor text")
    return Column("", kind, "all values missing" if kind == "nothing" else text)


def arrow_columns(schema: Any, label: str) -> tuple[Column, ...]:
    """Return the columns of an Arrow schema."""
    _require_names(schema.names, label)
    return tuple(_kind_of(field.type)._replace(name=field.name) for field in schema)


def _require_names(names: list[Any], label: str) -> None:
    """Raise an error for column names that are repeated, empty or not text."""
    refuse_repeated(names, f"Blocks: the columns of {label} must have different names")
    for number, name in enumerate(names):
        if not isinstance(name, str) or not name.strip():
            raise InvalidInput(
                f"Blocks: every column of {label} must have a name that is text; column {number} "
                f"(counted from 0) is called {name!r}. Rename it (df.columns = "
                "df.columns.astype(str) in pandas); a column without a name is often a row "
                "number saved by mistake (to_csv(index=False) leaves it out)."
            )


def columns_of(table: Any, names: Sequence[str]) -> dict[str, Any]:
    """Return columns of a table in memory as arrays; a type unknown to Arrow as text."""
    return {name: _column(table[name]) for name in names}


def arrow_table(columns: Mapping[str, Any], start: int = 0, stop: int | None = None) -> Any:
    """Return rows ``start`` to ``stop`` of columns as an Arrow table."""
    rows = {name: arrow_rows(column, start, stop) for name, column in columns.items()}
    return package("pyarrow", CALLER).table(rows)


def rows_of(reader: Reader, names: tuple[str, ...], _text: Any, rows: int) -> Iterator[Any]:
    """Fetch a partition or a table in memory, and yield Arrow tables of at most ``rows`` rows."""
    partition: Any = reader.partition
    table = partition.fetch()
    if partition.library:
        present, count = names_in(table), len(table)
        missing = [name for name in names if name not in present]
        if missing or count != partition.n_rows:
            content = f"no column {missing[0]!r}" if missing else f"{count} rows"
            raise InvalidInput(
                f"Blocks: {reader.label} must have the columns of the first partition and the "
                f"same {partition.n_rows} rows in every pass; got {content}. Give all partitions "
                "the same columns, or persist them first."
            )
        table = columns_of(table, names)
    columns, first = {name: table[name] for name in names}, reader.first - partition.first
    end = first + (reader.n_rows or 0)
    for start in range(first, end, rows):
        yield arrow_table(columns, start, min(start + rows, end))


def rows_without_target(names: Sequence[str], table: Any) -> np.ndarray:
    """Return the indices of the rows without a target; none if the table lacks a column."""
    complete = {*names} <= {*names_in(table)}
    return without_target(arrow_table(columns_of(table, names)), names) if complete else NO_ROWS


def names_in(table: Any) -> list[Any]:
    """Return the names of the columns of a table in memory."""
    is_arrow = library_of(table, "memory") == "pyarrow"
    return list(table.column_names if is_arrow else table.columns)


def _column(column: Any) -> Any:
    """Return a column of a table in memory as an Arrow or NumPy array, else its type as text."""
    pa, dtype = package("pyarrow", CALLER), str(getattr(column, "dtype", ""))
    if _package(type(column)) == "pandas":
        column = _convert_pandas(pa, column)
    elif dtype == "Object":  # of polars
        return dtype
    if isinstance(column, str | np.ndarray):
        return column
    streams = hasattr(column, "__arrow_c_stream__")
    return pa.chunked_array(column if streams else [column])


def _convert_pandas(pa: Any, column: Any) -> Any:
    """Return a pandas column as NumPy numbers or an Arrow array, or if impossible its types."""
    kind = str(column.dtype)
    if kind.startswith("period"):
        column = column.dt.to_timestamp()
    elif kind.startswith("interval"):
        column = column.astype("category").cat.as_ordered()
    elif kind.startswith("Sparse"):
        column = column.sparse.to_dense()
    dtype = column.dtype
    if isinstance(dtype, np.dtype) and dtype.kind in "iufb":  # Arrow would copy strided columns
        native = np.dtype(np.float64) if dtype.itemsize > 8 else dtype.newbyteorder("=")
        return column.to_numpy().astype(native, copy=False)
    if str(dtype) == "category":
        rule = f"Blocks: categories of column {column.name!r} must be different texts"
        refuse_repeated(map(str, column.cat.categories), rule)
        column = column.cat.rename_categories(str)
    try:
        return pa.array(column, from_pandas=True)
    except (pa.ArrowException, NotImplementedError):
        if str(dtype) != "object":
            return str(dtype)
    values = column[~column.isna()]
    if all(isinstance(value, Real | Decimal | np.bool_) for value in values):  # mixed types
        return pa.array([float(value) for value in column.where(~column.isna(), np.nan)])
    first: dict[str, Any] = {}
    for value in values:
        first.setdefault(type(value).__name__, value)
    types = list(first.items())[:3]
    return "objects of " + " and ".join(f"{kind}, such as {value!r:.40}" for kind, value in types)


def _column_in(table: Any, name: str, array: Any) -> Column:
    """Return the name, kind, type and categories of a column in memory."""
    if isinstance(array, str):
        return Column(name, "neither numbers nor text", array)
    dtype = getattr(array, "type", None) or arrow_rows(array, 0, 0).type
    column = _kind_of(dtype)._replace(name=name)
    if len(array) and column.kind not in ("lists or records", "text"):
        is_all = package("pyarrow.compute", CALLER).all
        rows = (arrow_rows(array, start, start + 4096) for start in range(0, len(array), 4096))
        if all(is_all(piece.is_null(nan_is_null=True)).as_py() for piece in rows):
            return Column(name, "nothing", "all values missing")
    chunks = getattr(array, "num_chunks", 0)
    words = getattr(array.chunk(0), "dictionary", None) if chunks else None
    levels = () if words is None else tuple(map(str, words.to_pylist()))
    if getattr(dtype, "ordered", False):
        return column._replace(order=levels)
    # the dictionary of a polars column may have categories of other columns
    is_polars = library_of(table, "memory") == "polars"
    return column if is_polars else column._replace(declared=levels)


def open_table(table: Any) -> Reader:
    """Return the reader of a table in memory, a stream or a lazy table."""
    label = label_of(table)
    if not library_of(table, "memory"):
        return _open_stream(table, label)
    names = names_in(table)
    _require_names(names, label)
    arrays = columns_of(table, names)
    columns = tuple(_column_in(table, name, array) for name, array in arrays.items())
    usable = {name: array for name, array in arrays.items() if not isinstance(array, str)}
    return Reader(label, columns, rows_of, len(table), partition=Partition(usable, len(table)))


# --- Arrow streams and lazy tables ----------------------------------------------------------------


def _open_stream(table: Any, label: str) -> Reader:
    """Return the reader of an object that can start an Arrow stream repeatedly."""
    is_stream, is_field = hasattr(table, "read_next_batch"), _package(type(table)) == "xarray"
    offers = library_of(table, "lazy") or hasattr(table, "__arrow_c_stream__")
    if is_stream or is_field or not offers:
        content = f"{label}, which is used up after one pass" if is_stream else label
        raise InvalidType(
            "Blocks.from_table: the table must be a data frame (of pandas, polars, pyarrow, dask, "
            "Ray or Spark), a polars LazyFrame, a pyarrow dataset, a table of ibis or DuckDB, or "
            f"offer Arrow's C stream protocol more than once; got {content}. Collect or read it "
            "into a table first, as .to_dataframe() does; for arrays use Blocks.from_arrays, for "
            "files Blocks.from_files."
        )
    columns = arrow_columns(_stream(table, first=True).schema, label)
    first = _first_row(table)
    if first is None or first != _first_row(table):
        raise InvalidInput(
            f"Blocks.from_table: the stream of {label} must have rows, and the same each time it "
            "is opened; got no rows or different ones. Read it into a table first."
        )
    return Reader(label, columns, lambda _reader, names, *_options: _stream(table, names))


def _stream(table: Any, names: Sequence[str] = (), first: bool = False) -> Any:
    """Start a stream of these columns, by default all; ``first``: only the first row is needed."""
    readers, library = package("pyarrow", CALLER).RecordBatchReader, library_of(table, "lazy")
    if library == "pyarrow":
        return table.scanner(columns=[*names] or None).to_reader()
    if library == "duckdb":
        names = ['"' + name.replace('"', '""') + '"' for name in names]
    if library:
        table = table.select(*names) if names else table
        table = table.limit(1) if first else table
    if library == "ibis":
        return table.to_pyarrow_batches()
    if library == "polars":
        schema, is_old = table.collect_schema(), not hasattr(table, "collect_batches")
        frames = [table.collect()] if is_old else table.collect_batches(maintain_order=True)
        rows = (batch for frame in frames for batch in frame.to_arrow().to_batches())
        return readers.from_batches(schema.to_frame().to_arrow().schema, rows)
    try:
        return readers.from_stream(table)
    except ValueError as error:  # pyarrow's ArrowInvalid
        raise InvalidType(
            "Blocks.from_table: the Arrow stream must have columns; got "
            f"{label_of(table)}, which is one column without a table. Pass the table it belongs to."
        ) from error


def batches(table: Any) -> Iterator[Any]:
    """Yield the record batches of a table that have rows; an empty table if there are none."""
    stream = _stream(table)
    rows = (batch for batch in stream if batch.num_rows)
    yield next(rows, stream.schema.empty_table())
    yield from rows


def _first_row(table: Any) -> str | None:
    """Return the first row as text, so that NaN equals NaN; None for an empty table."""
    rows = (repr(b.slice(0, 1).to_pylist()) for b in _stream(table, first=True) if b.num_rows)
    return next(rows, None)
