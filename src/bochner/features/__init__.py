"""Feature maps: a kernel and a method turn rows into columns of features."""

from bochner._core.optional import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__spec__)
