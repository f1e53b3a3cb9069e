"""Kernels of the inner product."""

import abc
import math
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from scipy.special import gammaln

from bochner._core.arrays import array_namespace, dense, squared_norms
from bochner._core.checks import Counted
from bochner._core.shapes import Array, Float, Others, Pairs, Rows
from bochner.kernels import distances, series
from bochner.kernels.hyperparameters import TunedNonnegative, TunedPositive
from bochner.kernels.kernel import Kernel, require_finite
from bochner.kernels.series import PowerSeries, RadialKernels, Terms


class DotProductKernel(Kernel):
    """A kernel κ(t) of the inner product t = ⟨x, y⟩, given by its power series."""

    @abc.abstractmethod
    def series(self, d: int) -> PowerSeries:
        """Return the power series of κ; all its derivatives at zero are nonnegative."""

    def profile(self, t: Array) -> Array:
        """Return κ(t), elementwise."""
        return self.series(1).value(t)

    def slope(self, t: Array) -> Array:
        """Return κ'(t), elementwise."""
        return self.series(1).slope(t)

    def evaluate(self, X: Rows, Y: Others) -> Pairs:
        return distances.map_blocks(lambda A, B: _in_range(self, distances.inner(A, B)), X, Y)

    def diagonal(self, X: Rows) -> Float[Array, " n"]:
        return _in_range(self, squared_norms(X))

    def pullback(self, X: Rows, Y: Others, C: Pairs) -> Rows:
        return (C * self.slope(distances.inner(X, Y))) @ Y


@dataclass(frozen=True)
class Linear(DotProductKernel):
    """k(x, y) = ⟨x, y⟩; its feature map is x, and its model is linear.

    Examples
    --------
    >>> from bochner.kernels import Linear
    >>> Linear()([[1.0, 2.0]], [[1.0, 0.0], [0.0, 1.0]])
    array([[1., 2.]])
    """

    def series(self, d: int) -> PowerSeries:
        return PowerSeries((0.0, 1.0))

    def exact(self, d: int) -> int:
        return d

    def features(self, X: Rows) -> Rows:
        return dense(X)

    def profile(self, t: Array) -> Array:
        return t


@dataclass(frozen=True)
class Polynomial(DotProductKernel):
    """k(x, y) = (scale·⟨x, y⟩ + offset)^degree: all products of up to ``degree`` columns.

    Parameters
    ----------
    degree : int, default 2
        At least 1.
    offset : float, default 1.0
        Nonnegative. With 0 only products of exactly ``degree`` columns remain.
    scale : float, default 1.0
        Positive. scikit-learn's ``gamma``; 1/d suits standardised columns.

    Examples
    --------
    >>> from bochner.kernels import Polynomial
    >>> Polynomial(degree=2)([[1.0, 2.0]], [[1.0, 0.0], [0.0, 1.0]])
    array([[4., 9.]])
    """

    degree: Counted = 2
    offset: TunedNonnegative = 1.0
    scale: TunedPositive = 1.0

    def series(self, d: int) -> PowerSeries:
        return PowerSeries(self._log_derivative, self.degree)

    def _log_derivative(self, n: np.ndarray) -> Float[np.ndarray, "..."]:
        """Return log(p!/(p − n)! scaleⁿ offset^(p − n)), p the degree."""
        order = np.maximum(self.degree - n, 0)
        falling = gammaln(self.degree + 1.0) - gammaln(order + 1.0) + n * math.log(self.scale)
        if self.offset == 0:
            return np.where(n == self.degree, falling, -math.inf)
        return falling + order * math.log(self.offset)

    def profile(self, t: Array) -> Array:
        return (self.scale * t + self.offset) ** self.degree

    def slope(self, t: Array) -> Array:
        return self.scale * self.degree * (self.scale * t + self.offset) ** (self.degree - 1)


@dataclass(frozen=True)
class DotExponential(DotProductKernel):
    """k(x, y) = exp(scale·⟨x, y⟩), the kernel of softmax attention.

    Parameters
    ----------
    scale : float, default 1.0
        Positive; 1/√d in attention [Vaswani et al. (2017), eq. 1].

    Examples
    --------
    >>> from bochner.kernels import DotExponential
    >>> DotExponential(scale=0.5)([[1.0, 2.0]], [[1.0, 0.0], [0.0, 1.0]]).round(2)
    array([[1.65, 2.72]])
    """

    scale: TunedPositive = 1.0

    def series(self, d: int) -> PowerSeries:
        return series.exponential(self.scale)

    def zonal(self, d: int) -> RadialKernels:
        return series.of_exponential(d, self.scale)

    def profile(self, t: Array) -> Array:
        return array_namespace(t).exp(self.scale * t)

    def slope(self, t: Array) -> Array:
        return self.scale * self.profile(t)


@dataclass(frozen=True)
class DotProduct(DotProductKernel):
    """k(x, y) = κ(⟨x, y⟩) for a given power series κ.

    Parameters
    ----------
    terms : sequence of float, or callable
        κ, as in :class:`PowerSeries`: the coefficients of 1, t, t², ..., or a function that returns
        log κ⁽ⁿ⁾(0) for an integer array n. Functions defined in a module can be pickled.

    Raises
    ------
    NotPositive
        If a derivative at zero is negative: k is then not a kernel [Schoenberg (1942)].

    Examples
    --------
    >>> DotProduct((1.0, 0.0, 0.5))([[1.0, 2.0]], [[2.0, 0.0]])
    array([[3.]])
    """

    terms: Annotated[Terms, series.terms_of]

    def series(self, d: int) -> PowerSeries:
        return PowerSeries(self.terms)


def _in_range(kernel: DotProductKernel, t: Array) -> Array:
    """Return κ(t); refuse an overflow."""
    with np.errstate(over="ignore", invalid="ignore"):
        K = kernel.profile(t)
    remedy = ". Rescale the rows of X, or lower the scale."
    return require_finite(K, type(kernel).__name__, "k(x, y)", remedy)
