"""Tables that engines hold: which library's, opened as readers, and functions of their rows."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from bochner.data.partitions import Chunks, PartitionReader, library_of

#: The module of each library that holds tables in partitions.
_MODULES = {"dask": "dask_tables", "ray": "ray_tables", "pyspark": "spark_tables"}


def open_readers(table: Any) -> list[PartitionReader]:
    """Return a reader of each partition of a table."""
    found: list[PartitionReader] = _module(table).readers(table)
    return found


def open_chunks(X: Any, y: Any, w: Any) -> Chunks:
    """Return dask arrays as a source of rows."""
    found: Chunks = _module(X).chunks(X, y, w)
    return found


def mapped(table: Any, call: Callable[[Any], Any], name: str) -> Any:
    """Return what ``call`` gives of each partition, in the table's own library, when asked for."""
    return _module(table).mapped(table, call, name)


def beside(table: Any, columns: dict[str, Any]) -> Any:
    """Return a dask table with more columns, partition by partition."""
    return _module(table).beside(table, columns)


def _module(table: Any) -> Any:
    return import_module(f"bochner.data.{_MODULES[library_of(table)]}")
