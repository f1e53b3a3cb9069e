"""Dask: workers of a cluster sum parts of the rows and merge the sums, as tasks."""

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import uuid4

from bochner._core.checks import positive
from bochner._core.optional import explained, needed
from bochner.data.blocks import Blocks
from bochner.data.dask_tables import DaskPartition
from bochner.engines.workers import ClusterPasses, Handle, failed, with_rows
from bochner.errors import BochnerError, EngineError, InvalidType
from bochner.sums.executor import LOCAL, Engine


@dataclass(frozen=True, eq=False)
class Dask:
    """Passes made by the workers of a Dask cluster.

    Parameters
    ----------
    client : distributed.Client or str, optional
        A client of the cluster, or the address of its scheduler, as "tcp://127.0.0.1:8786".
        Default: a process for each processor of this machine, started for each fit.
    timeout : float, default 30
        Seconds to wait for the scheduler, and for a first worker.

    Raises
    ------
    EngineError
        The scheduler does not answer, or no worker comes, within the timeout; workers die again
        and again over the same rows; a worker cannot read its rows.
    MissingDependency
        dask.distributed is not installed.

    Notes
    -----
    If a worker dies, other workers sum its parts again, with the same bits. A worker receives the
    feature map once a fit. For each part it receives the location of the rows, or the rows
    themselves if they are in memory here or must be read in order (text files, iterables). Workers
    exchange the sums of parts; only the total comes here. Memory of a
    worker: one block, its features, and a few sums.

    Examples
    --------
    >>> import bochner as bo
    >>> where = bo.engines.Dask("tcp://127.0.0.1:8786")  # doctest: +SKIP
    >>> blocks = bo.Blocks.from_files("rows-*.parquet", target="y")  # doctest: +SKIP
    >>> model = bo.KernelRidge(random_state=0).fit_blocks(blocks, where)  # doctest: +SKIP
    """

    client: Any = None
    timeout: float = 30.0

    def __post_init__(self) -> None:
        positive(self.timeout, "Dask", "timeout")
        known = self.client is None or isinstance(self.client, str)
        if not known and not hasattr(self.client, "scheduler_info"):
            raise InvalidType(
                "Dask: client must be a distributed.Client or the address of a scheduler, as "
                f"'tcp://127.0.0.1:8786'; got {type(self.client).__name__}."
            )

    @contextmanager
    def passes(self, asked: str, blocks: Blocks) -> Iterator[ClusterPasses]:
        with self._connected() as client:
            yield _DaskPasses(client, self)

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        """Yield the client, which is closed again if it was made here."""
        distributed = needed("distributed", "Dask", "'bochner[dask]'")
        if self.client is None:
            with (
                distributed.LocalCluster(threads_per_worker=1, dashboard_address=None) as cluster,
                distributed.Client(cluster, set_as_default=False) as client,
            ):
                yield client
        elif isinstance(self.client, str):
            with _answering(self.client, self.timeout):
                client = distributed.Client(self.client, timeout=self.timeout, set_as_default=False)
            with client:
                yield client
        else:
            yield self.client


def here() -> Engine:
    """Return the engine of dask's own client, or this process where there is none."""
    distributed = sys.modules.get("distributed")
    try:
        return LOCAL if distributed is None else Dask(distributed.get_client())
    except ValueError:
        return LOCAL


def _answering(address: object, timeout: float) -> AbstractContextManager[None]:
    """Return the context that says in a sentence that nobody answers."""
    silent = EngineError(
        f"Dask: the scheduler at {address} must answer, and have a worker, within "
        f"{timeout:g} seconds; it did not. Start it, or wait longer with timeout=."
    )
    return explained(lambda _: silent, OSError, TimeoutError)


class _DaskPasses(ClusterPasses):
    """Passes by workers of a cluster, through its client."""

    def __init__(self, client: Any, engine: Dask) -> None:
        super().__init__(repr(engine))
        self._client = client
        self._held: dict[str, list[DaskPartition]] = {}
        with _answering(client.scheduler.address if client.scheduler else "?", engine.timeout):
            client.wait_for_workers(1, timeout=engine.timeout)

    @property
    def count(self) -> int:  # type: ignore[override]
        info = self._client.scheduler_info(n_workers=-1)
        workers = info.get("workers", {})  # a scheduler that is lost names none
        return max(1, sum(worker["nthreads"] for worker in workers.values()))

    def share(self, value: Any) -> Handle:
        # As the result of a task: scattered values are lost with their worker.
        return self.submit("share", lambda shared: shared, value)

    def submit(self, name: str, function: Callable[..., Any], *args: Any) -> Handle:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sending large graph")
            key = f"bochner-{name}-{uuid4().hex[:12]}"
            if partitions := [a for a in args if isinstance(a, DaskPartition)]:
                self._held[key] = partitions
            args = with_rows(args, DaskPartition, lambda p: self._client.compute(p.task))
            if self._client.status != "running":
                raise failed("Dask", key, "its scheduler answers no more")
            return self._client.submit(function, *args, key=key, pure=False)

    def wait(self, handle: Handle) -> None:
        partitions = self._held.pop(handle.key, [])
        with explained(partial(_sentence, handle, partitions)):
            if handle.exception() is not None:
                handle.result()

    def result(self, handle: Handle) -> Any:
        with explained(partial(_sentence, handle, [])):
            return handle.result()


def _sentence(handle: Handle, partitions: list[DaskPartition], error: Exception) -> BochnerError:
    """Return what went wrong with rows that these partitions hold."""
    if isinstance(error, needed("distributed", "Dask").KilledWorker):
        said = f"{error.allowed_failures + 1} died over it, most likely for want of memory"
        return failed("Dask", error.task, said)
    if handle.status == "error":
        for partition in partitions:
            partition.fetch()  # says which it is
    said = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    return failed("Dask", handle.key, said)
