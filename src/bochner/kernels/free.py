"""Free numbers of kernels: a fit finds them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from bochner._core.checks import MaybePositive, nonnegative, numbers, positive
from bochner._core.names import NamedArguments
from bochner.errors import InvalidInput

Check = Callable[[Any, str, str], Any]


@dataclass(frozen=True)
class Free(NamedArguments):
    """A number of a kernel that a fit finds; ``"auto"`` is short for ``Free()``.

    Kernels that have one are specs: estimators find their numbers, and keep the kernel with these
    as ``kernel_``. All other numbers stay as they are given. Each term of a sum without a weight
    is given one, which is found too.

    Parameters
    ----------
    start : float, optional
        Positive. Where the search starts, beside what the rows suggest.
    low, high : float, optional
        Positive. Bounds of the number; default what the rows suggest.

    Examples
    --------
    >>> from bochner.kernels import Free, Gaussian, Linear
    >>> Gaussian("auto") + Gaussian(Free(start=50.0)) * Linear()
    Gaussian(lengthscale='auto') + Gaussian(lengthscale=Free(start=50.0)) * Linear()
    """

    start: MaybePositive = None
    low: MaybePositive = None
    high: MaybePositive = None

    def __post_init__(self) -> None:
        super().__post_init__()
        given = [value for value in (self.low, self.start, self.high) if value is not None]
        if sorted(given) != given or (self.low is not None and self.low == self.high):
            raise InvalidInput(
                "Free: low ≤ start ≤ high and low < high are required; got "
                f"low={self.low}, start={self.start}, high={self.high}."
            )

    def __repr__(self) -> str:
        named = (("start", self.start), ("low", self.low), ("high", self.high))
        given = [f"{name}={value}" for name, value in named if value is not None]
        return f"Free({', '.join(given)})" if given else "'auto'"


def free_or(check: Check) -> Check:
    """Return the check of a number, or of one per column; each may be free."""

    def checked(value: Any, who: str, name: str) -> Any:
        if isinstance(value, list | tuple) and any(map(_is_free, value)):
            return tuple(_one(item, check, who, f"{name}[{j}]") for j, item in enumerate(value))
        return _one(value, check, who, name)

    return checked


#: The mark of a field that a fit may find.
TUNED = "tuned"

TunedPositive = Annotated[float, free_or(positive), TUNED]
TunedNonnegative = Annotated[float, free_or(nonnegative), TUNED]
#: A number for all columns, or one per column.
TunedNumbers = Annotated[float | tuple[float, ...], free_or(numbers), TUNED]


def _one(value: Any, check: Check, who: str, name: str) -> Any:
    if not _is_free(value):
        return check(value, who, name)
    return value if isinstance(value, Free) else Free()


def _is_free(value: object) -> bool:
    return isinstance(value, Free) or (isinstance(value, str) and value == "auto")
