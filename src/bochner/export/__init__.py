"""Export of fitted learners: ONNX graphs, and the names of classes that skops may trust."""

from bochner.export.files import to_onnx
from bochner.export.trusted import TRUSTED

__all__ = ["TRUSTED", "to_onnx"]
