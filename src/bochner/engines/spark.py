"""Spark: parts of the rows are jobs of a session's executors; sums of parts are merged here."""

import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from bochner._core.checks import positive
from bochner._core.optional import explained, needed
from bochner.data.blocks import Blocks
from bochner.data.partitions import said
from bochner.data.sources import Partition
from bochner.data.spark_tables import SparkPartition, table_of
from bochner.engines.workers import ClusterPasses, Handle, failed, merged, require_answer
from bochner.errors import BochnerError, EngineError, InvalidType

#: Times that a part is handed out before the fit is given up.
TRIES = 4


@dataclass(frozen=True, eq=False)
class Spark:
    """Passes made by the executors of a Spark session.

    Parameters
    ----------
    session : pyspark.sql.SparkSession or str, optional
        A session, or the address of a master, as "spark://host:7077" or "local[2]", to begin one
        with. Default: the session that is active, else one with a process for each processor of
        this machine. A session that is begun stays; on this machine its workers have the Python of
        this process, or the one that PYSPARK_PYTHON names.
    timeout : float, default 30
        Seconds to wait for an answer at the address.

    Raises
    ------
    EngineError
        Nobody answers at the address within the timeout, a session cannot be begun, a part failed
        four times, or the session is gone.
    MissingDependency
        pyspark is not installed.

    Notes
    -----
    Each part of the rows is a job of one task, and one job per core runs at a time. The driver
    receives the sum of each part, 8 D² bytes for moments, and merges it; the bits are the same as
    with the other engines. The feature map is broadcast once in a fit.

    Examples
    --------
    >>> import bochner as bo
    >>> where = bo.engines.Spark("local[2]")  # doctest: +SKIP
    >>> blocks = bo.Blocks.from_files("rows-*.parquet", target="y")  # doctest: +SKIP
    >>> model = bo.KernelRidge(random_state=0).fit_blocks(blocks, where)  # doctest: +SKIP
    """

    session: Any = None
    timeout: float = 30.0

    def __post_init__(self) -> None:
        needed("pyspark", "Spark", "'bochner[spark]' (and Java 17)")
        positive(self.timeout, "Spark", "timeout")
        known = self.session is None or isinstance(self.session, str)
        if not known and not hasattr(self.session, "sparkContext"):
            raise InvalidType(
                "Spark: session must be a pyspark.sql.SparkSession or the address of a master, as "
                f"'spark://host:7077'; got {type(self.session).__name__}."
            )

    @contextmanager
    def passes(self, asked: str, blocks: Blocks) -> Iterator[ClusterPasses]:
        context = self._begun().sparkContext
        stopped = EngineError(
            "Spark: the session must be there until the fit is made; it was stopped. Start it "
            "again, and fit again."
        )
        with explained(lambda _: stopped):
            workers = max(1, int(context.defaultParallelism))
        passes = _SparkPasses(context, workers, repr(self))
        try:
            yield passes
        finally:  # after Ctrl-C too: nobody waits for what is still to be done
            passes.stop()

    def _begun(self) -> Any:
        """Return the Spark session; start a session if none is active."""
        if self.session is not None and not isinstance(self.session, str):
            return self.session
        from pyspark.sql import SparkSession

        master = self.session or "local[*]"
        active = SparkSession.getActiveSession() if self.session is None else None
        if self.session is not None:
            require_answer("Spark", self.session, self.timeout)
        if master.startswith("local"):  # "python3" may be one without what is installed here
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        silent = lambda error: EngineError(
            f"Spark: a session at {master} must begin; it did not "
            f"({type(error).__name__}: {str(error)[:200]}). Install Java 17 or later, start "
            "the master, or name another address."
        )
        with explained(silent):
            return active or SparkSession.builder.master(master).getOrCreate()


@dataclass(frozen=True, eq=False)
class _Shared:
    """A value that is broadcast: what arrives is the value, functions of scripts among it too."""

    value: Any

    def __reduce__(self) -> tuple[Any, ...]:
        from pyspark import cloudpickle

        return cloudpickle.loads, (cloudpickle.dumps(self.value),)


class _SparkPasses(ClusterPasses):
    """Passes by executors of a session.

    Threads of this process wait for jobs, and one merges their sums.
    """

    def __init__(self, context: Any, count: int, label: str) -> None:
        super().__init__(label)
        self._context, self.count = context, count
        self._threads, self._merging = ThreadPoolExecutor(count), ThreadPoolExecutor(1)
        self._group = f"bochner-{uuid4().hex[:12]}"

    def stop(self) -> None:
        """Begin no more jobs, and cancel running ones."""
        for pool in (self._threads, self._merging):
            pool.shutdown(wait=False, cancel_futures=True)
        self._context.cancelJobGroup(self._group)

    def share(self, value: Any) -> Handle:
        return self._context.broadcast(_Shared(value))

    def submit(self, name: str, function: Callable[..., Any], *args: Any) -> Handle:
        if function is merged:
            summand, *sums = args  # two that were handed out before
            value = summand.value if _is_shared(summand) else summand
            return self._merging.submit(lambda: merged(value, *(one.result() for one in sums)))
        return self._threads.submit(self._job, name, function, args)

    def wait(self, handle: Handle) -> None:
        handle.exception()

    def result(self, handle: Handle) -> Any:
        return handle.result()

    def _job(self, name: str, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """Return the result of a job; run the job again if its worker dies."""
        self._context.setJobGroup(self._group, f"bochner {name}", interruptOnCancel=True)
        partitions: list[Any] = [a for a in args if isinstance(a, Partition)]
        args = args[: len(args) - len(partitions)]

        def task(given: tuple[Any, ...]) -> Any:
            """Return the result; an error of bochner as a value, for it is no death of a worker."""
            try:
                return function(*(a.value if _is_shared(a) else a for a in given))
            except BochnerError as error:
                return error

        for left in reversed(range(TRIES)):
            try:
                if len(partitions) == 1 and isinstance(partitions[0], SparkPartition):
                    # on the executor that holds the rows
                    streams, here = partitions[0].streams, [partitions[0].number]
                    of_rows = lambda parts: [task((*args, table_of([*parts])))]
                    (result,) = self._context.runJob(streams, of_rows, here)
                else:
                    sent = (*args, *(partition.fetch() for partition in partitions))
                    (result,) = self._context.parallelize([sent], 1).map(task).collect()
                break
            except Exception as error:
                if not left:
                    words = f"{TRIES} times, {said(error)}; PYSPARK_PYTHON names their Python"
                    raise failed("Spark", name, words) from error
        if isinstance(result, BochnerError):
            raise result
        return result


def _is_shared(value: Any) -> bool:
    return type(value).__name__ == "Broadcast"


#: The engine of the session that is active.
here = Spark
