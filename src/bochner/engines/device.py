"""Passes on GPUs: a block is moved to the device while the one before is summed there."""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from itertools import cycle, islice
from typing import Any

import numpy as np

from bochner._core.optional import package, raise_as
from bochner._core.shapes import Array, Float
from bochner.data.blocks import Blocks
from bochner.data.sources import Block
from bochner.errors import InvalidInput
from bochner.sums.passes import MergeTree, Summand, Summands, blocks_per_part, narrow, sum_blocks

LOG = logging.getLogger("bochner.engines")

#: Rows and most cells of a block: each block costs a device some tenths of a millisecond.
ROWS, CELLS = 8192, 1 << 25


def open_devices(device_names: Any) -> list[Any]:
    """Return the torch devices with this name or these names, for example "cuda:1"."""
    names = device_names if isinstance(device_names, list | tuple) else (device_names,)
    torch = package("torch", "Local: device=", "torch")
    no_device = lambda error: InvalidInput(
        "Local: device must name devices of torch on this machine with float64; got "
        f"{', '.join(map(str, names))} ({str(error).splitlines()[0]}). "
        'Pass "cuda", "cuda:1" or "cpu", or leave it out.'
    )
    with raise_as(no_device, RuntimeError, AssertionError, ValueError, TypeError):
        if not names or not all(isinstance(name, str) for name in names):
            raise TypeError("one name at least")
        devices = [torch.device(name) for name in names]
        for device in devices:
            torch.empty(1, dtype=torch.float64, device=device)
    return devices


def eigh_on(device: Any) -> Callable[[Array], tuple[Array, Array]]:
    """Return a function for eigendecompositions of symmetric float64 matrices on a device."""

    def eigh(A: Float[Array, "D D"]) -> tuple[Float[Array, " D"], Float[Array, "D D"]]:
        import torch

        values, vectors = torch.linalg.eigh(torch.from_numpy(_as_writable(A)).to(device))
        return values.cpu().numpy(), vectors.cpu().numpy()

    return eigh


class DevicePasses:
    """The executor of one fit whose features are computed and summed on devices.

    Several devices get parts of the rows in turn; sums are merged on the first device.
    """

    in_order = True

    def __init__(self, devices: Sequence[Any], memory: int | None, label: str) -> None:
        self._devices = devices
        self.memory = memory
        self.label = label

    def sum(self, summand: Summand[Any], blocks: Blocks) -> Any:
        start = time.monotonic()
        if not _makes_features(summand):
            return sum_blocks(summand, blocks, blocks.block_rows)
        # large blocks keep a device busy
        blocks = blocks.with_rows(max(blocks.block_rows, min(ROWS, CELLS // blocks.n_columns)))
        if len(self._devices) > 1:
            total = self._sum_on_devices(summand, blocks)
        else:
            total = sum_blocks(summand, move_blocks(blocks, self._devices[0]), blocks.block_rows)
        LOG.info("%s: a pass over %r, %.2f s", self.label, blocks, time.monotonic() - start)
        return total

    def _sum_on_devices(self, summand: Any, blocks: Blocks) -> Any:
        """Return the sum of parts, computed by a thread per device and merged by a MergeTree."""
        tree: MergeTree[Any] = MergeTree(narrow(summand, slice(0, 0)).merge)
        queue: deque[Future[Any]] = deque()
        blocks_, size = iter(blocks), blocks.block_rows
        with ExitStack() as stack:
            workers = [stack.enter_context(ThreadPoolExecutor(1)) for _ in self._devices]
            for worker, device in cycle(zip(workers, self._devices, strict=True)):
                part = list(islice(blocks_, blocks_per_part(size)))
                if not part:
                    break
                sum_rows = lambda *rows: sum_blocks(summand, move_blocks(*rows), size)
                queue.append(worker.submit(sum_rows, part, device))
                if len(queue) > 2 * len(workers):  # parts that are submitted ahead
                    tree.take(queue.popleft().result())
            while queue:
                tree.take(queue.popleft().result())
        return tree.root()


def _makes_features(summand: Any) -> bool:
    """Whether a summand computes features: only then is moving rows to a device worth its time."""
    if isinstance(summand, Summands):
        return any(map(_makes_features, summand.summands))
    return hasattr(summand, "features")


def move_blocks(blocks: Iterable[Block], device: Any) -> Iterator[Block]:
    """Yield blocks whose rows are on a device; sparse rows stay on the CPU.

    The transfer of a block overlaps the sum of the previous block: with CUDA from pinned memory, on
    a separate stream.
    """
    import torch

    stream = torch.cuda.Stream(device) if device.type == "cuda" else None
    wait: Callable[[], Block] | None = None
    for block in blocks:
        wait_for_next = _start_transfer(block, device, stream)
        if wait is not None:
            yield wait()
        wait = wait_for_next
    if wait is not None:
        yield wait()


def _start_transfer(block: Block, device: Any, stream: Any) -> Callable[[], Block]:
    """Start to move a block's rows; return a function that waits, and returns the block."""
    if not isinstance(block.X, np.ndarray):
        return lambda: block
    import torch

    rows = torch.from_numpy(_as_writable(block.X))
    if stream is None:
        X = rows.to(device)
        return lambda: block._replace(X=X)
    with torch.cuda.stream(stream):
        X = rows.pin_memory().to(device, non_blocking=True)
        event = stream.record_event()

    def wait() -> Block:
        current = torch.cuda.current_stream(device)
        current.wait_event(event)
        X.record_stream(current)
        return block._replace(X=X)

    return wait


def _as_writable(X: np.ndarray) -> np.ndarray:
    """Return rows as torch requires them: native byte order, C-contiguous and writable."""
    return np.require(X, X.dtype.newbyteorder("="), ["C", "W"])
