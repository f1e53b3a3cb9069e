"""Passes made by worker processes: parts are summed near the rows and merged in tree order."""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, ClassVar

from bochner.data.blocks import Blocks
from bochner.data.sources import Block
from bochner.errors import BochnerError, EngineError
from bochner.models._rows import SumOnFeatures
from bochner.sums import passes
from bochner.sums.passes import MergeTree, narrow

Handle = Any

#: Consecutive rows: Blocks that a worker can read, or blocks that this process has read.
Part = Blocks | tuple[Block, ...]

LOG = logging.getLogger("bochner.engines")


@dataclass(frozen=True, eq=False)
class ClusterPasses:
    """Executor of one fit: it runs passes on workers by calling the functions in its fields."""

    label: str
    count: Callable[[], int]  # threads or processors of the cluster, one at least
    # sends a value to all workers, once; the value survives the death of a worker
    share: Callable[[Any], Handle]
    # starts a task: name, function, and its arguments, which may be handles and partitions
    submit: Callable[..., Handle]
    wait: Callable[[Handle], object]  # returns when the task has ended
    result: Callable[[Handle], Any]  # fetches the value, or raises a BochnerError
    memory: ClassVar[int] = 0  # no features are kept
    in_order: ClassVar[bool] = False
    _shared: dict[int, tuple[Any, Handle]] = field(default_factory=dict)

    def __repr__(self) -> str:
        return self.label

    def sum(self, summand: Any, blocks: Blocks) -> Any:
        shared, merging = self._send(summand)
        tree: MergeTree[Handle] = MergeTree(
            lambda a, b: self.submit("merge", merge_sums, merging, a, b)
        )
        queue: deque[tuple[Handle, int]] = deque()
        start, count = time.monotonic(), self.count()
        for rows, part in _parts(blocks, count):
            inner = narrow(summand.summand, rows) if isinstance(summand, SumOnFeatures) else None
            shell, partitions, n_rows = part, (), 0
            if isinstance(part, Blocks):  # partitions of an engine are separate arguments
                partitions, n_rows = part.source.partitions, rows.stop - rows.start
                shell = part.with_content([None for _ in partitions])
            args = shared, inner, rows, shell, blocks.block_rows, repr(blocks.source)
            handle = self.submit(f"rows-{rows.start}-{rows.stop}", sum_part, *args, *partitions)
            tree.take(handle)
            queue.append((handle, n_rows))
            if len(queue) > 4 * count:  # parts that are submitted ahead
                self._wait(*queue.popleft(), blocks)
        root = tree.root()
        while queue:
            self._wait(*queue.popleft(), blocks)
        total, (n, weighty) = self.result(root) or passes.NO_ROWS
        seconds = time.monotonic() - start
        LOG.info("%r: %d rows by %d workers, %.2f s", self, n, count, seconds)
        blocks.check_pass(n, weighty)
        return total

    def _wait(self, handle: Handle, rows: int, blocks: Blocks) -> None:
        """Wait for a part, and report its rows to the callbacks."""
        self.wait(handle)
        if rows:
            blocks.report_rows(rows)

    def _send(self, summand: Any) -> tuple[Handle, Any]:
        """Send a summand, or once its feature map; return its handle and the summand for merges."""
        if not isinstance(summand, SumOnFeatures):
            handle = self.share(summand)
            return handle, handle
        phi = summand.features
        if id(phi) not in self._shared:
            self._shared[id(phi)] = phi, self.share(phi)
        return self._shared[id(phi)][1], narrow(summand.summand, slice(0, 0))


def _parts(blocks: Blocks, workers: int) -> Iterator[tuple[slice, Part]]:
    """Yield the parts that `MergeTree` merges; this process reads rows that no worker can."""
    size = passes.blocks_per_part(blocks.block_rows) * blocks.block_rows
    n = blocks.n_rows
    if n is None or blocks.part(0, min(1, n)) is None:
        iterator = iter(blocks)
        while batch := tuple(islice(iterator, passes.blocks_per_part(blocks.block_rows))):
            yield slice(batch[0].start, batch[-1].start + batch[-1].X.shape[0]), batch
        return
    while n > 64 * workers * size:  # fewer and larger parts
        size *= passes.BRANCHES
    for start in range(0, n, size):
        stop = min(start + size, n)
        part = blocks.part(start, stop)
        assert part is not None
        yield slice(start, stop), part


# --- What workers compute -------------------------------------------------------------------------


def sum_part(
    value: Any,  # a summand, or the feature map for `feature_summand`
    feature_summand: Any,  # a summand of features, or None
    rows: slice,
    part: Part,
    block_rows: int,
    source: str,
    *partitions: Any,
) -> list[Any] | None:
    """Return the sum and row count of a part, or of its partitions; errors name the rows."""
    value = deepcopy(value)  # arrays from a network may be unaligned; copies are aligned
    summand = value if feature_summand is None else SumOnFeatures(value, feature_summand)
    numbers = f"{rows.start:,} to {rows.stop - 1:,}"
    try:
        blocks: Iterator[Block] = map(deepcopy, part if isinstance(part, tuple) else ())
        if isinstance(part, Blocks):
            blocks = part.with_content(partitions).walk()
        return passes.sum_blocks(passes.with_count(summand), blocks, block_rows)
    except BochnerError as error:
        raise type(error)(f"{error} (Rows {numbers}.)") from None
    except Exception as error:  # noqa: BLE001  any error names its rows
        raise EngineError(
            f"A worker must be able to read and add up rows {numbers} of {source}; it could not "
            f"({type(error).__name__}: {str(error)[:200]}). Make the data readable from every "
            "worker, or give workers more memory."
        ) from None


def merge_sums(summand: Any, a: list[Any] | None, b: list[Any] | None) -> list[Any] | None:
    """Return the merged sum and row count; a and b do not change, as a retry may use them."""
    return (a or b) if a is None or b is None else passes.with_count(summand).merge(deepcopy(a), b)
