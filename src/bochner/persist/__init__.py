"""Model files: a JSON header and arrays in one safetensors file; loading one runs no code."""

from bochner.persist.files import FORMAT, load, save

__all__ = ["FORMAT", "load", "save"]
