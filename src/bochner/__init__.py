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
    from bochner.estimators import KernelFeatures, KernelRidge, merge
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
    from bochner.features.draw import draw
    from bochner.moments import Moments
    from bochner.persist import load, save
    from bochner.planning import Certificate, Comparison, certify, check_kernel, compare

__version__ = "0.1.0"

__all__ = [
    "IID",
    "QMC",
    "Auto",
    "Block",
    "Blocks",
    "Certificate",
    "Comparison",
    "Compressed",
    "Explicit",
    "Fastfood",
    "FeatureMap",
    "Fourier",
    "Gegenbauer",
    "Given",
    "Grid",
    "HermiteMercer",
    "HistogramSampling",
    "KMeans",
    "KernelFeatures",
    "KernelRidge",
    "LaplacianEigenfunctions",
    "Maclaurin",
    "MercerHarmonic",
    "Method",
    "Moments",
    "NeuralTangentFeatures",
    "Nystrom",
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
    "Uniform",
    "certify",
    "check_kernel",
    "compare",
    "draw",
    "errors",
    "kernels",
    "load",
    "merge",
    "save",
]

_HOME = {
    "Block": "bochner._ground.blocks",
    "Blocks": "bochner._ground.blocks",
    "Schema": "bochner._ground.schema",
    "KernelFeatures": "bochner.estimators",
    "KernelRidge": "bochner.estimators",
    "merge": "bochner.estimators",
    "Moments": "bochner.moments",
    "draw": "bochner.features.draw",
    "load": "bochner.persist",
    "save": "bochner.persist",
    "Certificate": "bochner.planning",
    "Comparison": "bochner.planning",
    "certify": "bochner.planning",
    "compare": "bochner.planning",
    "check_kernel": "bochner.planning",
}


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
