"""Spark: parts of the rows are jobs of a session's executors; sums of parts are merged here."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from bochner.data.blocks import Blocks
from bochner.engines.workers import ClusterPasses, Handle, PartialSum, Workers, merged
from bochner.errors import BochnerError, EngineError, InvalidType, MissingDependency
from bochner.sums.executor import Executor

#: Times that a part is handed out before the fit is given up.
TRIES = 4


@dataclass(frozen=True, eq=False)
class Spark:
    """Passes made by the executors of a Spark session.

    Parameters
    ----------
    session : pyspark.sql.SparkSession

    Raises
    ------
    EngineError
        A part failed four times, or the session is gone.
    MissingDependency
        pyspark is not installed.

    Notes
    -----
    Each part of the rows is a job of one task, and as many run at a time as there are cores. The
    sum of each part comes here, 8 D² bytes for moments, and is merged here; the bits are those of
    the other engines. The feature map is broadcast once in a fit.
    """

    session: Any

    def __post_init__(self) -> None:
        _require_spark()
        if not hasattr(self.session, "sparkContext"):
            raise InvalidType(
                f"Spark: session must be a pyspark.sql.SparkSession; got "
                f"{type(self.session).__name__}."
            )

    @contextmanager
    def passes(self, asked: str, blocks: Blocks) -> Iterator[Executor]:  # noqa: ARG002
        """Give the executor of one fit."""
        context = self.session.sparkContext
        workers = max(1, int(context.defaultParallelism))
        with ThreadPoolExecutor(workers) as threads, ThreadPoolExecutor(1) as merging:
            yield ClusterPasses(_SparkWorkers(context, threads, merging, workers), repr(self))


def _require_spark() -> None:
    try:
        import pyspark  # noqa: F401, PLC0415
    except ImportError as error:
        raise MissingDependency(
            "Spark needs the package pyspark, which is not installed; install it with: pip "
            "install 'bochner[spark]' (and Java 17)"
        ) from error


class _SparkWorkers(Workers):
    """Executors of a session; threads of this process wait for jobs, and one merges their sums."""

    def __init__(
        self, context: Any, threads: ThreadPoolExecutor, merging: ThreadPoolExecutor, count: int
    ) -> None:
        self._context = context
        self._threads = threads
        self._merging = merging
        self._count = count

    @property
    def count(self) -> int:
        return self._count

    def share(self, value: Any) -> Handle:
        return self._context.broadcast(value)

    def submit(self, name: str, function: Callable[..., Any], *args: Any) -> Handle:
        if function is merged:
            return self._merging.submit(_merged_here, *args)
        return self._threads.submit(self._job, name, function, args)

    def wait(self, handle: Handle) -> None:
        handle.exception()

    def result(self, handle: Handle) -> Any:
        return handle.result()

    def _job(self, name: str, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """Return what a job gives; one whose worker dies is begun again."""
        self._context.setLocalProperty("spark.job.description", f"bochner {name}")
        for left in reversed(range(TRIES)):
            try:
                (found,) = self._context.parallelize([args], 1).map(_outcome(function)).collect()
            except Exception as error:
                if not left:
                    raise EngineError(
                        f"Spark: the session must stay until the fit is made; a part ({name}) was "
                        f"lost {TRIES} times ({type(error).__name__}: {str(error)[:200]}). Give "
                        "executors more memory, or start the session again, and fit again."
                    ) from error
            else:
                break
        if isinstance(found, BochnerError):
            raise found
        return found


def _merged_here(summand: Any, a: "Future[PartialSum]", b: "Future[PartialSum]") -> PartialSum:
    """Return the sum of two that were handed out before, when both are there."""
    return merged(summand.value if _is_shared(summand) else summand, a.result(), b.result())


def _outcome(function: Callable[..., Any]) -> Callable[[tuple[Any, ...]], Any]:
    """Return the function of a task: it gives what went wrong as a value, not as text."""

    def task(args: tuple[Any, ...]) -> Any:
        try:
            return function(*(a.value if _is_shared(a) else a for a in args))
        except BochnerError as error:
            return error

    return task


def _is_shared(value: Any) -> bool:
    return type(value).__name__ == "Broadcast"
