"""Arrays in files, such as h5py and Zarr arrays, read in slices of whole chunks."""

from dataclasses import dataclass
from typing import Any

import array_api_compat
import numpy as np

from bochner.data.partitions import Chunk, Chunks, Here
from bochner.data.sources import Partition, Piece, shaped
from bochner.errors import InvalidInput

#: Numbers, at most, that are read at a time where that is more than one chunk.
CELLS_READ = 1 << 22


@dataclass(frozen=True, eq=False)
class Slice(Partition):
    """Rows of an array in a file; y and w are in memory."""

    X: Any
    arrays: Piece  # X without memory, y and w of all rows of the file
    rows: slice

    def fetch(self) -> Piece:
        y, w = (None if array is None else array[self.rows, ...] for array in self.arrays[1:])
        return Piece(np.asarray(self.X[self.rows]), y, w)

    def __reduce__(self) -> tuple[Any, ...]:
        return Here, (self.fetch(),)  # a file that is open here is not open in another process


def is_stored(X: Any) -> bool:
    """Whether X is an array in chunks that slices are read of, and of no array library."""
    parts = ("shape", "dtype", "chunks", "__getitem__")
    return (
        all(hasattr(X, name) for name in parts)
        and not hasattr(X, "rechunk")
        and not array_api_compat.is_array_api_obj(X)
    )


def open_stored(X: Any, y: Any, w: Any) -> Chunks:
    """Check shapes and types, reading y and w alone; slices are of about 32 MB."""
    y, w = (np.asarray(array) if is_stored(array) else array for array in (y, w))
    shape_of_rows = shaped(np.broadcast_to(np.zeros((), X.dtype), X.shape), y, w)
    n_rows, n_columns = shape_of_rows.X.shape
    if n_rows == 0:
        raise InvalidInput("Blocks.from_arrays: X must have at least one row; got none.")
    chunk, most = int((X.chunks or (1,))[0]), max(1, CELLS_READ // n_columns)
    step = most if chunk > most else most - most % chunk
    slices = [slice(at, min(at + step, n_rows)) for at in range(0, n_rows, step)]
    parts = [(Slice(X, shape_of_rows, rows), rows.stop - rows.start) for rows in slices]
    label = f"a stored array of {type(X).__module__.partition('.')[0]}"
    chunks = tuple(Chunk(partition, n, n) for partition, n in parts)
    return Chunks(chunks, label, "", n_rows, n_columns, library="")
