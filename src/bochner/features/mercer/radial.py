"""Mercer features of rotation-invariant kernels: harmonics of directions, functions of radii."""

import math
import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import repeat
from typing import Annotated, Any, Self

import numpy as np
from scipy.fft import dct
from scipy.linalg.blas import dgemm
from scipy.special import gammaln

from bochner._core import arrays
from bochner._core.arrays import adapt, array_namespace, dense, slices, take, to_numpy
from bochner._core.checks import MaybeCounted, integer, optional, word
from bochner._core.native import polynomials
from bochner._core.shapes import Array, Float, Int
from bochner.errors import FeatureWarning, UnsupportedKernel
from bochner.features import compose
from bochner.features.fourier.placements import IID, unit_directions
from bochner.features.map import FeatureMap, Method, Request, times
from bochner.features.mercer.sphere import axes_needed, harmonic_blocks
from bochner.kernels.kernel import Kernel
from bochner.kernels.series import (
    RadialKernels,
    alpha,
    gegenbauers,
    log_alpha,
    monomials,
    recurrence,
)
from bochner.kernels.stationary import isotropic
from bochner.kernels.zonal import GeneralizedZonal, directions

ROTATION_INVARIANT = (
    "a rotation-invariant kernel: of the Euclidean distance (with one lengthscale, or one per "
    "column), of the inner product, of the angle, or their sums and multiples"
)


@dataclass(frozen=True, eq=False)
class Polar:
    """Polar coordinates of rows x: r = |(x − c)/ℓ| and leading coordinates of (x − c)/(ℓ r)."""

    centre: Float[np.ndarray, " d"]  # c and ℓ
    scales: Float[np.ndarray, " d"]
    #: Orthonormal columns: the coordinates are u·axes, or u if None.
    axes: Float[np.ndarray, "d a"] | None

    def __call__(self, X: Float[Array, "n d"]) -> tuple[Float[Array, "n a"], Float[Array, " n"]]:
        """Return coordinates, (n, a), and radii, (n,); rows at the centre have direction zero."""
        X = dense(X)
        U, r = directions((X - adapt(self.centre, like=X)) / adapt(self.scales, like=X))
        if self.axes is not None:
            U = times(U, self.axes)
        return np.ascontiguousarray(U) if isinstance(U, np.ndarray) else U, r


def polar_of(
    scales: Float[np.ndarray, " d"], X: Array | None, centred: bool, rotate: bool = True
) -> Polar:
    """Return polar coordinates; about the mean if ``centred`` and the rows are not on a sphere."""
    d = len(scales)
    if X is None:
        return Polar(np.zeros(d), scales, None)
    sample = to_numpy(X[:: -(-X.shape[0] // 16384)]).astype(np.float64)
    A, axes = sample / scales, None
    r, spread = np.linalg.norm(A, axis=1), np.linalg.norm(A - A.mean(axis=0)) / len(A) ** 0.5
    on_sphere = r.max() - r.min() <= 0.01 * spread  # about zero, not a distant cluster
    centre = sample.mean(axis=0) if centred and not on_sphere else np.zeros(d)
    if rotate and 1 < d <= compose.MAX_COLUMNS:
        A = (sample - centre) / scales
        A = A / (np.abs(A).max() or 1.0)
        axes = np.ascontiguousarray(compose.principal_axes(A.T @ A)[1])
    return Polar(centre, scales, axes)


def same_radius(r: Float[np.ndarray, " n"]) -> bool:
    """Whether all radii are equal, to rounding of float32 rows."""
    return bool(r.max() - r.min() <= 1e-6 * r.max())


def as_radial(
    caller: str, kernel: Kernel, d: int
) -> tuple[Kernel, Float[np.ndarray, " d"], RadialKernels]:
    """Return a rotation-invariant kernel, ℓ with k(x, y) = kernel(x/ℓ, y/ℓ), and its R_l."""
    unit, scales = isotropic(kernel, d)
    if (radial := unit.zonal(d)) is None:
        raise UnsupportedKernel(f"{caller} requires {ROTATION_INVARIANT}; got {kernel!r}.")
    return unit, scales, radial


def axis_points(q: Float[np.ndarray, " M"], d: int) -> Float[np.ndarray, "M d"]:
    """Return points with the radii q on the first axis."""
    X = np.zeros((len(q), d))
    X[:, 0] = q
    return X


# --- Radial functions of a rotation-invariant kernel: optimal ones, and monomials ----------------
#
# The radial kernel R_l of degree l is factored on radii q_1, ..., q_M of the data, whose shares of
# the rows are ω_1, ..., ω_M. With [√ω_a R_l(q_a, q_b) √ω_b] = V diag(w) Vᵀ,
#
#     g_{l,i}(r) = w_i^{−1/2} Σ_a R_l(r, q_a) √ω_a V_{a,i}
#
# and R_l(r, s) − Σ_i g_{l,i}(r) g_{l,i}(s) ⪰ 0 for all radii: Nyström features of R_l. The energy
# w_i is the mean of g² over the rows.

NODES = 64  # Quantiles of the radii on which radial kernels are factored
REACH = 1.25  # Limit of interpolants / largest radius; rows beyond take longer
ROUNDING = float(np.finfo(float).eps)
MAX_HARMONICS = (4 * ROUNDING) ** -2  # Of a degree; with more, the energy is rounding errors


def _quantiles(
    r: Float[np.ndarray, " n"],
) -> tuple[Float[np.ndarray, " M"], Float[np.ndarray, " M"]]:
    """Return quantiles of the radii, dense at both ends, and the shares of the rows."""
    if same_radius(r):
        return np.array([r.mean()]), np.ones(1)
    M = min(NODES, len(r))
    edges = np.sin(np.arange(M + 1) * np.pi / (2 * M)) ** 2
    middles = np.sin((np.arange(M) + 0.5) * np.pi / (2 * M)) ** 2
    return np.quantile(r, middles), np.diff(edges)


def spectrum(
    kernel: Kernel, radial: RadialKernels, r: Any, width: int, max_degrees: int = 4096
) -> tuple[Float[np.ndarray, " M"], float, Int[Array, " B"], Array, Float[np.ndarray, "B M"]]:
    """Return nodes, the mean of k(x, x) on them, and degrees l, energies and weights of functions.

    The functions are g(r) = Σ_a R_l(r, q_a) weights_a, by decreasing energy per feature, for
    ``width`` features up to degree ``max_degrees``. Zonal kernels need no radii.
    """
    d = radial.n_inputs
    q, share = (np.ones(1), np.ones(1)) if radial.zonal else _quantiles(r)
    total = float(to_numpy(kernel.diag(axis_points(q, d))) @ share)
    last = min(15 if d <= 4 else 3, max_degrees)
    while True:
        counts = [alpha(l, d) for l in range(last + 1)]
        sizes = np.array([float(count) if count <= MAX_HARMONICS else 0.0 for count in counts])
        # R_l has the error of √α_l roundings of the kernel.
        noise = np.where(sizes > 0, 4 * ROUNDING * total * sizes**0.5, np.inf)
        R = radial.matrices(last, q, q)
        values, weights = zip(*map(compose.eigenfunctions, R, repeat(share), noise), strict=True)
        degrees = np.repeat(np.arange(last + 1), [*map(len, values)])
        energies = np.concatenate(values)
        density = energies / sizes[degrees]
        order = np.argsort(-density, kind="stable")
        remainder = total - float(np.einsum("laa,a->", R, share))
        top = np.zeros(last + 1)
        np.maximum.at(top, degrees, density)
        # Half of many degrees have no energy: the distances of rows are too large.
        truncated = last >= 255 and not radial.zonal and not np.any(top[last // 2 :])
        ends = np.flatnonzero(np.cumsum(sizes[degrees[order]]) >= width)
        lowest = density[order[ends[0]]] if len(ends) else 0.0  # energy of the last feature
        if truncated or last == max_degrees or _is_complete(top, remainder, total, lowest, d):
            C = np.concatenate([columns.T for columns in weights])
            return q, total, degrees[order], energies[order], C[order]
        last = min(2 * last + 1, max_degrees)


def _is_complete(
    top: Float[np.ndarray, " l"], remainder: float, total: float, lowest: float, d: int
) -> bool:
    """Whether all degrees after ``top`` have less energy per feature than ``lowest``."""
    next_dimension = alpha(len(top), d)
    if not next_dimension or next_dimension > MAX_HARMONICS or remainder <= 64 * ROUNDING * total:
        return True
    if remainder <= lowest * next_dimension:
        return True
    tail = top[-8:]
    tail = tail[tail > 0.0]
    return len(tail) >= 4 and lowest > tail[0] and bool((np.diff(tail) < 0.0).all())


@dataclass(frozen=True, eq=False)
class RadialFunctions:
    """Radial functions g_b(r) = Σ_a R_{l_b}(r, q_a) C_{b,a}: one column for each block b."""

    kernel: Kernel  # Rotation-invariant, in the coordinates of :class:`Polar`
    n_inputs: int  # d
    degrees: np.ndarray  # l_b
    nodes: Float[np.ndarray, " M"]  # q
    weights: Float[np.ndarray, "B M"]  # C
    limit: float = 0.0  # Largest radius of the interpolant; larger radii use R_l
    #: Chebyshev coefficients in T_j(2r/limit − 1).
    interpolant: Float[np.ndarray, "k B"] | None = None

    def subset(self, index: np.ndarray) -> Self:
        """Return the functions with these indices."""
        C = self.interpolant
        return replace(
            self,
            degrees=self.degrees[index],
            weights=self.weights[index],
            interpolant=None if C is None else np.ascontiguousarray(C[:, index]),
        )

    def __call__(self, r: Float[Array, " n"]) -> Float[Array, "n B"]:
        """Return g_1(r), ..., g_B(r); in ONNX graphs NaN beyond the limit."""
        if (C := self.interpolant) is None or not self.limit:
            return adapt(self.exact(to_numpy(r)), like=r)
        xp = array_namespace(r)
        in_ball = r <= self.limit
        share = xp.where(in_ball, r, xp.zeros_like(r)) / self.limit
        G = _chebyshev_sum(share, C)
        if arrays.is_symbolic(r):
            return xp.where(in_ball[:, None], G, xp.full_like(G, xp.nan))
        if bool(xp.all(in_ball)):
            return G
        radii = to_numpy(r).astype(np.float64)
        rows = np.flatnonzero(radii > self.limit)
        values = np.zeros((len(radii), len(self.degrees)))
        values[rows] = self.exact(radii[rows])
        return xp.where(in_ball[:, None], G, adapt(values, like=r))

    def exact(self, r: Float[np.ndarray, " n"]) -> Float[np.ndarray, "n B"]:
        """Return g_1(r), ..., g_B(r) from the radial kernels, without interpolation."""
        G = np.zeros((len(r), len(self.degrees)))
        degree = int(self.degrees.max(initial=0))
        radial = as_radial("MercerHarmonic", self.kernel, self.n_inputs)[2]
        for rows in slices(len(r), 256):
            R = radial.matrices(degree, r[rows], self.nodes)
            for l in np.unique(self.degrees).tolist():
                index = np.flatnonzero(self.degrees == l)
                G[rows, index] = R[l] @ self.weights[index].T
        return G

    def with_interpolant(self, r: Float[np.ndarray, " n"], tolerance: float) -> Self:
        """Return the functions, interpolated to ``tolerance`` up to REACH times the largest r."""
        limit = REACH * float(r.max())
        # limit·(1 + cos(πj/q))/2, j = 0..q: every second radius belongs to degree q/2
        radii = lambda q: limit * np.cos(np.arange(q + 1) * (np.pi / (2 * q))) ** 2
        q, values = 16, self.exact(radii(16))
        while True:
            C = dct(values, type=1, axis=0) / q  # coefficients of Chebyshev polynomials
            C[[0, -1]] /= 2.0
            error = np.abs(C[-(q // 4) :]).max(axis=0) * np.abs(values).max(axis=0)
            if q >= 512 or bool((error <= tolerance).all()):
                return replace(self, limit=limit, interpolant=C)
            q *= 2
            refinement = np.empty((q + 1, values.shape[1]))
            refinement[::2], refinement[1::2] = values, self.exact(radii(q)[1::2])
            values = refinement


@dataclass(frozen=True, eq=False)
class IndexedFunctions:
    """h_{l,i}(r): monomials, or the radial functions that a `GeneralizedZonal` kernel defines."""

    kernel: Kernel
    n_inputs: int  # d
    degrees: np.ndarray  # l and i
    indices: np.ndarray

    def __call__(self, r: Float[Array, " n"]) -> Float[Array, "n B"]:
        """Return the values of the functions, in the library and precision of r."""
        if isinstance(self.kernel, GeneralizedZonal):
            t = to_numpy(r).astype(np.float64)
            values = np.empty((len(t), len(self.degrees)))
            for l in np.unique(self.degrees).tolist():
                index = self.degrees == l
                values[:, index] = self.kernel.radial(l, t)[:, self.indices[index]]
            return adapt(values, like=r)
        xp = array_namespace(r)
        r = r[:, None]
        positive = xp.where(r > 0, r, xp.ones_like(r))
        logs, powers, decay = (adapt(A, like=r) for A in self._logs)
        H = xp.exp(logs + powers * xp.log(positive) - decay * r * r)
        return xp.where((r > 0) | (powers == 0), H, xp.zeros_like(H))

    def subset(self, index: np.ndarray) -> Self:
        """Return the functions with these indices."""
        return replace(self, degrees=self.degrees[index], indices=self.indices[index])

    @cached_property
    def _logs(self) -> tuple[Float[np.ndarray, " B"], Float[np.ndarray, " B"], Array]:
        """Constants log a, l + 2i and c of h(r) = a r^{l+2i} e^{−c r²}; c is common to all."""
        radial = as_radial("Gegenbauer", self.kernel, self.n_inputs)[2]
        degree, order = (int(v.max(initial=0)) for v in (self.degrees, self.indices))
        h = monomials(radial, degree, order + 1, np.ones(1))[self.degrees, self.indices, 0]
        half = 0.5 * radial.decay
        with np.errstate(divide="ignore"):
            logs = np.maximum(np.log(h) + half, -1e4)
        return logs, self.degrees + 2.0 * self.indices, np.array([half])


def _chebyshev_sum(share: Float[Array, " n"], C: Float[np.ndarray, "k B"]) -> Float[Array, "n B"]:
    """Return Σ_j T_j(2 share − 1) C_j, (n, B), as products; NumPy in float64 throughout."""
    if isinstance(share, np.ndarray):
        G = np.empty((len(share), C.shape[1]), share.dtype)
        for rows in slices(len(share), 2048):  # polynomials fit into the level-2 cache
            t = 2.0 * share[rows].astype(np.float64) - 1.0
            T = np.empty((len(C), len(t)))
            T[0], T[1] = 1.0, t
            for j in range(2, len(C)):
                np.multiply(2.0 * t, T[j - 1], out=T[j])
                T[j] -= T[j - 2]
            G[rows] = dgemm(1.0, C.T, T.T, trans_b=1).T  # copies nothing
        return G
    xp = array_namespace(share)
    basis = [xp.ones_like(share), 2.0 * share - 1.0]
    for _ in range(2, len(C)):
        basis.append(2.0 * basis[1] * basis[-1] - basis[-2])
    return xp.stack(basis, axis=1) @ adapt(C, like=share)


@dataclass(frozen=True)
class MercerHarmonic(Method):
    """Spherical harmonics times radial functions: the D features with the largest energy.

    See Also
    --------
    HermiteMercer : For rows of unequal spread.
    Gegenbauer : Random directions instead of harmonics.

    Notes
    -----
    Supports kernels of the Euclidean distance (one lengthscale or one per column), of the inner
    product, of the angle (arc-cosine, neural tangent), their sums and multiples. Deterministic: the
    error is the energy of omitted terms, the smallest for D features on rotation-invariant rows.
    Use it for up to about six columns, or ten on spheres. If the spread of rows is very unequal,
    :class:`HermiteMercer` and :class:`Nystrom` are better.

    Kernels of the distance are centred at the mean of the rows, unless these are on a sphere. The
    last degree is truncated, principal axes first. Cost of φ(X): O(n (d² + D)). Han, Zandieh and
    Avron (2022), lemmas 4 and 15 and eq. 11, with exact directions and optimal radial functions.

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> X = np.random.default_rng(0).uniform(-1, 1, (50, 3))
    >>> phi = bo.draw(bo.kernels.Gaussian(), bo.MercerHarmonic(), n_features=64, X=X)
    >>> float(abs(phi(X) @ phi(X).T - phi.kernel(X, X)).max()) < 0.02
    True
    """

    floats_each = 0


@dataclass(frozen=True, eq=False)
class MercerHarmonicMap(FeatureMap):
    """Blocks of columns g_b(|x|) α_l^{−1/2} Y_{l,μ}(x/|x|), μ = 1..counts_b."""

    kernel: Kernel
    polar: Polar  # From rows to radii and directions
    radial: RadialFunctions  # g_b α_l^{−1/2}, a column for each block
    #: Number of harmonics of each block: α_l, or fewer in a truncated block.
    counts: np.ndarray

    @property
    def n_inputs(self) -> int:
        return self.radial.n_inputs

    @property
    def n_features(self) -> int:
        return int(self.counts.sum())

    below_kernel = True  # Terms of the expansion of the kernel

    @property
    def multiplications(self) -> float:
        return float(self.n_inputs**2 + self.n_features)

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        U, r = self.polar(X)
        return harmonic_blocks(U, self.n_inputs, self.radial.degrees, self.counts, self.radial(r))


def draw_harmonics(method: MercerHarmonic, kernel: Kernel, ask: Request) -> MercerHarmonicMap:
    """Draw the D harmonics times radial functions with the largest energy on the rows."""
    base, scales, radial = as_radial("MercerHarmonic", kernel, ask.n_inputs)
    if ask.X is not None:
        compose.require_squares("MercerHarmonic", ask.X, 1 / scales)
    polar = polar_of(scales, ask.X, kernel.spectral(ask.n_inputs) is not None)
    r = None
    if not radial.zonal:
        X = ask.rows("MercerHarmonic", "its radial functions")
        r = polar(X.astype(np.float64))[1]
    q, total, degrees, energies, weights = spectrum(base, radial, r, ask.n_features)
    sizes = np.array([float(alpha(l, ask.n_inputs)) for l in degrees.tolist()])
    counts = np.diff(np.minimum(np.cumsum(sizes), ask.n_features), prepend=0).astype(int)
    n = np.count_nonzero(counts)  # the last one is truncated
    counts, degrees, sizes = counts[:n], degrees[:n], sizes[:n]
    if not n:
        raise UnsupportedKernel(
            "MercerHarmonic requires rows within a few lengthscales of each other; at distances up "
            f"to {float(q.max()):.3g} lengthscales no degree has energy. Use a larger lengthscale."
        )
    remainder = max(total - float(energies[:n] / sizes @ counts), 0.0)
    weights = weights[:n] * sizes[:, None] ** -0.5
    functions = RadialFunctions(base, ask.n_inputs, degrees, q, weights)
    if r is not None:  # Below 1e-13 of the mean k(x, x) interpolation is rounding
        functions = functions.with_interpolant(r, max(1e-13 * total, 1e-5 * remainder))
    leading = axes_needed(ask.n_inputs, tuple(degrees.tolist()), tuple(counts.tolist()))
    if leading < ask.n_inputs:  # other coordinates are not used
        axes = np.eye(ask.n_inputs) if polar.axes is None else polar.axes
        polar = replace(polar, axes=np.ascontiguousarray(axes[:, :leading]))
    return MercerHarmonicMap(kernel, polar, functions, counts)


# --- Random Gegenbauer features: Han, Zandieh and Avron (2022) ------------------------------------
#
# A rotation-invariant kernel is Σ_l Σ_i h_{l,i}(|x|) h_{l,i}(|y|) P_l(cos θ). With directions w
# uniform on the sphere and p_l = √α_l P_l the orthonormal Gegenbauer polynomials,
#
#     φ_x(w)_i = Σ_l h_{l,i}(|x|) p_l(⟨x, w⟩/|x|),   E φ_x(w)·φ_y(w) = k(x, y),
#
# and m directions give z(x) = m^{−1/2} [φ_x(w_1), ..., φ_x(w_m)], D = m·s of order s: definition 8.


@dataclass(frozen=True)
class Gegenbauer(Method):
    """Random Gegenbauer features, with independent directions.

    Parameters
    ----------
    radial : {"optimal", "monomial"}, default "optimal"
        Radial functions h_{l,i}. "optimal": as in :class:`MercerHarmonic`, for every
        rotation-invariant kernel. "monomial", for kernels of ⟨x, y⟩ and the Gaussian: t^{l+2i}
        (times e^{−t²/2} for the Gaussian) as in Han et al. (2022), lemmas 4 and 15. Both use one
        function for kernels of the angle (lemma 16) or rows on one sphere, and the given h_l
        for ``GeneralizedZonal`` and its multiples.
    order : int, optional
        s, functions for each degree. Default: the order with the smallest predicted error, bias
        plus noise s/D.
    degree : int, optional
        q, the largest l; for monomials the largest total degree l + 2i. Default: the smallest q
        that omits less than 1e-12 of k(x, x), except for the 1 % longest rows; at most 48 with
        optimal functions.

    Notes
    -----
    Unbiased for the kernel truncated at degree q and order s: this error falls like 1/√D for any
    rows. The truncation error does not depend on D; if the default omits more than one per cent of
    the mean of k(x, x), a ``FeatureWarning`` is issued. For d = 1 directions alternate in sign.
    Use it to compare with published numbers; :class:`MercerHarmonic` has exact harmonics, and
    much smaller errors if α_l is moderate. Cost of φ(X): O(n m (d + (3 + 2 s) q)).

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> X = np.random.default_rng(0).uniform(-1, 1, (50, 3))
    >>> method = bo.Gegenbauer(order=1, degree=6)
    >>> bo.draw(bo.kernels.DotExponential(), method, n_features=64, X=X)
    GegenbauerMap(kernel=DotExponential(scale=1.0), n_inputs=3, n_features=64)
    """

    radial: Annotated[str, word("optimal", "monomial")] = "optimal"
    order: MaybeCounted = None
    degree: Annotated[int | None, optional(integer)] = None


@dataclass(frozen=True, eq=False)
class GegenbauerMap(FeatureMap):
    """Σ_l h_{l,i}(|x|) p_l(⟨x, w_j⟩/|x|) for each component i and direction w_j."""

    kernel: Kernel
    polar: Polar  # From rows to radii and directions
    directions: Float[np.ndarray, "d m"]  # W, unit columns
    #: h, with columns in the order of degrees; the i-th of each degree belongs to component i.
    radial: IndexedFunctions | RadialFunctions

    @property
    def n_features(self) -> int:
        return self.order * self.directions.shape[1]

    unbiased = False  # A truncated series

    def truncation_error(self, X: Float[Array, "n d"]) -> Float[Array, " n"]:
        functions = to_numpy(self.radial(self.polar(X)[1]))
        variance = to_numpy(self.kernel.diag(X))
        remainder = variance - (functions**2).sum(axis=1)  # P_l(1) = 1
        return np.where(remainder > 1e-12 * variance, remainder, 0.0)

    @property
    def degree(self) -> int:
        """q, the largest degree."""
        return int(self.radial.degrees.max(initial=0))

    @property
    def order(self) -> int:
        """s, the number of components."""
        return int(np.bincount(self.radial.degrees).max(initial=1))

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        U, r = self.polar(X)
        xp = array_namespace(U)
        H = self.radial(r) * self.directions.shape[1] ** -0.5
        H = take(xp.concat([H, xp.zeros_like(H[:, :1])], axis=1), self._places, axis=1)
        H = xp.reshape(H, (U.shape[0], self.order, self.degree + 1))
        return polynomials(U, adapt(self.directions, like=U), H, *self._steps)

    @cached_property
    def _places(self) -> np.ndarray:
        """Index of the radial function of each (component, degree); the last function is zero."""
        degrees = self.radial.degrees
        places = np.full((self.order, self.degree + 1), len(degrees))
        places[_components(degrees), degrees] = np.arange(len(degrees))
        return places.ravel()

    @cached_property
    def _steps(self) -> tuple[Float[np.ndarray, " q"], Float[np.ndarray, " q"]]:
        """Factors ``up`` and ``down`` of p_{l+1} = up_l t p_l − down_l p_{l−1}."""
        if self.n_inputs == 1:
            return np.eye(1, self.degree)[0], np.zeros(self.degree)
        b = recurrence(self.degree, self.n_inputs)
        return 1.0 / b[1:], b[:-1] / b[1:]


# --- Drawing Gegenbauer features: degree, order, radial functions and directions -----------------
#
# Degree and order are chosen so that truncation errors are small compared with the noise of random
# directions.

#: Share of k(x, x) that the degree may omit. Noise averages over rows; the truncation error does
#: not: it removes eigenspaces of K with eigenvalues of at most n times this share, which matter if
#: they are above the penalty. 1e-12 ‖K‖ is about the smallest penalty of a fit in float64.
NEGLIGIBLE = 1e-12
MAX_ORDERS = 16  # Largest order that is chosen
ROWS = 256  # Rows on which orders are compared

Radials = IndexedFunctions | RadialFunctions


def _components(degrees: Int[Array, " B"]) -> Int[Array, " B"]:
    """Return the component of each radial function: its number among functions of its degree."""
    return np.arange(len(degrees)) - np.searchsorted(degrees, degrees)


def _first_components(order: int, radials: Radials) -> Radials:
    """Return the radial functions of the first ``order`` components."""
    return radials.subset(np.flatnonzero(_components(radials.degrees) < order))


def draw_gegenbauer(method: Gegenbauer, kernel: Kernel, ask: Request) -> FeatureMap:
    """Draw random Gegenbauer features; the rows determine degree, order and radial functions."""
    base, scales, radial = as_radial("Gegenbauer", kernel, ask.n_inputs)
    centred = method.radial == "optimal" and kernel.spectral(ask.n_inputs) is not None
    polar = polar_of(scales, ask.X, centred, rotate=False)
    coordinates: Any = (None, None) if ask.X is None else polar(ask.X.astype(np.float64))
    U, r = coordinates
    if isinstance(base, GeneralizedZonal):
        radials = _radials_of(method, base, ask.n_inputs, r)
    else:
        # One constant function is enough for kernels of the angle, and for rows on one sphere.
        constant = method.order is None and r is not None and same_radius(r)
        optimal = method.radial == "optimal" or radial.zonal or constant
        choose = _optimal_functions if optimal else _monomial
        radials = choose(method, base, radial, r, ask)
        # The order is a compromise of bias and noise; in one column there is no noise.
        if method.order is None and ask.n_inputs > 1 and _components(radials.degrees).any():
            order = _best_order(radials, U, r, ask.n_features)
            radials = _first_components(order, radials)
    order = int(_components(radials.degrees).max(initial=0)) + 1
    m = ask.n_features // order
    ask.require_width(order, "Gegenbauer", "the order, for one direction")
    rng = ask.stream("directions")
    if ask.n_inputs == 1:  # 1 and −1 in turn, equally often
        m -= m % 2 if m > 1 else 0
        W = rng.choice((-1.0, 1.0)) * (-1.0) ** np.arange(m)[None, :]
    else:
        W = unit_directions(IID(), ask.n_inputs, m, rng)
    phi = GegenbauerMap(kernel, polar, W, radials)
    if ask.X is None or not (method.degree is None or method.order is None):
        return phi
    rows = ask.X[:: -(-ask.X.shape[0] // ROWS)].astype(np.float64)
    remainder, variance = phi.truncation_error(rows), to_numpy(phi.kernel.diag(rows))
    share = float(remainder.sum() / variance.sum()) if variance.any() else 0.0
    if share > 0.01:  # relevant for a fit
        warnings.warn(
            f"Gegenbauer: degree {phi.degree} and order {phi.order} at {phi.n_features} "
            f"features leave out {100 * share:.2g} % of k(x, x) in the mean of the rows, for any "
            "number of directions. Use a larger order= (or degree=) with more features, or "
            "MercerHarmonic() or Nystrom().",
            FeatureWarning,
            stacklevel=2,
        )
    return phi


def _best_order(
    radials: Radials, U: Float[np.ndarray, "n d"], r: Float[np.ndarray, " n"], D: int
) -> int:
    """Return s with the least bias² + noise² of an entry, noise² = (s/D) k_s(x, x) k_s(y, y)."""
    rows, degrees = slice(None, None, -(-len(r) // ROWS)), radials.degrees
    U, h, components = U[rows], radials(r[rows]), _components(degrees)
    P = list(gegenbauers(int(degrees.max()), U.shape[1], np.clip(U @ U.T, -1.0, 1.0)))
    K = np.zeros((components.max() + 1, len(U), len(U)))  # kernel matrices of each order
    for l, i, g in zip(degrees.tolist(), components.tolist(), h.T, strict=True):
        K[i] += np.outer(g, g) * P[l]
    K = np.cumsum(K, axis=0)
    bias = ((K - K[-1]) ** 2).mean(axis=(1, 2))
    squares = np.einsum("ijj->ij", K).mean(axis=1) ** 2
    return int(np.argmin(bias + (np.arange(len(K)) + 1.0) / D * squares)) + 1


def _monomial(
    method: Gegenbauer, kernel: Kernel, radial: RadialKernels, r: Array, ask: Request
) -> Radials:
    """Return monomials r^{l+2i}; the default degree omits a negligible part of k(x, x)."""
    if (series := radial.power_series) is None:
        raise UnsupportedKernel(
            'Gegenbauer(radial="monomial") requires a kernel of ⟨x, y⟩, the Gaussian, a kernel of '
            "the angle, GeneralizedZonal, or rows on one sphere. Use Gegenbauer() or "
            "MercerHarmonic()."
        )
    total = series.degree if method.degree is None else method.degree
    if total is None or method.order is None:
        ask.rows("Gegenbauer", "its order and degree")
    if total is None:  # the smallest degree that omits a negligible part of k(x, x)
        t = max(float(np.quantile(r, 0.99)), 1e-150)
        n = np.arange(4096)
        logs = series.log_derivative(n) + 2 * n * math.log(t) - gammaln(n + 1.0)
        terms = np.exp(logs - logs.max())
        tails = np.cumsum(terms[:0:-1])[::-1]  # sum of the terms after n
        small = tails <= NEGLIGIBLE * terms.sum()
        total = int(np.argmax(small)) if small.any() else len(n) - 1
    q = _largest_degree(total, radial.n_inputs)
    D = ask.n_features
    count = max(D // 2, 1) if radial.n_inputs == 1 else min(MAX_ORDERS, D)
    s = min(total // 2 + 1, count) if method.order is None else method.order
    degrees, indices = np.repeat(np.arange(q + 1), s), np.tile(np.arange(s), q + 1)
    return IndexedFunctions(kernel, radial.n_inputs, degrees, indices)


def _largest_degree(q: int, d: int) -> int:
    """Return the largest degree up to q that float32 can represent; at most 1 for d = 1."""
    if d == 1:
        return min(q, 1)
    while q > 1 and 0.5 * log_alpha(q, d) > math.log(1e35):
        q -= 1
    return q


def _radials_of(method: Gegenbauer, kernel: GeneralizedZonal, d: int, r: Array | None) -> Radials:
    """Return the kernel's radial functions, at most ``order``, largest first in each degree."""
    sample = np.ones(1) if r is None else r
    sample = sample[:: -(-len(sample) // ROWS)]
    last = len(kernel.radial_functions) - 1
    q = _largest_degree(last if method.degree is None else min(method.degree, last), d)
    squares = [(kernel.radial(l, sample) ** 2).mean(axis=0) for l in range(q + 1)]
    places = [np.argsort(-square, kind="stable") for square in squares]
    degrees = np.repeat(np.arange(q + 1), [len(place) for place in places])
    functions = IndexedFunctions(kernel, d, degrees, np.concatenate(places))
    return _first_components(method.order or len(degrees), functions)


def _optimal_functions(
    method: Gegenbauer, kernel: Kernel, radial: RadialKernels, r: Array, ask: Request
) -> Radials:
    """Return radial functions from the radial kernels: the given number, or all that matter."""
    if not radial.zonal:
        ask.rows("Gegenbauer", "its radial functions")
    d = radial.n_inputs
    last = _largest_degree(48 if method.degree is None else method.degree, d)
    q, total, degrees, energies, weights = spectrum(kernel, radial, r, 1 << 62, last)
    if method.degree is None:  # the smallest degree that omits almost no energy
        small = total - np.cumsum(np.bincount(degrees, energies)) <= NEGLIGIBLE * total
        last = int(np.argmax(small)) if small.any() else last
    order = np.lexsort((-energies, degrees))
    order = order[degrees[order] <= last]
    degrees = degrees[order]
    # Signs + + − − along the degrees; with equal signs a feature has a peak at its direction.
    weights = weights[order] * (1 - degrees // 2 % 2 * 2)[:, None]
    functions = RadialFunctions(kernel, d, degrees, q, weights)
    if not radial.zonal:
        functions = functions.with_interpolant(r, 1e-6 * total / ask.n_features**0.5)
    return _first_components(method.order or MAX_ORDERS, functions)
