"""Optional packages, imported when they are used, and their errors in a sentence."""

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from bochner.errors import BochnerError, MissingDependency


def needed(module: str, who: str, install: str = "'bochner[files]'") -> Any:
    """Import an optional package now, or say how to install it."""
    try:
        return importlib.import_module(module)
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
    """Raise ``said(error)`` in place of an error of these kinds, by default of all.

    Errors of bochner pass, and those of which ``said`` returns None.
    """
    try:
        yield
    except BochnerError:
        raise
    except BaseException as error:
        if not isinstance(error, kinds or Exception):
            raise
        sentence = said(error)
        if sentence is None:
            raise
        raise sentence from error
