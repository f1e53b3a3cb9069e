"""Orthonormal spherical harmonics in any dimension, by recurrence: a few operations each.

For a point x of the unit sphere in R^d, with t its last coordinate, r the norm of the others and
ξ their direction,

    Y_{l,(k,μ)}(x) = A_k p_{l−k}(t) r^k Y_{k,μ}(ξ),
    A_k² = Γ(k + d/2) Γ((d − 1)/2)/(Γ(k + (d − 1)/2) Γ(d/2)),

k = l, l − 1, ..., 0 and μ = 1..α_{k,d−1}: p_j is the orthonormal Gegenbauer polynomial in dimension
d + 2k, Y(ξ) a harmonic in one dimension less, on the circle √2 cos kφ and √2 sin kφ. They are
orthonormal for the uniform law of mean one, and Σ_μ Y_{l,μ}(x) Y_{l,μ}(y) = α_l P_l(⟨x, y⟩).

Written as homogeneous polynomials of x (r^k Y_{k,μ}(ξ) is one) no direction ξ is needed, and every
harmonic of degree l is a combination of two of degrees l − 1 and l − 2: a straight-line programme.
"""

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from scipy.special import gammaln

from bochner._core.arrays import is_numpy, to_numpy
from bochner._core.checks import check_fields, counted, optional, positive
from bochner._core.native import Programme, harmonics, harmonics_twin
from bochner._core.shapes import Array, Float
from bochner.errors import InvalidInput, UnsupportedKernel
from bochner.features.map import FeatureMap, left_over
from bochner.features.mercer.axes import require_squares
from bochner.features.mercer.radial import (
    REACH,
    Nodes,
    Polar,
    RadialBlock,
    RadialFunctions,
    in_balls,
    on_axis,
    polar_of,
    quantiles,
    spectrum,
)
from bochner.features.method import Method, Request
from bochner.features.widths import is_stationary
from bochner.kernels.kernel import Kernel
from bochner.kernels.radial import RadialKernels, radial_kernels
from bochner.kernels.zonal import alpha, recurrence


def harmonic_blocks(
    U: Float[Array, "n a"], d: int, degrees: np.ndarray, counts: np.ndarray, radial: Array
) -> Float[Array, "n D"]:
    """Return blocks radial[:, b] · (the first counts[b] harmonics of degree degrees[b]).

    U holds the first a of the d coordinates of unit vectors, at least :func:`axes_needed`.
    """
    plan, first = _plan(d, U.shape[1], tuple(degrees.tolist()), tuple(counts.tolist()))
    run = harmonics if is_numpy(U) else harmonics_twin
    return run(U, plan, radial, first, counts.astype(np.int32))


@lru_cache(maxsize=32)
def _plan(
    d: int, axes: int, degrees: tuple[int, ...], counts: tuple[int, ...]
) -> tuple[Programme, np.ndarray]:
    """Return the programme for rows of so many coordinates, and where each block starts in it."""
    needed = prefixes(d, degrees, counts)
    first = first_nodes(needed)[np.array(degrees, dtype=np.int64)].astype(np.int32)
    plan = programme(d, needed)
    if axes < d:  # rows hold the first coordinates only
        inputs = np.where(plan.inputs >= d, plan.inputs - d + axes, plan.inputs)
        plan = plan._replace(inputs=np.ascontiguousarray(inputs, dtype=np.int32))
    return plan, first


@lru_cache(maxsize=32)
def prefixes(d: int, degrees: tuple[int, ...], counts: tuple[int, ...]) -> tuple[int, ...]:
    """Return how many harmonics of each degree the blocks need, parents included."""
    needed = [0] * (max(degrees, default=0) + 1)
    for l, count in zip(degrees, counts, strict=True):
        needed[l] = max(needed[l], count)
    for l in range(len(needed) - 1, 0, -1):
        needed[l - 1] = max(needed[l - 1], _parents(l, d, needed[l]))
    needed[0] = 1
    return tuple(needed)


def _parents(l: int, d: int, count: int) -> int:
    """Return how many harmonics of degree l − 1 the first ``count`` of degree l come from."""
    if count == 0:
        return 0
    s = 2
    while s < d and alpha(l, s) < count:
        s += 1
    if s == 2:  # √2 Re (x + iy)^l needs both of l − 1
        return min(2, alpha(l - 1, d))
    return max(alpha(l - 1, s - 1), count - alpha(l, s - 1))


def first_nodes(needed: tuple[int, ...]) -> np.ndarray:
    """Return the node that each degree starts at."""
    return np.concatenate([[0], np.cumsum(needed)[:-1]])


def axes_needed(d: int, needed: tuple[int, ...]) -> int:
    """Return how many coordinates the programme reads: the first ones."""
    used = programme(d, needed).inputs[1:] % d
    return int(used.max(initial=0)) + 1


@lru_cache(maxsize=32)
def programme(d: int, needed: tuple[int, ...]) -> Programme:
    """Return the recurrence of the first needed[l] harmonics of each degree l, in R^d.

    Inputs 0..d−1 are coordinates, d..2d−1 cumulative sums of their squares.
    """
    first = first_nodes(needed)
    nodes = sum(needed)
    plan = Programme(
        np.zeros((nodes, 2), np.int32), np.zeros((nodes, 2), np.int32), np.zeros((nodes, 2))
    )
    for l in range(1, len(needed)):
        _base(plan, l, d, first, needed[l])
        for s in range(3, d + 1):
            if alpha(l, s - 1) >= needed[l]:
                break
            _shell(plan, l, s, d, first, needed[l])
    return plan


def _base(plan: Programme, l: int, d: int, first: np.ndarray, count: int) -> None:
    """Fill √2 Re (x + iy)^l and √2 Im (x + iy)^l, in units of R^d: nodes 0 and 1 of degree l."""
    here, before = int(first[l]), int(first[l - 1])
    size = _unit(l, 2, d) / _unit(l - 1, 2, d)
    for j in range(min(count, alpha(l, min(d, 2)))):
        if l == 1:
            pairs = ((0, j), (0, 0)), (1.0 if d == 1 else 2**0.5 * size, 0.0)
        else:
            pairs = ((j, 0), (1 - j, 1)), (size, size if j else -size)
        for side, (parent, axis) in enumerate(pairs[0]):
            plan.parents[here + j, side] = before + parent
            plan.inputs[here + j, side] = axis
            plan.factors[here + j, side] = pairs[1][side]


def _shell(plan: Programme, l: int, s: int, d: int, first: np.ndarray, count: int) -> None:
    """Fill the harmonics of degree l that need coordinate s: nodes α_{l,s−1}, ... of the degree.

    h_l = (x_s h_{l−1} − b_{l−k−1} |x_{1..s}|² h_{l−2})/b_{l−k} at fixed (k, μ), in R^s.
    """
    behind, at = alpha(l - 1, s - 1), alpha(l, s - 1)
    for k in range(l - 1, -1, -1):
        size = min(alpha(k, s - 1), count - at)
        if size <= 0:
            return
        b = recurrence(l - k, s + 2 * k)
        here = slice(int(first[l]) + at, int(first[l]) + at + size)
        parent = at - alpha(l, s - 1) + np.arange(size)
        plan.parents[here, 0] = first[l - 1] + parent
        plan.inputs[here] = s - 1, d + s - 1
        plan.factors[here, 0] = _unit(l, s, d) / _unit(l - 1, s, d) / b[l - k]
        if k < l - 1:
            plan.parents[here, 1] = first[l - 2] + parent - behind
            plan.factors[here, 1] = -_unit(l, s, d) / _unit(l - 2, s, d) * b[l - k - 1] / b[l - k]
        at += size


def _unit(l: int, s: int, d: int) -> float:
    """Return the norm in R^d of a harmonic of norm one in R^s: the product of A from s + 1 to d."""
    logs = gammaln(l + d / 2) - gammaln(d / 2) - gammaln(l + s / 2) + gammaln(s / 2)
    return float(np.exp(0.5 * logs))


# --- Mercer-harmonic features: exact spherical harmonics times optimal radial functions ----------
#
# A rotation-invariant kernel is Σ_l R_l(|x|, |y|) P_l(cos θ), and α_l P_l(⟨u, v⟩) is the sum of
# Y_{l,μ}(u) Y_{l,μ}(v) over the α_l orthonormal harmonics of degree l. With radial functions
# g_{l,i},
#
#     z_{l,i,μ}(x) = g_{l,i}(|x|) α_l^{−1/2} Y_{l,μ}(x/|x|).
#
# Whatever is kept, Z Zᵀ ⪯ K: nothing is random, and k(x, x) − |φ(x)|² bounds every error.


@dataclass(frozen=True)
class MercerHarmonic(Method):
    """Spherical harmonics times radial functions, the D of greatest energy.

    Parameters
    ----------
    nodes : int, default 64
        Quantiles of the radii on which the radial kernels are factored. Rows that lie on one
        sphere are recognised, and need one.
    radius : float, optional
        Radius of the sphere that rows will lie on, in place of rows to learn the radii from.

    Notes
    -----
    Serves kernels of the Euclidean distance (one lengthscale or one per column), of the inner
    product, of the angle (arc-cosine, neural tangent), sums and multiples of such. Deterministic:
    the error is the energy that is dropped, the best that D features can do on
    rotation-invariant rows, and 5 to 10⁸ times below that of random features of equal width for
    d up to about six, on spheres up to ten, beyond where the lengthscale is wide. Rows of very
    unequal spread along their axes are better served by products of Hermite functions or by
    :class:`Nystrom`: a harmonic is spent on every direction alike.

    Kernels of the distance are centred at the mean of the rows, unless these lie on a sphere.
    Degrees l have α_l features; the last one is cut where it does not fit, principal axes first.
    Cost of φ(X): O(n (d² + D)), about five operations a feature and no elementary functions;
    memory O(nodes · blocks) beside the result. Han, Zandieh and Avron (2022), lemmas 4
    and 15 and eq. 11, with the directions taken exactly and the radial functions optimal.
    """

    nodes: int = 64
    radius: float | None = None

    def __post_init__(self) -> None:
        check_fields(self, nodes=counted, radius=optional(positive))

    def least_numbers(self, n_features: int, n_columns: int) -> int:
        return 0


@dataclass(frozen=True, eq=False)
class MercerHarmonicMap(FeatureMap):
    """Blocks g_b(|x|) α_l^{−1/2} Y_{l,μ}(x/|x|), μ = 1..counts_b, side by side."""

    kernel: Kernel
    polar: Polar  # From rows to radii and directions
    radial: RadialFunctions  # g_b α_l^{−1/2}, a column for each block
    #: How many harmonics of its degree a block has: all α_l, but for one that was cut.
    counts: np.ndarray
    #: Mean of k(x, x) − |φ(x)|² over the radii that the map was drawn from: what a ridge penalty,
    #: or the diagonal of Z Zᵀ, can be given back.
    nugget: float

    @property
    def n_inputs(self) -> int:
        return self.radial.n_inputs

    @property
    def n_features(self) -> int:
        return int(self.counts.sum())

    below_kernel = True  # A sum of some of the kernel's terms: always

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        U, r = self.polar(X)
        return harmonic_blocks(U, self.n_inputs, self.radial.degrees, self.counts, self.radial(r))

    def residual(self, X: Float[Array, "n d"]) -> Float[Array, " n"]:
        """Return e(x) = k(x, x) − |φ(x)|² ≥ 0 for each row, in float64: seen before or not.

        |k(x, y) − φ(x)·φ(y)| ≤ √(e(x) e(y)), and Z Zᵀ ⪯ K ⪯ Z Zᵀ + (Σ e) I: the certificate of
        every entry, and a score of how far a row is from what the features can tell.
        """
        return left_over(self, X)


#: Share of the mean residual that interpolation in the radius may add to an entry of Z Zᵀ, and
#: share of the mean k(x, x) below which it cannot go.
INTERPOLATION, FLOOR = 1e-5, 1e-13


def draw_harmonics(method: MercerHarmonic, kernel: Kernel, ask: Request) -> MercerHarmonicMap:
    """Draw the D harmonics times radial functions of greatest energy on the radii of the rows."""
    plain, scales = in_balls("MercerHarmonic", kernel, ask.n_inputs)
    radial = radial_kernels(plain, ask.n_inputs)
    if ask.X is not None:
        require_squares("MercerHarmonic", ask.X, 1 / scales)
    polar = polar_of(scales, ask.X, is_stationary(kernel) and method.radius is None)
    if method.radius is not None and np.ptp(scales) == 0:  # in units of x, as polar radii are not
        method = replace(method, radius=method.radius / float(scales[0]))
    nodes, limit = _radii(method, radial, polar, ask.X)
    total = float(to_numpy(plain.diag(on_axis(nodes.q, ask.n_inputs))) @ nodes.share)
    blocks, counts = _taken(spectrum(radial, nodes, total, ask.n_features), ask.n_features)
    if not blocks:
        raise UnsupportedKernel(
            "MercerHarmonic requires rows that the kernel relates to each other; at distances up "
            f"to {float(nodes.q.max()):.3g} lengthscales no degree has energy. Take a larger "
            "lengthscale."
        )
    kept = sum(b.each * count for b, count in zip(blocks, counts, strict=True))
    rest = max(total - kept, 0.0)
    functions = RadialFunctions.of(plain, ask.n_inputs, nodes.q, blocks)
    functions = functions.times(np.array([b.size for b in blocks]) ** -0.5)
    if limit:
        functions = functions.interpolated(limit, max(FLOOR * total, INTERPOLATION * rest))
    if radial.zonal and ask.X is not None:  # the same share is left out of every row
        rest *= float(np.mean(to_numpy(kernel.diag(ask.X)))) / total
    needed = prefixes(ask.n_inputs, tuple(functions.degrees.tolist()), tuple(counts))
    leading = axes_needed(ask.n_inputs, needed)
    return MercerHarmonicMap(kernel, polar.leading(leading), functions, np.array(counts), rest)


def _radii(
    method: MercerHarmonic, radial: RadialKernels, polar: Polar, X: Array | None
) -> tuple[Nodes, float]:
    """Return the radii to factor on, and how far an interpolant must reach; 0 for none."""
    if method.radius is not None:
        return Nodes(np.array([method.radius]), np.ones(1)), REACH * method.radius
    if X is None and not radial.zonal:
        raise InvalidInput(
            "draw: MercerHarmonic takes its radial functions from the radii of rows of data; got "
            "none. Pass X=..., or MercerHarmonic(radius=...) for rows on a sphere."
        )
    if X is None:
        return Nodes(np.ones(1), np.ones(1)), 0.0
    r = polar(X.astype(np.float64))[1]
    if radial.zonal:  # one radial function a degree, the same for any radius but zero
        return Nodes(np.array([r.max() or 1.0]), np.ones(1)), 0.0
    return quantiles(r, method.nodes), REACH * float(r.max())


def _taken(blocks: list[RadialBlock], width: int) -> tuple[list[RadialBlock], list[int]]:
    """Return the first blocks that fill the width, the last one cut to fit."""
    counts: list[int] = []
    for block in blocks:
        if sum(counts) == width:
            break
        counts.append(min(block.size, width - sum(counts)))
    return blocks[: len(counts)], counts
