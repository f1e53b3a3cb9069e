"""Tables and arrays in partitions that an engine holds: read where they are, one at a time."""

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, NamedTuple

import array_api_compat
import numpy as np

from bochner._core.optional import explained
from bochner.data.frames import arrow_table, held_in, names_in, rows_in, slices
from bochner.data.sources import (
    Partition,
    Piece,
    Source,
    checked,
    part,
    rows_and_columns,
    shaped,
    stand_ins,
)
from bochner.data.tables import NO_ROWS, Column, Reader, without_target
from bochner.errors import DataFileError, InvalidInput

#: How Python ends a traceback.
_RAISED = re.compile(r"(?!\S*UserCodeException)[\w.]+(Error|Exception|Interrupt)(: |$)")

#: Our module of tables and arrays in partitions, and their classes, by the package of the engine.
_HELD = {
    "dask": ("dask_tables", "DataFrame", "Array"),
    "ray": ("ray_tables", "Dataset", "MaterializedDataset"),
    "pyspark": ("spark_tables", "DataFrame"),
}

#: Numbers, at most, that are read at a time where that is more than one chunk.
CELLS_READ = 1 << 22


@dataclass(frozen=True, eq=False)
class Here(Partition):
    """Rows that are in this process."""

    rows: Any

    def fetch(self) -> Any:
        return self.rows


@dataclass(frozen=True, eq=False)
class PartitionReader(Reader):
    """One partition of a table, or a stretch of its rows, fetched when it is read."""

    label: str
    columns: tuple[Column, ...]
    n_rows: int
    total_rows: int  # rows of the partition
    key: str  # fingerprint of its rows
    partition: Partition | None = None
    library: str = ""
    first: int = 0

    def frames(self, names: tuple[str, ...], text: frozenset[str], rows: int) -> Iterator[Any]:
        table = None if self.partition is None else self.partition.fetch()
        known, count = names_in(table), rows_in(table)
        missing = [name for name in names if name not in known]
        if missing or count != self.total_rows:
            got = f"no column {missing[0]!r}" if missing else f"{count} rows"
            raise InvalidInput(
                f"Blocks: {self.label} must have the columns of the first and the same "
                f"{self.total_rows} rows in every pass; got {got}. Make partitions alike, or "
                "persist them first."
            )
        starts = range(self.first, self.first + self.n_rows, rows)
        yield from slices(held_in(table, names), names, text, starts)

    def mark(self) -> str:
        return f"{self.key}, {self.n_rows} rows from {self.first} on"

    def part(self, start: int, stop: int) -> "PartitionReader":
        return replace(self, n_rows=stop - start, first=self.first + start)


class Chunk(NamedTuple):
    """One partition of arrays, or a stretch of its rows."""

    partition: Partition
    rows: int
    total_rows: int
    first: int = 0


@dataclass(frozen=True, eq=False)
class Chunks(Source):
    """Arrays in partitions of rows, (X, y, w) each."""

    chunks: tuple[Chunk, ...]
    label: str
    key: str
    n_rows: int
    n_columns: int
    schema: None = None
    first: int = 0
    library: str = "dask"

    def __repr__(self) -> str:
        return self.label

    def pieces(self, rows: int) -> Iterator[Piece]:
        number = self.first
        for chunk in self.chunks:
            piece = Piece(*chunk.partition.fetch())
            if piece.X.shape[0] != chunk.total_rows:
                raise InvalidInput(
                    f"Blocks: a chunk of {self.label} must have the same {chunk.total_rows} rows "
                    f"in every pass; got {piece.X.shape[0]}. Persist the array first."
                )
            for start in range(chunk.first, chunk.first + chunk.rows, rows):
                stop = min(start + rows, chunk.first + chunk.rows)
                yield checked(part(piece, slice(start, stop)), range(number, number + rows))
                number += stop - start

    def mark(self) -> str:
        return f"{self.key}, {self.n_rows} rows" if self.key else super().mark()

    def part(self, start: int, stop: int) -> "Chunks":
        chunks, before = [], 0
        for chunk in self.chunks:
            low, high = max(start - before, 0), min(stop - before, chunk.rows)
            if low < high:
                chunks.append(chunk._replace(rows=high - low, first=chunk.first + low))
            before += chunk.rows
        return replace(self, chunks=tuple(chunks), n_rows=stop - start, first=self.first + start)

    @property
    def partitions(self) -> tuple[Partition, ...]:
        return tuple(chunk.partition for chunk in self.chunks)

    def held_by(self, partitions: Sequence[Partition]) -> "Chunks":
        pairs = zip(self.chunks, partitions, strict=True)
        return replace(self, chunks=tuple(c._replace(partition=p) for c, p in pairs))


def library_of(table: Any) -> str:
    """Return the engine's package that holds a table or array; "" if none does."""
    kind = type(table)
    name = kind.__module__.partition(".")[0]
    return name if name in sys.modules and kind.__name__ in _HELD.get(name, ()) else ""


def readers_of(
    partitions: Sequence[tuple[Partition, int, str]], columns: tuple[Column, ...], table: Any
) -> list[PartitionReader]:
    """Return readers of partitions, given with their numbers of rows and keys."""
    library = library_of(table)
    label = f"the {library} {type(table).__name__}"
    readers = [
        PartitionReader(f"partition {i} of {label}", columns, rows, rows, key, partition, library)
        for i, (partition, rows, key) in enumerate(partitions)
    ]
    none = PartitionReader(label, columns, 0, 0, "", library=library)
    return [reader for reader in readers if reader.n_rows] or readers[:1] or [none]


def rows_without_target(names: Sequence[str], rows: Any) -> np.ndarray:
    """Return the numbers of the rows of a partition without a target; none if it lacks a column."""
    known = {*names} <= {*names_in(rows)}
    return without_target(arrow_table(rows, names), names) if known else NO_ROWS


def uncomputed(what: str) -> AbstractContextManager[None]:
    """Return the context that names the table in errors of the engine that computes it."""
    return explained(
        lambda error: DataFileError(
            f"Blocks: {what} must be computed to be read; it could not be ({said(error)}). Correct "
            "its computation, and fit again."
        )
    )


def said(error: Exception) -> str:
    """Return what went wrong, of an engine's error the last line of its worker's traceback."""
    first, *more = str(error).splitlines() or [""]
    last = next((line for line in reversed(more) if _RAISED.match(line)), "")
    return last[:200] or f"{type(error).__name__}: {first[:200]}"


def by_name(values: Any, name: str) -> dict[str, np.ndarray]:
    """Return columns of predictions by name: one, or one for each column of many."""
    array = np.asarray(values)
    if array.ndim == 1:
        return {name: array}
    return {f"{name}_{k}": column for k, column in enumerate(array.T)}


def with_columns(table: Any, call: Callable[[Any], Any], name: str) -> Any:
    """Return an Arrow table with the results of ``call`` in further columns."""
    for column, values in by_name(call(table), name).items():
        table = table.append_column(column, [values])
    return table


def module_of(table: Any) -> Any:
    """Return the module of the library of a table or array.

    Its ``readers(table)`` or ``chunks(X, y, w)`` are sources of rows, ``mapped(table, call, name)``
    gives what ``call`` gives of each partition, when asked for, and
    ``with_columns(table, columns)`` a table with more columns.
    """
    return import_module(f"bochner.data.{_HELD[library_of(table)][0]}")


# --- Arrays in files, such as h5py and Zarr arrays, read in slices of whole chunks ----------------


@dataclass(frozen=True, eq=False)
class Slice(Partition):
    """Rows of an array in a file; y and w are in memory."""

    arrays: Piece
    rows: slice

    def fetch(self) -> Piece:
        X, *others = (None if array is None else array[self.rows, ...] for array in self.arrays)
        return Piece(np.asarray(X), *others)

    def __reduce__(self) -> tuple[Any, ...]:
        return Here, (self.fetch(),)  # a file that is open here is not open in another process


def is_stored(X: Any) -> bool:
    """Whether X is an array in chunks that slices are read of, and of no array library."""
    parts = ("shape", "dtype", "chunks", "__getitem__")
    foreign = hasattr(X, "rechunk") or array_api_compat.is_array_api_obj(X)
    return all(hasattr(X, name) for name in parts) and not foreign


def open_stored(X: Any, y: Any, w: Any) -> Chunks:
    """Check shapes and types, reading y and w alone; slices are of about 32 MB."""
    y, w = (np.asarray(array) if is_stored(array) else array for array in (y, w))
    n_rows, n_columns = rows_and_columns(shaped(stand_ins(X).X, y, w))
    chunk, most = int((X.chunks or (1,))[0]), max(1, CELLS_READ // n_columns)
    step = most if chunk > most else most - most % chunk
    slices = [slice(at, min(at + step, n_rows)) for at in range(0, n_rows, step)]
    chunks = (Chunk(Slice(Piece(X, y, w), s), *[s.stop - s.start] * 2) for s in slices)
    label = f"a stored array of {type(X).__module__.partition('.')[0]}"
    return Chunks(tuple(chunks), label, "", n_rows, n_columns, library="")
