"""The carried data are what their descriptions say."""

from importlib import resources

import numpy as np
import pytest

from bochner.datasets import load_co2, load_concrete, load_earth, on_sphere
from bochner.errors import InvalidInput


def great_circle(a, b):
    """Angle between two places by the haversine formula, in radians."""
    (p, q), (r, s) = np.deg2rad(a), np.deg2rad(b)
    h = np.sin((r - p) / 2) ** 2 + np.cos(p) * np.cos(r) * np.sin((s - q) / 2) ** 2
    return 2 * np.arcsin(np.sqrt(h))


def test_earth_is_a_grid_of_one_degree():
    earth = load_earth()
    assert earth.X.shape == (64800, 3)
    assert earth.X.dtype == earth.y.dtype == np.float32
    latitude, longitude = (a.reshape(180, 360) for a in (earth.latitude, earth.longitude))
    np.testing.assert_array_equal(latitude[:, 7], np.arange(-89.5, 90))
    np.testing.assert_array_equal(longitude[7], np.arange(-179.5, 180))


@pytest.mark.parametrize(
    ("place", "low", "high"),
    [
        ((-89.5, 0.5), 2700, 2900),  # the South Pole stands on 2,835 m of ice and rock
        ((89.5, 0.5), -4500, -4000),  # the North Pole floats on 4,261 m of water
        ((32.5, 87.5), 4500, 5800),  # Tibet
        ((11.5, 142.5), -9000, -5500),  # the Mariana trench
        ((72.5, -39.5), 2500, 3400),  # the ice of Greenland
        ((-20.5, 135.5), 100, 600),  # the middle of Australia
        ((0.5, -140.5), -5000, -3500),  # the middle of the Pacific
    ],
)
def test_heights_are_where_they_belong(place, low, high):
    earth = load_earth()
    (row,) = np.flatnonzero((earth.latitude == place[0]) & (earth.longitude == place[1]))
    assert low < earth.y[row] < high


def test_seven_tenths_of_the_earth_are_water():
    earth = load_earth()
    area = np.cos(np.deg2rad(earth.latitude.astype(float)))
    assert 0.69 < area[earth.y < 0].sum() / area.sum() < 0.73


def test_points_of_the_sphere_have_length_one():
    np.testing.assert_allclose(np.linalg.norm(load_earth().X, axis=1), 1, atol=2e-7)


def test_chords_agree_with_great_circles():
    places = np.array([[52.5, 13.4], [-33.9, 151.2], [90.0, 77.0], [0.0, 180.0], [0.0, -180.0]])
    points = on_sphere(*places.T)
    for i, a in enumerate(places):
        for j, b in enumerate(places):
            chord = np.linalg.norm(points[i] - points[j])
            assert chord == pytest.approx(2 * np.sin(great_circle(a, b) / 2), abs=1e-14)


def test_places_keep_their_precision():
    single = np.array([10.0], np.float32)
    assert on_sphere(single, single).dtype == np.float32
    assert on_sphere(single, single.astype(float)).dtype == np.float64
    assert on_sphere([10], [20]).dtype == np.float64


def test_exchanged_latitude_and_longitude_are_refused():
    with pytest.raises(InvalidInput, match=r"latitude must lie within -90 to 90.*to 151\.2\. Pass"):
        on_sphere([13.4, 151.2], [52.5, -33.9])
    with pytest.raises(InvalidInput, match="longitude must be finite"):
        on_sphere([13.4], [np.nan])


def test_concrete_is_the_table_it_says():
    concrete = load_concrete()
    assert concrete.X.shape == (1030, len(concrete.feature_names)) == (1030, 8)
    # Yeh's first mix, and the ranges of his table of all mixes.
    first = [540, 0, 0, 162, 2.5, 1040, 676, 28]
    np.testing.assert_allclose(concrete.X[0], first, rtol=1e-6)
    assert concrete.y[0] == pytest.approx(79.99, rel=1e-6)
    lowest, highest = (
        [102, 0, 0, 121.8, 0, 801, 594, 1],
        [540, 359.4, 200.1, 247, 32.2, 1145, 992.6, 365],
    )
    np.testing.assert_allclose(concrete.X.min(axis=0), lowest, rtol=1e-6)
    np.testing.assert_allclose(concrete.X.max(axis=0), highest, rtol=1e-6)


def test_straight_lines_explain_three_fifths_of_concrete():
    concrete = load_concrete()
    X = np.c_[np.ones(1030), concrete.X].astype(float)
    coef, *_ = np.linalg.lstsq(X, concrete.y.astype(float), rcond=None)
    residual = concrete.y - X @ coef
    assert 1 - residual.var() / concrete.y.var() == pytest.approx(0.6155, abs=1e-4)


@pytest.mark.parametrize("load", [load_earth, load_concrete])
def test_data_state_source_and_licence(load):
    data = load()
    assert "Source: " in data.description
    assert "Licence: " in data.description
    assert data.target_name.endswith(")")  # with its unit


def test_carbon_dioxide_rises_and_is_highest_in_spring():
    data = load_co2()
    year, co2 = data.X[:, 0].astype(float), data.y.astype(float)
    assert (data.X.shape, data.X.dtype, data.y.dtype) == ((521, 1), np.float32, np.float32)
    assert np.all(np.diff(year) > 0.08)
    # Keeling's curve: 315 ppm in 1958, a rise of 0.8 ppm a year then and of 1.6 at the end.
    slope, level = np.polyfit(year - 1959.5, co2, 1)
    assert abs(level - 311.8) < 1
    assert abs(slope - 1.31) < 0.05
    around = co2 - np.polyval(np.polyfit(year - 1980, co2, 3), year - 1980)
    month = np.floor(year % 1 * 12).astype(int)
    mean = np.array([around[month == m].mean() for m in range(12)])
    assert mean.argmax() == 4  # May
    assert mean.argmin() in (8, 9)  # September and October


def test_carried_files_are_small():
    files = [f for f in resources.files("bochner.datasets").iterdir() if f.name.endswith(".npz")]
    assert {f.name for f in files} == {"earth.npz", "concrete.npz", "co2.npz"}
    assert sum(len(f.read_bytes()) for f in files) < 200_000
