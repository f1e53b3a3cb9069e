"""From pieces of any size to blocks of one size; what every source of data has in common."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from bochner._ground.arrays import array_namespace, is_numpy, is_sparse, taken, to_numpy
from bochner._ground.checks import LARGEST
from bochner._ground.schema import Schema
from bochner.errors import InvalidInput

__all__ = ["Piece", "Source", "Where", "cut", "join", "part", "require_finite", "require_weights"]

Where = Callable[[int], str]


class Piece(NamedTuple):
    """Consecutive rows: X (n, d), y (n,) or (n, t) or None, w (n,) or None."""

    X: Any
    y: Any = None
    w: Any = None


class Source(ABC):
    """Rows that can be read from the first to the last, again and again."""

    n_rows: int | None  # None if only reading them all would tell
    n_columns: int  # columns of X
    schema: Schema | None  # what the columns mean, None if they have no names

    @abstractmethod
    def pieces(self, rows: int) -> Iterator[Piece]:
        """Give all rows in order, in pieces of bounded size, preferably of ``rows`` rows."""


def cut(pieces: Iterable[Piece], rows: int) -> Iterator[Piece]:
    """Cut pieces of any size into pieces of ``rows`` rows each; the last may be shorter.

    A piece that lies within one of those given is a view of it.
    """
    held: list[Piece] = []
    count = 0
    for piece in pieces:
        at, n = 0, piece.X.shape[0]
        while at < n:
            take = min(rows - count, n - at)
            held.append(part(piece, slice(at, at + take)))
            count, at = count + take, at + take
            if count == rows:
                yield join(held)
                held, count = [], 0
    if held:
        yield join(held)


def part(piece: Piece, rows: slice | np.ndarray) -> Piece:
    """Return some rows of a piece: a slice gives views, an array of row numbers copies."""
    return Piece(*(None if a is None else _rows(a, rows) for a in piece))


def _rows(array: Any, rows: slice | np.ndarray) -> Any:
    if not isinstance(rows, slice):
        return taken(array, rows, axis=0)
    return array[rows] if is_sparse(array) else array[rows, ...]


def join(pieces: list[Piece]) -> Piece:
    """Put pieces one below the other; a single piece is returned as it is."""
    if len(pieces) == 1:
        return pieces[0]
    columns = zip(*pieces, strict=True)
    return Piece(*(None if parts[0] is None else _stack(parts) for parts in columns))


def _stack(arrays: tuple[Any, ...]) -> Any:
    if is_sparse(arrays[0]):
        return scipy.sparse.vstack(arrays, format="csr")
    if is_numpy(arrays[0]):
        return np.concatenate(arrays)
    return array_namespace(arrays[0]).concat(list(arrays))


def require_finite(array: Any, column: Callable[[int], str], where: Where) -> None:
    """Refuse missing values and infinities, naming column and row of the first."""
    values = array.data if is_sparse(array) else array
    xp = array_namespace(values)
    finite = xp.isfinite(values)
    if bool(xp.all(finite)):
        return
    row, col, value = _first_bad(array, np.flatnonzero(~to_numpy(finite).ravel())[0])
    got = "a missing value (NaN or null)" if np.isnan(value) else repr(float(value))
    raise InvalidInput(
        f"Blocks: {column(col)} must hold finite numbers; got {got} in {where(row)}. "
        "Fill or drop such rows first."
    )


def _first_bad(array: Any, at: np.intp) -> tuple[int, int, float]:
    if is_sparse(array):
        row = int(np.searchsorted(array.indptr, at, side="right")) - 1
        return row, int(array.indices[at]), array.data[at]
    columns = array.shape[1] if array.ndim == 2 else 1
    return int(at // columns), int(at % columns), to_numpy(array).ravel()[at]


def require_weights(w: Any, where: Where) -> None:
    """Refuse weights that are negative, missing or too large, naming the row of the first."""
    require_finite(w, lambda _: "the sample weight", where)
    xp = array_namespace(w)
    if bool(xp.any(w < 0)):
        row = int(np.flatnonzero(to_numpy(w < 0))[0])
        raise InvalidInput(
            f"Blocks: the sample weight must be zero or above; got {float(w[row])} in "
            f"{where(row)}. Drop such rows or weigh them zero."
        )
    if bool(xp.any(w > LARGEST)):
        row = int(np.flatnonzero(to_numpy(w > LARGEST))[0])
        raise InvalidInput(
            f"Blocks: sample_weight must be finite and not negative, {LARGEST:g} at most; got "
            f"{float(w[row]):g} in {where(row)}. Divide all weights by one number."
        )
