"""Row 3: what to expect of a fit, and how far its features are from the kernel."""

from bochner.planning.bounds import Bernstein, Hoeffding, RahimiRecht, covering_constant
from bochner.planning.bounds_kind import Bound
from bochner.planning.bounds_matrix import OperatorNorm, ProjectionCost, Spectral
from bochner.planning.bounds_table import BoundComparison, ComparedBound, compare_bounds
from bochner.planning.bounds_zonal import ZonalSpectral, direction_leverage
from bochner.planning.certificate import Certificate, certify
from bochner.planning.comparison import Compared, Comparison, compare
from bochner.planning.costs import CostCertificate, certify_costs
from bochner.planning.excess import Risk, risk
from bochner.planning.feature_laws import FeatureCheck, FeatureLaw, check_features
from bochner.planning.laws import Flaw, KernelCheck, check_kernel
from bochner.planning.leverage import effective_dimension, intrinsic_dimension, leverage_scores
from bochner.planning.residuals import Trust, trust
from bochner.planning.split_half import SplitHalf, split_half_error
from bochner.planning.strategies import SgdTask, StrategyCost, StrategyPlan

__all__ = [
    "Bernstein",
    "Bound",
    "BoundComparison",
    "Certificate",
    "Compared",
    "ComparedBound",
    "Comparison",
    "CostCertificate",
    "FeatureCheck",
    "FeatureLaw",
    "Flaw",
    "Hoeffding",
    "KernelCheck",
    "OperatorNorm",
    "ProjectionCost",
    "RahimiRecht",
    "Risk",
    "SgdTask",
    "Spectral",
    "SplitHalf",
    "StrategyCost",
    "StrategyPlan",
    "Trust",
    "ZonalSpectral",
    "certify",
    "certify_costs",
    "check_features",
    "check_kernel",
    "compare",
    "compare_bounds",
    "covering_constant",
    "direction_leverage",
    "effective_dimension",
    "intrinsic_dimension",
    "leverage_scores",
    "risk",
    "split_half_error",
    "trust",
]
