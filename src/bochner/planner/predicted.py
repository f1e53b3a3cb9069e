"""What a fit takes: seconds and bytes of each of its steps, from the rates of this machine.

The steps are those of :class:`bochner.KernelRidge`, in their order; seconds are sums of counts of
work times rates, bytes the largest of what is held at one time.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import log10

from bochner._core.sizes import (
    FEW,
    LOOK_ROWS,
    block_rows,
    kept_rows,
    long_sweep,
    sums_first,
)
from bochner.planner.machine import Machine
from bochner.solvers.cg import KEPT
from bochner.solvers.ridge.eigen import FLOAT32_FLOOR, LOWEST, PER_DECADE
from bochner.sums.moments import FLUSH_ROWS

#: Penalties on the path, by precision.
PENALTIES = {
    precision: round(PER_DECADE * log10(10 / lowest)) + 1
    for precision, lowest in (("float32", FLOAT32_FLOOR), ("float64", LOWEST))
}

#: Bytes that a fit takes beside its arrays: code that is loaded, small objects.
BESIDE = 4 << 20

#: Memory that is new to a process takes so many times as long to fill as other memory to copy.
FIRST_TOUCH = 4

#: Numbers of a tile of kernel values, and how many a product with it holds.
TILE, TILES = 1024, 3


@dataclass(frozen=True)
class Task:
    """What is to be fitted.

    Attributes
    ----------
    n_rows, n_columns, n_targets : int
        n, d, t.
    itemsize : int
        Bytes of a number of X.
    read_seconds : float
        One pass over the rows that makes no features.
    """

    n_rows: int
    n_columns: int
    n_targets: int = 1
    itemsize: int = 8
    read_seconds: float = 0.0

    @property
    def kept(self) -> int:
        """Rows that a fit keeps a sample of."""
        return min(self.n_rows, kept_rows(self.n_columns))

    @property
    def judged(self) -> int:
        """Rows that leave-one-out errors are computed for."""
        return self.kept


@dataclass(frozen=True)
class Features:
    """What features of one width cost.

    Attributes
    ----------
    n_features : int
        D.
    seconds : float
        Of one row.
    whitening : float
        Part of them that goes into the product with a triangle.
    draw_seconds, draw_bytes : float
        Of drawing the map.
    held : float
        Bytes that the map keeps.
    from_rows : bool
        Whether drawing needs a pass over the rows.
    """

    n_features: int
    seconds: float
    draw_seconds: float = 0.0
    draw_bytes: float = 0.0
    held: float = 0.0
    from_rows: bool = False
    whitening: float = 0.0


@dataclass(frozen=True)
class Cost:
    """Seconds and bytes of the steps of a fit.

    Attributes
    ----------
    seconds : dict of str to float
        By step; they add up.
    bytes : dict of str to float
        Held at the worst moment of each step, beside the rows and what the process had before.
    """

    seconds: Mapping[str, float] = field(default_factory=dict)
    bytes: Mapping[str, float] = field(default_factory=dict)

    @property
    def total(self) -> float:
        """Seconds of all steps."""
        return float(sum(self.seconds.values()))

    @property
    def peak(self) -> float:
        """Bytes at the worst moment of all."""
        return float(max(self.bytes.values()))


def moments_cost(task: Task, phi: Features, precision: str, machine: Machine) -> Cost:
    """Return what a fit through moments takes: one sweep, one decomposition, leave-one-out."""
    seconds, held = (
        _moments_seconds(task, phi, precision, machine),
        _moments_bytes(task, phi, precision),
    )
    return Cost(seconds | {"memory": FIRST_TOUCH * machine.copy * max(held.values())}, held)


def _moments_seconds(
    task: Task, phi: Features, precision: str, machine: Machine
) -> dict[str, float]:
    n, D = task.n_rows, phi.n_features
    return {
        "read": (1 + phi.from_rows) * task.read_seconds,
        "draw": phi.draw_seconds,
        "features": n * phi.seconds,
        "moments": machine.sweep(n, D, precision) + _flushes(n, D, precision, machine),
        "forecast": _forecast(phi, machine) if _foretold(task, D, precision) else 0.0,
        "decomposition": machine.svd(n, D) if _few(task, D, precision) else machine.eigh(D),
        "leave-one-out": _judging(task, phi, precision, machine),
    }


def _few(task: Task, D: int, precision: str) -> bool:
    n = task.n_rows
    return precision == "float64" and task.kept == n and n * D**2 <= FEW


def _foretold(task: Task, D: int, precision: str) -> bool:
    return precision == "float32" and long_sweep(task.n_rows, D)


def _flushes(n: int, D: int, precision: str, machine: Machine) -> float:
    """Return seconds of adding float32 sums to those of float64: 12 bytes an entry."""
    return 0.0 if precision == "float64" else n / FLUSH_ROWS * 12 * D**2 * machine.copy


def _forecast(phi: Features, machine: Machine) -> float:
    """Return seconds of some features, and twice a Cholesky factor and a triangular solve."""
    D = phi.n_features
    solve = LOOK_ROWS * D**2 * machine.solve
    return LOOK_ROWS * phi.seconds + 2 * (machine.cholesky(D) + solve)


def _judging(task: Task, phi: Features, precision: str, machine: Machine) -> float:
    rows, D = task.judged, phi.n_features
    width = D if not _few(task, D, precision) else min(task.n_rows, D)
    path = PENALTIES[precision] * (1 + task.n_targets) * width
    work = rows * (D * width + path) * machine.product[precision]
    return rows * phi.seconds + work


def whitens_sums(task: Task, phi: Features) -> bool:
    """Whether a fit whitens sums of kernel values in the place of rows, where it may."""
    return phi.whitening > 0 and sums_first(task.n_rows, phi.n_features)


def whitened_sums_cost(task: Task, phi: Features, machine: Machine) -> Cost:
    """Return what a fit in float64 takes that whitens its sums: for a forecast, and at the end."""
    D = phi.n_features
    double = moments_cost(task, phi, "float64", machine)
    seconds = {
        "features": task.n_rows * (phi.seconds - phi.whitening),
        "forecast": _forecast(phi, machine),
        "whitening": 4 * D * phi.whitening,
    }
    sums, squares = double.bytes["moments"], 3 * 8.0 * D**2
    looking = sums + _looking(D, block_rows(D))
    held = {"forecast": looking, "whitening": sums + squares}
    return Cost({**double.seconds, **seconds}, {**double.bytes, **held})


def whitened_again_cost(task: Task, phi: Features, machine: Machine) -> Cost:
    """Return what a fit takes that is told by a quarter of its sums to whiten rows."""
    begun = whitened_sums_cost(task, phi, machine)
    double = moments_cost(task, phi, "float64", machine)
    wasted = 0.25 * (begun.seconds["features"] + begun.seconds["moments"])
    wasted += begun.seconds["forecast"] + begun.seconds["whitening"] / 2
    return Cost({**double.seconds, "sums first": wasted}, begun.bytes)


def resweeps(task: Task, phi: Features, machine: Machine) -> Cost:
    """Return what a fit takes that begins in float32 and is told by a quarter of it to be float64.

    With fewer rows than eight for each feature there is no forecast, and all is done twice.
    """
    single = moments_cost(task, phi, "float32", machine)
    double = moments_cost(task, phi, "float64", machine)
    foretold = _foretold(task, phi.n_features, "float32")
    share, steps = (0.25, ("features", "moments")) if foretold else (1.0, tuple(single.seconds))
    wasted = share * sum(single.seconds[step] for step in steps) + single.seconds["forecast"]
    return Cost(
        {**double.seconds, "float32 first": wasted},
        {step: max(single.bytes[step], double.bytes[step]) for step in double.bytes},
    )


# --- memory --------------------------------------------------------------------------------------


def _moments_bytes(task: Task, phi: Features, precision: str) -> dict[str, float]:
    D, s = phi.n_features, 4 if precision == "float32" else 8
    square = 8.0 * D**2
    b, sums = min(task.n_rows, block_rows(D)) * D, square if s == 8 else 1.5 * square
    cast = b * task.itemsize if s < task.itemsize else 0
    always = BESIDE + phi.held + _sample_bytes(task) + square
    return {
        "draw": BESIDE + phi.draw_bytes + _sample_bytes(task),
        "moments": always + 3 * b * s + cast + sums,
        "forecast": always + (_looking(D, b) if _foretold(task, D, precision) else 0.0),
        "decomposition": always + _decomposing(task, D, precision),
        "leave-one-out": always + _judging_bytes(task, D, s),
    }


def _sample_bytes(task: Task) -> float:
    """Return bytes of rows that are kept, and twice that while two samples become one."""
    return 3.0 * task.kept * 8 * (task.n_columns + task.n_targets + 2)


def _looking(D: int, b: int) -> float:
    """Return bytes of a block, the sums and their copy, and what factors and solves hold."""
    square = 8.0 * D**2
    rows = min(LOOK_ROWS, block_rows(D))
    begun = 2 * b * 4 + 2.5 * square
    return begun + LOOK_ROWS * D * 4 + max(2 * square, square + 2 * rows * D * 8)


def _decomposing(task: Task, D: int, precision: str) -> float:
    """Return bytes of G, its eigenvectors and work space; or all rows, their copy, U and V."""
    few = 8.0 * (5 * task.n_rows * D + 3 * min(task.n_rows, D) ** 2)
    return few if _few(task, D, precision) else 4 * 8.0 * D**2


def _judging_bytes(task: Task, D: int, s: int) -> float:
    """Return bytes of G and its vectors, these also in another precision, and four blocks.

    In float32 leverages of float64 take another.
    """
    b = min(task.judged, block_rows(D))
    return 2 * 8.0 * D**2 + (8 + s) * D**2 + (4 + (s < 8)) * b * D * s


# --- landmarks and the exact kernel --------------------------------------------------------------


def pivoting(task: Task, D: int, machine: Machine, value: float) -> tuple[float, float]:
    """Return seconds and bytes of choosing D pivots among the rows that are kept.

    ``value`` are seconds of a kernel value. Products are half of pool·D², by slices of the factor
    that are copied for each.
    """
    pool = task.kept
    single = pool * D > 1 << 23
    precision, s = ("float32", 4) if single else ("float64", 8)
    block = max(16, min(256, D // 8))
    steps = max(1.0, 1.4 * D / block)
    copies = steps * pool * D / 2 * s * machine.copy
    seconds = pool * D * (D * machine.product[precision] / 2 + 1.5 * value) + copies
    seconds += pool * D * block * machine.solve + machine.cholesky(D) + D**3 / 3 * machine.solve
    return seconds, 2.0 * pool * D * s + 4 * pool * block * 8


def exact_cost(
    task: Task,
    phi: Features,
    machine: Machine,
    pair: Mapping[str, float],
    iterations: float,
    exact_products: float,
) -> Cost:
    """Return what the exact kernel takes by conjugate gradients on so many products.

    ``pair`` are seconds of a kernel value and its products, by precision.
    """
    n, D, t = task.n_rows, phi.n_features, task.n_targets
    rough, exact = (n * (n + TILE) / 2 * pair[p] for p in ("float32", "float64"))
    precondition = 8 * n * D * machine.copy * max(1.0, t / 4)  # Z is read twice
    seconds = _moments_seconds(task, phi, "float64", machine)
    seconds["read"] = 2 * task.read_seconds
    seconds["decomposition"] = machine.eigh(D)
    seconds["iterations"] = iterations * (rough + precondition) + exact_products * exact
    held = 8.0 * n * (D + 2 * task.n_columns + 8 * t)
    bytes_ = {step: size + held for step, size in _moments_bytes(task, phi, "float64").items()}
    held_directions = 2 * 8.0 * n * min(float(KEPT), iterations * t)
    bytes_["iterations"] = held + held_directions + 2 * 8.0 * D**2 + TILES * TILE**2 * 8 + BESIDE
    return Cost(seconds, bytes_ | {"draw": BESIDE + phi.draw_bytes + _sample_bytes(task)})
