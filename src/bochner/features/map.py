"""Base classes of feature maps and of methods, and the requests that methods receive."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from functools import cache
from typing import Any, ClassVar, get_args

import numpy as np

from bochner._core import arrays
from bochner._core.blas import product
from bochner._core.names import NamedArguments
from bochner._core.random import stream
from bochner._core.shapes import Array, Float, Tabular, shape_of
from bochner.errors import InvalidInput, UnsupportedKernel
from bochner.kernels.kernel import Kernel


class Method(NamedArguments, ABC):
    """Method for the features of a kernel; :func:`bochner.draw` draws the feature map.

    A frozen dataclass; ``str`` omits parameters that have their default value.

    Examples
    --------
    >>> import bochner as bo
    >>> method = bo.Fourier(bo.QMC())
    >>> isinstance(method, bo.Method)
    True
    >>> print(method)
    Fourier(placement=QMC())
    """

    def __str__(self) -> str:
        """Return the method as code, without arguments that have their default value."""
        return _short_repr(self)

    #: Whether the method has features; False for fits with the exact kernel.
    has_features: ClassVar[bool] = True
    #: Least number of floats that a map stores per feature; None: number of columns plus one.
    floats_each: int | None = None
    #: The number of features must be a multiple of this number.
    granularity: int = 1


def kind_of(description: str, *kinds: type) -> Callable[[Any, str, str], Any]:
    """Return a check that a field is an instance of ``kinds``; ``description`` describes them."""

    def check(value: Any, caller: str, name: str) -> Any:
        if not isinstance(value, kinds):
            raise InvalidInput(f"{caller}: {name} must be {description}; got {value!r}.")
        return value

    return check


def _short_repr(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"<array {value.shape}>"
    if not is_dataclass(value) or isinstance(value, type):
        return repr(value)
    words = []
    for field in fields(value):
        entry = getattr(value, field.name)
        default = field.default if field.default_factory is MISSING else field.default_factory()
        if default is MISSING or not bool(entry == default):
            words.append(f"{field.name}={_short_repr(entry)}")
    return f"{type(value).__name__}({', '.join(words)})"


@dataclass(frozen=True, eq=False)
class Request:
    """Width, seed and rows of a map to be drawn, for a kernel or a part of it."""

    n_inputs: int  # d
    n_features: int  # D
    seed: int
    path: tuple[str, ...] = ()  # names of parts, from the kernel down to the part that is drawn
    X: Array | None = None  # rows of data, if there are any

    def stream(self, purpose: str) -> np.random.Generator:
        """Return the random generator of this part of the kernel for a purpose."""
        return stream(self.seed, "draw", *self.path, purpose)

    def part(self, name: str, n_features: int) -> "Request":
        """Return the request for a part of the kernel, with another width and random stream."""
        return replace(self, n_features=n_features, path=(*self.path, name))

    def rows(self, caller: str, use: str) -> Array:
        """Return the rows; without rows raise an error that names their use, ``use``."""
        if self.X is None or self.X.shape[0] == 0:
            raise InvalidInput(f"draw: {caller} takes {use} from rows; got none. Pass X=...")
        return self.X

    def require_width(self, minimum: int, caller: str, reason: str, kernel: Any = None) -> None:
        """Refuse fewer features than ``minimum``; ``reason`` has {!r} for the kernel."""
        if self.n_features < minimum:
            raise InvalidInput(
                f"{caller} requires n_features of at least {minimum:,}, {reason.format(kernel)}; "
                f"got {self.n_features:,}. Ask for more features, or use Nystrom(...)."
            )


class FeatureMap(ABC):
    """A map φ with φ(x)·φ(y) ≈ k(x, y): ``phi(X)`` returns Z with Z @ Z.T ≈ K.

    :func:`bochner.draw` draws it for a kernel. It is immutable, and the features of a row do not
    depend on the block of rows that is passed.

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> X = np.random.default_rng(0).uniform(-1, 1, (50, 3))
    >>> phi = bo.draw(bo.kernels.Gaussian(), "orthogonal", n_features=64, X=X)
    >>> isinstance(phi, bo.FeatureMap), phi.n_inputs, phi.n_features, phi(X).shape
    (True, 3, 64, (50, 64))
    """

    kernel: Kernel

    def __init_subclass__(cls) -> None:
        # The repr of a dataclass would print all of its arrays.
        if "__repr__" not in vars(cls):
            cls.__repr__ = FeatureMap.__repr__  # type: ignore[method-assign]

    def __repr__(self) -> str:
        d, D = self.n_inputs, self.n_features
        return f"{type(self).__name__}(kernel={self.kernel!r}, n_inputs={d}, n_features={D})"

    @property
    def n_inputs(self) -> int:
        """Number d of columns of X: from a field with a dimension d, or from the first part."""
        return _size(self, "d")

    @property
    def n_features(self) -> int:
        """Number D of columns of φ(X): from a field with a dimension D, or from the first part."""
        return _size(self, "D")

    @property
    def below_kernel(self) -> bool:
        """Whether Z Zᵀ ⪯ K for any rows: then k(x, x) − |φ(x)|² ≥ 0 bounds every error.

        Default: True if the map has parts and all of them have the property.
        """
        parts = parts_of(self)
        return bool(parts) and all(part.below_kernel for part in parts)

    @property
    def reach(self) -> float:
        """Typical |ω|; if |ω||x| is large, angles need float64. 0 without frequencies."""
        return max((part.reach for part in parts_of(self)), default=0.0)

    @property
    def multiplications(self) -> float:
        """Cost of φ(x) per row, in multiplications of a matrix product of equal time."""
        if parts := parts_of(self):
            values = (getattr(self, field.name) for field in fields(self))  # type: ignore[arg-type]
            matrices = (value for value in values if getattr(value, "ndim", 0) == 2)
            size = sum(value.size for value in matrices if value.dtype.kind == "f")  # not indices
            return size + sum(part.multiplications for part in parts)
        return float(self.n_inputs * self.n_features)

    @property
    def unbiased(self) -> bool:
        """Whether the mean of φ(x)·φ(y) over draws is k(x, y), so that errors fall like 1/√D.

        False if Z Zᵀ ⪯ K, if a series is truncated or an integral discretised, or if rows are
        projected. For a combined map: whether each part is unbiased or satisfies Z Zᵀ ⪯ K.
        """
        parts = parts_of(self)
        return not self.below_kernel and all(p.unbiased or p.below_kernel for p in parts)

    def unwhitened(self) -> tuple["FeatureMap", Any]:
        """Return the cheapest map with the same functions φ(x)·β, and its landmarks or None."""
        return self, None

    def with_jitter(self, jitter: float | None) -> "FeatureMap":
        """Return the map with another jitter; maps without landmarks are unchanged."""
        return self

    def truncation_error(self, X: Float[Array, "n d"]) -> Float[Array, " n"] | None:
        """Return the truncation error e(x) = k(x, x) − E|φ(x)|² per row; None if unknown.

        e is zero for unbiased maps; more random features do not lower it. If the mean K̃ of Z Zᵀ
        over draws satisfies K̃ ⪯ K, then ‖K − K̃‖_F ≤ Σ e(x_i) and K ⪯ K̃ + (Σ e(x_i)) I.
        """
        return np.zeros(X.shape[0]) if self.unbiased else None

    def residual(self, X: Float[Array, "n d"]) -> Float[Array, " n"]:
        """Return e(x) = max(k(x, x) − |φ(x)|², 0) per row, in float64.

        If `below_kernel`, e bounds the errors of all rows, also of new ones:
        |k(x, y) − φ(x)·φ(y)|² ≤ e(x) e(y), and Z Zᵀ ⪯ K ⪯ Z Zᵀ + (Σ e) I. Costs one φ(X).
        """
        X = arrays.in_float64(self._check_rows(X))
        Z = self.features(X)
        xp = arrays.array_namespace(Z)
        e = self.kernel.diag(X) - xp.sum(Z * Z, axis=1)
        return xp.maximum(e, xp.zeros_like(e))

    @abstractmethod
    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        """Return φ(X) of checked rows, shape (n, D)."""

    def pullback(self, X: Float[Array, "n d"], C: Float[Array, "n D"]) -> Float[Array, "n d"]:
        """Return the gradient of φ(x_i)·c_i in x_i for each row i, shape (n, d).

        X must be checked dense rows; C (n, D) has coefficients in the same library and dtype.
        Takes about twice the time of φ(X). Raises UnsupportedKernel without a closed form.
        """
        raise UnsupportedKernel(
            f"{type(self).__name__} has no closed form of gradients in rows. These have: Fourier, "
            "FourierGrid, LaplacianEigenfunctions, SphericalHarmonics, Positive, HistogramSampling,"
            " HermiteMercer of the Gaussian, Nystrom of kernels with a gradient, Compressed and "
            "Projected of these, and features of sums and products of kernels."
        )

    def gradient(self, X: Tabular, coef: Float[Array, " D *t"]) -> Float[Array, "n d *t"]:
        """Return the gradients of φ(x)·β in x at the rows of X.

        Parameters
        ----------
        X : (n, d)
            Rows.
        coef : (D,) or (D, t)
            β, or one β for each of t functions; each takes about twice the time of φ(X).

        Returns
        -------
        gradients : (n, d) or (n, d, t)
            Dense, in the array library and precision of X.

        Raises
        ------
        UnsupportedKernel
            If the features, or the kernel of the features, have no gradient in closed form.
        """
        name, X = type(self).__name__, arrays.dense(self._check_rows(X))
        B = arrays.to_numpy(arrays.as_array(coef, f"{name}.gradient", "coef")).astype(np.float64)
        if B.ndim not in (1, 2) or len(B) != self.n_features:
            raise InvalidInput(
                f"{name}.gradient: coef must have shape (D,) or (D, t) with the D = "
                f"{self.n_features} features of the map; got {B.shape}."
            )
        G = self.gradients(X, B.reshape(len(B), -1))
        return G[:, :, 0] if B.ndim == 1 else G

    def gradients(
        self, X: Float[Array, "n d"], coef: Float[np.ndarray, "D t"]
    ) -> Float[Array, "n d t"]:
        """Return the gradient of φ(x)·β for each checked row x and each column β of ``coef``."""
        xp, shape = arrays.array_namespace(X), (X.shape[0], self.n_features)
        columns = (xp.broadcast_to(arrays.adapt(beta, like=X), shape) for beta in coef.T)
        return xp.stack([self.pullback(X, C) for C in columns], axis=2)

    def _check_rows(self, X: Tabular) -> Float[Array, "n d"]:
        name = type(self).__name__
        X = arrays.as_matrix(X, name)
        if X.shape[1] != self.n_inputs:
            raise InvalidInput(
                f"{name}: X must have the {self.n_inputs} columns the map was drawn for; "
                f"got {X.shape[1]}."
            )
        return X

    def __call__(self, X: Tabular) -> Float[Array, "n D"]:
        """Return Z = φ(X), (n, D), in the array library and precision of X.

        Parameters
        ----------
        X : (n, d)
            NumPy array, torch tensor or any array of the array API standard, or SciPy CSR if the
            map starts with a projection. float32 stays float32; other real dtypes become float64.

        Raises
        ------
        InvalidInput
            If X is not two-dimensional, has another number of columns, or is not real.
        """
        return self.features(self._check_rows(X))


#: A bias below this share of a measured error is negligible.
SMALL_BIAS = 0.1


def _size(phi: FeatureMap, side: str) -> int:
    """Return d or D of a map: from its arrays, else from its first part."""
    name, axis = _field_of(type(phi), side)
    if name and (value := getattr(phi, name)) is not None:
        return value if axis is None else value.shape[axis]
    first = parts_of(phi)[0]
    return first.n_inputs if side == "d" else first.n_features


@cache
def _field_of(cls: Any, side: str) -> tuple[str, int | None]:
    """Return the first field whose shape has a side, and the axis; "" without such a field."""
    for field in fields(cls):
        if side == "d" and field.name == "inputs":
            return field.name, None
        for hint in (field.type, *get_args(field.type)):
            sides = (shape_of(hint) or "").split()
            if side in sides:
                return field.name, sides.index(side)
    return "", None


def parts_of(phi: Any) -> list[FeatureMap]:
    """Return the feature maps that are fields of a map, or entries of its tuples."""
    values = [getattr(phi, field.name) for field in fields(phi)] if is_dataclass(phi) else []
    groups = [value if isinstance(value, tuple) else (value,) for value in values]
    return [part for parts in groups for part in parts if isinstance(part, FeatureMap)]


def times(A: Float[Array, "n p"], W: Float[Array, "p m"]) -> Float[Array, "n m"]:
    """Return A W in the library and dtype of A."""
    if isinstance(A, np.ndarray):
        return product(A, W)
    return A @ arrays.adapt(W, like=A)


def to_double(X: Array) -> tuple[Any, Array]:
    """Return the array namespace of X, and X in float64."""
    return arrays.array_namespace(X), arrays.in_float64(X)


def same_arrays(a: Any, b: Any) -> bool:
    """Whether two maps have the same class and equal arrays, so that their features are equal."""
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(same_arrays, a, b))
    if not isinstance(a, FeatureMap):
        return bool(np.array_equal(a, b))
    names = [f.name for f in fields(a) if f.compare and f.name != "kernel"]  # type: ignore[arg-type]
    return type(a) is type(b) and all(same_arrays(getattr(a, n), getattr(b, n)) for n in names)


# --- float32 rows far from the origin ------------------------------------------------------------
#
# The rounding error of an angle ω·x is proportional to |ω| |x|. In float32 it is 0.1 for rows at
# 10⁶ with spread one, even if differences of rows are exact. A shifted origin would depend on the
# rows, and so would maps with equal seeds. Instead, features of such rows are computed in float64
# and rounded. Whether a row is far depends on this row only.


def reach_of(W: Float[Array, "d m"]) -> float:
    """Return the median |ω| of the nonzero frequencies; the largest |ω| may have no bound."""
    lengths = norms(W, axis=0)
    nonzero = lengths[lengths > 0]
    return float(np.median(nonzero)) if nonzero.size else 0.0


def norms(A: Float[Array, "..."], axis: int) -> Array:
    """Return Euclidean norms along an axis, without overflow of squares."""
    largest = float(np.abs(A).max(initial=0.0)) or 1.0
    return largest * np.linalg.norm(A / largest, axis=axis)


def with_far_rows(
    phi: FeatureMap, X: Float[Array, "n d"], features: Callable[[Array], Array]
) -> Float[Array, "n D"]:
    """Return ``features(X)``; features of far rows are computed in float64 and rounded."""
    if arrays.precision(X) == np.float64 or X.shape[0] == 0 or (reach := phi.reach) == 0.0:
        return features(X)
    xp = arrays.array_namespace(X)
    squares = arrays.squared_norms(arrays.in_float64(X))
    # At |ω| |x| = 1024 radians, float32 angles have an error of 6e-5.
    with np.errstate(over="ignore"):  # lengthscales may be too small for float32
        is_far = xp.sqrt(squares) * min(reach, float(np.finfo(np.float64).max)) > 1024.0
    if not bool(xp.any(is_far)):
        return features(X)
    if not (isinstance(X, np.ndarray) or arrays.is_sparse(X)):  # boolean masks are not portable
        precise = xp.astype(features(xp.astype(X, xp.float64)), xp.float32)
        return xp.where(is_far[:, None], precise, features(X))
    if is_far.all():
        return features(X.astype(np.float64)).astype(np.float32)
    Z = features(X)
    Z[is_far] = features(X[np.flatnonzero(is_far)].astype(np.float64))
    return Z


def balanced_draws(size: int, count: int, rng: np.random.Generator) -> Array:
    """Return ``count`` integers below ``size``, as concatenated random permutations."""
    rounds = [rng.permutation(size) for _ in range(-(-count // size))]
    return np.concatenate([np.empty(0, np.int64), *rounds])[:count]


def capped_shares(
    weights: Float[Array, " k"], caps: Float[Array, " k"] | float, total: float
) -> Float[Array, " k"]:
    """Return shares of ``total`` in proportion to weights, each at most its cap."""
    free, share = np.ones(len(weights), dtype=bool), np.zeros(len(weights))
    while (mass := weights[free].sum()) > 0:
        share[free] = weights[free] / mass * (total - share[~free].sum())
        full = free & (share > caps)
        if not full.any():
            break
        share, free = np.where(full, caps, share), free & ~full
    return share


#: Type of ``rules.draw_map``: from a method, a kernel and a request to a map.
Draw = Callable[[Method, Kernel, Request], FeatureMap]
