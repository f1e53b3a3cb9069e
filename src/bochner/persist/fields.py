"""Whether the fields of a value are what its class says: types, and shapes that fit together."""

import dataclasses
import types
import typing
from collections.abc import Callable
from functools import lru_cache
from numbers import Integral, Real
from typing import Any

import numpy as np
import scipy.sparse

from bochner.kernels import Monomials
from bochner.persist.known import SHAPED

#: Numbers that letters of shapes stand for; None where shapes may be any.
Sizes = dict[str, int] | None


def require_fields(value: Any) -> None:
    """Refuse a dataclass whose fields do not hold what their annotations say.

    Letters of shapes, as in ``Float[Array, "d m"]``, stand for one number within a value of the
    classes that are held to their shapes.

    Raises
    ------
    TypeError
        A field is of another type or shape.
    """
    kind: Any = type(value)
    sizes: Sizes = {} if kind in SHAPED else None
    for name, hint in _hints(kind):
        if not fits(getattr(value, name), hint, sizes):
            raise TypeError(f"{name} of {kind.__name__} must be of type {hint}")


@lru_cache(None)
def _hints(cls: Any) -> tuple[tuple[str, Any], ...]:
    hints = typing.get_type_hints(cls, include_extras=True)
    return tuple((f.name, hints[f.name]) for f in dataclasses.fields(cls) if f.init)


def fits(value: Any, hint: Any, sizes: Sizes) -> bool:
    """Whether a value is of the type and shape of the annotation; note the sizes of its letters."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    check = _CHECKS.get(hint if origin is None else origin)
    if check is not None:
        return check(value, parts, sizes)
    return isinstance(value, origin or hint)


def _is_shaped(value: Any, parts: tuple[Any, ...], sizes: Sizes) -> bool:
    """Whether it is an array of numbers of the shape in words."""
    if not isinstance(value, np.ndarray | np.generic) and not scipy.sparse.issparse(value):
        return False
    if value.dtype.kind not in "biuf" or sizes is None:
        return value.dtype.kind in "biuf"
    words = parts[1].split()
    if len(words) != len(value.shape):
        return False
    return all(_is_size(*pair, sizes) for pair in zip(words, value.shape, strict=True))


def _is_size(word: str, length: int, sizes: dict[str, int]) -> bool:
    if word.isdecimal():
        return length == int(word)
    return sizes.setdefault(word, length) == length


def _is_tuple(value: Any, parts: tuple[Any, ...], sizes: Sizes) -> bool:
    if type(value) is not tuple:
        return False
    if len(parts) == 2 and parts[1] is Ellipsis:  # items may differ in shape
        return all(fits(item, parts[0], None if sizes is None else {}) for item in value)
    return len(value) == len(parts) and all(map(fits, value, parts, [sizes] * len(parts)))


def _is_dict(value: Any, parts: tuple[Any, ...], _sizes: Sizes) -> bool:
    key, item = parts
    return type(value) is dict and all(
        fits(k, key, None) and fits(v, item, None) for k, v in value.items()
    )


def _is_one_of(value: Any, parts: tuple[Any, ...], sizes: Sizes) -> bool:
    return any(fits(value, part, sizes) for part in parts)


def _is_number(value: Any, kind: type) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


_CHECKS: dict[Any, Callable[[Any, tuple[Any, ...], Sizes], bool]] = {
    Any: lambda *_: True,
    bool: lambda value, *_: isinstance(value, bool | np.bool_),
    int: lambda value, *_: _is_number(value, Integral),
    float: lambda value, *_: _is_number(value, Real),
    tuple: _is_tuple,
    dict: _is_dict,
    typing.Union: _is_one_of,
    types.UnionType: _is_one_of,
    typing.Literal: lambda value, parts, _: isinstance(value, str) and value in parts,
    typing.Annotated: _is_shaped,
    Callable: lambda value, *_: isinstance(value, Monomials),  # no file holds functions
}
