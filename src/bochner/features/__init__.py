"""Row 2: a kernel and a method become columns."""

from bochner.features.arccosine import ReLU, Sign
from bochner.features.auto import Auto
from bochner.features.compressed import Compressed
from bochner.features.draw import draw
from bochner.features.explicit import Explicit
from bochner.features.fourier import Fourier
from bochner.features.gegenbauer import Gegenbauer
from bochner.features.hermite import HermiteMercer
from bochner.features.histogram import HistogramSampling
from bochner.features.landmarks import Given, KMeans, Pivoted, RidgeLeverage, Uniform
from bochner.features.laplacian import LaplacianEigenfunctions
from bochner.features.maclaurin import Maclaurin
from bochner.features.map import FeatureMap
from bochner.features.mercer import MercerHarmonic
from bochner.features.method import Method
from bochner.features.neural import NeuralTangentFeatures
from bochner.features.nystrom import Nystrom
from bochner.features.placements import IID, QMC, Grid, Orthogonal
from bochner.features.polysketch import PolySketch
from bochner.features.positive import Positive
from bochner.features.projected import Projected
from bochner.features.structured import Fastfood, Structured
from bochner.features.tensorsketch import TensorSketch

__all__ = [
    "IID",
    "QMC",
    "Auto",
    "Compressed",
    "Explicit",
    "Fastfood",
    "FeatureMap",
    "Fourier",
    "Gegenbauer",
    "Given",
    "Grid",
    "HermiteMercer",
    "HistogramSampling",
    "KMeans",
    "LaplacianEigenfunctions",
    "Maclaurin",
    "MercerHarmonic",
    "Method",
    "NeuralTangentFeatures",
    "Nystrom",
    "Orthogonal",
    "Pivoted",
    "PolySketch",
    "Positive",
    "Projected",
    "ReLU",
    "RidgeLeverage",
    "Sign",
    "Structured",
    "TensorSketch",
    "Uniform",
    "draw",
]
