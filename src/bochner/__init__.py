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
        CalibrationDisplay,
        DoubleDescent,
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
        PathDisplay,
        Plan,
        ResidualDisplay,
        SpectrumDisplay,
        Tuning,
        WidthDisplay,
        double_descent,
        merge,
        plan,
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
    from bochner.planning.drawing import draw
    from bochner.planning.width import Enough, enough
    from bochner.report import ModelReport, report_model
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
    "CalibrationDisplay",
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
    "ModelReport",
    "Moments",
    "NeuralTangentFeatures",
    "Nystrom",
    "OneClassSVM",
    "Orthogonal",
    "PathDisplay",
    "Pivoted",
    "Plan",
    "PolySketch",
    "Positive",
    "Projected",
    "ReLU",
    "ResidualDisplay",
    "RidgeLeverage",
    "Schema",
    "Sign",
    "SpectrumDisplay",
    "Structured",
    "TensorSketch",
    "Tuning",
    "Uniform",
    "WidthDisplay",
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
    "plan",
    "report_model",
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
        "Plan",
        "CalibrationDisplay",
        "PathDisplay",
        "ResidualDisplay",
        "SpectrumDisplay",
        "Tuning",
        "WidthDisplay",
        "double_descent",
        "merge",
        "plan",
        "tune",
    ),
    "bochner.moments": ("Moments",),
    "bochner.persist": (
        "load",
        "save",
    ),
    "bochner.report": ("ModelReport", "report_model"),
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
    "bochner.planning.drawing": ("draw",),
    "bochner.planning.width": ("Enough", "enough"),
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
