"""Names of packages that are loaded when they are first used, and where engines are found.

A package of such names has a stub, ``__init__.pyi``, with a line
``from bochner.module import name as name`` for each of them.
"""

import sys
from collections.abc import Callable
from importlib import import_module
from re import findall
from typing import Any

#: Modules by the library that holds rows; each has ``here()``, which returns its engine. Engines
#: are above all parts that fit: these find them here, by name, and know none.
ENGINES: dict[str, str] = {}


def loaded_when_used(
    spec: Any, elsewhere: tuple[str, ...] = ()
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__all__``, ``__getattr__`` and ``__dir__`` of the package with this ``__spec__``.

    For a name that is not there, suggestions come from these parts of bochner too.
    """
    stub = spec.loader.get_data(f"{spec.origin.removesuffix('c')}i").decode()
    homes = {name: home for home, name in findall(r"from (bochner\S*) import \(?\s*(\w+) as", stub)}
    listed = sorted(homes)

    def attribute(name: str) -> Any:
        if name not in homes:
            from bochner._core.names import missing  # noqa: PLC0415

            parts = () if name.startswith("_") else elsewhere
            others = {part: import_module(f"bochner.{part}").__all__ for part in parts}
            raise AttributeError(missing(spec.name, name, listed, others))
        if homes[name] == spec.name:
            return import_module(f"{spec.name}.{name}")
        value = getattr(import_module(homes[name]), name)
        setattr(sys.modules[spec.name], name, value)
        return value

    return listed, attribute, lambda: listed
