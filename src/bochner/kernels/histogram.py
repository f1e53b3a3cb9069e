"""Kernels of histograms: rows of counts or shares."""

import abc
import math
import operator
from dataclasses import dataclass

import numpy as np

from bochner._core.arrays import array_namespace
from bochner._core.shapes import Array, Float, Others, Pairs, Rows
from bochner.errors import InvalidInput
from bochner.kernels import distances
from bochner.kernels.hyperparameters import TunedPositive
from bochner.kernels.kernel import Kernel, Transformed
from bochner.kernels.spectral import SECH, Measure
from bochner.kernels.stationary import by_columns, refuse_sparse


class Additive(Kernel):
    """k(x, y) = Σ_j κ(x_j, y_j) of nonnegative numbers, with κ(a, b) = √(ab) 𝒦(log b/a).

    κ(a, a) = a, so rows with sum one have k(x, x) = 1. Feature maps sample the spectrum of
    𝒦 [Vedaldi & Zisserman (2012)].
    """

    @abc.abstractmethod
    def term(self, a: Array, b: Array) -> Array:
        """Return κ(a, b), elementwise, with broadcasting; zero if a or b is zero."""

    @abc.abstractmethod
    def spectrum(self, frequency: np.ndarray) -> np.ndarray:
        """Return the density of 𝒦: 𝒦(t) = ∫ cos(ωt) spectrum(ω) dω."""

    def evaluate(self, X: Rows, Y: Others) -> Pairs:
        require_above(self, 0.0, X, Y)
        return distances.map_blocks(
            lambda A, B: distances.combine_over_columns(self.term, operator.add, A, B), X, Y
        )

    def diagonal(self, X: Rows) -> Float[Array, " n"]:
        require_above(self, 0.0, X)
        return array_namespace(X).sum(X, axis=1)


@dataclass(frozen=True)
class AdditiveChi2(Additive):
    """k(x, y) = Σ_j 2 x_j y_j/(x_j + y_j): the additive χ² kernel of histograms.

    Examples
    --------
    >>> from bochner.kernels import AdditiveChi2
    >>> X = [[0.5, 0.5, 0.0], [0.1, 0.6, 0.3]]
    >>> AdditiveChi2()(X).round(2)
    array([[1.  , 0.71],
           [0.71, 1.  ]])
    """

    def term(self, a: Array, b: Array) -> Array:
        size = a + b
        xp = array_namespace(size)
        return 2.0 * a * (b / xp.where(size > 0, size, xp.ones_like(size)))

    def spectrum(self, frequency: np.ndarray) -> np.ndarray:
        return np.exp(SECH.log_density(frequency))


@dataclass(frozen=True)
class Intersection(Additive):
    """k(x, y) = Σ_j min(x_j, y_j): the share that two histograms have in common.

    Examples
    --------
    >>> from bochner.kernels import Intersection
    >>> X = [[0.5, 0.5, 0.0], [0.1, 0.6, 0.3]]
    >>> Intersection()(X).round(2)
    array([[1. , 0.6],
           [0.6, 1. ]])
    """

    def term(self, a: Array, b: Array) -> Array:
        return array_namespace(a, b).minimum(a, b)

    def spectrum(self, frequency: np.ndarray) -> np.ndarray:
        return 2 / math.pi / (1 + 4 * frequency**2)


@dataclass(frozen=True)
class JensenShannon(Additive):
    """k(x, y) = ½ Σ_j [x_j log₂(1 + y_j/x_j) + y_j log₂(1 + x_j/y_j)].

    1 minus the Jensen-Shannon divergence in bits, for rows that sum to one.

    Examples
    --------
    >>> from bochner.kernels import JensenShannon
    >>> X = [[0.5, 0.5, 0.0], [0.1, 0.6, 0.3]]
    >>> JensenShannon()(X).round(2)
    array([[1.  , 0.74],
           [0.74, 1.  ]])
    """

    def term(self, a: Array, b: Array) -> Array:
        return _entropy(a, b) + _entropy(b, a)

    def spectrum(self, frequency: np.ndarray) -> np.ndarray:
        return 2 / math.log(4) * np.exp(SECH.log_density(frequency)) / (1 + 4 * frequency**2)


@dataclass(frozen=True)
class SkewedChi2(Kernel):
    """k(x, y) = Π_j 2 √(x_j + c) √(y_j + c)/(x_j + y_j + 2c): the skewed χ² kernel.

    The kernel is stationary in log(x + c): Π_j sech(½(log(x_j + c) − log(y_j + c))), with the
    spectral density Π_j sech(πω_j) [Li, Ionescu & Sminchisescu (2010), eq. 10].

    Parameters
    ----------
    skew : float, default 1.0
        c > 0, in the units of X; all numbers of X must be above −c.

    Examples
    --------
    >>> from bochner.kernels import SkewedChi2
    >>> X = [[0.5, 0.5, 0.0], [0.1, 0.6, 0.3]]
    >>> SkewedChi2(skew=0.1)(X).round(2)
    array([[1.  , 0.69],
           [0.69, 1.  ]])
    """

    skew: TunedPositive = 1.0

    def spectral_of_logs(self, d: int) -> Measure:
        """Return the distribution of the frequencies of the kernel of log(x + c)."""
        return Measure(SECH, np.ones(d))

    def inputs(self, X: Rows) -> Rows:
        """Return log(x + c), the coordinates in which the kernel is stationary."""
        require_above(self, -self.skew, X, strictly=True)
        return array_namespace(X).log(X + self.skew)

    def evaluate(self, X: Rows, Y: Others) -> Pairs:
        require_above(self, -self.skew, X, Y, strictly=True)
        xp = array_namespace(X, Y)
        term = lambda a, b: xp.log1p((a - b) ** 2 / (2.0 * a * b))
        block = lambda A, B: xp.exp(-distances.combine_over_columns(term, operator.add, A, B))
        return distances.map_blocks(block, xp.sqrt(X + self.skew), xp.sqrt(Y + self.skew))

    def diagonal(self, X: Rows) -> Float[Array, " n"]:
        return 1.0 + 0.0 * self.inputs(X)[:, 0]

    def backward(self, X: Rows, G: Rows) -> Rows:
        return G / (X + self.skew)

    def pullback(self, X: Rows, Y: Others, C: Pairs) -> Rows:
        tangent = lambda gap, _: -0.5 * array_namespace(gap).tanh(0.5 * gap)
        U, V = self.inputs(X), self.inputs(Y)
        return self.backward(X, by_columns(C * self.evaluate(X, Y), tangent, U, V))


#: Classes of kernels that transform their rows (by ``inputs``).
WithInputs = Transformed | SkewedChi2


def require_above(kernel: Kernel, bound: float, *matrices: Array, strictly: bool = False) -> None:
    """Raise an error for sparse rows, and numbers below ``bound`` (``strictly``: or equal)."""
    refuse_sparse(kernel, *matrices)
    for X in matrices:
        xp = array_namespace(X)
        if X.shape[0] and not bool(xp.all(bound < X if strictly else bound <= X)):
            word = "above" if strictly else "not below"
            raise InvalidInput(
                f"{type(kernel).__name__}: all numbers of X must be {word} {bound:g}, as in a "
                f"histogram; got {float(xp.min(X)):.6g}. Use it on counts or shares: Columns(...)."
            )


def _entropy(a: Array, b: Array) -> Array:
    """Return ½ a log₂(1 + b/a), elementwise; zero if a is zero."""
    xp = array_namespace(a, b)
    return 0.5 / math.log(2.0) * a * xp.log1p(b / xp.where(a > 0, a, xp.ones_like(a)))
