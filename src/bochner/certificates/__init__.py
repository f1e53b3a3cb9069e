"""Distance of features from the kernel, measured on data and bounded by theory."""

from bochner._core.optional import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__spec__)
