"""Features that are read several times, sums of kernel values, and folds of rows by content."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from operator import attrgetter
from typing import Any

import numpy as np

from bochner._core.arrays import dense, is_sparse, is_symbolic, numpy_rows, slices, to_numpy
from bochner._core.checks import free_bytes
from bochner._core.random import mix_bits, stream
from bochner._core.shapes import Array, Float
from bochner._core.sizes import block_rows
from bochner.data.blocks import Blocks
from bochner.data.sources import Block
from bochner.features.compose import DerivedMap
from bochner.features.map import FeatureMap
from bochner.features.nystrom import NystromMap, PrecisionMap
from bochner.kernels.kernel import Kernel, Transformed
from bochner.solvers.cg import TILE
from bochner.solvers.convex.problem import FeatureBlock
from bochner.sums.passes import LOCAL, BlockSum, Executor, narrow, sum_blocks


def _targets(block: Any) -> list[tuple[Any, Array]]:
    y, w = (None if a is None else to_numpy(a) for a in (block.y, block.w))
    rows = block.X if isinstance(block, Block) else block.Z
    return [(y, np.ones(rows.shape[0]) if w is None else np.asarray(w, np.float64))]


TARGETS = BlockSum(_targets)  # (y or None, weights) of each block, in order


@dataclass(frozen=True, eq=False)
class SumOnFeatures:
    """Summand over blocks of rows: another summand, applied to their features."""

    features: Callable[[Array], Array]
    summand: Any

    def add(self, total: Any, block: Block) -> Any:
        return self.summand.add(total, _block_of(self.features, block))

    def merge(self, a: Any, b: Any) -> Any:
        return self.summand.merge(a, b)

    def for_rows(self, rows: slice) -> "SumOnFeatures":
        return replace(self, summand=narrow(self.summand, rows))


def _block_of(features: Callable[[Array], Array], block: Block) -> FeatureBlock:
    y, w = (None if a is None else to_numpy(a) for a in (block.y, block.w))
    return FeatureBlock(to_numpy(features(block.X)), y, w, block.start, block.X)


class Features:
    """The features of blocks, cached in the first pass if they fit in memory."""

    # The cache is limited by ``most_bytes``, a quarter of the free memory, and the executor
    def __init__(
        self,
        phi: FeatureMap,
        blocks: Blocks,
        dtype: str,
        most_bytes: int | None = None,
        where: Executor = LOCAL,
    ) -> None:
        self._map = PrecisionMap(phi.kernel, phi, dtype)
        self._blocks = blocks.with_rows(block_rows(phi.n_features))
        self._row_bytes = phi.n_features * np.dtype(dtype).itemsize
        self._where = where
        limits = free_bytes() // 4, most_bytes, where.memory
        self._room = min(limit for limit in limits if limit is not None)
        self._pass: list[FeatureBlock] | None = None
        self.n_features = phi.n_features

    n_rows = property(attrgetter("_blocks.n_rows"))

    @property
    def is_cached(self) -> bool:
        return self._pass is not None

    def __iter__(self) -> Iterator[FeatureBlock]:
        if self._pass is not None:
            yield from self._pass
            return
        stores = self._fits(self.n_rows or 0)
        pass_: list[FeatureBlock] = []
        rows = 0
        for block in (_block_of(self._map, rows_of_block) for rows_of_block in self._blocks):
            rows += len(block.Z)
            if stores and not self._fits(rows):
                stores, pass_ = False, []
            if stores:
                pass_.append(replace(block, X=None))
            yield block
        self._pass = pass_ if stores else None

    def keep(self) -> None:
        """Cache the features in one pass, if they can fit in memory."""
        if self._pass is None and self._fits(self.n_rows or 0):
            for _ in self:
                pass

    def sum(self, summand: Any) -> Any:
        """Return the sum over all rows; by the executor unless the features fit in memory."""
        if self._pass is not None or self._fits(self.n_rows or 0):
            return sum_blocks(summand, self, self._blocks.block_rows)
        on_features = summand if summand is TARGETS else SumOnFeatures(self._map, summand)
        return self._where.sum(on_features, self._blocks)

    def _fits(self, rows: int) -> bool:
        return 0 < self._room >= rows * self._row_bytes


@dataclass(frozen=True, eq=False)
class KernelSum:
    """f(x) = Σ_i c_i k(x, x_i) + b, the predictions of a fit with the exact kernel."""

    kernel: Kernel
    X: Any
    coef: Float[Array, "n t"]
    intercept: Float[Array, " t"]

    @cached_property
    def transformed_rows(self) -> tuple[Kernel, Any]:
        """The inner kernel and the transformed rows, computed once for all tiles."""
        return self.kernel.unwrap(self.X)

    def __call__(self, X: Array) -> Float[Array, "b t"]:
        """Return f at rows, tile by tile; for symbolic rows (ONNX) in one call."""
        if is_symbolic(X):
            K = self.kernel.evaluate(X, X.graph.asarray(dense(self.X)))
            return K @ self.coef + self.intercept
        (kernel, S), X = self.transformed_rows, self.kernel.unwrap(numpy_rows(X))[1]
        total = np.zeros((X.shape[0], self.coef.shape[1])) + self.intercept
        for part in slices(len(self.coef), TILE):
            total += kernel(X, S[part]) @ self.coef[part]
        return total

    def slopes(self, X: Float[Array, "b d"]) -> Float[Array, "b d t"]:
        """Return the gradients of f at the rows of X in float64, computed in tiles."""
        total = np.zeros((*X.shape, self.coef.shape[1]))
        for part in slices(len(self.coef), TILE):
            S = to_numpy(self.X[part])
            for t, c in enumerate(self.coef[part].T):
                total[:, :, t] += self.kernel.pullback(X, S, np.broadcast_to(c, (len(X), len(S))))
        return total


# --- Folds by content: equal rows are in the same fold ------------------------------------------
#
# Otherwise a copy of a held-out row could be among the training rows. A row of weight 2 is then
# equivalent to two rows, and the order of rows does not matter.

N_FOLDS = 5


def fold_numbers(
    blocks: Blocks, w: Float[Array, " n"], seed: int, where: Executor = LOCAL
) -> Array:
    """Return the fold of each row, 0 to 4, from one pass; 5 or fewer distinct rows are folds."""
    return folds_of(np.concatenate(where.sum(BlockSum(partial(_marks_of, seed=seed)), blocks)), w)


def _marks_of(block: Any, seed: int) -> list[Array]:
    return [row_marks(block.X, seed)]


def folds_of(marks: Array, w: Float[Array, " n"]) -> Array:
    """Return the fold of each row from its mark; see :func:`fold_numbers`."""
    return np.searchsorted(np.unique(marks[w > 0]), marks) % N_FOLDS


def row_marks(X: Array, seed: int) -> Array:
    """Return a hash of each row, (n,) of uint64; equal rows have equal hashes."""
    # Sums modulo 2⁶⁴ are exact. Zeros add nothing: sparse and dense rows have equal hashes.
    factors = stream(seed, "marks").integers(2**63, size=X.shape[1], dtype=np.uint64)
    odd = factors * np.uint64(2) + np.uint64(1)
    rows: Any = X.tocsr() if is_sparse(X) else to_numpy(X)
    bits = (np.asarray(rows.data if is_sparse(X) else rows, np.float64) + 0.0).view(np.uint64)
    bits ^= bits >> np.uint64(29)
    if not is_sparse(X):
        return mix_bits((bits * odd).sum(axis=1, dtype=np.uint64))
    sums = np.append(np.uint64(0), np.cumsum(bits * odd[rows.indices], dtype=np.uint64))
    return mix_bits(sums[rows.indptr[1:]] - sums[rows.indptr[:-1]])


def no_landmarks(phi: Any, X: Array) -> Array:
    """Return the indices of rows that are not landmarks; of all rows if most are landmarks."""
    inputs, indices = X, np.arange(X.shape[0])
    if is_sparse(X):
        return indices
    while isinstance(phi, DerivedMap) and isinstance(phi.kernel, Transformed):
        phi, inputs = phi.inner, phi.kernel.inputs(inputs)
    if not isinstance(phi, NystromMap):
        return indices
    marks = row_marks(np.ascontiguousarray(inputs, np.float64), 0)
    landmarks = row_marks(np.ascontiguousarray(phi.landmarks, np.float64), 0)
    rows = np.flatnonzero(~np.isin(marks, landmarks))
    return rows if 2 * len(rows) >= len(marks) else indices
