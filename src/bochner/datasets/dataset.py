"""The value that every loader returns."""

from dataclasses import dataclass
from importlib import resources

import numpy as np


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
        What the rows are, where they come from and under which licence.
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
        """Return one line."""
        n, d = self.X.shape
        return f"Dataset(n={n}, d={d}, target={self.target_name!r})"


def stored(name: str) -> dict[str, np.ndarray]:
    """Return the arrays of one of the package's .npz files."""
    place = resources.files("bochner.datasets").joinpath(name)
    with place.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        return dict(arrays)
