"""Find table files, and notice when one changes while it is read."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import NamedTuple

from bochner.data.schema import did_you_mean
from bochner.errors import DataFileError, InvalidInput, InvalidType

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
