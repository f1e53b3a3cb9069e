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

#: Values that are told apart by their text.
PLAIN = (str, bytes, int, float, complex, type, type(None), BuiltinFunctionType, np.ufunc, np.dtype)


def digest_of(value: Any) -> str:
    """Return a digest of a value: its arrays, numbers, text and functions, however deep."""
    digest = blake2b(digest_size=16)
    _feed(digest, value)
    return digest.hexdigest()


def _feed(digest: Any, value: Any) -> None:
    """Feed the type of a value, and then its parts."""
    digest.update(f"{type(value).__module__}.{type(value).__qualname__}(".encode())
    if hasattr(value, "__dlpack__") or isinstance(value, np.generic):
        array = np.asarray(value if isinstance(value, np.generic) else to_numpy(value))
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    elif isinstance(value, PLAIN):
        digest.update(repr(value).encode())
    else:
        for part in _parts(value):
            _feed(digest, part)
    digest.update(b")")


def _parts(value: Any) -> Iterable[Any]:
    """Return the parts of a value; of choices those of the features, for searches are timed."""
    if isinstance(value, Chosen):
        return (value.map, value.kernel, value.precision, value.seed)
    if isinstance(value, dict):
        return [part for pair in value.items() for part in pair]
    if isinstance(value, list | tuple | set | frozenset):
        return sorted(value, key=repr) if isinstance(value, set | frozenset) else value
    if is_dataclass(value):
        return [getattr(value, field.name) for field in fields(value)]
    if isinstance(value, scipy.sparse.sparray | scipy.sparse.spmatrix):
        return [value.shape, *(getattr(value.tocsr(), n) for n in ("data", "indices", "indptr"))]
    return _parts_of_function(value)


def _parts_of_function(value: Any) -> Iterable[Any]:
    if isinstance(value, FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        return [value.__qualname__, value.__code__, cells, value.__defaults__]
    if isinstance(value, CodeType):
        return [value.co_code, [c for c in value.co_consts if not isinstance(c, CodeType)]]
    if isinstance(value, MethodType):
        return [value.__func__.__qualname__, value.__self__]
    if isinstance(value, partial):
        return [value.func, value.args, value.keywords]
    return [{name: part for name, part in vars(value).items() if not name.startswith("__")}]
