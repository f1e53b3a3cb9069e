"""Encoders: how one column of a table becomes columns of X.

A fit learns encoders and predictions apply them. An encoder reads the cells of its column as
numbers: texts are codes among its levels, dates and times are seconds, and a missing cell is NaN.
Fields are texts, numbers and tuples, so that an encoder survives JSON; ``kind`` names its class.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from bochner._core.random import scattered
from bochner.errors import InvalidInput

#: Codes of a text that is no level, and of one that only the type of its column declares.
UNSEEN, DECLARED = -1.0, -2.0


class Encoder(ABC):
    """The columns of X that one column of a table becomes."""

    name: str
    kind: str
    indicator: bool

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the columns of X."""
        return (*self._names, *(f"{self.name} is missing",) * self.indicator)

    @property
    @abstractmethod
    def _names(self) -> tuple[str, ...]:
        """Names of the columns of X, without the indicator."""

    def encode(self, cells: np.ndarray) -> np.ndarray:
        """Return the columns of X, (n, p), of cells (n,)."""
        columns = self._encoded(cells)
        return np.column_stack([columns, np.isnan(cells)]) if self.indicator else columns

    @abstractmethod
    def _encoded(self, cells: np.ndarray) -> np.ndarray:
        """Return the columns of X without the indicator."""

    def unseen(self, cells: np.ndarray) -> str:
        """Describe missing cells, if training had no missing cell; "" if there is no such cell."""
        if self.indicator or not np.isnan(cells).any():
            return ""
        return "missing values, which count as the median"


@dataclass(frozen=True)
class Numbers(Encoder):
    """A column of numbers; missing ones are filled."""

    name: str
    fill: float = 0.0  # the median, in place of missing numbers
    indicator: bool = False  # whether a column of 0 and 1 marks missing numbers
    comma: bool = False  # whether the numbers are texts with a decimal comma
    kind: str = "numbers"

    @property
    def _names(self) -> tuple[str, ...]:
        return (self.name,)

    def _encoded(self, cells: np.ndarray) -> np.ndarray:
        gone = np.isnan(cells)
        return (np.where(gone, self.fill, cells) if gone.any() else cells)[:, None]


@dataclass(frozen=True)
class Levels(Encoder):
    """A column of categories: a table with a row for each level."""

    name: str
    levels: tuple[str, ...]
    # The columns of X at each level, for a missing cell and for an unseen level. Empty: a column
    # of 0 and 1 for each level, all 0 for missing and unseen ones
    table: tuple[tuple[float, ...], ...] = ()
    features: tuple[str, ...] = ()  # names of the columns of the table
    indicator: bool = False  # whether a column of 0 and 1 marks missing cells
    tolerated: float = 0.0  # share of cells with an unseen level up to which there is no warning
    # Further levels that the type of the column declares: unseen, without a warning
    declared: tuple[str, ...] = ()
    kind: str = "levels"

    @property
    def is_ordered(self) -> bool:
        """Whether the levels have an order and one column holds their places."""
        return self.features == (self.name,)

    @property
    def _names(self) -> tuple[str, ...]:
        return self.features or tuple(f"{self.name}={level}" for level in self.levels)

    @cached_property
    def code(self) -> dict[str, float]:
        """Codes of the texts that are known."""
        codes = {level: float(j) for j, level in enumerate(self.levels)}
        return {**dict.fromkeys(self.declared, DECLARED), **codes}

    @cached_property
    def _latest(self) -> list[Any]:
        return [None, np.empty(0)]  # texts and their codes

    def codes(self, texts: Any) -> np.ndarray:
        """Return the code of each text of an Arrow array of strings."""
        if self._latest[0] is None or not self._latest[0].equals(texts):
            codes = np.array([self.code.get(text, UNSEEN) for text in texts.to_pylist()], float)
            self._latest[:] = texts, codes
        return self._latest[1]

    @cached_property
    def rows(self) -> np.ndarray:
        """Encoded columns of each level, a missing cell and an unseen level: (levels + 2, p)."""
        if self.table:
            return np.array(self.table, np.float64)
        return np.eye(len(self.levels) + 2, len(self.levels))

    def places(self, cells: np.ndarray) -> np.ndarray:
        """Return the row of the table for each cell."""
        if len(cells) and cells.min() >= 0:  # none is missing or unseen
            return cells.astype(np.intp)
        rows = np.where(cells < 0, len(self.levels) + 1, cells)
        return np.where(np.isnan(cells), len(self.levels), rows).astype(np.intp)

    def _encoded(self, cells: np.ndarray) -> np.ndarray:
        return self.rows.take(self.places(cells), axis=0)

    def unseen(self, cells: np.ndarray) -> str:
        if not len(cells) or cells.min() >= 0:
            return ""
        share = float(np.mean(cells == UNSEEN))
        if share > self.tolerated:
            mostly = "mostly " * (self.tolerated > 0)
            return f"{mostly}categories that the fit has not seen, which count as unknown"
        if self.tolerated or self.indicator or not np.isnan(cells).any():
            return ""
        return "missing values, which count as unknown"


def ordered(
    name: str, levels: tuple[str, ...], fill: float = 0.5, indicator: bool = False
) -> Levels:
    """Return the encoder of ordered levels as places from 0 to 1; ``fill`` is that of others."""
    places = [j / max(1, len(levels) - 1) for j in range(len(levels))]
    table = tuple((place,) for place in (*places, fill, fill))
    return Levels(name, levels, table, (name,), indicator)


#: Columns of a code, and the largest number of levels that have codes.
CODE, MOST_CODED = 16, 1 << 11


def codes_of_levels(count: int) -> np.ndarray:
    """Return a code of 0 and 1 for each level, (count + 1, CODE); two differ in ≥ 4 columns.

    They are words of the Reed–Muller code RM(2, 4), which has 2¹¹ words (MacWilliams and Sloane,
    1977, chapter 13): the bits of a level's number times all monomials of degree ≤ 2 at the 16
    points of {0, 1}⁴. On average two codes differ in half of the columns, so that a kernel of codes
    is nearly a kernel of one column per level, and each column is 1 for about half of the levels,
    so that few rows determine its lengthscale. The last row, for unseen levels, is equally far from
    all others.
    """
    x = (np.arange(CODE)[:, None] >> np.arange(4)) & 1
    pairs = [x[:, i] * x[:, j] for i in range(4) for j in range(i)]
    monomials = np.column_stack([np.ones(CODE, np.int64), x, *pairs])
    bits = (np.arange(count)[:, None] >> np.arange(monomials.shape[1])) & 1
    return np.vstack([(bits @ monomials.T) % 2, np.full(CODE, 0.5)])


# --- Times ---------------------------------------------------------------------------------------

DAY = 86_400.0

#: Days of a mean Gregorian year.
YEAR = 365.2425


def _turns(turns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    angle = 2 * np.pi * turns
    return np.sin(angle), np.cos(angle)


#: The columns that each part of a time becomes: their names, and the function of seconds. The first
#: day of the Unix epoch was a Thursday; weeks begin on Mondays.
PARTS: dict[str, tuple[tuple[str, ...], Callable[[np.ndarray], tuple[np.ndarray, ...]]]] = {
    "trend": (("days",), lambda s: (s / DAY,)),
    "year": (("season, sine", "season, cosine"), lambda s: _turns(s / (DAY * YEAR))),
    "week": (("week, sine", "week, cosine"), lambda s: _turns((s / DAY + 3) / 7)),
    "day": (("hour, sine", "hour, cosine"), lambda s: _turns(s / DAY)),
}


def parts_for(seconds: np.ndarray, clock: bool) -> tuple[str, ...]:
    """Return the parts that vary: the hour of clock times; of dates, cycles that they span twice.

    Dates that are all the first moment of a month have no day of the week.
    """
    if clock:
        return ("day",)
    known = seconds[np.isfinite(seconds)]
    if not len(known):
        return ("trend",)
    span, times = np.ptp(known) / DAY, known.astype("datetime64[s]")
    weekly = span >= 14 and np.any(times != times.astype("datetime64[M]"))
    daily = span >= 2 and np.any(known % DAY != known[0] % DAY)
    cycles = {"year": span > YEAR, "week": weekly, "day": daily}
    return ("trend", *(part for part, varies in cycles.items() if varies))


@dataclass(frozen=True)
class Times(Encoder):
    """A column of dates or times: trend in days, season of the year and of the week, and hour."""

    name: str
    parts: tuple[str, ...]  # that vary; all but the trend are cyclic, as a sine and a cosine
    origin: float = 0.0  # seconds from 1970 to where the trend is zero
    fill: float = 0.0  # the median in seconds, in place of missing times
    indicator: bool = False  # whether a column of 0 and 1 marks missing times
    form: str = ""  # of texts that are times, one of `bochner.data.cells.FORMS`
    kind: str = "times"

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(f"{self.name} ({word})" for part in self.parts for word in PARTS[part][0])

    def _encoded(self, cells: np.ndarray) -> np.ndarray:
        seconds = np.where(np.isnan(cells), self.fill, cells)
        return np.column_stack(self.columns(seconds))

    def columns(self, seconds: Any) -> list[Any]:
        """Return the columns of known times, for arrays of any library."""
        columns = [column for part in self.parts for column in PARTS[part][1](seconds)]
        if "trend" in self.parts:
            columns[0] = columns[0] - self.origin / DAY
        return columns


_KINDS: dict[str, type[Encoder]] = {cls.kind: cls for cls in (Numbers, Times, Levels)}


def as_encoder(given: Encoder | Mapping[str, Any]) -> Encoder:
    """Return the encoder, which may be a mapping of its fields, as JSON has it."""
    if isinstance(given, Encoder):
        return given
    cls: Any = _KINDS.get(given.get("kind", ""))
    known = set() if cls is None else {field.name for field in fields(cls)}
    if not {*given} <= known:
        raise InvalidInput(
            f"Schema: an encoder must have a kind, one of {', '.join(map(repr, _KINDS))}, and "
            f"fields of that kind; got {dict(given)!r:.100}."
        )
    return cls(**{key: _tuples(value) for key, value in given.items()})


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list | tuple) else value


# --- Target means of training rows: a row is encoded without the rows in its fold ----------------

#: Folds of the training rows.
FOLDS = 5


@lru_cache(maxsize=2)  # several columns ask for those of the same rows
def folds(start: int, count: int) -> np.ndarray:
    """Return the fold of each row, a random function of its number (SplitMix64)."""
    fold = np.empty(count, np.intp)
    for at in range(0, count, 8192):  # arrays that stay in cache
        stop = min(at + 8192, count)
        z = np.arange(start + at + 1, start + stop + 1, dtype=np.uint64)
        z = scattered(z * np.uint64(0x9E3779B97F4A7C15))
        fold[at:stop] = z - z // np.uint64(FOLDS) * np.uint64(FOLDS)  # the rest, in half the time
    return fold
