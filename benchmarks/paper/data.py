"""The data sets of the paper's tables, or their nearest relatives; ``README.md`` names them."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.harness import Options, stored
from bochner.datasets import load_earth
from bochner.datasets.loaders import on_sphere

__all__ = ["CLUSTERING", "REGRESSION", "Clusters", "Split", "clusters", "regression", "split"]

Array = np.ndarray
Arrays = dict[str, Array]


@dataclass(frozen=True, eq=False)
class Split:
    """Nine tenths of the rows to fit, in random order, and one to test.

    Attributes
    ----------
    X, X_test : (n, d) float64
    y, y_test : (n,) float64
        In the units of the paper's errors, where these are known.
    """

    X: Array
    y: Array
    X_test: Array
    y_test: Array


@dataclass(frozen=True, eq=False)
class Clusters:
    """Unit rows, and how many classes they have."""

    X: Array
    n_clusters: int


# --- Table 2 -------------------------------------------------------------------------------------


def _relief() -> tuple[Array, Array]:
    earth = load_earth()
    return earth.X, earth.y / 1000.0  # metres to kilometres


def _co2(a: Arrays) -> tuple[Array, Array]:
    return _places_and_times(a), np.log10(a["y"].astype(np.float64))  # over nine decades


def _climate(a: Arrays) -> tuple[Array, Array]:
    return _places_and_times(a), a["y"]


def _protein(a: Arrays) -> tuple[Array, Array]:
    X = a["X"].astype(np.float64)
    return (X - X.mean(axis=0)) / X.std(axis=0), a["y"]


def _places(a: Arrays) -> Array:
    return on_sphere(a["X"][:, 0].astype(np.float64), a["X"][:, 1].astype(np.float64))


def _places_and_times(a: Arrays) -> Array:
    """Return places on the unit sphere and the time, from -1 to 1: as wide as a coordinate."""
    time = a["X"][:, 2].astype(np.float64)
    low, high = time.min(), time.max()
    return np.column_stack([_places(a), (2 * time - low - high) / (high - low)])


#: Name in the table: file (none: in the package), and its inputs and target.
REGRESSION: dict[str, tuple[str | None, Callable[[Arrays], tuple[Array, Array]]]] = {
    "Elevation": (None, lambda _: _relief()),
    "CO2": ("co2_cdiac", _co2),
    "Climate": ("climate_ncep", _climate),
    "Protein": ("protein", _protein),
}


def split(name: str, options: Options, seed: int = 0) -> Split:
    """Return a data set of Table 2, split at random; cut to few rows in a quick run."""
    X, y = regression(name, options.data)
    most = options.pick(options.rows, 400)
    order = np.random.default_rng(seed).permutation(len(y))[:most]
    test, train = np.split(order, [len(order) // 10])
    return Split(X[train], y[train], X[test], y[test])


def regression(name: str, folder: Path | None) -> tuple[Array, Array]:
    """Return the rows of a data set of Table 2; those of the elevation come with the package."""
    file, prepared = REGRESSION[name]
    X, y = prepared({} if file is None else stored(file, folder))
    return X.astype(np.float64), y.astype(np.float64)


# --- Table 3 -------------------------------------------------------------------------------------

#: Name in the table: file, key of the labels, and whether only its training part is the paper's.
CLUSTERING: dict[str, tuple[str, str, bool]] = {
    "Abalone": ("abalone_jmlr", "y", False),
    "Pendigits": ("pendigits", "y", True),
    "Mushroom": ("mushroom", "y", False),
    "Magic": ("magic", "y", False),
    "Statlog": ("shuttle", "y", True),
    "Connect-4": ("connect4", "y2", False),
}


def clusters(name: str, options: Options) -> Clusters:
    """Return a data set of Table 3: columns standardised, then rows divided by their lengths."""
    file, labels, training_only = CLUSTERING[name]
    a = stored(file, options.data)
    kept = a["split"] == 0 if training_only else slice(None)
    X, y = a["X"][kept].astype(np.float64), a[labels][kept]
    X = X[:, X.std(axis=0) > 0]
    X = (X - X.mean(axis=0)) / X.std(axis=0, ddof=1)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    few = np.random.default_rng(0).permutation(len(X))[: options.pick(options.rows, 1000)]
    return Clusters(X[np.sort(few)], len(np.unique(y)))
