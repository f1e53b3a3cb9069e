"""Row 4: fitted learners for other programs: graphs of ONNX, and what skops may trust."""

from bochner.export.files import to_onnx
from bochner.export.trusted import TRUSTED

__all__ = ["TRUSTED", "to_onnx"]
