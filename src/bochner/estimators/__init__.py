"""Row 3: learners with scikit-learn's interface."""

from bochner.estimators.merging import merge
from bochner.estimators.ridge import KernelRidge
from bochner.estimators.transform import KernelFeatures

__all__ = ["KernelFeatures", "KernelRidge", "merge"]
