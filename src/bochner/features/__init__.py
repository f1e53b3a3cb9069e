"""Feature maps: a kernel and a method turn rows into columns of features."""

from typing import Any

from bochner._core.names import unknown
from bochner.features.auto import Auto
from bochner.features.fourier.fourier import Fourier
from bochner.features.fourier.grid import FourierGrid
from bochner.features.fourier.histogram import HistogramSampling
from bochner.features.fourier.leverage import LeverageFourier
from bochner.features.fourier.placements import IID, QMC, Fastfood, Grid, Orthogonal, Structured
from bochner.features.map import FeatureMap
from bochner.features.mercer.harmonic import MercerHarmonic
from bochner.features.mercer.hermite import HermiteMercer
from bochner.features.mercer.products import Explicit, LaplacianEigenfunctions
from bochner.features.mercer.sphere import SphericalHarmonics
from bochner.features.method import Method
from bochner.features.nystrom.nystrom import Nystrom
from bochner.features.projections import Compressed, Projected
from bochner.features.random.gegenbauer import Gegenbauer
from bochner.features.random.networks import NeuralTangentFeatures, ReLU, Sign
from bochner.features.random.positive import Positive
from bochner.features.rules import draw
from bochner.features.sketch.maclaurin import Maclaurin
from bochner.features.sketch.polysketch import PolySketch
from bochner.features.sketch.tensorsketch import TensorSketch

# fmt: off
__all__ = [
    "IID", "QMC", "Auto", "Compressed", "Explicit", "Fastfood", "FeatureMap", "Fourier",
    "FourierGrid", "Gegenbauer", "Grid", "HermiteMercer", "HistogramSampling",
    "LaplacianEigenfunctions", "LeverageFourier",
    "Maclaurin", "MercerHarmonic", "Method", "NeuralTangentFeatures", "Nystrom", "Orthogonal",
    "PolySketch", "Positive", "Projected", "ReLU", "Sign", "SphericalHarmonics", "Structured",
    "TensorSketch", "draw",
]
# fmt: on


def __getattr__(name: str) -> Any:
    raise unknown(__name__, name, __all__)
