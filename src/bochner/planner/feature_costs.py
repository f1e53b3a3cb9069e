"""What it takes to make features, by the rates of the machine, or tried on rows."""

import time
from dataclasses import dataclass
from functools import singledispatch

import numpy as np

from bochner._core.arrays import to_numpy
from bochner._core.native import radial_product
from bochner._core.shapes import Array
from bochner.features.fourier.fourier import FourierMap
from bochner.features.fourier.placements import StructuredMap
from bochner.features.map import FeatureMap
from bochner.features.nystrom.nystrom import NystromMap
from bochner.kernels import CoordinateWise, Kernel, Radial
from bochner.planner.machine import Machine, Timer, least_time
from bochner.planner.predicted import TILE, Task, pivoting

#: Rows that features are tried on, rows and columns of a kernel matrix, and rows of a product with
#: one, enough of them for tiles for all threads.
TRIED_ROWS, TRIED_VALUES, TRIED_PAIRS = 1024, 1024, 4096


@dataclass(frozen=True, eq=False)
class Probe:
    """Rows to try things on, and the clock.

    Attributes
    ----------
    X : (m, d)
        In the array library and on the device that the fit will have.
    plain : bool
        Whether X is a NumPy array, as the rates of the machine are.
    kernel : Kernel
    machine : Machine
    timer : callable
    """

    X: Array
    plain: bool
    kernel: Kernel
    machine: Machine
    timer: Timer = time.perf_counter

    @property
    def columns(self) -> int:
        """Columns d of the rows."""
        return int(self.X.shape[1])

    def value(self, precision: str = "") -> float:
        """Return seconds of one kernel value, of rows as they are or in this precision."""
        X = self.X[:TRIED_VALUES]
        X = X.astype(precision) if precision else X
        act = least_time(lambda: to_numpy(self.kernel(X, X)), self.timer)
        return act / X.shape[0] ** 2

    def pair(self, precision: str, n_targets: int) -> float:
        """Return seconds of one kernel value that is made, and multiplied twice for each target."""
        loop = self.kernel.compiled if isinstance(self.kernel, Radial | CoordinateWise) else None
        if loop is None or not self.plain:
            multiply = 4 * n_targets * self.machine.copy * (2 if precision == "float64" else 1)
            return self.value(precision if self.plain else "") + multiply
        X = np.ascontiguousarray(self.X[:TRIED_PAIRS] - self.X[:TRIED_PAIRS].mean(axis=0))
        X = (X / np.asarray(self.kernel.get_params()["lengthscale"])).astype(precision)
        V = np.ones((len(X), n_targets), precision)
        seconds = least_time(lambda: radial_product(X, V, *loop), self.timer)
        return seconds / (len(X) * (len(X) + TILE) / 2)

    def features(self, phi: FeatureMap) -> float:
        """Return seconds of the features of one row, tried."""
        X = self.X[:TRIED_ROWS]
        return least_time(lambda: to_numpy(phi(X)), self.timer) / X.shape[0]


def row_seconds(phi: FeatureMap, probe: Probe, precision: str, itemsize: int) -> float:
    """Return seconds of the features of one row, rounded to this precision."""
    single = precision == "float32"
    computed = "float32" if single and itemsize <= 4 else "float64"
    cast = 12 * phi.n_features * probe.machine.copy if single and computed == "float64" else 0.0
    if not probe.plain:
        return probe.features(phi) + cast
    return _made(phi, probe, computed) + cast


@singledispatch
def _made(phi: FeatureMap, probe: Probe, precision: str) -> float:  # noqa: ARG001
    return probe.features(phi)


@_made.register
def _(phi: FourierMap, probe: Probe, precision: str) -> float:
    return probe.machine.cosines(1, phi.n_features // 2, probe.columns, precision)


@_made.register
def _(phi: StructuredMap, probe: Probe, precision: str) -> float:
    cosines = probe.machine.cosines(1, phi.n_features // 2, 2, precision)
    return phi.multiplications * probe.machine.hadamard[precision] + cosines


@_made.register
def _(phi: NystromMap, probe: Probe, precision: str) -> float:
    return nystrom_row(phi.n_features, probe, precision)


def nystrom_row(D: int, probe: Probe, precision: str) -> float:
    """Return seconds of D kernel values and their product with a triangle."""
    value = probe.value(precision) if probe.plain else probe.value()
    return D * value + D**2 * probe.machine.triangle


def nystrom_draw(task: Task, D: int, probe: Probe) -> tuple[float, float]:
    """Return seconds and bytes of choosing D landmarks."""
    return pivoting(task, D, probe.machine, probe.value())
