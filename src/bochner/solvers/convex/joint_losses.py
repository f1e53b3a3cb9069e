"""Losses of several outputs together: shares that sum to one, and a user's own.

One value a row, ℓ(y, f) of all its targets y and predictions f, both (n, t); slopes (n, t), and a
Hessian (t, t) for each row.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import softmax

from bochner._core.shapes import Array, Float
from bochner.errors import InvalidInput, InvalidType
from bochner.solvers.convex.class_losses import Multinomial
from bochner.solvers.convex.losses import Loss

OfRows = Callable[[Array, Array], Array]


@dataclass(frozen=True)
class MultinomialShares(Loss):
    """log Σₖ exp(fₖ) − Σₖ yₖfₖ of shares y ≥ 0 of sum one: the multinomial loss, with softmax."""

    joint = True
    of_numbers = True

    def value(self, y: Array, f: Array) -> Array:
        return Multinomial().value(y, f)

    def slope(self, y: Array, f: Array) -> Array:
        return softmax(f, axis=1) - y

    def curvature(self, y: Array, f: Array) -> Array:  # noqa: ARG002
        return softmax(f, axis=1)

    def hessian_product(self, state: Array, V: Array) -> Array:
        return Multinomial().hessian_product(state, V)

    def diagonal(self, state: Array) -> Array:
        return state * (1 - state)


def check_shares(y: Float[Array, "n t"], w: Float[Array, "n 1"]) -> None:
    """Refuse targets that are no shares."""
    there = y[w[:, 0] > 0]
    sums = there.sum(axis=1)
    if y.shape[1] < 2 or np.any(there < 0) or np.any(np.abs(sums - 1) > 1e-6):
        raise InvalidInput(
            'KernelRegressor: loss="multinomial" needs y of two columns or more, shares of 0 or '
            f"above whose rows sum to one; got {y.shape[1]} columns, sums from {sums.min():g} to "
            f"{sums.max():g}. Divide rows by their sums; for labels take LogisticRegression."
        )


@dataclass(frozen=True)
class JointLoss(Loss):
    """A user's own convex and smooth loss of several outputs together.

    Parameters
    ----------
    value_of, slope_of, hessian_of : callable
        Of (y, f), float64 arrays (n, t): the loss of each row, (n,), its derivatives in f, (n, t),
        and its second derivatives, (n, t, t), symmetric and positive semi-definite.
    name : str, default "custom"
        What messages call it.
    points : (y, f), optional
        Arrays (n, t) where the functions are tried; default: 16 rows of two columns.

    Raises
    ------
    InvalidInput
        If, where it is tried, shapes are not these, slopes not the derivatives of the value, the
        Hessian not that of the slopes (central differences), or it has an eigenvalue below zero.

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

    value_of: OfRows
    slope_of: OfRows
    hessian_of: OfRows
    name: str = "custom"
    points: tuple[Any, Any] | None = None

    joint = True
    of_numbers = True

    def __post_init__(self) -> None:
        for function in (self.value_of, self.slope_of, self.hessian_of):
            if not callable(function):
                raise InvalidType(
                    "JointLoss: value, slope and hessian must be functions of (y, f); got "
                    f"{function!r}."
                )
        if self.points is None:
            grid = np.linspace(-1.5, 1.5, 32).reshape(16, 2)
            _check(self, np.abs(grid[::-1]), np.abs(grid[::-1]) + grid)
        else:
            _check(self, *(np.asarray(a, np.float64) for a in self.points))

    def centred(self, fitted: Array) -> Array:
        """Return numbers as they are: more than their differences matter."""
        return fitted

    def state_width(self, t: int) -> int:
        return t * t

    def value(self, y: Array, f: Array) -> Array:
        """Return the loss of each row, (n, 1)."""
        return self._asked(self.value_of, "value", y, f, ())[:, None]

    def slope(self, y: Array, f: Array) -> Array:
        """Return its derivatives in f."""
        return self._asked(self.slope_of, "slope", y, f, f.shape[1:])

    def curvature(self, y: Array, f: Array) -> Array:
        """Return the Hessians, each in one row."""
        t = f.shape[1]
        return self._asked(self.hessian_of, "hessian", y, f, (t, t)).reshape(len(f), t * t)

    def hessian_product(self, state: Array, V: Array) -> Array:
        t = V.shape[1]
        return np.einsum("nij,nj->ni", state.reshape(len(V), t, t), V)

    def diagonal(self, state: Array) -> Array:
        t = round(state.shape[1] ** 0.5)
        return state[:, :: t + 1]

    def _asked(self, function: OfRows, what: str, y: Array, f: Array, shape: Any) -> Array:
        answer = np.asarray(function(np.broadcast_to(y, f.shape), f), dtype=np.float64)
        if answer.shape != (len(f), *shape):
            raise InvalidInput(
                f"JointLoss {self.name!r}: {what} must have shape {(len(f), *shape)} for y and f "
                f"of shape {f.shape}; got {answer.shape}."
            )
        return answer


def _check(loss: JointLoss, y: Array, f: Array) -> None:
    """Compare slopes and Hessians with differences of values and slopes."""
    who, t = f"JointLoss {loss.name!r}", f.shape[1]
    h = 1e-4 * (1 + float(np.abs(f).max()))
    slope, hessian = loss.slope(y, f), loss.curvature(y, f).reshape(-1, t, t)
    ends = [(f + h * e, f - h * e) for e in np.eye(t)]
    values = [(loss.value(y, a) - loss.value(y, b))[:, 0] / (2 * h) for a, b in ends]
    slopes = [(loss.slope(y, a) - loss.slope(y, b)) / (2 * h) for a, b in ends]
    pairs = (
        ("value", "slope", np.stack(values, axis=1), slope),
        ("slope", "hessian", np.stack(slopes, axis=2), hessian),
    )
    for below, above, numeric, known in pairs:
        if not np.allclose(numeric, known, rtol=1e-4, atol=1e-4):
            raise InvalidInput(
                f"{who}: {above} must be the derivative of {below} in f; differences of {below} "
                f"are up to {np.nanmax(np.abs(numeric - known)):.3g} from it. Correct one of the "
                "two, or say by points=(y, f) where it serves."
            )
    least = float(np.linalg.eigvalsh((hessian + hessian.transpose(0, 2, 1)) / 2).min())
    if least < -1e-8:
        raise InvalidInput(
            f"{who}: the loss must be convex, eigenvalues of its hessian zero or above; got "
            f"{least:.3g}. Choose a convex loss."
        )
