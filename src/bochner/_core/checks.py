"""Checks of values: each function returns the plain Python value or raises an error.

``caller`` is the class or function that the error names, ``name`` is the argument.
"""

import math
import os
import sys
import warnings
from collections.abc import Callable
from functools import partial
from numbers import Integral, Real
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from bochner.errors import InvalidInput, InvalidType, SolutionWarning

#: A check of a field: of its value, the class and its name.
Check = Callable[[Any, str, str], Any]

#: Targets and weights above this overflow when they are squared and summed.
LARGEST = 1e150


def unpack(value: object) -> Any:
    """Return arrays and NumPy scalars as (nested) lists and Python numbers; others unchanged."""
    return value.tolist() if hasattr(value, "tolist") else value


def finite(
    value: object,
    caller: str,
    name: str,
    kind: str = "a finite number",
    minimum: float = -math.inf,
    above: float = -math.inf,
    below: float = math.inf,
) -> float:
    """Return ``value`` as a float (the same object if it is a float); errors name its ``kind``."""
    plain = unpack(value)
    if isinstance(plain, bool) or not isinstance(plain, Real):
        raise InvalidType(
            f"{caller}: {name} must be {kind}; got {value!r} of type {type(value).__name__}. "
            "Pass a number."
        )
    number = float(plain)
    if not (above < number < below and number >= minimum):
        raise InvalidInput(f"{caller}: {name} must be {kind}; got {number!r}. Pass {kind}.")
    return number


positive = partial(finite, kind="a positive finite number", above=0)
nonnegative = partial(finite, kind="a non-negative finite number", minimum=0)
share = partial(finite, kind="a number above 0 and below 1", above=0, below=1)


def integer(value: object, caller: str, name: str, minimum: int = 0) -> int:
    """Return ``value`` as an int, ``minimum`` or above."""
    plain = unpack(value)
    if isinstance(plain, bool) or not isinstance(plain, Integral):
        raise InvalidType(
            f"{caller}: {name} must be an integer, {minimum} or above; got {value!r} of type "
            f"{type(value).__name__}. Pass an integer."
        )
    if plain < minimum:
        raise InvalidInput(f"{caller}: {name} must be an integer, {minimum} or above; got {plain}.")
    return int(plain)


counted = partial(integer, minimum=1)


def integers(value: object, caller: str, name: str) -> tuple[int, ...]:
    """Return a tuple of distinct non-negative ints (a lone integer is a tuple of one)."""
    plain = unpack(value)
    items = tuple(plain) if isinstance(plain, list | tuple | range) else (plain,)
    result = tuple(integer(v, caller, f"{name}[{i}]") for i, v in enumerate(items))
    if not result or len(set(result)) < len(result):
        raise InvalidInput(
            f"{caller}: {name} must be different column numbers, at least one; got {items!r}. "
            "Name each column once."
        )
    return value if isinstance(value, tuple) and value == result else result


def one_of(value: object, caller: str, name: str, choices: tuple[str, ...]) -> str:
    """Return ``value`` if it is one of the words allowed."""
    if isinstance(value, str) and value in choices:
        return value
    from bochner._core.names import suggestion  # noqa: PLC0415  needed by refusals alone

    raise InvalidInput(
        f"{caller}: {name} must be one of {', '.join(map(repr, choices))}; got {value!r}"
        f"{suggestion(value, choices) or '.'}"
    )


def optional(check: Check) -> Check:
    """Return the check of a field that may be None."""
    return lambda value, caller, name: None if value is None else check(value, caller, name)


def sequence_of(check: Check) -> Check:
    """Return the check of a non-empty sequence, each item by ``check``; it becomes a tuple."""

    def check_items(value: object, caller: str, name: str) -> tuple[Any, ...]:
        items = unpack(value)
        if not isinstance(items, list | tuple) or not items:
            raise InvalidInput(
                f"{caller}: {name} must be a sequence of one item or more; got {value!r}."
            )
        return tuple(check(item, caller, f"{name}[{i}]") for i, item in enumerate(items))

    return check_items


def bounded(check: Check, low: float, high: float) -> Check:
    """Return the check of a number from ``low`` to ``high``."""

    def check_range(value: Any, caller: str, name: str) -> Any:
        number = check(value, caller, name)
        if not low <= number <= high:
            limits = f"{low:,} or above" if high == math.inf else f"from {low:,} to {high:,}"
            raise InvalidInput(f"{caller}: {name} must be {limits}; got {number!r}.")
        return number

    return check_range


def word(*choices: str) -> Check:
    """Return the check of a field that is one of these words."""
    return lambda value, caller, name: one_of(value, caller, name, choices)


def switch(value: object, caller: str, name: str = "fit_intercept") -> bool:
    """Return ``value`` as a bool; raise InvalidType if it is not True or False."""
    if not isinstance(value, bool | np.bool_):
        raise InvalidType(f"{caller}: {name} must be True or False; got {value!r}.")
    return bool(value)


Positive = Annotated[float, positive]
Counted = Annotated[int, counted]
MaybePositive = Annotated[float | None, optional(positive)]
MaybeCounted = Annotated[int | None, optional(counted)]
Switch = Annotated[bool, switch]
MaybeSwitch = Annotated[bool | None, optional(switch)]


# --- Warnings that name the user's line, however deep in the package they arise ------------------

_PACKAGE = str(Path(__file__).parent.parent)


def warn_user(text: str, kind: type[Warning] = SolutionWarning) -> None:
    """Warn at the nearest line outside this package; by default with a SolutionWarning."""
    frame, level = sys._getframe(1), 2
    while frame.f_code.co_filename.startswith(_PACKAGE) and frame.f_back is not None:
        frame, level = frame.f_back, level + 1
    warnings.warn(text, kind, stacklevel=level)


# --- Free memory, and errors for computations that need more of it -------------------------------


def free_bytes(swap: bool = False) -> int:
    """Return the free memory of the machine or container in bytes; ``swap``: with free swap."""
    return max(0, min(_available(swap), _left_in_container()))


def require_room(need: int, task: str, remedy: str) -> None:
    """Raise an error if ``need`` bytes (over 256 MB) are not free; ``task``: "A fit ... takes"."""
    if need <= 256 << 20 or need <= (room := free_bytes(swap=True)):
        return
    required, free = bytes_in_words(need), bytes_in_words(room)
    raise InvalidInput(f"{task} at least {required} of memory; {free} are free. {remedy}")


def bytes_in_words(count: float) -> str:
    """Return a number of bytes in MB, GB or TB."""
    for unit, bytes_ in (("TB", 1e12), ("GB", 1e9)):
        if count >= bytes_:
            return f"{count / bytes_:,.3g} {unit}"
    return f"{count / 1e6:.3g} MB"


def _available(swap: bool) -> int:
    """Return MemAvailable (and free swap) on Linux; elsewhere half (or all) of the memory."""
    pairs = (line.split() for line in _lines(Path("/proc/meminfo")))
    sizes = {words[0].rstrip(":"): 1024 * int(words[1]) for words in pairs if len(words) > 1}
    if "MemAvailable" in sizes:
        return sizes["MemAvailable"] + swap * sizes.get("SwapFree", 0)
    try:
        physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        physical = 8 << 30  # assumed if the system does not report it
    return physical // (1 if swap else 2)


def _left_in_container() -> int:
    """Return limit − use of control group version 2, caches not counted; 2⁶² without a limit."""
    group = Path("/sys/fs/cgroup")
    limit, usage = _lines(group / "memory.max"), _lines(group / "memory.current")
    if limit and usage and limit[0].isdigit() and usage[0].isdigit():
        pairs = (line.split() for line in _lines(group / "memory.stat"))
        caches = sum(int(size) for name, size in pairs if name == "inactive_file")
        return int(limit[0]) - max(0, int(usage[0]) - caches)
    return 1 << 62


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii").splitlines()
    except OSError:
        return []
