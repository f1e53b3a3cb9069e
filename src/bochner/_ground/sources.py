"""Data that is in memory, or comes from the caller's own iterable."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from bochner._ground.arrays import as_array, as_floating, is_sparse, to_numpy
from bochner._ground.pieces import Piece, Source, Where, part, require_finite, require_weights
from bochner._ground.sampling import Sample, chosen_rows
from bochner.errors import InvalidInput, InvalidType

__all__ = ["Arrays", "Iterables", "open_arrays", "open_iterable"]


@dataclass(frozen=True, eq=False)
class Arrays(Source):
    """Arrays of any library, and memory maps: blocks are slices, without a copy."""

    data: Piece
    n_rows: int
    n_columns: int
    schema: None = None

    def __repr__(self) -> str:
        kind = type(self.data.X)
        return f"arrays of {kind.__module__.partition('.')[0]}"

    def pieces(self, rows: int) -> Iterator[Piece]:
        """Give slices of ``rows`` rows."""
        for start in range(0, self.n_rows, rows):
            piece = part(self.data, slice(start, min(start + rows, self.n_rows)))
            yield _checked(piece, _row_after(start))

    def sample(self, m: int, seed: int) -> Sample:
        """Return ``m`` random rows, picked without a pass over the others."""
        index = chosen_rows(seed, self.n_rows, m)
        piece = _checked(part(self.data, index), lambda row: f"row {index[row]} (counted from 0)")
        return Sample(*piece, index)


@dataclass(frozen=True, eq=False)
class Iterables(Source):
    """What the caller's iterable, or function that makes one, gives."""

    source: Iterable[Any] | Callable[[], Iterable[Any]]
    form: str
    first: bytes  # of the first row: whether it is the same each time
    n_columns: int
    n_rows: None = None
    schema: None = None

    def __repr__(self) -> str:
        return f"pieces of {getattr(self.source, '__name__', type(self.source).__name__)}"

    def pieces(self, rows: int) -> Iterator[Piece]:  # noqa: ARG002  the caller's sizes stay
        """Give the caller's pieces, checked, whatever their size."""
        start = 0
        for number, item in enumerate(_fresh(self.source)):
            piece = _checked(_parts(item), _row_after(start))
            self._require_same(piece, number)
            yield piece
            start += piece.X.shape[0]

    def _require_same(self, piece: Piece, number: int) -> None:
        if number == 0 and _first_row(piece) != self.first:
            raise InvalidInput(
                "Blocks: an iterable must give the same rows in the same order each time it is "
                "started; got another first row. Switch shuffling off, and let a function make a "
                "new iterator each time it is called."
            )
        form = _form(piece)
        if form != self.form:
            raise InvalidInput(
                "Blocks: all pieces of an iterable must have the same columns, dtypes and parts; "
                f"got {form} in piece {number} where piece 0 has {self.form}. Make them alike."
            )


def open_arrays(X: Any, y: Any, w: Any) -> Arrays:
    """Check shapes and types of arrays, once, without looking at the values."""
    if hasattr(X, "__arrow_c_stream__") or hasattr(X, "columns"):
        raise InvalidType(
            f"Blocks.from_arrays: X must be an array; got a table ({type(X).__name__}). "
            "Use Blocks.from_table(table, target=...)."
        )
    piece = _shaped(X, y, w)
    if piece.X.shape[0] == 0:
        raise InvalidInput("Blocks.from_arrays: X must have at least one row; got none.")
    return Arrays(piece, *piece.X.shape)


def open_iterable(source: Any) -> Iterables:
    """Look at the first piece of a re-iterable, or of what a function returns."""
    if isinstance(source, Iterator):
        raise InvalidInput(
            "Blocks.from_iterable: the source must be readable more than once; got "
            f"{type(source).__name__}, which is used up after one pass. Pass the function that "
            "makes it, without calling it."
        )
    if not callable(source) and not isinstance(source, Iterable):
        raise InvalidType(
            "Blocks.from_iterable: the source must be an iterable of (X,), (X, y) or (X, y, w), or "
            f"a function without arguments that returns one; got {type(source).__name__}."
        )
    started = _fresh(source)
    if started is _fresh(source):
        raise InvalidInput(
            "Blocks.from_iterable: the function must make a new iterator each time it is called; "
            "got the same one twice, which is used up after one pass. Make it inside the function."
        )
    for item in started:
        piece = _checked(_parts(item), _row_after(0))
        return Iterables(source, _form(piece), _first_row(piece), piece.X.shape[1])
    raise InvalidInput("Blocks.from_iterable: the source must give at least one row; got none.")


def _row_after(start: int) -> Where:
    return lambda row: f"row {start + row} (counted from 0)"


def _fresh(source: Any) -> Iterator[Any]:
    made = source() if callable(source) else source
    if not isinstance(made, Iterable):
        raise InvalidType(
            "Blocks.from_iterable: the function must return an iterable of (X,), (X, y) or "
            f"(X, y, w); got {type(made).__name__}."
        )
    return iter(made)


def _parts(item: Any) -> Piece:
    """X alone, or (X,), (X, y), (X, y, w); a Block's fourth part, its start, is dropped."""
    if not isinstance(item, tuple | list) or not all(hasattr(a, "shape") for a in item[:1]):
        item = (item,)
    if not 1 <= len(item) <= 4:
        raise InvalidInput(
            "Blocks.from_iterable: each piece must be (X,), (X, y) or (X, y, w); got "
            f"{len(item)} parts. Give these only."
        )
    return _shaped(*item[:3])


def _shaped(X: Any, y: Any = None, w: Any = None) -> Piece:
    X = as_array(X, "Blocks", "X")
    if X.ndim != 2 or X.shape[1] == 0:
        raise InvalidInput(
            "Blocks: X must have two dimensions, rows and at least one column; got shape "
            f"{tuple(X.shape)}. Pass X.reshape(-1, 1) if it is one column."
        )
    as_floating(X[:0, ...] if not is_sparse(X) else X[:0], "Blocks", "X")
    return Piece(X, _beside(X, y, "y", (1, 2)), _beside(X, w, "sample_weight", (1,)))


def _beside(X: Any, array: Any, name: str, ndims: tuple[int, ...]) -> Any:
    """Return an array with as many rows as X, or None."""
    if array is None:
        return None
    array = as_array(array, "Blocks", name)
    if is_sparse(array) or array.ndim not in ndims or array.shape[0] != X.shape[0]:
        raise InvalidInput(
            f"Blocks: {name} must be dense and have one entry per row of X ({X.shape[0]}); got "
            f"{'a sparse array of ' if is_sparse(array) else ''}shape {tuple(array.shape)}."
        )
    as_floating(array[:0, ...], "Blocks", name)
    return array


def _checked(piece: Piece, where: Where) -> Piece:
    """Return the piece as floating numbers, all finite, weights not negative."""
    names = ("X", "y", "sample_weight")
    X, y, w = (
        a if a is None else as_floating(a, "Blocks", name)
        for a, name in zip(piece, names, strict=True)
    )
    require_finite(X, lambda col: f"column {col} of X", where)
    if y is not None:
        require_finite(y, lambda col: f"column {col} of y" if y.ndim == 2 else "y", where)
    if w is not None:
        require_weights(w, where)
    return Piece(X, y, w)


def _first_row(piece: Piece) -> bytes:
    rows = slice(0, min(1, piece.X.shape[0]))
    return to_numpy(part(Piece(piece.X), rows).X).tobytes()


def _form(piece: Piece) -> str:
    """Return what must not change from piece to piece, in words."""
    X, y, w = piece
    kind = f"{type(X).__name__} of {X.shape[1]} columns ({X.dtype})"
    targets = "no y" if y is None else f"y of shape {('n', *y.shape[1:])} ({y.dtype})"
    weights = "no weights" if w is None else f"weights ({w.dtype})"
    return f"{kind}, {targets}, {weights}"
