"""bochner: kernel methods at any size, through feature maps.

>>> import bochner as bo
>>> from bochner.kernels import Gaussian
>>> model = bo.KernelRidge(kernel="gaussian", n_features=512)

Names are loaded when first used, so that importing the package, and its command line, is quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from bochner._core.homes import ENGINES as _ENGINES

if TYPE_CHECKING:
    from bochner.certificates.bounds.table import compare_bounds
    from bochner.certificates.certificate import Certificate, certify
    from bochner.certificates.checks import check_features, check_kernel
    from bochner.certificates.comparison import Comparison, compare
    from bochner.certificates.pointwise import approximation_residual
    from bochner.certificates.risk import CostCertificate, certify_costs, risk
    from bochner.data.blocks import Blocks
    from bochner.data.schema import Schema
    from bochner.data.sources import Block
    from bochner.features import (
        IID,
        QMC,
        Auto,
        Compressed,
        Explicit,
        Fastfood,
        FeatureMap,
        Fourier,
        FourierGrid,
        Gegenbauer,
        Grid,
        HermiteMercer,
        HistogramSampling,
        LaplacianEigenfunctions,
        LeverageFourier,
        Maclaurin,
        MercerHarmonic,
        Method,
        NeuralTangentFeatures,
        Nystrom,
        Orthogonal,
        PolySketch,
        Positive,
        Projected,
        ReLU,
        Sign,
        SphericalHarmonics,
        Structured,
        TensorSketch,
    )
    from bochner.models.averages import cell_averages
    from bochner.models.convex.classifiers import SVC, LogisticRegression
    from bochner.models.convex.one_class import OneClassSVM
    from bochner.models.convex.regressors import SVR, KernelRegressor
    from bochner.models.displays import MapDisplay, PathDisplay, SpectrumDisplay
    from bochner.models.gaussian_process.neighbours import NearestNeighbours
    from bochner.models.gaussian_process.observations import BlockAverages, Derivatives
    from bochner.models.gaussian_process.regressor import GaussianProcessRegressor
    from bochner.models.inspection.contributions import ContributionDisplay, contributions
    from bochner.models.inspection.dependence import (
        PartialDependenceDisplay,
        partial_dependence,
    )
    from bochner.models.inspection.importance import ImportanceDisplay, column_importance
    from bochner.models.merging import merge
    from bochner.models.prediction_displays import (
        CalibrationDisplay,
        ResidualDisplay,
        WidthDisplay,
    )
    from bochner.models.representations.methods import (
        ExactKernel,
        LocalKernel,
    )
    from bochner.models.ridge.double_descent import DoubleDescent, double_descent
    from bochner.models.ridge.estimators import KernelRidge, KernelRidgeClassifier
    from bochner.models.scores import NormalScores, normal_scores, predictive_scorer
    from bochner.models.sgd.estimators import KernelSGDClassifier, KernelSGDRegressor
    from bochner.models.trends import TrendedProcess, universal_kriging
    from bochner.models.tune import tune
    from bochner.models.unsupervised.cca import KernelCCA
    from bochner.models.unsupervised.kmeans import KernelKMeans
    from bochner.models.unsupervised.pca import KernelPCA
    from bochner.models.unsupervised.transform import KernelFeatures
    from bochner.models.variogram import Variogram, VariogramModel, variogram
    from bochner.persist import load, save
    from bochner.planner.plans import Plan, plan
    from bochner.report import ModelReport, report_model
    from bochner.selection.choose import draw
    from bochner.selection.record import Tuning
    from bochner.selection.spec import Tolerance
    from bochner.selection.width import required_features
    from bochner.solvers.convex.losses import Huber
    from bochner.solvers.convex.own_losses import CustomLoss, JointLoss
    from bochner.sums.moments import Moments

__version__ = "0.1.0"

__all__ = [
    "IID",
    "QMC",
    "SVC",
    "SVR",
    "Auto",
    "Block",
    "BlockAverages",
    "Blocks",
    "CalibrationDisplay",
    "Certificate",
    "Comparison",
    "Compressed",
    "ContributionDisplay",
    "CostCertificate",
    "CustomLoss",
    "Derivatives",
    "DoubleDescent",
    "ExactKernel",
    "Explicit",
    "Fastfood",
    "FeatureMap",
    "Fourier",
    "FourierGrid",
    "GaussianProcessRegressor",
    "Gegenbauer",
    "Grid",
    "HermiteMercer",
    "HistogramSampling",
    "Huber",
    "ImportanceDisplay",
    "JointLoss",
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
    "LeverageFourier",
    "LocalKernel",
    "LogisticRegression",
    "Maclaurin",
    "MapDisplay",
    "MercerHarmonic",
    "Method",
    "ModelReport",
    "Moments",
    "NearestNeighbours",
    "NeuralTangentFeatures",
    "NormalScores",
    "Nystrom",
    "OneClassSVM",
    "Orthogonal",
    "PartialDependenceDisplay",
    "PathDisplay",
    "Plan",
    "PolySketch",
    "Positive",
    "Projected",
    "ReLU",
    "ResidualDisplay",
    "Schema",
    "Sign",
    "SpectrumDisplay",
    "SphericalHarmonics",
    "Structured",
    "TensorSketch",
    "Tolerance",
    "TrendedProcess",
    "Tuning",
    "Variogram",
    "VariogramModel",
    "WidthDisplay",
    "approximation_residual",
    "cell_averages",
    "certify",
    "certify_costs",
    "check_features",
    "check_kernel",
    "column_importance",
    "compare",
    "compare_bounds",
    "contributions",
    "double_descent",
    "draw",
    "engines",
    "errors",
    "export",
    "kernels",
    "landmarks",
    "load",
    "merge",
    "normal_scores",
    "partial_dependence",
    "plan",
    "predictive_scorer",
    "report_model",
    "required_features",
    "risk",
    "save",
    "tune",
    "universal_kriging",
    "variogram",
]

#: Where names live that are not in ``bochner.features``.
_NAMES = {
    "bochner.data.blocks": (
        "Block",
        "Blocks",
    ),
    "bochner.data.schema": ("Schema",),
    "bochner.models.gaussian_process.observations": ("BlockAverages", "Derivatives"),
    "bochner.models": (
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
        "LocalKernel",
        "LogisticRegression",
        "NearestNeighbours",
        "OneClassSVM",
        "CalibrationDisplay",
        "ContributionDisplay",
        "ImportanceDisplay",
        "MapDisplay",
        "PartialDependenceDisplay",
        "PathDisplay",
        "ResidualDisplay",
        "SpectrumDisplay",
        "Tuning",
        "WidthDisplay",
        "column_importance",
        "contributions",
        "partial_dependence",
        "double_descent",
        "merge",
        "tune",
    ),
    "bochner.models.averages": ("cell_averages",),
    "bochner.models.scores": ("NormalScores", "normal_scores", "predictive_scorer"),
    "bochner.models.trends": ("TrendedProcess", "universal_kriging"),
    "bochner.sums.moments": ("Moments",),
    "bochner.planner": ("Plan", "plan"),
    "bochner.persist": (
        "load",
        "save",
    ),
    "bochner.report": ("ModelReport", "report_model"),
    "bochner.certificates": (
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
        "approximation_residual",
    ),
    "bochner.selection.choose": ("draw",),
    "bochner.selection.spec": ("Tolerance",),
    "bochner.models.variogram": ("Variogram", "VariogramModel", "variogram"),
    "bochner.selection.width": ("required_features",),
    "bochner.solvers.convex.losses": ("Huber",),
    "bochner.solvers.convex.own_losses": ("CustomLoss", "JointLoss"),
}
_ENGINES.update(
    dask="bochner.engines.dask", ray="bochner.engines.ray", pyspark="bochner.engines.spark"
)
_HOME = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in {"engines", "errors", "export", "kernels", "landmarks"}:
        return import_module(f"bochner.{name}")
    if name not in __all__:
        from bochner._core import names as _names  # noqa: PLC0415

        homes = () if name.startswith("_") else ("kernels", "errors", "landmarks", "certificates")
        elsewhere = {home: import_module(f"bochner.{home}").__all__ for home in homes}
        raise AttributeError(_names.missing("bochner", name, __all__, elsewhere))
    value = getattr(import_module(_HOME.get(name, "bochner.features")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
