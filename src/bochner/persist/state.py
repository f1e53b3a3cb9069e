"""What compiled code of NumPy and SciPy believes without looking: indices and random states."""

from collections.abc import Mapping
from typing import Any

import numpy as np

#: What 32 and 128 bits hold.
_WORD, _LONG = 2**32, 2**128


def require_compressed(
    data: Any, indices: Any, indptr: Any, shape: tuple[int, int], by_rows: bool
) -> None:
    """Refuse parts that are no compressed sparse matrix of this shape: CSR, or CSC.

    ``indptr`` must rise from 0 to the number of elements, one step for each row (column), and
    ``indices`` must be numbers of columns (rows).

    Raises
    ------
    TypeError, ValueError
        They are none.
    """
    if not all(type(n) is int and 0 <= n < 2**31 for n in shape):
        raise ValueError(f"{shape} is no shape of a sparse matrix")
    for part, kinds in ((data, "biuf"), (indices, "i"), (indptr, "i")):
        if not isinstance(part, np.ndarray) or part.ndim != 1 or part.dtype.kind not in kinds:
            raise TypeError("parts of a sparse matrix are vectors of numbers and of indices")
    lines, places = shape if by_rows else shape[::-1]
    if indices.dtype != indptr.dtype or indices.itemsize < 4:
        raise TypeError("indices of a sparse matrix are of one type, of 32 or 64 bits")
    if len(indptr) != lines + 1 or indptr[0] != 0 or (indptr[1:] < indptr[:-1]).any():
        raise ValueError("indptr of a sparse matrix must rise from 0, a step for each line")
    if not len(data) == len(indices) == indptr[-1]:
        raise ValueError("indptr of a sparse matrix must end at the number of elements")
    if len(indices) and not (indices.min() >= 0 and indices.max() < places):
        raise ValueError(f"indices of a sparse matrix must be from 0 to {places - 1}")


def require_random(state: Any, legacy: bool) -> None:
    """Refuse the state of a random generator that it could not have come to itself.

    A position behind the end of a buffer reads foreign memory, and a generator that gives nothing
    but zeros keeps whoever waits for another number waiting.

    Raises
    ------
    KeyError, TypeError, ValueError
        It could not.
    """
    kind = state["bit_generator"]
    rules = _RULES[kind] | (_NORMAL if legacy else {})
    _require(state, {"bit_generator": kind} | rules)
    inner = state["state"]
    if kind == "MT19937" and not (inner["key"][0] >> 31 or inner["key"][1:].any()):
        raise ValueError("this generator would give nothing but zeros")
    if kind in ("PCG64", "PCG64DXSM") and inner["inc"] % 2 == 0:
        raise ValueError("the increment of this generator must be odd")


#: Names of parts, and what they are: bounds of an integer, or type and length of an array.
_PAIR = {"has_uint32": (0, 2), "uinteger": (0, _WORD)}
_PCG = {"state": {"state": (0, _LONG), "inc": (0, _LONG)}} | _PAIR
_RULES: dict[str, dict[str, Any]] = {
    "MT19937": {"state": {"key": ("uint32", 624), "pos": (0, 625)}},
    "PCG64": _PCG,
    "PCG64DXSM": _PCG,
    "Philox": {
        "state": {"counter": ("uint64", 4), "key": ("uint64", 2)},
        "buffer": ("uint64", 4),
        "buffer_pos": (0, 5),
    }
    | _PAIR,
}
_NORMAL = {"has_gauss": (0, 2), "gauss": None}


def _require(state: Any, rules: Mapping[str, Any]) -> None:
    if not isinstance(state, dict) or state.keys() != rules.keys():
        raise TypeError(f"the state of a generator must hold {', '.join(rules)}")
    for name, rule in rules.items():
        if isinstance(rule, dict):
            _require(state[name], rule)
        elif not _is(state[name], rule):
            raise ValueError(f"{name} of a generator cannot be what it is")


def _is(value: Any, rule: Any) -> bool:
    if isinstance(rule, str):
        return value == rule
    if rule is None:
        return isinstance(value, float) and np.isfinite(value)
    if isinstance(rule[0], str):
        return isinstance(value, np.ndarray) and (value.dtype.name, *value.shape) == rule
    return type(value) is int and rule[0] <= value < rule[1]
