"""Row 3: learners with scikit-learn's interface."""

from bochner.estimators.ridge import KernelRidge, merge
from bochner.estimators.transform import KernelFeatures

__all__ = ["KernelFeatures", "KernelRidge", "merge"]
