"""Error messages for rows in memory: scikit-learn's messages with a remedy."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from bochner.errors import InvalidInput, InvalidType


@contextmanager
def in_one_sentence(who: str, X: Any) -> Iterator[None]:
    """Reword scikit-learn's errors about X: caller, requirement, given value, remedy."""
    try:
        yield
    except InvalidInput:
        raise
    except ValueError as error:
        said = _sentence(str(error), X)
        if said is None:
            raise
        raise InvalidInput(f"{who}: {said}") from error


def refuse_no_numbers(who: str, y: Any) -> None:
    """Refuse targets that are text, dates or spans of time."""
    if y is None or getattr(y, "dtype", None) in (np.float64, np.float32):
        return
    try:
        given = np.asarray(y)
    except ValueError:  # rows of several lengths, which scikit-learn refuses
        return
    if given.dtype.kind in "mM":
        first = "Subtract the first date, then divide" if given.dtype.kind == "M" else "Divide y"
        raise InvalidType(
            f"{who}: y must hold real numbers; got dtype {given.dtype}. {first} by a unit, such as "
            "np.timedelta64(1, 's')."
        )
    text = _text_among(given)
    if text is not None:
        remedy = (
            "A regressor takes numbers, a classifier takes labels, such as KernelRidgeClassifier."
        )
        if is_number(text.replace(",", ".")):
            remedy = "Read them as numbers, as pandas.read_csv does with decimal=','."
        raise InvalidType(f"{who}: y must hold real numbers; got text, such as {text!r}. {remedy}")


def _text_among(given: np.ndarray) -> str | None:
    """Return the first text that is no number; text that NumPy keeps as such counts at once."""
    if given.dtype.kind in "US" and given.size:
        return str(given.flat[0])
    for cell in given.flat if given.dtype.kind == "O" else ():
        if isinstance(cell, str) and not is_number(cell):
            return cell
    return None


def is_number(label: object) -> bool:
    """Whether it is a number, or text that says one."""
    try:
        float(label)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False
    return True


INFINITE = (
    "X must hold finite numbers, or NaN where one is missing; got infinity. Drop these rows, or "
    "replace such cells by NaN."
)


def _sentence(text: str, X: Any) -> str | None:
    """Return the sentence; None where the one of scikit-learn says all."""
    if isinstance(X, str):
        return f"X must be rows; got the text {X!r}. Read a file by fit_blocks(Blocks.from_files)."
    said = {
        "could not convert string": lambda: (
            f"X must hold numbers; got text ({text}). Pass a table, such as a pandas or polars "
            "DataFrame: its columns of text are encoded."
        ),
        "Expected 2D array": lambda: (
            f"X must have two dimensions, rows and at least one column; got shape {np.shape(X)}. "
            "Reshape your data: X.reshape(-1, 1) if it is one column, X.reshape(1, -1) if one row."
        ),
        "setting an array element": lambda: (
            "X must have rows of equal length; got several lengths."
        ),
        "Input X contains": lambda: INFINITE,
        "Input contains infinity": lambda: INFINITE,
        "Input contains": lambda: (
            "y must have no missing labels; got NaN. Drop such rows, or give them a label of their "
            "own."
        ),
        "Input y contains": lambda: (
            f"y must hold finite numbers; got {_not_finite(text)}. Leave out the rows whose target "
            "is not known."
        ),
    }
    return next((say() for start, say in said.items() if text.startswith(start)), None)


def _not_finite(text: str) -> str:
    return "NaN" if "NaN" in text else "infinity"
