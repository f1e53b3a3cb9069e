"""Python values as JSON and named arrays, and back.

JSON types are stored as they are. Every other value is an object with one key, its kind:
``{"tuple": [1, 2]}``, ``{"float": "inf"}``, ``{"array": ["7", "C"]}``.
Classes are named by module and name, ``{"class": ["models.ridge.fit:RidgeFit", {...}]}``, and
only frozen dataclasses, enumerations and estimators of bochner (`_MODULES`) are built.
"""

import dataclasses
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from enum import Enum
from functools import cached_property, partial
from importlib import import_module
from inspect import isabstract
from pkgutil import walk_packages
from types import BuiltinFunctionType, FunctionType, MappingProxyType, MethodType
from typing import Any

import numpy as np
import scipy.sparse

import bochner
from bochner.errors import InvalidType
from bochner.kernels.kernel import Kernel
from bochner.models._base import KernelEstimator
from bochner.persist.validate import compressed, require_fields, require_learner, require_numbers

Json = Any

#: Types of array elements that safetensors holds.
_NUMBERS = tuple(np.dtype(code).name for code in "?bhiqBHIQefd")
_SPARSE = {
    name: getattr(scipy.sparse, name)
    for name in ("csr_array", "csr_matrix", "csc_array", "csc_matrix")
}

#: Attributes of an estimator beside its parameters: the fit, and what ``set_output`` has set.
FITTED_STATE = {"fit_", "_sklearn_output_config"}


class NamedArrays:
    """Arrays of a value, named by where in it they are; the same array comes once."""

    def __init__(self) -> None:
        self.by_name: dict[str, np.ndarray] = {}
        # by id; the arrays are kept, or another could come to have the id
        self._known: dict[int, tuple[str, np.ndarray]] = {}

    def add(self, array: np.ndarray, name: str) -> str:
        """Return the name of the array; ``name`` if it is new."""
        if id(array) in self._known:
            return self._known[id(array)][0]
        if name in self.by_name:  # a name of the user's with a point in it
            name = f"{name}#{len(self.by_name)}"
        if array.dtype.name not in _NUMBERS:
            raise InvalidType(
                f"save: arrays must hold numbers or text; got one of type {array.dtype}. "
                "Convert the data to float64 and fit again."
            )
        self._known[id(array)] = name, array
        plain = array.T if _is_fortran(array) else array
        self.by_name[name] = np.asarray(plain, plain.dtype.newbyteorder("="), order="C")
        return name


def _is_fortran(array: np.ndarray) -> bool:
    return array.flags.f_contiguous and not array.flags.c_contiguous


# --- The classes that model files hold -----------------------------------------------------------

#: Modules whose classes are stored, with all modules inside these packages.
_MODULES = re.compile(
    r"(certificates|data\.(columns|encoders|sample|schema)|features|kernels|landmarks|models|selection"
    r"|solvers|sums)(\.[a-z0-9_]+)*"
)

#: Classes in older files that were renamed, and their names now.
RENAMED: dict[str, str] = {
    "FourierPhaseMap": "FourierMap",
    "LeverageFourierMap": "FourierMap",
    "SineMap": "EigenfunctionMap",
    "MonomialFunctions": "IndexedFunctions",
    "UserFunctions": "IndexedFunctions",
}


def is_estimator(cls: type) -> bool:
    """Return whether the class is an estimator, stored as parameters and fitted state."""
    return cls.__name__ in bochner.__all__ and issubclass(cls, KernelEstimator)


def name_of(cls: type) -> str | None:
    """Return the name of a class in files; None if files do not hold it."""
    package, _, module = cls.__module__.partition(".")
    frozen = dataclasses.is_dataclass(cls) and cls.__dataclass_params__.frozen  # type: ignore[attr-defined]
    stored = (frozen or issubclass(cls, Enum) or is_estimator(cls)) and not isabstract(cls)
    if package != "bochner" and stored and issubclass(cls, Kernel):
        return f"{cls.__module__}:{cls.__qualname__}"
    known = package == "bochner" and _MODULES.fullmatch(module) and stored
    return f"{module}:{cls.__qualname__}" if known else None


def class_of(name: str, user_kernels: Mapping[str, type]) -> Any:
    """Return the class of this name, also if its module has moved since; refuse others."""
    if name in user_kernels:
        return user_kernels[name]
    module, _, class_name = name.partition(":")
    class_name = RENAMED.get(class_name, class_name)
    if not _MODULES.fullmatch(module):
        raise TypeError(
            f"{name} is no class of model files; a kernel of your own is loaded by kernels=(...,)"
        )
    with suppress(ImportError, OSError, AttributeError):
        cls = getattr(import_module(f"bochner.{module}"), class_name)
        if isinstance(cls, type) and name_of(cls) == f"{module}:{class_name}":
            return cls
    for cls in stored_classes():  # the module has moved
        if cls.__name__ == class_name:
            return cls
    raise TypeError(f"{name} is no class of model files")


def stored_classes() -> Iterator[type]:
    """Give every class that files may hold, module by module."""
    for module in walk_packages(bochner.__path__, "bochner."):
        if _MODULES.fullmatch(module.name.removeprefix("bochner.")):
            for cls in vars(import_module(module.name)).values():
                if isinstance(cls, type) and cls.__module__ == module.name and name_of(cls):
                    yield cls


# --- Encoding ------------------------------------------------------------------------------------


def encode(value: Any, arrays: NamedArrays, at: str = "") -> Json:  # noqa: PLR0911  one per kind
    """Return ``value``, which is at this place, as JSON; its arrays go into ``arrays``."""
    kind = type(value)
    if value is None or kind in (bool, int, str):
        return value
    if kind is float:
        return value if math.isfinite(value) else {"float": repr(value)}
    if kind in (list, tuple):
        items = _parts(enumerate(value), arrays, at)
        return {"tuple": items} if kind is tuple else items
    if isinstance(value, dict):
        keys = [encode(key, arrays, at) for key in value]
        return {"dict": [*map(list, zip(keys, _parts(value.items(), arrays, at), strict=True))]}
    if isinstance(value, np.ndarray):
        if value.dtype.kind in "OU" and all(isinstance(item, str) for item in value.flat):
            text = "object" if value.dtype.kind == "O" else "str"
            return {"text": [text, list(value.shape), value.ravel().tolist()]}
        return {"array": [arrays.add(value, at or "value"), "F" if _is_fortran(value) else "C"]}
    if isinstance(value, np.generic):
        number = value.dtype.kind != "U"
        return {"scalar": arrays.add(np.asarray(value), at or "value")} if number else str(value)
    if kind.__name__ in _SPARSE and scipy.sparse.issparse(value):
        parts = ((part, getattr(value, part)) for part in ("data", "indices", "indptr"))
        return {"sparse": [kind.__name__, list(value.shape), *_parts(parts, arrays, at)]}
    return _of_class(value, arrays, at)


def _parts(parts: Iterable[tuple[Any, Any]], arrays: NamedArrays, at: str) -> list[Json]:
    """Return the parts, given with their names, of the value at this place."""
    return [encode(part, arrays, f"{at}.{name}".lstrip(".")) for name, part in parts]


def _of_class(value: Any, arrays: NamedArrays, at: str) -> Json:
    """Encode an instance of one of bochner's classes, or a user's kernel; refuse any other."""
    kind, name = type(value), name_of(type(value))

    def fields(state: Mapping[str, Any]) -> Json:
        names = sorted(state)
        parts = _parts(((name, state[name]) for name in names), arrays, at)
        return dict(zip(names, parts, strict=True))

    if is_estimator(kind):
        parameters = value.get_params(deep=False)
        cached = lambda k: isinstance(getattr(kind, k, None), cached_property)
        state = {k: v for k, v in vars(value).items() if k not in parameters and not cached(k)}
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


# --- Decoding ------------------------------------------------------------------------------------


def decode(  # noqa: PLR0911, PLR0912  one per kind
    item: Json,
    arrays: Mapping[str, np.ndarray],
    user_kernels: Mapping[str, type] = MappingProxyType({}),
) -> Any:
    """Return the value that :func:`encode` wrote; refuse any other.

    ``user_kernels`` are kernel classes from outside of bochner, by their names in files.
    """
    inner = lambda part: decode(part, arrays, user_kernels)
    values = lambda fields: {name: inner(part) for name, part in fields.items()}
    if isinstance(item, list):
        return list(map(inner, item))
    if not isinstance(item, dict):
        return item
    ((kind, content),) = item.items()
    cls: Any = (
        class_of(content[0], user_kernels) if kind in ("class", "enum", "estimator") else None
    )
    match kind:
        case "tuple":
            return tuple(map(inner, content))
        case "dict":
            return {inner(key): inner(part) for key, part in content}
        case "float" if content in ("nan", "inf", "-inf"):  # other numbers stand for themselves
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
            return compressed(_SPARSE[name], data, indices, indptr, (rows, columns))
        case "enum" if issubclass(cls, Enum):
            return cls[content[1]]
        case "class" if dataclasses.is_dataclass(cls):
            name, fields = content
            value: Any = cls(**values(fields))  # type: ignore[operator]
            require_fields(value)
            require_numbers(value)
            return value
        case "estimator" if is_estimator(cls):
            name, parameters, state = content
            model = cls(**values(parameters))
            if not {*state} <= FITTED_STATE:
                raise TypeError(f"{name} has no such fitted state")
            vars(model).update(values(state))
            require_learner(model)
            return model
    raise TypeError(f"a value of the kind {kind[:20]!r} must be as save writes it")
