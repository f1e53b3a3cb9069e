"""Small tables for tests and documentation: the Earth's relief, concrete, carbon dioxide."""

from dataclasses import dataclass
from importlib import resources

import numpy as np

from bochner.errors import InvalidInput


@dataclass(frozen=True, eq=False)
class Dataset:
    """A regression table with its names, units, source and licence.

    Attributes
    ----------
    X : (n, d) float32
        Inputs.
    y : (n,) float32
        Target.
    feature_names : tuple of str
        d names.
    target_name : str
        Name of the target, with its unit.
    description : str
        Meaning of the rows, their source and their licence.
    latitude, longitude : (n,) float32 or None
        Degrees north and east, for data on the Earth.
    """

    X: np.ndarray
    y: np.ndarray
    feature_names: tuple[str, ...]
    target_name: str
    description: str
    latitude: np.ndarray | None = None
    longitude: np.ndarray | None = None

    def __repr__(self) -> str:
        n, d = self.X.shape
        return f"Dataset(n={n}, d={d}, target={self.target_name!r})"


def read_arrays(name: str) -> tuple[dict[str, np.ndarray], str]:
    """Return the arrays and the description of a data set of the package."""
    folder = resources.files("bochner.datasets")
    with folder.joinpath(f"{name}.npz").open("rb") as file, np.load(file) as arrays:
        return dict(arrays), folder.joinpath(f"{name}.txt").read_text(encoding="utf-8")


# --- The compressive strength of concrete: a small table for tests and docs ----------------------

_NAMES = (
    "cement", "blast_furnace_slag", "fly_ash", "water",
    "superplasticizer", "coarse_aggregate", "fine_aggregate", "age",
)  # fmt: skip


def load_concrete() -> Dataset:
    """Return the compressive strength of 1,030 samples of concrete (Yeh 1998).

    Returns
    -------
    Dataset
        ``X`` (1030, 8) float32, ingredients in kg/m³, age in days; ``y`` (1030,) float32, MPa.

    Examples
    --------
    >>> from bochner.datasets import load_concrete
    >>> load_concrete()
    Dataset(n=1030, d=8, target='strength (MPa)')
    """
    arrays, description = read_arrays("concrete")
    return Dataset(arrays["X"], arrays["y"], _NAMES, "strength (MPa)", description)


# --- Carbon dioxide above Mauna Loa: a series with a trend and a season --------------------------


def load_co2() -> Dataset:
    """Return the CO₂ concentration at Mauna Loa: 521 monthly means from 1958 to 2001.

    Returns
    -------
    Dataset
        ``X`` (521, 1) float32, decimal years; ``y`` (521,) float32, parts per million.

    Examples
    --------
    >>> from bochner.datasets import load_co2
    >>> load_co2()
    Dataset(n=521, d=1, target='CO2 (ppm)')
    """
    arrays, description = read_arrays("co2")
    return Dataset(arrays["year"][:, None], arrays["co2"], ("year",), "CO2 (ppm)", description)


# --- The relief of the Earth, and latitude and longitude as points of the sphere -----------------


def on_sphere(latitude: np.ndarray, longitude: np.ndarray) -> np.ndarray:
    """Return points of the unit sphere for places on the Earth.

    x = (cos φ cos λ, cos φ sin λ, sin φ) for latitude φ and longitude λ. Straight-line distance
    between such points grows with distance on the ground, without a seam at 180° or at the poles.

    Parameters
    ----------
    latitude : (n,)
        Degrees north, −90 to 90.
    longitude : (n,)
        Degrees east; 360 may be added or subtracted.

    Returns
    -------
    (n, 3) array
        Rows of length one; float32 if both arguments are float32, else float64.

    Raises
    ------
    InvalidInput
        A latitude is outside −90 to 90 or not finite (perhaps the arguments are exchanged), or a
        longitude is not finite.

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
    # in float64, so that the only error is the rounding of the arguments
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

    Examples
    --------
    >>> from bochner.datasets import load_earth
    >>> earth = load_earth()
    >>> earth
    Dataset(n=64800, d=3, target='elevation (m)')
    >>> int(earth.y.min()), int(earth.y.max())
    (-7473, 5731)
    """
    arrays, description = read_arrays("earth")
    elevation = arrays["elevation"]
    rows, columns = elevation.shape
    south, west = np.float32(-90 + 90 / rows), np.float32(-180 + 180 / columns)
    latitude = np.repeat(south + np.arange(rows, dtype=np.float32) * (180 / rows), columns)
    longitude = np.tile(west + np.arange(columns, dtype=np.float32) * (360 / columns), rows)
    return Dataset(
        X=on_sphere(latitude, longitude),
        y=elevation.ravel().astype(np.float32),
        feature_names=("x", "y", "z"),
        target_name="elevation (m)",
        description=description,
        latitude=latitude,
        longitude=longitude,
    )
