"""Real tables, split and scaled alike for everyone who is compared on them."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

import bochner as bo
from benchmarks.harness import Options, stored
from bochner.datasets import load_earth

__all__ = ["NAMES", "Split", "split", "standardised"]

#: Real tables of the comparisons: one from the folder of data, one carried in the package.
NAMES = ("protein", "elevation")

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class Split:
    """Nine tenths of the rows to fit, one to test, with the kernel's lengthscale divided out.

    Attributes
    ----------
    X, X_test : (n, d) float32
        Inputs divided by ``lengthscale``: everyone uses the Gaussian kernel of lengthscale 1.
    y, y_test : (n,) float32
        In standard deviations of the training part.
    lengthscale : float or tuple of float
        Chosen once, on the training rows; the time this takes is nobody's.
    penalty : float
        The ridge penalty that was best then.
    """

    X: Array
    y: Array
    X_test: Array
    y_test: Array
    lengthscale: float | tuple[float, ...]
    penalty: float

    def error(self, predicted: Array) -> float:
        """Root mean square error on the test rows, in standard deviations."""
        return float(np.sqrt(np.mean((np.ravel(predicted) - self.y_test) ** 2)))


def split(name: str, options: Options, width: int) -> Split:
    """Return a table of :data:`NAMES`, cut to few rows in a quick run."""
    return _split(name, options.data, options.pick(None, 5000), width)


@cache
def _split(name: str, folder: Path | None, most: int | None, width: int) -> Split:
    X, y = _protein(folder) if name == "protein" else _elevation()
    order = np.random.default_rng(0).permutation(len(y))[:most]
    test, train = np.split(order, [len(order) // 10])
    if name == "protein":
        X = (X - X[train].mean(axis=0)) / X[train].std(axis=0)
    y = (y - y[train].mean()) / y[train].std()
    model = bo.KernelRidge("gaussian", method="orthogonal", n_features=width, random_state=0)
    model.fit(X[train], y[train])
    scale = model.kernel_.lengthscale
    X = (X / np.asarray(scale)).astype(np.float32)
    return Split(X[train], y[train], X[test], y[test], scale, model.alpha_)


def _elevation() -> tuple[Array, Array]:
    earth = load_earth()
    return earth.X.astype(np.float64), earth.y


def _protein(folder: Path | None) -> tuple[Array, Array]:
    arrays = stored("protein", folder)
    return arrays["X"].astype(np.float64), arrays["y"].astype(np.float32)


def standardised(name: str, options: Options, most: int) -> Array:
    """Return so many rows of a table of the folder at random, columns in standard deviations."""
    X = stored(name, options.data)["X"].astype(np.float64)
    X = X[np.random.default_rng(0).permutation(len(X))[:most]]
    spread = X.std(axis=0)
    return (X[:, spread > 0] - X[:, spread > 0].mean(axis=0)) / spread[spread > 0]
