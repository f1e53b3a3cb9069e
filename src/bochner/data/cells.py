"""Cells of Arrow columns as the numbers that encoders read, with NaN where they are missing."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from bochner._core.shapes import Float
from bochner.data.encoders import UNSEEN, Encoder, Levels, Numbers, Times
from bochner.data.schema import display_text, is_number
from bochner.data.times import form_of, seconds_of
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


def by_value(texts: Any, values: Callable[[Any], Any]) -> Float[np.ndarray, " n"]:
    """Return a number for each cell of text from one for each different text; NaN for nulls."""
    if not hasattr(texts, "dictionary"):
        texts = texts.dictionary_encode()
    numbers = np.asarray(values(texts.dictionary), np.float64)
    places = plain(texts.indices.cast("int64"), -1)  # −1 is the last, NaN
    return np.append(numbers, np.nan).take(places, mode="wrap")


def as_texts(column: Any) -> Any:
    """Return a column as large strings or a dictionary of large strings; str converts values."""
    import pyarrow as pa

    if "string" in str(column.type) and not hasattr(column, "dictionary"):
        return column.cast("large_string")
    if pa.types.is_null(column.type):
        return column.cast("large_string")
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


def codes_of(column: Any, levels: Levels) -> Float[np.ndarray, " n"]:
    """Return the code of each text; NaN where it is missing."""
    texts = as_texts(column)
    if hasattr(texts, "dictionary") or len(levels.code) > len(texts):
        return by_value(texts, levels.codes)
    import pyarrow.compute as pc

    codes = np.array([*levels.code.values(), UNSEEN])
    codes_found = codes[plain(pc.index_in(texts, value_set=levels.arrow), missing=-1)]
    return np.where(is_missing(texts), np.nan, codes_found) if texts.null_count else codes_found


def texts_in(column: Any) -> list[str]:
    """Return the different texts of a column."""
    import pyarrow.compute as pc

    texts = as_texts(column)
    if hasattr(texts, "dictionary"):  # of a dictionary, those that occur
        texts = texts.dictionary.take(pc.unique(texts.indices.drop_null()))
    return [text for text in pc.unique(texts).to_pylist() if text is not None]


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
        texts = as_texts(column)
        if not is_all_numbers(texts_in(texts), comma):
            stray = lambda words: [not is_all_numbers([word], comma) for word in words.to_pylist()]
            row = int(np.argmax(by_value(texts, stray) == 1))
            raise InvalidInput(
                f"Blocks: column {name!r} must hold numbers; got "
                f"{display_text(texts[row].as_py())} in {where(row)}. Mend the cell, or take "
                f"the column as text with dtypes={{{name!r}: 'category'}}."
            )
        return by_value(
            texts, lambda words: [float(w.replace(",", ".")) for w in words.to_pylist()]
        ).astype(dtype)
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
    texts = as_texts(column)
    form = encoder.form or form_of(texts_in(texts)) or "year-month-day"

    def values(words: Any) -> np.ndarray:
        seconds = np.array([seconds_of(text, form) for text in words.to_pylist()], np.float64)
        return np.where(np.isnan(seconds), np.inf, seconds)

    cells = by_value(texts, values)
    if np.isinf(cells).any():
        row = int(np.flatnonzero(np.isinf(cells))[0])
        raise InvalidInput(
            f"Blocks: column {encoder.name!r} must hold times as {form}; got "
            f"{display_text(texts[row].as_py())} in {where(row)}. Mend or empty the cell, or take "
            f"the column as text with dtypes={{{encoder.name!r}: 'category'}}."
        )
    return cells
