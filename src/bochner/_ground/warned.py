"""Warnings that name the user's line, however deep in the package they arise."""

import sys
import warnings
from pathlib import Path

from bochner.errors import SolutionWarning

__all__ = ["warn_user"]

_PACKAGE = str(Path(__file__).parent.parent)


def warn_user(text: str) -> None:
    """Warn of a solution, at the nearest line outside this package."""
    frame, level = sys._getframe(1), 2
    while frame.f_code.co_filename.startswith(_PACKAGE) and frame.f_back is not None:
        frame, level = frame.f_back, level + 1
    warnings.warn(text, SolutionWarning, stacklevel=level)
