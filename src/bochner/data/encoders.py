"""Encoders: how one column of a table becomes columns of X.

A fit learns encoders and predictions apply them. An encoder reads the cells of its column as
numbers: a text is the index of its level, dates and times are seconds, a missing cell is NaN.
Fields are texts, numbers and tuples, as in JSON; ``kind`` names the class of an encoder.
"""

import datetime as dt
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np

from bochner._core.random import mix_bits
from bochner._core.shapes import Float
from bochner.errors import InvalidInput

#: Function that describes the location of a row (counted from 0) in an error message.
Location = Callable[[int], str]

#: Codes of a text that is not a level, and of one that is only a category of the column's type.
UNSEEN, DECLARED = -1.0, -2.0


class Encoder(ABC):
    """Encoder of one column of a table as columns of X."""

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

    @abstractmethod
    def cells(self, column: Any, location: Location) -> Float[np.ndarray, " n"]:
        """Return the cells of an Arrow column as numbers, NaN where they are missing."""

    def encode(self, cells: np.ndarray) -> np.ndarray:
        """Return the columns of X, (n, p), of cells (n,)."""
        columns = self._encode(cells)
        return np.column_stack([columns, np.isnan(cells)]) if self.indicator else columns

    @abstractmethod
    def _encode(self, cells: np.ndarray) -> np.ndarray:
        """Return the columns of X without the indicator."""

    def find_unseen(self, cells: np.ndarray) -> tuple[str, np.ndarray]:
        """Return a description of cells not seen in training, and their mask (n,)."""
        return "missing values, which count as the median", np.isnan(cells) & (not self.indicator)


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

    def cells(self, column: Any, location: Location) -> Float[np.ndarray, " n"]:
        return numbers_of(self.name, column, np.dtype(np.float64), location, self.comma)

    def _encode(self, cells: np.ndarray) -> np.ndarray:
        gaps = np.isnan(cells)
        return (np.where(gaps, self.fill, cells) if gaps.any() else cells)[:, None]


@dataclass(frozen=True)
class Levels(Encoder):
    """A column of categories: a table with a row for each level."""

    name: str
    levels: tuple[str, ...]
    # columns of X at each level, at a missing cell and at an unseen level; if empty, a column of 0
    # and 1 per level, all 0 at missing cells and unseen levels
    table: tuple[tuple[float, ...], ...] = ()
    features: tuple[str, ...] = ()  # names of the columns of the table
    indicator: bool = False  # whether a column of 0 and 1 marks missing cells
    tolerated: float = 0.0  # share of cells with an unseen level up to which there is no warning
    # further categories of the column's type: they count as unseen, without a warning
    declared: tuple[str, ...] = ()
    kind: str = "levels"

    @property
    def is_ordered(self) -> bool:
        """Whether the levels are ordered, and one column holds their ranks from 0 to 1."""
        return self.features == (self.name,)

    @property
    def _names(self) -> tuple[str, ...]:
        return self.features or tuple(f"{self.name}={level}" for level in self.levels)

    @cached_property
    def code(self) -> dict[str, float]:
        """Codes of known texts."""
        codes = {level: float(j) for j, level in enumerate(self.levels)}
        return {**dict.fromkeys(self.declared, DECLARED), **codes}

    @cached_property
    def _latest(self) -> list[Any]:
        return [None, None]  # different texts and their codes

    def cells(self, column: Any, location: Location) -> Float[np.ndarray, " n"]:
        texts = as_texts(column)
        levels, codes = self._latest  # another thread may change it
        if levels is None or not levels.equals(texts.dictionary):
            codes = np.array([self.code.get(text, UNSEEN) for text in texts.dictionary.to_pylist()])
            self._latest[:] = texts.dictionary, codes
        return map_texts(texts, codes)

    @cached_property
    def rows(self) -> np.ndarray:
        """Encoded columns of each level, a missing cell and an unseen level: (levels + 2, p)."""
        if self.table:
            return np.array(self.table, np.float64)
        return np.eye(len(self.levels) + 2, len(self.levels))

    def places(self, cells: np.ndarray) -> np.ndarray:
        """Return the row of `rows` for each cell."""
        if len(cells) and cells.min() >= 0:  # no cell is missing or unseen
            return cells.astype(np.intp)
        rows = np.where(cells < 0, len(self.levels) + 1, cells)
        return np.where(np.isnan(cells), len(self.levels), rows).astype(np.intp)

    def _encode(self, cells: np.ndarray) -> np.ndarray:
        return self.rows.take(self.places(cells), axis=0)

    def find_unseen(self, cells: np.ndarray) -> tuple[str, np.ndarray]:
        new = cells == UNSEEN
        if np.count_nonzero(new) > self.tolerated * len(cells):
            mostly = "mostly " * (self.tolerated > 0)
            return f"{mostly}categories that the fit has not seen, which count as unknown", new
        missing = np.isnan(cells) & (not (self.tolerated or self.indicator))
        return "missing values, which count as unknown", missing


def ordinal(
    name: str, levels: tuple[str, ...], fill: float = 0.5, indicator: bool = False
) -> Levels:
    """Return the encoder of ordered levels as ranks from 0 to 1; other cells become ``fill``."""
    places = [j / max(1, len(levels) - 1) for j in range(len(levels))]
    table = tuple((place,) for place in (*places, fill, fill))
    return Levels(name, levels, table, (name,), indicator)


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
    """Return names of `PARTS`: "day" for clock times; "trend" and full cycles for dates."""
    if clock:
        return ("day",)
    finite = seconds[np.isfinite(seconds)]
    if not len(finite):
        return ("trend",)
    span, times = np.ptp(finite) / DAY, finite.astype("datetime64[s]")
    weekly = span >= 14 and np.any(times != times.astype("datetime64[M]"))
    daily = span >= 2 and np.any(finite % DAY != finite[0] % DAY)
    cycles = {"year": span > YEAR, "week": weekly, "day": daily}
    return ("trend", *(part for part, varies in cycles.items() if varies))


@dataclass(frozen=True)
class Times(Encoder):
    """A column of dates or times: trend in days, season of the year and of the week, and hour."""

    name: str
    parts: tuple[str, ...]  # see `PARTS`; all but the trend are cyclic, as a sine and a cosine
    origin: float = 0.0  # seconds since 1970 at which the trend is zero
    fill: float = 0.0  # the median in seconds, in place of missing times
    indicator: bool = False  # whether a column of 0 and 1 marks missing times
    form: str = ""  # one of `FORMS`, if the cells are texts
    kind: str = "times"

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(f"{self.name} ({word})" for part in self.parts for word in PARTS[part][0])

    def cells(self, column: Any, location: Location) -> Float[np.ndarray, " n"]:
        kind = str(column.type)
        if "string" not in kind:
            if not kind.startswith(("timestamp", "date", "time", "duration", "null")):
                raise _type_error(self.name, "times", kind, location)
            return seconds_in(column)
        form = self.form or form_of(texts_in(column)) or "year-month-day"
        parse = partial(seconds_of, form=form)
        return _parse_texts(self.name, column, parse, f"times as {form}", location)

    def _encode(self, cells: np.ndarray) -> np.ndarray:
        seconds = np.where(np.isnan(cells), self.fill, cells)
        return np.column_stack(self.columns(seconds))

    def columns(self, seconds: Any) -> list[Any]:
        """Return the columns of X for times without NaN, in any array library."""
        columns = [column for part in self.parts for column in PARTS[part][1](seconds)]
        if "trend" in self.parts:
            columns[0] = columns[0] - self.origin / DAY
        return columns


_KINDS: dict[str, type[Encoder]] = {cls.kind: cls for cls in (Numbers, Times, Levels)}


def as_encoder(encoder: Encoder | Mapping[str, Any]) -> Encoder:
    """Return the encoder; a mapping of its fields, as in JSON, is converted."""
    if isinstance(encoder, Encoder):
        return encoder
    cls: Any = _KINDS.get(encoder.get("kind", ""))
    names = set() if cls is None else {field.name for field in fields(cls)}
    if not {*encoder} <= names:
        raise InvalidInput(
            f"Schema: an encoder must have a kind, one of {', '.join(map(repr, _KINDS))}, and "
            f"fields of that kind; got {dict(encoder)!r:.100}."
        )
    return cls(**{key: _tuples(value) for key, value in encoder.items()})


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list | tuple) else value


# --- Target means of training rows: a row is encoded without the rows in its fold ----------------

#: Folds of the training rows.
FOLDS = 5


@lru_cache(maxsize=2)  # several columns ask for the folds of the same rows
def folds(start: int, count: int) -> np.ndarray:
    """Return the fold of each row, a random function of its number (SplitMix64)."""
    z = np.arange(start + 1, start + count + 1, dtype=np.uint64)
    return (mix_bits(z * np.uint64(0x9E3779B97F4A7C15)) % np.uint64(FOLDS)).astype(np.intp)


# --- Cells of Arrow columns as numbers, NaN where they are missing --------------------------------


def column_of(frame: Any, name: str) -> Any:
    """Return a column of an Arrow table or record batch as one array."""
    column = frame.column(name)
    if hasattr(column, "chunks"):
        column = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    return arrow_rows(column)


def arrow_rows(column: Any, start: int = 0, stop: int | None = None) -> Any:
    """Return rows of a NumPy or Arrow array as Arrow, in a type for which ``take`` works."""
    import pyarrow as pa
    import pyarrow.compute as pc

    rows = column[start:stop]
    if isinstance(rows, np.ndarray):
        return pa.array(np.ascontiguousarray(rows))  # much faster than Arrow's copy of a view
    if str(rows.type).startswith("run_end_encoded"):
        rows = rows.combine_chunks() if hasattr(rows, "chunks") else rows
        if hasattr(rows.values, "dictionary"):  # Arrow decodes no runs of dictionary codes
            words = rows.values.dictionary_decode()
            runs = pa.RunEndEncodedArray.from_arrays(rows.run_ends, words)
            rows = runs.slice(rows.offset, len(rows))
        return pc.run_end_decode(rows)
    return rows.cast("large_string") if str(rows.type) == "string_view" else rows


def as_numpy(array: Any, missing: float = 0) -> np.ndarray:
    """Return an Arrow array of numbers as a NumPy array, without importing pandas."""
    return np.from_dlpack(array.fill_null(missing) if array.null_count else array)


def is_missing(column: Any) -> np.ndarray:
    """Return whether each cell is null, or a NaN."""
    return as_numpy(column.is_null(nan_is_null=True).cast("int8")) == 1


def as_texts(column: Any) -> Any:
    """Return a column as an Arrow dictionary array of large strings; str converts other values."""
    import pyarrow as pa

    words: Any = getattr(column, "dictionary", ())
    if len(words) and (words.null_count or len(words) > len(column)):
        column = column.dictionary_decode()  # so that the dictionary has only words that occur
    if str(column.type) == "null":
        column = column.cast("large_string")
    if not hasattr(column, "dictionary"):
        column = column.dictionary_encode()
    words = column.dictionary
    if "string" in str(words.type):
        words = words.cast("large_string")
    else:
        words = pa.array([str(value) for value in words.to_pylist()], "large_string")
    return pa.DictionaryArray.from_arrays(column.indices, words)


def map_texts(texts: Any, numbers: Any) -> Float[np.ndarray, " n"]:
    """Return the numeric value of each cell, from those of the distinct texts; NaN if missing."""
    places = as_numpy(texts.indices.cast("int32"), missing=len(texts.dictionary))
    return np.append(np.asarray(numbers, np.float64), np.nan).take(places)


def texts_in(column: Any, rows: np.ndarray | None = None) -> list[str]:
    """Return the different texts of a column, by default in all rows."""
    import pyarrow.compute as pc

    texts = as_texts(column)
    places = texts.indices if rows is None else texts.indices.take(rows)
    return texts.dictionary.take(pc.unique(places.drop_null())).unique().to_pylist()


def is_number(value: Any) -> bool:
    """Whether a value is a number or the text of one, but not ``1_000`` or ``1,000.5``."""
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return "_" not in str(value)


def _parse_texts(
    name: str, column: Any, parse: Callable[[str], float | None], content: str, location: Location
) -> Float[np.ndarray, " n"]:
    """Return ``parse(text)`` for each text, NaN for a missing one; None raises an error."""
    texts = as_texts(column)
    numbers = [parse(text) for text in texts.dictionary.to_pylist()]
    if (rows := np.flatnonzero(map_texts(texts, [n is None for n in numbers]) == 1)).size:
        row = int(rows[0])
        text = texts[row].as_py().strip()
        raise InvalidInput(
            f"Blocks: column {name!r} must hold {content}; got "
            f"{text if len(text) <= 40 else text[:37] + '...'!r} in {location(row)}. Correct or "
            f"empty the cell, or read the column as text with dtypes={{{name!r}: 'category'}}."
        )
    return map_texts(texts, numbers)


def numbers_of(
    name: str, column: Any, dtype: np.dtype, location: Location, comma: bool = False
) -> Float[np.ndarray, " n"]:
    """Return a column of numbers, or of texts that are numbers; NaN where cells are missing."""
    kind = str(column.type)
    if "string" in kind or kind.startswith("dictionary"):

        def parse(text: str) -> float | None:
            text = text.replace(",", ".", 1) if comma else text
            return float(text) if is_number(text) else None

        return _parse_texts(name, column, parse, "numbers", location).astype(dtype)
    if kind.startswith("duration"):
        return seconds_in(column).astype(dtype)
    try:
        column = column.cast("float" if dtype == np.float32 else "double", safe=False)
    except (NotImplementedError, ValueError) as error:  # pyarrow's
        raise _type_error(name, "numbers", kind, location) from error
    return as_numpy(column, missing=np.nan)


def _type_error(name: str, content: str, kind: str, location: Location) -> InvalidInput:
    return InvalidInput(
        f"Blocks: column {name!r} must hold {content}, as in the training data; from {location(0)} "
        f"on it holds {kind}. Use one type in all tables, partitions and files."
    )


def seconds_in(column: Any) -> Float[np.ndarray, " n"]:
    """Return seconds of local clock time, since 1970 or since midnight."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        column = pc.local_timestamp(column)
    fine = pa.duration("us") if pa.types.is_duration(kind) else pa.timestamp("us")
    fine, unit = (pa.time64("ns"), 1e9) if pa.types.is_time(kind) else (fine, 1e6)
    numbers = column.cast(fine, safe=False).cast("int64").cast("double", safe=False)
    return as_numpy(numbers, np.nan) / unit


# --- Texts that are dates and times, as seconds since 1970 or since midnight ----------------------

_CLOCK = (
    r"(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2}(?:[.,]\d+)?))?"
    r"(?:\s*(?P<half>[AaPp])\.?[Mm]\.?)?"
)
_AND_CLOCK = rf"(?:[T\s]+{_CLOCK}(?:\s*(?:Z|UTC|[+-]\d{{2}}:?\d{{2}}))?)?"

#: How texts may write dates and times. Of two forms that both match, the first is taken: a number
#: above 12 distinguishes day and month. A month or a quarter of a year is its first day. A zone is
#: read and ignored: times are as the clock shows them.
FORMS: dict[str, re.Pattern[str]] = {
    "clock": re.compile(_CLOCK),
    "year-month-day": re.compile(
        rf"(?P<year>\d{{4}})[-/.](?P<month>\d{{1,2}})[-/.](?P<day>\d{{1,2}}){_AND_CLOCK}"
    ),
    "month/day/year": re.compile(
        rf"(?P<month>\d{{1,2}})/(?P<day>\d{{1,2}})/(?P<year>\d{{4}}){_AND_CLOCK}"
    ),
    "day.month.year": re.compile(
        rf"(?P<day>\d{{1,2}})[-/.](?P<month>\d{{1,2}})[-/.](?P<year>\d{{4}}){_AND_CLOCK}"
    ),
    "year-month": re.compile(r"(?P<year>\d{4})-(?P<month>\d{1,2})"),
    "year quarter": re.compile(r"(?P<year>\d{4})[\s-]?[Qq](?P<quarter>[1-4])"),
}


def form_of(texts: Collection[str]) -> str:
    """Return the common date format of all texts, "" if there is none."""
    reads = lambda form: all(seconds_of(text, form) is not None for text in texts)
    return next(filter(reads, FORMS), "") if texts else ""


def seconds_of(text: str, form: str) -> float | None:
    """Return a date's seconds since 1970, or a time's since midnight; None in another form."""
    match = FORMS[form].fullmatch(text.strip())
    if match is None:
        return None
    part = match.groupdict()
    hour, minute = int(part.get("hour") or 0), int(part.get("minute") or 0)
    second = float((part.get("second") or "0").replace(",", "."))
    if half := part.get("half"):
        hour = hour % 12 + 12 * (half in "Pp") if 1 <= hour <= 12 else 99
    if minute > 59 or second >= 61 or hour * 60 + minute > 24 * 60:
        return None
    clock = 3600.0 * hour + 60.0 * minute + second
    if form == "clock":
        return clock
    month = part.get("month") or 3 * int(part["quarter"]) - 2
    try:
        day = dt.date(int(part["year"]), int(month), int(part.get("day") or 1))
    except ValueError:
        return None
    return (day.toordinal() - dt.date(1970, 1, 1).toordinal()) * DAY + clock
