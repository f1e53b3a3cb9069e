"""What users pass to ``fit`` and ``predict``: arrays, sparse matrices, tables."""

import sys
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, is_classifier
from sklearn.utils.validation import _check_sample_weight, validate_data

from bochner._ground.arrays import (
    array_namespace,
    is_numpy,
    is_sparse,
    refuse_dates,
    refuse_masked,
)
from bochner._ground.blocks import Blocks
from bochner._ground.schema import listed, repeated
from bochner._ground.shapes import Array
from bochner.errors import InvalidInput, InvalidType
from bochner.estimators.fitting.named import accepts_sparse
from bochner.estimators.fitting.state import forget

__all__ = ["fit_blocks_of", "is_foreign", "note_columns", "predict_blocks_of", "required_targets"]


def fit_blocks_of(model: BaseEstimator, X: Any, y: Any, sample_weight: Any, reset: bool) -> Blocks:
    """Return checked training data as blocks, and note names and numbers of columns on the model.

    Tables with text columns are one-hot encoded by a schema that the model keeps; other arrays of
    the array API standard stay in their library; all else passes scikit-learn's checks.
    """
    for array, name in ((X, "X"), (y, "y"), (sample_weight, "sample_weight")):
        refuse_masked(array, type(model).__name__, name)
    _require_switch(model)
    _refuse_odd_tables(X, type(model).__name__)
    if reset:
        _start_anew(model)
    if _has_text(X):
        return _table_blocks(model, X, y, sample_weight, reset)
    if is_foreign(X):
        blocks = Blocks.from_arrays(X, y, sample_weight)
        note_columns(model, blocks, reset)
        return blocks
    for array, name in ((X, "X"), (sample_weight, "sample_weight")):
        refuse_dates(array, type(model).__name__, name)
    sparse = "csr" if accepts_sparse(model.kernel) else False
    options = {"accept_sparse": sparse, "dtype": ["float64", "float32"], "reset": reset}
    if y is None:
        X = validate_data(model, X, **options)
    else:
        X, y = validate_data(model, X, y, multi_output=True, y_numeric=True, **options)
    if reset:
        model.schema_ = None
    if sample_weight is not None:
        sample_weight = _check_sample_weight(sample_weight, X, ensure_non_negative=True)
    return Blocks.from_arrays(X, y, sample_weight)


def predict_blocks_of(model: BaseEstimator, X: Any) -> Blocks:
    """Return checked rows to predict as blocks, encoded as the training data were.

    Blocks are taken as they are: read with the model's schema, or made of arrays.
    """
    if isinstance(X, Blocks):
        _check_width(model, X.n_columns)
        return X
    refuse_masked(X, type(model).__name__)
    _refuse_odd_tables(X, type(model).__name__)
    schema = getattr(model, "schema_", None)
    if schema is not None and _is_table(X):
        return Blocks.from_table(X, schema=schema.features_only())
    if schema is not None and schema.categories:
        raise InvalidInput(
            f"{type(model).__name__}: fitted on a table with text columns, so rows must come as a "
            f"table with the columns {', '.join(schema.columns)}; got {type(X).__name__}."
        )
    if is_foreign(X):
        blocks = Blocks.from_arrays(X)
        note_columns(model, blocks, reset=False)
        return blocks
    refuse_dates(X, type(model).__name__)
    X = validate_data(model, X, accept_sparse="csr", dtype=["float64", "float32"], reset=False)
    return Blocks.from_arrays(X)


def note_columns(model: BaseEstimator, blocks: Blocks, reset: bool) -> None:
    """Set, or compare with, what the model was fitted on."""
    _require_switch(model)
    if reset:
        _start_anew(model)
    schema = blocks.schema
    if schema is not None and schema.classes and not is_classifier(model):
        raise InvalidInput(
            f"{type(model).__name__}: target {schema.target!r} must hold numbers; got text "
            f"({listed(schema.classes)}). Code it as numbers first, or take a classifier."
        )
    columns = len(schema.columns) if schema is not None else blocks.n_columns
    if not reset and columns != model.n_features_in_:
        raise InvalidInput(
            f"X has {columns} features, but {type(model).__name__} is expecting "
            f"{model.n_features_in_} features as input."
        )
    if not reset:
        return
    model.n_features_in_ = columns
    model.schema_ = schema
    model.__dict__.pop("feature_names_in_", None)
    if schema is not None:
        model.feature_names_in_ = np.array(schema.columns, dtype=object)


def _start_anew(model: BaseEstimator) -> None:
    """Forget the fit before, unless a warm start may go on from it; it forgets where it cannot."""
    if not getattr(model, "warm_start", False):
        forget(model)


def _require_switch(model: BaseEstimator) -> None:
    """Refuse an intercept that is neither wanted nor not."""
    given = getattr(model, "fit_intercept", True)
    if not isinstance(given, bool | np.bool_):
        raise InvalidType(
            f"{type(model).__name__}: fit_intercept must be True or False; got {given!r}."
        )


def _refuse_odd_tables(X: Any, who: str) -> None:
    """Refuse a single column of a table, and tables with a name twice."""
    if hasattr(X, "to_frame") and hasattr(X, "dtype"):
        raise InvalidInput(
            f"{who}: X must have two dimensions, rows and at least one column; got a Series, which "
            "is one column. Pass X.to_frame()."
        )
    if _is_pandas(X) and not X.columns.is_unique:
        raise InvalidInput(
            f"{who}: the columns of X must have different names; got "
            f"{listed(repeated(X.columns.tolist()))} more than once. Rename or drop the repeated "
            "ones."
        )


def _check_width(model: BaseEstimator, columns: int) -> None:
    schema = getattr(model, "schema_", None)
    expected = model.n_features_in_ if schema is None else len(schema.feature_names)
    if columns != expected:
        raise InvalidInput(
            f"X has {columns} columns, but {type(model).__name__} is expecting {expected}. "
            "Read files and tables with schema=model.schema_."
        )


def _table_blocks(model: BaseEstimator, X: Any, y: Any, sample_weight: Any, reset: bool) -> Blocks:
    schema = None if reset else getattr(model, "schema_", None)
    table = Blocks.from_table(X, schema=None if schema is None else schema.features_only())
    note_columns(model, table, reset)
    rows = np.concatenate([block.X for block in table])
    y, sample_weight = (None if a is None else np.asarray(a) for a in (y, sample_weight))
    return Blocks.from_arrays(rows, y, sample_weight)


def _is_table(X: Any) -> bool:
    return hasattr(X, "__arrow_c_stream__") or _is_pandas(X)


def _is_pandas(X: Any) -> bool:
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(X, pandas.DataFrame)


def _has_text(X: Any) -> bool:
    """Whether X is a table that scikit-learn's checks would not read as numbers."""
    if not _is_table(X) or is_numpy(X):
        return False
    dtypes = getattr(X, "dtypes", None)
    if dtypes is None:
        return True  # an Arrow table or stream: read by the schema, whatever it holds
    return not all(getattr(t, "is_numeric", lambda t=t: t.kind in "iufbc")() for t in dtypes)


def is_foreign(X: Any) -> bool:
    """Whether X is an array of another library than NumPy (torch, array-api-strict, ...)."""
    if is_numpy(X) or is_sparse(X) or not hasattr(X, "shape") or _is_table(X):
        return False
    try:
        return "numpy" not in array_namespace(X).__name__.split(".")
    except TypeError:
        return False


def required_targets(who: str, y: Array | None) -> Array:
    """Return the targets of a block, which must be there."""
    if y is None:
        raise InvalidInput(
            f"{who}: requires y to be passed, but the target y is None; name it with target=... "
            "where the blocks are made."
        )
    return y
