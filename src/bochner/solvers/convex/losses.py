"""Convex losses ℓ(y, f): value, slope and curvature in f, and smooth approximations.

Arrays y and f are (n, t) float64, one problem per column
(:func:`bochner.solvers.convex.newton.minimise`). A new loss is a class with ``value``, ``slope``
and ``curvature``.

The slope of a nonsmooth loss (``nonsmooth``) jumps. ``smooth(width)`` returns the smooth loss
ℓ_δ(y, f) = max_q q·m − ℓ*(q) − δ q²/2 of Nesterov (2005). It is at most ℓ, so the minimum of
Σ w ℓ_δ bounds the minimum of Σ w ℓ from below.

A joint loss (``joint``) has one value per row, (n, 1). Its ``curvature`` returns a state, from
which ``hessian_product(state, V)`` multiplies each row's Hessian by the row of V, and
``diagonal(state)`` returns diagonals. ``at`` returns the loss of some columns, as for ``Quantile``.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from scipy.special import expit, logsumexp, softmax, xlogy

from bochner._core.checks import finite
from bochner._core.names import suggestion
from bochner._core.shapes import Array, Float
from bochner.errors import InvalidInput, InvalidType


class Loss(ABC):
    """A convex loss of the prediction f, for the target y."""

    #: Whether the loss has one value per row, for all columns together.
    joint: ClassVar[bool] = False
    #: p, if ℓ(y/s, f/s) = s⁻ᵖ ℓ(y, f) for every unit s; else 0.
    degree: ClassVar[int] = 0
    #: Name of the parameter (one number, or one per column), and whether it has the units of y.
    parameter: ClassVar[str] = ""
    in_units_of_y: ClassVar[bool] = True
    #: Width over which a slope changes; 0 where it jumps, None if the loss is smooth by itself.
    width: float | None = None

    @property
    def nonsmooth(self) -> bool:
        """Whether the slope jumps, so that algorithms use ``smooth``."""
        return self.width == 0

    @property
    def has_inactive_rows(self) -> bool:
        """Whether the slope is zero wherever the curvature is, as for the squared hinge loss."""
        return self.width is None and isinstance(self, MarginLoss)

    @abstractmethod
    def value(self, y: Float[Array, "n t"], f: Float[Array, "n t"]) -> Float[Array, "n t"]:
        """Return ℓ(y, f)."""

    @abstractmethod
    def slope(self, y: Float[Array, "n t"], f: Float[Array, "n t"]) -> Float[Array, "n t"]:
        """Return ∂ℓ/∂f; where it jumps, one of the slopes between both sides."""

    @abstractmethod
    def curvature(self, y: Float[Array, "n t"], f: Float[Array, "n t"]) -> Float[Array, "n t"]:
        """Return ∂²ℓ/∂f²; zero where the slope jumps."""

    def hessian_product(
        self, state: Float[Array, "n t"], V: Float[Array, "n t"]
    ) -> Float[Array, "n t"]:
        """Return the Hessian of each row times the row of V; ``state`` is from ``curvature``."""
        return state * V

    def diagonal(self, state: Float[Array, "n t"]) -> Float[Array, "n t"]:
        """Return the diagonals of the rows' Hessians."""
        return state

    def smooth(self, width: float) -> "Loss":
        """Return the loss with the jumps of its slope smoothed over ``width``."""
        return replace(self, width=width)  # type: ignore[type-var]

    def in_units(self, units: Float[Array, " t"]) -> "Loss":
        """Return the loss for y divided by ``units``, one per column."""
        if not (self.parameter and self.in_units_of_y):
            return self
        return self.of(np.asarray(getattr(self, self.parameter)) / units)

    def centred(self, fitted: Float[Array, "*n t"]) -> Float[Array, "*n t"]:
        """Return ``fitted``, for a joint loss centred over columns: only differences matter."""
        return fitted - fitted.mean(axis=-1, keepdims=True) if self.joint else fitted

    def at(self, columns: Array) -> "Loss":
        """Return the loss of these columns."""
        values = getattr(self, self.parameter) if self.parameter else ()
        if not isinstance(values, tuple) or len(values) < 2:
            return self
        return self.of(np.array(values)[columns])

    def of(self, values: Any) -> "Loss":
        """Return the loss with this parameter: one number if all are equal, else one per column."""
        by_column = tuple(np.atleast_1d(values).tolist())
        value = by_column[0] if len(set(by_column)) == 1 else by_column
        return replace(self, **{self.parameter: value})  # type: ignore[type-var]

    def constant(self, y: Float[Array, "n t"], w: Float[Array, " n #t"]) -> Array | None:
        """Return the best constant of each column, the smallest of several; None if no formula."""
        return None


def weigh(w: Array, A: Array) -> Array:
    """Return w A, with zeros for rows of zero weight, even if A is infinite there."""
    if w.all():
        return w * A
    return np.multiply(w, A, out=np.zeros(np.broadcast_shapes(w.shape, A.shape)), where=w > 0)


class MarginLoss(Loss):
    """max(0, m)² of a margin m(y, f), or, with a width δ, the largest q m − δq²/2 over slopes q.

    Slopes q are between 0 and 1 by default; a width of zero then gives max(0, m).
    """

    at_jump = 0.0  # q at m = 0: 0 for the least slope, 1 for the largest

    @abstractmethod
    def margin(self, y: Array, f: Array) -> Array:
        """Return the margin m of targets y and values f."""

    def direction(self, y: Array, f: Array) -> Array:
        """Return ∂m/∂f where m is above zero."""
        return np.full(np.shape(f), -1.0)

    @property
    def slopes(self) -> tuple[Any, Any]:
        """Least and largest slope q, numbers or one per column."""
        return 0.0, 1.0

    def value(self, y: Array, f: Array) -> Array:
        m = self.margin(y, f)
        if self.width is None:
            return np.maximum(m, 0.0) ** 2
        q = self._best(m)
        return q * m - self.width * q**2 / 2

    def slope(self, y: Array, f: Array) -> Array:
        return self.direction(y, f) * self._best(self.margin(y, f))

    def curvature(self, y: Array, f: Array) -> Array:
        if self.nonsmooth:
            return np.zeros_like(f)
        m, (low, high) = self.margin(y, f), self.slopes
        if self.width is None:
            return 2.0 * (m > 0)
        q = m / self.width
        return ((q > low) & (q <= high)) / self.width

    def _best(self, m: Array) -> Array:
        """Return the q that attains the largest value at each margin: the slope in m."""
        if self.width is None:
            return 2 * np.maximum(m, 0.0)
        low, high = self.slopes
        if self.width:
            return np.clip(m / self.width, low, high)
        middle = low + self.at_jump * (high - low)
        return np.where(m > 0, high, np.where(m < 0, low, middle))


LARGEST_EXPONENT = 600.0  # exp is set to infinity above it, as weight times exp may overflow


@dataclass(frozen=True)
class Squared(Loss):
    """(y − f)²/2; with it alpha is the penalty of ridge regression."""

    degree = 2

    def value(self, y: Array, f: Array) -> Array:
        return (y - f) ** 2 / 2

    def slope(self, y: Array, f: Array) -> Array:
        return f - y

    def curvature(self, y: Array, f: Array) -> Array:
        return np.ones_like(f)

    def constant(self, y: Array, w: Array) -> Array:
        return np.asarray(weigh(w, y).sum(axis=0) / np.broadcast_to(w, y.shape).sum(axis=0))


class TwoSlopes(MarginLoss):
    """max(low r, high r), r = y − f, or with a width the largest q r − δq²/2."""

    degree = 1
    at_jump = 0.5

    def margin(self, y: Array, f: Array) -> Array:
        return y - f

    def constant(self, y: Array, w: Array) -> Array | None:
        if not self.nonsmooth:
            return None
        low, high = (np.broadcast_to(slope, y.shape[1]) for slope in self.slopes)
        order, w = np.argsort(y, axis=0, kind="stable"), np.broadcast_to(w, y.shape)
        cumulative = np.cumsum(np.take_along_axis(w, order, axis=0), axis=0)
        # The smallest y with at least the share high/(high − low) of the weight at or below it
        reached = cumulative >= (1 - 1e-12) * cumulative[-1] * high / (high - low)
        at = np.take_along_axis(order, np.argmax(reached, axis=0)[None], axis=0)
        return np.take_along_axis(y, at, axis=0)[0]


@dataclass(frozen=True)
class Huber(TwoSlopes):
    """The Huber loss of r = y − f: r²/2 for |r| ≤ c, else c|r| − c²/2.

    Parameters
    ----------
    threshold : float or tuple of float, default 1.0
        c, in the units of y; a tuple has one threshold per column of y.

    See Also
    --------
    KernelRegressor : Regression with a convex loss.
    CustomLoss : A loss given by functions.

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> x = np.linspace(-1, 1, 101)[:, None]
    >>> y = x[:, 0].copy()
    >>> y[50] = 100  # an outlier
    >>> model = bo.KernelRegressor(loss=bo.Huber(0.1), random_state=0).fit(x, y)
    >>> bool(abs(model.predict(x)[50]) < 1)
    True
    """

    threshold: float | tuple[float, ...] = 1.0

    degree = 2
    parameter = "threshold"
    width = 1.0

    @property
    def slopes(self) -> tuple[Any, Any]:
        c = np.asarray(self.threshold)
        return -c, c


@dataclass(frozen=True)
class Quantile(TwoSlopes):
    """max(τ r, (τ − 1) r), r = y − f; one level τ, or one per column."""

    level: float | tuple[float, ...] = 0.5
    width: float = 0.0
    parameter = "level"
    in_units_of_y = False

    @property
    def slopes(self) -> tuple[Any, Any]:
        tau = np.asarray(self.level)
        return tau - 1, tau


@dataclass(frozen=True)
class Absolute(TwoSlopes):
    """|y − f|; with a width δ, the Huber loss divided by its threshold δ."""

    width: float = 0.0
    slopes = -1.0, 1.0


@dataclass(frozen=True)
class EpsilonInsensitive(MarginLoss):
    """max(0, |y − f| − ε), squared without a width; one ε, or one per column."""

    epsilon: float | tuple[float, ...] = 0.1
    width: float | None = None
    parameter = "epsilon"

    @property
    def degree(self) -> int:  # type: ignore[override]
        return 2 if self.width is None else 1

    def margin(self, y: Array, f: Array) -> Array:
        return np.abs(y - f) - np.asarray(self.epsilon)

    def direction(self, y: Array, f: Array) -> Array:
        return np.sign(f - y)


@dataclass(frozen=True)
class ZeroHinge(MarginLoss):
    """max(0, −f) for every y: the loss of a one-class support vector machine."""

    width: float = 0.0

    def margin(self, y: Array, f: Array) -> Array:
        return -f


@dataclass(frozen=True)
class PoissonDeviance(Loss):
    """exp(f) − y f + y log y − y: half the deviance of counts y ≥ 0 of mean exp(f)."""

    def value(self, y: Array, f: Array) -> Array:
        return _exp(f) - y * f + xlogy(y, y) - y

    def slope(self, y: Array, f: Array) -> Array:
        return _exp(f) - y

    def curvature(self, y: Array, f: Array) -> Array:
        return _exp(f)


@dataclass(frozen=True)
class GammaDeviance(Loss):
    """f + y exp(−f) − log y − 1: half the deviance of y > 0 of mean exp(f)."""

    def value(self, y: Array, f: Array) -> Array:
        return f + y * _exp(-f) - np.log(y) - 1

    def slope(self, y: Array, f: Array) -> Array:
        return 1 - y * _exp(-f)

    def curvature(self, y: Array, f: Array) -> Array:
        return y * _exp(-f)


def _exp(f: Array) -> Array:
    """Return exp(f), infinite above LARGEST_EXPONENT."""
    return np.where(f > LARGEST_EXPONENT, np.inf, np.exp(np.minimum(f, LARGEST_EXPONENT)))


# --- losses of classes, one column: y is −1 or +1, or 0 ------------------------------------------


@dataclass(frozen=True)
class Hinge(MarginLoss):
    """max(0, 1 − y f), squared without a width; rows with y = 0 are ignored."""

    width: float | None = None
    edge: float = field(default=1.0, repr=False)  # the least y f of zero loss
    slopes: tuple[float, float] = field(default=(0.0, 1.0), repr=False)
    at_jump: float = field(default=0.0, repr=False)

    def margin(self, y: Array, f: Array) -> Array:
        return self.edge * np.abs(y) - y * f

    def direction(self, y: Array, f: Array) -> Array:
        return -y


@dataclass(frozen=True)
class Logistic(Loss):
    """log(1 + exp(−y f))."""

    def value(self, y: Array, f: Array) -> Array:
        return np.logaddexp(0.0, -y * f)

    def slope(self, y: Array, f: Array) -> Array:
        return -y * expit(-y * f)

    def curvature(self, y: Array, f: Array) -> Array:
        return expit(f) * expit(-f)


# --- joint losses of classes: rows of y sum to one, as 1 in the column of the class, else 0 ------


@dataclass(frozen=True)
class Multinomial(Loss):
    """log Σₖ exp(fₖ) − Σₖ yₖfₖ: the cross-entropy of y and softmax(f)."""

    joint = True

    def value(self, y: Array, f: Array) -> Array:
        return (logsumexp(f, axis=1) - (y * f).sum(axis=1))[:, None]

    def slope(self, y: Array, f: Array) -> Array:
        return softmax(f, axis=1) - y

    def curvature(self, y: Array, f: Array) -> Array:
        return softmax(f, axis=1)

    def hessian_product(self, state: Array, V: Array) -> Array:
        return state * (V - (state * V).sum(axis=1, keepdims=True))

    def diagonal(self, state: Array) -> Array:
        return state * (1 - state)


#: Losses that can be given by name.
NAMES: dict[str, type[Loss]] = {
    "squared": Squared,
    "absolute": Absolute,
    "huber": Huber,
    "quantile": Quantile,
    "poisson": PoissonDeviance,
    "gamma": GammaDeviance,
    "multinomial": Multinomial,
}
LOG_LINK = (PoissonDeviance, GammaDeviance)  # Losses of the logarithm of the mean
LOG_LOSSES = (Logistic, Multinomial)  # Minus the log of the probability of the class


def as_levels(levels: Any) -> tuple[float, ...]:
    """Return the levels as a tuple; raise InvalidInput unless they increase inside (0, 1)."""
    values = tuple(finite(q, "quantiles", "a level") for q in np.atleast_1d(levels))
    rising = values == tuple(sorted(set(values)))
    if not values or not rising or not all(0 < q < 1 for q in values):
        raise InvalidInput(
            "quantiles must lie between 0 and 1, both excluded, and increase; got "
            f"{levels!r}. Pass, say, (0.1, 0.5, 0.9)."
        )
    return values


def huber_scale(
    r: Float[Array, "n t"], w: Float[Array, "n 1"], scales: float
) -> Float[Array, " t"]:
    """Return the σ at which Σ w min(r²/σ², scales²) = Σ w, the scale of HuberRegressor.

    Found by bisection in log σ; nearly zero if more than 1 − 1/scales² of the weight has r = 0.
    """
    high = np.sqrt((w * r**2).sum(axis=0) / w.sum())
    low = 1e-9 * high
    for _ in range(60):
        middle = np.sqrt(low * high)
        clipped = np.minimum(r / np.where(middle > 0, middle, 1.0), scales)
        is_low = (w * np.maximum(clipped, -scales) ** 2).sum(axis=0) > w.sum()
        low, high = np.where(is_low, middle, low), np.where(is_low, high, middle)
    return np.sqrt(low * high)


def convex_loss(loss: object, quantiles: Any = (0.1, 0.5, 0.9)) -> Loss:
    """Return the loss of this name, or the given loss; "quantile" has one column per level."""
    if isinstance(loss, Loss):
        return loss
    if isinstance(loss, str) and loss in NAMES:
        return Quantile(as_levels(quantiles)) if loss == "quantile" else NAMES[loss]()
    raise InvalidInput(
        f"loss must be one of {', '.join(map(repr, NAMES))}, or a loss such as Huber(0.5), "
        "CustomLoss(value, slope, curvature) or JointLoss(value, slope, hessian); "
        f"got {loss!r}{suggestion(loss, NAMES) or '.'}"
    )


# --- losses given by functions, elementwise or of several outputs together ------------------------

OfPrediction = Callable[[Any, Any], Any]  # A function of (y, f)

#: Targets at which a CustomLoss is checked, and residuals f − y at which a JointLoss is checked.
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
    #: Targets and predictions at which functions are checked if ``points`` is None.
    trial: ClassVar[tuple[Array, Array]]

    def __post_init__(self) -> None:
        for function in (self.value_of, self.slope_of, getattr(self, f"{self.second}_of")):
            if not callable(function):
                raise InvalidType(
                    f"{type(self).__name__}: value, slope and {self.second} must be functions of "
                    f"(y, f); got {function!r}."
                )
        points = self.trial if self.points is None else self.points
        y, f = (np.asarray(a, np.float64) for a in points)
        self._check(*((y, f) if self.joint else (y.reshape(-1, 1), f.reshape(-1, 1))))

    def _call(self, function: OfPrediction, role: str, y: Array, f: Array, shape: Any) -> Array:
        result = np.asarray(function(*np.broadcast_arrays(y, f)), dtype=np.float64)
        if result.shape != shape:
            rule = "" if self.joint else "one number for each of y and f, "
            raise InvalidInput(
                f"{self._label}: {role} must return {rule}shape {shape} for y and f of shape "
                f"{f.shape}; got shape {result.shape}."
            )
        return result

    def slope(self, y: Array, f: Array) -> Array:
        return self._call(self.slope_of, "slope", y, f, f.shape)

    @property
    def _label(self) -> str:
        return f"{type(self).__name__} {self.name!r}"

    def _check(self, y: Float[Array, "m t"], f: Float[Array, "m t"]) -> None:
        """Raise InvalidInput unless derivatives agree with differences and the loss is convex."""
        m, t = f.shape
        value, slope = self.value(y, f), self.slope(y, f)
        hessian = self.curvature(y, f).reshape(m, t, t)
        for role, values in (("value", value), ("slope", slope), (self.second, hessian)):
            rows = np.flatnonzero(~np.isfinite(values.reshape(m, -1)).all(axis=1))
            if len(rows):
                raise InvalidInput(
                    f"{self._label}: {role} must be finite; got {values[rows[0]].ravel()} at "
                    f"y={y[rows[0]]}, f={f[rows[0]]}. If it is defined for some targets only, pass "
                    "points=(y, f)."
                )
        h = 1e-4 * (1 + np.abs(f).max(axis=1, keepdims=True))
        ends = [(f + h * e, f - h * e) for e in np.eye(t)]
        first = [(self.value(y, a) - self.value(y, b))[:, 0] / (2 * h[:, 0]) for a, b in ends]
        second = [(self.slope(y, a) - self.slope(y, b)) / (2 * h) for a, b in ends]
        pairs = (
            ("value", "slope", np.stack(first, axis=1), slope),
            ("slope", self.second, np.stack(second, axis=2), hessian),
        )
        for function, derivative, numeric, exact in pairs:
            error = np.abs(numeric - exact)
            wrong = error > 1e-4 * (1 + np.abs(exact) + np.abs(numeric))
            if wrong.mean() > self.jumps:
                i = int(np.flatnonzero(wrong.reshape(m, -1).any(axis=1))[0])
                raise InvalidInput(
                    f"{self._label}: {derivative} must be the derivative of {function} in f; at "
                    f"y={y[i]}, f={f[i]} they differ by {error[i].max():.3g} (finite differences). "
                    "Correct one of the two, or pass points=(y, f) where both are defined."
                )
        smallest = np.linalg.eigvalsh((hessian + hessian.transpose(0, 2, 1)) / 2)[:, 0]
        i = int(np.argmin(smallest))
        if smallest[i] < -1e-8:
            raise InvalidInput(
                f"{self._label}: the loss must be convex, its {self.second} zero or above; got "
                f"{smallest[i]:.6g} at y={y[i]}, f={f[i]}. Choose a convex loss."
            )


@dataclass(frozen=True)
class CustomLoss(UserLoss):
    """Convex, smooth loss, given by three elementwise functions of (y, f).

    Parameters
    ----------
    value_of, slope_of, curvature_of : callable
        The loss, and its first and second derivative in f. They get float64 arrays of one shape
        and return arrays of that shape.
    name : str, default "custom"
        Name in messages.
    points : (y, f), optional
        Arrays of one shape at which the functions are checked. Give them if the loss is defined
        for some targets only. Default: numbers between 0 and 3, and predictions near them.

    Raises
    ------
    InvalidInput
        If a curvature is below zero. If the slope is not the derivative of the value, or the
        curvature not the derivative of the slope, at more than a quarter of the points, by
        central differences: derivatives may jump at the other points.

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
        return self._call(self.value_of, "value", y, f, f.shape)

    def curvature(self, y: Float[Array, "n t"], f: Float[Array, "n t"]) -> Float[Array, "n t"]:
        return self._call(self.curvature_of, "curvature", y, f, f.shape)


@dataclass(frozen=True)
class JointLoss(UserLoss):
    """Convex, smooth loss of several outputs together, given by three functions of (y, f).

    Parameters
    ----------
    value_of, slope_of, hessian_of : callable
        Functions of float64 arrays y and f of shape (n, t). They return the loss of each row, (n,),
        its gradient in f, (n, t), and its Hessian, (n, t, t), positive semi-definite.
    name : str, default "custom"
        Name in messages.
    points : (y, f), optional
        Arrays of shape (n, t) at which functions are checked. Default: 16 rows of two columns.

    Raises
    ------
    InvalidInput
        If a function returns another shape, the slope is not the gradient of the value, or the
        Hessian not the derivative of the slope, by central differences; or if a Hessian has an
        eigenvalue below zero.

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
        """Return ``fitted``, not centred: the loss may depend on the mean of the columns."""
        return fitted

    def value(self, y: Array, f: Array) -> Array:
        """Return the loss of each row, (n, 1)."""
        return self._call(self.value_of, "value", y, f, (len(f),))[:, None]

    def curvature(self, y: Array, f: Array) -> Array:
        """Return the t × t Hessian of each row, flattened: (n, t²)."""
        shape = (*f.shape, f.shape[1])
        return self._call(self.hessian_of, "hessian", y, f, shape).reshape(len(f), -1)

    def hessian_product(self, state: Array, V: Array) -> Array:
        t = V.shape[1]
        return np.einsum("nij,nj->ni", state.reshape(len(V), t, t), V)

    def diagonal(self, state: Array) -> Array:
        t = round(state.shape[1] ** 0.5)
        return state[:, :: t + 1]
