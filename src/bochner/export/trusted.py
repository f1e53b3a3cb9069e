"""Types of bochner in skops files, to be passed as ``trusted`` when loading."""

from bochner._core.native import Chains, Programme
from bochner.features.mercer.hermite import Mehler
from bochner.features.mercer.products import Halves
from bochner.models.unsupervised.kmeans import KernelCost
from bochner.persist.values import stored_classes

#: Cached values of fits and maps, which model files leave out.
_KEPT = (Chains, Halves, KernelCost, Mehler, Programme)

#: Full names, as ``skops.io.load(file, trusted=bochner.export.TRUSTED)`` takes them: the classes
#: that bochner's model files hold, and what these keep. None runs code when it is built.
TRUSTED = sorted(f"{cls.__module__}.{cls.__qualname__}" for cls in {*stored_classes(), *_KEPT})
