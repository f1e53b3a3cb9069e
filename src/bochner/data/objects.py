"""Columns of pandas that hold Python objects, in types that all tables have."""

import datetime as dt
import sys
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np


def tidied(table: Any) -> Any:
    """Return a table of pandas whose columns of objects have a type, where they hold one kind.

    Other tables, and columns of several kinds or of none that is known, stay as they are.
    """
    pandas = sys.modules.get("pandas")
    if pandas is None or not isinstance(table, pandas.DataFrame) or not table.columns.is_unique:
        return table
    changed = {name: _tidy(pandas, table[name]) for name in table.columns if _is_odd(table[name])}
    changed = {name: column for name, column in changed.items() if column is not None}
    return (
        table.assign(**changed) if changed and all(isinstance(n, str) for n in changed) else table
    )


def _is_odd(column: Any) -> bool:
    return str(column.dtype) == "object" or str(column.dtype).startswith(("period", "Sparse"))


def _tidy(pandas: Any, column: Any) -> Any:
    kind = str(column.dtype)
    if kind.startswith("period"):
        return column.dt.to_timestamp()
    if kind.startswith("Sparse"):
        return column.sparse.to_dense()
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
