"""The names of bochner.engines, each once, with the module that defines it."""

from bochner.engines.clusters import Dask as Dask
from bochner.engines.clusters import Ray as Ray
from bochner.engines.clusters import Spark as Spark
from bochner.engines.local import Local as Local
