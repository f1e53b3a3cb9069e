"""Python values as JSON and named arrays, and back.

JSON types are stored as they are. Every other value is an object with one key, its kind:
``{"tuple": [1, 2]}``, ``{"float": "inf"}``, ``{"array": ["7", "C"]}``.
Classes are named by module and name, ``{"class": ["models.ridge.fit:RidgeFit", {...}]}``, and
only classes of `bochner.persist.known` are built.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cached_property, partial, singledispatch
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import numpy as np
import scipy.sparse

from bochner.errors import InvalidType
from bochner.persist.known import class_of, is_estimator, name_of
from bochner.persist.validate import (
    compressed,
    require_fields,
    require_learner,
    require_numbers,
)

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
        self._path: list[str] = []

    def add(self, array: np.ndarray) -> str:
        """Return the name of the array."""
        if id(array) in self._known:
            return self._known[id(array)][0]
        name = ".".join(self._path) or "value"
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

    def encoded(self, name: object, value: Any) -> Json:
        """Return the part of this name as JSON."""
        self._path.append(str(name))
        try:
            return encode(value, self)
        finally:
            self._path.pop()


def _is_fortran(array: np.ndarray) -> bool:
    return array.flags.f_contiguous and not array.flags.c_contiguous


# --- Encoding ------------------------------------------------------------------------------------


@singledispatch
def encode(value: Any, arrays: NamedArrays) -> Json:
    """Return ``value`` as JSON; its arrays go into ``arrays``."""
    name = name_of(type(value))
    if is_estimator(type(value)):
        parameters = value.get_params(deep=False)
        cached = lambda k: isinstance(getattr(type(value), k, None), cached_property)
        state = {k: v for k, v in vars(value).items() if k not in parameters and not cached(k)}
        return {"estimator": [name, _fields(parameters, arrays), _fields(state, arrays)]}
    if isinstance(value, FunctionType | BuiltinFunctionType | MethodType | np.ufunc | partial):
        raise InvalidType(
            f"save: a model file cannot hold a function, and this model has "
            f"{getattr(value, '__qualname__', value)!s}. Keep the model with pickle for your own "
            "use, or transform the rows yourself before fit and predict."
        )
    if name is None:
        raise InvalidType(
            f"save: a model must be made of bochner's own classes, numbers, text and arrays; "
            f"got a part of type {type(value).__module__}.{type(value).__qualname__}. "
            "Replace it (a random_state by an integer), or keep the model with skops or pickle."
        )
    if isinstance(value, Enum):
        return {"enum": [name, value.name]}
    state = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.init}
    return {"class": [name, _fields(state, arrays)]}


def _fields(state: Mapping[str, Any], arrays: NamedArrays) -> Json:
    return {name: arrays.encoded(name, state[name]) for name in sorted(state)}


@encode.register(type(None))
@encode.register(bool)
@encode.register(int)
@encode.register(str)
def _(value: bool | int | str | None, _arrays: NamedArrays) -> Json:
    return value


@encode.register
def _(value: float, _arrays: NamedArrays) -> Json:
    return value if math.isfinite(value) else {"float": repr(value)}


@encode.register(list)
@encode.register(tuple)
def _(value: list | tuple, arrays: NamedArrays) -> Json:
    if isinstance(value, tuple) and type(value) is not tuple:
        return encode.dispatch(object)(value, arrays)
    items = [arrays.encoded(i, item) for i, item in enumerate(value)]
    return {"tuple": items} if isinstance(value, tuple) else items


@encode.register
def _(value: dict, arrays: NamedArrays) -> Json:
    return {"dict": [[encode(k, arrays), arrays.encoded(k, v)] for k, v in value.items()]}


@encode.register
def _(value: np.ndarray, arrays: NamedArrays) -> Json:
    if value.dtype.kind in "OU" and all(isinstance(item, str) for item in value.flat):
        kind = "object" if value.dtype.kind == "O" else "str"
        return {"text": [kind, list(value.shape), value.ravel().tolist()]}
    return {"array": [arrays.add(value), "F" if _is_fortran(value) else "C"]}


@encode.register
def _(value: np.generic, arrays: NamedArrays) -> Json:
    return str(value) if value.dtype.kind == "U" else {"scalar": arrays.add(np.asarray(value))}


@encode.register
def _(value: scipy.sparse.sparray | scipy.sparse.spmatrix, arrays: NamedArrays) -> Json:
    name = type(value).__name__
    if name not in _SPARSE:
        return encode.dispatch(object)(value, arrays)
    parts = (arrays.encoded(part, getattr(value, part)) for part in ("data", "indices", "indptr"))
    return {"sparse": [name, list(value.shape), *parts]}


# --- Decoding ------------------------------------------------------------------------------------


def decode(item: Json, arrays: Mapping[str, np.ndarray]) -> Any:
    """Return the value that :func:`encode` wrote."""
    if isinstance(item, list):
        return [decode(part, arrays) for part in item]
    if not isinstance(item, dict):
        return item
    ((key, content),) = item.items()
    return _DECODERS[key](content, arrays)


def _array(content: Json, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    name, order = content
    if order not in ("C", "F"):
        raise ValueError("arrays are in the order C or F")
    return arrays[name].T if order == "F" else arrays[name]


def _scalar(content: Json, arrays: Mapping[str, np.ndarray]) -> Any:
    if arrays[content].shape != ():
        raise ValueError("a scalar has no axes")
    return arrays[content][()]


def _text(content: Json, _arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    kind, shape, items = content
    if not all(type(n) is int and n >= 0 for n in shape):
        raise ValueError("lengths of axes are whole numbers")
    if not all(isinstance(item, str) for item in items):
        raise TypeError("an array of text holds text")
    return np.array(items, dtype={"object": object, "str": str}[kind]).reshape(shape)


def _sparse(content: Json, arrays: Mapping[str, np.ndarray]) -> Any:
    name, (rows, columns), *parts = content
    data, indices, indptr = (decode(part, arrays) for part in parts)
    return compressed(_SPARSE[name], data, indices, indptr, (rows, columns))


def _instance(content: Json, arrays: Mapping[str, np.ndarray]) -> Any:
    name, fields = content
    cls = class_of(name)
    if not dataclasses.is_dataclass(cls):
        raise TypeError(f"{name} is no dataclass")
    value: Any = cls(**{key: decode(item, arrays) for key, item in fields.items()})  # type: ignore[operator]
    require_fields(value)
    require_numbers(value)
    return value


def _member(content: Json, _arrays: Mapping[str, np.ndarray]) -> Enum:
    name, member = content
    cls = class_of(name)
    if not issubclass(cls, Enum):
        raise TypeError(f"{name} is no enumeration")
    return cls[member]


def _estimator(content: Json, arrays: Mapping[str, np.ndarray]) -> Any:
    name, parameters, state = content
    cls = class_of(name)
    if not is_estimator(cls):
        raise TypeError(f"{name} is no estimator")
    model = cls(**{key: decode(item, arrays) for key, item in parameters.items()})
    if not {*state} <= FITTED_STATE:
        raise TypeError(f"{name} has no such fitted state")
    vars(model).update({key: decode(item, arrays) for key, item in state.items()})
    require_learner(model)
    return model


def _number(content: Json, _arrays: Mapping[str, np.ndarray]) -> float:
    if content not in ("nan", "inf", "-inf"):
        raise ValueError("other numbers stand for themselves")
    return float(content)


_DECODERS: dict[str, Callable[[Json, Mapping[str, np.ndarray]], Any]] = {
    "array": _array,
    "class": _instance,
    "dict": lambda content, arrays: {decode(k, arrays): decode(v, arrays) for k, v in content},
    "enum": _member,
    "estimator": _estimator,
    "float": _number,
    "scalar": _scalar,
    "sparse": _sparse,
    "text": _text,
    "tuple": lambda content, arrays: tuple(decode(part, arrays) for part in content),
}
