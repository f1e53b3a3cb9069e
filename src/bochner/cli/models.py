"""Open a model file and the files it is to be used on."""

from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from bochner._ground.blocks import Blocks
from bochner.errors import InvalidInput, ModelFileError
from bochner.estimators import KernelRidge
from bochner.persist import load
from bochner.planning import Certificate

__all__ = ["certified", "open_model", "open_rows", "prediction_names"]


def open_model(path: str) -> KernelRidge:
    """Return the fitted model in a file."""
    model = load(path)
    if not isinstance(model, KernelRidge) or not hasattr(model, "solution_"):
        kind = type(model).__name__
        raise ModelFileError(
            f"'{path}' must hold a fitted KernelRidge, as bochner fit writes; it holds "
            f"{'one that is not fitted' if isinstance(model, KernelRidge) else f'a {kind}'}."
        )
    return model


def open_rows(
    model: KernelRidge, files: Sequence[Path], separator: str | None, truth: bool
) -> Blocks:
    """Return the rows of the files as the model reads them, with the target if ``truth``."""
    schema = getattr(model, "schema_", None)
    if schema is None:
        names = getattr(model, "feature_names_in_", None)
        columns = None if names is None else [str(name) for name in names]
        return Blocks.from_files(files, columns=columns, separator=separator)
    wanted = schema if truth else schema.features_only()
    return Blocks.from_files(files, schema=wanted, separator=separator)


def prediction_names(model: KernelRidge) -> list[str]:
    """Return the names of the predicted columns."""
    if not model.target_shape_:
        return ["prediction"]
    schema = getattr(model, "schema_", None)
    names: Any = None if schema is None else schema.target_names
    return [f"prediction_{name}" for name in names or range(int(np.prod(model.target_shape_)))]


def certified(measure: Callable[[], Certificate]) -> tuple[dict[str, Any] | None, str]:
    """Return a certificate as numbers and words; why there is none, if there can be none.

    A model without a certificate (alpha = 0, very few rows) is still a model.
    """
    try:
        certificate = measure()
    except InvalidInput as error:
        return None, f"none: {error}"
    return {f.name: getattr(certificate, f.name) for f in fields(certificate)}, str(certificate)
