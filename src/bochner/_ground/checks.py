"""Checked values: each function returns the plain Python value or says what is wrong with it.

``who`` names the speaker (a class or a function), ``name`` the argument.
"""

import math
from numbers import Integral, Real
from typing import Any

from bochner.errors import InvalidInput, InvalidType

__all__ = [
    "LARGEST",
    "finite",
    "integer",
    "integers",
    "nonnegative",
    "numbers",
    "one_of",
    "positive",
    "sequence",
    "share",
    "unpacked",
]

#: Targets and weights above this overflow when they are squared and summed.
LARGEST = 1e150


def unpacked(value: object) -> Any:
    """Arrays, NumPy scalars and lists as Python numbers and (nested) lists; the rest unchanged."""
    unpack = getattr(value, "tolist", None)
    return value if unpack is None else unpack()


def finite(value: object, who: str, name: str, kind: str = "a finite number") -> float:
    """Return ``value`` as a float (the same object if it is one already)."""
    plain = value if type(value) is float else unpacked(value)
    if isinstance(plain, bool) or not isinstance(plain, Real):
        raise InvalidType(
            f"{who}: {name} must be {kind}; got {value!r} of type {type(value).__name__}. "
            "Pass a number."
        )
    if not math.isfinite(plain):
        raise InvalidInput(f"{who}: {name} must be {kind}; got {plain!r}. Pass {kind}.")
    return plain if type(plain) is float else float(plain)


def positive(value: object, who: str, name: str) -> float:
    """Return ``value`` as a float above zero."""
    number = finite(value, who, name, "a positive finite number")
    if number <= 0:
        raise InvalidInput(
            f"{who}: {name} must be a positive finite number; got {number!r}. "
            "Pass a value above zero."
        )
    return number


def share(value: object, who: str, name: str) -> float:
    """Return ``value`` as a float above 0 and below 1."""
    number = positive(value, who, name)
    if number >= 1:
        raise InvalidInput(f"{who}: {name} must be above 0 and below 1; got {number!r}.")
    return number


def nonnegative(value: object, who: str, name: str) -> float:
    """Return ``value`` as a float, zero or above."""
    number = finite(value, who, name, "a non-negative finite number")
    if number < 0:
        raise InvalidInput(
            f"{who}: {name} must be a non-negative finite number; got {number!r}. "
            "Pass zero or a value above it."
        )
    return number


def numbers(value: object, who: str, name: str) -> float | tuple[float, ...]:
    """Return one positive float, or a tuple of them, one per column of the data."""
    if isinstance(value, tuple) and value and all(map(_is_length, value)):
        return value
    plain = unpacked(value)
    if not isinstance(plain, list | tuple):
        return positive(plain, who, name)
    if not plain:
        raise InvalidInput(
            f"{who}: {name} must be a positive number or one per column; got an empty sequence. "
            "Pass at least one number."
        )
    return tuple(positive(v, who, f"{name}[{i}]") for i, v in enumerate(plain))


def _is_length(value: object) -> bool:
    return type(value) is float and 0 < value < math.inf


def integer(value: object, who: str, name: str, least: int = 0) -> int:
    """Return ``value`` as an int, ``least`` or above."""
    plain = unpacked(value)
    if isinstance(plain, bool) or not isinstance(plain, Integral):
        raise InvalidType(
            f"{who}: {name} must be an integer, {least} or above; got {value!r} of type "
            f"{type(value).__name__}. Pass an integer."
        )
    if plain < least:
        raise InvalidInput(f"{who}: {name} must be an integer, {least} or above; got {plain}.")
    return int(plain)


def integers(value: object, who: str, name: str) -> tuple[int, ...]:
    """Return a tuple of different non-negative ints (a lone integer is a tuple of one)."""
    plain = unpacked(value)
    items = tuple(plain) if isinstance(plain, list | tuple | range) else (plain,)
    result = tuple(integer(v, who, f"{name}[{i}]") for i, v in enumerate(items))
    if not result or len(set(result)) < len(result):
        raise InvalidInput(
            f"{who}: {name} must be different column numbers, at least one; got {items!r}. "
            "Name each column once."
        )
    return value if isinstance(value, tuple) and value == result else result


def sequence(value: object, who: str, name: str) -> tuple[Any, ...]:
    """Return what a sequence or array holds, at least one item, as Python values."""
    items = unpacked(value)
    if not isinstance(items, list | tuple) or not items:
        raise InvalidInput(
            f"{who}: {name} must be a sequence of numbers, at least one; got {value!r}."
        )
    return tuple(items)


def one_of(value: object, who: str, name: str, choices: tuple[str, ...]) -> str:
    """Return ``value`` if it is one of the words allowed."""
    if isinstance(value, str) and value in choices:
        return value
    raise InvalidInput(
        f"{who}: {name} must be one of {', '.join(map(repr, choices))}; got {value!r}."
    )
