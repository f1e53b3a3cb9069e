"""The relief of the Earth, and latitude and longitude as points of the sphere."""

import numpy as np

from bochner.datasets.dataset import Dataset, stored
from bochner.errors import InvalidInput

_EARTH = """\
Relief of the Earth: height of the land above and depth of the sea floor below sea level, in
metres (negative under water), averaged over cells of one degree: 180 x 360 = 64,800 rows, from
south to north and, within a row of cells, from 180 degrees west to 180 degrees east.

Cells of equal angle are small near the poles, so the poles carry more rows than their area.

Source: ETOPO5 (NOAA National Geophysical Data Center, Data Announcement 88-MGG-02, Digital relief
of the Surface of the Earth, 1988), averaged to one degree and distributed as etopo60.cdf in
ferret-datasets 7.6.0 (NOAA Pacific Marine Environmental Laboratory). Rounded to whole metres here.

Licence: public domain. Data of the government of the United States; the licence of Ferret
places software and data in the public domain.
"""


def on_sphere(latitude: np.ndarray, longitude: np.ndarray) -> np.ndarray:
    """Return points of the unit sphere for places on the Earth.

    x = (cos φ cos λ, cos φ sin λ, sin φ) for latitude φ and longitude λ. Straight-line distance
    between such points grows with distance on the ground, without a seam at 180° or at the poles.

    Parameters
    ----------
    latitude : (n,)
        Degrees north, −90 to 90.
    longitude : (n,)
        Degrees east; any turn of the circle.

    Returns
    -------
    (n, 3) array
        Rows of length one; float32 if both arguments are float32, else float64.

    Raises
    ------
    InvalidInput
        If a latitude is outside −90 to 90 or not finite: the two arguments may be exchanged.

    Examples
    --------
    >>> import numpy as np
    >>> on_sphere(np.array([0.0, 90.0]), np.array([0.0, 0.0])).round(6).tolist()
    [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    """
    latitude, longitude = np.asarray(latitude), np.asarray(longitude)
    if not (np.all(np.abs(latitude) <= 90) and np.all(np.isfinite(longitude))):
        raise InvalidInput(
            "on_sphere: latitude must lie within -90 to 90 degrees and longitude must be finite; "
            f"got latitudes from {np.min(latitude)} to {np.max(latitude)}. Pass the latitude "
            "first, both in degrees."
        )
    # In float64, so that float32 places lose only their own rounding.
    phi, lam = np.deg2rad(latitude, dtype=np.float64), np.deg2rad(longitude, dtype=np.float64)
    points = np.stack([np.cos(phi) * np.cos(lam), np.cos(phi) * np.sin(lam), np.sin(phi)], axis=-1)
    single = latitude.dtype == longitude.dtype == np.float32
    return points.astype(np.float32) if single else points


def load_earth() -> Dataset:
    """Return the relief of the Earth: 64,800 cells of one degree, in metres above sea level.

    Returns
    -------
    Dataset
        ``X`` (64800, 3) float32, points of the unit sphere; ``y`` (64800,) float32, metres;
        ``latitude`` and ``longitude`` (64800,) float32, degrees, of the middle of each cell.
        ``y.reshape(180, 360)`` is the map, south first.

    Notes
    -----
    Source: ETOPO5, NOAA National Geophysical Data Center, 1988, averaged to one degree in
    ferret-datasets, here rounded to whole metres. Public domain.

    Examples
    --------
    >>> from bochner.datasets import load_earth
    >>> earth = load_earth()
    >>> earth
    Dataset(n=64800, d=3, target='elevation (m)')
    >>> int(earth.y.min()), int(earth.y.max())
    (-7473, 5731)
    """
    elevation = stored("earth.npz")["elevation"]
    rows, columns = elevation.shape
    south, west = np.float32(-90 + 90 / rows), np.float32(-180 + 180 / columns)
    latitude = np.repeat(south + np.arange(rows, dtype=np.float32) * (180 / rows), columns)
    longitude = np.tile(west + np.arange(columns, dtype=np.float32) * (360 / columns), rows)
    return Dataset(
        X=on_sphere(latitude, longitude),
        y=elevation.ravel().astype(np.float32),
        feature_names=("x", "y", "z"),
        target_name="elevation (m)",
        description=_EARTH,
        latitude=latitude,
        longitude=longitude,
    )
