"""Kernels of the angle between rows, times a power of their norms: signs, ReLU layers, networks.

θ is the angle between x and y, and φ = π − θ. Both come from half-chords of the unit rows u, v,
θ = 2 atan2(|u − v|, |u + v|): the arccosine of an inner product loses half the digits near 0 and π.
A row of zeros stands at a right angle to every row, itself too.
"""

import abc
import math
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import numpy as np

from bochner._core.arrays import array_namespace, is_sparse
from bochner._core.checks import integer
from bochner._core.shapes import Array, Float
from bochner.errors import InvalidInput
from bochner.kernels import distances, gegenbauer
from bochner.kernels.kernel import Kernel

SMALL = 1.0
"""Angles below which differences of sines are summed as series: larger ones cancel little."""


class Angle(NamedTuple):
    """Angles of pairs: θ, φ = π − θ, sin²(θ/2), sin θ and cos θ, each with its own digits."""

    theta: Array
    phi: Array
    half: Array
    sin: Array
    cos: Array

    @classmethod
    def between(cls, U: Float[Array, "n d"], V: Float[Array, "m d"]) -> "Angle":
        """Return the angles between unit rows or rows of zeros, all pairs."""
        return cls.of_chords(distances.squared(U, V), distances.squared(U, -V))

    @classmethod
    def of_chords(cls, minus: Array, plus: Array) -> "Angle":
        """Return the angles of squared chords |u − v|² and |u + v|²; of zero and zero, 90°."""
        xp = array_namespace(minus)
        none = minus + plus == 0
        minus, plus = (xp.where(none, xp.ones_like(c), c) for c in (minus, plus))
        a, b, scale = xp.sqrt(minus), xp.sqrt(plus), 1.0 / (minus + plus)
        small = 2.0 * xp.atan2(xp.minimum(a, b), xp.maximum(a, b))
        large, acute = math.pi - small, a < b
        theta, phi = xp.where(acute, small, large), xp.where(acute, large, small)
        return cls(theta, phi, minus * scale, 2.0 * a * b * scale, (plus - minus) * scale)

    @classmethod
    def of(cls, theta: Array) -> "Angle":
        """Return the angles θ, from 0 to π."""
        xp = array_namespace(theta)
        return cls.of_chords(xp.sin(0.5 * theta) ** 2, xp.cos(0.5 * theta) ** 2)


class Homogeneous(Kernel):
    """k(x, y) = |x|^p |y|^p K(θ), θ the angle between x and y."""

    @property
    @abc.abstractmethod
    def degree(self) -> int:
        """The power p of the norms."""

    @abc.abstractmethod
    def profile(self, angle: Angle) -> Array:
        """Return K(θ), elementwise."""

    def gegenbauer_coefficients(self, d: int, l: int) -> Float[np.ndarray, " k"]:
        """Return c_0, ..., c_l with K(θ) = Σ c_k P_k(cos θ) in dimension d; see `gegenbauer`."""
        return gegenbauer.coefficients(lambda theta: self.profile(Angle.of(theta)), d, l)

    def evaluate(self, X: Float[Array, "n d"], Y: Float[Array, "m d"]) -> Float[Array, "n m"]:
        U, r = directions(X)
        V, s = (U, r) if Y is X else directions(Y)
        K = distances.by_blocks(lambda A, B: self.profile(Angle.between(A, B)), U, V, 8)
        return lengthened(self, K, r[:, None], s[None, :])

    def diagonal(self, X: Float[Array, "n d"]) -> Float[Array, " n"]:
        U, r = directions(X)
        squares = distances.square_norms(U)
        values = self.profile(Angle.of_chords(0.0 * squares, squares))
        return lengthened(self, values, r, r)


@final
@dataclass(frozen=True)
class Angular(Homogeneous):
    """k(x, y) = 1 − 2θ/π, the sign kernel: E sgn(ω·x) sgn(ω·y), ω ~ N(0, I).

    Equal rows have 1, rows at a right angle 0, opposite rows −1. It is not the arc-cosine kernel of
    order 0, which is 1 − θ/π = (1 + k)/2.
    """

    @property
    def degree(self) -> int:
        return 0

    def profile(self, angle: Angle) -> Array:
        # Each digit kept at both ends, and K(π) = −K(0): one formula for both sides of 90°.
        return (angle.phi - angle.theta) * (1.0 / math.pi)


@final
@dataclass(frozen=True)
class ArcCosine(Homogeneous):
    r"""k(x, y) = |x|^p |y|^p J_p(θ)/π = 2 E (ω·x)₊^p (ω·y)₊^p, ω ~ N(0, I); p = order.

    J_0 = π − θ, J_1 = sin θ + (π − θ) cos θ, J_2 = 3 sin θ cos θ + (π − θ)(1 + 2 cos² θ)
    [Cho & Saul (2009), section 2]: infinitely wide layers of steps, ReLU, squared ReLU.
    k(x, x) is 1, |x|², 3|x|⁴.

    Parameters
    ----------
    order : {1, 0, 2}
        p.
    """

    order: int = 1

    def __post_init__(self) -> None:
        order = integer(self.order, "ArcCosine", "order")
        if order > 2:
            raise InvalidInput(f"ArcCosine: order must be 0, 1 or 2; got {order}.")
        object.__setattr__(self, "order", order)

    @property
    def degree(self) -> int:
        return self.order

    def profile(self, angle: Angle) -> Array:
        return (_step, _relu, _squared_relu)[self.order](angle)


@final
@dataclass(frozen=True)
class NNGP(Homogeneous):
    """k(x, y) = |x||y| Σ_L(cos θ): the Gaussian process of an infinitely wide ReLU network.

    Σ_0 = cos θ, Σ_h = κ_1(Σ_{h−1}), κ_1 the arc-cosine kernel of order 1 on the sphere
    [Lee et al. (2018); Cho & Saul (2009)]; k(x, x) = |x|².

    Parameters
    ----------
    depth : int, default 1
        L ≥ 1, hidden layers. Depth 1 is ``ArcCosine(1)``.
    """

    depth: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "depth", integer(self.depth, "NNGP", "depth", least=1))

    @property
    def degree(self) -> int:
        return 1

    def profile(self, angle: Angle) -> Array:
        for layer in range(self.depth):
            angle = _layer(angle, obtuse=layer == 0)
        return angle.cos


@final
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

    Notes
    -----
    Angles are carried from layer to layer by sin²(θ'/2) = sin²(θ/2) − (sin θ − θ cos θ)/(2π):
    2e-15 for all θ, where cosines lose half the digits near 0.
    """

    depth: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "depth", integer(self.depth, "NeuralTangent", "depth", least=1))

    @property
    def degree(self) -> int:
        return 1

    def profile(self, angle: Angle) -> Array:
        tangent = angle.cos
        for layer in range(self.depth):
            following = _layer(angle, obtuse=layer == 0)
            tangent = tangent * _step(angle) + following.cos
            angle = following
        return tangent


def directions(X: Float[Array, "n d"]) -> tuple[Float[Array, "n d"], Float[Array, " n"]]:
    """Return X's rows divided by their norms, rows of zeros as they are, and the norms.

    Rows are divided by their largest entry first, so that squares neither vanish nor overflow.
    """
    if is_sparse(X):
        largest = abs(X).max(axis=1).toarray().reshape(-1).astype(X.dtype)
        scaled = _times_rows(X, _inverse(largest))
        norms = np.sqrt(distances.square_norms(scaled))
        return _times_rows(scaled, _inverse(norms)), norms * largest
    xp = array_namespace(X)
    largest = xp.max(xp.abs(X), axis=1) if X.shape[0] else X[:, 0]
    scaled = X / _one_for_zero(largest)[:, None]
    norms = xp.sqrt(distances.square_norms(scaled))
    return scaled / _one_for_zero(norms)[:, None], norms * largest


def lengthened(kernel: Any, K: Array, *norms: Array) -> Array:
    """Return K times these norms to the power of the kernel's degree; refuse an overflow."""
    with np.errstate(over="ignore", invalid="ignore"):
        for r in norms if kernel.degree else ():
            K *= r**kernel.degree
    xp = array_namespace(K)
    if not bool(xp.all(xp.isfinite(K))):
        raise InvalidInput(
            f"{type(kernel).__name__}: k(x, y) must be a number of dtype {K.dtype}; got an "
            "overflow, because rows are too long. Rescale X."
        )
    return K


def _one_for_zero(v: Array) -> Array:
    xp = array_namespace(v)
    return xp.where(v == 0, xp.ones_like(v), v)


def _inverse(v: np.ndarray) -> np.ndarray:
    return 1.0 / _one_for_zero(v)


def _times_rows(X: Any, v: np.ndarray) -> Any:
    return X.multiply(v[:, None]).tocsr().astype(X.dtype)


# --- the functions of one layer -------------------------------------------------------------------


def _step(angle: Angle) -> Array:
    """κ_0 = 1 − θ/π."""
    return angle.phi * (1.0 / math.pi)


def _relu(angle: Angle) -> Array:
    """κ_1 = (sin θ + (π − θ) cos θ)/π = (sin φ − φ cos φ)/π."""
    return _layer(angle).cos


def _squared_relu(angle: Angle) -> Array:
    """(3 sin θ cos θ + (π − θ)(1 + 2 cos² θ))/π = (w + ½ w cos w − 3/2 sin w)/π, w = 2φ."""
    xp = array_namespace(angle.phi)
    closed = 3.0 * angle.sin * angle.cos + angle.phi * (1.0 + 2.0 * angle.cos * angle.cos)
    J = xp.where(angle.phi < SMALL, _odd(2.0 * angle.phi, _SQUARED, 2.0 * SMALL), closed)
    return J * (1.0 / math.pi)


def _layer(angle: Angle, obtuse: bool = True) -> Angle:
    """Return the angle between the rows after a ReLU layer: cos θ' = κ_1(cos θ), θ' ≤ 90°."""
    xp = array_namespace(angle.theta)
    closed = angle.sin - angle.theta * angle.cos
    lune = xp.where(angle.theta < SMALL, _odd(angle.theta, _LUNE, SMALL), closed)
    half = xp.clip(angle.half - lune * (0.5 / math.pi), min=0.0, max=0.5)
    cos = 1.0 - 2.0 * half
    if obtuse:  # Towards θ = π half is ½, and κ_1 its distance from there.
        cos = xp.where(angle.phi < SMALL, _odd(angle.phi, _LUNE, SMALL) * (1.0 / math.pi), cos)
    theta = 2.0 * xp.asin(xp.sqrt(half))
    return Angle(theta, math.pi - theta, half, 2.0 * xp.sqrt(half * (1.0 - half)), cos)


_LUNE = tuple((-1) ** (k + 1) * 2 * k / math.factorial(2 * k + 1) for k in range(10))
"""sin x − x cos x = Σ_k terms[k] x^(2k+1), which is x³/3 near zero."""

_SQUARED = tuple((-1) ** k * (k - 1) / math.factorial(2 * k + 1) * (k > 0) for k in range(13))
"""x + ½ x cos x − 3/2 sin x, which is x⁵/120 near zero."""


def _odd(x: Array, terms: tuple[float, ...], largest: float) -> Array:
    """Return Σ_k terms[k] x^(2k+1) for x up to ``largest``; beyond, any number."""
    x = array_namespace(x).clip(x, max=largest)
    square = x * x
    total = terms[-1] * square
    for a in reversed(terms[1:-1]):
        total += a
        total *= square
    return total * x if terms[0] == 0 else (total + terms[0]) * x
