"""Open a model file and the files it is to be used on."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bochner._ground.blocks import Blocks
from bochner.errors import ModelFileError
from bochner.estimators import KernelRidge
from bochner.persist import load

__all__ = ["open_model", "open_rows", "prediction_names"]


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
    if model.schema_ is None:
        names = getattr(model, "feature_names_in_", None)
        columns = None if names is None else [str(name) for name in names]
        return Blocks.from_files(files, columns=columns, separator=separator)
    schema = model.schema_ if truth else model.schema_.features_only()
    return Blocks.from_files(files, schema=schema, separator=separator)


def prediction_names(model: KernelRidge) -> list[str]:
    """Return the names of the predicted columns."""
    if not model.target_shape_:
        return ["prediction"]
    names: Any = None if model.schema_ is None else model.schema_.target_names
    return [f"prediction_{name}" for name in names or range(int(np.prod(model.target_shape_)))]
