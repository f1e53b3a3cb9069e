"""Export of fitted learners: ONNX graphs, and the names of classes that skops may trust."""

from bochner.export.outputs import TRUSTED, to_onnx

__all__ = ["TRUSTED", "to_onnx"]
