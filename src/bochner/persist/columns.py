"""Transformers of scikit-learn whose fits are no arrays of columns: fitted again to made-up rows.

What such a transformer learned is given to it as parameters, or as rows from which it can learn
nothing else. So no private state of scikit-learn is written, whose names change with its versions.
"""

import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder

from bochner.errors import InvalidType

State = Mapping[str, Any]

#: What stands for a transformer where there is none.
WORDS = (None, "drop", "passthrough")

# --- Cells: numbers and text as arrays, a mixture as a tuple --------------------------------------


def _cells(values: Any) -> Any:
    """Return values of a column as a file holds them: an array, or a tuple of different things."""
    array = np.asarray(values)
    mixed = array.dtype.kind == "O" and not all(type(item) is str for item in array)
    return tuple(array.tolist()) if mixed else array


def _column(cells: Any) -> np.ndarray:
    """Return the array that the cells were."""
    if not isinstance(cells, tuple):
        if not isinstance(cells, np.ndarray) or cells.ndim != 1:
            raise TypeError("values of a column are an array of one axis")
        return cells
    array = np.empty(len(cells), object)
    array[:] = cells
    return array


# --- OneHotEncoder --------------------------------------------------------------------------------


def encoder_parameters(step: OneHotEncoder) -> State:
    """Return its parameters, with its type of numbers by name."""
    if step.min_frequency is not None or step.max_categories is not None:
        raise InvalidType(
            "save: a OneHotEncoder in a pipeline must have neither min_frequency nor "
            "max_categories, which a model file does not hold; got "
            f"min_frequency={step.min_frequency!r}, max_categories={step.max_categories!r}. "
            "Group rare categories before the pipeline, or keep it with skops."
        )
    found = step.get_params(deep=False)
    if not isinstance(step.categories, str):
        found["categories"] = [_cells(values) for values in step.categories]
    if not isinstance(step.drop, str | None):
        found["drop"] = _cells(step.drop)
    return found | {"dtype": np.dtype(step.dtype).name}


def build_encoder(parameters: State) -> OneHotEncoder:
    """Return the encoder, not fitted."""
    found = dict(parameters)
    if not isinstance(found["categories"], str):
        found["categories"] = [_column(cells) for cells in found["categories"]]
    if not isinstance(found["drop"], str | None):
        found["drop"] = _column(found["drop"])
    if (dtype := np.dtype(found["dtype"])).kind not in "biuf":
        raise TypeError("a OneHotEncoder gives numbers")
    return OneHotEncoder(**found | {"dtype": dtype.type})


def encoder_state(step: OneHotEncoder) -> State:
    """Return the categories of each column."""
    return {"categories_": [_cells(values) for values in step.categories_]}


def fit_encoder(step: OneHotEncoder, state: State) -> State:
    """Return the state of its fit to one row of the categories that it is told."""
    categories = [_column(cells) for cells in state["categories_"]]
    for values in categories:
        _require_order(values)
    row = np.empty((1, len(categories)), object)
    row[0] = [values[0] for values in categories]
    fitted = _like(step, categories=categories).fit(row)
    return vars(fitted) | {"categories": step.categories, "categories_": categories}


def _like(step: Any, **changed: Any) -> Any:
    """Return another of its class, with some parameters changed."""
    return type(step)(**step.get_params(deep=False) | changed)


def _require_order(values: np.ndarray) -> None:
    """Refuse numbers that do not rise, among which a search would go astray; none at all, too."""
    if not len(values):
        raise ValueError("a column of a OneHotEncoder must have categories")
    if values.dtype.kind in "biuf":
        numbers = values[:-1] if np.isnan(values[-1]) else values
        if not (numbers[1:] > numbers[:-1]).all():
            raise ValueError("categories of numbers must rise")


# --- SimpleImputer --------------------------------------------------------------------------------


def imputer_state(step: SimpleImputer) -> State:
    """Return what fills each column, its type, and the columns whose gaps are marked."""
    marked = step.indicator_ and step.indicator_.features_
    return {
        "statistics_": _cells(step.statistics_),
        "dtype": np.dtype(step._fit_dtype).name,
        "marked": marked,
    }


def fit_imputer(step: SimpleImputer, state: State) -> State:
    """Return the state of its fit to what fills gaps, twice, with the gaps that are marked."""
    filling, marked = _column(state["statistics_"]), state["marked"]
    dtype = np.dtype(state["dtype"])
    if dtype.kind not in "iufO":
        raise TypeError("a SimpleImputer fills numbers and text")
    rows = np.array([filling, filling], dtype)
    rows[:, _gaps(filling)] = step.missing_values
    if marked is not None:
        rows[1, marked] = step.missing_values
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about columns of gaps
        return vars(_like(step).fit(rows)) | {"statistics_": filling}


def _gaps(values: np.ndarray) -> np.ndarray:
    """Whether each value is NaN, which is not itself."""
    return np.array([value != value for value in values.tolist()], bool)  # noqa: PLR0124


# --- ColumnTransformer ----------------------------------------------------------------------------

#: How it goes about its work, and not what it gives.
_LEFT_OUT = ("n_jobs", "verbose")


def parts_of(step: ColumnTransformer) -> Iterator[tuple[str, Any]]:
    """Yield the parts that it was given, by name."""
    yield from ((name, part) for name, part, _ in step.transformers)
    yield "remainder", step.remainder


def parts_parameters(step: ColumnTransformer) -> State:
    """Return its parameters; columns that were chosen by a function are those that it chose."""
    found = {k: v for k, v in step.get_params(deep=False).items() if k not in _LEFT_OUT}
    if not isinstance(step.verbose_feature_names_out, bool):
        raise InvalidType(
            "save: verbose_feature_names_out of a ColumnTransformer must be True or False, which a "
            f"model file holds; got {step.verbose_feature_names_out!r}."
        )
    return found | {
        "transformers": [
            (name, part, _columns(step, name, columns)) for name, part, columns in step.transformers
        ]
    }


def _columns(step: ColumnTransformer, name: str, columns: Any) -> Any:
    """Return names, positions or a mask of columns."""
    if not (callable(columns) or isinstance(columns, slice)):
        return columns
    if not hasattr(step, "transformers_"):
        raise InvalidType(
            f"save: columns of {name!r} in a ColumnTransformer that is not fitted must be names, "
            f"positions or a mask; got {type(columns).__name__}. Fit the pipeline before it is "
            "saved, or name the columns."
        )
    return list(step._transformer_to_input_indices[name])


def parts_state(step: ColumnTransformer) -> State:
    """Return its fitted parts with the positions of their columns."""
    given = dict(parts_of(step))
    place = step._transformer_to_input_indices
    fitted = [
        (name, given[name] if given[name] in WORDS else part, np.array(place[name], np.int64))
        for name, part, _ in step.transformers_
    ]
    return {"fitted": fitted, "sparse": bool(getattr(step, "sparse_output_", False))}


class _Zeros(TransformerMixin, BaseEstimator):
    """What stands for a part while the columns that come and go are counted."""

    def __init__(self, width: int = 1) -> None:
        self.width = width

    def fit(self, X: Any, y: Any = None) -> "_Zeros":  # noqa: ARG002
        return self

    def transform(self, X: Any) -> np.ndarray:
        return np.zeros((len(X), self.width))


def fit_parts(step: ColumnTransformer, state: State) -> State:
    """Return the state of its fit to a row of zeros, where parts have only the right widths.

    Every column is in some part, be it dropped: so a file of few bytes has few columns.
    """
    parts = {name: (part, _positions(place)) for name, part, place in state["fitted"]}
    columns = {position for _, place in parts.values() for position in place}
    if len(columns) != state["n_features_in_"] or columns != {*range(len(columns))}:
        raise ValueError("parts of a ColumnTransformer must take all columns")
    shown = {name: (name, _stand(*pair), pair[1]) for name, pair in parts.items()}
    rest = shown.pop("remainder", (None, "drop"))[1]
    counted = _like(step, transformers=[*shown.values()], remainder=rest)
    counted.fit(np.broadcast_to(0.0, (1, len(columns))))
    fitted = [
        (name, part if parts[name][0] in WORDS else parts[name][0], place)
        for name, part, place in counted.transformers_
    ]
    given = {"transformers": step.transformers, "remainder": step.remainder}
    return vars(counted) | given | {"transformers_": fitted, "sparse_output_": state["sparse"]}


def _positions(place: Any) -> list[int]:
    if not isinstance(place, np.ndarray) or (place.dtype.name, place.ndim) != ("int64", 1):
        raise TypeError("positions of columns are whole numbers")
    return place.tolist()


def _stand(part: Any, place: list[int]) -> Any:
    if part in WORDS:
        return part
    return _Zeros(_width_of(part, len(place)) if place else 1)


# --- Widths ---------------------------------------------------------------------------------------


def width_out(step: Any, columns: int | None) -> int | None:
    """Return how many columns a step makes of so many, None where one is not fitted.

    Refuse a step that was fitted to another number of columns.
    """
    if step in WORDS:
        return 0 if step == "drop" else columns
    if isinstance(step, Pipeline):
        for _, part in step.steps:
            columns = width_out(part, columns)
        return columns
    own = getattr(step, "n_features_in_", None)
    if None not in (own, columns) and own != columns:
        raise ValueError("steps of a pipeline must take the columns that come to them")
    if own is None or not isinstance(step, TransformerMixin):
        return None
    if isinstance(step, ColumnTransformer):
        return max((s.stop for s in getattr(step, "output_indices_", {}).values()), default=0)
    if isinstance(step, OneHotEncoder | SimpleImputer):
        return len(step.get_feature_names_out())
    return getattr(step, "_n_features_out", own)


def _width_of(part: Any, columns: int) -> int:
    width = width_out(part, columns)
    if width is None:
        raise ValueError("parts of a ColumnTransformer that is fitted must be fitted")
    return width
