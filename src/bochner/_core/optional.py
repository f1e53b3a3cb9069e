"""Packages and names that are imported when they are used, and errors in a sentence."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from re import findall
from typing import Any

from bochner.errors import BochnerError, MissingDependency


def needed(module: str, who: str, install: str = "'bochner[files]'") -> Any:
    """Import an optional package now, or say how to install it."""
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise MissingDependency(
            f"{who} needs the package {package}, which is not installed; install it with: pip "
            f"install {install}"
        ) from error


@contextmanager
def explained(
    said: Callable[[Any], Exception | None], *kinds: type[BaseException]
) -> Iterator[None]:
    """Raise ``said(error)``, if any, in place of an error of these kinds but bochner's own."""
    kinds = kinds or (Exception,)
    try:
        yield
    except BochnerError:
        raise
    except kinds as error:
        if (sentence := said(error)) is None:
            raise
        raise sentence from error


def loaded_when_used(
    spec: Any, elsewhere: tuple[str, ...] = ()
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__all__``, ``__getattr__`` and ``__dir__`` of the package with this ``__spec__``.

    Its stub has ``from bochner.module import name as name`` for each; of other names suggestions
    come from the parts ``elsewhere`` too.
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
