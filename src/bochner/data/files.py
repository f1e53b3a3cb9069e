"""Find table files, and notice when one changes while it is read."""

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from bochner.data.schema import did_you_mean, listed, shown
from bochner.data.tables import Column, Reader, arrow_columns, arrow_frame, needed
from bochner.errors import BochnerError, DataFileError, InvalidInput, InvalidType

Paths = str | PathLike[str] | Sequence[str | PathLike[str]]

PARQUET = (".parquet", ".pq")
TEXT = (".csv", ".tsv", ".txt", ".tab")
COMPRESSED = (".gz", ".bz2", ".zst", ".lz4")


class Stamp(NamedTuple):
    """What tells that a file is still the one that was opened: size in bytes, time in ns."""

    size: int
    time: int


def stamp_of(path: Path) -> Stamp:
    """Return the stamp of a file, or say why it cannot be read."""
    try:
        status = path.stat()
    except OSError as error:
        raise unreadable(path, error) from error
    return Stamp(status.st_size, status.st_mtime_ns)


@contextmanager
def unchanged(path: Path, stamp: Stamp) -> Iterator[None]:
    """Read a file within: refuse it if it is no longer what it was, before or after.

    An error within is reported as a change if the file has changed.
    """
    _compare(path, stamp)
    try:
        yield
    except Exception:
        _compare(path, stamp)
        raise
    _compare(path, stamp)


def _compare(path: Path, stamp: Stamp) -> None:
    now = stamp_of(path)
    if now != stamp:
        raise DataFileError(
            f"Blocks: '{path}' must stay as it is until all passes are done; it changed after it "
            f"was opened ({stamp.size} bytes then, {now.size} now). Make the Blocks again when "
            "nothing writes to it."
        )


def reason_of(error: OSError) -> str:
    """Return what the system says, in the middle of a sentence."""
    return (error.strerror or str(error)).lower()


def unreadable(path: Path, error: OSError) -> DataFileError:
    """Say which file the system refuses to read, and why."""
    return DataFileError(
        f"Blocks: '{path}' cannot be read: {reason_of(error)}. Check the path and its permissions."
    )


def find_files(paths: Paths) -> list[Path]:
    """Return the files meant by a path, a folder, a glob, or a list of these.

    Folders and globs are sorted by name, so that the order of rows is the same everywhere.
    """
    if isinstance(paths, str | PathLike):
        return _expand(paths)
    if not isinstance(paths, Sequence) or not all(isinstance(p, str | PathLike) for p in paths):
        raise InvalidType(
            "Blocks.from_files: paths must be a path, a glob or a list of them; got "
            f"{type(paths).__name__}."
        )
    if not paths:
        raise InvalidInput(
            "Blocks.from_files: paths must name at least one file; got an empty list."
        )
    return [file for path in paths for file in _expand(path)]


def _expand(name: str | PathLike[str]) -> list[Path]:
    path = Path(name).expanduser()
    try:
        is_folder, exists = path.is_dir(), path.exists()
    except OSError as error:
        raise unreadable(path, error) from error
    if exists:
        return _in_folder(path) if is_folder else [path]
    if any(c in str(path) for c in "*?["):
        return _globbed(path)
    raise _nowhere(path)


def _in_folder(folder: Path) -> list[Path]:
    """Return the tables of a folder and the folders in it, without hidden and marker files."""
    try:
        list(folder.iterdir())
    except OSError as error:
        raise unreadable(folder, error) from error
    files = sorted(p for p in folder.rglob("*") if _is_table(p, folder))
    if not files:
        raise DataFileError(
            f"Blocks.from_files: the folder '{folder}' must hold files named "
            f"{', '.join('*' + s for s in (*PARQUET, *TEXT))}; got none."
        )
    for file in files:
        _refuse_partition(file.relative_to(folder))
    return files


def _is_table(path: Path, folder: Path) -> bool:
    shown = not any(p.startswith((".", "_")) for p in path.relative_to(folder).parts)
    return shown and table_suffix(path) in (*PARQUET, *TEXT) and path.is_file()


def table_suffix(path: Path) -> str:
    """Return the suffix that tells the format, below that of a compression."""
    packed = path.suffix.lower() in COMPRESSED
    return (Path(path.stem) if packed else path).suffix.lower()


def _refuse_partition(path: Path) -> None:
    part = next((p for p in path.parts[:-1] if "=" in p), None)
    if part is not None:
        raise InvalidInput(
            f"Blocks.from_files: folders named like columns ('{part}') are not read as columns. "
            "List the files, e.g. with a glob, to read them without that column."
        )


def _globbed(pattern: Path) -> list[Path]:
    anchor = Path(pattern.anchor)
    files = sorted(p for p in anchor.glob(str(pattern.relative_to(anchor))) if p.is_file())
    if not files:
        raise DataFileError(
            f"Blocks.from_files: the glob '{pattern}' must match at least one file; got none. "
            f"The current folder is '{Path.cwd()}'."
        )
    return files


def name_beside(path: Path) -> str:
    """Return the names beside it that one who wrote this path may have meant, or nothing."""
    try:
        return did_you_mean(path.name, [p.name for p in path.parent.iterdir()])
    except OSError:
        return ""


def _nowhere(path: Path) -> DataFileError:
    return DataFileError(
        f"Blocks.from_files: there is no file or folder '{path}'{name_beside(path)}. "
        f"The current folder is '{Path.cwd()}'."
    )


def first_bytes(path: Path, count: int) -> bytes:
    """Return how a file begins; refuse one that cannot be read or is empty."""
    try:
        with path.open("rb") as file:
            head = file.read(count)
    except OSError as error:
        raise unreadable(path, error) from error
    if not head:
        raise DataFileError(f"Blocks.from_files: '{path}' is empty; it must hold a table.")
    return head


# --- CSV files, read block by block; types from the first block, and a sentence when one was wrong

SEPARATORS = (",", ";", "\t", "|")
_HEAD = 1 << 16
_LOOKED_AT = 100
_COMMA = re.compile(r"-?\d+,\d+")
_BLOCK_BYTES = 1 << 20


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
    block = max(_BLOCK_BYTES, 4 * max(map(len, head.splitlines())))
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


# --- Parquet files, read a few thousand rows at a time whatever the size of their row groups -----

# Bytes read ahead, all columns together and at least in one: without a bound a whole row group is
# read at once.
_AHEAD, _LEAST_AHEAD = 1 << 20, 1 << 14


@dataclass(frozen=True, eq=False)
class Parquet(Reader):
    """One Parquet file."""

    path: Path
    stamp: Stamp
    label: str
    columns: tuple[Column, ...]
    n_rows: int
    hint: str = ""

    def frames(
        self,
        names: tuple[str, ...],
        text: frozenset[str],  # noqa: ARG002  types are known
        rows: int,
    ) -> Iterator[Any]:
        """Give batches of these columns, decoded in this thread."""
        if self.n_rows == 0:
            return
        with unchanged(self.path, self.stamp), _opened(self.path, len(self.columns)) as file:
            for batch in file.iter_batches(rows, columns=list(names), use_threads=False):
                yield arrow_frame(batch)


@contextmanager
def _opened(path: Path, columns: int) -> Iterator[Any]:
    """Open the file for reading; what goes wrong within is said in a sentence."""
    parquet = needed("pyarrow.parquet", "Blocks.from_files")
    ahead = max(_LEAST_AHEAD, _AHEAD // columns)
    try:
        with parquet.ParquetFile(
            path, pre_buffer=False, buffer_size=ahead, page_checksum_verification=True
        ) as file:
            yield file
    except BochnerError:
        raise
    except PermissionError as error:
        raise unreadable(path, error) from error
    except (OSError, ValueError, NotImplementedError) as error:
        raise DataFileError(
            f"Blocks: '{path}' must be a whole Parquet file; it is cut short, damaged or something "
            f"else ({str(error).splitlines()[0]}). Write or copy it again."
        ) from error


def open_parquet(path: Path) -> Parquet:
    """Read the columns and the number of rows from the end of the file."""
    stamp = stamp_of(path)
    with _opened(path, 1) as file:
        rows = file.metadata.num_rows
        columns = arrow_columns(file.schema_arrow, f"'{path}'")
    kept = tuple(_empty(c) if rows == 0 else c for c in columns if not _is_index(c.name))
    return Parquet(path, stamp, f"'{path}'", kept, rows)


def _empty(column: Column) -> Column:
    """Return a column as a file without rows has it: it has no say in what columns hold."""
    return Column(column.name, "nothing", False, "no rows")


def _is_index(name: str) -> bool:
    """Whether pandas put this column there to keep the names of its rows."""
    return name.startswith("__index_level_") and name.endswith("__")


# --- Open each table file as what it is ----------------------------------------------------------


def open_file(path: Path, separator: str | None) -> Reader:
    """Return the reader for what the file is: Parquet by its first bytes, else text by its name."""
    suffix = table_suffix(path)
    if first_bytes(path, 4) == b"PAR1" or suffix in PARQUET:
        return open_parquet(path)
    if suffix in TEXT:
        return open_text(path, separator)
    raise DataFileError(
        f"Blocks.from_files: '{path}' must be Parquet ({listed(PARQUET)}) or text "
        f"({listed(TEXT)}, perhaps compressed: {listed(COMPRESSED)}); the suffix "
        f"{suffix!r} is neither. Convert or rename it."
    )
