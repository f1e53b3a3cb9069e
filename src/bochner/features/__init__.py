"""Feature maps: a kernel and a method turn rows into columns of features."""

from bochner._core.optional import loaded_when_used

__all__, __getattr__, __dir__ = loaded_when_used(__spec__)
