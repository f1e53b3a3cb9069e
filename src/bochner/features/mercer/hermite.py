"""Products of kernels of one column each: their Mercer features, found numerically.

k(x, y) = Π_j k_j(x_j, y_j). With nodes q of column j, their weights p and the eigenpairs of
P^½ k_j(q, q) P^½ = V diag(w) Vᵀ, the functions

    g_i(x) = w_i^(−½) Σ_a k_j(x, q_a) p_a^½ V_{a i}

are the Nyström extension of eigenfunctions: k_j − Σ_i g_i g_i ⪰ 0 for **all** x and y, and by
Schur's theorem the same holds for products of them.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bochner._core import native
from bochner._core.arrays import array_namespace, dense, is_numpy, is_sparse, moved, slices, taken
from bochner._core.checks import MaybePositive
from bochner._core.native import Programme, harmonics
from bochner._core.shapes import Array, Float, Int
from bochner.errors import UnsupportedKernel
from bochner.features import projections
from bochner.features.map import FeatureMap, Method, Request, in_double
from bochner.features.mercer import products
from bochner.kernels.algebra import Columns
from bochner.kernels.basis import best_products
from bochner.kernels.kernel import Constant, Kernel, Power, Product, Scaled
from bochner.kernels.stationary import CoordinateWise, Gaussian

ONE = Constant(1.0)


def columnwise(kernel: Kernel, d: int) -> tuple[Kernel, ...] | None:
    """Return kernels of one column each whose product is the kernel, None if there are none."""
    match kernel:
        case Gaussian() | CoordinateWise():
            scales = kernel.spectral_measure(d).scales
            return tuple(kernel.replace(lengthscale=1.0 / s) for s in scales.tolist())
        case Constant():
            return (kernel, *(ONE,) * (d - 1))
        case Scaled():
            factors = columnwise(kernel.kernel, d)
            return factors and (_times(Constant(kernel.scale), factors[0]), *factors[1:])
        case Product():
            left, right = columnwise(kernel.left, d), columnwise(kernel.right, d)
            return left and right and tuple(map(_times, left, right))
        case Power():
            factors = columnwise(kernel.kernel, d)
            return factors and tuple(k if k == ONE else Power(k, kernel.exponent) for k in factors)
        case Columns():
            factors = columnwise(kernel.kernel, len(kernel.columns))
            placed = dict(zip(kernel.columns, factors or (), strict=False))
            return factors and tuple(placed.get(j, ONE) for j in range(d))
    return (kernel,) if d == 1 else None


def _times(left: Kernel, right: Kernel) -> Kernel:
    return right if left == ONE else left if right == ONE else Product(left, right)


@dataclass(frozen=True, eq=False)
class ColumnwiseMap(products.Products):
    """φ(x) = (Π_j g_{j,k_j}(x_j))_k."""

    kernel: Kernel
    factors: tuple[Kernel, ...]  # k_j, each of one column
    nodes: tuple[Float[Array, " M"], ...]
    weights: tuple[Float[Array, "M m"], ...]  # g_j(x) = k_j(x, nodes) weights
    indices: Int[Array, "D d"]  # k of each feature, by decreasing eigenvalue

    below_kernel = True  # a product of projections: always

    @cached_property
    def how(self) -> products.Halves:
        starts = np.cumsum([0, *(w.shape[1] for w in self.weights[:-1])])
        return products.factored(self.indices + starts)

    def table(self, X: Float[Array, "n d"]) -> Float[Array, "m n"]:
        xp, X = in_double(dense(X))
        columns = [
            k(X[:, j : j + 1], moved(q[:, None], like=X)) @ moved(w, like=X)
            for j, (k, q, w) in enumerate(zip(self.factors, self.nodes, self.weights, strict=True))
        ]
        return xp.permute_dims(xp.concat(columns, axis=1), (1, 0))


def _columnwise_map(kernel: Kernel, ask: Request) -> ColumnwiseMap:
    """Return the D products of largest eigenvalue for the spread of the columns of the rows."""
    factors = columnwise(kernel, ask.n_inputs)
    assert factors is not None
    X = ask.rows("HermiteMercer", "the spread of each column")
    most = max(64, min(4 * ask.n_features, 1024 // len(factors)))
    nodes, weights, logs = [], [], []
    for j, k in enumerate(factors):
        q, share = _nodes(X[:, [j]], most)
        values, functions = projections.eigenfunctions(k(q[:, None]), share)
        if not len(values):  # the kernel is zero on these rows
            values, functions = np.ones(1), np.zeros((len(q), 1))
        nodes.append(q)
        weights.append(functions)
        logs.append(np.log(values))
    indices, _ = best_products(logs, ask.n_features)
    used = 1 + indices.max(axis=0)  # eigenfunctions that no product has are dropped
    kept = [np.ascontiguousarray(w[:, :m]) for w, m in zip(weights, used, strict=True)]
    return ColumnwiseMap(kernel, factors, tuple(nodes), tuple(kept), indices)


def _nodes(column: Float[Array, "n 1"], most: int) -> tuple[Float[Array, " M"], Float[Array, " M"]]:
    """Return nodes, and for each node the share of the rows that are nearest to it."""
    # All values if they are few; otherwise half are quantiles, and half are evenly spaced, because
    # smooth kernels have their largest errors in gaps of the tails.
    values, counts = np.unique(dense(column).astype(np.float64), return_counts=True)
    if len(values) <= most:
        return values, counts / counts.sum()
    ranks = np.searchsorted(np.cumsum(counts) / counts.sum(), np.linspace(0, 1, most // 2))
    even = np.linspace(values[0], values[-1], most - most // 2)
    nodes = np.unique(np.concatenate([values[np.minimum(ranks, len(values) - 1)], even]))
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
# for all x and y, whatever the measure. The Gaussian kernel of d columns is invariant under
# rotation, and a product over the principal axes of the data: so are its eigenfunctions.

#: Beyond a million lengthscales every feature is zero; the recurrence must not overflow.
FARTHEST, OUTSIDE = 1e6, 1e12
#: The compiled recurrence is in the precision of X. Its products neither overflow nor lose their
#: digits for degrees below FEW and rows whose values of degree 0 have a logarithm above −NEAR.
FEW, NEAR = 64, 40.0


@dataclass(frozen=True)
class HermiteMercer(Method):
    """Mercer features of the Gaussian kernel along principal axes, and of products over columns.

    The D products Π_j √λ_{k_j} φ_{k_j}(u_j) of largest eigenvalue, u the centred row along the
    principal axes of X in units of the lengthscale, s_j ∝ the standard deviation along axis j.

    Parameters
    ----------
    scale : float, optional
        s_j as a multiple of the standard deviation along axis j. Default: the factor from 0.5
        to 2 with the smallest Σ k(x, x) − |φ(x)|² on 512 of the rows.

    Notes
    -----
    Serves the Gaussian kernel with any lengthscales, in any metric; every product of kernels of
    one column each (``Laplace``, ``Cauchy``, products of ``Columns``), whose eigenfunctions are
    computed numerically, without rotation; and any kernel of one column. Z Zᵀ ⪯ K always.

    Choose it for smooth, especially anisotropic kernels, and up to a few hundred columns.
    :class:`Nystrom` is better for clusters and curved supports, random features for kernels of
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
class HermiteMap(products.Products):
    """φ(x) = (Π_j √λ_{k_j} φ_{k_j}(u_j))_k with u = (x − mean) axes."""

    kernel: Kernel
    mean: Float[Array, " d"]
    axes: Float[Array, "d d"]  # Principal axes divided by the lengthscales, by decreasing variance
    #: s, the standard deviation of the measure along each axis, in lengthscales.
    spread: Float[Array, " d"]
    #: Degrees k along the first J axes, 0 along the others; features by decreasing eigenvalue.
    indices: Int[Array, "D J"]

    below_kernel = True  # some terms of a Mercer series: always

    @property
    def multiplications(self) -> float:
        return float(self.axes.size + self.n_features)

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        if native.HAVE_NATIVE and (is_numpy(X) or is_sparse(X)) and len(self._counts) <= FEW:
            return self._compiled(X)
        return super().features(X)

    def pullback(self, X: Float[Array, "n d"], C: Float[Array, "n D"]) -> Float[Array, "n d"]:
        """Return gradients, by g_k' = step √k g_{k−1}: each derivative is of features again."""
        xp, Z, U, J = array_namespace(X), self.features(X), self._coordinates(X), len(self._less)
        _, decay, _, _ = mehler(self.spread)
        G = moved(-2.0 * decay[:, None], like=U) * U * xp.sum(C * Z, axis=1)[None, :]
        steps = [
            xp.sum(taken(C, v, 1) * taken(Z, less, 1) * moved(factor, like=Z), axis=1)
            for v, less, factor in self._less
        ]
        G = xp.concat([G[:J, :] + xp.stack(steps, axis=0), G[J:, :]], axis=0)
        return xp.permute_dims(moved(self.axes, like=X) @ G, (1, 0))

    @cached_property
    def _less(self) -> list[tuple[Array, Array, Array]]:
        """Of each axis: features of some degree, of one degree less, and step √k."""
        blocks, (_, _, steps, _) = [], mehler(self.spread)
        for j, step in zip(range(self.indices.shape[1]), steps, strict=False):
            columns = np.flatnonzero(self.indices[:, j])
            one = np.eye(self.indices.shape[1], dtype=self.indices.dtype)[j]
            less = _places(self.indices, self.indices[columns] - one)
            blocks.append((columns, less, step * self.indices[columns, j] ** 0.5))
        return blocks

    def _compiled(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        """Return the products by recurrence in D steps a row; far rows, if any, by their tables."""
        Z = np.empty((X.shape[0], self.n_features), dtype=X.dtype)
        J, D = self.indices.shape[1], self.n_features
        shift, decay, step, _ = mehler(self.spread)
        step = step[:J].astype(X.dtype)
        first, count = np.zeros(1, np.int32), np.full(1, D, np.int32)
        for rows in slices(len(Z), 4096):
            U = np.clip(self._coordinates(X[rows]), -OUTSIDE, OUTSIDE).T
            negative = moved(-decay[:, None], like=U)
            exponent = (negative * U.T * U.T).sum(axis=0) + float(shift.sum())
            near = exponent > -NEAR
            w = np.ones((len(U), J + 1), dtype=X.dtype)
            np.multiply(U[:, :J], step, out=w[:, :J], where=near[:, None])
            envelope = np.exp(exponent)[:, None]
            harmonics(w, self._programme, envelope, first, count, out=Z[rows])
            if not near.all():
                Z[rows][~near] = super().features(X[rows][~near])
        return Z

    @cached_property
    def _programme(self) -> Programme:
        """How each feature follows from two before it, of less degree along its last axis."""
        J, D = self.indices.shape[1], self.n_features
        parents, inputs = np.zeros((D, 2), dtype=np.int32), np.full((D, 2), J, dtype=np.int32)
        factors = np.zeros((D, 2))
        v = np.flatnonzero(self.indices.any(axis=1))
        columns = self.indices[v]
        last = J - 1 - np.argmax(columns[:, ::-1] > 0, axis=1)
        one = np.eye(J, dtype=columns.dtype)[last]
        degree = columns[np.arange(len(v)), last].astype(float)
        parents[v] = np.stack([_places(self.indices, columns - i * one) for i in (1, 2)], axis=1)
        inputs[v, 0] = last
        factors[v, 0] = degree**-0.5
        _, _, _, ratio = mehler(self.spread)
        factors[v, 1] = -ratio[last] * ((degree - 1) / degree) ** 0.5
        return Programme(parents, inputs, factors)

    @cached_property
    def _counts(self) -> list[int]:
        """Number of axes, the first ones, that have a function of degree 0, 1, 2, …."""
        most = self.indices.max(axis=0)
        return [int(np.flatnonzero(most >= k)[-1]) + 1 for k in range(1 + int(most.max()))]

    @cached_property
    def how(self) -> products.Halves:
        starts = np.cumsum([0, *self._counts])  # degree by degree
        return products.factored(starts[self.indices] + np.arange(self.indices.shape[1]))

    def table(self, X: Float[Array, "n d"]) -> Float[Array, "m n"]:
        """Return √λ_k φ_k of every axis and degree that occurs; the first axis bears the others."""
        xp, J = array_namespace(X), self.indices.shape[1]
        U = in_double(xp.clip(self._coordinates(X), -OUTSIDE, OUTSIDE))[1]
        constants = (moved(constant[:, None], like=U) for constant in mehler(self.spread))
        shift, decay, step, ratio = constants
        exponents = shift - decay * U * U
        first = exponents[:1, :] + xp.sum(exponents[J:, :], axis=0)
        v, ratio = xp.clip(step[:J, :] * U[:J, :], -FARTHEST, FARTHEST), ratio[:J, :]
        envelope = xp.concat([first, exponents[1:J, :]], axis=0)
        # Values are exp(envelope) g_k. At large distances exp(envelope) underflows and g_k of high
        # degree overflows: from time to time the size of g is moved into the envelope.
        g, before, bound, rows = xp.ones_like(v), None, xp.exp(envelope), []
        for k, J in enumerate(self._counts):
            if k:
                v, ratio, g, bound = v[:J, :], ratio[:J, :], g[:J, :], bound[:J, :]
                following = (v * k**-0.5) * g
                if before is not None:
                    following = following - (ratio * ((k - 1) / k) ** 0.5) * before[:J, :]
                g, before = following, g
            if k % 16 == 15:  # each step multiplies by 1e6 at most
                size = xp.maximum(xp.maximum(xp.abs(g), xp.abs(before)), xp.ones_like(g))
                envelope = envelope[:J, :] + xp.log(size)
                g, before, bound = g / size, before / size, xp.exp(envelope)
            rows.append(g * bound)
        return xp.concat(rows, axis=0)

    def _coordinates(self, X: Float[Array, "n d"]) -> Float[Array, "d n"]:
        if is_sparse(X):
            return np.ascontiguousarray((X @ self.axes - self.mean @ self.axes).T.astype(X.dtype))
        centred = X - moved(self.mean, like=X)
        xp = array_namespace(X)
        return xp.permute_dims(moved(self.axes, like=X), (1, 0)) @ xp.permute_dims(centred, (1, 0))


def _places(indices: Array, wanted: Array) -> Array:
    """Return the row number in ``indices`` of each row of ``wanted``, 0 for a missing row."""
    whole_row = np.dtype((np.void, indices.itemsize * indices.shape[1]))
    keys, sought = (np.ascontiguousarray(A).view(whole_row).ravel() for A in (indices, wanted))
    order = np.argsort(keys)
    places = order[np.minimum(np.searchsorted(keys, sought, sorter=order), len(keys) - 1)]
    return np.where(keys[places] == sought, places, 0)


def mehler(spread: Float[Array, " d"]) -> tuple[Float[Array, " d"], ...]:
    """Return shift, decay, step and ratio of Mehler's formula for N(0, spread²) along each axis.

    √λ_k φ_k(x) = exp(shift − decay x²) g_k, with g_0 = 1, g_1 = step x and
    g_{k+1} = (step x g_k − ratio √k g_{k−1})/√(k + 1): the powers of B are in the recurrence.
    """
    a, b = 0.25 / np.asarray(spread) ** 2, 0.5
    c = np.sqrt(a * a + 2 * a * b)
    A = a + b + c  # 2ab/(a + c) is c − a without cancellation
    return 0.25 * np.log(2 * c / A), 2 * a * b / (a + c), 2 * np.sqrt(c * b / A), b / A


def draw_hermite(method: HermiteMercer, kernel: Kernel, ask: Request) -> FeatureMap:
    """Draw the D products of largest eigenvalue: Hermite functions, or functions of the columns."""
    if ask.n_inputs > projections.MOST_COLUMNS:
        raise UnsupportedKernel(
            f"HermiteMercer serves at most {projections.MOST_COLUMNS} columns, whose principal "
            f"axes it needs; got {ask.n_inputs}. Use Projected(HermiteMercer(), n_components), "
            "Nystrom() or Fourier()."
        )
    if not isinstance(kernel, Gaussian):
        return _columnwise_map(kernel, ask)
    X = ask.rows("HermiteMercer", "mean and principal axes")
    scales = kernel.spectral_measure(ask.n_inputs).scales
    projections.require_squares("HermiteMercer", X, scales)
    mean, covariance = projections.mean_and_covariance(X, scales)
    variances, vectors = projections.principal_axes(covariance)
    rows, tried = projections.some_rows(X, 512, ask.stream("scale")), []
    for factor in (method.scale,) if method.scale else 0.5 * 2 ** (np.arange(11) / 5):
        # Spreads below a millionth of the lengthscale are taken for it: nothing changes.
        spread = np.maximum(factor * np.sqrt(variances), 1e-6)
        logs = [np.arange(ask.n_features) * np.log(B) for B in mehler(spread)[3]]
        indices, _ = best_products(logs, ask.n_features)
        used = max(1, int(indices.any(axis=0).sum()))  # the axes of most variance
        indices = np.ascontiguousarray(indices[:, :used])
        tried.append(HermiteMap(kernel, mean, scales[:, None] * vectors, spread, indices))
    # Below 1e-12 what is left is rounding.
    return min(tried, key=lambda phi: max(1e-12, float(phi.residual(rows).mean())))
