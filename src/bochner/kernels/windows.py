"""Kernels of sequences and of sets: sums of a kernel over all pairs of windows.

A row is a sequence: the values of its steps in order.
"""

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Annotated, Any

import numpy as np

from bochner._core.arrays import array_namespace, dense, is_sparse, slices
from bochner._core.checks import Counted, Switch, integer, word
from bochner._core.shapes import Array, Float, Others, Pairs, Rows
from bochner.errors import InvalidInput
from bochner.kernels.algebra import SAME_ROWS
from bochner.kernels.dotproduct import Linear
from bochner.kernels.kernel import Columns, Kernel, Part

#: Averages over windows: the exponent p of the divisor s(x) = (number of windows)^p.
AVERAGES = {"mean": 1.0, "root": 0.5, "sum": 0.0}


@dataclass(frozen=True)
class Windows(Kernel):
    """A kernel of sequences: k(x, y) = Σ_i Σ_j kernel(x_i, y_j)/(s(x) s(y)), over all windows.

    This is a convolution kernel (Haussler 1999, *Convolution kernels on discrete structures*). A
    sequence of L steps has L − width + 1 windows. With windows of one step the order does not
    matter, and a sequence is a set, for example of the nodes of a graph.

    Parameters
    ----------
    kernel : Kernel
        Kernel of windows: rows of width · channels columns, step by step.
    width : int, default 1
        Number of steps of a window.
    channels : int, default 1
        Number of values per step.
    average : {"mean", "root", "sum"}, default "mean"
        s(x): the number of windows of x, its square root, or 1. With "mean" the norm does not grow
        with the length. With "sum" predictions are sums over windows, as an energy over atoms.
    lengths : bool, default False
        Whether sequences differ in length. If True, the first column of a row is the number of
        steps, and columns after these steps are ignored. :meth:`rows` creates such rows.

    Raises
    ------
    InvalidInput
        At evaluation, if rows do not have whole steps, or have fewer steps than a window.

    Notes
    -----
    A sequence shorter than a window has no windows, and its kernel values are 0. One value of k
    takes one evaluation of ``kernel`` per pair of windows; features take one per window.
    ``Normalised(Windows(...))`` is the cosine.

    Examples
    --------
    >>> from bochner.kernels import Gaussian, Windows
    >>> k = Windows(Gaussian(), width=2)
    >>> K = k([[0.0, 1.0, 2.0]], [[1.0, 2.0, 9.0]])  # windows (0, 1), (1, 2) and (1, 2), (2, 9)
    >>> round(float(K[0, 0]), 4)  # k' = 1 for (1, 2) with itself
    0.342
    """

    kernel: Part
    width: Counted = 1
    channels: Counted = 1
    average: Annotated[str, word(*AVERAGES)] = "mean"
    lengths: Switch = False

    @property
    def columns(self) -> int:
        """Number of columns of a window."""
        return self.width * self.channels

    def exact(self, d: int) -> int | None:
        return self.kernel.exact(self.columns)

    def count(self, n_columns: int) -> int:
        """Return the largest number of windows of a sequence in rows of ``n_columns`` columns."""
        steps, remainder = divmod(n_columns - self.lengths, self.channels)
        if remainder or steps < self.width:
            first = "one column for the number of steps and " if self.lengths else ""
            raise InvalidInput(
                f"Windows: rows must have {first}{self.channels} for each of {self.width} steps or "
                f"more; got {n_columns} columns. Pass arrays (n, steps, channels), or Windows.rows."
            )
        return steps - self.width + 1

    def start(self, i: Any) -> Any:
        """Return the first column of the window at position i."""
        return self.lengths + i * self.channels

    def positions(self, X: Rows) -> Iterator[tuple[Any, Array, Array]]:
        """Yield, for each position, the rows that have a window, these windows, and 1/s(x).

        For array libraries other than NumPy all rows are yielded, with zeros if without a window.
        """
        shares, n_windows = self._shares(X)
        for i in range(self.count(X.shape[1])):
            U = X[:, self.start(i) : self.start(i) + self.columns]
            if not self.lengths:
                U = np.ascontiguousarray(U) if isinstance(U, np.ndarray) else U
                yield slice(None), U, shares
            elif isinstance(U, np.ndarray):
                if len(rows := np.flatnonzero(n_windows > i)):
                    yield rows, U[rows], shares[rows]
            else:
                has = n_windows > i
                # Set the padding to zero, as it would shift the mean of the rows.
                windows = U if is_sparse(U) else _mask(has[:, None], U)
                yield slice(None), windows, _mask(has, shares)

    def sum_windows(self, X: Rows, function: Callable[[Array], Array]) -> Float[Array, "n D"]:
        """Return Σ_i f(x_i)/s(x) over the windows x_i of each row x; f is ``function``."""
        if not isinstance(X, np.ndarray):
            return sum(share[:, None] * function(U) for _, U, share in self.positions(X))
        parts = (self._stack(X[rows]) for rows in self._pieces(X))
        sums = [np.add.reduceat(s[:, None] * function(U), first, axis=0) for U, s, first in parts]
        return np.concatenate(sums)

    def _shares(self, X: Rows) -> tuple[Array, Any]:
        """Return 1/s(x), and the number of windows of each row, a scalar if all are equal."""
        count, power = self.count(X.shape[1]), AVERAGES[self.average]
        first = dense(X[:, :1])[:, 0]
        if not self.lengths:
            return 0.0 * first + count**-power, count
        xp = array_namespace(first)
        n_windows = xp.clip(xp.floor(first) - (self.width - 1), 0.0, float(count))
        return xp.where(n_windows > 0.0, n_windows, 0.0 * n_windows + 1.0) ** -power, n_windows

    def _pieces(self, X: Float[np.ndarray, "n d"]) -> list[slice]:
        """Return slices of the rows, each with at most 2,048 windows or one row."""
        return list(slices(max(1, X.shape[0]), max(1, 2048 // self.count(X.shape[1]))))

    def _stack(self, X: Float[np.ndarray, "n d"]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return (all windows, 1/s(x) of each, index of each row's first); zeros if x has none."""
        shares, n_windows = self._shares(X)
        counts = np.maximum(n_windows + 0 * shares, 1).astype(int)
        starts = np.cumsum(counts) - counts
        rows = np.repeat(np.arange(len(counts)), counts)
        first = self.start(np.arange(len(rows)) - starts[rows])
        per_window = np.where(n_windows > 0, shares, 0 * shares)[rows]
        U = X[rows[:, None], first[:, None] + np.arange(self.columns)]
        return np.where(per_window[:, None] > 0, U, 0 * U), per_window, starts

    def inputs(self, X: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "m e"]:
        """Return every j-th window as a row, at most 4,096 in total."""
        windows, shares, _ = self._stack(dense(X))
        U = windows[shares > 0]
        return U[:: max(1, -(-len(U) // 4096))]

    def evaluate(self, X: Rows, Y: Others) -> Pairs:
        is_same = Y is X and isinstance(X, np.ndarray)
        if is_same and len(self._pieces(X)) > 1:
            K = np.empty((len(X), len(X)), X.dtype)
            for rows in self._pieces(X):
                block, start = X[rows], slice(rows.start)
                K[rows, rows] = self.evaluate(block, block)
                K[rows, start] = self.evaluate(block, X[start])
                K[start, rows] = K[rows, start].T
            return K
        inner = lambda U, V: self.kernel.evaluate(U, U if is_same else V)
        return self.sum_windows(X, lambda U: self.sum_windows(Y, lambda V: inner(U, V).T).T)

    def diagonal(self, X: Rows) -> Float[Array, " n"]:
        if X.shape[0] == 0:
            return 0.0 * dense(X[:, :1])[:, 0]
        rows = (X[i : i + 1, :] for i in range(X.shape[0]))
        values = [self.evaluate(row, row)[0, :] for row in rows]
        return array_namespace(values[0]).concat(values, axis=0)

    def pullback(self, X: Rows, Y: Others, C: Pairs) -> Rows:
        def pull(rows: Any, U: Array, a: Array) -> Array:
            parts = ((V, a[:, None] * C[rows, :][:, j] * b) for j, V, b in self.positions(Y))
            return sum(self.kernel.pullback(U, V, part) for V, part in parts)

        return self.backward(X, pull)

    def backward(self, X: Rows, pull: Callable[[Any, Array, Array], Array]) -> Rows:
        """Return gradients in rows; ``pull`` returns gradients in windows of one position."""
        total = array_namespace(X).zeros_like(X)
        for i, (rows, U, share) in enumerate(self.positions(X)):
            total[rows, self.start(i) : self.start(i) + self.columns] += pull(rows, U, share)
        return total

    def rows(self, sequences: Any, steps: int | None = None) -> Float[np.ndarray, "n d"]:
        """Return sequences as rows that the kernel takes.

        Parameters
        ----------
        sequences : array (n, L, channels), or sequence of n arrays (L_i, channels)
            With one channel also (n, L), or n arrays (L_i,).
        steps : int, optional
            Largest length that the rows can store; only with ``lengths``. Default: the largest
            length of ``sequences``.

        Returns
        -------
        rows : (n, d)
            d = L · channels, or 1 + steps · channels with ``lengths``; zeros after the last step.

        Raises
        ------
        InvalidInput
            If an array is not of shape (L_i, channels), a sequence is longer than ``steps``, or
            lengths differ and ``lengths`` is False.
        """
        shape: tuple[int, ...] = getattr(sequences, "shape", ())
        if len(shape) == 3 and shape[2] == self.channels and not self.lengths:
            return array_namespace(sequences).reshape(sequences, (shape[0], shape[1] * shape[2]))
        parts = [self._steps(part, i) for i, part in enumerate(sequences)]
        if not parts:
            raise InvalidInput("Windows.rows: there must be one sequence or more; got none.")
        lengths = [len(part) for part in parts]
        length = max(lengths) if steps is None else integer(steps, "Windows.rows", "steps", 1)
        if not self.lengths and (min(lengths) < max(lengths) or length != lengths[0]):
            raise InvalidInput(
                f"Windows.rows: sequences must all have {length} steps; got {min(lengths)} to "
                f"{max(lengths)}. Pass Windows(..., lengths=True) where lengths differ."
            )
        if max(lengths) > length:
            raise InvalidInput(
                f"Windows.rows: there is room for {length} steps; got a sequence of "
                f"{max(lengths)}. Pass the largest length as steps= for the rows of the fit."
            )
        out = np.zeros((len(parts), self.lengths + length * self.channels), np.result_type(*parts))
        for row, part in zip(out, parts, strict=True):
            row[self.lengths : self.lengths + part.size] = part.ravel()
        if self.lengths:
            out[:, 0] = lengths
        return out

    def _steps(self, part: Any, i: int) -> Float[np.ndarray, "steps channels"]:
        """Return one sequence as an array of its steps."""
        A = np.asarray(part)
        A = A[:, None] if A.ndim == 1 and self.channels == 1 else A
        if A.ndim != 2 or A.shape[1] != self.channels or A.dtype.kind not in "fiub":
            raise InvalidInput(
                f"Windows.rows: a sequence must be numbers of shape (steps, {self.channels}); got "
                f"{A.dtype} of shape {A.shape} for sequence {i}. Set channels=; letters: one_hot."
            )
        return A if A.dtype == np.float32 else A.astype(np.float64)


def _mask(condition: Array, values: Array) -> Array:
    """Return ``values`` with zeros where ``condition`` is False."""
    return array_namespace(values).where(condition, values, 0.0 * values)


def sequences_of(kernel: object) -> Windows | None:
    """Return the first `Windows` in a kernel; None if there is none."""
    leaves = kernel.leaves(SAME_ROWS) if isinstance(kernel, Kernel) else ()
    return next((leaf for leaf, _ in leaves if isinstance(leaf, Windows)), None)


def window_count(kernel: object, n_columns: int) -> int:
    """Return the number of windows per row of ``n_columns`` columns; 1 for other kernels."""
    windows = sequences_of(kernel)
    return 1 if windows is None else windows.count(n_columns)


def as_rows(caller: str, X: Any, kernel: object, n_columns: int | None = None) -> Any:
    """Convert sequences to rows, of ``n_columns`` columns if given; return a table unchanged."""
    is_list = isinstance(X, list | tuple) or (isinstance(X, np.ndarray) and X.dtype.kind == "O")
    first = getattr(X[0], "ndim", 0) if is_list and len(X) else 0
    if getattr(X, "ndim", 0) != 3 and first not in (1, 2):
        return X
    windows = sequences_of(kernel)
    # Arrays of one dimension are sequences only where lengths may differ.
    if first == 1 and not (windows is not None and windows.lengths):
        return X
    if windows is None:
        raise InvalidInput(
            f"{caller}: X with three dimensions, or a list of arrays, holds sequences and requires "
            "a kernel of sequences, such as Windows(Gaussian(), width=9, channels=3); got "
            f"kernel={kernel!r}. Or pass a table: X.reshape(len(X), -1)."
        )
    lengths = n_columns is not None and windows.lengths
    return windows.rows(X, (n_columns - 1) // windows.channels if lengths else None)  # type: ignore[operator]


def one_hot(texts: Sequence[str], letters: str) -> list[Float[np.ndarray, "length letters"]]:
    """Return texts as sequences: one step per letter, one channel per letter of the alphabet.

    Parameters
    ----------
    texts : sequence of str
    letters : str
        The alphabet, each letter once. Letters outside the alphabet give zeros.

    Returns
    -------
    sequences : list of arrays (length, len(letters))

    Raises
    ------
    InvalidInput
        If ``texts`` is a string, or ``letters`` has a letter twice.

    Examples
    --------
    >>> from bochner.kernels import one_hot
    >>> one_hot(["AC"], "ACGT")[0].tolist()
    [[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]]
    """
    if isinstance(texts, str) or not all(isinstance(text, str) for text in texts):
        raise InvalidInput(
            f"one_hot: texts must be a sequence of strings; got {type(texts).__name__}. "
            "Pass [text] for a single text."
        )
    if not isinstance(letters, str) or not letters or len(set(letters)) < len(letters):
        raise InvalidInput(
            f"one_hot: letters must be a string of different letters; got {letters!r}."
        )
    alphabet = np.array(list(letters))
    return [(np.array(list(text), "U1")[:, None] == alphabet).astype(float) for text in texts]


def spectrum(width: int, n_letters: int, average: str = "sum") -> Windows:
    """Return the spectrum kernel of texts, which counts pairs of positions with equal words.

    k(x, y) = Σ_w c_w(x) c_w(y), c_w the number of occurrences of the word w of ``width`` letters
    in a text (Leslie, Eskin and Noble 2002, *The spectrum kernel*). Its features are these counts,
    n_letters^width in number: exact if ``n_features`` is large enough, otherwise sketched.

    Parameters
    ----------
    width : int
        Number of letters of a word.
    n_letters : int
        Number of letters of the alphabet: the channels of :func:`one_hot`.
    average : {"sum", "mean", "root"}, default "sum"
        As in :class:`Windows`; "mean" gives the relative frequencies of words.

    Examples
    --------
    >>> from bochner.kernels import one_hot, spectrum
    >>> k = spectrum(2, 4)
    >>> X = k.rows(one_hot(["ACAC", "CAC"], "ACGT"))
    >>> k(X).tolist()  # AC, CA, AC and CA, AC
    [[5.0, 3.0], [3.0, 2.0]]
    """
    width = integer(width, "spectrum", "width", minimum=1)
    n = integer(n_letters, "spectrum", "n_letters", minimum=1)
    places = (Columns(Linear(), tuple(range(n * i, n * i + n))) for i in range(width))
    product: Kernel = reduce(operator.mul, places)
    return Windows(product, width, n, average, lengths=True)
