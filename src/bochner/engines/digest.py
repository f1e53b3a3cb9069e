"""A digest of what a pass sums up, so that a pass that was recorded is known again."""

from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from functools import partial
from hashlib import blake2b
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType
from typing import Any

import numpy as np
import scipy.sparse

from bochner._core.arrays import to_numpy
from bochner.selection.chosen import Chosen


def digest_of(value: Any) -> str:
    """Return a digest of a value: its arrays, numbers, text and functions, however deep."""
    digest = blake2b(digest_size=16)
    _feed(digest, value)
    return digest.hexdigest()


def _feed(digest: Any, value: Any) -> None:
    """Feed what kind of value it is, and then its parts."""
    digest.update(f"{type(value).__module__}.{type(value).__qualname__}(".encode())
    if isinstance(value, np.ndarray | np.generic) and value.dtype != object:
        _feed_array(digest, np.asarray(value))
    elif _is_array(value):
        _feed_array(digest, to_numpy(value))
    else:
        for part in _parts(value):
            _feed(digest, part)
    digest.update(b")")


def _is_array(value: Any) -> bool:
    return hasattr(value, "__array_namespace__") or hasattr(value, "__dlpack__")


def _feed_array(digest: Any, array: np.ndarray) -> None:
    digest.update(f"{array.dtype}{array.shape}".encode())
    digest.update(np.ascontiguousarray(array).data)


def _parts(value: Any) -> Iterable[Any]:
    """Return the parts of a value that are values themselves; text and numbers have bytes.

    Of the choices only those that define features are included: searches may contain times.
    """
    if isinstance(value, Chosen):
        return (value.map, value.kernel, value.precision, value.seed)
    if isinstance(value, bytes):
        return (np.frombuffer(value, np.uint8),)
    if value is None or isinstance(value, bool | int | float | complex | str | type):
        return (np.frombuffer(repr(value).encode(), np.uint8),)
    if isinstance(value, dict):
        return [part for pair in value.items() for part in pair]
    if isinstance(value, list | tuple | set | frozenset):
        return sorted(value, key=repr) if isinstance(value, set | frozenset) else value
    return _parts_of_object(value)


def _parts_of_object(value: Any) -> Iterable[Any]:
    if is_dataclass(value):
        return [getattr(value, field.name) for field in fields(value)]
    if isinstance(value, scipy.sparse.sparray | scipy.sparse.spmatrix):
        return [value.shape, *(getattr(value.tocsr(), n) for n in ("data", "indices", "indptr"))]
    if isinstance(value, BuiltinFunctionType | np.ufunc | np.dtype):
        return [repr(value)]
    return _parts_of_function(value)


def _parts_of_function(value: Any) -> Iterable[Any]:
    if isinstance(value, FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        return [value.__qualname__, value.__code__, cells, value.__defaults__]
    if isinstance(value, CodeType):
        return [value.co_code.hex(), [c for c in value.co_consts if not isinstance(c, CodeType)]]
    if isinstance(value, MethodType):
        return [value.__func__.__qualname__, value.__self__]
    if isinstance(value, partial):
        return [value.func, value.args, value.keywords]
    return [{name: part for name, part in vars(value).items() if not name.startswith("__")}]
