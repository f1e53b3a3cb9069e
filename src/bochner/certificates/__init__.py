"""Distance of features from the kernel, measured on data and bounded by theory."""

from typing import Any

from bochner._core.names import unknown
from bochner.certificates.bounds.table import BoundComparison, ComparedBound, compare_bounds
from bochner.certificates.bounds.tails import (
    Bound,
    Chebyshev,
    Tail,
    Worst,
    bernstein_bound,
    covering_constant,
    directions_bound,
    hoeffding_bound,
    leverage_bound,
    operator_norm_bound,
    projection_cost_bound,
    rahimi_recht_bound,
    spectral_bound,
    tensor_sketch_bound,
)
from bochner.certificates.bounds.zonal import (
    BallBound,
    GegenbauerSizes,
    ZonalBound,
    ball_bound,
    direction_leverage,
    zonal_bound,
)
from bochner.certificates.certificate import Certificate, certify
from bochner.certificates.checks import Check, CheckedLaw, check_features, check_kernel
from bochner.certificates.comparison import Compared, Comparison, compare
from bochner.certificates.pointwise import (
    ApproximationResidual,
    approximation_residual,
    effective_dimension,
    intrinsic_dimension,
    leverage_scores,
)
from bochner.certificates.risk import CostCertificate, Risk, certify_costs, risk

# fmt: off
__all__ = [
    "ApproximationResidual", "BallBound", "Bound", "BoundComparison", "Certificate", "Chebyshev",
    "Check", "CheckedLaw", "Compared", "ComparedBound", "Comparison", "CostCertificate",
    "GegenbauerSizes", "Risk", "Tail", "Worst", "ZonalBound", "approximation_residual",
    "ball_bound", "bernstein_bound", "certify", "certify_costs", "check_features", "check_kernel",
    "compare", "compare_bounds", "covering_constant", "direction_leverage", "directions_bound",
    "effective_dimension", "hoeffding_bound", "intrinsic_dimension", "leverage_bound",
    "leverage_scores", "operator_norm_bound", "projection_cost_bound", "rahimi_recht_bound", "risk",
    "spectral_bound", "tensor_sketch_bound", "zonal_bound",
]
# fmt: on


def __getattr__(name: str) -> Any:
    raise unknown(__name__, name, __all__)
