"""Row 3a: how far features are from the kernel, on data and by theory."""

from bochner.certificates.bounds.kind import Bound
from bochner.certificates.bounds.matrix import OperatorNorm, ProjectionCost, Spectral
from bochner.certificates.bounds.pairwise import (
    Bernstein,
    Hoeffding,
    RahimiRecht,
    covering_constant,
)
from bochner.certificates.bounds.table import BoundComparison, ComparedBound, compare_bounds
from bochner.certificates.bounds.zonal import ZonalSpectral, direction_leverage
from bochner.certificates.certificate import Certificate, certify
from bochner.certificates.check_features import FeatureCheck, FeatureLaw, check_features
from bochner.certificates.check_kernel import Flaw, KernelCheck, check_kernel
from bochner.certificates.comparison import Compared, Comparison, compare
from bochner.certificates.costs import CostCertificate, certify_costs
from bochner.certificates.leverage import effective_dimension, intrinsic_dimension, leverage_scores
from bochner.certificates.pointwise import SplitHalf, Trust, split_half_error, trust
from bochner.certificates.risk import Risk, risk

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
    "Spectral",
    "SplitHalf",
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
