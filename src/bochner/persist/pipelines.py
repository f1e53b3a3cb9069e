"""Pipelines of scikit-learn in model files: the transformers whose fits are arrays of columns."""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import (
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)

from bochner.errors import InvalidType

#: By their names in files. Each gives as many columns as it takes.
TRANSFORMERS: Mapping[str, type[BaseEstimator]] = {
    cls.__name__: cls
    for cls in (
        MaxAbsScaler,
        MinMaxScaler,
        Normalizer,
        QuantileTransformer,
        RobustScaler,
        StandardScaler,
    )
}

#: Fitted state that holds a number for each column, or is None.
_OF_COLUMNS = (
    "center_",
    "data_max_",
    "data_min_",
    "data_range_",
    "max_abs_",
    "mean_",
    "min_",
    "scale_",
    "var_",
)
_OF_ROWS = ("n_samples_seen_",)
_QUANTILES = ("n_quantiles_", "quantiles_", "references_")
_COLUMNS = ("n_features_in_", "feature_names_in_")
_STATE = {*_OF_COLUMNS, *_OF_ROWS, *_QUANTILES, *_COLUMNS}


def require_known_steps(pipeline: Pipeline, estimators: Collection[type]) -> None:
    """Refuse a pipeline with a step that a model file cannot hold: these, and transformers."""
    for name, step in pipeline.steps:
        kind = type(step)
        known = kind in estimators or TRANSFORMERS.get(kind.__name__) is kind
        if not known and step not in (None, "passthrough") and kind is not Pipeline:
            raise InvalidType(
                f"save: steps of a pipeline must be estimators of bochner or one of "
                f"{', '.join(TRANSFORMERS)}; got {kind.__name__} as step {name!r}. Estimators of "
                "bochner take text, dates and gaps themselves; or keep the pipeline with skops and "
                "bochner.export.TRUSTED."
            )


def state_of(step: BaseEstimator) -> dict[str, Any]:
    """Return what the fit of a transformer keeps."""
    return {name: value for name, value in vars(step).items() if name in _STATE}


def fitted_step(name: str, parameters: Mapping[str, Any], state: Mapping[str, Any]) -> Any:
    """Return the transformer; refuse state that is none, or of another shape than its columns."""
    step = TRANSFORMERS[name](**parameters)
    if state:
        _require_state(state)
        vars(step).update(state)
    return step


def _require_state(state: Mapping[str, Any]) -> None:
    columns = state["n_features_in_"]
    if type(columns) is not int or columns < 1 or not _STATE.issuperset(state):
        raise TypeError("the state of a transformer is of its columns")
    for name in _OF_COLUMNS:
        _require_shape(state.get(name), (columns,), name)
    if np.ndim(rows := state.get("n_samples_seen_", 0)):
        _require_shape(rows, (columns,), "n_samples_seen_")
    if "n_quantiles_" in state:
        count = int(state["n_quantiles_"])
        _require_shape(state["quantiles_"], (count, columns), "quantiles_")
        _require_shape(state["references_"], (count,), "references_")
    names = state.get("feature_names_in_")
    if names is not None and (names.dtype != object or names.shape != (columns,)):
        raise TypeError("names of columns are text, one for each")


def _require_shape(value: Any, shape: tuple[int, ...], name: str) -> None:
    if value is None:
        return
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "fiu" or value.shape != shape:
        raise TypeError(f"{name} of a transformer must hold numbers of the shape {shape}")


def require_one_width(pipeline: Pipeline) -> None:
    """Refuse steps that were fitted to different numbers of columns."""
    steps = (step for _, step in pipeline.steps if isinstance(step, BaseEstimator))
    widths = {getattr(step, "n_features_in_", None) for step in steps} - {None}
    if len(widths) > 1:
        raise ValueError("steps of a pipeline must take the same columns")
