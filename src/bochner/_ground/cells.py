"""Cells of text: which are numbers, and which one keeps a column from being numbers."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from bochner._ground.schema import listed
from bochner.errors import InvalidInput, InvalidType

__all__ = [
    "TYPES",
    "Cell",
    "Tally",
    "Types",
    "is_number",
    "parsed",
    "require_known",
    "shown",
    "strays",
    "types_of",
]

#: What users may say of a column.
TYPES = ("number", "category")
Types = Mapping[str, str]

#: As CSV readers read numbers: digits, a point, an exponent; no separators within.
_NUMBER = re.compile(
    r"\s*[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|nan|inf|infinity)\s*", re.IGNORECASE
)

#: A column is of numbers but for strays if it has this many numbers, and so many more than strays.
_FEWEST, _TIMES = 4, 9


class Cell(NamedTuple):
    """A cell of text and the row it is in."""

    text: str
    row: int


def types_of(given: Any, who: str = "Blocks") -> dict[str, str]:
    """Return what users say of columns, checked."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InvalidType(
            f"{who}: dtypes must be a mapping from names of columns to 'number' or 'category'; "
            f"got {type(given).__name__}."
        )
    for name, kind in given.items():
        if kind not in TYPES:
            raise InvalidInput(
                f"{who}: dtypes must say 'number' or 'category' of a column; got {kind!r} for "
                f"{name!r}."
            )
    return dict(given)


def is_number(text: str) -> bool:
    """Whether a text is a number as files hold them: ``1_000`` and ``1,000.5`` are none."""
    return _NUMBER.fullmatch(text) is not None


class Tally:
    """Counts the cells of a column of text that are numbers, and those that are not."""

    def __init__(self) -> None:
        self.numbers = self.others = 0

    def add(self, values: Iterable[str]) -> None:
        """Count these cells."""
        known: dict[str, bool] = {}
        for value in values:
            number = known.get(value)
            if number is None:
                number = known[value] = is_number(value)
            self.numbers += number
            self.others += not number

    @property
    def strays(self) -> bool:
        """Whether almost all cells are numbers, and some are not."""
        return self.others > 0 and self.numbers >= max(_FEWEST, _TIMES * self.others)


def strays(values: Iterable[Any], start: int) -> Iterator[Cell]:
    """Give the cells that are no numbers, with the numbers of their rows; missing ones are left."""
    for row, value in enumerate(values, start):
        if value is not None and not is_number(str(value)):
            yield Cell(str(value), row)


def parsed(name: str, values: list[Any], dtype: np.dtype, where: Any) -> np.ndarray:
    """Return cells of text as numbers, NaN for missing ones; refuse the first that is none."""
    cell = next(strays(values, 0), None)
    if cell is not None:
        raise InvalidInput(
            f"Blocks: column {name!r} must hold numbers; got {shown(cell.text)} in "
            f"{where(cell.row)}. Mend the cell, or take the column as text with "
            f"dtypes={{{name!r}: 'category'}}."
        )
    return np.array([np.nan if v is None else float(v) for v in values], dtype)


def shown(text: str) -> str:
    """Return a cell in quotes, cut if it is long."""
    text = text.strip()
    return repr(text if len(text) <= 40 else text[:37] + "...")


def require_known(types: Types, known: Iterable[str], label: str) -> None:
    """Refuse types of columns that are not there."""
    absent = sorted(set(types) - set(known))
    if absent:
        raise InvalidInput(
            f"Blocks: dtypes must name columns of {label}; got {listed(absent)}, which it does "
            f"not use; it uses {listed(known)}."
        )
