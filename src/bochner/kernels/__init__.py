"""Kernels as frozen values, their algebra, and their spectral measures.

>>> from bochner.kernels import Gaussian, Matern
>>> k = 2.0 * Matern(smoothness=1.5, lengthscale=[0.3, 1.0]) + Gaussian(lengthscale=0.5)
>>> k.replace(right__lengthscale=0.7).right
Gaussian(lengthscale=0.7)
>>> k([[0.0, 0.0]], [[0.0, 0.0]])
array([[3.]])
"""

from bochner.kernels.dotproduct import DotProduct, Linear
from bochner.kernels.inputs import Columns, Mahalanobis
from bochner.kernels.kernel import Constant, Kernel, Product, Scaled, Sum
from bochner.kernels.matern import Matern
from bochner.kernels.stationary import (
    Cauchy,
    CoordinateWise,
    Exponential,
    Gaussian,
    Laplace,
    Radial,
    RationalQuadratic,
    Stationary,
)

__all__ = [
    "Cauchy",
    "Columns",
    "Constant",
    "CoordinateWise",
    "DotProduct",
    "Exponential",
    "Gaussian",
    "Kernel",
    "Laplace",
    "Linear",
    "Mahalanobis",
    "Matern",
    "Product",
    "Radial",
    "RationalQuadratic",
    "Scaled",
    "Stationary",
    "Sum",
]
