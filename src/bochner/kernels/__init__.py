"""Kernels as frozen values, their algebra, and their spectral measures.

>>> from bochner.kernels import Gaussian, Matern
>>> k = 2.0 * Matern(smoothness=1.5, lengthscale=[0.3, 1.0]) + Gaussian(lengthscale=0.5)
>>> k.replace(right__lengthscale=0.7).right
Gaussian(lengthscale=0.7)
>>> k([[0.0, 0.0]], [[0.0, 0.0]])
array([[3.]])
"""

from typing import Any

from bochner._core.names import unknown
from bochner.kernels.algebra import (
    Bilinear,
    Columns,
    Exp,
    Mahalanobis,
    Modulated,
    Normalised,
    Warped,
)
from bochner.kernels.basis import Basis, Brownian, BrownianBridge, FourierSeries, Polynomials
from bochner.kernels.dotproduct import (
    Coefficients,
    DotExponential,
    DotProduct,
    DotProductKernel,
    Linear,
    LogDerivatives,
    Polynomial,
    PowerSeries,
)
from bochner.kernels.free import Free
from bochner.kernels.green import Box, GreenFunction
from bochner.kernels.histogram import (
    Additive,
    AdditiveChi2,
    Intersection,
    JensenShannon,
    SkewedChi2,
)
from bochner.kernels.kernel import Constant, Custom, Kernel, Power, Product, Scaled, Sum
from bochner.kernels.monotone import Monotone
from bochner.kernels.sphere import OnSphere
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
from bochner.kernels.stationary_families import ExponentialPower, Matern, Periodic, SpectralMixture
from bochner.kernels.windows import Windows, one_hot, spectrum
from bochner.kernels.zonal import (
    NNGP,
    Angular,
    ArcCosine,
    GeneralizedZonal,
    Homogeneous,
    Monomials,
    NeuralTangent,
    Zonal,
)

# fmt: off
__all__ = [
    "NNGP", "Additive", "AdditiveChi2", "Angular", "ArcCosine", "Basis", "Bilinear", "Box",
    "Brownian", "BrownianBridge", "Cauchy", "Coefficients", "Columns", "Constant",
    "CoordinateWise", "Custom", "DotExponential", "DotProduct",
    "DotProductKernel", "Exp", "Exponential", "ExponentialPower", "FourierSeries", "Free",
    "Gaussian", "GeneralizedZonal", "GreenFunction", "Homogeneous", "Intersection",
    "JensenShannon", "Kernel", "Laplace", "Linear", "LogDerivatives", "Mahalanobis", "Matern",
    "Modulated", "Monomials", "Monotone", "NeuralTangent", "Normalised", "OnSphere", "Periodic",
    "Polynomial", "Polynomials", "Power", "PowerSeries", "Product", "Radial", "RationalQuadratic",
    "Scaled", "SkewedChi2", "SpectralMixture", "Stationary", "Sum", "Warped", "Windows", "Zonal",
    "one_hot", "spectrum",
]
# fmt: on


def __getattr__(name: str) -> Any:
    raise unknown(__name__, name, __all__)
