"""Checks that a file describes a possible model: its size, its parts, and the whole model.

Each ``require_`` function raises TypeError or ValueError if its check fails.
"""

import copy
import dataclasses
import types
import typing
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache
from numbers import Integral, Real
from typing import Any

import numpy as np
import scipy.sparse

from bochner._core.shapes import shape_of
from bochner.data.blocks import Blocks
from bochner.data.sample import RowSample
from bochner.errors import BochnerError
from bochner.features.map import FeatureMap
from bochner.features.mercer import hermite
from bochner.kernels.kernel import Free, Kernel
from bochner.kernels.zonal import Monomials
from bochner.models._base import KernelEstimator
from bochner.models._calibration import Calibration
from bochner.models._html import FitSummary
from bochner.models.gaussian_process.exact import ExactProcess
from bochner.models.gaussian_process.grid import WaveProcess
from bochner.models.gaussian_process.law import KeptRows
from bochner.models.representations.leaves import LeafRows
from bochner.models.sgd.fit import SgdFit
from bochner.solvers.convex.problem import Optimum
from bochner.solvers.ridge.solution import Solution
from bochner.solvers.sgd import Walk
from bochner.sums.fourier import WaveSums
from bochner.sums.moments import Moments

# --- How much memory a file may ask for: in proportion to its size, before any of it is taken -----

#: Lists and objects within one another, at most. A sum of 100 kernels is 300 deep.
_MOST_NESTED = 600


def require_text(text: str | bytes, size: int) -> None:
    """Refuse JSON whose Python objects take far more memory than its file of ``size`` bytes.

    A list or object takes 200 bytes, and each item in it 64.
    """
    marks = ("[", "{", ",") if isinstance(text, str) else (b"[", b"{", b",")
    lists, objects, commas = (text.count(mark) for mark in marks)  # type: ignore[arg-type]
    _require_small(4 * len(text) + 200 * (lists + objects) + 64 * commas, size)


def require_nesting(value: Any, size: int) -> None:
    """Refuse JSON that is nested too deeply, or whose arrays of text would take too much memory.

    NumPy gives every text of an array as much room as the longest, four bytes a character.
    """
    level, depth, padded = [value], 0, 0
    while level:
        if depth > _MOST_NESTED:
            raise ValueError("JSON is nested too deeply")
        inner: list[Any] = []
        for item in level:
            if isinstance(item, list):
                inner += item
            elif isinstance(item, dict):
                inner += item.values()
                match item.get("text"):
                    case [*_, [*texts]]:
                        lengths = [len(text) for text in texts if isinstance(text, str)]
                        padded += 4 * len(texts) * max(lengths, default=0)
        _require_small(padded, size)
        level, depth = inner, depth + 1


def _require_small(taken: int, size: int) -> None:
    if taken > 10 * size + (1 << 25):
        raise ValueError(f"{taken} bytes are too much for a file of {size}")


def require_arrays(arrays: dict[str, np.ndarray]) -> None:
    """Refuse booleans other than 0 and 1, and empty arrays whose shape has a huge number.

    NumPy counts true values by adding bytes; with other bytes, writes would be out of bounds.
    """
    for name, array in arrays.items():
        if array.dtype == bool and array.size and array.view(np.uint8).max() > 1:
            raise ValueError(f"array {name} must hold 0 and 1 only")
        if array.size == 0 and max(array.shape) > 1 << 24:
            raise ValueError(f"array {name} has no elements and the shape {array.shape}")


# --- Whether the fields of a value are what its class says: types, and shapes that fit together

#: Sizes of the letters in shapes; None if shapes are not checked.
Sizes = dict[str, int] | None


def require_fields(value: Any) -> None:
    """Refuse a dataclass whose fields do not hold what their annotations say.

    If the arrays of a value index one another, a letter of a shape, as in ``Float[Array, "d m"]``,
    must mean the same number in all of them: in maps, moments, calibrations and kept rows.
    """
    kind: Any = type(value)
    consistent = Moments, RowSample, KeptRows, LeafRows, Calibration
    shaped = _is_part_of_map(kind) or kind in consistent
    sizes: Sizes = {} if shaped else None
    free = value.tunable if isinstance(value, Kernel) else ()
    # a free number stands for any: the check is of 1.0
    one = lambda number: 1.0 if isinstance(number, Free) else number
    for name, hint in _hints(kind):
        field = getattr(value, name)
        if name in free:
            field = tuple(map(one, field)) if isinstance(field, tuple) else one(field)
        if not fits(field, hint, sizes):
            raise TypeError(f"{name} of {kind.__name__} must be of type {hint}")


def _is_part_of_map(cls: type) -> bool:
    """Whether the class is a map or a part of one: not a method, nor the record of a choice."""
    module = cls.__module__
    return module.startswith("bochner.features.") and module != "bochner.features.auto"


@lru_cache(None)
def _hints(cls: Any) -> tuple[tuple[str, Any], ...]:
    hints = typing.get_type_hints(cls, include_extras=True)
    return tuple((f.name, hints[f.name]) for f in dataclasses.fields(cls) if f.init)


def fits(value: Any, hint: Any, sizes: Sizes) -> bool:  # noqa: PLR0911  one per kind
    """Return whether a value fits the annotation; record sizes of shape letters in ``sizes``."""
    if (shape := shape_of(hint)) is not None:
        return _is_shaped(value, shape.split(), sizes)
    origin, parts = typing.get_origin(hint) or hint, typing.get_args(hint)
    if origin is typing.Annotated:  # with a check of the field
        return fits(value, parts[0], sizes)
    if origin is Any:
        return True
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, part, sizes) for part in parts)
    if origin is typing.Literal:
        return isinstance(value, str) and value in parts
    if origin is tuple and type(value) is tuple:
        if len(parts) == 2 and parts[1] is Ellipsis:  # items may differ in shape
            return all(fits(item, parts[0], None if sizes is None else {}) for item in value)
        return len(value) == len(parts) and all(map(fits, value, parts, [sizes] * len(parts)))
    if origin is dict and type(value) is dict:
        pairs = [pair for item in value.items() for pair in zip(item, parts, strict=True)]
        return all(fits(*pair, None) for pair in pairs)
    if origin in (int, float) and isinstance(value, bool):
        return False
    return isinstance(value, _KINDS.get(origin, origin))


#: Types of values by their annotation, where they differ. No file holds functions.
_KINDS: dict[Any, Any] = {bool: bool | np.bool_, int: Integral, float: Real, Callable: Monomials}


def _is_shaped(value: Any, words: list[str], sizes: Sizes) -> bool:
    """Return whether ``value`` is a numeric array whose shape is given by ``words``."""
    if not isinstance(value, np.ndarray | np.generic) and not scipy.sparse.issparse(value):
        return False
    if value.dtype.kind not in "biuf" or sizes is None:
        return value.dtype.kind in "biuf"
    return len(words) == len(value.shape) and all(
        word == "_" or (int(word) if word.isdecimal() else sizes.setdefault(word, length)) == length
        for word, length in zip(words, value.shape, strict=True)
    )


# --- Numbers that predictions are made of must be numbers ----------------------------------------

#: Fields that must be finite. Fields of maps may hold infinity, as log 0, but no NaN.
_FIELDS: dict[type, tuple[str, ...]] = {
    Solution: ("coef", "intercept"),
    Optimum: ("coef", "intercept"),
    Walk: ("coef", "intercept", "mean_coef", "mean_intercept"),
    SgdFit: ("support",),
    WaveProcess: ("coef",),
    ExactProcess: ("coef", "intercept"),
    KeptRows: ("X", "y", "w", "priority"),
    WaveSums: ("weight", "origin", "total", "squares", "gram", "cross"),
    Moments: ("weight", "feature_mean", "target_mean", "gram", "cross", "power"),
}

#: The largest degree, depth or power: more would be work without an end. Larger values are allowed
#: in arrays with one value per feature.
_MOST_DEGREES = 10_000


def require_numbers(value: Any) -> None:
    """Refuse coefficients and sums that are not finite, NaN in maps, and kernels of huge degree."""
    for name in _FIELDS.get(type(value), ()):
        number = getattr(value, name)
        if number is not None and not is_finite(number):
            raise ValueError(f"{name} of {type(value).__name__} must be finite")
    if _is_part_of_map(type(value)) and any(_has_nan(part) for part in _parts(value)):
        raise ValueError(f"{type(value).__name__} must hold numbers")
    if isinstance(value, hermite.HermiteMap):
        degrees = np.asarray(value.indices)
        most = max(_MOST_DEGREES, degrees.size)
        if degrees.dtype.kind not in "iu" or not np.all((degrees >= 0) & (degrees <= most)):
            raise ValueError("indices of HermiteMap must be degrees")
    if isinstance(value, Kernel) and any(
        type(n) is int and n > _MOST_DEGREES for n in _parts(value)
    ):
        raise ValueError(f"{type(value).__name__} must have no number above {_MOST_DEGREES}")


def is_finite(value: Any) -> bool:
    """Whether an array or number is finite everywhere."""
    numbers = value.data if scipy.sparse.issparse(value) else value
    return bool(np.isfinite(numbers).all())


def _has_nan(part: Any) -> bool:
    if isinstance(part, tuple):
        return any(map(_has_nan, part))
    return isinstance(part, float | np.ndarray) and bool(np.isnan(part).any())


def _parts(value: Any) -> Iterator[Any]:
    return (getattr(value, f.name) for f in dataclasses.fields(value) if f.init)


# --- Sparse matrices, whose indices compiled code of SciPy does not check ------------------------


def compressed(kind: Any, data: Any, indices: Any, indptr: Any, shape: tuple[int, int]) -> Any:
    """Return a compressed sparse matrix whose parts fit one another and the shape."""
    if not all(type(n) is int and 0 <= n < 2**31 for n in shape):
        raise ValueError(f"{shape} is no shape of a sparse matrix")
    for part, kinds in ((data, "biuf"), (indices, "i"), (indptr, "i")):
        if not isinstance(part, np.ndarray) or part.ndim != 1 or part.dtype.kind not in kinds:
            raise TypeError("parts of a sparse matrix are vectors of numbers and of indices")
    if indices.dtype != indptr.dtype or indices.itemsize < 4:
        raise TypeError("indices of a sparse matrix are of one type, of 32 or 64 bits")
    matrix = kind((data, indices, indptr), shape=shape)
    matrix.check_format(full_check=True)
    return matrix


# --- Consistency: shapes agree and predict runs --------------------------------------------------


def require_learner(model: Any) -> None:
    """Refuse a fit of the wrong type, or whose parts disagree about columns or features."""
    fit = vars(model).get("fit_")
    if fit is None:
        return
    if not isinstance(fit, FitSummary) or not fits(fit.inputs.classes, np.ndarray | None, None):
        raise TypeError("fit_ must be a fit")
    parts = ("x_mean_", "x_weights_", "y_mean_", "y_weights_")
    for name in ("cluster_centers_", "eigenvectors_", *parts):
        if not is_finite(getattr(model, name, 0.0)):
            raise ValueError(f"{name} must be finite")
    part = lambda name: getattr(model, name, None)
    raw, schema = model.n_features_in_, part("schema_")
    columns = raw if schema is None else len(schema.feature_names)
    pairs = [(raw, max(1, raw)), (raw if schema is None else len(schema.columns), raw)]
    if (phi := part("map_")) is not None:
        pairs.append((phi.n_inputs, columns))
    if (moments := part("moments_")) is not None:
        pairs.append((moments.n_features, model.map_.n_features))
    if (sample := part("sample_")) is not None:
        pairs.append((sample.X.shape[1], columns))
    if (names := part("feature_names_in_")) is not None:
        pairs.append((names.shape, (raw,)))
    if (classes := part("classes_")) is not None:
        pairs.append((classes.shape, (len(set(classes.tolist())),)))
    for value, expected in pairs:
        if value != expected:
            raise ValueError(f"parts of the model disagree: {value} and {expected}")


def _require_decisions(f: np.ndarray, classes: np.ndarray) -> None:
    if max(2, f.shape[1]) != len(classes):
        raise ValueError(f"{f.shape[1]} decision values do not fit {len(classes)} classes")


def require_working(model: Any, size: int) -> None:
    """Refuse a map or fitted learner that cannot take rows; ``size`` is the size of its file.

    Errors of bochner's own pass: zero need not be in the domain of a kernel.
    """
    if isinstance(model, FeatureMap):
        phi: FeatureMap | None = model
        columns = model.n_inputs
        calls: list[Callable[[Any], Any]] = [model]
    elif isinstance(model, KernelEstimator) and hasattr(model, "n_features_in_"):
        model = copy.copy(model)
        schema, phi = getattr(model, "schema_", None), getattr(model, "map_", None)
        columns = model.n_features_in_ if schema is None else len(schema.feature_names)
        names = "predict", "transform", "decision_function", "predict_proba", "score_samples"
        calls = [getattr(model, name) for name in names if hasattr(model, name)]
        if hasattr(model, "classes_"):
            calls.append(lambda rows: _require_decisions(model._decisions(rows), model.classes_))
    else:
        return
    if phi is not None and min(phi.n_inputs, phi.n_features) < 0:
        raise ValueError("a map must have columns and features")
    for width in (columns, 0 if phi is None else phi.n_inputs + phi.n_features):
        if 3 * 4 * 8 * width > 10 * size + (1 << 26):  # three rows of four such arrays
            raise ValueError(f"{width} columns are too many for a file of {size} bytes")
    for n in (2, 3):  # parts that fit one number of rows alone do not fit
        zeros = np.zeros((n, columns))
        for call in calls:
            with warnings.catch_warnings(), np.errstate(all="ignore"), suppress(BochnerError):
                warnings.simplefilter("ignore", RuntimeWarning)
                call(zeros if phi is model else Blocks.from_arrays(zeros))
