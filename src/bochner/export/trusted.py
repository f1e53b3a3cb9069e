"""The types of bochner that a file of skops may hold: what loading one must be told to trust."""

from bochner._core.native import Chains, Programme
from bochner.features.mercer.hermite import Mehler
from bochner.features.mercer.products import Halves
from bochner.models.unsupervised.clustering import KernelCost
from bochner.persist.known import stored_classes

#: What fits and maps work out when it is first asked for, and keep. Model files leave it out.
_KEPT = (Chains, Halves, KernelCost, Mehler, Programme)

#: Full names, as ``skops.io.load(file, trusted=bochner.export.TRUSTED)`` takes them: the classes
#: that bochner's model files hold, and what these keep. None runs code when it is built.
TRUSTED = sorted(f"{cls.__module__}.{cls.__qualname__}" for cls in {*stored_classes(), *_KEPT})
