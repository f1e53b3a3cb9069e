"""Places from other libraries: points of GeoPandas, fields of xarray, as rows with their names."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from bochner._core.shapes import Array, Float
from bochner.errors import InvalidInput, InvalidType

POINTS, FIELD = "PlacedRows.from_geopandas", "PlacedRows.from_xarray"


@dataclass(frozen=True, eq=False)
class PlacedRows:
    """Coordinates of rows, what they are called, and a target where there is one.

    Attributes
    ----------
    X : (n, d)
        Coordinates: (lat, lon) in degrees of a geographic system, as kernels of the globe take
        them, (x, y) of a projected one, and the dimensions of a field in their order.
    names : tuple of str
        Of the columns.
    y : (n,) or None
    crs : str or None
        The coordinate reference system, as its library writes it.
    """

    X: Float[Array, "n d"]
    names: tuple[str, ...]
    y: Array | None = None
    crs: str | None = None

    @classmethod
    def from_geopandas(cls, frame: Any, target: str | None = None, crs: Any = None) -> Self:
        """Return the points of a GeoDataFrame or GeoSeries.

        Parameters
        ----------
        frame : GeoDataFrame or GeoSeries
            Of points.
        target : str, optional
            The column that becomes y.
        crs : str or None, optional
            The system that the points must be in: that of the places of a fit.

        Raises
        ------
        InvalidType
            If it has no geometry.
        InvalidInput
            If geometries are not points, or missing, or their system is none or another.
        """
        geometry = getattr(frame, "geometry", None)
        if geometry is None or not hasattr(geometry, "geom_type"):
            raise InvalidType(
                f"{POINTS}: frame must be a GeoDataFrame or GeoSeries of GeoPandas; got "
                f"{type(frame).__name__}."
            )
        found = _system(geometry.crs, crs)
        of_rows = list(geometry.geom_type)
        missing = sum(not isinstance(kind, str) for kind in of_rows)
        if missing:
            raise InvalidInput(
                f"{POINTS}: every row must have a point; {missing:,} have no geometry. Drop them: "
                "frame[frame.geometry.notna()]."
            )
        kinds = sorted(set(of_rows))
        if kinds != ["Point"]:
            raise InvalidInput(
                f"{POINTS}: every geometry must be a point; got "
                f"{', '.join(kinds) or 'none'}. Take frame.geometry.representative_point(), or the "
                "centroid in a projected system."
            )
        east, north = (np.asarray(axis, dtype=np.float64) for axis in (geometry.x, geometry.y))
        globe = bool(geometry.crs.is_geographic)
        X = np.stack([north, east] if globe else [east, north], axis=1)
        if not np.isfinite(X).all():
            raise InvalidInput(
                f"{POINTS}: coordinates must be finite; got empty points. Drop them."
            )
        y = None if target is None else _target(frame, target)
        return cls(X, ("lat", "lon") if globe else ("x", "y"), y, found)

    @classmethod
    def from_xarray(cls, field: Any) -> Self:
        """Return the cells of a DataArray that hold a value: its coordinates as rows, values as y.

        Parameters
        ----------
        field : xarray.DataArray
            With a coordinate along each dimension. Dates become seconds since 1970.

        Raises
        ------
        InvalidType
            If it is none.
        InvalidInput
            If a dimension has no coordinate, or no cell holds a value.
        """
        if not (hasattr(field, "dims") and hasattr(field, "coords") and hasattr(field, "values")):
            raise InvalidType(
                f"{FIELD}: field must be an xarray.DataArray; got "
                f"{type(field).__name__}. Of a Dataset take one variable, dataset['name']."
            )
        names = tuple(str(name) for name in field.dims)
        for name in names:
            if name not in field.coords:
                raise InvalidInput(
                    f"{FIELD}: each dimension must have a coordinate; {name!r} has none."
                )
        axes = [_numbers(np.asarray(field.coords[name].values)) for name in names]
        values = np.asarray(field.values, dtype=np.float64)
        known = np.isfinite(values)
        if not known.any():
            raise InvalidInput(f"{FIELD}: a cell at least must hold a finite value.")
        at = np.nonzero(known)
        X = np.stack([axis[i] for axis, i in zip(axes, at, strict=True)], axis=1)
        return cls(X, names, values[known])


def _target(frame: Any, name: str) -> Array:
    try:
        return np.asarray(frame[name])
    except KeyError:
        raise InvalidInput(
            f"{POINTS}: target must be the name of a column of the frame; got {name!r}, which it "
            "does not have."
        ) from None


def _system(found: Any, asked: Any) -> str:
    """Return the coordinate reference system in words; refuse none, and another than asked for."""
    if found is None:
        raise InvalidInput(
            f"{POINTS}: the points must have a coordinate reference system, which says whether "
            "they are degrees or metres; got none. Call frame.set_crs(...) first."
        )
    if asked is not None and found != asked:
        raise InvalidInput(
            f"{POINTS}: the points must be in the system {asked}; got "
            f"{found.to_string()}. Call frame.to_crs(...) first."
        )
    return str(found.to_string())


def _numbers(axis: Array) -> Float[Array, " m"]:
    if axis.dtype.kind == "M":
        return axis.astype("datetime64[ns]").astype(np.int64) / 1e9
    return axis.astype(np.float64)
