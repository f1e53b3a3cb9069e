"""The names of bochner.features, each once, with the module that defines it."""

from bochner.features.auto import Auto as Auto
from bochner.features.compose import Compressed as Compressed
from bochner.features.compose import Projected as Projected
from bochner.features.fourier.fourier import Fourier as Fourier
from bochner.features.fourier.fourier import HistogramSampling as HistogramSampling
from bochner.features.fourier.fourier import LeverageFourier as LeverageFourier
from bochner.features.fourier.grid import FourierGrid as FourierGrid
from bochner.features.fourier.placements import IID as IID
from bochner.features.fourier.placements import QMC as QMC
from bochner.features.fourier.placements import Fastfood as Fastfood
from bochner.features.fourier.placements import Grid as Grid
from bochner.features.fourier.placements import Orthogonal as Orthogonal
from bochner.features.fourier.placements import Structured as Structured
from bochner.features.map import FeatureMap as FeatureMap
from bochner.features.map import Method as Method
from bochner.features.mercer.products import Explicit as Explicit
from bochner.features.mercer.products import HermiteMercer as HermiteMercer
from bochner.features.mercer.products import LaplacianEigenfunctions as LaplacianEigenfunctions
from bochner.features.mercer.radial import Gegenbauer as Gegenbauer
from bochner.features.mercer.radial import MercerHarmonic as MercerHarmonic
from bochner.features.mercer.sphere import SphericalHarmonics as SphericalHarmonics
from bochner.features.networks import NeuralTangentFeatures as NeuralTangentFeatures
from bochner.features.networks import Positive as Positive
from bochner.features.networks import ReLU as ReLU
from bochner.features.networks import Sign as Sign
from bochner.features.nystrom import Nystrom as Nystrom
from bochner.features.rules import as_method as as_method
from bochner.features.rules import draw as draw
from bochner.features.sketch import Maclaurin as Maclaurin
from bochner.features.sketch import PolySketch as PolySketch
from bochner.features.sketch import TensorSketch as TensorSketch

__all__: list[str]  # noqa: PYI035  the names above
