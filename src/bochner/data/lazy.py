"""Tables that are computed as they are read, in Arrow batches: only columns that are used."""

import sys
from collections.abc import Callable, Iterator
from typing import Any

from bochner.data.optional import needed
from bochner.errors import InvalidType

_WHO = "Blocks.from_table"


def is_lazy(table: Any) -> bool:
    """Whether columns of a table can be chosen before it is read."""
    return bool(_library(table))


def schema_of(table: Any, label: str) -> Any:
    """Return the Arrow schema of a table, without its rows."""
    found = _SCHEMAS.get(_library(table))
    if found is not None:
        return found(table)
    try:
        return _reader(table).schema
    except ValueError as error:  # pyarrow's ArrowInvalid
        raise InvalidType(
            f"Blocks.from_table: the Arrow stream must have columns; got {label}, which is one "
            "column without a table. Pass the table it belongs to."
        ) from error


def batches_of(table: Any, names: list[str]) -> Iterator[Any]:
    """Give the batches of a new stream, of these columns at least."""
    yield from _BATCHES.get(_library(table), lambda t, _: _reader(t))(table, names)


def batches(table: Any) -> Iterator[Any]:
    """Give all columns of a table, a batch of rows at a time, as tables; one at least."""
    pyarrow = needed("pyarrow", "predict")
    schema, some = schema_of(table, "the table"), False
    for batch in batches_of(table, list(schema.names)):
        if batch.num_rows:
            some = True
            yield pyarrow.Table.from_batches([batch])
    if not some:
        yield schema.empty_table()


def package_of(table: Any) -> str:
    """Return the package that a table comes from."""
    return type(table).__module__.partition(".")[0].lstrip("_")


def first_row(table: Any) -> str | None:
    """Return the first row in words (NaN is equal to NaN there), None if there is none."""
    library = _library(table)
    some = _HEADS[library](table) if library else table
    names = list(schema_of(table, "the table").names)
    rows = (batch.slice(0, 1) for batch in batches_of(some, names) if batch.num_rows)
    return next((repr(row.to_pylist()) for row in rows), None)


#: Classes of tables that are computed as they are read, by module.
_CLASSES = {
    "pyarrow.dataset": "Dataset",
    "polars": "LazyFrame",
    "duckdb": "DuckDBPyRelation",
    "ibis": "Table",
}


def _library(table: Any) -> str:
    """Return the module of the class that a table is of; "" for streams of others."""
    for name, kind in _CLASSES.items():
        module = sys.modules.get(name)
        if module is not None and isinstance(table, getattr(module, kind)):
            return name if name != "polars" or hasattr(table, "collect_batches") else ""
    return ""


def _reader(table: Any) -> Any:
    return needed("pyarrow", _WHO).RecordBatchReader.from_stream(table)


def _of_polars(table: Any, names: list[str]) -> Iterator[Any]:
    for frame in table.select(names).collect_batches(maintain_order=True):
        yield from frame.to_arrow().to_batches()


def _of_duckdb(table: Any, names: list[str]) -> Any:
    quoted = (name.replace('"', '""') for name in names)
    return _reader(table.project(", ".join(f'"{name}"' for name in quoted)))


def _of_ibis(table: Any, names: list[str]) -> Iterator[Any]:
    try:
        yield from table.select(*names).to_pyarrow_batches()
    except AttributeError as error:
        backend = table.get_backend().name
        raise InvalidType(
            f"{_WHO}: ibis {sys.modules['ibis'].__version__} must know the version of its backend, "
            f"{backend}; reading the table failed with {error}. Install versions that fit one "
            f"another (ibis 12 knows duckdb below 2), or pass a table of {backend} itself."
        ) from error


_SCHEMAS: dict[str, Callable[[Any], Any]] = {
    "pyarrow.dataset": lambda table: table.schema,
    "polars": lambda table: table.collect_schema().to_frame().to_arrow().schema,
    "duckdb": lambda table: _reader(table.limit(0)).schema,
    "ibis": lambda table: table.schema().to_pyarrow(),
}
_BATCHES: dict[str, Callable[[Any, list[str]], Any]] = {
    "pyarrow.dataset": lambda table, names: table.scanner(columns=names).to_batches(),
    "polars": _of_polars,  # collect_batches came with polars 1.34
    "duckdb": _of_duckdb,
    "ibis": _of_ibis,
}
_HEADS: dict[str, Callable[[Any], Any]] = {
    "pyarrow.dataset": lambda table: table,
    "polars": lambda table: table.head(1),
    "duckdb": lambda table: table.limit(1),
    "ibis": lambda table: table.limit(1),
}
