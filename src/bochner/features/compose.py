"""Maps made of other maps, for combined kernels, transformed rows, and compression."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Any

import numpy as np

from bochner._core import arrays
from bochner._core.arrays import adapt, array_namespace, dense, slices, take
from bochner._core.checks import Counted, word
from bochner._core.native import signed_walsh
from bochner._core.shapes import Array, Float, Int
from bochner.errors import InvalidInput, UnsupportedKernel
from bochner.features.map import FeatureMap, Method, Request, kind_of, times, with_far_rows
from bochner.kernels import algebra
from bochner.kernels.dotproduct import Linear
from bochner.kernels.histogram import WithInputs
from bochner.kernels.kernel import Columns, Combined, Constant, Kernel, Power, Product, Scaled, Sum
from bochner.kernels.stationary import isotropic
from bochner.kernels.windows import Windows


@dataclass(frozen=True, eq=False)
class LinearMap(FeatureMap):
    """The exact features of a kernel: the columns of X for Linear, √c for Constant(c)."""

    kernel: Kernel
    inputs: int

    below_kernel = True  # the features are exact

    @property
    def n_features(self) -> int:
        return self.kernel.exact(self.inputs) or 0

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        return self.kernel.features(X)

    def pullback(self, X: Float[Array, "n d"], C: Float[Array, "n D"]) -> Float[Array, "n d"]:
        xp = array_namespace(X)
        if isinstance(self.kernel, Linear):
            return xp.asarray(C, copy=True)
        return xp.zeros_like(X) if isinstance(self.kernel, Constant) else super().pullback(X, C)


@dataclass(frozen=True, eq=False)
class Concatenate(FeatureMap):
    """Features [φ₁(x), φ₂(x), …] of a sum of kernels."""

    kernel: Kernel
    parts: tuple[FeatureMap, ...]

    @property
    def n_features(self) -> int:
        return sum(part.n_features for part in self.parts)

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        columns = [part.features(X) for part in self.parts]
        return array_namespace(columns[0]).concat(columns, axis=1)

    def pullback(self, X: Float[Array, "n d"], C: Float[Array, "n D"]) -> Float[Array, "n d"]:
        ends = np.cumsum([0, *(part.n_features for part in self.parts)]).tolist()
        pieces = zip(self.parts, pairwise(ends), strict=True)
        gradients = [part.pullback(X, C[:, start:end]) for part, (start, end) in pieces]
        return sum(gradients[1:], gradients[0])


@dataclass(frozen=True, eq=False)
class TensorProduct(FeatureMap):
    """The D₁·D₂ features φ₁(x) ⊗ φ₂(x) of a product of kernels."""

    kernel: Kernel
    left: FeatureMap
    right: FeatureMap

    @property
    def n_features(self) -> int:
        return self.left.n_features * self.right.n_features

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        left, right = self.left.features(X), self.right.features(X)
        product = left[:, :, None] * right[:, None, :]
        return array_namespace(product).reshape(product, (X.shape[0], self.n_features))

    def pullback(self, X: Float[Array, "n d"], C: Float[Array, "n D"]) -> Float[Array, "n d"]:
        xp, left, right = array_namespace(X), self.left.features(X), self.right.features(X)
        C = xp.reshape(C, (X.shape[0], left.shape[1], right.shape[1]))
        gradient = self.left.pullback(X, xp.sum(C * right[:, None, :], axis=2))
        return gradient + self.right.pullback(X, xp.sum(C * left[:, :, None], axis=1))


@dataclass(frozen=True, eq=False)
class DerivedMap(FeatureMap):
    """Features of a kernel with one inner kernel: scaled, of transformed rows or of windows."""

    kernel: Scaled | algebra.Modulated | algebra.Normalised | Windows | WithInputs
    inner: FeatureMap
    inputs: int | None = None  # number of columns of X; None: as the inner map

    @cached_property
    def reach(self) -> float:
        if isinstance(self.kernel, algebra.Mahalanobis):  # frequencies per unit of X
            return self.inner.reach * float(np.linalg.norm(self.kernel.root, 2))
        changes = isinstance(self.kernel, WithInputs) and not isinstance(self.kernel, Columns)
        return 0.0 if changes else self.inner.reach

    def unwhitened(self) -> tuple[FeatureMap, Any]:
        inner, landmarks = self.inner.unwhitened()
        return self if landmarks is None else replace(self, inner=inner), landmarks

    def with_jitter(self, jitter: float | None) -> "DerivedMap":
        return replace(self, inner=self.inner.with_jitter(jitter))

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        kernel, inner = self.kernel, self.inner
        match kernel:
            case Scaled():
                return kernel.scale**0.5 * inner.features(X)
            case Windows():
                return kernel.sum_windows(X, inner.features)
            case algebra.Modulated() | algebra.Normalised():
                U = kernel.inputs(X)
                Z = kernel.factor(U)[:, None] * inner.features(U)
                return arrays.in_precision(Z, arrays.precision(X))
        return with_far_rows(self, X, lambda X: inner.features(kernel.inputs(X)))

    def pullback(self, X: Float[Array, "n d"], C: Float[Array, "n D"]) -> Float[Array, "n d"]:
        kernel, inner = self.kernel, self.inner
        match kernel:
            case Scaled():
                return inner.pullback(X, kernel.scale**0.5 * C)
            case Windows():
                inverse = lambda rows, U, share: inner.pullback(U, share[:, None] * C[rows, :])
                return kernel.backward(X, inverse)
            case algebra.Modulated() | algebra.Normalised():
                return super().pullback(X, C)
        return kernel.backward(X, inner.pullback(kernel.inputs(X), C))


@dataclass(frozen=True, eq=False)
class SketchedProduct(FeatureMap):
    """D random features from φ₁(x) ⊗ φ₂(x), for a product of kernels at any width.

    z_t = D^(−½) (H s₁∘φ₁(x))_{i_t} (H s₂∘φ₂(x))_{j_t}, t = 1, …, D, with the Hadamard matrix H,
    random signs s and random rows i, j: the TensorSRHT [Ahle et al. (2020), definition 15].
    The variance of an entry is about (|u|²|u'|² + 2⟨u, u'⟩²)(|v|²|v'|² + 2⟨v, v'⟩²)/D.
    """

    kernel: Kernel
    left: FeatureMap  # φ₁, padded with zeros to a power of two
    right: FeatureMap  # φ₂, as well
    left_signs: Int[Array, " D1"]  # s₁, int8
    right_signs: Int[Array, " D2"]  # s₂
    rows: Int[Array, "2 D"]  # i and j: concatenated permutations of the rows of H

    below_kernel = False

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        left, right = self.left.features(X), self.right.features(X)
        if not isinstance(left, np.ndarray):
            return self._sample_products(left, right)
        Z = np.empty((X.shape[0], self.n_features), dtype=left.dtype)
        for rows in slices(len(Z), 512):  # 512 rows stay in the cache of a core
            Z[rows] = self._sample_products(left[rows], right[rows])
        return Z

    def _sample_products(self, left: Float[Array, "n D1"], right: Float[Array, "n D2"]) -> Array:
        first = take(signed_walsh(left, self.left_signs), self.rows[0], axis=1)
        first *= self.n_features**-0.5
        first *= take(signed_walsh(right, self.right_signs), self.rows[1], axis=1)
        return first


# --- Widths of the parts of a kernel -------------------------------------------------------------


def shares(
    parts: tuple[Kernel, ...], kernel: Kernel, method: Method, ask: Request
) -> tuple[int, ...]:
    """Return the width of each part: that of its exact map, or a share of D by its mean k(x, x).

    The variance of Σ aᵢ k̂ᵢ, with Dᵢ features of k̂ᵢ, is about Σ aᵢ²/Dᵢ, smallest for Dᵢ ∝ aᵢ.
    """
    exact = {i: part.exact(ask.n_inputs) for i, part in enumerate(parts)}
    if None in exact.values() or sum(width or 0 for width in exact.values()) > ask.n_features:
        for i, part in enumerate(parts):  # wide products are sketched instead
            inner = part.kernel if isinstance(part, Scaled) else part
            if isinstance(inner, Power | Product) and (exact[i] or 0) > ask.n_features // 4:
                exact[i] = None
    widths = [width or 0 for width in exact.values()]
    open_parts = [i for i, width in exact.items() if width is None]
    remaining = ask.n_features - sum(widths)
    minima = [_smallest_width(parts[i], ask.n_inputs, method) for i in open_parts]
    ask.require_width(sum(widths + minima), type(method).__name__, "for all terms of {!r}", kernel)
    sizes, step = [float(_diagonal(parts[i], ask).mean()) for i in open_parts], method.granularity
    for place, i in enumerate(open_parts):
        widths[i] = divisible_width(remaining - sum(minima[place + 1 :]), kernel, method, ask)
        if i != open_parts[-1]:
            share = step * round(remaining * sizes[place] / (sum(sizes[place:]) or 1.0) / step)
            widths[i] = min(max(minima[place], share), widths[i])
        remaining -= widths[i]
    return tuple(widths)


def _smallest_width(kernel: Kernel, d: int, method: Method) -> int:
    """Return the smallest width of a part: the sum of the smallest widths of its terms."""
    wrappers = Sum, Scaled, Columns, algebra.Mahalanobis, algebra.Modulated, algebra.Normalised
    return sum(
        leaf.exact(len(columns)) or 1 if isinstance(leaf, Linear | Constant) else method.granularity
        for leaf, columns in kernel.leaves(wrappers, range(d))
    )


def _diagonal(kernel: Kernel, ask: Request) -> Float[np.ndarray, " n"]:
    """Return k(x, x) of the first 256 rows; without rows, of one row of ones."""
    rows = np.ones((1, ask.n_inputs)) if ask.X is None else ask.X[:256]
    return arrays.to_numpy(kernel.diag(rows)).astype(np.float64)


def series(kernel: algebra.Exp, method: Method, ask: Request) -> dict[str, Kernel]:
    """Return the terms 1, k, k²/2, … of exp(k), until the remainder is below 0.1/√D of the sum."""
    max_degrees, tolerance = ask.n_features // (4 * method.granularity), 0.1 * ask.n_features**-0.5
    remainder, inner = _diagonal(kernel, ask), _diagonal(kernel.kernel, ask)
    total, term, n = remainder.mean(), np.ones_like(remainder), 0
    remainder = remainder - term
    while n < 2 or (remainder.mean() > tolerance * total and n < max_degrees):
        n += 1
        term = term * inner / n
        remainder = remainder - term
    powers = (Scaled(1 / math.factorial(i), Power(kernel.kernel, i)) for i in range(2, n + 1))
    return {f"term{i}": term for i, term in enumerate((Constant(1.0), kernel.kernel, *powers))}


def expansion(kernel: Product | Power, ask: Request) -> dict[str, Kernel]:
    """Return the terms of (a + b)(c + d) or (a + b)ᵖ; {} if one sketch is used instead.

    The measured error is 0.56 to 0.99 times the error of one sketch.
    """
    width = kernel.exact(ask.n_inputs)
    if width is not None and width <= ask.n_features:
        return {}
    terms: list[Kernel]
    if isinstance(kernel, Product):
        terms = [a * b for a in kernel.left.summands for b in kernel.right.summands]
    else:
        p, terms = kernel.exponent, kernel.kernel.summands
        if len(terms) != 2:
            return {}
        a, b = ([k if i == 1 else Power(k, i) for i in range(1, p + 1)] for k in terms)
        middle = (Scaled(math.comb(p, i), a[i - 1] * b[-i - 1]) for i in range(1, p))
        terms = [a[-1], *middle, b[-1]]
    fits = 1 < len(terms) <= ask.n_features // 16
    return {f"term{n}": term for n, term in enumerate(terms)} if fits else {}


def divisible_width(width: int, kernel: Kernel, method: Method, ask: Request) -> int:
    """Return the largest valid width of the method up to ``width``; refuse zero."""
    minimum, name = ask.n_features - width + method.granularity, type(method).__name__
    ask.require_width(minimum, name, "above the width of the exact parts of {!r}", kernel)
    return width - width % method.granularity


# --- Boxes and principal axes of rows -------------------------------------------------------------

#: Largest number of columns for a covariance and O(d³) axes; beyond, the limit of sampled rows.
MAX_COLUMNS = 2048


def dense_blocks(X: Float[Array, "n d"]) -> Iterator[Float[Array, "m d"]]:
    """Yield the rows as dense float64 blocks."""
    step = max(1, (1 << 22) // X.shape[1])
    for rows in slices(X.shape[0], step):
        yield dense(X[rows]).astype(np.float64, copy=False)


def box_of_rows(X: Float[Array, "n d"]) -> tuple[Float[Array, " d"], Float[Array, " d"]]:
    """Return the smallest and the largest value of each column."""
    faces = [(rows.min(axis=0), rows.max(axis=0)) for rows in dense_blocks(X)]
    smallest, largest = (np.array(side) for side in zip(*faces, strict=True))
    return smallest.min(axis=0), largest.max(axis=0)


def check_box(
    caller: str, box: tuple[tuple[float, float], ...], d: int
) -> tuple[Float[Array, " d"], Float[Array, " d"]]:
    """Return the lower and upper corner of a user's box; refuse another number of columns."""
    if len(box) != d:
        raise InvalidInput(
            f"{caller}: box must have a pair for each column; got {len(box)} for {d} columns."
        )
    lower, upper = np.array(box, dtype=float).T
    return lower.copy(), upper.copy()


def row_sample(X: Float[Array, "n d"], size: int, rng: np.random.Generator) -> Float[Array, "m d"]:
    """Return at most ``size`` random rows, without replacement, dense, in float64."""
    n = X.shape[0]
    index = np.arange(n) if n <= size else np.sort(rng.choice(n, size=size, replace=False))
    return dense(X[index]).astype(np.float64, copy=False)


def mean_and_covariance(
    X: Float[Array, "n d"], scales: Float[Array, " d"] | float = 1.0
) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
    """Return the mean of X and the covariance of scales · X."""
    mean: Array = sum(rows.sum(axis=0) for rows in dense_blocks(X)) / X.shape[0]
    centred = ((rows - mean) * scales for rows in dense_blocks(X))
    return mean, sum(rows.T @ rows for rows in centred) / X.shape[0]


def axes_of_rows(
    X: Float[Array, "n d"], scales: Float[Array, " d"], centred: bool, count: int
) -> Float[Array, "d c"]:
    """Return at most ``count`` principal axes of scales · X, about the mean if ``centred``."""
    n, d = X.shape
    if d <= MAX_COLUMNS:
        mean, moments = mean_and_covariance(X)
        if not centred:
            moments = moments + np.outer(mean, mean)
        return principal_axes(moments * np.outer(scales, scales))[1][:, :count]
    rows = dense(X[:: -(-n // MAX_COLUMNS)]).astype(np.float64) * scales
    rows -= rows.mean(axis=0) if centred else 0.0
    values, vectors = principal_axes(rows @ rows.T)
    rank = min(count, int((values > values[0] * len(rows) * np.finfo(float).eps).sum()) or 1)
    return with_signs(np.linalg.qr(rows.T @ vectors[:, :rank])[0])


def require_squares(caller: str, X: Float[Array, "n d"], scales: Float[Array, " d"]) -> None:
    """Raise an error for rows whose squared distances, in lengthscales, overflow."""
    largest = max(float(np.abs(rows * scales).max()) for rows in dense_blocks(X))
    if not largest <= 1e150:
        raise UnsupportedKernel(
            f"{caller} requires rows up to 1e+150 lengthscales, as larger squares overflow; got "
            f"{largest:.3g}. Take a larger lengthscale, or another method."
        )


def principal_axes(matrix: Float[Array, "d d"]) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
    """Return nonnegative eigenvalues in descending order, and eigenvectors as columns."""
    values, vectors = np.linalg.eigh(matrix)
    return np.maximum(values[::-1], 0.0), with_signs(vectors[:, ::-1])


def eigenfunctions(
    K: Float[Array, "M M"], share: Float[Array, " M"], floor: float = 0.0
) -> tuple[Float[Array, " m"], Float[Array, "M m"]]:
    """Return eigenvalues above ``floor`` and rounding in descending order, and coefficients C.

    The eigenfunctions are k(x, nodes) C, for nodes with quadrature weights ``share``.
    """
    root = np.sqrt(share)
    values, V = principal_axes(root[:, None] * K * root)
    positive = values > max(1e-12 * values[0], floor)
    return values[positive], root[:, None] * V[:, positive] / np.sqrt(values[positive])


def with_signs(vectors: Float[Array, "d c"]) -> Float[Array, "d c"]:
    """Return the columns, flipped so that the largest entry is positive; LAPACK's signs vary."""
    largest = vectors[np.abs(vectors).argmax(axis=0), np.arange(vectors.shape[1])]
    return vectors * np.where(largest < 0, -1.0, 1.0)


# --- Compression: the D principal components of a wider map --------------------------------------
#
# With Z′ = φ′(X), (n, D′), and V the eigenvectors of the D largest eigenvalues of Z′ᵀZ′,
#
#     φ(x) = Vᵀ φ′(x),   Z Zᵀ = Z′ V Vᵀ Z′ᵀ ⪯ Z′ Z′ᵀ,
#
# the best approximation of Z′Z′ᵀ of rank D on these rows (Eckart and Young, 1936).


MethodField = Annotated[Method, kind_of("a value such as HermiteMercer() or Nystrom()", Method)]


@dataclass(frozen=True)
class Compressed(Method):
    """The D principal components of ``width`` · D features of ``method``.

    Parameters
    ----------
    method : Method
        Method of the wider map.
    width : int, default 4
        D′/D. With 4, deterministic maps are within 2 % of the smallest error of rank D.

    See Also
    --------
    Projected : Projection of the rows, before the features.

    Notes
    -----
    Supports the kernels of ``method``, and requires rows. Z Zᵀ ⪯ K if this holds for the wider
    map. Use it with :class:`HermiteMercer` or :class:`Nystrom` if D limits a solver or the memory;
    random features gain little. Drawing takes O(n D′²), φ(X) an additional O(n D′ D).

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> X = np.random.default_rng(0).uniform(-1, 1, (50, 3))
    >>> method = bo.Compressed(bo.Fourier(), width=4)
    >>> bo.draw(bo.kernels.Gaussian(), method, n_features=32, X=X)
    ProjectedMap(kernel=Gaussian(lengthscale=1.0), n_inputs=3, n_features=32)
    """

    method: MethodField
    width: Counted = 4


@dataclass(frozen=True, eq=False)
class ProjectedMap(FeatureMap):
    """φ(x) = Vᵀ φ′(Px): a map of projected rows, of principal components, or of both."""

    kernel: Kernel
    inner: FeatureMap  # φ′
    #: P, which multiplies rows from the right; it includes lengthscales per column.
    projection: Float[Array, "d k"] | None = None
    #: V, with orthonormal columns by decreasing variance on the rows of the draw.
    directions: Float[Array, "m D"] | None = None

    unbiased = False  # principal components omit directions

    @property
    def below_kernel(self) -> bool:  # projected rows have another kernel
        return self.projection is None and self.inner.below_kernel

    @cached_property
    def reach(self) -> float:
        P = self.projection
        return self.inner.reach * (1.0 if P is None else float(np.linalg.norm(P, 2)))

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        def transform(X: Float[Array, "n d"]) -> Float[Array, "n D"]:
            P, V = self.projection, self.directions
            Z = self.inner.features(X if P is None else X @ adapt(P, like=X))
            return Z if V is None else times(Z, V)

        return with_far_rows(self, X, transform)

    def pullback(self, X: Float[Array, "n d"], C: Float[Array, "n D"]) -> Float[Array, "n d"]:
        P, V = self.projection, self.directions
        C = C if V is None else C @ adapt(V.T, like=X)
        if P is None:
            return self.inner.pullback(X, C)
        return self.inner.pullback(X @ adapt(P, like=X), C) @ adapt(P.T, like=X)


@dataclass(frozen=True)
class Projected(Method):
    """Features by ``method`` of projected rows: k(x, y) ≈ k(Px, Py).

    Parameters
    ----------
    method : Method
        Method for the features of d′ columns.
    n_components : int
        d′, limited to d.
    projection : {"pca", "jl"}, default "pca"
        "pca": the principal axes of the rows (about the origin if the kernel is not stationary).
        "jl": independent normal numbers of variance 1/d′, which preserve all distances to a factor
        1 ± √(8 log(n)/d′) [Johnson and Lindenstrauss (1984)].

    See Also
    --------
    Compressed : Principal components of the features.

    Notes
    -----
    Supports kernels of the Euclidean distance or of the inner product that ``method`` supports in
    d′ columns. The errors of the features and of the projection add up; certificates include both.
    Use it if few linear combinations of many columns matter. Cost of φ(X): O(n d d′) plus the cost
    of ``method``. Sparse rows stay sparse until the projection.

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> X = np.random.default_rng(0).uniform(-1, 1, (50, 3))
    >>> method = bo.Projected(bo.Fourier(), n_components=2)
    >>> bo.draw(bo.kernels.Gaussian(), method, n_features=64, X=X)
    ProjectedMap(kernel=Gaussian(lengthscale=1.0), n_inputs=3, n_features=64)
    """

    method: MethodField
    n_components: Counted
    projection: Annotated[str, word("pca", "jl")] = "pca"


def is_rotatable(kernel: Kernel, d: int) -> bool:
    """Whether every leaf of the kernel is a kernel of distances or of inner products."""
    leaves = isotropic(kernel, d)[0].leaves((Combined, algebra.Normalised))
    return all(leaf.zonal(d) is not None for leaf, _ in leaves)
