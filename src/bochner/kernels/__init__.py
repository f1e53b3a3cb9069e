"""Kernels as immutable objects, their algebra, and their spectral measures.

>>> from bochner.kernels import Gaussian, Matern
>>> k = 2.0 * Matern(smoothness=1.5, lengthscale=[0.3, 1.0]) + Gaussian(lengthscale=0.5)
>>> k.replace(right__lengthscale=0.7).right
Gaussian(lengthscale=0.7)
>>> k([[0.0, 0.0]], [[0.0, 0.0]])
array([[3.]])
"""

from bochner._core.optional import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__spec__)
