"""The classes that a model file may hold, listed by hand: a file can build nothing else."""

from collections.abc import Mapping
from types import MappingProxyType

from bochner._ground.schema import Schema
from bochner.estimators import KernelFeatures, KernelRidge
from bochner.estimators.named import LengthscaleSearch
from bochner.estimators.rows import RowSample
from bochner.features.auto import Auto, Candidate, Choice
from bochner.features.fourier import Fourier, FourierMap, FourierPhaseMap
from bochner.features.map import (
    Concatenate,
    ConstantMap,
    LinearMap,
    OnInputs,
    ScaledMap,
    TensorProduct,
)
from bochner.features.nystrom import Nystrom, NystromMap, Pivoted, Uniform
from bochner.features.placements import IID, QMC, Orthogonal
from bochner.kernels import (
    Cauchy,
    Columns,
    Constant,
    Exponential,
    Gaussian,
    Laplace,
    Linear,
    Mahalanobis,
    Matern,
    Product,
    RationalQuadratic,
    Scaled,
    Sum,
)
from bochner.moments import Moments
from bochner.planning import Certificate
from bochner.solvers.solution import Outcome, Path, Solution

__all__ = ["ESTIMATORS", "KNOWN"]

_KERNELS: tuple[type, ...] = (
    Cauchy,
    Columns,
    Constant,
    Exponential,
    Gaussian,
    Laplace,
    Linear,
    Mahalanobis,
    Matern,
    Product,
    RationalQuadratic,
    Scaled,
    Sum,
)
_METHODS: tuple[type, ...] = (
    IID,
    QMC,
    Auto,
    Candidate,
    Choice,
    Fourier,
    Nystrom,
    Orthogonal,
    Pivoted,
    Uniform,
)
_MAPS: tuple[type, ...] = (
    Concatenate,
    ConstantMap,
    FourierMap,
    FourierPhaseMap,
    LinearMap,
    NystromMap,
    OnInputs,
    ScaledMap,
    TensorProduct,
)
_FITTED: tuple[type, ...] = (
    Certificate,
    LengthscaleSearch,
    Moments,
    Outcome,
    Path,
    RowSample,
    Schema,
    Solution,
)


def _by_name(*classes: type) -> Mapping[str, type]:
    return MappingProxyType({cls.__name__: cls for cls in classes})


#: Built from parameters, then given their fitted state.
ESTIMATORS = _by_name(KernelFeatures, KernelRidge)

#: Built from their fields.
KNOWN = _by_name(*_KERNELS, *_METHODS, *_MAPS, *_FITTED)
