"""Row 2: a kernel and a method become columns."""

from bochner.features.auto import Auto
from bochner.features.draw import draw
from bochner.features.fourier import Fourier
from bochner.features.map import FeatureMap
from bochner.features.method import Method
from bochner.features.nystrom import Nystrom, Pivoted, Uniform
from bochner.features.placements import IID, QMC, Orthogonal

__all__ = [
    "IID",
    "QMC",
    "Auto",
    "FeatureMap",
    "Fourier",
    "Method",
    "Nystrom",
    "Orthogonal",
    "Pivoted",
    "Uniform",
    "draw",
]
