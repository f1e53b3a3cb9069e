"""Model files: a JSON header and arrays in one safetensors file; loading one runs no code."""

from typing import Any

from bochner._core.names import handed_out
from bochner.persist.files import FORMAT, load, save

__all__ = ["FORMAT", "load", "save"]

#: Names for those who build on bochner, by the module that defines each.
FOR_DEVELOPERS = {
    "files": "sealed",
    "known": "ESTIMATORS KNOWN NAMES",
    "validate": "require_arrays",
    "values": "NamedArrays decode encode",
}


def __getattr__(name: str) -> Any:
    return handed_out(__name__, name, FOR_DEVELOPERS, __all__)
