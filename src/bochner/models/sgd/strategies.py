"""Six ways to run stochastic gradient descent on a kernel, and what each takes here.

The six are those of the lecture notes: features of the kernel itself, kernel values, or features
that approximate it; each computed when a step needs them, or once and kept. Counts are exact; the
seconds that one row of features, one kernel value and one step take are measured, for a moment, on
this machine, and kept for the life of the process.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from bochner._core.checks import free_bytes
from bochner._core.shapes import Array, Float
from bochner._core.text import columns
from bochner.features.map import FeatureMap
from bochner.kernels import Kernel
from bochner.solvers.convex.class_losses import Hinge
from bochner.solvers.sgd import Descent, Schedule, Walk

STRATEGIES = (
    "exact_on_the_fly",
    "exact_cached",
    "kernel_on_the_fly",
    "gram_cached",
    "approximate_on_the_fly",
    "approximate_cached",
)
EXACT, DUAL = STRATEGIES[:2], STRATEGIES[2:4]

#: Strategies that approximate are taken where they are faster by more than this factor, and by
#: more than these seconds.
AS_FAST, AS_SOON = 1.5, 0.25

#: Rows and columns of the arrays that a step is measured on; larger ones are taken in proportion.
STEP_ROWS, STEP_WIDTH = 512, 1 << 14

#: Numbers of the table that these rows are picked from: more than caches hold.
TABLE = 1 << 22

#: Rows of data that features and kernel values are measured on.
SAMPLE_ROWS = 512

#: A measurement is repeated up to this many seconds, and three times at most.
MOMENT = 0.02


@dataclass(frozen=True)
class SgdTask:
    """What is to be run.

    Attributes
    ----------
    n_rows, n_columns, n_targets : int
        n, d, t.
    epochs : int
        Passes over the rows.
    batch_size : int
    itemsize : int
        Bytes of a number of X, of features and of kernel values.
    """

    n_rows: int
    n_columns: int
    n_targets: int
    epochs: int
    batch_size: int
    itemsize: int = 8


@dataclass(frozen=True)
class StrategyCost:
    """One of the six.

    Attributes
    ----------
    name : str
    width : int
        Numbers that a step reads for each row: D, or n.
    seconds, bytes : float
        Predicted; bytes beside the rows of X, which all six need.
    measured_seconds, measured_bytes : float
        NaN where it was not run.
    refused : str
        Why it cannot be run; empty where it can.
    """

    name: str
    width: int = 0
    seconds: float = np.nan
    bytes: float = np.nan
    measured_seconds: float = np.nan
    measured_bytes: float = np.nan
    refused: str = ""


@dataclass(frozen=True)
class StrategyPlan:
    """The six strategies for one kernel and table of data; prints as a table.

    Attributes
    ----------
    task : SgdTask
    memory : int
        Bytes that a strategy may take: half of what was free.
    rows : tuple of StrategyCost
        In the order of :data:`STRATEGIES`.
    """

    task: SgdTask
    memory: int
    rows: tuple[StrategyCost, ...]

    @property
    def best(self) -> str:
        """The fastest that fits in memory; the exact kernel where that takes half as long again.

        Where nothing fits, the one that needs the least memory.
        """
        served = [row for row in self.rows if not row.refused]
        fit = [row for row in served if row.bytes <= self.memory]
        if not fit:
            return min(served, key=lambda row: row.bytes).name
        least = min(row.seconds for row in fit)
        close = [row for row in fit if row.seconds <= max(AS_FAST * least, least + AS_SOON)]
        return min(close, key=lambda row: (row.name not in (*EXACT, *DUAL), row.seconds)).name

    def __str__(self) -> str:
        """Return the table, and below it why some cannot be run."""
        measured = any(not np.isnan(row.measured_seconds) for row in self.rows)
        head = _HEAD if measured else _HEAD[:4]
        best = self.best
        table = columns([head, *(_cells(row, best)[: len(head)] for row in self.rows)])
        refused = [f"{row.name}: {row.refused}" for row in self.rows if row.refused]
        return "\n".join([self._title(), table, *refused])

    def _title(self) -> str:
        task = self.task
        return (
            f"{task.n_rows:,} rows of {task.n_columns:,} columns, {task.n_targets} outputs, "
            f"{task.epochs} epochs in batches of {task.batch_size}; memory beside the rows, "
            f"at most {_size(self.memory)}"
        )


def plan_strategies(
    task: SgdTask,
    X: Float[Array, "m d"],
    kernel: Kernel,
    exact: FeatureMap | str,
    phi: FeatureMap | str,
) -> StrategyPlan:
    """Predict what each of the six takes.

    Parameters
    ----------
    task : SgdTask
    X : (m, d)
        Some rows, to measure features and kernel values on.
    kernel : Kernel
    exact : FeatureMap or str
        Features of the kernel itself, or why there are none.
    phi : FeatureMap or str
        Approximate features, or why there are none.

    Returns
    -------
    StrategyPlan

    Notes
    -----
    With T = n·epochs steps of one row, seconds φ a row of features, k a kernel value, s(D) a step:

    ====================== ========================== ================
    strategy               time                       memory beside nd
    ====================== ========================== ================
    exact, on the fly      T (φ + s(D))               D
    exact, cached          n φ + T s(D)               nD
    kernels on the fly     (T − n/2) n k + T s(n)     n
    Gram matrix cached     n² k + T s(n)              n²
    approximate, on the fly T (ψ + s(D))              dD + D
    approximate, cached    n ψ + T s(D)               nD + dD
    ====================== ========================== ================

    Kernels are needed with rows that were visited only, half of them in the first pass.
    """
    sample = X[: min(SAMPLE_ROWS, X.shape[0])]
    pairs = (
        _features(task, exact, sample, EXACT),
        _kernels(task, kernel, sample),
        _features(task, phi, sample, STRATEGIES[4:]),
    )
    return StrategyPlan(task, free_bytes() // 2, tuple(row for pair in pairs for row in pair))


def _features(
    task: SgdTask, phi: FeatureMap | str, X: Array, names: tuple[str, ...]
) -> list[StrategyCost]:
    if isinstance(phi, str):
        return [StrategyCost(name, refused=phi) for name in names]
    D, T = phi.n_features, task.n_rows * task.epochs
    row, step = row_seconds(phi, X), step_seconds(D, task.n_targets, task.batch_size, False)
    drawn = 0 if names == EXACT else 8 * task.n_columns * D
    here = task.itemsize * D * min(task.n_rows, block_rows(D, task.batch_size))
    coef, kept = 8 * D * task.n_targets, task.itemsize * task.n_rows * D
    fly = StrategyCost(names[0], D, T * (row + step), coef + drawn + here)
    cached = StrategyCost(names[1], D, task.n_rows * row + T * step, coef + drawn + here + kept)
    return [fly, cached]


def _kernels(task: SgdTask, kernel: Kernel, X: Array) -> list[StrategyCost]:
    n, T = task.n_rows, task.n_rows * task.epochs
    value, step = value_seconds(kernel, X), step_seconds(n, task.n_targets, task.batch_size, True)
    here = task.itemsize * n * min(n, block_rows(n, task.batch_size))
    coef = 8 * n * task.n_targets
    fly = StrategyCost("kernel_on_the_fly", n, (T - n / 2) * n * value + T * step, coef + here)
    cached = StrategyCost(
        "gram_cached", n, n * n * value + T * step, coef + here + task.itemsize * n * n
    )
    return [fly, cached]


def block_rows(width: int, batch_size: int) -> int:
    """Return the rows whose numbers are at hand at a time: whole batches, of about 2 MB."""
    batches = (1 << 18) // max(1, width * batch_size)
    return batch_size * max(1, min(batches, 4096 // batch_size))


# --- What this machine takes ---------------------------------------------------------------------

_KNOWN: dict[tuple[Any, ...], float] = {}


def row_seconds(phi: FeatureMap, X: Float[Array, "m d"]) -> float:
    """Return the seconds of one row of features, measured once in a process."""
    key = ("row", type(phi).__name__, repr(phi.kernel), phi.n_inputs, phi.n_features, str(X.dtype))
    return _once(key, lambda: phi(X), X.shape[0])


def value_seconds(kernel: Kernel, X: Float[Array, "m d"]) -> float:
    """Return the seconds of one kernel value, measured once in a process."""
    m = X.shape[0]
    return _once(("value", repr(kernel), X.shape, str(X.dtype)), lambda: kernel(X, X), m * m)


def _once(key: tuple[Any, ...], work: Callable[[], Any], count: int) -> float:
    if key not in _KNOWN:
        _KNOWN[key] = least_seconds(work) / count
    return _KNOWN[key]


@lru_cache(maxsize=1024)
def step_seconds(width: int, t: int, batch_size: int, dual: bool) -> float:
    """Return the seconds of the share that one row has in a step, measured once in a process."""
    measured = min(width, STEP_WIDTH)
    m = max(batch_size, min(STEP_ROWS, block_rows(measured, batch_size)))
    R, y = np.ones((max(m, min(4096, TABLE // measured)), measured)), np.ones((m, t))
    descent = Descent(
        Hinge(), Schedule("constant", 1e-9, 0.5, 1e-4), Walk.start(measured, t, 1e-9, False),
        batch_size=batch_size,
    )  # fmt: skip
    rng, own, columns = np.random.default_rng(0), np.arange(m) % measured, np.arange(measured)

    def sweep() -> None:
        rows = R[rng.integers(len(R), size=m)]
        if dual:
            descent.on_kernels(rows, y, np.ones(m), columns, own)
        else:
            descent.on_features(rows, y, np.ones(m))

    return least_seconds(sweep) / m * (width / measured)


def least_seconds(work: Callable[[], Any]) -> float:
    """Return the least of up to three times of this thread: what else the machine does is left out.

    Threads of BLAS work beside it, for as long.
    """
    fine = time.get_clock_info("thread_time").resolution < 1e-5
    clock = time.thread_time if fine else time.perf_counter
    work()
    times: list[float] = []
    while len(times) < 3 and sum(times) < MOMENT:
        started = clock()
        work()
        times.append(clock() - started)
    return min(times)


# --- Tables --------------------------------------------------------------------------------------

_HEAD = ("strategy", "width", "seconds", "memory", "measured s", "measured memory")


def _cells(row: StrategyCost, best: str) -> tuple[str, ...]:
    if row.refused:
        return (row.name, *(["-"] * 5))
    mark = " *" if row.name == best else ""
    return (
        row.name + mark,
        f"{row.width:,}",
        f"{row.seconds:.3g}",
        _size(row.bytes),
        "" if np.isnan(row.measured_seconds) else f"{row.measured_seconds:.3g}",
        "" if np.isnan(row.measured_bytes) else _size(row.measured_bytes),
    )


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"
