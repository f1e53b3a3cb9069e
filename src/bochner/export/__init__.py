"""Export of fitted learners: ONNX graphs, and the names of classes that skops may trust."""

from bochner._core.native import Chains, Programme
from bochner.export.files import to_onnx
from bochner.features.mercer.hermite import Mehler
from bochner.features.mercer.products import Halves
from bochner.models.unsupervised.kmeans import KernelCost
from bochner.persist.values import stored_classes

__all__ = ["TRUSTED", "to_onnx"]

#: Cached values of fits and maps, which model files leave out.
_KEPT = (Chains, Halves, KernelCost, Mehler, Programme)

#: Full names, as ``skops.io.load(file, trusted=bochner.export.TRUSTED)`` takes them: the classes
#: that bochner's model files hold, and what these keep. None runs code when it is built.
TRUSTED = sorted(f"{cls.__module__}.{cls.__qualname__}" for cls in {*stored_classes(), *_KEPT})
