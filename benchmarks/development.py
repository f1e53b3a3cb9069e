"""The development sets of regression: read from the folder of data, split and put in units."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks.harness import Options, stored

__all__ = ["NAMES", "Development", "development", "scored"]

NAMES = (
    "uci_concrete",
    "kin8nm",
    "power_plant",
    "uci_pumadyn32nm",
    "uci_pol",
    "bike_clean",
    "california_housing",
    "protein",
    "elevation_etopo60",
)


@dataclass(frozen=True, eq=False)
class Development:
    """Four fifths of the rows to fit and the rest to test, in standard deviations of the former.

    Attributes
    ----------
    X, X_test : (n, d) float64
    y, y_test : (n,) float64
    """

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray

    def error(self, predicted: np.ndarray) -> float:
        """Root mean square error on the test rows."""
        return float(np.sqrt(np.mean((np.ravel(predicted) - self.y_test) ** 2)))


def development(name: str, options: Options, most: int | None = None) -> Development:
    """Return a set of :data:`NAMES`, with ``most`` rows to fit at most."""
    arrays = stored(name, options.data)
    X, y = arrays["X"].astype(np.float64), arrays["y"].astype(np.float64)
    X = _on_the_sphere(X) if name.startswith("elevation") else X
    order = np.random.default_rng(0).permutation(len(y))
    train, test = np.split(order, [int(0.8 * len(y))])
    train = train[:most]
    mean, spread = X[train].mean(axis=0), X[train].std(axis=0)
    X = (X - mean) / np.where(spread > 0, spread, 1.0)
    y = (y - y[train].mean()) / y[train].std()
    return Development(X[train], y[train], X[test], y[test])


def _on_the_sphere(degrees: np.ndarray) -> np.ndarray:
    latitude, longitude = np.radians(degrees.T)
    across = np.cos(latitude)
    return np.stack(
        [across * np.cos(longitude), across * np.sin(longitude), np.sin(latitude)], axis=1
    )


def scored(data: Development, make: Callable[[int], object]) -> Callable[[int], float]:
    """Return a case for ``interleaved``: fit, and the error on the test rows."""

    def case(seed: int) -> float:
        return data.error(make(seed).fit(data.X, data.y).predict(data.X_test))

    return case
