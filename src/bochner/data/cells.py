"""The cells of a column as numbers: what encoders read, with NaN where they are missing."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from bochner._core.shapes import Float
from bochner.data.encoders import UNSEEN, Encoder, Lookup, NumberColumn, TimeColumn
from bochner.data.schema import listed, parsed, shown
from bochner.data.times import form_of, parsed_times, seconds_in
from bochner.errors import BochnerError, InvalidInput

Where = Callable[[int], str]


def cells_of(encoder: Encoder, series: Any, where: Where) -> Float[np.ndarray, " n"]:
    """Return the cells of a narwhals series as the encoder reads them.

    Numbers stay, texts become places among levels, times seconds. Infinities are refused, and
    cells of text where numbers or times must be.
    """
    if encoder.levels is not None:
        return places_of(series, encoder.lookup)
    if isinstance(encoder, TimeColumn):
        return _times(encoder, series, where)
    cells = _numbers(series, where, isinstance(encoder, NumberColumn) and encoder.comma)
    if np.isinf(cells).any():
        row = int(np.flatnonzero(np.isinf(cells))[0])
        raise InvalidInput(
            f"Blocks: column {encoder.name!r} must hold finite numbers; got {cells[row]} in "
            f"{where(row)}. Leave such cells empty, or drop such rows first."
        )
    return cells


def plain_numbers(series: Any, where: Where) -> Float[np.ndarray, " n"]:
    """Return a column of numbers, or of texts that are, maybe with a comma before the decimals."""
    return _numbers(series, where, comma=True)


def holds_text(series: Any) -> bool:
    """Whether the cells of a column are texts."""
    import narwhals as nw

    return series.dtype in (nw.String, nw.Categorical, nw.Enum)


def _numbers(series: Any, where: Where, comma: bool) -> Float[np.ndarray, " n"]:
    import narwhals as nw

    if not series.dtype.is_numeric() and (len(series) == 0 or series.is_null().all()):
        return np.full(len(series), np.nan)
    if holds_text(series):
        values = series.to_list()
        if comma:
            values = [v if v is None else str(v).replace(",", ".") for v in values]
        return parsed(series.name, values, np.dtype(np.float64), where)
    if series.dtype == nw.Duration:
        return seconds_in(series)
    with cast_as("numbers", series, where):
        if type(series.to_native()).__module__.startswith("pyarrow"):
            return np.asarray(series.to_native().cast("double").to_numpy(), np.float64)
        return np.asarray(series.cast(nw.Float64).to_numpy(), np.float64)


@contextmanager
def cast_as(what: str, series: Any, where: Where) -> Iterator[None]:
    """Refuse a column of another type than it had in the first rows, as another partition may."""
    kind = series.dtype
    try:
        if kind.is_nested() or (kind.is_temporal() if what == "numbers" else kind.is_numeric()):
            raise TypeError
        yield
    except BochnerError:
        raise
    except (TypeError, ValueError, AttributeError, NotImplementedError) as error:
        reason = f" ({str(error).splitlines()[0]})" if str(error) else ""
        raise InvalidInput(
            f"Blocks: column {series.name!r} must hold {what}, as it does in the first rows; from "
            f"{where(0)} on it holds {kind}{reason}. Make all partitions or files alike."
        ) from error


def _times(encoder: TimeColumn, series: Any, where: Where) -> Float[np.ndarray, " n"]:
    if not holds_text(series):
        with cast_as("times", series, where):
            return seconds_in(series)
    missing = series.is_null().to_list()
    pairs = zip(series.to_list(), missing, strict=True)
    values = [None if gone else str(value) for value, gone in pairs]
    form = encoder.form or form_of({v for v in values if v is not None}) or "year-month-day"
    cells = parsed_times(values, form)
    if np.isinf(cells).any():
        row = int(np.flatnonzero(np.isinf(cells))[0])
        raise InvalidInput(
            f"Blocks: column {encoder.name!r} must hold times as {form}; got "
            f"{shown(str(values[row]))} in {where(row)}. Mend or empty the cell, or take the "
            f"column as text with dtypes={{{encoder.name!r}: 'category'}}."
        )
    return cells


def places_of(series: Any, lookup: Lookup) -> Float[np.ndarray, " n"]:
    """Return the place of each text; −2 for declared texts, −1 for others, NaN where missing."""
    chunks = _arrow_texts(series)
    if chunks is not None:
        return np.concatenate([np.empty(0), *(_places(chunk, lookup) for chunk in chunks)])
    missing = series.is_null().to_list()
    values = [None if gone else v for v, gone in zip(series.to_list(), missing, strict=True)]
    code = {v: lookup.place.get(str(v), UNSEEN) for v in set(values)} | {None: np.nan}
    return np.fromiter(map(code.__getitem__, values), np.float64, len(values))


def _arrow_texts(series: Any) -> list[Any] | None:
    """Return a column of texts as Arrow arrays; None where it holds other values, or without it."""
    try:
        import pyarrow as pa

        column = series.to_arrow()
    except (ImportError, TypeError, ValueError, NotImplementedError):
        return None
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if "string" not in str(kind):
        return None
    return column.chunks if isinstance(column, pa.ChunkedArray) else [column]


def _places(texts: Any, lookup: Lookup) -> Float[np.ndarray, " n"]:
    import pyarrow.compute as pc

    if hasattr(texts, "dictionary"):
        places = np.append(_places(texts.dictionary, lookup), np.nan)
        return places[plain(texts.indices.cast("int64"), missing=-1)]
    found = pc.index_in(texts.cast("large_string"), value_set=lookup.arrow)
    places = lookup.codes[plain(found, missing=-1)]
    if texts.null_count:
        places[plain(texts.is_null().cast("int8")) == 1] = np.nan
    return places


def plain(array: Any, missing: float = 0) -> np.ndarray:
    """Return an Arrow array of numbers; its own conversion, and ``fill_null``, import pandas."""
    dtype = np.dtype({"float": "float32"}.get(str(array.type), str(array.type)))
    if len(array) == 0:  # it may have no buffer
        return np.empty(0, dtype)
    numbers = np.frombuffer(array.buffers()[1], dtype, len(array), array.offset * dtype.itemsize)
    if not array.null_count:
        return numbers
    return np.where(plain(array.is_null().cast("int8")), dtype.type(missing), numbers)


def unseen_texts(series: Any, encoder: Encoder) -> str:
    """Return the texts of a column that the encoder does not know, for a sentence."""
    known = {*(encoder.levels or ()), *encoder.declared}
    values = {str(v) for v in series.drop_nulls().to_list()} - known
    return listed(sorted(values), 3)
