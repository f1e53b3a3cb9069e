"""Arrays in files, as of h5py and Zarr, read by slices of whole chunks."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import array_api_compat
import numpy as np

from bochner.data.sources import Arrays, Piece, Source, checked, shaped
from bochner.errors import InvalidInput

#: Numbers, at most, that are read at a time where that is more than one block.
CELLS_READ = 1 << 22


@dataclass(frozen=True, eq=False)
class Stored(Source):
    """An array in a file; y and w are in memory.

    Another process gets the rows themselves: a file that is open here is not open there.
    """

    X: Any
    beside: Piece  # X without memory, y and w of all rows of the file
    n_rows: int
    n_columns: int
    schema: None = None
    first: int = 0  # number of the first row, where they are a part

    def __repr__(self) -> str:
        return f"a stored array of {type(self.X).__module__.partition('.')[0]}"

    def __reduce__(self) -> tuple[Any, ...]:
        piece = self._read(self.first, self.first + self.n_rows)
        return Arrays, (piece, self.n_rows, self.n_columns, None, self.first)

    def pieces(self, rows: int) -> Iterator[Piece]:
        step = self._step(rows)
        at, end = self.first, self.first + self.n_rows
        while at < end:
            stop = min(end, (at // step + 1) * step)
            yield checked(self._read(at, stop), range(at, stop))
            at = stop

    def _step(self, rows: int) -> int:
        """Return a multiple of the rows of a chunk, unless one holds too many."""
        chunk = int((self.X.chunks or (1,))[0])
        most = max(rows, CELLS_READ // self.n_columns)
        return most if chunk > most else most - most % chunk

    def _read(self, start: int, stop: int) -> Piece:
        rows = slice(start, stop)
        X = np.asarray(self.X[rows])
        y, w = (None if array is None else array[rows, ...] for array in self.beside[1:])
        return Piece(X, y, w)

    def part(self, start: int, stop: int) -> "Stored":
        return replace(self, n_rows=stop - start, first=self.first + start)


def is_stored(X: Any) -> bool:
    """Whether X is an array in chunks that slices are read of, and of no array library."""
    parts = ("shape", "dtype", "chunks", "__getitem__")
    return (
        all(hasattr(X, name) for name in parts)
        and not hasattr(X, "rechunk")
        and not array_api_compat.is_array_api_obj(X)
    )


def open_stored(X: Any, y: Any, w: Any) -> Stored:
    """Check shapes and types, reading y and w alone."""
    y, w = (np.asarray(array) if is_stored(array) else array for array in (y, w))
    beside = shaped(np.broadcast_to(np.zeros((), X.dtype), X.shape), y, w)
    n_rows, n_columns = beside.X.shape
    if n_rows == 0:
        raise InvalidInput("Blocks.from_arrays: X must have at least one row; got none.")
    return Stored(X, beside, n_rows, n_columns)
