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
from bochner._core.arrays import array_namespace, dense, moved, slices, taken, to_numpy
from bochner._core.checks import MaybeCounted, integer, optional, word
from bochner._core.native import polynomials
from bochner._core.shapes import Array, Float, Int
from bochner.errors import FeatureWarning, UnsupportedKernel
from bochner.features import composed
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
    "column), of the inner product, of the angle, or sums and multiples of such"
)


@dataclass(frozen=True, eq=False)
class Polar:
    """Rows x as radius r = |(x − c)/ℓ| and leading coordinates of u = (x − c)/(ℓ r)."""

    centre: Float[np.ndarray, " d"]  # c and ℓ
    scales: Float[np.ndarray, " d"]
    #: Orthonormal columns: the coordinates are u·axes; with None, u itself.
    axes: Float[np.ndarray, "d a"] | None

    def __call__(self, X: Float[Array, "n d"]) -> tuple[Float[Array, "n a"], Float[Array, " n"]]:
        """Return coordinates, (n, a), and radii, (n,); rows at the centre have direction zero."""
        X = dense(X)
        U, r = directions((X - moved(self.centre, like=X)) / moved(self.scales, like=X))
        if self.axes is not None:
            U = times(U, self.axes)
        return np.ascontiguousarray(U) if isinstance(U, np.ndarray) else U, r


def polar_of(
    scales: Float[np.ndarray, " d"], X: Array | None, centred: bool, rotated: bool = True
) -> Polar:
    """Return the change to radii and directions, about the mean where ``centred`` and no sphere."""
    d = len(scales)
    if X is None:
        return Polar(np.zeros(d), scales, None)
    sample = to_numpy(X[:: -(-X.shape[0] // 16384)]).astype(np.float64)
    A, axes = sample / scales, None
    r, spread = np.linalg.norm(A, axis=1), np.linalg.norm(A - A.mean(axis=0)) / len(A) ** 0.5
    on_sphere = r.max() - r.min() <= 0.01 * spread  # about zero, and no distant cluster
    centre = sample.mean(axis=0) if centred and not on_sphere else np.zeros(d)
    if rotated and 1 < d <= composed.MOST_COLUMNS:
        A = (sample - centre) / scales
        A = A / (np.abs(A).max() or 1.0)
        axes = np.ascontiguousarray(composed.principal_axes(A.T @ A)[1])
    return Polar(centre, scales, axes)


def one_radius(r: Float[np.ndarray, " n"]) -> bool:
    """Whether all radii are equal, to rounding of float32 rows."""
    return bool(r.max() - r.min() <= 1e-6 * r.max())


def in_balls(
    who: str, kernel: Kernel, d: int
) -> tuple[Kernel, Float[np.ndarray, " d"], RadialKernels]:
    """Return a rotation-invariant kernel, ℓ with k(x, y) = kernel(x/ℓ, y/ℓ), and its R_l."""
    unit, scales = isotropic(kernel, d)
    if (radial := unit.zonal(d)) is None:
        raise UnsupportedKernel(f"{who} requires {ROTATION_INVARIANT}; got {kernel!r}.")
    return unit, scales, radial


def on_axis(q: Float[np.ndarray, " M"], d: int) -> Float[np.ndarray, "M d"]:
    """Return rows of the radii q."""
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
# and R_l(r, s) − Σ_i g_{l,i}(r) g_{l,i}(s) ⪰ 0 for all radii: Nyström features of
# R_l. The energy w_i is the mean of g² over the rows.

NODES = 64  # Quantiles of the radii on which radial kernels are factored
REACH = 1.25  # Interpolants reach this many times the largest radius; rows beyond cost more
ROUNDING = float(np.finfo(float).eps)
MOST_HARMONICS = (4 * ROUNDING) ** -2  # Of a degree: beyond, all energy is rounding


def _quantiles(
    r: Float[np.ndarray, " n"],
) -> tuple[Float[np.ndarray, " M"], Float[np.ndarray, " M"]]:
    """Return radii, dense at both ends where few rows carry most of what is left, and shares."""
    if one_radius(r):
        return np.array([r.mean()]), np.ones(1)
    M = min(NODES, len(r))
    edges = np.sin(np.arange(M + 1) * np.pi / (2 * M)) ** 2
    middles = np.sin((np.arange(M) + 0.5) * np.pi / (2 * M)) ** 2
    return np.quantile(r, middles), np.diff(edges)


def spectrum(
    kernel: Kernel, radial: RadialKernels, r: Any, width: int, most: int = 4096
) -> tuple[Float[np.ndarray, " M"], float, Int[Array, " B"], Array, Float[np.ndarray, "B M"]]:
    """Return nodes, the mean of k(x, x) on them, and degrees l, energies and weights of functions.

    The functions g(r) = Σ_a R_l(r, q_a) weights_a are those for ``width`` features up to degree
    ``most``, by energy per feature. Of zonal kernels radii are not needed: all nodes are as good.
    """
    d = radial.n_inputs
    q, share = (np.ones(1), np.ones(1)) if radial.zonal else _quantiles(r)
    total = float(to_numpy(kernel.diag(on_axis(q, d))) @ share)
    last = min(15 if d <= 4 else 3, most)
    while True:
        counts = [alpha(l, d) for l in range(last + 1)]
        sizes = np.array([float(count) if count <= MOST_HARMONICS else 0.0 for count in counts])
        # Quadrature leaves √α_l roundings of the kernel in R_l.
        noise = np.where(sizes > 0, 4 * ROUNDING * total * sizes**0.5, np.inf)
        R = radial.matrices(last, q, q)
        values, weights = zip(*map(composed.eigenfunctions, R, repeat(share), noise), strict=True)
        degrees, energies = (
            np.repeat(np.arange(last + 1), [*map(len, values)]),
            np.concatenate(values),
        )
        each = energies / sizes[degrees]
        order = np.argsort(-each, kind="stable")
        rest = total - float(np.einsum("laa,a->", R, share))
        top = np.zeros(last + 1)
        np.maximum.at(top, degrees, each)
        # After many degrees, half of them without energy: rows are too far apart.
        silent = last >= 255 and not radial.zonal and not np.any(top[last // 2 :])
        enough = np.flatnonzero(np.cumsum(sizes[degrees[order]]) >= width)
        least = each[order[enough[0]]] if len(enough) else 0.0  # energy of the last feature
        if silent or last == most or _complete(top, rest, total, least, d):
            C = np.concatenate([columns.T for columns in weights])
            return q, total, degrees[order], energies[order], C[order]
        last = min(2 * last + 1, most)


def _complete(
    top: Float[np.ndarray, " l"], rest: float, total: float, least: float, d: int
) -> bool:
    """Whether all degrees after those of ``top`` have blocks below ``least`` per feature."""
    later = alpha(len(top), d)
    if not later or later > MOST_HARMONICS or rest <= 64 * ROUNDING * total:
        return True
    if rest <= least * later:
        return True
    last = top[-8:]
    each = last[last > 0.0]
    return len(each) >= 4 and least > each[0] and bool((np.diff(each) < 0.0).all())


@dataclass(frozen=True, eq=False)
class RadialFunctions:
    """Radial functions g_b(r) = Σ_a R_{l_b}(r, q_a) C_{b,a}: one column for each block b."""

    kernel: Kernel  # Rotation-invariant, for rows that :class:`Polar` has taken apart
    n_inputs: int  # d
    degrees: np.ndarray  # l_b
    nodes: Float[np.ndarray, " M"]  # q
    weights: Float[np.ndarray, "B M"]  # C
    limit: float = 0.0  # Radii up to here go through the interpolant, others through R_l itself
    #: Chebyshev coefficients in T_j(2r/limit − 1).
    interpolant: Float[np.ndarray, "k B"] | None = None

    def chosen(self, which: np.ndarray) -> Self:
        """Return the functions with these indices."""
        C = self.interpolant
        return replace(
            self,
            degrees=self.degrees[which],
            weights=self.weights[which],
            interpolant=None if C is None else np.ascontiguousarray(C[:, which]),
        )

    def __call__(self, r: Float[Array, " n"]) -> Float[Array, "n B"]:
        """Return g_1(r), ..., g_B(r); beyond the limit NaN where NumPy cannot look at r."""
        if (C := self.interpolant) is None or not self.limit:
            return moved(self.exactly(to_numpy(r)), like=r)
        xp = array_namespace(r)
        inside = r <= self.limit
        share = xp.where(inside, r, xp.zeros_like(r)) / self.limit
        G = _chebyshev_sum(share, C)
        if arrays.is_recorded(r):
            return xp.where(inside[:, None], G, xp.full_like(G, xp.nan))
        if bool(xp.all(inside)):
            return G
        radii = to_numpy(r).astype(np.float64)
        outside = np.flatnonzero(radii > self.limit)
        exact = np.zeros((len(radii), len(self.degrees)))
        exact[outside] = self.exactly(radii[outside])
        return xp.where(inside[:, None], G, moved(exact, like=r))

    def exactly(self, r: Float[np.ndarray, " n"]) -> Float[np.ndarray, "n B"]:
        """Return the functions from the radial kernels themselves."""
        G = np.zeros((len(r), len(self.degrees)))
        most = int(self.degrees.max(initial=0))
        radial = in_balls("MercerHarmonic", self.kernel, self.n_inputs)[2]
        for rows in slices(len(r), 256):
            R = radial.matrices(most, r[rows], self.nodes)
            for l in np.unique(self.degrees).tolist():
                which = np.flatnonzero(self.degrees == l)
                G[rows, which] = R[l] @ self.weights[which].T
        return G

    def interpolated(self, r: Float[np.ndarray, " n"], tolerance: float) -> Self:
        """Return these with an interpolant beyond the largest radius, to within ``tolerance``."""
        limit = REACH * float(r.max())
        # limit·(1 + cos(πj/degree))/2, j = 0..degree: each second one is of half the degree
        radii = lambda degree: limit * np.cos(np.arange(degree + 1) * (np.pi / (2 * degree))) ** 2
        halves, values = 16, self.exactly(radii(16))
        while True:
            C = dct(values, type=1, axis=0) / halves  # of the interpolant in Chebyshev polynomials
            C[[0, -1]] /= 2.0
            error = np.abs(C[-(halves // 4) :]).max(axis=0) * np.abs(values).max(axis=0)
            if halves >= 512 or bool((error <= tolerance).all()):
                return replace(self, limit=limit, interpolant=C)
            halves *= 2
            both = np.empty((halves + 1, values.shape[1]))
            both[::2], both[1::2] = values, self.exactly(radii(halves)[1::2])
            values = both


@dataclass(frozen=True, eq=False)
class IndexedFunctions:
    """h_{l,i}(r): monomials for a power series or the Gaussian, or functions of a user's own."""

    kernel: Kernel
    n_inputs: int  # d
    degrees: np.ndarray  # l and i
    indices: np.ndarray

    def __call__(self, r: Float[Array, " n"]) -> Float[Array, "n B"]:
        """Return the functions' values, in the library and precision of r."""
        if isinstance(self.kernel, GeneralizedZonal):
            t = to_numpy(r).astype(np.float64)
            values = np.empty((len(t), len(self.degrees)))
            for l in np.unique(self.degrees).tolist():
                which = self.degrees == l
                values[:, which] = self.kernel.radial(l, t)[:, self.indices[which]]
            return moved(values, like=r)
        xp = array_namespace(r)
        r = r[:, None]
        positive = xp.where(r > 0, r, xp.ones_like(r))
        logs, powers, decay = (moved(A, like=r) for A in self._logs)
        H = xp.exp(logs + powers * xp.log(positive) - decay * r * r)
        return xp.where((r > 0) | (powers == 0), H, xp.zeros_like(H))

    def chosen(self, which: np.ndarray) -> Self:
        """Return the functions with these indices."""
        return replace(self, degrees=self.degrees[which], indices=self.indices[which])

    @cached_property
    def _logs(self) -> tuple[Float[np.ndarray, " B"], Float[np.ndarray, " B"], Array]:
        """The logarithm of h(1) without the envelope, l + 2i, and half the envelope's rate."""
        radial = in_balls("Gegenbauer", self.kernel, self.n_inputs)[2]
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
        for rows in slices(len(share), 2048):  # whose polynomials fit the level-2 cache
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
    return xp.stack(basis, axis=1) @ moved(C, like=share)


@dataclass(frozen=True)
class MercerHarmonic(Method):
    """Spherical harmonics times radial functions: the D features with the largest energy.

    See Also
    --------
    HermiteMercer : For rows of unequal spread.
    Gegenbauer : Random directions in place of harmonics.

    Notes
    -----
    Supports kernels of the Euclidean distance (one lengthscale or one per column), of the inner
    product, of the angle (arc-cosine, neural tangent), sums and multiples of these. Deterministic:
    the error is the energy that is dropped, the least that D features can have on
    rotation-invariant rows. Choose it for up to about six columns, or ten on spheres. Where rows
    have very unequal spread, products of Hermite functions and :class:`Nystrom` are better.

    Kernels of the distance are centred at the mean of the rows, unless these lie on a sphere. The
    last degree is cut to fit, principal axes first. Cost of φ(X): O(n (d² + D)). Han, Zandieh and
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

    numbers_each = 0


@dataclass(frozen=True, eq=False)
class MercerHarmonicMap(FeatureMap):
    """Blocks g_b(|x|) α_l^{−1/2} Y_{l,μ}(x/|x|), μ = 1..counts_b, side by side."""

    kernel: Kernel
    polar: Polar  # From rows to radii and directions
    radial: RadialFunctions  # g_b α_l^{−1/2}, a column for each block
    #: How many harmonics of its degree a block has: all α_l, but for one that was cut.
    counts: np.ndarray

    @property
    def n_inputs(self) -> int:
        return self.radial.n_inputs

    @property
    def n_features(self) -> int:
        return int(self.counts.sum())

    below_kernel = True  # A sum of some of the kernel's terms: always

    @property
    def multiplications(self) -> float:
        return float(self.n_inputs**2 + self.n_features)

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        U, r = self.polar(X)
        return harmonic_blocks(U, self.n_inputs, self.radial.degrees, self.counts, self.radial(r))


def draw_harmonics(method: MercerHarmonic, kernel: Kernel, ask: Request) -> MercerHarmonicMap:
    """Draw the D harmonics times radial functions of greatest energy on the radii of the rows."""
    plain, scales, radial = in_balls("MercerHarmonic", kernel, ask.n_inputs)
    if ask.X is not None:
        composed.require_squares("MercerHarmonic", ask.X, 1 / scales)
    polar = polar_of(scales, ask.X, kernel.spectral(ask.n_inputs) is not None)
    r = None
    if not radial.zonal:
        X = ask.rows("MercerHarmonic", "its radial functions")
        r = polar(X.astype(np.float64))[1]
    q, total, degrees, energies, weights = spectrum(plain, radial, r, ask.n_features)
    sizes = np.array([float(alpha(l, ask.n_inputs)) for l in degrees.tolist()])
    counts = np.diff(np.minimum(np.cumsum(sizes), ask.n_features), prepend=0).astype(int)
    n = np.count_nonzero(counts)  # the last is cut
    counts, degrees, sizes = counts[:n], degrees[:n], sizes[:n]
    if not n:
        raise UnsupportedKernel(
            "MercerHarmonic requires rows that the kernel relates to each other; at distances up "
            f"to {float(q.max()):.3g} lengthscales no degree has energy. Take a larger "
            "lengthscale."
        )
    rest = max(total - float(energies[:n] / sizes @ counts), 0.0)
    weights = weights[:n] * sizes[:, None] ** -0.5
    functions = RadialFunctions(plain, ask.n_inputs, degrees, q, weights)
    if r is not None:  # Below 1e-13 of the mean k(x, x) interpolation is rounding
        functions = functions.interpolated(r, max(1e-13 * total, 1e-5 * rest))
    leading = axes_needed(ask.n_inputs, tuple(degrees.tolist()), tuple(counts.tolist()))
    if leading < ask.n_inputs:  # no other coordinates of directions are read
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
        rotation-invariant kernel. "monomial", as published: t^{l+2i} (with e^{−t²/2} for the
        Gaussian), lemmas 4 and 15, for kernels of ⟨x, y⟩ and the Gaussian. Both are one function
        for kernels of the angle (lemma 16) and for rows on one sphere, and the given functions h_l
        for ``GeneralizedZonal`` and its multiples.
    order : int, optional
        s, functions for each degree. Default: the order of the least predicted bias and noise s/D.
    degree : int, optional
        q, the largest l, and of monomials the largest total degree l + 2i. Default: the first
        beyond which less than 1e-12 of k(x, x) is left out at all but the 1 % longest rows; with
        optimal functions 48 at most.

    Notes
    -----
    Unbiased for the kernel cut at degree q and order s, for any rows: this error falls like 1/√D.
    More directions do not recover what is cut off: a ``FeatureWarning`` tells if a default leaves
    out more than one per cent of k(x, x) in the mean. Of one column there are two directions, ±1,
    in turn. Choose it to compare with published numbers; :class:`MercerHarmonic` has exact
    harmonics in place of random directions, and far smaller errors where α_l is moderate. Cost of
    φ(X): O(n m (d + (3 + 2 s) q)), without elementary functions.

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
    """Σ_l h_{l,i}(|x|) p_l(⟨x, w_j⟩/|x|), components i in order, each at every w_j."""

    kernel: Kernel
    polar: Polar  # From rows to radii and directions
    directions: Float[np.ndarray, "d m"]  # W, unit columns
    #: h, columns by degree: the i-th of each degree is of component i.
    radial: IndexedFunctions | RadialFunctions

    @property
    def n_features(self) -> int:
        return self.order * self.directions.shape[1]

    unbiased = False  # A series that is cut

    def left_out(self, X: Float[Array, "n d"]) -> Float[Array, " n"]:
        functions = to_numpy(self.radial(self.polar(X)[1]))
        variance = to_numpy(self.kernel.diag(X))
        rest = variance - (functions**2).sum(axis=1)  # P_l(1) = 1
        return np.where(rest > 1e-12 * variance, rest, 0.0)

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
        H = taken(xp.concat([H, xp.zeros_like(H[:, :1])], axis=1), self._places, axis=1)
        H = xp.reshape(H, (U.shape[0], self.order, self.degree + 1))
        return polynomials(U, moved(self.directions, like=U), H, *self._steps)

    @cached_property
    def _places(self) -> np.ndarray:
        """Index of the radial function of each (component, degree); the last function is zero."""
        degrees = self.radial.degrees
        places = np.full((self.order, self.degree + 1), len(degrees))
        places[_components(degrees), degrees] = np.arange(len(degrees))
        return places.ravel()

    @cached_property
    def _steps(self) -> tuple[Float[np.ndarray, " q"], Float[np.ndarray, " q"]]:
        """p_{l+1} = up_l t p_l − down_l p_{l−1}."""
        if self.n_inputs == 1:
            return np.eye(1, self.degree)[0], np.zeros(self.degree)
        b = recurrence(self.degree, self.n_inputs)
        return 1.0 / b[1:], b[:-1] / b[1:]


# --- Gegenbauer features in the rule table: degree, order, radial functions and directions -------
#
# Degree and order are where truncation stops to matter beside the noise of random directions.

#: The part of k(x, x) that the degree may leave out. Noise averages over rows; this part does not:
#: whole eigenspaces of K, which a fit misses as soon as their eigenvalues, at most n times this,
#: are above its penalty. 1e-12 ‖K‖ is about the least that a fit in float64 can have.
NEGLIGIBLE = 1e-12
MOST_ORDERS = 16  # Components that are tried where no order is given
ROWS = 256  # Rows on which orders are compared


Radials = IndexedFunctions | RadialFunctions


def _components(degrees: Int[Array, " B"]) -> Int[Array, " B"]:
    """Return the component of each radial function: its place among those of its degree."""
    return np.arange(len(degrees)) - np.searchsorted(degrees, degrees)


def _first(order: int, radials: Radials) -> Radials:
    """Return the radial functions of the first components."""
    return radials.chosen(np.flatnonzero(_components(radials.degrees) < order))


def draw_gegenbauer(method: Gegenbauer, kernel: Kernel, ask: Request) -> FeatureMap:
    """Draw random Gegenbauer features; degree, order and radial functions by the rows."""
    plain, scales, radial = in_balls("Gegenbauer", kernel, ask.n_inputs)
    centred = method.radial == "optimal" and kernel.spectral(ask.n_inputs) is not None
    polar = polar_of(scales, ask.X, centred, rotated=False)
    coordinates: Any = (None, None) if ask.X is None else polar(ask.X.astype(np.float64))
    U, r = coordinates
    if isinstance(plain, GeneralizedZonal):
        radials = _radials_of(method, plain, ask.n_inputs, r)
    else:
        # One constant function is enough for kernels of the angle, and for rows on one sphere.
        constant = method.order is None and r is not None and one_radius(r)
        optimal = method.radial == "optimal" or radial.zonal or constant
        choose = _optimal if optimal else _monomial
        radials = choose(method, plain, radial, r, ask)
        # The order is weighed against noise; in one column there is no noise.
        if method.order is None and ask.n_inputs > 1 and _components(radials.degrees).any():
            order = _best_order(radials, U, r, ask.n_features)
            radials = _first(order, radials)
    order = int(_components(radials.degrees).max(initial=0)) + 1
    m = ask.n_features // order
    ask.require_width(order, "Gegenbauer", "the order, for one direction")
    rng = ask.stream("directions")
    if ask.n_inputs == 1:  # 1 and −1 in turn: both come equally often
        m -= m % 2 if m > 1 else 0
        W = rng.choice((-1.0, 1.0)) * (-1.0) ** np.arange(m)[None, :]
    else:
        W = unit_directions(IID(), ask.n_inputs, m, rng)
    phi = GegenbauerMap(kernel, polar, W, radials)
    if ask.X is None or not (method.degree is None or method.order is None):
        return phi
    rows = ask.X[:: -(-ask.X.shape[0] // ROWS)].astype(np.float64)
    rest, variance = phi.left_out(rows), to_numpy(phi.kernel.diag(rows))
    share = float(rest.sum() / variance.sum()) if variance.any() else 0.0
    if share > 0.01:  # which matters for a fit
        warnings.warn(
            f"Gegenbauer: degree {phi.degree} and order {phi.order} at {phi.n_features} "
            f"features leave out {100 * share:.2g} % of k(x, x) in the mean of the rows, which "
            "more directions do not give back. Ask for a larger order= (or degree=) with more "
            "features, or use MercerHarmonic() or Nystrom().",
            FeatureWarning,
            stacklevel=2,
        )
    return phi


def _best_order(
    radials: Radials, U: Float[np.ndarray, "n d"], r: Float[np.ndarray, " n"], D: int
) -> int:
    """Return s with the least bias² + noise² of an entry, noise² (s/D) k_s(x, x) k_s(y, y)."""
    rows, degrees = slice(None, None, -(-len(r) // ROWS)), radials.degrees
    U, h, components = U[rows], radials(r[rows]), _components(degrees)
    P = list(gegenbauers(int(degrees.max()), U.shape[1], np.clip(U @ U.T, -1.0, 1.0)))
    cut = np.zeros((components.max() + 1, len(U), len(U)))
    for l, i, g in zip(degrees.tolist(), components.tolist(), h.T, strict=True):
        cut[i] += np.outer(g, g) * P[l]
    cut = np.cumsum(cut, axis=0)
    bias = ((cut - cut[-1]) ** 2).mean(axis=(1, 2))
    squares = np.einsum("ijj->ij", cut).mean(axis=1) ** 2
    return int(np.argmin(bias + (np.arange(len(cut)) + 1.0) / D * squares)) + 1


def _monomial(
    method: Gegenbauer, kernel: Kernel, radial: RadialKernels, r: Array, ask: Request
) -> Radials:
    """Return monomial radial functions, of degrees l + 2i: as many as asked for, or as matter."""
    if (series := radial.power_series) is None:
        raise UnsupportedKernel(
            'Gegenbauer(radial="monomial") requires a kernel of ⟨x, y⟩, the Gaussian, a kernel of '
            "the angle, GeneralizedZonal, or rows on one sphere. Use Gegenbauer() or "
            "MercerHarmonic()."
        )
    total = series.degree if method.degree is None else method.degree
    if total is None or method.order is None:
        ask.rows("Gegenbauer", "its order and degree")
    if total is None:  # the first degree beyond which almost no part of k(x, x) is left
        t = max(float(np.quantile(r, 0.99)), 1e-150)
        n = np.arange(4096)
        logs = series.log_derivative(n) + 2 * n * math.log(t) - gammaln(n + 1.0)
        terms = np.exp(logs - logs.max())
        beyond = np.cumsum(terms[:0:-1])[::-1]  # the part left out when n is the last
        enough = beyond <= NEGLIGIBLE * terms.sum()
        total = int(np.argmax(enough)) if enough.any() else len(n) - 1
    q = _capped(total, radial.n_inputs)
    D = ask.n_features
    most = max(D // 2, 1) if radial.n_inputs == 1 else min(MOST_ORDERS, D)
    s = min(total // 2 + 1, most) if method.order is None else method.order
    degrees, indices = np.repeat(np.arange(q + 1), s), np.tile(np.arange(s), q + 1)
    return IndexedFunctions(kernel, radial.n_inputs, degrees, indices)


def _capped(q: int, d: int) -> int:
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
    q = _capped(last if method.degree is None else min(method.degree, last), d)
    squares = [(kernel.radial(l, sample) ** 2).mean(axis=0) for l in range(q + 1)]
    places = [np.argsort(-square, kind="stable") for square in squares]
    degrees = np.repeat(np.arange(q + 1), [len(place) for place in places])
    functions = IndexedFunctions(kernel, d, degrees, np.concatenate(places))
    return _first(method.order or len(degrees), functions)


def _optimal(
    method: Gegenbauer, kernel: Kernel, radial: RadialKernels, r: Array, ask: Request
) -> Radials:
    """Return radial functions from the radial kernels: the given number, or all that matter."""
    if not radial.zonal:
        ask.rows("Gegenbauer", "its radial functions")
    d = radial.n_inputs
    last = _capped(48 if method.degree is None else method.degree, d)
    q, total, degrees, energies, weights = spectrum(kernel, radial, r, 1 << 62, last)
    if method.degree is None:  # beyond which almost no energy is left
        enough = total - np.cumsum(np.bincount(degrees, energies)) <= NEGLIGIBLE * total
        last = int(np.argmax(enough)) if enough.any() else last
    order = np.lexsort((-energies, degrees))
    order = order[degrees[order] <= last]
    degrees = degrees[order]
    # Signs + + − − along the degrees: with equal signs a feature peaks at its own direction.
    weights = weights[order] * (1 - degrees // 2 % 2 * 2)[:, None]
    functions = RadialFunctions(kernel, d, degrees, q, weights)
    if not radial.zonal:
        functions = functions.interpolated(r, 1e-6 * total / ask.n_features**0.5)  # of the noise
    return _first(method.order or MOST_ORDERS, functions)
