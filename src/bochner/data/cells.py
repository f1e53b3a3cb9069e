"""Cells of Arrow columns as the numbers that encoders read, with NaN where they are missing."""

import datetime as dt
import re
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from bochner._core.shapes import Float
from bochner.data.encoders import DAY, Encoder, Levels, Numbers, Times
from bochner.data.schema import display_text, is_number
from bochner.errors import InvalidInput

#: Gives the place of a row, counted from 0, as part of a sentence.
Where = Callable[[int], str]


def column_of(frame: Any, name: str) -> Any:
    """Return a column of an Arrow table or record batch as one array, without run-length codes."""
    column = frame.column(name)
    if hasattr(column, "chunks"):
        column = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    if str(column.type).startswith("run_end_encoded"):
        import pyarrow.compute as pc

        column = pc.run_end_decode(column)
    return column


def cells_of(encoder: Encoder, frame: Any, where: Where) -> Float[np.ndarray, " n"]:
    """Return the cells of the encoder's column: finite numbers, codes of levels, or seconds."""
    column = column_of(frame, encoder.name)
    if isinstance(encoder, Levels):
        return codes_of(column, encoder)
    if isinstance(encoder, Times):
        return _times(encoder, column, where)
    comma = isinstance(encoder, Numbers) and encoder.comma
    cells = numbers_of(encoder.name, column, np.dtype(np.float64), where, comma)
    if np.isinf(cells).any():
        row = int(np.flatnonzero(np.isinf(cells))[0])
        raise InvalidInput(
            f"Blocks: column {encoder.name!r} must hold finite numbers; got {cells[row]} in "
            f"{where(row)}. Leave such cells empty, or drop such rows first."
        )
    return cells


def plain(array: Any, missing: float = 0) -> np.ndarray:
    """Return an Arrow array of numbers as NumPy's; pyarrow's own conversion imports pandas."""
    dtype = np.dtype({"float": "float32"}.get(str(array.type), str(array.type)))
    if len(array) == 0:  # it may have no buffer
        return np.empty(0, dtype)
    numbers = np.frombuffer(array.buffers()[1], dtype, len(array), array.offset * dtype.itemsize)
    if not array.null_count:
        return numbers
    return np.where(is_missing(array), dtype.type(missing), numbers)


def is_missing(column: Any) -> np.ndarray:
    """Return whether each cell is null, or a NaN."""
    nan_is_null = str(column.type) in ("float", "double", "halffloat")
    return plain(column.is_null(nan_is_null=nan_is_null).cast("int8")) == 1


def as_texts(column: Any) -> Any:
    """Return a column as codes of a dictionary of large strings; str converts other values."""
    import pyarrow as pa

    if str(column.type) in ("null", "string_view"):
        column = column.cast("large_string")
    if hasattr(column, "dictionary") and column.dictionary.null_count:
        column = column.dictionary_decode()
    if not hasattr(column, "dictionary"):
        column = column.dictionary_encode()
    words = column.dictionary
    if "string" in str(words.type):
        words = words.cast("large_string")
    else:
        words = pa.array([str(value) for value in words.to_pylist()], "large_string")
    return pa.DictionaryArray.from_arrays(column.indices, words)


def _occurring(column: Any) -> Any:
    """Return the same; of a dictionary longer than the column only the words that occur."""
    texts = as_texts(column)
    return as_texts(texts.dictionary_decode()) if len(texts.dictionary) > len(texts) else texts


def places_in(texts: Any) -> np.ndarray:
    """Return the index of each cell's text in the dictionary; its length where missing."""
    return plain(texts.indices.cast("int32"), missing=len(texts.dictionary))


def by_value(texts: Any, numbers: Any) -> Float[np.ndarray, " n"]:
    """Return the number of each cell from those of the different texts; NaN where it is missing."""
    return np.append(np.asarray(numbers, np.float64), np.nan).take(places_in(texts))


def codes_of(column: Any, levels: Levels) -> Float[np.ndarray, " n"]:
    """Return the code of each text; NaN where it is missing."""
    texts = as_texts(column)
    return by_value(texts, levels.codes(texts.dictionary))


def texts_in(column: Any) -> list[str]:
    """Return the different texts of a column."""
    import pyarrow.compute as pc

    texts = as_texts(column)
    return texts.dictionary.take(pc.unique(texts.indices.drop_null())).unique().to_pylist()


def is_all_numbers(texts: Iterable[str], comma: bool = False) -> bool:
    """Whether all texts are numbers, with a decimal point or maybe a decimal comma."""
    return all(is_number(text.replace(",", ".", 1) if comma else text) for text in texts)


def numbers_of(
    name: str, column: Any, dtype: np.dtype, where: Where, comma: bool = False
) -> Float[np.ndarray, " n"]:
    """Return a column of numbers, or of texts that are numbers; NaN where cells are missing."""
    kind = str(column.type)
    if kind == "null":
        return np.full(len(column), np.nan, dtype)
    if "string" in kind or kind.startswith("dictionary"):
        texts = _occurring(column)
        words = [w.replace(",", ".", 1) if comma else w for w in texts.dictionary.to_pylist()]
        stray = [not is_number(word) for word in words]
        if (wrong := np.flatnonzero(by_value(texts, stray) == 1)).size:
            row = int(wrong[0])
            raise InvalidInput(
                f"Blocks: column {name!r} must hold numbers; got "
                f"{display_text(texts[row].as_py())} in {where(row)}. Mend the cell, or take "
                f"the column as text with dtypes={{{name!r}: 'category'}}."
            )
        pairs = zip(words, stray, strict=True)
        numbers = [np.nan if no_number else float(w) for w, no_number in pairs]
        return by_value(texts, numbers).astype(dtype)
    if kind.startswith("duration"):
        return seconds_in(column).astype(dtype)
    if kind.startswith(("list", "struct", "map", "timestamp", "date", "time", "binary")):
        raise _of_another_type(name, "numbers", kind, where)
    try:
        column = column.cast("float" if dtype == np.float32 else "double")
    except NotImplementedError as error:
        raise _of_another_type(name, "numbers", kind, where) from error
    except ValueError as error:  # pyarrow's ArrowInvalid
        longest = 1 << 53
        cells = column.to_pylist()
        row = next((i for i, v in enumerate(cells) if v is not None and abs(v) > longest), 0)
        raise InvalidInput(
            f"Blocks: column {name!r} must hold numbers that float64 holds, whole ones from "
            f"-2**53 to 2**53; got {cells[row]} in {where(row)}. Subtract the least of them first, "
            "or store the column as double if rounding does no harm."
        ) from error
    return plain(column, missing=np.nan)


def _of_another_type(name: str, required: str, kind: str, where: Where) -> InvalidInput:
    return InvalidInput(
        f"Blocks: column {name!r} must hold {required}, as it does in the first rows; from "
        f"{where(0)} on it holds {kind}. Make all partitions or files alike."
    )


# --- Dates and times ------------------------------------------------------------------------------


def seconds_in(column: Any) -> Float[np.ndarray, " n"]:
    """Return seconds since 1970 as the clock of the column's zone shows them, or since midnight."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        column = pc.local_timestamp(column)
    fine = pa.duration("us") if pa.types.is_duration(kind) else pa.timestamp("us")
    fine, unit = (pa.time64("ns"), 1e9) if pa.types.is_time(kind) else (fine, 1e6)
    return (
        plain(column.cast(fine, safe=False).cast("int64").cast("double", safe=False), np.nan) / unit
    )


def _times(encoder: Times, column: Any, where: Where) -> Float[np.ndarray, " n"]:
    kind = str(column.type)
    if "string" not in kind:
        if not kind.startswith(("timestamp", "date", "time", "duration", "null")):
            raise _of_another_type(encoder.name, "times", kind, where)
        return np.full(len(column), np.nan) if kind == "null" else seconds_in(column)
    texts = _occurring(column)
    form = encoder.form or form_of(texts_in(texts)) or "year-month-day"
    seconds = np.array([seconds_of(text, form) for text in texts.dictionary.to_pylist()])
    cells = by_value(texts, np.where(np.isnan(seconds), np.inf, seconds))
    if np.isinf(cells).any():
        row = int(np.flatnonzero(np.isinf(cells))[0])
        raise InvalidInput(
            f"Blocks: column {encoder.name!r} must hold times as {form}; got "
            f"{display_text(texts[row].as_py())} in {where(row)}. Mend or empty the cell, or take "
            f"the column as text with dtypes={{{encoder.name!r}: 'category'}}."
        )
    return cells


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
