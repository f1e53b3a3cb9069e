"""Learners with scikit-learn's interface."""

from typing import Any

from bochner._core.names import unknown
from bochner.models.convex.classifiers import SVC, LogisticRegression
from bochner.models.convex.one_class import OneClassSVM
from bochner.models.convex.regressors import SVR, KernelRegressor
from bochner.models.displays import MapDisplay, PathDisplay, SpectrumDisplay
from bochner.models.gaussian_process.neighbours import NearestNeighbours
from bochner.models.gaussian_process.regressor import GaussianProcessRegressor
from bochner.models.inspection.contributions import ContributionDisplay, contributions
from bochner.models.inspection.dependence import PartialDependenceDisplay, partial_dependence
from bochner.models.inspection.importance import ImportanceDisplay, column_importance
from bochner.models.merging import merge
from bochner.models.prediction_displays import CalibrationDisplay
from bochner.models.representations.methods import ExactKernel, LocalKernel
from bochner.models.ridge.double_descent import DoubleDescent, double_descent
from bochner.models.ridge.estimators import KernelRidge, KernelRidgeClassifier
from bochner.models.sgd.estimators import KernelSGDClassifier, KernelSGDRegressor
from bochner.models.sgd.strategies import SgdTask, StrategyCost, StrategyPlan
from bochner.models.tune import tune
from bochner.models.unsupervised.base import KernelFeatures
from bochner.models.unsupervised.cca import KernelCCA
from bochner.models.unsupervised.kmeans import KernelKMeans
from bochner.models.unsupervised.pca import KernelPCA
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
    "SgdTask",
    "SpectrumDisplay",
    "StrategyCost",
    "StrategyPlan",
    "Tuning",
    "column_importance",
    "contributions",
    "double_descent",
    "merge",
    "partial_dependence",
    "tune",
]


def __getattr__(name: str) -> Any:
    raise unknown(__name__, name, __all__)
