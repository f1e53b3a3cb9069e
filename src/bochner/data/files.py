"""Table files: the files of a path or URL, and the check that they do not change."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path, PurePath, PurePosixPath
from typing import IO, Any

from bochner._core.optional import explained, needed
from bochner.data.schema import did_you_mean
from bochner.errors import BochnerError, DataFileError, InvalidInput, InvalidType, MissingDependency

Paths = str | PathLike[str] | Sequence[str | PathLike[str]]

PARQUET = (".parquet", ".pq")
FEATHER = (".feather", ".arrow")
TEXT = (".csv", ".tsv", ".txt", ".tab")
COMPRESSED = (".gz", ".bz2", ".zst", ".lz4")
_KNOWN = (*PARQUET, *FEATHER, *TEXT)
WHO = "Blocks.from_files"


@dataclass(frozen=True)
class Remote:
    """A file that is not on this machine's disks, as a file system of fsspec has it."""

    system: Any
    path: str

    def __str__(self) -> str:
        return str(self.system.unstrip_protocol(self.path))

    @property
    def name(self) -> str:
        """The last part of the path."""
        return PurePosixPath(self.path).name

    def open(self, mode: str) -> IO[Any]:
        """Open it as `Path.open` does."""
        return self.system.open(self.path, mode)


File = Path | Remote
_ONE = (str, PathLike, Remote)


#: Bytes of a file, and its version: the time of the last change in ns, or fsspec's key of it.
Stamp = tuple[int, int | str]


def stamp_of(file: File) -> Stamp:
    """Return the stamp of a file, or say why it cannot be read."""
    with readable(file):
        if isinstance(file, Remote):
            file.system.invalidate_cache(file.path)
            return int(file.system.size(file.path) or 0), file.system.ukey(file.path)
        status = file.stat()
        return status.st_size, status.st_mtime_ns


def readable(file: object) -> AbstractContextManager[None]:
    """Return the context that names the file in errors of the system or of a storage.

    Storage packages raise errors of their own, e.g. for a timeout or a missing key.
    """

    def named(error: Exception) -> DataFileError | None:
        foreign = "://" in str(file) and not isinstance(error, ImportError | ValueError)
        return unreadable(file, error) if foreign or isinstance(error, OSError) else None

    return explained(named)


@contextmanager
def unchanged(file: File, stamp: Stamp) -> Iterator[None]:
    """Read a file within: refuse it if it is no longer what it was, before or after.

    An error within is reported as a change if the file has changed.
    """
    _compare(file, stamp)
    try:
        with readable(file):
            yield
    except Exception:
        _compare(file, stamp)
        raise
    _compare(file, stamp)


def _compare(file: File, stamp: Stamp) -> None:
    now = stamp_of(file)
    if now != stamp:
        raise DataFileError(
            f"Blocks: '{file}' must stay as it is until all passes are done; it changed after it "
            f"was opened ({stamp[0]} bytes then, {now[0]} now). Make the Blocks again when "
            "nothing writes to it."
        )


def reason_of(error: Exception) -> str:
    """Return what the system says, in the middle of a sentence."""
    said = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return said[:1].lower() + said[1:].rstrip(".")


def unreadable(file: object, error: Exception) -> DataFileError:
    """Say which file the system refuses to read, and why."""
    remote, here = "the URL, its server and the keys to it", "the path and its permissions"
    what = remote if "://" in str(file) else here
    return DataFileError(f"Blocks: '{file}' cannot be read: {reason_of(error)}. Check {what}.")


# --- Which files a path means --------------------------------------------------------------------


def find_files(paths: Any) -> list[Any]:
    """Return the files (:data:`File`) meant by a path, folder, glob, URL, or a list of these.

    Folders and globs are sorted by name, so that the order of rows is the same everywhere.
    """
    if isinstance(paths, _ONE):
        return _expand(paths)
    if not isinstance(paths, Sequence) or not all(isinstance(p, _ONE) for p in paths):
        raise InvalidType(
            f"{WHO}: paths must be a path, a glob or a list of them; got {type(paths).__name__}."
        )
    if not paths:
        raise InvalidInput(f"{WHO}: paths must name at least one file; got an empty list.")
    return [file for path in paths for file in _expand(path)]


def _expand(name: str | PathLike[str] | Remote) -> list[File]:
    if isinstance(name, Remote):
        return [name]
    if isinstance(name, str) and "://" in name:
        return list(_remote(name))
    path = Path(name).expanduser()
    with explained(partial(unreadable, path), OSError):
        if path.is_dir():
            list(path.iterdir())  # fails where the folder may not be read; rglob would skip it
            files = (p.relative_to(path) for p in path.rglob("*") if p.is_file())
            return [path / file for file in _tables(files, path)]
        if path.exists():
            return [path]
    anchor, here = Path(path.anchor), f"The current folder is '{Path.cwd()}'."
    globbed = sorted(p for p in anchor.glob(str(path.relative_to(anchor))) if p.is_file())
    return list(globbed or _nothing(path, name_beside(path), here))


def _remote(url: str) -> list[Remote]:
    """Return the files behind a URL such as s3://bucket/folder or memory://table.csv."""
    fsspec = needed("fsspec", f"{WHO}: reading '{url}'")

    def said(error: Exception) -> BochnerError:
        if isinstance(error, ImportError):
            return MissingDependency(f"{WHO}: '{url}' cannot be read: {error}.")
        return InvalidInput(
            f"{WHO}: '{url}' must be of a kind that fsspec knows, as s3://, gs://, https://; "
            f"{str(error).splitlines()[0]}."
        )

    with explained(said, ImportError, ValueError), readable(url):
        system, root = fsspec.core.url_to_fs(url)
        if system.isdir(root):
            files = (PurePosixPath(p).relative_to(root) for p in system.find(root))
            return [Remote(system, f"{root}/{name}") for name in _tables(files, url)]
        paths = sorted(p for p in system.glob(root) if system.isfile(p))
        return [Remote(system, p) for p in paths or _nothing(url, "", "Check the URL.")]


def _tables(files: Iterable[PurePath], folder: object) -> list[PurePath]:
    """Return the tables of a folder and the folders in it, without hidden and marker files."""
    tables = sorted(
        file
        for file in files
        if not any(part.startswith((".", "_")) for part in file.parts)
        and table_suffix(file.name) in _KNOWN
    )
    if not tables:
        raise DataFileError(
            f"{WHO}: the folder '{folder}' must hold files named "
            f"{', '.join('*' + s for s in _KNOWN)}; got none."
        )
    part = next((part for file in tables for part in file.parts[:-1] if "=" in part), None)
    if part is not None:
        raise InvalidInput(
            f"{WHO}: folders named like columns ('{part}') are not read as columns. Pass "
            "pyarrow.dataset.dataset(folder, partitioning='hive') to Blocks.from_table, or list "
            "the files, e.g. with a glob, to read them without that column."
        )
    return tables


def table_suffix(name: str) -> str:
    """Return the suffix of the format, without the suffix of a compression."""
    path = PurePath(name)
    packed = path.suffix.lower() in COMPRESSED
    return (PurePath(path.stem) if packed else path).suffix.lower()


def name_beside(path: Path) -> str:
    """Return near names of files in the same folder, for a message; "" if there are none."""
    try:
        return did_you_mean(path.name, [p.name for p in path.parent.iterdir()])
    except OSError:
        return ""


def _nothing(path: object, near: str, more: str) -> Any:
    """Raise an error for a path or glob without files."""
    none = f"there is no file or folder '{path}'{near}"
    if any(c in str(path) for c in "*?["):
        none = f"the glob '{path}' must match at least one file; got none"
    raise DataFileError(f"{WHO}: {none}. {more}")


# --- Opening them ---------------------------------------------------------------------------------


def first_bytes(file: File, count: int) -> bytes:
    """Return the first ``count`` bytes of a file; refuse an unreadable or empty file."""
    with readable(file), file.open("rb") as opened:
        head = opened.read(count)
    if not head:
        raise empty_file(file)
    return head


def empty_file(file: File) -> DataFileError:
    """Say that a file holds nothing."""
    return DataFileError(f"{WHO}: '{file}' is empty; it must hold a table.")


def within(file: File) -> tuple[str, Any]:
    """Return the path and the file system that pyarrow reads it by."""
    systems = needed("pyarrow.fs", WHO)
    if isinstance(file, Remote):
        return file.path, systems.PyFileSystem(systems.FSSpecHandler(file.system))
    return str(file), systems.LocalFileSystem()


def unpacked(file: File) -> Any:
    """Open a text file, which may be compressed, for reading."""
    path, system = within(file)
    return system.open_input_stream(path, compression="detect")
