"""Engines: where the passes of a fit are made, as ``where=`` of every ``fit_blocks`` takes it.

>>> import bochner as bo
>>> bo.engines.Local(checkpoint="run.ckpt", every=60)
Local(checkpoint='run.ckpt', every=60.0, memory=None, device=None)

A pass is a sum over rows, and its parts are merged in an order that the blocks alone fix: any
engine, with any number of workers, gives the bits of :class:`Local` on the same blocks.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bochner.engines.dask import Dask
    from bochner.engines.local import Local
    from bochner.engines.ray import Ray
    from bochner.engines.spark import Spark

__all__ = ["Dask", "Local", "Ray", "Spark"]

_FILES = {"Dask": "dask", "Local": "local", "Ray": "ray", "Spark": "spark"}


def __getattr__(name: str) -> Any:
    if name not in _FILES:
        raise AttributeError(f"module 'bochner.engines' has no attribute {name!r}")
    return getattr(import_module(f"bochner.engines.{_FILES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
