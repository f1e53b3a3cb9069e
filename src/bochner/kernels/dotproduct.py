"""Kernels of the inner product ⟨x, y⟩ alone."""

import abc
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from bochner._core.arrays import array_namespace
from bochner._core.checks import integer, nonnegative, positive
from bochner._core.shapes import Array, Float
from bochner.errors import InvalidInput
from bochner.kernels import distances
from bochner.kernels.kernel import Kernel
from bochner.kernels.series import (
    Binomial,
    Coefficients,
    ExponentialSeries,
    LogDerivatives,
    PowerSeries,
)


class DotProductKernel(Kernel):
    """A kernel κ(t) of the inner product t = ⟨x, y⟩, given by its power series."""

    @property
    @abc.abstractmethod
    def power_series(self) -> PowerSeries:
        """κ as a series of powers of t; all its derivatives at zero are zero or above."""

    def profile(self, t: Array) -> Array:
        """Return κ(t), elementwise."""
        return self.power_series.value(t)

    def evaluate(self, X: Float[Array, "n d"], Y: Float[Array, "m d"]) -> Float[Array, "n m"]:
        return distances.by_blocks(lambda A, B: _in_range(self, distances.inner(A, B)), X, Y, 2)

    def diagonal(self, X: Float[Array, "n d"]) -> Float[Array, " n"]:
        return _in_range(self, distances.square_norms(X))


@final
@dataclass(frozen=True)
class Linear(DotProductKernel):
    """k(x, y) = ⟨x, y⟩: its feature map is x itself, its model the linear one."""

    @property
    def power_series(self) -> PowerSeries:
        return Coefficients((0.0, 1.0))

    def profile(self, t: Array) -> Array:
        return t


@final
@dataclass(frozen=True)
class Polynomial(DotProductKernel):
    """k(x, y) = (scale·⟨x, y⟩ + offset)^degree: all products of up to ``degree`` columns.

    Parameters
    ----------
    degree : int, default 2
        One or above.
    offset : float, default 1.0
        Zero or above; zero leaves the products of exactly ``degree`` columns.
    scale : float, default 1.0
        Positive. scikit-learn's ``gamma``; 1/d suits standardised columns.
    """

    degree: int = 2
    offset: float = 1.0
    scale: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "degree", integer(self.degree, "Polynomial", "degree", least=1))
        object.__setattr__(self, "offset", nonnegative(self.offset, "Polynomial", "offset"))
        object.__setattr__(self, "scale", positive(self.scale, "Polynomial", "scale"))

    @property
    def power_series(self) -> PowerSeries:
        return Binomial(self.degree, self.offset, self.scale)


@final
@dataclass(frozen=True)
class DotExponential(DotProductKernel):
    """k(x, y) = exp(scale·⟨x, y⟩), the kernel of softmax attention.

    Parameters
    ----------
    scale : float, default 1.0
        Positive; 1/√d in attention [Vaswani et al. (2017), eq. 1].
    """

    scale: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", positive(self.scale, "DotExponential", "scale"))

    @property
    def power_series(self) -> PowerSeries:
        return ExponentialSeries(self.scale)


@final
@dataclass(frozen=True)
class DotProduct(DotProductKernel):
    """k(x, y) = κ(⟨x, y⟩) of a power series of your own.

    Parameters
    ----------
    series : PowerSeries, or sequence of float, or callable
        κ. A sequence is the coefficients of 1, t, t², ...: ``Coefficients``. A callable returns
        log κ⁽ⁿ⁾(0) of an integer array n: ``LogDerivatives``; to be saved or sent to other
        processes, it must be a function of a module.

    Raises
    ------
    NotPositive
        If a derivative at zero is negative: then k is not positive semi-definite on any ball
        [Schoenberg (1942)].

    Examples
    --------
    >>> DotProduct((1.0, 0.0, 0.5))([[1.0, 2.0]], [[2.0, 0.0]])
    array([[3.]])
    """

    series: PowerSeries

    def __post_init__(self) -> None:
        object.__setattr__(self, "series", _as_series(self.series))

    @property
    def power_series(self) -> PowerSeries:
        return self.series


def _as_series(value: Any) -> PowerSeries:
    if isinstance(value, PowerSeries):
        return value
    return LogDerivatives(value) if callable(value) else Coefficients(value)


def _in_range(kernel: DotProductKernel, t: Array) -> Array:
    """Return κ(t), or refuse it where it is beyond the dtype's largest number."""
    with np.errstate(over="ignore", invalid="ignore"):
        K = kernel.profile(t)
    xp = array_namespace(K)
    if not bool(xp.all(xp.isfinite(K))):
        largest = float(xp.max(xp.abs(t)))
        raise InvalidInput(
            f"{type(kernel).__name__}: k(x, y) must be a number of dtype {K.dtype}; got an "
            f"overflow at |⟨x, y⟩| up to {largest:.3g}. Rescale the rows of X, or lower the scale."
        )
    return K
