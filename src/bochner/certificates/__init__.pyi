"""The names of bochner.certificates, each once, with the module that defines it."""

from bochner.certificates.bounds.table import BoundComparison as BoundComparison
from bochner.certificates.bounds.table import compare_bounds as compare_bounds
from bochner.certificates.bounds.tails import Bound as Bound
from bochner.certificates.bounds.tails import bernstein_bound as bernstein_bound
from bochner.certificates.bounds.tails import directions_bound as directions_bound
from bochner.certificates.bounds.tails import hoeffding_bound as hoeffding_bound
from bochner.certificates.bounds.tails import leverage_bound as leverage_bound
from bochner.certificates.bounds.tails import operator_norm_bound as operator_norm_bound
from bochner.certificates.bounds.tails import projection_cost_bound as projection_cost_bound
from bochner.certificates.bounds.tails import rahimi_recht_bound as rahimi_recht_bound
from bochner.certificates.bounds.tails import spectral_bound as spectral_bound
from bochner.certificates.bounds.tails import tensor_sketch_bound as tensor_sketch_bound
from bochner.certificates.bounds.zonal import ball_bound as ball_bound
from bochner.certificates.bounds.zonal import zonal_bound as zonal_bound
from bochner.certificates.certificate import Certificate as Certificate
from bochner.certificates.certificate import certify as certify
from bochner.certificates.checks import Check as Check
from bochner.certificates.checks import CheckedLaw as CheckedLaw
from bochner.certificates.checks import check_features as check_features
from bochner.certificates.checks import check_kernel as check_kernel
from bochner.certificates.comparison import Compared as Compared
from bochner.certificates.comparison import Comparison as Comparison
from bochner.certificates.comparison import compare as compare
from bochner.certificates.pointwise import ApproximationResidual as ApproximationResidual
from bochner.certificates.pointwise import approximation_residual as approximation_residual
from bochner.certificates.pointwise import effective_dimension as effective_dimension
from bochner.certificates.pointwise import intrinsic_dimension as intrinsic_dimension
from bochner.certificates.pointwise import leverage_scores as leverage_scores
from bochner.certificates.risks import CostCertificate as CostCertificate
from bochner.certificates.risks import Risk as Risk
from bochner.certificates.risks import certify_costs as certify_costs
from bochner.certificates.risks import risk as risk

__all__: list[str]  # noqa: PYI035  the names above
