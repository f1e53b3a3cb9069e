"""Whether what was read from a file works: its parts fit one another, and it takes rows."""

import copy
import types
import warnings
from typing import Any, Literal

import numpy as np
from sklearn.base import BaseEstimator

from bochner.data.blocks import Blocks
from bochner.data.sample import RowSample
from bochner.data.schema import Schema
from bochner.errors import BochnerError
from bochner.features import FeatureMap
from bochner.kernels import Kernel
from bochner.persist.fields import fits
from bochner.persist.finite import FITTED, is_finite
from bochner.solvers.convex.optimum import Optimum
from bochner.solvers.ridge.solution import Solution
from bochner.sums.moments import Moments

#: What fitted state is, of every learner that has it.
_STATE: dict[str, Any] = {
    "classes_": np.ndarray,
    "feature_dtype_": Literal["float32", "float64"],
    "feature_names_in_": np.ndarray,
    "kernel_": Kernel,
    "kernel_y_": Kernel,
    "map_": FeatureMap,
    "map_y_": FeatureMap,
    "moments_": Moments,
    "n_features_in_": int,
    "sample_": RowSample | None,
    "schema_": Schema | None,
    "solution_": Solution | Optimum,
    "target_shape_": tuple[int, ...],
}

#: What these rows may take on their way through a model, beside a multiple of the file's size.
_BYTES, _TIMES = 1 << 26, 10

#: Numbers of rows that a model is tried on: parts that fit one of them alone do not fit.
_ROWS = (2, 3)

#: Arrays of 8 bytes as wide as the features that a row may need at once.
_ARRAYS = 4

_CALLS = ("predict", "transform", "decision_function", "predict_proba", "score_samples")


def require_learner(model: Any, fitted: dict[str, Any]) -> None:
    """Refuse fitted state under the name of a method, of the wrong type, or that does not fit.

    Raises
    ------
    TypeError, ValueError
        There is such.
    """
    for name, value in fitted.items():
        if not name.isidentifier() or name.startswith("__") or hasattr(type(model), name):
            raise TypeError(f"{name} is no name of fitted state")
        if name in _STATE and not fits(value, _STATE[name], None):
            raise TypeError(f"{name} must be of type {_STATE[name]}")
        if name in FITTED and not is_finite(value):
            raise ValueError(f"{name} must be finite")
    if "fit_" in fitted:
        _require_alike(_state_of(fitted["fit_"]))
    elif fitted:
        _require_alike(types.SimpleNamespace(**fitted))


def _state_of(fit: Any) -> types.SimpleNamespace:
    """Return what parts of a fitted value must agree about."""
    inputs, summed = fit.inputs, getattr(fit, "summed", None)
    parts = {
        "n_features_in_": inputs.n_features_in,
        "schema_": inputs.schema,
        "map_": fit.chosen.map,
        "classes_": inputs.classes,
        "feature_names_in_": None if inputs.names is None else np.array(inputs.names),
    }
    if summed is not None:
        parts |= {"moments_": summed.moments, "sample_": summed.sample}
    return types.SimpleNamespace(**parts)


def _require_alike(state: Any) -> None:
    """Refuse parts that disagree about columns, features, targets or classes."""
    schema, phi = getattr(state, "schema_", None), getattr(state, "map_", None)
    raw = state.n_features_in_
    columns = raw if schema is None else len(schema.feature_names)
    pairs = [(raw, max(1, raw)), (raw if schema is None else len(schema.columns), raw)]
    if phi is not None:
        pairs.append((phi.n_inputs, columns))
    if (moments := getattr(state, "moments_", None)) is not None:
        pairs.append((moments.n_features, state.map_.n_features))
    if (sample := getattr(state, "sample_", None)) is not None:
        pairs.append((sample.X.shape[1], columns))
    if (names := getattr(state, "feature_names_in_", None)) is not None:
        pairs.append((names.shape, (raw,)))
    if (classes := getattr(state, "classes_", None)) is not None:
        pairs.append((classes.shape, (len(set(classes.tolist())),)))
    for found, expected in pairs:
        if found != expected:
            raise ValueError(f"parts of the model disagree: {found} and {expected}")


def require_working(model: Any, size: int) -> None:
    """Refuse a map or fitted learner that cannot take rows; ``size`` is that of its file.

    Errors of bochner's own pass: zero need not be in the domain of a kernel.

    Raises
    ------
    Exception
        Whatever went wrong within.
    """
    if isinstance(model, FeatureMap):
        _require_narrow(model, size)
        for n in _ROWS:
            _tried(model, np.zeros((n, model.n_inputs)))
    elif isinstance(model, BaseEstimator) and hasattr(model, "n_features_in_"):
        _require_predictions(copy.copy(model), size)


def _require_predictions(model: Any, size: int) -> None:
    schema, phi = getattr(model, "schema_", None), getattr(model, "map_", None)
    if phi is not None:
        _require_narrow(phi, size)
    columns = model.n_features_in_ if schema is None else len(schema.feature_names)
    _require_room(columns, size)
    for n in _ROWS:
        rows = Blocks.from_arrays(np.zeros((n, columns)))
        for name in _CALLS:
            if hasattr(model, name):
                _tried(getattr(model, name), rows)


def _require_narrow(phi: FeatureMap, size: int) -> None:
    if min(phi.n_inputs, phi.n_features) < 0:
        raise ValueError("a map must have columns and features")
    _require_room(phi.n_inputs + phi.n_features, size)


def _require_room(width: int, size: int) -> None:
    if 8 * max(_ROWS) * _ARRAYS * width > _TIMES * size + _BYTES:
        raise ValueError(f"{width} columns and features are too many for a file of {size} bytes")


def _tried(call: Any, rows: Any) -> None:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)
        try:
            call(rows)
        except BochnerError:
            return
