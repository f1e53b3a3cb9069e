"""Rows that an engine holds, or that have coordinates: as blocks to fit, and what is predicted."""

from collections.abc import Callable
from functools import partial, wraps
from types import MethodType
from typing import Any

import numpy as np

from bochner.data.blocks import Blocks
from bochner.data.coordinates import has_coordinates, values_of, with_coordinates
from bochner.data.frames import batches, is_lazy, package_of
from bochner.data.partitions import library_of, module_of
from bochner.errors import InvalidInput
from bochner.models._parameters import by_jobs

#: Names of the columns of predictions.
_NAMES = {
    "predict": "prediction",
    "decision_function": "decision",
    "score_samples": "score",
    "predict_proba": "probability",
    "predict_log_proba": "log_probability",
    "transform": "component",
}

#: Default names of targets and weights.
_TARGET, _WEIGHT = "y", "sample_weight"


def is_held(X: Any) -> bool:
    """Whether X is a table or array of dask, ray.data or Spark, or computed as it is read."""
    return bool(library_of(X)) or is_lazy(X)


def held_blocks(who: str, X: Any, y: Any = None, w: Any = None) -> Blocks:
    """Return rows, targets and weights in partitions as blocks.

    y and w are of the table's own kind, with its partitions (dask), or names of its columns.
    """
    if hasattr(X, "rechunk"):
        return Blocks.from_arrays(X, y, w)
    target, columns = _named(y, _TARGET)
    weight, more = _named(w, _WEIGHT)
    columns |= more
    if columns and library_of(X) != "dask":
        raise InvalidInput(
            f"{who}: of a table of {package_of(X)}, y and sample_weight must be names of its "
            f"columns, as fit(table, 'price'); got {type(y if y is not None else w).__name__}."
        )
    taken = [name for name in columns if name in X.columns]
    if taken:
        raise InvalidInput(
            f"{who}: y and sample_weight must not be columns of X too; got {taken[0]!r} in both. "
            "Pass X without it, as X.drop(columns=...)."
        )
    table = module_of(X).beside(X, columns) if columns else X
    return Blocks.from_table(table, target=target, weight=weight)


def _named(column: Any, otherwise: str) -> tuple[Any, dict[str, Any]]:
    """Return the names of columns, and those that are not in the table yet."""
    if column is None or isinstance(column, str):
        return column, {}
    if isinstance(column, list | tuple) and all(isinstance(name, str) for name in column):
        return list(column), {}
    if getattr(column, "ndim", 1) == 2:
        return list(column.columns), {name: column[name] for name in column.columns}
    name = getattr(column, "name", None)
    name = name if isinstance(name, str) else otherwise
    return name, {name: column}


def by_partition(method: Callable[..., Any]) -> Callable[..., Any]:
    """Let a method take tables that an engine holds, lazily, and arrays with coordinates."""
    name = _NAMES[method.__name__]

    @wraps(method)
    @by_jobs
    def of_rows(self: Any, X: Any, *args: Any, **kwargs: Any) -> Any:
        if has_coordinates(X):
            rows = values_of(type(self).__name__, X)[0]
            return _beside_coordinates(of_rows(self, rows, *args, **kwargs), X, name)
        if is_lazy(X):
            return _by_batch(partial(method, self), X, args, kwargs)
        if not is_held(X):
            return method(self, X, *args, **kwargs)
        call = partial(_one, MethodType(of_rows, self), args, kwargs)
        return module_of(X).mapped(X, call, name)

    return of_rows


def _by_batch(
    method: Callable[..., Any], X: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Return what a method gives of a table that is computed as it is read, batch by batch."""
    found = [method(batch, *args, **kwargs) for batch in batches(X)]
    if isinstance(found[0], tuple):
        return tuple(np.concatenate(values) for values in zip(*found, strict=True))
    return np.concatenate(found)


def _beside_coordinates(found: Any, X: Any, name: str) -> Any:
    """Return one array or several of the rows of X with their coordinates."""
    if isinstance(found, tuple):
        return tuple(with_coordinates(values, X, name) for values in found)
    return with_coordinates(found, X, name)


def _one(method: MethodType, args: tuple[Any, ...], kwargs: dict[str, Any], rows: Any) -> Any:
    """Return what a method gives of the rows of one partition."""
    found = method(rows, *args, **kwargs)
    if isinstance(found, tuple):
        raise InvalidInput(
            f"{method.__name__}: of rows that an engine holds one array can be asked for; got "
            "several. Leave return_std, return_cov and y out."
        )
    return found
