"""The public names of bochner, each once, with the module that defines it."""

from typing import Any

from bochner import certificates as certificates
from bochner import engines as engines
from bochner import errors as errors
from bochner import export as export
from bochner import kernels as kernels
from bochner import landmarks as landmarks
from bochner.certificates.certificate import Certificate as Certificate
from bochner.certificates.certificate import certify as certify
from bochner.certificates.checks import check_features as check_features
from bochner.certificates.checks import check_kernel as check_kernel
from bochner.certificates.comparison import Comparison as Comparison
from bochner.certificates.comparison import compare as compare
from bochner.certificates.comparison import compare_bounds as compare_bounds
from bochner.certificates.risks import CostCertificate as CostCertificate
from bochner.certificates.risks import certify_costs as certify_costs
from bochner.certificates.risks import risk as risk
from bochner.data.blocks import Blocks as Blocks
from bochner.data.schema import Schema as Schema
from bochner.data.sources import Block as Block
from bochner.features import IID as IID
from bochner.features import QMC as QMC
from bochner.features import Auto as Auto
from bochner.features import Compressed as Compressed
from bochner.features import Explicit as Explicit
from bochner.features import Fastfood as Fastfood
from bochner.features import FeatureMap as FeatureMap
from bochner.features import Fourier as Fourier
from bochner.features import FourierGrid as FourierGrid
from bochner.features import Gegenbauer as Gegenbauer
from bochner.features import Grid as Grid
from bochner.features import HermiteMercer as HermiteMercer
from bochner.features import HistogramSampling as HistogramSampling
from bochner.features import LaplacianEigenfunctions as LaplacianEigenfunctions
from bochner.features import LeverageFourier as LeverageFourier
from bochner.features import Maclaurin as Maclaurin
from bochner.features import MercerHarmonic as MercerHarmonic
from bochner.features import Method as Method
from bochner.features import NeuralTangentFeatures as NeuralTangentFeatures
from bochner.features import Nystrom as Nystrom
from bochner.features import Orthogonal as Orthogonal
from bochner.features import PolySketch as PolySketch
from bochner.features import Positive as Positive
from bochner.features import Projected as Projected
from bochner.features import ReLU as ReLU
from bochner.features import Sign as Sign
from bochner.features import SphericalHarmonics as SphericalHarmonics
from bochner.features import Structured as Structured
from bochner.features import TensorSketch as TensorSketch
from bochner.features import draw as draw
from bochner.models.convex.classification import SVC as SVC
from bochner.models.convex.classification import LogisticRegression as LogisticRegression
from bochner.models.convex.classification import OneClassSVM as OneClassSVM
from bochner.models.convex.regression import SVR as SVR
from bochner.models.convex.regression import KernelRegressor as KernelRegressor
from bochner.models.displays import CalibrationDisplay as CalibrationDisplay
from bochner.models.displays import MapDisplay as MapDisplay
from bochner.models.displays import PathDisplay as PathDisplay
from bochner.models.displays import SpectrumDisplay as SpectrumDisplay
from bochner.models.functions import merge as merge
from bochner.models.functions import tune as tune
from bochner.models.gaussian_process.neighbours import NearestNeighbours as NearestNeighbours
from bochner.models.gaussian_process.observations import BlockAverages as BlockAverages
from bochner.models.gaussian_process.observations import Derivatives as Derivatives
from bochner.models.gaussian_process.regressor import (
    GaussianProcessRegressor as GaussianProcessRegressor,
)
from bochner.models.inspection import ContributionDisplay as ContributionDisplay
from bochner.models.inspection import ImportanceDisplay as ImportanceDisplay
from bochner.models.inspection import column_importance as column_importance
from bochner.models.inspection import contributions as contributions
from bochner.models.kriging import NormalScores as NormalScores
from bochner.models.kriging import TrendedProcess as TrendedProcess
from bochner.models.kriging import Variogram as Variogram
from bochner.models.kriging import VariogramModel as VariogramModel
from bochner.models.kriging import cell_averages as cell_averages
from bochner.models.kriging import normal_scores as normal_scores
from bochner.models.kriging import predictive_scorer as predictive_scorer
from bochner.models.kriging import universal_kriging as universal_kriging
from bochner.models.kriging import variogram as variogram
from bochner.models.representations.representation import ExactKernel as ExactKernel
from bochner.models.representations.representation import LocalKernel as LocalKernel
from bochner.models.ridge.double_descent import DoubleDescent as DoubleDescent
from bochner.models.ridge.double_descent import double_descent as double_descent
from bochner.models.ridge.estimators import KernelRidge as KernelRidge
from bochner.models.ridge.estimators import KernelRidgeClassifier as KernelRidgeClassifier
from bochner.models.sgd.fit import KernelSGDClassifier as KernelSGDClassifier
from bochner.models.sgd.fit import KernelSGDRegressor as KernelSGDRegressor
from bochner.models.unsupervised.cca import KernelCCA as KernelCCA
from bochner.models.unsupervised.kmeans import KernelKMeans as KernelKMeans
from bochner.models.unsupervised.transformers import KernelFeatures as KernelFeatures
from bochner.models.unsupervised.transformers import KernelPCA as KernelPCA
from bochner.persist.files import load as load
from bochner.persist.files import save as save
from bochner.planner.plans import Plan as Plan
from bochner.planner.plans import plan as plan
from bochner.report.model import ModelReport as ModelReport
from bochner.report.model import report_model as report_model
from bochner.selection.record import Tuning as Tuning
from bochner.selection.width import required_features as required_features
from bochner.solvers.convex.losses import CustomLoss as CustomLoss
from bochner.solvers.convex.losses import Huber as Huber
from bochner.solvers.convex.losses import JointLoss as JointLoss
from bochner.sums.moments import Moments as Moments

__all__: list[str]  # noqa: PYI035  the names above
__version__: str
_native: Any
