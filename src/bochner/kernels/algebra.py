"""Custom kernels, kernels of transformed rows, and modulated, normalised or exponential kernels."""

import math
import operator
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Annotated, Any, final

import numpy as np

from bochner._core import arrays
from bochner._core.blas import mirror
from bochner._core.checks import finite, integers, optional, sequence_of, unpack
from bochner._core.shapes import Array, Float, Others, Pairs, Rows
from bochner.errors import InvalidInput, InvalidType, NotPositive
from bochner.kernels import distances, spectral
from bochner.kernels.distances import centred
from bochner.kernels.dotproduct import Linear, Polynomial
from bochner.kernels.kernel import (
    Combined,
    Compute,
    Constant,
    Kernel,
    Part,
    Sum,
    Transformed,
    inner_exact,
    inner_spectral,
    require_columns,
    require_finite,
)
from bochner.kernels.spectral import Frequencies
from bochner.kernels.stationary import Stationary
from bochner.kernels.zonal import LENGTH_ERROR, Homogeneous, Zonal, directions

# --- Functions of the user: checked when passed, and their results at each call ------------------


def require_function(value: Any, caller: str, name: str) -> Any:
    """Return ``value``; raise InvalidType if it is not callable."""
    if not callable(value):
        raise InvalidType(
            f"{caller}: {name} must be a function of rows; got {value!r} of type "
            f"{type(value).__name__}. Pass a function that takes an array."
        )
    return value


def _code(kernel: Kernel) -> str:
    """Return a kernel as code; a function is written by its name if it has one."""
    fields = {k: v for k, v in kernel.get_params(deep=False).items() if v is not None}
    words = (f"{k}={getattr(v, '__qualname__', None) or repr(v)}" for k, v in fields.items())
    return f"{type(kernel).__name__}({', '.join(words)})"


def answer(
    result: Any, shape: tuple[int | None, ...], like: Array, caller: str
) -> Float[Array, "..."]:
    """Return the checked result of a user's function, in the dtype of ``like``; None: any size."""
    result = arrays.dense(result)
    dims = tuple(getattr(result, "shape", ()))
    if len(dims) != len(shape) or any(s not in (None, g) for s, g in zip(shape, dims, strict=True)):
        expected = ", ".join("any" if s is None else str(s) for s in shape)
        raise InvalidInput(
            f"{caller}: the function must return shape ({expected}{',' * (len(shape) == 1)})"
            f" for {like.shape[0]} rows; got {dims or type(result).__name__}."
        )
    xp = arrays.array_namespace(result)
    result = xp.astype(result, getattr(xp, str(like.dtype).rpartition(".")[2]), copy=False)
    if not arrays.all_finite(result):
        values = arrays.to_numpy(result)
        count = int((values - values != 0).sum())
        raise InvalidInput(
            f"{caller}: the function must return finite numbers; got {count} NaN or infinite of "
            f"{math.prod(dims)}."
        )
    return result


@dataclass(frozen=True)
class Custom(Kernel):
    """A kernel that is a function of your own: k(X, Y) = function(X, Y).

    ``Nystrom(...)`` and every method that needs only kernel values can be used. The function must
    be symmetric and positive semi-definite; :func:`bochner.check_kernel` tests it.

    Parameters
    ----------
    function : callable
        Takes rows X (n, d) and Y (m, d), arrays of the caller's library in one precision, and
        returns the matrix (n, m) of all pairs. scikit-learn's pairwise kernels are such functions.
    diagonal_of : callable, optional
        Takes X and returns the n values k(x, x). Default: the diagonals of matrices of 64 rows.

    Notes
    -----
    Two custom kernels are equal if their functions are the same objects. A model file cannot store
    a function; a model with this kernel can be pickled if its function can be pickled.

    Examples
    --------
    >>> import numpy as np
    >>> from bochner.kernels import Custom
    >>> Custom(lambda X, Y: np.minimum(X, Y.T))([[1.0], [2.0]])
    array([[1., 1.],
           [1., 2.]])
    """

    function: Annotated[Callable[[Array, Array], Array], require_function]
    diagonal_of: Annotated[Callable[[Array], Array] | None, optional(require_function)] = None

    __repr__ = _code

    def evaluate(self, X: Rows, Y: Others) -> Pairs:
        return answer(self.function(X, Y), (X.shape[0], Y.shape[0]), X, "Custom")

    def diagonal(self, X: Rows) -> Float[Array, " n"]:
        if self.diagonal_of is not None:
            return answer(self.diagonal_of(X), (X.shape[0],), X, "Custom")
        blocks = (X[rows, :] for rows in arrays.slices(max(X.shape[0], 1), 64))
        squares = [self.evaluate(rows, rows) for rows in blocks]
        return arrays.concat(
            [arrays.array_namespace(K).reshape(K, (-1,))[:: K.shape[0] + 1] for K in squares]
        )


def positive_matrix(matrix: Any, caller: str, name: str) -> tuple[tuple[float, ...], ...]:
    """Return the matrix as a tuple of rows; refuse one that is not positive semi-definite."""
    A: Any = np.empty(0)
    with suppress(TypeError, ValueError):
        A = np.array(unpack(matrix), dtype=np.float64)
    if not (A.ndim == 2 and A.size and A.shape[0] == A.shape[1] and np.isfinite(A).all()):
        raise InvalidInput(
            f"{caller}: {name} must be square, d rows of d finite numbers; got {matrix!r}."
        )
    rows = tuple(map(tuple, A.tolist()))
    symmetric_root(rows)
    return matrix if isinstance(matrix, tuple) and matrix == rows else rows


@lru_cache(maxsize=16)
def symmetric_root(matrix: tuple[tuple[float, ...], ...]) -> np.ndarray:
    """Return the symmetric square root of a matrix (cached: do not modify it)."""
    A = np.array(matrix)
    asymmetry = float(np.abs(A - A.T).max())
    values, vectors = np.linalg.eigh((A + A.T) / 2)
    lowest = -1e-12 * max(values[-1], -values[0])
    if asymmetry > 1e-12 * float(np.abs(A).max()) or values[0] < lowest:
        raise NotPositive(
            "Mahalanobis: matrix must be symmetric and positive semi-definite; got entries that "
            f"differ from their mirror by {asymmetry:.3g} and smallest eigenvalue {values[0]:.3g}. "
            "Pass an inverse covariance, (A + A.T) / 2, or L @ L.T."
        )
    return (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T


@dataclass(frozen=True)
class Mahalanobis(Transformed):
    """A kernel in another metric: k(x, y) = kernel(x L, y L), A = L Lᵀ.

    A kernel of the Euclidean distance then uses r² = (x − y)ᵀ A (x − y); ``Linear()`` is xᵀ A y.

    Parameters
    ----------
    kernel : Kernel
    matrix : array of shape (d, d)
        A, symmetric positive semi-definite, kept as a tuple of rows. L is its symmetric root.

    Examples
    --------
    >>> from bochner.kernels import Gaussian, Mahalanobis
    >>> kernel = Mahalanobis(Gaussian(), ((4.0, 0.0), (0.0, 1.0)))
    >>> kernel([[0.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]]).round(2)
    array([[0.14, 0.61]])
    """

    kernel: Part
    matrix: Annotated[tuple[tuple[float, ...], ...], positive_matrix]

    @cached_property
    def root(self) -> Float[np.ndarray, "d d"]:
        """Symmetric square root L of A, shape (d, d); cached, do not modify it."""
        return symmetric_root(self.matrix)

    def inputs(self, X: Rows) -> Rows:
        if X.shape[1] != len(self.root):
            raise InvalidInput(
                "Mahalanobis: matrix must have one row and column per column of X; got "
                f"{len(self.root)} for {X.shape[1]} columns."
            )
        rows = np.ascontiguousarray(X) if isinstance(X, np.ndarray) else X
        return rows @ arrays.adapt(self.root, like=X)

    def backward(self, X: Rows, G: Float[Array, "n e"]) -> Rows:
        return G @ arrays.adapt(self.root.T, like=G)

    def evaluate(self, X: Rows, Y: Others) -> Pairs:
        if isinstance(self.kernel, Stationary):
            X, Y = centred(X, Y)
        return super().evaluate(X, Y)

    def spectral(self, d: int) -> Frequencies | None:
        draw, density = lambda _m, _rng, draw_inner: self.root @ draw_inner(), lambda _: math.nan
        return spectral.composite(draw, density, self.kernel.spectral(d))

    exact = inner_exact


@dataclass(frozen=True)
class Warped(Transformed):
    """A kernel of transformed rows: k(x, y) = kernel(f(x), f(y)).

    Parameters
    ----------
    function : callable
        f: takes rows (n, d), an array of the caller's library, and returns rows (n, d'). Row i
        of the result depends on row i only. Equality and model files: as :class:`Custom`.
    kernel : Kernel
        A kernel of d' columns.

    Examples
    --------
    >>> import numpy as np
    >>> from bochner.kernels import Gaussian, Warped
    >>> Warped(np.log, Gaussian())([[1.0]], [[1.0], [10.0]]).round(2)
    array([[1.  , 0.07]])
    """

    function: Annotated[Callable[[Array], Array], require_function]
    kernel: Part
    __repr__ = _code

    def inputs(self, X: Rows) -> Float[Array, "n e"]:
        return answer(self.function(X), (X.shape[0], None), X, "Warped")


Curves = Annotated[tuple[tuple[float, ...], ...], sequence_of(sequence_of(finite))]


@final
@dataclass(frozen=True)
class Monotone(Transformed):
    """A kernel of transformed columns: k(x, y) = kernel(f(x), f(y)), f one function per column.

    Each function is linear between its points and constant beyond the first and the last point.
    Examples are logarithms, quantile transforms and clipping of outliers.

    Parameters
    ----------
    kernel : Kernel
        Its lengthscales are in the units of the transformed columns.
    columns : tuple of int
        Numbers from 0, each once; all other columns stay as they are.
    points : tuple of tuples of float
        Two or more increasing numbers for each of the columns.
    values : tuple of tuples of float
        f at the points: as many numbers, not decreasing.

    Examples
    --------
    >>> from bochner.kernels import Gaussian, Monotone
    >>> kernel = Monotone(Gaussian(), (0,), ((1.0, 10.0, 100.0),), ((0.0, 1.0, 2.0),))
    >>> kernel.inputs([[5.5, 7.0], [1e6, 7.0]]).tolist()
    [[0.5, 7.0], [2.0, 7.0]]
    """

    kernel: Part
    columns: Annotated[tuple[int, ...], integers]
    points: Curves
    values: Curves

    def __str__(self) -> str:
        """Return the kernel and its columns; ``repr`` also has the points and values."""
        return f"{self.kernel}; columns {', '.join(map(str, self.columns))} transformed"

    def __post_init__(self) -> None:
        super().__post_init__()
        fits = len(self.points) == len(self.values) == len(self.columns)
        for p, v in zip(self.points, self.values, strict=fits):
            fits = fits and len(p) == len(v) >= 2
            fits = fits and bool((np.diff(p) > 0).all() and (np.diff(v) >= 0).all())
        if not fits:
            raise InvalidInput(
                "Monotone: points and values must be two or more finite numbers for each column, "
                f"points increasing and values not decreasing; got {[len(p) for p in self.points]} "
                f"points and {[len(v) for v in self.values]} values. Sort and pair them."
            )

    def inputs(self, X: Rows) -> Rows:
        X = X if hasattr(X, "shape") else np.asarray(X, np.float64)
        require_columns("Monotone", self.columns, X)
        if arrays.is_sparse(X):
            return X.__class__(self.inputs(X.toarray()))
        columns = [X[:, j] for j in range(X.shape[1])]
        for j, *curve in zip(self.columns, self.points, self.values, strict=True):
            columns[j] = _interpolate(X[:, j] + 0.0, *curve)[0]
        return arrays.array_namespace(X).stack(columns, axis=1)

    def backward(self, X: Rows, G: Rows) -> Rows:
        columns = [G[:, j] for j in range(X.shape[1])]
        for j, *curve in zip(self.columns, self.points, self.values, strict=True):
            columns[j] = G[:, j] * _interpolate(X[:, j] + 0.0, *curve)[1]
        return arrays.array_namespace(X).stack(columns, axis=1)


def _interpolate(
    x: Float[Array, " n"], points: tuple[float, ...], values: tuple[float, ...]
) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """Return the piecewise linear function at x and its slope, which is zero beyond the ends."""
    xp = arrays.array_namespace(x)
    p, v = (arrays.adapt(np.array(curve), like=x) for curve in (points, values))
    index = xp.clip(xp.searchsorted(p, x), 1, len(points) - 1)
    low, high = xp.take(p, index - 1), xp.take(p, index)
    step = xp.where(high > low, high - low, xp.ones_like(high))  # equal once rounded to float32
    first = xp.take(v, index - 1)
    share, rise = (x - low) / step, xp.take(v, index) - first
    slope = xp.where((share >= 0.0) & (share <= 1.0), rise / step, xp.zeros_like(step))
    return first + xp.clip(share, 0.0, 1.0) * rise, slope


# The kernels below are positive semi-definite: Shawe-Taylor & Cristianini (2004), 3.22.
# Sums, products, multiples and powers are in ``bochner.kernels.kernel``.


@dataclass(frozen=True)
class Exp(Combined):
    """k(x, y) = exp(kernel(x, y)) = Σ_n kernel(x, y)ⁿ/n!.

    Parameters
    ----------
    kernel : Kernel
        Its values must be below about 700 (88 in float32): scale larger values down.

    See Also
    --------
    DotExponential : The exponential of the inner product.

    Examples
    --------
    >>> from bochner.kernels import Exp, Linear
    >>> Exp(Linear())([[1.0]], [[0.0], [1.0]]).round(2)
    array([[1.  , 2.72]])
    """

    kernel: Part

    def spectral(self, d: int) -> Frequencies | None:
        def draw(m: int, rng: np.random.Generator, draw_inner: Compute) -> Array:
            # exp(k) = e^c Σ e^(−c) cⁿ/n! (k/c)ⁿ, c = k(0): ω sums Poisson(c) frequencies of k.
            counts, total = rng.poisson(self.kernel.at_zero(d), m), np.zeros((d, m))
            for n in range(counts.max()):
                total += np.where(counts > n, draw_inner()[:, rng.permutation(m)], 0.0)
            return total

        moment = lambda square: self.kernel.at_zero(d) * square
        return spectral.composite(draw, moment, self.kernel.spectral(d))

    def combine(self, *parts: Compute) -> Array:
        K = parts[0]()
        with np.errstate(over="ignore"):
            K = arrays.array_namespace(K).exp(K)
        remedy = ". Scale it down, e.g. Exp(0.01 * kernel), or take Exp(Normalised(kernel))."
        return require_finite(K, "Exp", "the exponential of the kernel", remedy)

    def backward(self, C: Array, K: Compute, *parts: Compute) -> tuple[Array, ...]:
        return (C * K(),)


@dataclass(frozen=True)
class Modulated(Kernel):
    """k(x, y) = f(x) · kernel(x, y) · f(y).

    Parameters
    ----------
    function : callable
        f: takes rows (n, d), an array of the caller's library, and returns (n,) numbers. Equality
        and model files: as :class:`Custom`.
    kernel : Kernel

    Examples
    --------
    >>> from bochner.kernels import Gaussian, Modulated
    >>> Modulated(lambda X: X[:, 0], Gaussian())([[1.0]], [[1.0], [2.0]]).round(2)
    array([[1.  , 1.21]])
    """

    function: Annotated[Callable[[Array], Array], require_function]
    kernel: Part
    __repr__ = _code

    exact = inner_exact

    def factor(self, X: Rows) -> Float[Array, " n"]:
        """Return f(x) of each row: the features are f(x) times the features of ``kernel``."""
        return answer(self.function(X), (X.shape[0],), X, "Modulated")

    def evaluate(self, X: Rows, Y: Others) -> Pairs:
        return _scale_sides(self.factor, self.kernel.evaluate(X, Y), X, Y)

    def diagonal(self, X: Rows) -> Float[Array, " n"]:
        f = self.factor(X)
        return f * self.kernel.diagonal(X) * f


@dataclass(frozen=True)
class Normalised(Kernel):
    """k(x, y) = kernel(x, y)/√(kernel(x, x) kernel(y, y)): the cosine in feature space.

    Rows with kernel(x, x) = 0 have k = 0 with every row.

    Parameters
    ----------
    kernel : Kernel

    Raises
    ------
    InvalidInput
        If kernel(x, x) is not a finite float64 number.

    Notes
    -----
    ``kernel`` is evaluated in float64, and the cosine has X's dtype. Kernels that grow like a power
    of the norms, such as ``Linear()`` or ``ArcCosine(2)**3``, are evaluated on unit rows.

    Examples
    --------
    >>> from bochner.kernels import Linear, Normalised
    >>> Normalised(Linear())([[2.0, 0.0]], [[3.0, 0.0], [1.0, 1.0]]).round(2)
    array([[1.  , 0.71]])
    """

    kernel: Part

    spectral, exact = inner_spectral, inner_exact

    def inputs(self, X: Rows) -> Rows:
        """Return the rows divided by their norms if these cancel in k, else X, in float64."""
        return arrays.in_float64(X) if norm_degree(self.kernel) is None else directions(X)[0]

    def factor(self, X: Rows) -> Float[Array, " n"]:
        """Return 1/√kernel(x, x), the factor of the features of ``kernel``."""
        size = self._size(arrays.in_float64(X))
        xp = arrays.array_namespace(size)
        factor = xp.where(size > 0, size, xp.ones_like(size)) ** -0.5
        return xp.astype(xp.where(size > 0, factor, 0.0 * size), X.dtype, copy=False)

    def evaluate(self, X: Rows, Y: Others) -> Pairs:
        def block(A: Array, B: Array) -> Array:
            U = self.inputs(arrays.in_float64(A))
            V = U if B is A else self.inputs(arrays.in_float64(B))
            with np.errstate(over="ignore", invalid="ignore"):  # `factor` refuses an overflow
                K = _scale_sides(self.factor, self.kernel.evaluate(U, V), U, V)
            return arrays.array_namespace(K).astype(K, X.dtype, copy=False)

        wide = arrays.precision(X) == np.float64
        return block(X, Y) if wide else distances.map_blocks(block, X, Y)

    def diagonal(self, X: Rows) -> Float[Array, " n"]:
        size = self._size(self.inputs(arrays.in_float64(X)))
        return arrays.array_namespace(size).astype(size > 0, X.dtype)

    def _size(self, X: Rows) -> Float[Array, " n"]:
        """Return kernel(x, x); raise an error on overflow."""
        with np.errstate(over="ignore", invalid="ignore"):
            size = self.kernel.diagonal(X)
        return require_finite(size, "Normalised", "kernel(x, x)", LENGTH_ERROR)


#: Classes of kernels whose parts receive the same rows as the kernel.
SAME_ROWS = (Combined, Modulated, Normalised)


def norm_degree(kernel: Kernel) -> int | None:
    """Return p with k(ax, by) = (ab)^p k(x, y) for all a, b > 0; None if unknown."""

    def leaf(part: Any, _: tuple[int, ...]) -> int | None:
        match part:
            case Homogeneous() | Zonal():
                return part.degree
            case Constant() | Normalised():
                return 0
            case Linear():
                return 1
            case Polynomial():
                return None if part.offset else part.degree
        return None

    return kernel.reduce(leaf, lambda a, b: a if a == b else None, operator.add)


def _scale_sides(factor: Callable[[Array], Array], K: Array, X: Array, Y: Array) -> Array:
    """Return f(x) K(x, y) f(y) for all pairs of rows."""
    left = factor(X)
    right = left if Y is X else factor(Y)
    return left[:, None] * K * right[None, :]


# --- Symmetric kernel matrices: a sum is computed in bands of rows, each pair once ---------------


#: Number of rows of a band.
BAND = 256


def kernel_matrix(kernel: Kernel, X: Any) -> Float[Array, "n n"]:
    """Return k(X, X) of checked rows; a sum takes a third less time, by its lower triangle."""
    if X.shape[0] <= BAND or not isinstance(next(kernel.leaves(Transformed))[0], Sum):
        return np.ascontiguousarray(kernel.evaluate(X, X))
    inner, U = kernel.unwrap(X)
    K = np.empty((U.shape[0], U.shape[0]), arrays.precision(U))
    for start in range(0, len(K), BAND):
        band = slice(start, start + BAND)
        K[band, : start + BAND] = inner.evaluate(U[band], U[: start + BAND])
    return mirror(K.T).T
