"""Products of one-dimensional functions: explicit features, and eigenfunctions of the Laplacian.

A feature is Π_j f_{j,k_j}(x_j). Eigenvalues of a product of kernels multiply, so the D largest have
the largest sums of logarithms. Features are computed by halves: the products over the first
columns, the products over the other columns, and one product for each feature.
"""

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Annotated, Any

import numpy as np
from scipy.special import logsumexp

from bochner._core import native
from bochner._core.arrays import adapt, array_namespace, dense, is_sparse, slices, take
from bochner._core.checks import MaybePositive, bounded, finite, optional
from bochner._core.native import Programme, harmonics
from bochner._core.shapes import Array, Float, Int
from bochner.errors import InvalidInput, UnsupportedKernel
from bochner.features import compose
from bochner.features.map import FeatureMap, Method, Request, to_double
from bochner.kernels import basis
from bochner.kernels.kernel import Constant, Kernel, Scaled, Sum
from bochner.kernels.spectral import Measure
from bochner.kernels.stationary import CoordinateWise, Gaussian

#: Row numbers of the table of 1-D functions, or ``(left, right, i, j)``: the products of rows ``i``
#: of ``left`` and rows ``j`` of ``right``, which are again products or row numbers.
Halves = Any


def split_products(factors: Int[Array, "D J"]) -> Halves:
    """Return a plan of the D products Π_j table[factors[i, j]]; equal halves are computed once."""
    if factors.shape[1] == 1:
        return factors[:, 0]
    half = (factors.shape[1] + 1) // 2
    parts = factors[:, :half], factors[:, half:]
    left, right = (np.unique(part, axis=0, return_inverse=True) for part in parts)
    return split_products(left[0]), split_products(right[0]), left[1].ravel(), right[1].ravel()


def multiply(halves: Halves, table: Float[Array, "m n"]) -> Float[Array, "D n"]:
    """Return the products of rows of the table that `split_products` has planned."""
    if not isinstance(halves, tuple):
        return take(table, halves, axis=0)
    left, right, i, j = halves
    return take(multiply(left, table), i, axis=0) * take(multiply(right, table), j, axis=0)


class Products(FeatureMap):
    """A map whose features are products of functions of one column, times optional amplitudes."""

    amplitudes: Float[Array, " D"] | None = None

    @cached_property
    @abstractmethod
    def halves(self) -> Halves:
        """Rows of the table that each feature multiplies, as nested halves (`Halves`)."""

    @abstractmethod
    def table(self, X: Float[Array, "n d"]) -> Float[Array, "m n"]:
        """Return the values of all functions of one column at rows of X, in float64."""

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        """Return the products for each row of X, in its precision.

        Multiplying long rows of a transposed buffer is three times faster than multiplying columns.
        """
        halves, width, factors = self.halves, self.n_features, self.amplitudes
        if not (isinstance(X, np.ndarray) or is_sparse(X)):
            xp = array_namespace(X)
            Z = xp.permute_dims(multiply(halves, xp.astype(self.table(X), X.dtype)), (1, 0))
            return Z if factors is None else Z * adapt(factors, like=Z)
        Z = np.empty((X.shape[0], width), dtype=X.dtype)
        step = max(1, min(max(64, (1 << 18) // width), 512, len(Z)))
        # Buffers are reused, and rows are padded to avoid conflicts of cache sets.
        buffers = np.empty((3, width * (step + 16)), dtype=X.dtype)
        for start in range(0, len(Z), 4 * step):
            values = self.table(X[start : start + 4 * step]).astype(X.dtype, copy=False)
            for first in range(0, values.shape[1], step):
                part = values[:, first : first + step]
                n = part.shape[1]
                out = buffers[2].reshape(width, -1)[:, :n]
                if isinstance(halves, tuple):
                    sides = [buffer[: width * n].reshape(width, n) for buffer in buffers[:2]]
                    for side, half, rows in zip(sides, halves[:2], halves[2:], strict=True):
                        np.take(multiply(half, part), rows, axis=0, out=side, mode="clip")
                    np.multiply(sides[0], sides[1], out=out)
                else:
                    out[...] = part[halves]
                if factors is not None:
                    out *= factors[:, None]
                Z[start + first : start + first + n] = out.T
        return Z


# --- Explicit bases: exact features of kernels that are defined by their features ----------------
#
# `FourierSeries` and `Polynomials` are kernels k(x, y) = Π_j Σ_i f_i(x_j) f_i(y_j). The products of
# the f_i are exact features, and any subset of the products is below the kernel.


@dataclass(frozen=True)
class Explicit(Method):
    """Exact features of the kernel, or the D exact features with the largest mean square.

    See Also
    --------
    ExactKernel : The exact kernel, without features.
    PolySketch : Sketches of polynomials with too many monomials.

    Notes
    -----
    Supports ``FourierSeries``, ``Polynomials``, kernels of ⟨x, y⟩ with finite power series such as
    ``Polynomial``, and their combinations with ``Linear`` and ``Constant``. m functions of one
    column give m^d products of d columns. If D is smaller, the products with the largest mean
    square are used, and Z Zᵀ ⪯ K. Power series need all monomials. Cost of φ(X): O(n (d m + D)).

    Examples
    --------
    >>> import bochner as bo
    >>> bo.draw(bo.kernels.Polynomial(2), bo.Explicit(), n_features=64, n_inputs=3)
    MonomialMap(kernel=Polynomial(degree=2, offset=1.0, scale=1.0), n_inputs=3, n_features=10)
    """

    floats_each = 0


@dataclass(frozen=True, eq=False)
class BasisMap(Products):
    """φ(x) = (Π_j f_{k_j}(x_j))_k."""

    kernel: basis.Basis
    indices: Int[Array, "D d"]  # k of each feature, by decreasing mean square

    below_kernel = True  # a subset of the exact features of the kernel

    @cached_property
    def halves(self) -> Halves:
        return split_products(self.indices * self.n_inputs + np.arange(self.n_inputs))

    def table(self, X: Float[Array, "n d"]) -> Float[Array, "m n"]:
        xp, X = to_double(dense(X))
        return xp.permute_dims(xp.concat(self.kernel.functions(X), axis=1), (1, 0))


def draw_basis(method: Method, kernel: basis.Basis, ask: Request) -> BasisMap:
    """Return the map of the D basis-function products with the largest mean squares."""
    sizes = np.array(kernel.sizes)
    order = np.argsort(-sizes, kind="stable")[: np.count_nonzero(sizes)]
    ranks, _ = basis.best_products([np.log(sizes[order])] * ask.n_inputs, ask.n_features)
    return BasisMap(kernel, order.astype(np.int32)[ranks])


# --- Laplacian eigenfunctions on a box: sines, weighted by the kernel's spectral density ---------
#
# On the box Π_j [lower_j, lower_j + length_j] the Laplacian with zero boundary values has the
# eigenfunctions Π_j √(2/length_j) sin(ω_j (x_j − lower_j)), ω_j = πk_j/length_j, and a stationary
# kernel of spectral density S is nearly Σ_k S(ω_k) φ_k(x) φ_k(y) inside it. For the Green's
# function of the second derivative, Brownian motion, the sines of k − ½ are exact.


@dataclass(frozen=True)
class LaplacianEigenfunctions(Method):
    """Sines on a box about the rows, weighted by the spectral density: Hilbert-space features.

    Parameters
    ----------
    boundary : float, optional
        Size of the box as a multiple of the size of the rows. A larger box has smaller errors near
        its faces and needs more features. Default: the margin, from half a lengthscale to six, with
        the smallest error on 256 of the rows.
    box : d pairs (lower, upper), optional
        The box. By default it is computed from the rows.
    conditions : {"dirichlet", "neumann", "periodic"}, default "dirichlet"
        Boundary conditions. "dirichlet": functions are zero (sines). "neumann": the slope is zero
        (cosines). "periodic": sines and cosines with the period, for angles, hours and seasons.

    Notes
    -----
    Supports stationary kernels with a spectral density, their sums and multiples, and (exactly)
    ``Brownian`` and ``GreenFunction``. In one column of length b, infinitely many features give the
    kernel and its images,

        dirichlet: Σ_m k(x − y + 2mb) − k(x + y + 2mb),   neumann: the same with a plus,
        periodic: Σ_m k(x − y + mb),   m all whole numbers, x and y from the lower face on.

    Only the weights depend on the lengthscales, not the functions. Neither unbiased nor below the
    kernel. Use it for d = 1 to 3 and rows that fill a box; :class:`HermiteMercer` and
    :class:`Nystrom` need fewer features. Cost of φ(X): O(n (Σ_j m_j + D)), m_j frequencies along
    column j. Source: Solin and Särkkä (2020).

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> X = np.random.default_rng(0).uniform(-1, 1, (50, 1))
    >>> phi = bo.draw(bo.kernels.Matern(2.5), bo.LaplacianEigenfunctions(), n_features=64, X=X)
    >>> float(abs(phi(X) @ phi(X).T - phi.kernel(X, X)).max()) < 0.001
    True
    """

    boundary: Annotated[float | None, optional(bounded(finite, 1, math.inf))] = None
    box: Annotated[tuple[tuple[float, float], ...] | None, optional(basis.as_box)] = None
    conditions: basis.Conditions = "dirichlet"


@dataclass(frozen=True, eq=False)
class EigenfunctionMap(Products):
    """φ(x) = (a_k Π_j √(2/length_j) sin(π(k_j − shift)(x_j − lower_j)/length_j))_k, or cosines."""

    kernel: Kernel
    lower: Float[Array, " d"]  # The box; rows outside are moved to its nearest point
    length: Float[Array, " d"]
    #: 0 for sines that are zero on all faces, ½ for Brownian motion, which is free at one face.
    shift: float
    indices: Int[Array, "D d"]  # k, from 1
    amplitudes: Float[Array, " D"] | None = None  # the roots of the eigenvalues, from the largest
    conditions: str = "dirichlet"

    @property
    def below_kernel(self) -> bool:
        return isinstance(self.kernel, basis.Brownian | basis.GreenFunction)

    unbiased = False  # A truncated series

    @cached_property
    def halves(self) -> Halves:
        return split_products(self.indices - 1 + np.cumsum([0, *self.indices.max(axis=0)[:-1]]))

    def table(self, X: Float[Array, "n d"], axis: int | None = None) -> Float[Array, "m n"]:
        """Return the values of all functions; for column ``axis`` their derivatives."""
        xp, X = to_double(dense(X))
        lower, length = (adapt(side[:, None], like=X) for side in (self.lower, self.length))
        unit = basis.into_unit((xp.permute_dims(X, (1, 0)) - lower) / length, self.conditions)
        kind = self.conditions, self.shift
        counts = enumerate(self.indices.max(axis=0).tolist())
        parts = [basis.waves(m, unit[j, :], self.length[j], kind, j == axis) for j, m in counts]
        return xp.concat(parts, axis=0)

    def pullback(self, X: Float[Array, "n d"], C: Float[Array, "n D"]) -> Float[Array, "n d"]:
        xp, numbers = array_namespace(X), (self.amplitudes, self.lower, self.length)
        roots, lower, length = (adapt(np.asarray(part), like=X) for part in numbers)
        C = xp.permute_dims(C * roots, (1, 0))
        tables = (xp.astype(self.table(X, j), X.dtype) for j in range(self.n_inputs))
        G = xp.stack([xp.sum(C * multiply(self.halves, T), axis=0) for T in tables], axis=1)
        in_box = xp.abs(X - lower - length / 2) <= length / 2
        return G if self.conditions == "periodic" else xp.where(in_box, G, xp.zeros_like(G))


def draw_sines(method: LaplacianEigenfunctions, kernel: Kernel, ask: Request) -> FeatureMap:
    """Draw the sines with the largest spectral density on a box."""
    first, _ = next(kernel.leaves((Sum, Scaled)))
    measure: Any = first.spectral(ask.n_inputs)
    sines = partial(_sines, kernel, measure, ask.n_features, method.conditions)
    if method.box is not None:
        lower, upper = compose.check_box("LaplacianEigenfunctions", method.box, ask.n_inputs)
        return sines(lower, upper - lower)
    X = ask.rows("LaplacianEigenfunctions", "the box")
    smallest, largest = compose.box_of_rows(X)
    middle, half = (smallest + largest) / 2, (largest - smallest) / 2
    if method.boundary is not None:
        half = method.boundary * np.where(half > 0, half, 0.5)
        return sines(middle - half, 2 * half)
    rows = compose.row_sample(X, 256, ask.stream("boundary"))
    # Margins in lengthscales: at a face of the box, the error is k(x, mirror image of x).
    halves = [half + margin / measure.scales for margin in (0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)]
    maps = [sines(middle - h, 2 * h) for h in halves]
    K = kernel(rows)
    errors = [np.linalg.norm(Z @ Z.T - K) for Z in (phi(rows) for phi in maps)]
    return maps[int(np.argmin(errors))]


def _sines(
    kernel: Kernel, measure: Measure, width: int, conditions: str, lower: Array, length: Array
) -> EigenfunctionMap:
    count = 4 * width  # candidates, because the order of weights differs from the order of |ω|
    unit = [math.pi * basis.half_turns(conditions, count) / b for b in length]
    scaled = [w / s for w, s in zip(unit, measure.scales, strict=True)]
    # Candidates are chosen by exact log densities, or by −(ωℓ)².
    law = measure.law if measure.role == "coordinates" else None
    logs = [-w * w if law is None else law.log_density(w) for w in scaled]
    indices, _ = basis.best_products(logs, count)
    W = np.stack([w[k] for w, k in zip(unit, indices.T, strict=True)], axis=1)
    # log S of each product, ∫ S dω = (2π)^d k(0).
    constant = len(unit) * math.log(2 * math.pi)
    log_density = lambda leaf, _: leaf.spectral(len(unit)).log_density(W) + constant
    add = lambda *logs: logsumexp(logs, axis=0)
    times = lambda scale, logs: logs + math.log(scale)
    weights: Array = kernel.reduce(log_density, add, lambda *_: None, times)
    best = np.argsort(-weights, kind="stable")[:width]
    frequencies, roots = np.ascontiguousarray(indices[best] + 1), np.exp(0.5 * weights[best])
    return EigenfunctionMap(kernel, lower, length, 0.0, frequencies, roots, conditions)


def draw_modes(
    method: LaplacianEigenfunctions, kernel: basis.Brownian | basis.GreenFunction, ask: Request
) -> EigenfunctionMap:
    """Draw the terms with the largest weights of the eigenfunction expansion of the kernel."""
    if method != LaplacianEigenfunctions():
        raise InvalidInput(
            f"LaplacianEigenfunctions: {type(kernel).__name__} has its own box and conditions; got "
            f"{method!r}. Use LaplacianEigenfunctions()."
        )
    if isinstance(kernel, basis.Brownian):  # Karhunen and Loève: (length/(π(k − shift)))² each
        shift, d = (0.0 if kernel.bridge else 0.5), ask.n_inputs
        column = 2 * np.log(kernel.length / (math.pi * (np.arange(1, ask.n_features + 1) - shift)))
        indices, logs = basis.best_products([column] * d, ask.n_features)
        parts = (shift, indices + 1, np.exp(0.5 * logs), "dirichlet")
        return EigenfunctionMap(kernel, np.zeros(d), np.full(d, kernel.length), *parts)
    if ask.n_inputs != len(kernel.box):
        raise UnsupportedKernel(
            f"LaplacianEigenfunctions requires the {len(kernel.box)} columns of the box "
            f"of {kernel!r}; got {ask.n_inputs}."
        )
    count = ask.n_features if kernel.has_closed_form else min(ask.n_features, kernel.terms)
    numbers, eigenvalues = basis.modes(kernel.box, count, kernel.conditions)
    roots, (lower, upper) = np.sqrt(kernel.weights(eigenvalues)), np.array(kernel.box).T
    parts = (0.0, numbers + 1, roots, kernel.conditions)
    return EigenfunctionMap(kernel, lower.copy(), upper - lower, *parts)


# --- Products of kernels of one column each: numerical Mercer features ---------------------------
#
# k(x, y) = Π_j k_j(x_j, y_j). With nodes q of column j, their weights p and the eigenpairs of
# P^½ k_j(q, q) P^½ = V diag(w) Vᵀ, the functions
#
#     g_i(x) = w_i^(−½) Σ_a k_j(x, q_a) p_a^½ V_{a i}
#
# are the Nyström extension of eigenfunctions: k_j − Σ_i g_i g_i ⪰ 0 for **all** x and y. By Schur's
# theorem the same holds for products of kernels.


UNIT = Constant(1.0)


def column_kernels(kernel: Kernel, d: int) -> tuple[Kernel, ...] | None:
    """Return kernels of one column each whose product is the kernel; None if there are none."""

    def leaf(part: Any, axes: tuple[int, ...]) -> tuple[Kernel, ...] | None:
        single = [part] if isinstance(part, Constant) or len(axes) == 1 else []
        if isinstance(part, Gaussian | CoordinateWise):
            scales = part.spectral(len(axes)).scales
            single = [part.replace(lengthscale=1.0 / s) for s in scales.tolist()]
        by_axis = dict(zip(axes, single, strict=False))
        return tuple(by_axis.get(j, UNIT) for j in range(d)) if single else None

    def add(left: tuple[Kernel, ...], right: tuple[Kernel, ...]) -> tuple[Kernel, ...] | None:
        columns = [j for j in range(d) if (left[j], right[j]) != (UNIT, UNIT)]
        sums = (left[j] + right[j] if j in columns else UNIT for j in range(d))
        return tuple(sums) if len(columns) == 1 else None

    times = lambda a, b: b if a == UNIT else a if b == UNIT else a * b
    multiply = lambda left, right: tuple(map(times, left, right))
    scale = lambda size, single: (times(Constant(size), single[0]), *single[1:])
    return kernel.reduce(leaf, add, multiply, scale, tuple(range(d)))


@dataclass(frozen=True, eq=False)
class ColumnwiseMap(Products):
    """φ(x) = (Π_j g_{j,k_j}(x_j))_k."""

    kernel: Kernel
    factors: tuple[Kernel, ...]  # k_j, each of one column
    nodes: tuple[Float[Array, " M"], ...]
    weights: tuple[Float[Array, "M m"], ...]  # g_j(x) = k_j(x, nodes) weights
    indices: Int[Array, "D d"]  # k of each feature, by decreasing eigenvalue

    below_kernel = True  # a product of projections

    @cached_property
    def halves(self) -> Halves:
        starts = np.cumsum([0, *(w.shape[1] for w in self.weights[:-1])])
        return split_products(self.indices + starts)

    def table(self, X: Float[Array, "n d"]) -> Float[Array, "m n"]:
        xp, X = to_double(dense(X))
        columns = [
            k(X[:, j : j + 1], adapt(q[:, None], like=X)) @ adapt(w, like=X)
            for j, (k, q, w) in enumerate(zip(self.factors, self.nodes, self.weights, strict=True))
        ]
        return xp.permute_dims(xp.concat(columns, axis=1), (1, 0))


def _columnwise_map(kernel: Kernel, ask: Request) -> ColumnwiseMap:
    """Return the map of the D products of columns' eigenfunctions of largest eigenvalue."""
    factors = column_kernels(kernel, ask.n_inputs)
    assert factors is not None
    X = ask.rows("HermiteMercer", "the spread of each column")
    count = max(64, min(4 * ask.n_features, 1024 // len(factors)))
    nodes, weights, logs = [], [], []
    for j, k in enumerate(factors):
        q, share = _nodes(X[:, [j]], count)
        values, functions = compose.eigenfunctions(k(q[:, None]), share)
        if not len(values):  # the kernel is zero on these rows
            values, functions = np.ones(1), np.zeros((len(q), 1))
        nodes.append(q)
        weights.append(functions)
        logs.append(np.log(values))
    indices, _ = basis.best_products(logs, ask.n_features)
    counts = 1 + indices.max(axis=0)  # eigenfunctions in no product are dropped
    columns = [np.ascontiguousarray(w[:, :m]) for w, m in zip(weights, counts, strict=True)]
    return ColumnwiseMap(kernel, factors, tuple(nodes), tuple(columns), indices)


def _nodes(column: Float[Array, "n 1"], size: int) -> tuple[Float[Array, " M"], Float[Array, " M"]]:
    """Return nodes, and for each node the share of the rows that are nearest to it."""
    # All values if there are few. Otherwise half are quantiles and half are evenly spaced, because
    # smooth kernels have their largest errors in gaps of the tails.
    values, counts = np.unique(dense(column).astype(np.float64), return_counts=True)
    if len(values) <= size:
        return values, counts / counts.sum()
    ranks = np.searchsorted(np.cumsum(counts) / counts.sum(), np.linspace(0, 1, size // 2))
    grid = np.linspace(values[0], values[-1], size - size // 2)
    nodes = np.unique(np.concatenate([values[np.minimum(ranks, len(values) - 1)], grid]))
    nearest = np.searchsorted((nodes[1:] + nodes[:-1]) / 2, values)
    share = np.bincount(nearest, counts, len(nodes)) / counts.sum() + 0.01 / len(nodes)
    return nodes, share / share.sum()


# --- Hermite–Mercer features: products of Hermite functions along the principal axes -------------
#
# In one dimension, for the kernel exp(−(x − y)²/2) and the measure N(0, s²), Mehler's formula gives
# the eigenvalues and eigenfunctions in closed form. With a = 1/(4s²), b = ½, c = √(a² + 2ab),
# A = a + b + c, B = b/A:
#
#     k(x, y) = Σ_k λ_k φ_k(x) φ_k(y),   λ_k = √(2a/A) B^k,
#     φ_k(x) = (c/a)^¼ (2^k k!)^(−½) exp(−(c − a) x²) H_k(√(2c) x),
#
# for all x and y, for any s. The Gaussian kernel of d columns is invariant under rotation, and a
# product over the principal axes of the data; so its eigenfunctions are products over these axes.

#: Beyond a million lengthscales every feature is zero; the recurrence must not overflow.
FARTHEST, OUTSIDE = 1e6, 1e12
#: The compiled recurrence is in the precision of X. Its products neither overflow nor lose their
#: digits below MAX_DEGREE for rows whose values of degree 0 have a logarithm above −MAX_LOG.
MAX_DEGREE, MAX_LOG = 64, 40.0


@dataclass(frozen=True)
class HermiteMercer(Method):
    """Mercer features of the Gaussian kernel along principal axes, and of products over columns.

    The D products Π_j √λ_{k_j} φ_{k_j}(u_j) with the largest eigenvalues. u is the centred row, in
    lengthscales, along the principal axes of X; s_j ∝ the standard deviation along axis j.

    Parameters
    ----------
    scale : float, optional
        s_j as a multiple of the standard deviation along axis j. Default: the factor from 0.5
        to 2 with the smallest Σ k(x, x) − |φ(x)|² on 512 of the rows.

    Notes
    -----
    Supports the Gaussian kernel with any lengthscales, in any metric; every product of kernels of
    one column each (``Laplace``, ``Cauchy``, products of ``Columns``), whose eigenfunctions are
    computed numerically, without rotation; and any kernel of one column. Z Zᵀ ⪯ K always.

    Use it for smooth, especially anisotropic kernels, and up to a few hundred columns.
    :class:`Nystrom` is better for clusters and curved supports, random features for kernels with a
    flat spectrum. Cost of drawing: O(n d² + d³), d at most 2048. Cost of φ(X): O(n d² + n D).
    Mehler (1866); Rasmussen and Williams (2006), section 4.3.1; Fasshauer and McCourt (2012).

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> X = np.random.default_rng(0).uniform(-1, 1, (50, 3))
    >>> phi = bo.draw(bo.kernels.Gaussian(), bo.HermiteMercer(), n_features=64, X=X)
    >>> float(abs(phi(X) @ phi(X).T - phi.kernel(X, X)).max()) < 0.05
    True
    """

    scale: MaybePositive = None


@dataclass(frozen=True, eq=False)
class HermiteMap(Products):
    """φ(x) = (Π_j √λ_{k_j} φ_{k_j}(u_j))_k with u = (x − mean) axes."""

    kernel: Kernel
    mean: Float[Array, " d"]
    axes: Float[Array, "d d"]  # Principal axes divided by the lengthscales, by decreasing variance
    #: s, the standard deviation of the measure along each axis, in lengthscales.
    spread: Float[Array, " d"]
    #: Degrees k along the first J axes, 0 along the others; features by decreasing eigenvalue.
    indices: Int[Array, "D J"]

    below_kernel = True  # terms of a Mercer series

    @property
    def multiplications(self) -> float:
        return float(self.axes.size + self.n_features)

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        is_numpy = isinstance(X, np.ndarray) or is_sparse(X)
        if native.HAVE_NATIVE and is_numpy and len(self._counts) <= MAX_DEGREE:
            return self._compiled_features(X)
        return super().features(X)

    def pullback(self, X: Float[Array, "n d"], C: Float[Array, "n D"]) -> Float[Array, "n d"]:
        """Return the gradient of φ(x_i)·C_i in each x_i: g_k' = step √k g_{k−1} (`mehler`)."""
        xp, Z, U, J = (array_namespace(X), self.features(X), self._coordinates(X), len(self._steps))
        _, decay, _, _ = mehler(self.spread)
        G = adapt(-2.0 * decay[:, None], like=U) * U * xp.sum(C * Z, axis=1)[None, :]
        steps = [
            xp.sum(take(C, v, 1) * take(Z, lower, 1) * adapt(factor, like=Z), axis=1)
            for v, lower, factor in self._steps
        ]
        G = xp.concat([G[:J, :] + xp.stack(steps, axis=0), G[J:, :]], axis=0)
        return xp.permute_dims(adapt(self.axes, like=X) @ G, (1, 0))

    @cached_property
    def _steps(self) -> list[tuple[Array, Array, Array]]:
        """For each axis: indices of features, of those one degree lower, and factors step √k."""
        blocks, (_, _, steps, _) = [], mehler(self.spread)
        for j, step in zip(range(self.indices.shape[1]), steps, strict=False):
            columns = np.flatnonzero(self.indices[:, j])
            unit = np.eye(self.indices.shape[1], dtype=self.indices.dtype)[j]
            lower = _places(self.indices, self.indices[columns] - unit)
            blocks.append((columns, lower, step * self.indices[columns, j] ** 0.5))
        return blocks

    def _compiled_features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        """Return the products by a compiled recurrence; rows far from the mean use the tables."""
        Z = np.empty((X.shape[0], self.n_features), dtype=X.dtype)
        J, D = self.indices.shape[1], self.n_features
        shift, decay, step, _ = mehler(self.spread)
        step = step[:J].astype(X.dtype)
        first, size = np.zeros(1, np.int32), np.full(1, D, np.int32)
        for rows in slices(len(Z), 4096):
            U = np.clip(self._coordinates(X[rows]), -OUTSIDE, OUTSIDE).T
            negative = adapt(-decay[:, None], like=U)
            exponent = (negative * U.T * U.T).sum(axis=0) + float(shift.sum())
            regular = exponent > -MAX_LOG
            w = np.ones((len(U), J + 1), dtype=X.dtype)
            np.multiply(U[:, :J], step, out=w[:, :J], where=regular[:, None])
            envelope = np.exp(exponent)[:, None]
            harmonics(w, self._programme, envelope, first, size, out=Z[rows])
            if not regular.all():
                Z[rows][~regular] = super().features(X[rows][~regular])
        return Z

    @cached_property
    def _programme(self) -> Programme:
        """Recurrence of each feature from two of lower degree along its last axis of degree > 0."""
        J, D = self.indices.shape[1], self.n_features
        parents, inputs = np.zeros((D, 2), dtype=np.int32), np.full((D, 2), J, dtype=np.int32)
        factors = np.zeros((D, 2))
        v = np.flatnonzero(self.indices.any(axis=1))
        columns = self.indices[v]
        last = J - 1 - np.argmax(columns[:, ::-1] > 0, axis=1)
        unit = np.eye(J, dtype=columns.dtype)[last]
        degree = columns[np.arange(len(v)), last].astype(float)
        parents[v] = np.stack([_places(self.indices, columns - i * unit) for i in (1, 2)], axis=1)
        inputs[v, 0] = last
        factors[v, 0] = degree**-0.5
        _, _, _, ratio = mehler(self.spread)
        factors[v, 1] = -ratio[last] * ((degree - 1) / degree) ** 0.5
        return Programme(parents, inputs, factors)

    @cached_property
    def _counts(self) -> list[int]:
        """Number of leading axes that have a function of degree 0, 1, 2, …."""
        degrees = self.indices.max(axis=0)
        return [int(np.flatnonzero(degrees >= k)[-1]) + 1 for k in range(1 + int(degrees.max()))]

    @cached_property
    def halves(self) -> Halves:
        starts = np.cumsum([0, *self._counts])  # degree by degree
        return split_products(starts[self.indices] + np.arange(self.indices.shape[1]))

    def table(self, X: Float[Array, "n d"]) -> Float[Array, "m n"]:
        """Return √λ_k φ_k of all axes and degrees; the first includes axes with degree 0 only."""
        xp, J = array_namespace(X), self.indices.shape[1]
        U = to_double(xp.clip(self._coordinates(X), -OUTSIDE, OUTSIDE))[1]
        constants = (adapt(constant[:, None], like=U) for constant in mehler(self.spread))
        shift, decay, step, ratio = constants
        exponents = shift - decay * U * U
        first = exponents[:1, :] + xp.sum(exponents[J:, :], axis=0)
        v, ratio = xp.clip(step[:J, :] * U[:J, :], -FARTHEST, FARTHEST), ratio[:J, :]
        envelope = xp.concat([first, exponents[1:J, :]], axis=0)
        # Values are exp(envelope) g_k. At large distances exp(envelope) underflows and g_k of high
        # degree overflows, so every 16 degrees the size of g is moved into the envelope.
        g, previous, bound, rows = xp.ones_like(v), None, xp.exp(envelope), []
        for k, J in enumerate(self._counts):
            if k:
                v, ratio, g, bound = v[:J, :], ratio[:J, :], g[:J, :], bound[:J, :]
                following = (v * k**-0.5) * g
                if previous is not None:
                    following = following - (ratio * ((k - 1) / k) ** 0.5) * previous[:J, :]
                g, previous = following, g
            if k % 16 == 15:  # each step multiplies by 1e6 at most
                size = xp.maximum(xp.maximum(xp.abs(g), xp.abs(previous)), xp.ones_like(g))
                envelope = envelope[:J, :] + xp.log(size)
                g, previous, bound = g / size, previous / size, xp.exp(envelope)
            rows.append(g * bound)
        return xp.concat(rows, axis=0)

    def _coordinates(self, X: Float[Array, "n d"]) -> Float[Array, "d n"]:
        if is_sparse(X):
            return np.ascontiguousarray((X @ self.axes - self.mean @ self.axes).T.astype(X.dtype))
        centred = X - adapt(self.mean, like=X)
        xp = array_namespace(X)
        return xp.permute_dims(adapt(self.axes, like=X), (1, 0)) @ xp.permute_dims(centred, (1, 0))


def _places(indices: Array, rows: Array) -> Array:
    """Return the index in ``indices`` of each row of ``rows``, 0 for a missing row."""
    row_type = np.dtype((np.void, indices.itemsize * indices.shape[1]))
    keys, values = (np.ascontiguousarray(A).view(row_type).ravel() for A in (indices, rows))
    order = np.argsort(keys)
    places = order[np.minimum(np.searchsorted(keys, values, sorter=order), len(keys) - 1)]
    return np.where(keys[places] == values, places, 0)


def mehler(spread: Float[Array, " d"]) -> tuple[Float[Array, " d"], ...]:
    """Return (shift, decay, step, ratio) of Mehler's formula for N(0, spread²) along each axis.

    √λ_k φ_k(x) = exp(shift − decay x²) g_k, with g_0 = 1, g_1 = step x and
    g_{k+1} = (step x g_k − ratio √k g_{k−1})/√(k + 1); g_k contains the factor √ratioᵏ of √λ_k.
    """
    a, b = 0.25 / np.asarray(spread) ** 2, 0.5
    c = np.sqrt(a * a + 2 * a * b)
    A = a + b + c  # 2ab/(a + c) is c − a without cancellation
    return 0.25 * np.log(2 * c / A), 2 * a * b / (a + c), 2 * np.sqrt(c * b / A), b / A


def draw_hermite(method: HermiteMercer, kernel: Kernel, ask: Request) -> FeatureMap:
    """Draw the D Hermite functions of largest eigenvalue; other kernels: products over columns."""
    if not isinstance(kernel, Gaussian):
        return _columnwise_map(kernel, ask)
    X = ask.rows("HermiteMercer", "mean and principal axes")
    scales = kernel.spectral(ask.n_inputs).scales
    compose.require_squares("HermiteMercer", X, scales)
    mean, covariance = compose.mean_and_covariance(X, scales)
    variances, vectors = compose.principal_axes(covariance)
    rows, maps = compose.row_sample(X, 512, ask.stream("scale")), []
    for factor in (method.scale,) if method.scale else 0.5 * 2 ** (np.arange(11) / 5):
        # Spreads are at least a millionth of the lengthscale: smaller ones have no effect.
        spread = np.maximum(factor * np.sqrt(variances), 1e-6)
        logs = [np.arange(ask.n_features) * np.log(B) for B in mehler(spread)[3]]
        indices, _ = basis.best_products(logs, ask.n_features)
        count = max(1, int(indices.any(axis=0).sum()))  # axes with the largest variance
        indices = np.ascontiguousarray(indices[:, :count])
        maps.append(HermiteMap(kernel, mean, scales[:, None] * vectors, spread, indices))
    # Residuals below 1e-12 are rounding errors.
    return min(maps, key=lambda phi: max(1e-12, float(phi.residual(rows).mean())))
