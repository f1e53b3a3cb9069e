"""CSV files, read block by block; types from the first block, and a sentence when one was wrong."""

import csv
import io
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bochner.data.files import (
    Stamp,
    first_bytes,
    stamp_of,
    unchanged,
    unreadable,
)
from bochner.data.schema import shown
from bochner.data.tables import Column, Reader, arrow_columns, arrow_frame, needed
from bochner.errors import BochnerError, DataFileError, InvalidInput

SEPARATORS = (",", ";", "\t", "|")
_HEAD = 1 << 16
_LOOKED_AT = 100
_COMMA = re.compile(r"-?\d+,\d+")
_BLOCK = 1 << 20


@dataclass(frozen=True, eq=False)
class Text(Reader):
    """One text file: a line of names, then a line for each row."""

    path: Path
    stamp: Stamp
    separator: str
    block: int  # bytes read at a time
    label: str
    columns: tuple[Column, ...] = ()
    n_rows: int | None = None  # 0, or None: only reading tells
    hint: str = ""

    def frames(
        self,
        names: tuple[str, ...],
        text: frozenset[str],
        rows: int,  # noqa: ARG002  a block of text is small
    ) -> Iterator[Any]:
        """Give these columns, block by block: numbers as float64, ``text`` as text."""
        if self.n_rows == 0:
            return
        booleans = {c.name for c in self.columns if c.shown == "bool"}
        types = {
            name: "string" if name in text else "bool_" if name in booleans else "float64"
            for name in names
        }
        with unchanged(self.path, self.stamp), _explained(self, tuple(types)):
            for batch in _open(self.path, self.separator, self.block, types):
                yield arrow_frame(batch)

    def place(self, row: int) -> str:
        """Return the line that a row begins in; lines are counted by reading them again."""
        pyarrow = needed("pyarrow", "Blocks.from_files")
        with pyarrow.input_stream(str(self.path), compression="detect") as stream:
            lines = io.TextIOWrapper(stream, "utf-8-sig", errors="replace", newline="")
            return f"line {_line_of(row, lines, self.separator)} of {self.label}"


def _line_of(row: int, lines: Iterable[str], separator: str) -> int:
    """Return the number, from 1, of the line that a row begins in; empty lines are no rows."""
    reader, begins, record = csv.reader(lines, delimiter=separator), 1, -1
    for fields in reader:
        record += bool(fields)
        if fields and record == row + 1:  # names come first
            return begins
        begins = reader.line_num + 1
    return begins


def _open(path: Path, separator: str, block: int, types: dict[str, str] | None = None) -> Any:
    pyarrow = needed("pyarrow", "Blocks.from_files")
    pc = needed("pyarrow.csv", "Blocks.from_files")
    convert = pc.ConvertOptions(
        column_types={name: getattr(pyarrow, kind)() for name, kind in (types or {}).items()},
        include_columns=list(types or ()),
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    return pc.open_csv(
        path,
        read_options=pc.ReadOptions(use_threads=False, block_size=block),
        parse_options=pc.ParseOptions(delimiter=separator, newlines_in_values=True),
        convert_options=convert,
    )


def open_text(path: Path, separator: str | None = None) -> Text:
    """Find the separator, the names and, from the first block, the types."""
    stamp = stamp_of(path)
    head, whole = _head(path)
    separator = _one_character(separator) if separator is not None else sniff(head, whole)
    _refuse_numbers_for_names(path, next(csv.reader(head.splitlines(), delimiter=separator), []))
    block = max(_BLOCK, 4 * max(map(len, head.splitlines())))
    file = Text(path, stamp, separator, block, f"'{path}'")
    with _explained(file, ()):
        opened = _open(path, separator, block)
        columns = arrow_columns(opened.schema, file.label)
        first = next((arrow_frame(batch) for batch in opened if batch.num_rows), None)
    if any(column.shown == "binary" for column in columns):
        raise _not_utf8(path)
    _refuse_decimal_commas(file.label, columns, first)
    rows = 0 if first is None else None
    hint = f" (read with separator {separator!r}; pass another separator if that is wrong)"
    return replace(file, columns=columns, n_rows=rows, hint=hint if len(columns) == 1 else "")


def _one_character(separator: str) -> str:
    if not isinstance(separator, str) or len(separator) != 1:
        raise InvalidInput(
            f"Blocks.from_files: separator must be one character; got {separator!r}. "
            r"A tab is '\t'."
        )
    return separator


def _head(path: Path) -> tuple[str, bool]:
    """Return the first lines as text, and whether they are all."""
    first_bytes(path, 1)
    pyarrow = needed("pyarrow", "Blocks.from_files")
    try:
        with pyarrow.input_stream(str(path), compression="detect") as stream:
            head = stream.read(_HEAD)
    except PermissionError as error:
        raise unreadable(path, error) from error
    except (OSError, ValueError) as error:
        raise _damaged(path, error) from error
    if not head.strip():
        raise DataFileError(f"Blocks.from_files: '{path}' is empty; it must hold a table.")
    if b"\0" in head:
        raise _not_utf8(path)
    return head.decode("utf-8-sig", errors="replace"), len(head) < _HEAD


def sniff(head: str, whole: bool = True) -> str:
    """Return the separator, of comma, semicolon, tab and bar, that cuts all lines alike.

    Among several the one with most columns; if none cuts all lines alike, the one that cuts the
    first line most often; comma if none cuts it at all.
    """

    def merit(separator: str) -> tuple[bool, int]:
        rows = [row for row in csv.reader(head.splitlines(True), delimiter=separator) if row]
        sizes = {len(row) for row in (rows if whole or len(rows) == 1 else rows[:-1])}
        return len(sizes) == 1 and len(rows[0]) > 1, len(rows[0])

    return max(SEPARATORS, key=merit)


def _refuse_numbers_for_names(path: Path, names: list[str]) -> None:
    if names and all(_is_number(name) for name in names):
        raise DataFileError(
            f"Blocks.from_files: the first line of '{path}' must hold the names of the columns; "
            f"got numbers only ({', '.join(names[:3])}{', ...' * (len(names) > 3)}). "
            "Add a line of names."
        )


def _refuse_decimal_commas(label: str, columns: tuple[Column, ...], frame: Any) -> None:
    """Refuse text that is numbers as written in half of Europe: it would become categories."""
    texts = [] if frame is None else [c.name for c in columns if c.kind == "text"]
    for name in texts:
        values = [v for v in frame[name][:_LOOKED_AT].to_list() if v is not None]
        if values and all(_COMMA.fullmatch(value) for value in values):
            raise InvalidInput(
                f"Blocks: column {name!r} of {label} must write decimals with a point; got "
                f"{values[0]!r}. Save it again with points."
            )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


@contextmanager
def _explained(file: Text, names: tuple[str, ...]) -> Iterator[None]:
    """Turn what the CSV reader says into a sentence."""
    try:
        yield
    except BochnerError:
        raise
    except PermissionError as error:
        raise unreadable(file.path, error) from error
    except (OSError, ValueError) as error:
        raise _sentence(file, names, error) from error


_RAGGED = re.compile(r"(?:Row #(\d+): )?Expected (\d+) columns, got (\d+): (.*)", re.DOTALL)
_CONVERSION = re.compile(
    r"In CSV column #(\d+): (?:Row #(\d+): )?.*conversion error to (\w+):.*value '(.*)'", re.DOTALL
)


def _sentence(file: Text, names: tuple[str, ...], error: Exception) -> BochnerError:
    text = str(error)
    if found := _RAGGED.search(text):
        line, expected, got, row = found.groups()
        return DataFileError(
            f"Blocks: all lines of {file.label} must have {expected} fields, as the first; got "
            f"{got} in line {line or 'unknown'} ({shown(row)}), read with separator "
            f"{file.separator!r}. Mend the line, put text that holds the separator in quotes, or "
            "pass another separator."
        )
    if found := _CONVERSION.search(text):
        return _wrong_kind(file, names, found)
    if "UTF8" in text:
        return _not_utf8(file.path)
    if "straddling" in text:
        return DataFileError(
            f"Blocks: every row of {file.label} must be shorter than {file.block:,} bytes; got a "
            "longer one. Look for a quote that is never closed."
        )
    return _damaged(file.path, error)


def _wrong_kind(file: Text, names: tuple[str, ...], found: re.Match[str]) -> InvalidInput:
    column, line, kind, value = found.groups()
    known = names or tuple(c.name for c in file.columns)
    name = repr(known[int(column)]) if int(column) < len(known) else f"number {column}"
    what = "true and false" if kind == "bool" else "numbers"
    comma = " Write decimals with a point." if _COMMA.fullmatch(value) else ""
    return InvalidInput(
        f"Blocks: column {name} of {file.label} must hold {what} to its end; "
        f"got {shown(value)} in line {line or 'unknown'}.{comma} Mend the value, or take the "
        f"column as text with dtypes={{{name}: 'category'}} (on the command line "
        f"--types {name.strip(chr(39))}=category)."
    )


def _not_utf8(path: Path) -> DataFileError:
    return DataFileError(
        f"Blocks: '{path}' must be text in UTF-8; it is in another encoding or no text at all. "
        "Save it again as UTF-8."
    )


def _damaged(path: Path, error: Exception) -> DataFileError:
    return DataFileError(
        f"Blocks: '{path}' cannot be read as a table of text: {str(error).splitlines()[0]}. "
        "Write or copy it again."
    )
