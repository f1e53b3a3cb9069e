"""Row 3: what to expect of a fit, and how far its features are from the kernel."""

from bochner.planning.certificate import Certificate, certify
from bochner.planning.comparison import Compared, Comparison, compare
from bochner.planning.laws import Flaw, KernelCheck, check_kernel

__all__ = [
    "Certificate",
    "Compared",
    "Comparison",
    "Flaw",
    "KernelCheck",
    "certify",
    "check_kernel",
    "compare",
]
