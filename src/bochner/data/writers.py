"""Files that are written atomically; tables that are written chunk by chunk."""

import errno
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import IO, Any

import numpy as np

from bochner._core.arrays import to_numpy
from bochner._core.optional import package, raise_as
from bochner.data.files import reason_of
from bochner.errors import DataFileError

Chunk = Mapping[str, Any]


@contextmanager
def open_atomic(path: str | PathLike[str], mode: str = "wb") -> Iterator[IO[Any]]:
    """Open a file for writing that gets its name when it is complete and on the disk.

    After an error or Ctrl-C an older file is unchanged; a process that is killed leaves the file
    ``.NAME.*.part``. Mode "w" writes UTF-8 with line ends as given.
    """
    path = Path(os.path.realpath(Path(path).expanduser()))
    text: dict[str, Any] = {} if "b" in mode else {"encoding": "utf-8", "newline": ""}
    with raise_as(partial(_error_of_file, path), OSError):
        if path.is_dir():
            raise DataFileError(f"'{path}' cannot be written: it is a folder. Name a file in it.")
        if path.exists() and not path.is_file():  # a device or pipe
            with path.open(mode, **text) as file:
                yield file
            return
        if path.exists() and not os.access(path, os.W_OK):  # renaming over it would succeed
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        part = path.with_name(f".{path.name[:100]}.{secrets.token_hex(8)}.part")
        try:
            with part.open(mode.replace("w", "x"), **text) as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            if path.exists():
                part.chmod(path.stat().st_mode)
            part.replace(path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise


def _error_of_file(path: Path, error: OSError) -> DataFileError | None:
    """Return the error to raise for an error of the system; None if it is not about this file."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        reason = "the disk is full"
        remedy = "No part of the file was kept; free some space or choose another place"
    elif error.filename is not None and (
        Path(error.filename) == path
        or (Path(error.filename).parent == path.parent and error.filename.endswith(".part"))
    ):
        reason, remedy = reason_of(error), "Check the folder and its permissions"
    else:
        return None
    return DataFileError(f"'{path}' cannot be written: {reason}. {remedy}.")


def write_table(path: str | PathLike[str], columns: Chunk | Iterable[Chunk]) -> int:
    """Write columns as .parquet, .pq or .csv, chunk by chunk, and return the number of rows.

    Columns are (n,) arrays by name, in one chunk or in several with the same columns.
    """
    use, is_csv = f"Writing '{path}'", Path(path).suffix.lower() == ".csv"
    pa, form = package("pyarrow", use), package(f"pyarrow.{'csv' if is_csv else 'parquet'}", use)
    writer = form.CSVWriter if is_csv else form.ParquetWriter
    plain = lambda array: to_numpy(array) if hasattr(array, "__dlpack__") else np.asarray(array)
    chunks = [columns] if isinstance(columns, Mapping) else columns
    tables = (pa.table({name: plain(chunk[name]) for name in chunk}) for chunk in chunks)
    with open_atomic(path) as file:
        first, rows = next(tables), 0
        with writer(file, first.schema) as out:
            for table in chain([first], tables):
                out.write_table(table.cast(first.schema))
                rows += table.num_rows
    return rows
