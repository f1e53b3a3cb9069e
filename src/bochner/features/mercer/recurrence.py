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

from functools import lru_cache

import numpy as np
from scipy.special import gammaln

from bochner._core.arrays import is_numpy
from bochner._core.native import Programme, harmonics, harmonics_twin
from bochner._core.shapes import Array, Float
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
    """Return the programme for rows of d coordinates, and where each block starts in it."""
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
    for l in range(len(needed) - 1, 0, -1):  # parents of the first of degree l, of degree l − 1
        if (count := needed[l]) == 0:
            continue
        s = 2
        while s < d and alpha(l, s) < count:
            s += 1
        both = min(2, alpha(l - 1, d))  # of √2 Re (x + iy)^l
        parents = both if s == 2 else max(alpha(l - 1, s - 1), count - alpha(l, s - 1))
        needed[l - 1] = max(needed[l - 1], parents)
    needed[0] = 1
    return tuple(needed)


def first_nodes(needed: tuple[int, ...]) -> np.ndarray:
    """Return the node that each degree starts at."""
    return np.concatenate([[0], np.cumsum(needed)[:-1]])


def axes_needed(d: int, degrees: tuple[int, ...], counts: tuple[int, ...]) -> int:
    """Return how many coordinates the programme of blocks reads: the first ones."""
    used = programme(d, prefixes(d, degrees, counts)).inputs[1:] % d
    return int(used.max(initial=0)) + 1


@lru_cache(maxsize=32)
def programme(d: int, needed: tuple[int, ...]) -> Programme:
    """Return the recurrence of the first needed[l] harmonics of each degree l, in R^d."""
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
