"""Methods: values that say how features are made; and requests: what a map is asked to be."""

from abc import ABC
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from typing import Any, ClassVar

import numpy as np

from bochner._core.names import NamedArguments
from bochner._core.random import stream
from bochner._core.shapes import Array
from bochner.errors import InvalidInput


class Method(NamedArguments, ABC):
    """How a kernel's features are made; :func:`bochner.draw` turns it and a kernel into a map.

    A frozen value; ``str`` leaves out what is at its default.

    See Also
    --------
    draw : Draw a map from a kernel and a method.
    Auto : Let the rows choose the method.

    Examples
    --------
    >>> import bochner as bo
    >>> method = bo.Fourier(bo.QMC())
    >>> isinstance(method, bo.Method)
    True
    >>> print(method)
    Fourier(placement=QMC())
    """

    def __str__(self) -> str:
        """Return the code that makes it, arguments at their defaults left out."""
        return _brief(self)

    #: Whether there are features, and not the kernel itself.
    has_features: ClassVar[bool] = True
    #: Numbers per feature that a map takes at least; by default a vector of all columns and one.
    numbers_each: int | None = None

    @property
    def granularity(self) -> int:
        """The number that the width of a map of this method is a multiple of."""
        return 1


def _brief(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"<array {value.shape}>"
    if not is_dataclass(value) or isinstance(value, type):
        return repr(value)
    words = []
    for field in fields(value):
        given = getattr(value, field.name)
        default = field.default if field.default_factory is MISSING else field.default_factory()
        if default is MISSING or not bool(given == default):
            words.append(f"{field.name}={_brief(given)}")
    return f"{type(value).__name__}({', '.join(words)})"


@dataclass(frozen=True, eq=False)
class Request:
    """What a map is asked to be, and the random streams of its parts."""

    n_inputs: int  # d
    n_features: int  # D
    seed: int
    path: tuple[str, ...] = ()  # of the part of the kernel that is drawn
    X: Array | None = None  # rows of data, if there are any

    def stream(self, purpose: str) -> np.random.Generator:
        """Return the generator of this part of the kernel."""
        return stream(self.seed, "draw", *self.path, purpose)

    def part(self, name: str, n_features: int) -> "Request":
        """Return the request for a part of the kernel: its own width and stream."""
        return replace(self, n_features=n_features, path=(*self.path, name))

    def rows(self, who: str, what: str) -> Array:
        """Return the rows, or say what the method takes from them."""
        if self.X is None or self.X.shape[0] == 0:
            raise InvalidInput(f"draw: {who} takes {what} from rows of data; got none. Pass X=...")
        return self.X
