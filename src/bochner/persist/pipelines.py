"""Pipelines of scikit-learn in model files: the transformers that they hold, and their fits."""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import (
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)

from bochner.errors import InvalidType
from bochner.persist.columns import (
    WORDS,
    build_encoder,
    encoder_parameters,
    encoder_state,
    fit_encoder,
    fit_imputer,
    fit_parts,
    imputer_state,
    parts_of,
    parts_parameters,
    parts_state,
    width_out,
)

#: By their names in files.
TRANSFORMERS: Mapping[str, type[BaseEstimator]] = {
    cls.__name__: cls
    for cls in (
        ColumnTransformer,
        MaxAbsScaler,
        MinMaxScaler,
        Normalizer,
        OneHotEncoder,
        QuantileTransformer,
        RobustScaler,
        SimpleImputer,
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


class _Way(NamedTuple):
    """How a transformer is taken apart and put together, where its fit is no arrays of columns."""

    state: Callable[[Any], Mapping[str, Any]]
    fit: Callable[[Any, Mapping[str, Any]], Mapping[str, Any]]
    names: frozenset[str]
    parameters: Callable[[Any], Mapping[str, Any]] = lambda step: step.get_params(deep=False)


_WAYS = {
    ColumnTransformer: _Way(
        parts_state, fit_parts, frozenset({"fitted", "sparse"}), parts_parameters
    ),
    OneHotEncoder: _Way(encoder_state, fit_encoder, frozenset({"categories_"}), encoder_parameters),
    SimpleImputer: _Way(imputer_state, fit_imputer, frozenset({"statistics_", "dtype", "marked"})),
}


def require_known_steps(pipeline: Pipeline, estimators: Collection[type]) -> None:
    """Refuse a pipeline with a step that a model file cannot hold: these, and transformers."""
    for name, step in _parts(pipeline):
        kind = type(step)
        known = kind in estimators or kind is Pipeline or TRANSFORMERS.get(kind.__name__) is kind
        if not known and not (isinstance(step, str | None) and step in WORDS):
            raise InvalidType(
                f"save: steps of a pipeline must be estimators of bochner or one of "
                f"{', '.join(TRANSFORMERS)}; got {kind.__name__} as step {name!r}. Estimators of "
                "bochner take text, dates and gaps themselves; or keep the pipeline with skops and "
                "bochner.export.TRUSTED."
            )


def _parts(step: Any) -> Iterator[tuple[str, Any]]:
    """Yield the steps of a pipeline, and those within them, by name."""
    steps = step.steps if isinstance(step, Pipeline) else ()
    steps = parts_of(step) if isinstance(step, ColumnTransformer) else steps
    for name, part in steps:
        yield name, part
        yield from _parts(part)


def parameters_of(step: BaseEstimator) -> Mapping[str, Any]:
    """Return the parameters of a transformer."""
    way = _WAYS.get(type(step))
    return step.get_params(deep=False) if way is None else way.parameters(step)


def state_of(step: BaseEstimator) -> dict[str, Any]:
    """Return what the fit of a transformer keeps, and which kind of table it gives."""
    found = {name: value for name, value in vars(step).items() if name in _STATE}
    if found and (way := _WAYS.get(type(step))):
        found |= way.state(step)
    output = getattr(step, "_sklearn_output_config", {}).get("transform")
    return found | ({} if output is None else {"output": output})


def fitted_step(name: str, parameters: Mapping[str, Any], state: Mapping[str, Any]) -> Any:
    """Return the transformer; refuse state that is none, or of another shape than its columns."""
    kind = TRANSFORMERS[name]
    step = build_encoder(parameters) if kind is OneHotEncoder else kind(**parameters)
    state = dict(state)
    output = state.pop("output", None)
    if state:
        way = _WAYS.get(kind)
        _require_state(state, way.names if way else frozenset())
        _fit(step, state, way)
    return step if output is None else step.set_output(transform=output)


def _fit(step: Any, state: Mapping[str, Any], way: _Way | None) -> None:
    if way is not None:
        found = dict(way.fit(step, state))
        if found["n_features_in_"] != state["n_features_in_"]:
            raise ValueError("parts of a transformer disagree about its columns")
        state = found | {name: value for name, value in state.items() if name in _COLUMNS}
    vars(step).update(state)


def _require_state(state: Mapping[str, Any], further: frozenset[str]) -> None:
    columns = state["n_features_in_"]
    names = {*_COLUMNS, *further} if further else _STATE
    if type(columns) is not int or columns < 1 or not names.issuperset(state):
        raise TypeError("the state of a transformer is of its columns")
    for name in _OF_COLUMNS:
        _require_shape(state.get(name), (columns,), name)
    if np.ndim(rows := state.get("n_samples_seen_", 0)):
        _require_shape(rows, (columns,), "n_samples_seen_")
    if "n_quantiles_" in state:
        count = int(state["n_quantiles_"])
        _require_shape(state["quantiles_"], (count, columns), "quantiles_")
        _require_shape(state["references_"], (count,), "references_")
    titles = state.get("feature_names_in_")
    if titles is not None and (titles.dtype != object or titles.shape != (columns,)):
        raise TypeError("names of columns are text, one for each")


def _require_shape(value: Any, shape: tuple[int, ...], name: str) -> None:
    if value is None:
        return
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "fiu" or value.shape != shape:
        raise TypeError(f"{name} of a transformer must hold numbers of the shape {shape}")


def require_one_width(pipeline: Pipeline) -> None:
    """Refuse steps that were fitted to other numbers of columns than come to them."""
    width_out(pipeline, None)
