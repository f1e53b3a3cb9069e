"""Small real data sets of the package, for the demo, the pages and the tests."""

from bochner.datasets.loaders import Dataset, load_co2, load_concrete, load_earth, on_sphere

__all__ = ["Dataset", "load_co2", "load_concrete", "load_earth", "on_sphere"]
