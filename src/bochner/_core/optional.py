"""Lazy imports of packages and names, and errors of other packages in one sentence."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from re import findall
from typing import Any

from bochner.errors import BochnerError, MissingDependency


def package(module: str, caller: str, install: str = "'bochner[files]'") -> Any:
    """Return an optional module; raise MissingDependency with the pip command if it is absent."""
    try:
        return import_module(module)
    except ImportError as error:
        name = module.partition(".")[0]
        raise MissingDependency(
            f"{caller} needs the package {name}, which is not installed; install it with: pip "
            f"install {install}"
        ) from error


@contextmanager
def raise_as(
    translate: Callable[[Any], Exception | None], *kinds: type[BaseException]
) -> Iterator[None]:
    """Raise ``translate(error)``, if not None, for errors of these kinds; bochner's errors pass."""
    kinds = kinds or (Exception,)
    try:
        yield
    except BochnerError:
        raise
    except kinds as error:
        if (replacement := translate(error)) is None:
            raise
        raise replacement from error


def lazy_names(
    spec: Any, subpackages: tuple[str, ...] = ()
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__all__``, ``__getattr__`` and ``__dir__`` of the package with this ``__spec__``.

    The stub file of the package lists each name: ``from bochner.module import name as name``. An
    error for an unknown name also suggests names from ``subpackages``.
    """
    stub = spec.loader.get_data(f"{spec.origin.removesuffix('c')}i").decode()
    homes = {name: home for home, name in findall(r"from (bochner\S*) import \(?\s*(\w+) as", stub)}
    names = sorted(homes)

    def attribute(name: str) -> Any:
        if name not in homes:
            from bochner._core.names import missing_name  # noqa: PLC0415

            parts = () if name.startswith("_") else subpackages
            modules = {part: import_module(f"bochner.{part}").__all__ for part in parts}
            raise AttributeError(missing_name(spec.name, name, names, modules))
        if homes[name] == spec.name:
            return import_module(f"{spec.name}.{name}")
        value = getattr(import_module(homes[name]), name)
        setattr(sys.modules[spec.name], name, value)
        return value

    return names, attribute, lambda: names
