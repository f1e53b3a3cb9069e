"""Sources of rows, and blocks of one size from pieces of any size."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import array_api_compat
import numpy as np

from bochner._core import arrays
from bochner._core.arrays import as_floating, is_sparse, take, to_numpy
from bochner._core.checks import LARGEST
from bochner.data.encoders import Location
from bochner.data.schema import Schema
from bochner.errors import InvalidInput, InvalidType

#: Most numbers that are read at a time, 32 MB in float64; a chunk with more is read whole.
CELLS_READ = 1 << 22


class Piece(NamedTuple):
    """Consecutive rows: X (n, d), y (n,) or (n, t) or None, w (n,) or None."""

    X: Any
    y: Any = None
    w: Any = None


class Block(NamedTuple):
    """Consecutive rows of a table.

    Inputs X (n, d); targets y (n,) or (n, t), or None; weights w (n,), or None; ``start``, the
    number of rows of the table before the first row.

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> blocks = bo.Blocks.from_arrays(np.ones((5, 2)), np.arange(5.0), block_rows=2)
    >>> [(block.start, block.X.shape, block.y.shape) for block in blocks]
    [(0, (2, 2), (2,)), (2, (2, 2), (2,)), (4, (1, 2), (1,))]
    """

    X: Any
    y: Any
    w: Any
    start: int

    @property
    def has_weight(self) -> bool:
        """Whether at least one row has a weight above zero."""
        return self.w is None or bool(arrays.array_namespace(self.w).any(self.w > 0))


def weights_of(block: Any) -> Any:
    """Return the weights of a block as float64 NumPy array, all 1 if it has no weights."""
    if block.w is None:
        return np.ones(block.X.shape[0])
    return to_numpy(block.w).astype(np.float64)


def piece_of(block: Any) -> Piece:
    """Return X of a block as a NumPy array or in CSR, y (n, t) and w as NumPy's float64."""
    n, w, X = block.X.shape[0], weights_of(block), block.X
    y = np.empty((n, 0)) if block.y is None else to_numpy(block.y).astype(np.float64)
    return Piece(X if is_sparse(X) else to_numpy(X), y.reshape(n, -1), w)


@dataclass(frozen=True, eq=False)
class Partition:
    """Consecutive rows, in this process or behind a handle of an engine."""

    content: Any  # the rows, a table or a tuple (X, y, w) of arrays; or the handle of the engine
    n_rows: int
    first: int = 0  # number of the first row
    library: str = ""  # the package of the engine
    get: Callable[[Any], Any] | None = None  # function of the handle that returns the rows

    def fetch(self) -> Any:
        """Return the rows, in this process."""
        return self.content if self.get is None else self.get(self.content)


class Source(ABC):
    """Rows that can be read from the first to the last, as often as needed."""

    label: str  # name in messages
    n_columns: int  # columns of X
    n_rows: Any = None  # int; None if unknown before all rows were read
    schema: Schema | None = None  # None if the columns have no names
    first: int = 0  # number of the first row in the whole table
    is_checked: bool = False  # one partition in memory, whose numbers were checked

    def __repr__(self) -> str:
        return self.label

    @abstractmethod
    def pieces(self, rows: int) -> Iterator[Piece]:
        """Yield all rows in order, in pieces of bounded size, preferably of ``rows`` rows."""

    def mark(self) -> str:
        """Return a fingerprint of the rows: by default a digest of all rows, in one pass."""
        import joblib  # noqa: PLC0415  few need it

        def plain(array: Any) -> Any:
            is_array = array is not None and not is_sparse(array)
            return np.ascontiguousarray(to_numpy(array)) if is_array else array

        pieces = self.pieces(1 << 13)
        return str(joblib.hash([joblib.hash([*map(plain, piece)]) for piece in pieces]))

    @property
    def partitions(self) -> Any:
        """Partitions with the rows in order if an engine holds them, else empty."""
        return ()

    def part(self, start: int, stop: int) -> "Source | None":
        """Return a source of these rows; None if all rows before them would have to be read."""
        return None

    def with_content(self, rows: Sequence[Any]) -> "Source":
        """Return the same source with these rows in its partitions, in order."""
        return self


def resize(pieces: Iterable[Piece], rows: int) -> Iterator[Piece]:
    """Cut pieces of any size into pieces of ``rows`` rows each, views where possible."""
    waiting: list[Piece] = []
    count = 0
    for piece in pieces:
        start, n = 0, piece.X.shape[0]
        while start < n:
            size = min(rows - count, n - start)
            waiting.append(piece if size == n else part(piece, slice(start, start + size)))
            count, start = count + size, start + size
            if count == rows:
                yield join(waiting)
                waiting, count = [], 0
    if waiting:
        yield join(waiting)


def part(piece: Any, rows: slice | np.ndarray) -> Piece:
    """Return rows of X, y and w: views for a slice, copies for an array of row numbers."""
    X, y, w = piece.X, piece.y, piece.w
    if isinstance(rows, slice):
        X = X[rows] if is_sparse(X) else X[rows, ...]
        return Piece(X, None if y is None else y[rows, ...], None if w is None else w[rows])
    y = None if y is None else take(y, rows, axis=0)
    return Piece(take(X, rows, axis=0), y, None if w is None else take(w, rows, axis=0))


def join(pieces: Sequence[Any]) -> Piece:
    """Concatenate X, y and w of pieces by rows; the arrays of a single piece are unchanged."""
    if len(pieces) == 1:
        return Piece(pieces[0].X, pieces[0].y, pieces[0].w)
    columns = zip(*((piece.X, piece.y, piece.w) for piece in pieces), strict=True)
    return Piece(*(None if column[0] is None else arrays.concat(column) for column in columns))


def require_finite(array: Any, column: Callable[[int], str], location: Location) -> None:
    """Raise an error for the first missing or infinite value, with its column and row."""
    if arrays.all_finite(array):
        return
    numbers = array.data if is_sparse(array) else to_numpy(array).ravel()
    place = int(np.argmin(np.isfinite(numbers)))
    value = numbers[place]
    if is_sparse(array):
        row, col = (int(places[place]) for places in array.tocoo().coords)
    else:
        row, col = map(int, divmod(place, array.shape[1] if array.ndim == 2 else 1))
    content = "a missing value (NaN or null)" if np.isnan(value) else repr(float(value))
    raise InvalidInput(
        f"Blocks: {column(col)} must hold finite numbers; got {content} in {location(row)}. "
        "Fill or drop such rows first."
    )


def require_weights(w: Any, location: Location) -> None:
    """Raise an error that names the row of the first negative, missing or too large weight."""
    require_finite(w, lambda _: "the sample weight", location)
    mask = (w < 0) | (w > LARGEST)
    if bool(arrays.array_namespace(w).any(mask)):
        row = int(np.flatnonzero(to_numpy(mask))[0])
        raise InvalidInput(
            f"Blocks: sample_weight must be zero or above, {LARGEST:g} at most; got "
            f"{float(w[row]):g} in {location(row)}. Drop such rows, weigh them zero, or divide all "
            "weights by one number."
        )


# --- Arrays, and the caller's iterables ----------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class Arrays(Source):
    """Arrays of any library, in memory, in files, or in partitions of rows that an engine holds."""

    chunks: tuple[Partition, ...]
    key: str = ""  # fingerprint that needs no reading
    step: int = 0  # rows read together of an array in a file: a multiple of its chunks
    label: str = field(kw_only=True)
    n_columns: int = field(kw_only=True)
    n_rows: int = field(kw_only=True)
    first: int = field(default=0, kw_only=True)
    is_checked: bool = field(default=False, kw_only=True)

    def __getstate__(self) -> dict[str, Any]:
        if self.key:
            return vars(self)
        # another process cannot use a file that is open in this process
        (data,) = self.chunks
        start = self.first - data.first
        rows = part(Piece(*data.fetch()), slice(start, start + self.n_rows))
        partitions = (Partition(rows, self.n_rows, self.first),)
        return {**vars(self), "chunks": partitions, "step": 0}

    def pieces(self, rows: int) -> Iterator[Piece]:
        step = self.step or rows
        for partition in self.chunks:
            data, number = Piece(*partition.fetch()), partition.first
            if data.X.shape[0] != partition.n_rows:
                raise InvalidInput(
                    f"Blocks: a chunk of {self} must have the same {partition.n_rows} rows in "
                    f"every pass; got {data.X.shape[0]}. Persist the array first."
                )
            end = min(number + partition.n_rows, self.first + self.n_rows)
            for start in range(max(number, self.first), end, step):
                piece = part(data, slice(start - number, min(start + step, end) - number))
                yield piece if self.is_checked else check_values(piece, range(start, start + step))

    def rows(self, index: np.ndarray) -> Piece:
        """Return the rows with these numbers, of a source with one partition, without a pass."""
        (data,) = self.chunks
        return check_values(part(data.fetch(), index + (self.first - data.first)), index)

    def mark(self) -> str:
        return f"{self.key}, {self.n_rows} rows" if self.key else super().mark()

    def part(self, start: int, stop: int) -> "Arrays":
        first, end = self.first + start, self.first + stop
        partitions = tuple(p for p in self.chunks if p.first < end and first < p.first + p.n_rows)
        return replace(self, chunks=partitions, first=first, n_rows=stop - start)

    @property
    def partitions(self) -> tuple[Partition, ...]:
        return tuple(partition for partition in self.chunks if partition.library)

    def with_content(self, rows: Sequence[Any]) -> "Arrays":
        pairs = zip(self.chunks, rows, strict=True)
        return replace(self, chunks=tuple(replace(p, content=c, get=None) for p, c in pairs))


@dataclass(frozen=True, eq=False, repr=False)
class Iterables(Source):
    """Pieces of the caller's iterable, or of a function that returns an iterable."""

    source: Iterable[Any] | Callable[[], Iterable[Any]]
    form: str
    first_row: bytes  # of the first pass; each pass must begin with it
    label: str
    n_columns: int

    def pieces(self, rows: int) -> Iterator[Piece]:  # pieces keep the caller's sizes
        for number, piece in enumerate(_pieces(_iterate(self.source))):
            if number == 0 and _first_row(piece) != self.first_row:
                raise InvalidInput(
                    "Blocks: an iterable must give the same rows in the same order each time it is "
                    "started; got another first row. Switch shuffling off, and let a function make "
                    "a new iterator each time it is called."
                )
            if (form := form_of(piece)) != self.form:
                raise InvalidInput(
                    "Blocks: all pieces of an iterable must have the same columns, dtypes and "
                    f"parts; got {form} in piece {number} where piece 0 has {self.form}. Make them "
                    "alike."
                )
            yield piece


def open_arrays(X: Any, y: Any, w: Any) -> Arrays:
    """Return a source of arrays; their shapes and types are checked, but no values."""
    if hasattr(X, "__arrow_c_stream__") or hasattr(X, "columns"):
        raise InvalidType(
            f"Blocks.from_arrays: X must be an array; got a table ({type(X).__name__}). "
            "Use Blocks.from_table(table, target=...)."
        )
    label, step = f"arrays of {type(X).__module__.partition('.')[0]}", 0
    if is_file_array(X):
        piece = as_piece(zeros_view(X), y, w)._replace(X=X)
        chunk, limit = int((X.chunks or (1,))[0]), max(1, CELLS_READ // X.shape[1])
        step = limit if chunk > limit else limit - limit % chunk
    else:
        piece = as_piece(X, y, w)
    n, d = piece.X.shape
    return Arrays((Partition(piece, n),), step=step, label=label, n_columns=d, n_rows=n)


def array_source(X: Any, y: Any, w: Any) -> Arrays:
    """Return a source of a matrix and targets that were checked to be finite; w is checked here."""
    if is_sparse(y):
        as_piece(X, y)  # refuses it
    if w is not None:
        require_weights(w, lambda row: f"row {row} (counted from 0)")
    label, (n, d) = f"arrays of {type(X).__module__.partition('.')[0]}", X.shape
    rows = Partition(Piece(as_floating(X), None if y is None else as_floating(y), w), n)
    return Arrays((rows,), is_checked=True, label=label, n_columns=d, n_rows=n)


def is_file_array(X: Any) -> bool:
    """Whether X is an array in a file that is read by slices, of h5py or Zarr."""
    has_chunks = hasattr(X, "chunks") and hasattr(X, "dtype") and not hasattr(X, "rechunk")
    return has_chunks and not array_api_compat.is_array_api_obj(X)


def open_iterable(source: Any) -> Iterables:
    """Return a source of an iterable or of a function that returns one; read the first piece."""
    iterator = _iterate(source)
    if iterator is _iterate(source):
        raise InvalidInput(
            "Blocks.from_iterable: the source must be readable more than once; got "
            f"{type(iterator).__name__}, which is used up after one pass. Pass a function that "
            "makes a new iterator each time it is called."
        )
    for piece in _pieces(iterator):
        label = f"pieces of {getattr(source, '__name__', type(source).__name__)}"
        return Iterables(source, form_of(piece), _first_row(piece), label, piece.X.shape[1])
    raise InvalidInput("Blocks.from_iterable: the source must give at least one row; got none.")


def _iterate(source: Any) -> Iterator[Any]:
    items = source() if callable(source) else source
    if not isinstance(items, Iterable):
        raise InvalidType(
            "Blocks.from_iterable: the source must be an iterable of (X,), (X, y) or (X, y, w), or "
            "a function without arguments that returns one; got "
            f"{'a function that returns ' * callable(source)}{type(items).__name__}."
        )
    return iter(items)


def _pieces(items: Iterator[Any]) -> Iterator[Piece]:
    """Yield X alone, or (X,), (X, y), (X, y, w); a Block's fourth part, its start, is dropped."""
    start = 0
    for item in items:
        is_tuple = isinstance(item, tuple | list) and all(hasattr(a, "shape") for a in item[:1])
        parts = item if is_tuple else (item,)
        if not 1 <= len(parts) <= 4:
            raise InvalidInput(
                "Blocks.from_iterable: each piece must be (X,), (X, y) or (X, y, w); got "
                f"{len(parts)} parts. Pass no other parts."
            )
        piece = as_piece(*parts[:3])
        yield check_values(piece, range(start, start + piece.X.shape[0]))
        start += piece.X.shape[0]


def as_piece(X: Any, y: Any = None, w: Any = None) -> Piece:
    """Return arrays as a piece; raise an error if their shapes or types do not fit."""
    X = arrays.as_array(X, "Blocks", "X")
    y = None if y is None else arrays.as_array(y, "Blocks", "y")
    w = None if w is None else arrays.as_array(w, "Blocks", "sample_weight")
    if X.ndim != 2 or X.shape[1] == 0:
        raise InvalidInput(
            "Blocks: X must have two dimensions, rows and at least one column; got shape "
            f"{tuple(X.shape)}. Pass X.reshape(-1, 1) if it is one column."
        )
    for array, name, max_ndim in ((y, "y", 2), (w, "sample_weight", 1)):
        if array is not None and (
            is_sparse(array) or not 1 <= array.ndim <= max_ndim or array.shape[0] != X.shape[0]
        ):
            raise InvalidInput(
                f"Blocks: {name} must be dense and have one entry per row of X ({X.shape[0]}); got "
                f"{'a sparse array of ' if is_sparse(array) else ''}shape {tuple(array.shape)}."
            )
    return Piece(X, y, w)


def zeros_view(array: Any) -> Any:
    """Return an array of zeros of the same shape and dtype that uses almost no memory."""
    return None if array is None else np.broadcast_to(np.zeros((), array.dtype), array.shape)


def check_values(piece: Piece, numbers: range | np.ndarray) -> Piece:
    """Return the rows, whose numbers are ``numbers``, as floats; check values and weights."""
    X, y, w = as_floating(piece.X), piece.y, piece.w
    location = lambda row: f"row {numbers[row]} (counted from 0)"
    require_finite(X, lambda col: f"column {col} of X", location)
    if y is not None:
        y = as_floating(y)
        require_finite(y, lambda col: f"column {col} of y" if y.ndim == 2 else "y", location)
    if w is not None:
        w = as_floating(w)
        require_weights(w, location)
    return Piece(X, y, w)


def _first_row(piece: Piece) -> bytes:
    return to_numpy(part(Piece(piece.X), slice(0, 1)).X).tobytes()


def form_of(piece: Piece) -> str:
    """Return a description of the properties that all pieces must share."""
    X, y, w = piece
    kind = f"{type(X).__name__} of {X.shape[1]} columns ({X.dtype})"
    targets = "no y" if y is None else f"y of shape {('n', *y.shape[1:])} ({y.dtype})"
    weights = "no weights" if w is None else f"weights ({w.dtype})"
    return f"{kind}, {targets}, {weights}"


def require_targets(caller: str, y: Any) -> Any:
    """Return ``y``, targets or their shape; raise an error if it is None."""
    if y is None:
        raise InvalidInput(
            f"{caller}: requires y to be passed, but the target y is None; name it with target=... "
            "where the blocks are made."
        )
    return y
