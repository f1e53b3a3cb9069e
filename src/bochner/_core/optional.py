"""Optional packages, imported when they are used."""

import importlib
from typing import Any

from bochner.errors import MissingDependency


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
