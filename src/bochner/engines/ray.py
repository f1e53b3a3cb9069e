"""Ray: workers of a cluster sum parts of the rows and merge the sums, as tasks."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from bochner._core.checks import positive
from bochner._core.optional import explained, needed
from bochner.data.blocks import Blocks
from bochner.data.partitions import said
from bochner.data.ray_tables import RayPartition
from bochner.engines.workers import ClusterPasses, Handle, failed, require_answer, with_rows
from bochner.errors import BochnerError, EngineError

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
    Transfers, failures and results are as for :class:`bochner.engines.Dask`.

    Examples
    --------
    >>> import bochner as bo
    >>> where = bo.engines.Ray("auto")  # doctest: +SKIP
    >>> blocks = bo.Blocks.from_files("rows-*.parquet", target="y")  # doctest: +SKIP
    >>> model = bo.KernelRidge(random_state=0).fit_blocks(blocks, where)  # doctest: +SKIP
    """

    address: str | None = None
    timeout: float = 30.0

    def __post_init__(self) -> None:
        positive(self.timeout, "Ray", "timeout")

    @contextmanager
    def passes(self, asked: str, blocks: Blocks) -> Iterator[ClusterPasses]:
        ray = needed("ray", "Ray", "'bochner[ray]'")
        if not ray.is_initialized():
            if self.address is not None:
                require_answer("Ray", self.address, self.timeout)
            silent = lambda error: EngineError(
                f"Ray: the cluster at {self.address or 'this machine'} must answer; it did not "
                f"({str(error)[:200]}). Start it, or name another address."
            )
            with explained(silent, ConnectionError, ValueError, RuntimeError, SystemExit):
                ray.init(self.address, log_to_driver=False, include_dashboard=False)
        yield _RayPasses(ray, repr(self))


#: The engine of the cluster that this process is connected to.
here = Ray


class _RayPasses(ClusterPasses):
    """Passes by workers of the cluster that this process is connected to."""

    def __init__(self, ray: Any, label: str) -> None:
        super().__init__(label)
        self.count = max(1, int(ray.cluster_resources().get("CPU", 1)))
        self._ray = ray
        self._remote = ray.remote(lambda function, *args: (function(*args), True))
        self._ends: dict[str, tuple[str, Handle]] = {}  # of parts that nobody has waited for

    def share(self, value: Any) -> Handle:
        return self._ray.put(value)

    def submit(self, name: str, function: Callable[..., Any], *args: Any) -> Handle:
        args = with_rows(args, RayPartition, attrgetter("reference"))
        options = {"name": f"bochner-{name}", "max_retries": RETRIES, "num_returns": 2}
        value, end = self._remote.options(**options).remote(function, *args)
        if name.startswith("rows"):
            self._ends[value.hex()] = name, end
        return value

    def wait(self, handle: Handle) -> None:
        # The value stays where it is: its end alone comes here.
        self._get(*self._ends.pop(handle.hex()))

    def result(self, handle: Handle) -> Any:
        return deepcopy(self._get("", handle))  # arrays of the store are not to be written to

    def _get(self, name: str, handle: Handle) -> Any:
        try:
            return self._ray.get(handle)
        except self._ray.exceptions.RayError as error:
            cause = getattr(error, "cause", None)
            if isinstance(cause, BochnerError):
                raise cause from None
            raise failed("Ray", name, said(error)) from error
