"""Passes over rows: each pass is a sum, which an executor computes in a fixed order.

Floating-point sums depend on their order. For equal results with any number of workers, the order
depends only on the blocks. Consecutive blocks are added in order and form a **part** of about
65,536 rows; sixteen parts are merged in order to a node, sixteen nodes to a larger node, and so on.
A table of one part is summed without merging.
Summation in blocks: Higham (2002, section 4.2). Reproducible sums by fixed orders: Demmel and
Nguyen (2015).
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from typing import Any, ClassVar, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np

from bochner._core.arrays import adapt, add, array_namespace, is_sparse, to_numpy
from bochner._core.random import stream
from bochner._core.shapes import Array, Float
from bochner.data.blocks import Blocks, count_rows
from bochner.data.sample import RowSample
from bochner.data.sources import Block, weights_of
from bochner.errors import InvalidInput, InvalidType

LOG = logging.getLogger("bochner.sums")

S = TypeVar("S")

PART_ROWS = 1 << 16  # Rows of a part; merging two takes as long as adding a few hundred rows
BRANCHES = 16  # Sums that one node of the tree merges


class Summand(Protocol[S]):
    """A sum over rows that a pass computes, by blocks and parts; the sum of no rows is None."""

    def add(self, total: S | None, block: Any) -> S:
        """Return ``total`` plus the rows of a block, computed on the device of the block."""
        ...

    def merge(self, a: S, b: S) -> S:
        """Return the sum of a and b; the rows of ``a`` are first, and ``a`` may be modified."""
        ...


@dataclass(frozen=True, eq=False)
class BlockSum:
    """The sum of ``part(block)``, a number, array, list (concatenated), or tuple of them."""

    part: Callable[[Any], Any]  # The sum may modify its arrays in place

    def add(self, total: Any, block: Any) -> Any:
        part = self.part(block)
        return part if total is None else add(total, part)

    def merge(self, a: Any, b: Any) -> Any:
        return add(a, b)


def narrow(summand: Any, rows: slice) -> Any:
    """Return the summand for these rows only; summands without ``for_rows`` are unchanged."""
    return summand.for_rows(rows) if hasattr(summand, "for_rows") else summand


def blocks_per_part(block_rows: int) -> int:
    """Return the number of blocks of ``block_rows`` rows in a part."""
    return max(1, PART_ROWS // block_rows)


@dataclass(frozen=True, eq=False)
class MergeTree(Generic[S]):
    """A tree of sums of parts, in order of arrival; nodes are merged as soon as possible."""

    merge: Callable[[S, S], S]
    # Sum and number of parts of each level
    levels: list[tuple[S, int] | None] = field(default_factory=list)

    def take(self, part: S) -> None:
        """Add the sum of the next part, and merge the nodes that it completes."""
        for level, node in enumerate(self.levels):
            total, count = part, 1
            if node is not None:
                total, count = self.merge(node[0], part), node[1] + 1
            if count < BRANCHES:
                self.levels[level] = total, count
                return
            self.levels[level], part = None, total
        self.levels.append((part, 1))

    def root(self, last: S | None = None) -> S | None:
        """Return the sum of all parts and of ``last``; no part can be added afterwards."""
        for node in self.levels:
            if node is not None:
                last = node[0] if last is None else self.merge(node[0], last)
        return last


def sum_blocks(
    summand: Summand[S],
    blocks: Iterable[Any],
    block_rows: int,
    state: list[Any] | None = None,
    watch: Callable[[Any, list[Any]], None] | None = None,
) -> S | None:
    """Return the sum of consecutive blocks, merged in parts of about 65,536 rows.

    ``block_rows`` is the number of rows of every block but the last. After each block
    ``watch(block, state)`` is called; the state is the number of blocks, the sum of the incomplete
    part, and the levels of the tree. A sum can continue from such a ``state``.

    Memory is one sum per level of the tree: one level up to 65,536 rows, two up to a million, three
    up to 16 million.
    """
    count, part, levels = state or (0, None, [])
    tree, size = MergeTree[S](summand.merge, levels), blocks_per_part(block_rows)
    for block in blocks:
        part = summand.add(part, block)
        count += 1
        if count % size == 0:
            tree.take(part)
            part = None
        if watch is not None:
            watch(block, [count, part, tree.levels])
    return tree.root(part)


class Executor(Protocol):
    """An object that computes sums over rows, for example in this process or on a cluster."""

    @property
    def memory(self) -> int | None:
        """Bytes of features that this process may cache between passes.

        None: a quarter of the free memory.
        """
        ...

    @property
    def in_order(self) -> bool:
        """Whether rows are read in order, in this process."""
        ...

    def sum(self, summand: Summand[S], blocks: Blocks) -> Any: ...


@runtime_checkable
class Engine(Protocol):
    """An engine, which users pass as ``where``; `passes` yields the `Executor` of one fit."""

    def passes(self, description: str, blocks: Blocks) -> AbstractContextManager[Executor]:
        """Yield the executor of one fit; ``description`` states its parameters."""
        ...


@dataclass(frozen=True)
class Serial:
    """Executor that sums all blocks in order, in this process.

    After Ctrl-C or an error of the reader no partial sum is returned.
    """

    # Bytes of features to cache between passes; None: a quarter of the free memory.
    memory: int | None = None
    in_order: ClassVar[bool] = True

    @contextmanager
    def passes(self, description: str, blocks: Blocks) -> Iterator["Serial"]:
        yield self

    def sum(self, summand: Summand[S], blocks: Blocks) -> Any:
        start = time.monotonic()
        total = sum_blocks(summand, blocks, blocks.block_rows)
        LOG.debug("a pass over %r, %.2f s", blocks, time.monotonic() - start)
        return total


LOCAL = Serial()


def engine_of(blocks: Blocks) -> Engine:
    """Return the engine of the cluster that stores the rows, else the engine of this process."""
    library = next((partition.library for partition in blocks.source.partitions), "")
    if not library:
        return LOCAL
    # engines import this module, so they are imported by name
    engine: Engine = import_module("bochner.engines.clusters").CURRENT[library]()
    return engine


def as_engine(where: object, caller: str) -> Engine:
    """Return the engine ``where``; raise InvalidType if it is not an engine."""
    if isinstance(where, Engine) and not isinstance(where, type):
        return where
    name = f"the class {where.__name__}" if isinstance(where, type) else type(where).__name__
    raise InvalidType(
        f"{caller}: where must be an engine of bochner.engines, such as Local(), Dask(client), "
        f"Ray() or Spark(session); got {name}."
    )


def require_order(caller: str, reason: str, where: Executor, remedy: str) -> None:
    """Raise InvalidInput if the executor ``where`` does not read rows in order."""
    if not where.in_order:
        raise InvalidInput(
            f"{caller}: {reason}, so one process must read all rows in order; got where={where!r}. "
            f"{remedy}"
        )


@dataclass(frozen=True)
class Summands:
    """Several summands in one pass; the result is the list of their sums."""

    summands: tuple[Any, ...]

    def add(self, total: list[Any] | None, block: Block) -> list[Any]:
        sums = total or [None] * len(self.summands)
        return [s.add(x, block) for s, x in zip(self.summands, sums, strict=True)]

    def merge(self, a: list[Any], b: list[Any]) -> list[Any]:
        return [s.merge(x, y) for s, x, y in zip(self.summands, a, b, strict=True)]


def with_count(summand: Any) -> Summands:
    """Return a summand with the sum, and (number of rows, whether any row has a weight)."""
    count = lambda block: (block.X.shape[0], block.has_weight)
    return Summands((summand, BlockSum(count)))


NO_ROWS = None, (0, False)  # Result of `with_count` for no rows


def sample_summand(seed: int, start: int = 0) -> BlockSum:
    """Return the summand of a :class:`RowSample`; row numbers count from ``start``."""
    return BlockSum(partial(RowSample.of, seed=seed, start=start))


def draw_rows(blocks: Blocks, seed: int, n_classes: int = 0, where: Executor = LOCAL) -> RowSample:
    """Return a sample of all rows, by one pass without features.

    With ``n_classes`` > 0, y has class codes, and y of the sample has their :func:`indicators`.
    """
    sample = as_sample(where.sum(sample_summand(seed), blocks))
    if not (n_classes and sample.y.shape[1]):
        return sample
    return replace(sample, y=indicators(sample.y[:, 0], n_classes))


def total_weight(blocks: Blocks, where: Executor = LOCAL) -> float:
    """Return the sum of weights; without weights the number of rows, usually without a pass."""
    if next(iter(blocks)).w is None:
        return count_rows(blocks)
    weight = lambda block: float(to_numpy(block.w).sum())
    return where.sum(BlockSum(weight), blocks) or 1.0


def as_sample(rows: RowSample | None) -> RowSample:
    """Return the sample; raise InvalidInput if it is None."""
    if rows is None:
        raise InvalidInput("A kernel by name requires rows, for its lengthscale; got none.")
    return rows


def indicators(codes: Float[Array, " n"], n_classes: int) -> Float[Array, "n K"]:
    """Return ±1, +1 for the class of a row; for two classes only the column of class 1."""
    if n_classes == 2:
        return np.where(codes == 1, 1.0, -1.0)[:, None]
    return np.where(codes[:, None] == np.arange(n_classes), 1.0, -1.0)


# --- Products with the Gram matrix of features, without the matrix -------------------------------
#
# A pass computes G V, G = Σ w (z − z̄)(z − z̄)ᵀ, for several vectors V. The features of a few rows
# are computed, used twice, and discarded.

ONE_BY_ONE = 12  # Up to 12 vectors, one BLAS product per vector is faster


def row_signs(seed: int, start: int, count: int, n_signs: int) -> Float[Array, "b s"]:
    """Return random signs of rows ``start`` to ``start + count − 1``, independent of the blocks.

    The signs of a row are bits of one 64-bit random number, so n_signs is at most 64.
    """
    generator = stream(seed, "row signs").bit_generator
    generator.advance(start)  # type: ignore[attr-defined]
    bits = generator.random_raw(count)[:, None] >> np.arange(n_signs, dtype=np.uint64)
    return 2.0 * (bits & np.uint64(1)).astype(np.float64) - 1.0


def _pieces(
    features: Callable[[Array], Array], X: Array, n_features: int
) -> Iterator[tuple[slice, Array]]:
    """Yield the slice and the features of a few rows at a time."""
    size = max(16, (1 << 20) // n_features)  # such features stay in the cache
    for start in range(0, X.shape[0], size):
        rows = slice(start, min(start + size, X.shape[0]))
        Z = features(X[rows, :])
        yield rows, Z.toarray() if is_sparse(Z) else Z


def first_sums(
    features: Callable[[Array], Array],
    n_features: int,
    origin: Float[Array, " t"],
    seed: int,
    n_signs: int,
    block: Block,
) -> tuple[int, Any, Float[Array, " t"], Float[Array, " c"]]:
    """Return the number of rows with positive weight, Σ r zᵀ, Σ w (y − y₀)² and Σ r of a block.

    r = [w, w (y − y₀), √w ε], with the origin y₀ near the mean of the targets and random signs ε.
    """
    w = weights_of(block)
    y = to_numpy(block.y).astype(np.float64).reshape(len(w), -1) - origin
    signs = row_signs(seed, block.start, len(w), n_signs)
    right = np.column_stack([w, w[:, None] * y, np.sqrt(w)[:, None] * signs])
    pieces = _pieces(features, block.X, n_features)
    sums = sum(_transposed_product(Z, right[rows]) for rows, Z in pieces)
    return int(np.count_nonzero(w > 0)), sums, w @ y**2, right.sum(axis=0)


def gram_products(
    pass_of: Callable[[BlockSum], Any],
    features: Callable[[Array], Array],
    V: Float[Array, "D c"],
    mean: Float[Array, " D"],
    precision: str,
) -> Float[Array, "D c"]:
    """Return G V of all rows, by a pass; ``mean`` is z̄, or zero without an intercept.

    Products of a few rows are computed in ``precision``, and added in float64.
    """
    scale = np.abs(V).max(axis=0, initial=0.0)
    scale = np.where(scale > 0, scale, 1.0)  # scaled to one, as float32 may overflow
    scaled = np.asfortranarray(V / scale, dtype=precision)
    sums, totals = pass_of(BlockSum(partial(_products, features, scaled, mean @ (V / scale))))
    return (sums.T - np.outer(mean, totals)) * scale


def _products(
    features: Callable[[Array], Array], V: Array, mean_product: Array, block: Block
) -> tuple[Any, Any]:
    """Return Σ u zᵀ and Σ u of a block, u = w (z − z̄)ᵀV, computed in the dtype of V."""
    w = weights_of(block)[:, None]
    sums: Any = 0.0
    totals: Any = 0.0
    for rows, piece in _pieces(features, block.X, len(V)):
        xp = array_namespace(piece)
        Z = xp.astype(piece, getattr(xp, V.dtype.name), copy=False)
        if isinstance(Z, np.ndarray) and V.shape[1] <= ONE_BY_ONE:
            u = np.stack([Z @ v for v in V.T], axis=1)
        else:
            u = to_numpy(xp.matmul(Z, adapt(np.ascontiguousarray(V), like=Z)))
        u = w[rows] * (u.astype(np.float64) - mean_product)
        sums, totals = sums + _transposed_product(Z, u), totals + u.sum(axis=0)
    return sums, totals


def _transposed_product(Z: Array, right: Float[np.ndarray, "b c"]) -> Float[np.ndarray, "c D"]:
    """Return rightᵀ Z in NumPy's float64, multiplied in the dtype and on the device of Z."""
    xp = array_namespace(Z)
    scale = np.abs(right).max(axis=0, initial=0.0)
    scale[scale == 0] = 1.0
    u = xp.astype(adapt(np.ascontiguousarray((right / scale).T), like=Z), Z.dtype, copy=False)
    if isinstance(Z, np.ndarray) and len(u) <= ONE_BY_ONE:
        return np.stack([v @ Z for v in u]).astype(np.float64) * scale[:, None]
    return to_numpy(xp.matmul(u, Z)).astype(np.float64) * scale[:, None]
