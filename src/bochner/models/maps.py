"""Predictions at all places of a grid, with the coordinates that they belong to."""

import importlib.util
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from bochner._core.checks import require_room
from bochner._core.shapes import Array, Float
from bochner.errors import InvalidInput

#: Places that are predicted together.
TOGETHER = 1 << 19


def axes_of(
    who: str, given: dict[str, Any], names: tuple[str, ...] | None, d: int
) -> dict[str, Float[Array, " m"]]:
    """Return the coordinates along each column, in the order of the columns, checked."""
    if len(given) != d or (names is not None and set(given) != set(names)):
        asked = "" if names is None else f", named {', '.join(names)}"
        raise InvalidInput(
            f"{who}.predict_grid: there must be one array of coordinates for each of the {d} "
            f"columns{asked}; got {', '.join(given) or 'none'}. Pass "
            f"{', '.join(f'{name}=...' for name in names or 'xyz'[:d])}."
        )
    order = list(given) if names is None else list(names)
    return {name: _coordinates(who, name, given[name]) for name in order}


def _coordinates(who: str, name: str, values: Any) -> Float[Array, " m"]:
    found = np.asarray(values, dtype=np.float64)
    if found.ndim != 1 or not len(found) or not np.isfinite(found).all():
        raise InvalidInput(
            f"{who}.predict_grid: {name} must be finite numbers in one dimension, one at least; "
            f"got shape {found.shape}. Pass np.linspace(...), say."
        )
    return found


def on_places(
    who: str, axes: dict[str, Float[Array, " m"]], values: Callable[[Array], tuple[Array, ...]]
) -> tuple[Array, ...]:
    """Return what ``values`` gives for rows, at all places of the axes, in their shape."""
    shape = tuple(len(axis) for axis in axes.values())
    require_room(
        32 * math.prod(shape),
        f"{who}.predict_grid: {math.prod(shape):,} places take",
        "Ask for fewer.",
    )
    parts = [values(rows) for rows in _rows(list(axes.values()), shape)]
    whole = (np.concatenate(part) for part in zip(*parts, strict=True))
    return tuple(part.reshape(*shape, *part.shape[1:]) for part in whole)


def _rows(axes: list[Array], shape: tuple[int, ...]) -> Iterator[Float[Array, "b d"]]:
    total = math.prod(shape)
    for start in range(0, total, TOGETHER):
        places = np.unravel_index(np.arange(start, min(start + TOGETHER, total)), shape)
        yield np.stack([axis[i] for axis, i in zip(axes, places, strict=True)], axis=1)


def labelled(values: Array, axes: dict[str, Float[Array, " m"]], name: str) -> Any:
    """Return an xarray.DataArray with the axes as coordinates, or the array without xarray."""
    if importlib.util.find_spec("xarray") is None:
        return values
    xarray: Any = importlib.import_module("xarray")
    dims = [*axes, *["target"][: values.ndim - len(axes)]]
    return xarray.DataArray(values, coords=axes, dims=dims, name=name)
