"""Row 3a: how far features are from the kernel, on data and by theory."""

from typing import Any

from bochner._core.names import unknown
from bochner.certificates.bounds.matrix import (
    DirectionsNorm,
    OperatorNorm,
    ProjectionCost,
    Spectral,
)
from bochner.certificates.bounds.pairwise import (
    Bernstein,
    Bound,
    Hoeffding,
    RahimiRecht,
    covering_constant,
)
from bochner.certificates.bounds.sketches import SketchNorm, TreeNorm
from bochner.certificates.bounds.table import BoundComparison, ComparedBound, compare_bounds
from bochner.certificates.bounds.zonal import (
    BallSpectral,
    GegenbauerSizes,
    ZonalSpectral,
    direction_leverage,
)
from bochner.certificates.certificate import Certificate, certify
from bochner.certificates.comparison import Compared, Comparison, compare
from bochner.certificates.feature_checks import FeatureCheck, FeatureLaw, check_features
from bochner.certificates.kernel_checks import Flaw, KernelCheck, check_kernel
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
    "ApproximationResidual", "BallSpectral", "Bernstein", "Bound", "BoundComparison", "Certificate",
    "Compared", "ComparedBound", "Comparison", "CostCertificate", "DirectionsNorm", "FeatureCheck",
    "FeatureLaw", "Flaw", "GegenbauerSizes", "Hoeffding", "KernelCheck",
    "OperatorNorm", "ProjectionCost", "RahimiRecht", "Risk", "SketchNorm", "Spectral",
    "TreeNorm", "ZonalSpectral",
    "approximation_residual", "certify", "certify_costs", "check_features", "check_kernel",
    "compare", "compare_bounds", "covering_constant", "direction_leverage", "effective_dimension",
    "intrinsic_dimension", "leverage_scores", "risk",
]
# fmt: on


def __getattr__(name: str) -> Any:
    raise unknown(__name__, name, __all__)
