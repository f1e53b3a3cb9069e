"""Table files read in pieces of bounded size: Parquet, Feather and text, of a path or URL.

pyarrow reads them, from disks and from the file systems of fsspec. `pyarrow.dataset` is not used:
its scanner keeps whole row groups of Parquet and about fifty blocks of text in memory, and it
imports pandas.
"""

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike
from pathlib import Path, PurePath, PurePosixPath
from typing import Any

import numpy as np

from bochner._core.optional import package, raise_as
from bochner.data.encoders import is_number
from bochner.data.frames import arrow_columns
from bochner.data.schema import did_you_mean, quote
from bochner.data.tables import Column, Reader
from bochner.errors import BochnerError, DataFileError, InvalidInput, InvalidType, MissingDependency

Paths = str | PathLike[str] | Sequence[str | PathLike[str]]

PARQUET = (".parquet", ".pq")
FEATHER = (".feather", ".arrow")
TEXT = (".csv", ".tsv", ".txt", ".tab")
COMPRESSED = (".gz", ".bz2", ".zst", ".lz4")
_SUFFIXES = (*PARQUET, *FEATHER, *TEXT)
CALLER = "Blocks.from_files"


@dataclass(frozen=True)
class File:
    """A file on a file system of fsspec."""

    system: Any
    path: str
    name: str
    size: int = 0  # in bytes, when it was opened
    version: str = ""  # its time of change when it was opened, or fsspec's key

    def __str__(self) -> str:
        return self.name

    def current(self) -> "File":
        """Return the file with its present size and version; DataFileError if it cannot be read."""
        with file_errors(self):
            self.system.invalidate_cache(self.path)
            info = self.system.info(self.path)
            version = str(info.get("mtime", "")) or self.system.ukey(self.path)
            return replace(self, size=int(info["size"] or 0), version=version)

    @property
    def arrow(self) -> Any:
        """The file system of the file, for pyarrow."""
        systems = package("pyarrow.fs", CALLER)
        if self.system.protocol[0] == "file":
            return systems.LocalFileSystem()
        return systems.PyFileSystem(systems.FSSpecHandler(self.system))


_PATH_TYPES = (str, PathLike, File)


def file_errors(
    file: object, content: Callable[[Exception], BochnerError] | None = None
) -> AbstractContextManager[None]:
    """Return a context that names a file in errors; ``content`` converts errors of its content."""

    def translate(error: Exception) -> BochnerError | None:
        is_content = isinstance(error, OSError | ValueError | NotImplementedError)
        if content and is_content and not isinstance(error, PermissionError):
            return content(error)
        # storage packages raise other errors, e.g. for a timeout or a missing key
        foreign = "://" in str(file) and not isinstance(error, ImportError | ValueError)
        if not foreign and not isinstance(error, OSError):
            return None
        remote, local = "the URL, its server and the keys to it", "the path and its permissions"
        place = remote if "://" in str(file) else local
        return DataFileError(f"Blocks: '{file}' cannot be read: {reason_of(error)}. Check {place}.")

    return raise_as(translate)


@contextmanager
def check_unchanged(file: File) -> Iterator[None]:
    """Return a context to read a file; raise DataFileError if it changed since it was found."""

    def compare() -> None:
        if (current := file.current()) != file:
            raise DataFileError(
                f"Blocks: '{file}' must stay as it is until all passes are done; it changed after "
                f"it was opened ({file.size} bytes then, {current.size} now). Make the Blocks "
                "again when nothing writes to it."
            )

    compare()
    try:
        with file_errors(file):
            yield
    except Exception:
        compare()
        raise
    compare()


def reason_of(error: Exception) -> str:
    """Return the system's message as the middle of a sentence: lower case, without a full stop."""
    message = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return message[:1].lower() + message[1:].rstrip(".")


# --- Which files a path means --------------------------------------------------------------------


def find_files(paths: Any) -> list[File]:
    """Return the files of a path, folder, glob, URL, or a list, sorted by name within each."""
    names = [paths] if isinstance(paths, _PATH_TYPES) else paths
    is_list = isinstance(names, Sequence) and all(isinstance(p, _PATH_TYPES) for p in names)
    if not is_list or not names:
        raise InvalidType(
            f"{CALLER}: paths must be a path, a glob or a list of these; got {paths!r:.60}."
        )
    return [file for name in names for file in _expand(name)]


def _expand(name: str | PathLike[str] | File) -> list[File]:
    """Return the files of a path, or of a URL such as s3://bucket/folder or memory://table.csv."""
    if isinstance(name, File):
        return [name]
    is_url = isinstance(name, str) and "://" in name
    place: Any = name if is_url else Path(name).expanduser()
    fsspec = package("fsspec", f"{CALLER}: reading '{place}'")

    def translate(error: Exception) -> BochnerError:
        if isinstance(error, ImportError):
            return MissingDependency(f"{CALLER}: '{place}' cannot be read: {error}.")
        return InvalidInput(
            f"{CALLER}: '{place}' must have a protocol of fsspec, such as s3://, gs:// or "
            f"https://; {str(error).splitlines()[0]}."
        )

    with raise_as(translate, ImportError, ValueError), file_errors(place):
        if is_url:
            system, root = fsspec.core.url_to_fs(place)
        else:
            system, root = fsspec.filesystem("file"), place.absolute().as_posix()
        if system.isdir(root):
            system.ls(root)  # fails where the folder may not be read; find would skip it
            files = (PurePosixPath(p).relative_to(root) for p in system.find(root))
            paths = [f"{root}/{file}" for file in _tables(files, place)]
        else:
            paths = [root] if system.exists(root) else sorted(system.glob(root))
            paths = [path for path in paths if not system.isdir(path)]
            paths = paths or _raise_no_file(place, system, root)
    is_relative = isinstance(place, Path) and not place.is_absolute()
    relative = lambda path: str(Path(path).relative_to(Path.cwd()))
    to_name = relative if is_relative else system.unstrip_protocol if is_url else str
    return [File(system, path, to_name(path)) for path in paths]


def _tables(files: Iterable[PurePath], folder: object) -> list[PurePath]:
    """Return the table files among ``files``, without hidden files and markers like _SUCCESS."""
    tables = sorted(
        file
        for file in files
        if not any(part.startswith((".", "_")) for part in file.parts)
        and table_suffix(file.name) in _SUFFIXES
    )
    if not tables:
        raise DataFileError(
            f"{CALLER}: the folder '{folder}' must hold files named "
            f"{', '.join('*' + s for s in _SUFFIXES)}; got none."
        )
    part = next((part for file in tables for part in file.parts[:-1] if "=" in part), None)
    if part is not None:
        raise InvalidInput(
            f"{CALLER}: folders named like columns ('{part}') are not read as columns. Pass "
            "pyarrow.dataset.dataset(folder, partitioning='hive') to Blocks.from_table, or list "
            "the files, e.g. with a glob, to read them without that column."
        )
    return tables


def table_suffix(name: str) -> str:
    """Return the suffix of the format, without the suffix of a compression."""
    path = PurePath(name)
    is_packed = path.suffix.lower() in COMPRESSED
    return (PurePath(path.stem) if is_packed else path).suffix.lower()


def similar_names(path: Path) -> str:
    """Return similar names of files in the same folder, for a message; "" if none."""
    with suppress(OSError):
        return did_you_mean(path.name, [p.name for p in path.parent.iterdir()])
    return ""


def _raise_no_file(name: Any, system: Any, path: str) -> Any:
    """Raise an error for a path or glob without files."""
    with suppress(FileNotFoundError):
        system.info(path)  # its error says why the file cannot be read
    hint, advice = "", "Check the URL."
    if isinstance(name, Path):
        hint, advice = similar_names(name), f"The current folder is '{Path.cwd()}'."
    reason = f"there is no file or folder '{name}'{hint}"
    if any(c in str(name) for c in "*?["):
        reason = f"the glob '{name}' must match at least one file; got none"
    raise DataFileError(f"{CALLER}: {reason}. {advice}")


# --- Parquet and Feather --------------------------------------------------------------------------


def open_file(file: File, separator: str | None) -> Reader:
    """Return the reader for the format of a file, known by its first bytes or its suffix."""
    file, suffix = file.current(), table_suffix(str(file))
    with file_errors(file), file.arrow.open_input_stream(file.path, compression=None) as stream:
        head = stream.read(6)
    if not head:
        raise DataFileError(f"{CALLER}: '{file}' is empty; it must hold a table.")
    if head.startswith(b"PAR1") or suffix in PARQUET:
        with _open(file, "Parquet") as source:
            schema, metadata = source.schema_arrow, source.metadata
            groups = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
            codes = _code_columns(schema, metadata)
    elif head == b"ARROW1" or suffix in FEATHER:
        with _open(file, "Feather") as source:
            schema, codes = source.schema, None
        with _open(file, "Feather", schema.names[:1]) as source:
            groups = [source.get_batch(i).num_rows for i in range(source.num_record_batches)]
    elif suffix in TEXT:
        return _open_text(file, separator)
    else:
        raise DataFileError(
            f"{CALLER}: '{file}' must be Parquet ({quote(PARQUET)}), Feather ({quote(FEATHER)}) or "
            f"text ({quote(TEXT)}, perhaps compressed: {quote(COMPRESSED)}); got the "
            f"suffix {suffix!r}. Convert or rename it."
        )
    rows, label = sum(groups), f"'{file}'"
    # row names of pandas are not columns; columns of an empty file have no kind
    columns = tuple(
        column if rows else Column(column.name, "nothing", "no rows")
        for column in arrow_columns(schema, label)
        if not re.fullmatch("__index_level_.*__", column.name)
    )
    reader = partial(_read, file, tuple(groups), codes)
    return Reader(label, columns, reader, rows, f"{label} {file.size} {file.version}")


def _read(
    file: File,
    groups: tuple[int, ...],
    coded: frozenset[str] | None,
    reader: Reader,
    names: tuple[str, ...],
    text: frozenset[str],
    rows: int,
) -> Iterator[Any]:
    """Yield batches of Parquet or Feather with the rows of a reader.

    ``groups`` are the numbers of rows of each row group or batch of the file; ``coded`` are the
    columns of Parquet that may be read as dictionary codes, None for Feather.
    """
    first, end = reader.first, reader.first + (reader.n_rows or 0)
    group = int(np.searchsorted(np.cumsum(groups), first, side="right"))
    row, numbers = sum(groups[:group]), range(group, len(groups))
    kind, codes = ("Feather", frozenset[str]()) if coded is None else ("Parquet", text & coded)
    with check_unchanged(file), _open(file, kind, names, codes) as source:
        if coded is None:
            batches = map(source.get_batch, numbers)
        else:
            batches = source.iter_batches(rows, [*numbers], [*names], use_threads=False)
        for batch in batches:
            if coded is None:
                batch.validate(full=True)  # offsets of texts of a damaged file may point anywhere
            begin, row = min(max(first - row, 0), batch.num_rows), row + batch.num_rows
            stop = batch.num_rows - max(row - end, 0)
            yield batch.slice(begin, stop - begin)
            if row >= end:
                return


def _incomplete_file(file: File, kind: str, error: Exception) -> DataFileError:
    if "range requests" in str(error):  # fsspec's message about HTTP servers
        return DataFileError(
            f"Blocks: '{file}' must be on a server that sends parts of files (range requests) to "
            f"be read as {kind}; its server sends whole files only. Copy it to a disk, or use CSV."
        )
    return DataFileError(
        f"Blocks: '{file}' must be a complete {kind} file; it is incomplete, damaged or of "
        f"another kind ({str(error).splitlines()[0]}). Write or copy it again."
    )


def _code_columns(schema: Any, metadata: Any) -> frozenset[str]:
    """Return the text columns with small dictionaries, which pyarrow reads as codes."""
    text = {field.name for field in schema if "string" in str(field.type)}
    places = [j for j in range(metadata.num_columns) if metadata.schema.column(j).path in text]
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    chunks = (group.column(j) for group in groups for j in places)
    is_large = lambda c: c.total_uncompressed_size > 3 * c.num_values + (1 << 21)
    return frozenset(text.difference(c.path_in_schema for c in chunks if is_large(c)))


@contextmanager
def _open(
    file: File, kind: str, names: Sequence[str] = (), text: Iterable[str] = ()
) -> Iterator[Any]:
    """Open a Parquet or Feather file to read these columns, or all; ``text`` is read as codes."""
    content = partial(_incomplete_file, file, kind)
    with file_errors(file, content), file.arrow.open_input_file(file.path) as source:
        if kind == "Feather":
            ipc = package("pyarrow.ipc", CALLER)
            places = [*map(ipc.open_file(source).schema.names.index, names)] if names else []
            options = ipc.IpcReadOptions(included_fields=places, use_threads=False)
            yield ipc.open_file(source, options=options)
            return
        # read ahead 1 MB for all columns together: by default a whole row group is read at once
        yield package("pyarrow.parquet", CALLER).ParquetFile(
            source,
            pre_buffer=False,
            buffer_size=max(1 << 14, (1 << 20) // max(1, len(names))),
            read_dictionary=[*text],
            page_checksum_verification=True,
        )


# --- Text: types are inferred from the first block, and errors name the line ----------------------


@dataclass(frozen=True, eq=False)
class TextFile:
    """One text file: a line of names, then a line for each row."""

    file: File
    separator: str
    block: int = 0  # bytes read at a time

    def read(
        self, reader: Reader, names: tuple[str, ...], text: frozenset[str], rows: int
    ) -> Iterator[Any]:
        """Yield Arrow tables, each of one or several blocks of the file."""
        booleans = {c.name for c in reader.columns if c.type_text == "bool"}
        pa = package("pyarrow", CALLER)
        kinds = {
            name: pa.string() if name in text else pa.bool_() if name in booleans else pa.float64()
            for name in names
        }
        content = partial(_sentence, self, reader.columns)
        with check_unchanged(self.file), file_errors(self.file, content):
            # each Arrow table has its own dictionaries of strings: few large tables are faster
            waiting: list[Any] = []
            for batch in self.batches(kinds):
                waiting.append(batch)
                size = sum(b.nbytes for b in waiting)
                if not text or sum(map(len, waiting)) >= rows or size > 1 << 22:
                    yield pa.Table.from_batches(waiting)
                    waiting = []
            if waiting:
                yield pa.Table.from_batches(waiting)

    def batches(self, kinds: Mapping[str, Any]) -> Any:
        """Open the file for pyarrow; types not in ``kinds`` are inferred from the first block."""
        pc = package("pyarrow.csv", CALLER)
        convert = pc.ConvertOptions(
            column_types=kinds,
            include_columns=list(kinds),
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )
        return pc.open_csv(
            self.stream(),
            read_options=pc.ReadOptions(use_threads=False, block_size=self.block),
            parse_options=pc.ParseOptions(delimiter=self.separator, newlines_in_values=True),
            convert_options=convert,
        )

    def stream(self) -> Any:
        """Return a stream of the bytes of the file, decompressed."""
        return self.file.arrow.open_input_stream(self.file.path, compression="detect")

    def line_of(self, row: int) -> int:
        """Return the line, counted from 1, where a row begins; empty lines are not rows."""
        begins, record = 1, -1
        with self.stream() as stream:
            lines = io.TextIOWrapper(stream, "utf-8-sig", errors="replace", newline="")
            reader = csv.reader(lines, delimiter=self.separator)
            for fields in reader:
                record += bool(fields)
                if fields and record == row + 1:  # the names are record 0
                    break
                begins = reader.line_num + 1
        return begins


def _open_text(path: File, separator: str | None) -> Reader:
    """Return the reader of a text file: separator and names from its head, types from a block."""
    file, label = TextFile(path, separator or ""), f"'{path}'"
    with file_errors(path, partial(_sentence, file, ())), file.stream() as stream:
        first_lines = stream.read(1 << 16)
    if not first_lines.strip():
        raise DataFileError(f"{CALLER}: {label} is empty; it must hold a table.")
    if b"\0" in first_lines:
        raise _not_utf8(label)
    head = first_lines.decode("utf-8-sig", errors="replace")
    if separator is None:
        separator = sniff(head, is_complete=len(first_lines) < 1 << 16)
    elif not isinstance(separator, str) or len(separator) != 1:
        raise InvalidInput(
            rf"{CALLER}: separator must be one character; got {separator!r}. A tab is '\t'."
        )
    names = next(csv.reader(head.splitlines(), delimiter=separator), [])
    if names and all(map(is_number, names)):
        raise DataFileError(
            f"{CALLER}: the first line of {label} must hold the names of the columns; "
            f"got numbers only ({', '.join(names[:3])}{', ...' * (len(names) > 3)}). "
            "Add a line of names."
        )
    block = max(1 << 20, 4 * max(map(len, head.splitlines())))
    file = replace(file, separator=separator, block=block)
    with file_errors(path, partial(_sentence, file, ())):
        batches = file.batches({})
        columns = arrow_columns(batches.schema, label)
        first = next((batch for batch in batches if batch.num_rows), None)
    if any(column.type_text == "binary" for column in columns):
        raise _not_utf8(label)
    key, n_rows = f"{label} {path.size} {path.version} {separator!r}", 0 if first is None else None
    hint = f" (read with separator {separator!r}; pass another separator if that is wrong)"
    hint = hint if len(columns) == 1 else ""
    return Reader(label, columns, file.read, n_rows, key, text_file=file, hint=hint)


def sniff(head: str, is_complete: bool = True) -> str:
    """Return the separator (comma, semicolon, tab or bar) that splits all lines equally.

    If there are several, or none, the separator with the most fields in the first line is returned.
    """

    def merit(separator: str) -> tuple[bool, int]:
        rows = [row for row in csv.reader(head.splitlines(True), delimiter=separator) if row]
        sizes = {len(row) for row in (rows if is_complete or len(rows) == 1 else rows[:-1])}
        return len(sizes) == 1 and len(rows[0]) > 1, len(rows[0])

    return max((",", ";", "\t", "|"), key=merit)


def _sentence(file: TextFile, columns: tuple[Column, ...], error: Exception) -> BochnerError:
    """Return the error for an error of Arrow: its line, column and value, and the remedy."""
    text, label = str(error).splitlines()[0], f"'{file.file}'"
    if "UTF8" in text:
        return _not_utf8(label)
    if "straddling" in text:
        return DataFileError(
            f"Blocks: every row of {label} must be shorter than {file.block:,} bytes; got a longer "
            "one. Look for a quote that is not closed."
        )
    if "columns, got" in text:
        return DataFileError(
            f"Blocks: all lines of {label} must have as many fields as the first, read with "
            f"separator {file.separator!r} ({text[:200]}). Correct the line, put text with the "
            "separator in quotes, or pass another separator."
        )
    if match := re.search(r"In CSV column #(\d+): ", text):
        name = columns[int(match[1])].name
        return InvalidInput(
            f"Blocks: column {name!r} of {label} must have the type of its first rows "
            f"({text[match.end() :][:200]}). Correct the value, write decimals with a point, or "
            f"read the column as text with dtypes={{{name!r}: 'category'}} (on the command line "
            f"--types {name}=category)."
        )
    return DataFileError(
        f"Blocks: {label} cannot be read as a table of text: {text}. Write or copy it again."
    )


def _not_utf8(label: str) -> DataFileError:
    return DataFileError(
        f"Blocks: {label} must be text in UTF-8; it has another encoding or is not text. "
        "Save it again as UTF-8."
    )
