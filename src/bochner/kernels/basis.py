"""Kernels that are defined by their features.

k(x, y) = Π_j Σ_i f_i(x_j) f_i(y_j) with finitely many functions f_i of one column is a kernel
for any functions, and its exact features are products of them.
"""

import abc
import math
import operator
from dataclasses import dataclass
from functools import reduce
from typing import Annotated

from bochner._core.arrays import array_namespace, dense
from bochner._core.checks import Positive, each, finite, nonnegative, unpacked
from bochner._core.shapes import Array, Float
from bochner.errors import InvalidInput
from bochner.kernels.kernel import Kernel
from bochner.kernels.zonal import gegenbauers


def _weights(value: object, who: str, name: str) -> tuple[float, ...]:
    """Return the weights as a tuple, none below zero and not all zero."""
    plain = unpacked(value)
    if not isinstance(plain, list | tuple) or not any(plain):
        raise InvalidInput(
            f"{who}: {name} must be a sequence of numbers, not all zero; got {value!r}."
        )
    return each(nonnegative)(plain, who, name)


Weights = Annotated[tuple[float, ...], _weights]


class Basis(Kernel):
    """A product over columns of kernels with finitely many features each."""

    @property
    @abc.abstractmethod
    def sizes(self) -> tuple[float, ...]:
        """Mean square of each 1-D function over its natural range."""

    @abc.abstractmethod
    def functions(self, X: Float[Array, "n d"]) -> tuple[Float[Array, "n d"], ...]:
        """Return the 1-D functions, in the order of ``sizes``, of all columns of dense rows."""

    def evaluate(self, X: Float[Array, "n d"], Y: Float[Array, "m d"]) -> Float[Array, "n m"]:
        xp = array_namespace(X, Y)
        left = xp.stack(self.functions(dense(X)), axis=0)
        right = left if Y is X else xp.stack(self.functions(dense(Y)), axis=0)
        columns = ((left[:, :, j], right[:, :, j]) for j in range(X.shape[1]))
        return reduce(operator.mul, (xp.permute_dims(u, (1, 0)) @ v for u, v in columns))

    def diagonal(self, X: Float[Array, "n d"]) -> Float[Array, " n"]:
        values = array_namespace(X).stack(self.functions(dense(X)), axis=0)
        return array_namespace(X).prod(array_namespace(X).sum(values * values, axis=0), axis=1)


@dataclass(frozen=True)
class FourierSeries(Basis):
    """k(x, y) = Π_j Σ_k w_k cos(2πk(x_j − y_j)/p): a periodic kernel with given weights.

    Its exact features are products of √w_0, √w_k cos(2πk x_j/p) and √w_k sin(2πk x_j/p).

    Parameters
    ----------
    weights : sequence of float
        w_0, w_1, …, none below zero: the prior variance of each harmonic.
    period : float, default 1.0
        p > 0, in the units of X.

    See Also
    --------
    Periodic : A smooth kernel with a period and a lengthscale.

    Examples
    --------
    >>> from bochner.kernels import FourierSeries
    >>> FourierSeries((0.6, 0.4), period=24.0)([[0.0]], [[12.0], [24.0]]).round(2)
    array([[0.2, 1. ]])
    """

    weights: Weights
    period: Positive = 1.0

    @property
    def sizes(self) -> tuple[float, ...]:
        waves = (0.5 * w for w in self.weights[1:] for _ in range(2))
        return self.weights[0], *waves

    def functions(self, X: Float[Array, "n d"]) -> tuple[Float[Array, "n d"], ...]:
        xp = array_namespace(X)
        turns = X / self.period
        angle = 2 * math.pi * (turns - xp.round(turns))
        waves = (
            w**0.5 * wave(k * angle)
            for k, w in enumerate(self.weights[1:], start=1)
            for wave in (xp.cos, xp.sin)
        )
        return self.weights[0] ** 0.5 * xp.ones_like(X), *waves


@dataclass(frozen=True)
class Polynomials(Basis):
    """k(x, y) = Π_j Σ_k w_k p_k(x_j) p_k(y_j), p_k Legendre's polynomials on an interval.

    They are orthonormal for the uniform law on [lower, upper]: p_k = √(2k + 1) P_k. Beyond the
    interval they grow like the k-th power.

    Parameters
    ----------
    weights : sequence of float
        w_0, w_1, …, none below zero; how much of each degree functions may have.
    lower, upper : float, default −1 and 1
        The interval, in the units of X.

    See Also
    --------
    Polynomial : Of the inner product.

    Examples
    --------
    >>> from bochner.kernels import Polynomials
    >>> Polynomials((1.0, 0.5), lower=0.0, upper=2.0)([[2.0]], [[0.0], [1.0], [2.0]]).round(2)
    array([[-0.5,  1. ,  2.5]])
    """

    weights: Weights
    lower: Annotated[float, finite] = -1.0
    upper: Annotated[float, finite] = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lower >= self.upper:
            raise InvalidInput(
                f"Polynomials: lower must be below upper; got {self.lower} and {self.upper}."
            )

    @property
    def sizes(self) -> tuple[float, ...]:
        return self.weights

    def functions(self, X: Float[Array, "n d"]) -> tuple[Float[Array, "n d"], ...]:
        t = (2 * X - (self.lower + self.upper)) / (self.upper - self.lower)
        legendre = zip(self.weights, gegenbauers(len(self.weights) - 1, 3, t), strict=True)
        return tuple((w * (2 * k + 1)) ** 0.5 * P for k, (w, P) in enumerate(legendre))
