"""Row 3: learners with scikit-learn's interface."""

from bochner.estimators.cca import KernelCCA
from bochner.estimators.display import PathDisplay, SpectrumDisplay
from bochner.estimators.errors_display import CalibrationDisplay, ResidualDisplay
from bochner.estimators.exact import ExactKernel
from bochner.estimators.gaussian_process import GaussianProcessRegressor
from bochner.estimators.interpolants import DoubleDescent, double_descent
from bochner.estimators.kmeans import KernelKMeans
from bochner.estimators.logistic import LogisticRegression
from bochner.estimators.merging import merge
from bochner.estimators.one_class import OneClassSVM
from bochner.estimators.pca import KernelPCA
from bochner.estimators.planned import Plan, plan
from bochner.estimators.regressor import KernelRegressor
from bochner.estimators.ridge import KernelRidge
from bochner.estimators.ridge_classifier import KernelRidgeClassifier
from bochner.estimators.sgd import KernelSGDClassifier
from bochner.estimators.sgd_regressor import KernelSGDRegressor
from bochner.estimators.svc import SVC
from bochner.estimators.svr import SVR
from bochner.estimators.transform import KernelFeatures
from bochner.estimators.tuned import Tuning
from bochner.estimators.tuning import tune
from bochner.estimators.width_display import WidthDisplay

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
