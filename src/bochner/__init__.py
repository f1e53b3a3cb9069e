"""bochner: kernel methods at any size, through feature maps.

>>> import bochner as bo
>>> from bochner.kernels import Gaussian
>>> model = bo.KernelRidge(kernel="gaussian", n_features=512)

Names are loaded when they are first used, so that importing the package, and its command line, is
quick. The file ``__init__.pyi`` names each of them once, with its module.
"""

from importlib import import_module
from typing import Any

from bochner._core.homes import ENGINES as _ENGINES

__version__ = "0.1.0"

_stub: bytes = __spec__.loader.get_data(__file__.removesuffix("c") + "i")  # type: ignore[union-attr]
_imports = (line.split() for line in _stub.decode().splitlines() if line.startswith("from bochner"))
_HOME = {name: module for _, module, _, name, *_ in _imports}
__all__ = [*sorted(_HOME)]  # noqa: PLE0604
_ENGINES.update(
    dask="bochner.engines.dask", ray="bochner.engines.ray", pyspark="bochner.engines.spark"
)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        from bochner._core import names as _names  # noqa: PLC0415

        homes = () if name.startswith("_") else ("kernels", "errors", "landmarks", "certificates")
        elsewhere = {home: import_module(f"bochner.{home}").__all__ for home in homes}
        raise AttributeError(_names.missing("bochner", name, __all__, elsewhere))
    if _HOME[name] == "bochner":
        return import_module(f"bochner.{name}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
