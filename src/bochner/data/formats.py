"""Table files read in pieces of bounded size: Parquet, Feather and text.

pyarrow reads them, from disks and from the file systems of fsspec. Its `dataset` is not used: a
scanner holds whole row groups of Parquet and some fifty blocks of text, and importing it imports
pandas. This module adds what pyarrow does not do: it finds the separator, and its errors name the
place and the cause.
"""

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from bochner._core.optional import explained, needed
from bochner.data.files import (
    COMPRESSED,
    FEATHER,
    PARQUET,
    TEXT,
    WHO,
    File,
    Stamp,
    empty_file,
    first_bytes,
    stamp_of,
    table_suffix,
    unchanged,
    unpacked,
    unreadable,
    within,
)
from bochner.data.frames import arrow_columns
from bochner.data.schema import is_number, listed
from bochner.data.tables import Column, Reader
from bochner.errors import BochnerError, DataFileError, InvalidInput


def open_file(file: File, separator: str | None) -> Reader:
    """Return the reader of a file, by its first bytes, or by its name for text."""
    suffix, head = table_suffix(file.name), first_bytes(file, 6)
    if head.startswith(b"PAR1") or suffix in PARQUET:
        return _open_parquet(file)
    if head == b"ARROW1" or suffix in FEATHER:
        return _open_feather(file)
    if suffix in TEXT:
        return _open_text(file, separator)
    raise DataFileError(
        f"{WHO}: '{file}' must be Parquet ({listed(PARQUET)}), Feather ({listed(FEATHER)}) or "
        f"text ({listed(TEXT)}, perhaps compressed: {listed(COMPRESSED)}); got the "
        f"suffix {suffix!r}. Convert or rename it."
    )


@dataclass(frozen=True, eq=False)
class BinaryReader(Reader):
    """One Parquet or Feather file: types and the number of rows are in it."""

    file: File
    stamp: Stamp
    label: str
    columns: tuple[Column, ...]
    n_rows: int
    groups: tuple[int, ...]  # rows of each row group or batch of the file
    # (names, text, rows, number of the first group) to Arrow batches from this group on
    batches: Callable[[list[str], frozenset[str], int, int], Iterator[Any]]
    first: int = 0

    def frames(self, names: tuple[str, ...], text: frozenset[str], rows: int) -> Iterator[Any]:
        """Yield batches of these columns, cut if they are long.

        A part that begins in the group where the part before has ended continues its reading.
        """
        if self.n_rows == 0:
            return
        key, end = (str(self.file), self.stamp, names, text, rows), self.first + self.n_rows
        with unchanged(self.file, self.stamp):
            group = int(np.searchsorted(np.cumsum(self.groups), self.first, side="right"))
            at, batches = _PAUSED.pop(key, (-1, iter(())))
            if not sum(self.groups[:group]) <= at <= self.first:
                at = sum(self.groups[:group])
                batches = self.batches(list(names), text, rows, group)
            for batch in batches:
                begin, at = max(self.first - at, 0), at + batch.num_rows
                stop = batch.num_rows - max(at - end, 0)
                for start in range(begin, stop, rows):
                    yield batch.slice(start, min(rows, stop - start))
                if at >= end:
                    if end < sum(self.groups):
                        _PAUSED.clear()
                        _PAUSED[key] = end, chain([batch.slice(stop)], batches)
                    return

    def mark(self) -> str:
        return f"'{self.file}' {self.stamp}"

    def part(self, start: int, stop: int) -> "BinaryReader":
        return replace(self, first=self.first + start, n_rows=stop - start)


#: Where the last reading of a part has ended, and its further batches.
_PAUSED: dict[tuple[Any, ...], tuple[int, Iterator[Any]]] = {}


def _binary(
    file: File, stamp: Stamp, schema: Any, groups: Sequence[int], batches: Any
) -> BinaryReader:
    """Return the reader; row names of pandas are no columns, columns without rows hold nothing."""
    index, rows = re.compile("__index_level_.*__"), sum(groups)
    candidates = (c for c in arrow_columns(schema, f"'{file}'") if not index.fullmatch(c.name))
    columns = (c if rows else Column(c.name, "nothing", False, "no rows") for c in candidates)
    return BinaryReader(file, stamp, f"'{file}'", tuple(columns), rows, tuple(groups), batches)


def _explained(file: File, said: Callable[[Any], BochnerError]) -> AbstractContextManager[None]:
    """Return the context that raises, in place of what goes wrong, what ``said`` says of it."""
    refused = lambda e: unreadable(file, e) if isinstance(e, PermissionError) else said(e)
    return explained(refused, OSError, ValueError, NotImplementedError)


def _no_whole(file: File, kind: str, error: Exception) -> DataFileError:
    if "range requests" in str(error):  # as fsspec says it, of servers on the web
        return DataFileError(
            f"Blocks: '{file}' must be on a server that gives parts of files (range requests), to "
            f"be read as {kind}; its server gives whole ones. Copy it to a disk, or take CSV."
        )
    return DataFileError(
        f"Blocks: '{file}' must be a whole {kind} file; it is cut short, damaged or something "
        f"else ({str(error).splitlines()[0]}). Write or copy it again."
    )


def _open_parquet(file: File) -> BinaryReader:
    stamp = stamp_of(file)
    with _parquet(file, 1) as opened:
        schema, metadata = opened.schema_arrow, opened.metadata
        groups = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
        batches = partial(_parquet_batches, file, len(schema), _coded(schema, metadata))
    return _binary(file, stamp, schema, groups, batches)


def _coded(schema: Any, metadata: Any) -> frozenset[str]:
    """Return the columns of text that are stored as codes of a small dictionary.

    Other columns are read as text: pyarrow would gather the texts of a whole row group. A column
    with over three bytes per row is none of these, beside a dictionary of 1 MB.
    """
    text = {field.name for field in schema if "string" in str(field.type)}
    places = [j for j in range(metadata.num_columns) if metadata.schema.column(j).path in text]
    large = set()
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for column in map(group.column, places):
            if column.total_uncompressed_size > 3 * column.num_values + (1 << 21):
                large.add(column.path_in_schema)
    return frozenset(text - large)


@contextmanager
def _parquet(file: File, columns: int, text: Iterable[str] = ()) -> Iterator[Any]:
    (path, system), parquet = within(file), needed("pyarrow.parquet", WHO)
    # bytes read ahead, 1 MB of all columns: without a bound a whole row group is read at once
    ahead = max(1 << 14, (1 << 20) // columns)
    with (
        _explained(file, partial(_no_whole, file, "Parquet")),
        parquet.ParquetFile(
            path,
            filesystem=system,
            pre_buffer=False,
            buffer_size=ahead,
            read_dictionary=[*text],
            page_checksum_verification=True,
        ) as opened,
    ):
        yield opened


def _parquet_batches(
    file: File,
    columns: int,
    coded: frozenset[str],
    names: list[str],
    text: frozenset[str],
    rows: int,
    group: int,
) -> Iterator[Any]:
    with _parquet(file, columns, text & coded) as opened:
        groups = list(range(group, opened.metadata.num_row_groups))
        yield from opened.iter_batches(rows, groups, names, use_threads=False)


def _open_feather(file: File) -> BinaryReader:
    stamp = stamp_of(file)
    with _feather(file, []) as opened:  # all columns
        schema = opened.schema
    with _feather(file, [0]) as opened:
        counts = [opened.get_batch(i).num_rows for i in range(opened.num_record_batches)]
    batches = partial(_feather_batches, file, schema.names, len(counts))
    return _binary(file, stamp, schema, counts, batches)


@contextmanager
def _feather(file: File, columns: list[int]) -> Iterator[Any]:
    (path, system), ipc = within(file), needed("pyarrow.ipc", WHO)
    options = ipc.IpcReadOptions(included_fields=columns, use_threads=False)
    said = partial(_no_whole, file, "Feather")
    with _explained(file, said), system.open_input_file(path) as opened:
        yield ipc.open_file(opened, options=options)


def _feather_batches(
    file: File,
    known: list[str],
    count: int,
    names: list[str],
    _text: frozenset[str],
    _rows: int,
    first: int,
) -> Iterator[Any]:
    with _feather(file, [known.index(name) for name in names]) as opened:
        for batch in map(opened.get_batch, range(first, count)):
            batch.validate(full=True)  # offsets of texts of a damaged file may point anywhere
            yield batch


# --- Text: types from the first block, and a sentence where one was wrong -------------------------


@dataclass(frozen=True, eq=False)
class TextReader(Reader):
    """One text file: a line of names, then a line for each row."""

    file: File
    stamp: Stamp
    separator: str
    block: int  # bytes read at a time
    label: str
    columns: tuple[Column, ...] = ()
    n_rows: int | None = None  # 0, or None: only reading tells
    hint: str = ""
    of_text = True

    def frames(self, names: tuple[str, ...], text: frozenset[str], rows: int) -> Iterator[Any]:
        if self.n_rows == 0:
            return
        booleans = {c.name for c in self.columns if c.type_text == "bool"}
        pa = needed("pyarrow", WHO)
        kinds = {
            name: pa.string() if name in text else pa.bool_() if name in booleans else pa.float64()
            for name in names
        }
        said = partial(_sentence, self)
        with unchanged(self.file, self.stamp), _explained(self.file, said):
            yield from self.batches(kinds)

    def batches(self, kinds: Mapping[str, Any]) -> Any:
        """Open the file; types that are not given are inferred from the first block."""
        pc = needed("pyarrow.csv", WHO)
        convert = pc.ConvertOptions(
            column_types=kinds,
            include_columns=list(kinds),
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )
        return pc.open_csv(
            unpacked(self.file),
            read_options=pc.ReadOptions(use_threads=False, block_size=self.block),
            parse_options=pc.ParseOptions(delimiter=self.separator, newlines_in_values=True),
            convert_options=convert,
        )

    def mark(self) -> str:
        return f"'{self.file}' {self.stamp} {self.separator!r}"

    def place(self, row: int) -> str:
        """Return the line that a row begins in, from 1; empty lines are no rows."""
        begins, record = 1, -1
        with unpacked(self.file) as stream:
            lines = io.TextIOWrapper(stream, "utf-8-sig", errors="replace", newline="")
            reader = csv.reader(lines, delimiter=self.separator)
            for fields in reader:
                record += bool(fields)
                if fields and record == row + 1:  # names come first
                    break
                begins = reader.line_num + 1
        return f"line {begins} of {self.label}"


def _open_text(path: File, separator: str | None) -> TextReader:
    """Find the separator, the names and, from the first block, the types."""
    stamp = stamp_of(path)
    file = TextReader(path, stamp, separator or "", 0, f"'{path}'")
    with _explained(path, partial(_sentence, file)), unpacked(path) as stream:
        first_lines = stream.read(1 << 16)
    if not first_lines.strip():
        raise empty_file(path)
    if b"\0" in first_lines:
        raise _not_utf8(path)
    head = first_lines.decode("utf-8-sig", errors="replace")
    if separator is None:
        separator = sniff(head, is_whole_file=len(first_lines) < 1 << 16)
    elif not isinstance(separator, str) or len(separator) != 1:
        raise InvalidInput(
            rf"{WHO}: separator must be one character; got {separator!r}. A tab is '\t'."
        )
    names = next(csv.reader(head.splitlines(), delimiter=separator), [])
    if names and all(map(is_number, names)):
        raise DataFileError(
            f"{WHO}: the first line of '{path}' must hold the names of the columns; "
            f"got numbers only ({', '.join(names[:3])}{', ...' * (len(names) > 3)}). "
            "Add a line of names."
        )
    block = max(1 << 20, 4 * max(map(len, head.splitlines())))
    file = replace(file, separator=separator, block=block)
    with _explained(path, partial(_sentence, file)):
        opened = file.batches({})
        columns = arrow_columns(opened.schema, file.label)
        first = next((batch for batch in opened if batch.num_rows), None)
    if any(column.type_text == "binary" for column in columns):
        raise _not_utf8(path)
    hint = f" (read with separator {separator!r}; pass another separator if that is wrong)"
    hint, n_rows = hint if len(columns) == 1 else "", 0 if first is None else None
    return replace(file, columns=columns, n_rows=n_rows, hint=hint)


def sniff(head: str, is_whole_file: bool = True) -> str:
    """Return the separator, of comma, semicolon, tab and bar, that cuts all lines alike.

    Among several the one with most columns; if none cuts all lines alike, the one that cuts the
    first line most often; comma if none cuts it at all.
    """

    def merit(separator: str) -> tuple[bool, int]:
        rows = [row for row in csv.reader(head.splitlines(True), delimiter=separator) if row]
        sizes = {len(row) for row in (rows if is_whole_file or len(rows) == 1 else rows[:-1])}
        return len(sizes) == 1 and len(rows[0]) > 1, len(rows[0])

    return max((",", ";", "\t", "|"), key=merit)


def _sentence(file: TextReader, error: Exception) -> BochnerError:
    """Return Arrow's message, which names line, column and value, and the remedy."""
    text, label = str(error).splitlines()[0], file.label
    if "UTF8" in text:
        return _not_utf8(file.file)
    if "straddling" in text:
        return DataFileError(
            f"Blocks: every row of {label} must be shorter than {file.block:,} bytes; got a longer "
            "one. Look for a quote that is never closed."
        )
    if "columns, got" in text:
        return DataFileError(
            f"Blocks: all lines of {label} must have as many fields as the first, read with "
            f"separator {file.separator!r} ({text[:200]}). Mend the line, put text that holds the "
            "separator in quotes, or pass another separator."
        )
    if match := re.search(r"In CSV column #(\d+): ", text):
        name = file.columns[int(match[1])].name
        return InvalidInput(
            f"Blocks: column {name!r} of {label} must hold to its end what it holds at first "
            f"({text[match.end() :][:200]}). Mend the value, write decimals with a point, or take "
            f"the column as text with dtypes={{{name!r}: 'category'}} (on the command line --types "
            f"{name}=category)."
        )
    return DataFileError(
        f"Blocks: {label} cannot be read as a table of text: {text}. Write or copy it again."
    )


def _not_utf8(path: File) -> DataFileError:
    return DataFileError(
        f"Blocks: '{path}' must be text in UTF-8; it is in another encoding or no text at all. "
        "Save it again as UTF-8."
    )
