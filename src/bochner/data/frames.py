"""Tables in memory: pandas, polars, pyarrow, and whatever speaks Arrow's C stream protocol."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from bochner.data.lazy import batches_of, first_row, is_lazy, schema_of
from bochner.data.objects import is_runs, kinds_of, tidied, written_out
from bochner.data.optional import needed
from bochner.data.schema import listed, repeated
from bochner.data.tables import Column, Reader, is_arrow
from bochner.errors import InvalidInput, InvalidType

_WHO = "Blocks.from_table"


def column_of(name: str, dtype: Any) -> Column:
    """Sort a narwhals dtype into the kinds that matter here."""
    import narwhals as nw

    narrow = (nw.Boolean, nw.Int8, nw.Int16, nw.UInt8, nw.UInt16, nw.Float32)
    small = dtype in narrow or str(dtype) == "Float16"
    if dtype.is_numeric() or dtype == nw.Boolean:
        return Column(name, "numbers", small, str(dtype))
    if dtype in (nw.String, nw.Categorical, nw.Enum):
        return Column(name, "text", False, str(dtype))
    if dtype == nw.Duration:
        return Column(name, "numbers", False, str(dtype))
    if dtype.is_temporal():
        return Column(name, "dates or times", False, str(dtype))
    if dtype.is_nested():
        return Column(name, "lists or records", False, str(dtype))
    return Column(name, "neither numbers nor text", False, str(dtype))


@dataclass(frozen=True, eq=False)
class FrameReader(Reader):
    """A data frame that is in memory."""

    frame: Any  # a narwhals DataFrame
    label: str
    columns: tuple[Column, ...]
    n_rows: int
    hint: str = ""
    first: int = 0

    def frames(self, names: tuple[str, ...], text: frozenset[str], rows: int) -> Iterator[Any]:  # noqa: ARG002
        """Give slices of the frame: types are known, and taking rows copies no column."""
        for start in range(0, len(self.frame), rows):
            yield self.frame[start : start + rows]

    def part(self, start: int, stop: int) -> "FrameReader":
        """Return a slice of the frame."""
        frame, first = self.frame[start:stop], self.first + start
        return replace(self, frame=frame, n_rows=stop - start, first=first)


@dataclass(frozen=True, eq=False)
class StreamReader(Reader):
    """An object that can start a stream of Arrow record batches as often as asked."""

    table: Any
    label: str
    columns: tuple[Column, ...]
    n_rows: None = None
    hint: str = ""

    def frames(self, names: tuple[str, ...], text: frozenset[str], rows: int) -> Iterator[Any]:  # noqa: ARG002
        """Give the stream's batches, cut if they are long; of what can choose, these columns."""
        for batch in batches_of(self.table, list(names)):
            for start in range(0, batch.num_rows, rows):
                yield arrow_frame(batch.slice(start, rows))


def open_table(table: Any) -> Reader:
    """Return the reader that suits the table."""
    label = f"the {type(table).__module__.partition('.')[0]} {type(table).__name__}"
    nw = needed("narwhals", _WHO)
    try:
        frame = nw.from_native(tidied(table), eager_only=True)
    except nw.exceptions.DuplicateError as error:
        names = getattr(table, "column_names", None) or table.columns
        raise _repeated_names(label, list(names)) from error
    except TypeError:
        return _open_stream(table, label)
    _require_names(frame.columns, label)
    columns = tuple(_frame_column(frame, name) for name in frame.columns)
    return FrameReader(frame, label, columns, len(frame))


def _frame_column(frame: Any, name: str) -> Column:
    native = frame[name].to_native()
    if is_arrow(native):
        column = _arrow_column(native.type)._replace(name=name)
    else:
        column = column_of(name, frame.schema[name])
    if column.kind == "neither numbers nor text" and not is_arrow(native):
        column = column._replace(shown=kinds_of(native))
    if column.kind not in ("lists or records", "text") and _holds_nothing(frame, name):
        return Column(name, "nothing", False, "all values missing")
    return column._replace(order=order_of(frame[name], native), declared=_declared(native))


def _holds_nothing(frame: Any, name: str) -> bool:
    return len(frame) > 0 and bool(frame[name].is_null().all())


def order_of(series: Any, native: Any) -> tuple[str, ...]:
    """Return the categories of a column in memory whose type says that they are ordered."""
    import narwhals as nw

    if series.dtype == nw.Enum:
        return tuple(series.dtype.categories)
    return _declared(native) if is_arrow(native) and getattr(native.type, "ordered", False) else ()


def _declared(native: Any) -> tuple[str, ...]:
    """Return the categories that the type of a column of pandas or pyarrow names."""
    if is_arrow(native):
        named = getattr(native.chunk(0), "dictionary", None) if native.num_chunks else None
        return () if named is None else tuple(map(str, named.to_pylist()))
    return tuple(map(str, getattr(native.dtype, "categories", ()))) if is_pandas(native) else ()


def is_pandas(native: Any) -> bool:
    """Whether it is a column of pandas."""
    return type(native).__module__.startswith("pandas")


def _open_stream(table: Any, label: str) -> StreamReader:
    one_shot = hasattr(table, "read_next_batch")
    if one_shot or not (is_lazy(table) or hasattr(table, "__arrow_c_stream__")):
        got = f"{label}, which is used up after one pass" if one_shot else label
        raise InvalidType(
            "Blocks.from_table: the table must be a data frame (of pandas, polars, pyarrow, dask, "
            "Ray or Spark), a polars LazyFrame, a pyarrow dataset, a table of ibis or DuckDB, or "
            f"offer Arrow's C stream protocol, again and again; got {got}. Collect or read it into "
            "a table first; for arrays use Blocks.from_arrays, for files Blocks.from_files."
        )
    columns = arrow_columns(schema_of(table, label), label)
    first = first_row(table)
    if first is None or first != first_row(table):
        raise InvalidInput(
            f"Blocks.from_table: the stream of {label} must have rows, and the same each time it "
            "is opened; got none or others. Read it into a table first."
        )
    return StreamReader(table, label, columns)


def arrow_frame(batch: Any) -> Any:
    """Return an Arrow record batch as a narwhals frame, without a copy."""
    pyarrow = needed("pyarrow", _WHO)
    nw = needed("narwhals", _WHO)
    table = pyarrow.Table.from_batches([written_out(batch)])
    return nw.from_native(table, eager_only=True)


def arrow_columns(schema: Any, label: str) -> tuple[Column, ...]:
    """Sort the columns of an Arrow schema into kinds; columns of nulls hold nothing."""
    _require_names(schema.names, label)
    return tuple(_arrow_column(field.type)._replace(name=field.name) for field in schema)


@lru_cache(maxsize=256)
def _arrow_column(kind: Any) -> Column:
    """Sort an Arrow type into a kind; files may have thousands of columns of few types."""
    pyarrow = needed("pyarrow", _WHO)
    nw = needed("narwhals", _WHO)
    if is_runs(kind):
        return _arrow_column(kind.value_type)
    if pyarrow.types.is_null(kind):
        return Column("", "nothing", False, "all values missing")
    if pyarrow.types.is_decimal(kind):
        return Column("", "numbers", False, str(kind))
    if pyarrow.types.is_date(kind):
        return Column("", "dates or times", False, str(kind))
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
