"""Strategies of a descent: steps on coefficients of features, or of rows of the kernel."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from bochner._core.arrays import is_sparse, to_numpy
from bochner._core.shapes import Array, Float
from bochner._core.sizes import block_rows as rows_to_predict
from bochner.data.blocks import Blocks
from bochner.data.sources import Block, Piece, join
from bochner.features.auto import Choice
from bochner.features.map import FeatureMap
from bochner.features.nystrom.nystrom import Rounded
from bochner.kernels.kernel import Kernel
from bochner.models._kernel_sum import KernelSum
from bochner.solvers.sgd import Descent, Walk
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

    def gradients(
        self, coef: Float[Array, "D t"], blocks: Blocks
    ) -> Iterator[tuple[Array, Float[Array, "b d t"]]]:
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

    def gradients(
        self, coef: Float[Array, "m t"], blocks: Blocks
    ) -> Iterator[tuple[Array, Float[Array, "b d t"]]]:
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
        own = self._first + index
        if self._K is not None:
            descent.step(self._K[index], y, w, None, own)
            return
        # A row that has had no step yet has the coefficient zero: its kernel values are not needed.
        used = descent.walk.support
        used[own] = True
        columns = np.flatnonzero(used)
        there = self._all if len(columns) == self.n_coef else self._all[columns]
        K = to_numpy(self._strategy.kernel(self._all[own], there))
        descent.step(K, y, w, columns, np.searchsorted(columns, own))

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
