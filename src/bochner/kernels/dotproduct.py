"""Kernels of the inner product, and their power series."""

import abc
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from scipy.special import gammaln

from bochner._core.arrays import array_namespace, squared_norms
from bochner._core.checks import Counted, each, finite, integer, optional
from bochner._core.names import NamedArguments
from bochner._core.shapes import Array, Float, Others, Pairs, Rows
from bochner.errors import InvalidInput, NotPositive
from bochner.kernels import distances
from bochner.kernels.kernel import Kernel, TunedNonnegative, TunedPositive, require_finite

#: Coefficients of 1, t, t², …, or a function from integers n to log κ⁽ⁿ⁾(0).
Terms = tuple[float, ...] | Callable[[np.ndarray], np.ndarray]


def no_negative(value: Any, who: str, name: str) -> tuple[float, ...]:
    """Return coefficients of a series as a tuple, none below zero."""
    values = each(finite)(value, who, name)
    if min(values) < 0:
        raise NotPositive(
            f"{who}: {name} must be zero or above, or the kernel is not positive semi-definite; "
            f"got {min(values)!r}."
        )
    return values


def _terms(value: Any, who: str, name: str) -> Terms:
    return value if callable(value) else no_negative(value, who, name)


@dataclass(frozen=True)
class PowerSeries(NamedArguments):
    """κ(t) = Σ κ⁽ⁿ⁾(0) tⁿ/n!, all derivatives at zero zero or above: κ(⟨x, y⟩) is a kernel.

    Parameters
    ----------
    terms : sequence of float, or callable
        The coefficients of 1, t, t², …, zero or above. Or a function that returns log κ⁽ⁿ⁾(0) of
        an integer array n, elementwise; −inf where there is no term. Logarithms, because n!
        overflows at n = 171: 1/(1 − t) is ``lambda n: gammaln(n + 1.0)``.
    degree : int, optional
        Of a function, the largest n with a term; None, the default, if there is none.

    Notes
    -----
    A function is summed until terms fall below rounding, relative to κ(|t|): for negative t digits
    are lost as in every alternating series.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.special import gammaln
    >>> from bochner.kernels import PowerSeries
    >>> PowerSeries(lambda n: gammaln(n + 1.0)).value(np.array([0.0, 0.6])).round(2)
    array([1. , 2.5])
    """

    terms: Annotated[Terms, _terms]
    degree: Annotated[int | None, optional(integer)] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not callable(self.terms):
            degree = max((n for n, a in enumerate(self.terms) if a), default=0)
            object.__setattr__(self, "degree", degree)

    def log_derivative(self, n: Any) -> Float[np.ndarray, "..."]:
        """Return log κ⁽ⁿ⁾(0) for integers n, an array or one; −inf where there is no term."""
        n = np.asarray(n)
        if not callable(self.terms):
            inside = n < len(self.terms)
            with np.errstate(divide="ignore"):
                logs = np.log(np.asarray(self.terms))[np.where(inside, n, 0)]
            return np.where(inside, logs + gammaln(n + 1.0), -math.inf)
        logs = np.asarray(self.terms(n), dtype=np.float64)
        if logs.shape != n.shape or bool(np.isnan(logs).any()) or bool((logs == math.inf).any()):
            raise NotPositive(
                "PowerSeries: the function must return, for each integer n, the logarithm of a "
                f"derivative that is zero or above (-inf for zero); got {logs!r} for n = {n!r}."
            )
        return logs if self.degree is None else np.where(n <= self.degree, logs, -math.inf)

    def value(self, t: Array) -> Array:
        """Return κ(t), elementwise, for arrays of any library."""
        if not callable(self.terms):
            return horner(self.terms, t)
        xp = array_namespace(t)
        largest = float(xp.max(xp.abs(t))) if math.prod(t.shape) else 0.0
        if largest == 0:
            return 0.0 * t + math.exp(float(self.log_derivative(0)))
        logs = lambda n: self.log_derivative(n) - gammaln(n + 1.0) + n * math.log(largest)
        if self.degree is None:
            what = f"PowerSeries: the series must converge at every ⟨x, y⟩; at {largest:.3g}"
            terms = converged(logs, what)
        else:
            terms = logs(np.arange(self.degree + 1))
        return horner(tuple(np.exp(terms).tolist()), t / largest)

    def slope(self, t: Array) -> Array:
        """Return κ'(t), elementwise, by the series of the derivative."""
        if self.degree == 0:
            return 0.0 * t
        degree = self.degree and self.degree - 1
        return PowerSeries(lambda n: self.log_derivative(n + 1), degree).value(t)


def weighted(weight: float, series: PowerSeries) -> PowerSeries:
    """Return weight · series."""
    return PowerSeries(lambda n: math.log(weight) + series.log_derivative(n), series.degree)


def summed(left: PowerSeries, right: PowerSeries) -> PowerSeries:
    """Return left + right."""
    degree = None if None in (left.degree, right.degree) else max(left.degree, right.degree)  # type: ignore[type-var]
    return PowerSeries(
        lambda n: np.logaddexp(left.log_derivative(n), right.log_derivative(n)), degree
    )


def multiplied(left: PowerSeries, right: PowerSeries) -> PowerSeries:
    """Return left · right."""

    def log_derivative(n: np.ndarray) -> np.ndarray:
        k = np.arange(int(n.max(initial=0)) + 1)
        a, b = (part.log_derivative(k) - gammaln(k + 1.0) for part in (left, right))
        sums = np.array([np.logaddexp.reduce(a[: m + 1] + b[m::-1]) for m in k.tolist()])
        return (sums + gammaln(k + 1.0))[n]

    degree = None if None in (left.degree, right.degree) else left.degree + right.degree  # type: ignore[operator]
    return PowerSeries(log_derivative, degree)


def converged(logs: Callable[[np.ndarray], np.ndarray], required: str) -> Float[np.ndarray, " n"]:
    """Return the logarithms ``logs(n)`` of the terms that matter in float64."""
    count, most = 32, 4096
    while count <= most:
        terms = logs(np.arange(count))
        if terms[-count // 4 :].max() < terms.max() - 40.0 or not np.isfinite(terms.max()):
            return terms
        count *= 2
    raise InvalidInput(f"{required} it has not after {most} terms. Rescale X.")


def horner(values: tuple[float, ...], t: Array) -> Array:
    """Return values[0] + values[1] t + values[2] t² + ..., elementwise."""
    total = 0.0 * t + values[-1]
    for a in values[-2::-1]:
        total = total * t
        total += a
    return total


class DotProductKernel(Kernel):
    """A kernel κ(t) of the inner product t = ⟨x, y⟩, given by its power series."""

    @property
    @abc.abstractmethod
    def power_series(self) -> PowerSeries:
        """κ as a series of powers of t; all its derivatives at zero are zero or above."""

    def profile(self, t: Array) -> Array:
        """Return κ(t), elementwise."""
        return self.power_series.value(t)

    def slope(self, t: Array) -> Array:
        """Return κ'(t), elementwise."""
        return self.power_series.slope(t)

    def evaluate(self, X: Rows, Y: Others) -> Pairs:
        return distances.by_blocks(lambda A, B: _in_range(self, distances.inner(A, B)), X, Y)

    def diagonal(self, X: Rows) -> Float[Array, " n"]:
        return _in_range(self, squared_norms(X))

    def pullback(self, X: Rows, Y: Others, C: Pairs) -> Rows:
        return (C * self.slope(distances.inner(X, Y))) @ Y


@dataclass(frozen=True)
class Linear(DotProductKernel):
    """k(x, y) = ⟨x, y⟩: its feature map is x itself, its model the linear one.

    Examples
    --------
    >>> from bochner.kernels import Linear
    >>> Linear()([[1.0, 2.0]], [[1.0, 0.0], [0.0, 1.0]])
    array([[1., 2.]])
    """

    power_series = PowerSeries((0.0, 1.0))

    def profile(self, t: Array) -> Array:
        return t


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

    Examples
    --------
    >>> from bochner.kernels import Polynomial
    >>> Polynomial(degree=2)([[1.0, 2.0]], [[1.0, 0.0], [0.0, 1.0]])
    array([[4., 9.]])
    """

    degree: Counted = 2
    offset: TunedNonnegative = 1.0
    scale: TunedPositive = 1.0

    @property
    def power_series(self) -> PowerSeries:
        return PowerSeries(self._log_derivative, self.degree)

    def _log_derivative(self, n: np.ndarray) -> Float[np.ndarray, "..."]:
        """Return log(p!/(p − n)! scaleⁿ offset^(p − n)), p the degree."""
        rest = np.maximum(self.degree - n, 0)
        falling = gammaln(self.degree + 1.0) - gammaln(rest + 1.0) + n * math.log(self.scale)
        if self.offset == 0:
            return np.where(n == self.degree, falling, -math.inf)
        return falling + rest * math.log(self.offset)

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

    @property
    def power_series(self) -> PowerSeries:
        return PowerSeries(lambda n: n * math.log(self.scale))

    def profile(self, t: Array) -> Array:
        return array_namespace(t).exp(self.scale * t)

    def slope(self, t: Array) -> Array:
        return self.scale * self.profile(t)


@dataclass(frozen=True)
class DotProduct(DotProductKernel):
    """k(x, y) = κ(⟨x, y⟩) with your own power series κ.

    Parameters
    ----------
    series : sequence of float, or callable
        κ, as in :class:`PowerSeries`: the coefficients of 1, t, t², ..., or a function that returns
        log κ⁽ⁿ⁾(0) for an integer array n. A function of a module can be sent to other processes.

    Raises
    ------
    NotPositive
        If a derivative at zero is negative: k is positive on no ball [Schoenberg (1942)].

    Examples
    --------
    >>> DotProduct((1.0, 0.0, 0.5))([[1.0, 2.0]], [[2.0, 0.0]])
    array([[3.]])
    """

    series: Annotated[Terms, _terms]

    @property
    def power_series(self) -> PowerSeries:
        return PowerSeries(self.series)


def _in_range(kernel: DotProductKernel, t: Array) -> Array:
    """Return κ(t), or refuse it where it is beyond the dtype's largest number."""
    with np.errstate(over="ignore", invalid="ignore"):
        K = kernel.profile(t)
    remedy = ". Rescale the rows of X, or lower the scale."
    return require_finite(K, type(kernel).__name__, "k(x, y)", remedy)
