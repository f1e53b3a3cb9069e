"""Gegenbauer polynomials and their series: functions of the angle on a sphere of any dimension.

P_l is the Gegenbauer polynomial of degree l **in dimension d**, P_l(1) = 1; α_l the number of
independent harmonics of degree l; p_l = √α_l P_l, orthonormal for t = ⟨u, w⟩, w uniform on the
sphere. Compute with p_l: its values are of order one, where P_l underflows and α_l overflows.
d = 2: Chebyshev. d = 3: Legendre. d = 1: the sphere is {−1, 1}, and degrees above one are zero.
"""

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from bochner._core.shapes import Array, Float

NODES = 400
"""Least number of nodes of an integral over angles, beside two for each degree."""


def alpha(l: int, d: int) -> int:
    """Return α_l, how many independent spherical harmonics of degree l there are in R^d; exact."""
    if l < 2:
        return 1 if l == 0 else d
    return math.comb(d + l - 1, l) - math.comb(d + l - 3, l - 2)


def log_alpha(l: int, d: int) -> float:
    """Return log α_l, −inf where there are none (d = 1, l ≥ 2)."""
    count = alpha(l, d)
    return math.log(count) if count else -math.inf


def recurrence(l: int, d: int) -> Float[np.ndarray, " k"]:
    """Return b_0, ..., b_l with p_{k+1} = (t p_k − b_k p_{k−1})/b_{k+1}, p_0 = 1; d ≥ 2.

    b_k² = k(k + d − 3)/((2k + d − 2)(2k + d − 4)), b_1² = 1/d, and b_0 = 0 by name.
    """
    k = np.arange(l + 1.0)
    b = np.zeros(l + 1)
    b[2:] = np.sqrt(k[2:] * (k[2:] + d - 3) / ((2 * k[2:] + d - 2) * (2 * k[2:] + d - 4)))
    b[1:2] = 1.0 / math.sqrt(d)
    return b


def gegenbauers(l: int, d: int, t: Array) -> list[Array]:
    """Return P_0(t), ..., P_l(t), elementwise, for arrays of any library.

    (k + d − 2) P_{k+1} = (2k + d − 2) t P_k − k P_{k−1}. Twice the rounding of t near ±1 times l².
    """
    P = [1.0 + 0.0 * t, t]
    for k in range(1, l):
        if d == 1:
            P.append(0.0 * t)
        else:
            P.append(((2 * k + d - 2) * t * P[k] - k * P[k - 1]) / (k + d - 2))
    return P[: l + 1]


def orthonormals(l: int, d: int, t: Array) -> list[Array]:
    """Return p_0(t), ..., p_l(t), p_k = √α_k P_k, elementwise, for arrays of any library."""
    p = [1.0 + 0.0 * t, t * math.sqrt(d)]
    b = recurrence(l, max(d, 2))
    for k in range(1, l):
        p.append(0.0 * t if d == 1 else (t * p[k] - float(b[k]) * p[k - 1]) / float(b[k + 1]))
    return p[: l + 1]


@lru_cache(maxsize=32)
def angles(
    d: int, n: int, towards_zero: bool = False
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """Return angles θ and weights, of sum one, for means over the angle to a uniform direction.

    Clenshaw-Curtis in θ, or in u with θ = πu², which gathers nodes where a kernel of the distance
    is not smooth: its weights have all their digits, NumPy's Gauss-Legendre ones err by 1e-11.
    d = 1: the two points 0 and π.
    """
    if d == 1:
        return np.array([0.0, math.pi]), np.array([0.5, 0.5])
    u, w = _clenshaw_curtis(n + n % 2)
    theta = math.pi * u * u if towards_zero else math.pi * u
    w = w * u if towards_zero else w
    w = w * np.sin(theta) ** (d - 2)
    return theta, w / w.sum()


def n_nodes(d: int, l: int) -> int:
    """Return how many nodes an integral of degree l takes: in many dimensions θ gathers at 90°."""
    return max(NODES, int(11.0 * math.sqrt(d))) + 2 * l


def _clenshaw_curtis(n: int) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """Return n + 1 nodes in [0, 1] and weights, n even [Trefethen (2008), section 2]."""
    j, k = np.arange(n + 1), np.arange(1, n // 2 + 1)
    # Whole turns leave the product as integers, before it is rounded.
    waves = np.cos(2.0 * math.pi / n * (j[:, None] * k[None, :] % n))
    terms = np.where(k == n // 2, 1.0, 2.0) / (4.0 * k * k - 1.0)
    ends = np.where((j == 0) | (j == n), 0.5, 1.0)
    return np.sin(0.5 * math.pi / n * j) ** 2, ends * (1.0 - waves @ terms) / n


def coefficients(
    kappa: Callable[[np.ndarray], np.ndarray], d: int, l: int
) -> Float[np.ndarray, " k"]:
    """Return c_0, ..., c_l with κ = Σ c_k P_k on the sphere in R^d.

    Parameters
    ----------
    kappa : callable
        κ as a function of the angle θ, elementwise on a float64 NumPy array: there the kernels of
        networks are smooth, as functions of cos θ they are not.
    d : int
        Dimension.
    l : int
        Largest degree.

    Notes
    -----
    c_k = α_k E κ(θ) P_k(cos θ) [Han et al. (2022), eq. 8], by Clenshaw-Curtis quadrature in θ of
    400 + 2l nodes or more. The error is about √α_k eps, absolute: below 10 √α_k eps no digit is
    right.
    """
    theta, w = angles(d, n_nodes(d, l))
    values = w * kappa(theta)
    p = orthonormals(l, d, np.cos(theta))
    return np.array([math.sqrt(alpha(k, d)) * float(values @ p[k]) for k in range(l + 1)])
