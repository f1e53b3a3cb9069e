"""Columns of pandas that hold Python objects, or types of one library, in types all tables have."""

import datetime as dt
import sys
from collections.abc import Callable
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np


def tidied(table: Any) -> Any:
    """Return a table of pandas whose columns of objects have a type, where they hold one kind.

    Runs of equal values in tables of pyarrow are written out. Other tables, and columns of several
    kinds or of none that is known, stay as they are.
    """
    pyarrow = sys.modules.get("pyarrow")
    if pyarrow is not None and isinstance(table, pyarrow.Table | pyarrow.RecordBatch):
        return written_out(table)
    pandas = sys.modules.get("pandas")
    if pandas is None or not isinstance(table, pandas.DataFrame) or not table.columns.is_unique:
        return table
    changed = {name: _tidy(pandas, table[name]) for name in table.columns if _is_odd(table[name])}
    changed = {name: column for name, column in changed.items() if column is not None}
    return (
        table.assign(**changed) if changed and all(isinstance(n, str) for n in changed) else table
    )


def written_out(table: Any) -> Any:
    """Return a table or batch of pyarrow without runs: each value as often as it counts."""
    for place, field in enumerate(table.schema):
        if is_runs(field.type):
            table = table.set_column(place, field.name, _written_out(table.column(place)))
    return table


def is_runs(kind: Any) -> bool:
    """Whether a type of pyarrow is one of runs of equal values."""
    return str(kind).startswith("run_end_encoded")


def _written_out(column: Any) -> Any:
    import pyarrow.compute as pc

    return pc.run_end_decode(column)


def kinds_of(column: Any) -> str:
    """Return what the objects of a column are, for a sentence; of other columns the type."""
    if str(column.dtype) != "object":
        return str(column.dtype)
    first: dict[str, Any] = {}
    for value in column[~column.isna()]:
        first.setdefault(type(value).__name__, value)
    known = list(first.items())[:3]
    return "objects of " + " and ".join(f"{kind}, such as {value!r:.40}" for kind, value in known)


#: What becomes of columns of types, as they begin in words, that narwhals does not tell.
_TIDY: dict[str, Callable[[Any], Any]] = {
    "period": lambda column: column.dt.to_timestamp(),
    "interval": lambda column: column.astype("category").cat.as_ordered(),
    "Sparse": lambda column: column.sparse.to_dense(),
    "run_end_encoded": lambda column: _with(column, _written_out(column.array.__arrow_array__())),
    "decimal256": lambda column: column.astype("float64"),
    "date64": lambda column: _with(column, column.array.__arrow_array__().cast("date32")),
}


def _is_odd(column: Any) -> bool:
    return str(column.dtype).startswith(("object", *_TIDY))


def _with(column: Any, values: Any) -> Any:
    """Return values of pyarrow as a column of pandas, in the place of another."""
    pandas = sys.modules["pandas"]
    return pandas.Series(pandas.array(values, pandas.ArrowDtype(values.type)), column.index)


def _tidy(pandas: Any, column: Any) -> Any:
    for kind, tidy in _TIDY.items():
        if str(column.dtype).startswith(kind):
            return tidy(column)
    missing = column.isna().to_numpy()
    values = [None if gone else value for value, gone in zip(column, missing, strict=True)]
    types = {type(value) for value in values if value is not None}
    if not types or all(issubclass(t, str) for t in types):
        return None
    if all(issubclass(t, Real | Decimal | np.bool_) for t in types):
        cells = [np.nan if value is None else float(value) for value in values]
        return pandas.Series(cells, column.index, dtype=np.float64)
    return _of_times(pandas, column, values, types)


def _of_times(pandas: Any, column: Any, values: list[Any], types: set[type]) -> Any:
    """Return a column of dates or durations; of times of day as texts."""
    if all(issubclass(t, dt.time) for t in types):
        cells = [None if value is None else value.isoformat() for value in values]
        return pandas.Series(cells, column.index, dtype="str")
    if all(issubclass(t, dt.timedelta) for t in types):
        return pandas.to_timedelta(column)
    if all(issubclass(t, dt.date) for t in types):
        naive = [None if v is None else np.datetime64(_local(v)) for v in values]
        return pandas.Series(np.array(naive, "datetime64[us]"), column.index)
    return None


def _local(value: Any) -> Any:
    """Return a date or time without its zone."""
    return value.replace(tzinfo=None) if isinstance(value, dt.datetime) else value
