"""The classes that a model file may hold, listed by hand: a file can build nothing else."""

from collections.abc import Mapping
from types import MappingProxyType

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
)
from bochner.estimators.convex.calibration import Calibration
from bochner.estimators.fitting.named import LengthscaleSearch
from bochner.estimators.fitting.rows import RowSample
from bochner.estimators.gaussian_process.intervals import Conformal
from bochner.estimators.gaussian_process.posterior import Posterior
from bochner.estimators.gaussian_process.predictive import LeftOut, Predictive
from bochner.estimators.tuning.metric import LearnedMetric, Round
from bochner.estimators.tuning.tuned import Step, Tuning
from bochner.estimators.unsupervised.clustering import KernelCost
from bochner.features.arccosine import ReLU, ReLUMap, Sign, SignMap
from bochner.features.auto import Auto, Candidate, Choice
from bochner.features.columnwise import ColumnwiseMap
from bochner.features.combine import ModulatedMap, SketchedProduct
from bochner.features.compressed import Compressed, CompressedMap
from bochner.features.explicit import BasisMap, Explicit
from bochner.features.fourier import (
    Fourier,
    FourierComplexMap,
    FourierGridMap,
    FourierMap,
    FourierPhaseMap,
)
from bochner.features.gegenbauer import Gegenbauer, GegenbauerMap
from bochner.features.hermite import HermiteMap, HermiteMercer
from bochner.features.histogram import HistogramMap, HistogramSampling
from bochner.features.landmarks import Given, KMeans, Pivoted, RidgeLeverage, Uniform
from bochner.features.laplacian import LaplacianEigenfunctions, SineMap
from bochner.features.maclaurin import Maclaurin, MaclaurinMap
from bochner.features.map import (
    Concatenate,
    ConstantMap,
    LinearMap,
    OnInputs,
    ScaledMap,
    TensorProduct,
)
from bochner.features.mercer import MercerHarmonic, MercerHarmonicMap
from bochner.features.monomials import Expanded, MonomialMap
from bochner.features.neural import NeuralMap, NeuralSketch, NeuralTangentFeatures
from bochner.features.nystrom import Nystrom, NystromMap, Whitening
from bochner.features.placements import IID, QMC, Grid, Orthogonal
from bochner.features.polar import Polar
from bochner.features.polysketch import PolySketch, PolySketchMap
from bochner.features.positive import Positive, PositiveMap
from bochner.features.powers import Inputs, Weights
from bochner.features.projected import Projected, ProjectedMap
from bochner.features.radii import MonomialFunctions, RadialFunctions
from bochner.features.structured import Fastfood, Structured, StructuredMap
from bochner.features.tensorsketch import CountSketch, TensorSketch, TensorSketchMap
from bochner.features.treesteps import Entries, Exact, Hashed, Node, Padded, Pairs
from bochner.kernels import (
    NNGP,
    AdditiveChi2,
    Angular,
    ArcCosine,
    Bilinear,
    Brownian,
    BrownianBridge,
    Cauchy,
    Coefficients,
    Columns,
    Constant,
    Custom,
    DotExponential,
    DotProduct,
    Exp,
    Exponential,
    ExponentialPower,
    FourierSeries,
    Gaussian,
    GeneralizedZonal,
    Intersection,
    JensenShannon,
    Laplace,
    Linear,
    LogDerivatives,
    Mahalanobis,
    Matern,
    Modulated,
    Monomials,
    NeuralTangent,
    Normalised,
    Periodic,
    Polynomial,
    Polynomials,
    Power,
    Product,
    RationalQuadratic,
    Scaled,
    SkewedChi2,
    SpectralMixture,
    Sum,
    Warped,
    Zonal,
)
from bochner.kernels.series import Binomial, ExponentialSeries
from bochner.moments import Moments
from bochner.planning import Certificate
from bochner.planning.strategies import SgdTask, StrategyCost, StrategyPlan
from bochner.solvers.evidence import Evidence, EvidenceOutcome
from bochner.solvers.losses import (
    Absolute,
    EpsilonInsensitive,
    Gamma,
    Huber,
    Poisson,
    Quantile,
    Squared,
    SquaredEpsilonInsensitive,
)
from bochner.solvers.optimum import Convergence, NewtonHistory, Optimum
from bochner.solvers.penalty_path import HeldOutPath
from bochner.solvers.regression_losses import CustomLoss, Hubers
from bochner.solvers.sgd import Walk
from bochner.solvers.solution import Outcome, Path, Solution

__all__ = ["ESTIMATORS", "KNOWN"]

_KERNELS: tuple[type, ...] = (
    NNGP,
    AdditiveChi2,
    Angular,
    ArcCosine,
    Bilinear,
    Brownian,
    BrownianBridge,
    Binomial,
    Cauchy,
    Coefficients,
    Columns,
    Constant,
    Custom,
    LogDerivatives,
    DotExponential,
    DotProduct,
    Exp,
    Exponential,
    ExponentialPower,
    ExponentialSeries,
    FourierSeries,
    Gaussian,
    GeneralizedZonal,
    Intersection,
    JensenShannon,
    Laplace,
    Linear,
    Mahalanobis,
    Matern,
    Modulated,
    Monomials,
    NeuralTangent,
    Normalised,
    Periodic,
    Polynomial,
    Polynomials,
    Power,
    Product,
    RationalQuadratic,
    Scaled,
    SkewedChi2,
    SpectralMixture,
    Sum,
    Warped,
    Zonal,
)
_METHODS: tuple[type, ...] = (
    IID,
    QMC,
    Auto,
    Candidate,
    Choice,
    Compressed,
    ExactKernel,
    Expanded,
    Explicit,
    Fastfood,
    Fourier,
    Gegenbauer,
    Given,
    Grid,
    HermiteMercer,
    HistogramSampling,
    LaplacianEigenfunctions,
    KMeans,
    Maclaurin,
    MercerHarmonic,
    NeuralTangentFeatures,
    Nystrom,
    Orthogonal,
    Pivoted,
    Projected,
    PolySketch,
    Positive,
    ReLU,
    RidgeLeverage,
    Sign,
    Structured,
    TensorSketch,
    Uniform,
)
_MAPS: tuple[type, ...] = (
    BasisMap,
    ColumnwiseMap,
    CompressedMap,
    HermiteMap,
    ProjectedMap,
    SineMap,
    Concatenate,
    ConstantMap,
    CountSketch,
    Entries,
    Exact,
    FourierComplexMap,
    FourierGridMap,
    FourierMap,
    FourierPhaseMap,
    GegenbauerMap,
    Hashed,
    HistogramMap,
    Inputs,
    LinearMap,
    MaclaurinMap,
    MercerHarmonicMap,
    ModulatedMap,
    MonomialFunctions,
    MonomialMap,
    NeuralMap,
    NeuralSketch,
    Node,
    NystromMap,
    OnInputs,
    Padded,
    Pairs,
    Polar,
    PolySketchMap,
    PositiveMap,
    RadialFunctions,
    ReLUMap,
    ScaledMap,
    SignMap,
    SketchedProduct,
    StructuredMap,
    TensorProduct,
    TensorSketchMap,
    Weights,
    Whitening,
)
_LOSSES: tuple[type, ...] = (
    Absolute,
    CustomLoss,
    EpsilonInsensitive,
    Gamma,
    Huber,
    Hubers,
    Poisson,
    Quantile,
    Squared,
    SquaredEpsilonInsensitive,
)
_FITTED: tuple[type, ...] = (
    Calibration,
    Certificate,
    Conformal,
    Convergence,
    Evidence,
    EvidenceOutcome,
    HeldOutPath,
    LeftOut,
    KernelCost,
    LearnedMetric,
    LengthscaleSearch,
    Moments,
    NewtonHistory,
    Optimum,
    Outcome,
    Path,
    Posterior,
    Predictive,
    Round,
    RowSample,
    Schema,
    SgdTask,
    Solution,
    Step,
    StrategyCost,
    StrategyPlan,
    Tuning,
    Walk,
)


def _by_name(*classes: type) -> Mapping[str, type]:
    return MappingProxyType({cls.__name__: cls for cls in classes})


#: Built from parameters, then given their fitted state.
ESTIMATORS = _by_name(
    GaussianProcessRegressor,
    KernelCCA,
    KernelFeatures,
    KernelKMeans,
    KernelPCA,
    KernelRidge,
    KernelRidgeClassifier,
    LogisticRegression,
    SVC,
    KernelSGDClassifier,
    KernelSGDRegressor,
    KernelRegressor,
    OneClassSVM,
    SVR,
)

#: Built from their fields.
KNOWN = _by_name(*_KERNELS, *_METHODS, *_MAPS, *_LOSSES, *_FITTED)
