"""bochner: kernel methods at any size, through feature maps.

>>> import bochner as bo
>>> from bochner.kernels import Gaussian
>>> model = bo.KernelRidge(kernel="gaussian", n_features=512)

Names are loaded when first used, so that importing the package, and its command line, is quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from bochner import errors

if TYPE_CHECKING:
    from bochner import kernels
    from bochner._ground.blocks import Block, Blocks
    from bochner._ground.schema import Schema
    from bochner.estimators import (
        SVC,
        SVR,
        ExactKernel,
        GaussianProcessRegressor,
        KernelCCA,
        KernelFeatures,
        KernelKMeans,
        KernelPCA,
        KernelRegressor,
        KernelRidge,
        KernelRidgeClassifier,
        KernelSGDClassifier,
        KernelSGDRegressor,
        LogisticRegression,
        OneClassSVM,
        Tuning,
        double_descent,
        merge,
        tune,
    )
    from bochner.features import (
        IID,
        QMC,
        Auto,
        Compressed,
        Explicit,
        Fastfood,
        FeatureMap,
        Fourier,
        Gegenbauer,
        Given,
        Grid,
        HermiteMercer,
        HistogramSampling,
        KMeans,
        LaplacianEigenfunctions,
        Maclaurin,
        MercerHarmonic,
        Method,
        NeuralTangentFeatures,
        Nystrom,
        Orthogonal,
        Pivoted,
        PolySketch,
        Positive,
        Projected,
        ReLU,
        RidgeLeverage,
        Sign,
        Structured,
        TensorSketch,
        Uniform,
    )
    from bochner.moments import Moments
    from bochner.persist import load, save
    from bochner.planning import (
        Certificate,
        Comparison,
        CostCertificate,
        certify,
        certify_costs,
        check_features,
        check_kernel,
        compare,
        compare_bounds,
        risk,
        split_half_error,
        trust,
    )
    from bochner.planning.width import Enough, draw, enough
    from bochner.solvers.losses import Huber
    from bochner.solvers.regression_losses import CustomLoss

__version__ = "0.1.0"

__all__ = [
    "IID",
    "QMC",
    "SVC",
    "SVR",
    "Auto",
    "Block",
    "Blocks",
    "Certificate",
    "Comparison",
    "Compressed",
    "CostCertificate",
    "CustomLoss",
    "DoubleDescent",
    "Enough",
    "ExactKernel",
    "Explicit",
    "Fastfood",
    "FeatureMap",
    "Fourier",
    "GaussianProcessRegressor",
    "Gegenbauer",
    "Given",
    "Grid",
    "HermiteMercer",
    "HistogramSampling",
    "Huber",
    "KMeans",
    "KernelCCA",
    "KernelFeatures",
    "KernelKMeans",
    "KernelPCA",
    "KernelRegressor",
    "KernelRidge",
    "KernelRidgeClassifier",
    "KernelSGDClassifier",
    "KernelSGDRegressor",
    "LaplacianEigenfunctions",
    "LogisticRegression",
    "Maclaurin",
    "MercerHarmonic",
    "Method",
    "Moments",
    "NeuralTangentFeatures",
    "Nystrom",
    "OneClassSVM",
    "Orthogonal",
    "Pivoted",
    "PolySketch",
    "Positive",
    "Projected",
    "ReLU",
    "RidgeLeverage",
    "Schema",
    "Sign",
    "Structured",
    "TensorSketch",
    "Tuning",
    "Uniform",
    "certify",
    "certify_costs",
    "check_features",
    "check_kernel",
    "compare",
    "compare_bounds",
    "double_descent",
    "draw",
    "enough",
    "errors",
    "kernels",
    "load",
    "merge",
    "risk",
    "save",
    "split_half_error",
    "trust",
    "tune",
]

#: Where names live that are not in ``bochner.features``.
_NAMES = {
    "bochner._ground.blocks": (
        "Block",
        "Blocks",
    ),
    "bochner._ground.schema": ("Schema",),
    "bochner.estimators": (
        "SVC",
        "SVR",
        "DoubleDescent",
        "ExactKernel",
        "GaussianProcessRegressor",
        "KernelCCA",
        "KernelFeatures",
        "KernelKMeans",
        "KernelPCA",
        "KernelRegressor",
        "KernelRidge",
        "KernelRidgeClassifier",
        "KernelSGDClassifier",
        "KernelSGDRegressor",
        "LogisticRegression",
        "OneClassSVM",
        "Tuning",
        "double_descent",
        "merge",
        "tune",
    ),
    "bochner.moments": ("Moments",),
    "bochner.persist": (
        "load",
        "save",
    ),
    "bochner.planning": (
        "Certificate",
        "Comparison",
        "CostCertificate",
        "certify",
        "certify_costs",
        "check_features",
        "check_kernel",
        "compare",
        "compare_bounds",
        "risk",
        "split_half_error",
        "trust",
    ),
    "bochner.planning.width": (
        "Enough",
        "draw",
        "enough",
    ),
    "bochner.solvers.losses": ("Huber",),
    "bochner.solvers.regression_losses": ("CustomLoss",),
}
_HOME = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name == "kernels":
        return import_module("bochner.kernels")
    if name not in __all__:
        raise AttributeError(f"module 'bochner' has no attribute {name!r}")
    value = getattr(import_module(_HOME.get(name, "bochner.features")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
