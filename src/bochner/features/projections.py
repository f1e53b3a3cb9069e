"""Boxes and principal axes of rows; maps cut to their best directions, and of fewer columns."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated

import numpy as np

from bochner._core.arrays import dense, moved, slices
from bochner._core.blas import add_gram, mirror
from bochner._core.checks import Counted, word
from bochner._core.shapes import Array, Float
from bochner.errors import InvalidInput, UnsupportedKernel
from bochner.features.composed import is_stationary
from bochner.features.map import Draw, FeatureMap, Method, Request, kind_of, times, with_far_rows
from bochner.kernels.algebra import Columns
from bochner.kernels.kernel import Kernel, leaves_of
from bochner.kernels.radial import isotropic
from bochner.kernels.stationary import CoordinateWise

#: Covariances, and axes in O(d³), are of at most this many columns; of more, of as many rows.
MOST_COLUMNS = 2048


def dense_blocks(X: Float[Array, "n d"]) -> Iterator[Float[Array, "m d"]]:
    """Yield the rows as dense float64 blocks."""
    step = max(1, (1 << 22) // X.shape[1])
    for rows in slices(X.shape[0], step):
        yield dense(X[rows]).astype(np.float64, copy=False)


def box_of_rows(X: Float[Array, "n d"]) -> tuple[Float[Array, " d"], Float[Array, " d"]]:
    """Return the least and the largest value of each column."""
    faces = [(rows.min(axis=0), rows.max(axis=0)) for rows in dense_blocks(X)]
    least, largest = (np.array(side) for side in zip(*faces, strict=True))
    return least.min(axis=0), largest.max(axis=0)


def given_box(
    who: str, box: tuple[tuple[float, float], ...], d: int
) -> tuple[Float[Array, " d"], Float[Array, " d"]]:
    """Return the corners of a box that was given for d columns."""
    if len(box) != d:
        raise InvalidInput(
            f"{who}: box must have a pair for each column; got {len(box)} for {d} columns."
        )
    lower, upper = np.array(box, dtype=float).T
    return lower.copy(), upper.copy()


def some_rows(X: Float[Array, "n d"], most: int, rng: np.random.Generator) -> Float[Array, "m d"]:
    """Return at most this many different rows at random, dense, in float64."""
    n = X.shape[0]
    chosen = np.arange(n) if n <= most else np.sort(rng.choice(n, size=most, replace=False))
    return dense(X[chosen]).astype(np.float64, copy=False)


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
    """Return at most ``count`` principal axes of scales · X, about the mean where ``centred``."""
    n, d = X.shape
    if d <= MOST_COLUMNS:
        mean, moments = mean_and_covariance(X)
        if not centred:
            moments = moments + np.outer(mean, mean)
        return principal_axes(moments * np.outer(scales, scales))[1][:, :count]
    rows = dense(X[:: -(-n // MOST_COLUMNS)]).astype(np.float64) * scales
    rows -= rows.mean(axis=0) if centred else 0.0
    values, vectors = principal_axes(rows @ rows.T)
    kept = min(count, int((values > values[0] * len(rows) * np.finfo(float).eps).sum()) or 1)
    return with_signs(np.linalg.qr(rows.T @ vectors[:, :kept])[0])


def require_squares(who: str, X: Float[Array, "n d"], scales: Float[Array, " d"]) -> None:
    """Refuse rows so far away, in lengthscales, that their squares are no numbers."""
    largest = max(float(np.abs(rows * scales).max()) for rows in dense_blocks(X))
    if not largest <= 1e150:
        raise UnsupportedKernel(
            f"{who} requires rows up to 1e+150 lengthscales, for squares to be numbers; got "
            f"{largest:.3g}. Take a larger lengthscale, or another method."
        )


def principal_axes(matrix: Float[Array, "d d"]) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
    """Return eigenvalues, none below zero, from the largest, and eigenvectors as columns."""
    values, vectors = np.linalg.eigh(matrix)
    return np.maximum(values[::-1], 0.0), with_signs(vectors[:, ::-1])


def eigenfunctions(
    K: Float[Array, "M M"], share: Float[Array, " M"], least: float = 0.0
) -> tuple[Float[Array, " m"], Float[Array, "M m"]]:
    """Return eigenvalues above ``least`` and rounding, from the largest, and weights C.

    The functions k(x, nodes) C extend the eigenvectors of k on nodes that weigh ``share``.
    """
    root = np.sqrt(share)
    values, V = principal_axes(root[:, None] * K * root)
    kept = values > max(1e-12 * values[0], least)
    return values[kept], root[:, None] * V[:, kept] / np.sqrt(values[kept])


def with_signs(vectors: Float[Array, "d c"]) -> Float[Array, "d c"]:
    """Return columns whose largest entries are positive: LAPACK's choice of signs is no matter."""
    largest = vectors[np.abs(vectors).argmax(axis=0), np.arange(vectors.shape[1])]
    return vectors * np.where(largest < 0, -1.0, 1.0)


# --- Compression: a wider map cut to the D directions that carry most of it ----------------------
#
# With Z′ = φ′(X), (n, D′), and V the D eigenvectors of largest eigenvalue of the Gram matrix Z′ᵀZ′,
#
#     φ(x) = Vᵀ φ′(x),   Z Zᵀ = Z′ V Vᵀ Z′ᵀ ⪯ Z′ Z′ᵀ,
#
# the best approximation of Z′Z′ᵀ of rank D on these rows (Eckart and Young, 1936).


MethodField = Annotated[Method, kind_of("a value such as HermiteMercer() or Nystrom()", Method)]


@dataclass(frozen=True)
class Compressed(Method):
    """The D principal components of ``width`` times as many features of ``method``.

    Parameters
    ----------
    method : Method
        Method of the wider map.
    width : int, default 4
        D′/D. With 4, deterministic maps come within two per cent of the least error of rank D.

    See Also
    --------
    Projected : Fewer columns before the features are made.

    Notes
    -----
    Serves the kernels of ``method``, and needs rows to be drawn. Below the kernel if the wider map
    is. Choose it over :class:`HermiteMercer` or :class:`Nystrom` if D limits a solver or the
    memory; random features gain little. Cost of drawing: O(n D′²), of φ(X): O(n D′ D) more.

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
    """φ(x) = Vᵀ φ′(Px): a map of fewer columns, cut to fewer features, or both."""

    kernel: Kernel
    inner: FeatureMap  # φ′
    #: P, as it multiplies rows from the right; lengthscales of single columns are in it.
    projection: Float[Array, "d k"] | None = None
    #: V, orthonormal columns by decreasing energy on the rows it was drawn from.
    directions: Float[Array, "m D"] | None = None

    unbiased = False  # directions are of the features that were drawn, and leave some out

    @property
    def below_kernel(self) -> bool:  # the kernel of projected rows is another
        return self.projection is None and self.inner.below_kernel

    @cached_property
    def reach(self) -> float:
        P = self.projection
        return self.inner.reach * (1.0 if P is None else float(np.linalg.norm(P, 2)))

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        def turned(X: Float[Array, "n d"]) -> Float[Array, "n D"]:
            P, V = self.projection, self.directions
            Z = self.inner.features(X if P is None else X @ moved(P, like=X))
            return Z if V is None else times(Z, V)

        return with_far_rows(self, X, turned)

    def pullback(self, X: Float[Array, "n d"], C: Float[Array, "n D"]) -> Float[Array, "n d"]:
        P, V = self.projection, self.directions
        C = C if V is None else C @ moved(V.T, like=X)
        if P is None:
            return self.inner.pullback(X, C)
        return self.inner.pullback(X @ moved(P, like=X), C) @ moved(P.T, like=X)


def draw_compressed(method: Compressed, kernel: Kernel, ask: Request, draw: Draw) -> FeatureMap:
    """Draw the wider map, and the directions of its largest variance on the rows."""
    X = ask.rows("Compressed", "its directions")
    inner = draw(method.method, kernel, replace(ask, n_features=method.width * ask.n_features))
    if inner.n_features <= ask.n_features:
        return inner
    D = inner.n_features
    gram, step = np.zeros((D, D), order="F"), max(1, (1 << 22) // D)
    for rows in slices(X.shape[0], step):
        add_gram(gram, np.ascontiguousarray(inner(X[rows]), dtype=np.float64))
    _, axes = principal_axes(mirror(gram))
    V = np.ascontiguousarray(axes[:, : ask.n_features])
    return ProjectedMap(kernel, inner, directions=V)


@dataclass(frozen=True)
class Projected(Method):
    """Features by ``method`` of a few combinations of the columns: k(x, y) ≈ k(Px, Py).

    Parameters
    ----------
    method : Method
        What makes the features, of d′ columns.
    n_components : int
        d′; at most d combinations are taken.
    how : {"pca", "jl"}, default "pca"
        "pca": the principal axes of the rows (of their second moments, where the kernel is not one
        of differences). "jl": independent normal numbers of variance 1/d′, which keep all
        distances to a factor 1 ± √(8 log(n)/d′) [Johnson and Lindenstrauss (1984)].

    See Also
    --------
    Compressed : Fewer features after they are made.

    Notes
    -----
    Serves kernels of the Euclidean distance or of the inner product that ``method`` serves in d′
    columns. The errors of the features and of the projection add up; certificates measure both.
    Choose it where few combinations of many columns matter. Cost of φ(X): O(n d d′) and that of
    ``method``; sparse rows stay sparse until they are projected.

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
    how: Annotated[str, word("pca", "jl")] = "pca"


def rotatable(kernel: Kernel) -> bool:
    """Whether the kernel is one of distances or inner products, as far as its structure tells."""
    return not any(
        isinstance(leaf, CoordinateWise | Columns)
        or isinstance(getattr(leaf, "lengthscale", None), tuple)
        for leaf in leaves_of(kernel)
    )


def draw_projected(method: Projected, kernel: Kernel, ask: Request, draw: Draw) -> FeatureMap:
    """Draw features of combinations of the columns."""
    plain, lengths = isotropic(kernel, ask.n_inputs)
    d, size, scales = ask.n_inputs, min(method.n_components, ask.n_inputs), 1 / lengths
    if method.how == "jl":
        P = ask.stream("projection").standard_normal((d, size)) / size**0.5
    else:
        rows = ask.rows('Projected(how="pca")', "principal axes")
        P = axes_of_rows(rows, scales, is_stationary(plain), size)
    P = np.ascontiguousarray(scales[:, None] * P)
    X = None if ask.X is None else ask.X @ moved(P, like=ask.X)
    inner = draw(method.method, plain, replace(ask, n_inputs=P.shape[1], X=X))
    return ProjectedMap(kernel, inner, P)
