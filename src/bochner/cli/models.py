"""Open a model file and the files it is to be used on."""

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from sklearn.base import BaseEstimator

from bochner.data.blocks import Blocks
from bochner.errors import InvalidInput, ModelFileError
from bochner.models._judged import certificate_of
from bochner.models.unsupervised.transform import KernelFeatures
from bochner.persist import load


def open_model(path: str) -> Any:
    """Return the fitted learner in a file."""
    model = load(path)
    fitted = hasattr(model, "map_") and hasattr(model, "n_features_in_")
    if not isinstance(model, BaseEstimator) or not fitted or isinstance(model, KernelFeatures):
        kind = type(model).__name__
        raise ModelFileError(
            f"'{path}' must hold a fitted learner, as bochner fit writes; it holds "
            f"{'one that is not fitted' if isinstance(model, BaseEstimator) else f'a {kind}'}."
        )
    return model


def open_rows(model: Any, files: Sequence[Path], separator: str | None, truth: bool) -> Blocks:
    """Return the rows of the files as the model reads them, with the target if ``truth``."""
    schema = getattr(model, "schema_", None)
    if schema is None:
        names = getattr(model, "feature_names_in_", None)
        columns = None if names is None else [str(name) for name in names]
        return Blocks.from_files(files, columns=columns, separator=separator)
    wanted = schema if truth else schema.features_only()
    return Blocks.from_files(files, schema=wanted, separator=separator)


def certified(model: Any, blocks: Blocks, other: bool = False) -> tuple[dict[str, Any] | None, str]:
    """Return the certificate as numbers and words; why, if there is none.

    On the rows of the fit, or on ``other`` rows. A model without a certificate (alpha = 0, very few
    rows) is still a model.
    """
    try:
        certificate = certificate_of(model, blocks, other=other)
    except InvalidInput as error:
        return None, f"none: {error}"
    return {f.name: getattr(certificate, f.name) for f in fields(certificate)}, str(certificate)
