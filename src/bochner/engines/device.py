"""Passes on GPUs: blocks are moved to the device ahead of their sums; the sums stay there."""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from itertools import cycle, islice
from typing import Any

import numpy as np

from bochner._core.optional import explained, needed
from bochner._core.shapes import Array, Float
from bochner.data.blocks import Blocks
from bochner.data.sources import Block
from bochner.errors import InvalidInput
from bochner.sums.passes import MergeTree, Summand, Together, blocks_per_part, narrowed, summed

LOG = logging.getLogger("bochner.engines")

#: Rows of a block, and its numbers at most: each block costs a device some tenths of a millisecond.
ROWS, CELLS = 8192, 1 << 25


def opened(asked: Any) -> list[Any]:
    """Return torch's devices of a name, as "cuda" or "cuda:1", or of several."""
    names = asked if isinstance(asked, list | tuple) else (asked,)
    torch = needed("torch", "Local: device=", "torch")
    said = lambda error: InvalidInput(
        "Local: device must name devices that torch has here, and that know float64; got "
        f"{', '.join(map(str, names))} ({str(error).splitlines()[0]}). "
        'Take "cuda", "cuda:1" or "cpu", or leave it out.'
    )
    with explained(said, RuntimeError, AssertionError, ValueError, TypeError):
        if not names or not all(isinstance(name, str) for name in names):
            raise TypeError("one name at least")
        devices = [torch.device(name) for name in names]
        for device in devices:
            torch.empty(1, dtype=torch.float64, device=device)
    return devices


def eigh_on(device: Any) -> Callable[[Array], tuple[Array, Array]]:
    """Return the eigendecomposition of symmetric matrices, in float64, on a device."""

    def eigh(A: Float[Array, "D D"]) -> tuple[Float[Array, " D"], Float[Array, "D D"]]:
        import torch

        values, vectors = torch.linalg.eigh(torch.from_numpy(_writable(A)).to(device))
        return values.cpu().numpy(), vectors.cpu().numpy()

    return eigh


class DevicePasses:
    """The executor of one fit whose features are made on devices, and summed there.

    Parts are distributed to several devices in turns; sums are merged on the first device.
    """

    in_order = True

    def __init__(self, devices: Sequence[Any], memory: int | None, label: str) -> None:
        self._devices = devices
        self.memory = memory
        self.label = label

    def sum(self, summand: Summand[Any], blocks: Blocks) -> Any:
        began = time.monotonic()
        if not _makes_features(summand):
            return summed(summand, blocks, blocks.block_rows)
        # blocks that keep a device busy
        blocks = blocks.with_rows(max(blocks.block_rows, min(ROWS, CELLS // blocks.n_columns)))
        if len(self._devices) > 1:
            total = self._shared(summand, blocks)
        else:
            total = summed(summand, moved(blocks, self._devices[0]), blocks.block_rows)
        LOG.info("%s: a pass over %r, %.2f s", self.label, blocks, time.monotonic() - began)
        return total

    def _shared(self, summand: Any, blocks: Blocks) -> Any:
        """Sum parts up in a thread for each device, merged in the order of the tree."""
        tree: MergeTree[Any] = MergeTree(narrowed(summand, slice(0, 0)).merge)
        begun: deque[Future[Any]] = deque()
        every, size = iter(blocks), blocks.block_rows
        with ExitStack() as stack:
            workers = [stack.enter_context(ThreadPoolExecutor(1)) for _ in self._devices]
            for worker, device in cycle(zip(workers, self._devices, strict=True)):
                part = list(islice(every, blocks_per_part(size)))
                if not part:
                    break
                begun.append(
                    worker.submit(lambda *given: summed(summand, moved(*given), size), part, device)
                )
                if len(begun) > 2 * len(workers):  # parts that are handed out ahead
                    tree.take(begun.popleft().result())
            while begun:
                tree.take(begun.popleft().result())
        return tree.root()


def _makes_features(summand: Any) -> bool:
    """Whether a summand computes features: enough work to pay for moving rows to a device."""
    if isinstance(summand, Together):
        return any(map(_makes_features, summand.summands))
    return hasattr(summand, "features")


# --- moving --------------------------------------------------------------------------------------


def moved(blocks: Iterable[Block], device: Any) -> Iterator[Block]:
    """Yield blocks whose rows are on a device; sparse rows stay.

    The transfer of a block overlaps the sum of the one before: with CUDA from pinned memory, on a
    separate stream.
    """
    import torch

    stream = torch.cuda.Stream(device) if device.type == "cuda" else None
    moving: Callable[[], Block] | None = None
    for block in blocks:
        after = _begun(block, device, stream)
        if moving is not None:
            yield moving()
        moving = after
    if moving is not None:
        yield moving()


def _begun(block: Block, device: Any, stream: Any) -> Callable[[], Block]:
    """Begin to move the rows of a block; return the function that waits for it."""
    if not isinstance(block.X, np.ndarray):
        return lambda: block
    import torch

    rows = torch.from_numpy(_writable(block.X))
    if stream is None:
        X = rows.to(device)
        return lambda: block._replace(X=X)
    with torch.cuda.stream(stream):
        X = rows.pin_memory().to(device, non_blocking=True)
        done = stream.record_event()

    def arrived() -> Block:
        here = torch.cuda.current_stream(device)
        here.wait_event(done)
        X.record_stream(here)
        return block._replace(X=X)

    return arrived


def _writable(X: np.ndarray) -> np.ndarray:
    """Return rows that torch takes: of native order, in one piece, and not read-only."""
    return np.require(X, X.dtype.newbyteorder("="), ["C", "W"])
