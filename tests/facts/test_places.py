"""Places from other libraries: points with a system, fields with coordinates, and refusals."""

from types import SimpleNamespace

import numpy as np
import pytest

import bochner as bo
from bochner.errors import InvalidInput, InvalidType

LON, LAT = np.array([10.0, -170.0, 30.0]), np.array([50.0, -20.0, 0.5])


class System:
    """What GeoPandas says of a coordinate reference system, as far as it is asked."""

    def __init__(self, name, is_geographic):
        self.name, self.is_geographic = name, is_geographic

    def to_string(self):
        return self.name

    def __eq__(self, other):
        return self.name == getattr(other, "name", other)

    __hash__ = None


class Frame(dict):
    """A GeoDataFrame, as far as it is asked: columns by name, and its geometry."""

    def __init__(self, crs, kinds=("Point",), x=LON, y=LAT):
        super().__init__(t=np.arange(3.0))
        self.geometry = SimpleNamespace(geom_type=list(kinds), crs=crs, x=x, y=y)


DEGREES, METRES = System("EPSG:4326", True), System("EPSG:32632", False)


def test_points_in_degrees_are_latitude_and_longitude():
    found = bo.PlacedRows.from_geopandas(Frame(DEGREES), "t")
    np.testing.assert_array_equal(found.X, np.stack([LAT, LON], axis=1))
    np.testing.assert_array_equal(found.y, [0, 1, 2])
    assert found.names == ("lat", "lon")
    assert found.crs == "EPSG:4326"


def test_projected_points_are_x_and_y():
    found = bo.PlacedRows.from_geopandas(Frame(METRES))
    np.testing.assert_array_equal(found.X, np.stack([LON, LAT], axis=1))
    assert (found.names, found.y, found.crs) == (("x", "y"), None, "EPSG:32632")
    assert bo.PlacedRows.from_geopandas(Frame(METRES), crs=found.crs).crs == found.crs


@pytest.mark.parametrize(
    ("frame", "given", "sentence"),
    [
        (Frame(None), {}, "must have a coordinate reference system.*got none. Call frame.set_crs"),
        (Frame(DEGREES), {"crs": "EPSG:32632"}, "system EPSG:32632; got EPSG:4326. Call .*to_crs"),
        (Frame(DEGREES, ("Point", "Polygon")), {}, "must be a point; got Point, Polygon"),
        (Frame(DEGREES, ("Point", None)), {}, "must have a point; 1 have no geometry. Drop them"),
        (Frame(DEGREES), {"target": "q"}, "column of the frame; got 'q', which it does not have"),
        (Frame(DEGREES, ()), {}, "must be a point; got none"),
        (Frame(DEGREES, x=np.full(3, np.nan)), {}, "coordinates must be finite"),
    ],
    ids=[
        "no system",
        "another system",
        "polygons",
        "none for a row",
        "no such target",
        "nothing",
        "empty points",
    ],
)
def test_points_that_are_not_known_are_refused(frame, given, sentence):
    with pytest.raises(InvalidInput, match=sentence):
        bo.PlacedRows.from_geopandas(frame, **given)


def test_what_has_no_geometry_is_refused():
    with pytest.raises(InvalidType, match=r"must be a GeoDataFrame or GeoSeries.*got ndarray"):
        bo.PlacedRows.from_geopandas(LON)
    with pytest.raises(InvalidType, match=r"must be an xarray\.DataArray; got ndarray"):
        bo.PlacedRows.from_xarray(LON)


def test_points_of_geopandas_are_read():
    geopandas = pytest.importorskip("geopandas")
    points = geopandas.points_from_xy(LON, LAT, crs="EPSG:4326")
    frame = geopandas.GeoDataFrame({"t": [1.0, 2.0, 3.0]}, geometry=points)
    found = bo.PlacedRows.from_geopandas(frame, "t")
    np.testing.assert_array_equal(found.X, np.stack([LAT, LON], axis=1))
    with pytest.raises(InvalidInput, match="got EPSG:4326"):
        bo.PlacedRows.from_geopandas(frame, crs="EPSG:3857")


def test_cells_of_a_field_are_rows(tmp_path):
    xarray = pytest.importorskip("xarray")
    values = np.array([[1.0, np.nan, 3.0], [4.0, 5.0, 6.0]])
    days = np.array(["2000-01-01", "2000-01-02"], dtype="datetime64[D]")
    field = xarray.DataArray(
        values, coords={"time": days, "x": [0.0, 0.5, 1.0]}, dims=("time", "x")
    )
    found = bo.PlacedRows.from_xarray(field)
    assert found.names == ("time", "x")
    np.testing.assert_array_equal(found.y, [1, 3, 4, 5, 6])
    day = 946_684_800.0
    by_hand = [(day, 0.0), (day, 1.0)] + [(day + 86_400, x) for x in (0.0, 0.5, 1.0)]
    np.testing.assert_array_equal(found.X, by_hand)
    with pytest.raises(InvalidInput, match="each dimension must have a coordinate; 'x' has none"):
        bo.PlacedRows.from_xarray(field.drop_vars("x"))
    with pytest.raises(InvalidInput, match="a cell at least must hold a finite value"):
        bo.PlacedRows.from_xarray(field * np.nan)


def test_a_field_becomes_a_map_and_a_file(tmp_path):
    xarray = pytest.importorskip("xarray")
    x = np.linspace(0, 1, 12)
    field = xarray.DataArray(np.sin(3 * x)[:, None] * x, coords={"x": x, "y": x}, dims=("x", "y"))
    rows = bo.PlacedRows.from_xarray(field)
    process = bo.GaussianProcessRegressor("gaussian", method=bo.FourierGrid(1e-6), noise=1e-4)
    found = process.fit(rows.X, rows.y).predict_grid(x=x, y=x)
    found.to_netcdf(tmp_path / "field.nc", engine="scipy")
    again = xarray.open_dataarray(tmp_path / "field.nc", engine="scipy")
    np.testing.assert_allclose(again, field, atol=0.02)
    assert again.dims == ("x", "y")
