"""bochner: kernel methods at any size, through feature maps.

>>> import bochner as bo
>>> from bochner.kernels import Gaussian
>>> model = bo.KernelRidge(kernel="gaussian", n_features=512)

Names are loaded when they are first used, so that importing the package, and its command line, is
quick. The file ``__init__.pyi`` names each of them once, with its module.
"""

from bochner._core.optional import lazy_names as _lazy_names

__version__ = "0.1.0"

__all__, __getattr__, __dir__ = _lazy_names(
    __spec__, ("kernels", "errors", "landmarks", "certificates")
)
