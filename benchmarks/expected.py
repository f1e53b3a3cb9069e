"""What theory expects of ridge regression on random features, for the target of ``wide ridge``.

For n rows, k features and the penalty δ, with eigenvalues λ_i of the kernel over the law of the
rows and v_i the target's coefficients on its eigenfunctions, κ and γ solve (Simon, Karkada, Ghosh
and Belkin 2024, "More is better in modern machine learning", section 3)

    n = Σ λ_i/(λ_i + γ) + δ/κ,    k = Σ λ_i/(λ_i + γ) + k κ/γ,

and with z = Σ λ_i/(λ_i + γ), q = Σ (λ_i/(λ_i + γ))² the expected squared error of a new y is

    [Σ (γ/(λ_i + γ) − κ λ_i/(λ_i + γ)² k/(k − q)) v_i² + σ²] / [1 − (q (k − 2z) + z²)/(n (k − q))].

Rows are normal and the kernel Gaussian, so both are known in closed form: λ is λ_0 Bᵐ at the level
m of products of Hermite functions (Rasmussen and Williams 2006, section 4.3.1), and coefficients of
a function of two columns are sums over a grid. Features there are independent; those of pairs of
waves in orthogonal directions differ from the kernel by somewhat less.
"""

from math import comb

import numpy as np
from numpy.polynomial.hermite_e import hermegauss
from scipy.optimize import brentq

__all__ = ["expected_error"]

Array = np.ndarray

#: Columns, the lengthscale, the levels that are counted, functions of a column, and nodes.
COLUMNS, LENGTHSCALE, LEVELS, FUNCTIONS, NODES = 10, 3.0, 60, 60, 180

#: The least γ that is looked for.
SMALLEST = 1e-16

#: Terms of the target: functions of two columns each.
TERMS = (
    lambda a, b: np.sin(2 * a) * b,
    lambda a, b: np.cos(a + b),
    lambda a, b: np.exp(-((a - b) ** 2)),
    lambda a, b: np.tanh(2 * a * b),
)


def expected_error(n: int, k: int, penalty: float, noise: float) -> float:
    """Return the root mean squared error to the target without its noise."""
    eigenvalues, copies, power, rest = _levels()

    def freedom(gamma: float) -> float:
        return float((copies * eigenvalues / (eigenvalues + gamma)).sum())

    def kappa(gamma: float) -> float:
        return gamma * (k - freedom(gamma)) / k

    def left(log_gamma: float) -> float:
        gamma = float(np.exp(log_gamma))
        return n - freedom(gamma) - penalty / max(kappa(gamma), 1e-300)

    least = np.log(SMALLEST)
    if freedom(SMALLEST) > k:
        least = brentq(lambda g: freedom(np.exp(g)) - k, least, 0.0) + 1e-9
    gamma = float(np.exp(brentq(left, least, 10.0)))
    share = eigenvalues / (eigenvalues + gamma)
    z, q = freedom(gamma), float((copies * share**2).sum())
    kept = 1 - share - kappa(gamma) * share**2 / eigenvalues * k / (k - q)
    total = float(kept @ power) + rest + noise**2
    return (total / (1 - (q * (k - 2 * z) + z**2) / (n * (k - q))) - noise**2) ** 0.5


def _levels() -> tuple[Array, Array, Array, float]:
    """Return eigenvalues of levels, functions of each, the target's power there, and the rest."""
    a, b = 0.25, 0.5 / LENGTHSCALE**2
    c = (a * a + 2 * a * b) ** 0.5
    A, x, w = a + b + c, *hermegauss(NODES)
    w = w / w.sum()
    phi = _functions(x, a, c)
    of_one = phi @ w
    grids, weights = np.meshgrid(x, x, indexing="ij"), np.outer(w, w)
    values = [term(*grids) for term in TERMS]
    values = [value - (weights * value).sum() for value in values]
    found = [phi @ (weights * value) @ phi.T for value in values]
    ones, pairs = of_one**2, np.outer(of_one, of_one)
    crossed = [_by_level(G * pairs) for G in found]
    power = sum(_convolved(_by_level(G**2), *[ones] * (COLUMNS - 2)) for G in found)
    for p, one in enumerate(crossed):
        others = sum(other for q, other in enumerate(crossed) if q != p)
        power = power + _convolved(one, others, *[ones] * (COLUMNS - 4))
    variance = float(sum((weights * value**2).sum() for value in values))
    m = np.arange(LEVELS)
    copies = np.array([float(comb(level + COLUMNS - 1, COLUMNS - 1)) for level in m])
    eigenvalues = (2 * a / A) ** (COLUMNS / 2) * (b / A) ** m
    return eigenvalues, copies, power, max(variance - float(power.sum()), 0.0)


def _functions(x: Array, a: float, c: float) -> Array:
    """Return the eigenfunctions of one column at nodes: orthonormal for a normal law."""
    t, found = (2 * c) ** 0.5 * x, np.zeros((FUNCTIONS, len(x)))
    found[0] = (c / a) ** 0.25 * np.exp(-(c - a) * x * x)
    found[1] = found[0] * t * 2**0.5
    for k in range(1, FUNCTIONS - 1):
        found[k + 1] = t * (2 / (k + 1)) ** 0.5 * found[k] - (k / (k + 1)) ** 0.5 * found[k - 1]
    return found


def _by_level(G: Array) -> Array:
    """Return the sums of a matrix along its anti-diagonals, as many as there are levels."""
    level = np.add.outer(np.arange(len(G)), np.arange(len(G)))
    return np.bincount(level.ravel(), weights=G.ravel(), minlength=LEVELS)[:LEVELS]


def _convolved(*sequences: Array) -> Array:
    total = np.ones(1)
    for each in sequences:
        total = np.convolve(total, each)[:LEVELS]
    return total
