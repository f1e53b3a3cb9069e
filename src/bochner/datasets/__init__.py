"""Small real data carried with the package, for the demo, the docs and the tests."""

from bochner.datasets.concrete import load_concrete
from bochner.datasets.dataset import Dataset
from bochner.datasets.earth import load_earth, on_sphere

__all__ = ["Dataset", "load_concrete", "load_earth", "on_sphere"]
