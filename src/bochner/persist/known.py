"""The classes that a model file may hold: a file can build nothing else.

The values that the packages make public, and by hand the parts of which fitted learners are made.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from inspect import isabstract
from types import MappingProxyType, ModuleType

from sklearn.base import BaseEstimator

from bochner import features, kernels, landmarks, models
from bochner.certificates.certificate import Certificate
from bochner.data.sample import RowSample
from bochner.data.schema import Schema
from bochner.features import auto, projections
from bochner.features import map as maps
from bochner.features.fourier import fourier, histogram, placements
from bochner.features.mercer import harmonic, hermite, products, radial
from bochner.features.nystrom import nystrom
from bochner.features.random import gegenbauer, networks, positive
from bochner.features.sketch import maclaurin, polysketch, powers, tensorsketch
from bochner.kernels import dotproduct
from bochner.models import _base, _fitting
from bochner.models.convex.calibration import Calibration
from bochner.models.convex.fit import ConvexFit
from bochner.models.gaussian_process import (
    cross,
    intervals,
    posterior,
    predictive,
)
from bochner.models.gaussian_process import fit as process
from bochner.models.ridge import exact, fit, sums
from bochner.models.sgd import strategies
from bochner.models.unsupervised.clustering import KernelCost
from bochner.selection import metric, record
from bochner.solvers import sgd
from bochner.solvers.convex import class_losses, losses, optimum, penalty_path
from bochner.solvers.ridge import evidence, solution
from bochner.sums.moments import Moments


def _public(package: ModuleType) -> Iterator[type]:
    """Give the final classes that a package lists."""
    named = (getattr(package, name) for name in package.__all__)
    return (cls for cls in named if isinstance(cls, type) and not isabstract(cls))


def _by_name(classes: Iterable[type]) -> Mapping[str, type]:
    return MappingProxyType({cls.__name__: cls for cls in classes})


_CHOICES: tuple[type, ...] = (
    dotproduct.Binomial,
    dotproduct.ExponentialSeries,
    models.ExactKernel,
    powers.Expanded,
    auto.Candidate,
    auto.Choice,
)
#: Maps, and the parts that they are made of.
MAPS: tuple[type, ...] = (
    networks.ReLUMap,
    networks.SignMap,
    hermite.ColumnwiseMap,
    maps.ModulatedMap,
    maps.SketchedProduct,
    projections.CompressedMap,
    products.BasisMap,
    fourier.FourierComplexMap,
    fourier.FourierGridMap,
    fourier.FourierMap,
    fourier.FourierPhaseMap,
    gegenbauer.GegenbauerMap,
    hermite.HermiteMap,
    histogram.HistogramMap,
    products.SineMap,
    maclaurin.MaclaurinMap,
    maps.Concatenate,
    maps.ConstantMap,
    maps.LinearMap,
    maps.OnInputs,
    maps.ScaledMap,
    maps.TensorProduct,
    harmonic.MercerHarmonicMap,
    powers.MonomialMap,
    networks.NeuralMap,
    networks.NeuralSketch,
    nystrom.NystromMap,
    nystrom.Whitening,
    radial.Polar,
    polysketch.PolySketchMap,
    positive.PositiveMap,
    powers.Inputs,
    powers.Weights,
    projections.ProjectedMap,
    radial.MonomialFunctions,
    radial.RadialFunctions,
    placements.StructuredMap,
    tensorsketch.CountSketch,
    tensorsketch.TensorSketchMap,
    polysketch.Entries,
    polysketch.Exact,
    polysketch.Hashed,
    polysketch.Node,
    polysketch.Padded,
    polysketch.Pairs,
)
#: Classes whose fields must have the shapes that annotations say: code indexes one by another.
SHAPED: tuple[type, ...] = (*MAPS, Moments, RowSample)

_LOSSES: tuple[type, ...] = (
    class_losses.CrammerSinger,
    class_losses.Hinge,
    class_losses.Logistic,
    class_losses.Multinomial,
    class_losses.SquaredHinge,
    losses.Absolute,
    losses.BelowZero,
    losses.EpsilonInsensitive,
    losses.Gamma,
    losses.Huber,
    losses.Poisson,
    losses.Quantile,
    losses.Squared,
    losses.SquaredEpsilonInsensitive,
    losses.CustomLoss,
)
_FITTED: tuple[type, ...] = (
    Calibration,
    Certificate,
    ConvexFit,
    _base.Inputs,
    _fitting.Chosen,
    _fitting.FeatureSpec,
    exact.ExactFit,
    fit.RidgeFit,
    fit.RidgeSpec,
    process.GaussianProcessFit,
    process.GaussianProcessSpec,
    sums.Summed,
    KernelCost,
    Moments,
    RowSample,
    Schema,
    cross.CrossConformal,
    cross.Fold,
    evidence.Evidence,
    evidence.EvidenceOutcome,
    intervals.Conformal,
    metric.LearnedMetric,
    metric.MetricRound,
    optimum.ConjugateGradients,
    optimum.Convergence,
    optimum.Dense,
    optimum.Newton,
    optimum.NewtonHistory,
    optimum.Optimum,
    optimum.Smoothed,
    penalty_path.HeldOutPath,
    posterior.Posterior,
    predictive.LeftOut,
    predictive.Predictive,
    sgd.Walk,
    solution.Outcome,
    solution.Path,
    solution.Solution,
    strategies.SgdTask,
    strategies.StrategyCost,
    strategies.StrategyPlan,
    record.KernelComparison,
    record.TuningStep,
    record.Tuning,
)

#: Built from parameters, then given their fitted state.
ESTIMATORS = _by_name(cls for cls in _public(models) if issubclass(cls, BaseEstimator))

#: Built from their fields.
KNOWN = _by_name(
    [
        *filter(is_dataclass, (*_public(kernels), *_public(features), *_public(landmarks))),
        *_CHOICES,
        *MAPS,
        *_LOSSES,
        *_FITTED,
    ]
)
