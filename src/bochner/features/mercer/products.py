"""Products of one-dimensional functions: explicit features, and eigenfunctions of the Laplacian.

A feature is Π_j f_{j,k_j}(x_j). Eigenvalues of a product of kernels multiply, so that the D best
products are those of the largest sums of logarithms. Their values are found by halves: all
products that occur over the first columns, all over the others, and one product of each pair.
"""

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Annotated, Any

import numpy as np
from scipy.special import logsumexp

from bochner._core.arrays import array_namespace, dense, is_numpy, is_sparse, moved, taken
from bochner._core.checks import bounded, finite, optional
from bochner._core.shapes import Array, Float, Int
from bochner.errors import InvalidInput, UnsupportedKernel
from bochner.features.map import FeatureMap, Method, Request, in_double
from bochner.features.projections import box_of_rows, given_box, some_rows
from bochner.kernels import basis
from bochner.kernels.algebra import folded
from bochner.kernels.basis import Basis
from bochner.kernels.kernel import Kernel, Scaled, Sum, leaves_of
from bochner.kernels.spectral import Measure

#: Row numbers of the table of 1-D functions, or ``(left, right, i, j)``: the products of rows ``i``
#: of ``left`` and rows ``j`` of ``right``, which are again products or row numbers.
Halves = Any


def factored(rows: Array) -> Halves:
    """Return how to multiply rows[:, 0], rows[:, 1], … of a table, by halves."""
    if rows.shape[1] == 1:
        return rows[:, 0]
    half = (rows.shape[1] + 1) // 2
    left, right = (
        np.unique(part, axis=0, return_inverse=True) for part in (rows[:, :half], rows[:, half:])
    )
    return factored(left[0]), factored(right[0]), left[1].ravel(), right[1].ravel()


def multiplied(how: Halves, table: Float[Array, "m n"]) -> Float[Array, "D n"]:
    """Return the products of rows of the table."""
    if not isinstance(how, tuple):
        return taken(table, how, axis=0)
    left, right, i, j = how
    return taken(multiplied(left, table), i, axis=0) * taken(multiplied(right, table), j, axis=0)


class Products(FeatureMap):
    """A map whose features are products of functions of one column each, with factors if any."""

    amplitudes: Float[Array, " D"] | None = None

    @cached_property
    @abstractmethod
    def how(self) -> Halves:
        """Rows of the table whose products are the features, by halves."""

    @abstractmethod
    def table(self, X: Float[Array, "n d"]) -> Float[Array, "m n"]:
        """Return the values of all functions of one column at rows of X, in float64."""

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        """Return the products for each row of X, in its precision.

        Products of long rows in a transposed scratch are three times faster than those of columns.
        """
        how, width, factors = self.how, self.n_features, self.amplitudes
        if not (is_numpy(X) or is_sparse(X)):
            xp = array_namespace(X)
            Z = xp.permute_dims(multiplied(how, xp.astype(self.table(X), X.dtype)), (1, 0))
            return Z if factors is None else Z * moved(factors, like=Z)
        Z = np.empty((X.shape[0], width), dtype=X.dtype)
        step = max(1, min(max(64, (1 << 18) // width), 512, len(Z)))
        # New memory would cost more; rows are padded to avoid conflicts of cache sets.
        room = np.empty((3, width * (step + 16)), dtype=X.dtype)
        for start in range(0, len(Z), 4 * step):
            values = self.table(X[start : start + 4 * step]).astype(X.dtype, copy=False)
            for first in range(0, values.shape[1], step):
                here = values[:, first : first + step]
                n = here.shape[1]
                out = room[2].reshape(width, -1)[:, :n]
                if isinstance(how, tuple):
                    sides = [part[: width * n].reshape(width, n) for part in room[:2]]
                    for side, half, rows in zip(sides, how[:2], how[2:], strict=True):
                        np.take(multiplied(half, here), rows, axis=0, out=side, mode="clip")
                    np.multiply(sides[0], sides[1], out=out)
                else:
                    out[...] = here[how]
                if factors is not None:
                    out *= factors[:, None]
                Z[start + first : start + first + n] = out.T
        return Z


# --- Explicit bases: kernels that are defined by their features, and those features --------------
#
# `FourierSeries` and `Polynomials` are kernels k(x, y) = Π_j Σ_i f_i(x_j) f_i(y_j); the products of
# the f_i are exact features, and any choice of them is below the kernel.


@dataclass(frozen=True)
class Explicit(Method):
    """Exact features of the kernel, or the D of them with the largest mean square.

    See Also
    --------
    ExactKernel : No features: the kernel itself.
    PolySketch : Sketches of polynomials with too many monomials.

    Notes
    -----
    Serves ``FourierSeries``, ``Polynomials``, kernels of ⟨x, y⟩ with a finite power series such as
    ``Polynomial``, and their combinations with ``Linear`` and ``Constant``. m functions of one
    column give m^d products of d columns; if D is smaller, the products of largest mean square are
    used, and Z Zᵀ ⪯ K. Power series require all monomials. Cost of φ(X): O(n (d m + D)).

    Examples
    --------
    >>> import bochner as bo
    >>> bo.draw(bo.kernels.Polynomial(2), bo.Explicit(), n_features=64, n_inputs=3)
    MonomialMap(kernel=Polynomial(degree=2, offset=1.0, scale=1.0), n_inputs=3, n_features=10)
    """

    numbers_each = 0


@dataclass(frozen=True, eq=False)
class BasisMap(Products):
    """φ(x) = (Π_j f_{k_j}(x_j))_k."""

    kernel: Basis
    indices: Int[Array, "D d"]  # k of each feature, by decreasing mean square

    below_kernel = True  # some of the features that make the kernel: always

    @cached_property
    def how(self) -> Halves:
        return factored(self.indices * self.n_inputs + np.arange(self.n_inputs))

    def table(self, X: Float[Array, "n d"]) -> Float[Array, "m n"]:
        xp, X = in_double(dense(X))
        return xp.permute_dims(xp.concat(self.kernel.functions(X), axis=1), (1, 0))


def draw_basis(method: Method, kernel: Basis, ask: Request) -> BasisMap:
    """Return the map of the D products with largest mean square, of a kernel given by a basis."""
    sizes = np.array(kernel.sizes)
    order = np.argsort(-sizes, kind="stable")[: np.count_nonzero(sizes)]
    ranks, _ = basis.best_products([np.log(sizes[order])] * ask.n_inputs, ask.n_features)
    return BasisMap(kernel, order.astype(np.int32)[ranks])


# --- Laplacian eigenfunctions on a box: sines, weighted by the kernel's spectral density ---------
#
# On the box Π_j [lower_j, lower_j + length_j] the Laplacian with zero boundary values has the
# eigenfunctions Π_j √(2/length_j) sin(ω_j (x_j − lower_j)), ω_j = πk_j/length_j, and a stationary
# kernel of spectral density S is nearly Σ_k S(ω_k) φ_k(x) φ_k(y) inside it. For the Green's
# function of the second derivative, Brownian motion, the same sines (half a degree less) are exact.


@dataclass(frozen=True)
class LaplacianEigenfunctions(Method):
    """Sines on a box about the rows, weighted by the spectral density: Hilbert-space features.

    Parameters
    ----------
    boundary : float, optional
        Size of the box as a multiple of the size of the rows. A larger box has smaller errors near
        its faces and needs more features. Default: of margins from half a lengthscale to six, the
        one with the least error on 256 of the rows.
    box : d pairs (lower, upper), optional
        The box, in place of one learned from rows.
    conditions : {"dirichlet", "neumann", "periodic"}, default "dirichlet"
        Boundary conditions. "dirichlet": functions vanish (sines). "neumann": they have slope zero
        (cosines). "periodic": both, with the period; for angles, hours and seasons.

    Notes
    -----
    Serves stationary kernels with a spectral density, sums and multiples of them, and exactly
    ``Brownian`` and ``GreenFunction``. In one column of length b infinitely
    many features give the kernel and its images,

        dirichlet: Σ_m k(x − y + 2mb) − k(x + y + 2mb),   neumann: the same with a plus,
        periodic: Σ_m k(x − y + mb),   m all whole numbers, x and y from the lower face on.

    Only the weights depend on the lengthscales, not the functions. Neither unbiased nor below the
    kernel. Choose it for d = 1 to 3 and rows that fill a box; :class:`HermiteMercer` and
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
    box: Annotated[tuple[tuple[float, float], ...] | None, optional(basis.checked_box)] = None
    conditions: basis.Conditions = "dirichlet"


@dataclass(frozen=True, eq=False)
class EigenfunctionMap(Products):
    """φ(x) = (a_k Π_j √(2/length_j) sin(π(k_j − shift)(x_j − lower_j)/length_j))_k, or cosines."""

    kernel: Kernel
    lower: Float[Array, " d"]  # The box; rows outside are moved to its nearest point
    length: Float[Array, " d"]
    #: 0 for sines that vanish on all faces, ½ for those of Brownian motion, free at the far one.
    shift: float
    indices: Int[Array, "D d"]  # k, from 1
    amplitudes: Float[Array, " D"] | None = None  # the roots of the eigenvalues, from the largest
    conditions: str = "dirichlet"

    @property
    def below_kernel(self) -> bool:
        return isinstance(self.kernel, basis.Brownian | basis.GreenFunction)

    unbiased = False  # A series that is cut, nothing random

    @cached_property
    def how(self) -> Halves:
        return factored(self.indices - 1 + np.cumsum([0, *self.indices.max(axis=0)[:-1]]))

    def table(self, X: Float[Array, "n d"]) -> Float[Array, "m n"]:
        xp, X = in_double(dense(X))
        lower, length = (moved(side[:, None], like=X) for side in (self.lower, self.length))
        unit = basis.inside((xp.permute_dims(X, (1, 0)) - lower) / length, self.conditions)
        about = self.conditions, self.shift
        most = enumerate(self.indices.max(axis=0).tolist())
        each = [basis.waves(m, unit[j, :], self.length[j], *about) for j, m in most]
        return xp.concat(each, axis=0)


def draw_sines(method: LaplacianEigenfunctions, kernel: Kernel, ask: Request) -> FeatureMap:
    """Draw the sines of largest spectral density on a box."""
    sines = partial(_sines, kernel, ask.n_features, method.conditions)
    if method.box is not None:
        lower, upper = given_box("LaplacianEigenfunctions", method.box, ask.n_inputs)
        return sines(lower, upper - lower)
    X = ask.rows("LaplacianEigenfunctions", "the box")
    least, largest = box_of_rows(X)
    middle, half = (least + largest) / 2, (largest - least) / 2
    if method.boundary is not None:
        half = method.boundary * np.where(half > 0, half, 0.5)
        return sines(middle - half, 2 * half)
    rows = some_rows(X, 256, ask.stream("boundary"))
    # Lengthscales between rows and box: errors at a face are k of a row and its mirror image.
    lengths = 1 / _measure(kernel, ask.n_inputs).scales
    halves = [half + margin * lengths for margin in (0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)]
    tried = [sines(middle - h, 2 * h) for h in halves]
    K = kernel(rows)
    errors = [np.linalg.norm(Z @ Z.T - K) for Z in (phi(rows) for phi in tried)]
    return tried[int(np.argmin(errors))]


def _sines(
    kernel: Kernel, width: int, conditions: str, lower: Array, length: Array
) -> EigenfunctionMap:
    wider = 4 * width  # products that are weighed: their order is not that of |ω|
    unit = [math.pi * basis.half_turns(conditions, wider) / b for b in length]
    measure = _measure(kernel, len(unit))
    scaled = [w / s for w, s in zip(unit, measure.scales, strict=True)]
    # The order before products are weighed: by exact logarithms, or by −(ωℓ)².
    law = measure.law if measure.of == "coordinates" else None
    logs = [-w * w if law is None else law.log_density(w) for w in scaled]
    indices, _ = basis.best_products(logs, wider)
    W = np.stack([w[k] for w, k in zip(unit, indices.T, strict=True)], axis=1)
    # log S of each product, ∫ S dω = (2π)^d k(0).
    constant = len(unit) * math.log(2 * math.pi)
    of_leaf = lambda leaf, _: leaf.spectral_measure(len(unit)).log_density(W) + constant
    added = lambda *logs: logsumexp(logs, axis=0)
    times = lambda scale, logs: logs + math.log(scale)
    weights: Array = folded(kernel, of_leaf, added, lambda *_: None, scale=times)
    best = np.argsort(-weights, kind="stable")[:width]
    chosen, roots = np.ascontiguousarray(indices[best] + 1), np.exp(0.5 * weights[best])
    return EigenfunctionMap(kernel, lower, length, 0.0, chosen, roots, conditions)


def _measure(kernel: Kernel, d: int) -> Measure:
    """Return the spectral measure of the (first) stationary part."""
    first = next(leaves_of(kernel, (Sum, Scaled)))
    return first.spectral_measure(d)  # type: ignore[attr-defined]


def draw_own(
    method: LaplacianEigenfunctions, kernel: basis.Brownian | basis.GreenFunction, ask: Request
) -> EigenfunctionMap:
    """Draw the eigenfunctions of largest weight, which the kernel is the sum of."""
    if method != LaplacianEigenfunctions():
        raise InvalidInput(
            f"LaplacianEigenfunctions: {type(kernel).__name__} has a box and conditions of its "
            f"own; got {method!r}. Leave these out."
        )
    if isinstance(kernel, basis.Brownian):  # Karhunen and Loève: (length/(π(k − shift)))² each
        shift, d = (0.0 if kernel.bridge else 0.5), ask.n_inputs
        column = 2 * np.log(kernel.length / (math.pi * (np.arange(1, ask.n_features + 1) - shift)))
        indices, logs = basis.best_products([column] * d, ask.n_features)
        about = (shift, indices + 1, np.exp(0.5 * logs), "dirichlet")
        return EigenfunctionMap(kernel, np.zeros(d), np.full(d, kernel.length), *about)
    if ask.n_inputs != len(kernel.box):
        raise UnsupportedKernel(
            f"LaplacianEigenfunctions requires the {len(kernel.box)} columns of the box "
            f"of {kernel!r}; got {ask.n_inputs}."
        )
    count = ask.n_features if kernel.closed else min(ask.n_features, kernel.terms)
    numbers, eigenvalues = basis.modes(kernel.box, count, kernel.conditions)
    roots, (lower, upper) = np.sqrt(kernel.weights(eigenvalues)), np.array(kernel.box).T
    about = (0.0, numbers + 1, roots, kernel.conditions)
    return EigenfunctionMap(kernel, lower.copy(), upper - lower, *about)
