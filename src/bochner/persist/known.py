"""The classes that a model file may hold, under the names it has for them: it builds nothing else.

The values that the packages make public, and by hand the parts of which fitted learners are made.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from inspect import isabstract
from types import MappingProxyType, ModuleType
from typing import Any

from bochner import features, kernels, landmarks
from bochner.certificates.certificate import Certificate
from bochner.data import encoders
from bochner.data.sample import RowSample
from bochner.data.schema import Inputs, Schema
from bochner.features import auto, composed, projections
from bochner.features.fourier import fourier, histogram, leverage, placements
from bochner.features.fourier import grid as equispaced
from bochner.features.mercer import harmonic, hermite, products, radial
from bochner.features.mercer.sphere import SphericalMap
from bochner.features.nystrom import nystrom
from bochner.features.random import gegenbauer, networks, positive
from bochner.features.sketch import maclaurin, polysketch, powers, tensorsketch
from bochner.kernels import dotproduct
from bochner.models import error_law, grid
from bochner.models._calibration import Calibration
from bochner.models._kernel_sum import KernelSum
from bochner.models.convex import classifiers, regressors
from bochner.models.convex.exact import ExactConvexFit
from bochner.models.convex.fit import ConvexFit
from bochner.models.convex.one_class import OneClassSVM
from bochner.models.convex.pairs import ClassPairs
from bochner.models.gaussian_process import exact as exact_process
from bochner.models.gaussian_process import fit as process
from bochner.models.gaussian_process import grid as grid_process
from bochner.models.gaussian_process import intervals, neighbourhoods, neighbours, posterior
from bochner.models.gaussian_process import observations as told
from bochner.models.gaussian_process.observed import ObservedProcessFit
from bochner.models.gaussian_process.regressor import GaussianProcessRegressor
from bochner.models.ridge import estimators, exact, fit, local, sums, wide
from bochner.models.ridge import grid as grid_ridge
from bochner.models.sgd import estimators as learners
from bochner.models.sgd import fit as descent
from bochner.models.sgd import steps, strategies
from bochner.models.unsupervised import cca, kmeans, pca, transform
from bochner.selection import record, tree
from bochner.selection.chosen import Chosen, FeatureSpec
from bochner.selection.columns import LevelSums, SeenCells
from bochner.solvers import correlation, lloyd, sgd
from bochner.solvers.convex import class_losses, joint_losses, losses, optimum, penalty_path
from bochner.solvers.ridge import evidence, solution
from bochner.sums.fourier import WaveSums
from bochner.sums.moments import Moments


def _public(package: ModuleType) -> Iterator[type]:
    """Give the final classes that a package lists."""
    named = (getattr(package, name) for name in package.__all__)
    return (cls for cls in named if isinstance(cls, type) and not isabstract(cls))


def _by_name(classes: Iterable[type]) -> dict[str, type]:
    return {cls.__name__: cls for cls in classes}


#: Classes that are not public have a name of their own in files, which stays when code moves.
_CHOICES: dict[str, type] = {
    "binomial-series": dotproduct.Binomial,
    "exponential-series": dotproduct.ExponentialSeries,
    "exact-kernel": exact.ExactKernel,
    "local-kernel": local.LocalKernel,
    "nearest-neighbours": neighbours.NearestNeighbours,
    "nearest-neighbours-choice": neighbours.NeighbourChoice,
    "monomial-expansion": powers.Expanded,
    "method-candidate": auto.Candidate,
    "method-choice": auto.Choice,
}
#: Maps, and the parts that they are made of.
_MAPS: dict[str, type] = {
    "relu-map": networks.ReLUMap,
    "sign-map": networks.SignMap,
    "columnwise-map": hermite.ColumnwiseMap,
    "modulated-map": composed.ModulatedMap,
    "sketched-product-map": composed.SketchedProduct,
    "compressed-map": projections.CompressedMap,
    "basis-map": products.BasisMap,
    "fourier-complex-map": fourier.FourierComplexMap,
    "equispaced-map": equispaced.EquispacedMap,
    "fourier-grid-map": fourier.FourierGridMap,
    "leverage-fourier-map": leverage.LeverageFourierMap,
    "fourier-map": fourier.FourierMap,
    "fourier-phase-map": fourier.FourierPhaseMap,
    "gegenbauer-map": gegenbauer.GegenbauerMap,
    "hermite-map": hermite.HermiteMap,
    "histogram-map": histogram.HistogramMap,
    "eigenfunction-map": products.EigenfunctionMap,
    "sine-map": products.SineMap,
    "maclaurin-map": maclaurin.MaclaurinMap,
    "concatenated-map": composed.Concatenate,
    "constant-map": composed.ConstantMap,
    "linear-map": composed.LinearMap,
    "map-on-inputs": composed.OnInputs,
    "scaled-map": composed.ScaledMap,
    "tensor-product-map": composed.TensorProduct,
    "windows-map": composed.WindowsMap,
    "mercer-harmonic-map": harmonic.MercerHarmonicMap,
    "spherical-map": SphericalMap,
    "monomial-map": powers.MonomialMap,
    "neural-map": networks.NeuralMap,
    "nystrom-map": nystrom.NystromMap,
    "nystrom-whitening": nystrom.Whitening,
    "polar-rows": radial.Polar,
    "poly-sketch-map": polysketch.PolySketchMap,
    "positive-map": positive.PositiveMap,
    "power-inputs": powers.UnitRows,
    "power-weights": powers.Weights,
    "projected-map": projections.ProjectedMap,
    "monomial-functions": radial.MonomialFunctions,
    "own-functions": radial.OwnFunctions,
    "radial-functions": radial.RadialFunctions,
    "structured-map": placements.StructuredMap,
    "count-sketch": tensorsketch.CountSketch,
    "tensor-sketch-map": tensorsketch.TensorSketchMap,
    "step-entries": polysketch.Entries,
    "step-exact": polysketch.Exact,
    "step-hashed": polysketch.Hashed,
    "step-node": polysketch.Node,
    "step-padded": polysketch.Padded,
    "step-pairs": polysketch.Pairs,
}
_LOSSES: dict[str, type] = {
    "hinge": class_losses.Hinge,
    "logistic": class_losses.Logistic,
    "multinomial": class_losses.Multinomial,
    "squared-hinge": class_losses.SquaredHinge,
    "absolute-loss": losses.Absolute,
    "below-zero": losses.BelowZero,
    "epsilon-insensitive-loss": losses.EpsilonInsensitive,
    "gamma-loss": losses.GammaDeviance,
    "huber-loss": losses.Huber,
    "poisson-loss": losses.PoissonDeviance,
    "quantile-loss": losses.Quantile,
    "squared-loss": losses.Squared,
    "squared-epsilon-insensitive-loss": losses.SquaredEpsilonInsensitive,
    "custom-loss": losses.CustomLoss,
    "joint-loss": joint_losses.JointLoss,
    "shares-loss": joint_losses.MultinomialShares,
}
_FITTED: dict[str, type] = {
    "probability-calibration": Calibration,
    "certificate": Certificate,
    "convex-fit": ConvexFit,
    "fit-inputs": Inputs,
    "chosen": Chosen,
    "feature-spec": FeatureSpec,
    "exact-fit": exact.ExactFit,
    "local-fit": local.LocalFit,
    "row-tree": tree.RowTree,
    "exact-convex-fit": ExactConvexFit,
    "pairs-of-classes": ClassPairs,
    "ridge-fit": fit.RidgeFit,
    "ridge-spec": fit.RidgeSpec,
    "gaussian-process-fit": process.GaussianProcessFit,
    "observed-process-fit": ObservedProcessFit,
    "observed-derivatives": told.Derivatives,
    "observed-block-averages": told.BlockAverages,
    "exact-process-fit": exact_process.ExactProcessFit,
    "gaussian-process-spec": process.GaussianProcessSpec,
    "summed": sums.Summed,
    "grid-ridge-fit": grid_ridge.GridFit,
    "wide-ridge-fit": wide.WideFit,
    "wide-sums": wide.WideSums,
    "grid-process-fit": grid_process.GridProcessFit,
    "neighbour-process-fit": neighbours.NeighbourProcessFit,
    "neighbour-rows": neighbourhoods.KeptRows,
    "neighbours-chosen": neighbours.ChosenNeighbours,
    "summed-waves": grid.SummedWaves,
    "wave-sums": WaveSums,
    "cca-fit": cca.CcaFit,
    "cca-spec": cca.CcaSpec,
    "cca-directions": correlation.Directions,
    "features-fit": transform.FeaturesFit,
    "k-means-fit": kmeans.KMeansFit,
    "k-means-spec": kmeans.KMeansSpec,
    "k-means-clusters": lloyd.Clusters,
    "pca-fit": pca.PcaFit,
    "pca-spec": pca.PcaSpec,
    "pca-sums": pca.PcaSums,
    "moments": Moments,
    "row-sample": RowSample,
    "seen-cells": SeenCells,
    "level-sums": LevelSums,
    "schema": Schema,
    "number-column": encoders.NumberColumn,
    "one-hot-column": encoders.OneHot,
    "ordered-column": encoders.Ordered,
    "target-means-column": encoders.TargetMeans,
    "time-column": encoders.TimeColumn,
    "left-out-column": encoders.DroppedColumn,
    "column-curves": record.Curves,
    "cross-conformal": intervals.CrossConformal,
    "cross-conformal-fold": intervals.Fold,
    "fitted-fold": intervals.FittedFold,
    "error-law": error_law.ErrorLaw,
    "error-law-of-target": error_law.TargetLaw,
    "left-out-rows": error_law.LeftOutRows,
    "error-inputs": error_law.ErrorInputs,
    "error-distribution": error_law.Distribution,
    "kernel-sum": KernelSum,
    "evidence": evidence.Evidence,
    "evidence-outcome": evidence.EvidenceOutcome,
    "conformal": intervals.Conformal,
    "learned-metric": record.LearnedMetric,
    "metric-round": record.MetricRound,
    "active-rows": optimum.ActiveRows,
    "common-factor": optimum.CommonFactor,
    "libsvm": optimum.Libsvm,
    "conjugate-gradients": optimum.ConjugateGradients,
    "convergence": optimum.Convergence,
    "dense": optimum.Dense,
    "newton": optimum.Newton,
    "newton-history": optimum.NewtonHistory,
    "convex-optimum": optimum.Optimum,
    "smoothed": optimum.Smoothed,
    "held-out-path": penalty_path.HeldOutPath,
    "posterior": posterior.Posterior,
    "left-out-predictions": posterior.LeftOut,
    "predictive": posterior.Predictive,
    "sgd-walk": sgd.Walk,
    "sgd-fit": descent.SgdFit,
    "sgd-features": steps.FeatureStrategy,
    "sgd-rows": steps.KernelStrategy,
    "sgd-chosen": strategies.SgdChosen,
    "sgd-spec": strategies.SgdSpec,
    "ridge-outcome": solution.Outcome,
    "ridge-path": solution.Path,
    "ridge-solution": solution.Solution,
    "sgd-task": strategies.SgdTask,
    "strategy-cost": strategies.StrategyCost,
    "strategy-plan": strategies.StrategyPlan,
    "kernel-comparison": record.KernelComparison,
    "tuning-step": record.TuningStep,
    "tuning": record.Tuning,
}

#: Fields that classes no longer have, and the values that mean what the class does now.
REMOVED: dict[str, dict[str, tuple[Any, ...]]] = {
    "certificate": {"how": ("sample",)},
    "Gegenbauer": {
        "directions": ("iid",),
        "allocation": ("equal",),
        "parity": (False,),
        "alternating": (False,),
    },
    "NeuralTangentFeatures": {"split": (None, True)},
    "mercer-harmonic-map": {"nugget": ()},
    "projected-map": {"distortion": ()},
    "LeverageFourier": {"density": ("auto", "empirical")},
    "gegenbauer-map": {
        "counts": (),
        "shared": (True,),
        "parity": (False,),
        "alternating": (False,),
    },
}

#: Names of classes that bochner no longer has.
GONE = ("neural-sketch",)

MAPS: tuple[type, ...] = tuple(_MAPS.values())
#: Classes whose fields must have the shapes that annotations say: code indexes one by another.
SHAPED: tuple[type, ...] = (*MAPS, Moments, RowSample, neighbourhoods.KeptRows)
#: By their names in files: built from parameters, then given their fitted state; built from fields.
ESTIMATORS = _by_name(
    (
        classifiers.LogisticRegression,
        classifiers.SVC,
        OneClassSVM,
        regressors.KernelRegressor,
        regressors.SVR,
        GaussianProcessRegressor,
        estimators.KernelRidge,
        estimators.KernelRidgeClassifier,
        learners.KernelSGDClassifier,
        learners.KernelSGDRegressor,
        cca.KernelCCA,
        kmeans.KernelKMeans,
        pca.KernelPCA,
        transform.KernelFeatures,
    )
)
KNOWN: Mapping[str, type] = MappingProxyType(
    _by_name(filter(is_dataclass, (*_public(kernels), *_public(features), *_public(landmarks))))
    | _CHOICES
    | _MAPS
    | _LOSSES
    | _FITTED
)
#: The name in files of each class.
NAMES: Mapping[type, str] = MappingProxyType(
    {cls: name for name, cls in (*ESTIMATORS.items(), *KNOWN.items())}
)
