"""Kernels are values: they never change, compare by content, add, multiply and print as code."""

import abc
from dataclasses import dataclass
from numbers import Real
from typing import Any, Self, final

from bochner._core.arrays import (
    array_namespace,
    as_matrix,
    device,
    in_float64,
    require_alike,
)
from bochner._core.checks import integer, nonnegative, positive
from bochner._core.shapes import Array, Float
from bochner.errors import InvalidType
from bochner.kernels import parameters


class Kernel(abc.ABC):
    """A positive semi-definite function k(x, y) of two rows.

    ``k(X, Y)`` is the matrix of all pairs, ``k.diag(X)`` the values k(x, x). Kernels add and
    multiply with one another and with numbers, and have powers: ``2.0 * k1 + k1 * k2**3 + 0.5``.

    A kernel of your own is a frozen dataclass that subclasses `Kernel` (or `Stationary`, if it
    depends on x − y alone) and defines `evaluate` and `diagonal`.
    """

    # NumPy then leaves np.float64(2) * k to the kernel.
    __array_ufunc__ = None

    def __call__(
        self, X: Float[Array, "n d"], Y: Float[Array, "m d"] | None = None
    ) -> Float[Array, "n m"]:
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

        Raises
        ------
        InvalidInput
            If X or Y is not a table of finite numbers, or their columns do not fit.

        Notes
        -----
        O(n m d) time; memory for K and, beside it, less than 100 MB.
        """
        who = type(self).__name__
        X = as_matrix(X, who)
        if Y is None:
            return self.evaluate(X, X)
        Y = as_matrix(Y, who, "Y")
        require_alike(X, Y, who)
        return self.evaluate(*_same_dtype(X, Y))

    def diag(self, X: Float[Array, "n d"]) -> Float[Array, " n"]:
        """Return k(x, x) for each row of X, in O(n d) time.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, d)

        Returns
        -------
        values : array of shape (n,)
        """
        return self.diagonal(as_matrix(X, type(self).__name__))

    @abc.abstractmethod
    def evaluate(self, X: Float[Array, "n d"], Y: Float[Array, "m d"]) -> Float[Array, "n m"]:
        """Return all pairs of checked rows; ``Y is X`` when the matrix is symmetric."""

    @abc.abstractmethod
    def diagonal(self, X: Float[Array, "n d"]) -> Float[Array, " n"]:
        """Return k(x, x) of checked rows."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the fields by name; with ``deep`` also those of parts, ``left__lengthscale``."""
        return parameters.get_params(self, deep)

    def replace(self, **changes: Any) -> Self:
        """Return this kernel with other numbers, by path: ``k.replace(left__lengthscale=0.7)``.

        Raises
        ------
        InvalidInput
            If there is no such parameter; the message names those there are.
        """
        return parameters.replace(self, changes)

    def __sklearn_clone__(self) -> Self:
        return self

    def __add__(self, other: "Kernel | float") -> "Sum":
        return NotImplemented if (o := _as_kernel(other)) is None else Sum(self, o)

    def __radd__(self, other: float) -> "Sum":
        return NotImplemented if (o := _as_kernel(other)) is None else Sum(o, self)

    def __mul__(self, other: "Kernel | float") -> "Product | Scaled":
        if isinstance(other, Kernel):
            return Product(self, other)
        return Scaled(other, self) if _is_number(other) else NotImplemented

    def __rmul__(self, other: float) -> "Scaled":
        return Scaled(other, self) if _is_number(other) else NotImplemented

    def __pow__(self, exponent: int) -> "Power":
        return Power(self, exponent) if _is_number(exponent) else NotImplemented


@final
@dataclass(frozen=True)
class Constant(Kernel):
    """The same value for every pair: k(x, y) = c.

    Parameters
    ----------
    value : float, default 1.0
        c ≥ 0.
    """

    value: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", nonnegative(self.value, "Constant", "value"))

    def evaluate(self, X: Float[Array, "n d"], Y: Float[Array, "m d"]) -> Float[Array, "n m"]:
        return self._fill((X.shape[0], Y.shape[0]), X)

    def diagonal(self, X: Float[Array, "n d"]) -> Float[Array, " n"]:
        return self._fill((X.shape[0],), X)

    def _fill(self, shape: tuple[int, ...], like: Array) -> Array:
        xp = array_namespace(like)
        return xp.full(shape, self.value, dtype=like.dtype, device=device(like))


@final
@dataclass(frozen=True)
class Sum(Kernel):
    """k(x, y) = left(x, y) + right(x, y); written ``left + right``.

    Parameters
    ----------
    left, right : Kernel
    """

    left: Kernel
    right: Kernel

    def __post_init__(self) -> None:
        require_kernels(self, "left", "right")

    def evaluate(self, X: Float[Array, "n d"], Y: Float[Array, "m d"]) -> Float[Array, "n m"]:
        return self.left.evaluate(X, Y) + self.right.evaluate(X, Y)

    def diagonal(self, X: Float[Array, "n d"]) -> Float[Array, " n"]:
        return self.left.diagonal(X) + self.right.diagonal(X)


@final
@dataclass(frozen=True)
class Product(Kernel):
    """k(x, y) = left(x, y) · right(x, y); written ``left * right`` (Schur: again positive).

    Parameters
    ----------
    left, right : Kernel
    """

    left: Kernel
    right: Kernel

    def __post_init__(self) -> None:
        require_kernels(self, "left", "right")

    def evaluate(self, X: Float[Array, "n d"], Y: Float[Array, "m d"]) -> Float[Array, "n m"]:
        return self.left.evaluate(X, Y) * self.right.evaluate(X, Y)

    def diagonal(self, X: Float[Array, "n d"]) -> Float[Array, " n"]:
        return self.left.diagonal(X) * self.right.diagonal(X)


@final
@dataclass(frozen=True)
class Scaled(Kernel):
    """k(x, y) = scale · kernel(x, y); written ``scale * kernel``.

    Parameters
    ----------
    scale : float
        Positive and finite; the variance k(x, x) of a stationary kernel.
    kernel : Kernel
    """

    scale: float
    kernel: Kernel

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", positive(self.scale, "Scaled", "scale"))
        require_kernels(self, "kernel")

    def evaluate(self, X: Float[Array, "n d"], Y: Float[Array, "m d"]) -> Float[Array, "n m"]:
        return self.scale * self.kernel.evaluate(X, Y)

    def diagonal(self, X: Float[Array, "n d"]) -> Float[Array, " n"]:
        return self.scale * self.kernel.diagonal(X)


@final
@dataclass(frozen=True)
class Power(Kernel):
    """k(x, y) = kernel(x, y)^p for a whole number p; written ``kernel ** p`` (Schur).

    ``(Linear() + 1.0) ** 3`` is the polynomial kernel of degree 3. Powers that are not whole
    numbers do not keep a kernel positive.

    Parameters
    ----------
    kernel : Kernel
    exponent : int
        p ≥ 1.
    """

    kernel: Kernel
    exponent: int

    def __post_init__(self) -> None:
        require_kernels(self, "kernel")
        object.__setattr__(self, "exponent", integer(self.exponent, "Power", "exponent", least=1))

    def evaluate(self, X: Float[Array, "n d"], Y: Float[Array, "m d"]) -> Float[Array, "n m"]:
        return self.kernel.evaluate(X, Y) ** self.exponent

    def diagonal(self, X: Float[Array, "n d"]) -> Float[Array, " n"]:
        return self.kernel.diagonal(X) ** self.exponent


def require_kernels(value: Kernel, *names: str) -> None:
    """Refuse a kernel one of whose parts is not a kernel value."""
    for name in names:
        part = getattr(value, name)
        if not isinstance(part, Kernel):
            raise InvalidType(
                f"{type(value).__name__}: {name} must be a kernel; got {part!r} of type "
                f"{type(part).__name__}. Pass a value such as Gaussian(lengthscale=1.0)."
            )


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _as_kernel(value: object) -> Kernel | None:
    """Return a kernel for what stands beside a plus sign, or None."""
    if isinstance(value, Kernel):
        return value
    return Constant(value) if _is_number(value) else None  # type: ignore[arg-type]


def _same_dtype(X: Float[Array, "n d"], Y: Float[Array, "m d"]) -> tuple[Array, Array]:
    """Widen float32 beside float64."""
    return (X, Y) if X.dtype == Y.dtype else (in_float64(X), in_float64(Y))
