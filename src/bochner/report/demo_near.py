"""The demo's second part: harmonics of the globe, nearest cells, and the relief around each cell.

2,048 features draw what is smooth. Ten thousand harmonics, which are never made, draw more in less
time. Relief is rougher than both, and its cells have no noise: what the nearest cells say is
kriged. What that leaves is learned from the relief around each cell, for coasts, trenches and
ridges go on in ways that no covariance of two cells holds.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.spatial import cKDTree

from bochner._core.shapes import Array, Float
from bochner.features.mercer.sphere import SphericalHarmonics
from bochner.kernels.sphere import OnSphere
from bochner.models.gaussian_process.neighbours import NearestNeighbours
from bochner.models.gaussian_process.regressor import GaussianProcessRegressor
from bochner.models.ridge.estimators import KernelRidge
from bochner.report.demo_page import NearResult

#: Kernel and penalty of the harmonics: three cells, and little noise.
GLOBE, ALPHA = OnSphere("matern32", 3.0), 0.1

#: Lengthscale that kriging starts from, in steps of the grid.
CELLS = 3

#: MapCells that each is kriged from, and that are averaged by the simplest rival.
NEIGHBOURS, FEW = 24, 4

#: MapCells on either side whose relief is looked at.
AROUND = 3

#: Metres that relief about a cell has at least, and units of heights and of logarithms of relief.
FLAT, HEIGHT, LOG = 20.0, 2000.0, 1.0


@dataclass(frozen=True, eq=False)
class MapCells:
    """The cells of the demo on their grid, and which of them are learned from.

    Attributes
    ----------
    places : (n, 2)
        Latitude and longitude in degrees, south first, in rows of latitude.
    y : (n,)
    shape : (rows, columns)
    train, test : (k,) int
    degree : int
        Of the harmonics.
    width : int
        Features of the last step.
    lengthscale : {"evidence", "auto"}
        How the numbers of the covariance are found; "auto" keeps a lengthscale of three cells.
    seed : int
    """

    places: Float[Array, "n 2"]
    y: Float[Array, " n"]
    shape: tuple[int, int]
    train: Array
    test: Array
    degree: int
    width: int
    lengthscale: str
    seed: int

    @property
    def learned(self) -> tuple[Array, Array]:
        """Places and heights to learn from."""
        return self.places[self.train], self.y[self.train].astype(np.float64)


Found = tuple[str, str, str, Float[Array, " t"]]


def sharper(cells: MapCells) -> Iterator[NearResult]:
    """Fit one after the other, and give what each finds on the held-out cells."""
    kriged: list[Any] = []
    steps: tuple[Callable[[], Found], ...] = (
        lambda: _nearest(cells),
        lambda: _harmonics(cells),
        lambda: _kriged(cells, kriged),
        lambda: _learned(cells, kriged[0]),
    )
    for step in steps:
        started = time.perf_counter()
        name, code, detail, predicted = step()
        seconds = time.perf_counter() - started
        rmse = float(np.sqrt(np.mean((predicted - cells.y[cells.test]) ** 2)))
        yield NearResult(name, code, detail, rmse, seconds)


def _nearest(cells: MapCells) -> Found:
    """Predict the mean of a few nearest cells."""
    X, y = (
        (GLOBE.inputs(cells.places[part]) for part in (cells.train, cells.test)),
        cells.learned[1],
    )
    learned, asked = X
    found = y[cKDTree(learned).query(asked, FEW)[1]].mean(axis=1)
    return "Mean of the nearest cells", f"KNeighborsRegressor({FEW})", f"{FEW} cells", found


def _harmonics(cells: MapCells) -> Found:
    model = KernelRidge(
        GLOBE, method=SphericalHarmonics(cells.degree), alpha=ALPHA, random_state=cells.seed
    ).fit(*cells.learned)
    count = f"{model.map_.n_features:,} harmonics"
    code = f"KernelRidge({GLOBE!r}, method={model.method}, alpha={ALPHA})"
    return "Spherical harmonics", code, count, model.predict(cells.places[cells.test])


def _kriged(cells: MapCells, keep: list[Any]) -> Found:
    method = NearestNeighbours(NEIGHBOURS)
    start: Any = OnSphere("matern32", CELLS * 180 / cells.shape[0])
    model = GaussianProcessRegressor(
        start, method=method, lengthscale=cells.lengthscale, random_state=cells.seed
    ).fit(*cells.learned)
    found = model.predict(cells.places[cells.test])
    keep[:] = [(model, found)]
    code = f"GaussianProcessRegressor({start!r}, {method=!s}, lengthscale={cells.lengthscale!r})"
    return "Local kriging", code, f"{NEIGHBOURS} cells", found


def _learned(cells: MapCells, kriged: tuple[Any, Array]) -> Found:
    """Learn what kriging leaves of each cell from the relief around it."""
    model, on_test = kriged
    errors = model.fit_.left_out(np.arange(len(cells.train)))[0][:, 0]
    truth, predicted = cells.y.astype(np.float64), np.empty(len(cells.y))
    predicted[cells.train] = truth[cells.train] - errors
    predicted[cells.test] = on_test
    known = truth.copy()
    known[cells.test] = on_test
    X, size = relief_around(cells, known, predicted)
    ridge = KernelRidge(
        "matern32", method="nystrom", n_features=cells.width, random_state=cells.seed
    ).fit(X[cells.train], errors / size[cells.train], sample_weight=size[cells.train] ** 2)
    more = ridge.predict(X[cells.test]) * size[cells.test]
    code = f"KernelRidge('matern32', method='nystrom', n_features={cells.width})"
    detail = f"{cells.width:,} features of {X.shape[1]} columns"
    return "and the relief around it", code, detail, on_test + more


def relief_around(
    cells: MapCells, known: Float[Array, " n"], predicted: Float[Array, " n"]
) -> tuple[Float[Array, "n p"], Float[Array, " n"]]:
    """Return what the relief around each cell looks like, and its size in metres.

    Columns: heights of the cells around, less that predicted for it, in units of their size; the
    logarithm of the size; the predicted height. Along a parallel steps are as long as along a
    meridian, and rows beyond a pole go on on its other side.
    """
    rows, columns = cells.shape
    i, j = np.divmod(np.arange(len(known)), columns)
    step = np.maximum(1, np.round(1 / np.cos(np.deg2rad(cells.places[:, 0])))).astype(int)
    reach, grid, parts = range(-AROUND, AROUND + 1), known.reshape(rows, columns), []
    for a, b in ((a, b) for a in reach for b in reach if a or b):
        row, turned = i + a, j + b * step
        beyond = (row < 0) | (row >= rows)
        row = np.where(row < 0, -1 - row, np.where(row >= rows, 2 * rows - 1 - row, row))
        turned = (turned + beyond * (columns // 2)) % columns
        parts.append(grid[row, turned] - predicted)
    around = np.stack(parts, axis=1)
    size = np.sqrt(np.mean(around**2, axis=1)) + FLAT
    log = np.log(size)
    more = np.stack([(log - log.mean()) / LOG, predicted / HEIGHT], axis=1)
    return np.hstack([around / size[:, None], more]), size
