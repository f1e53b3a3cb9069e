"""Ray: parts of the rows are tasks of a cluster's workers, and so is merging their sums."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from bochner._core.checks import positive
from bochner.data.blocks import Blocks
from bochner.data.ray_tables import RayPartition
from bochner.data.sources import Partition
from bochner.engines.workers import ClusterPasses, Handle, Workers, require_answer
from bochner.errors import BochnerError, EngineError, MissingDependency
from bochner.sums.executor import Engine

#: Workers that may die over one part before the fit is given up.
RETRIES = 8


@dataclass(frozen=True)
class Ray:
    """Passes made by the workers of a Ray cluster.

    Parameters
    ----------
    address : str, optional
        Of the cluster, as ``ray.init`` takes it; default: the one that this process is connected
        to, else one that is started on this machine.
    timeout : float, default 30
        Seconds to wait for an answer at the address.

    Raises
    ------
    EngineError
        The cluster does not answer within the timeout, or nine workers die over the same rows; a
        worker cannot read its rows.
    MissingDependency
        ray is not installed.

    Notes
    -----
    As of :class:`bochner.engines.Dask`: what travels, what a death costs, and the bits.
    """

    address: str | None = None
    timeout: float = 30.0

    def __post_init__(self) -> None:
        positive(self.timeout, "Ray", "timeout")

    @contextmanager
    def passes(self, asked: str, blocks: Blocks) -> Iterator[ClusterPasses]:  # noqa: ARG002
        """Give the executor of one fit."""
        ray = _ray()
        if not ray.is_initialized():
            if self.address is not None:
                require_answer("Ray", self.address, self.timeout)
            try:
                ray.init(self.address, log_to_driver=False, include_dashboard=False)
            except (ConnectionError, ValueError, RuntimeError, SystemExit) as error:
                raise EngineError(
                    f"Ray: the cluster at {self.address or 'this machine'} must answer; it did not "
                    f"({str(error)[:200]}). Start it, or name another address."
                ) from error
        yield ClusterPasses(_RayWorkers(ray), repr(self))


def here() -> Engine:
    """Return the engine of the cluster that this process is connected to."""
    return Ray()


def _rows(partition: Partition) -> Any:
    """Return the rows of a partition: a table of the store, or themselves."""
    return partition.reference if isinstance(partition, RayPartition) else partition.fetch()


def _ray() -> Any:
    try:
        import ray  # noqa: PLC0415
    except ImportError as error:
        raise MissingDependency(
            "Ray needs the package ray, which is not installed; install it with: pip install "
            "'bochner[ray]'"
        ) from error
    return ray


class _RayWorkers(Workers):
    """Workers of the cluster that this process is connected to."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        self._remote: dict[Callable[..., Any], Any] = {}

    @property
    def count(self) -> int:
        return max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def share(self, value: Any) -> Handle:
        return self._ray.put(value)

    def submit(self, name: str, function: Callable[..., Any], *args: Any) -> Handle:
        args = tuple(_rows(a) if isinstance(a, Partition) else a for a in args)
        remote = self._remote.get(function)
        if remote is None:
            remote = self._remote[function] = self._ray.remote(function)
        return remote.options(name=f"bochner-{name}", max_retries=RETRIES).remote(*args)

    def wait(self, handle: Handle) -> None:
        self._ray.wait([handle])

    def result(self, handle: Handle) -> Any:
        errors = self._ray.exceptions
        try:
            return deepcopy(self._ray.get(handle))  # arrays of the store are not to be written to
        except errors.RayTaskError as error:
            if isinstance(error.cause, BochnerError):
                raise error.cause from None
            raise _lost(error) from error
        except errors.RayError as error:
            raise _lost(error) from error


def _lost(error: Exception) -> EngineError:
    return EngineError(
        f"Ray: the cluster must stay until the fit is made; it lost what it had been given "
        f"({type(error).__name__}: {str(error)[:200]}). Give workers more memory, or start the "
        "cluster again, and fit again."
    )
