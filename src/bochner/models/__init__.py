"""Row 3b: learners with scikit-learn's interface."""

from typing import Any

from bochner._core.names import handed_out
from bochner.models.convex.classifiers import SVC, LogisticRegression
from bochner.models.convex.one_class import OneClassSVM
from bochner.models.convex.regressors import SVR, KernelRegressor
from bochner.models.displays import MapDisplay, PathDisplay, SpectrumDisplay
from bochner.models.gaussian_process.neighbours import NearestNeighbours
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
from bochner.models.ridge.double_descent import DoubleDescent, double_descent
from bochner.models.ridge.estimators import KernelRidge, KernelRidgeClassifier
from bochner.models.ridge.methods import ExactKernel, LocalKernel
from bochner.models.sgd.estimators import KernelSGDClassifier, KernelSGDRegressor
from bochner.models.sgd.strategies import SgdTask, StrategyCost, StrategyPlan
from bochner.models.tune import tune
from bochner.models.unsupervised.cca import KernelCCA
from bochner.models.unsupervised.kmeans import KernelKMeans
from bochner.models.unsupervised.pca import KernelPCA
from bochner.models.unsupervised.transform import KernelFeatures
from bochner.selection.record import Tuning

__all__ = [
    "SVC",
    "SVR",
    "CalibrationDisplay",
    "ContributionDisplay",
    "DoubleDescent",
    "ExactKernel",
    "GaussianProcessRegressor",
    "ImportanceDisplay",
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
    "MapDisplay",
    "NearestNeighbours",
    "OneClassSVM",
    "PartialDependenceDisplay",
    "PathDisplay",
    "ResidualDisplay",
    "SgdTask",
    "SpectrumDisplay",
    "StrategyCost",
    "StrategyPlan",
    "Tuning",
    "WidthDisplay",
    "column_importance",
    "contributions",
    "double_descent",
    "merge",
    "partial_dependence",
    "tune",
]

#: Names for those who build on bochner, by the module that defines each.
FOR_DEVELOPERS = {
    "_base": "KernelEstimator",
    "_kinds": "LabelEstimator TargetEstimator WithoutTarget",
    "_intervals": "learn_errors",
    "_rows": "FeatureBlock Features SumOnFeatures fold_numbers rows_left_out",
    "_calibration": "agreeing calibrate",
    "convex.classification": "class_sample",
    "convex.pairs": "ClassPairs",
    "error_law": "Distribution ErrorLaw LeftOutRows TargetLaw interval_score",
    "gaussian_process.adaptation": "left_out",
    "gaussian_process.intervals": "Conformal",
    "ridge.exact": "prepare",
    "ridge.gathered": "gather",
    "ridge.wide": "features_of_passes",
    "smoother": "LandmarkSmoother",
    "sgd.steps": "DUAL EXACT STRATEGIES",
    "sgd.strategies": "plan_strategies",
    "unsupervised.base": "DiagonalOf",
    "unsupervised.cca": "CorrelationsOf",
    "unsupervised.clustering": "matrix_error",
}


def __getattr__(name: str) -> Any:
    return handed_out(__name__, name, FOR_DEVELOPERS, __all__)
