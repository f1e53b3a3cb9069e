"""Row 3: what to expect of a fit, and how far its features are from the kernel."""

from bochner.planning.certificate import Certificate, certify

__all__ = ["Certificate", "certify"]
