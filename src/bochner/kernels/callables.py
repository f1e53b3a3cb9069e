"""Functions that a user hands over: checked when handed, and each time they answer."""

from collections.abc import Callable
from typing import Any

from bochner._core.arrays import array_namespace, dense, to_numpy
from bochner._core.shapes import Array, Float
from bochner.errors import InvalidInput, InvalidType


def require_function(value: object, who: str, name: str) -> None:
    """Refuse what cannot be called."""
    if not callable(value):
        raise InvalidType(
            f"{who}: {name} must be a function of rows; got {value!r} of type "
            f"{type(value).__name__}. Pass a function that takes an array (n, d)."
        )


def name_of(function: Callable[..., Any] | None) -> str:
    """Return a function as it stands in code: its name where it has one."""
    return getattr(function, "__qualname__", None) or repr(function)


def answer(result: Any, shape: tuple[int | None, ...], like: Array, who: str) -> Float[Array, ...]:
    """Return what a user's function gave, in the precision of the rows it was given.

    Parameters
    ----------
    result : array
    shape : tuple of int or None
        What it must have; None stands for any number.
    like : array or sparse matrix
        The rows.
    """
    result = dense(result)
    got = tuple(getattr(result, "shape", ()))
    if len(got) != len(shape) or any(s not in (None, g) for s, g in zip(shape, got, strict=True)):
        wanted = ", ".join("any" if s is None else str(s) for s in shape)
        raise InvalidInput(
            f"{who}: the function must return an array of shape ({wanted}{',' * (len(shape) == 1)})"
            f" for {like.shape[0]} rows; got {got or type(result).__name__}."
        )
    xp = array_namespace(result)
    result = xp.astype(result, _dtype(xp, like), copy=False)
    if not bool(xp.all(xp.isfinite(result))):
        bad = int((~_finite(result)).sum())
        raise InvalidInput(
            f"{who}: the function must return finite numbers; got {bad} NaN or infinite of "
            f"{_size(got)}."
        )
    return result


def _dtype(xp: Any, like: Array) -> Any:
    return getattr(xp, str(like.dtype).rpartition(".")[2])


def _finite(result: Array) -> Any:
    values = to_numpy(result)
    return values - values == 0


def _size(shape: tuple[int, ...]) -> int:
    total = 1
    for length in shape:
        total *= length
    return total
