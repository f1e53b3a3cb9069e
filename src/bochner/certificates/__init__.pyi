"""The names of bochner.certificates, each once, with the module that defines it."""

from bochner.certificates.bounds import Bound as Bound
from bochner.certificates.bounds import ball_bound as ball_bound
from bochner.certificates.bounds import features_bound as features_bound
from bochner.certificates.bounds import fourier_bound as fourier_bound
from bochner.certificates.bounds import leverage_bound as leverage_bound
from bochner.certificates.bounds import zonal_bound as zonal_bound
from bochner.certificates.certificate import Certificate as Certificate
from bochner.certificates.certificate import certify as certify
from bochner.certificates.checks import Check as Check
from bochner.certificates.checks import check_features as check_features
from bochner.certificates.checks import check_kernel as check_kernel
from bochner.certificates.comparison import BoundComparison as BoundComparison
from bochner.certificates.comparison import Comparison as Comparison
from bochner.certificates.comparison import compare as compare
from bochner.certificates.comparison import compare_bounds as compare_bounds
from bochner.certificates.pencil import effective_dimension as effective_dimension
from bochner.certificates.pencil import leverage_scores as leverage_scores
from bochner.certificates.risks import CostCertificate as CostCertificate
from bochner.certificates.risks import Risk as Risk
from bochner.certificates.risks import certify_costs as certify_costs
from bochner.certificates.risks import risk as risk

__all__: list[str]  # noqa: PYI035  the names above
