"""Losses of regression by name, that of a one-class machine, and a user's own, checked."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bochner._core.checks import finite
from bochner._core.shapes import Array, Float
from bochner.errors import InvalidInput, InvalidType
from bochner.solvers.convex.loss import Loss
from bochner.solvers.convex.losses import Absolute, Gamma, Huber, Poisson, Quantile, Squared

#: Losses that a name stands for.
NAMES = ("squared", "absolute", "huber", "quantile", "poisson", "gamma")

#: Losses of the logarithm of the mean.
LOG_LINK = (Poisson, Gamma)


def by_name(loss: object, quantiles: Any = (0.1, 0.5, 0.9)) -> Loss:
    """Return a loss given by name, or as a value; "quantile" has a column for each level."""
    if isinstance(loss, Loss):
        if loss.joint:
            raise InvalidInput(
                f"loss must be one of numbers, elementwise; got {loss!r}, which is of classes. "
                "Take a classifier."
            )
        return loss
    plain = {"squared": Squared, "absolute": Absolute, "huber": Huber}
    plain |= {"poisson": Poisson, "gamma": Gamma}
    if loss == "quantile":
        return Quantile(as_levels(quantiles))
    if isinstance(loss, str) and loss in plain:
        return plain[loss]()
    raise InvalidInput(
        f"loss must be one of {', '.join(map(repr, NAMES))}, or a value such as Huber(0.5) or "
        f"CustomLoss(value, slope, curvature); got {loss!r}."
    )


def as_levels(levels: Any) -> tuple[float, ...]:
    """Return levels of quantiles, rising, each between 0 and 1."""
    given = tuple(finite(q, "quantiles", "a level") for q in np.atleast_1d(levels))
    rising = given == tuple(sorted(set(given)))
    if not given or not rising or not all(0 < q < 1 for q in given):
        raise InvalidInput(
            "quantiles must lie between 0 and 1, both excluded, and rise; got "
            f"{levels!r}. Pass, say, (0.1, 0.5, 0.9)."
        )
    return given


def huber_scale(
    r: Float[Array, "n t"], w: Float[Array, "n 1"], scales: float
) -> Float[Array, " t"]:
    """Return the σ at which Σ w min(r²/σ², scales²) = Σ w, the scale of HuberRegressor.

    By halving in the logarithm; zero where more than 1 − 1/scales² of the weight has no residual.
    """
    high = np.sqrt((w * r**2).sum(axis=0) / w.sum())
    low = 1e-9 * high
    for _ in range(60):
        middle = np.sqrt(low * high)
        inside = np.minimum(r / np.where(middle > 0, middle, 1.0), scales)
        many = (w * np.maximum(inside, -scales) ** 2).sum(axis=0) > w.sum()
        low, high = np.where(many, middle, low), np.where(many, high, middle)
    return np.sqrt(low * high)


def hubers(thresholds: Float[Array, " t"]) -> Huber:
    """Return Huber's loss of these thresholds, one number for a single target."""
    values = tuple(float(c) for c in thresholds)
    return Huber(values[0] if len(values) == 1 else values)


@dataclass(frozen=True)
class BelowZero(Loss):
    """max(0, −f), whatever y: what a row below zero costs a one-class machine.

    With a width δ, f²/2δ from zero down to −δ, and straight from there.
    """

    width: float = 0.0

    @property
    def kinked(self) -> bool:
        """Whether the slope jumps."""
        return self.width == 0

    def value(self, y: Float[Array, "n t"], f: Float[Array, "n t"]) -> Float[Array, "n t"]:
        """Return the loss."""
        q = self.slope(y, f)
        return q * f - self.width * q**2 / 2

    def slope(self, y: Float[Array, "n t"], f: Float[Array, "n t"]) -> Float[Array, "n t"]:  # noqa: ARG002
        """Return its derivative in f."""
        return -1.0 * (f < 0) if self.kinked else np.clip(f / self.width, -1.0, 0.0)

    def curvature(self, y: Float[Array, "n t"], f: Float[Array, "n t"]) -> Float[Array, "n t"]:  # noqa: ARG002
        """Return its second derivative in f."""
        if self.kinked:
            return np.zeros_like(f)
        return ((f < 0) & (f > -self.width)) / self.width

    def smooth(self, width: float) -> "BelowZero":
        """Return the loss whose slope takes ``width`` to change."""
        return BelowZero(width)


# --- a user's own --------------------------------------------------------------------------------

Elementwise = Callable[[Any, Any], Any]

#: Where a user's loss is tried: targets, and distances of predictions from them.
_TARGETS, _DISTANCES = (0.0, 0.5, 1.0, 3.0), (-3.0, -1.1, -0.3, 0.4, 0.9, 2.7)


@dataclass(frozen=True)
class CustomLoss(Loss):
    """A user's own convex and smooth loss, by three functions of (y, f) that work elementwise.

    Parameters
    ----------
    value, slope, curvature : callable
        The loss, and its first and second derivative in f. They get float64 arrays of one shape
        and return arrays of that shape.
    name : str, default "custom"
        What messages call it.
    points : (y, f), optional
        Arrays of one shape where the functions are tried, for a loss that serves only some
        targets; default: a few numbers between 0 and 3, and predictions about them.

    Raises
    ------
    InvalidInput
        If, where it is tried, the slope is not the derivative of the value, or the curvature not
        that of the slope (central differences, but for one point in four where it may jump), or
        the curvature is below zero.
    """

    value_of: Elementwise
    slope_of: Elementwise
    curvature_of: Elementwise
    name: str = "custom"
    points: tuple[Any, Any] | None = None

    def __post_init__(self) -> None:
        for function in (self.value_of, self.slope_of, self.curvature_of):
            if not callable(function):
                raise InvalidType(
                    "CustomLoss: value, slope and curvature must be functions of (y, f); got "
                    f"{function!r}."
                )
        _check_derivatives(self, *_trial(self.points))

    def value(self, y: Float[Array, "n t"], f: Float[Array, "n t"]) -> Float[Array, "n t"]:
        """Return the loss."""
        return self._asked(self.value_of, "value", y, f)

    def slope(self, y: Float[Array, "n t"], f: Float[Array, "n t"]) -> Float[Array, "n t"]:
        """Return its derivative in f."""
        return self._asked(self.slope_of, "slope", y, f)

    def curvature(self, y: Float[Array, "n t"], f: Float[Array, "n t"]) -> Float[Array, "n t"]:
        """Return its second derivative in f."""
        return self._asked(self.curvature_of, "curvature", y, f)

    def _asked(self, function: Elementwise, what: str, y: Array, f: Array) -> Array:
        y, f = np.broadcast_arrays(y, f)
        answer = np.asarray(function(y, f), dtype=np.float64)
        if answer.shape != f.shape:
            raise InvalidInput(
                f"CustomLoss {self.name!r}: {what} must return one number for each of y and f, "
                f"shape {f.shape}; got shape {answer.shape}."
            )
        return answer


def _trial(points: tuple[Any, Any] | None) -> tuple[Array, Array]:
    if points is not None:
        y, f = (np.asarray(a, np.float64).ravel() for a in points)
        return y, f
    y = np.repeat(_TARGETS, len(_DISTANCES))
    return y, y + np.tile(_DISTANCES, len(_TARGETS))


def _check_derivatives(loss: CustomLoss, y: Array, f: Array) -> None:
    """Compare slope and curvature with differences of value and slope."""
    who, h = f"CustomLoss {loss.name!r}", 1e-4 * (1 + np.abs(f))
    value, slope, curvature = (g(y, f) for g in (loss.value, loss.slope, loss.curvature))
    for what, numbers in (("value", value), ("slope", slope), ("curvature", curvature)):
        if not np.all(np.isfinite(numbers)):
            i = int(np.flatnonzero(~np.isfinite(numbers))[0])
            raise InvalidInput(
                f"{who}: {what} must be finite; got {numbers[i]} at y={y[i]:g}, f={f[i]:g}. If "
                "it serves only some targets, name them by points=(y, f)."
            )
    for below, above, known in (("value", "slope", slope), ("slope", "curvature", curvature)):
        function = getattr(loss, below)
        numeric = (function(y, f + h) - function(y, f - h)) / (2 * h)
        wrong = np.abs(numeric - known) > 1e-4 * (1 + np.abs(known) + np.abs(numeric))
        if wrong.mean() > 0.25:
            i = int(np.flatnonzero(wrong)[0])
            raise InvalidInput(
                f"{who}: {above} must be the derivative of {below} in f; at y={y[i]:g}, "
                f"f={f[i]:g} differences of {below} give {numeric[i]:.6g}, but {above} "
                f"{known[i]:.6g}. Correct one of the two."
            )
    if np.any(curvature < 0):
        i = int(np.argmin(curvature))
        raise InvalidInput(
            f"{who}: the loss must be convex, its curvature zero or above; got "
            f"{curvature[i]:.6g} at y={y[i]:g}, f={f[i]:g}. Choose a convex loss."
        )
