"""Files that are there as a whole or not at all; tables written a chunk at a time."""

import csv
import errno
import io
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from glob import escape
from os import PathLike
from pathlib import Path
from typing import IO, Any

import numpy as np

from bochner._core.arrays import to_numpy
from bochner.data.files import reason_of
from bochner.data.optional import needed
from bochner.data.schema import listed
from bochner.errors import BochnerError, DataFileError, InvalidInput

Chunk = Mapping[str, Any]

#: Seconds after which a part that nobody wrote to belongs to a writer that was killed.
ABANDONED = 86_400

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def atomic(path: str | PathLike[str], mode: str = "wb") -> Iterator[IO[Any]]:
    """Open a file for writing that takes its name only once it is complete and on the disk.

    ::

        with atomic("model.bochner") as file:
            file.write(...)

    It is written under another name in the same folder, flushed to the disk and renamed. If
    anything goes wrong, Ctrl-C included, that file is removed and an older file at ``path`` stays
    as it is. A part that a killed process has left is removed by a write to ``path`` a day later.
    A device or pipe is written directly. Mode "w" writes UTF-8 with lines ended as they are given.

    Raises
    ------
    DataFileError
        The disk is full, the folder is missing or may not be written.
    """
    path = Path(os.path.realpath(Path(path).expanduser()))
    text: dict[str, Any] = {} if "b" in mode else {"encoding": "utf-8", "newline": ""}
    with _explained(path):
        if path.is_dir():
            raise DataFileError(f"'{path}' cannot be written: it is a folder. Name a file in it.")
        if path.exists() and not path.is_file():
            with path.open(mode, **text) as file:
                yield file
        else:
            with _replacing(path, mode.replace("w", "x"), text) as file:
                yield file


@contextmanager
def _replacing(path: Path, mode: str, text: dict[str, Any]) -> Iterator[IO[Any]]:
    if path.exists() and not os.access(path, os.W_OK):  # renaming over it would succeed
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    part = path.with_name(f".{path.name[:100]}.{secrets.token_hex(8)}.part")
    try:
        with part.open(mode, **text) as file:
            _remove_abandoned(path, part)
            yield file
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            part.chmod(path.stat().st_mode)
        part.replace(path)
        _sync_folder(path.parent)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _remove_abandoned(path: Path, mine: Path) -> None:
    """Remove parts of this file that no writer has written to for a day."""
    now = mine.stat().st_mtime  # by the clock of the disk
    for part in path.parent.glob(f".{escape(path.name[:100])}.{'?' * 16}.part"):
        with suppress(OSError):
            if now - part.stat().st_mtime > ABANDONED:
                part.unlink()


def _sync_folder(folder: Path) -> None:
    """Make the new name survive a crash of the machine (not every system can promise it)."""
    if hasattr(os, "O_DIRECTORY"):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Say what the system refused; errors that are not about this file pass."""
    try:
        yield
    except BochnerError:
        raise
    except OSError as error:
        if error.errno in _FULL:
            what = "the disk is full"
            todo = "Nothing was left behind; free some space or choose another place"
        elif error.filename is not None and (
            Path(error.filename) == path
            or (Path(error.filename).parent == path.parent and error.filename.endswith(".part"))
        ):
            what = reason_of(error)
            todo = "Check the folder and its permissions"
        else:
            raise
        raise DataFileError(f"'{path}' cannot be written: {what}. {todo}.") from error


def write_table(path: str | PathLike[str], columns: Chunk | Iterable[Chunk]) -> int:
    """Write columns as .parquet or .csv, chunk by chunk, and return the number of rows.

    Columns are (n,) arrays by name, in one chunk or in several with the same columns; one chunk is
    held at a time. Numbers in CSV have as many digits as give back the same number.
    """
    writer = _writer_for(Path(path))
    chunks = _checked([columns] if isinstance(columns, Mapping) else columns)
    with atomic(path) as file:
        return writer(file, chunks)


def _writer_for(path: Path) -> Callable[[IO[bytes], Iterator[dict[str, np.ndarray]]], int]:
    suffix = path.suffix.lower()
    if suffix in (".parquet", ".pq"):
        needed("pyarrow.parquet", "Writing Parquet")
        return _write_parquet
    if suffix == ".csv":
        return _write_csv
    raise InvalidInput(
        f"A table must be written to a file named .parquet, .pq or .csv; got '{path.name}'."
    )


def _write_parquet(file: IO[bytes], chunks: Iterator[dict[str, np.ndarray]]) -> int:
    pyarrow = needed("pyarrow", "Writing Parquet")
    parquet = needed("pyarrow.parquet", "Writing Parquet")
    first = pyarrow.table(next(chunks))
    rows = first.num_rows
    with parquet.ParquetWriter(file, first.schema) as writer:
        writer.write_table(first)
        for chunk in chunks:
            table = pyarrow.table(chunk, schema=first.schema)
            writer.write_table(table)
            rows += table.num_rows
    return rows


def _write_csv(file: IO[bytes], chunks: Iterator[dict[str, np.ndarray]]) -> int:
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    writer = csv.writer(text, lineterminator="\n")
    rows = 0
    for chunk in chunks:
        if rows == 0:
            writer.writerow(chunk)
        writer.writerows(zip(*(_shortest(a) for a in chunk.values()), strict=True))
        rows += len(next(iter(chunk.values())))
    text.flush()
    text.detach()
    return rows


def _shortest(array: np.ndarray) -> list[Any]:
    """Values that Python writes with the fewest digits that give the array's own back."""
    if array.dtype == np.float32:
        return [str(value) for value in array]
    return array.tolist()


def _array(column: Any) -> np.ndarray:
    return to_numpy(column) if hasattr(column, "__dlpack__") else np.asarray(column)


def _checked(chunks: Iterable[Chunk]) -> Iterator[dict[str, np.ndarray]]:
    names: list[str] | None = None
    for chunk in chunks:
        arrays = {name: _array(column) for name, column in chunk.items()}
        if not arrays:
            raise InvalidInput("A table must have at least one column to write; got none.")
        shapes = {array.shape for array in arrays.values()}
        if len(shapes) != 1 or len(next(iter(shapes))) != 1:
            raise InvalidInput(
                "A table must have columns of one dimension and equal length; got "
                + ", ".join(f"{name!r} of shape {a.shape}" for name, a in arrays.items())
                + "."
            )
        if names not in (None, list(arrays)):
            raise InvalidInput(
                f"A table must keep its columns; got {listed(arrays)} after {listed(names or [])}."
            )
        names = list(arrays)
        yield arrays
    if names is None:
        raise InvalidInput("A table must have at least one chunk of columns to write; got none.")
