"""Losses of a user: of each number, or of several outputs together."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bochner._core.shapes import Array, Float
from bochner.errors import InvalidInput, InvalidType
from bochner.solvers.convex.losses import Loss

OfPrediction = Callable[[Any, Any], Any]  # A function of (y, f)

#: Targets where losses are tried, of each number and of two outputs.
_TARGETS = np.repeat((0.0, 0.5, 1.0, 3.0), 6)
_GRID = np.linspace(-1.5, 1.5, 32).reshape(16, 2)


class UserLoss(Loss):
    """A loss given by functions; derivatives are compared with finite differences."""

    value_of: OfPrediction
    slope_of: OfPrediction
    name: str
    points: tuple[Any, Any] | None
    #: Name of the second derivative, and the share of points where derivatives may jump.
    second: ClassVar[str]
    jumps: ClassVar[float]
    #: Targets and predictions where the functions are tried unless points are given.
    trial: ClassVar[tuple[Array, Array]]

    def __post_init__(self) -> None:
        for function in (self.value_of, self.slope_of, getattr(self, f"{self.second}_of")):
            if not callable(function):
                raise InvalidType(
                    f"{type(self).__name__}: value, slope and {self.second} must be functions of "
                    f"(y, f); got {function!r}."
                )
        given = self.trial if self.points is None else self.points
        y, f = (np.asarray(a, np.float64) for a in given)
        self._check(*((y, f) if self.joint else (y.reshape(-1, 1), f.reshape(-1, 1))))

    def _asked(self, function: OfPrediction, what: str, y: Array, f: Array, shape: Any) -> Array:
        answer = np.asarray(function(*np.broadcast_arrays(y, f)), dtype=np.float64)
        if answer.shape != shape:
            each = "" if self.joint else "one number for each of y and f, "
            raise InvalidInput(
                f"{self._who}: {what} must return {each}shape {shape} for y and f of shape "
                f"{f.shape}; got shape {answer.shape}."
            )
        return answer

    def slope(self, y: Array, f: Array) -> Array:
        return self._asked(self.slope_of, "slope", y, f, f.shape)

    @property
    def _who(self) -> str:
        return f"{type(self).__name__} {self.name!r}"

    def _check(self, y: Float[Array, "m t"], f: Float[Array, "m t"]) -> None:
        """Compare slopes and second derivatives with differences of values and slopes."""
        m, t = f.shape
        value, slope = self.value(y, f), self.slope(y, f)
        hessian = self.curvature(y, f).reshape(m, t, t)
        for what, numbers in (("value", value), ("slope", slope), (self.second, hessian)):
            rows = np.flatnonzero(~np.isfinite(numbers.reshape(m, -1)).all(axis=1))
            if len(rows):
                raise InvalidInput(
                    f"{self._who}: {what} must be finite; got {numbers[rows[0]].ravel()} at "
                    f"y={y[rows[0]]}, f={f[rows[0]]}. If it serves only some targets, name them by "
                    "points=(y, f)."
                )
        h = 1e-4 * (1 + np.abs(f).max(axis=1, keepdims=True))
        ends = [(f + h * e, f - h * e) for e in np.eye(t)]
        values = [(self.value(y, a) - self.value(y, b))[:, 0] / (2 * h[:, 0]) for a, b in ends]
        slopes = [(self.slope(y, a) - self.slope(y, b)) / (2 * h) for a, b in ends]
        pairs = (
            ("value", "slope", np.stack(values, axis=1), slope),
            ("slope", self.second, np.stack(slopes, axis=2), hessian),
        )
        for below, above, numeric, known in pairs:
            off = np.abs(numeric - known)
            wrong = off > 1e-4 * (1 + np.abs(known) + np.abs(numeric))
            if wrong.mean() > self.jumps:
                i = int(np.flatnonzero(wrong.reshape(m, -1).any(axis=1))[0])
                raise InvalidInput(
                    f"{self._who}: {above} must be the derivative of {below} in f; at y={y[i]}, "
                    f"f={f[i]} differences of {below} are {off[i].max():.3g} from it. Correct one "
                    "of the two, or say by points=(y, f) where it serves."
                )
        least = np.linalg.eigvalsh((hessian + hessian.transpose(0, 2, 1)) / 2)[:, 0]
        i = int(np.argmin(least))
        if least[i] < -1e-8:
            raise InvalidInput(
                f"{self._who}: the loss must be convex, its {self.second} zero or above; got "
                f"{least[i]:.6g} at y={y[i]}, f={f[i]}. Choose a convex loss."
            )


@dataclass(frozen=True)
class CustomLoss(UserLoss):
    """A user's own convex and smooth loss, by three functions of (y, f) that work elementwise.

    Parameters
    ----------
    value, slope, curvature : callable
        The loss, and its first and second derivative in f. They get float64 arrays of one shape
        and return arrays of that shape.
    name : str, default "custom"
        Name in messages.
    points : (y, f), optional
        Arrays of one shape where the functions are tried, for a loss that serves only some
        targets; default: a few numbers between 0 and 3, and predictions about them.

    Raises
    ------
    InvalidInput
        If, where it is tried, the slope is not the derivative of the value, or the curvature not
        the derivative of the slope (central differences, but for one point in four where it may
        jump), or the curvature is below zero.

    See Also
    --------
    Huber : A loss for outliers.
    JointLoss : Losses of several predictions per row.

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> loss = bo.CustomLoss(
    ...     lambda y, f: np.log(np.cosh(f - y)),
    ...     lambda y, f: np.tanh(f - y),
    ...     lambda y, f: 1 / np.cosh(f - y) ** 2,
    ...     name="log-cosh",
    ... )
    >>> x = np.linspace(-1, 1, 50)[:, None]
    >>> model = bo.KernelRegressor(loss=loss, random_state=0).fit(x, x[:, 0])
    >>> model.predict(x).shape
    (50,)
    """

    value_of: OfPrediction
    slope_of: OfPrediction
    curvature_of: OfPrediction
    name: str = "custom"
    points: tuple[Any, Any] | None = None

    second = "curvature"
    jumps = 0.25
    trial = (_TARGETS, _TARGETS + np.tile((-3.0, -1.1, -0.3, 0.4, 0.9, 2.7), 4))

    def value(self, y: Float[Array, "n t"], f: Float[Array, "n t"]) -> Float[Array, "n t"]:
        return self._asked(self.value_of, "value", y, f, f.shape)

    def curvature(self, y: Float[Array, "n t"], f: Float[Array, "n t"]) -> Float[Array, "n t"]:
        return self._asked(self.curvature_of, "curvature", y, f, f.shape)


@dataclass(frozen=True)
class JointLoss(UserLoss):
    """A user's own convex and smooth loss of several outputs together.

    Parameters
    ----------
    value, slope, hessian : callable
        Of (y, f), float64 arrays (n, t): the loss of each row, (n,), its derivatives in f, (n, t),
        and its second derivatives, (n, t, t), symmetric and positive semi-definite.
    name : str, default "custom"
        Name in messages.
    points : (y, f), optional
        Arrays (n, t) where the functions are tried; default: 16 rows of two columns.

    Raises
    ------
    InvalidInput
        If, where it is tried, shapes are not these, slopes not the derivatives of the value, the
        Hessian not the derivative of the slopes (central differences), or it has an eigenvalue
        below zero.

    Examples
    --------
    >>> from bochner import JointLoss
    >>> import numpy as np
    >>> distance = JointLoss(  # of points in the plane, rounded at zero: √(1 + |y − f|²)
    ...     lambda y, f: np.sqrt(1 + ((f - y) ** 2).sum(1)),
    ...     lambda y, f: (f - y) / np.sqrt(1 + ((f - y) ** 2).sum(1))[:, None],
    ...     lambda y, f: (lambda r, s: np.eye(y.shape[1]) / s[:, None, None]
    ...                   - r[:, :, None] * r[:, None, :] / s[:, None, None] ** 3)(
    ...         f - y, np.sqrt(1 + ((f - y) ** 2).sum(1))),
    ... )
    """

    value_of: OfPrediction
    slope_of: OfPrediction
    hessian_of: OfPrediction
    name: str = "custom"
    points: tuple[Any, Any] | None = None

    joint = True
    second = "hessian"
    jumps = 0.0
    trial = (np.abs(_GRID[::-1]), np.abs(_GRID[::-1]) + _GRID)

    def centred(self, fitted: Array) -> Array:
        """Return numbers as they are: more than their differences matter."""
        return fitted

    def value(self, y: Array, f: Array) -> Array:
        """Return the loss of each row, (n, 1)."""
        return self._asked(self.value_of, "value", y, f, (len(f),))[:, None]

    def curvature(self, y: Array, f: Array) -> Array:
        """Return the Hessians, each in one row."""
        shape = (*f.shape, f.shape[1])
        return self._asked(self.hessian_of, "hessian", y, f, shape).reshape(len(f), -1)

    def hessian_product(self, state: Array, V: Array) -> Array:
        t = V.shape[1]
        return np.einsum("nij,nj->ni", state.reshape(len(V), t, t), V)

    def diagonal(self, state: Array) -> Array:
        t = round(state.shape[1] ** 0.5)
        return state[:, :: t + 1]
