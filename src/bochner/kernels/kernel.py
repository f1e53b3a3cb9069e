"""Kernels as values, their sums, products, multiples and powers, and what these are made of."""

import abc
import operator
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial, reduce
from numbers import Real
from typing import Annotated, Any, ClassVar, Self, TypeVar

import numpy as np

from bochner._core import arrays, checks
from bochner._core.checks import Check, Counted, MaybePositive, nonnegative, positive
from bochner._core.names import NamedArguments, replacement
from bochner._core.shapes import Array, Float, Others, Pairs, Rows, Tabular
from bochner.errors import InvalidInput, InvalidType, UnsupportedKernel
from bochner.kernels import series, spectral
from bochner.kernels.series import PowerSeries, RadialKernels
from bochner.kernels.spectral import Frequencies

T = TypeVar("T")

#: A function that returns the values of a kernel, computed when asked for.
Values = Callable[[], Array]


class Value(NamedArguments):
    """A dataclass whose fields are found and replaced by path, such as ``left__lengthscale``."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the fields by name; with ``deep`` also those of its parts, by path."""
        params: dict[str, Any] = {}
        for name in [f.name for f in fields(self)] if is_dataclass(self) else list[str]():
            params[name] = part = getattr(self, name)
            if deep and isinstance(part, Value):
                params |= {f"{name}__{path}": v for path, v in part.get_params().items()}
        return params

    def replace(self, **changes: Any) -> Self:
        """Return it with other numbers, by path: ``k.replace(left__lengthscale=0.7)``."""
        params, of_parts = self.get_params(deep=False), dict[str, dict[str, Any]]()
        direct = {path: new for path, new in changes.items() if "__" not in path}
        for path, new in changes.items():
            name, _, rest = path.partition("__")
            part = direct.get(name, params.get(name))
            if name not in params or (rest and not isinstance(part, Value)):
                known = ", ".join(self.get_params()) or "none: it has no parameters"
                right = replacement(type(self).__name__, name, tuple(params))
                advice = f"; its parameters are: {known}." if right is None else f": give {right}."
                raise InvalidInput(f"{type(self).__name__} has no parameter {path!r}{advice}")
            if rest:
                of_parts.setdefault(name, {})[rest] = new
        result: Any = replace(self, **direct) if direct else self  # type: ignore[type-var]
        for name, within in of_parts.items():
            result = replace(result, **{name: getattr(result, name).replace(**within)})
        return result


@dataclass(frozen=True)
class Free(Value):
    """Number of a kernel that a fit chooses; ``"auto"`` is short for ``Free()``.

    A kernel with such a number is a specification: estimators choose the number and store the
    kernel as ``kernel_``. Other numbers do not change. Each term of a sum without a weight gets a
    weight, which is chosen too.

    Parameters
    ----------
    start : float, optional
        Positive. Start of the search, in addition to starts from the rows.
    low, high : float, optional
        Positive. Bounds of the number. Default: derived from the rows.

    Examples
    --------
    >>> from bochner.kernels import Free, Gaussian, Linear
    >>> Gaussian("auto") + Gaussian(Free(start=50.0)) * Linear()
    Gaussian(lengthscale='auto') + Gaussian(lengthscale=Free(start=50.0)) * Linear()
    """

    start: MaybePositive = None
    low: MaybePositive = None
    high: MaybePositive = None

    def __post_init__(self) -> None:
        super().__post_init__()
        given = [value for value in (self.low, self.start, self.high) if value is not None]
        if sorted(given) != given or (self.low is not None and self.low == self.high):
            raise InvalidInput(
                "Free: low ≤ start ≤ high and low < high are required; got "
                f"low={self.low}, start={self.start}, high={self.high}."
            )

    def __repr__(self) -> str:
        named = (("start", self.start), ("low", self.low), ("high", self.high))
        given = [f"{name}={value}" for name, value in named if value is not None]
        return f"Free({', '.join(given)})" if given else "'auto'"


def free_or(check: Check) -> Check:
    """Return the check of a number, or of one per column; each may be free."""

    def one(value: Any, who: str, name: str) -> Any:
        if isinstance(value, str) and value == "auto":
            return Free()
        return value if isinstance(value, Free) else check(value, who, name)

    def checked(value: Any, who: str, name: str) -> Any:
        if isinstance(value, list | tuple) and any(isinstance(v, Free | str) for v in value):
            return tuple(one(item, who, f"{name}[{j}]") for j, item in enumerate(value))
        return one(value, who, name)

    return checked


#: The mark of a field that a fit may find.
TUNED = "tuned"

TunedPositive = Annotated[float, free_or(positive), TUNED]
TunedNonnegative = Annotated[float, free_or(nonnegative), TUNED]
#: A number for all columns, or one per column.
TunedNumbers = Annotated[float | tuple[float, ...], free_or(checks.one_or_each(positive)), TUNED]


def require_finite(K: Array, who: str, what: str, cause: str) -> Array:
    """Return computed values; refuse an overflow."""
    if not arrays.all_finite(K):
        raise InvalidInput(
            f"{who}: {what} must be a number of dtype {K.dtype}; got an overflow{cause}"
        )
    return K


class Kernel(Value, abc.ABC):
    """A positive semi-definite function k(x, y) of two rows.

    ``k(X, Y)`` is the matrix of all pairs, ``k.diag(X)`` the values k(x, x). Kernels add and
    multiply with one another and with numbers, and have powers: ``2.0 * k1 + k1 * k2**3 + 0.5``.

    A kernel of your own is a frozen dataclass that subclasses `Kernel` (or `Stationary`, if it
    depends on x − y alone) and defines `evaluate` and `diagonal`. `tunable` names the numbers
    that a fit may find. `Custom` is a kernel from a function.

    Examples
    --------
    >>> from bochner.kernels import Gaussian, Linear
    >>> (2.0 * Gaussian() + Linear() ** 2).diag([[0.0], [1.0]])
    array([2., 3.])
    """

    # NumPy then leaves np.float64(2) * k to the kernel.
    __array_ufunc__ = None

    #: Fields that a fit may find: numbers, or tuples of such. A class whose fields are annotated
    #: with :data:`TunedPositive` and the like has these.
    tunable: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        annotations = vars(cls).get("__annotations__", {})
        tuned = tuple(
            k for k, kind in annotations.items() if TUNED in getattr(kind, "__metadata__", ())
        )
        cls.tunable = tuned or cls.tunable

    def __call__(self, X: Tabular, Y: Tabular | None = None) -> Pairs:
        """Return the kernel matrix K with K[i, j] = k(X[i], Y[j]).

        Parameters
        ----------
        X : array or sparse matrix of shape (n, d)
            Rows; float32 stays float32, other real dtypes are computed in float64.
        Y : array or sparse matrix of shape (m, d), optional
            Rows of the same library; X if not given.

        Returns
        -------
        K : array of shape (n, m)
            Dense, of X's library and on its device.

        Notes
        -----
        O(n m d) time; memory for K and less than 100 MB more.
        """
        require_numbers(self)
        who = type(self).__name__
        X = arrays.as_matrix(X, who)
        if Y is None:
            return self.evaluate(X, X)
        Y = arrays.as_matrix(Y, who, "Y")
        arrays.require_alike(X, Y, who)
        if X.dtype != Y.dtype:
            X, Y = arrays.in_float64(X), arrays.in_float64(Y)
        return self.evaluate(X, Y)

    def diag(self, X: Rows) -> Float[Array, " n"]:
        """Return k(x, x) for each row of X (n, d), dense or sparse, in O(n d) time."""
        require_numbers(self)
        return self.diagonal(arrays.as_matrix(X, type(self).__name__))

    @abc.abstractmethod
    def evaluate(self, X: Rows, Y: Others) -> Pairs:
        """Return all pairs of checked rows; ``Y is X`` when the matrix is symmetric."""

    @abc.abstractmethod
    def diagonal(self, X: Rows) -> Float[Array, " n"]:
        """Return k(x, x) of checked rows."""

    # Views: what else is known of the kernel for d columns; None where it is not of this form.

    def spectral(self, d: int) -> Frequencies | None:
        """Return the law of the frequencies ω, where k(x, y) = k(0, 0) E cos ω·(x − y)."""
        return None

    def series(self, d: int) -> PowerSeries | None:
        """Return the power series κ, where k(x, y) = κ(⟨x, y⟩)."""
        return None

    def zonal(self, d: int) -> RadialKernels | None:
        """Return the radial kernels R_l, where k(x, y) = Σ_l R_l(|x|, |y|) P_l(cos ∠(x, y))."""
        kappa = self.series(d)
        return None if kappa is None else series.of_series(d, kappa)

    def exact(self, d: int) -> int | None:
        """Return the number of features of which k is the inner product, without an error."""
        return None

    def features(self, X: Rows) -> Float[Array, "n D"]:
        """Return these features of checked rows; of kernels made of others, rules make them."""
        raise NotImplementedError

    def at_zero(self, d: int) -> float:
        """Return k(0, 0), for kernels of x − y the value of k(x, x) for all x."""
        return float(self.diagonal(np.zeros((1, d)))[0])

    # What a kernel is made of.

    @property
    def parts(self) -> dict[str, "Kernel"]:
        """The kernels that this one is made of, by field."""
        return {k: v for k, v in self.get_params(deep=False).items() if isinstance(v, Kernel)}

    @property
    def summands(self) -> list["Kernel"]:
        """Summands of this kernel."""
        if not isinstance(self, Sum | Scaled):
            return [self]
        terms = [term for part in self.parts.values() for term in part.summands]
        return [Scaled(self.scale, term) for term in terms] if isinstance(self, Scaled) else terms

    def leaves(self, through: Any = None, columns: Any = None) -> Iterator[tuple["Kernel", Any]]:
        """Yield the kernels that the algebra, or other kinds, join, and the columns each sees."""
        parts = self.parts if isinstance(self, through or Algebra) else {}
        if not parts:
            yield self, columns
        for part in parts.values():
            yield from part.leaves(through, _seen(self, columns))

    def rebuilt(self, change: Callable[..., Any], through: Any = None, columns: Any = None) -> Any:
        """Return the kernel with every kernel in it changed, from the leaves up.

        ``change`` takes a kernel and the columns that it sees, if ``columns`` are given.
        """
        parts = self.parts if isinstance(self, through or Kernel) else {}
        seen = _seen(self, columns)
        parts = {name: part.rebuilt(change, through, seen) for name, part in parts.items()}
        return change(self.replace(**parts) if parts else self, columns)

    def folded(
        self,
        leaf: Callable[[Any, tuple[int, ...]], T | None],
        add: Callable[[T, T], T | None],
        multiply: Callable[[T, T], T | None],
        scale: Callable[[float, T], T | None] = lambda _, value: value,
        columns: tuple[int, ...] = (),
    ) -> T | None:
        """Combine values of ``leaf(part, columns)`` over the kernel; None if any value is None."""
        # Without the columns that the kernel uses, Columns(...) are leaves.
        if isinstance(self, Columns) and max(self.columns) < len(columns):
            columns = tuple(columns[c] for c in self.columns)
        elif not isinstance(self, Algebra):
            return leaf(self, columns)
        values = [part.folded(leaf, add, multiply, scale, columns) for part in self.parts.values()]
        if isinstance(self, Power):
            values *= self.exponent
        if isinstance(self, Scaled) and values[0] is not None:
            return scale(self.scale, values[0])
        join = add if isinstance(self, Sum) else multiply
        return reduce(lambda a, b: None if a is None or b is None else join(a, b), values)

    def pullback(self, X: Rows, Y: Others, C: Pairs) -> Rows:
        """Return Σ_j C[i, j] ∂k(x_i, y_j)/∂x_i of each row i: gradients of sums of k(x, y_j).

        Rows are checked and dense, of one library and precision, X not empty. O(n m d) time, and
        memory for a few matrices (n, m): give rows in blocks. Kernels without a closed form of the
        gradient raise UnsupportedKernel. Of sums, products and the like see
        :func:`bochner.kernels.numbers.gradients`.
        """
        raise UnsupportedKernel(
            f"Gradients in rows have no closed form here for {type(self).__name__}. Kernels that "
            "have one: smooth ones of x − y, Linear, Polynomial, DotExponential, DotProduct, "
            "SkewedChi2, and sums, products, powers, Exp, Columns and Mahalanobis of these."
        )

    def __sklearn_clone__(self) -> Self:
        return self

    def __add__(self, other: "Kernel | float") -> "Sum":
        return NotImplemented if (o := _as_kernel(other)) is None else Sum(self, o)

    def __radd__(self, other: float) -> "Sum":
        return NotImplemented if (o := _as_kernel(other)) is None else Sum(o, self)

    def __mul__(self, other: "Kernel | float") -> "Product | Scaled":
        return Product(self, other) if isinstance(other, Kernel) else self.__rmul__(other)

    def __rmul__(self, other: float) -> "Scaled":
        known = _is_number(other) or isinstance(other, Free)
        return Scaled(other, self) if known else NotImplemented

    def __pow__(self, exponent: int) -> "Power":
        return Power(self, exponent) if _is_number(exponent) else NotImplemented


def require_kernel(value: Any, who: str, name: str = "kernel") -> Any:
    """Return a kernel, or refuse what is none."""
    if not isinstance(value, Kernel):
        raise InvalidType(
            f"{who}: {name} must be a Kernel; got {value!r} of type {type(value).__name__}. Pass a "
            "value such as Gaussian(lengthscale=1.0), or wrap your own function: Custom(function)."
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


def _seen(kernel: Kernel, columns: Any) -> Any:
    """Return the columns that the parts of a kernel see, for a kernel that sees these."""
    if columns is None or not isinstance(kernel, Columns):
        return columns
    return [columns[c] for c in kernel.columns if c < len(columns)]


def spectral_within(self: Any, d: int) -> Frequencies | None:
    """View of kernels whose frequencies are those of the kernel within."""
    return self.kernel.spectral(d)


def exact_within(self: Any, d: int) -> int | None:
    """View of kernels whose features are those of the kernel within, each changed."""
    return self.kernel.exact(d)


class Combined(Kernel):
    """A function of the values of other kernels of the same rows."""

    @abc.abstractmethod
    def joined(self, *parts: Values) -> Array:
        """Return k, given functions that return the values of the parts."""
        # NumPy adds and multiplies in place where no name holds what a function has returned.

    @abc.abstractmethod
    def back(self, C: Array, K: Values, *parts: Values) -> Iterable[Array]:
        """Return ∂E/∂part for each part, any E and C = ∂E/∂k; ``K()``, ``part()`` are values."""

    def evaluate(self, X: Rows, Y: Others) -> Pairs:
        return self.joined(*(partial(part.evaluate, X, Y) for part in self.parts.values()))

    def diagonal(self, X: Rows) -> Float[Array, " n"]:
        return self.joined(*(partial(part.diagonal, X) for part in self.parts.values()))


class Algebra(Combined):
    """A sum, product, multiple or power of kernels: of what its parts are known to be, it is."""

    def series(self, d: int) -> PowerSeries | None:
        return self.folded(lambda part, _: part.series(d), *series.OF_SERIES)

    def zonal(self, d: int) -> RadialKernels | None:
        return self.folded(lambda part, _: part.zonal(d), *series.OF_RADIALS)

    def exact(self, d: int) -> int | None:
        return self.folded(lambda part, _: part.exact(d), operator.add, operator.mul)


def _enclosed(kernel: Kernel, *looser: type[Kernel]) -> str:
    """Return how a part is written: in brackets if it is made by an operator that binds less."""
    return f"({kernel!r})" if isinstance(kernel, looser) else repr(kernel)


@dataclass(frozen=True)
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

    def __repr__(self) -> str:
        return f"{self.left!r} + {_enclosed(self.right, Sum)}"

    def spectral(self, d: int) -> Frequencies | None:
        parts = self.left, self.right
        sizes = lambda: [part.at_zero(d) for part in parts]

        def draw(m: int, rng: np.random.Generator, *each: Values) -> Array:
            W, (a, b) = [one() for one in each], sizes()
            return np.where(rng.random(m) * (a + b) < a, *W)

        pairs = lambda squares: zip(sizes(), squares, strict=True)
        moment = lambda *squares: sum(a * s for a, s in pairs(squares) if a) / self.at_zero(d)
        return spectral.composite(draw, moment, *(part.spectral(d) for part in parts))

    def joined(self, *parts: Values) -> Array:
        return parts[0]() + parts[1]()

    def back(self, C: Array, K: Values, *parts: Values) -> tuple[Array, ...]:
        return C, C


@dataclass(frozen=True)
class Product(Algebra):
    """k(x, y) = left(x, y) · right(x, y); written ``left * right`` (positive: Schur).

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

    def __repr__(self) -> str:
        return f"{_enclosed(self.left, Sum)} * {_enclosed(self.right, Sum, Product, Scaled)}"

    def spectral(self, d: int) -> Frequencies | None:
        # Columns of an orthogonal block depend on one another: a random order makes a pairing fair.
        draw = lambda m, rng, left, right: left() + right()[:, rng.permutation(m)]
        return spectral.composite(draw, operator.add, self.left.spectral(d), self.right.spectral(d))

    def joined(self, *parts: Values) -> Array:
        return parts[0]() * parts[1]()

    def back(self, C: Array, K: Values, *parts: Values) -> Iterator[Array]:
        yield C * parts[1]()
        yield C * parts[0]()


@dataclass(frozen=True)
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

    def __repr__(self) -> str:
        return f"{self.scale!r} * {_enclosed(self.kernel, Sum, Product, Scaled)}"

    spectral = spectral_within

    def joined(self, *parts: Values) -> Array:
        return self.scale * parts[0]()

    def back(self, C: Array, K: Values, *parts: Values) -> tuple[Array, ...]:
        return (self.scale * C,)


@dataclass(frozen=True)
class Power(Algebra):
    """k(x, y) = kernel(x, y)^p for a whole number p; written ``kernel ** p`` (Schur).

    ``(Linear() + 1.0) ** 3`` is the polynomial kernel of degree 3. Powers that are not whole
    numbers do not keep a kernel positive.

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

    def __repr__(self) -> str:
        return f"{_enclosed(self.kernel, Sum, Product, Scaled, Power)}**{self.exponent}"

    def spectral(self, d: int) -> Frequencies | None:
        p, one = self.exponent, self.kernel.spectral(d)
        draw = lambda m, rng, each: sum(each()[:, rng.permutation(m)] for _ in range(p))
        return spectral.composite(draw, lambda square: p * square, one)

    def joined(self, *parts: Values) -> Array:
        return parts[0]() ** self.exponent

    def back(self, C: Array, K: Values, *parts: Values) -> tuple[Array, ...]:
        return (C * (self.exponent * parts[0]() ** (self.exponent - 1)),)


class Transformed(Kernel):
    """A kernel of transformed rows: k(x, y) = kernel(f(x), f(y))."""

    kernel: Kernel

    @abc.abstractmethod
    def inputs(self, X: Rows) -> Float[Array, "n e"]:
        """Return the rows that the kernel within sees."""

    def back(self, X: Rows, G: Float[Array, "n e"]) -> Rows:
        """Return gradients in the rows, given those in the rows that the kernel within sees."""
        raise UnsupportedKernel(
            f"Gradients in rows require the derivative of the rows' transformation; {self!r} has a "
            "function of your own. Transform the rows first, and take gradients in those."
        )

    def evaluate(self, X: Rows, Y: Others) -> Pairs:
        U = self.inputs(X)
        return self.kernel.evaluate(U, U if Y is X else self.inputs(Y))

    def diagonal(self, X: Rows) -> Float[Array, " n"]:
        return self.kernel.diagonal(self.inputs(X))


def require_columns(who: str, columns: tuple[int, ...], X: Array) -> None:
    """Refuse columns that X does not have."""
    if max(columns) >= X.shape[1]:
        raise InvalidInput(
            f"{who}: columns must be below the number of columns of X; got column "
            f"{max(columns)} of {X.shape[1]} (counted from 0)."
        )


@dataclass(frozen=True)
class Columns(Transformed):
    """A kernel that looks at some columns only: k(x, y) = kernel(x[columns], y[columns]).

    Parameters
    ----------
    kernel : Kernel
        Its lengthscales, if it has one per column, belong to the chosen columns in their order.
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

    def inputs(self, X: Rows) -> Float[Array, "n c"]:
        require_columns("Columns", self.columns, X)
        return arrays.taken(X, np.array(self.columns), axis=1)

    def back(self, X: Rows, G: Float[Array, "n e"]) -> Rows:
        return G @ arrays.moved(np.eye(X.shape[1])[list(self.columns)], like=G)

    def spectral(self, d: int) -> Frequencies | None:
        embedded = lambda _m, _rng, each: np.eye(d)[:, list(self.columns)] @ each()
        return spectral.composite(embedded, float, self.kernel.spectral(len(self.columns)))

    def exact(self, d: int) -> int | None:
        return self.kernel.exact(len(self.columns))


def has_free(kernel: object) -> bool:
    """Whether a kernel has numbers that are free."""
    if not isinstance(kernel, Kernel):
        return False
    numbers = kernel.get_params().values()
    return any(isinstance(v, Free) for n in numbers for v in (n if isinstance(n, tuple) else (n,)))


def require_numbers(kernel: Kernel) -> None:
    """Refuse a kernel that has free numbers where its values are needed."""
    if has_free(kernel):
        raise InvalidInput(
            'A kernel with numbers that are free ("auto") has no values before a fit has found '
            "them. Fit an estimator and take its kernel_, or give all numbers."
        )


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _as_kernel(value: object) -> Kernel | None:
    """Coerce an operand of + to a kernel; return None if it is no number or kernel."""
    if isinstance(value, Kernel):
        return value
    return Constant(value) if _is_number(value) else None  # type: ignore[arg-type]
