"""Clusters that commands are given to."""

import click

from bochner.engines.dask import Dask
from bochner.engines.ray import Ray


def cluster_of(engine: str, scheduler: str | None) -> Dask | Ray:
    """Return the cluster at an address, or one that is started on this machine."""
    return Dask(scheduler) if engine == "dask" else Ray(scheduler)


def refuse_scheduler(engine: str, scheduler: str | None) -> None:
    """Refuse the address of a cluster where none is asked for."""
    if engine == "local" and scheduler is not None:
        raise click.UsageError(
            "--scheduler ADDRESS is of a cluster, which --engine dask or ray asks for; got "
            "--engine local. Leave it out, or name the engine."
        )
