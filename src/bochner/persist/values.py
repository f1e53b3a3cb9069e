"""Python values as JSON and named arrays, and back.

JSON types are stored as they are. Every other value is an object with one key, its kind:
``{"tuple": [1, 2]}``, ``{"float": "inf"}``, ``{"array": ["7", "C"]}`` (array "7" in C order).
Classes are named by module and name, ``{"class": ["models.ridge.fit:RidgeFit", {...}]}``, and
only frozen dataclasses, enumerations and estimators of bochner (`_MODULES`) are built.
A value raises an error if its fields do not have the declared types or could crash compiled code.
"""

import dataclasses
import math
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from enum import Enum
from functools import cached_property, lru_cache, partial
from importlib import import_module
from inspect import isabstract
from numbers import Integral, Real
from pkgutil import walk_packages
from types import BuiltinFunctionType, FunctionType, MappingProxyType, MethodType
from typing import Any

import numpy as np
import scipy.sparse

import bochner
from bochner._core.shapes import shape_of
from bochner.errors import InvalidType
from bochner.features.mercer.products import HermiteMap
from bochner.kernels.hyperparameters import Free
from bochner.kernels.kernel import Kernel
from bochner.kernels.zonal import Monomials
from bochner.models._base import FitSummary, KernelEstimator
from bochner.sums.moments import Accumulator

Json = Any

_SPARSE = {
    name: getattr(scipy.sparse, name)
    for name in ("csr_array", "csr_matrix", "csc_array", "csc_matrix")
}


# --- The classes that model files hold -----------------------------------------------------------

#: Modules whose classes are stored, with all modules inside these packages.
_MODULES = re.compile(
    r"(certificates|data\.(columns|encoders|sample|schema)|features|kernels|landmarks|models|selection"
    r"|solvers|sums)(\.[a-z0-9_]+)*"
)

#: Names in older files of classes and fields that were renamed, with their present names.
RENAMED: dict[str, str] = {
    "Clustering.seen": "weights",
    "CompressedMap": "ProjectedMap",
    "ConstantMap": "LinearMap",
    "DotProduct.series": "terms",
    "FeatureSums.moments": "sums",
    "LeftOut": "ResidualVariance",
    "MonomialMap.weights": "amplitudes",
    "SineMap": "EigenfunctionMap",
    "Solution.path": "criteria",
    "SquaredEpsilonInsensitive": "EpsilonInsensitive",
}
RENAMED |= dict.fromkeys(("ModulatedMap", "OnInputs", "ScaledMap", "WindowsMap"), "DerivedMap")
RENAMED |= dict.fromkeys(("FourierPhaseMap", "LeverageFourierMap"), "FourierMap")
RENAMED |= dict.fromkeys(("MonomialFunctions", "UserFunctions"), "IndexedFunctions")
RENAMED |= {"Chosen": "Choices", "PrincipalComponents.summed": "sums", "Tried": "WidthTrial"}
RENAMED |= {"KernelComparison.deviation": "required", "KernelComparison.taken": "chosen"}
RENAMED |= {"KernelComparison.tuned": "n_tuned", "BelowZero": "ZeroHinge", "Given": "Points"}
RENAMED |= {"Hashed": "Hadamard", "KeptRows": "FitRows", "LeftOutRows": "HeldOutRows"}
RENAMED |= dict.fromkeys(("FeatureSpec.who", "FeatureSums.who", "GridSums.who"), "caller")
RENAMED |= {"LeafRows.across": "landmark_coef", "LeafRows.judged": "held_out"}
RENAMED |= {"HeldOutPath.none": "tie", "FeatureSpec.waves": "modes", "SquaredHinge": "Hinge"}
RENAMED |= dict.fromkeys(("FeatureSums.most", "GridSums.most"), "max_weight")
RENAMED |= {"Tuning.compared": "candidates", "Walk.averaged": "n_averaged"}
RENAMED["Projected.how"] = "projection"
RENAMED |= {"Distribution.below": "low_tail", "Distribution.above": "high_tail"}
RENAMED |= {"WaveProcess": "ModeProcess", "WaveSums": "ModeSums", "SignMap": "ReLUMap"}

#: Fields of older files that were removed, by class.
REMOVED = dict.fromkeys(("Clustering", "Correlations", "FeaturesFit"), "spec")
REMOVED |= {"Solution": "residual_variance", "ConstantMap": "value", "ScaledMap": "scale"}
REMOVED |= {"GegenbauerMap": "components"}


def is_estimator(cls: type) -> bool:
    """Return whether the class is an estimator, stored as parameters and fitted state."""
    return cls.__name__ in bochner.__all__ and issubclass(cls, KernelEstimator)


def name_of(cls: type) -> str | None:
    """Return the name of a class in files; None if files do not hold it."""
    package, _, module = cls.__module__.partition(".")
    is_frozen = dataclasses.is_dataclass(cls) and cls.__dataclass_params__.frozen  # type: ignore[attr-defined]
    is_value = (is_frozen or issubclass(cls, Enum) or is_estimator(cls)) and not isabstract(cls)
    if package != "bochner" and is_value and issubclass(cls, Kernel):
        return f"{cls.__module__}:{cls.__qualname__}"
    is_stored = package == "bochner" and _MODULES.fullmatch(module) and is_value
    return f"{module}:{cls.__qualname__}" if is_stored else None


@lru_cache(None)
def class_of(name: str) -> Any:
    """Return the class of this name, also if its module was moved; TypeError for other names."""
    module, _, class_name = name.partition(":")
    class_name = RENAMED.get(class_name, class_name)
    if not _MODULES.fullmatch(module):
        raise TypeError(
            f"{name} is not a class of model files; pass kernels=(...,) for a kernel of your own"
        )
    with suppress(ImportError, OSError, AttributeError):
        cls = getattr(import_module(f"bochner.{module}"), class_name)
        if isinstance(cls, type) and name_of(cls) == f"{module}:{class_name}":
            return cls
    for cls in stored_classes():  # the module was moved
        if cls.__name__ == class_name:
            return cls
    raise TypeError(f"{name} is not a class of model files")


def stored_classes() -> Iterator[type]:
    """Yield every class that files may contain, by module."""
    for module in walk_packages(bochner.__path__, "bochner."):
        if _MODULES.fullmatch(module.name.removeprefix("bochner.")):
            for cls in vars(import_module(module.name)).values():
                if isinstance(cls, type) and cls.__module__ == module.name and name_of(cls):
                    yield cls


def encode(value: Any) -> tuple[Json, dict[str, np.ndarray]]:
    """Return ``value`` as JSON, and its arrays by path; equal objects are stored once."""
    arrays: dict[str, np.ndarray] = {}
    # by id; the arrays are kept alive, so that no other array gets the same id
    names: dict[int, tuple[str, np.ndarray]] = {}

    def add(array: np.ndarray, name: str) -> str:
        """Store the array as ``name`` unless it is already stored; return its stored name."""
        if id(array) in names:
            return names[id(array)][0]
        if name in arrays:  # a user's name with a point
            name = f"{name}#{len(arrays)}"
        if array.dtype.char not in "?bhilqBHILQefd":  # types of safetensors
            raise InvalidType(
                f"save: arrays must hold numbers or text; got one of type {array.dtype}. "
                "Convert the data to float64 and fit again."
            )
        names[id(array)] = name, array
        matrix = array.T if array.flags.fnc else array
        arrays[name] = np.asarray(matrix, matrix.dtype.newbyteorder("="), order="C")
        return name

    return _as_json(value, "", add), arrays


def _as_json(value: Any, path: str, add: Callable[[Any, str], str]) -> Json:  # noqa: PLR0911, PLR0912
    """Return the ``value`` at this path as JSON; ``add`` stores its arrays."""
    kind = type(value)
    if value is None or kind in (bool, int, str):
        return value
    if kind is float:
        return value if math.isfinite(value) else {"float": repr(value)}
    parts = lambda pairs: [_as_json(v, f"{path}.{name}".lstrip("."), add) for name, v in pairs]
    fields = lambda state: dict(zip(sorted(state), parts(sorted(state.items())), strict=True))
    if kind in (list, tuple):
        items = parts(enumerate(value))
        return {"tuple": items} if kind is tuple else items
    if isinstance(value, dict):
        keys = [_as_json(key, path, add) for key in value]
        return {"dict": [*map(list, zip(keys, parts(value.items()), strict=True))]}
    if isinstance(value, np.ndarray):
        if value.dtype.kind in "OU" and all(isinstance(item, str) for item in value.flat):
            text = "object" if value.dtype.kind == "O" else "str"
            return {"text": [text, list(value.shape), value.ravel().tolist()]}
        return {"array": [add(value, path or "value"), "F" if value.flags.fnc else "C"]}
    if isinstance(value, np.generic):
        number = value.dtype.kind != "U"
        return {"scalar": add(np.asarray(value), path or "value")} if number else str(value)
    if kind.__name__ in _SPARSE and scipy.sparse.issparse(value):
        vectors = ((part, getattr(value, part)) for part in ("data", "indices", "indptr"))
        return {"sparse": [kind.__name__, list(value.shape), *parts(vectors)]}
    if kind is Accumulator:
        return {"sum": fields(value.__getstate__())}
    name = name_of(kind)
    if is_estimator(kind):
        parameters = value.get_params(deep=False)
        is_cache = lambda k: isinstance(getattr(kind, k, None), cached_property)
        state = {k: v for k, v in vars(value).items() if k not in parameters and not is_cache(k)}
        return {"estimator": [name, fields(parameters), fields(state)]}
    if isinstance(value, FunctionType | BuiltinFunctionType | MethodType | np.ufunc | partial):
        raise InvalidType(
            f"save: a model file cannot hold a function, and this model has "
            f"{getattr(value, '__qualname__', value)!s}. Keep the model with pickle for your own "
            "use, or transform the rows yourself before fit and predict."
        )
    if name is None:
        raise InvalidType(
            f"save: a model must be made of bochner's own classes, numbers, text and arrays; "
            f"got a part of type {kind.__module__}.{kind.__qualname__}. "
            "Replace it (a random_state by an integer), or keep the model with skops or pickle."
        )
    if isinstance(value, Enum):
        return {"enum": [name, value.name]}
    state = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.init}
    return {"class": [name, fields(state)]}


def decode(  # noqa: PLR0911, PLR0912  one per kind
    item: Json,
    arrays: Mapping[str, np.ndarray],
    user_kernels: Mapping[str, type] = MappingProxyType({}),
) -> Any:
    """Return the value that :func:`encode` wrote, with kernel classes of the user by name."""
    inner = lambda part: decode(part, arrays, user_kernels)
    values = lambda fields: {name: inner(part) for name, part in fields.items()}
    if isinstance(item, list):
        return list(map(inner, item))
    if not isinstance(item, dict):
        return item
    ((kind, content),) = item.items()
    cls: Any = None
    if kind in ("class", "enum", "estimator"):
        cls = user_kernels.get(content[0]) or class_of(content[0])
    match kind:
        case "tuple":
            return tuple(map(inner, content))
        case "dict":
            return {inner(key): inner(part) for key, part in content}
        case "float" if content in ("nan", "inf", "-inf"):  # other numbers are JSON numbers
            return float(content)
        case "scalar" if arrays[content].shape == ():
            return arrays[content][()]
        case "array":
            name, order = content
            return {"C": arrays[name], "F": arrays[name].T}[order]
        case "text":
            dtype, shape, items = content
            if not all(type(n) is int and n >= 0 for n in shape):
                raise ValueError("lengths of axes are whole numbers")
            if not all(isinstance(text, str) for text in items):
                raise TypeError("an array of text holds text")
            return np.array(items, dtype={"object": object, "str": str}[dtype]).reshape(shape)
        case "sparse":
            name, (rows, columns), *parts = content
            data, indices, indptr = map(inner, parts)
            return sparse_matrix(_SPARSE[name], data, indices, indptr, (rows, columns))
        case "enum" if issubclass(cls, Enum):
            return cls[content[1]]
        case "sum":  # of a checkpoint
            total = Accumulator()
            vars(total).update(values(content))
            return total
        case "class" if dataclasses.is_dataclass(cls):
            name, fields = content
            short = name.rpartition(":")[2]
            state = {key: part for key, part in fields.items() if key != REMOVED.get(short)}
            fields = {RENAMED.get(f"{short}.{key}", key): part for key, part in state.items()}
            value: Any = cls(**values(fields))  # type: ignore[operator]
            require_fields(value)
            return value
        case "estimator" if is_estimator(cls):
            name, parameters, state = content
            model = cls(**values(parameters))
            if not {*state} <= {"fit_", "_sklearn_output_config"}:  # the latter by ``set_output``
                raise TypeError(f"{name} has no such fitted state")
            vars(model).update(values(state))
            require_learner(model)
            return model
    raise TypeError(f"a value of the kind {kind[:20]!r} must be as save writes it")


# --- Checks of fields against their annotations: types, shapes and numbers ------------------------

#: Sizes of the letters in shapes.
Sizes = dict[str, int]

#: Fields of fits, solutions and sums that must be finite. Fields of maps may be infinite, as log 0,
#: but not NaN.
_FINITE = re.compile(
    "X|y|w|weight|coef|intercept|mean_coef|mean_intercept|support|priority"
    "|feature_mean|target_mean|gram|cross|power|origin|total|squares"
    "|a|b|centres|eigenvectors|x_mean|y_mean"
)

#: The largest degree, depth or power: larger ones would take too long. Arrays with one value per
#: feature may have larger values.
_MAX_DEGREES = 10_000


def require_fields(value: Any) -> None:
    """Check the fields of a dataclass against their annotations.

    A letter of a shape, such as n, must stand for the same size in all fields.
    """
    kind: Any = type(value)
    is_map = re.match(r"bochner\.features\.(?!auto$)", kind.__module__) is not None
    is_sum = re.match(r"bochner\.(models|solvers|sums)\.", kind.__module__) is not None
    sizes: Sizes = {}
    free = value.tunable if isinstance(value, Kernel) else ()
    # a free parameter is checked as 1.0
    fixed = lambda number: 1.0 if isinstance(number, Free) else number
    for name, annotation in _annotations(kind):
        field = getattr(value, name)
        if name in free:
            field = tuple(map(fixed, field)) if isinstance(field, tuple) else fixed(field)
        if not matches(field, annotation, sizes):
            raise TypeError(f"{name} of {kind.__name__} must be of type {annotation}")
        if is_sum and _FINITE.fullmatch(name) and _holds(lambda x: ~np.isfinite(x), field):
            raise ValueError(f"{name} of {kind.__name__} must be finite")
        if is_map and _holds(np.isnan, field):
            raise ValueError(f"{name} of {kind.__name__} must hold numbers")
        if isinstance(value, Kernel) and type(field) is int and field > _MAX_DEGREES:
            raise ValueError(f"{kind.__name__} must have no number above {_MAX_DEGREES}")
    if isinstance(value, HermiteMap):
        degrees = np.asarray(value.indices)
        limit = max(_MAX_DEGREES, degrees.size)
        if degrees.dtype.kind not in "iu" or not np.all((degrees >= 0) & (degrees <= limit)):
            raise ValueError("indices of HermiteMap must be degrees")


@lru_cache(None)
def _annotations(cls: Any) -> tuple[tuple[str, Any], ...]:
    annotations = typing.get_type_hints(cls, include_extras=True)
    return tuple((f.name, annotations[f.name]) for f in dataclasses.fields(cls) if f.init)


def matches(value: Any, annotation: Any, sizes: Sizes) -> bool:  # noqa: PLR0911  one per kind
    """Return whether a value fits the annotation; record sizes of shape letters in ``sizes``."""
    if (shape := shape_of(annotation)) is not None:
        return _is_shaped(value, shape.split(), sizes)
    origin, parts = typing.get_origin(annotation) or annotation, typing.get_args(annotation)
    if origin is typing.Annotated:  # with a check of the field
        return matches(value, parts[0], sizes)
    if origin is Any:
        return True
    if origin in (typing.Union, types.UnionType):
        return any(matches(value, part, sizes) for part in parts)
    if origin is typing.Literal:
        return isinstance(value, str) and value in parts
    if origin is tuple and type(value) is tuple:
        if len(parts) == 2 and parts[1] is Ellipsis:  # items may differ in shape
            return all(matches(item, parts[0], {}) for item in value)
        return len(value) == len(parts) and all(map(matches, value, parts, [sizes] * len(parts)))
    if origin is dict and type(value) is dict:
        pairs = [pair for item in value.items() for pair in zip(item, parts, strict=True)]
        return all(matches(*pair, {}) for pair in pairs)
    if origin in (int, float) and isinstance(value, bool):
        return False
    return isinstance(value, _KINDS.get(origin, origin))


#: Types of values by their annotation, where they differ. No file holds functions.
_KINDS: dict[Any, Any] = {bool: bool | np.bool_, int: Integral, float: Real, Callable: Monomials}


def _is_shaped(value: Any, dimensions: list[str], sizes: Sizes) -> bool:
    """Return whether ``value`` is a numeric array of this shape: sizes, letters, or _ for any."""
    if not isinstance(value, np.ndarray | np.generic) and not scipy.sparse.issparse(value):
        return False
    if value.dtype.kind not in "biuf" or len(dimensions) != len(value.shape):
        return False
    return all(
        word == "_" or (int(word) if word.isdecimal() else sizes.setdefault(word, length)) == length
        for word, length in zip(dimensions, value.shape, strict=True)
    )


def _holds(test: Callable[[Any], Any], value: Any) -> bool:
    """Whether ``test`` is true of any number in an array or tuple; False for other types."""
    if isinstance(value, tuple):
        return any(_holds(test, part) for part in value)
    numbers = value.data if scipy.sparse.issparse(value) else value
    return isinstance(numbers, np.ndarray | np.number | float) and bool(test(numbers).any())


# --- Sparse matrices: SciPy's compiled code does not check indices -------------------------------


def sparse_matrix(kind: Any, data: Any, indices: Any, indptr: Any, shape: tuple[int, int]) -> Any:
    """Return a compressed sparse matrix; raise an error if its parts or shape do not fit."""
    if not all(type(n) is int and 0 <= n < 2**31 for n in shape):
        raise ValueError(f"{shape} is not the shape of a sparse matrix")
    for part, kinds in ((data, "biuf"), (indices, "i"), (indptr, "i")):
        if not isinstance(part, np.ndarray) or part.ndim != 1 or part.dtype.kind not in kinds:
            raise TypeError("parts of a sparse matrix are vectors of numbers and of indices")
    if indices.dtype != indptr.dtype or indices.itemsize < 4:
        raise TypeError("indices of a sparse matrix are of one type, of 32 or 64 bits")
    if (indptr[1:] < indptr[:-1]).any():  # SciPy checks only rows with entries
        raise ValueError("the index pointer of a sparse matrix must be non-decreasing")
    matrix = kind((data, indices, indptr), shape=shape)
    matrix.check_format(full_check=True)
    return matrix


# --- Consistency: shapes agree and predict runs --------------------------------------------------


def require_learner(model: Any) -> None:
    """Raise an error for a fit of the wrong type or with inconsistent columns or features."""
    fit = vars(model).get("fit_")
    if fit is None:
        return
    if not isinstance(fit, FitSummary) or not isinstance(fit.inputs.classes, np.ndarray | None):
        raise TypeError("fit_ must be a fit")
    inputs, part = fit.inputs, lambda name: getattr(model, name, None)
    raw, schema, columns = inputs.n_features_in, inputs.schema, inputs.n_columns
    pairs: list[Any] = [(raw, max(1, raw)), (raw if schema is None else len(schema.columns), raw)]
    if (phi := part("map_")) is not None:
        pairs.append((phi.n_inputs, columns))
    rows = getattr(getattr(fit, "law", fit), "representation", None)
    has_sums = getattr(rows, "sums", fit) is not None  # moments of few rows are formed on demand
    if has_sums and (moments := part("moments_")) is not None:
        pairs.append((moments.n_features, model.map_.n_features))
    if (sample := part("sample_")) is not None:
        pairs.append((sample.X.shape[1], columns))
    if inputs.names is not None:
        pairs.append((len(inputs.names), raw))
    if inputs.classes is not None:
        pairs.append((inputs.classes.shape, (len(set(inputs.classes.tolist())),)))
    for value, expected in pairs:
        if value != expected:
            raise ValueError(f"parts of the model disagree: {value} and {expected}")
