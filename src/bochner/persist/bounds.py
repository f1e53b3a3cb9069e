"""How much memory a file may ask for: in proportion to its own size, before any of it is taken."""

from typing import Any

import numpy as np

#: What a file may take beside a multiple of its size.
_BYTES = 1 << 25
_TIMES = 10

#: Python's objects for JSON: of a list or object, and of what stands between two commas.
_CONTAINER, _ITEM = 200, 64

#: Lists and objects within one another. A sum of 100 kernels is 300 deep.
_DEEPEST = 600

#: Elements along an axis of an array that holds none.
_LONGEST = 1 << 24


def require_text(text: str | bytes, size: int) -> None:
    """Refuse JSON whose Python objects would take far more memory than the file of ``size`` bytes.

    Raises
    ------
    ValueError
        It would.
    """
    marks = ("[", "{", ",") if isinstance(text, str) else (b"[", b"{", b",")
    lists, objects, commas = (text.count(mark) for mark in marks)  # type: ignore[arg-type]
    _require(4 * len(text) + _CONTAINER * (lists + objects) + _ITEM * commas, size)


def require_nesting(value: Any, size: int) -> None:
    """Refuse JSON that is nested too deeply, or whose arrays of text would take too much memory.

    NumPy gives every text of an array as much room as the longest, four bytes a character.

    Raises
    ------
    ValueError
        It is, or would.
    """
    level, depth, padded = [value], 0, 0
    while level:
        if depth > _DEEPEST:
            raise ValueError("JSON is nested too deeply")
        padded += sum(map(_padded, level))
        _require(padded, size)
        level = [part for item in level for part in _parts(item)]
        depth += 1


def _parts(item: Any) -> Any:
    if isinstance(item, dict):
        return item.values()
    return item if isinstance(item, list) else ()


def _padded(item: Any) -> int:
    """Return the bytes that an array of text takes, 0 if the JSON is none."""
    content = item.get("text") if isinstance(item, dict) else None
    if not isinstance(content, list) or not content or not isinstance(content[-1], list):
        return 0
    items = content[-1]
    return 4 * len(items) * max((len(text) for text in items if isinstance(text, str)), default=0)


def _require(taken: int, size: int) -> None:
    if taken > _TIMES * size + _BYTES:
        raise ValueError(f"{taken} bytes are too much for a file of {size}")


def require_arrays(arrays: dict[str, np.ndarray]) -> None:
    """Refuse booleans that are neither 0 nor 1, and arrays without elements of giant shapes.

    NumPy counts the true by adding bytes; code that trusts the count would write out of bounds.

    Raises
    ------
    ValueError
        There is such an array.
    """
    for name, array in arrays.items():
        if array.dtype == bool and array.size and array.view(np.uint8).max() > 1:
            raise ValueError(f"array {name} must hold 0 and 1 only")
        if array.size == 0 and max(array.shape) > _LONGEST:
            raise ValueError(f"array {name} has no elements and the shape {array.shape}")
