"""Maps whose features are waves of angles: what fits need that sum waves in place of features."""

from abc import abstractmethod

from bochner._core.shapes import Array, Float
from bochner.features.map import FeatureMap
from bochner.features.method import Method
from bochner.kernels.kernel import Kernel
from bochner.solvers.gram import WaveGram
from bochner.sums.fourier import Places


class WaveMethod(Method):
    """A method whose features are never made by fits that sum waves: any number of them."""

    @property
    @abstractmethod
    def accuracy(self) -> float:
        """Error of transforms and solutions that is asked for, relative."""


class WaveMap(FeatureMap):
    """A map of waves e^{i k·θ} of angles θ of the rows, or of combinations of such.

    ``error`` bounds |φ(x)·φ(y) − k(x, y)|, as a share of k(x, x).
    """

    error: float

    @property
    @abstractmethod
    def places(self) -> Places:
        """How rows become angles."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Largest k along each angle."""

    @property
    @abstractmethod
    def variances(self) -> Array:
        """What the kernel weighs waves by."""

    @abstractmethod
    def variances_of(self, kernel: Kernel) -> Array:
        """Return the weights of another kernel on the same waves."""

    @abstractmethod
    def gram(self, waves: Array, variances: Array, centred: bool) -> WaveGram:
        """Return ZᵀZ from sums of waves over rows."""

    @abstractmethod
    def as_coefficients(self, numbers: Array) -> Array:
        """Return numbers that stand beside the weights as they do beside coefficients."""

    @abstractmethod
    def matrix(self, X: Float[Array, "m d"], error: float) -> Float[Array, "m m"]:
        """Return Z Zᵀ of all pairs of rows, without features."""
