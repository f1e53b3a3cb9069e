"""Dates and times as numbers: seconds since 1970, or since midnight.

Times of a zone are taken as the clock there shows them.
"""

import datetime as dt
import re
from collections.abc import Iterable
from typing import Any

import numpy as np

from bochner._core.shapes import Float
from bochner.data.encoders import DAY

_CLOCK = (
    r"(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2}(?:[.,]\d+)?))?"
    r"(?:\s*(?P<half>[AaPp])\.?[Mm]\.?)?"
)
_ZONE = r"(?:\s*(?:Z|UTC|[+-]\d{2}:?\d{2}))?"
_AND_CLOCK = rf"(?:[T\s]+{_CLOCK}{_ZONE})?"

#: How texts may write dates and times. Of two forms that both read all texts the first is taken:
#: day and month in numbers are told apart by a number above 12. A month or a quarter of a year is
#: its first day.
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


def form_of(texts: Iterable[str]) -> str:
    """Return the form that all texts are written in, "" if there is none."""
    texts = list(texts)
    if not texts:
        return ""
    first = [form for form, pattern in FORMS.items() if pattern.fullmatch(texts[0].strip())]
    return next((form for form in first if all(_reads(form, text) for text in texts)), "")


def _reads(form: str, text: str) -> bool:
    return not np.isnan(seconds_of(text, form))


def seconds_of(text: str, form: str) -> float:
    """Return the seconds since 1970, or since midnight of a clock; NaN if it is not of the form."""
    found = FORMS[form].fullmatch(text.strip())
    if found is None:
        return np.nan
    part = found.groupdict()
    try:
        clock = _clock(part)
        if form == "clock":
            return clock
        month = part.get("month") or 3 * int(part["quarter"]) - 2
        day = dt.date(int(part["year"]), int(month), int(part.get("day") or 1))
    except ValueError:
        return np.nan
    return (day.toordinal() - dt.date(1970, 1, 1).toordinal()) * DAY + clock


def _clock(part: dict[str, Any]) -> float:
    """Return seconds since midnight; ValueError if no clock shows them."""
    if not part.get("hour"):
        return 0.0
    hour, minute = int(part["hour"]), int(part["minute"])
    second = float((part["second"] or "0").replace(",", "."))
    if part["half"]:
        if not 1 <= hour <= 12:
            raise ValueError(hour)
        hour = hour % 12 + 12 * (part["half"] in "Pp")
    if hour > 24 or minute > 59 or second >= 61 or hour * 60 + minute > 24 * 60:
        raise ValueError(hour)
    return 3600.0 * hour + 60.0 * minute + second


def parsed_times(values: list[Any], form: str) -> Float[np.ndarray, " n"]:
    """Return texts as seconds: NaN for missing ones, infinity for those not of the form."""
    known: dict[Any, float] = {None: np.nan}
    for value in set(values) - {None}:
        seconds = seconds_of(str(value), form)
        known[value] = np.inf if np.isnan(seconds) else seconds
    return np.fromiter(map(known.__getitem__, values), np.float64, len(values))


# --- Columns of the types that tables have for them ----------------------------------------------


def seconds_in(series: Any) -> Float[np.ndarray, " n"]:
    """Return a narwhals series of dates, times or durations as seconds, NaN where missing."""
    import narwhals as nw

    native = series.to_native()
    if type(native).__module__.startswith("pyarrow"):
        return _from_arrow(native)
    if series.dtype == nw.Date:
        series = series.cast(nw.Datetime("us"))
    if series.dtype == nw.Datetime:
        return _floats(series.dt.replace_time_zone(None).dt.timestamp("us").to_list()) / 1e6
    return _floats([_seconds(value) for value in series.to_list()])


def _from_arrow(column: Any) -> Float[np.ndarray, " n"]:
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        column = pc.local_timestamp(column)
    if pa.types.is_time(kind):
        column = column.cast(pa.time64("ns"))
    elif pa.types.is_duration(kind):
        column = column.cast(pa.duration("us"))
    else:
        column = column.cast(pa.timestamp("us"), safe=False)
    units = 1e9 if pa.types.is_time(kind) else 1e6
    return column.cast(pa.int64()).cast(pa.float64(), safe=False).to_numpy() / units


def _floats(values: list[Any]) -> Float[np.ndarray, " n"]:
    return np.array([np.nan if is_missing(v) else v for v in values], np.float64)


def is_missing(value: Any) -> bool:
    """Whether it is None, pandas' NA or NaT, or NaN: of these none is equal to itself."""
    return value is None or type(value).__name__ in ("NAType", "NaTType") or value != value  # noqa: PLR0124


def _seconds(value: Any) -> Any:
    if isinstance(value, dt.time):
        return 3600.0 * value.hour + 60.0 * value.minute + value.second + value.microsecond / 1e6
    return value.total_seconds() if isinstance(value, dt.timedelta) else None
