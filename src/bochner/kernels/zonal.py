"""Kernels of the angle between rows and of their norms."""

import abc
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import Annotated, Any, NamedTuple

import numpy as np

from bochner._core.arrays import adapt, array_namespace, is_sparse, squared_norms, to_numpy
from bochner._core.checks import Counted, bounded, finite, integer, nonnegative, sequence_of
from bochner._core.names import NamedArguments
from bochner._core.native import power_of_two
from bochner._core.shapes import Array, Float, Others, Pairs, Rows
from bochner.errors import InvalidInput, InvalidType, NotPositive
from bochner.kernels import distances, series
from bochner.kernels.kernel import Kernel, require_finite
from bochner.kernels.series import RadialKernels, Radii, gegenbauers, horner, orthonormals

LENGTH_ERROR = ", because rows are too long. Rescale X."


# --- Kernels of the angle between rows, times a power of their norms: signs, ReLU layers, networks
#
# θ is the angle between x and y, and φ = π − θ. With the unit rows u, v, θ = 2 atan2(|u − v|,
# |u + v|): the arccosine of an inner product loses half the digits near 0 and π.
# A row of zeros has θ = π/2 with every row, also with itself.

SMALL = 1.0
"""Below this angle, differences of sines are computed by series, without cancellation."""


class Angle(NamedTuple):
    """Angles θ, φ = π − θ, sin²(θ/2), sin θ and cos θ of pairs, without cancellation errors."""

    theta: Array
    phi: Array
    half: Array
    sin: Array
    cos: Array

    @classmethod
    def of_chords(cls, minus: Array, plus: Array) -> "Angle":
        """Return the angles from squared chords |u − v|² and |u + v|²; 90° if both are zero."""
        xp = array_namespace(minus)
        zero = minus + plus == 0
        minus, plus = (xp.where(zero, xp.ones_like(c), c) for c in (minus, plus))
        a, b, scale = xp.sqrt(minus), xp.sqrt(plus), 1.0 / (minus + plus)
        small = 2.0 * xp.atan2(xp.minimum(a, b), xp.maximum(a, b))
        large, acute = math.pi - small, a < b
        theta, phi = xp.where(acute, small, large), xp.where(acute, large, small)
        return cls(theta, phi, minus * scale, 2.0 * a * b * scale, (plus - minus) * scale)

    @classmethod
    def of(cls, theta: Array) -> "Angle":
        """Return the `Angle` of θ in [0, π]."""
        xp = array_namespace(theta)
        return cls.of_chords(xp.sin(0.5 * theta) ** 2, xp.cos(0.5 * theta) ** 2)


def _angle_kernels(kernel: "Homogeneous | Zonal", d: int) -> RadialKernels:
    """Return the radial kernels R_l(r, s) = c_l (r s)^p."""

    def matrices(degree: int, r: Radii, s: Radii) -> Float[np.ndarray, "q a b"]:
        c = _coefficients(kernel, d, power_of_two(max(degree, 31) + 1))[: degree + 1, None, None]
        R = c * (r**kernel.degree)[:, None] * s**kernel.degree
        R[1:] *= (r > 0)[:, None] & (s > 0)
        return R

    return RadialKernels(d, matrices, zonal=True)


@lru_cache(maxsize=64)
def _coefficients(kernel: "Homogeneous | Zonal", d: int, l: int) -> Float[np.ndarray, " k"]:
    """Return c_0, ..., c_l; coefficients below the quadrature error are zero."""
    c = kernel.gegenbauer_coefficients(d, l)
    if isinstance(kernel, Zonal):
        return c
    # The number of nodes grows like l, and rounding errors like its square root.
    noise = 10.0 * np.finfo(float).eps * (1 + l / 16) ** 0.5
    noise = noise * np.exp([0.5 * series.log_alpha(k, d) for k in range(l + 1)])
    noise *= max(1.0, float(c.max()))
    if bool((c < -noise).any()):
        raise NotPositive(
            f"Radial kernels: the kernel must be positive semi-definite in dimension {d}; got "
            f"coefficient {c.min():.3g} of degree {int(c.argmin())} from {kernel!r}."
        )
    return np.where(c > noise, c, 0.0)


class Homogeneous(Kernel):
    """k(x, y) = |x|^p |y|^p K(θ), θ the angle between x and y."""

    @property
    @abc.abstractmethod
    def degree(self) -> int:
        """The power p of the norms."""

    zonal = _angle_kernels

    @abc.abstractmethod
    def profile(self, angle: Angle) -> Array:
        """Return K(θ), elementwise."""

    def gegenbauer_coefficients(self, d: int, l: int) -> Float[np.ndarray, " k"]:
        """Return c_0, ..., c_l with K(θ) = Σ c_k P_k(cos θ) in dimension d; errors are √α_k eps."""
        theta, w = series.angles(d, l)  # c_k = α_k E K(θ) P_k(cos θ) [Han et al. (2022), eq. 8]
        values, p = w * self.profile(Angle.of(theta)), orthonormals(l, d, np.cos(theta))
        sizes = (math.sqrt(series.alpha(k, d)) for k in range(l + 1))
        return np.array([size * float(values @ p_k) for size, p_k in zip(sizes, p, strict=True)])

    def evaluate(self, X: Rows, Y: Others) -> Pairs:
        U, r = directions(X)
        V, s = (U, r) if Y is X else directions(Y)
        distances_ = distances.squared_distances
        block = lambda A, B: self.profile(Angle.of_chords(distances_(A, B), distances_(A, -B)))
        K = distances.map_blocks(block, U, V)
        return multiply_by_norms(self, K, r[:, None], s[None, :])

    def diagonal(self, X: Rows) -> Float[Array, " n"]:
        U, r = directions(X)
        squares = squared_norms(U)
        values = self.profile(Angle.of_chords(0.0 * squares, squares))
        return multiply_by_norms(self, values, r, r)


@dataclass(frozen=True)
class Angular(Homogeneous):
    """k(x, y) = 1 − 2θ/π, the sign kernel: E sgn(ω·x) sgn(ω·y), ω ~ N(0, I).

    k is 1 for equal directions, 0 for orthogonal rows and −1 for opposite rows. The arc-cosine
    kernel of order 0 is 1 − θ/π = (1 + k)/2.

    Examples
    --------
    >>> from bochner.kernels import Angular
    >>> Angular()([[1.0, 0.0]], [[2.0, 0.0], [1.0, 1.0], [-3.0, 0.0]]).round(2)
    array([[ 1. ,  0.5, -1. ]])
    """

    degree = 0

    def profile(self, angle: Angle) -> Array:
        # φ − θ is accurate at θ = 0 and at θ = π, and K(π) = −K(0) holds exactly.
        return (angle.phi - angle.theta) * (1.0 / math.pi)


#: The power of rectified projections.
Order = Annotated[int, bounded(integer, 0, 2)]


@dataclass(frozen=True)
class ArcCosine(Homogeneous):
    r"""k(x, y) = |x|^p |y|^p J_p(θ)/π = 2 E (ω·x)₊^p (ω·y)₊^p, ω ~ N(0, I); p = order.

    J_0 = π − θ, J_1 = sin θ + (π − θ) cos θ, J_2 = 3 sin θ cos θ + (π − θ)(1 + 2 cos² θ)
    [Cho & Saul (2009), section 2]: infinitely wide layers of steps, ReLU, squared ReLU.
    k(x, x) is 1, |x|², 3|x|⁴.

    Parameters
    ----------
    order : {0, 1, 2}, default 1
        p, the power of the ReLU.

    See Also
    --------
    NNGP, NeuralTangent : Kernels of more layers.

    Examples
    --------
    >>> from bochner.kernels import ArcCosine
    >>> ArcCosine(order=1)([[1.0, 0.0]], [[2.0, 0.0], [1.0, 1.0]]).round(2)
    array([[2.  , 1.07]])
    """

    order: Order = 1

    @property
    def degree(self) -> int:
        return self.order

    def profile(self, angle: Angle) -> Array:
        return (_step, lambda angle: _layer(angle).cos, _squared_relu)[self.order](angle)


@dataclass(frozen=True)
class NNGP(Homogeneous):
    """k(x, y) = |x||y| Σ_L(cos θ): the Gaussian process of an infinitely wide ReLU network.

    Σ_0 = cos θ, Σ_h = κ_1(Σ_{h−1}), κ_1 the arc-cosine kernel of order 1 on the sphere
    [Lee et al. (2018); Cho & Saul (2009)]; k(x, x) = |x|².

    Parameters
    ----------
    depth : int, default 1
        L ≥ 1, hidden layers. Depth 1 is ``ArcCosine(1)``.

    Examples
    --------
    >>> from bochner.kernels import NNGP
    >>> NNGP(depth=2)([[1.0, 0.0]], [[2.0, 0.0], [1.0, 1.0]]).round(2)
    array([[2.  , 1.12]])
    """

    depth: Counted = 1

    degree = 1

    def profile(self, angle: Angle) -> Array:
        for layer in range(self.depth):
            angle = _layer(angle, obtuse=layer == 0)
        return angle.cos


@dataclass(frozen=True)
class NeuralTangent(Homogeneous):
    """k(x, y) = |x||y| K_L(cos θ), the neural tangent kernel of a fully connected ReLU network.

    K_0 = Σ_0 = cos θ, Σ_h = κ_1(Σ_{h−1}), K_h = K_{h−1} κ_0(Σ_{h−1}) + Σ_h; κ_p the arc-cosine
    kernels on the sphere [Jacot et al. (2018); Zandieh et al. (2021), definition 1].
    k(x, x) = (L + 1)|x|².

    Parameters
    ----------
    depth : int, default 1
        L ≥ 1, hidden layers; 1 is the two-layer network.

    Examples
    --------
    >>> from bochner.kernels import NeuralTangent
    >>> NeuralTangent(depth=2)([[1.0, 0.0]], [[2.0, 0.0], [1.0, 1.0]]).round(2)
    array([[6.  , 2.53]])
    """

    depth: Counted = 1

    degree = 1

    def profile(self, angle: Angle) -> Array:
        tangent = angle.cos
        for layer in range(self.depth):
            following = _layer(angle, obtuse=layer == 0)
            tangent = tangent * _step(angle) + following.cos
            angle = following
        return tangent


def directions(X: Rows) -> tuple[Rows, Float[Array, " n"]]:
    """Return the rows of X divided by their norms, and the norms; zero rows are unchanged."""

    def divide_rows(A: Array, v: Array) -> Array:
        """Return A with row i divided by v_i; rows with v_i = 0 do not change."""
        xp = array_namespace(v)
        v = xp.where(v == 0, xp.ones_like(v), v)[:, None]
        return A.multiply(1.0 / v).tocsr().astype(A.dtype) if is_sparse(A) else A / v

    xp = array_namespace(X)
    if is_sparse(X):
        largest = abs(X).max(axis=1).toarray().reshape(-1).astype(X.dtype)
    else:
        largest = xp.max(xp.abs(X), axis=1) if X.shape[0] else X[:, 0]
    scaled = divide_rows(X, largest)  # prevents underflow and overflow of squares
    norms = xp.sqrt(squared_norms(scaled))
    return divide_rows(scaled, norms), norms * largest


def multiply_by_norms(kernel: Any, K: Array, *norms: Array) -> Array:
    """Return K times the norms to the power p of the kernel; refuse an overflow."""
    with np.errstate(over="ignore", invalid="ignore"):
        for r in norms if kernel.degree else ():
            K *= r**kernel.degree
    return require_finite(K, type(kernel).__name__, "k(x, y)", LENGTH_ERROR)


def _step(angle: Angle) -> Array:
    """Return κ_0 = 1 − θ/π."""
    return angle.phi * (1.0 / math.pi)


def _squared_relu(angle: Angle) -> Array:
    """Return J_2/π = (w + ½ w cos w − 3/2 sin w)/π with w = 2(π − θ); J_2 as in `ArcCosine`."""
    xp = array_namespace(angle.phi)
    value = 3.0 * angle.sin * angle.cos + angle.phi * (1.0 + 2.0 * angle.cos * angle.cos)
    J = xp.where(angle.phi < SMALL, _poly(2.0 * angle.phi, _SQUARED, 2.0 * SMALL), value)
    return J * (1.0 / math.pi)


def _layer(angle: Angle, obtuse: bool = True) -> Angle:
    """Return the angle between the rows after a ReLU layer: cos θ' = κ_1(cos θ), θ' ≤ 90°."""
    # κ_1 = (sin θ + (π − θ) cos θ)/π = (sin φ − φ cos φ)/π, so sin²(θ'/2) = sin²(θ/2) −
    # (sin θ − θ cos θ)/(2π), with error 2e-15 for all θ; cosines lose half the digits near 0.
    xp = array_namespace(angle.theta)
    value = angle.sin - angle.theta * angle.cos
    lune = xp.where(angle.theta < SMALL, _poly(angle.theta, _LUNE, SMALL), value)
    half = xp.clip(angle.half - lune * (0.5 / math.pi), min=0.0, max=0.5)
    cos = 1.0 - 2.0 * half
    if obtuse:  # near θ = π, 1 − 2 half cancels
        cos = xp.where(angle.phi < SMALL, _poly(angle.phi, _LUNE, SMALL) * (1.0 / math.pi), cos)
    theta = 2.0 * xp.asin(xp.sqrt(half))
    return Angle(theta, math.pi - theta, half, 2.0 * xp.sqrt(half * (1.0 - half)), cos)


_LUNE = tuple((-1) ** (k + 1) * 2 * k / math.factorial(2 * k + 1) for k in range(10))
"""Coefficients of x^(2k+1) in sin x − x cos x, which is x³/3 near zero."""

_SQUARED = tuple((-1) ** k * (k - 1) / math.factorial(2 * k + 1) * (k > 0) for k in range(13))
"""Coefficients of x^(2k+1) in x + ½ x cos x − 3/2 sin x, which is x⁵/120 near zero."""


def _poly(x: Array, terms: tuple[float, ...], largest: float) -> Array:
    """Return Σ_k terms[k] x^(2k+1) for x ≤ largest; larger x are clipped."""
    x = array_namespace(x).clip(x, max=largest)
    return horner(terms, x * x) * x


# --- Zonal kernels with given coefficients or radial functions -----------------------------------

RadialFunction = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Zonal(Kernel):
    """k(x, y) = |x|^p |y|^p Σ_l c_l P_l(cos θ), θ the angle between x and y.

    P_l is the Gegenbauer polynomial of degree l for d columns, P_l(1) = 1. Every continuous kernel
    of ⟨x, y⟩ on the sphere is the limit of such sums [Schoenberg (1942)].

    Parameters
    ----------
    coefficients : tuple of float
        c_0, c_1, ..., nonnegative. The same c_l give a different function for another number of
        columns, because P_l depends on d.
    power : int, default 1
        p ≥ 0. It has no effect on unit rows. For a row of zeros k is 0 if p > 0, and c_0, the mean
        over directions, if p = 0.

    See Also
    --------
    GeneralizedZonal : Coefficients that depend on the norms.

    Examples
    --------
    >>> from bochner.kernels import Zonal
    >>> Zonal((0.5, 0.3, 0.2))([[1.0, 0.0]], [[2.0, 0.0], [1.0, 1.0]]).round(2)
    array([[2.  , 1.01]])
    """

    coefficients: Annotated[tuple[float, ...], series.no_negative]
    power: Annotated[int, integer] = 1

    @property
    def degree(self) -> int:
        return self.power

    zonal = _angle_kernels

    def gegenbauer_coefficients(self, d: int, l: int) -> Float[np.ndarray, " k"]:
        c = self.coefficients[: 2 if d == 1 else None][: l + 1]
        return np.pad(np.array(c), (0, l + 1 - len(c)))

    def evaluate(self, X: Rows, Y: Others) -> Pairs:
        U, r = directions(X)
        V, s = (U, r) if Y is X else directions(Y)
        c, d = self.coefficients[: 2 if X.shape[1] == 1 else None], X.shape[1]

        def block(A: Array, B: Array) -> Array:
            p = enumerate(orthonormals(len(c) - 1, d, _cosines(A, B)))
            terms = (c[l] * math.exp(-0.5 * series.log_alpha(l, d)) * p_l for l, p_l in p)
            return reduce(operator.iadd, terms)

        K = distances.map_blocks(block, U, V)
        if self.power:
            return multiply_by_norms(self, K, r[:, None], s[None, :])
        xp = array_namespace(K)
        return xp.where((r[:, None] == 0) | (s[None, :] == 0), self.coefficients[0], K)

    def diagonal(self, X: Rows) -> Float[Array, " n"]:
        norms = directions(X)[1]
        total = math.fsum(self.gegenbauer_coefficients(X.shape[1], len(self.coefficients)))
        if self.power:
            return multiply_by_norms(self, total * norms**0, norms, norms)
        xp = array_namespace(norms)
        return xp.where(norms == 0, self.coefficients[0] + 0.0 * norms, total + 0.0 * norms)


@dataclass(frozen=True)
class Monomials(NamedArguments):
    """Radial functions h(t) = (a_i t^(n_i) e^{−decay t²/2})_i, for `GeneralizedZonal`.

    Parameters
    ----------
    coefficients : tuple of float
        a_i.
    powers : tuple of int
        n_i ≥ 0, one per coefficient.
    decay : float, default 0.0
        Nonnegative; 1 for the Gaussian kernel.

    Examples
    --------
    >>> import numpy as np
    >>> from bochner.kernels import Monomials
    >>> Monomials((1.0, 0.5), (0, 2))(np.array([1.0, 2.0]))
    array([[1. , 0.5],
           [1. , 2. ]])
    """

    coefficients: Annotated[tuple[float, ...], sequence_of(finite)]
    powers: Annotated[tuple[int, ...], sequence_of(integer)]
    decay: Annotated[float, nonnegative] = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.coefficients) != len(self.powers):
            raise InvalidInput(
                "Monomials: coefficients and powers must have the same length; got "
                f"{len(self.coefficients)} and {len(self.powers)}."
            )

    def __call__(self, t: Float[np.ndarray, " n"]) -> Float[np.ndarray, "n s"]:
        """Return h at the radii t."""
        envelope = np.exp(-0.5 * self.decay * t * t)[:, None]
        return np.asarray(self.coefficients) * t[:, None] ** np.asarray(self.powers) * envelope


def _functions(value: Any, caller: str, name: str) -> tuple[RadialFunction, ...]:
    functions = tuple(value) if isinstance(value, list | tuple) else (value,)
    if not functions or not all(map(callable, functions)):
        raise InvalidType(f"{caller}: {name} must be functions of the radii; got {value!r}.")
    return functions


@dataclass(frozen=True)
class GeneralizedZonal(Kernel):
    """k(x, y) = Σ_l ⟨h_l(|x|), h_l(|y|)⟩ P_l(cos θ), P_l the Gegenbauer polynomial for d columns.

    k is always positive semi-definite [Han et al. (2022), definition 3].

    Parameters
    ----------
    radial_functions : tuple of callables
        h_0, h_1, ...: each takes radii, a float64 NumPy array (n,), and returns (n,) or (n, s).
        For l ≥ 1 the value at radius zero is set to zero, as a row of zeros has no direction.
        `Monomials` can be saved in a model file.

    Examples
    --------
    >>> from bochner.kernels import GeneralizedZonal, Monomials
    >>> kernel = GeneralizedZonal((Monomials((1.0,), (0,)), Monomials((1.0,), (1,))))
    >>> kernel([[1.0, 0.0]], [[2.0, 0.0], [1.0, 1.0]]).round(2)
    array([[3., 2.]])
    """

    radial_functions: Annotated[tuple[RadialFunction, ...], _functions]

    def radial(self, degree: int, t: Float[np.ndarray, " n"]) -> Float[np.ndarray, "n s"]:
        """Return s functions h_l(t), l = degree; zero beyond the last l, and at t = 0 if l ≥ 1."""
        t = np.asarray(t, dtype=np.float64)
        if degree >= len(self.radial_functions):
            return np.zeros((len(t), 1))
        h = np.asarray(self.radial_functions[degree](t), dtype=np.float64)
        if h.ndim not in (1, 2) or len(h) != len(t) or not bool(np.isfinite(h).all()):
            raise InvalidInput(
                f"GeneralizedZonal: radial_functions[{degree}] must return finite numbers, one row "
                f"for each of {len(t)} radii; got shape {h.shape}, or NaN or infinite numbers."
            )
        h = h[:, None] if h.ndim == 1 else h
        return h * (t > 0)[:, None] if degree else h

    def zonal(self, d: int) -> RadialKernels:
        h, limit = self.radial, 1 if d == 1 else math.inf
        radial = lambda l, r, s: float(l <= limit) * h(l, r) @ h(l, s).T
        return RadialKernels(
            d, lambda degree, *radii: np.stack([radial(l, *radii) for l in range(degree + 1)])
        )

    def evaluate(self, X: Rows, Y: Others) -> Pairs:
        def block(X: Array, Y: Array) -> Array:
            (U, r), (V, s) = directions(X), directions(Y)
            H, G = self._factors(r, like=X), self._factors(s, like=Y)
            P = gegenbauers(len(H) - 1, X.shape[1], _cosines(U, V))
            return sum((h @ g.T) * p for h, g, p in zip(H, G, P, strict=True))

        return distances.map_blocks(block, X, Y)

    def diagonal(self, X: Rows) -> Float[Array, " n"]:
        norms = directions(X)[1]
        H = self._factors(norms, like=X)[: 2 if X.shape[1] == 1 else None]
        xp = array_namespace(norms)
        return sum(xp.sum(h * h, axis=1) for h in H)

    def _factors(self, radii: Array, like: Array) -> list[Array]:
        """Return h_0, h_1, ... at the radii, in the library and dtype of ``like``."""
        t = to_numpy(radii).astype(np.float64)
        return [adapt(self.radial(l, t), like=like) for l in range(len(self.radial_functions))]


def _cosines(U: Rows, V: Others) -> Pairs:
    inner = distances.inner(U, V)
    return array_namespace(inner).clip(inner, min=-1.0, max=1.0)
