"""The names of bochner.engines, each once, with the module that defines it."""

from bochner.engines.dask import Dask as Dask
from bochner.engines.local import Local as Local
from bochner.engines.ray import Ray as Ray
from bochner.engines.spark import Spark as Spark
