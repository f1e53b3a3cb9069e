"""Clusters that commands are given to."""

from collections.abc import Callable

import click

from bochner.engines.dask import Dask
from bochner.engines.ray import Ray
from bochner.engines.spark import Spark

Cluster = Dask | Ray | Spark

_CLUSTERS: dict[str, Callable[[str | None], Cluster]] = {"dask": Dask, "ray": Ray, "spark": Spark}


def cluster_of(engine: str, scheduler: str | None) -> Cluster:
    """Return the cluster at an address, or one that is started on this machine."""
    return _CLUSTERS[engine](scheduler)


def refuse_scheduler(engine: str, scheduler: str | None) -> None:
    """Refuse the address of a cluster where none is asked for."""
    if engine == "local" and scheduler is not None:
        raise click.UsageError(
            "--scheduler ADDRESS is of a cluster, which --engine dask, ray or spark asks for; got "
            "--engine local. Leave it out, or name the engine."
        )
