"""Row 3: learners with scikit-learn's interface."""

from bochner.estimators.convex.logistic import LogisticRegression
from bochner.estimators.convex.one_class import OneClassSVM
from bochner.estimators.convex.regressor import KernelRegressor
from bochner.estimators.convex.svc import SVC
from bochner.estimators.convex.svr import SVR
from bochner.estimators.displays.errors import CalibrationDisplay, ResidualDisplay
from bochner.estimators.displays.solution import PathDisplay, SpectrumDisplay
from bochner.estimators.displays.width import WidthDisplay
from bochner.estimators.fitting.merging import merge
from bochner.estimators.gaussian_process.regressor import GaussianProcessRegressor
from bochner.estimators.planned import Plan, plan
from bochner.estimators.ridge.classifier import KernelRidgeClassifier
from bochner.estimators.ridge.exact import ExactKernel
from bochner.estimators.ridge.interpolants import DoubleDescent, double_descent
from bochner.estimators.ridge.regressor import KernelRidge
from bochner.estimators.sgd.classifier import KernelSGDClassifier
from bochner.estimators.sgd.regressor import KernelSGDRegressor
from bochner.estimators.tuning.tune import tune
from bochner.estimators.tuning.tuned import Tuning
from bochner.estimators.unsupervised.cca import KernelCCA
from bochner.estimators.unsupervised.kmeans import KernelKMeans
from bochner.estimators.unsupervised.pca import KernelPCA
from bochner.estimators.unsupervised.transform import KernelFeatures

__all__ = [
    "SVC",
    "SVR",
    "CalibrationDisplay",
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
    "PathDisplay",
    "Plan",
    "ResidualDisplay",
    "SpectrumDisplay",
    "Tuning",
    "WidthDisplay",
    "double_descent",
    "merge",
    "plan",
    "tune",
]
