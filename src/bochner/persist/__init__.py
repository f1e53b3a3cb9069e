"""Model files: a JSON header and arrays in one safetensors file; loading one runs no code."""

from typing import Any

from bochner._core.names import unknown
from bochner.persist.files import FORMAT, load, save

__all__ = ["FORMAT", "load", "save"]


def __getattr__(name: str) -> Any:
    raise unknown(__name__, name, __all__)
