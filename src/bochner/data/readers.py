"""Parquet files, read a few thousand rows at a time whatever the size of their row groups."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bochner.data.files import (
    COMPRESSED,
    PARQUET,
    TEXT,
    Stamp,
    first_bytes,
    stamp_of,
    table_suffix,
    unchanged,
    unreadable,
)
from bochner.data.schema import listed
from bochner.data.tables import Column, Reader, arrow_columns, arrow_frame, needed
from bochner.data.textfile import open_text
from bochner.errors import BochnerError, DataFileError

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
