"""Arrays of xarray: rows along all dimensions but the last, columns along the last."""

import sys
from typing import Any

from bochner.errors import InvalidInput


def has_coordinates(X: Any) -> bool:
    """Whether X is an xarray.DataArray."""
    xarray = sys.modules.get("xarray")
    return xarray is not None and isinstance(X, xarray.DataArray)


def values_of(who: str, X: Any, y: Any = None, w: Any = None) -> tuple[Any, Any, Any]:
    """Return the rows of a DataArray as an array (n, d), with y and w; other inputs as given.

    Rows are in C order of the dimensions of X, and y and w are brought into that order.
    """
    if not has_coordinates(X):
        return X, *(array.data if has_coordinates(array) else array for array in (y, w))
    if X.ndim < 2:
        raise InvalidInput(
            f"{who}: X must have two dimensions, rows and at least one column; got a DataArray of "
            f"dimensions {X.dims}. Pass X.expand_dims('column', axis=-1) if it is one column."
        )
    rows = X.dims[:-1]
    y, w = (_aligned(who, X, a, name) for a, name in ((y, "y"), (w, "sample_weight")))
    return X.data.reshape(-1, X.shape[-1]) if len(rows) > 1 else X.data, y, w


def _aligned(who: str, X: Any, array: Any, name: str) -> Any:
    """Return targets or weights in the order of the rows of X."""
    rows = X.dims[:-1]
    if not has_coordinates(array):
        n = len(rows)
        per_row = n > 1 and getattr(array, "shape", ())[:n] == X.shape[:-1]
        return array.reshape(-1, *array.shape[n:]) if per_row else array
    for dim in rows:
        if dim not in array.dims or not _alike(X, array, dim):
            got = "others" if dim in array.dims else "none"
            raise InvalidInput(
                f"{who}: {name} must have the row dimensions of X, {', '.join(map(str, rows))}, "
                f"and their coordinates; got {got} of {dim!r}. Take both from one data set, or "
                "align them with xarray.align."
            )
    array = array.transpose(*rows, ...)
    return array.data.reshape(-1, *array.shape[len(rows) :]) if len(rows) > 1 else array.data


def _alike(X: Any, other: Any, dim: Any) -> bool:
    """Whether two arrays are as long along a dimension, with equal labels where both have some."""
    if X.sizes[dim] != other.sizes[dim]:
        return False
    a, b = X.indexes.get(dim), other.indexes.get(dim)
    return a is None or b is None or bool(a.equals(b))


def with_coordinates(values: Any, X: Any, name: str) -> Any:
    """Return values for the rows of X, (n,) or (n, k), with the coordinates of the rows.

    Several columns are along a further dimension, called ``name``.
    """
    xarray = sys.modules["xarray"]
    rows = X.isel({X.dims[-1]: 0}, drop=True)
    more = [name] * (values.ndim - 1)
    values = values.reshape(*rows.shape, *values.shape[1:]) if rows.ndim > 1 else values
    return xarray.DataArray(values, rows.coords, [*rows.dims, *more], name)
