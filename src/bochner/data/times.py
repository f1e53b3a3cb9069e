"""Texts that are dates and times, as seconds since 1970 or since midnight."""

import datetime as dt
import re
from collections.abc import Iterable
from typing import Any

import numpy as np

from bochner.data.encoders import DAY

_CLOCK = (
    r"(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2}(?:[.,]\d+)?))?"
    r"(?:\s*(?P<half>[AaPp])\.?[Mm]\.?)?"
)
_ZONE = r"(?:\s*(?:Z|UTC|[+-]\d{2}:?\d{2}))?"
_AND_CLOCK = rf"(?:[T\s]+{_CLOCK}{_ZONE})?"

#: How texts may write dates and times. Of two forms that both read all texts the first is taken:
#: a number above 12 distinguishes day and month. A month or a quarter of a year is
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
    reads = lambda form: not np.isnan([seconds_of(text, form) for text in texts]).any()
    return next(filter(reads, first), "")


def seconds_of(text: str, form: str) -> float:
    """Return the seconds since 1970, or since midnight of a clock; NaN if it is not of the form."""
    match = FORMS[form].fullmatch(text.strip())
    if match is None:
        return np.nan
    part = match.groupdict()
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
    """Return seconds since midnight; ValueError if it is not a time of day."""
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


def is_missing(value: Any) -> bool:
    """Whether it is None, pandas' NA or NaT, or NaN, which are not equal to themselves."""
    return value is None or type(value).__name__ in ("NAType", "NaTType") or value != value  # noqa: PLR0124
