"""Choices before the first step: parameters, kernel, and one of six strategies.

A strategy takes features of the kernel itself, kernel values, or features that approximate it; each
computed when a step needs them, or once and kept. Operations and bytes of each are counted: the
choice is the same on every machine.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from bochner._core.arrays import is_sparse, to_numpy
from bochner._core.checks import (
    finite,
    free_bytes,
    integer,
    nonnegative,
    one_of,
    positive,
    require_switch,
)
from bochner._core.html import HtmlResult, html_table, paragraph
from bochner._core.shapes import Array, Float, Gradients
from bochner._core.sizes import block_rows as rows_to_predict
from bochner._core.text import columns
from bochner.data.blocks import Blocks
from bochner.data.sources import Block, Piece, join
from bochner.errors import InvalidInput
from bochner.features.auto import Choice
from bochner.features.map import FeatureMap
from bochner.features.nystrom.nystrom import Rounded
from bochner.kernels.kernel import Kernel
from bochner.kernels.numbers import is_given
from bochner.models._kernel_sum import KernelSum
from bochner.selection.chosen import FeatureSpec
from bochner.selection.record import Tuning
from bochner.solvers.sgd import Descent, Schedule, Walk
from bochner.sums.moments import Precision

STRATEGIES = (
    "exact_on_the_fly",
    "exact_cached",
    "kernel_on_the_fly",
    "gram_cached",
    "approximate_on_the_fly",
    "approximate_cached",
)
EXACT, DUAL = STRATEGIES[:2], STRATEGIES[2:4]


class StepRows(NamedTuple):
    """Rows in memory: X (n, d) NumPy or CSR; y (n,) or (n, t) as given or coded; w (n,) > 0."""

    X: Any
    y: Any
    w: Any

    @staticmethod
    def of(block: Block) -> "StepRows":
        """Return the rows of positive weight of a block, in float64 but for X."""
        X = block.X if is_sparse(block.X) else to_numpy(block.X)
        w = np.ones(X.shape[0]) if block.w is None else to_numpy(block.w).astype(np.float64)
        y = None if block.y is None else to_numpy(block.y).astype(np.float64)
        rows = StepRows(X, y, w)
        return rows if w.all() else rows.take(np.flatnonzero(w))

    @property
    def target_shape(self) -> tuple[int, ...]:
        """Of one row of y: () or (t,)."""
        return () if self.y is None else tuple(self.y.shape[1:])

    def take(self, index: Array) -> "StepRows":
        """Return these rows."""
        return StepRows(self.X[index], None if self.y is None else self.y[index], self.w[index])


# --- Strategies ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class FeatureStrategy:
    """Steps on coefficients of features."""

    map: FeatureMap
    choice: Choice | None  # how the map was chosen; None for the kernel's own features
    precision: Precision  # that features are rounded to
    cached: bool = False  # whether features are computed once and kept
    coefficients: ClassVar[str] = "features: coef_"

    @property
    def name(self) -> str:
        return STRATEGIES[(0 if self.choice is None else 4) + self.cached]

    def read(self, X: Array) -> Float[Array, "n D"]:
        """Return φ(X), which multiplies the coefficients."""
        return Rounded(self.map.kernel, self.map, self.precision)(X)

    def gradients(self, coef: Float[Array, "D t"], blocks: Blocks) -> Gradients:
        """Yield the rows and the gradients of φ(x) coef, block by block."""
        phi = self.map
        for block in blocks.with_rows(rows_to_predict(max(phi.n_features, phi.n_inputs))):
            X = np.ascontiguousarray(to_numpy(block.X), dtype=np.float64)
            yield block.X, phi.gradients(X, coef)


@dataclass(frozen=True, eq=False)
class KernelStrategy:
    """Steps on coefficients of rows."""

    kernel: Kernel
    precision: Precision  # of the rows
    cached: bool = False  # whether kernel values are computed once and kept
    support: Float[Array, "m d"] | None = None  # rows that have coefficients, once there are any
    map: ClassVar[None] = None
    coefficients: ClassVar[str] = "rows: dual_coef_ of support_vectors_"

    @property
    def name(self) -> str:
        return STRATEGIES[2 + self.cached]

    def read(self, X: Array) -> Float[Array, "n m"]:
        """Return k(X, support), which multiplies the coefficients."""
        return to_numpy(self.kernel(X, self.support))

    def gradients(self, coef: Float[Array, "m t"], blocks: Blocks) -> Gradients:
        """Yield the rows and the gradients of k(x, support) coef, block by block."""
        support = to_numpy(self.support).astype(np.float64)
        return KernelSum(self.kernel, support, coef, np.zeros(coef.shape[1])).gradients(blocks)


Strategy = FeatureStrategy | KernelStrategy

# --- Rows as a strategy reads them ---------------------------------------------------------------


class FeatureTable:
    """Rows as features, computed once or in each step."""

    def __init__(self, strategy: FeatureStrategy, X: Array) -> None:
        self._strategy, self._X = strategy, X
        self.n_coef = strategy.map.n_features
        self._Z = None
        if strategy.cached:
            self._Z = np.empty((X.shape[0], self.n_coef), strategy.precision)
            for rows in _slices(X.shape[0], self.n_coef):
                self._Z[rows] = strategy.read(X[rows])

    def step(
        self, descent: Descent, index: Array, y: Float[Array, "c t"], w: Float[Array, " c"]
    ) -> None:
        """Let the descent make its steps on these rows."""
        Z = self._strategy.read(self._X[index]) if self._Z is None else self._Z[index]
        descent.step(Z, y, w)

    def values(self, coef: Float[Array, "D t"]) -> Float[Array, "n t"]:
        """Return φ(X) β of all rows."""
        if self._Z is not None:
            return self._Z @ coef
        slices = _slices(self._X.shape[0], self.n_coef)
        return np.concatenate([self._strategy.read(self._X[rows]) @ coef for rows in slices])

    def others(self, X: Array) -> Callable[[Array], Array]:
        """Return the function from coefficients to values of other rows."""
        return FeatureTable(self._strategy, X).values

    def finished(self, walk: Walk) -> tuple[Strategy, Walk]:
        """Return what is kept of a walk."""
        return self._strategy, walk


class KernelTable:
    """Rows as kernel values, computed once or in each step.

    Coefficients are on the rows that have some already and, after them, on the rows to step on.
    """

    def __init__(self, strategy: KernelStrategy, X: Array) -> None:
        self._strategy, before = strategy, strategy.support
        self._first = 0 if before is None else before.shape[0]
        self._all = X if before is None else join([Piece(before), Piece(X)]).X
        self.n_coef = self._all.shape[0]
        self._K = None
        if strategy.cached:
            self._K = np.empty((X.shape[0], self.n_coef), X.dtype)
            for rows in _slices(X.shape[0], self.n_coef):
                self._K[rows] = to_numpy(strategy.kernel(X[rows], self._all))

    def step(
        self, descent: Descent, index: Array, y: Float[Array, "c t"], w: Float[Array, " c"]
    ) -> None:
        """Let the descent make its steps on these rows."""
        itself = self._first + index
        if self._K is not None:
            descent.step(self._K[index], y, w, None, itself)
            return
        # A row that has had no step yet has the coefficient zero: its kernel values are not needed.
        used = descent.walk.support
        used[itself] = True
        columns = np.flatnonzero(used)
        there = self._all if len(columns) == self.n_coef else self._all[columns]
        K = to_numpy(self._strategy.kernel(self._all[itself], there))
        descent.step(K, y, w, columns, np.searchsorted(columns, itself))

    def others(self, X: Array) -> Callable[[Array], Array]:
        """Return the function from coefficients to values of other rows."""
        return lambda coef: to_numpy(self._strategy.kernel(X, self._all)) @ coef

    def finished(self, walk: Walk) -> tuple[Strategy, Walk]:
        """Return what is kept of a walk: rows whose coefficients are not zero.

        Coefficients of equal rows are added, so that a warm start does not lengthen u.
        """
        rows, coef, mean = self._all, walk.coef, walk.mean_coef
        if self._first and not is_sparse(rows):
            different, which = np.unique(rows, axis=0, return_inverse=True)
            if len(different) < len(rows):
                rows = different
                coef, mean = (_summed(u, which.reshape(-1), len(rows)) for u in (coef, mean))
        walk = replace(walk, coef=coef, mean_coef=mean)
        used = walk.support
        used[0] |= not used.any()  # predictions need a row, of coefficient zero if it must be
        mean = mean[used] if len(mean) else mean
        strategy = replace(self._strategy, support=rows[np.flatnonzero(used)])
        return strategy, replace(walk, coef=coef[used], mean_coef=mean)


def _summed(coef: Float[Array, "n t"], which: Array, m: int) -> Float[Array, "m t"]:
    total = np.zeros((m if len(coef) else 0, coef.shape[1]))
    if len(coef):
        np.add.at(total, which, coef)
    return total


def _slices(n: int, width: int) -> Iterator[slice]:
    size = block_rows(width, 256)
    return (slice(start, start + size) for start in range(0, n, size))


def block_rows(width: int, batch_size: int) -> int:
    """Return the rows whose numbers are at hand at a time: whole batches, of about 2 MB."""
    batches = (1 << 18) // max(1, width * batch_size)
    return batch_size * max(1, min(batches, 4096 // batch_size))


def table_of(strategy: Strategy, X: Array) -> FeatureTable | KernelTable:
    """Return rows as a strategy reads them."""
    if isinstance(strategy, FeatureStrategy):
        return FeatureTable(strategy, X)
    return KernelTable(strategy, X)


USUAL_EPOCHS = 20  # Epochs that a plan reckons with where the loss decides
SIZE_ROWS = 1024  # Rows that the mean of k(x, x) is taken over

RATES = ("constant", "optimal", "invscaling", "adaptive")

#: Strategies that approximate are taken where they are less work by more than this factor, and by
#: more than this many operations, some quarter of a second.
AS_LITTLE, AT_ONCE = 1.5, 1e9

#: Operations of a kernel value or feature: VALUE, and one for every COLUMNS columns, by BLAS.
VALUE, COLUMNS = 30, 4

STEP = 4  # Operations of a step for each number that it reads, of one output: predict, and correct

# --- Plans ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SgdTask:
    """Sizes of a descent.

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
    operations, bytes : float
        Counted; bytes beside the rows of X, which all six need.
    refused : str
        Why it cannot be run; empty where it can.
    """

    name: str
    width: int = 0
    operations: float = np.nan
    bytes: float = np.nan
    refused: str = ""


@dataclass(frozen=True)
class StrategyPlan(HtmlResult):
    """The six strategies for one kernel and table of data; prints as a table.

    Attributes
    ----------
    task : SgdTask
    memory : int
        Bytes that a strategy may take: half of the free memory.
    rows : tuple of StrategyCost
        In the order of :data:`STRATEGIES`.
    """

    task: SgdTask
    memory: int
    rows: tuple[StrategyCost, ...]

    @property
    def best(self) -> str:
        """The least work that fits in memory; the exact kernel where that is half as much again.

        Where nothing fits, the one that needs the least memory.
        """
        served = [row for row in self.rows if not row.refused]
        fit = [row for row in served if row.bytes <= self.memory]
        if not fit:
            return min(served, key=lambda row: row.bytes).name
        least = min(row.operations for row in fit)
        close = [r for r in fit if r.operations <= max(AS_LITTLE * least, least + AT_ONCE)]
        return min(close, key=lambda row: (row.name not in (*EXACT, *DUAL), row.operations)).name

    def __str__(self) -> str:
        """Return the table, and below it why some cannot be run."""
        title, lines, refused = self._table()
        return "\n".join([title, columns(lines), *refused])

    def _html_parts(self) -> Iterator[str]:
        """Yield the table with the best strategy marked, and why others cannot be run."""
        title, (head, *rows), refused = self._table()
        marked = [row.name for row in self.rows].index(self.best)
        yield html_table(head, rows, title, marked)
        yield from map(paragraph, refused)

    def _table(self) -> tuple[str, list[tuple[str, ...]], list[str]]:
        """Return the title, the lines and why some cannot be run."""
        task, lines = self.task, list[tuple[str, ...]]()
        lines.append(("strategy", "width", "operations", "memory"))
        for row in self.rows:
            mark = " *" * (row.name == self.best)
            cells = f"{row.width:,}", f"{row.operations:.3g}", _size(row.bytes)
            lines.append((row.name + mark, *(("-",) * 3 if row.refused else cells)))
        title = (
            f"{task.n_rows:,} rows of {task.n_columns:,} columns, {task.n_targets} outputs, "
            f"{task.epochs} epochs in batches of {task.batch_size}; memory beside the rows, "
            f"at most {_size(self.memory)}"
        )
        return title, lines, [f"{row.name}: {row.refused}" for row in self.rows if row.refused]


def plan_strategies(task: SgdTask, exact: FeatureMap | str, phi: FeatureMap | str) -> StrategyPlan:
    """Count the operations and bytes of each of the six.

    Parameters
    ----------
    task : SgdTask
    exact : FeatureMap or str
        Features of the kernel itself, or why there are none.
    phi : FeatureMap or str
        Approximate features, or why there are none.

    Returns
    -------
    StrategyPlan

    Notes
    -----
    With T = n·epochs steps of one row, φ or ψ for a row of features, k for a kernel value and s(D)
    for a step:

    ====================== ========================== ================
    strategy               operations                 memory beside nd
    ====================== ========================== ================
    exact, on the fly      T (φ + s(D))               D
    exact, cached          n φ + T s(D)               nD
    kernels on the fly     (T − n/2) n k + T s(n)     n
    Gram matrix cached     n² k + T s(n)              n²
    approximate, on the fly T (ψ + s(D))              dD + D
    approximate, cached    n ψ + T s(D)               nD + dD
    ====================== ========================== ================

    Kernels are needed with rows that were visited only, half of them in the first pass. φ, k and ψ
    take 30 + d/4 operations for each number, s(D) 4 D for each target.
    """
    n, t, size = task.n_rows, task.n_targets, task.itemsize
    rows: list[StrategyCost] = []
    for names, of in ((EXACT, exact), (DUAL, None), (STRATEGIES[4:], phi)):
        if isinstance(of, str):
            rows += [StrategyCost(name, refused=of) for name in names]
            continue
        width, passes, features = n, (task.epochs - 0.5) * n, 0
        if of is not None:
            width, passes = of.n_features, task.epochs * n
            features = 0 if names == EXACT else 8 * task.n_columns * width
        at_hand = size * width * min(n, block_rows(width, task.batch_size))
        memory, value = 8 * width * t + features + at_hand, VALUE + task.n_columns / COLUMNS
        steps = n * task.epochs * STEP * width * t
        for name, made, kept in zip(names, (passes, n), (0, size * n * width), strict=True):
            rows.append(StrategyCost(name, width, made * width * value + steps, memory + kept))
    return StrategyPlan(task, free_bytes() // 2, tuple(rows))


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


# --- What is asked and chosen ---------------------------------------------------------------------


@dataclass(frozen=True)
class SgdSpec:
    """The parameters of an estimator, checked; see :class:`KernelSGDClassifier`."""

    features: FeatureSpec  # kernel, method, n_features, random_state
    loss: str
    strategy: str
    alpha: float
    fit_intercept: bool
    batch_size: int
    learning_rate: str
    eta0: float | None  # None: "auto"
    power_t: float
    average: int
    max_iter: int
    tol: float | None
    early_stopping: bool
    validation_fraction: float
    n_iter_no_change: int
    shuffle: bool
    epsilon: float
    quantile: float

    @staticmethod
    def of(who: str, losses: tuple[str, ...], asked: dict[str, Any]) -> "SgdSpec":
        """Check the parameters of an estimator of this class."""
        asked = {"epsilon": 0.1, "quantile": 0.5} | asked
        one_of(asked["loss"], who, "loss", losses)
        one_of(asked["learning_rate"], who, "learning_rate", RATES)
        one_of(asked["strategy"], who, "strategy", ("auto", *STRATEGIES))
        for name in ("batch_size", "max_iter", "n_features", "n_iter_no_change"):
            asked[name] = integer(asked[name], who, name, 1)
        for name in ("alpha", "epsilon", "quantile"):
            asked[name] = nonnegative(asked[name], who, name)
        for name in ("early_stopping", "shuffle"):
            asked[name] = bool(asked[name])
        eta0, tol, share = asked["eta0"], asked["tol"], asked["validation_fraction"]
        asked |= {
            "eta0": None if eta0 == "auto" else positive(eta0, who, "eta0"),
            "power_t": finite(asked["power_t"], who, "power_t"),
            "tol": None if tol is None else nonnegative(tol, who, "tol"),
            "validation_fraction": positive(share, who, "validation_fraction"),
            "average": integer(int(asked["average"]), who, "average", 0),
            "fit_intercept": require_switch(who, asked["fit_intercept"]),
        }
        if asked["learning_rate"] == "optimal" and asked["alpha"] == 0:
            raise InvalidInput(
                f"{who}: learning_rate='optimal' requires alpha above zero, for its rates are "
                "1/(alpha (t0 + t)); got 0. Take another schedule, or a penalty."
            )
        for name in ("validation_fraction", "quantile"):
            if not 0 < asked[name] < 1:
                raise InvalidInput(f"{who}: {name} must be between 0 and 1; got {asked[name]}.")
        kernel, method, width = asked["kernel"], asked["method"], asked["n_features"]
        asked["features"] = FeatureSpec.of(
            who, kernel, method, width, "auto", asked["random_state"]
        )
        return SgdSpec(**{f.name: asked[f.name] for f in fields(SgdSpec)})

    @property
    def who(self) -> str:
        return self.features.who

    @property
    def needs_rows(self) -> bool:
        """Whether something must be chosen from rows before the first step."""
        draws = self.strategy not in (*EXACT, *DUAL)
        return not is_given(self.features.kernel) or (draws and self.features.needs_rows)

    def schedule(self, size: float) -> Schedule:
        """Return the learning rates for rows of this mean of k(x, x)."""
        rates = self.alpha, self.eta0, self.power_t
        return Schedule.of(self.learning_rate, self.loss, *rates, size)


@dataclass(frozen=True, eq=False)
class SgdChosen:
    """Choices before the first step."""

    seed: int
    search: Tuning  # the kernel, with numbers, and what it was compared with
    size: float  # mean of k(x, x), which learning rates depend on
    strategy: Strategy
    plan: StrategyPlan | None = None  # what "auto" decided by
    metric: ClassVar[None] = None

    @property
    def kernel(self) -> Kernel:
        return self.search.kernel

    @property
    def precision(self) -> Precision:
        return self.strategy.precision

    @property
    def map(self) -> FeatureMap | None:
        """φ, where steps are made on features."""
        return self.strategy.map
