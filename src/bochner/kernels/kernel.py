"""Kernels as values, and their sums, products, multiples and powers."""

import abc
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from numbers import Real
from typing import Annotated, Any, ClassVar, Self

from bochner._core import arrays
from bochner._core.checks import Check, Counted, MaybePositive, nonnegative, one_or_each, positive
from bochner._core.names import NamedArguments, instead
from bochner._core.shapes import Array, Float, Others, Pairs, Rows, Tabular
from bochner.errors import InvalidInput, InvalidType, UnsupportedKernel

#: A function that returns the values of a kernel, computed when asked for.
Values = Callable[[], Array]


class Value(NamedArguments):
    """A dataclass whose fields are found and replaced by path, such as ``left__lengthscale``."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the fields by name; with ``deep`` also those of its parts, by path."""
        params: dict[str, Any] = {}
        if is_dataclass(self):  # a kernel of one's own may be none
            params = {f.name: getattr(self, f.name) for f in fields(self)}
        for name, part in tuple(params.items()) if deep else ():
            if isinstance(part, Value):
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
                here = instead(type(self).__name__, name, tuple(params))
                advice = f"; its parameters are: {known}." if here is None else f": give {here}."
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
TunedNumbers = Annotated[float | tuple[float, ...], free_or(one_or_each(positive)), TUNED]


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

    def pullback(self, X: Rows, Y: Others, C: Pairs) -> Rows:
        return arrays.array_namespace(X).zeros_like(X)

    def _fill(self, shape: tuple[int, ...], like: Array) -> Array:
        xp = arrays.array_namespace(like)
        return xp.full(shape, self.value, dtype=like.dtype, device=arrays.device(like))


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
        return self.joined(*(partial(part.evaluate, X, Y) for part in parts_of(self).values()))

    def diagonal(self, X: Rows) -> Float[Array, " n"]:
        return self.joined(*(partial(part.diagonal, X) for part in parts_of(self).values()))


def _enclosed(kernel: Kernel, *looser: type[Kernel]) -> str:
    """Return how a part is written: in brackets if it is made by an operator that binds less."""
    return f"({kernel!r})" if isinstance(kernel, looser) else repr(kernel)


@dataclass(frozen=True)
class Sum(Combined):
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

    def joined(self, *parts: Values) -> Array:
        return parts[0]() + parts[1]()

    def back(self, C: Array, K: Values, *parts: Values) -> tuple[Array, ...]:
        return C, C


@dataclass(frozen=True)
class Product(Combined):
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

    def joined(self, *parts: Values) -> Array:
        return parts[0]() * parts[1]()

    def back(self, C: Array, K: Values, *parts: Values) -> Iterator[Array]:
        yield C * parts[1]()
        yield C * parts[0]()


@dataclass(frozen=True)
class Scaled(Combined):
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

    def joined(self, *parts: Values) -> Array:
        return self.scale * parts[0]()

    def back(self, C: Array, K: Values, *parts: Values) -> tuple[Array, ...]:
        return (self.scale * C,)


@dataclass(frozen=True)
class Power(Combined):
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

    def joined(self, *parts: Values) -> Array:
        return parts[0]() ** self.exponent

    def back(self, C: Array, K: Values, *parts: Values) -> tuple[Array, ...]:
        return (C * (self.exponent * parts[0]() ** (self.exponent - 1)),)


#: Combinations of kernels of the same rows.
ALGEBRA = (Sum, Product, Scaled, Power)


def parts_of(kernel: Kernel) -> dict[str, Kernel]:
    """Return the kernels that a kernel is made of, by field."""
    return {k: v for k, v in kernel.get_params(deep=False).items() if isinstance(v, Kernel)}


def leaves_of(kernel: Kernel, through: tuple[type[Kernel], ...] = ALGEBRA) -> Iterator[Kernel]:
    """Yield the kernels that a kernel is made of by combinations of these types."""
    if not isinstance(kernel, through):
        yield kernel
        return
    for part in parts_of(kernel).values():
        yield from leaves_of(part, through)


def rebuilt(kernel: Kernel, change: Callable[[Any], Kernel]) -> Kernel:
    """Return the kernel with every kernel in it changed, from the leaves up."""
    parts = {name: rebuilt(part, change) for name, part in parts_of(kernel).items()}
    return change(kernel.replace(**parts) if parts else kernel)


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
