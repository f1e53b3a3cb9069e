"""Sequences and texts as rows, for learners that are given some, and the kernel of their words."""

import operator
from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

from bochner._core.checks import integer
from bochner._core.shapes import Float
from bochner.errors import InvalidInput
from bochner.kernels.algebra import Columns, Transformed
from bochner.kernels.dotproduct import Linear
from bochner.kernels.kernel import Kernel
from bochner.kernels.windows import Windows


def sequences_of(kernel: object) -> Windows | None:
    """Return the kernel of sequences within a kernel; None if its rows are not sequences."""
    if isinstance(kernel, Windows):
        return kernel
    if not isinstance(kernel, Kernel) or isinstance(kernel, Transformed):
        return None
    found = map(sequences_of, kernel.get_params(deep=False).values())
    return next((part for part in found if part is not None), None)


def windows_of(kernel: object, n_columns: int) -> int:
    """Return the number of windows per row of ``n_columns``; 1 for kernels of rows."""
    windows = sequences_of(kernel)
    return 1 if windows is None else windows.count(n_columns)


def as_rows(who: str, X: Any, kernel: object, n_columns: int | None = None) -> Any:
    """Return sequences as rows of ``n_columns`` columns, if given; other X unchanged.

    Sequences are an array of three dimensions, or a list of arrays that have two.
    """
    windows = sequences_of(kernel)
    if not _are_sequences(X, windows):
        return X
    if windows is None:
        raise InvalidInput(
            f"{who}: X with three dimensions, or a list of arrays, holds sequences, and requires a "
            "kernel of sequences, such as Windows(Gaussian(), width=9, channels=3); got "
            f"kernel={kernel!r}. Or pass a table, as X.reshape(len(X), -1)."
        )
    known = n_columns is not None and windows.lengths
    return windows.rows(X, (n_columns - 1) // windows.channels if known else None)  # type: ignore[operator]


def _are_sequences(X: Any, windows: Windows | None) -> bool:
    """Whether these are sequences: arrays of one dimension only where lengths may differ."""
    if getattr(X, "ndim", 0) == 3:
        return True
    several = isinstance(X, list | tuple) or (isinstance(X, np.ndarray) and X.dtype.kind == "O")
    first = getattr(X[0], "ndim", 0) if several and len(X) else 0
    return first == 2 or (first == 1 and windows is not None and windows.lengths)


def one_hot(texts: Sequence[str], letters: str) -> list[Float[np.ndarray, "length letters"]]:
    """Return texts as sequences: a step for each letter, a channel for each letter there is.

    Parameters
    ----------
    texts : sequence of str
    letters : str
        The alphabet, each letter once. Steps of letters that are not in it are zero.

    Returns
    -------
    sequences : list of arrays (length, len(letters))

    Raises
    ------
    InvalidInput
        If the texts are one text, or a letter is there twice.

    Examples
    --------
    >>> from bochner.kernels import one_hot
    >>> one_hot(["AC"], "ACGT")[0].tolist()
    [[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]]
    """
    if isinstance(texts, str) or not all(isinstance(text, str) for text in texts):
        raise InvalidInput(
            f"one_hot: texts must be a sequence of strings; got {type(texts).__name__}. "
            "Pass [text] if it is one."
        )
    if not isinstance(letters, str) or not letters or len(set(letters)) < len(letters):
        raise InvalidInput(
            f"one_hot: letters must be a string of different letters; got {letters!r}."
        )
    alphabet = np.array(list(letters))
    return [(np.array(list(text), "U1")[:, None] == alphabet).astype(float) for text in texts]


def spectrum(width: int, n_letters: int, average: str = "sum") -> Windows:
    """Return the spectrum kernel of texts: in how many pairs of places both have the same letters.

    k(x, y) = Σ_w c_w(x) c_w(y), c_w the number of times that a text holds the word w of ``width``
    letters (Leslie, Eskin and Noble 2002, *The spectrum kernel*). Its features are these counts,
    n_letters^width of them, exact where there is room, and else sketched.

    Parameters
    ----------
    width : int
        Letters of a word.
    n_letters : int
        Of the alphabet: channels of :func:`one_hot`.
    average : {"sum", "mean", "root"}, default "sum"
        As in :class:`Windows`: "mean" counts shares of all words.

    Examples
    --------
    >>> from bochner.kernels import one_hot, spectrum
    >>> k = spectrum(2, 4)
    >>> X = k.rows(one_hot(["ACAC", "CAC"], "ACGT"))
    >>> k(X).tolist()  # AC, CA, AC and CA, AC
    [[5.0, 3.0], [3.0, 2.0]]
    """
    width = integer(width, "spectrum", "width", least=1)
    n = integer(n_letters, "spectrum", "n_letters", least=1)
    places = (Columns(Linear(), tuple(range(n * i, n * i + n))) for i in range(width))
    same: Kernel = reduce(operator.mul, places)
    return Windows(same, width, n, average, lengths=True)
