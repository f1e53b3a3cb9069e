"""The base class of kernels, and sums, products, multiples and powers of kernels."""

import abc
import operator
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, partial, reduce
from numbers import Real
from typing import Annotated, Any, ClassVar, Self, TypeVar

import numpy as np

from bochner._core import arrays, checks
from bochner._core.checks import Counted
from bochner._core.shapes import Array, Float, Others, Pairs, Rows, Tabular
from bochner.errors import InvalidInput, InvalidType, UnsupportedKernel
from bochner.kernels import hyperparameters, series, spectral
from bochner.kernels.hyperparameters import Free, Place, TunedNonnegative, TunedPositive, Value
from bochner.kernels.series import PowerSeries, RadialKernels
from bochner.kernels.spectral import Frequencies

T = TypeVar("T")

#: A function without arguments that computes and returns the values of a kernel.
Compute = Callable[[], Array]
#: Function that returns K, and function from ∂E/∂K of a scalar E to gradients of E.
Vjp = tuple[Compute, Callable[[Array], Any]]
#: Tells whether the gradient in a hyperparameter is needed; None for gradients in the rows.
NeedsGradient = Callable[[Place], bool] | None


def require_finite(K: Array, caller: str, term: str, cause: str) -> Array:
    """Return K; raise InvalidInput if a value is infinite or NaN."""
    if not arrays.all_finite(K):
        raise InvalidInput(
            f"{caller}: {term} must be a number of dtype {K.dtype}; got an overflow{cause}"
        )
    return K


class Kernel(Value, abc.ABC):
    """A positive semi-definite function k(x, y) of two rows.

    ``k(X, Y)`` is the matrix of all pairs, ``k.diag(X)`` the vector of the values k(x, x). Kernels
    can be added, multiplied, scaled and raised to powers: ``2.0 * k1 + k1 * k2**3 + 0.5``.

    To define a kernel, write a frozen dataclass that subclasses `Kernel` and defines `evaluate` and
    `diagonal`; for k of x − y only, subclass `Stationary` and define `evaluate` and `spectral`.
    `tunable` names the fields that a fit may choose. `Custom` makes a kernel from a function.

    Examples
    --------
    >>> from bochner.kernels import Gaussian, Linear
    >>> (2.0 * Gaussian() + Linear() ** 2).diag([[0.0], [1.0]])
    array([2., 3.])
    """

    # None: NumPy then calls __rmul__ of the kernel for np.float64(2) * k.
    __array_ufunc__ = None
    #: Combines values of the parts into one value, by the functions add, multiply and scale.
    fold: ClassVar[Callable[..., Any]]

    def __call__(self, X: Tabular, Y: Tabular | None = None) -> Pairs:
        """Return the kernel matrix K with K[i, j] = k(X[i], Y[j]).

        Parameters
        ----------
        X : array or sparse matrix of shape (n, d)
            Rows; float32 stays float32, other real dtypes are computed in float64.
        Y : array or sparse matrix of shape (m, d), optional
            Rows of the same array library. Default: X.

        Returns
        -------
        K : array of shape (n, m)
            Dense, of X's library and on its device.

        Notes
        -----
        O(n m d) time; memory of K plus less than 100 MB.
        """
        require_numbers(self)
        caller = type(self).__name__
        X = arrays.as_matrix(X, caller)
        if Y is None:
            return self.evaluate(X, X)
        Y = arrays.as_matrix(Y, caller, "Y")
        arrays.require_alike(X, Y, caller)
        if X.dtype != Y.dtype:
            X, Y = arrays.in_float64(X), arrays.in_float64(Y)
        return self.evaluate(X, Y)

    def diag(self, X: Rows) -> Float[Array, " n"]:
        """Return k(x, x) for each row of X (n, d), dense or sparse, in O(n d) time."""
        require_numbers(self)
        return self.diagonal(arrays.as_matrix(X, type(self).__name__))

    @abc.abstractmethod
    def evaluate(self, X: Rows, Y: Others) -> Pairs:
        """Return the matrix k(X, Y) of checked rows; ``Y is X`` for the symmetric matrix."""

    @abc.abstractmethod
    def diagonal(self, X: Rows) -> Float[Array, " n"]:
        """Return k(x, x) of checked rows."""

    # Views of the kernel for d columns; None if the kernel does not have the form.

    def spectral(self, d: int) -> Frequencies | None:
        """Return the distribution of the frequencies ω, where k(x, y) = k(0, 0) E cos ω·(x − y)."""
        return None

    def series(self, d: int) -> PowerSeries | None:
        """Return the power series κ, where k(x, y) = κ(⟨x, y⟩)."""
        return None

    def zonal(self, d: int) -> RadialKernels | None:
        """Return the radial kernels R_l, where k(x, y) = Σ_l R_l(|x|, |y|) P_l(cos ∠(x, y))."""
        kappa = self.series(d)
        return None if kappa is None else series.of_series(d, kappa)

    def exact(self, d: int) -> int | None:
        """Return D if k is exactly the inner product of D features, else None."""
        return None

    def features(self, X: Rows) -> Float[Array, "n D"]:
        """Return the exact features of checked rows; combined kernels have rules instead."""
        raise NotImplementedError

    def at_zero(self, d: int) -> float:
        """Return k(0, 0), which is k(x, x) of every x if the kernel is stationary."""
        return float(self.diagonal(np.zeros((1, d)))[0])

    # Parts of a kernel.

    @property
    def parts(self) -> dict[str, "Kernel"]:
        """Kernels that are fields of this kernel, by field name."""
        return {k: v for k, v in self.get_params(deep=False).items() if isinstance(v, Kernel)}

    def inputs(self, X: Rows) -> Rows:
        """Return the rows that the parts of this kernel receive."""
        return X

    def unwrap(self, X: Rows) -> tuple["Kernel", Rows]:
        """Return the innermost kernel of nested `Transformed` kernels, and the rows it receives."""
        return self, X

    def to_text(self, word: Callable[[Any], str] = repr, times: str = "*") -> str:
        """Return the kernel as text; ``word`` formats leaves and numbers, ``times`` multiplies."""
        return word(self)

    @property
    def summands(self) -> list["Kernel"]:
        """Summands of this kernel."""
        if not isinstance(self, Sum | Scaled):
            return [self]
        terms = [term for part in self.parts.values() for term in part.summands]
        return [Scaled(self.scale, term) for term in terms] if isinstance(self, Scaled) else terms

    def leaves(self, split: Any = None, columns: Any = None) -> Iterator[tuple["Kernel", Any]]:
        """Yield leaves and their columns; only ``split`` kernels (`Algebra`) are taken apart."""
        parts = self.parts if isinstance(self, split or Algebra) else {}
        if not parts:
            yield self, columns
        for part in parts.values():
            yield from part.leaves(split, _columns_of_parts(self, columns))

    def rebuild(self, change: Callable[..., Any], split: Any = None, columns: Any = None) -> Any:
        """Return the kernel with ``change`` applied to each of its kernels, from the leaves up.

        ``change`` takes a kernel and the columns that it uses (None if ``columns`` is None). Only
        parts of kernels of the classes ``split``, by default of all kernels, are changed.
        """
        parts = self.parts if isinstance(self, split or Kernel) else {}
        inner = _columns_of_parts(self, columns)
        parts = {name: part.rebuild(change, split, inner) for name, part in parts.items()}
        return change(self.replace(**parts) if parts else self, columns)

    def reduce(
        self,
        leaf: Callable[[Any, tuple[int, ...]], T | None],
        add: Callable[[T, T], T | None],
        multiply: Callable[[T, T], T | None],
        scale: Callable[[float, T], T | None] = lambda _, value: value,
        columns: tuple[int, ...] = (),
    ) -> T | None:
        """Combine values of ``leaf(part, columns)`` over the kernel; None if any value is None."""
        # Columns(...) is a leaf if ``columns`` lacks the columns that it uses.
        if isinstance(self, Columns) and max(self.columns) < len(columns):
            columns = tuple(columns[c] for c in self.columns)
        elif not isinstance(self, Algebra):
            return leaf(self, columns)
        values = [part.reduce(leaf, add, multiply, scale, columns) for part in self.parts.values()]
        if any(value is None for value in values):
            return None
        times = lambda a, b: None if a is None else multiply(a, b)
        return self.fold(*values, add=add, multiply=times, scale=scale)

    def pullback(self, X: Rows, Y: Others, C: Pairs) -> Rows:
        """Return Σ_j C[i, j] ∂k(x_i, y_j)/∂x_i for each row i, shape (n, d).

        Rows must be checked and dense, of one library and dtype; X must not be empty. Takes
        O(n m d) time and the memory of a few (n, m) matrices, so pass blocks of rows. Raises
        UnsupportedKernel if the gradient has no closed form.
        """
        raise UnsupportedKernel(
            f"Gradients in rows have no closed form for {type(self).__name__}. Kernels with "
            "one: smooth kernels of x − y, Linear, Polynomial, DotExponential, DotProduct, "
            "SkewedChi2, and sums, products, powers, Exp, Columns, Mahalanobis, Monotone, OnSphere "
            "and Windows of these."
        )

    def vjp(self, X: Rows, Y: Others, needs: NeedsGradient) -> Vjp:
        """Return two functions: one returns K, the other maps ∂E/∂K to gradients of E.

        If ``needs`` is None, gradients are in the rows X. Otherwise Y must be X, and gradients are
        in the logarithms of the hyperparameters that need them. Cost: a few kernel matrices.
        """
        if needs is None:
            return cache(lambda: self.evaluate(X, Y)), lambda C: self.pullback(X, Y, C)
        K, backward = self.hyperparameter_vjp(X)
        return K, lambda C: hyperparameters.differences(self, X, C, needs, backward(C))

    def hyperparameter_vjp(self, X: Rows) -> Vjp:
        """Return `vjp` with the gradients in the hyperparameters whose slope has a formula."""
        return cache(lambda: self.evaluate(X, X)), lambda _: {}

    def _part_vjp(self, name: str, X: Rows, Y: Others, needs: NeedsGradient) -> Vjp:
        """Return `vjp` of a part; paths of hyperparameters start at this kernel."""
        part = self.parts[name]
        if needs is None:
            return part.vjp(X, Y, None)
        K, backward = part.vjp(X, Y, lambda place: needs(place.with_prefix(name)))
        return K, lambda C: {place.with_prefix(name): slope for place, slope in backward(C).items()}

    def __sklearn_clone__(self) -> Self:
        return self

    def __add__(self, other: "Kernel | float") -> "Sum":
        return NotImplemented if (o := _as_kernel(other)) is None else Sum(self, o)

    def __radd__(self, other: float) -> "Sum":
        return NotImplemented if (o := _as_kernel(other)) is None else Sum(o, self)

    def __mul__(self, other: "Kernel | float") -> "Product | Scaled":
        return Product(self, other) if isinstance(other, Kernel) else self.__rmul__(other)

    def __rmul__(self, other: float) -> "Scaled":
        is_factor = _is_number(other) or isinstance(other, Free)
        return Scaled(other, self) if is_factor else NotImplemented

    def __pow__(self, exponent: int) -> "Power":
        return Power(self, exponent) if _is_number(exponent) else NotImplemented


def require_kernel(value: Any, caller: str, name: str = "kernel") -> Any:
    """Return ``value``; raise InvalidType if it is not a kernel."""
    if not isinstance(value, Kernel):
        raise InvalidType(
            f"{caller}: {name} must be a Kernel; got {value!r} of type {type(value).__name__}. "
            "Pass a value such as Gaussian(lengthscale=1.0), or Custom(your_function)."
        )
    return value


#: The type of a field that is a kernel.
Part = Annotated[Kernel, require_kernel]


@dataclass(frozen=True)
class Constant(Kernel):
    """The same value for every pair: k(x, y) = c.

    Parameters
    ----------
    value : float, default 1.0
        c ≥ 0.

    Examples
    --------
    >>> from bochner.kernels import Constant, Linear
    >>> (Linear() + Constant(2.0))([[1.0]], [[0.0], [3.0]])
    array([[2., 5.]])
    """

    value: TunedNonnegative = 1.0

    def evaluate(self, X: Rows, Y: Others) -> Pairs:
        return self._fill((X.shape[0], Y.shape[0]), X)

    def diagonal(self, X: Rows) -> Float[Array, " n"]:
        return self._fill((X.shape[0],), X)

    def spectral(self, d: int) -> Frequencies:
        return spectral.Composite((), lambda m, _: np.zeros((d, m)), lambda: 0.0)

    def series(self, d: int) -> PowerSeries:
        return PowerSeries((self.value,))

    def exact(self, d: int) -> int:
        return 1

    def features(self, X: Rows) -> Float[Array, "n 1"]:
        return self.diagonal(X)[:, None] ** 0.5

    def pullback(self, X: Rows, Y: Others, C: Pairs) -> Rows:
        return arrays.array_namespace(X).zeros_like(X)

    def _fill(self, shape: tuple[int, ...], like: Array) -> Array:
        xp = arrays.array_namespace(like)
        return xp.full(shape, self.value, dtype=like.dtype, device=arrays.device(like))


def _columns_of_parts(kernel: Kernel, columns: Any) -> Any:
    """Return the columns that the parts of a kernel use, if the kernel uses ``columns``."""
    if columns is None or not isinstance(kernel, Columns):
        return columns
    return [columns[c] for c in kernel.columns if c < len(columns)]


def inner_spectral(self: Any, d: int) -> Frequencies | None:
    """Return the spectral measure, which equals the inner kernel's."""
    return self.kernel.spectral(d)


def inner_exact(self: Any, d: int) -> int | None:
    """Return the number of exact features, which equals the inner kernel's."""
    return self.kernel.exact(d)


class Combined(Kernel):
    """A kernel whose values are a function of the values of other kernels of the same rows."""

    @abc.abstractmethod
    def combine(self, *parts: Compute) -> Array:
        """Return k, given functions that return the values of the parts."""
        # NumPy adds and multiplies in place if no variable refers to the result of a call.

    @abc.abstractmethod
    def backward(self, C: Array, K: Compute, *parts: Compute) -> Iterable[Array]:
        """Return ∂E/∂part for each part, given C = ∂E/∂k; ``K()`` and ``part()`` return values."""

    #: Whether K is cached during gradients; False if one operation computes K from the parts.
    caches_values: ClassVar[bool] = True

    def slopes(self, C: Array, *parts: Compute) -> dict[Place, float]:
        """Return gradients in the logarithms of this kernel's fields that have a formula."""
        return {}

    def evaluate(self, X: Rows, Y: Others) -> Pairs:
        return self.combine(*(partial(part.evaluate, X, Y) for part in self.parts.values()))

    def diagonal(self, X: Rows) -> Float[Array, " n"]:
        return self.combine(*(partial(part.diagonal, X) for part in self.parts.values()))

    def pullback(self, X: Rows, Y: Others, C: Pairs) -> Rows:
        return self.vjp(X, Y, None)[1](C)

    def vjp(self, X: Rows, Y: Others, needs: NeedsGradient) -> Vjp:
        parts = [self._part_vjp(name, X, Y, needs) for name in self.parts]
        values, backward_functions = zip(*parts, strict=True)
        value = lambda: self.combine(*values)
        K = cache(value) if self.caches_values else value

        def gradients(C: Array) -> Any:
            pairs = zip(backward_functions, self.backward(C, K, *values), strict=True)
            slopes = [backward(slope) for backward, slope in pairs]
            if needs is None:
                return reduce(operator.add, slopes)
            result = reduce(operator.or_, slopes, self.slopes(C, *values))
            is_missing = any(Place(name) not in result for name in self.tunable)
            return hyperparameters.differences(self, X, C, needs, result) if is_missing else result

        return K, gradients


class Algebra(Combined):
    """A sum, product, multiple or power of kernels; its views follow from views of its parts."""

    def series(self, d: int) -> PowerSeries | None:
        return self.reduce(lambda part, _: part.series(d), *series.SERIES_OPS)

    def zonal(self, d: int) -> RadialKernels | None:
        return self.reduce(lambda part, _: part.zonal(d), *series.RADIAL_OPS)

    def exact(self, d: int) -> int | None:
        return self.reduce(lambda part, _: part.exact(d), operator.add, operator.mul)

    def __repr__(self) -> str:
        return self.to_text()


def _bracket(part: Kernel, style: tuple[Callable[[Any], str], str], *looser: type[Kernel]) -> str:
    """Return a part as text, in brackets if its operator is one of ``looser``."""
    return f"({part.to_text(*style)})" if isinstance(part, looser) else part.to_text(*style)


@dataclass(frozen=True, repr=False)
class Sum(Algebra):
    """k(x, y) = left(x, y) + right(x, y); written ``left + right``.

    Parameters
    ----------
    left, right : Kernel

    Examples
    --------
    >>> from bochner.kernels import Gaussian, Linear
    >>> (Gaussian() + Linear())([[1.0]], [[1.0], [3.0]]).round(2)
    array([[2.  , 3.14]])
    """

    left: Part
    right: Part

    def to_text(self, *style: Any) -> str:
        return f"{self.left.to_text(*style)} + {_bracket(self.right, style, Sum)}"

    def spectral(self, d: int) -> Frequencies | None:
        parts = self.left, self.right
        sizes = lambda: [part.at_zero(d) for part in parts]

        def draw(m: int, rng: np.random.Generator, *draws: Compute) -> Array:
            W, (a, b) = [draw_part() for draw_part in draws], sizes()
            return np.where(rng.random(m) * (a + b) < a, *W)

        pairs = lambda squares: zip(sizes(), squares, strict=True)
        moment = lambda *squares: sum(a * s for a, s in pairs(squares) if a) / self.at_zero(d)
        return spectral.composite(draw, moment, *(part.spectral(d) for part in parts))

    fold = lambda _, left, right, add, **_how: add(left, right)
    caches_values = False

    def combine(self, *parts: Compute) -> Array:
        return parts[0]() + parts[1]()

    def backward(self, C: Array, K: Compute, *parts: Compute) -> tuple[Array, ...]:
        return C, C


@dataclass(frozen=True, repr=False)
class Product(Algebra):
    """k(x, y) = left(x, y) · right(x, y); written ``left * right``.

    Parameters
    ----------
    left, right : Kernel

    Examples
    --------
    >>> from bochner.kernels import Gaussian, Linear
    >>> (Gaussian() * Linear())([[1.0]], [[1.0], [3.0]]).round(2)
    array([[1.  , 0.41]])
    """

    left: Part
    right: Part

    def to_text(self, word: Callable[[Any], str] = repr, times: str = "*") -> str:
        left, style = _bracket(self.left, (word, times), Sum), (word, times)
        return f"{left} {times} {_bracket(self.right, style, Sum, Product, Scaled)}"

    def spectral(self, d: int) -> Frequencies | None:
        # Frequencies of an orthogonal block are dependent; the permutation makes pairs independent.
        draw = lambda m, rng, left, right: left() + right()[:, rng.permutation(m)]
        return spectral.composite(draw, operator.add, self.left.spectral(d), self.right.spectral(d))

    fold = lambda _, left, right, multiply, **_how: multiply(left, right)

    def combine(self, *parts: Compute) -> Array:
        return parts[0]() * parts[1]()

    def backward(self, C: Array, K: Compute, *parts: Compute) -> Iterator[Array]:
        yield C * parts[1]()
        yield C * parts[0]()


@dataclass(frozen=True, repr=False)
class Scaled(Algebra):
    """k(x, y) = scale · kernel(x, y); written ``scale * kernel``.

    Parameters
    ----------
    scale : float
        Positive and finite; the variance k(x, x) of a stationary kernel.
    kernel : Kernel

    Examples
    --------
    >>> from bochner.kernels import Gaussian
    >>> 2.0 * Gaussian()
    2.0 * Gaussian(lengthscale=1.0)
    >>> (2.0 * Gaussian()).diag([[0.0], [1.0]])
    array([2., 2.])
    """

    scale: TunedPositive
    kernel: Part

    def to_text(self, word: Callable[[Any], str] = repr, times: str = "*") -> str:
        inner = _bracket(self.kernel, (word, times), Sum, Product, Scaled)
        return f"{word(self.scale)} {times} {inner}"

    spectral = inner_spectral
    fold = lambda self, value, scale, **_how: scale(self.scale, value)
    caches_values = False

    def combine(self, *parts: Compute) -> Array:
        return self.scale * parts[0]()

    def backward(self, C: Array, K: Compute, *parts: Compute) -> tuple[Array, ...]:
        return (self.scale * C,)

    def slopes(self, C: Array, *parts: Compute) -> dict[Place, float]:
        return {Place("scale"): float(self.scale * np.vdot(C, parts[0]()))}


@dataclass(frozen=True, repr=False)
class Power(Algebra):
    """k(x, y) = kernel(x, y)^p for an integer p; written ``kernel ** p``.

    ``(Linear() + 1.0) ** 3`` is the polynomial kernel of degree 3. Integer powers are positive
    semi-definite by Schur's theorem; other powers need not be.

    Parameters
    ----------
    kernel : Kernel
    exponent : int
        p ≥ 1.

    Examples
    --------
    >>> from bochner.kernels import Linear
    >>> ((Linear() + 1.0) ** 3)([[1.0]], [[0.0], [1.0]])
    array([[1., 8.]])
    """

    kernel: Part
    exponent: Counted

    def to_text(self, *style: Any) -> str:
        return f"{_bracket(self.kernel, style, Sum, Product, Scaled, Power)}**{self.exponent}"

    def spectral(self, d: int) -> Frequencies | None:
        p, part = self.exponent, self.kernel.spectral(d)
        draw = lambda m, rng, draw_part: sum(draw_part()[:, rng.permutation(m)] for _ in range(p))
        return spectral.composite(draw, lambda square: p * square, part)

    fold = lambda self, value, multiply, **_how: reduce(multiply, [value] * self.exponent)

    def combine(self, *parts: Compute) -> Array:
        return parts[0]() ** self.exponent

    def backward(self, C: Array, K: Compute, *parts: Compute) -> tuple[Array, ...]:
        return (C * (self.exponent * parts[0]() ** (self.exponent - 1)),)


class Transformed(Kernel):
    """A kernel of transformed rows: k(x, y) = kernel(f(x), f(y))."""

    kernel: Kernel
    pullback = Combined.pullback

    @abc.abstractmethod
    def inputs(self, X: Rows) -> Float[Array, "n e"]:
        """Return the transformed rows f(x), which the inner kernel receives."""

    def backward(self, X: Rows, G: Float[Array, "n e"]) -> Rows:
        """Return gradients in the rows X, from gradients G in the transformed rows."""
        raise UnsupportedKernel(
            f"Gradients in rows require the derivative of the transformation; {self!r} has a "
            "custom function. Transform the rows first, and take gradients in those."
        )

    def evaluate(self, X: Rows, Y: Others) -> Pairs:
        U = self.inputs(X)
        return self.kernel.evaluate(U, U if Y is X else self.inputs(Y))

    def diagonal(self, X: Rows) -> Float[Array, " n"]:
        return self.kernel.diagonal(self.inputs(X))

    def unwrap(self, X: Rows) -> tuple[Kernel, Rows]:
        return self.kernel.unwrap(self.inputs(X))

    def vjp(self, X: Rows, Y: Others, needs: NeedsGradient) -> Vjp:
        U = self.inputs(X)
        K, backward = self._part_vjp("kernel", U, U if Y is X else self.inputs(Y), needs)
        if needs is None:
            return K, lambda C: self.backward(X, backward(C))
        return K, lambda C: hyperparameters.differences(self, X, C, needs, backward(C))


def require_columns(caller: str, columns: tuple[int, ...], X: Array) -> None:
    """Refuse columns that X does not have."""
    if max(columns) >= X.shape[1]:
        raise InvalidInput(
            f"{caller}: columns must be below the number of columns of X; got column "
            f"{max(columns)} of {X.shape[1]} (counted from 0)."
        )


@dataclass(frozen=True)
class Columns(Transformed):
    """A kernel of some of the columns: k(x, y) = kernel(x[columns], y[columns]).

    Parameters
    ----------
    kernel : Kernel
        Lengthscales per column are given in the order of ``columns``.
    columns : tuple of int
        Column numbers from 0, each once.

    Examples
    --------
    >>> from bochner.kernels import Columns, Gaussian
    >>> Columns(Gaussian(), (1,))([[0.0, 0.0]], [[9.0, 0.0], [0.0, 1.0]]).round(2)
    array([[1.  , 0.61]])
    """

    kernel: Part
    columns: Annotated[tuple[int, ...], checks.integers]
    fold = lambda _, value, **_how: value

    def inputs(self, X: Rows) -> Float[Array, "n c"]:
        require_columns("Columns", self.columns, X)
        return arrays.take(X, np.array(self.columns), axis=1)

    def backward(self, X: Rows, G: Float[Array, "n e"]) -> Rows:
        return G @ arrays.adapt(np.eye(X.shape[1])[list(self.columns)], like=G)

    def spectral(self, d: int) -> Frequencies | None:
        embed = lambda _m, _rng, draw_part: np.eye(d)[:, list(self.columns)] @ draw_part()
        return spectral.composite(embed, float, self.kernel.spectral(len(self.columns)))

    def exact(self, d: int) -> int | None:
        return self.kernel.exact(len(self.columns))


def has_free(kernel: object) -> bool:
    """Whether a kernel has free hyperparameters, which a fit must choose."""
    for number in kernel.get_params().values() if isinstance(kernel, Kernel) else ():
        if Free in map(type, number if isinstance(number, tuple) else (number,)):
            return True
    return False


def require_numbers(kernel: Kernel) -> None:
    """Refuse a kernel with free hyperparameters, which has no values before a fit."""
    if has_free(kernel):
        raise InvalidInput(
            'A kernel with free hyperparameters ("auto") has no values before a fit chooses them. '
            "Fit an estimator and use its kernel_, or pass all hyperparameters."
        )


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _as_kernel(value: object) -> Kernel | None:
    """Coerce an operand of + to a kernel; None if it is neither a number nor a kernel."""
    if isinstance(value, Kernel):
        return value
    return Constant(value) if _is_number(value) else None  # type: ignore[arg-type]
