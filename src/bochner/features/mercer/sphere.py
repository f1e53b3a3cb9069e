"""Orthonormal spherical harmonics in any dimension, by recurrence, and features on the globe.

For a point x of the unit sphere in R^d, with t its last coordinate, r the norm of the others and
ξ their direction,

    Y_{l,(k,μ)}(x) = A_k p_{l−k}(t) r^k Y_{k,μ}(ξ),
    A_k² = Γ(k + d/2) Γ((d − 1)/2)/(Γ(k + (d − 1)/2) Γ(d/2)),

k = l, l − 1, ..., 0 and μ = 1..α_{k,d−1}: p_j is the orthonormal Gegenbauer polynomial in dimension
d + 2k, Y(ξ) a harmonic in one dimension less, on the circle √2 cos kφ and √2 sin kφ. They are
orthonormal under the uniform distribution, and Σ_μ Y_{l,μ}(x) Y_{l,μ}(y) = α_l P_l(⟨x, y⟩).

As homogeneous polynomials of x (such as r^k Y_{k,μ}(ξ)) harmonics need no direction ξ. A harmonic
of degree l is a combination of two, of degrees l − 1 and l − 2: a straight-line programme.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Annotated, ClassVar

import numpy as np
from scipy.special import gammaln

from bochner._core.arrays import adapt, array_namespace, dense, device, in_precision, precision
from bochner._core.checks import bounded, integer, require_room
from bochner._core.globe import require_places, unit_vectors
from bochner._core.native import Programme, harmonics
from bochner._core.shapes import Array, Float
from bochner.errors import InvalidInput
from bochner.features.fourier.grid import EquispacedMap, FourierGrid
from bochner.features.map import FeatureMap, Method, Request, to_double
from bochner.kernels.kernel import Kernel
from bochner.kernels.series import alpha, recurrence
from bochner.kernels.sphere import OnSphere, degree_variances, of_degrees
from bochner.solvers.harmonics import HarmonicGram
from bochner.sums.fourier import Angles, GlobeAngles


def harmonic_blocks(
    U: Float[Array, "n a"], d: int, degrees: np.ndarray, counts: np.ndarray, radial: Array
) -> Float[Array, "n D"]:
    """Return blocks radial[:, b] · (the first counts[b] harmonics of degree degrees[b])."""
    plan, first = _plan(d, U.shape[1], tuple(degrees.tolist()), tuple(counts.tolist()))
    return harmonics(U, plan, radial, first, counts.astype(np.int32))


@lru_cache(maxsize=32)
def _plan(
    d: int, axes: int, degrees: tuple[int, ...], counts: tuple[int, ...]
) -> tuple[Programme, np.ndarray]:
    """Return the programme for rows of d coordinates, and the first node of each block."""
    sizes = prefixes(d, degrees, counts)
    starts = np.cumsum((0, *sizes[:-1]))  # first node of each degree
    first = starts[np.array(degrees, dtype=np.int64)].astype(np.int32)
    plan = programme(d, sizes)
    if axes < d:  # rows have only the first coordinates
        inputs = np.where(plan.inputs >= d, plan.inputs - d + axes, plan.inputs)
        plan = plan._replace(inputs=np.ascontiguousarray(inputs, dtype=np.int32))
    return plan, first


@lru_cache(maxsize=32)
def prefixes(d: int, degrees: tuple[int, ...], counts: tuple[int, ...]) -> tuple[int, ...]:
    """Return how many harmonics of each degree the blocks and the recurrence need."""
    sizes = [0] * (max(degrees, default=0) + 1)
    for l, count in zip(degrees, counts, strict=True):
        sizes[l] = max(sizes[l], count)
    for l in range(len(sizes) - 1, 0, -1):  # parents of degree l − 1
        if (count := sizes[l]) == 0:
            continue
        s = 2
        while s < d and alpha(l, s) < count:
            s += 1
        pair = min(2, alpha(l - 1, d))  # parents of √2 Re (x + iy)^l
        parents = pair if s == 2 else max(alpha(l - 1, s - 1), count - alpha(l, s - 1))
        sizes[l - 1] = max(sizes[l - 1], parents)
    sizes[0] = 1
    return tuple(sizes)


def axes_needed(d: int, degrees: tuple[int, ...], counts: tuple[int, ...]) -> int:
    """Return the number of leading coordinates on which the harmonics depend."""
    axes = programme(d, prefixes(d, degrees, counts)).inputs[1:] % d
    return int(axes.max(initial=0)) + 1


@lru_cache(maxsize=32)
def programme(d: int, sizes: tuple[int, ...]) -> Programme:
    """Return the recurrence of the first needed[l] harmonics of each degree l, in R^d."""
    first, nodes = np.cumsum((0, *sizes[:-1])), sum(sizes)
    plan = Programme(
        np.zeros((nodes, 2), np.int32), np.zeros((nodes, 2), np.int32), np.zeros((nodes, 2))
    )
    for l in range(1, len(sizes)):
        _base(plan, l, d, first, sizes[l])
        for s in range(3, d + 1):
            if alpha(l, s - 1) >= sizes[l]:
                break
            _shell(plan, l, s, d, first, sizes[l])
    return plan


def _base(plan: Programme, l: int, d: int, first: np.ndarray, count: int) -> None:
    """Fill √2 Re (x + iy)^l and √2 Im (x + iy)^l, in units of R^d: nodes 0 and 1 of degree l."""
    start, previous = int(first[l]), int(first[l - 1])
    size = _unit(l, 2, d) / _unit(l - 1, 2, d)
    for j in range(min(count, alpha(l, min(d, 2)))):
        if l == 1:
            pairs = ((0, j), (0, 0)), (1.0 if d == 1 else 2**0.5 * size, 0.0)
        else:
            pairs = ((j, 0), (1 - j, 1)), (size, size if j else -size)
        for side, (parent, axis) in enumerate(pairs[0]):
            plan.parents[start + j, side] = previous + parent
            plan.inputs[start + j, side] = axis
            plan.factors[start + j, side] = pairs[1][side]


def _shell(plan: Programme, l: int, s: int, d: int, first: np.ndarray, count: int) -> None:
    """Fill the harmonics of degree l that need coordinate s: nodes α_{l,s−1}, ... of the degree.

    h_l = (x_s h_{l−1} − b_{l−k−1} |x_{1..s}|² h_{l−2})/b_{l−k} at fixed (k, μ), in R^s.
    """
    previous, offset = alpha(l - 1, s - 1), alpha(l, s - 1)
    for k in range(l - 1, -1, -1):
        size = min(alpha(k, s - 1), count - offset)
        if size <= 0:
            return
        b = recurrence(l - k, s + 2 * k)
        part = slice(int(first[l]) + offset, int(first[l]) + offset + size)
        parent = offset - alpha(l, s - 1) + np.arange(size)
        plan.parents[part, 0] = first[l - 1] + parent
        plan.inputs[part] = s - 1, d + s - 1
        plan.factors[part, 0] = _unit(l, s, d) / _unit(l - 1, s, d) / b[l - k]
        if k < l - 1:
            plan.parents[part, 1] = first[l - 2] + parent - previous
            plan.factors[part, 1] = -_unit(l, s, d) / _unit(l - 2, s, d) * b[l - k - 1] / b[l - k]
        offset += size


def _slopes(U: Float[Array, "n 3"], degree: int, C: Array) -> Float[Array, "n 3"]:
    """Return the gradient in U of Σ_v by_value_v Y_v up to a degree, by reverse differentiation."""
    xp, degrees = array_namespace(U), np.arange(degree + 1)
    counts = 2 * degrees + 1
    ones = xp.ones((U.shape[0], degree + 1), dtype=U.dtype, device=device(U))
    values = harmonic_blocks(U, 3, degrees, counts, ones)
    plan, _ = _plan(3, 3, tuple(degrees.tolist()), tuple(counts.tolist()))
    w = [U[:, j] for j in range(3)]
    w = [*w, *accumulate(x * x for x in w)]
    factors, slopes = [C[:, v] for v in range(C.shape[1])], [0.0 * x for x in w]
    steps = list(zip(*(part.tolist() for part in plan), strict=True))
    for v in range(len(steps) - 1, 0, -1):
        for parent, j, factor in zip(*steps[v], strict=True):
            slopes[j] = slopes[j] + factor * values[:, parent] * factors[v]
            factors[parent] = factors[parent] + factor * w[j] * factors[v]
    squares = list(accumulate(slopes[:2:-1]))[::-1]  # of the sums of squares with x_j²
    return xp.stack([g + 2.0 * x * s for g, x, s in zip(slopes, w, squares, strict=False)], axis=1)


def _unit(l: int, s: int, d: int) -> float:
    """Return the factor that normalises in R^d a harmonic of degree l and of norm one in R^s."""
    logs = gammaln(l + d / 2) - gammaln(d / 2) - gammaln(l + s / 2) + gammaln(s / 2)
    return float(np.exp(0.5 * logs))


# --- Features of isotropic kernels on the globe ---------------------------------------------------
#
# k(x, y) = Σ_l a_l Σ_m Y_lm(x) Y_lm(y) (`bochner.kernels.sphere`), truncated at degree L, omits
# Σ_{l > L} (2l + 1) a_l of k(x, x) at every point. Fits on Fourier modes do not compute these
# features (`bochner.solvers.harmonics`).


@dataclass(frozen=True)
class SphericalHarmonics(Method):
    """All spherical harmonics up to a degree, of kernels of latitude and longitude in degrees.

    Parameters
    ----------
    degree : int, default 100
        Largest degree L, from 1 to 1,000: (L + 1)² harmonics, with a resolution of 180/L degrees.

    See Also
    --------
    FourierGrid : The same for rows in one to three columns.

    Notes
    -----
    Supports isotropic :class:`~bochner.kernels.OnSphere` kernels, their sums, products, multiples.

    :class:`KernelRidge` and :class:`GaussianProcessRegressor` ignore ``n_features`` and do not
    compute these features. They sum rows once, as Fourier modes of colatitude and longitude, by
    non-uniform FFT (finufft, ``pip install "bochner[grid]"``). A step of conjugate gradients takes
    two FFTs and O(L³) operations; memory is 250 L² + 2 L³ bytes. All other learners use the largest
    degree whose harmonics fit into ``n_features``.

    Sources: Schoenberg (1942), the expansion; Merilees (1973) and Townsend, Wilber and Wright
    (2016), the sphere doubled to a torus; Reinecke, Belkner and Carron (2023), section 2.

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> from bochner.kernels import Gaussian, OnSphere
    >>> X = np.array([[52.5, 13.4], [48.9, 2.4], [-33.9, 151.2]])
    >>> phi = bo.draw(OnSphere(Gaussian()), bo.SphericalHarmonics(degree=20), n_features=441, X=X)
    >>> float(abs(phi(X) @ phi(X).T - phi.kernel(X, X)).max()) < 0.01
    True
    """

    # Above degree 1000 the highest orders underflow near the poles.
    degree: Annotated[int, bounded(integer, 1, 1000)] = 100

    tolerance = 1e-5  # Relative error of transforms and solutions
    floats_each = 0


@dataclass(frozen=True, eq=False)
class SphericalMap(FeatureMap):
    """φ(x) = (√a_l Y_lm(x)), in the order of degrees."""

    kernel: Kernel
    weights: Float[Array, " l"]  # a_0, ..., a_L
    error: float  # Share of k(x, x) of higher degrees

    def __post_init__(self) -> None:
        if len(self.weights) == 0 or not np.all(self.weights >= 0):
            raise InvalidInput("SphericalMap: weights must be one per degree, zero or above.")

    n_inputs = 2
    below_kernel = True  # omitted terms are positive

    @property
    def degree(self) -> int:
        """Largest degree, L."""
        return len(self.weights) - 1

    @property
    def n_features(self) -> int:
        return len(self.weights) ** 2

    def features(self, X: Float[Array, "n 2"]) -> Float[Array, "n D"]:
        dtype = precision(X)
        X = to_double(dense(X))[1]
        require_places("SphericalHarmonics", X)
        degrees = np.arange(len(self.weights))
        radial = 0.0 * X[:, :1] + adapt(np.sqrt(self.weights), like=X)[None, :]
        blocks = harmonic_blocks(unit_vectors(X), 3, degrees, 2 * degrees + 1, radial)
        return in_precision(blocks, dtype)

    def pullback(self, X: Float[Array, "n 2"], C: Float[Array, "n D"]) -> Float[Array, "n 2"]:
        weights = C * adapt(self.as_coefficients(np.sqrt(self.weights)), like=C)
        G = _slopes(unit_vectors(X), self.degree, weights)
        return OnSphere(lengthscale=math.degrees(1.0)).backward(X, G)  # of the unit sphere

    # --- Fourier modes ---------------------------------------------------------------------------

    places: ClassVar[Angles] = GlobeAngles()

    @property
    def shape(self) -> tuple[int, ...]:
        return self.degree, self.degree

    @property
    def variances(self) -> Array:
        return self.weights

    def variances_of(self, kernel: Kernel) -> Array:
        return degree_variances(kernel, self.degree)

    gram = HarmonicGram

    def as_coefficients(self, numbers: Array) -> Array:
        return np.repeat(numbers, 2 * np.arange(len(numbers)) + 1)

    def matrix(self, X: Float[Array, "m 2"], error: float) -> Float[Array, "m m"]:
        return of_degrees(self.weights, X)


#: Methods of fits on Fourier modes, which do not compute features, and the maps of these methods.
ModeMethod = FourierGrid | SphericalHarmonics
ModeMap = EquispacedMap | SphericalMap


def spherical_map(kernel: Kernel, degree: int) -> SphericalMap:
    """Return the map of all degrees up to ``degree``."""
    require_room(
        250 * degree**2 + 2 * degree**3,
        f"SphericalHarmonics: degree={degree} takes",
        "Use a smaller degree.",
    )
    weights = degree_variances(kernel, degree)
    variance = float(kernel.diag(np.zeros((1, 2)))[0])
    total = float((2 * np.arange(degree + 1) + 1) @ weights)
    return SphericalMap(kernel, weights, max(1 - total / variance, 0.0))


def draw_spherical(method: SphericalHarmonics, kernel: Kernel, ask: Request) -> SphericalMap:
    """Draw all degrees whose harmonics fit into the width."""
    if ask.n_inputs != 2:
        require_places("SphericalHarmonics", np.zeros((1, ask.n_inputs)))
    return spherical_map(kernel, min(method.degree, math.isqrt(ask.n_features) - 1))
