"""Three-term recurrences over rows: compiled loops, each with its twin on whole columns.

The twins run on arrays of any library, and are what other libraries than NumPy use.
"""

from typing import Any, NamedTuple

import numpy as np

from bochner._core.arrays import (
    array_namespace,
    device,
    from_numpy,
    is_numpy,
    taken,
)
from bochner._core.native import (
    PROFILES,
    _loops,
    _room,
    _row_blocks,
    get_num_threads,
    hadamard,
    power_of_two,
)
from bochner._core.shapes import Array, Float


class Programme(NamedTuple):
    """A straight-line programme over rows: each value is made of two earlier ones.

    Value 0 is 1, and each other value v is factors[v, 0] w[inputs[v, 0]] value[parents[v, 0]] plus
    the same with index 1, where w are the d coordinates of a row and then their d cumulative sums
    of squares.

    Attributes
    ----------
    parents, inputs : (nodes, 2) int32
        A parent comes before its child.
    factors : (nodes, 2) float64
    """

    parents: np.ndarray
    inputs: np.ndarray
    factors: np.ndarray


def polynomials(
    X: Float[Array, "n d"],
    W: Float[Array, "d m"],
    radial: Float[Array, "n f q"],
    up: Float[Array, " q"],
    down: Float[Array, " q"],
    out: Float[Array, "n fm"] | None = None,
) -> Float[Array, "n fm"]:
    """Compute Σ_l radial[i, f, l] p_l(⟨x_i, w_j⟩) for each row i, function f and column j of W.

    p_0 = 1, p_{l+1}(t) = up_l t p_l − down_l p_{l−1}; inner products are clipped to [−1, 1].
    Function f fills the m columns from f·m on. Costs n m (d + (3 + 2 f) q) operations; nothing but
    the result is written to memory.
    """
    out = _room(out, X, radial.shape[1] * W.shape[1])
    if (loops := _loops()) is not None:
        loops.polynomials(X, W, radial, up, down, out, get_num_threads())
        return out
    for rows in _row_blocks(X, 4 * W.shape[1]):
        out[rows] = polynomials_twin(X[rows], W, radial[rows], up, down)
    return out


def polynomials_twin(X: Array, W: Array, radial: Array, up: Array, down: Array) -> Array:
    """Do what `polynomials` does, one degree after the other, on arrays of any library."""
    xp = array_namespace(X)
    t = xp.clip(X @ W, -1.0, 1.0)
    p, before = xp.ones_like(t), xp.zeros_like(t)
    sums = [radial[:, f, :1] * p for f in range(radial.shape[1])]
    for l in range(up.shape[0]):
        p, before = float(up[l]) * t * p - float(down[l]) * before, p
        sums = [s + radial[:, f, l + 1 : l + 2] * p for f, s in enumerate(sums)]
    return xp.concat(sums, axis=1)


def harmonics(
    U: Float[Array, "n d"],
    programme: Programme,
    radial: Float[Array, "n b"],
    first: np.ndarray,
    count: np.ndarray,
    out: Float[Array, "n D"] | None = None,
) -> Float[Array, "n D"]:
    """Compute blocks of a programme's values, each times a factor of its row, side by side.

    Block b is radial[:, b] times values first[b], ..., first[b] + count[b] − 1. Costs about 4
    operations a value and one a column of the result.
    """
    out = _room(out, U, int(count.sum()))
    if (loops := _loops()) is not None:
        factors = programme.factors.astype(U.dtype, copy=False)
        plan = (programme.parents, programme.inputs, factors)
        loops.harmonics(U, *plan, radial, first, count, out, get_num_threads())
        return out
    for rows in _row_blocks(U, 4 * len(programme.factors) + out.shape[1]):
        out[rows] = harmonics_twin(U[rows], programme, radial[rows], first, count)
    return out


def harmonics_twin(
    U: Array, programme: Programme, radial: Array, first: np.ndarray, count: np.ndarray
) -> Array:
    """Do what `harmonics` does, one value of all rows after the other, in any library."""
    xp = array_namespace(U)
    values = _values(xp, U, programme)
    columns = [
        radial[:, b] * values[node]
        for b, (start, size) in enumerate(zip(first.tolist(), count.tolist(), strict=True))
        for node in range(start, start + size)
    ]
    return xp.stack(columns, axis=1) if columns else U[:, :0]


def _values(xp: Any, U: Array, programme: Programme) -> list[Array]:
    w = [U[:, j] for j in range(U.shape[1])]
    squares = [w[0] * w[0]]
    for x in w[1:]:
        squares.append(squares[-1] + x * x)
    w += squares
    values = [xp.ones_like(w[0])]
    steps = zip(*(part.tolist() for part in programme), strict=True)
    next(steps)
    for (p, q), (u, v), (a, b) in steps:
        value = a * w[u] * values[p]
        values.append(value + b * w[v] * values[q] if b else value)
    return values


# --- Frequencies that are never formed: products of Hadamard matrices and diagonals --------------
#
# The twins run on arrays of any library, and are what other libraries than NumPy use.


class Chains(NamedTuple):
    """Blocks of p frequencies, in turns, as transforms of rows that zeros fill up to p numbers.

    Block b maps x to

        Δ_s H ⋯ Δ₂ H Δ₁ Π H Δ₀ x,     H the unnormalised p × p Hadamard matrix.

    Attributes
    ----------
    diagonals : (blocks, s + 1, p)
        Δ₀, ..., Δ_s of each block; of the precision of the rows.
    orders : (blocks, p) int32, or (0, p)
        Number i of Π v is number orders[b, i] of v; without any, Π is the identity.
    m : int
        Frequencies in all; the last block may be cut.
    """

    diagonals: np.ndarray
    orders: np.ndarray
    m: int


def chain_waves(
    X: Float[Array, "n d"],
    chains: Chains,
    scale: float,
    b: Float[Array, " m"] | None = None,
    out: Float[Array, "n D"] | None = None,
) -> Float[Array, "n D"]:
    """Compute ``[scale cos(2 pi T), scale sin(2 pi T)]`` of the turns T of all chains.

    With phases `b`, in turns, ``scale cos(2 pi (T + b))`` alone. Costs m s log₂ p additions a row
    and as many cosines and sines as there are numbers in the result.
    """
    out = _room(out, X, 2 * chains.m if b is None else chains.m)
    bias = np.empty(0, X.dtype) if b is None else b
    if (loops := _loops()) is not None:
        loops.chains(
            X, chains.diagonals, chains.orders, bias, chains.m, scale, out, get_num_threads()
        )
        return out
    for rows in _row_blocks(X, 4 * chains.diagonals.shape[0] * chains.diagonals.shape[2]):
        out[rows] = chain_waves_twin(X[rows], chains, scale, b)
    return out


def chain_waves_twin(X: Array, chains: Chains, scale: float, b: Array | None = None) -> Array:
    """Do what `chain_waves` does, for arrays of any library."""
    T = turns(X, chains)
    xp = array_namespace(T)
    if b is not None:
        return scale * xp.cos(_radians(T + from_numpy(b, like=T)))
    angles = _radians(T)
    return scale * xp.concat([xp.cos(angles), xp.sin(angles)], axis=1)


def _radians(T: Array) -> Array:
    return (T - array_namespace(T).round(T)) * (2 * np.pi)


def turns(X: Float[Array, "n d"], chains: Chains) -> Float[Array, "n m"]:
    """Return the turns of each row and frequency, for arrays of any library."""
    xp = array_namespace(X)
    n, blocks, p = X.shape[0], chains.diagonals.shape[0], chains.diagonals.shape[2]
    first, *others = (
        from_numpy(diagonal, like=X) for diagonal in np.moveaxis(chains.diagonals, 1, 0)
    )
    Z = xp.reshape(_filled(X, p, xp)[:, None, :] * first[None, :, :], (n, blocks * p))
    for step, diagonal in enumerate(others):
        Z = xp.reshape(walsh(xp.reshape(Z, (n * blocks, p))), (n, blocks * p))
        if step == 0 and len(chains.orders):
            places = chains.orders.astype(np.int64) + p * np.arange(blocks)[:, None]
            Z = taken(Z, places.reshape(-1), axis=1)
        Z = Z * xp.reshape(diagonal, (1, blocks * p))
    return Z[:, : chains.m]


def _filled(X: Float[Array, "n d"], p: int, xp: Any) -> Float[Array, "n p"]:
    n, d = X.shape
    if p == d:
        return X
    return xp.concat([X, xp.zeros((n, p - d), dtype=X.dtype, device=device(X))], axis=1)


def walsh(Z: Float[Array, "n p"]) -> Float[Array, "n p"]:
    """Return the unnormalised Walsh-Hadamard transform of each row, in any library."""
    xp = array_namespace(Z)
    n, p = Z.shape
    for h in (1 << k for k in range(p.bit_length() - 1)):
        pairs = xp.reshape(Z, (n, p // (2 * h), 2, h))
        low, high = pairs[:, :, 0, :], pairs[:, :, 1, :]
        Z = xp.reshape(xp.stack([low + high, low - high], axis=2), (n, p))
    return Z


def signed_walsh(X: Float[Array, "n d"], signs: Float[Array, " p"]) -> Float[Array, "n p"]:
    """Return H (s ∘ x) of each row x that zeros fill up to a power of two, in any library.

    Signs beyond the d columns meet zeros, and need not be there. X may be complex.
    """
    d = X.shape[1]
    p = power_of_two(d)
    if is_numpy(X) and X.dtype.kind == "f":
        filled = np.zeros((X.shape[0], p), X.dtype)
        np.multiply(X, signs[:d].astype(X.dtype), out=filled[:, :d])
        return hadamard(filled, out=filled)
    xp = array_namespace(X)
    signs = xp.astype(from_numpy(signs[:d], like=X), X.dtype)
    return walsh(_filled(X * signs[None, :], p, xp))


# --- Products with the kernel matrix of rows with one another, which is made while it is multiplied
#
# Each value off the diagonal serves twice, as itself and transposed, and never leaves the cache of
# one processor: no tile of the matrix goes to memory and back.


def radial_product(
    X: Float[Array, "n d"], V: Float[Array, "n t"], profile: str, parameter: float = 1.0
) -> Float[Array, "n t"]:
    """Return K V in float64 for the kernel matrix K that `native.radial` gives of X and X.

    X and V, float32 or float64, are alike. Values are of their precision, within a few roundings
    of those of `native.radial`, and so are sums over blocks of 256 × 256 values; sums over blocks
    are float64, in one order for any number of threads. Costs n² d + 2 n² t multiplications, n²/2
    values, and up to 2 KB of memory a row.
    """
    right, out = np.ascontiguousarray(V.T), np.empty((V.shape[1], len(X)))
    if (loops := _loops()) is not None:
        loops.radial_product(X, profile, parameter, right, out, get_num_threads())
        return out.T
    return radial_product_twin(X, V, profile, parameter)


def radial_product_twin(X: Array, V: Array, profile: str, parameter: float) -> Array:
    """Do what `radial_product` does, in NumPy, some rows of the upper triangle at a time."""
    measure, value = PROFILES[profile]
    out, parameter = np.zeros(V.shape), X.dtype.type(parameter)
    for rows in _row_blocks(X, 4 * len(X)):
        block = X[rows]
        below = slice(rows.start + len(block), None)
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            K = value(measure(block, X[rows.start :]), parameter)
        out[rows] += K @ V[rows.start :]
        out[below] += K[:, len(block) :].T @ V[rows]
    return out
