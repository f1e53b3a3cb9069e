"""Small real data sets in the package, for the demo, the documentation and the tests."""

from bochner.datasets.loaders import Dataset, load_co2, load_concrete, load_earth, on_sphere

__all__ = ["Dataset", "load_co2", "load_concrete", "load_earth", "on_sphere"]
