"""Kernels of the inner product, and their power series."""

import abc
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from scipy.special import gammaln

from bochner._core.arrays import array_namespace
from bochner._core.checks import Counted, Positive, each, finite, integer, nonnegative, optional
from bochner._core.names import NamedArguments
from bochner._core.shapes import Array, Float, Others, Pairs, Rows
from bochner.errors import InvalidInput, NotPositive
from bochner.kernels import distances
from bochner.kernels.free import TunedNonnegative, TunedPositive
from bochner.kernels.kernel import Kernel, require_function

TERMS = 4096  # Terms after which a power series counts as divergent


class PowerSeries(NamedArguments, abc.ABC):
    """κ(t) = Σ κ⁽ⁿ⁾(0) tⁿ/n!, all derivatives at zero zero or above: κ(⟨x, y⟩) is a kernel.

    See Also
    --------
    Coefficients, LogDerivatives : The two ways to give one.

    Examples
    --------
    >>> from bochner.kernels import Coefficients, DotProduct, PowerSeries
    >>> series = Coefficients((1.0, 0.0, 0.5))
    >>> isinstance(series, PowerSeries), DotProduct(series)([[1.0]], [[2.0]])
    (True, array([[3.]]))
    """

    @property
    @abc.abstractmethod
    def degree(self) -> int | None:
        """Largest n with a term, None if there is none."""

    @abc.abstractmethod
    def log_derivative(self, n: Any) -> Float[np.ndarray, "..."]:
        """Return log κ⁽ⁿ⁾(0) for integers n, an array or one; −inf where there is no term."""

    @abc.abstractmethod
    def value(self, t: Array) -> Array:
        """Return κ(t), elementwise, for arrays of any library."""

    def slope(self, t: Array) -> Array:
        """Return κ'(t), elementwise: the series of one derivative more."""
        if self.degree == 0:
            return 0.0 * t
        degree = self.degree and self.degree - 1
        return LogDerivatives(lambda n: self.log_derivative(n + 1), degree).value(t)


@dataclass(frozen=True)
class Coefficients(PowerSeries):
    """κ(t) = values[0] + values[1] t + values[2] t² + ...

    Parameters
    ----------
    values : tuple of float
        Zero or above, at least one.

    See Also
    --------
    LogDerivatives : For series without an end.

    Examples
    --------
    >>> from bochner.kernels import Coefficients, DotProduct
    >>> DotProduct(Coefficients((0.0, 1.0, 1.0)))([[1.0]], [[2.0], [3.0]])
    array([[ 6., 12.]])
    """

    values: Annotated[tuple[float, ...], each(finite)]

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.values) < 0:
            raise NotPositive(
                "Coefficients: values must be zero or above, or the kernel is not positive "
                f"semi-definite on balls; got {min(self.values)!r}. On the sphere alone fewer "
                "conditions hold: see Zonal."
            )

    @property
    def degree(self) -> int | None:
        return max((n for n, a in enumerate(self.values) if a), default=0)

    def log_derivative(self, n: Any) -> Float[np.ndarray, "..."]:
        n = np.asarray(n)
        inside = n < len(self.values)
        with np.errstate(divide="ignore"):
            logs = np.log(np.asarray(self.values))[np.where(inside, n, 0)]
        return np.where(inside, logs + gammaln(n + 1.0), -math.inf)

    def value(self, t: Array) -> Array:
        return horner(self.values, t)


@dataclass(frozen=True)
class ExponentialSeries(PowerSeries):
    """κ(t) = weight·exp(scale·t): κ⁽ⁿ⁾(0) = weight·scaleⁿ."""

    scale: Positive = 1.0
    weight: Positive = 1.0

    degree = None

    def log_derivative(self, n: Any) -> Float[np.ndarray, "..."]:
        return math.log(self.weight) + np.asarray(n) * math.log(self.scale)

    def value(self, t: Array) -> Array:
        values = array_namespace(t).exp(self.scale * t)
        return values if self.weight == 1 else self.weight * values

    def slope(self, t: Array) -> Array:
        return self.scale * self.value(t)


@dataclass(frozen=True)
class Binomial(PowerSeries):
    """κ(t) = (scale·t + offset)^power: κ⁽ⁿ⁾(0) = power!/(power − n)! scaleⁿ offset^(power − n)."""

    power: Annotated[int, integer]
    offset: Annotated[float, nonnegative] = 1.0
    scale: Positive = 1.0

    @property
    def degree(self) -> int | None:
        return self.power

    def log_derivative(self, n: Any) -> Float[np.ndarray, "..."]:
        n = np.asarray(n)
        rest = np.maximum(self.power - n, 0)
        falling = gammaln(self.power + 1.0) - gammaln(rest + 1.0) + n * math.log(self.scale)
        if self.offset == 0:
            return np.where(n == self.power, falling, -math.inf)
        return np.where(n <= self.power, falling + rest * math.log(self.offset), -math.inf)

    def value(self, t: Array) -> Array:
        return (self.scale * t + self.offset) ** self.power

    def slope(self, t: Array) -> Array:
        if self.power == 0:
            return 0.0 * t
        return self.scale * self.power * (self.scale * t + self.offset) ** (self.power - 1)


@dataclass(frozen=True)
class LogDerivatives(PowerSeries):
    """A power series by the logarithms of its derivatives at zero.

    Parameters
    ----------
    function : callable
        log κ⁽ⁿ⁾(0) of an integer array n, elementwise; −inf where there is no term. Logarithms,
        because n! overflows at n = 171: 1/(1 − t) is ``lambda n: gammaln(n + 1.0)``.
    degree : int, optional
        Largest n with a term; None, the default, if there is none.

    See Also
    --------
    Coefficients : For polynomials.

    Notes
    -----
    κ(t) is summed until terms fall below rounding, relative to κ(|t|): for negative t digits are
    lost as in every alternating series.

    Examples
    --------
    >>> from scipy.special import gammaln
    >>> from bochner.kernels import DotProduct, LogDerivatives
    >>> kernel = DotProduct(LogDerivatives(lambda n: gammaln(n + 1.0)))
    >>> kernel([[1.0]], [[0.0], [0.6]]).round(2)
    array([[1. , 2.5]])
    """

    function: Annotated[Callable[[np.ndarray], np.ndarray], require_function]
    degree: Annotated[int | None, optional(integer)] = None

    def log_derivative(self, n: Any) -> Float[np.ndarray, "..."]:
        n = np.asarray(n)
        logs = np.asarray(self.function(n), dtype=np.float64)
        if logs.shape != n.shape or bool(np.isnan(logs).any()) or bool((logs == math.inf).any()):
            raise NotPositive(
                "LogDerivatives: function must return, for each integer n, the logarithm of a "
                f"derivative that is zero or above (-inf for zero); got {logs!r} for n = {n!r}."
            )
        return logs if self.degree is None else np.where(n <= self.degree, logs, -math.inf)

    def value(self, t: Array) -> Array:
        xp = array_namespace(t)
        largest = float(xp.max(xp.abs(t))) if math.prod(t.shape) else 0.0
        if largest == 0:
            return 0.0 * t + math.exp(float(self.log_derivative(0)))
        logs = lambda n: self.log_derivative(n) - gammaln(n + 1.0) + n * math.log(largest)
        if self.degree is None:
            what = f"LogDerivatives: the series must converge at every ⟨x, y⟩; at {largest:.3g}"
            terms = converged(logs, what)
        else:
            terms = logs(np.arange(self.degree + 1))
        return horner(tuple(np.exp(terms).tolist()), t / largest)


def weighted(weight: float, series: PowerSeries) -> PowerSeries:
    """Return weight · series."""
    if isinstance(series, ExponentialSeries):
        return ExponentialSeries(series.scale, weight * series.weight)
    return LogDerivatives(lambda n: math.log(weight) + series.log_derivative(n), series.degree)


def summed(left: PowerSeries, right: PowerSeries) -> PowerSeries:
    """Return left + right."""
    degree = None if None in (left.degree, right.degree) else max(left.degree, right.degree)  # type: ignore[type-var]
    return LogDerivatives(
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
    return LogDerivatives(log_derivative, degree)


def converged(logs: Callable[[np.ndarray], np.ndarray], required: str) -> Float[np.ndarray, " n"]:
    """Return the logarithms of the first terms, ``logs(n)``, as many as matter in float64."""
    count = 32
    while count <= TERMS:
        terms = logs(np.arange(count))
        if terms[-count // 4 :].max() < terms.max() - 40.0 or not np.isfinite(terms.max()):
            return terms
        count *= 2
    raise InvalidInput(f"{required} it has not after {TERMS} terms. Rescale X.")


def horner(values: tuple[float, ...], t: Array) -> Array:
    """Return values[0] + values[1] t + values[2] t² + ..., elementwise."""
    total = 0.0 * t
    for a in reversed(values):
        total = total * t + a
    return total


# --- Kernels of the inner product ⟨x, y⟩ alone ---------------------------------------------------


class DotProductKernel(Kernel):
    """A kernel κ(t) of the inner product t = ⟨x, y⟩, given by its power series.

    See Also
    --------
    DotProduct : Of a power series of your own.

    Examples
    --------
    >>> from bochner.kernels import DotProductKernel, Gaussian, Polynomial
    >>> isinstance(Polynomial(), DotProductKernel), isinstance(Gaussian(), DotProductKernel)
    (True, False)
    """

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

    def pullback(self, X: Rows, Y: Others, C: Pairs) -> Rows:
        return (C * self.power_series.slope(distances.inner(X, Y))) @ Y


@dataclass(frozen=True)
class Linear(DotProductKernel):
    """k(x, y) = ⟨x, y⟩: its feature map is x itself, its model the linear one.

    See Also
    --------
    Polynomial : Products of columns too.
    Bilinear : Another inner product.

    Examples
    --------
    >>> from bochner.kernels import Linear
    >>> Linear()([[1.0, 2.0]], [[1.0, 0.0], [0.0, 1.0]])
    array([[1., 2.]])
    """

    power_series = Coefficients((0.0, 1.0))

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

    See Also
    --------
    DotProduct : Any power series.

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
        return Binomial(self.degree, self.offset, self.scale)


@dataclass(frozen=True)
class DotExponential(DotProductKernel):
    """k(x, y) = exp(scale·⟨x, y⟩), the kernel of softmax attention.

    Parameters
    ----------
    scale : float, default 1.0
        Positive; 1/√d in attention [Vaswani et al. (2017), eq. 1].

    See Also
    --------
    Exp : The exponential of any kernel.

    Examples
    --------
    >>> from bochner.kernels import DotExponential
    >>> DotExponential(scale=0.5)([[1.0, 2.0]], [[1.0, 0.0], [0.0, 1.0]]).round(2)
    array([[1.65, 2.72]])
    """

    scale: TunedPositive = 1.0

    @property
    def power_series(self) -> PowerSeries:
        return ExponentialSeries(self.scale)


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
        given: Any = self.series
        if not isinstance(given, PowerSeries):
            series = LogDerivatives(given) if callable(given) else Coefficients(given)
            object.__setattr__(self, "series", series)

    @property
    def power_series(self) -> PowerSeries:
        return self.series


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
