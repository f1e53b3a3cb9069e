"""Dataclasses with hyperparameters that a fit may choose, addressed by path."""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Annotated, Any, ClassVar, Self

import numpy as np

from bochner._core.checks import Check, MaybePositive, nonnegative, positive, sequence_of, unpack
from bochner._core.names import NamedArguments, replacement
from bochner._core.shapes import Array
from bochner.errors import InvalidInput

#: Annotation of a field that a fit may choose.
TUNED = "tuned"


class Value(NamedArguments):
    """A dataclass whose nested fields have paths, such as ``left__lengthscale``."""

    #: Names of the fields that a fit may choose: numbers, or tuples of numbers. Default: the
    #: fields with an annotation such as :data:`TunedPositive`.
    tunable: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        annotations = vars(cls).get("__annotations__", {})
        names = tuple(
            k for k, kind in annotations.items() if TUNED in getattr(kind, "__metadata__", ())
        )
        cls.tunable = names or cls.tunable

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the fields by name; with ``deep`` also the fields of its parts, by path."""
        params: dict[str, Any] = {}
        for f in fields(self) if is_dataclass(self) else list[Any]():
            params[f.name] = part = getattr(self, f.name)
            if deep and isinstance(part, Value):
                params |= {f"{f.name}__{path}": v for path, v in part.get_params().items()}
        return params

    def replace(self, **changes: Any) -> Self:
        """Return a copy with other values, by path: ``k.replace(left__lengthscale=0.7)``."""
        params, nested = self.get_params(deep=False), dict[str, dict[str, Any]]()
        direct = {path: new for path, new in changes.items() if "__" not in path}
        for path, new in changes.items():
            name, _, subpath = path.partition("__")
            part = direct.get(name, params.get(name))
            if name not in params or (subpath and not isinstance(part, Value)):
                names = ", ".join(self.get_params()) or "none: it has no parameters"
                right = replacement(type(self).__name__, name, tuple(params))
                advice = f"; its parameters are: {names}." if right is None else f": give {right}."
                raise InvalidInput(f"{type(self).__name__} has no parameter {path!r}{advice}")
            if subpath:
                nested.setdefault(name, {})[subpath] = new
        result: Any = replace(self, **direct) if direct else self  # type: ignore[type-var]
        for name, values in nested.items():
            result = replace(result, **{name: getattr(result, name).replace(**values)})
        return result


@dataclass(frozen=True)
class Free(Value):
    """A number of a kernel that a fit chooses; ``"auto"`` is short for ``Free()``.

    Estimators choose the free hyperparameters of a kernel and store the result as ``kernel_``.
    Hyperparameters that are not free do not change. Each term of a sum without a weight
    gets a weight, which is chosen as well.

    Parameters
    ----------
    start : float, optional
        Positive. An additional start of the search. Default: only starts derived from the rows.
    low, high : float, optional
        Positive. Bounds of the number. Default: derived from the rows.

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
        bounds = [value for value in (self.low, self.start, self.high) if value is not None]
        if sorted(bounds) != bounds or (self.low is not None and self.low == self.high):
            raise InvalidInput(
                "Free: low ≤ start ≤ high and low < high are required; got "
                f"low={self.low}, start={self.start}, high={self.high}."
            )

    def __repr__(self) -> str:
        pairs = (("start", self.start), ("low", self.low), ("high", self.high))
        fields = [f"{name}={value}" for name, value in pairs if value is not None]
        return f"Free({', '.join(fields)})" if fields else "'auto'"


def free_or(check: Check, per_column: bool = False) -> Check:
    """Return a check that also accepts "auto", `Free`, and with ``per_column`` several numbers."""
    check_items = sequence_of(check)

    def check_value(value: Any, caller: str, name: str) -> Any:
        if isinstance(value, list | tuple) and any(isinstance(v, Free | str) for v in value):
            return tuple(check_value(item, caller, f"{name}[{j}]") for j, item in enumerate(value))
        if isinstance(value, str) and value == "auto":
            return Free()
        if per_column and isinstance(value := unpack(value), list | tuple):
            return check_items(value, caller, name)
        return value if isinstance(value, Free) else check(value, caller, name)

    return check_value


TunedPositive = Annotated[float, free_or(positive), TUNED]
TunedNonnegative = Annotated[float, free_or(nonnegative), TUNED]
#: A number for all columns, or one per column.
TunedNumbers = Annotated[float | tuple[float, ...], free_or(positive, per_column=True), TUNED]


@dataclass(frozen=True)
class Place:
    """Path of a hyperparameter as in :meth:`Kernel.get_params`, and its column if it has one."""

    path: str
    column: int | None = None

    @property
    def name(self) -> str:
        """Name of the field: the last part of the path."""
        return self.path.rpartition("__")[2]

    def with_prefix(self, part: str) -> "Place":
        """Return the place with ``part__`` before its path: its path in the parent kernel."""
        return Place(f"{part}__{self.path}", self.column)

    def get(self, kernel: Value) -> Any:
        """Return the value at this place."""
        value = kernel.get_params()[self.path]
        return value if self.column is None else value[self.column]


def places_of(kernel: Value) -> list[Place]:
    """Return the places of all numbers that a fit could choose, from left to right."""
    places: list[Place] = []
    params = kernel.get_params()
    for path, value in params.items():
        owner, _, name = path.rpartition("__")
        if name in getattr(params.get(owner, kernel), "tunable", ()):
            items = enumerate(value) if isinstance(value, tuple) else [(None, value)]
            places += [Place(path, j) for j, item in items if not isinstance(item, tuple)]
    return places


def free_places(kernel: Value) -> list[Place]:
    """Return the places of the numbers that are free."""
    return [place for place in places_of(kernel) if isinstance(place.get(kernel), Free)]


def replace_values(kernel: Any, values: dict[Place, Any]) -> Any:
    """Return the kernel with the numbers at these places replaced."""
    changes: dict[str, Any] = {}
    for place, value in values.items():
        if place.column is None:
            changes[place.path] = value
        else:
            row = changes.setdefault(place.path, list(kernel.get_params()[place.path]))
            row[place.column] = value
    return kernel.replace(**changes)


def differences(
    kernel: Any, X: Array, C: Array, needs: Callable[[Place], bool], slopes: dict[Place, float]
) -> dict[Place, float]:
    """Return ``slopes`` and, for other θ that need it, Σ C ∘ ∂K/∂log θ by central differences."""
    K = lambda p, h: replace_values(kernel, {p: p.get(kernel) * math.exp(h)}).evaluate(X, X)
    places, h = (p for p in places_of(kernel) if needs(p) and p not in slopes), 1e-4
    slope = lambda p: float(np.vdot(C, K(p, h) - K(p, -h))) / (2 * h)
    return slopes | {p: slope(p) for p in places}
