"""Distance of features from the kernel, measured on data and bounded by theory."""

from bochner._core.optional import loaded_when_used

__all__, __getattr__, __dir__ = loaded_when_used(__spec__)
