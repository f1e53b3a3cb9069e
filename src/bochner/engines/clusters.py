"""Clusters of Dask, Ray and Spark: workers sum parts of the rows."""

import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from operator import methodcaller
from socket import create_connection
from typing import Annotated, Any
from urllib.parse import urlsplit
from uuid import uuid4

from bochner._core.checks import Check, Positive
from bochner._core.names import NamedArguments
from bochner._core.optional import package, raise_as
from bochner.data.blocks import Blocks
from bochner.data.partitions import message_of, table_of
from bochner.data.sources import Partition
from bochner.engines.workers import ClusterPasses, Handle, merge_sums
from bochner.errors import BochnerError, EngineError, InvalidType
from bochner.sums.passes import LOCAL, Engine

# --- Functions of all engines ---------------------------------------------------------------------


def check_connection(attribute: str, content: str) -> Check:
    """Return a check that a value is None, an address, or a connection with this attribute."""

    def check(value: Any, caller: str, name: str) -> Any:
        if value is None or isinstance(value, str) or hasattr(value, attribute):
            return value
        raise InvalidType(f"{caller}: {name} must be {content}; got {type(value).__name__}.")

    return check


def answer_in_time(
    caller: str, service: str, timeout: float, *errors: type[BaseException]
) -> AbstractContextManager[None]:
    """Return a context that replaces OSError and ``errors`` by an EngineError about no answer."""
    no_answer = lambda error: EngineError(
        f"{caller}: the {service} must answer within {timeout:g} seconds; it did not "
        f"({str(error)[:200] or type(error).__name__}). Start it, name another address, or wait "
        "longer with timeout=."
    )
    return raise_as(no_answer, OSError, *errors)


def require_answer(caller: str, address: str, timeout: float) -> None:
    """Raise an error if an address, host:port with or without a scheme, does not answer in time."""
    try:
        url = urlsplit(address if "://" in address else f"//{address}")
        host, port = url.hostname, url.port
    except ValueError:
        return  # several addresses, or local[2]: the client parses them
    if host and port is not None:
        with answer_in_time(caller, f"cluster at {address}", timeout):
            create_connection((host, port), timeout).close()


def task_error(engine: str, task: object, reason: str) -> EngineError:
    """Return the error of a failed task of workers; its name or key ``task`` contains its rows."""
    rows = re.search(r"rows-(\d+)-(\d+)", str(task))
    work = f"rows {int(rows[1]):,} to {int(rows[2]) - 1:,}" if rows else "sums of rows"
    return EngineError(
        f"{engine}: workers must be able to add up {work} while the cluster is there; they could "
        f"not ({reason}). Install on workers what is installed here, give them memory or ask "
        "for fewer features, and fit again; start the cluster again if it is gone."
    )


def with_rows(
    args: tuple[Any, ...], library: str, to_handle: Callable[[Any], Handle]
) -> tuple[Any, ...]:
    """Return arguments with the rows of partitions, or with handles if this engine has them."""
    rows = lambda a: to_handle(a.content) if a.library == library else a.fetch()
    return tuple(rows(a) if isinstance(a, Partition) else a for a in args)


_CLIENT = "a distributed.Client or the address of a scheduler like 'tcp://127.0.0.1:8786'"


@dataclass(frozen=True, eq=False)
class Dask(NamedArguments):
    """Compute passes on the workers of a Dask cluster.

    Parameters
    ----------
    client : distributed.Client or str, optional
        A client, or the address of the scheduler, for example "tcp://127.0.0.1:8786".
        Default: a process for each processor of this machine, started for each fit.
    timeout : float, default 30
        Seconds to wait for the scheduler, and for a first worker.

    Raises
    ------
    EngineError
        The scheduler does not answer, or there is no worker, within the timeout; workers die
        repeatedly on the same rows; a worker cannot read its rows.
    MissingDependency
        dask.distributed is not installed.

    Notes
    -----
    If a worker dies, other workers sum its parts again, with the same bits. Workers exchange the
    sums of parts; only the total is sent to this process. Memory of a worker: one block, its
    features, and a few sums.

    Examples
    --------
    >>> import bochner as bo
    >>> where = bo.engines.Dask("tcp://127.0.0.1:8786")  # doctest: +SKIP
    >>> blocks = bo.Blocks.from_files("rows-*.parquet", target="y")  # doctest: +SKIP
    >>> model = bo.KernelRidge(random_state=0).fit_blocks(blocks, where)  # doctest: +SKIP
    """

    client: Annotated[Any, check_connection("scheduler_info", _CLIENT)] = None
    timeout: Positive = 30.0

    @contextmanager
    def passes(self, description: str, blocks: Blocks) -> Iterator[ClusterPasses]:
        distributed, client = package("distributed", "Dask", "'bochner[dask]'"), self.client
        with ExitStack() as stack:  # clients and clusters that are started here
            if client is None:
                local = distributed.LocalCluster(threads_per_worker=1, dashboard_address=None)
                client = distributed.Client(stack.enter_context(local), set_as_default=False)
                stack.enter_context(client)
            elif isinstance(client, str):
                with answer_in_time("Dask", f"scheduler at {client}", self.timeout):
                    client = distributed.Client(client, timeout=self.timeout, set_as_default=False)
                stack.enter_context(client)
            yield self._passes(client)

    def _passes(self, client: Any) -> ClusterPasses:
        """Return the executor of passes on the workers of a client's cluster."""
        address = client.scheduler.address if client.scheduler else "?"
        with answer_in_time("Dask", f"scheduler at {address}", self.timeout):
            client.wait_for_workers(1, timeout=self.timeout)
        groups: dict[str, list[Partition]] = {}

        def count() -> int:
            workers = client.scheduler_info(n_workers=-1).get("workers", {})
            # a lost scheduler lists no workers
            return max(1, sum(worker["nthreads"] for worker in workers.values()))

        def submit(name: str, function: Callable[..., Any], *args: Any) -> Handle:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="Sending large graph")
                key = f"bochner-{name}-{uuid4().hex[:12]}"
                if partitions := [a for a in args if isinstance(a, Partition)]:
                    groups[key] = partitions
                args = with_rows(args, "dask", client.compute)
                if client.status != "running":
                    raise task_error("Dask", key, "its scheduler does not answer")
                return client.submit(function, *args, key=key, pure=False)

        def wait(handle: Handle) -> None:
            with raise_as(partial(_partition_error, handle, groups.pop(handle.key, []))):
                if handle.exception() is not None:
                    handle.result()

        def result(handle: Handle) -> Any:
            with raise_as(partial(_partition_error, handle, [])):
                return handle.result()

        # shared as the result of a task: scattered values are lost with their worker
        share = partial(submit, "share", lambda shared: shared)
        return ClusterPasses(repr(self), count, share, submit, wait, result)


def _current_dask() -> Engine:
    """Return an engine on dask's current client; if there is no client, this process."""
    with suppress(KeyError, ValueError):
        return Dask(sys.modules["distributed"].get_client())
    return LOCAL


def _partition_error(handle: Handle, partitions: list[Partition], error: Exception) -> BochnerError:
    """Return the error to raise for a failed task on these partitions."""
    if isinstance(error, package("distributed", "Dask").KilledWorker):
        reason = f"{error.allowed_failures + 1} died over it, probably for lack of memory"
        return task_error("Dask", error.task, reason)
    if handle.status == "error":
        for partition in partitions:
            partition.fetch()  # its error names the partition
    return task_error("Dask", handle.key, message_of(error))


#: Workers that may die over one part before the fit fails.
RETRIES = 8


@dataclass(frozen=True)
class Ray(NamedArguments):
    """Compute passes on the workers of a Ray cluster.

    Parameters
    ----------
    address : str, optional
        Address of the cluster, as in ``ray.init``. Default: the cluster that this process is
        connected to; without one, a cluster is started on this machine.
    timeout : float, default 30
        Seconds to wait for an answer at the address.

    Raises
    ------
    EngineError
        The cluster does not answer within the timeout; nine workers die on the same rows; a
        worker cannot read its rows.
    MissingDependency
        ray is not installed.

    Notes
    -----
    Transfers, failures and results are as for :class:`bochner.engines.Dask`.

    Examples
    --------
    >>> import bochner as bo
    >>> where = bo.engines.Ray("auto")  # doctest: +SKIP
    """

    address: str | None = None
    timeout: Positive = 30.0

    @contextmanager
    def passes(self, description: str, blocks: Blocks) -> Iterator[ClusterPasses]:
        ray = package("ray", "Ray", "'bochner[ray]'")
        if not ray.is_initialized():
            if self.address is not None:
                require_answer("Ray", self.address, self.timeout)
            service = f"cluster at {self.address or 'this machine'}"
            with answer_in_time("Ray", service, self.timeout, ValueError, RuntimeError, SystemExit):
                ray.init(self.address, log_to_driver=False, include_dashboard=False)
        processors = max(1, int(ray.cluster_resources().get("CPU", 1)))
        remote = ray.remote(lambda function, *args: (function(*args), True))
        ends: dict[str, tuple[str, Handle]] = {}  # of parts not waited for yet

        def submit(name: str, function: Callable[..., Any], *args: Any) -> Handle:
            args = with_rows(args, "ray", lambda reference: reference)
            options = {"name": f"bochner-{name}", "max_retries": RETRIES, "num_returns": 2}
            value, end = remote.options(**options).remote(function, *args)
            if name.startswith("rows"):
                ends[value.hex()] = name, end
            return value

        def get(name: str, handle: Handle) -> Any:
            try:
                return ray.get(handle)
            except ray.exceptions.RayError as error:
                cause = getattr(error, "cause", None)
                if isinstance(cause, BochnerError):
                    raise cause from None
                raise task_error("Ray", name, message_of(error)) from error

        # the value of a part stays in the store; only a flag that it is there is fetched
        wait = lambda handle: get(*ends.pop(handle.hex()))
        result = lambda handle: deepcopy(get("", handle))  # the store's arrays are read-only
        yield ClusterPasses(repr(self), lambda: processors, ray.put, submit, wait, result)


#: Attempts at each part of the rows before the fit fails.
TRIES = 4

_SESSION = "a pyspark.sql.SparkSession or the address of a master like 'spark://host:7077'"


@dataclass(frozen=True, eq=False)
class Spark(NamedArguments):
    """Compute passes on the executors of a Spark session.

    Parameters
    ----------
    session : pyspark.sql.SparkSession or str, optional
        A session, or the address of a master, like "spark://host:7077" or "local[2]", to start one
        at. Default: the active session, else a new one with a process for each processor of this
        machine. A session that is started stays active; on this machine its workers use the Python
        of this process, or the one that PYSPARK_PYTHON names.
    timeout : float, default 30
        Seconds to wait for an answer at the address.

    Raises
    ------
    EngineError
        The address does not answer within the timeout, a session cannot be started, a part failed
        four times, or the session was stopped.
    MissingDependency
        pyspark is not installed.

    Notes
    -----
    Each part of the rows is a job of one task. The driver receives its sum, 8 D² bytes for moments,
    and merges it; the bits are the same as with the other engines.

    Examples
    --------
    >>> import bochner as bo
    >>> where = bo.engines.Spark("local[2]")  # doctest: +SKIP
    """

    session: Annotated[Any, check_connection("sparkContext", _SESSION)] = None
    timeout: Positive = 30.0

    @contextmanager
    def passes(self, description: str, blocks: Blocks) -> Iterator[ClusterPasses]:
        package("pyspark", "Spark", "'bochner[spark]' (and Java 17)")
        context = self._start().sparkContext
        error_ = EngineError(
            "Spark: the session must be there until the fit is made; it was stopped. Start it "
            "again, and fit again."
        )
        with raise_as(lambda _: error_):
            workers = max(1, int(context.defaultParallelism))
        threads, merging = ThreadPoolExecutor(workers), ThreadPoolExecutor(1)
        group = f"bochner-{uuid4().hex[:12]}"
        pickle = package("pyspark.cloudpickle", "Spark")

        def submit(name: str, function: Callable[..., Any], *args: Any) -> Handle:
            if function is merge_sums:
                value, futures = _unpickle(args[0]), args[1:]  # of two earlier sums
                return merging.submit(lambda: merge_sums(value, *(f.result() for f in futures)))
            return threads.submit(_job, context, group, name, function, args)

        # cloudpickle also sends functions that are defined in scripts
        share = lambda value: context.broadcast(pickle.dumps(value))
        wait, result = methodcaller("exception"), methodcaller("result")
        try:
            yield ClusterPasses(repr(self), lambda: workers, share, submit, wait, result)
        finally:  # after Ctrl-C too: cancel all remaining parts
            for pool in (threads, merging):
                pool.shutdown(wait=False, cancel_futures=True)
            context.cancelJobGroup(group)

    def _start(self) -> Any:
        """Return the Spark session; start a session if there is no active one."""
        if self.session is not None and not isinstance(self.session, str):
            return self.session
        from pyspark.sql import SparkSession

        master = self.session or "local[*]"
        if self.session is not None:
            require_answer("Spark", self.session, self.timeout)
        elif active := SparkSession.getActiveSession():
            return active
        if master.startswith("local"):  # "python3" may lack the packages of this one
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        no_session = lambda error: EngineError(
            f"Spark: a session at {master} must begin; it did not "
            f"({type(error).__name__}: {str(error)[:200]}). Install Java 17 or later, start "
            "the master, or name another address."
        )
        with raise_as(no_session):
            return SparkSession.builder.master(master).getOrCreate()


def _job(
    context: Any, group: str, name: str, function: Callable[..., Any], args: tuple[Any, ...]
) -> Any:
    """Return the result of a job of one task; run the job again if its worker dies."""
    context.setJobGroup(group, f"bochner {name}", interruptOnCancel=True)
    partitions = [a for a in args if isinstance(a, Partition)]
    args = args[: len(args) - len(partitions)]

    def task(values: tuple[Any, ...]) -> Any:
        """Return the result, or an error of bochner as a value: only dead workers are retried."""
        try:
            return function(*map(_unpickle, values))
        except BochnerError as error:
            return error

    for n_left in reversed(range(TRIES)):
        try:
            if len(partitions) == 1 and partitions[0].library == "pyspark":
                # on the executor that holds the rows
                streams, number = partitions[0].content
                run_task = lambda parts: [task((*args, table_of([*parts])))]
                (result,) = context.runJob(streams, run_task, [number])
            else:
                values = (*args, *(partition.fetch() for partition in partitions))
                (result,) = context.parallelize([values], 1).map(task).collect()
            break
        except Exception as error:
            if not n_left:
                words = f"{TRIES} times, {message_of(error)}; PYSPARK_PYTHON names their Python"
                raise task_error("Spark", name, words) from error
    if isinstance(result, BochnerError):
        raise result
    return result


def _unpickle(value: Any) -> Any:
    """Return the value, unpickled if it was shared with the executors."""
    if type(value).__name__ != "Broadcast":
        return value
    return package("pyspark.cloudpickle", "Spark").loads(value.value)


#: By package of the rows: a function that returns the engine that this process is connected to.
CURRENT: dict[str, Callable[[], Engine]] = {"dask": _current_dask, "ray": Ray, "pyspark": Spark}
